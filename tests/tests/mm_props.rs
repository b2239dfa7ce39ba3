//! Properties of the memory manager: cases with known results, and random calls against plain models
//! with and without failing bus accesses.

use std::collections::BTreeMap;

use amdev_core::bus::Segment;
use amdev_core::mm::pte::{Entry, Kind, Level, Mtype, PteFlags, PteFormat};
use amdev_core::mm::tlsf::{Block, Tlsf, TlsfError};
use amdev_core::mm::vm::{AllocOptions, MapFlags, Running, VA_BASE, VaRange, Vm, VmConfig, VmError};
use amdev_core::mm::walk::{Run, dump, translate};
use amdev_tests::golden_pt::model::{Attr, Pages, read_tables};
use amdev_tests::golden_tlsf::Layout;
use amdev_tests::table_memory::TableVram;
use proptest::prelude::*;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

/// Runs `test` with a device that has `pool` bytes of VRAM to hand out, and `slots` blocks for them.
fn with_vm<R>(
    format: PteFormat,
    pool: u64,
    slots: usize,
    test: impl FnOnce(&mut Vm<'_, Running>, &mut TableVram, &VaRange<'_>) -> R,
) -> R {
    let mut va_blocks = vec![Block::EMPTY; 512];
    let mut boot_blocks = vec![Block::EMPTY; 64];
    let mut pool_blocks = vec![Block::EMPTY; slots];
    let va = VaRange::new(&mut va_blocks).unwrap();
    let config = VmConfig { pool: 32 * MIB..32 * MIB + pool, ..VmConfig::for_vram(format, 16 * GIB) };
    let mut mem = TableVram::default();
    let vm = Vm::new(&mut mem, &config, &mut boot_blocks, &mut pool_blocks, &va).unwrap();
    test(&mut vm.boot_done(), &mut mem, &va)
}

fn runs(vm: &Vm<'_, Running>, mem: &mut TableVram) -> Vec<Run> {
    let mut all = Vec::new();
    let space = vm.space();
    dump(mem, &space, space.range(), |run| all.push(run)).unwrap();
    all
}

fn shape(runs: &[Run]) -> Vec<(u64, u64, u64, u8)> {
    runs.iter().map(|r| (r.va - VA_BASE, r.size / r.page, r.page, r.fragment)).collect()
}

#[test]
fn c13_empty_tables_give_way_to_a_huge_page() {
    for format in [PteFormat::Gfx11, PteFormat::Gfx12] {
        with_vm(format, GIB, 256, |vm, mem, _| {
            let (free, va) = (vm.pool().free_bytes(), VA_BASE + 0x100_0000);
            for off in [0, 0x3000, 0x10000] {
                for at in (off..2 * MIB).step_by(0x1000) {
                    let page = [Segment { addr: 0x4000_0000 + 3 * at, len: 0x1000 }];
                    vm.map(mem, va + at, 0x1000, &page, MapFlags::empty()).unwrap();
                }
                vm.unmap(mem, va + off, 2 * MIB - off).unwrap();
                assert_eq!(vm.pool().free_bytes(), free);
                let huge = [Segment { addr: 0x4000_0000, len: 2 * MIB }];
                vm.map(mem, va, 2 * MIB, &huge, MapFlags::empty()).unwrap();
                assert_eq!(shape(&runs(vm, mem)), [(0x100_0000, 1, 2 * MIB, 9)]);
                vm.unmap(mem, va, 2 * MIB).unwrap();
                assert_eq!(vm.pool().free_bytes(), free);
                assert!(runs(vm, mem).is_empty());
            }
        });
    }
}

