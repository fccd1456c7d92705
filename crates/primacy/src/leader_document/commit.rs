//! The leader's writer: changes wait while a write is in progress, and the next write takes all of them.

use std::collections::VecDeque;
use std::future::Future;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use primacy_core::election::lease::Version;
use primacy_core::{FencingToken, Instant};
use primacy_stores::SetError;
use serde::Serialize;
use tokio::sync::{Notify, watch};

use super::{Ended, Ground, LeadershipStatus, SubmitError};

/// Sends the result of a change to its caller.
pub(super) type Acknowledge = Box<dyn FnOnce(Result<(), SubmitError>) + Send>;
/// A change to the state; returns the function that acknowledges it.
pub(super) type Job<S> = Box<dyn FnOnce(&mut S) -> Acknowledge + Send>;

/// The pause before a retry is the timeout divided by this.
const TRIES_PER_TIMEOUT: u32 = 20;

/// The changes that wait for a write.
pub(super) struct Queue<S> {
    waiting: Mutex<Waiting<S>>,
    rung: Notify,
}

struct Waiting<S> {
    jobs: VecDeque<Job<S>>,
    is_open: bool,
}

impl<S> Default for Queue<S> {
    /// A closed queue, which accepts no change.
    fn default() -> Self {
        let waiting = Waiting { jobs: VecDeque::new(), is_open: false };
        Self { waiting: Mutex::new(waiting), rung: Notify::new() }
    }
}

impl<S> Queue<S> {
    pub(super) fn new() -> Self {
        let waiting = Waiting { jobs: VecDeque::new(), is_open: true };
        Self { waiting: Mutex::new(waiting), rung: Notify::new() }
    }

    /// Adds a change; returns true if it was accepted.
    pub(super) fn push(&self, job: Job<S>) -> bool {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        if waiting.is_open {
            waiting.jobs.push_back(job);
            self.rung.notify_one();
        }
        waiting.is_open
    }

    /// Closes the queue. The changes in it are still written.
    pub(super) fn close(&self) {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner).is_open = false;
        self.rung.notify_one();
    }

    /// Takes all waiting changes; the flag is true while the queue is open.
    fn take(&self) -> (Vec<Job<S>>, bool) {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        (waiting.jobs.drain(..).collect(), waiting.is_open)
    }
}

/// The writer of one leadership.
pub(super) struct Committer<S> {
    pub(super) ground: Arc<Ground<S>>,
    pub(super) queue: Arc<Queue<S>>,
    pub(super) published: watch::Sender<Option<Arc<S>>>,
    pub(super) leadership: watch::Sender<LeadershipStatus>,
    pub(super) state: Arc<S>,
    pub(super) version: Version,
    pub(super) token: FencingToken,
    pub(super) beat: u64,
    /// The time at which the last durable write was requested.
    pub(super) written_at: Instant,
}

/// The outcome of a write.
enum Outcome {
    Durable(Version, Instant),
    /// The write was not made, and will not be.
    NotDone(Ended),
    Unknown(Ended),
}

/// The content of the document after a write whose answer is unknown.
enum Look {
    Ours(Version),
    /// The document still has the version that the write was to replace.
    Before,
    Other,
    /// There is no document.
    Gone,
    Nothing,
}

impl<S: Serialize + Clone> Committer<S> {
    pub(super) async fn run(mut self) {
        let why = loop {
            self.wait().await;
            let (jobs, is_open) = self.queue.take();
            if !is_open && jobs.is_empty() {
                break self.resign().await;
            }
            // The wake-up came from changes that were written with earlier ones.
            if jobs.is_empty() && self.silence() < self.ground.options.heartbeat() {
                continue;
            }
            if let Err(why) = self.commit(jobs).await {
                break why;
            }
        };
        self.end(why);
    }

