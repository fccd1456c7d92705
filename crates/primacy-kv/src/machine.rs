//! The machine of one node: an election, a log beside it, and the requests of its clients.
//!
//! The election and the log do not know each other; this machine connects them. The elected node leads the log. It is
//! reported to the application as the leader only when it is active: when its log has all committed records, and its
//! first record is committed. A vote binds the log to the vote's term, and a leader's message to the log binds the
//! voter; both share one persisted term.
//!
//! Since any voter may be elected, a node with an old list of voters may campaign. A candidate states the voters that
//! it counts. A voter that knows newer ones refuses, and sends them.

use alloc::collections::{BTreeSet, VecDeque};
use alloc::sync::Arc;
use alloc::vec::Vec;

pub mod clients;
mod expiry;
mod proposing;
mod report;

use primacy_core::election::quorum::{self, DiskState, HardState, Quorum, TERM_MAX};

use self::clients::{Clients, Keep, News, Ticket};
use self::expiry::Expiry;
use self::proposing::Early;
use self::report::SessionNews;
pub use self::report::{Keeps, Report};
use crate::command::{Applied, Command as StateCommand, Outcome, Refusal as Refused, SessionId};
use crate::replication::log::{PAYLOAD_MAX, Stored, Write};
use crate::replication::message;
use crate::replication::replica::{
    self, Effect, Progress, Refusal, Replica, Replicated, Unreadable, VoterChange,
};
use crate::replication::voters::Voters;
use crate::state::State;
use crate::state::requests::OPEN_MAX;

use primacy_core::id::{Identity, Incarnation, NodeId};
use primacy_core::protocol::{
    Command, Endpoint, Event, Evidence, Input, Leader, Mandate, Output, Protocol, Violation,
};
use primacy_core::term::{LeaderSequence, Term};
use primacy_core::time::{Duration, Instant};

/// The limit on the bytes of writes in one message to the leader, if it has more than one write.
const PROPOSE_MAX: usize = 256 << 10;

/// The time after which a client's request is sent again, in multiples of the replica's `resend_after`.
const TELL_AGAIN: u64 = 4;
/// The limit on sessions that are ended in one step.
const EXPIRED_AT_ONCE: usize = 1024;

/// A durable part of a node's state.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Durable {
    /// The election's part.
    Hard(HardState),
    /// The voters in force.
    Voters(Arc<Voters>),
    /// True if the log is lost: it may lack records that this node has held.
    LogLost(bool),
    /// The log's part.
    Log(Write),
}

/// A message between nodes, or between a node and its clients.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    /// A message of the election.
    Election {
        /// The message.
        message: quorum::Message,
        /// The voters that the sender counts, in a request for votes or pre-votes.
        voters: Option<Arc<Voters>>,
    },
    /// The sender's list of voters: sent to a candidate with an older list, to a recovering node, and first on each
    /// connection.
    Voters {
        /// The incarnation of the sender.
        incarnation: Incarnation,
        /// The voters.
        voters: Arc<Voters>,
    },
    /// A message of the log.
    Log {
        /// The incarnation of the sender.
        incarnation: Incarnation,
        /// The term to which it is bound.
        term: Term,
        /// The message.
        body: message::Body,
    },
    /// To the leader: requests of the clients of this node.
    Propose {
        /// The incarnation of the sender.
        incarnation: Incarnation,
        /// The encoded requests, as records contain them.
        requests: Vec<Arc<[u8]>>,
        /// The round of reads and session requests, if there are any.
        read: Option<u64>,
        /// The sessions that clients ask for.
        sessions: Vec<(SessionId, Keep)>,
    },
    /// From the leader: the answers that do not need the log.
    Told {
        /// The incarnation of the sender.
        incarnation: Incarnation,
        /// The incarnation that asked.
        to: Incarnation,
        /// The round that is answered, and the record that a node must have applied before it serves the reads of that
        /// round.
        read: Option<(u64, LeaderSequence)>,
        /// The requested sessions, and the remaining time of each; `None` if there is no such session.
        sessions: Vec<(SessionId, Keep, Option<Duration>)>,
        /// The numbers of requests that the leader cannot decode, and so has not written: its version is older than
        /// that of the node that sent them.
        unreadable: Vec<u64>,
    },
    /// To the leader: an operator's change of the voters.
    Revise {
        /// The incarnation of the sender.
        incarnation: Incarnation,
        /// The ticket of the question.
        ticket: Ticket,
        /// The change.
        change: VoterChange,
    },
    /// From the leader: the progress of that change.
    Revised {
        /// The incarnation of the sender.
        incarnation: Incarnation,
        /// The incarnation that asked.
        to: Incarnation,
        /// The ticket of the question.
        ticket: Ticket,
        /// The progress.
        progress: Progress,
    },
    /// From a client of this node.
    Ask(Ask),
    /// To a client of this node.
    Answer(Answer),
}