#[test]
fn c14_failed_map_and_unmap_leave_the_first_mapping_alone() {
    with_vm(PteFormat::Gfx11, GIB, 64, |vm, mem, _| {
        let at = |addr: u64, len: u64| [Segment { addr, len }];
        vm.map(mem, VA_BASE + 0x12000, 0x1000, &at(0x5000, 0x1000), MapFlags::empty()).unwrap();
        let (before, free) = (mem.words().clone(), vm.pool().free_bytes());
        let map = vm.map(mem, VA_BASE + 0x10000, 0x4000, &at(0x8000, 0x4000), MapFlags::empty());
        assert_eq!(map, Err(VmError::AlreadyMapped { va: VA_BASE + 0x12000 }));
        let unmap = vm.unmap(mem, VA_BASE + 0x11000, 0x2000);
        assert_eq!(unmap, Err(VmError::NotMapped { va: VA_BASE + 0x11000 }));
        assert_eq!((mem.words(), vm.pool().free_bytes()), (&before, free));
        assert_eq!(shape(&runs(vm, mem)), [(0x12000, 1, 0x1000, 0)]);
    });
}

#[test]
fn c16_fragments_are_as_wide_as_both_addresses_and_the_run_allow() {
    with_vm(PteFormat::Gfx12, GIB, 64, |vm, mem, _| {
        let same = |addr: u64, len: u64| [Segment { addr, len }];
        vm.map(mem, VA_BASE + 0x38000, 0x303000, &same(0x38000, 0x303000), MapFlags::empty()).unwrap();
        let pages = [(0x38000, 456, 0x1000, 3), (0x200000, 315, 0x1000, 0)];
        assert_eq!(shape(&runs(vm, mem)), pages);
        vm.unmap(mem, VA_BASE + 0x38000, 0x303000).unwrap();
        vm.map(mem, VA_BASE + 0x1ff000, 0x202000, &same(0x1ff000, 0x202000), MapFlags::empty()).unwrap();
        let pages = [(0x1ff000, 1, 0x1000, 0), (0x200000, 1, 2 * MIB, 9), (0x400000, 1, 0x1000, 0)];
        assert_eq!(shape(&runs(vm, mem)), pages);
        vm.unmap(mem, VA_BASE + 0x1ff000, 0x202000).unwrap();
        // A physical address that is aligned less narrows pages and fragments.
        vm.map(mem, VA_BASE, 2 * MIB, &same(0x4000_4000, 2 * MIB), MapFlags::empty()).unwrap();
        assert_eq!(shape(&runs(vm, mem)), [(0, 512, 0x1000, 2)]);
    });
}

#[test]
fn what_stays_of_a_fragment_no_longer_claims_what_was_unmapped() {
    with_vm(PteFormat::Gfx11, GIB, 64, |vm, mem, _| {
        let all = [Segment { addr: 0x4000_0000, len: 0x20000 }];
        vm.map(mem, VA_BASE, 0x20000, &all, MapFlags::empty()).unwrap();
        assert_eq!(shape(&runs(vm, mem)), [(0, 32, 0x1000, 5)]);
        vm.unmap(mem, VA_BASE + 0x6000, 0x2000).unwrap();
        assert_eq!(shape(&runs(vm, mem)), [(0, 6, 0x1000, 1), (0x8000, 24, 0x1000, 3)]);
    });
}

#[test]
fn c18_the_reserved_tail_is_never_handed_out() {
    let config = VmConfig::for_vram(PteFormat::Gfx11, 24560 * MIB);
    assert_eq!((config.pool.start, config.pool.end), (0x200_0000, 0x5_FB00_0000));
    let (mut va, mut boot, mut pool) =
        (vec![Block::EMPTY; 512], vec![Block::EMPTY; 16], vec![Block::EMPTY; 512]);
    let range = VaRange::new(&mut va).unwrap();
    let mut mem = TableVram::default();
    let mut vm = Vm::new(&mut mem, &config, &mut boot, &mut pool, &range).unwrap().boot_done();
    let mut size = 16 * GIB;
    while size >= 0x1000 {
        match vm.valloc(&mut mem, size, &AllocOptions::default()) {
            Ok(_) => {}
            Err(VmError::Memory(TlsfError::OutOfMemory { .. })) => size /= 2,
            Err(error) => panic!("{error}"),
        }
    }
    assert!(vm.pool().free_bytes() < 0x4000);
    let all = runs(&vm, &mut mem);
    assert!(all.iter().map(|r| r.size).sum::<u64>() > 23 * GIB);
    for run in all {
        assert!(run.pa >= 0x200_0000 && run.pa + run.size <= 0x5_FB00_0000, "{run:x?}");
    }
    for block in vm.pool().blocks() {
        assert!(block.addr >= 0x200_0000 && block.addr + block.size <= 0x5_FB00_0000);
    }
}

