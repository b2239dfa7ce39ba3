//! The platform security processor: bootloader, SOS, its ring and commands (`psp_gfx_if.h`,
//! `amdgpu_psp.h`, `psp_v13_0.c`, `psp_v14_0.c`).

use crate::config::{Fault, Stage};
use crate::device::{Device, Event};
use crate::env::{Access, Hub, Kind, MemFault};
use crate::firmware::{Header, hash, may_be_padded, types_of_component};
use crate::psp_command::{FW_RLC_G, MAX_IMAGE, REQUIRED_GFX11, REQUIRED_GFX12};
use crate::violation::Rule;
use std::collections::BTreeMap;

/// Mailbox flag: the bootloader or SOS is ready.
const READY: u32 = 0x8000_0000;
const BL_NS: u64 = 2_000_000;
const SOS_NS: u64 = 15_000_000;
const RING_NS: u64 = 1_000_000;
const COMMAND_NS: u64 = 200_000;
/// UTCL2 client of the PSP on MMHUB (`mmhub_client_ids_v3_0_0`: MP0 is 14).
const CLIENT: u16 = 14;

const KDB: u32 = 0x8_0000;
const SPL: u32 = 0x1000_0000;
const SYS_DRV: u32 = 0x1_0000;
const SOC_DRV: u32 = 0xB_0000;
const INTF_DRV: u32 = 0xD_0000;
const DBG_DRV: u32 = 0xC_0000;
const RAS_DRV: u32 = 0xE_0000;
const IPKEYMGR_DRV: u32 = 0xF_0000;
const SOS: u32 = 0x2_0000;
/// Components in the order in which the bootloader takes them (`psp_hw_start`); a chip need not
/// have all.
const ORDER: [u32; 9] = [KDB, SPL, SYS_DRV, SOC_DRV, INTF_DRV, DBG_DRV, RAS_DRV, IPKEYMGR_DRV, SOS];

struct Ring {
    base: u64,
    /// Length in dwords.
    dwords: u32,
    rptr: u32,
}

#[derive(Default)]
pub(crate) struct Psp {
    bl_busy: bool,
    components: Vec<(u32, u64)>,
    pub(crate) sos: bool,
    ring: Option<Ring>,
    running: bool,
    pub(crate) toc: bool,
    pub(crate) tmr: Option<(u64, u64)>,
    pub(crate) images: BTreeMap<u32, u64>,
    pub(crate) last_image: u32,
    pub(crate) autoload: bool,
    /// VRAM ranges of what is being read: a component; or frame, command and image.
    reading: Vec<(u64, u64)>,
    /// VRAM range of the command buffer in which an answer is pending.
    answering: Option<(u64, u64)>,
}

impl Psp {
    pub(crate) fn reset(&mut self) {
        *self = Psp::default();
    }

    /// Firmware is in place without this driver having loaded it.
    pub(crate) fn loaded(gfx12: bool) -> Psp {
        let required = if gfx12 { REQUIRED_GFX12 } else { REQUIRED_GFX11 };
        Psp {
            sos: true,
            toc: true,
            images: required.iter().map(|t| (*t, 0)).collect(),
            last_image: FW_RLC_G,
            autoload: true,
            ..Psp::default()
        }
    }
}

pub(crate) fn access(vmid: u8, kind: Kind) -> Access {
    Access { hub: Hub::Mm, vmid, client: CLIENT, kind }
}

pub(crate) fn word(b: &[u8], at: usize) -> u32 {
    b.get(at..at + 4).map_or(0, |w| u32::from_le_bytes([w[0], w[1], w[2], w[3]]))
}

pub(crate) fn pair(b: &[u8], at: usize) -> u64 {
    u64::from(word(b, at + 4)) << 32 | u64::from(word(b, at))
}

impl Device {
    fn psp_reg(&self, n: u8) -> String {
        let p = if self.config.chip.gfx12() { "MPASP" } else { "MP0" };
        format!("{p}_SMN_C2PMSG_{n}")
    }

    fn psp_val(&self, n: u8) -> u32 {
        self.regs.val(&self.psp_reg(n))
    }

    pub(crate) fn psp_put(&mut self, n: u8, value: u32) {
        let name = self.psp_reg(n);
        self.regs.put(&name, value);
    }

    /// The bootloader is up, nothing is loaded.
    pub(crate) fn psp_cold(&mut self) {
        if !self.config.hangs(Stage::Bootloader) {
            self.psp_put(35, READY);
        }
    }

