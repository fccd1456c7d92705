//! Requests to Consul, and the meaning of its answers.
//!
//! Every request may be repeated, and a late one is harmless: each write to a key names the index that the key must have, so it is done at
//! most once; renewals and destroys are idempotent; and a session that is created twice leaves one that is not kept alive.
//!
//! Writes to a key are transactions of `check-index` with `lock` or `unlock`, and never plain writes: a plain write would reset
//! `LockIndex`, by which other programs may distinguish leaderships.

use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use hyper::Method;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Deserialize;
use serde_json::json;

use super::agent::{Agents, Answer, Question};
use super::duration;
use crate::error_text;
use crate::sessions::SessionError;

/// The flags with which `consul lock` marks its keys; it refuses keys without them.
pub(super) const LOCK_FLAG: u64 = 0x2ddc_cbc0_58a5_0c18;

/// The time limit of a request over all agents. A cluster whose leader is gone has another one in a few seconds.
const REQUEST_MAX: Duration = Duration::from_secs(6);

/// The longest time that a query lets Consul wait for a change of a key.
const WATCH: Duration = Duration::from_secs(30);

/// The additional time limit of the answer: Consul adds up to a sixteenth, so that waiting clients do not all return at once.
const WATCH_SLACK: Duration = Duration::from_secs(7);

/// The longest text of Consul's that an error shows, in characters.
const TEXT_SHOWN_MAX: usize = 300;

/// A client for one datacenter and one namespace of Consul.
#[derive(Debug)]
pub(super) struct Api {
    pub(super) agents: Agents,
    /// The parameters `dc` and `ns` of every query.
    pub(super) place: Vec<(&'static str, String)>,
}

/// The result of reading a key.
#[derive(Clone, Debug)]
pub(super) struct KeyRead {
    /// Consul's index for this key: that of its last change, or, if the key does not exist, that of the last change of any key.
    pub(super) index: u64,
    pub(super) entry: Option<Entry>,
}

/// A key and its value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) value: Vec<u8>,
    /// The session that holds the lock.
    pub(super) session: Option<String>,
    pub(super) flags: u64,
    /// The index of its last change.
    pub(super) modified: u64,
}

