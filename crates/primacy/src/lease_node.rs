//! An election over a store: the lease machine over a register.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;

use primacy_core::election::lease::{self, Found, Lease, Message, SetError};
use primacy_core::{Duration, ElectionTrigger, Endpoint, FencingToken, Identity, Input, NodeId, Protocol};
use primacy_stores::Register;
use tokio::sync::{Notify, mpsc};
use tokio::task::JoinSet;

use crate::clock;
use crate::config::{Config, LEASE};
use crate::driver::{AdminView, EffectHandler, Halt, Quiescent};
use crate::error::AdminError;
use crate::handshake::DiskId;
use crate::request_pace::RequestPace;
use crate::stats::Stats;
use crate::status::View;
use crate::store_health::{Operation, StoreRequest};

/// The effects of the lease machine on its store. Requests run concurrently with the driver, and their answers arrive
/// as inputs.
#[derive(Debug)]
pub(crate) struct StoreEffects {
    register: Arc<dyn Register>,
    answers: mpsc::UnboundedSender<Message>,
    inbox: mpsc::UnboundedReceiver<Message>,
    /// The request in progress; dropped with this effect handler, and by the next request.
    requests: JoinSet<()>,
    _changes: JoinSet<()>,
    pace: Rc<Pace>,
    request_pace: RequestPace,
    stats: Arc<Stats>,
}

/// The state that decides whether a change is reported.
#[derive(Debug, Default)]
struct Pace {
    /// Notified when the store has answered: only then is a further change reported.
    looked: Notify,
    /// The number of requests in progress: one, and cancelled requests that have not ended yet.
    requests: Cell<usize>,
}

/// Counts a request as in progress until dropped.
struct UnderWay(Rc<Pace>);

impl UnderWay {
    fn new(pace: &Rc<Pace>) -> Self {
        pace.requests.set(pace.requests.get() + 1);
        Self(Rc::clone(pace))
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.0.requests.set(self.0.requests.get() - 1);
    }
}

impl StoreEffects {
    /// Creates the effect handler; must be called inside a `LocalSet`.
    pub(crate) fn new(register: Arc<dyn Register>) -> Self {
        Self::measured(register, Arc::default(), LEASE.into())
    }

    /// As [`new`](Self::new), with measurements to `stats`. The lease sets the pace of requests.
    pub(crate) fn measured(register: Arc<dyn Register>, stats: Arc<Stats>, lease: Duration) -> Self {
        // Unbounded, and always short: the machine has one request in progress, and a change is reported once.
        let (answers, inbox) = mpsc::unbounded_channel();
        let (pace, mut changes) = (Rc::<Pace>::default(), JoinSet::new());
        changes.spawn_local(tell_changes(Arc::clone(&register), answers.clone(), Rc::clone(&pace)));
        let request_pace = RequestPace::of_lease(lease);
        let requests = JoinSet::new();
        Self { register, answers, inbox, requests, _changes: changes, pace, request_pace, stats }
    }

    /// Sends a request to the store.
    fn request(&mut self, message: Message) {
        // The machine has given up the previous request, if there is one, and will read its outcome.
        self.requests.abort_all();
        while self.requests.try_join_next().is_some() {}
        let (register, answers) = (Arc::clone(&self.register), self.answers.clone());
        let (stats, under_way) = (Arc::clone(&self.stats), UnderWay::new(&self.pace));
        let may_be_sent = self.request_pace.next();
        self.requests.spawn_local(async move {
            may_be_sent.await;
            if let Some(answer) = answer(register.as_ref(), message, &stats).await {
                if is_look(&answer) {
                    under_way.0.looked.notify_one();
                }
                // The driver may have ended.
                let _ = answers.send(answer);
            }
        });
    }
}

