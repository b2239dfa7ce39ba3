//! A loaded code object and its chosen kernel.

use super::{HostBus, Watched};
use crate::session::{KernelArg, KernelInfo};
use amdev_core::device::Gpu;
use amdev_core::program::{CodeObject, HiddenValues, Kernel};
use amdev_core::queue::dispatch::Launch;
use amdev_core::runtime::{Program, Runtime, Work};
use anyhow::Context as _;

/// A code object in GPU memory. Its file stays, because kernels refer to it.
pub(super) struct Loaded {
    image: Vec<u8>,
    kernel: String,
    pub(super) program: Program,
}

impl Loaded {
    pub(super) fn load<B: HostBus>(
        runtime: &mut Runtime<Gpu<'static, Watched<B>>>,
        image: &[u8],
        kernel: Option<&str>,
    ) -> anyhow::Result<Self> {
        let object = CodeObject::parse(image)?;
        let kernel = match kernel {
            Some(name) => object.kernel(name)?,
            None => object.only_kernel()?,
        };
        let kernel = kernel.name.to_owned();
        let program = runtime.load(&object)?;
        Ok(Loaded { image: image.to_vec(), kernel, program })
    }

    fn with_kernel<T>(&self, f: impl FnOnce(&Kernel<'_>) -> anyhow::Result<T>) -> anyhow::Result<T> {
        let object = CodeObject::parse(&self.image)?;
        f(&object.kernel(&self.kernel)?)
    }

    pub(super) fn info(&self) -> anyhow::Result<KernelInfo> {
        self.with_kernel(|k| {
            let mut arg_sizes = Vec::new();
            if let Some(metadata) = &k.metadata {
                for arg in metadata.args() {
                    let arg = arg?;
                    if !arg.value_kind.is_hidden() {
                        arg_sizes.push(arg.size);
                    }
                }
            }
            Ok(KernelInfo {
                name: k.name.to_owned(),
                arg_sizes,
                lds_bytes: k.descriptor.group_segment_size,
                scratch_bytes: k.descriptor.private_segment_size,
                vgprs: k.vgprs(),
                sgprs: k.metadata.and_then(|m| m.sgpr_count).unwrap_or(0) as u32,
                wave_size: if k.descriptor.wave32() { 32 } else { 64 },
            })
        })
    }

    /// Runs the kernel and waits for it; nanoseconds by the GPU's clock.
    pub(super) fn run<B: HostBus>(
        &self,
        runtime: &mut Runtime<Gpu<'static, Watched<B>>>,
        grid: [u32; 3],
        block: [u32; 3],
        args: &[KernelArg],
        timeout_us: u64,
    ) -> anyhow::Result<u64> {
        self.with_kernel(|kernel| {
            let launch = Launch { grid, block };
            let bytes: Vec<Vec<u8>> = args
                .iter()
                .map(|arg| match arg {
                    KernelArg::Value(bytes) => bytes.clone(),
                    KernelArg::Buffer(buffer) => buffer.va.to_le_bytes().to_vec(),
                })
                .collect();
            let args: Vec<&[u8]> = bytes.iter().map(Vec::as_slice).collect();
            let mut kernargs = vec![0; kernel.descriptor.kernarg_size as usize];
            kernel.fill_args(&args, &mut kernargs)?;
            kernel.fill_hidden(&launch, &HiddenValues::default(), &mut kernargs)?;
            let work = Work { program: &self.program, kernel, launch, kernargs: &kernargs, dynamic_lds: 0 };
            let timing = runtime.timing()?;
            let done =
                runtime.launch(&work, Some(&timing)).and_then(|ticket| Ok(runtime.wait(ticket, timeout_us)?));
            done.map_err(|e| super::explain(runtime, e.into())).with_context(|| {
                let ([gx, gy, gz], [bx, by, bz]) = (grid, block);
                let name = kernel.name;
                format!(
                    "running kernel {name} ({gx}x{gy}x{gz} groups of {bx}x{by}x{bz}) on the compute queue"
                )
            })?;
            Ok((runtime.elapsed_us(&timing)? * 1000.0) as u64)
        })
    }
}
