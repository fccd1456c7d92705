//! The accepting side: an unauthenticated connection completes its handshake here, or is closed.

use std::net::SocketAddr;
use std::rc::Rc;

use primacy_core::{Duration, Evidence, Peer};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{Instant, timeout_at};

use crate::clock;
use crate::codec::{DecodeError, Frame, Refused};
use crate::handshake::{Hello, Role, TlsProblem};
use crate::log_limit::LogLimit;

use super::Arrival;
use super::pending::PendingConnection;
use super::session::Session;
use super::state::{ConnectionSlot, Shared};
use super::stream::{Connection, ReadError, Stream, hang_up, prepare};
use super::tls::{self, TlsFailure};

/// The first byte of a TLS handshake. A frame of Primacy cannot begin with it, because it would be too long.
const TLS_FIRST_BYTE: u8 = 0x16;

/// The reason why a handshake failed. Refusals were counted already.
#[derive(Debug)]
pub(super) enum Failure {
    Refused,
    Broken,
    TooLong,
}

/// A process that has dialled this node and completed the handshake.
#[derive(Debug)]
pub(super) struct Caller {
    pub(super) hello: Hello,
    /// The number of its [`Hello`], in the order of their receipt.
    pub(super) number: u64,
    pub(super) round_trip: Duration,
}

/// Accepts all connections.
pub(super) async fn listen(shared: Rc<Shared>, listener: TcpListener) {
    let told = LogLimit::default();
    loop {
        match listener.accept().await {
            Ok((stream, address)) => shared.spawn(serve(Rc::clone(&shared), stream, address)),
            Err(error) => {
                if let Some(held_back) = told.due(shared.limits.refusal_log_pause) {
                    tracing::warn!(held_back, "cannot accept a connection: {error}");
                }
                shared.count(|counters| counters.accepts_failed += 1);
                tokio::time::sleep(shared.limits.accept_pause.into()).await;
            }
        }
    }
}

async fn serve(shared: Rc<Shared>, stream: TcpStream, address: SocketAddr) {
    let Ok(tcp) = prepare(stream, &shared.limits) else {
        // The other side has closed it already.
        return shared.count(|counters| counters.handshakes_broken += 1);
    };
    let pending = shared.enter(&tcp);
    // One deadline for the whole handshake, so that a refusal does not prolong the connection.
    let deadline = Instant::now() + shared.limits.handshake_timeout.into();
    let greeted = tokio::select! {
        // If the connection must make room, bytes that it has sent are still processed first.
        biased;
        greeted = timeout_at(deadline, shake_hands(&shared, &tcp, address, &pending)) => greeted,
        () = pending.must_leave() => return,
    };
    match greeted {
        Ok(Ok((mut connection, caller))) => {
            drop(pending);
            receive(&shared, &mut connection, &caller).await;
        }
        // It counts against the limit until the refusal was read, so that refused connections are limited too.
        Ok(Err(Failure::Refused)) => tokio::select! {
            _ = timeout_at(deadline, hang_up(&tcp)) => {}
            () = pending.must_leave() => {}
        },
        Ok(Err(Failure::Broken)) => shared.count(|counters| counters.handshakes_broken += 1),
        Ok(Err(Failure::TooLong)) => shared.count(|counters| counters.frames_too_long += 1),
        Err(_elapsed) => shared.count(|counters| counters.handshakes_timed_out += 1),
    }
}

/// The steps of the handshake: checks the security of the connection, and admits the dialling node.
pub(super) async fn shake_hands(
    shared: &Shared,
    tcp: &Rc<TcpStream>,
    address: SocketAddr,
    pending: &PendingConnection,
) -> Result<(Connection<Rc<Stream>>, Caller), Failure> {
    let mut connection = Connection::new(Rc::new(secure(shared, tcp, address, pending).await?));
    let caller = greet(shared, &mut connection, pending).await?;
    Ok((connection, caller))
}

