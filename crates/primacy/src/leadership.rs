//! A leader's hold on the lead: its token, its end of validity, and the means to stop in order.
//!
//! A leadership ends in the same order everywhere: **stop accepting, drain, release**. [`Leadership::check`] fails from the first
//! step on; the release waits until every [`WorkGuard`] is dropped, and the lead is renewed until then. If it is lost before, it ends
//! at [`Leadership::valid_until`].

use std::future::Future;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use std::time::Duration;

use primacy_core::{
    ElectionTrigger, FencingToken, Instant, Leader, LeaderSequence, Mandate, NodeId, Reason, Term, Violation,
};
use tokio::sync::{Notify, mpsc, watch};

pub(crate) mod request;

use self::request::{Request, publish};
use crate::clock;
use crate::error::PublishError;
use crate::progress::Progress;
use crate::status::Lead;

/// A leadership of this node, present or past: [`check`](Self::check) tells which.
///
/// Dropping it gives up the lead: `check` fails at once, and the lead is released when all guards are dropped.
///
/// A leadership does *not* tell how fresh the leader's reads are; call `check` after the read. A machine whose clocks stop defeats
/// every lease; only a resource that checks the [token](Self::token) does not depend on time.
///
/// `M` is the leader's mandate. With a [`FencingToken`], as from [`Elector::campaign`](crate::Elector::campaign), no
/// other leadership of the election has the same token. A [`Mandate`], as from
/// [`Elector::campaign_any`](crate::Elector::campaign_any), may be advisory and without a token.
#[derive(Debug)]
pub struct Leadership<M = FencingToken> {
    held: Held,
    mandate: M,
}

/// The hold on a leadership; dropping it gives up the lead.
#[derive(Debug)]
struct Held {
    cell: Arc<Cell>,
    requests: mpsc::UnboundedSender<Request>,
}

/// Work that must end before the lead is released. Hold a guard for as long as work runs that only a leader may do. When the
/// leadership is to end, the release waits until every guard is dropped, and the lead is renewed until then: no other node works at
/// the same time. So a guard that is never dropped keeps the lead for as long as this process runs and reaches the others; the log
/// warns of it, and [`Status::kept_by`](crate::Status::kept_by) shows it.
#[derive(Debug)]
pub struct WorkGuard<M = FencingToken> {
    counted: Counted,
    mandate: M,
}

/// Counts one piece of work as in progress until dropped.
#[derive(Debug)]
struct Counted(Arc<Cell>);

/// Error: this node does not lead any more, or is about to stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the leadership of term {term} has ended: {}", .reason.map_or("its time has passed", describe))]
pub struct Lost {
    /// The leadership that has ended.
    pub term: Term,
    /// The reason, if it is known; `None` if the leadership expired and nothing else is known.
    pub reason: Option<Reason>,
}

/// Describes the reason for which a leadership ended.
#[must_use]
pub const fn describe(reason: Reason) -> &'static str {
    match reason {
        Reason::Resigned => "it was given up",
        Reason::Transferred(_) => "it was handed to another node",
        Reason::Unhealthy => "its health check failed, or its work made no progress",
        Reason::Expired => "it could not be renewed in time",
        Reason::Undecided => {
            "the other members are lost, and the store is asked which part of the cluster goes on"
        }
        Reason::HigherTerm(_) => "another node had a higher term",
        Reason::Overwritten => "another process took the record",
        Reason::Removed => "its record, or its entry, was deleted from the store",
        Reason::SessionEnded => "the store ended its session",
        Reason::DiskLost => "the others know this node with another disk",
        Reason::Violation => "something was seen that must never be",
        Reason::Halted => "this node cannot go on",
    }
}

impl Leadership<Mandate> {
    pub(crate) fn new(cell: Arc<Cell>, requests: mpsc::UnboundedSender<Request>) -> Self {
        let mandate = cell.mandate;
        Self { held: Held { cell, requests }, mandate }
    }

    /// The leader's mandate: `Fenced` with a token, or `Advisory`.
    #[must_use]
    pub const fn mandate(&self) -> Mandate {
        self.mandate
    }

    /// Converts to a leadership with a token.
    ///
    /// # Errors
    /// This leadership, unchanged, if it is advisory.
    pub fn fenced(self) -> Result<Leadership, Self> {
        match self.mandate {
            Mandate::Fenced(token) => Ok(Leadership { held: self.held, mandate: token }),
            Mandate::Advisory => Err(self),
        }
    }
}

