//! The one count of refused writes, which a process has; so this is the one test of its process.
#![cfg(all(feature = "tower", feature = "metrics"))]

use std::time::Duration;

use primacy::FencingToken;
use primacy::fence::gate::{AdmissionError, Gate, Limits};
use primacy::fence::{DurableFence, HeldFence, stale_writes_refused};
use primacy::metrics::{self, prometheus_client::registry::Registry};

#[tokio::test]
async fn each_refused_write_is_counted_once() {
    let directory = std::env::temp_dir().join(format!("primacy-stale-writes-{}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    let path = directory.join("e.fence");

    let fence = DurableFence::open_or_create(&path, "e").unwrap();
    fence.admit(FencingToken(5)).unwrap();
    fence.admit(FencingToken(4)).unwrap_err();
    assert_eq!(stale_writes_refused(), 1, "a durable fence");
    drop(fence);

    let held = HeldFence::open(&path, "e").unwrap();
    held.admit(FencingToken(4)).unwrap_err();
    assert_eq!(stale_writes_refused(), 2, "one that is held");

    // Practically without limit: nothing is revoked here.
    let limits = Limits { patience: Duration::from_secs(600), grace: Duration::from_secs(600) };
    let gate = Gate::new(held, limits).unwrap();
    let old = gate.admit(FencingToken(7)).await.unwrap();
    assert!(matches!(gate.admit(FencingToken(6)).await, Err(AdmissionError::Stale(_))));
    assert_eq!(stale_writes_refused(), 3, "at the gate");

    // Two wait for the old one to end, one of them gives up, and a higher token overtakes the other.
    let wait = |token| {
        let gate = gate.clone();
        tokio::spawn(async move { gate.admit(FencingToken(token)).await })
    };
    let (overtaken, gone) = (wait(8), wait(8));
    tokio::task::yield_now().await;
    assert_eq!(gate.highest(), FencingToken(8));
    gone.abort();
    assert!(gone.await.unwrap_err().is_cancelled());
    let newest = wait(9);
    assert!(matches!(overtaken.await.unwrap(), Err(AdmissionError::Stale(_))));
    assert_eq!(stale_writes_refused(), 4, "overtaken before it was let in");
    drop(old);
    newest.await.unwrap().unwrap();

    // A token that a failed attempt has written is found at the next attempt.
    let other = directory.join("other.fence");
    DurableFence::create(&other, "e", FencingToken(20)).unwrap();
    std::fs::write(&path, std::fs::read(&other).unwrap()).unwrap();
    assert!(matches!(gate.admit(FencingToken(10)).await, Err(AdmissionError::Stale(_))));
    assert_eq!(stale_writes_refused(), 5, "lower than what is on the disk");

    let mut registry = Registry::default();
    metrics::register_fences(&mut registry);
    let text = metrics::text(&registry);
    assert!(text.contains("\nprimacy_stale_writes_refused_total 5\n"), "{text}");
    std::fs::remove_dir_all(&directory).unwrap();
}
