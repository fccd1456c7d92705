//! The totals over all worlds, for people and for programs.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::Write as _;
use std::time::Duration;

use primacy_sim::counters::Counters;
use primacy_sim::elections::Election;
use primacy_sim::replay::Drawn;
use primacy_sim::script::PANIC;
use primacy_sim::swarm::ENOUGH_SEEDS;
use primacy_sim::world::phases::Settled;
use serde::Serialize;

use super::search::Outcome;
use super::worlds;
use crate::exit::{self, Failure};

/// The maximum number of failures that are shown; further ones are only counted.
const FAILURES_SHOWN: usize = 20;

/// The totals.
#[derive(Debug)]
pub(super) struct Totals {
    elections: BTreeMap<Election, Total>,
    failures: u64,
    first_failure: Option<Drawn>,
    /// True if these worlds have required counters.
    must_meet: bool,
}

/// The totals of one election.
#[derive(Clone, Debug, Default)]
struct Total {
    seeds: u64,
    simulated_ns: u128,
    leaderships: u64,
    handled: u64,
    bad: u64,
    counters: Counters,
    /// The world that used the largest share of its bound for the time from the healing to one leader.
    slowest: Option<(Settled, u64)>,
}

impl Total {
    /// Keeps the world with the largest share, the first one of equals.
    fn settled(&mut self, settled: Settled, seed: u64) {
        if self.slowest.is_none_or(|(slowest, _)| slowest.share_ppm() < settled.share_ppm()) {
            self.slowest = Some((settled, seed));
        }
    }
}

/// A world in which an invariant broke.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Failed {
    election: &'static str,
    seed: u64,
    /// The broken rule: an invariant's name, `alarm` or `panic`.
    invariant: String,
    what: String,
    replay: String,
    #[serde(skip)]
    shown: bool,
}

impl Totals {
    pub(super) fn new(elections: &[Election], must_meet: bool) -> Self {
        let elections = elections.iter().map(|&election| (election, Total::default())).collect();
        Self { elections, failures: 0, first_failure: None, must_meet }
    }

    /// Adds an outcome. Returns the failure, if it is one.
    pub(super) fn add(&mut self, world: Drawn, outcome: &Outcome) -> Option<Failed> {
        let sum = self.elections.entry(world.election).or_default();
        sum.seeds += 1;
        let (invariant, what) = match outcome {
            Err(panic) => (PANIC.to_owned(), panic.clone()),
            Ok(verdict) => {
                sum.simulated_ns += u128::from(verdict.simulated.as_nanos());
                sum.leaderships += verdict.elections;
                sum.handled += verdict.handled;
                sum.counters.add(&verdict.counters);
                if let Some(settled) = verdict.settled {
                    sum.settled(settled, world.seed);
                }
                let failure = verdict.failure()?;
                let what = verdict.breaches.first().map_or_else(
                    || format!("{} alarms of machines", verdict.alarms),
                    |breach| format!("at {}: {}", breach.at, breach.what),
                );
                (failure.to_owned(), what)
            }
        };
        sum.bad += 1;
        self.failures += 1;
        self.first_failure.get_or_insert(world);
        let (election, seed) = (world.election.name(), world.seed);
        let shown = self.failures <= FAILURES_SHOWN as u64;
        Some(Failed { election, seed, invariant, what, replay: worlds::command(world), shown })
    }

    pub(super) const fn failures(&self) -> u64 {
        self.failures
    }

    /// The shortened script of the first failure, if there is one.
    fn script(&self) -> Option<String> {
        self.first_failure.and_then(worlds::shorter_script)
    }

    /// The number of seeds of all elections that were run.
    pub(super) fn seeds(&self) -> u64 {
        self.elections.values().map(|sum| sum.seeds).sum()
    }

    pub(super) fn simulated(&self) -> Duration {
        let nanos: u128 = self.elections.values().map(|sum| sum.simulated_ns).sum();
        Duration::from_secs_f64(nanos as f64 / 1e9)
    }

