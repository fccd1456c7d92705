//! The record of a state in Protocol Buffers. A tag that was once used is never given another meaning.

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Record {
    #[prost(string, tag = "1")]
    pub(super) election: String,
    #[prost(string, tag = "2")]
    pub(super) node: String,
    #[prost(bytes = "vec", tag = "3")]
    pub(super) disk: Vec<u8>,
    #[prost(uint64, tag = "4")]
    pub(super) incarnations: u64,
    #[prost(uint64, tag = "5")]
    pub(super) term: u64,
    #[prost(message, optional, tag = "6")]
    pub(super) voted_for: Option<VotedFor>,
    #[prost(uint64, tag = "7")]
    pub(super) promise_nanos: u64,
    #[prost(message, repeated, tag = "8")]
    pub(super) peer_disks: Vec<PeerDisk>,
    #[prost(enumeration = "DiskState", tag = "9")]
    pub(super) disk_state: i32,
    #[prost(message, optional, tag = "10")]
    pub(super) voters: Option<Voters>,
    #[prost(bool, tag = "11")]
    pub(super) log_lost: bool,
    #[prost(enumeration = "Log", tag = "12")]
    pub(super) log: i32,
    #[prost(message, optional, tag = "13")]
    pub(super) log_reach: Option<LogReach>,
}

#[derive(Clone, Copy, PartialEq, prost::Message)]
pub(super) struct LogReach {
    #[prost(uint64, tag = "1")]
    pub(super) segment: u64,
    #[prost(uint64, tag = "2")]
    pub(super) term: u64,
    #[prost(uint64, tag = "3")]
    pub(super) counter: u64,
}

/// The durability of the log of metadata.
#[derive(Clone, Copy, Debug, PartialEq, Eq, prost::Enumeration)]
pub(super) enum Log {
    None = 0,
    Fsync = 1,
    Memory = 2,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Voters {
    #[prost(uint64, tag = "1")]
    pub(super) term: u64,
    #[prost(uint64, tag = "2")]
    pub(super) counter: u64,
    #[prost(message, repeated, tag = "3")]
    pub(super) members: Vec<Voter>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Voter {
    #[prost(string, tag = "1")]
    pub(super) node: String,
    #[prost(string, tag = "2")]
    pub(super) address: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, prost::Enumeration)]
pub(super) enum DiskState {
    Intact = 0,
    Lost = 1,
    Recovered = 2,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct VotedFor {
    #[prost(string, tag = "1")]
    pub(super) node: String,
    #[prost(uint64, tag = "2")]
    pub(super) count: u64,
    #[prost(fixed64, tag = "3")]
    pub(super) nonce: u64,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct PeerDisk {
    #[prost(string, tag = "1")]
    pub(super) node: String,
    #[prost(bytes = "vec", tag = "2")]
    pub(super) disk: Vec<u8>,
    #[prost(bool, tag = "3")]
    pub(super) readmitted: bool,
    #[prost(bytes = "vec", repeated, tag = "4")]
    pub(super) former: Vec<Vec<u8>>,
}
