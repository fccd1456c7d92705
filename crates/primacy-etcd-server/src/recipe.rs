//! The common part of elections and locks on the server: a queue of keys with a common prefix. Each key belongs to a
//! session, and the first one holds the election or lock. The keys are those of etcd's client-side recipes, so that
//! both kinds of clients compete in one queue.

use std::sync::Arc;

use primacy_kv::command::{
    Answer, Bounds, Bytes, Command, Compared, Comparison, Delete, Direction, Found, Keys, Operation, Order,
    Previous, Read, Relation, Replace, SessionId, SortKey, Transaction, Version, Write,
};
use primacy_kv::entry::Entry;
use tokio::sync::oneshot;

use super::backend::{Backend, Freshness};
use super::convert::signed;
use super::errors::Known;
use super::hub::{Hub, Kinds, Wish, after_all_with};
use super::services::Services;
use super::watching::{Told, Watching};
use super::{kv, lease, outcome};

/// The time to live of a session that the server begins for a client, in seconds.
const SESSION_SECONDS: i64 = 60;

/// The session with this number, or a new one if it is 0.
///
/// # Errors
/// The reason why none was begun.
pub(super) async fn session(backend: &dyn Backend, number: i64) -> Result<SessionId, Known> {
    match SessionId::new(number) {
        Some(session) => Ok(session),
        None => Ok(lease::begin(backend, None, SESSION_SECONDS).await?.1),
    }
}

/// Returns the common prefix of all keys of a queue.
pub(super) fn beginning(name: &[u8]) -> Vec<u8> {
    [name, b"/"].concat()
}

/// Returns the key of a session in a queue.
pub(super) fn key_of(beginning: &[u8], session: SessionId) -> Bytes {
    let number = session.get();
    let sign = if number < 0 { "-" } else { "" };
    [beginning, format!("{sign}{:x}", number.unsigned_abs()).as_bytes()].concat().into()
}

/// All keys with this prefix.
pub(super) fn keys_below(beginning: &[u8]) -> Keys {
    match after_all_with(beginning) {
        Some(end) => Keys::Between(beginning.into(), end.into()),
        None => Keys::From(beginning.into()),
    }
}

/// Reads the oldest entry of a queue.
pub(super) fn first_of(beginning: &[u8]) -> Read {
    let order = Order { key: SortKey::MadeAt, direction: Direction::Ascending };
    let limit = std::num::NonZeroU64::new(1);
    Read { order, limit, ..Read::of(keys_below(beginning)) }
}

/// Compares that this key was created at this version; with 0, that it does not exist.
pub(super) fn made_at(key: &Bytes, version: i64) -> Comparison {
    Comparison {
        keys: Keys::One(Bytes::clone(key)),
        relation: Relation::Equal,
        compared: Compared::MadeAt(version),
    }
}

/// Writes a key that belongs to a session.
pub(super) fn write(key: &Bytes, value: Bytes, session: SessionId) -> Operation {
    Operation::Write(Write {
        key: Bytes::clone(key),
        value: Replace::With(value),
        session: Replace::With(Some(session)),
        previous: Previous::Unwanted,
    })
}

/// Deletes a key if it was created at this version.
pub(super) fn take_out(key: &Bytes, version: i64) -> Operation {
    let delete = Delete { keys: Keys::One(Bytes::clone(key)), previous: Previous::Unwanted };
    Operation::Transaction(Transaction {
        comparisons: vec![made_at(key, version)],
        then: vec![Operation::Delete(delete)],
        otherwise: Vec::new(),
    })
}

/// Applies a transaction that the server has created; returns the version after it, whether its comparisons held, and
/// the answers.
///
/// # Errors
/// The reason why it was not done, or may not have been.
pub(super) async fn transact(
    backend: &dyn Backend,
    transaction: Transaction,
) -> Result<(Version, bool, Vec<Answer>), Known> {
    decided(outcome::propose(backend, Command::Operate(Operation::Transaction(transaction))).await)
}

fn decided(done: Result<(Version, Answer), Known>) -> Result<(Version, bool, Vec<Answer>), Known> {
    match done? {
        (version, Answer::Decided { held, answers }) => Ok((version, held, answers)),
        (_, answer) => unreachable!("a transaction is answered as one, and not with {answer:?}"),
    }
}

/// The outcome of joining a queue.
pub(super) struct Stood {
    pub(super) version: Version,
    pub(super) answers: Vec<Answer>,
    /// The entry, if this call has created it.
    pub(super) made: Option<Placed>,
}

/// Applies a transaction that creates this key if it does not exist. If the client disconnects meanwhile, even before
/// there is a leader, the new entry is removed again; unless the transaction is applied so late that its request has
/// timed out.
///
/// # Errors
/// The reason why it was not done, or may not have been.
pub(super) async fn stand(
    services: &Services,
    key: &Bytes,
    transaction: Transaction,
) -> Result<Stood, Known> {
    let (tell, told) = oneshot::channel();
    let operation = Operation::Transaction(transaction);
    let turn = kv::turn(services, &operation).await;
    let (hub, key) = (Arc::clone(&services.hub), Bytes::clone(key));
    tokio::spawn(async move {
        let done = decided(outcome::propose(&*hub.backend, Command::Operate(operation)).await);
        drop(turn);
        let stood = done.map(|(version, held, answers)| {
            let made = held.then(|| Placed::new(&hub, &key, version));
            Stood { version, answers, made }
        });
        // If the client is gone, the result is dropped here, which removes the entry.
        drop(tell.send(stood));
    });
    told.await.unwrap_or(Err(Known::STOPPED))
}

