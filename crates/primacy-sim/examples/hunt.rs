//! Hunts for a mistake: runs the worlds of many seeds and reports which invariant breaks first in each that
//! breaks.
//!
//! ```text
//! hunt ELECTION SEEDS
//! ```
//!
//! The first [`RATED`] seeds always run, so that the rate of catches is known. The hunt goes on up to `SEEDS`
//! only while nothing is caught. A machine that panics is caught too, as `panic`, and one that raises an
//! alarm without a fault that explains it, as `alarm`. The output depends on the seeds alone, not on the
//! number of cores:
//!
//! ```text
//! caught invariant=I4 first=17 run=1000 rate=32 spoke=I4:30,I3:2
//! survived run=20000
//! ```

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};

use primacy_sim::elections::Election;
use primacy_sim::script::PANIC;
use primacy_sim::trace::Trace;

/// The seeds that run in any case.
const RATED: u64 = 1_000;

/// The number of seeds in each later batch. A batch runs to its end, so that the first catch is always the
/// same.
const BATCH: u64 = 500;

/// The first invariant that broke, by seed.
type Caught = BTreeMap<u64, &'static str>;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let asked = match arguments.as_slice() {
        [election, seeds] => Election::find(election).zip(seeds.parse::<u64>().ok()),
        _ => None,
    };
    let Some((election, seeds)) = asked else {
        eprintln!("usage: hunt quorum|lease SEEDS");
        return ExitCode::from(2);
    };
    // A mutant may panic in every world; the line at the end says so once.
    std::panic::set_hook(Box::new(|_| {}));
    let (mut run, mut caught) = (0, Caught::new());
    while run < seeds && caught.is_empty() {
        let end = if run == 0 { RATED } else { run + BATCH }.min(seeds);
        caught = hunt(election, run, end);
        run = end;
    }
    println!("{}", line(run, &caught));
    ExitCode::SUCCESS
}

/// Runs these seeds on all cores.
fn hunt(election: Election, begin: u64, end: u64) -> Caught {
    let next = AtomicU64::new(begin);
    let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get());
    let work = || {
        let mut caught = Caught::new();
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= end {
                return caught;
            }
            if let Some(invariant) = judge(election, seed) {
                caught.insert(seed, invariant);
            }
        }
    };
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..cores).map(|_| scope.spawn(work)).collect();
        workers.into_iter().flat_map(|worker| worker.join().expect("a world's panic is caught")).collect()
    })
}

/// Returns the failure of the world of this seed, if it has one.
fn judge(election: Election, seed: u64) -> Option<&'static str> {
    // A panic in a world is among its breaches; this one happened while the world was drawn.
    let run = catch_unwind(AssertUnwindSafe(|| election.run(seed, Trace::keeping(&[]))));
    run.map_or(Some(PANIC), |run| run.verdict.failure())
}

fn line(run: u64, caught: &Caught) -> String {
    let mut spoke: BTreeMap<&str, u64> = BTreeMap::new();
    for &invariant in caught.values() {
        *spoke.entry(invariant).or_default() += 1;
    }
    let mut spoke: Vec<(&str, u64)> = spoke.into_iter().collect();
    spoke.sort_by_key(|&(_, times)| core::cmp::Reverse(times));
    let Some(&(invariant, _)) = spoke.first() else { return format!("survived run={run}") };
    let first = caught.iter().find(|&(_, &by)| by == invariant).map_or(0, |(&seed, _)| seed);
    let rate = caught.range(..RATED).count();
    let spoke: Vec<String> = spoke.iter().map(|(by, times)| format!("{by}:{times}")).collect();
    format!("caught invariant={invariant} first={first} run={run} rate={rate} spoke={}", spoke.join(","))
}
