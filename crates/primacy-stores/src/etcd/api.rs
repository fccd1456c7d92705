//! Messages between a client of etcd and its server: the parts of etcd's public API that Primacy uses, written by hand.
//!
//! The numbers after `tag` are those of etcd's `rpc.proto` and `kv.proto` (packages `etcdserverpb` and `mvccpb`), and so never
//! change. Fields that are not here are skipped when they are read. Primacy's own nodes answer with the same messages.

pub mod recipes;

/// The build metadata in the version of a Primacy node, after a `+`, which comparisons of versions ignore. It shows clients that remedies
/// for etcd do not apply.
pub const PRIMACY: &str = "primacy";

/// The methods, as gRPC names them.
pub mod method {
    /// Reads keys.
    pub const RANGE: &str = "/etcdserverpb.KV/Range";
    /// Writes a key.
    pub const PUT: &str = "/etcdserverpb.KV/Put";
    /// Deletes keys.
    pub const DELETE_RANGE: &str = "/etcdserverpb.KV/DeleteRange";
    /// Compares, and runs one of two lists of operations, atomically.
    pub const TXN: &str = "/etcdserverpb.KV/Txn";
    /// Discards the history of keys before a revision.
    pub const COMPACT: &str = "/etcdserverpb.KV/Compact";
    /// Begins a session, which etcd calls a lease.
    pub const LEASE_GRANT: &str = "/etcdserverpb.Lease/LeaseGrant";
    /// Ends a session.
    pub const LEASE_REVOKE: &str = "/etcdserverpb.Lease/LeaseRevoke";
    /// Keeps sessions alive; both sides stream.
    pub const LEASE_KEEP_ALIVE: &str = "/etcdserverpb.Lease/LeaseKeepAlive";
    /// Returns the remaining time of a session.
    pub const LEASE_TIME_TO_LIVE: &str = "/etcdserverpb.Lease/LeaseTimeToLive";
    /// Lists the sessions.
    pub const LEASE_LEASES: &str = "/etcdserverpb.Lease/LeaseLeases";
    /// Watches for changes; both sides stream.
    pub const WATCH: &str = "/etcdserverpb.Watch/Watch";
    /// Exchanges a password for a token.
    pub const AUTHENTICATE: &str = "/etcdserverpb.Auth/Authenticate";
    /// Returns the status of a member.
    pub const STATUS: &str = "/etcdserverpb.Maintenance/Status";
    /// Lists, raises and ends alarms of the members.
    pub const ALARM: &str = "/etcdserverpb.Maintenance/Alarm";
    /// Lists the members.
    pub const MEMBER_LIST: &str = "/etcdserverpb.Cluster/MemberList";
    /// Campaigns in an election, until it is won.
    pub const CAMPAIGN: &str = "/v3electionpb.Election/Campaign";
    /// Changes the value that a leader proclaims.
    pub const PROCLAIM: &str = "/v3electionpb.Election/Proclaim";
    /// Returns the leader.
    pub const LEADER: &str = "/v3electionpb.Election/Leader";
    /// Streams the leaders, one after the other.
    pub const OBSERVE: &str = "/v3electionpb.Election/Observe";
    /// Gives up the lead.
    pub const RESIGN: &str = "/v3electionpb.Election/Resign";
    /// Takes a lock.
    pub const LOCK: &str = "/v3lockpb.Lock/Lock";
    /// Releases a lock.
    pub const UNLOCK: &str = "/v3lockpb.Lock/Unlock";
}

/// The header of every response.
#[derive(Clone, PartialEq, Eq, ::prost::Message)]
pub struct ResponseHeader {
    /// The cluster.
    #[prost(uint64, tag = "1")]
    pub cluster_id: u64,
    /// The member that answers.
    #[prost(uint64, tag = "2")]
    pub member_id: u64,
    /// The revision of the store.
    #[prost(int64, tag = "3")]
    pub revision: i64,
    /// The term of the cluster's own election, as this member knows it.
    #[prost(uint64, tag = "4")]
    pub raft_term: u64,
}

