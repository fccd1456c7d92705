//! Defaults, and the relations between timers, which are checked once.
//!
//! | what | among peers | over a store |
//! |---|---|---|
//! | lease (among peers: the promise) | 1 s | 10 s |
//! | renewal (among peers: the heartbeat) | a quarter | a sixth |
//! | drain | a quarter | a sixth |
//! | kill margin | a tenth, at most 200 ms | the same |
//! | drift bound | 1 % | 1 % |
//! | heartbeats missed until a follower counts the leader as not heard | 4 | |
//! | random wait before a campaign | 0 to three tenths | |
//! | stagger of nodes that campaign in order | four round trips, at least 5 ms | |
//! | time for which claims are gathered, by `ranked` | two round trips, at least 5 ms | |
//! | time for the answers of a round | a quarter | an eighth |
//! | poll, where the store does not report changes | | a tenth, at most 1 s |

mod seniority;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use primacy_core::election::Algorithm;
use primacy_core::election::quorum::Safety;
use primacy_core::hard_state::Durability;
use primacy_core::id::NodeIdError;
use primacy_core::membership::{Attributes, AttributesError};
use primacy_core::{self as core, Drift, LeaderSequence, NodeId};

use crate::connections::{Limits, Security, TlsFiles};
use crate::handshake::{Confirmation, ElectionKind, Voters};
pub use seniority::{SeniorityError, SeniorityOptions, SplitBrain};

/// With metadata: the time after which the log sends an unanswered message again.
pub(crate) const RESEND_AFTER: core::Duration = core::Duration::from_millis(250);

/// With metadata: the time that a request waits for a leader's answer, as in etcd.
pub(crate) const REQUEST_MAX: Duration = Duration::from_secs(7);

/// The interval at which a node checks that its state directory is still there.
pub(crate) const STATE_LOOK: Duration = Duration::from_secs(1);

/// The longest promise that a lost state may have made: above any lease.
pub(crate) const LOST_PROMISE_MAX: core::Duration = core::Duration::from_secs(60);

/// Partitions: the shortest time to live of a node's session. Heartbeats, answers, and the timers of an operating system must
/// fit into it.
pub(crate) const SESSION_MIN: Duration = Duration::from_millis(100);
/// Partitions: the default time for work to end before the node warns that it keeps its partition.
pub(crate) const PARTITION_DRAIN: Duration = Duration::from_secs(10);
/// Partitions: the first pause before a failed request is repeated.
pub(crate) const PARTITION_PAUSE: Duration = Duration::from_millis(200);
/// Partitions: the longest pause before a failed request is repeated.
pub(crate) const PARTITION_PAUSE_MAX: Duration = Duration::from_secs(60);

/// The promise among peers, where none is configured.
pub const PROMISE: Duration = Duration::from_secs(1);
/// The lease over a store, where none is configured.
pub const LEASE: Duration = Duration::from_secs(10);
/// The default bound on the difference between the rates of two clocks: one per cent.
pub const DRIFT_MAX: Drift = Drift::from_ppm(10_000);

/// At a gate: the time that a new token waits for the requests of earlier tokens before they are revoked.
pub const FENCE_PATIENCE: Duration = Duration::from_secs(1);
/// At a gate: the time that a new token waits for revoked requests to end before it is refused.
pub const FENCE_GRACE: Duration = Duration::from_secs(1);

/// The pause in the log after a message that every request or connection may cause again.
pub const LOG_PAUSE: core::Duration = core::Duration::from_secs(10);

/// The shortest lease: a heartbeat or a write, its answer, and the timers of an operating system must fit into it.
const LEASE_MIN: Duration = Duration::from_millis(10);
/// The shortest interval of renewals: at shorter ones a machine is busy with nothing else, and its timers are not that
/// exact.
const RENEWAL_MIN: Duration = Duration::from_millis(1);
/// The longest random wait, in leases. An election can take that long after each loss of a leader.
const RANDOM_WAIT_LEASES_MAX: u32 = 10;
const KILL_MARGIN_MAX: Duration = Duration::from_millis(200);
const POLL_INTERVAL_MAX: Duration = Duration::from_secs(1);
const STAGGER: Duration = Duration::from_millis(5);
const MISS_COUNT: u32 = 4;
/// The pause before a request tries an unreachable store again: the store may be electing a leader of its own.
pub(crate) const REOPEN_PAUSE: Duration = Duration::from_millis(100);
/// The longest time for which a member of a cluster by seniority may be lost, or silent, before it is removed: within an hour an
/// operator can act.
pub(crate) const STABLE_AFTER_MAX: Duration = Duration::from_secs(3600);

