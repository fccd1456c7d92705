//! The requests of clients and their outcomes, a JSON object a line.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// The prefix of each client's file name; the name of the node beside which it runs follows.
pub(crate) const CALLS: &str = "calls-";
/// The prefix of the keys that clients write for their values.
pub(crate) const KEYS: &str = "k/";
/// The prefix of the keys that are attached to a session.
pub(crate) const SESSIONS: &str = "s/";

/// A request with its outcome.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Call {
    /// The number of the client.
    pub(crate) client: u64,
    /// The place of the node that it was sent to.
    pub(crate) endpoint: usize,
    /// Right before it was sent, on the machine's boot clock.
    pub(crate) asked_ns: u64,
    /// Right after it was answered, or given up.
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
        /// Which.
        key: String,
        /// The outcome.
        outcome: Outcome<KeyRead>,
    },
    /// To write a value, which is written only once.
    Put {
        /// Under this key.
        key: String,
        /// Which.
        value: u64,
        /// The outcome.
        outcome: Outcome<Wrote>,
    },
    /// To delete a key.
    Delete {
        /// Which.
        key: String,
        /// The outcome.
        outcome: Outcome<Wrote>,
    },
    /// To write a value if the key was last written at this revision.
    Swap {
        /// Under this key.
        key: String,
        /// The revision; 0 if the key is not to be there.
        expected: i64,
        /// Which.
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
        /// Which.
        session: i64,
        /// The seconds that it lives unless it is kept alive.
        outcome: Outcome<i64>,
    },
    /// To write the key that goes with a session, and has its number as value.
    Attach {
        /// Which.
        session: i64,
        /// The outcome.
        outcome: Outcome<Wrote>,
    },
    /// To keep a session alive.
    KeepAlive {
        /// Which.
        session: i64,
        /// The seconds that it lives from then on; 0 if it is over.
        outcome: Outcome<i64>,
    },
    /// To read the time that a session has left.
    Look {
        /// Which.
        session: i64,
        /// The seconds left; -1 if it is over.
        outcome: Outcome<i64>,
    },
    /// To end a session.
    End {
        /// Which.
        session: i64,
        /// Whether it was there.
        outcome: Outcome<bool>,
    },
    /// No request: from now on the client does not keep this session alive.
    LetGo {
        /// Which.
        session: i64,
    },
    /// To read all keys that go with sessions.
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
    /// It surely has no effect; why.
    Failed(String),
    /// Its effect is unknown; why.
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
    /// The revision of the whole map at which it was so.
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
    /// Whether the condition held, so that it was written.
    pub(crate) held: bool,
    /// If it did not hold: the entry, if there is one.
    pub(crate) found: Option<Entry>,
}

/// Some keys, as they were at one revision.
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

/// The key that goes with a session.
pub(crate) fn key_of(session: i64) -> String {
    format!("{SESSIONS}{session}")
}
