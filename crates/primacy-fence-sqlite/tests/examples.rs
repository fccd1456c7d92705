//! The example does what it says: it asserts it, and is run here.
#![allow(unreachable_pub, reason = "an example's main is public, so that it can be called from here")]

#[path = "../../../examples/fenced_writes.rs"]
mod fenced_writes;

#[test]
fn fenced_writes_runs() {
    fenced_writes::main().unwrap();
}
