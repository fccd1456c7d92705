//! A state that the driver changes and everybody may read.

use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use primacy_core::metadata::command::{SessionId, Version};
use primacy_core::metadata::encoding::DecodeError;
use primacy_core::metadata::machine::{Keeps, Report};
use primacy_core::metadata::replica::Replicated;
use primacy_core::metadata::state::State;
use primacy_core::{Duration, Identity, LeaderSequence};

/// The state of one node. The driver alone writes it, one request at a time, so that nobody waits for long.
#[derive(Debug)]
pub(crate) struct SharedState(Arc<RwLock<State>>);

impl SharedState {
    /// The same state, for others to read.
    pub(crate) fn share(&self) -> Arc<RwLock<State>> {
        Arc::clone(&self.0)
    }

    /// A state is whole between two requests, whatever panicked.
    pub(crate) fn read(&self) -> RwLockReadGuard<'_, State> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, State> {
        self.0.write().unwrap_or_else(PoisonError::into_inner)
    }

    fn new(state: State) -> Self {
        Self(Arc::new(RwLock::new(state)))
    }
}

/// Another state that is equal, and not the same.
impl Clone for SharedState {
    fn clone(&self) -> Self {
        Self::new(self.read().clone())
    }
}

impl Replicated for SharedState {
    type Outcome = Option<Report>;

    fn check(payload: &[u8]) -> Result<(), DecodeError> {
        State::check(payload)
    }

    fn apply(&mut self, _: LeaderSequence, payload: &[u8]) -> Option<Report> {
        Report::of(&mut self.write(), payload)
    }

    fn snapshot(&self) -> Arc<[u8]> {
        self.read().snapshot().into()
    }

    fn restore(bytes: &[u8]) -> Result<Self, DecodeError> {
        State::restore(bytes).map(Self::new)
    }

    fn empty() -> Self {
        Self::new(State::new())
    }

    fn become_other(&mut self, other: Self) {
        // Nobody else has it yet: it was restored just now.
        std::mem::swap(&mut *self.write(), &mut *other.write());
    }
}

impl Keeps for SharedState {
    fn sessions(&self) -> Vec<(SessionId, Duration)> {
        Keeps::sessions(&*self.read())
    }

    fn time_to_live(&self, session: SessionId) -> Option<Duration> {
        Keeps::time_to_live(&*self.read(), session)
    }

    fn session_of(&self, life: Identity) -> Option<SessionId> {
        Keeps::session_of(&*self.read(), life)
    }

    fn has_applied(&self, client: &Identity, sequence: u64) -> bool {
        self.read().has_applied(client, sequence)
    }

    fn version(&self) -> Version {
        self.read().version()
    }
}