/// A key and its value.
#[derive(Clone, PartialEq, Eq, ::prost::Message)]
pub struct KeyValue {
    /// The key.
    #[prost(bytes = "vec", tag = "1")]
    pub key: Vec<u8>,
    /// The revision at which it was made.
    #[prost(int64, tag = "2")]
    pub create_revision: i64,
    /// The revision at which it was last written.
    #[prost(int64, tag = "3")]
    pub mod_revision: i64,
    /// The number of writes since it was made.
    #[prost(int64, tag = "4")]
    pub version: i64,
    /// The value.
    #[prost(bytes = "vec", tag = "5")]
    pub value: Vec<u8>,
    /// The session to which it is attached; 0 for none.
    #[prost(int64, tag = "6")]
    pub lease: i64,
}

/// The kind of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ::prost::Enumeration)]
#[repr(i32)]
pub enum EventType {
    /// It was written.
    Put = 0,
    /// It was deleted.
    Delete = 1,
}

/// A change of a key.
#[derive(Clone, PartialEq, Eq, ::prost::Message)]
pub struct Event {
    /// The kind.
    #[prost(enumeration = "EventType", tag = "1")]
    pub kind: i32,
    /// The key after the change; of a deleted one, only its name and the revision.
    #[prost(message, optional, tag = "2")]
    pub kv: Option<KeyValue>,
    /// The key as it was before, if the watch asked for it.
    #[prost(message, optional, tag = "3")]
    pub prev_kv: Option<KeyValue>,
}

/// The order in which keys are returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ::prost::Enumeration)]
#[repr(i32)]
pub enum SortOrder {
    /// The order of the keys.
    None = 0,
    /// The lowest first.
    Ascend = 1,
    /// The highest first.
    Descend = 2,
}

/// The property by which keys are sorted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ::prost::Enumeration)]
#[repr(i32)]
pub enum SortTarget {
    /// The key.
    Key = 0,
    /// The number of writes since it was made.
    Version = 1,
    /// The revision at which it was made.
    Create = 2,
    /// The revision at which it was last written.
    Mod = 3,
    /// The value.
    Value = 4,
}

/// Asks for keys.
#[derive(Clone, PartialEq, Eq, ::prost::Message)]
pub struct RangeRequest {
    /// The first key.
    #[prost(bytes = "vec", tag = "1")]
    pub key: Vec<u8>,
    /// The end of the range, exclusive; empty for one key.
    #[prost(bytes = "vec", tag = "2")]
    pub range_end: Vec<u8>,
    /// The most keys to return; 0 for all.
    #[prost(int64, tag = "3")]
    pub limit: i64,
    /// The revision at which the keys are read; 0 for the present one.
    #[prost(int64, tag = "4")]
    pub revision: i64,
    /// The order.
    #[prost(enumeration = "SortOrder", tag = "5")]
    pub sort_order: i32,
    /// The property by which they are sorted.
    #[prost(enumeration = "SortTarget", tag = "6")]
    pub sort_target: i32,
    /// True if the member may answer from its own state, which may be outdated.
    #[prost(bool, tag = "7")]
    pub serializable: bool,
    /// Leave out the values.
    #[prost(bool, tag = "8")]
    pub keys_only: bool,
    /// Return only the number of keys.
    #[prost(bool, tag = "9")]
    pub count_only: bool,
    /// Only keys that were written at this revision or later.
    #[prost(int64, tag = "10")]
    pub min_mod_revision: i64,
    /// Only keys that were written at this revision or before; 0 for any.
    #[prost(int64, tag = "11")]
    pub max_mod_revision: i64,
    /// Only keys that were made at this revision or later.
    #[prost(int64, tag = "12")]
    pub min_create_revision: i64,
    /// Only keys that were made at this revision or before; 0 for any.
    #[prost(int64, tag = "13")]
    pub max_create_revision: i64,
}

