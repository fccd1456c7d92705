//! The configuration of a member of a cluster, and the checks of its numbers.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;

use crate::detector::Detection;
use crate::id::{Identity, NodeId};
use crate::membership::{Age, Attributes, Policy};
use crate::time::Duration;

/// The highest number of seeds.
pub const SEEDS_MAX: usize = 16;

/// The seeds, the timing and the policy of a node.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Config {
    /// This node, with the incarnation of this process.
    pub me: Identity,
    /// The nodes to ask to join, the same on all nodes. The first one founds the cluster if none of the others belongs
    /// to one.
    pub seeds: Vec<NodeId>,
    /// The attributes of this node, which it reports to the others.
    pub attributes: Arc<Attributes>,
    /// The interval at which a member sends heartbeats.
    pub heartbeat_interval: Duration,
    /// The number of neighbours on the ring of ages that receive its heartbeats; `None` for all members.
    pub neighbours: Option<u32>,
    /// The detector that judges silence.
    pub detection: Detection,
    /// The time for which the same members must have been suspected before they are removed, or the lead is claimed.
    pub stable_after: Duration,
    /// The policy for parts that have lost each other.
    pub policy: Policy,
    /// The time for which the smaller part waits before it asks the store, under [`Policy::Lease`].
    pub store_wait: Duration,
    /// The least number of members with which requests are served.
    pub minimum: usize,
    /// The interval at which a node outside a cluster asks to join.
    pub join_interval: Duration,
    /// The time for which answers are awaited: of members to a new view, of a store, of another part to a request to
    /// merge, and of seeds before the first seed founds a cluster.
    pub answer_wait: Duration,
    /// The interval at which a coordinator looks for missing nodes.
    pub probe_interval: Duration,
    /// The youngest age that may be given.
    pub last_age: Age,
}

/// The reason why a configuration cannot work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConfigError {
    /// There are no seeds, or more than [`SEEDS_MAX`].
    Seeds(usize),
    /// This seed is named twice.
    SeedTwice(NodeId),
    /// Members would send their heartbeats to no node.
    NoNeighbours,
    /// A duration is zero.
    Zero(&'static str),
    /// A node would ask to join again before an answer can arrive.
    Hasty {
        /// The interval at which it asks.
        interval: Duration,
        /// The time for which answers are awaited.
        wait: Duration,
    },
    /// A node would be suspected before its next heartbeat is due.
    Impatient {
        /// The length of silence after which a node is suspected.
        patience: Duration,
        /// The interval at which it sends heartbeats.
        interval: Duration,
    },
}

impl Config {
    /// Checks the configuration.
    ///
    /// # Errors
    /// [`ConfigError`] if it cannot work.
    pub fn check(&self) -> Result<(), ConfigError> {
        if self.seeds.is_empty() || self.seeds.len() > SEEDS_MAX {
            return Err(ConfigError::Seeds(self.seeds.len()));
        }
        let mut earlier = self.seeds.iter().enumerate();
        if let Some((_, &seed)) = earlier.find(|&(place, seed)| self.seeds[..place].contains(seed)) {
            return Err(ConfigError::SeedTwice(seed));
        }
        if self.neighbours == Some(0) {
            return Err(ConfigError::NoNeighbours);
        }
        let durations = [
            ("heartbeat interval", self.heartbeat_interval),
            ("join interval", self.join_interval),
            ("probe interval", self.probe_interval),
            ("wait for answers", self.answer_wait),
        ];
        if let Some((name, _)) = durations.iter().find(|(_, duration)| duration.is_zero()) {
            return Err(ConfigError::Zero(name));
        }
        let (interval, wait) = (self.join_interval, self.answer_wait);
        if interval < wait {
            return Err(ConfigError::Hasty { interval, wait });
        }
        let (patience, interval) = (self.patience(), self.heartbeat_interval);
        if patience <= interval { Err(ConfigError::Impatient { patience, interval }) } else { Ok(()) }
    }

