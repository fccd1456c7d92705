//! Transport security: mutual TLS 1.3, with certificates from files that may be replaced at any time.
//!
//! A certificate identifies the node whose [name](certificate_names) is one of its DNS names (`subjectAltName`). Both sides must
//! present one. Only the authorities of the file `ca` are accepted, and not those of the system. Every handshake uses the files
//! as they are at that moment. If a replacement cannot be used, that is reported, and the files before it stay in use. Sessions
//! are never resumed, so that every handshake verifies anew.

pub(crate) mod certificate_names;
pub(crate) mod failure;
mod load;
mod replaceable;
mod server;

use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use primacy_core::NodeId;
use rustls::client::danger::ServerCertVerifier as _;
use rustls::pki_types::{CertificateDer, DnsName, ServerName, UnixTime};
use rustls::server::danger::ClientCertVerifier;

use super::{CertificateStatus, Security, TlsError, TlsFiles};
use crate::clock;
use crate::connections::CertificateReport;
use certificate_names::{CertificateNames, Verifier};
pub(crate) use failure::{TlsFailure, explain};
use replaceable::{OfFiles, Replaceable, Words};
pub use server::{ServerFiles, ServerTls};

impl CertificateStatus {
    /// [`valid_until`](Self::valid_until) as text, such as `2026-11-21T16:00:00Z`.
    #[must_use]
    pub fn valid_until_utc(&self) -> String {
        failure::utc(self.valid_until)
    }
}

/// The certificates of one node, kept up to date with its files.
pub(crate) struct Tls {
    me: NodeId,
    cluster: String,
    files: TlsFiles,
    sides: Sides,
    certificates: Replaceable<Credentials>,
}

/// The words of log messages about certificates between nodes.
const AMONG_NODES: Words = Words { certificate: "the certificate", others: "peers" };

/// The sides of a handshake that a process needs. A guardian only dials, to stay small.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sides {
    Both,
    Dialler,
}

/// The credentials for handshakes, as of one reading of the files.
pub(crate) struct Credentials {
    /// The number of the replacement.
    pub(crate) serial: u64,
    pub(crate) files: TlsFiles,
    pub(crate) dialler: Arc<rustls::ClientConfig>,
    /// The server's configuration; only for [`Sides::Both`].
    pub(crate) acceptor: Option<Arc<rustls::ServerConfig>>,
    judge_of_acceptors: Arc<Verifier>,
    judge_of_diallers: Arc<dyn ClientCertVerifier>,
    /// The names by which certificates speak for nodes.
    pub(crate) names: CertificateNames,
    /// The beginning and the end of the validity of this node's own certificate: seconds since 1970.
    pub(crate) valid: (u64, u64),
    me: NodeId,
    /// The certificate of this node, and its chain up to an authority.
    chain: Vec<CertificateDer<'static>>,
}

/// The side that presented a certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Presenter {
    Dialler,
    Acceptor,
}

impl Security {
    /// Checks that certificates can contain these names, and distinguish them.
    ///
    /// # Errors
    /// [`TlsError::NodeName`] or [`TlsError::NamesAlike`]
    pub(crate) fn check_names(
        &self,
        me: NodeId,
        peers: impl IntoIterator<Item = NodeId>,
    ) -> Result<(), TlsError> {
        match self {
            Self::Tls(_) => check_names(me, peers),
            Self::Loopback | Self::InsecureCleartext => Ok(()),
        }
    }

    /// Reads the files, if TLS is configured.
    ///
    /// # Errors
    /// [`TlsError`]
    pub(crate) fn open(
        &self,
        me: NodeId,
        cluster: &str,
        peers: impl IntoIterator<Item = NodeId>,
        sides: Sides,
    ) -> Result<Option<Arc<Tls>>, TlsError> {
        match self {
            Self::Tls(files) => Tls::open(files, me, cluster, peers, sides).map(|tls| Some(Arc::new(tls))),
            Self::Loopback | Self::InsecureCleartext => Ok(None),
        }
    }
}

