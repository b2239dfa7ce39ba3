//! Packets of rings, for people and programs.

use amdev_core::iface::QueueKind;
use amdev_core::queue::QueueError;
use amdev_core::queue::pm4::decode::{Packet as Pm4, View};
use amdev_core::queue::pm4::op;
use amdev_core::queue::sdma::decode::Packet as Sdma;
use serde::Serialize;
use std::fmt::Write as _;

/// How many values of a packet with many are shown.
const SHOWN: usize = 8;

/// A packet of a ring.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct PacketRow {
    /// Index of its first dword in the ring.
    pub at: usize,
    /// Its length in dwords.
    pub dwords: usize,
    /// The opcode's name.
    pub name: String,
    /// What it says.
    pub text: String,
}

/// Takes a ring's contents apart, up to the first dword that is no packet; `name` gives names to
/// register addresses. Runs of one-dword fillers are one row.
pub fn rows(
    kind: QueueKind,
    dwords: &[u32],
    name: &dyn Fn(u32) -> Option<String>,
) -> (Vec<PacketRow>, Option<QueueError>) {
    let mut rows: Vec<PacketRow> = Vec::new();
    let mut at = 0;
    while let Some(rest) = dwords.get(at..).filter(|r| !r.is_empty()) {
        let row = match kind {
            QueueKind::Compute => pm4(rest, at, name),
            QueueKind::Sdma => sdma(rest, at),
        };
        let row = match row {
            Ok(row) => row,
            Err(e) => return (rows, Some(e)),
        };
        at += row.dwords;
        match rows.last_mut() {
            Some(last) if last.name == "NOP" && row.name == "NOP" => last.dwords += row.dwords,
            _ => rows.push(row),
        }
    }
    (rows, None)
}

fn values(list: &[u32]) -> String {
    let mut text = String::new();
    for (i, value) in list.iter().take(SHOWN).enumerate() {
        let _ = write!(text, "{}{value:#x}", if i == 0 { "" } else { " " });
    }
    if list.len() > SHOWN {
        let _ = write!(text, " ... ({} in all)", list.len());
    }
    text
}

fn compare(function: u8) -> &'static str {
    ["always", "<", "<=", "==", "!=", ">=", ">", "?"].get(usize::from(function & 7)).unwrap_or(&"?")
}

fn pm4(dwords: &[u32], at: usize, name: &dyn Fn(u32) -> Option<String>) -> Result<PacketRow, QueueError> {
    let view = View::parse(dwords, at)?;
    let register = |addr: u32| name(addr).unwrap_or_else(|| format!("{addr:#x}"));
    let text = match view.packet(at)? {
        Pm4::Nop { .. } => String::new(),
        Pm4::SetRegs { addr, values: list } => {
            let shown = (addr..).zip(list).take(SHOWN);
            let mut said: Vec<_> =
                shown.map(|(addr, value)| format!("{} = {value:#x}", register(addr))).collect();
            if list.len() > SHOWN {
                said.push(format!("... ({} in all)", list.len()));
            }
            said.join(", ")
        }
        Pm4::WaitRegMem { memory: true, function, addr, reference, mask, .. } => {
            format!("memory {addr:#x} & {mask:#x} {} {reference:#x}", compare(function))
        }
        Pm4::WaitRegMem { request: true, addr, reference, mask, .. } => {
            let (ask, answer) = (register(addr as u32), register((addr >> 32) as u32));
            format!("write {reference:#x} to {ask}, then {answer} & {mask:#x}")
        }
        Pm4::WaitRegMem { function, addr, reference, mask, .. } => {
            format!("{} & {mask:#x} {} {reference:#x}", register(addr as u32), compare(function))
        }
        Pm4::AcquireMem { size, va, cntl } => format!("{va:#x}+{size:#x} (both in 256 bytes), GCR {cntl:#x}"),
        Pm4::ReleaseMem { event, data_sel, int_sel, va, value, context } => format!(
            "event {event:#x}, data {data_sel} = {value:#x} to {va:#x}, interrupt {int_sel} (context {context:#x})"
        ),
        Pm4::EventWrite { event, index } => format!("event {event:#x}, index {index}"),
        Pm4::IndirectBuffer { va, len } => format!("{len} dwords at {va:#x}"),
        Pm4::PredExec { xcc_mask, len } => format!("the next {len} dwords for XCCs {xcc_mask:#x}"),
        Pm4::AtomicMem { op, va, data } => format!("operation {op} at {va:#x} with {data:#x}"),
        Pm4::CopyData { control, src, dst } => format!("{src:#x} to {dst:#x} (control {control:#x})"),
        Pm4::WriteData { dst, data, .. } => format!("{dst:#x} = {}", values(data)),
        Pm4::Dispatch { grid: [x, y, z], initiator } => format!("{x} x {y} x {z}, initiator {initiator:#x}"),
        Pm4::Other { body, .. } => values(body),
    };
    let name = op::name(view.op).map_or_else(|| format!("opcode {:#x}", view.op), str::to_owned);
    Ok(PacketRow { at, dwords: view.len(), name, text })
}

