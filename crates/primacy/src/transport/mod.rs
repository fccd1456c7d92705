//! The mesh: the TCP connections between nodes.
//!
//! Every node dials every other one. A node only sends over a connection that it has dialled, and only receives over
//! one that it has accepted. So no two nodes need to agree which of two connections to keep, and a link that works in
//! one direction only is visible as such.
//!
//! ```text
//!     dialler                    acceptor
//!     Hello ───────────────────▶ judges it
//!     judges it ◀─────────────── Welcome, or Refused
//!     Ready, or Refused ───────▶ the connection counts: Evidence::Connected, with the time since Welcome
//!     Message, Message, … ─────▶
//!     (a guardian) Died ───────▶ Evidence::Died
//!             ◀───────────────── DiedHeard
//! ```
//!
//! The mesh runs on the driver's own thread, inside a `LocalSet`, and shares only counters and the
//! certificate's state with other threads.

mod accept;
mod dial;
mod pending;
mod session;
mod state;
mod stream;
#[cfg(test)]
mod tests;
pub(crate) mod tls;

use std::collections::BTreeMap;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::rc::Rc;
use std::sync::{Arc, Mutex};

use primacy_core::{Evidence, LeaderSequence, NodeId, Term};
use primacy_kv::replication::voters;
use tokio::sync::{mpsc, watch};

use crate::codec::Frame;
pub use crate::codec::Word;
use crate::connections::{CertificateReport as _, host_and_port};
pub use crate::connections::{
    CertificateStatus, Counters, Limits, PeerRefusal, PeerStatus, Security, TlsError, TlsFiles,
    TransportError,
};
use crate::handshake::{DiskId, Hello, PeerDisk, Voters};

use dial::OutboundPeer;
use state::{Introduction, Shared};
pub(crate) use stream::watch_for_stalls;
pub use tls::{ServerFiles, ServerTls};
pub(crate) use tls::{Sides, Tls};

/// The parameters of a mesh.
#[derive(Clone, Debug)]
pub struct MeshConfig {
    /// The hello of this node.
    pub me: Hello,
    /// The address on which it listens.
    pub listen: SocketAddr,
    /// Every other node, with its `host:port`. A host's name is looked up again at every attempt.
    pub peers: Vec<(NodeId, String)>,
    /// The recorded disks of its peers.
    pub peer_disks: BTreeMap<NodeId, PeerDisk>,
    /// The term of this node's durable state, for readmitted nodes; `None` if it has lost its own disk.
    pub term: Option<Term>,
    /// The protection of the connections.
    pub security: Security,
    /// The limits of durations and sizes.
    pub limits: Limits,
}

/// An event of the mesh for the driver.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(clippy::large_enum_variant, reason = "most arrivals are messages, and none of them waits for long")]
pub enum Arrival {
    /// A node sent this message.
    Message {
        /// The node that the handshake of the connection named.
        from: NodeId,
        /// The message.
        message: Word,
    },
    /// Evidence about a node.
    Evidence(Evidence),
    /// A node was seen for the first time, with this disk. The driver must record it durably before it acts on any
    /// later arrival; otherwise this node would not notice that the other one's disk was wiped.
    PeerDisk {
        /// The node.
        node: NodeId,
        /// Its disk.
        disk: DiskId,
    },
}

/// The outcome of sending a message. The message may be lost with any of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delivery {
    /// The kernel has taken all of it.
    Written,
    /// It waits until the kernel can take it.
    Buffered,
    /// It was dropped: there is no connection, or no room in the buffer.
    Dropped,
}

/// This node's connections to all others. Dropping it closes them.
#[derive(Debug)]
pub struct Mesh {
    shared: Rc<Shared>,
    local_addr: SocketAddr,
}

impl Mesh {
    /// Listens, and starts to dial every peer. Must be called inside a `LocalSet`; arrivals go to `inbox`.
    ///
    /// # Errors
    /// [`TransportError`]
    pub async fn start(config: MeshConfig, inbox: mpsc::Sender<Arrival>) -> Result<Self, TransportError> {
        let listener = Self::bind(config.listen, &config.security)?;
        Self::start_on(listener, config, inbox).await
    }

