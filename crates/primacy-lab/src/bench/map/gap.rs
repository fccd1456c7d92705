//! The gap in writes after the leader is killed under load, as the clients see it.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde::Serialize;
use tokio::task::JoinSet;

use super::caller::{Caller, ask_within};
use super::puts::put;
use super::trio::{System, Trio};
use super::{Busy, Run, median_of};
use crate::bench::etcd::TIMERS;
use crate::bench::failed;
use crate::bench::idle::rounded;
use crate::bench::spread::{Spread, milliseconds};
use crate::exit::Failure;

/// The number of clients that write without pausing.
const CLIENTS: usize = 16;
/// The time after which a client gives up waiting and tries the next node. A write that was under way when the leader
/// died may never be answered; with a timeout longer than an election, the timeout itself would be measured.
const ANSWER_MAX: Duration = Duration::from_millis(100);
/// The pause of a client after a refusal, so that immediate refusals do not keep the machine busy.
const REFUSED_PAUSE: Duration = Duration::from_millis(2);
/// The time for which clients write before the kill, and the minimum time after it.
const BEFORE: Duration = Duration::from_secs(1);
const AFTER: Duration = Duration::from_secs(4);
/// The longest time after the kill at which a gap caused by it may begin: by then every client with an open request
/// has given up. Later gaps are reported separately, because a new leader's pauses matter too.
const OF_THE_CRASH: Duration = ANSWER_MAX;
/// The goal for a gap. Gaps above it are counted, because a median hides how often they occur.
const GOAL: Duration = Duration::from_millis(20);
/// The time for the killed node to catch up before the next trial.
const SETTLE: Duration = Duration::from_secs(2);

/// The result of one system, as it is printed with `--json`.
#[derive(Debug, Serialize)]
pub(super) struct GapRow {
    system: String,
    trials: usize,
    clients: usize,
    /// The longest time in which no client completed a write, among the gaps that begin at most 100 ms after the
    /// kill.
    gap_ms: Spread,
    /// The longest time in which any one client completed none, among the same gaps.
    client_gap_ms: Spread,
    /// The number of trials in which these exceeded 20 ms.
    gaps_over_goal: usize,
    client_gaps_over_goal: usize,
    /// The longest time in which no client completed a write, among the gaps that begin later; over the trials with later writes.
    later_gap_ms: Option<Spread>,
    /// The number of errors that the clients got in a trial.
    errors_median: f64,
    errors_max: f64,
    /// The texts of these errors with their counts, over all trials.
    errors: BTreeMap<String, u64>,
    /// The number of writes per second before the kill.
    rate_median: f64,
    busy_median: f64,
}

#[derive(Debug, Default)]
struct Measured {
    gaps: Vec<Duration>,
    client_gaps: Vec<Duration>,
    later_gaps: Vec<Duration>,
    errors: Vec<f64>,
    texts: BTreeMap<String, u64>,
    rates: Vec<f64>,
    busy: Vec<f64>,
}

/// The results of one client.
#[derive(Debug, Default)]
struct Seen {
    /// The times at which its writes were answered.
    done: Vec<Instant>,
    errors: Vec<String>,
}

/// Kills the leader of each system in each round.
pub(super) async fn measure(run: &Run<'_>) -> Result<Vec<GapRow>, Failure> {
    // The first timers are etcd's defaults, which need no arguments.
    let rivals = TIMERS.iter().enumerate().map(|(number, &timers)| (number > 0).then_some(timers));
    let systems: Vec<System> = [System::Primacy].into_iter().chain(rivals.map(System::Etcd)).collect();
    let mut trios = Trio::start_all(run.group, run.place.dir(), &systems).await?;
    let mut measured: Vec<Measured> = trios.iter().map(|_| Measured::default()).collect();
    for round in 1..=run.rounds {
        for (trio, measured) in run.in_turns(round, trios.iter_mut().zip(&mut measured)) {
            let busy = Busy::start();
            measured.trial(run, trio).await?;
            measured.busy.push(busy.fraction());
            tokio::time::sleep(run.sized_time(SETTLE)).await;
            run.group.check_interrupted()?;
            let took = measured.gaps.last().copied().unwrap_or_default();
            run.progress(round, &format!("{}: {:.1} ms", trio.name(), milliseconds(took)));
        }
    }
    let rows = trios.iter().zip(measured).map(|(trio, measured)| measured.row(trio.name()));
    rows.collect::<Option<_>>().ok_or_else(|| failed("nothing was measured"))
}

impl Measured {
    async fn trial(&mut self, run: &Run<'_>, trio: &mut Trio<'_>) -> Result<(), Failure> {
        let leader = trio.serves().await?;
        let (stop, seen) = (Arc::<AtomicBool>::default(), Arc::<Mutex<Vec<Seen>>>::default());
        let mut clients = JoinSet::new();
        for number in 0..CLIENTS {
            let client = Client::new(&trio.addresses(), number)?;
            clients.spawn(client.write(Arc::clone(&stop), Arc::clone(&seen)));
        }
        let began = Instant::now();
        tokio::time::sleep(run.sized_time(BEFORE)).await;
        let killed_at = Instant::now();
        trio.kill(leader)?;
        tokio::time::sleep(run.sized_time(AFTER)).await;
        stop.store(true, Ordering::Relaxed);
        while clients.join_next().await.is_some() {}
        let ended = Instant::now();
        let seen = std::mem::take(&mut *seen.lock().unwrap_or_else(PoisonError::into_inner));
        let mut all: Vec<Instant> = seen.iter().flat_map(|seen| seen.done.iter().copied()).collect();
        all.sort_unstable();
        let before = all.iter().filter(|&&at| at < killed_at).count();
        let longest = longest_gaps(&all, killed_at, ended);
        let of_clients = seen.iter().map(|seen| longest_gaps(&seen.done, killed_at, ended).of_the_crash);
        self.gaps.push(longest.of_the_crash);
        self.later_gaps.extend(longest.later);
        self.client_gaps.push(of_clients.max().unwrap_or_default());
        self.rates.push(super::Counted::counted(before) / (killed_at - began).as_secs_f64());
        let errors: Vec<String> = seen.into_iter().flat_map(|seen| seen.errors).collect();
        self.errors.push(super::Counted::counted(errors.len()));
        for error in errors {
            *self.texts.entry(error).or_default() += 1;
        }
        trio.start(leader)?;
        trio.serves().await?;
        Ok(())
    }

