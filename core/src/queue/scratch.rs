//! How much scratch memory (private memory that spills to VRAM) a GPU needs, and the register value
//! that describes it.

use crate::iface::Properties;
use crate::queue::QueueError;

/// Scratch memory for every wave that can run at once.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Scratch {
    /// Bytes for each work-item this serves.
    pub per_item: u32,
    /// Bytes for all waves of one XCC.
    pub xcc_size: u64,
    /// Bytes to allocate: `xcc_size` for each XCC.
    pub size: u64,
    /// Value of `COMPUTE_TMPRING_SIZE`.
    pub tmpring_size: u32,
}

/// Bytes for each work-item that are set aside before any kernel asks for more.
pub const DEFAULT_PER_ITEM: u32 = 128;

/// Width in bits of `COMPUTE_TMPRING_SIZE.WAVESIZE`, which starts at bit 12.
/// Source: `gc_{9_4_3,10_3_0,11_0_0,12_0_0}_sh_mask.h`.
fn wavesize_bits(major: u8) -> u32 {
    match major {
        ..=10 => 13,
        11 => 15,
        _ => 18,
    }
}

impl Scratch {
    /// What kernels with `per_item` bytes of private memory for each work-item need on this GPU.
    ///
    /// A wave's share is counted in units of 1024 bytes before gfx11 and of 256 bytes from then on;
    /// the number of waves is that of the whole GPU before gfx11 and that of a shader engine from
    /// then on (`COMPUTE_TMPRING_SIZE` in the headers; Mesa's `ac_compute_tmpring_size` has the same).
    pub fn for_kernel(props: &Properties, per_item: u32) -> Result<Scratch, QueueError> {
        let gfx11 = props.target.major >= 11;
        let unit: u64 = if gfx11 { 256 } else { 1024 };
        let bad = |what| QueueError::BadLaunch { what, value: per_item as u64, max: 0 };
        let wave = (props.wave_ids() as u64).saturating_mul(per_item as u64);
        let wave = wave.checked_next_multiple_of(unit).ok_or(bad("scratch size"))?;
        let slots = (props.cus_per_xcc() as u64).saturating_mul(props.max_scratch_slots_per_cu as u64);
        let xcc_size = slots.checked_mul(wave).ok_or(bad("scratch size"))?;
        let size = xcc_size.checked_mul(props.xcc_count.max(1) as u64).ok_or(bad("scratch size"))?;

        let wave_units = wave / unit;
        let engines = if gfx11 { props.engines().max(1) as u64 } else { 1 };
        let waves = slots / engines;
        let max = (1u64 << wavesize_bits(props.target.major)) - 1;
        if wave_units > max {
            let most = (max * unit).checked_div(props.wave_ids() as u64).unwrap_or(0);
            return Err(QueueError::BadLaunch {
                what: "private memory per work-item (bytes)",
                value: per_item as u64,
                max: most,
            });
        }
        if waves > 0xfff {
            return Err(QueueError::TooLarge {
                what: "COMPUTE_TMPRING_SIZE.WAVES",
                value: waves,
                max: 0xfff,
            });
        }
        let tmpring_size = (wave_units as u32) << 12 | waves as u32;
        Ok(Scratch { per_item, xcc_size, size, tmpring_size })
    }
}
