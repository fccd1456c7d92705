//! The processes of the demo, or of the doctor's drill, and their directory. All processes that are started here are
//! ended here, even if the command fails or is interrupted.

use std::collections::{BTreeMap, VecDeque};
use std::fs;
use std::io::{self, BufRead, BufReader, Read};
use std::net::TcpListener;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, getpid, kill_process, set_child_subreaper};
use serde_json::Value;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use crate::exit::{Exit, Failure};
use crate::guardian::job::bind_to_parent;
use crate::process_tree::{descendants_of, end_descendants, started_at};

/// The time that any step of the demo may take before it gives up.
const PATIENCE: Duration = Duration::from_secs(15);
/// The interval at which the demo checks whether it was interrupted.
const LOOK: Duration = Duration::from_millis(50);
/// The number of last lines that are shown when an expected event does not happen.
const LINES_SHOWN: usize = 12;

/// Creates a directory for this user alone, under a name that no other user could predict. Its path is short, since it
/// contains sockets.
fn make_dir(name: &str) -> Result<PathBuf, Failure> {
    let number = getrandom::u32().map_err(io::Error::other)?;
    let dir = std::env::temp_dir().join(format!("primacy-{name}-{number:08x}"));
    let made = fs::DirBuilder::new().mode(0o700).create(&dir);
    made.map_err(|error| Failure::new(Exit::State, format!("{} cannot be made: {error}", dir.display())))?;
    Ok(dir)
}

/// The processes of a demo or drill.
#[derive(Debug)]
pub(crate) struct ProcessGroup {
    dir: PathBuf,
    patience: Duration,
    processes: BTreeMap<String, NodeProcess>,
    sender: Sender<(String, String)>,
    lines: Receiver<(String, String)>,
    last_lines: VecDeque<String>,
    /// The signal that interrupts the demo, or zero.
    interrupted: Arc<AtomicUsize>,
}

/// One node's process, with the process numbers of its guardian and its job.
#[derive(Debug)]
struct NodeProcess {
    child: Child,
    guardian: Option<i32>,
    job: Option<i32>,
    /// True if it knows the leader.
    follows: bool,
}

/// The role of one of a node's processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ProcessRole {
    /// The node's own process; for `primacy run`, the supervisor.
    Main,
    /// Its guardian.
    Guardian,
    /// The job.
    Job,
}

impl ProcessGroup {
    /// Creates a directory for the demo, and prepares to end the processes that it starts.
    pub(crate) fn new() -> Result<Self, Failure> {
        Self::with("demo", PATIENCE)
    }

    /// Does the same for another command. `name` is a part of the directory's name, and `patience` the bound of every
    /// step.
    pub(crate) fn with(name: &str, patience: Duration) -> Result<Self, Failure> {
        // The guardian of a killed node becomes a child of this process, with all its descendants.
        set_child_subreaper(Some(getpid()))?;
        let interrupted = Arc::new(AtomicUsize::new(0));
        for signal in [SIGHUP, SIGINT, SIGTERM] {
            let value = usize::try_from(signal).unwrap_or(1);
            signal_hook::flag::register_usize(signal, Arc::clone(&interrupted), value)?;
        }
        let dir = make_dir(name)?;
        let (sender, lines) = channel();
        Ok(Self {
            dir,
            patience,
            processes: BTreeMap::new(),
            sender,
            lines,
            last_lines: VecDeque::new(),
            interrupted,
        })
    }

    /// Returns the directory.
    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    /// Starts `primacy` with these arguments, under this name. It ends with the demo.
    pub(crate) fn start(&mut self, name: &str, args: &[String]) -> Result<(), Failure> {
        let mut command = Command::new("/proc/self/exe");
        command.args(args);
        self.start_command(name, command)
    }

    /// Starts any command in the same way.
    pub(crate) fn start_command(&mut self, name: &str, mut command: Command) -> Result<(), Failure> {
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        bind_to_parent(&mut command, Signal::TERM);
        let mut child = command.spawn()?;
        self.listen(name, child.stdout.take())?;
        self.listen(name, child.stderr.take())?;
        self.processes
            .insert(name.to_owned(), NodeProcess { child, guardian: None, job: None, follows: false });
        Ok(())
    }