/// The venue of an election: among peers or over a store. The timers depend on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Venue {
    /// Among the nodes themselves.
    Peers,
    /// An election over a store.
    Store,
}

/// All timers of an election. [`Timers::new`] derives them from the lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Timers {
    /// The time for which a leader may lead without a renewal; among peers, the time for which a voter that supports it
    /// supports no other candidate.
    pub lease: Duration,
    /// The interval at which the leader renews; among peers, the heartbeat interval.
    pub renewal: Duration,
    /// The time for the work to end in order.
    pub drain: Duration,
    /// The time before the end of the lease at which unfinished work is killed.
    pub kill_margin: Duration,
    /// The most by which the rates of two clocks may differ.
    pub drift_max: Drift,
    /// Among peers: the number of consecutive missed heartbeats after which the leader counts as not heard.
    pub miss_count: u32,
    /// Among peers: the time that a new node listens for a leader before it campaigns.
    pub initial_wait: Duration,
    /// Among peers: the longest random wait before a campaign.
    pub random_wait_max: Duration,
    /// Among peers: the least time between two nodes that campaign in order.
    pub stagger: Duration,
    /// The time to wait for an answer: of the voters in one round, or of the store.
    pub answer_timeout: Duration,
    /// Over a store: the interval of reads where it does not report changes.
    pub poll_interval: Duration,
}

