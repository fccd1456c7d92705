//! Rivals for one record: each writes it again and again, and records its requests with their answers.

use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use primacy_core::FencingToken;
use primacy_core::election::lease::{Record, Version};
use primacy_core::rng::Rng;
use primacy_stores::faulty::{Fault, FaultSwitch, FaultyRegister};
use primacy_stores::{ReadError, Register, SetError};

use crate::history::{Kind, Operation};

/// The prefix of each line of a rival's process.
pub(crate) const LINE: &str = "primacy-rival ";
/// The last line of a rival's process.
const END: &str = "primacy-rival has ended";

/// The longest time for which a store may answer that it is unavailable, in nanoseconds.
const UNAVAILABLE_MAX: u64 = 60_000_000_000;

/// The environment variable of a rival's process: the URL, the election, its number and the last token, one per line.
const ROLE_VARIABLE: &str = "PRIMACY_TEST_RIVAL";

/// The environment variable with the seed of a rival's faults.
pub(crate) const FAULTS_VARIABLE: &str = "PRIMACY_TEST_RIVAL_FAULTS";

/// A rival.
struct Rival<F> {
    register: Arc<dyn Register>,
    number: u64,
    faults: Option<Faults>,
    note: F,
    /// A version from before the latest read.
    old: Option<Version>,
}

/// The faults of its requests.
struct Faults {
    rng: Rng,
    switch: FaultSwitch,
}

/// The plan for a request with a fault.
enum Plan {
    Wait,
    /// To abandon it after sending: it may be delivered at any time.
    GiveUp,
}

impl Faults {
    fn draw(&mut self) -> Plan {
        let delay = Duration::from_micros(self.rng.up_to(3_000));
        let (fault, plan) = match self.rng.up_to(23) {
            0 | 1 => (Fault::LoseReply, Plan::Wait),
            2 | 3 => (Fault::LoseRequest, Plan::Wait),
            4 => (Fault::Unavailable, Plan::Wait),
            5 | 6 => (Fault::Delay(delay), Plan::Wait),
            7 | 8 => (Fault::Delay(delay), Plan::GiveUp),
            _ => (Fault::None, Plan::Wait),
        };
        self.switch.next(fault);
        plan
    }
}

/// Increments the token whenever no other rival was faster, until it is `last` or higher. Each operation is passed to
/// `note` once its outcome is known, and a write also before it is sent. With a seed in `faults`, requests are
/// delayed, lost, or abandoned and delivered late, replies are lost, and some writes name an old version.
///
/// # Panics
/// If the record is malformed, or cannot be read for a minute.
pub async fn play(
    register: Arc<dyn Register>,
    number: u64,
    last: u64,
    faults: Option<u64>,
    note: impl FnMut(Operation),
) {
    let (register, faults) = match faults {
        None => (register, None),
        Some(seed) => {
            let (faulty, switch) = FaultyRegister::new(register);
            let rng = Rng::new(seed.wrapping_add(number));
            (Arc::new(faulty) as Arc<dyn Register>, Some(Faults { rng, switch }))
        }
    };
    let mut rival = Rival { register, number, faults, note, old: None };
    loop {
        let found = rival.read().await;
        let (token, version) = found.map_or((0, None), |(record, version)| (record.token.0, Some(version)));
        if token >= last {
            return;
        }
        rival.write(version, token + 1).await;
        tokio::task::yield_now().await;
    }
}

impl<F: FnMut(Operation)> Rival<F> {
    async fn read(&mut self) -> Option<(Record, Version)> {
        let asked = now();
        loop {
            if let Some(faults) = &mut self.faults {
                faults.draw();
            }
            let start = now();
            let found = match self.register.read().await {
                Ok(found) => found,
                // With many rivals a store may be too busy, and after a kill it may need time for its recovery.
                Err(ReadError::Unavailable { .. }) if start < asked + UNAVAILABLE_MAX => {
                    tokio::time::sleep(Duration::from_millis(1)).await;
                    continue;
                }
                Err(error) => panic!("a rival cannot read: {error}"),
            };
            let (token, writer) = found.as_ref().map_or((0, 0), |(record, _)| (record.token.0, record.nonce));
            let version = found.as_ref().map_or_else(String::new, |(_, version)| hexadecimal(version));
            self.tell(start, token, Kind::Read { writer, version });
            return found;
        }
    }

