//! Death notices: a node's guardian reports its death to the peers, or in the record of a store.
//!
//! This module does not check that the node and all its work are gone. The guardian must be certain of that before it calls
//! [`DeathNotifier::notify`].

#[cfg(feature = "peers")]
mod peers;
#[cfg(not(feature = "peers"))]
#[path = "death_notice/no_peers.rs"]
mod peers;
mod spec;
mod store;
#[cfg(feature = "peers")]
mod text;
#[cfg(feature = "peers")]
mod wire;

use std::io;
use std::time::Duration;

use primacy_core::id::NodeIdError;
use primacy_core::{Identity, NodeId};

use crate::connections::{Limits, TlsError};
use crate::disk::DiskError;
use peers::PeersNotifier;
pub use spec::{DeathNoticeSpec, HelloText, PathText, SecuritySpec, StoreSpec};
use store::StoreNotifier;

/// A guardian's access to the election of its node. Among peers, dropping it closes its connections.
#[derive(Debug)]
pub struct DeathNotifier {
    part: Part,
}

#[derive(Debug)]
enum Part {
    /// The peers, and the record of the store that confirms the leader, if one does.
    Peers(PeersNotifier, Option<StoreNotifier>),
    Store(StoreNotifier),
}

/// The receivers of a death notice.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Receipt {
    /// The peers that have confirmed it.
    pub heard: Vec<NodeId>,
    /// The peers that have not confirmed it, and why. They will notice the node's silence.
    pub unheard: Vec<(NodeId, String)>,
    /// Over a store: true if the record does not name the dead process any more.
    pub released: bool,
    /// Over a store: the reason why the record was not released. Its lease will expire.
    pub trouble: Option<String>,
}

/// The reason why a guardian cannot report a death.
#[derive(Debug, thiserror::Error)]
pub enum DeathNoticeError {
    /// The node's hello cannot be parsed: another version made it.
    #[error("what the node told its guardian cannot be understood ({0}); both must be of the same version")]
    Hello(String),
    /// The node's election is held among peers, and the guardian's program is built without them.
    #[error(
        "this program was built without elections among peers; build it with the feature `peers` of the crate primacy"
    )]
    NoPeers,
    /// A name cannot be parsed: another version made it.
    #[error("what the node told its guardian cannot be understood ({0}); both must be of the same version")]
    Name(#[from] NodeIdError),
    /// The certificates cannot be used.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The system could not start a thread.
    #[error("the guardian cannot start a thread: {0}")]
    Thread(io::Error),
    /// The system returned no random numbers.
    #[error(transparent)]
    Entropy(#[from] DiskError),
}

impl DeathNotifier {
    /// Prepares for a notice. Among peers, connects to every peer, and reconnects whenever a connection breaks.
    ///
    /// # Errors
    /// [`DeathNoticeError`]
    pub fn new(spec: &DeathNoticeSpec, limits: Limits) -> Result<Self, DeathNoticeError> {
        let part = match spec {
            DeathNoticeSpec::Peers { hello, peers, security, store } => {
                let store = store.as_ref().map(StoreNotifier::new).transpose()?;
                Part::Peers(PeersNotifier::new(hello, peers, security, limits)?, store)
            }
            DeathNoticeSpec::Store(spec) => Part::Store(StoreNotifier::new(spec)?),
        };
        Ok(Self { part })
    }

    /// Switches to a newer specification of the same process: connects to peers that are new or have another address, and disconnects
    /// from former peers. Connections to the other peers are kept.
    ///
    /// # Errors
    /// [`DeathNoticeError`]. If a thread cannot be started, the peers concerned would not receive a notice until this is called again; all
    /// others would. If a name is invalid, nothing has changed.
    pub fn reach(&mut self, spec: &DeathNoticeSpec) -> Result<(), DeathNoticeError> {
        match (&self.part, spec) {
            (Part::Peers(notifier, _), DeathNoticeSpec::Peers { peers, .. }) => notifier.reach(peers),
            (Part::Peers(..) | Part::Store(_), _) => Ok(()), // A store stays where it is.
        }
    }

    /// The process whose death is reported.
    #[must_use]
    pub fn identity(&self) -> Identity {
        match &self.part {
            Part::Peers(peers, _) => peers.identity(),
            Part::Store(store) => store.identity(),
        }
    }

    /// The peers that are connected, and would receive a notice at once.
    #[must_use]
    pub fn connected(&self) -> Vec<NodeId> {
        match &self.part {
            Part::Peers(peers, _) => peers.connected(),
            Part::Store(_) => Vec::new(), // It is opened when there is a death to tell.
        }
    }

    /// Reports to every peer, or to the store, that the node's process and all its work are gone; call it only when both are. Returns
    /// when the receivers have confirmed, and at the latest after `bound`; afterwards the guardian may exit. It may be called again.
    pub fn notify(&mut self, bound: Duration) -> Receipt {
        match &mut self.part {
            Part::Peers(peers, None) => peers.notify(bound),
            // In parallel: either may not answer, and must not delay the other.
            Part::Peers(peers, Some(store)) => std::thread::scope(|scope| {
                let cleared = scope.spawn(|| store.notify(bound));
                let Receipt { heard, unheard, .. } = peers.notify(bound);
                let Receipt { released, trouble, .. } = cleared.join().unwrap_or_default();
                Receipt { heard, unheard, released, trouble }
            }),
            Part::Store(store) => store.notify(bound),
        }
    }
}