#[test]
fn addresses_that_four_levels_cannot_translate_are_refused() {
    with_vm(PteFormat::Gfx11, GIB, 64, |vm, mem, _| {
        let page = [Segment { addr: 0x1000, len: 0x1000 }];
        let last = VA_BASE + (1 << 48) - 0x1000;
        vm.map(mem, last, 0x1000, &page, MapFlags::empty()).unwrap();
        assert_eq!(mem.word(511 * 8) & 1, 1);
        for va in [last + 0x1000, VA_BASE - 0x1000, 0, u64::MAX - 0xfff] {
            let mapped = vm.map(mem, va, 0x1000, &page, MapFlags::empty());
            assert!(matches!(mapped, Err(VmError::OutOfSpace { .. })), "{va:#x}");
        }
        let two = [Segment { addr: 0x1000, len: 0x2000 }];
        assert!(matches!(
            vm.map(mem, last, 0x2000, &two, MapFlags::empty()),
            Err(VmError::OutOfSpace { .. })
        ));
    });
}

#[test]
fn bad_arguments_are_named_and_change_nothing() {
    with_vm(PteFormat::Gfx12, GIB, 64, |vm, mem, _| {
        let map = |vm: &mut Vm<'_, Running>, mem: &mut TableVram, addr: u64, len: u64| {
            vm.map(mem, VA_BASE, len, &[Segment { addr, len }], MapFlags::empty())
        };
        let before = mem.words().clone();
        assert_eq!(map(vm, mem, 0x1800, 0x1000), Err(VmError::Unaligned(0x1800)));
        assert_eq!(map(vm, mem, 0x1000, 0x800), Err(VmError::Unaligned(0x800)));
        assert_eq!(map(vm, mem, 0x1000, 0), Err(VmError::ZeroSize));
        assert!(matches!(map(vm, mem, (1 << 44) - 0x1000, 0x2000), Err(VmError::Physical(_))));
        assert!(matches!(map(vm, mem, u64::MAX - 0xfff, 0x2000), Err(VmError::Physical(_))));
        let short = vm.map(mem, VA_BASE, 0x2000, &[Segment { addr: 0, len: 0x1000 }], MapFlags::empty());
        assert_eq!(short, Err(VmError::SizeMismatch { size: 0x2000, segments: 0x1000 }));
        assert_eq!(vm.valloc(mem, 0, &AllocOptions::default()), Err(VmError::ZeroSize));
        let odd = AllocOptions { align: 0x3000, ..AllocOptions::default() };
        assert!(matches!(vm.valloc(mem, 1, &odd), Err(VmError::Virtual(TlsfError::BadAlign { .. }))));
        assert!(matches!(vm.valloc(mem, u64::MAX, &AllocOptions::default()), Err(VmError::Memory(_))));
        assert!(matches!(vm.vfree(mem, VA_BASE), Err(VmError::Virtual(TlsfError::NotAllocated { .. }))));
        assert_eq!((mem.words(), vm.pool().allocations(), mem.flushes), (&before, 0, 0));
    });
}