    async fn write(&mut self, newest: Option<Version>, token: u64) {
        let mut expect = newest.clone();
        let mut plan = Plan::Wait;
        if let Some(faults) = &mut self.faults {
            if faults.rng.up_to(9) == 0 && self.old.is_some() {
                expect = self.old.clone();
            }
            plan = faults.draw();
        }
        self.old = newest;
        let start = now();
        self.tell(start, token, Kind::Begun { expect: expect.as_ref().map(hexadecimal).unwrap_or_default() });
        let (register, number) = (Arc::clone(&self.register), self.number);
        let kind = match plan {
            Plan::Wait => match take(&*register, expect.as_ref(), number, token).await {
                Ok(version) => Kind::Won { version: hexadecimal(&version) },
                Err(SetError::Conflict) => Kind::Conflict,
                Err(SetError::Unavailable { .. }) => Kind::Failed,
                Err(SetError::Unknown { .. }) => Kind::Unknown,
            },
            Plan::GiveUp => {
                // Its outcome is never awaited, not even at the end.
                drop(tokio::spawn(async move { take(&*register, expect.as_ref(), number, token).await }));
                Kind::Unknown
            }
        };
        self.tell(start, token, kind);
    }

    fn tell(&mut self, start: u64, token: u64, kind: Kind) {
        (self.note)(Operation { rival: self.number, start, end: now(), token, kind });
    }
}

/// Writes a record with the rival as holder, identified by its nonce.
pub(crate) async fn take(
    register: &dyn Register,
    expect: Option<&Version>,
    number: u64,
    token: u64,
) -> Result<Version, SetError> {
    let mut record = Record::released(FencingToken(token), primacy_core::Duration::from_secs(10));
    record.nonce = number;
    register.compare_and_set(expect, &record).await
}

/// Returns the command that runs this test program as a rival on its own handle in the store of `url`: only the test
/// `play_as_a_rival`, which calls [`play_if_told`].
///
/// # Panics
/// If the path of the test program is unknown.
/// If a test does not know its own program.
#[must_use]
pub fn command(url: &str, election: &str, number: u64, last: u64) -> Command {
    let mut command = Command::new(std::env::current_exe().expect("a test knows its own program"));
    command.args(["--exact", "play_as_a_rival", "--nocapture"]);
    command.env(ROLE_VARIABLE, format!("{url}\n{election}\n{number}\n{last}"));
    command
}

/// Runs as a rival's process, if this process was started by [`command`]; `open` opens an election by its URL.
///
/// # Panics
/// As [`play`].
pub async fn play_if_told(open: impl AsyncFn(&str, &str) -> Arc<dyn Register>) {
    let Ok(told) = std::env::var(ROLE_VARIABLE) else { return };
    let told: Vec<&str> = told.lines().collect();
    let [url, election, number, last] = told[..] else { panic!("no role of a rival: {told:?}") };
    let number_of = |text: &str| text.parse().expect("a number");
    play_as_process(open(url, election).await, number_of(number), number_of(last)).await;
}

/// Runs a rival's process: prints each operation at once, on a line of its own.
async fn play_as_process(register: Arc<dyn Register>, number: u64, last: u64) {
    let faults = std::env::var(FAULTS_VARIABLE).ok().and_then(|seed| seed.parse().ok());
    // Another program may have printed an incomplete line before.
    println!();
    play(register, number, last, faults, |operation| println!("{LINE}{operation}")).await;
    println!("{END}");
}

/// Returns the operations that a rival's process has printed, and whether it ran to its end.
#[must_use]
pub fn parse(printed: &str) -> (Vec<Operation>, bool) {
    let operations = printed.lines().filter_map(|line| line.strip_prefix(LINE)?.parse().ok());
    (operations.collect(), printed.lines().any(|line| line == END))
}

pub(crate) fn hexadecimal(version: &Version) -> String {
    version.as_bytes().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The time in nanoseconds on the monotonic clock that all processes of this machine share.
pub(crate) fn now() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    let now = Duration::try_from(now).expect("this clock begins at 0");
    u64::try_from(now.as_nanos()).expect("a machine runs for less than 500 years")
}
