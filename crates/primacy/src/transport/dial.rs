//! The dialling side: one outbound connection to each peer, dialled again whenever it breaks.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;

use primacy_core::{Duration, Identity, NodeId};
use tokio::net::TcpStream;
use tokio::sync::Notify;
use tokio::time::{sleep, timeout};

use crate::codec::{Frame, shown};
use crate::handshake::{DiskId, Hello, Role, TlsProblem};

use super::session::Session;
use super::state::Shared;
use super::stream::{Connection, ReadError, Stream, prepare, resolve, take_turns};
use super::tls::{self, Credentials};
use super::{Delivery, Limits, check_form};

/// The capacity kept for bytes that wait for the kernel.
const PENDING_KEPT: usize = 4096;

/// A peer that this node dials.
#[derive(Debug)]
pub(super) struct OutboundPeer {
    pub(super) node: NodeId,
    pub(super) address: String,
    /// The peer has just connected to this node, so the next attempt need not wait.
    wake: Notify,
    /// The connection must be closed for good, because the node is no peer any more or has another address.
    closing: Cell<bool>,
    close: Notify,
    /// True if it was logged that the address is forbidden.
    forbidden: Cell<bool>,
    outbound: RefCell<Option<Outbound>>,
    trouble: RefCell<Option<String>>,
}

/// The present connection to the peer.
#[derive(Debug)]
struct Outbound {
    stream: Rc<Stream>,
    identity: Identity,
    disk: DiskId,
    /// The version of the protocol on this connection, which every encoder for this peer must use.
    version: Option<u32>,
    /// The bytes that wait for the kernel. If the first frame was sent in part, its rest is here.
    pending: VecDeque<u8>,
    signals: Rc<Signals>,
}

/// Signals to the task of a connection.
#[derive(Debug, Default)]
struct Signals {
    /// Bytes wait to be written.
    pending: Notify,
    /// The connection must be closed.
    close: Notify,
}