/// A request of a client of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ask {
    /// Apply this command.
    Write(Ticket, StateCommand),
    /// Report when this node's state includes all writes before now.
    Read(Ticket),
    /// Report the remaining time of a session, or keep it alive.
    Session(Ticket, SessionId, Keep),
    /// Advance a change of the voters. The machine does not resend lost messages of it.
    Revise(Ticket, VoterChange),
    /// Accept the loss of this node's log: see [`Replica::accept_loss`].
    AcceptLoss(Ticket),
}

/// An answer to a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The write was applied, or refused.
    Written(Ticket, Outcome),
    /// The write was applied, and its outcome is not known.
    Done(Ticket),
    /// The leader cannot decode the write, and has not applied it. This node sends it to no other leader; whether an
    /// earlier leader has applied it is not known.
    Unreadable(Ticket),
    /// The state of this node includes all writes before the request.
    Readable(Ticket),
    /// The remaining time of a session; `None` if there is no such session.
    Session(Ticket, Option<Duration>),
    /// The progress of a change of the voters.
    Revised(Ticket, Progress),
    /// The loss of this node's log is accepted; true if the log was lost.
    LossAccepted(Ticket, bool),
}

/// The configuration of a node.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Config {
    /// The configuration of the election. The replicated voters replace its voters.
    pub election: quorum::Config,
    /// The log.
    pub replica: replica::Config,
}

/// The durable state that an earlier incarnation of a node has left.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct StoredState {
    /// The election's part.
    pub hard: HardState,
    /// The voters that were persisted last, or those of the configuration.
    pub voters: Arc<Voters>,
    /// The log.
    pub log: Stored,
    /// True if there was a log, and it is lost.
    pub log_lost: bool,
}

/// The state machine of one node.
#[derive(Clone, Debug)]
pub struct Metadata<S: Replicated = State> {
    me: Identity,
    quorum: Quorum,
    replica: Replica<S>,
    /// The number of the voters that the election counts.
    counted: LeaderSequence,
    lead: Lead,
    /// The leader, as the election knows it.
    leader: Option<Leader>,
    /// The leader last reported to the application.
    told_leader: Option<Leader>,
    /// Writes of other nodes' clients that arrived before this leader was active.
    early: Early,
    /// Requests that this leader has [proposed](Self::propose), and that are not applied yet.
    proposed: BTreeSet<(Identity, u64)>,
    clients: Clients,
    expiry: Expiry,
    tell_again_after: Duration,
    /// True if the leader is resigning before the application was elected, so there is no work to drain.
    nobody_works: bool,
    /// The term in which this node resigned in order to be removed, until another node leads.
    resigned_to_be_removed: Option<Term>,
    /// The time of the last input, until all effects of it are performed.
    handled_at: Option<Instant>,
    outputs: VecDeque<Output<Message, Durable>>,
}

/// This node's leadership.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Lead {
    None,
    /// The node is elected, and not yet active.
    Elected {
        term: Term,
        mandate: Mandate,
        valid_until: Instant,
    },
    /// The node is active, and the application is elected.
    Held {
        valid_until: Instant,
    },
}

impl<S: Keeps> Protocol for Metadata<S> {
    type Message = Message;
    type Durable = Durable;

