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

/// The highest number of nodes that are asked beside the seeds: nodes that seeds have named, or that have made
/// themselves known.
const CANDIDATES_MAX: usize = 8;

/// The highest number of nodes that it asks in one interval: the members of its last cluster, the seeds, and the nodes
/// that are named to it.
const ASKED_MAX: usize = MEMBERS_MAX + SEEDS_MAX + CANDIDATES_MAX;

/// The state of a node outside a cluster.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Outside {
    /// The view that it belonged to last, in this process.
    pub(super) last: Option<Arc<View>>,
    /// The nodes that it asks beside the seeds.
    candidates: BTreeSet<NodeId>,
    pub(super) attempts: u32,
    pub(super) refusal: Option<Refusal>,
    /// The time to ask again.
    pub(super) asks_at: Instant,
    /// The nodes that it has asked since it did so last. None is asked twice.
    asked: BTreeSet<NodeId>,
    /// The nodes that have answered since that they do not belong to a cluster either.
    outside: BTreeSet<NodeId>,
    /// The time after which the answers to its last questions need not be awaited any more.
    pub(super) founds_at: Instant,
    has_waited: bool,
    /// The nodes that are not to be waited for, by an operator's word.
    downed: BTreeSet<NodeId>,
    /// The reason why it belongs to a cluster no more, where its part has stopped.
    pub(super) stopped: Note,
}

impl Outside {
    /// A node that asks from now on.
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

    /// Handles an operator's report that this node will not answer.
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
    /// Asks from now on, as it was commanded to campaign.
    pub(super) fn begin_campaign(&mut self, now: Instant) {
        if let Membership::Outside(outside) = &mut self.membership {
            let stopped = core::mem::take(&mut outside.stopped);
            *outside = Outside { stopped, ..Outside::new(outside.last.take(), BTreeSet::new(), now) };
        }
    }

    /// Asks, when it is time to; and founds a cluster, if that is left to it.
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

    /// Sends again to a node that was not connected before.
    pub(super) fn on_connected(&mut self, node: NodeId) {
        let campaigns = self.campaigns();
        let Membership::Outside(outside) = &mut self.membership else { return };
        if campaigns && outside.asked.remove(&node) {
            self.ask_one(node);
        }
    }

    /// The seeds; and, where this node would found a cluster, the members of its last one.
    fn concerned(&self) -> Vec<NodeId> {
        let Membership::Outside(outside) = &self.membership else { return Vec::new() };
        let founds = self.config.seeds.first() == Some(&self.config.me.node);
        let before = outside.last.iter().filter(|_| founds).flat_map(|view| view.members());
        let before = before.map(|member| member.identity.node).filter(|node| !outside.downed.contains(node));
        self.config.seeds.iter().copied().chain(before).collect()
    }

    /// The others from which it waits for an answer.
    pub(super) fn awaited(&self) -> BTreeSet<NodeId> {
        let Membership::Outside(outside) = &self.membership else { return BTreeSet::new() };
        let is_awaited = |node: &NodeId| *node != self.config.me.node && !outside.downed.contains(node);
        self.concerned().into_iter().filter(is_awaited).collect()
    }

    /// True if this node may found a cluster: only the first seed does, when the others say that they do not belong to
    /// one. Nodes that do not answer twice are not waited for; but a node that has belonged to a cluster in this
    /// process waits for all members of it, for they may go on without it.
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
            // Its views are told apart from those that it has made before.
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

    /// Handles the message of a coordinator that is looking for this node, which belongs to no cluster.
    pub(super) fn on_invitation(&mut self, from: NodeId) {
        let campaigns = self.campaigns();
        let Membership::Outside(outside) = &mut self.membership else { return };
        if campaigns {
            // It may have had none when it was asked.
            if outside.outside.remove(&from) {
                outside.asked.remove(&from);
            }
            outside.names(from);
            self.ask_one(from);
        }
    }

    /// Answers a node that asks this one, which belongs to no cluster either.
    pub(super) fn answer_outside(&mut self, joiner: &Joiner) {
        let answer = JoinAnswer::NotJoined;
        self.send(joiner.identity.node, Body::JoinReply { joining: joiner.joining, answer });
    }
}
