//! The device as the machines see it: registers, VRAM, counters.

use super::Cx;
use super::wait::{Counters, Event, Slot, Stage, Target, Task, drive};
use crate::bus::{Bus, Window};
use crate::chip::Chip;
use crate::error::Error;
use crate::layout::Layout;
use crate::reg::{Field, Hub, Reg, RegFile, r};
use core::pin::pin;

/// The most stages a boot passes through.
const MAX_STAGES: usize = 24;

/// How long one stage took and what it cost.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StageTime {
    /// The stage.
    pub stage: Stage,
    /// Time it took in microseconds, by the device's clock.
    pub took_us: u64,
    /// Accesses made in it.
    pub cost: Counters,
}

/// Hardware queues that were set up and not taken down.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct QueuesInUse {
    /// Compute queues: bit `pipe * 8 + queue` of MEC 1.
    pub compute: u32,
    /// SDMA queues: bit `queue` of each engine.
    pub sdma: [u8; 2],
}

/// A device: its bus, its registers and what is known of it.
///
/// Made after discovery; nothing is written before a machine runs. What it holds is what the
/// machines must remember between each other, and no copy of device state that can be read back.
#[derive(Clone, Debug)]
pub struct Device<B> {
    /// The bus.
    pub bus: B,
    /// Where the registers are.
    pub regs: RegFile,
    /// What this GPU generation needs.
    pub chip: &'static Chip,
    /// Reserved ranges of the VRAM.
    pub layout: Layout,
    /// Address of VRAM offset 0 in the memory controller's address space.
    pub mc_base: u64,
    /// Where the PSP's messages are put.
    pub message: super::psp::MessageBuffer,
    /// Clock levels, once asked for.
    pub dpm: super::smu::DpmTable,
    /// Clocks are not to be pinned, at the end neither.
    pub leave_clocks: bool,
    /// Queues set up by [`super::gfx::activate`] and [`super::sdma::activate`].
    pub queues: QueuesInUse,
    counters: Counters,
    stages: heapless::Vec<StageTime, MAX_STAGES>,
    pub(super) open: Option<(Stage, u64, Counters)>,
    hdp_flush: Option<u32>,
    hubs_on: [bool; 2],
}

impl<B> Device<B> {
    /// The same device with another bus in the place of its own, which is given back.
    pub(crate) fn with_bus<C>(self, bus: C) -> (Device<C>, B) {
        let Device {
            bus: old,
            regs,
            chip,
            layout,
            mc_base,
            message,
            dpm,
            leave_clocks,
            queues,
            counters,
            stages,
            open,
            hdp_flush,
            hubs_on,
        } = self;
        let device = Device {
            bus,
            regs,
            chip,
            layout,
            mc_base,
            message,
            dpm,
            leave_clocks,
            queues,
            counters,
            stages,
            open,
            hdp_flush,
            hubs_on,
        };
        (device, old)
    }
}

impl<B: Bus> Device<B> {
    /// A device with `vram_len` bytes of VRAM (from the register that discovery reads). Reads where
    /// the VRAM lies in the memory controller's address space; the device must have been posted.
    pub fn new(bus: B, regs: RegFile, chip: &'static Chip, vram_len: u64) -> Result<Self, Error> {
        let layout = Layout::new(vram_len, chip.driver_tmr)?;
        let mut device = Device {
            bus,
            regs,
            chip,
            layout,
            mc_base: 0,
            message: super::psp::MessageBuffer::Vram,
            dpm: super::smu::DpmTable::default(),
            leave_clocks: false,
            queues: QueuesInUse::default(),
            counters: Counters::default(),
            stages: heapless::Vec::new(),
            open: None,
            hdp_flush: None,
            hubs_on: [false; 2],
        };
        device.locate_vram()?;
        Ok(device)
    }

    /// Reads where the VRAM lies in the memory controller's address space.
    pub(super) fn locate_vram(&mut self) -> Result<(), Error> {
        let base = self.read(r::MMMC_VM_FB_LOCATION_BASE)?;
        if base == u32::MAX {
            return Err(Error::NotResponding { stage: Stage::Probe });
        }
        self.mc_base = u64::from(base & 0xff_ffff) << 24;
        Ok(())
    }

    /// Memory controller address of a VRAM offset.
    pub fn mc(&self, vram_offset: u64) -> u64 {
        self.mc_base.wrapping_add(vram_offset)
    }

    /// Accesses made so far.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// The stages passed, oldest first.
    pub fn stages(&self) -> &[StageTime] {
        &self.stages
    }

    /// Forgets the stages passed.
    pub fn clear_stages(&mut self) {
        self.stages.clear();
    }

    /// Gives the bus back.
    pub fn into_bus(self) -> B {
        self.bus
    }

