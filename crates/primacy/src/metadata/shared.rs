//! The state of the map, which the driver writes and all handles read.

use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use primacy_core::{Duration, Identity, LeaderSequence};
use primacy_kv::command::{SessionId, Version};
use primacy_kv::encoding::DecodeError;
use primacy_kv::machine::{Keeps, Report};
use primacy_kv::replication::replica::Replicated;
use primacy_kv::state::State;

/// The state of one node. Only the driver writes it, one request at a time, so that no reader waits for long.
///
/// Readers see the committed state, or the state at the start of the process. A fetched snapshot may be ahead of that; only
/// the driver uses it until it is known to be committed.
#[derive(Debug)]
pub(crate) struct SharedState {
    shown: Arc<RwLock<State>>,
    ahead: Option<State>,
}

impl SharedState {
    /// Returns the state for readers.
    pub(crate) fn share(&self) -> Arc<RwLock<State>> {
        Arc::clone(&self.shown)
    }

    /// Locks the state that readers see. It is consistent between two requests, even after a panic.
    pub(crate) fn read(&self) -> RwLockReadGuard<'_, State> {
        self.shown.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, State> {
        self.shown.write().unwrap_or_else(PoisonError::into_inner)
    }

    fn new(state: State) -> Self {
        Self { shown: Arc::new(RwLock::new(state)), ahead: None }
    }

    /// Calls `ask` with the newest state of this node, whether or not readers see it.
    fn ask<T>(&self, ask: impl FnOnce(&State) -> T) -> T {
        match &self.ahead {
            Some(ahead) => ask(ahead),
            None => ask(&self.read()),
        }
    }
}

/// Clones the content into a state of its own, which is not shared.
impl Clone for SharedState {
    fn clone(&self) -> Self {
        Self::new(self.ask(State::clone))
    }
}

impl Replicated for SharedState {
    type Outcome = Option<Report>;

    fn check(payload: &[u8]) -> Result<(), DecodeError> {
        State::check(payload)
    }

    fn apply(&mut self, _: LeaderSequence, payload: &[u8], me: Identity) -> Option<Report> {
        match &mut self.ahead {
            Some(ahead) => Report::of(ahead, payload, me),
            None => Report::of(&mut self.write(), payload, me),
        }
    }

    fn take_cost(&mut self) -> u64 {
        match &mut self.ahead {
            Some(ahead) => ahead.take_cost(),
            None => self.write().take_cost(),
        }
    }

    fn snapshot(&self) -> Arc<[u8]> {
        self.ask(State::snapshot).into()
    }

    fn restore(bytes: &[u8]) -> Result<Self, DecodeError> {
        State::restore(bytes).map(Self::new)
    }

    fn empty() -> Self {
        Self::new(State::new())
    }

    fn become_other(&mut self, other: Self) {
        // It was restored just now, and is not shared yet.
        self.ahead = Some(std::mem::take(&mut *other.write()));
    }

    fn settle(&mut self) {
        if let Some(ahead) = self.ahead.take() {
            let past = std::mem::replace(&mut *self.write(), ahead);
            // Dropped after the lock is released, because dropping a large state takes time.
            drop(past);
        }
    }
}

impl Keeps for SharedState {
    fn sessions(&self) -> Vec<(SessionId, Duration)> {
        self.ask(Keeps::sessions)
    }

    fn time_to_live(&self, session: SessionId) -> Option<Duration> {
        self.ask(|state| Keeps::time_to_live(state, session))
    }

    fn session_of(&self, life: Identity) -> Option<SessionId> {
        self.ask(|state| Keeps::session_of(state, life))
    }

    fn has_applied(&self, client: &Identity, sequence: u64) -> bool {
        self.ask(|state| state.has_applied(client, sequence))
    }

    fn version(&self) -> Version {
        self.ask(State::version)
    }
}

#[cfg(test)]
mod tests {
    use primacy_core::hard_state::Durability;
    use primacy_core::{Incarnation, Instant, NodeId, Term};
    use primacy_kv::command::{Bytes, Command, Operation, Previous, Replace, Request, Write};
    use primacy_kv::replication::log::Stored;
    use primacy_kv::replication::message::Body;
    use primacy_kv::replication::replica::{Config, Replica};
    use primacy_kv::replication::voters::Voters;

    use super::*;

    fn identity(name: &str) -> Identity {
        Identity::new(NodeId::new(name).expect("a name"), Incarnation { count: 1, nonce: 1 })
    }

    fn state_with_a_write() -> State {
        let write = Write {
            key: Bytes::from(&b"k"[..]),
            value: Replace::With(Bytes::from(&b"v"[..])),
            session: Replace::With(None),
            previous: Previous::Unwanted,
        };
        let command = Command::Operate(Operation::Write(write));
        let request = Request { client: identity("c"), sequence: 1, done_below: 1, command };
        let mut state = State::new();
        assert!(Report::of(&mut state, &request.encode(), identity("c")).is_some());
        assert!(state.version() > Version::FIRST);
        state
    }

    #[test]
    fn what_a_snapshot_has_brought_is_shown_once_it_is_known_to_be_committed() {
        let (now, term, leader) = (Instant::default(), Term(2), identity("a"));
        let members = ["a", "b", "c"].map(|name| (identity(name).node, Arc::from("nowhere")));
        let voters = Voters { number: LeaderSequence::NONE, members: members.into() };
        let voters = Arc::new(voters);
        let config = Config {
            me: identity("b"),
            durability: Durability::Fsync,
            resend_after: Duration::from_millis(10),
            append_max: 1 << 20,
            window: 1 << 20,
            part_max: 1 << 20,
            snapshot_after: 1 << 20,
            kept_max: 1 << 20,
            apply_max: usize::MAX,
        };
        let replica =
            Replica::<SharedState>::new(config, Term(1), Arc::clone(&voters), Stored::default(), false, now);
        let mut follower = replica.expect("there is nothing to be read");
        let shown = follower.state().share();
        let version = || shown.read().expect("nothing has panicked").version();
        let (number, later) = (LeaderSequence::first(term), state_with_a_write());
        follower.bind(term);
        let append = |after, committed| Body::Append { round: 1, after, records: Vec::new(), committed };
        follower.handle(now, leader, term, append(number, LeaderSequence::NONE));
        follower.handle(now, leader, term, Body::Offer { number });
        let bytes: Arc<[u8]> = later.snapshot().into();
        let (to, length) = (identity("b").incarnation, bytes.len() as u64);
        let part = Body::PartReply { to, number, voters, offset: 0, length, bytes };
        follower.handle(now, leader, term, part);
        assert_eq!(follower.applied(), number, "it has taken it");
        assert_eq!(Keeps::version(follower.state()), later.version(), "and goes on from it");
        assert_eq!(Keeps::version(&follower.state().clone()), later.version());
        assert_eq!(version(), Version::FIRST, "which nobody else sees");
        follower.handle(now, leader, term, append(number, number));
        assert_eq!(version(), later.version());
        assert_eq!(Keeps::version(follower.state()), later.version());
    }
}
