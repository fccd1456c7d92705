//! A node's status, as the control socket reports it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use primacy::core::election::{lease, session};
use primacy::core::membership;
use primacy::core::{Identity, Instant, NodeId};
use primacy::handshake::RefusalKind;
use primacy::metadata::Durability;
use primacy::status::{ConfirmationView, ElectionView, MetadataView, PeersView, Status, View};
use primacy::transport::{CertificateStatus, PeerRefusal, PeerStatus};
use primacy::{LeaderSequence, Safety, describe};
use serde::{Deserialize, Serialize};

use super::state::Announced;

/// The leader of an election.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Leader {
    /// The node.
    pub(crate) node: String,
    /// Its incarnation.
    pub(crate) incarnation: String,
    /// The number of its leadership.
    pub(crate) term: u64,
    /// The fencing token, which resources check: the same number as the term; nothing in an advisory
    /// election.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(crate) token: Option<u64>,
}

/// The status of a node at one moment. All times are relative to that moment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct NodeStatus {
    /// The election.
    pub(crate) election: String,
    /// The node that reports.
    pub(crate) node: String,
    /// Its incarnation.
    pub(crate) incarnation: String,
    /// The leader, as far as it knows.
    pub(crate) leader: Option<Leader>,
    /// The time for which it has known that leader, or has known none.
    pub(crate) known_for_ms: u64,
    /// The time for which its own leadership is valid without renewal, if it expires. A node does not know that time of
    /// other leaders.
    pub(crate) valid_for_ms: Option<u64>,
    /// The reason why its own leadership is being given up.
    pub(crate) ending: Option<String>,
    /// The work that has not ended and so keeps that leadership.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(crate) kept_by: Option<String>,
    /// The reasons why there is no leader: a sentence for each thing that is missing.
    pub(crate) why_no_leader: Vec<String>,
    /// Its role in the election.
    pub(crate) role: String,
    /// True if its application campaigns.
    pub(crate) campaigning: bool,
    /// The reason why it does not campaign, if the application gives one.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(crate) not_campaigning: Option<String>,
    /// The result of its health check.
    pub(crate) healthy: bool,
    /// True if its operator has excluded it from leading.
    pub(crate) cordoned: bool,
    /// The time that a leader may lead without renewing.
    pub(crate) lease_ms: u64,
    /// The interval at which a leader renews; among peers, the heartbeat.
    #[serde(default)]
    pub(crate) renewal_ms: u64,
    /// The time that its work may take to end in order.
    #[serde(default)]
    pub(crate) drain_ms: u64,
    /// The time before the end of the lease at which everything that has not ended is killed.
    #[serde(default)]
    pub(crate) kill_margin_ms: u64,
    /// The leader's latest announcement, as far as it knows; in a ranked election, where there was one.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(crate) announced: Option<Announced>,
    /// By seniority, with a minimum of more than one member: the reason why the cluster is too small to serve requests.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(crate) too_few_members: Option<String>,
    /// Among peers: what it knows of them.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(crate) peers: Option<Peers>,
    /// Over a store: its present failures, a sentence each.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub(crate) store_troubles: Vec<String>,
    /// Over a store: the record as it has seen it.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(crate) record: Option<Record>,
    /// Over a store that keeps sessions: its queue.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(crate) queue: Option<Queue>,
}

/// A node's knowledge of the queue of a store that keeps sessions.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Queue {
    /// This node's own session, if it campaigns.
    pub(crate) session: Option<String>,
    /// The time that the store waits for a keep-alive of that session.
    pub(crate) timeout_ms: Option<u64>,
    /// The time for which no keep-alive has been answered.
    pub(crate) not_kept_alive_for_ms: Option<u64>,
    /// The first entry in the queue, if it is another node's.
    pub(crate) first: Option<FirstEntry>,
}

/// The first entry in a queue.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct FirstEntry {
    pub(crate) node: String,
    pub(crate) incarnation: String,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(crate) address: Option<String>,
    pub(crate) token: u64,
}

