//! The backend of the etcd API: the interface to a node's replicated map.

use std::fmt;
use std::future::Future;
use std::num::NonZeroUsize;
use std::pin::Pin;
use std::time::Duration;

use primacy_kv::command::{
    Bytes, Change, Command, Keys, Operation, Outcome, Previous, Refusal, Secret, SessionId, Version,
};
use primacy_kv::state::Size;
use tokio::sync::watch;

/// A future result. If it is dropped earlier, the request may still be done.
pub(crate) type Pending<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// A replicated map, from the side of one node. All methods may be called from many tasks at the same time.
///
/// Methods that wait must end by themselves in a time that a client can bear: the etcd API sets no deadline of its own.
/// Methods that do not wait must do no I/O, because the tasks that serve all clients call them.
pub(crate) trait Backend: Send + Sync + 'static {
    /// Replicates a command, and returns its outcome once it is applied on this node, so that a following read of this
    /// node sees it. A follower forwards it to the leader.
    ///
    /// # Errors
    /// [`BackendError`]; after all except [`BackendError::TooManyRequests`] it may have been done, or may yet be.
    fn propose(&self, command: Command) -> Pending<'_, Result<Outcome, BackendError>>;

    /// Waits until this node knows everything that was written before the call.
    ///
    /// # Errors
    /// [`BackendError`].
    fn catch_up(&self) -> Pending<'_, Result<(), BackendError>>;

    /// Performs an operation that [only reads](Operation::only_reads), on this node's copy. Refused with
    /// [`Refusal::TooManyEntries`] if it would look at more than `looks` entries.
    fn look(&self, operation: &Operation, looks: u64) -> Outcome;

    /// Keeps a session alive, and returns its full time to live, which it has again; `None` if there is no such
    /// session.
    ///
    /// # Errors
    /// [`BackendError`]; it may have been kept alive.
    fn keep_alive(&self, session: SessionId) -> Pending<'_, Result<Option<Duration>, BackendError>>;

    /// Returns the state of a session; `None` if there is no such session.
    ///
    /// # Errors
    /// [`BackendError`].
    fn session(&self, session: SessionId) -> Pending<'_, Result<Option<Life>, BackendError>>;

    /// All sessions, by the time at which they expire.
    ///
    /// # Errors
    /// [`BackendError`].
    fn sessions(&self) -> Pending<'_, Result<Vec<SessionId>, BackendError>>;

    /// Returns the changes of some keys from a version on, as far as this node knows them: whole versions, until there
    /// are `most` changes or more, or a limit of examined versions is reached.
    ///
    /// # Errors
    /// [`Refusal::Compacted`] if some of them were compacted.
    fn changes(
        &self,
        keys: &Keys,
        from: Version,
        previous: Previous,
        most: NonZeroUsize,
    ) -> Result<Changes, Refusal>;

    /// As [`changes`](Self::changes), for all keys and a caller that has received everything before that version: also
    /// returns what was compacted a moment ago.
    ///
    /// # Errors
    /// [`Refusal::Compacted`] if some of them are no longer in memory.
    fn news(&self, from: Version, previous: Previous, most: NonZeroUsize) -> Result<Changes, Refusal>;

    /// The version of this node's copy. All watches wait for changes through one such receiver.
    fn version(&self) -> watch::Receiver<Version>;

    /// The version of this node's copy at this moment. The value of [`version`](Self::version) may be slightly older.
    fn now(&self) -> Version;

    /// Returns the state of this node. It is called for each answer, so it should cost no more than a few loads.
    fn vitals(&self) -> Vitals;

    /// Returns the size of this node's copy.
    fn size(&self) -> Size;

    /// The secret that all nodes share, if this node knows it.
    fn secret(&self) -> Option<Secret>;

    /// The nodes.
    fn members(&self) -> Vec<Member>;
}

/// The required freshness of a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Freshness {
    /// At least as new as any answer to any client before the request.
    Newest,
    /// This node's copy.
    Here,
}

/// The state of a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Life {
    /// The remaining time without a keep-alive.
    pub(crate) left: Duration,
    /// The full time to live, which a keep-alive restores.
    pub(crate) time_to_live: Duration,
    /// The keys that are deleted with it.
    pub(crate) keys: Vec<Bytes>,
}

/// Changes, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Changes {
    pub(crate) list: Vec<Change>,
    /// The version up to which changes were examined. It is the map's version if nothing is left for the next call; it
    /// may be before the requested version.
    pub(crate) through: Version,
    /// The version of the map.
    pub(crate) version: Version,
}

/// The state of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Vitals {
    /// The cluster's id: the same on all nodes, and not 0.
    pub(crate) cluster: u64,
    /// This node's id; not 0.
    pub(crate) member: u64,
    /// The leader's id, as far as this node knows.
    pub(crate) leader: Option<u64>,
    /// The term that this node knows.
    pub(crate) term: u64,
    /// A number for the last record of this node's log, which grows with each record.
    pub(crate) logged: u64,
    /// The number of the last applied record.
    pub(crate) applied: u64,
}

/// A node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Member {
    pub(crate) number: u64,
    pub(crate) name: String,
    /// The addresses for other nodes, as URLs.
    pub(crate) for_peers: Vec<String>,
    /// The addresses for clients, as URLs.
    pub(crate) for_clients: Vec<String>,
}

/// The reason why there is no outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BackendError {
    /// The command was applied, and its outcome is not known.
    AnswerLost,
    /// There was no outcome in time. The command may have been applied.
    TimedOut,
    /// Too many requests are waiting; nothing was done.
    TooManyRequests,
    /// This node is ending. The command may have been applied.
    Stopped,
}

impl fmt::Display for BackendError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::AnswerLost => "it was done, and the answer is lost",
            Self::TimedOut => "there was no outcome in time",
            Self::TooManyRequests => "too many requests are waiting",
            Self::Stopped => "this node is about to end",
        })
    }
}

impl std::error::Error for BackendError {}