    fn row(self, system: String) -> Option<GapRow> {
        Some(GapRow {
            system,
            trials: self.gaps.len(),
            clients: CLIENTS,
            gap_ms: Spread::of(&self.gaps)?,
            client_gap_ms: Spread::of(&self.client_gaps)?,
            later_gap_ms: Spread::of(&self.later_gaps),
            gaps_over_goal: over_goal(&self.gaps),
            client_gaps_over_goal: over_goal(&self.client_gaps),
            errors_median: median_of(&self.errors)?,
            errors_max: self.errors.iter().copied().fold(0.0, f64::max),
            errors: self.texts,
            rate_median: rounded(median_of(&self.rates)?, 1.0),
            busy_median: rounded(median_of(&self.busy)?, 1e2),
        })
    }
}

fn over_goal(gaps: &[Duration]) -> usize {
    gaps.iter().filter(|&&gap| gap > GOAL).count()
}

/// The longest gaps.
#[derive(Debug, Default, PartialEq, Eq)]
struct Longest {
    of_the_crash: Duration,
    /// `None` if no gap begins later, because no write was completed any more.
    later: Option<Duration>,
}

/// Returns the longest gaps between consecutive writes that end after the kill; the last gap lasts until `ended`.
fn longest_gaps(done: &[Instant], killed_at: Instant, ended: Instant) -> Longest {
    let (mut last, mut longest) = (None, Longest::default());
    for &at in done.iter().chain([&ended]) {
        if at > killed_at {
            let since = last.unwrap_or(killed_at);
            let took = at.duration_since(since);
            if since > killed_at + OF_THE_CRASH {
                longest.later = longest.later.max(Some(took));
            } else {
                longest.of_the_crash = longest.of_the_crash.max(took);
            }
        }
        last = Some(at);
    }
    longest
}

/// A client that writes, and tries the next node when it is refused or gets no answer.
struct Client {
    /// Its own connection to each node.
    nodes: Vec<Caller>,
    next: usize,
    number: usize,
}

impl Client {
    fn new(addresses: &[SocketAddr], number: usize) -> Result<Self, Failure> {
        let nodes: Vec<Caller> =
            addresses.iter().map(|&address| Caller::lazily(address)).collect::<Result<_, _>>()?;
        Ok(Self { next: number % nodes.len(), nodes, number })
    }

    async fn write(mut self, stop: Arc<AtomicBool>, all: Arc<Mutex<Vec<Seen>>>) {
        let mut seen = Seen::default();
        let mut number = 0;
        while !stop.load(Ordering::Relaxed) {
            number += 1;
            let key = format!("bench/gap/{}/{}", self.number, number % 100).into_bytes();
            match ask_within(ANSWER_MAX, self.nodes[self.next].put(put(number, key))).await {
                Ok(_) => seen.done.push(Instant::now()),
                Err(status) => {
                    seen.errors.push(format!("{:?}: {}", status.code(), status.message()));
                    self.next = (self.next + 1) % self.nodes.len();
                    tokio::time::sleep(REFUSED_PAUSE).await;
                }
            }
        }
        all.lock().unwrap_or_else(PoisonError::into_inner).push(seen);
    }
}

impl std::fmt::Display for GapRow {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { system, trials, gap_ms, client_gap_ms, errors_median, errors_max, .. } = self;
        write!(
            f,
            "  {system:<16} longest gap median {:.1}  max {:.1} ms, {} of {trials} over {} ms; of one client {:.1}, {:.1}, {}; \
             errors median {errors_median}, max {errors_max}; {} writes/s before; busy {}",
            gap_ms.median,
            gap_ms.max,
            self.gaps_over_goal,
            GOAL.as_millis(),
            client_gap_ms.median,
            client_gap_ms.max,
            self.client_gaps_over_goal,
            self.rate_median,
            self.busy_median
        )?;
        if let Some(later) = &self.later_gap_ms {
            write!(f, "\n      later: median {:.1}  max {:.1} ms", later.median, later.max)?;
        }
        for (text, count) in &self.errors {
            write!(f, "\n      {count} times {text}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gap_is_counted_from_the_last_write_before_the_kill_to_the_end_and_later_ones_apart() {
        let began = Instant::now();
        let at = |millis: &[u64]| -> Vec<Instant> {
            millis.iter().map(|&millis| began + Duration::from_millis(millis)).collect()
        };
        let (killed_at, ended) = (at(&[100])[0], at(&[500])[0]);
        for (done, gap, later) in [
            // A long gap before the kill does not count.
            (&[1, 95, 99, 130, 140, 220, 310, 499][..], 80, Some(189)),
            (&[90, 170, 200, 290, 499], 90, Some(209)),
            (&[90, 101], 399, None),
            (&[90, 101, 201], 100, Some(299)),
            (&[], 400, None),
        ] {
            let (of_the_crash, later) = (Duration::from_millis(gap), later.map(Duration::from_millis));
            assert_eq!(
                longest_gaps(&at(done), killed_at, ended),
                Longest { of_the_crash, later },
                "{done:?}"
            );
        }
    }
}
