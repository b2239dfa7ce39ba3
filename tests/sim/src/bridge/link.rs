//! The cable, PCIe power and the link.

use super::blocks::Blocks;
use super::config::Firmware;
use super::cost;
use super::machine::Machine;
use super::memory::Memory;
use super::usb::Status;

/// The PCIe link.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Link {
    pub(crate) power: bool,
    pub(crate) reset: bool,
    broken: bool,
    up_at: u64,
}

impl Link {
    pub(crate) fn new(power: bool, up_at: u64) -> Link {
        Link { power, reset: false, broken: false, up_at }
    }
}

impl Machine {
    pub(crate) fn unplug(&mut self) {
        self.present = false;
        self.sweep(Status::Io);
        self.set_alternate(0);
        self.configuration = 0;
        self.gpu.unplug();
        self.memory.let_dma(&self.gpu, false);
    }

    /// Plugged in again: powered on anew.
    pub(crate) fn plug(&mut self) {
        self.memory.let_dma(&self.gpu, false);
        self.memory = Memory::new(self.config.firmware == Firmware::Custom);
        self.blocks = Blocks::default();
        self.pcie.reset(&self.config, None);
        let power = self.config.firmware == Firmware::Patched;
        self.link = Link::new(power, self.now());
        if power {
            self.power_gpu();
        }
        self.present = true;
        self.power_on_registers();
    }

    fn power_gpu(&mut self) {
        self.gpu.plug();
        self.gpu.lock().pci.reset();
    }

    pub(crate) fn set_power(&mut self, on: bool) {
        if on == self.link.power {
            return;
        }
        self.link = Link::new(on, self.now());
        self.pcie.reset(&self.config, Some(1));
        if on {
            self.power_gpu()
        } else {
            self.gpu.unplug()
        }
        self.upstream_changed();
    }

    /// PERST#: what is behind the bridge is reset and the link trains anew.
    pub(crate) fn set_perst(&mut self, asserted: bool) {
        if asserted && !self.link.reset {
            self.pcie.reset(&self.config, Some(1));
            self.pcie.settle();
            if self.link.power {
                self.gpu.reset_bus();
            }
        } else if !asserted && self.link.reset {
            self.link.broken = false;
            self.link.up_at = self.now() + self.ns(cost::TRAINING);
        }
        self.link.reset = asserted;
        self.upstream_changed();
    }

    pub(crate) fn link_down(&mut self) {
        self.link.broken = true;
        self.upstream_changed();
    }

    pub(crate) fn link_up(&self) -> bool {
        self.link.power && !self.link.reset && !self.link.broken && self.now() >= self.link.up_at
    }

    /// Bridges or the link changed: the GPU's requests pass, or they do not.
    pub(crate) fn upstream_changed(&mut self) {
        let allowed = self.pcie.masters() && self.link.power && !self.link.reset && !self.link.broken;
        self.memory.let_dma(&self.gpu, allowed);
    }
}
