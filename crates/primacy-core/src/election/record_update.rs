//! Record update: a change to the record of a [`lease`](super::lease) by a process that does not campaign.
//!
//! There are two tasks. A guardian *releases the record for a dead holder*: when the holder's process and all its work
//! have ended, it clears the holder, so that no candidate waits for the rest of the lease. And any client may *ask the
//! holder to resign*.
//!
//! Both read the record, change it, and compare-and-set it. After a conflict, an unknown outcome or a missing answer
//! they read again: no write is repeated blindly or assumed to have failed.

mod state_reduction;

use alloc::collections::VecDeque;
use alloc::string::String;

use super::lease::{Found, Message, Record, RequestId, ResignRequest, SetError, Version};
use crate::id::Identity;
use crate::protocol::{Endpoint, Input, Output, Protocol};
use crate::rng::Rng;
use crate::time::{Duration, Instant};

/// The change to the record.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Task {
    /// Clear the holder, if it is this incarnation, which has ended with all its work.
    ReleaseFor(Identity),
    /// Ask the holder of the record to resign.
    AskToResign {
        /// The name of the requester, for people.
        by: String,
    },
}

/// The result of an update.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Ending {
    /// The record was changed as asked.
    Done,
    /// The time passed and there was nothing to change.
    NothingToDo,
    /// The time passed and the outcome of the write stayed unknown.
    Unknown,
}

/// The state machine of one update. It ends by itself; see [`RecordUpdate::ending`].
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RecordUpdate {
    task: Task,
    /// The deadline of the update. A write of the dead process may still land within a lease, so an update that finds
    /// nothing to change reads again until then.
    until: Instant,
    poll_interval: Duration,
    asked: Option<(RequestId, Instant)>,
    last_request: RequestId,
    /// The nonce of a release that may have landed.
    nonce: Option<u64>,
    act_at: Instant,
    /// True if the outcome of the last write was unknown. After a second such answer in a row the next read waits;
    /// otherwise a store that fails at once would be asked as fast as it can answer.
    unknown_before: bool,
    /// The end of that wait. Until then nothing is read, even if the store reports a change.
    waits_until: Instant,
    /// True if the last read found nothing to change.
    nothing_to_do: bool,
    ending: Option<Ending>,
    rng: Rng,
    outputs: VecDeque<Output<Message, ()>>,
}

impl RecordUpdate {
    /// Makes an update that reads every `poll_interval`, for at most `patience`: one whole lease, if it releases for a
    /// dead holder.
    #[must_use]
    pub fn new(task: Task, patience: Duration, poll_interval: Duration, seed: u64, now: Instant) -> Self {
        Self {
            task,
            until: now.after(patience),
            poll_interval,
            asked: None,
            last_request: RequestId(0),
            nonce: None,
            act_at: now,
            unknown_before: false,
            waits_until: now,
            nothing_to_do: false,
            ending: None,
            rng: Rng::new(seed),
            outputs: VecDeque::new(),
        }
    }

    /// The result; `None` until the update has ended.
    #[must_use]
    pub const fn ending(&self) -> Option<Ending> {
        self.ending
    }

    fn on_message(&mut self, now: Instant, message: Message) {
        match message {
            Message::ReadReply { request, found } if self.answers(request) => match found {
                Some(found) => self.on_found(now, found),
                None => self.act_at = now.after(self.poll_interval), // The store was not reached.
            },
            Message::CompareAndSetReply { request, result } if self.answers(request) => match result {
                Ok(_) => self.ending = Some(Ending::Done),
                // Another process wrote, or the outcome is unknown: read again.
                Err(SetError::Unknown) if core::mem::replace(&mut self.unknown_before, true) => {
                    self.waits_until = now.after(self.poll_interval);
                    self.act_at = self.waits_until;
                }
                Err(SetError::Conflict | SetError::Unknown) => self.read(now),
                Err(SetError::Unavailable) => self.act_at = now.after(self.poll_interval),
            },
            Message::Changed if self.asked.is_none() && now >= self.waits_until => self.read(now),
            Message::ReadReply { .. } | Message::CompareAndSetReply { .. } | Message::Changed => {} // Late, or early.
            Message::Read { .. } | Message::CompareAndSet { .. } => {} // The store asks nothing.
        }
    }

