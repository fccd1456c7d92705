//! Comparison of every election in the same surroundings, with the same faults and the same measurements.
//!
//! A run is one [`Contender`] in one [`Scenario`] under one [`Setup`], and follows from its seed. It begins
//! with all nodes starting within a second. When all name one leader, the nodes are left alone for ten to
//! twenty seconds, none of which counts. Then the scenario strikes, and from that moment on everything is
//! measured until the scenario is over. The measurements are described at [`Outcome`]; a [`ComparisonRow`] sums up the
//! runs of several seeds.
//!
//! Clocks run true here, and the machines are those of real nodes, with the timers that `primacy run` derives
//! from its default leases. Invariants are checked here too.

mod choice;
mod contender;
mod scenario;
mod sheet;
mod summary;
mod table;
mod trial;
mod watch;

use core::ops::RangeInclusive;

use primacy_core::{Duration, NodeId};

use crate::algorithm::{bully, confirmed, lease, quorum, ranked, ring, seniority, session};

pub use choice::choices;
pub use contender::Contender;
pub use scenario::Scenario;
pub use sheet::sheet;
pub use summary::{ComparisonRow, Span};
pub use table::{in_words, table};

/// The allowed number of nodes. Fewer than three have no majority without each other; with more than fifty, a
/// message takes longer around a ring than its nodes wait.
pub const NODES: RangeInclusive<usize> = 3..=50;

/// The longest delay: with a longer one the timers of `primacy run` do not suit all elections any more.
pub const DELAY_MAX: Duration = Duration::from_millis(50);

/// The largest share of lost packets, in parts per million: half of them.
pub const LOST_MAX: u32 = 500_000;

/// The default number of seeds: an odd number, so that the median is one of the runs.
pub const SEEDS: u64 = 21;

/// The surroundings, which are the same for every election.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Setup {
    /// The number of nodes, within [`NODES`].
    pub nodes: usize,
    /// The delay of a packet, at most [`DELAY_MAX`].
    pub delay: Duration,
    /// The number of packets in a million that are lost by chance, at most [`LOST_MAX`].
    pub lost_ppm: u32,
    /// The timers of elections among peers.
    pub peers: Timers,
    /// The timers of elections over a store.
    pub store: Timers,
}

/// The timers from which those of each election are derived, as in `primacy run`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timers {
    /// The maximum time for which a leader may lead without being heard; among peers, the duration of a
    /// promise.
    pub lease: Duration,
    /// The time between renewals or heartbeats of a leader.
    pub renewal: Duration,
    /// The number of missed heartbeats after which a leader is not heard any more.
    pub miss_count: u32,
    /// The time that a new node listens.
    pub initial_wait: Duration,
    /// The longest random wait.
    pub random_wait_max: Duration,
    /// The time between two candidates that campaign in order.
    pub stagger: Duration,
    /// The time to wait for an answer.
    pub answer_timeout: Duration,
    /// The time between reads of a store that announces no changes.
    pub poll_interval: Duration,
}

/// The measurements of one run.
///
/// A node *acts as the leader* while its work may run: from `Elected` on, until its work has drained, until the end of its
/// leadership on its own clock, or until its guardian has ended the work of a process that has crashed. A mandate without an end,
/// as advisory ones are, ends only in one of the other ways.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// The time in which no node acted as the leader of the larger part: of all nodes but those that the
    /// scenario has cut off from most of the others at that moment.
    pub leaderless: Duration,
    /// The maximum number of nodes that acted as the leader at the same moment, on either side of a cut.
    pub leaders_max: u32,
    /// The time in which two or more did.
    pub overlap: Duration,
    /// The number of leader changes of the larger part: a leadership began in it; or its last one ended while
    /// an earlier one, or one that had begun elsewhere, still held. A leadership of the same node in another
    /// term is a change too: its work has been ended and begun again.
    pub changes: u64,
    /// The number of changes without a cause: all but one for each leader that the scenario has struck. To be
    /// struck is to be killed, to lose power, to be cut off from most others, or to be restarted, while
    /// acting as the leader.
    pub needless: u64,
    /// The number of messages that left their hosts; see [`Sent`](crate::counters::Sent).
    pub messages: u64,
    /// The number of them that are not routine: neither heartbeats and renewals with their answers, nor reads
    /// of a store.
    pub beyond_routine: u64,
    /// The measured time.
    pub measured: Duration,
    /// The broken invariants, if any, in words.
    pub breaches: Vec<String>,
}

/// Runs a contender in a scenario. `None` if no single leader was found before the scenario could begin,
/// within the time that the election states for itself; this happens when many packets are lost.
#[must_use]
pub fn run(contender: Contender, scenario: Scenario, setup: &Setup, seed: u64) -> Option<Outcome> {
    type By<N, C> = confirmed::Confirmed<N, C>;
    let settings = contender.settings(setup);
    match contender {
        Contender::Quorum => trial::run::<quorum::Quorum>(scenario, setup, &settings, seed),
        Contender::Ranked => trial::run::<ranked::Ranked>(scenario, setup, &settings, seed),
        Contender::Bully => trial::run::<bully::Bully>(scenario, setup, &settings, seed),
        Contender::Ring => trial::run::<ring::Ring>(scenario, setup, &settings, seed),
        Contender::RingBidirectional => {
            trial::run::<ring::RingBidirectional>(scenario, setup, &settings, seed)
        }
        Contender::Seniority(_) => trial::run::<seniority::Seniority>(scenario, setup, &settings, seed),
        Contender::Lease => trial::run::<lease::Lease>(scenario, setup, &settings, seed),
        Contender::Session => trial::run::<session::Session>(scenario, setup, &settings, seed),
        Contender::Confirmed => {
            trial::run::<By<bully::Bully, quorum::Quorum>>(scenario, setup, &settings, seed)
        }
        Contender::ConfirmedLease => {
            trial::run::<By<bully::Bully, lease::Lease>>(scenario, setup, &settings, seed)
        }
    }
}

/// The names of this many nodes, in their order.
fn names(nodes: usize) -> Vec<NodeId> {
    (1..=nodes).map(|number| NodeId::new(&format!("n{number:02}")).expect("letters and digits")).collect()
}
