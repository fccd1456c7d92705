//! The messages under way between a node and the store.

use primacy_core::election::lease::RequestId;

use super::node::{NUMBERS, UNWAITED};
use super::store_kind::StoreKind;

/// The sender of a request: a process, or the guardian of a dead one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Asker {
    /// The process of this number.
    Process(u8),
    /// The guardian of the process of this number.
    GuardianOf(u8),
}

/// The messages under way between a node and the store, the oldest first.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Channel<M> {
    pub(super) requests: Vec<(Asker, M)>,
    pub(super) replies: Vec<(Asker, M)>,
}

impl<M> Default for Channel<M> {
    /// No messages.
    fn default() -> Self {
        Self { requests: Vec::new(), replies: Vec::new() }
    }
}

impl<M> Channel<M> {
    /// Adds a request; the oldest is lost if there are more than `most`.
    pub(super) fn ask(&mut self, who: Asker, request: M, most: u8) {
        self.requests.push((who, request));
        if self.requests.len() > usize::from(most) {
            self.requests.remove(0);
        }
    }

    /// Adds an answer; the oldest is lost if there are more than `most`.
    pub(super) fn answer(&mut self, who: Asker, reply: M, most: u8) {
        self.replies.push((who, reply));
        if self.replies.len() > usize::from(most) {
            self.replies.remove(0);
        }
    }

    /// Renumbers one sender's requests under way with the fixed numbers, and gives all abandoned ones the same
    /// number: their answers are ignored. A write among them may still be done.
    pub(super) fn renumber<K: StoreKind<Message = M>>(
        &mut self,
        who: Asker,
        under_way: [Option<RequestId>; 2],
        keep_late_answers: bool,
    ) {
        let all = self.requests.iter_mut().chain(&mut self.replies);
        for (_, message) in all.filter(|(asker, _)| *asker == who) {
            if let Some(number) = K::number(message) {
                // `UNWAITED` never counts as awaited: a new guardian has this number before its first request, and an
                // earlier guardian's requests may have been given it.
                let waited_for =
                    |under_way: &Option<RequestId>| *under_way == Some(*number) && *number != UNWAITED;
                let place = under_way.iter().position(waited_for);
                *number = place.map_or(UNWAITED, |place| NUMBERS[place]);
            }
        }
        if !keep_late_answers {
            let waited_for = |message: &mut M| K::number(message).is_some_and(|number| *number != UNWAITED);
            self.replies.retain_mut(|(asker, reply)| *asker != who || waited_for(reply));
            self.requests
                .retain_mut(|(asker, request)| *asker != who || waited_for(request) || K::is_write(request));
        }
    }

    /// Removes the answers to earlier processes, and their reads, whose answers no process would receive.
    pub(super) fn forget_lives_before<K: StoreKind<Message = M>>(&mut self, starts: u8) {
        let lives = |asker: &Asker| match asker {
            Asker::Process(life) | Asker::GuardianOf(life) => *life >= starts,
        };
        self.replies.retain(|(asker, _)| lives(asker));
        self.requests.retain(|(asker, request)| lives(asker) || K::is_write(request));
    }
}
