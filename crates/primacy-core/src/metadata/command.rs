//! What may be asked of the replicated map, and what it answers.
//!
//! A [`Command`] changes the state on every node in the same way; a [`Read`] looks at it on one. The types say all that
//! the requests of etcd's third interface can say, so that a server can answer those without a state of its own.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;
use core::num::{NonZeroI64, NonZeroU64};

use super::entry::Entry;
use super::partitions;
use super::state::cost::{ANSWER_BYTES_MAX, VISITS_MAX};
use crate::id::{Identity, NodeId};
use crate::time::Duration;

mod check;
mod short;

pub use check::{OPERATIONS_IN_ALL_MAX, OPERATIONS_MAX, REQUEST_BYTES_MAX, RequestLimits, TIME_TO_LIVE_MAX};

/// Bytes that several may hold and nobody changes.
pub type Bytes = Arc<[u8]>;

/// The number of a change to the map: each command that changes any entry makes the next one.
///
/// The empty map is at [`Version::FIRST`]. All that one command changes has the same version.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Version(pub u64);

impl Version {
    /// That of the empty map.
    pub const FIRST: Self = Self(1);

    /// The version after this one.
    ///
    /// # Panics
    /// After 2⁶⁴ changes.
    #[must_use]
    pub fn next(self) -> Self {
        Self(self.0.checked_add(1).expect("a map does not see 2^64 changes"))
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

/// The number of a session. Whoever begins it chooses it: any number but 0, which means none.
///
/// It has a sign because a comparison may ask for a smaller one, and clients choose negative ones too.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionId(NonZeroI64);

impl SessionId {
    /// The session of this number; `None` for 0.
    #[must_use]
    pub const fn new(number: i64) -> Option<Self> {
        match NonZeroI64::new(number) {
            Some(number) => Some(Self(number)),
            None => None,
        }
    }

    /// The number.
    #[must_use]
    pub const fn get(self) -> i64 {
        self.0.get()
    }
}

impl fmt::Display for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

/// Which keys are meant.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Keys {
    /// This one.
    One(Bytes),
    /// From the first on, up to the second, which is none of them. None at all if the second is not above the first.
    Between(Bytes, Bytes),
    /// This one and all above it.
    From(Bytes),
}

impl Keys {
    /// The keys that a pair of key and end means by the usual convention: without an end the key alone, with the end `\0`
    /// all from the key on, else all from the key up to the end.
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

    /// The first key that may be among them.
    #[must_use]
    pub fn first(&self) -> &[u8] {
        match self {
            Self::One(key) | Self::Between(key, _) | Self::From(key) => key,
        }
    }

    /// Whether this key is among them.
    #[must_use]
    pub fn contain(&self, key: &[u8]) -> bool {
        match self {
            Self::One(one) => **one == *key,
            Self::Between(from, end) => **from <= *key && *key < **end,
            Self::From(from) => **from <= *key,
        }
    }
}

/// Asks for entries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Read {
    /// Of which keys.
    pub keys: Keys,
    /// As they were at this version; `None` for now.
    pub at: Option<Version>,
    /// How many at most; `None` for all.
    pub limit: Option<NonZeroU64>,
    /// In which order, before the limit cuts.
    pub order: Order,
    /// Only those that were made within these bounds.
    pub made: Bounds,
    /// Only those that were last changed within these bounds.
    pub changed: Bounds,
    /// What of them.
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

/// An order of entries. Those that are equal in it stay in the order of their keys.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Order {
    /// By what.
    pub key: SortKey,
    /// Which end comes first.
    pub direction: Direction,
}

/// By what entries are ordered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum SortKey {
    /// The bytes of the key.
    #[default]
    Key,
    /// How often it was written since it was made.
    Writes,
    /// When it was made.
    MadeAt,
    /// When it was last changed.
    ChangedAt,
    /// The bytes of the value.
    Value,
}

/// Which end comes first.
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
    /// Whether this version is within them.
    #[must_use]
    pub fn contain(&self, version: Version) -> bool {
        (self.from..=self.to).contains(&version)
    }
}

/// What of the entries is wanted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Wanted {
    /// All of each.
    #[default]
    Entries,
    /// All but the values, which are empty in the answer.
    Keys,
    /// How many there are, and none of them.
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

/// Puts something in the place of what is there, or does not.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Replace<T> {
    /// Puts this there.
    With(T),
    /// Keeps what is there. There must be an entry, or it is [`Refusal::KeyNotFound`].
    Keep,
}

