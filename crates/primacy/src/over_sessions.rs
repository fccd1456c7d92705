//! An election over a store that keeps sessions: the session machine, and a queue that answers it.

use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use primacy_core::election::lease::Holder;
use primacy_core::election::session::{self, Message, Session, Trouble};
use primacy_core::{Duration, Endpoint, Identity, Input, NodeId, Occasion, Protocol};
use primacy_stores::{SessionError, Sessions};
use tokio::sync::{Notify, mpsc};
use tokio::task::JoinSet;

use crate::announce::Announces;
use crate::clock;
use crate::config::Config;
use crate::driver::{Asked, Halt, Settles, World};
use crate::handshake::DiskId;
use crate::measures::Measures;
use crate::operator::AskError;
use crate::status::View;

/// The store, as the machine sees it. Requests run beside the driver, and their answers come as arrivals.
#[derive(Debug)]
pub(crate) struct SessionsWorld {
    store: Arc<dyn Sessions>,
    answers: mpsc::UnboundedSender<Message>,
    inbox: mpsc::UnboundedReceiver<Message>,
    /// What the queue is asked; it ends with this world, and with the next request to the queue.
    requests: JoinSet<()>,
    /// The keep-alive, which waits for none of these.
    keep_alives: JoinSet<()>,
    _changes: JoinSet<()>,
    /// Told when the store has shown what it has: only then is a further change news.
    looked: Rc<Notify>,
    measures: Arc<Measures>,
    /// A session that is shorter is of no use.
    timeout_min: Duration,
}

impl SessionsWorld {
    /// To be called inside a `LocalSet`. What is measured goes to `measures`, and a session that is shorter than
    /// `timeout_min` is complained of.
    pub(crate) fn new(store: Arc<dyn Sessions>, measures: Arc<Measures>, timeout_min: Duration) -> Self {
        // Unbounded, and yet never long: the machine has two requests under way, and a change is told once.
        let (answers, inbox) = mpsc::unbounded_channel();
        let (looked, mut changes) = (Rc::new(Notify::new()), JoinSet::new());
        changes.spawn_local(tell_changes(Arc::clone(&store), answers.clone(), Rc::clone(&looked)));
        Self {
            store,
            answers,
            inbox,
            requests: JoinSet::new(),
            keep_alives: JoinSet::new(),
            _changes: changes,
            looked,
            measures,
            timeout_min,
        }
    }

    /// Sends a request to the store.
    fn request(&mut self, message: Message) {
        let is_keep_alive = matches!(&message, Message::KeepAlive { .. });
        let requests = if is_keep_alive { &mut self.keep_alives } else { &mut self.requests };
        // The machine has given up the one before, if there is one.
        requests.abort_all();
        while requests.try_join_next().is_some() {}
        let (store, answers, looked) =
            (Arc::clone(&self.store), self.answers.clone(), Rc::clone(&self.looked));
        let (measures, timeout_min) = (Arc::clone(&self.measures), self.timeout_min);
        requests.spawn_local(async move {
            let began = clock::now();
            let Some(answer) = answer(store.as_ref(), message, &measures).await else { return };
            measures.store_requests.observe(clock::now().since(began));
            complain_of_a_short_session(&answer, timeout_min);
            if is_look(&answer) {
                looked.notify_one();
            }
            // The driver may have ended.
            let _ = answers.send(answer);
        });
    }
}

async fn answer(store: &dyn Sessions, message: Message, measures: &Measures) -> Option<Message> {
    let told = |error| told(error, measures);
    Some(match message {
        Message::Begin { request, timeout } => {
            let begun = store.begin(timeout.into()).await;
            let result = begun.map(|begun| (begun.session, begun.timeout.into())).map_err(told);
            Message::BeginReply { request, result }
        }
        Message::KeepAlive { request, session } => {
            let result = store.keep_alive(&session).await.map(Duration::from).map_err(told);
            Message::KeepAliveReply { request, result }
        }
        Message::Stand { request, session, holder } => {
            let result = store.stand(&session, &holder).await.map_err(told);
            Message::StandReply { request, result }
        }
        Message::Leave { request, session } => {
            Message::LeaveReply { request, result: store.leave(&session).await.map_err(told) }
        }
        Message::End { request, session } => {
            Message::EndReply { request, result: store.end(&session).await.map_err(told) }
        }
        Message::First { request } => {
            let first = store.first().await;
            if first.is_err() {
                measures.store_reads_failed.fetch_add(1, Ordering::Relaxed);
            }
            Message::FirstReply { request, result: first.map_err(told) }
        }
        Message::Evict { request, dead } => {
            Message::EvictReply { request, result: store.evict(&dead).await.map_err(told) }
        }
        Message::BeginReply { .. }
        | Message::KeepAliveReply { .. }
        | Message::StandReply { .. }
        | Message::LeaveReply { .. }
        | Message::EndReply { .. }
        | Message::FirstReply { .. }
        | Message::EvictReply { .. }
        | Message::Changed => return None,
    })
}

