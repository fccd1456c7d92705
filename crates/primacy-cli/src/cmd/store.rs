//! The operator's verbs over a store: they read the record, and write a request to resign into it.

mod apart;
mod queue;

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use primacy::config::{Timers, Venue, default_node};
use primacy::core::election::lease::{Holder, Record as LeaseRecord};
use primacy::core::{FencingToken, Identity, Incarnation, Instant, Leader as CoreLeader, Term};
use primacy::status::NEW_RECORD;
use primacy::stores::{OpenError, Opened, ReadError, Register, open_existing_any};
use primacy::{Change, Elector, ResignRequestError, ask_to_resign, clock};
use serde::Serialize;
use tokio::time::{interval, sleep, timeout};

use super::resign::Outcome;
use super::status::over_store;
use super::target::{self, Target, tell};
use super::watch::{WatchLine, show};
use crate::control::{self, Leader, NodeStatus, Record};
use crate::exit::{Exit, Failure};
use crate::printable::one_line;

pub(super) use apart::look_apart;

/// The time that a store may take to accept a request.
const WRITE_PATIENCE: Duration = Duration::from_secs(10);

/// The time that a store may take to open, or to answer a read.
const LOOK_PATIENCE: Duration = Duration::from_secs(15);

/// The verdict on the holder of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Verdict {
    /// The record is released, or there is none.
    Released,
    /// The record names a holder; it was read only once.
    Held,
    /// The record names a holder that does not lead yet: it is in probation, until an earlier holder would have
    /// stopped.
    Young,
    /// The holder has renewed the record during the observation.
    Renewed,
    /// The record has not changed for so long that another node may take it.
    RanOut,
}

/// The observation of a record until it changes.
struct Look {
    register: Arc<dyn Register>,
    first: LeaseRecord,
    since: Instant,
}

/// The result of an observation: the verdict, the record, and whether another node has taken it meanwhile.
type Known = (Verdict, Option<Record>, bool);

/// Runs a verb to its end. Does not wait for tasks that are still blocked by a store that does not answer.
pub(super) fn block_on<T>(verb: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let result = runtime.block_on(verb);
    runtime.shutdown_background();
    result
}

/// Returns a holder for trials of a store, in an election that no node uses.
pub(super) fn trier() -> Result<Holder, String> {
    let node = default_node().map_err(|error| error.to_string())?;
    let incarnation = Incarnation { count: clock::wall_millis(), nonce: u64::from(std::process::id()) };
    Ok(Holder { identity: Identity::new(node, incarnation), address: String::new() })
}

/// Runs `primacy status --store`.
pub(super) fn who(url: &str, election: &str, verify: bool, json: bool) -> Result<Exit, Failure> {
    #[derive(Serialize)]
    struct RecordReport<'a> {
        election: &'a str,
        verdict: Verdict,
        record: Option<&'a Record>,
    }
    let known = block_on(async {
        match answered(open_existing_any(url, election)).await?? {
            Opened::Register(register) => look(register, verify).await.map(Ok),
            // The store itself ends sessions, so a single read is conclusive.
            Opened::Sessions(store) => answered(queue::who(store.as_ref(), election, json)).await?.map(Err),
        }
    })?;
    let (verdict, record, taken) = match known {
        Ok(known) => known,
        Err(exit) => return Ok(exit),
    };
    let report = RecordReport { election, verdict, record: record.as_ref() };
    tell(json, &report, || {
        let Some(record) = &record else {
            return format!("{election}: nobody leads; the store has no record of it, so nobody ever has");
        };
        let leads = match (&record.holder, verdict) {
            (Some(holder), Verdict::Held) => {
                format!("{holder} leads, unless its lease has run out; one look cannot tell (--verify can)")
            }
            (Some(_), Verdict::Young) => {
                format!("nobody leads: {NEW_RECORD}; one look cannot tell whether it lives (--verify can)")
            }
            (Some(holder), Verdict::Renewed) if taken => format!("{holder} leads: it has just been elected"),
            (Some(holder), Verdict::Renewed) => format!("{holder} leads: it has renewed"),
            (Some(holder), Verdict::RanOut) => {
                format!("nobody leads: {holder} has not renewed, and others may take the record")
            }
            (Some(_), Verdict::Released) | (None, _) => "nobody leads".to_owned(),
        };
        format!("{}\n  {}", one_line(&format!("{election}: {leads}")), one_line(&over_store(record)))
    })?;
    Ok(match verdict {
        Verdict::Held | Verdict::Renewed => Exit::Success,
        Verdict::Released | Verdict::RanOut | Verdict::Young => Exit::NotElected,
    })
}

