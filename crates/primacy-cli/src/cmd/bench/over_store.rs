//! Failover over a store, and the store's own round trip beside it.

use std::time::{Duration, Instant};

use primacy::core::FencingToken;
use primacy::core::election::lease::Record;
use primacy::stores::{Opened, open_any};
use serde::Serialize;
use tokio::runtime::Runtime;

use super::cluster::{Cluster, Network};
use super::failed;
use super::failover::{Class, Failover, Measured, not_counted, over, progress};
use super::place::Place;
use super::spread::{Spread, median, milliseconds};
use super::stage::Stage;
use super::subject::ELECTION;
use crate::entry::layers::Sources;
use crate::entry::place::{between_processes, resolve_url};
use crate::exit::{Exit, Failure};

/// The name under which the store is timed; no election can have it.
const NAME: &str = "primacy/bench";

/// What this machine may take beside the store where the leader resigns, and where its death is witnessed.
const RESIGNED_MACHINE: Duration = Duration::from_millis(5);
const DIED_MACHINE: Duration = Duration::from_millis(10);

/// How often the store is asked between two trials.
const REQUESTS: usize = 10;

/// How long the session lives at most with which a store that keeps sessions is timed.
const SESSION: Duration = Duration::from_secs(60);

/// What a failover may take of the store, and of this machine.
#[derive(Clone, Copy, Debug)]
struct Budget {
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
    /// To the moment at which the new leader holds its token.
    ms: Spread,
    /// To the first line of the new job.
    job_ms: Option<Spread>,
    /// A write to the store and its answer, or a keep-alive.
    round_trip_ms: Spread,
    /// What of these a failover may take at most; nothing where the lease must run out.
    bound_ms: Option<f64>,
    over_bound: Option<usize>,
}

/// Runs the trials, and prints what they measured.
pub(super) fn measure(args: &Failover, place: &Place, url: &str) -> Result<Exit, Failure> {
    let url = between_processes(resolve_url("on", url, &Sources::default())?)?;
    let mut timed = Timed::open(&url)?;
    let stage = Stage::new()?;
    let mut cluster =
        Cluster::start_on(&stage, Network::Loopback, args.settings(), args.nodes, place.dir(), Some(&url))?;
    let mut measured = Measured::default();
    for trial in 1..=args.trials {
        timed.measure()?;
        let took = measured.trial(args, &mut cluster, None)?;
        progress(args.class.name(), trial, args.trials, took);
    }
    drop(cluster);
    drop(stage);
    let outcome = outcome(args, &measured, &timed.times).ok_or_else(|| failed("nothing was measured"))?;
    if args.json {
        println!("{}", serde_json::to_string(&outcome).unwrap_or_default());
    } else {
        print(&outcome);
    }
    Ok(Exit::Success)
}

fn outcome(args: &Failover, measured: &Measured, round_trips: &[Duration]) -> Option<Outcome> {
    let bound = budget(args).and_then(|budget| {
        let bound = median(round_trips)? * budget.round_trips + budget.machine;
        Some(milliseconds(bound))
    });
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
        bound_ms: bound,
        over_bound: bound.map(|bound| over(&measured.elected, bound)),
    })
}

/// Where somebody tells that the leader is gone, nobody waits for its lease.
fn budget(args: &Failover) -> Option<Budget> {
    match args.class {
        Class::Resign | Class::JobExit => Some(Budget { round_trips: 3, machine: RESIGNED_MACHINE }),
        Class::Crash if !args.without_guardian => Some(Budget { round_trips: 6, machine: DIED_MACHINE }),
        Class::Crash | Class::Pause | Class::Host | Class::Transfer => None,
    }
}

fn print(outcome: &Outcome) {
    let Outcome { class, subject, nodes, from, trials, ms, round_trip_ms, .. } = outcome;
    println!("{class} of {subject}, {trials} trials, {nodes} nodes over a store; counted from {from}");
    println!("  elected    {ms}{}", not_counted(outcome.discarded));
    if let Some(job) = outcome.job_ms {
        println!("  first line {job}");
    }
    println!("  round trip {round_trip_ms}");
    match (outcome.bound_ms, outcome.over_bound) {
        (Some(bound), Some(over)) => {
            println!("  bound      {bound:.1} ms; {over} of {trials} trials have taken longer")
        }
        _ => println!("  bound      none: nobody tells, and the lease must run out"),
    }
}

/// The store, timed.
struct Timed {
    runtime: Runtime,
    opened: Opened,
    times: Vec<Duration>,
}

impl Timed {
    fn open(url: &str) -> Result<Self, Failure> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let opened = runtime.block_on(async {
            let opened = open_any(url, NAME).await?;
            if let Opened::Register(_) = &opened {
                // So that the first leader has nothing to wait for.
                primacy::init(url, ELECTION, Duration::ZERO).await?;
            }
            Ok::<_, Failure>(opened)
        })?;
        Ok(Self { runtime, opened, times: Vec::new() })
    }

    fn measure(&mut self) -> Result<(), Failure> {
        let Self { runtime, opened, times } = self;
        runtime.block_on(async {
            match opened {
                Opened::Register(register) => {
                    for _ in 0..REQUESTS {
                        let found = register.read().await?;
                        let version = found.as_ref().map(|(_, version)| version);
                        let renewal = found.as_ref().map_or(0, |(record, _)| record.renewal) + 1;
                        let record = Record::released(FencingToken(0), primacy::core::Duration::ZERO);
                        let began = Instant::now();
                        let written = register.compare_and_set(version, &Record { renewal, ..record }).await;
                        times.push(began.elapsed());
                        written.map_err(|error| failed(format!("the store cannot be timed: {error}")))?;
                    }
                }
                Opened::Sessions(sessions) => {
                    let text = |error: primacy::stores::SessionError| {
                        failed(format!("the store cannot be timed: {error}"))
                    };
                    let begun = sessions.begin(SESSION).await.map_err(text)?;
                    for _ in 0..REQUESTS {
                        let began = Instant::now();
                        sessions.keep_alive(&begun.session).await.map_err(text)?;
                        times.push(began.elapsed());
                    }
                    sessions.end(&begun.session).await.map_err(text)?;
                }
            }
            Ok(())
        })
    }
}
