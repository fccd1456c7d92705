//! The state file: the durable state of a node.
//!
//! The file has two slots. A new state is written over the older one, in place, and flushed. If that is interrupted, the other slot
//! still has the last acknowledged state. Each slot has a sequence number, which identifies the newer one, and checksums of its
//! sectors, which distinguish an interrupted write from damage: see `slot.rs`.
//!
//! A slot with voters or with a log is written as version 2, and every other as version 1, though the formats are equal otherwise. A
//! program that knows version 1 only would skip the unknown fields, and write the slot again without them. Then its node would count
//! the configured voters, and could elect a leader with removed voters. Version 2 makes it refuse the file.
//!
//! A file that cannot be trusted is refused and never written to: a node that has lost its votes could vote twice in a term. If one
//! slot is damaged, the other one is used only if it certainly is the newer. An older copy of the whole file cannot be recognised
//! here; if there is a log, it is compared with the file when both are opened.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use primacy_core::election::quorum::{DiskState, HardState};
use primacy_core::hard_state::Durability;
use primacy_core::{Duration, Identity, Incarnation, LeaderSequence, NodeId, Term};
use primacy_kv::replication::voters::Voters;
use prost::Message as _;

use super::slot::{self, Content, RECORD_LENGTH_MAX, Slot, SlotError, seal, unseal};
use super::{
    DiskError, FileId, Lock, VERSION, VOTERS_LENGTH_MAX, check_dir, entropy, file_name, format, lock,
    make_anew, make_dir, open_existing, sync_dir,
};
use crate::handshake::{DiskId, PeerDisk};

/// The version of a record without voters and without a log.
const VERSION_PLAIN: u32 = 1;
const FILE_LENGTH: usize = 2 * slot::LENGTH;
/// The most bytes of a voter in addition to its address and twice its name.
const VOTER_OVERHEAD: usize = 32;

/// The durable state of one node in one election: open, locked, and ready to be written.
///
/// No other process can open it until this value is dropped.
#[derive(Debug)]
pub struct StateFile {
    path: PathBuf,
    file: File,
    /// The slot with the newest state; the other one is overwritten next.
    newest: Slot,
    record: Record,
    /// The id of the opened file.
    identity: FileId,
    /// The reason why nothing can be written any more: an earlier write failed.
    failed: Option<String>,
    /// Holds the lock until dropped.
    _lock: Lock,
}

/// The extent of a node's log on its disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogReach {
    /// The number of the newest segment; 0 if there is none.
    pub segment: u64,
    /// The last record.
    pub last: LeaderSequence,
}

/// The state that replaces a lost state file, derived from the log beside it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Remains {
    /// The last term of the log.
    pub(crate) term: Term,
    /// The longest promise that the lost state may have made.
    pub(crate) promise: Duration,
    /// True if its votes are lost.
    pub(crate) disk_state: DiskState,
    /// True if the log may lack records that its node has held.
    pub(crate) log_lost: bool,
}

/// The state that was read from the file, or written at the first start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stored {
    /// The election's durable state.
    pub hard_state: HardState,
    /// The incarnation of this process: its counter was increased durably, and its nonce is new.
    pub incarnation: Incarnation,
    /// The disk id, drawn when the file was created.
    pub disk: DiskId,
    /// The recorded disks of the peers.
    pub peer_disks: BTreeMap<NodeId, PeerDisk>,
    /// With metadata: the voters that were recorded last.
    pub voters: Option<Arc<Voters>>,
    /// The durability with which an earlier process kept its log of metadata; `None` if none has kept one.
    pub log: Option<Durability>,
    /// With metadata: true if the log may lack records that this node has held.
    pub log_lost: bool,
    /// The extent that the log had at least when the state was last written.
    pub log_reach: LogReach,
    /// True if the file was created just now: this node has never taken part, or has lost its disk.
    pub created: bool,
}

impl StateFile {
    /// Opens the state of `node` in `election` in the directory `dir`, or creates it at the first start, and increases the counter
    /// of the node's incarnation. The returned state is on the disk.
    ///
    /// Blocks for a few flushes of the disk, and never for another process.
    ///
    /// # Errors
    /// [`DiskError`]; an existing file was not changed, unless increasing the counter failed.
    pub fn open(dir: &Path, election: &str, node: NodeId) -> Result<(Self, Stored), DiskError> {
        Self::open_or_make(dir, election, node, None)
    }