async fn answer(register: &dyn Register, message: Message, stats: &Arc<Stats>) -> Option<Message> {
    match message {
        Message::Read { request } => {
            let read = StoreRequest::begin(&stats.store, Operation::Read).run(register.read()).await;
            let record = |(record, version)| Found::Record { record, version };
            // Errors are reported by the store's health.
            let found = read.ok().map(|found| found.map_or_else(absent, record));
            Some(Message::ReadReply { request, found })
        }
        Message::CompareAndSet { request, expect, record } => {
            let writing = register.compare_and_set(expect.as_ref(), &record);
            let result = StoreRequest::begin(&stats.store, Operation::Renewal).run(writing).await;
            Some(Message::CompareAndSetReply { request, result: result.map_err(SetError::from) })
        }
        Message::ReadReply { .. } | Message::CompareAndSetReply { .. } | Message::Changed => None,
    }
}

/// The milliseconds since 1970 are above the token of any deleted record, because no election has had a thousand
/// leaders a second since its creation.
fn absent() -> Found {
    Found::Absent { first_token: FencingToken(clock::wall_millis()) }
}

/// True if the answer shows the state of the store.
fn is_look(answer: &Message) -> bool {
    match answer {
        Message::ReadReply { found, .. } => found.is_some(),
        Message::CompareAndSetReply { result, .. } => result.is_ok(),
        Message::Read { .. } | Message::CompareAndSet { .. } | Message::Changed => false,
    }
}

/// Reports a change once, until the machine has read the store: while the store cannot be read, it reports no more changes. A
/// change during a request is not reported before the answer, because the store may report this node's own write before it
/// answers it. An additional read then would cost the old and the new leader a round trip while the others wait.
async fn tell_changes(register: Arc<dyn Register>, answers: mpsc::UnboundedSender<Message>, pace: Rc<Pace>) {
    loop {
        pace.looked.notified().await;
        register.changed().await;
        if pace.requests.get() > 0 {
            continue; // What is not shown by its answer is told behind it.
        }
        if answers.send(Message::Changed).is_err() {
            return;
        }
    }
}

impl<P: Protocol<Message = Message, Durable = ()>> EffectHandler<P> for StoreEffects {
    fn persist(&mut self, (): ()) -> Result<(), Halt> {
        Ok(()) // What must not be forgotten is in the store.
    }

    fn send(&mut self, to: Endpoint, message: Message) {
        match to {
            Endpoint::Store => self.request(message),
            Endpoint::Node(_) | Endpoint::Client => {} // The candidates do not talk to each other.
        }
    }

    async fn arrival(&mut self) -> Result<Input<Message>, Halt> {
        match self.inbox.recv().await {
            Some(message) => Ok(Input::Message { from: Endpoint::Store, message }),
            None => std::future::pending().await, // This effects holds a sender itself.
        }
    }
}

impl AdminView<Lease> for StoreEffects {
    fn view(&self, machine: &Lease) -> View {
        View::Store(Box::new(machine.status()))
    }

    fn readmit(&mut self, _: NodeId) -> Result<DiskId, AdminError> {
        Err(AdminError::OverAStore)
    }
}

impl Quiescent for Lease {
    fn is_settled(&self) -> bool {
        Self::is_settled(self)
    }

    fn trigger(&self) -> Option<ElectionTrigger> {
        None // The record shows who held it, and not how that ended.
    }
}

/// Creates the machine of one candidate.
pub(crate) fn machine(config: &Config, me: Identity, seed: u64) -> Lease {
    let timers = &config.timers;
    let lease = lease::Config {
        me,
        address: config.address.clone(),
        duration: timers.lease.into(),
        drift_max: timers.drift_max,
        renew_interval: timers.renewal.into(),
        request_timeout: timers.answer_timeout.into(),
        poll_interval: timers.poll_interval.into(),
        seed,
    };
    Lease::new(lease, clock::now())
}

#[cfg(test)]
mod tests {
    use primacy_core::election::lease::{Record, RequestId, Version};
    use primacy_stores::memory::MemoryRegister;
    use primacy_stores::{Pending, ReadError};
    use tokio::task::{LocalSet, yield_now};

    use super::*;

    /// A store that reports a write before it answers it, and answers only when permitted.
    #[derive(Debug)]
    struct Early {
        inner: MemoryRegister,
        told: Notify,
        answered: Notify,
    }