    fn listen(&self, name: &str, from: Option<impl Read + Send + 'static>) -> Result<(), Failure> {
        let (name, sender) = (name.to_owned(), self.sender.clone());
        let Some(from) = from else { return Ok(()) };
        std::thread::Builder::new().name(format!("hear {name}")).spawn(move || {
            for line in BufReader::new(from).lines().map_while(Result::ok) {
                if sender.send((name.clone(), line)).is_err() {
                    return; // The demo is over.
                }
            }
        })?;
        Ok(())
    }

    /// Waits until a line of a process is the wanted one.
    ///
    /// # Errors
    /// If it does not come in time, or the demo is interrupted.
    pub(crate) fn wait_for<T>(
        &mut self,
        what: &str,
        mut wanted: impl FnMut(&str, &Value) -> Option<T>,
    ) -> Result<T, Failure> {
        let until = Instant::now() + self.patience;
        loop {
            self.check_interrupted()?;
            let (name, line) = match self.lines.recv_timeout(LOOK) {
                Ok(line) => line,
                Err(RecvTimeoutError::Timeout) if Instant::now() < until => continue,
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {
                    return Err(self.gave_up(what));
                }
            };
            let Some(line) = self.hear(&name, &line) else { continue };
            if let Some(found) = wanted(&name, &line) {
                return Ok(found);
            }
        }
    }

    /// Checks repeatedly until `look` returns a value, and reads the processes' lines meanwhile.
    ///
    /// # Errors
    /// If it does not come in time, or the demo is interrupted.
    pub(crate) fn look_for<T>(
        &mut self,
        what: &str,
        mut look: impl FnMut(&Self) -> Result<Option<T>, Failure>,
    ) -> Result<T, Failure> {
        let until = Instant::now() + self.patience;
        loop {
            self.check_interrupted()?;
            while let Ok((name, line)) = self.lines.try_recv() {
                self.hear(&name, &line);
            }
            if let Some(found) = look(self)? {
                return Ok(found);
            }
            if Instant::now() >= until {
                return Err(self.gave_up(what));
            }
            std::thread::sleep(LOOK);
        }
    }

    /// Returns the names of the nodes whose jobs are alive.
    pub(crate) fn working(&self) -> Vec<&str> {
        let alive =
            |process: &NodeProcess| process.job.and_then(Pid::from_raw).and_then(started_at).is_some();
        self.processes.iter().filter(|(_, process)| alive(process)).map(|(name, _)| name.as_str()).collect()
    }

    /// Waits until all of these nodes know the leader.
    pub(crate) fn wait_for_followers(&mut self, names: &[&str]) -> Result<(), Failure> {
        let follows =
            |group: &Self, name: &str| group.processes.get(name).is_some_and(|process| process.follows);
        while !names.iter().all(|name| follows(self, name)) {
            self.wait_for("the nodes' learning of their leader", |_, line| {
                (line["event"] == "leader").then_some(())
            })?;
        }
        Ok(())
    }

    fn gave_up(&self, what: &str) -> Failure {
        let lines: Vec<String> = self.last_lines.iter().map(|line| format!("\n  {line}")).collect();
        let message =
            format!("{what} did not happen within {:?}; the last lines:{}", self.patience, lines.concat());
        Failure::new(Exit::Failed, message)
    }

    /// Takes in a line of a node, and returns it if it is JSON.
    fn hear(&mut self, name: &str, line: &str) -> Option<Value> {
        self.remember(name, line);
        let line = serde_json::from_str(line).ok()?;
        self.learn(name, &line);
        Some(line)
    }

    fn remember(&mut self, name: &str, line: &str) {
        self.last_lines.push_back(format!("{name}: {line}"));
        if self.last_lines.len() > LINES_SHOWN {
            self.last_lines.pop_front();
        }
    }

    /// Records the process numbers and the leader that a line of a node reports.
    fn learn(&mut self, name: &str, line: &Value) {
        let Some(process) = self.processes.get_mut(name) else { return };
        let pid = line["pid"].as_i64().and_then(|pid| i32::try_from(pid).ok());
        match line["event"].as_str() {
            Some("guardian") => process.guardian = pid,
            Some("started") => process.job = pid,
            Some("exited" | "released") => process.job = None,
            Some("leader") => process.follows = line["leader"].is_string(),
            Some(_) | None => {}
        }
    }

    /// Sends a signal to a process of a node.
    pub(crate) fn signal(&self, name: &str, role: ProcessRole, signal: Signal) -> Result<(), Failure> {
        Ok(kill_process(self.pid(name, role)?, signal)?)
    }

