//! PSP commands in the form of `psp.json`.

use amdev_core::firmware::ImageId;
use serde_json::{Value, json};

/// A command as it was sent.
pub(super) struct Sent<'a> {
    /// Where in the ring the frame stands, bytes.
    pub(super) ring_offset: u64,
    pub(super) frame: &'a [u8],
    pub(super) command: &'a [u8],
    /// Where command and fence stand in VRAM.
    pub(super) places: [u64; 2],
    /// The image that was in the message buffer.
    pub(super) image: Option<ImageId>,
    /// The recorded response, from byte 864 of the command on.
    pub(super) response: &'a [u8],
}

fn hex(bytes: &[u8]) -> String {
    let end = bytes.iter().rposition(|b| *b != 0).map_or(0, |n| n + 1);
    bytes.iter().take(end).map(|b| format!("{b:02x}")).collect()
}

fn dword(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..at + 4).map_or(0, |b| b.iter().rev().fold(0, |v, b| v << 8 | u64::from(*b)))
}

fn qword(bytes: &[u8], at: usize) -> u64 {
    dword(bytes, at) | dword(bytes, at + 4) << 32
}

/// A command with all that can be told of it (`struct psp_gfx_cmd_resp`, psp_gfx_if.h). The digest
/// of an image is left to the caller: `image` names it.
pub(super) fn describe(sent: &Sent<'_>) -> Value {
    let Sent { command, frame, .. } = sent;
    let id = dword(command, 8);
    let name = match id {
        0x05 => "GFX_CMD_ID_SETUP_TMR",
        0x06 => "GFX_CMD_ID_LOAD_IP_FW",
        0x20 => "GFX_CMD_ID_LOAD_TOC",
        0x21 => "GFX_CMD_ID_AUTOLOAD_RLC",
        _ => "?",
    };
    let x = |n: u64| format!("{n:#x}");
    let mut out = json!({
        "kind": "cmd", "ring_off": x(sent.ring_offset), "cmd_id": id, "cmd": name,
        "frame": frame.iter().map(|b| format!("{b:02x}")).collect::<String>(), "cmd_buf": hex(command),
        "cmd_buf_len": command.len(), "fence_value": dword(frame, 20),
        "cmd_pa": x(sent.places[0]), "fence_pa": x(sent.places[1]),
    });
    let mut add = |key: &str, value: Value| out[key] = value;
    match id {
        0x05 => {
            add("buf_addr", json!(x(qword(command, 28))));
            add("buf_size", json!(x(dword(command, 36))));
            add("virt_phy_addr", json!(dword(command, 40) >> 1 & 1));
            add("sys_addr", json!(x(qword(command, 44))));
        }
        0x06 => {
            add("fw_addr", json!(x(qword(command, 28))));
            add("fw_size", json!(dword(command, 36)));
            add("fw_type", json!(dword(command, 40)));
            add("where", json!("vram"));
        }
        0x20 => {
            add("toc_addr", json!(x(qword(command, 28))));
            add("toc_size", json!(dword(command, 36)));
            add("where", json!("vram"));
            add("resp_tmr_size", json!(x(dword(sent.response, 16))));
        }
        _ => {}
    }
    if let Some(image) = sent.image {
        add("image", json!(format!("{image:?}")));
    }
    out
}