    fn handle(&mut self, now: Instant, input: Input<Message>) {
        debug_assert!(self.outputs.is_empty(), "all outputs must be drained before the next input");
        self.handled_at = Some(now);
        if self.quorum.deadline().is_some_and(|at| now >= at) {
            self.elect(now, Input::Timeout); // A lease that has ended is over, whatever comes next.
        }
        match input {
            Input::Message { from: Endpoint::Node(from), message } => self.on_message(now, from, message),
            Input::Message { from: Endpoint::Client, message: Message::Ask(ask) } => self.on_ask(now, ask),
            Input::Message { from: Endpoint::Client | Endpoint::Store, .. } => {} // Nothing that one of them says.
            Input::Timeout => self.on_timeout(now),
            Input::Command(command) => self.elect(now, Input::Command(command)),
            Input::Evidence(evidence) => {
                if self.quorum.disk_state().is_refuted_by(evidence, self.me.node) {
                    self.on_disk_lost(now);
                }
                self.elect(now, Input::Evidence(evidence));
                match evidence {
                    Evidence::Connected(peer) => self.replica.on_connected(now, peer.identity),
                    Evidence::Died(life) => self.on_death(now, life),
                    Evidence::Disconnected(_) => {}
                    Evidence::Readmitted { .. } | Evidence::DiskRefused { .. } => {} // As above.
                }
            }
        }
        self.settle(now);
    }

    /// The driver reads the state while it performs effects. So the results of an effect are applied at the next call,
    /// by which time the effect is performed.
    fn poll(&mut self) -> Option<Output<Message, Durable>> {
        while let Some(now) = self.handled_at.filter(|_| self.outputs.is_empty()) {
            if self.replica.on_performed(now) {
                self.settle(now);
            } else {
                self.handled_at = None;
            }
        }
        self.outputs.pop_front()
    }

    fn deadline(&self) -> Option<Instant> {
        let expiry = if self.may_end_sessions() { self.expiry.next() } else { None };
        let clients = [self.clients.flush_at, self.clients.again_at];
        let machines = [self.quorum.deadline(), self.replica.deadline(), expiry];
        machines.into_iter().chain(clients).flatten().min()
    }
}

impl<S: Keeps> Metadata<S> {
    /// The state machine of one node. It does not campaign until commanded to.
    ///
    /// This node need not be among the voters: it may have been removed.
    ///
    /// # Errors
    /// [`Unreadable`], if the snapshot or a record of an earlier incarnation cannot be decoded: it is intact on the
    /// disk, and a later version wrote it.
    pub fn new(config: Config, stored: StoredState, now: Instant) -> Result<Self, Unreadable> {
        let me = config.replica.me;
        let tell_again_after = config.replica.resend_after.times(TELL_AGAIN);
        let StoredState { hard, voters, log, log_lost } = stored;
        let replica = Replica::new(config.replica, hard.term, voters, log, log_lost, now)?;
        let counted = replica.voters().number;
        let voters = replica.voters().names();
        // `Quorum::new` requires this node among the voters; the actual voters are set after it. If the disk was lost,
        // the node must also hear from the voters of its configuration.
        let all = config.election.voters.iter().chain(&voters).copied().chain([me.node]).collect();
        let mut quorum = Quorum::new(quorum::Config { voters: all, ..config.election }, hard, now);
        quorum.set_voters(voters);
        let mut machine = Self {
            me,
            quorum,
            replica,
            counted,
            lead: Lead::None,
            leader: None,
            told_leader: None,
            early: Early::default(),
            proposed: BTreeSet::new(),
            clients: Clients::new(me),
            expiry: Expiry::default(),
            tell_again_after,
            nobody_works: false,
            resigned_to_be_removed: None,
            handled_at: Some(now),
            outputs: VecDeque::new(),
        };
        machine.take_election(now);
        machine.take_effects();
        Ok(machine)
    }

    /// The election.
    #[must_use]
    pub const fn election(&self) -> &Quorum {
        &self.quorum
    }

    /// The log and the state.
    #[must_use]
    pub const fn replica(&self) -> &Replica<S> {
        &self.replica
    }

    /// The state, as far as this node has applied it.
    #[must_use]
    pub const fn state(&self) -> &S {
        self.replica.state()
    }