    /// SOS runs.
    pub(crate) fn psp_alive(&mut self) {
        self.psp.sos = true;
        self.psp_put(35, READY);
        self.psp_put(64, READY);
        // The version of the SOS; that of psp_13_0_0_sos.bin 2026.
        self.psp_put(81, 0x0032_0061);
    }

    /// A mailbox register was written.
    pub(crate) fn psp_write(&mut self, index: u8, old: u32, value: u32) {
        match index {
            35 => {
                // The store must not be seen as the answer.
                self.psp_put(35, old);
                self.psp_bootloader(value);
            }
            64 => {
                self.psp_put(64, if self.psp.sos { value & !READY } else { 0 });
                self.psp_control(value);
            }
            67 => self.psp_submit(old, value),
            81 => self.psp_put(81, old),
            _ => {}
        }
    }

    /// The CPU writes VRAM that the PSP may still be reading.
    pub(crate) fn psp_memory_in_use(&mut self, offset: u64, len: usize) {
        let end = offset + len as u64;
        let hit = self.psp.reading.iter().any(|(start, size)| offset < start + size && *start < end);
        if (self.psp.bl_busy || self.psp.running) && hit {
            self.violation(
                Rule::MemoryInUse,
                format!("the CPU writes VRAM {offset:#x} while the PSP reads it"),
            );
        }
    }

    /// The CPU reads VRAM in which the PSP has still to write its answer.
    pub(crate) fn psp_memory_read_early(&mut self, offset: u64, len: usize) {
        let Some((start, size)) = self.psp.answering else { return };
        if self.psp.running && offset < start + size && start < offset + len as u64 {
            self.violation(
                Rule::FenceNotAwaited,
                format!("the CPU reads VRAM {offset:#x}, the buffer of a PSP command that is not done"),
            );
        }
    }

    /// Notes what the PSP reads and writes for the frame at its read pointer, where that is in VRAM.
    fn psp_watch_command(&mut self) {
        (self.psp.reading, self.psp.answering) = (Vec::new(), None);
        let frame = self.psp.ring.as_ref().map(|r| r.base + u64::from(r.rptr) * 4);
        let Some(at) = frame.and_then(|at| self.fb_offset(at)) else { return };
        self.psp.reading.push((at, 64));
        let mut bytes = [0; 64];
        self.vram.engine_read(at, &mut bytes);
        let Some(command) = self.fb_offset(pair(&bytes, 0)) else { return };
        self.psp.reading.push((command, 1024));
        self.psp.answering = Some((command, 1024));
        self.vram.engine_read(command, &mut bytes);
        // The commands with an image have its address and size in the same place.
        if matches!(word(&bytes, 8), 6 | 0x20)
            && let Some(image) = self.fb_offset(pair(&bytes, 28))
        {
            self.psp.reading.push((image, u64::from(word(&bytes, 36))));
        }
    }

    fn psp_bootloader(&mut self, component: u32) {
        if self.psp.sos {
            self.violation(
                Rule::PspProtocol,
                format!("component {component:#x} sent to the bootloader while SOS runs"),
            );
            return;
        }
        if self.psp.bl_busy || self.psp_val(35) & READY == 0 {
            self.violation(
                Rule::PspProtocol,
                format!("component {component:#x} sent while the bootloader is busy"),
            );
            return;
        }
        let addr = u64::from(self.psp_val(36)) << 20;
        self.psp.bl_busy = true;
        self.psp.reading = self.fb_offset(addr).map(|at| (at, 4096)).into_iter().collect();
        self.psp_put(35, 0);
        self.after(BL_NS, Event::Bootloader { component, addr });
    }

    /// The bootloader has copied and checked a component.
    pub(crate) fn psp_component(&mut self, component: u32, addr: u64) {
        self.psp.bl_busy = false;
        let forced = self.config.faults.iter().find_map(|f| match f {
            Fault::PspBootloader(code) => Some(*code),
            _ => None,
        });
        let code = match forced {
            Some(code) => code & 0xffff,
            None => match self.psp_check_component(component, addr) {
                Ok(hash) => {
                    self.psp.components.push((component, hash));
                    0
                }
                Err((rule, why)) => {
                    self.violation(rule, format!("component {component:#x}: {why}"));
                    if self.config.judge { 0 } else { 0x0f }
                }
            },
        };
        if component == SOS && code == 0 {
            if !self.config.hangs(Stage::Sos) {
                self.after(SOS_NS, Event::SosAlive);
            }
            return;
        }
        self.psp_put(35, READY | code);
    }

