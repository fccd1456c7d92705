//! The specification with which a guardian reports the death of its node.

use std::time::Duration;

use primacy_core::id::NodeIdError;
use primacy_core::{Identity, Incarnation, NodeId};
use serde::{Deserialize, Serialize};

/// The receivers of a guardian's notice, and the identity of its node. The node hands it to its guardian at the start, and again
/// when the voters change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DeathNoticeSpec {
    /// A report to the peers of an election among nodes.
    Peers {
        /// The guardian's hello.
        hello: HelloText,
        /// The peers, each with its name and its `host:port`.
        peers: Vec<(String, String)>,
        /// The protection of the connections.
        security: SecuritySpec,
        /// The record to clear as well, where a store confirms the leader.
        store: Option<StoreSpec>,
    },
    /// A report in the record of a store.
    Store(StoreSpec),
}

/// [`Security`](crate::connections::Security) with absolute paths, for a guardian that may run in another directory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SecuritySpec {
    /// Cleartext on this machine only.
    Loopback,
    /// Cleartext to any machine.
    InsecureCleartext,
    /// Mutual TLS.
    Tls {
        /// The certificate's file.
        certificate: PathText,
        /// The key's file.
        key: PathText,
        /// The authorities' file.
        ca: PathText,
    },
}

/// A path as text: its bytes in hexadecimal digits, because a path need not be UTF-8.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct PathText(pub(crate) String);

/// The record that a guardian releases for its node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoreSpec {
    /// The store.
    pub(crate) url: String,
    pub(crate) election: String,
    node: String,
    incarnation: (u64, u64),
    pub(crate) lease: Duration,
}

/// A [`Hello`](crate::handshake::Hello) as text: its bytes on the wire in hexadecimal digits, so that it needs no second encoding.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct HelloText(pub(crate) String);

impl DeathNoticeSpec {
    /// Replaces the peers.
    #[must_use]
    pub(crate) fn to(self, nodes: impl Iterator<Item = (NodeId, String)>) -> Self {
        match self {
            Self::Peers { hello, security, store, .. } => {
                let peers = nodes.map(|(node, at)| (node.to_string(), at)).collect();
                Self::Peers { hello, peers, security, store }
            }
            Self::Store(_) => self,
        }
    }

    /// Adds the record in the store that confirms the leader.
    #[must_use]
    pub(crate) fn and_in(self, record: StoreSpec) -> Self {
        match self {
            Self::Peers { hello, peers, security, .. } => {
                Self::Peers { hello, peers, security, store: Some(record) }
            }
            Self::Store(_) => Self::Store(record),
        }
    }
}

impl StoreSpec {
    pub(crate) fn new(url: &str, election: &str, identity: Identity, lease: Duration) -> Self {
        let Identity { node, incarnation: Incarnation { count, nonce } } = identity;
        let (url, election, node) = (url.to_owned(), election.to_owned(), node.to_string());
        Self { url, election, node, incarnation: (count, nonce), lease }
    }

    pub(crate) fn identity(&self) -> Result<Identity, NodeIdError> {
        let (count, nonce) = self.incarnation;
        Ok(Identity::new(NodeId::new(&self.node)?, Incarnation { count, nonce }))
    }
}