/// Reads with the newest freshness.
///
/// # Errors
/// The reason why it could not be read.
pub(super) async fn find(services: &Services, read: Read) -> Result<Found, Known> {
    match services.observe(Operation::Read(Box::new(read)), Freshness::Newest).await? {
        (_, Answer::Found(found)) => Ok(found),
        (_, answer) => unreachable!("a read is answered with what was found, and not with {answer:?}"),
    }
}

/// Waits until the queue has no key that was created before `version`, and returns the version of the map at which that was
/// so.
///
/// # Errors
/// The reason why it could not be read.
pub(super) async fn wait_for_those_before(
    services: &Services,
    beginning: &[u8],
    version: i64,
) -> Result<Version, Known> {
    let before = Version(u64::try_from(version - 1).unwrap_or(0));
    loop {
        let order = Order { key: SortKey::MadeAt, direction: Direction::Descending };
        let made = Bounds { from: Version(0), to: before };
        let limit = std::num::NonZeroU64::new(1);
        let last = Read { order, made, limit, ..Read::of(keys_below(beginning)) };
        let found = find(services, last).await?;
        match found.entries.first() {
            None => return Ok(found.version),
            // The last key before: so each change wakes one waiting client, and not all of them.
            Some(entry) => gone(&services.hub, entry, found.version).await,
        }
    }
}

/// Waits until an entry that existed at `seen_at` is deleted, or may have been.
async fn gone(hub: &Arc<Hub>, entry: &Entry, seen_at: Version) {
    let mut watching = Watching::of_request(Arc::clone(hub));
    let wish = Wish {
        keys: Keys::One(entry.key().into()),
        previous: Previous::Unwanted,
        kinds: Kinds { writes: false, deletions: true },
    };
    watching.begin(0, wish, seen_at.next()).expect("it is not charged");
    match std::future::poll_fn(|context| watching.poll_told(context)).await {
        Told::Changes { .. } | Told::Compacted { .. } | Told::Leaderless => {}
    }
}

/// An entry in a queue. Unless it is kept, dropping this removes the entry: so a client that stops waiting leaves nothing
/// behind.
pub(super) struct Placed {
    backend: Arc<dyn Backend>,
    key: Bytes,
    made_at: i64,
    kept: bool,
}

impl Placed {
    pub(super) fn new(hub: &Hub, key: &Bytes, made_at: Version) -> Self {
        let made_at = signed(made_at.0);
        Self { backend: Arc::clone(&hub.backend), key: Bytes::clone(key), made_at, kept: false }
    }

    /// Returns whether the entry still exists.
    ///
    /// # Errors
    /// The reason why it could not be read.
    pub(super) async fn is_there(&self, services: &Services) -> Result<bool, Known> {
        let read = Read::of(Keys::One(Bytes::clone(&self.key)));
        let found = find(services, read).await?;
        Ok(found.entries.iter().any(|entry| signed(entry.made_at().0) == self.made_at))
    }

    pub(super) fn keep(mut self) {
        self.kept = true;
    }
}

impl Drop for Placed {
    fn drop(&mut self) {
        if self.kept {
            return;
        }
        let take_out = Command::Operate(take_out(&self.key, self.made_at));
        let backend = Arc::clone(&self.backend);
        tokio::spawn(async move {
            // If this fails, the entry goes with its session, at the latest when that expires.
            let _ = backend.propose(take_out).await;
        });
    }
}

/// The entry that a transaction has read, if the answer has one.
pub(super) fn made_in(answer: Option<&Answer>) -> Option<&Entry> {
    match answer {
        Some(Answer::Found(found)) => found.entries.first(),
        Some(
            Answer::Written { .. }
            | Answer::Deleted { .. }
            | Answer::Decided { .. }
            | Answer::Ended { .. }
            | Answer::Done,
        )
        | None => None,
    }
}

#[cfg(test)]
mod tests {
    use primacy_kv::state::State;

    use super::super::in_memory::InMemory;
    use super::*;

    /// The number of yields after which all ready tasks have run.
    const TURNS: usize = 100;

    #[tokio::test]
    async fn a_place_is_taken_out_that_is_made_only_after_its_client_has_hung_up() {
        let map = Arc::new(InMemory::new(State::new(), 0));
        let backend: Arc<InMemory> = Arc::clone(&map);
        let hub = Arc::new(Hub::new(backend));
        let services = Services::on_loopback(Arc::clone(&hub));
        let (_, session) = lease::begin(&*hub.backend, None, SESSION_SECONDS).await.unwrap();
        let beginning = beginning(b"q");
        let key = key_of(&beginning, session);
        let transaction = Transaction {
            comparisons: vec![made_at(&key, 0)],
            then: vec![write(&key, Bytes::from([]), session)],
            otherwise: Vec::new(),
        };
        let count = async || find(&services, first_of(&beginning)).await.unwrap().count;
        let before = map.now();
        {
            let mut standing = std::pin::pin!(stand(&services, &key, transaction.clone()));
            let asked = std::future::poll_fn(|context| {
                std::task::Poll::Ready(standing.as_mut().poll(context).is_pending())
            });
            assert!(asked.await, "it is not made yet");
        }
        for _ in 0..TURNS {
            tokio::task::yield_now().await;
        }
        assert_eq!(map.now().0, before.0 + 2, "it was made, and taken out");
        assert_eq!(count().await, 0);
        let stood = stand(&services, &key, transaction).await.unwrap();
        stood.made.expect("nobody else has made it").keep();
        for _ in 0..TURNS {
            tokio::task::yield_now().await;
        }
        assert_eq!(count().await, 1);
    }
}
