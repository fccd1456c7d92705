//! etcd's service `Watch`: one stream with many watchers.

use std::collections::{HashMap, VecDeque};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use primacy::stores::etcd::api;
use primacy_kv::command::ANSWER_BYTES_MAX;
use primacy_kv::command::{Change, Keys, Previous, Version};
use prost::Message;
use tokio::time::{Instant, Interval, MissedTickBehavior, Sleep, interval_at, sleep};
use tokio_stream::Stream;
use tonic::Status;

use super::convert;
use super::errors::Known;
use super::hub::{Kinds, Wish, bytes_of};
use super::limits::{MESSAGE_BYTES_MAX, WATCHERS_MAX};
use super::pass::Messages;
use super::services::Services;
use super::watching::{Told, Watching};

/// The number that stands for no watcher in the API.
const NO_WATCHER: i64 = -1;

/// The most answers to requests that wait in a stream before further requests are read.
const CONTROLS_MAX: usize = 16;

/// The interval at which a watcher that requested progress, and has received no event, gets it.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(600);

/// The time for a client to end a stream in which it was refused.
const REFUSED_STAYS: Duration = Duration::from_secs(3);

/// The options of one watcher.
#[derive(Clone, Copy, Debug)]
struct Manner {
    progress: bool,
    /// True if it received an event since the last round of progress.
    was_told: bool,
    fragment: bool,
}

/// Changes of one version, which are sent in fragments. Each fragment is made when the client takes it: otherwise each
/// stream would hold a copy of all.
struct Telling {
    watcher: i64,
    version: Version,
    /// An event that did not fit into the last fragment.
    next: Option<api::Event>,
    changes: std::vec::IntoIter<Change>,
}

/// Answers a stream. With a `refusal`, everything in it is refused.
pub(super) fn watch(
    services: Arc<Services>,
    wishes: Messages<api::WatchRequest>,
    wants_leader: bool,
    refusal: Option<Known>,
) -> Answers {
    Answers::new(services, Some(wishes), wants_leader, refusal)
}

/// The answers of a stream. Each is made when the client takes it, so they do not accumulate.
pub(super) struct Answers {
    services: Arc<Services>,
    /// The requests; `None` when no more will come.
    wishes: Option<Messages<api::WatchRequest>>,
    watching: Watching,
    refusal: Option<Known>,
    has_answered: bool,
    /// The remaining time of a refused stream.
    stays: Option<Pin<Box<Sleep>>>,
    /// The changes that are being sent in fragments.
    telling: Option<Telling>,
    /// The answers to be sent before any event.
    controls: VecDeque<api::WatchResponse>,
    /// The options of watchers, by number.
    manners: HashMap<i64, Manner>,
    progress_asked: bool,
    progress_rounds: Option<Pin<Box<Interval>>>,
    progress_due: Vec<i64>,
}

impl Stream for Answers {
    type Item = Result<api::WatchResponse, Status>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = &mut *self;
        loop {
            // Nothing may be sent between fragments.
            if let Some(fragment) = this.next_fragment() {
                return Poll::Ready(Some(Ok(fragment)));
            }
            if let Err(status) = this.take_wishes(context) {
                return Poll::Ready(Some(Err(status)));
            }
            if let Some(control) = this.controls.pop_front() {
                this.has_answered = true;
                return Poll::Ready(Some(Ok(control)));
            }
            // A client without a token gets nothing more here, and must not keep the stream. etcd's own client ends it
            // itself; it would take an earlier end by the server for a lost connection, and try again.
            if this.refusal.is_some() && this.has_answered {
                let stays = this.stays.get_or_insert_with(|| Box::pin(sleep(REFUSED_STAYS)));
                return stays.as_mut().poll(context).map(|()| None);
            }
            match this.watching.poll_told(context) {
                Poll::Ready(Told::Changes { watcher, version, changes }) => {
                    this.tell(watcher, version, changes)?;
                }
                Poll::Ready(Told::Compacted { watcher, compacted }) => {
                    this.forget(watcher);
                    let compact_revision = convert::signed(compacted.0);
                    // Without the version of the map, as in etcd.
                    let answer = this.answer(watcher, Version(0));
                    this.controls.push_back(api::WatchResponse {
                        canceled: true,
                        compact_revision,
                        ..answer
                    });
                }
                Poll::Ready(Told::Leaderless) => {
                    return Poll::Ready(Some(Err(Known::NO_LEADER.into())));
                }
                Poll::Pending => {
                    ready!(this.tell_progress(context));
                }
            }
        }
    }
}

