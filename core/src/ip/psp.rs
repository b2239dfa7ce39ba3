//! PSP: loads the secure OS through the bootloader, then every other firmware through its ring.
//!
//! Wire formats are in [`wire`]. The command buffer and the frame go into VRAM; one HDP flush
//! before the write pointer moves makes them, and the image in the message buffer, visible.

use super::wait::{Stage, Target, Until, Wait};
use super::{Cx, Device};
use crate::bus::{Bus, DmaHandle, Window};
use crate::error::Error;
use crate::firmware::{FirmwareSource, Image, ImageId, SosComponent};
use crate::layout::{PSP_MESSAGE_LEN, PSP_RING_LEN};
use crate::reg::r;

pub mod wire;
use wire::{Command, CommandBuffer, FRAME_LEN, Frame};

/// Where the images for the PSP are put.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum MessageBuffer {
    /// Into the message buffer in VRAM.
    #[default]
    Vram,
    /// Into memory of the host, which is mapped for MMHUB's VMID 0 at `va`: over USB that memory is
    /// nearer than the VRAM.
    Dma {
        /// The allocation.
        handle: DmaHandle,
        /// Address in MMHUB's VMID 0, aligned to 1 MiB.
        va: u64,
        /// Length in bytes.
        len: u32,
    },
}

/// Ready bit of the bootloader's and of the ring's command register (`GFX_FLAG_RESPONSE`).
const RESPONSE: u32 = 0x8000_0000;
/// Response bit and status of the ring's command register.
const RESPONSE_AND_STATUS: u32 = 0x8000_ffff;
/// `GFX_CTRL_CMD_ID_DESTROY_RINGS` (psp_gfx_if.h).
const DESTROY_RINGS: u32 = 0x3_0000;
/// `PSP_RING_TYPE__KM << 16`, the same as `GFX_CTRL_CMD_ID_INIT_GPCOM_RING`.
const CREATE_RING: u32 = 0x2_0000;
/// Linux waits as long after a ring command ("handshake issue with hardware", psp_v13_0.c).
const HANDSHAKE_US: u64 = 20_000;
/// The bootloader: 1 s in Linux's `psp_v13_0_wait_for_bootloader`, which tries ten times.
const BOOTLOADER_US: u64 = 10_000_000;
/// The secure OS: some hundred milliseconds on hardware.
const SOS_US: u64 = 10_000_000;
/// One ring command: `psp_timeout` of amdgpu_psp.c is 20000 polls of 10 to 100 us.
const COMMAND_US: u64 = 10_000_000;

/// Whether the secure OS runs.
pub fn is_sos_alive<B: Bus>(device: &mut Device<B>) -> Result<bool, Error> {
    let sign = device.read(r::PSP_C2PMSG_81)?;
    if sign == u32::MAX {
        return Err(Error::NotResponding { stage: Stage::Psp });
    }
    Ok(sign != 0)
}

/// Loads the secure OS unless it runs, creates the ring and loads all firmware. Ends with the
/// command that starts the RLC's autoload, whose end [`super::gfx::init`] awaits.
pub async fn init<B: Bus>(cx: &mut Cx<'_, B>, fw: &mut dyn FirmwareSource) -> Result<(), Error> {
    cx.enter(Stage::Psp).await;
    let fence = cx.layout.psp_fence.clone();
    let slow = cx.bus.is_slow();
    cx.vram_zero(fence.start, if slow { crate::boot::NEEDED } else { fence.end - fence.start })?;
    // The PSP only reads this part of it.
    let command = cx.layout.psp_command.start;
    cx.bus.cacheable(Window::Vram, command, wire::RESPONSE_AT as u64);
    if !is_sos_alive(cx)? {
        // A bootloader that has begun is not known to begin anew.
        cx.bus.keep_whole(true);
        let loaded = load_sos(cx, fw).await;
        cx.bus.keep_whole(false);
        loaded?;
    }
    create_ring(cx).await?;

    let toc = fw.sos(SosComponent::Toc).ok_or(Error::MissingComponent(SosComponent::Toc))?;
    let (id, len) = (toc.id, toc.len);
    put_message(cx, fw, id, len)?;
    let addr = message_addr(cx);
    let tmr_size = submit(cx, &Command::LoadToc { addr, len }).await?.tmr_size;
    let reserved = cx.layout.tmr.end - cx.layout.tmr.start;
    if cx.chip.driver_tmr && u64::from(tmr_size) > reserved {
        return Err(Error::TmrTooLarge { asked: tmr_size, reserved });
    }

    // The power firmware manages C-states of the data fabric and must be there before the TMR.
    let smu = fw.smu().map(keep).ok_or(Error::MissingImage("SMU"))?;
    load_ip(cx, fw, smu).await?;
    if cx.chip.driver_tmr {
        let tmr = cx.layout.tmr.start;
        let (virt, phys) = (cx.mc(tmr), tmr);
        submit(cx, &Command::SetupTmr { virt, phys, len: tmr_size }).await?;
    }
    let mut index = 0;
    while let Some(image) = fw.ip_image(index).map(keep) {
        load_ip(cx, fw, image).await?;
        index += 1;
    }
    submit(cx, &Command::AutoloadRlc).await?;
    Ok(())
}

