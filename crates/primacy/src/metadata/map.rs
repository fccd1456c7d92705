//! The map, as the application uses it.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock, PoisonError, RwLock, RwLockReadGuard};
use std::time::Duration;

use primacy_core::{Leader, LeaderSequence, NodeId, Term};
use primacy_kv::command::{Command, Operation, Outcome, Read, Refusal, RequestLimits, SessionId, Version};
use primacy_kv::entry::Entry;
use primacy_kv::machine::clients::Keep;
use primacy_kv::replication::replica::{Progress, VoterChange};
use primacy_kv::state::State;
use tokio::sync::{Semaphore, mpsc, oneshot, watch};

use crate::config::REQUEST_MAX;

#[cfg(feature = "metrics")]
pub(super) mod gauges;

/// The most requests that may wait at a time.
pub(crate) const REQUESTS_MAX: usize = 8192;

/// A map that the nodes of an election replicate.
///
/// Handles can be cloned and all denote the same map. Any node serves it: requests that need the leader are forwarded to it.
///
/// ```no_run
/// # async fn example(map: primacy::metadata::Map) -> Result<(), Box<dyn std::error::Error>> {
/// use primacy::kv::command::{Answer, Write};
///
/// map.write(Write::new("colour", "red")).await?.result?;
/// let before = map.get("colour").await?;
/// let change = Write::new("colour", "green").if_unchanged(before.as_ref());
/// let Answer::Decided { held, .. } = map.write(change).await?.result? else { unreachable!("to a transaction") };
/// println!("{}", if held { "it is green" } else { "somebody has changed it meanwhile" });
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Map {
    asks: mpsc::Sender<MapRequest>,
    room: Arc<Semaphore>,
    version: watch::Receiver<Version>,
    steps: watch::Receiver<u64>,
    board: watch::Receiver<Board>,
    reached: watch::Receiver<BTreeMap<NodeId, Arc<str>>>,
    /// Set before any handle is given out.
    state: Arc<OnceLock<Arc<RwLock<State>>>>,
}

/// A request of a handle to the driver.
#[derive(Debug)]
pub(crate) enum MapRequest {
    /// Apply this command.
    Write(Command, oneshot::Sender<Result<Outcome, MapError>>),
    /// Reply when this node knows all that was written before the request.
    Read(oneshot::Sender<Result<(), MapError>>),
    /// Return the time to live of a session, and keep it alive if asked to.
    Session(SessionId, Keep, oneshot::Sender<Result<Option<Duration>, MapError>>),
    /// Make this change of the voters.
    Revise(VoterChange, oneshot::Sender<Result<Progress, MapError>>),
    /// Accept this node's log as complete.
    AcceptLoss(oneshot::Sender<Result<bool, MapError>>),
}

/// The state of a node's copy of the map.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Board {
    /// The leader, if known and active.
    pub leader: Option<Leader>,
    /// The term to which this node is bound.
    pub term: Term,
    /// The last record of this node's log.
    pub last: LeaderSequence,
    /// The last record that was applied.
    pub applied: LeaderSequence,
    /// The last record that is known to be committed.
    pub committed: LeaderSequence,
    /// The number of records in its log that are not known to be committed.
    pub uncommitted: u64,
    /// True if this node has lost its log and has not recovered it.
    pub log_lost: bool,
    /// At the leader: for each other voter and each learner, the number of records that it is not known to hold.
    pub behind: Vec<(NodeId, u64)>,
    /// The voters, each with its address.
    pub voters: Arc<primacy_kv::replication::voters::Voters>,
}

/// The reason why a request to the map failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MapError {
    /// There is no leader, or none answered in time. A write may have been done, or may be done later.
    #[error("no leader has answered in time; a write may have been done")]
    Timeout,
    /// The write was done, and its result is not known.
    #[error("it was done, and the answer is lost")]
    AnswerLost,
    /// The leader is of an earlier version than this node, and cannot read the request. That leader has not done it; an earlier leader
    /// that received it may have.
    #[error(
        "the leader is of an earlier version and cannot read it; upgrade that node; another leader may have done it"
    )]
    Unreadable,
    /// Too many requests, or too many bytes of writes, are waiting already. Nothing was done.
    #[error("too many requests wait already, or too many bytes of writes; try again when some are answered")]
    Busy,
    /// The node cannot be made a voter. Nothing was done.
    #[error("it cannot be a voter: {why}")]
    Voter {
        /// The defect of its name or its address.
        why: String,
    },
    /// The node has ended.
    #[error("this node has ended")]
    Closed,
}

