//! Metadata in a program that is built without elections among peers: types without values.

use std::collections::BTreeMap;
use std::sync::Arc;

use primacy_core::NodeId;
pub(crate) use primacy_core::hard_state::Durability;
use tokio::sync::watch;

#[cfg(feature = "metrics")]
use crate::stats::Reading;

/// A map: has no value without the feature `peers`.
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

/// A map's measurements: have no value without the feature `peers`.
#[cfg(feature = "metrics")]
#[derive(Clone, Debug)]
pub(crate) enum Gauges {}

#[cfg(feature = "metrics")]
impl Gauges {
    pub(crate) fn read(&self) -> Option<Reading> {
        match *self {}
    }
}
