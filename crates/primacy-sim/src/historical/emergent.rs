//! The emergent leader exactly as the article states it, kept to demonstrate its faults. The corrected election is
//! [`seniority`](primacy_core::election::seniority).
//!
//! Assumes   nothing that it states; but it rests on messages arriving, and on members failing one at a time and never being cut off.
//! Promises  nothing. Its faults, in the order of its text:
//!           1. ages are one above the youngest live member's, so the age of a failed member is given again;
//!           2. a view overwrites any other view, for versions are only compared when a heartbeat comes;
//!           3. a member claims the lead if *no failed member is younger*: all survivors do when the coordinator dies, and
//!              none does when the coordinator and the youngest die together; and the suspicion is used up by that;
//!           4. a removed member is not told so;
//!           5. of two parts of one size each asks the other to join, and both do.
//! Costs     a heartbeat from each to all. Never use it.
//!
//! Where all versions of the article are silent: a member joins again under the same identity; a part that merges
//! gives up its view before the other part has answered, as the article's `shutdown` does.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use primacy_core::{
    Command, Duration, Endpoint, Event, Evidence, Identity, Input, Instant, Leader, Mandate, NodeId, Output,
    Protocol, Reason, Term,
};

/// A node's configuration; the numbers are the article's.
#[derive(Clone, Debug)]
pub struct Config {
    /// This node.
    pub me: Identity,
    /// The seed that the node asks to join, or the node itself if it is the seed.
    pub seed: NodeId,
    /// The time between heartbeats of a member, and between its checks of the others.
    pub interval: Duration,
    /// The silence after which a member counts as failed.
    pub timeout: Duration,
    /// The time between requests to join.
    pub join_interval: Duration,
    /// The number of members that must be exceeded for a request to be served, the text's "minimum".
    pub minimum: usize,
}

/// The members with their ages, and those that have failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Membership {
    /// The version: incremented with each change, by any member.
    pub version: u64,
    /// The live members with their ages.
    pub live: BTreeMap<NodeId, u64>,
    /// The failed members.
    pub failed: BTreeSet<NodeId>,
}

/// A message between nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    /// To the seed.
    JoinRequest,
    /// The answer.
    Joined(Membership),
    /// To the members.
    UpdateMembership(Membership),
    /// To the members, with the version of the membership.
    Heartbeat(u64),
    /// To the failed members: the sender lives, with the number of live members in its view.
    SplitBrainJoin(usize),
    /// To the smaller part, and within it: join the part of this node.
    Merge(NodeId),
}

/// The machine of one node.
#[derive(Clone, Debug)]
pub struct Emergent {
    config: Config,
    membership: Option<Membership>,
    /// The time of the last message of each member. A node that is missing here is not monitored.
    heard: BTreeMap<NodeId, Instant>,
    joins: NodeId,
    wake_at: Instant,
    campaigning: bool,
    leads: bool,
    told_leader: Option<NodeId>,
    outputs: VecDeque<Output<Message, ()>>,
}

impl Protocol for Emergent {
    type Message = Message;
    type Durable = ();

    fn handle(&mut self, now: Instant, input: Input<Message>) {
        match input {
            Input::Message { from: Endpoint::Node(from), message } => self.on_message(now, from, message),
            Input::Message { from: Endpoint::Store | Endpoint::Client, .. } => {} // It knows no store.
            Input::Timeout => {
                if self.campaigning && now >= self.wake_at {
                    self.look_after_the_others(now);
                }
            }
            Input::Command(Command::Campaign) if !self.campaigning => {
                self.campaigning = true;
                self.join(now, self.config.seed);
            }
            // Messages that were queued while the seed was unreachable are sent now, as socket libraries do.
            Input::Evidence(Evidence::Connected(peer))
                if self.membership.is_none() && peer.identity.node == self.joins =>
            {
                if self.campaigning {
                    self.send(self.joins, Message::JoinRequest);
                }
            }
            Input::Command(_) | Input::Evidence(_) => {} // It knows nothing of these, and believes messages only.
        }
        self.tell_leader();
    }

    fn poll(&mut self) -> Option<Output<Message, ()>> {
        self.outputs.pop_front()
    }

    fn deadline(&self) -> Option<Instant> {
        self.campaigning.then_some(self.wake_at)
    }
}

impl Membership {
    fn oldest(&self) -> Option<NodeId> {
        self.live.iter().min_by_key(|&(_, age)| age).map(|(&node, _)| node)
    }

    fn failed(&self, failed: &BTreeSet<NodeId>) -> Self {
        let mut next = Self { version: self.version + 1, ..self.clone() };
        next.live.retain(|node, _| !failed.contains(node));
        next.failed.extend(failed);
        next
    }

    fn with(&self, node: NodeId) -> Self {
        let age = self.live.values().max().map_or(1, |youngest| youngest + 1);
        let mut next = Self { version: self.version + 1, ..self.clone() };
        next.failed.remove(&node);
        next.live.insert(node, age);
        next
    }
}

impl Emergent {
    /// The machine of `config.me`.
    #[must_use]
    pub fn new(config: Config, now: Instant) -> Self {
        Self {
            joins: config.seed,
            config,
            membership: None,
            heard: BTreeMap::new(),
            wake_at: now,
            campaigning: false,
            leads: false,
            told_leader: None,
            outputs: VecDeque::new(),
        }
    }

    /// True if the node is asking to join.
    #[must_use]
    pub const fn joins(&self) -> bool {
        self.membership.is_none()
    }

