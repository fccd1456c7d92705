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
    /// Replaces the part with this one.
    With(T),
    /// Keeps the present part. Without an entry, the write is refused with [`Refusal::KeyNotFound`].
    Keep,
}

/// Writes one key. [`Write::new`] makes the most common one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Write {
    /// The key.
    pub key: Bytes,
    /// Its value.
    pub value: Replace<Bytes>,
    /// The session with whose end the entry is deleted; `None` if the entry has no session.
    pub session: Replace<Option<SessionId>>,
    /// Whether the entry before the write is returned.
    pub previous: Previous,
}

/// Deletes keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delete {
    /// The keys to delete.
    pub keys: Keys,
    /// Whether the deleted entries are returned.
    pub previous: Previous,
}

/// The relation of an entry's present number or value to a given one.
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

/// The compared part of an entry, with the given number or value. The numbers are signed, so that a negative number,
/// which no entry can have, compares correctly. For a key without an entry all numbers are 0.
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
    /// Its value. For a key without an entry every comparison of the value is false, even [`Relation::NotEqual`].
    Value(Bytes),
}

/// A condition on all entries of some keys. If there is no entry, it applies to one whose numbers are 0.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Comparison {
    /// The keys.
    pub keys: Keys,
    /// The relation of the present number or value to the given one.
    pub relation: Relation,
    /// The compared part, with the given number or value.
    pub compared: Compared,
}

/// Performs one list of operations if all comparisons hold, and another one otherwise, atomically.
///
/// All comparisons, also those of nested transactions, are evaluated before anything is changed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Transaction {
    /// The conditions.
    pub comparisons: Vec<Comparison>,
    /// The operations if all conditions hold, in order.
    pub then: Vec<Operation>,
    /// The operations if any condition does not hold.
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
    /// Performs one of two lists of operations.
    Transaction(Transaction),
}

impl Operation {
    /// True if it changes nothing, in any branch.
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
    /// Performs an operation on entries.
    Operate(Operation),
    /// Removes the history before this version. The map can still be read at this version.
    Compact(Version),
    /// Begins a session.
    Begin {
        /// Its number.
        session: SessionId,
        /// The time after which it expires unless it is kept alive. The state only stores it: the leader, which has a
        /// clock, proposes [`Self::Expire`].
        time_to_live: Duration,
    },
    /// Ends a session that was begun with [`Self::Begin`], and deletes its entries, in one version.
    End {
        /// Its number.
        session: SessionId,
    },
    /// Ends a session whose time is over, of a client or of a node, or the session of a dead node. Only the leader,
    /// which has the clock, proposes it.
    Expire {
        /// Its number.
        session: SessionId,
    },
    /// Forgets the applied requests of this node: for a node that comes back with a new disk.
    Forget {
        /// The node.
        node: NodeId,
    },
    /// Sets the limits on the size of the state.
    Limit(Limits),
    /// Sets the secret that all nodes share, unless it is set already.
    Share(Secret),
    /// Changes the partitions, or the nodes that may be primaries.
    Partitions(partitions::Command),
}

/// Unguessable bytes that all nodes share: a node verifies with them what another node has signed.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Secret(pub [u8; 32]);

/// Formats the type without the bytes.
impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

/// The limits on the size of the state. They are part of the state, because all nodes must refuse the same commands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Limits {
    /// The limit on entries and sessions, in bytes, with the overhead of each. A command that would exceed it is
    /// refused with [`Refusal::NoSpace`], unless it makes no entry larger.
    pub quota: u64,
    /// The limit on the history, in bytes. Beyond it, the oldest changes are compacted.
    pub history_bytes: u64,
    /// The limit on the history, in changes. Beyond it, the oldest changes are compacted.
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
    /// The default quota: 512 MiB, because the state is held in memory.
    pub const QUOTA: u64 = 512 << 20;
    /// The default limit on the bytes of history: 16 MiB, some 40,000 changes of small entries. The history serves
    /// reads of recent versions and watchers that have fallen behind; it is in the memory of each node, and in each
    /// snapshot.
    pub const HISTORY_BYTES: u64 = 16 << 20;
    /// The default limit on the changes of history.
    pub const HISTORY_CHANGES: u64 = 1_000_000;
}

