//! The system management unit: mailbox, messages, clock tables, metrics, mode-1 reset.
//!
//! Message numbers: `smu_v13_0_0_ppsmc.h`, `smu_v13_0_7_ppsmc.h`, `smu_v14_0_2_ppsmc.h`.

use crate::config::{Fault, Stage};
use crate::device::{Device, Event};
use crate::env::{Access, Hub, Kind};
use crate::violation::Rule;

const BUSY_NS: u64 = 20_000;
/// The reset starts this long after the answer: time for a driver to read it, also on a busy machine.
const MODE1_NS: u64 = 5_000_000;

const OK: u32 = 1;
const FAILED: u32 = 0xff;
const UNKNOWN: u32 = 0xfe;
const REJECTED_PREREQUISITE: u32 = 0xfd;

/// Highest message number and those below it that do not exist.
const V13: (u32, &[u32]) = (0x51, &[0x4d, 0x50]);
const V14: (u32, &[u32]) = (0x58, &[0x2f, 0x37]);

const GET_SMU_VERSION: u32 = 2;
const GET_DRIVER_IF_VERSION: u32 = 3;
const ENABLE_ALL: u32 = 6;
const DISABLE_ALL: u32 = 7;
const FEATURES_LOW: u32 = 0xc;
const FEATURES_HIGH: u32 = 0xd;
const DRAM_HIGH: u32 = 0xe;
const DRAM_LOW: u32 = 0xf;
const TABLE_TO_DRAM: u32 = 0x12;
const SOFT_MIN: u32 = 0x19;
const HARD_MAX: u32 = 0x1c;
const MIN_DPM: u32 = 0x1d;
const MAX_DPM: u32 = 0x1e;
const DPM_BY_INDEX: u32 = 0x1f;
const MODE1_RESET: u32 = 0x2f;
const SET_PPT_LIMIT: u32 = 0x32;
const GET_PPT_LIMIT: u32 = 0x33;

const TABLE_METRICS: u32 = 5;

/// What the board may take in watts, and the most that can be set. Invented.
const POWER: (u32, u32) = (303, 348);

/// Clock levels in MHz by PPCLK number: GFXCLK, SOCCLK, UCLK, FCLK. Invented, as in the traces.
const CLOCKS: [&[u32]; 4] = [&[500, 2525], &[480, 700, 1200], &[97, 456, 772, 1249], &[551, 1200, 2219]];

#[derive(Default)]
pub(crate) struct Smu {
    /// Firmware runs.
    pub(crate) alive: bool,
    busy: bool,
    dram: u64,
    features: u64,
    /// Soft limits by clock: minimum, maximum.
    limits: [(u32, u32); 4],
    metrics: u32,
    /// Power limit in watts; 0: the usual one.
    power: u32,
}

impl Smu {
    pub(crate) fn reset(&mut self) {
        *self = Smu::default();
    }
}

impl Device {
    /// A mailbox register was written. 66 message, 82 argument, 90 response; 75, 53 and 54 are those
    /// of the debug mailbox.
    pub(crate) fn smu_write(&mut self, index: u8, value: u32) {
        let debug = match index {
            66 => false,
            75 if self.config.chip.debug_mailbox() => true,
            _ => return,
        };
        if self.smu.busy {
            self.violation(
                Rule::SmuProtocol,
                format!("message {value:#x} while the last one is not answered"),
            );
            return;
        }
        let resp = if debug { 54 } else { 90 };
        if self.regs.val(&smu_reg(resp)) != 0 {
            self.violation(
                Rule::SmuProtocol,
                format!("message {value:#x} without clearing the response register"),
            );
        }
        if !self.smu.alive || self.config.hangs(Stage::Smu) {
            return;
        }
        self.smu.busy = true;
        self.after(BUSY_NS, Event::Smu { message: value, debug });
    }

    /// A message is answered.
    pub(crate) fn smu_answer(&mut self, message: u32, debug: bool) {
        self.smu.busy = false;
        let (arg_reg, resp_reg) = if debug { (53, 54) } else { (82, 90) };
        let arg = self.regs.val(&smu_reg(arg_reg));
        let forced = self.config.faults.iter().find_map(|f| match f {
            Fault::SmuResult(code) => Some(*code),
            _ => None,
        });
        let (code, result) = match forced {
            Some(code) => (code, None),
            None if debug => self.smu_debug(message),
            None => self.smu_message(message, arg),
        };
        if let Some(result) = result {
            self.regs.put(&smu_reg(arg_reg), result);
        }
        self.regs.put(&smu_reg(resp_reg), code);
    }

    fn smu_debug(&mut self, message: u32) -> (u32, Option<u32>) {
        match message {
            // DEBUGSMC_MSG_Mode1Reset of `smu_v13_0_0_ppt.c` and `smu_v14_0_2_ppt.c`.
            2 => {
                self.after(MODE1_NS, Event::Mode1);
                (OK, None)
            }
            1 => (OK, None),
            _ => {
                self.violation(Rule::SmuProtocol, format!("unknown debug message {message:#x}"));
                (UNKNOWN, None)
            }
        }
    }

