//! The document as bytes: the application's JSON object, with one additional field.
//!
//! ```json
//! {"jobs":[],"primacy":{"format":1,"token":1763719200124,"leader":{"id":"00c0ffee00c0ffee00c0ffee00c0ffee",
//!  "address":"10.0.0.7:8080"},"timeout_ns":10000000000,"beat":41,"nonce":"0123456789abcdef0123456789abcdef"}}
//! ```
//!
//! `leader` is `null` after a leader has resigned. `nonce` is drawn for each write.

use primacy_core::{Duration, FencingToken};
use primacy_stores::document::LENGTH_MAX;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The version of the format that is written, and the highest that is read.
const FORMAT: u64 = 1;

/// The highest token that is accepted from a document, so that there is always a next one.
const TOKEN_MAX: u64 = u64::MAX / 2;

/// The field of this library.
const FIELD: &str = "primacy";

/// The content of that field: the leader and its last write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Head {
    pub(super) token: FencingToken,
    pub(super) leader: Option<Broker>,
    /// The silence after which other brokers count the leader as gone.
    pub(super) timeout: Duration,
    /// The number of writes that this leadership has made.
    pub(super) beat: u64,
    pub(super) nonce: String,
}

/// The identity of a broker's process, with its address.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Broker {
    pub(super) id: String,
    pub(super) address: String,
}

#[derive(Serialize, Deserialize)]
struct WireHead {
    format: u64,
    token: u64,
    leader: Option<Broker>,
    timeout_ns: u64,
    beat: u64,
    nonce: String,
}

/// Draws a unique random number, as text.
pub(super) fn draw_nonce() -> Result<String, String> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).map_err(|error| format!("no random number could be drawn: {error}"))?;
    Ok(format!("{:032x}", u128::from_ne_bytes(bytes)))
}

pub(super) fn encode<S: Serialize>(state: &S, head: &Head) -> Result<Vec<u8>, String> {
    encode_within(LENGTH_MAX, state, head)
}

/// As [`encode`], with another limit of the length.
pub(super) fn encode_within<S: Serialize>(
    length_max: usize,
    state: &S,
    head: &Head,
) -> Result<Vec<u8>, String> {
    let state = serde_json::to_value(state).map_err(|error| error.to_string())?;
    let Value::Object(mut document) = state else {
        return Err("a state is written as a JSON object, and this one is none".to_owned());
    };
    let head = WireHead {
        format: FORMAT,
        token: head.token.0,
        leader: head.leader.clone(),
        timeout_ns: head.timeout.as_nanos(),
        beat: head.beat,
        nonce: head.nonce.clone(),
    };
    let head = serde_json::to_value(head).map_err(|error| error.to_string())?;
    if document.insert(FIELD.to_owned(), head).is_some() {
        return Err(format!("the field `{FIELD}` of the state belongs to the election; name it otherwise"));
    }
    let bytes = serde_json::to_vec(&document).map_err(|error| error.to_string())?;
    // Refused here: a store would refuse it again and again, until the lead is lost.
    if bytes.len() > length_max {
        return Err(format!("it would have {} bytes, and a document has at most {length_max}", bytes.len()));
    }
    Ok(bytes)
}

/// The state and its head; no head if another program wrote the document.
pub(super) fn decode<S: DeserializeOwned>(bytes: &[u8]) -> Result<(S, Option<Head>), String> {
    let document: Value = serde_json::from_slice(bytes).map_err(|error| format!("it is no JSON: {error}"))?;
    let Value::Object(mut document) = document else { return Err("it is no JSON object".to_owned()) };
    let head = document.remove(FIELD).map(decode_head).transpose()?;
    let state = serde_json::from_value(Value::Object(document));
    Ok((state.map_err(|error| format!("it has another form than this program's: {error}"))?, head))
}

fn decode_head(head: Value) -> Result<Head, String> {
    // The format is checked first: other fields of a later format may mean something else.
    let format = head.get("format").and_then(Value::as_u64);
    if let Some(found) = format.filter(|format| *format > FORMAT) {
        return Err(format!(
            "its field `{FIELD}` has format {found}, and this version of Primacy knows formats up to {FORMAT}; \
             upgrade this broker"
        ));
    }
    let head: WireHead =
        serde_json::from_value(head).map_err(|error| format!("its field `{FIELD}` is wrong: {error}"))?;
    if head.token > TOKEN_MAX {
        return Err(format!("its field `{FIELD}` has a token that no election comes to; repair it by hand"));
    }
    Ok(Head {
        token: FencingToken(head.token),
        leader: head.leader,
        timeout: Duration::from_nanos(head.timeout_ns),
        beat: head.beat,
        nonce: head.nonce,
    })
}