fn sdma(dwords: &[u32], at: usize) -> Result<PacketRow, QueueError> {
    let (packet, len) = Sdma::parse(dwords, at)?;
    let text = match packet {
        Sdma::Nop => String::new(),
        Sdma::Copy { dst, src, size, .. } => format!("{size:#x} bytes from {src:#x} to {dst:#x}"),
        Sdma::Write { dst, count } => format!("{count} dwords to {dst:#x}"),
        Sdma::Fill { dst, value, size } => format!("{size:#x} bytes of {value:#x} to {dst:#x}"),
        Sdma::Indirect { va, len } => format!("{len} dwords at {va:#x}"),
        Sdma::Fence { va, value, .. } => format!("{value:#x} to {va:#x}"),
        Sdma::Trap { context } => format!("context {context:#x}"),
        Sdma::Poll { va, memory, function, reference, mask, .. } => {
            let what = if memory { "memory" } else { "register" };
            format!("{what} {va:#x} & {mask:#x} {} {reference:#x}", compare(function))
        }
        Sdma::Timestamp { va, .. } => format!("clock to {va:#x}"),
        Sdma::Other { header } => format!("header {header:#x}"),
    };
    Ok(PacketRow { at, dwords: len, name: packet.name().into(), text })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn none(_: u32) -> Option<String> {
        None
    }

    #[test]
    fn an_sdma_ring_is_shown_packet_by_packet() {
        // NOP, NOP, a fence, a trap; layouts of `navi10_sdma_pkt_open.h`.
        let ring = [0, 0, 0x0003_0005, 0x1000, 0x20, 7, 6, 3];
        let (rows, error) = rows(QueueKind::Sdma, &ring, &none);
        assert_eq!(error, None);
        let shown: Vec<_> = rows.iter().map(|r| (r.at, r.dwords, r.name.as_str(), r.text.as_str())).collect();
        assert_eq!(
            shown,
            [(0, 2, "NOP", ""), (2, 4, "FENCE", "0x7 to 0x2000001000"), (6, 2, "TRAP", "context 0x3")]
        );
    }

    #[test]
    fn registers_of_a_pm4_ring_have_names() {
        // SET_SH_REG of one register at 0x2c0c; type 3, count 1 (two dwords follow).
        let ring = [0xc001_7600, 0x0c, 0x1234];
        let name = |addr| (addr == 0x2c0c).then(|| "regCOMPUTE_PGM_LO".to_owned());
        let (rows, _) = rows(QueueKind::Compute, &ring, &name);
        assert_eq!(
            (rows[0].name.as_str(), rows[0].text.as_str()),
            ("SET_SH_REG", "regCOMPUTE_PGM_LO = 0x1234")
        );
    }

    #[test]
    fn what_is_no_packet_ends_the_list_with_its_place() {
        let (rows, error) = rows(QueueKind::Compute, &[0x8000_0000, 0x0000_0001], &none);
        assert_eq!(rows.len(), 1);
        assert!(error.unwrap().to_string().starts_with("dword 1:"));
    }
}