    /// The active leader, as far as this node knows.
    #[must_use]
    #[allow(clippy::misnamed_getters, reason = "what the application was told is what holds")]
    pub const fn leader(&self) -> Option<Leader> {
        self.told_leader
    }

    /// The elected leader, if it is not known to be active.
    #[must_use]
    pub fn elected(&self) -> Option<Leader> {
        let own = || Leader { identity: self.me, term: self.replica.bound() };
        let elected = if self.replica.leads() { Some(own()) } else { self.leader };
        elected.filter(|_| self.told_leader.is_none())
    }

    /// The number of writes of this node's clients that are not known to be applied.
    #[must_use]
    pub fn open_writes(&self) -> usize {
        self.clients.open()
    }

    /// True if this node may answer as the leader: it leads, is active, and its lease runs. Call it only after `handle`
    /// has received the time, which ends a lease that is over.
    fn serves(&self) -> bool {
        matches!(self.lead, Lead::Held { .. })
    }

    // ── inputs ──────────────────────────────────────────────────────────────────────────────────────────────

    fn on_message(&mut self, now: Instant, from: NodeId, message: Message) {
        if from == self.me.node {
            return;
        }
        match message {
            Message::Election { message, voters } => self.on_election(now, from, message, voters),
            Message::Voters { voters, .. } => self.hear_of_voters(now, &voters),
            Message::Log { incarnation, term, body } => {
                self.on_log(now, Identity::new(from, incarnation), term, body);
            }
            Message::Propose { incarnation, requests, read, sessions } => {
                let from = Identity::new(from, incarnation);
                self.on_propose(now, from, requests);
                self.on_questions(now, from, read, sessions);
            }
            Message::Told { to, read, sessions, unreadable, .. } if to == self.me.incarnation => {
                self.on_unreadable(from, &unreadable);
                self.on_told(read, sessions);
            }
            Message::Told { .. } => {} // An earlier life asked.
            Message::Revise { incarnation, ticket, change } => {
                let progress = self.revise(now, &change);
                let (to, incarnation) = (incarnation, self.me.incarnation);
                self.send(from, Message::Revised { incarnation, to, ticket, progress });
            }
            Message::Revised { to, ticket, progress, .. } if to == self.me.incarnation => {
                self.answer(Answer::Revised(ticket, progress));
            }
            Message::Revised { .. } => {}              // An earlier life asked.
            Message::Ask(_) | Message::Answer(_) => {} // No node says that.
        }
    }

    fn on_election(
        &mut self,
        now: Instant,
        from: NodeId,
        message: quorum::Message,
        voters: Option<Arc<Voters>>,
    ) {
        if asks_for_votes(&message) {
            let Some(theirs) = voters else { return };
            if theirs.number.term > TERM_MAX {
                return; // No honest node's.
            }
            self.quorum.may_have_voted(theirs.names());
            let mine = self.replica.voters();
            // If both lists have the same voters, it does not matter which of them is newer.
            if theirs.number < mine.number && theirs.names() != mine.names() {
                let (incarnation, voters) = (self.me.incarnation, Arc::clone(mine));
                return self.send(from, Message::Voters { incarnation, voters });
            }
            if theirs.names() != mine.names() && !self.may_be_newer(&theirs) {
                return; // Of the voters of that one this node may know better.
            }
            self.hear_of_voters(now, &theirs);
        }
        self.elect(now, Input::Message { from: Endpoint::Node(from), message });
    }

    fn hear_of_voters(&mut self, now: Instant, voters: &Arc<Voters>) {
        let term = voters.number.term;
        if term > TERM_MAX {
            return; // No honest node's.
        }
        // An older list counts too: this node may have voted under it before it lost its disk.
        self.quorum.may_have_voted(voters.names());
        // A node without a log does not know the latest number of its voters. So it adopts newer numbers even of the
        // same voters; otherwise any list that it receives next would look newer.
        let needs_number = self.replica.is_recovering() || self.replica.last() == LeaderSequence::NONE;
        let differ = voters.names() != self.replica.voters().names();
        if !self.may_be_newer(voters) || !(needs_number || differ) {
            return;
        }
        if term > self.replica.bound() {
            self.quorum.bind(now, term); // A leader of that term wrote it, and who counts by it is of that term.
            self.take_election(now);
        }
        self.replica.tell_voters(voters);
        self.take_effects();
    }