    /// Returns the process of a node with this role.
    ///
    /// # Errors
    /// If there is none.
    pub(crate) fn pid(&self, name: &str, role: ProcessRole) -> Result<Pid, Failure> {
        let unknown = || Failure::new(Exit::Failed, format!("there is no {role:?} of {name} to signal"));
        let process = self.processes.get(name).ok_or_else(unknown)?;
        let pid = match role {
            ProcessRole::Main => Some(Pid::from_child(&process.child)),
            ProcessRole::Guardian => process.guardian.and_then(Pid::from_raw),
            ProcessRole::Job => process.job.and_then(Pid::from_raw),
        };
        pid.ok_or_else(unknown)
    }

    /// Waits for the end of a node's process.
    pub(crate) fn wait_for_end(&mut self, name: &str) -> Result<(), Failure> {
        if let Some(mut process) = self.processes.remove(name) {
            process.child.wait()?;
        }
        Ok(())
    }

    /// Pauses for the viewer, and for the processes to settle.
    pub(crate) fn pause(&mut self, time: Duration) -> Result<(), Failure> {
        let until = Instant::now() + time;
        while Instant::now() < until {
            self.check_interrupted()?;
            std::thread::sleep(LOOK.min(until.saturating_duration_since(Instant::now())));
        }
        Ok(())
    }

    /// Returns all lines of processes within this time that are not events, each with the name of its process.
    pub(crate) fn hear_for(&mut self, time: Duration) -> Result<Vec<(String, String)>, Failure> {
        let until = Instant::now() + time;
        let mut heard = Vec::new();
        while Instant::now() < until {
            self.check_interrupted()?;
            let left = LOOK.min(until.saturating_duration_since(Instant::now()));
            let Ok((name, line)) = self.lines.recv_timeout(left) else { continue };
            if self.hear(&name, &line).is_none_or(|line| !line["event"].is_string()) {
                heard.push((name, line));
            }
        }
        Ok(heard)
    }

    /// Returns all live processes of a node: the supervisor, its guardian, and their descendants.
    pub(crate) fn processes(&self, name: &str) -> Vec<Pid> {
        let Some(process) = self.processes.get(name) else { return Vec::new() };
        let mut roots = vec![Pid::from_child(&process.child)];
        roots.extend(process.guardian.and_then(Pid::from_raw));
        let mut all: Vec<Pid> = roots.iter().flat_map(|&root| descendants_of(root)).collect();
        all.extend(roots);
        all.sort_by_key(|pid| pid.as_raw_nonzero());
        all.dedup();
        all
    }

    /// Returns whether this is a node's supervisor or guardian, and not a process of its job.
    pub(crate) fn is_watching(&self, name: &str, pid: Pid) -> bool {
        self.processes.get(name).is_some_and(|process| {
            Pid::from_child(&process.child) == pid || process.guardian.and_then(Pid::from_raw) == Some(pid)
        })
    }

    /// Returns the first process of a node's job, if it is alive.
    pub(crate) fn job(&self, name: &str) -> Option<Pid> {
        self.processes.get(name)?.job.and_then(Pid::from_raw).filter(|&job| started_at(job).is_some())
    }

    fn check_interrupted(&self) -> Result<(), Failure> {
        match self.interrupted.load(Ordering::SeqCst) {
            0 => Ok(()),
            signal => {
                let signal = i32::try_from(signal).unwrap_or(SIGTERM);
                Err(Failure::new(Exit::Signal(signal), "interrupted; everything that was started is ended"))
            }
        }
    }
}

impl Drop for ProcessGroup {
    fn drop(&mut self) {
        // This process is a subreaper, so all of them are its descendants; it has no others.
        end_descendants(None, None, |_, _| {});
        // Files that cannot be removed are left to the cleaning of temporary files.
        let _ = fs::remove_dir_all(&self.dir);
    }
}

/// A loopback address for a node to listen on. It is reserved until this is dropped: otherwise another process that
/// requests a port, for example a relay, could get the same one.
#[derive(Debug)]
pub(crate) struct ReservedAddress {
    /// The node.
    pub(crate) node: &'static str,
    /// The address.
    pub(crate) address: String,
    _listener: TcpListener,
}

/// Reserves an address for each of these nodes.
pub(crate) fn reserve_addresses(nodes: &[&'static str]) -> Result<Vec<ReservedAddress>, Failure> {
    let place = |&node| {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        Ok(ReservedAddress { node, address: listener.local_addr()?.to_string(), _listener: listener })
    };
    nodes.iter().map(place).collect()
}
