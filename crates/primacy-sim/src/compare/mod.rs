//! Comparison of all elections under the same conditions, with the same faults and the same measurements.
//!
//! A run is one [`Contender`] in one [`Scenario`] under one [`Setup`], and is determined by its seed. All nodes start
//! within a second. Once all name one leader, the nodes run for ten to twenty seconds, which are not measured. Then
//! the scenario strikes, and everything is measured until its end. [`Outcome`] describes the measurements; a
//! [`ComparisonRow`] summarises the runs of several seeds.
//!
//! Clocks are exact here, and the machines are those of real nodes, with the timers that `primacy run` derives from
//! its default leases. Invariants are checked here too.

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

use crate::elections::{bully, confirmed, lease, omega, quorum, ranked, ring, seniority, session};

pub use choice::choices;
pub use contender::Contender;
pub use scenario::Scenario;
pub use sheet::sheet;
pub use summary::{ComparisonRow, Span};
pub use table::{in_words, table};

/// The allowed number of nodes. With fewer than three, no majority survives the loss of a node; with more than fifty,
/// a message takes longer around a ring than the nodes wait for it.
pub const NODES: RangeInclusive<usize> = 3..=50;

/// The longest delay: above it, the timers of `primacy run` no longer suit all elections.
pub const DELAY_MAX: Duration = Duration::from_millis(50);

/// The largest share of lost packets, in parts per million: half of them.
pub const LOST_MAX: u32 = 500_000;

/// The default number of seeds: an odd number, so that the median is one of the runs.
pub const SEEDS: u64 = 21;

/// The conditions of a comparison, which are the same for every election.
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
    /// The maximum time for which a leader may lead without contact; among peers, the duration of a promise.
    pub lease: Duration,
    /// The time between renewals or heartbeats of a leader.
    pub renewal: Duration,
    /// The number of missed heartbeats after which a follower no longer counts the leader as heard.
    pub miss_count: u32,
    /// The time for which a new node listens before it campaigns.
    pub initial_wait: Duration,
    /// The longest random wait.
    pub random_wait_max: Duration,
    /// The time between two candidates that campaign one after the other.
    pub stagger: Duration,
    /// The time to wait for an answer.
    pub answer_timeout: Duration,
    /// The time between reads of a store that announces no changes.
    pub poll_interval: Duration,
}

/// The measurements of one run.
///
/// A node *acts as the leader* while its work may run: from `Elected` until its work has drained, its leadership ends
/// on its own clock, or its guardian has ended the work of a crashed process. An advisory mandate has no end on the
/// clock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// The time in which no node of the larger part acted as the leader. The larger part is all nodes except those
    /// that the scenario has cut off from most others at that moment.
    pub leaderless: Duration,
    /// The maximum number of nodes that acted as the leader at the same moment, on either side of a cut.
    pub leaders_max: u32,
    /// The time in which two or more nodes did.
    pub overlap: Duration,
    /// The number of leader changes of the larger part: a leadership began in it, or its latest one ended while an
    /// earlier one, or one of a cut-off node, was still in force. A new term of the same node counts as a change too,
    /// because its work ended and began again.
    pub changes: u64,
    /// The number of changes without a cause: all but one for each leader that the scenario has struck. A leader is
    /// struck if it is killed, loses power, is cut off from most others, or is restarted.
    pub needless: u64,
    /// The number of messages that left their hosts; see [`Sent`](crate::counters::Sent).
    pub messages: u64,
    /// The number of them that are not routine: neither heartbeats or renewals and their answers, nor reads of a
    /// store.
    pub beyond_routine: u64,
    /// The measured time.
    pub measured: Duration,
    /// The broken invariants, if any, in words.
    pub breaches: Vec<String>,
}

/// Runs a contender in a scenario. Returns `None` if no single leader emerged within the bound that the election
/// states for itself, before the scenario could begin; this happens when many packets are lost.
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
        Contender::Omega => trial::run::<omega::Omega>(scenario, setup, &settings, seed),
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

/// Returns the names of this many nodes, in order.
fn names(nodes: usize) -> Vec<NodeId> {
    (1..=nodes).map(|number| NodeId::new(&format!("n{number:02}")).expect("letters and digits")).collect()
}
