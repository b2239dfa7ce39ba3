//! Room for GPUs behind USB bridges (ASM24). Nothing is here yet; the command line in `cli` is complete
//! without it.