async fn look(register: Arc<dyn Register>, verify: bool) -> Result<Known, Failure> {
    let Some((first, _)) = answered(register.read()).await?? else {
        return Ok((Verdict::Released, None, false));
    };
    let look = Look { register, first, since: clock::now() };
    let (verdict, last) = match (look.first.holder.is_some(), verify) {
        (false, _) => (Verdict::Released, look.first.clone()),
        (true, false) => (Verdict::Held, look.first.clone()),
        (true, true) => look.verdict().await?,
    };
    let is_young = last.young && matches!(verdict, Verdict::Held | Verdict::Renewed);
    let verdict = if is_young { Verdict::Young } else { verdict };
    let unchanged = (verdict == Verdict::RanOut).then(|| clock::now().since(look.since).as_millis());
    Ok((verdict, Some(Record::new(&last, unchanged)), last.token != look.first.token))
}

/// Runs `primacy watch --store`.
pub(super) fn watch(url: &str, election: &str, json: bool) -> Result<Exit, Failure> {
    block_on(async {
        // A verb that only reads must not create a database.
        let opened = answered(open_existing_any(url, election)).await??;
        let me = default_node().map_err(|error| Failure::new(Exit::Config, error.to_string()))?;
        // An elector would first report that there is no leader, since it knows none before its first read.
        let mut known = answered(first_leader(&opened)).await??;
        let show_leader =
            |leader: Option<_>| WatchLine::Leader { leader: leader.map(|leader| Leader::new(leader, true)) };
        show(json, me.as_str(), show_leader(known))?;
        let builder = Elector::builder().election(election).node(me);
        let elector = builder.opened(opened).await;
        let elector = elector.map_err(|error| Failure::new(Exit::Unavailable, error.to_string()))?;
        let mut observer = elector.observe();
        let (mut has_looked, mut fails) = (false, false);
        let mut looks = interval(elector.timers().poll_interval);
        loop {
            let change = tokio::select! {
                biased;
                change = observer.changed() => change,
                _ = looks.tick() => {
                    let troubles = troubles(&elector).await;
                    if fails == troubles.is_empty() {
                        fails = !fails;
                        show(json, me.as_str(), WatchLine::Store { troubles })?;
                    }
                    continue;
                }
            };
            let Some(change) = change else { return Ok(Exit::Unavailable) };
            let seen = match change {
                Change::Leader(None) if !has_looked => {
                    has_looked = true;
                    continue;
                }
                Change::Leader(leader) if leader == known => continue,
                Change::Leader(leader) => {
                    (known, has_looked) = (leader, true);
                    show_leader(leader)
                }
                Change::Violation(violation) => WatchLine::Violation { violation: violation.to_string() },
                Change::Missed(changes) => WatchLine::Missed { changes: Some(changes) },
            };
            show(json, me.as_str(), seen)?;
        }
    })
}

/// Returns the present troubles of the store of this elector.
async fn troubles(elector: &Elector) -> Vec<String> {
    let status = elector.status().await;
    status.map_or_else(
        |_| Vec::new(), // It has ended, which is reported next.
        |status| status.store_troubles.iter().map(|trouble| trouble.text(status.at)).collect(),
    )
}

/// Returns the leader, from one read of the store.
async fn first_leader(opened: &Opened) -> Result<Option<CoreLeader>, Failure> {
    Ok(match opened {
        Opened::Register(register) => register.read().await?.and_then(|(record, _)| {
            let (holder, term) = (record.believing_holder()?, Term(record.token.0));
            Some(CoreLeader { identity: holder.identity, term })
        }),
        Opened::Sessions(store) => store.first().await?.map(|first| {
            let term = Term(first.token.0);
            CoreLeader { identity: first.holder.identity, term }
        }),
    })
}

/// Waits for the answer of a store, with a bound, since the store may be on a disk that hangs.
pub(super) async fn answered<T>(answer: impl Future<Output = T>) -> Result<T, Failure> {
    let late = |_| {
        let message = format!("the store has not answered within {LOOK_PATIENCE:?}");
        Failure::new(Exit::Unavailable, message)
    };
    timeout(LOOK_PATIENCE, answer).await.map_err(late)
}

