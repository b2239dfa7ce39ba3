//! Program control: SOPP, and the scalar instructions that touch the program counter or the mode.

use super::{Exec, Inst, Wave, WaveState, operand};

impl Wave {
    fn branch(&mut self, i: &Inst, taken: bool) {
        if taken {
            self.pc = target(i);
        }
    }

    /// A hardware register by number; what the simulator does not keep reads zero.
    fn hwreg(&self, id: u32) -> u32 {
        match id {
            1 => self.mode,
            // STATUS: SCC bit 0, execz 9, vccz 10.
            2 => {
                u32::from(self.scc)
                    | u32::from(self.exec() == 0) << 9
                    | u32::from(self.mask(operand::VCC) == 0) << 10
            }
            // SH_MEM_BASES: private in the low, shared in the high half.
            15 => self.apertures[1] >> 16 | self.apertures[0] & 0xffff_0000,
            20 => self.scratch as u32,
            21 => (self.scratch >> 32) as u32,
            _ => 0,
        }
    }
}

/// Where a branch goes: behind the instruction, by SIMM16 dwords.
pub(super) fn target(i: &Inst) -> u64 {
    i.pc.wrapping_add(4).wrapping_add_signed(i64::from(i.imm) * 4)
}

/// What the program counter makes of an address: its low two bits are always zero.
pub(super) fn aligned(to: u64) -> u64 {
    to & !3
}

/// Parts of a hardware register operand: id, offset, width.
fn hwreg(i: &Inst) -> (u32, u32, u32) {
    let x = i.imm as u32;
    (x & 0x3f, x >> 6 & 31, (x >> 11 & 31) + 1)
}

fn setreg(w: &mut Wave, i: &Inst, value: u32) {
    let (id, offset, width) = hwreg(i);
    let mask = (((1u64 << width) - 1) as u32) << offset;
    if id == 1 {
        w.mode = w.mode & !mask | value << offset & mask;
    }
}

/// What a control instruction does.
pub(super) fn lookup(name: &str) -> Option<Exec> {
    macro_rules! ctl {
        (|$w:ident, $i:ident| $body:expr) => {
            Exec::Ctl(|$w: &mut Wave, $i: &Inst| $body)
        };
    }
    Some(match name {
        // Waits for counters and hints: everything is done in order here.
        "s_nop" | "s_sleep" | "s_sleep_var" | "s_delay_alu" | "s_clause" | "s_waitcnt" | "s_waitcnt_depctr"
        | "s_wait_idle" | "s_wait_event" | "s_wait_alu" | "s_wait_loadcnt" | "s_wait_storecnt"
        | "s_wait_samplecnt" | "s_wait_bvhcnt" | "s_wait_expcnt" | "s_wait_dscnt" | "s_wait_kmcnt"
        | "s_wait_loadcnt_dscnt" | "s_wait_storecnt_dscnt" | "s_waitcnt_vscnt" | "s_waitcnt_vmcnt"
        | "s_waitcnt_expcnt" | "s_waitcnt_lgkmcnt" | "s_setprio" | "s_icache_inv" | "s_set_inst_prefetch_distance"
        | "s_incperflevel" | "s_decperflevel" | "s_ttracedata" | "s_ttracedata_imm" 
        // A message to the host or the request to free registers before the end.
        | "s_sendmsg" | "s_version" | "s_wakeup" => Exec::Alu(|_, _| {}),
        "s_denorm_mode" => ctl!(|w, i| w.mode = w.mode & !0xf0 | (i.imm as u32 & 15) << 4),
        "s_round_mode" => ctl!(|w, i| w.mode = w.mode & !0xf | i.imm as u32 & 15),
        "s_endpgm" => ctl!(|w, i| {
            w.pc = i.pc;
            w.state = WaveState::Ended
        }),
        "s_barrier" | "s_barrier_wait" => ctl!(|w, _i| w.state = WaveState::Barrier),
        // The wave stops at the wait; nothing waits without a signal in compiled code.
        "s_barrier_signal" => Exec::Alu(|_, _| {}),
        "s_trap" => ctl!(|w, _i| w.state = WaveState::Stuck),
        "s_sethalt" => ctl!(|w, i| if i.imm & 1 != 0 {
            w.state = WaveState::Stuck
        }),
        "s_branch" => ctl!(|w, i| w.branch(i, true)),
        "s_cbranch_scc0" => ctl!(|w, i| w.branch(i, !w.scc)),
        "s_cbranch_scc1" => ctl!(|w, i| w.branch(i, w.scc)),
        "s_cbranch_vccz" => ctl!(|w, i| w.branch(i, w.mask(operand::VCC) == 0)),
        "s_cbranch_vccnz" => ctl!(|w, i| w.branch(i, w.mask(operand::VCC) != 0)),
        "s_cbranch_execz" => ctl!(|w, i| w.branch(i, w.exec() == 0)),
        "s_cbranch_execnz" => ctl!(|w, i| w.branch(i, w.exec() != 0)),
        "s_getpc_b64" => ctl!(|w, i| w.set_s64(i.d, i.next())),
        "s_setpc_b64" => ctl!(|w, i| w.pc = aligned(w.scalar64(i.s[0], 0, false))),
        "s_swappc_b64" => ctl!(|w, i| {
            let to = aligned(w.scalar64(i.s[0], 0, false));
            w.set_s64(i.d, i.next());
            w.pc = to
        }),
        "s_call_b64" => ctl!(|w, i| {
            w.set_s64(i.d, i.next());
            w.pc = target(i)
        }),
        "s_getreg_b32" => ctl!(|w, i| {
            let (id, offset, width) = hwreg(i);
            let value = w.hwreg(id) >> offset & ((1u64 << width) - 1) as u32;
            w.set_s(i.d, value)
        }),
        "s_setreg_b32" => ctl!(|w, i| {
            let value = w.scalar(i.d, 0);
            setreg(w, i, value)
        }),
        "s_setreg_imm32_b32" => ctl!(|w, i| setreg(w, i, i.lit)),
        _ => return None,
    })
}
