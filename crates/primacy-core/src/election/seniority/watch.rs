//! Detection of lost members: by a member's own detectors, and by the suspicions that the other members report.
//!
//! Each member sends heartbeats to some others, its watchers: to all, or to the next few on the ring of ages. A member
//! is lost when all of its watchers report that they suspect it, except for watchers that are silent themselves. So a
//! single cut link does not make a member lost, and within each part of a split cluster all members find the same
//! members lost.
//!
//! If a watcher is silent, the next node on the ring takes its place. A suspected node is skipped, but still watched,
//! so that it can be heard again.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use crate::detector::{Detection, Detector};
use crate::id::NodeId;
use crate::membership::View;
use crate::time::{Duration, Instant};

/// The sent and received suspicions of the members of one view.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Watch {
    me: NodeId,
    interval: Duration,
    detection: Detection,
    neighbours: usize,
    /// The members that are not known to have left, by age.
    ring: Vec<NodeId>,
    pub(super) detectors: BTreeMap<NodeId, Detector>,
    /// The nodes that this member suspects itself.
    suspects: BTreeSet<NodeId>,
    /// For each other member, the nodes that it suspects by its last heartbeat, and the time until which that counts
    /// unless it is repeated.
    pub(super) told: BTreeMap<NodeId, (BTreeSet<NodeId>, Instant)>,
    lost: BTreeSet<NodeId>,
    /// The time of the last change of the lost members.
    pub(super) since: Instant,
    /// The time before which no detector can suspect.
    pub(super) check_at: Instant,
    /// True if the last heartbeat named suspects.
    suspected: bool,
}

impl Watch {
    pub(super) fn new(
        me: NodeId,
        interval: Duration,
        detection: Detection,
        neighbours: Option<u32>,
        now: Instant,
    ) -> Self {
        let neighbours = neighbours.map_or(usize::MAX, |count| usize::try_from(count).unwrap_or(usize::MAX));
        Self {
            me,
            interval,
            detection,
            neighbours,
            ring: Vec::new(),
            detectors: BTreeMap::new(),
            suspects: BTreeSet::new(),
            told: BTreeMap::new(),
            lost: BTreeSet::new(),
            since: now,
            check_at: Instant::NEVER,
            suspected: false,
        }
    }

    /// The nodes that are lost.
    pub(super) const fn lost(&self) -> &BTreeSet<NodeId> {
        &self.lost
    }

    /// The nodes that this member suspects itself.
    pub(super) const fn suspects(&self) -> &BTreeSet<NodeId> {
        &self.suspects
    }

    /// Watches the members of this view. New members send heartbeats only once they have received it, so their
    /// detectors start `longer` later.
    pub(super) fn follow(&mut self, view: &View, gone: &BTreeSet<NodeId>, longer: Duration, now: Instant) {
        let before: BTreeSet<NodeId> = self.ring.iter().copied().collect();
        let names = view.members().iter().map(|member| member.identity.node);
        self.ring = names.filter(|node| !gone.contains(node)).collect();
        let is_there: BTreeSet<NodeId> = self.ring.iter().copied().collect();
        self.suspects.retain(|node| is_there.contains(node));
        self.told.retain(|node, _| is_there.contains(node));
        for (suspects, _) in self.told.values_mut() {
            suspects.retain(|node| is_there.contains(node));
        }
        for &node in is_there.iter().filter(|&&node| node != self.me && !before.contains(&node)) {
            self.detectors.insert(node, self.detection.begin(self.interval, now.after(longer)));
        }
        self.assess(now);
    }

    /// Handles a heartbeat of a member, with its suspects.
    pub(super) fn heard(&mut self, from: NodeId, mut suspects: BTreeSet<NodeId>, now: Instant) {
        if let Some(detector) = self.detectors.get_mut(&from) {
            detector.heard(now);
            self.check_at = self.check_at.min(detector.deadline());
        }
        let withdraws = self.suspects.remove(&from);
        suspects.retain(|node| *node != from && self.ring.contains(node));
        let until = now.after(self.detection.patience(self.interval));
        // Usually the suspects are unchanged, and in a large cluster it costs too much to assess them with every
        // heartbeat.
        let says_the_same = match self.told.get_mut(&from) {
            Some((said, holds_until)) if *said == suspects => {
                *holds_until = until;
                true
            }
            Some(_) => false,
            None => suspects.is_empty(),
        };
        if withdraws || !says_the_same {
            self.told.insert(from, (suspects, until));
            self.told.retain(|_, (suspects, _)| !suspects.is_empty());
            self.assess(now);
        }
    }

