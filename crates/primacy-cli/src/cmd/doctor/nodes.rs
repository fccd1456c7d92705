//! A comparison of the timers of an election's nodes: of those that run on this machine, and those that they have heard
//! from the others.

use std::collections::BTreeMap;
use std::path::Path;

use primacy::core::Duration;
use primacy::stores::{Check, Verdict};

use crate::cmd::target;
use crate::control::{self, NodeStatus};
use crate::exit::Failure;

const NAME: &str = "all nodes have the same timers";

/// Asks the nodes that run on this machine, as the state directory lists them.
///
/// # Errors
/// If none runs here, or another user could answer in its place.
pub(super) fn timers(dir: &Path, election: &str) -> Result<Check, Failure> {
    let (mut known, mut silent) = (Vec::new(), Vec::new());
    for node in control::find_all(dir, Some(election))? {
        match target::who(&node) {
            Ok(who) => known.push(who),
            Err(failure) => silent.push(format!("{}: {}", node.node, failure.message)),
        }
    }
    Ok(judge(&known, &silent))
}

/// A function that reads a timer, in milliseconds.
type Read = fn(&NodeStatus) -> u64;

/// The nodes by the value of a timer, in milliseconds.
type Values = BTreeMap<u64, Vec<String>>;

fn judge(known: &[NodeStatus], silent: &[String]) -> Check {
    let timers: [(&str, Read); 4] = [
        ("lease", |who| who.lease_ms),
        ("heartbeat", |who| who.renewal_ms),
        ("drain", |who| who.drain_ms),
        ("kill-margin", |who| who.kill_margin_ms),
    ];
    let mut differing = Vec::new();
    for (timer, value) in timers {
        let mut values = Values::new();
        for who in known {
            values.entry(value(who)).or_default().push(who.node.clone());
        }
        if timer == "lease" {
            add_heard(&mut values, known);
        }
        if values.len() > 1 {
            differing.push(shown(timer, &values));
        }
    }
    let names: Vec<&str> = known.iter().map(|who| who.node.as_str()).collect();
    let asked = if names.is_empty() { "no node".to_owned() } else { names.join(", ") };
    if !differing.is_empty() {
        let why = "a leader renews by the shortest lease that it has heard, and has as much less time to end its work in; and how soon \
                   another takes over depends on which node leads";
        let fix = "start all nodes with the same settings, one after the other";
        return Check::not(Verdict::Warn, NAME, differing.join("; "), why, fix);
    }
    let hears_all = known.iter().any(|who| who.leader.as_ref().is_some_and(|leader| leader.node == who.node));
    if !silent.is_empty() || (known.len() < 2 && !hears_all) {
        let mut found = format!("of the nodes here, {asked} answered");
        found.extend(silent.iter().map(|silent| format!("; {silent}")));
        let why = "nodes whose timers differ lead for less long than they seem to";
        let fix = "ask where the leader runs, which hears the leases of all that vote";
        return Check::not(Verdict::Unknown, NAME, found, why, fix);
    }
    Check::pass(NAME, format!("so {asked} say, and those that they have heard"))
}

/// Adds the leases of nodes that run on other machines: of the peers that a leader has heard, and of the holder in a
/// store's record.
fn add_heard(values: &mut Values, known: &[NodeStatus]) {
    let is_known = |node: &str| known.iter().any(|who| who.node == node);
    for who in known {
        let peers = who.peers.iter().flat_map(|peers| &peers.other_leases_ms);
        let peers = peers.map(|(node, lease)| (node.as_str(), *lease));
        let holder =
            who.record.iter().filter_map(|record| Some((record.holder.as_deref()?, record.duration_ms)));
        for (node, lease) in peers.chain(holder).filter(|(node, _)| !is_known(node)) {
            let nodes = values.entry(lease).or_default();
            if !nodes.iter().any(|named| named == node) {
                nodes.push(node.to_owned());
            }
        }
    }
}

fn shown(timer: &str, values: &Values) -> String {
    let one = |(value, nodes): (&u64, &Vec<String>)| {
        format!("{} at {}", Duration::from_nanos(value.saturating_mul(1_000_000)), nodes.join(", "))
    };
    format!("the {timer} is {}", values.iter().map(one).collect::<Vec<_>>().join(", and "))
}