    pub(super) fn handled(&self) -> u64 {
        self.elections.values().map(|sum| sum.handled).sum()
    }

    /// The required counters that are still zero after this many worlds.
    pub(super) fn never_met(&self) -> Vec<String> {
        let enough = self.elections.iter().filter(|(_, sum)| self.must_meet && sum.seeds >= ENOUGH_SEEDS);
        let missing = enough.flat_map(|(election, sum)| {
            let missing = sum.counters.missing(&election.must_meet().collect::<Vec<_>>());
            missing.into_iter().map(|what| format!("{}: {what}", election.name()))
        });
        missing.collect()
    }

    /// Prints the totals.
    pub(super) fn tell(&self, took: Duration, jobs: usize, json: bool) -> Result<(), Failure> {
        let text = if json {
            serde_json::to_string(&self.all(took, jobs)).unwrap_or_default() + "\n"
        } else {
            self.text(took, jobs)
        };
        exit::print(&text)
    }

    fn all(&self, took: Duration, jobs: usize) -> All<'_> {
        let of = |(election, sum): (&Election, &Total)| One {
            election: election.name(),
            seeds: sum.seeds,
            simulated_seconds: sum.simulated_ns as f64 / 1e9,
            leaderships: sum.leaderships,
            handled: sum.handled,
            bad: sum.bad,
            slowest: sum.slowest.map(|(settled, seed)| Slowest {
                seed,
                share: share(settled),
                settled_seconds: seconds(settled.after.as_nanos()),
                bound_seconds: seconds(settled.within.as_nanos()),
            }),
            met: sum.counters.iter().collect(),
        };
        All {
            elections: self.elections.iter().map(of).collect(),
            never_met: self.never_met(),
            script: self.script(),
            seconds: took.as_secs_f64(),
            threads: jobs,
            times_real_time: per_second(self.simulated().as_secs_f64(), took),
            handled_per_second: per_second(self.handled() as f64, took),
        }
    }

    fn text(&self, took: Duration, jobs: usize) -> String {
        let mut text = String::new();
        // Writing to a string does not fail.
        for (election, sum) in &self.elections {
            let simulated = Duration::from_secs_f64(sum.simulated_ns as f64 / 1e9);
            let _ = writeln!(
                text,
                "{}: {} seeds, {} simulated, {} leaderships, {} inputs handled, {} bad",
                election.name(),
                sum.seeds,
                span(simulated),
                sum.leaderships,
                sum.handled,
                sum.bad
            );
            if let Some((settled, seed)) = sum.slowest {
                let _ = writeln!(
                    text,
                    "after the faults one leader was known to all within {:.1}% of the time that is allowed for it, \
                     at the latest: {} of {} (seed {seed})",
                    share(settled) * 100.0,
                    span(Duration::from_nanos(settled.after.as_nanos())),
                    span(Duration::from_nanos(settled.within.as_nanos())),
                );
            }
            let _ = write!(text, "{}", sum.counters);
        }
        let _ = writeln!(
            text,
            "{} simulated in {}: {:.0} times real time, {:.0} inputs a second, on {jobs} threads",
            span(self.simulated()),
            span(took),
            per_second(self.simulated().as_secs_f64(), took),
            per_second(self.handled() as f64, took),
        );
        if self.failures > FAILURES_SHOWN as u64 {
            let _ = writeln!(text, "{} worlds are bad; the first {FAILURES_SHOWN} are shown", self.failures);
        }
        for what in self.never_met() {
            let _ = writeln!(text, "never met, so nothing is said of it: {what}");
        }
        if let Some(script) = self.script() {
            let _ = write!(text, "\nThe first one, made shorter, as a script that can be kept:\n\n{script}");
        }
        text
    }
}

