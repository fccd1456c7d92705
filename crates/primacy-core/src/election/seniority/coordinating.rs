//! The work of a coordinator: it adds members, gathers answers to its views, and probes missing nodes.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::sync::Arc;

use super::{Body, Gathering, JoinAnswer, Joiner, Lead, Membership, Merge, Refusal, Seniority};
use crate::id::{Identity, NodeId};
use crate::membership::{Fate, MEMBERS_MAX, Sight, View};
use crate::protocol::Reason;
use crate::time::Instant;

impl Lead {
    /// The state of a coordinator that begins.
    pub(super) const fn begin(now: Instant) -> Self {
        Self { gathering: None, joiners: BTreeMap::new(), probe_at: now, merge: Merge::None, resigning: None }
    }

    /// True if an answer of this node to the current view is awaited.
    pub(super) fn waits_for(&self, node: NodeId) -> bool {
        self.gathering.as_ref().is_some_and(|gathering| gathering.waits_for.contains(&node))
    }

    /// This view without the nodes that are not welcomed yet; `None` if there are none. Until enough members have
    /// answered the view with the new nodes, a part of the members may still decide by the view before, which does not
    /// count the new nodes. So the coordinator does not count them either; otherwise both parts of a cluster that
    /// splits now could go on.
    pub(super) fn settled(&self, view: &View) -> Option<View> {
        let gathering = self.gathering.as_ref().filter(|gathering| !gathering.welcomes.is_empty())?;
        view.without(&gathering.welcomes)
    }

    pub(super) fn deadline(&self) -> Instant {
        let gathered = self.gathering.as_ref().map_or(Instant::NEVER, |gathering| gathering.until);
        let merge = match self.merge {
            Merge::None => Instant::NEVER,
            Merge::Asks { until, .. } | Merge::Stays { until } => until,
        };
        gathered.min(merge).min(self.probe_at)
    }
}

impl Seniority {
    /// Does the work that is due.
    pub(super) fn coordinate(&mut self, now: Instant) {
        let probe_again = now.after(self.config.probe_interval);
        let Membership::Member(member) = &mut self.membership else { return };
        let Some(lead) = &mut member.lead else { return };
        match lead.merge {
            Merge::Asks { until, .. } | Merge::Stays { until } if now >= until => lead.merge = Merge::None,
            Merge::None | Merge::Asks { .. } | Merge::Stays { .. } => {}
        }
        if now >= lead.probe_at {
            lead.probe_at = probe_again;
            self.probe();
        }
        self.welcome(now);
    }

    // ── joining ─────────────────────────────────────────────────────────────────────────────────────────────

    pub(super) fn on_join(&mut self, now: Instant, joiner: Joiner) {
        let (node, joining) = (joiner.identity.node, joiner.joining);
        let Membership::Member(member) = &mut self.membership else { return self.answer_outside(&joiner) };
        let known = member.view.named(node).cloned();
        if let Some(known) = known {
            let (new, old) = (joiner.identity.incarnation.count, known.identity.incarnation.count);
            let is_same = known.identity == joiner.identity;
            if is_same && known.joining > joining {
                return; // It has joined again since.
            }
            // The node has left and its `Leave` was lost, or it has restarted: a node has one incarnation at a time.
            if (is_same && known.joining < joining) || (!is_same && new > old) {
                self.dismiss(now, known.identity, |_| true);
                self.act_on_losses(now);
            }
        }
        if self.only_holds() {
            return self.hand_over(now, joiner);
        }
        let Membership::Member(member) = &mut self.membership else { return self.answer_outside(&joiner) };
        let left = member.view.members().iter().map(|member| member.identity.node);
        let coordinator = left.into_iter().find(|other| !member.gone.contains(other));
        match &mut member.lead {
            None => {
                let Some(coordinator) = coordinator.filter(|&other| other != node) else { return };
                let answer = JoinAnswer::Ask(coordinator);
                self.send(node, Body::JoinReply { joining, answer });
            }
            Some(lead) if lead.resigning.is_some() => {} // It asks again.
            Some(_) => self.take_in(now, joiner),
        }
    }

