//! What the packets do.

use super::dispatch::Dispatch;
use super::packet::{self, Engine, Form, SH_WINDOW, UCONFIG_WINDOW};
use super::{ComputeQueue, Ib, MAX_NESTING, SOURCE_CP_EOP, Stop};
use super::{atomic, atomic_is_64, atomic_is_cmpswap};
use crate::env::{Env, Kind};
use crate::isa::Target;
use crate::violation::Rule;

/// Bits of a register's dword address in a packet; bits 1:0 count too.
const REGISTER: u32 = 0x3_ffff;
/// Bytes that DMA_DATA moves at a time.
const DMA_PART: usize = 64 << 10;

fn addr(lo: u32, hi: u32) -> u64 {
    u64::from(hi) << 32 | u64::from(lo)
}

fn bad<T>(why: impl Into<String>) -> Result<T, Stop> {
    Err(Stop::Bad(Rule::MalformedPacket, why.into()))
}

/// `WAIT_REG_MEM_FUNCTION`.
fn compare(function: u32, value: u32, reference: u32) -> Option<bool> {
    Some(match function {
        0 => true,
        1 => value < reference,
        2 => value <= reference,
        3 => value == reference,
        4 => value != reference,
        5 => value >= reference,
        6 => value > reference,
        _ => return None,
    })
}

impl ComputeQueue {
    /// Executes the packet at the current position.
    pub(super) fn step(&mut self, env: &mut dyn Env) -> Result<(), Stop> {
        let at = self.position();
        let header = self.fetch(env, 0)?;
        if header >> 30 != 3 {
            return bad(format!("header {header:#010x} at {at} is of type {}, not 3", header >> 30));
        }
        // Bit 1: the shader type; bit 0: predication, which compute does not have.
        if header & 0xfd != 0 {
            return bad(format!("header {header:#010x} at {at} has reserved bits set"));
        }
        let op = (header >> 8) as u8;
        let count = header >> 16 & 0x3fff;
        let gfx9 = self.config.target == Target::Gfx9;
        let Some(form) = packet::find(Engine::Compute, gfx9, op) else {
            return bad(format!("unknown operation {op:#04x} in header {header:#010x} at {at}"));
        };
        // A NOP whose count is all ones is one dword long.
        let body = if op == 0x10 && count == 0x3fff { 0 } else { count + 1 };
        if body < form.body.0 || body > form.body.1 {
            return bad(format!("{} at {at} has {body} body dwords, not {:?}", form.name, form.body));
        }
        if u64::from(body) + 1 > self.available() {
            return bad(format!(
                "{} at {at} of {} dwords is cut off: {} are there",
                form.name,
                body + 1,
                self.available()
            ));
        }
        if op == 0x10 {
            return self.advance(env, u64::from(body) + 1);
        }
        let p = (1..=u64::from(body)).map(|n| self.fetch(env, n)).collect::<Result<Vec<_>, _>>()?;
        check_reserved(form, &p, &at)?;
        let done = u64::from(body) + 1;
        env.spend_ns(40);
        match op {
            0x15 => {
                let dispatch = Dispatch::new(env, &self.config, self.vmid(), [p[0], p[1], p[2]], p[3])?;
                self.advance(env, done)?;
                self.dispatch = dispatch;
                return Ok(());
            }
            0x16 => {
                let mut b = [0; 12];
                env.read(self.access(Kind::Read), addr(p[0], p[1]), &mut b)?;
                let dim = |i: usize| u32::from_le_bytes([b[i], b[i + 1], b[i + 2], b[i + 3]]);
                let dims = [dim(0), dim(4), dim(8)];
                let dispatch = Dispatch::new(env, &self.config, self.vmid(), dims, p[2])?;
                self.advance(env, done)?;
                self.dispatch = dispatch;
                return Ok(());
            }
            0x1e => self.atomic_mem(env, &p, &at)?,
            0x23 => {
                // One XCC: bit 24 of the mask selects it.
                let skip = if p[0] >> 24 & 1 != 0 { 0 } else { u64::from(p[0] & 0x3fff) };
                if done + u64::from(p[0] & 0x3fff) > self.available() {
                    return bad(format!("PRED_EXEC at {at} reaches past the end"));
                }
                return self.advance(env, done + skip);
            }
            0x37 => self.write_data(env, &p, &at)?,
            0x3c => self.wait_reg_mem(env, &p, &at)?,
            0x3f => return self.indirect_buffer(env, &p, &at),
            0x40 => self.copy_data(env, &p, &at)?,
            0x46 => event_write(&p, &at)?,
            0x49 => self.release_mem(env, &p, &at)?,
            0x50 => self.dma_data(env, &p, &at)?,
            0x58 => acquire_mem(&p, gfx9, &at)?,
            0x76 => set_regs(env, &p, SH_WINDOW, form, &at)?,
            0x79 => set_regs(env, &p, UCONFIG_WINDOW, form, &at)?,
            _ => return bad(format!("{} at {at} has no implementation", form.name)),
        }
        self.advance(env, done)
    }