    impl Early {
        fn open(name: &str) -> Arc<Self> {
            let inner = MemoryRegister::open(name, "orders");
            Arc::new(Self { inner, told: Notify::new(), answered: Notify::new() })
        }
    }

    impl Register for Early {
        fn read(&self) -> Pending<'_, Result<Option<(Record, Version)>, ReadError>> {
            Box::pin(async {
                let found = self.inner.read().await;
                self.answered.notified().await;
                found
            })
        }

        fn compare_and_set<'a>(
            &'a self,
            expect: Option<&'a Version>,
            record: &'a Record,
        ) -> Pending<'a, Result<Version, primacy_stores::SetError>> {
            Box::pin(async move {
                let written = self.inner.compare_and_set(expect, record).await;
                self.told.notify_one();
                self.answered.notified().await;
                written
            })
        }

        fn changed(&self) -> Pending<'_, ()> {
            Box::pin(async {
                tokio::select! {
                    () = self.told.notified() => {}
                    () = self.inner.changed() => {}
                }
            })
        }
    }

    fn record(token: u64) -> Record {
        Record::released(FencingToken(token), Duration::ZERO)
    }

    #[tokio::test]
    async fn what_the_store_tells_of_a_write_before_it_answers_is_no_news() {
        let name = "what_the_store_tells";
        let (early, other) = (Early::open(name), MemoryRegister::open(name, "orders"));
        let test = async {
            let mut effects = StoreEffects::new(Arc::<Early>::clone(&early));
            early.answered.notify_one();
            effects.request(Message::Read { request: RequestId(1) });
            assert!(matches!(effects.inbox.recv().await, Some(Message::ReadReply { .. })));
            let write = Message::CompareAndSet { request: RequestId(2), expect: None, record: record(1) };
            effects.request(write);
            while other.read().await.unwrap().is_none() {
                yield_now().await;
            }
            settle().await;
            assert!(effects.inbox.is_empty(), "before the answer: {:?}", effects.inbox.try_recv());
            early.answered.notify_one();
            let reply = effects.inbox.recv().await;
            assert!(matches!(reply, Some(Message::CompareAndSetReply { result: Ok(_), .. })), "{reply:?}");
            settle().await;
            assert!(effects.inbox.is_empty(), "behind the answer: {:?}", effects.inbox.try_recv());
            // The write of another process must be reported.
            let (_, version) = other.read().await.unwrap().unwrap();
            other.compare_and_set(Some(&version), &record(2)).await.unwrap();
            assert_eq!(effects.inbox.recv().await, Some(Message::Changed));
        };
        LocalSet::new().run_until(test).await;
    }

    #[tokio::test]
    async fn what_comes_while_a_read_is_under_way_is_told_once_behind_it() {
        let name = "what_comes_while";
        let (early, other) = (Early::open(name), MemoryRegister::open(name, "orders"));
        let test = async {
            let mut effects = StoreEffects::new(Arc::<Early>::clone(&early));
            for request in [1, 2] {
                effects.request(Message::Read { request: RequestId(request) });
                settle().await;
                let found = other.read().await.unwrap();
                let version = found.as_ref().map(|(_, version)| version);
                other.compare_and_set(version, &record(request)).await.unwrap();
                settle().await;
                assert!(effects.inbox.is_empty(), "before the answer: {:?}", effects.inbox.try_recv());
                early.answered.notify_one();
                let reply = effects.inbox.recv().await;
                assert!(matches!(reply, Some(Message::ReadReply { .. })), "{reply:?}");
                assert_eq!(effects.inbox.recv().await, Some(Message::Changed));
                settle().await;
                assert!(effects.inbox.is_empty(), "once: {:?}", effects.inbox.try_recv());
            }
        };
        LocalSet::new().run_until(test).await;
    }

    /// Runs every task that is ready.
    async fn settle() {
        for _ in 0..100 {
            yield_now().await;
        }
    }
}
