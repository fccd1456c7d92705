//! The cost of ten thousand sessions that are only kept alive.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use primacy::stores::etcd::api::{self, method};
use serde::Serialize;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::caller::Caller;
use super::trio::{System, Trio};
use super::{Busy, Counted, Run, median_of};
use crate::bench::failed;
use crate::bench::idle::{Meter, rounded};
use crate::exit::Failure;

/// The number of sessions.
const SESSIONS: u64 = 10_000;
/// The times to live of the sessions, in seconds.
const TIMES_TO_LIVE: [u64; 2] = [60, 10];
/// The number of keep-alives in one time to live, as etcd's own client sends them.
const KEPT_ALIVE: u32 = 3;
/// The time for which all sessions are kept alive before the measurement, and the length of a round.
const SETTLE: Duration = Duration::from_secs(3);
const ROUND: Duration = Duration::from_secs(15);
/// The interval of the client's checks for due sessions, and of the readings of the processes.
const TICK: Duration = Duration::from_millis(10);
const LOOK: Duration = Duration::from_secs(1);
/// The number of sessions that are begun concurrently.
const AT_A_TIME: usize = 64;

/// The result for one time to live, as it is printed with `--json`.
#[derive(Debug, Serialize)]
pub(super) struct SessionsRow {
    sessions: usize,
    time_to_live_s: u64,
    kept_alive_per_second: f64,
    busy: f64,
    systems: Vec<Idle>,
    /// The ratio of the first system's processor time to the second's, over all nodes; and of the memory.
    cpu_ratio: f64,
    memory_ratio: f64,
}

/// The medians of all rounds, for each node.
#[derive(Debug, Serialize)]
struct Idle {
    system: String,
    leader: usize,
    /// In per cent of one core.
    cpu_percent: Vec<f64>,
    pss_mib: Vec<f64>,
    /// The number of sessions that ended although they were kept alive.
    lost: u64,
}

/// Sessions of one system, kept alive until this is dropped.
struct Kept {
    sessions: usize,
    lost: Arc<AtomicU64>,
    answered: Arc<AtomicU64>,
    _tasks: JoinSet<()>,
}

/// Measures both systems at the same time.
pub(super) async fn measure(run: &Run<'_>) -> Result<Vec<SessionsRow>, Failure> {
    let mut rows = Vec::new();
    for time_to_live_s in TIMES_TO_LIVE {
        rows.push(measure_one(run, time_to_live_s).await?);
    }
    Ok(rows)
}

async fn measure_one(run: &Run<'_>, time_to_live_s: u64) -> Result<SessionsRow, Failure> {
    let sessions = usize::try_from(run.sized(SESSIONS)).unwrap_or(usize::MAX);
    let systems = [System::Primacy, System::Etcd(None)];
    let trios = Trio::start_all(run.group, run.place.dir(), &systems).await?;
    let mut kept = Vec::new();
    for trio in &trios {
        kept.push(Kept::begin(trio, sessions, time_to_live_s).await?);
    }
    tokio::time::sleep(SETTLE).await;
    let processes: Vec<Vec<Vec<i32>>> = trios.iter().map(Trio::processes).collect();
    let all: Vec<i32> = processes.iter().flatten().flatten().copied().collect();
    let mut costs: Vec<Vec<Vec<(f64, f64)>>> =
        processes.iter().map(|nodes| nodes.iter().map(|_| Vec::new()).collect()).collect();
    let mut busy_each = Vec::new();
    for round in 1..=run.rounds {
        let (busy, mut meter) = (Busy::start(), Meter::start(all.clone(), false));
        let until = Instant::now() + run.sized_time(ROUND);
        while Instant::now() < until {
            tokio::time::sleep(LOOK).await;
            meter.look();
            run.group.check_interrupted()?;
        }
        busy_each.push(busy.fraction());
        let (read, _) = meter.read();
        let mut read = read.into_iter();
        for (processes, costs) in processes.iter().flatten().zip(costs.iter_mut().flatten()) {
            let own: Vec<_> = read.by_ref().take(processes.len()).flatten().collect();
            let cpu = own.iter().map(|cost| cost.cpu_percent).sum();
            costs.push((cpu, own.iter().map(|cost| cost.pss_mib).sum()));
        }
        run.progress(round, &format!("sessions of {time_to_live_s} s"));
    }
    let mut idle = Vec::new();
    for ((trio, kept), costs) in trios.iter().zip(&kept).zip(&costs) {
        idle.push(kept.idle(trio, costs).await?);
    }
    SessionsRow::of((sessions, time_to_live_s), &busy_each, idle)
        .ok_or_else(|| failed("nothing was measured"))
}

