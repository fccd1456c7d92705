//! A thousand elections of one process over one session.

use std::sync::Arc;
use std::time::{Duration, Instant};

use primacy_conformance::live::etcd::Etcd;
use tokio::task::JoinSet;

use super::{Candidate, TIMEOUT, cluster, metric};

const ELECTIONS: u32 = 1_000;

/// The interval at which each keeps its session alive: that of a holder.
const RENEWAL: Duration = Duration::from_secs(3);

/// The duration of the measurement.
const MEASURED: Duration = Duration::from_secs(9);

/// The most keep-alives a second where all share a session, whatever their number; and some more, for a machine that is busy.
const PER_SECOND_MAX: f64 = 25.0;

#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_elections_share_a_session() {
    let Some(etcd) = cluster(None).await else { return };
    let url = Arc::new(etcd.url("", "/many"));
    let before = resident_kib();
    let began = Instant::now();
    let mut standing = JoinSet::new();
    for number in 0..ELECTIONS {
        let url = Arc::clone(&url);
        standing.spawn(async move {
            let candidate = Candidate::new(&url, &format!("e{number}"), "n").await;
            candidate.win().await;
            candidate
        });
    }
    let candidates = standing.join_all().await;
    let stood = began.elapsed();
    assert!(etcd.told(&["lease", "list"]).starts_with("found 1 leases"));
    assert_eq!(super::entries(&etcd, "many/").len(), candidates.len());
    // All of them wait for a change, too.
    // The count of the members; our etcd API has none.
    let counted = || if etcd.is_ours() { None } else { Some(keep_alives(&etcd)) };
    let (sent, began) = (counted(), Instant::now());
    let mut keeping = JoinSet::new();
    for (number, candidate) in (0..ELECTIONS).zip(candidates) {
        keeping.spawn(async move {
            // Each at a time of its own.
            tokio::time::sleep(RENEWAL * number / ELECTIONS).await;
            let mut count = 0;
            while began.elapsed() < MEASURED {
                assert!(candidate.kept_alive().await <= TIMEOUT);
                count += 1;
                let changed = tokio::time::timeout(RENEWAL, candidate.store.changed());
                assert!(changed.await.is_err(), "nothing changes");
            }
            (count, candidate)
        });
    }
    let kept = keeping.join_all().await;
    let asked: u32 = kept.iter().map(|(count, _)| count).sum();
    let lasted = began.elapsed().as_secs_f64();
    eprintln!(
        "{ELECTIONS} elections stood after {stood:.2?}; {asked} keep-alives were asked for in {lasted:.1} s; {} KiB of memory for \
         each election",
        (resident_kib().saturating_sub(before)) / u64::from(ELECTIONS)
    );
    if let (Some(before), Some(after)) = (sent, counted()) {
        let rate = (after - before) as f64 / lasted;
        assert!(rate <= PER_SECOND_MAX, "{rate} keep-alives a second");
    }
}

/// The memory of this process.
fn resident_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux tells it");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("it has memory");
    line.trim().trim_end_matches("kB").trim().parse().expect("a number")
}

/// The number of streams for keep-alives that the members have been asked for; each of ours is for one keep-alive.
fn keep_alives(etcd: &Etcd) -> u64 {
    metric(etcd, "grpc_server_started_total", "\"LeaseKeepAlive\"")
}
