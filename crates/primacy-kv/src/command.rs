//! The commands and reads of the replicated map, and their answers.
//!
//! A [`Command`] changes the state on every node in the same way; a [`Read`] reads the state of one node. The types can
//! express all requests of etcd's v3 API, so that a server can serve them without state of its own.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;
use core::num::NonZeroU64;

use primacy_core::id::{Identity, NodeId};
use primacy_core::time::Duration;

use super::entry::Entry;
use super::partitions;

mod builders;
mod check;
pub(crate) mod encoding;

pub use super::entry::Version;
pub use super::session_id::SessionId;
pub use check::{
    ANSWER_BYTES_MAX, CHANGES_MAX, OPERATIONS_IN_ALL_MAX, OPERATIONS_MAX, REQUEST_BYTES_MAX, RequestLimits,
    TIME_TO_LIVE_MAX, VISITS_MAX,
};
pub use encoding::FORMAT as REQUEST_FORMAT;

/// Bytes that are shared and never changed.
pub type Bytes = Arc<[u8]>;

/// A choice of keys.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Keys {
    /// This one.
    One(Bytes),
    /// From the first key up to the second, which is excluded. Empty if the second is not above the first.
    Between(Bytes, Bytes),
    /// This one and all above it.
    From(Bytes),
}

impl Keys {
    /// The keys that etcd's `key` and `range_end` mean: without an end the key alone, with the end `\0` all from the
    /// key on, otherwise all from the key up to the end.
    #[must_use]
    pub fn new(key: Bytes, end: &[u8]) -> Self {
        match end {
            [] => Self::One(key),
            [0] => Self::From(key),
            end => Self::Between(key, end.into()),
        }
    }

    /// All keys.
    #[must_use]
    pub fn all() -> Self {
        Self::From(Bytes::from([0; 1].as_slice()))
    }

    /// The lower bound of the keys.
    #[must_use]
    pub fn first(&self) -> &[u8] {
        match self {
            Self::One(key) | Self::Between(key, _) | Self::From(key) => key,
        }
    }

    /// True if this key is among them.
    #[must_use]
    pub fn contain(&self, key: &[u8]) -> bool {
        match self {
            Self::One(one) => **one == *key,
            Self::Between(from, end) => **from <= *key && *key < **end,
            Self::From(from) => **from <= *key,
        }
    }
}

/// A request for entries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Read {
    /// The keys.
    pub keys: Keys,
    /// The version at which they are read; `None` for now.
    pub at: Option<Version>,
    /// The highest number of entries; `None` for all.
    pub limit: Option<NonZeroU64>,
    /// The order, which is applied before the limit.
    pub order: Order,
    /// Selects the entries whose creating version is within these bounds.
    pub made: Bounds,
    /// Selects the entries whose last changing version is within these bounds.
    pub changed: Bounds,
    /// The parts of the entries that are returned.
    pub wanted: Wanted,
}

impl Read {
    /// Asks for all entries of these keys as they are now, in the order of the keys.
    #[must_use]
    pub fn of(keys: Keys) -> Self {
        Self {
            keys,
            at: None,
            limit: None,
            order: Order::default(),
            made: Bounds::default(),
            changed: Bounds::default(),
            wanted: Wanted::default(),
        }
    }
}

/// An order of entries. Equal entries stay in the order of their keys.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Order {
    /// The sort key.
    pub key: SortKey,
    /// Ascending or descending.
    pub direction: Direction,
}

/// A sort key of entries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum SortKey {
    /// The bytes of the key.
    #[default]
    Key,
    /// The number of writes since it was made.
    Writes,
    /// The version that made it.
    MadeAt,
    /// The version that last changed it.
    ChangedAt,
    /// The bytes of the value.
    Value,
}

/// The end of an order that comes first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Direction {
    /// The lowest.
    #[default]
    Ascending,
    /// The highest.
    Descending,
}

/// From one version to another one, both included.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Bounds {
    /// The first.
    pub from: Version,
    /// The last.
    pub to: Version,
}

impl Default for Bounds {
    /// All versions.
    fn default() -> Self {
        Self { from: Version(0), to: Version(u64::MAX) }
    }
}

