//! The requests of clients and their outcomes, one JSON object per line.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// The prefix of each client's file name, followed by the name of the node beside it.
pub(crate) const CALLS: &str = "calls-";
/// The prefix of the keys with clients' values.
pub(crate) const KEYS: &str = "k/";
/// The prefix of the keys attached to sessions.
pub(crate) const SESSIONS: &str = "s/";

/// A request with its outcome.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Call {
    /// The number of the client.
    pub(crate) client: u64,
    /// The place of the node that it was sent to.
    pub(crate) endpoint: usize,
    /// Immediately before it was sent, on the machine's boot clock.
    pub(crate) asked_ns: u64,
    /// Immediately after it was answered or given up.
    pub(crate) answered_ns: u64,
    /// The request and its outcome.
    #[serde(flatten)]
    pub(crate) act: ClientRequest,
}

/// A request and its outcome.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "act", rename_all = "snake_case")]
pub(crate) enum ClientRequest {
    /// To read a key.
    Read {
        /// The key.
        key: String,
        /// The outcome.
        outcome: Outcome<KeyRead>,
    },
    /// To write a value, which is written only once.
    Put {
        /// Under this key.
        key: String,
        /// The value.
        value: u64,
        /// The outcome.
        outcome: Outcome<Wrote>,
    },
    /// To delete a key.
    Delete {
        /// The key.
        key: String,
        /// The outcome.
        outcome: Outcome<Wrote>,
    },
    /// To write a value if the key was last written at this revision.
    Swap {
        /// Under this key.
        key: String,
        /// The expected revision; 0 if the key must be absent.
        expected: i64,
        /// The value.
        value: u64,
        /// The outcome.
        outcome: Outcome<Swapped>,
    },
    /// To read all keys that begin with [`KEYS`].
    All {
        /// The outcome.
        outcome: Outcome<Listed>,
    },
    /// To begin a session of this number.
    Begin {
        /// The session.
        session: i64,
        /// Its time to live, in seconds.
        outcome: Outcome<i64>,
    },
    /// To write the key of a session, with the session's number as the value.
    Attach {
        /// The session.
        session: i64,
        /// The outcome.
        outcome: Outcome<Wrote>,
    },
    /// To keep a session alive.
    KeepAlive {
        /// The session.
        session: i64,
        /// Its new time to live, in seconds; 0 if it has ended.
        outcome: Outcome<i64>,
    },
    /// To read the remaining time of a session.
    Look {
        /// The session.
        session: i64,
        /// The remaining seconds; -1 if it has ended.
        outcome: Outcome<i64>,
    },
    /// To end a session.
    End {
        /// The session.
        session: i64,
        /// True if it existed.
        outcome: Outcome<bool>,
    },
    /// No request: the client stops keeping this session alive.
    LetGo {
        /// The session.
        session: i64,
    },
    /// To read the keys of all sessions.
    Sessions {
        /// The outcome.
        outcome: Outcome<Listed>,
    },
}

/// The outcome of a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Outcome<T> {
    /// It was answered.
    Answered(T),
    /// It certainly has no effect, with the reason.
    Failed(String),
    /// Its effect is unknown, with the reason.
    InDoubt(String),
    /// It was answered with data that no client can have written.
    Garbled(String),
}

/// The value under a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub(crate) struct Entry {
    /// The value.
    pub(crate) value: u64,
    /// The revision at which it was written.
    pub(crate) revision: i64,
}

/// The answer to the read of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct KeyRead {
    /// The revision of the whole map at the read.
    pub(crate) revision: i64,
    /// The entry, if there is one.
    pub(crate) entry: Option<Entry>,
}

/// The answer to a write or a deletion.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Wrote {
    /// The revision of the whole map after it.
    pub(crate) revision: i64,
    /// The entry before it, if there was one.
    pub(crate) before: Option<Entry>,
}

/// The answer to a write under a condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Swapped {
    /// The revision of the whole map after it.
    pub(crate) revision: i64,
    /// True if the condition held, so that the value was written.
    pub(crate) held: bool,
    /// If it did not hold: the entry, if there is one.
    pub(crate) found: Option<Entry>,
}

/// Several keys at one revision.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Listed {
    /// The revision of the whole map.
    pub(crate) revision: i64,
    /// The entry of each key.
    pub(crate) entries: BTreeMap<String, Entry>,
}

impl<T> Outcome<T> {
    /// The answer, if there was one.
    pub(crate) const fn answer(&self) -> Option<&T> {
        match self {
            Self::Answered(answer) => Some(answer),
            Self::Failed(_) | Self::InDoubt(_) | Self::Garbled(_) => None,
        }
    }
}

/// The key of a session.
pub(crate) fn key_of(session: i64) -> String {
    format!("{SESSIONS}{session}")
}