    fn psp_check_component(&mut self, component: u32, addr: u64) -> Result<u64, (Rule, String)> {
        let place = ORDER
            .iter()
            .position(|c| *c == component)
            .ok_or((Rule::FirmwareOrder, "is none that the bootloader knows".to_owned()))?;
        let (image, kind) = self.psp_image(0, addr, None).map_err(|why| (Rule::FirmwareImage, why))?;
        let fits = types_of_component(component);
        if kind != 0 && !fits.is_empty() && !fits.contains(&kind) {
            return Err((Rule::FirmwareImage, format!("the image is of type {kind:#x}, not {fits:02x?}")));
        }
        let sum = hash(&image);
        if let Some(last) = self.psp.components.last() {
            let before = ORDER.iter().position(|c| *c == last.0).unwrap_or(0);
            if place <= before {
                return Err((Rule::FirmwareOrder, format!("comes after {:#x}", last.0)));
            }
        }
        // On MP0 13.x Linux and the reference send the key database as SPL table, and hardware takes
        // it (`psp_v13_0_bootloader_load_spl`); `psp_v14_0.c` sends the SPL table.
        let kdb_as_spl = component == SPL && !self.config.chip.gfx12();
        let same = self.psp.components.iter().find(|l| l.1 == sum).copied();
        if let Some((same, _)) = same.filter(|_| !kdb_as_spl) {
            self.violation(
                Rule::FirmwareImage,
                format!("component {component:#x} has the contents of component {same:#x}"),
            );
        }
        let mut needs = Vec::new();
        if component != KDB {
            needs.push(KDB);
        }
        if component == SOS {
            needs.push(SYS_DRV);
            if self.config.chip.gfx12() {
                // Linux loads it on MP0 14.x, where SOS files hold it.
                needs.extend([SOC_DRV, INTF_DRV, IPKEYMGR_DRV]);
            }
        }
        for need in needs {
            if !self.psp.components.iter().any(|l| l.0 == need) {
                self.violation(
                    Rule::FirmwareOrder,
                    format!("component {component:#x} without component {need:#x} before it"),
                );
            }
        }
        Ok(sum)
    }

    /// Reads an image and its type. Its header says how long it is; with a firmware type and size
    /// from a command they must agree.
    pub(crate) fn psp_image(
        &mut self,
        vmid: u8,
        addr: u64,
        command: Option<(u32, u32)>,
    ) -> Result<(Vec<u8>, u8), String> {
        let fault = |f: MemFault| format!("memory fault at {:#x}", f.va);
        let mut head = vec![0; 0x100];
        self.mem_read(access(vmid, Kind::Read), addr, &mut head).map_err(fault)?;
        let header = Header::parse(&head).ok_or_else(|| format!("no image header at {addr:#x}"))?;
        let mut len = header.len();
        if let Some((kind, size)) = command {
            let size = u64::from(size);
            if len > size || len < size && !may_be_padded(kind) {
                return Err(format!("its header gives {len:#x} bytes, the command {size:#x}"));
            }
            len = size;
        }
        if len > MAX_IMAGE || header.is_empty() {
            return Err(format!("{len:#x} bytes are no image's length"));
        }
        let mut image = vec![0; len as usize];
        self.mem_read(access(vmid, Kind::Read), addr, &mut image).map_err(fault)?;
        Ok((image, header.kind))
    }

    fn psp_control(&mut self, value: u32) {
        if !self.psp.sos {
            self.violation(Rule::PspProtocol, format!("control command {value:#x} before SOS runs"));
            return;
        }
        if !self.config.hangs(Stage::PspRing) {
            self.after(RING_NS, Event::PspControl { command: value });
        }
    }