    /// As [`open`](Self::open); a new file in place of a lost one begins with `remains`.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub(crate) fn open_or_make(
        dir: &Path,
        election: &str,
        node: NodeId,
        remains: Option<Remains>,
    ) -> Result<(Self, Stored), DiskError> {
        let name = file_name(election, node)?;
        let path = dir.join(format!("{name}.state"));
        make_dir(dir)?;
        check_dir(dir)?;
        let lock = lock(&dir.join(format!("{name}.lock")), &path)?;
        let created = match open_existing(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let mut first = Record::first(election, node)?;
                if let Some(remains) = remains {
                    first = first.with(remains);
                }
                create(dir, &path, &first)?;
                true
            }
            Ok(_) | Err(_) => false,
        };
        let file = open_existing(&path).map_err(|error| DiskError::io("open", &path, error))?;
        let (newest, record) = read(&path, &file)?;
        if record.election != election || record.node != node {
            let (election, node) = (record.election, record.node.to_string());
            return Err(DiskError::Foreign { path, election, node });
        }
        let identity = FileId::of(&path, &file)?;
        let mut state = Self { path, file, newest, record, identity, failed: None, _lock: lock };
        // The state that was read may have been in the kernel's memory only: an earlier process may have been killed before its
        // flush, or its flush failed. So this slot is written again, in place and before the other one is overwritten: at any
        // moment one of the two is intact on the disk.
        let (slot, again) = (state.newest, state.record.clone());
        state.write(slot, &again)?;
        let next = Record { incarnations: again.incarnations.saturating_add(1), ..again };
        state.advance(next)?;
        let stored = state.stored(created)?;
        Ok((state, stored))
    }

    /// Increases the counter of the node's incarnation to `count`, if it is lower. Returns the counter.
    ///
    /// # Errors
    /// As [`persist`](Self::persist).
    pub fn count_lives_from(&mut self, count: u64) -> Result<u64, DiskError> {
        if count > self.record.incarnations {
            self.advance(Record { incarnations: count, ..self.record.clone() })?;
        }
        Ok(self.record.incarnations)
    }

    /// Replaces `hard_state`. When this returns, the new one survives a power cut.
    ///
    /// # Errors
    /// [`DiskError`], after which no message may be sent that depends on this state, and every further write is refused
    /// until the file is opened again.
    pub fn persist(&mut self, hard_state: &HardState) -> Result<(), DiskError> {
        self.advance(Record { hard_state: *hard_state, ..self.record.clone() })
    }

    /// Records that `node` was seen for the first time, with `disk`.
    ///
    /// # Errors
    /// As [`persist`](Self::persist).
    pub fn record_peer_disk(&mut self, node: NodeId, disk: DiskId) -> Result<(), DiskError> {
        let mut record = self.record.clone();
        let known = record.peer_disks.entry(node).or_insert_with(|| PeerDisk::first(disk));
        if known.disk != disk {
            // The node was readmitted with another disk before this was recorded.
            known.former.insert(disk);
        }
        if record == self.record { Ok(()) } else { self.advance_with_peers(record, Some(node)) }
    }

    /// Replaces the recorded voters.
    ///
    /// # Errors
    /// [`DiskError::VotersTooLong`] or [`DiskError::TooLong`], after which nothing has changed; otherwise as
    /// [`persist`](Self::persist).
    pub fn persist_voters(&mut self, voters: &Arc<Voters>) -> Result<(), DiskError> {
        check_room(&voters.members)?;
        self.advance_with_peers(Record { voters: Some(Arc::clone(voters)), ..self.record.clone() }, None)
    }

    /// Records the durability of the log from now on, and whether it is lost.
    ///
    /// # Errors
    /// As [`persist`](Self::persist).
    pub fn persist_log(&mut self, log: Durability, log_lost: bool) -> Result<(), DiskError> {
        if (Some(log), log_lost) == (self.record.log, self.record.log_lost) {
            return Ok(());
        }
        self.advance(Record { log: Some(log), log_lost, ..self.record.clone() })
    }

    /// Records that the log is lost, or is not any more.
    ///
    /// # Errors
    /// As [`persist`](Self::persist).
    pub fn persist_log_lost(&mut self, log_lost: bool) -> Result<(), DiskError> {
        if log_lost == self.record.log_lost {
            return Ok(());
        }
        self.advance(Record { log_lost, ..self.record.clone() })
    }

    /// Records the extent of the log: at once if another segment was begun, otherwise with the next write.
    ///
    /// # Errors
    /// As [`persist`](Self::persist).
    pub fn note_log(&mut self, log_reach: LogReach) -> Result<(), DiskError> {
        if log_reach.segment == self.record.log_reach.segment {
            self.record.log_reach = log_reach;
            return Ok(());
        }
        self.advance(Record { log_reach, ..self.record.clone() })
    }

    /// Checks that the file is still the one that was opened.
    ///
    /// # Errors
    /// [`DiskError::Gone`].
    pub(crate) fn check_in_place(&self) -> Result<(), DiskError> {
        self.identity.check(&self.path)
    }

    /// Accepts `node` with `disk` in place of its former disk, at an operator's request. The former disk is never
    /// accepted again.
    ///
    /// # Errors
    /// [`DiskError::Replaced`] or [`DiskError::TooLong`], after which nothing has changed; otherwise as
    /// [`persist`](Self::persist).
    pub fn readmit(&mut self, node: NodeId, disk: DiskId) -> Result<(), DiskError> {
        let mut record = self.record.clone();
        let known = record.peer_disks.entry(node).or_insert_with(|| PeerDisk::first(disk));
        if known.former.contains(&disk) {
            return Err(DiskError::Replaced { node, recorded: known.disk, presented: disk });
        }
        known.readmit(disk);
        self.advance_with_peers(record, Some(node))
    }

    /// The path of the state file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn stored(&self, created: bool) -> Result<Stored, DiskError> {
        let nonce = u64::from_be_bytes(entropy()?);
        Ok(Stored {
            hard_state: self.record.hard_state,
            incarnation: Incarnation { count: self.record.incarnations, nonce },
            disk: self.record.disk,
            peer_disks: self.record.peer_disks.clone(),
            voters: self.record.voters.clone(),
            log: self.record.log,
            log_lost: self.record.log_lost,
            log_reach: self.record.log_reach,
            created,
        })
    }

    /// Writes a record with more peer disks than the one before, unless that would leave too little room for later votes, and for the
    /// disks of voters that were not seen yet.
    ///
    /// If voters change, the disks of former voters are forgotten when their room is needed, except that of `kept`: nodes do not
    /// need them. The only effect is that a former voter that returns under its old name may have another disk without being
    /// noticed.
    fn advance_with_peers(&mut self, mut record: Record, kept: Option<NodeId>) -> Result<(), DiskError> {
        while let Err(error) = record.at_its_longest().encode(&self.path) {
            let gone = record.voters.as_ref().and_then(|voters| {
                let is_gone = |node: &NodeId| !voters.contains(*node) && Some(*node) != kept;
                record.peer_disks.keys().copied().find(is_gone)
            });
            match (error, gone) {
                (DiskError::TooLong { .. }, Some(gone)) => record.peer_disks.remove(&gone),
                (error, _) => return Err(error),
            };
        }
        self.advance(record)
    }

    /// Writes the next record over the older slot.
    fn advance(&mut self, mut record: Record) -> Result<(), DiskError> {
        record.sequence = self.record.sequence.checked_add(1).expect("a disk does not see 2^64 writes");
        let slot = self.newest.other();
        self.write(slot, &record)?;
        self.newest = slot;
        self.record = record;
        Ok(())
    }

    fn write(&mut self, slot: Slot, record: &Record) -> Result<(), DiskError> {
        if let Some(cause) = &self.failed {
            return Err(DiskError::FailedBefore { path: self.path.clone(), cause: cause.clone() });
        }
        self.check_in_place()?;
        // An overlong record is found before anything is written, so it is not a failed write.
        let bytes = record.encode(&self.path)?;
        let written = self.file.write_all_at(&bytes, slot.offset()).and_then(|()| self.file.sync_data());
        written.map_err(|error| {
            self.failed = Some(error.to_string());
            DiskError::io("write", &self.path, error)
        })
    }
}

