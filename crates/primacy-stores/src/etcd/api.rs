//! Messages between a client of etcd and its server: the parts of etcd's public API that Primacy uses.
//!
//! `proto/` specifies them, and the modules here are generated from it. Primacy's own nodes answer with the same messages.

/// Keys, sessions, watches, and the state of members.
pub mod etcdserverpb;
/// Keys and their changes.
pub mod mvccpb;
/// Elections that the server holds for its clients.
pub mod v3electionpb;
/// Locks that the server holds for its clients.
pub mod v3lockpb;

pub use self::etcdserverpb::alarm_request::AlarmAction;
pub use self::etcdserverpb::compare::{CompareResult, CompareTarget, TargetUnion};
pub use self::etcdserverpb::range_request::{SortOrder, SortTarget};
pub use self::etcdserverpb::request_op::Request;
pub use self::etcdserverpb::response_op::Response;
pub use self::etcdserverpb::watch_create_request::FilterType;
pub use self::etcdserverpb::watch_request::RequestUnion;
pub use self::etcdserverpb::*;
pub use self::mvccpb::event::EventType;
pub use self::mvccpb::*;

/// The build metadata in the version of a Primacy node, after a `+`, which comparisons of versions ignore. It shows clients that remedies
/// for etcd do not apply.
pub const PRIMACY: &str = "primacy";

/// The methods, as gRPC names them.
pub mod method {
    pub use super::etcdserverpb::method::*;
    pub use super::v3electionpb::method::*;
    pub use super::v3lockpb::method::*;
}

/// Leaves out the password.
impl std::fmt::Debug for AuthenticateRequest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AuthenticateRequest").field("name", &self.name).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use prost::Message;

    use super::v3electionpb::{CampaignRequest, LeaderKey};
    use super::v3lockpb::LockRequest;
    use super::*;

    fn assert_bytes<M: Message + Default + PartialEq + std::fmt::Debug>(message: &M, golden: &str) {
        let bytes = message.encode_to_vec();
        let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hex, golden, "{message:?}");
        assert_eq!(M::decode(bytes.as_slice()).unwrap(), *message);
    }

    fn key_value() -> KeyValue {
        let (key, value) = (b"k".to_vec(), b"v".to_vec());
        KeyValue { key, create_revision: 2, mod_revision: 300, version: 4, value, lease: -1 }
    }

    #[test]
    fn the_bytes_of_keys_and_transactions_are_these() {
        let read = RangeRequest {
            key: b"a".to_vec(),
            range_end: b"b".to_vec(),
            limit: 1,
            sort_order: SortOrder::Descend.into(),
            sort_target: SortTarget::Create.into(),
            serializable: true,
            min_mod_revision: 5,
            max_create_revision: 6,
            ..Default::default()
        };
        let compare = Compare {
            result: CompareResult::Less.into(),
            target: CompareTarget::Mod.into(),
            key: b"a".to_vec(),
            target_union: Some(TargetUnion::ModRevision(7)),
            range_end: b"b".to_vec(),
        };
        let put = PutRequest {
            key: b"a".to_vec(),
            value: b"v".to_vec(),
            lease: 8,
            prev_kv: true,
            ..Default::default()
        };
        let delete = DeleteRangeRequest { key: b"a".to_vec(), prev_kv: true, ..Default::default() };
        let within = TxnRequest {
            success: vec![RequestOp { request: Some(Request::RequestDeleteRange(delete)) }],
            ..Default::default()
        };
        let op = |request| RequestOp { request: Some(request) };
        let transaction = TxnRequest {
            compare: vec![compare],
            success: vec![op(Request::RequestPut(put)), op(Request::RequestTxn(within))],
            failure: vec![op(Request::RequestRange(read))],
        };
        assert_bytes(
            &transaction,
            concat!(
                "0a0d080210021a0161300782040162120c120a0a016112017618082001120b220912071a050a016118011a140a",
                "120a0161120162180128023002380150056806"
            ),
        );
        let header = ResponseHeader { cluster_id: 1, member_id: 2, revision: 3, raft_term: 4 };
        let found = RangeResponse { header: Some(header), kvs: vec![key_value()], more: true, count: 9 };
        let responses = vec![ResponseOp { response: Some(Response::ResponseRange(found)) }];
        assert_bytes(
            &TxnResponse { header: Some(header), succeeded: true, responses },
            concat!(
                "0a08080110021803200410011a2a0a280a08080110021803200412180a016b100218ac0220042a017630ffffff",
                "ffffffffffff0118012009"
            ),
        );
    }

    #[test]
    fn the_bytes_of_sessions_watches_and_elections_are_these() {
        assert_bytes(&LeaseGrantRequest { ttl: 60, id: -2 }, "083c10feffffffffffffffff01");
        let create = WatchCreateRequest {
            key: b"a".to_vec(),
            start_revision: 3,
            filters: vec![FilterType::Noput.into(), FilterType::Nodelete.into()],
            fragment: true,
            ..Default::default()
        };
        assert_bytes(
            &WatchRequest { request_union: Some(RequestUnion::CreateRequest(create)) },
            "0a0b0a016118032a0200014001",
        );
        let event = Event { r#type: EventType::Delete.into(), kv: Some(key_value()), prev_kv: None };
        let told =
            WatchResponse { watch_id: 1, compact_revision: 2, events: vec![event], ..Default::default() };
        assert_bytes(&told, "100128025a1c080112180a016b100218ac0220042a017630ffffffffffffffffff01");
        let alarm = AlarmRequest {
            action: AlarmAction::Activate.into(),
            member_id: 1,
            alarm: AlarmType::Corrupt.into(),
        };
        assert_bytes(&alarm, "080110011802");
        let (id, name, is_learner) = (1, "a".to_owned(), true);
        let (peer_urls, client_urls) = (vec!["http://a:1".to_owned()], vec!["http://a:2".to_owned()]);
        assert_bytes(
            &Member { id, name, peer_urls, client_urls, is_learner },
            "08011201611a0a687474703a2f2f613a31220a687474703a2f2f613a322801",
        );
        let campaign = CampaignRequest { name: b"e".to_vec(), lease: 1, value: b"v".to_vec() };
        assert_bytes(&campaign, "0a016510011a0176");
        let leader = LeaderKey { name: b"e".to_vec(), key: b"e/1".to_vec(), rev: 2, lease: 1 };
        assert_bytes(&leader, "0a01651203652f3118022001");
        assert_bytes(&LockRequest { name: b"l".to_vec(), lease: 1 }, "0a016c1001");
    }
}
