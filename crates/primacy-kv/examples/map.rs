//! The speed of the replicated map on one core, and the memory of an entry.
//!
//! `cargo run --release -p primacy-core --example map [KEYS [VALUE_BYTES]]`

use std::time::Instant;

use primacy_core::rng::Rng;
use primacy_core::{Identity, Incarnation, NodeId};
use primacy_kv::command::{
    Applied, Bytes, Command, Keys, Limits, Operation, Previous, Read, Replace, Request, Version, Write,
};
use primacy_kv::state::State;

const KEYS: u64 = 1_000_000;
const VALUE_BYTES: u64 = 100;
/// The size of a page, by which the kernel counts memory.
const PAGE_BYTES: u64 = 4096;

fn main() {
    let mut numbers = std::env::args().skip(1).map(|text| text.parse::<u64>().expect("a number"));
    let keys = numbers.next().unwrap_or(KEYS);
    let value = vec![b'v'; usize::try_from(numbers.next().unwrap_or(VALUE_BYTES)).expect("it fits")];
    let mut bench = Bench { state: State::new(), sequence: 0 };
    bench.apply(Command::Limit(Limits { quota: u64::MAX, ..Limits::default() }));
    let mut rng = Rng::new(1);
    let mut order: Vec<u64> = (0..keys).collect();
    for index in (1..keys).rev() {
        order.swap(
            usize::try_from(index).expect("it fits"),
            usize::try_from(rng.up_to(index)).expect("it fits"),
        );
    }
    let empty = resident();
    measure("new keys, in any order", keys, || {
        for &number in &order {
            bench.write(&key(number), &value);
        }
    });
    bench.tell("they are all in the history");
    let version = bench.state.version();
    bench.apply(Command::Compact(version));
    for _ in 0..keys / 30 {
        bench.apply(Command::Compact(Version(0)));
    }
    bench.tell("and compacted");
    println!("{} bytes of memory an entry", (resident() - empty) / keys);
    measure("keys written again, in any order", keys, || {
        for _ in 0..keys {
            bench.write(&key(rng.up_to(keys - 1)), &value);
        }
    });
    bench.tell("each write compacts what one has left");
    measure("one key", keys, || {
        for _ in 0..keys {
            bench.write(&key(0), &value);
        }
    });
    measure("read as it is", keys, || {
        for _ in 0..keys {
            let read = Read::of(Keys::One(Bytes::from(key(rng.up_to(keys - 1)))));
            assert_eq!(bench.state.read(&read).expect("it is there").count, 1);
        }
    });
    let (first, last) = (bench.state.compacted().expect("it was compacted").0, bench.state.version().0);
    measure("one key as it was", keys, || {
        for _ in 0..keys {
            let at = Some(Version(first + rng.up_to(last - first)));
            let read = Read { at, ..Read::of(Keys::One(Bytes::from(key(0)))) };
            assert_eq!(bench.state.read(&read).expect("it is there").count, 1);
        }
    });
    let begin = Instant::now();
    let snapshot = bench.state.snapshot();
    println!("a snapshot of {} MB in {:?}", snapshot.len() >> 20, begin.elapsed());
    let begin = Instant::now();
    let restored = State::restore(&snapshot).expect("it is one");
    println!("restored in {:?}", begin.elapsed());
    assert_eq!(restored.version(), bench.state.version());
}

struct Bench {
    state: State,
    sequence: u64,
}

impl Bench {
    fn apply(&mut self, command: Command) {
        self.sequence += 1;
        let incarnation = Incarnation { count: 1, nonce: 1 };
        let client = Identity { node: NodeId::new("n1").expect("a name"), incarnation };
        // Encoded and decoded, as on a replica, which gets bytes.
        let request = Request { client, sequence: self.sequence, done_below: self.sequence, command };
        let request = Request::decode(&request.encode()).expect("it was encoded");
        assert!(matches!(self.state.apply(&request), Applied::First(_)));
    }

    fn write(&mut self, key: &[u8], value: &[u8]) {
        let (key, value) = (Bytes::from(key), Replace::With(Bytes::from(value)));
        let (session, previous) = (Replace::With(None), Previous::Unwanted);
        self.apply(Command::Operate(Operation::Write(Write { key, value, session, previous })));
    }

    fn tell(&self, when: &str) {
        println!("{} MB resident, {when}: {:?}", resident() >> 20, self.state.size());
    }
}

fn key(number: u64) -> Vec<u8> {
    format!("/service/{number:011}").into_bytes()
}

fn measure(what: &str, times: u64, work: impl FnOnce()) {
    let begin = Instant::now();
    work();
    let nanos = begin.elapsed().as_nanos() / u128::from(times);
    println!("{what}: {nanos} ns each, {} a second", 1_000_000_000 / nanos.max(1));
}

/// The resident memory of the process, in bytes.
fn resident() -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").expect("only where there is /proc");
    let pages = text.split_whitespace().nth(1).and_then(|pages| pages.parse::<u64>().ok());
    pages.expect("a number") * PAGE_BYTES
}