#[test]
fn host_memory_gives_its_addresses_back_and_cannot_be_freed_as_vram() {
    with_vm(PteFormat::Gfx11, GIB, 64, |vm, mem, va| {
        let host = [Segment { addr: 0x1_2345_6000, len: 0x3000 }, Segment { addr: 0x8000, len: 0x1000 }];
        let free = (va.free_bytes(), vm.pool().free_bytes());
        let own = vm.map_new(mem, 0x1000, &host, MapFlags::HOST).unwrap();
        let first = runs(vm, mem)[0];
        assert!(first.flags.contains(PteFlags::SYSTEM | PteFlags::SNOOPED));
        assert_eq!(first.mtype, Mtype::UNCACHED);
        let freed = vm.vfree(mem, own.va);
        assert_eq!(freed, Err(VmError::Foreign { va: own.va, pa: 0x1_2345_6000 }));
        vm.unmap_new(mem, own.va).unwrap();
        assert_eq!((va.free_bytes(), vm.pool().free_bytes()), free);
        assert_eq!(translate(mem, &vm.space(), own.va), Ok(None));
    });
}

#[test]
fn a_table_of_the_boot_goes_back_to_the_boot_region() {
    let (mut va, mut boot, mut pool) = ([Block::EMPTY; 8], [Block::EMPTY; 8], [Block::EMPTY; 8]);
    let range = VaRange::new(&mut va).unwrap();
    let config = VmConfig::for_vram(PteFormat::Gfx12, GIB);
    let mut mem = TableVram::default();
    let mut vm = Vm::new(&mut mem, &config, &mut boot, &mut pool, &range).unwrap();
    let free = (vm.boot_region().free_bytes(), vm.pool().free_bytes());
    let page = [Segment { addr: 0x20_0000, len: 0x1000 }];
    vm.map(&mut mem, VA_BASE, 0x1000, &page, MapFlags::HOST).unwrap();
    assert_eq!(vm.boot_region().free_bytes(), free.0 - 0x3000);
    let mut vm = vm.boot_done();
    vm.unmap(&mut mem, VA_BASE, 0x1000).unwrap();
    assert_eq!((vm.boot_region().free_bytes(), vm.pool().free_bytes()), free);
}

#[test]
fn devices_that_share_a_range_never_get_the_same_address() {
    let mut va = [Block::EMPTY; 64];
    let range = VaRange::new(&mut va).unwrap();
    let mut storage = vec![[Block::EMPTY; 64]; 4];
    let (a, b) = storage.split_at_mut(2);
    let (a0, a1) = a.split_at_mut(1);
    let (b0, b1) = b.split_at_mut(1);
    let config = VmConfig::for_vram(PteFormat::Gfx12, GIB);
    let (mut ma, mut mb) = (TableVram::default(), TableVram::default());
    let mut one = Vm::new(&mut ma, &config, &mut a0[0], &mut a1[0], &range).unwrap().boot_done();
    let mut two = Vm::new(&mut mb, &config, &mut b0[0], &mut b1[0], &range).unwrap().boot_done();
    let x = one.valloc(&mut ma, 3 * MIB, &AllocOptions::default()).unwrap();
    let y = two.valloc(&mut mb, 3 * MIB, &AllocOptions::default()).unwrap();
    assert!(x.va + x.size <= y.va || y.va + y.size <= x.va);
    // The same address on both: mapped on the second, unmapped there before it is freed.
    let peer = [Segment { addr: 0x8_0000_0000, len: x.size }];
    two.map(&mut mb, x.va, x.size, &peer, MapFlags::PEER).unwrap();
    two.unmap(&mut mb, x.va, x.size).unwrap();
    one.vfree(&mut ma, x.va).unwrap();
    two.vfree(&mut mb, y.va).unwrap();
    assert_eq!(range.reservations(), 0);
}

