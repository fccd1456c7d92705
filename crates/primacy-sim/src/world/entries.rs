//! The trace entries that the world adds.

use primacy_core::{Endpoint, Identity, NodeId};

use super::World;
use crate::algorithm::Algorithm;
use crate::clock::Moment;
use crate::network::Fate;
use crate::process_slot::ProcessSlot;
use crate::trace::{Delivery, Entry, Level, Party, TraceEvent, Turn, is_late};

impl<A: Algorithm> World<A> {
    pub(super) fn trace(&mut self, level: Level, what: impl FnOnce(&Self) -> TraceEvent) {
        if self.trace.wants(level) {
            let what = what(self);
            self.trace.add(Entry { at: self.now, level, what });
        }
    }

    pub(crate) fn trace_world(&mut self, level: Level, text: impl FnOnce() -> String) {
        self.trace(level, |_| TraceEvent::World { text: text() });
    }

    /// Records an event of a node that does not change its state.
    pub(crate) fn trace_node(&mut self, slot: ProcessSlot, level: Level, text: impl FnOnce() -> String) {
        self.trace_turn(slot, level, Turn::Nothing, text);
    }

    pub(crate) fn trace_turn(
        &mut self,
        slot: ProcessSlot,
        level: Level,
        turn: Turn,
        text: impl FnOnce() -> String,
    ) {
        if matches!(turn, Turn::Begins | Turn::Leads { .. } | Turn::Ends) {
            let name = self.node(slot).name;
            self.trace.notes_campaigning(name, false);
        }
        self.trace(level, |world| TraceEvent::Node { who: world.party(slot), turn, text: text() });
    }

    /// Records a deed on these parties, or on all, if none is named.
    pub(crate) fn trace_deed(&mut self, to: &[Party], text: impl FnOnce() -> String) {
        self.trace(Level::Scene, |_| TraceEvent::Deed { to: to.to_vec(), text: text() });
    }

    pub(super) fn trace_campaigning(&mut self, slot: ProcessSlot) {
        if !self.trace.wants(Level::Scene) {
            return;
        }
        let campaigns = self.process(slot).is_some_and(|process| A::campaigns(&process.machine));
        let (name, is_node) = (self.node(slot).name, slot.0 < self.nodes.len());
        if is_node && self.trace.notes_campaigning(name, campaigns) {
            let (turn, text) = if campaigns {
                (Turn::Campaigns, "· campaigns")
            } else {
                (Turn::StopsCampaigning, "· stops campaigning")
            };
            self.trace_turn(slot, Level::Scene, turn, || text.to_owned());
        }
    }

    pub(crate) fn trace_write(
        &mut self,
        level: Level,
        node: NodeId,
        mandate: primacy_core::Mandate,
        accepted: bool,
        text: impl FnOnce() -> String,
    ) {
        let token = match mandate {
            primacy_core::Mandate::Fenced(token) => Some(token),
            primacy_core::Mandate::Advisory => None,
        };
        self.trace(level, |_| TraceEvent::Write { node, token, accepted, text: text() });
    }

    pub(super) fn trace_breach(&mut self, invariant: &'static str, text: &str) {
        self.trace(Level::Event, |_| TraceEvent::Breach { invariant, text: text.to_owned() });
    }

    /// Returns the party of a slot: a node, or the guardian of one.
    pub(super) fn party(&self, slot: ProcessSlot) -> Party {
        let name = self.node(slot).name;
        if slot.0 < self.nodes.len() { Party::Node(name) } else { Party::Guardian(name) }
    }

    pub(super) fn level_of(message: &A::Message) -> Level {
        if A::is_routine(message) { Level::Heartbeat } else { Level::Message }
    }

    pub(super) fn trace_says(&mut self, from: Party, to: Party, message: &A::Message, fate: Fate) {
        let arrivals = fate.arrivals.map(|delay| delay.map(|delay| self.now.after(delay)));
        let delivery = Delivery { arrivals, remark: fate.remark };
        let kind = A::kind(message);
        self.trace(Self::level_of(message), |_| TraceEvent::Says {
            from,
            to,
            kind,
            text: A::text(message),
            delivery,
        });
    }

    pub(super) fn trace_send(&mut self, slot: ProcessSlot, to: Endpoint, message: &A::Message, fate: Fate) {
        self.trace_says(self.party(slot), to.into(), message, fate);
    }

    pub(super) fn trace_reply(&mut self, slot: ProcessSlot, message: &A::Message, fate: Fate) {
        self.trace_says(Party::Store, self.party(slot), message, fate);
    }

    /// Records a guardian's death notice; its losses before that are not recorded.
    pub(crate) fn trace_death(
        &mut self,
        guardian_of: ProcessSlot,
        to: ProcessSlot,
        dead: Identity,
        fate: Fate,
    ) {
        let arrivals = fate.arrivals.map(|delay| delay.map(|delay| self.now.after(delay)));
        let delivery = Delivery { arrivals, remark: fate.remark };
        self.trace(Level::Scene, |world| {
            let (from, to) = (Party::Guardian(world.node(guardian_of).name), world.party(to));
            let text = format!("Died {}, life {}", dead.node, dead.incarnation.count);
            TraceEvent::Says { from, to, kind: "Died", text, delivery }
        });
    }

    pub(super) fn trace_hears(&mut self, to: Party, from: Party, message: &A::Message, sent_at: Moment) {
        if is_late(sent_at, self.now) {
            let kind = A::kind(message);
            self.trace(Self::level_of(message), |_| TraceEvent::Hears {
                to,
                from,
                kind,
                text: A::text(message),
                sent_at,
            });
        }
    }

    pub(super) fn trace_late(
        &mut self,
        slot: ProcessSlot,
        from: Endpoint,
        message: &A::Message,
        sent_at: Moment,
    ) {
        self.trace_hears(self.party(slot), from.into(), message, sent_at);
    }

    pub(super) fn trace_late_at_store(&mut self, slot: ProcessSlot, message: &A::Message, sent_at: Moment) {
        self.trace_hears(Party::Store, self.party(slot), message, sent_at);
    }
}
