//! The generated worlds of the lease over a store.

use primacy_core::rng::Rng;

use super::{Beyond, Swarm, in_micros, text};
use crate::algorithm::Algorithm;
use crate::algorithm::lease::Lease;
use crate::trace::Trace;

/// Draws the candidates, their leases, the record of the store, and whether it announces changes.
pub(super) fn draw(seed: u64, beyond: Option<Beyond>, trace: Trace) -> Swarm<Lease> {
    let mut swarm = Swarm::new(Rng::new(seed), beyond, trace);
    let nodes = 2 + swarm.index(3);
    swarm.begin(seed, nodes);
    swarm.words = &["Read", "ReadReply", "Write", "WriteReply", "Died"];
    timers(&mut swarm, nodes);
    swarm
}

/// Draws the leases of a store that elects or confirms, its record, and whether it announces changes.
pub(super) fn timers<A: Algorithm>(swarm: &mut Swarm<A>, nodes: usize) {
    let round_trip = swarm.world().conditions.delay.times(2);
    let round_trip = swarm.lengthen(round_trip);
    let (duration, one_for_all) = (swarm.millis(500, 2_000), swarm.one_in(2));
    swarm.tell(format!("set drift_max={}ppm", swarm.drift));
    for name in ["a", "b", "c", "d", "e"].into_iter().take(nodes) {
        let duration = if one_for_all { duration } else { swarm.millis(500, 2_000) };
        let request_timeout = round_trip.plus(swarm.millis(20, 200));
        let poll_interval = swarm.millis(20, 150);
        swarm.tell(format!(
            "set {name} duration={} renew_interval={} request_timeout={} poll_interval={}",
            text(duration),
            text(in_micros(duration.divided_by(3))),
            text(request_timeout),
            text(poll_interval),
        ));
    }
    swarm.was_absent = swarm.one_in(3);
    if !swarm.was_absent {
        swarm.tell("store init".to_owned());
    }
    if swarm.one_in(2) {
        swarm.tell("store tells changes".to_owned());
    }
    swarm.deletes = one_for_all;
}
