//! A live arm: three nodes of the library within this process, on real clocks.

use std::time::Duration;

use primacy::clock;
use primacy_stores::faulty::{Fault, FaultSwitch};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use super::candidate::{CandidateCommand, campaign};
use super::deployment::{Deployment, ElectionLocation, Entry};
use super::harness::{Bounds, ElectionHarness, NODES, Need, NodeCommand, NodeEvent, Pace, Waiting};
use super::listener::{Listener, NodeIncarnation, PATIENCE};

/// Three nodes in this process.
#[derive(Debug)]
pub struct InProcess {
    name: &'static str,
    deployment: Deployment,
    setting: Option<Set>,
    nodes: [Option<Node>; NODES],
    listener: Listener,
}

/// The election, pace and place of one run of a law.
#[derive(Clone, Debug)]
struct Set {
    election: String,
    pace: Pace,
    place: ElectionLocation,
}

#[derive(Debug)]
struct Node {
    life: NodeIncarnation,
    commands: mpsc::UnboundedSender<CandidateCommand>,
    task: JoinHandle<()>,
    switch: FaultSwitch,
}

impl InProcess {
    /// An arm whose nodes hold their elections in this place.
    #[must_use]
    pub fn new(name: &'static str, deployment: Deployment) -> Self {
        Self { name, deployment, setting: None, nodes: [const { None }; NODES], listener: Listener::new() }
    }

    async fn run_command(&mut self, number: usize, command: NodeCommand) {
        let command = match command {
            NodeCommand::Start => return self.start(number).await,
            NodeCommand::Stop => {
                // Within a process no node can end without notice, so it resigns.
                if let Some(Node { life, commands, task, .. }) = self.nodes[number].take() {
                    drop(commands);
                    task.await.expect("a candidate that does not panic");
                    self.listener.tell_end(life);
                }
                return;
            }
            NodeCommand::Silence => return self.switch(number, Fault::LoseRequest),
            NodeCommand::Heal => return self.switch(number, Fault::None),
            NodeCommand::Pause | NodeCommand::Resume | NodeCommand::SlowestClock => {
                unreachable!("it is not claimed")
            }
            NodeCommand::Campaign => CandidateCommand::Campaign,
            NodeCommand::Cancel => CandidateCommand::Cancel,
            NodeCommand::Resign => CandidateCommand::Resign,
            NodeCommand::Check => CandidateCommand::Check,
            NodeCommand::Write => CandidateCommand::Write,
        };
        let node = self.nodes[number].as_ref().expect("it was started");
        node.commands.send(command).expect("a candidate that does not panic");
    }

    async fn start(&mut self, number: usize) {
        let Set { election, pace, place } = self.setting.clone().expect("it was begun");
        let entry = Entry { election, node: number, lease: self.deployment.lease(pace), place };
        let (elector, switch) = entry.enter().await;
        let (commands, received) = mpsc::unbounded_channel();
        let (life, teller) = self.listener.new_life(number);
        let task = tokio::spawn(campaign(elector, received, move |told| teller.tell(told)));
        self.nodes[number] = Some(Node { life, commands, task, switch });
    }

    fn switch(&self, number: usize, fault: Fault) {
        if let Some(node) = &self.nodes[number] {
            node.switch.always(fault);
        }
    }
}

impl ElectionHarness for InProcess {
    fn name(&self) -> String {
        self.name.to_owned()
    }

    fn lacks(&self, need: Need) -> Option<&'static str> {
        match (need, &self.deployment) {
            (Need::Pause, _) => Some("within one process no node can be stopped alone"),
            (Need::Drift, _) => Some("all nodes of one machine have its clock"),
            (Need::Silence, Deployment::Peers(_)) => Some("within one process no socket can be cut"),
            (Need::Silence, Deployment::Store(_) | Deployment::Server(_)) => None,
        }
    }

    fn begin<'a>(&'a mut self, election: &'a str, pace: Pace) -> Waiting<'a, ()> {
        Box::pin(async move {
            let place = self.deployment.place(election, pace).await;
            self.setting = Some(Set { election: election.to_owned(), pace, place });
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
        self.deployment.bounds(self.setting.as_ref().map_or(Pace::Quick, |setting| setting.pace))
    }

    fn stalled_since(&self, start: u64) -> Duration {
        self.listener.stalled_since(start)
    }
}
