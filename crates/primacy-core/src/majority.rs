//! The arithmetic of majorities.
//!
//! Any two majorities of the same voters share a voter. Every guarantee of the quorum election depends on that
//! sentence, so the arithmetic has a file of its own, and is tested against a slow reference.

/// The state of a vote.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Outcome {
    /// A majority said yes.
    Won,
    /// So many said no that no majority can say yes.
    Lost,
    /// The answers that are still missing decide it.
    Pending,
}

/// The number of `voters` that are a majority.
#[must_use]
pub const fn needed(voters: usize) -> usize {
    voters / 2 + 1
}

/// Returns the state of a vote among `voters` after `yes` and `no` answers, each voter counted once.
#[must_use]
pub const fn outcome(voters: usize, yes: usize, no: usize) -> Outcome {
    if yes >= needed(voters) {
        Outcome::Won
    } else if voters.saturating_sub(no) < needed(voters) {
        Outcome::Lost
    } else {
        Outcome::Pending
    }
}

/// The highest value that a majority of `voters` has reached: each voter of a majority reported it or a higher one.
///
/// `values` holds one value for each voter that reported one; this reorders them. `None` if fewer than a majority
/// reported.
pub fn reached<T: Ord + Copy>(voters: usize, values: &mut [T]) -> Option<T> {
    values.sort_unstable_by(|a, b| b.cmp(a));
    values.get(needed(voters) - 1).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The slow reference: tries every combination of answers of the silent voters.
    fn outcome_by_trying(voters: usize, yes: usize, no: usize) -> Outcome {
        let silent = voters - yes - no;
        let wins = |more: usize| 2 * (yes + more) > voters;
        match (wins(0), wins(silent)) {
            (true, _) => Outcome::Won,
            (false, true) => Outcome::Pending,
            (false, false) => Outcome::Lost,
        }
    }

    #[test]
    fn outcomes_agree_with_the_twin_for_every_small_vote() {
        for voters in 1..=9 {
            for yes in 0..=voters {
                for no in 0..=voters - yes {
                    assert_eq!(
                        outcome(voters, yes, no),
                        outcome_by_trying(voters, yes, no),
                        "{voters} {yes} {no}"
                    );
                }
            }
        }
    }

    #[test]
    fn two_majorities_share_a_voter() {
        for voters in 1..=9_u32 {
            let majorities: Vec<u32> = (0..1_u32 << voters)
                .filter(|set| set.count_ones() as usize >= needed(voters as usize))
                .collect();
            assert!(majorities.iter().all(|a| majorities.iter().all(|b| a & b != 0)));
        }
    }

    #[test]
    fn reached_agrees_with_the_twin_for_every_small_set_of_values() {
        for voters in 1..=5_usize {
            // Each voter gave nothing (0) or one of three values.
            for code in 0..4_usize.pow(u32::try_from(voters).unwrap()) {
                let given: Vec<usize> =
                    (0..voters).map(|voter| code / 4_usize.pow(u32::try_from(voter).unwrap()) % 4).collect();
                let mut values: Vec<usize> = given.iter().copied().filter(|&value| value > 0).collect();
                let twin = (1..=3)
                    .rev()
                    .find(|&level| 2 * given.iter().filter(|&&value| value >= level).count() > voters);
                assert_eq!(reached(voters, &mut values), twin, "{given:?}");
            }
        }
    }
}
