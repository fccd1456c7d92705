//! The watchers of one stream, and the catching up of those that have fallen behind.

use std::collections::{BTreeMap, VecDeque};
use std::iter;
use std::num::NonZeroUsize;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use primacy_kv::command::{Change, Happened, Keys, Refusal, Version};
use tokio_stream::Stream;
use tonic::Status;

use super::budget::Charge;
use super::client::Client;
use super::errors::Known;
use super::hub::{Hub, Line, Wish};

/// The most changes that a watcher receives at a time while it catches up.
const CATCH_UP_MAX: NonZeroUsize = NonZeroUsize::new(1000).expect("not zero");

/// The most bytes of entries that it receives at a time, unless one version has more.
const CATCH_UP_BYTES_MAX: usize = 1 << 20;

/// The turns of watchers that are behind, before other streams get theirs.
const TURNS_MAX: usize = 32;

/// The bytes charged for a watcher in addition to its key, which is stored twice.
const WATCHER_BYTES: usize = 512;

/// An event to send.
#[derive(Debug)]
pub(super) enum Told {
    /// Changes, in order; they are all changes for the watcher up to `version`.
    Changes { watcher: i64, version: Version, changes: Vec<Change> },
    /// Changes for the watcher were compacted; the watcher has ended.
    Compacted { watcher: i64, compacted: Version },
    /// There was no leader for too long.
    Leaderless,
}

#[derive(Debug)]
struct Watcher {
    wish: Wish,
    /// The next version that it has not received; `None` if the hub sends it changes.
    behind: Option<Version>,
    _charge: Option<Charge>,
}

/// The watchers of one stream.
#[derive(Debug)]
pub(super) struct Watching {
    hub: Arc<Hub>,
    /// The client to which watchers are charged; `None` for the single watcher of a request that is charged itself.
    client: Option<Arc<Client>>,
    line: Arc<Line>,
    watchers: BTreeMap<i64, Watcher>,
    /// The watchers that are behind, in the order in which they get their turn.
    turns: VecDeque<i64>,
    /// The number for the next watcher without one.
    next: i64,
    anxious: Option<u64>,
}

impl Watching {
    /// The watchers of a client's stream.
    pub(super) fn new(hub: Arc<Hub>, client: &Arc<Client>) -> Self {
        Self::on_line(hub, Line::charged_to(client), Some(Arc::clone(client)))
    }

    /// The watcher of a request.
    pub(super) fn of_request(hub: Arc<Hub>) -> Self {
        Self::on_line(hub, Line::default(), None)
    }

    fn on_line(hub: Arc<Hub>, line: Line, client: Option<Arc<Client>>) -> Self {
        let (line, watchers, turns) = (Arc::new(line), BTreeMap::new(), VecDeque::new());
        Self { hub, client, line, watchers, turns, next: 0, anxious: None }
    }

    /// Requests a notice when there is no leader for too long.
    pub(super) fn warn(&mut self) {
        if self.anxious.is_none() {
            self.anxious = Some(self.hub.warn(&self.line));
        }
    }

    /// Begins a watcher from a version on, under `number`, or under a free number if it is 0; `None` if `number` is not
    /// free.
    ///
    /// # Errors
    /// [`Known::TOO_MANY_REQUESTS`] if its client holds too much already.
    pub(super) fn begin(&mut self, number: i64, wish: Wish, from: Version) -> Result<Option<i64>, Known> {
        let number = if number == 0 {
            while self.watchers.contains_key(&self.next) {
                self.next += 1;
            }
            self.next += 1;
            self.next - 1
        } else {
            number
        };
        if self.watchers.contains_key(&number) {
            return Ok(None);
        }
        let bytes = WATCHER_BYTES + 2 * bytes_of(&wish.keys);
        let charge = self.client.as_ref().map(|client| client.charge_request(bytes)).transpose()?;
        // A watcher that has missed nothing is added to the hub at once. Otherwise the first changes could be compacted
        // before its turn.
        let known = Version(from.0.saturating_sub(1));
        let is_behind = !self.hub.admit(&self.line, number, &wish, from, known);
        if is_behind {
            self.turns.push_back(number);
        }
        let behind = is_behind.then_some(from);
        self.watchers.insert(number, Watcher { wish, behind, _charge: charge });
        Ok(Some(number))
    }

