use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use tokio::runtime::Builder;

use super::*;
use crate::fence::DurableFence;

/// Practically without limit: if the test hangs, it fails instead of blocking the run.
const PATIENT: Limits = Limits { patience: Duration::from_secs(60), grace: Duration::from_secs(60) };
const IMPATIENT: Limits = Limits { patience: Duration::ZERO, grace: Duration::from_secs(60) };
const STRICT: Limits = Limits { patience: Duration::ZERO, grace: Duration::ZERO };

/// A directory with a fence.
struct FenceDir(PathBuf);

impl FenceDir {
    fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::SeqCst);
        let path = std::env::temp_dir().join(format!("primacy-gate-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn file(&self) -> PathBuf {
        self.0.join("e.fence")
    }

    fn gate(&self, limits: Limits) -> Gate {
        Gate::new(HeldFence::wait(&self.file(), "e").unwrap(), limits).unwrap()
    }
}

impl Drop for FenceDir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn run<T>(test: impl Future<Output = T>) -> T {
    Builder::new_current_thread().enable_time().build().unwrap().block_on(test)
}

async fn stale_below(gate: &Gate, presented: u64, highest: u64) {
    let refused = gate.admit(FencingToken(presented)).await.unwrap_err();
    let AdmissionError::Stale(FenceError::Stale { presented: was, highest: named }) = refused else {
        panic!("not stale but: {refused}");
    };
    assert_eq!((was, named), (FencingToken(presented), FencingToken(highest)));
}

/// Begins an admission, and returns when the gate has seen the token.
async fn begin(gate: &Gate, token: u64) -> tokio::task::JoinHandle<Result<Admitted, AdmissionError>> {
    let admitting = tokio::spawn({
        let gate = gate.clone();
        async move { gate.admit(FencingToken(token)).await }
    });
    while gate.highest() < FencingToken(token) {
        tokio::task::yield_now().await;
    }
    admitting
}

fn on_disk(path: &Path) -> u64 {
    let text = String::from_utf8(std::fs::read(path).unwrap()).unwrap();
    let token = text.lines().find_map(|line| line.strip_prefix("token ")).unwrap();
    token.parse().unwrap()
}

#[test]
fn a_higher_token_is_on_disk_before_it_is_let_in_and_lower_ones_are_refused() {
    let place = FenceDir::new();
    run(async {
        let gate = place.gate(PATIENT);
        for token in [7, 7, 9] {
            let admitted = gate.admit(FencingToken(token)).await.unwrap();
            assert_eq!(admitted.token(), FencingToken(token));
            assert_eq!(on_disk(&place.file()), token);
        }
        stale_below(&gate, 8, 9).await;
        drop(gate);
        stale_below(&place.gate(PATIENT), 8, 9).await;
    });
}

#[test]
fn a_raise_waits_for_older_requests_and_lets_no_lower_one_in_meanwhile() {
    let place = FenceDir::new();
    run(async {
        let gate = place.gate(PATIENT);
        let first = gate.admit(FencingToken(7)).await.unwrap();
        let handed_on = first.clone();
        let newer = begin(&gate, 8).await;
        stale_below(&gate, 7, 8).await;
        drop(first);
        tokio::task::yield_now().await;
        assert!(!newer.is_finished(), "a clone of the old one is still at work");
        drop(handed_on);
        assert_eq!(newer.await.unwrap().unwrap().token(), FencingToken(8));
    });
}

#[test]
fn of_those_who_wait_only_the_highest_is_let_in() {
    let place = FenceDir::new();
    run(async {
        let gate = place.gate(PATIENT);
        let old = gate.admit(FencingToken(7)).await.unwrap();
        let overtaken = begin(&gate, 8).await;
        let highest = begin(&gate, 9).await;
        assert!(matches!(overtaken.await.unwrap(), Err(AdmissionError::Stale(_))));
        let same = begin(&gate, 9).await;
        drop(old);
        for admitting in [highest, same] {
            assert_eq!(admitting.await.unwrap().unwrap().token(), FencingToken(9));
        }
    });
}

