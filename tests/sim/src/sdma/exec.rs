//! What the packets do.

use super::layout::{self, Layout};
use super::{CHUNK, Ib, MAX_DWORDS, SdmaQueue, SdmaVersion, Stop};
use crate::env::{Env, Kind};

/// The two halves of an address.
fn addr(lo: u32, hi: u32) -> u64 {
    u64::from(hi) << 32 | u64::from(lo)
}

/// `POLL_REGMEM` functions (as in PM4's WAIT_REG_MEM).
fn compare(function: u32, value: u32, reference: u32) -> bool {
    match function {
        0 => true,
        1 => value < reference,
        2 => value <= reference,
        3 => value == reference,
        4 => value != reference,
        5 => value >= reference,
        _ => value > reference,
    }
}

impl SdmaQueue {
    /// Executes the packet at the current position.
    pub(super) fn step(&mut self, env: &mut dyn Env) -> Result<(), Stop> {
        let header = self.fetch(env, 0)?;
        let at = self.position();
        let layout =
            layout::find(self.config.version, header).map_err(|why| Stop::Bad(format!("{why} at {at}")))?;
        let mut p = [0u32; MAX_DWORDS];
        p[0] = header;
        for (n, word) in p.iter_mut().enumerate().take(layout.masks.len()).skip(1) {
            *word = self.fetch(env, n as u64)?;
        }
        self.check_reserved(layout, &p)?;
        let len = layout.masks.len() as u64;
        match (layout.op, layout.sub) {
            (0, _) => return self.nop(env, header),
            (1, 0) => return self.copy(env, &p),
            (2, 0) => return self.write_linear(env, &p),
            (4, 0) => return self.indirect(env, &p),
            (5, 0) => self.write(env, addr(p[1], p[2]), &p[3].to_le_bytes())?,
            (6, 0) => self.interrupt(env, p[1]),
            (8, 0) => self.poll(env, &p)?,
            (9, 0) => return self.cond_exe(env, &p),
            (10, 0) => self.atomic(env, &p)?,
            (11, 0) => self.fill(env, &p)?,
            (13, _) => {
                let now = env.clock_100mhz();
                self.write(env, addr(p[1], p[2]), &now.to_le_bytes())?;
            }
            (14, 0) => self.srbm_write(env, &p)?,
            // Caches are not modelled: every access goes through.
            (17, 0) => {}
            _ => return Err(Stop::Bad(format!("{} at {at} has no implementation", layout.name))),
        }
        env.spend_ns(50);
        self.advance(env, len)
    }

    fn check_reserved(&self, layout: &Layout, p: &[u32]) -> Result<(), Stop> {
        for (n, mask) in layout.masks.iter().enumerate() {
            let allowed = if n == 0 { mask | 0xffff } else { *mask };
            // A copy of SDMA 7 with CPV set carries an eighth dword, handled there.
            let allowed = if n == 0 && layout.op == 1 && self.config.version == SdmaVersion::V7_0 {
                allowed | 1 << 19
            } else {
                allowed
            };
            if p[n] & !allowed != 0 {
                return Err(Stop::Bad(format!(
                    "{} at {}: dword {n} is {:#010x}, bits {:#010x} are reserved",
                    layout.name,
                    self.position(),
                    p[n],
                    p[n] & !allowed
                )));
            }
        }
        Ok(())
    }

    fn nop(&mut self, env: &mut dyn Env, header: u32) -> Result<(), Stop> {
        let dwords = 1 + u64::from(header >> 16 & 0x3fff);
        if dwords > self.available() {
            return Err(Stop::Bad(format!(
                "NOP at {} skips {dwords} dwords, {} are there",
                self.position(),
                self.available()
            )));
        }
        self.advance(env, dwords)
    }

