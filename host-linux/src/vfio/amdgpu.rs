//! What amdgpu tells of a GPU that it drives, without taking the GPU from it.

use super::sysfs::Sysfs;
use amdev_cli::session::{Measured, SmiReport};
use amdev_cli::spec::PciAddress;
use std::fs;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

/// Name of the driver.
pub(super) const AMDGPU: &str = "amdgpu";
/// Format and content of `struct gpu_metrics_v1_3` (kgd_pp_interface.h), which SMU 13 and 14 have.
const V1_3: (u8, u8) = (1, 3);
/// Its length in bytes.
const LENGTH: usize = 120;
/// A field that the GPU does not measure (`smu_cmn_init_soft_gpu_metrics` fills all with ones).
const NONE: u16 = u16::MAX;

/// Why amdgpu's numbers cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum AmdgpuError {
    /// A file cannot be read.
    #[error("{path}: {why}")]
    File {
        /// The file.
        path: PathBuf,
        /// Why not.
        why: io::Error,
    },
    /// The table is of another kind.
    #[error(
        "{path}: gpu_metrics of format {format}.{content} and {len} bytes; only 1.3, of {LENGTH} bytes, is known: \
         use amdgpu's own tools for this GPU"
    )]
    Format {
        /// The file.
        path: PathBuf,
        /// Its format.
        format: u8,
        /// Its content.
        content: u8,
        /// Its length.
        len: usize,
    },
    /// Something is missing in it.
    #[error("{path}: this GPU has no {field}")]
    Missing {
        /// The file.
        path: PathBuf,
        /// The field.
        field: &'static str,
    },
}

/// A sample of a GPU that amdgpu drives.
///
/// # Errors
/// [`AmdgpuError`]; files that tell clock levels, limits and versions may be missing.
pub(super) fn sample(sysfs: &Sysfs, address: PciAddress) -> Result<SmiReport, AmdgpuError> {
    let dir = sysfs.dir(address);
    let path = dir.join("gpu_metrics");
    let mut table = Vec::new();
    let read = fs::File::open(&path).and_then(|f| f.take(4096).read_to_end(&mut table));
    read.map_err(|why| AmdgpuError::File { path: path.clone(), why })?;
    let byte = |at: usize| table.get(at).copied().unwrap_or_default();
    if table.len() < LENGTH || (byte(2), byte(3)) != V1_3 {
        return Err(AmdgpuError::Format { path, format: byte(2), content: byte(3), len: table.len() });
    }
    let field = |field, at| match u16::from_le_bytes([byte(at), byte(at + 1)]) {
        NONE => Err(AmdgpuError::Missing { path: path.clone(), field }),
        value => Ok(value),
    };
    let [gfx, memory, fabric, system] = ["pp_dpm_sclk", "pp_dpm_mclk", "pp_dpm_fclk", "pp_dpm_socclk"]
        .map(|name| Clock::read(&dir.join(name)));
    Ok(SmiReport {
        measured: Measured::Amdgpu,
        firmware: firmware(&dir),
        gfxclk_mhz: field("average_gfxclk_frequency", 40)?,
        memclk_mhz: field("average_uclk_frequency", 44)?,
        // Not in the table, or not on each of these GPUs.
        fclk_mhz: fabric.now,
        socclk_mhz: system.now,
        levels_mhz: [gfx, memory, fabric, system].map(|clock| clock.levels).into(),
        gfx_activity: field("average_gfx_activity", 16)?,
        mem_activity: field("average_umc_activity", 18)?,
        power_w: field("average_socket_power", 22)?,
        power_limit_w: power_limit(&dir),
        edge_c: field("temperature_edge", 4)?,
        hotspot_c: field("temperature_hotspot", 6)?,
        mem_c: field("temperature_mem", 8)?,
        gfx_mv: field("voltage_gfx", 106)?,
        fan_rpm: field("current_fan_speed", 72)?,
        // When it was measured, in units of 10 ns.
        counter: u32::from_le_bytes([byte(96), byte(97), byte(98), byte(99)]),
        interface: 0,
        known_interface: 0,
    })
}

/// A file's text; empty if there is none.
fn text(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_default().trim().to_owned()
}

/// Version of the SMU's firmware: its upper bytes are those of `78.135.0`.
fn firmware(dir: &Path) -> String {
    let text = text(&dir.join("fw_version/smc_fw_version"));
    match u32::from_str_radix(text.trim_start_matches("0x"), 16) {
        Ok(version) => {
            let [debug, minor, major, _] = version.to_le_bytes();
            format!("{major}.{minor}.{debug}")
        }
        Err(_) => "unknown".into(),
    }
}

