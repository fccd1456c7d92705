//! The map, as the program sees it in which a node runs.

use std::sync::Arc;
use std::time::Duration;

use primacy_core::metadata::clients::Keep;
use primacy_core::metadata::command::{
    Change, Command, Keys, Operation, Outcome, Previous, Refusal, SessionId, Version,
};
use primacy_core::metadata::replica::{Progress, Wish};
use primacy_core::metadata::state::Size;

use primacy_core::{Leader, LeaderSequence, NodeId, Term};
use tokio::sync::{Semaphore, mpsc, oneshot, watch};

/// How long a request waits for a leader that answers it.
const REQUEST_MAX: Duration = Duration::from_secs(7);

/// How many requests may wait at a time.
const REQUESTS_MAX: usize = 4096;

/// How many changes are told at a time.
const CHANGES_MAX: usize = 1024;

/// A map that the nodes of an election keep together.
///
/// A handle can be cloned; they are all the same map. Any node serves it: what needs the leader is passed on to it.
#[derive(Clone, Debug)]
pub struct Map {
    asks: mpsc::Sender<Asked>,
    room: Arc<Semaphore>,
    board: watch::Receiver<Board>,
}

/// What a driver is asked for.
#[derive(Debug)]
pub(crate) enum Asked {
    /// To have this done.
    Write(Command, oneshot::Sender<Result<Outcome, MapError>>),
    /// To read what was written before now.
    Read(Box<Operation>, oneshot::Sender<Result<Outcome, MapError>>),
    /// To read what this node knows.
    Look(Box<Operation>, oneshot::Sender<Result<Outcome, MapError>>),
    /// How long a session lives.
    Session(SessionId, Keep, oneshot::Sender<Result<Option<Duration>, MapError>>),
    /// To have this of the voters.
    Revise(Wish, oneshot::Sender<Result<Progress, MapError>>),
    /// What happened to keys.
    Changes(Keys, Version, Previous, oneshot::Sender<Result<Vec<Change>, Refusal>>),
    /// All sessions.
    Sessions(oneshot::Sender<Vec<SessionId>>),
    /// The time that a session was given, and its keys.
    Attached(SessionId, oneshot::Sender<Option<(Duration, Vec<Arc<[u8]>>)>>),
    /// How it is.
    Status(oneshot::Sender<MapStatus>),
}

/// What everybody who waits for changes may see at any time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Board {
    pub(crate) version: Version,
    pub(crate) leader: Option<Leader>,
    pub(crate) term: Term,
}

/// How a node's copy of the map is.
#[derive(Clone, Debug)]
pub struct MapStatus {
    /// The leader, if it is known and active.
    pub leader: Option<Leader>,
    /// The term to which this node is bound.
    pub term: Term,
    /// The last record of this node's log.
    pub last: LeaderSequence,
    /// The last record in its state.
    pub applied: LeaderSequence,
    /// The version of its state.
    pub version: Version,
    /// How much there is.
    pub size: Size,
    /// The voters, each with its address.
    pub voters: Vec<(NodeId, String)>,
    /// The record that states them; [`LeaderSequence::NONE`] as long as they are those of the configuration.
    pub voters_number: LeaderSequence,
}

/// Why the map did not answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MapError {
    /// Nobody leads, or no leader has answered in time. A write may have been done, or be done later.
    #[error("no leader has answered in time; a write may have been done")]
    Timeout,
    /// It was done, and what came of it is not known.
    #[error("it was done, and the answer is lost")]
    AnswerLost,
    /// Too many requests wait already. Nothing was done.
    #[error("{REQUESTS_MAX} requests wait already; try again when some are answered")]
    Busy,
    /// The node cannot be made a voter. Nothing was done.
    #[error("it cannot be a voter: {why}")]
    Voter {
        /// What speaks against its name or its address.
        why: String,
    },
    /// The node has ended.
    #[error("this node has ended")]
    Closed,
}

/// A handle, and the driver's end of it.
pub(crate) fn maps() -> ((mpsc::Receiver<Asked>, watch::Sender<Board>), Map) {
    let (asks, asked) = mpsc::channel(REQUESTS_MAX);
    let first = Board { version: Version::FIRST, leader: None, term: Term(0) };
    let (publish, board) = watch::channel(first);
    ((asked, publish), Map { asks, room: Arc::new(Semaphore::new(REQUESTS_MAX)), board })
}

impl Map {
    /// Does this, on a majority of the nodes.
    ///
    /// Dropping the future does not take it back.
    ///
    /// # Errors
    /// [`MapError`]; after [`MapError::Timeout`] it may have been done.
    pub async fn write(&self, command: Command) -> Result<Outcome, MapError> {
        self.ask(|answer| Asked::Write(command, answer)).await?
    }

