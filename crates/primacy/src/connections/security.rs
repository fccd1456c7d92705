//! The protection of the connections between nodes: its configuration and its errors.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;

use primacy_core::NodeId;

use super::TransportError;

/// The protection of the connections between nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Security {
    /// Cleartext on this machine only: every node must be on it.
    #[default]
    Loopback,
    /// Cleartext to any machine: anyone who reaches a port can take part, and anyone on the network path can read and forge
    /// messages. Only for networks that are protected otherwise.
    InsecureCleartext,
    /// Mutual TLS.
    Tls(TlsFiles),
}

/// The files of mutual TLS, in PEM. They are read again when they have changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFiles {
    /// This node's certificate, followed by any intermediate certificates up to the authority. One of its DNS names must name the
    /// node.
    pub certificate: PathBuf,
    /// Its private key; only its owner may write it, and it must not be readable for all users.
    pub key: PathBuf,
    /// The authorities whose certificates are accepted. Only its owner may write it.
    pub ca: PathBuf,
}

/// The reason why the files of TLS cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TlsError {
    /// A file cannot be read.
    #[error("cannot read the {what} {path}: {why}")]
    Read {
        /// The expected content.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// The system's reason.
        why: String,
    },
    /// A file does not have the expected content.
    #[error("{path} holds no usable {what} in PEM form ({why}); give it one")]
    Content {
        /// The expected content.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// The defect.
        why: String,
    },
    /// Other users can write the file of authorities.
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
    /// A file belongs to another user, who can replace its content.
    #[error(
        "the {what} {path} belongs to the user {owner}, and this process runs as {me}: run chown {me} {path}, after a \
         look at what it holds"
    )]
    Owner {
        /// The expected content.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// Its owner.
        owner: u32,
        /// The user that this process runs as.
        me: u32,
    },
    /// Other users can read or change the key.
    #[error("others can use the key {path} (its mode is {mode:04o}): run chmod 600 {path}")]
    KeyExposed {
        /// The file.
        path: PathBuf,
        /// Its permission bits.
        mode: u32,
    },
    /// The key does not belong to the certificate.
    #[error(
        "the key {key} does not belong to the certificate {certificate}; both must come from one request"
    )]
    Mismatch {
        /// The certificate's file.
        certificate: PathBuf,
        /// The key's file.
        key: PathBuf,
    },
    /// The certificate names another node.
    #[error(
        "the certificate {path} is for {names}, and this node is {node}; issue it with subjectAltName = DNS:{node}, or \
         DNS:{node}.primacy.CLUSTER where certificates name the cluster"
    )]
    OtherName {
        /// The file.
        path: PathBuf,
        /// This node.
        node: NodeId,
        /// The names in the certificate.
        names: String,
    },
    /// A certificate cannot contain this node's name.
    #[error(
        "the node's name {node} cannot stand in a certificate: with TLS it must be a DNS name, of labels of letters, \
         digits, '-' and '_' between single dots, whose last one is not a number, and no dot at the end (n1, and not 1)"
    )]
    NodeName {
        /// The node.
        node: NodeId,
    },
    /// The cluster's name differs from another one in ways that certificates do not distinguish.
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
    /// The names of two nodes differ in ways that certificates do not distinguish.
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

/// The state of this node's certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateStatus {
    /// The end of the validity of the certificate in use: seconds since 1970.
    pub valid_until: u64,
    /// The number of times that the files have been replaced since the start.
    pub replaced: u64,
    /// The number of changes of the files that could not be used when they were read. Each counts once; if it could be used later, it
    /// counts in `replaced` too.
    pub replacements_refused: u64,
    /// The defect of the present files; then earlier ones are in use.
    pub trouble: Option<String>,
}

/// A source of reports on the certificate of this node.
pub(crate) trait CertificateReport: fmt::Debug + Send + Sync {
    /// The state as of the last check of the files, which happens every ten seconds and with each handshake.
    fn status(&self) -> CertificateStatus;
}

impl Security {
    /// Checks that this node may connect to this address.
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

    /// Checks that this node may connect to all addresses of a peer.
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
}
