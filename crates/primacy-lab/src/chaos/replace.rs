//! Replacement of a voter: a new node with another name, an empty disk and another address starts, and becomes a
//! voter in place of an old one once it is up to date; the old node is terminated, and its disk deleted. This goes on
//! during the following steps of the schedule, and the command is repeated at another node if a fault makes it fail.

use std::io::Read as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::chaos::arm::ELECTION;
use crate::chaos::event_log::{RunEvent, Sent};
use crate::chaos::fake_clock::PRELOAD;
use crate::chaos::fault::{Kind, NodeProcess};
use crate::chaos::inject::{DISOBEYED, END_MAX};
use crate::chaos::node::{Node, Start};
use crate::chaos::processes::{MARK, end_marked};
use crate::chaos::run::{ArmRun, mark};
use primacy_testbed::run_error::RunError;

/// The time that the command itself waits, before it is repeated at another node.
const WAIT: &str = "10s";
/// The pause before it is repeated.
const AGAIN_AFTER: Duration = Duration::from_millis(200);

/// The maximum number of voters replaced in a run. Nodes remember the disks of all former voters, in a file with room
/// for about a hundred and fifty with names as short as these.
const REPLACED_MAX: u32 = 100;

/// A voter that is being replaced.
#[derive(Debug)]
pub(crate) struct Replacing {
    step: u32,
    /// The place of the old voter.
    pub(crate) place: usize,
    /// The new node.
    pub(crate) new: Node,
    command: Option<Child>,
    /// The node that gets the command, counting the new one after the others; and the time to try the next one.
    asked: usize,
    again_at: Instant,
    /// The last output of the command.
    said: String,
    is_done: bool,
}

/// A replaced node, which was terminated.
#[derive(Debug)]
pub(crate) struct Leaving {
    pub(crate) node: Node,
    until: Instant,
}

impl Replacing {
    /// The progress, as text.
    pub(crate) fn text(&self) -> String {
        format!("{} does not take its place: {}", self.new.name, self.said)
    }
}

impl ArmRun {
    /// Starts a node that will replace this one, unless a replacement is in progress. The node with the faked clock
    /// is never replaced, because the clock belongs to its name.
    ///
    /// # Errors
    /// [`RunError`]
    pub(crate) fn begin_replacing(&mut self, step: u32, node: usize, detail: u64) -> Result<(), RunError> {
        let is_faked = |node: usize| self.nodes[node].start.env.iter().any(|(name, _)| name == PRELOAD);
        let place = if is_faked(node) { self.other(node, detail) } else { node };
        let replaced: u32 = self.nodes.iter().map(|node| node.start.generation).sum();
        let may = self.replacing.is_none() && replaced < REPLACED_MAX && !is_faked(place);
        let Some(network) = self.network.as_ref().filter(|_| may) else { return Ok(()) };
        let (old, letter) = (&self.nodes[place].start, &self.plan.arm.node_names()[place]);
        let generation = old.generation + 1;
        let name = format!("{letter}{}", generation + 1);
        let address = network.address(place, generation);
        let others = self.nodes.iter().filter_map(|node| Some((&node.name, node.start.address.as_ref()?)));
        let all = others.chain([(&name, &address)]).map(|(name, address)| format!("{name}={address}"));
        let start = Start {
            peers: Some(all.collect::<Vec<_>>().join(",")),
            address: Some(address),
            etcd_api: Some(network.etcd_api(place, generation)),
            generation,
            state: self.plan.dir.join("state").join(&name),
            // The mark must not be a prefix of another node's mark.
            mark: format!("{}{}{letter}", mark(&self.plan.arm), generation + 1),
            ..old.clone()
        };
        let mut new = Node::new(&name, start);
        new.begin(&self.plan.arm, &mut self.events)?;
        let (said, again_at) = ("it was not asked for yet".to_owned(), Instant::now());
        self.replacing = Some(Replacing {
            step,
            place,
            new,
            command: None,
            asked: self.other(place, detail),
            again_at,
            said,
            is_done: false,
        });
        Ok(())
    }

