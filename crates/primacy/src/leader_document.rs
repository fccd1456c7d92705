//! [`LeaderDocument`]: leadership and state in one document, where every write of the state is fenced by its own compare-and-set.
//!
//! Promises  the state is only ever changed by the leader that has read the newest one; a change is acknowledged when it is
//!           durable, and then every later leader has it; a replaced leader finds it out at its next write, and changes
//!           nothing.
//! Assumes   a [`Document`] whose compare-and-set is linearizable. No clock of another machine takes part.
//! Leaves    other readers of the document.
//!
//! It is the design of brokers that keep their queue in an object store: no lock, no database, one object. There is nothing
//! else to fence, because the resource and the election are one: a stale leader's write names a version that is gone.
//!
//! - **Elected** by writing its own address into the document, over the version that was read. A leader counts as gone when
//!   the document has not changed for the leader's whole timeout, on the reader's own clock, since the reader first saw this
//!   version.
//! - **Group commit.** Changes wait while a write is under way; the next write takes all of them, in order. Each is
//!   acknowledged when that write is durable.
//! - **A conflict deposes.** After a conflict the leader does not read and write again: that would overwrite its successor,
//!   and both would lead from then on.
//! - **A lost answer is resolved** by a nonce in each write. The same bytes are written again over the same version
//!   only while the document does not have them, so they are written at most once.
//! - **A leader that could not write for its whole timeout** leads no more, whether or not another broker has replaced it, and
//!   campaigns again: its next leadership has another token.
//!
//! ```
//! use primacy::leader_document::{Election, LeaderDocument, LeaderDocumentOptions};
//! use primacy::stores::file::FileDocument;
//! use serde::{Deserialize, Serialize};
//!
//! #[derive(Clone, Default, Serialize, Deserialize)]
//! struct Queue {
//!     jobs: Vec<String>,
//! }
//!
//! # let directory = std::env::temp_dir().join(format!("primacy-led-doc-{}", std::process::id()));
//! # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
//! let store = FileDocument::open(&directory, "queue").await?;
//! let broker = LeaderDocument::<Queue>::new(store, LeaderDocumentOptions::new("10.0.0.7:8080"))?;
//! match broker.try_elect().await? {
//!     Election::Elected { token } | Election::AlreadyLeader { token } => println!("leading under {token}"),
//!     Election::OtherLeader { address, .. } => println!("{address} leads; ask there, and try again later"),
//!     Election::Conflict => println!("another broker was faster; try again"),
//! }
//! // Returns when it is durable; an error says what is known of it.
//! let length = broker.submit(|queue| { queue.jobs.push("job".to_owned()); queue.jobs.len() }).await?;
//! assert_eq!(length, 1);
//! broker.resign().await;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! # })?;
//! # std::fs::remove_dir_all(&directory)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod commit;
mod content;

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use primacy_core::election::lease::Version;
use primacy_core::{FencingToken, Instant};
use primacy_stores::{Document, ReadError, SetError};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::{oneshot, watch};
use tokio::task::JoinHandle;

use self::commit::{Committer, Queue};
use self::content::{Broker, Head, decode, draw_nonce, encode};
use crate::clock;
use crate::config::{DRIFT_MAX, LEASE, Timers, Venue};
use crate::stats::Stats;
use crate::store_health::{Operation, StoreRequest, StoreTrouble};

/// The address of a broker, and its timers.
#[derive(Clone, Debug)]
pub struct LeaderDocumentOptions {
    /// The address where clients reach the broker. It need not be unique: a random id, drawn for each
    /// [`LeaderDocument`], identifies the broker.
    pub address: String,
    /// The time without a write after which other brokers replace this leader: they use the timeout in the document. Default:
    /// 10 seconds.
    pub timeout: Duration,
    /// The least pause between two writes, because writes cost money and stores limit their rate. Default: none.
    pub write_interval_min: Duration,
}

impl LeaderDocumentOptions {
    /// Returns the default options.
    #[must_use]
    pub fn new(address: &str) -> Self {
        Self { address: address.to_owned(), timeout: LEASE, write_interval_min: Duration::ZERO }
    }

    /// The interval after which an unchanged document is written again: a third of the timeout.
    fn heartbeat(&self) -> Duration {
        self.timeout / 3
    }

    fn check(&self) -> Result<(), LeaderDocumentError> {
        if self.timeout.is_zero() || self.write_interval_min > self.heartbeat() {
            return Err(LeaderDocumentError::Options);
        }
        Ok(())
    }
}

