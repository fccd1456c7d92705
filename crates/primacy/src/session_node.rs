//! An election over a store with sessions: the session machine over a queue.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use primacy_core::election::lease::Holder;
use primacy_core::election::session::{self, Message, RequestFailure, Session, SessionId};
use primacy_core::{Duration, ElectionTrigger, Endpoint, Identity, Input, NodeId, Protocol};
use primacy_stores::error_text::shortened;
use primacy_stores::{SessionError, Sessions};
use tokio::sync::{Notify, mpsc};
use tokio::task::JoinSet;

use crate::clock;
use crate::config::Config;
use crate::driver::announce::Announces;
use crate::driver::{AdminView, EffectHandler, Halt, Quiescent};
use crate::error::AdminError;
use crate::handshake::DiskId;
use crate::request_pace::RequestPace;
use crate::stats::Stats;
use crate::status::View;
use crate::store_health::{Operation, StoreRequest};

/// The effects of the session machine on its store. Requests run concurrently with the driver, and their answers arrive
/// as inputs.
#[derive(Debug)]
pub(crate) struct SessionsEffects {
    store: Arc<dyn Sessions>,
    answers: mpsc::UnboundedSender<Message>,
    inbox: mpsc::UnboundedReceiver<Message>,
    /// The request to the queue in progress; dropped with this effect handler, and by the next request to the queue.
    requests: JoinSet<()>,
    /// The keep-alive, which is independent of the requests to the queue.
    keep_alives: JoinSet<()>,
    _changes: JoinSet<()>,
    /// Notified when the store has shown its state: only then is a further change reported.
    looked: Rc<Notify>,
    leftover: Leftover,
    request_pace: RequestPace,
    stats: Arc<Stats>,
    /// The shortest session that is of use.
    timeout_min: Duration,
}

impl SessionsEffects {
    /// Creates the effect handler; must be called inside a `LocalSet`. Measurements go to `stats`, and a session shorter than
    /// `timeout_min` is logged as an error. The lease sets the pace of requests to the queue; keep-alives are not delayed.
    pub(crate) fn new(
        store: Arc<dyn Sessions>,
        stats: Arc<Stats>,
        lease: Duration,
        timeout_min: Duration,
    ) -> Self {
        // Unbounded, and always short: the machine has two requests in progress, and a change is reported once.
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
            leftover: Leftover::default(),
            request_pace: RequestPace::of_lease(lease),
            stats,
            timeout_min,
        }
    }

    /// Sends a request to the store.
    fn request(&mut self, message: Message) {
        let is_keep_alive = matches!(&message, Message::KeepAlive { .. });
        let requests = if is_keep_alive { &mut self.keep_alives } else { &mut self.requests };
        // The machine has given up the previous request, if there is one.
        requests.abort_all();
        while requests.try_join_next().is_some() {}
        let (store, answers, looked) =
            (Arc::clone(&self.store), self.answers.clone(), Rc::clone(&self.looked));
        let (stats, timeout_min) = (Arc::clone(&self.stats), self.timeout_min);
        if let Message::Leave { session, .. } | Message::End { session, .. } = &message {
            self.leftover.replace(Some(session.clone()));
        }
        let leftover = Rc::clone(&self.leftover);
        let may_be_sent = (!is_keep_alive).then(|| self.request_pace.next());
        requests.spawn_local(async move {
            if let Some(may_be_sent) = may_be_sent {
                may_be_sent.await;
            }
            let Some(answer) = answer(store.as_ref(), message, &leftover, &stats).await else { return };
            complain_of_a_short_session(&answer, timeout_min);
            if is_look(&answer) {
                looked.notify_one();
            }
            // The driver may have ended.
            let _ = answers.send(answer);
        });
    }
}

/// The session that the machine has asked to end, until the store has confirmed its end. The machine itself stops asking
/// after a while, because a session without keep-alives ends by itself. But other elections of this process may keep the
/// same session alive, and with it an entry without a candidate.
type Leftover = Rc<RefCell<Option<SessionId>>>;

/// Ends the leftover session.
async fn end_leftover(store: &dyn Sessions, leftover: &Leftover) -> Result<(), SessionError> {
    let session = leftover.borrow().clone();
    let Some(session) = session else { return Ok(()) };
    match store.end(&session).await {
        Ok(()) | Err(SessionError::Ended { .. }) => {
            leftover.take();
            Ok(())
        }
        Err(error @ (SessionError::NoAnswer { .. } | SessionError::Refused { .. })) => Err(error),
    }
}

async fn begin(
    store: &dyn Sessions,
    timeout: Duration,
    leftover: &Leftover,
) -> Result<(SessionId, Duration), SessionError> {
    // First, because the store may return the same session, with the entry of an ended leadership in it.
    end_leftover(store, leftover).await?;
    let begun = store.begin(timeout.into()).await?;
    Ok((begun.session, begun.timeout.into()))
}