impl Bounds {
    /// True if this version is within them.
    #[must_use]
    pub fn contain(&self, version: Version) -> bool {
        (self.from..=self.to).contains(&version)
    }
}

/// The parts of the entries that a read returns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Wanted {
    /// The whole entries.
    #[default]
    Entries,
    /// All but the values, which are empty in the answer.
    Keys,
    /// Only the number of entries.
    Count,
}

/// Whether the entry before the change is returned.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Previous {
    /// No.
    #[default]
    Unwanted,
    /// Yes.
    Wanted,
}

/// Replaces a part of an entry, or keeps it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Replace<T> {
    /// Replaces it with this.
    With(T),
    /// Keeps the present one. There must be an entry, or it is [`Refusal::KeyNotFound`].
    Keep,
}

/// Writes one key. Mostly [`Write::new`] suffices.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Write {
    /// The key.
    pub key: Bytes,
    /// Its value.
    pub value: Replace<Bytes>,
    /// The session with which it goes; `None` if it stays.
    pub session: Replace<Option<SessionId>>,
    /// Wanted if the entry that was there is to be returned.
    pub previous: Previous,
}

/// Deletes keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delete {
    /// The keys to delete.
    pub keys: Keys,
    /// Wanted if the entries that were there are to be returned.
    pub previous: Previous,
}

/// A relation of a present number or value to a given one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Relation {
    /// The two are equal.
    Equal,
    /// The two are not equal.
    NotEqual,
    /// The present one is greater.
    Greater,
    /// The present one is less.
    Less,
}

/// A compared part of an entry, with the given number or value. The numbers have a sign, so that one that no entry can
/// have compares as it should; for a key without an entry all numbers are 0.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Compared {
    /// The number of writes since it was made.
    Writes(i64),
    /// The version that made it.
    MadeAt(i64),
    /// The version that last changed it.
    ChangedAt(i64),
    /// The number of its session, 0 for none.
    Session(i64),
    /// Its value. No comparison holds for the value of a key without an entry, not even that it is another one.
    Value(Bytes),
}

/// A condition on all entries of some keys. If there is none, it is on an entry whose numbers are 0.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Comparison {
    /// The keys.
    pub keys: Keys,
    /// The relation of the present number or value to the given one.
    pub relation: Relation,
    /// The compared part, with the given number or value.
    pub compared: Compared,
}

/// Does one list of operations if all comparisons hold, else another one; in one step.
///
/// The comparisons of nested transactions too are judged before anything is changed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Transaction {
    /// The conditions.
    pub comparisons: Vec<Comparison>,
    /// The operations if all conditions hold, in order.
    pub then: Vec<Operation>,
    /// The operations if one does not hold.
    pub otherwise: Vec<Operation>,
}

/// An operation on entries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Returns entries.
    Read(Box<Read>),
    /// Writes one entry.
    Write(Write),
    /// Deletes entries.
    Delete(Delete),
    /// Does one list of operations, or another one.
    Transaction(Transaction),
}

impl Operation {
    /// True if it can change nothing, whatever conditions hold.
    #[must_use]
    pub fn only_reads(&self) -> bool {
        match self {
            Self::Read(_) => true,
            Self::Write(_) | Self::Delete(_) => false,
            Self::Transaction(transaction) => {
                transaction.then.iter().chain(&transaction.otherwise).all(Self::only_reads)
            }
        }
    }
}

/// A replicated command: it has the same effect on every node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// Does an operation on entries.
    Operate(Operation),
    /// Forgets the entries of before this version. Reading at this version stays possible.
    Compact(Version),
    /// Begins a session.
    Begin {
        /// Its number.
        session: SessionId,
        /// The time for which it lives without being kept alive. The state only reports it: the leader, which has a
        /// clock, proposes [`Self::Expire`].
        time_to_live: Duration,
    },
    /// Ends a session that was begun with [`Self::Begin`], and deletes its entries, all in one version.
    End {
        /// Its number.
        session: SessionId,
    },
    /// Ends a session whose time is over, however it was begun, or that of a node which is gone. For the leader alone,
    /// which has the clock.
    Expire {
        /// Its number.
        session: SessionId,
    },
    /// Forgets which requests of this node were applied: for a node that comes back with a disk that knows nothing of
    /// its past.
    Forget {
        /// The node.
        node: NodeId,
    },
    /// Sets the limits on the size of the state.
    Limit(Limits),
    /// Sets the secret that all nodes share, unless there is one.
    Share(Secret),
    /// Changes partitions, or reports a node that may have some.
    Partitions(partitions::Command),
}

