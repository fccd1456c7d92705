//! JetStream's API: requests and answers in JSON, as far as this store uses them.

use std::collections::BTreeMap;
use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tokio::time::{Instant, timeout_at};

use super::connection::NatsConnection;
use super::framing::{self, NatsMessage};
use super::{Entry, Failure};

/// The codes of errors, as the servers number them.
pub(super) mod code {
    pub(in super::super) const NOT_ENABLED_FOR_ACCOUNT: u64 = 10_039;
    pub(in super::super) const NO_MESSAGE_FOUND: u64 = 10_037;
    pub(in super::super) const STREAM_NAME_EXIST: u64 = 10_058;
    pub(in super::super) const STREAM_NOT_FOUND: u64 = 10_059;
    pub(in super::super) const WRONG_LAST_SEQUENCE: u64 = 10_071;
    pub(in super::super) const REPLICAS_NOT_SUPPORTED: u64 = 10_074;
    pub(in super::super) const NOT_ENABLED: u64 = 10_076;
    /// The error for a write that does not name the newest sequence number, while another write of the key is in progress.
    pub(in super::super) const WRONG_LAST_SEQUENCE_CONSTANT: u64 = 10_164;
}

/// A request without parameters.
pub(super) const EMPTY: BTreeMap<&str, ()> = BTreeMap::new();

/// The status of the answer to a request that no server and no client receives.
const NO_RESPONDERS: u16 = 503;

/// The header of a key that was deleted.
const OPERATION: &str = "KV-Operation";

/// The reason that a request was not granted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ApiFailure {
    /// No server took the request: JetStream is not enabled, or the stream has no leader.
    NoResponders,
    /// The servers refused it.
    Error(ApiError),
    /// The answer is none that a server gives.
    Malformed(String),
    /// There is no answer.
    Failed(Failure),
}

#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(default)]
pub(super) struct ApiError {
    pub(super) err_code: u64,
    pub(super) description: String,
}

impl fmt::Display for ApiError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (error {})", self.description, self.err_code)
    }
}

impl fmt::Display for ApiFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoResponders => f.write_str("no server takes the request"),
            Self::Error(error) => error.fmt(f),
            Self::Malformed(why) => write!(f, "the answer is not understood: {why}"),
            Self::Failed(failure) => f.write_str(&failure.clone().why()),
        }
    }
}

/// A stream's settings and its replicas.
#[derive(Clone, Debug, Deserialize)]
pub(in super::super) struct StreamInfo {
    pub(in super::super) config: StreamConfig,
    pub(in super::super) cluster: Option<ClusterInfo>,
}

#[derive(Clone, Debug, Deserialize)]
pub(in super::super) struct ClusterInfo {
    /// The replicas besides the leader's.
    #[serde(default)]
    pub(in super::super) replicas: Vec<ReplicaInfo>,
}

#[derive(Clone, Debug, Deserialize)]
pub(in super::super) struct ReplicaInfo {
    /// True if it is up to date.
    pub(in super::super) current: bool,
    #[serde(default)]
    pub(in super::super) offline: bool,
}

/// The value `file` of a stream's storage.
pub(in super::super) const FILE: &str = "file";

/// The settings of a stream that decide whether it keeps what is written.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(in super::super) struct StreamConfig {
    pub(in super::super) name: String,
    #[serde(default)]
    pub(super) description: String,
    #[serde(default)]
    pub(super) subjects: Vec<String>,
    pub(super) retention: String,
    pub(super) discard: String,
    pub(in super::super) storage: String,
    pub(in super::super) num_replicas: usize,
    /// The age at which a message expires, in nanoseconds; 0 for never.
    pub(super) max_age: u64,
    pub(super) max_msgs: i64,
    pub(super) max_bytes: i64,
    #[serde(default)]
    pub(super) max_msgs_per_subject: i64,
    #[serde(default)]
    pub(super) allow_rollup_hdrs: bool,
    #[serde(default)]
    pub(super) deny_delete: bool,
    #[serde(default)]
    pub(super) no_ack: bool,
    #[serde(default)]
    pub(super) sealed: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) mirror: Option<Source>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) sources: Option<Vec<Source>>,
}

/// A stream that another one takes its messages from.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(super) struct Source {
    pub(super) name: String,
}

/// The answer to a write.
#[derive(Debug, Deserialize)]
struct PublishAck {
    seq: u64,
}

/// The answer to a read.
#[derive(Debug, Deserialize)]
struct Stored {
    message: StoredMessage,
}

#[derive(Debug, Deserialize)]
struct StoredMessage {
    seq: u64,
    /// The headers, in base64.
    #[serde(default)]
    hdrs: String,
    /// The payload, in base64.
    #[serde(default)]
    data: String,
}

/// Asks the API, and waits for the answer until a time.
pub(super) async fn ask<T: DeserializeOwned>(
    connection: &NatsConnection,
    until: Instant,
    request: &str,
    body: &impl Serialize,
) -> Result<T, ApiFailure> {
    let unsent = |error: serde_json::Error| ApiFailure::Failed(Failure::NotDone(error.to_string()));
    let body = serde_json::to_vec(body).map_err(unsent)?;
    let subject = format!("$JS.API.{request}");
    decode(&answer(connection, until, connection.request(&subject, &[], &body)).await?)
}

