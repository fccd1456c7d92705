//! [`Sessions`]: the interface of a store with sessions, which detects that a client is gone.

use std::fmt::Debug;
use std::time::Duration;

use primacy_core::election::lease::Holder;
use primacy_core::election::session::{Entry, QueuePosition, RequestFailure, SessionId};
use primacy_core::{FencingToken, Identity};

use crate::error_text::shortened;
use crate::register::Pending;

/// The queue of one election in a store that keeps sessions: each candidate has an entry, which goes with its session, and the
/// first in the queue leads. It is shared by all clients that open the same election in the same store, including other programs
/// that follow the same recipe.
///
/// A handle is cheap to keep and may be used from many tasks at once; handles of several elections of one process may share a
/// session, two handles on one election never do. Requests of a session that has ended do nothing. The entry of a handle that is
/// dropped goes by itself, after the session's timeout.
pub trait Sessions: Send + Sync + Debug {
    /// Begins a session, or takes the one that other elections of this process have begun with the same `timeout`: the time for which the
    /// store waits for a keep-alive before it ends the session.
    ///
    /// Dropping the future may leave a session behind that is not kept alive.
    fn begin(&self, timeout: Duration) -> Pending<'_, Result<Begun, SessionError>>;

    /// Keeps the session alive; returns the least time that the store will wait for the next keep-alive, from the moment at
    /// which this method was called. Where several elections share a session, one keep-alive answers all callers that arrived
    /// before it was sent.
    fn keep_alive<'a>(&'a self, session: &'a SessionId) -> Pending<'a, Result<Duration, SessionError>>;

    /// Makes sure that this session has exactly one entry in the queue, which names `holder`, and returns its position. It may
    /// be repeated at will: an existing entry is found again.
    fn campaign<'a>(
        &'a self,
        session: &'a SessionId,
        holder: &'a Holder,
    ) -> Pending<'a, Result<QueuePosition, SessionError>>;

    /// Removes this session's entry from the queue, also an entry of an earlier [`campaign`](Self::campaign) whose answer was lost, but
    /// never an entry of a later one, however late or often this request takes effect. The session goes on.
    fn leave<'a>(&'a self, session: &'a SessionId) -> Pending<'a, Result<(), SessionError>>;

    /// Removes this session's entry from the queue, if it is still there, and ends the session, unless other elections use it.
    fn end<'a>(&'a self, session: &'a SessionId) -> Pending<'a, Result<(), SessionError>>;

    /// Returns the first entry in the queue; `None` if the queue is empty.
    fn first(&self) -> Pending<'_, Result<Option<Entry>, SessionError>>;

    /// Removes the entry of this incarnation from the queue, and ends its session where another client can do that. For its guardian: the
    /// process and all its work must be gone. Returns whether there was anything to remove.
    fn evict<'a>(&'a self, dead: &'a Identity) -> Pending<'a, Result<bool, SessionError>>;

    /// Asks the first in the queue, whose token this must be, to resign; `by` names the requester, for messages. The first finds the
    /// request when it checks its [position](Self::campaign). `false` if another candidate is first, or it cannot be asked.
    fn ask_to_resign<'a>(
        &'a self,
        token: FencingToken,
        by: &'a str,
    ) -> Pending<'a, Result<bool, SessionError>>;

    /// Resolves when the last answer of [`campaign`](Self::campaign) or [`first`](Self::first) through this handle may be out of date, and
    /// at once if it already is: if this session is behind others, when the entry directly before its own goes; if it is first, when its
    /// own entry is changed or removed; if it has no entry, when another entry becomes the first.
    ///
    /// It is only a hint: it may resolve without a change, and the caller must also check periodically. The future may be dropped and
    /// requested again without missing a change.
    fn changed(&self) -> Pending<'_, ()>;
}

/// A session that has begun.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Begun {
    /// The store's name for it.
    pub session: SessionId,
    /// The least time that the store waits for a keep-alive, from when [`Sessions::begin`] was called.
    pub timeout: Duration,
}

/// The reason that a request in a session was not answered as expected.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SessionError {
    /// By the store's answer, the session does not exist or has ended; its entries are gone with it.
    #[error("the session has ended: {}", shortened(.why))]
    Ended {
        /// The store's answer.
        why: String,
    },
    /// The store was not reached, or did not answer. The request may have been carried out, or may yet be.
    #[error("the store did not answer: {}", shortened(.why))]
    NoAnswer {
        /// The error.
        why: String,
    },
    /// The store refused the request, for example because this client lacks a permission. Trying again does not help by itself.
    #[error("the store refuses: {}", shortened(.why))]
    Refused {
        /// The store's answer.
        why: String,
    },
}

impl From<SessionError> for RequestFailure {
    fn from(error: SessionError) -> Self {
        match error {
            SessionError::Ended { .. } => Self::Ended,
            SessionError::NoAnswer { .. } | SessionError::Refused { .. } => Self::NoAnswer,
        }
    }
}
