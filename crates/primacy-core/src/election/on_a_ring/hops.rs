//! Hops: a message is confirmed by the next node, or sent to it once more, or sent past it; its receiver handles it
//! once.

use alloc::collections::{BTreeMap, VecDeque};

use crate::id::{Identity, Incarnation, NodeId};
use crate::neighbours::Direction;
use crate::term::Term;
use crate::time::{Duration, Instant};

/// The number of latest message numbers that are remembered as taken or not. A message with an older number counts as
/// taken.
const WINDOW: u64 = u64::BITS as u64;

/// A sent message that is not confirmed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Hop<B> {
    pub(super) to: NodeId,
    pub(super) number: u64,
    pub(super) direction: Direction,
    /// The highest round known when the message was first sent.
    pub(super) round: Term,
    pub(super) body: B,
    pub(super) tries: u32,
    sent_at: Instant,
}

/// The messages that one node has sent, and the messages of other nodes that it has taken.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Hops<B> {
    /// The number of the last message.
    number: u64,
    /// The unconfirmed messages, the oldest first.
    unconfirmed: VecDeque<Hop<B>>,
    taken: BTreeMap<NodeId, Taken>,
}

/// The messages of one incarnation that were taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Taken {
    incarnation: Incarnation,
    highest: u64,
    /// One bit for each number, the lowest bit for the highest number.
    window: u64,
}

impl<B: Copy> Hops<B> {
    pub(super) const fn new() -> Self {
        Self { number: 0, unconfirmed: VecDeque::new(), taken: BTreeMap::new() }
    }

    /// Returns a number for a message that needs no confirmation.
    pub(super) const fn next_number(&mut self) -> u64 {
        self.number += 1;
        self.number
    }

    /// Records a message that is sent to this node for the first time. Returns its number.
    pub(super) fn sent(
        &mut self,
        now: Instant,
        to: NodeId,
        direction: Direction,
        round: Term,
        body: B,
    ) -> u64 {
        let number = self.next_number();
        self.unconfirmed.push_back(Hop { to, number, direction, round, body, tries: 1, sent_at: now });
        number
    }

    /// Records that a message is sent to the same node once more, under the same number.
    pub(super) fn sent_again(&mut self, now: Instant, hop: Hop<B>) {
        self.unconfirmed.push_back(Hop { tries: hop.tries + 1, sent_at: now, ..hop });
    }

    pub(super) fn confirmed(&mut self, by: NodeId, number: u64) {
        self.unconfirmed.retain(|hop| (hop.to, hop.number) != (by, number));
    }

    /// Removes and returns the oldest message whose confirmation is overdue.
    pub(super) fn overdue(&mut self, now: Instant, patience: Duration) -> Option<Hop<B>> {
        let is_overdue = self.deadline(patience).is_some_and(|deadline| now >= deadline);
        if is_overdue { self.unconfirmed.pop_front() } else { None }
    }

    pub(super) fn deadline(&self, patience: Duration) -> Option<Instant> {
        self.unconfirmed.front().map(|hop| hop.sent_at.after(patience))
    }

    /// The number of unconfirmed messages.
    pub(super) fn waiting(&self) -> usize {
        self.unconfirmed.len()
    }

    /// Returns true if this message of this incarnation was not taken before, and records that it was.
    pub(super) fn take(&mut self, from: Identity, number: u64) -> bool {
        let first = Taken { incarnation: from.incarnation, highest: number, window: 0 };
        let taken = self.taken.entry(from.node).or_insert(first);
        if taken.incarnation != from.incarnation {
            *taken = first;
        }
        if let Some(ahead) = number.checked_sub(taken.highest).filter(|&ahead| ahead > 0) {
            taken.window = if ahead < WINDOW { taken.window << ahead } else { 0 };
            taken.highest = number;
        }
        let back = taken.highest - number;
        if back >= WINDOW {
            return false;
        }
        let bit = 1 << back;
        let is_new = taken.window & bit == 0;
        taken.window |= bit;
        is_new
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_message_is_taken_once_in_any_order() {
        let node = NodeId::new("a").unwrap();
        let life = |nonce| Identity::new(node, Incarnation { count: 1, nonce });
        let mut hops = Hops::<()>::new();
        for number in [5, 3, 70, 7, 6, 69] {
            assert_eq!(hops.take(life(1), number), number != 6, "{number}");
            assert!(!hops.take(life(1), number));
        }
        assert!(hops.take(life(2), 5), "another life counts anew");
        assert!(hops.take(life(2), u64::MAX) && !hops.take(life(2), 6));
    }
}
