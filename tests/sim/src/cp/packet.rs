//! The table of type-3 packets: names, lengths, reserved bits, and the engines that know them.

/// A command processor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Engine {
    /// MEC: compute queues.
    Compute,
}

/// A packet's form. `masks` gives the bits that may be set in each body dword; dwords after the last
/// mask are data.
pub(super) struct Form {
    pub(super) op: u8,
    pub(super) name: &'static str,
    engines: &'static [Engine],
    /// Fewest and most dwords of the body.
    pub(super) body: (u32, u32),
    pub(super) masks: &'static [u32],
}

const A: u32 = u32::MAX;
const COMPUTE: &[Engine] = &[Engine::Compute];
/// Body dwords that the 14-bit count can express.
const MANY: u32 = 0x4000;

const fn form(op: u8, name: &'static str, body: (u32, u32), masks: &'static [u32]) -> Form {
    Form { op, name, engines: COMPUTE, body, masks }
}

/// `PACKET3_*` of `nvd.h`.
static FORMS: &[Form] = &[
    form(0x10, "NOP", (0, MANY), &[]),
    form(0x15, "DISPATCH_DIRECT", (4, 4), &[A, A, A, A]),
    form(0x16, "DISPATCH_INDIRECT", (3, 3), &[A & !3, 0xffff, A]),
    form(0x1e, "ATOMIC_MEM", (8, 8), &[0x0600_0f7f, A & !3, 0xffff, A, A, A, A, 0x1fff]),
    form(0x23, "PRED_EXEC", (1, 1), &[0xff00_3fff]),
    // Control: cache policy, write confirm, one-address, destination; engine select is for graphics.
    form(0x37, "WRITE_DATA", (4, MANY), &[0x0611_0f00, A & !3, A]),
    form(0x3c, "WAIT_REG_MEM", (6, 6), &[0x0600_00f7, A & !3, A, A, A, 0x8000_ffff]),
    form(0x3f, "INDIRECT_BUFFER", (3, 3), &[A & !3, 0xffff, 0xbf9f_ffff]),
    form(0x40, "COPY_DATA", (5, 5), &[0x2611_6f0f, A, A, A, A]),
    form(0x46, "EVENT_WRITE", (1, 3), &[0xf3f, A & !7, 0xffff]),
    form(0x49, "RELEASE_MEM", (7, 7), &[0x17ff_ff3f, 0xe703_0000, A & !3, A, A, A, 0x0fff_ffff]),
    form(0x50, "DMA_DATA", (6, 6), &[0xe630_6001, A, A, A, A, 0x7fff_ffff]),
    // COHER_SIZE_HI has 8 bits in `nvd.h`, but its own driver writes 0xffffff there for "everything",
    // as the reference writes all ones: the upper bits are not looked at.
    form(0x58, "ACQUIRE_MEM", (7, 7), &[0x8000_0000, A, A, A, 0x00ff_ffff, 0xffff, 0x0007_ffff]),
    form(0x76, "SET_SH_REG", (2, MANY), &[0xffff]),
    form(0x79, "SET_UCONFIG_REG", (2, MANY), &[0xffff]),
];

/// What gfx9 has instead: cache control in COHER_CNTL, other bits in RELEASE_MEM (`soc15d.h`).
static FORMS_GFX9: &[Form] = &[
    form(0x49, "RELEASE_MEM", (7, 7), &[0x0fff_ff3f, 0xe703_0000, A & !3, A, A, A, 0x0fff_ffff]),
    form(0x58, "ACQUIRE_MEM", (6, 6), &[A, A, A, A, 0x00ff_ffff, 0xffff]),
];

/// The form of an operation on an engine.
pub(super) fn find(engine: Engine, gfx9: bool, op: u8) -> Option<&'static Form> {
    let old = if gfx9 { FORMS_GFX9 } else { &[] };
    old.iter().chain(FORMS).find(|f| f.op == op && f.engines.contains(&engine))
}

/// First dword address of the registers that SET_SH_REG reaches and the first beyond
/// (`PACKET3_SET_SH_REG_START` and `_END`).
pub(super) const SH_WINDOW: (u32, u32) = (0x2c00, 0x3000);
/// The same of SET_UCONFIG_REG. `nvd.h` puts the end at 0xc400, but registers that its own driver
/// sets with the packet (SQ_THREAD_TRACE_CTRL 0xd9ec) lie beyond: user configuration space is 16 Ki
/// dwords.
pub(super) const UCONFIG_WINDOW: (u32, u32) = (0xc000, 0x1_0000);