/// The keys.
#[derive(Clone, PartialEq, Eq, ::prost::Message)]
pub struct RangeResponse {
    /// The response header.
    #[prost(message, optional, tag = "1")]
    pub header: Option<ResponseHeader>,
    /// The keys.
    #[prost(message, repeated, tag = "2")]
    pub kvs: Vec<KeyValue>,
    /// True if there are more.
    #[prost(bool, tag = "3")]
    pub more: bool,
    /// The number of keys in the range, whatever the limit.
    #[prost(int64, tag = "4")]
    pub count: i64,
}

/// Writes a key.
#[derive(Clone, PartialEq, Eq, ::prost::Message)]
pub struct PutRequest {
    /// The key.
    #[prost(bytes = "vec", tag = "1")]
    pub key: Vec<u8>,
    /// The value.
    #[prost(bytes = "vec", tag = "2")]
    pub value: Vec<u8>,
    /// The session to attach it to; 0 for none.
    #[prost(int64, tag = "3")]
    pub lease: i64,
    /// Return the key as it was before.
    #[prost(bool, tag = "4")]
    pub prev_kv: bool,
    /// Keep the value.
    #[prost(bool, tag = "5")]
    pub ignore_value: bool,
    /// Keep the session.
    #[prost(bool, tag = "6")]
    pub ignore_lease: bool,
}

/// The response to a write.
#[derive(Clone, PartialEq, Eq, ::prost::Message)]
pub struct PutResponse {
    /// The response header.
    #[prost(message, optional, tag = "1")]
    pub header: Option<ResponseHeader>,
    /// The key as it was before.
    #[prost(message, optional, tag = "2")]
    pub prev_kv: Option<KeyValue>,
}

/// Deletes keys.
#[derive(Clone, PartialEq, Eq, ::prost::Message)]
pub struct DeleteRangeRequest {
    /// The first key.
    #[prost(bytes = "vec", tag = "1")]
    pub key: Vec<u8>,
    /// The end of the range, exclusive; empty for one key.
    #[prost(bytes = "vec", tag = "2")]
    pub range_end: Vec<u8>,
    /// Return the keys as they were before.
    #[prost(bool, tag = "3")]
    pub prev_kv: bool,
}

/// The response to a deletion.
#[derive(Clone, PartialEq, Eq, ::prost::Message)]
pub struct DeleteRangeResponse {
    /// The response header.
    #[prost(message, optional, tag = "1")]
    pub header: Option<ResponseHeader>,
    /// The number of deleted keys.
    #[prost(int64, tag = "2")]
    pub deleted: i64,
    /// The keys as they were before.
    #[prost(message, repeated, tag = "3")]
    pub prev_kvs: Vec<KeyValue>,
}

/// One operation of a transaction.
#[derive(Clone, PartialEq, Eq, ::prost::Oneof)]
pub enum Request {
    /// Reads.
    #[prost(message, tag = "1")]
    Range(RangeRequest),
    /// Writes.
    #[prost(message, tag = "2")]
    Put(PutRequest),
    /// Deletes.
    #[prost(message, tag = "3")]
    DeleteRange(DeleteRangeRequest),
    /// A nested transaction.
    #[prost(message, tag = "4")]
    Txn(TxnRequest),
}

/// One operation of a transaction.
#[derive(Clone, PartialEq, Eq, ::prost::Message)]
pub struct RequestOp {
    /// The operation.
    #[prost(oneof = "Request", tags = "1, 2, 3, 4")]
    pub request: Option<Request>,
}

/// The response to one operation.
#[derive(Clone, PartialEq, Eq, ::prost::Oneof)]
pub enum Response {
    /// The keys that were read.
    #[prost(message, tag = "1")]
    Range(RangeResponse),
    /// It was written.
    #[prost(message, tag = "2")]
    Put(PutResponse),
    /// It was deleted.
    #[prost(message, tag = "3")]
    DeleteRange(DeleteRangeResponse),
    /// The response to a nested transaction.
    #[prost(message, tag = "4")]
    Txn(TxnResponse),
}

/// The response to one operation.
#[derive(Clone, PartialEq, Eq, ::prost::Message)]
pub struct ResponseOp {
    /// The response.
    #[prost(oneof = "Response", tags = "1, 2, 3, 4")]
    pub response: Option<Response>,
}

