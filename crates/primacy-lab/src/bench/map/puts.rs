//! Puts and guarded transactions: the rate, the latency, and the memory of the nodes afterwards.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use primacy::stores::etcd::api::{self, method};
use serde::Serialize;
use tokio::task::JoinSet;
use tonic::Status;

use super::caller::Caller;
use super::trio::{System, Trio};
use super::{Busy, Counted, Run, median_of};
use crate::bench::failed;
use crate::bench::idle::rounded;
use crate::bench::spread::Spread;
use crate::exit::Failure;

/// The number of keys, which are written in scattered order.
const KEYS: u64 = 10_000;
/// The length of each value, in bytes.
const VALUE_LENGTH: usize = 256;
/// The maximum number of connections; more clients share them.
pub(super) const CONNECTIONS_MAX: usize = 32;
/// The number of clients, and the total number of their requests in a round.
const LOADS: [(usize, u64); 3] = [(1, 1_000), (16, 8_000), (256, 20_000)];
/// The number of clients that write all keys before the measurement.
const FILLERS: usize = 64;

/// The kind of request of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Kind {
    /// A put.
    Put,
    /// A put on condition that another key is unchanged since a version: a leader's guarded write.
    Guarded,
}

/// The nodes that get the requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Asked {
    /// All nodes, in turn.
    All,
    /// The leader.
    Leader,
}

/// The parameters of one measurement.
#[derive(Clone, Copy, Debug)]
struct Case {
    kind: Kind,
    asked: Asked,
    clients: usize,
    requests: u64,
    keys: u64,
}

/// The result of one case, as it is printed with `--json`.
#[derive(Debug, Serialize)]
pub(super) struct PutsRow {
    kind: Kind,
    asked: Asked,
    clients: usize,
    requests_each_round: u64,
    systems: Vec<Speed>,
    /// The ratio of the first system's rate to the second's.
    rate_ratio: f64,
    /// The same ratio of the 99th percentiles; less than one means that the first is faster.
    p99_ratio: f64,
}

#[derive(Debug, Serialize)]
struct Speed {
    system: String,
    /// Over all rounds.
    rate_median: f64,
    rate_min: f64,
    rate_max: f64,
    /// The latency of all requests of all rounds.
    ms: Spread,
    errors: u64,
    /// The busy share of the machine.
    busy_median: f64,
}

/// The memory of each node, with the same data in both systems.
#[derive(Debug, Serialize)]
pub(super) struct Memory {
    /// The number of writes, and of the keys that they were spread over.
    writes: u64,
    keys: u64,
    systems: Vec<MemoryOf>,
    /// The ratio of the median of the first system's nodes to that of the second's.
    ratio: f64,
}

#[derive(Debug, Serialize)]
struct MemoryOf {
    system: String,
    pss_mib: Vec<f64>,
}

/// The measurements of one system in one case.
#[derive(Debug, Default)]
struct Measured {
    rates: Vec<f64>,
    took: Vec<Duration>,
    busy: Vec<f64>,
    errors: u64,
}

/// The measurements of one round of one case.
struct Sample {
    elapsed: Duration,
    took: Vec<Duration>,
    errors: u64,
}

fn cases(run: &Run<'_>) -> Vec<Case> {
    let mut cases = Vec::new();
    for kind in [Kind::Put, Kind::Guarded] {
        for asked in [Asked::All, Asked::Leader] {
            let case = |(clients, all)| Case {
                kind,
                asked,
                clients,
                requests: run.sized(all),
                keys: run.sized(KEYS),
            };
            cases.extend(LOADS.map(case));
        }
    }
    cases
}

/// Measures all cases in several rounds, the systems in turn.
pub(super) async fn measure(run: &Run<'_>) -> Result<(Vec<PutsRow>, Memory), Failure> {
    let systems = [System::Primacy, System::Etcd(None)];
    let trios = Trio::start_all(run.group, run.place.dir(), &systems).await?;
    let (cases, keys) = (cases(run), run.sized(KEYS));
    let mut measured: Vec<[Measured; 2]> = cases.iter().map(|_| Default::default()).collect();
    for trio in &trios {
        fill(trio, keys).await?;
    }
    for round in 1..=run.rounds {
        for (case, measured) in cases.iter().zip(&mut measured) {
            for (trio, measured) in run.in_turns(round, trios.iter().zip(measured.iter_mut())) {
                let busy = Busy::start();
                let sample = case.run(trio, round).await?;
                measured.add(sample, busy.fraction());
                run.group.check_interrupted()?;
            }
            run.progress(round, &format!("{:?} by {} clients", case.kind, case.clients));
        }
    }
    let rounds = u64::try_from(run.rounds).unwrap_or(u64::MAX);
    let writes = keys + rounds * cases.iter().map(|case| case.requests).sum::<u64>();
    let memory = Memory::of(&trios, writes, keys);
    let rows = cases.iter().zip(measured).map(|(case, measured)| case.row(&trios, measured));
    let rows = rows.collect::<Option<_>>().ok_or_else(|| failed("nothing was measured"))?;
    Ok((rows, memory))
}