/// What the machine may make of it; the rest is for people.
fn told(error: SessionError, measures: &Measures) -> Trouble {
    match &error {
        SessionError::Ended { .. } => tracing::warn!(%error, "this node's session is gone"),
        SessionError::NoAnswer { .. } => {
            measures.store_writes_failed.fetch_add(1, Ordering::Relaxed);
            tracing::warn!(%error, "what was asked of the store may not have been done");
        }
        SessionError::Refused { .. } => {
            measures.store_writes_failed.fetch_add(1, Ordering::Relaxed);
            tracing::error!(%error, "nobody is elected over this store here until it allows it");
        }
    }
    error.into()
}

fn complain_of_a_short_session(answer: &Message, timeout_min: Duration) {
    let Message::BeginReply { result: Ok((_, timeout)), .. } = answer else { return };
    if *timeout < timeout_min {
        tracing::error!(
            given = %timeout,
            needed = %timeout_min,
            "the store ends sessions so soon that the work could not drain in one, so this node does not stand; shorten \
             the drain, or let the store give longer sessions"
        );
    }
}

/// Whether the store has shown what it has.
fn is_look(answer: &Message) -> bool {
    match answer {
        Message::StandReply { result, .. } => result.is_ok(),
        Message::FirstReply { result, .. } => result.is_ok(),
        Message::Begin { .. } | Message::BeginReply { .. } => false,
        Message::KeepAlive { .. } | Message::KeepAliveReply { .. } => false,
        Message::Leave { .. } | Message::LeaveReply { .. } => false,
        Message::End { .. } | Message::EndReply { .. } => false,
        Message::Evict { .. } | Message::EvictReply { .. } => false,
        Message::Stand { .. } | Message::First { .. } | Message::Changed => false,
    }
}

/// Tells of a change once, until the machine has looked: a store that cannot be read has no news, however often it
/// says that it has.
async fn tell_changes(store: Arc<dyn Sessions>, answers: mpsc::UnboundedSender<Message>, looked: Rc<Notify>) {
    loop {
        looked.notified().await;
        store.changed().await;
        if answers.send(Message::Changed).is_err() {
            return;
        }
    }
}

impl<P: Protocol<Message = Message, Durable = ()>> World<P> for SessionsWorld {
    fn persist(&mut self, (): ()) -> Result<(), Halt> {
        Ok(()) // What must not be forgotten is in the store.
    }

    fn send(&mut self, to: Endpoint, message: Message) {
        match to {
            Endpoint::Store => self.request(message),
            Endpoint::Node(_) => {} // The candidates do not talk to each other.
        }
    }

    async fn arrival(&mut self) -> Result<Input<Message>, Halt> {
        match self.inbox.recv().await {
            Some(message) => Ok(Input::Message { from: Endpoint::Store, message }),
            None => std::future::pending().await, // This world holds a sender itself.
        }
    }
}

impl Asked<Session> for SessionsWorld {
    fn view(&self, machine: &Session) -> View {
        View::Sessions(Box::new(machine.status()))
    }

    fn readmit(&mut self, _: NodeId) -> Result<DiskId, AskError> {
        Err(AskError::OverAStore)
    }
}

impl Settles for Session {
    fn is_settled(&self) -> bool {
        Self::is_settled(self)
    }

    fn occasion(&self) -> Option<Occasion> {
        None // The queue shows who is first, and not how the one before went.
    }
}

impl Announces for Session {}

/// The machine of one candidate, or of one observer.
pub(crate) fn machine(config: &Config, me: Identity) -> Session {
    let timers = &config.timers;
    let session = session::Config {
        me: Holder { identity: me, address: config.address.clone() },
        timeout: timers.lease.into(),
        timeout_min: timers.session_min().into(),
        drift_max: timers.drift_max,
        keep_alive_interval: timers.renewal.into(),
        // Where the store tells of changes, a look is only there to make sure.
        look_interval: timers.renewal.into(),
        request_timeout: timers.answer_timeout.into(),
        poll_interval: timers.poll_interval.into(),
    };
    Session::new(session, clock::now())
}