    /// Reads a register.
    pub fn read(&mut self, reg: Reg) -> Result<u32, Error> {
        let addr = self.regs.addr(reg)?;
        self.read_at(addr)
    }

    /// Writes a register.
    pub fn write(&mut self, reg: Reg, value: u32) -> Result<(), Error> {
        let addr = self.regs.addr(reg)?;
        self.write_at(addr, value)
    }

    /// Writes a register by its fields; the other bits become 0.
    pub fn write_fields(&mut self, reg: Reg, fields: &[(Field, u32)]) -> Result<(), Error> {
        let value = self.regs.encode(reg, fields)?;
        self.write(reg, value)
    }

    /// Changes fields of a register and leaves its other bits alone.
    pub fn update(&mut self, reg: Reg, fields: &[(Field, u32)]) -> Result<(), Error> {
        let addr = self.regs.addr(reg)?;
        let old = self.read_at(addr)?;
        let value = self.regs.merge(reg, old, fields)?;
        self.write_at(addr, value)
    }

    /// Reads a field.
    pub fn get(&mut self, field: Field) -> Result<u32, Error> {
        let value = self.read(field.reg())?;
        Ok(self.regs.get(value, field)?)
    }

    /// Writes a value that is spread over two registers, lower half first.
    pub fn write_pair(&mut self, lo: Reg, hi: Reg, value: u64) -> Result<(), Error> {
        self.write(lo, value as u32)?;
        self.write(hi, (value >> 32) as u32)
    }

    /// Reads a value that is spread over two registers.
    pub fn read_pair(&mut self, lo: Reg, hi: Reg) -> Result<u64, Error> {
        let hi = self.read(hi)?;
        let lo = self.read(lo)?;
        Ok(u64::from(hi) << 32 | u64::from(lo))
    }

    /// Whether a dword address lies beyond BAR5 and needs the index/data pair.
    fn is_indirect(&self, addr: u32) -> bool {
        u64::from(addr) >= self.bus.window_len(Window::Registers) / 4
    }

    /// Reads a register by its absolute dword address.
    pub fn read_at(&mut self, addr: u32) -> Result<u32, Error> {
        if self.is_indirect(addr) {
            let data = self.point_at(addr)?;
            return self.read_direct(data);
        }
        self.read_direct(addr)
    }

    /// Writes a register by its absolute dword address.
    pub fn write_at(&mut self, addr: u32, value: u32) -> Result<(), Error> {
        if self.is_indirect(addr) {
            let data = self.point_at(addr)?;
            return self.write_direct(data, value);
        }
        self.write_direct(addr, value)
    }

    /// Points the RSMU window at a register; the dword address of its data register. The index
    /// register takes byte addresses.
    fn point_at(&mut self, addr: u32) -> Result<u32, Error> {
        let index = self.regs.addr(r::BIF_BX_PF0_RSMU_INDEX)?;
        let data = self.regs.addr(r::BIF_BX_PF0_RSMU_DATA)?;
        let byte_addr = addr.checked_mul(4).ok_or(Error::BadValue {
            what: "a register address",
            value: addr.into(),
            need: "its byte address fits into 32 bits",
        })?;
        self.write_direct(index, byte_addr)?;
        Ok(data)
    }

    fn read_direct(&mut self, addr: u32) -> Result<u32, Error> {
        self.counters.register_reads += 1;
        Ok(self.bus.read32(Window::Registers, u64::from(addr) * 4)?)
    }

    fn write_direct(&mut self, addr: u32, value: u32) -> Result<(), Error> {
        self.counters.register_writes += 1;
        Ok(self.bus.write32(Window::Registers, u64::from(addr) * 4, value)?)
    }

    /// Reads VRAM through the aperture.
    pub fn vram_read(&mut self, offset: u64, buf: &mut [u8]) -> Result<(), Error> {
        self.counters.vram_bytes_read += buf.len() as u64;
        Ok(self.bus.read_bulk(Window::Vram, offset, buf)?)
    }

    /// Writes VRAM through the aperture. Engines see it after [`Device::flush_hdp`].
    pub fn vram_write(&mut self, offset: u64, data: &[u8]) -> Result<(), Error> {
        self.counters.vram_bytes_written += data.len() as u64;
        Ok(self.bus.write_bulk(Window::Vram, offset, data)?)
    }

    /// Writes 8 aligned bytes of VRAM in one store.
    pub fn vram_write64(&mut self, offset: u64, value: u64) -> Result<(), Error> {
        self.counters.vram_bytes_written += 8;
        Ok(self.bus.write64(Window::Vram, offset, value)?)
    }

    /// Fills VRAM with zeros.
    pub fn vram_zero(&mut self, offset: u64, len: u64) -> Result<(), Error> {
        self.counters.vram_bytes_written += len;
        Ok(self.bus.zero(Window::Vram, offset, len)?)
    }