    /// The silence after which a member is suspected, before a detector has learned from its heartbeats.
    #[must_use]
    pub fn patience(&self) -> Duration {
        self.detection.patience(self.heartbeat_interval)
    }

    /// The time for which the same members must have been lost. It includes the time between the first and the last
    /// detection where losses are detected one after the other; otherwise the first detected losses are taken for all
    /// of them.
    pub(super) fn settling(&self) -> Duration {
        let learns = matches!(self.detection, Detection::PhiAccrual { .. });
        let found = if self.neighbours.is_some() || learns {
            self.patience().plus(self.heartbeat_interval)
        } else {
            Duration::ZERO
        };
        self.stable_after.max(found)
    }

    /// The time by which a part with a new coordinator waits longer than a part that stops its coordinator. If both
    /// notice the split within a heartbeat of each other, the old coordinator has stopped when the new one begins.
    pub(super) const fn margin(&self) -> Duration {
        self.heartbeat_interval.times(2)
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Seeds(0) => f.write_str("nobody could ever join: name at least one seed"),
            Self::Seeds(count) => write!(f, "{count} seeds are too many: name at most {SEEDS_MAX}"),
            Self::SeedTwice(seed) => write!(f, "the seed {seed} is named twice: name each once"),
            Self::NoNeighbours => {
                f.write_str("heartbeats to 0 neighbours show nobody: state at least 1, or leave it out")
            }
            Self::Zero(name) => write!(f, "the {name} is zero: state how long it is"),
            Self::Hasty { interval, wait } => write!(
                f,
                "answers are waited for {wait}, and it would ask to join again every {interval}: state a longer interval, or a \
                 shorter wait"
            ),
            Self::Impatient { patience, interval } => write!(
                f,
                "silence is suspicious after {patience}, and heartbeats come every {interval} only: state a longer time, or a \
                 shorter interval"
            ),
        }
    }
}

impl core::error::Error for ConfigError {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::Incarnation;

    #[test]
    fn what_cannot_work_is_named() {
        let node = |name: &str| NodeId::new(name).unwrap();
        let good = Config {
            me: Identity::new(node("a"), Incarnation { count: 1, nonce: 0 }),
            seeds: [node("a"), node("b")].into(),
            attributes: Arc::default(),
            heartbeat_interval: Duration::from_millis(250),
            neighbours: None,
            detection: Detection::Missed { count: 4 },
            stable_after: Duration::from_secs(2),
            policy: Policy::KeepMajority,
            store_wait: Duration::ZERO,
            minimum: 1,
            join_interval: Duration::from_secs(1),
            answer_wait: Duration::from_millis(500),
            probe_interval: Duration::from_secs(1),
            last_age: Age::MAX,
        };
        assert_eq!((good.check(), good.settling()), (Ok(()), Duration::from_secs(2)));
        let wrong = |change: fn(&mut Config)| {
            let mut config = good.clone();
            change(&mut config);
            config.check().unwrap_err()
        };
        assert_eq!(wrong(|config| config.seeds.clear()), ConfigError::Seeds(0));
        assert_eq!(wrong(|config| config.seeds[1] = config.seeds[0]), ConfigError::SeedTwice(node("a")));
        assert_eq!(wrong(|config| config.neighbours = Some(0)), ConfigError::NoNeighbours);
        assert_eq!(
            wrong(|config| config.answer_wait = Duration::ZERO),
            ConfigError::Zero("wait for answers")
        );
        let (interval, wait) = (Duration::from_millis(100), Duration::from_millis(500));
        assert_eq!(
            wrong(|config| config.join_interval = Duration::from_millis(100)),
            ConfigError::Hasty { interval, wait }
        );
        let impatient = wrong(|config| config.detection = Detection::Missed { count: 1 });
        let interval = Duration::from_millis(250);
        assert_eq!(impatient, ConfigError::Impatient { patience: interval, interval });
        // On a ring one loss is found after the other.
        let ring = Config { neighbours: Some(1), stable_after: Duration::ZERO, ..good };
        assert_eq!(ring.settling(), Duration::from_millis(1_250));
    }
}