/// In watts; 0 if it is not told.
fn power_limit(dir: &Path) -> u32 {
    let monitors = fs::read_dir(dir.join("hwmon")).into_iter().flatten().flatten();
    let mut limits = monitors.filter_map(|m| text(&m.path().join("power1_cap")).parse::<u64>().ok());
    limits.next().map_or(0, |microwatts| u32::try_from(microwatts / 1_000_000).unwrap_or(u32::MAX))
}

/// A clock as `pp_dpm_*` tells it: a line for each level, `1: 2304Mhz *` for the one it runs at.
#[derive(Default)]
struct Clock {
    now: u16,
    levels: Vec<u16>,
}

impl Clock {
    fn read(path: &Path) -> Clock {
        let mut clock = Clock::default();
        for line in text(path).lines() {
            let Some((level, rest)) = line.split_once(':') else { continue };
            let digits: String = rest.trim().chars().take_while(char::is_ascii_digit).collect();
            let Ok(mhz) = digits.parse() else { continue };
            if rest.trim_end().ends_with('*') {
                clock.now = mhz;
            }
            // `S` is deep sleep, which is no level.
            if level.trim().parse::<u8>().is_ok() {
                clock.levels.push(mhz);
            }
        }
        clock
    }
}

#[cfg(test)]
mod tests {
    use super::super::fake::{DIR, GPU, Tree};
    use super::*;

    /// A table in which each 16-bit field holds its own offset.
    fn table() -> Vec<u8> {
        let mut table: Vec<u8> = (0u16..LENGTH as u16).step_by(2).flat_map(u16::to_le_bytes).collect();
        table[..4].copy_from_slice(&[LENGTH as u8, 0, 1, 3]);
        table
    }

    fn tree(table: &[u8]) -> Tree {
        let tree = Tree::card("amdgpu");
        fs::write(tree.path(&format!("{DIR}/gpu_metrics")), table).unwrap();
        tree
    }

    fn error(table: &[u8]) -> String {
        sample(&tree(table).sysfs(), GPU.parse().unwrap()).unwrap_err().to_string()
    }

    #[test]
    fn what_amdgpu_measures_is_read_from_its_files() {
        let tree = tree(&table());
        for (file, text) in [
            ("pp_dpm_sclk", "0: 500Mhz \n1: 31Mhz *\n2: 2304Mhz \n"),
            ("pp_dpm_fclk", "0: 501Mhz \n1: 1700Mhz *\n"),
            ("pp_dpm_socclk", "S: 19Mhz *\n0: 500Mhz \n1: 1200Mhz \n"),
            ("hwmon/hwmon3/power1_cap", "315000000\n"),
            ("fw_version/smc_fw_version", "0x004e8700\n"),
        ] {
            tree.write(&format!("{DIR}/{file}"), text);
        }
        let r = sample(&tree.sysfs(), GPU.parse().unwrap()).unwrap();
        assert_eq!((r.gfxclk_mhz, r.memclk_mhz, r.fclk_mhz, r.socclk_mhz), (40, 44, 1700, 19));
        assert_eq!((r.edge_c, r.hotspot_c, r.mem_c, r.gfx_mv, r.fan_rpm), (4, 6, 8, 106, 72));
        assert_eq!((r.gfx_activity, r.mem_activity, r.power_w, r.power_limit_w), (16, 18, 22, 315));
        assert_eq!(
            (r.firmware.as_str(), r.counter, r.measured),
            ("78.135.0", 98 << 16 | 96, Measured::Amdgpu)
        );
        assert_eq!(r.levels_mhz, [vec![500, 31, 2304], vec![], vec![501, 1700], vec![500, 1200]]);
    }

    #[test]
    fn a_table_that_is_not_known_is_an_error_that_names_it() {
        let mut other = table();
        other[2..4].copy_from_slice(&[2, 4]);
        assert!(error(&other).contains("format 2.4"), "{}", error(&other));
        assert!(error(&table()[..50]).contains("50 bytes"));
        assert!(error(&[]).contains("format 0.0"));
        let mut without = table();
        without[72..74].fill(0xff);
        assert!(error(&without).contains("no current_fan_speed"));
        let none = Tree::card("amdgpu");
        let e = sample(&none.sysfs(), GPU.parse().unwrap()).unwrap_err().to_string();
        assert!(e.contains("gpu_metrics: "), "{e}");
    }
}
