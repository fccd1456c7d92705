//! A leader that is deposed and elected again at once, by a voter with a shorter promise than before. The work of its
//! first leadership outlives the lease of the second, and then only the leader's promise to itself keeps another node
//! from leading.
//!
//! Chance would need six events in order. So some worlds set the promises for it, and bring the events about step by
//! step, as far as other faults allow. The commands are drawn from a generator of their own.

use primacy_core::Duration;
use primacy_core::rng::Rng;

use super::{Swarm, in_micros, one_in, text};
use crate::algorithm::Algorithm;
use crate::process_slot::ProcessSlot;

/// The constant that separates this generator from that of the rest of the world.
const APART: u64 = 0x7265_656c_6563_7400;

/// The number of steps of waiting for a condition.
const STEPS: u64 = 80;

/// The generator, and the long promise.
#[derive(Debug)]
pub(super) struct Reelection {
    rng: Rng,
    longest: Duration,
}

/// The nodes' roles: `LEADER` and `LONG` have the long promise, `SHORT` the short one.
const LEADER: ProcessSlot = ProcessSlot(0);
const LONG: ProcessSlot = ProcessSlot(1);
const SHORT: ProcessSlot = ProcessSlot(2);

impl<A: Algorithm> Swarm<A> {
    /// Sets different promises before the start, in one of four worlds with three nodes.
    pub(crate) fn begin_with_promises_that_differ(&mut self, seed: u64, nodes: usize, least: Duration) {
        let mut rng = Rng::new(seed ^ APART);
        if nodes != 3 || !one_in(&mut rng, 4) {
            return;
        }
        let short = in_micros(least.plus(rng.duration_up_to(least)));
        let longest = in_micros(short.times(3).plus(rng.duration_up_to(short.times(2))));
        for (slot, promise) in [(LEADER, longest), (LONG, longest), (SHORT, short)] {
            let name = self.name(slot);
            self.tell(format!("set {name} promise_duration={} witness=false", text(promise)));
        }
        self.reelection = Some(Reelection { rng, longest });
    }

    /// Attempts the re-election now and then, in these worlds.
    pub(super) fn elect_again(&mut self) {
        let Some(mut reelection) = self.reelection.take() else { return };
        if one_in(&mut reelection.rng, 3) && [LEADER, LONG, SHORT].iter().all(|&slot| self.runs(slot)) {
            self.bring_about(&mut reelection);
        }
        self.reelection = Some(reelection);
    }

    fn bring_about(&mut self, reelection: &mut Reelection) {
        let longest = reelection.longest;
        let [leader, long, short] = [LEADER, LONG, SHORT].map(|slot| self.name(slot));
        // Reset: no node leads, and no promise is left.
        self.tell("heal".to_owned());
        for slot in [LEADER, LONG, SHORT] {
            self.have(slot, "withdraw");
        }
        self.tell(format!("advance {}", text(longest.times(2))));
        // `SHORT` takes a term of its own, of which no other node hears; the answer to its pre-vote for the next term
        // is delayed.
        self.tell(format!("cut {leader} {short}"));
        self.tell(format!("drop 1 {short} -> {long} Vote"));
        self.have(SHORT, "campaign");
        let writes = self.world().node(SHORT).disk.writes;
        if !self.comes(longest, |swarm| swarm.world().node(SHORT).disk.writes > writes) {
            return self.undo();
        }
        let late = in_micros(reelection.rng.duration_up_to(longest));
        self.tell(format!("delay 1 {long} -> {short} {} PreVoteReply", text(late)));
        let aimed = self.world().counters.of("aimed: late");
        if !self.comes(longest, |swarm| swarm.world().counters.of("aimed: late") > aimed) {
            return self.undo();
        }
        // Meanwhile `LEADER` is elected, by the long promise; then that term deposes it while its work goes on.
        self.have(LEADER, "campaign");
        if !self.comes(longest, |swarm| swarm.world().leaders().any(|slot| slot == LEADER)) {
            return self.undo();
        }
        self.tell(format!("busy {leader}"));
        self.tell(format!("cut {leader} {long}"));
        self.tell(format!("join {leader} {short}"));
        let before = self.world().leaderships.count;
        let is_again = |swarm: &Self| {
            swarm.world().leaderships.count > before && swarm.world().leaders().any(|slot| slot == LEADER)
        };
        if self.comes(longest, is_again) {
            // The second lease ends, so that `SHORT`, which granted it, could lead.
            self.tell(format!("cut {leader} {short}"));
            self.comes(longest, |swarm| swarm.world().leaders().next().is_none());
            self.came_off("ploy: elected again");
            self.have(LEADER, "withdraw");
            self.tell(format!("join {leader} {short}"));
            self.tell(format!("advance {}", text(longest)));
        }
        self.undo();
    }

    fn undo(&mut self) {
        self.tell("heal".to_owned());
        let leader = self.name(LEADER);
        self.tell(format!("idle {leader}"));
        for slot in [LEADER, LONG, SHORT] {
            self.have(slot, "campaign");
        }
    }

    /// Makes a node campaign or withdraw, if it runs: it may have crashed meanwhile.
    fn have(&mut self, slot: ProcessSlot, what: &str) {
        if self.runs(slot) {
            let name = self.name(slot);
            self.tell(format!("{what} {name}"));
        }
    }

    /// Waits for a condition, step by step. Returns true if it came to hold.
    fn comes(&mut self, longest: Duration, is_come: impl Fn(&Self) -> bool) -> bool {
        let step = longest.times(2).divided_by(STEPS).max(Duration::from_millis(1));
        for _ in 0..STEPS {
            if is_come(self) || !self.is_good() {
                return self.is_good();
            }
            self.tell(format!("advance {}", text(in_micros(step))));
        }
        false
    }
}
