//! The election of the note of 2000 exactly as it is stated, kept to demonstrate its faults. The corrected election
//! is [`ranked`](primacy_core::election::ranked).
//!
//! Assumes   nothing that it states; but it rests on the first message of a new leader not being lost.
//! Promises  nothing. Its faults, in the order of its text:
//!           1. a vote reserves nothing: a voter that hears no leader votes again, for another, and both votes count;
//!           2. votes name no round, so those of two rounds are the same and add up, and an earlier leader
//!              does not know that it has been replaced;
//!           3. a server that restarts knows nothing of its vote;
//!           4. the leader never asks whether any server follows it;
//!           5. after a round that elected no leader all wait for the same long time, and so meet again.
//! Costs     two messages per server and round trip. Never use it.
//!
//! Where the note is silent: a new leader's term is one above the last that it has seen; and a leader ignores a
//! `Lead` of a term below its own.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use primacy_core::majority::needed;
use primacy_core::{
    Command, Duration, Endpoint, Event, FencingToken, Identity, Input, Instant, Leader, Mandate, NodeId,
    Output, Protocol, Reason, Term,
};

/// A server's configuration.
#[derive(Clone, Debug)]
pub struct Config {
    /// This server.
    pub me: Identity,
    /// All servers.
    pub voters: BTreeSet<NodeId>,
    /// HBT: the time between heartbeats of a leader.
    pub heartbeat_interval: Duration,
    /// RTT: the time for which claims are gathered.
    pub gathering: Duration,
}

/// The term of a leader, and the number of its message.
pub type Seen = (Term, u64);

/// A message between servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Message {
    /// To all servers: the last message of a leader that the sender has seen.
    Elect(Seen),
    /// To the sender of the best claim: that claim.
    Vote(Seen),
    /// To all servers: the sender's claim to lead.
    Lead(Seen),
}

/// The machine of one server.
#[derive(Clone, Debug)]
pub struct Gmt2000 {
    config: Config,
    campaigning: bool,
    elector: Elector,
    candidate: Candidate,
    seen: Seen,
    /// The sender of the last `Lead`.
    leader: Option<NodeId>,
    told_leader: Option<NodeId>,
    outputs: VecDeque<Output<Message, ()>>,
}

#[derive(Clone, Debug)]
enum Elector {
    Watching { until: Instant },
    Voting { slate: BTreeMap<NodeId, Seen>, until: Instant },
}

#[derive(Clone, Debug)]
enum Candidate {
    /// A follower, with its tally: the latest vote of each server for it.
    Follower {
        tally: BTreeMap<NodeId, Seen>,
    },
    Leader {
        sent: Seen,
        beat_at: Instant,
        resigning: bool,
    },
}

impl Protocol for Gmt2000 {
    type Message = Message;
    type Durable = ();

    fn handle(&mut self, now: Instant, input: Input<Message>) {
        match input {
            Input::Message { from: Endpoint::Node(from), message } => self.on_message(now, from, message),
            Input::Message { from: Endpoint::Store | Endpoint::Client, .. } => {} // It knows no store.
            Input::Timeout => self.on_timeout(now),
            Input::Command(command) => self.on_command(command),
            Input::Evidence(_) => {} // It believes messages only.
        }
    }

    fn poll(&mut self) -> Option<Output<Message, ()>> {
        self.outputs.pop_front()
    }

    fn deadline(&self) -> Option<Instant> {
        let (Elector::Watching { until } | Elector::Voting { until, .. }) = &self.elector;
        match &self.candidate {
            Candidate::Leader { beat_at, .. } => Some((*beat_at).min(*until)),
            Candidate::Follower { .. } => self.campaigning.then_some(*until),
        }
    }
}

impl Gmt2000 {
    /// The machine of `config.me`.
    #[must_use]
    pub fn new(config: Config, now: Instant) -> Self {
        let until = now.after(config.heartbeat_interval.times(5));
        Self {
            config,
            campaigning: false,
            elector: Elector::Watching { until },
            candidate: Candidate::Follower { tally: BTreeMap::new() },
            seen: (Term(0), 0),
            leader: None,
            told_leader: None,
            outputs: VecDeque::new(),
        }
    }

    /// True if the server gathers claims.
    #[must_use]
    pub const fn votes(&self) -> bool {
        matches!(self.elector, Elector::Voting { .. })
    }

    fn on_message(&mut self, now: Instant, from: NodeId, message: Message) {
        match message {
            Message::Elect(claim) => {
                if matches!(self.elector, Elector::Watching { .. }) {
                    self.enter_voting(now);
                }
                if let Elector::Voting { slate, .. } = &mut self.elector {
                    slate.insert(from, claim);
                }
            }
            Message::Vote(claim) => self.on_vote(now, from, claim),
            Message::Lead(number) => self.on_lead(now, from, number),
        }
    }