proptest! {
    #[test]
    fn entries_survive_a_round_trip(
        gfx12: bool, level in 0usize..4, addr in 0u64..1 << 32, flags in 0u64..64, mtype in 0u8..4,
        fragment in 0u8..32, table: bool,
    ) {
        let format = if gfx12 { PteFormat::Gfx12 } else { PteFormat::Gfx11 };
        let level = Level::ALL[level];
        let kind = if table && level != Level::Ptb { Kind::Table } else { Kind::Page };
        let flags = PteFlags::from_bits_truncate(flags << 1) | PteFlags::VALID;
        let entry = Entry { kind, addr: addr << 12, flags, mtype: Mtype(mtype), fragment };
        let raw = format.encode(level, &entry).unwrap();
        prop_assert_eq!(format.decode(level, raw), Some(entry));
        prop_assert_eq!(format.decode(level, raw & !1), None);
        for bad in [addr << 12 | 0x800, 1 << 44] {
            let refused = format.encode(level, &Entry { addr: bad, ..entry }).is_err();
            prop_assert!(refused);
        }
    }
}

#[derive(Clone, Debug)]
enum TlsfOp {
    Alloc(u64, u32),
    Free(usize),
}

fn tlsf_ops() -> impl Strategy<Value = Vec<TlsfOp>> {
    let alloc = (prop_oneof![1u64..64, 1u64..0x2000, 1u64..0x20000], 0u32..14);
    let op = prop_oneof![
        3 => alloc.prop_map(|(s, a)| TlsfOp::Alloc(s, a)),
        2 => any::<usize>().prop_map(TlsfOp::Free),
    ];
    proptest::collection::vec(op, 1..120)
}

proptest! {
    #[test]
    fn the_allocator_agrees_with_a_plain_model(
        base in (0u64..1 << 40), size in 1u64..0x40000, slots in 1usize..64, ops in tlsf_ops(),
    ) {
        let range = base..base + size;
        let mut blocks = vec![Block::EMPTY; slots];
        let mut tlsf = Tlsf::new(range.clone(), 16, &mut blocks).unwrap();
        let mut model = Layout::default();
        for op in ops {
            match op {
                TlsfOp::Alloc(size, shift) => {
                    let (taken, align) = (size.max(16), 1 << shift);
                    let fits = model.fits(&range, taken, align);
                    match tlsf.alloc(size, align) {
                        Ok(addr) => {
                            prop_assert_eq!(addr % align, 0);
                            prop_assert_eq!(model.add(addr, taken, &range), None);
                        }
                        Err(TlsfError::OutOfMemory { .. }) => prop_assert!(!fits),
                        Err(TlsfError::OutOfSlots { .. }) => prop_assert!(fits && tlsf.slots_left() < 2),
                        Err(error) => prop_assert!(false, "{}", error),
                    }
                }
                TlsfOp::Free(k) => {
                    let Some((addr, size)) = model.0.iter().nth(k % model.0.len().max(1)).map(|(a, s)| (*a, *s))
                    else { continue };
                    if !model.0.contains_key(&(addr + 1)) {
                        prop_assert_eq!(tlsf.free(addr + 1), Err(TlsfError::NotAllocated { addr: addr + 1 }));
                    }
                    prop_assert_eq!(tlsf.free(addr), Ok(size));
                    prop_assert_eq!(tlsf.free(addr), Err(TlsfError::NotAllocated { addr }));
                    model.0.remove(&addr);
                }
            }
            let gaps = model.gaps(&range);
            let free: Vec<_> = tlsf.blocks().filter(|b| b.free).map(|b| (b.addr, b.size)).collect();
            let used: BTreeMap<_, _> = tlsf.blocks().filter(|b| !b.free).map(|b| (b.addr, b.size)).collect();
            prop_assert_eq!(&free, &gaps);
            prop_assert_eq!(&used, &model.0);
            prop_assert_eq!(tlsf.free_bytes(), gaps.iter().map(|g| g.1).sum::<u64>());
            prop_assert_eq!(tlsf.largest_free(), gaps.iter().map(|g| g.1).max().unwrap_or(0));
            prop_assert_eq!(tlsf.allocations(), model.0.len());
            prop_assert_eq!(tlsf.slots_left(), slots - gaps.len() - model.0.len());
        }
    }
}