/// The driver's end of a map.
#[derive(Debug)]
pub(crate) struct MapEnd {
    pub(crate) asks: mpsc::Receiver<MapRequest>,
    pub(crate) version: watch::Sender<Version>,
    /// The step of the partitions.
    pub(crate) steps: watch::Sender<u64>,
    pub(crate) board: watch::Sender<Board>,
    pub(crate) reached: watch::Sender<BTreeMap<NodeId, Arc<str>>>,
    pub(crate) state: Arc<OnceLock<Arc<RwLock<State>>>>,
}

/// A handle, and the driver's end of it.
pub(crate) fn maps() -> (MapEnd, Map) {
    let (asks, asked) = mpsc::channel(REQUESTS_MAX);
    let nobody =
        primacy_kv::replication::voters::Voters { number: LeaderSequence::NONE, members: BTreeMap::new() };
    let first = Board {
        leader: None,
        term: Term(0),
        last: LeaderSequence::NONE,
        applied: LeaderSequence::NONE,
        committed: LeaderSequence::NONE,
        uncommitted: 0,
        log_lost: false,
        behind: Vec::new(),
        voters: Arc::new(nobody),
    };
    let ((told, version), (post, board)) = (watch::channel(Version::FIRST), watch::channel(first));
    let ((stepped, steps), (reaching, reached)) = (watch::channel(0), watch::channel(BTreeMap::new()));
    let state = Arc::<OnceLock<_>>::default();
    let room = Arc::new(Semaphore::new(REQUESTS_MAX));
    let end = MapEnd {
        asks: asked,
        version: told,
        steps: stepped,
        board: post,
        reached: reaching,
        state: Arc::clone(&state),
    };
    (end, Map { asks, room, version, steps, board, reached, state })
}

impl Map {
    /// Applies a command on a majority of the nodes.
    ///
    /// Dropping the future does not cancel it. A command that [may not be replicated](Command::check) is refused in the
    /// outcome.
    ///
    /// # Errors
    /// [`MapError`]; after [`MapError::Timeout`] and [`MapError::Unreadable`] it may have been done.
    pub async fn write(&self, command: impl Into<Command>) -> Result<Outcome, MapError> {
        let command = command.into();
        if let Err(refusal) = command.check(RequestLimits::default()) {
            return Ok(Outcome { version: self.state().version(), result: Err(refusal) });
        }
        self.ask(|answer| MapRequest::Write(command, answer)).await
    }

    /// Reads the state, with everything that any node wrote before the call.
    ///
    /// Operations that would change the state are refused as [`Refusal::TooManyOperations`]; use [`write`](Self::write) for them.
    ///
    /// # Errors
    /// [`MapError`].
    pub async fn read(&self, operation: &Operation) -> Result<Outcome, MapError> {
        self.catch_up().await?;
        Ok(self.look(operation))
    }

    /// The entry of this key, with everything that any node wrote before the call; `None` if there is none.
    ///
    /// # Errors
    /// [`MapError`].
    pub async fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Entry>, MapError> {
        let read = Read::one(key);
        self.catch_up().await?;
        // Only a read at a given version can be refused.
        let found = self.state().read(&read);
        Ok(found.ok().and_then(|found| found.entries.into_iter().next()))
    }

    /// Waits until this node knows everything that any node wrote before the call.
    ///
    /// # Errors
    /// [`MapError`].
    pub async fn catch_up(&self) -> Result<(), MapError> {
        self.ask(MapRequest::Read).await
    }

    /// Reads this node's copy, which may be outdated.
    #[must_use]
    pub fn look(&self, operation: &Operation) -> Outcome {
        let state = self.state();
        let refused = || Outcome { version: state.version(), result: Err(Refusal::TooManyOperations) };
        state.observe(operation).unwrap_or_else(refused)
    }

