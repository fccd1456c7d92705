//! The world: true time, one queue, and nodes whose machines run exactly as under a real driver.

pub mod clients;
mod entries;
pub mod faults;
pub mod phases;
pub mod primaries;
mod tallies;
mod voters;

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use primacy_core::election::session;
use primacy_core::rng::Rng;
use primacy_core::{
    Command, Duration, Endpoint, Event, Evidence, FencingToken, Identity, Incarnation, Input, Instant,
    NodeId, Output, Protocol, display,
};
use primacy_kv::command::SessionId;
use primacy_kv::machine::Answer;
use primacy_kv::machine::clients::Ticket;
use primacy_kv::replication::log::Write;

use self::clients::Clients;
use self::faults::Crash;
use self::primaries::{PartitionId, Resources};
use crate::algorithm::{Algorithm, ProcessStart, Settings as _, metadata};
use crate::clock::{Clock, Moment};
use crate::counters::{Counters, Sent};
use crate::disk::{Disk, MetByCrash};
use crate::display::views::view_text;
use crate::invariants::{Breach, Invariant, Meaning, MetadataObservation, Observation};
use crate::leadership_intervals::LeadershipIntervals;
use crate::network::{Fate, Host, Network, STORE};
use crate::node::{Node, Process};
use crate::process_slot::ProcessSlot;
use crate::queue::Queue;
use crate::resource::Resource;
use crate::sessions::{ChangeNotice, SessionStore};
use crate::store::{Mishap, Store};
use crate::trace::{Level, Trace, Turn, until};

/// The number of wake-ups at one moment after which a machine counts as looping for ever.
const TIMEOUTS_AT_ONCE_MAX: u32 = 2_000;

/// The constants of a world, which are the same for all its nodes.
#[derive(Clone, Copy, Debug)]
pub struct Conditions {
    /// The delay of a packet.
    pub delay: Duration,
    /// The duration of a write to a disk.
    pub disk_latency: Duration,
    /// The time that work takes to drain.
    pub drain: Duration,
    /// The time from the death of a node's process until its guardian has ended the work.
    pub kill: Duration,
    /// The time after which a closed connection is made again.
    pub reconnect: Duration,
    /// True if a process that wakes late handles its deadline first, and only then its pending inputs; these all at
    /// once, if [`Algorithm::TAKES_WHAT_HAS_COME`].
    pub deadline_first: bool,
    /// The maximum duration of a write, if a leader's work writes to the resource at its beginning and at every
    /// renewal; `None` if it does not.
    pub work_writes: Option<Duration>,
}

impl Default for Conditions {
    fn default() -> Self {
        Self {
            delay: Duration::from_millis(1),
            disk_latency: Duration::from_millis(1),
            drain: Duration::from_millis(50),
            kill: Duration::from_millis(1),
            reconnect: Duration::from_millis(100),
            deadline_first: false,
            work_writes: None,
        }
    }
}

/// A planned event.
#[derive(Debug)]
pub(crate) enum ScheduledEvent<M> {
    Wake { slot: ProcessSlot, life: u64 },
    Arrive { slot: ProcessSlot, from: Endpoint, message: M, sent_at: Moment },
    ArriveAtStore { slot: ProcessSlot, life: u64, message: M, sent_at: Moment },
    ArriveFromStore { slot: ProcessSlot, life: u64, message: M, sent_at: Moment },
    SessionsRunOut,
    KeepAlive { session: SessionId },
    Notice { slot: ProcessSlot, evidence: Evidence },
    ShakeHands { slots: (ProcessSlot, ProcessSlot), lives: (u64, u64) },
    Close { to: ProcessSlot, from: ProcessSlot, lives: (u64, u64) },
    Reconnect { slots: (ProcessSlot, ProcessSlot) },
    Written { slot: ProcessSlot, life: u64 },
    Drained { slot: ProcessSlot, ordinal: u64 },
    CampaignsAgain { slot: ProcessSlot, life: u64 },
    WorkKilled { slot: ProcessSlot, dead: Identity },
    TellDeath { guardian_of: ProcessSlot, to: ProcessSlot, dead: Identity },
    WriteArrives { slot: ProcessSlot, late: bool, mandate: primacy_core::Mandate, ordinal: u64 },
    PartitionWriteArrives { slot: ProcessSlot, place: PartitionId, token: FencingToken, late: bool },
}

