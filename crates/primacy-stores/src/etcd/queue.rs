//! The queue of one election, in the layout of `clientv3/concurrency.Election`: each candidate has a key `PREFIX/ELECTION/LEASE`, attached
//! to its lease; the oldest key is the leader's.

use std::time::Duration;

use primacy_core::election::lease::Holder;
use primacy_core::election::session::Entry;
use primacy_core::{FencingToken, Identity};

use super::api::{self, CompareTarget, Request, Response, SortOrder, SortTarget, TargetUnion, method};
use super::client::{Client, RequestError, RequestOutcome, Tries};
use super::session::{self, Lease};
use super::value::{self, Value};

/// The time limit of a request: a cluster without a leader elects one in a second or two.
const REQUEST_MAX: Duration = Duration::from_secs(5);

/// The maximum number of times that an operation restarts because other clients have changed the queue.
const ROUNDS_MAX: u32 = 16;

/// The number of entries in one request, when all entries are read.
const PAGE: i64 = 16;

/// The keys of one election.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Queue {
    /// The prefix, with the slash at its end.
    prefix: String,
}

/// The position of an entry when it was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct EntryPosition {
    pub(super) created: i64,
    pub(super) asked_to_resign: bool,
    pub(super) standing: QueueRank,
    /// The revision at which it was read.
    pub(super) revision: i64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum QueueRank {
    First,
    /// The first one, and the key of the next one before the entry.
    Behind {
        first: Entry,
        before: Vec<u8>,
    },
}

impl Queue {
    /// Returns the queue of an election. A slash in its name would put its keys into another election's queue, so it is written `%2F`.
    pub(super) fn new(prefix: &str, election: &str) -> Self {
        let name = election.replace('%', "%25").replace('/', "%2F");
        Self { prefix: if prefix.is_empty() { format!("{name}/") } else { format!("{prefix}/{name}/") } }
    }

    pub(super) fn prefix(&self) -> Vec<u8> {
        self.prefix.clone().into_bytes()
    }

    /// Returns the first key after all keys with the prefix, whose last byte is a slash and can be incremented.
    pub(super) fn end(&self) -> Vec<u8> {
        let mut end = self.prefix();
        if let Some(last) = end.last_mut() {
            *last += 1;
        }
        end
    }

    pub(super) fn key(&self, lease: Lease) -> Vec<u8> {
        format!("{}{}", self.prefix, lease.hex()).into_bytes()
    }

    /// Returns the key of the election's record, which is not in its queue.
    pub(super) fn record_key(&self) -> Vec<u8> {
        self.prefix.trim_end_matches('/').as_bytes().to_vec()
    }

    fn range_of_first(&self) -> api::RangeRequest {
        api::RangeRequest {
            key: self.prefix(),
            range_end: self.end(),
            limit: 1,
            sort_order: SortOrder::Ascend.into(),
            sort_target: SortTarget::Create.into(),
            ..Default::default()
        }
    }

    /// Makes sure that the session has exactly this entry, and finds its position. An entry that was seen before (`is_seen`) is only read,
    /// unless it is gone. The second value states whether a write may still take effect.
    pub(super) async fn campaign(
        &self,
        client: &Client,
        lease: Lease,
        (holder, entry): (&Holder, u64),
        is_seen: bool,
    ) -> (Result<EntryPosition, RequestError>, bool) {
        let (mut in_doubt, mut is_seen) = (false, is_seen);
        for _ in 0..ROUNDS_MAX {
            let put = (!is_seen).then_some((holder, entry));
            is_seen = false;
            let outcome = self.look(client, lease, put).await;
            in_doubt |= outcome.in_doubt;
            let result = match outcome.result {
                Ok(answer) => self.place(client, lease, (holder, entry), &answer).await,
                Err(error) => {
                    in_doubt |= matches!(error, RequestError::NoAnswer { .. });
                    Err(error)
                }
            };
            match result {
                Ok(None) => {}
                Ok(Some(found)) => return (Ok(found), in_doubt),
                Err(error) => return (Err(error), in_doubt),
            }
        }
        (Err(RequestError::NoAnswer { why: CHANGES.to_owned() }), in_doubt)
    }

    /// Reads the session's entry and the first one. If the session has no entry, this one is put.
    async fn look(
        &self,
        client: &Client,
        lease: Lease,
        put: Option<(&Holder, u64)>,
    ) -> RequestOutcome<api::TxnResponse> {
        let key = self.key(lease);
        let own = api::RangeRequest { key: key.clone(), ..Default::default() };
        let first = Request::RequestRange(self.range_of_first());
        let success = put.map_or(vec![], |(holder, entry)| {
            let value = value::encode(&Value { holder: holder.clone(), entry, resign: None });
            let put = api::PutRequest { key: key.clone(), value, lease: lease.0, ..Default::default() };
            ops([Request::RequestPut(put), first.clone()])
        });
        let question = api::TxnRequest {
            compare: vec![created(&key, 0)],
            success,
            failure: ops([Request::RequestRange(own), first]),
        };
        // An existing entry is not put again, so the request may be repeated.
        client.call(method::TXN, question, Tries::Many, REQUEST_MAX).await
    }

