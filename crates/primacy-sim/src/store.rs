//! A linearizable register for one lease record, with the faults of real stores.

use std::collections::VecDeque;

use primacy_core::election::lease::{Found, Message, Record, RequestId, SetError, Version};
use primacy_core::{FencingToken, NodeId};

use crate::clock::Moment;

/// The number of past states to which the store can be rewound.
const HISTORY_MAX: usize = 16;

/// The wall clock at the beginning of the world, in milliseconds since 1970: long past, but above any token that a
/// script reaches by counting.
const CALENDAR: u64 = 1_000_000;

/// The behaviour of the store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mood {
    /// It serves requests.
    #[default]
    Up,
    /// It refuses requests at once.
    Down,
    /// It does not answer.
    Silent,
}

/// A fault of one request of one node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mishap {
    /// The write is done, and the reply is lost on the way.
    ReplyLost,
    /// The write is done, and the reply says that the outcome is unknown.
    UnknownButDone,
    /// The write is not done, and the reply says that the outcome is unknown.
    UnknownNotDone,
    /// The write is done twice, as by a client library that retries without an answer; the reply is that to the
    /// second write.
    DoneTwice,
}

impl Mishap {
    /// The name of its counter.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::ReplyLost => "store: done, and the reply lost",
            Self::UnknownButDone => "store: done, and said to be unknown",
            Self::UnknownNotDone => "store: not done, and said to be unknown",
            Self::DoneTwice => "store: done twice",
        }
    }
}

/// The result of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Served {
    /// The reply, unless it was lost.
    pub reply: Option<Message>,
    /// True if the record has changed.
    pub changed: bool,
    /// The name of the counter to increment, if any.
    pub met: Option<&'static str>,
}

impl Served {
    const fn plainly(reply: Option<Message>, changed: bool) -> Self {
        Self { reply, changed, met: None }
    }
}

#[derive(Clone, Debug)]
struct Cell {
    record: Option<Record>,
    version: u64,
}

/// The store.
#[derive(Clone, Debug)]
pub struct Store {
    cell: Cell,
    /// The former states, the newest last.
    history: VecDeque<Cell>,
    /// The store's present behaviour.
    pub mood: Mood,
    /// True if it notifies all nodes at once that the record has changed.
    pub tells_changes: bool,
    /// True if the store accepts every write, whatever its expected version: a broken store.
    pub lies: bool,
    mishaps: Vec<(NodeId, Mishap)>,
    /// True if the record was deleted, and not written again since.
    deleted: bool,
}

impl Default for Store {
    fn default() -> Self {
        Self {
            cell: Cell { record: None, version: 0 },
            history: VecDeque::new(),
            mood: Mood::Up,
            tells_changes: false,
            lies: false,
            mishaps: Vec::new(),
            deleted: false,
        }
    }
}

impl Store {
    /// The record, if there is one.
    #[must_use]
    pub const fn record(&self) -> Option<&Record> {
        self.cell.record.as_ref()
    }

    /// The store's counter of writes.
    #[must_use]
    pub const fn version(&self) -> u64 {
        self.cell.version
    }

    /// Sets the fault of the next compare-and-set of this node.
    pub fn aim(&mut self, at: NodeId, mishap: Mishap) {
        self.mishaps.push((at, mishap));
    }

    /// Takes the fault that was set for this node's next write, which has arrived.
    pub(crate) fn take_aimed(&mut self, from: NodeId) -> Option<Mishap> {
        self.mishaps.iter().position(|&(node, _)| node == from).map(|place| self.mishaps.remove(place).1)
    }

    /// Removes all faults that were set, and serves again.
    pub fn heal(&mut self) {
        self.mishaps.clear();
        self.mood = Mood::Up;
    }

    /// Writes unconditionally, as an operator does; `None` deletes the record.
    pub fn put(&mut self, record: Option<Record>) {
        self.history.push_back(self.cell.clone());
        if self.history.len() > HISTORY_MAX {
            self.history.pop_front();
        }
        self.deleted = record.is_none() && (self.cell.record.is_some() || self.deleted);
        self.cell = Cell { record, version: self.cell.version + 1 };
    }

    /// Restores the state before this many writes, as from a backup; the store then gives the same versions again.
    pub fn rewind(&mut self, writes: usize) {
        for _ in 0..writes {
            if let Some(cell) = self.history.pop_back() {
                self.cell = cell;
            }
        }
    }

    /// Serves one request of `from`. The reply is `None` if the message is no request.
    pub fn serve(&mut self, now: Moment, from: NodeId, message: &Message) -> Served {
        match (self.mood, message) {
            (Mood::Silent, _) => Served { met: Some("store: silent"), ..Served::plainly(None, false) },
            (Mood::Down, _) => Served::plainly(unavailable(message), false),
            (Mood::Up, Message::Read { request }) => {
                let missed = self.deleted && self.cell.record.is_none();
                let met = missed.then_some("store: the record was deleted, and is missed");
                Served { met, ..Served::plainly(Some(self.read(now, *request)), false) }
            }
            (Mood::Up, Message::CompareAndSet { request, expect, record }) => {
                self.compare_and_set(from, *request, expect.as_ref(), record)
            }
            (Mood::Up, Message::ReadReply { .. } | Message::CompareAndSetReply { .. } | Message::Changed) => {
                Served::plainly(None, false)
            } // No request.
        }
    }

    fn read(&self, now: Moment, request: RequestId) -> Message {
        let found = match &self.cell.record {
            Some(record) => {
                Found::Record { record: record.clone(), version: Version::from(self.cell.version) }
            }
            None => Found::Absent { first_token: FencingToken(CALENDAR + now.as_nanos() / 1_000_000) },
        };
        Message::ReadReply { request, found: Some(found) }
    }

    fn compare_and_set(
        &mut self,
        from: NodeId,
        request: RequestId,
        expect: Option<&Version>,
        record: &Record,
    ) -> Served {
        let mishap = self.take_aimed(from);
        let reply = |result| Some(Message::CompareAndSetReply { request, result });
        let current = self.cell.record.as_ref().map(|_| Version::from(self.cell.version));
        let taken = self.lies || current.as_ref() == expect;
        let changed = taken && mishap != Some(Mishap::UnknownNotDone);
        let result = if changed {
            self.put(Some(record.clone()));
            Ok(Version::from(self.cell.version))
        } else {
            Err(SetError::Conflict)
        };
        let reply = match mishap {
            None => reply(result),
            Some(Mishap::ReplyLost) => None,
            Some(Mishap::DoneTwice) => reply(Err(SetError::Conflict)),
            Some(Mishap::UnknownButDone | Mishap::UnknownNotDone) => reply(Err(SetError::Unknown)),
        };
        // A fault counts only if the write would otherwise have succeeded.
        let met = mishap.filter(|_| taken).map(Mishap::name);
        Served { reply, changed, met }
    }
}

fn unavailable(message: &Message) -> Option<Message> {
    match message {
        Message::Read { request } => Some(Message::ReadReply { request: *request, found: None }),
        Message::CompareAndSet { request, .. } => {
            Some(Message::CompareAndSetReply { request: *request, result: Err(SetError::Unavailable) })
        }
        Message::ReadReply { .. } | Message::CompareAndSetReply { .. } | Message::Changed => None, // No request.
    }
}
