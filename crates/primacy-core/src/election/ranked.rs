//! Ranked: each server votes for the best claim that it knows of, and a majority of votes for one server elects it.
//!
//! It is "A Leader Election Algorithm" (a note of 2000): two state machines in every server, an election in two phases,
//! and a ranking that keeps the old leader or else chooses the server that has seen its latest messages. In the note's
//! version, lost messages can lead to two leaders in one term; here every round has a ballot, in which each server has
//! one vote, on disk.
//!
//! Assumes   a fixed set of voters; a minority of them may fail; messages may be lost, doubled, delayed and
//!           reordered; disks keep what was persisted.
//! Promises  at most one leader per term, over all history, so the term is the fencing token. There is no lease: an old
//!           leader may believe beside a new one for `miss_count` heartbeats, and its token is the lower one.
//! Costs     at most two messages per server and round (`Elect` to all, `Vote` to one); a heartbeat to every follower, and
//!           its answer. A change of leader: one gathering of claims, one vote, one write to each disk.
//!
//! The roles of the two state machines in every server:
//!
//! ```text
//!              an Elect, or silence: sends Elect to all          a majority of votes, in one ballot
//!   Watching ─────────────────────────────────► Voting       Follower ──────────────────► Leader ──┐ sends Lead
//!      ▲  ▲                                      │  │            ▲                           │  ▲───┘ to all
//!      │  └── claims gathered: votes for the best ─┘  │            └── a Lead with a later term ─┤
//!      └───────────────── a Lead ────────────────────┘            └── no majority, resigned ────┘
//! ```
//!
//! Why a term has one leader: the term is the ballot that was won. A server votes once in a ballot and never again in a
//! lower one, and persists its vote before it sends it; two majorities share a server.

mod config;
mod message;
mod state_reduction;
mod status;

use alloc::collections::{BTreeMap, VecDeque};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::cmp::Reverse;

pub use self::config::{Config, STATE_MAX};
pub use self::message::{Body, Claim, Message};
pub use self::status::Status;
use super::ElectionDescriptor;
use crate::fence::FencingToken;
use crate::hard_state::{DiskState, HardState, TERM_MAX, TermReports};
use crate::id::{Identity, Incarnation, NodeId};
use crate::majority;
use crate::protocol::{
    Command, ElectionTrigger, Endpoint, Event, Evidence, Input, Leader, Mandate, Output, Protocol, Reason,
    Violation,
};
use crate::rng::Rng;
use crate::term::{LeaderSequence, Term};
use crate::time::{Duration, Instant};

/// The facts about this election.
pub const DESCRIPTOR: ElectionDescriptor = ElectionDescriptor {
    name: "ranked",
    choose_when: "the server that has seen most should lead",
    guarantee: "a token",
    is_fenced: true,
};

/// The number of dead incarnations remembered per server. The connections of older ones are long gone.
const DEAD_MAX: usize = 8;

/// The number of sent messages per heartbeat interval whose times a leader keeps. An answer to another message counts
/// as an answer to the last kept one before it, so frequent announcements need no more memory.
const SENT_PER_HEARTBEAT: u64 = 8;

/// The state machine of one server.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Ranked {
    config: Config,
    /// Its term is the highest ballot in which this server has voted, or led.
    hard: HardState,
    elector: Elector,
    candidate: Candidate,
    /// True if the application wants this server to lead.
    campaigning: bool,
    healthy: bool,
    /// The time before which it does not campaign: after a resignation it lets others go first.
    yields_until: Instant,
    /// The end of this server's own last leadership: until then its work may still be draining.
    works_until: Instant,
    /// The highest ballot heard of. It binds no server.
    heard_of: Term,
    /// The highest ballot that this process has proposed or adopted: others may have voted in it.
    proposed: Term,
    /// The highest term that is known to have had a leader.
    led: Term,
    /// The highest term whose leader has resigned.
    resigned: Term,
    /// The last `Lead` that was accepted.
    seen: Option<LeaderSequence>,
    /// The leader of term `led`, or the successor that it has named: chosen if it is alive.
    favourite: Option<Favourite>,
    /// The tally: for each server, the ballot of its latest vote for this one.
    tally: BTreeMap<NodeId, Term>,
    /// The number of claims on the last slate; `None` before the first round since there was a leader.
    hears: Option<u32>,
    /// The number of rounds since there was a leader.
    rounds: u32,
    /// True if a campaigning server has sent an `Elect` with a ballot that is decided here, or too soon after the last
    /// round. Then this server soon begins a round even if it does not campaign, because it may be the only one that
    /// knows a higher ballot.
    asked: bool,
    /// The end of the gathering of claims in the last round. No round begins before it, and no vote is sent before
    /// `votes_from`, so that a server sends at most two messages per gathering time.
    round_ends: Instant,
    votes_from: Instant,
    /// The servers that report a leader that this server does not hear.
    hearsay: BTreeMap<NodeId, Leader>,
    /// The announced state: this server's own while it leads, and otherwise the leader's.
    state: Arc<[u8]>,
    /// The connected incarnation of each server, and the round-trip time of its handshake.
    connected: BTreeMap<NodeId, (Incarnation, Duration)>,
    dead: BTreeMap<NodeId, VecDeque<Incarnation>>,
    /// The ballots that the others have reported, while this server knows that it has lost its disk.
    reports: TermReports,
    trigger: ElectionTrigger,
    told_leader: Option<Leader>,
    rng: Rng,
    outputs: VecDeque<Output<Message, HardState>>,
}

