//! Counters of a run: how often each fault struck, and how often each branch that matters was taken.
//!
//! A search that never met a fault says nothing about it. So each election lists the names that a search of
//! many seeds must have met ([`Algorithm::must_meet`]), and a search fails if one of these counters has
//! stayed at zero. A name that is misspelt anywhere stays at zero too.
//!
//! A fault is counted where it takes effect and not where it is drawn: a cut link, with each packet that it
//! drops; a full disk, when something is written to it.

use core::fmt;
use std::collections::BTreeMap;

use primacy_core::{Evidence, Reason};

use crate::algorithm::Algorithm;
use crate::network::{Fate, Host, Remark, STORE};
use crate::partition::Shape;
use crate::world::World;

/// The answers of a node that hears a leader to one that does not, in each election among peers.
const KEEPS_THE_LEADER: [&str; 2] = ["pre-vote refused: hears a leader", "elect answered: hears a leader"];

/// The number of times that each name was met.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    met: BTreeMap<&'static str, u64>,
}

impl Counters {
    /// Counts one more.
    pub fn count(&mut self, what: &'static str) {
        *self.met.entry(what).or_default() += 1;
    }

    /// Returns the count of this name.
    #[must_use]
    pub fn of(&self, what: &str) -> u64 {
        self.met.get(what).copied().unwrap_or_default()
    }

    /// Adds the counts of another run.
    pub fn add(&mut self, other: &Self) {
        for (&what, count) in &other.met {
            *self.met.entry(what).or_default() += count;
        }
    }

    /// Returns all counts, in the order of the names.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> {
        self.met.iter().map(|(&what, &count)| (what, count))
    }

    /// Returns the names of this list that were never met.
    #[must_use]
    pub fn missing(&self, must: &[&'static str]) -> Vec<&'static str> {
        must.iter().copied().filter(|what| self.of(what) == 0).collect()
    }
}

/// The number of messages that have left their hosts: those of machines and of undertakers, and the store's
/// answers. A message that is lost on its way has left; one without a connection has not. A guardian's notice
/// of a death does not count, nor does a store's notice of a change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sent {
    /// All of them.
    pub all: u64,
    /// The number of messages that are not routine; see [`Algorithm::is_routine`].
    pub beyond_routine: u64,
}

impl fmt::Display for Counters {
    /// One line for each name.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (what, count) in self.iter() {
            writeln!(f, "{count:>12}  {what}")?;
        }
        Ok(())
    }
}

impl<A: Algorithm> World<A> {
    /// Counts the remarkable properties of a packet.
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

    /// Counts an event that the store met while it served a request.
    pub(crate) fn met_by_store(&mut self, met: Option<&'static str>) {
        if let Some(met) = met {
            self.counters.count(met);
        }
    }

    /// Counts evidence about a node when it arrives.
    pub(crate) fn met_evidence(&mut self, evidence: &Evidence) {
        if let Evidence::Died(dead) = *evidence {
            let lives = |seat| self.process(seat).is_some_and(|it| it.me.node == dead.node && it.me != dead);
            if self.seats().any(lives) {
                self.counters.count("death told: of an earlier life");
            }
        }
    }

    /// Counts an election, and the partitions under which it is not easy.
    pub(crate) fn met_elected(&mut self) {
        self.counters.count("elected");
        // Where no packet was dropped, the nodes had nothing to send across the partition.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_never_met_is_missing() {
        let mut counters = Counters::default();
        counters.count("a crash");
        let mut other = counters.clone();
        other.count("a pause");
        counters.add(&other);
        assert_eq!((counters.of("a crash"), counters.of("a pause")), (2, 1));
        assert_eq!(counters.missing(&["a crash", "a puase", "a pause"]), ["a puase"]);
    }
}
