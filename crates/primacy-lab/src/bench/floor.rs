//! The floor of the measured times: the minimum time that this machine needs for the steps of a failover.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use primacy::NodeId;
use primacy::core::Term;
use primacy::core::election::quorum::HardState;
use primacy::disk::StateFile;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open};
use serde::Serialize;

use super::child::{self, MESSAGE_LENGTH};
use super::failed;
use super::spread::{median, milliseconds};
use crate::exit::{Exit, Failure};

/// The interval between round trips: an election's messages, too, meet a machine that has been idle for a moment.
const PACE: Duration = Duration::from_millis(10);
/// The number of measurements of each step between two trials.
const ROUND_TRIPS: usize = 10;
const KILLS: usize = 2;
const FLUSHES: usize = 4;

/// Measures the floor between trials, so that floor and trials see the same conditions.
#[derive(Debug)]
pub(super) struct Floor {
    echo: Child,
    stream: TcpStream,
    state: StateFile,
    term: u64,
    round_trips: Vec<Duration>,
    kills: Vec<Duration>,
    flushes: Vec<Duration>,
}

/// The minimum steps of a failover.
#[derive(Clone, Copy, Debug)]
pub(super) struct Steps {
    /// The number of kills, each with its detection by another process.
    pub(super) kills: u32,
    /// The number of round trips: half of one carries the notice, and three are the pre-vote, the vote and the first
    /// heartbeat.
    pub(super) round_trips: f64,
    /// The number of votes written one after another; the candidate and the voters write at the same time.
    pub(super) flushes: u32,
}

/// Medians, in milliseconds.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct FloorMs {
    pub(super) round_trip: f64,
    pub(super) kill_to_pidfd: f64,
    pub(super) fsync: f64,
    /// The sum of the steps of the measured class.
    pub(super) sum: f64,
    pub(super) round_trips: f64,
    pub(super) kills: u32,
    pub(super) fsyncs: u32,
}

impl Floor {
    /// Prepares the measurement, with a vote file in `dir`.
    pub(super) fn new(dir: &Path) -> Result<Self, Failure> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let address = listener.local_addr()?.to_string();
        let mut command = Command::new("/proc/self/exe");
        command.args(["bench-child", child::ECHO, &address]).stdin(Stdio::null()).stdout(Stdio::null());
        let echo = command.spawn()?;
        let (stream, _) = listener.accept()?;
        stream.set_nodelay(true)?;
        let node = NodeId::new("floor").map_err(|error| failed(error.to_string()))?;
        let opened = StateFile::open(dir, "floor", node);
        let (state, _) = opened.map_err(|error| Failure::new(Exit::State, error.to_string()))?;
        let (round_trips, kills, flushes) = (Vec::new(), Vec::new(), Vec::new());
        Ok(Self { echo, stream, state, term: 0, round_trips, kills, flushes })
    }

    /// Measures for about a tenth of a second.
    pub(super) fn measure(&mut self) -> Result<(), Failure> {
        for _ in 0..ROUND_TRIPS {
            std::thread::sleep(PACE);
            let took = self.round_trip()?;
            self.round_trips.push(took);
        }
        for _ in 0..KILLS {
            self.kills.push(kill_to_pidfd()?);
        }
        for _ in 0..FLUSHES {
            std::thread::sleep(PACE);
            let took = self.flush()?;
            self.flushes.push(took);
        }
        Ok(())
    }

    fn round_trip(&mut self) -> Result<Duration, Failure> {
        let mut message = [0; MESSAGE_LENGTH];
        let began = Instant::now();
        self.stream.write_all(&message)?;
        self.stream.read_exact(&mut message)?;
        Ok(began.elapsed())
    }

    /// Writes one vote as a node does.
    fn flush(&mut self) -> Result<Duration, Failure> {
        self.term += 1;
        let hard_state = HardState { term: Term(self.term), ..HardState::default() };
        let began = Instant::now();
        self.state.persist(&hard_state).map_err(|error| Failure::new(Exit::State, error.to_string()))?;
        Ok(began.elapsed())
    }

    /// Returns the medians of the measurements, and their sum for these steps.
    pub(super) fn medians(&self, steps: Steps) -> Option<FloorMs> {
        let (round_trip, kill, flush) =
            (median(&self.round_trips)?, median(&self.kills)?, median(&self.flushes)?);
        let sum = round_trip.mul_f64(steps.round_trips) + kill * steps.kills + flush * steps.flushes;
        Some(FloorMs {
            round_trip: milliseconds(round_trip),
            kill_to_pidfd: milliseconds(kill),
            fsync: milliseconds(flush),
            sum: milliseconds(sum),
            round_trips: steps.round_trips,
            kills: steps.kills,
            fsyncs: steps.flushes,
        })
    }
}

impl Drop for Floor {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.echo.kill().and_then(|()| self.echo.wait());
    }
}

/// Measures the time from the signal until another process can detect the end.
fn kill_to_pidfd() -> Result<Duration, Failure> {
    let mut command = Command::new("/proc/self/exe");
    command.args(["bench-child", child::VICTIM]).stdin(Stdio::null()).stdout(Stdio::piped());
    let mut victim = command.spawn()?;
    let pid = Pid::from_child(&victim);
    let pidfd = pidfd_open(pid, PidfdFlags::empty())?;
    if let Some(stdout) = victim.stdout.take() {
        let mut line = String::new();
        BufReader::new(stdout).read_line(&mut line)?;
    }
    let began = Instant::now();
    kill_process(pid, Signal::KILL)?;
    loop {
        match poll(&mut [PollFd::new(&pidfd, PollFlags::IN)], None) {
            Ok(_) => break,
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    let took = began.elapsed();
    victim.wait()?;
    Ok(took)
}
