//! Conversions between the messages of etcd's API and the operations of the map.

use std::num::NonZeroU64;

use primacy::stores::etcd::api;
use primacy_kv::command::{
    Answer, Bounds, Bytes, Change, Compared, Comparison, Delete, Direction, Found, Happened, Keys, Operation,
    Order, Previous, Read, Relation, Replace, SessionId, SortKey, Transaction, Version, Wanted, Write,
};
use primacy_kv::entry::Entry;

use super::backend::Freshness;
use super::errors::Known;

/// Converts a number to the signed one of the API.
pub(super) fn signed(number: u64) -> i64 {
    // Versions and counts grow one by one, so they never reach the limit.
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// Converts a requested revision to a version; `None` for the present one.
fn version(revision: i64) -> Option<Version> {
    u64::try_from(revision).ok().filter(|&number| number > 0).map(Version)
}

fn keys(key: Vec<u8>, end: &[u8]) -> Result<Keys, Known> {
    if key.is_empty() { Err(Known::EMPTY_KEY) } else { Ok(Keys::new(key.into(), end)) }
}

fn previous(wanted: bool) -> Previous {
    if wanted { Previous::Wanted } else { Previous::Unwanted }
}

/// Returns the freshness that a range requires.
pub(super) fn freshness(request: &api::RangeRequest) -> Freshness {
    if request.serializable { Freshness::Here } else { Freshness::Newest }
}

/// Converts a range.
///
/// # Errors
/// [`Known::EMPTY_KEY`].
pub(super) fn read(request: api::RangeRequest) -> Result<Read, Known> {
    let key = match request.sort_target() {
        api::SortTarget::Key => SortKey::Key,
        api::SortTarget::Version => SortKey::Writes,
        api::SortTarget::Create => SortKey::MadeAt,
        api::SortTarget::Mod => SortKey::ChangedAt,
        api::SortTarget::Value => SortKey::Value,
    };
    let direction = match request.sort_order() {
        api::SortOrder::None | api::SortOrder::Ascend => Direction::Ascending,
        api::SortOrder::Descend => Direction::Descending,
    };
    let wanted = match (request.count_only, request.keys_only) {
        (true, _) => Wanted::Count,
        (false, true) => Wanted::Keys,
        (false, false) => Wanted::Entries,
    };
    Ok(Read {
        at: version(request.revision),
        limit: u64::try_from(request.limit).ok().and_then(NonZeroU64::new),
        order: Order { key, direction },
        made: bounds(request.min_create_revision, request.max_create_revision),
        changed: bounds(request.min_mod_revision, request.max_mod_revision),
        wanted,
        keys: keys(request.key, &request.range_end)?,
    })
}

/// Bounds from the API, both inclusive; 0 means none.
fn bounds(from: i64, to: i64) -> Bounds {
    let to = if to == 0 { u64::MAX } else { u64::try_from(to).unwrap_or(0) };
    Bounds { from: Version(u64::try_from(from).unwrap_or(0)), to: Version(to) }
}

/// Converts a put.
///
/// # Errors
/// [`Known::EMPTY_KEY`], [`Known::VALUE_PROVIDED`] or [`Known::LEASE_PROVIDED`].
pub(super) fn write(request: api::PutRequest) -> Result<Write, Known> {
    if request.key.is_empty() {
        return Err(Known::EMPTY_KEY);
    }
    if request.ignore_value && !request.value.is_empty() {
        return Err(Known::VALUE_PROVIDED);
    }
    if request.ignore_lease && request.lease != 0 {
        return Err(Known::LEASE_PROVIDED);
    }
    Ok(Write {
        key: request.key.into(),
        value: if request.ignore_value { Replace::Keep } else { Replace::With(request.value.into()) },
        session: if request.ignore_lease {
            Replace::Keep
        } else {
            Replace::With(SessionId::new(request.lease))
        },
        previous: previous(request.prev_kv),
    })
}

/// Converts a delete.
///
/// # Errors
/// [`Known::EMPTY_KEY`].
pub(super) fn delete(request: api::DeleteRangeRequest) -> Result<Delete, Known> {
    let keys = keys(request.key, &request.range_end)?;
    Ok(Delete { keys, previous: previous(request.prev_kv) })
}

/// Converts a transaction. Each of its lists may have at most `operations_max` operations, nested ones counted as in
/// etcd.
///
/// # Errors
/// The first defect, in the order in which etcd checks.
pub(super) fn transaction(request: api::TxnRequest, operations_max: usize) -> Result<Transaction, Known> {
    let longest = request.compare.len().max(request.success.len()).max(request.failure.len());
    let left = operations_max.checked_sub(longest).ok_or(Known::TOO_MANY_OPERATIONS)?;
    let all = |operations: Vec<api::RequestOp>| -> Result<Vec<Operation>, Known> {
        operations.into_iter().map(|one| operation(one, left)).collect()
    };
    Ok(Transaction {
        comparisons: request.compare.into_iter().map(comparison).collect::<Result<_, _>>()?,
        then: all(request.success)?,
        otherwise: all(request.failure)?,
    })
}

fn operation(request: api::RequestOp, operations_max: usize) -> Result<Operation, Known> {
    match request.request {
        Some(api::Request::RequestRange(range)) => Ok(Operation::Read(Box::new(read(range)?))),
        Some(api::Request::RequestPut(put)) => Ok(Operation::Write(write(put)?)),
        Some(api::Request::RequestDeleteRange(range)) => Ok(Operation::Delete(delete(range)?)),
        Some(api::Request::RequestTxn(within)) => {
            Ok(Operation::Transaction(transaction(within, operations_max)?))
        }
        // etcd has this text for every cause.
        None => Err(Known::KEY_NOT_FOUND),
    }
}

fn comparison(compare: api::Compare) -> Result<Comparison, Known> {
    let relation = match compare.result() {
        api::CompareResult::Equal => Relation::Equal,
        api::CompareResult::NotEqual => Relation::NotEqual,
        api::CompareResult::Greater => Relation::Greater,
        api::CompareResult::Less => Relation::Less,
    };
    let target = compare.target();
    let given = compare.target_union;
    // If the given value has another type than the compared field, it is compared with nothing.
    let compared = match (target, given) {
        (api::CompareTarget::Version, Some(api::TargetUnion::Version(given))) => Compared::Writes(given),
        (api::CompareTarget::Version, _) => Compared::Writes(0),
        (api::CompareTarget::Create, Some(api::TargetUnion::CreateRevision(given))) => {
            Compared::MadeAt(given)
        }
        (api::CompareTarget::Create, _) => Compared::MadeAt(0),
        (api::CompareTarget::Mod, Some(api::TargetUnion::ModRevision(given))) => Compared::ChangedAt(given),
        (api::CompareTarget::Mod, _) => Compared::ChangedAt(0),
        (api::CompareTarget::Lease, Some(api::TargetUnion::Lease(given))) => Compared::Session(given),
        (api::CompareTarget::Lease, _) => Compared::Session(0),
        (api::CompareTarget::Value, Some(api::TargetUnion::Value(given))) => Compared::Value(given.into()),
        (api::CompareTarget::Value, _) => Compared::Value(Bytes::from([])),
    };
    Ok(Comparison { keys: keys(compare.key, &compare.range_end)?, relation, compared })
}

/// Converts an entry for a client.
pub(super) fn key_value(entry: &Entry) -> api::KeyValue {
    let stamp = entry.stamp();
    api::KeyValue {
        key: entry.key().to_vec(),
        create_revision: signed(stamp.made_at.0),
        mod_revision: signed(stamp.changed_at.0),
        version: signed(stamp.writes.get()),
        value: entry.value().to_vec(),
        lease: stamp.session.map_or(0, SessionId::get),
    }
}

/// Converts a change for a watcher.
pub(super) fn event(change: &Change) -> api::Event {
    let (kind, kv) = match &change.happened {
        Happened::Written(entry) => (api::EventType::Put, key_value(entry)),
        Happened::Deleted(entry) => {
            let mod_revision = signed(change.version.0);
            let key = entry.key().to_vec();
            (api::EventType::Delete, api::KeyValue { key, mod_revision, ..Default::default() })
        }
    };
    api::Event { r#type: kind.into(), kv: Some(kv), prev_kv: change.previous.as_ref().map(key_value) }
}

/// Returns the bytes of these entries in an answer, with their overhead.
pub(super) fn bytes_of(entries: &[Entry]) -> usize {
    entries.iter().map(|entry| entry.key().len() + entry.value().len() + size_of::<api::KeyValue>()).sum()
}

/// Returns the bytes of an answer.
pub(super) fn bytes_of_answer(answer: &Answer) -> usize {
    match answer {
        Answer::Found(found) => bytes_of(&found.entries),
        Answer::Written { previous, .. } => {
            previous.as_ref().map_or(0, |one| bytes_of(std::slice::from_ref(one)))
        }
        Answer::Deleted { previous, .. } => bytes_of(previous),
        Answer::Decided { answers, .. } => answers.iter().map(bytes_of_answer).sum(),
        Answer::Ended { .. } | Answer::Done => 0,
    }
}

/// Converts the result of a read.
pub(super) fn range_response(found: &Found, header: api::ResponseHeader) -> api::RangeResponse {
    api::RangeResponse {
        header: Some(header),
        kvs: found.entries.iter().map(key_value).collect(),
        more: found.more,
        count: signed(found.count),
    }
}

/// The answer to a write.
pub(super) fn put_response(previous: Option<&Entry>, header: api::ResponseHeader) -> api::PutResponse {
    api::PutResponse { header: Some(header), prev_kv: previous.map(key_value) }
}

/// The answer to a deletion.
pub(super) fn delete_response(
    count: u64,
    previous: &[Entry],
    header: api::ResponseHeader,
) -> api::DeleteRangeResponse {
    let prev_kvs = previous.iter().map(key_value).collect();
    api::DeleteRangeResponse { header: Some(header), deleted: signed(count), prev_kvs }
}

/// The answer to a transaction.
pub(super) fn txn_response(held: bool, answers: &[Answer], header: api::ResponseHeader) -> api::TxnResponse {
    let responses = answers.iter().map(|answer| api::ResponseOp { response: Some(within(answer)) });
    api::TxnResponse { header: Some(header), succeeded: held, responses: responses.collect() }
}

/// Converts the answer to an operation of a transaction; its header has only the version.
fn within(answer: &Answer) -> api::Response {
    let at = |version: Version| api::ResponseHeader { revision: signed(version.0), ..Default::default() };
    match answer {
        Answer::Found(found) => api::Response::ResponseRange(range_response(found, at(found.version))),
        Answer::Written { version, previous } => {
            api::Response::ResponsePut(put_response(previous.as_ref(), at(*version)))
        }
        Answer::Deleted { version, count, previous } => {
            api::Response::ResponseDeleteRange(delete_response(*count, previous, at(*version)))
        }
        Answer::Decided { held, answers } => {
            api::Response::ResponseTxn(txn_response(*held, answers, api::ResponseHeader::default()))
        }
        Answer::Ended { .. } | Answer::Done => unreachable!("no part of a transaction is answered so"),
    }
}