impl Leadership {
    /// The fencing token, to present to every resource with every request. It is higher than that of every earlier
    /// leadership of this election.
    #[must_use]
    pub const fn token(&self) -> FencingToken {
        self.mandate
    }
}

impl<M: Copy> Leadership<M> {
    /// The number of this leadership.
    #[must_use]
    pub fn term(&self) -> Term {
        self.held.cell.leader.term
    }

    /// The leader: this incarnation, and the term.
    #[must_use]
    pub fn leader(&self) -> Leader {
        self.held.cell.leader
    }

    /// The trigger of this node's campaign; `None` if the election does not report it, as over a store. It is information only:
    /// with any trigger, the others have voted.
    #[must_use]
    pub fn trigger(&self) -> Option<ElectionTrigger> {
        self.held.cell.trigger
    }

    /// The time until which this node leads unless it is renewed, on the clock of [`clock::now`]. It moves with every renewal, also
    /// while the work drains. [`Instant::NEVER`] in an advisory election.
    #[must_use]
    pub fn valid_until(&self) -> Instant {
        self.held.cell.state.borrow().valid_until
    }

    /// The time for which one renewal lasts if that is less than the lease, because peers with a shorter lease promise their
    /// support for no longer. The drain and the kill margin are shortened in proportion, to fit into it.
    #[must_use]
    pub fn granted(&self) -> Option<Duration> {
        self.held.cell.granted().map(Into::into)
    }

    /// Checks that this node may act as the leader now. Call it right before each act, and after each read on which the
    /// act depends.
    ///
    /// It takes no lock and makes no request: it compares the boot clock with the end of the lease. So it fails in time even if
    /// nothing else of this process has run.
    ///
    /// # Errors
    /// [`Lost`] from the moment the work must stop, and in any case from [`valid_until`](Self::valid_until) on.
    pub fn check(&self) -> Result<(), Lost> {
        self.held.cell.check()
    }

    /// Begins work that must end before the lead is released.
    ///
    /// # Errors
    /// [`Lost`] as [`check`](Self::check).
    pub fn guard(&self) -> Result<WorkGuard<M>, Lost> {
        let cell = &self.held.cell;
        cell.guards.fetch_add(1, Ordering::SeqCst);
        let guard = WorkGuard { counted: Counted(Arc::clone(cell)), mandate: self.mandate };
        // The guard is counted before it checks, and the driver refuses new work before it counts: so one of them sees
        // the other.
        cell.check().map(|()| guard)
    }

    /// The next number for a message or record of this leader: `(term, 1)`, `(term, 2)`, and so on. The numbers of
    /// later leaders are higher.
    #[must_use]
    pub fn next_sequence(&self) -> LeaderSequence {
        let counter = self.held.cell.sent.fetch_add(1, Ordering::Relaxed) + 1;
        LeaderSequence { term: self.held.cell.leader.term, counter }
    }

    /// Resolves when the work must stop, with the reason: this node is asked to resign, the lease is about to end, or the leadership
    /// is lost. From then on [`check`](Self::check) fails.
    ///
    /// Cancel safe.
    pub async fn ended(&self) -> Reason {
        self.held.cell.ended().await
    }

    /// Resolves when the leadership is over: released, or lost. Other systems call this "lost leadership". If there is time to
    /// drain, [`ended`](Self::ended) resolves first.
    ///
    /// Cancel safe.
    pub async fn lost(&self) -> Reason {
        self.held.cell.over().await
    }

    /// Resolves when the leadership is lost for a reason that [leaves no time](Reason::leaves_time) to drain the work: another node
    /// may lead already. Never resolves otherwise.
    ///
    /// Cancel safe.
    pub async fn taken(&self) -> Reason {
        self.held.cell.until(|state| state.over.filter(|reason| !reason.leaves_time())).await
    }

    /// Describes the reason for the end, as [`describe`] does. If the store is at fault, adds the store's own error, with the number
    /// and the duration of its failures.
    #[must_use]
    pub fn why(&self, reason: Reason) -> String {
        self.held.cell.why(reason)
    }