/// Writes one key. Mostly [`Write::new`] says it all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Write {
    /// The key.
    pub key: Bytes,
    /// Its value.
    pub value: Replace<Bytes>,
    /// The session with which it goes; `None` if it stays.
    pub session: Replace<Option<SessionId>>,
    /// Whether the entry that was there is returned.
    pub previous: Previous,
}

/// Deletes keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delete {
    /// Which.
    pub keys: Keys,
    /// Whether the entries that were there are returned.
    pub previous: Previous,
}

/// How what is there stands to what is given.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Relation {
    /// They are equal.
    Equal,
    /// They are not.
    NotEqual,
    /// What is there is greater.
    Greater,
    /// What is there is less.
    Less,
}

/// What of an entry is compared, and with what. The numbers have a sign, so that one that no entry can have compares as it
/// should; of a key without an entry all numbers are 0.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Compared {
    /// How often it was written since it was made.
    Writes(i64),
    /// When it was made.
    MadeAt(i64),
    /// When it was last changed.
    ChangedAt(i64),
    /// The number of its session, 0 for none.
    Session(i64),
    /// Its value. Nothing holds of the value of a key without an entry, not even that it is another one.
    Value(Bytes),
}

/// Says something of all entries of some keys. Where there is none, it is said of one whose numbers are 0.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Comparison {
    /// The keys.
    pub keys: Keys,
    /// How what is there must stand to what is given.
    pub relation: Relation,
    /// What is compared, with what is given.
    pub compared: Compared,
}

/// If all comparisons hold, one thing, else another one; in one step.
///
/// The comparisons of nested transactions too are judged before anything is changed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Transaction {
    /// What must hold.
    pub comparisons: Vec<Comparison>,
    /// What is done if all hold, in order.
    pub then: Vec<Operation>,
    /// What is done if one does not.
    pub otherwise: Vec<Operation>,
}

/// Something that is done to entries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Returns some.
    Read(Box<Read>),
    /// Writes one.
    Write(Write),
    /// Deletes some.
    Delete(Delete),
    /// Does several things, or several others.
    Transaction(Transaction),
}

impl Operation {
    /// Whether it can change nothing, whatever holds.
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

/// What is replicated: it has the same effect on every node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// Does something to entries.
    Operate(Operation),
    /// Forgets what entries were before this version. Reading at this one stays possible.
    Compact(Version),
    /// Begins a session.
    Begin {
        /// Its number.
        session: SessionId,
        /// How long it lives without being kept alive. The state only tells it again: who has a clock proposes [`Self::End`].
        time_to_live: Duration,
    },
    /// Ends a session that was begun with [`Self::Begin`], and deletes its entries, all in one version.
    End {
        /// Its number.
        session: SessionId,
    },
    /// Ends a session whose time is over, however it was begun, or that of a node which is gone. For the leader alone, who has the clock.
    Expire {
        /// Its number.
        session: SessionId,
    },
    /// Forgets which requests of this node were applied: for one that comes back with a disk that knows nothing of its past.
    Forget {
        /// The node.
        node: NodeId,
    },
    /// Sets how large the state may become.
    Limit(Limits),
    /// Sets the secret that all nodes share, unless there is one.
    Share(Secret),
    /// Wants something of partitions, or tells of a node that may have some.
    Partitions(partitions::Command),
}

/// Bytes that nobody can guess, which all nodes share: for what one of them signs and another one accepts.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Secret(pub [u8; 32]);

/// Without the bytes.
impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

/// How large the state may become. A part of it, since all nodes must refuse the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Limits {
    /// Of entries and sessions, in bytes, with what each costs besides its contents. What would exceed it is
    /// [`Refusal::NoSpace`], unless it makes an entry no larger.
    pub quota: u64,
    /// Of what entries were before, in bytes. Beyond it, the oldest is compacted away.
    pub history_bytes: u64,
    /// Of what entries were before, in changes. Beyond it, the oldest is compacted away.
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
    /// The bytes of history unless set otherwise: 16 MiB, some 40,000 changes of small entries. It is held in memory on each node,
    /// stands in each snapshot, and is for those who read what has just been and for watchers that fell behind.
    pub const HISTORY_BYTES: u64 = 16 << 20;
    /// The changes of history unless set otherwise.
    pub const HISTORY_CHANGES: u64 = 1_000_000;
}