/// The relation that a comparison requires.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ::prost::Enumeration)]
#[repr(i32)]
pub enum CompareResult {
    /// They are equal.
    Equal = 0,
    /// The key's value is greater than the given one.
    Greater = 1,
    /// The key's value is less than the given one.
    Less = 2,
    /// They differ.
    NotEqual = 3,
}

/// The property of a key that is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ::prost::Enumeration)]
#[repr(i32)]
pub enum CompareTarget {
    /// The number of writes since it was made.
    Version = 0,
    /// The revision at which it was made; 0 if it is not there.
    Create = 1,
    /// The revision at which it was last written; 0 if it is not there.
    Mod = 2,
    /// The value; no comparison with a missing key holds.
    Value = 3,
    /// Its session.
    Lease = 4,
}

/// The value to compare with.
#[derive(Clone, PartialEq, Eq, ::prost::Oneof)]
pub enum TargetUnion {
    /// The number of writes since it was made.
    #[prost(int64, tag = "4")]
    Version(i64),
    /// The revision at which it was made.
    #[prost(int64, tag = "5")]
    CreateRevision(i64),
    /// The revision at which it was last written.
    #[prost(int64, tag = "6")]
    ModRevision(i64),
    /// The value.
    #[prost(bytes = "vec", tag = "7")]
    Value(Vec<u8>),
    /// Its session.
    #[prost(int64, tag = "8")]
    Lease(i64),
}

/// A comparison.
#[derive(Clone, PartialEq, Eq, ::prost::Message)]
pub struct Compare {
    /// The required relation.
    #[prost(enumeration = "CompareResult", tag = "1")]
    pub result: i32,
    /// The compared property.
    #[prost(enumeration = "CompareTarget", tag = "2")]
    pub target: i32,
    /// The key.
    #[prost(bytes = "vec", tag = "3")]
    pub key: Vec<u8>,
    /// The value to compare with.
    #[prost(oneof = "TargetUnion", tags = "4, 5, 6, 7, 8")]
    pub target_union: Option<TargetUnion>,
    /// The end of the range of keys to compare, exclusive.
    #[prost(bytes = "vec", tag = "64")]
    pub range_end: Vec<u8>,
}

/// A transaction: one list of operations if all comparisons hold, otherwise the other.
#[derive(Clone, PartialEq, Eq, ::prost::Message)]
pub struct TxnRequest {
    /// The comparisons.
    #[prost(message, repeated, tag = "1")]
    pub compare: Vec<Compare>,
    /// The operations if all comparisons hold.
    #[prost(message, repeated, tag = "2")]
    pub success: Vec<RequestOp>,
    /// The operations otherwise.
    #[prost(message, repeated, tag = "3")]
    pub failure: Vec<RequestOp>,
}

/// The outcome of a transaction.
#[derive(Clone, PartialEq, Eq, ::prost::Message)]
pub struct TxnResponse {
    /// The response header.
    #[prost(message, optional, tag = "1")]
    pub header: Option<ResponseHeader>,
    /// True if all comparisons held.
    #[prost(bool, tag = "2")]
    pub succeeded: bool,
    /// The responses to the operations, in order.
    #[prost(message, repeated, tag = "3")]
    pub responses: Vec<ResponseOp>,
}

/// Discards the history of keys before a revision.
#[derive(Clone, PartialEq, Eq, ::prost::Message)]
pub struct CompactionRequest {
    /// The revision.
    #[prost(int64, tag = "1")]
    pub revision: i64,
    /// Answer only after the space was freed.
    #[prost(bool, tag = "2")]
    pub physical: bool,
}

/// The response to a compaction.
#[derive(Clone, PartialEq, Eq, ::prost::Message)]
pub struct CompactionResponse {
    /// The response header.
    #[prost(message, optional, tag = "1")]
    pub header: Option<ResponseHeader>,
}

/// Begins a session.
#[derive(Clone, PartialEq, Eq, ::prost::Message)]
pub struct LeaseGrantRequest {
    /// The time that it lasts without a keep-alive, in seconds.
    #[prost(int64, tag = "1")]
    pub ttl: i64,
    /// Its number; 0 lets the server draw one.
    #[prost(int64, tag = "2")]
    pub id: i64,
}

