//! The driver: the loop that passes inputs to a machine and performs its effects, in order.
//!
//! It runs on a thread of its own, with a runtime of its own. However busy or blocked the application's runtime is,
//! heartbeats and renewals go on, and so does the end of a leadership.

mod admin;
pub(crate) mod announce;

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::{Arc, OnceLock, Weak};

use primacy_core::membership;
use primacy_core::{
    Command, Duration, ElectionTrigger, Endpoint, Event, Identity, Input, Instant, Leader, Mandate, NodeId,
    Output, Protocol, Reason, Term, display,
};
use tokio::sync::{mpsc, oneshot};

use crate::clock;
use crate::config::Timers;
use crate::cordon::Cordon;
use crate::driver::announce::Announces;
use crate::error::AdminError;
use crate::error::CampaignError;
use crate::handshake::DiskId;
use crate::leadership::request::{CampaignReply, Request};
use crate::leadership::{Cell, EndCauses, Leadership};
use crate::observer::{self, Change, Publisher};
use crate::progress::Promises;
use crate::stats::Stats;
use crate::status::View;

/// The number of inputs handled in a row before the driver checks the machine's deadline and the requests again.
const READY_MAX: usize = 512;

/// Performs the effects of a machine, and delivers its inputs.
pub(crate) trait EffectHandler<P: Protocol> {
    /// Returns only when the state would survive a power cut. An error halts this node.
    fn persist(&mut self, durable: P::Durable) -> Result<(), Halt>;
    /// Sends without waiting. A message may be lost.
    fn send(&mut self, to: Endpoint, message: P::Message);
    /// Waits for the next input.
    fn arrival(&mut self) -> impl Future<Output = Result<Input<P::Message>, Halt>>;
    /// Returns the next input that has arrived already, for machines that persist the results of several inputs with
    /// one write.
    fn ready(&mut self) -> Result<Option<Input<P::Message>>, Halt> {
        Ok(None)
    }
}

/// An effect handler that also serves an operator's requests.
pub(crate) trait AdminView<P: Protocol>: EffectHandler<P> {
    /// Called when all effects of an input are finished; `led` is true if this process has ever known a leader.
    ///
    /// # Errors
    /// The reason why the node must halt.
    fn after(&mut self, _machine: &P, _led: bool) -> Result<(), Halt> {
        Ok(())
    }
    /// This node's knowledge of the others.
    fn view(&self, machine: &P) -> View;
    /// Readmits a node that has lost its disk.
    fn readmit(&mut self, node: NodeId) -> Result<DiskId, AdminError>;
}

/// The driver's queries to a machine in addition to [`Protocol`].
pub(crate) trait Quiescent {
    /// True if nothing is in progress that could make this node the leader after it has withdrawn.
    fn is_settled(&self) -> bool;
    /// The cluster to which this node belongs; `None` if the election has no clusters.
    fn cluster(&self) -> Option<&Arc<membership::View>> {
        None
    }
    /// The trigger of this node's campaign; `None` if the election does not report it.
    fn trigger(&self) -> Option<ElectionTrigger>;
    /// The times for which other nodes promise their support to this leader, if they differ from this node's lease.
    fn promises(&self) -> BTreeMap<NodeId, Duration> {
        BTreeMap::new()
    }
    /// The reason why this node's part of the cluster has stopped.
    fn why_stopped(&self) -> Option<String> {
        None
    }
}

/// The reason why a driver halts.
#[derive(Clone, Debug)]
pub(crate) enum Halt {
    /// A component failed.
    Failed {
        /// The failure.
        why: String,
    },
    /// The peers' configuration of the election differs from this node's.
    ConfigMismatch {
        /// The configuration of the peers and of this node.
        why: String,
    },
}

impl Halt {
    pub(crate) fn why(&self) -> &str {
        match self {
            Self::Failed { why } | Self::ConfigMismatch { why } => why,
        }
    }
}

impl From<&Halt> for CampaignError {
    fn from(halt: &Halt) -> Self {
        match halt {
            Halt::Failed { why } => Self::Halted { why: why.clone() },
            Halt::ConfigMismatch { why } => Self::ConfigMismatch { why: why.clone() },
        }
    }
}