/// Unguessable bytes, which all nodes share: one of them signs with them, and another one accepts.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Secret(pub [u8; 32]);

/// Shows the type without the bytes.
impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

/// The limits on the size of the state. A part of the state, since all nodes must refuse the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Limits {
    /// The limit on entries and sessions, in bytes, with the overhead of each. A command that would exceed it is
    /// [`Refusal::NoSpace`], unless it makes an entry no larger.
    pub quota: u64,
    /// The limit on the history, in bytes. Beyond it, the oldest is compacted away.
    pub history_bytes: u64,
    /// The limit on the history, in changes. Beyond it, the oldest is compacted away.
    pub history_changes: u64,
}

impl Default for Limits {
    /// [`Limits::QUOTA`], [`Limits::HISTORY_BYTES`] and [`Limits::HISTORY_CHANGES`].
    fn default() -> Self {
        Self {
            quota: Self::QUOTA,
            history_bytes: Self::HISTORY_BYTES,
            history_changes: Self::HISTORY_CHANGES,
        }
    }
}

impl Limits {
    /// The quota unless another one is set: 512 MiB, for the state is held in memory.
    pub const QUOTA: u64 = 512 << 20;
    /// The bytes of history unless set otherwise: 16 MiB, some 40,000 changes of small entries. It is held in memory on
    /// each node, is in each snapshot, and is for clients that read recent states and for watchers that fell behind.
    pub const HISTORY_BYTES: u64 = 16 << 20;
    /// The changes of history unless set otherwise.
    pub const HISTORY_CHANGES: u64 = 1_000_000;
}

/// A command with its sender, so that it is applied at most once however often it is replicated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// The incarnation that sends it.
    pub client: Identity,
    /// The number of the request among those of that incarnation; each has its own.
    pub sequence: u64,
    /// The number below which that incarnation waits for no request any more; none of those is applied from now on.
    pub done_below: u64,
    /// The command.
    pub command: Command,
}

/// The result of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Applied {
    /// It was applied now, which may mean that it was refused.
    First(Outcome),
    /// Nothing was done: it was applied before, or the client does not wait for it any more.
    Duplicate,
}

/// The result of a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// The version of the map after it; there are new changes to watch if it has grown.
    pub version: Version,
    /// The answer, or the reason why nothing was done.
    pub result: Result<Answer, Refusal>,
}

/// The answer to a command or operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// To [`Operation::Read`].
    Found(Found),
    /// To [`Operation::Write`].
    Written {
        /// The version that it made.
        version: Version,
        /// The entry that was there, if asked for.
        previous: Option<Entry>,
    },
    /// To [`Operation::Delete`].
    Deleted {
        /// The version of the map after it, within its transaction.
        version: Version,
        /// The number of deleted entries.
        count: u64,
        /// The entries that were there in the order of their keys, if asked for.
        previous: Vec<Entry>,
    },
    /// To [`Operation::Transaction`].
    Decided {
        /// True if all comparisons held.
        held: bool,
        /// The answers to the operations that were done, in order.
        answers: Vec<Answer>,
    },
    /// To [`Command::End`] and [`Command::Expire`].
    Ended {
        /// The number of entries that went with the session.
        count: u64,
    },
    /// To every other command.
    Done,
}

/// The result of a read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// The version of the map, within its transaction; whatever version was asked for.
    pub version: Version,
    /// The entries.
    pub entries: Vec<Entry>,
    /// True if the limit has cut some off.
    pub more: bool,
    /// The number of entries of the keys, whatever the bounds and the limit.
    pub count: u64,
}

