//! The `amdev` command.
fn main() {}
