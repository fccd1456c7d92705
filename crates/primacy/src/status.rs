//! The status of a node.

use std::collections::BTreeSet;

use primacy_core::election::lease;
use primacy_core::election::quorum::{self, HardState, Safety};
use primacy_core::election::{ranked, seniority, session};
use primacy_core::hard_state::Durability;
use primacy_core::membership::TooFewMembers;
use primacy_core::{Identity, Instant, Leader, LeaderSequence, Mandate, NodeId, Reason, Term};

use crate::config::Timers;
use crate::connections::{CertificateStatus, Counters, PeerRefusal, PeerStatus};
use crate::error::AdminError;
use crate::handshake::{DiskId, ElectionKind, Voters};
use crate::observer::Announcement;
use crate::store_health::StoreTrouble;

mod why;

pub use self::why::NEW_RECORD;

/// The status of a node at one moment. It is information only: programs must not act on it, because the leader may be replaced before
/// it is read.
#[derive(Clone, Debug)]
pub struct Status {
    /// The moment, on this machine's boot clock, as all other instants here.
    pub at: Instant,
    /// The election.
    pub election: String,
    /// This node, in its present incarnation.
    pub identity: Identity,
    /// The timers that are in force.
    pub timers: Timers,
    /// The leader, as far as this node knows.
    pub leader: Option<Leader>,
    /// The time since which this node knows that leader, or that there is none.
    pub since: Instant,
    /// This node's own leadership.
    pub lead: Option<Lead>,
    /// The unfinished work that keeps the lead while it is being given up. The log has a warning if it takes longer than it
    /// should.
    pub kept_by: Option<String>,
    /// The last announcement of the leader, as far as this node knows; see [`Elector::announcements`](crate::Elector::announcements).
    pub announced: Option<Announcement>,
    /// True while the application campaigns.
    pub campaigning: bool,
    /// The reason why it does not: as stated with [`Elector::explain_not_campaigning`](crate::Elector::explain_not_campaigning), or
    /// that an earlier campaign has ended. `None` if the application has never campaigned and has stated nothing.
    pub not_campaigning: Option<String>,
    /// The result of the health check.
    pub healthy: bool,
    /// True if an operator has cordoned this node; see [`Elector::cordon`](crate::Elector::cordon).
    pub cordoned: bool,
    /// Over a store: its present failures; empty while the store answers.
    pub store_troubles: Vec<StoreTrouble>,
    /// Its knowledge of the others.
    pub view: View,
}

/// A node's own leadership.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lead {
    /// The number of the leadership.
    pub term: Term,
    /// Its mandate: the token that resources check, or, in an advisory election, none.
    pub mandate: Mandate,
    /// The end of validity, unless it is renewed.
    pub valid_until: Instant,
    /// The reason why it is being given up, if any.
    pub ending: Option<Reason>,
}

/// A node's knowledge of the election beside its own part.
#[derive(Clone, Debug)]
pub enum View {
    /// Among peers.
    Peers(Box<PeersView>),
    /// An election over a store that keeps a record.
    Store(Box<lease::Status>),
    /// An election over a store that keeps sessions.
    Sessions(Box<session::Status>),
}

/// A node's knowledge of its peers.
#[derive(Clone, Debug)]
pub struct PeersView {
    /// The way in which the leader is found.
    pub kind: ElectionKind,
    /// The election's own state.
    pub election: ElectionView,
    /// The other nodes that are connected.
    pub connected: BTreeSet<NodeId>,
    /// Every node whose vote counts.
    pub voters: Voters,
    /// The state of this node's log, where metadata is kept.
    pub metadata: Option<MetadataView>,
    /// While this node is elected and does not lead yet: the voters whose logs it must learn of before it does. It needs the
    /// answers of a majority.
    pub awaited: BTreeSet<NodeId>,
    /// The promised safety.
    pub safety: Safety,
    /// The priority; nodes of higher priority campaign first.
    pub priority: u32,
    /// True if this node only votes.
    pub witness: bool,
    /// The number of this node's durable state.
    pub disk: DiskId,
    /// The state of each peer.
    pub peers: Vec<PeerStatus>,
    /// The counters of the connections.
    pub counters: Counters,
    /// The state of this node's certificate; `None` in cleartext.
    pub certificate: Option<CertificateStatus>,
    /// The last refusal of a connection that did not identify itself as a peer.
    pub unidentified_refused: Option<PeerRefusal>,
}