/// Reads the newest message on a subject from the stream's leader.
pub(super) async fn read(
    connection: &NatsConnection,
    until: Instant,
    stream: &str,
    subject: &str,
) -> Result<Entry, ApiFailure> {
    let wanted = serde_json::json!({ "last_by_subj": subject });
    match ask::<Stored>(connection, until, &format!("STREAM.MSG.GET.{stream}"), &wanted).await {
        Ok(stored) => stored.message.entry(),
        Err(ApiFailure::Error(error)) if error.err_code == code::NO_MESSAGE_FOUND => {
            Ok(Entry::Absent { sequence: 0 })
        }
        Err(failure) => Err(failure),
    }
}

/// Publishes a message to a stream; returns its sequence number.
pub(super) async fn publish(
    connection: &NatsConnection,
    until: Instant,
    subject: &str,
    headers: &[(&str, String)],
    bytes: &[u8],
) -> Result<u64, ApiFailure> {
    let answer = answer(connection, until, connection.request(subject, headers, bytes)).await?;
    decode::<PublishAck>(&answer).map(|acknowledged| acknowledged.seq)
}

async fn answer(
    connection: &NatsConnection,
    until: Instant,
    requesting: impl Future<Output = Result<NatsMessage, Failure>>,
) -> Result<NatsMessage, ApiFailure> {
    let late = || {
        connection.was_late();
        Failure::Unknown("it did not answer in time; it may have no leader now".to_owned())
    };
    timeout_at(until, requesting).await.unwrap_or_else(|_| Err(late())).map_err(ApiFailure::Failed)
}

fn decode<T: DeserializeOwned>(answer: &NatsMessage) -> Result<T, ApiFailure> {
    #[derive(Deserialize)]
    struct Refused {
        error: Option<ApiError>,
    }
    if answer.status() == Some(NO_RESPONDERS) {
        return Err(ApiFailure::NoResponders);
    }
    let malformed = |error: serde_json::Error| ApiFailure::Malformed(error.to_string());
    let refused: Refused = serde_json::from_slice(&answer.payload).map_err(malformed)?;
    match refused.error {
        Some(error) => Err(ApiFailure::Error(error)),
        None => serde_json::from_slice(&answer.payload).map_err(malformed),
    }
}

impl StoredMessage {
    fn entry(self) -> Result<Entry, ApiFailure> {
        let decode =
            |text: &str| BASE64.decode(text).map_err(|error| ApiFailure::Malformed(error.to_string()));
        let (headers, bytes, sequence) = (decode(&self.hdrs)?, decode(&self.data)?, self.seq);
        match framing::header(&headers, OPERATION) {
            Some("DEL" | "PURGE") => Ok(Entry::Absent { sequence }),
            Some(_) | None => Ok(Entry::Present { sequence, bytes }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read<T: DeserializeOwned>(headers: &str, payload: &str) -> Result<T, ApiFailure> {
        let (headers, payload) = (headers.as_bytes().to_vec(), payload.as_bytes().to_vec());
        decode(&NatsMessage { headers, payload, ..NatsMessage::default() })
    }

    #[test]
    fn answers_are_told_from_refusals() {
        let acknowledged: PublishAck = read("", r#"{"stream":"KV_b","seq":7,"new":{}}"#).unwrap();
        assert_eq!(acknowledged.seq, 7);
        let refused = r#"{"error":{"code":400,"err_code":10071,"description":"wrong last sequence: 5"},"stream":"KV_b","seq":0}"#;
        match read::<PublishAck>("", refused) {
            Err(ApiFailure::Error(error)) => {
                assert_eq!(error.err_code, code::WRONG_LAST_SEQUENCE);
                assert!(error.to_string().contains("sequence: 5"), "{error}");
            }
            other => panic!("{other:?}"),
        }
        let nobody = read::<PublishAck>("NATS/1.0 503\r\n\r\n", "");
        assert_eq!(nobody.unwrap_err(), ApiFailure::NoResponders);
        for answer in ["", "7", "{}", r#"{"seq":-1}"#, r#"{"seq":1e99}"#, &"[".repeat(100_000)] {
            assert!(matches!(read::<PublishAck>("", answer), Err(ApiFailure::Malformed(_))), "{answer:.9}");
        }
    }

    #[test]
    fn a_deletion_marker_is_no_record() {
        let entry = |hdrs: &str, data: &str| {
            let text = format!(r#"{{"message":{{"subject":"s","seq":7,"hdrs":"{hdrs}","data":"{data}"}}}}"#);
            read::<Stored>("", &text).and_then(|stored| stored.message.entry())
        };
        let deleted = BASE64.encode("NATS/1.0\r\nKV-Operation: PURGE\r\n\r\n");
        assert_eq!(entry(&deleted, ""), Ok(Entry::Absent { sequence: 7 }));
        let other = BASE64.encode("NATS/1.0\r\nKV-Operation: PUT\r\n\r\n");
        let bytes = b"{}".to_vec();
        for headers in ["", &other, "////"] {
            assert_eq!(entry(headers, "e30="), Ok(Entry::Present { sequence: 7, bytes: bytes.clone() }));
        }
        assert!(matches!(entry("!", ""), Err(ApiFailure::Malformed(_))));
    }
}
