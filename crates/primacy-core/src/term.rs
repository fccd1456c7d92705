//! The number of a leadership, and the numbers that a leader gives to its records.

use core::fmt;

/// The number of one leadership in one election: a logical clock that never goes back.
///
/// Other systems say epoch, view, ballot or generation. See the glossary.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Term(pub u64);

impl Term {
    /// The term after this one.
    ///
    /// # Panics
    /// After 2⁶⁴ leaderships.
    #[must_use]
    pub fn next(self) -> Self {
        Self(self.0.checked_add(1).expect("an election does not see 2^64 terms"))
    }
}

impl fmt::Display for Term {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

/// The number of one record of a leader: the leader sequence number of the BlazingMQ article.
///
/// Ordered by term first, so that all records of a later leader are above all of an earlier one: `(5, 2)` is newer than
/// `(4, 1000)`. The counter starts from 1 in each term.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LeaderSequence {
    /// The term of the leader that sent it.
    pub term: Term,
    /// The number of the record within this leadership; from 1.
    pub counter: u64,
}

impl LeaderSequence {
    /// The zero value, below every number that a leader gives: no record.
    pub const NONE: Self = Self { term: Term(0), counter: 0 };

    /// The first number of a term.
    #[must_use]
    pub fn first(term: Term) -> Self {
        Self { term, counter: 1 }
    }

    /// The next number of the same term.
    ///
    /// # Panics
    /// After 2⁶⁴ numbers in one term.
    #[must_use]
    pub fn next(self) -> Self {
        Self { counter: self.counter.checked_add(1).expect("a leader does not send 2^64 things"), ..self }
    }
}

impl fmt::Display for LeaderSequence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "({}, {})", self.term, self.counter)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_later_leader_sends_is_newer() {
        let old = LeaderSequence { term: Term(4), counter: 1000 };
        let new = LeaderSequence::first(Term(5)).next();
        assert_eq!(new, LeaderSequence { term: Term(5), counter: 2 });
        assert!(new > old);
        assert!(old.next() > old);
    }
}
