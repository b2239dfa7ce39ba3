//! What the AMDGPU note says of kernels: names, sizes, arguments. Keys: LLVM's AMDGPUUsage, "Code
//! Object V3 Metadata" and later.

use super::msgpack::{MsgPackError, Reader, Value};

/// Metadata of one kernel. A value that the note does not have is `None`.
#[derive(Clone, Copy, Debug, Default)]
#[allow(missing_docs)] // the fields are named as the keys are
pub struct KernelMetadata<'a> {
    pub name: Option<&'a str>,
    pub symbol: Option<&'a str>,
    pub language: Option<&'a str>,
    pub kernarg_segment_size: Option<u64>,
    pub kernarg_segment_align: Option<u64>,
    pub group_segment_fixed_size: Option<u64>,
    pub private_segment_fixed_size: Option<u64>,
    pub wavefront_size: Option<u64>,
    pub sgpr_count: Option<u64>,
    pub vgpr_count: Option<u64>,
    pub agpr_count: Option<u64>,
    pub sgpr_spill_count: Option<u64>,
    pub vgpr_spill_count: Option<u64>,
    pub max_flat_workgroup_size: Option<u64>,
    pub uniform_work_group_size: Option<u64>,
    pub uses_dynamic_stack: Option<bool>,
    pub workgroup_processor_mode: Option<u64>,
    pub reqd_workgroup_size: Option<[u32; 3]>,
    args: Option<Reader<'a>>,
}

impl<'a> KernelMetadata<'a> {
    pub(super) fn read(r: &mut Reader<'a>) -> Result<Self, MsgPackError> {
        let mut k = KernelMetadata::default();
        for _ in 0..r.map()? {
            match r.string()? {
                ".name" => k.name = Some(r.string()?),
                ".symbol" => k.symbol = Some(r.string()?),
                ".language" => k.language = Some(r.string()?),
                ".kernarg_segment_size" => k.kernarg_segment_size = Some(r.number()?),
                ".kernarg_segment_align" => k.kernarg_segment_align = Some(r.number()?),
                ".group_segment_fixed_size" => k.group_segment_fixed_size = Some(r.number()?),
                ".private_segment_fixed_size" => k.private_segment_fixed_size = Some(r.number()?),
                ".wavefront_size" => k.wavefront_size = Some(r.number()?),
                ".sgpr_count" => k.sgpr_count = Some(r.number()?),
                ".vgpr_count" => k.vgpr_count = Some(r.number()?),
                ".agpr_count" => k.agpr_count = Some(r.number()?),
                ".sgpr_spill_count" => k.sgpr_spill_count = Some(r.number()?),
                ".vgpr_spill_count" => k.vgpr_spill_count = Some(r.number()?),
                ".max_flat_workgroup_size" => k.max_flat_workgroup_size = Some(r.number()?),
                ".uniform_work_group_size" => k.uniform_work_group_size = Some(r.number()?),
                ".workgroup_processor_mode" => k.workgroup_processor_mode = Some(r.number()?),
                ".uses_dynamic_stack" => k.uses_dynamic_stack = Some(r.number()? != 0),
                ".reqd_workgroup_size" => {
                    let mut list = r.sub()?;
                    if list.array()? != 3 {
                        return Err(MsgPackError::Type("three numbers in .reqd_workgroup_size"));
                    }
                    let mut size = [0; 3];
                    for s in &mut size {
                        let n = list.number()?;
                        *s = u32::try_from(n).map_err(|_| MsgPackError::Type("a 32-bit size"))?;
                    }
                    k.reqd_workgroup_size = Some(size);
                }
                ".args" => k.args = Some(r.sub()?),
                _ => r.skip()?,
            }
        }
        Ok(k)
    }

    /// Name of the kernel, from its symbol (without `.kd`) or else its source name.
    pub fn kernel_name(&self) -> Option<&'a str> {
        self.symbol.and_then(|s| s.strip_suffix(".kd")).or(self.name)
    }

    /// The arguments, hidden ones included, in the order of the note.
    pub fn args(&self) -> impl Iterator<Item = Result<Arg<'a>, MsgPackError>> + use<'a> {
        let mut r = self.args;
        let mut left = None;
        core::iter::from_fn(move || {
            let r = r.as_mut()?;
            let n = match left {
                Some(n) => n,
                None => match r.array() {
                    Ok(n) => n,
                    Err(e) => {
                        left = Some(0);
                        return Some(Err(e));
                    }
                },
            };
            let rest = n.checked_sub(1)?;
            let arg = Arg::read(r);
            left = Some(if arg.is_ok() { rest } else { 0 });
            Some(arg)
        })
    }
}

