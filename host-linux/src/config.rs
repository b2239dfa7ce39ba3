//! PCI configuration space: identity, power state, and what a reset of the device takes away.

/// Access to configuration space.
pub(crate) trait Config {
    type Error;
    fn read(&mut self, offset: u16, buf: &mut [u8]) -> Result<(), Self::Error>;
    fn write(&mut self, offset: u16, data: &[u8]) -> Result<(), Self::Error>;

    fn read16(&mut self, offset: u16) -> Result<u16, Self::Error> {
        let mut b = [0; 2];
        self.read(offset, &mut b)?;
        Ok(u16::from_le_bytes(b))
    }
    fn read32(&mut self, offset: u16) -> Result<u32, Self::Error> {
        let mut b = [0; 4];
        self.read(offset, &mut b)?;
        Ok(u32::from_le_bytes(b))
    }
}

// Offsets and capabilities of `linux/pci_regs.h`.
const COMMAND: u16 = 0x04;
const STATUS_CAPABILITIES: u32 = 1 << 20;
const FIRST_CAPABILITY: u16 = 0x34;
const FIRST_EXTENDED: u16 = 0x100;
const MASTER: u16 = 0x4;
const MEMORY_AND_MASTER: u16 = 0x2 | MASTER;
const CAP_POWER: u8 = 0x01;
const CAP_MSI: u8 = 0x05;
const CAP_EXPRESS: u8 = 0x10;
const EXT_REBAR: u16 = 0x15;
/// A chain of capabilities is no longer.
const MAX_CAPABILITIES: usize = 96;
const POWER_STATE: u16 = 3;
const MSI_ENABLE: u16 = 1;
const MSI_VECTORS: u16 = 7 << 4;

/// Registers that were read, to be written back in this order.
#[derive(Clone, Debug, Default)]
pub(crate) struct Saved(Vec<(u16, Vec<u8>)>);

/// Places of the capabilities: (id, offset), extended ones with ids from 0x100 on.
fn capabilities<C: Config>(c: &mut C) -> Result<Vec<(u16, u16)>, C::Error> {
    let mut found = Vec::new();
    if c.read32(COMMAND)? & STATUS_CAPABILITIES != 0 {
        let mut at = c.read16(FIRST_CAPABILITY)? & 0xfc;
        while at >= 0x40 && found.len() < MAX_CAPABILITIES {
            let head = c.read16(at)?;
            found.push((head & 0xff, at));
            at = head >> 8 & 0xfc;
        }
    }
    let mut at = FIRST_EXTENDED;
    while at >= FIRST_EXTENDED && found.len() < 2 * MAX_CAPABILITIES {
        let head = c.read32(at)?;
        if head == 0 || head == u32::MAX {
            break;
        }
        found.push((0x100 + (head as u16 & 0xff), at));
        at = (head >> 20) as u16 & 0xffc;
    }
    Ok(found)
}

/// Wakes the device up, lets it answer to memory accesses and reach memory.
pub(crate) fn enable<C: Config>(c: &mut C) -> Result<(), C::Error> {
    for (id, at) in capabilities(c)? {
        if id == u16::from(CAP_POWER) {
            let control = c.read16(at + 4)?;
            if control & POWER_STATE != 0 {
                c.write(at + 4, &(control & !POWER_STATE).to_le_bytes())?;
                // D3hot to D0 takes 10 ms (PCI power management, 5.4).
                std::thread::sleep(std::time::Duration::from_millis(10));
            }
        }
    }
    let command = c.read16(COMMAND)?;
    c.write(COMMAND, &(command | MEMORY_AND_MASTER).to_le_bytes())
}

/// Keeps the device from memory.
pub(crate) fn end_dma<C: Config>(c: &mut C) -> Result<(), C::Error> {
    let command = c.read16(COMMAND)?;
    c.write(COMMAND, &(command & !MASTER).to_le_bytes())
}

/// Switches message signalled interrupts on, if the device has them: one vector.
pub(crate) fn enable_msi<C: Config>(c: &mut C) -> Result<(), C::Error> {
    for (id, at) in capabilities(c)? {
        if id == u16::from(CAP_MSI) {
            let control = c.read16(at + 2)? & !MSI_VECTORS | MSI_ENABLE;
            c.write(at + 2, &control.to_le_bytes())?;
        }
    }
    Ok(())
}

