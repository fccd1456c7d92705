//! Elections among peers: entering one, its map and its death notices.

use std::sync::Arc;

use primacy_stores::{StoreId, url_without_login};
use tokio::sync::OwnedSemaphorePermit;

use super::{Builder, Confirm, Elector, start};
use crate::config::SplitBrain;
use crate::config::{self, Venue};
use crate::cordon::Cordon;
use crate::death_notice::{DeathNoticeSpec, StoreSpec};
use crate::disk;
use crate::error::ConnectError;
use crate::handshake::Confirmation;
use crate::metadata::{self, Map};
use crate::peer_node;
use crate::peers::Peers;

impl Elector {
    /// Waits until the voters have changed, so that a guardian that has `known` needs another specification, and returns that. Never
    /// resolves if the voters do not change. The guardian switches to it by
    /// [`DeathNotifier::reach`](crate::death_notice::DeathNotifier::reach).
    ///
    /// Cancel safe.
    pub async fn death_notice_spec_changed(&self, known: Option<&DeathNoticeSpec>) -> DeathNoticeSpec {
        let Some(mut reached) = self.about.map.as_ref().map(Map::reached) else {
            return std::future::pending().await;
        };
        loop {
            reached.borrow_and_update();
            if let Some(spec) = self.death_notice_spec().filter(|spec| known != Some(spec)) {
                return spec;
            }
            if reached.changed().await.is_err() {
                return std::future::pending().await; // The node has ended.
            }
        }
    }

    /// The replicated map; `None` unless [`Builder::metadata`] was called.
    #[must_use]
    pub fn map(&self) -> Option<&Map> {
        self.about.map.as_ref()
    }

    /// The permit to join the partitions; `None` if it is taken.
    pub(crate) fn take_place(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.about.place).try_acquire_owned().ok()
    }
}

impl Builder {
    /// Enters an election among these peers, of which this node is one.
    ///
    /// # Errors
    /// [`ConnectError`] if the configuration is wrong, or this node's state or address cannot be used.
    pub async fn peers(mut self, peers: Peers) -> Result<Elector, ConnectError> {
        let state_dir = self.state_dir.clone().map_or_else(config::default_state_dir, Ok)?;
        self.reached_as_a_peer(&peers);
        let config = self.config(Venue::Peers)?;
        let mut entry = peer_node::enter(&config, &peers, &state_dir)?;
        let (map, keeping) = match config.metadata {
            Some(durability) => {
                let (end, map) = metadata::maps();
                let keeping = peer_node::Keeping::open;
                (Some(map), Some(keeping(&config, &state_dir, &peers, durability, &mut entry, end)?))
            }
            None => (None, None),
        };
        let store = match self.shared_store() {
            Some(url) => {
                // Opening the election may create the store. No node can have held a record in a store that has just
                // been created.
                let register = primacy_stores::open(url, &config.election).await?;
                entry.hello.store = Some(StoreId::of(url, u64::from_be_bytes(disk::entropy()?)).await?);
                Some((url, register))
            }
            None => None,
        };
        let cordon = Cordon::load(Some(&state_dir), &config.election, config.node)?;
        let identity = entry.hello.identity;
        let mut death_notice = DeathNoticeSpec::peers(&entry.hello, entry.peers().to_vec(), &config.security);
        if let Some((url, register)) = &store {
            // A store that cannot be read now could neither confirm a leader nor decide a split; fail at once.
            register.read().await?;
            if config.kind.confirmation == Some(Confirmation::Store) {
                death_notice =
                    death_notice.and_in(StoreSpec::new(url, &config.election, identity, config.timers.lease));
            }
        }
        let (name, register) = store.map(|(url, register)| (url_without_login(url), register)).unzip();
        start(config, identity, cordon, Some(death_notice), map, move |config, frontend, ready| async move {
            frontend.stats.store.describe(name.as_deref(), &config.timers);
            match keeping {
                Some(keeping) => entry.live_keeping(&config, keeping, frontend, ready).await,
                None => entry.live(&config, register, frontend, ready).await,
            }
        })
        .await
    }

    /// Unless an address was configured, clients get the address by which the peers reach this node.
    fn reached_as_a_peer(&mut self, peers: &Peers) {
        let node = self.node.map_or_else(config::default_node, Ok).ok();
        if let (true, Some(address)) = (self.address.is_empty(), node.and_then(|node| peers.address(node))) {
            self.address = address.to_owned();
        }
    }

    /// The URL of the store that all peers share, if the configuration names one.
    fn shared_store(&self) -> Option<&str> {
        match (&self.confirm, self.seniority.as_ref().map(|options| &options.split_brain)) {
            (Some(Confirm::Store(url)), _) | (_, Some(SplitBrain::Lease(url))) => Some(url),
            (Some(Confirm::Quorum) | None, _) => None,
        }
    }

    /// Checks, without entering, that this node could take part among these peers and be reached by them: TLS files that
    /// can be read, usable addresses, no cleartext beyond loopback. A peer's host name that cannot be resolved now is no
    /// error, because it may be resolvable later.
    ///
    /// # Errors
    /// All problems found.
    pub fn check_peers(&self, peers: &Peers) -> Result<(), Vec<ConnectError>> {
        let mut builder = self.clone();
        builder.reached_as_a_peer(peers);
        let config = builder.config(Venue::Peers).map_err(|error| vec![error.into()])?;
        let problems = peer_node::problems(&config, peers);
        if problems.is_empty() { Ok(()) } else { Err(problems) }
    }
}