    /// Binds the address, so that no other process can; [`start_on`](Self::start_on) begins to accept connections.
    ///
    /// # Errors
    /// [`TransportError::NotLoopback`], [`TransportError::InUse`] or [`TransportError::Listen`]
    pub fn bind(listen: SocketAddr, security: &Security) -> Result<TcpListener, TransportError> {
        security.permits("the address to listen on", listen)?;
        let bound = TcpListener::bind(listen).and_then(|listener| {
            listener.set_nonblocking(true)?;
            Ok(listener)
        });
        bound.map_err(|source| {
            if source.kind() == io::ErrorKind::AddrInUse {
                TransportError::InUse { address: listen }
            } else {
                TransportError::Listen { address: listen, source }
            }
        })
    }

    /// As [`start`](Self::start), with a listener from [`bind`](Self::bind); `config.listen` is not used.
    ///
    /// # Errors
    /// [`TransportError`]
    pub async fn start_on(
        listener: TcpListener,
        config: MeshConfig,
        inbox: mpsc::Sender<Arrival>,
    ) -> Result<Self, TransportError> {
        let address = config.listen;
        let listening = listener
            .local_addr()
            .and_then(|local_addr| Ok((local_addr, tokio::net::TcpListener::from_std(listener)?)));
        let (local_addr, listener) =
            listening.map_err(|source| TransportError::Listen { address, source })?;
        let mut links = BTreeMap::new();
        for (node, address) in &config.peers {
            if *node == config.me.identity.node {
                return Err(TransportError::PeerIsSelf { node: *node });
            }
            check_peer(*node, address, &config).await?;
            if links.insert(*node, Rc::new(OutboundPeer::new(*node, address.clone()))).is_some() {
                return Err(TransportError::PeerTwice { node: *node });
            }
        }
        let shared = Rc::new(Shared::new(config, links, inbox)?);
        shared.spawn(accept::listen(Rc::clone(&shared), listener));
        for link in shared.links().values() {
            shared.spawn(dial::keep(Rc::clone(&shared), Rc::clone(link)));
        }
        Ok(Self { shared, local_addr })
    }

    /// Sends a message to a node, without waiting. The part that the kernel takes has been sent when this returns, so that
    /// the caller may continue with a slow write to its disk.
    pub fn send(&self, to: NodeId, message: Word) -> Delivery {
        let shared = &self.shared;
        let frame = match shared.encode(&Frame::Message(message)) {
            Ok(frame) => frame,
            Err(error) => {
                shared.say_oversized(to, error);
                return Delivery::Dropped;
            }
        };
        let delivery = match shared.link(to) {
            Some(link) => link.send(&frame, shared.limits.buffer_max),
            None => Delivery::Dropped, // No such peer.
        };
        shared.count(|counters| match delivery {
            Delivery::Written | Delivery::Buffered => counters.frames_sent += 1,
            Delivery::Dropped => counters.frames_dropped += 1,
        });
        delivery
    }

    /// With metadata: sets the voters in force, and all nodes that this node connects to; `peers` may contain this node. New
    /// nodes are dialled; connections to former ones are closed in both directions; nodes with another address are dialled
    /// there. From now on this node's hello names these voters, and they are sent to every node that counts older ones.
    ///
    /// A forbidden address is refused at every attempt to use it, which is shown with that peer and logged once; other peers are
    /// not delayed by it. Must be called inside the same `LocalSet`.
    ///
    /// # Errors
    /// [`TransportError::TooLong`] if there are more voters than fit into a hello; then nothing has changed.
    pub fn set_peers(
        &self,
        peers: &BTreeMap<NodeId, Arc<str>>,
        voters: &Arc<voters::Voters>,
    ) -> Result<(), TransportError> {
        let shared = &self.shared;
        let me = Hello {
            voters: voters.members.keys().copied().collect(),
            voters_number: voters.number,
            ..shared.introduction().me.clone()
        };
        let introduction = Introduction::new(me, Some(voters))?;
        let (mut links, mut new) = (BTreeMap::new(), Vec::new());
        for (&node, address) in peers.iter().filter(|(node, _)| **node != shared.node) {
            let link = shared.link(node).filter(|link| *link.address == **address).unwrap_or_else(|| {
                let link = Rc::new(OutboundPeer::new(node, address.to_string()));
                new.push(Rc::clone(&link));
                link
            });
            links.insert(node, link);
        }
        for link in shared.replace(introduction, links) {
            link.close();
        }
        for link in new {
            shared.spawn(dial::keep(Rc::clone(shared), link));
        }
        Ok(())
    }

