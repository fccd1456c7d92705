//! Fixed seeds, each a world of its own with its own faults: no invariant may break, and after the healing there
//! must be a leader. Each seed is run twice, and the two runs must be the same.

use primacy_sim::swarm::{self, Verdict};
use primacy_sim::trace::{Level, Trace, lines};
use primacy_sim::world::Readmissions;

const SEEDS: u64 = 300;

/// Runs all seeds, and returns what was done about lost disks in them.
fn search(election: &str, run: fn(u64, Trace) -> (Verdict, Trace)) -> Readmissions {
    if let Ok(seed) = std::env::var("PRIMACY_SIM_SEED") {
        return tell(seed.parse().expect("PRIMACY_SIM_SEED is a number"), run);
    }
    let seeds = std::env::var("PRIMACY_SIM_SEEDS").map_or(SEEDS, |count| count.parse().expect("a number"));
    let mut bad = Vec::new();
    let (mut elections, mut all) = (0, Readmissions::default());
    for seed in 0..seeds {
        let (verdict, _) = run(seed, Trace::digesting());
        if seeds <= SEEDS {
            assert_eq!(verdict, run(seed, Trace::digesting()).0, "{election}: seed {seed} does not repeat");
        }
        elections += verdict.elections;
        let Readmissions { wipes, recoveries, votes, refusals } = verdict.readmissions;
        all.wipes += wipes;
        all.recoveries += recoveries;
        all.votes += votes;
        all.refusals += refusals;
        if !verdict.is_good() {
            bad.push(format!("{election}: seed {seed}: {verdict}"));
        }
    }
    println!("{election}: {seeds} seeds, {elections} elections, {all:?}, {} bad", bad.len());
    let shown = bad.iter().take(20).cloned().collect::<Vec<_>>().join("\n");
    assert!(bad.is_empty(), "{} bad; see one with PRIMACY_SIM_SEED=n and --nocapture\n{shown}", bad.len());
    assert!(elections > 2 * seeds, "the faults hardly cost a leader: {elections} elections");
    all
}

/// Tells the whole story of one seed.
fn tell(seed: u64, run: fn(u64, Trace) -> (Verdict, Trace)) -> Readmissions {
    let levels = [Level::Event, Level::Scene, Level::Message, Level::Heartbeat, Level::Disk];
    let (verdict, mut trace) = run(seed, Trace::keeping(&levels));
    lines(&trace.take()).iter().for_each(|line| println!("{line}"));
    println!("{verdict}");
    assert!(verdict.is_good());
    verdict.readmissions
}

#[test]
fn quorum_keeps_its_promises() {
    let found = search("quorum", swarm::quorum);
    if std::env::var_os("PRIMACY_SIM_SEED").is_none() && std::env::var_os("PRIMACY_SIM_SEEDS").is_none() {
        // Else they would say nothing about what a disk that was lost, or comes back, can do.
        let Readmissions { wipes, recoveries, votes, refusals } = found;
        assert!(wipes > recoveries && recoveries > 20 && votes > 20 && refusals > 20, "{found:?}");
    }
}

#[test]
fn lease_keeps_its_promises() {
    assert_eq!(search("lease", swarm::lease), Readmissions::default(), "a store needs no disks");
}