/// The outcome of a write to a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Written {
    /// The write was done, and the key has this index now.
    Done(u64),
    /// The key does not have the expected index or holder; nothing was written.
    Stale,
    /// A lock-delay is in effect; nothing was written.
    Delayed,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct WireEntry {
    #[serde(default)]
    key: String,
    value: Option<String>,
    #[serde(default)]
    session: Option<String>,
    flags: u64,
    modify_index: u64,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct WireTransaction {
    results: Option<Vec<WireResult>>,
    errors: Option<Vec<WireError>>,
}

#[derive(Deserialize)]
struct WireResult {
    #[serde(rename = "KV")]
    kv: Option<WireEntry>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct WireError {
    what: String,
}

#[derive(Deserialize)]
struct WireSession {
    #[serde(rename = "ID", default)]
    id: String,
    #[serde(rename = "Name", default)]
    name: String,
    #[serde(rename = "TTL", default)]
    ttl: String,
}

impl Api {
    /// Reads the key linearizably: a deposed leader of the servers does not answer.
    pub(super) async fn read(&self, key: &str) -> Result<KeyRead, SessionError> {
        let question = self.question(Method::GET, &format!("kv/{}", encode(key)), "consistent", Vec::new());
        found(&self.ask(&question).await?)
    }

    /// Returns the keys below a prefix that this session holds, with the index of each.
    pub(super) async fn held_by(
        &self,
        prefix: &str,
        session: &str,
    ) -> Result<Vec<(String, u64)>, SessionError> {
        let path = format!("kv/{}/", encode(prefix));
        let question = self.question(Method::GET, &path, "recurse=true&consistent", Vec::new());
        let answer = self.ask(&question).await?;
        if answer.status == 404 {
            return Ok(Vec::new());
        }
        let entries: Vec<WireEntry> = parse(&expect_ok(answer)?)?;
        let is_held =
            |entry: &WireEntry| entry.session.as_deref() == Some(session) && entry.flags == LOCK_FLAG;
        let held = entries.into_iter().filter(is_held);
        Ok(held.map(|entry| (entry.key, entry.modify_index)).collect())
    }

    /// Reads the key from the current agent, once its index differs from `known` or [`WATCH`] has passed.
    pub(super) async fn watch(&self, key: &str, known: u64) -> Result<KeyRead, SessionError> {
        let query = format!("index={known}&wait={}s", WATCH.as_secs());
        let question = self.question(Method::GET, &format!("kv/{}", encode(key)), &query, Vec::new());
        let told = self.agents.ask_current(&question, WATCH + WATCH_SLACK).await;
        found(&told.map_err(no_answer)?)
    }

    /// Makes the key, without a holder.
    pub(super) async fn make(&self, key: &str) -> Result<Written, SessionError> {
        let make = json!({ "Verb": "cas", "Key": key, "Index": 0, "Flags": LOCK_FLAG, "Value": "" });
        self.transact(vec![make]).await
    }

    /// Gives the lock to this session, which may already have it, if the key has this index.
    pub(super) async fn lock(
        &self,
        key: &str,
        index: u64,
        session: &str,
        value: &[u8],
    ) -> Result<Written, SessionError> {
        self.transact(vec![check(key, index), operation("lock", key, session, value)]).await
    }

    /// Takes the lock from this session, if the key has this index.
    pub(super) async fn unlock(&self, key: &str, index: u64, session: &str) -> Result<Written, SessionError> {
        self.transact(vec![check(key, index), operation("unlock", key, session, b"")]).await
    }

    /// Changes the index of a key without a holder, if it has this index.
    pub(super) async fn touch(&self, key: &str, index: u64, session: &str) -> Result<Written, SessionError> {
        let lock = operation("lock", key, session, b"");
        self.transact(vec![check(key, index), lock, operation("unlock", key, session, b"")]).await
    }

    async fn transact(&self, mut operations: Vec<serde_json::Value>) -> Result<Written, SessionError> {
        let namespace = self.place.iter().find(|(name, _)| *name == "ns");
        for operation in &mut operations {
            if let Some((_, namespace)) = namespace {
                operation["Namespace"] = json!(namespace);
            }
            *operation = json!({ "KV": operation });
        }
        let body = json!(operations).to_string().into_bytes();
        let answer = self.ask(&self.question(Method::PUT, "txn", "", body)).await?;
        if answer.status != 200 && answer.status != 409 {
            return Err(meaning(&answer));
        }
        let told: WireTransaction = parse(&answer)?;
        match told.errors {
            Some(errors) if !errors.is_empty() => refusal(&errors),
            Some(_) | None => {
                let results = told.results.unwrap_or_default().into_iter();
                let last = results.filter_map(|result| result.kv).next_back();
                let last = last.ok_or_else(|| no_answer("a transaction was answered without its result"))?;
                if last.flags != LOCK_FLAG {
                    let why = "this Consul changes the flags of keys in transactions: it is older than 1.7; upgrade it";
                    return Err(SessionError::Refused { why: why.to_owned() });
                }
                Ok(Written::Done(last.modify_index))
            }
        }
    }

    /// Creates a session, and returns its name. It depends only on keep-alives, and not on health checks, which could end it before its
    /// TTL.
    pub(super) async fn create(&self, ttl: Duration, lock_delay: Duration) -> Result<String, SessionError> {
        let none: [&str; 0] = [];
        let session = json!({
            "Name": "primacy",
            "TTL": duration::write(ttl),
            "LockDelay": duration::write(lock_delay),
            "Behavior": "release",
            "NodeChecks": none,
            "Checks": none,
        });
        let body = session.to_string().into_bytes();
        let answer = self.ask(&self.question(Method::PUT, "session/create", "", body)).await?;
        let told: WireSession = parse(&expect_ok(answer)?)?;
        if told.id.is_empty() || told.id.contains(|letter: char| !letter.is_ascii_graphic()) {
            return Err(no_answer("a session was begun without a name"));
        }
        Ok(told.id)
    }

    /// Keeps a session alive; returns the least time that it lasts from now on.
    pub(super) async fn renew(&self, session: &str) -> Result<Duration, SessionError> {
        let path = format!("session/renew/{}", encode(session));
        let answer = self.ask(&self.question(Method::PUT, &path, "", Vec::new())).await?;
        if answer.status == 404 {
            return Err(SessionError::Ended { why: text(&answer) });
        }
        let told: Vec<WireSession> = parse(&expect_ok(answer)?)?;
        let ttl = told.first().and_then(|session| duration::parse(&session.ttl));
        ttl.ok_or_else(|| no_answer("a session was kept alive for a time that cannot be read"))
    }

    /// Ends a session; a missing session is no error.
    pub(super) async fn destroy(&self, session: &str) -> Result<(), SessionError> {
        let path = format!("session/destroy/{}", encode(session));
        let answer = self.ask(&self.question(Method::PUT, &path, "", Vec::new())).await?;
        // With ACLs, Consul looks the session up first, and reports that it is missing.
        if answer.status == 404 || text(&answer).contains("Unknown session") {
            return Ok(());
        }
        expect_ok(answer).map(drop)
    }

    /// Returns the addresses of the Raft peers among the servers.
    pub(super) async fn peers(&self) -> Result<Vec<String>, SessionError> {
        let question = self.question(Method::GET, "status/peers", "", Vec::new());
        parse(&expect_ok(self.ask(&question).await?)?)
    }

    /// Returns the address of the leading server; empty if none leads.
    pub(super) async fn leader(&self) -> Result<String, SessionError> {
        let question = self.question(Method::GET, "status/leader", "", Vec::new());
        parse(&expect_ok(self.ask(&question).await?)?)
    }

    /// Returns the session's name, as its owner set it; empty if this token may not read it.
    pub(super) async fn name(&self, session: &str) -> Result<String, SessionError> {
        let path = format!("session/info/{}", encode(session));
        let answer = self.ask(&self.question(Method::GET, &path, "", Vec::new())).await?;
        let told: Vec<WireSession> = match answer.status {
            200 => parse(&answer)?,
            _ => Vec::new(),
        };
        Ok(told.into_iter().next().map(|session| session.name).unwrap_or_default())
    }

    async fn ask(&self, question: &Question) -> Result<Answer, SessionError> {
        let asking = tokio::time::timeout(REQUEST_MAX, self.agents.ask(question, REQUEST_MAX)).await;
        asking.map_err(|_| no_answer(format!("no answer within {REQUEST_MAX:?}")))?.map_err(no_answer)
    }

    fn question(&self, method: Method, path: &str, query: &str, body: Vec<u8>) -> Question {
        let mut target = format!("/v1/{path}?{query}");
        for (name, value) in &self.place {
            target.push_str(&format!("&{name}={}", encode(value)));
        }
        Question { method, target, body }
    }
}

fn check(key: &str, index: u64) -> serde_json::Value {
    json!({ "Verb": "check-index", "Key": key, "Index": index })
}

fn operation(verb: &str, key: &str, session: &str, value: &[u8]) -> serde_json::Value {
    let value = BASE64.encode(value);
    json!({ "Verb": verb, "Key": key, "Session": session, "Flags": LOCK_FLAG, "Value": value })
}

/// Interprets the errors of a transaction that was rolled back.
fn refusal(errors: &[WireError]) -> Result<Written, SessionError> {
    let says = |text: &str| errors.iter().find(|error| error.what.contains(text));
    let told = |error: &WireError| shown(&error.what);
    if let Some(error) = says("Permission denied").or_else(|| says("ACL not found")) {
        return Err(SessionError::Refused { why: told(error) });
    }
    if let Some(error) = says("invalid session") {
        return Err(SessionError::Ended { why: told(error) });
    }
    if says("lock delay").is_some() {
        return Ok(Written::Delayed);
    }
    let stale = ["check index", "index check", "already held", "isn't held", "index is stale"];
    if errors.iter().any(|error| stale.iter().any(|text| error.what.contains(text))) {
        return Ok(Written::Stale);
    }
    let all: Vec<&str> = errors.iter().map(|error| error.what.as_str()).collect();
    Err(SessionError::Refused { why: shown(&all.join("; ")) })
}

fn found(answer: &Answer) -> Result<KeyRead, SessionError> {
    let index =
        || answer.index.ok_or_else(|| no_answer("an answer is without X-Consul-Index: is this an agent?"));
    match answer.status {
        404 => Ok(KeyRead { index: index()?, entry: None }),
        200 => {
            let entries: Vec<WireEntry> = parse(answer)?;
            let entry = entries.into_iter().next().ok_or_else(|| no_answer("a key without its value"))?;
            Ok(KeyRead { index: index()?, entry: Some(entry.read()?) })
        }
        _ => Err(meaning(answer)),
    }
}

impl WireEntry {
    fn read(self) -> Result<Entry, SessionError> {
        let value = BASE64.decode(self.value.unwrap_or_default());
        Ok(Entry {
            value: value.map_err(|error| no_answer(format!("a value is not base64: {error}")))?,
            session: self.session.filter(|session| !session.is_empty()),
            flags: self.flags,
            modified: self.modify_index,
        })
    }
}

fn expect_ok(answer: Answer) -> Result<Answer, SessionError> {
    if answer.status == 200 { Ok(answer) } else { Err(meaning(&answer)) }
}

/// Interprets an unexpected answer.
fn meaning(answer: &Answer) -> SessionError {
    let said = text(answer);
    let why = format!("it answers {}: {said}", answer.status);
    // These errors are caused by the request, although the status is that of a server failure.
    let is_final = ["Invalid Session TTL", "No path to datacenter", "Invalid Behavior"];
    match answer.status {
        403 | 401 => SessionError::Refused {
            why: format!("{why} (see `token-file` and the ACL rules that are needed)"),
        },
        500.. if is_final.iter().any(|text| said.contains(text)) => SessionError::Refused { why },
        429 | 500.. => SessionError::NoAnswer { why },
        _ => SessionError::Refused { why },
    }
}

fn parse<'a, T: Deserialize<'a>>(answer: &'a Answer) -> Result<T, SessionError> {
    let parsed = serde_json::from_slice(&answer.body);
    parsed.map_err(|error| {
        no_answer(format!("an answer is not what Consul writes ({error}): is this an agent?"))
    })
}

pub(super) fn no_answer(why: impl Into<String>) -> SessionError {
    SessionError::NoAnswer { why: why.into() }
}

fn text(answer: &Answer) -> String {
    shown(&String::from_utf8_lossy(&answer.body))
}

fn shown(text: &str) -> String {
    error_text::on_one_line(text, TEXT_SHOWN_MAX)
}

/// Encodes a part of a URL. The slashes of a key stay: Consul interprets the parts between them.
fn encode(text: &str) -> String {
    const ENCODED: &percent_encoding::AsciiSet =
        &NON_ALPHANUMERIC.remove(b'/').remove(b'-').remove(b'_').remove(b'.');
    utf8_percent_encode(text, ENCODED).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(status: u16, body: &str) -> Answer {
        Answer { status, index: Some(7), body: body.as_bytes().to_vec() }
    }

    #[test]
    fn an_answer_that_is_no_failure_of_the_servers_is_not_tried_again() {
        let is_refused =
            |status, body| matches!(meaning(&answer(status, body)), SessionError::Refused { .. });
        assert!(is_refused(403, "Permission denied") && is_refused(400, "") && is_refused(404, ""));
        assert!(is_refused(500, "Invalid Session TTL '1', must be between [10s=24h0m0s]"));
        for (status, body) in
            [(500, "No cluster leader"), (500, "rpc error making call: EOF"), (429, ""), (503, "")]
        {
            assert!(
                matches!(meaning(&answer(status, body)), SessionError::NoAnswer { .. }),
                "{status} {body}"
            );
        }
    }

    #[test]
    fn the_errors_of_a_transaction_are_told_apart() {
        let told = |texts: &[&str]| {
            let errors: Vec<_> = texts.iter().map(|what| WireError { what: (*what).to_owned() }).collect();
            refusal(&errors)
        };
        let index = r#"failed index check for key "k", current modify index 8 != 7"#;
        let held = r#"failed to lock key "k", lock is already held"#;
        assert_eq!(told(&[index, held]), Ok(Written::Stale));
        assert_eq!(told(&[r#"failed to check index, key "k" doesn't exist"#]), Ok(Written::Stale));
        assert_eq!(told(&[r#"failed to lock key "k" due to lock delay"#]), Ok(Written::Delayed));
        let ended = told(&[index, r#"invalid session "x""#]);
        assert!(matches!(ended, Err(SessionError::Ended { .. })), "{ended:?}");
        assert!(matches!(told(&["Permission denied: x", index]), Err(SessionError::Refused { .. })));
        assert!(matches!(told(&["unknown KV verb"]), Err(SessionError::Refused { .. })));
    }

    #[test]
    fn what_no_agent_writes_is_no_answer_and_no_panic() {
        for body in ["", "[]", "{}", "null", r#"[{"Value":"%","Flags":0,"ModifyIndex":1}]"#, "\u{0}"] {
            assert!(matches!(found(&answer(200, body)), Err(SessionError::NoAnswer { .. })), "{body}");
        }
        let mut without = answer(404, "");
        without.index = None;
        assert!(found(&without).is_err());
        let entry = r#"[{"Value":"YQ==","Flags":1,"ModifyIndex":9,"Session":"","LockIndex":3,"Other":[]}]"#;
        let found = found(&answer(200, entry)).unwrap().entry.unwrap();
        assert_eq!(found, Entry { value: b"a".to_vec(), session: None, flags: 1, modified: 9 });
        assert_eq!(encode("a/.lock ?&"), "a/.lock%20%3F%26");
    }
}
