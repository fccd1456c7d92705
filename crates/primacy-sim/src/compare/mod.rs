//! Every election in the same surroundings, struck by the same things, and measured in the same way.
//!
//! A run is one [`Contender`] in one [`Scenario`] under one [`Setup`], and follows from its seed. It begins with all nodes
//! starting within a second; when all name one leader, it is left alone for ten to twenty seconds, none of which counts. Then the
//! scenario strikes, and from that moment on everything is measured until the scenario is over. What is measured is said at
//! [`Outcome`]; a [`Row`] sums the runs of several seeds up.
//!
//! Clocks run true here, and the machines are those of real nodes, with the timers that `primacy run` derives from its default
//! leases. What invariants there are speak here too.

mod choice;
mod contender;
mod scenario;
mod sheet;
mod stage;
mod summary;
mod table;
mod watch;

use core::ops::RangeInclusive;

use primacy_core::{Duration, NodeId};

use crate::algorithm::{bully, confirmed, lease, quorum, ranked, ring, seniority, session};

pub use choice::choices;
pub use contender::Contender;
pub use scenario::Scenario;
pub use sheet::sheet;
pub use summary::{Row, Span};
pub use table::{in_words, table};

/// How many nodes a comparison may have. Fewer than three have no majority without each other; of more than fifty a ring is longer
/// than the patience of its nodes.
pub const NODES: RangeInclusive<usize> = 3..=50;

/// The longest delay: with a longer one the timers of `primacy run` do not suit all elections any more.
pub const DELAY_MAX: Duration = Duration::from_millis(50);

/// The largest share of lost packets, in parts per million: half of them.
pub const LOST_MAX: u32 = 500_000;

/// How many seeds, where nobody says how many: an odd number, so that the median is one of the runs.
pub const SEEDS: u64 = 21;

/// The surroundings, which are the same for every election.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Setup {
    /// How many nodes, within [`NODES`].
    pub nodes: usize,
    /// How long a packet takes, at most [`DELAY_MAX`].
    pub delay: Duration,
    /// How many packets of a million are lost by chance, at most [`LOST_MAX`].
    pub lost_ppm: u32,
    /// The timers of elections among peers.
    pub peers: Timers,
    /// The timers of elections over a store.
    pub store: Timers,
}

/// The timers from which those of each election are taken, as `primacy run` takes them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timers {
    /// How long a leader may lead without being heard; among peers, how long a promise binds.
    pub lease: Duration,
    /// How often a leader renews, or shows itself.
    pub renewal: Duration,
    /// How many heartbeats are missed until a leader is not heard any more.
    pub miss_count: u32,
    /// How long a new node listens.
    pub initial_wait: Duration,
    /// The longest random wait.
    pub random_wait_max: Duration,
    /// Between two that stand in order.
    pub stagger: Duration,
    /// How long an answer is waited for.
    pub answer_timeout: Duration,
    /// How often a store is read that tells nothing.
    pub poll_interval: Duration,
}

/// What was measured in one run.
///
/// A node *acts as the leader* while its work may run: from `Elected` on, until its work has drained, until the end of its
/// leadership on its own clock, or until its guardian has ended the work of a process that has crashed. A mandate without an end,
/// as advisory ones are, ends only in one of the other ways.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// For how long no node acted as the leader of the larger part: of all nodes but those that the scenario has cut off from most
    /// of the others at that moment.
    pub leaderless: Duration,
    /// How many nodes acted as the leader at the same moment, at most; on whatever side of a cut.
    pub leaders_max: u32,
    /// For how long two or more did.
    pub overlap: Duration,
    /// How often the larger part got another leader: a leadership began in it; or its last one ended while an earlier one was still
    /// there, or one that had begun elsewhere. A leadership of the same node in another term is a change too: its work has been
    /// ended and begun again.
    pub changes: u64,
    /// How many of them nothing called for: all but one for each leader that the scenario has struck. To be struck is to be
    /// killed, to lose power, to be cut off from most others, or to be restarted, while acting as the leader.
    pub needless: u64,
    /// How many messages left their hosts; see [`Sent`](crate::counters::Sent).
    pub messages: u64,
    /// How many of them are not said all the time: neither heartbeats and renewals with their answers, nor reads of a store.
    pub beyond_routine: u64,
    /// How long was measured.
    pub measured: Duration,
    /// The invariants that were broken, if any, in words.
    pub breaches: Vec<String>,
}

/// Runs a contender in a scenario. `None` if no single leader was found before the scenario could begin, within the time that the
/// election states for itself; as happens when many packets are lost.
#[must_use]
pub fn run(contender: Contender, scenario: Scenario, setup: &Setup, seed: u64) -> Option<Outcome> {
    type By<N, C> = confirmed::Confirmed<N, C>;
    let settings = contender.settings(setup);
    match contender {
        Contender::Quorum => stage::run::<quorum::Quorum>(scenario, setup, &settings, seed),
        Contender::Ranked => stage::run::<ranked::Ranked>(scenario, setup, &settings, seed),
        Contender::Bully => stage::run::<bully::Bully>(scenario, setup, &settings, seed),
        Contender::Ring => stage::run::<ring::Ring>(scenario, setup, &settings, seed),
        Contender::RingBidirectional => {
            stage::run::<ring::RingBidirectional>(scenario, setup, &settings, seed)
        }
        Contender::Seniority(_) => stage::run::<seniority::Seniority>(scenario, setup, &settings, seed),
        Contender::Lease => stage::run::<lease::Lease>(scenario, setup, &settings, seed),
        Contender::Session => stage::run::<session::Session>(scenario, setup, &settings, seed),
        Contender::Confirmed => {
            stage::run::<By<bully::Bully, quorum::Quorum>>(scenario, setup, &settings, seed)
        }
        Contender::ConfirmedLease => {
            stage::run::<By<bully::Bully, lease::Lease>>(scenario, setup, &settings, seed)
        }
    }
}

/// The names of so many nodes, in their order.
fn names(nodes: usize) -> Vec<NodeId> {
    (1..=nodes).map(|number| NodeId::new(&format!("n{number:02}")).expect("letters and digits")).collect()
}
