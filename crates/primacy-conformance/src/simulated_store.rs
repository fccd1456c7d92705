//! The simulated arm: the simulator's own store, under the same laws as every other.
//!
//! Between a caller and the store is a network with delays drawn from a seed, so that requests overtake each other.
//! Time is tokio's, and should be paused: then a run needs no real waiting, and is deterministic.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use primacy_core::NodeId;
use primacy_core::election::lease::SetError as Refused;
use primacy_core::election::lease::{Found, Message, Record, RequestId, Version};
use primacy_core::rng::Rng;
use primacy_sim::clock::Moment;
use primacy_sim::store::{Mishap, Mood, Store};
use primacy_stores::{Pending, ReadError, Register, SetError, record};
use tokio::sync::watch;

use crate::harness::{Capabilities, Harness};

/// The longest time that a packet takes.
const DELAY_MAX: Duration = Duration::from_millis(20);
/// The time after which a request or its reply is taken to be lost.
const TIMEOUT: Duration = Duration::from_millis(100);
/// The maximum delay of the notification of a change: a packet's delay, and the round trip of the read that follows.
const CHANGE_BOUND: Duration = Duration::from_millis(60);

/// The faults of a simulated store, in addition to delays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Weather {
    /// None.
    Calm,
    /// The store is down or silent at times, loses replies, answers that the outcome is unknown, and receives some
    /// requests twice.
    Rough,
    /// It returns to an earlier state, as after a restore from a backup; this violates the contract of a register.
    GoesBack,
    /// As [`Rough`](Self::Rough), and requests without an answer are repeated on the way; this violates the contract
    /// of a register, because a repeated write that took effect is refused.
    AsksTwice,
}

/// The simulated store.
#[derive(Debug)]
pub struct SimulatedStore {
    seed: u64,
    weather: Weather,
    cells: Mutex<BTreeMap<String, Arc<Cell>>>,
    handles: AtomicU64,
}

#[derive(Debug)]
struct Cell {
    store: Mutex<Store>,
    /// The number of changes of the record.
    changes: watch::Sender<u64>,
    weather: Weather,
}

/// A handle, with its own network.
#[derive(Debug)]
struct Handle {
    cell: Arc<Cell>,
    name: NodeId,
    rng: Mutex<Rng>,
    /// The count of changes at the store's last answer.
    seen: AtomicU64,
}

impl SimulatedStore {
    /// A store whose network is drawn from `seed`.
    #[must_use]
    pub fn new(seed: u64, weather: Weather) -> Self {
        Self { seed, weather, cells: Mutex::default(), handles: AtomicU64::new(0) }
    }

    fn cell(&self, election: &str) -> Arc<Cell> {
        let cell = || Cell { store: Mutex::default(), changes: watch::Sender::new(0), weather: self.weather };
        Arc::clone(hold(&self.cells).entry(election.to_owned()).or_insert_with(|| Arc::new(cell())))
    }
}

impl Harness for SimulatedStore {
    fn name(&self) -> String {
        "simulated".to_owned()
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities { lasting: true, deletion: true, ..Capabilities::NONE }
    }

    fn change_bound(&self) -> Duration {
        CHANGE_BOUND
    }

    fn patience(&self) -> Duration {
        // Paused time advances this far only if nothing else can happen.
        Duration::from_secs(3_600)
    }

    fn open<'a>(&'a self, election: &'a str) -> Pending<'a, Arc<dyn Register>> {
        let number = self.handles.fetch_add(1, Ordering::Relaxed);
        let name = NodeId::new(&format!("n{number}")).expect("a name");
        let rng = Mutex::new(Rng::new(self.seed.wrapping_mul(0x9E37_79B9).wrapping_add(number)));
        let cell = self.cell(election);
        let seen = AtomicU64::new(*cell.changes.borrow());
        Box::pin(async move { Arc::new(Handle { cell, name, rng, seen }) as Arc<dyn Register> })
    }

    fn erase<'a>(&'a self, election: &'a str) -> Pending<'a, ()> {
        Box::pin(async move {
            let cell = self.cell(election);
            hold(&cell.store).put(None);
            cell.changes.send_modify(|count| *count += 1);
        })
    }
}

impl Handle {
    /// Sends a request. Returns its reply, or `None` after the timeout.
    async fn ask(&self, message: Message) -> Option<Message> {
        self.travel().await;
        let mut reply = self.serve(&message);
        let is_doubled = match self.cell.weather {
            Weather::Calm | Weather::GoesBack => false,
            // A request that was refused did not reach the store, and cannot be doubled.
            Weather::Rough => !is_refused(reply.as_ref()) && self.one_in(8),
            Weather::AsksTwice => reply.is_none(),
        };
        if is_doubled {
            self.travel().await;
            let second = self.serve(&message);
            if self.cell.weather == Weather::AsksTwice {
                reply = reply.or(second);
            }
        }
        match reply {
            Some(reply) => {
                self.travel().await;
                Some(reply)
            }
            None => {
                tokio::time::sleep(TIMEOUT).await;
                None
            }
        }
    }

