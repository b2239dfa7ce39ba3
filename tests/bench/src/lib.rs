//! Benchmarks of amdev.
