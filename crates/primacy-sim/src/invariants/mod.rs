//! What must never happen: one small file each, judged after every step of the world.
//!
//! The names I1 to I10 are those of the design ("Invariants of the bench").

pub mod drained_before_released;
pub mod dumb_map;
mod dumb_partitions;
pub mod leader_after_healing;
pub mod no_needless_change;
pub mod one_leader_at_a_time;
pub mod one_leader_per_term;
pub mod one_log;
pub mod one_vote_per_term;
pub mod sessions_live;
pub mod shown_is_durable;
pub mod tokens_grow;
pub mod views_agree;

use primacy_core::membership::View;
use primacy_core::metadata::clients::Ticket;
use primacy_core::metadata::log::Write;
use primacy_core::metadata::machine::{Answer, Ask, Metadata};
use primacy_core::{Event, FencingToken, Identity, NodeId, Term};

use crate::beliefs::Beliefs;
use crate::clock::Moment;
use crate::counters::Counters;

/// Something that the judge is shown.
#[derive(Clone, Copy, Debug)]
pub enum Observation<'a> {
    /// A machine told its application something.
    Told {
        /// Whose machine.
        who: Identity,
        /// What.
        event: &'a Event,
    },
    /// A machine sent something.
    Said {
        /// Whose machine.
        who: Identity,
        /// What it means.
        meaning: Meaning,
    },
    /// The resource accepted a write of this leadership: its token, or its place in time where there is none.
    Accepted {
        /// The number by which leaderships are ordered.
        number: u64,
    },
    /// A clock was changed, and with it the end of a belief.
    ClockChanged,
    /// The run enters another phase.
    Phase(Phase),
    /// Somebody looks whether one node believes to lead and all others name it.
    Looked {
        /// Whether it is so.
        agreed: bool,
        /// Whether all are asked.
        all: bool,
    },
    /// A machine has another view of who belongs to its cluster, or none any more.
    Viewed {
        /// Whose machine.
        who: Identity,
        /// Which of its joinings it is in.
        joining: u64,
        /// The view.
        view: Option<&'a View>,
    },
    /// A process has crashed.
    Ended {
        /// Which one.
        who: Identity,
    },
    /// A node starts without the disk that it had last, and so without what stood on it.
    DiskLost {
        /// Which one.
        node: NodeId,
    },
    /// Something about replicated metadata.
    Metadata(Seen<'a>),
}

/// What the judge is shown of replicated metadata.
#[derive(Clone, Copy, Debug)]
pub enum Seen<'a> {
    /// This was written to the disk of a log.
    Wrote {
        /// Whose log.
        who: Identity,
        /// What.
        write: &'a Write,
    },
    /// A thread beside the driver reads the state of a node, while the effects of an input are performed.
    Shown {
        /// Whose machine.
        who: Identity,
        /// It.
        machine: &'a Metadata,
    },
    /// A machine has taken an input, and all that it wanted done for it is done.
    Settled {
        /// Whose machine.
        who: Identity,
        /// It.
        machine: &'a Metadata,
    },
    /// A client asks a node for something.
    Asked {
        /// The node, in this life.
        who: Identity,
        /// By what the client knows the answer.
        ticket: Ticket,
        /// What it asks.
        ask: &'a Ask,
    },
    /// A node answers.
    Answered {
        /// The node, in this life.
        who: Identity,
        /// Which question.
        ticket: Ticket,
        /// What it answers.
        answer: &'a Answer,
        /// Its machine.
        machine: &'a Metadata,
    },
}

/// What is asked of an election at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Safety, whatever befalls it.
    Faults,
    /// Everything was healed, and by then there must be one leader, known to all.
    Healed {
        /// The bound that the election states for itself.
        until: Moment,
    },
    /// That this leader stays.
    Calm,
}

/// What a message means, whatever algorithm it belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Meaning {
    /// Nothing that an invariant asks for.
    Nothing,
    /// The sender votes.
    Votes {
        /// In this term.
        term: Term,
        /// For this process life.
        candidate: Identity,
    },
    /// The sender says that it leads.
    Leads {
        /// In this term.
        term: Term,
        /// Whether that says that it has voted for itself in it.
        by_own_vote: bool,
    },
    /// The sender lets go of the leadership with this token, its own or that of a dead one; and with it of what guarded the earlier
    /// ones of the same life.
    Releases {
        /// The token.
        token: FencingToken,
    },
    /// The sender takes the entry with this token out of a queue. What rests on another entry is not touched by that, also
    /// where this one is later: a request that lands late may have made it.
    Withdraws {
        /// The token.
        token: FencingToken,
    },
}

/// One thing that must never happen.
pub trait Invariant: core::fmt::Debug {
    /// Its name in the design.
    fn name(&self) -> &'static str;

    /// Looks at what has just happened.
    ///
    /// # Errors
    /// How it was broken.
    fn observe(&mut self, now: Moment, seen: &Observation<'_>, beliefs: &Beliefs) -> Result<(), String>;

    /// Counts what it has seen since this was last called, where that shows that a branch was taken that matters.
    fn count(&mut self, counters: &mut Counters) {
        let _ = counters;
    }
}

/// An invariant was broken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Breach {
    /// When.
    pub at: Moment,
    /// The invariant's name.
    pub invariant: &'static str,
    /// How.
    pub what: String,
}
