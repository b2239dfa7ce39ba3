//! The IP discovery binary as firmware leaves it at the end of VRAM (`discovery.h`).

use crate::chip::Chip;

/// Distance of the binary from the end of VRAM (`DISCOVERY_TMR_OFFSET` in `amdgpu_discovery.h`).
pub const FROM_END: u64 = 64 << 10;

const BINARY_SIGNATURE: u32 = 0x2821_1407;
const TABLES: usize = 6;
const HEADER: usize = 12 + TABLES * 8 + 4;
const IP_HEADER: usize = 80;

/// Byte sum modulo 2^16, the checksum of the binary and of its tables.
pub fn checksum(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0u16, |sum, b| sum.wrapping_add(u16::from(*b)))
}

fn put16(out: &mut [u8], at: usize, v: u16) {
    out[at..at + 2].copy_from_slice(&v.to_le_bytes());
}

fn align(out: &mut Vec<u8>, to: usize) {
    out.resize(out.len().next_multiple_of(to), 0);
}

fn ip_table(chip: &Chip, at: usize) -> Vec<u8> {
    let mut t = vec![0u8; IP_HEADER];
    t[0..4].copy_from_slice(b"IPDS");
    put16(&mut t, 4, 4); // version 4: base addresses may be 64 bits wide; here they are not
    put16(&mut t, 12, 1); // one die
    put16(&mut t, 16, (at + IP_HEADER) as u16);
    t.extend_from_slice(&0u16.to_le_bytes());
    t.extend_from_slice(&(chip.ips.len() as u16).to_le_bytes());
    for ip in chip.ips {
        t.extend_from_slice(&ip.hw_id.to_le_bytes());
        t.extend_from_slice(&[ip.instance, ip.bases.len() as u8]);
        t.extend_from_slice(&[ip.version.0, ip.version.1, ip.version.2, 0]);
        for base in ip.bases {
            t.extend_from_slice(&base.to_le_bytes());
        }
    }
    align(&mut t, 8);
    let size = t.len() as u16;
    put16(&mut t, 6, size);
    t
}

fn gc_table(chip: &Chip) -> Vec<u8> {
    let mut t = b"GC\0\0".to_vec();
    t.extend_from_slice(&1u16.to_le_bytes());
    t.extend_from_slice(&chip.gc.minor.to_le_bytes());
    let mut dwords = vec![0u32; chip.gc.len];
    dwords[..chip.gc.dwords.len()].copy_from_slice(&chip.gc.dwords);
    t.extend_from_slice(&((12 + 4 * dwords.len()) as u32).to_le_bytes());
    t.extend(dwords.iter().flat_map(|d| d.to_le_bytes()));
    t
}

/// The binary of this chip, checksums included.
pub fn binary(chip: &Chip) -> Vec<u8> {
    let mut out = vec![0u8; HEADER];
    out[0..4].copy_from_slice(&BINARY_SIGNATURE.to_le_bytes());
    put16(&mut out, 4, 1);
    let mut harvest = b"HARV".to_vec();
    harvest.resize(8 + 32 * 4, 0);
    let ip = ip_table(chip, HEADER);
    for (i, table) in [ip, gc_table(chip), harvest].into_iter().enumerate() {
        align(&mut out, 16);
        let at = out.len();
        put16(&mut out, 12 + i * 8, at as u16);
        put16(&mut out, 14 + i * 8, checksum(&table));
        put16(&mut out, 16 + i * 8, table.len() as u16);
        out.extend_from_slice(&table);
    }
    align(&mut out, 16);
    let size = out.len() as u16;
    put16(&mut out, 10, size);
    let sum = checksum(&out[10..]);
    put16(&mut out, 8, sum);
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chip::CHIPS;

    #[test]
    fn every_models_binary_equals_the_one_the_reference_parsed() {
        for chip in CHIPS {
            let path = format!("{}/../golden/{}/discovery.bin", env!("CARGO_MANIFEST_DIR"), chip.name);
            assert_eq!(binary(chip), std::fs::read(&path).unwrap(), "{}", chip.name);
        }
    }
}
