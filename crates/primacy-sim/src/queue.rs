//! The queue of all future events, ordered by moment; events of one moment happen in the order in which they were
//! planned.

use core::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::clock::Moment;

/// The queue. Events stay in place; only their moments, order and indexes are moved.
#[derive(Debug)]
pub struct Queue<T> {
    heap: BinaryHeap<Reverse<(Moment, u64, usize)>>,
    places: Vec<Option<T>>,
    free: Vec<usize>,
    planned: u64,
}

impl<T> Default for Queue<T> {
    fn default() -> Self {
        Self { heap: BinaryHeap::new(), places: Vec::new(), free: Vec::new(), planned: 0 }
    }
}

impl<T> Queue<T> {
    /// Plans an event.
    pub fn plan(&mut self, at: Moment, what: T) {
        let place = self.free.pop().unwrap_or_else(|| {
            self.places.push(None);
            self.places.len() - 1
        });
        self.places[place] = Some(what);
        self.planned += 1;
        self.heap.push(Reverse((at, self.planned, place)));
    }

    /// The moment of the next event.
    #[must_use]
    pub fn next_at(&self) -> Option<Moment> {
        self.heap.peek().map(|&Reverse((at, _, _))| at)
    }

    /// Takes the next event.
    pub fn take(&mut self) -> Option<(Moment, T)> {
        let Reverse((at, _, place)) = self.heap.pop()?;
        self.free.push(place);
        self.places[place].take().map(|what| (at, what))
    }
}

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