/// Checks that a state file has room for these voters, in addition to everything else that it must hold.
///
/// # Errors
/// [`DiskError::VotersTooLong`]
pub(crate) fn check_room(members: &BTreeMap<NodeId, Arc<str>>) -> Result<(), DiskError> {
    let of_one =
        |(node, address): (&NodeId, &Arc<str>)| VOTER_OVERHEAD + 2 * node.as_str().len() + address.len();
    let (voters, length) = (members.len(), members.iter().map(of_one).sum());
    if length > VOTERS_LENGTH_MAX { Err(DiskError::VotersTooLong { voters, length }) } else { Ok(()) }
}

/// Creates the file under another name first, so that under its own name it is always complete. The lock is held, so no other
/// process creates it, and a leftover of an earlier attempt may be overwritten.
fn create(dir: &Path, path: &Path, record: &Record) -> Result<(), DiskError> {
    let new = path.with_extension("state.new");
    let second = Record { sequence: record.sequence + 1, ..record.clone() };
    let bytes = [record.encode(path)?, second.encode(path)?].concat();
    let made = make_anew(&new)
        .and_then(|mut file| file.write_all(&bytes).and_then(|()| file.sync_all()))
        .and_then(|()| std::fs::rename(&new, path));
    if let Err(error) = made {
        // Best effort: the next start would overwrite it anyway.
        let _ = std::fs::remove_file(&new);
        return Err(DiskError::io("make", path, error));
    }
    sync_dir(dir)
}

