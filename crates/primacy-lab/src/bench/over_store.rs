//! Failover over a store, and the store's own round trip beside it.

use std::time::{Duration, Instant};

use primacy::config::Timers;
use primacy::core::election::lease::{Holder, Record};
use primacy::core::{FencingToken, Identity, Incarnation};
use primacy::stores::login::has_login;
use primacy::stores::{Opened, SessionError, check_scheme, open_any};
use primacy::{NodeId, clock};
use serde::Serialize;
use tokio::runtime::Runtime;

use super::cluster::{Cluster, Network};
use super::failed;
use super::failover::{Class, Failover, Measured, not_counted, over, progress};
use super::process_group::ProcessGroup;
use super::spread::{Spread, median, milliseconds};
use super::state_dir::StateDir;
use super::subject::ELECTION;
use crate::exit::{Exit, Failure};

/// The register in which the store is timed; no election can have this name.
const NAME: &str = "primacy/bench";

/// The time allowed for this machine, in addition to the store's, if the leader resigns, and if its death is
/// reported.
const RESIGNED_MACHINE: Duration = Duration::from_millis(5);
const DIED_MACHINE: Duration = Duration::from_millis(10);

/// The number of timed writes between two trials.
const REQUESTS: usize = 10;

/// The time to live of the session with which a store with sessions is timed.
const SESSION: Duration = Duration::from_secs(60);

/// The maximum time until a struck store answers again, before the bench gives up.
const SILENCE_MAX: Duration = Duration::from_secs(60);

/// The pause between two attempts to reach the store.
const ASK_PAUSE: Duration = Duration::from_millis(5);

/// The budget of a failover: round trips of the store, time of this machine, and the lease if no notice of the leader's end is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Budget {
    lease: bool,
    round_trips: u32,
    machine: Duration,
}

/// The result, as it is printed with `--json`.
#[derive(Debug, Serialize)]
struct Outcome {
    class: &'static str,
    subject: &'static str,
    nodes: usize,
    from: &'static str,
    trials: usize,
    discarded: usize,
    /// The time until the new leader holds its token; for class `store`, until the store has answered a write again.
    ms: Spread,
    /// The time until the first line of the new job.
    job_ms: Option<Spread>,
    /// The time of a write to the store with its answer.
    round_trip_ms: Spread,
    lease_ms: f64,
    /// `None` if the store is struck together with the leader, because its downtime is not Primacy's.
    goal: Option<Goal>,
}

/// The goal that each trial must meet.
#[derive(Debug, PartialEq, Serialize)]
struct Goal {
    /// The goal as text.
    text: &'static str,
    /// The maximum time that it allows.
    bound_ms: Option<f64>,
    /// The number of trials that missed it.
    missed: usize,
    met: bool,
}

/// Runs the trials, and prints their measurements.
pub(super) fn measure(args: &Failover, place: &StateDir, url: &str) -> Result<Exit, Failure> {
    let url = store_url(url)?;
    let mut timed = Timed::open(&url)?;
    let group = ProcessGroup::new()?;
    let mut cluster =
        Cluster::start_on(&group, Network::Loopback, args.settings(), args.nodes, place.dir(), Some(&url))?;
    let mut measured = Measured::default();
    let mut deposed = 0;
    for trial in 1..=args.trials {
        timed.measure()?;
        let took = if args.class == Class::Store {
            let (silent, changed) = outage(args, &mut cluster, &mut timed)?;
            deposed += usize::from(changed);
            measured.elected.push(silent);
            silent
        } else {
            measured.trial(args, &mut cluster, None)?
        };
        progress(args.class.name(), trial, args.trials, took);
    }
    let timers = cluster.timers().clone();
    drop(cluster);
    drop(group);
    let outcome = outcome(args, &measured, &timed.times, &timers, deposed)
        .ok_or_else(|| failed("nothing was measured"))?;
    if args.json {
        println!("{}", serde_json::to_string(&outcome).unwrap_or_default());
    } else {
        print(&outcome);
    }
    Ok(Exit::Success)
}

/// Strikes only the store. Returns the time for which it did not answer, and whether the lead changed within a lease.
fn outage(
    args: &Failover,
    cluster: &mut Cluster<'_>,
    timed: &mut Timed,
) -> Result<(Duration, bool), Failure> {
    let (leader, token) = cluster.settle()?;
    let began = Instant::now();
    args.fault()?;
    timed.until_it_answers()?;
    let silent = began.elapsed();
    // By then, a leader that could not renew would have been deposed.
    let lease = cluster.timers().lease;
    cluster.listen(lease.saturating_sub(silent))?;
    let changed = cluster.token(leader) != Some(token);
    args.mend_store()?;
    Ok((silent, changed))
}

