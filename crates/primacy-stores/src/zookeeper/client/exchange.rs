//! [`Exchange`]: the requests and answers of one connection, without the connection.
//!
//! A server answers the requests of a connection in their order. An answer that is not the next one, or that is not of the requested type,
//! ends the connection, and so the requests that wait for answers fail; whether a server has carried them out is unknown.

use std::collections::{HashMap, VecDeque};
use std::fmt;

use tokio::sync::oneshot;
use tokio::time::Instant;

use super::jute::{self, JuteReader, JuteWriter, Malformed, ZnodeChange};
use super::{ClientError, code, operation};

/// The size to which the buffer for received bytes shrinks after a long message.
const BUFFER_KEPT: usize = 64 * 1024;

/// The numbers of messages that are not answers to a numbered request.
pub(super) mod xid {
    pub(crate) const NOTIFICATION: i32 = -1;
    pub(crate) const PING: i32 = -2;
    pub(crate) const LOGIN: i32 = -4;
}

/// The end of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ConnectionEnd {
    /// The session may continue over another connection.
    Lost(String),
    /// The session has ended too.
    SessionOver(ClientError),
}

impl From<Malformed> for ConnectionEnd {
    fn from(Malformed(why): Malformed) -> Self {
        Self::Lost(format!("an answer is wrong: {why}"))
    }
}

/// Decodes an answer, and passes it to the caller.
pub(super) type Settle =
    Box<dyn FnOnce(Result<&mut JuteReader<'_>, ClientError>) -> Result<(), Malformed> + Send>;

/// A request that was not sent yet.
pub(super) struct Outgoing {
    /// The code of the [`operation`].
    pub(super) operation: i32,
    pub(super) body: Vec<u8>,
    pub(super) watch: Option<WatchOrder>,
    pub(super) settle: Settle,
}

/// A watch that a request sets if it succeeds.
#[derive(Debug)]
pub(super) struct WatchOrder {
    pub(super) path: String,
    pub(super) scope: WatchScope,
    pub(super) fire: oneshot::Sender<()>,
}

/// The part of a znode that is watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum WatchScope {
    /// Its existence and its data.
    Znode,
    /// Its list of children.
    Children,
}

/// The watches of a session. Each fires once.
#[derive(Debug, Default)]
pub(super) struct ZnodeWatches(HashMap<(String, WatchScope), Vec<oneshot::Sender<()>>>);

impl ZnodeWatches {
    fn set(&mut self, order: WatchOrder) {
        // Those that were given up.
        self.0.retain(|_, waiting| {
            waiting.retain(|fire| !fire.is_closed());
            !waiting.is_empty()
        });
        self.0.entry((order.path, order.scope)).or_default().push(order.fire);
    }

    /// Fires the watches that a change concerns. A watch that was given up still fires at the server, so there may be none.
    fn fire(&mut self, change: ZnodeChange, path: &str) {
        let scopes: &[WatchScope] = match change {
            ZnodeChange::Created | ZnodeChange::Data => &[WatchScope::Znode],
            ZnodeChange::Children => &[WatchScope::Children],
            ZnodeChange::Deleted => &[WatchScope::Znode, WatchScope::Children],
        };
        for scope in scopes {
            // Dropping the sender wakes its receiver.
            self.0.remove(&(path.to_owned(), *scope));
        }
    }

    /// Fires all of them.
    pub(super) fn fire_all(&mut self) {
        self.0.clear();
    }

    #[cfg(test)]
    pub(super) fn count(&self) -> usize {
        self.0.values().map(Vec::len).sum()
    }
}

/// The state of one connection.
#[derive(Debug, Default)]
pub(super) struct Exchange {
    /// The number of the last request.
    last_xid: i32,
    /// The newest transaction that the server has shown.
    pub(super) zxid: i64,
    waiting: VecDeque<Waiting>,
    /// The time of the ping that waits for its answer.
    pinged_at: Option<Instant>,
}

/// A request that waits for its answer.
struct Waiting {
    xid: i32,
    sent_at: Instant,
    operation: i32,
    watch: Option<WatchOrder>,
    /// `None` for the request to close the session.
    settle: Option<Settle>,
}

impl Exchange {
    /// Takes a request, and returns its bytes.
    pub(super) fn send(&mut self, request: Outgoing) -> Vec<u8> {
        self.request(request.operation, &request.body, request.watch, Some(request.settle))
    }

    /// Returns the bytes of the request to close the session.
    pub(super) fn close(&mut self) -> Vec<u8> {
        self.request(operation::CLOSE, &[], None, None)
    }