/// A session that has begun.
#[derive(Clone, PartialEq, Eq, ::prost::Message)]
pub struct LeaseGrantResponse {
    /// The response header.
    #[prost(message, optional, tag = "1")]
    pub header: Option<ResponseHeader>,
    /// Its number.
    #[prost(int64, tag = "2")]
    pub id: i64,
    /// The time that it lasts, in seconds.
    #[prost(int64, tag = "3")]
    pub ttl: i64,
    /// The reason that it has not begun.
    #[prost(string, tag = "4")]
    pub error: String,
}

/// Ends a session.
#[derive(Clone, PartialEq, Eq, ::prost::Message)]
pub struct LeaseRevokeRequest {
    /// Its number.
    #[prost(int64, tag = "1")]
    pub id: i64,
}

/// The response to the end of a session.
#[derive(Clone, PartialEq, Eq, ::prost::Message)]
pub struct LeaseRevokeResponse {
    /// The response header.
    #[prost(message, optional, tag = "1")]
    pub header: Option<ResponseHeader>,
}

/// Keeps a session alive.
#[derive(Clone, PartialEq, Eq, ::prost::Message)]
pub struct LeaseKeepAliveRequest {
    /// Its number.
    #[prost(int64, tag = "1")]
    pub id: i64,
}

/// The answer to a keep-alive.
#[derive(Clone, PartialEq, Eq, ::prost::Message)]
pub struct LeaseKeepAliveResponse {
    /// The response header.
    #[prost(message, optional, tag = "1")]
    pub header: Option<ResponseHeader>,
    /// Its number.
    #[prost(int64, tag = "2")]
    pub id: i64,
    /// The time that it lasts from now on, in seconds; 0 or less if there is none.
    #[prost(int64, tag = "3")]
    pub ttl: i64,
}

/// Asks for the remaining time of a session.
#[derive(Clone, PartialEq, Eq, ::prost::Message)]
pub struct LeaseTimeToLiveRequest {
    /// Its number.
    #[prost(int64, tag = "1")]
    pub id: i64,
    /// Return its keys too.
    #[prost(bool, tag = "2")]
    pub keys: bool,
}

/// The remaining time of a session.
#[derive(Clone, PartialEq, Eq, ::prost::Message)]
pub struct LeaseTimeToLiveResponse {
    /// The response header.
    #[prost(message, optional, tag = "1")]
    pub header: Option<ResponseHeader>,
    /// Its number.
    #[prost(int64, tag = "2")]
    pub id: i64,
    /// The remaining time, in seconds; -1 if there is none.
    #[prost(int64, tag = "3")]
    pub ttl: i64,
    /// The time that it was granted.
    #[prost(int64, tag = "4")]
    pub granted_ttl: i64,
    /// Its keys.
    #[prost(bytes = "vec", repeated, tag = "5")]
    pub keys: Vec<Vec<u8>>,
}

/// Asks for the sessions.
#[derive(Clone, PartialEq, Eq, ::prost::Message)]
pub struct LeaseLeasesRequest {}

/// A session.
#[derive(Clone, PartialEq, Eq, ::prost::Message)]
pub struct LeaseStatus {
    /// Its number.
    #[prost(int64, tag = "1")]
    pub id: i64,
}

/// The sessions.
#[derive(Clone, PartialEq, Eq, ::prost::Message)]
pub struct LeaseLeasesResponse {
    /// The response header.
    #[prost(message, optional, tag = "1")]
    pub header: Option<ResponseHeader>,
    /// The sessions.
    #[prost(message, repeated, tag = "2")]
    pub leases: Vec<LeaseStatus>,
}

/// The events that a watch leaves out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ::prost::Enumeration)]
#[repr(i32)]
pub enum WatchFilter {
    /// Writes.
    NoPut = 0,
    /// Deletions.
    NoDelete = 1,
}