fn outcome(
    args: &Failover,
    measured: &Measured,
    round_trips: &[Duration],
    timers: &Timers,
    deposed: usize,
) -> Option<Outcome> {
    Some(Outcome {
        class: args.class.name(),
        subject: args.settings().subject.name(),
        nodes: args.nodes,
        from: args.from(),
        trials: measured.elected.len(),
        discarded: measured.discarded,
        ms: Spread::of(&measured.elected)?,
        job_ms: Spread::of(&measured.job),
        round_trip_ms: Spread::of(round_trips)?,
        lease_ms: milliseconds(timers.lease),
        goal: goal(args, &measured.elected, median(round_trips)?, timers, deposed),
    })
}

fn goal(
    args: &Failover,
    took: &[Duration],
    round_trip: Duration,
    timers: &Timers,
    deposed: usize,
) -> Option<Goal> {
    if args.class == Class::Store {
        let text = "the lead does not change";
        return Some(Goal { text, bound_ms: None, missed: deposed, met: deposed == 0 });
    }
    let (budget, text) = budget(args)?;
    let lease =
        if budget.lease { timers.drift_max.lengthen(timers.lease.into()).into() } else { Duration::ZERO };
    let bound_ms = milliseconds(lease + round_trip * budget.round_trips + budget.machine);
    let missed = over(took, bound_ms);
    Some(Goal { text, bound_ms: Some(bound_ms), missed, met: missed == 0 })
}

/// Returns the budget. If other nodes get notice that the leader is gone, none waits for its lease.
fn budget(args: &Failover) -> Option<(Budget, &'static str)> {
    if args.fault_command.is_some() {
        return None;
    }
    let died = Budget { lease: false, round_trips: 6, machine: DIED_MACHINE };
    match args.class {
        Class::Resign | Class::JobExit => {
            let resigned = Budget { lease: false, round_trips: 3, machine: RESIGNED_MACHINE };
            Some((resigned, "3 round trips + 5 ms"))
        }
        Class::Crash if !args.without_guardian => Some((died, "6 round trips + 10 ms")),
        Class::Crash | Class::Pause => {
            Some((Budget { lease: true, ..died }, "the lease and its drift + 6 round trips + 10 ms"))
        }
        Class::Host | Class::Transfer | Class::Store => None,
    }
}

fn print(outcome: &Outcome) {
    let Outcome { class, subject, nodes, from, trials, ms, round_trip_ms, .. } = outcome;
    println!("{class} of {subject}, {trials} trials, {nodes} nodes over a store; counted from {from}");
    let until = if *class == Class::Store.name() { "silent " } else { "elected" };
    println!("  {until}    {ms}{}", not_counted(outcome.discarded));
    if let Some(job) = outcome.job_ms {
        println!("  first line {job}");
    }
    println!("  round trip {round_trip_ms}");
    println!("  goal       {}", outcome.goal.as_ref().map_or("none".to_owned(), |goal| goal.told(*trials)));
}

impl Goal {
    fn told(&self, trials: usize) -> String {
        let bound = self.bound_ms.map_or(String::new(), |bound| format!(" = {bound:.1} ms"));
        let met =
            if self.met { "met".to_owned() } else { format!("missed in {} of {trials} trials", self.missed) };
        format!("{}{bound}: {met}", self.text)
    }
}

/// The store, with its timed writes.
struct Timed {
    runtime: Runtime,
    opened: Opened,
    times: Vec<Duration>,
}

impl Timed {
    fn open(url: &str) -> Result<Self, Failure> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let cannot = |error: &dyn std::fmt::Display| Failure::new(Exit::Unavailable, error.to_string());
        let opened = runtime.block_on(async {
            let opened = open_any(url, NAME).await.map_err(|error| cannot(&error))?;
            if let Opened::Register(_) = &opened {
                // A record without a holder, so that the first leader does not wait.
                primacy::init(url, ELECTION, Duration::ZERO).await.map_err(|error| cannot(&error))?;
            }
            Ok::<_, Failure>(opened)
        })?;
        Ok(Self { runtime, opened, times: Vec::new() })
    }

    /// Times some writes.
    fn measure(&mut self) -> Result<(), Failure> {
        let Self { runtime, opened, times } = self;
        runtime.block_on(async {
            for _ in 0..REQUESTS {
                let took = write(opened).await;
                times.push(took.map_err(|why| failed(format!("the store cannot be timed: {why}")))?);
            }
            Ok(())
        })
    }

    /// Repeats writes until one is answered.
    fn until_it_answers(&mut self) -> Result<(), Failure> {
        let Self { runtime, opened, .. } = self;
        let began = Instant::now();
        runtime.block_on(async {
            while let Err(why) = write(opened).await {
                if began.elapsed() > SILENCE_MAX {
                    return Err(failed(format!("the store does not answer any more: {why}")));
                }
                tokio::time::sleep(ASK_PAUSE).await;
            }
            Ok(())
        })
    }
}

