//! Quorum: a majority of voters elects one leader, and renews its support for it.
//!
//! It is the election of BlazingMQ (Raft's election without a log, with pre-votes and sticky leaders), with votes on
//! disk and a lease that consists of the followers' promises.
//!
//! Assumes   a fixed set of voters; a minority of them may fail; messages may be lost, doubled, delayed and
//!           reordered; disks keep what was persisted; for `Safety::Lease`, the rates of any two clocks
//!           differ by at most `drift_max`.
//! Promises  at most one leader per term, over all history, so the term is the fencing token. Under
//!           `Safety::Lease` no two nodes believe at the same time that they lead.
//! Costs     a heartbeat and its answer per follower and interval. A change of leader: pre-vote, vote and first
//!           heartbeat, one round trip each, and one write to each voter's disk.
//!
//! The roles of a node:
//!
//! ```text
//!              no leader, and the wait is over          majority says yes
//!   Follower ─────────────────────────────► PreCandidate ────────────────► Candidate ──┐
//!      ▲  ▲                                     │                              │       │ majority votes
//!      │  └──── no majority: wait again ────────┴──────────────────────────────┘       ▼
//!      └──── higher term, lease over, resigned, or two leaders in one term ────────  Leader
//! ```
//!
//! Why no other node leads while the leader's lease runs: every answer to a heartbeat is a promise to vote for no other
//! candidate for the promise duration. The leader counts the promise from when it *sent* the heartbeat and shortens it
//! by the drift; the voter counts it from when it *received* the heartbeat. So the leader's lease ends before the
//! promises of its majority end, and another leader needs a vote from that majority.

mod config;
mod embedding;
mod ending;
mod message;
mod state_reduction;
mod status;

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;
use core::cmp::Reverse;

pub use self::config::{Config, Safety};
pub use self::message::{Answer, Body, Message, Refusal, Resignation, Round};
pub use self::status::Status;
use super::ElectionDescriptor;
use crate::detector::MissedHeartbeats;
use crate::fence::FencingToken;
use crate::hard_state::TermReports;
pub use crate::hard_state::{DiskState, HardState, TERM_MAX};
use crate::id::{Identity, Incarnation, NodeId};
use crate::majority::{self, Outcome};
use crate::protocol::{
    Command, ElectionTrigger, Endpoint, Event, Evidence, Input, Leader, Mandate, Output, Peer, Protocol,
    Reason, Violation,
};
use crate::rng::Rng;
use crate::term::Term;
use crate::time::{Duration, Instant};

/// The facts about this election.
pub const DESCRIPTOR: ElectionDescriptor = ElectionDescriptor {
    name: "quorum",
    choose_when: "there are three or more nodes and no store",
    guarantee: "one leader at a time under the drift bound; a token",
    is_fenced: true,
};

/// The number of dead incarnations remembered per node. The connections of older ones are long gone.
const DEAD_MAX: usize = 8;

/// The limit on doublings of the round timeout while elections are lost: voters write before they answer, and a disk
/// slower than configured must not keep every candidate from being elected.
const PATIENCE_DOUBLINGS_MAX: u32 = 2;

/// The limit on retries by a node that knows its leader to be gone, against voters that have not heard of it. Each
/// retry comes after twice the delay of the one before.
const GONE_TRIES_MAX: u32 = 6;

/// The limit on the factor by which a leader sends heartbeats faster than configured, for voters with shorter promises.
const PACE_MAX: u64 = 100;

