//! Counters and durations of a node's part in an election. They cost a heartbeat a few atomic additions.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use primacy_core::{Duration, Instant, Leader, NodeId, Reason, Term, Violation};

use crate::clock;
use crate::connections::{CertificateReport, Counters};
use crate::histogram::Histogram;
use crate::leadership::{Cell, EndCauses};
use crate::store_health::StoreHealth;

/// The measurements of one node in one election.
#[derive(Debug, Default)]
pub(crate) struct Stats {
    history: Mutex<LeadershipHistory>,
    pub(crate) heartbeat_round_trips: Histogram,
    pub(crate) state_writes: Histogram,
    /// Over a store: the health of its requests.
    pub(crate) store: Arc<StoreHealth>,
    /// The counters of the connections; among peers only.
    pub(crate) connections: OnceLock<Arc<Mutex<Counters>>>,
    /// The state of the certificate; under TLS only.
    pub(crate) certificate: OnceLock<Arc<dyn CertificateReport>>,
}

/// The present leader, and counters of former leaderships.
#[derive(Clone, Debug, Default)]
pub(crate) struct LeadershipHistory {
    pub(crate) leader: Option<Leader>,
    /// The time since which no leader is known.
    pub(crate) leaderless_since: Option<Instant>,
    /// The time without a known leader before `leaderless_since`.
    pub(crate) leaderless: Duration,
    /// The number of leader changes that this node learned of, including a further leadership of the same leader.
    pub(crate) leader_changes: u64,
    /// The highest term for which this node has known the leader.
    pub(crate) term: Term,
    /// This node's own leadership.
    pub(crate) lead: Option<Arc<Cell>>,
    /// The number of times that this node was elected.
    pub(crate) elections: u64,
    /// The ends of its leaderships, by reason.
    pub(crate) ends: BTreeMap<&'static str, u64>,
    pub(crate) violations: u64,
    pub(crate) violation: Option<Violation>,
}

impl Stats {
    pub(crate) fn new() -> Self {
        let stats = Self::default();
        stats.lock().leaderless_since = Some(clock::now());
        stats
    }

    fn lock(&self) -> MutexGuard<'_, LeadershipHistory> {
        self.history.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn elected(&self, lead: Arc<Cell>) {
        let mut history = self.lock();
        history.elections += 1;
        history.term = history.term.max(lead.term());
        history.lead = Some(lead);
    }

    /// Records that the leadership has ended; only the first reason counts.
    pub(crate) fn ended(&self, cell: &Cell, reason: Reason) {
        let reason = cell.lead().ending.unwrap_or(reason);
        let mut history = self.lock();
        history.lead = None;
        *history.ends.entry(name(reason)).or_default() += 1;
    }

    pub(crate) fn leader(&self, leader: Option<Leader>) {
        let mut history = self.lock();
        if leader == history.leader {
            return;
        }
        history.leader = leader;
        let now = clock::now();
        match leader {
            Some(leader) => {
                history.leader_changes += 1;
                history.term = history.term.max(leader.term);
                if let Some(since) = history.leaderless_since.take() {
                    history.leaderless = history.leaderless.plus(now.since(since));
                }
            }
            None => history.leaderless_since = history.leaderless_since.or(Some(now)),
        }
    }

    pub(crate) fn violation(&self, violation: Violation) {
        let mut history = self.lock();
        history.violations += 1;
        history.violation = Some(violation);
    }

    #[cfg(any(test, feature = "metrics"))]
    pub(crate) fn history(&self) -> LeadershipHistory {
        self.lock().clone()
    }
}

impl EndCauses for Stats {
    fn last_violation(&self) -> Option<Violation> {
        self.lock().violation
    }

    fn store_trouble(&self) -> Option<String> {
        self.store.loss(clock::now())
    }
}

#[cfg(any(test, feature = "metrics"))]
impl LeadershipHistory {
    /// The total time without a known leader until now.
    pub(crate) fn leaderless(&self, now: Instant) -> Duration {
        let current = self.leaderless_since.map_or(Duration::ZERO, |since| now.since(since));
        self.leaderless.plus(current)
    }
}

/// The label of every reason in metrics.
#[cfg(feature = "metrics")]
pub(crate) const REASONS: [&str; 11] = [
    "resigned",
    "transferred",
    "unhealthy",
    "expired",
    "higher_term",
    "overwritten",
    "removed",
    "session_ended",
    "disk_lost",
    "violation",
    "halted",
];