/// A node's knowledge of its peers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Peers {
    /// The name of the election algorithm.
    pub(crate) algorithm: String,
    /// Its durable term; of a ranked election the highest ballot that it has voted in, and 0 where nothing is durable.
    pub(crate) term: u64,
    /// Ranked: the ballot of the round that it is in.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(crate) ballot: Option<u64>,
    /// The voters.
    pub(crate) voters: Vec<String>,
    /// The state of its log, where metadata is kept.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(crate) metadata: Option<Metadata>,
    /// Where one election nominates and another confirms: the nominee.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(crate) nominee: Option<String>,
    /// By seniority: the members of the cluster.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(crate) members: Option<Members>,
    /// The safety that is promised: `lease`, `fenced` or `advisory`.
    pub(crate) safety: String,
    /// Nodes of higher priority campaign first.
    pub(crate) priority: u32,
    /// Whether this node votes only.
    pub(crate) witness: bool,
    /// The number of its durable state.
    pub(crate) disk: String,
    /// The time for which it votes for no candidate, because an earlier incarnation may have given a promise.
    pub(crate) silent_for_ms: u64,
    /// The node that it has promised to support.
    pub(crate) promised_to: Option<String>,
    /// The time until that promise ends.
    pub(crate) promised_for_ms: Option<u64>,
    /// While it has lost its disk: the nodes that have sent it their term.
    pub(crate) recovering: Option<Vec<String>>,
    /// While it has lost its disk: the nodes that have not.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub(crate) waits_for: Vec<String>,
    /// While it leads: the duration of the promise, in milliseconds, of each peer whose lease differs from its own.
    #[serde(skip_serializing_if = "BTreeMap::is_empty", default)]
    pub(crate) other_leases_ms: BTreeMap<String, u64>,
    /// The state of its certificate; nothing in cleartext.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(crate) certificate: Option<Certificate>,
    /// The state of each of the other nodes.
    pub(crate) others: Vec<Peer>,
    /// The number of connections or messages that it has refused, by reason.
    pub(crate) refused: BTreeMap<String, u64>,
    /// The number of times that it was refused, by reason.
    pub(crate) refused_by_peers: BTreeMap<String, u64>,
    /// The last refusal of a connection that belongs to no peer.
    pub(crate) unidentified_refused: Option<PeerRefused>,
    /// The number of handshakes that were not completed: too slow, broken off, or too many at a time.
    pub(crate) unidentified_dropped: u64,
}

/// The number of a record of the metadata.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RecordNumber {
    /// The term of the leader that wrote it.
    pub(crate) term: u64,
    /// Its number in that term, from 1.
    pub(crate) counter: u64,
}

/// The state of the metadata's log at a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Metadata {
    /// The durability of records: `fsync` or `memory`.
    pub(crate) durability: String,
    /// The record that states the voters; term and counter are 0 as long as the voters are those of the
    /// configuration.
    pub(crate) voters_number: RecordNumber,
    /// The last record that it has.
    pub(crate) last: RecordNumber,
    /// The last record that it knows a majority to have.
    pub(crate) committed: RecordNumber,
    /// The last record that it knows to be on a majority.
    pub(crate) applied: RecordNumber,
    /// True if it has lost its log, and its present log does not count for a majority yet.
    pub(crate) recovering: bool,
}

/// The members of a cluster, as one node knows them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Members {
    /// The coordinator's term.
    pub(crate) term: u64,
    /// The number of the view in it.
    pub(crate) view: u64,
    /// The members, the oldest first.
    pub(crate) all: Vec<Member>,
}

/// One member.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Member {
    /// Its name.
    pub(crate) node: String,
    /// Its age: a smaller number is older.
    pub(crate) age: u64,
    /// The address that it reports for itself.
    pub(crate) address: String,
    /// Its zone.
    pub(crate) zone: String,
    /// Its version.
    pub(crate) version: String,
    /// Its other labels.
    pub(crate) labels: BTreeMap<String, String>,
    /// Whether this node suspects it.
    pub(crate) suspected: bool,
}

/// The state of a node's own certificate.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Certificate {
    /// The end of the validity of the certificate in use, in UTC.
    pub(crate) valid_until: String,
    /// The time until then, by the wall clock; 0 when it has expired.
    pub(crate) valid_for_seconds: u64,
    /// The number of times that the files have been replaced.
    pub(crate) replaced: u64,
    /// The number of replacements that could not be used.
    pub(crate) replacements_refused: u64,
    /// The fault of the present files; the certificate before them is still in use.
    pub(crate) trouble: Option<String>,
}