/// An error in a configuration. All wrong relations between timers are in one error.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// The election's name is invalid.
    #[error(
        "the election's name {name:?} cannot be used: it names files and records; use 1 to 63 letters, digits, '.', '_' and '-'"
    )]
    Election {
        /// The name.
        name: String,
    },
    /// A node's name is invalid.
    #[error("the node's name {name:?} cannot be used: {error}")]
    Node {
        /// The name.
        name: String,
        /// The error.
        error: NodeIdError,
    },
    /// The timers do not fit together.
    #[error("the timers do not fit together:{}", .0.iter().map(|problem| format!("\n  - {problem}")).collect::<String>())]
    Timers(Vec<TimerProblem>),
    /// An entry of the list of peers is not `name=host:port`.
    #[error(
        "{entry:?} is not a peer: write name=host:port, separated by commas, as in a=127.0.0.1:7401,b=127.0.0.1:7402"
    )]
    Peer {
        /// The entry.
        entry: String,
    },
    /// A peer's host name does not resolve.
    #[error("the address {address} of this node leads nowhere: {why}; correct the host in the list of peers")]
    Unresolved {
        /// The address.
        address: String,
        /// The system's error.
        why: String,
    },
    /// A node is named twice among the peers.
    #[error("the node {0} is named twice among the peers")]
    PeerTwice(NodeId),
    /// Two nodes have one address.
    #[error("the address {address} belongs to two peers, {first} and {second}; each node listens on its own")]
    AddressTwice {
        /// The address.
        address: String,
        /// One of them.
        first: NodeId,
        /// The other one.
        second: NodeId,
    },
    /// This node is not one of the peers.
    #[error("the node {node} is not one of the peers ({peers}); say with --node which of them this is")]
    NotAPeer {
        /// This node.
        node: NodeId,
        /// The peers' names.
        peers: String,
    },
    /// This node has kept metadata, so its log names the voters; without metadata it would use the configured ones
    /// instead.
    #[error(
        "the voters of this election are {recorded}, by its record {number}, and --peers names {configured}: a node that keeps no \
         metadata counts these, and could lead beside the others. Start it with --metadata, as before"
    )]
    VotersOfRecord {
        /// The voters, by the state of this node.
        recorded: Voters,
        /// The record that states them.
        number: LeaderSequence,
        /// The voters in the list of peers.
        configured: Voters,
    },
    /// The election is advisory, and that was not allowed.
    #[error(
        "by {kind} two nodes can lead at once, in a partition for example, and neither has a token that a resource could \
         refuse; let a quorum or a store confirm it (--confirm), choose quorum, or allow it (--allow-advisory)"
    )]
    Advisory {
        /// The election.
        kind: ElectionKind,
    },
    /// The algorithm is fenced already and needs no confirmation.
    #[error(
        "leaders that are elected by {algorithm} have a token already; leave out --confirm, or let another election nominate"
    )]
    NeedsNoConfirmation {
        /// The election.
        algorithm: Algorithm,
    },
    /// The attributes of a member are too long.
    #[error(transparent)]
    Attributes(#[from] AttributesError),
    /// The options of the cluster by seniority are wrong.
    #[error(transparent)]
    Seniority(#[from] SeniorityError),
    /// An option for a cluster with members was given to another election.
    #[error("options for seniority have no meaning by {kind}; leave them out, or choose seniority")]
    OnlySeniority {
        /// The election.
        kind: ElectionKind,
    },
    /// An option for elections among peers was given to one over a store.
    #[error(
        "{what} is for elections among peers: over a store, whoever holds its record leads; leave it out, or name peers"
    )]
    OnlyAmongPeers {
        /// The option.
        what: &'static str,
    },
    /// A witness votes, and there are no votes in this election.
    #[error(
        "a witness votes and never leads, and by {kind} there are no votes; leave the node out, cordon it with `primacy cordon`, \
         or let a quorum confirm the leader (--confirm quorum)"
    )]
    NothingToVote {
        /// The election.
        kind: ElectionKind,
    },
    /// Metadata needs an election by a quorum whose leader has a lease.
    #[error(
        "metadata is kept together by a quorum whose leader has a lease, and here the election is {kind}, with safety = {}; leave \
         --metadata and --etcd-api out, or --algorithm and --safety", crate::handshake::safety_name(*safety)
    )]
    Metadata {
        /// The election.
        kind: ElectionKind,
        /// The safety that it promises.
        safety: Safety,
    },
    /// Both a store for splits and a confirmation are configured; each would decide the same thing.
    #[error(
        "a store that decides about splits (--split-brain lease:URL) and a confirmation (--confirm) would decide the same thing; leave one of them out"
    )]
    TwoStores,
    /// An option was given that only an election by a quorum has.
    #[error("{what}: an election by {kind} has none; leave it out, or choose quorum")]
    OnlyQuorum {
        /// The election.
        kind: ElectionKind,
        /// The option.
        what: &'static str,
    },
    /// The cluster's name is invalid.
    #[error("the cluster's name {name:?} cannot be used: use 1 to 63 letters, digits, '.', '_' and '-'")]
    Cluster {
        /// The name.
        name: String,
    },
    /// Both TLS and insecure cleartext are configured.
    #[error(
        "TLS and insecure cleartext exclude each other; leave out --insecure-cleartext, or the files of TLS"
    )]
    TlsAndCleartext,
    /// The directory for state is not known.
    #[error(
        "no directory for this node's state is known: set HOME or XDG_STATE_HOME, or name one with --state-dir"
    )]
    NoStateDirectory,
}

