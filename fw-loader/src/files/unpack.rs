//! Decompression with a bound on what it yields and on the memory it takes.

use std::io::Read;
use std::path::Path;

use super::FindError;
use crate::parse::MAX_FILE;

/// Reads a `.xz` or `.zst` file (by the end of its name) and unpacks it; at most 16 MiB come out.
pub fn unpack(path: &Path) -> Result<Vec<u8>, FindError> {
    let packed = std::fs::read(path).map_err(|source| FindError::Read { path: path.to_owned(), source })?;
    let unpacked = match path.extension() {
        Some(e) if e == "xz" => xz(&packed),
        _ => zst(&packed),
    };
    unpacked.map_err(|reason| FindError::Unpack { path: path.to_owned(), reason })
}

const TOO_LARGE: &str = "more than 16 MiB, which no firmware file has";

fn zst(packed: &[u8]) -> Result<Vec<u8>, String> {
    let decoder = ruzstd::decoding::StreamingDecoder::new_with_max_window_size(packed, MAX_FILE)
        .map_err(|e| e.to_string())?;
    let mut out = Vec::new();
    decoder.take(MAX_FILE + 1).read_to_end(&mut out).map_err(|e| e.to_string())?;
    if out.len() as u64 > MAX_FILE { Err(TOO_LARGE.to_owned()) } else { Ok(out) }
}

fn xz(packed: &[u8]) -> Result<Vec<u8>, String> {
    // The decoder gathers its whole output before anyone can stop it: look before it starts.
    if xz_unpacked_len(packed).ok_or("not in .xz format, or cut off")? > MAX_FILE {
        return Err(TOO_LARGE.to_owned());
    }
    let mut out = Vec::new();
    let mut input = packed;
    lzma_rs::xz_decompress(&mut input, &mut out).map_err(|e| format!("{e:?}"))?;
    Ok(out)
}

/// Adds up what the LZMA2 chunks of a `.xz` file say they unpack to (The .xz File Format 1.1.0;
/// chunk headers as in Linux's `lib/xz/xz_dec_lzma2.c`).
fn xz_unpacked_len(packed: &[u8]) -> Option<u64> {
    const STREAM_HEADER: usize = 12;
    let flags = *packed.get(7)?;
    let check = match flags & 0xf {
        0 => 0,
        1..=3 => 4,
        4..=6 => 8,
        7..=9 => 16,
        10..=12 => 32,
        _ => 64,
    };
    let be16 = |at: usize| Some(u16::from_be_bytes([*packed.get(at)?, *packed.get(at + 1)?]) as u64);
    let mut at = STREAM_HEADER;
    let mut total = 0u64;
    loop {
        // A header size of 0 is the index, which ends the list of blocks.
        let header = (*packed.get(at)? as usize + 1) * 4;
        if header == 4 {
            return Some(total);
        }
        at += header;
        loop {
            let control = *packed.get(at)?;
            match control {
                0 => break,
                1 | 2 => {
                    let len = be16(at + 1)? + 1;
                    total += len;
                    at += 3 + len as usize;
                }
                3..=0x7f => return None,
                _ => {
                    total += ((control as u64 & 0x1f) << 16 | be16(at + 1)?) + 1;
                    let header = if control >= 0xc0 { 6 } else { 5 };
                    at += header + be16(at + 3)? as usize + 1;
                }
            }
            if total > MAX_FILE {
                return Some(total);
            }
        }
        at = (at + 1).next_multiple_of(4) + check;
    }
}
