//! A node: successive incarnations of `primacy run` under one name.

use std::fs::File;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use primacy::clock;
use rustix::process::{Pid, Signal};
use serde_json::Value;

use crate::chaos::arm::{Arm, ELECTION};
use crate::chaos::event_log::{EventLog, RunEvent, Sent};
use crate::chaos::fault::NodeProcess;
use crate::chaos::processes::{MARK, is_alive, is_marked, signal};
use crate::chaos::tail::Tail;
use crate::chaos::unkillable;
use primacy_testbed::run_error::RunError;

/// The folder of the nodes' output, with one file for each incarnation.
pub(crate) const TRACES: &str = "traces";

/// The parameters of every start of a node.
#[derive(Clone, Debug)]
pub(crate) struct Start {
    /// The command `primacy`.
    pub(crate) primacy: PathBuf,
    /// The directory of the arm.
    pub(crate) dir: PathBuf,
    /// The node's network namespace, if it has one.
    pub(crate) namespace: Option<String>,
    /// The nodes of its network with their addresses, if it has one.
    pub(crate) peers: Option<String>,
    /// The address at which its peers reach it, if it has a network.
    pub(crate) address: Option<String>,
    /// The address of its etcd API, if it serves it.
    pub(crate) etcd_api: Option<String>,
    /// The number of earlier nodes at its place.
    pub(crate) generation: u32,
    /// Its state directory.
    pub(crate) state: PathBuf,
    /// The directory of the store.
    pub(crate) store: PathBuf,
    /// The additional variables of its environment.
    pub(crate) env: Vec<(String, String)>,
    /// The mark of all its processes, an environment variable.
    pub(crate) mark: String,
}

/// A node.
#[derive(Debug)]
pub(crate) struct Node {
    /// Its name.
    pub(crate) name: String,
    /// The number of its incarnations so far.
    pub(crate) life: u32,
    /// The time of its next start, if it has ended.
    pub(crate) restart_at: Option<Instant>,
    /// The parameters of its start.
    pub(crate) start: Start,
    child: Option<Child>,
    tail: Tail,
    guardian: Option<Pid>,
    job: Option<Pid>,
}

impl Node {
    /// A node that has not been started yet.
    pub(crate) fn new(name: &str, start: Start) -> Self {
        Self {
            name: name.to_owned(),
            life: 0,
            restart_at: None,
            start,
            child: None,
            tail: Tail::new(PathBuf::new()),
            guardian: None,
            job: None,
        }
    }

    /// Starts its next incarnation.
    ///
    /// # Errors
    /// [`RunError`]
    pub(crate) fn begin(&mut self, arm: &Arm, events: &mut EventLog) -> Result<(), RunError> {
        self.life += 1;
        self.restart_at = None;
        let start = &self.start;
        let trace = trace_path(&start.dir, &self.name, self.life);
        let file = |path: &Path| File::create(path).map_err(RunError::file("make", path));
        let own = std::env::current_exe().map_err(RunError::file("find", Path::new("this program")))?;
        let mut command = match &start.namespace {
            Some(namespace) => {
                let mut command = Command::new("ip");
                // `env` runs in the namespace and becomes `primacy`, so that no other program loads the library.
                command.args(["netns", "exec", namespace, "env"]);
                command
            }
            None => Command::new("env"),
        };
        command.args(start.env.iter().map(|(name, value)| format!("{name}={value}")));
        if arm.unkillable {
            command.args(unkillable::as_user());
        }
        command.arg(&start.primacy).args(["run", "--json", "--restart", "--election", ELECTION]);
        command.args(["--node", &self.name]).args(arm.options(&self.name, &start.state, &start.store));
        if let Some(peers) = &start.peers {
            command.args(["--peers", peers]);
        }
        if let Some(address) = &start.etcd_api {
            command.args(["--etcd-api", address]);
        }
        command.arg("--");
        if arm.unkillable {
            command.args(unkillable::as_root(&start.dir));
        }
        command.arg(own).args(["chaos", "job"]).arg(&start.dir);
        if arm.unkillable {
            command.args(["--lives", &unkillable::LIVES_MS.to_string()]);
        }
        if arm.crowd > 0 {
            command.args(["--crowd", &arm.crowd.to_string()]);
        }
        command.env(MARK, &start.mark).env("PRIMACY_LOG", "warn,primacy::machine=debug");
        command.stdin(Stdio::null()).stdout(file(&trace.with_extension("out"))?).stderr(file(&trace)?);
        let child = command.spawn().map_err(RunError::file("start", &start.primacy))?;
        let pid = Pid::from_child(&child).as_raw_nonzero().get();
        events.log(RunEvent::Incarnation { node: self.name.clone(), life: self.life, pid })?;
        self.child = Some(child);
        self.tail = Tail::new(trace);
        (self.guardian, self.job) = (None, None);
        Ok(())
    }

