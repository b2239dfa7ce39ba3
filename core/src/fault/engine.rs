//! Errors that engines report by interrupt: shader waves (SQ) and the command processor (CP).

use crate::ip::ih::Entry;
use core::fmt;

/// `SOC21_IH_CLIENTID_GFX` (soc15_ih_clientid.h).
const CLIENT_GFX: u8 = 0x0a;
/// `SOC21_IH_CLIENTID_GRBM_CP` (soc15_ih_clientid.h).
const CLIENT_GRBM_CP: u8 = 0x14;
/// `GFX_11_0_0__SRCID__CP_BAD_OPCODE_ERROR` (irqsrcs_gfx_11_0_0.h).
const SOURCE_BAD_OPCODE: u8 = 183;
/// `GFX_11_0_0__SRCID__CP_PRIV_REG_FAULT` (irqsrcs_gfx_11_0_0.h).
const SOURCE_PRIV_REG: u8 = 184;
/// `GFX_11_0_0__SRCID__CP_PRIV_INSTR_FAULT` (irqsrcs_gfx_11_0_0.h).
const SOURCE_PRIV_INSTR: u8 = 185;
/// `SOC15_INTSRC_SQ_INTERRUPT_MSG` (soc15_int.h).
const SOURCE_SQ: u8 = 239;
/// `SQ_INTERRUPT_WORD_ENCODING_ERROR` (kfd_int_process_v11.c).
const ENCODING_ERROR: u32 = 2;

/// Why a shader wave was stopped (`SQ_INTERRUPT_ERROR_TYPE`, kfd_int_process_v11.c).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WaveError {
    /// An instruction that the compute unit does not have.
    IllegalInstruction,
    /// An access to memory that was refused.
    MemoryViolation,
    /// An error in the compute unit's own memory that could not be corrected.
    Uncorrectable,
    /// Data that were marked as damaged.
    Poisoned,
    /// A kind without a name.
    Other(u8),
}

/// What an engine reported.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EngineFault {
    /// A shader wave was stopped.
    Wave {
        /// Why.
        error: WaveError,
        /// Workgroup processor in its shader array.
        wgp: u8,
        /// SIMD in the workgroup processor.
        simd: u8,
        /// Wave slot of the SIMD.
        wave: u8,
        /// VMID it ran with.
        vmid: u8,
    },
    /// The command processor met a packet that it does not know.
    BadPacket {
        /// Pipe of the queue.
        pipe: u8,
        /// Number of the queue on its pipe.
        queue: u8,
    },
    /// A packet accessed a register that is reserved for the driver.
    PrivilegedRegister {
        /// Pipe of the queue.
        pipe: u8,
        /// Number of the queue on its pipe.
        queue: u8,
    },
    /// A shader executed an instruction that is reserved for the driver.
    PrivilegedInstruction {
        /// Pipe of the queue.
        pipe: u8,
        /// Number of the queue on its pipe.
        queue: u8,
    },
}

impl EngineFault {
    /// What an interrupt tells of an error; `None` for all other interrupts.
    pub fn of(entry: &Entry) -> Option<EngineFault> {
        if entry.client != CLIENT_GRBM_CP && entry.client != CLIENT_GFX {
            return None;
        }
        // ring: pipe in bits 0 to 1, ME in 2 to 3, queue in 4 to 6 (`gfx_v11_0_eop_irq`).
        let (pipe, queue) = (entry.ring & 3, entry.ring >> 4 & 7);
        match entry.source {
            SOURCE_BAD_OPCODE => Some(EngineFault::BadPacket { pipe, queue }),
            SOURCE_PRIV_REG => Some(EngineFault::PrivilegedRegister { pipe, queue }),
            SOURCE_PRIV_INSTR => Some(EngineFault::PrivilegedInstruction { pipe, queue }),
            SOURCE_SQ => {
                let [low, high, ..] = entry.data;
                // The layout is described at the head of kfd_int_process_v11.c.
                if high >> 6 & 3 != ENCODING_ERROR {
                    return None;
                }
                Some(EngineFault::Wave {
                    error: match low >> 21 & 0xf {
                        0 => WaveError::Uncorrectable,
                        1 => WaveError::IllegalInstruction,
                        2 => WaveError::MemoryViolation,
                        3 => WaveError::Poisoned,
                        other => WaveError::Other(other as u8),
                    },
                    wgp: (high >> 2 & 0xf) as u8,
                    simd: (high & 3) as u8,
                    wave: (low >> 27) as u8,
                    vmid: entry.vmid,
                })
            }
            _ => None,
        }
    }
}

