//! etcd's service `Maintenance`: the methods that clients use.

use std::sync::Arc;

use primacy::stores::etcd::api;
use tonic::Status;

use super::convert;
use super::services::Services;

/// The version of etcd whose API is served.
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

/// There are no alarms, because no condition needs one: a write that exceeds the quota is refused, and later writes
/// succeed when there is room.
pub(super) async fn alarm(
    services: Arc<Services>,
    _request: api::AlarmRequest,
) -> Result<api::AlarmResponse, Status> {
    Ok(api::AlarmResponse { header: Some(services.header_now()), alarms: Vec::new() })
}
