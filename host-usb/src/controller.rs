//! What both firmwares of the bridge can do, whatever carries it.

use crate::custom::Custom;
use crate::error::UsbError;
use crate::link::Link;
use crate::patched::Patched;
use crate::port::Port;
use std::fmt;

/// Bus address of block memory, as devices behind the bridge reach it.
pub const BLOCKS_AT: u64 = 0x20_0000;
/// Its length in bytes.
pub const BLOCKS_LEN: u64 = 0x8_0000;
/// Bus address of the queue page.
pub const QUEUE_AT: u64 = 0x82_0000;
/// Its length.
pub const QUEUE_LEN: u64 = 0x1000;
/// Bus address of the page with the completion queue of the controller's NVMe engine; the open firmware
/// sends what it was armed for when the device writes the first entry's phase.
pub const COMPLETIONS_AT: u64 = 0x82_2000;
/// Byte of that page where the dword with the phase is.
pub const BELL: u64 = 12;
/// Controller addresses of the three: the controller sees the first 4 KiB of block memory.
pub(crate) const BLOCKS_XRAM: u32 = 0xf000;
pub(crate) const QUEUE_XRAM: u32 = 0xa000;
pub(crate) const COMPLETIONS_XRAM: u32 = 0xb800;
/// Bytes of block memory that the controller sees.
pub const BLOCKS_SEEN: u64 = 0x1000;
/// State of the link's training, and its value when the link is up (L0).
pub(crate) const LTSSM: u32 = 0xb450;
pub(crate) const LTSSM_UP: u8 = 0x78;

/// What runs on the bridge.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Firmware {
    /// The vendor's with another identity: USB Attached SCSI.
    Patched,
    /// The open one: vendor requests.
    Custom,
}

impl fmt::Display for Firmware {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Firmware::Patched => "vendor's, patched (USB Attached SCSI)",
            Firmware::Custom => "open (vendor requests)",
        })
    }
}

/// An ASM2464PD. Writes to memory are posted: they keep their order, also with what follows, and happen
/// at the next read or [`Controller::flush`].
pub trait Controller {
    /// What runs on it.
    fn firmware(&self) -> Firmware;

    /// The wire below.
    fn link(&self) -> &Link;

    /// The wire below.
    fn link_mut(&mut self) -> &mut Link;

    /// Reads controller memory.
    ///
    /// # Errors
    /// Any of [`UsbError`], as everywhere here.
    fn xram_read(&mut self, at: u32, buf: &mut [u8]) -> Result<(), UsbError>;

    /// Writes controller memory, posted. With `cached`, bytes that stand there since this was last
    /// called for them are not written again: for memory that nobody else writes.
    fn xram_write(&mut self, at: u32, data: &[u8], cached: bool) -> Result<(), UsbError>;

    /// Reads 1 to 4 bytes of configuration space.
    fn config_read(&mut self, bus: u8, at: u16, size: u8) -> Result<u32, UsbError>;

    /// Writes 1 to 4 bytes of configuration space, and waits for the completion.
    fn config_write(&mut self, bus: u8, at: u16, size: u8, value: u32) -> Result<(), UsbError>;

    /// Reads memory behind the bridge, dword by dword.
    fn memory_read(&mut self, address: u64, buf: &mut [u8]) -> Result<(), UsbError>;

    /// Writes it, posted, in rising order.
    fn memory_write(&mut self, address: u64, data: &[u8]) -> Result<(), UsbError>;

    /// Writes block memory, at multiples of [`Controller::block_step`].
    fn blocks_write(&mut self, offset: u64, data: &[u8]) -> Result<(), UsbError>;

    /// Gets ready to carry block memory to the host once the device has written to [`BELL`]. False if this
    /// firmware cannot.
    fn blocks_arm(&mut self, offset: u64, len: u64) -> Result<bool, UsbError> {
        let _ = (offset, len);
        Ok(false)
    }

    /// Takes in what [`Controller::blocks_arm`] asked for; its whole length.
    fn blocks_read(&mut self, buf: &mut [u8]) -> Result<(), UsbError> {
        let _ = buf;
        Err(UsbError::Unsupported("carry block memory to the host"))
    }

    /// Bytes of which the offset of a block is a multiple.
    fn block_step(&self) -> u64;

    /// Makes posted writes happen.
    fn flush(&mut self) -> Result<(), UsbError>;

    /// Forgets what it knows to stand in a range of controller memory.
    fn forget_range(&mut self, at: u32, len: u32);
}

/// State of the link's training.
///
/// # Errors
/// [`UsbError::LinkDown`] if it is not up.
pub fn link_up(controller: &mut (impl Controller + ?Sized)) -> Result<(), UsbError> {
    let mut ltssm = [0];
    controller.xram_read(LTSSM, &mut ltssm)?;
    if ltssm[0] == LTSSM_UP { Ok(()) } else { Err(UsbError::LinkDown { ltssm: ltssm[0] }) }
}

/// Recognises a bridge by what it answers, and sets it up.
///
/// # Errors
/// [`UsbError::Unknown`] with what is there instead, or what went wrong.
pub fn open(port: Box<dyn Port>) -> Result<Box<dyn Controller>, UsbError> {
    const MASS_STORAGE: u8 = 8;
    const UAS: u8 = 0x62;
    let description = port.description().clone();
    let is_uas =
        description.settings.iter().any(|(class, _, protocol)| (*class, *protocol) == (MASS_STORAGE, UAS));
    let is_vendor = description.settings.first().is_some_and(|(class, ..)| *class == 0xff);
    let link = Link::new(port);
    let opened: Result<Box<dyn Controller>, UsbError> = if is_vendor {
        Custom::open(link).map(|c| Box::new(c) as Box<dyn Controller>)
    } else if is_uas {
        Patched::open(link).map(|c| Box::new(c) as Box<dyn Controller>)
    } else {
        return Err(UsbError::Unknown(format!(
            "{} ({:04x}:{:04x} at {}) is no ASM2464PD with one of the two firmwares that reach a GPU: its \
             interface has neither USB Attached SCSI nor vendor requests (settings {:02x?})",
            description.product, description.id.0, description.id.1, description.place, description.settings
        )));
    };
    // A disk enclosure looks the same until it is asked.
    opened.map_err(|e| match e {
        UsbError::Stall { .. } | UsbError::Protocol { .. } => UsbError::Unknown(format!(
            "{} ({:04x}:{:04x} at {}) does not answer as an ASM2464PD that reaches a GPU: {e}",
            description.product, description.id.0, description.id.1, description.place
        )),
        other => other,
    })
}