    fn serve(&self, message: &Message) -> Option<Message> {
        let mut store = hold(&self.cell.store);
        match self.cell.weather {
            Weather::Calm => {}
            Weather::Rough | Weather::AsksTwice => self.draw_weather(&mut store),
            Weather::GoesBack => {
                if self.one_in(30) {
                    store.rewind(1);
                }
            }
        }
        let served = store.serve(Moment::default(), self.name, message);
        if served.changed {
            self.cell.changes.send_modify(|count| *count += 1);
        }
        // A refusal contains no information about the record.
        let tells = match &served.reply {
            Some(
                Message::ReadReply { found: Some(_), .. } | Message::CompareAndSetReply { result: Ok(_), .. },
            ) => true,
            Some(
                Message::ReadReply { found: None, .. }
                | Message::CompareAndSetReply { result: Err(_), .. }
                | Message::Read { .. }
                | Message::CompareAndSet { .. }
                | Message::Changed,
            )
            | None => false,
        };
        if tells {
            self.seen.store(*self.cell.changes.borrow(), Ordering::SeqCst);
        }
        served.reply
    }

    fn draw_weather(&self, store: &mut Store) {
        store.heal();
        if self.one_in(12) {
            store.mood = if self.one_in(2) { Mood::Down } else { Mood::Silent };
        }
        if self.one_in(6) {
            let mishaps = [Mishap::ReplyLost, Mishap::UnknownButDone, Mishap::UnknownNotDone];
            let drawn = usize::try_from(self.draw(2)).expect("small");
            store.aim(self.name, mishaps[drawn]);
        }
    }

    async fn travel(&self) {
        let most = u64::try_from(DELAY_MAX.as_micros()).expect("short");
        tokio::time::sleep(Duration::from_micros(self.draw(most))).await;
    }

    fn one_in(&self, count: u64) -> bool {
        self.draw(count - 1) == 0
    }

    fn draw(&self, most: u64) -> u64 {
        hold(&self.rng).up_to(most)
    }
}

impl Register for Handle {
    fn read(&self) -> Pending<'_, Result<Option<(Record, Version)>, ReadError>> {
        Box::pin(async {
            let reply = self.ask(Message::Read { request: RequestId(0) }).await;
            match reply {
                Some(Message::ReadReply { found: Some(Found::Record { record, version }), .. }) => {
                    Ok(Some((record, version)))
                }
                Some(Message::ReadReply { found: Some(Found::Absent { .. }), .. }) => Ok(None),
                Some(
                    Message::ReadReply { found: None, .. }
                    | Message::Read { .. }
                    | Message::CompareAndSet { .. }
                    | Message::CompareAndSetReply { .. }
                    | Message::Changed,
                )
                | None => Err(ReadError::Unavailable { why: "no answer".to_owned() }),
            }
        })
    }

    fn compare_and_set<'a>(
        &'a self,
        expect: Option<&'a Version>,
        record: &'a Record,
    ) -> Pending<'a, Result<Version, SetError>> {
        Box::pin(async move {
            // Fails for a record that a real store would refuse.
            record::encode(record)?;
            let (request, expect) = (RequestId(0), expect.cloned());
            let reply = self.ask(Message::CompareAndSet { request, expect, record: record.clone() }).await;
            let why = || "no answer".to_owned();
            match reply {
                Some(Message::CompareAndSetReply { result: Ok(version), .. }) => Ok(version),
                Some(Message::CompareAndSetReply { result: Err(Refused::Conflict), .. }) => {
                    Err(SetError::Conflict)
                }
                Some(Message::CompareAndSetReply { result: Err(Refused::Unavailable), .. }) => {
                    Err(SetError::Unavailable { why: why() })
                }
                Some(
                    Message::CompareAndSetReply { result: Err(Refused::Unknown), .. }
                    | Message::Read { .. }
                    | Message::ReadReply { .. }
                    | Message::CompareAndSet { .. }
                    | Message::Changed,
                )
                | None => Err(SetError::Unknown { why: why() }),
            }
        })
    }

    fn changed(&self) -> Pending<'_, ()> {
        let mut changes = self.cell.changes.subscribe();
        Box::pin(async move {
            // An error would mean that the store is gone, but this handle keeps it.
            let _ = changes.wait_for(|count| *count != self.seen.load(Ordering::SeqCst)).await;
            self.travel().await;
        })
    }
}

/// True if the store has answered that it is unavailable.
fn is_refused(reply: Option<&Message>) -> bool {
    match reply {
        Some(
            Message::ReadReply { found: None, .. }
            | Message::CompareAndSetReply { result: Err(Refused::Unavailable), .. },
        ) => true,
        Some(
            Message::Read { .. }
            | Message::ReadReply { .. }
            | Message::CompareAndSet { .. }
            | Message::CompareAndSetReply { .. }
            | Message::Changed,
        )
        | None => false,
    }
}

fn hold<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
