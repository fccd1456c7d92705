//! A clock of another rate for one node, by libfaketime, and its readings.
//!
//! A helper process of the run uses that clock for as long as the arm runs. It owns the shared memory in which
//! libfaketime keeps the clock's origin, so that all processes of the node, in all its incarnations, see one clock,
//! as on a separate machine; and it reports the clock's reading on request.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use primacy::clock;

use crate::chaos::processes::LOOK_INTERVAL;
use primacy_testbed::run_error::RunError;

/// The variable of the dynamic linker that names a library to preload.
pub(crate) const PRELOAD: &str = "LD_PRELOAD";
const SHARED: &str = "FAKETIME_SHARED";

/// The difference of its rate from the machine's clock, in parts per million: within the drift bound of 1 %, with a
/// margin.
pub(crate) const RATE_PPM: i64 = 8_000;
/// Its constant offset from the machine's clock. Offsets must never matter, which this tests.
const OFFSET_SECONDS: u32 = 3_600;

/// The duration of the first measurement: 8000 ppm amount to four milliseconds then.
const PROOF_TIME: Duration = Duration::from_millis(500);
/// The longest time for a process to start on a busy machine.
const START_MAX: Duration = Duration::from_secs(10);
/// The number of attempts for a reading; the shortest attempt counts.
const TRIES: usize = 20;

/// The faked clock of one node.
#[derive(Debug)]
pub(crate) struct FakedClock {
    env: Vec<(String, String)>,
    keeper: Child,
    asks: ChildStdin,
    answers: BufReader<ChildStdout>,
}

/// The readings of both clocks at the same moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reading {
    /// The machine's boot clock, in nanoseconds.
    pub(crate) true_ns: u64,
    /// The faked clock, in nanoseconds.
    pub(crate) faked_ns: u64,
    /// The uncertainty of `true_ns`.
    pub(crate) within_ns: u64,
}

impl FakedClock {
    /// Starts a clock that is fast or slow, and verifies its rate.
    ///
    /// # Errors
    /// The reason why there is none; then the fault is not run.
    pub(crate) fn start(fast: bool) -> Result<Self, RunError> {
        let library = library().ok_or_else(|| missing("libfaketime is not installed"))?;
        let ppm = if fast { RATE_PPM } else { -RATE_PPM };
        let rate = format!("+{OFFSET_SECONDS} x{}", decimal(1_000_000 + ppm));
        let mut env = vec![
            (PRELOAD.to_owned(), library.display().to_string()),
            ("FAKETIME".to_owned(), rate),
            ("FAKETIME_DONT_RESET".to_owned(), "1".to_owned()),
        ];
        let own = std::env::current_exe().map_err(RunError::file("find", Path::new("this program")))?;
        let mut command = Command::new(own);
        command.args(["chaos", "clock"]).envs(env.clone()).stdin(Stdio::piped()).stdout(Stdio::piped());
        let failed = |error: std::io::Error| missing(&error.to_string());
        let mut keeper = command.spawn().map_err(failed)?;
        let (Some(asks), Some(answers)) = (keeper.stdin.take(), keeper.stdout.take()) else {
            return Err(missing("its process has no pipes"));
        };
        let mut answers = BufReader::new(answers);
        let mut shared = String::new();
        answers.read_line(&mut shared).map_err(failed)?;
        let shared = shared.trim();
        if shared.is_empty() {
            // Dropping the value ends the child.
            drop(Self { env, keeper, asks, answers });
            return Err(missing("libfaketime was not loaded"));
        }
        env.push((SHARED.to_owned(), shared.to_owned()));
        let mut faked = Self { env, keeper, asks, answers };
        faked.prove(ppm)?;
        Ok(faked)
    }

    /// The environment variables for the node's processes.
    pub(crate) fn env(&self) -> &[(String, String)] {
        &self.env
    }

    /// Reads the clock.
    ///
    /// # Errors
    /// [`RunError`] if its process is gone.
    pub(crate) fn read(&mut self) -> Result<Reading, RunError> {
        let mut best: Option<Reading> = None;
        for _ in 0..TRIES {
            let reading = self.try_read()?;
            if best.is_none_or(|best| reading.within_ns < best.within_ns) {
                best = Some(reading);
            }
        }
        best.ok_or_else(|| missing("it was not read"))
    }