    /// Resolves when the end has moved past `known`, with the new end; with `None` when it will not move any more. It also moves
    /// while the work drains.
    ///
    /// Cancel safe.
    pub async fn renewed(&self, known: Instant) -> Option<Instant> {
        let mut state = self.held.cell.state.subscribe();
        let settled = |state: &State| state.valid_until > known || state.over.is_some();
        let state = *state.wait_for(settled).await.ok()?;
        state.over.is_none().then_some(state.valid_until)
    }

    /// Promises that the work makes progress: from now on, [`Progress::made`] must be called again within `interval`, or
    /// the lead is given up in order with [`Reason::Unhealthy`]. Choose an interval well above the time of one step of
    /// the work on a busy machine.
    ///
    /// ```
    /// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
    /// use std::time::Duration;
    /// use primacy::Elector;
    ///
    /// let elector = Elector::builder().election("queue").connect("memory:progress").await?;
    /// let leadership = elector.campaign().await?;
    /// let progress = leadership.progress(Duration::from_secs(30));
    /// for _job in 0..3 {
    ///     leadership.check()?;
    ///     // The work of one job; if it hangs for 30 s, another node takes over.
    ///     progress.made();
    /// }
    /// # Ok(())
    /// # }
    /// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(example()).unwrap();
    /// ```
    #[must_use = "the promise ends when it is dropped"]
    pub fn progress(&self, interval: Duration) -> Progress {
        let progress = Progress::new(interval, clock::now());
        // If the driver has ended, so has the leadership.
        let _ = self.held.requests.send(Request::Promise { term: self.term(), due: progress.due() });
        progress
    }

    /// Sends a request to the driver; returns false if the driver is gone.
    pub(crate) fn request(&self, request: Request) -> bool {
        self.held.requests.send(request).is_ok()
    }

    /// Gives up the lead in order, and returns when it is released or lost: not before every [`WorkGuard`] is dropped. Until then this
    /// node leads on, and [`Status::kept_by`](crate::Status::kept_by) names the work that it waits for.
    ///
    /// Dropping the future does not cancel the resignation.
    pub async fn resign(self) -> Reason {
        let cell = Arc::clone(&self.held.cell);
        drop(self);
        cell.over().await
    }

    /// Gives up the lead in order to `successor`, and returns when it is released or lost. Only elections among peers can transfer. A
    /// store cannot choose the next leader, and in advisory and confirmed elections the algorithm chooses it: there this is the same
    /// as [`resign`](Self::resign).
    ///
    /// The lead is given up for good, even if `successor` cannot take it.
    pub async fn transfer(self, successor: NodeId) -> Reason {
        let cell = Arc::clone(&self.held.cell);
        // If the driver has ended, so has the leadership.
        let _ = self.held.requests.send(Request::Transfer { term: cell.term(), to: successor });
        drop(self);
        cell.over().await
    }

    /// Runs `work` as the leader until it ends; if it must stop earlier, drops it. Then releases the leadership.
    ///
    /// # Errors
    /// [`Lost`] if the work was stopped, or was never begun.
    pub async fn run<F: Future>(self, work: F) -> Result<F::Output, Lost> {
        let guard = self.guard()?;
        let outcome = tokio::select! {
            biased;
            reason = self.held.cell.ended() => Err(Lost { term: self.term(), reason: Some(reason) }),
            output = work => Ok(output),
        };
        // The work is gone, finished or cancelled; only now may work of another leader begin.
        drop(guard);
        outcome
    }
}

impl<M: Copy> Leadership<M> {
    /// Publishes this state to all nodes: at once, and again with every later message of this node as the leader. It replaces the
    /// state published before. In the election `ranked` only. Returns the number of the message that first carried it, which is
    /// none of the numbers of [`next_sequence`](Self::next_sequence).
    ///
    /// A state that no other node has received is lost with this leader. The next leader goes on with the last state that it has received,
    /// until it publishes another; see [`Elector::announcements`](crate::Elector::announcements).
    ///
    /// Dropping the future does not cancel the publication.
    ///
    /// # Errors
    /// [`PublishError`], after which nothing has changed.
    pub async fn publish(&self, state: impl AsRef<[u8]>) -> Result<LeaderSequence, PublishError> {
        publish(state.as_ref(), Some(self.term()), |request| self.request(request)).await
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.cell.stop_accepting();
        // If the driver has ended, so has the leadership.
        let _ = self.requests.send(Request::Resign { term: self.cell.leader.term });
    }
}

