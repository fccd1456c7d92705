//! Transport security: mutual TLS 1.3, with the certificates of files that may be replaced at any time.
//!
//! A certificate speaks for the node whose [name](certificate_names) is one of its DNS names (`subjectAltName`). Both sides must
//! present one, and only the authorities of the file `ca` count; those of the system do not. Every handshake
//! uses the files as they are at that moment. A replacement that cannot be used is told, and what was there
//! before stays in use. Nothing is resumed from an earlier session, so that every handshake verifies anew.

pub(crate) mod certificate_names;
mod load;
mod replaceable;
mod server;
pub(crate) mod trouble;

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use primacy_core::NodeId;
use rustls::client::danger::ServerCertVerifier as _;
use rustls::pki_types::{CertificateDer, DnsName, ServerName, UnixTime};
use rustls::server::danger::ClientCertVerifier;

use super::TransportError;
use crate::clock;
use certificate_names::{CertificateNames, Verifier};
use replaceable::{OfFiles, Replaceable, Words};
pub use server::{ServerFiles, ServerTls};
pub(crate) use trouble::{Trouble, explain};

/// How what nodes say to each other is protected.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Security {
    /// Not at all; so every node must be on this machine.
    #[default]
    Loopback,
    /// Not at all, wherever the nodes are: whoever reaches a port can take part, and whoever sees the network
    /// can read along and forge. Only for networks that are protected otherwise.
    InsecureCleartext,
    /// By mutual TLS.
    Tls(TlsFiles),
}

/// The files of mutual TLS, all of them PEM. They are read again when they have changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFiles {
    /// This node's certificate, and after it those that lead to the authority, if there are any between. One
    /// of its DNS names must be the node's name.
    pub certificate: PathBuf,
    /// Its private key; nobody but its owner may write it, and it must not be readable by everybody.
    pub key: PathBuf,
    /// The authorities whose certificates are accepted: one or more. Nobody but its owner may write it.
    pub ca: PathBuf,
}

/// Why the files of TLS cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TlsError {
    /// A file cannot be read.
    #[error("cannot read the {what} {path}: {why}")]
    Read {
        /// What it should hold.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// What the system says.
        why: String,
    },
    /// A file does not hold what it should.
    #[error("{path} holds no usable {what} in PEM form ({why}); give it one")]
    Content {
        /// What it should hold.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// Others may add authorities of their own.
    #[error(
        "others can add authorities to {path} (its mode is {mode:04o}): run chmod go-w {path}, after a look at what it \
         holds"
    )]
    AuthoritiesExposed {
        /// The file.
        path: PathBuf,
        /// Its permission bits.
        mode: u32,
    },
    /// A file belongs to someone who can put into it what he likes.
    #[error(
        "the {what} {path} belongs to the user {owner}, and this process runs as {me}: run chown {me} {path}, after a \
         look at what it holds"
    )]
    Owner {
        /// What it holds.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// Its owner.
        owner: u32,
        /// The user that this process runs as.
        me: u32,
    },
    /// Others may read or change the key.
    #[error("others can use the key {path} (its mode is {mode:04o}): run chmod 600 {path}")]
    KeyExposed {
        /// The file.
        path: PathBuf,
        /// Its permission bits.
        mode: u32,
    },
    /// The key is not the certificate's.
    #[error(
        "the key {key} does not belong to the certificate {certificate}; both must come from one request"
    )]
    Mismatch {
        /// The certificate's file.
        certificate: PathBuf,
        /// The key's file.
        key: PathBuf,
    },
    /// The certificate is another node's.
    #[error(
        "the certificate {path} is for {names}, and this node is {node}; issue it with subjectAltName = DNS:{node}"
    )]
    OtherName {
        /// The file.
        path: PathBuf,
        /// This node.
        node: NodeId,
        /// The names in the certificate.
        names: String,
    },
    /// No certificate can carry this node's name.
    #[error(
        "the node's name {node} cannot stand in a certificate: with TLS it must be a DNS name, of labels of letters, \
         digits, '-' and '_' between single dots, whose last one is not a number, and no dot at the end (n1, and not 1)"
    )]
    NodeName {
        /// The node.
        node: NodeId,
    },
    /// Certificates cannot tell this cluster from another one.
    #[error(
        "the certificate {path} names the cluster {cluster:?}, and certificates do not tell it from one that is written with \
         other capitals or without the dot at its end: give the cluster a name in lower case (--cluster), or issue the \
         certificate with subjectAltName = DNS:{node} only"
    )]
    ClusterName {
        /// The file.
        path: PathBuf,
        /// The cluster.
        cluster: String,
        /// The node.
        node: NodeId,
    },
    /// Certificates cannot tell two nodes apart.
    #[error(
        "{first} and {second} differ in their case only, which certificates do not tell apart; rename one"
    )]
    NamesAlike {
        /// One of them.
        first: NodeId,
        /// The other one.
        second: NodeId,
    },
    /// The provider of cryptography offers no TLS 1.3.
    #[error("TLS cannot be set up: {0}")]
    Setup(String),
}

/// How it stands with this node's certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateStatus {
    /// Until when the certificate that is in use is valid: seconds since 1970.
    pub valid_until: u64,
    /// How often the files have been replaced since the start.
    pub replaced: u64,
    /// How many changes of the files could not be used when they were seen. Each counts once, and among `replaced` too if it could be used
    /// later.
    pub replacements_refused: u64,
    /// What is wrong with the files as they are now. What was there before is still in use.
    pub trouble: Option<String>,
}