    /// Locks this node's copy for reading. No record is applied while it is locked.
    ///
    /// # Panics
    /// Never: the node has its state before any handle exists.
    pub fn state(&self) -> RwLockReadGuard<'_, State> {
        let state = self.state.get().expect("the node has its state before anybody has a handle");
        state.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps a session alive, and returns its time to live from now on; `None` if there is no such session.
    ///
    /// # Errors
    /// [`MapError`].
    pub async fn keep_alive(&self, session: SessionId) -> Result<Option<Duration>, MapError> {
        self.ask(|answer| MapRequest::Session(session, Keep::Alive, answer)).await
    }

    /// The remaining time to live of a session; `None` if there is no such session.
    ///
    /// # Errors
    /// [`MapError`].
    pub async fn left(&self, session: SessionId) -> Result<Option<Duration>, MapError> {
        self.ask(|answer| MapRequest::Session(session, Keep::Look, answer)).await
    }

    /// Makes a change of the voters, as far as the leader can do it now. Call it several times a second until it is done: one second
    /// after the last call, the leader abandons a change that waits for voters; half a minute after it, a node that is being added must
    /// show again that it is there.
    ///
    /// # Errors
    /// [`MapError`]; it may have been done.
    pub async fn revise(&self, change: VoterChange) -> Result<Progress, MapError> {
        self.ask(|answer| MapRequest::Revise(change, answer)).await
    }

    /// Accepts this node's lost log as complete: no other node has more of it. Returns true if it was lost.
    ///
    /// For operators, if a majority of the nodes has lost its logs and each waits for the others. **Committed records that only these logs
    /// held are lost.** Use it on only as many nodes as form a majority with the nodes that still have their logs: then those are asked,
    /// and their records stay.
    ///
    /// With `fsync`, no node may run that counts other voters, by a record of a lower term: this node may take them for newer, and two
    /// nodes may lead. If not all other nodes have readmitted this one, its log counts nevertheless from now on, so its former disk must
    /// not come back.
    ///
    /// # Errors
    /// [`MapError`]; it may have been done.
    pub async fn accept_loss(&self) -> Result<bool, MapError> {
        self.ask(MapRequest::AcceptLoss).await
    }

    /// The state of this node's copy.
    #[must_use]
    pub fn board(&self) -> watch::Ref<'_, Board> {
        self.board.borrow()
    }

    /// The nodes to which this node connects: the voters, and the nodes that are being added or removed. It may contain this node.
    /// Empty at first.
    pub(crate) fn reached(&self) -> watch::Receiver<BTreeMap<NodeId, Arc<str>>> {
        self.reached.clone()
    }

    /// The version of this node's copy, as a receiver that waits for changes.
    #[must_use]
    pub fn version(&self) -> watch::Receiver<Version> {
        self.version.clone()
    }

    /// The step of the partitions in this node's copy, as a receiver that waits for changes.
    #[must_use]
    pub fn steps(&self) -> watch::Receiver<u64> {
        self.steps.clone()
    }

    /// The voters, each with its address.
    #[must_use]
    pub fn voters(&self) -> Vec<(NodeId, String)> {
        let board = self.board.borrow();
        board.voters.members.iter().map(|(&node, address)| (node, address.to_string())).collect()
    }

    async fn ask<T>(
        &self,
        asked: impl FnOnce(oneshot::Sender<Result<T, MapError>>) -> MapRequest,
    ) -> Result<T, MapError> {
        let _room = self.room.try_acquire().map_err(|_| MapError::Busy)?;
        let (answer, answered) = oneshot::channel();
        self.asks.try_send(asked(answer)).map_err(|error| match error {
            mpsc::error::TrySendError::Full(_) => MapError::Busy,
            mpsc::error::TrySendError::Closed(_) => MapError::Closed,
        })?;
        match tokio::time::timeout(REQUEST_MAX, answered).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(_)) => Err(MapError::Closed),
            Err(_) => Err(MapError::Timeout),
        }
    }
}
