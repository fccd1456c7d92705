//! The examples do what they say: each asserts it, and is run here.
#![allow(unreachable_pub, reason = "an example's main is public, so that it can be called from here")]

#[path = "../../../examples/campaign.rs"]
mod campaign;
#[path = "../../../examples/custom_algorithm.rs"]
mod custom_algorithm;
#[path = "../../../examples/custom_store.rs"]
mod custom_store;
#[cfg(feature = "sqlite")]
#[path = "../../../examples/fenced_writes.rs"]
mod fenced_writes;
#[path = "../../../examples/sans_io_loop.rs"]
mod sans_io_loop;

#[test]
fn campaign_runs() {
    campaign::main().unwrap();
}

#[test]
fn custom_algorithm_runs() {
    custom_algorithm::main();
}

#[test]
fn custom_store_runs() {
    custom_store::main().unwrap();
}

#[test]
fn sans_io_loop_runs() {
    sans_io_loop::main();
}

#[cfg(feature = "sqlite")]
#[test]
fn fenced_writes_runs() {
    fenced_writes::main().unwrap();
}