    /// Ends a watcher; returns whether there was one of this number.
    pub(super) fn end(&mut self, number: i64) -> bool {
        let Some(watcher) = self.watchers.remove(&number) else { return false };
        match watcher.behind {
            None => self.hub.dismiss(&self.line, iter::once((number, &watcher.wish))),
            Some(_) => self.turns.retain(|&turn| turn != number),
        }
        // Earlier changes may still wait, even for a watcher that is behind.
        self.line.waiting().drop_those_of(number);
        true
    }

    pub(super) fn count(&self) -> usize {
        self.watchers.len()
    }

    /// Returns the next event to send.
    pub(super) fn poll_told(&mut self, context: &mut Context<'_>) -> Poll<Told> {
        let mut turns = 0;
        loop {
            let (batch, fallen) = {
                let mut waiting = self.line.waiting();
                waiting.wake_with(context.waker());
                if waiting.leaderless {
                    return Poll::Ready(Told::Leaderless);
                }
                (waiting.pop(), waiting.take_fallen())
            };
            for (number, from) in fallen {
                if let Some(watcher) = self.watchers.get_mut(&number) {
                    watcher.behind = Some(from);
                    self.turns.push_back(number);
                }
            }
            if let Some(batch) = batch {
                // Changes for a watcher that has ended are dropped.
                if self.watchers.contains_key(&batch.watcher) {
                    let (watcher, version) = (batch.watcher, batch.version);
                    return Poll::Ready(Told::Changes { watcher, version, changes: batch.changes });
                }
                continue;
            }
            if turns == TURNS_MAX && !self.turns.is_empty() {
                context.waker().wake_by_ref();
                return Poll::Pending;
            }
            turns += 1;
            let Some(number) = self.turns.pop_front() else { return Poll::Pending };
            if let Some(told) = self.catch_up(number) {
                return Poll::Ready(told);
            }
        }
    }

    /// Lets a watcher that is behind catch up; returns changes to send to it, if there are any.
    fn catch_up(&mut self, number: i64) -> Option<Told> {
        let watcher = self.watchers.get_mut(&number)?;
        let (from, wish) = (watcher.behind?, &watcher.wish);
        let found = match self.hub.backend.changes(&wish.keys, from, wish.previous, CATCH_UP_MAX) {
            Ok(found) => found,
            Err(refusal) => {
                self.watchers.remove(&number);
                return Some(Told::Compacted { watcher: number, compacted: compacted(refusal) });
            }
        };
        let (list, through) = cut(found.list, found.through);
        let changes: Vec<Change> = list.into_iter().filter(|change| wish.kinds.contain(change)).collect();
        let from = from.max(through.next());
        let is_complete = through >= found.version;
        // If it is no longer behind, the hub sends it further changes.
        if is_complete && self.hub.admit(&self.line, number, wish, from, through) {
            watcher.behind = None;
        } else {
            watcher.behind = Some(from);
            self.turns.push_back(number);
        }
        let version = found.version;
        (!changes.is_empty()).then_some(Told::Changes { watcher: number, version, changes })
    }

    /// Returns the version up to which all watchers have received everything, if they have received all changes up to
    /// now. It is at least the present version of the map, because the client may know of the latest write.
    pub(super) fn all_told(&self) -> Option<Version> {
        // In this order: changes that the hub distributes afterwards do not matter.
        let told = self.hub.hand_all_on();
        (self.turns.is_empty() && self.line.waiting().is_empty()).then_some(told)
    }
}

/// Returns the bytes of a watcher's keys.
fn bytes_of(keys: &Keys) -> usize {
    match keys {
        Keys::One(key) | Keys::From(key) => key.len(),
        Keys::Between(first, end) => first.len() + end.len(),
    }
}