    /// Continues the replacement.
    ///
    /// # Errors
    /// [`RunError`]
    pub(crate) fn go_on_replacing(&mut self) -> Result<(), RunError> {
        self.take_leaving()?;
        let Some(mut replacing) = self.replacing.take() else { return Ok(()) };
        if replacing.new.look(&mut self.events)? {
            replacing.new.restart_after(AGAIN_AFTER);
        }
        if replacing.new.restart_at.is_some_and(|at| Instant::now() >= at) {
            replacing.new.begin(&self.plan.arm, &mut self.events)?;
        }
        if let Some(mut command) = replacing.command.take() {
            let failed = |error: std::io::Error| RunError::Program {
                line: "primacy member replace".into(),
                said: error.to_string(),
            };
            match command.try_wait().map_err(failed)? {
                None => replacing.command = Some(command),
                Some(status) if status.success() => replacing.is_done = true,
                Some(status) => {
                    let mut said = String::new();
                    if let Some(mut stderr) = command.stderr.take() {
                        stderr.read_to_string(&mut said).map_err(failed)?;
                    }
                    replacing.said = format!("`primacy member replace` ended with {status}: {}", said.trim());
                    if !status.code().is_some_and(|code| DISOBEYED.contains(&code)) {
                        let (step, what) = (replacing.step, replacing.said.clone());
                        self.events.log(RunEvent::Failed { step, what })?;
                    }
                    replacing.asked = (replacing.asked + 1) % (self.nodes.len() + 1);
                    replacing.again_at = Instant::now() + AGAIN_AFTER;
                }
            }
        }
        // A stopped node is terminated only after it continues.
        if replacing.is_done && !self.stopped.contains(&replacing.place) {
            return self.leave_place(replacing);
        }
        if replacing.command.is_none() && !replacing.is_done && Instant::now() >= replacing.again_at {
            replacing.command = Some(self.ask_to_replace(&mut replacing)?);
        }
        self.replacing = Some(replacing);
        Ok(())
    }

    /// Runs the command at a remaining node, or at the new one: with a single voter, the old node may have ended
    /// before it learned that it was replaced, and no node tells it later.
    fn ask_to_replace(&self, replacing: &mut Replacing) -> Result<Child, RunError> {
        if replacing.asked == replacing.place && self.nodes.len() > 1 {
            replacing.asked += 1;
        }
        let new = &replacing.new;
        let (old, asked) = (&self.nodes[replacing.place], self.nodes.get(replacing.asked).unwrap_or(new));
        let named = format!("{}={}", new.name, new.start.address.as_deref().unwrap_or_default());
        let mut command = Command::new(&old.start.primacy);
        command.args(["member", "replace", &old.name, &named, "--election", ELECTION, "--wait", WAIT]);
        command.args(["--node", &asked.name, "--state-dir"]).arg(&asked.start.state);
        command.env(MARK, format!("{}=operator", mark(&self.plan.arm)));
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        command.spawn().map_err(RunError::file("start", &old.start.primacy))
    }

    /// Completes a replacement after the change of voters: the new node takes the place, and the old one is
    /// terminated.
    fn leave_place(&mut self, replacing: Replacing) -> Result<(), RunError> {
        let Replacing { step, place, new, .. } = replacing;
        let node = std::mem::replace(&mut self.nodes[place], new);
        node.send(NodeProcess::Supervisor, Sent::Terminate, &mut self.events)?;
        self.leaving.push(Leaving { node, until: Instant::now() + END_MAX });
        self.events.log(RunEvent::Took { step, kind: Kind::ReplaceVoter })
    }

    /// Collects the ends of replaced nodes, and deletes their disks.
    fn take_leaving(&mut self) -> Result<(), RunError> {
        for mut leaving in std::mem::take(&mut self.leaving) {
            let Leaving { node, until } = &mut leaving;
            node.look(&mut self.events)?;
            if !node.is_up() {
                // Its machine is switched off, with all remaining processes.
                if end_marked(&node.start.mark) > 0 {
                    return Err(RunError::NotWhole(format!("a process of {} could not be ended", node.name)));
                }
                remove(&node.start.state)?;
                self.events.log(RunEvent::Left { node: node.name.clone() })?;
                continue;
            }
            if Instant::now() >= *until {
                let what = format!("{} did not end within {END_MAX:?} of SIGTERM", node.name);
                self.events.log(RunEvent::Stuck { step: 0, what })?;
                node.send(NodeProcess::Supervisor, Sent::Kill, &mut self.events)?;
                *until = Instant::now() + END_MAX;
            }
            self.leaving.push(leaving);
        }
        Ok(())
    }

    /// The place of the node of this name, even if its replacement is not complete.
    pub(crate) fn place_of(&self, name: &str) -> Option<usize> {
        let new = self.replacing.iter().find(|replacing| replacing.new.name == name);
        self.nodes.iter().position(|node| node.name == name).or(new.map(|replacing| replacing.place))
    }
}

fn remove(state: &Path) -> Result<(), RunError> {
    match std::fs::remove_dir_all(state) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        removed => removed.map_err(RunError::file("remove", state)),
    }
}
