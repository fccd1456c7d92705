//! A connection under TLS.
//!
//! rustls is driven by hand over the socket, because the mesh must be able to pass bytes to the kernel at once and
//! without waiting, in the middle of the driver's effects. Bytes are encrypted and offered to the kernel in the same
//! call. At most one record remains that the kernel has not taken; the writer must call [`flush`](Session::flush) when
//! the socket is writable again.

use std::cell::RefCell;
use std::fmt;
use std::io::{self, Read, Write};
use std::rc::Rc;

use primacy_core::NodeId;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::{ClientConnection, Connection, ServerConnection};
use tokio::net::TcpStream;

use super::stream::take_turns;
use super::tls::{Credentials, Presenter, broken, dns_name};

/// The most bytes in one record.
const RECORD_LENGTH_MAX: usize = 16 * 1024;

/// A TLS connection, during or after its handshake.
pub(super) struct Session {
    pub(super) tcp: Rc<TcpStream>,
    /// No borrow is held across an `await`.
    connection: RefCell<Connection>,
    /// The number of this node's credentials with which it was made.
    pub(super) serial: u64,
    presenter: Presenter,
}

/// The socket as `Read` and `Write`, for rustls.
struct Socket<'a>(&'a TcpStream);

impl Read for Socket<'_> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        self.0.try_read(bytes)
    }
}

impl Write for Socket<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.try_write(bytes)
    }

    fn write_vectored(&mut self, slices: &[io::IoSlice<'_>]) -> io::Result<usize> {
        self.0.try_write_vectored(slices)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Session {
    /// Prepares TLS to `node`, whose certificate must name it. [`shake_hands`](Self::shake_hands) makes the handshake.
    pub(super) fn dial(tcp: Rc<TcpStream>, credentials: &Credentials, node: NodeId) -> io::Result<Self> {
        let name = dns_name(node).ok_or_else(|| broken(rustls::Error::UnsupportedNameType))?;
        let connection = ClientConnection::new(credentials.dialler.clone(), name).map_err(broken)?;
        Ok(Self::new(tcp, connection.into(), credentials, Presenter::Acceptor))
    }

    /// Prepares TLS with a dialling node. [`shake_hands`](Self::shake_hands) makes the handshake.
    pub(super) fn answer(tcp: Rc<TcpStream>, credentials: &Credentials) -> io::Result<Self> {
        let config = credentials.acceptor.clone().expect("a mesh loads both sides");
        let connection = ServerConnection::new(config).map_err(broken)?;
        Ok(Self::new(tcp, connection.into(), credentials, Presenter::Dialler))
    }

    fn new(
        tcp: Rc<TcpStream>,
        connection: Connection,
        credentials: &Credentials,
        presenter: Presenter,
    ) -> Self {
        Self { tcp, connection: RefCell::new(connection), serial: credentials.serial, presenter }
    }

    /// Makes the handshake. The dialling side may learn later that the other side refuses it: then a read returns the
    /// alert.
    pub(super) async fn shake_hands(&self) -> io::Result<()> {
        loop {
            let flushed = self.flush()?;
            if !flushed {
                // Nothing is read meanwhile; a handshake fits into the kernel's buffers of both sides.
                self.tcp.writable().await?;
            } else if self.connection.borrow().is_handshaking() {
                self.tcp.readable().await?;
                take_turns().await;
                match self.receive() {
                    Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                    Ok(_) => {}
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                    Err(error) => return Err(error),
                }
            } else {
                return Ok(());
            }
        }
    }

    /// Encrypts as many bytes as fit into one record, and offers the record to the kernel. Takes none while the kernel
    /// has not taken all of an earlier record.
    pub(super) fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
        if !self.flush()? {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let bytes = bytes.get(..RECORD_LENGTH_MAX).unwrap_or(bytes);
        let taken = self.connection.borrow_mut().writer().write(bytes)?;
        self.flush()?;
        Ok(taken)
    }

    /// True if the kernel has not taken all written bytes yet.
    pub(super) fn has_unsent(&self) -> bool {
        self.connection.borrow().wants_write()
    }

    /// Passes bytes to the kernel; returns true if it has taken all.
    pub(super) fn flush(&self) -> io::Result<bool> {
        let mut connection = self.connection.borrow_mut();
        while connection.wants_write() {
            match connection.write_tls(&mut Socket(&self.tcp)) {
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }

    /// Reads available bytes. Zero is the end, announced or not: the deframer never takes a part of a frame for a whole
    /// one. The kernel is asked at most once, so that this ends; if that was not enough, the socket is still readable.
    pub(super) fn try_read(&self, bytes: &mut [u8]) -> io::Result<usize> {
        match self.try_read_decrypted(bytes) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => match self.receive()? {
                0 => Ok(0),
                _ => self.try_read_decrypted(bytes),
            },
            read => read,
        }
    }

    fn try_read_decrypted(&self, bytes: &mut [u8]) -> io::Result<usize> {
        match self.connection.borrow_mut().reader().read(bytes) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(0),
            read => read,
        }
    }

    /// True if decrypted bytes were not read yet, or the end was received.
    pub(super) fn has_unread(&self) -> bool {
        let mut connection = self.connection.borrow_mut();
        let first = connection.reader().into_first_chunk();
        !first.is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock)
    }

    /// Receives bytes from the kernel. Returns their number on the wire.
    fn receive(&self) -> io::Result<usize> {
        let mut connection = self.connection.borrow_mut();
        let count = connection.read_tls(&mut Socket(&self.tcp))?;
        let processed = connection.process_new_packets();
        drop(connection);
        // There may be an alert to send, with this side's reason for refusing. It is sent if possible.
        let flushed = self.flush();
        processed.map_err(broken)?;
        flushed?;
        Ok(count)
    }

    /// The certificate of the other side, with its chain.
    pub(super) fn presented(&self) -> Vec<CertificateDer<'static>> {
        let connection = self.connection.borrow();
        connection
            .peer_certificates()
            .unwrap_or_default()
            .iter()
            .map(|one| one.clone().into_owned())
            .collect()
    }

    /// Checks that a handshake with the other side would still succeed.
    pub(super) fn judge_again(
        &self,
        credentials: &Credentials,
        node: NodeId,
        at: UnixTime,
    ) -> Result<(), rustls::Error> {
        credentials.judge(self.presenter, &self.presented(), node, at)
    }
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Session({:?}, certificate {})", self.tcp, self.serial)
    }
}
