//! One connection of a guardian: one thread blocks in a read, and others may write at any time.

use std::fmt;
use std::io::{self, Read as _, Write as _};
use std::net::{Shutdown, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use primacy_core::NodeId;
use rustls::ClientConnection;

use crate::transport::tls::{Credentials, TlsFailure, broken, dns_name, explain, reason};

/// The bytes per read: about the length of a handshake with a short certificate chain.
const READ_LENGTH: usize = 2048;

pub(super) struct Wire {
    tcp: TcpStream,
    protection: Option<Protection>,
}

struct Protection {
    credentials: Arc<Credentials>,
    /// Never locked while a read blocks.
    connection: Mutex<ClientConnection>,
}

impl Wire {
    pub(super) fn clear(tcp: TcpStream) -> Self {
        Self { tcp, protection: None }
    }

    /// Prepares TLS to `node`; [`shake_hands`](Self::shake_hands) makes the handshake.
    pub(super) fn protected(tcp: TcpStream, credentials: Arc<Credentials>, node: NodeId) -> io::Result<Self> {
        let name = dns_name(node).ok_or_else(|| broken(rustls::Error::UnsupportedNameType))?;
        let connection = ClientConnection::new(Arc::clone(&credentials.dialler), name).map_err(broken)?;
        Ok(Self { tcp, protection: Some(Protection { credentials, connection: Mutex::new(connection) }) })
    }

    /// Makes the TLS handshake, if there is TLS, until `until` at the latest.
    pub(super) fn shake_hands(&self, until: Instant) -> io::Result<()> {
        let Some(protection) = &self.protection else { return Ok(()) };
        loop {
            self.send(&mut protection.connection())?;
            if !protection.connection().is_handshaking() {
                return Ok(());
            }
            if self.receive(protection, Some(until))? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
    }

    /// Writes all bytes, within the socket's write timeout.
    pub(super) fn write_all(&self, bytes: &[u8]) -> io::Result<()> {
        let Some(protection) = &self.protection else { return (&self.tcp).write_all(bytes) };
        let mut connection = protection.connection();
        let mut rest = bytes;
        while !rest.is_empty() {
            let taken = connection.writer().write(rest)?;
            rest = rest.get(taken..).unwrap_or_default();
            self.send(&mut connection)?;
        }
        Ok(())
    }

    /// Waits for bytes, without limit or until `until`; zero bytes mean the end.
    pub(super) fn read(&self, bytes: &mut [u8], until: Option<Instant>) -> io::Result<usize> {
        let Some(protection) = &self.protection else { return self.read_raw(bytes, until) };
        loop {
            match protection.connection().reader().read(bytes) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(0),
                read => return read,
            }
            if self.receive(protection, until)? == 0 {
                return Ok(0);
            }
        }
    }

    /// Closes the connection, which wakes the thread that reads from it.
    pub(super) fn shut(&self) {
        // It fails only if the other side has closed the connection already.
        let _ = self.tcp.shutdown(Shutdown::Both);
    }

    /// The TLS failure behind `error`: this side's refusal of the other, or the other side's refusal of this one.
    pub(super) fn explain(&self, error: &io::Error, me: NodeId, node: NodeId) -> Option<TlsFailure> {
        let protection = self.protection.as_ref()?;
        reason(error).map(|reason| explain(reason, me, node.as_str(), &protection.credentials))
    }

    fn send(&self, connection: &mut ClientConnection) -> io::Result<()> {
        while connection.wants_write() {
            connection.write_tls(&mut &self.tcp)?;
        }
        Ok(())
    }

    fn receive(&self, protection: &Protection, until: Option<Instant>) -> io::Result<usize> {
        let mut bytes = [0; READ_LENGTH];
        let count = self.read_raw(&mut bytes, until)?;
        let mut rest = bytes.get(..count).unwrap_or_default();
        let mut connection = protection.connection();
        while !rest.is_empty() {
            connection.read_tls(&mut rest)?;
            let processed = connection.process_new_packets();
            // There may be an alert to send, with this side's reason for refusing. It is sent if possible.
            let sent = self.send(&mut connection);
            processed.map_err(broken)?;
            sent?;
        }
        Ok(count)
    }

    fn read_raw(&self, bytes: &mut [u8], until: Option<Instant>) -> io::Result<usize> {
        loop {
            let left = until.map(|until| until.saturating_duration_since(Instant::now()));
            if left.is_some_and(|left| left.is_zero()) {
                return Err(io::ErrorKind::WouldBlock.into());
            }
            self.tcp.set_read_timeout(left)?;
            match (&self.tcp).read(bytes) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                read => return read,
            }
        }
    }
}

impl Protection {
    /// A panic while this was locked is harmless: the connection is shut next.
    fn connection(&self) -> MutexGuard<'_, ClientConnection> {
        self.connection.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Wire {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Wire({:?}, protected: {})", self.tcp, self.protection.is_some())
    }
}
