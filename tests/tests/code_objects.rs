//! Code objects beyond the recorded ones: relocatable objects, targets, arguments, launches.

use amdev_core::iface::{Properties, Target};
use amdev_core::program::{
    CodeObject, HiddenValues, KernelDescriptor, ProgramError, SgprSources, ValueKind, msgpack,
};
use amdev_core::queue::dispatch::Launch;
use amdev_tests::corpus;
use amdev_tests::fuzz::{Linked, LinkedKernel, Tree, relocatable};
use proptest::prelude::*;

#[test]
fn a_relocatable_object_is_laid_out_and_its_entry_found() {
    let file = relocatable(&[]);
    let object = CodeObject::parse(&file).unwrap();
    let places: Vec<_> = object.segments().map(|s| (s.vaddr, s.size)).collect();
    assert_eq!(places, [(0, 256), (256, 64), (320, 32)]);
    let kernel = object.kernel("k").unwrap();
    assert_eq!((kernel.descriptor_vaddr, kernel.entry, kernel.code_size), (256, 0, Some(256)));
}

#[test]
fn rel64_is_symbol_plus_addend_minus_place_in_signed_64_bits() {
    // `table` is at .data + 8 = 328; the places are .data + 0 and + 16.
    let file = relocatable(&[(0, 5, 4, 0x10), (16, 5, 1, -0x20)]);
    let object = CodeObject::parse(&file).unwrap();
    for base in [0u64, 0x2000_0000_0000, u64::MAX - 0xfff] {
        let values: Vec<_> = object
            .patches(base)
            .map(|p| p.unwrap())
            .filter(|p| p.offset >= 320)
            .map(|p| (p.offset, p.len, p.value as i64))
            .collect();
        assert_eq!(values, [(320, 8, 328 + 0x10 - 320), (336, 8, -0x20 - 336)]);
    }
}

#[test]
fn rel32_halves_and_absolute_values_are_stored_at_their_widths() {
    let file = relocatable(&[(0, 10, 1, 0), (4, 11, 1, 0), (8, 4, 4, 0), (16, 3, 4, 1)]);
    let object = CodeObject::parse(&file).unwrap();
    let base = 0x2000_0000_0000u64;
    let patches: Vec<_> = object.patches(base).map(|p| p.unwrap()).filter(|p| p.offset >= 320).collect();
    let shown: Vec<_> = patches.iter().map(|p| (p.len, p.value)).collect();
    let low = (0i64 - 320) as u64;
    assert_eq!(shown[0], (4, low & 0xffff_ffff));
    assert_eq!(shown[1], (4, (0i64 - 324) as u64 >> 32));
    assert_eq!((shown[2].0, shown[2].1 as u32), (4, 0));
    assert_eq!(shown[3], (8, base + 329));
}

#[test]
fn an_undefined_symbol_is_named() {
    let file = relocatable(&[(0, 5, 3, 0)]);
    let error = CodeObject::parse(&file).map(drop).unwrap_err();
    assert!(matches!(error, ProgramError::UndefinedSymbol { .. }));
    assert!(error.to_string().contains("`missing`"), "{error}");
}

#[test]
fn a_32_bit_distance_to_no_symbol_fits_nowhere() {
    let file = relocatable(&[(4, 4, 0, 0)]);
    let error = CodeObject::parse(&file).map(drop).unwrap_err();
    assert!(matches!(error, ProgramError::RelocationOverflow { offset: 324, .. }), "{error:?}");
}

#[test]
fn relocation_type_1_is_rejected() {
    let file = relocatable(&[(8, 1, 4, 0)]);
    let error = CodeObject::parse(&file).map(drop).unwrap_err();
    assert_eq!(error, ProgramError::RelocationType { kind: 1, offset: 328 });
}

#[test]
fn kfd_versions_are_targets() {
    for (version, name) in
        [(90402, "gfx942"), (90010, "gfx90a"), (120001, "gfx1201"), (110000, "gfx1100"), (100306, "gfx1036")]
    {
        assert_eq!(Target::from_kfd(version).unwrap().to_string(), name);
    }
    assert_eq!(Target::from_kfd(u32::MAX), None);
}

