//! A map in this process alone, for tests: it answers at once.

use std::num::NonZeroUsize;
use std::sync::{PoisonError, RwLock, RwLockReadGuard};
use std::time::Duration;

use primacy_core::{Identity, Incarnation, NodeId};
use primacy_kv::command::{
    Applied, Command, Keys, Operation, Outcome, Previous, Refusal, Request, RequestLimits, Secret, SessionId,
    Version,
};
use primacy_kv::state::{Size, State};
use tokio::sync::watch;

use super::backend::{Backend, BackendError, Changes, Life, Member, Pending, Vitals};
use super::replicated::{some_versions, whole_versions};

/// The map, with the number of the last request.
pub(super) struct InMemory {
    state: RwLock<(State, u64)>,
    told: watch::Sender<Version>,
}

impl InMemory {
    pub(super) fn new(state: State, requests: u64) -> Self {
        let told = watch::Sender::new(state.version());
        Self { state: RwLock::new((state, requests)), told }
    }

    fn state(&self) -> RwLockReadGuard<'_, (State, u64)> {
        self.state.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn into_state(self) -> (State, u64) {
        self.state.into_inner().unwrap_or_else(PoisonError::into_inner)
    }

    /// Applies a command as the nodes do: encoded and decoded again.
    pub(super) fn write(&self, command: Command) -> Outcome {
        if let Err(refusal) = command.check(RequestLimits::default()) {
            return Outcome { version: self.now(), result: Err(refusal) };
        }
        let mut state = self.state.write().unwrap_or_else(PoisonError::into_inner);
        let (state, sequence) = &mut *state;
        *sequence += 1;
        let incarnation = Incarnation { count: 1, nonce: 1 };
        let client = Identity::new(NodeId::new("a").unwrap(), incarnation);
        let request = Request { client, sequence: *sequence, done_below: *sequence, command };
        assert_eq!(Request::decode(&request.encode()).as_ref(), Ok(&request));
        let Applied::First(outcome) = state.apply(&request) else { panic!("{request:?} was applied before") };
        self.told.send_replace(state.version());
        outcome
    }
}

impl Backend for InMemory {
    fn propose(&self, command: Command) -> Pending<'_, Result<Outcome, BackendError>> {
        Box::pin(async move { Ok(self.write(command)) })
    }

    fn catch_up(&self) -> Pending<'_, Result<(), BackendError>> {
        Box::pin(std::future::ready(Ok(())))
    }

    fn look(&self, operation: &Operation, looks: u64) -> Outcome {
        let state = &self.state().0;
        let refused = || Outcome { version: state.version(), result: Err(Refusal::TooManyOperations) };
        state.observe_within(operation, looks).unwrap_or_else(refused)
    }

    fn keep_alive(&self, session: SessionId) -> Pending<'_, Result<Option<Duration>, BackendError>> {
        Box::pin(async move { Ok(self.state().0.time_to_live(session).map(Duration::from)) })
    }

    fn session(&self, session: SessionId) -> Pending<'_, Result<Option<Life>, BackendError>> {
        Box::pin(async move {
            Ok(self.state().0.session(session).map(|it| {
                let time_to_live = it.time_to_live().into();
                Life { left: time_to_live, time_to_live, keys: it.keys().cloned().collect() }
            }))
        })
    }

    fn sessions(&self) -> Pending<'_, Result<Vec<SessionId>, BackendError>> {
        Box::pin(async move { Ok(self.state().0.sessions().map(|(session, _)| session).collect()) })
    }

    fn changes(
        &self,
        keys: &Keys,
        from: Version,
        previous: Previous,
        most: NonZeroUsize,
    ) -> Result<Changes, Refusal> {
        let state = &self.state().0;
        some_versions(state, keys, from, previous, most)
    }

    fn news(&self, from: Version, previous: Previous, most: NonZeroUsize) -> Result<Changes, Refusal> {
        let state = &self.state().0;
        Ok(whole_versions(state.news(from, previous)?, state.version(), state.version(), most))
    }

    fn version(&self) -> watch::Receiver<Version> {
        self.told.subscribe()
    }

    fn now(&self) -> Version {
        self.state().0.version()
    }

    fn vitals(&self) -> Vitals {
        Vitals { cluster: 1, member: 1, leader: Some(1), term: 1, logged: 1, applied: 1 }
    }

    fn size(&self) -> Size {
        self.state().0.size()
    }

    fn secret(&self) -> Option<Secret> {
        self.state().0.secret()
    }

    fn members(&self) -> Vec<Member> {
        let url = || vec!["http://127.0.0.1:1".to_owned()];
        vec![Member { number: 1, name: "a".to_owned(), for_peers: url(), for_clients: url() }]
    }
}
