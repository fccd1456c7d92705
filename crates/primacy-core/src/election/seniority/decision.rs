//! The decision by a store which part of a split cluster goes on: the part that first writes its claim into the record.
//!
//! The record's token counts the decisions, and every view carries the last decision on which it is based. After a
//! split both parts have the same one; the next one is written by compare-and-set, so only one part succeeds. The other
//! part reads a token that is not its own, and stops. No clock is involved, and the record never expires.

use alloc::boxed::Box;
use alloc::collections::BTreeSet;
use alloc::string::String;

use crate::election::lease::{Found, Holder, Message, Record, RequestId, SetError, Version};
use crate::fence::FencingToken;
use crate::id::{Identity, NodeId};
use crate::time::{Duration, Instant};

/// A pending question to the store.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Decision {
    me: Identity,
    /// The last decision of this part's view; 0 if there is none yet.
    rests_on: FencingToken,
    /// The members that were lost when the question was asked.
    about: BTreeSet<NodeId>,
    request: RequestId,
    /// The token that was written, while the answer is not known.
    written: Option<FencingToken>,
    /// The time to ask again.
    pub(super) until: Instant,
    /// The time at which a part that has lost members stops for lack of an answer.
    pub(super) stops_at: Instant,
}

/// The meaning of the store's answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    /// This part goes on, by this decision.
    Won(FencingToken),
    /// Another part goes on.
    Lost,
    /// The store has not decided; send it this.
    Ask(Box<Message>),
    /// The answer is awaited.
    Nothing,
}

impl Decision {
    /// Begins a question, with a request number above those of earlier questions. Returns it with the message to the
    /// store.
    pub(super) const fn begin(
        me: Identity,
        rests_on: FencingToken,
        about: BTreeSet<NodeId>,
        request: u64,
        (until, stops_at): (Instant, Instant),
    ) -> (Self, Message) {
        let request = RequestId(request);
        (Self { me, rests_on, about, request, written: None, until, stops_at }, Message::Read { request })
    }

    /// The nodes that the question is about.
    pub(super) const fn about(&self) -> &BTreeSet<NodeId> {
        &self.about
    }

    /// The number of the last request.
    pub(super) const fn request(&self) -> u64 {
        self.request.0
    }

    /// Asks again, because no answer came, or none that decides.
    pub(super) const fn again(&mut self, until: Instant) -> Message {
        self.until = until;
        self.request = RequestId(self.request.0 + 1);
        Message::Read { request: self.request }
    }

    /// Handles an answer of the store.
    pub(super) fn on_answer(&mut self, message: Message, until: Instant) -> Answer {
        match message {
            Message::ReadReply { request, found: Some(found) } if request == self.request => {
                self.on_found(found, until)
            }
            Message::CompareAndSetReply { request, result } if request == self.request => {
                match (result, self.written) {
                    (Ok(_), Some(token)) => Answer::Won(token),
                    // Another process was first, or the outcome is unknown: read the record.
                    (Err(SetError::Conflict | SetError::Unknown), _) => {
                        Answer::Ask(Box::new(self.again(until)))
                    }
                    (Err(SetError::Unavailable), _) | (Ok(_), None) => Answer::Nothing,
                }
            }
            // Late, unavailable, or no answer: the question is repeated later.
            Message::ReadReply { .. } | Message::CompareAndSetReply { .. } | Message::Changed => {
                Answer::Nothing
            }
            Message::Read { .. } | Message::CompareAndSet { .. } => Answer::Nothing,
        }
    }

    fn on_found(&mut self, found: Found, until: Instant) -> Answer {
        match found {
            Found::Record { record, version } => {
                let is_mine = record.holder.as_ref().is_some_and(|holder| holder.identity == self.me);
                // This includes a write of an abandoned question of this process, on which no other part's view is
                // based.
                let is_next =
                    self.rests_on != FencingToken(0) && record.token.0 == self.rests_on.0.saturating_add(1);
                if is_mine && (is_next || self.written == Some(record.token)) {
                    return Answer::Won(record.token);
                }
                if self.rests_on != FencingToken(0) && record.token != self.rests_on {
                    return Answer::Lost;
                }
                match record.token.0.checked_add(1) {
                    Some(next) => self.write(Some(version), FencingToken(next), until),
                    None => Answer::Lost, // No honest election's.
                }
            }
            Found::Absent { first_token } if self.rests_on == FencingToken(0) => {
                self.write(None, first_token, until)
            }
            Found::Absent { .. } => Answer::Lost, // Whoever deletes the record ends what rests on it.
        }
    }

    fn write(&mut self, expect: Option<Version>, token: FencingToken, until: Instant) -> Answer {
        self.until = until;
        self.request = RequestId(self.request.0 + 1);
        self.written = Some(token);
        let record = Record {
            holder: Some(Holder { identity: self.me, address: String::new() }),
            token,
            duration: Duration::ZERO,
            renewal: 0,
            nonce: self.request.0,
            resign_request: None,
            young: false,
            unknown: Box::default(),
        };
        Answer::Ask(Box::new(Message::CompareAndSet { request: self.request, expect, record }))
    }
}
