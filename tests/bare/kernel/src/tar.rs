//! Files of a tar archive in memory (POSIX ustar, short names).

/// Contents of the file of this name.
pub fn find<'a>(mut archive: &'a [u8], name: &str) -> Option<&'a [u8]> {
    loop {
        let (header, rest) = archive.split_at_checked(512)?;
        let entry = header.get(..100)?.split(|b| *b == 0).next()?;
        if entry.is_empty() {
            return None;
        }
        let digits = header.get(124..135)?;
        let size = digits.iter().try_fold(0usize, |n, d| Some(n * 8 + (*d as char).to_digit(8)? as usize))?;
        if entry == name.as_bytes() {
            return rest.get(..size);
        }
        archive = rest.get(size.next_multiple_of(512)..)?;
    }
}
