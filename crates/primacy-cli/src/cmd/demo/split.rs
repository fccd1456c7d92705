//! Five nodes by seniority are split into three and two, and meet again: first without, and then with a quorum that
//! confirms.

use std::collections::BTreeSet;
use std::fmt;
use std::path::PathBuf;

use serde::Serialize;

use super::ledger::Ledger;
use super::relay::Relays;
use super::{Narrator, ledger_failed};
use crate::cmd::process_group::{ProcessGroup, ReservedAddress, reserve_addresses};
use crate::cmd::target;
use crate::control::{self, Leader, NodeStatus};
use crate::exit::{Exit, Failure};

const ELECTION: &str = "split";
const ALL: [&str; 5] = ["n1", "n2", "n3", "n4", "n5"];
/// The part with the first seed, which founds the cluster and so is its oldest member.
const LARGE: [&str; 3] = ["n1", "n2", "n3"];
const SMALL: [&str; 2] = ["n4", "n5"];
/// The roles in a quorum of a node that requests votes.
const STANDING: [&str; 2] = ["pre-candidate", "candidate"];
/// The number of turns of two leaders' writes in the ledger after which both have been observed for long enough.
const TURNS_MIN: u64 = 10;

/// The observations in both halves of the chapter.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Measured {
    pub(super) advisory: AtOnce,
    pub(super) confirmed: AtOnce,
}

/// The observations of simultaneous leaders.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct AtOnce {
    /// The most leaders whose jobs were alive at the same time, among the moments at which the demo checked.
    leaders_at_once: usize,
    /// The number of lines of the ledger written by another leader than the line before.
    turns: u64,
    /// The number of lines written under a token, or an advisory leader's term, lower than that of an earlier line.
    stale_lines: u64,
}

/// The cluster of one half of the chapter.
struct Cluster {
    group: ProcessGroup,
    relays: Relays,
    narrator: Narrator,
    ledger: PathBuf,
    at_once: usize,
}

/// Runs the chapter. All its processes have ended when it returns.
///
/// # Errors
/// If an expected event does not happen in time.
pub(super) fn tell(narrator: Narrator) -> Result<Measured, Failure> {
    narrator.say("five nodes, of which the oldest leads (--algorithm seniority)");
    narrator.say("what n1 n2 n3 and n4 n5 say to each other goes through this process, which can cut it");
    let advisory = advisory(narrator)?;
    narrator.say("the same with --confirm quorum: seniority says who should lead, and a majority who may");
    Ok(Measured { advisory, confirmed: confirmed(narrator)? })
}

impl Measured {
    /// Checks that the demo has shown two simultaneous leaders, and then one.
    ///
    /// # Errors
    /// If it has not shown that.
    pub(super) fn judge(&self) -> Result<(), Failure> {
        let failed = |message: String| Err(Failure::new(Exit::Failed, message));
        match (self.advisory.leaders_at_once, self.confirmed.leaders_at_once) {
            (2, 1) if self.confirmed.stale_lines == 0 => Ok(()),
            (2, 1) => failed("a stale write got into the ledger of confirmed leaders".into()),
            (advisory, confirmed) => failed(format!(
                "there were to be two advisory leaders at once and one confirmed leader; there were {advisory} and \
                 {confirmed}"
            )),
        }
    }
}

impl fmt::Display for AtOnce {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let leaders = if self.leaders_at_once == 1 { "leader" } else { "leaders" };
        write!(
            f,
            "{} {leaders} at once; the writer in the ledger changed {} times",
            self.leaders_at_once, self.turns
        )
    }
}

