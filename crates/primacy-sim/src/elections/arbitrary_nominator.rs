//! The simulator's adapter for the [`arbitrary_nominator`](crate::arbitrary_nominator).

use primacy_core::{Duration, NodeId};

use crate::algorithm::{Algorithm, ProcessStart, Settings, duration, unknown_setting};
use crate::arbitrary_nominator::{ArbitraryNominator as Machine, Silence};
use crate::invariants::{Invariant, Meaning};

/// `arbitrary_nominator`, which elects no leader.
#[derive(Clone, Copy, Debug)]
pub struct ArbitraryNominator;

/// Settings of a node.
#[derive(Clone, Debug)]
pub struct Timers {
    /// The longest time for which a node names the same nominee.
    pub lasts: Duration,
}

impl Default for Timers {
    fn default() -> Self {
        Self { lasts: Duration::from_secs(1) }
    }
}

impl Settings for Timers {
    fn set(&mut self, key: &str, text: &str) -> Result<(), String> {
        match key {
            "lasts" => self.lasts = duration(text)?,
            _ => return unknown_setting(key),
        }
        Ok(())
    }
}

impl Algorithm for ArbitraryNominator {
    type Message = Silence;
    type Durable = ();
    type Kept = ();
    type Machine = Machine;
    type Settings = Timers;

    fn start(settings: &Timers, process: ProcessStart<'_, ()>) -> Machine {
        Machine::new(process.voters.iter().copied().collect(), settings.lasts, process.seed, process.now)
    }

    fn kind(message: &Silence) -> &'static str {
        match *message {}
    }

    fn is_routine(message: &Silence) -> bool {
        match *message {}
    }

    fn text(message: &Silence) -> String {
        match *message {}
    }

    fn meaning(message: &Silence, _: Option<NodeId>) -> Meaning {
        match *message {}
    }

    const SETTLES: bool = false;

    fn invariants(_: &Timers) -> Vec<Box<dyn Invariant>> {
        Vec::new()
    }
}