impl fmt::Display for WaveError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            WaveError::IllegalInstruction => f.write_str("an illegal instruction"),
            WaveError::MemoryViolation => f.write_str("a memory violation"),
            WaveError::Uncorrectable => f.write_str("an uncorrectable memory error"),
            WaveError::Poisoned => f.write_str("damaged data"),
            WaveError::Other(kind) => write!(f, "an error of kind {kind}"),
        }
    }
}

impl fmt::Display for EngineFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            EngineFault::Wave { error, wgp, simd, wave, vmid } => {
                write!(f, "a wave (WGP {wgp}, SIMD {simd}, slot {wave}, VMID {vmid}) was stopped by {error}")
            }
            EngineFault::BadPacket { pipe, queue } => {
                write!(
                    f,
                    "compute queue {pipe}.{queue} met a packet that the command processor does not know"
                )
            }
            EngineFault::PrivilegedRegister { pipe, queue } => {
                write!(f, "a packet of compute queue {pipe}.{queue} accessed a reserved register")
            }
            EngineFault::PrivilegedInstruction { pipe, queue } => {
                write!(f, "a kernel of compute queue {pipe}.{queue} executed a reserved instruction")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(source: u8, low: u32, high: u32) -> Entry {
        Entry {
            client: CLIENT_GRBM_CP,
            source,
            ring: 0x24,
            vmid: 5,
            vmid_mm: false,
            timestamp: 0,
            pasid: 0,
            node: 0,
            data: [low, high, 0, 0],
        }
    }

    #[test]
    fn an_illegal_instruction_is_error_type_1_of_an_sq_interrupt_with_encoding_2() {
        let e = entry(239, 1 << 21 | 7 << 27 | 0x1_2345, 2 << 6 | 5 << 2 | 3);
        let wave = |error| EngineFault::Wave { error, wgp: 5, simd: 3, wave: 7, vmid: 5 };
        assert_eq!(EngineFault::of(&e), Some(wave(WaveError::IllegalInstruction)));
        let e = entry(239, 2 << 21 | 7 << 27, 2 << 6 | 5 << 2 | 3);
        assert_eq!(EngineFault::of(&e), Some(wave(WaveError::MemoryViolation)));
        let e = entry(239, 9 << 21 | 7 << 27, 2 << 6 | 5 << 2 | 3);
        assert_eq!(EngineFault::of(&e), Some(wave(WaveError::Other(9))));
    }

    #[test]
    fn messages_of_waves_and_ends_of_pipe_are_no_errors() {
        for e in [entry(239, 1 << 21, 1 << 6), entry(239, 1 << 21, 0), entry(181, 0, 2 << 6)] {
            assert_eq!(EngineFault::of(&e), None);
        }
        let other = Entry { client: 0x1b, ..entry(183, 0, 0) };
        assert_eq!(EngineFault::of(&other), None);
    }

    #[test]
    fn an_unknown_opcode_names_pipe_and_queue_of_its_ring() {
        let of = |source| EngineFault::of(&entry(source, 0, 0));
        assert_eq!(of(183), Some(EngineFault::BadPacket { pipe: 0, queue: 2 }));
        assert_eq!(of(184), Some(EngineFault::PrivilegedRegister { pipe: 0, queue: 2 }));
        assert_eq!(of(185), Some(EngineFault::PrivilegedInstruction { pipe: 0, queue: 2 }));
    }
}
