//! Command blocks of the vendor's firmware: E4, E5 and 8A, and what an operating system asks a disk
//! without a medium.

use super::cost;
use super::machine::Machine;
use crate::violation::Rule;

/// Sense key, additional code and its qualifier.
pub(crate) type Sense = (u8, u8, u8);

const ILLEGAL_OPCODE: Sense = (5, 0x20, 0);
const ILLEGAL_FIELD: Sense = (5, 0x24, 0);
const NO_MEDIUM: Sense = (2, 0x3a, 0);

/// What a command block gave.
#[derive(Clone, Debug, Default)]
pub(crate) struct Reply {
    /// Bytes for the host.
    pub(crate) data: Vec<u8>,
    pub(crate) sense: Option<Sense>,
    /// Nanoseconds of work.
    pub(crate) cost: u64,
}

impl Reply {
    fn data(data: Vec<u8>, cost: u64) -> Reply {
        Reply { data, sense: None, cost: cost::COMMAND + cost }
    }

    fn refused(sense: Sense) -> Reply {
        Reply { data: Vec::new(), sense: Some(sense), cost: cost::COMMAND }
    }

    /// Sense data in the fixed format, 18 bytes.
    pub(crate) fn sense_bytes(sense: Option<Sense>) -> Vec<u8> {
        let (key, code, qualifier) = sense.unwrap_or_default();
        let mut s = vec![0; 18];
        (s[0], s[2], s[7], s[12], s[13]) = (0x70, key, 10, code, qualifier);
        s
    }
}

/// The 17-bit XDATA address of E4 and E5: 0x5x_xxxx, 128 KiB.
fn xdata(cdb: &[u8]) -> Result<usize, String> {
    let at = usize::from(cdb[2]) << 16 | usize::from(cdb[3]) << 8 | usize::from(cdb[4]);
    if at & !0x1_ffff != 0x50_0000 {
        return Err(format!("address {at:#08x} of command {:#04x} is not in 0x500000..0x520000", cdb[0]));
    }
    if cdb[5] != 0 {
        return Err(format!("byte 5 of command {:#04x} is {:#04x}, not 0", cdb[0], cdb[5]));
    }
    Ok(at & 0x1_ffff)
}

fn block(cdb: &[u8]) -> (u64, u32) {
    let lba = cdb[2..10].iter().fold(0, |v, b| v << 8 | u64::from(*b));
    let sectors = cdb[10..14].iter().fold(0, |v, b| v << 8 | u32::from(*b));
    (lba, sectors)
}

impl Machine {
    /// Bytes that the host has to send with this command block.
    pub(crate) fn scsi_expects(&self, cdb: &[u8; 16]) -> usize {
        match cdb[0] {
            0x8a => {
                let (lba, sectors) = block(cdb);
                self.blocks.length(lba, sectors).unwrap_or(0)
            }
            _ => 0,
        }
    }

    fn refuse(&mut self, why: String) -> Reply {
        self.violation(Rule::UsbCommand, why);
        Reply::refused(ILLEGAL_FIELD)
    }

    /// Executes a command block. `private`: the bridge's own commands are taken, as in the recorded
    /// traffic only over USB Attached SCSI.
    pub(crate) fn scsi(&mut self, cdb: &[u8; 16], out: &[u8], private: bool) -> Reply {
        match cdb[0] {
            0xe4 | 0xe5 | 0x8a if !private => self.refuse(format!(
                "command {:#04x} over Bulk-Only: it is known over USB Attached SCSI (alternate setting 1)",
                cdb[0]
            )),
            0xe4 => match xdata(cdb) {
                Ok(at) if cdb[1] != 0 && at + usize::from(cdb[1]) <= 0x2_0000 => {
                    let len = usize::from(cdb[1]);
                    Reply::data(self.xdata_read(at, len), cost::COPY_BYTE * len as u64)
                }
                Ok(at) => self.refuse(format!("E4 of {} bytes at {at:#x}: 1 to 255, below 0x20000", cdb[1])),
                Err(why) => self.refuse(why),
            },
            0xe5 => match xdata(cdb) {
                Ok(at) => {
                    if self.xdata_write(at, cdb[1]) {
                        Reply::data(Vec::new(), 0)
                    } else {
                        Reply::refused(ILLEGAL_FIELD)
                    }
                }
                Err(why) => self.refuse(why),
            },
            0x8a => self.scsi_write(cdb, out),
            // What systems ask a disk: test unit ready, request sense, inquiry, mode sense, start or
            // stop, prevent removal, capacity, synchronize, mode sense 10, capacity 16, report LUNs.
            0x00 | 0x25 | 0x9e => Reply::refused(NO_MEDIUM),
            0x03 => {
                let len = usize::from(cdb[4]).min(18);
                Reply::data(Reply::sense_bytes(Some(NO_MEDIUM))[..len].to_vec(), 0)
            }
            0x12 => self.scsi_inquiry(cdb),
            0x1b | 0x1e | 0x35 => Reply::data(Vec::new(), 0),
            0xa0 => Reply::data(vec![0, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0], 0),
            0x1a | 0x5a => Reply::refused(ILLEGAL_OPCODE),
            op => {
                self.violation(
                    Rule::UsbCommand,
                    format!("command {op:#04x}, which this bridge does not have"),
                );
                Reply::refused(ILLEGAL_OPCODE)
            }
        }
    }

    fn scsi_inquiry(&mut self, cdb: &[u8; 16]) -> Reply {
        let room = usize::from(cdb[3]) << 8 | usize::from(cdb[4]);
        let mut d = Vec::new();
        match (cdb[1] & 1, cdb[2]) {
            (0, 0) => {
                d.extend([0, 0x80, 6, 2, 31, 0, 0, 2]);
                d.extend(b"ASMT    ");
                d.extend(b"ASM246X         ");
                d.extend(b"0   ");
            }
            (1, 0) => d.extend([0, 0, 0, 2, 0, 0x80]),
            (1, 0x80) => d.extend([&[0, 0x80, 0, 8][..], b"00000001"].concat()),
            _ => return Reply::refused(ILLEGAL_FIELD),
        }
        d.truncate(room);
        Reply::data(d, 0)
    }

    fn scsi_write(&mut self, cdb: &[u8; 16], out: &[u8]) -> Reply {
        let (lba, sectors) = block(cdb);
        let len = match self.blocks.length(lba, sectors) {
            Ok(len) => len,
            Err(why) => return self.refuse(why),
        };
        if cdb[1] != 0 || cdb[14] != 0 || cdb[15] != 0 {
            return self.refuse("command 0x8a with flags, group or control set".into());
        }
        if out.len() != len {
            return self
                .refuse(format!("command 0x8a of {sectors} sectors with {} bytes of data", out.len()));
        }
        match self.blocks.place(len) {
            Ok(at) => {
                self.memory.write_block(&self.gpu, at, out);
                self.counts.blocks += 1;
                self.counts.block_bytes += len as u64;
                Reply::data(Vec::new(), cost::wire(len))
            }
            Err(why) => self.refuse(why),
        }
    }
}