/// The state of the log of metadata at one node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MetadataView {
    /// The record that states the voters; [`LeaderSequence::NONE`] as long as they are those of the configuration.
    pub voters_number: LeaderSequence,
    /// The durability: when a node may acknowledge a record.
    pub durability: Durability,
    /// The last record of the log.
    pub last: LeaderSequence,
    /// The last record that counts as committed: a majority holds it, and this node has applied it.
    pub committed: LeaderSequence,
    /// The last record in the map.
    pub applied: LeaderSequence,
    /// True if this node has lost its log and has not recovered: the others have not yet reported all records that it may have held, or
    /// it has lost its whole disk and not all of them have readmitted it. Until then it counts in no majority for a record.
    pub recovering: bool,
    /// The elected leader, while this node does not know that it leads: it must first have all committed records.
    pub elected: Option<Leader>,
}

/// The state of an election among peers.
#[derive(Clone, Debug)]
pub enum ElectionView {
    /// An election by a majority.
    Quorum(Box<quorum::Status>),
    /// An election by a majority of votes, each for the best claim.
    Ranked(Box<ranked::Status>),
    /// Bully, or an election on a ring: advisory.
    Advisory {
        /// The node's role in it.
        role: &'static str,
    },
    /// The oldest member of a cluster: advisory.
    Seniority(Box<seniority::Status>),
    /// One election nominates a leader, another one confirms it.
    Confirmed {
        /// The nominee.
        nominee: Option<NodeId>,
        /// The state of the nominating election.
        nomination: Box<Self>,
        /// The state of the confirming election.
        by: Box<ConfirmationView>,
    },
}

/// The state of the election that confirms a nominee.
#[derive(Clone, Debug)]
pub enum ConfirmationView {
    /// A majority of the peers.
    Quorum(quorum::Status),
    /// A lease in a store.
    Store(lease::Status),
}

impl Lead {
    /// The token and the term as text; in an advisory election, the term alone.
    #[must_use]
    pub fn number(&self) -> String {
        match self.mandate {
            Mandate::Fenced(token) => format!("token {token}, term {}", self.term),
            Mandate::Advisory => format!("term {}, advisory, without a token", self.term),
        }
    }
}

impl ElectionView {
    /// The node's role.
    #[must_use]
    pub fn role(&self) -> &'static str {
        match self {
            Self::Quorum(status) => status.role,
            Self::Ranked(status) => status.role,
            Self::Advisory { role } => role,
            Self::Seniority(status) => status.role,
            Self::Confirmed { by, .. } => match &**by {
                ConfirmationView::Quorum(status) => status.role,
                ConfirmationView::Store(status) => status.role,
            },
        }
    }

    /// Its durable state; `None` where it has none.
    #[must_use]
    pub fn hard(&self) -> Option<HardState> {
        match self {
            Self::Ranked(status) => Some(status.hard),
            Self::Quorum(_) | Self::Advisory { .. } | Self::Seniority(_) | Self::Confirmed { .. } => {
                self.quorum().map(|status| status.hard)
            }
        }
    }

    /// While the node has lost its disk: the nodes that have reported their term to it.
    #[must_use]
    pub fn recovering(&self) -> Option<&BTreeSet<NodeId>> {
        match self {
            Self::Ranked(status) => status.recovering.as_ref(),
            Self::Quorum(_) | Self::Advisory { .. } | Self::Seniority(_) | Self::Confirmed { .. } => {
                self.quorum()?.recovering.as_ref()
            }
        }
    }

    /// While the node has lost its disk: the nodes that have not reported their term yet, as far as it knows. They need not all be
    /// present voters.
    #[must_use]
    pub fn waits_for(&self) -> BTreeSet<NodeId> {
        self.quorum().map(|status| status.waits_for.clone()).unwrap_or_default()
    }

    /// The state of an election by seniority that elects or nominates.
    #[must_use]
    pub fn seniority(&self) -> Option<&seniority::Status> {
        match self {
            Self::Seniority(status) => Some(status),
            Self::Confirmed { nomination, .. } => nomination.seniority(),
            Self::Quorum(_) | Self::Ranked(_) | Self::Advisory { .. } => None,
        }
    }

    /// The state of a quorum that elects or confirms.
    #[must_use]
    pub fn quorum(&self) -> Option<&quorum::Status> {
        match self {
            Self::Quorum(status) => Some(status),
            Self::Confirmed { by, .. } => match &**by {
                ConfirmationView::Quorum(status) => Some(status),
                ConfirmationView::Store(_) => None,
            },
            Self::Ranked(_) | Self::Advisory { .. } | Self::Seniority(_) => None,
        }
    }
}

