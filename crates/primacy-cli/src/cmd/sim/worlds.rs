//! The worlds that are drawn from seeds: all that this command knows of the simulator's search.

use std::fmt;
use std::panic::catch_unwind;

use clap::ValueEnum;
use primacy_sim::replay::{self, Replayed};
use primacy_sim::swarm::{self, Beyond, Verdict};
use primacy_sim::trace::{Levels, Trace};

/// An election of which worlds are drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub(crate) enum Election {
    /// Among peers, by a majority
    Quorum,
    /// Over an expiring record in a store
    Lease,
}

impl Election {
    pub(crate) const ALL: [Self; 2] = [Self::Quorum, Self::Lease];

    pub(crate) const fn name(self) -> &'static str {
        self.drawn().name()
    }

    const fn drawn(self) -> swarm::Election {
        match self {
            Self::Quorum => swarm::Election::Quorum,
            Self::Lease => swarm::Election::Lease,
        }
    }

    /// What many worlds together must have met.
    pub(crate) fn must_meet(self) -> Vec<&'static str> {
        self.drawn().must_meet().collect()
    }
}

/// One of the worlds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct World {
    pub(crate) election: Election,
    pub(crate) seed: u64,
    /// The assumption of the election that does not hold in it.
    pub(crate) beyond: Option<Beyond>,
}

/// Finds an assumption by its name.
pub(crate) fn beyond(name: &str) -> Result<Beyond, String> {
    let found = Beyond::ALL.iter().copied().find(|beyond| beyond.name() == name);
    found.ok_or_else(|| {
        let names: Vec<&str> = Beyond::ALL.iter().map(|beyond| beyond.name()).collect();
        format!("write one of {}", names.join(", "))
    })
}

impl World {
    /// Runs it without keeping what happens.
    ///
    /// # Errors
    /// What a machine or the simulator itself said when it panicked.
    pub(crate) fn run(self) -> Result<Verdict, String> {
        let run = || self.election.drawn().run_beyond(self.seed, self.beyond, Trace::keeping(&[])).verdict;
        catch_unwind(run).map_err(said)
    }

    /// Runs it and records what happens.
    ///
    /// # Errors
    /// As [`run`](Self::run).
    pub(crate) fn replay(self, levels: Levels) -> Result<Replayed, String> {
        catch_unwind(|| replay::seed(self.election.drawn(), self.seed, self.beyond, levels)).map_err(said)
    }

    /// The one command that replays it.
    pub(crate) fn command(self) -> String {
        let beyond = self.beyond.map_or_else(String::new, |beyond| format!(" --beyond {}", beyond.name()));
        format!("primacy replay --election {} --seed {}{beyond}", self.election.name(), self.seed)
    }
}

impl fmt::Display for World {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} seed {}", self.election.name(), self.seed)?;
        self.beyond.map_or(Ok(()), |beyond| write!(f, " beyond {}", beyond.name()))
    }
}

fn said(panic: Box<dyn std::any::Any + Send>) -> String {
    let said = panic.downcast_ref::<String>().cloned();
    let said = said.or_else(|| panic.downcast_ref::<&str>().map(|said| (*said).to_owned()));
    format!("panicked: {}", said.unwrap_or_else(|| "without a word".to_owned()))
}
