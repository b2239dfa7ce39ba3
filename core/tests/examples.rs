//! The examples do what they say.
// Each example brings its own copy of the bus.
#![allow(clippy::duplicate_mod)]

#[path = "../examples/copy.rs"]
mod copy;
#[path = "../examples/own_bus.rs"]
mod own_bus;
#[path = "../examples/run_kernel.rs"]
mod run_kernel;

#[test]
fn an_operating_systems_own_bus_brings_a_gpu_up_and_down() {
    let said = own_bus::run().unwrap();
    assert_eq!(said.first().map(String::as_str), Some("found 744c, GC (11, 0, 0), 24560 MiB of VRAM"));
    for line in [
        "state: no secure OS was running",
        "booted (cold: no secure OS was running)",
        "shut down; state: this driver had left the GPU in order",
    ] {
        assert!(said.iter().any(|l| l == line), "{line}: {said:?}");
    }
    assert!(said.iter().any(|l| l.starts_with("psp at ")), "{said:?}");
}

#[test]
fn a_kernel_gives_its_sums() {
    let (took, sums) = run_kernel::run().unwrap();
    assert!(took > 0.0);
    let expected: Vec<f32> = (0..1024).map(|i| 1.5 * i as f32).collect();
    assert_eq!(sums, expected);
}

#[test]
fn a_copy_is_right_and_moved_by_the_gpu() {
    let data: Vec<u8> = (0..300_001u32).map(|i| (i % 253) as u8).collect();
    let (back, written) = copy::run(&data).unwrap();
    assert!(back == data);
    assert!(written < 10_000, "the CPU wrote {written} bytes to VRAM");
}
