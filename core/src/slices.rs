//! What slices do without a way to panic.

/// Copies as much as both have. `copy_from_slice` panics on unequal lengths, and the compiler does
/// not always see that they are equal.
pub(crate) fn copy<T: Copy>(to: &mut [T], from: &[T]) {
    for (to, from) in to.iter_mut().zip(from) {
        *to = *from;
    }
}