/// The state machine that votes. It always runs, beside the [`Candidate`].
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Elector {
    /// Hears a leader, or waits to begin a round.
    Watching {
        /// The leader that is heard.
        leader: Option<Leader>,
        /// The time to begin a round.
        until: Instant,
    },
    /// Gathers claims.
    Voting {
        /// The highest ballot that any claim proposes.
        ballot: Term,
        /// The latest claim of each server, its own among them.
        slate: BTreeMap<NodeId, (Incarnation, Claim)>,
        /// The time to vote.
        until: Instant,
    },
}

/// The state machine that decides whether this server is the leader.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Candidate {
    Follower,
    Leader(Lead),
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Lead {
    /// The number of the last `Lead`.
    number: LeaderSequence,
    beat_at: Instant,
    /// The latest kept `Lead` messages, and when each was sent.
    sent: VecDeque<(LeaderSequence, Instant)>,
    /// For each server, the time at which the latest message that it has answered was sent.
    support: BTreeMap<NodeId, Instant>,
    /// The time at which a leader that no majority answers gives up.
    valid_until: Instant,
    /// The reason for resigning, while the work is being drained. The leadership is extended until it has drained.
    resigning: Option<Reason>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Favourite {
    /// The old leader, in the incarnation in which it led.
    Old(Identity),
    /// The successor that it has named.
    Successor(NodeId),
}

impl Protocol for Ranked {
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
        let next = match (&self.candidate, &self.elector) {
            (Candidate::Leader(lead), _) => lead.valid_until.min(lead.beat_at),
            (Candidate::Follower, Elector::Voting { until, .. }) => *until,
            (Candidate::Follower, Elector::Watching { leader: Some(_), until }) => *until,
            (Candidate::Follower, Elector::Watching { leader: None, until }) if self.asked => *until,
            (Candidate::Follower, Elector::Watching { leader: None, until }) if self.wants_to_lead() => {
                (*until).max(self.yields_until)
            }
            (Candidate::Follower, Elector::Watching { leader: None, .. }) => Instant::NEVER,
        };
        Some(next).filter(|&at| at < Instant::NEVER)
    }
}

impl Ranked {
    /// The state machine of `config.me`, with the durable state of an earlier incarnation. It does not campaign until
    /// commanded to.
    ///
    /// # Panics
    /// If this server is not among the voters.
    #[must_use]
    pub fn new(config: Config, hard: HardState, now: Instant) -> Self {
        assert!(config.voters.contains(&config.me.node), "a node that does not vote takes no part");
        let until = now.after(config.heartbeat_interval.times(u64::from(config.initial_count)));
        let rng = Rng::new(config.seed);
        Self {
            config,
            hard,
            elector: Elector::Watching { leader: None, until },
            candidate: Candidate::Follower,
            campaigning: false,
            healthy: true,
            yields_until: now,
            works_until: now,
            heard_of: hard.term,
            proposed: hard.term,
            led: Term(0),
            resigned: Term(0),
            seen: None,
            favourite: None,
            tally: BTreeMap::new(),
            hears: None,
            rounds: 0,
            asked: false,
            round_ends: now,
            votes_from: now,
            hearsay: BTreeMap::new(),
            state: Arc::from([]),
            connected: BTreeMap::new(),
            dead: BTreeMap::new(),
            reports: TermReports::default(),
            trigger: ElectionTrigger::Silence,
            told_leader: None,
            rng,
            outputs: VecDeque::new(),
        }
    }

