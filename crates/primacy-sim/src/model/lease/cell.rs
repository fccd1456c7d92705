//! The register, and what is on the way to it and from it.

use primacy_core::election::lease::{Found, Message, Record, RequestId, SetError, Version};
use primacy_core::{Duration, FencingToken};

use super::node::LAST;

/// The token for a first record: above all that a search can count up to, each time when the record is gone.
const FIRST_TOKENS: u64 = 100;

/// The register.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Cell {
    pub(super) record: Option<Record>,
    pub(super) version: u64,
    /// How often it was deleted.
    pub(super) deletions: u8,
}

/// Who asks: a process, or the guardian of a dead one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Asker {
    /// The process of this life.
    Life(u8),
    /// The guardian of it.
    GuardianOf(u8),
}

/// What is on the way between a node and the store, the oldest first.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Link {
    pub(super) requests: Vec<(Asker, Message)>,
    pub(super) replies: Vec<(Asker, Message)>,
}

/// How the store meets a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mood {
    Serves,
    /// It does it, and says that nobody knows.
    DoneUnknown,
    /// It does not, and says that nobody knows.
    NotDoneUnknown,
}

impl Cell {
    pub(super) fn new(initialised: bool, duration: Duration) -> Self {
        let record = initialised.then(|| Record::released(FencingToken(1), duration));
        Self { record, version: 1, deletions: 0 }
    }

    /// Serves a request, and answers it.
    pub(super) fn serve(&mut self, request: &Message, mood: Mood) -> Option<Message> {
        match request {
            Message::Read { request } => {
                Some(Message::ReadReply { request: *request, found: Some(self.found()) })
            }
            Message::CompareAndSet { request, expect, record } => {
                let reply = |result| Some(Message::CompareAndSetReply { request: *request, result });
                if mood == Mood::NotDoneUnknown {
                    return reply(Err(SetError::Unknown));
                }
                let current = self.record.as_ref().map(|_| Version::from(self.version));
                let result = if current == *expect {
                    self.record = Some(record.clone());
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

    pub(super) fn delete(&mut self) {
        self.record = None;
        self.version += 1;
        self.deletions += 1;
    }

    fn found(&self) -> Found {
        match &self.record {
            Some(record) => Found::Record { record: record.clone(), version: Version::from(self.version) },
            None => {
                Found::Absent { first_token: FencingToken(FIRST_TOKENS * (1 + u64::from(self.deletions))) }
            }
        }
    }
}

impl Link {
    /// A request leaves; the oldest is lost where there are too many.
    pub(super) fn ask(&mut self, who: Asker, request: Message, most: u8) {
        self.requests.push((who, request));
        if self.requests.len() > usize::from(most) {
            self.requests.remove(0);
        }
    }

    /// An answer leaves.
    pub(super) fn answer(&mut self, who: Asker, reply: Message, most: u8) {
        self.replies.push((who, reply));
        if self.replies.len() > usize::from(most) {
            self.replies.remove(0);
        }
    }

    /// The numbers of one asker's requests are moved down, so that its last one always has the same, and all earlier ones
    /// are alike: nobody waits for their answers. A write among them may still land.
    pub(super) fn renumber(&mut self, who: Asker, by: u64, keep_late_answers: bool) {
        let all = self.requests.iter_mut().chain(&mut self.replies);
        for (_, message) in all.filter(|(asker, _)| *asker == who) {
            move_number(message, by);
        }
        if !keep_late_answers {
            let waited_for = |message: &Message| number(message) == Some(LAST);
            self.replies.retain(|(asker, reply)| *asker != who || waited_for(reply));
            self.requests.retain(|(asker, request)| {
                *asker != who || waited_for(request) || matches!(request, Message::CompareAndSet { .. })
            });
        }
    }

    /// The answers to the lives before this one are heard by nobody, nor are their questions.
    pub(super) fn forget_lives_before(&mut self, starts: u8) {
        let lives = |asker: &Asker| match asker {
            Asker::Life(life) | Asker::GuardianOf(life) => *life >= starts,
        };
        self.replies.retain(|(asker, _)| lives(asker));
        self.requests
            .retain(|(asker, request)| lives(asker) || matches!(request, Message::CompareAndSet { .. }));
    }
}

fn number(message: &Message) -> Option<RequestId> {
    match message {
        Message::Read { request } | Message::ReadReply { request, .. } => Some(*request),
        Message::CompareAndSet { request, .. } | Message::CompareAndSetReply { request, .. } => {
            Some(*request)
        }
        Message::Changed => None,
    }
}

fn move_number(message: &mut Message, by: u64) {
    match message {
        Message::Read { request }
        | Message::ReadReply { request, .. }
        | Message::CompareAndSet { request, .. }
        | Message::CompareAndSetReply { request, .. } => *request = RequestId(request.0.saturating_sub(by)),
        Message::Changed => {} // It has no number.
    }
}