/// The content of one slot.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Record {
    sequence: u64,
    election: String,
    node: NodeId,
    disk: DiskId,
    incarnations: u64,
    hard_state: HardState,
    peer_disks: BTreeMap<NodeId, PeerDisk>,
    voters: Option<Arc<Voters>>,
    log: Option<Durability>,
    log_lost: bool,
    log_reach: LogReach,
}

/// Reads the newer of the two slots.
fn read(path: &Path, file: &File) -> Result<(Slot, Record), DiskError> {
    let mut bytes = Vec::new();
    // One byte more than expected is enough to recognise another file; there is no need to read a terabyte for that.
    let limit = u64::try_from(FILE_LENGTH + 1).expect("two pages");
    file.take(limit).read_to_end(&mut bytes).map_err(|error| DiskError::io("read", path, error))?;
    let path = path.to_owned();
    if bytes.len() != FILE_LENGTH {
        let found = match bytes.len() {
            length if length > FILE_LENGTH => format!("it has more than {FILE_LENGTH} bytes"),
            length => format!("it has {length} bytes in place of {FILE_LENGTH}; it may have been cut short"),
        };
        return Err(DiskError::NotAStateFile { path, found });
    }
    let (first, second) = bytes.split_at(slot::LENGTH);
    let damaged = |found: String| Err(DiskError::Damaged { path: path.clone(), found });
    match (Record::decode(first), Record::decode(second)) {
        (Err(SlotError::Newer(version)), _) | (_, Err(SlotError::Newer(version))) => {
            Err(DiskError::Newer { path, version })
        }
        (Err(SlotError::Magic), Err(SlotError::Magic)) => {
            let found = "it does not begin as one".to_owned();
            Err(DiskError::NotAStateFile { path, found })
        }
        (Ok(record), Err(other)) if other.is_behind(record.sequence) => Ok((Slot::First, record)),
        (Err(other), Ok(record)) if other.is_behind(record.sequence) => Ok((Slot::Second, record)),
        (Ok(_), Err(wrong)) | (Err(wrong), Ok(_)) => {
            damaged(format!("one of its two copies, which may be the newer one, is damaged: {wrong}"))
        }
        (Err(first), Err(second)) => {
            damaged(format!("of the first of its two copies, {first}; of the second, {second}"))
        }
        (Ok(first), Ok(second)) => {
            if (&first.election, first.node, first.disk) != (&second.election, second.node, second.disk) {
                return damaged("its two copies belong to different states".to_owned());
            }
            match (first.sequence, second.sequence) {
                (first_is, second_is) if second_is.checked_add(1) == Some(first_is) => {
                    Ok((Slot::First, first))
                }
                (first_is, second_is) if first_is.checked_add(1) == Some(second_is) => {
                    Ok((Slot::Second, second))
                }
                (first, second) => damaged(format!(
                    "its two copies have the numbers {first} and {second}, and one follows the other"
                )),
            }
        }
    }
}

