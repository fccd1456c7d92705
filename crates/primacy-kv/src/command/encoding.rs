//! Requests as bytes, and back.
//!
//! The first byte is the format. The encoding is canonical: a decoded request is encoded as the same bytes again.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::num::NonZeroU64;

use primacy_core::id::Identity;

use crate::command::{
    Bounds, Bytes, Command, Compared, Comparison, Delete, Direction, Keys, Limits, Operation, Order,
    Previous, Read, Relation, Replace, Request, Secret, SessionId, SortKey, Transaction, Version, Wanted,
    Write,
};
use crate::encoding::{
    DecodeError, NESTING_MAX, Reader, duration, identity, node, push_bytes, push_identity, push_number,
    session, signed, unsigned,
};
use crate::partitions::encoding as partitions;

/// The format of requests that this program writes, and the only one that it reads. It must change when requests can
/// express more, and when the effect of a request changes, because all nodes must apply it alike.
pub const FORMAT: u8 = 1;

/// The initial capacity for a request in addition to its keys and values, in bytes.
const ROOM: usize = 64;

mod tag {
    pub(super) const OPERATE: u8 = 1;
    pub(super) const COMPACT: u8 = 2;
    pub(super) const BEGIN: u8 = 3;
    pub(super) const END: u8 = 4;
    pub(super) const FORGET: u8 = 5;
    pub(super) const LIMIT: u8 = 6;
    pub(super) const EXPIRE: u8 = 7;
    pub(super) const PARTITIONS: u8 = 8;
    pub(super) const SHARE: u8 = 9;

    pub(super) const READ: u8 = 1;
    pub(super) const WRITE: u8 = 2;
    pub(super) const DELETE: u8 = 3;
    pub(super) const TRANSACTION: u8 = 4;

    pub(super) const ONE: u8 = 1;
    pub(super) const BETWEEN: u8 = 2;
    pub(super) const FROM: u8 = 3;

    pub(super) const WRITES: u8 = 1;
    pub(super) const MADE_AT: u8 = 2;
    pub(super) const CHANGED_AT: u8 = 3;
    pub(super) const SESSION: u8 = 4;
    pub(super) const VALUE: u8 = 5;
}

/// The optional parts of a read; a missing part has the value that [`Read::of`] gives it.
mod read_has {
    pub(super) const AT: u8 = 1;
    pub(super) const LIMIT: u8 = 2;
    pub(super) const MADE: u8 = 4;
    pub(super) const CHANGED: u8 = 8;
    pub(super) const ALL: u8 = 15;
}

/// The optional parts of a write.
mod write_has {
    pub(super) const VALUE: u8 = 1;
    pub(super) const SESSION: u8 = 2;
    pub(super) const PREVIOUS: u8 = 4;
    pub(super) const ALL: u8 = 7;
}

const SORT_KEYS: [SortKey; 5] =
    [SortKey::Key, SortKey::Writes, SortKey::MadeAt, SortKey::ChangedAt, SortKey::Value];
const DIRECTIONS: [Direction; 2] = [Direction::Ascending, Direction::Descending];
const WANTED: [Wanted; 3] = [Wanted::Entries, Wanted::Keys, Wanted::Count];
const PREVIOUS: [Previous; 2] = [Previous::Unwanted, Previous::Wanted];
const RELATIONS: [Relation; 4] = [Relation::Equal, Relation::NotEqual, Relation::Greater, Relation::Less];

impl Request {
    /// The request as bytes.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut to = Vec::with_capacity(ROOM + self.command.contents());
        to.push(FORMAT);
        push_identity(&mut to, &self.client);
        push_number(&mut to, self.sequence);
        push_number(&mut to, self.done_below);
        push_command(&mut to, &self.command);
        to
    }

    /// Checks that this program knows the format of an encoded request.
    ///
    /// # Errors
    /// [`DecodeError::Format`], if it does not.
    pub fn check_format(bytes: &[u8]) -> Result<(), DecodeError> {
        match bytes.first() {
            Some(&FORMAT) | None => Ok(()),
            Some(&format) => Err(DecodeError::Format(u64::from(format))),
        }
    }

    /// The sender of this request, and its number; `None` if they cannot be decoded. Every later format keeps both in
    /// the same place, so that an unreadable request can be refused.
    #[must_use]
    pub fn sender(bytes: &[u8]) -> Option<(Identity, u64)> {
        let mut from = Reader::new(bytes);
        from.byte().ok()?;
        Some((identity(&mut from).ok()?, from.number().ok()?))
    }

    /// The request that these bytes encode.
    ///
    /// # Errors
    /// [`DecodeError`] if they do not encode one.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        Self::check_format(bytes)?;
        let mut from = Reader::new(bytes);
        from.byte()?;
        let client = identity(&mut from)?;
        let sequence = from.number()?;
        let done_below = from.number()?;
        let command = command(&mut from)?;
        from.end()?;
        Ok(Self { client, sequence, done_below, command })
    }
}