/// The state of a node's connections to one peer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Peer {
    /// The peer.
    pub(crate) node: String,
    /// Its address, as it was configured.
    pub(crate) address: String,
    /// The incarnation that this node is connected to.
    pub(crate) outbound: Option<String>,
    /// The version of the protocol used towards it.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(crate) version: Option<u32>,
    /// The incarnation whose connection to this node is open.
    pub(crate) inbound: Option<String>,
    /// The incarnation whose guardian is connected to this node.
    pub(crate) guardian: Option<String>,
    /// The round trip time of the last handshake.
    pub(crate) round_trip_us: Option<u64>,
    /// The reason why one of the two refuses the other.
    pub(crate) refusal: Option<PeerRefused>,
    /// The reason why the last attempt to reach it failed.
    pub(crate) trouble: Option<String>,
}

/// The reason why one of two nodes refuses the other.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PeerRefused {
    /// Whether the peer has refused, and not this node.
    pub(crate) by_peer: bool,
    /// The reason.
    pub(crate) kind: String,
    /// The same for people, with both sides' values.
    pub(crate) text: String,
    /// The time since the refusal.
    pub(crate) ago_ms: u64,
}

/// The record of an election over a store.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Record {
    /// The node that holds it.
    pub(crate) holder: Option<String>,
    /// The holder's incarnation.
    pub(crate) incarnation: Option<String>,
    /// The holder's address.
    pub(crate) address: Option<String>,
    /// The token of its leadership, or of the last one.
    pub(crate) token: u64,
    /// The time for which it must be unchanged before another node may take it.
    pub(crate) duration_ms: u64,
    /// The number of times that the holder has renewed it.
    pub(crate) renewal: u64,
    /// The node that asks the holder to resign.
    pub(crate) resign_request: Option<String>,
    /// True if the record is in probation: its creator still waits for a possible holder of a deleted record.
    pub(crate) young: bool,
    /// The time for which it has not changed, as the reporting node has observed it; unknown to a reader that has just
    /// started.
    pub(crate) unchanged_for_ms: Option<u64>,
}

impl Leader {
    pub(crate) fn new(leader: primacy::core::Leader, fenced: bool) -> Self {
        let Identity { node, incarnation } = leader.identity;
        let (node, incarnation) = (node.to_string(), incarnation.to_string());
        let term = leader.term.0;
        Self { node, incarnation, term, token: fenced.then_some(term) }
    }

    /// Formats the number of the leadership, for people.
    pub(crate) fn number(&self) -> String {
        match self.token {
            Some(token) => format!("term {}, token {token}", self.term),
            None => format!("term {}, advisory: there is no token, and may be a second leader", self.term),
        }
    }
}

impl From<&Status> for NodeStatus {
    fn from(status: &Status) -> Self {
        let at = status.at;
        let fenced = !matches!(&status.view, View::Peers(view) if !view.kind.is_fenced());
        let (role, peers, record, queue) = match &status.view {
            View::Peers(view) => {
                let record = match &view.election {
                    ElectionView::Confirmed { by, .. } => match &**by {
                        ConfirmationView::Store(status) => Record::of(status, at),
                        ConfirmationView::Quorum(_) => None,
                    },
                    ElectionView::Quorum(_) | ElectionView::Ranked(_) => None,
                    ElectionView::Advisory { .. } | ElectionView::Seniority(_) => None,
                };
                (view.election.role(), Some(Peers::new(view, at)), record, None)
            }
            View::Store(status) => (status.role, None, Record::of(status, at), None),
            View::Sessions(status) => (status.role, None, None, Some(Queue::of(status, at))),
        };
        Self {
            election: status.election.clone(),
            node: status.identity.node.to_string(),
            incarnation: status.identity.incarnation.to_string(),
            leader: status.leader.map(|leader| Leader::new(leader, fenced)),
            known_for_ms: at.since(status.since).as_millis(),
            valid_for_ms: status
                .lead
                .filter(|lead| lead.valid_until < Instant::NEVER)
                .map(|lead| lead.valid_until.since(at).as_millis()),
            ending: status.lead.and_then(|lead| lead.ending).map(|reason| describe(reason).to_owned()),
            kept_by: status.kept_by.clone(),
            why_no_leader: status.why_no_leader(),
            role: role.to_owned(),
            campaigning: status.campaigning,
            not_campaigning: status.not_campaigning.clone(),
            healthy: status.healthy,
            cordoned: status.cordoned,
            lease_ms: in_milliseconds(status.timers.lease),
            renewal_ms: in_milliseconds(status.timers.renewal),
            drain_ms: in_milliseconds(status.timers.drain),
            kill_margin_ms: in_milliseconds(status.timers.kill_margin),
            announced: status.announced.as_ref().map(Announced::from),
            too_few_members: status
                .check_members()
                .err()
                .filter(|too_few| too_few.minimum > 1)
                .map(|too_few| too_few.to_string()),
            store_troubles: status.store_troubles.iter().map(|trouble| trouble.text(at)).collect(),
            peers,
            record,
            queue,
        }
    }
}