/// A command with its sender and number, by which it is applied at most once, however often it is replicated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// The incarnation that sends it.
    pub client: Identity,
    /// The number of the request, unique in that incarnation.
    pub sequence: u64,
    /// The number below which that incarnation awaits no request any more. Requests below it are no longer applied.
    pub done_below: u64,
    /// The command.
    pub command: Command,
}

/// The result of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Applied {
    /// It was applied now; its outcome may be a refusal.
    First(Outcome),
    /// Nothing was done: the request was applied before, or the client does not await it any more.
    Duplicate,
}

/// The result of a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// The version of the map after the command. If it has grown, there are new changes to watch.
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
        /// The entry before the write, if it was asked for.
        previous: Option<Entry>,
    },
    /// To [`Operation::Delete`].
    Deleted {
        /// The version of the map after the deletion, within its transaction.
        version: Version,
        /// The number of deleted entries.
        count: u64,
        /// The deleted entries in the order of their keys, if they were asked for.
        previous: Vec<Entry>,
    },
    /// To [`Operation::Transaction`].
    Decided {
        /// True if all comparisons held.
        held: bool,
        /// The answers to the performed operations, in order.
        answers: Vec<Answer>,
    },
    /// To [`Command::End`] and [`Command::Expire`].
    Ended {
        /// The number of entries that were deleted with the session.
        count: u64,
    },
    /// To every other command.
    Done,
}

/// The result of a read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// The present version of the map, within its transaction, also if an earlier version was read.
    pub version: Version,
    /// The entries.
    pub entries: Vec<Entry>,
    /// True if the limit has cut off entries.
    pub more: bool,
    /// The number of entries of the keys, regardless of bounds and limit.
    pub count: u64,
}

/// A change of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// The version that it made.
    pub version: Version,
    /// The kind of change.
    pub happened: Happened,
    /// The entry before that version, if it was asked for, existed, and is not compacted; `None` for an entry that was
    /// created in that version.
    pub previous: Option<Entry>,
}

/// A kind of change of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Happened {
    /// The key was written; this is the new entry.
    Written(Entry),
    /// The key was deleted; this was its entry. A watcher is sent only the key of it.
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

/// The reason why a command was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Refusal {
    /// The version is compacted.
    Compacted {
        /// The first version that can still be read. A compaction needs a higher one.
        compacted: Version,
    },
    /// There is no such version yet.
    Future {
        /// The version of the map.
        version: Version,
    },
    /// There is no such session.
    SessionNotFound,
    /// The session has the maximum number of entries, [`CHANGES_MAX`].
    SessionFull,
    /// A session with that number exists already.
    SessionExists,
    /// A write keeps a part of an entry that does not exist.
    KeyNotFound,
    /// The state would grow beyond [`Limits::quota`].
    NoSpace,
    /// A key is empty.
    EmptyKey,
    /// A transaction writes a key twice, or writes and deletes it.
    DuplicateKey,
    /// A transaction has more than [`RequestLimits::operations`] or [`RequestLimits::operations_in_all`].
    TooManyOperations,
    /// The request has more than [`RequestLimits::bytes`].
    RequestTooLarge,
    /// The operation visits more entries than [`VISITS_MAX`] allows, or changes more than [`CHANGES_MAX`].
    TooManyEntries,
    /// The answer would be longer than [`ANSWER_BYTES_MAX`].
    AnswerTooLarge,
    /// The time to live of a session is longer than [`TIME_TO_LIVE_MAX`].
    TimeToLiveTooLong,
    /// The client awaits more requests than are remembered per client, [`OPEN_MAX`](crate::state::requests::OPEN_MAX).
    TooManyRequests,
    /// More than [`CLIENTS_MAX`](crate::state::requests::CLIENTS_MAX) incarnations would have remembered requests.
    TooManyClients,
    /// A later incarnation of the same node has already sent requests.
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
