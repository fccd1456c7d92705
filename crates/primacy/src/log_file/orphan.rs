//! A log without a state file, and a damaged log; and their repair by an operator.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use primacy_core::election::quorum::DiskState;
use primacy_core::hard_state::Durability;
use primacy_core::{Duration, NodeId, Term};
use primacy_kv::replication::voters::Voters;

use super::bounds::Bounds;
use super::reading::Reading;
use super::{LogError, LogFile, Owner};
use crate::config::LOST_PROMISE_MAX;
use crate::disk::{self, Remains, StateFile};

/// The suffix of a damaged log's new name, before a number.
const ASIDE: &str = "damaged";

/// A log without a state file. There was one once, because it is created before the log.
#[derive(Debug)]
pub(crate) struct Orphan {
    /// The directory of the log.
    path: PathBuf,
    /// The term of the last record that can be read.
    term: Term,
    /// The voters that the log states last.
    voters: Option<Arc<Voters>>,
    /// The error of reading it, if it is damaged.
    damaged: Option<LogError>,
}

/// A repair that was done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Repair {
    /// The damaged log was renamed to this; the node gets its records from the others when it starts.
    SetAside(PathBuf),
    /// The state of the only voter was rebuilt from its log.
    StateMade,
    /// There is nothing to repair.
    Nothing,
    /// The node has a state and no log: it gets the records from the others when it starts.
    NoLog,
    /// There are no files of such a node.
    NoNode,
}

/// Looks for a log without a state file.
///
/// # Errors
/// [`LogError`] if there is a log that cannot be read.
pub(crate) fn orphan(dir: &Path, election: &str, node: NodeId) -> Result<Option<Orphan>, LogError> {
    let name = disk::file_name(election, node)?;
    disk::check_dir(dir)?;
    let state = fs::metadata(dir.join(format!("{name}.state")));
    let is_missing = state.is_err_and(|error| error.kind() == io::ErrorKind::NotFound);
    if !is_missing || !LogFile::exists(dir, election, node)? {
        return Ok(None);
    }
    let path = dir.join(format!("{name}.log"));
    match Reading::read(&path, &Owner { election: election.to_owned(), node }, &Bounds::none()) {
        Ok(reading) => {
            let (term, voters) = (reading.reach().last.term, reading.voters().cloned());
            Ok(Some(Orphan { path, term, voters, damaged: None }))
        }
        Err(LogError::Damaged { path: file, found }) => {
            let damaged = Some(LogError::BothLost { path: file, found });
            Ok(Some(Orphan { path, term: Term::default(), voters: None, damaged }))
        }
        Err(error) => Err(error),
    }
}

impl Orphan {
    /// The state with which `node` starts: as a node that has lost its disk, because its votes are lost. The others must
    /// readmit it.
    ///
    /// # Errors
    /// [`LogError::StateLost`] if no other of these `peers` votes, or [`LogError::BothLost`].
    pub(crate) fn remains(
        self,
        node: NodeId,
        mut peers: impl Iterator<Item = NodeId>,
    ) -> Result<Remains, LogError> {
        if self.is_of_the_only_voter(node) || peers.all(|peer| peer == node) {
            return Err(self.damaged.unwrap_or(LogError::StateLost { path: self.path }));
        }
        tracing::warn!(
            log = %self.path.display(),
            "there is a log and no state file beside it: the votes of this node are lost, and it takes no part until all others have \
             readmitted it (`primacy member readmit`)"
        );
        Ok(Remains { term: self.term, promise: Duration::ZERO, disk_state: DiskState::Lost, log_lost: true })
    }

    fn is_of_the_only_voter(&self, node: NodeId) -> bool {
        is_only_voter(node, self.voters.as_deref())
    }
}

/// Returns true if `voters` names no other node.
fn is_only_voter(node: NodeId, voters: Option<&Voters>) -> bool {
    voters.is_some_and(|voters| voters.members.keys().eq([&node]))
}

/// Adapts the error of a damaged log: the only voter cannot get its records from other nodes.
pub(crate) fn among_voters<T>(
    read: Result<T, LogError>,
    node: NodeId,
    voters: Option<&Voters>,
) -> Result<T, LogError> {
    match read {
        Err(LogError::Damaged { path, found }) if is_only_voter(node, voters) => {
            Err(LogError::OnlyLogDamaged { path, found })
        }
        read => read,
    }
}

/// Repairs a node's files, as far as that is safe. The node must not be running. Blocks for a few flushes of the disk.
///
/// A damaged log is renamed, so that the node gets its records from the others when it starts. The loss of the log is recorded
/// first: until the node has the records again, it counts in no majority for a record. The log of the only voter is kept,
/// because no other node has its records.
///
/// The lost state of the only voter is rebuilt from its log, which has a record of each term in which it led.
///
/// # Errors
/// [`LogError`]; then nothing was renamed or created.
pub fn repair(dir: &Path, election: &str, node: NodeId) -> Result<Repair, LogError> {
    let name = disk::file_name(election, node)?;
    let log = dir.join(format!("{name}.log"));
    if let Some(orphan) = orphan(dir, election, node)? {
        if !orphan.is_of_the_only_voter(node) {
            return Err(orphan.damaged.unwrap_or(LogError::OthersVote { path: orphan.path }));
        }
        let lock = disk::lock(&log.join("lock"), &log)?;
        // The only voter has voted for itself alone, and has announced no term before that term's first record was on
        // the disk.
        let remains = Remains {
            term: orphan.term,
            promise: LOST_PROMISE_MAX,
            disk_state: DiskState::Recovered,
            log_lost: false,
        };
        drop(StateFile::open_or_make(dir, election, node, Some(remains))?);
        drop(lock);
        return Ok(Repair::StateMade);
    }
    // Create nothing if there is nothing.
    let is_there = |path: &Path| match fs::metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        found => found.map(|_| true).map_err(|error| LogError::io("find", path, error)),
    };
    let state = dir.join(format!("{name}.state"));
    match (is_there(&log)?, is_there(&state)?) {
        (true, true) => {}
        (false, true) => return Ok(Repair::NoLog),
        (false, false) => return Ok(Repair::NoNode),
        (true, false) => return Err(LogError::io("find", &state, io::ErrorKind::NotFound.into())),
    }
    let (mut state, stored) = StateFile::open(dir, election, node)?;
    let lock = disk::lock(&log.join("lock"), &log)?;
    let bounds = Bounds::of(&stored, stored.log_lost);
    let read = Reading::read(&log, &Owner { election: election.to_owned(), node }, &bounds);
    match among_voters(read, node, stored.voters.as_deref()) {
        Ok(_) => return Ok(Repair::Nothing),
        Err(LogError::Damaged { .. }) => {}
        Err(error) => return Err(error),
    }
    state.persist_log(Durability::Fsync, true)?;
    let aside = (1..u32::MAX).map(|number| dir.join(format!("{name}.log.{ASIDE}-{number}")));
    let aside = aside.into_iter().find(|path| !path.exists()).unwrap_or_else(|| log.clone());
    fs::rename(&log, &aside).map_err(|error| LogError::io("rename", &log, error))?;
    disk::sync_dir(dir)?;
    drop(lock);
    Ok(Repair::SetAside(aside))
}