/// A request to a stream of watches.
#[derive(Clone, PartialEq, Eq, ::prost::Oneof)]
pub enum WatchUnion {
    /// A new watch.
    #[prost(message, tag = "1")]
    Create(WatchCreateRequest),
    /// The end of one.
    #[prost(message, tag = "2")]
    Cancel(WatchCancelRequest),
    /// A request for the revision up to which all events have been sent.
    #[prost(message, tag = "3")]
    Progress(WatchProgressRequest),
}

/// A request to a stream of watches.
#[derive(Clone, PartialEq, Eq, ::prost::Message)]
pub struct WatchRequest {
    /// The request.
    #[prost(oneof = "WatchUnion", tags = "1, 2, 3")]
    pub request: Option<WatchUnion>,
}

/// A new watch.
#[derive(Clone, PartialEq, Eq, ::prost::Message)]
pub struct WatchCreateRequest {
    /// The first key.
    #[prost(bytes = "vec", tag = "1")]
    pub key: Vec<u8>,
    /// The end of the range, exclusive; empty for one key.
    #[prost(bytes = "vec", tag = "2")]
    pub range_end: Vec<u8>,
    /// The first revision of the events; 0 for events from now on.
    #[prost(int64, tag = "3")]
    pub start_revision: i64,
    /// Send periodic progress notifications.
    #[prost(bool, tag = "4")]
    pub progress_notify: bool,
    /// The events that it leaves out.
    #[prost(enumeration = "WatchFilter", repeated, tag = "5")]
    pub filters: Vec<i32>,
    /// Send the key as it was before.
    #[prost(bool, tag = "6")]
    pub prev_kv: bool,
    /// Its number in this stream; 0 lets the server choose.
    #[prost(int64, tag = "7")]
    pub watch_id: i64,
    /// Long answers may be split.
    #[prost(bool, tag = "8")]
    pub fragment: bool,
}

/// The end of a watch.
#[derive(Clone, PartialEq, Eq, ::prost::Message)]
pub struct WatchCancelRequest {
    /// Its number.
    #[prost(int64, tag = "1")]
    pub watch_id: i64,
}

/// Asks for the revision up to which all events have been sent.
#[derive(Clone, PartialEq, Eq, ::prost::Message)]
pub struct WatchProgressRequest {}

/// An answer on a stream of watches.
#[derive(Clone, PartialEq, Eq, ::prost::Message)]
pub struct WatchResponse {
    /// The response header.
    #[prost(message, optional, tag = "1")]
    pub header: Option<ResponseHeader>,
    /// Its number.
    #[prost(int64, tag = "2")]
    pub watch_id: i64,
    /// True if the watch has begun.
    #[prost(bool, tag = "3")]
    pub created: bool,
    /// True if the watch has ended.
    #[prost(bool, tag = "4")]
    pub canceled: bool,
    /// The first revision that is kept, if the watch has ended because earlier ones are compacted.
    #[prost(int64, tag = "5")]
    pub compact_revision: i64,
    /// The reason that it has ended.
    #[prost(string, tag = "6")]
    pub cancel_reason: String,
    /// More of this answer follows.
    #[prost(bool, tag = "7")]
    pub fragment: bool,
    /// The events.
    #[prost(message, repeated, tag = "11")]
    pub events: Vec<Event>,
}

/// Exchanges a password for a token.
#[derive(Clone, PartialEq, Eq, ::prost::Message)]
#[prost(skip_debug)]
pub struct AuthenticateRequest {
    /// The user.
    #[prost(string, tag = "1")]
    pub name: String,
    /// The password.
    #[prost(string, tag = "2")]
    pub password: String,
}

/// The token.
#[derive(Clone, PartialEq, Eq, ::prost::Message)]
pub struct AuthenticateResponse {
    /// The response header.
    #[prost(message, optional, tag = "1")]
    pub header: Option<ResponseHeader>,
    /// The token, for the metadata `token` of each request.
    #[prost(string, tag = "2")]
    pub token: String,
}

/// Asks for the status of this member.
#[derive(Clone, PartialEq, Eq, ::prost::Message)]
pub struct StatusRequest {}