/// A world in which one election runs.
#[derive(Debug)]
pub struct World<A: Algorithm> {
    pub(crate) now: Moment,
    pub(crate) queue: Queue<ScheduledEvent<A::Message>>,
    pub(crate) nodes: Vec<Node<A>>,
    /// A slot for each node's process, followed by one for each node's guardian.
    pub(crate) slots: Vec<Option<Process<A>>>,
    pub(crate) lives: u64,
    /// The links and connections.
    pub network: Network,
    /// The store, which only some elections use.
    pub store: Store,
    /// The queue of the store, where it keeps sessions.
    pub sessions: SessionStore,
    /// The clients of the nodes' replicated state.
    pub clients: Clients,
    /// The resource to which leaders write.
    pub resource: Resource,
    /// The resources to which the primaries of partitions write.
    pub resources: Resources,
    /// The leaderships of processes, in true time.
    pub leaderships: LeadershipIntervals,
    /// The trace of events.
    pub trace: Trace,
    /// The constants that are the same for all nodes.
    pub conditions: Conditions,
    invariants: Vec<Box<dyn Invariant>>,
    breaches: Vec<Breach>,
    alarms: u64,
    pub(crate) rng: Rng,
    handled: u64,
    /// The counters so far.
    pub counters: Counters,
    /// The number of messages that machines and the store have sent.
    pub sent: Sent,
    /// The longest delay of a packet so far.
    pub(crate) lag: Duration,
}

impl<A: Algorithm> World<A> {
    /// A world with these nodes, none of them started.
    #[must_use]
    pub fn new(names: &[NodeId], conditions: Conditions, trace: Trace, seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let voters: BTreeSet<NodeId> = names.iter().copied().collect();
        let node = |name: &NodeId, rng: &mut Rng| Node {
            name: *name,
            settings: A::Settings::default(),
            voters: voters.clone(),
            disk: Disk::new(1, rng.next_u64(), conditions.disk_latency),
            shelf: Vec::new(),
            clock: Clock::new(Instant::default()),
            campaigns: true,
            mandate: None,
            leader: None,
            busy: false,
            guarded: true,
            crash_at_write: None,
        };
        Self {
            now: Moment::default(),
            queue: Queue::default(),
            nodes: names.iter().map(|name| node(name, &mut rng)).collect(),
            slots: (0..2 * names.len()).map(|_| None).collect(),
            lives: 0,
            network: Network::new(names.len(), conditions.delay),
            store: Store::default(),
            sessions: SessionStore::default(),
            clients: Clients::default(),
            resource: Resource::default(),
            resources: Resources::default(),
            leaderships: LeadershipIntervals::default(),
            trace,
            conditions,
            invariants: A::invariants(&A::Settings::default()),
            breaches: Vec::new(),
            alarms: 0,
            rng,
            handled: 0,
            counters: Counters::default(),
            sent: Sent::default(),
            lag: conditions.delay,
        }
    }

    /// The present moment.
    #[must_use]
    pub const fn now(&self) -> Moment {
        self.now
    }

    /// The number of inputs that machines have handled.
    #[must_use]
    pub const fn handled(&self) -> u64 {
        self.handled
    }

    /// The slots of the nodes, in the order in which they were named.
    pub fn slots(&self) -> impl Iterator<Item = ProcessSlot> + use<A> {
        (0..self.nodes.len()).map(ProcessSlot)
    }

    /// Returns the node of this name.
    ///
    /// # Errors
    /// If there is none.
    pub fn find(&self, name: &str) -> Result<ProcessSlot, String> {
        let found = self.nodes.iter().position(|node| node.name.as_str() == name);
        found.map(ProcessSlot).ok_or_else(|| format!("there is no node {name}"))
    }

    /// Returns a node, or the node of a guardian.
    #[must_use]
    pub fn node(&self, slot: ProcessSlot) -> &Node<A> {
        &self.nodes[slot.0 % self.nodes.len()]
    }

    /// Returns the same, mutably.
    pub fn node_mut(&mut self, slot: ProcessSlot) -> &mut Node<A> {
        let count = self.nodes.len();
        &mut self.nodes[slot.0 % count]
    }

    /// Returns the process in this slot.
    #[must_use]
    pub fn process(&self, slot: ProcessSlot) -> Option<&Process<A>> {
        self.slots[slot.0].as_ref()
    }

    /// The host of a node.
    #[must_use]
    pub fn host(&self, slot: ProcessSlot) -> Host {
        Host(slot.0 % self.nodes.len() + 1)
    }

    /// Makes the invariants of this election under these settings the ones to be checked.
    pub fn judge_by(&mut self, settings: &A::Settings) {
        self.invariants = A::invariants(settings);
    }

    /// The broken invariants, in order.
    #[must_use]
    pub fn breaches(&self) -> &[Breach] {
        &self.breaches
    }

