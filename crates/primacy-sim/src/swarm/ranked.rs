//! The generated worlds of the ranked election.

use primacy_core::rng::Rng;

use super::{Beyond, Swarm, text};
use crate::algorithm::ranked::Ranked;
use crate::process_slot::ProcessSlot;
use crate::trace::Trace;

/// Draws the nodes and their timers.
pub(super) fn draw(seed: u64, beyond: Option<Beyond>, trace: Trace) -> Swarm<Ranked> {
    let mut swarm = Swarm::new(Rng::new(seed), beyond, trace);
    let nodes = [3, 3, 3, 5, 5, 4, 2, 1][swarm.index(8)];
    swarm.begin(seed, nodes);
    swarm.words = &["Elect", "Hears", "Vote", "Lead", "LeadReply", "Resigned", "Died"];
    let delay = swarm.world().conditions.delay;
    let disk_latency = swarm.world().node(ProcessSlot(0)).disk.latency;
    // Claims are gathered for a heartbeat at most, so a heartbeat must exceed their round trip; and a voter waits as
    // long for the winner, which writes before it sends `Lead`.
    let least = delay.times(3).plus(disk_latency.times(2));
    let heartbeat = swarm.millis(50, 250).max(swarm.lengthen(least));
    for name in ["a", "b", "c", "d", "e"].into_iter().take(nodes) {
        let misses = 2 + swarm.rng.up_to(3);
        let initial = swarm.rng.up_to(5);
        // Too short a time does no harm: the machine lengthens it.
        let gathering = swarm.millis(1, 100).min(heartbeat);
        let witness = nodes > 2 && name != "a" && swarm.one_in(10);
        swarm.tell(format!(
            "set {name} heartbeat_interval={} miss_count={misses} initial_count={initial} gathering={} witness={witness}",
            text(heartbeat),
            text(gathering),
        ));
    }
    swarm
}