/// Splits off as many whole versions as fit into the limit of bytes, at least one; and the version up to which these
/// are complete.
fn cut(mut list: Vec<Change>, through: Version) -> (Vec<Change>, Version) {
    let mut bytes = 0_usize;
    let mut cut_at = None;
    for (index, change) in list.iter().enumerate() {
        let (Happened::Written(entry) | Happened::Deleted(entry)) = &change.happened;
        let is_new = index > 0 && list[index - 1].version != change.version;
        if is_new && bytes > CATCH_UP_BYTES_MAX {
            cut_at = Some(index);
            break;
        }
        bytes += entry.key().len() + entry.value().len();
        bytes += change.previous.as_ref().map_or(0, |entry| entry.value().len());
    }
    match cut_at {
        None => (list, through),
        Some(index) => {
            list.truncate(index);
            let last = list.last().map_or(through, |change| change.version);
            (list, last)
        }
    }
}

/// The first version that can still be read.
fn compacted(refusal: Refusal) -> Version {
    match refusal {
        Refusal::Compacted { compacted } => compacted,
        Refusal::Future { version } => version,
        Refusal::SessionNotFound
        | Refusal::SessionExists
        | Refusal::SessionFull
        | Refusal::KeyNotFound
        | Refusal::NoSpace
        | Refusal::EmptyKey
        | Refusal::DuplicateKey
        | Refusal::TooManyOperations
        | Refusal::RequestTooLarge
        | Refusal::TooManyEntries
        | Refusal::AnswerTooLarge
        | Refusal::TimeToLiveTooLong
        | Refusal::TooManyRequests
        | Refusal::TooManyClients
        | Refusal::Partitions(_)
        | Refusal::FormerLife => unreachable!("to look at changes is refused for no other reason"),
    }
}

/// The answers of a stream other than a watch, until there was no leader for too long, if its client requires one.
pub(super) struct WhileLed<A> {
    answers: Pin<Box<dyn Stream<Item = Result<A, Status>> + Send>>,
    leaderless: Option<Watching>,
}

impl<A> WhileLed<A> {
    pub(super) fn new(
        hub: &Arc<Hub>,
        answers: impl Stream<Item = Result<A, Status>> + Send + 'static,
        wants_leader: bool,
    ) -> Self {
        let leaderless = wants_leader.then(|| {
            let mut watching = Watching::of_request(Arc::clone(hub));
            watching.warn();
            watching
        });
        Self { answers: Box::pin(answers), leaderless }
    }
}

impl<A> Stream for WhileLed<A> {
    type Item = Result<A, Status>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if let Some(watching) = &mut self.leaderless
            && let Poll::Ready(Told::Leaderless) = watching.poll_told(context)
        {
            return Poll::Ready(Some(Err(Known::NO_LEADER.into())));
        }
        self.answers.as_mut().poll_next(context)
    }
}

impl Drop for Watching {
    fn drop(&mut self) {
        let live = self.watchers.iter().filter(|(_, watcher)| watcher.behind.is_none());
        self.hub.dismiss(&self.line, live.map(|(&number, watcher)| (number, &watcher.wish)));
        if let Some(anxious) = self.anxious {
            self.hub.calm(anxious);
        }
    }
}

#[cfg(test)]
mod tests {
    use primacy_kv::command::{Command, Operation, Previous, Replace, Write};
    use primacy_kv::state::State;

    use super::super::backend::Backend;
    use super::super::hub::Kinds;
    use super::super::in_memory::InMemory;
    use super::*;

    fn write(map: &InMemory, key: &str) -> Version {
        let write = Write {
            key: key.as_bytes().into(),
            value: Replace::With((*b"v").into()),
            session: Replace::With(None),
            previous: Previous::Unwanted,
        };
        map.write(Command::Operate(Operation::Write(write))).version
    }

    fn wish(key: &str) -> Wish {
        let kinds = Kinds { writes: true, deletions: true };
        Wish { keys: Keys::One(key.as_bytes().into()), previous: Previous::Unwanted, kinds }
    }

    fn watching(map: &Arc<InMemory>) -> Watching {
        let backend: Arc<InMemory> = Arc::clone(map);
        Watching::of_request(Arc::new(Hub::new(backend)))
    }

    /// Returns the next changes if they are ready at once: their watcher and their number; `None` for any other event.
    fn told(watching: &mut Watching) -> Option<(i64, usize)> {
        match watching.poll_told(&mut Context::from_waker(std::task::Waker::noop())) {
            Poll::Ready(Told::Changes { watcher, changes, .. }) => Some((watcher, changes.len())),
            Poll::Ready(Told::Compacted { .. } | Told::Leaderless) | Poll::Pending => None,
        }
    }

