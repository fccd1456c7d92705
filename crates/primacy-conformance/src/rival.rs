//! Rivals for one record: each takes it again and again, and notes what it asked and what it was told.

use std::time::Duration;

use primacy_core::FencingToken;
use primacy_core::election::lease::{Record, Version};
use primacy_stores::{ReadError, Register, SetError};

use crate::history::{Kind, Operation};

/// What each line of a rival's process begins with.
pub(crate) const LINE: &str = "primacy-rival ";
/// What its last line says.
const END: &str = "primacy-rival has ended";

/// How long a store may say that it is not there, in nanoseconds.
const UNAVAILABLE_MAX: u64 = 60_000_000_000;

/// Raises the token by one whenever nobody else was faster, until it is `last` or higher. Each operation is told to
/// `note` when it is known, and a write also before it is asked for.
///
/// # Panics
/// If the record is malformed, or cannot be read for a minute.
pub async fn play(register: &dyn Register, number: u64, last: u64, mut note: impl FnMut(Operation)) {
    let mut answered = now();
    loop {
        let start = now();
        let found = match register.read().await {
            Ok(found) => found,
            // Under many rivals a store may be too busy, and where one was killed it has to tidy up first.
            Err(ReadError::Unavailable { .. }) if start < answered + UNAVAILABLE_MAX => {
                tokio::time::sleep(Duration::from_millis(1)).await;
                continue;
            }
            Err(error) => panic!("a rival cannot read: {error}"),
        };
        answered = now();
        let (token, writer) = found.as_ref().map_or((0, 0), |(record, _)| (record.token.0, record.nonce));
        let version = found.as_ref().map_or_else(String::new, |(_, version)| hexadecimal(version));
        note(Operation { rival: number, start, end: now(), token, kind: Kind::Read { writer, version } });
        if token >= last {
            return;
        }
        let token = token + 1;
        let start = now();
        note(Operation { rival: number, start, end: start, token, kind: Kind::Begun });
        let kind = match take(register, found.as_ref().map(|(_, version)| version), number, token).await {
            Ok(version) => Kind::Won { version: hexadecimal(&version) },
            // The same; the read that follows tells what is the case.
            Err(SetError::Conflict | SetError::Unavailable { .. }) => Kind::Refused,
            Err(SetError::Unknown { .. }) => Kind::Unknown,
        };
        note(Operation { rival: number, start, end: now(), token, kind });
        tokio::task::yield_now().await;
    }
}

/// Writes a record that names the rival by its nonce.
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

/// What a rival's process does: plays, and prints each operation at once, on a line of its own.
pub async fn play_as_process(register: &dyn Register, number: u64, last: u64) {
    // The line before may be another program's, and not ended.
    println!();
    play(register, number, last, |operation| println!("{LINE}{operation}")).await;
    println!("{END}");
}

/// The operations that a rival's process has printed, and whether it came to its end.
#[must_use]
pub fn parse(printed: &str) -> (Vec<Operation>, bool) {
    let operations = printed.lines().filter_map(|line| line.strip_prefix(LINE)?.parse().ok());
    (operations.collect(), printed.lines().any(|line| line == END))
}

pub(crate) fn hexadecimal(version: &Version) -> String {
    version.as_bytes().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Nanoseconds of the clock that all processes of this machine share, and that nobody sets.
pub(crate) fn now() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    let now = Duration::try_from(now).expect("this clock begins at 0");
    u64::try_from(now.as_nanos()).expect("a machine runs for less than 500 years")
}
