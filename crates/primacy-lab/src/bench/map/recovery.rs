//! The time that a node takes to catch up after an absence with many writes, and after the loss of its disk.

use std::time::{Duration, Instant};

use primacy::stores::etcd::api::{self, method};
use serde::Serialize;

use super::caller::{Caller, ask_within};
use super::puts::{CONNECTIONS_MAX, put, write_many};
use super::trio::{System, Trio};
use super::{Busy, Run, median_of};
use crate::bench::etcd::MEMBERS;
use crate::bench::failed;
use crate::bench::idle::rounded;
use crate::bench::spread::{Spread, milliseconds};
use crate::exit::Failure;

/// The length of each value, in bytes, and the number of keys that they are written to: a small state with a long history.
const VALUE_LENGTH: usize = 4096;
const KEYS: u64 = 20_000;
/// The number of writing clients.
const CLIENTS: usize = 64;
/// The interval between two requests to the node, and the longest time for an answer.
const LOOK: Duration = Duration::from_millis(2);
const ANSWER_MAX: Duration = Duration::from_millis(500);
/// The longest time for the whole recovery.
const PATIENCE: Duration = Duration::from_secs(300);
/// The key of the last write, whose presence shows that the node has all writes.
const LAST_KEY: &[u8] = b"bench/last";

/// The result of one system, as it is printed with `--json`.
#[derive(Debug, Serialize)]
pub(super) struct RecoveryRow {
    system: String,
    history_mib: u64,
    /// The duration of the writes, in seconds, and the number of refused writes.
    written_in_s: f64,
    errors: u64,
    /// From the start of the returning node's process to its first answer that has the last write.
    behind_ms: Spread,
    /// The same for a node with an empty disk, including the operator's commands.
    empty_ms: Spread,
    busy_median: f64,
    /// The memory of each node at the end, in MiB.
    pss_mib: Vec<f64>,
}

#[derive(Debug, Default)]
struct Measured {
    written_in: Vec<f64>,
    errors: u64,
    behind: Vec<Duration>,
    empty: Vec<Duration>,
    busy: Vec<f64>,
    pss_mib: Vec<f64>,
}

/// Measures in several rounds, one system after the other, each time with new nodes.
pub(super) async fn measure(run: &Run<'_>) -> Result<Vec<RecoveryRow>, Failure> {
    let systems = [System::Primacy, System::Etcd(None)];
    let mut measured: [Measured; 2] = Default::default();
    for round in 1..=run.rounds {
        for (&system, measured) in run.in_turns(round, systems.iter().zip(&mut measured)) {
            let mut trios = Trio::start_all(run.group, run.place.dir(), &[system]).await?;
            let trio = trios.first_mut().ok_or_else(|| failed("nothing was started"))?;
            measured.round(run, round, trio).await?;
        }
    }
    let rows = systems.iter().zip(measured).map(|(system, measured)| {
        Some(RecoveryRow {
            system: system.name(),
            history_mib: run.history_mib,
            written_in_s: rounded(median_of(&measured.written_in)?, 10.0),
            errors: measured.errors,
            behind_ms: Spread::of(&measured.behind)?,
            empty_ms: Spread::of(&measured.empty)?,
            busy_median: rounded(median_of(&measured.busy)?, 1e2),
            pss_mib: measured.pss_mib,
        })
    });
    rows.collect::<Option<_>>().ok_or_else(|| failed("nothing was measured"))
}

impl Measured {
    async fn round(&mut self, run: &Run<'_>, round: usize, trio: &mut Trio<'_>) -> Result<(), Failure> {
        let leader = trio.serves().await?;
        let served_at = Instant::now();
        let away = (leader + 1) % MEMBERS;
        trio.kill(away)?;
        let there: Vec<_> =
            (0..MEMBERS).filter(|&node| node != away).map(|node| trio.address(node)).collect();
        let callers = Caller::connected(&there, CONNECTIONS_MAX).await?;
        let length = u64::try_from(VALUE_LENGTH).unwrap_or(u64::MAX);
        let writes = (run.history_mib << 20) / length;
        let began = Instant::now();
        self.errors += write_many(&callers, CLIENTS, writes, (KEYS, VALUE_LENGTH)).await;
        self.written_in.push(began.elapsed().as_secs_f64());
        run.progress(round, &format!("{}: {} MiB written", trio.name(), run.history_mib));
        let last = put(u64::try_from(round).unwrap_or(0), LAST_KEY.to_vec());
        let written = callers[0].put(last.clone()).await;
        written.map_err(|status| failed(format!("{}: {status}", trio.name())))?;
        let (busy, began) = (Busy::start(), Instant::now());
        trio.start(away)?;
        self.behind.push(until_it_knows(run, trio, away, &last.value, began).await?);
        trio.serves().await?;
        trio.can_replace(served_at).await;
        trio.kill(away)?;
        let began = Instant::now();
        trio.start_empty(away).await?;
        self.empty.push(until_it_knows(run, trio, away, &last.value, began).await?);
        self.busy.push(busy.fraction());
        self.pss_mib = trio.memory().into_iter().map(|mib| rounded(mib, 10.0)).collect();
        let took = [&self.behind, &self.empty].map(|all| all.last().copied().map_or(0.0, milliseconds));
        run.progress(
            round,
            &format!("{}: {:.0} ms, and {:.0} ms from nothing", trio.name(), took[0], took[1]),
        );
        Ok(())
    }
}

/// Reads the node's own state until it has the last write.
async fn until_it_knows(
    run: &Run<'_>,
    trio: &Trio<'_>,
    node: usize,
    value: &[u8],
    began: Instant,
) -> Result<Duration, Failure> {
    let caller = Caller::lazily(trio.address(node))?;
    loop {
        let read =
            api::RangeRequest { key: LAST_KEY.to_vec(), serializable: true, ..api::RangeRequest::default() };
        let answer: Result<api::RangeResponse, _> =
            ask_within(ANSWER_MAX, caller.ask(method::RANGE, read)).await;
        if let Ok(answer) = answer
            && answer.kvs.first().is_some_and(|kv| kv.value == value)
        {
            return Ok(began.elapsed());
        }
        run.group.check_interrupted()?;
        if began.elapsed() > PATIENCE {
            return Err(failed(format!("{}: a node has not caught up within {PATIENCE:?}", trio.name())));
        }
        tokio::time::sleep(LOOK).await;
    }
}

impl std::fmt::Display for RecoveryRow {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { system, history_mib, written_in_s, errors, behind_ms, empty_ms, busy_median, pss_mib } =
            self;
        write!(
            f,
            "  {system:<8} {history_mib} MiB written in {written_in_s} s, {errors} errors; back after {:.0} (max {:.0}) ms; \
             with an empty disk after {:.0} (max {:.0}) ms; busy {busy_median}; MiB {pss_mib:?}",
            behind_ms.median, behind_ms.max, empty_ms.median, empty_ms.max
        )
    }
}
