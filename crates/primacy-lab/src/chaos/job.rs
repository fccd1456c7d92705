//! The job that `primacy run` starts: it writes until it ends, locks a file, and sometimes leaves a grandchild behind
//! that does the same. It never checks whether its leader still leads.

use std::fs::{File, OpenOptions};
use std::io::{Read as _, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use clap::Parser;
use primacy::clock;
use primacy_core::rng::Rng;
use rustix::fs::{FlockOperation, flock};
use rustix::process::setsid;

use crate::chaos::fake_clock::PRELOAD;
use crate::chaos::ledger::{JobReport, LOCK, Ledger, Outcome, Writer};
use primacy_testbed::run_error::RunError;

/// The job of a chaos run
#[derive(Debug, Parser)]
pub(crate) struct Job {
    /// The directory of the arm
    dir: PathBuf,

    /// Be the grandchild's parent, or the grandchild, with the lock as standard input
    #[arg(long, value_parser = ["fork", "hold"])]
    role: Option<String>,

    /// Start so many processes in sessions of their own, which hold the lock
    #[arg(long, default_value_t = 0)]
    crowd: u32,

    /// End after a random time, as long as this at the most, in milliseconds
    #[arg(long)]
    lives: Option<u64>,
}

/// The interval between two writes of a leader.
const EVERY: Duration = Duration::from_millis(10);
/// The pause of a job after a refused write; it does not end by itself then.
const EVERY_LATE: Duration = Duration::from_millis(50);
/// One in this many leaderships has a job that ignores SIGTERM, and one in as many a detached grandchild.
const STUBBORN_EVERY: u64 = 3;
const GRANDCHILD_EVERY: u64 = 2;

impl Job {
    /// Runs until it is killed, or its time to run is over.
    ///
    /// # Errors
    /// [`RunError`] if it cannot begin.
    pub(crate) fn run(&self) -> Result<(), RunError> {
        if std::env::var_os(PRELOAD).is_some() {
            // Its writes are judged by the machine's clock, even if the clock of its node is faked.
            let mut command = Command::new("/proc/self/exe");
            command.args(std::env::args_os().skip(1)).env_remove(PRELOAD);
            return Err(RunError::file("execute", Path::new("/proc/self/exe"))(command.exec()));
        }
        let role = self.role.as_deref();
        if role == Some("fork") {
            return self.fork();
        }
        let token = variable("PRIMACY_TOKEN")?.parse().map_err(|_| by_hand("PRIMACY_TOKEN"))?;
        let pid = i32::try_from(std::process::id()).unwrap_or(i32::MAX);
        let writer = Writer { token, node: variable("PRIMACY_ID")?, pid };
        let mut ledger = Ledger::open(&self.dir, writer.clone())?;
        if role == Some("hold") {
            // With a handler that does nothing, and a session of its own, only SIGKILL ends the job.
            outlive_sigterm();
            // An error means that the process already leads a session.
            let _ = setsid();
            ledger.tell(JobReport::Grandchild)?;
        } else {
            if token % STUBBORN_EVERY == 0 {
                outlive_sigterm();
            }
            ledger.tell(JobReport::Began)?;
        }
        let mut lock = Lock::new(&self.dir, role.is_none())?;
        let ends_at = self.lives.map(|most| clock::now().after(draw_life(most, &writer).into()));
        while ends_at.is_none_or(|at| clock::now() < at) {
            if lock.turn(&mut ledger, &writer)? {
                if token % GRANDCHILD_EVERY == 0 {
                    self.leave_a_grandchild(&lock.file)?;
                }
                if self.crowd > 0 {
                    self.gather_a_crowd(&lock.file)?;
                }
            }
            let outcome = match ledger.write() {
                Ok(outcome) => outcome,
                Err(error) => {
                    ledger.tell(JobReport::Failed { error: error.to_string() })?;
                    return Err(error);
                }
            };
            std::thread::sleep(match outcome {
                Outcome::Accepted => EVERY,
                Outcome::Refused => EVERY_LATE,
            });
        }
        Ok(())
    }

    /// Starts a process that starts the grandchild and ends at once, so that the grandchild becomes an orphan.
    fn leave_a_grandchild(&self, lock: &File) -> Result<(), RunError> {
        let failed = || RunError::file("start a grandchild of", &self.dir);
        let lock = lock.try_clone().map_err(failed())?;
        let mut command = Command::new("/proc/self/exe");
        command
            .args(["chaos", "job"])
            .arg(&self.dir)
            .args(["--role", "fork"])
            .args(self.lives_arguments())
            .stdin(lock);
        command.status().map(|_| ()).map_err(failed())
    }

    /// Starts the detached processes. Each has its own session and keeps the lock until it ends. They start while the job writes.
    fn gather_a_crowd(&self, lock: &File) -> Result<(), RunError> {
        let failed = || RunError::file("gather a crowd for", &self.dir);
        let script = "exec 3<&0; i=0; while [ $i -lt $0 ]; do setsid sleep 1000 <&3 & i=$((i + 1)); done";
        let mut command = Command::new("sh");
        command.args(["-c", script, &self.crowd.to_string()]).stdin(lock.try_clone().map_err(failed())?);
        command.spawn().map(|_| ()).map_err(failed())
    }

    fn lives_arguments(&self) -> Vec<String> {
        self.lives.map_or_else(Vec::new, |lives| vec!["--lives".to_owned(), lives.to_string()])
    }

    fn fork(&self) -> Result<(), RunError> {
        let mut command = Command::new("/proc/self/exe");
        command.args(["chaos", "job"]).arg(&self.dir).args(["--role", "hold"]).args(self.lives_arguments());
        command.stdin(Stdio::inherit());
        command.spawn().map(|_| ()).map_err(RunError::file("start the grandchild of", &self.dir))
    }
}

/// The lock of the job, which retries until it has it.
struct Lock {
    file: File,
    path: PathBuf,
    wanted: bool,
}

impl Lock {
    fn new(dir: &Path, wanted: bool) -> Result<Self, RunError> {
        let path = dir.join(LOCK);
        let file = OpenOptions::new().create(true).read(true).append(true).open(&path);
        Ok(Self { file: file.map_err(RunError::file("open", &path))?, path, wanted })
    }

    /// Tries to lock, unless the job has the lock already. Returns true if it has.
    fn turn(&mut self, ledger: &mut Ledger, writer: &Writer) -> Result<bool, RunError> {
        if !self.wanted {
            return Ok(false);
        }
        // The time at which the lock was found taken; it may be free later.
        let asked = clock::now();
        if flock(&self.file, FlockOperation::NonBlockingLockExclusive).is_err() {
            ledger.tell_of(asked, JobReport::Waits { holder: self.holder()? })?;
            return Ok(false);
        }
        self.wanted = false;
        let text = serde_json::to_string(writer).unwrap_or_default();
        let said = self.file.set_len(0).and_then(|()| self.file.write_all(text.as_bytes()));
        said.map_err(RunError::file("write", &self.path))?;
        ledger.tell(JobReport::Locked)?;
        Ok(true)
    }

    /// The holder that the lock's file names; `None` while the holder is writing its name.
    fn holder(&self) -> Result<Option<Writer>, RunError> {
        let mut text = String::new();
        let mut file = File::open(&self.path).map_err(RunError::file("open", &self.path))?;
        file.read_to_string(&mut text).map_err(RunError::file("read", &self.path))?;
        Ok(serde_json::from_str(&text).ok())
    }
}

/// Draws the time that a job runs. Half of the times are short, so that the leader changes often.
fn draw_life(most: u64, writer: &Writer) -> Duration {
    let mut rng = Rng::new(writer.token ^ u64::from(writer.pid.unsigned_abs()));
    let most = if rng.up_to(1) == 0 { most } else { most / 8 };
    Duration::from_millis(rng.up_to(most))
}

fn outlive_sigterm() {
    // If this fails, SIGTERM ends the process as usual.
    let _ = signal_hook::flag::register(signal_hook::consts::SIGTERM, Arc::new(AtomicBool::new(false)));
}

fn variable(name: &'static str) -> Result<String, RunError> {
    std::env::var(name).map_err(|_| by_hand(name))
}

fn by_hand(name: &str) -> RunError {
    RunError::NotWhole(format!("{name} is not set; this command is started by `primacy run`"))
}