impl Kept {
    async fn begin(trio: &Trio<'_>, sessions: usize, time_to_live_s: u64) -> Result<Self, Failure> {
        let addresses = trio.addresses();
        let callers = Caller::connected(&addresses, addresses.len()).await?;
        let mut ids: Vec<Vec<i64>> = callers.iter().map(|_| Vec::new()).collect();
        let mut granting = JoinSet::new();
        for number in 0..sessions {
            let (place, ttl) = (number % callers.len(), i64::try_from(time_to_live_s).unwrap_or(i64::MAX));
            let caller = callers[place].clone();
            granting.spawn(async move {
                let grant = api::LeaseGrantRequest { ttl, id: 0 };
                let granted: Result<api::LeaseGrantResponse, _> =
                    caller.ask(method::LEASE_GRANT, grant).await;
                granted.map(|granted| (place, granted.id))
            });
            while granting.len() >= AT_A_TIME || number + 1 == sessions && !granting.is_empty() {
                let Some(Ok(Ok((place, id)))) = granting.join_next().await else {
                    return Err(failed(format!("{}: a session was not begun", trio.name())));
                };
                ids[place].push(id);
            }
        }
        let (lost, answered) = (Arc::<AtomicU64>::default(), Arc::<AtomicU64>::default());
        let mut tasks = JoinSet::new();
        let turn = Duration::from_secs(time_to_live_s) / KEPT_ALIVE;
        for (caller, ids) in callers.into_iter().zip(ids) {
            tasks.spawn(keep_alive(caller, ids, turn, Arc::clone(&lost), Arc::clone(&answered)));
        }
        Ok(Self { sessions, lost, answered, _tasks: tasks })
    }

    async fn idle(&self, trio: &Trio<'_>, costs: &[Vec<(f64, f64)>]) -> Result<Idle, Failure> {
        if self.answered.load(Ordering::Relaxed) == 0 {
            return Err(failed(format!("{}: nothing was kept alive", trio.name())));
        }
        let first = Caller::lazily(trio.address(0))?;
        let left: api::LeaseLeasesResponse = first
            .ask(method::LEASE_LEASES, api::LeaseLeasesRequest {})
            .await
            .map_err(|status| failed(format!("{}: {status}", trio.name())))?;
        let gone = u64::try_from(self.sessions.saturating_sub(left.leases.len())).unwrap_or(u64::MAX);
        let medians = |of: fn(&(f64, f64)) -> f64, places| {
            let all = costs.iter().map(|costs| costs.iter().map(of).collect::<Vec<_>>());
            all.map(|all| rounded(median_of(&all).unwrap_or(f64::NAN), places)).collect()
        };
        Ok(Idle {
            system: trio.name(),
            leader: trio.serves().await?,
            cpu_percent: medians(|cost| cost.0, 1e2),
            pss_mib: medians(|cost| cost.1, 10.0),
            lost: gone.max(self.lost.load(Ordering::Relaxed)),
        })
    }
}

/// Keeps each session alive once per interval, evenly spaced, over one stream.
async fn keep_alive(
    caller: Caller,
    ids: Vec<i64>,
    turn: Duration,
    lost: Arc<AtomicU64>,
    answered: Arc<AtomicU64>,
) {
    let (ask, asked) = mpsc::channel::<api::LeaseKeepAliveRequest>(ids.len().max(1));
    let asked = tokio_stream::wrappers::ReceiverStream::new(asked);
    let asking = async {
        let (began, mut sent) = (Instant::now(), 0.0);
        for &id in ids.iter().cycle() {
            while began.elapsed().as_secs_f64() / turn.as_secs_f64() * ids.len().counted() <= sent {
                tokio::time::sleep(TICK).await;
            }
            if ask.send(api::LeaseKeepAliveRequest { id }).await.is_err() {
                return;
            }
            sent += 1.0;
        }
    };
    let listening = async {
        let answers = caller.stream::<_, api::LeaseKeepAliveResponse>(method::LEASE_KEEP_ALIVE, asked).await;
        let Ok(mut answers) = answers else { return };
        while let Ok(Some(answer)) = answers.message().await {
            answered.fetch_add(1, Ordering::Relaxed);
            if answer.ttl <= 0 {
                lost.fetch_add(1, Ordering::Relaxed);
            }
        }
    };
    tokio::join!(asking, listening);
}

impl SessionsRow {
    fn of((sessions, time_to_live_s): (usize, u64), busy: &[f64], systems: Vec<Idle>) -> Option<Self> {
        let [first, second] = &systems[..] else { return None };
        let cpu = |idle: &Idle| idle.cpu_percent.iter().sum::<f64>();
        let cpu_ratio = rounded(cpu(first) / cpu(second), 1e2);
        let memory_ratio = rounded(median_of(&first.pss_mib)? / median_of(&second.pss_mib)?, 1e2);
        let kept_alive_per_second = rounded(
            (sessions.counted() * f64::from(KEPT_ALIVE)) / Duration::from_secs(time_to_live_s).as_secs_f64(),
            1.0,
        );
        let busy = rounded(median_of(busy)?, 1e2);
        Some(Self { sessions, time_to_live_s, kept_alive_per_second, busy, cpu_ratio, memory_ratio, systems })
    }
}

impl std::fmt::Display for SessionsRow {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        writeln!(
            f,
            "  {} sessions of {} s, {} kept alive a second, busy {}",
            self.sessions, self.time_to_live_s, self.kept_alive_per_second, self.busy
        )?;
        for Idle { system, leader, cpu_percent, pss_mib, lost } in &self.systems {
            writeln!(
                f,
                "    {system:<8} % of a core {cpu_percent:?}  MiB {pss_mib:?}  node {leader} leads, {lost} lost"
            )?;
        }
        write!(f, "    ratio: processor {}, memory {}", self.cpu_ratio, self.memory_ratio)
    }
}
