//! Elections and locks that the server holds for its clients: the messages of etcd's packages `v3electionpb` and `v3lockpb`.

use super::{KeyValue, ResponseHeader};

/// Campaigns in an election.
#[derive(Clone, PartialEq, Eq, ::prost::Message)]
pub struct CampaignRequest {
    /// The election.
    #[prost(bytes = "vec", tag = "1")]
    pub name: Vec<u8>,
    /// The session of the candidate; 0 lets the server begin one, which is not kept alive.
    #[prost(int64, tag = "2")]
    pub lease: i64,
    /// The value that the leader proclaims.
    #[prost(bytes = "vec", tag = "3")]
    pub value: Vec<u8>,
}

/// The election is won.
#[derive(Clone, PartialEq, Eq, ::prost::Message)]
pub struct CampaignResponse {
    /// The response header.
    #[prost(message, optional, tag = "1")]
    pub header: Option<ResponseHeader>,
    /// The proof of the leadership.
    #[prost(message, optional, tag = "2")]
    pub leader: Option<LeaderKey>,
}

/// The proof of a leadership.
#[derive(Clone, PartialEq, Eq, ::prost::Message)]
pub struct LeaderKey {
    /// The election.
    #[prost(bytes = "vec", tag = "1")]
    pub name: Vec<u8>,
    /// The leader's key.
    #[prost(bytes = "vec", tag = "2")]
    pub key: Vec<u8>,
    /// The revision at which it was made.
    #[prost(int64, tag = "3")]
    pub rev: i64,
    /// Its session.
    #[prost(int64, tag = "4")]
    pub lease: i64,
}

/// Asks for the leader.
#[derive(Clone, PartialEq, Eq, ::prost::Message)]
pub struct LeaderRequest {
    /// The election.
    #[prost(bytes = "vec", tag = "1")]
    pub name: Vec<u8>,
}

/// The leader.
#[derive(Clone, PartialEq, Eq, ::prost::Message)]
pub struct LeaderResponse {
    /// The response header.
    #[prost(message, optional, tag = "1")]
    pub header: Option<ResponseHeader>,
    /// The leader's key, and its value.
    #[prost(message, optional, tag = "2")]
    pub kv: Option<KeyValue>,
}

/// Gives up the lead.
#[derive(Clone, PartialEq, Eq, ::prost::Message)]
pub struct ResignRequest {
    /// The proof of the leadership.
    #[prost(message, optional, tag = "1")]
    pub leader: Option<LeaderKey>,
}

/// The response to a resignation.
#[derive(Clone, PartialEq, Eq, ::prost::Message)]
pub struct ResignResponse {
    /// The response header.
    #[prost(message, optional, tag = "1")]
    pub header: Option<ResponseHeader>,
}

/// Changes the value that a leader proclaims.
#[derive(Clone, PartialEq, Eq, ::prost::Message)]
pub struct ProclaimRequest {
    /// The proof of the leadership.
    #[prost(message, optional, tag = "1")]
    pub leader: Option<LeaderKey>,
    /// The new value.
    #[prost(bytes = "vec", tag = "2")]
    pub value: Vec<u8>,
}

/// The response to a new value.
#[derive(Clone, PartialEq, Eq, ::prost::Message)]
pub struct ProclaimResponse {
    /// The response header.
    #[prost(message, optional, tag = "1")]
    pub header: Option<ResponseHeader>,
}

/// Takes a lock.
#[derive(Clone, PartialEq, Eq, ::prost::Message)]
pub struct LockRequest {
    /// Its name.
    #[prost(bytes = "vec", tag = "1")]
    pub name: Vec<u8>,
    /// The session of the lock; 0 lets the server begin one, which is not kept alive.
    #[prost(int64, tag = "2")]
    pub lease: i64,
}

/// The lock is taken.
#[derive(Clone, PartialEq, Eq, ::prost::Message)]
pub struct LockResponse {
    /// The response header.
    #[prost(message, optional, tag = "1")]
    pub header: Option<ResponseHeader>,
    /// The key that exists for as long as it is held.
    #[prost(bytes = "vec", tag = "2")]
    pub key: Vec<u8>,
}

/// Releases a lock.
#[derive(Clone, PartialEq, Eq, ::prost::Message)]
pub struct UnlockRequest {
    /// The key of the holder.
    #[prost(bytes = "vec", tag = "1")]
    pub key: Vec<u8>,
}

/// The response to a release.
#[derive(Clone, PartialEq, Eq, ::prost::Message)]
pub struct UnlockResponse {
    /// The response header.
    #[prost(message, optional, tag = "1")]
    pub header: Option<ResponseHeader>,
}
