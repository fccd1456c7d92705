//! A state file that was torn, cut, flipped or forged is refused or has its former content, and never a mixture.

use std::io::{Seek as _, SeekFrom, Write as _};

use primacy_fuzz::Draw;

use super::*;

#[test]
fn state_file() {
    let dir = Dir::new();
    let path = dir.0.join("state");
    let paper = Paper(File::options().create_new(true).read(true).write(true).open(&path).unwrap());
    // The open file has no name any more, so nothing is left behind when a fuzzer ends the process.
    drop(dir);
    primacy_fuzz::hold("state_file", move |bytes| {
        let mut draw = Draw::new(bytes);
        match draw.byte() % 3 {
            0 => damaged(&paper, &mut draw),
            1 => forged(&paper, &mut draw),
            _ => foreign(&paper, draw.rest()),
        }
    });
}

/// A file that is written and never flushed: these tests do not depend on a disk.
struct Paper(File);

impl Paper {
    fn read(&self, bytes: &[u8]) -> Result<(Slot, Record), DiskError> {
        let mut file = &self.0;
        file.set_len(0).unwrap();
        file.seek(SeekFrom::Start(0)).unwrap();
        file.write_all(bytes).unwrap();
        file.seek(SeekFrom::Start(0)).unwrap();
        read(Path::new("state"), file)
    }
}

/// A file with the last two states of a node, and a third that was torn while it was written over the first, and damage. What is
/// read is exactly the second or the third state, and never the first. If that cannot be known, or if the file was cut, it is
/// refused.
fn damaged(paper: &Paper, draw: &mut Draw<'_>) {
    let first = Record { sequence: draw.number().min(u64::MAX - 2), ..drawn_record(draw) };
    let after = |record: &Record, draw: &mut Draw<'_>| {
        let (sequence, election) = (record.sequence + 1, record.election.clone());
        Record { sequence, election, node: record.node, disk: record.disk, ..drawn_record(draw) }
    };
    let second = after(&first, draw);
    let third = after(&second, draw);
    let states = [first, second, third];
    let written: Result<Vec<Vec<u8>>, DiskError> =
        states.iter().map(|state| state.encode(Path::new("state"))).collect();
    let Ok(written) = written else { return }; // One is too long to be written, and so never is.
    for (state, slot) in states.iter().zip(&written) {
        assert_eq!(Record::decode(slot).as_ref(), Ok(state));
    }
    // The third state overwrites the first, and was not acknowledged.
    let mut bytes = [written[0].as_slice(), &written[1]].concat();
    tear(&mut bytes[..slot::LENGTH], &written[2], draw);
    let torn = bytes[..slot::LENGTH].to_vec();
    burst(&mut bytes[..slot::LENGTH], draw);
    burst(&mut bytes[slot::LENGTH..], draw);
    let (one, two) = bytes.split_at(slot::LENGTH);
    match paper.read(&bytes) {
        Ok((Slot::First, found)) => assert!(found == states[2] && one == written[2], "{found:?}"),
        Ok((Slot::Second, found)) => assert!(found == states[1] && two == written[1], "{found:?}"),
        Err(DiskError::Damaged { .. } | DiskError::NotAStateFile { .. }) => {
            assert!(one != torn || two != written[1], "a write that was interrupted is no damage");
        }
        Err(error) => panic!("{error}"),
    }
    bytes.truncate(usize::from(draw.short()) % FILE_LENGTH);
    assert!(matches!(paper.read(&bytes), Err(DiskError::NotAStateFile { .. })));
}

/// Writes some of the sectors of a state over the slot.
fn tear(slot: &mut [u8], written: &[u8], draw: &mut Draw<'_>) {
    let sectors = draw.byte();
    let pairs = slot.chunks_mut(slot::SECTOR_LENGTH).zip(written.chunks(slot::SECTOR_LENGTH));
    for (_, (to, from)) in pairs.enumerate().filter(|(index, _)| sectors >> index & 1 == 1) {
        to.copy_from_slice(from);
    }
}

/// Flips bits of up to four adjacent bytes. A checksum of 32 bits always detects that, unless the bytes are partly its
/// own.
fn burst(slot: &mut [u8], draw: &mut Draw<'_>) {
    let at = usize::from(draw.short()) % slot::LENGTH;
    let sector = at / slot::SECTOR_LENGTH * slot::SECTOR_LENGTH;
    let sum = if sector == 0 { 12 } else { sector };
    let end = [sum, sum + 4, sector + slot::SECTOR_LENGTH].into_iter().find(|end| at < *end).unwrap();
    let flips = draw.bytes().iter().take(4);
    slot[at..end].iter_mut().zip(flips).for_each(|(byte, flip)| *byte ^= flip);
}

