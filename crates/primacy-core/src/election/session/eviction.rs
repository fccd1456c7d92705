//! Eviction: a guardian's removal of a session's entry, when its node's process and all its work are gone.
//!
//! It removes the entry of the dead incarnation from the queue, so that no candidate waits for the rest of the session.
//! A last request of the dead process may still land, so the eviction repeats: until it finds nothing after it has
//! removed an entry, or else for a whole session.

use alloc::collections::VecDeque;

use super::{Message, RequestFailure};
use crate::election::lease::RequestId;
use crate::id::Identity;
use crate::protocol::{Endpoint, Input, Output, Protocol};
use crate::time::{Duration, Instant};

/// The result of an eviction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Ending {
    /// The entry and the session of the dead incarnation are gone.
    Done,
    /// The time passed, and there was nothing.
    NothingToDo,
    /// The time passed, and the outcome stayed unknown.
    Unknown,
}

/// The state machine of one eviction. It ends by itself; see [`Eviction::ending`].
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Eviction {
    pub(super) dead: Identity,
    pub(super) until: Instant,
    pub(super) poll_interval: Duration,
    pub(super) asked: Option<(RequestId, Instant)>,
    pub(super) last_request: RequestId,
    pub(super) act_at: Instant,
    /// The last answer; `None` if the last request was not answered.
    pub(super) found: Option<bool>,
    /// True if an entry or a session was removed.
    pub(super) evicted: bool,
    pub(super) ending: Option<Ending>,
    pub(super) outputs: VecDeque<Output<Message, ()>>,
}

impl Eviction {
    /// Makes an eviction of `dead` that asks every `poll_interval`, for at most `patience`: one whole session.
    #[must_use]
    pub fn new(dead: Identity, patience: Duration, poll_interval: Duration, now: Instant) -> Self {
        Self {
            dead,
            until: now.after(patience),
            poll_interval,
            asked: None,
            last_request: RequestId(0),
            act_at: now,
            found: None,
            evicted: false,
            ending: None,
            outputs: VecDeque::new(),
        }
    }

    /// The result; `None` until the eviction has ended.
    #[must_use]
    pub const fn ending(&self) -> Option<Ending> {
        self.ending
    }

    fn on_reply(&mut self, now: Instant, result: Result<bool, RequestFailure>) {
        self.act_at = now.after(self.poll_interval);
        match result {
            Ok(true) => self.evicted = true,
            Ok(false) if self.evicted => self.ending = Some(Ending::Done),
            // `Ended` is no valid answer to an eviction, and counts as none.
            Ok(false) | Err(RequestFailure::Ended | RequestFailure::NoAnswer) => {}
        }
        self.found = result.ok();
    }

    fn on_timeout(&mut self, now: Instant) {
        if now >= self.until {
            self.ending = Some(match (self.evicted, self.found) {
                (true, _) => Ending::Done,
                (false, Some(_)) => Ending::NothingToDo,
                (false, None) => Ending::Unknown,
            });
            return;
        }
        let is_due = self.asked.map_or(self.act_at, |(_, at)| at.after(self.request_timeout()));
        if now >= is_due {
            self.last_request = RequestId(self.last_request.0 + 1);
            (self.asked, self.found) = (Some((self.last_request, now)), None);
            let message = Message::Evict { request: self.last_request, dead: self.dead };
            self.outputs.push_back(Output::Send { to: Endpoint::Store, message });
        }
    }

    /// Two poll intervals, because some stores must scan every entry.
    const fn request_timeout(&self) -> Duration {
        self.poll_interval.times(2)
    }
}

impl Protocol for Eviction {
    type Message = Message;
    type Durable = ();

    fn handle(&mut self, now: Instant, input: Input<Message>) {
        if self.ending.is_some() {
            return;
        }
        match input {
            Input::Message { from: Endpoint::Store, message: Message::EvictReply { request, result } } => {
                if self.asked.take_if(|(asked, _)| *asked == request).is_some() {
                    self.on_reply(now, result);
                }
            }
            Input::Timeout => self.on_timeout(now),
            // An eviction has no use for other inputs.
            Input::Message { .. } | Input::Command(_) | Input::Evidence(_) => {}
        }
    }

    fn poll(&mut self) -> Option<Output<Message, ()>> {
        self.outputs.pop_front()
    }

    fn deadline(&self) -> Option<Instant> {
        if self.ending.is_some() {
            return None;
        }
        let next = self.asked.map_or(self.act_at, |(_, at)| at.after(self.request_timeout()));
        Some(next.min(self.until))
    }
}
