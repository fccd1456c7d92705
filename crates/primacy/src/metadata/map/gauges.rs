//! A map in figures.

use std::sync::{Arc, OnceLock, PoisonError, RwLock, Weak};

use primacy_core::metadata::state::State;
use tokio::sync::watch;

use super::{Board, Map};
use crate::measures::{LogReading, Reading};

/// The part of a map that figures are read from. Unlike a handle it keeps nothing open, and nothing
/// in memory.
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
    /// `None` where there is no copy yet, or none any more.
    pub(crate) fn read(&self) -> Option<Reading> {
        let (voters, log) = {
            let board = self.board.borrow();
            (board.voters.members.len(), LogReading::from(&*board))
        };
        let state = self.state.upgrade()?;
        let state = state.get()?.read().unwrap_or_else(PoisonError::into_inner);
        Some(Reading {
            version: state.version(),
            size: state.size(),
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
