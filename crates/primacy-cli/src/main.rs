//! The command `primacy`.
fn main() {}