/// Runs `primacy resign --store`.
pub(super) fn resign(url: &str, target: &Target, patience: Option<Duration>) -> Result<Exit, Failure> {
    let election = target.election.as_str();
    let by = default_node().map_err(|error| Failure::new(Exit::Config, error.to_string()))?;
    let outcome = block_on(async {
        let asked = ask_to_resign(url, election, by.as_str(), WRITE_PATIENCE).await?;
        let (node, term) = (asked.holder.to_string(), asked.token.0);
        let Some(patience) = patience else { return Ok(Outcome::Asked { node, term }) };
        let opened = answered(open_existing_any(url, election)).await??;
        let gone = async {
            match opened {
                Opened::Register(register) => gone(register, asked.token).await,
                Opened::Sessions(store) => queue::gone(store.as_ref(), asked.token).await,
            }
        };
        match timeout(patience, gone).await {
            Ok(gone) => gone.map(|()| Outcome::Resigned { node, term }),
            Err(_) => {
                let message = format!(
                    "{node} was asked to give up the lead with token {term}, and has not within {patience:?}: {}; the \
                     request stays in the store",
                    what_keeps_it(target, &node)
                );
                Err(Failure::new(Exit::NotElected, message))
            }
        }
    })?;
    outcome.tell(target.json)?;
    Ok(Exit::Success)
}

/// Returns the reason why a node that was asked to give up the lead keeps it. The store does not know the reason, but
/// the node does, if it runs on this machine.
fn what_keeps_it(target: &Target, node: &str) -> String {
    let found = target.state_dir().and_then(|dir| control::find_all(&dir, Some(&target.election)));
    let here = found.into_iter().flatten().find(|found| found.node == node);
    match here.and_then(|here| target::who(&here).ok()) {
        Some(NodeStatus { kept_by: Some(kept_by), .. }) => format!("it is still leading: {kept_by}"),
        Some(NodeStatus { kept_by: None, .. }) => "it has not begun to give it up".to_owned(),
        None => format!(
            "it renews the lead until its work has ended, and what keeps that, `primacy status --election {} --node {node}` says on \
             its machine",
            target.election
        ),
    }
}

/// Waits until the leadership with this token is over, as far as the record shows.
async fn gone(register: Arc<dyn Register>, token: FencingToken) -> Result<(), Failure> {
    loop {
        let read = answered(register.read()).await??;
        let Some((first, _)) = read.filter(|(record, _)| record.token == token) else { return Ok(()) };
        if first.holder.is_none() {
            return Ok(());
        }
        let look = Look { register: Arc::clone(&register), first, since: clock::now() };
        if look.verdict().await?.0 == Verdict::RanOut {
            return Ok(());
        }
    }
}

impl Look {
    /// Reads the record until it has changed, or may be taken, and returns it as it was read last. A request to resign
    /// is not a change, since it is written by another node than the holder. A store that cannot be read gives no
    /// information about the holder, either.
    async fn verdict(&self) -> Result<(Verdict, LeaseRecord), Failure> {
        let timers = Timers::new(Venue::Store, Some(self.first.duration.into()));
        let runs_out_at = self.since.after(timers.drift_max.lengthen(self.first.duration));
        loop {
            let began = clock::now();
            let is_last = began >= runs_out_at;
            let wait = timers.poll_interval.min(runs_out_at.since(began).into());
            match answered(self.register.read()).await? {
                Ok(Some((record, _))) if record.holder.is_none() => return Ok((Verdict::Released, record)),
                Ok(Some((record, _))) if self.is_unchanged(&record) => {
                    if is_last {
                        return Ok((Verdict::RanOut, record));
                    }
                    // This is only a hint; the record is read anyway.
                    let _ = timeout(wait, self.register.changed()).await;
                }
                // Another node may have renewed it, after taking it.
                Ok(Some((record, _))) => return Ok((Verdict::Renewed, record)),
                Ok(None) => return Ok((Verdict::Released, self.first.clone())),
                // The store may answer the next time. Until it is read, it may go on reporting a change, so this waits.
                Err(ReadError::Unavailable { .. }) if !is_last => sleep(wait).await,
                Err(error @ (ReadError::Unavailable { .. } | ReadError::Malformed { .. })) => {
                    return Err(error.into());
                }
            }
        }
    }

