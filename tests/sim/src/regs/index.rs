//! Registers that every shader engine, shader array or instance has for itself. GRBM_GFX_INDEX says
//! which one an access means, or that a write goes to all of them
//! (`gfx_v11_0_select_se_sh`, gfx_v11_0.c).

/// Fields of GRBM_GFX_INDEX (gc_11_0_0_sh_mask.h; narrower in gc_12_0_0, with the same lowest bits):
/// shift of the number, and the bit that makes a write go to all.
const PARTS: [(u32, u32); 3] = [(0, 30), (8, 29), (16, 31)];
/// After a reset writes go to all: what Linux puts there after each use.
pub(super) const BROADCAST: u32 = 0xe000_0000;

/// Whether a register is one of those: configuration and harvest of shader arrays and render backends,
/// trace and counters of the shader blocks (what Linux reads and writes between `select_se_sh`, and what
/// the reference selects an engine for).
pub(super) fn is_indexed(name: &str) -> bool {
    let exact = [
        "CC_GC_SHADER_ARRAY_CONFIG",
        "GC_USER_SHADER_ARRAY_CONFIG",
        "CC_RB_BACKEND_DISABLE",
        "GC_USER_RB_BACKEND_DISABLE",
    ];
    let prefixes = ["SQ_THREAD_TRACE_", "SQ_PERFCOUNTER", "SQG_PERFCOUNTER", "TCP_PERFCOUNTER", "SQ_IND_"];
    exact.contains(&name) || prefixes.iter().any(|p| name.starts_with(p))
}

/// The values of one register in all its places.
#[derive(Default, Debug)]
pub(super) struct Places {
    /// What was written, oldest first: GRBM_GFX_INDEX then, value. A write makes those that it covers
    /// disappear, so that this does not grow beyond the number of places.
    written: Vec<(u32, u32)>,
}

/// Number of a part; `None` for all.
fn part(index: u32, (shift, all): (u32, u32)) -> Option<u32> {
    (index >> all & 1 == 0).then_some(index >> shift & 0xff)
}

/// Whether a write with `index` reaches every place that one with `other` reaches.
fn covers(index: u32, other: u32) -> bool {
    PARTS.into_iter().all(|p| part(index, p).is_none_or(|n| part(other, p) == Some(n)))
}

impl Places {
    pub(super) fn set(&mut self, index: u32, value: u32) {
        self.written.retain(|(old, _)| !covers(index, *old));
        self.written.push((index, value));
    }

    /// The value in the place that `index` names; of all, the first answers.
    pub(super) fn get(&self, index: u32) -> Option<u32> {
        let place = PARTS.into_iter().fold(0, |at, p| at | part(index, p).unwrap_or(0) << p.0);
        self.written.iter().rev().find(|(written, _)| covers(*written, place)).map(|(_, value)| *value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_write_reaches_one_place_or_all_of_an_engine_or_all_and_the_last_one_counts() {
        let mut p = Places::default();
        assert_eq!(p.get(0), None);
        p.set(BROADCAST, 1);
        assert_eq!((p.get(0), p.get(0x3_0105), p.get(BROADCAST)), (Some(1), Some(1), Some(1)));
        p.set(0x2_0100, 2);
        assert_eq!(
            (p.get(0x2_0100), p.get(0x2_0000), p.get(0x1_0100), p.get(0x2_0101)),
            (Some(2), Some(1), Some(1), Some(1))
        );
        // All arrays and instances of engine 2.
        p.set(0x6002_0000, 3);
        assert_eq!((p.get(0x2_0100), p.get(0x2_0001), p.get(0x1_0000)), (Some(3), Some(3), Some(1)));
        assert_eq!(p.written.len(), 2, "what is covered is forgotten");
        p.set(BROADCAST, 4);
        assert_eq!((p.get(0x2_0100), p.written.len()), (Some(4), 1));
    }
}