    /// Interprets the answer; `None` if the request has to be repeated.
    async fn place(
        &self,
        client: &Client,
        lease: Lease,
        own: (&Holder, u64),
        answer: &api::TxnResponse,
    ) -> Result<Option<EntryPosition>, RequestError> {
        let key = self.key(lease);
        let revision = revision_of(answer.header.as_ref())?;
        let (created, asked_to_resign) = if answer.succeeded && answer.responses.is_empty() {
            return Ok(None); // It has gone, and was not put.
        } else if answer.succeeded {
            (revision, false)
        } else {
            let Some(kv) = keys(answer, 0)?.first() else { return Ok(None) };
            match value::decode(&kv.value).filter(|value| (&value.holder, value.entry) == own) {
                Some(value) => (kv.create_revision, value.resign.is_some()),
                None => {
                    // An earlier entry of this session, which a late write has put there.
                    delete_if(client, kv).await?;
                    return Ok(None);
                }
            }
        };
        let Some(first) = keys(answer, 1)?.first() else { return Ok(None) };
        if first.key == key {
            return Ok(Some(EntryPosition {
                created,
                asked_to_resign,
                standing: QueueRank::First,
                revision,
            }));
        }
        let before = api::RangeRequest {
            max_create_revision: created - 1,
            sort_order: SortOrder::Descend.into(),
            keys_only: true,
            ..self.range_of_first()
        };
        let outcome = client.call(method::RANGE, before, Tries::Many, REQUEST_MAX).await;
        let answer: api::RangeResponse = outcome.result?;
        let revision = revision_of(answer.header.as_ref())?;
        // If there is none, the entries before it are gone meanwhile.
        Ok(answer.kvs.into_iter().next().map(|before| {
            let standing = QueueRank::Behind { first: entry_of(first), before: before.key };
            EntryPosition { created, asked_to_resign, standing, revision }
        }))
    }

    /// Removes this entry from the queue, if it exists. An entry with a known create revision need not be read first: no later entry has
    /// the same.
    pub(super) async fn leave(
        &self,
        client: &Client,
        lease: Lease,
        entry: u64,
        known: Option<i64>,
    ) -> Result<(), RequestError> {
        let key = self.key(lease);
        if let Some(revision) = known
            && delete_where(client, &key, created(&key, revision)).await?
        {
            return Ok(());
        }
        for _ in 0..ROUNDS_MAX {
            let own = api::RangeRequest { key: key.clone(), ..Default::default() };
            let outcome = client.call(method::RANGE, own, Tries::Many, REQUEST_MAX).await;
            let answer: api::RangeResponse = outcome.result?;
            let Some(kv) = answer.kvs.first() else { return Ok(()) };
            if value::decode(&kv.value).is_none_or(|value| value.entry != entry) {
                return Ok(());
            }
            // A request to resign may be written in between, which changes its revision.
            if delete_if(client, kv).await? {
                return Ok(());
            }
        }
        Err(RequestError::NoAnswer { why: CHANGES.to_owned() })
    }

    /// Returns the key of the first entry, and the revision at which it was read.
    pub(super) async fn first(&self, client: &Client) -> Result<(Option<api::KeyValue>, i64), RequestError> {
        let outcome = client.call(method::RANGE, self.range_of_first(), Tries::Many, REQUEST_MAX).await;
        let answer: api::RangeResponse = outcome.result?;
        let revision = revision_of(answer.header.as_ref())?;
        Ok((answer.kvs.into_iter().next(), revision))
    }

    /// Ends the sessions of all entries of this incarnation.
    pub(super) async fn evict(&self, client: &Client, dead: &Identity) -> Result<bool, RequestError> {
        let (mut key, mut found) = (self.prefix(), false);
        loop {
            let page = api::RangeRequest { key, range_end: self.end(), limit: PAGE, ..Default::default() };
            let outcome = client.call(method::RANGE, page, Tries::Many, REQUEST_MAX).await;
            let answer: api::RangeResponse = outcome.result?;
            for kv in &answer.kvs {
                if value::decode(&kv.value).is_some_and(|value| value.holder.identity == *dead) {
                    found = true;
                    session::revoke(client, Lease(kv.lease)).await?;
                    // Another client may have rewritten the key without its session, so that it does not go with the session.
                    delete_if(client, kv).await?;
                }
            }
            match answer.kvs.into_iter().last() {
                Some(last) if answer.more => {
                    key = last.key;
                    key.push(0);
                }
                Some(_) | None => return Ok(found),
            }
        }
    }