    /// Sets the state that this server announces with each `Lead` from now on, and sends it at once. Returns false, and
    /// changes nothing, if this server does not lead or is resigning: only the leader replaces the state. A new leader
    /// announces the last state that it has heard until it sets its own. The outputs must be drained afterwards, as
    /// after every input.
    ///
    /// # Panics
    /// If it is longer than [`STATE_MAX`].
    pub fn announce(&mut self, now: Instant, state: Arc<[u8]>) -> bool {
        assert!(state.len() <= STATE_MAX, "a state has at most {STATE_MAX} bytes");
        self.expire(now);
        let leads = matches!(&self.candidate, Candidate::Leader(lead) if lead.resigning.is_none());
        if leads {
            self.state = state;
            self.broadcast_heartbeat(now);
        }
        self.tell_leader();
        leads
    }

    fn on_message(&mut self, now: Instant, from: NodeId, message: Message) {
        // A message that did not come over a connection was sent to an earlier incarnation, which may have had another
        // disk.
        let is_heard = self.connected.get(&from).is_some_and(|(life, _)| *life == message.incarnation);
        if !is_heard || from == self.config.me.node || self.is_dead(from, message.incarnation) {
            return;
        }
        let from = Identity::new(from, message.incarnation);
        match message.body {
            Body::Elect { ballot, .. } | Body::Vote { ballot, .. } if ballot > TERM_MAX => {}
            Body::Lead { number, .. } if number.term > TERM_MAX => {}
            Body::Lead { state, .. } if state.len() > STATE_MAX => {}
            Body::Resigned { term, .. } if term > TERM_MAX => {}
            Body::LeadReply { promised, .. } if promised > TERM_MAX => {}
            // A message to an earlier incarnation of this server does not count for this one.
            Body::Hears { to, .. } | Body::Vote { to, .. } | Body::LeadReply { to, .. }
                if to != self.config.me.incarnation => {}
            Body::Elect { ballot, claim } => self.on_elect(now, from, ballot, claim),
            Body::Hears { leader, .. } => self.on_hears(from.node, leader),
            Body::Vote { ballot, .. } => self.on_vote(now, from.node, ballot),
            Body::Lead { number, state } => self.on_lead(now, from, number, state),
            Body::LeadReply { number, promised, .. } => self.on_lead_reply(now, from.node, number, promised),
            Body::Resigned { term, successor } => self.on_resigned(now, from, term, successor),
        }
    }

    fn on_timeout(&mut self, now: Instant) {
        match (&self.candidate, &mut self.elector) {
            (Candidate::Leader(lead), _) if now >= lead.beat_at => self.broadcast_heartbeat(now),
            (Candidate::Leader(_), _) => {} // Early.
            (Candidate::Follower, Elector::Voting { until, .. }) if now >= *until => self.vote(now),
            (Candidate::Follower, Elector::Watching { leader, until }) if now >= *until => {
                *leader = None;
                if self.asked || self.can_campaign(now) {
                    self.elect(now);
                }
            }
            (Candidate::Follower, Elector::Voting { .. } | Elector::Watching { .. }) => {} // Early.
        }
    }

    fn on_command(&mut self, now: Instant, command: Command) {
        match command {
            Command::Campaign => self.campaigning = true,
            Command::Withdraw => {
                self.campaigning = false;
                self.resign(Reason::Resigned);
            }
            Command::Healthy(true) => self.healthy = true,
            Command::Healthy(false) => {
                self.healthy = false;
                self.resign(Reason::Unhealthy);
            }
            Command::Resign => self.resign(Reason::Resigned),
            Command::Transfer(to) if to != self.config.me.node && self.config.voters.contains(&to) => {
                self.resign(Reason::Transferred(to));
            }
            // To itself or to a non-voter: the leader resigns without a successor.
            Command::Transfer(_) => self.resign(Reason::Resigned),
            Command::Down(_) => {} // There is no membership.
            Command::Drained => {
                if let Candidate::Leader(Lead { resigning: Some(reason), .. }) = self.candidate {
                    self.give_up(now, reason);
                }
            }
        }
    }