impl WorkGuard {
    /// The fencing token, to present to every resource.
    #[must_use]
    pub const fn token(&self) -> FencingToken {
        self.mandate
    }
}

impl<M> WorkGuard<M> {
    /// Checks as [`Leadership::check`] does.
    ///
    /// # Errors
    /// As [`Leadership::check`].
    pub fn check(&self) -> Result<(), Lost> {
        self.counted.0.check()
    }

    /// States why this work has not ended, for [`Status::kept_by`](crate::Status::kept_by). Replaces an earlier statement, and is
    /// shown at once, even if no end of the lead was requested.
    pub fn explain_delay(&self, why: impl Into<String>) {
        self.counted.0.delay(Some(why.into()));
    }

    /// Withdraws the statement of [`explain_delay`](Self::explain_delay).
    pub fn withdraw_delay(&self) {
        self.counted.0.delay(None);
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        if self.0.guards.fetch_sub(1, Ordering::SeqCst) == 1 {
            self.0.undrained.notify_one();
        }
    }
}

/// A leadership, as the driver and the application share it.
#[derive(Debug)]
pub(crate) struct Cell {
    leader: Leader,
    mandate: Mandate,
    trigger: Option<ElectionTrigger>,
    /// The time until which acts are accepted, in nanoseconds of the boot clock; zero from the moment the work must stop.
    accepts_until: AtomicU64,
    guards: AtomicUsize,
    sent: AtomicU64,
    /// Notified when the last guard is dropped.
    undrained: Notify,
    /// The reason why the work has not ended, as the work stated it.
    delay: Mutex<Option<String>>,
    state: watch::Sender<State>,
    /// The text of the reason, if the machine gave more than [`Reason`].
    explanation: OnceLock<String>,
    /// The failure of the store when the end began.
    store_trouble: OnceLock<Option<String>>,
    /// Details of an end that other parts of the node know.
    causes: Weak<dyn EndCauses>,
}

/// Details of the end of a leadership that are known outside its machine.
pub(crate) trait EndCauses: std::fmt::Debug + Send + Sync {
    /// The last violation of an invariant.
    fn last_violation(&self) -> Option<Violation>;
    /// The reason why no renewal in the store succeeds.
    fn store_trouble(&self) -> Option<String>;
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct State {
    valid_until: Instant,
    /// The time for which one renewal lasts, if that is less than the lease.
    granted: Option<primacy_core::Duration>,
    ending: Option<Reason>,
    over: Option<Reason>,
}

impl State {
    fn stopping(&self) -> Option<Reason> {
        self.ending.or(self.over)
    }
}

impl Cell {
    pub(crate) fn new(
        leader: Leader,
        mandate: Mandate,
        valid_until: Instant,
        trigger: Option<ElectionTrigger>,
        causes: Weak<dyn EndCauses>,
    ) -> Self {
        Self {
            leader,
            mandate,
            trigger,
            accepts_until: AtomicU64::new(valid_until.as_nanos()),
            guards: AtomicUsize::new(0),
            sent: AtomicU64::new(0),
            undrained: Notify::new(),
            delay: Mutex::new(None),
            state: watch::Sender::new(State { valid_until, granted: None, ending: None, over: None }),
            explanation: OnceLock::new(),
            store_trouble: OnceLock::new(),
            causes,
        }
    }

    /// The reason for the end, as [`Leadership::why`] has it.
    pub(crate) fn why(&self, reason: Reason) -> String {
        if let Some(explanation) = self.explanation.get().filter(|_| reason == Reason::Expired) {
            return explanation.clone();
        }
        let text = describe(reason);
        match reason {
            Reason::Expired | Reason::SessionEnded => {
                let trouble = self.store_trouble.get().cloned().unwrap_or_else(|| self.find_store_trouble());
                trouble.map_or_else(|| text.to_owned(), |trouble| format!("{text}: {trouble}"))
            }
            Reason::Resigned | Reason::Transferred(_) | Reason::Unhealthy | Reason::HigherTerm(_) => {
                text.to_owned()
            }
            Reason::Violation => {
                let seen = self.causes.upgrade().and_then(|causes| causes.last_violation());
                seen.map_or_else(|| text.to_owned(), |seen| format!("{text}: {seen}"))
            }
            Reason::Undecided | Reason::Overwritten | Reason::Removed | Reason::DiskLost | Reason::Halted => {
                text.to_owned()
            }
        }
    }

