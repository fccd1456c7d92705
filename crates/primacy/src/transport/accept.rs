//! The side that listens: strangers become peers here, or leave.

use std::rc::Rc;

use primacy_core::{Duration, Evidence, Peer};
use tokio::net::{TcpListener, TcpStream};

use crate::clock;
use crate::codec::{Frame, encode};
use crate::handshake::{Hello, Role};

use super::Arrival;
use super::state::Shared;
use super::stream::{Connection, ReadError, Stream};

/// Why a handshake came to nothing. Refusals have been counted where they were made.
enum Failure {
    Refused,
    Broken,
    TooLong,
}

/// Accepts whoever comes.
pub(super) async fn listen(shared: Rc<Shared>, listener: TcpListener) {
    loop {
        match listener.accept().await {
            Ok((stream, _address)) => shared.spawn(serve(Rc::clone(&shared), stream)),
            Err(error) => {
                tracing::warn!("cannot accept a connection: {error}");
                shared.count(|counters| counters.accepts_failed += 1);
                tokio::time::sleep(shared.limits.accept_pause.into()).await;
            }
        }
    }
}

async fn serve(shared: Rc<Shared>, stream: TcpStream) {
    let Some(stranger) = shared.enter() else { return };
    let Ok(stream) = Stream::clear(stream, &shared.limits) else {
        // It was closed before it was accepted.
        return shared.count(|counters| counters.handshakes_broken += 1);
    };
    let mut connection = Connection::new(Rc::new(stream));
    let greeting = greet(&shared, &mut connection);
    let greeted = tokio::time::timeout(shared.limits.handshake_timeout.into(), greeting).await;
    drop(stranger);
    match greeted {
        Ok(Ok((theirs, round_trip))) => receive(&shared, &mut connection, &theirs, round_trip).await,
        Ok(Err(Failure::Refused)) => {}
        Ok(Err(Failure::Broken)) => shared.count(|counters| counters.handshakes_broken += 1),
        Ok(Err(Failure::TooLong)) => shared.count(|counters| counters.frames_too_long += 1),
        Err(_elapsed) => shared.count(|counters| counters.handshakes_timed_out += 1),
    }
}

/// The handshake, from this side. Returns who came, and how long the round trip took.
async fn greet(
    shared: &Shared,
    connection: &mut Connection<Rc<Stream>>,
) -> Result<(Hello, Duration), Failure> {
    let (_, Frame::Hello(theirs)) = connection.read().await? else { return Err(Failure::Broken) };
    if let Err(refused) = shared.judge(&theirs) {
        let frame = encode(&shared.me.election, &Frame::Refused(refused)).map_err(|_| Failure::Refused)?;
        // Whether or not it can be told, it is refused.
        let _ = connection.stream.write_all(&frame).await;
        return Err(Failure::Refused);
    }
    let asked_at = clock::now();
    connection.stream.write_all(&shared.welcome).await.map_err(|_| Failure::Broken)?;
    match connection.read().await? {
        (_, Frame::Ready) => Ok((theirs, clock::now().since(asked_at))),
        (_, Frame::Refused(refused)) => {
            shared.refused_by(theirs.identity.node, &refused);
            Err(Failure::Refused)
        }
        (
            _,
            Frame::Hello(_) | Frame::Welcome(_) | Frame::Message(_) | Frame::Died(_) | Frame::DiedHeard(_),
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

/// Listens to a peer until it or this side closes the connection.
async fn receive(
    shared: &Rc<Shared>,
    connection: &mut Connection<Rc<Stream>>,
    theirs: &Hello,
    round_trip: Duration,
) {
    let place = shared.admit(theirs, round_trip);
    let disk = shared.agreed(theirs);
    if let Some(link) = shared.links.get(&theirs.identity.node).filter(|_| theirs.role == Role::Node) {
        link.heard_from(theirs.identity);
    }
    // The disk first, so that it is recorded before anything that this peer says is acted on.
    if let Some(disk) = disk {
        shared.deliver(disk).await;
    }
    if theirs.role == Role::Node {
        let (priority, witness) = (theirs.priority, theirs.witness);
        let peer = Peer { identity: theirs.identity, priority, witness, round_trip };
        shared.deliver(Arrival::Evidence(Evidence::Connected(peer))).await;
    }
    tokio::select! {
        biased;
        () = place.close.notified() => {}
        () = hear(shared, connection, theirs) => {}
    }
    if let Some(disconnected) = shared.retire(&place, theirs) {
        shared.deliver(disconnected).await;
    }
}

/// Hands on what a peer says, until there is nothing more to hear.
async fn hear(shared: &Shared, connection: &mut Connection<Rc<Stream>>, theirs: &Hello) {
    loop {
        match connection.read().await {
            Ok((election, _)) if election != shared.me.election => {
                shared.count(|counters| counters.frames_of_other_elections += 1);
            }
            Ok((_, frame)) => on_frame(shared, &connection.stream, theirs, frame).await,
            Err(ReadError::Decode(error)) => {
                tracing::debug!(node = %theirs.identity.node, "a frame was dropped: {error}");
                let unknown = matches!(error, crate::codec::DecodeError::Unknown(_));
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
        (Role::Node, Frame::Message(message)) if message.incarnation == theirs.identity.incarnation => {
            shared.count(|counters| counters.frames_received += 1);
            shared.deliver(Arrival::Message { from: theirs.identity.node, message }).await;
        }
        (_, Frame::Message(_)) => shared.count(|counters| counters.frames_misattributed += 1),
        (Role::GuardianOf, Frame::Died(identity)) if identity == theirs.identity => {
            shared.deliver(Arrival::Evidence(Evidence::Died(identity))).await;
            // What it leads to comes first; the guardian can wait.
            tokio::task::yield_now().await;
            if let Ok(receipt) = encode(&shared.me.election, &Frame::DiedHeard(identity)) {
                // A guardian that does not get its receipt says it again.
                let _ = stream.write_all(&receipt).await;
            }
        }
        // A node vouches for nobody, and a guardian only for the process that it guards.
        (_, Frame::Died(_)) => shared.count(|counters| counters.deaths_refused += 1),
        // These belong to a handshake, or to the other direction.
        (_, Frame::Hello(_) | Frame::Welcome(_) | Frame::Refused(_) | Frame::Ready | Frame::DiedHeard(_)) => {
            shared.count(|counters| counters.frames_malformed += 1)
        }
    }
}
