//! Measurements of a map.

use std::sync::{Arc, OnceLock, PoisonError, RwLock, Weak};

use primacy_kv::state::State;
use tokio::sync::watch;

use super::{Board, Map};
use crate::stats::{LogReading, Reading};

/// The part of a map that measurements read. Unlike a handle, it keeps neither the node nor the state alive.
#[derive(Clone, Debug)]
pub(crate) struct Gauges {
    board: watch::Receiver<Board>,
    state: Weak<OnceLock<Arc<RwLock<State>>>>,
}

impl From<&Board> for LogReading {
    fn from(board: &Board) -> Self {
        Self {
            records: [("last", board.last), ("committed", board.committed), ("applied", board.applied)],
            uncommitted: board.uncommitted,
            lost: board.log_lost,
            behind: board.behind.clone(),
        }
    }
}

impl Gauges {
    /// `None` before the node has its copy, and after it has ended.
    pub(crate) fn read(&self) -> Option<Reading> {
        let (voters, log) = {
            let board = self.board.borrow();
            (board.voters.members.len(), LogReading::from(&*board))
        };
        let state = self.state.upgrade()?;
        let state = state.get()?.read().unwrap_or_else(PoisonError::into_inner);
        let size = state.size();
        Some(Reading {
            version: state.version().0,
            entries: size.entries,
            bytes: size.bytes,
            history_changes: size.history_changes,
            history_bytes: size.history_bytes,
            quota: state.limits().quota,
            sessions: state.sessions().len(),
            voters,
            log,
        })
    }
}

impl Map {
    pub(crate) fn gauges(&self) -> Gauges {
        Gauges { board: self.board.clone(), state: Arc::downgrade(&self.state) }
    }
}
