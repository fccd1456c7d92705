//! Death notices among peers: one message to each.
//!
//! The guardian connects to every peer long before it has a death to report, so that the report takes one message. It
//! has no asynchronous runtime: for each peer a thread dials, shakes hands and then blocks in a read. The threads start
//! no processes, so they do not affect the guardian's parent-death signals, which belong to a thread.

use std::collections::BTreeMap;
use std::io;
use std::net::{SocketAddr, TcpStream, ToSocketAddrs as _};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration as StdDuration, Instant as StdInstant};

use primacy_core::id::NodeIdError;
use primacy_core::rng::Rng;
use primacy_core::{Duration, Identity, NodeId};

use super::wire::Wire;
use super::{DeathNoticeError, HelloText, Receipt, SecuritySpec};
use crate::codec::{DecodeError, Deframer, Frame, TooLong, decode, encode};
use crate::disk::entropy;
use crate::handshake::{Hello, Known, judge_answer};
use crate::transport::tls::{Sides, Tls, reason};
use crate::transport::{Limits, Security, TransportError, watch_for_stalls};

/// The threads use little stack, most of it to look up a host's name.
const STACK_LENGTH: usize = 256 * 1024;

/// A guardian's connections to the peers of its node. Dropping it closes them.
#[derive(Debug)]
pub(super) struct PeersNotifier {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    me: Hello,
    security: Security,
    /// Read once for all threads, and again when the files have changed.
    tls: Option<Arc<Tls>>,
    limits: Limits,
    /// Frames that are encoded once: the hello, the ready and the notice.
    hello: Vec<u8>,
    ready: Vec<u8>,
    died: Vec<u8>,
    state: Mutex<State>,
    /// Signalled whenever the state has changed.
    changed: Condvar,
}

#[derive(Debug)]
struct State {
    links: BTreeMap<NodeId, PeerConnection>,
    /// The number of connections created so far.
    made: u64,
    notifying: bool,
    closed: bool,
    random: Rng,
}

#[derive(Debug)]
struct PeerConnection {
    /// The number of the connection; a thread whose connection has been removed or has another number ends.
    number: u64,
    address: String,
    /// The connection, once its handshake is done. Its thread reads from it.
    wire: Option<Arc<Wire>>,
    heard: bool,
    trouble: Option<String>,
}