impl CertificateStatus {
    /// [`valid_until`](Self::valid_until) as people write it, such as `2026-11-21T16:00:00Z`.
    #[must_use]
    pub fn valid_until_utc(&self) -> String {
        trouble::utc(self.valid_until)
    }
}

/// The certificates of one node, as its files have them.
pub(crate) struct Tls {
    me: NodeId,
    cluster: String,
    files: TlsFiles,
    sides: Sides,
    certificates: Replaceable<Credentials>,
}

/// How the log speaks of the certificates with which nodes know each other.
const AMONG_NODES: Words = Words { certificate: "the certificate", others: "peers" };

/// Which sides of a handshake a process takes. A guardian only dials, and is small.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sides {
    Both,
    Dialler,
}

/// What handshakes are made with.
pub(crate) struct Credentials {
    /// Counts the replacements.
    pub(crate) serial: u64,
    pub(crate) files: TlsFiles,
    pub(crate) dialler: Arc<rustls::ClientConfig>,
    /// Only for [`Sides::Both`].
    pub(crate) acceptor: Option<Arc<rustls::ServerConfig>>,
    judge_of_acceptors: Arc<Verifier>,
    judge_of_diallers: Arc<dyn ClientCertVerifier>,
    /// By which names certificates speak for nodes.
    pub(crate) names: CertificateNames,
    /// From when until when this node's own certificate is valid: seconds since 1970.
    pub(crate) valid: (u64, u64),
    me: NodeId,
    /// The certificate of this node, and those that lead to an authority.
    chain: Vec<CertificateDer<'static>>,
}

/// Whom a certificate was presented by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Presenter {
    Dialler,
    Acceptor,
}

impl Security {
    /// Whether what is at this address may be talked to.
    ///
    /// # Errors
    /// [`TransportError::NotLoopback`]
    pub(crate) fn permits(&self, what: &str, address: SocketAddr) -> Result<(), TransportError> {
        match self {
            Self::Tls(_) | Self::InsecureCleartext => Ok(()),
            Self::Loopback if address.ip().to_canonical().is_loopback() => Ok(()),
            Self::Loopback => {
                Err(TransportError::NotLoopback { what: what.to_owned(), address: address.to_string() })
            }
        }
    }

    /// Whether a peer may be talked to at all of its addresses.
    ///
    /// # Errors
    /// [`TransportError::NotLoopback`]
    pub(crate) fn permits_peer(
        &self,
        node: NodeId,
        addresses: impl IntoIterator<Item = SocketAddr>,
    ) -> Result<(), TransportError> {
        addresses.into_iter().try_for_each(|address| self.permits(&format!("the peer {node}"), address))
    }

    /// Whether certificates can carry these names, and tell them apart.
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

    /// Reads the files, if there are any.
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

    /// What a handshake is to be made with now. Looks at the files, and reads them if they have changed.
    pub(crate) fn current(&self) -> Arc<Credentials> {
        self.current_at(wall_time())
    }

    fn current_at(&self, now: UnixTime) -> Arc<Credentials> {
        self.certificates
            .current(now, |serial| load::load(&self.files, self.me, &self.cluster, self.sides, serial))
    }

    /// With the files as they were when they were last looked at, which is done every ten seconds and with each
    /// handshake.
    pub(crate) fn status(&self) -> CertificateStatus {
        self.status_at(wall_time())
    }

    fn status_at(&self, now: UnixTime) -> CertificateStatus {
        self.certificates.status(now)
    }
}

impl Credentials {
    /// Whether a certificate is accepted at this time for this node.
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

/// What TLS finds wrong, if that is what the error is about.
pub(crate) fn reason(error: &io::Error) -> Option<&rustls::Error> {
    error.get_ref().and_then(|inner| inner.downcast_ref())
}

/// The same as an error of a connection; [`reason`] finds it again.
pub(crate) fn broken(error: rustls::Error) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}

/// The time by the wall clock, which is what certificates are valid by.
pub(crate) fn wall_time() -> UnixTime {
    UnixTime::since_unix_epoch(Duration::from_millis(clock::wall_millis()))
}

/// The node's name as certificates have it.
pub(crate) fn dns_name(node: NodeId) -> Option<ServerName<'static>> {
    DnsName::try_from(node.as_str()).ok().map(|name| ServerName::DnsName(name.to_owned()))
}

fn check_names(me: NodeId, peers: impl IntoIterator<Item = NodeId>) -> Result<(), TlsError> {
    let mut nodes: Vec<NodeId> = peers.into_iter().chain([me]).collect();
    nodes.sort_by_key(|node| node.as_str().to_ascii_lowercase());
    nodes.dedup();
    // The final dot that a DNS name may have is no part of it: certificates would not tell `a.` from `a`.
    let cannot = |node: &NodeId| dns_name(*node).is_none() || node.as_str().ends_with('.');
    if let Some(&node) = nodes.iter().find(|node| cannot(node)) {
        return Err(TlsError::NodeName { node });
    }
    match nodes.windows(2).find(|pair| pair[0].as_str().eq_ignore_ascii_case(pair[1].as_str())) {
        Some(pair) => Err(TlsError::NamesAlike { first: pair[0], second: pair[1] }),
        None => Ok(()),
    }
}

// Neither shows what it holds: there is a private key in it.
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