/// The outcome of a campaign.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Election {
    /// This broker leads from now on.
    Elected {
        /// Higher than that of any leader before it.
        token: FencingToken,
    },
    /// It leads already, and its last write is younger than its timeout.
    AlreadyLeader {
        /// The token of its leadership.
        token: FencingToken,
    },
    /// Another broker leads, as far as this one can know.
    OtherLeader {
        /// The address where it is reached; empty in a document that another program wrote.
        address: String,
        /// The token of its leadership.
        token: FencingToken,
        /// The time without a further write after which the leader counts as gone.
        remaining: Duration,
    },
    /// Another broker has written meanwhile. Nothing was changed.
    Conflict,
}

/// The reason why a campaign failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LeaderDocumentError {
    /// The store did not answer, or not clearly. Try again: if the write was made, the next call finds it.
    #[error("the document's store cannot be used: {why}")]
    Unavailable {
        /// The error.
        why: String,
    },
    /// The document is not a leader document. It was left as it is.
    #[error("the document cannot be used: {why}")]
    Malformed {
        /// The defect.
        why: String,
    },
    /// The options do not fit together.
    #[error("the timeout must be above zero, and the least pause between two writes at most a third of it")]
    Options,
}

/// The reason why a change was not acknowledged.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SubmitError {
    /// This broker does not lead. The change was not made.
    #[error("this broker does not lead, and nothing was changed; find the leader")]
    NotLeading,
    /// The broker was replaced, or could not write in time. The change was not made.
    #[error("this broker has lost its leadership, and nothing was changed: {why}")]
    NotDone {
        /// The error.
        why: String,
    },
    /// The broker lost its leadership during the write. The change may have been made; the next leader knows.
    #[error("this broker has lost its leadership, and it is not known whether the change was made: {why}")]
    Unknown {
        /// The error.
        why: String,
    },
    /// The state with this change, and the others of the same write, cannot be encoded; none of them was made.
    #[error("the state cannot be written with this change, and nothing was changed: {why}")]
    Rejected {
        /// The defect.
        why: String,
    },
}

/// The state of a broker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LeadershipStatus {
    /// It has not led since it was made.
    Standby,
    /// It leads.
    Leading {
        /// The token of its leadership.
        token: FencingToken,
    },
    /// It has led, and does not any more.
    Ended {
        /// The token of the leadership that has ended.
        token: FencingToken,
        /// The reason.
        why: Ended,
    },
}

/// The reason why a leadership ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ended {
    /// It resigned.
    Resigned,
    /// Another process has written the document.
    Deposed,
    /// The document was deleted.
    Removed,
    /// It could not write for its whole timeout.
    Expired {
        /// The last error.
        why: String,
    },
}

/// Values for the application's own fields, as of one write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stamp {
    /// The address of the leader; `None` in the last write of a leader that resigns.
    pub address: Option<String>,
    /// Milliseconds since 1970, by this machine's wall clock. For people and other programs only.
    pub millis: u64,
}

type Stamping<S> = Arc<dyn Fn(&mut S, &Stamp) + Send + Sync>;
/// The source of the time; tests use their own.
type Clock = Arc<dyn Fn() -> Instant + Send + Sync>;

/// A document with state of type `S`, and this process's part in its election.
///
/// `S` is written as a JSON object. Its field `primacy` belongs to this library; fields of other programs are kept if `S`
/// keeps them (`#[serde(flatten)]`).
pub struct LeaderDocument<S> {
    ground: Arc<Ground<S>>,
    term: tokio::sync::Mutex<Option<JoinHandle<()>>>,
    queue: Mutex<Arc<Queue<S>>>,
    state: watch::Sender<Option<Arc<S>>>,
    leadership: watch::Sender<LeadershipStatus>,
    /// The highest token that was seen in the document.
    highest: AtomicU64,
    /// The version of another leader's document, and when it was first seen.
    observed: Mutex<Option<(Version, Instant)>>,
}

/// State that all leaderships of a broker share.
struct Ground<S> {
    store: Arc<dyn Document>,
    options: LeaderDocumentOptions,
    me: Broker,
    stamping: Option<Stamping<S>>,
    clock: Clock,
    /// The time until which this broker leads by its last durable write, in nanoseconds of its clock.
    led_until: AtomicU64,
    stats: Arc<Stats>,
}

