//! Room for benchmarks; nothing is here yet.