async fn answer(
    store: &dyn Sessions,
    message: Message,
    leftover: &Leftover,
    stats: &Arc<Stats>,
) -> Option<Message> {
    let looking = || StoreRequest::begin(&stats.store, Operation::Read);
    let renewing = || StoreRequest::begin(&stats.store, Operation::Renewal);
    Some(match message {
        Message::Begin { request, timeout } => {
            let begun = renewing().run(begin(store, timeout, leftover)).await;
            Message::BeginReply { request, result: begun.map_err(told) }
        }
        Message::KeepAlive { request, session } => {
            let result = renewing().run(store.keep_alive(&session)).await;
            Message::KeepAliveReply { request, result: result.map(Duration::from).map_err(told) }
        }
        Message::Campaign { request, session, holder } => {
            let result = looking().run(store.campaign(&session, &holder)).await.map_err(told);
            Message::CampaignReply { request, result }
        }
        Message::Leave { request, session } => {
            let left = renewing().run(store.leave(&session)).await;
            if matches!(left, Err(SessionError::Ended { .. })) {
                leftover.take();
            }
            Message::LeaveReply { request, result: left.map_err(told) }
        }
        Message::End { request, session: _ } => {
            let ended = renewing().run(end_leftover(store, leftover)).await;
            Message::EndReply { request, result: ended.map_err(told) }
        }
        Message::First { request } => {
            // The first entry is read concurrently, whether or not the leftover session ends.
            let (first, _) = tokio::join!(looking().run(store.first()), end_leftover(store, leftover));
            Message::FirstReply { request, result: first.map_err(told) }
        }
        Message::Evict { request, dead } => {
            let evicted = renewing().run(store.evict(&dead)).await;
            Message::EvictReply { request, result: evicted.map_err(told) }
        }
        Message::BeginReply { .. }
        | Message::KeepAliveReply { .. }
        | Message::CampaignReply { .. }
        | Message::LeaveReply { .. }
        | Message::EndReply { .. }
        | Message::FirstReply { .. }
        | Message::EvictReply { .. }
        | Message::Changed => return None,
    })
}

/// Converts a failure for the machine; the store's health keeps the details.
fn told(error: SessionError) -> RequestFailure {
    if let SessionError::Ended { why } = &error {
        tracing::warn!(why = %shortened(why), "the session of this node has ended");
    }
    error.into()
}

fn complain_of_a_short_session(answer: &Message, timeout_min: Duration) {
    let Message::BeginReply { result: Ok((_, timeout)), .. } = answer else { return };
    if *timeout < timeout_min {
        tracing::error!(
            given = %timeout,
            needed = %timeout_min,
            "the store ends sessions so soon that the work could not drain in one, so this node does not campaign; shorten \
             the drain, or let the store give longer sessions"
        );
    }
}

/// True if the answer shows the state of the store.
fn is_look(answer: &Message) -> bool {
    match answer {
        Message::CampaignReply { result, .. } => result.is_ok(),
        Message::FirstReply { result, .. } => result.is_ok(),
        Message::Begin { .. } | Message::BeginReply { .. } => false,
        Message::KeepAlive { .. } | Message::KeepAliveReply { .. } => false,
        Message::Leave { .. } | Message::LeaveReply { .. } => false,
        Message::End { .. } | Message::EndReply { .. } => false,
        Message::Evict { .. } | Message::EvictReply { .. } => false,
        Message::Campaign { .. } | Message::First { .. } | Message::Changed => false,
    }
}

/// Reports a change once, until the machine has read the store: while the store cannot be read, it reports no more
/// changes.
async fn tell_changes(store: Arc<dyn Sessions>, answers: mpsc::UnboundedSender<Message>, looked: Rc<Notify>) {
    loop {
        looked.notified().await;
        store.changed().await;
        if answers.send(Message::Changed).is_err() {
            return;
        }
    }
}

impl<P: Protocol<Message = Message, Durable = ()>> EffectHandler<P> for SessionsEffects {
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

impl AdminView<Session> for SessionsEffects {
    fn view(&self, machine: &Session) -> View {
        View::Sessions(Box::new(machine.status()))
    }

    fn readmit(&mut self, _: NodeId) -> Result<DiskId, AdminError> {
        Err(AdminError::OverAStore)
    }
}

impl Quiescent for Session {
    fn is_settled(&self) -> bool {
        Self::is_settled(self)
    }