    fn hand_on(watching: &Watching, map: &InMemory) {
        while watching.hub.hand_on() < map.now() {}
    }

    /// As many versions and changes at a time as the table of limits in `docs/guide/etcd-api.md` states, so that other
    /// watchers get their turn.
    #[test]
    fn a_long_history_is_looked_through_in_parts() {
        let map = Arc::new(InMemory::new(State::new(), 0));
        let first = write(&map, "a");
        for _ in 0..5000 {
            write(&map, "a");
        }
        let mut watching = watching(&map);
        assert_eq!(watching.begin(7, wish("a"), first), Ok(Some(7)));
        assert_eq!(told(&mut watching), Some((7, 1000)));
        let other = Keys::One((*b"b").into());
        let found = map.changes(&other, first, Previous::Unwanted, CATCH_UP_MAX).unwrap();
        assert_eq!((found.list.len(), found.through), (0, Version(first.0 + 4096)));
    }

    #[test]
    fn who_gets_the_number_of_one_that_was_behind_is_not_told_what_waited_for_it() {
        let map = Arc::new(InMemory::new(State::new(), 0));
        let mut watching = watching(&map);
        assert_eq!(watching.begin(7, wish("a"), map.now().next()), Ok(Some(7)));
        assert_eq!(told(&mut watching), None, "nothing has happened; from here on the hub tells it");
        // More than its stream has room for.
        for _ in 0..5000 {
            write(&map, "a");
        }
        hand_on(&watching, &map);
        assert_eq!(
            told(&mut watching),
            Some((7, 1)),
            "it learns that it is behind, and most is yet to be told"
        );
        assert!(watching.end(7));
        assert_eq!(watching.begin(7, wish("b"), map.now().next()), Ok(Some(7)));
        assert_eq!(told(&mut watching), None);
        write(&map, "b");
        hand_on(&watching, &map);
        assert_eq!((told(&mut watching), told(&mut watching)), (Some((7, 1)), None));
    }

    /// A node may apply both at once, before the hub learns of either.
    #[test]
    fn who_keeps_up_is_not_told_that_what_it_has_not_heard_of_was_compacted() {
        let map = Arc::new(InMemory::new(State::new(), 0));
        let mut watching = watching(&map);
        watching.begin(1, wish("a"), map.now().next()).unwrap();
        assert_eq!(told(&mut watching), None);
        write(&map, "a");
        let version = write(&map, "a");
        map.write(Command::Compact(version));
        hand_on(&watching, &map);
        assert_eq!([told(&mut watching), told(&mut watching)], [Some((1, 1)), Some((1, 1))]);
        // Nor does a watcher that has not had its turn yet.
        watching.begin(3, wish("a"), map.now().next()).unwrap();
        let version = write(&map, "a");
        map.write(Command::Compact(write(&map, "b")));
        hand_on(&watching, &map);
        assert_eq!([told(&mut watching), told(&mut watching)], [Some((1, 1)), Some((3, 1))]);
        // A watcher that begins only now learns that it was compacted.
        watching.begin(2, wish("a"), Version(version.0 - 1)).unwrap();
        let next = watching.poll_told(&mut Context::from_waker(std::task::Waker::noop()));
        assert!(matches!(next, Poll::Ready(Told::Compacted { watcher: 2, .. })), "{next:?}");
    }

    #[test]
    fn a_stream_that_ends_takes_all_its_watches_with_it_and_no_others() {
        let map = Arc::new(InMemory::new(State::new(), 0));
        let hub = watching(&map).hub.clone();
        let mut streams = [0, 1].map(|_| Watching::of_request(Arc::clone(&hub)));
        for stream in &mut streams {
            for key in ["a", "a", "b"] {
                stream.begin(0, wish(key), map.now().next()).unwrap();
            }
            assert_eq!(told(stream), None);
        }
        let [ended, mut other] = streams;
        drop(ended);
        assert!(other.end(0));
        write(&map, "a");
        write(&map, "b");
        hand_on(&other, &map);
        assert_eq!([told(&mut other), told(&mut other)], [Some((1, 1)), Some((2, 1))]);
        assert_eq!(told(&mut other), None);
        drop(other);
        assert!(hub.is_deserted(), "nobody watches any more");
    }
}