    fn read_u32(&self, env: &mut dyn Env, va: u64) -> Result<u32, Stop> {
        let mut b = [0; 4];
        env.read(self.access(Kind::Read), va, &mut b)?;
        Ok(u32::from_le_bytes(b))
    }

    fn atomic_mem(&mut self, env: &mut dyn Env, p: &[u32], at: &str) -> Result<(), Stop> {
        let op = p[0] & 0x7f;
        let Some(wide) = atomic_is_64(op) else {
            return bad(format!("ATOMIC_MEM at {at} with operation {op:#x}"));
        };
        let va = addr(p[1], p[2]);
        if !va.is_multiple_of(if wide { 8 } else { 4 }) {
            return bad(format!("ATOMIC_MEM at {at} on unaligned {va:#x}"));
        }
        let command = p[0] >> 8 & 0xf;
        if command > 1 {
            return bad(format!("ATOMIC_MEM at {at} with command {command}"));
        }
        let cmp = addr(p[5], p[6]);
        let old = atomic(env, self.access(Kind::Atomic), va, op, addr(p[3], p[4]), cmp)?;
        // Command 1: loop until the compare matches.
        let expected = if wide { cmp } else { cmp & 0xffff_ffff };
        if command == 1 && atomic_is_cmpswap(op) && old != expected {
            return Err(Stop::Wait);
        }
        Ok(())
    }

    fn write_data(&mut self, env: &mut dyn Env, p: &[u32], at: &str) -> Result<(), Stop> {
        let one_address = p[0] & 1 << 16 != 0;
        match p[0] >> 8 & 0xf {
            0 => {
                for (n, value) in p[3..].iter().enumerate() {
                    // Register addresses are in dwords; the mask of address bits 1:0 does not hold
                    // for them, so that reading them shifted back would be wrong.
                    env.reg_write(p[1] + if one_address { 0 } else { n as u32 }, *value);
                }
            }
            1 | 2 | 5 => {
                let va = addr(p[1], p[2]);
                let who = self.access(Kind::Write);
                if one_address {
                    for value in &p[3..] {
                        env.write(who, va, &value.to_le_bytes())?;
                    }
                } else {
                    let data: Vec<u8> = p[3..].iter().flat_map(|v| v.to_le_bytes()).collect();
                    env.write(who, va, &data)?;
                }
            }
            other => return bad(format!("WRITE_DATA at {at} to destination {other}")),
        }
        Ok(())
    }

    fn wait_reg_mem(&mut self, env: &mut dyn Env, p: &[u32], at: &str) -> Result<(), Stop> {
        let (function, space, operation) = (p[0] & 7, p[0] >> 4 & 3, p[0] >> 6 & 3);
        let value = match (space, operation) {
            (0, 0) if p[2] == 0 => env.reg_read(p[1]),
            (1, 0) => {
                if p[1] & 3 != 0 {
                    return bad(format!("WAIT_REG_MEM at {at} on unaligned {:#x}", addr(p[1], p[2])));
                }
                self.read_u32(env, addr(p[1], p[2]))?
            }
            // Write the reference to the first register, then wait on the second.
            (0, 1) => {
                if !self.begun {
                    env.reg_write(p[1], p[3]);
                    self.begun = true;
                }
                env.reg_read(p[2])
            }
            _ => return bad(format!("WAIT_REG_MEM at {at} with space {space}, operation {operation}")),
        };
        match compare(function, value & p[4], p[3]) {
            None => bad(format!("WAIT_REG_MEM at {at} with function {function}")),
            Some(true) => Ok(()),
            Some(false) => {
                env.spend_ns(10 * u64::from((p[5] & 0xffff).max(1)));
                Err(Stop::Wait)
            }
        }
    }

