//! The schedule of faults, with their times and targets, drawn from the seed before anything starts.
//!
//! Choices that depend on the run (the current leader, the numbers of processes) are made when the step comes,
//! without drawing numbers. So two runs of one seed have the same steps; their effects differ as the processes do.

use std::time::Duration;

use primacy_core::rng::Rng;

use crate::chaos::arm::Arm;
use crate::chaos::fault::{KINDS, Kind};

/// A planned step, with one fault or two.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Step {
    /// The pause after the previous step.
    pub(crate) after: Duration,
    /// The faults, injected in this order without a pause.
    pub(crate) faults: Vec<Fault>,
    /// The time until revocable faults are undone.
    pub(crate) lasts: Duration,
    /// True if the run waits until a leader works again, before the next step.
    pub(crate) settle: bool,
}

/// One fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fault {
    /// The kind of fault.
    pub(crate) kind: Kind,
    /// The target node.
    pub(crate) target: Target,
    /// A random number for all other choices: the other node, the direction, the share.
    pub(crate) detail: u64,
}

/// The target of a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    /// The leader at that time.
    Leader,
    /// The node of this index, from 0.
    Node(usize),
}

/// The endless sequence of an arm's steps.
#[derive(Debug)]
pub(crate) struct Schedule {
    rng: Rng,
    arm: Arm,
    kinds: Vec<Kind>,
    /// The kinds that have not been drawn yet in this round.
    deck: Vec<Kind>,
}

/// The maximum pause between two steps.
const GAP_MAX_MS: u64 = 700;
/// The longest time until a fault is undone, in leases: some faults are shorter than a lease, and some longer.
const LASTS_MAX_LEASES: u32 = 3;
/// An absolute limit on that time, so that a run with long leases still has every kind.
const LASTS_MAX: Duration = Duration::from_secs(15);
/// The shortest time for which a disk is full: two leases.
const FULL_MIN: Duration = Duration::from_secs(2);

impl Schedule {
    /// Creates the schedule of `arm` for `seed`. It does not depend on the other arms.
    pub(crate) fn new(arm: Arm, seed: u64, not_run: &[Kind]) -> Self {
        let drawn = |kind: &Kind| *kind != Kind::FakedClock && arm.knows(*kind) && !not_run.contains(kind);
        let kinds = KINDS.iter().copied().filter(drawn).collect();
        Self { rng: Rng::new(seed_of(seed, arm.name)), arm, kinds, deck: Vec::new() }
    }

    /// Draws the next step. Every kind comes once before any is repeated, so that even a short run has them all.
    pub(crate) fn next_step(&mut self) -> Step {
        let after = Duration::from_millis(self.rng.up_to(GAP_MAX_MS));
        let lasts_max = (LASTS_MAX_LEASES * self.arm.lease).min(LASTS_MAX);
        let lasts = Duration::from_millis(self.rng.up_to(u64::try_from(lasts_max.as_millis()).unwrap_or(0)));
        let settle = self.rng.up_to(9) < 7;
        let kind = self.draw();
        let mut faults = vec![self.fault(kind)];
        if self.rng.up_to(9) < 3 {
            let other = self.rng.up_to(self.kinds.len() as u64 - 1);
            let other = self.kinds.get(usize::try_from(other).unwrap_or(0)).copied().unwrap_or(kind);
            let fault = self.fault(other);
            // Two long faults would come one after another.
            if !is_long(kind) && !is_long(other) && other != kind {
                faults.push(fault);
            }
        }
        // Long enough for the next leader to find the disk full.
        let least =
            if faults.iter().any(|fault| fault.kind == Kind::FullDisk) { FULL_MIN } else { Duration::ZERO };
        Step { after, faults, lasts: lasts.max(least), settle }
    }

    fn draw(&mut self) -> Kind {
        if self.deck.is_empty() {
            self.deck.clone_from(&self.kinds);
        }
        let index = self.rng.up_to(self.deck.len() as u64 - 1);
        self.deck.swap_remove(usize::try_from(index).unwrap_or(0))
    }

    fn fault(&mut self, kind: Kind) -> Fault {
        let target = match self.rng.up_to(9) {
            0..=6 => Target::Leader,
            _ => Target::Node(usize::try_from(self.rng.up_to(self.arm.nodes as u64 - 1)).unwrap_or(0)),
        };
        Fault { kind, target, detail: self.rng.next_u64() }
    }
}

/// True if the fault itself takes long.
const fn is_long(kind: Kind) -> bool {
    matches!(kind, Kind::RollingRestart | Kind::RestartAll)
}

/// Derives a seed for this name (FNV-1a over the name, then the seed).
pub(crate) fn seed_of(seed: u64, name: &str) -> u64 {
    let mix = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    seed.to_le_bytes().into_iter().fold(name.bytes().fold(0xcbf2_9ce4_8422_2325, mix), mix)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chaos::arm::{ARMS, Held};

    fn steps(arm: Arm, seed: u64, count: usize) -> Vec<Step> {
        let mut schedule = Schedule::new(arm, seed, &[]);
        (0..count).map(|_| schedule.next_step()).collect()
    }

    #[test]
    fn a_seed_has_one_schedule_and_another_seed_another() {
        for &arm in ARMS {
            assert_eq!(steps(arm, 7, 200), steps(arm, 7, 200));
            assert_ne!(steps(arm, 7, 200), steps(arm, 8, 200));
        }
        assert_ne!(steps(ARMS[2], 7, 50), steps(ARMS[3], 7, 50));
    }

    #[test]
    fn a_round_has_every_kind_that_the_arm_knows_and_no_other() {
        for &arm in ARMS {
            let known: Vec<Kind> =
                KINDS.iter().copied().filter(|kind| arm.knows(*kind) && *kind != Kind::FakedClock).collect();
            let mut met: Vec<Kind> =
                steps(arm, 3, known.len()).iter().map(|step| step.faults[0].kind).collect();
            met.sort();
            assert_eq!(met, known, "{}", arm.name);
            assert_eq!(known.iter().any(|kind| kind.is_of_network()), arm.has_network() && !arm.unkillable);
            assert_eq!(known.contains(&Kind::StoreCut), matches!(arm.held, Held::OnServer(_)));
        }
    }

    #[test]
    fn what_cannot_be_made_is_not_drawn() {
        let mut schedule = Schedule::new(ARMS[2], 1, &[Kind::FullDisk]);
        let steps: Vec<Step> = (0..300).map(|_| schedule.next_step()).collect();
        assert!(steps.iter().flat_map(|step| &step.faults).all(|fault| fault.kind != Kind::FullDisk));
        assert!(steps.iter().any(|step| step.faults.len() == 2) && steps.iter().any(|step| !step.settle));
    }
}