    fn on_evidence(&mut self, now: Instant, evidence: Evidence) {
        if self.hard.disk_state.is_refuted_by(evidence, self.config.me.node) {
            self.step_down(Reason::DiskLost);
            self.forget_leader(now);
            self.persist(HardState { disk_state: DiskState::Lost, ..self.hard });
        }
        match evidence {
            Evidence::Connected(peer) if self.config.voters.contains(&peer.identity.node) => {
                let Identity { node, incarnation } = peer.identity;
                self.connected.insert(node, (incarnation, peer.round_trip));
                // A reconnected server learns of its leader at once, not at the next heartbeat.
                if let Candidate::Leader(Lead { number, .. }) = self.candidate {
                    self.send(peer.identity.node, Body::Lead { number, state: Arc::clone(&self.state) });
                }
            }
            Evidence::Connected(_) => {} // It has no vote.
            Evidence::Disconnected(node) => {
                self.connected.remove(&node);
                self.vote_if_all_have_claimed(now);
                // The leader may be alive and heard by the others; then their answers end this round, and nothing
                // changes.
                if self.follows().is_some_and(|leader| leader.identity.node == node) {
                    self.lose_leader(now, ElectionTrigger::Disconnected);
                }
            }
            Evidence::Died(identity) => self.on_died(now, identity),
            Evidence::Readmitted { by, term } => self.on_readmitted(now, by, term),
            Evidence::DiskRefused { .. } => {} // What it refutes was said already.
        }
    }

    // ── the elector ─────────────────────────────────────────────────────────────────────────────────────────

    /// Begins a round: proposes a new ballot, and sends its claim.
    fn elect(&mut self, now: Instant) {
        if now < self.round_ends {
            self.elector = Elector::Watching { leader: None, until: self.round_ends };
            return;
        }
        self.enter(now, self.heard_of.max(self.decided()).next());
    }

    /// Enters a round. Proposing or adopting a ballot promises nothing: only a vote does.
    fn enter(&mut self, now: Instant, ballot: Term) {
        assert!(ballot > self.decided(), "no vote is left in a ballot that was voted in");
        let claim = Claim { seen: self.seen, hears: self.hears, campaigns: self.can_campaign(now) };
        let me = self.config.me;
        let until = now.after(self.gathering());
        self.round_ends = until;
        self.elector = Elector::Voting { ballot, slate: [(me.node, (me.incarnation, claim))].into(), until };
        self.asked = false;
        self.proposed = ballot;
        self.hearsay.clear();
        self.send_all(&Body::Elect { ballot, claim });
        self.vote_if_all_have_claimed(now);
    }

    fn on_elect(&mut self, now: Instant, from: Identity, ballot: Term, claim: Claim) {
        self.heard_of = self.heard_of.max(ballot);
        if self.has_forgotten() {
            return; // It has no vote, nor a claim.
        }
        if let Some(leader) = self.follows().filter(|leader| leader.identity.node == from.node) {
            if ballot <= leader.term {
                return; // It was said before it led, and comes late.
            }
            self.forget_leader(now); // It leads no more, or would not elect.
        }
        if let Some(leader) = self.leader_or_self() {
            return self.send(from.node, Body::Hears { to: from.incarnation, leader });
        }
        let is_behind = ballot <= self.decided();
        match &mut self.elector {
            // A claim with a decided ballot may be old, and is not put on the slate. A server that is behind learns the
            // current ballot from this server's own claim.
            Elector::Voting { .. } if is_behind => {}
            Elector::Voting { ballot: highest, slate, .. } => {
                *highest = ballot.max(*highest);
                slate.insert(from.node, (from.incarnation, claim));
                self.vote_if_all_have_claimed(now);
            }
            Elector::Watching { until, .. } if is_behind || now < self.round_ends => {
                // That round is over here, or the sender is behind: soon this server begins a round with a higher
                // ballot.
                self.asked |= claim.campaigns;
                let soon =
                    self.config.gathering.plus(self.rng.duration_up_to(self.config.heartbeat_interval));
                *until = now.after(soon).min(*until);
            }
            Elector::Watching { .. } => {
                self.enter(now, self.heard_of);
                if let Elector::Voting { slate, .. } = &mut self.elector {
                    slate.insert(from.node, (from.incarnation, claim));
                }
                self.vote_if_all_have_claimed(now);
            }
        }
    }

