//! The generated worlds of replicated metadata.

use primacy_core::rng::Rng;

use super::primaries::Sharing;
use super::{Beyond, Swarm, quorum, text};
use crate::algorithm::metadata::Metadata;
use crate::process_slot::ProcessSlot;
use crate::trace::Trace;

/// The limits of records applied in one step: one record, a few, and the library's own limit. Chosen by the seed
/// itself, so that all other draws stay the same.
const APPLY_MAX: [usize; 3] = [1, 400, 64 << 10];

/// Draws the nodes, their timers, and the settings of their logs.
pub(super) fn draw(seed: u64, beyond: Option<Beyond>, trace: Trace) -> Swarm<Metadata> {
    let mut swarm = Swarm::new(Rng::new(seed), beyond, trace);
    let nodes = [3, 3, 3, 5, 5, 4, 2, 1][swarm.index(8)];
    swarm.begin(seed, nodes);
    swarm.words = &[
        "PreVote",
        "Vote",
        "VoteReply",
        "Heartbeat",
        "HeartbeatReply",
        "Resigned",
        "Sync",
        "SyncReply",
        "Fetched",
        "Append",
        "AppendReply",
        "Offer",
        "PartReply",
        "RecoverReply",
        "Propose",
        "Told",
        "Died",
    ];
    // Where only tokens keep leaders apart, an earlier leader may read stale data. A new leader writes the first
    // record of its term, and the clients' pending requests; with a shorter lease no node would lead for long.
    quorum::timers_with(&mut swarm, nodes, false, 2);
    // A lone node that has lost its log has no peer to ask.
    let forgets = nodes > 2 && swarm.one_in(3);
    swarm.forgets = forgets;
    let delay = swarm.world().conditions.delay;
    let disk_latency = swarm.world().node(ProcessSlot(0)).disk.latency;
    let resend = delay.times(2).plus(disk_latency.times(2)).plus(swarm.millis(10, 300));
    let small = |swarm: &mut Swarm<Metadata>, least: u64, most: u64| least + swarm.rng.up_to(most - least);
    let (append, window) = (small(&mut swarm, 200, 2_000), small(&mut swarm, 200, 4_000));
    let (part, kept) = (small(&mut swarm, 50, 1_000), small(&mut swarm, 0, 4_000));
    let snapshot = small(&mut swarm, 300, 6_000);
    let durability = if forgets { "memory" } else { "fsync" };
    swarm.tell(format!(
        "set durability={durability} resend_after={} append_max={append} window={window} part_max={part} \
         snapshot_after={snapshot} kept_max={kept} apply_max={}",
        text(resend),
        APPLY_MAX[usize::try_from(seed % 3).expect("less than three")]
    ));
    swarm.asks = true;
    swarm.begin_with_voters(seed, nodes);
    swarm.sharing = Sharing::of(seed);
    swarm
}