    fn on_timeout(&mut self, now: Instant) {
        match &self.candidate {
            Candidate::Leader { beat_at, resigning: false, .. } if now >= *beat_at => self.lead(now),
            Candidate::Leader { .. } | Candidate::Follower { .. } => {}
        }
        match &self.elector {
            Elector::Watching { until } if now >= *until => self.enter_voting(now),
            Elector::Voting { until, .. } if now >= *until => self.vote(now),
            Elector::Watching { .. } | Elector::Voting { .. } => {} // Early.
        }
    }

    fn on_command(&mut self, command: Command) {
        match (&mut self.candidate, command) {
            (_, Command::Campaign) => self.campaigning = true,
            (Candidate::Leader { resigning, .. }, Command::Resign | Command::Withdraw) => {
                *resigning = true;
                self.tell(Event::Resigning(Reason::Resigned));
            }
            (Candidate::Leader { resigning: true, .. }, Command::Drained) => self.follow(Reason::Resigned),
            (
                Candidate::Follower { .. } | Candidate::Leader { .. },
                Command::Withdraw
                | Command::Resign
                | Command::Drained
                | Command::Transfer(_)
                | Command::Down(_)
                | Command::Healthy(_),
            ) => {} // It knows nothing of these.
        }
    }

    // ── the elector ─────────────────────────────────────────────────────────────────────────────────────────

    fn enter_voting(&mut self, now: Instant) {
        let slate = BTreeMap::from([(self.config.me.node, self.seen)]);
        self.elector = Elector::Voting { slate, until: now.after(self.config.gathering) };
        self.send_all(Message::Elect(self.seen));
    }

    fn vote(&mut self, now: Instant) {
        let Elector::Voting { slate, .. } = &self.elector else { return };
        let old = self.leader.and_then(|leader| Some((leader, *slate.get(&leader)?)));
        let latest = slate.iter().max_by_key(|&(&node, &seen)| (seen, core::cmp::Reverse(node)));
        let choice = old.or_else(|| latest.map(|(&node, &seen)| (node, seen)));
        self.elector = Elector::Watching { until: now.after(self.config.heartbeat_interval.times(5)) };
        let Some((choice, claim)) = choice else { return };
        if choice == self.config.me.node {
            self.on_vote(now, choice, claim);
        } else {
            self.outputs
                .push_back(Output::Send { to: Endpoint::Node(choice), message: Message::Vote(claim) });
        }
    }

    // ── the candidate ───────────────────────────────────────────────────────────────────────────────────────

    fn on_vote(&mut self, now: Instant, from: NodeId, claim: Seen) {
        let Candidate::Follower { tally } = &mut self.candidate else { return };
        tally.insert(from, claim);
        let identical = tally.values().filter(|&&vote| vote == claim).count();
        if identical < needed(self.config.voters.len()) {
            return;
        }
        let term = self.seen.0.next();
        self.candidate = Candidate::Leader { sent: (term, 0), beat_at: now, resigning: false };
        let mandate = Mandate::Fenced(FencingToken(term.0));
        self.tell(Event::Elected { term, mandate, valid_until: Instant::NEVER });
        self.lead(now);
        self.tell_leader(Some(self.config.me.node));
    }

    fn lead(&mut self, now: Instant) {
        let Candidate::Leader { sent, beat_at, .. } = &mut self.candidate else { return };
        sent.1 += 1;
        let number = *sent;
        *beat_at = now.after(self.config.heartbeat_interval);
        self.send_all(Message::Lead(number));
        // The server's own elector follows it, too.
        (self.seen, self.leader) = (number, Some(self.config.me.node));
        self.elector = Elector::Watching { until: now.after(self.config.heartbeat_interval.times(3)) };
    }

    fn on_lead(&mut self, now: Instant, from: NodeId, number: Seen) {
        match &mut self.candidate {
            Candidate::Follower { tally } => tally.clear(),
            Candidate::Leader { sent, .. } if number.0 < sent.0 => return,
            Candidate::Leader { .. } => self.follow(Reason::HigherTerm(number.0)),
        }
        if matches!(self.elector, Elector::Watching { .. }) {
            self.elector = Elector::Watching { until: now.after(self.config.heartbeat_interval.times(3)) };
        }
        (self.seen, self.leader) = (number, Some(from));
        self.tell_leader(Some(from));
    }

    fn follow(&mut self, reason: Reason) {
        self.candidate = Candidate::Follower { tally: BTreeMap::new() };
        self.tell(Event::Deposed(reason));
        self.tell_leader(None);
    }

    fn tell_leader(&mut self, node: Option<NodeId>) {
        if self.told_leader == node {
            return;
        }
        self.told_leader = node;
        // The incarnation of the leader is not known here.
        let incarnation = self.config.me.incarnation;
        let leader = node.map(|node| Leader { identity: Identity { node, incarnation }, term: self.seen.0 });
        self.tell(Event::LeaderChanged(leader));
    }

    fn tell(&mut self, event: Event) {
        self.outputs.push_back(Output::Event(event));
    }

    fn send_all(&mut self, message: Message) {
        let me = self.config.me.node;
        let others = self.config.voters.iter().copied().filter(|&voter| voter != me);
        self.outputs.extend(others.map(|to| Output::Send { to: Endpoint::Node(to), message }));
    }
}