    fn on_hears(&mut self, from: NodeId, leader: Leader) {
        let is_gone = self.is_dead(leader.identity.node, leader.identity.incarnation);
        if matches!(self.elector, Elector::Voting { .. }) && !is_gone && leader.identity != self.config.me {
            self.hearsay.insert(from, leader);
        }
    }

    /// Votes at once if all connected servers have sent their claims.
    fn vote_if_all_have_claimed(&mut self, now: Instant) {
        if let Elector::Voting { slate, .. } = &self.elector
            && now >= self.votes_from
            && self.connected.keys().all(|node| slate.contains_key(node))
            && self.choice(slate).is_some()
        {
            self.vote(now);
        }
    }

    /// Ends the gathering of claims, and gives the one vote of this ballot to the best claim, if it can win.
    fn vote(&mut self, now: Instant) {
        let Elector::Voting { ballot, slate, .. } = &self.elector else { return };
        let (ballot, choice) = (*ballot, self.choice(slate));
        self.hears = u32::try_from(slate.len()).ok();
        let wait = match choice {
            // Other servers hear a leader that this one does not hear: wait longer.
            None if !self.hearsay.is_empty() => self.config.patience(),
            // Wait for the elected server to announce itself; the random part keeps servers from splitting the vote
            // again.
            Some(_) | None => self.gathering().plus(self.rng.duration_up_to(self.config.heartbeat_interval)),
        };
        self.rounds = self.rounds.saturating_add(1);
        self.elector = Elector::Watching { leader: None, until: now.after(wait) };
        let Some(choice) = choice else { return };
        self.votes_from = now.after(self.config.gathering);
        self.persist(HardState { term: ballot, voted_for: Some(choice), ..self.hard });
        if choice == self.config.me {
            self.on_vote(now, choice.node, ballot);
        } else {
            self.send(choice.node, Body::Vote { to: choice.incarnation, ballot });
        }
    }

    /// Chooses the old leader, if it is still alive; otherwise the server that has seen the latest message, and of
    /// several the one with the smallest name. A claim that cannot win is passed over: the claimant heard less than a
    /// majority in its last round, or, if that is not known, this server hears less than a majority itself.
    fn choice(&self, slate: &BTreeMap<NodeId, (Incarnation, Claim)>) -> Option<Identity> {
        let needed = majority::needed(self.config.voters.len());
        let can_win = |node: NodeId, claim: &Claim| match claim.hears {
            Some(hears) if node != self.config.me.node => hears as usize >= needed,
            Some(_) | None => slate.len() >= needed,
        };
        let claims = slate
            .iter()
            .filter(|&(&node, (_, claim))| claim.campaigns && can_win(node, claim))
            .map(|(&node, &(incarnation, claim))| (Identity::new(node, incarnation), claim));
        // If only this server knows the last leader, preferring it could split the vote in every round. So the
        // preference counts only for the first vote since there was a leader, and not if a claim has seen a later
        // leader.
        let first_vote = self.hard.term <= self.led;
        let knows_the_last =
            slate.values().all(|(_, claim)| claim.seen.is_none_or(|seen| seen.term <= self.led));
        let is_favourite = |identity: Identity| match self.favourite.filter(|_| first_vote && knows_the_last)
        {
            Some(Favourite::Old(leader)) => identity == leader,
            Some(Favourite::Successor(node)) => identity.node == node,
            None => false,
        };
        claims
            .max_by_key(|&(identity, claim)| (is_favourite(identity), claim.seen, Reverse(identity.node)))
            .map(|(identity, _)| identity)
    }

    /// The time for which claims are gathered. It doubles after each round that elected no leader, because round trips
    /// may be longer than measured, up to a heartbeat interval.
    fn gathering(&self) -> Duration {
        let first = self.first_gathering();
        let doubled = first.times(1 << self.rounds.min(16));
        doubled.min(self.config.heartbeat_interval).max(first)
    }

    /// Two round trips to the connected servers, if that is longer than configured.
    fn first_gathering(&self) -> Duration {
        let mut round_trips: Vec<Duration> = self.connected.values().map(|&(_, took)| took).collect();
        round_trips.sort_unstable();
        // The median, so that one slow handshake does not delay all rounds.
        let usual = round_trips.get(round_trips.len() / 2).copied().unwrap_or_default();
        usual.times(2).min(self.config.heartbeat_interval).max(self.config.gathering)
    }

    // ── the candidate ───────────────────────────────────────────────────────────────────────────────────────

