//! The quota of the map: the leader sets the quota of its own settings.

use std::time::Duration;

use primacy::NodeId;
use primacy::kv::command::{Command, Limits, Outcome};
use primacy::metadata::{Map, MapError};
use tokio::time::{MissedTickBehavior, interval};
use tracing::{debug, info};

/// The interval at which a node checks whether it leads and another quota is in force.
const LOOK: Duration = Duration::from_millis(500);

/// Sets this quota, in bytes, whenever the node `me` leads and another quota is in force, until the node has ended.
pub(crate) async fn keep(map: Map, me: NodeId, quota: u64) {
    let mut looks = interval(LOOK);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        looks.tick().await;
        let leads = map.board().leader.is_some_and(|leader| leader.identity.node == me);
        let limits = map.state().limits();
        if !leads || limits.quota == quota {
            continue;
        }
        // Leaves the other limits as a program may have set them.
        match map.write(Command::Limit(Limits { quota, ..limits })).await {
            Ok(Outcome { result: Ok(_), .. }) => {
                info!(before = limits.quota, quota, "the quota of the map is set");
            }
            Ok(Outcome { result: Err(refusal), .. }) => {
                debug!(?refusal, "the quota of the map is not set yet");
            }
            Err(MapError::Closed) => return,
            Err(
                error @ (MapError::Timeout | MapError::Busy | MapError::AnswerLost | MapError::Unreadable),
            ) => {
                debug!(%error, "the quota of the map may not be set yet");
            }
            Err(MapError::Voter { .. }) => unreachable!("this is not about voters"),
        }
    }
}
