//! The results of records, and the operations of a state with sessions that the machine needs.

use alloc::sync::Arc;
use alloc::vec::Vec;

use primacy_core::id::Identity;
use primacy_core::term::LeaderSequence;
use primacy_core::time::Duration;

use crate::command::{Applied, Command as StateCommand, Outcome, Request, SessionId, Version};
use crate::encoding::DecodeError;
use crate::partitions;
use crate::replication::replica::Replicated;
use crate::state::{Answers, State};

/// The result of a record's payload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// The sender of the request.
    pub(super) client: Identity,
    pub(super) sequence: u64,
    pub(super) applied: Applied,
    pub(super) session: Option<SessionNews>,
}

/// The change of a session that a payload has made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SessionNews {
    Began(SessionId, Duration),
    Ended(SessionId),
}

/// A state with sessions, as a machine applies requests to it.
pub trait Keeps: Replicated<Outcome = Option<Report>> {
    /// All sessions, and their times to live.
    fn sessions(&self) -> Vec<(SessionId, Duration)>;
    /// The time to live of one session.
    fn time_to_live(&self, session: SessionId) -> Option<Duration>;
    /// The session by which this incarnation of a node is up.
    fn session_of(&self, life: Identity) -> Option<SessionId>;
    /// True if this request was applied.
    fn has_applied(&self, client: &Identity, sequence: u64) -> bool;
    /// The version of the map.
    fn version(&self) -> Version;
}

impl Report {
    /// Applies a payload to the state. Returns `None`, and changes nothing, if it is not a valid request. Its format
    /// was [checked](Replicated::check) when the record was taken.
    ///
    /// Answers are produced only for requests of `client`, the identity of this process.
    #[must_use]
    pub fn of(state: &mut State, payload: &[u8], client: Identity) -> Option<Self> {
        let request = Request::decode(payload).ok()?;
        let answers = if request.client == client { Answers::Wanted } else { Answers::Unwanted };
        let (client, sequence) = (request.client, request.sequence);
        let applied = state.apply_for(&request, answers);
        let done = matches!(&applied, Applied::First(Outcome { result: Ok(_), .. }));
        let session = match request.command {
            _ if !done => None,
            StateCommand::Begin { session, time_to_live } => Some(SessionNews::Began(session, time_to_live)),
            StateCommand::Partitions(partitions::Command::Join { session, time_to_live }) => {
                Some(SessionNews::Began(session, time_to_live))
            }
            StateCommand::End { session }
            | StateCommand::Expire { session }
            | StateCommand::Partitions(partitions::Command::Leave { session }) => {
                Some(SessionNews::Ended(session))
            }
            StateCommand::Operate(_) | StateCommand::Compact(_) | StateCommand::Partitions(_) => None,
            StateCommand::Forget { .. } | StateCommand::Limit(_) | StateCommand::Share(_) => None,
        };
        Some(Self { client, sequence, applied, session })
    }
}

impl Replicated for State {
    type Outcome = Option<Report>;

    fn check(payload: &[u8]) -> Result<(), DecodeError> {
        Request::check_format(payload)
    }

    fn apply(&mut self, _: LeaderSequence, payload: &[u8], me: Identity) -> Option<Report> {
        Report::of(self, payload, me)
    }

    fn take_cost(&mut self) -> u64 {
        self.take_cost()
    }

    fn snapshot(&self) -> Arc<[u8]> {
        self.snapshot().into()
    }

    fn restore(bytes: &[u8]) -> Result<Self, DecodeError> {
        Self::restore(bytes)
    }

    fn empty() -> Self {
        Self::new()
    }
}

impl Keeps for State {
    fn sessions(&self) -> Vec<(SessionId, Duration)> {
        let of_clients = self.sessions().map(|(id, session)| (id, session.time_to_live()));
        of_clients.chain(self.partitions().sessions()).collect()
    }

    fn time_to_live(&self, session: SessionId) -> Option<Duration> {
        self.time_to_live(session)
    }

    fn session_of(&self, life: Identity) -> Option<SessionId> {
        let is_up = self.partitions().life_of(life.node) == Some(life.incarnation);
        is_up.then(|| self.partitions().session_of(life.node)).flatten()
    }

    fn has_applied(&self, client: &Identity, sequence: u64) -> bool {
        self.has_applied(client, sequence)
    }

    fn version(&self) -> Version {
        self.version()
    }
}
