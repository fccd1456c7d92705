//! Random commands for tests, with few keys and few sessions, so that commands concern the same ones.

use core::num::NonZeroU64;

use primacy_core::id::NodeId;
use primacy_core::rng::Rng;
use primacy_core::time::Duration;

use super::command::{
    Bounds, Bytes, Command, Compared, Comparison, Delete, Direction, Keys, Operation, Order, Previous, Read,
    Relation, Replace, SessionId, SortKey, Transaction, Version, Wanted, Write,
};
use super::partitions::{self, GroupName, Ranges};

/// The number of sessions that the commands name.
pub(super) const SESSIONS: u64 = 4;

/// Draws commands for a map that is at some version.
pub(super) struct Arbitrary {
    pub(super) rng: Rng,
    pub(super) version: u64,
}

impl Arbitrary {
    fn one_in(&mut self, chances: u64) -> bool {
        self.rng.up_to(chances - 1) == 0
    }

    fn previous(&mut self) -> Previous {
        self.rng.one_of(&[Previous::Unwanted, Previous::Wanted])
    }

    fn key(&mut self) -> Bytes {
        let keys: [&[u8]; 8] = [b"a", b"aa", b"ab", b"b", b"c", b"ca", b"\0", b"\xFF"];
        self.rng.one_of(&keys).into()
    }

    fn value(&mut self) -> Bytes {
        let length = usize::try_from(self.rng.up_to(3)).unwrap();
        b"xyz"[..length].into()
    }

    fn session(&mut self) -> SessionId {
        let number = i64::try_from(self.rng.up_to(SESSIONS - 1)).unwrap();
        SessionId::new(number - 5).unwrap()
    }

    /// A past, present or future version.
    fn version(&mut self) -> Version {
        Version(self.rng.up_to(self.version + 2))
    }

    pub(super) fn keys(&mut self) -> Keys {
        match self.rng.up_to(3) {
            0 => Keys::From(self.key()),
            1 => Keys::new(self.key(), &self.key()),
            _ => Keys::One(self.key()),
        }
    }

    fn bounds(&mut self) -> Bounds {
        if self.one_in(4) { Bounds { from: self.version(), to: self.version() } } else { Bounds::default() }
    }

    pub(super) fn read(&mut self) -> Read {
        let keys = [SortKey::Key, SortKey::Writes, SortKey::MadeAt, SortKey::ChangedAt, SortKey::Value];
        Read {
            keys: self.keys(),
            at: self.one_in(2).then(|| self.version()),
            limit: self.one_in(3).then(|| NonZeroU64::new(self.rng.up_to(3) + 1).unwrap()),
            order: Order {
                key: self.rng.one_of(&keys),
                direction: self.rng.one_of(&[Direction::Ascending, Direction::Descending]),
            },
            made: self.bounds(),
            changed: self.bounds(),
            wanted: self.rng.one_of(&[Wanted::Entries, Wanted::Entries, Wanted::Keys, Wanted::Count]),
        }
    }

    fn write(&mut self) -> Write {
        let value = if self.one_in(4) { Replace::Keep } else { Replace::With(self.value()) };
        let session = match self.rng.up_to(3) {
            0 => Replace::Keep,
            1 => Replace::With(Some(self.session())),
            _ => Replace::With(None),
        };
        Write { key: self.key(), value, session, previous: self.previous() }
    }

    fn comparison(&mut self) -> Comparison {
        let relations = [Relation::Equal, Relation::NotEqual, Relation::Greater, Relation::Less];
        let number = i64::try_from(self.rng.up_to(self.version + 1)).unwrap() - 1;
        let compared = match self.rng.up_to(4) {
            0 => Compared::Writes(number.min(3)),
            1 => Compared::MadeAt(number),
            2 => Compared::ChangedAt(number),
            3 => Compared::Session(self.session().get()),
            _ => Compared::Value(self.value()),
        };
        Comparison { keys: self.keys(), relation: self.rng.one_of(&relations), compared }
    }

    pub(super) fn operation(&mut self, depth: u64) -> Operation {
        match self.rng.up_to(if depth == 0 { 6 } else { 7 }) {
            0 | 1 => Operation::Read(Box::new(self.read())),
            2..=5 => Operation::Write(self.write()),
            6 => Operation::Delete(Delete { keys: self.keys(), previous: self.previous() }),
            _ => Operation::Transaction(Transaction {
                comparisons: (0..self.rng.up_to(2)).map(|_| self.comparison()).collect(),
                then: (0..self.rng.up_to(3)).map(|_| self.operation(depth - 1)).collect(),
                otherwise: (0..self.rng.up_to(3)).map(|_| self.operation(depth - 1)).collect(),
            }),
        }
    }

    pub(super) fn command(&mut self) -> Command {
        match self.rng.up_to(29) {
            0..=2 => Command::Begin {
                session: self.session(),
                time_to_live: Duration::from_nanos(self.rng.next_u64()),
            },
            3 if self.one_in(2) => Command::Expire { session: self.session() },
            3 => Command::End { session: self.session() },
            4 => Command::Compact(self.version()),
            _ => Command::Operate(self.operation(2)),
        }
    }

    /// A command on entries, sessions or partitions.
    pub(super) fn any_command(&mut self) -> Command {
        if self.one_in(2) { self.command() } else { Command::Partitions(self.about_partitions()) }
    }

    fn group(&mut self) -> GroupName {
        GroupName::new(self.rng.one_of(&["g", "group-2", "h_3.x"])).unwrap()
    }

    fn node(&mut self) -> NodeId {
        NodeId::new(self.rng.one_of(&["n1", "n2", "a:1"])).unwrap()
    }

    fn small(&mut self) -> u32 {
        u32::try_from(self.rng.up_to(300)).unwrap()
    }

    fn about_partitions(&mut self) -> partitions::Command {
        use partitions::Command;
        match self.rng.up_to(7) {
            0 => {
                let time_to_live = Duration::from_nanos(self.rng.next_u64());
                Command::Join { session: self.session(), time_to_live }
            }
            1 => Command::Leave { session: self.session() },
            2 => {
                let ranges = (0..self.rng.up_to(2)).map(|_| self.ranges()).collect();
                Command::Release { session: self.session(), up_to: self.rng.up_to(1000), ranges }
            }
            3 => Command::Create { group: self.group(), count: self.small() },
            4 => Command::Drop { group: self.group() },
            5 => Command::Drain { node: self.node() },
            6 => Command::Undrain { node: self.node() },
            _ => Command::Move { group: self.group(), index: self.small(), node: self.node() },
        }
    }

    fn ranges(&mut self) -> Ranges {
        let mut last = 0;
        let mut range = || {
            let start = last + self.small();
            last = start + 1 + self.small();
            start..last
        };
        let ranges = (0..3).map(|_| range()).collect();
        Ranges { group: self.group(), ranges }
    }
}