#[test]
fn what_does_not_end_in_time_is_revoked_and_then_waited_for() {
    let place = FenceDir::new();
    run(async {
        let gate = place.gate(IMPATIENT);
        let old = gate.admit(FencingToken(7)).await.unwrap();
        let newer = begin(&gate, 8).await;
        old.revoked().await;
        assert!(!newer.is_finished());
        drop(old);
        let newer = newer.await.unwrap().unwrap();
        drop(gate);
        // Without the gate, nothing can revoke the request.
        assert!(timeout(Duration::ZERO, newer.revoked()).await.is_err());
    });
}

#[test]
fn what_does_not_end_at_all_keeps_newer_ones_out_and_nobody_older_comes_in() {
    let place = FenceDir::new();
    run(async {
        let gate = place.gate(STRICT);
        let old = gate.admit(FencingToken(7)).await.unwrap();
        for token in [8, 8, 9] {
            let refused = gate.admit(FencingToken(token)).await.unwrap_err();
            assert!(matches!(refused, AdmissionError::Busy { .. }), "{refused}");
        }
        stale_below(&gate, 8, 9).await;
        drop(old);
        gate.admit(FencingToken(9)).await.unwrap();
    });
}

#[test]
fn a_raise_goes_on_when_the_one_who_began_it_has_gone() {
    let place = FenceDir::new();
    run(async {
        let gate = place.gate(PATIENT);
        let old = gate.admit(FencingToken(7)).await.unwrap();
        let gone = begin(&gate, 8).await;
        gone.abort();
        assert!(gone.await.unwrap_err().is_cancelled());
        drop(old);
        gate.admit(FencingToken(8)).await.unwrap();
        // An admission whose request has gone delays no other one.
        gate.admit(FencingToken(9)).await.unwrap();
    });
}

#[test]
fn nothing_is_let_in_while_the_disk_fails() {
    let place = FenceDir::new();
    run(async {
        let gate = place.gate(PATIENT);
        gate.admit(FencingToken(7)).await.unwrap();
        let aside = place.0.join("aside");
        std::fs::rename(place.file(), &aside).unwrap();
        for token in [8, 9] {
            let refused = gate.admit(FencingToken(token)).await.unwrap_err();
            assert!(matches!(refused, AdmissionError::Fence(_)), "{refused}");
        }
        // The content of the file is not known, so requests of the former token are not admitted either.
        assert!(matches!(gate.admit(FencingToken(7)).await.unwrap_err(), AdmissionError::Fence(_)));
        stale_below(&gate, 6, 7).await;
        std::fs::rename(&aside, place.file()).unwrap();
        gate.admit(FencingToken(7)).await.unwrap();
        gate.admit(FencingToken(8)).await.unwrap();
    });
}

#[test]
fn what_a_failed_attempt_has_written_counts() {
    let place = FenceDir::new();
    run(async {
        let gate = place.gate(PATIENT);
        // As if a flush had failed after the write.
        std::fs::write(place.file(), {
            let other = place.0.join("other");
            DurableFence::create(&other, "e", FencingToken(9)).unwrap();
            std::fs::read(other).unwrap()
        })
        .unwrap();
        stale_below(&gate, 8, 9).await;
        gate.admit(FencingToken(9)).await.unwrap();
    });
}

#[test]
fn a_fence_is_held_by_one_at_a_time_and_as_long_as_a_descriptor_of_it_is_open() {
    let place = FenceDir::new();
    let held = HeldFence::open(&place.file(), "e").unwrap();
    let in_use = || matches!(HeldFence::open(&place.file(), "e"), Err(DurableFenceError::InUse { .. }));
    assert!(in_use());
    let handed_on = held.duplicate_lock().unwrap();
    drop(held);
    assert!(in_use());
    drop(handed_on);
    HeldFence::open(&place.file(), "e").unwrap();
}