#[test]
fn an_object_for_another_device_is_refused_and_both_are_named() {
    let file = corpus("co/vecadd.gfx1201.v5.O2.co").unwrap();
    let object = CodeObject::parse(&file).unwrap();
    object.check_target(Target::new(12, 0, 1)).unwrap();
    let error = object.check_target(Target::new(11, 0, 0)).unwrap_err().to_string();
    assert!(error.contains("gfx1201") && error.contains("gfx1100"), "{error}");
}

#[test]
fn a_generic_object_runs_on_its_family_only() {
    let file = corpus("co/vecadd.gfx11-generic.v6.O2.co").unwrap();
    let object = CodeObject::parse(&file).unwrap();
    for (target, fits) in [((11, 0, 0), true), ((11, 0, 3), true), ((11, 5, 1), true), ((12, 0, 0), false)] {
        let target = Target::new(target.0, target.1, target.2);
        assert_eq!(object.check_target(target).is_ok(), fits, "{target}");
    }
}

#[test]
fn arguments_are_placed_by_the_metadata() {
    let file = corpus("co/saxpy.gfx1100.v5.O2.co").unwrap();
    let object = CodeObject::parse(&file).unwrap();
    let kernel = object.only_kernel().unwrap();
    let sizes: Vec<_> = kernel.metadata.unwrap().args().map(|a| a.unwrap()).collect();
    let explicit: Vec<_> = sizes.iter().filter(|a| !a.value_kind.is_hidden()).collect();
    let values: Vec<Vec<u8>> =
        explicit.iter().enumerate().map(|(i, a)| vec![i as u8 + 1; a.size as usize]).collect();
    let slices: Vec<&[u8]> = values.iter().map(Vec::as_slice).collect();
    let mut out = vec![0; kernel.descriptor.kernarg_size as usize];
    kernel.fill_args(&slices, &mut out).unwrap();
    for (arg, value) in explicit.iter().zip(&values) {
        assert_eq!(&out[arg.offset as usize..][..arg.size as usize], value);
    }
    let missing = kernel.fill_args(&slices[1..], &mut out).unwrap_err();
    assert!(matches!(missing, ProgramError::ArgCount { .. } | ProgramError::ArgSize { .. }), "{missing}");
    let mut wrong = slices.clone();
    wrong[0] = &[0; 3];
    let error = kernel.fill_args(&wrong, &mut out).unwrap_err().to_string();
    assert!(error.contains("argument 0"), "{error}");
    assert!(kernel.fill_args(&slices, &mut out[..4]).is_err());
}

#[test]
fn hidden_arguments_hold_the_launch() {
    let file = corpus("co/implicit.gfx1100.v5.O2.co").unwrap();
    let object = CodeObject::parse(&file).unwrap();
    let kernel = object.kernel("implicit").unwrap();
    let mut out = vec![0xee; kernel.descriptor.kernarg_size as usize];
    let launch = Launch { grid: [3, 2, 1], block: [32, 4, 1] };
    let values = HiddenValues { global_offset: [5, 6, 7], ..Default::default() };
    kernel.fill_hidden(&launch, &values, &mut out).unwrap();
    let get = |kind: ValueKind<'_>| {
        let arg = kernel.metadata.unwrap().args().map(|a| a.unwrap()).find(|a| a.value_kind == kind).unwrap();
        let bytes = &out[arg.offset as usize..][..arg.size as usize];
        bytes.iter().rev().fold(0u64, |v, b| v << 8 | u64::from(*b))
    };
    assert_eq!([ValueKind::BlockCountX, ValueKind::BlockCountY, ValueKind::BlockCountZ].map(get), [3, 2, 1]);
    assert_eq!([ValueKind::GroupSizeX, ValueKind::GroupSizeY, ValueKind::GroupSizeZ].map(get), [32, 4, 1]);
    assert_eq!([ValueKind::RemainderX, ValueKind::RemainderY, ValueKind::RemainderZ].map(get), [0, 0, 0]);
    let offsets = [ValueKind::GlobalOffsetX, ValueKind::GlobalOffsetY, ValueKind::GlobalOffsetZ];
    assert_eq!(offsets.map(get), [5, 6, 7]);
    assert_eq!(get(ValueKind::GridDims), 2);
    // The layout of code object version 5: everything relative to the hidden block.
    let start = out.len() - 256;
    assert_eq!(out[start..start + 12], [3, 0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0]);
}