    fn is_unchanged(&self, record: &LeaseRecord) -> bool {
        let of = |record: &LeaseRecord| (record.holder.clone(), record.token, record.renewal, record.nonce);
        of(record) == of(&self.first)
    }
}

impl From<OpenError> for Failure {
    fn from(error: OpenError) -> Self {
        crate::entry::location::failure(&error.into())
    }
}

impl From<ReadError> for Failure {
    fn from(error: ReadError) -> Self {
        crate::entry::location::failure(&error.into())
    }
}

impl From<ResignRequestError> for Failure {
    fn from(error: ResignRequestError) -> Self {
        let exit = match error {
            ResignRequestError::Open(error) => return error.into(),
            ResignRequestError::Read(error) => return error.into(),
            ResignRequestError::Session(error) => return error.into(),
            ResignRequestError::NobodyLeads | ResignRequestError::NotYet => Exit::NotElected,
            ResignRequestError::NoRecord | ResignRequestError::CannotBeAsked { .. } => Exit::NotElected,
            ResignRequestError::Unknown | ResignRequestError::Unanswered => Exit::Unavailable,
            ResignRequestError::Thread(_) | ResignRequestError::Entropy(_) => Exit::System,
        };
        Self::new(exit, error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use primacy::core::election::lease::Version;
    use primacy::stores::{Pending, SetError};

    use super::*;

    /// Reports at once that it has changed, and reads its content.
    #[derive(Debug)]
    struct Restless {
        holds: Mutex<Result<LeaseRecord, ReadError>>,
        reads: AtomicUsize,
    }

    impl Register for Restless {
        fn read(&self) -> Pending<'_, Result<Option<(LeaseRecord, Version)>, ReadError>> {
            self.reads.fetch_add(1, Ordering::SeqCst);
            let holds = self.holds.lock().unwrap().clone();
            Box::pin(async { holds.map(|record| Some((record, Version::from(1)))) })
        }

        fn compare_and_set<'a>(
            &'a self,
            _: Option<&'a Version>,
            _: &'a LeaseRecord,
        ) -> Pending<'a, Result<Version, SetError>> {
            panic!("who looks writes nothing")
        }

        fn changed(&self) -> Pending<'_, ()> {
            Box::pin(async {})
        }
    }

    #[tokio::test]
    async fn a_store_that_cannot_be_read_says_nothing_of_the_holder_and_is_not_asked_without_a_pause() {
        let duration = Duration::from_millis(200);
        let first = LeaseRecord::released(FencingToken(7), duration.into());
        let unavailable = || Err(ReadError::Unavailable { why: "the disk is gone".to_owned() });
        let register = Arc::new(Restless { holds: Mutex::new(unavailable()), reads: AtomicUsize::new(0) });
        let look = Look { register: Arc::clone(&register) as _, first: first.clone(), since: clock::now() };
        let failure = look.verdict().await.unwrap_err();
        assert_eq!(failure.exit, Exit::Unavailable, "{}", failure.message);
        assert!(failure.message.contains("the disk is gone"), "{}", failure.message);
        let polls = duration.as_nanos() / Timers::new(Venue::Store, Some(duration)).poll_interval.as_nanos();
        let reads = register.reads.load(Ordering::SeqCst) as u128;
        assert!(reads <= polls + 3, "{reads} reads where {polls} were due");

        *register.holds.lock().unwrap() = Ok(first);
        assert_eq!(look.verdict().await.unwrap().0, Verdict::Released);
    }

    #[tokio::test]
    async fn the_holder_of_a_young_record_does_not_lead() {
        let duration = Duration::from_secs(10).into();
        let released = LeaseRecord::released(FencingToken(7), duration);
        let record = LeaseRecord { holder: Some(trier().unwrap()), young: true, ..released };
        let register = |record: LeaseRecord| {
            Arc::new(Restless { holds: Mutex::new(Ok(record)), reads: AtomicUsize::new(0) })
        };
        let verdict = async |record: &LeaseRecord| look(register(record.clone()), false).await.unwrap().0;
        let leader = async |record: &LeaseRecord| {
            first_leader(&Opened::Register(register(record.clone()))).await.unwrap().is_some()
        };
        assert_eq!((verdict(&record).await, leader(&record).await), (Verdict::Young, false));
        let grown = LeaseRecord { young: false, ..record };
        assert_eq!((verdict(&grown).await, leader(&grown).await), (Verdict::Held, true));
    }
}
