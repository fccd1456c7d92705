//! The counters of a world's events, each incremented where the event takes effect.

use primacy_core::{Evidence, Reason};

use super::World;
use crate::algorithm::Algorithm;
use crate::network::{Fate, Host, Remark, STORE};
use crate::partition::Shape;

/// The answers by which a node that hears a leader refuses a candidate, in each election among peers.
const KEEPS_THE_LEADER: [&str; 2] = ["pre-vote refused: hears a leader", "elect answered: hears a leader"];

impl<A: Algorithm> World<A> {
    /// Counts the deviations of a packet's delivery.
    pub(crate) fn met(&mut self, message: &A::Message, fate: Fate, (from, to): (Host, Host)) {
        if fate.remark != Some(Remark::Unconnected) {
            self.sent.all += 1;
            self.sent.beyond_routine += u64::from(!A::is_routine(message));
        }
        let word = A::met(message);
        if let Some(word) = word {
            self.counters.count(word);
        }
        let shape = self.network.shape().filter(|_| from != STORE && to != STORE);
        if shape == Some(Shape::Chained) && word.is_some_and(|word| KEEPS_THE_LEADER.contains(&word)) {
            self.counters.count("partition: a leader is kept in a chain");
        }
        let Some(remark) = fate.remark else { return };
        self.counters.count(remark.name());
        if let Some(name) = remark.aimed_name().filter(|_| fate.aimed) {
            self.counters.count(name);
        }
        if remark == Remark::Cut {
            if let Some(shape) = shape {
                self.counters.count(shape.name());
            }
            if !self.network.is_cut(to, from) {
                self.counters.count("packet: link cut one way");
            }
        }
        for delay in fate.arrivals.into_iter().flatten() {
            self.lag = self.lag.max(delay);
        }
    }

    /// Counts an event in the store's service of a request.
    pub(crate) fn met_by_store(&mut self, met: Option<&'static str>) {
        if let Some(met) = met {
            self.counters.count(met);
        }
    }

    /// Counts evidence when it arrives at a node.
    pub(crate) fn met_evidence(&mut self, evidence: &Evidence) {
        if let Evidence::Died(dead) = *evidence {
            let lives = |slot| self.process(slot).is_some_and(|it| it.me.node == dead.node && it.me != dead);
            if self.slots().any(lives) {
                self.counters.count("death told: of an earlier life");
            }
        }
    }

    /// Counts an election, and the partition under which it succeeded.
    pub(crate) fn met_elected(&mut self) {
        self.counters.count("elected");
        // Without a dropped packet, no node had anything to send across the partition.
        let shape = self.network.shape().filter(|shape| self.counters.of(shape.name()) > 0);
        match shape {
            Some(Shape::QuorumLoss) => self.counters.count("partition: elected in a quorum loss"),
            Some(Shape::ConstrainedElection) => {
                self.counters.count("partition: elected in a constrained election");
            }
            Some(Shape::Chained) | None => {}
        }
    }

    /// Counts the end of a leadership.
    pub(crate) fn met_deposed(&mut self, reason: Reason) {
        self.counters.count(match reason {
            Reason::Resigned => "deposed: resigned",
            Reason::Transferred(_) => "deposed: transferred",
            Reason::Unhealthy => "deposed: unhealthy",
            Reason::Expired => "deposed: expired",
            Reason::Undecided => "deposed: undecided",
            Reason::HigherTerm(_) => "deposed: higher term",
            Reason::Overwritten => "deposed: overwritten",
            Reason::Removed => "deposed: removed",
            Reason::SessionEnded => "deposed: session ended",
            Reason::DiskLost => "deposed: disk lost",
            Reason::Violation => "deposed: violation",
            Reason::Halted => "deposed: halted",
        });
    }
}
