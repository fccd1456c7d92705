//! The simulator's adapter for the election of the note of 2000, as written.

use primacy_core::{Duration, Identity, Incarnation, NodeId};

use crate::algorithm::{Algorithm, ProcessStart, Settings, duration, unknown_setting};
use crate::historical::gmt2000::{Config, Gmt2000 as Machine, Message, Seen};
use crate::invariants::one_leader_per_term::OneLeaderPerTerm;
use crate::invariants::one_vote_per_term::OneVotePerTerm;
use crate::invariants::tokens_grow::TokensGrow;
use crate::invariants::{Invariant, Meaning};

/// `gmt2000`.
#[derive(Clone, Copy, Debug)]
pub struct Gmt2000;

/// Settings of a server.
#[derive(Clone, Copy, Debug)]
pub struct Timers {
    heartbeat_interval: Duration,
    gathering: Duration,
}

impl Default for Timers {
    /// The note's examples.
    fn default() -> Self {
        Self { heartbeat_interval: Duration::from_secs(5), gathering: Duration::from_millis(250) }
    }
}

impl Settings for Timers {
    fn set(&mut self, key: &str, text: &str) -> Result<(), String> {
        match key {
            "heartbeat_interval" => self.heartbeat_interval = duration(text)?,
            "gathering" => self.gathering = duration(text)?,
            _ => return unknown_setting(key),
        }
        Ok(())
    }
}

impl Algorithm for Gmt2000 {
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
            gathering: settings.gathering,
        };
        Machine::new(config, process.now)
    }

    fn kind(message: &Message) -> &'static str {
        match message {
            Message::Elect(_) => "Elect",
            Message::Vote(_) => "Vote",
            Message::Lead(_) => "Lead",
        }
    }

    fn is_routine(message: &Message) -> bool {
        match message {
            Message::Lead((_, number)) => *number > 1,
            Message::Elect(_) | Message::Vote(_) => false,
        }
    }

    fn text(message: &Message) -> String {
        let (Message::Elect(seen) | Message::Vote(seen) | Message::Lead(seen)) = message;
        format!("{} {}", Self::kind(message), seen_text(*seen))
    }

    fn campaigns(machine: &Machine) -> bool {
        machine.votes()
    }

    fn meaning(message: &Message, to: Option<NodeId>) -> Meaning {
        match (message, to) {
            // A node that is elected by votes for `term` leads in the next term. A vote does not name the
            // incarnation.
            (Message::Vote((term, _)), Some(node)) => {
                let incarnation = Incarnation { count: 0, nonce: 0 };
                Meaning::Votes { term: term.next(), candidate: Identity { node, incarnation } }
            }
            (Message::Lead((term, _)), _) => Meaning::Leads { term: *term, by_own_vote: false },
            (Message::Vote(_) | Message::Elect(_), _) => Meaning::Nothing,
        }
    }

    fn invariants(_settings: &Timers) -> Vec<Box<dyn Invariant>> {
        // The invariants that a reader of the note would expect.
        vec![
            Box::new(OneLeaderPerTerm::default()),
            Box::new(OneVotePerTerm::default()),
            Box::new(TokensGrow::at_the_resource()),
        ]
    }
}

fn seen_text((term, number): Seen) -> String {
    format!("({term}, {number})")
}