/// Prints a world in which an invariant broke.
pub(super) fn tell_failure(failure: Failed, json: bool) {
    if !failure.shown && !json {
        return;
    }
    let text = if json {
        serde_json::to_string(&FailureReport { failure }).unwrap_or_default()
    } else {
        let Failed { election, seed, invariant, what, replay, .. } = failure;
        format!("BAD  {election} seed {seed}: {invariant} {what}\n     {replay}")
    };
    let _ = writeln!(std::io::stdout(), "{text}");
}

#[derive(Serialize)]
struct FailureReport {
    failure: Failed,
}

#[derive(Serialize)]
struct All<'a> {
    elections: Vec<One<'a>>,
    never_met: Vec<String>,
    /// The shortened script of the first failing world.
    script: Option<String>,
    /// The duration.
    seconds: f64,
    threads: usize,
    times_real_time: f64,
    handled_per_second: f64,
}

#[derive(Serialize)]
struct One<'a> {
    election: &'a str,
    seeds: u64,
    simulated_seconds: f64,
    leaderships: u64,
    handled: u64,
    bad: u64,
    slowest: Option<Slowest>,
    met: BTreeMap<&'static str, u64>,
}

/// The world that used the largest share of its bound for the time from the healing to one leader.
#[derive(Serialize)]
struct Slowest {
    seed: u64,
    share: f64,
    settled_seconds: f64,
    bound_seconds: f64,
}

/// The used share of the bound.
fn share(settled: Settled) -> f64 {
    settled.share_ppm() as f64 / 1e6
}

fn seconds(nanos: u64) -> f64 {
    nanos as f64 / 1e9
}

/// The rate per second.
pub(super) fn per_second(count: f64, took: Duration) -> f64 {
    count / took.as_secs_f64().max(1e-9)
}

/// A long time in words.
pub(super) fn span(time: Duration) -> String {
    match time.as_secs_f64() {
        seconds if seconds < 120.0 => format!("{seconds:.1} s"),
        seconds if seconds < 7_200.0 => format!("{:.1} min", seconds / 60.0),
        seconds => format!("{:.1} h", seconds / 3_600.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drawn(seed: u64) -> Drawn {
        Drawn { election: Election::Lease, seed, beyond: None }
    }

    #[test]
    fn a_panic_is_a_failure_with_a_replay() {
        let mut totals = Totals::new(Election::ALL, true);
        let failed = totals.add(drawn(7), &Err("panicked: oh".to_owned())).unwrap();
        assert_eq!((failed.invariant.as_str(), failed.what.as_str()), ("panic", "panicked: oh"));
        assert_eq!(failed.replay, "primacy-lab replay --election lease --seed 7");
        assert_eq!((totals.failures(), totals.seeds(), totals.first_failure), (1, 1, Some(drawn(7))));
    }

    #[test]
    fn what_many_worlds_never_met_is_said_once_there_are_many() {
        let mut totals = Totals::new(Election::ALL, true);
        let outcome = worlds::run(drawn(0));
        for seed in 1..ENOUGH_SEEDS {
            assert!(totals.add(drawn(seed), &outcome).is_none());
        }
        assert_eq!(totals.never_met(), [""; 0], "too few to say anything");
        totals.add(drawn(ENOUGH_SEEDS), &outcome);
        let never_met = totals.never_met();
        assert!(!never_met.is_empty(), "one world does not meet everything");
        assert!(totals.text(Duration::from_secs(1), 1).contains(&format!("of it: {}", never_met[0])));
        totals.must_meet = false;
        assert_eq!(totals.never_met(), [""; 0], "nobody knows what these must meet");
    }

    #[test]
    fn long_times_are_told_in_their_unit() {
        let told = |seconds: u64| span(Duration::from_secs(seconds));
        assert_eq!(
            [told(119), told(120), told(7_199), told(36_000)],
            ["119.0 s", "2.0 min", "120.0 min", "10.0 h"]
        );
    }
}