/// The state machine of one node.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Quorum {
    config: Config,
    hard: HardState,
    role: Role,
    /// True if the application wants this node to lead.
    campaigning: bool,
    healthy: bool,
    /// The end of the silence after a start or a recovery. Until then the node grants nothing, because it does not know
    /// what an earlier incarnation promised.
    silent_until: Instant,
    /// The promise to support one node and no other, if one was made.
    promise: Option<Promise>,
    /// The latest end of this node's own past leaderships: until then their work may still be draining.
    works_until: Instant,
    /// The terms that the other voters have reported, while this node knows that it has lost its disk.
    reports: TermReports,
    /// Every voter this process has seen in any configuration. A node that lost its disk cannot know which
    /// configuration it voted under, so it must hear from all of them.
    known: BTreeSet<NodeId>,
    /// The latest resignation heard of, passed on to voters that may not have heard it.
    resignation: Option<Resignation>,
    /// The leader that is known to be gone, until there is another.
    gone: Option<DepartedLeader>,
    /// The end of the last leadership that this node knew of, as far as it knows.
    trigger: ElectionTrigger,
    /// The time of the next campaign, while no leader is heard.
    campaign_at: Instant,
    /// The number of elections lost as a candidate since there was a leader.
    lost_elections: u32,
    round: Round,
    connected: BTreeMap<NodeId, Peer>,
    dead: BTreeMap<NodeId, VecDeque<Incarnation>>,
    /// The reasons why the last round failed, for people.
    refusals: BTreeMap<NodeId, Refusal>,
    /// The leader last reported to the application.
    told_leader: Option<Leader>,
    rng: Rng,
    outputs: VecDeque<Output<Message, HardState>>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Role {
    Follower { leader: Option<Following> },
    PreCandidate(Poll),
    Candidate(Poll),
    Leader(Lead),
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Following {
    leader: Leader,
    detector: MissedHeartbeats,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Promise {
    to: Identity,
    term: Term,
    until: Instant,
}

/// A round of questions and the answers so far, by voter: a duplicated answer counts once.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Poll {
    round: Round,
    asked_at: Instant,
    /// The time at which the round fails for lack of answers.
    until: Instant,
    yes: BTreeSet<NodeId>,
    /// Each refusal, and the time of its arrival.
    no: BTreeMap<NodeId, (Refusal, Instant)>,
}

/// A leader that this node knows to be gone, by its resignation or its reported death.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct DepartedLeader {
    leader: NodeId,
    /// The term in which it led.
    term: Term,
    /// The number of rounds refused since, possibly by voters that had not heard of the departure.
    tries: u32,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Lead {
    /// The end of the lease on this node's clock; `None` until a majority has answered.
    valid_until: Option<Instant>,
    /// The time at which a leader that no majority answers gives up.
    confirm_by: Instant,
    beat_at: Instant,
    /// The latest rounds, and when each was sent.
    sent: VecDeque<(Round, Instant)>,
    /// The time, on this clock, until which each voter is certain to support this leader.
    support: BTreeMap<NodeId, Instant>,
    /// The durations of the voters' promises where they differ from this node's own, because their configuration
    /// differs.
    promises: BTreeMap<NodeId, Duration>,
    /// The reason for resigning, while the work is being drained. The lease is extended until it has drained.
    resigning: Option<Reason>,
}

impl Protocol for Quorum {
    type Message = Message;
    type Durable = HardState;

    fn handle(&mut self, now: Instant, input: Input<Message>) {
        debug_assert!(self.outputs.is_empty(), "all outputs must be drained before the next input");
        self.expire(now);
        match input {
            Input::Message { from: Endpoint::Node(from), message } => self.on_message(now, from, message),
            Input::Message { from: Endpoint::Store | Endpoint::Client, .. } => {} // This election knows neither.
            Input::Timeout => self.on_timeout(now),
            Input::Command(command) => self.on_command(now, command),
            Input::Evidence(evidence) => self.on_evidence(now, evidence),
        }
        self.tell_leader();
    }

    fn poll(&mut self) -> Option<Output<Message, HardState>> {
        self.outputs.pop_front()
    }

    fn deadline(&self) -> Option<Instant> {
        let role = match &self.role {
            Role::Follower { leader: Some(following) } => following.detector.deadline(),
            Role::Follower { leader: None } if self.can_campaign() => self.campaign_at.max(self.silent_until),
            Role::Follower { leader: None } => Instant::NEVER,
            Role::PreCandidate(poll) | Role::Candidate(poll) => poll.until,
            Role::Leader(lead) => lead.valid_until.unwrap_or(lead.confirm_by).min(lead.beat_at),
        };
        let silence = if self.promise_can_be_lowered() { self.silent_until } else { Instant::NEVER };
        Some(role.min(silence)).filter(|&at| at < Instant::NEVER)
    }
}

impl Quorum {
    /// The state machine of `config.me`, with the durable state of an earlier incarnation. It does not campaign until
    /// commanded to.
    ///
    /// # Panics
    /// If this node is not among the voters.
    #[must_use]
    pub fn new(config: Config, hard: HardState, now: Instant) -> Self {
        assert!(config.voters.contains(&config.me.node), "a node that does not vote takes no part");
        let mut rng = Rng::new(config.seed);
        let longest = hard.promise.max(config.promised());
        let silent_until = now.after(longest);
        let listened_at = now.after(config.initial_wait).max(silent_until);
        let campaign_at = listened_at.after(rng.duration_up_to(config.random_wait_max));
        let known = config.voters.clone();
        let mut machine = Self {
            config,
            hard,
            role: Role::Follower { leader: None },
            campaigning: false,
            healthy: true,
            silent_until,
            promise: None,
            works_until: now,
            reports: TermReports::default(),
            known,
            resignation: None,
            gone: None,
            trigger: ElectionTrigger::Silence,
            campaign_at,
            lost_elections: 0,
            round: Round(0),
            connected: BTreeMap::new(),
            dead: BTreeMap::new(),
            refusals: BTreeMap::new(),
            told_leader: None,
            rng,
            outputs: VecDeque::new(),
        };
        if hard.promise < longest {
            // Before the first promise: the next incarnation must know for how long to stay silent.
            machine.persist(HardState { promise: longest, ..hard });
        }
        machine
    }

    fn on_message(&mut self, now: Instant, from: NodeId, message: Message) {
        let stranger = from == self.config.me.node || !self.config.voters.contains(&from);
        if stranger || message.term > TERM_MAX || self.is_dead(from, message.incarnation) {
            return;
        }
        let from = Identity::new(from, message.incarnation);
        let term = message.term;
        match message.body {
            Body::PreVote { round, resignation } => self.on_pre_vote(now, from, term, round, resignation),
            Body::Vote { round, resignation } => self.on_vote(now, from, term, round, resignation),
            Body::Heartbeat { round } => self.on_heartbeat(now, from, term, round),
            Body::Resigned { successor } => self.on_resigned(now, from, term, successor),
            // An answer to an earlier incarnation does not count for this one.
            Body::PreVoteReply { to, .. } | Body::VoteReply { to, .. } | Body::HeartbeatReply { to, .. }
                if to != self.config.me.incarnation => {}
            Body::PreVoteReply { round, answer, .. } => {
                self.on_pre_vote_reply(now, from.node, term, round, answer)
            }
            Body::VoteReply { round, answer, .. } => self.on_vote_reply(now, from.node, term, round, answer),
            Body::HeartbeatReply { round, promise, .. } => {
                self.on_heartbeat_reply(now, from.node, term, round, promise);
            }
        }
    }

    fn on_timeout(&mut self, now: Instant) {
        if now >= self.silent_until && self.promise_can_be_lowered() {
            // All promises of earlier incarnations have ended; those of this one are shorter.
            self.persist(HardState { promise: self.config.promised(), ..self.hard });
        }
        match &self.role {
            Role::Follower { leader: Some(following) } if following.detector.suspects(now) => {
                // Silence: a node does not know which others have noticed it, so it waits at random, to avoid
                // simultaneous campaigns.
                self.role = Role::Follower { leader: None };
                self.campaign_after_random_wait(self.promise_end(now));
            }
            Role::Follower { leader: None }
                if now >= self.campaign_at.max(self.silent_until) && self.can_campaign() =>
            {
                self.campaign(now);
            }
            Role::PreCandidate(poll) | Role::Candidate(poll) if now >= poll.until => self.fail_round(now),
            Role::Leader(lead) if now >= lead.beat_at => self.broadcast_heartbeat(now),
            Role::Follower { .. } | Role::PreCandidate(_) | Role::Candidate(_) | Role::Leader(_) => {} // Early.
        }
    }

    fn on_command(&mut self, now: Instant, command: Command) {
        match command {
            Command::Campaign => self.campaigning = true,
            Command::Withdraw => {
                self.campaigning = false;
                self.retire(now, Reason::Resigned);
            }
            Command::Healthy(true) => self.healthy = true,
            Command::Healthy(false) => {
                self.healthy = false;
                self.retire(now, Reason::Unhealthy);
            }
            Command::Resign => self.resign(now, Reason::Resigned),
            Command::Transfer(to) if to != self.config.me.node && self.config.voters.contains(&to) => {
                self.resign(now, Reason::Transferred(to));
            }
            // To itself or to a non-voter: the leader resigns without a successor.
            Command::Transfer(_) => self.resign(now, Reason::Resigned),
            Command::Down(_) => {} // Its members are in the configuration.
            Command::Drained => {
                if let Role::Leader(Lead { resigning: Some(reason), .. }) = self.role {
                    self.give_up(now, reason);
                }
            }
        }
    }

    fn on_evidence(&mut self, now: Instant, evidence: Evidence) {
        if self.hard.disk_state.is_refuted_by(evidence, self.config.me.node) {
            self.step_down(Reason::DiskLost);
            self.role = Role::Follower { leader: None };
            self.persist(HardState { disk_state: DiskState::Lost, ..self.hard });
        }
        match evidence {
            Evidence::Connected(peer) => {
                // The peer may become a voter only later.
                self.connected.insert(peer.identity.node, peer);
                if !self.config.voters.contains(&peer.identity.node) {
                    return;
                }
                // A reconnected node learns of its leader at once, not at the next heartbeat.
                if let Role::Leader(Lead { sent, .. }) = &self.role
                    && let Some(&(round, _)) = sent.back()
                {
                    self.send(peer.identity.node, Body::Heartbeat { round });
                }
            }
            Evidence::Disconnected(node) => {
                self.connected.remove(&node);
                // The connection is lost, but the leader may still lead: the promise to it holds until its end.
                if self.hears().is_some_and(|leader| leader.identity.node == node) {
                    self.role = Role::Follower { leader: None };
                    self.trigger = ElectionTrigger::Disconnected;
                    self.campaign_in_order(self.promise_end(now), node);
                }
                if let Role::Leader(lead) = &mut self.role {
                    lead.promises.remove(&node); // It may come back with another one.
                }
            }
            Evidence::Died(identity) => self.on_died(now, identity),
            Evidence::Readmitted { by, term } => self.on_readmitted(now, by, term),
            Evidence::DiskRefused { .. } => {} // What it refutes was said already.
        }
    }

    /// Handles an operator's permission to return without the disk. This node cannot know its votes and promises, so it
    /// grants nothing until all others have reported their terms.
    fn on_readmitted(&mut self, now: Instant, by: NodeId, term: Term) {
        // Reports from unknown voters count too: the voters may have changed since this node last heard. Which reports
        // it needs is decided by `known` alone.
        if by == self.config.me.node || term > TERM_MAX || self.hard.disk_state == DiskState::Recovered {
            return;
        }
        let me = self.config.me.node;
        let Some(recovered) = self.reports.take(self.hard, &self.known, me, by, term) else { return };
        self.persist(recovered);
        // The process with the lost disk may have answered heartbeats until this one was readmitted. From now on no
        // peer accepts its messages, so its promises end no later than one made now.
        let quiet = now.after(self.hard.promise.max(self.config.promised()));
        self.silent_until = self.silent_until.max(quiet);
        self.campaign_after_random_wait(self.silent_until);
    }

    /// Handles a guardian's report that an incarnation and all its work have ended, and so its leadership.
    fn on_died(&mut self, now: Instant, identity: Identity) {
        if identity.node == self.config.me.node || !self.config.voters.contains(&identity.node) {
            return; // This process lives, and an earlier life of it owes nothing; strangers have no vote.
        }
        let dead = self.dead.entry(identity.node).or_default();
        if !dead.contains(&identity.incarnation) {
            dead.push_back(identity.incarnation);
            while dead.len() > DEAD_MAX {
                dead.pop_front();
            }
        }
        self.connected.retain(|_, peer| peer.identity != identity);
        self.release(now, identity, TERM_MAX, ElectionTrigger::Died);
    }

    /// Ends the leadership of that incarnation in this term and all lower ones: this node stops following it, and drops
    /// its promise to it.
    fn release(&mut self, now: Instant, leader: Identity, term: Term, trigger: ElectionTrigger) {
        let promised = self.promise.filter(|promise| promise.to == leader && promise.term <= term);
        if promised.is_some() {
            self.promise = None;
        }
        let heard = self.hears().filter(|known| known.identity == leader && known.term <= term);
        if heard.is_some() {
            self.role = Role::Follower { leader: None };
        }
        let led = promised.map(|promise| promise.term).max(heard.map(|known| known.term));
        let Some(term) = led else { return };
        self.gone = Some(DepartedLeader { leader: leader.node, term, tries: 0 });
        self.trigger = trigger;
        if matches!(self.role, Role::Follower { leader: None }) {
            self.campaign_in_order(now, leader.node);
        }
    }

    // ── campaigning ─────────────────────────────────────────────────────────────────────────────────────────

    fn can_campaign(&self) -> bool {
        let votes = self.config.voters.contains(&self.config.me.node);
        self.campaigning && self.healthy && votes && !self.config.witness && !self.has_forgotten()
    }

    /// Starts a pre-vote, which changes no durable state, so a node that was cut off does not depose a leader that it
    /// cannot hear. If the leader is known to be gone, the first node in order skips the pre-vote and requests votes,
    /// but only in the term after that leader's: a successor has that term or a higher one, and is not disturbed. So a
    /// node skips the pre-vote once per departed leader.
    fn campaign(&mut self, now: Instant) {
        let is_first = |gone| self.trigger == ElectionTrigger::Transferred || self.place(gone) == 0;
        let is_sure = self.gone.is_some_and(|gone| gone.term == self.hard.term && is_first(gone.leader));
        if is_sure || !self.config.pre_vote {
            return self.become_candidate(now);
        }
        let poll = self.new_poll(now);
        let round = poll.round;
        self.role = Role::PreCandidate(poll);
        self.send_all(Body::PreVote { round, resignation: self.resignation });
        let answer = self.would_grant(now, self.config.me, self.hard.term.next());
        self.count_pre_vote(now, self.config.me.node, answer);
    }

    /// Takes a new term and votes for itself, unless a promise to another node forbids it, as it forbids any other
    /// vote.
    fn become_candidate(&mut self, now: Instant) {
        if let Some(refusal) = self.bound_to_another(now, self.config.me) {
            self.role = Role::Follower { leader: None };
            self.campaign_at = now.after(refusal.left().unwrap_or_default());
            return;
        }
        let mut poll = self.new_poll(now);
        poll.yes.insert(self.config.me.node);
        let round = poll.round;
        self.role = Role::Candidate(poll);
        self.hard.term = self.hard.term.next();
        // The requests may be sent before the own vote is on disk: no reply is handled before it is, and if this
        // process dies in between, the votes do not count for its next incarnation.
        self.send_all(Body::Vote { round, resignation: self.resignation });
        self.persist(HardState { voted_for: Some(self.config.me), ..self.hard });
        self.count_votes(now);
    }

    fn become_leader(&mut self, now: Instant, poll: &Poll) {
        assert_eq!(self.hard.voted_for, Some(self.config.me), "a leader has voted for itself");
        let support = match self.config.safety {
            // A vote is not a promise: the lease begins with the answers to the first heartbeat.
            Safety::Lease => BTreeMap::new(),
            Safety::Fenced => {
                let until = poll.asked_at.after(self.config.drift_max.shorten(self.config.promise_duration));
                poll.yes.iter().map(|&voter| (voter, until)).collect()
            }
        };
        self.settle();
        self.role = Role::Leader(Lead {
            valid_until: None,
            confirm_by: now.after(self.config.promise_duration),
            beat_at: now,
            sent: VecDeque::new(),
            support,
            promises: BTreeMap::new(),
            resigning: None,
        });
        self.broadcast_heartbeat(now);
    }

    fn new_poll(&mut self, now: Instant) -> Poll {
        self.round = Round(self.round.0 + 1);
        let patience = self.config.round_timeout.times(1 << self.lost_elections.min(PATIENCE_DOUBLINGS_MAX));
        let (yes, no) = (BTreeSet::new(), BTreeMap::new());
        Poll { round: self.round, asked_at: now, until: now.after(patience), yes, no }
    }

    fn on_pre_vote_reply(&mut self, now: Instant, from: NodeId, term: Term, round: Round, answer: Answer) {
        match &self.role {
            Role::PreCandidate(poll) if poll.round == round => self.count_pre_vote(now, from, answer),
            // Late: that round is over.
            Role::PreCandidate(_) | Role::Follower { .. } | Role::Candidate(_) | Role::Leader(_) => {}
        }
        self.learn_term(now, term, answer);
    }

    fn count_pre_vote(&mut self, now: Instant, from: NodeId, answer: Answer) {
        let voters = self.config.voters.len();
        let Role::PreCandidate(poll) = &mut self.role else { return };
        match poll.count(now, from, answer, voters) {
            Outcome::Won => self.become_candidate(now),
            Outcome::Lost => self.fail_round(now),
            Outcome::Pending => {}
        }
    }

    fn on_vote_reply(&mut self, now: Instant, from: NodeId, term: Term, round: Round, answer: Answer) {
        match &mut self.role {
            Role::Candidate(poll) if poll.round == round => {
                poll.count(now, from, answer, self.config.voters.len());
                self.count_votes(now);
            }
            // Late: that election is over.
            Role::Candidate(_) | Role::Follower { .. } | Role::PreCandidate(_) | Role::Leader(_) => {}
        }
        self.learn_term(now, term, answer);
    }

    fn count_votes(&mut self, now: Instant) {
        let Role::Candidate(poll) = &self.role else { return };
        match majority::outcome(self.config.voters.len(), poll.yes.len(), poll.no.len()) {
            Outcome::Won => {
                let poll = poll.clone();
                self.become_leader(now, &poll);
            }
            Outcome::Lost => self.fail_round(now),
            Outcome::Pending => {}
        }
    }

    /// Adopts the higher term of a voter that refused, if this node hears no leader, so that its next request is not
    /// refused for its term again.
    fn learn_term(&mut self, now: Instant, term: Term, answer: Answer) {
        let leaderless = self.hears().is_none() && !matches!(self.role, Role::Leader(_));
        if term > self.hard.term && leaderless && matches!(answer, Answer::No(_)) {
            self.adopt_term(term);
            if matches!(self.role, Role::PreCandidate(_) | Role::Candidate(_)) {
                self.fail_round(now);
            }
        }
    }

    /// Ends a round that was not won, and sets the time of the next one.
    fn fail_round(&mut self, now: Instant) {
        let (Role::PreCandidate(poll) | Role::Candidate(poll)) = &self.role else { return };
        let own =
            self.bound_to_another(now, self.config.me).map(|refusal| (self.config.me.node, (refusal, now)));
        let no: Vec<(NodeId, (Refusal, Instant))> =
            poll.no.iter().map(|(&by, &no)| (by, no)).chain(own).collect();
        let candidacies = u32::from(matches!(self.role, Role::Candidate(_)));
        self.lost_elections = self.lost_elections.saturating_add(candidacies);
        self.role = Role::Follower { leader: None };
        self.refusals = no.iter().map(|&(by, (refusal, _))| (by, refusal)).collect();
        // Bounded, because the durations come from peers; asking again too early does no harm.
        let patience = now.after(self.config.promise_duration.times(10));
        let ends = no.iter().filter_map(|&(_, (refusal, at))| Some(at.after(refusal.left()?)));
        let bound_until = ends.max().unwrap_or(now).clamp(now, patience);
        let tells_nothing = |refusal| matches!(refusal, Refusal::Term | Refusal::DiskLost);
        let stick_to_another = no.iter().any(|&(_, (refusal, _))| !tells_nothing(refusal));
        let only_promises = !no.is_empty() && no.iter().all(|&(_, (refusal, _))| refusal.left().is_some());
        match &mut self.gone {
            // This node knows that the leader is gone; the voters that refuse will soon know too.
            Some(gone) if stick_to_another && gone.tries < GONE_TRIES_MAX => {
                let (leader, patience) = (gone.leader, 1 << gone.tries);
                gone.tries += 1;
                self.campaign_in_order(now.after(self.stagger().times(patience)), leader);
            }
            // All nodes know when the promises end, so random waits are needless.
            Some(_) | None if only_promises => self.campaign_in_order(bound_until, self.config.me.node),
            Some(_) | None => {
                self.campaign_after_random_wait(now);
                self.campaign_at = self.campaign_at.max(bound_until);
            }
        }
    }

    fn connected_voters(&self) -> impl Iterator<Item = &Peer> {
        self.connected.values().filter(|peer| self.config.voters.contains(&peer.identity.node))
    }

    fn campaign_after_random_wait(&mut self, from: Instant) {
        let priorities = self.connected_voters().map(|peer| peer.priority);
        let higher: BTreeSet<u32> = priorities.filter(|&other| other > self.config.priority).collect();
        let behind = self.config.random_wait_max.times(higher.len() as u64);
        self.campaign_at = from.after(self.rng.duration_up_to(self.config.random_wait_max)).after(behind);
    }

    /// Schedules a campaign in a fixed order: if all nodes learn of the end at the same time, random waits only cost
    /// time. The first connected node by (priority, name) campaigns at once, each next one a stagger later.
    fn campaign_in_order(&mut self, from: Instant, gone: NodeId) {
        self.campaign_at = from.after(self.stagger().times(self.place(gone) as u64));
    }

    /// Returns the number of nodes that campaign before this one after the departure of `gone`.
    fn place(&self, gone: NodeId) -> usize {
        let rank = |node: NodeId, priority: u32| (Reverse(priority), node);
        let mine = rank(self.config.me.node, self.config.priority);
        let rivals = self.connected_voters().filter(|peer| !peer.witness && peer.identity.node != gone);
        rivals.filter(|peer| rank(peer.identity.node, peer.priority) < mine).count()
    }

    fn stagger(&self) -> Duration {
        let mut round_trips: Vec<Duration> = self.connected_voters().map(|peer| peer.round_trip).collect();
        round_trips.sort_unstable();
        // The median, so that one slow handshake does not make the fixed order slower than random waits.
        let usual = round_trips.get(round_trips.len() / 2).copied().unwrap_or_default();
        usual.times(4).min(self.config.random_wait_max).max(self.config.stagger)
    }

    // ── voting ──────────────────────────────────────────────────────────────────────────────────────────────

    fn on_pre_vote(
        &mut self,
        now: Instant,
        from: Identity,
        term: Term,
        round: Round,
        resignation: Option<Resignation>,
    ) {
        self.learn_resignation(now, resignation);
        let answer = self.would_grant(now, from, term.next());
        self.send(from.node, Body::PreVoteReply { round, to: from.incarnation, answer });
    }

    /// The answer of this node to a candidate for `term`.
    fn would_grant(&self, now: Instant, candidate: Identity, term: Term) -> Answer {
        let heard = self.leader_or_self().filter(|leader| leader.identity != candidate && self.config.sticky);
        match (heard, self.bound_to_another(now, candidate)) {
            (Some(leader), _) => Answer::No(Refusal::HearsLeader(leader.identity.node)),
            (None, Some(refusal)) => Answer::No(refusal),
            (None, None) if term <= self.hard.term => Answer::No(Refusal::Term),
            (None, None) => Answer::Yes,
        }
    }

    /// Returns the reason that forbids this node to support `candidate` in any term.
    fn bound_to_another(&self, now: Instant, candidate: Identity) -> Option<Refusal> {
        if self.has_forgotten() {
            return Some(Refusal::DiskLost);
        }
        if now < self.silent_until {
            return Some(Refusal::JustStarted { left: self.silent_until.since(now) });
        }
        let promise = self.promise.filter(|promise| promise.to != candidate && now < promise.until)?;
        Some(Refusal::Promised { left: promise.until.since(now) })
    }

    fn on_vote(
        &mut self,
        now: Instant,
        from: Identity,
        term: Term,
        round: Round,
        resignation: Option<Resignation>,
    ) {
        self.learn_resignation(now, resignation);
        let same_vote = term == self.hard.term && self.hard.voted_for == Some(from);
        let answer = match self.bound_to_another(now, from) {
            // The term is not adopted either: otherwise a candidate with outdated pre-votes would depose a leader whose
            // lease still runs.
            Some(refusal) => Answer::No(refusal),
            None if term > self.hard.term || same_vote => Answer::Yes,
            None => Answer::No(Refusal::Term),
        };
        if answer == Answer::Yes && !same_vote {
            self.step_down(Reason::HigherTerm(term));
            self.role = Role::Follower { leader: None };
            self.persist(HardState { term, voted_for: Some(from), ..self.hard });
            // The candidate needs a round to announce itself as leader.
            self.campaign_after_random_wait(now.after(self.config.round_timeout));
        }
        self.send(from.node, Body::VoteReply { round, to: from.incarnation, answer });
    }

    // ── leading and following ───────────────────────────────────────────────────────────────────────────────

    /// Sends a new round of heartbeats, which this node answers for itself at once.
    fn broadcast_heartbeat(&mut self, now: Instant) {
        self.round = Round(self.round.0 + 1);
        let (me, term, round) = (self.config.me, self.hard.term, self.round);
        let Role::Leader(lead) = &mut self.role else { return };
        lead.beat_at = now.after(lead.pace(&self.config));
        while lead.sent.front().is_some_and(|&(_, at)| now >= at.after(self.config.promise_duration)) {
            lead.sent.pop_front();
        }
        lead.sent.push_back((round, now));
        if self.config.voters.contains(&me.node) {
            let until = now.after(self.config.drift_max.shorten(self.config.promise_duration));
            lead.support.insert(me.node, until);
        }
        if self.config.safety == Safety::Lease {
            self.promise = Some(Promise { to: me, term, until: now.after(self.config.promise_duration) });
        }
        self.send_all(Body::Heartbeat { round });
        self.extend_lease(now);
    }

    fn on_heartbeat(&mut self, now: Instant, from: Identity, term: Term, round: Round) {
        if self.resignation.is_some_and(|resignation| term <= resignation.term) {
            return; // Whoever led then has resigned for good; this came late.
        }
        if self.has_forgotten() {
            return; // It may have promised to support another.
        }
        if term < self.hard.term {
            // The answer carries the higher term, which deposes that leader.
            let promise = Duration::ZERO;
            return self.send(from.node, Body::HeartbeatReply { round, to: from.incarnation, promise });
        }
        let rival = self.leader_or_self().filter(|known| known.term == term && known.identity != from);
        if let Some(known) = rival {
            let violation = Violation::TwoLeaders { term, known: known.identity, other: from };
            self.tell(Event::Violation(violation));
            self.step_down(Reason::Violation);
            return self.campaign_after_random_wait(now.after(self.config.promise_duration));
        }
        self.step_down(Reason::HigherTerm(term));
        if term > self.hard.term {
            self.adopt_term(term);
        }
        self.follow(now, Leader { identity: from, term });
        let promise = self.config.promised();
        self.send(from.node, Body::HeartbeatReply { round, to: from.incarnation, promise });
    }

    fn follow(&mut self, now: Instant, leader: Leader) {
        let detector = MissedHeartbeats::new(self.config.heartbeat_interval, self.config.miss_count, now);
        self.role = Role::Follower { leader: Some(Following { leader, detector }) };
        self.trigger = ElectionTrigger::Silence; // Until more is known than that.
        self.settle();
        // This replaces a promise to an earlier leader that may still run. It is no longer needed: of every majority
        // that could support the earlier leader, one voter has voted for the new leader, after its own promise had
        // ended.
        if self.config.safety == Safety::Lease {
            let until = now.after(self.config.promise_duration);
            self.promise = Some(Promise { to: leader.identity, term: leader.term, until });
        }
    }

    fn on_heartbeat_reply(
        &mut self,
        now: Instant,
        from: NodeId,
        term: Term,
        round: Round,
        promise: Duration,
    ) {
        let (own_term, configured, can_campaign) =
            (self.hard.term, self.config.promise_duration, self.can_campaign());
        let Role::Leader(lead) = &mut self.role else { return }; // Late: that leadership is over.
        if term > own_term {
            // A voter has a higher term, after outdated pre-votes for example. This leader campaigns again above it and
            // usually wins: followers may vote for the leader that they follow. Only the token changes.
            let stays = can_campaign && lead.resigning.is_none();
            self.step_down(Reason::HigherTerm(term));
            self.adopt_term(term);
            if stays {
                return self.campaign(now);
            }
            return self.campaign_after_random_wait(now.after(configured));
        }
        let Some(&(_, sent_at)) = lead.sent.iter().find(|&&(sent, _)| sent == round) else { return };
        if term < own_term {
            return; // An answer from before it followed; nothing rests on it.
        }
        lead.note_promise(now, &self.config, from, promise);
        let promised = match self.config.safety {
            Safety::Lease => promise,
            Safety::Fenced => configured,
        };
        // The leader counts from before it sent the heartbeat, the voter from when the heartbeat arrived.
        let until = sent_at.after(self.config.drift_max.shorten(promised));
        let supported = lead.support.entry(from).or_insert(until);
        *supported = until.max(*supported);
        self.extend_lease(now);
    }

    /// Moves the end of the lease to the time until which a majority is certain to support this leader.
    fn extend_lease(&mut self, now: Instant) {
        let (term, voters) = (self.hard.term, self.config.voters.len());
        let Role::Leader(lead) = &mut self.role else { return };
        let mut support: Vec<Instant> = lead.support.values().copied().collect();
        let Some(until) = majority::reached(voters, &mut support) else { return };
        if until <= lead.valid_until.unwrap_or(now).max(now) {
            return;
        }
        let event = match lead.valid_until {
            None => {
                let mandate = Mandate::Fenced(FencingToken(term.0));
                Event::Elected { term, mandate, valid_until: until }
            }
            Some(_) => Event::Renewed { valid_until: until },
        };
        lead.valid_until = Some(until);
        self.tell(event);
    }

    /// Clears the state of the election that has ended, because there is a leader.
    fn settle(&mut self) {
        self.refusals.clear();
        self.resignation = None;
        self.gone = None;
        self.lost_elections = 0;
    }

    /// The leader that this node hears.
    fn hears(&self) -> Option<Leader> {
        match &self.role {
            Role::Follower { leader } => leader.as_ref().map(|following| following.leader),
            Role::PreCandidate(_) | Role::Candidate(_) | Role::Leader(_) => None,
        }
    }

    /// The leader that this node hears, or itself from the moment it has won.
    fn leader_or_self(&self) -> Option<Leader> {
        match &self.role {
            Role::Leader(_) => Some(Leader { identity: self.config.me, term: self.hard.term }),
            Role::Follower { .. } | Role::PreCandidate(_) | Role::Candidate(_) => self.hears(),
        }
    }

    /// Returns the leader that this node reports: itself only once its lease has begun.
    fn leader(&self) -> Option<Leader> {
        match &self.role {
            Role::Leader(Lead { valid_until: None, .. }) => None,
            Role::Leader(_) | Role::Follower { .. } | Role::PreCandidate(_) | Role::Candidate(_) => {
                self.leader_or_self()
            }
        }
    }

    fn tell_leader(&mut self) {
        let leader = self.leader();
        if leader != self.told_leader {
            self.told_leader = leader;
            self.tell(Event::LeaderChanged(leader));
        }
    }

    fn promise_end(&self, now: Instant) -> Instant {
        self.promise.map_or(now, |promise| promise.until.max(now))
    }

    /// True if this node has lost its disk, and not all others have reported their terms since.
    fn has_forgotten(&self) -> bool {
        self.hard.disk_state == DiskState::Lost
    }

    fn promise_can_be_lowered(&self) -> bool {
        self.hard.promise > self.config.promised()
    }

    /// The last incarnations of each voter that guardians have reported dead.
    pub fn dead(&self) -> impl Iterator<Item = Identity> {
        self.dead.iter().flat_map(|(&node, lives)| lives.iter().map(move |&life| Identity::new(node, life)))
    }

    fn is_dead(&self, node: NodeId, incarnation: Incarnation) -> bool {
        self.dead.get(&node).is_some_and(|dead| dead.contains(&incarnation))
    }

    fn adopt_term(&mut self, term: Term) {
        assert!(term > self.hard.term, "a term never goes down");
        self.persist(HardState { term, voted_for: None, ..self.hard });
    }

    fn tell(&mut self, event: Event) {
        self.outputs.push_back(Output::Event(event));
    }

    fn persist(&mut self, hard: HardState) {
        self.hard = hard;
        self.outputs.push_back(Output::Persist(hard));
    }

    fn send(&mut self, to: NodeId, body: Body) {
        let message = Message { incarnation: self.config.me.incarnation, term: self.hard.term, body };
        self.outputs.push_back(Output::Send { to: Endpoint::Node(to), message });
    }

    fn send_all(&mut self, body: Body) {
        for voter in self.config.voters.clone() {
            if voter != self.config.me.node {
                self.send(voter, body);
            }
        }
    }
}

impl Lead {
    /// Records the duration of a voter's promise of support.
    fn note_promise(&mut self, now: Instant, config: &Config, from: NodeId, promise: Duration) {
        if promise == config.promised() || promise.is_zero() {
            self.promises.remove(&from);
        } else {
            self.promises.insert(from, promise);
        }
        self.beat_at = self.beat_at.min(now.after(self.pace(config)));
    }

    /// Returns the heartbeat interval: the configured one, scaled by the shortest promise of any voter over the
    /// configured duration. Otherwise a lease from shorter promises would end before it is renewed.
    fn pace(&self, config: &Config) -> Duration {
        let shortest = self.promises.values().copied().min().unwrap_or(config.promise_duration);
        let least = config.heartbeat_interval.divided_by(PACE_MAX);
        config.heartbeat_interval.scaled(shortest, config.promise_duration).max(least)
    }
}

impl Poll {
    fn count(&mut self, now: Instant, from: NodeId, answer: Answer, voters: usize) -> Outcome {
        match answer {
            Answer::Yes => {
                self.no.remove(&from);
                self.yes.insert(from);
            }
            Answer::No(_) if self.yes.contains(&from) => {} // It has said yes; a reordered no takes nothing back.
            Answer::No(refusal) => {
                self.no.insert(from, (refusal, now));
            }
        }
        majority::outcome(voters, self.yes.len(), self.no.len())
    }
}

#[cfg(test)]
mod tests;