fn in_milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

impl Queue {
    fn of(status: &session::Status, at: Instant) -> Self {
        let session = status.session.as_ref();
        Self {
            session: session.map(|session| session.name.clone()),
            timeout_ms: session.map(|session| session.timeout.as_millis()),
            not_kept_alive_for_ms: session.map(|session| at.since(session.kept_at).as_millis()),
            first: status.first.as_ref().map(|(entry, _)| FirstEntry::from(entry)),
        }
    }
}

impl From<LeaderSequence> for RecordNumber {
    fn from(LeaderSequence { term, counter }: LeaderSequence) -> Self {
        Self { term: term.0, counter }
    }
}

impl From<MetadataView> for Metadata {
    fn from(view: MetadataView) -> Self {
        let durability = match view.durability {
            Durability::Fsync => "fsync",
            Durability::Memory => "memory",
        };
        Self {
            durability: durability.to_owned(),
            voters_number: view.voters_number.into(),
            last: view.last.into(),
            committed: view.committed.into(),
            applied: view.applied.into(),
            recovering: view.recovering,
        }
    }
}

impl From<&session::Entry> for FirstEntry {
    fn from(entry: &session::Entry) -> Self {
        let lease::Holder { identity, address } = &entry.holder;
        Self {
            node: identity.node.to_string(),
            incarnation: identity.incarnation.to_string(),
            address: Some(address.clone()).filter(|address| !address.is_empty()),
            token: entry.token.0,
        }
    }
}

impl FirstEntry {
    /// Formats the refusal, for people.
    pub(crate) fn text(&self) -> String {
        let at = self.address.as_ref().map(|address| format!(" at {address}")).unwrap_or_default();
        format!("{}{at} has the first entry, with the token {}", self.node, self.token)
    }
}

impl Peers {
    fn new(view: &PeersView, at: Instant) -> Self {
        let PeersView { election, counters, .. } = view;
        let quorum = election.quorum();
        let promise = quorum.and_then(|quorum| quorum.promise).filter(|&(_, until)| at < until);
        let names = |nodes: &BTreeSet<NodeId>| nodes.iter().map(|node| node.to_string()).collect();
        let by_name = |counts: &BTreeMap<RefusalKind, u64>| {
            counts.iter().map(|(&kind, &count)| (kind.name().to_owned(), count)).collect()
        };
        Self {
            algorithm: view.kind.to_string(),
            term: election.hard().map_or(0, |hard| hard.term.0),
            ballot: match election {
                ElectionView::Ranked(ranked) => ranked.ballot.map(|ballot| ballot.0),
                ElectionView::Quorum(_) | ElectionView::Advisory { .. } => None,
                ElectionView::Seniority(_) | ElectionView::Confirmed { .. } => None,
            },
            nominee: match election {
                ElectionView::Confirmed { nominee, .. } => nominee.map(|nominee| nominee.to_string()),
                ElectionView::Quorum(_) | ElectionView::Ranked(_) => None,
                ElectionView::Advisory { .. } | ElectionView::Seniority(_) => None,
            },
            members: election.seniority().and_then(|seniority| {
                seniority.view.as_ref().map(|view| Members::of(view, &seniority.suspects))
            }),
            voters: view.voters.iter().map(|voter| voter.to_string()).collect(),
            metadata: view.metadata.map(Metadata::from),
            safety: match view.safety {
                _ if !view.kind.is_fenced() => "advisory",
                Safety::Lease => "lease",
                Safety::Fenced => "fenced",
            }
            .to_owned(),
            priority: view.priority,
            witness: view.witness,
            disk: view.disk.to_string(),
            silent_for_ms: quorum.map_or(0, |quorum| quorum.silent_until.since(at).as_millis()),
            promised_to: promise.map(|(to, _)| to.node.to_string()),
            promised_for_ms: promise.map(|(_, until)| until.since(at).as_millis()),
            recovering: election.recovering().map(names),
            other_leases_ms: quorum.map_or_else(BTreeMap::new, |quorum| {
                quorum.promises.iter().map(|(node, lease)| (node.to_string(), lease.as_millis())).collect()
            }),
            waits_for: names(&election.waits_for()),
            certificate: view.certificate.as_ref().map(Certificate::from),
            others: view.peers.iter().map(|peer| Peer::new(peer, at)).collect(),
            refused: by_name(&counters.refused),
            refused_by_peers: by_name(&counters.refused_by_peers),
            unidentified_refused: view
                .unidentified_refused
                .as_ref()
                .map(|refusal| PeerRefused::new(refusal, at)),
            unidentified_dropped: counters.handshakes_timed_out
                + counters.handshakes_broken
                + counters.pending_over_limit,
        }
    }
}