    fn copy(&mut self, env: &mut dyn Env, p: &[u32]) -> Result<(), Stop> {
        let cpv = p[0] & 1 << 19 != 0 && self.config.version == SdmaVersion::V7_0;
        let broadcast = p[0] & 1 << 27 != 0;
        let mut len = 7;
        if p[0] & (1 << 16 | 1 << 18) != 0 {
            return Err(Stop::Bad(format!(
                "encrypted COPY at {}: no protected memory here",
                self.position()
            )));
        }
        let mut targets = vec![addr(p[5], p[6])];
        if broadcast {
            targets.push(addr(self.fetch(env, 7)?, self.fetch(env, 8)?));
            len = 9;
        }
        if cpv {
            self.fetch(env, len)?;
            len += 1;
        }
        let total = u64::from(p[1]) + 1;
        let src = addr(p[3], p[4]);
        let n = self.left(total).min(CHUNK);
        // Backwards: for overlapping ranges, last byte first.
        let at = if p[0] & 1 << 25 != 0 { self.left(total) - n } else { self.done };
        let mut data = vec![0; n as usize];
        let who = self.access(self.vmid(), Kind::Read);
        env.read(who, src.wrapping_add(at), &mut data)?;
        for dst in targets {
            self.write(env, dst.wrapping_add(at), &data)?;
        }
        // About 16 GB/s.
        env.spend_ns(50 + n / 16);
        self.done += n;
        if self.done < total {
            return Err(Stop::Again);
        }
        self.advance(env, len)
    }

    fn write_linear(&mut self, env: &mut dyn Env, p: &[u32]) -> Result<(), Stop> {
        let dst = addr(p[1], p[2]);
        if dst & 3 != 0 {
            return Err(Stop::Bad(format!("WRITE at {} to unaligned {dst:#x}", self.position())));
        }
        let n = u64::from(p[3] & 0xf_ffff) + 1;
        if 4 + n > self.available() {
            return Err(Stop::Bad(format!("WRITE at {} of {n} dwords is cut off", self.position())));
        }
        let mut data = Vec::with_capacity(4 * n as usize);
        for i in 0..n {
            data.extend_from_slice(&self.fetch(env, 4 + i)?.to_le_bytes());
        }
        self.write(env, dst, &data)?;
        env.spend_ns(50 + n / 4);
        self.advance(env, 4 + n)
    }

    fn indirect(&mut self, env: &mut dyn Env, p: &[u32]) -> Result<(), Stop> {
        let at = self.position();
        if self.ib.is_some() {
            return Err(Stop::Bad(format!("nested INDIRECT at {at}")));
        }
        // "IB packet must end on a 8 DW boundary": `sdma_v6_0_ring_emit_ib` pads for it.
        if (self.rptr / 4 + 6) & 7 != 0 {
            return Err(Stop::Bad(format!("INDIRECT at {at} does not end on an 8-dword boundary")));
        }
        let vmid = (p[0] >> 16 & 15) as u8;
        if !self.config.privileged && vmid != 0 && vmid != self.config.vmid {
            return Err(Stop::Bad(format!("INDIRECT at {at} chooses VMID {vmid} on an unprivileged ring")));
        }
        if p[0] >> 31 != 0 && !self.config.privileged {
            return Err(Stop::Bad(format!("privileged INDIRECT at {at} on an unprivileged ring")));
        }
        let (va, dwords) = (addr(p[1], p[2]), p[3]);
        if dwords == 0 || dwords & 7 != 0 {
            return Err(Stop::Bad(format!("INDIRECT at {at} of {dwords} dwords: not a multiple of 8")));
        }
        let vmid = if self.config.privileged { vmid } else { self.config.vmid };
        env.spend_ns(100);
        self.advance(env, 6)?;
        self.ib = Some(Ib { va, dwords, at: 0, vmid });
        Ok(())
    }

    fn poll(&mut self, env: &mut dyn Env, p: &[u32]) -> Result<(), Stop> {
        let function = p[0] >> 28 & 7;
        if function == 7 {
            return Err(Stop::Bad(format!("POLL_REGMEM at {} with function 7", self.position())));
        }
        let memory = p[0] >> 31 != 0;
        if p[0] & 1 << 26 != 0 {
            if memory {
                return Err(Stop::Bad(format!("POLL_REGMEM at {}: HDP flush on memory", self.position())));
            }
            // Writes the request to the second register, then polls the first for its answer
            // (`sdma_v6_0_ring_emit_hdp_flush`: done register first, request register second).
            if self.polls == 0 {
                env.reg_write(p[2] >> 2, p[3]);
            }
        } else if !memory && p[2] != 0 {
            return Err(Stop::Bad(format!(
                "POLL_REGMEM at {}: register {:#x}_{:08x}",
                self.position(),
                p[2],
                p[1]
            )));
        }
        let value = if memory { self.read_u32(env, addr(p[1], p[2]))? } else { env.reg_read(p[1] >> 2) };
        if compare(function, value & p[4], p[3]) {
            return Ok(());
        }
        self.polls = self.polls.saturating_add(1);
        let retries = p[5] >> 16 & 0xfff;
        // 0xfff: for ever.
        if retries != 0xfff && self.polls > retries {
            return Err(Stop::Bad(format!(
                "POLL_REGMEM at {} gave up after {retries} retries: value {value:#x}, mask {:#x}, reference {:#x}",
                self.position(),
                p[4],
                p[3]
            )));
        }
        env.spend_ns(10 * u64::from((p[5] & 0xffff).max(1)));
        Err(Stop::Wait)
    }