impl Status {
    /// Checks that the cluster was large enough, if there is one; see [`Elector::check_members`](crate::Elector::check_members).
    ///
    /// # Errors
    /// [`TooFewMembers`] if it was too small.
    pub fn check_members(&self) -> Result<(), TooFewMembers> {
        let View::Peers(view) = &self.view else { return Ok(()) };
        view.election.seniority().map_or(Ok(()), |seniority| seniority.enough_members)
    }

    /// Explains why there is no leader, as far as this node knows: one sentence for each unmet condition. Empty if there is a
    /// leader.
    #[must_use]
    pub fn why_no_leader(&self) -> Vec<String> {
        why::no_leader(self)
    }
}

impl View {
    /// True if this node has lost its disk and may not vote yet.
    pub(crate) fn is_recovering(&self) -> bool {
        match self {
            Self::Peers(view) => view.election.recovering().is_some(),
            Self::Store(_) | Self::Sessions(_) => false,
        }
    }

    /// Checks that `node` can be removed from the cluster of `me`.
    pub(crate) fn has_member(&self, me: NodeId, node: NodeId) -> Result<(), AdminError> {
        let Self::Peers(view) = self else { return Err(AdminError::NoMembers) };
        if node == me {
            return Err(AdminError::Itself { node });
        }
        let seniority = view.election.seniority().ok_or(AdminError::NoMembers)?;
        let Some(cluster) = &seniority.view else {
            // Before the founder founds another cluster, it waits for the members of its former one.
            let founder = seniority.founder;
            let is_awaited = founder == Some(me) && view.voters.contains(node);
            return is_awaited.then_some(()).ok_or(AdminError::NotAwaited { node, by: me, founder });
        };
        let members = cluster.members();
        if members.iter().any(|member| member.identity.node == node) {
            return Ok(());
        }
        let names: Vec<String> = members.iter().map(|member| member.identity.node.to_string()).collect();
        Err(AdminError::NotAMember { node, by: me, members: names.join(", ") })
    }

    /// Checks that `me` can transfer the lead to `to`.
    pub(crate) fn may_lead(&self, me: NodeId, to: NodeId) -> Result<(), AdminError> {
        let Self::Peers(view) = self else { return Err(AdminError::OverAStore) };
        if !view.kind.can_transfer() {
            return Err(AdminError::ByRule { kind: view.kind });
        }
        if to == me {
            return Err(AdminError::ToItself { to });
        }
        if !view.voters.contains(to) {
            return Err(AdminError::NotAVoter { to, voters: view.voters.to_string() });
        }
        if view.election.quorum().is_some_and(|quorum| quorum.witnesses.contains(&to)) {
            return Err(AdminError::ToWitness { to });
        }
        let reached = view.peers.iter().any(|peer| peer.node == to && peer.outbound.is_some());
        if reached { Ok(()) } else { Err(AdminError::NotConnected { to }) }
    }
}