#[derive(Clone, Debug)]
enum VmOp {
    /// Pages from the start of the window, length in pages, physical page, flags.
    Map(u64, u64, u64, u8),
    Unmap(u64, u64),
    /// Bytes, contiguous, flags.
    Valloc(u64, bool, u8),
    Vfree(usize),
}

fn vm_ops() -> impl Strategy<Value = Vec<VmOp>> {
    // A window of 8 MiB away from the reserved addresses; starts and lengths that meet often.
    let at = prop_oneof![(0u64..16), (0u64..2048), (0u64..4).prop_map(|k| k * 512), 496u64..528];
    let len = prop_oneof![(1u64..20), (1u64..1200), (1u64..3).prop_map(|k| k * 512)];
    let pa = prop_oneof![(0u64..4096), (0u64..64).prop_map(|k| k * 512)];
    let size = prop_oneof![1u64..0x20000, 1u64..6 * MIB, Just(2 * MIB), Just(4 * MIB)];
    let op = prop_oneof![
        4 => (at.clone(), len.clone(), pa, 0u8..8).prop_map(|(a, l, p, f)| VmOp::Map(a, l, p, f)),
        3 => (at, len).prop_map(|(a, l)| VmOp::Unmap(a, l)),
        4 => (size, any::<bool>(), 0u8..8).prop_map(|(s, c, f)| VmOp::Valloc(s, c, f)),
        3 => any::<usize>().prop_map(VmOp::Vfree),
    ];
    proptest::collection::vec(op, 1..40)
}

const WINDOW: u64 = VA_BASE + 600 * GIB;

/// The model, and the invariants that hold after each call.
#[derive(Clone, Default)]
struct Model {
    pages: Pages,
    live: Vec<(u64, u64)>,
}

/// What a failed call must not have changed.
fn state(
    vm: &Vm<'_, Running>,
    mem: &TableVram,
    va: &VaRange<'_>,
) -> impl PartialEq + std::fmt::Debug + use<> {
    let tables = read_tables(mem, vm.space().format, VA_BASE, vm.space().root);
    let blocks: Vec<_> = vm.pool().blocks().collect();
    (tables.words, blocks, vm.boot_region().free_bytes(), va.free_bytes(), va.reservations())
}

fn attr(flags: u8) -> (Attr, MapFlags) {
    let attr = Attr { system: flags & 1 != 0, snooped: flags & 2 != 0, uncached: flags & 4 != 0 };
    let mut map = MapFlags::empty();
    map.set(MapFlags::SYSTEM, attr.system);
    map.set(MapFlags::SNOOPED, attr.snooped);
    map.set(MapFlags::UNCACHED, attr.uncached);
    (attr, map)
}