    /// Adds a request to resign to the first entry, if it has this token and is a Primacy node's.
    pub(super) async fn ask_to_resign(
        &self,
        client: &Client,
        token: FencingToken,
        by: &str,
    ) -> Result<bool, RequestError> {
        for _ in 0..ROUNDS_MAX {
            let Some(kv) = self.first(client).await?.0 else { return Ok(false) };
            let Some(mut value) = value::decode(&kv.value).filter(|_| token_of(&kv) == token) else {
                return Ok(false);
            };
            if value.resign.is_some() {
                return Ok(true);
            }
            value.resign = Some(by.to_owned());
            let value = value::encode(&value);
            let put =
                api::PutRequest { key: kv.key.clone(), value, ignore_lease: true, ..Default::default() };
            let question = api::TxnRequest {
                compare: vec![written(&kv.key, kv.mod_revision)],
                success: ops([Request::RequestPut(put)]),
                failure: vec![],
            };
            // A repetition compares with a state that is gone, fails, and the key is read again.
            let outcome = client.call(method::TXN, question, Tries::Many, REQUEST_MAX).await;
            let answer: api::TxnResponse = outcome.result?;
            if answer.succeeded {
                return Ok(true);
            }
        }
        Err(RequestError::NoAnswer { why: CHANGES.to_owned() })
    }
}

const CHANGES: &str = "what it asked about was changed by others all the time";

/// Deletes a key if it has not changed since it was read; returns whether it did. An earlier try may have deleted it, too.
async fn delete_if(client: &Client, kv: &api::KeyValue) -> Result<bool, RequestError> {
    delete_where(client, &kv.key, written(&kv.key, kv.mod_revision)).await
}

/// Deletes a key under any condition.
async fn delete_where(client: &Client, key: &[u8], condition: api::Compare) -> Result<bool, RequestError> {
    let delete = api::DeleteRangeRequest { key: key.to_vec(), ..Default::default() };
    let question = api::TxnRequest {
        compare: vec![condition],
        success: ops([Request::RequestDeleteRange(delete)]),
        failure: vec![],
    };
    let answer: api::TxnResponse =
        client.call(method::TXN, question, Tries::Many, REQUEST_MAX).await.result?;
    Ok(answer.succeeded)
}

pub(super) fn entry_of(kv: &api::KeyValue) -> Entry {
    let holder = match value::decode(&kv.value) {
        Some(value) => value.holder,
        None => value::stranger(&kv.value, kv.lease),
    };
    Entry { holder, token: token_of(kv) }
}

pub(super) fn token_of(kv: &api::KeyValue) -> FencingToken {
    FencingToken(u64::try_from(kv.create_revision).unwrap_or(0))
}

fn created(key: &[u8], revision: i64) -> api::Compare {
    compare(key, CompareTarget::Create, TargetUnion::CreateRevision(revision))
}

/// Returns the comparison that the key was last written at this revision; 0 if it is not there.
pub(super) fn written(key: &[u8], revision: i64) -> api::Compare {
    compare(key, CompareTarget::Mod, TargetUnion::ModRevision(revision))
}

fn compare(key: &[u8], target: CompareTarget, with: TargetUnion) -> api::Compare {
    let result = api::CompareResult::Equal.into();
    let target = target.into();
    api::Compare { result, target, key: key.to_vec(), target_union: Some(with), range_end: vec![] }
}

pub(super) fn ops<const N: usize>(requests: [Request; N]) -> Vec<api::RequestOp> {
    requests.into_iter().map(|request| api::RequestOp { request: Some(request) }).collect()
}

/// Returns the keys read by the operation with this index in a transaction.
pub(super) fn keys(answer: &api::TxnResponse, place: usize) -> Result<&[api::KeyValue], RequestError> {
    match answer.responses.get(place).and_then(|op| op.response.as_ref()) {
        Some(Response::ResponseRange(range)) => Ok(&range.kvs),
        Some(Response::ResponsePut(_) | Response::ResponseDeleteRange(_) | Response::ResponseTxn(_))
        | None => Err(unusable()),
    }
}

pub(super) fn revision_of(header: Option<&api::ResponseHeader>) -> Result<i64, RequestError> {
    header.map(|header| header.revision).ok_or_else(unusable)
}

fn unusable() -> RequestError {
    RequestError::NoAnswer { why: "its answer is not to what it was asked".to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_those_of_etcds_own_elections_and_no_queue_is_in_another() {
        let key =
            |prefix, election| String::from_utf8(Queue::new(prefix, election).key(Lease(0xab))).unwrap();
        assert_eq!(key("", "e"), "e/ab");
        assert_eq!(key("app/leaders", "e"), "app/leaders/e/ab");
        assert_eq!(key("p", "jobs/nightly"), "p/jobs%2Fnightly/ab");
        assert_eq!(key("p", "jobs%2Fnightly"), "p/jobs%252Fnightly/ab");
        assert_eq!(Queue::new("p", "e").end(), b"p/e0");
    }
}