impl Command {
    /// The length of the key and the value, if the command is a single write, as most are.
    fn contents(&self) -> usize {
        match self {
            Self::Operate(Operation::Write(Write { key, value: Replace::With(value), .. })) => {
                key.len() + value.len()
            }
            Self::Operate(_)
            | Self::Compact(_)
            | Self::Begin { .. }
            | Self::End { .. }
            | Self::Expire { .. }
            | Self::Forget { .. }
            | Self::Limit(_)
            | Self::Share(_)
            | Self::Partitions(_) => 0,
        }
    }
}

fn push_command(to: &mut Vec<u8>, command: &Command) {
    match command {
        Command::Operate(operation) => {
            to.push(tag::OPERATE);
            push_operation(to, operation);
        }
        Command::Compact(version) => {
            to.push(tag::COMPACT);
            push_number(to, version.0);
        }
        Command::Begin { session, time_to_live } => {
            to.push(tag::BEGIN);
            push_number(to, unsigned(session.get()));
            push_number(to, time_to_live.as_nanos());
        }
        Command::End { session } => {
            to.push(tag::END);
            push_number(to, unsigned(session.get()));
        }
        Command::Expire { session } => {
            to.push(tag::EXPIRE);
            push_number(to, unsigned(session.get()));
        }
        Command::Partitions(command) => {
            to.push(tag::PARTITIONS);
            partitions::push_command(to, command);
        }
        Command::Forget { node } => {
            to.push(tag::FORGET);
            push_bytes(to, node.as_str().as_bytes());
        }
        Command::Limit(limits) => {
            to.push(tag::LIMIT);
            push_limits(to, *limits);
        }
        Command::Share(Secret(bytes)) => {
            to.push(tag::SHARE);
            to.extend(bytes);
        }
    }
}

fn command(from: &mut Reader<'_>) -> Result<Command, DecodeError> {
    Ok(match from.byte()? {
        tag::OPERATE => Command::Operate(operation(from, 0)?),
        tag::COMPACT => Command::Compact(Version(from.number()?)),
        tag::BEGIN => Command::Begin { session: session(from)?, time_to_live: duration(from)? },
        tag::END => Command::End { session: session(from)? },
        tag::EXPIRE => Command::Expire { session: session(from)? },
        tag::PARTITIONS => Command::Partitions(partitions::command(from)?),
        tag::FORGET => Command::Forget { node: node(from)? },
        tag::LIMIT => Command::Limit(limits(from)?),
        tag::SHARE => {
            let mut secret = Secret([0; 32]);
            let length = secret.0.len();
            secret.0.copy_from_slice(from.exactly(length)?);
            Command::Share(secret)
        }
        _ => return Err(DecodeError::Kind("a command")),
    })
}

pub(crate) fn push_limits(to: &mut Vec<u8>, limits: Limits) {
    for number in [limits.quota, limits.history_bytes, limits.history_changes] {
        push_number(to, number);
    }
}

pub(crate) fn limits(from: &mut Reader<'_>) -> Result<Limits, DecodeError> {
    Ok(Limits { quota: from.number()?, history_bytes: from.number()?, history_changes: from.number()? })
}