/// The reason why an attempt failed, or why a connection ended.
#[derive(Debug, thiserror::Error)]
enum LinkError {
    #[error("it is not reachable: {0}")]
    Io(io::Error),
    #[error("its name leads to no address")]
    NoAddress,
    #[error(transparent)]
    Forbidden(#[from] TransportError),
    #[error("it did not answer as a node does: {0}")]
    Decode(#[from] DecodeError),
    #[error("it did not answer as a node does: {0}")]
    TooLong(#[from] TooLong),
    #[error("it did not answer as a node does")]
    Unexpected,
    #[error("it closed the connection")]
    Closed,
    #[error("it takes too long to answer")]
    Timeout,
    #[error("{0}")]
    Refused(String),
}

impl From<io::Error> for LinkError {
    fn from(error: io::Error) -> Self {
        if error.kind() == io::ErrorKind::WouldBlock {
            Self::Timeout
        } else if error.kind() == io::ErrorKind::UnexpectedEof {
            // TLS was cut off.
            Self::Closed
        } else {
            Self::Io(error)
        }
    }
}

impl From<DecodeError> for DeathNoticeError {
    fn from(error: DecodeError) -> Self {
        Self::Hello(error.to_string())
    }
}

impl PeersNotifier {
    /// Connects to every peer, and reconnects whenever a connection breaks.
    ///
    /// # Errors
    /// [`DeathNoticeError`]
    pub(super) fn new(
        hello: &HelloText,
        peers: &[(String, String)],
        security: &SecuritySpec,
        limits: Limits,
    ) -> Result<Self, DeathNoticeError> {
        let (me, security) = (hello.parse()?, security.parse()?);
        let nodes = parse(peers)?;
        let tls = security.open(me.identity.node, &me.cluster, nodes.into_keys(), Sides::Dialler)?;
        let frame = |frame: &Frame| encode(&me.election, frame).map_err(|_| DecodeError::Invalid("names"));
        let hello = frame(&Frame::Hello(me.clone()))?;
        let (ready, died) = (frame(&Frame::Ready)?, frame(&Frame::Died(me.identity))?);
        let state = State {
            links: BTreeMap::new(),
            made: 0,
            notifying: false,
            closed: false,
            random: Rng::new(u64::from_be_bytes(entropy()?)),
        };
        let (state, changed) = (Mutex::new(state), Condvar::new());
        // If a thread cannot be started, dropping this ends the threads started before.
        let shared = Shared { me, security, tls, limits, hello, ready, died, state, changed };
        let notifier = Self { shared: Arc::new(shared) };
        notifier.reach(peers)?;
        Ok(notifier)
    }

    /// Disconnects from nodes that are not among these peers, or have another address, and connects to new ones.
    ///
    /// # Errors
    /// [`DeathNoticeError`]. If a thread cannot be started for one peer, the others are connected nevertheless. If a name is
    /// invalid, nothing has changed.
    pub(super) fn reach(&self, peers: &[(String, String)]) -> Result<(), DeathNoticeError> {
        let peers = parse(peers)?;
        let mut state = self.shared.lock();
        state.links.retain(|node, link| {
            let stays = peers.get(node) == Some(&link.address);
            if !stays {
                link.shut();
            }
            stays
        });
        let mut outcome = Ok(());
        for (node, address) in peers {
            if state.links.contains_key(&node) {
                continue;
            }
            state.made += 1;
            let (number, shared, at) = (state.made, Arc::clone(&self.shared), address.clone());
            let thread =
                std::thread::Builder::new().name(format!("notifier {node}")).stack_size(STACK_LENGTH);
            match thread.spawn(move || shared.tend(node, number, &at)) {
                Ok(_) => {
                    let link = PeerConnection { number, address, wire: None, heard: false, trouble: None };
                    state.links.insert(node, link);
                }
                Err(error) => outcome = Err(DeathNoticeError::Thread(error)),
            }
        }
        self.shared.changed.notify_all();
        outcome
    }

    pub(super) fn identity(&self) -> Identity {
        self.shared.me.identity
    }

    pub(super) fn connected(&self) -> Vec<NodeId> {
        let state = self.shared.lock();
        state.links.iter().filter(|(_, link)| link.wire.is_some()).map(|(node, _)| *node).collect()
    }

    /// Reports the death, and returns when all peers have confirmed it. Peers that are not connected are dialled
    /// repeatedly until `bound`.
    pub(super) fn notify(&mut self, bound: StdDuration) -> Receipt {
        let shared = &self.shared;
        let mut state = shared.lock();
        state.notifying = true;
        // In reverse order: when the first node in order campaigns, the nodes that it asks have received the notice
        // already.
        for link in state.links.values_mut().rev() {
            link.tell(&shared.died);
        }
        shared.changed.notify_all();
        let waiting = |state: &mut State| state.links.values().any(|link| !link.heard);
        let waited = shared.changed.wait_timeout_while(state, bound, waiting);
        let (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        let mut receipt = Receipt::default();
        for (node, link) in &state.links {
            let trouble = link.trouble.as_deref().unwrap_or("it has not confirmed in time");
            if link.heard {
                receipt.heard.push(*node);
            } else {
                receipt.unheard.push((*node, trouble.to_owned()));
            }
        }
        receipt
    }
}

impl Drop for PeersNotifier {
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        state.closed = true;
        for link in state.links.values_mut() {
            link.shut();
        }
        self.shared.changed.notify_all();
        // The threads end by themselves. A thread that is looking up a name cannot be interrupted, and is not awaited.
    }
}

/// Parses the peers of a specification.
fn parse(peers: &[(String, String)]) -> Result<BTreeMap<NodeId, String>, NodeIdError> {
    peers.iter().map(|(name, address)| Ok((NodeId::new(name)?, address.clone()))).collect()
}

impl State {
    /// The connection with this number, unless its node is no peer any more or has another address, or the notifier was
    /// dropped.
    fn link(&mut self, node: NodeId, number: u64) -> Option<&mut PeerConnection> {
        self.links.get_mut(&node).filter(|link| link.number == number && !self.closed)
    }
}

impl PeerConnection {
    /// Sends the notice if there is a connection. Otherwise its thread does so when it has connected.
    fn tell(&mut self, died: &[u8]) {
        let Some(wire) = self.wire.as_ref().filter(|_| !self.heard) else { return };
        if let Err(error) = wire.write_all(died) {
            self.trouble = Some(error.to_string());
            self.shut();
        }
    }

    /// Closes the connection, which wakes the thread that reads from it.
    fn shut(&mut self) {
        if let Some(wire) = self.wire.take() {
            wire.shut();
        }
    }
}

impl Shared {
    /// A poisoned lock is harmless: each change of the state is a single assignment.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps the connection to one peer, until the peer has confirmed the death, the node is no peer any more, or the
    /// notifier is dropped.
    fn tend(&self, node: NodeId, number: u64, address: &str) {
        let mut longest_wait = self.limits.backoff_first;
        while self.lock().link(node, number).is_some() {
            let mut rest = Duration::ZERO;
            let ended = self.dial(node, address).and_then(|(wire, deframer)| {
                longest_wait = self.limits.backoff_first;
                // The pause after a connection that was established, as in the node itself.
                rest = self.limits.backoff_first;
                self.open(node, number, &wire)?;
                self.listen(&wire, deframer)
            });
            let mut state = self.lock();
            let Some(link) = state.link(node, number) else { return };
            link.shut();
            match ended {
                Ok(()) => link.heard = true,
                Err(error) => link.trouble = Some(error.to_string()),
            }
            let done = link.heard;
            self.changed.notify_all();
            if done {
                return;
            }
            let gone = |state: &mut State| state.link(node, number).is_none();
            self.pause(state, gone, rest, &mut longest_wait);
        }
    }

    /// Waits before the next attempt: `rest`, and a random time below a maximum that doubles. Ends early when a death
    /// is to be reported that was not known at the beginning of the wait, or when no attempt will follow.
    fn pause(
        &self,
        mut state: MutexGuard<'_, State>,
        gone: impl Fn(&mut State) -> bool,
        rest: Duration,
        longest: &mut Duration,
    ) {
        let before = state.notifying;
        if before {
            *longest = self.limits.notifying_backoff_max.min(*longest);
        }
        let wait = rest.plus(state.random.duration_up_to(*longest));
        *longest = longest.times(2).min(self.limits.backoff_max);
        let waiting = |state: &mut State| state.notifying == before && !gone(state);
        drop(self.changed.wait_timeout_while(state, wait.into(), waiting));
    }

    /// Makes one attempt, with its handshake. Bytes received after the handshake are in the deframer.
    fn dial(&self, node: NodeId, address: &str) -> Result<(Arc<Wire>, Deframer), LinkError> {
        let tcp = self.connect(node, address)?;
        tcp.set_nodelay(true)?;
        watch_for_stalls(&tcp, &self.limits)?;
        tcp.set_write_timeout(Some(self.limits.handshake_timeout.into()))?;
        let wire = match &self.tls {
            None => Wire::clear(tcp),
            Some(tls) => Wire::protected(tcp, tls.current(), node)?,
        };
        let mut deframer = Deframer::default();
        match self.introduce(node, &wire, &mut deframer) {
            Ok(()) => Ok((Arc::new(wire), deframer)),
            Err(LinkError::Io(error)) => match wire.explain(&error, self.me.identity.node, node) {
                Some(trouble) => Err(LinkError::Refused(trouble.text)),
                None => Err(LinkError::Io(error)),
            },
            Err(error) => Err(error),
        }
    }

    fn introduce(&self, node: NodeId, wire: &Wire, deframer: &mut Deframer) -> Result<(), LinkError> {
        let until = StdInstant::now() + StdDuration::from(self.limits.handshake_timeout);
        wire.shake_hands(until)?;
        let said = wire.write_all(&self.hello);
        // A peer that has refused may have closed the connection already; its reason can still be read.
        match (read_frame(wire, deframer, Some(until)), said) {
            (Err(LinkError::Io(error)), Err(unsaid)) if reason(&error).is_none() => Err(unsaid.into()),
            (Err(error), _) => Err(error),
            (Ok(Frame::Welcome(theirs)), _) => {
                self.judge(node, &theirs, wire)?;
                Ok(wire.write_all(&self.ready)?)
            }
            (Ok(Frame::Refused(refused)), _) => Err(LinkError::Refused(refused.text)),
            (
                Ok(
                    Frame::Hello(_)
                    | Frame::Ready
                    | Frame::Message(_)
                    | Frame::Died(_)
                    | Frame::DiedHeard(_)
                    | Frame::Readmitted(_)
                    | Frame::Lost,
                ),
                _,
            ) => Err(LinkError::Unexpected),
        }
    }

    fn connect(&self, node: NodeId, address: &str) -> Result<TcpStream, LinkError> {
        let mut failed = LinkError::NoAddress;
        let found: Vec<SocketAddr> = address.to_socket_addrs()?.collect();
        for address in found {
            self.security.permits(&format!("the peer {node}"), address)?;
            match TcpStream::connect_timeout(&address, self.limits.connect_timeout.into()) {
                Ok(stream) => return Ok(stream),
                Err(error) => failed = error.into(),
            }
        }
        Err(failed)
    }

    /// Judges the peer's answer. The guardian has recorded no disks; its node has, and ignores a peer that lost one.
    fn judge(&self, node: NodeId, theirs: &Hello, wire: &Wire) -> Result<(), LinkError> {
        let known = Known { disks: &BTreeMap::new(), peers: &[node].into() };
        let Err(refusal) = judge_answer(&self.me, known, node, theirs) else { return Ok(()) };
        let text = refusal.to_string();
        let refused = crate::codec::Refused { kind: refusal.kind(), text: text.clone() };
        if let Ok(frame) = encode(&self.me.election, &Frame::Refused(refused)) {
            wire.write_all(&frame)?;
        }
        Err(LinkError::Refused(text))
    }

    /// Registers the connection, and sends the notice if a death was reported before.
    fn open(&self, node: NodeId, number: u64, wire: &Arc<Wire>) -> Result<(), LinkError> {
        let mut state = self.lock();
        let notifying = state.notifying;
        let Some(link) = state.link(node, number) else { return Err(LinkError::Closed) };
        link.wire = Some(Arc::clone(wire));
        link.trouble = None;
        if notifying {
            link.tell(&self.died);
        }
        self.changed.notify_all();
        Ok(())
    }

    /// Returns when the peer has confirmed the death.
    fn listen(&self, wire: &Wire, mut deframer: Deframer) -> Result<(), LinkError> {
        loop {
            match read_frame(wire, &mut deframer, None) {
                Ok(Frame::DiedHeard(identity)) if identity == self.me.identity => return Ok(()),
                // Peers send no other frame to a guardian; frames of a later version are ignored.
                Ok(
                    Frame::Hello(_)
                    | Frame::Welcome(_)
                    | Frame::Refused(_)
                    | Frame::Ready
                    | Frame::Message(_)
                    | Frame::Died(_)
                    | Frame::DiedHeard(_)
                    | Frame::Readmitted(_)
                    | Frame::Lost,
                )
                | Err(LinkError::Decode(_)) => {}
                Err(error) => return Err(error),
            }
        }
    }
}

/// Reads the next frame, and gives up at `until` however slowly the bytes come.
fn read_frame(wire: &Wire, deframer: &mut Deframer, until: Option<StdInstant>) -> Result<Frame, LinkError> {
    loop {
        if let Some(frame) = deframer.next_frame()? {
            return Ok(decode(frame)?.1);
        }
        let mut bytes = [0; 1024];
        match wire.read(&mut bytes, until) {
            Ok(0) => return Err(LinkError::Closed),
            Ok(count) => deframer.push(bytes.get(..count).unwrap_or_default()),
            Err(error) => return Err(error.into()),
        }
    }
}

#[cfg(test)]
mod tests;
