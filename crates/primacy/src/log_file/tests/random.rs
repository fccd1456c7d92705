//! Long random sequences of writes, with crashes between them, compared with a model.

use primacy_core::rng::Rng;

use super::*;

/// Draws the next write.
struct Drawn {
    random: Rng,
    twin: Twin,
    last: LeaderSequence,
}

impl Drawn {
    fn up_to(&mut self, max: u64) -> usize {
        usize::try_from(self.random.up_to(max)).unwrap()
    }

    fn record(&mut self) -> Record {
        let record = match self.random.up_to(9) {
            0 => begin(self.last.term.0 + 1 + self.random.up_to(2), self.last),
            _ if self.last == LeaderSequence::NONE => begin(1, self.last),
            1 => Record { number: self.last.next(), body: RecordBody::Voters(voters(self.last.next())) },
            _ => {
                let length = if self.random.up_to(30) == 0 { 2_000 } else { self.up_to(150) };
                let bytes: Vec<u8> = (0..length).map(|_| self.random.next_u64().to_be_bytes()[0]).collect();
                payload(self.last.term.0, self.last.counter + 1, &bytes)
            }
        };
        self.last = record.number;
        record
    }

    fn write(&mut self) -> Write {
        let write = if self.random.up_to(15) > 0 {
            Write::Append((0..self.up_to(6)).map(|_| self.record()).collect())
        } else {
            let state = vec![7; self.up_to(3_000)];
            let records = self.twin.0.records.len();
            if records == 0 || self.random.up_to(4) == 0 {
                let above = number(self.last.term.0 + self.random.up_to(1), self.last.counter + 1);
                self.last = above;
                Write::Snapshot(snapshot(above, &state))
            } else {
                let at = self.up_to(records as u64 - 1);
                Write::Snapshot(snapshot(self.twin.0.records[at].number, &state))
            }
        };
        self.twin.write(&write);
        write
    }
}

/// Writes some sectors of a block after the last one, as a crash may leave them; returns whether any of it is visible.
fn tear(log: &mut LogFile, random: &mut Rng) -> bool {
    const SECTOR_LENGTH: usize = 512;
    let Some(active) = &log.active else { return false };
    let content: Vec<u8> = (0..1_500).map(|_| random.next_u64().to_be_bytes()[0]).collect();
    let at = usize::try_from(active.end).unwrap();
    let block = block(&active.id, at, &content);
    let length = segment::length_for(active.end + block.len() as u64, active.step).max(active.length);
    active.file.set_len(length).unwrap();
    let (first, last) = (at / SECTOR_LENGTH, (at + block.len() - 1) / SECTOR_LENGTH);
    let missing = first + usize::try_from(random.up_to((last - first) as u64)).unwrap();
    let mut is_seen = false;
    for sector in (first..=last).filter(|&sector| sector != missing) {
        if random.up_to(2) > 0 {
            let from = (sector * SECTOR_LENGTH).max(at);
            let to = ((sector + 1) * SECTOR_LENGTH).min(at + block.len());
            active.file.write_all_at(&block[from - at..to - at], from as u64).unwrap();
            is_seen = true;
        }
    }
    is_seen
}

#[test]
fn whatever_is_written_in_whatever_order_is_found_again() {
    let mut counts = [0; 4];
    for seed in 1..=8 {
        let dir = Dir::new();
        let mut drawn = Drawn { random: Rng::new(seed), twin: Twin::default(), last: LeaderSequence::NONE };
        let (mut log, ..) = dir.open_small().unwrap();
        for _ in 0..120 {
            let writes: Vec<Write> = (0..=drawn.up_to(2)).map(|_| drawn.write()).collect();
            log.write_many(&writes).unwrap();
            counts[0] = counts[0].max(log.segments.len());
            counts[1] += usize::from(writes.iter().any(|write| matches!(write, Write::Snapshot(_))));
            if drawn.random.up_to(3) > 0 {
                continue;
            }
            let torn = drawn.random.up_to(1) == 0 && tear(&mut log, &mut drawn.random);
            drop(log);
            let (again, stored, found) = dir.open_small().unwrap();
            assert_eq!(stored, drawn.twin.0, "seed {seed}");
            assert_eq!(found.len(), usize::from(torn), "seed {seed}");
            counts[2] += 1;
            counts[3] += usize::from(torn);
            log = again;
        }
    }
    // Segments, snapshots, openings, and torn tails all occurred: the test was not vacuous.
    assert!(counts.iter().zip([5, 60, 100, 30]).all(|(count, least)| *count >= least), "{counts:?}");
}