    fn indirect_buffer(&mut self, env: &mut dyn Env, p: &[u32], at: &str) -> Result<(), Stop> {
        let (va, dwords) = (addr(p[0], p[1]), p[2] & 0xf_ffff);
        if p[2] & 1 << 23 == 0 {
            return bad(format!("INDIRECT_BUFFER at {at} without its valid bit"));
        }
        if dwords == 0 {
            return bad(format!("INDIRECT_BUFFER at {at} of no dwords"));
        }
        let chain = p[2] & 1 << 20 != 0;
        if self.ib.len() + usize::from(!chain) > MAX_NESTING {
            return bad(format!("INDIRECT_BUFFER at {at} nested {} deep", self.ib.len() + 1));
        }
        let field = (p[2] >> 24 & 0xf) as u8;
        let vmid = match (self.config.vmid, field) {
            (own, 0) => own,
            (0, field) => field,
            (own, field) if own == field => own,
            (own, field) => {
                return bad(format!("INDIRECT_BUFFER at {at} chooses VMID {field} on a queue of VMID {own}"));
            }
        };
        env.spend_ns(100);
        let ib = Ib { va, dwords, at: 0, vmid };
        if chain && self.ib.pop().is_some() {
            self.ib.push(ib);
            self.begun = false;
            return Ok(());
        }
        // The calling stream goes on behind the packet; it must not be left by `advance` before the
        // buffer is entered, even where it ends here.
        match self.ib.last_mut() {
            Some(outer) => outer.at += 4,
            None => {
                self.advance(env, 4)?;
            }
        }
        self.ib.push(ib);
        Ok(())
    }

    fn copy_data(&mut self, env: &mut dyn Env, p: &[u32], at: &str) -> Result<(), Stop> {
        let wide = p[0] & 1 << 16 != 0;
        let size: usize = if wide { 8 } else { 4 };
        let (src, dst) = (addr(p[1], p[2]), addr(p[3], p[4]));
        let value = match p[0] & 0xf {
            // A register or a performance counter.
            0 | 4 => {
                let hi = if wide { env.reg_read(p[1] + 1) } else { 0 };
                addr(env.reg_read(p[1]), hi)
            }
            1 | 2 => {
                if !src.is_multiple_of(size as u64) {
                    return bad(format!("COPY_DATA at {at} from unaligned {src:#x}"));
                }
                let mut b = [0; 8];
                env.read(self.access(Kind::Read), src, &mut b[..size])?;
                u64::from_le_bytes(b)
            }
            5 => src,
            9 => env.clock_100mhz(),
            other => return bad(format!("COPY_DATA at {at} from source {other}")),
        };
        match p[0] >> 8 & 0xf {
            0 | 4 => {
                env.reg_write(p[3], value as u32);
                if wide {
                    env.reg_write(p[3] + 1, (value >> 32) as u32);
                }
            }
            1 | 2 | 5 => {
                if !dst.is_multiple_of(size as u64) {
                    return bad(format!("COPY_DATA at {at} to unaligned {dst:#x}"));
                }
                env.write(self.access(Kind::Write), dst, &value.to_le_bytes()[..size])?;
            }
            other => return bad(format!("COPY_DATA at {at} to destination {other}")),
        }
        Ok(())
    }

    fn release_mem(&mut self, env: &mut dyn Env, p: &[u32], at: &str) -> Result<(), Stop> {
        let (event, index) = (p[0] & 0x3f, p[0] >> 8 & 0xf);
        // Index 5: end of pipe (CACHE_FLUSH_TS, CACHE_FLUSH_AND_INV_TS_EVENT, BOTTOM_OF_PIPE_TS);
        // 6: shader done (CS_DONE). Numbers from `VGT_EVENT_TYPE` in `soc21_enum.h`.
        match (index, event) {
            (5, 0x04 | 0x14 | 0x28) | (6, 0x2f) => {}
            _ => return bad(format!("RELEASE_MEM at {at} with event {event:#x}, index {index}")),
        }
        let (data_sel, int_sel) = (p[1] >> 29, p[1] >> 24 & 7);
        if p[1] >> 16 & 3 > 1 {
            return bad(format!("RELEASE_MEM at {at} to destination {}", p[1] >> 16 & 3));
        }
        let va = addr(p[2], p[3]);
        let data = match data_sel {
            0 => None,
            1 => Some((addr(p[4], 0), 4)),
            2 => Some((addr(p[4], p[5]), 8)),
            3 | 4 => Some((env.clock_100mhz(), 8)),
            other => return bad(format!("RELEASE_MEM at {at} with data_sel {other}")),
        };
        if int_sel > 3 {
            return bad(format!("RELEASE_MEM at {at} with int_sel {int_sel}"));
        }
        if let Some((value, size)) = data {
            if !va.is_multiple_of(size as u64) {
                return bad(format!("RELEASE_MEM at {at} of {size} bytes to unaligned {va:#x}"));
            }
            env.write(self.access(Kind::Write), va, &value.to_le_bytes()[..size])?;
        }
        // 1: interrupt; 2: interrupt when the write is confirmed; 3: data when confirmed, none.
        if int_sel == 1 || int_sel == 2 {
            self.interrupt(env, SOURCE_CP_EOP, [p[6], 0]);
        }
        Ok(())
    }

