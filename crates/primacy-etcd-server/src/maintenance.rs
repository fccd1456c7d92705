//! etcd's service `Maintenance`, as far as clients ask.

use std::sync::Arc;

use primacy::stores::etcd::api;
use tonic::Status;

use super::convert;
use super::services::Services;

/// The version of etcd whose API this is.
const API_VERSION: &str = "3.4.0";

pub(super) async fn status(
    services: Arc<Services>,
    _request: api::StatusRequest,
) -> Result<api::StatusResponse, Status> {
    let (vitals, size) = (services.backend().vitals(), services.backend().size());
    Ok(api::StatusResponse {
        header: Some(services.header_now()),
        version: format!("{API_VERSION}+{}.{}", api::PRIMACY, env!("CARGO_PKG_VERSION")),
        db_size: convert::signed(size.bytes + size.history_bytes),
        leader: vitals.leader.unwrap_or(0),
        raft_index: vitals.logged,
        raft_term: vitals.term,
        raft_applied_index: vitals.applied,
        errors: if vitals.leader.is_some() { Vec::new() } else { vec!["etcdserver: no leader".to_owned()] },
        db_size_in_use: convert::signed(size.bytes),
        is_learner: false,
    })
}

/// No condition lasts that an alarm could report: a write that does not fit is refused until there is room, and
/// then no more.
pub(super) async fn alarm(
    services: Arc<Services>,
    _request: api::AlarmRequest,
) -> Result<api::AlarmResponse, Status> {
    Ok(api::AlarmResponse { header: Some(services.header_now()), alarms: Vec::new() })
}