    /// States why the end begins, in place of the text of its reason.
    pub(crate) fn explain_end(&self, why: Option<&String>) {
        if let Some(why) = why {
            let _ = self.explanation.set(why.clone());
        }
    }

    fn find_store_trouble(&self) -> Option<String> {
        self.causes.upgrade()?.store_trouble()
    }

    pub(crate) const fn term(&self) -> Term {
        self.leader.term
    }

    pub(crate) fn lead(&self) -> Lead {
        let state = *self.state.borrow();
        Lead {
            term: self.leader.term,
            mandate: self.mandate,
            valid_until: state.valid_until,
            ending: state.stopping(),
        }
    }

    fn check(&self) -> Result<(), Lost> {
        // The end is read before the clock: a renewal in between can only make the answer stricter.
        let until = self.accepts_until.load(Ordering::SeqCst);
        if clock::now().as_nanos() < until {
            return Ok(());
        }
        Err(Lost { term: self.leader.term, reason: self.state.borrow().stopping() })
    }

    /// Moves the end of validity. Acts are accepted until then, unless the work must stop already.
    pub(crate) fn extend(&self, until: Instant) {
        let renew = |accepts: u64| (accepts != 0).then_some(until.as_nanos());
        let _ = self.accepts_until.fetch_update(Ordering::SeqCst, Ordering::SeqCst, renew);
        self.state.send_modify(|state| state.valid_until = until);
    }

    /// The time for which one renewal lasts, if that is less than the lease.
    pub(crate) fn granted(&self) -> Option<primacy_core::Duration> {
        self.state.borrow().granted
    }

    pub(crate) fn grant(&self, granted: Option<primacy_core::Duration>) {
        self.state.send_if_modified(|state| std::mem::replace(&mut state.granted, granted) != granted);
    }

    /// The work that keeps the lead: its stated delay, or, while the lead is being given up, the number of guards.
    pub(crate) fn kept_by(&self) -> Option<String> {
        let guards = self.guards.load(Ordering::SeqCst);
        if guards == 0 {
            return None;
        }
        let stated = self.delay.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let counted =
            || format!("{guards} WorkGuard{} not dropped", if guards == 1 { " is" } else { "s are" });
        stated.or_else(|| self.is_ending().then(counted))
    }

    fn delay(&self, why: Option<String>) {
        *self.delay.lock().unwrap_or_else(PoisonError::into_inner) = why;
    }

    fn stop_accepting(&self) {
        self.accepts_until.store(0, Ordering::SeqCst);
    }

    /// Begins the end: refuses new acts; work in progress may drain.
    pub(crate) fn begin_end(&self, reason: Reason) {
        self.stop_accepting();
        // Set before any waiter wakes and reads it.
        let _ = self.store_trouble.get_or_init(|| self.find_store_trouble());
        self.state.send_if_modified(|state| {
            let first = state.ending.is_none();
            state.ending = state.ending.or(Some(reason));
            first
        });
    }

    /// Ends the leadership: released or lost.
    pub(crate) fn end(&self, reason: Reason) {
        self.stop_accepting();
        self.state.send_modify(|state| state.over = state.over.or(Some(reason)));
    }

    pub(crate) fn is_ending(&self) -> bool {
        self.state.borrow().ending.is_some()
    }

    pub(crate) fn valid_until(&self) -> Instant {
        self.state.borrow().valid_until
    }

    /// Resolves when no work is under way and none can begin.
    pub(crate) async fn drained(&self) {
        let mut state = self.state.subscribe();
        // The sender is in this cell, so the wait cannot fail.
        let _ = state.wait_for(|state| state.ending.is_some()).await;
        while self.guards.load(Ordering::SeqCst) > 0 {
            self.undrained.notified().await;
        }
    }

    async fn ended(&self) -> Reason {
        self.until(State::stopping).await
    }

    async fn over(&self) -> Reason {
        self.until(|state| state.over.and(state.stopping())).await
    }