    /// Detects its end, and reads its output.
    ///
    /// # Errors
    /// [`RunError`]
    pub(crate) fn look(&mut self, events: &mut EventLog) -> Result<bool, RunError> {
        for told in self.tail.lines() {
            self.hear(&told);
        }
        let Some(child) = &mut self.child else { return Ok(false) };
        let Some(status) = child.try_wait().map_err(RunError::file("wait for", &self.start.primacy))? else {
            return Ok(false);
        };
        let code = status.code().or_else(|| Some(128 + status.signal()?)).unwrap_or(-1);
        self.child = None;
        events.log(RunEvent::Ended { node: self.name.clone(), life: self.life, code })?;
        Ok(true)
    }

    fn hear(&mut self, told: &Value) {
        let pid = || Pid::from_raw(i32::try_from(told["pid"].as_i64()?).ok()?);
        match told["event"].as_str() {
            Some("guardian") => self.guardian = pid(),
            Some("started") => self.job = pid(),
            Some("exited" | "drained" | "released") => self.job = None,
            Some(_) | None => {}
        }
    }

    /// True if its supervisor runs.
    pub(crate) const fn is_up(&self) -> bool {
        self.child.is_some()
    }

    /// The process of this kind, if known.
    pub(crate) fn pid(&self, part: NodeProcess) -> Option<Pid> {
        match part {
            NodeProcess::Supervisor => self.child.as_ref().map(Pid::from_child),
            NodeProcess::Guardian => self.guardian.filter(|_| self.is_up()),
            NodeProcess::Job => self.job.filter(|_| self.is_up()),
        }
    }

    /// Sends a signal, and records it with the time immediately before. Returns whether a live process got it.
    ///
    /// # Errors
    /// [`RunError`]
    pub(crate) fn send(
        &self,
        part: NodeProcess,
        sent: Sent,
        events: &mut EventLog,
    ) -> Result<bool, RunError> {
        let Some(pid) = self.pid(part) else { return Ok(false) };
        let there = match part {
            // The number of a child is not reused until the child is reaped.
            NodeProcess::Supervisor => is_alive(pid),
            NodeProcess::Guardian | NodeProcess::Job => is_marked(pid, &self.start.mark),
        };
        if !there {
            return Ok(false);
        }
        let before = clock::now().as_nanos();
        let got = signal(pid, sent.signal())?;
        if got {
            events.log_at(before, self.signalled(part, sent))?;
        }
        Ok(got)
    }

    /// The event that this process of the node got a signal.
    pub(crate) fn signalled(&self, part: NodeProcess, sent: Sent) -> RunEvent {
        RunEvent::Signal { node: self.name.clone(), life: self.life, part, signal: sent }
    }

    /// Schedules its next start, unless one is scheduled already.
    pub(crate) fn restart_after(&mut self, wait: Duration) {
        if self.child.is_none() && self.restart_at.is_none() {
            self.restart_at = Some(Instant::now() + wait);
        }
    }
}

impl Sent {
    /// The system's signal.
    pub(crate) const fn signal(self) -> Signal {
        match self {
            Self::Kill => Signal::KILL,
            Self::Stop => Signal::STOP,
            Self::Continue => Signal::CONT,
            Self::Terminate => Signal::TERM,
        }
    }
}

/// The path of the output of one incarnation of a node.
pub(crate) fn trace_path(dir: &Path, node: &str, life: u32) -> PathBuf {
    dir.join(TRACES).join(format!("{node}-{life}.jsonl"))
}
