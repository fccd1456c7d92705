//! The generated worlds of the election by seniority.

use primacy_core::Duration;
use primacy_core::rng::Rng;

use super::{Beyond, Swarm, text};
use crate::algorithm::Algorithm;
use crate::algorithm::seniority::Seniority;
use crate::trace::Trace;

/// The policies that need no store.
pub(super) const WITHOUT_A_STORE: &[&str] =
    &["keep-majority", "keep-majority", "static-quorum:2", "keep-oldest", "available"];

/// Draws the nodes and their timers.
pub(super) fn draw(seed: u64, beyond: Option<Beyond>, trace: Trace) -> Swarm<Seniority> {
    let mut swarm = Swarm::new(Rng::new(seed), beyond, trace);
    let nodes = [3, 3, 3, 5, 5, 4, 2, 1][swarm.index(8)];
    swarm.begin(seed, nodes);
    swarm.words = &[
        "Join",
        "JoinReply",
        "View",
        "ViewReply",
        "Heartbeat",
        "Leave",
        "Probe",
        "MergeAsk",
        "Merge",
        "Died",
    ];
    let policies =
        &["keep-majority", "keep-majority", "static-quorum:2", "keep-oldest", "lease", "available"];
    let Cluster { heartbeat, policy, seeds } = cluster(&mut swarm, nodes, "", policies);
    // If two parts may go on, a deaf or mute node is one of them; so is a lone seed that has restarted. If a store
    // chose a part that gave up before it heard of that, the other parts stop at their next loss.
    swarm.wounds = matches!(policy, "keep-majority" | "keep-oldest") && seeds != "a";
    swarm.joins = true;
    swarm.spared = seeds.split(',').next(); // Where it restarts and is cut off, it founds a second cluster.
    if policy == "lease" && swarm.one_in(2) {
        swarm.tell("store init".to_owned());
    }
    timers(&mut swarm, nodes, "", heartbeat);
    if nodes > 2 && swarm.one_in(4) {
        let neighbours = 1 + swarm.rng.up_to(1);
        swarm.tell(format!("set neighbours={neighbours}"));
        swarm.wounds = false; // A deaf one takes those few to be silent that it watches.
    }
    swarm
}

/// The settings that are the same for all nodes of a cluster.
pub(super) struct Cluster {
    pub(super) heartbeat: Duration,
    policy: &'static str,
    seeds: &'static str,
}

/// Draws one of these policies, and the seeds, of a cluster that elects or nominates; `prefix` precedes their names.
pub(super) fn cluster<A: Algorithm>(
    swarm: &mut Swarm<A>,
    nodes: usize,
    prefix: &str,
    policies: &[&'static str],
) -> Cluster {
    let delay = swarm.world().conditions.delay;
    let heartbeat = swarm.millis(50, 250).max(delay.times(2));
    let policy = policies[swarm.index(policies.len())];
    let seeds = ["a", "a,b", "b,a", "a,b,c"][swarm.index(if nodes > 2 {
        4
    } else if nodes > 1 {
        3
    } else {
        1
    })];
    swarm.tell(format!("set {prefix}policy={policy} {prefix}seeds={seeds}"));
    Cluster { heartbeat, policy, seeds }
}

/// Draws the timers of each node.
pub(super) fn timers<A: Algorithm>(swarm: &mut Swarm<A>, nodes: usize, prefix: &str, heartbeat: Duration) {
    let delay = swarm.world().conditions.delay;
    // A request to another node must have time for its round trip.
    let answer = delay.times(3).plus(swarm.millis(20, 500));
    let stable = heartbeat.times(2).plus(swarm.millis(0, 1_000));
    for name in ["a", "b", "c", "d", "e"].into_iter().take(nodes) {
        let misses = 3 + swarm.rng.up_to(3);
        let join = answer.plus(swarm.millis(50, 1_000));
        let probe = answer.plus(swarm.millis(50, 500));
        let detection = if swarm.one_in(4) { "phi=8".to_owned() } else { format!("miss_count={misses}") };
        let settings = [
            format!("heartbeat_interval={}", text(heartbeat)),
            detection,
            format!("stable_after={}", text(stable)),
            format!("answer_wait={}", text(answer)),
            format!("join_interval={}", text(join)),
            format!("probe_interval={}", text(probe)),
        ];
        let settings: String = settings.iter().map(|setting| format!(" {prefix}{setting}")).collect();
        swarm.tell(format!("set {name}{settings}"));
    }
}