    /// Makes a view with a node that asks to join, to which this node leaves the cluster once that node has taken the
    /// view.
    fn hand_over(&mut self, now: Instant, joiner: Joiner) {
        let last_age = self.config.last_age;
        let Membership::Member(member) = &mut self.membership else { return };
        let node = joiner.identity.node;
        let is_in = member.view.member(joiner.identity).is_some_and(|known| known.joining == joiner.joining);
        if !is_in {
            let is_certain = |other: &NodeId| *other == self.config.me.node || member.gone.contains(other);
            if !member.view.members().iter().all(|other| is_certain(&other.identity.node)) {
                return; // Those that are lost may go on without it.
            }
            let left = member.view.without(&member.gone).unwrap_or_else(|| (*member.view).clone());
            let Ok(view) = left.with(joiner.identity, joiner.joining, joiner.attributes, last_age) else {
                return;
            };
            self.take(now, Arc::new(view));
        }
        if let Some(view) = self.view() {
            let view = Arc::clone(view);
            self.send(node, Body::View(view));
        }
    }

    fn take_in(&mut self, now: Instant, joiner: Joiner) {
        let (node, joining) = (joiner.identity.node, joiner.joining);
        let last_age = self.config.last_age;
        let Membership::Member(member) = &mut self.membership else { return };
        let Some(lead) = &mut member.lead else { return };
        let known = member.view.named(node).filter(|_| !member.gone.contains(&node));
        if let Some(known) =
            known.filter(|known| known.identity == joiner.identity && known.joining == joining)
        {
            // The node is a member already and does not know yet. It is sent the view, unless it is to be welcomed
            // after the others.
            let is_welcomed =
                lead.gathering.as_ref().is_some_and(|gathering| gathering.welcomes.contains(&node));
            let view = Arc::clone(&member.view);
            if !is_welcomed && known.identity != self.config.me {
                self.send(node, Body::View(view));
            }
            return;
        }
        let other_lives = known.is_some_and(|known| {
            let (new, old) = (joiner.identity.incarnation.count, known.identity.incarnation.count);
            known.identity != joiner.identity && new <= old && !member.watch.suspects().contains(&node)
        });
        let count = member.view.members().len() + lead.joiners.len();
        let refusal = if other_lives {
            Some(Refusal::NameTaken)
        } else if count >= MEMBERS_MAX && known.is_none() && !lead.joiners.contains_key(&node) {
            Some(Refusal::Full)
        } else {
            let taken = member.view.with(joiner.identity, joining, Arc::clone(&joiner.attributes), last_age);
            taken.err().map(Refusal::AgesRunOut)
        };
        if let Some(refusal) = refusal {
            let answer = JoinAnswer::Refused(refusal);
            return self.send(node, Body::JoinReply { joining, answer });
        }
        lead.joiners.insert(node, joiner);
        self.welcome(now);
    }

    /// Adds all nodes that have asked to join, unless answers to the view before are still being gathered.
    pub(super) fn welcome(&mut self, now: Instant) {
        self.end_gathering(now);
        let last_age = self.config.last_age;
        let Membership::Member(member) = &mut self.membership else { return };
        let Some(lead) = &mut member.lead else { return };
        if lead.gathering.is_some() || lead.joiners.is_empty() || lead.resigning.is_some() {
            return;
        }
        let mut view = (*member.view).clone();
        let number = view.version();
        let mut welcomes = BTreeSet::new();
        for (node, joiner) in core::mem::take(&mut lead.joiners) {
            // If no age is left for it, it is refused when it asks again.
            if let Ok(next) = view.with(joiner.identity, joiner.joining, joiner.attributes, last_age) {
                view = next;
                welcomes.insert(node);
            }
        }
        if view.version() == number {
            return;
        }
        let Membership::Member(member) = &mut self.membership else { return };
        if let Some(lead) = &mut member.lead {
            let until = now.after(self.config.answer_wait);
            lead.gathering = Some(Gathering { waits_for: BTreeSet::new(), until, welcomes });
        }
        self.publish(now, view, &BTreeSet::new());
    }

