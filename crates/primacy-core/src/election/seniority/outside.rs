//! A node that does not belong to a cluster: it asks to join, or founds one.

use alloc::collections::BTreeSet;
use alloc::sync::Arc;
use alloc::vec::Vec;

use super::stopped::Note;
use super::{Body, JoinAnswer, Joiner, Lead, Membership, Refusal, SEEDS_MAX, Seniority};
use crate::fence::FencingToken;
use crate::id::NodeId;
use crate::membership::{MEMBERS_MAX, View};
use crate::protocol::{Event, Mandate};
use crate::term::Term;
use crate::time::Instant;

/// The limit on nodes that are asked in addition to the seeds: nodes that other nodes have named, or that have probed
/// this one.
const CANDIDATES_MAX: usize = 8;

/// The limit on nodes asked in one interval: the members of its last cluster, the seeds, and the candidates.
const ASKED_MAX: usize = MEMBERS_MAX + SEEDS_MAX + CANDIDATES_MAX;

/// The state of a node outside a cluster.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Outside {
    /// The view that it belonged to last, in this process.
    pub(super) last: Option<Arc<View>>,
    /// The nodes that it asks in addition to the seeds.
    candidates: BTreeSet<NodeId>,
    pub(super) attempts: u32,
    pub(super) refusal: Option<Refusal>,
    /// The time to ask again.
    pub(super) asks_at: Instant,
    /// The nodes asked in the current interval. Each is asked once.
    asked: BTreeSet<NodeId>,
    /// The nodes that have answered that they do not belong to a cluster either.
    outside: BTreeSet<NodeId>,
    /// The time until which it waits for answers before it founds a cluster.
    pub(super) founds_at: Instant,
    has_waited: bool,
    /// The nodes that an operator has reported dead: their answers are not awaited.
    downed: BTreeSet<NodeId>,
    /// The reason why its part of the cluster has stopped, if it has.
    pub(super) stopped: Note,
}

impl Outside {
    /// The state of a node that begins to ask.
    pub(super) const fn new(last: Option<Arc<View>>, candidates: BTreeSet<NodeId>, now: Instant) -> Self {
        Self {
            last,
            candidates,
            attempts: 0,
            refusal: None,
            asks_at: now,
            asked: BTreeSet::new(),
            outside: BTreeSet::new(),
            founds_at: Instant::NEVER,
            has_waited: false,
            downed: BTreeSet::new(),
            stopped: Note(None),
        }
    }

    pub(super) fn deadline(&self) -> Instant {
        if self.has_waited || self.attempts < 2 { self.asks_at } else { self.asks_at.min(self.founds_at) }
    }

    /// Handles an operator's report that `node` is dead.
    pub(super) fn down(&mut self, node: NodeId) {
        self.candidates.remove(&node);
        if self.downed.len() < CANDIDATES_MAX {
            self.downed.insert(node);
        }
    }

    /// The number of names that it keeps.
    #[cfg(test)]
    pub(super) fn size(&self) -> usize {
        [&self.candidates, &self.asked, &self.outside, &self.downed].map(BTreeSet::len).iter().sum()
    }

    fn names(&mut self, node: NodeId) {
        if self.candidates.len() >= CANDIDATES_MAX {
            self.candidates.pop_first();
        }
        self.candidates.insert(node);
    }
}

impl Seniority {
    /// Begins to ask, after the command to campaign.
    pub(super) fn begin_campaign(&mut self, now: Instant) {
        if let Membership::Outside(outside) = &mut self.membership {
            let stopped = core::mem::take(&mut outside.stopped);
            *outside = Outside { stopped, ..Outside::new(outside.last.take(), BTreeSet::new(), now) };
        }
    }

    /// Asks the other nodes when it is time, and founds a cluster if [`Self::may_found`] allows it.
    pub(super) fn ask_to_join(&mut self, now: Instant) {
        let (again, waits) = (now.after(self.config.join_interval), self.config.answer_wait);
        let Membership::Outside(outside) = &mut self.membership else { return };
        if now >= outside.asks_at {
            outside.asks_at = again;
            outside.founds_at = now.after(waits);
            outside.attempts = outside.attempts.saturating_add(1);
            outside.asked.clear();
            outside.outside.clear();
            let candidates = outside.candidates.clone();
            for node in self.concerned().into_iter().chain(candidates) {
                self.ask_one(node);
            }
        }
        let Membership::Outside(outside) = &mut self.membership else { return };
        outside.has_waited |= now >= outside.founds_at && outside.attempts > 1;
        if self.may_found() {
            self.found(now);
        }
    }

