//! Counters of a run: how often each fault took effect, and how often each relevant branch was taken.
//!
//! A search that never met a fault proves nothing about it. So each election lists the counters that a search of many
//! seeds must have incremented ([`Algorithm::must_meet`](crate::algorithm::Algorithm::must_meet)), and the search
//! fails if one of them is zero. So is a counter whose name is misspelt.
//!
//! A fault is counted where it takes effect, not where it is drawn: a cut link, with each packet that it drops; a
//! full disk, with each failed write.

use core::fmt;
use std::collections::BTreeMap;

/// The count of each name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    met: BTreeMap<&'static str, u64>,
}

impl Counters {
    /// Increments a counter.
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

    /// Returns the names of this list whose count is zero.
    #[must_use]
    pub fn missing(&self, must: &[&'static str]) -> Vec<&'static str> {
        must.iter().copied().filter(|what| self.of(what) == 0).collect()
    }
}

/// The number of messages sent over the network: those of machines and of guardians, and the store's answers. A
/// message that is lost on its way counts; one without a connection does not. A guardian's death notice and a store's
/// notification of a change do not count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sent {
    /// The number of all messages.
    pub all: u64,
    /// The number of messages that are not routine; see
    /// [`Algorithm::is_routine`](crate::algorithm::Algorithm::is_routine).
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
