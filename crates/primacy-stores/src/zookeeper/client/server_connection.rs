//! [`ServerConnection`]: a TCP connection to one server, over which a session has begun or continues.

use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};

use super::exchange::{self, ConnectionEnd, Exchange, Outgoing, ZnodeWatches, xid};
use super::jute::{self, Grant, JuteReader, JuteWriter};
use super::{ClientError, code, operation};

/// The shortest session that is accepted from a server: a shorter one would need pings without a pause. ZooKeeper grants at least two
/// ticks.
const SESSION_MIN: Duration = Duration::from_millis(100);

/// The maximum number of requests that wait for answers.
pub(super) const WAITING_MAX: usize = 128;

/// A server that has answered nothing for this part of the session's timeout is given up, which leaves the time to reach another one.
const SILENCE: f64 = 0.4;

/// A ping is sent when nothing else was for this part of the session's timeout.
const PING: f64 = 0.15;

/// The longest timeout of which these are parts. A longer session is no reason to stay with a silent server.
const TIMEOUT_MAX: Duration = Duration::from_secs(25);

/// The session that a connection is to begin or to continue.
#[derive(Clone)]
pub(super) struct SessionRequest {
    pub(super) login: Option<String>,
    pub(super) timeout: Duration,
    /// Zero for a new session.
    pub(super) session: i64,
    pub(super) password: Vec<u8>,
    /// The newest transaction that was seen. A server that is further behind refuses the session.
    pub(super) zxid: i64,
}

/// A connection to a server.
#[derive(Debug)]
pub(super) struct ServerConnection {
    pub(super) server: String,
    pub(super) grant: Grant,
    pub(super) exchange: Exchange,
    reader: OwnedReadHalf,
    writer: OwnedWriteHalf,
    received: Vec<u8>,
    unsent: Vec<u8>,
    /// The time of the last answer.
    pub(super) answered_at: Instant,
    sent_at: Instant,
}

impl ServerConnection {
    /// Connects, begins or continues a session, logs in, and waits for the answer to a ping: some servers accept a session and answer
    /// nothing.
    pub(super) async fn open(server: &str, request: &SessionRequest) -> Result<Self, ConnectionEnd> {
        let stream = TcpStream::connect(server).await.map_err(lost)?;
        stream.set_nodelay(true).map_err(lost)?;
        let (reader, writer) = stream.into_split();
        let now = Instant::now();
        let mut connection = Self {
            server: server.to_owned(),
            grant: Grant { session: 0, password: Vec::new(), timeout: Duration::ZERO },
            exchange: Exchange::default(),
            reader,
            writer,
            received: Vec::new(),
            unsent: Vec::new(),
            answered_at: now,
            sent_at: now,
        };
        connection.writer.write_all(&opening(request)).await.map_err(lost)?;
        let message = connection.message().await?;
        connection.grant = Grant::read(&mut JuteReader(&message))?;
        connection.check_grant(request)?;
        if request.login.is_some() {
            connection.expect(xid::LOGIN).await?;
        }
        connection.expect(xid::PING).await?;
        connection.answered_at = Instant::now();
        Ok(connection)
    }

    fn check_grant(&self, request: &SessionRequest) -> Result<(), ConnectionEnd> {
        let Grant { session, timeout, .. } = self.grant;
        match (request.session, session) {
            (0, 0) => Err(ConnectionEnd::Lost("it has begun no session".to_owned())),
            (_, 0) => Err(ConnectionEnd::SessionOver(ClientError::expired())),
            // Some servers that imitate ZooKeeper do this when the old session has expired.
            (asked, _) if asked != 0 && asked != session => {
                let why = "the server went on with another session after the connection was lost";
                Err(ConnectionEnd::SessionOver(ClientError::Ended(why.to_owned())))
            }
            (_, _) if timeout < SESSION_MIN => {
                Err(ConnectionEnd::Lost(format!("it has granted a session of {timeout:?} only")))
            }
            (_, _) => Ok(()),
        }
    }

    /// Reads the answer with this number.
    async fn expect(&mut self, due: i32) -> Result<(), ConnectionEnd> {
        let message = self.message().await?;
        let mut reader = JuteReader(&message);
        let (xid, _zxid, error) = exchange::header(&mut reader)?;
        if (xid, error) == (due, code::OK) {
            return Ok(());
        }
        let why = format!("it has answered with the number {xid} and the error {error}, and {due} is due");
        Err(ConnectionEnd::Lost(why))
    }