    /// Checks that a node of this name and with this address may be among the peers.
    ///
    /// # Errors
    /// [`TransportError`]
    pub(crate) fn may_add(&self, node: NodeId, address: &str) -> Result<(), TransportError> {
        check_form(node, address)?;
        let others = self.shared.links().keys().copied().filter(|other| *other != node).collect::<Vec<_>>();
        self.shared.security.check_names(node, others.into_iter().chain([self.shared.node]))?;
        match address.parse() {
            Ok(address) => self.shared.security.permits(&format!("the peer {node}"), address),
            Err(_) => Ok(()), // It is a name, which is looked up at every attempt.
        }
    }

    /// The voters, and the record that states them, as in this node's hello.
    pub(crate) fn voters(&self) -> (Voters, LeaderSequence) {
        let introduction = self.shared.introduction();
        (introduction.me.voters.clone(), introduction.me.voters_number)
    }

    /// Sets the term of this node's durable state; `None` while this node has lost its own disk, and may report no
    /// term.
    pub fn set_term(&self, term: Option<Term>) {
        let before = self.shared.set_term(term);
        if before.is_some() != term.is_some() {
            self.shared.links().values().for_each(|link| self.shared.say_first_word(link));
        }
    }

    /// Sets the highest number that the election has reached without persisting it: the limit for terms of other nodes is
    /// counted from it.
    pub(crate) fn set_reached(&self, term: Term) {
        self.shared.set_reached(term);
    }

    /// The text of the last configuration mismatch between this node and a peer.
    pub(crate) fn config_mismatch(&self) -> watch::Receiver<Option<String>> {
        self.shared.config_mismatch.subscribe()
    }

    /// The term that this node may report.
    pub(crate) fn term(&self) -> Option<Term> {
        self.shared.term()
    }

    /// The disk with which a node waits to be readmitted: the last one with which it was refused, or one that was not refused
    /// and whose node reports the loss of an earlier disk.
    #[must_use]
    pub fn disk_to_readmit(&self, node: NodeId) -> Option<DiskId> {
        self.shared.disk_to_readmit(node)
    }

    /// Readmits a node that lost its disk: from now on only this disk is accepted, and connections that it made with
    /// another one are closed. The caller has recorded it durably.
    pub fn readmit(&self, node: NodeId, disk: DiskId) {
        self.shared.readmit(node, disk);
    }

    /// The address on which this node listens, with the port that the system chose if none was configured.
    #[must_use]
    pub const fn local_addr(&self) -> SocketAddr {
        self.local_addr
    }

    /// The counters since the start.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.shared.counters()
    }

    /// The counters, shared with other threads.
    pub(crate) fn shared_counters(&self) -> Arc<Mutex<Counters>> {
        self.shared.shared_counters()
    }

    /// The state of each peer, in the order of their names.
    #[must_use]
    pub fn peers(&self) -> Vec<PeerStatus> {
        self.shared.peers()
    }

    /// The state of this node's certificate as of the last check of its files, which happens every ten seconds and with each
    /// handshake; `None` without TLS.
    #[must_use]
    pub fn certificate(&self) -> Option<CertificateStatus> {
        self.shared.tls.as_ref().map(|tls| tls.status())
    }

    /// The certificate's state, shared with other threads; `None` without TLS.
    pub(crate) fn shared_certificate(&self) -> Option<Arc<Tls>> {
        self.shared.tls.clone()
    }

    /// The last refusal of a connection that is not a peer's, or has not identified its node.
    #[must_use]
    pub fn unidentified_refused(&self) -> Option<PeerRefusal> {
        self.shared.unidentified_refused()
    }

    /// Closes everything, and returns when the address can be used again.
    pub async fn shutdown(self) {
        let mut tasks = self.shared.take_tasks();
        tasks.shutdown().await;
    }
}

impl Drop for Mesh {
    fn drop(&mut self) {
        // The tasks hold an `Rc` of their owner, so dropping that would never end them.
        self.shared.take_tasks().abort_all();
    }
}

/// Refuses at the start an address that would be refused at every attempt. A name that cannot be resolved now is no
/// error, because it may be resolvable later; each attempt checks its result again.
async fn check_peer(node: NodeId, address: &str, config: &MeshConfig) -> Result<(), TransportError> {
    check_form(node, address)?;
    let patience = config.limits.connect_timeout.into();
    let Ok(Ok(found)) = tokio::time::timeout(patience, stream::resolve(address)).await else {
        return Ok(());
    };
    config.security.permits_peer(node, found)
}

/// Checks the form of a peer's address.
pub(crate) fn check_form(node: NodeId, address: &str) -> Result<(), TransportError> {
    if host_and_port(address).is_none() {
        return Err(TransportError::Address { node, address: address.to_owned() });
    }
    Ok(())
}
