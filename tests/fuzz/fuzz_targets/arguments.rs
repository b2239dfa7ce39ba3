//! The body stands in `amdev_tests::fuzz`.
#![no_main]

use amdev_tests::fuzz::{alloc::Counting, run};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

libfuzzer_sys::fuzz_target!(|data: &[u8]| run("arguments", data));