    async fn until(&self, reason: impl Fn(&State) -> Option<Reason>) -> Reason {
        let mut state = self.state.subscribe();
        let state = state.wait_for(|state| reason(state).is_some()).await;
        state.ok().and_then(|state| reason(&state)).unwrap_or(Reason::Halted)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use primacy_core::{Duration, Identity, Incarnation, NodeId};

    fn leadership(lasts: Duration) -> (Leadership<Mandate>, Arc<Cell>) {
        let identity = Identity::new(NodeId::new("a").unwrap(), Incarnation { count: 1, nonce: 1 });
        let leader = Leader { identity, term: Term(5) };
        let cell = Arc::new(Cell::new(
            leader,
            Mandate::Fenced(FencingToken(5)),
            clock::now().after(lasts),
            None,
            Weak::<crate::stats::Stats>::new(),
        ));
        // The requests have no receiver, as after the end of the driver.
        (Leadership::new(Arc::clone(&cell), mpsc::unbounded_channel().0), cell)
    }

    #[test]
    fn check_fails_from_the_end_on_though_nothing_has_run() {
        let (running, _) = leadership(Duration::from_secs(60));
        assert_eq!(running.check(), Ok(()));
        let (past, _) = leadership(Duration::ZERO);
        assert_eq!(past.check(), Err(Lost { term: Term(5), reason: None }));
        assert!(past.guard().is_err());
    }

    #[test]
    fn a_renewal_does_not_revive_what_shall_stop() {
        let (leadership, cell) = leadership(Duration::from_secs(60));
        cell.begin_end(Reason::Resigned);
        cell.extend(clock::now().after(Duration::from_secs(120)));
        assert_eq!(leadership.check(), Err(Lost { term: Term(5), reason: Some(Reason::Resigned) }));
    }

    #[tokio::test]
    async fn the_end_moves_while_work_drains_and_says_what_keeps_it() {
        let (leadership, cell) = leadership(Duration::from_secs(60));
        let guard = leadership.guard().unwrap();
        assert_eq!(cell.kept_by(), None);
        cell.begin_end(Reason::Resigned);
        assert_eq!(cell.kept_by(), Some("1 WorkGuard is not dropped".to_owned()));
        guard.explain_delay("pid 5 (D)");
        assert_eq!(cell.kept_by(), Some("pid 5 (D)".to_owned()));
        guard.withdraw_delay();
        assert_eq!(cell.kept_by(), Some("1 WorkGuard is not dropped".to_owned()));
        let (known, later) = (leadership.valid_until(), clock::now().after(Duration::from_secs(120)));
        cell.extend(later);
        assert_eq!(leadership.renewed(known).await, Some(later));
        drop(guard);
        assert_eq!(cell.kept_by(), None);
        cell.end(Reason::Resigned);
        assert_eq!(leadership.renewed(later).await, None);
    }

    #[tokio::test]
    async fn it_is_drained_when_the_last_guard_is_gone_and_not_before() {
        let (leadership, cell) = leadership(Duration::from_secs(60));
        let (first, second) = (leadership.guard().unwrap(), leadership.guard().unwrap());
        cell.begin_end(Reason::Resigned);
        let mut drained = std::pin::pin!(cell.drained());
        let poll =
            async || std::future::poll_fn(|cx| std::task::Poll::Ready(drained.as_mut().poll(cx))).await;
        let mut poll = poll;
        assert!(poll().await.is_pending());
        drop(first);
        assert!(poll().await.is_pending());
        drop(second);
        assert!(poll().await.is_ready());
    }

    #[tokio::test]
    async fn dropping_it_stops_check_for_its_guards_at_once() {
        let (leadership, _) = leadership(Duration::from_secs(60));
        let guard = leadership.guard().unwrap();
        assert_eq!(guard.check(), Ok(()));
        drop(leadership);
        assert!(guard.check().is_err());
    }

    #[test]
    fn what_a_leader_sends_is_numbered_from_one() {
        let (leadership, _) = leadership(Duration::from_secs(60));
        assert_eq!(leadership.next_sequence(), LeaderSequence::first(Term(5)));
        assert_eq!(leadership.next_sequence(), LeaderSequence { term: Term(5), counter: 2 });
    }

    #[tokio::test]
    async fn work_is_cancelled_when_it_must_stop() {
        let (leadership, cell) = leadership(Duration::from_secs(60));
        let stop = Arc::clone(&cell);
        let work = async move {
            stop.begin_end(Reason::Unhealthy);
            std::future::pending::<()>().await;
        };
        let lost = Lost { term: Term(5), reason: Some(Reason::Unhealthy) };
        assert_eq!(leadership.run(work).await, Err(lost));
        assert_eq!(cell.guards.load(Ordering::SeqCst), 0);
    }
}