    /// True if these voters may be newer than this node's. A node that has lost its whole disk receives the lists of
    /// all others, and adopts the newest; when it has heard all of them, that list replaces the one that it has lost.
    fn may_be_newer(&self, voters: &Voters) -> bool {
        match self.quorum.disk_state() {
            DiskState::Intact | DiskState::Recovered => self.replica.may_be_newer(voters),
            DiskState::Lost => voters.number > self.replica.voters().number,
        }
    }

    fn on_log(&mut self, now: Instant, from: Identity, term: Term, body: message::Body) {
        if term > TERM_MAX {
            return;
        }
        if body.leads() && term > self.replica.bound() {
            self.quorum.bind(now, term);
            self.take_election(now);
        }
        if matches!(body, message::Body::Recover) && self.replica.is_active() {
            // The recovering node may await answers of voters that were removed long ago.
            let (incarnation, voters) = (self.me.incarnation, Arc::clone(self.replica.voters()));
            self.send(from.node, Message::Voters { incarnation, voters });
        }
        self.replica.handle(now, from, term, body);
        self.take_effects();
    }

    fn on_timeout(&mut self, now: Instant) {
        self.replica.on_timeout(now);
        self.take_effects();
        if self.clients.again_at.is_some_and(|at| now >= at) {
            self.take_outcomes(now); // Else an answer that is here already would count as lost.
            self.answer_applied();
            self.clients.tell_all(now);
        }
        if self.clients.flush_at.is_some_and(|at| now >= at) {
            self.tell_leader(now);
        }
        if self.may_end_sessions() {
            for session in self.expiry.take_over(now, EXPIRED_AT_ONCE) {
                self.write(now, None, StateCommand::Expire { session });
            }
        }
    }

    /// True if this node may end sessions whose time is over. The limit keeps its own requests below the number that
    /// the state remembers per client.
    fn may_end_sessions(&self) -> bool {
        self.serves() && self.clients.open() <= OPEN_MAX / 2
    }

    /// Ends the session of a dead node.
    fn on_death(&mut self, now: Instant, life: Identity) {
        let session = self.replica.state().session_of(life).filter(|_| self.serves());
        // A session whose end is written already is left out.
        if let Some(session) = session.filter(|&session| self.expiry.end(session).is_some()) {
            self.expiry.remove(session);
            self.write(now, None, StateCommand::Expire { session });
        }
    }

    /// Handles evidence that the others know this node with another disk: it has lost the log with the votes. This is
    /// persisted before the election can report its own recovery.
    fn on_disk_lost(&mut self, now: Instant) {
        self.replica.lose(now);
        self.take_effects();
    }

    // ── the two machines ────────────────────────────────────────────────────────────────────────────────────

    fn elect(&mut self, now: Instant, input: Input<quorum::Message>) {
        self.quorum.handle(now, input);
        self.take_election(now);
    }

    /// Performs the outputs of the election. Its term binds the log before anything else is sent.
    fn take_election(&mut self, now: Instant) {
        self.replica.bind(self.quorum.term());
        self.take_outputs(now);
        self.replica.set_disk_is_known(self.quorum.disk_state() != DiskState::Lost);
        if core::mem::take(&mut self.nobody_works) {
            self.quorum.handle(now, Input::Command(Command::Drained));
            self.take_outputs(now);
        }
        self.take_effects();
    }

    fn take_outputs(&mut self, now: Instant) {
        while let Some(output) = self.quorum.poll() {
            match output {
                Output::Persist(hard) => self.outputs.push_back(Output::Persist(Durable::Hard(hard))),
                Output::Send { to, message } => {
                    let voters = asks_for_votes(&message).then(|| Arc::clone(self.replica.voters()));
                    self.outputs
                        .push_back(Output::Send { to, message: Message::Election { message, voters } });
                }
                Output::Event(event) => self.on_event(now, event),
            }
        }
    }