impl<S> Ground<S> {
    /// Reads the document. Every request to it passes here or through [`compare_and_set`](Self::compare_and_set).
    async fn read(&self) -> Result<Option<(Vec<u8>, Version)>, ReadError> {
        StoreRequest::begin(&self.stats.store, Operation::Read).run(self.store.read()).await
    }

    async fn compare_and_set(&self, expect: Option<&Version>, bytes: &[u8]) -> Result<Version, SetError> {
        let writing = self.store.compare_and_set(expect, bytes);
        StoreRequest::begin(&self.stats.store, Operation::Renewal).run(writing).await
    }

    /// Extends the leadership after a durable write that was requested at `asked_at`.
    fn written(&self, asked_at: Instant) {
        let until = asked_at.after(DRIFT_MAX.shorten(self.options.timeout.into()));
        self.led_until.store(until.as_nanos(), Ordering::SeqCst);
    }

    /// The time for which this broker still leads without another write.
    fn remaining(&self) -> Duration {
        Instant::from_nanos(self.led_until.load(Ordering::SeqCst)).since((self.clock)()).into()
    }
}

impl<S> fmt::Debug for LeaderDocument<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let leadership = self.leadership.borrow().clone();
        f.debug_struct("LeaderDocument")
            .field("store", &self.ground.store)
            .field("leadership", &leadership)
            .finish_non_exhaustive()
    }
}

impl<S> LeaderDocument<S> {
    /// Returns the present failures of requests to the store, with the store's own errors.
    #[must_use]
    pub fn store_troubles(&self) -> Vec<StoreTrouble> {
        self.ground.stats.store.troubles()
    }

    /// The counters of the requests to the store.
    #[cfg(feature = "metrics")]
    pub(crate) fn stats(&self) -> Arc<Stats> {
        Arc::clone(&self.ground.stats)
    }
}

