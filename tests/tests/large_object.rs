//! A real code object of 22 MB with 1542 kernels: the gfx1100 matrix kernels of Debian's librocblas0.

use amdev_core::program::CodeObject;

#[test]
#[ignore = "needs a download of 166 MB (tests/fetch.sh rocblas): full tier"]
fn the_largest_real_object_is_read_with_every_kernel_in_its_place() {
    let path = amdev_tests::root().join("../target/fetch/rocblas/Kernels.so-000-gfx1100.hsaco");
    let data = std::fs::read(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let object = CodeObject::parse(&data).unwrap();

    let text = object.segments().find(|s| s.executable).unwrap();
    assert_eq!((text.vaddr, text.offset), (0x4A_E900, 0x4A_D900));
    let inside = text.vaddr..text.vaddr + text.data.len() as u64;
    let mut count = 0;
    for kernel in object.kernels() {
        let kernel = kernel.unwrap();
        assert!(kernel.descriptor.wave32(), "{}", kernel.name);
        assert!(inside.contains(&kernel.entry), "{}: {:#x}", kernel.name, kernel.entry);
        count += 1;
    }
    assert_eq!(count, 1542);

    let first = object.kernels().map(Result::unwrap).min_by_key(|k| k.descriptor_vaddr).unwrap();
    assert_eq!((first.descriptor_vaddr, first.entry), (0x49_5780, 0x4A_E900));
    // A name in the middle: neither its descriptor nor its code is where those sections start.
    let named = object.kernel("Cijk_I_GB").unwrap();
    assert_eq!((named.descriptor_vaddr, named.entry), (0x4A_D8C0, 0x13A_E500));
    assert_eq!(named.descriptor.kernarg_size, 120);
}