    /// A control command is done.
    pub(crate) fn psp_control_done(&mut self, command: u32) {
        let mut status = 0;
        match command {
            0x2_0000 => {
                let base = u64::from(self.psp_val(70)) << 32 | u64::from(self.psp_val(69));
                let size = self.psp_val(71);
                if self.psp.ring.is_some() {
                    self.violation(Rule::PspProtocol, "ring created while there is one");
                }
                if size < 64 || !size.is_multiple_of(64) || base % 4096 != 0 || base == 0 {
                    self.violation(Rule::PspProtocol, format!("ring of {size:#x} bytes at {base:#x}"));
                    status = 0xb;
                } else {
                    self.structure("PSP ring", base, u64::from(size));
                    self.psp.ring = Some(Ring { base, dwords: size / 4, rptr: 0 });
                    self.psp_put(67, 0);
                }
            }
            0x3_0000 | 0xC_0000 => {
                self.psp.ring = None;
                self.forget("PSP ring");
            }
            0x7_0000 => self.after(RING_NS, Event::Mode1),
            0x5_0000 | 0x6_0000 | 0x4_0000 => {}
            _ => {
                self.violation(Rule::PspProtocol, format!("unknown control command {command:#x}"));
                status = 0xa;
            }
        }
        self.psp_put(64, READY | status);
    }

    /// The ring's write pointer moved.
    fn psp_submit(&mut self, old: u32, value: u32) {
        let Some(ring) = &self.psp.ring else {
            self.violation(Rule::PspProtocol, format!("write pointer {value:#x} without a ring"));
            return;
        };
        let (dwords, rptr) = (ring.dwords, ring.rptr);
        if value >= dwords || !value.is_multiple_of(16) {
            self.violation(
                Rule::PspProtocol,
                format!("write pointer {value:#x} in a ring of {dwords:#x} dwords"),
            );
            return;
        }
        let ahead = |p: u32| (p + dwords - rptr) % dwords;
        if ahead(value) < ahead(old % dwords) || (value == rptr && old % dwords != rptr) {
            self.violation(
                Rule::RingOverrun,
                format!("PSP write pointer {value:#x} passes read pointer {rptr:#x}"),
            );
        }
        self.psp_next();
    }

    fn psp_next(&mut self) {
        let wptr = self.psp_val(67);
        let pending = self.psp.ring.as_ref().is_some_and(|r| r.rptr != wptr);
        if pending && !self.psp.running && !self.config.hangs(Stage::PspCommand) {
            self.psp.running = true;
            self.psp_watch_command();
            self.after(COMMAND_NS, Event::PspFrame);
        }
    }

    /// Executes the frame at the read pointer.
    pub(crate) fn psp_frame(&mut self) {
        self.psp.running = false;
        let Some((base, rptr, dwords)) = self.psp.ring.as_ref().map(|r| (r.base, r.rptr, r.dwords)) else {
            return;
        };
        if let Err(why) = self.psp_execute(base + u64::from(rptr) * 4) {
            self.violation(Rule::PspProtocol, format!("frame at dword {rptr:#x}: {why}"));
        }
        if let Some(ring) = &mut self.psp.ring {
            ring.rptr = (rptr + 16) % dwords;
            let rptr = ring.rptr;
            self.psp_put(68, rptr);
        }
        self.psp_next();
    }

    fn psp_execute(&mut self, frame_at: u64) -> Result<(), String> {
        let fault = |what: &str| {
            let what = what.to_owned();
            move |f: MemFault| format!("{what}: memory fault at {:#x}", f.va)
        };
        let mut frame = [0; 64];
        self.mem_read(access(0, Kind::Read), frame_at, &mut frame).map_err(fault("frame"))?;
        let (cmd_at, fence_at, fence) = (pair(&frame, 0), pair(&frame, 12), word(&frame, 20));
        let vmid = frame[32];
        if cmd_at == 0 || fence_at == 0 || cmd_at % 4096 != 0 {
            return Err(format!("command buffer {cmd_at:#x}, fence {fence_at:#x}"));
        }
        if frame[33..].iter().any(|b| *b != 0) || vmid > 15 {
            return Err("reserved bytes are not 0".into());
        }
        self.structure("PSP command buffer", cmd_at, 1024);
        self.structure("PSP fence", fence_at, 4);
        let mut cmd = [0; 1024];
        self.mem_read(access(vmid, Kind::Read), cmd_at, &mut cmd).map_err(fault("command buffer"))?;
        let forced = self.config.faults.iter().find_map(|f| match f {
            Fault::PspStatus(code) => Some(*code),
            _ => None,
        });
        let mut resp = [0u8; 96];
        let status = forced.unwrap_or_else(|| self.psp_command(vmid, &cmd, &mut resp));
        resp[..4].copy_from_slice(&status.to_le_bytes());
        self.mem_write(access(vmid, Kind::Write), cmd_at + 864, &resp).map_err(fault("response"))?;
        self.mem_write(access(vmid, Kind::Write), fence_at, &fence.to_le_bytes()).map_err(fault("fence"))
    }
}