/// What is needed of an image while its source is borrowed for reading.
#[derive(Clone, Copy)]
struct Kept {
    id: ImageId,
    len: u32,
    types: [u32; 8],
    count: usize,
}

fn keep(image: Image<'_>) -> Kept {
    let mut types = [0; 8];
    for (to, from) in types.iter_mut().zip(image.types) {
        *to = from.0;
    }
    Kept { id: image.id, len: image.len, types, count: image.types.len() }
}

async fn load_ip<B: Bus>(cx: &mut Cx<'_, B>, fw: &mut dyn FirmwareSource, image: Kept) -> Result<(), Error> {
    let types = image.types.get(..image.count).ok_or(Error::BadValue {
        what: "the number of types of a firmware image",
        value: image.count as u64,
        need: "at most 8",
    })?;
    put_message(cx, fw, image.id, image.len)?;
    let addr = message_addr(cx);
    for &fw_type in types {
        submit(cx, &Command::LoadIpFw { addr, len: image.len, fw_type }).await?;
    }
    Ok(())
}

/// Waits until the bootloader has done what it was told; the error code in its answer, if any. On MP0
/// 13 other bits than the flag say why a component was refused (psp_v13_0_wait_for_bootloader wants
/// them to be 0); MP0 14 leaves its command there.
async fn wait_bootloader<B: Bus>(cx: &mut Cx<'_, B>) -> Result<Option<u32>, Error> {
    let answer = cx.wait_reg(r::PSP_C2PMSG_35, RESPONSE, Until::Equal(RESPONSE), BOOTLOADER_US).await?;
    Ok((cx.chip.driver_tmr && answer != RESPONSE).then_some(answer))
}

/// Waits until the bootloader can take the first component. False if there is none any more: a process
/// that died may have told it to start the secure OS, which comes up in the meantime
/// (psp_v13_0_bootloader_load_component looks, too).
async fn bootloader_waits<B: Bus>(cx: &mut Cx<'_, B>) -> Result<bool, Error> {
    let ready = wait_bootloader(cx).await;
    if is_sos_alive(cx)? {
        return Ok(false);
    }
    ready.map(|_| true)
}

async fn load_sos<B: Bus>(cx: &mut Cx<'_, B>, fw: &mut dyn FirmwareSource) -> Result<(), Error> {
    // A component may be refused because a process that died had loaded it already: whether that
    // matters, the secure OS tells.
    let mut refused = None;
    if !bootloader_waits(cx).await? {
        return Ok(());
    }
    for step in cx.chip.bootloader {
        if fw.sos(step.component).is_none() {
            if step.component == SosComponent::Sos {
                return Err(Error::MissingComponent(SosComponent::Sos));
            }
            continue;
        }
        let image = fw.sos(step.image).ok_or(Error::MissingComponent(step.image))?;
        let (id, len) = (image.id, image.len);
        wait_bootloader(cx).await?;
        put_message(cx, fw, id, len)?;
        cx.flush_hdp()?;
        let addr = message_addr(cx);
        cx.write(r::PSP_C2PMSG_36, (addr >> 20) as u32)?;
        cx.write(r::PSP_C2PMSG_35, step.command)?;
        if step.component == SosComponent::Sos {
            // It takes the bootloader's place and does not answer in its register.
            let stage = cx.stage();
            let alive = cx.wait(Wait {
                target: Target::Reg(r::PSP_C2PMSG_81),
                mask: u32::MAX,
                until: Until::Differs(0),
                timeout_us: SOS_US,
                interval_us: 10_000,
                stage,
            });
            match (alive.await, refused) {
                (Err(Error::Timeout(_)), Some(answer)) => return Err(Error::Bootloader { answer }),
                (alive, _) => alive?,
            };
        } else {
            refused = refused.or(wait_bootloader(cx).await?);
        }
    }
    Ok(())
}

async fn create_ring<B: Bus>(cx: &mut Cx<'_, B>) -> Result<(), Error> {
    if cx.read(r::PSP_C2PMSG_71)? != 0 {
        cx.write(r::PSP_C2PMSG_64, DESTROY_RINGS)?;
        cx.delay(HANDSHAKE_US).await?;
    }
    cx.wait_reg(r::PSP_C2PMSG_64, RESPONSE, Until::Equal(RESPONSE), COMMAND_US).await?;
    let ring = cx.mc(cx.layout.psp_ring.start);
    cx.write_pair(r::PSP_C2PMSG_69, r::PSP_C2PMSG_70, ring)?;
    cx.write(r::PSP_C2PMSG_71, PSP_RING_LEN as u32)?;
    cx.write(r::PSP_C2PMSG_64, CREATE_RING)?;
    cx.delay(HANDSHAKE_US).await?;
    cx.wait_reg(r::PSP_C2PMSG_64, RESPONSE_AND_STATUS, Until::Equal(RESPONSE), COMMAND_US).await?;
    Ok(())
}

