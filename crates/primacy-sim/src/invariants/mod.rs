//! The invariants: one small file each, judged after every step of the world.
//!
//! The names I1 to I10 are those of the design ("Invariants of the bench").

pub mod drained_before_released;
pub mod leader_after_healing;
pub mod no_needless_change;
pub mod one_leader_at_a_time;
pub mod one_leader_per_term;
pub mod one_log;
pub mod one_vote_per_term;
pub mod reference_map;
mod reference_partitions;
pub mod sessions_live;
pub mod shown_is_durable;
pub mod tokens_grow;
pub mod views_agree;

use primacy_core::membership::View;
use primacy_core::{Event, FencingToken, Identity, NodeId, Term};
use primacy_kv::machine::clients::Ticket;
use primacy_kv::machine::{Answer, Ask, Metadata};
use primacy_kv::replication::log::Write;

use crate::clock::Moment;
use crate::counters::Counters;
use crate::leadership_intervals::LeadershipIntervals;

/// An event of the world, as the invariants see it.
#[derive(Clone, Copy, Debug)]
pub enum Observation<'a> {
    /// A machine reported an event to its application.
    Told {
        /// The process of the machine.
        who: Identity,
        /// The event.
        event: &'a Event,
    },
    /// A machine sent a message.
    Said {
        /// The process of the machine.
        who: Identity,
        /// The meaning of the message for the invariants.
        meaning: Meaning,
    },
    /// The resource accepted a write of this leadership.
    Accepted {
        /// The token, or the ordinal of the leadership where there is no token.
        number: u64,
    },
    /// A clock was changed, and with it the end of a leadership.
    ClockChanged,
    /// The run enters another phase.
    Phase(Phase),
    /// The world was checked for a single leader that all other nodes name.
    Looked {
        /// True if there is one.
        agreed: bool,
        /// True if no node was left out of the check.
        all: bool,
    },
    /// A machine has a new view of the members of its cluster, or no view any more.
    Viewed {
        /// The process of the machine.
        who: Identity,
        /// The number of its joining.
        joining: u64,
        /// The view.
        view: Option<&'a View>,
    },
    /// A process has crashed.
    Ended {
        /// The process.
        who: Identity,
    },
    /// A node starts without its former disk.
    DiskLost {
        /// The node.
        node: NodeId,
    },
    /// An event of replicated metadata.
    Metadata(MetadataObservation<'a>),
}

/// An observation of replicated metadata.
#[derive(Clone, Copy, Debug)]
pub enum MetadataObservation<'a> {
    /// A write to the disk of a log.
    Wrote {
        /// The process of the log.
        who: Identity,
        /// The write.
        write: &'a Write,
    },
    /// Another thread reads the state of a node, between two effects of one input.
    Shown {
        /// The process of the machine.
        who: Identity,
        /// The machine.
        machine: &'a Metadata,
    },
    /// A machine has handled an input, and all its effects are done.
    Settled {
        /// The process of the machine.
        who: Identity,
        /// The machine.
        machine: &'a Metadata,
    },
    /// A client asks a node.
    Asked {
        /// The process of the node.
        who: Identity,
        /// The client's number for the request.
        ticket: Ticket,
        /// The request.
        ask: &'a Ask,
    },
    /// A node answers a client.
    Answered {
        /// The process of the node.
        who: Identity,
        /// The number of the request.
        ticket: Ticket,
        /// The answer.
        answer: &'a Answer,
        /// Its machine.
        machine: &'a Metadata,
    },
}

/// The phase of a run, which determines the guarantees that an election must give.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Faults happen; safety must hold.
    Faults,
    /// All faults were healed; by `until` one leader must be known to all nodes.
    Healed {
        /// The bound that the election states for itself.
        until: Moment,
    },
    /// Only faults that must not cost the leader its lead.
    Calm,
}

/// The meaning of a message, independent of the algorithm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Meaning {
    /// A message that no invariant checks.
    Nothing,
    /// The sender votes.
    Votes {
        /// In this term.
        term: Term,
        /// For this process.
        candidate: Identity,
    },
    /// The sender states that it leads.
    Leads {
        /// In this term.
        term: Term,
        /// True if the claim implies a vote for itself in this term.
        by_own_vote: bool,
    },
    /// The sender releases the leadership with this token, its own or that of a dead node, and with it all earlier
    /// leaderships of the same process.
    Releases {
        /// The token.
        token: FencingToken,
    },
    /// The sender removes the entry with this token from a queue. Leaderships by other entries go on, even by a later
    /// one: a delayed request may have created it.
    Withdraws {
        /// The token.
        token: FencingToken,
    },
}

/// An invariant that must always hold.
pub trait Invariant: core::fmt::Debug {
    /// Its name in the design.
    fn name(&self) -> &'static str;

    /// Checks an observation.
    ///
    /// # Errors
    /// The violation, as text.
    fn observe(
        &mut self,
        now: Moment,
        seen: &Observation<'_>,
        leaderships: &LeadershipIntervals,
    ) -> Result<(), String>;

    /// Increments the counters of the relevant branches that were taken since the last call.
    fn count(&mut self, counters: &mut Counters) {
        let _ = counters;
    }
}

/// A violation of an invariant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Breach {
    /// The moment of the violation.
    pub at: Moment,
    /// The invariant's name.
    pub invariant: &'static str,
    /// The violation, as text.
    pub what: String,
}