impl Answers {
    pub(super) fn new(
        services: Arc<Services>,
        wishes: Option<Messages<api::WatchRequest>>,
        wants_leader: bool,
        refusal: Option<Known>,
    ) -> Self {
        let mut watching = Watching::new(Arc::clone(&services.hub), &services.client);
        if wants_leader {
            watching.warn();
        }
        Self {
            services,
            wishes,
            watching,
            refusal,
            has_answered: false,
            stays: None,
            telling: None,
            controls: VecDeque::new(),
            manners: HashMap::new(),
            progress_asked: false,
            progress_rounds: None,
            progress_due: Vec::new(),
        }
    }

    fn answer(&self, watch_id: i64, version: Version) -> api::WatchResponse {
        let header = Some(self.services.header(version));
        api::WatchResponse { header, watch_id, ..Default::default() }
    }

    fn now(&self) -> Version {
        self.services.backend().now()
    }

    /// Reads requests, until there are none or too many answers wait.
    fn take_wishes(&mut self, context: &mut Context<'_>) -> Result<(), Status> {
        while self.controls.len() < CONTROLS_MAX {
            let Some(wishes) = &mut self.wishes else { break };
            match Pin::new(wishes).poll_next(context) {
                Poll::Ready(Some(Ok(wish))) => self.take_wish(wish),
                Poll::Ready(Some(Err(status))) => return Err(status),
                // No more requests will come; earlier ones are still answered.
                Poll::Ready(None) => self.wishes = None,
                Poll::Pending => break,
            }
        }
        Ok(())
    }

    pub(super) fn take_wish(&mut self, wish: api::WatchRequest) {
        match wish.request_union {
            Some(api::RequestUnion::CreateRequest(create)) => self.begin(create),
            Some(api::RequestUnion::CancelRequest(cancel)) => self.end(cancel.watch_id),
            Some(api::RequestUnion::ProgressRequest(_)) => self.progress_asked = true,
            None => {}
        }
    }

    fn begin(&mut self, create: api::WatchCreateRequest) {
        let version = self.now();
        let begun = self.try_begin(&create, version);
        let answer = self.answer(*begun.as_ref().unwrap_or(&NO_WATCHER), version);
        match begun {
            Ok(number) => {
                let (progress, fragment) = (create.progress_notify, create.fragment);
                self.manners.insert(number, Manner { progress, was_told: false, fragment });
                if progress && self.progress_rounds.is_none() {
                    let mut rounds = interval_at(Instant::now() + PROGRESS_INTERVAL, PROGRESS_INTERVAL);
                    rounds.set_missed_tick_behavior(MissedTickBehavior::Delay);
                    self.progress_rounds = Some(Box::pin(rounds));
                }
                self.controls.push_back(api::WatchResponse { created: true, ..answer });
            }
            Err(cancel_reason) => {
                let answer = api::WatchResponse { created: true, canceled: true, cancel_reason, ..answer };
                self.controls.push_back(answer);
            }
        }
    }

    /// Begins a watcher; returns its number, or the refusal, in etcd's words.
    fn try_begin(&mut self, create: &api::WatchCreateRequest, version: Version) -> Result<i64, String> {
        if let Some(refusal) = self.refusal {
            return Err(refusal.in_full());
        }
        if self.watching.count() >= WATCHERS_MAX {
            return Err(Known::TOO_MANY_REQUESTS.in_full());
        }
        // Without a key, from the first key on.
        let key = if create.key.is_empty() { &[0][..] } else { &create.key };
        let keys = Keys::new(key.into(), &create.range_end);
        if matches!(&keys, Keys::Between(first, end) if first >= end) {
            return Err("mvcc: watcher range is empty".to_owned());
        }
        let unwanted = |filter: api::FilterType| create.filters.contains(&filter.into());
        let wish = Wish {
            keys,
            previous: if create.prev_kv { Previous::Wanted } else { Previous::Unwanted },
            kinds: Kinds {
                writes: !unwanted(api::FilterType::Noput),
                deletions: !unwanted(api::FilterType::Nodelete),
            },
        };
        let from = match u64::try_from(create.start_revision) {
            Ok(0) => version.next(),
            Ok(revision) => Version(revision),
            // Compacted long ago.
            Err(_) => Version(0),
        };
        let begun = self.watching.begin(create.watch_id, wish, from).map_err(Known::in_full)?;
        begun.ok_or_else(|| "mvcc: duplicate watch ID provided on the WatchStream".to_owned())
    }