/// Address of the message buffer as the PSP uses it.
fn message_addr<B: Bus>(device: &Device<B>) -> u64 {
    match device.message {
        MessageBuffer::Vram => device.mc(device.layout.psp_message.start),
        MessageBuffer::Dma { va, .. } => va,
    }
}

/// Copies an image into the message buffer, piece by piece, and nothing beyond its end.
pub(super) fn put_message<B: Bus>(
    device: &mut Device<B>,
    fw: &mut dyn FirmwareSource,
    id: ImageId,
    len: u32,
) -> Result<(), Error> {
    let room = match device.message {
        MessageBuffer::Vram => PSP_MESSAGE_LEN as u32,
        MessageBuffer::Dma { len, .. } => len,
    };
    if len > room {
        return Err(Error::ImageTooLarge { len, room });
    }
    let mut piece = [0; 4096];
    let mut done = 0;
    while done < len {
        let step = (len - done).min(piece.len() as u32);
        let Some(buf) = piece.get_mut(..step as usize) else { break };
        fw.read(id, done, buf)?;
        match device.message {
            MessageBuffer::Vram => {
                let at = device.layout.psp_message.start + u64::from(done);
                device.vram_write(at, buf)?;
            }
            MessageBuffer::Dma { handle, .. } => device.bus.dma_write(handle, done.into(), buf)?,
        }
        done += step;
    }
    if let MessageBuffer::Dma { handle, .. } = device.message {
        device.bus.sync_for_device(handle, 0, len.into())?;
    }
    Ok(())
}

/// Puts a command on the ring and awaits its answer.
///
/// The write pointer counts dwords and wraps at the ring's length. The fence value is the write
/// pointer plus one, as no frame before it in this turn of the ring had it; it is never 0, the value
/// of fresh fence memory.
pub(super) async fn submit<B: Bus>(cx: &mut Cx<'_, B>, command: &Command) -> Result<wire::Response, Error> {
    let ring_dwords = (PSP_RING_LEN / 4) as u32;
    let wptr = cx.read(r::PSP_C2PMSG_67)?;
    let frame_dwords = FRAME_LEN as u32 / 4;
    if wptr >= ring_dwords || !wptr.is_multiple_of(frame_dwords) {
        return Err(Error::BadValue {
            what: "the write pointer of the PSP's ring",
            value: wptr.into(),
            need: "a multiple of 16 below 0x4000",
        });
    }
    let fence_value = wptr + 1;
    let frame = Frame {
        command: cx.mc(cx.layout.psp_command.start),
        fence: cx.mc(cx.layout.psp_fence.start),
        fence_value,
    };
    let command_at = cx.layout.psp_command.start;
    let mut buffer = CommandBuffer::new(command);
    // The answer is the PSP's to write: over a slow bus it is not cleared before.
    let slow = cx.bus.is_slow();
    let len = if slow { wire::RESPONSE_AT } else { buffer.as_bytes().len() };
    cx.vram_write(command_at, buffer.as_bytes().get(..len).unwrap_or(buffer.as_bytes()))?;
    let frame_at = cx.layout.psp_ring.start + u64::from(wptr) * 4;
    cx.vram_write(frame_at, &frame.emit())?;
    cx.flush_hdp()?;
    cx.write(r::PSP_C2PMSG_67, (wptr + frame_dwords) % ring_dwords)?;

    let (stage, fence_at) = (cx.stage(), cx.layout.psp_fence.start);
    cx.wait(Wait {
        target: Target::Vram(fence_at),
        mask: u32::MAX,
        until: Until::Equal(fence_value),
        timeout_us: COMMAND_US,
        interval_us: 10,
        stage,
    })
    .await?;
    // Only the answer is read back, and over a slow bus of most answers only the status: what costs is
    // the number of dwords.
    let wanted = if slow && !matches!(command, Command::LoadToc { .. }) { 4 } else { usize::MAX };
    let bytes = buffer.response_bytes_mut();
    let len = bytes.len().min(wanted);
    cx.vram_read(command_at + wire::RESPONSE_AT as u64, bytes.get_mut(..len).unwrap_or_default())?;
    let response = buffer.response();
    if response.status != 0 {
        return Err(Error::Psp {
            command: command.id(),
            fw_type: command.fw_type(),
            status: response.status,
        });
    }
    Ok(response)
}
