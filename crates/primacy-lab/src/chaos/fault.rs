//! The faults of a cluster of real processes.

use serde::{Deserialize, Serialize};

/// A kind of fault. The order is that of the table in the report.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Kind {
    /// The link between two nodes is cut, both ways.
    Cut,
    /// Messages from one node to another are lost; the other direction works.
    CutOneWay,
    /// A share of the packets to a node is dropped.
    Drop,
    /// A node is cut off from all others.
    Isolate,
    /// Only one node, which does not lead, reaches all others (OmniPaxos' quorum loss).
    QuorumLoss,
    /// The same, and that node does not reach the leader (OmniPaxos' constrained election).
    Constrained,
    /// Each node reaches the one before and the one after it (OmniPaxos' chained scenario).
    Chain,
    /// The connection from one node to the store is closed, and stays closed.
    StoreCut,
    /// No packet passes between one node and the store; its connections stay open.
    StoreStall,
    /// The store's answers to one node are lost, while the node's requests arrive; at the end the connections are
    /// closed.
    StoreRepliesLost,
    /// No node reaches the store.
    StoreOutage,
    /// SIGKILL to the server of the store, or to its leading member; it is restarted.
    StoreKilled,
    /// SIGKILL to the supervisor.
    KillSupervisor,
    /// SIGKILL to the guardian.
    KillGuardian,
    /// SIGKILL to the job.
    KillJob,
    /// SIGKILL to supervisor and guardian, in this or the other order.
    KillBoth,
    /// SIGSTOP to the supervisor, and SIGCONT.
    PauseSupervisor,
    /// SIGSTOP to the guardian, and SIGCONT.
    PauseGuardian,
    /// SIGSTOP to the job, and SIGCONT.
    PauseJob,
    /// SIGSTOP to all processes of a node, and SIGCONT: its machine is frozen, but its clock goes on.
    Freeze,
    /// The disk of the store is full; meanwhile the leader is killed.
    FullDisk,
    /// SIGTERM to the supervisor.
    Terminate,
    /// All processes of every node are killed, and restarted.
    RestartAll,
    /// Each node in turn is terminated and restarted.
    RollingRestart,
    /// The operator's `primacy resign`.
    Resign,
    /// The operator's `primacy transfer`.
    Transfer,
    /// The operator's `primacy member replace`: a node with another name and an empty disk replaces one.
    ReplaceVoter,
    /// One node has a clock of another rate for the whole run.
    FakedClock,
}

/// The table of all faults, in the order of the report.
pub(crate) const KINDS: &[Kind] = &[
    Kind::Cut,
    Kind::CutOneWay,
    Kind::Drop,
    Kind::Isolate,
    Kind::QuorumLoss,
    Kind::Constrained,
    Kind::Chain,
    Kind::StoreCut,
    Kind::StoreStall,
    Kind::StoreRepliesLost,
    Kind::StoreOutage,
    Kind::StoreKilled,
    Kind::KillSupervisor,
    Kind::KillGuardian,
    Kind::KillJob,
    Kind::KillBoth,
    Kind::PauseSupervisor,
    Kind::PauseGuardian,
    Kind::PauseJob,
    Kind::Freeze,
    Kind::FullDisk,
    Kind::Terminate,
    Kind::RestartAll,
    Kind::RollingRestart,
    Kind::Resign,
    Kind::Transfer,
    Kind::ReplaceVoter,
    Kind::FakedClock,
];

/// A process of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum NodeProcess {
    /// The process that holds the election.
    Supervisor,
    /// The process that enforces the deadline.
    Guardian,
    /// The job's first process.
    Job,
}

impl Kind {
    /// True if a leader can keep its lead until its job has ended, by further renewals. If it cannot, an unkillable
    /// job overlaps with the next leader's, and only the fence separates them.
    pub(crate) const fn leaves_the_lead(self) -> bool {
        matches!(self, Self::KillGuardian | Self::PauseGuardian | Self::KillJob | Self::PauseJob)
            || matches!(self, Self::Terminate | Self::Resign | Self::Transfer)
    }

    /// The name, for people and for the table.
    pub(crate) const fn text(self) -> &'static str {
        match self {
            Self::Cut => "link cut",
            Self::CutOneWay => "link cut one way",
            Self::Drop => "share of packets dropped",
            Self::Isolate => "node isolated",
            Self::QuorumLoss => "partial: quorum loss",
            Self::Constrained => "partial: constrained",
            Self::Chain => "partial: chain",
            Self::StoreCut => "store cut off from a node",
            Self::StoreStall => "store silent to a node",
            Self::StoreRepliesLost => "store's replies lost",
            Self::StoreOutage => "store out of reach of all",
            Self::StoreKilled => "SIGKILL store's server",
            Self::KillSupervisor => "SIGKILL supervisor",
            Self::KillGuardian => "SIGKILL guardian",
            Self::KillJob => "SIGKILL job",
            Self::KillBoth => "SIGKILL supervisor+guardian",
            Self::PauseSupervisor => "SIGSTOP supervisor",
            Self::PauseGuardian => "SIGSTOP guardian",
            Self::PauseJob => "SIGSTOP job",
            Self::Freeze => "SIGSTOP whole node",
            Self::FullDisk => "disk full, leader killed",
            Self::Terminate => "SIGTERM",
            Self::RestartAll => "restart of all at once",
            Self::RollingRestart => "rolling restart",
            Self::Resign => "operator: resign",
            Self::Transfer => "operator: transfer",
            Self::ReplaceVoter => "operator: voter replaced",
            Self::FakedClock => "faked clock, all along",
        }
    }

    /// True if the fault affects links between nodes.
    pub(crate) const fn is_of_network(self) -> bool {
        matches!(
            self,
            Self::Cut
                | Self::CutOneWay
                | Self::Drop
                | Self::Isolate
                | Self::QuorumLoss
                | Self::Constrained
                | Self::Chain
        )
    }

    /// True if the fault affects the way to the store, or its servers.
    pub(crate) const fn is_of_store(self) -> bool {
        matches!(
            self,
            Self::StoreCut
                | Self::StoreStall
                | Self::StoreRepliesLost
                | Self::StoreOutage
                | Self::StoreKilled
        )
    }

    /// True if the fault lasts for a while and is then undone.
    pub(crate) const fn lasts(self) -> bool {
        matches!(
            self,
            Self::PauseSupervisor | Self::PauseGuardian | Self::PauseJob | Self::Freeze | Self::FullDisk
        ) || self.is_of_network()
            || self.is_of_store()
    }

    /// The minimum number of nodes with which the fault differs from others.
    pub(crate) const fn nodes_min(self) -> usize {
        match self {
            Self::QuorumLoss | Self::Constrained => 5,
            Self::Cut | Self::CutOneWay | Self::Isolate | Self::Chain | Self::Transfer | Self::FakedClock => {
                2
            }
            Self::Drop
            | Self::StoreCut
            | Self::StoreStall
            | Self::StoreRepliesLost
            | Self::StoreOutage
            | Self::StoreKilled
            | Self::KillSupervisor
            | Self::KillGuardian
            | Self::KillJob
            | Self::KillBoth
            | Self::PauseSupervisor
            | Self::PauseGuardian
            | Self::PauseJob
            | Self::Freeze
            | Self::FullDisk
            | Self::Terminate
            | Self::RestartAll
            | Self::RollingRestart
            | Self::Resign
            | Self::ReplaceVoter => 1,
        }
    }
}