/// A change of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// The version that it made.
    pub version: Version,
    /// The kind of change.
    pub happened: Happened,
    /// The entry before that version, if it was asked for, there was one, and it is not compacted away; `None` for an
    /// entry that was made in that version.
    pub previous: Option<Entry>,
}

/// A kind of change of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Happened {
    /// It was written, and this is its entry since then.
    Written(Entry),
    /// It was deleted, and this was its entry. Its key is what a watcher is sent.
    Deleted(Entry),
}

impl Change {
    /// The key.
    #[must_use]
    pub fn key(&self) -> &[u8] {
        match &self.happened {
            Happened::Written(entry) | Happened::Deleted(entry) => entry.key(),
        }
    }
}

/// The reason why nothing was done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Refusal {
    /// The entries of that version are compacted away.
    Compacted {
        /// The first version that can still be read; to compact, a higher one is needed.
        compacted: Version,
    },
    /// There is no such version yet.
    Future {
        /// The version of the map.
        version: Version,
    },
    /// There is no such session.
    SessionNotFound,
    /// As many entries go with the session as may: [`CHANGES_MAX`].
    SessionFull,
    /// There is a session of that number already.
    SessionExists,
    /// The entry of which a part shall be kept is not there.
    KeyNotFound,
    /// The state would grow beyond [`Limits::quota`].
    NoSpace,
    /// A key is empty.
    EmptyKey,
    /// A transaction writes a key twice, or deletes it too.
    DuplicateKey,
    /// A transaction has more than [`RequestLimits::operations`] or [`RequestLimits::operations_in_all`].
    TooManyOperations,
    /// It has more than [`RequestLimits::bytes`].
    RequestTooLarge,
    /// It looks at more entries than [`VISITS_MAX`] allows, or changes more than [`CHANGES_MAX`].
    TooManyEntries,
    /// Its answer would be longer than [`ANSWER_BYTES_MAX`].
    AnswerTooLarge,
    /// The time to live of a session is longer than [`TIME_TO_LIVE_MAX`].
    TimeToLiveTooLong,
    /// The client waits for more requests than are remembered per client: [`OPEN_MAX`](crate::state::requests::OPEN_MAX) of
    /// them.
    TooManyRequests,
    /// Requests of too many incarnations would be remembered: more than [`CLIENTS_MAX`](crate::state::requests::CLIENTS_MAX).
    TooManyClients,
    /// A later incarnation of the same node has been here.
    FormerLife,
    /// A command on partitions is refused.
    Partitions(partitions::Refusal),
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Compacted { compacted } => {
                write!(f, "what was before version {compacted} is compacted away")
            }
            Self::Future { version } => write!(f, "there is no such version yet: the map is at {version}"),
            Self::SessionNotFound => f.write_str("there is no such session"),
            Self::SessionExists => f.write_str("there is a session of that number already"),
            Self::SessionFull => {
                write!(f, "{CHANGES_MAX} entries go with the session already: use another session for more")
            }
            Self::KeyNotFound => f.write_str("what shall be kept of an entry is not there"),
            Self::NoSpace => f.write_str("the map would grow beyond its quota"),
            Self::EmptyKey => f.write_str("a key is empty"),
            Self::DuplicateKey => f.write_str("a transaction writes a key twice, or deletes it too"),
            Self::TooManyOperations => f.write_str("a transaction has too many operations"),
            Self::RequestTooLarge => f.write_str("the request is too large"),
            Self::TooManyEntries => write!(
                f,
                "the request looks at more than twice all entries and {VISITS_MAX} more, or changes more than {CHANGES_MAX}: ask for fewer \
                 keys at a time"
            ),
            Self::AnswerTooLarge => write!(
                f,
                "the answer would be longer than {} MiB: ask for fewer keys at a time",
                ANSWER_BYTES_MAX >> 20
            ),
            Self::TimeToLiveTooLong => f.write_str("a session shall live too long"),
            Self::TooManyRequests => f.write_str("the client waits for too many requests"),
            Self::TooManyClients => f.write_str("the requests of too many clients are remembered"),
            Self::FormerLife => f.write_str("a later life of the same node has been here"),
            Self::Partitions(refusal) => fmt::Display::fmt(refusal, f),
        }
    }
}

impl core::error::Error for Refusal {}
