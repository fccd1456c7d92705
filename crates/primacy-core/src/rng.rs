//! The seeded generator that machines draw their random waits from.

use crate::time::Duration;

/// SplitMix64 (Steele, Lea, Flood 2014): small, seeded, and good enough to spread waits.
///
/// It is part of a machine's state, so that a run can be replayed. It is no source of secrets.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Rng {
    state: u64,
}

impl Rng {
    /// A generator that always draws the same numbers for the same seed.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self { state: seed }
    }

    /// The next number, any of 2⁶⁴.
    pub fn next_u64(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// A number from `0..=max`, uniformly (the bias of the multiplication is below 2⁻⁶⁴ × max).
    pub fn up_to(&mut self, max: u64) -> u64 {
        let product = u128::from(self.next_u64()) * (u128::from(max) + 1);
        u64::try_from(product >> 64).expect("the upper half of 128 bits")
    }

    /// A duration from `0..=max`.
    pub fn duration_up_to(&mut self, max: Duration) -> Duration {
        Duration::from_nanos(self.up_to(max.as_nanos()))
    }

    /// One of these.
    ///
    /// # Panics
    /// If there are none.
    pub fn one_of<T: Clone>(&mut self, choices: &[T]) -> T {
        let last = choices.len().checked_sub(1).expect("there is one to draw");
        let index = self.up_to(u64::try_from(last).expect("a length fits"));
        choices[usize::try_from(index).expect("it is below the length")].clone()
    }
}

/// Draws for tests that feed machines messages that no honest node sends.
#[cfg(test)]
impl Rng {
    /// A boundary value: small, near `u64::MAX / 2`, the limit of honest numbers, or near `u64::MAX`.
    pub(crate) fn number(&mut self) -> u64 {
        let ends = [0, 1, 2, 3, 4, u64::MAX / 2 - 1, u64::MAX / 2, u64::MAX / 2 + 1, u64::MAX - 1, u64::MAX];
        self.one_of(&ends)
    }

    /// A small number twice out of three times, so that a conversation makes progress.
    pub(crate) fn mostly_small(&mut self) -> u64 {
        if self.up_to(2) == 0 { self.number() } else { self.up_to(5) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_draws_the_same_numbers() {
        // The first outputs of the reference implementation for seed 1234567.
        let mut rng = Rng::new(1_234_567);
        let drawn = [rng.next_u64(), rng.next_u64(), rng.next_u64()];
        assert_eq!(drawn, [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423]);
    }

    #[test]
    fn a_bounded_draw_reaches_both_ends_and_no_further() {
        let mut rng = Rng::new(1);
        let drawn: Vec<u64> = (0..200).map(|_| rng.up_to(3)).collect();
        assert!((0..=3).all(|value| drawn.contains(&value)));
        assert!(drawn.iter().all(|&value| value <= 3));
        assert_eq!(rng.up_to(0), 0);
    }
}
