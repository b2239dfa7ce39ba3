//! Commands of the PSP's ring: TOC, TMR, firmware, autoload.

use crate::device::Device;
use crate::env::Kind;
use crate::firmware::{Header, hash, types_of_firmware};
use crate::psp::{access, pair, word};
use crate::violation::Rule;

const SETUP_TMR: u32 = 5;
const LOAD_IP_FW: u32 = 6;
const DESTROY_TMR: u32 = 7;
const LOAD_TOC: u32 = 0x20;
const AUTOLOAD_RLC: u32 = 0x21;
const BOOT_CFG: u32 = 0x22;
const ERR_UNKNOWN_COMMAND: u32 = 0x100;
const ERR_BAD_PARAMETERS: u32 = 0xffff_0006;
const ERR_BAD_STATE: u32 = 0xffff_0007;
const ERR_SECURITY: u32 = 0xffff_000f;

/// The TMR's size for these GPUs, the answer to LOAD_TOC.
const TMR_SIZE: u64 = 0x130_0000;
const TMR_ALIGN: u64 = 0x10_0000;
/// Largest image: PSP's private buffer (`PSP_1_MEG`).
pub(crate) const MAX_IMAGE: u64 = 1 << 20;

const FW_SMU: u32 = 18;
pub(crate) const FW_RLC_G: u32 = 8;
/// `psp_gfx_fw_type` numbers without which RLC autoload cannot bring up compute and SDMA.
pub(crate) const REQUIRED_GFX11: &[u32] = &[FW_SMU, 72, 71, 89, 94, 68, 69, 26, 48, 25, 7, FW_RLC_G];
pub(crate) const REQUIRED_GFX12: &[u32] = &[FW_SMU, 71, 87, 90, 88, 92, 89, 94, 68, 69, 26, 48, FW_RLC_G];
/// All numbers of the enum.
fn known_type(t: u32) -> bool {
    matches!(t, 1..=58 | 62 | 65..=97 | 100..=102 | 128 | 129)
}

impl Device {
    pub(crate) fn psp_command(&mut self, vmid: u8, cmd: &[u8], resp: &mut [u8; 96]) -> u32 {
        match word(cmd, 8) {
            LOAD_TOC => {
                let (at, size) = (pair(cmd, 28), word(cmd, 36));
                let mut toc = vec![0; size.min(1 << 16) as usize];
                if size == 0 || self.mem_read(access(vmid, Kind::Read), at, &mut toc).is_err() {
                    return ERR_BAD_PARAMETERS;
                }
                // A TOC is a signed image, or a bare table of 16-byte entries (gc_12_0_1_toc.bin).
                let fits = Header::parse(&toc).is_none_or(|h| h.len() == u64::from(size));
                if !fits || toc.iter().all(|b| *b == 0) {
                    self.violation(Rule::FirmwareImage, format!("TOC of {size:#x} bytes at {at:#x}"));
                    return ERR_SECURITY;
                }
                self.psp.toc = true;
                resp[16..20].copy_from_slice(&(TMR_SIZE as u32).to_le_bytes());
                0
            }
            SETUP_TMR => self.psp_setup_tmr(cmd),
            DESTROY_TMR => {
                self.psp.tmr = None;
                self.forget("TMR");
                0
            }
            LOAD_IP_FW => self.psp_load(vmid, cmd),
            AUTOLOAD_RLC => self.psp_autoload(),
            BOOT_CFG => 0,
            id => {
                self.violation(Rule::PspProtocol, format!("unknown command {id:#x}"));
                ERR_UNKNOWN_COMMAND
            }
        }
    }

    fn psp_setup_tmr(&mut self, cmd: &[u8]) -> u32 {
        let (at, size, flags, system) =
            (pair(cmd, 28), u64::from(word(cmd, 36)), word(cmd, 40), pair(cmd, 44));
        let offset = self.fb_offset(at);
        let why = if self.config.chip.gfx12() {
            Some("the TMR of this GPU is set up at boot".to_owned())
        } else if !self.psp.toc {
            Some("before LOAD_TOC".into())
        } else if size < TMR_SIZE {
            Some(format!("{size:#x} bytes, {TMR_SIZE:#x} are needed"))
        } else if at % TMR_ALIGN != 0 || offset.is_none_or(|o| !self.vram.contains(o, size as usize)) {
            Some(format!("{at:#x} is no aligned place in VRAM"))
        } else if flags & 2 != 0 && Some(system) != offset {
            Some(format!("physical address {system:#x} does not belong to {at:#x}"))
        } else {
            None
        };
        if let Some(why) = why {
            self.violation(Rule::PspProtocol, format!("SETUP_TMR: {why}"));
            return ERR_BAD_PARAMETERS;
        }
        self.structure("TMR", at, size);
        self.psp.tmr = offset.map(|o| (o, size));
        0
    }

    fn psp_load(&mut self, vmid: u8, cmd: &[u8]) -> u32 {
        let (at, size, kind) = (pair(cmd, 28), word(cmd, 36), word(cmd, 40));
        if !known_type(kind) {
            self.violation(Rule::FirmwareImage, format!("LOAD_IP_FW of unknown type {kind}"));
            return ERR_BAD_PARAMETERS;
        }
        if at % 4096 != 0 {
            self.violation(
                Rule::PspProtocol,
                format!("LOAD_IP_FW type {kind}: {at:#x} is not 4 KiB aligned"),
            );
        }
        if !self.psp.toc {
            self.violation(Rule::FirmwareOrder, format!("firmware type {kind} before LOAD_TOC"));
        }
        let early = kind == FW_SMU || self.config.chip.gfx12();
        if self.psp.tmr.is_none() && !early {
            self.violation(Rule::FirmwareOrder, format!("firmware type {kind} before the TMR is set up"));
            return ERR_BAD_STATE;
        }
        if self.psp.autoload && kind != FW_SMU && !self.config.judge {
            self.violation(Rule::FirmwareOrder, format!("firmware type {kind} after RLC autoload"));
        }
        let fits = types_of_firmware(kind);
        let image = match self.psp_image(vmid, at, Some((kind, size))) {
            Ok((_, found)) if found != 0 && !fits.is_empty() && !fits.contains(&found) => {
                self.violation(
                    Rule::FirmwareImage,
                    format!("firmware type {kind}: the image is of type {found:#x}, not {fits:02x?}"),
                );
                return ERR_SECURITY;
            }
            Ok((image, _)) => image,
            Err(why) => {
                self.violation(Rule::FirmwareImage, format!("firmware type {kind}: {why}"));
                return ERR_SECURITY;
            }
        };
        if kind == FW_SMU {
            self.smu.alive = true;
        }
        self.psp.images.insert(kind, hash(&image));
        self.psp.last_image = kind;
        0
    }

    fn psp_autoload(&mut self) -> u32 {
        let required = if self.config.chip.gfx12() { REQUIRED_GFX12 } else { REQUIRED_GFX11 };
        let missing: Vec<u32> =
            required.iter().copied().filter(|t| !self.psp.images.contains_key(t)).collect();
        if !missing.is_empty() {
            self.violation(Rule::FirmwareOrder, format!("RLC autoload without firmware types {missing:?}"));
            return ERR_BAD_STATE;
        }
        if self.psp.last_image != FW_RLC_G {
            self.violation(
                Rule::FirmwareOrder,
                format!("RLC_G is to be loaded last before autoload, it was type {}", self.psp.last_image),
            );
        }
        self.psp.autoload = true;
        self.gfx_autoload();
        0
    }
}