impl Members {
    /// Lists the members of this view; `suspects` are the suspected ones.
    pub(crate) fn of(view: &membership::View, suspects: &BTreeSet<NodeId>) -> Self {
        let member = |member: &membership::Member| Member {
            node: member.identity.node.to_string(),
            age: member.age.0,
            address: member.attributes.address().to_owned(),
            zone: member.attributes.zone().to_owned(),
            version: member.attributes.version().to_owned(),
            labels: member.attributes.labels().clone(),
            suspected: suspects.contains(&member.identity.node),
        };
        let version = view.version();
        let all = view.members().iter().map(member).collect();
        Self { term: version.term.0, view: version.number, all }
    }
}

impl From<&CertificateStatus> for Certificate {
    fn from(status: &CertificateStatus) -> Self {
        let valid_until = UNIX_EPOCH + Duration::from_secs(status.valid_until);
        Self {
            valid_until: status.valid_until_utc(),
            valid_for_seconds: valid_until.duration_since(SystemTime::now()).map_or(0, |left| left.as_secs()),
            replaced: status.replaced,
            replacements_refused: status.replacements_refused,
            trouble: status.trouble.clone(),
        }
    }
}

impl Peer {
    fn new(peer: &PeerStatus, at: Instant) -> Self {
        let life = |identity: Option<Identity>| identity.map(|identity| identity.incarnation.to_string());
        Self {
            node: peer.node.to_string(),
            address: peer.address.clone(),
            outbound: life(peer.outbound),
            version: peer.version,
            inbound: life(peer.inbound),
            guardian: life(peer.guardian),
            round_trip_us: peer.round_trip.map(|time| time.as_nanos() / 1_000),
            refusal: peer.refusal.as_ref().map(|refusal| PeerRefused::new(refusal, at)),
            trouble: peer.trouble.clone(),
        }
    }
}

impl PeerRefused {
    fn new(refusal: &PeerRefusal, at: Instant) -> Self {
        Self {
            by_peer: refusal.by_peer,
            kind: refusal.kind.name().to_owned(),
            text: refusal.text.clone(),
            ago_ms: at.since(refusal.at).as_millis(),
        }
    }
}

impl Record {
    /// Describes the record as a candidate has observed it.
    fn of(status: &lease::Status, at: Instant) -> Option<Self> {
        let unchanged = status.unchanged_since.map(|since| at.since(since).as_millis());
        status.record.as_ref().map(|record| Self::new(record, unchanged))
    }

    /// Describes a record, and the time for which it has not changed, if known.
    pub(crate) fn new(record: &lease::Record, unchanged_for_ms: Option<u64>) -> Self {
        let holder = record.holder.as_ref();
        Self {
            holder: holder.map(|holder| holder.identity.node.to_string()),
            incarnation: holder.map(|holder| holder.identity.incarnation.to_string()),
            address: holder.map(|holder| holder.address.clone()).filter(|address| !address.is_empty()),
            token: record.token.0,
            duration_ms: record.duration.as_millis(),
            renewal: record.renewal,
            resign_request: record.resign_request.as_ref().map(|request| request.by.clone()),
            young: record.young,
            unchanged_for_ms,
        }
    }
}
