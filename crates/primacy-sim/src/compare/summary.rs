//! A summary of the runs of several seeds.

use primacy_core::Duration;

use super::{Contender, Outcome, Scenario};

/// The median and the maximum of several numbers. Of an even count, the median is the smaller of the two middle
/// numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Span<T> {
    /// The median.
    pub median: T,
    /// The largest.
    pub most: T,
}

/// One contender in one scenario.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ComparisonRow {
    /// The election.
    pub contender: Contender,
    /// The scenario.
    pub scenario: Scenario,
    /// The number of measured runs.
    pub runs: usize,
    /// The number of runs without a single leader before the scenario could begin. The other columns leave them out.
    pub leaderless_runs: usize,
    /// See [`Outcome::leaderless`].
    pub leaderless: Span<Duration>,
    /// The most leaders at once in any run; the maximum rather than the median, because two are a violation.
    pub leaders_max: u32,
    /// See [`Outcome::overlap`].
    pub overlap: Span<Duration>,
    /// See [`Outcome::changes`].
    pub changes: Span<u64>,
    /// See [`Outcome::needless`].
    pub needless: Span<u64>,
    /// See [`Outcome::messages`].
    pub messages: Span<u64>,
    /// See [`Outcome::beyond_routine`].
    pub beyond_routine: Span<u64>,
    /// See [`Outcome::measured`].
    pub measured: Span<Duration>,
}

impl ComparisonRow {
    /// Sums up the results of [`run`](super::run).
    #[must_use]
    pub fn of(contender: Contender, scenario: Scenario, outcomes: &[Option<Outcome>]) -> Self {
        let measured: Vec<&Outcome> = outcomes.iter().flatten().collect();
        Self {
            contender,
            scenario,
            runs: measured.len(),
            leaderless_runs: outcomes.len() - measured.len(),
            leaderless: span(&measured, |outcome| outcome.leaderless),
            leaders_max: measured.iter().map(|outcome| outcome.leaders_max).max().unwrap_or(0),
            overlap: span(&measured, |outcome| outcome.overlap),
            changes: span(&measured, |outcome| outcome.changes),
            needless: span(&measured, |outcome| outcome.needless),
            messages: span(&measured, |outcome| outcome.messages),
            beyond_routine: span(&measured, |outcome| outcome.beyond_routine),
            measured: span(&measured, |outcome| outcome.measured),
        }
    }
}

fn span<T: Copy + Ord + Default>(outcomes: &[&Outcome], of: impl Fn(&Outcome) -> T) -> Span<T> {
    let mut all: Vec<T> = outcomes.iter().map(|outcome| of(outcome)).collect();
    all.sort_unstable();
    let Some(&most) = all.last() else { return Span::default() };
    Span { median: all[(all.len() - 1) / 2], most }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_middle_of_several_is_one_of_them() {
        let outcome = |changes| Outcome {
            leaderless: Duration::ZERO,
            leaders_max: 1,
            overlap: Duration::ZERO,
            changes,
            needless: 0,
            messages: 0,
            beyond_routine: 0,
            measured: Duration::ZERO,
            breaches: Vec::new(),
        };
        let row = |changes: &[u64]| {
            let outcomes: Vec<_> =
                changes.iter().map(|&changes| Some(outcome(changes))).chain([None]).collect();
            let row = ComparisonRow::of(Contender::Quorum, Scenario::Crash, &outcomes);
            assert_eq!((row.runs, row.leaderless_runs), (changes.len(), 1));
            (row.changes.median, row.changes.most)
        };
        assert_eq!(row(&[9, 1, 5]), (5, 9));
        assert_eq!(row(&[9, 1, 5, 6]), (5, 9));
        assert_eq!(row(&[]), (0, 0));
    }
}
