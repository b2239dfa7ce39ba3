//! Data parallel primitives: the first source from another lane.

use super::Dpp;
use super::wave::Lanes;

impl Dpp {
    /// The lane that `lane` reads; `None` outside its row.
    fn source(&self, lane: u32) -> Option<u32> {
        let (row, at) = (lane & !15, lane & 15);
        match *self {
            Dpp::Eight { sel, .. } => Some(lane & !7 | sel >> (3 * (lane & 7)) & 7),
            Dpp::Row { ctrl, .. } => {
                let ctrl = u32::from(ctrl);
                let n = ctrl & 15;
                match ctrl {
                    0..=0xff => Some(lane & !3 | ctrl >> (2 * (lane & 3)) & 3),
                    0x101..=0x10f => (at + n < 16).then_some(lane + n),
                    0x111..=0x11f => (at >= n).then(|| lane - n),
                    0x121..=0x12f => Some(row | (at + 16 - n) & 15),
                    0x140 => Some(row | (15 - at)),
                    0x141 => Some(lane & !7 | (7 - (lane & 7))),
                    0x150..=0x15f => Some(row | n),
                    0x160..=0x16f => Some(row | (at ^ n)),
                    _ => None,
                }
            }
        }
    }

    /// Whether the control code means anything.
    pub(super) fn is_valid(&self) -> bool {
        match *self {
            Dpp::Eight { .. } => true,
            Dpp::Row { ctrl, .. } => matches!(
                ctrl,
                0..=0xff | 0x101..=0x10f | 0x111..=0x11f | 0x121..=0x12f | 0x140 | 0x141 | 0x150..=0x16f
            ),
        }
    }

    fn fetches_inactive(&self) -> bool {
        match *self {
            Dpp::Row { fi, .. } | Dpp::Eight { fi, .. } => fi,
        }
    }

    /// Lanes of `exec` that are written.
    pub(super) fn writes(&self, exec: u64, lanes: u32) -> u64 {
        let Dpp::Row { bound_ctrl, bank_mask, row_mask, .. } = *self else {
            return exec;
        };
        let mut mask = 0;
        for lane in 0..lanes {
            let enabled = row_mask >> (lane / 16) & 1 != 0 && bank_mask >> (lane / 4 % 4) & 1 != 0;
            let has_source = self.source(lane).is_some_and(|s| self.fetches_inactive() || exec >> s & 1 != 0);
            if enabled && (has_source || bound_ctrl) {
                mask |= 1 << lane;
            }
        }
        mask & exec
    }

    /// Values as the lanes see them; zero where there is no source.
    pub(super) fn gather(&self, v: &Lanes<u32>, exec: u64, lanes: u32) -> Lanes<u32> {
        std::array::from_fn(|lane| {
            if lane as u32 >= lanes {
                return 0;
            }
            match self.source(lane as u32) {
                Some(s) if self.fetches_inactive() || exec >> s & 1 != 0 => v[s as usize],
                _ => 0,
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(ctrl: u16) -> Dpp {
        Dpp::Row { ctrl, fi: false, bound_ctrl: false, bank_mask: 15, row_mask: 15 }
    }

    #[test]
    fn row_shift_right_by_one_leaves_the_first_lane_of_each_row_unwritten() {
        let d = row(0x111);
        assert_eq!(d.writes(0xffff_ffff, 32), 0xfffe_fffe);
        let v: Lanes<u32> = std::array::from_fn(|l| l as u32);
        assert_eq!(d.gather(&v, 0xffff_ffff, 32)[5], 4);
    }

    #[test]
    fn quad_permutation_reads_within_four_lanes() {
        let v: Lanes<u32> = std::array::from_fn(|l| l as u32);
        let g = row(0b00_01_10_11).gather(&v, u64::MAX, 64);
        assert_eq!(&g[4..8], &[7, 6, 5, 4]);
    }

    #[test]
    fn an_inactive_source_reads_zero_with_bound_control_and_is_not_written_without() {
        assert_eq!(row(0x101).writes(0b01, 32), 0);
        let bound = Dpp::Row { ctrl: 0x101, fi: false, bound_ctrl: true, bank_mask: 15, row_mask: 15 };
        assert_eq!(bound.writes(0b01, 32), 1);
    }
}
