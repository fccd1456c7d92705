//! What a run has met: how often each fault struck, and how often each branch that matters was taken.
//!
//! A search that never met a fault says nothing about it. So each election lists what a search of many seeds must
//! have met ([`Algorithm::must_meet`](crate::algorithm::Algorithm::must_meet)), and a search fails if one of these
//! counters has stayed at zero. A name that is misspelt anywhere stays at zero too.

use core::fmt;
use std::collections::BTreeMap;

/// How often each thing was met.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    met: BTreeMap<&'static str, u64>,
}

impl Counters {
    /// It was met once more.
    pub fn count(&mut self, what: &'static str) {
        *self.met.entry(what).or_default() += 1;
    }

    /// How often it was met.
    #[must_use]
    pub fn of(&self, what: &str) -> u64 {
        self.met.get(what).copied().unwrap_or_default()
    }

    /// Adds what another run has met.
    pub fn add(&mut self, other: &Self) {
        for (&what, count) in &other.met {
            *self.met.entry(what).or_default() += count;
        }
    }

    /// All that was met, in the order of the names.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> {
        self.met.iter().map(|(&what, &count)| (what, count))
    }

    /// What of this list was never met.
    #[must_use]
    pub fn missing(&self, must: &[&'static str]) -> Vec<&'static str> {
        must.iter().copied().filter(|what| self.of(what) == 0).collect()
    }
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