/// Slots with right checksums and any record: if it can be read, it can be written, and then reads the same.
fn forged(paper: &Paper, draw: &mut Draw<'_>) {
    let version = u32::from(draw.byte() % 4);
    let (sequences, length) = ([draw.number(), draw.number()], usize::from(draw.short()));
    let (first, second) = draw.rest().split_at(length.min(draw.rest().len()));
    let slot =
        |sequence, record: &[u8]| seal(version, sequence, &record[..record.len().min(RECORD_LENGTH_MAX)]);
    let slots = [slot(sequences[0], first), slot(sequences[1], second)];
    match paper.read(&slots.concat()) {
        Ok((newest, record)) => {
            assert!(is_known(version));
            let [first, second] = slots.map(|slot| Record::decode(&slot));
            let (said, other) = if newest == Slot::First { (first, second) } else { (second, first) };
            assert_eq!(said.as_ref(), Ok(&record));
            if let Ok(other) = other {
                assert_eq!(other.sequence + 1, record.sequence);
                assert_eq!(
                    (other.election, other.node, other.disk),
                    (record.election.clone(), record.node, record.disk)
                );
            }
            let again = record.encode(Path::new("state")).unwrap();
            assert_eq!(Record::decode(&again).as_ref(), Ok(&record));
            let before = Record { sequence: record.sequence - 1, ..record.clone() };
            let before = before.encode(Path::new("state")).unwrap();
            assert_eq!(paper.read(&[again, before].concat()).unwrap(), (Slot::First, record));
        }
        Err(DiskError::Newer { version: found, .. }) => assert!(found == version && !is_known(version)),
        Err(DiskError::Damaged { .. }) => assert!(is_known(version)),
        Err(error) => panic!("{error}"),
    }
}

fn is_known(version: u32) -> bool {
    [VERSION_PLAIN, VERSION].contains(&version)
}

/// Any bytes: they are refused, or they are an intact file.
fn foreign(paper: &Paper, bytes: &[u8]) {
    if bytes.len() != FILE_LENGTH {
        assert!(matches!(paper.read(bytes), Err(DiskError::NotAStateFile { .. })));
    }
    let mut filled = bytes.to_vec();
    filled.resize(FILE_LENGTH, 0);
    if let Ok((slot, _)) = paper.read(&filled) {
        let at = usize::try_from(slot.offset()).unwrap();
        assert!(unseal(&filled[at..at + slot::LENGTH]).is_ok());
    }
}

fn drawn_record(draw: &mut Draw<'_>) -> Record {
    let voted_for = (draw.byte() % 2 == 1).then(|| {
        let incarnation = Incarnation { count: draw.number(), nonce: draw.number() };
        Identity::new(name(draw), incarnation)
    });
    Record {
        sequence: draw.number(),
        election: draw.text(),
        node: name(draw),
        disk: disk(draw),
        incarnations: draw.number(),
        hard_state: HardState {
            term: Term(draw.number()),
            voted_for,
            promise: Duration::from_nanos(draw.number()),
            disk_state: draw.one_of(&[DiskState::Intact, DiskState::Lost, DiskState::Recovered]),
        },
        peer_disks: (0..draw.byte() % 5).map(|_| (name(draw), drawn_peer(draw))).collect(),
        voters: (draw.byte() % 2 == 1).then(|| drawn_voters(draw)),
        log: draw.one_of(&[None, Some(Durability::Fsync), Some(Durability::Memory)]),
        log_lost: draw.one_of(&[false, true]),
        log_reach: LogReach {
            segment: draw.number(),
            last: LeaderSequence { term: Term(draw.number()), counter: draw.number() },
        },
    }
}

fn drawn_voters(draw: &mut Draw<'_>) -> Arc<Voters> {
    let number = LeaderSequence { term: Term(draw.number()), counter: draw.number() };
    let members = (0..draw.byte() % 5).map(|_| (name(draw), draw.text().into())).collect();
    Arc::new(Voters { number, members })
}

fn drawn_peer(draw: &mut Draw<'_>) -> PeerDisk {
    let former = (0..draw.byte() % 4).map(|_| disk(draw)).collect();
    PeerDisk { disk: disk(draw), readmitted: draw.byte() % 2 == 1, former }
}

fn disk(draw: &mut Draw<'_>) -> DiskId {
    DiskId([draw.byte(); DiskId::LENGTH])
}

fn name(draw: &mut Draw<'_>) -> NodeId {
    NodeId::new(draw.one_of(&["a", "b", "c", "node-1.example:7401"])).unwrap()
}
