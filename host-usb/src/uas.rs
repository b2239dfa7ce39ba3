//! Command blocks over USB Attached SCSI: 31 of them under way at once, each on a stream of its own.
//!
//! The bridge runs them in the order of the command pipe; the TLP engine relies on it.

use crate::error::UsbError;
use crate::link::Link;
use crate::port::Transfer;

/// Alternate setting with the four pipes.
const ALTERNATE: u8 = 1;
/// Pipes, as the descriptors of these bridges have them.
const DATA_IN: u8 = 0x81;
const DATA_OUT: u8 = 0x02;
const STATUS: u8 = 0x83;
const COMMAND: u8 = 0x04;
/// Commands under way: streams 1 to 31 of 32, of which number 0 is reserved.
pub const WINDOW: usize = 31;
/// Information units (USB Attached SCSI, 6.2).
const COMMAND_IU: u8 = 1;
const SENSE_IU: u8 = 3;
const IU_LEN: usize = 32;
/// Room for a sense IU with sense data.
const STATUS_ROOM: usize = 64;

/// What moves with a command.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Payload {
    /// Nothing.
    None,
    /// So many bytes come in.
    In(usize),
    /// These go out.
    Out(Vec<u8>),
}

/// A command block.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Command {
    /// The block.
    pub cdb: [u8; 16],
    /// Its data.
    pub payload: Payload,
}

impl Command {
    fn iu(&self, tag: u8) -> Vec<u8> {
        let mut iu = vec![COMMAND_IU, 0, 0, tag];
        iu.resize(IU_LEN - self.cdb.len(), 0);
        iu.extend(self.cdb);
        iu
    }
}

/// Opens the pipes.
///
/// # Errors
/// Those of [`crate::port::Port::select`].
pub fn open(link: &mut Link) -> Result<(), UsbError> {
    link.port_mut().select(ALTERNATE, WINDOW as u32, &[DATA_OUT, DATA_IN, STATUS])
}

/// Sends commands, as many at once as there are streams; what came in for each, in order.
///
/// # Errors
/// The first command that was not carried out. Those behind it in its window may have been.
pub fn send(link: &mut Link, commands: &[Command]) -> Result<Vec<Vec<u8>>, UsbError> {
    let mut answers = Vec::with_capacity(commands.len());
    for window in commands.chunks(WINDOW) {
        send_window(link, window, &mut answers)?;
    }
    Ok(answers)
}

fn send_window(link: &mut Link, window: &[Command], answers: &mut Vec<Vec<u8>>) -> Result<(), UsbError> {
    let mut transfers = Vec::with_capacity(3 * window.len());
    let mut owner = Vec::with_capacity(3 * window.len());
    for (i, command) in window.iter().enumerate() {
        let (tag, stream) = (i as u8 + 1, i as u32 + 1);
        transfers.push(Transfer::Out { endpoint: COMMAND, stream: 0, data: command.iu(tag) });
        transfers.push(Transfer::In { endpoint: STATUS, stream, length: STATUS_ROOM });
        match &command.payload {
            Payload::None => {}
            Payload::In(length) => {
                transfers.push(Transfer::In { endpoint: DATA_IN, stream, length: *length });
            }
            Payload::Out(data) => {
                transfers.push(Transfer::Out { endpoint: DATA_OUT, stream, data: data.clone() });
                link.counts.block_bytes += data.len() as u64;
            }
        }
        owner.resize(transfers.len(), i);
    }
    let named = |at: usize| name(owner.get(at).and_then(|i| window.get(*i)));
    link.counts.commands += window.len() as u64;
    let done = link.run(transfers, named)?;
    let mut done = done.into_iter();
    for (i, command) in window.iter().enumerate() {
        let what = || name(window.get(i));
        let mut next =
            || done.next().ok_or_else(|| UsbError::Protocol { what: what(), why: "no end".into() });
        let sent = next()?;
        check_length(&what, sent.actual, IU_LEN)?;
        let status = next()?;
        check_status(&what, &status.data, i as u8 + 1)?;
        answers.push(match &command.payload {
            Payload::None => Vec::new(),
            Payload::In(length) => {
                let data = next()?.data;
                check_length(&what, data.len(), *length)?;
                data
            }
            Payload::Out(data) => {
                check_length(&what, next()?.actual, data.len())?;
                Vec::new()
            }
        });
    }
    Ok(())
}

fn name(command: Option<&Command>) -> String {
    let Some(command) = command else { return "a command".into() };
    let [op, len, a, b, c, ..] = command.cdb;
    let at = u32::from_be_bytes([0, a, b, c]) & 0x1_ffff;
    match op {
        0xe4 => format!("reading {len} bytes of bridge memory at {at:#x} (command E4)"),
        0xe5 => format!("writing {len:#04x} to bridge memory at {at:#x} (command E5)"),
        0x8a => "writing a block to bridge memory (command 8A)".into(),
        _ => format!("command {op:#04x}"),
    }
}

fn check_length(what: &dyn Fn() -> String, got: usize, want: usize) -> Result<(), UsbError> {
    if got == want { Ok(()) } else { Err(UsbError::Length { what: what(), got, want }) }
}

/// A sense IU: its kind at 0, the tag at 2, the status at 6, sense data from 16 on.
fn check_status(what: &dyn Fn() -> String, iu: &[u8], tag: u8) -> Result<(), UsbError> {
    let byte = |at: usize| iu.get(at).copied().unwrap_or(0);
    if iu.len() < 16 {
        return Err(UsbError::Length { what: what(), got: iu.len(), want: 16 });
    }
    let why = if byte(0) != SENSE_IU || byte(3) != tag || byte(2) != 0 {
        format!("its status is no sense IU of tag {tag}: {:02x?}", iu.get(..8).unwrap_or(iu))
    } else if byte(6) != 0 {
        format!(
            "the bridge refused it (status {:#x}, sense key {:#x}, code {:#04x})",
            byte(6),
            byte(18),
            byte(28)
        )
    } else {
        return Ok(());
    };
    Err(UsbError::Protocol { what: what(), why })
}