    /// True if a node believes that it leads now.
    #[must_use]
    pub fn believes(&self, slot: ProcessSlot) -> bool {
        let interval = self.process(slot).and_then(|process| self.leaderships.of(process.me));
        interval.is_some_and(|interval| interval.in_force(self.now))
    }

    /// The nodes that believe that they lead now.
    pub fn leaders(&self) -> impl Iterator<Item = ProcessSlot> {
        self.slots().filter(|&slot| self.believes(slot))
    }

    /// The number of alarms: violations that a machine itself has detected.
    #[must_use]
    pub const fn alarms(&self) -> u64 {
        self.alarms
    }

    // ── time ────────────────────────────────────────────────────────────────────────────────────────────────

    /// Performs the next event. Returns false if none is planned.
    pub fn step(&mut self) -> bool {
        let Some((at, scheduled)) = self.queue.take() else { return false };
        debug_assert!(at >= self.now, "time does not go back");
        self.now = at;
        self.happen(scheduled);
        true
    }

    /// Performs all events up to `moment`.
    pub fn run_until(&mut self, moment: Moment) {
        while self.queue.next_at().is_some_and(|at| at <= moment) {
            self.step();
        }
        self.now = self.now.max(moment);
    }

    /// The moment of the next event.
    #[must_use]
    pub fn next_at(&self) -> Option<Moment> {
        self.queue.next_at()
    }

    pub(crate) fn plan(&mut self, after: Duration, scheduled: ScheduledEvent<A::Message>) {
        self.queue.plan(self.now.after(after), scheduled);
    }

    fn happen(&mut self, scheduled: ScheduledEvent<A::Message>) {
        match scheduled {
            ScheduledEvent::Wake { slot, life } => {
                if self.process(slot).is_some_and(|it| it.life == life && it.wake_at == Some(self.now)) {
                    self.settle(slot);
                }
            }
            ScheduledEvent::Arrive { slot, from, message, sent_at } => {
                self.trace_late(slot, from, &message, sent_at);
                self.give(slot, Input::Message { from, message });
            }
            ScheduledEvent::ArriveAtStore { slot, life, message, sent_at } => {
                self.serve(slot, life, &message, sent_at);
            }
            ScheduledEvent::ArriveFromStore { slot, life, message, sent_at } => {
                if self.process(slot).is_some_and(|process| process.life == life) {
                    self.trace_late(slot, Endpoint::Store, &message, sent_at);
                    self.give(slot, Input::Message { from: Endpoint::Store, message });
                }
            }
            ScheduledEvent::SessionsRunOut => {
                let notice = self.sessions.run_out(self.now);
                self.notify(&notice);
            }
            ScheduledEvent::KeepAlive { session } => self.keep_alive(session),
            ScheduledEvent::Notice { slot, evidence } => {
                self.met_evidence(&evidence);
                self.give(slot, Input::Evidence(evidence));
            }
            ScheduledEvent::ShakeHands { slots, lives } => self.shake_hands(slots, lives),
            ScheduledEvent::Close { to, from, lives } => self.closed(to, from, lives),
            ScheduledEvent::Reconnect { slots: (a, b) } => self.connect(a, b),
            ScheduledEvent::Written { slot, life } => self.written(slot, life),
            ScheduledEvent::Drained { slot, ordinal } => {
                // The end of earlier work does not concern the present work.
                let who = self.process(slot).map(|process| process.me);
                let interval = who.and_then(|who| self.leaderships.of(who));
                if interval.is_some_and(|interval| interval.ordinal == ordinal) {
                    self.drained(slot);
                }
            }
            ScheduledEvent::CampaignsAgain { slot, life } => self.campaigns_again(slot, life),
            ScheduledEvent::WorkKilled { slot, dead } => self.work_killed(slot, dead),
            ScheduledEvent::TellDeath { guardian_of, to, dead } => self.tell_death(guardian_of, to, dead),
            ScheduledEvent::WriteArrives { slot, late, mandate, ordinal } => {
                self.write_arrives(slot, late, mandate, ordinal);
            }
            ScheduledEvent::PartitionWriteArrives { slot, place, token, late } => {
                self.partition_write_arrives(slot, place, token, late);
            }
        }
    }

    // ── the driver ──────────────────────────────────────────────────────────────────────────────────────────

    /// Starts a process in an empty slot.
    pub(crate) fn begin(&mut self, slot: ProcessSlot, me: Identity, machine: A::Machine) {
        self.lives += 1;
        let inbox = VecDeque::new();
        let life = self.lives;
        let process = Process {
            me,
            life,
            machine,
            inbox,
            taking: false,
            writing: None,
            paused: false,
            view: None,
            wake_at: None,
        };
        self.slots[slot.0] = Some(process);
        self.settle(slot);
    }

