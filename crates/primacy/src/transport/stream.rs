//! The bytes and frames of one connection.

use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use tokio::net::TcpStream;

use crate::codec::{DecodeError, Deframer, Frame, TooLong, decode};

use super::Limits;
use super::session::Session;
use super::tls;

/// The bytes per read. The messages of an election have less than a hundred bytes.
const READ_LENGTH: usize = 4096;

/// The bytes per read with metadata: one message has many records.
const METADATA_READ_LENGTH: usize = 64 * 1024;

/// The most bytes that are discarded after a refusal: more than the other side can have sent before it was refused.
const DISCARD_MAX: usize = crate::connections::FRAME_LENGTH_MAX;

/// The byte stream of a connection. Only the `async` methods wait.
#[derive(Debug)]
pub(super) enum Stream {
    /// Bytes as they are, in cleartext.
    Clear(Rc<TcpStream>),
    /// Protected.
    Tls(Box<Session>),
}

/// The reason why nothing more can be read from a connection.
#[derive(Debug, thiserror::Error)]
pub(super) enum ReadError {
    #[error("the other side closed the connection")]
    Closed,
    #[error("the connection broke: {0}")]
    Io(#[from] io::Error),
    #[error(transparent)]
    TooLong(#[from] TooLong),
    /// One frame is invalid; the next one can be read.
    #[error(transparent)]
    Decode(#[from] DecodeError),
}

impl Stream {
    /// Writes as much as the kernel takes at once. With TLS, up to one record may remain, which [`flush`](Self::flush)
    /// sends.
    pub(super) fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Clear(stream) => stream.try_write(bytes),
            Self::Tls(session) => session.try_write(bytes),
        }
    }

    /// True if the kernel has not taken all written bytes yet.
    pub(super) fn has_unsent(&self) -> bool {
        match self {
            Self::Clear(_) => false,
            Self::Tls(session) => session.has_unsent(),
        }
    }

    /// Passes the remaining bytes to the kernel; returns true if it has taken all.
    pub(super) fn flush(&self) -> io::Result<bool> {
        match self {
            Self::Clear(_) => Ok(true),
            Self::Tls(session) => session.flush(),
        }
    }

    /// Reads available bytes.
    pub(super) fn try_read(&self, bytes: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Clear(stream) => stream.try_read(bytes),
            Self::Tls(session) => session.try_read(bytes),
        }
    }

    /// Resolves when a write may succeed.
    pub(super) async fn writable(&self) -> io::Result<()> {
        match self {
            Self::Clear(stream) => stream.writable().await,
            Self::Tls(session) => session.tcp.writable().await,
        }
    }

    /// Resolves when a read may succeed.
    pub(super) async fn readable(&self) -> io::Result<()> {
        match self {
            Self::Clear(stream) => stream.readable().await,
            Self::Tls(session) if session.has_unread() => Ok(()),
            Self::Tls(session) => session.tcp.readable().await,
        }
    }

    /// Writes all bytes.
    pub(super) async fn write_all(&self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            self.writable().await?;
            match self.try_write(bytes) {
                Ok(written) => bytes = bytes.get(written..).unwrap_or_default(),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
        }
        while !self.flush()? {
            self.writable().await?;
        }
        Ok(())
    }
}

/// Closes this side's direction, and waits until the other side has read the last bytes and closes the connection. If a
/// connection is closed while received bytes are unread, the kernel may discard the last bytes sent. A client that
/// keeps sending may lose them.
pub(super) async fn hang_up(tcp: &TcpStream) {
    if rustix::net::shutdown(tcp, rustix::net::Shutdown::Write).is_err() {
        return;
    }
    let mut discarded = 0;
    while discarded < DISCARD_MAX && tcp.readable().await.is_ok() {
        take_turns().await;
        match tcp.try_read(&mut [0; READ_LENGTH]) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Ok(0) | Err(_) => return,
            Ok(count) => discarded += count,
        }
    }
}

/// Must be awaited in each loop that reads. While bytes are available, [`TcpStream::readable`] neither waits nor counts
/// as work for the scheduler; so a sender that is faster than the reader would block the thread and all its timers.
pub(super) async fn take_turns() {
    tokio::task::consume_budget().await;
}

/// Configures a new connection.
pub(super) fn prepare(tcp: TcpStream, limits: &Limits) -> io::Result<Rc<TcpStream>> {
    // Heartbeats are small, and must not wait for the acknowledgement of the one before.
    tcp.set_nodelay(true)?;
    watch_for_stalls(&tcp, limits)?;
    Ok(Rc::new(tcp))
}

impl ReadError {
    /// The TLS failure, if that is the error: this side's refusal of the other, or the other side's refusal of this
    /// one.
    pub(super) fn tls(&self) -> Option<&rustls::Error> {
        match self {
            Self::Io(error) => tls::reason(error),
            Self::Closed | Self::TooLong(_) | Self::Decode(_) => None,
        }
    }
}

/// Lets the kernel end a connection whose other side has vanished without closing it, whether or not anything is sent.
/// A paused process has not vanished: its kernel still answers.
pub(crate) fn watch_for_stalls(socket: impl std::os::fd::AsFd, limits: &Limits) -> io::Result<()> {
    use rustix::net::sockopt;
    let (idle, patience) = (Duration::from(limits.keep_alive), Duration::from(limits.stall_timeout));
    // The kernel counts in whole seconds here, and does not accept zero.
    let idle = Duration::new(idle.as_secs().max(1), 0);
    sockopt::set_socket_keepalive(&socket, true)?;
    sockopt::set_tcp_keepidle(&socket, idle)?;
    sockopt::set_tcp_keepintvl(&socket, idle)?;
    #[cfg(any(target_os = "linux", target_os = "android"))]
    {
        let millis = u32::try_from(patience.as_millis()).unwrap_or(u32::MAX);
        sockopt::set_tcp_user_timeout(&socket, millis)?;
    }
    Ok(())
}

/// The receiving side of a connection.
#[derive(Debug)]
pub(super) struct Connection<S> {
    /// The stream from which it reads.
    pub(super) stream: S,
    deframer: Deframer,
    /// The read buffer, kept so that not every read allocates and clears a new one.
    buffer: Vec<u8>,
}

impl<S: AsRef<Stream>> Connection<S> {
    pub(super) fn new(stream: S) -> Self {
        Self { stream, deframer: Deframer::default(), buffer: vec![0; READ_LENGTH] }
    }

    /// Allows frames as long as those of metadata from now on.
    pub(super) fn allow_metadata(&mut self) {
        self.deframer.allow_metadata();
        self.buffer.resize(METADATA_READ_LENGTH, 0);
    }

    /// The next frame, and the election that it names. Cancel safe.
    pub(super) async fn read(&mut self) -> Result<(String, Frame), ReadError> {
        loop {
            take_turns().await;
            if let Some(frame) = self.deframer.next_frame()? {
                return Ok(decode(frame)?);
            }
            let stream = self.stream.as_ref();
            stream.readable().await?;
            match stream.try_read(&mut self.buffer) {
                Ok(0) => return Err(ReadError::Closed),
                Ok(count) => self.deframer.push(self.buffer.get(..count).unwrap_or_default()),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}

/// Resolves a `host:port`. An IP address is used as it is; only a name must be looked up, on another thread.
pub(super) async fn resolve(address: &str) -> io::Result<Vec<SocketAddr>> {
    if let Ok(address) = address.parse() {
        return Ok(vec![address]);
    }
    Ok(tokio::net::lookup_host(address).await?.collect())
}
