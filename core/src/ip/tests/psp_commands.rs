//! The PSP: ring, message buffer, refusals.

use super::*;
use crate::firmware::{FirmwareError, FirmwareSource, Image, ImageId, SosComponent, UcodeStart};
use crate::ip::psp::wire::{Command, Frame};

/// A PSP that answers each command with `status`, or never.
fn psp(d: &mut Device<TestBus>, status: Option<u32>) {
    let ring = d.layout.psp_ring.start;
    let mc_base = d.mc_base;
    let mut old = d.read(r::PSP_C2PMSG_67).unwrap();
    d.on_write(r::PSP_C2PMSG_67, move |state, wptr| {
        let mut frame = [0; 64];
        state.read_vram(ring + u64::from(old) * 4, &mut frame);
        let frame = Frame::parse(&frame).unwrap();
        old = wptr;
        if let Some(status) = status {
            state.write_vram(frame.command - mc_base + 864, &status.to_le_bytes());
            state.write_vram(frame.fence - mc_base, &frame.fence_value.to_le_bytes());
        }
    });
}

async fn autoload(cx: &mut TestCx<'_>) -> Result<(), Error> {
    cx.enter(Stage::Psp).await;
    psp::submit(cx, &Command::AutoloadRlc).await.map(|_| ())
}

#[test]
fn a_psp_that_never_answers_is_a_timeout_and_its_fence_value_is_not_that_of_fresh_memory() {
    // C12 (a)
    let mut d = device();
    psp(&mut d, None);
    let error = d.run(autoload).unwrap_err();
    assert!(matches!(error, Error::Timeout(m) if m.wait.target == Target::Vram(0x10_6000)), "{error}");
    let mut frame = [0; 64];
    d.bus.state.read_vram(d.layout.psp_ring.start, &mut frame);
    assert_eq!(Frame::parse(&frame).unwrap().fence_value, 1);
}

#[test]
fn the_last_frame_of_the_psp_ring_stands_at_0xffc0_and_the_next_at_0() {
    // C12 (b), with the ring's 64 KiB.
    assert_eq!(crate::layout::PSP_RING_LEN, 64 << 10);
    let mut d = device();
    d.put(r::PSP_C2PMSG_67, 0x3ff0);
    psp(&mut d, Some(0));
    let ring = d.layout.psp_ring.start;
    d.run(autoload).unwrap();
    assert_eq!(d.written(r::PSP_C2PMSG_67), [0]);
    let mut frame = [0; 64];
    d.bus.state.read_vram(ring + 0xffc0, &mut frame);
    assert_eq!(Frame::parse(&frame).unwrap().fence_value, 0x3ff1);
    d.run(autoload).unwrap();
    d.bus.state.read_vram(ring, &mut frame);
    assert_eq!(Frame::parse(&frame).unwrap().fence_value, 1);
    assert_eq!(d.written(r::PSP_C2PMSG_67), [0, 0x10]);
}

#[test]
fn a_psp_write_pointer_outside_its_ring_is_refused() {
    for wptr in [0x4000, 0x3ff8] {
        let mut d = device();
        d.put(r::PSP_C2PMSG_67, wptr);
        assert!(matches!(d.run(autoload), Err(Error::BadValue { .. })), "{wptr:#x}");
    }
}

#[test]
fn the_hdp_is_flushed_before_the_psp_write_pointer_moves() {
    let mut d = device();
    psp(&mut d, Some(0));
    d.run(autoload).unwrap();
    let wptr = d.regs.addr(r::PSP_C2PMSG_67).unwrap();
    assert_eq!(d.bus.state.writes, [(0x385c / 4, 0), (wptr, 0x10)]);
}

#[test]
fn a_command_that_the_psp_refuses_is_an_error_with_command_and_status() {
    let mut d = device();
    psp(&mut d, Some(0xffff_000a));
    let error = d.run(autoload).unwrap_err();
    assert_eq!(error, Error::Psp { command: 0x21, fw_type: 0, status: 0xffff_000a });
}

/// Firmware whose SMU image consists of this many bytes of 0xAB.
struct Bytes(u32);

impl FirmwareSource for Bytes {
    fn sos(&self, _: SosComponent) -> Option<Image<'_>> {
        None
    }
    fn smu(&self) -> Option<Image<'_>> {
        Some(Image { id: ImageId::Smu, len: self.0, types: &[] })
    }
    fn ip_image(&self, _: u8) -> Option<Image<'_>> {
        None
    }
    fn ucode_start(&self) -> UcodeStart {
        UcodeStart::default()
    }
    fn read(&mut self, _: ImageId, _: u32, buf: &mut [u8]) -> Result<(), FirmwareError> {
        buf.fill(0xab);
        Ok(())
    }
}

#[test]
fn an_image_fills_the_message_buffer_to_its_own_end_and_no_further() {
    for len in [1, 3, 4, 5, 4096, 4099, 1 << 20] {
        let mut d = device();
        let at = d.layout.psp_message.start;
        psp::put_message(&mut d, &mut Bytes(len), ImageId::Smu, len).unwrap();
        let mut bytes = std::vec![0; len as usize + 8];
        d.bus.state.read_vram(at, &mut bytes);
        let (image, behind) = bytes.split_at(len as usize);
        assert!(image.iter().all(|b| *b == 0xab) && behind == [0; 8], "{len} bytes");
    }
    let too_long = psp::put_message(&mut device(), &mut Bytes(1), ImageId::Smu, (1 << 20) + 1);
    assert_eq!(too_long, Err(Error::ImageTooLarge { len: (1 << 20) + 1, room: 1 << 20 }));
}