    /// Reads one message.
    async fn message(&mut self) -> Result<Vec<u8>, ConnectionEnd> {
        loop {
            let mut rest = &self.received[..];
            if let Some(message) = jute::message(&mut rest)? {
                let (message, taken) = (message.to_vec(), self.received.len() - rest.len());
                self.received.drain(..taken);
                return Ok(message);
            }
            self.read().await?;
        }
    }

    /// Reads more bytes. Dropping the future loses none.
    async fn read(&mut self) -> Result<(), ConnectionEnd> {
        match self.reader.read_buf(&mut self.received).await.map_err(lost)? {
            0 => Err(ConnectionEnd::Lost("it has closed the connection".to_owned())),
            _ => Ok(()),
        }
    }

    /// Sends requests and handles answers until the connection ends. Once `open` is closed, it closes the session.
    pub(super) async fn serve(
        &mut self,
        requests: &mut mpsc::Receiver<Outgoing>,
        watches: &mut ZnodeWatches,
        open: &mut mpsc::Receiver<()>,
    ) -> ConnectionEnd {
        let timeout = self.grant.timeout.min(TIMEOUT_MAX);
        let (silence, pause) = (timeout.mul_f64(SILENCE), timeout.mul_f64(PING));
        let (mut is_closing, mut was_late) = (false, false);
        loop {
            match self.exchange.receive(&mut self.received, watches) {
                Ok(true) => self.answered_at = Instant::now(),
                Ok(false) => {}
                Err(end) => return end,
            }
            let silent_at = self.exchange.unanswered_since().map(|since| since + silence);
            let is_late = silent_at.is_some_and(|at| Instant::now() >= at);
            // What has arrived is read once more: perhaps this process stood still, and not the server.
            if is_late && was_late {
                return ConnectionEnd::Lost(format!("it has answered nothing for {silence:?}"));
            }
            was_late = is_late;
            let ping_at = self.sent_at + pause;
            tokio::select! {
                biased;
                read = self.reader.read_buf(&mut self.received) => match read {
                    Ok(0) => return ConnectionEnd::Lost("it has closed the connection".to_owned()),
                    Ok(_) => {}
                    Err(error) => return lost(error),
                },
                written = self.writer.write(&self.unsent), if !self.unsent.is_empty() => match written {
                    Ok(count) => drop(self.unsent.drain(..count)),
                    Err(error) => return lost(error),
                },
                Some(request) = requests.recv(), if self.exchange.waiting() < WAITING_MAX => {
                    let bytes = self.exchange.send(request);
                    self.put(bytes);
                }
                None = open.recv(), if !is_closing => {
                    is_closing = true;
                    let bytes = self.exchange.close();
                    self.put(bytes);
                }
                () = sleep_until(ping_at), if !self.exchange.is_pinged() => {
                    let bytes = self.exchange.ping();
                    self.put(bytes);
                }
                // The loop ends.
                () = sleep_until(silent_at.unwrap_or(ping_at)), if silent_at.is_some() => {}
            }
        }
    }

    fn put(&mut self, bytes: Vec<u8>) {
        self.unsent.extend(bytes);
        self.sent_at = Instant::now();
    }
}

/// Returns the first messages of a connection: the session; the login, which a server handles before all requests; and a ping.
fn opening(request: &SessionRequest) -> Vec<u8> {
    let milliseconds = i32::try_from(request.timeout.as_millis()).unwrap_or(i32::MAX);
    let session = JuteWriter::default()
        .int(0)
        .long(request.zxid)
        .int(milliseconds)
        .long(request.session)
        .buffer(&request.password)
        .flag(false);
    let mut bytes = session.framed();
    if let Some(login) = &request.login {
        let login =
            JuteWriter::default().int(xid::LOGIN).int(operation::LOGIN).int(0).text("digest").text(login);
        bytes.extend(login.framed());
    }
    bytes.extend(Exchange::default().ping());
    bytes
}

fn lost(error: std::io::Error) -> ConnectionEnd {
    ConnectionEnd::Lost(error.to_string())
}
