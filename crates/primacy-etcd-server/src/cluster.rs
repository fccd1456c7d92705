//! etcd's service `Cluster`, of which only reads are served.

use std::sync::Arc;

use primacy::stores::etcd::api;
use tonic::Status;

use super::services::Services;

pub(super) async fn member_list(
    services: Arc<Services>,
    _request: api::MemberListRequest,
) -> Result<api::MemberListResponse, Status> {
    let members = services.backend().members().into_iter().map(|member| api::Member {
        id: member.number,
        name: member.name,
        peer_urls: member.for_peers,
        client_urls: member.for_clients,
        is_learner: false,
    });
    // The list of members has no version of the map.
    let header = api::ResponseHeader { revision: 0, ..services.header_now() };
    Ok(api::MemberListResponse { header: Some(header), members: members.collect() })
}