fn push_operation(to: &mut Vec<u8>, operation: &Operation) {
    match operation {
        Operation::Read(read) => {
            to.push(tag::READ);
            push_read(to, read);
        }
        Operation::Write(write) => {
            to.push(tag::WRITE);
            push_write(to, write);
        }
        Operation::Delete(delete) => {
            to.push(tag::DELETE);
            push_choice(to, &PREVIOUS, delete.previous);
            push_keys(to, &delete.keys);
        }
        Operation::Transaction(transaction) => {
            to.push(tag::TRANSACTION);
            push_list(to, &transaction.comparisons, push_comparison);
            push_list(to, &transaction.then, push_operation);
            push_list(to, &transaction.otherwise, push_operation);
        }
    }
}

fn operation(from: &mut Reader<'_>, depth: usize) -> Result<Operation, DecodeError> {
    Ok(match from.byte()? {
        tag::READ => Operation::Read(Box::new(read(from)?)),
        tag::WRITE => Operation::Write(write(from)?),
        tag::DELETE => {
            let previous = choice(from, &PREVIOUS, "what is returned")?;
            Operation::Delete(Delete { keys: keys(from)?, previous })
        }
        tag::TRANSACTION => {
            if depth >= NESTING_MAX {
                return Err(DecodeError::Nesting);
            }
            Operation::Transaction(Transaction {
                comparisons: from.list(comparison)?,
                then: from.list(|from| operation(from, depth + 1))?,
                otherwise: from.list(|from| operation(from, depth + 1))?,
            })
        }
        _ => return Err(DecodeError::Kind("an operation")),
    })
}

fn push_list<T>(to: &mut Vec<u8>, list: &[T], one: impl Fn(&mut Vec<u8>, &T)) {
    push_number(to, u64::try_from(list.len()).expect("a length fits"));
    for element in list {
        one(to, element);
    }
}

/// Appends the index of `chosen` among the choices.
fn push_choice<T: Copy + PartialEq>(to: &mut Vec<u8>, choices: &[T], chosen: T) {
    let place = choices.iter().position(|&choice| choice == chosen).expect("one of them");
    to.push(u8::try_from(place).expect("there are few"));
}

fn choice<T: Copy>(from: &mut Reader<'_>, choices: &[T], what: &'static str) -> Result<T, DecodeError> {
    choices.get(usize::from(from.byte()?)).copied().ok_or(DecodeError::Kind(what))
}

fn push_keys(to: &mut Vec<u8>, keys: &Keys) {
    match keys {
        Keys::One(key) => {
            to.push(tag::ONE);
            push_bytes(to, key);
        }
        Keys::Between(key, end) => {
            to.push(tag::BETWEEN);
            push_bytes(to, key);
            push_bytes(to, end);
        }
        Keys::From(key) => {
            to.push(tag::FROM);
            push_bytes(to, key);
        }
    }
}

fn keys(from: &mut Reader<'_>) -> Result<Keys, DecodeError> {
    Ok(match from.byte()? {
        tag::ONE => Keys::One(owned(from)?),
        tag::BETWEEN => Keys::Between(owned(from)?, owned(from)?),
        tag::FROM => Keys::From(owned(from)?),
        _ => return Err(DecodeError::Kind("a set of keys")),
    })
}

fn owned(from: &mut Reader<'_>) -> Result<Bytes, DecodeError> {
    from.bytes().map(Bytes::from)
}

fn push_read(to: &mut Vec<u8>, read: &Read) {
    let made = (read.made != Bounds::default()).then_some(read.made);
    let changed = (read.changed != Bounds::default()).then_some(read.changed);
    let mut has = 0;
    has |= if read.at.is_some() { read_has::AT } else { 0 };
    has |= if read.limit.is_some() { read_has::LIMIT } else { 0 };
    has |= if made.is_some() { read_has::MADE } else { 0 };
    has |= if changed.is_some() { read_has::CHANGED } else { 0 };
    to.push(has);
    push_choice(to, &SORT_KEYS, read.order.key);
    push_choice(to, &DIRECTIONS, read.order.direction);
    push_choice(to, &WANTED, read.wanted);
    push_keys(to, &read.keys);
    if let Some(at) = read.at {
        push_number(to, at.0);
    }
    if let Some(limit) = read.limit {
        push_number(to, limit.get());
    }
    for bounds in [made, changed].into_iter().flatten() {
        push_number(to, bounds.from.0);
        push_number(to, bounds.to.0);
    }
}

