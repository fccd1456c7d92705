//! `primacy publish`: has the leader announce a state of the application to the other nodes.

use std::io::Read as _;

use clap::Parser;
use primacy::{ANNOUNCEMENT_MAX, PublishError};
use serde::Serialize;

use super::target::{Target, tell, unexpected};
use crate::control::{Answer, NodeVerb, State};
use crate::exit::{self, Exit, Failure};

/// Let the leader announce a small state of the application to all nodes.
///
/// For elections by `ranked`, whose leader repeats the state to the others
/// with every message. They show it in `primacy status`, each with the number of
/// the latest message that it has heard. The state replaces the one before,
/// and the next leader goes on with it until it announces another.
///
/// Asks the node that leads, if it runs on this machine. A job that
/// `primacy run` has started may do so itself: PRIMACY_ELECTION is set there.
#[derive(Debug, Parser)]
#[command(name = "publish", verbatim_doc_comment, after_help = exit::VERBS_HELP)]
pub(crate) struct Publish {
    /// The state, at most 16 KiB; `-` reads it from standard input, and then it need not be text
    #[arg(value_name = "STATE", allow_hyphen_values = true)]
    state: String,

    #[command(flatten)]
    target: Target,
}

#[derive(Debug, Serialize)]
struct PublishReport {
    /// The node that announces the state.
    node: String,
    /// The term of its leadership.
    term: u64,
    /// The number of its first message with the state.
    number: u64,
}

/// Runs the verb.
pub(crate) fn publish(args: &Publish) -> Result<Exit, Failure> {
    let target = &args.target;
    target.no_store("publish", "over a store the candidates do not talk to each other")?;
    let state = match args.state.as_str() {
        "-" => read()?,
        text => text.as_bytes().to_vec(),
    };
    if state.len() > ANNOUNCEMENT_MAX {
        let refused = PublishError::TooLong { length: state.len() };
        return Err(Failure::new(Exit::Usage, refused.to_string()));
    }
    let node = target.the_leader()?;
    let answer = node.ask(NodeVerb::Publish { state: State::new(&state) })?;
    let Answer::Announced { term, number } = answer else { return Err(unexpected(&node, answer)) };
    let report = PublishReport { node: node.node.clone(), term, number };
    let length = state.len();
    tell(target.json, &report, || {
        format!("{} announces {length} bytes, from number {number} of term {term} on", report.node)
    })?;
    Ok(Exit::Success)
}

/// Reads standard input. One byte over the limit is enough to refuse the state.
fn read() -> Result<Vec<u8>, Failure> {
    let mut state = Vec::new();
    std::io::stdin().lock().take(ANNOUNCEMENT_MAX as u64 + 1).read_to_end(&mut state)?;
    Ok(state)
}