/// One kernel argument.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[allow(missing_docs)] // the fields are named as the keys are
pub struct Arg<'a> {
    pub name: Option<&'a str>,
    pub type_name: Option<&'a str>,
    /// Byte offset in the kernel argument segment.
    pub offset: u32,
    /// Size in bytes.
    pub size: u32,
    pub value_kind: ValueKind<'a>,
    pub address_space: Option<&'a str>,
    pub access: Option<&'a str>,
    pub actual_access: Option<&'a str>,
    pub pointee_align: Option<u64>,
    pub is_const: bool,
    pub is_restrict: bool,
    pub is_volatile: bool,
    pub is_pipe: bool,
}

impl<'a> Arg<'a> {
    fn read(r: &mut Reader<'a>) -> Result<Self, MsgPackError> {
        let mut a = Arg::default();
        let small = |n: u64| u32::try_from(n).map_err(|_| MsgPackError::Type("a 32-bit number"));
        for _ in 0..r.map()? {
            match r.string()? {
                ".name" => a.name = Some(r.string()?),
                ".type_name" => a.type_name = Some(r.string()?),
                ".offset" => a.offset = small(r.number()?)?,
                ".size" => a.size = small(r.number()?)?,
                ".value_kind" => a.value_kind = ValueKind::parse(r.string()?),
                ".address_space" => a.address_space = Some(r.string()?),
                ".access" => a.access = Some(r.string()?),
                ".actual_access" => a.actual_access = Some(r.string()?),
                ".pointee_align" => a.pointee_align = Some(r.number()?),
                ".is_const" => a.is_const = r.number()? != 0,
                ".is_restrict" => a.is_restrict = r.number()? != 0,
                ".is_volatile" => a.is_volatile = r.number()? != 0,
                ".is_pipe" => a.is_pipe = r.number()? != 0,
                _ => r.skip()?,
            }
        }
        Ok(a)
    }
}

macro_rules! value_kinds {
    ($($name:ident = $text:literal $hidden:literal $size:literal, $doc:literal;)*) => {
        /// What an argument is (`.value_kind`).
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        pub enum ValueKind<'a> {
            $(#[doc = $doc] $name,)*
            /// A kind not known here.
            Other(&'a str),
        }

        impl<'a> ValueKind<'a> {
            fn parse(s: &'a str) -> Self {
                match s {
                    $($text => ValueKind::$name,)*
                    _ => ValueKind::Other(s),
                }
            }

            /// Its name in the note.
            pub fn name(self) -> &'a str {
                match self {
                    $(ValueKind::$name => $text,)*
                    ValueKind::Other(s) => s,
                }
            }

            /// Whether the runtime fills it, not the caller.
            pub fn is_hidden(self) -> bool {
                match self {
                    $(ValueKind::$name => $hidden,)*
                    ValueKind::Other(s) => s.starts_with("hidden_"),
                }
            }

            /// Size in bytes that the kind demands; `None` if it demands none.
            pub fn size(self) -> Option<u32> {
                let size: u32 = match self {
                    $(ValueKind::$name => $size,)*
                    ValueKind::Other(_) => 0,
                };
                if size == 0 { None } else { Some(size) }
            }
        }
    };
}

