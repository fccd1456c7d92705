//! The backend of the etcd API: a replicated map, as this node reaches it.

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

/// A result that comes later. If it is dropped before, the request may still be done.
pub(crate) type Pending<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// A replicated map, as one of its nodes reaches it. All methods may be called from many tasks at the same time.
///
/// Methods that wait must end by themselves in a time that a client can bear: the etcd API sets no bound of
/// its own. Methods that do not wait must not do I/O, for they are called from the tasks that serve all
/// clients.
pub(crate) trait Backend: Send + Sync + 'static {
    /// Has a command replicated, and returns its outcome once it is applied here, so that what its client
    /// then reads of this node is not older. A follower has the leader propose it.
    ///
    /// # Errors
    /// [`BackendError`]; after all but [`BackendError::TooManyRequests`] it may have been done,
    /// or may yet be.
    fn propose(&self, command: Command) -> Pending<'_, Result<Outcome, BackendError>>;

    /// Waits until this node knows all that was written before.
    ///
    /// # Errors
    /// [`BackendError`].
    fn catch_up(&self) -> Pending<'_, Result<(), BackendError>>;

    /// Does an operation that [only reads](Operation::only_reads), as of what is known here. It is refused with
    /// [`Refusal::TooManyEntries`] where it would look at more entries than `looks`.
    fn look(&self, operation: &Operation, looks: u64) -> Outcome;

    /// Keeps a session alive: it now has its whole time again, which is returned; `None` if there is no such session.
    ///
    /// # Errors
    /// [`BackendError`]; it may have been kept alive.
    fn keep_alive(&self, session: SessionId) -> Pending<'_, Result<Option<Duration>, BackendError>>;

    /// Returns the state of a session; `None` if there is no such session.
    ///
    /// # Errors
    /// [`BackendError`].
    fn session(&self, session: SessionId) -> Pending<'_, Result<Option<Life>, BackendError>>;

    /// All sessions, the one first that would expire first.
    ///
    /// # Errors
    /// [`BackendError`].
    fn sessions(&self) -> Pending<'_, Result<Vec<SessionId>, BackendError>>;

    /// Returns the changes of some keys from a version on, as far as they are known here: whole versions,
    /// until they have `most` changes or more, or enough were looked at for one turn.
    ///
    /// # Errors
    /// [`Refusal::Compacted`] if not all of it is known any more.
    fn changes(
        &self,
        keys: &Keys,
        from: Version,
        previous: Previous,
        most: NonZeroUsize,
    ) -> Result<Changes, Refusal>;

    /// The same of all keys, for a caller that has all before that version: also what was compacted a moment
    /// ago.
    ///
    /// # Errors
    /// [`Refusal::Compacted`] if not all of it is here any more.
    fn news(&self, from: Version, previous: Previous, most: NonZeroUsize) -> Result<Changes, Refusal>;

    /// The version of the map here. A receiver that waits for it to change is what watches wait for, all with one.
    fn version(&self) -> watch::Receiver<Version>;

    /// The version that the map has here at this moment. The value of [`version`](Self::version) may be a
    /// moment behind it.
    fn now(&self) -> Version;

    /// Returns the state of this node. It is called for each answer, so it should cost no more than a few
    /// loads.
    fn vitals(&self) -> Vitals;

    /// Returns the size of the map here.
    fn size(&self) -> Size;

    /// The secret that all nodes share, as far as it is known here.
    fn secret(&self) -> Option<Secret>;

    /// The nodes.
    fn members(&self) -> Vec<Member>;
}

/// The required freshness of a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Freshness {
    /// No older than any answer to any client before the read was requested.
    Newest,
    /// As it is here.
    Here,
}

/// The state of a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Life {
    /// The time that it still has if it is not kept alive.
    pub(crate) left: Duration,
    /// The time that it has each time that it is kept alive.
    pub(crate) time_to_live: Duration,
    /// The keys that go with it.
    pub(crate) keys: Vec<Bytes>,
}

/// Changes, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Changes {
    pub(crate) list: Vec<Change>,
    /// The version up to which all was looked at. It is the map's, if nothing was left for the next time; it
    /// may be before the requested version.
    pub(crate) through: Version,
    /// The version of the map.
    pub(crate) version: Version,
}

/// The state of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Vitals {
    /// The number of the cluster: the same on all nodes, and not 0.
    pub(crate) cluster: u64,
    /// The number of this node; not 0.
    pub(crate) member: u64,
    /// The number of the leader, as far as this node knows.
    pub(crate) leader: Option<u64>,
    /// The term that this node knows.
    pub(crate) term: u64,
    /// A number for the last record of this node's log, which grows with each.
    pub(crate) logged: u64,
    /// The same of the last record that is applied.
    pub(crate) applied: u64,
}

/// A node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Member {
    pub(crate) number: u64,
    pub(crate) name: String,
    /// Where other nodes reach it, as URLs.
    pub(crate) for_peers: Vec<String>,
    /// Where clients reach it, as URLs.
    pub(crate) for_clients: Vec<String>,
}

/// Why there is no outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BackendError {
    /// It was done, and its outcome is not known.
    AnswerLost,
    /// There was no outcome in time. It may have been done.
    TimedOut,
    /// More is waiting than should; nothing was done.
    TooManyRequests,
    /// This node is about to end. It may have been done.
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