impl Model {
    /// Makes a call, compares it with the model, and returns whether it succeeded.
    fn call(
        &mut self,
        op: &VmOp,
        vm: &mut Vm<'_, Running>,
        mem: &mut TableVram,
        va: &VaRange<'_>,
    ) -> Result<bool, TestCaseError> {
        let before = state(vm, mem, va);
        let flushes = mem.flushes;
        let may_fail = !mem.fail.is_empty();
        let done = match op {
            VmOp::Map(at, len, pa, flags) => {
                let (at, len, (attr, flags)) = (WINDOW + at * 0x1000, len * 0x1000, attr(*flags));
                let segments = [Segment { addr: pa << 12, len }];
                let taken = self.covered(at, len) > 0;
                let done = vm.map(mem, at, len, &segments, flags);
                if done.is_ok() {
                    prop_assert!(!taken);
                    self.pages.map(VA_BASE, at, &segments, attr);
                } else if !may_fail {
                    let full = matches!(done, Err(VmError::Memory(_)));
                    let named = taken && matches!(done, Err(VmError::AlreadyMapped { .. }));
                    prop_assert!(full || named);
                }
                done
            }
            VmOp::Unmap(at, len) => {
                let (at, len) = (WINDOW + at * 0x1000, len * 0x1000);
                let whole = self.covered(at, len) == len && self.begins(at) && self.begins(at + len);
                let done = vm.unmap(mem, at, len);
                if done.is_ok() {
                    prop_assert!(whole);
                    self.pages.unmap(VA_BASE, at, len);
                } else if !may_fail {
                    prop_assert!(!whole, "{:?}", done);
                }
                done
            }
            VmOp::Valloc(size, contiguous, flags) => {
                let (attr, flags) = attr(*flags & 6);
                let options = AllocOptions { flags, contiguous: *contiguous, ..AllocOptions::default() };
                let done = vm.valloc(mem, *size, &options);
                if let Ok(own) = done {
                    prop_assert_eq!(own.size, size.next_multiple_of(0x1000));
                    prop_assert_eq!(self.covered(own.va, own.size), 0);
                    let pages = read_tables(mem, vm.space().format, VA_BASE, vm.space().root).pages;
                    let pieces = pages.segments(own.va, own.size);
                    prop_assert!(!contiguous || pieces.len() == 1);
                    for piece in &pieces {
                        prop_assert!(vm.pool().contains(piece.addr));
                        prop_assert!(vm.pool().contains(piece.addr + piece.len - 1));
                        for (va, size) in &self.live {
                            for s in self.pages.segments(*va, *size) {
                                prop_assert!(
                                    s.addr + s.len <= piece.addr || piece.addr + piece.len <= s.addr
                                );
                            }
                        }
                    }
                    self.pages.map(VA_BASE, own.va, &pieces, attr);
                    self.live.push((own.va, own.size));
                } else if !may_fail {
                    prop_assert!(matches!(done, Err(VmError::Memory(_))), "{:?}", done);
                }
                done.map(drop)
            }
            VmOp::Vfree(k) => {
                if self.live.is_empty() {
                    return Ok(true);
                }
                let k = k % self.live.len();
                let (own, size) = self.live[k];
                let done = vm.vfree(mem, own);
                if done.is_ok() {
                    self.live.remove(k);
                    self.pages.forget(own, size);
                } else {
                    prop_assert!(may_fail, "{:?}", done);
                }
                done
            }
        };
        prop_assert!(!vm.is_lost());
        prop_assert_eq!(mem.flushes - flushes, u64::from(done.is_ok()));
        if done.is_err() {
            prop_assert_eq!(before, state(vm, mem, va));
        }
        self.check(vm, mem, va)?;
        Ok(done.is_ok())
    }

    fn covered(&self, va: u64, size: u64) -> u64 {
        let pages = self.pages.0.iter();
        pages.map(|(at, p)| (at + p.size).min(va + size).saturating_sub((*at).max(va))).sum()
    }

    /// Whether no page goes on across an address.
    fn begins(&self, va: u64) -> bool {
        self.pages.0.range(..va).next_back().is_none_or(|(at, p)| at + p.size <= va)
    }

    fn check(&self, vm: &Vm<'_, Running>, mem: &TableVram, va: &VaRange<'_>) -> Result<(), TestCaseError> {
        let tables = read_tables(mem, vm.space().format, VA_BASE, vm.space().root);
        prop_assert!(tables.wrong.is_empty(), "{:?}", tables.wrong);
        prop_assert_eq!(tables.stale, 0);
        prop_assert!(tables.pages == self.pages, "{}", self.pages.first_difference(&tables.pages));
        prop_assert_eq!(tables.addrs.len(), self.pages.tables(VA_BASE));
        let data: u64 = self.live.iter().map(|l| l.1).sum();
        let range = vm.pool().range();
        let used = range.end - range.start - vm.pool().free_bytes();
        prop_assert_eq!(used, data + 0x1000 * (tables.addrs.len() as u64 - 1));
        prop_assert_eq!(va.reservations(), self.live.len());
        Ok(())
    }
}

