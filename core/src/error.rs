//! What can go wrong while a device is brought up, used and shut down.

use crate::bus::BusError;
use crate::firmware::{FirmwareError, SosComponent};
use crate::ip::{Missed, Stage};
use crate::layout::LayoutError;
use crate::reg::RegError;
use crate::reg::smu::{Clock, SmuError};

/// An error of the IP machines and of what is composed from them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The bus failed.
    #[error(transparent)]
    Bus(#[from] BusError),
    /// A register or field was used that this device lacks.
    #[error(transparent)]
    Reg(#[from] RegError),
    /// An image could not be read.
    #[error(transparent)]
    Firmware(#[from] FirmwareError),
    /// The reserved ranges do not fit into the VRAM.
    #[error(transparent)]
    Layout(#[from] LayoutError),
    /// A wait missed its deadline.
    #[error("{0}")]
    Timeout(Missed),
    /// No row of [`crate::chip`] describes this GPU.
    #[error(
        "GPUs with GC {}.{}.{} are not supported; supported are GC 11.0.0, 11.0.2, 11.0.3, 12.0.0 and 12.0.1",
        gc.0, gc.1, gc.2
    )]
    UnknownChip {
        /// Version of the graphics block, from the discovery table.
        gc: (u8, u8, u8),
    },
    /// The firmware has no such image.
    #[error("the PSP's SOS container holds no {0:?} image; use a newer firmware package")]
    MissingComponent(SosComponent),
    /// The firmware has no such image.
    #[error("the firmware lacks the {0} image")]
    MissingImage(&'static str),
    /// The image is larger than the buffer through which the PSP takes it.
    #[error("a firmware image of {len:#x} bytes does not fit into the PSP message buffer of {room:#x} bytes")]
    ImageTooLarge {
        /// Length of the image in bytes.
        len: u32,
        /// Length of the buffer in bytes.
        room: u32,
    },
    /// The PSP asks for more trusted memory than the layout reserves.
    #[error("the PSP asks for a TMR of {asked:#x} bytes, {reserved:#x} are reserved")]
    TmrTooLarge {
        /// Size the PSP asked for in bytes.
        asked: u32,
        /// Size reserved in bytes.
        reserved: u64,
    },
    /// The PSP's bootloader refused a component.
    #[error(
        "the PSP's bootloader refused a component: PSP_C2PMSG_35 reads {answer:#x}, expected 0x80000000; use firmware for this GPU"
    )]
    Bootloader {
        /// What its register reads.
        answer: u32,
    },
    /// The PSP refused a command.
    #[error("the PSP refused command {command:#x} (firmware type {fw_type}) with status {status:#x}")]
    Psp {
        /// Command id (`enum psp_gfx_cmd_id`).
        command: u32,
        /// Firmware type for `LOAD_IP_FW`, 0 otherwise.
        fw_type: u32,
        /// Status in the response (`struct psp_gfx_resp`).
        status: u32,
    },
    /// The SMU answered something other than "OK".
    #[error(
        "the SMU answered message {message:#x} (argument {argument:#x}) with {response:#x}, not with 1 (OK)"
    )]
    Smu {
        /// Message number.
        message: u32,
        /// Argument sent.
        argument: u32,
        /// Response register.
        response: u32,
    },
    /// The SMU's interface lacks something.
    #[error(transparent)]
    SmuInterface(#[from] SmuError),
    /// A clock of the SMU has no levels, or more than the table holds.
    #[error("the SMU reports {count} levels for clock {clock:?}; between 1 and {max} are expected")]
    DpmLevels {
        /// The clock.
        clock: Clock,
        /// Levels reported.
        count: u32,
        /// The most the table holds.
        max: u32,
    },
    /// Something that is only possible on a booted device, or the other way round.
    #[error("{0}")]
    State(&'static str),
    /// A value that the hardware cannot take.
    #[error("{what} is {value:#x}, which the hardware cannot take ({need})")]
    BadValue {
        /// Which value.
        what: &'static str,
        /// The value.
        value: u64,
        /// What would be right.
        need: &'static str,
    },
    /// Every read of the device returns all ones.
    #[error(
        "the device does not respond in stage {stage}: registers read as all ones; reset or replug it, then boot it anew"
    )]
    NotResponding {
        /// Where this was noticed.
        stage: Stage,
    },
    /// A machine waits without saying for what: an error in the program.
    #[error("a machine gave up control without a wait record; this is a programming error")]
    NoWaitRecord,
}
