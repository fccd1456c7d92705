//! A live arm: three processes of this machine, which can be stopped and killed.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::Duration;

use primacy::clock;
use primacy_core::FencingToken;
use primacy_core::election::lease::{Record, Version};
use primacy_stores::SetError;
use rustix::process::{Pid, Signal, kill_process};

use super::candidate::{self, CandidateCommand};
use super::check;
use super::deployment::{Attention, Deployment, ElectionLocation, Entry, Server};
use super::harness::{Bounds, ElectionHarness, NODES, Need, NodeCommand, NodeEvent, Pace, Waiting};
use super::listener::{Listener, NodeIncarnation, PATIENCE};
use crate::Outcome;

/// The environment variable with the parameters of a candidate's process.
const ENTRY_VARIABLE: &str = "PRIMACY_TEST_CANDIDATE";

/// The maximum time for a store to answer while a process is stopped; after that, the process counts as blocking it.
const IN_THE_WAY: Duration = Duration::from_millis(300);

/// The same for a server, which needs more time than a file.
const IN_THE_WAY_OF_A_SERVER: Duration = Duration::from_secs(1);

/// Three processes.
#[derive(Debug)]
pub struct Processes {
    name: &'static str,
    deployment: Deployment,
    /// Starts a process that calls [`campaign_if_told`].
    program: fn() -> Command,
    election: String,
    pace: Pace,
    place: Option<ElectionLocation>,
    nodes: [Option<Node>; NODES],
    listener: Listener,
}

#[derive(Debug)]
struct Node {
    life: NodeIncarnation,
    process: Child,
    commands: ChildStdin,
}

/// Runs a candidate's process; does nothing in any other process.
pub async fn campaign_if_told() {
    let Ok(told) = std::env::var(ENTRY_VARIABLE) else { return };
    let entry = Entry::from_told(&told).expect("how to enter");
    let (elector, _switch) = entry.enter().await;
    candidate::campaign_as_process(elector).await;
}

/// Checks elections of three processes in a store against the laws. One machine has one clock, so only the law of
/// drift is not claimed.
///
/// # Panics
/// If a law is broken; or if any other law is not claimed, or not run.
pub async fn hold(
    name: &'static str,
    server: Server,
    program: fn() -> Command,
) -> Vec<(&'static str, Outcome)> {
    let outcomes = check(&mut Processes::new(name, Deployment::Server(server), program)).await;
    let others: Vec<_> = outcomes.iter().filter(|(_, outcome)| *outcome != Outcome::Passed).collect();
    assert_eq!(others, [&("two_holders_never_overlap_under_drift", Outcome::NotClaimed)], "{name}");
    outcomes
}

impl Processes {
    /// Processes that hold their elections in this place; `program` starts one that calls [`campaign_if_told`].
    #[must_use]
    pub fn new(name: &'static str, deployment: Deployment, program: fn() -> Command) -> Self {
        let (nodes, listener) = ([const { None }; NODES], Listener::new());
        Self {
            name,
            deployment,
            program,
            election: String::new(),
            pace: Pace::Quick,
            place: None,
            nodes,
            listener,
        }
    }

