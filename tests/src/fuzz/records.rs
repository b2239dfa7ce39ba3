//! Records of fixed length: the first byte chooses, the rest is the record.
//!
//! PSP ring frame, PSP command buffer with its answer, IH entry and ring pointers, kernel descriptor,
//! queue descriptor (MQD), dispatch packet.

use amdev_core::ip::ih::{self, ENTRY_LEN, Entry};
use amdev_core::ip::psp::wire::{COMMAND_LEN, CommandBuffer, FRAME_LEN, Frame};
use amdev_core::program::descriptor::{DESCRIPTOR_SIZE, KernelDescriptor};
use amdev_core::program::{DispatchPacket, SgprSources};
use amdev_core::queue::mqd::{HQD_FIRST, HQD_LAST, MQD_DWORDS, Mqd};
use amdev_core::reg::{Bases, Block, RegFile, tables};
use std::sync::OnceLock;
use zerocopy::{FromBytes, IntoBytes};

/// First byte: PSP ring frame.
pub const FRAME: u8 = 0;
/// First byte: PSP command buffer.
pub const COMMAND: u8 = 1;
/// First byte: IH entry.
pub const IH_ENTRY: u8 = 2;
/// First byte: pointers of an IH ring.
pub const IH_SPAN: u8 = 3;
/// First byte: kernel descriptor.
pub const DESCRIPTOR: u8 = 4;
/// First byte: MQD.
pub const MQD: u8 = 5;
/// First byte: dispatch packet.
pub const DISPATCH: u8 = 6;

pub(super) fn run(data: &[u8]) {
    let Some((which, bytes)) = data.split_first() else { return };
    match which % 7 {
        FRAME => frame(bytes),
        COMMAND => command(bytes),
        IH_ENTRY => entry(bytes),
        IH_SPAN => span(bytes),
        DESCRIPTOR => descriptor(bytes),
        MQD => mqd(bytes),
        _ => dispatch(bytes),
    }
}

fn frame(bytes: &[u8]) {
    let parsed = Frame::parse(bytes);
    assert_eq!(parsed.is_some(), bytes.len() == FRAME_LEN);
    let Some(frame) = parsed else { return };
    let out = frame.emit();
    assert_eq!(Frame::parse(&out), Some(frame));
    // Addresses and fence value at their places, the buffer's length and everything else zero.
    assert_eq!(out[..8], bytes[..8]);
    assert_eq!(out[12..24], bytes[12..24]);
    assert!(out[8..12].iter().chain(&out[24..]).all(|b| *b == 0));
}

fn command(bytes: &[u8]) {
    let parsed = CommandBuffer::parse(bytes);
    assert_eq!(parsed.is_some(), bytes.len() == COMMAND_LEN);
    let Some(mut buffer) = parsed else { return };
    assert_eq!(buffer.as_bytes(), bytes);
    let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("4 bytes"));
    let command = buffer.command();
    assert_eq!(command.id(), word(8));
    let response = buffer.response();
    assert_eq!((response.status, response.tmr_size), (word(864), word(880)));

    let made = CommandBuffer::new(&command);
    let back = CommandBuffer::parse(made.as_bytes()).expect("1024 bytes");
    assert_eq!(back.command(), command);
    assert_eq!(back.response().status, 0);
    assert!(made.as_bytes()[52..].iter().all(|b| *b == 0));
    // An answer does not change the command.
    buffer.response_bytes_mut().fill(0xff);
    assert_eq!((buffer.command(), buffer.response().status), (command, u32::MAX));
}