#[test]
fn preloaded_arguments_fill_the_sgprs_after_the_pointer() {
    let file = corpus("co/vecadd.gfx942_preload.v5.O2.co").unwrap();
    let object = CodeObject::parse(&file).unwrap();
    let kernel = object.only_kernel().unwrap();
    let (count, skip) = kernel.descriptor.preload();
    assert!(count > 0);
    let bytes: Vec<u8> = (0..24).collect();
    let mut out = [0; 16];
    let from = SgprSources { kernargs: 0x1_2345_6780, kernarg_bytes: &bytes, ..Default::default() };
    let used = kernel.fill_user_sgprs(&from, &mut out).unwrap();
    let preloaded = &out[used - usize::from(count)..used];
    let first = usize::from(skip) * 4;
    assert_eq!(preloaded[0].to_le_bytes(), bytes[first..first + 4]);
}

#[test]
fn a_block_size_the_kernel_was_not_compiled_for_is_refused() {
    let file = corpus("co/vecadd.gfx1100.v5.O2.co").unwrap();
    let object = CodeObject::parse(&file).unwrap();
    let kernel = object.only_kernel().unwrap();
    kernel.check_launch(&Launch { grid: [1; 3], block: [256, 1, 1] }).unwrap();
    let error = kernel.check_launch(&Launch { grid: [1; 3], block: [128, 1, 1] }).unwrap_err();
    assert!(error.to_string().contains("256x1x1"), "{error}");
    assert!(Launch { grid: [1; 3], block: [64, 64, 1] }.check().is_err());
    assert!(Launch { grid: [0, 1, 1], block: [1; 3] }.check().is_err());
    assert!(Launch { grid: [16_777_216, 1, 1], block: [256, 1, 1] }.check().is_err());
    assert!(Launch { grid: [16_777_215, 1, 1], block: [256, 1, 1] }.check().is_ok());
}

#[test]
fn more_lds_than_the_device_has_is_refused_with_both_sizes() {
    let file = corpus("co/reduce_lds.gfx1100.v5.O2.co").unwrap();
    let object = CodeObject::parse(&file).unwrap();
    let kernel = object.only_kernel().unwrap();
    let props = Properties { target: Target::new(11, 0, 0), lds_kib: 64, ..Default::default() };
    let regs = kernel.regs(&props, 0x2000_0000_0000, 0).unwrap();
    let granules = kernel.descriptor.group_segment_size.div_ceil(512);
    assert_eq!((regs.rsrc2 >> 15 & 0x1ff, regs.rsrc1 >> 20 & 1), (granules, 1));
    let error = kernel.regs(&props, 0, 65536).unwrap_err().to_string();
    assert!(error.contains("65536"), "{error}");
}

#[test]
fn a_missing_kernel_is_named() {
    let file = corpus("co/fill.gfx1100.v5.O2.co").unwrap();
    let error = CodeObject::parse(&file).unwrap().kernel("fil").map(drop).unwrap_err();
    assert!(error.to_string().contains("`fil`"), "{error}");
}

proptest! {
    #[test]
    fn descriptors_survive_a_round_trip(bytes in prop::array::uniform32(any::<u8>()), more in any::<[u8; 32]>()) {
        let all = [bytes, more].concat();
        let parsed = KernelDescriptor::parse(&all).unwrap();
        prop_assert_eq!(KernelDescriptor::parse(&parsed.emit()), Some(parsed));
    }

    #[test]
    fn no_messagepack_panics_or_reads_beyond_its_end(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let _ = msgpack::Reader::check(&bytes);
        let mut r = msgpack::Reader::new(&bytes);
        while r.value().is_ok() {
            prop_assert!(r.pos() <= bytes.len());
        }
    }

    #[test]
    fn no_object_with_changed_bytes_panics(
        at in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
    ) {
        let mut file = relocatable(&[(0, 5, 4, 0x10)]);
        let len = file.len();
        for (index, value) in at {
            file[index.index(len)] = value;
        }
        if let Ok(object) = CodeObject::parse(&file) {
            for kernel in object.kernels() {
                prop_assert!(kernel.is_ok());
            }
        }
    }
}