/// Secures the connection as configured, or finds that the other side expects something else.
async fn secure(
    shared: &Shared,
    tcp: &Rc<TcpStream>,
    address: SocketAddr,
    pending: &PendingConnection,
) -> Result<Stream, Failure> {
    let mut first = [0];
    if tcp.peek(&mut first).await.map_err(|_| Failure::Broken)? == 0 {
        return Err(Failure::Broken);
    }
    pending.has_spoken();
    match (&shared.tls, first[0] == TLS_FIRST_BYTE) {
        (None, false) => Ok(Stream::Clear(Rc::clone(tcp))),
        (None, true) => {
            let text = tls::failure::not_cleartext(shared.node, &unidentified(address));
            Err(refuse_in_the_clear(shared, tcp, TlsProblem::NotCleartext, text).await)
        }
        (Some(_), false) => {
            // The refusal names the node of the hello; nothing else in that hello counts.
            let mut connection = Connection::new(Rc::new(Stream::Clear(Rc::clone(tcp))));
            let node = match connection.read().await {
                Err(ReadError::Decode(DecodeError::OtherVersion { node, .. })) => node,
                read => {
                    let (_, Frame::Hello(theirs)) = read? else { return Err(Failure::Broken) };
                    theirs.identity.node
                }
            };
            let text = tls::failure::cleartext(shared.node, node.as_str());
            Err(refuse_in_the_clear(shared, tcp, TlsProblem::Cleartext, text).await)
        }
        (Some(tls), true) => {
            let credentials = tls.current();
            let session = Session::answer(Rc::clone(tcp), &credentials).map_err(|_| Failure::Broken)?;
            let Err(error) = session.shake_hands().await else {
                let presented = session.presented();
                let leaf = presented.first().ok_or(Failure::Broken)?;
                pending.is_known(leaf);
                return Ok(Stream::Tls(Box::new(session)));
            };
            let Some(error) = tls::reason(&error) else { return Err(Failure::Broken) };
            let failure = shared.explain(error, &unidentified(address), &credentials);
            if failure.problem == TlsProblem::Garbled {
                return Err(Failure::Broken);
            }
            shared.note_failure(None, &failure);
            Err(Failure::Refused)
        }
    }
}

/// Refuses a client in cleartext: before TLS, both sides read bytes that are not TLS as cleartext. Whatever name the
/// client states, it is unauthenticated.
async fn refuse_in_the_clear(
    shared: &Shared,
    tcp: &Rc<TcpStream>,
    problem: TlsProblem,
    text: String,
) -> Failure {
    let failure = TlsFailure { problem, by_peer: false, text };
    let refused = shared.note_failure(None, &failure);
    tell_refusal(shared, &Stream::Clear(Rc::clone(tcp)), refused).await;
    Failure::Refused
}

/// Sends a refusal, which is final whether or not it can be sent.
async fn tell_refusal(shared: &Shared, stream: &Stream, refused: Refused) {
    if let Ok(frame) = shared.encode(&Frame::Refused(refused)) {
        let _ = stream.write_all(&frame).await;
    }
}

/// Without the port, which differs each time and would hide that it is the same client.
fn unidentified(address: SocketAddr) -> String {
    format!("an unidentified peer at {}", address.ip().to_canonical())
}

/// Makes the handshake on the accepting side.
async fn greet(
    shared: &Shared,
    connection: &mut Connection<Rc<Stream>>,
    pending: &PendingConnection,
) -> Result<Caller, Failure> {
    let judged = match connection.read().await {
        Ok((_, Frame::Hello(theirs))) => {
            let named = shared.judge_name(&connection.stream, theirs.identity.node);
            if named.is_ok() {
                shared.heed_known_disk(&theirs).await;
            }
            named.and_then(|()| shared.judge(&theirs)).map(|()| theirs)
        }
        Err(ReadError::Decode(DecodeError::OtherVersion { node, versions })) => {
            let judged = shared.judge_name(&connection.stream, node);
            judged.and_then(|()| Err(shared.refuse_version(node, versions)))
        }
        Ok((_, Frame::Welcome(_) | Frame::Refused(_) | Frame::Ready | Frame::Message(_)))
        | Ok((_, Frame::Died(_) | Frame::DiedHeard(_) | Frame::Readmitted(_) | Frame::Lost)) => {
            return Err(Failure::Broken);
        }
        Err(error) => return Err(error.into()),
    };
    let hello = match judged {
        Ok(hello) => hello,
        Err(refused) => {
            tell_refusal(shared, &connection.stream, refused).await;
            return Err(Failure::Refused);
        }
    };
    let number = shared.number_hello();
    pending.is_known(hello.identity.node.as_str().as_bytes());
    let asked_at = clock::now();
    connection.stream.write_all(&shared.introduction().welcome).await.map_err(|_| Failure::Broken)?;
    match connection.read().await? {
        (_, Frame::Ready) => Ok(Caller { hello, number, round_trip: clock::now().since(asked_at) }),
        (_, Frame::Refused(refused)) => {
            shared.refused_by(hello.identity.node, hello.role, &refused).await;
            Err(Failure::Refused)
        }
        (
            _,
            Frame::Hello(_)
            | Frame::Welcome(_)
            | Frame::Message(_)
            | Frame::Died(_)
            | Frame::DiedHeard(_)
            | Frame::Readmitted(_)
            | Frame::Lost,
        ) => Err(Failure::Broken),
    }
}

impl From<ReadError> for Failure {
    fn from(error: ReadError) -> Self {
        match error {
            ReadError::TooLong(_) => Self::TooLong,
            ReadError::Closed | ReadError::Io(_) | ReadError::Decode(_) => Self::Broken,
        }
    }
}