/// Reads what a reset takes away.
pub(crate) fn save<C: Config>(c: &mut C) -> Result<Saved, C::Error> {
    let mut places: Vec<(u16, usize)> = Vec::new();
    let capabilities = capabilities(c)?;
    // A window's size comes before its address.
    for (id, at) in &capabilities {
        if *id == 0x100 + EXT_REBAR {
            let bars = (c.read32(at + 8)? >> 5 & 7).min(6) as u16;
            places.extend((0..bars).map(|i| (at + 8 + 8 * i, 4)));
        }
    }
    places.extend((0..6).map(|bar| (0x10 + 4 * bar, 4)));
    // Expansion ROM, cache line size, interrupt line.
    places.extend([(0x30, 4), (0x0c, 1), (0x3c, 1)]);
    for (id, at) in capabilities {
        match u8::try_from(id) {
            Ok(CAP_POWER) => places.push((at + 4, 2)),
            // Device, link, device 2 and link 2 control.
            Ok(CAP_EXPRESS) => places.extend([8, 0x10, 0x28, 0x30].map(|o| (at + o, 2))),
            // Address, data, control: enabled at last.
            Ok(CAP_MSI) => places.extend([(at + 4, 4), (at + 8, 4), (at + 12, 2), (at + 2, 2)]),
            _ => {}
        }
    }
    places.push((COMMAND, 2));
    let mut saved = Saved::default();
    for (at, len) in places {
        let mut value = vec![0; len];
        c.read(at, &mut value)?;
        saved.0.push((at, value));
    }
    Ok(saved)
}

/// Writes back what [`save`] has read.
pub(crate) fn restore<C: Config>(c: &mut C, saved: &Saved) -> Result<(), C::Error> {
    for (at, value) in &saved.0 {
        c.write(*at, value)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::convert::Infallible;

    struct Bytes(Vec<u8>, Vec<u16>);

    impl Config for Bytes {
        type Error = Infallible;
        fn read(&mut self, offset: u16, buf: &mut [u8]) -> Result<(), Infallible> {
            buf.copy_from_slice(&self.0[usize::from(offset)..][..buf.len()]);
            Ok(())
        }
        fn write(&mut self, offset: u16, data: &[u8]) -> Result<(), Infallible> {
            self.1.push(offset);
            self.0[usize::from(offset)..][..data.len()].copy_from_slice(data);
            Ok(())
        }
    }

    fn device() -> Bytes {
        let mut b = vec![0; 4096];
        b[6] = 0x10;
        b[0x34] = 0x48;
        // Power management in D3, Express, MSI; a resizable BAR.
        b[0x48..0x4e].copy_from_slice(&[1, 0x64, 3, 0, 3, 0]);
        b[0x64..0x66].copy_from_slice(&[0x10, 0xa0]);
        b[0xa0..0xa2].copy_from_slice(&[5, 0]);
        b[0x100..0x104].copy_from_slice(&0x0001_0015u32.to_le_bytes());
        b[0x108] = 1 << 5;
        Bytes(b, Vec::new())
    }

    #[test]
    fn a_sleeping_device_is_woken_and_may_master_the_bus() {
        let mut d = device();
        enable(&mut d).unwrap();
        assert_eq!((d.0[0x4c], d.0[4]), (0, 6));
    }

    #[test]
    fn one_message_signalled_interrupt_is_switched_on() {
        let mut d = device();
        d.0[0xa2] = 0xf0;
        enable_msi(&mut d).unwrap();
        assert_eq!((d.0[0xa2], &d.1[..]), (0x81, &[0xa2][..]));
    }

    #[test]
    fn a_reset_loses_nothing_that_was_saved() {
        let mut d = device();
        enable(&mut d).unwrap();
        d.0[0x10..0x14].copy_from_slice(&[0xc, 0, 0, 0x80]);
        d.0[0x109] = 15;
        d.0[0xa2] = 0x81;
        let (saved, before) = (save(&mut d).unwrap(), d.0.clone());
        for at in [0x04, 0x10, 0x13, 0x6c, 0xa2, 0x109] {
            d.0[at] = 0;
        }
        d.1.clear();
        restore(&mut d, &saved).unwrap();
        assert!(d.0 == before);
        assert_eq!((d.1.first(), d.1.last()), (Some(&0x108), Some(&0x04)), "sizes first, command last");
    }

    #[test]
    fn a_chain_of_capabilities_that_is_a_circle_ends() {
        let mut d = device();
        d.0[0xa1] = 0x48;
        d.0[0x103] = 0x10;
        assert!(capabilities(&mut d).unwrap().len() <= 2 * MAX_CAPABILITIES);
    }
}