/// A command with its sender, so that it is applied at most once however often it is replicated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// The process life that sends it.
    pub client: Identity,
    /// Which of the requests of that life; each has a number of its own.
    pub sequence: u64,
    /// That life waits for no request below this number any more; none of those is applied from now on.
    pub done_below: u64,
    /// What is to be done.
    pub command: Command,
}

/// What became of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Applied {
    /// It was applied now, which may mean that it was refused.
    First(Outcome),
    /// Nothing was done: it was applied before, or the client has said that it does not wait for it any more.
    Duplicate,
}

/// What became of a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// The version of the map after it; whoever waits for changes has new ones if it has grown.
    pub version: Version,
    /// The answer, or why nothing was done.
    pub result: Result<Answer, Refusal>,
}

/// The answer to something that was done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// To [`Operation::Read`].
    Found(Found),
    /// To [`Operation::Write`].
    Written {
        /// The version that it made.
        version: Version,
        /// The entry that was there, where that was asked for.
        previous: Option<Entry>,
    },
    /// To [`Operation::Delete`].
    Deleted {
        /// The version of the map after it, within its transaction.
        version: Version,
        /// How many there were.
        count: u64,
        /// The entries that were there in the order of their keys, where that was asked for.
        previous: Vec<Entry>,
    },
    /// To [`Operation::Transaction`].
    Decided {
        /// Whether all comparisons held.
        held: bool,
        /// The answers to what was done, in order.
        answers: Vec<Answer>,
    },
    /// To [`Command::End`] and [`Command::Expire`]: so many entries went with the session.
    Ended {
        /// How many.
        count: u64,
    },
    /// To every other command.
    Done,
}

/// What was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// The version of the map, within its transaction; whatever version was asked for.
    pub version: Version,
    /// The entries.
    pub entries: Vec<Entry>,
    /// Whether the limit has cut some off.
    pub more: bool,
    /// How many entries the keys have, whatever the bounds and the limit.
    pub count: u64,
}

/// Something that happened to a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// When.
    pub version: Version,
    /// What.
    pub happened: Happened,
    /// The entry before that version, where it was asked for, there was one, and it is not compacted away; `None` for an entry
    /// that was made in that version.
    pub previous: Option<Entry>,
}

/// What happened to a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Happened {
    /// It was written, and this is its entry since then.
    Written(Entry),
    /// It was deleted, and this was its entry. The key of it is what a watcher is told.
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

/// Why nothing was done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Refusal {
    /// What entries were at that version is compacted away.
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
    /// There is a session of that number already.
    SessionExists,
    /// What shall be kept of an entry is not there.
    KeyNotFound,
    /// It would grow beyond [`Limits::quota`].
    NoSpace,
    /// A key is empty.
    EmptyKey,
    /// A transaction writes a key twice, or deletes it too.
    DuplicateKey,
    /// A transaction has more than [`RequestLimits::operations`] or [`RequestLimits::operations_in_all`].
    TooManyOperations,
    /// It has more than [`RequestLimits::bytes`].
    RequestTooLarge,
    /// It looks at more entries than [`VISITS_MAX`] allows.
    TooManyEntries,
    /// Its answer would be longer than [`ANSWER_BYTES_MAX`].
    AnswerTooLarge,
    /// A session shall live longer than [`TIME_TO_LIVE_MAX`].
    TimeToLiveTooLong,
    /// The client waits for more requests than are remembered of one: [`OPEN_MAX`](super::requests::OPEN_MAX) of them.
    TooManyRequests,
    /// Requests of more lives are remembered than may be: [`CLIENTS_MAX`](super::requests::CLIENTS_MAX) of them.
    TooManyClients,
    /// A later life of the same node has been here.
    FormerLife,
    /// What is wanted of partitions cannot be.
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
            Self::KeyNotFound => f.write_str("what shall be kept of an entry is not there"),
            Self::NoSpace => f.write_str("the map would grow beyond its quota"),
            Self::EmptyKey => f.write_str("a key is empty"),
            Self::DuplicateKey => f.write_str("a transaction writes a key twice, or deletes it too"),
            Self::TooManyOperations => f.write_str("a transaction has too many operations"),
            Self::RequestTooLarge => f.write_str("the request is too large"),
            Self::TooManyEntries => write!(
                f,
                "the request looks at more than twice all entries and {VISITS_MAX} more: ask for fewer keys at a time"
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