    fn cond_exe(&mut self, env: &mut dyn Env, p: &[u32]) -> Result<(), Stop> {
        let value = self.read_u32(env, addr(p[1], p[2]))?;
        let skip = if value == p[3] { 0 } else { u64::from(p[4]) };
        if 5 + skip > self.available() {
            return Err(Stop::Bad(format!("COND_EXE at {} skips past the end", self.position())));
        }
        env.spend_ns(100);
        self.advance(env, 5 + skip)
    }

    fn atomic(&mut self, env: &mut dyn Env, p: &[u32]) -> Result<(), Stop> {
        let op = p[0] >> 25;
        let va = addr(p[1], p[2]);
        let (src, cmp) = (addr(p[3], p[4]), addr(p[5], p[6]));
        let looping = p[0] & 1 << 16 != 0;
        let wide = crate::cp::atomic_is_64(op)
            .ok_or_else(|| Stop::Bad(format!("ATOMIC at {} with operation {op:#x}", self.position())))?;
        let size = if wide { 8 } else { 4 };
        if !va.is_multiple_of(size) {
            return Err(Stop::Bad(format!("ATOMIC at {} on unaligned {va:#x}", self.position())));
        }
        let who = self.access(self.vmid(), Kind::Atomic);
        let old = crate::cp::atomic(env, who, va, op, src, cmp)?;
        let expected = if wide { cmp } else { cmp & 0xffff_ffff };
        if looping && crate::cp::atomic_is_cmpswap(op) && old != expected {
            env.spend_ns(10 * u64::from(p[7].max(1)));
            return Err(Stop::Wait);
        }
        Ok(())
    }

    /// What is left of this many bytes. The packet is read anew for each part, and a transfer may have
    /// overwritten it with a shorter one.
    fn left(&self, total: u64) -> u64 {
        total.saturating_sub(self.done)
    }

    fn fill(&mut self, env: &mut dyn Env, p: &[u32]) -> Result<(), Stop> {
        let dst = addr(p[1], p[2]);
        let size = match p[0] >> 30 {
            0 => 1,
            2 => 4,
            other => {
                return Err(Stop::Bad(format!("CONST_FILL at {} with fill size {other}", self.position())));
            }
        };
        // The count is in bytes minus one; with 4-byte elements its low two bits are not looked at
        // (`sdma_v6_0_emit_fill_buffer` writes bytes - 1).
        let mut total = u64::from(p[4]) + 1;
        if size == 4 {
            if dst & 3 != 0 {
                return Err(Stop::Bad(format!("CONST_FILL at {} of unaligned {dst:#x}", self.position())));
            }
            total = total.next_multiple_of(4);
        }
        let n = self.left(total).min(CHUNK);
        let data: Vec<u8> = if size == 4 {
            p[3].to_le_bytes().iter().copied().cycle().take(n as usize).collect()
        } else {
            vec![p[3] as u8; n as usize]
        };
        self.write(env, dst.wrapping_add(self.done), &data)?;
        env.spend_ns(n / 32);
        self.done += n;
        if self.done < total { Err(Stop::Again) } else { Ok(()) }
    }

    fn srbm_write(&mut self, env: &mut dyn Env, p: &[u32]) -> Result<(), Stop> {
        if !self.config.privileged {
            return Err(Stop::Bad(format!("SRBM_WRITE at {} on an unprivileged ring", self.position())));
        }
        if p[0] >> 28 != 0xf {
            return Err(Stop::Bad(format!(
                "SRBM_WRITE at {} with byte enables {:#x}",
                self.position(),
                p[0] >> 28
            )));
        }
        env.reg_write(p[1] & 0x3_ffff, p[2]);
        Ok(())
    }
}