    fn trigger(&self) -> Option<ElectionTrigger> {
        None // The queue shows who is first, and not how the one before went.
    }
}

impl Announces for Session {}

/// Creates the machine of one candidate or observer.
pub(crate) fn machine(config: &Config, me: Identity) -> Session {
    let timers = &config.timers;
    let session = session::Config {
        me: Holder { identity: me, address: config.address.clone() },
        timeout: timers.lease.into(),
        timeout_min: timers.session_min().into(),
        drift_max: timers.drift_max,
        keep_alive_interval: timers.renewal.into(),
        // If the store reports changes, reads are only a precaution.
        look_interval: timers.renewal.into(),
        request_timeout: timers.answer_timeout.into(),
        poll_interval: timers.poll_interval.into(),
    };
    Session::new(session, clock::now())
}

#[cfg(test)]
mod tests {
    use primacy_core::election::lease::RequestId;
    use primacy_core::election::session::QueuePosition;
    use primacy_core::{FencingToken, Incarnation};
    use primacy_stores::faulty::{Fault, FaultSwitch, FaultySessions};
    use primacy_stores::memory::MemorySessions;
    use tokio::task::LocalSet;

    use super::*;

    /// Longer than any test.
    const TIMEOUT: Duration = Duration::from_secs(600);

    /// An effect handler over a store in memory, and the switch of its faults.
    fn effects(name: &str) -> (SessionsEffects, Arc<MemorySessions>, FaultSwitch) {
        let memory = Arc::new(MemorySessions::open(name, "e"));
        let (faulty, switch) = FaultySessions::new(Arc::clone(&memory) as Arc<dyn Sessions>);
        (
            SessionsEffects::new(Arc::new(faulty), Arc::new(Stats::new()), TIMEOUT, Duration::ZERO),
            memory,
            switch,
        )
    }

    async fn ask(effects: &mut SessionsEffects, message: Message) -> Message {
        effects.request(message);
        effects.inbox.recv().await.expect("this effects holds a sender itself")
    }

    async fn begin(effects: &mut SessionsEffects) -> SessionId {
        let told = ask(effects, Message::Begin { request: RequestId(1), timeout: TIMEOUT }).await;
        let Message::BeginReply { result: Ok((session, _)), .. } = told else { panic!("{told:?}") };
        session
    }

    /// Begins a session, and gets the first entry in the queue.
    async fn lead(effects: &mut SessionsEffects) -> (SessionId, FencingToken) {
        let session = begin(effects).await;
        let identity = Identity::new("a".parse().expect("a name"), Incarnation { count: 1, nonce: 1 });
        let holder = Holder { identity, address: String::new() };
        let campaign = Message::Campaign { request: RequestId(2), session: session.clone(), holder };
        let told = ask(effects, campaign).await;
        let Message::CampaignReply { result: Ok(QueuePosition::First { token, .. }), .. } = told else {
            panic!("{told:?}")
        };
        (session, token)
    }

    /// Leaves while the store does not answer, until the machine gives up the session.
    async fn lead_and_be_cut_off(effects: &mut SessionsEffects, switch: &FaultSwitch) -> FencingToken {
        let (session, token) = lead(effects).await;
        switch.always(Fault::Unavailable);
        let left = ask(effects, Message::Leave { request: RequestId(3), session }).await;
        let unknown = Message::LeaveReply { request: RequestId(3), result: Err(RequestFailure::NoAnswer) };
        assert_eq!(left, unknown);
        token
    }

    #[tokio::test]
    async fn whoever_begins_anew_has_left_what_was_given_up() {
        let test = async {
            let (mut effects, memory, switch) = effects("begins-anew");
            let earlier = lead_and_be_cut_off(&mut effects, &switch).await;
            let begin_again = Message::Begin { request: RequestId(4), timeout: TIMEOUT };
            let cut_off =
                Message::BeginReply { request: RequestId(4), result: Err(RequestFailure::NoAnswer) };
            assert_eq!(ask(&mut effects, begin_again).await, cut_off);
            switch.always(Fault::None);
            let (_, token) = lead(&mut effects).await;
            assert!(token > earlier, "{token} after {earlier}");
            assert_eq!((memory.entries().len(), memory.sessions()), (1, 1));
        };
        LocalSet::new().run_until(test).await;
    }

    #[tokio::test]
    async fn whoever_only_looks_leaves_nothing_of_what_was_given_up() {
        let test = async {
            let (mut effects, memory, switch) = effects("only-looks");
            lead_and_be_cut_off(&mut effects, &switch).await;
            let look = || Message::First { request: RequestId(5) };
            let cut_off =
                Message::FirstReply { request: RequestId(5), result: Err(RequestFailure::NoAnswer) };
            assert_eq!(ask(&mut effects, look()).await, cut_off);
            assert_eq!(memory.entries().len(), 1);
            switch.always(Fault::None);
            assert!(matches!(ask(&mut effects, look()).await, Message::FirstReply { result: Ok(_), .. }));
            assert_eq!((memory.entries().len(), memory.sessions()), (0, 0));
        };
        LocalSet::new().run_until(test).await;
    }
}
