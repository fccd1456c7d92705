//! The generated worlds of the quorum election.

use primacy_core::Duration;
use primacy_core::rng::Rng;

use super::{Beyond, Swarm, in_micros, text};
use crate::algorithm::Algorithm;
use crate::algorithm::quorum::Quorum;
use crate::process_slot::ProcessSlot;
use crate::trace::Trace;

/// Draws the nodes and their timers.
pub(super) fn draw(seed: u64, beyond: Option<Beyond>, trace: Trace) -> Swarm<Quorum> {
    let mut swarm = Swarm::new(Rng::new(seed), beyond, trace);
    let nodes = [3, 3, 3, 5, 5, 4, 2, 1][swarm.index(8)];
    swarm.begin(seed, nodes);
    swarm.words =
        &["PreVote", "PreVoteReply", "Vote", "VoteReply", "Heartbeat", "HeartbeatReply", "Resigned", "Died"];
    let least = timers(&mut swarm, nodes, beyond);
    if beyond.is_none() {
        swarm.begin_with_promises_that_differ(seed, nodes, least);
    }
    swarm
}

/// Draws the timers of a quorum that elects or confirms. Returns the shortest allowed promise.
pub(super) fn timers<A: Algorithm>(swarm: &mut Swarm<A>, nodes: usize, beyond: Option<Beyond>) -> Duration {
    // Worlds that violate an assumption of leases always have leases.
    timers_with(swarm, nodes, beyond.is_none(), 0)
}

/// Draws the timers as [`timers`] does, in some worlds without leases, if that is allowed. A leader may make
/// `writes_between` writes to its disk between a heartbeat and the answers to the next one.
pub(super) fn timers_with<A: Algorithm>(
    swarm: &mut Swarm<A>,
    nodes: usize,
    may_be_fenced: bool,
    writes_between: u64,
) -> Duration {
    let delay = swarm.world().conditions.delay;
    let disk_latency = swarm.world().node(ProcessSlot(0)).disk.latency;
    let heartbeat = swarm.millis(50, 250).max(delay.times(3));
    // A promise must outlast a heartbeat and its answer on any clock.
    let least = delay.times(4);
    // The latency of a disk does not depend on a clock, and the leader's clock may be the fastest.
    let busy = swarm.lengthen(disk_latency.times(writes_between));
    let fenced = swarm.one_in(5) && may_be_fenced;
    let (one_for_all, hasty) = (swarm.one_in(2), swarm.tight || swarm.one_in(2));
    swarm.tell(format!("set heartbeat_interval={} drift_max={}ppm", text(heartbeat), swarm.drift));
    if fenced {
        swarm.tell("set safety=fenced".to_owned());
    }
    let mut promise = swarm.promise(heartbeat, busy, least);
    for name in ["a", "b", "c", "d", "e"].into_iter().take(nodes) {
        if !one_for_all {
            promise = swarm.promise(heartbeat, busy, least);
        }
        let misses = 2 + swarm.rng.up_to(3);
        // Short waits are the harder case: then only the promises keep leaders apart.
        let initial_wait = if hasty { Duration::ZERO } else { swarm.up_to(promise) };
        // But they must exceed the delay of a packet, or two candidates split the votes for ever.
        let wait =
            if hasty { swarm.millis(5, if swarm.tight { 10 } else { 50 }) } else { swarm.millis(50, 300) };
        // A round must leave time for the round trip. A node does not know the disk latency of its peers; its round
        // timeout grows to four times as long while it loses elections.
        let round_trip = swarm.lengthen(delay.times(2).plus(in_micros(disk_latency.divided_by(3))));
        let round = round_trip.plus(swarm.millis(10, 500));
        let priority = swarm.rng.up_to(3) / 2;
        let witness = nodes > 2 && name != "a" && swarm.one_in(10);
        swarm.tell(format!(
            "set {name} miss_count={misses} promise_duration={} initial_wait={} random_wait_max={} round_timeout={} \
             priority={priority} witness={witness}",
            text(promise),
            text(initial_wait),
            text(wait.plus(least)),
            text(round),
        ));
    }
    swarm.lengthen(heartbeat.times(2).max(heartbeat.plus(busy)).plus(least))
}

impl<A: Algorithm> Swarm<A> {
    fn promise(&mut self, heartbeat: Duration, busy: Duration, least: Duration) -> Duration {
        let beats = 2 + self.rng.up_to(4);
        self.lengthen(heartbeat.times(beats).max(heartbeat.plus(busy)).plus(least))
    }
}