/// The URL of a store that processes can share; `env:NAME` reads it from the environment.
fn store_url(url: &str) -> Result<String, Failure> {
    let usage = |message| Failure::new(Exit::Usage, message);
    let url = match url.strip_prefix("env:") {
        Some(name) => std::env::var(name).map_err(|error| usage(format!("--store {url}: {error}")))?,
        None if has_login(url) => {
            let message = "--store: the URL has a password or a token, and every user of this machine can read command lines; write \
                           --store env:NAME";
            return Err(usage(message.to_owned()));
        }
        None => url.to_owned(),
    };
    check_scheme(&url).map_err(|error| usage(format!("--store: {error}")))?;
    if url.starts_with("memory") {
        return Err(usage("--store memory: is within one process; use sqlite:PATH".to_owned()));
    }
    Ok(url)
}

/// The bench's holder name in a queue.
fn holder() -> Result<Holder, String> {
    let node = NodeId::new("bench").map_err(|error| error.to_string())?;
    let incarnation = Incarnation { count: clock::wall_millis(), nonce: u64::from(std::process::id()) };
    Ok(Holder { identity: Identity::new(node, incarnation), address: String::new() })
}

/// Writes once, and returns the duration of the write alone.
async fn write(opened: &Opened) -> Result<Duration, String> {
    match opened {
        Opened::Register(register) => {
            let found = register.read().await.map_err(|error| error.to_string())?;
            let version = found.as_ref().map(|(_, version)| version);
            let renewal = found.as_ref().map_or(0, |(record, _)| record.renewal) + 1;
            let record = Record::released(FencingToken(0), primacy::core::Duration::ZERO);
            let began = Instant::now();
            let written = register.compare_and_set(version, &Record { renewal, ..record }).await;
            let took = began.elapsed();
            written.map(|_| took).map_err(|error| error.to_string())
        }
        // Ending an entry is one write; ending a session without one may be less.
        Opened::Sessions(sessions) => {
            let text = |error: SessionError| error.to_string();
            let begun = sessions.begin(SESSION).await.map_err(text)?;
            let stood = sessions.campaign(&begun.session, &holder()?).await;
            let began = Instant::now();
            let left = sessions.leave(&begun.session).await;
            let took = began.elapsed();
            sessions.end(&begun.session).await.map_err(text)?;
            stood.and(left).map(|()| took).map_err(text)
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;
    use primacy::config::Venue;

    use super::*;

    fn args(more: &[&str]) -> Failover {
        let all = [&["failover", "--store", "sqlite:a", "--class"], more].concat();
        Failover::try_parse_from(all).unwrap()
    }

    #[test]
    fn only_where_nobody_tells_of_the_end_the_lease_is_allowed() {
        let budget =
            |more: &[&str]| budget(&args(more)).map(|(budget, _)| (budget.lease, budget.round_trips));
        for resigned in ["resign", "job-exit"] {
            assert_eq!(budget(&[resigned]), Some((false, 3)));
        }
        assert_eq!(budget(&["crash"]), Some((false, 6)));
        assert_eq!(budget(&["crash", "--without-guardian"]), Some((true, 6)));
        assert_eq!(budget(&["pause"]), Some((true, 6)));
        assert_eq!(budget(&["crash", "--fault-command", "true"]), None);
    }

    #[test]
    fn a_goal_is_met_by_all_trials_or_missed() {
        let ms = Duration::from_millis;
        let timers = Timers::new(Venue::Store, Some(ms(10_000)));
        let goal = |more: &[&str], took: &[u64], deposed| {
            let took: Vec<Duration> = took.iter().map(|&took| ms(took)).collect();
            let goal = goal(&args(more), &took, ms(2), &timers, deposed).unwrap();
            (goal.bound_ms, goal.missed, goal.met)
        };
        assert_eq!(goal(&["resign"], &[3, 11], 0), (Some(11.0), 0, true));
        assert_eq!(goal(&["crash"], &[22, 23], 0), (Some(22.0), 1, false));
        let (bound, missed, met) = goal(&["pause"], &[10_050], 0);
        assert!(bound.is_some_and(|bound| bound > 10_022.0) && missed == 0 && met);
        let store = ["store", "--fault-command", "true"];
        assert_eq!(goal(&store, &[50_000], 0), (None, 0, true));
        assert_eq!(goal(&store, &[1], 1), (None, 1, false));
    }
}