/// A relation between timers that does not hold.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TimerProblem {
    /// A timer is zero.
    #[error("{name} is zero")]
    Zero {
        /// The timer.
        name: &'static str,
    },
    /// The drift bound is not below one half: no lease is safe with such clocks.
    #[error("the drift bound of {ppm} parts per million is not below 500000")]
    Drift {
        /// The bound.
        ppm: u32,
    },
    /// The lease leaves no room for renewal, drain and kill.
    #[error(
        "the lease of {lease:?} must be longer than renewal {renewal:?} + drain {drain:?} + kill margin {kill_margin:?} + drift {drift:?} = {sum:?}; lengthen the lease or shorten the others"
    )]
    LeaseTooShort {
        /// The lease.
        lease: Duration,
        /// The renewal.
        renewal: Duration,
        /// The drain.
        drain: Duration,
        /// The kill margin.
        kill_margin: Duration,
        /// The part of the lease that drift takes.
        drift: Duration,
        /// Together.
        sum: Duration,
    },
    /// A single late answer could cost the lease.
    #[error(
        "renewal {renewal:?} + time for an answer {answer_timeout:?} must be shorter than the lease of {lease:?}, or one late answer costs the lead"
    )]
    AnswerTooLate {
        /// The renewal.
        renewal: Duration,
        /// The time for an answer.
        answer_timeout: Duration,
        /// The lease.
        lease: Duration,
    },
    /// The lease is too short for any machine.
    #[error("the lease of {lease:?} is shorter than {least:?}, which no machine keeps")]
    LeaseTiny {
        /// The lease.
        lease: Duration,
        /// The least.
        least: Duration,
    },
    /// The renewal interval is too short for any machine.
    #[error(
        "the renewal (heartbeat) of {renewal:?} is shorter than {least:?}, which no machine keeps; a quarter of the lease of {lease:?} \
         is the rule among peers, a sixth over a store"
    )]
    RenewalTiny {
        /// The renewal.
        renewal: Duration,
        /// The least.
        least: Duration,
        /// The lease.
        lease: Duration,
    },
    /// The random wait is too long: it delays the election after each loss of a leader.
    #[error(
        "the random wait of up to {random_wait_max:?} before standing is longer than {most:?}, ten leases of {lease:?}: for as long \
         nobody leads after each loss; three tenths of the lease are the rule"
    )]
    RandomWaitTooLong {
        /// The wait.
        random_wait_max: Duration,
        /// The most.
        most: Duration,
        /// The lease.
        lease: Duration,
    },
    /// The miss count is too small: followers would give up a healthy leader.
    #[error("{miss_count} heartbeats missed must be at least 2, or one late packet costs the leader")]
    MissCount {
        /// The count.
        miss_count: u32,
    },
}

impl Timers {
    /// All timers, derived from the lease, or from the default lease of the venue.
    #[must_use]
    pub fn new(venue: Venue, lease: Option<Duration>) -> Self {
        let lease = lease.unwrap_or(match venue {
            Venue::Peers => PROMISE,
            Venue::Store => LEASE,
        });
        // Half of the lease remains for an outage of the store, whenever that begins.
        let (renewal, drain, answer_timeout) = match venue {
            Venue::Peers => (lease / 4, lease / 4, lease / 4),
            Venue::Store => (lease / 6, lease / 6, lease / 8),
        };
        Self {
            lease,
            renewal,
            drain,
            kill_margin: (lease / 10).min(KILL_MARGIN_MAX),
            drift_max: DRIFT_MAX,
            miss_count: MISS_COUNT,
            initial_wait: lease,
            random_wait_max: lease.saturating_mul(3) / 10,
            stagger: STAGGER,
            answer_timeout,
            poll_interval: (lease / 10).min(POLL_INTERVAL_MAX),
        }
    }

    /// The shortest session that is of use over a store that may grant another time to live than requested. The session is kept
    /// alive with each renewal, and at the latest when a third of it has passed; the answer takes some time. The work must be able
    /// to end in the rest, less the drift. Not longer than the lease.
    #[must_use]
    pub fn session_min(&self) -> Duration {
        let ending = self.drain.saturating_add(self.kill_margin);
        let with_renewal = self.renewal.saturating_add(ending);
        let sum = with_renewal.min(ending.saturating_mul(2));
        self.drift_max.lengthen(sum.into()).into()
    }