/// The driver's state for the application: its campaign, its leadership, its observers.
#[derive(Debug)]
pub(crate) struct Frontend {
    pub(crate) election: String,
    pub(crate) identity: Identity,
    pub(crate) witness: bool,
    /// The operator's cordon.
    pub(crate) cordon: Cordon,
    /// The result of the health check.
    pub(crate) healthy: bool,
    /// The reason why the application does not campaign, as it has stated.
    pub(crate) not_campaigning: Option<String>,
    /// True if the application has ever campaigned.
    pub(crate) has_campaigned: bool,
    /// The reason why this node's part of the cluster has stopped.
    pub(crate) stopped: Option<String>,
    pub(crate) timers: Timers,
    pub(crate) requests: mpsc::UnboundedReceiver<Request>,
    /// The request channel for leaderships that are handed out. It is weak, so that the driver ends when the last
    /// handle is dropped.
    pub(crate) sender: mpsc::WeakUnboundedSender<Request>,
    pub(crate) publisher: Publisher,
    pub(crate) stats: Arc<Stats>,
    /// Set when this node halts after a failure.
    pub(crate) halted: Arc<OnceLock<CampaignError>>,
    /// The promises of progress of the work in this leadership.
    pub(crate) promises: Promises,
    pub(crate) candidate: Option<CampaignReply>,
    pub(crate) cell: Option<Arc<Cell>>,
    /// The time by which the work should have drained; after that the log has a warning.
    pub(crate) drain_until: Option<Instant>,
    /// The times for which other nodes promise their support to this leader, if they differ from the lease.
    pub(crate) promises_of_others: BTreeMap<NodeId, Duration>,
    /// A leadership that has ended, and whose release may still be in progress.
    pub(crate) releasing: Option<(Arc<Cell>, Reason)>,
    /// Set while this node leaves the election; the callers that wait for the end.
    pub(crate) closing: Option<Vec<oneshot::Sender<()>>>,
}

/// The event that woke the driver.
enum Woken<M> {
    Arrival(Result<Input<M>, Halt>),
    Request(Option<Request>),
    CandidateGone,
    Drained,
    Deadline,
}

/// Drives `machine` until the node has left the election, or halts after a failure.
pub(crate) async fn drive<P: Protocol + Quiescent + Announces, W: AdminView<P>>(
    machine: &mut P,
    effects: &mut W,
    frontend: &mut Frontend,
) -> Result<(), Halt> {
    let outcome = drive_to_end(machine, effects, frontend).await;
    frontend.halted();
    frontend.stats.leader(None);
    frontend.publisher.publish(Change::Leader(None));
    observer::tell(&frontend.publisher.members, None);
    if let Err(halt) = &outcome {
        tracing::error!(why = halt.why(), "this node takes no part in the election any more");
        let error = frontend.halted.get_or_init(|| CampaignError::from(halt)).clone();
        frontend.answer(Err(error));
    }
    outcome
}

async fn drive_to_end<P: Protocol + Quiescent + Announces, W: AdminView<P>>(
    machine: &mut P,
    effects: &mut W,
    frontend: &mut Frontend,
) -> Result<(), Halt> {
    // A new machine may have effects already.
    perform(clock::now(), machine, effects, frontend)?;
    if !frontend.is_fit() {
        let now = clock::now();
        machine.handle(now, Input::Command(Command::Healthy(false)));
        perform(now, machine, effects, frontend)?;
    }
    let (mut led, mut was_due) = (false, false);
    loop {
        if machine.is_settled() {
            frontend.released();
            if frontend.closing.is_some() && frontend.cell.is_none() {
                return Ok(());
            }
        }
        // A machine with much to do is due again at once; yield to the connections and the application.
        if was_due {
            tokio::task::yield_now().await;
        }
        let woken = wait(machine, effects, frontend, was_due).await;
        was_due = matches!(woken, Woken::Deadline);
        let input = match woken {
            Woken::Arrival(input) => Some(input?),
            Woken::Request(Some(Request::Admin(ask))) => frontend.on_admin_request(ask, machine, effects),
            Woken::Request(Some(Request::Publish(announce))) => {
                let now = clock::now();
                frontend.on_publish(now, announce, machine);
                perform(now, machine, effects, frontend)?;
                None
            }
            Woken::Request(request) => frontend.on_request(request),
            Woken::CandidateGone => frontend.on_candidate_gone(),
            Woken::Drained => Some(Input::Command(Command::Drained)),
            Woken::Deadline if frontend.drain_until.is_some_and(|until| clock::now() >= until) => {
                frontend.warn_of_work();
                None
            }
            Woken::Deadline if frontend.must_stop(clock::now()) => Some(Input::Command(Command::Resign)),
            Woken::Deadline => Some(Input::Timeout),
        };
        if let Some(input) = input {
            // Read after the input was received: an input that has waited is handled at the present time.
            let now = clock::now();
            machine.handle(now, input);
            perform(now, machine, effects, frontend)?;
            for _ in 0..READY_MAX {
                let Some(input) = effects.ready()? else { break };
                let now = clock::now();
                machine.handle(now, input);
                perform(now, machine, effects, frontend)?;
            }
            led |= frontend.publisher.leader().is_some();
            effects.after(machine, led)?;
        }
        frontend.tell_announced(machine);
        observer::tell(&frontend.publisher.members, machine.cluster());
    }
}