    /// Handles a vote for this server. Only the latest ballot of each voter counts, so duplicates and votes of earlier
    /// rounds add nothing.
    fn on_vote(&mut self, now: Instant, from: NodeId, ballot: Term) {
        self.heard_of = self.heard_of.max(ballot);
        let latest = self.tally.entry(from).or_insert(ballot);
        *latest = ballot.max(*latest);
        let votes = self.tally.values().filter(|&&vote| vote == ballot).count();
        let is_over = ballot < self.hard.term || ballot <= self.led;
        let may_lead = matches!(self.candidate, Candidate::Follower) && self.can_campaign(now);
        if votes >= majority::needed(self.config.voters.len()) && !is_over && may_lead {
            self.become_leader(now, ballot);
        }
    }

    fn become_leader(&mut self, now: Instant, term: Term) {
        assert!(term > self.led, "no leadership comes twice");
        if term > self.hard.term {
            // It has won without its own vote. Its durable state rises to its term, below which it then never votes.
            self.persist(HardState { term, voted_for: Some(self.config.me), ..self.hard });
        }
        self.settle(self.config.me, term);
        let valid_until = now.after(self.config.patience());
        self.candidate = Candidate::Leader(Lead {
            number: LeaderSequence { term, counter: 0 },
            beat_at: now,
            sent: VecDeque::new(),
            support: BTreeMap::new(),
            valid_until,
            resigning: None,
        });
        let mandate = Mandate::Fenced(FencingToken(term.0));
        self.tell(Event::Elected { term, mandate, valid_until });
        self.broadcast_heartbeat(now);
    }

    /// Sends the next `Lead`, which this server's own elector also hears.
    fn broadcast_heartbeat(&mut self, now: Instant) {
        let patience = self.config.patience();
        let Candidate::Leader(lead) = &mut self.candidate else { return };
        lead.number = lead.number.next();
        lead.beat_at = now.after(self.config.heartbeat_interval);
        while lead.sent.front().is_some_and(|&(_, at)| now >= at.after(patience)) {
            lead.sent.pop_front();
        }
        let apart = self.config.heartbeat_interval.divided_by(SENT_PER_HEARTBEAT);
        if lead.sent.back().is_none_or(|&(_, at)| now >= at.after(apart)) {
            lead.sent.push_back((lead.number, now));
        }
        lead.support.insert(self.config.me.node, now);
        let number = lead.number;
        self.seen = Some(number);
        self.send_all(&Body::Lead { number, state: Arc::clone(&self.state) });
        self.extend_lease();
    }

    fn on_lead(&mut self, now: Instant, from: Identity, number: LeaderSequence, state: Arc<[u8]>) {
        if self.has_forgotten() {
            return; // It may have voted in a later ballot.
        }
        let (term, promised) = (number.term, self.decided());
        if self.is_rival(now, from, term) {
            return;
        }
        self.send(from.node, Body::LeadReply { to: from.incarnation, number, promised: promised.max(term) });
        if term < promised || term <= self.resigned || Some(number) <= self.seen {
            return; // The answer tells that leader that it is none; or it has gone; or this came twice, or late.
        }
        self.step_down(Reason::HigherTerm(term));
        self.settle(from, term);
        self.seen = Some(number);
        self.state = state;
        let until = now.after(self.config.patience());
        self.elector = Elector::Watching { leader: Some(Leader { identity: from, term }), until };
    }

    /// True if `from` claims the lead in the term of another leader, which is a violation. Reports it, and follows
    /// neither.
    fn is_rival(&mut self, now: Instant, from: Identity, term: Term) -> bool {
        let rival = self.leader_or_self().filter(|known| known.term == term && known.identity != from);
        if let Some(known) = rival {
            self.tell(Event::Violation(Violation::TwoLeaders { term, known: known.identity, other: from }));
            self.step_down(Reason::Violation);
            self.forget_leader(now);
        }
        rival.is_some()
    }