    /// Starts the next process of a node.
    pub fn start(&mut self, slot: ProcessSlot) {
        let (nonce, seed) = (self.rng.next_u64(), self.rng.next_u64());
        let now = self.now;
        let node = self.node_mut(slot);
        if A::COUNTS_ON {
            let former = node.shelf.iter().map(|disk| disk.starts).max().unwrap_or_default();
            node.disk.starts = node.disk.starts.max(former);
        }
        node.disk.starts += 1;
        node.guarded = true;
        node.leader = None;
        let me = Identity::new(node.name, Incarnation { count: node.disk.starts, nonce });
        let process = ProcessStart {
            me,
            voters: &node.voters,
            durable: node.disk.contents.clone(),
            seed,
            now: node.clock.read(now),
        };
        let machine = A::start(&node.settings, process);
        let campaigns = node.campaigns;
        let text = format!("· life {} begins", me.incarnation.count);
        self.trace_turn(slot, Level::Event, Turn::Begins, || text);
        self.begin(slot, me, machine);
        if campaigns {
            self.give(slot, Input::Command(Command::Campaign));
        }
        for other in self.slots() {
            self.connect(slot, other);
        }
    }

    /// Queues an input for a process, if there is one; the process handles it when it can.
    pub fn give(&mut self, slot: ProcessSlot, input: Input<A::Message>) {
        if let Some(process) = &mut self.slots[slot.0] {
            process.inbox.push_back(input);
            self.settle(slot);
        }
    }

    /// The loop of every driver: perform the effects in order, then take the next input, and read the clock after
    /// that.
    pub(crate) fn settle(&mut self, slot: ProcessSlot) {
        let mut timeouts = 0;
        let mut is_seen = false;
        loop {
            let Some(process) = &mut self.slots[slot.0] else { return };
            if process.paused || process.writing.is_some() {
                return;
            }
            if let Some(output) = process.machine.poll() {
                self.look_at_metadata(slot, false);
                self.perform(slot, output);
                continue;
            }
            if !is_seen {
                self.look_at_metadata(slot, true);
                is_seen = true;
                continue;
            }
            let clock = &self.nodes[slot.0 % self.nodes.len()].clock;
            let now = clock.read(self.now);
            let due = process.machine.deadline().is_some_and(|deadline| deadline <= now);
            // As the real drivers do with evidence: the effects of all earlier inputs are finished first.
            let evidence_next = matches!(process.inbox.front(), Some(Input::Evidence(_)));
            let takes = process.taking && !evidence_next;
            let deadline_first = due && self.conditions.deadline_first && !takes;
            let input = if deadline_first { None } else { process.inbox.pop_front() };
            process.taking = A::TAKES_WHAT_HAS_COME && (input.is_some() || due);
            match input {
                Some(input) => {
                    timeouts = 0;
                    process.machine.handle(now, input);
                }
                None if due => {
                    timeouts += 1;
                    if timeouts > TIMEOUTS_AT_ONCE_MAX {
                        let what = format!("{} asks to be woken again and again", process.me.node);
                        return self.breach("contract", what);
                    }
                    process.machine.handle(now, Input::Timeout);
                }
                None => return self.sleep(slot),
            }
            self.handled += 1;
            is_seen = false;
            self.look_at_view(slot);
        }
    }

    /// Reports a process's view of its cluster to the invariants and the trace, if it has changed.
    fn look_at_view(&mut self, slot: ProcessSlot) {
        let Some(process) = &mut self.slots[slot.0] else { return };
        let Some(view_of) = A::VIEW else { return };
        let (joining, view) = view_of(&process.machine);
        let is_known = match (view, &process.view) {
            (Some(new), Some(old)) => Arc::ptr_eq(new, old),
            (new, old) => new.is_none() && old.is_none(),
        };
        if is_known {
            return;
        }
        let (who, view) = (process.me, view.cloned());
        process.view.clone_from(&view);
        self.trace_node(slot, Level::Event, || {
            view.as_deref().map_or_else(|| "· belongs to no cluster".to_owned(), view_text)
        });
        self.observe(Observation::Viewed { who, joining, view: view.as_deref() });
    }

    fn sleep(&mut self, slot: ProcessSlot) {
        self.trace_campaigning(slot);
        let now = self.now;
        let clock = &self.nodes[slot.0 % self.nodes.len()].clock;
        let Some(process) = &mut self.slots[slot.0] else { return };
        let wake_at = process.machine.deadline().map(|deadline| clock.when(deadline).max(now));
        let wake_at = wake_at.filter(|&at| at != Moment::NEVER);
        if wake_at == process.wake_at {
            return;
        }
        process.wake_at = wake_at;
        let life = process.life;
        if let Some(at) = wake_at {
            self.queue.plan(at, ScheduledEvent::Wake { slot, life });
        }
    }

