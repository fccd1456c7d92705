//! Durations of an append, compared with writing the same bytes to a bare file.
//!
//! `PRIMACY_LOG_ROUNDS=2000 cargo test --release -p primacy --lib log_file::tests::figures -- --nocapture` prints a table.
//! The columns are measured in turns, so that other load of the machine affects all of them.

use std::time::{Duration, Instant};

use super::*;

/// The default number of rounds per append: enough to show that it works.
const ROUNDS: usize = 12;
/// The length of each record's payload, in bytes.
const LENGTH: usize = 300;

/// A destination of writes and flushes.
trait Written {
    /// Writes and flushes `count` records of [`LENGTH`] bytes.
    fn write(&mut self, count: u64);
}

/// A log with this step of preallocated zeros.
struct Logged {
    dir: Dir,
    log: LogFile,
    last: LeaderSequence,
}

impl Logged {
    fn new(step: u64) -> Self {
        let dir = Dir::new();
        let limits = Limits { step, ..Limits::default() };
        let (mut log, ..) = dir.open_with(limits).unwrap();
        log.write(&Write::Append(vec![begin(1, LeaderSequence::NONE)])).unwrap();
        Self { dir, log, last: number(1, 1) }
    }
}

impl Written for Logged {
    fn write(&mut self, count: u64) {
        let records = (1..=count).map(|more| payload(1, self.last.counter + more, &[0xa5; LENGTH]));
        self.log.write(&Write::Append(records.collect())).unwrap();
        self.last.counter += count;
    }
}

/// The preallocated space of a bare file.
enum Room {
    None,
    Places,
    Zeros,
}

/// A bare file that gets as many bytes as a block would have.
struct Bare {
    _dir: Dir,
    file: File,
    end: u64,
}

impl Bare {
    fn new(room: &Room, whole: usize) -> Self {
        let dir = Dir::new();
        let file = disk::make_anew(&dir.0.join("bare")).unwrap();
        match room {
            Room::None => {}
            Room::Places => {
                let flags = rustix::fs::FallocateFlags::empty();
                rustix::fs::fallocate(&file, flags, 0, whole as u64).unwrap();
            }
            Room::Zeros => file.write_all_at(&vec![0; whole], 0).unwrap(),
        }
        file.sync_all().unwrap();
        Self { _dir: dir, file, end: 0 }
    }
}

impl Written for Bare {
    fn write(&mut self, count: u64) {
        let bytes = vec![0xa5; bytes_of(count)];
        self.file.write_all_at(&bytes, self.end).unwrap();
        self.file.sync_data().unwrap();
        self.end += bytes.len() as u64;
    }
}

/// The approximate length of a block of `count` records.
fn bytes_of(count: u64) -> usize {
    usize::try_from(count).unwrap() * (LENGTH + 10) + BLOCK_HEADER_LENGTH
}

fn row(name: &str, mut times: Vec<Duration>) {
    times.sort();
    let at = |part: usize| times[(times.len() - 1) * part / 100].as_micros();
    println!("     {name:<24} {:>6} {:>6} {:>6}", at(50), at(99), at(100));
}

#[test]
fn appends_of_one_and_of_many_records() {
    let rounds = std::env::var("PRIMACY_LOG_ROUNDS").map_or(ROUNDS, |rounds| rounds.parse().unwrap());
    println!("µs per append                  median  99 %  worst");
    for count in [1, 16, 256] {
        let whole = bytes_of(count) * rounds;
        let [mut shorter, mut log, mut longer] = [STEP / 4, STEP, STEP * 4].map(Logged::new);
        let mut bare = [Room::None, Room::Places, Room::Zeros].map(|room| Bare::new(&room, whole));
        let [growing, places, zeros] = &mut bare;
        let mut columns: [(&str, &mut dyn Written, Vec<Duration>); 6] = [
            ("log", &mut log, vec![]),
            ("log, a fourth of the step", &mut shorter, vec![]),
            ("log, four times the step", &mut longer, vec![]),
            ("bare, growing", growing, vec![]),
            ("bare, places in advance", places, vec![]),
            ("bare, zeros in advance", zeros, vec![]),
        ];
        for _ in 0..rounds {
            for (_, written, times) in &mut columns {
                let began = Instant::now();
                written.write(count);
                times.push(began.elapsed());
            }
        }
        println!("{count} records");
        for (name, _, times) in columns {
            row(name, times);
        }
        drop(log.log);
        assert_eq!(log.dir.open().unwrap().1.records.len() as u64, count * rounds as u64 + 1);
    }
}