/// Writes each key once.
async fn fill(trio: &Trio<'_>, keys: u64) -> Result<(), Failure> {
    let callers = Caller::connected(&trio.addresses(), CONNECTIONS_MAX).await?;
    let put = |number| Question::Put(put(number, key(number)));
    let sample = load(&callers, FILLERS, keys, put).await;
    if sample.errors == 0 {
        return Ok(());
    }
    Err(failed(format!("{} refused {} of the first {keys} writes", trio.name(), sample.errors)))
}

impl Case {
    async fn run(self, trio: &Trio<'_>, round: usize) -> Result<Sample, Failure> {
        let addresses = match self.asked {
            Asked::All => trio.addresses(),
            Asked::Leader => vec![trio.address(trio.serves().await?)],
        };
        let callers = Caller::connected(&addresses, self.clients.min(CONNECTIONS_MAX)).await?;
        let guard = guard(&callers[0]).await?;
        let first = u64::try_from(round).unwrap_or(0) * self.requests;
        let (kind, keys) = (self.kind, self.keys);
        let question = move |number| {
            let number = first + number;
            let put = put(number, key(scattered(number) % keys));
            match kind {
                Kind::Put => Question::Put(put),
                Kind::Guarded => Question::Guarded(Box::new(guarded(put, guard))),
            }
        };
        Ok(load(&callers, self.clients, self.requests, question).await)
    }

    fn row(self, trios: &[Trio<'_>], measured: [Measured; 2]) -> Option<PutsRow> {
        let speeds = trios.iter().zip(measured).map(|(trio, measured)| {
            let Measured { rates, took, busy, errors } = measured;
            Some(Speed {
                system: trio.name(),
                rate_median: rounded(median_of(&rates)?, 1.0),
                rate_min: rounded(rates.iter().copied().fold(f64::INFINITY, f64::min), 1.0),
                rate_max: rounded(rates.iter().copied().fold(0.0, f64::max), 1.0),
                ms: Spread::of(&took)?,
                errors,
                busy_median: rounded(median_of(&busy)?, 1e2),
            })
        });
        let systems: Vec<Speed> = speeds.collect::<Option<_>>()?;
        let [first, second] = &systems[..] else { return None };
        Some(PutsRow {
            kind: self.kind,
            asked: self.asked,
            clients: self.clients,
            requests_each_round: self.requests,
            rate_ratio: rounded(first.rate_median / second.rate_median, 1e2),
            p99_ratio: rounded(first.ms.p99 / second.ms.p99, 1e2),
            systems,
        })
    }
}

impl Measured {
    fn add(&mut self, sample: Sample, busy: f64) {
        let Sample { elapsed, took, errors } = sample;
        self.rates.push(took.len().counted() / elapsed.as_secs_f64());
        self.took.extend(took);
        self.busy.push(busy);
        self.errors += errors;
    }
}

impl Memory {
    fn of(trios: &[Trio<'_>], writes: u64, keys: u64) -> Self {
        let of = |trio: &Trio<'_>| {
            let pss_mib = trio.memory().into_iter().map(|mib| rounded(mib, 10.0)).collect();
            MemoryOf { system: trio.name(), pss_mib }
        };
        let systems: Vec<MemoryOf> = trios.iter().map(of).collect();
        let median = |number: usize| systems.get(number).and_then(|it| median_of(&it.pss_mib));
        let ratio = median(0).zip(median(1)).map_or(f64::NAN, |(first, second)| first / second);
        Self { writes, keys, systems, ratio: rounded(ratio, 1e2) }
    }
}

/// A request to a node.
pub(super) enum Question {
    Put(api::PutRequest),
    Guarded(Box<api::TxnRequest>),
}

impl Question {
    /// Sends the request. Returns true if it took effect.
    async fn ask(self, caller: &Caller) -> Result<bool, Status> {
        match self {
            Self::Put(put) => caller.put(put).await.map(|_| true),
            Self::Guarded(transaction) => {
                let answer: api::TxnResponse = caller.ask(method::TXN, *transaction).await?;
                Ok(answer.succeeded)
            }
        }
    }
}

/// Runs this many clients, each of which sends its next request when the last one is answered, until `requests` were
/// sent in all.
async fn load(
    callers: &[Caller],
    clients: usize,
    requests: u64,
    question: impl Fn(u64) -> Question + Clone + Send + 'static,
) -> Sample {
    let next = Arc::new(AtomicU64::new(0));
    let mut asking = JoinSet::new();
    let began = Instant::now();
    for caller in callers.iter().cycle().take(clients) {
        let (caller, next, question) = (caller.clone(), Arc::clone(&next), question.clone());
        asking.spawn(async move {
            let (mut took, mut errors) = (Vec::new(), 0);
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                if number >= requests {
                    return (took, errors);
                }
                let asked_at = Instant::now();
                match question(number).ask(&caller).await {
                    Ok(true) => took.push(asked_at.elapsed()),
                    Ok(false) | Err(_) => errors += 1,
                }
            }
        });
    }
    let (mut all, mut failed) = (Vec::new(), 0);
    while let Some(Ok((took, errors))) = asking.join_next().await {
        all.extend(took);
        failed += errors;
    }
    Sample { elapsed: began.elapsed(), took: all, errors: failed }
}