    fn perform(&mut self, slot: ProcessSlot, output: Output<A::Message, A::Durable>) {
        match output {
            Output::Persist(durable) => self.persist(slot, durable),
            Output::Send { to: Endpoint::Node(to), message } => self.send(slot, to, message),
            Output::Send { to: Endpoint::Store, message } => self.send_to_store(slot, message),
            Output::Send { to: Endpoint::Client, message } => {
                if let Some(answer) = A::REPLICATION.as_ref().and_then(|it| (it.answer)(&message)) {
                    self.answered(slot, answer);
                }
            }
            Output::Event(event) => self.tell(slot, &event),
        }
    }

    fn persist(&mut self, slot: ProcessSlot, durable: A::Durable) {
        self.trace_node(slot, Level::Disk, || format!("writes {durable:?}"));
        if let Some(met) = self.node_mut(slot).crash_at_write.take() {
            if let Some(process) = &mut self.slots[slot.0] {
                process.writing = Some(durable);
            }
            return self.crash(slot, Crash::Process, met);
        }
        let disk = &mut self.node_mut(slot).disk;
        if disk.failing {
            self.counters.count("fault: disk full");
            self.trace_node(slot, Level::Event, || "cannot write to its disk, and ends".to_owned());
            return self.crash(slot, Crash::Process, MetByCrash::Lost);
        }
        let latency = disk.latency;
        if latency.is_zero() {
            return self.is_written(slot, durable);
        }
        let Some(process) = &mut self.slots[slot.0] else { return };
        process.writing = Some(durable);
        let life = process.life;
        self.plan(latency, ScheduledEvent::Written { slot, life });
    }

    fn written(&mut self, slot: ProcessSlot, life: u64) {
        let Some(process) = self.slots[slot.0].as_mut().filter(|process| process.life == life) else {
            return;
        };
        if let Some(written) = process.writing.take() {
            self.is_written(slot, written);
        }
        self.settle(slot);
    }

    fn is_written(&mut self, slot: ProcessSlot, durable: A::Durable) {
        let had_recovered = self.has_recovered(slot);
        if let Some(write) = A::REPLICATION.and_then(|it| (it.write)(&durable)) {
            self.counters.count(match write {
                Write::Append(_) => "records written",
                Write::Snapshot(_) => "snapshot written",
            });
            let who = self.process(slot).map(|process| process.me).expect("it has written");
            self.observe(Observation::Metadata(MetadataObservation::Wrote { who, write }));
        }
        self.keep(slot, durable);
        if !had_recovered && self.has_recovered(slot) {
            self.counters.count("lost disk: all others have told their terms");
        }
    }

    /// True if the node had lost a disk, and has since learned how far that one can have gone.
    fn has_recovered(&self, slot: ProcessSlot) -> bool {
        let Some(recovery) = A::RECOVERY else { return false };
        self.node(slot).disk.contents.as_ref().is_some_and(recovery.has_recovered)
    }

    pub(crate) fn keep(&mut self, slot: ProcessSlot, durable: A::Durable) {
        let disk = &mut self.node_mut(slot).disk;
        disk.writes += 1;
        if A::REPLACES {
            disk.before.clone_from(&disk.contents);
        }
        A::keep(&mut disk.contents, durable);
    }

    /// Reports a node's replicated state to the invariants: as readers see it before the next effect, or after all
    /// effects of the last input.
    fn look_at_metadata(&mut self, slot: ProcessSlot, done: bool) {
        let Some(process) = &self.slots[slot.0] else { return };
        let Some(machine) = metadata::<A>(&process.machine) else { return };
        let who = process.me;
        let seen = if done {
            MetadataObservation::Settled { who, machine }
        } else {
            MetadataObservation::Shown { who, machine }
        };
        let broken = judge(&mut self.invariants, self.now, &Observation::Metadata(seen), &self.leaderships);
        self.take_judgement(broken);
    }

    /// Reports a node's replicated state to the invariants when it answers a client.
    pub(crate) fn look_at_answer(&mut self, slot: ProcessSlot, ticket: Ticket, answer: &Answer) {
        let Some(process) = &self.slots[slot.0] else { return };
        let Some(machine) = metadata::<A>(&process.machine) else { return };
        let seen =
            Observation::Metadata(MetadataObservation::Answered { who: process.me, ticket, answer, machine });
        let broken = judge(&mut self.invariants, self.now, &seen, &self.leaderships);
        self.take_judgement(broken);
    }