fn read(from: &mut Reader<'_>) -> Result<Read, DecodeError> {
    let has = flags(from, read_has::ALL)?;
    let order = Order {
        key: choice(from, &SORT_KEYS, "an order")?,
        direction: choice(from, &DIRECTIONS, "a direction")?,
    };
    let wanted = choice(from, &WANTED, "what is wanted")?;
    let mut read = Read { order, wanted, ..Read::of(keys(from)?) };
    if has & read_has::AT != 0 {
        read.at = Some(Version(from.number()?));
    }
    if has & read_has::LIMIT != 0 {
        read.limit = Some(NonZeroU64::new(from.number()?).ok_or(DecodeError::Value("a limit"))?);
    }
    if has & read_has::MADE != 0 {
        read.made = bounds(from)?;
    }
    if has & read_has::CHANGED != 0 {
        read.changed = bounds(from)?;
    }
    Ok(read)
}

fn flags(from: &mut Reader<'_>, all: u8) -> Result<u8, DecodeError> {
    let flags = from.byte()?;
    if flags & !all == 0 { Ok(flags) } else { Err(DecodeError::Kind("a part of an operation")) }
}

/// Reads bounds. The default bounds are never encoded, and so refused.
fn bounds(from: &mut Reader<'_>) -> Result<Bounds, DecodeError> {
    let bounds = Bounds { from: Version(from.number()?), to: Version(from.number()?) };
    if bounds == Bounds::default() { Err(DecodeError::Value("bounds")) } else { Ok(bounds) }
}

fn push_write(to: &mut Vec<u8>, write: &Write) {
    let mut has = 0;
    has |= if matches!(write.value, Replace::With(_)) { write_has::VALUE } else { 0 };
    has |= if matches!(write.session, Replace::With(_)) { write_has::SESSION } else { 0 };
    has |= if write.previous == Previous::Wanted { write_has::PREVIOUS } else { 0 };
    to.push(has);
    push_bytes(to, &write.key);
    if let Replace::With(value) = &write.value {
        push_bytes(to, value);
    }
    if let Replace::With(session) = write.session {
        push_number(to, unsigned(session.map_or(0, SessionId::get)));
    }
}

fn write(from: &mut Reader<'_>) -> Result<Write, DecodeError> {
    let has = flags(from, write_has::ALL)?;
    let key = owned(from)?;
    let value = if has & write_has::VALUE != 0 { Replace::With(owned(from)?) } else { Replace::Keep };
    let session = if has & write_has::SESSION != 0 {
        Replace::With(SessionId::new(signed(from.number()?)))
    } else {
        Replace::Keep
    };
    let previous = if has & write_has::PREVIOUS != 0 { Previous::Wanted } else { Previous::Unwanted };
    Ok(Write { key, value, session, previous })
}

fn push_comparison(to: &mut Vec<u8>, comparison: &Comparison) {
    push_choice(to, &RELATIONS, comparison.relation);
    push_keys(to, &comparison.keys);
    let (tag, number) = match &comparison.compared {
        Compared::Writes(number) => (tag::WRITES, number),
        Compared::MadeAt(number) => (tag::MADE_AT, number),
        Compared::ChangedAt(number) => (tag::CHANGED_AT, number),
        Compared::Session(number) => (tag::SESSION, number),
        Compared::Value(value) => {
            to.push(tag::VALUE);
            push_bytes(to, value);
            return;
        }
    };
    to.push(tag);
    push_number(to, unsigned(*number));
}

fn comparison(from: &mut Reader<'_>) -> Result<Comparison, DecodeError> {
    let relation = choice(from, &RELATIONS, "a relation")?;
    let keys = keys(from)?;
    let tag = from.byte()?;
    let compared = match tag {
        tag::VALUE => Compared::Value(owned(from)?),
        tag::WRITES => Compared::Writes(signed(from.number()?)),
        tag::MADE_AT => Compared::MadeAt(signed(from.number()?)),
        tag::CHANGED_AT => Compared::ChangedAt(signed(from.number()?)),
        tag::SESSION => Compared::Session(signed(from.number()?)),
        _ => return Err(DecodeError::Kind("what is compared")),
    };
    Ok(Comparison { keys, relation, compared })
}

#[cfg(test)]
mod tests;
