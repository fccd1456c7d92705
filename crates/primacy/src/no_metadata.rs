//! The metadata of a program that is built without elections among peers: there is none.

use std::collections::BTreeMap;
use std::sync::Arc;

use primacy_core::NodeId;
pub(crate) use primacy_core::hard_state::Durability;
use tokio::sync::watch;

#[cfg(feature = "metrics")]
use crate::stats::Reading;

/// A map without this feature: it has no value.
#[derive(Clone, Debug)]
pub(crate) enum Map {}

impl Map {
    pub(crate) fn reached(&self) -> watch::Receiver<BTreeMap<NodeId, Arc<str>>> {
        match *self {}
    }

    #[cfg(feature = "metrics")]
    pub(crate) fn gauges(&self) -> Gauges {
        match *self {}
    }
}

/// A map's figures without this feature: they have no value.
#[cfg(feature = "metrics")]
#[derive(Clone, Debug)]
pub(crate) enum Gauges {}

#[cfg(feature = "metrics")]
impl Gauges {
    pub(crate) fn read(&self) -> Option<Reading> {
        match *self {}
    }
}
