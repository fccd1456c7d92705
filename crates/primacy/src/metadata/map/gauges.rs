//! A map in figures.

use std::sync::{Arc, OnceLock, PoisonError, RwLock, Weak};

use primacy_core::metadata::command::Version;
use primacy_core::metadata::state::{Size, State};
use primacy_core::{LeaderSequence, NodeId};
use tokio::sync::watch;

use super::{Board, Map};

/// What of a map is for figures. Unlike a handle it keeps nothing open, and nothing in memory.
#[derive(Clone, Debug)]
pub(crate) struct Gauges {
    board: watch::Receiver<Board>,
    state: Weak<OnceLock<Arc<RwLock<State>>>>,
}

/// A node's copy of a map in figures.
#[derive(Clone, Debug)]
pub(crate) struct Reading {
    pub(crate) version: Version,
    pub(crate) size: Size,
    /// How many bytes there may be.
    pub(crate) quota: u64,
    /// The sessions of clients.
    pub(crate) sessions: usize,
    pub(crate) voters: usize,
    pub(crate) log: LogReading,
}

/// Its log in figures.
#[derive(Clone, Debug)]
pub(crate) struct LogReading {
    /// The numbers of a few records, each with what it is.
    pub(crate) records: [(&'static str, LeaderSequence); 3],
    pub(crate) uncommitted: u64,
    pub(crate) lost: bool,
    /// Of each follower of a leader, how many records it is not known to hold.
    pub(crate) behind: Vec<(NodeId, u64)>,
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
