//! The search: worlds run on several threads, and their outcomes are delivered in the order of the seeds, so that the
//! totals and the first failure do not depend on the number of threads.

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;

use primacy_sim::elections::Election;
use primacy_sim::replay::Drawn;
use primacy_sim::swarm::{Beyond, Verdict};

use super::worlds;

/// The maximum number of seeds by which the threads may be ahead of the oldest missing outcome. Bounds the memory of
/// an unlimited search.
const AHEAD_MAX: u64 = 4_096;

/// The pause of a thread that is too far ahead.
const WAIT: Duration = Duration::from_millis(1);

/// The end condition of a search.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Bound {
    /// After this many seeds of each election.
    Seeds(u64),
    /// After this many simulated hours in all worlds together.
    Hours(f64),
    /// Unlimited.
    None,
}

/// The outcome of a world's run: a verdict, or the message of its panic.
pub(super) type Outcome = Result<Verdict, String>;

/// A search.
#[derive(Debug)]
pub(super) struct Search {
    pub(super) elections: Vec<Election>,
    pub(super) beyond: Option<Beyond>,
    /// The first seed.
    pub(super) from: u64,
    pub(super) bound: Bound,
    /// True if it ends at the first failure.
    pub(super) until_failure: bool,
    pub(super) jobs: NonZeroUsize,
}

/// The state that the threads share.
#[derive(Debug, Default)]
struct Shared {
    /// The number of the next world.
    next: AtomicU64,
    /// The number of worlds whose outcome was delivered.
    done: AtomicU64,
    ended: AtomicBool,
}

impl Search {
    /// Runs worlds until the bound is reached or a signal has arrived, and delivers each outcome, in order.
    pub(super) fn run(&self, interrupted: &AtomicUsize, take: impl FnMut(Drawn, &Outcome)) {
        let shared = Shared::default();
        let (to_us, from_them) = sync_channel(self.jobs.get() * 2);
        std::thread::scope(|scope| {
            for _ in 0..self.jobs.get() {
                let (shared, to_us) = (&shared, to_us.clone());
                scope.spawn(move || self.work(shared, interrupted, &to_us));
            }
            drop(to_us);
            self.collect(&shared, &from_them, take);
            shared.ended.store(true, Ordering::SeqCst);
            // A thread that waits to deliver must not wait for ever.
            from_them.into_iter().for_each(drop);
        });
    }

    fn work(&self, shared: &Shared, interrupted: &AtomicUsize, to_us: &SyncSender<(u64, Outcome)>) {
        loop {
            let number = shared.next.fetch_add(1, Ordering::SeqCst);
            let Some(world) = self.world(number) else { return };
            while number > shared.done.load(Ordering::SeqCst) + AHEAD_MAX
                && !shared.ended.load(Ordering::SeqCst)
            {
                std::thread::sleep(WAIT);
            }
            if shared.ended.load(Ordering::SeqCst) || interrupted.load(Ordering::SeqCst) != 0 {
                return;
            }
            if to_us.send((number, worlds::run(world))).is_err() {
                return;
            }
        }
    }

    /// Returns the world of a number: all elections for one seed, then all for the next seed.
    fn world(&self, number: u64) -> Option<Drawn> {
        let count = self.elections.len() as u64;
        let (round, which) = (number / count, usize::try_from(number % count).ok()?);
        match self.bound {
            Bound::Seeds(seeds) if round >= seeds => return None,
            Bound::Seeds(_) | Bound::Hours(_) | Bound::None => {}
        }
        // There is no seed after the last one.
        let seed = self.from.checked_add(round)?;
        Some(Drawn { election: *self.elections.get(which)?, seed, beyond: self.beyond })
    }

    fn collect(
        &self,
        shared: &Shared,
        from_them: &Receiver<(u64, Outcome)>,
        mut take: impl FnMut(Drawn, &Outcome),
    ) {
        let mut early: BTreeMap<u64, Outcome> = BTreeMap::new();
        let (mut number, mut simulated) = (0, 0_u128);
        for (done, outcome) in from_them {
            early.insert(done, outcome);
            while let Some(outcome) = early.remove(&number) {
                let Some(world) = self.world(number) else { return };
                take(world, &outcome);
                number += 1;
                shared.done.store(number, Ordering::SeqCst);
                simulated += outcome.as_ref().map_or(0, |verdict| u128::from(verdict.simulated.as_nanos()));
                let bad = !outcome.is_ok_and(|verdict| verdict.is_good());
                if self.is_over(simulated) || (bad && self.until_failure) {
                    return;
                }
            }
        }
        // A signal has prevented an earlier world from running. Failures of later worlds are reported all the same.
        for (number, outcome) in early {
            let bad = !outcome.as_ref().is_ok_and(Verdict::is_good);
            if let Some(world) = self.world(number).filter(|_| bad) {
                take(world, &outcome);
            }
        }
    }

    fn is_over(&self, simulated_ns: u128) -> bool {
        match self.bound {
            Bound::Hours(hours) => simulated_ns as f64 >= hours * 3.6e12,
            Bound::Seeds(_) | Bound::None => false, // The threads know.
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn search(bound: Bound, jobs: usize) -> Search {
        let (elections, jobs) = (Election::ALL.to_vec(), NonZeroUsize::new(jobs).unwrap());
        Search { elections, beyond: None, from: 5, bound, until_failure: false, jobs }
    }

    fn outcomes(search: &Search) -> Vec<(Drawn, Outcome)> {
        let mut all = Vec::new();
        search.run(&AtomicUsize::new(0), |world, outcome| all.push((world, outcome.clone())));
        all
    }

    #[test]
    fn the_outcomes_are_the_same_on_any_number_of_threads() {
        for bound in [Bound::Seeds(2), Bound::Hours(0.5)] {
            let alone = outcomes(&search(bound, 1));
            assert!(alone.len() > Election::ALL.len(), "{}", alone.len());
            let world = |election, seed| Drawn { election, seed, beyond: None };
            assert_eq!(alone[0].0, world(Election::Quorum, 5));
            assert_eq!(alone[Election::ALL.len()].0, world(Election::Quorum, 6));
            assert_eq!(alone, outcomes(&search(bound, 3)));
        }
        assert_eq!(outcomes(&search(Bound::Seeds(4), 2)).len(), 4 * Election::ALL.len());
    }

    #[test]
    fn a_signal_ends_it() {
        let mut count = 0;
        search(Bound::None, 2).run(&AtomicUsize::new(2), |_, _| count += 1);
        assert_eq!(count, 0);
    }

    #[test]
    fn after_the_last_seed_there_is_none() {
        let search = Search { from: u64::MAX, ..search(Bound::None, 1) };
        let count = Election::ALL.len() as u64;
        assert!(search.world(count - 1).is_some() && search.world(count).is_none());
    }
}
