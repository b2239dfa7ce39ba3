//! The kernel that `demo` runs, compiled for each target.

/// out\[i\] = a\[i\] + b\[i\] in f32; 256 work-items a group, no bounds check.
/// Source: `tests/corpus/src/vecadd.cl`.
pub const VECADD: &[(&str, &[u8])] = &[
    ("gfx1100", include_bytes!("../../../tests/corpus/co/vecadd.gfx1100.v5.O2.co")),
    // There is no compiled object of its own for Navi32: the generic one serves all of GFX 11.
    ("gfx1101", include_bytes!("../../../tests/corpus/co/vecadd.gfx11-generic.v6.O2.co")),
    ("gfx1102", include_bytes!("../../../tests/corpus/co/vecadd.gfx1102.v5.O2.co")),
    ("gfx1200", include_bytes!("../../../tests/corpus/co/vecadd.gfx1200.v5.O2.co")),
    ("gfx1201", include_bytes!("../../../tests/corpus/co/vecadd.gfx1201.v5.O2.co")),
];

/// Work-items of a group of [`VECADD`].
pub const VECADD_BLOCK: u32 = 256;

/// The code object for a target.
pub fn vecadd(target: &str) -> Option<&'static [u8]> {
    VECADD.iter().find(|(t, _)| *t == target).map(|(_, image)| *image)
}