    /// Waits until there is something to write, or a heartbeat is due.
    async fn wait(&self) {
        let options = &self.ground.options;
        // The pause between two writes, even if changes are waiting.
        tokio::time::sleep(options.write_interval_min.saturating_sub(self.silence())).await;
        let has_jobs = {
            let waiting = self.queue.waiting.lock().unwrap_or_else(PoisonError::into_inner);
            !waiting.jobs.is_empty() || !waiting.is_open
        };
        if !has_jobs {
            let due = options.heartbeat().saturating_sub(self.silence());
            // Whichever comes first.
            let _ = tokio::time::timeout(due, self.queue.rung.notified()).await;
        }
    }

    fn silence(&self) -> Duration {
        (self.ground.clock)().since(self.written_at).into()
    }

    /// True if other brokers may soon count this one as gone.
    fn is_expired(&self) -> bool {
        self.ground.remaining().is_zero()
    }

    /// Waits for a request, but not beyond the end of the leadership.
    async fn bounded<T>(&self, request: impl Future<Output = T>) -> Result<T, String> {
        let bounded = tokio::time::timeout(self.ground.remaining(), request).await;
        bounded.map_err(|_| "the store did not answer in time".to_owned())
    }

    /// Applies the changes and writes the state.
    async fn commit(&mut self, jobs: Vec<Job<S>>) -> Result<(), Ended> {
        let mut next = Arc::clone(&self.state);
        let mut waiting = Vec::with_capacity(jobs.len());
        if !jobs.is_empty() {
            let mut changed = (*self.state).clone();
            waiting.extend(jobs.into_iter().map(|job| job(&mut changed)));
            next = Arc::new(changed);
        }
        let bytes = match self.ground.content(&next, self.token, self.beat + 1, true) {
            Ok(bytes) => bytes,
            Err(why) => {
                tell(waiting, &Err(SubmitError::Rejected { why }));
                return Ok(());
            }
        };
        let unanswered = Unanswered(waiting);
        match self.write(&bytes).await {
            Outcome::Durable(version, asked_at) => {
                (self.version, self.written_at, self.state) = (version, asked_at, next);
                self.ground.written(asked_at);
                self.beat += 1;
                self.published.send_replace(Some(Arc::clone(&self.state)));
                unanswered.answer(&Ok(()));
                Ok(())
            }
            Outcome::NotDone(ended) => {
                unanswered.answer(&Err(SubmitError::NotDone { why: ended.to_string() }));
                Err(ended)
            }
            Outcome::Unknown(ended) => {
                unanswered.answer(&Err(SubmitError::Unknown { why: ended.to_string() }));
                Err(ended)
            }
        }
    }

    /// Writes `bytes` over the version of this leadership's last write, until the outcome is known or the leadership
    /// expires.
    async fn write(&self, bytes: &[u8]) -> Outcome {
        // The request time of the first write with an unknown outcome: if the document has its bytes, they may be from
        // that write.
        let mut open_since: Option<Instant> = None;
        let mut why = String::new();
        while !self.is_expired() {
            let asked_at = open_since.unwrap_or_else(|| (self.ground.clock)());
            let written = self.bounded(self.ground.compare_and_set(Some(&self.version), bytes)).await;
            match written.unwrap_or_else(|why| Err(SetError::Unknown { why })) {
                Ok(version) => return Outcome::Durable(version, asked_at),
                Err(SetError::Conflict) if open_since.is_none() => {
                    return Outcome::NotDone(self.cause_of_conflict().await);
                }
                // This attempt failed; an earlier one with a lost answer may have succeeded.
                Err(SetError::Conflict) => {}
                Err(SetError::Unavailable { why: found }) => {
                    why = found;
                    self.pause().await;
                    continue;
                }
                Err(SetError::Unknown { why: found }) => {
                    why = found;
                    open_since = Some(asked_at);
                }
            }
            match self.look(bytes, &mut why).await {
                Look::Ours(version) => return Outcome::Durable(version, asked_at),
                Look::Other => return Outcome::Unknown(Ended::Deposed),
                Look::Gone => return Outcome::Unknown(Ended::Removed),
                // Not written, or not yet. Writing the same bytes over the same version succeeds only once.
                Look::Before => self.pause().await,
                Look::Nothing => {}
            }
        }
        let ended = Ended::Expired { why };
        if open_since.is_some() { Outcome::Unknown(ended) } else { Outcome::NotDone(ended) }
    }

