//! The notifier of a program that is built without elections among peers.

use std::time::Duration as StdDuration;

use primacy_core::{Identity, NodeId};

use super::{DeathNoticeError, HelloText, Receipt, SecuritySpec};
use crate::connections::Limits;

/// Has no value without the feature `peers`.
#[derive(Debug)]
pub(super) enum PeersNotifier {}

impl PeersNotifier {
    pub(super) fn new(
        _hello: &HelloText,
        _peers: &[(String, String)],
        _security: &SecuritySpec,
        _limits: Limits,
    ) -> Result<Self, DeathNoticeError> {
        Err(DeathNoticeError::NoPeers)
    }

    pub(super) fn reach(&self, _peers: &[(String, String)]) -> Result<(), DeathNoticeError> {
        match *self {}
    }

    pub(super) fn identity(&self) -> Identity {
        match *self {}
    }

    pub(super) fn connected(&self) -> Vec<NodeId> {
        match *self {}
    }

    pub(super) fn notify(&self, _bound: StdDuration) -> Receipt {
        match *self {}
    }
}