    fn on_event(&mut self, now: Instant, event: Event) {
        match event {
            Event::Elected { term, mandate, valid_until } => {
                self.lead = Lead::Elected { term, mandate, valid_until };
                self.replica.lead(now);
            }
            Event::Renewed { valid_until } => match &mut self.lead {
                Lead::Elected { valid_until: end, .. } => *end = valid_until,
                Lead::Held { valid_until: end } => {
                    *end = valid_until;
                    self.tell(event);
                }
                Lead::None => {}
            },
            Event::Resigning(_) => match self.lead {
                // The node leads and serves until the application's work has drained.
                Lead::Held { .. } => self.tell(event),
                // The application was not elected, so there is nothing to drain.
                Lead::Elected { .. } => self.nobody_works = true,
                Lead::None => {}
            },
            Event::Deposed(_) => {
                let told = self.serves();
                self.lead = Lead::None;
                self.replica.follow();
                self.early = Early::default();
                self.proposed.clear();
                self.expiry = Expiry::default();
                self.clients.forget_own();
                if told {
                    self.tell(event);
                }
            }
            Event::LeaderChanged(leader) => {
                if leader.is_some_and(|leader| leader.identity != self.me) {
                    self.resigned_to_be_removed = None;
                    self.clients.tell_all(now);
                }
                self.leader = leader;
            }
            Event::Violation(_) => self.tell(event),
        }
    }

    fn take_effects(&mut self) {
        let voters = self.replica.voters();
        if voters.number != self.counted {
            self.counted = voters.number;
            self.quorum.set_voters(voters.names());
        }
        while let Some(effect) = self.replica.poll() {
            match effect {
                Effect::Write(write) => self.outputs.push_back(Output::Persist(Durable::Log(write))),
                Effect::Voters(voters) => self.outputs.push_back(Output::Persist(Durable::Voters(voters))),
                Effect::LogLost(lost) => self.outputs.push_back(Output::Persist(Durable::LogLost(lost))),
                Effect::Send { to, body } => {
                    let (incarnation, term) = (self.me.incarnation, self.replica.bound());
                    self.send(to, Message::Log { incarnation, term, body });
                }
                Effect::TwoLeaders { known, other } => {
                    let term = self.replica.bound();
                    self.tell(Event::Violation(Violation::TwoLeaders { term, known, other }));
                }
            }
        }
    }

    /// Reports all results.
    fn settle(&mut self, now: Instant) {
        self.take_effects();
        self.take_outcomes(now);
        // The voters may have changed while it caught up: the present ones must support it.
        if let Lead::Elected { term, mandate, valid_until } = self.lead
            && self.replica.is_active()
            && self.quorum.is_supported_to_the_end()
        {
            if self.replica.voters().contains(self.me.node) {
                self.become_active(now, term, mandate, valid_until);
            } else {
                // By the log that it fetched, it is no longer a voter. That is committed, and the application was not
                // elected.
                self.elect(now, Input::Command(Command::Resign));
            }
        }
        if self.replica.is_current() {
            for ticket in self.clients.reached(self.replica.applied()) {
                self.answer(Answer::Readable(ticket));
            }
        }
        self.tell_leader_changed();
    }

    fn take_outcomes(&mut self, now: Instant) {
        while let Some((_, outcome)) = self.replica.next_outcome() {
            self.on_applied(now, outcome);
        }
    }

    fn become_active(&mut self, now: Instant, term: Term, mandate: Mandate, valid_until: Instant) {
        self.lead = Lead::Held { valid_until };
        self.expiry = Expiry::begin(now, self.replica.state().sessions().into_iter());
        self.tell(Event::Elected { term, mandate, valid_until });
        self.answer_applied();
        let early = core::mem::take(&mut self.early).of(term);
        for request in self.clients.all_writes().into_iter().chain(early) {
            self.propose(now, request);
        }
        for ticket in self.clients.take_reads() {
            self.answer(Answer::Readable(ticket));
        }
        for (session, keep) in self.clients.take_sessions() {
            let left = self.look_at(now, session, keep);
            self.answer_session(session, keep, left, u64::MAX);
        }
        // When a leader dies, its guardian has no leader to notify, so the new leader ends the sessions of all known
        // dead incarnations. It does so after the clients' requests are written: a write before them would be taken for
        // one of them, and written twice.
        for life in self.quorum.dead().collect::<Vec<_>>() {
            self.on_death(now, life);
        }
    }