    fn dma_data(&mut self, env: &mut dyn Env, p: &[u32], at: &str) -> Result<(), Stop> {
        let bytes = u64::from(p[5] & 0x03ff_ffff);
        let (src, dst) = (addr(p[1], p[2]), addr(p[3], p[4]));
        if p[5] & 0x3c00_0000 != 0 || p[0] >> 20 & 3 == 1 {
            return bad(format!(
                "DMA_DATA at {at} on registers or GDS: control {:#x}, command {:#x}",
                p[0], p[5]
            ));
        }
        let source = p[0] >> 29 & 3;
        if source == 1 {
            return bad(format!("DMA_DATA at {at} from source {source}"));
        }
        // A part at a time: a packet may ask for 64 MiB, of which nothing need exist.
        let mut data: Vec<u8> = p[1].to_le_bytes().repeat(DMA_PART / 4);
        let mut done = 0;
        while done < bytes {
            let part = &mut data[..(bytes - done).min(DMA_PART as u64) as usize];
            if source != 2 {
                env.read(self.access(Kind::Read), src.wrapping_add(done), part)?;
            }
            env.write(self.access(Kind::Write), dst.wrapping_add(done), part)?;
            env.spend_ns(part.len() as u64 / 8);
            done += part.len() as u64;
        }
        Ok(())
    }
}

/// Whether a body dword names a register, where it could be half of an address.
fn names_register(op: u8, p: &[u32], n: usize) -> bool {
    match (op, n) {
        (0x37, 1) => p[0] >> 8 & 0xf == 0,
        (0x3c, 1) => p[0] >> 4 & 3 == 0,
        // The register that is waited on after another was written.
        (0x3c, 2) => p[0] >> 4 & 0xf == 4,
        (0x40, 1) => matches!(p[0] & 0xf, 0 | 4),
        (0x40, 3) => matches!(p[0] >> 8 & 0xf, 0 | 4),
        _ => false,
    }
}

fn check_reserved(form: &Form, p: &[u32], at: &str) -> Result<(), Stop> {
    for (n, (&mask, &value)) in form.masks.iter().zip(p).enumerate() {
        let mask = if names_register(form.op, p, n) { REGISTER } else { mask };
        if value & !mask != 0 {
            return bad(format!(
                "{} at {at}: body dword {n} is {value:#010x}, bits {:#010x} are reserved",
                form.name,
                value & !mask
            ));
        }
    }
    Ok(())
}

fn event_write(p: &[u32], at: &str) -> Result<(), Stop> {
    let (event, index) = (p[0] & 0x3f, p[0] >> 8 & 0xf);
    // Index 4: partial flushes (CS, VS, PS), 0: events without an address, thread trace among them.
    match (index, event) {
        (4, 0x07 | 0x0f | 0x10) if p.len() == 1 => Ok(()),
        (0, 0x07) => bad(format!("EVENT_WRITE at {at}: CS_PARTIAL_FLUSH needs index 4")),
        (0, _) if p.len() == 1 => Ok(()),
        _ => bad(format!("EVENT_WRITE at {at} with event {event:#x}, index {index}, {} dwords", p.len())),
    }
}

fn acquire_mem(p: &[u32], gfx9: bool, at: &str) -> Result<(), Stop> {
    if gfx9 {
        return Ok(());
    }
    let gcr = p[6];
    // GL1_RANGE 1 is reserved; SEQ has three values.
    if gcr >> 2 & 3 == 1 || gcr >> 16 & 3 == 3 {
        return bad(format!("ACQUIRE_MEM at {at} with GCR_CNTL {gcr:#x}"));
    }
    Ok(())
}

fn set_regs(env: &mut dyn Env, p: &[u32], window: (u32, u32), form: &Form, at: &str) -> Result<(), Stop> {
    let count = p.len() as u32 - 1;
    let first = window.0 + p[0];
    if first + count > window.1 {
        return bad(format!(
            "{} at {at}: registers {first:#x} to {:#x} are outside {:#x}..{:#x}",
            form.name,
            first + count - 1,
            window.0,
            window.1
        ));
    }
    for (n, value) in p[1..].iter().enumerate() {
        env.reg_write(first + n as u32, *value);
    }
    Ok(())
}
