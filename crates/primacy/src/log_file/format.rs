//! Records and the content of first pages in Protocol Buffers: `proto/log_file.proto` specifies them.

pub(super) mod message;

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

pub(super) const fn number(number: LeaderSequence) -> Option<message::Number> {
    Some(message::Number { term: number.term.0, counter: number.counter })
}

pub(super) fn read_number(number: Option<message::Number>) -> LeaderSequence {
    let message::Number { term, counter } = number.unwrap_or_default();
    LeaderSequence { term: Term(term), counter }
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
            message::record::Body::Begin(message::Begin { after: number(*after), voters: Some(voters(set)) })
        }
        RecordBody::Voters(set) => message::record::Body::Voters(voters(set)),
        RecordBody::Payload(payload) => message::record::Body::Payload(payload.to_vec()),
    };
    message::Record { term: record.number.term.0, counter: record.number.counter, body: Some(body) }
}

fn read_record(record: message::Record) -> Result<Record, NotAllowed> {
    let number = LeaderSequence { term: Term(record.term), counter: record.counter };
    let body = match record.body.ok_or_else(|| not_allowed("what a record says"))? {
        message::record::Body::Begin(begin) => RecordBody::Begin {
            after: read_number(begin.after),
            voters: Arc::new(read_voters(begin.voters.unwrap_or_default())?),
        },
        message::record::Body::Voters(set) => RecordBody::Voters(Arc::new(read_voters(set)?)),
        message::record::Body::Payload(payload) => RecordBody::Payload(payload.into()),
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