    /// Ends a watcher, if there is one of this number.
    fn end(&mut self, number: i64) {
        if self.watching.end(number) {
            self.cancel(number, String::new());
        }
    }

    /// Reports that a watcher has ended.
    fn cancel(&mut self, number: i64, cancel_reason: String) {
        self.forget(number);
        let answer = self.answer(number, self.now());
        self.controls.push_back(api::WatchResponse { canceled: true, cancel_reason, ..answer });
    }

    fn forget(&mut self, number: i64) {
        self.manners.remove(&number);
    }

    fn tell(&mut self, watcher: i64, version: Version, changes: Vec<Change>) -> Result<(), Status> {
        let fragment = self.manners.get_mut(&watcher).is_some_and(|manner| {
            manner.was_told = true;
            manner.fragment
        });
        if fragment {
            self.telling = Some(Telling { watcher, version, next: None, changes: changes.into_iter() });
            return Ok(());
        }
        let bytes: usize = changes.iter().map(bytes_of).sum();
        if u64::try_from(bytes).unwrap_or(u64::MAX) > ANSWER_BYTES_MAX {
            self.watching.end(watcher);
            self.cancel(watcher, Known::ANSWER_TOO_LARGE.in_full());
            return Ok(());
        }
        // The events are charged when they are encoded; this tests first whether the answer would fit.
        self.services.client.charge_answer(bytes)?;
        let events = changes.iter().map(convert::event).collect();
        let answer = api::WatchResponse { events, ..self.answer(watcher, version) };
        self.controls.push_back(answer);
        Ok(())
    }

    /// Returns the next fragment of the changes, at most as long as a message may be, unless a single event is longer.
    fn next_fragment(&mut self) -> Option<api::WatchResponse> {
        let mut telling = self.telling.take()?;
        let mut fragment = self.answer(telling.watcher, telling.version);
        fragment.fragment = true;
        let mut size = fragment.encoded_len();
        while let Some(event) =
            telling.next.take().or_else(|| telling.changes.next().as_ref().map(convert::event))
        {
            // With its tag and length prefix.
            let more = event.encoded_len() + 1 + prost::length_delimiter_len(event.encoded_len());
            if size + more >= MESSAGE_BYTES_MAX && !fragment.events.is_empty() {
                telling.next = Some(event);
                self.telling = Some(telling);
                return Some(fragment);
            }
            size += more;
            fragment.events.push(event);
        }
        fragment.fragment = false;
        Some(fragment)
    }

    /// Sends the progress of all watchers that wait for it, when there is nothing else to send.
    fn tell_progress(&mut self, context: &mut Context<'_>) -> Poll<()> {
        if let Some(rounds) = &mut self.progress_rounds {
            while rounds.as_mut().poll_tick(context).is_ready() {
                for (&number, manner) in self.manners.iter_mut().filter(|(_, manner)| manner.progress) {
                    if !std::mem::take(&mut manner.was_told) {
                        self.progress_due.push(number);
                    }
                }
            }
        }
        if !self.progress_asked && self.progress_due.is_empty() {
            return Poll::Pending;
        }
        // If some changes were not sent yet, this is called again after that.
        let Some(version) = self.watching.all_told() else { return Poll::Pending };
        if std::mem::take(&mut self.progress_asked) {
            self.controls.push_back(self.answer(NO_WATCHER, version));
        }
        for watcher in std::mem::take(&mut self.progress_due) {
            self.controls.push_back(self.answer(watcher, version));
        }
        Poll::Ready(())
    }
}

