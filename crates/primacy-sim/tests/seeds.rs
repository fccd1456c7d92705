//! Fixed seeds, each a world of its own with its own faults: no invariant may break, and after the healing there
//! must be a leader. The first seeds are run twice, and the two runs must be the same.

use libtest_mimic::{Arguments, Failed, Trial};
use primacy_sim::counters::Counters;
use primacy_sim::elections::Election;
use primacy_sim::swarm::{Beyond, ENOUGH_SEEDS, Run};
use primacy_sim::trace::{Level, Trace, lines};

/// The number of seeds that are run twice, and once more from their stories.
const TWICE: u64 = 300;

fn main() {
    let keeps = |&election: &Election| {
        Trial::test(format!("{}_keeps_its_promises", election.name()), move || ended(|| search(election)))
    };
    let mut trials: Vec<Trial> = Election::ALL.iter().map(keeps).collect();
    trials.push(Trial::test("kept_seeds_are_good", || ended(kept_seeds_are_good)));
    trials.push(Trial::test("beyond_what_is_assumed_an_invariant_speaks", || {
        ended(beyond_what_is_assumed_an_invariant_speaks)
    }));
    libtest_mimic::run(&Arguments::from_args(), trials).exit();
}

/// Runs a test, which panics if it fails.
fn ended(test: impl FnOnce()) -> Result<(), Failed> {
    test();
    Ok(())
}

fn search(election: Election) {
    let name = election.name();
    if let Ok(seed) = std::env::var("PRIMACY_SIM_SEED") {
        return tell(election, seed.parse().expect("PRIMACY_SIM_SEED is a number"));
    }
    let seeds =
        std::env::var("PRIMACY_SIM_SEEDS").map_or(ENOUGH_SEEDS, |count| count.parse().expect("a number"));
    let mut bad = Vec::new();
    let (mut elections, mut counters, mut longest) = (0, Counters::default(), None);
    let mut simulated = 0;
    for seed in 0..seeds {
        let twice = seed < TWICE;
        let trace = || if twice { Trace::digesting() } else { Trace::keeping(&[]) };
        let Run { verdict, commands, .. } = election.run(seed, trace());
        if twice {
            let again = election.run(seed, trace());
            assert_eq!(
                (&verdict, &commands),
                (&again.verdict, &again.commands),
                "{name}: seed {seed} does not repeat"
            );
            let told = election.run_again(&commands, trace());
            let same = told.verdict.digest == verdict.digest && told.commands == commands;
            assert!(same, "{name}: seed {seed}: its story is not the whole of it");
        }
        elections += verdict.elections;
        simulated += verdict.simulated.as_millis() / 1000;
        counters.add(&verdict.counters);
        longest = longest.max(verdict.settled.map(|settled| (settled.share_ppm(), seed)));
        if !verdict.is_good() {
            bad.push(format!("{name}: seed {seed}: {verdict}"));
        }
    }
    if std::env::var_os("PRIMACY_SIM_SEEDS").is_some() {
        println!(
            "{name}: {seeds} seeds, {simulated} s, {elections} elections, {} bad\n{counters}",
            bad.len()
        );
        println!("{name}: the largest part of the bound of I6, in ppm, and its seed: {longest:?}");
    }
    let shown = bad.iter().take(20).cloned().collect::<Vec<_>>().join("\n");
    assert!(bad.is_empty(), "{} bad; see one with PRIMACY_SIM_SEED=n and --nocapture\n{shown}", bad.len());
    if seeds < ENOUGH_SEEDS {
        return println!("{name}: too few seeds to ask what they have met");
    }
    let must: Vec<&'static str> = election.must_meet().collect();
    assert_eq!(counters.missing(&must), [""; 0], "never met, so nothing is said of it");
}

/// Tells the whole story of one seed.
fn tell(election: Election, seed: u64) {
    let levels = [Level::Event, Level::Scene, Level::Message, Level::Heartbeat, Level::Disk];
    let mut run = election.run(seed, Trace::keeping(&levels));
    run.commands.iter().for_each(|command| println!("{command}"));
    lines(&run.trace.take()).iter().for_each(|line| println!("{line}"));
    println!("{}", run.verdict);
    assert!(run.verdict.is_good());
}

/// The seeds of the past, each of which has caught a mistake: on the code as it is they must be good.
fn kept_seeds_are_good() {
    let mut kept = 0;
    for line in include_str!("../seeds.txt").lines() {
        let line = line.split('#').next().unwrap_or_default().trim();
        if line.is_empty() {
            continue;
        }
        let read = line.split_once(' ').and_then(|(name, seed)| Election::find(name).zip(seed.parse().ok()));
        let (election, seed) = read.unwrap_or_else(|| panic!("seeds.txt: `{line}` is no `election seed`"));
        let verdict = election.run(seed, Trace::keeping(&[])).verdict;
        assert!(verdict.is_good(), "{line}: {verdict}");
        kept += 1;
    }
    assert!(kept > 0, "seeds.txt keeps none");
}

/// The maximum number of worlds drawn in which an assumption does not hold, until the invariant breaks.
const SEEDS_BEYOND_MAX: u64 = 2_000;

/// The invariants that break first in worlds in which an assumption does not hold, up to the first world in
/// which it is this one.
fn spoken(election: Election, beyond: Beyond, invariant: &str) -> (u64, Vec<&'static str>) {
    let mut spoken: Vec<&'static str> = Vec::new();
    for seed in 0..SEEDS_BEYOND_MAX {
        let run = election.run_beyond(seed, Some(beyond), Trace::keeping(&[]));
        spoken.extend(run.verdict.breaches.first().map(|breach| breach.invariant));
        if spoken.last() == Some(&invariant) {
            return (seed + 1, spoken);
        }
    }
    (SEEDS_BEYOND_MAX, spoken)
}

fn beyond_what_is_assumed_an_invariant_speaks() {
    for (election, beyond, invariant) in [
        (Election::Quorum, Beyond::Drift, "I3"),
        (Election::Quorum, Beyond::Jump, "I3"),
        (Election::Quorum, Beyond::FrozenMachine, "I3"),
        (Election::Quorum, Beyond::RottenDisk, "I4"),
        (Election::Lease, Beyond::Drift, "I3"),
        (Election::Lease, Beyond::Jump, "I3"),
        (Election::Lease, Beyond::FrozenMachine, "I3"),
        (Election::Lease, Beyond::LyingStore, "I3"),
        (Election::Lease, Beyond::RestoredStore, "I2"),
    ] {
        let (worlds, spoken) = spoken(election, beyond, invariant);
        println!("{} beyond {}: {invariant} within {worlds} worlds", election.name(), beyond.name());
        assert!(spoken.contains(&invariant), "{election:?} beyond {beyond:?}: {spoken:?} in {worlds} worlds");
    }
}