    /// Reports a leader to the application once it can serve requests.
    fn tell_leader_changed(&mut self) {
        let leader = self.leader.filter(|leader| match leader.identity == self.me {
            true => self.serves(),
            // A leader writes the first record of its term when it has all earlier committed records, and is active
            // when that record is committed.
            false => self.replica.last().term >= leader.term,
        });
        if leader != self.told_leader {
            self.told_leader = leader;
            self.tell(Event::LeaderChanged(leader));
        }
    }

    // ── clients ─────────────────────────────────────────────────────────────────────────────────────────────

    fn on_ask(&mut self, now: Instant, ask: Ask) {
        match ask {
            Ask::Write(ticket, command) => self.write(now, Some(ticket), command),
            Ask::Read(ticket) if self.serves() => self.answer(Answer::Readable(ticket)),
            Ask::Read(ticket) => self.clients.read(now, ticket),
            Ask::Session(ticket, session, keep) if self.serves() => {
                let left = self.look_at(now, session, keep);
                self.answer(Answer::Session(ticket, left));
            }
            Ask::Session(ticket, session, keep) => self.clients.session(now, ticket, session, keep),
            Ask::AcceptLoss(ticket) => {
                let was_lost = self.replica.accept_loss(now);
                self.answer(Answer::LossAccepted(ticket, was_lost));
            }
            Ask::Revise(ticket, change) => match self.leader.filter(|leader| leader.identity != self.me) {
                Some(leader) => {
                    let incarnation = self.me.incarnation;
                    self.send(leader.identity.node, Message::Revise { incarnation, ticket, change });
                }
                None => {
                    let progress = self.revise(now, &change);
                    self.answer(Answer::Revised(ticket, progress));
                }
            },
        }
    }

    fn revise(&mut self, now: Instant, change: &VoterChange) -> Progress {
        if !self.serves() {
            return Progress::Refused(Refusal::NotLeading);
        }
        let heard = self.quorum.supporters(now);
        let is_supported = self.quorum.is_supported_to_the_end();
        let progress = self.replica.revise(now, change, is_supported, |voter| heard.contains(&voter));
        if progress != Progress::Resigning {
            return progress;
        }
        let term = self.replica.bound();
        if self.resigned_to_be_removed.is_some_and(|earlier| earlier < term) {
            self.resigned_to_be_removed = None;
            return Progress::Refused(Refusal::NoOtherLeader);
        }
        self.resigned_to_be_removed = Some(term);
        self.elect(now, Input::Command(Command::Resign));
        progress
    }

    fn write(&mut self, now: Instant, ticket: Option<Ticket>, command: StateCommand) {
        let checked = command.check(proposing::LIMITS);
        let (sequence, payload) = self.clients.write(ticket, command);
        let fits = if payload.len() > PAYLOAD_MAX { Err(Refused::RequestTooLarge) } else { Ok(()) };
        if let Err(refused) = checked.and(fits) {
            self.clients.applied(self.me, sequence);
            let refused = Outcome { version: self.replica.state().version(), result: Err(refused) };
            return ticket
                .into_iter()
                .for_each(|ticket| self.answer(Answer::Written(ticket, refused.clone())));
        }
        if !(self.serves() && self.replica.propose(now, payload)) {
            self.clients.tell(now, sequence);
        }
    }