    /// Checks the detectors.
    pub(super) fn check(&mut self, now: Instant) {
        if now < self.check_at {
            return;
        }
        let silent = self.detectors.iter().filter(|(_, detector)| detector.suspects(now));
        let silent: BTreeSet<NodeId> = silent.map(|(&node, _)| node).collect();
        self.suspects.extend(silent);
        // The suspicions of a watched member do not time out: its next heartbeat replaces them, or it is silent itself.
        let detectors = &self.detectors;
        self.told.retain(|node, (_, until)| detectors.contains_key(node) || now < *until);
        self.assess(now);
    }

    /// The members to which this one sends a heartbeat: all while it suspects any, and once more after that.
    pub(super) fn recipients(&mut self, suspects: bool) -> Vec<NodeId> {
        if core::mem::replace(&mut self.suspected, suspects) || suspects {
            return self.others(1).collect();
        }
        let said: BTreeSet<NodeId> = self.told.values().flat_map(|(suspects, _)| suspects).copied().collect();
        let mut left = self.neighbours;
        let is_far = |node: &NodeId| {
            let is_in_reach = left > 0;
            left -= usize::from(is_in_reach && !said.contains(node));
            is_in_reach
        };
        self.others(1).take_while(is_far).collect()
    }

    /// The other members in ring order, onward from this member or back from it.
    fn others(&self, direction: isize) -> impl Iterator<Item = NodeId> {
        self.around(self.me, direction)
    }

    fn around(&self, node: NodeId, direction: isize) -> impl Iterator<Item = NodeId> {
        let count = self.ring.len();
        let place = self.ring.iter().position(|&other| other == node).unwrap_or(0);
        let step = if direction > 0 { 1 } else { count.saturating_sub(1) };
        (1..count).map(move |steps| self.ring[(place + steps * step) % count])
    }

    /// The number of names that it keeps.
    #[cfg(test)]
    pub(super) fn size(&self) -> usize {
        let told: usize = self.told.values().map(|(suspects, _)| 1 + suspects.len()).sum();
        told + self.ring.len() + self.detectors.len() + self.suspects.len() + self.lost.len()
    }

    /// True if this member suspects the node, or the node is lost: its reports are not awaited.
    fn is_silent(&self, node: NodeId, lost: &BTreeSet<NodeId>) -> bool {
        self.suspects.contains(&node) || lost.contains(&node)
    }

    fn assess(&mut self, now: Instant) {
        let lost = self.agreed();
        if lost != self.lost {
            self.lost = lost;
            self.since = now;
        }
        self.watch_neighbours(now);
        let soonest = self.detectors.iter().filter(|(node, _)| !self.suspects.contains(node));
        let soonest = soonest.map(|(_, detector)| detector.deadline()).min().unwrap_or(Instant::NEVER);
        let unwatched = self.told.iter().filter(|(node, _)| !self.detectors.contains_key(node));
        let stale = unwatched.map(|(_, &(_, until))| until).min().unwrap_or(Instant::NEVER);
        self.check_at = soonest.min(stale);
    }

    /// The nodes that are suspected by all their watchers.
    fn agreed(&self) -> BTreeSet<NodeId> {
        let said = self.told.values().flat_map(|(suspects, _)| suspects);
        let accused: BTreeSet<NodeId> = said.chain(&self.suspects).copied().collect();
        let mut lost = BTreeSet::new();
        if accused.is_empty() {
            return lost;
        }
        loop {
            let is_lost = |node: NodeId| {
                let watchers = self.around(node, 1).filter(|&other| !self.is_silent(other, &lost));
                watchers.take(self.neighbours).all(|watcher| self.says(watcher, node))
            };
            let others = accused.iter().copied().filter(|&node| node != self.me && !lost.contains(&node));
            let more: Vec<NodeId> = others.filter(|&node| is_lost(node)).collect();
            if more.is_empty() {
                return lost;
            }
            lost.extend(more);
        }
    }

    fn says(&self, watcher: NodeId, node: NodeId) -> bool {
        if watcher == self.me {
            return self.suspects.contains(&node);
        }
        self.told.get(&watcher).is_some_and(|(suspects, _)| suspects.contains(&node))
    }

    /// Watches the nodes before this member on the ring: `neighbours` nodes that are not silent, and the silent ones
    /// between.
    fn watch_neighbours(&mut self, now: Instant) {
        let mut left = self.neighbours;
        let mut watched = BTreeSet::new();
        for node in self.others(-1) {
            if left == 0 {
                break;
            }
            left -= usize::from(!self.is_silent(node, &self.lost));
            watched.insert(node);
        }
        self.detectors.retain(|node, _| watched.contains(node));
        self.suspects.retain(|node| watched.contains(node));
        for node in watched {
            self.detectors.entry(node).or_insert_with(|| self.detection.begin(self.interval, now));
        }
    }
}
