//! Programs in GPU memory, and launches of their kernels.

use super::hang::{Submission, kernel_name};
use super::{COMMANDS, Program, Runtime, RuntimeError, Ticket, Timing, Work};
use crate::iface::{AllocFlags, Buffer, Iface, QueueKind};
use crate::program::{CodeObject, SgprSources};
use crate::queue::QueueError;
use crate::queue::dispatch::{ALL_CUS, Dispatch, MAX_USER_SGPRS, ScratchMem};
use crate::queue::pm4::Pm4;
use crate::queue::scratch::Scratch;
use zerocopy::IntoBytes;

impl<I: Iface> Runtime<I> {
    /// Makes sure that each work-item can have `per_item` bytes of scratch memory.
    pub(super) fn ensure_scratch(&mut self, per_item: u32) -> Result<ScratchMem, QueueError> {
        if let Some((buffer, scratch)) = &self.scratch
            && scratch.per_item >= per_item
        {
            return Ok(ScratchMem::new(buffer.va, scratch));
        }
        let scratch = Scratch::for_kernel(self.iface.properties(), per_item)?;
        // The old memory may be in use until the last submission is done.
        self.synchronize()?;
        let buffer = self.iface.alloc(scratch.size, AllocFlags::empty())?;
        if let Some((old, _)) = self.scratch.replace((buffer, scratch)) {
            self.iface.free(old)?;
        }
        Ok(ScratchMem::new(buffer.va, &scratch))
    }

    /// Copies a code object into GPU memory and relocates it there.
    pub fn load(&mut self, object: &CodeObject<'_>) -> Result<Program, RuntimeError> {
        object.check_target(self.iface.properties().target)?;
        let flags = AllocFlags::CPU_ACCESS | AllocFlags::EXECUTABLE;
        let memory = self.iface.alloc(object.image_size().max(1), flags)?;
        let program = Program { memory };
        match self.fill_program(object, &program) {
            Ok(()) => Ok(program),
            Err(e) => {
                // What matters is why the program is not there.
                let _ = self.iface.free(memory);
                Err(e)
            }
        }
    }

    fn fill_program(&mut self, object: &CodeObject<'_>, program: &Program) -> Result<(), RuntimeError> {
        let size = object.image_size();
        let mut at = 0u64;
        while at < size {
            let mut chunk = [0; 4096];
            let len = (size - at).min(chunk.len() as u64) as usize;
            let part = chunk.get_mut(..len).unwrap_or(&mut []);
            object.read_image(at, part);
            self.iface.write(&program.memory, at, part)?;
            at = at.saturating_add(len as u64);
        }
        for patch in object.patches(program.address()) {
            let patch = patch?;
            let (bytes, len) = patch.bytes();
            self.iface.write(&program.memory, patch.offset, bytes.get(..len).unwrap_or(&bytes))?;
        }
        self.iface.fence()?;
        Ok(self.iface.flush_hdp()?)
    }

    /// Takes a program out of GPU memory. Refused while any submission is pending.
    pub fn unload(&mut self, program: Program) -> Result<(), RuntimeError> {
        Ok(self.free(program.memory)?)
    }

    /// Launches a kernel. With `timing`, the GPU's clock is stored before and after it.
    pub fn launch(&mut self, work: &Work<'_>, timing: Option<&Timing>) -> Result<Ticket, RuntimeError> {
        work.launch.check()?;
        work.kernel.check_launch(&work.launch)?;
        let base = work.program.address();
        let kernel = work.kernel.regs(self.iface.properties(), base, work.dynamic_lds)?;
        let scratch = self.ensure_scratch(work.kernel.scratch_per_item(self.iface.properties().target))?;
        let (before, value) = self.begin()?;
        let args = self.take_kernargs(work.kernel.kernarg_alloc_size().max(1), value)?;
        if !work.kernargs.is_empty() {
            self.iface.write(&args, 0, work.kernargs)?;
        }
        let packet_at = work.kernel.dispatch_packet_offset();
        if let Some(at) = packet_at {
            let packet = work.kernel.dispatch_packet(&work.launch, base, args.va, work.dynamic_lds);
            self.iface.write(&args, at, packet.as_bytes())?;
        }
        let mut sgprs = [0; MAX_USER_SGPRS];
        let sources = SgprSources {
            kernargs: args.va,
            kernarg_bytes: work.kernargs,
            dispatch_packet: packet_at.map_or(0, |at| args.va.wrapping_add(at)),
            dispatch_id: value.into(),
            scratch,
        };
        let used = work.kernel.fill_user_sgprs(&sources, &mut sgprs)?;
        let mut commands = [0; COMMANDS];
        let mut q = Pm4::new(&self.compute_config, &mut commands);
        let signal = self.timeline.signal;
        q.wait(signal.value_va(), before)?;
        q.memory_barrier()?;
        if let Some(timing) = timing {
            q.timestamp(timing.start.timestamp_va())?;
        }
        q.exec(&Dispatch {
            kernel,
            launch: work.launch,
            user_sgprs: sgprs.get(..used).unwrap_or(&sgprs),
            scratch_in_sgprs: work.kernel.scratch_in_sgprs(),
            scratch,
            marker: None,
            cu_masks: ALL_CUS,
        })?;
        if let Some(timing) = timing {
            q.timestamp(timing.end.timestamp_va())?;
        }
        q.signal(signal.value_va(), value, true)?;
        let from = self.compute.put();
        let done = self.compute.submit_pm4(&mut self.iface, q.dwords(), self.sizes.timeout_us);
        let (to, kernel) = (self.compute.put(), Some(kernel_name(work.kernel.name)));
        let submission = Submission { value, kind: QueueKind::Compute, from, to, kernel };
        Ok(self.finish(done, submission)?)
    }

    fn take_kernargs(&mut self, size: u64, value: u32) -> Result<Buffer, QueueError> {
        self.kernargs.retire(self.timeline.seen());
        loop {
            match self.kernargs.take(size, 64, value) {
                // Each turn frees the oldest part, so that this ends.
                Err(QueueError::PoolBusy { until, .. }) => self.wait(Ticket(until), self.sizes.timeout_us)?,
                other => return other,
            }
        }
    }
}