    /// Sends a view to its members and to the nodes that it leaves out. New members are sent it later, when the others
    /// have answered.
    pub(super) fn publish(&mut self, now: Instant, view: View, left_out: &BTreeSet<NodeId>) {
        let (me, until) = (self.config.me.node, now.after(self.config.answer_wait));
        let view = Arc::new(view);
        self.take(now, Arc::clone(&view));
        let Membership::Member(member) = &mut self.membership else { return };
        let Some(lead) = &mut member.lead else { return };
        let others: BTreeSet<NodeId> =
            view.members().iter().map(|other| other.identity.node).filter(|&node| node != me).collect();
        let mut gathering = lead.gathering.take().unwrap_or(Gathering {
            waits_for: BTreeSet::new(),
            until,
            welcomes: BTreeSet::new(),
        });
        gathering.welcomes.retain(|node| others.contains(node));
        gathering.waits_for = others.difference(&gathering.welcomes).copied().collect();
        let told: BTreeSet<NodeId> =
            gathering.waits_for.union(left_out).copied().filter(|&node| node != me).collect();
        lead.gathering = Some(gathering);
        for node in told {
            self.send(node, Body::View(Arc::clone(&view)));
        }
        self.end_gathering(now);
    }

    pub(super) fn on_view_reply(&mut self, now: Instant, from: NodeId, sight: Sight) {
        let Membership::Member(member) = &mut self.membership else { return };
        let is_this = member.view.sight() == sight;
        if is_this && self.only_holds() {
            return self.leave(now, None, true); // It has somebody to leave the cluster to.
        }
        let Membership::Member(member) = &mut self.membership else { return };
        let gathering = member.lead.as_mut().and_then(|lead| lead.gathering.as_mut());
        if let Some(gathering) = gathering.filter(|_| is_this) {
            gathering.waits_for.remove(&from);
            self.welcome(now);
        }
    }

    /// Ends a gathering when all members have answered, or when enough have and the time is over: sends the new members
    /// the view.
    fn end_gathering(&mut self, now: Instant) {
        let (policy, wait) = (self.config.policy, self.config.answer_wait);
        let Membership::Member(member) = &mut self.membership else { return };
        let Some(lead) = &mut member.lead else { return };
        let view = Arc::clone(&member.view);
        let settled = lead.settled(&view);
        let Some(gathering) = &mut lead.gathering else { return };
        if !gathering.waits_for.is_empty() && now < gathering.until {
            return;
        }
        // Enough have answered if they would go on without the others.
        if settled.is_some_and(|settled| settled.fate(policy, &gathering.waits_for) == Fate::Stops) {
            gathering.until = now.after(wait);
            for node in gathering.waits_for.clone() {
                self.send(node, Body::View(Arc::clone(&view)));
            }
            return;
        }
        let welcomes = lead.gathering.take().map(|gathering| gathering.welcomes).unwrap_or_default();
        member.watch.follow(&view, &member.gone, wait, now);
        for node in welcomes {
            self.send(node, Body::View(Arc::clone(&view)));
        }
    }

    // ── looking for missing nodes ───────────────────────────────────────────────────────────────────────────

    /// Probes the removed nodes and the seeds.
    fn probe(&mut self) {
        let Membership::Member(member) = &self.membership else { return };
        let (sight, me) = (member.view.sight(), self.config.me.node);
        let mut missing: BTreeSet<NodeId> =
            self.config.seeds.iter().copied().chain(member.view.removed().iter().copied()).collect();
        missing.retain(|&node| node != me && member.view.named(node).is_none());
        for node in missing {
            self.send(node, Body::Probe(sight));
        }
    }