/// Drives a machine without an application, until `ended` is true.
pub(crate) async fn drive_alone<P: Protocol, W: EffectHandler<P>>(
    machine: &mut P,
    effects: &mut W,
    ended: impl Fn(&P) -> bool,
) -> Result<(), Halt> {
    loop {
        while let Some(output) = machine.poll() {
            match output {
                Output::Persist(durable) => effects.persist(durable)?,
                Output::Send { to, message } => effects.send(to, message),
                Output::Event(_) => {} // Nobody is told.
            }
        }
        if ended(machine) {
            return Ok(());
        }
        let input = tokio::select! {
            biased;
            () = sleep_until(machine.deadline()) => Input::Timeout,
            input = effects.arrival() => input?,
        };
        machine.handle(clock::now(), input);
    }
}

/// Performs each effect before the next one; `now` is the time that was passed to the machine.
fn perform<P: Protocol + Quiescent, W: EffectHandler<P>>(
    mut now: Instant,
    machine: &mut P,
    effects: &mut W,
    frontend: &mut Frontend,
) -> Result<(), Halt> {
    loop {
        frontend.tell_stopped(machine.why_stopped());
        let mut then = None;
        while let Some(output) = machine.poll() {
            match output {
                Output::Persist(durable) => effects.persist(durable)?,
                Output::Send { to, message } => effects.send(to, message),
                Output::Event(event) => {
                    frontend.on_promises(machine.promises());
                    then = frontend.on_event(now, event, machine.trigger()).or(then);
                }
            }
        }
        // The command in response to an event, passed to the machine after all effects.
        let Some(command) = then else { return Ok(()) };
        now = clock::now();
        machine.handle(now, Input::Command(command));
    }
}