impl Tls {
    fn open(
        files: &TlsFiles,
        me: NodeId,
        cluster: &str,
        peers: impl IntoIterator<Item = NodeId>,
        sides: Sides,
    ) -> Result<Self, TlsError> {
        check_names(me, peers)?;
        let paths = vec![files.certificate.clone(), files.key.clone(), files.ca.clone()];
        let certificates =
            Replaceable::open(AMONG_NODES, paths, || load::load(files, me, cluster, sides, 0))?;
        Ok(Self { me, cluster: cluster.to_owned(), files: files.clone(), sides, certificates })
    }

    /// The credentials for a handshake now. Checks the files, and reads them if they have changed.
    pub(crate) fn current(&self) -> Arc<Credentials> {
        self.current_at(wall_time())
    }

    fn current_at(&self, now: UnixTime) -> Arc<Credentials> {
        self.certificates
            .current(now, |serial| load::load(&self.files, self.me, &self.cluster, self.sides, serial))
    }

    fn status_at(&self, now: UnixTime) -> CertificateStatus {
        self.certificates.status(now)
    }
}

impl CertificateReport for Tls {
    fn status(&self) -> CertificateStatus {
        self.status_at(wall_time())
    }
}

impl Credentials {
    /// Checks that a certificate is accepted for this node at this time.
    pub(crate) fn judge(
        &self,
        presenter: Presenter,
        chain: &[CertificateDer<'_>],
        node: NodeId,
        at: UnixTime,
    ) -> Result<(), rustls::Error> {
        let (leaf, others) = chain.split_first().ok_or(rustls::Error::NoCertificatesPresented)?;
        match presenter {
            Presenter::Dialler => {
                self.judge_of_diallers.verify_client_cert(leaf, others, at)?;
                self.names.check(leaf, node)
            }
            Presenter::Acceptor => {
                let name = dns_name(node).ok_or(rustls::Error::UnsupportedNameType)?;
                let verified = self.judge_of_acceptors.verify_server_cert(leaf, others, &name, &[], at);
                verified.map(drop)
            }
        }
    }
}

/// The rustls error behind an I/O error, if there is one.
pub(crate) fn reason(error: &io::Error) -> Option<&rustls::Error> {
    error.get_ref().and_then(|inner| inner.downcast_ref())
}

/// Wraps a rustls error as an I/O error; [`reason`] finds it again.
pub(crate) fn broken(error: rustls::Error) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}

/// The wall clock's time, by which certificates are valid.
pub(crate) fn wall_time() -> UnixTime {
    UnixTime::since_unix_epoch(Duration::from_millis(clock::wall_millis()))
}

/// The node's name as a DNS name.
pub(crate) fn dns_name(node: NodeId) -> Option<ServerName<'static>> {
    DnsName::try_from(node.as_str()).ok().map(|name| ServerName::DnsName(name.to_owned()))
}

fn check_names(me: NodeId, peers: impl IntoIterator<Item = NodeId>) -> Result<(), TlsError> {
    let mut nodes: Vec<NodeId> = peers.into_iter().chain([me]).collect();
    nodes.sort_by_key(|node| node.as_str().to_ascii_lowercase());
    nodes.dedup();
    // A DNS name may end with a dot, which is no part of it: certificates do not distinguish `a.` from `a`.
    let cannot = |node: &NodeId| dns_name(*node).is_none() || node.as_str().ends_with('.');
    if let Some(&node) = nodes.iter().find(|node| cannot(node)) {
        return Err(TlsError::NodeName { node });
    }
    match nodes.windows(2).find(|pair| pair[0].as_str().eq_ignore_ascii_case(pair[1].as_str())) {
        Some(pair) => Err(TlsError::NamesAlike { first: pair[0], second: pair[1] }),
        None => Ok(()),
    }
}

// Neither shows its content, which contains a private key.
impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Tls({} of {})", self.files.certificate.display(), self.me)
    }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Credentials({} of {})", self.serial, self.files.certificate.display())
    }
}

#[cfg(test)]
pub(crate) mod tests;
