//! The generated worlds of the elections on a ring.

use primacy_core::rng::Rng;

use super::{Beyond, Swarm, text};
use crate::algorithm::Algorithm;
use crate::algorithm::ring::Timers;
use crate::trace::Trace;

/// Draws the nodes, their order and their timers.
pub(super) fn draw<A>(seed: u64, beyond: Option<Beyond>, trace: Trace) -> Swarm<A>
where
    A: Algorithm<Settings = Timers>,
{
    let mut swarm = Swarm::new(Rng::new(seed), beyond, trace);
    let nodes = [3, 3, 3, 5, 5, 4, 2, 1][swarm.index(8)];
    swarm.begin(seed, nodes);
    swarm.words = &["Probe", "ProbeReply", "Elected", "Knock", "Received", "Late", "Resigned", "Died"];
    let conditions = swarm.world().conditions;
    // The election assumes bounded delays: hops must be confirmed in time, and neither a closed connection nor one
    // skipped node must cost a live leader its lead.
    let round_trip = swarm.lengthen(conditions.delay.times(2));
    let hop = round_trip.plus(swarm.millis(5, 50));
    let once_around = conditions.delay.times(nodes as u64).plus(hop.times(2));
    let least = swarm.lengthen(conditions.reconnect.plus(once_around));
    let heartbeat = swarm.millis(50, 250).max(least);
    let sticky = !swarm.one_in(3);
    let mut order = ["a", "b", "c", "d", "e"][..nodes].to_vec();
    for place in (1..nodes).rev() {
        let other = swarm.index(place + 1);
        order.swap(place, other);
    }
    swarm.tell(format!(
        "set order={} heartbeat_interval={} sticky={sticky} hop_timeout={}",
        order.join(","),
        text(heartbeat),
        text(hop),
    ));
    for name in order {
        let misses = 3 + swarm.rng.up_to(2);
        swarm.tell(format!("set {name} miss_count={misses}"));
    }
    swarm
}
