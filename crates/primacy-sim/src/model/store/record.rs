//! A record under compare-and-set: the election `lease`.

use primacy_core::election::lease::{
    Config, Found, Lease, Message, Record as Content, RequestId, SetError, Version,
};
use primacy_core::election::record_update::{Ending, RecordUpdate, Task};
use primacy_core::{Drift, FencingToken, Identity};

use super::bounds::StoreBounds;
use super::store_kind::{GuardianMachine, Machine, Mood, StoreKind};
use crate::algorithm::Algorithm as _;
use crate::elections;
use crate::model::now::{NOW, ticks};

/// The token of a first record, multiplied by one more than the number of deletions: above all tokens that a search
/// reaches.
const FIRST_TOKENS: u64 = 100;

/// The record, and the number of writes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Record {
    content: Option<Content>,
    version: u64,
    /// The number of deletions.
    deletions: u8,
}

impl Record {
    fn found(&self) -> Found {
        match &self.content {
            Some(record) => Found::Record { record: record.clone(), version: Version::from(self.version) },
            None => {
                Found::Absent { first_token: FencingToken(FIRST_TOKENS * (1 + u64::from(self.deletions))) }
            }
        }
    }
}

impl StoreKind for Record {
    type Message = Message;
    type Machine = Lease;
    type Guardian = RecordUpdate;

    const TICK: u64 = 1;

    fn new(bounds: &StoreBounds) -> Self {
        let first = || Content::released(FencingToken(1), ticks(bounds.duration));
        Self { content: bounds.initialised.then(first), version: 1, deletions: 0 }
    }

    fn machine(me: Identity, seed: u64, bounds: &StoreBounds) -> Lease {
        let config = Config {
            me,
            address: String::new(),
            duration: ticks(bounds.duration),
            drift_max: Drift::from_ppm(bounds.drift_percent * 10_000),
            renew_interval: ticks(bounds.renew),
            request_timeout: ticks(bounds.request_timeout),
            // The node may read at any time; a late read is equivalent to a late node.
            poll_interval: ticks(bounds.poll),
            seed,
        };
        Lease::new(config, NOW)
    }

    fn guardian(dead: Identity, seed: u64, bounds: &StoreBounds) -> RecordUpdate {
        RecordUpdate::new(Task::ReleaseFor(dead), ticks(bounds.duration), ticks(bounds.poll), seed, NOW)
    }

    fn serve(&mut self, request: &Message, mood: Mood) -> Option<Message> {
        match request {
            Message::Read { request } => {
                Some(Message::ReadReply { request: *request, found: Some(self.found()) })
            }
            Message::CompareAndSet { request, expect, record } => {
                let reply = |result| Some(Message::CompareAndSetReply { request: *request, result });
                if mood == Mood::NotDoneUnknown {
                    return reply(Err(SetError::Unknown));
                }
                let current = self.content.as_ref().map(|_| Version::from(self.version));
                let result = if current == *expect {
                    self.content = Some(record.clone());
                    self.version += 1;
                    Ok(Version::from(self.version))
                } else {
                    Err(SetError::Conflict)
                };
                reply(if mood == Mood::DoneUnknown { Err(SetError::Unknown) } else { result })
            }
            Message::ReadReply { .. } | Message::CompareAndSetReply { .. } | Message::Changed => None, // No request.
        }
    }

    fn delete(&mut self) -> bool {
        self.content = None;
        self.version += 1;
        self.deletions += 1;
        true
    }

    fn by_itself(&self) -> Vec<(Self, String)> {
        Vec::new()
    }

    fn tick(&mut self, _: u8) -> bool {
        false
    }

    fn is_bounded(request: &Message) -> bool {
        Self::is_write(request)
    }

    fn is_write(request: &Message) -> bool {
        matches!(request, Message::CompareAndSet { .. })
    }

    fn lets_go(request: &Message) -> Option<Option<FencingToken>> {
        match request {
            Message::CompareAndSet { record: Content { holder: None, token, .. }, .. } => Some(Some(*token)),
            Message::CompareAndSet { .. } | Message::Read { .. } => None,
            Message::ReadReply { .. } | Message::CompareAndSetReply { .. } | Message::Changed => None,
        }
    }

    fn number(message: &mut Message) -> Option<&mut RequestId> {
        match message {
            Message::Read { request } | Message::ReadReply { request, .. } => Some(request),
            Message::CompareAndSet { request, .. } | Message::CompareAndSetReply { request, .. } => {
                Some(request)
            }
            Message::Changed => None,
        }
    }

    fn text(message: &Message) -> String {
        elections::lease::Lease::text(message)
    }
}

impl Machine for Lease {
    fn leads(&self) -> bool {
        self.role() == "holding"
    }

    fn under_way(&self) -> [Option<RequestId>; 2] {
        [Some(self.last_request()), None]
    }

    fn renumber(&mut self, [last, _]: [RequestId; 2]) {
        Self::renumber(self, last);
    }
}

impl GuardianMachine for RecordUpdate {
    fn ending(&self) -> Option<bool> {
        Self::ending(self).map(|ending| ending == Ending::Done)
    }

    fn last_request(&self) -> RequestId {
        Self::last_request(self)
    }

    fn renumber(&mut self, last: RequestId) {
        Self::renumber(self, last);
    }
}
