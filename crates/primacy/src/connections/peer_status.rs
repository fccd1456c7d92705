//! The state of the connections to the peers, as [`Status`](crate::Status) shows it.

use std::collections::BTreeMap;

use primacy_core::{Duration, Identity, Instant, NodeId};

use crate::handshake::RefusalKind;

/// Counters since the start.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Messages that were handed to the kernel or to the buffer before it.
    pub frames_sent: u64,
    /// Messages that were dropped because there was no connection, or no room.
    pub frames_dropped: u64,
    /// Messages of this node that are longer than a frame may be, and were not sent: a required message cannot be sent.
    pub frames_oversized: u64,
    /// Messages that were received and counted.
    pub frames_received: u64,
    /// Frames of peers that were no valid frames.
    pub frames_malformed: u64,
    /// Frames of peers that only a later version knows.
    pub frames_unknown: u64,
    /// Frames that claimed to be longer than a frame may be, from anyone; each cost its connection.
    pub frames_too_long: u64,
    /// Messages that named another election than their connection.
    pub frames_of_other_elections: u64,
    /// Messages that named another incarnation than their connection, or came over a guardian's.
    pub frames_misattributed: u64,
    /// Messages that named a term so far above this node's own that no election can have led there.
    pub frames_term_too_high: u64,
    /// Testimonies of a death over a connection that was not the guardian's of that very incarnation.
    pub deaths_refused: u64,
    /// Handshakes that took too long.
    pub handshakes_timed_out: u64,
    /// Handshakes in which the other side sent something that is no part of one, or closed the connection.
    pub handshakes_broken: u64,
    /// Connections that were closed in their handshake to make room for newer ones.
    pub pending_over_limit: u64,
    /// Attempts to reach a peer that led to no connection.
    pub connects_failed: u64,
    /// Connections that the system could not hand over, for want of descriptors or memory.
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
    /// Its address, as it was configured, or as the voters' record has it.
    pub address: String,
    /// The incarnation that this node can send to.
    pub outbound: Option<Identity>,
    /// The version of the protocol in which this node sends to it.
    pub version: Option<u32>,
    /// The incarnation that this node can hear; the latest, if there are two.
    pub inbound: Option<Identity>,
    /// The incarnation whose guardian this node can hear.
    pub guardian: Option<Identity>,
    /// The round trip of the last handshake.
    pub round_trip: Option<Duration>,
    /// The last time that it sent anything, on this machine's boot clock. A connection outlives a process that is stopped.
    pub heard_at: Option<Instant>,
    /// The reason why one of the two refused the other, until they agree.
    pub refusal: Option<PeerRefusal>,
    /// The reason why the last attempt to reach it failed, until one succeeds.
    pub trouble: Option<String>,
}

/// A refusal, of either side.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerRefusal {
    /// True if the other side has refused this node, and not this node the other side.
    pub by_peer: bool,
    /// The kind of the refusal.
    pub kind: RefusalKind,
    /// The same for people, with both sides' values.
    pub text: String,
    /// The time of the refusal, on this machine's boot clock.
    pub at: Instant,
}
