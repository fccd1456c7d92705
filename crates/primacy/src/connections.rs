//! Connections between nodes: their limits, their security, their state in the status, and their errors.
//!
//! `transport/` makes them, with the feature `peers`.

mod peer_status;
mod security;

use std::io;
use std::net::{Ipv6Addr, SocketAddr};

use primacy_core::{Duration, NodeId};

pub use peer_status::{Counters, PeerRefusal, PeerStatus};
pub(crate) use security::CertificateReport;
pub use security::{CertificateStatus, Security, TlsError, TlsFiles};

/// The longest frame, without its length prefix and except those of metadata. The longest one sent is a `Hello` with a
/// thousand voters.
pub(crate) const FRAME_LENGTH_MAX: usize = 64 * 1024;

/// Splits an address `HOST:PORT`, whose host is a name, an IPv4 address, or an IPv6 address in brackets; `None` if it has another form.
#[must_use]
pub fn host_and_port(address: &str) -> Option<(&str, u16)> {
    let (host, port) = address.rsplit_once(':')?;
    let is_host = match host.strip_prefix('[').and_then(|host| host.strip_suffix(']')) {
        // The part after the `%` names a network interface.
        Some(bare) => bare.split('%').next().is_some_and(|bare| bare.parse::<Ipv6Addr>().is_ok()),
        None => {
            !host.is_empty() && host.chars().all(|letter| letter.is_alphanumeric() || "-_.".contains(letter))
        }
    };
    // `parse` would accept a sign.
    let is_port = port.bytes().all(|byte| byte.is_ascii_digit());
    let port = port.parse().ok().filter(|&port| port != 0 && is_port)?;
    is_host.then_some((host, port))
}

/// Bounds of time and size in a mesh.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The time for a connection to be made.
    pub connect_timeout: Duration,
    /// The time for a handshake to end, on either side.
    pub handshake_timeout: Duration,
    /// The time that sent bytes may stay unacknowledged before the connection counts as broken. Without it, TCP would
    /// retry at growing intervals, and a connection would come back minutes after its network.
    pub stall_timeout: Duration,
    /// The silence after which the kernel probes the connection; in whole seconds.
    pub keep_alive: Duration,
    /// The longest wait before the second attempt to connect; it doubles with each further attempt.
    pub backoff_first: Duration,
    /// The longest wait between two attempts.
    pub backoff_max: Duration,
    /// The longest wait between two attempts of a guardian that has a death to report: the cluster may have no leader
    /// meanwhile.
    pub notifying_backoff_max: Duration,
    /// The pause after the system could not accept a connection, for example because it is out of descriptors. The
    /// connection stays in the queue, so another attempt would fail at once.
    pub accept_pause: Duration,
    /// The shortest time between two log messages about refusals of one kind, from one peer or from unauthenticated connections.
    /// The others are only counted, and the last one is kept.
    pub refusal_log_pause: Duration,
    /// The time after which a refusal is logged again whose text contains the time, and so differs each time.
    pub refusal_log_again: Duration,
    /// The most accepted connections in their handshake. Beyond it, those that have proved least of their identity are closed,
    /// the oldest first.
    pub pending_max: usize,
    /// The interval at which certificate files are checked for changes, and the certificates of open connections are verified
    /// again.
    pub certificate_check: Duration,
    /// The time for which a connection may continue after its certificate is no longer acceptable: long enough to
    /// replace the files of one node after the other.
    pub certificate_grace: Duration,
    /// The most bytes that may wait for one peer; further frames are dropped.
    pub buffer_max: usize,
}

/// The reason why a mesh cannot be started.
#[derive(Debug, thiserror::Error)]
pub enum TransportError {
    /// The address is not local, so others could read and forge messages.
    #[error(
        "{what} is at {address}, which is not a loopback address, and what nodes say is neither encrypted nor \
         authenticated: protect it with --tls-certificate, --tls-key and --tls-ca, or, if the network is protected \
         otherwise, say --insecure-cleartext"
    )]
    NotLoopback {
        /// The owner of this address.
        what: String,
        /// The address.
        address: String,
    },
    /// Another process listens on this address.
    #[error("the address {address} is in use: stop what listens there, or give this node another port")]
    InUse {
        /// The address.
        address: SocketAddr,
    },
    /// The system refuses to listen there for another reason.
    #[error(
        "cannot listen on {address}: {source}; give this node an address of this machine that it may use"
    )]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The system's reason.
        source: io::Error,
    },
    /// A peer's address is invalid.
    #[error("the address {address:?} of the peer {node} is not of the form host:port")]
    Address {
        /// The peer.
        node: NodeId,
        /// The configured address.
        address: String,
    },
    /// A node is listed among its own peers.
    #[error("{node} is listed as a peer of itself; list only the other nodes")]
    PeerIsSelf {
        /// The node.
        node: NodeId,
    },
    /// A node is listed more than once.
    #[error("the peer {node} is listed twice; list each node once")]
    PeerTwice {
        /// The node.
        node: NodeId,
    },
    /// The hello of this node does not fit into a frame.
    #[error("the names of the cluster, the election and the voters are too long together: {length} bytes")]
    TooLong {
        /// Its length.
        length: usize,
    },
    /// The certificates cannot be used.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The system returned no random numbers for the backoff.
    #[error(transparent)]
    Entropy(#[from] crate::disk::DiskError),
}