/// Frees everything and looks for what leaked.
fn finish(
    mut model: Model,
    vm: &mut Vm<'_, Running>,
    mem: &mut TableVram,
    va: &VaRange<'_>,
) -> Result<(), TestCaseError> {
    while !model.live.is_empty() {
        prop_assert!(model.call(&VmOp::Vfree(0), vm, mem, va)?);
    }
    let pages: Vec<_> = model.pages.0.iter().map(|(va, p)| (*va, p.size)).collect();
    for (at, size) in pages {
        vm.unmap(mem, at, size).unwrap();
    }
    prop_assert_eq!(vm.pool().allocations(), 0);
    prop_assert_eq!(vm.boot_region().allocations(), 1);
    prop_assert_eq!(mem.words().range(0..4096).count(), 0);
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn calls_agree_with_a_plain_model(gfx12: bool, pool in 8u64..3000, slots in 8usize..200, ops in vm_ops()) {
        let format = if gfx12 { PteFormat::Gfx12 } else { PteFormat::Gfx11 };
        with_vm(format, pool * 4 * KIB, slots, |vm, mem, va| {
            let mut model = Model::default();
            for op in &ops {
                model.call(op, vm, mem, va)?;
            }
            finish(model, vm, mem, va)
        })?;
    }

    #[test]
    fn a_bus_error_at_any_access_leaves_nothing_behind(gfx12: bool, pool in 64u64..3000, ops in vm_ops()) {
        let format = if gfx12 { PteFormat::Gfx12 } else { PteFormat::Gfx11 };
        with_vm(format, pool * 4 * KIB, 200, |vm, mem, va| {
            let mut model = Model::default();
            for op in ops.iter().take(12) {
                // Each access of the call fails once, until the call gets through without.
                for k in 0.. {
                    let start = mem.accesses;
                    mem.fail = start + k..start + k + 1;
                    let done = model.call(op, vm, mem, va)?;
                    let reached = mem.accesses > start + k;
                    mem.fail = 0..0;
                    if done || !reached {
                        break;
                    }
                }
            }
            finish(model, vm, mem, va)
        })?;
    }
}

#[test]
fn a_dead_bus_makes_the_space_lost_and_gives_back_what_the_host_keeps() {
    let all = with_vm(PteFormat::Gfx11, 64 * MIB, 64, |vm, mem, _| {
        vm.valloc(mem, 3 * MIB, &AllocOptions::default()).unwrap();
        mem.accesses
    });
    for k in 0..all {
        with_vm(PteFormat::Gfx11, 64 * MIB, 64, |vm, mem, va| {
            mem.fail = k.max(1)..u64::MAX;
            let done = vm.valloc(mem, 3 * MIB, &AllocOptions::default());
            assert!(matches!(done, Err(VmError::Bus(_))), "{k}: {done:?}");
            assert_eq!(va.reservations(), 0);
            if vm.is_lost() {
                mem.fail = 0..0;
                assert_eq!(vm.valloc(mem, 1, &AllocOptions::default()), Err(VmError::Lost));
            }
        });
    }
}

#[test]
fn every_access_counts_and_a_large_mapping_needs_few() {
    with_vm(PteFormat::Gfx12, 256 * MIB, 64, |vm, mem, _| {
        let start = mem.accesses;
        vm.valloc(mem, 16 * MIB, &AllocOptions::default()).unwrap();
        // Two tables zeroed and linked, one run of eight 2 MiB pages, one flush; the rest are reads.
        assert!(mem.accesses - start <= 10, "{}", mem.accesses - start);
    });
}