    fn request(
        &mut self,
        operation: i32,
        body: &[u8],
        watch: Option<WatchOrder>,
        settle: Option<Settle>,
    ) -> Vec<u8> {
        self.last_xid = self.last_xid.checked_add(1).unwrap_or(1);
        let (xid, sent_at) = (self.last_xid, Instant::now());
        self.waiting.push_back(Waiting { xid, sent_at, operation, watch, settle });
        let mut written = JuteWriter::default().int(self.last_xid).int(operation);
        written.0.extend(body);
        written.framed()
    }

    /// Returns the bytes of a ping.
    pub(super) fn ping(&mut self) -> Vec<u8> {
        self.pinged_at = Some(Instant::now());
        JuteWriter::default().int(xid::PING).int(operation::PING).framed()
    }

    /// Returns whether a ping waits for its answer; there is one at a time.
    pub(super) fn is_pinged(&self) -> bool {
        self.pinged_at.is_some()
    }

    /// Returns the time of the oldest message that waits for its answer. A server that answers pings alone answers nothing that counts.
    pub(super) fn unanswered_since(&self) -> Option<Instant> {
        let request = self.waiting.front().map(|waiting| waiting.sent_at);
        request.into_iter().chain(self.pinged_at).min()
    }

    /// Returns the number of requests that wait for answers.
    pub(super) fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Handles the complete messages among the received bytes, and removes them. Returns whether there was an answer; notifications do not
    /// show that the server answers.
    pub(super) fn receive(
        &mut self,
        received: &mut Vec<u8>,
        watches: &mut ZnodeWatches,
    ) -> Result<bool, ConnectionEnd> {
        let mut rest = &received[..];
        let mut is_answered = false;
        while let Some(message) = jute::message(&mut rest)? {
            is_answered |= self.handle(JuteReader(message), watches)?;
        }
        let handled = received.len() - rest.len();
        received.drain(..handled);
        if received.is_empty() {
            received.shrink_to(BUFFER_KEPT);
        }
        Ok(is_answered)
    }

    fn handle(
        &mut self,
        mut reader: JuteReader<'_>,
        watches: &mut ZnodeWatches,
    ) -> Result<bool, ConnectionEnd> {
        let (xid, zxid, error) = header(&mut reader)?;
        match xid {
            xid::NOTIFICATION => {
                let (change, path) = ZnodeChange::read(&mut reader)?;
                reader.end()?;
                watches.fire(change, path);
                return Ok(false);
            }
            xid::PING if self.pinged_at.is_some() => self.pinged_at = None,
            _ => {
                self.zxid = self.zxid.max(zxid);
                self.settle(xid, error, &mut reader, watches)?;
            }
        }
        Ok(true)
    }

    fn settle(
        &mut self,
        xid: i32,
        error: i32,
        reader: &mut JuteReader<'_>,
        watches: &mut ZnodeWatches,
    ) -> Result<(), ConnectionEnd> {
        let request = match self.waiting.pop_front() {
            Some(request) if request.xid == xid => request,
            Some(request) => {
                return Err(Malformed(format!("it has the number {xid}, and {} is due", request.xid)).into());
            }
            None => return Err(Malformed(format!("it has the number {xid}, and none is due")).into()),
        };
        let Some(settle) = request.settle else {
            let closed = ClientError::Ended("it was closed".to_owned());
            return Err(ConnectionEnd::SessionOver(closed));
        };
        let is_absence = request.operation == operation::EXISTS && error == code::NO_NODE;
        if let Some(order) = request.watch.filter(|_| error == code::OK || is_absence) {
            watches.set(order);
        }
        match error {
            code::OK => settle(Ok(reader))?,
            _ => settle(Err(ClientError::of_code(error)))?,
        }
        Ok(())
    }
}

/// Reads the number of an answer, the newest transaction that the server has seen, and an error that does not end the session.
pub(super) fn header(reader: &mut JuteReader<'_>) -> Result<(i32, i64, i32), ConnectionEnd> {
    let (xid, zxid, error) = (reader.int()?, reader.long()?, reader.int()?);
    match error {
        code::SESSION_EXPIRED => Err(ConnectionEnd::SessionOver(ClientError::expired())),
        code::AUTH_FAILED | code::AUTH_REQUIRED => Err(ConnectionEnd::SessionOver(ClientError::AuthFailed)),
        _ => Ok((xid, zxid, error)),
    }
}

impl fmt::Debug for Waiting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Waiting").field("xid", &self.xid).finish_non_exhaustive()
    }
}
