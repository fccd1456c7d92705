//! `primacy transfer`: has the leader give its lead to a certain node.

use clap::Parser;

use super::resign::{GivingUp, Outcome, Patience};
use super::target::{self, Target, tell};
use crate::control::NodeVerb;
use crate::exit::{self, Exit, Failure};

/// Have the leader give its lead to another node, in order.
///
/// Asks the node of the election that leads on this machine. It drains its
/// work, gives up the lead, and tells NODE to campaign at once. Giving up is
/// final: if NODE fails just then, another node is elected, and the exit
/// code is 2. The same happens if NODE is cordoned or unfit, which only NODE
/// knows: ask it before, with `primacy status`. Over a store the candidates do
/// not know each other; see `primacy resign --store`.
#[derive(Debug, Parser)]
#[command(verbatim_doc_comment, after_help = exit::VERBS_HELP)]
pub(crate) struct Transfer {
    #[command(flatten)]
    target: Target,

    /// The node that shall lead
    #[arg(long, value_name = "NODE")]
    to: String,

    #[command(flatten)]
    patience: Patience,
}

/// Runs the verb.
pub(crate) fn transfer(args: &Transfer) -> Result<Exit, Failure> {
    let target = &args.target;
    let instead = "over a store the candidates do not know each other; cordon those that shall not lead, and \
                   `primacy resign --store URL`";
    target.no_store("transfer", instead)?;
    let node = target.the_leader()?;
    let verb = NodeVerb::Transfer { to: args.to.clone() };
    let mut giving_up = match GivingUp::ask(&node, verb, &args.patience, target.json) {
        // The node leads already.
        Err(failure) if failure.exit == Exit::Success => {
            let Some(leader) = target::who(&node)?.leader else { return Err(failure) };
            tell(target.json, &Outcome::Elected { leader }, || failure.message)?;
            return Ok(Exit::Success);
        }
        giving_up => giving_up?,
    };
    if args.patience.no_wait {
        Outcome::Asked { node: node.node.clone(), term: giving_up.term }.tell(target.json)?;
        return Ok(Exit::Success);
    }
    loop {
        let Some(leader) = giving_up.next_leader()? else { continue };
        let exit = if leader.node == args.to { Exit::Success } else { Exit::Elsewhere };
        Outcome::Elected { leader }.tell(target.json)?;
        return Ok(exit);
    }
}