/// Shows two leaders, since each part goes on; and one after the parts have met.
fn advisory(narrator: Narrator) -> Result<AtOnce, Failure> {
    let options = ["--allow-advisory", "--split-brain", "available"];
    let mut cluster = Cluster::start(narrator, &options, true)?;
    let oldest = cluster.wait_for_leader("a leader of all", &ALL)?;
    cluster.say(&format!("{} is the oldest, and leads all five in {}", oldest.node, oldest.number()));
    cluster.cut();
    let other = cluster.wait_for_leader("a leader of the small part", &SMALL)?;
    let still = cluster.wait_for_leader("a leader of the large part", &LARGE)?;
    cluster.say(&format!("  {} still leads n1 n2 n3 in term {}", still.node, still.term));
    cluster.say(&format!("  and {} leads n4 n5 in term {}: TWO leaders", other.node, other.term));
    let ledger = cluster.ledger()?;
    let before = ledger.turns().map_err(|error| ledger_failed(error.into()))?;
    cluster.look_for("writes of both", |_| {
        let turns = ledger.turns().map_err(|error| ledger_failed(error.into()))?;
        Ok((turns >= before + TURNS_MIN).then_some(()))
    })?;
    cluster.say("  both jobs write in turns, and nothing refuses either, for they have no token");
    cluster.heal();
    let merged = cluster.look_for("one leader of all", |group| {
        Ok(leader_of(group, &ALL).filter(|leader| group.working() == [leader.node.as_str()]))
    })?;
    cluster.say(&format!(
        "  the smaller part has given up its lead and joined the larger one: {} leads all five",
        merged.node
    ));
    cluster.finish()
}

/// Shows one leader: two nodes are nominated, and one of them is confirmed.
fn confirmed(narrator: Narrator) -> Result<AtOnce, Failure> {
    let options = ["--confirm", "quorum", "--split-brain", "available"];
    let mut cluster = Cluster::start(narrator, &options, false)?;
    let first = cluster.wait_for_nominated_leader("a leader of all, whom all nominate")?;
    cluster.say(&format!(
        "{} is nominated and confirmed, and leads all five with {}",
        first.node,
        first.number()
    ));
    cluster.cut();
    let nominee = cluster.look_for("a nominee of the small part that stands in vain", |group| {
        let all_nominate = |nominee: &&&str| SMALL.iter().all(|node| nominates(group, node, nominee));
        let leaderless = |node: &str| who(group, node).is_some_and(|who| who.leader.is_none());
        let stands = |node: &str| who(group, node).is_some_and(|who| STANDING.contains(&who.role.as_str()));
        let nominee = SMALL.iter().find(all_nominate).filter(|_| SMALL.iter().all(|node| leaderless(node)));
        Ok(nominee.copied().filter(|nominee| stands(nominee)))
    })?;
    cluster.say(&format!(
        "  {nominee} is nominated by n4 n5, stands, and is REFUSED: it has two votes of five, and needs three"
    ));
    let still = cluster.wait_for_leader("a leader of the large part", &LARGE)?;
    cluster.say(&format!(
        "  {} leads n1 n2 n3 with {}, and its job alone writes",
        still.node,
        still.number()
    ));
    cluster.heal();
    let merged = cluster.wait_for_nominated_leader("one leader of all, whom all nominate")?;
    let before = if merged == first { "as before" } else { "after another one had it" };
    cluster.say(&format!("  {} leads all five with {}, {before}", merged.node, merged.number()));
    cluster.finish()
}

impl Cluster {
    /// Starts the five nodes with these options, and jobs that write to a ledger, which has no fence if `unguarded`.
    fn start(narrator: Narrator, options: &[&str], unguarded: bool) -> Result<Self, Failure> {
        let group = ProcessGroup::new()?;
        let ledger = group.dir().join("ledger.db");
        let create = if unguarded { Ledger::create_unguarded } else { Ledger::create };
        create(&ledger, ELECTION).map_err(ledger_failed)?;
        let mut cluster = Self { group, relays: Relays::start()?, narrator, ledger, at_once: 0 };
        let reserved = reserve_addresses(&ALL)?;
        let mut peers = Vec::new();
        for node in ALL {
            peers.push((node, cluster.peers(node, &reserved)?));
        }
        drop(reserved);
        for (node, peers) in peers {
            let state = cluster.group.dir().join(node).to_string_lossy().into_owned();
            let ledger = cluster.ledger.to_string_lossy();
            let mut args =
                vec!["run", "--json", "--election", ELECTION, "--algorithm", "seniority", "--node", node];
            args.extend(["--peers", &peers, "--state-dir", &state]);
            args.extend(options);
            args.extend(["--", "/proc/self/exe", "demo-job", "--ledger", &ledger]);
            args.extend(unguarded.then_some("--unguarded"));
            let args: Vec<String> = args.into_iter().map(str::to_owned).collect();
            cluster.group.start(node, &args)?;
        }
        Ok(cluster)
    }