    fn start(&mut self, number: usize) {
        let (election, lease) = (self.election.clone(), self.deployment.lease(self.pace));
        let place = self.place.clone().expect("it was begun");
        let mut command = (self.program)();
        command.env(ENTRY_VARIABLE, Entry { election, node: number, lease, place }.told());
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::inherit());
        let mut process = command.spawn().expect("a process can be started");
        let output = process.stdout.take().expect("it was piped");
        let commands = process.stdin.take().expect("it was piped");
        let (life, teller) = self.listener.new_life(number);
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                let told = line.strip_prefix(candidate::LINE).and_then(|told| told.parse().ok());
                // Goes on when the receiver is gone: a pipe that is not read would block the process.
                told.into_iter().for_each(|told| teller.tell(told));
            }
        });
        self.nodes[number] = Some(Node { life, process, commands });
    }

    fn stop(&mut self, number: usize) {
        if let Some(mut node) = self.nodes[number].take() {
            node.process.kill().expect("a process can be killed");
            node.process.wait().expect("a process can be waited for");
            self.listener.tell_end(node.life);
        }
    }

    fn signal(&self, number: usize, signal: Signal) {
        let node = self.nodes[number].as_ref().expect("it was started");
        kill_process(Pid::from_child(&node.process), signal).expect("a process can be signalled");
    }

    /// Stops a process at a moment when it does not block all others. A process that is stopped in the middle of a
    /// write does: then no node is elected, as the pages of the stores state.
    async fn pause(&self, number: usize) {
        let began = std::time::Instant::now();
        loop {
            assert!(began.elapsed() < PATIENCE, "{}: at no moment could the others write", self.name);
            self.signal(number, Signal::STOP);
            if self.is_passable().await {
                return;
            }
            // Not by a macro, whose output is captured when the test passes.
            let _ = writeln!(std::io::stderr(), "{}: stopped in the middle of a write; once more", self.name);
            self.signal(number, Signal::CONT);
            tokio::time::sleep(IN_THE_WAY / 100).await;
        }
    }

    /// True if the store refuses a stale write, and so can be written to.
    async fn is_passable(&self) -> bool {
        let (url, bound) = match &self.deployment {
            Deployment::Store(url) => (url, IN_THE_WAY),
            Deployment::Server(Server { url, attention: Attention::One, .. }) => {
                (url, IN_THE_WAY_OF_A_SERVER)
            }
            Deployment::Server(Server { attention: Attention::All, .. }) | Deployment::Peers(_) => {
                return true;
            }
        };
        let refused = async {
            let register = primacy_stores::open_existing(url, &self.election).await.ok()?;
            let record = Record::released(FencingToken(0), primacy_core::Duration::ZERO);
            // No store gives so low a version; and the check needs the lock of every write.
            register.compare_and_set(Some(&Version::from(1)), &record).await.err()
        };
        tokio::time::timeout(bound, refused).await == Ok(Some(SetError::Conflict))
    }

    async fn run_command(&mut self, number: usize, command: NodeCommand) {
        let command = match command {
            NodeCommand::Start => return self.start(number),
            NodeCommand::Stop => return self.stop(number),
            // A stopped process neither receives nor sends.
            NodeCommand::Pause | NodeCommand::Silence => return self.pause(number).await,
            NodeCommand::Resume | NodeCommand::Heal => return self.signal(number, Signal::CONT),
            NodeCommand::SlowestClock => unreachable!("it is not claimed"),
            NodeCommand::Campaign => CandidateCommand::Campaign,
            NodeCommand::Cancel => CandidateCommand::Cancel,
            NodeCommand::Resign => CandidateCommand::Resign,
            NodeCommand::Check => CandidateCommand::Check,
            NodeCommand::Write => CandidateCommand::Write,
        };
        let node = self.nodes[number].as_mut().expect("it was started");
        writeln!(node.commands, "{}", command.word()).expect("a candidate that does not panic");
    }
}

impl Drop for Processes {
    fn drop(&mut self) {
        for number in 0..NODES {
            self.stop(number);
        }
    }
}

impl ElectionHarness for Processes {
    fn name(&self) -> String {
        self.name.to_owned()
    }

    fn lacks(&self, need: Need) -> Option<&'static str> {
        match need {
            Need::Pause | Need::Silence => None,
            Need::Drift => Some("all processes of one machine have its clock"),
        }
    }

    fn begin<'a>(&'a mut self, election: &'a str, pace: Pace) -> Waiting<'a, ()> {
        Box::pin(async move {
            (0..NODES).for_each(|number| self.stop(number));
            election.clone_into(&mut self.election);
            self.pace = pace;
            self.place = Some(self.deployment.place(election, pace).await);
            self.listener.begin();
        })
    }

    fn command(&mut self, node: usize, command: NodeCommand) -> Waiting<'_, ()> {
        Box::pin(self.run_command(node, command))
    }

    fn next(&mut self) -> Waiting<'_, Option<NodeEvent>> {
        Box::pin(async {
            let Self { listener, nodes, .. } = self;
            listener.next(|number| nodes[number].as_ref().map(|node| node.life)).await
        })
    }

    fn now(&self) -> u64 {
        clock::now().as_nanos()
    }

    fn patience(&self) -> Duration {
        PATIENCE
    }

    fn bounds(&self) -> Bounds {
        self.deployment.bounds(self.pace)
    }

    fn stalled_since(&self, start: u64) -> Duration {
        self.listener.stalled_since(start)
    }
}