/// Sends many similar puts, to produce a history: `length` bytes under one of `keys` keys.
pub(super) async fn write_many(
    callers: &[Caller],
    clients: usize,
    writes: u64,
    (keys, length): (u64, usize),
) -> u64 {
    let question = move |number| {
        let mut put = put(number, key(scattered(number) % keys));
        put.value = value(number, length);
        Question::Put(put)
    };
    load(callers, clients, writes, question).await.errors
}

/// Writes the guard key, and returns its revision.
async fn guard(caller: &Caller) -> Result<i64, Failure> {
    let written = caller.put(put(0, GUARD.to_vec())).await;
    let header = written.map_err(|status| failed(format!("the guard cannot be written: {status}")))?.header;
    header.map(|header| header.revision).ok_or_else(|| failed("an answer has no header"))
}

const GUARD: &[u8] = b"bench/guard";

fn guarded(put: api::PutRequest, revision: i64) -> api::TxnRequest {
    let compare = api::Compare {
        result: api::CompareResult::Equal as i32,
        target: api::CompareTarget::Mod as i32,
        key: GUARD.to_vec(),
        target_union: Some(api::TargetUnion::ModRevision(revision)),
        range_end: Vec::new(),
    };
    let put = api::RequestOp { request: Some(api::Request::RequestPut(put)) };
    api::TxnRequest { compare: vec![compare], success: vec![put], failure: Vec::new() }
}

pub(super) fn put(number: u64, key: Vec<u8>) -> api::PutRequest {
    api::PutRequest { key, value: value(number, VALUE_LENGTH), ..api::PutRequest::default() }
}

fn key(number: u64) -> Vec<u8> {
    format!("bench/keys/{number:08}").into_bytes()
}

/// Bytes that differ for each number.
fn value(number: u64, length: usize) -> Vec<u8> {
    let words = (0..).map(|word| scattered(number.wrapping_mul(0x1_0000) + word).to_le_bytes());
    words.flatten().take(length).collect()
}

/// SplitMix64: maps consecutive numbers to scattered ones.
fn scattered(number: u64) -> u64 {
    let mixed = number.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

impl std::fmt::Display for PutsRow {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let asked = match self.asked {
            Asked::All => "all nodes",
            Asked::Leader => "the leader",
        };
        let kind = match self.kind {
            Kind::Put => "put",
            Kind::Guarded => "guarded",
        };
        for speed in &self.systems {
            let Speed { system, rate_median, rate_min, rate_max, ms, errors, busy_median } = speed;
            writeln!(
                f,
                "  {kind:<8} {:>4} clients of {asked:<10}  {system:<8} {rate_median:>7.0}/s ({rate_min:.0} to \
                 {rate_max:.0})  p50 {:>7.2}  p99 {:>7.2} ms  {errors} errors  busy {busy_median}",
                self.clients, ms.median, ms.p99
            )?;
        }
        write!(f, "           ratio: rate {}, p99 {}", self.rate_ratio, self.p99_ratio)
    }
}

impl std::fmt::Display for Memory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        writeln!(f, "memory after {} writes over {} keys, MiB of each node:", self.writes, self.keys)?;
        for MemoryOf { system, pss_mib } in &self.systems {
            writeln!(f, "  {system:<8} {pss_mib:?}")?;
        }
        write!(f, "  ratio of the medians: {}", self.ratio)
    }
}