impl Record {
    fn first(election: &str, node: NodeId) -> Result<Self, DiskError> {
        Ok(Self {
            sequence: 1,
            election: election.to_owned(),
            node,
            disk: DiskId(entropy()?),
            incarnations: 0,
            hard_state: HardState::default(),
            peer_disks: BTreeMap::new(),
            voters: None,
            log: None,
            log_lost: false,
            log_reach: LogReach::default(),
        })
    }

    /// The record with what remains of a lost state.
    fn with(self, remains: Remains) -> Self {
        let Remains { term, promise, disk_state, log_lost } = remains;
        let hard_state = HardState { term, promise, disk_state, ..self.hard_state };
        Self { hard_state, log: Some(Durability::Fsync), log_lost, ..self }
    }

    /// The record with all fields at their greatest length.
    fn at_its_longest(&self) -> Self {
        let node = NodeId::new(&"x".repeat(NodeId::LENGTH_MAX)).expect("a name may be so long");
        let voted_for = Identity::new(node, Incarnation { count: u64::MAX, nonce: u64::MAX });
        let hard_state = HardState {
            term: Term(u64::MAX),
            voted_for: Some(voted_for),
            promise: Duration::from_nanos(u64::MAX),
            disk_state: DiskState::Recovered,
        };
        let log = Some(Durability::Memory);
        let last = LeaderSequence { term: Term(u64::MAX), counter: u64::MAX };
        let log_reach = LogReach { segment: u64::MAX, last };
        let mut longest =
            Self { incarnations: u64::MAX, hard_state, log, log_lost: true, log_reach, ..self.clone() };
        for &voter in
            self.voters.iter().flat_map(|voters| voters.members.keys()).filter(|voter| **voter != self.node)
        {
            longest.peer_disks.entry(voter).or_insert_with(|| PeerDisk::first(self.disk));
        }
        longest
    }

    /// Encodes the record as a slot.
    fn encode(&self, path: &Path) -> Result<Vec<u8>, DiskError> {
        let peer_disk = |(node, known): (&NodeId, &PeerDisk)| format::PeerDisk {
            node: node.as_str().to_owned(),
            disk: known.disk.0.to_vec(),
            readmitted: known.readmitted,
            former: known.former.iter().map(|disk| disk.0.to_vec()).collect(),
        };
        let voted_for = self.hard_state.voted_for.map(|identity| format::VotedFor {
            node: identity.node.as_str().to_owned(),
            count: identity.incarnation.count,
            nonce: identity.incarnation.nonce,
        });
        let record = format::Record {
            election: self.election.clone(),
            node: self.node.as_str().to_owned(),
            disk: self.disk.0.to_vec(),
            incarnations: self.incarnations,
            term: self.hard_state.term.0,
            voted_for,
            promise_nanos: self.hard_state.promise.as_nanos(),
            peer_disks: self.peer_disks.iter().map(peer_disk).collect(),
            disk_state: match self.hard_state.disk_state {
                DiskState::Intact => format::DiskState::Intact,
                DiskState::Lost => format::DiskState::Lost,
                DiskState::Recovered => format::DiskState::Recovered,
            }
            .into(),
            voters: self.voters.as_deref().map(format::Voters::from),
            log_lost: self.log_lost,
            log: match self.log {
                None => format::Log::None,
                Some(Durability::Fsync) => format::Log::Fsync,
                Some(Durability::Memory) => format::Log::Memory,
            }
            .into(),
            log_reach: (self.log_reach != LogReach::default()).then_some(format::LogReach {
                segment: self.log_reach.segment,
                term: self.log_reach.last.term.0,
                counter: self.log_reach.last.counter,
            }),
        };
        let says_of_log = self.log.is_some() || record.log_lost || record.log_reach.is_some();
        let is_plain = record.voters.is_none() && !says_of_log;
        let version = if is_plain { VERSION_PLAIN } else { VERSION };
        let record = record.encode_to_vec();
        if record.len() > RECORD_LENGTH_MAX {
            return Err(DiskError::TooLong { path: path.to_owned(), length: record.len() });
        }
        Ok(seal(version, self.sequence, &record))
    }