    /// Checks that processes still start under the clock. A process that is killed during its start may leave
    /// libfaketime's lock taken, and all later ones wait for it; this is no fault of the node.
    ///
    /// # Errors
    /// [`RunError`] if a process does not start within [`START_MAX`].
    pub(crate) fn check(&self) -> Result<(), RunError> {
        let own = std::env::current_exe().map_err(RunError::file("find", Path::new("this program")))?;
        let mut command = Command::new(own);
        command.args(["chaos", "clock"]).envs(self.env.clone()).stdin(Stdio::null()).stdout(Stdio::null());
        let mut child = command.spawn().map_err(|error| missing(&error.to_string()))?;
        let began = Instant::now();
        while began.elapsed() < START_MAX {
            if child.try_wait().is_ok_and(|ended| ended.is_some()) {
                return Ok(());
            }
            std::thread::sleep(LOOK_INTERVAL);
        }
        // It may have ended just now.
        let _ = child.kill();
        let _ = child.wait();
        Err(missing("none starts any more, since one was killed while it had libfaketime's lock"))
    }

    fn try_read(&mut self) -> Result<Reading, RunError> {
        let failed = |error: std::io::Error| missing(&error.to_string());
        let before = clock::now().as_nanos();
        self.asks.write_all(b"\n").map_err(failed)?;
        let mut line = String::new();
        self.answers.read_line(&mut line).map_err(failed)?;
        let after = clock::now().as_nanos();
        let faked_ns = line.trim().parse().map_err(|_| missing("its process has ended"))?;
        let within_ns = (after - before).div_ceil(2);
        Ok(Reading { true_ns: before + within_ns, faked_ns, within_ns })
    }

    /// Checks that the clock advances, at the requested rate to within a tenth of the difference.
    fn prove(&mut self, ppm: i64) -> Result<(), RunError> {
        let first = self.read()?;
        std::thread::sleep(PROOF_TIME);
        let last = self.read()?;
        let measured = rate_ppm(first, last);
        if (measured - ppm).abs() <= RATE_PPM / 10 {
            return Ok(());
        }
        Err(missing(&format!("it runs {measured} ppm off, not {ppm}")))
    }
}

impl Drop for FakedClock {
    fn drop(&mut self) {
        // It may be gone already.
        let _ = self.keeper.kill();
        let _ = self.keeper.wait();
        let shared = self.env.iter().find(|(name, _)| name == SHARED).map(|(_, value)| value.clone());
        for name in shared.iter().flat_map(|names| names.split(' ')).map(|name| name.trim_start_matches('/'))
        {
            for file in [format!("/dev/shm/{name}"), format!("/dev/shm/sem.{name}")] {
                // Each name is that of a semaphore or of shared memory.
                let _ = std::fs::remove_file(file);
            }
        }
    }
}

/// The difference in rate between two readings, in parts per million: positive if the faked clock is faster than the machine's.
pub(crate) fn rate_ppm(first: Reading, last: Reading) -> i64 {
    let true_ns = i128::from(last.true_ns) - i128::from(first.true_ns);
    let faked_ns = i128::from(last.faked_ns) - i128::from(first.faked_ns);
    i64::try_from((faked_ns - true_ns) * 1_000_000 / true_ns.max(1)).unwrap_or(i64::MAX)
}

/// Runs the helper process: it prints the name of the shared memory, then a reading for every line of its input.
pub(crate) fn keep() {
    println!("{}", std::env::var(SHARED).unwrap_or_default());
    for _ in std::io::stdin().lock().lines().map_while(Result::ok) {
        println!("{}", clock::now().as_nanos());
    }
}

/// The path of libfaketime, as distributions install it.
fn library() -> Option<PathBuf> {
    let mut places: Vec<PathBuf> = vec!["/usr/lib".into(), "/usr/lib64".into(), "/usr/local/lib".into()];
    let below = std::fs::read_dir("/usr/lib").into_iter().flatten().flatten().map(|entry| entry.path());
    places.extend(below.filter(|path| path.is_dir()));
    places.iter().map(|place| place.join("faketime/libfaketimeMT.so.1")).find(|path| path.exists())
}

fn decimal(ppm: i64) -> String {
    format!("{}.{:06}", ppm / 1_000_000, ppm % 1_000_000)
}

fn missing(why: &str) -> RunError {
    RunError::Program { line: "a process under libfaketime".into(), said: why.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_read_from_two_readings() {
        let at = |true_ns, faked_ns| Reading { true_ns, faked_ns, within_ns: 0 };
        assert_eq!(rate_ppm(at(1_000_000, 5), at(2_000_000, 1_008_005)), 8_000);
        assert_eq!(rate_ppm(at(1_000_000, 5), at(2_000_000, 992_005)), -8_000);
        assert_eq!((decimal(1_008_000), decimal(992_000)), ("1.008000".into(), "0.992000".into()));
    }
}
