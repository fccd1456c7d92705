//! Stub.
use super::command::*;
use crate::time::Duration;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct State(BTreeMap<SessionId, Duration>, u64);
impl State {
    pub fn apply(&mut self, _request: Request) -> Applied {
        self.1 += 1;
        Applied::First(Outcome { version: Version(self.1), result: Ok(Answer::Done) })
    }
    pub fn snapshot(&self) -> Vec<u8> {
        self.1.to_be_bytes().to_vec()
    }
    pub fn restore(bytes: &[u8]) -> Result<Self, ()> {
        Ok(Self(BTreeMap::new(), u64::from_be_bytes(bytes.try_into().map_err(|_| ())?)))
    }
    pub fn sessions(&self) -> impl Iterator<Item = (SessionId, Duration)> {
        self.0.iter().map(|(a, b)| (*a, *b))
    }
    pub fn time_to_live(&self, session: SessionId) -> Option<Duration> {
        self.0.get(&session).copied()
    }
}