    pub(super) fn on_probe(&mut self, now: Instant, from: NodeId, sight: Sight) {
        let Membership::Member(member) = &self.membership else { return self.on_invitation(from) };
        let mine = member.view.sight();
        if member.is_undecided(self.config.me) && sight.decision > mine.decision {
            // The other part has the later decision: the store has chosen it.
            return self.leave(now, Some(from), true);
        }
        if self.only_holds() && sight.decision >= mine.decision {
            return self.leave(now, Some(from), true); // Another part has a coordinator.
        }
        let Membership::Member(member) = &self.membership else { return };
        if member.lead.is_none() || !self.would_join(now, sight) {
            self.send(from, Body::ProbeReply(mine));
        }
    }

    pub(super) fn on_probe_reply(&mut self, now: Instant, from: NodeId, sight: Sight) {
        let Membership::Member(member) = &self.membership else { return };
        let (mine, coordinator) = (member.view.sight(), sight.version.coordinator.node);
        let is_another = sight != mine && coordinator != self.config.me.node;
        if member.lead.is_some() && is_another && !self.would_join(now, sight) && from != coordinator {
            // The coordinator of the other part is to join: probe it.
            self.send(coordinator, Body::Probe(mine));
        }
    }

    /// Returns true if this part is to join the other one, and asks it for that.
    fn would_join(&mut self, now: Instant, other: Sight) -> bool {
        let (me, until) = (self.config.me.node, now.after(self.config.answer_wait));
        let Membership::Member(member) = &mut self.membership else { return false };
        let mine = member.view.sight();
        let of = other.version.coordinator.node;
        let Some(lead) = &mut member.lead else { return false };
        if of == me || !mine.joins(&other) {
            return false;
        }
        if lead.merge == Merge::None && lead.resigning.is_none() {
            lead.merge = Merge::Asks { of, until };
            self.send(of, Body::MergeAsk(mine));
        }
        true
    }

    /// Handles the request of another part to join this one.
    pub(super) fn on_merge_ask(&mut self, now: Instant, from: NodeId, sight: Sight) {
        // Twice as long as the other part waits, so that the promise lasts long enough also by the other part's clock.
        let until = now.after(self.config.answer_wait.times(2));
        let Membership::Member(member) = &mut self.membership else { return };
        let mine = member.view.sight();
        let Some(lead) = &mut member.lead else { return };
        let stays = match lead.merge {
            Merge::None | Merge::Stays { .. } => lead.resigning.is_none() && sight.joins(&mine),
            Merge::Asks { .. } => false, // One of the two is mistaken, and both will look again.
        };
        if stays {
            lead.merge = Merge::Stays { until };
            self.send(from, Body::MergeReply(mine));
        }
    }

    pub(super) fn on_merge_reply(&mut self, now: Instant, from: NodeId, sight: Sight) {
        let Membership::Member(member) = &mut self.membership else { return };
        let joins = member.view.sight().joins(&sight);
        let Some(lead) = &mut member.lead else { return };
        match lead.merge {
            Merge::Asks { of, until } if of == from && now < until && joins => {
                lead.merge = Merge::None;
                self.retire(now, Reason::Transferred(from));
            }
            Merge::None | Merge::Asks { .. } | Merge::Stays { .. } => {} // Late, or not any more.
        }
    }

    /// Handles the coordinator's message that this part joins another one.
    pub(super) fn on_merge(&mut self, now: Instant, from: Identity, into: NodeId, sight: Sight) {
        let Membership::Member(member) = &self.membership else { return };
        let mine = member.view.sight();
        // A late message is about an earlier joining.
        let is_of_mine = member.view.oldest().identity == from
            && mine.cluster == sight.cluster
            && !mine.is_later_than(&sight);
        if is_of_mine && member.lead.is_none() {
            self.leave(now, Some(into), false);
        }
    }
}