    fn take_judgement(&mut self, broken: Vec<(&'static str, String)>) {
        for invariant in &mut self.invariants {
            invariant.count(&mut self.counters);
        }
        for (invariant, what) in broken {
            self.breach(invariant, what);
        }
    }

    fn send(&mut self, slot: ProcessSlot, to: NodeId, message: A::Message) {
        let Some(process) = self.process(slot) else { return };
        let (me, life) = (process.me, process.life);
        let Some(to_slot) = self.nodes.iter().position(|node| node.name == to).map(ProcessSlot) else {
            return;
        };
        let connected = self.is_connected(slot, life, to_slot);
        let meaning = match A::meaning(&message, Some(to)) {
            // No node can ever receive the vote. The disk may be replaced, and its predecessor restored, before any
            // node has heard of it.
            Meaning::Votes { .. } if !connected => Meaning::Nothing,
            meaning @ (Meaning::Nothing
            | Meaning::Votes { .. }
            | Meaning::Leads { .. }
            | Meaning::Releases { .. }
            | Meaning::Withdraws { .. }) => meaning,
        };
        if matches!(meaning, Meaning::Votes { .. }) && self.has_recovered(slot) {
            self.counters.count("lost disk: the node votes again");
        }
        if meaning != Meaning::Nothing {
            self.observe(Observation::Said { who: me, meaning });
        }
        let (from_host, to_host) = (self.host(slot), self.host(to_slot));
        let fate = if connected {
            self.network.fate(from_host, to_host, A::kind(&message), &mut self.rng)
        } else {
            Fate::unconnected()
        };
        self.met(&message, fate, (from_host, to_host));
        self.trace_send(slot, Endpoint::Node(to), &message, fate);
        for delay in fate.arrivals.into_iter().flatten() {
            let (from, sent_at) = (Endpoint::Node(me.node), self.now);
            self.plan(
                delay,
                ScheduledEvent::Arrive { slot: to_slot, from, message: message.clone(), sent_at },
            );
        }
    }

    fn send_to_store(&mut self, slot: ProcessSlot, message: A::Message) {
        let Some(process) = self.process(slot) else { return };
        let (me, life) = (process.me, process.life);
        let meaning = A::meaning(&message, None);
        if meaning != Meaning::Nothing {
            self.observe(Observation::Said { who: me, meaning });
        }
        let host = self.host(slot);
        let fate = self.network.fate(host, STORE, A::kind(&message), &mut self.rng);
        self.met(&message, fate, (host, STORE));
        self.trace_send(slot, Endpoint::Store, &message, fate);
        for delay in fate.arrivals.into_iter().flatten() {
            let sent_at = self.now;
            self.plan(delay, ScheduledEvent::ArriveAtStore { slot, life, message: message.clone(), sent_at });
        }
    }

    fn serve(&mut self, slot: ProcessSlot, life: u64, message: &A::Message, sent_at: Moment) {
        // A request that was sent is served, even if its sender is dead.
        self.trace_late_at_store(slot, message, sent_at);
        if let Some(request) = A::SESSIONS.and_then(|sessions| (sessions.request)(message)) {
            return self.serve_session(slot, life, request);
        }
        let Some(store) = A::STORE else { return };
        let Some(request) = (store.request)(message) else { return };
        let served = self.store.serve(self.now, self.node(slot).name, request);
        self.met_by_store(served.met);
        if let Some(reply) = served.reply.map(store.reply) {
            self.send_reply(slot, life, reply, served.changed);
        }
        if served.changed {
            self.tell_change(Some(slot));
        }
    }

    /// Sends the store's answer to a request; `changed` is true if the request has changed the store's state.
    fn send_reply(&mut self, slot: ProcessSlot, life: u64, reply: A::Message, changed: bool) {
        let host = self.host(slot);
        let fate = self.network.fate(STORE, host, A::kind(&reply), &mut self.rng);
        self.met(&reply, fate, (STORE, host));
        if changed && fate.is_lost() {
            self.met_by_store(Some(Mishap::ReplyLost.name()));
        }
        self.trace_reply(slot, &reply, fate);
        for delay in fate.arrivals.into_iter().flatten() {
            let (message, sent_at) = (reply.clone(), self.now);
            self.plan(delay, ScheduledEvent::ArriveFromStore { slot, life, message, sent_at });
        }
    }

    /// Serves a request to the queue.
    fn serve_session(&mut self, slot: ProcessSlot, life: u64, request: &session::Message) {
        let mishap = if is_write(request) { self.store.take_aimed(self.node(slot).name) } else { None };
        let served = self.sessions.serve(self.now, self.store.mood, mishap, request);
        self.met_by_store(served.met);
        let who = self.slots[slot.0].as_ref().filter(|it| it.life == life).map(|process| process.me);
        if let (Some(who), Some(token)) = (who, served.released) {
            self.observe(Observation::Said { who, meaning: Meaning::Withdraws { token } });
        }
        if let Some(at) = served.look_at {
            self.queue.plan(at, ScheduledEvent::SessionsRunOut);
        }
        if let Some((reply, sessions)) = served.reply.zip(A::SESSIONS) {
            let reply = (sessions.reply)(reply);
            self.send_reply(slot, life, reply, served.released.is_some());
        }
        self.notify(&served.notice);
    }

    /// Notifies processes of a change of the queue, if the store announces changes.
    pub(crate) fn notify(&mut self, notice: &ChangeNotice) {
        if !self.store.tells_changes || notice.is_none() {
            return;
        }
        for slot in (0..self.slots.len()).map(ProcessSlot) {
            let Some((me, life)) = self.process(slot).map(|process| (process.me, process.life)) else {
                continue;
            };
            let looks_on = notice.to_onlookers && !self.sessions.has_entry(me);
            if (notice.to.contains(&me) || looks_on) && !self.network.is_cut(STORE, self.host(slot)) {
                let Some(sessions) = A::SESSIONS else { continue };
                let message = (sessions.reply)(session::Message::Changed);
                self.counters.count("change told");
                let (delay, sent_at) = (self.network.delay(STORE, self.host(slot)), self.now);
                self.plan(delay, ScheduledEvent::ArriveFromStore { slot, life, message, sent_at });
            }
        }
    }

    /// Notifies all nodes but the writer that the record has changed, if the store announces changes.
    pub(crate) fn tell_change(&mut self, writer: Option<ProcessSlot>) {
        if !self.store.tells_changes {
            return;
        }
        for slot in (0..self.slots.len()).map(ProcessSlot) {
            let Some(life) = self.process(slot).map(|process| process.life) else { continue };
            let Some(store) = A::STORE else { continue };
            let message = (store.reply)(primacy_core::election::lease::Message::Changed);
            if Some(slot) != writer && !self.network.is_cut(STORE, self.host(slot)) {
                let delay = self.network.delay(STORE, self.host(slot));
                let sent_at = self.now;
                self.plan(delay, ScheduledEvent::ArriveFromStore { slot, life, message, sent_at });
            }
        }
    }

    // ── the application ─────────────────────────────────────────────────────────────────────────────────────

    fn tell(&mut self, slot: ProcessSlot, event: &Event) {
        let Some(process) = self.process(slot) else { return };
        let who = process.me;
        let level = match event {
            Event::Renewed { .. } => Level::Heartbeat,
            Event::Elected { .. } | Event::Resigning(_) | Event::Deposed(_) => Level::Event,
            Event::LeaderChanged(_) | Event::Violation(_) => Level::Event,
        };
        if self.trace.wants(level) && !self.names_itself(slot, event) {
            let clock = self.node(slot).clock.clone();
            let turn = Turn::of(event, |instant| clock.when(instant));
            self.trace_turn(slot, level, turn, || {
                display::event(event, |instant| until(clock.when(instant)))
            });
        }
        let busy = self.node(slot).busy;
        let drained_by = if busy { Moment::NEVER } else { self.now.after(self.conditions.drain) };
        let clock = &self.nodes[slot.0 % self.nodes.len()].clock;
        if let Err(what) = self.leaderships.told(self.now, clock, who, event, drained_by) {
            self.breach("contract", what);
        }
        match *event {
            Event::Elected { mandate, .. } => {
                self.node_mut(slot).mandate = Some((mandate, self.leaderships.count));
                self.met_elected();
                self.work_writes(slot);
            }
            Event::Renewed { .. } => self.work_writes(slot),
            Event::Resigning(_) => self.drain(slot, who, busy),
            Event::LeaderChanged(leader) => self.node_mut(slot).leader = leader,
            Event::Violation(_) => self.alarms += 1,
            Event::Deposed(reason) => self.deposed(slot, reason),
        }
        self.observe(Observation::Told { who, event });
    }

    /// Writes to the resource as a leader's work, if work writes by itself.
    fn work_writes(&mut self, slot: ProcessSlot) {
        let Some(longest) = self.conditions.work_writes else { return };
        let after = self.rng.duration_up_to(longest);
        let Some((mandate, ordinal)) = self.node(slot).mandate else { return };
        self.plan(after, ScheduledEvent::WriteArrives { slot, late: false, mandate, ordinal });
    }

    /// Ends the work in order; at once if the process is dead.
    fn drain(&mut self, slot: ProcessSlot, who: Identity, busy: bool) {
        let Some(interval) = self.leaderships.of(who) else { return };
        let ordinal = interval.ordinal;
        if !interval.in_force(self.now) {
            self.plan(Duration::ZERO, ScheduledEvent::Drained { slot, ordinal });
        } else if !busy {
            self.plan(self.conditions.drain, ScheduledEvent::Drained { slot, ordinal });
        }
    }

    /// True if the event only names the leader itself as the leader, which is not worth a line.
    fn names_itself(&self, slot: ProcessSlot, event: &Event) -> bool {
        match event {
            Event::LeaderChanged(Some(leader)) => leader.identity.node == self.node(slot).name,
            Event::LeaderChanged(None) | Event::Elected { .. } | Event::Renewed { .. } => false,
            Event::Resigning(_) | Event::Deposed(_) | Event::Violation(_) => false,
        }
    }

    /// Records that the work of a node has ended.
    pub fn drained(&mut self, slot: ProcessSlot) {
        let Some(who) = self.process(slot).map(|process| process.me) else { return };
        self.leaderships.drained(self.now, who);
        self.give(slot, Input::Command(Command::Drained));
    }

    /// Writes to the resource as the work of a node, with the mandate of its latest leadership. The write
    /// takes `after`.
    ///
    /// # Errors
    /// If the node never led.
    pub fn write(&mut self, slot: ProcessSlot, after: Duration) -> Result<(), String> {
        let name = self.node(slot).name;
        let (mandate, ordinal) = self.node(slot).mandate.ok_or_else(|| format!("{name} has never led"))?;
        let late = !after.is_zero();
        let delay = after.plus(self.conditions.delay);
        self.plan(delay, ScheduledEvent::WriteArrives { slot, late, mandate, ordinal });
        Ok(())
    }

    fn write_arrives(&mut self, slot: ProcessSlot, late: bool, mandate: primacy_core::Mandate, ordinal: u64) {
        let number = match mandate {
            primacy_core::Mandate::Fenced(token) => token.0,
            primacy_core::Mandate::Advisory => ordinal,
        };
        let name = self.node(slot).name;
        let late = if late { "late " } else { "" };
        // Where work writes all the time, a write has the level of a heartbeat.
        let level = if self.conditions.work_writes.is_some() { Level::Heartbeat } else { Level::Event };
        let with = || match mandate {
            primacy_core::Mandate::Fenced(token) => format!("token {token}"),
            primacy_core::Mandate::Advisory => "no token".to_owned(),
        };
        let answer = self.resource.write(mandate);
        self.counters.count(if answer.is_ok() { "write accepted" } else { "stale write refused" });
        self.trace_write(level, name, mandate, answer.is_ok(), || match answer {
            Ok(()) => format!("resource: {late}write of {name} with {} accepted", with()),
            Err(error) => format!("resource: {late}write of {name} with {} refused: {error}", with()),
        });
        if answer.is_ok() {
            self.observe(Observation::Accepted { number });
        }
    }

    // ── the judge ───────────────────────────────────────────────────────────────────────────────────────────

    pub(crate) fn observe(&mut self, seen: Observation<'_>) {
        let broken = judge(&mut self.invariants, self.now, &seen, &self.leaderships);
        for (invariant, what) in broken {
            self.breach(invariant, what);
        }
    }

    pub(crate) fn breach(&mut self, invariant: &'static str, what: String) {
        self.trace_breach(invariant, &what);
        self.breaches.push(Breach { at: self.now, invariant, what });
    }

    /// Returns a node's own part of its handshake.
    pub(crate) fn priority_and_witness(&self, slot: ProcessSlot) -> (u32, bool) {
        self.node(slot).settings.priority_and_witness()
    }
}

/// Checks an observation. Returns the invariants that break, and their violations.
fn judge(
    invariants: &mut [Box<dyn Invariant>],
    now: Moment,
    seen: &Observation<'_>,
    leaderships: &LeadershipIntervals,
) -> Vec<(&'static str, String)> {
    let judged = invariants.iter_mut().map(|it| (it.name(), it.observe(now, seen, leaderships)));
    judged.filter_map(|(name, judged)| judged.err().map(|what| (name, what))).collect()
}

/// True if a request changes the queue, so that a fault of a write applies to it.
const fn is_write(request: &session::Message) -> bool {
    matches!(
        request,
        session::Message::Begin { .. }
            | session::Message::Campaign { .. }
            | session::Message::Leave { .. }
            | session::Message::End { .. }
            | session::Message::Evict { .. }
    )
}
