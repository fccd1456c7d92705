//! `primacy down`: vouches that a member of a cluster is not to be waited for.

use clap::Parser;
use serde::Serialize;

use super::target::{Target, tell, unexpected};
use crate::control::{Answer, What};
use crate::exit::{self, Exit, Failure};

/// Remove a member from a cluster by seniority, at once.
///
/// The cluster removes a member itself when it has been silent for long, if
/// its policy lets the part that is left go on. This vouches for what the
/// cluster cannot know: that the member is dead and stays so, or that its
/// machine is off. Said to one node, it is passed on to the coordinator.
///
/// Be sure of it. A member that lives leads on beside the others, until it
/// hears of them again; then it joins as the youngest.
#[derive(Debug, Parser)]
#[command(name = "down", verbatim_doc_comment, after_help = exit::VERBS_HELP)]
pub(crate) struct Down {
    /// The member that is not to be waited for
    #[arg(value_name = "NODE")]
    member: String,

    #[command(flatten)]
    target: Target,
}

#[derive(Debug, Serialize)]
struct Told {
    /// Who was told.
    node: String,
    /// Who is not waited for any more.
    down: String,
}

/// Runs the verb.
pub(crate) fn down(args: &Down) -> Result<Exit, Failure> {
    let target = &args.target;
    target.no_store("down", "over a store there are no members")?;
    let node = target.the_node()?;
    let answer = node.ask(What::Down { node: args.member.clone() })?;
    let Answer::Downed = answer else { return Err(unexpected(&node, answer)) };
    let told = Told { node: node.node.clone(), down: args.member.clone() };
    tell(target.json, &told, || format!("{} waits no more for {}", told.node, told.down))?;
    Ok(Exit::Success)
}
