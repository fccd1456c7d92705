//! The clients of a run, one process beside each node: started before the nodes, and told to finish once all faults are
//! over.

use std::fs::File;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::Pid;

use crate::chaos::event_log::{RunEvent, Sent};
use crate::chaos::processes::{LOOK_INTERVAL, MARK, signal};
use crate::chaos::run::ArmRun;
use primacy_testbed::network::Network;
use primacy_testbed::run_error::RunError;

/// The beginning of a client's mark, after the arm's: no node has such a name, so no signal to a node reaches a client.
const CLIENT_MARK: &str = "=client-";
/// The time for the clients to finish: longer than the remaining time of their last sessions and the final reads.
const FINISH_MAX: Duration = Duration::from_secs(120);

/// A client.
#[derive(Debug)]
pub(crate) struct Beside {
    name: String,
    child: Child,
}

impl ArmRun {
    /// Starts a client beside each node, if the nodes serve clients.
    ///
    /// # Errors
    /// [`RunError`]
    pub(crate) fn begin_clients(&mut self) -> Result<(), RunError> {
        let (arm, dir) = (self.plan.arm, self.plan.dir.clone());
        let Some(network) = self.network.as_ref().filter(|_| arm.serves_clients()) else { return Ok(()) };
        let own = std::env::current_exe().map_err(RunError::file("find", Path::new("this program")))?;
        for (place, name) in arm.node_names().iter().enumerate() {
            let told = dir.join(format!("client-{name}.err"));
            let mut command = Command::new("ip");
            command
                .args(["netns", "exec", &network.namespace(name)])
                .arg(&own)
                .args(["chaos", "client"])
                .arg(&dir);
            command.args(["--name", name, "--place", &place.to_string()]);
            command.args(["--seed", &self.plan.seed.to_string()]);
            for place in 0..arm.nodes {
                command.args(["--etcd-api", &endpoints(network, place)]);
            }
            command.env(MARK, format!("{}{CLIENT_MARK}{name}", crate::chaos::run::mark(&arm)));
            let told = File::create(&told).map_err(RunError::file("make", &told))?;
            command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(told);
            let child = command.spawn().map_err(RunError::file("start", &own))?;
            self.clients.push(Beside { name: name.clone(), child });
        }
        Ok(())
    }

    /// Checks that all clients run.
    ///
    /// # Errors
    /// [`RunError::NotWhole`] if one has ended, because its history is then incomplete.
    pub(crate) fn watch_clients(&mut self) -> Result<(), RunError> {
        for client in &mut self.clients {
            if let Some(status) = client.ended()? {
                let Beside { name, .. } = client;
                return Err(RunError::NotWhole(format!(
                    "the client beside {name} ended before it was told to: {status}"
                )));
            }
        }
        Ok(())
    }

    /// Tells the clients to finish, and waits until they have, while the nodes run. Before they end, they read everything that was
    /// ever written.
    ///
    /// # Errors
    /// [`RunError::NotWhole`] if one has failed.
    pub(crate) fn finish_clients(&mut self) -> Result<(), RunError> {
        let mut left = std::mem::take(&mut self.clients);
        for client in &left {
            // A client that has already ended is detected below.
            signal(Pid::from_child(&client.child), Sent::Terminate.signal())?;
        }
        let until = Instant::now() + FINISH_MAX;
        while !left.is_empty() && Instant::now() < until {
            self.turn()?;
            let mut failed = None;
            left.retain_mut(|client| match client.ended() {
                Ok(None) => true,
                Ok(Some(status)) if status.success() => false,
                Ok(Some(status)) => {
                    failed = Some(RunError::NotWhole(format!(
                        "the client beside {} has failed: {status}",
                        client.name
                    )));
                    false
                }
                Err(error) => {
                    failed = Some(error);
                    false
                }
            });
            if let Some(error) = failed {
                return Err(error);
            }
            std::thread::sleep(LOOK_INTERVAL);
        }
        if left.is_empty() {
            return Ok(());
        }
        let names: Vec<&str> = left.iter().map(|client| client.name.as_str()).collect();
        let what = format!("the clients {names:?} have not finished within {FINISH_MAX:?}");
        self.events.log(RunEvent::Stuck { step: 0, what })
    }
}

impl Beside {
    fn ended(&mut self) -> Result<Option<std::process::ExitStatus>, RunError> {
        self.child.try_wait().map_err(RunError::file("wait for", Path::new("a client")))
    }
}

/// Returns both addresses of a place, which has two nodes while one is being replaced.
fn endpoints(network: &Network, place: usize) -> String {
    [0, 1].map(|generation| network.etcd_api(place, generation)).join(",")
}
