//! The measured command: how it is started as a node, and how it is asked to hand over. A change of its command line
//! is made only here.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use clap::ValueEnum;
use primacy::Safety;

use super::child;

/// The name of the measured election.
pub(super) const ELECTION: &str = "bench";

/// The command that is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Subject {
    /// `primacy run`: the node, its guardian, and a job that prints when it runs
    Run,
    /// `primacy node`: the node and its guardian
    Node,
}

/// The settings of all nodes of a run.
#[derive(Clone, Copy, Debug)]
pub(super) struct Settings {
    pub(super) subject: Subject,
    pub(super) safety: Safety,
    pub(super) lease: Option<Duration>,
    pub(super) heartbeat: Option<Duration>,
}

/// The place of the election.
#[derive(Clone, PartialEq, Eq)]
pub(super) enum Meeting {
    /// Among the nodes: their names and addresses.
    Peers(String),
    /// In the store at this URL.
    Store(String),
}

/// Hides the URL, which may contain a password.
impl std::fmt::Debug for Meeting {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Peers(peers) => write!(f, "Peers({peers})"),
            Self::Store(_) => f.write_str("Store"),
        }
    }
}

/// The variable for the URL of the store, which other users could read on the command line.
const STORE_VARIABLE: &str = "PRIMACY_BENCH_STORE";

/// The files and addresses of one node.
#[derive(Clone, Copy, Debug)]
pub(super) struct Home<'a> {
    pub(super) node: &'a str,
    pub(super) meeting: &'a Meeting,
    pub(super) state_dir: &'a Path,
    /// True if the node is not on loopback, and has no certificates.
    pub(super) cleartext: bool,
}

impl Subject {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Run => "run",
            Self::Node => "node",
        }
    }

    pub(super) fn has_job(self) -> bool {
        self == Self::Run
    }
}

/// The command line's name of a safety.
pub(super) fn safety_name(safety: Safety) -> &'static str {
    match safety {
        Safety::Lease => "lease",
        Safety::Fenced => "fenced",
    }
}

/// Adds the arguments that start a node to a command; the node's job is the bench's own program.
pub(super) fn start(command: &mut Command, settings: &Settings, home: &Home<'_>, job: &str) {
    let mut args = strings(&[settings.subject.name(), "--json", "--election", ELECTION, "--node", home.node]);
    args.extend(strings(&["--state-dir", &home.state_dir.to_string_lossy()]));
    match home.meeting {
        Meeting::Peers(peers) => {
            args.extend(strings(&["--peers", peers, "--safety", safety_name(settings.safety)]));
        }
        Meeting::Store(url) => {
            command.env(STORE_VARIABLE, url);
            args.extend(strings(&["--store", &format!("env:{STORE_VARIABLE}")]));
        }
    }
    if let Some(lease) = settings.lease {
        args.extend(strings(&["--lease", &micros(lease)]));
    }
    if let Some(heartbeat) = settings.heartbeat {
        args.extend(strings(&["--heartbeat", &micros(heartbeat)]));
    }
    if home.cleartext {
        args.extend(strings(&["--insecure-cleartext"]));
    }
    if settings.subject.has_job() {
        args.extend(strings(&["--", job, "bench-child", child::JOB]));
    }
    command.args(args);
}

/// The arguments that make a leader hand over to another node.
pub(super) fn transfer(home: &Home<'_>, to: &str) -> Vec<String> {
    let mut args = strings(&["transfer", "--to", to, "--election", ELECTION, "--node", home.node]);
    args.extend(strings(&["--state-dir", &home.state_dir.to_string_lossy()]));
    args
}

fn micros(duration: Duration) -> String {
    format!("{}us", duration.as_micros())
}

fn strings(args: &[&str]) -> Vec<String> {
    args.iter().map(|&arg| arg.to_owned()).collect()
}