/// Receives from a peer until it or this side closes the connection.
async fn receive(shared: &Rc<Shared>, connection: &mut Connection<Rc<Stream>>, caller: &Caller) {
    let theirs = &caller.hello;
    let admitted = match theirs.role {
        Role::Node => connect(shared, connection, caller).await,
        Role::GuardianOf => {
            let admitted = shared.admit(caller);
            admitted.inspect(|_| _ = shared.agreed(theirs))
        }
    };
    let Some(place) = admitted else { return };
    let stream = Rc::clone(&connection.stream);
    tokio::select! {
        biased;
        () = place.close.notified() => {}
        () = shared.outlives_trust(&stream, theirs.identity.node) => {}
        () = hear(shared, connection, theirs) => {}
    }
    shared.deliver_when(|| shared.retire(&place, theirs)).await;
}

/// Admits a node, and tells the driver. The driver's queue may be full; the node is judged again after the wait.
async fn connect(
    shared: &Shared,
    connection: &mut Connection<Rc<Stream>>,
    caller: &Caller,
) -> Option<ConnectionSlot> {
    let theirs = &caller.hello;
    // The disk first, so that it is recorded before any message of this peer is acted on.
    shared.judge(theirs).ok()?;
    if let Some(disk) = shared.agreed(theirs) {
        shared.deliver(disk).await;
    }
    let mut place = None;
    let admit = || {
        place = Some(shared.admit(caller)?);
        if let Some(link) = shared.link(theirs.identity.node) {
            link.heard_from(theirs.identity);
        }
        shared.has_heard(theirs.identity.node);
        let (priority, witness, round_trip) = (theirs.priority, theirs.witness, caller.round_trip);
        let peer = Peer { identity: theirs.identity, priority, witness, round_trip };
        Some(Arrival::Evidence(Evidence::Connected(peer)))
    };
    shared.deliver_when(admit).await;
    if shared.introduction().me.metadata.is_some() {
        connection.allow_metadata();
    }
    place
}

/// Delivers a peer's messages, until the connection ends.
async fn hear(shared: &Shared, connection: &mut Connection<Rc<Stream>>, theirs: &Hello) {
    loop {
        match connection.read().await {
            Ok((election, _)) if election != shared.election => {
                shared.count(|counters| counters.frames_of_other_elections += 1);
            }
            Ok((_, frame)) => on_frame(shared, &connection.stream, theirs, frame).await,
            Err(ReadError::Decode(error)) => {
                tracing::debug!(node = %theirs.identity.node, "a frame was dropped: {error}");
                let unknown = matches!(error, DecodeError::Unknown(_));
                shared.count(|counters| match unknown {
                    true => counters.frames_unknown += 1,
                    false => counters.frames_malformed += 1,
                });
            }
            Err(ReadError::TooLong(_)) => return shared.count(|counters| counters.frames_too_long += 1),
            Err(ReadError::Closed | ReadError::Io(_)) => return,
        }
    }
}

async fn on_frame(shared: &Shared, stream: &Stream, theirs: &Hello, frame: Frame) {
    match (theirs.role, frame) {
        (Role::Node, Frame::Message(message))
            if message.incarnation() == Some(theirs.identity.incarnation) =>
        {
            let from = theirs.identity.node;
            if shared.is_within_reach(from, message.highest_term()) {
                shared.count(|counters| counters.frames_received += 1);
                shared.has_heard(from);
                shared.deliver(Arrival::Message { from, message }).await;
            }
        }
        (_, Frame::Message(_)) => shared.count(|counters| counters.frames_misattributed += 1),
        (Role::GuardianOf, Frame::Died(identity)) if identity == theirs.identity => {
            shared.deliver(Arrival::Evidence(Evidence::Died(identity))).await;
            // The driver's effects come first; the guardian can wait.
            tokio::task::yield_now().await;
            if let Ok(receipt) = shared.encode(&Frame::DiedHeard(identity)) {
                // A guardian that does not get its receipt repeats its notice.
                let _ = stream.write_all(&receipt).await;
            }
        }
        (Role::Node, Frame::Readmitted(term)) => {
            let by = theirs.identity.node;
            if shared.is_within_reach(by, term) {
                shared.deliver(Arrival::Evidence(Evidence::Readmitted { by, term })).await;
            }
        }
        (Role::Node, Frame::Lost) => shared.has_lost(theirs),
        // Nodes report no deaths, and a guardian may report only that of its own node.
        (_, Frame::Died(_)) => shared.count(|counters| counters.deaths_refused += 1),
        // These frames belong to the handshake, or to the other direction.
        (_, Frame::Hello(_) | Frame::Welcome(_) | Frame::Refused(_) | Frame::Ready)
        | (_, Frame::DiedHeard(_) | Frame::Readmitted(_) | Frame::Lost) => {
            shared.count(|counters| counters.frames_malformed += 1)
        }
    }
}