/// The status of a member.
#[derive(Clone, PartialEq, Eq, ::prost::Message)]
pub struct StatusResponse {
    /// The response header.
    #[prost(message, optional, tag = "1")]
    pub header: Option<ResponseHeader>,
    /// The version of its program.
    #[prost(string, tag = "2")]
    pub version: String,
    /// Bytes on disk.
    #[prost(int64, tag = "3")]
    pub db_size: i64,
    /// The member that leads the cluster; 0 if none does.
    #[prost(uint64, tag = "4")]
    pub leader: u64,
    /// The last entry of its log.
    #[prost(uint64, tag = "5")]
    pub raft_index: u64,
    /// Its term.
    #[prost(uint64, tag = "6")]
    pub raft_term: u64,
    /// The last entry that took effect.
    #[prost(uint64, tag = "7")]
    pub raft_applied_index: u64,
    /// The errors of the member.
    #[prost(string, repeated, tag = "8")]
    pub errors: Vec<String>,
    /// Bytes on disk that are in use.
    #[prost(int64, tag = "9")]
    pub db_size_in_use: i64,
    /// True if it does not vote.
    #[prost(bool, tag = "10")]
    pub is_learner: bool,
}

/// The action of a request about alarms.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ::prost::Enumeration)]
#[repr(i32)]
pub enum AlarmAction {
    /// List it.
    Get = 0,
    /// Raise an alarm.
    Activate = 1,
    /// End one.
    Deactivate = 2,
}

/// Lists, raises or ends alarms.
#[derive(Clone, PartialEq, Eq, ::prost::Message)]
pub struct AlarmRequest {
    /// The action.
    #[prost(enumeration = "AlarmAction", tag = "1")]
    pub action: i32,
    /// The member; 0 for all.
    #[prost(uint64, tag = "2")]
    pub member_id: u64,
    /// The alarm; 0 for any.
    #[prost(int32, tag = "3")]
    pub alarm: i32,
}

/// An alarm of a member.
#[derive(Clone, PartialEq, Eq, ::prost::Message)]
pub struct AlarmMember {
    /// The member.
    #[prost(uint64, tag = "1")]
    pub member_id: u64,
    /// The alarm: 1 for no space, 2 for a damaged store.
    #[prost(int32, tag = "2")]
    pub alarm: i32,
}

/// The alarms.
#[derive(Clone, PartialEq, Eq, ::prost::Message)]
pub struct AlarmResponse {
    /// The response header.
    #[prost(message, optional, tag = "1")]
    pub header: Option<ResponseHeader>,
    /// The alarms.
    #[prost(message, repeated, tag = "2")]
    pub alarms: Vec<AlarmMember>,
}

/// Asks for the members.
#[derive(Clone, PartialEq, Eq, ::prost::Message)]
pub struct MemberListRequest {
    /// True if the answer must be linearizable (since 3.5).
    #[prost(bool, tag = "1")]
    pub linearizable: bool,
}

/// A member.
#[derive(Clone, PartialEq, Eq, ::prost::Message)]
pub struct Member {
    /// Its number.
    #[prost(uint64, tag = "1")]
    pub id: u64,
    /// Its name.
    #[prost(string, tag = "2")]
    pub name: String,
    /// The addresses for other members.
    #[prost(string, repeated, tag = "3")]
    pub peer_urls: Vec<String>,
    /// The addresses for clients.
    #[prost(string, repeated, tag = "4")]
    pub client_urls: Vec<String>,
    /// True if it does not vote.
    #[prost(bool, tag = "5")]
    pub is_learner: bool,
}

/// The members of the cluster.
#[derive(Clone, PartialEq, Eq, ::prost::Message)]
pub struct MemberListResponse {
    /// The response header.
    #[prost(message, optional, tag = "1")]
    pub header: Option<ResponseHeader>,
    /// The members.
    #[prost(message, repeated, tag = "2")]
    pub members: Vec<Member>,
}

/// Leaves out the password.
impl std::fmt::Debug for AuthenticateRequest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AuthenticateRequest").field("name", &self.name).finish_non_exhaustive()
    }
}