    /// Checks that a request is served by the article's rule: there must be more members than the minimum.
    ///
    /// # Errors
    /// If there are not enough members.
    pub fn admit(&self) -> Result<(), String> {
        let live = self.membership.as_ref().map_or(0, |membership| membership.live.len());
        let minimum = self.config.minimum;
        if live > minimum {
            Ok(())
        } else {
            Err(format!("Requires minimum {minimum} members to serve the request"))
        }
    }

    fn join(&mut self, now: Instant, into: NodeId) {
        self.membership = None;
        self.heard.clear();
        self.joins = into;
        if into == self.config.me.node {
            let live = BTreeMap::from([(into, 1)]);
            self.update(now, Membership { version: 1, live, failed: BTreeSet::new() });
            self.wake_at = now.after(self.config.interval);
        } else {
            self.send(into, Message::JoinRequest);
            self.wake_at = now.after(self.config.join_interval);
        }
    }

    fn update(&mut self, now: Instant, membership: Membership) {
        let me = self.config.me.node;
        self.heard.retain(|node, _| membership.live.contains_key(node));
        for &node in membership.live.keys().filter(|&&node| node != me) {
            self.heard.entry(node).or_insert(now);
        }
        self.membership = Some(membership);
    }

    fn on_message(&mut self, now: Instant, from: NodeId, message: Message) {
        match (message, &self.membership) {
            (Message::Joined(membership) | Message::UpdateMembership(membership), _) => {
                self.update(now, membership);
                self.wake_at = self.wake_at.min(now.after(self.config.interval));
            }
            (Message::JoinRequest, Some(membership)) => {
                let next = membership.with(from);
                self.tell_members(&Message::UpdateMembership(next.clone()));
                self.send(from, Message::Joined(next.clone()));
                self.update(now, next);
            }
            (Message::Heartbeat(version), Some(membership)) => {
                let behind = version < membership.version && membership.live.contains_key(&from);
                let update = Message::UpdateMembership(membership.clone());
                if let Some(heard) = self.heard.get_mut(&from) {
                    *heard = now;
                }
                if self.leads && behind {
                    self.send(from, update);
                }
            }
            (Message::SplitBrainJoin(count), Some(membership)) => {
                if !membership.failed.contains(&from) || !self.leads {
                    return;
                }
                if count < membership.live.len() {
                    self.send(from, Message::Merge(self.config.me.node));
                } else {
                    self.merge_into(now, from);
                }
            }
            (Message::Merge(into), Some(_)) if self.leads => self.merge_into(now, into),
            (Message::Merge(into), Some(_)) => self.join(now, into),
            // It has no membership yet.
            (
                Message::JoinRequest | Message::Heartbeat(_) | Message::SplitBrainJoin(_) | Message::Merge(_),
                None,
            ) => {}
        }
    }

    fn merge_into(&mut self, now: Instant, into: NodeId) {
        self.tell_members(&Message::Merge(into));
        self.join(now, into);
    }

    fn look_after_the_others(&mut self, now: Instant) {
        let Some(membership) = self.membership.clone() else { return self.join(now, self.joins) };
        self.wake_at = now.after(self.config.interval);
        let me = self.config.me.node;
        self.tell_members(&Message::Heartbeat(membership.version));
        let is_silent = |heard: &Instant| now >= heard.after(self.config.timeout);
        let failed: BTreeSet<NodeId> =
            self.heard.iter().filter(|(_, heard)| is_silent(heard)).map(|(&node, _)| node).collect();
        // The check clears the suspicion.
        self.heard.retain(|node, _| !failed.contains(node));
        let my_age = membership.live.get(&me).copied().unwrap_or_default();
        let is_older_than_all =
            failed.iter().all(|node| membership.live.get(node).is_some_and(|&age| age < my_age));
        if !failed.is_empty() && (self.leads || is_older_than_all) {
            let next = membership.failed(&failed);
            self.update(now, next.clone());
            self.tell_members(&Message::UpdateMembership(next));
        }
        if self.leads {
            let count = self.membership.as_ref().map_or(0, |membership| membership.live.len());
            membership.failed.iter().for_each(|&node| self.send(node, Message::SplitBrainJoin(count)));
        }
    }

    /// Reports a change of the leader, which is the oldest node of this node's membership. The article has no such
    /// event.
    fn tell_leader(&mut self) {
        let oldest = self.membership.as_ref().and_then(Membership::oldest);
        let leads = oldest == Some(self.config.me.node);
        let term = Term(self.membership.as_ref().map_or(0, |membership| membership.version));
        if leads && !self.leads {
            let (mandate, valid_until) = (Mandate::Advisory, Instant::NEVER);
            self.outputs.push_back(Output::Event(Event::Elected { term, mandate, valid_until }));
        } else if self.leads && !leads {
            self.outputs.push_back(Output::Event(Event::Deposed(Reason::Overwritten)));
        }
        self.leads = leads;
        if oldest != self.told_leader {
            self.told_leader = oldest;
            // The incarnation of the leader is not known here.
            let incarnation = self.config.me.incarnation;
            let leader = oldest.map(|node| Leader { identity: Identity { node, incarnation }, term });
            self.outputs.push_back(Output::Event(Event::LeaderChanged(leader)));
        }
    }

    fn tell_members(&mut self, message: &Message) {
        let Some(membership) = &self.membership else { return };
        let others: Vec<NodeId> =
            membership.live.keys().copied().filter(|&node| node != self.config.me.node).collect();
        others.into_iter().for_each(|node| self.send(node, message.clone()));
    }

    fn send(&mut self, to: NodeId, message: Message) {
        self.outputs.push_back(Output::Send { to: Endpoint::Node(to), message });
    }
}
