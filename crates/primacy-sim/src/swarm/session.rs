//! The generated worlds of the queue of a store with sessions.

use primacy_core::rng::Rng;

use super::{Beyond, Swarm, text};
use crate::algorithm::session::Session;
use crate::trace::Trace;

/// Draws the candidates, their sessions, and the store's delays and timeouts.
pub(super) fn draw(seed: u64, beyond: Option<Beyond>, trace: Trace) -> Swarm<Session> {
    let mut swarm = Swarm::new(Rng::new(seed), beyond, trace);
    let nodes = 2 + swarm.index(3);
    swarm.begin(seed, nodes);
    swarm.words = &[
        "Begin",
        "KeepAlive",
        "KeepAliveReply",
        "Campaign",
        "CampaignReply",
        "Leave",
        "LeaveReply",
        "End",
        "Died",
    ];
    let round_trip = swarm.world().conditions.delay.times(2);
    let round_trip = swarm.lengthen(round_trip);
    swarm.tell(format!("set drift_max={}ppm", swarm.drift));
    for name in ["a", "b", "c", "d", "e"].into_iter().take(nodes) {
        let timeout = swarm.millis(500, 2_000);
        let request_timeout = round_trip.plus(swarm.millis(20, 200));
        // A read of the queue is evidence of the leader for no longer than a session.
        let look_interval = swarm.up_to(timeout.divided_by(3)).plus(swarm.millis(1, 20));
        let poll_interval = swarm.millis(20, 150);
        swarm.tell(format!(
            "set {name} timeout={} timeout_min=1ms look_interval={} request_timeout={} poll_interval={}",
            text(timeout),
            text(look_interval),
            text(request_timeout),
            text(poll_interval),
        ));
    }
    if swarm.one_in(3) {
        let lateness = swarm.millis(0, 500);
        swarm.tell(format!("store ends sessions late {}", text(lateness)));
    }
    if swarm.one_in(4) {
        let timeout = swarm.millis(500, 2_000);
        swarm.tell(format!("store gives sessions {}", text(timeout)));
    }
    if swarm.one_in(2) {
        swarm.tell("store tells changes".to_owned());
    }
    swarm
}
