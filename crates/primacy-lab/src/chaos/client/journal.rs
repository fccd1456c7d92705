//! What clients ask and are told, a JSON object a line.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// What the file of each client begins with; then comes the name of the node beside which it runs.
pub(crate) const CALLS: &str = "calls-";
/// What the keys begin with that clients write for the sake of what they say.
pub(crate) const KEYS: &str = "k/";
/// What the keys begin with that go with a session.
pub(crate) const SESSIONS: &str = "s/";

/// A request, and what became of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Call {
    /// The number of the client.
    pub(crate) client: u64,
    /// The place of the node whose door it was asked at.
    pub(crate) door: usize,
    /// Right before it was asked, on the machine's boot clock.
    pub(crate) asked_ns: u64,
    /// Right after it was answered, or given up.
    pub(crate) answered_ns: u64,
    /// What.
    #[serde(flatten)]
    pub(crate) act: Act,
}

/// What was asked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "act", rename_all = "snake_case")]
pub(crate) enum Act {
    /// To read a key.
    Read {
        /// Which.
        key: String,
        /// What came of it.
        outcome: Outcome<Found>,
    },
    /// To write a value, which nobody writes twice.
    Put {
        /// Under this key.
        key: String,
        /// Which.
        value: u64,
        /// What came of it.
        outcome: Outcome<Wrote>,
    },
    /// To delete a key.
    Delete {
        /// Which.
        key: String,
        /// What came of it.
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
        /// What came of it.
        outcome: Outcome<Swapped>,
    },
    /// To read all keys that begin with [`KEYS`].
    All {
        /// What came of it.
        outcome: Outcome<Listed>,
    },
    /// To begin a session of this number.
    Begin {
        /// Which.
        session: i64,
        /// How long it lives unless it is kept alive, in seconds.
        outcome: Outcome<i64>,
    },
    /// To write the key that goes with a session, and has its number as value.
    Attach {
        /// Which.
        session: i64,
        /// What came of it.
        outcome: Outcome<Wrote>,
    },
    /// To keep a session alive.
    KeepAlive {
        /// Which.
        session: i64,
        /// How long it lives from then on, in seconds; 0 if it is over.
        outcome: Outcome<i64>,
    },
    /// How long a session lives.
    Look {
        /// Which.
        session: i64,
        /// How long, in seconds; -1 if it is over.
        outcome: Outcome<i64>,
    },
    /// To end a session.
    End {
        /// Which.
        session: i64,
        /// Whether it was there.
        outcome: Outcome<bool>,
    },
    /// Nothing: from now on nobody keeps this session alive.
    LetGo {
        /// Which.
        session: i64,
    },
    /// To read all keys that go with sessions.
    Sessions {
        /// What came of it.
        outcome: Outcome<Listed>,
    },
}

/// What became of a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Outcome<T> {
    /// It was answered.
    Answered(T),
    /// It surely has no effect; why.
    Failed(String),
    /// Nobody knows; why.
    InDoubt(String),
    /// It was answered with what nobody can have written.
    Garbled(String),
}

/// What stands under a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub(crate) struct Entry {
    /// The value.
    pub(crate) value: u64,
    /// The revision at which it was written.
    pub(crate) revision: i64,
}

/// What a key was found to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Found {
    /// The revision of the whole map at which it was so.
    pub(crate) revision: i64,
    /// What stands there.
    pub(crate) entry: Option<Entry>,
}

/// What came of a write or a deletion.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Wrote {
    /// The revision of the whole map after it.
    pub(crate) revision: i64,
    /// What stood there before.
    pub(crate) before: Option<Entry>,
}

/// What came of a write under a condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Swapped {
    /// The revision of the whole map after it.
    pub(crate) revision: i64,
    /// Whether the condition held, so that it was written.
    pub(crate) held: bool,
    /// If it did not hold: what stands there.
    pub(crate) found: Option<Entry>,
}

/// Some keys, as they were at one revision.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Listed {
    /// The revision of the whole map.
    pub(crate) revision: i64,
    /// What stands under each.
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