    /// Checks every relation between the timers.
    ///
    /// # Errors
    /// [`ConfigError::Timers`] with all that do not hold.
    pub fn check(&self) -> Result<(), ConfigError> {
        let mut problems = Vec::new();
        let named = [
            ("lease", self.lease),
            ("renewal", self.renewal),
            ("time for an answer", self.answer_timeout),
            ("poll interval", self.poll_interval),
            ("kill margin", self.kill_margin),
        ];
        for (name, duration) in named {
            if duration.is_zero() {
                problems.push(TimerProblem::Zero { name });
            }
        }
        if self.lease < LEASE_MIN {
            problems.push(TimerProblem::LeaseTiny { lease: self.lease, least: LEASE_MIN });
        }
        let ppm = self.drift_max.as_ppm();
        if ppm >= 500_000 {
            problems.push(TimerProblem::Drift { ppm });
        }
        let (lease, renewal, drain, kill_margin) = (self.lease, self.renewal, self.drain, self.kill_margin);
        let drift = lease.saturating_sub(self.drift_max.shorten(lease.into()).into());
        let sum = renewal.saturating_add(drain).saturating_add(kill_margin).saturating_add(drift);
        if lease <= sum {
            problems.push(TimerProblem::LeaseTooShort { lease, renewal, drain, kill_margin, drift, sum });
        }
        if !renewal.is_zero() && renewal < RENEWAL_MIN {
            problems.push(TimerProblem::RenewalTiny { renewal, least: RENEWAL_MIN, lease });
        }
        let (random_wait_max, most) = (self.random_wait_max, lease.saturating_mul(RANDOM_WAIT_LEASES_MAX));
        if random_wait_max > most {
            problems.push(TimerProblem::RandomWaitTooLong { random_wait_max, most, lease });
        }
        let answer_timeout = self.answer_timeout;
        if renewal.saturating_add(answer_timeout) >= lease {
            problems.push(TimerProblem::AnswerTooLate { renewal, answer_timeout, lease });
        }
        if self.miss_count < 2 {
            problems.push(TimerProblem::MissCount { miss_count: self.miss_count });
        }
        if problems.is_empty() { Ok(()) } else { Err(ConfigError::Timers(problems)) }
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connect_timeout: core::Duration::from_secs(1),
            handshake_timeout: core::Duration::from_secs(5),
            stall_timeout: core::Duration::from_secs(3),
            keep_alive: core::Duration::from_secs(1),
            backoff_first: core::Duration::from_millis(10),
            backoff_max: core::Duration::from_secs(1),
            notifying_backoff_max: core::Duration::from_millis(50),
            accept_pause: core::Duration::from_millis(50),
            refusal_log_pause: LOG_PAUSE,
            refusal_log_again: core::Duration::from_secs(3600),
            pending_max: 64,
            certificate_check: core::Duration::from_secs(10),
            certificate_grace: core::Duration::from_secs(600),
            buffer_max: 256 * 1024,
        }
    }
}

/// The options that a [`Builder`](crate::Builder) gathers.
#[derive(Clone, Debug)]
pub(crate) struct Config {
    pub(crate) election: String,
    pub(crate) node: NodeId,
    pub(crate) address: String,
    pub(crate) kind: ElectionKind,
    pub(crate) safety: Safety,
    pub(crate) priority: u32,
    pub(crate) witness: bool,
    pub(crate) metadata: Option<Durability>,
    pub(crate) cluster: String,
    pub(crate) security: Security,
    pub(crate) timers: Timers,
    /// By seniority: the options of the cluster.
    pub(crate) seniority: SeniorityOptions,
    /// The attributes of this node, for the other members.
    pub(crate) attributes: Arc<Attributes>,
    /// The timers of the nomination if a store confirms; otherwise equal to `timers`.
    pub(crate) nomination_timers: Timers,
}