    fn ask_one(&mut self, node: NodeId) {
        let (joining, attributes) = (self.joining, Arc::clone(&self.config.attributes));
        let me = self.config.me.node;
        let Membership::Outside(outside) = &mut self.membership else { return };
        if node != me && outside.asked.len() < ASKED_MAX && outside.asked.insert(node) {
            self.send(node, Body::Join { joining, attributes });
        }
    }

    /// Asks a newly connected node again.
    pub(super) fn on_connected(&mut self, node: NodeId) {
        let campaigns = self.campaigns();
        let Membership::Outside(outside) = &mut self.membership else { return };
        if campaigns && outside.asked.remove(&node) {
            self.ask_one(node);
        }
    }

    /// The seeds and, on the first seed, the members of its last cluster.
    fn concerned(&self) -> Vec<NodeId> {
        let Membership::Outside(outside) = &self.membership else { return Vec::new() };
        let founds = self.config.seeds.first() == Some(&self.config.me.node);
        let before = outside.last.iter().filter(|_| founds).flat_map(|view| view.members());
        let before = before.map(|member| member.identity.node).filter(|node| !outside.downed.contains(node));
        self.config.seeds.iter().copied().chain(before).collect()
    }

    /// The other nodes whose answers it awaits.
    pub(super) fn awaited(&self) -> BTreeSet<NodeId> {
        let Membership::Outside(outside) = &self.membership else { return BTreeSet::new() };
        let is_awaited = |node: &NodeId| *node != self.config.me.node && !outside.downed.contains(node);
        self.concerned().into_iter().filter(is_awaited).collect()
    }

    /// True if this node may found a cluster: only the first seed may, when the others have answered that they do not
    /// belong to one. It stops waiting for nodes that leave two questions unanswered. But if it has belonged to a
    /// cluster in this process, it waits for all members of that, because they may go on without it.
    fn may_found(&self) -> bool {
        let Membership::Outside(outside) = &self.membership else { return false };
        let me = self.config.me.node;
        let all_are_outside = || self.awaited().iter().all(|node| outside.outside.contains(node));
        let is_left_to_it = match &outside.last {
            None => outside.has_waited || all_are_outside(),
            Some(_) => outside.has_waited && all_are_outside(),
        };
        self.config.seeds.first() == Some(&me) && outside.attempts > 0 && is_left_to_it
    }

    fn found(&mut self, now: Instant) {
        let attributes = Arc::clone(&self.config.attributes);
        let mut view = View::founded_by(self.config.me, self.joining, attributes, FencingToken(0));
        if self.claimed > Term(0) {
            // A higher term, so that its views differ from those that it made before.
            view = view.taken_over_by(self.config.me, self.claimed);
        }
        let term = view.version().term;
        self.claimed = term;
        self.enter(now, Arc::new(view));
        if let Membership::Member(member) = &mut self.membership {
            member.lead = Some(Lead::begin(now));
        }
        self.tell(Event::Elected { term, mandate: Mandate::Advisory, valid_until: Instant::NEVER });
    }

    pub(super) fn on_join_reply(&mut self, now: Instant, from: NodeId, answer: JoinAnswer) {
        let campaigns = self.campaigns();
        let Membership::Outside(outside) = &mut self.membership else { return };
        match answer {
            _ if !campaigns => {} // It does not want to any more.
            JoinAnswer::NotJoined => {
                outside.outside.insert(from);
                if self.may_found() {
                    self.found(now);
                }
            }
            JoinAnswer::Ask(node) => {
                outside.names(node);
                self.ask_one(node);
            }
            JoinAnswer::Refused(refusal) => outside.refusal = Some(refusal),
        }
    }

    /// Handles a coordinator's probe, while this node belongs to no cluster.
    pub(super) fn on_invitation(&mut self, from: NodeId) {
        let campaigns = self.campaigns();
        let Membership::Outside(outside) = &mut self.membership else { return };
        if campaigns {
            // The coordinator may have belonged to no cluster when it was asked: ask again.
            if outside.outside.remove(&from) {
                outside.asked.remove(&from);
            }
            outside.names(from);
            self.ask_one(from);
        }
    }

    /// Answers a join request, while this node belongs to no cluster either.
    pub(super) fn answer_outside(&mut self, joiner: &Joiner) {
        let answer = JoinAnswer::NotJoined;
        self.send(joiner.identity.node, Body::JoinReply { joining: joiner.joining, answer });
    }
}
