//! Code objects: checks, every accessor, and a plan to load and run.

use amdev_core::iface::{Properties, Target};
use amdev_core::program::{
    CodeObject, HiddenValues, Kernel, MAX_IMAGE, MAX_KERNARG, ProgramError, SgprSources,
};
use amdev_core::queue::dispatch::Launch;

/// The image is built in memory up to this size; beyond it only its parts are looked at.
const MAX_BUILT: u64 = 4 << 20;
const BASE: u64 = 0x7f12_0000_0000;

pub(super) fn run(data: &[u8]) {
    let object = match CodeObject::parse(data) {
        Ok(object) => object,
        Err(e) => {
            let text = e.to_string();
            assert!(!text.is_empty() && !text.contains('\n'), "{text:?}");
            return;
        }
    };
    assert_eq!(object.data(), data);
    let size = object.image_size();
    assert!(size <= MAX_IMAGE);
    let mut end = 0;
    for s in object.segments() {
        assert!(s.data.len() as u64 <= s.size && s.vaddr + s.size <= size);
        let range = s.offset as usize..s.offset as usize + s.data.len();
        // Where nothing is stored, as of `.bss`, the offset may say anything.
        assert!(s.data.is_empty() || data.get(range) == Some(s.data));
        end = end.max(s.vaddr + s.size);
    }
    assert_eq!(end, size);
    for section in object.sections() {
        assert!(section.name.len() <= data.len());
    }
    for note in object.notes() {
        let note = note.expect("notes were checked");
        assert!(note.offset as usize + note.data.len() <= data.len());
    }
    for m in object.metadata() {
        let m = m.expect("notes were checked");
        let _ = (m.version(), m.target());
    }
    let image = loaded(&object);
    let mut kernels = 0usize;
    for kernel in object.kernels() {
        let kernel = kernel.expect("kernels were checked");
        kernels += 1;
        if kernels <= 64 {
            check_kernel(&object, &kernel, image.as_deref());
        }
    }
    match object.only_kernel() {
        Ok(_) => assert_eq!(kernels, 1),
        Err(ProgramError::NoKernels) => assert_eq!(kernels, 0),
        Err(ProgramError::SeveralKernels { count, .. }) => assert_eq!(count, kernels),
        Err(e) => panic!("{e}"),
    }
}

/// The image as a device gets it, relocated.
fn loaded(object: &CodeObject<'_>) -> Option<Vec<u8>> {
    let size = object.image_size();
    for r in object.relocations() {
        let _ = r.expect("relocations were checked").kind_name();
    }
    let mut image = (size <= MAX_BUILT).then(|| vec![0; size as usize]);
    if let Some(image) = &mut image {
        object.read_image(0, image);
    }
    for patch in object.patches(BASE) {
        // Only a 32-bit relative value can depend on the load address, and both ends move.
        let patch = patch.expect("relocations were checked");
        let (bytes, len) = patch.bytes();
        assert!((len == 4 || len == 8) && patch.offset + len as u64 <= size);
        if let Some(image) = &mut image {
            image[patch.offset as usize..][..len].copy_from_slice(&bytes[..len]);
        }
    }
    image
}

fn check_kernel(object: &CodeObject<'_>, kernel: &Kernel<'_>, image: Option<&[u8]>) {
    let size = object.image_size();
    assert!(kernel.descriptor_vaddr.is_multiple_of(64) && kernel.descriptor_vaddr + 64 <= size);
    assert!(kernel.entry < size);
    let inside = |s: &amdev_core::program::Segment<'_>| {
        s.executable && (s.vaddr..s.vaddr + s.data.len() as u64).contains(&kernel.entry)
    };
    assert!(object.segments().any(|s| inside(&s)));
    let d = &kernel.descriptor;
    assert!(d.kernarg_size <= MAX_KERNARG && kernel.vgprs() <= 512);
    if let (Some(image), true) = (image, object.relocations().next().is_none()) {
        let at = kernel.descriptor_vaddr as usize;
        let found = amdev_core::program::KernelDescriptor::parse(&image[at..at + 64]);
        assert_eq!(found, Some(*d));
    }
    let found = object.kernel(kernel.name).expect("it is there");
    if !kernel.name.is_empty() {
        assert_eq!(found.name, kernel.name);
    }
    plan(kernel);
}

/// What the runtime does with a kernel before it runs.
fn plan(kernel: &Kernel<'_>) {
    let launch = Launch { grid: [3, 2, 1], block: [32, 1, 1] };
    let _ = kernel.check_launch(&launch);
    let target = Target::new(11, 0, 0);
    let properties = Properties { target, lds_kib: 64, ..Properties::default() };
    let _ = kernel.scratch_per_item(target);
    if let Ok(regs) = kernel.regs(&properties, BASE, 0) {
        assert_eq!(regs.entry, BASE + kernel.entry);
    }
    let room = kernel.kernarg_alloc_size();
    assert!(room <= u64::from(MAX_KERNARG) + 72);
    let mut out = vec![0xee; room as usize];
    let (args, packet) = out.split_at_mut(kernel.descriptor.kernarg_size as usize);
    let hidden = HiddenValues::default();
    let filled = kernel.fill_hidden(&launch, &hidden, args);
    if let Some(m) = &kernel.metadata {
        let fits = |offset: u32, size: u32| u64::from(offset) + u64::from(size) <= args.len() as u64;
        let visible: Vec<_> =
            m.args().map(|a| a.expect("checked")).filter(|a| !a.value_kind.is_hidden()).collect();
        if filled.is_ok() {
            let mut hidden = m.args().flatten().filter(|a| a.value_kind.is_hidden());
            assert!(hidden.all(|a| fits(a.offset, a.size)));
        }
        if visible.iter().all(|a| fits(a.offset, a.size)) {
            let values: Vec<Vec<u8>> = visible.iter().map(|a| vec![0x55; a.size as usize]).collect();
            let total: usize = values.iter().map(Vec::len).sum();
            if total <= 1 << 20 {
                let slices: Vec<&[u8]> = values.iter().map(Vec::as_slice).collect();
                kernel.fill_args(&slices, args).expect("they have the sizes that the metadata says");
                for a in &visible {
                    assert!(args[a.offset as usize..][..a.size as usize].iter().all(|b| *b == 0x55));
                }
            }
        }
    }
    assert!(kernel.fill_raw(u32::MAX, &[0; 8], args).is_err());
    if kernel.dispatch_packet_offset().is_some() {
        assert!(packet.len() >= 64);
    }
    let from = SgprSources { kernargs: BASE, kernarg_bytes: args, ..SgprSources::default() };
    let mut sgprs = [0; 16];
    if let Ok(used) = kernel.fill_user_sgprs(&from, &mut sgprs) {
        assert!(used <= 16);
    }
}