    fn on_lead_reply(&mut self, now: Instant, from: NodeId, number: LeaderSequence, promised: Term) {
        self.heard_of = self.heard_of.max(promised);
        let Candidate::Leader(lead) = &mut self.candidate else { return }; // Late: that leadership is over.
        if promised > lead.number.term {
            // A server has voted in a higher ballot. Begin a round above it, in which the others choose the old leader
            // again.
            let stays = lead.resigning.is_none();
            self.step_down(Reason::HigherTerm(promised));
            self.forget_leader(now);
            if stays && self.can_campaign(now) {
                self.elect(now);
            }
            return;
        }
        let kept = lead.sent.iter().rev().find(|&&(sent, _)| sent <= number && number <= lead.number);
        let Some(&(_, sent_at)) = kept else { return }; // Of an earlier leadership, or answered too late.
        let answered = lead.support.entry(from).or_insert(sent_at);
        *answered = sent_at.max(*answered);
        self.extend_lease();
    }

    /// Moves the end of the leadership to one patience after the time since which a majority has answered.
    fn extend_lease(&mut self) {
        let (voters, patience) = (self.config.voters.len(), self.config.patience());
        let Candidate::Leader(lead) = &mut self.candidate else { return };
        let mut answered: Vec<Instant> = lead.support.values().copied().collect();
        let Some(since) = majority::reached(voters, &mut answered) else { return };
        let until = since.after(patience);
        if until > lead.valid_until {
            lead.valid_until = until;
            self.tell(Event::Renewed { valid_until: until });
        }
    }

    // ── the end of a leadership ─────────────────────────────────────────────────────────────────────────────

    /// Ends a leadership that no majority has answered for too long: the others elect another leader.
    fn expire(&mut self, now: Instant) {
        if matches!(&self.candidate, Candidate::Leader(lead) if now >= lead.valid_until) {
            self.step_down(Reason::Expired);
            self.forget_leader(now);
        }
    }

    /// Asks the application to drain. The lead is kept until it has drained, so that no other server starts work
    /// before.
    fn resign(&mut self, reason: Reason) {
        if let Candidate::Leader(lead @ Lead { resigning: None, .. }) = &mut self.candidate {
            lead.resigning = Some(reason);
            self.tell(Event::Resigning(reason));
        }
    }

    /// Gives up the lead after the work has ended, and tells the others, so that they need not wait until they miss
    /// this leader.
    fn give_up(&mut self, now: Instant, reason: Reason) {
        let (term, earlier) = (self.led, self.works_until);
        self.resigned = term;
        self.step_down(reason);
        self.works_until = earlier; // The work of this leadership has ended.
        self.yields_until = now.after(self.config.patience());
        if now < earlier {
            return self.forget_leader(now); // That of one before may not have. The others miss this server by themselves.
        }
        let successor = match reason {
            Reason::Transferred(to) => Some(to),
            Reason::Resigned | Reason::Unhealthy | Reason::Expired | Reason::HigherTerm(_) => None,
            Reason::Undecided | Reason::Overwritten | Reason::Removed | Reason::SessionEnded => None,
            Reason::DiskLost | Reason::Violation | Reason::Halted => None,
        };
        self.favourite = successor.map(Favourite::Successor);
        self.send_all(&Body::Resigned { term, successor });
        self.forget_leader(now);
    }

    fn step_down(&mut self, reason: Reason) {
        if let Candidate::Leader(lead) = &self.candidate {
            self.works_until = self.works_until.max(lead.valid_until);
            self.candidate = Candidate::Follower;
            self.trigger = ElectionTrigger::Silence;
            self.tell(Event::Deposed(reason));
        }
    }

    fn on_resigned(&mut self, now: Instant, from: Identity, term: Term, successor: Option<NodeId>) {
        if term < self.led || self.has_forgotten() || self.is_rival(now, from, term) {
            return; // Another has led since.
        }
        self.led = term;
        self.heard_of = self.heard_of.max(term);
        self.resigned = term;
        self.favourite = successor.map(Favourite::Successor);
        // Leaders of lower terms are deposed too, and a round with a ballot up to this term elects no leader.
        let is_over = match &self.elector {
            Elector::Voting { ballot, .. } => *ballot <= term,
            Elector::Watching { .. } => self.leader_or_self().is_some(),
        };
        self.step_down(Reason::HigherTerm(term));
        if is_over {
            let to_this = successor == Some(self.config.me.node);
            self.lose_leader(
                now,
                if to_this { ElectionTrigger::Transferred } else { ElectionTrigger::Resigned },
            );
        }
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
        self.connected.retain(|&node, (incarnation, _)| Identity::new(node, *incarnation) != identity);
        if let Elector::Voting { slate, .. } = &mut self.elector {
            slate.retain(|&node, (incarnation, _)| Identity::new(node, *incarnation) != identity);
            self.hearsay.retain(|_, leader| leader.identity != identity);
            self.vote_if_all_have_claimed(now);
        }
        if self.follows().is_some_and(|leader| leader.identity == identity) {
            self.lose_leader(now, ElectionTrigger::Died);
        }
    }