    /// Returns the list of peers for one node: the nodes of the other part are reached through relays.
    fn peers(&self, of: &str, reserved: &[ReservedAddress]) -> Result<String, Failure> {
        let mut peers = Vec::new();
        for ReservedAddress { node, address, .. } in reserved {
            let together = SMALL.contains(node) == SMALL.contains(&of);
            let address = if together { address.clone() } else { self.relays.link(address)? };
            peers.push(format!("{node}={address}"));
        }
        Ok(peers.join(","))
    }

    fn cut(&self) {
        self.relays.cut();
        self.say("every link between n1 n2 n3 and n4 n5 is CUT");
    }

    fn heal(&self) {
        self.relays.heal();
        self.say("the links are whole again");
    }

    fn wait_for_leader(&mut self, what: &str, part: &[&str]) -> Result<Leader, Failure> {
        self.look_for(what, |group| Ok(leader_of(group, part)))
    }

    fn wait_for_nominated_leader(&mut self, what: &str) -> Result<Leader, Failure> {
        self.look_for(what, |group| {
            let leader = leader_of(group, &ALL);
            Ok(leader.filter(|leader| ALL.iter().all(|node| nominates(group, node, &leader.node))))
        })
    }

    /// Waits as the process group does, and meanwhile counts the live jobs.
    fn look_for<T>(
        &mut self,
        what: &str,
        mut look: impl FnMut(&ProcessGroup) -> Result<Option<T>, Failure>,
    ) -> Result<T, Failure> {
        let at_once = &mut self.at_once;
        self.group.look_for(what, |group| {
            *at_once = group.working().len().max(*at_once);
            look(group)
        })
    }

    fn ledger(&self) -> Result<Ledger, Failure> {
        Ledger::open(&self.ledger, ELECTION).map_err(|error| ledger_failed(error.into()))
    }

    /// Counts the writes in the ledger, and ends all processes.
    fn finish(self) -> Result<AtOnce, Failure> {
        let ledger = self.ledger()?;
        let count = || Ok((ledger.turns()?, ledger.stale_lines()?));
        let (turns, stale_lines) =
            count().map_err(|error: primacy_fence_sqlite::rusqlite::Error| ledger_failed(error.into()))?;
        Ok(AtOnce { leaders_at_once: self.at_once, turns, stale_lines })
    }

    fn say(&self, text: &str) {
        self.narrator.say(text);
    }
}

/// Returns the status that a node reports; `None` if it does not answer yet, or not in time.
fn who(group: &ProcessGroup, node: &str) -> Option<NodeStatus> {
    target::who(&control::find(&group.dir().join(node), ELECTION, node)).ok()
}

/// Returns whether `node` considers `nominee` the node that should lead.
fn nominates(group: &ProcessGroup, node: &str, nominee: &str) -> bool {
    let named = who(group, node).and_then(|who| who.peers?.nominee);
    named.as_deref() == Some(nominee)
}

/// Returns the leader of these nodes, if they all report the same one, its job is alive and, where they know their
/// members, its cluster consists of these nodes only.
fn leader_of(group: &ProcessGroup, part: &[&str]) -> Option<Leader> {
    let mut leader: Option<Leader> = None;
    for node in part {
        let who = who(group, node)?;
        if leader.get_or_insert(who.leader.clone()?) != &who.leader? {
            return None;
        }
        if let Some(members) = who.peers?.members {
            let members: BTreeSet<&str> = members.all.iter().map(|member| member.node.as_str()).collect();
            if members != part.iter().copied().collect() {
                return None;
            }
        }
    }
    leader.filter(|leader| {
        part.contains(&leader.node.as_str()) && group.working().contains(&leader.node.as_str())
    })
}
