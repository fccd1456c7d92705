//! The simulator's adapter for the appointed leader.

use core::convert::Infallible;

use primacy_core::NodeId;
use primacy_core::election::appointed;

use crate::algorithm::{Algorithm, ProcessStart, Settings, unknown_setting, value};
use crate::invariants::{Invariant, Meaning};

/// `appointed`.
#[derive(Clone, Copy, Debug)]
pub struct Appointed;

/// The settings of a node: the appointed leader, by default the first of the voters.
#[derive(Clone, Copy, Debug, Default)]
pub struct Appointment {
    leader: Option<NodeId>,
}

impl Settings for Appointment {
    fn set(&mut self, key: &str, text: &str) -> Result<(), String> {
        match key {
            "leader" => self.leader = Some(value(text)?),
            _ => return unknown_setting(key),
        }
        Ok(())
    }
}

impl Algorithm for Appointed {
    type Message = Infallible;
    type Durable = ();
    type Kept = ();
    type Machine = appointed::Appointed;
    type Settings = Appointment;

    fn start(settings: &Appointment, process: ProcessStart<'_, ()>) -> appointed::Appointed {
        let first = process.voters.first().copied().unwrap_or(process.me.node);
        appointed::Appointed::new(process.me, settings.leader.unwrap_or(first))
    }

    fn kind(message: &Infallible) -> &'static str {
        match *message {}
    }

    fn is_routine(message: &Infallible) -> bool {
        match *message {}
    }

    fn text(message: &Infallible) -> String {
        match *message {}
    }

    fn meaning(message: &Infallible, _to: Option<NodeId>) -> Meaning {
        match *message {}
    }

    fn invariants(_settings: &Appointment) -> Vec<Box<dyn Invariant>> {
        Vec::new() // It promises nothing.
    }
}
