//! A client's requests to the etcd API of the nodes: each is sent once, and has an outcome.

use std::collections::BTreeMap;
use std::time::Duration;

use http::uri::PathAndQuery;
use primacy::stores::etcd::api::{self, method};
use prost::Message;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Request, Status};
use tonic_prost::ProstCodec;

use super::journal::{Entry, KeyRead, Listed, Outcome, Swapped, Wrote};

/// The longest time for a connection to open.
const CONNECT_MAX: Duration = Duration::from_secs(1);
/// The longest time for an answer: longer than an election, and shorter than the node's own timeout, so that some
/// requests are given up and still done later.
const ANSWER_MAX: Duration = Duration::from_secs(3);
/// The maximum length of an answer that is read: all keys of an hour.
const ANSWER_LENGTH_MAX: usize = 64 << 20;
/// The length of a value, in bytes. Long enough that an hour's log is cut by many snapshots.
const VALUE_LENGTH: usize = 4 << 10;
/// The filler after the number in a value.
const FILLER: &str = ".";

/// The API endpoints of the successive nodes at one place.
#[derive(Debug)]
pub(super) struct EtcdApi {
    addresses: Vec<String>,
    /// The address that is tried next.
    next: usize,
    channel: Option<Channel>,
}

/// The answer to a request, before it is decoded, or its outcome if none came.
type Asked<A> = Result<A, Outcome<()>>;

impl EtcdApi {
    /// Creates a client of the endpoint at one of these addresses.
    pub(super) fn new(addresses: &[String]) -> Self {
        Self { addresses: addresses.to_vec(), next: 0, channel: None }
    }

    async fn channel(&mut self) -> Asked<Channel> {
        if let Some(channel) = &self.channel {
            return Ok(channel.clone());
        }
        let mut why = "there is no address".to_owned();
        for _ in 0..self.addresses.len() {
            let address = &self.addresses[self.next % self.addresses.len()];
            let endpoint = Endpoint::from_shared(format!("http://{address}"));
            let endpoint = endpoint.map_err(|error| Outcome::Failed(error.to_string()))?;
            match tokio::time::timeout(CONNECT_MAX, endpoint.connect()).await {
                Ok(Ok(channel)) => {
                    self.channel = Some(channel.clone());
                    return Ok(channel);
                }
                Ok(Err(error)) => why = format!("{address}: {error}"),
                Err(_) => why = format!("{address}: no connection in time"),
            }
            self.next += 1;
        }
        // The request was not sent.
        Err(Outcome::Failed(why))
    }

