//! The generated worlds of the bully election.

use primacy_core::rng::Rng;

use super::{Beyond, Swarm, text};
use crate::algorithm::Algorithm;
use crate::algorithm::bully::Bully;
use crate::trace::Trace;

/// Draws the nodes and their timers.
pub(super) fn draw(seed: u64, beyond: Option<Beyond>, trace: Trace) -> Swarm<Bully> {
    let mut swarm = Swarm::new(Rng::new(seed), beyond, trace);
    let nodes = [3, 3, 3, 5, 5, 4, 2, 1][swarm.index(8)];
    swarm.begin(seed, nodes);
    swarm.words = &["Election", "Alive", "Coordinator", "Heartbeat", "Late", "Resigned", "Died"];
    timers(&mut swarm, nodes, "");
    swarm
}

/// Draws the timers of a bully election that elects or nominates; `prefix` precedes their names.
pub(super) fn timers<A: Algorithm>(swarm: &mut Swarm<A>, nodes: usize, prefix: &str) {
    let conditions = swarm.world().conditions;
    // The election assumes bounded delays: answers must arrive in time, and a closed connection must not cost a live
    // leader its lead.
    let round_trip = swarm.lengthen(conditions.delay.times(2));
    let least = swarm.lengthen(conditions.reconnect.plus(conditions.delay.times(2)));
    let heartbeat = swarm.millis(50, 250).max(least);
    let sticky = !swarm.one_in(3);
    swarm.tell(format!("set {prefix}heartbeat_interval={} {prefix}sticky={sticky}", text(heartbeat)));
    for name in ["a", "b", "c", "d", "e"].into_iter().take(nodes) {
        let misses = 3 + swarm.rng.up_to(2);
        let answer = round_trip.plus(swarm.millis(5, 100));
        swarm.tell(format!("set {name} {prefix}miss_count={misses} {prefix}answer_timeout={}", text(answer)));
    }
}