    /// The cause of a conflict with the version of this leadership's last write. The leadership is over in any case.
    async fn cause_of_conflict(&self) -> Ended {
        self.ground.led_until.store(0, Ordering::SeqCst);
        let looking = tokio::time::timeout(self.ground.options.heartbeat(), self.ground.read());
        if let Ok(Ok(None)) = looking.await { Ended::Removed } else { Ended::Deposed }
    }

    /// Reads until the content is known or the leadership expires.
    async fn look(&self, bytes: &[u8], why: &mut String) -> Look {
        while !self.is_expired() {
            match self.bounded(self.ground.read()).await {
                Ok(Ok(Some((found, version)))) if found == bytes => return Look::Ours(version),
                Ok(Ok(Some((_, version)))) if version == self.version => return Look::Before,
                Ok(Ok(Some(_))) => return Look::Other,
                Ok(Ok(None)) => return Look::Gone,
                Ok(Err(error)) => *why = error.to_string(),
                Err(found) => *why = found,
            }
            self.pause().await;
        }
        Look::Nothing
    }

    async fn pause(&self) {
        tokio::time::sleep(self.ground.options.timeout / TRIES_PER_TIMEOUT).await;
    }

    /// Writes that there is no leader. The leadership is over, whatever the outcome.
    async fn resign(&mut self) -> Ended {
        match self.ground.content(&self.state, self.token, self.beat + 1, false) {
            Err(why) => Ended::Expired { why },
            Ok(bytes) => match self.write(&bytes).await {
                Outcome::Durable(..) => Ended::Resigned,
                Outcome::NotDone(ended) | Outcome::Unknown(ended) => ended,
            },
        }
    }
}

impl<S> Committer<S> {
    fn end(&self, why: Ended) {
        self.queue.close();
        self.leadership.send_if_modified(|leadership| {
            let is_own = *leadership == LeadershipStatus::Leading { token: self.token };
            if is_own {
                *leadership = LeadershipStatus::Ended { token: self.token, why };
            }
            is_own
        });
        // Tells the waiting callers that their changes were not made.
        drop(self.queue.take());
    }
}

impl<S> Drop for Committer<S> {
    fn drop(&mut self) {
        // The task was aborted by the broker's drop, or a change panicked.
        if *self.leadership.borrow() == (LeadershipStatus::Leading { token: self.token }) {
            self.end(Ended::Expired { why: "it was given up".to_owned() });
        }
    }
}

/// The callers whose changes are being written. If the task is aborted during the write, dropping this tells them that
/// their changes may have been made. Changes that were never part of a write, as after a panic in a change, have not been
/// made.
struct Unanswered(Vec<Acknowledge>);

impl Unanswered {
    fn answer(mut self, done: &Result<(), SubmitError>) {
        tell(std::mem::take(&mut self.0), done);
    }
}

impl Drop for Unanswered {
    fn drop(&mut self) {
        let given_up = SubmitError::Unknown { why: "the task that wrote it was ended".to_owned() };
        tell(std::mem::take(&mut self.0), &Err(given_up));
    }
}

fn tell(waiting: Vec<Acknowledge>, done: &Result<(), SubmitError>) {
    for acknowledge in waiting {
        acknowledge(done.clone());
    }
}

impl std::fmt::Display for Ended {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Resigned => f.write_str("it resigned"),
            Self::Deposed => f.write_str("another broker has written the document"),
            Self::Removed => f.write_str("the document was deleted"),
            Self::Expired { why } => write!(f, "it could not write for its whole timeout ({why})"),
        }
    }
}