value_kinds! {
    ByValue = "by_value" false 0, "Bytes.";
    GlobalBuffer = "global_buffer" false 8, "Address of a buffer.";
    DynamicShared = "dynamic_shared_pointer" false 4, "Offset in LDS whose size the caller chooses.";
    Sampler = "sampler" false 8, "Address of a sampler descriptor.";
    Image = "image" false 8, "Address of an image descriptor.";
    Pipe = "pipe" false 8, "Address of a pipe.";
    Queue = "queue" false 8, "Address of a queue.";
    HiddenNone = "hidden_none" true 0, "Unused.";
    GlobalOffsetX = "hidden_global_offset_x" true 8, "First global id in x.";
    GlobalOffsetY = "hidden_global_offset_y" true 8, "First global id in y.";
    GlobalOffsetZ = "hidden_global_offset_z" true 8, "First global id in z.";
    BlockCountX = "hidden_block_count_x" true 4, "Workgroups in x.";
    BlockCountY = "hidden_block_count_y" true 4, "Workgroups in y.";
    BlockCountZ = "hidden_block_count_z" true 4, "Workgroups in z.";
    GroupSizeX = "hidden_group_size_x" true 2, "Work-items of a workgroup in x.";
    GroupSizeY = "hidden_group_size_y" true 2, "Work-items of a workgroup in y.";
    GroupSizeZ = "hidden_group_size_z" true 2, "Work-items of a workgroup in z.";
    RemainderX = "hidden_remainder_x" true 2, "Work-items of a last, partial workgroup in x.";
    RemainderY = "hidden_remainder_y" true 2, "Work-items of a last, partial workgroup in y.";
    RemainderZ = "hidden_remainder_z" true 2, "Work-items of a last, partial workgroup in z.";
    GridDims = "hidden_grid_dims" true 2, "Dimensions of the grid.";
    PrintfBuffer = "hidden_printf_buffer" true 8, "Address of the printf buffer.";
    HostcallBuffer = "hidden_hostcall_buffer" true 8, "Address of the hostcall buffer.";
    DefaultQueue = "hidden_default_queue" true 8, "Address of the default queue.";
    CompletionAction = "hidden_completion_action" true 8, "Address of a completion action.";
    MultigridSync = "hidden_multigrid_sync_arg" true 8, "Address of multi-grid synchronisation.";
    HeapV1 = "hidden_heap_v1" true 8, "Address of the device heap.";
    DynamicLdsSize = "hidden_dynamic_lds_size" true 4, "Bytes of LDS that the caller chose.";
    PrivateBase = "hidden_private_base" true 4, "High half of the private aperture (gfx8).";
    SharedBase = "hidden_shared_base" true 4, "High half of the shared aperture (gfx8).";
    QueuePtr = "hidden_queue_ptr" true 8, "Address of the AQL queue.";
}

#[allow(clippy::derivable_impls)] // the macro above makes the enum
impl Default for ValueKind<'_> {
    fn default() -> Self {
        ValueKind::ByValue
    }
}

/// The whole note: version, target, kernels.
#[derive(Clone, Copy, Debug)]
pub struct Metadata<'a> {
    /// The MessagePack data.
    pub data: &'a [u8],
}

impl<'a> Metadata<'a> {
    /// Positions a reader at the value of a key of the top level.
    fn find(&self, key: &str) -> Result<Option<Reader<'a>>, MsgPackError> {
        let mut r = Reader::new(self.data);
        for _ in 0..r.map()? {
            if r.string()? == key {
                return Ok(Some(r));
            }
            r.skip()?;
        }
        Ok(None)
    }

    /// `amdhsa.version`: major and minor.
    pub fn version(&self) -> Result<Option<(u32, u32)>, MsgPackError> {
        let Some(mut r) = self.find("amdhsa.version")? else { return Ok(None) };
        if r.array()? != 2 {
            return Err(MsgPackError::Type("two numbers in amdhsa.version"));
        }
        let small = |n: u64| u32::try_from(n).map_err(|_| MsgPackError::Type("a 32-bit number"));
        Ok(Some((small(r.number()?)?, small(r.number()?)?)))
    }

    /// `amdhsa.target`: the target id.
    pub fn target(&self) -> Result<Option<&'a str>, MsgPackError> {
        match self.find("amdhsa.target")? {
            Some(mut r) => match r.value()? {
                Value::Str(s) => Ok(Some(s)),
                _ => Err(MsgPackError::Type("a string in amdhsa.target")),
            },
            None => Ok(None),
        }
    }

    /// The kernels.
    pub fn kernels(&self) -> impl Iterator<Item = Result<KernelMetadata<'a>, MsgPackError>> + use<'a> {
        let found = self.find("amdhsa.kernels").and_then(|r| match r {
            Some(mut r) => r.array().map(|n| (n, Some(r))),
            None => Ok((0, None)),
        });
        let (mut state, mut error) = match found {
            Ok((n, Some(r))) => (Some((n, r)), None),
            Ok(_) => (None, None),
            Err(e) => (None, Some(e)),
        };
        core::iter::from_fn(move || {
            if let Some(e) = error.take() {
                return Some(Err(e));
            }
            let (n, mut r) = state.take()?;
            let rest = n.checked_sub(1)?;
            let k = KernelMetadata::read(&mut r);
            if k.is_ok() {
                state = Some((rest, r));
            }
            Some(k)
        })
    }
}
