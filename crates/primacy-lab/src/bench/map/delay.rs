//! The delay from the request of a write to its event at a watcher.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use primacy::stores::etcd::api::{self, method};
use serde::Serialize;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::caller::Caller;
use super::puts::{CONNECTIONS_MAX, put};
use super::trio::{System, Trio};
use super::{Busy, Run, median_of};
use crate::bench::failed;
use crate::bench::idle::rounded;
use crate::bench::spread::Spread;
use crate::exit::Failure;

/// The numbers of watchers.
const WATCHERS: [usize; 2] = [1, 100];
/// The number of writes in a round, and the pause between them.
const WRITES: u64 = 200;
const PAUSE: Duration = Duration::from_millis(5);
/// The longest time that the event may take after the last write.
const PATIENCE: Duration = Duration::from_secs(10);

/// The prefix of all keys that are watched.
const PREFIX: &str = "bench/watched/";
const PREFIX_END: &str = "bench/watched0";

/// The result for one number of watchers, as it is printed with `--json`.
#[derive(Debug, Serialize)]
pub(super) struct DelayRow {
    watchers: usize,
    systems: Vec<Delay>,
    /// The ratio of the first system's median to the second's.
    ratio: f64,
}

#[derive(Debug, Serialize)]
struct Delay {
    system: String,
    /// From the request to the event, over all watchers.
    told_ms: Spread,
    /// From the request to the last watcher's event.
    last_told_ms: Spread,
    /// From the request to its answer.
    answered_ms: Spread,
    busy_median: f64,
}

#[derive(Debug, Default)]
struct Measured {
    told: Vec<Duration>,
    last_told: Vec<Duration>,
    answered: Vec<Duration>,
    busy: Vec<f64>,
}

/// The number of a write whose event a watcher got, with the time.
type News = (u64, Instant);

/// Measures in several rounds, the systems in turn. The watchers are spread over all nodes; one client writes, at the first node.
pub(super) async fn measure(run: &Run<'_>) -> Result<Vec<DelayRow>, Failure> {
    let systems = [System::Primacy, System::Etcd(None)];
    let trios = Trio::start_all(run.group, run.place.dir(), &systems).await?;
    let mut measured: Vec<[Measured; 2]> = WATCHERS.iter().map(|_| Default::default()).collect();
    for round in 1..=run.rounds {
        for (&watchers, measured) in WATCHERS.iter().zip(&mut measured) {
            for (trio, measured) in run.in_turns(round, trios.iter().zip(measured.iter_mut())) {
                let busy = Busy::start();
                measured.round(trio, watchers, run.sized(WRITES)).await?;
                measured.busy.push(busy.fraction());
                run.group.check_interrupted()?;
            }
            run.progress(round, &format!("{watchers} watchers"));
        }
    }
    let rows = WATCHERS.iter().zip(measured).map(|(&watchers, measured)| {
        let delays = trios.iter().zip(&measured).map(|(trio, measured)| measured.delay(trio.name()));
        let systems: Vec<Delay> = delays.collect::<Option<_>>()?;
        let [first, second] = &systems[..] else { return None };
        let ratio = rounded(first.told_ms.median / second.told_ms.median, 1e2);
        Some(DelayRow { watchers, systems, ratio })
    });
    rows.collect::<Option<_>>().ok_or_else(|| failed("nothing was measured"))
}

impl Measured {
    async fn round(&mut self, trio: &Trio<'_>, watchers: usize, writes: u64) -> Result<(), Failure> {
        let (tell, mut told) = mpsc::unbounded_channel();
        let callers = Caller::connected(&trio.addresses(), watchers.min(CONNECTIONS_MAX)).await?;
        let (ready, mut is_ready) = mpsc::channel::<()>(1);
        let mut watching = JoinSet::new();
        for caller in callers.iter().cycle().take(watchers) {
            watching.spawn(watch(caller.clone(), tell.clone(), ready.clone()));
        }
        drop((tell, ready));
        // The channel closes when the last watcher has begun.
        while is_ready.recv().await.is_some() {}
        let mut asked_at: HashMap<u64, Instant> = HashMap::new();
        let writer = Caller::connected(&[trio.address(0)], 1).await?;
        for number in 0..writes {
            let asked = Instant::now();
            asked_at.insert(number, asked);
            let written = writer[0].put(put(number, format!("{PREFIX}{number:08}").into_bytes())).await;
            written.map_err(|status| failed(format!("{}: {status}", trio.name())))?;
            self.answered.push(asked.elapsed());
            tokio::time::sleep(PAUSE).await;
        }
        let until = Instant::now() + PATIENCE;
        let mut last: HashMap<u64, Duration> = HashMap::new();
        for _ in 0..watchers * asked_at.len() {
            let news = tokio::time::timeout_at(until.into(), told.recv()).await;
            let Ok(Some((number, at))) = news else {
                return Err(failed(format!("{}: a watcher was not told of a write", trio.name())));
            };
            let took = asked_at.get(&number).map_or(Duration::ZERO, |asked| at.duration_since(*asked));
            self.told.push(took);
            let latest = last.entry(number).or_default();
            *latest = took.max(*latest);
        }
        self.last_told.extend(last.into_values());
        Ok(())
    }

    fn delay(&self, system: String) -> Option<Delay> {
        Some(Delay {
            system,
            told_ms: Spread::of(&self.told)?,
            last_told_ms: Spread::of(&self.last_told)?,
            answered_ms: Spread::of(&self.answered)?,
            busy_median: rounded(median_of(&self.busy)?, 1e2),
        })
    }
}

/// Watches until the receiver of the events is gone. `ready` is dropped once the watch has begun.
async fn watch(caller: Caller, tell: mpsc::UnboundedSender<News>, ready: mpsc::Sender<()>) {
    let create = api::WatchCreateRequest {
        key: PREFIX.into(),
        range_end: PREFIX_END.into(),
        ..api::WatchCreateRequest::default()
    };
    let create = api::WatchRequest { request_union: Some(api::RequestUnion::CreateRequest(create)) };
    // Kept to the end: a stream ends when its requests end.
    let (questions, asked) = mpsc::unbounded_channel();
    if questions.send(create).is_err() {
        return;
    }
    let asked = tokio_stream::wrappers::UnboundedReceiverStream::new(asked);
    let answers = caller.stream::<_, api::WatchResponse>(method::WATCH, asked).await;
    let Ok(mut answers) = answers else { return };
    let mut ready = Some(ready);
    while let Ok(Some(answer)) = answers.message().await {
        let at = Instant::now();
        if answer.created {
            ready = None;
        }
        for event in answer.events {
            let key = event.kv.map(|kv| kv.key).unwrap_or_default();
            let number = key.strip_prefix(PREFIX.as_bytes()).and_then(|rest| std::str::from_utf8(rest).ok());
            if let Some(number) = number.and_then(|number| number.parse().ok())
                && tell.send((number, at)).is_err()
            {
                return;
            }
        }
    }
    drop(ready);
}

impl std::fmt::Display for DelayRow {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for Delay { system, told_ms, last_told_ms, answered_ms, busy_median } in &self.systems {
            writeln!(
                f,
                "  {:>4} watchers  {system:<8} told p50 {:.2}  p99 {:.2}; the last one p50 {:.2}  p99 {:.2}; the writer \
                 p50 {:.2} ms  busy {busy_median}",
                self.watchers,
                told_ms.median,
                told_ms.p99,
                last_told_ms.median,
                last_told_ms.p99,
                answered_ms.median
            )?;
        }
        write!(f, "           ratio: {}", self.ratio)
    }
}