    async fn ask<Q, A>(&mut self, method: &'static str, question: Q) -> Asked<A>
    where
        Q: Message + 'static,
        A: Message + Default + 'static,
    {
        let channel = self.channel().await?;
        let asking = async {
            let mut grpc = tonic::client::Grpc::new(channel).max_decoding_message_size(ANSWER_LENGTH_MAX);
            grpc.ready().await.map_err(|error| Status::unavailable(error.to_string()))?;
            let path = PathAndQuery::from_static(method);
            grpc.unary(Request::new(question), path, ProstCodec::<Q, A>::default()).await
        };
        let answer = tokio::time::timeout(ANSWER_MAX, asking).await;
        self.took(answer.map(|answer| answer.map(tonic::Response::into_inner)).ok())
    }

    /// Returns the answer, or the outcome of a request without one. A connection without an answer is closed.
    fn took<A>(&mut self, answer: Option<Result<A, Status>>) -> Asked<A> {
        let outcome = match answer {
            Some(Ok(answer)) => return Ok(answer),
            Some(Err(status)) => of_status(&status),
            None => Outcome::InDoubt("no answer in time".to_owned()),
        };
        if matches!(outcome, Outcome::InDoubt(_)) {
            self.channel = None;
        }
        Err(outcome)
    }

    /// Reads a key.
    pub(super) async fn read(&mut self, key: &str) -> Outcome<KeyRead> {
        let answer: Asked<api::RangeResponse> = self.ask(method::RANGE, range(key)).await;
        understood_read(answer, |answer| {
            let revision = revision(answer.header.as_ref())?;
            Ok(KeyRead { revision, entry: answer.kvs.first().map(entry).transpose()? })
        })
    }

    /// Reads all keys with this prefix.
    pub(super) async fn list(&mut self, prefix: &str) -> Outcome<Listed> {
        let answer: Asked<api::RangeResponse> = self.ask(method::RANGE, range_of_all(prefix)).await;
        understood_read(answer, |answer| {
            let mut entries = BTreeMap::new();
            for found in &answer.kvs {
                entries.insert(String::from_utf8_lossy(&found.key).into_owned(), entry(found)?);
            }
            Ok(Listed { revision: revision(answer.header.as_ref())?, entries })
        })
    }

    /// Writes a value; attached to this session, if it is not 0.
    pub(super) async fn put(&mut self, key: &str, value: u64, lease: i64) -> Outcome<Wrote> {
        let value = bytes(value);
        let question = api::PutRequest { key: key.into(), value, lease, prev_kv: true, ..Default::default() };
        let answer: Asked<api::PutResponse> = self.ask(method::PUT, question).await;
        understood(answer, |answer| {
            let before = answer.prev_kv.as_ref().map(entry).transpose()?;
            Ok(Wrote { revision: revision(answer.header.as_ref())?, before })
        })
    }

    /// Deletes a key.
    pub(super) async fn delete(&mut self, key: &str) -> Outcome<Wrote> {
        let question = api::DeleteRangeRequest { key: key.into(), range_end: Vec::new(), prev_kv: true };
        let answer: Asked<api::DeleteRangeResponse> = self.ask(method::DELETE_RANGE, question).await;
        understood(answer, |answer| {
            let before = answer.prev_kvs.first().map(entry).transpose()?;
            Ok(Wrote { revision: revision(answer.header.as_ref())?, before })
        })
    }

    /// Writes a value if the key was last written at this revision, and otherwise reads its entry.
    pub(super) async fn swap(&mut self, key: &str, expected: i64, value: u64) -> Outcome<Swapped> {
        let compare = api::Compare {
            result: api::CompareResult::Equal.into(),
            target: api::CompareTarget::Mod.into(),
            key: key.into(),
            target_union: Some(api::TargetUnion::ModRevision(expected)),
            range_end: Vec::new(),
        };
        let put = api::PutRequest { key: key.into(), value: bytes(value), ..Default::default() };
        let operation = |request| vec![api::RequestOp { request: Some(request) }];
        let question = api::TxnRequest {
            compare: vec![compare],
            success: operation(api::Request::RequestPut(put)),
            failure: operation(api::Request::RequestRange(range(key))),
        };
        let answer: Asked<api::TxnResponse> = self.ask(method::TXN, question).await;
        understood(answer, |answer| {
            let revision = revision(answer.header.as_ref())?;
            let found = match answer.responses.first().and_then(|response| response.response.as_ref()) {
                Some(api::Response::ResponseRange(range)) => range.kvs.first().map(entry).transpose()?,
                Some(
                    api::Response::ResponsePut(_)
                    | api::Response::ResponseDeleteRange(_)
                    | api::Response::ResponseTxn(_),
                ) => None,
                None => return Err("a transaction without an answer".to_owned()),
            };
            Ok(Swapped { revision, held: answer.succeeded, found })
        })
    }

    /// Begins a session of this number; returns its time to live in seconds.
    pub(super) async fn begin(&mut self, session: i64, seconds: i64) -> Outcome<i64> {
        let question = api::LeaseGrantRequest { ttl: seconds, id: session };
        let answer: Asked<api::LeaseGrantResponse> = self.ask(method::LEASE_GRANT, question).await;
        understood(answer, |answer| Ok(answer.ttl))
    }

    /// Returns the remaining seconds of a session; -1 if it has ended.
    pub(super) async fn look(&mut self, session: i64) -> Outcome<i64> {
        let question = api::LeaseTimeToLiveRequest { id: session, keys: false };
        let answer: Asked<api::LeaseTimeToLiveResponse> =
            self.ask(method::LEASE_TIME_TO_LIVE, question).await;
        understood_read(answer, |answer| Ok(answer.ttl))
    }

    /// Ends a session.
    pub(super) async fn end(&mut self, session: i64) -> Outcome<bool> {
        let question = api::LeaseRevokeRequest { id: session };
        let answer: Asked<api::LeaseRevokeResponse> = self.ask(method::LEASE_REVOKE, question).await;
        understood(answer, |_| Ok(true))
    }

    /// Keeps a session alive, over a stream with one request; returns its time to live in seconds, 0 if it has ended.
    pub(super) async fn keep_alive(&mut self, session: i64) -> Outcome<i64> {
        let channel = match self.channel().await {
            Ok(channel) => channel,
            Err(outcome) => return outcome.into_other(),
        };
        let asking = async {
            let mut grpc = tonic::client::Grpc::new(channel);
            grpc.ready().await.map_err(|error| Status::unavailable(error.to_string()))?;
            let question = tokio_stream::once(api::LeaseKeepAliveRequest { id: session });
            let codec = ProstCodec::<api::LeaseKeepAliveRequest, api::LeaseKeepAliveResponse>::default();
            let path = PathAndQuery::from_static(method::LEASE_KEEP_ALIVE);
            let mut answers = grpc.streaming(Request::new(question), path, codec).await?.into_inner();
            answers.message().await?.ok_or_else(|| Status::unavailable("the stream ended"))
        };
        let answer = tokio::time::timeout(ANSWER_MAX, asking).await;
        understood(self.took(answer.ok()), |answer| Ok(answer.ttl))
    }
}

impl Outcome<()> {
    /// Converts the outcome to that of another kind of answer.
    fn into_other<T>(self) -> Outcome<T> {
        match self {
            Self::Failed(why) => Outcome::Failed(why),
            Self::InDoubt(why) => Outcome::InDoubt(why),
            Self::Garbled(why) => Outcome::Garbled(why),
            Self::Answered(()) => Outcome::Garbled("nothing".to_owned()),
        }
    }
}

/// The outcome of a request that ended with this error: the codes that etcd's clients take as definite failures are
/// failures; every other error leaves the outcome in doubt.
fn of_status(status: &Status) -> Outcome<()> {
    let why = format!("{:?}: {}", status.code(), status.message());
    let failed = match status.code() {
        Code::InvalidArgument | Code::NotFound | Code::AlreadyExists | Code::PermissionDenied => true,
        Code::FailedPrecondition | Code::OutOfRange | Code::Unimplemented => true,
        Code::ResourceExhausted | Code::Unauthenticated => true,
        Code::Ok | Code::Cancelled | Code::Unknown | Code::DeadlineExceeded | Code::Aborted => false,
        Code::Internal | Code::Unavailable | Code::DataLoss => false,
    };
    if failed { Outcome::Failed(why) } else { Outcome::InDoubt(why) }
}

fn understood<A, T>(answer: Asked<A>, read: impl FnOnce(A) -> Result<T, String>) -> Outcome<T> {
    match answer.map(read) {
        Ok(Ok(answer)) => Outcome::Answered(answer),
        Ok(Err(why)) => Outcome::Garbled(why),
        Err(outcome) => outcome.into_other(),
    }
}

/// The same for a read: without an answer it has failed.
fn understood_read<A, T>(answer: Asked<A>, read: impl FnOnce(A) -> Result<T, String>) -> Outcome<T> {
    match understood(answer, read) {
        Outcome::InDoubt(why) => Outcome::Failed(why),
        outcome @ (Outcome::Answered(_) | Outcome::Failed(_) | Outcome::Garbled(_)) => outcome,
    }
}

fn range(key: &str) -> api::RangeRequest {
    api::RangeRequest { key: key.into(), ..Default::default() }
}

fn range_of_all(prefix: &str) -> api::RangeRequest {
    let mut range_end: Vec<u8> = prefix.into();
    // No prefix ends with the highest byte.
    if let Some(last) = range_end.last_mut() {
        *last = last.saturating_add(1);
    }
    api::RangeRequest { key: prefix.into(), range_end, ..Default::default() }
}

fn revision(header: Option<&api::ResponseHeader>) -> Result<i64, String> {
    header.map(|header| header.revision).ok_or_else(|| "an answer without a header".to_owned())
}

/// The number followed by filler.
fn bytes(value: u64) -> Vec<u8> {
    let number = value.to_string();
    let filler = FILLER.repeat(VALUE_LENGTH.saturating_sub(number.len()));
    (number + &filler).into_bytes()
}

fn entry(found: &api::KeyValue) -> Result<Entry, String> {
    let text = String::from_utf8_lossy(&found.value);
    let number = text.trim_end_matches(FILLER).parse();
    let value = number.map_err(|_| format!("{text:.20} is no value of ours"))?;
    Ok(Entry { value, revision: found.mod_revision })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_read_as_it_is_written() {
        for value in [0, 7, 100, u64::MAX] {
            let found = api::KeyValue { value: bytes(value), mod_revision: 5, ..Default::default() };
            assert_eq!((entry(&found), found.value.len()), (Ok(Entry { value, revision: 5 }), VALUE_LENGTH));
        }
        let cut = api::KeyValue { value: Vec::new(), ..Default::default() };
        assert!(entry(&cut).is_err());
    }

    #[test]
    fn what_may_have_been_done_is_not_taken_for_failed() {
        let of = |code| of_status(&Status::new(code, "x"));
        for code in [Code::Unavailable, Code::Unknown, Code::DeadlineExceeded, Code::Cancelled] {
            assert!(matches!(of(code), Outcome::InDoubt(_)), "{code:?}");
        }
        for code in [Code::NotFound, Code::ResourceExhausted] {
            assert!(matches!(of(code), Outcome::Failed(_)), "{code:?}");
        }
    }
}
