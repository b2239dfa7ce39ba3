//! PM4 constants, as in Linux's `nvd.h` (gfx10 and later) and `soc15d.h` (gfx9).

/// Opcodes of type-3 packets (`PACKET3_*`).
#[allow(missing_docs)] // the names are those of the headers
pub mod opcode {
    pub const NOP: u8 = 0x10;
    pub const SET_BASE: u8 = 0x11;
    pub const CLEAR_STATE: u8 = 0x12;
    pub const DISPATCH_DIRECT: u8 = 0x15;
    pub const DISPATCH_INDIRECT: u8 = 0x16;
    pub const ATOMIC_MEM: u8 = 0x1e;
    pub const COND_EXEC: u8 = 0x22;
    pub const PRED_EXEC: u8 = 0x23;
    pub const CONTEXT_CONTROL: u8 = 0x28;
    pub const WRITE_DATA: u8 = 0x37;
    pub const MEM_SEMAPHORE: u8 = 0x39;
    pub const WAIT_REG_MEM: u8 = 0x3c;
    pub const INDIRECT_BUFFER: u8 = 0x3f;
    pub const COPY_DATA: u8 = 0x40;
    pub const EVENT_WRITE: u8 = 0x46;
    pub const RELEASE_MEM: u8 = 0x49;
    pub const DMA_DATA: u8 = 0x50;
    pub const ACQUIRE_MEM: u8 = 0x58;
    pub const SET_CONFIG_REG: u8 = 0x68;
    pub const SET_CONTEXT_REG: u8 = 0x69;
    pub const SET_SH_REG: u8 = 0x76;
    pub const SET_QUEUE_REG: u8 = 0x78;
    pub const SET_UCONFIG_REG: u8 = 0x79;
    pub const SET_RESOURCES: u8 = 0xa0;
    pub const MAP_PROCESS: u8 = 0xa1;
    pub const MAP_QUEUES: u8 = 0xa2;
    pub const UNMAP_QUEUES: u8 = 0xa3;
    pub const QUERY_STATUS: u8 = 0xa4;
    pub const RUN_LIST: u8 = 0xa5;
}

/// Name of an opcode in the headers; `None` if this module does not know it.
pub fn name(op: u8) -> Option<&'static str> {
    use opcode::*;
    Some(match op {
        NOP => "NOP",
        SET_BASE => "SET_BASE",
        CLEAR_STATE => "CLEAR_STATE",
        DISPATCH_DIRECT => "DISPATCH_DIRECT",
        DISPATCH_INDIRECT => "DISPATCH_INDIRECT",
        ATOMIC_MEM => "ATOMIC_MEM",
        COND_EXEC => "COND_EXEC",
        PRED_EXEC => "PRED_EXEC",
        CONTEXT_CONTROL => "CONTEXT_CONTROL",
        WRITE_DATA => "WRITE_DATA",
        MEM_SEMAPHORE => "MEM_SEMAPHORE",
        WAIT_REG_MEM => "WAIT_REG_MEM",
        INDIRECT_BUFFER => "INDIRECT_BUFFER",
        COPY_DATA => "COPY_DATA",
        EVENT_WRITE => "EVENT_WRITE",
        RELEASE_MEM => "RELEASE_MEM",
        DMA_DATA => "DMA_DATA",
        ACQUIRE_MEM => "ACQUIRE_MEM",
        SET_CONFIG_REG => "SET_CONFIG_REG",
        SET_CONTEXT_REG => "SET_CONTEXT_REG",
        SET_SH_REG => "SET_SH_REG",
        SET_QUEUE_REG => "SET_QUEUE_REG",
        SET_UCONFIG_REG => "SET_UCONFIG_REG",
        SET_RESOURCES => "SET_RESOURCES",
        MAP_PROCESS => "MAP_PROCESS",
        MAP_QUEUES => "MAP_QUEUES",
        UNMAP_QUEUES => "UNMAP_QUEUES",
        QUERY_STATUS => "QUERY_STATUS",
        RUN_LIST => "RUN_LIST",
        _ => return None,
    })
}

/// First dword address of `SET_SH_REG` (`PACKET3_SET_SH_REG_START`).
pub const SH_REG_START: u32 = 0x2c00;
/// End of that range (`PACKET3_SET_SH_REG_END`).
pub const SH_REG_END: u32 = 0x3000;
/// First dword address of `SET_UCONFIG_REG` (`PACKET3_SET_UCONFIG_REG_START`).
pub const UCONFIG_REG_START: u32 = 0xc000;
/// End of that range. The headers' end (0xc400) is gfx9's; from gfx11 on the thread trace registers
/// at 0xd9e6 are set through it, so the bound is what the packet's 16-bit offset can say.
pub const UCONFIG_REG_END: u32 = UCONFIG_REG_START + 0xffff;

/// `INDIRECT_BUFFER_VALID`: the buffer is executed.
pub const INDIRECT_BUFFER_VALID: u32 = 1 << 23;

/// Event types (`VGT_EVENT_TYPE` in the `*_enum.h` headers).
pub mod event {
    /// Flush caches, then write a timestamp or value.
    pub const CACHE_FLUSH_AND_INV_TS: u32 = 0x14;
    /// Wait until the compute shaders before it are done.
    pub const CS_PARTIAL_FLUSH: u32 = 0x07;
    /// Marks a dispatch in an instruction trace.
    pub const THREAD_TRACE_MARKER: u32 = 0x35;
    /// Ends an instruction trace.
    pub const THREAD_TRACE_FINISH: u32 = 0x37;

    /// `EVENT_INDEX` of other events.
    pub const INDEX_OTHER: u32 = 0;
    /// `EVENT_INDEX` of partial flushes (comment in `nvd.h`).
    pub const INDEX_PARTIAL_FLUSH: u32 = 4;
    /// `EVENT_INDEX` of end-of-pipe events in `RELEASE_MEM`.
    pub const INDEX_END_OF_PIPE: u32 = 5;
}

/// `TC_OP_ATOMIC_ADD_RTN_32` (`TC_OP` in `soc15_enum.h` and later).
pub const ATOMIC_ADD_RTN_32: u32 = 15;

/// Sources and destinations of `COPY_DATA`.
pub mod copy_data {
    /// Source: a register of the performance and privileged range.
    pub const SRC_PERF: u32 = 4;
    /// Source: the immediate in the packet.
    pub const SRC_IMM: u32 = 5;
    /// Destination: a memory-mapped register.
    pub const DST_MEM_MAPPED_REGISTER: u32 = 0;
    /// Destination: memory through L2.
    pub const DST_TC_L2: u32 = 2;
    /// Destination: a register of the performance and privileged range.
    pub const DST_PERF: u32 = 4;
    /// Wait until the write is confirmed.
    pub const WR_CONFIRM: u32 = 1 << 20;
}