    /// Begins a round at once, because the leader is gone or no longer heard.
    fn lose_leader(&mut self, now: Instant, trigger: ElectionTrigger) {
        self.forget_leader(now);
        self.trigger = trigger;
        self.elect(now);
    }

    /// Stops following the leader, and schedules a round soon.
    fn forget_leader(&mut self, now: Instant) {
        let wait = self.config.gathering.plus(self.rng.duration_up_to(self.config.heartbeat_interval));
        self.elector = Elector::Watching { leader: None, until: now.after(wait) };
    }

    /// Clears the tally and the state of the finished election, because there is a leader.
    fn settle(&mut self, leader: Identity, term: Term) {
        self.led = self.led.max(term);
        self.heard_of = self.heard_of.max(term);
        self.tally.retain(|_, &mut ballot| ballot > term);
        self.favourite = Some(Favourite::Old(leader));
        self.hears = None;
        self.rounds = 0;
        self.asked = false;
        self.hearsay.clear();
        if leader == self.config.me {
            self.elector = Elector::Watching { leader: None, until: Instant::NEVER };
        } else {
            self.trigger = ElectionTrigger::Silence;
        }
    }

    // ── a lost disk ─────────────────────────────────────────────────────────────────────────────────────────

    /// Handles an operator's permission to return without the disk. This server cannot know in which ballots it has
    /// voted, so it does not vote until all others have reported their highest ballots.
    fn on_readmitted(&mut self, now: Instant, by: NodeId, term: Term) {
        let stranger = by == self.config.me.node || !self.config.voters.contains(&by);
        if stranger || term > TERM_MAX || self.hard.disk_state == DiskState::Recovered {
            return;
        }
        let (me, voters) = (self.config.me.node, &self.config.voters);
        let Some(recovered) = self.reports.take(self.hard, voters, me, by, term) else { return };
        self.persist(recovered);
        self.forget_leader(now);
    }

    /// The highest decided ballot: this server has voted in it, or it has been won. This server votes in no ballot up
    /// to it.
    fn decided(&self) -> Term {
        self.hard.term.max(self.led)
    }

    fn has_forgotten(&self) -> bool {
        self.hard.disk_state == DiskState::Lost
    }

    // ── helpers ─────────────────────────────────────────────────────────────────────────────────────────────

    fn wants_to_lead(&self) -> bool {
        self.campaigning && self.healthy && !self.config.witness && !self.has_forgotten()
    }

    fn can_campaign(&self, now: Instant) -> bool {
        self.wants_to_lead() && now >= self.yields_until
    }

    /// The other server that leads, as this one hears.
    fn follows(&self) -> Option<Leader> {
        match &self.elector {
            Elector::Watching { leader, .. } => *leader,
            Elector::Voting { .. } => None,
        }
    }

    fn leader_or_self(&self) -> Option<Leader> {
        match &self.candidate {
            Candidate::Leader(lead) => Some(Leader { identity: self.config.me, term: lead.number.term }),
            Candidate::Follower => self.follows(),
        }
    }

    fn is_dead(&self, node: NodeId, incarnation: Incarnation) -> bool {
        self.dead.get(&node).is_some_and(|dead| dead.contains(&incarnation))
    }

    fn tell_leader(&mut self) {
        let leader = self.leader_or_self();
        if leader != self.told_leader {
            self.told_leader = leader;
            self.tell(Event::LeaderChanged(leader));
        }
    }

    fn tell(&mut self, event: Event) {
        self.outputs.push_back(Output::Event(event));
    }

    fn persist(&mut self, hard: HardState) {
        self.hard = hard;
        self.outputs.push_back(Output::Persist(hard));
    }

    fn send(&mut self, to: NodeId, body: Body) {
        let message = Message { incarnation: self.config.me.incarnation, body };
        self.outputs.push_back(Output::Send { to: Endpoint::Node(to), message });
    }

    fn send_all(&mut self, body: &Body) {
        for voter in self.config.voters.clone() {
            if voter != self.config.me.node {
                self.send(voter, body.clone());
            }
        }
    }
}

#[cfg(test)]
mod tests;