    fn decode(slot: &[u8]) -> Result<Self, SlotError> {
        let is_known = |version: &u32| (VERSION_PLAIN..=VERSION).contains(version);
        if let Some(version) = slot::version(slot).filter(|version| !is_known(version)) {
            return Err(SlotError::Newer(version));
        }
        let Content { sequence, record, .. } = unseal(slot)?;
        let record = format::Record::decode(record.as_slice())
            .map_err(|error| SlotError::Record(error.to_string()))?;
        let disk = |bytes: Vec<u8>| bytes.try_into().map(DiskId).map_err(|_| wrong("a disk id"));
        let node = |name: &str| NodeId::new(name).map_err(|_| wrong("a node name"));
        let voted_for = record.voted_for.map(|vote| {
            let incarnation = Incarnation { count: vote.count, nonce: vote.nonce };
            node(&vote.node).map(|node| Identity::new(node, incarnation))
        });
        let disk_state = match format::DiskState::try_from(record.disk_state)
            .map_err(|_| wrong("the state of its disk"))?
        {
            format::DiskState::Intact => DiskState::Intact,
            format::DiskState::Lost => DiskState::Lost,
            format::DiskState::Recovered => DiskState::Recovered,
        };
        let peer_disk = |peer: format::PeerDisk| {
            let former = peer.former.into_iter().map(disk).collect::<Result<_, SlotError>>()?;
            Ok((node(&peer.node)?, PeerDisk { disk: disk(peer.disk)?, readmitted: peer.readmitted, former }))
        };
        let peer_disks = record.peer_disks.into_iter().map(peer_disk).collect::<Result<_, SlotError>>()?;
        Ok(Self {
            sequence,
            election: record.election,
            node: node(&record.node)?,
            disk: disk(record.disk)?,
            incarnations: record.incarnations,
            hard_state: HardState {
                term: Term(record.term),
                voted_for: voted_for.transpose()?,
                promise: Duration::from_nanos(record.promise_nanos),
                disk_state,
            },
            peer_disks,
            voters: record.voters.map(|voters| voters.parse().map(Arc::new)).transpose()?,
            log: match format::Log::try_from(record.log).map_err(|_| wrong("how the log is kept"))? {
                format::Log::None => None,
                format::Log::Fsync => Some(Durability::Fsync),
                format::Log::Memory => Some(Durability::Memory),
            },
            log_lost: record.log_lost,
            log_reach: record.log_reach.map_or_else(LogReach::default, |reach| LogReach {
                segment: reach.segment,
                last: LeaderSequence { term: Term(reach.term), counter: reach.counter },
            }),
        })
    }
}

fn wrong(field: &str) -> SlotError {
    SlotError::Record(format!("{field} has a value that is not allowed"))
}

impl From<&Voters> for format::Voters {
    fn from(voters: &Voters) -> Self {
        let voter = |(node, address): (&NodeId, &Arc<str>)| format::Voter {
            node: node.as_str().to_owned(),
            address: address.as_ref().to_owned(),
        };
        let LeaderSequence { term, counter } = voters.number;
        Self { term: term.0, counter, members: voters.members.iter().map(voter).collect() }
    }
}

impl format::Voters {
    fn parse(self) -> Result<Voters, SlotError> {
        let number = LeaderSequence { term: Term(self.term), counter: self.counter };
        let mut members = BTreeMap::new();
        for voter in self.members {
            let node = NodeId::new(&voter.node).map_err(|_| wrong("a voter's name"))?;
            if members.insert(node, voter.address.into()).is_some() {
                return Err(wrong("the list of voters"));
            }
        }
        Ok(Voters { number, members })
    }
}

#[cfg(test)]
mod tests;