impl<S> LeaderDocument<S>
where
    S: Serialize + DeserializeOwned + Default + Clone + Send + Sync + 'static,
{
    /// Creates a broker that does not lead yet. Nothing is read or written.
    ///
    /// # Errors
    /// [`LeaderDocumentError::Options`].
    pub fn new(
        store: impl Document + 'static,
        options: LeaderDocumentOptions,
    ) -> Result<Self, LeaderDocumentError> {
        Self::with(Arc::new(store), options, None, Arc::new(clock::now))
    }

    /// As [`new`](Self::new), with `stamping` called last before each write, on the state: it fills fields in which other
    /// programs look for the leader.
    ///
    /// # Errors
    /// [`LeaderDocumentError::Options`].
    pub fn stamping(
        store: impl Document + 'static,
        options: LeaderDocumentOptions,
        stamping: impl Fn(&mut S, &Stamp) + Send + Sync + 'static,
    ) -> Result<Self, LeaderDocumentError> {
        Self::with(Arc::new(store), options, Some(Arc::new(stamping)), Arc::new(clock::now))
    }

    fn with(
        store: Arc<dyn Document>,
        options: LeaderDocumentOptions,
        stamping: Option<Stamping<S>>,
        clock: Clock,
    ) -> Result<Self, LeaderDocumentError> {
        options.check()?;
        let id = draw_nonce().map_err(|why| LeaderDocumentError::Unavailable { why })?;
        let me = Broker { id, address: options.address.clone() };
        let stats = Arc::<Stats>::default();
        stats.store.describe(Some("the document"), &Timers::new(Venue::Store, Some(options.timeout)));
        Ok(Self {
            ground: Arc::new(Ground {
                store,
                options,
                me,
                stamping,
                clock,
                led_until: AtomicU64::new(0),
                stats,
            }),
            term: tokio::sync::Mutex::default(),
            queue: Mutex::default(),
            state: watch::Sender::new(None),
            leadership: watch::Sender::new(LeadershipStatus::Standby),
            highest: AtomicU64::new(0),
            observed: Mutex::default(),
        })
    }

    /// Campaigns once. A broker that does not lead calls this repeatedly, with pauses.
    ///
    /// Must be called in a tokio runtime, which runs the task of the leadership. If the future is dropped, the document may
    /// name this broker although it does not lead: then its next call elects it.
    ///
    /// # Errors
    /// [`LeaderDocumentError`]; this broker does not lead then.
    pub async fn try_elect(&self) -> Result<Election, LeaderDocumentError> {
        let mut term = self.term.lock().await;
        if let Some(running) = term.as_mut() {
            if let (LeadershipStatus::Leading { token }, false) = (self.leadership(), running.is_finished()) {
                return Ok(Election::AlreadyLeader { token });
            }
            // The task of the former leadership finishes first.
            let _ = running.await;
            *term = None;
        }
        let found = self.ground.read().await.map_err(|error| match error {
            ReadError::Unavailable { why } => LeaderDocumentError::Unavailable { why },
            ReadError::Malformed { error } => LeaderDocumentError::Malformed { why: error.to_string() },
        })?;
        let seen_at = (self.ground.clock)();
        let (state, token, expect) = match found {
            None => (S::default(), self.first_token(), None),
            Some((bytes, version)) => {
                let (state, head) =
                    decode::<S>(&bytes).map_err(|why| LeaderDocumentError::Malformed { why })?;
                self.check_age(head.as_ref())?;
                if let Some(other) = self.other_leader(head.as_ref(), &version, seen_at) {
                    return Ok(other);
                }
                let token = head.map_or_else(|| self.first_token(), |head| head.token.next());
                (state, token, Some(version))
            }
        };
        let first = self
            .ground
            .content(&state, token, 0, true)
            .map_err(|why| LeaderDocumentError::Malformed { why })?;
        let asked_at = (self.ground.clock)();
        let written = self.ground.compare_and_set(expect.as_ref(), &first).await;
        let version = match written {
            Ok(version) => version,
            Err(SetError::Conflict) => return Ok(Election::Conflict),
            Err(SetError::Unavailable { why }) => return Err(LeaderDocumentError::Unavailable { why }),
            Err(SetError::Unknown { why }) => match self.ground.read().await {
                Ok(Some((bytes, version))) if bytes == first => version,
                // The write may have been replaced, or may still arrive.
                Ok(_) | Err(_) => return Err(LeaderDocumentError::Unavailable { why }),
            },
        };
        *term = Some(self.lead(state, version, token, asked_at));
        Ok(Election::Elected { token })
    }

    /// A token above those of any earlier document, which may have been deleted.
    fn first_token(&self) -> FencingToken {
        let seen = FencingToken(self.highest.load(Ordering::SeqCst));
        seen.max(FencingToken(clock::wall_millis())).next()
    }

    /// Records the token of a document; refuses an older copy that was restored.
    fn check_age(&self, head: Option<&Head>) -> Result<(), LeaderDocumentError> {
        let token = head.map_or(0, |head| head.token.0);
        let highest = self.highest.fetch_max(token, Ordering::SeqCst);
        if head.is_some() && token < highest {
            let why = format!(
                "it has the token {token}, and {highest} was seen there: somebody has put an older copy back, and what \
                 was written since is missing. Put the newest one there, or start the brokers anew to go on with this one"
            );
            return Err(LeaderDocumentError::Malformed { why });
        }
        Ok(())
    }

    /// The outcome if the document has a leader that is not gone; `None` if this broker may take the lead.
    fn other_leader(&self, head: Option<&Head>, version: &Version, now: Instant) -> Option<Election> {
        let mut observed = self.observed.lock().unwrap_or_else(PoisonError::into_inner);
        let (leader, token, timeout) = match head {
            // The document of another program. If its broker is at work, it will write again.
            None => (None, FencingToken::default(), self.ground.options.timeout.into()),
            Some(head) => (Some(head.leader.as_ref()?), head.token, head.timeout),
        };
        if leader.is_some_and(|leader| leader.id == self.ground.me.id) {
            // The document names this broker, which does not lead: its former writes cannot succeed, because their
            // versions are gone.
            return None;
        }
        let first_seen = match &*observed {
            Some((seen, at)) if seen == version => *at,
            Some(_) | None => {
                *observed = Some((version.clone(), now));
                now
            }
        };
        let (waited, patience) = (now.since(first_seen), DRIFT_MAX.lengthen(timeout));
        let address = leader.map(|leader| leader.address.clone()).unwrap_or_default();
        let remaining = patience.minus(waited).into();
        (waited < patience).then_some(Election::OtherLeader { address, token, remaining })
    }

    fn lead(&self, state: S, version: Version, token: FencingToken, asked_at: Instant) -> JoinHandle<()> {
        let queue = Arc::new(Queue::new());
        *self.queue.lock().unwrap_or_else(PoisonError::into_inner) = Arc::clone(&queue);
        let state = Arc::new(state);
        self.highest.fetch_max(token.0, Ordering::SeqCst);
        self.ground.written(asked_at);
        self.state.send_replace(Some(Arc::clone(&state)));
        self.leadership.send_replace(LeadershipStatus::Leading { token });
        let committer = Committer {
            ground: Arc::clone(&self.ground),
            queue,
            published: self.state.clone(),
            leadership: self.leadership.clone(),
            state,
            version,
            token,
            beat: 0,
            written_at: asked_at,
        };
        tokio::spawn(committer.run())
    }

    /// Changes the state, and returns the result of `change` when it is durable. All changes that wait for one write are
    /// applied in order, and written together or not at all. The state that `change` sees may contain changes that are not
    /// durable yet.
    ///
    /// Dropping the future does not cancel the change.
    ///
    /// # Errors
    /// [`SubmitError`].
    pub async fn submit<R: Send + 'static>(
        &self,
        change: impl FnOnce(&mut S) -> R + Send + 'static,
    ) -> Result<R, SubmitError> {
        let queue = Arc::clone(&*self.queue.lock().unwrap_or_else(PoisonError::into_inner));
        let (reply, answer) = oneshot::channel();
        let job = move |state: &mut S| {
            let result = change(state);
            let acknowledge = move |done: Result<(), SubmitError>| drop(reply.send(done.map(|()| result)));
            Box::new(acknowledge) as commit::Acknowledge
        };
        if !queue.push(Box::new(job)) {
            return Err(SubmitError::NotLeading);
        }
        // Only changes that were never written are dropped without an answer: see `Unanswered`.
        answer.await.unwrap_or(Err(SubmitError::NotLeading))
    }

    /// The state as this broker last wrote it; `None` unless it leads. Another broker may have replaced it since: to read
    /// the newest state, use [`submit`](Self::submit).
    #[must_use]
    pub fn state(&self) -> Option<Arc<S>> {
        // Read before the check of the leadership.
        let state = self.state.borrow().clone();
        match self.leadership() {
            LeadershipStatus::Leading { .. } => state,
            LeadershipStatus::Standby | LeadershipStatus::Ended { .. } => None,
        }
    }

    /// The state of this broker now.
    #[must_use]
    pub fn leadership(&self) -> LeadershipStatus {
        let leadership = self.leadership.borrow().clone();
        match leadership {
            // The task will find out by itself when it runs again.
            LeadershipStatus::Leading { token } if self.ground.remaining().is_zero() => {
                let why = Ended::Expired { why: "its last write is older than that".to_owned() };
                LeadershipStatus::Ended { token, why }
            }
            LeadershipStatus::Standby | LeadershipStatus::Leading { .. } | LeadershipStatus::Ended { .. } => {
                leadership
            }
        }
    }

    /// Resolves when this broker does not lead, or no longer leads, with its state. Cancel safe.
    pub async fn ended(&self) -> LeadershipStatus {
        let mut leadership = self.leadership.subscribe();
        let found =
            leadership.wait_for(|leadership| !matches!(leadership, LeadershipStatus::Leading { .. })).await;
        found.map_or_else(|_| self.leadership(), |leadership| leadership.clone())
    }

    /// Writes the waiting changes, then writes that there is no leader, and returns: other brokers need not wait for the
    /// timeout then. Later changes are refused. Does nothing if this broker does not lead.
    pub async fn resign(&self) {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner).close();
        let mut term = self.term.lock().await;
        // The handle stays here while it is awaited: dropping this future does not end the task.
        if let Some(running) = term.as_mut() {
            let _ = running.await;
            *term = None;
        }
    }
}

impl<S: Serialize + Clone> Ground<S> {
    /// The bytes of a write. A nonce makes them unique.
    fn content(
        &self,
        state: &S,
        token: FencingToken,
        beat: u64,
        is_leading: bool,
    ) -> Result<Vec<u8>, String> {
        let mut stamped;
        let mut written = state;
        if let Some(stamping) = &self.stamping {
            stamped = state.clone();
            let address = is_leading.then(|| self.me.address.clone());
            stamping(&mut stamped, &Stamp { address, millis: clock::wall_millis() });
            written = &stamped;
        }
        let leader = is_leading.then(|| self.me.clone());
        let timeout = self.options.timeout.into();
        encode(written, &Head { token, leader, timeout, beat, nonce: draw_nonce()? })
    }
}

impl<S> Drop for LeaderDocument<S> {
    fn drop(&mut self) {
        // A write in progress may still complete; no other one is started.
        if let Some(running) = self.term.get_mut().take() {
            running.abort();
        }
    }
}

#[cfg(test)]
mod tests;