fn entry(bytes: &[u8]) {
    let parsed = Entry::parse(bytes);
    assert_eq!(parsed.is_some(), bytes.len() == ENTRY_LEN);
    let Some(entry) = parsed else { return };
    let out = entry.emit();
    assert_eq!(Entry::parse(&out), Some(entry));
    // All but the reserved bits are kept.
    let mut mask = [0xff; ENTRY_LEN];
    (mask[3], mask[10], mask[11], mask[15]) = (0x8f, 0, 0, 0);
    let kept: Vec<u8> = bytes.iter().zip(mask).map(|(b, m)| b & m).collect();
    assert_eq!(out[..], kept);
    assert!(entry.timestamp < 1 << 48 && entry.vmid < 16);
}

fn span(bytes: &[u8]) {
    let [a, b, c, d, e, f, g, h, log, overflow, ..] = *bytes else { return };
    let (rptr, wptr) = (u32::from_le_bytes([a, b, c, d]), u32::from_le_bytes([e, f, g, h]));
    let len = 1u32 << (5 + log % 16);
    let span = ih::span(rptr, wptr, overflow & 1 == 1, len);
    assert!(span.from < len && span.to < len && span.from.is_multiple_of(4) && span.to.is_multiple_of(4));
    assert_eq!(span.overflow, overflow & 1 == 1);
    if span.overflow {
        assert_eq!(span.from, (span.to + ENTRY_LEN as u32) % len);
    }
}

fn descriptor(bytes: &[u8]) {
    let parsed = KernelDescriptor::parse(bytes);
    assert_eq!(parsed.is_some(), bytes.len() >= DESCRIPTOR_SIZE);
    let Some(d) = parsed else { return };
    let out = d.emit();
    assert_eq!(KernelDescriptor::parse(&out), Some(d));
    for reserved in [12..16, 24..44, 60..64] {
        assert!(out[reserved].iter().all(|b| *b == 0));
    }
    for kept in [0..12, 16..24, 44..60] {
        assert_eq!(out[kept.clone()], bytes[kept]);
    }
    let mut next = 0;
    for (what, first, count) in d.user_sgprs() {
        assert!(first == next && count > 0 && d.has_user_sgpr(what));
        next = next.saturating_add(count);
    }
    let mut sgprs = [0; 16];
    if let Ok(used) = d.fill_user_sgprs(&SgprSources::default(), &mut sgprs) {
        assert!(used <= 16 && used == usize::from(next));
    }
}

fn mqd(bytes: &[u8]) {
    let parsed = Mqd::parse(bytes);
    assert_eq!(parsed.is_some(), bytes.len() == MQD_DWORDS * 4);
    let Some(mqd) = parsed else { return };
    assert_eq!(mqd.as_bytes(), bytes);
    let words = super::dwords(bytes);
    assert_eq!(mqd.hqd_words(), &words[HQD_FIRST..=HQD_LAST]);
    assert!(words.iter().enumerate().all(|(i, w)| mqd.get(i) == *w));
    for regs in registers() {
        // A queue that a descriptor describes has it as its own, but for settings that are always the
        // same; so the description is.
        let Ok(queue) = mqd.queue(regs) else { continue };
        if let Ok(made) = Mqd::compute(regs, &queue) {
            let again = Mqd::parse(made.as_bytes()).expect("2048 bytes");
            assert_eq!(again, made);
            assert_eq!(again.queue(regs).ok(), Some(queue));
        }
    }
}

/// The registers of gfx11 and gfx12, of which fields of a descriptor are.
fn registers() -> &'static [RegFile] {
    static FILES: OnceLock<Vec<RegFile>> = OnceLock::new();
    FILES.get_or_init(|| {
        let file = |version| {
            let mut regs = RegFile::new();
            regs.set(tables::for_version(Block::Gc, version).expect("there is a table"), Bases::default());
            regs
        };
        [(11, 0, 0), (12, 0, 0)].map(file).into()
    })
}

fn dispatch(bytes: &[u8]) {
    let parsed = DispatchPacket::read_from_bytes(bytes);
    assert_eq!(parsed.is_ok(), bytes.len() == 64);
    let Ok(packet) = parsed else { return };
    assert_eq!(packet.as_bytes(), bytes);
}