    fn smu_message(&mut self, message: u32, arg: u32) -> (u32, Option<u32>) {
        let v14 = self.config.chip.gfx12();
        let (last, holes) = if v14 { V14 } else { V13 };
        if message == 0 || message > last || holes.contains(&message) {
            self.violation(Rule::SmuProtocol, format!("unknown message {message:#x}"));
            return (UNKNOWN, None);
        }
        let clock = usize::try_from(arg >> 16).unwrap_or(usize::MAX);
        let levels = CLOCKS.get(clock).copied();
        match message {
            GET_SMU_VERSION => (OK, Some(if v14 { 0x0068_3f00 } else { 0x004e_8700 })),
            GET_DRIVER_IF_VERSION => (OK, Some(if v14 { 0x2e } else { 0x3d })),
            ENABLE_ALL => {
                self.smu.features = u64::MAX >> 8;
                (OK, None)
            }
            DISABLE_ALL => {
                self.smu.features = 0;
                (OK, None)
            }
            FEATURES_LOW => (OK, Some(self.smu.features as u32)),
            FEATURES_HIGH => (OK, Some((self.smu.features >> 32) as u32)),
            DRAM_HIGH => {
                self.smu.dram = self.smu.dram & 0xffff_ffff | u64::from(arg) << 32;
                (OK, None)
            }
            DRAM_LOW => {
                self.smu.dram = self.smu.dram & !0xffff_ffff | u64::from(arg);
                let at = self.smu.dram;
                self.structure("SMU driver table", at, 0x1000);
                (OK, None)
            }
            TABLE_TO_DRAM => self.smu_table(arg & 0xff),
            SOFT_MIN..=HARD_MAX => {
                let freq = arg & 0xffff;
                if levels.is_none_or(|l| freq < l[0] || freq > l[l.len() - 1]) {
                    return (FAILED, None);
                }
                let limit = &mut self.smu.limits[clock];
                if message % 2 == 1 {
                    limit.0 = freq
                } else {
                    limit.1 = freq
                }
                (OK, None)
            }
            MIN_DPM | MAX_DPM => match levels {
                Some(l) => (OK, Some(if message == MIN_DPM { l[0] } else { l[l.len() - 1] })),
                None => (FAILED, None),
            },
            DPM_BY_INDEX => {
                let index = (arg & 0xff) as usize;
                match levels {
                    // Bit 31 of the count: any frequency between the two can be set.
                    Some(l) if index == 0xff => (OK, Some(l.len() as u32 | u32::from(clock == 0) << 31)),
                    Some(l) if index < l.len() => (OK, Some(l[index])),
                    _ => (FAILED, None),
                }
            }
            SET_PPT_LIMIT => {
                // The kind of limit stands above: 0 is the usual one.
                let watts = arg & 0xff_ffff;
                if arg >> 24 != 0 || watts == 0 || watts > POWER.1 {
                    return (FAILED, None);
                }
                self.smu.power = watts;
                (OK, None)
            }
            GET_PPT_LIMIT => (OK, Some(if self.smu.power == 0 { POWER.0 } else { self.smu.power })),
            MODE1_RESET => {
                self.after(MODE1_NS, Event::Mode1);
                (OK, None)
            }
            _ => (OK, None),
        }
    }

    fn smu_table(&mut self, table: u32) -> (u32, Option<u32>) {
        if self.smu.dram == 0 {
            self.violation(Rule::SmuProtocol, "table transfer before the DRAM address was set");
            return (REJECTED_PREREQUISITE, None);
        }
        if table != TABLE_METRICS {
            return (OK, None);
        }
        self.smu.metrics += 1;
        let bytes = self.smu_metrics();
        let who = Access { hub: Hub::Mm, vmid: 0, client: 0, kind: Kind::Write };
        let dram = self.smu.dram;
        match self.mem_write(who, dram, &bytes) {
            Ok(()) => (OK, None),
            Err(_) => (FAILED, None),
        }
    }

    /// `SmuMetricsExternal_t` of `smu13_driver_if_v13_0_0.h` or `smu14_driver_if_v14_0.h`: clocks,
    /// temperature, power, activity.
    fn smu_metrics(&self) -> Vec<u8> {
        // (length, CurrClock entries, gfx clock target, counter, gfx activity, power, temperatures)
        let (len, clocks, target, counter, activity, power, temps) = if self.config.chip.gfx12() {
            (412, 11, 44, 104, 124, 136, 140)
        } else {
            (392, 13, 52, 80, 104, 116, 120)
        };
        let mut b = vec![0u8; len];
        let now = |c: usize| {
            let (min, max) = self.smu.limits[c];
            if max != 0 { max } else { min.max(CLOCKS[c][0]) }
        };
        for c in 0..4.min(clocks) {
            b[c * 4..c * 4 + 4].copy_from_slice(&now(c).to_le_bytes());
        }
        let mut put = |at: usize, v: u16| b[at..at + 2].copy_from_slice(&v.to_le_bytes());
        put(target, now(0) as u16);
        // Average before and after deep sleep is counted; fabric and memory follow graphics.
        for (i, clock) in [0, 0, 3, 3, 2, 2].into_iter().enumerate() {
            put(target + 2 + 2 * i, now(clock) as u16);
        }
        put(activity, if self.engines_busy() { 97 } else { 0 });
        put(activity + 2, if self.engines_busy() { 40 } else { 0 });
        put(power, if self.engines_busy() { 250 } else { 21 });
        // `TEMP_e`: edge, hotspot, two more of the die, memory.
        for (i, t) in [41u16, 46, 44, 44, 52].into_iter().enumerate() {
            put(temps + i * 2, t);
        }
        b[counter..counter + 4].copy_from_slice(&self.smu.metrics.to_le_bytes());
        b
    }
}

fn smu_reg(n: u8) -> String {
    format!("MP1_SMN_C2PMSG_{n}")
}