/// The reason why an attempt to connect failed.
#[derive(Debug, thiserror::Error)]
pub(super) enum DialError {
    #[error("its name cannot be looked up: {0}")]
    Resolve(io::Error),
    #[error("its name leads to no address")]
    NoAddress,
    #[error(transparent)]
    Forbidden(#[from] super::TransportError),
    #[error("cannot connect to {0}: {1}")]
    Connect(SocketAddr, io::Error),
    #[error("what listens at its address did not answer as a node does: {0}")]
    Read(#[from] ReadError),
    #[error("what listens at its address did not answer as a node does")]
    Unexpected,
    #[error("the connection broke: {0}")]
    Write(#[from] io::Error),
    #[error("it takes too long to {0}")]
    Timeout(&'static str),
    #[error("{0}")]
    Refused(String),
}

/// The waits between attempts: a random time from zero up to a maximum that doubles ("full jitter"), so that nodes that
/// lost a peer at the same time do not dial it again at the same time.
struct Backoff {
    longest: Duration,
}

impl Backoff {
    fn new(limits: &Limits) -> Self {
        Self { longest: limits.backoff_first }
    }

    fn next(&mut self, shared: &Shared) -> Duration {
        let wait = shared.random_up_to(self.longest);
        self.longest = self.longest.times(2).min(shared.limits.backoff_max);
        wait
    }
}

impl OutboundPeer {
    pub(super) fn new(node: NodeId, address: String) -> Self {
        Self {
            node,
            address,
            wake: Notify::new(),
            closing: Cell::new(false),
            close: Notify::new(),
            forbidden: Cell::new(false),
            outbound: RefCell::new(None),
            trouble: RefCell::new(None),
        }
    }

    /// Closes the connection for good, after all bytes were sent.
    pub(super) fn close(&self) {
        self.closing.set(true);
        self.close.notify_one();
    }

    /// Resolves when the connection must be closed. Only the task of this peer awaits it.
    async fn closed(&self) {
        while !self.closing.get() {
            self.close.notified().await;
        }
    }

    /// Writes the frame at once, as far as the kernel takes it; the rest waits.
    pub(super) fn send(&self, frame: &[u8], buffer_max: usize) -> Delivery {
        let mut slot = self.outbound.borrow_mut();
        let Some(outbound) = slot.as_mut() else { return Delivery::Dropped };
        if !outbound.pending.is_empty() {
            return outbound.queue(frame, buffer_max);
        }
        match outbound.stream.try_write(frame) {
            Ok(written) if written == frame.len() && outbound.stream.has_unsent() => {
                outbound.signals.pending.notify_one();
                Delivery::Buffered
            }
            Ok(written) if written == frame.len() => Delivery::Written,
            // The rest of a frame is queued whatever the limit.
            Ok(0) => outbound.queue(frame, buffer_max),
            Ok(written) => outbound.queue(frame.get(written..).unwrap_or_default(), usize::MAX),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => outbound.queue(frame, buffer_max),
            Err(_) => {
                outbound.signals.close.notify_one();
                *slot = None;
                Delivery::Dropped
            }
        }
    }

    pub(super) fn connected_to(&self) -> Option<Identity> {
        self.outbound.borrow().as_ref().map(|outbound| outbound.identity)
    }

    /// The version of the protocol in which this node sends to the peer.
    pub(super) fn version(&self) -> Option<u32> {
        self.outbound.borrow().as_ref().and_then(|outbound| outbound.version)
    }

    pub(super) fn trouble(&self) -> Option<String> {
        self.trouble.borrow().clone()
    }

    /// Reports that this incarnation of the peer has connected to this node, so it can probably be reached.
    pub(super) fn heard_from(&self, identity: Identity) {
        match self.outbound.borrow().as_ref() {
            None => self.wake.notify_one(),
            // The connection is to another incarnation, whose end may not have been noticed yet.
            Some(outbound) if outbound.identity != identity => {
                outbound.signals.close.notify_one();
                self.wake.notify_one();
            }
            Some(_) => {}
        }
    }

    /// Discards a wake-up from before the connection.
    async fn forget_wake(&self) {
        tokio::select! {
            biased;
            () = self.wake.notified() => {}
            () = std::future::ready(()) => {}
        }
    }

    /// Accepts only this disk of the peer from now on. Returns whether it is connected with it.
    pub(super) fn readmit(&self, disk: DiskId) -> bool {
        match self.outbound.borrow().as_ref() {
            Some(outbound) if outbound.disk == disk => return true,
            Some(outbound) => outbound.signals.close.notify_one(),
            None => self.wake.notify_one(),
        }
        false
    }

    fn failed(&self, shared: &Shared, error: &DialError) {
        // A forbidden address in the configuration is refused at the start already.
        if matches!(error, DialError::Forbidden(_)) && !self.forbidden.replace(true) {
            tracing::error!(node = %self.node, "this peer is not connected to: {error}");
        }
        tracing::debug!(node = %self.node, address = self.address, "no connection: {error}");
        shared.count(|counters| counters.connects_failed += 1);
        *self.trouble.borrow_mut() = Some(error.to_string());
    }

    fn open(&self, stream: Rc<Stream>, mine: &Hello, theirs: &Hello) -> Rc<Signals> {
        let signals = Rc::new(Signals::default());
        let (identity, disk, pending) = (theirs.identity, theirs.disk, VecDeque::new());
        let version = mine.versions.common(theirs.versions);
        let outbound = Outbound { stream, identity, disk, version, pending, signals: Rc::clone(&signals) };
        *self.outbound.borrow_mut() = Some(outbound);
        *self.trouble.borrow_mut() = None;
        signals
    }

    /// Writes waiting bytes, as far as the kernel takes them.
    fn flush(&self) -> io::Result<()> {
        let mut slot = self.outbound.borrow_mut();
        let Some(Outbound { stream, pending, .. }) = slot.as_mut() else { return Ok(()) };
        while !pending.is_empty() {
            match stream.try_write(pending.as_slices().0) {
                Ok(written) => drop(pending.drain(..written)),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            }
        }
        // Nothing waits any more; release the capacity that many records needed.
        pending.shrink_to(PENDING_KEPT);
        stream.flush().map(drop)
    }

    fn has_pending(&self) -> bool {
        let waits = |outbound: &Outbound| !outbound.pending.is_empty() || outbound.stream.has_unsent();
        self.outbound.borrow().as_ref().is_some_and(waits)
    }
}

impl DialError {
    /// The TLS failure, if that is the error: this side's refusal of the other, or the other side's refusal of this
    /// one.
    fn tls(&self) -> Option<&rustls::Error> {
        match self {
            Self::Read(error) => error.tls(),
            Self::Write(error) => tls::reason(error),
            Self::Resolve(_)
            | Self::NoAddress
            | Self::Forbidden(_)
            | Self::Connect(_, _)
            | Self::Unexpected
            | Self::Timeout(_)
            | Self::Refused(_) => None,
        }
    }
}

impl Outbound {
    fn queue(&mut self, bytes: &[u8], buffer_max: usize) -> Delivery {
        if self.pending.len().saturating_add(bytes.len()) > buffer_max {
            return Delivery::Dropped;
        }
        self.pending.extend(bytes);
        self.signals.pending.notify_one();
        Delivery::Buffered
    }
}

/// Keeps the connection to one peer, until the mesh is dropped or the peer is removed.
pub(super) async fn keep(shared: Rc<Shared>, peer: Rc<OutboundPeer>) {
    let mut backoff = Backoff::new(&shared.limits);
    while !peer.closing.get() {
        let mut rest = Duration::ZERO;
        let dialled = tokio::select! {
            biased;
            () = peer.closed() => return,
            dialled = dial(&shared, &peer) => dialled,
        };
        match dialled {
            Ok(connected) => {
                backoff = Backoff::new(&shared.limits);
                let mut next = Some(connected);
                while let Some((connection, theirs)) = next {
                    next = stay(&shared, &peer, &connection.stream, &theirs).await;
                }
                *peer.outbound.borrow_mut() = None;
                // A node that has just gone is not back at once, and the remaining nodes have to elect a leader.
                rest = shared.limits.backoff_first;
            }
            Err(error) => peer.failed(&shared, &error),
        }
        tokio::select! {
            () = peer.closed() => return,
            () = sleep(rest.plus(backoff.next(&shared)).into()) => {}
            () = peer.wake.notified() => backoff = Backoff::new(&shared.limits),
        }
    }
}

/// A connection, and the hello of its other end.
pub(super) type Connected = (Connection<Rc<Stream>>, Hello);

/// Uses a connection until it ends. Returns the connection that replaces it, if it was renewed.
async fn stay(
    shared: &Shared,
    peer: &OutboundPeer,
    stream: &Rc<Stream>,
    theirs: &Hello,
) -> Option<Connected> {
    // An operator may have changed the peer during the handshake.
    if shared.judge_answer(peer.node, theirs).is_err() {
        return None;
    }
    let signals = peer.open(Rc::clone(stream), &shared.introduction().me, theirs);
    shared.tell_voters(peer, theirs);
    shared.say_first_word(peer);
    // The disk first, so that it is recorded before the peer's answers are acted on.
    if let Some(disk) = shared.agreed(theirs) {
        shared.deliver(disk).await;
    }
    // A wake-up from before the connection has no meaning any more.
    peer.forget_wake().await;
    tokio::select! {
        () = hold(peer, stream, &signals) => None,
        () = shared.outlives_trust(stream, peer.node) => None,
        renewed = renewed(shared, peer, stream) => Some(renewed),
        () = peer.closed() => {
            take_leave(shared, peer, stream).await;
            None
        }
    }
}

/// Sends all waiting bytes before the connection is closed, as long as the peer takes them.
async fn take_leave(shared: &Shared, peer: &OutboundPeer, stream: &Stream) {
    let leaving = async {
        while peer.has_pending() {
            if stream.writable().await.is_err() || peer.flush().is_err() {
                return;
            }
        }
    };
    let _ = timeout(shared.limits.stall_timeout.into(), leaving).await;
}

/// Makes a connection with this node's present credentials, as soon as these differ from those of `stream`, and returns
/// it. The other side closes the old connection when it has accepted the new one, so there is always one.
async fn renewed(shared: &Shared, peer: &OutboundPeer, stream: &Stream) -> Connected {
    let (Stream::Tls(session), Some(tls)) = (stream, &shared.tls) else {
        return std::future::pending().await;
    };
    loop {
        sleep(shared.limits.certificate_check.into()).await;
        if tls.current().serial == session.serial {
            continue;
        }
        match dial(shared, peer).await {
            Ok(connected) => return connected,
            // The present connection stays in use.
            Err(error) => peer.failed(shared, &error),
        }
    }
}

/// Makes one attempt, with its handshake.
async fn dial(shared: &Shared, peer: &OutboundPeer) -> Result<Connected, DialError> {
    let patience = shared.limits.connect_timeout.into();
    let connected = timeout(patience, connect(shared, &peer.address, peer.node)).await;
    let tcp = connected.map_err(|_| DialError::Timeout("connect"))??;
    let tcp = prepare(tcp, &shared.limits)?;
    let credentials = shared.tls.as_ref().map(|tls| tls.current());
    let introduction = introduce(shared, peer, tcp, credentials.as_deref());
    let introduced = timeout(shared.limits.handshake_timeout.into(), introduction).await;
    let introduced = introduced.unwrap_or(Err(DialError::Timeout("shake hands")));
    introduced.map_err(|error| match (error.tls(), credentials) {
        (Some(reason), Some(credentials)) => {
            let failure = shared.explain(reason, peer.node.as_str(), &credentials);
            DialError::Refused(if failure.problem == TlsProblem::Garbled {
                shown(&failure.text)
            } else {
                shared.note_failure(Some(peer.node), &failure).text
            })
        }
        (_, _) => error,
    })
}

async fn connect(shared: &Shared, address: &str, node: NodeId) -> Result<TcpStream, DialError> {
    let mut failed = DialError::NoAddress;
    check_form(node, address)?;
    for address in resolve(address).await.map_err(DialError::Resolve)? {
        // A name may resolve to another address than at the start of the mesh.
        shared.security.permits(&format!("the peer {node}"), address)?;
        match TcpStream::connect(address).await {
            Ok(stream) => return Ok(stream),
            Err(error) => failed = DialError::Connect(address, error),
        }
    }
    Err(failed)
}

/// Makes the handshake on the dialling side. Returns the hello of the other side.
pub(super) async fn introduce(
    shared: &Shared,
    peer: &OutboundPeer,
    tcp: Rc<TcpStream>,
    credentials: Option<&Credentials>,
) -> Result<Connected, DialError> {
    let stream = match credentials {
        None => Stream::Clear(tcp),
        Some(credentials) => {
            let session = Session::dial(tcp, credentials, peer.node)?;
            session.shake_hands().await?;
            Stream::Tls(Box::new(session))
        }
    };
    let mut connection = Connection::new(Rc::new(stream));
    let said = connection.stream.write_all(&shared.hello_to(peer.node)).await;
    // A peer that has refused may have closed the connection already; its reason can still be read.
    let answer = match (connection.read().await, said) {
        (Err(error), Err(unsaid)) if error.tls().is_none() => return Err(unsaid.into()),
        (answer, _) => answer?,
    };
    match answer {
        (_, Frame::Welcome(theirs)) => {
            let Err(refused) = shared.judge_answer(peer.node, &theirs) else {
                connection.stream.write_all(&shared.ready).await?;
                return Ok((connection, theirs));
            };
            let text = refused.text.clone();
            if let Ok(frame) = shared.encode(&Frame::Refused(refused)) {
                connection.stream.write_all(&frame).await?;
            }
            Err(DialError::Refused(text))
        }
        (_, Frame::Refused(refused)) => {
            shared.refused_by(peer.node, Role::Node, &refused).await;
            Err(DialError::Refused(refused.text))
        }
        (_, Frame::Hello(_) | Frame::Ready | Frame::Message(_) | Frame::Died(_))
        | (_, Frame::DiedHeard(_) | Frame::Readmitted(_) | Frame::Lost) => Err(DialError::Unexpected),
    }
}

/// Resolves when the connection must be closed.
async fn hold(peer: &OutboundPeer, stream: &Stream, signals: &Signals) {
    tokio::select! {
        () = signals.close.notified() => {}
        () = ended(stream) => {}
        () = pump(peer, stream, signals) => {}
    }
}

/// Resolves at the end of the connection. The other side sends nothing over it, so any received byte also ends it.
async fn ended(stream: &Stream) {
    while stream.readable().await.is_ok() {
        take_turns().await;
        match stream.try_read(&mut [0; 1]) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Ok(_) | Err(_) => return,
        }
    }
}

/// Writes waiting bytes whenever the kernel has room, until the connection breaks.
async fn pump(peer: &OutboundPeer, stream: &Stream, signals: &Signals) {
    loop {
        if !peer.has_pending() {
            signals.pending.notified().await;
        } else if stream.writable().await.is_err() || peer.flush().is_err() {
            return;
        }
    }
}
