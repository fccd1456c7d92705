//! A map of one process, in memory and replicated nowhere: what the door is tested with.

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use primacy_core::metadata::command::{
    Applied, Change, Command, Keys, Operation, Outcome, Previous, Refusal, Request, SessionId, Version,
};
use primacy_core::metadata::state::State;
use primacy_core::{Identity, Incarnation, NodeId};
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, sleep_until};

use super::backend::{Backend, BackendError, Changes, Freshness, Life, Member, Pending, Vitals};

/// The numbers of the only cluster and of its only node.
const CLUSTER: u64 = 0x7072_696d_6163_7963;
const MEMBER: u64 = 0x7072_696d_6163_796d;

/// The only term.
const TERM: u64 = 1;

/// How long the timer waits where there is no session. It is woken when there is one.
const NO_SESSION_WAIT: Duration = Duration::from_secs(3600);

/// The only node.
#[derive(Debug)]
pub(crate) struct Local {
    inner: Mutex<Inner>,
    version: watch::Sender<Version>,
    /// The session that ends first may be another one.
    sooner: Notify,
    client: Identity,
    /// Where clients reach it.
    url: String,
}

#[derive(Debug)]
struct Inner {
    state: State,
    applied: u64,
    expiries: BTreeMap<SessionId, Instant>,
}

impl Local {
    /// An empty map, whose sessions end for as long as this runs within a runtime. `url` is where clients reach it.
    pub(crate) fn start(url: String) -> Arc<Self> {
        let inner = Inner { state: State::new(), applied: 0, expiries: BTreeMap::new() };
        let node = NodeId::new("local").expect("a name");
        let local = Arc::new(Self {
            version: watch::Sender::new(inner.state.version()),
            inner: Mutex::new(inner),
            sooner: Notify::new(),
            client: Identity::new(node, Incarnation { count: 1, nonce: 1 }),
            url,
        });
        tokio::spawn(Arc::clone(&local).end_sessions());
        local
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn apply(&self, command: Command) -> Outcome {
        let mut inner = self.inner();
        inner.applied += 1;
        let sequence = inner.applied;
        let request = Request { client: self.client, sequence, done_below: sequence, command };
        let Applied::First(outcome) = inner.state.apply(&request) else {
            unreachable!("each request has a number of its own")
        };
        if outcome.result.is_ok() {
            match request.command {
                Command::Begin { session, time_to_live } => {
                    let expiry = Instant::now() + Duration::from_nanos(time_to_live.as_nanos());
                    inner.expiries.insert(session, expiry);
                    self.sooner.notify_one();
                }
                Command::End { session } | Command::Expire { session } => {
                    inner.expiries.remove(&session);
                }
                Command::Operate(_) | Command::Compact(_) | Command::Forget { .. } | Command::Limit(_) => {}
                Command::Partitions(_) => {} // None of etcd's requests.
            }
        }
        // Within the lock, so that it never goes back.
        self.version.send_if_modified(|version| {
            let is_new = *version != outcome.version;
            *version = outcome.version;
            is_new
        });
        outcome
    }

    async fn end_sessions(self: Arc<Self>) {
        loop {
            let now = Instant::now();
            let (over, next) = {
                let inner = self.inner();
                let over = inner.expiries.iter().find(|(_, expiry)| **expiry <= now);
                let next = inner.expiries.values().min();
                (over.map(|(&session, _)| session), next.copied().unwrap_or(now + NO_SESSION_WAIT))
            };
            match over {
                Some(session) => {
                    self.apply(Command::End { session });
                }
                None => tokio::select! {
                    () = sleep_until(next) => {}
                    () = self.sooner.notified() => {}
                },
            }
        }
    }
}

impl Backend for Local {
    fn propose(&self, command: Command) -> Pending<'_, Result<Outcome, BackendError>> {
        let outcome = self.apply(command);
        Box::pin(std::future::ready(Ok(outcome)))
    }

    fn read(
        &self,
        operation: Operation,
        _freshness: Freshness,
    ) -> Pending<'_, Result<Outcome, BackendError>> {
        let outcome = self.inner().state.observe(&operation).expect("only what only reads is asked for");
        Box::pin(std::future::ready(Ok(outcome)))
    }

    fn keep_alive(&self, session: SessionId) -> Pending<'_, Result<Option<Duration>, BackendError>> {
        let mut inner = self.inner();
        let time_to_live = inner.state.session(session).map(|session| session.time_to_live());
        let time_to_live = time_to_live.map(|time| Duration::from_nanos(time.as_nanos()));
        if let Some(time_to_live) = time_to_live {
            inner.expiries.insert(session, Instant::now() + time_to_live);
        }
        Box::pin(std::future::ready(Ok(time_to_live)))
    }

    fn session(&self, session: SessionId) -> Pending<'_, Result<Option<Life>, BackendError>> {
        let inner = self.inner();
        let life = inner.state.session(session).map(|found| Life {
            left: inner.expiries[&session].saturating_duration_since(Instant::now()),
            time_to_live: Duration::from_nanos(found.time_to_live().as_nanos()),
            keys: found.keys().cloned().collect(),
        });
        Box::pin(std::future::ready(Ok(life)))
    }

    fn sessions(&self) -> Pending<'_, Result<Vec<SessionId>, BackendError>> {
        let mut sessions: Vec<(Instant, SessionId)> =
            self.inner().expiries.iter().map(|(&session, &expiry)| (expiry, session)).collect();
        sessions.sort_unstable();
        let sessions = sessions.into_iter().map(|(_, session)| session).collect();
        Box::pin(std::future::ready(Ok(sessions)))
    }

    fn changes(
        &self,
        keys: &Keys,
        from: Version,
        previous: Previous,
        most: NonZeroUsize,
    ) -> Result<Changes, Refusal> {
        changes_of(&self.inner().state, keys, from, previous, most)
    }

    fn version(&self) -> watch::Receiver<Version> {
        self.version.subscribe()
    }

    fn vitals(&self) -> Vitals {
        let inner = self.inner();
        let size = inner.state.size();
        Vitals {
            cluster: CLUSTER,
            member: MEMBER,
            leader: Some(MEMBER),
            term: TERM,
            logged: inner.applied,
            applied: inner.applied,
            bytes: size.bytes + size.history_bytes,
            bytes_in_use: size.bytes,
        }
    }

    fn members(&self) -> Vec<Member> {
        let urls = vec![self.url.clone()];
        let member =
            Member { number: MEMBER, name: "m0".to_owned(), for_peers: urls.clone(), for_clients: urls };
        vec![member]
    }
}

/// What a state knows of what has happened: see [`Backend::changes`].
pub(super) fn changes_of(
    state: &State,
    keys: &Keys,
    from: Version,
    previous: Previous,
    most: NonZeroUsize,
) -> Result<Changes, Refusal> {
    let version = state.version();
    let mut list: Vec<Change> = Vec::new();
    for change in state.changes(keys, from, previous)? {
        if let Some(last) = list.last()
            && list.len() >= most.get()
            && last.version != change.version
        {
            let through = last.version;
            return Ok(Changes { list, through, version });
        }
        list.push(change);
    }
    Ok(Changes { list, through: version, version })
}
