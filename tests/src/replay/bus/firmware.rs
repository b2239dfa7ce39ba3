//! The firmware's side of a replay: what bootloader and PSP are told, compared with the record.

use super::super::deviations::Row as DeviationRow;
use super::super::firmware::is_stand_in;
use super::super::psp::{Sent, describe};
use super::{COMMAND_LEN, RESPONSE_AT, ReplayBus, unhex};
use amdev_core::firmware::{ImageId, SosComponent};
use amdev_core::reg::Reg;
use serde_json::json;
use sha2::{Digest, Sha256};

impl ReplayBus {
    /// The bootloader takes a component.
    pub(super) fn bootloader(&mut self, command: u32, recorded: bool) {
        let Some(component) = component_of(command) else {
            self.differences.push(format!("unknown bootloader command {command:#x}"));
            return;
        };
        let at = self.mc_base + self.message_at;
        self.psp.sent.push(json!({"kind": "bootloader", "compid": format!("{command:#x}"),
            "msg1_addr": format!("{at:#x}")}));
        if recorded && let Some(expected) = self.psp.components.pop_front() {
            let text = format!("{command:#x}");
            if expected["compid"] != text.as_str() {
                self.differences
                    .push(format!("bootloader command {text}, psp.json has {}", expected["compid"]));
            }
        }
        self.message(recorded, |id, _| {
            // MP0 13.x gets the key database for the policy step (psp_v13_0.c).
            id == ImageId::Sos(component)
                || (component == SosComponent::Spl && id == ImageId::Sos(SosComponent::Kdb))
        });
    }

    /// Compares the message buffer with the record, and says which image is in it.
    fn message(&mut self, recorded: bool, is_right: impl Fn(ImageId, &[u32]) -> bool) {
        let bytes = self.peek(self.message_at, self.message_len);
        if !self.psp.real {
            let found = self.psp.images.iter().find(|(id, len, types)| {
                u64::from(*len) == self.message_len && is_right(*id, types) && is_stand_in(*id, &bytes)
            });
            self.psp.image = found.map(|(id, ..)| *id);
            if found.is_none() {
                self.differences
                    .push(format!("the message of {:#x} bytes is not the right image", bytes.len()));
            }
        }
        if recorded && let Some((len, sha)) = self.psp.messages.pop_front() {
            let covered = self
                .applicable()
                .into_iter()
                .find_map(|(id, row)| matches!(row, DeviationRow::Message {}).then_some(id));
            if self.message_len + 4 == len
                && let Some(id) = covered
            {
                self.use_deviation(&id, 1);
            } else if self.message_len != len {
                let ours = self.message_len;
                self.differences.push(format!("message of {ours:#x} bytes, recorded {len:#x}"));
            }
            if self.psp.real {
                let mut padded = bytes;
                padded.resize(len as usize, 0);
                let ours: String = Sha256::digest(&padded).iter().map(|b| format!("{b:02x}")).collect();
                if ours != sha {
                    self.differences.push(format!("message with hash {ours}, recorded {sha}"));
                }
            }
        }
        self.psp.images_compared += 1;
        self.message_len = 0;
    }

    /// The PSP executes the frame at `wptr` (in dwords).
    pub(super) fn psp_command(&mut self, wptr: u32) {
        let ring = |bus: &Self, lo: &str, hi: &str| {
            let get = |name: &str| {
                let addr = Reg::from_name(name).and_then(|reg| bus.regs.addr(reg).ok()).unwrap_or(0);
                u64::from(bus.written.get(&(u64::from(addr), 0)).copied().unwrap_or(0))
            };
            (get(lo) | get(hi) << 32).wrapping_sub(bus.mc_base)
        };
        let frame_at = ring(self, "PSP_C2PMSG_69", "PSP_C2PMSG_70") + u64::from(wptr) * 4;
        let frame = self.peek(frame_at, 64);
        let dword =
            |i: usize| u64::from(u32::from_le_bytes(frame[i * 4..i * 4 + 4].try_into().unwrap_or([0; 4])));
        let command_at = (dword(0) | dword(1) << 32).wrapping_sub(self.mc_base);
        let fence_at = (dword(3) | dword(4) << 32).wrapping_sub(self.mc_base);
        let command = self.peek(command_at, COMMAND_LEN);
        let id = u32::from_le_bytes(command[8..12].try_into().unwrap_or([0; 4]));
        let fw_type = u32::from_le_bytes(command[40..44].try_into().unwrap_or([0; 4]));
        match self.psp.commands.pop_front() {
            None => self.differences.push(format!("PSP command {id:#x} that psp.json does not have")),
            Some(expected) => {
                let wanted = unhex(expected["cmd_buf"].as_str().unwrap_or(""));
                if !command.starts_with(&wanted) || command[wanted.len()..].iter().any(|b| *b != 0) {
                    self.differences.push(format!("PSP command {id:#x} differs from {}", expected["cmd"]));
                }
                if frame != unhex(expected["frame"].as_str().unwrap_or("")) {
                    self.differences.push(format!("PSP frame of command {id:#x} differs"));
                }
                self.psp.compared += 1;
            }
        }
        match id {
            0x06 => self.message(true, |image, types| {
                image != ImageId::Sos(SosComponent::Toc) && types.contains(&fw_type)
            }),
            0x20 => self.message(true, |image, _| image == ImageId::Sos(SosComponent::Toc)),
            _ => {}
        }
        let response = self.psp.responses.pop_front().unwrap_or_default();
        let image = self.psp.image.take();
        self.psp.sent.push(describe(&Sent {
            ring_offset: u64::from(wptr) * 4,
            frame: &frame,
            command: &command,
            places: [command_at, fence_at],
            image,
            response: &response,
        }));
        self.vram_copy_in(command_at + RESPONSE_AT, &response);
        let fence = frame.get(20..24).unwrap_or(&[]).to_vec();
        self.vram_copy_in(fence_at, &fence);
    }
}

/// The component of a bootloader command (`PSP_BL__*`, amdgpu_psp.h).
fn component_of(command: u32) -> Option<SosComponent> {
    Some(match command {
        0x1_0000 => SosComponent::SysDrv,
        0x2_0000 => SosComponent::Sos,
        0x8_0000 => SosComponent::Kdb,
        0xb_0000 => SosComponent::SocDrv,
        0xc_0000 => SosComponent::DbgDrv,
        0xd_0000 => SosComponent::IntfDrv,
        0xe_0000 => SosComponent::RasDrv,
        0xf_0000 => SosComponent::IpKeyMgrDrv,
        0x1000_0000 => SosComponent::Spl,
        _ => return None,
    })
}