/// The metadata of a kernel with arguments of these sizes.
fn described(name: &str, kernarg_size: u32, sizes: &[u32]) -> Tree {
    let text = |s: &str| Tree::Str(s.into());
    let mut offset = 0;
    let args = sizes.iter().map(|size| {
        let arg = vec![
            (text(".offset"), Tree::Uint(offset)),
            (text(".size"), Tree::Uint((*size).into())),
            (text(".value_kind"), text("by_value")),
        ];
        offset += u64::from(*size);
        Tree::Map(arg)
    });
    Tree::Map(vec![
        (text(".args"), Tree::Array(args.collect())),
        (text(".kernarg_segment_size"), Tree::Uint(kernarg_size.into())),
        (text(".name"), text(name)),
        (text(".symbol"), text(&format!("{name}.kd"))),
    ])
}

proptest! {
    #[test]
    fn a_linked_object_reads_as_what_it_was_written_from(
        kernels in prop::collection::vec(
            ("[a-z_]{1,40}", prop::collection::vec(1u32..16, 0..6), any::<[u32; 3]>(), any::<u16>(),
             prop::collection::vec(any::<u8>(), 1..600)), 1..6),
        version in 3u8..=6,
        noted: bool,
    ) {
        let kernels: Vec<_> = kernels.into_iter().enumerate().map(|(n, (name, sizes, rsrc, properties, code))| {
            let descriptor = KernelDescriptor {
                group_segment_size: rsrc[0] % 0x1_0000,
                kernarg_size: sizes.iter().sum(),
                rsrc1: rsrc[1],
                rsrc2: rsrc[2],
                properties,
                ..Default::default()
            };
            (LinkedKernel { name: format!("{name}{n}"), descriptor, code }, sizes)
        }).collect();
        let list = kernels.iter().map(|(k, sizes)| described(&k.name, k.descriptor.kernarg_size, sizes)).collect();
        let metadata = noted.then(|| Tree::Map(vec![(Tree::Str("amdhsa.kernels".into()), Tree::Array(list))]));
        let flags = 0x41; // gfx1100
        let linked =
            Linked { flags, version, kernels: kernels.iter().map(|(k, _)| k.clone()).collect(), metadata };
        let file = linked.emit();
        let object = CodeObject::parse(&file).unwrap();
        prop_assert_eq!((object.version(), object.isa().map(|i| i.name)), (version, Some("gfx1100")));
        let found: Vec<_> = object.kernels().map(|k| k.unwrap()).collect();
        prop_assert_eq!(found.len(), kernels.len());
        let mut back = linked.clone();
        for (kernel, (made, sizes)) in found.iter().zip(&kernels) {
            let mut code = vec![0; kernel.code_size.unwrap() as usize];
            object.read_image(kernel.entry, &mut code);
            let descriptor = KernelDescriptor { entry_offset: 0, ..kernel.descriptor };
            prop_assert_eq!(&LinkedKernel { name: kernel.name.into(), descriptor, code }, made);
            if let Some(m) = kernel.metadata {
                let offsets_and_sizes: Vec<_> = m.args().map(|a| a.unwrap()).map(|a| a.size).collect();
                prop_assert_eq!(&offsets_and_sizes, sizes);
            }
            prop_assert_eq!(kernel.metadata.is_some(), noted);
        }
        // And what was read, written once more, is the same file.
        back.metadata = object.metadata().next().map(|m| {
            Tree::read(&mut msgpack::Reader::new(m.unwrap().data)).unwrap()
        });
        prop_assert_eq!(back.emit(), file);
    }
}
