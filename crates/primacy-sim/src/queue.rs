//! The one queue of everything that will happen, in order; what happens at the same time, happens in the order
//! in which it was decided.

use core::cmp::Ordering;
use std::collections::BinaryHeap;

use crate::clock::Moment;

/// The queue.
#[derive(Debug)]
pub struct Queue<T> {
    heap: BinaryHeap<Planned<T>>,
    planned: u64,
}

#[derive(Debug)]
struct Planned<T> {
    at: Moment,
    number: u64,
    what: T,
}

impl<T> Default for Queue<T> {
    fn default() -> Self {
        Self { heap: BinaryHeap::new(), planned: 0 }
    }
}

impl<T> Queue<T> {
    /// Plans something.
    pub fn plan(&mut self, at: Moment, what: T) {
        self.planned += 1;
        self.heap.push(Planned { at, number: self.planned, what });
    }

    /// When the next thing happens.
    #[must_use]
    pub fn next_at(&self) -> Option<Moment> {
        self.heap.peek().map(|planned| planned.at)
    }

    /// Takes the next thing.
    pub fn take(&mut self) -> Option<(Moment, T)> {
        self.heap.pop().map(|planned| (planned.at, planned.what))
    }
}

impl<T> Ord for Planned<T> {
    fn cmp(&self, other: &Self) -> Ordering {
        // The heap gives the greatest first; so the earliest is made the greatest.
        (other.at, other.number).cmp(&(self.at, self.number))
    }
}

impl<T> PartialOrd for Planned<T> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<T> PartialEq for Planned<T> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl<T> Eq for Planned<T> {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ties_are_broken_by_the_order_of_planning() {
        let mut queue = Queue::default();
        for (at, what) in [(2, 'c'), (1, 'a'), (2, 'd'), (1, 'b')] {
            queue.plan(Moment::from_nanos(at), what);
        }
        let order: String = core::iter::from_fn(|| queue.take()).map(|(_, what)| what).collect();
        assert_eq!(order, "abcd");
    }
}
