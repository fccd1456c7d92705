//! Network namespaces: a virtual network for each node, joined by a bridge, so that a link can be cut and even the
//! close of a connection does not get through. Created with `ip`, and removed at the end.

use std::net::{Ipv4Addr, SocketAddr};
use std::process::{Command, Stdio};

use super::failed;
use crate::exit::{Exit, Failure};

/// The namespaces of a run; dropping it removes them.
#[derive(Debug)]
pub(super) struct Namespaces {
    /// The prefix of all names; it contains this process's number, so that runs do not collide.
    prefix: String,
    made: Vec<String>,
}

/// The port of every node; each has an address of its own.
const PORT: u16 = 7400;

impl Namespaces {
    /// Creates a namespace that has only its own loopback.
    pub(super) fn alone(name: &str) -> Result<Self, Failure> {
        let mut namespaces = Self::empty();
        namespaces.add(name)?;
        Ok(namespaces)
    }

    /// Creates a namespace for each of these nodes, on one bridge.
    pub(super) fn bridged(nodes: &[String]) -> Result<Self, Failure> {
        let mut namespaces = Self::empty();
        let hub = namespaces.add("hub")?;
        ip(&["-n", &hub, "link", "add", "bridge", "type", "bridge"])?;
        ip(&["-n", &hub, "link", "set", "bridge", "up"])?;
        for (index, node) in nodes.iter().enumerate() {
            let own = namespaces.add(node)?;
            let port = format!("to-{node}");
            ip(&["-n", &hub, "link", "add", &port, "type", "veth", "peer", "name", "net0", "netns", &own])?;
            // iproute2 names the bridge of a port by this keyword.
            ip(&["-n", &hub, "link", "set", &port, "master", "bridge", "up"])?;
            ip(&["-n", &own, "address", "add", &format!("{}/24", address(index).ip()), "dev", "net0"])?;
            ip(&["-n", &own, "link", "set", "net0", "up"])?;
        }
        Ok(namespaces)
    }

    fn empty() -> Self {
        Self { prefix: format!("primacy-{}-", std::process::id()), made: Vec::new() }
    }

    fn add(&mut self, name: &str) -> Result<String, Failure> {
        let full = self.name(name);
        ip(&["netns", "add", &full])?;
        self.made.push(full.clone());
        ip(&["-n", &full, "link", "set", "lo", "up"])?;
        Ok(full)
    }

    /// The system's name of the namespace.
    pub(super) fn name(&self, name: &str) -> String {
        format!("{}{name}", self.prefix)
    }

    /// Cuts a node off in both directions.
    pub(super) fn cut(&self, node: &str) -> Result<(), Failure> {
        ip(&["-n", &self.name("hub"), "link", "set", &format!("to-{node}"), "down"])
    }

    /// Restores the link of a node.
    pub(super) fn join(&self, node: &str) -> Result<(), Failure> {
        ip(&["-n", &self.name("hub"), "link", "set", &format!("to-{node}"), "up"])
    }
}

impl Drop for Namespaces {
    fn drop(&mut self) {
        for name in &self.made {
            // The name of a namespace that cannot be removed contains this process's number.
            let _ = ip(&["netns", "delete", name]);
        }
    }
}

/// Returns a command that runs in a namespace.
pub(super) fn command_in(namespace: &str, program: &str) -> Command {
    let mut command = Command::new("ip");
    command.args(["netns", "exec", namespace, program]);
    command
}

/// The address of a node that has a namespace of its own.
pub(super) fn address(index: usize) -> SocketAddr {
    let host = u8::try_from(index + 1).unwrap_or(u8::MAX);
    SocketAddr::from((Ipv4Addr::new(10, 77, 0, host), PORT))
}

/// Runs `ip`.
///
/// # Errors
/// If `ip` is not installed or this user lacks the privileges; the message says which.
fn ip(args: &[&str]) -> Result<(), Failure> {
    let output = Command::new("ip").args(args).stdin(Stdio::null()).output().map_err(|error| {
        let message = format!("a network namespace needs the command `ip` (package iproute2): {error}");
        Failure::new(Exit::Unavailable, message)
    })?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    Err(failed(format!(
        "`ip {}` failed: {said}; network namespaces need CAP_NET_ADMIN and CAP_SYS_ADMIN",
        args.join(" ")
    )))
}