    /// Reads what was written before it was asked, whoever wrote it.
    ///
    /// `operation` must only read: what changes anything belongs to [`write`](Self::write).
    ///
    /// # Errors
    /// [`MapError`].
    pub async fn read(&self, operation: Operation) -> Result<Outcome, MapError> {
        self.ask(|answer| Asked::Read(Box::new(operation), answer)).await?
    }

    /// Reads what this node knows, which may be of the past.
    ///
    /// # Errors
    /// [`MapError`].
    pub async fn look(&self, operation: Operation) -> Result<Outcome, MapError> {
        self.ask(|answer| Asked::Look(Box::new(operation), answer)).await?
    }

    /// Keeps a session alive, and returns how long it lives from now on; `None` if there is none.
    ///
    /// # Errors
    /// [`MapError`].
    pub async fn keep_alive(&self, session: SessionId) -> Result<Option<Duration>, MapError> {
        self.ask(|answer| Asked::Session(session, Keep::Alive, answer)).await?
    }

    /// How long a session lives still; `None` if there is none.
    ///
    /// # Errors
    /// [`MapError`].
    pub async fn left(&self, session: SessionId) -> Result<Option<Duration>, MapError> {
        self.ask(|answer| Asked::Session(session, Keep::Look, answer)).await?
    }

    /// What happened to these keys from a version on, as far as this node knows: the first changes of that, and all of each version
    /// that it begins.
    ///
    /// # Errors
    /// [`MapError`]; and [`Refusal::Compacted`] if that is not known any more.
    pub async fn changes(
        &self,
        keys: Keys,
        from: Version,
        previous: Previous,
    ) -> Result<Result<Vec<Change>, Refusal>, MapError> {
        self.ask(|answer| Asked::Changes(keys, from, previous, answer)).await
    }

    /// The sessions that this node knows.
    ///
    /// # Errors
    /// [`MapError`].
    pub async fn sessions(&self) -> Result<Vec<SessionId>, MapError> {
        self.ask(Asked::Sessions).await
    }

    /// The time that a session was given, and the keys that go with it, as this node knows it.
    ///
    /// # Errors
    /// [`MapError`].
    pub async fn attached(&self, session: SessionId) -> Result<Option<(Duration, Vec<Arc<[u8]>>)>, MapError> {
        self.ask(|answer| Asked::Attached(session, answer)).await
    }

    /// Does what is wanted of the voters, as far as the leader can do it now; to be asked again until it is done.
    ///
    /// # Errors
    /// [`MapError`]; it may have been done.
    pub async fn revise(&self, wish: Wish) -> Result<Progress, MapError> {
        self.ask(|answer| Asked::Revise(wish, answer)).await?
    }

    /// How this node's copy is.
    ///
    /// # Errors
    /// [`MapError`].
    pub async fn status(&self) -> Result<MapStatus, MapError> {
        self.ask(Asked::Status).await
    }

    /// The version of this node's copy.
    #[must_use]
    pub fn version(&self) -> Version {
        self.board.borrow().version
    }

    /// The leader, if it is known and active.
    #[must_use]
    pub fn leader(&self) -> Option<Leader> {
        self.board.borrow().leader
    }

    /// The term to which this node is bound.
    #[must_use]
    pub fn term(&self) -> Term {
        self.board.borrow().term
    }

    /// Waits until this node's copy is beyond this version, and returns its version.
    ///
    /// # Errors
    /// [`MapError::Closed`].
    pub async fn beyond(&self, version: Version) -> Result<Version, MapError> {
        let mut board = self.board.clone();
        let seen = board.wait_for(|board| board.version > version).await.map_err(|_| MapError::Closed)?;
        Ok(seen.version)
    }

    async fn ask<T>(&self, asked: impl FnOnce(oneshot::Sender<T>) -> Asked) -> Result<T, MapError> {
        let _room = self.room.try_acquire().map_err(|_| MapError::Busy)?;
        let (answer, answered) = oneshot::channel();
        self.asks.try_send(asked(answer)).map_err(|error| match error {
            mpsc::error::TrySendError::Full(_) => MapError::Busy,
            mpsc::error::TrySendError::Closed(_) => MapError::Closed,
        })?;
        match tokio::time::timeout(REQUEST_MAX, answered).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(_)) => Err(MapError::Closed),
            Err(_) => Err(MapError::Timeout),
        }
    }
}

/// How many changes are collected from an iterator of them: all of a version that was begun.
pub(crate) fn some(changes: impl Iterator<Item = Change>) -> Vec<Change> {
    let mut some: Vec<Change> = Vec::new();
    for change in changes {
        if some.len() >= CHANGES_MAX && some.last().is_some_and(|last| last.version != change.version) {
            break;
        }
        some.push(change);
    }
    some
}
