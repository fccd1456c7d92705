//! How long an append takes, beside the same bytes in a file of zeros with nothing to it.
//!
//! `PRIMACY_LOG_ROUNDS=2000 cargo test --release -p primacy --lib log_file::tests::figures -- --nocapture` prints a table.

use std::time::{Duration, Instant};

use super::*;

/// How often each append is tried where nothing else is said: enough to see that it works.
const ROUNDS: usize = 12;

/// A bare file of so much room, in advance or not.
enum Room {
    None,
    Allocated,
    Zeros,
}

fn median_and_worst(mut times: Vec<Duration>) -> String {
    times.sort();
    let at = |part: usize| times[(times.len() - 1) * part / 100].as_micros();
    format!("{:>6} {:>6} {:>6}", at(50), at(99), at(100))
}

/// The time of each of so many writes with a flush of this many bytes.
fn bare(dir: &Dir, room: &Room, length: usize, rounds: usize) -> Vec<Duration> {
    let file = create(&dir.0.join("bare")).unwrap();
    let whole = length * rounds;
    match room {
        Room::None => {}
        Room::Allocated => {
            let flags = rustix::fs::FallocateFlags::empty();
            rustix::fs::fallocate(&file, flags, 0, whole as u64).unwrap();
        }
        Room::Zeros => file.write_all_at(&vec![0; whole], 0).unwrap(),
    }
    file.sync_all().unwrap();
    let bytes = vec![0xa5; length];
    let round = |index: usize| {
        let began = Instant::now();
        file.write_all_at(&bytes, (index * length) as u64).unwrap();
        file.sync_data().unwrap();
        began.elapsed()
    };
    (0..rounds).map(round).collect()
}

#[test]
fn appends_of_one_and_of_many_records() {
    let rounds = std::env::var("PRIMACY_LOG_ROUNDS").map_or(ROUNDS, |rounds| rounds.parse().unwrap());
    println!("µs per append: median, 99th of 100, worst");
    for count in [1, 16, 256] {
        let dir = Dir::new();
        let (mut log, ..) = dir.open().unwrap();
        log.write(&Write::Append(vec![begin(1, LeaderSequence::NONE)])).unwrap();
        let mut last = number(1, 1);
        let mut times = Vec::new();
        for _ in 0..rounds {
            let records: Vec<Record> =
                (1..=count).map(|more| payload(1, last.counter + more, &[0xa5; 300])).collect();
            last.counter += count;
            let write = Write::Append(records);
            let began = Instant::now();
            log.write(&write).unwrap();
            times.push(began.elapsed());
        }
        println!("{count:>4} records              {}", median_and_worst(times));
        drop(log);
        let stored = dir.open().unwrap().1;
        assert_eq!(stored.records.len() as u64, count * rounds as u64 + 1);
        let length = usize::try_from(count).unwrap() * 312 + BLOCK_HEADER_LENGTH;
        for (name, room) in [("growing", Room::None), ("allocated", Room::Allocated), ("zeros", Room::Zeros)]
        {
            println!("{:>4} bare, {name:<15} {}", "", median_and_worst(bare(&dir, &room, length, rounds)));
        }
    }
}
