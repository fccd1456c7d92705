//! The generated worlds of a nomination and its confirmation.

use primacy_core::rng::Rng;

use super::{Beyond, Swarm, bully, lease, quorum, seniority, text};
use crate::algorithm::Algorithm;
use crate::algorithm::arbitrary_nominator::ArbitraryNominator;
use crate::algorithm::bully::Bully;
use crate::algorithm::confirmed::Confirmed;
use crate::algorithm::lease::Lease;
use crate::algorithm::quorum::Quorum;
use crate::algorithm::seniority::Seniority;
use crate::trace::Trace;

/// Draws worlds in which bully nominates and a quorum confirms.
pub(super) fn by_quorum(seed: u64, beyond: Option<Beyond>, trace: Trace) -> Swarm<Confirmed<Bully, Quorum>> {
    let (mut swarm, nodes) = begin(seed, beyond, trace);
    swarm.words = &[
        "PreVote",
        "PreVoteReply",
        "Vote",
        "VoteReply",
        "Heartbeat",
        "HeartbeatReply",
        "Resigned",
        "Election",
        "Alive",
        "Coordinator",
        "Died",
    ];
    bully::timers(&mut swarm, nodes, "nominate.");
    quorum::timers(&mut swarm, nodes, beyond);
    swarm
}

/// Draws worlds in which seniority nominates and a quorum confirms.
pub(super) fn of_the_oldest(
    seed: u64,
    beyond: Option<Beyond>,
    trace: Trace,
) -> Swarm<Confirmed<Seniority, Quorum>> {
    let (mut swarm, nodes) = begin(seed, beyond, trace);
    swarm.words = &[
        "PreVote",
        "PreVoteReply",
        "Vote",
        "VoteReply",
        "Heartbeat",
        "HeartbeatReply",
        "Resigned",
        "Join",
        "View",
        "ViewReply",
        "Probe",
        "MergeAsk",
        "Merge",
        "Died",
    ];
    let cluster = seniority::cluster(&mut swarm, nodes, "nominate.", seniority::WITHOUT_A_STORE);
    seniority::timers(&mut swarm, nodes, "nominate.", cluster.heartbeat);
    swarm.joins = true;
    quorum::timers(&mut swarm, nodes, beyond);
    swarm
}

/// Draws worlds in which bully nominates and a lease in a store confirms.
pub(super) fn by_lease(seed: u64, beyond: Option<Beyond>, trace: Trace) -> Swarm<Confirmed<Bully, Lease>> {
    let (mut swarm, nodes) = begin(seed, beyond, trace);
    swarm.words = &[
        "Read",
        "ReadReply",
        "Write",
        "WriteReply",
        "Heartbeat",
        "Election",
        "Alive",
        "Coordinator",
        "Died",
    ];
    bully::timers(&mut swarm, nodes, "nominate.");
    lease::timers(&mut swarm, nodes);
    swarm
}

/// Draws worlds in which each node nominates a random node, and another one a moment later, and a quorum confirms.
pub(super) fn by_arbitrary_nomination(
    seed: u64,
    beyond: Option<Beyond>,
    trace: Trace,
) -> Swarm<Confirmed<ArbitraryNominator, Quorum>> {
    let (mut swarm, nodes) = begin(seed, beyond, trace);
    swarm.words =
        &["PreVote", "PreVoteReply", "Vote", "VoteReply", "Heartbeat", "HeartbeatReply", "Resigned", "Died"];
    let longest = swarm.millis(5, 2_000);
    swarm.tell(format!("set nominate.lasts={}", text(longest)));
    quorum::timers(&mut swarm, nodes, beyond);
    swarm
}

fn begin<A: Algorithm>(seed: u64, beyond: Option<Beyond>, trace: Trace) -> (Swarm<A>, usize) {
    let mut swarm = Swarm::new(Rng::new(seed), beyond, trace);
    let nodes = [3, 3, 3, 5, 5, 4, 2, 1][swarm.index(8)];
    swarm.begin(seed, nodes);
    // A nomination that changes faster than the damping moves nothing; a slower one moves the lead, in order.
    let (damping, patience) = (swarm.millis(50, 3_000), swarm.millis(1_000, 5_000));
    swarm.tell(format!("set damping={} patience={}", text(damping), text(patience)));
    (swarm, nodes)
}