    /// Makes what the CPU wrote to VRAM visible to the engines.
    ///
    /// The register to write is where `BIF_BX0_REMAP_HDP_MEM_FLUSH_CNTL` says (a byte address): a
    /// kernel driver may have moved it, and a reset moves it back. It is asked for once.
    pub fn flush_hdp(&mut self) -> Result<(), Error> {
        self.bus.fence()?;
        let addr = match self.hdp_flush {
            Some(addr) => addr,
            None => {
                let at = self.read(r::BIF_BX0_REMAP_HDP_MEM_FLUSH_CNTL)?;
                // Kept for long: the answer of a device that is gone must not be.
                if at == u32::MAX {
                    return Err(Error::NotResponding { stage: self.current_stage() });
                }
                self.hdp_flush = Some(at / 4);
                at / 4
            }
        };
        self.write_at(addr, 0)
    }

    /// [`Device::flush_hdp`], and makes sure that it has arrived: for what is told to engines by another
    /// window than the registers', whose next read or write would see to that.
    ///
    /// What is read is not the register itself, which some platforms do not bear
    /// (`hdp_v6_0_flush_hdp`, hdp_v6_0.c).
    pub fn flush_hdp_through(&mut self) -> Result<(), Error> {
        self.flush_hdp()?;
        // A slow bus carries all windows in one order.
        if self.bus.is_slow() {
            return Ok(());
        }
        if self.read(r::RCC_DEV0_EPF0_RCC_CONFIG_MEMSIZE)? == u32::MAX {
            return Err(Error::NotResponding { stage: self.current_stage() });
        }
        Ok(())
    }

    fn current_stage(&self) -> Stage {
        // After the boot memory is flushed for queues.
        self.open.map_or(Stage::Queue, |(stage, ..)| stage)
    }

    /// Whether a hub translates, as far as this driver has set it up.
    pub fn is_hub_on(&self, hub: Hub) -> bool {
        self.hubs_on.get(hub as usize).copied().unwrap_or(false)
    }

    pub(crate) fn hub_on(&mut self, hub: Hub, on: bool) {
        if let Some(state) = self.hubs_on.get_mut(hub as usize) {
            *state = on;
        }
    }

    /// What a reset makes invalid.
    pub(super) fn forget(&mut self) {
        self.hdp_flush = None;
        self.hubs_on = [false; 2];
        self.dpm = super::smu::DpmTable::default();
        self.queues = QueuesInUse::default();
    }

    pub(super) fn look(&mut self, target: Target) -> Result<u32, Error> {
        match target {
            Target::Reg(reg) => self.read(reg),
            Target::Vram(offset) => {
                let mut dword = [0; 4];
                self.vram_read(offset, &mut dword)?;
                Ok(u32::from_le_bytes(dword))
            }
            Target::Dma(handle, offset) => {
                let mut dword = [0; 4];
                self.bus.sync_for_cpu(handle, offset, 4)?;
                self.bus.dma_read(handle, offset, &mut dword)?;
                Ok(u32::from_le_bytes(dword))
            }
            Target::Time => Ok(0),
        }
    }

    pub(super) fn close_stage(&mut self, now: u64) {
        if let Some((stage, since, before)) = self.open.take() {
            let after = self.counters;
            let time = StageTime {
                stage,
                took_us: now.saturating_sub(since),
                cost: Counters {
                    register_reads: after.register_reads - before.register_reads,
                    register_writes: after.register_writes - before.register_writes,
                    vram_bytes_read: after.vram_bytes_read - before.vram_bytes_read,
                    vram_bytes_written: after.vram_bytes_written - before.vram_bytes_written,
                },
            };
            // More stages than any boot has are only lost to the report.
            let _ = self.stages.push(time);
        }
    }

    /// Runs one machine to its end.
    pub fn run<T>(
        &mut self,
        machine: impl AsyncFnOnce(&mut Cx<'_, B>) -> Result<T, Error>,
    ) -> Result<T, Error> {
        self.run_with(&mut |_| (), machine)
    }

    /// Runs one machine to its end and tells `progress` which stages it enters.
    pub fn run_with<T>(
        &mut self,
        progress: &mut dyn FnMut(&Event),
        machine: impl AsyncFnOnce(&mut Cx<'_, B>) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let slot = Slot::new();
        let mut out = None;
        let mut cx = Cx::new(self, &slot);
        let result = {
            let future = pin!(async {
                let result = machine(&mut cx).await;
                cx.end();
                out = Some(result?);
                Ok(())
            });
            let mut tasks = [Task::new(future, &slot)];
            drive(&mut tasks, &mut |_, event| progress(event));
            let [task] = tasks;
            task.result().unwrap_or(Err(Error::NoWaitRecord))
        };
        result?;
        out.ok_or(Error::NoWaitRecord)
    }
}