#[cfg(test)]
mod tests {
    use primacy_kv::command::{Command, Operation, Replace, Write};
    use primacy_kv::state::State;
    use tokio_stream::StreamExt;

    use super::super::hub::Hub;
    use super::super::in_memory::InMemory;
    use super::*;

    /// Makes a stream with two watchers that request progress, of the keys `a` and `b`, and one that does not, of `a`.
    async fn three() -> (Arc<InMemory>, Answers) {
        let map = Arc::new(InMemory::new(State::new(), 0));
        let backend: Arc<InMemory> = Arc::clone(&map);
        let hub = Arc::new(Hub::new(backend));
        tokio::spawn(Arc::clone(&hub).run());
        let mut answers = Answers::new(Services::on_loopback(hub), None, false, None);
        for (key, progress_notify) in [("a", true), ("b", true), ("a", false)] {
            let create = api::WatchCreateRequest { key: key.into(), progress_notify, ..Default::default() };
            answers.take_wish(api::WatchRequest {
                request_union: Some(api::RequestUnion::CreateRequest(create)),
            });
        }
        for watcher in 0..3 {
            assert_eq!(told(&mut answers).await, (watcher, 0, 1), "it is there");
        }
        (map, answers)
    }

    fn write(map: &InMemory, key: &[u8]) -> i64 {
        let write = Write {
            key: key.into(),
            value: Replace::With((*b"v").into()),
            session: Replace::With(None),
            previous: Previous::Unwanted,
        };
        convert::signed(map.write(Command::Operate(Operation::Write(write))).version.0)
    }

    /// Returns the next answer: its watcher, the number of its changes, and its version.
    async fn told(answers: &mut Answers) -> (i64, usize, i64) {
        let answer = answers.next().await.unwrap().unwrap();
        assert!(!answer.canceled, "{answer:?}");
        (answer.watch_id, answer.events.len(), answer.header.unwrap().revision)
    }

    #[tokio::test(start_paused = true)]
    async fn progress_is_told_to_who_wants_it_and_was_told_nothing_else() {
        let (map, mut answers) = three().await;
        let began = Instant::now();
        // Without changes, both that request progress get it, after a whole interval and not before.
        let mut quiet = vec![told(&mut answers).await, told(&mut answers).await];
        quiet.sort_unstable();
        assert_eq!(quiet, [(0, 0, 1), (1, 0, 1)]);
        assert_eq!(began.elapsed(), PROGRESS_INTERVAL);
        // After a change of `a`, its watchers know how far they are, and get no progress in this round.
        let version = write(&map, b"a");
        let mut news = vec![told(&mut answers).await, told(&mut answers).await];
        news.sort_unstable();
        assert_eq!(news, [(0, 1, version), (2, 1, version)]);
        assert_eq!(told(&mut answers).await, (1, 0, version));
        assert_eq!(began.elapsed(), 2 * PROGRESS_INTERVAL);
        // In the next round it has received nothing.
        let mut quiet = vec![told(&mut answers).await, told(&mut answers).await];
        quiet.sort_unstable();
        assert_eq!(quiet, [(0, 0, version), (1, 0, version)]);
        assert_eq!(began.elapsed(), 3 * PROGRESS_INTERVAL);
    }

    /// A client that knows of a write asks for progress until the stream has reached it; the write may concern no
    /// watcher, and may be very recent.
    #[tokio::test(start_paused = true)]
    async fn progress_that_is_asked_for_is_of_all_that_was_written_before() {
        let (map, mut answers) = three().await;
        let progress = || api::WatchRequest {
            request_union: Some(api::RequestUnion::ProgressRequest(api::WatchProgressRequest {})),
        };
        let version = write(&map, b"other");
        answers.take_wish(progress());
        assert_eq!(told(&mut answers).await, (NO_WATCHER, 0, version));
        let version = write(&map, b"b");
        answers.take_wish(progress());
        assert_eq!(told(&mut answers).await, (1, 1, version), "its news comes first");
        assert_eq!(told(&mut answers).await, (NO_WATCHER, 0, version));
    }
}