    fn on_timeout(&mut self, now: Instant) {
        if now >= self.until {
            self.ending = Some(if self.nothing_to_do { Ending::NothingToDo } else { Ending::Unknown });
            return;
        }
        match self.asked {
            Some((_, at)) if now >= self.times_out(at) => self.read(now),
            None if now >= self.act_at => self.read(now),
            Some(_) | None => {} // Early.
        }
    }

    fn on_found(&mut self, now: Instant, found: Found) {
        let Found::Record { record, version } = found else {
            return self.find_nothing(now);
        };
        if self.nonce == Some(record.nonce) {
            self.ending = Some(Ending::Done); // The write whose answer was lost.
            return;
        }
        match self.changed(&record) {
            Some(changed) => self.write(now, version, changed),
            None => self.find_nothing(now),
        }
    }

    /// The record after the change; `None` if there is nothing to change.
    fn changed(&mut self, record: &Record) -> Option<Record> {
        let holder = record.holder.as_ref()?;
        match &self.task {
            // A young record is left to run out: if it were released, its next holder would lead at once, while the
            // holder of the deleted record may still lead.
            Task::ReleaseFor(dead) if holder.identity == *dead && !record.young => {
                let nonce = self.rng.next_u64();
                self.nonce = Some(nonce);
                Some(Record { holder: None, resign_request: None, nonce, ..record.clone() })
            }
            Task::ReleaseFor(_) => None, // Another holds it.
            // All other fields are kept, also the nonce: a request must not look like a renewal.
            Task::AskToResign { .. } if record.is_asked_to_resign() => None,
            Task::AskToResign { by } => {
                let request = ResignRequest { token: record.token, by: by.clone() };
                Some(Record { resign_request: Some(request), ..record.clone() })
            }
        }
    }

    fn find_nothing(&mut self, now: Instant) {
        self.nothing_to_do = true;
        self.act_at = now.after(self.poll_interval);
    }

    fn write(&mut self, now: Instant, version: Version, record: Record) {
        self.nothing_to_do = false;
        let request = self.ask(now);
        let message = Message::CompareAndSet { request, expect: Some(version), record };
        self.outputs.push_back(Output::Send { to: Endpoint::Store, message });
    }

    fn read(&mut self, now: Instant) {
        let request = self.ask(now);
        self.outputs.push_back(Output::Send { to: Endpoint::Store, message: Message::Read { request } });
    }

    fn ask(&mut self, now: Instant) -> RequestId {
        self.last_request = RequestId(self.last_request.0 + 1);
        self.asked = Some((self.last_request, now));
        self.last_request
    }

    fn answers(&mut self, request: RequestId) -> bool {
        self.asked.take_if(|(asked, _)| *asked == request).is_some()
    }

    fn times_out(&self, asked_at: Instant) -> Instant {
        asked_at.after(self.poll_interval.times(4))
    }
}

impl Protocol for RecordUpdate {
    type Message = Message;
    type Durable = ();

    fn handle(&mut self, now: Instant, input: Input<Message>) {
        debug_assert!(self.outputs.is_empty(), "all outputs must be drained before the next input");
        if self.ending.is_some() {
            return;
        }
        match input {
            Input::Message { from: Endpoint::Store, message } => self.on_message(now, message),
            Input::Timeout => self.on_timeout(now),
            // None of these is meant for an update.
            Input::Message { from: Endpoint::Node(_) | Endpoint::Client, .. } => {}
            Input::Command(_) | Input::Evidence(_) => {}
        }
    }

    fn poll(&mut self) -> Option<Output<Message, ()>> {
        self.outputs.pop_front()
    }

    fn deadline(&self) -> Option<Instant> {
        let next = self.asked.map_or(self.act_at, |(_, at)| self.times_out(at));
        self.ending.is_none().then(|| next.min(self.until))
    }
}
