//! The simulator's adapter for the naive election of the BlazingMQ article.

use primacy_core::{Duration, NodeId};

use crate::algorithm::{Algorithm, ProcessStart, Settings, duration, unknown_setting, value};
use crate::historical::blazingmq_naive::{BlazingmqNaive as Machine, Config, Message};
use crate::invariants::one_leader_at_a_time::OneLeaderAtATime;
use crate::invariants::tokens_grow::TokensGrow;
use crate::invariants::{Invariant, Meaning};

/// `blazingmq_naive`.
#[derive(Clone, Copy, Debug)]
pub struct BlazingmqNaive;

/// Settings of a node.
#[derive(Clone, Copy, Debug)]
pub struct Timers {
    heartbeat_interval: Duration,
    miss_count: u32,
    initial_wait: Duration,
    random_wait_max: Duration,
    round_timeout: Duration,
}

impl Default for Timers {
    /// The article's values (three heartbeats, a random wait of 0 to 3 s), and the defaults of BlazingMQ's
    /// code where the article states none.
    fn default() -> Self {
        Self {
            heartbeat_interval: Duration::from_secs(2),
            miss_count: 3,
            initial_wait: Duration::from_secs(8),
            random_wait_max: Duration::from_secs(3),
            round_timeout: Duration::from_secs(4),
        }
    }
}

impl Settings for Timers {
    fn set(&mut self, key: &str, text: &str) -> Result<(), String> {
        match key {
            "heartbeat_interval" => self.heartbeat_interval = duration(text)?,
            "miss_count" => self.miss_count = value(text)?,
            "initial_wait" => self.initial_wait = duration(text)?,
            "random_wait_max" => self.random_wait_max = duration(text)?,
            "round_timeout" => self.round_timeout = duration(text)?,
            _ => return unknown_setting(key),
        }
        Ok(())
    }
}

impl Algorithm for BlazingmqNaive {
    type Message = Message;
    type Durable = ();
    type Kept = ();
    type Machine = Machine;
    type Settings = Timers;

    fn start(settings: &Timers, process: ProcessStart<'_, ()>) -> Machine {
        let config = Config {
            me: process.me,
            voters: process.voters.clone(),
            heartbeat_interval: settings.heartbeat_interval,
            miss_count: settings.miss_count,
            initial_wait: settings.initial_wait,
            random_wait_max: settings.random_wait_max,
            round_timeout: settings.round_timeout,
            seed: process.seed,
        };
        Machine::new(config, process.now)
    }

    fn kind(message: &Message) -> &'static str {
        match message {
            Message::Proposal => "Proposal",
            Message::ProposalReply { .. } => "ProposalReply",
            Message::Heartbeat => "Heartbeat",
        }
    }

    fn is_routine(message: &Message) -> bool {
        match message {
            Message::Heartbeat => true,
            Message::Proposal | Message::ProposalReply { .. } => false,
        }
    }

    fn text(message: &Message) -> String {
        match message {
            Message::Proposal => "Proposal".to_owned(),
            Message::ProposalReply { yes: true } => "ProposalReply yes".to_owned(),
            Message::ProposalReply { yes: false } => "ProposalReply no".to_owned(),
            Message::Heartbeat => "Heartbeat".to_owned(),
        }
    }

    fn campaigns(machine: &Machine) -> bool {
        machine.campaigns()
    }

    fn meaning(_message: &Message, _to: Option<NodeId>) -> Meaning {
        Meaning::Nothing // There is no term to vote or to lead in.
    }

    fn invariants(_settings: &Timers) -> Vec<Box<dyn Invariant>> {
        // "Enforcing quorum ensures that at any given time, there is no more than one leader", says the article.
        vec![Box::new(OneLeaderAtATime::default()), Box::new(TokensGrow::in_order_of_elections())]
    }
}
