//! Records and the content of first pages in Protocol Buffers. A tag that was once used is never given another meaning.

use std::collections::BTreeMap;
use std::sync::Arc;

use primacy_core::{LeaderSequence, NodeId, Term};
use primacy_kv::replication::log::{Record, RecordBody};
use primacy_kv::replication::voters::Voters;
use prost::Message as _;

/// Error: an invalid field, by its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct NotAllowed(String);

impl std::fmt::Display for NotAllowed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl From<prost::DecodeError> for NotAllowed {
    fn from(error: prost::DecodeError) -> Self {
        Self(error.to_string())
    }
}

fn not_allowed(field: &str) -> NotAllowed {
    NotAllowed(format!("{field} has a value that is not allowed"))
}

/// The messages.
pub(super) mod message {
    #[derive(Clone, Copy, PartialEq, prost::Message)]
    pub(in super::super) struct Number {
        #[prost(uint64, tag = "1")]
        pub(in super::super) term: u64,
        #[prost(uint64, tag = "2")]
        pub(in super::super) counter: u64,
    }

    /// The content of the first page of a segment.
    #[derive(Clone, PartialEq, prost::Message)]
    pub(in super::super) struct Segment {
        #[prost(string, tag = "1")]
        pub(in super::super) election: String,
        #[prost(string, tag = "2")]
        pub(in super::super) node: String,
        #[prost(bytes = "vec", tag = "3")]
        pub(in super::super) id: Vec<u8>,
        #[prost(uint64, tag = "4")]
        pub(in super::super) index: u64,
        #[prost(message, required, tag = "5")]
        pub(in super::super) after: Number,
        #[prost(uint64, tag = "6")]
        pub(in super::super) step: u64,
    }

    /// The content of the first page of a snapshot.
    #[derive(Clone, PartialEq, prost::Message)]
    pub(in super::super) struct Snapshot {
        #[prost(string, tag = "1")]
        pub(in super::super) election: String,
        #[prost(string, tag = "2")]
        pub(in super::super) node: String,
        #[prost(bytes = "vec", tag = "3")]
        pub(in super::super) id: Vec<u8>,
        #[prost(message, required, tag = "4")]
        pub(in super::super) number: Number,
        #[prost(uint64, tag = "5")]
        pub(in super::super) voters_length: u64,
        #[prost(uint64, tag = "6")]
        pub(in super::super) state_length: u64,
    }

    /// The content of one block.
    #[derive(Clone, PartialEq, prost::Message)]
    pub(in super::super) struct Block {
        #[prost(message, repeated, tag = "1")]
        pub(in super::super) records: Vec<Record>,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub(in super::super) struct Record {
        #[prost(uint64, tag = "1")]
        pub(in super::super) term: u64,
        #[prost(uint64, tag = "2")]
        pub(in super::super) counter: u64,
        #[prost(oneof = "Body", tags = "3, 4, 5")]
        pub(in super::super) body: Option<Body>,
    }

    #[derive(Clone, PartialEq, prost::Oneof)]
    pub(in super::super) enum Body {
        #[prost(message, tag = "3")]
        Begin(Begin),
        #[prost(message, tag = "4")]
        Voters(Voters),
        #[prost(bytes = "vec", tag = "5")]
        Payload(Vec<u8>),
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub(in super::super) struct Begin {
        #[prost(message, required, tag = "1")]
        pub(in super::super) after: Number,
        #[prost(message, required, tag = "2")]
        pub(in super::super) voters: Voters,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub(in super::super) struct Voters {
        #[prost(message, required, tag = "1")]
        pub(in super::super) number: Number,
        #[prost(message, repeated, tag = "2")]
        pub(in super::super) members: Vec<Member>,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub(in super::super) struct Member {
        #[prost(string, tag = "1")]
        pub(in super::super) node: String,
        #[prost(string, tag = "2")]
        pub(in super::super) address: String,
    }
}

pub(super) const fn number(number: LeaderSequence) -> message::Number {
    message::Number { term: number.term.0, counter: number.counter }
}

pub(super) const fn read_number(number: message::Number) -> LeaderSequence {
    LeaderSequence { term: Term(number.term), counter: number.counter }
}

pub(super) fn read_node(name: &str) -> Result<NodeId, NotAllowed> {
    NodeId::new(name).map_err(|_| not_allowed("a node name"))
}

/// Reads the random id of a file.
pub(super) fn read_id<const LENGTH: usize>(bytes: &[u8]) -> Result<[u8; LENGTH], NotAllowed> {
    bytes.try_into().map_err(|_| not_allowed("the file's id"))
}

pub(super) fn record(record: &Record) -> message::Record {
    let body = match &record.body {
        RecordBody::Begin { after, voters: set } => {
            message::Body::Begin(message::Begin { after: number(*after), voters: voters(set) })
        }
        RecordBody::Voters(set) => message::Body::Voters(voters(set)),
        RecordBody::Payload(payload) => message::Body::Payload(payload.to_vec()),
    };
    message::Record { term: record.number.term.0, counter: record.number.counter, body: Some(body) }
}

fn read_record(record: message::Record) -> Result<Record, NotAllowed> {
    let number = LeaderSequence { term: Term(record.term), counter: record.counter };
    let body = match record.body.ok_or_else(|| not_allowed("what a record says"))? {
        message::Body::Begin(begin) => RecordBody::Begin {
            after: read_number(begin.after),
            voters: Arc::new(read_voters(begin.voters)?),
        },
        message::Body::Voters(set) => RecordBody::Voters(Arc::new(read_voters(set)?)),
        message::Body::Payload(payload) => RecordBody::Payload(payload.into()),
    };
    Ok(Record { number, body })
}

/// The records of a block, which has at least one.
pub(super) fn read_block(bytes: &[u8]) -> Result<Vec<Record>, NotAllowed> {
    let block = message::Block::decode(bytes)?;
    if block.records.is_empty() {
        return Err(not_allowed("the list of records"));
    }
    block.records.into_iter().map(read_record).collect()
}

pub(super) fn voters(voters: &Voters) -> message::Voters {
    let member = |(node, address): (&NodeId, &Arc<str>)| message::Member {
        node: node.as_str().to_owned(),
        address: address.as_ref().to_owned(),
    };
    message::Voters { number: number(voters.number), members: voters.members.iter().map(member).collect() }
}

pub(super) fn read_voters(voters: message::Voters) -> Result<Voters, NotAllowed> {
    let mut members = BTreeMap::new();
    for member in voters.members {
        if members.insert(read_node(&member.node)?, Arc::from(member.address)).is_some() {
            return Err(not_allowed("the list of voters"));
        }
    }
    Ok(Voters { number: read_number(voters.number), members })
}
