//! The simulator's adapter for the emergent leader of the article, as written.

use primacy_core::{Duration, NodeId};

use crate::algorithm::{
    Algorithm, ProcessStart, Serves, Settings, Surroundings, duration, unknown_setting, value,
};
use crate::historical::emergent::{Config, Emergent as Machine, Membership, Message};
use crate::invariants::leader_after_healing::LeaderAfterHealing;
use crate::invariants::{Invariant, Meaning};

/// `emergent`.
#[derive(Clone, Copy, Debug)]
pub struct Emergent;

/// Settings of a node. The numbers are the article's.
#[derive(Clone, Debug)]
pub struct Timers {
    interval: Duration,
    timeout: Duration,
    join_interval: Duration,
    minimum: usize,
    /// The number of seeds: the first nodes in the order of names.
    seeds: usize,
}

impl Default for Timers {
    fn default() -> Self {
        let second = Duration::from_secs(1);
        Self {
            interval: second,
            timeout: second.times(2),
            join_interval: second.times(5),
            minimum: 3,
            seeds: 1,
        }
    }
}

impl Settings for Timers {
    fn set(&mut self, key: &str, text: &str) -> Result<(), String> {
        match key {
            "interval" => self.interval = duration(text)?,
            "minimum" => self.minimum = value(text)?,
            "seeds" => self.seeds = value(text)?,
            _ => return unknown_setting(key),
        }
        Ok(())
    }

    fn patience(&self) -> Duration {
        self.timeout.plus(self.interval)
    }
}

impl Algorithm for Emergent {
    type Message = Message;
    type Durable = ();
    type Kept = ();
    type Machine = Machine;
    type Settings = Timers;

    const SERVES: Option<Serves<Self>> = Some(Machine::admit);

    fn start(settings: &Timers, process: ProcessStart<'_, ()>) -> Machine {
        let is_seed = process.voters.iter().take(settings.seeds).any(|&seed| seed == process.me.node);
        let first = *process.voters.first().expect("there are nodes");
        let config = Config {
            me: process.me,
            seed: if is_seed { process.me.node } else { first },
            interval: settings.interval,
            timeout: settings.timeout,
            join_interval: settings.join_interval,
            minimum: settings.minimum,
        };
        Machine::new(config, process.now)
    }

    fn kind(message: &Message) -> &'static str {
        match message {
            Message::JoinRequest => "JoinRequest",
            Message::Joined(_) => "Joined",
            Message::UpdateMembership(_) => "UpdateMembership",
            Message::Heartbeat(_) => "Heartbeat",
            Message::SplitBrainJoin(_) => "SplitBrainJoin",
            Message::Merge(_) => "Merge",
        }
    }

    fn is_routine(message: &Message) -> bool {
        match message {
            Message::Heartbeat(_) => true,
            Message::JoinRequest | Message::Joined(_) | Message::UpdateMembership(_) => false,
            Message::SplitBrainJoin(_) | Message::Merge(_) => false,
        }
    }

    fn text(message: &Message) -> String {
        let kind = Self::kind(message);
        match message {
            Message::JoinRequest => kind.to_owned(),
            Message::Joined(membership) | Message::UpdateMembership(membership) => {
                format!("{kind} {}", text(membership))
            }
            Message::Heartbeat(version) => format!("{kind} in version {version}"),
            Message::SplitBrainJoin(count) => format!("{kind}: {count} live here"),
            Message::Merge(into) => format!("{kind} into {into}"),
        }
    }

    fn campaigns(machine: &Machine) -> bool {
        machine.joins()
    }

    fn meaning(_message: &Message, _to: Option<NodeId>) -> Meaning {
        Meaning::Nothing
    }

    fn settles_within(nodes: &[&Timers], _surroundings: &Surroundings) -> Duration {
        // The bound that a reader of the article would expect: failing, joining and spreading the news, each
        // for every node.
        let longest =
            nodes.iter().map(|node| node.patience().plus(node.join_interval)).max().unwrap_or_default();
        longest.times(nodes.len() as u64)
    }

    fn invariants(_settings: &Timers) -> Vec<Box<dyn Invariant>> {
        vec![Box::new(LeaderAfterHealing::default())]
    }
}

fn text(membership: &Membership) -> String {
    let mut live: Vec<(u64, &str)> =
        membership.live.iter().map(|(node, &age)| (age, node.as_str())).collect();
    live.sort_unstable();
    let names: Vec<String> = live.into_iter().map(|(age, node)| format!("{node} {age}")).collect();
    format!("{}: {}", membership.version, names.join(", "))
}
