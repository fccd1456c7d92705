//! The state of the connections to the peers, for [`Status`](crate::Status).

use std::collections::BTreeMap;

use primacy_core::{Duration, Identity, Instant, NodeId};

use crate::handshake::RefusalKind;

/// Counters of the connections since the start of the process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Messages that were passed to the kernel or to the send buffer.
    pub frames_sent: u64,
    /// Messages that were dropped for want of a connection or of buffer space.
    pub frames_dropped: u64,
    /// Messages that were too long to be sent, although the election needs them.
    pub frames_oversized: u64,
    /// Messages that were received and accepted.
    pub frames_received: u64,
    /// Invalid frames from peers.
    pub frames_malformed: u64,
    /// Frames from peers of a kind that only a later version knows.
    pub frames_unknown: u64,
    /// Frames that claimed too great a length, from any sender; each closed its connection.
    pub frames_too_long: u64,
    /// Messages that named another election than their connection's.
    pub frames_of_other_elections: u64,
    /// Messages that named another incarnation than their connection's, or came over a guardian's connection.
    pub frames_misattributed: u64,
    /// Messages that named a term implausibly far above this node's own.
    pub frames_term_too_high: u64,
    /// Death notices over a connection that was not the guardian's of that incarnation.
    pub deaths_refused: u64,
    /// Handshakes that took too long.
    pub handshakes_timed_out: u64,
    /// Handshakes in which the other side sent an unexpected frame, or closed the connection.
    pub handshakes_broken: u64,
    /// Connections that were closed during their handshake to make room for newer ones.
    pub pending_over_limit: u64,
    /// Failed attempts to connect to a peer.
    pub connects_failed: u64,
    /// Connections that the system could not accept, for want of descriptors or memory.
    pub accepts_failed: u64,
    /// The refusals by this node, by reason.
    pub refused: BTreeMap<RefusalKind, u64>,
    /// The peers that have refused this node, by reason.
    pub refused_by_peers: BTreeMap<RefusalKind, u64>,
}

/// The state of the connections with one peer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerStatus {
    /// The peer.
    pub node: NodeId,
    /// Its address, from the configuration or from the recorded list of voters.
    pub address: String,
    /// The incarnation to which this node is connected for sending.
    pub outbound: Option<Identity>,
    /// The version of the protocol of that connection.
    pub version: Option<u32>,
    /// The incarnation that is connected to this node; the latest, if there are two.
    pub inbound: Option<Identity>,
    /// The incarnation whose guardian is connected to this node.
    pub guardian: Option<Identity>,
    /// The round trip of the last handshake.
    pub round_trip: Option<Duration>,
    /// The time of its last frame, on this machine's boot clock. A stopped process keeps its connections and sends
    /// nothing.
    pub heard_at: Option<Instant>,
    /// The reason why one of the two refused the other, until they agree.
    pub refusal: Option<PeerRefusal>,
    /// The reason why the last attempt to reach it failed, until one succeeds.
    pub trouble: Option<String>,
}

/// A refusal by either side.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerRefusal {
    /// True if the peer has refused this node; false if this node has refused the peer.
    pub by_peer: bool,
    /// The kind of the refusal.
    pub kind: RefusalKind,
    /// The text of the refusal, with both sides' values.
    pub text: String,
    /// The time of the refusal, on this machine's boot clock.
    pub at: Instant,
}
