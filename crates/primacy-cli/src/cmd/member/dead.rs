//! `primacy member remove --dead`: removes a member from a cluster by seniority, on the word of its operator.

use serde::Serialize;

use crate::cmd::target::{Target, tell, unexpected};
use crate::control::{Answer, NodeVerb};
use crate::exit::{Exit, Failure};

#[derive(Debug, Serialize)]
struct Removed<'a> {
    /// The node that passes the removal on to the coordinator.
    node: &'a str,
    removed: &'a str,
}

/// Removes a member that is dead.
pub(super) fn remove(member: &str, target: &Target) -> Result<Exit, Failure> {
    target.no_store("member", "an election over a store has no members")?;
    let node = target.the_node()?;
    let answer = node.ask(NodeVerb::Down { node: member.to_owned() })?;
    let Answer::Downed = answer else { return Err(unexpected(&node, answer)) };
    let removed = Removed { node: &node.node, removed: member };
    tell(target.json, &removed, || format!("{} waits no more for {member}", node.node))?;
    Ok(Exit::Success)
}
