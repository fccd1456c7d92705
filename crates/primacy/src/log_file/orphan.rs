//! A log without a state file beside it, a damaged log, and how an operator repairs both.

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

/// The suffix of a log that was set aside, before its number.
const ASIDE: &str = "damaged";

/// A log without a state file: its node has had one, for the log is made after it.
#[derive(Debug)]
pub(crate) struct Orphan {
    /// The directory of the log.
    path: PathBuf,
    /// The term of the last record, as far as the log can be read.
    term: Term,
    /// The voters that the log states last.
    voters: Option<Arc<Voters>>,
    /// The reason why it cannot be read, where it is damaged.
    damaged: Option<LogError>,
}

/// A repair that was done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Repair {
    /// The damaged log has this name now; its node gets it again from the others when it is started.
    SetAside(PathBuf),
    /// The state of the only voter was made again from its log.
    StateMade,
    /// There is nothing to repair.
    Nothing,
    /// The node has a state and no log: it gets one from the others when it is started.
    NoLog,
    /// No such node has been here.
    NoNode,
}

/// Looks for a log without a state file.
///
/// # Errors
/// [`LogError`] if there is one that cannot be read.
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
    /// The state with which `node` comes back: as a node that has lost its disk, for its votes are lost. The others readmit it.
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

/// Returns true if no other node votes, as far as is recorded.
fn is_only_voter(node: NodeId, voters: Option<&Voters>) -> bool {
    voters.is_some_and(|voters| voters.members.keys().eq([&node]))
}

/// Adapts the result of reading a log of `node`: the only voter is not told to get it from others.
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

/// Repairs a node's files, as far as that is safe. The node must not run. Blocks for a few flushes of the disk.
///
/// A damaged log is set aside under another name, so that its node gets one again from the others when it is started. First the
/// loss of the log is recorded. Until the node has it again, it counts for none of the majorities that hold a record. The log of
/// the only voter stays where it is, for no other node has it.
///
/// The lost state of the only voter is made again from its log, which has a record of each term in which it led.
///
/// # Errors
/// [`LogError`]; everything is where it was.
pub fn repair(dir: &Path, election: &str, node: NodeId) -> Result<Repair, LogError> {
    let name = disk::file_name(election, node)?;
    let log = dir.join(format!("{name}.log"));
    if let Some(orphan) = orphan(dir, election, node)? {
        if !orphan.is_of_the_only_voter(node) {
            return Err(orphan.damaged.unwrap_or(LogError::OthersVote { path: orphan.path }));
        }
        let lock = disk::lock(&log.join("lock"), &log)?;
        // It voted for itself alone, and made no term known before that term's first record was on the disk.
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
    // Nothing is to be made where nothing is.
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