/// The default name of a node: the host's name and the process id.
///
/// # Errors
/// [`ConfigError::Node`] if that is no valid name.
pub fn default_node() -> Result<NodeId, ConfigError> {
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let host: String =
        host.chars().filter(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_')).collect();
    let pid = std::process::id().to_string();
    let room = NodeId::LENGTH_MAX - pid.len() - 1;
    let host = host.get(..room).unwrap_or(&host);
    let name = if host.is_empty() { pid } else { format!("{host}-{pid}") };
    NodeId::new(&name).map_err(|error| ConfigError::Node { name, error })
}

/// The default directory for state: `$XDG_STATE_HOME/primacy`, or `~/.local/state/primacy`.
///
/// # Errors
/// [`ConfigError::NoStateDirectory`] if neither `XDG_STATE_HOME` nor `HOME` is set.
pub fn default_state_dir() -> Result<PathBuf, ConfigError> {
    let set = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    set("XDG_STATE_HOME")
        .or_else(|| set("HOME").map(|home| home.join(".local/state")))
        .map(|dir| dir.join("primacy"))
        .ok_or(ConfigError::NoStateDirectory)
}

/// Checks an election's name, which becomes part of file names and of records.
///
/// # Errors
/// [`ConfigError::Election`] if it is empty, too long, or has other characters than letters, digits, `.`, `_` and `-`.
pub fn check_election(name: &str) -> Result<(), ConfigError> {
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    let dots = name.chars().all(|c| c == '.');
    if name.is_empty() || name.len() > NodeId::LENGTH_MAX || dots || !name.chars().all(allowed) {
        return Err(ConfigError::Election { name: name.to_owned() });
    }
    Ok(())
}

/// Checks a cluster's name by the rule for the election's.
///
/// # Errors
/// [`ConfigError::Cluster`]
pub fn check_cluster(name: &str) -> Result<(), ConfigError> {
    check_election(name).map_err(|_| ConfigError::Cluster { name: name.to_owned() })
}

/// The safety that this election among peers promises.
///
/// # Errors
/// [`ConfigError::Advisory`] if it promises none and the caller has not allowed that, and [`ConfigError::OnlyQuorum`] if an
/// option needs a quorum.
pub(crate) fn promised(
    kind: ElectionKind,
    safety: Option<Safety>,
    priority: u32,
    allow_advisory: bool,
) -> Result<Safety, ConfigError> {
    if kind.algorithm.is_fenced() && kind.confirmation.is_some() {
        return Err(ConfigError::NeedsNoConfirmation { algorithm: kind.algorithm });
    }
    if !kind.is_fenced() && !allow_advisory {
        return Err(ConfigError::Advisory { kind });
    }
    let quorum = kind.algorithm == Algorithm::Quorum || kind.confirmation == Some(Confirmation::Quorum);
    if quorum {
        return Ok(safety.unwrap_or_default());
    }
    let only_quorum = |what| Err(ConfigError::OnlyQuorum { kind, what });
    if priority != 0 {
        return only_quorum("priorities (--priority)");
    }
    let promise = match kind.confirmation {
        Some(_) => Safety::Lease,
        None => Safety::Fenced,
    };
    match safety {
        Some(Safety::Lease) if promise != Safety::Lease => only_quorum("a lease of its own (--safety lease)"),
        Some(Safety::Fenced) if !kind.algorithm.is_fenced() => {
            only_quorum("a choice of safety (--safety fenced)")
        }
        Some(_) | None => Ok(promise),
    }
}

/// The protection of the connections between nodes.
///
/// # Errors
/// [`ConfigError::TlsAndCleartext`]
pub(crate) fn security(tls: Option<&TlsFiles>, insecure_cleartext: bool) -> Result<Security, ConfigError> {
    match (tls, insecure_cleartext) {
        (None, false) => Ok(Security::Loopback),
        (None, true) => Ok(Security::InsecureCleartext),
        (Some(files), false) => Ok(Security::Tls(files.clone())),
        (Some(_), true) => Err(ConfigError::TlsAndCleartext),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_fit_together_at_every_scale() {
        for venue in [Venue::Peers, Venue::Store] {
            for millis in [20, 100, 1_000, 15_000, 600_000] {
                let timers = Timers::new(venue, Some(Duration::from_millis(millis)));
                timers.check().unwrap();
                assert!(timers.session_min() < timers.lease);
            }
            Timers::new(venue, None).check().unwrap();
        }
    }

    #[test]
    fn all_wrong_relations_are_in_one_message() {
        let second = Duration::from_secs(1);
        let wrong =
            Timers { drain: second, renewal: second, miss_count: 1, ..Timers::new(Venue::Peers, None) };
        let Err(ConfigError::Timers(problems)) = wrong.check() else { panic!("these timers are wrong") };
        assert_eq!(problems.len(), 3, "{problems:?}");
        assert_eq!(ConfigError::Timers(problems).to_string().lines().count(), 4);
    }

    #[test]
    fn timers_that_are_out_of_all_proportion_to_the_lease_are_refused() {
        let timers = || Timers::new(Venue::Peers, None);
        let refusal = |timers: Timers| timers.check().unwrap_err().to_string();
        let tiny = refusal(Timers { renewal: Duration::from_micros(1), ..timers() });
        assert!(tiny.contains("1µs is shorter than 1ms"), "{tiny}");
        let long = refusal(Timers { random_wait_max: Duration::from_secs(600), ..timers() });
        assert!(long.contains("up to 600s before standing is longer than 10s"), "{long}");
    }

    #[test]
    fn names_that_would_leave_the_directory_are_refused() {
        for name in ["", "..", "a/b", "a b", &"x".repeat(64)] {
            assert!(check_election(name).is_err(), "{name:?}");
        }
        check_election("billing-2.eu").unwrap();
    }

    #[test]
    fn the_default_node_has_the_process_in_its_name() {
        assert!(default_node().unwrap().as_str().ends_with(&std::process::id().to_string()));
    }
}