const fn name(reason: Reason) -> &'static str {
    match reason {
        Reason::Resigned => "resigned",
        Reason::Transferred(_) => "transferred",
        Reason::Unhealthy => "unhealthy",
        Reason::Expired => "expired",
        Reason::Undecided => "undecided",
        Reason::HigherTerm(_) => "higher_term",
        Reason::Overwritten => "overwritten",
        Reason::Removed => "removed",
        Reason::SessionEnded => "session_ended",
        Reason::DiskLost => "disk_lost",
        Reason::Violation => "violation",
        Reason::Halted => "halted",
    }
}

/// Measurements of a node's copy of a map.
#[cfg(feature = "metrics")]
#[derive(Clone, Debug)]
pub(crate) struct Reading {
    pub(crate) version: u64,
    pub(crate) entries: u64,
    /// The bytes that count against the quota.
    pub(crate) bytes: u64,
    pub(crate) history_changes: u64,
    pub(crate) history_bytes: u64,
    /// The quota.
    pub(crate) quota: u64,
    /// The sessions of clients.
    pub(crate) sessions: usize,
    pub(crate) voters: usize,
    pub(crate) log: LogReading,
}

/// Measurements of a node's log.
#[cfg(feature = "metrics")]
#[derive(Clone, Debug)]
pub(crate) struct LogReading {
    /// The numbers of the records that metrics show, each with its label.
    pub(crate) records: [(&'static str, primacy_core::LeaderSequence); 3],
    pub(crate) uncommitted: u64,
    pub(crate) lost: bool,
    /// The number of records that each follower of a leader is not known to hold.
    pub(crate) behind: Vec<(NodeId, u64)>,
}

/// The times at which the last heartbeats were sent, so that their replies can be timed.
#[derive(Debug, Default)]
pub(crate) struct HeartbeatTimes {
    /// The times by node and round. A round that was sent to a node twice, because it has reconnected, counts from the
    /// last time: messages over the former connection get no reply.
    sent: BTreeMap<NodeId, BTreeMap<u64, Instant>>,
}

/// The most rounds of a node that wait for replies; later replies are not timed.
const ROUNDS_MAX: usize = 32;

impl HeartbeatTimes {
    pub(crate) fn sent(&mut self, to: NodeId, round: u64, now: Instant) {
        let sent = self.sent.entry(to).or_default();
        sent.insert(round, now);
        while sent.len() > ROUNDS_MAX {
            sent.pop_first();
        }
    }

    /// The time that the reply of this node to this round took.
    pub(crate) fn replied(&self, from: NodeId, round: u64, now: Instant) -> Option<Duration> {
        self.sent.get(&from)?.get(&round).map(|&sent| now.since(sent))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use primacy_core::{Identity, Incarnation};

    #[test]
    fn a_heartbeat_that_is_repeated_for_one_node_is_timed_from_the_repetition() {
        let [b, c] = ["b", "c"].map(|name| NodeId::new(name).unwrap());
        let at = Instant::from_nanos;
        let mut times = HeartbeatTimes::default();
        times.sent(b, 7, at(1_000));
        times.sent(c, 7, at(1_000));
        // It was disconnected, and learns of its leader as soon as it is back.
        times.sent(c, 7, at(9_000));
        assert_eq!(times.replied(c, 7, at(9_500)), Some(Duration::from_nanos(500)));
        assert_eq!(times.replied(b, 7, at(9_500)), Some(Duration::from_nanos(8_500)));
        assert_eq!(times.replied(b, 8, at(9_500)), None);
        for round in 8..100 {
            times.sent(b, round, at(10_000));
        }
        assert_eq!(times.replied(b, 7, at(10_000)), None, "what is never answered is forgotten");
    }

    #[test]
    fn the_time_without_a_leader_counts_while_there_is_none() {
        let (second, at) = (Duration::from_secs(1), Instant::from_nanos(10_000_000_000));
        let mut history = LeadershipHistory { leaderless_since: Some(at), ..LeadershipHistory::default() };
        assert_eq!(history.leaderless(at.after(second)), second);
        history.leaderless = second;
        history.leaderless_since = None;
        assert_eq!(history.leaderless(at.after(second)), second);
    }

    #[test]
    fn the_next_leadership_of_the_same_leader_is_a_change_and_a_repetition_is_none() {
        let stats = Stats::new();
        let identity = Identity::new(NodeId::new("a").unwrap(), Incarnation { count: 1, nonce: 1 });
        let leader = |term| Some(Leader { identity, term: Term(term) });
        for known in [leader(1), leader(1), None, leader(1), leader(2)] {
            stats.leader(known);
        }
        let history = stats.history();
        assert_eq!((history.leader_changes, history.term, history.leaderless_since), (3, Term(2), None));
    }
}
