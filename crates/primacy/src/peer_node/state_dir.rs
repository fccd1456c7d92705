//! The files of one node, which are opened together: its state file, and its log if it has metadata. Each is checked against the
//! other.

use std::path::Path;

use primacy_core::NodeId;
use primacy_core::hard_state::Durability;
use primacy_kv::replication::log;

use crate::config::ConfigError;
use crate::disk::{DiskError, StateFile, Stored};
use crate::handshake::Voters;
use crate::log_file::LogError;
use crate::log_file::{self, Bounds, Limits, LogDefect, LogFile};

/// An open log, and its defects.
#[derive(Debug)]
pub(super) struct OpenLog {
    pub(super) log: LogFile,
    pub(super) stored: log::Stored,
    pub(super) found: Vec<LogDefect>,
    /// True if the log may lack records that this node has held.
    pub(super) log_lost: bool,
}

/// Opens the state file of `node`, or creates it. If it is lost and there is a log, the node starts as one that has lost its disk.
///
/// # Errors
/// [`OpenError`]; [`LogError::StateLost`] or [`LogError::BothLost`] if no other of these `peers` votes.
pub(super) fn open_state(
    dir: &Path,
    election: &str,
    node: NodeId,
    peers: impl Iterator<Item = NodeId>,
) -> Result<(StateFile, Stored), OpenError> {
    let orphan = log_file::orphan(dir, election, node)?;
    let remains = orphan.map(|orphan| orphan.remains(node, peers)).transpose()?;
    Ok(StateFile::open_or_make(dir, election, node, remains)?)
}

/// Checks that a node without metadata may use the configured voters: an earlier process with metadata may have recorded
/// others.
///
/// # Errors
/// [`ConfigError::VotersOfRecord`]
pub(super) fn check_voters(stored: &Stored, configured: &Voters) -> Result<(), ConfigError> {
    let Some(voters) = &stored.voters else { return Ok(()) };
    let recorded = Voters::new(voters.names());
    if recorded == *configured {
        return Ok(());
    }
    let (number, configured) = (voters.number, configured.clone());
    Err(ConfigError::VotersOfRecord { recorded, number, configured })
}

/// Opens the log of `node`, whose state file is open.
///
/// # Errors
/// [`OpenError`]
pub(super) fn open_log(
    limits: Limits,
    dir: &Path,
    (election, node): (&str, NodeId),
    durability: Durability,
    (state, stored): (&mut StateFile, &Stored),
) -> Result<OpenLog, OpenError> {
    let log_lost = match (stored.log, durability) {
        // Also if an election continues that had no metadata.
        (None, _) => false,
        (Some(Durability::Fsync), Durability::Fsync) => {
            stored.log_lost || !LogFile::exists(dir, election, node)?
        }
        // The log was in memory, or will be.
        (Some(Durability::Memory), _) | (Some(Durability::Fsync), Durability::Memory) => true,
    };
    if log_lost {
        // Recorded before an empty log is created, which would look like a complete one.
        state.persist_log_lost(true)?;
    }
    let bounds = Bounds::of(stored, log_lost);
    let opened = LogFile::open_within(limits, dir, election, node, &bounds);
    let (log, stored, found) = log_file::among_voters(opened, node, stored.voters.as_deref())?;
    state.persist_log(durability, log_lost)?;
    state.note_log(log.reach())?;
    Ok(OpenLog { log, stored, found, log_lost })
}

/// The reason why the files of a node cannot be used.
#[derive(Debug, thiserror::Error)]
pub(super) enum OpenError {
    #[error(transparent)]
    Disk(#[from] DiskError),
    #[error(transparent)]
    Log(#[from] LogError),
}

#[cfg(test)]
mod tests;