async fn wait<P: Protocol, W: EffectHandler<P>>(
    machine: &P,
    effects: &mut W,
    frontend: &mut Frontend,
    was_due: bool,
) -> Woken<P::Message> {
    let ends = [frontend.stop_at().map(|(at, _)| at), frontend.drain_until];
    let deadline = ends.into_iter().chain([machine.deadline()]).flatten().min();
    let Frontend { requests, candidate, cell, closing, .. } = frontend;
    let draining = cell.clone().filter(|cell| cell.is_ending());
    let candidate_gone = async {
        match candidate {
            Some(candidate) => candidate.closed().await,
            None => std::future::pending().await,
        }
    };
    let drained = async {
        match &draining {
            Some(cell) => cell.drained().await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        biased;
        () = sleep_until(deadline), if !was_due => Woken::Deadline,
        request = requests.recv(), if closing.is_none() || !requests.is_closed() => Woken::Request(request),
        () = candidate_gone => Woken::CandidateGone,
        () = drained => Woken::Drained,
        () = sleep_until(deadline), if was_due => Woken::Deadline,
        arrival = effects.arrival() => Woken::Arrival(arrival),
    }
}

async fn sleep_until(deadline: Option<Instant>) {
    let Some(deadline) = deadline else { return std::future::pending().await };
    let left = deadline.since(clock::now());
    if !left.is_zero() {
        tokio::time::sleep(left.into()).await;
    }
}

impl Frontend {
    fn on_request<M>(&mut self, request: Option<Request>) -> Option<Input<M>> {
        let command = match request {
            Some(Request::Campaign(answer)) => return self.on_campaign(answer).map(Input::Command),
            Some(Request::Resign { term }) => {
                let current = self.cell.as_ref().filter(|cell| cell.term() == term)?;
                current.begin_end(Reason::Resigned);
                // Not `Withdraw`: the application may have started another campaign already.
                Command::Resign
            }
            Some(Request::Transfer { term, to }) => {
                self.cell.as_ref().filter(|cell| cell.term() == term)?;
                Command::Transfer(to)
            }
            Some(Request::Healthy(healthy)) => {
                self.healthy = healthy;
                Command::Healthy(self.is_fit())
            }
            Some(Request::NotCampaigning(why)) => {
                self.not_campaigning = why;
                return None;
            }
            Some(Request::Promise { term, due }) => {
                self.cell.as_ref().filter(|cell| cell.term() == term)?;
                self.promises.add(due);
                return None; // The next wait is for it, too.
            }
            Some(Request::Admin(_) | Request::Publish(_)) => return None, // Answered where the machine is at hand.
            Some(Request::Close(closed)) => {
                self.closing.get_or_insert_default().push(closed);
                self.answer(Err(CampaignError::Closed));
                Command::Withdraw
            }
            None => {
                // The last handle is gone, so no more requests can arrive.
                self.closing.get_or_insert_default();
                self.requests.close();
                Command::Withdraw
            }
        };
        Some(Input::Command(command))
    }

    /// True if neither the cordon nor the health check keeps this node from leading.
    pub(crate) const fn is_fit(&self) -> bool {
        self.healthy && !self.cordon.is_set()
    }

    fn on_campaign(&mut self, answer: CampaignReply) -> Option<Command> {
        let refusal = if self.closing.is_some() {
            Some(CampaignError::Closed)
        } else if self.cell.as_ref().is_some_and(|cell| !cell.is_ending()) {
            Some(CampaignError::AlreadyLeading)
        } else if self.candidate.as_ref().is_some_and(|candidate| !candidate.is_closed()) {
            Some(CampaignError::AlreadyCampaigning)
        } else {
            None
        };
        if let Some(refusal) = refusal {
            // The caller may have stopped waiting.
            let _ = answer.send(Err(refusal));
            return None;
        }
        self.candidate = Some(answer);
        self.has_campaigned = true;
        Some(Command::Campaign)
    }

    fn on_candidate_gone<M>(&mut self) -> Option<Input<M>> {
        self.candidate = None;
        Some(Input::Command(Command::Withdraw))
    }

    /// The time at which the work must be asked to stop, so that it can drain, or be killed, before the lease ends.
    fn stop_at(&mut self) -> Option<(Instant, Reason)> {
        let cell = self.cell.as_ref().filter(|cell| !cell.is_ending())?;
        let needed = Duration::from(self.timers.drain.saturating_add(self.timers.kill_margin));
        let lease = Duration::from(self.timers.lease);
        let expires = cell.valid_until().before(needed.scaled(cell.granted().unwrap_or(lease), lease));
        match self.promises.next_due() {
            Some(due) if due < expires => Some((due, Reason::Unhealthy)),
            Some(_) | None => Some((expires, Reason::Expired)),
        }
    }

    fn must_stop(&mut self, now: Instant) -> bool {
        let Some((_, reason)) = self.stop_at().filter(|&(at, _)| now >= at) else { return false };
        if let Some(cell) = &self.cell {
            cell.begin_end(reason);
        }
        true
    }

    /// Reports an event to the application; returns the next command for the machine.
    fn on_event(&mut self, now: Instant, event: Event, trigger: Option<ElectionTrigger>) -> Option<Command> {
        self.trace(&event);
        self.trace_for_programs(now, &event);
        match event {
            Event::Elected { term, mandate, valid_until } => {
                tracing::info!(%term, ?mandate, ?trigger, "elected");
                // A new leadership proves that the release of the former one has ended.
                self.released();
                let leader = Leader { identity: self.identity, term };
                let causes: Weak<dyn EndCauses> = Arc::downgrade(&self.stats) as _;
                let cell = Arc::new(Cell::new(leader, mandate, valid_until, trigger, causes));
                cell.grant(self.granted());
                self.cell = Some(Arc::clone(&cell));
                self.promises.clear();
                self.stats.elected(Arc::clone(&cell));
                let handed_out = self.hand_out(cell);
                return (!handed_out).then_some(Command::Withdraw);
            }
            Event::Renewed { valid_until } => {
                if let Some(cell) = &self.cell {
                    cell.grant(self.granted());
                    cell.extend(valid_until);
                }
            }
            Event::Resigning(reason) => {
                if let Some(cell) = &self.cell {
                    let lead = cell.lead();
                    cell.begin_end(reason);
                    tracing::info!(term = %lead.term, ?reason, why = cell.why(reason), "resigning");
                    let patience = self.timers.drain.saturating_add(self.timers.kill_margin);
                    self.drain_until = Some(now.after(patience.into()));
                }
            }
            Event::Deposed(reason) => {
                self.drain_until = None;
                if let Some(cell) = self.cell.take() {
                    let lead = cell.lead();
                    self.stats.ended(&cell, reason);
                    cell.explain_end(self.stopped.as_ref());
                    cell.begin_end(reason);
                    tracing::info!(term = %lead.term, ?reason, why = cell.why(reason), "deposed");
                    self.releasing = Some((cell, reason));
                }
                // Whether to campaign again is the application's decision; it may have done so already.
                return match (reason, self.candidate.is_some()) {
                    (Reason::Undecided, true) => Some(Command::Campaign),
                    // A cluster's member stays one until the application campaigns again: `Withdraw` would leave the
                    // cluster.
                    (Reason::Undecided, false) | (_, true) => None,
                    (_, false) => Some(Command::Withdraw),
                };
            }
            Event::LeaderChanged(leader) => {
                self.warn_of_namesake(leader);
                self.stats.leader(leader);
                self.publisher.publish(Change::Leader(leader));
            }
            Event::Violation(violation) => {
                tracing::error!(%violation, "this must never be; an operator should look");
                self.stats.violation(violation);
                self.publisher.publish(Change::Violation(violation));
            }
        }
        None
    }

    /// Warns when this node's part of the cluster has stopped.
    fn tell_stopped(&mut self, stopped: Option<String>) {
        if stopped == self.stopped {
            return;
        }
        if let Some(why) = &stopped {
            tracing::warn!(%why, "this node belongs to the cluster no more");
        }
        self.stopped = stopped;
    }

    /// Warns if the leader is another process with this node's name: wherever names are shown, such nodes cannot be told apart.
    fn warn_of_namesake(&self, leader: Option<Leader>) {
        let me = self.identity;
        let namesake =
            leader.map(|leader| leader.identity).filter(|leader| leader.node == me.node && *leader != me);
        if let Some(namesake) = namesake {
            tracing::warn!(
                leader = %namesake.incarnation, this_process = %me.incarnation,
                "the leader is another process with the name of this node: an earlier run of it, which this one follows when its \
                 lease has ended, or a second node of the same name; give each node a name of its own (--node)"
            );
        }
    }

    /// Logs the line that the simulator prints for the same event: at `primacy::trace=info`; renewals at `=debug`.
    fn trace(&self, event: &Event) {
        let line = || format!("{} {}", self.identity.node, display::event(event, until));
        match event {
            Event::Renewed { .. } => {
                if tracing::enabled!(target: "primacy::trace", tracing::Level::DEBUG) {
                    tracing::debug!(target: "primacy::trace", "{}", line());
                }
            }
            Event::Elected { .. }
            | Event::Resigning(_)
            | Event::Deposed(_)
            | Event::LeaderChanged(_)
            | Event::Violation(_) => {
                if tracing::enabled!(target: "primacy::trace", tracing::Level::INFO) {
                    tracing::info!(target: "primacy::trace", "{}", line());
                }
            }
        }
    }

    /// Logs the event for programs, with instants in nanoseconds of the boot clock, and with the time that was passed to the machine:
    /// at `primacy::machine=info`; renewals at `=debug`.
    fn trace_for_programs(&self, now: Instant, event: &Event) {
        let (at_ns, life) = (now.as_nanos(), self.identity.incarnation);
        match *event {
            Event::Elected { term, mandate: Mandate::Fenced(token), valid_until } => {
                let (term, token, until_ns) = (term.0, token.0, valid_until.as_nanos());
                tracing::info!(target: "primacy::machine", at_ns, %life, term, token, until_ns, "elected");
            }
            Event::Elected { term: Term(term), mandate: Mandate::Advisory, valid_until } => {
                let until_ns = valid_until.as_nanos();
                tracing::info!(target: "primacy::machine", at_ns, %life, term, until_ns, "elected");
            }
            Event::Renewed { valid_until } => {
                let until_ns = valid_until.as_nanos();
                tracing::debug!(target: "primacy::machine", at_ns, %life, until_ns, "renewed");
            }
            Event::Resigning(reason) => {
                tracing::info!(target: "primacy::machine", at_ns, %life, ?reason, "resigning");
            }
            Event::Deposed(reason) => {
                tracing::info!(target: "primacy::machine", at_ns, %life, ?reason, "deposed");
            }
            Event::Violation(violation) => {
                tracing::info!(target: "primacy::machine", at_ns, %life, ?violation, "violation");
            }
            // Other nodes log their own events.
            Event::LeaderChanged(_) => {}
        }
    }

    /// The shortest promise of another node, if that is shorter than the lease.
    fn granted(&self) -> Option<Duration> {
        let shortest = self.promises_of_others.values().copied().min();
        shortest.filter(|&shortest| shortest < self.timers.lease.into())
    }

    /// Warns of nodes whose lease differs, if they have changed.
    fn on_promises(&mut self, promises: BTreeMap<NodeId, Duration>) {
        if promises == self.promises_of_others {
            return;
        }
        for (node, &promised) in &promises {
            if self.promises_of_others.get(node) != Some(&promised) {
                let (theirs, mine) = (std::time::Duration::from(promised), self.timers.lease);
                tracing::warn!(%node, ?theirs, ?mine, "the lease of this peer is another one; give all nodes the same");
            }
        }
        self.promises_of_others = promises;
    }

    /// Warns that the work has not drained in time. The lead is kept until it has, because the next leader would work at the same time.
    fn warn_of_work(&mut self) {
        self.drain_until = None;
        if let Some(cell) = &self.cell
            && let Some(kept_by) = cell.kept_by()
        {
            tracing::warn!(term = %cell.term(), %kept_by, "still leading: the work has not ended in time");
        }
    }

    /// Ends the leadership whose release was in progress.
    fn released(&mut self) {
        if let Some((cell, reason)) = self.releasing.take() {
            cell.end(reason);
        }
    }

    /// Ends the leadership, if there is one, because the machine is driven no longer.
    fn halted(&mut self) {
        self.released();
        if let Some(cell) = self.cell.take() {
            self.stats.ended(&cell, Reason::Halted);
            cell.end(Reason::Halted);
        }
    }

    /// Gives the leadership to the waiting campaign; returns false if there is none.
    fn hand_out(&mut self, cell: Arc<Cell>) -> bool {
        let (Some(candidate), Some(sender)) = (self.candidate.take(), self.sender.upgrade()) else {
            cell.begin_end(Reason::Resigned);
            return false;
        };
        // If the receiver has gone, the leadership is dropped, which resigns it. Its end begins here, because the application may be
        // campaigning again already.
        if candidate.send(Ok(Leadership::new(Arc::clone(&cell), sender))).is_err() {
            cell.begin_end(Reason::Resigned);
        }
        true
    }

    fn answer(&mut self, answer: Result<Leadership<Mandate>, CampaignError>) {
        if let Some(candidate) = self.candidate.take() {
            let _ = candidate.send(answer);
        }
    }
}

/// Formats the end of a leadership, on the boot clock.
fn until(instant: Instant) -> String {
    if instant == Instant::NEVER {
        return "until further notice".to_owned();
    }
    let millis = instant.as_nanos() / 1_000_000;
    format!("until {}.{:03}s", millis / 1_000, millis % 1_000)
}

/// However the driver ends, even by a panic, no caller must continue to believe that it leads, or to wait.
impl Drop for Frontend {
    fn drop(&mut self) {
        self.halted();
        self.stats.leader(None);
        for closed in self.closing.take().unwrap_or_default() {
            // The caller may have stopped waiting.
            let _ = closed.send(());
        }
    }
}

#[cfg(test)]
mod tests;