    /// Sends the requests of this node's clients to the leader. Without a leader, they wait for the next one.
    fn tell_leader(&mut self, now: Instant) {
        let News { writes, round, sessions } = self.clients.gathered(now, self.tell_again_after);
        let Some(leader) =
            self.leader.map(|leader| leader.identity.node).filter(|&node| node != self.me.node)
        else {
            return;
        };
        let incarnation = self.me.incarnation;
        let mut rest = writes.into_iter().peekable();
        let (mut read, mut sessions) = (round, sessions);
        while rest.peek().is_some() || read.is_some() || !sessions.is_empty() {
            let (mut requests, mut bytes) = (Vec::new(), 0);
            while let Some(request) =
                rest.next_if(|next| requests.is_empty() || bytes + next.len() <= PROPOSE_MAX)
            {
                bytes += request.len();
                requests.push(request);
            }
            let (read, sessions) = (read.take(), core::mem::take(&mut sessions));
            self.send(leader, Message::Propose { incarnation, requests, read, sessions });
        }
    }

    fn on_questions(
        &mut self,
        now: Instant,
        from: Identity,
        read: Option<u64>,
        sessions: Vec<(SessionId, Keep)>,
    ) {
        if !self.serves() || (read.is_none() && sessions.is_empty()) {
            return;
        }
        // The active leader counts every record as committed before any other node does, so this covers all writes that
        // were answered before the read.
        let read = read.map(|round| (round, self.replica.committed()));
        let look = |(session, keep)| (session, keep, self.look_at(now, session, keep));
        let sessions = sessions.into_iter().map(look).collect();
        let (incarnation, to) = (self.me.incarnation, from.incarnation);
        let unreadable = Vec::new();
        self.send(from.node, Message::Told { incarnation, to, read, sessions, unreadable });
    }

    fn on_told(
        &mut self,
        read: Option<(u64, LeaderSequence)>,
        sessions: Vec<(SessionId, Keep, Option<Duration>)>,
    ) {
        let Some((round, number)) = read else { return };
        self.clients.readable(round, number);
        for (session, keep, left) in sessions {
            self.answer_session(session, keep, left, round);
        }
    }

    /// Keeps a session alive if requested, and returns its remaining time.
    fn look_at(&mut self, now: Instant, session: SessionId, keep: Keep) -> Option<Duration> {
        let end = self.expiry.end(session)?;
        match keep {
            Keep::Look => Some(end.since(now)),
            Keep::Alive => {
                let time_to_live = self.replica.state().time_to_live(session)?;
                self.expiry.set(session, now.after(time_to_live));
                Some(time_to_live)
            }
        }
    }

    fn answer_session(&mut self, session: SessionId, keep: Keep, left: Option<Duration>, round: u64) {
        for ticket in self.clients.session_told(session, keep, round) {
            self.answer(Answer::Session(ticket, left));
        }
    }

    fn on_applied(&mut self, now: Instant, report: Option<Report>) {
        let Some(Report { client, sequence, applied, session }) = report else { return };
        self.proposed.remove(&(client, sequence));
        if self.serves() {
            match session {
                Some(SessionNews::Began(session, time_to_live)) => {
                    self.expiry.set(session, now.after(time_to_live));
                    if self.quorum.dead().any(|dead| dead == client) {
                        self.on_death(now, client); // The news of its death has come before what it wanted.
                    }
                }
                Some(SessionNews::Ended(session)) => self.expiry.remove(session),
                None => {}
            }
        }
        if let Some(ticket) = self.clients.applied(client, sequence) {
            self.answer(match applied {
                Applied::First(outcome) => Answer::Written(ticket, outcome),
                Applied::Duplicate => Answer::Done(ticket),
            });
        }
    }

    fn answer(&mut self, answer: Answer) {
        self.outputs.push_back(Output::Send { to: Endpoint::Client, message: Message::Answer(answer) });
    }

    fn send(&mut self, to: NodeId, message: Message) {
        self.outputs.push_back(Output::Send { to: Endpoint::Node(to), message });
    }

    fn tell(&mut self, event: Event) {
        self.outputs.push_back(Output::Event(event));
    }
}

fn asks_for_votes(message: &quorum::Message) -> bool {
    match message.body {
        quorum::Body::PreVote { .. } | quorum::Body::Vote { .. } => true,
        quorum::Body::PreVoteReply { .. } | quorum::Body::VoteReply { .. } => false,
        quorum::Body::Heartbeat { .. }
        | quorum::Body::HeartbeatReply { .. }
        | quorum::Body::Resigned { .. } => false,
    }
}

#[cfg(test)]
mod tests;
