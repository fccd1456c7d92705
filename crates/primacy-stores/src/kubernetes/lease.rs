//! Conversion of a Lease object to a record, and back.
//!
//! The fields of its `spec` are for all programs that take part in the election: they contain what client-go reads and writes. The other
//! fields of a [`Record`] are in an annotation, and a second annotation has a copy of the `spec` that was written with it. If the copy
//! differs from the present `spec`, another program has written since, and the `spec` alone names the holder of the Lease.
//!
//! **Tokens.** client-go counts the changes of the holder in `leaseTransitions`, which has 32 bits and starts at 0 in every new Lease. A
//! Primacy token has 64 bits, and starts at the milliseconds since 1970 in a new Lease. So:
//!
//! - If the copy equals the `spec`, the token is that of the annotation.
//! - If another program has written since, the token is that of the annotation plus the growth of `leaseTransitions` since, which counts as
//!   at least one.
//! - It is never less than the creation of the Lease, in milliseconds since 1970 by the API server's clock, plus `leaseTransitions` plus
//!   one; without an annotation, it is that number.
//!
//! So it grows with every visible change of the holder, even when a Lease was deleted and made again.

use std::time::SystemTime;

use jiff::Timestamp;
use primacy_core::election::lease::{Holder, Record, Version};
use primacy_core::{Duration, FencingToken, Identity, Incarnation, NodeId};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::record::{self, RecordError};
use crate::register::SetError;

/// The annotation that holds the record as JSON.
pub(super) const RECORD: &str = "primacy-rs.github.io/record";
/// The annotation with a copy of the `spec` that was written with the record.
pub(super) const WRITTEN: &str = "primacy-rs.github.io/written";

/// The duration of a Lease that does not state one: the default of client-go's documentation.
const UNSAID: Duration = Duration::from_secs(15);

/// client-go compares times in whole seconds, and does not notice a renewal in the same second. It must wait a second longer than the lease
/// lasts, or it could take a Lease that was just renewed.
const SECONDS_MORE: u64 = 1;

/// A Lease that the API server has returned. Unknown fields are kept as they are.
#[derive(Clone, Debug)]
pub(super) struct Lease {
    object: Map<String, Value>,
    version: String,
    spec: Spec,
}

/// The fields that all programs read. An absent field states nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Spec {
    holder_identity: Option<String>,
    lease_duration_seconds: Option<i32>,
    acquire_time: Option<String>,
    renew_time: Option<String>,
    lease_transitions: Option<i32>,
}

/// The second annotation.
#[derive(Debug, Serialize, Deserialize)]
struct Written {
    /// The time of the write, by the writer's clock. It makes every write differ from the previous one, because an update without a change
    /// does not get a new version.
    at: String,
    spec: Spec,
}

impl Lease {
    /// Parses an answer of the API server.
    ///
    /// # Errors
    /// The reason that it is no Lease.
    pub(super) fn parse(bytes: &[u8]) -> Result<Self, String> {
        let no_lease = |why: String| format!("the API server's answer is no Lease: {why}");
        let object: Map<String, Value> =
            serde_json::from_slice(bytes).map_err(|error| no_lease(error.to_string()))?;
        let version = object.get("metadata").and_then(|meta| meta.get("resourceVersion"));
        let version = version.and_then(Value::as_str).filter(|version| !version.is_empty());
        let version = version.ok_or_else(|| no_lease("it has no resourceVersion".to_owned()))?.to_owned();
        let spec = match object.get("spec") {
            None | Some(Value::Null) => Spec::default(),
            Some(spec) => Spec::deserialize(spec).map_err(|error| no_lease(error.to_string()))?,
        };
        Ok(Self { object, version, spec })
    }

    pub(super) fn version_text(&self) -> &str {
        &self.version
    }

    pub(super) fn version(&self) -> Version {
        Version::new(self.version.as_bytes())
    }

    /// Returns its record.
    ///
    /// # Errors
    /// [`RecordError`] if this version does not understand the annotation, even if another program has written the `spec` since.
    pub(super) fn record(&self) -> Result<Record, RecordError> {
        let Some(text) = self.annotation(RECORD) else { return record::check_token(self.strangers(None)) };
        let record = record::decode(text.as_bytes())?;
        if self.is_ours() { Ok(record) } else { record::check_token(self.strangers(Some(record))) }
    }

    /// Returns the Lease that replaces this one; fields that are not this store's are kept.
    ///
    /// # Errors
    /// [`SetError::Unavailable`] for a record that cannot be put into a Lease.
    pub(super) fn replaced(&self, record: &Record, now: SystemTime) -> Result<Vec<u8>, SetError> {
        let old = self.record()?;
        if !self.is_ours() && record.holder.is_some() && record.holder == old.holder {
            let holder = self.spec.holder_identity.as_deref().unwrap_or_default();
            let why = format!("{holder:?} holds the Lease, and understands none of what Primacy says in it");
            return Err(SetError::Unavailable { why });
        }
        let kept = |record: &Record| (record.holder.clone(), record.token, record.renewal, record.nonce);
        // A write that changes none of these, such as a request to resign, is no renewal; so other programs must not see one either.
        let is_sign_of_life = kept(&old) != kept(record);
        let spec = if is_sign_of_life { self.spec.next(&old, record, now) } else { self.spec.clone() };
        put(self.object.clone(), spec, record, now)
    }

    /// Returns the first Lease of an election.
    ///
    /// # Errors
    /// Those of [`replaced`](Self::replaced).
    pub(super) fn first(name: &str, record: &Record, now: SystemTime) -> Result<Vec<u8>, SetError> {
        let nobody = Record::released(record.token, Duration::ZERO);
        let spec = Spec { lease_transitions: Some(0), ..Spec::default() }.next(&nobody, record, now);
        let object = serde_json::json!({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": name},
        });
        let Value::Object(object) = object else { unreachable!("it was written as an object") };
        put(object, spec, record, now)
    }

    fn annotation(&self, name: &str) -> Option<&str> {
        self.object.get("metadata")?.get("annotations")?.get(name)?.as_str()
    }

    /// Returns whether the record was written with this `spec`. `leaseDurationSeconds` is not compared: no candidate changes it without
    /// `renewTime`, so a change of it alone is an operator's, and does not take the Lease from its holder. The holder may lead for the
    /// duration in the record.
    fn is_ours(&self) -> bool {
        let deciding = |spec: &Spec| Spec { lease_duration_seconds: None, ..spec.comparable() };
        self.written().is_some_and(|written| deciding(&written.spec) == deciding(&self.spec))
    }

    fn written(&self) -> Option<Written> {
        serde_json::from_str(self.annotation(WRITTEN)?).ok()
    }

    /// Makes a record from a `spec` that another program has written; `last` is the previous record.
    fn strangers(&self, last: Option<Record>) -> Record {
        let held = self.spec.holder_identity.as_deref().filter(|holder| !holder.is_empty());
        let seconds = self.spec.lease_duration_seconds.and_then(|seconds| u64::try_from(seconds).ok());
        Record {
            holder: held.map(stranger),
            token: self.strangers_token(last.as_ref()),
            duration: seconds.map_or(UNSAID, Duration::from_secs),
            // A renewal changes `renewTime`, and so this hash.
            nonce: hash(&self.spec),
            renewal: 0,
            resign_request: None,
            young: false,
            unknown: last.map(|last| last.unknown).unwrap_or_default(),
        }
    }

    fn strangers_token(&self, last: Option<&Record>) -> FencingToken {
        let transitions = self.spec.transitions();
        let since_creation = self.created().saturating_add(transitions).saturating_add(1);
        let since_last = last.map_or(0, |last| {
            let before = self.written().map_or(transitions, |written| written.spec.transitions());
            last.token.0.saturating_add(transitions.saturating_sub(before).max(1))
        });
        FencingToken(since_creation.max(since_last))
    }

    /// Returns the time at which the API server made the Lease, in milliseconds since 1970; 0 if it is not stated.
    fn created(&self) -> u64 {
        let created = self.object.get("metadata").and_then(|meta| meta.get("creationTimestamp"));
        let created = created.and_then(Value::as_str).and_then(|text| text.parse::<Timestamp>().ok());
        created.and_then(|created| u64::try_from(created.as_millisecond()).ok()).unwrap_or(0)
    }
}

/// Encodes the object with this `spec` and this record.
fn put(
    mut object: Map<String, Value>,
    spec: Spec,
    record: &Record,
    now: SystemTime,
) -> Result<Vec<u8>, SetError> {
    let unavailable = |why: String| SetError::Unavailable { why };
    let json = |error: serde_json::Error| unavailable(error.to_string());
    let text = String::from_utf8(record::encode(record)?).map_err(|error| unavailable(error.to_string()))?;
    let fields = serde_json::to_value(&spec).map_err(json)?;
    let written = serde_json::to_string(&Written { at: micro_time(now), spec }).map_err(json)?;
    let no_object =
        || unavailable("the Lease has fields of the wrong kind; delete it while nobody leads".to_owned());
    let meta = object.entry("metadata").or_insert_with(|| Value::Object(Map::new()));
    let annotations = meta.as_object_mut().ok_or_else(no_object)?.entry("annotations");
    let annotations = annotations.or_insert_with(|| Value::Object(Map::new()));
    let annotations = annotations.as_object_mut().ok_or_else(no_object)?;
    annotations.insert(RECORD.to_owned(), text.into());
    annotations.insert(WRITTEN.to_owned(), written.into());
    let place = object.entry("spec").or_insert(Value::Null);
    if place.is_null() {
        *place = Value::Object(Map::new());
    }
    let place = place.as_object_mut().ok_or_else(no_object)?;
    if let Value::Object(fields) = fields {
        place.extend(fields.into_iter().filter(|(_, value)| !value.is_null()));
    }
    serde_json::to_vec(&object).map_err(json)
}

impl Spec {
    /// Returns the `spec` for `record` after `old`, by the rules of client-go.
    fn next(&self, old: &Record, record: &Record, now: SystemTime) -> Self {
        let now = micro_time(now);
        let holder = record.holder.as_ref().map(name_of).unwrap_or_default();
        let is_same = self.holder_identity.as_deref() == Some(&holder) && old.token == record.token;
        let is_taken = !holder.is_empty() && old.token != record.token;
        let transitions = self.lease_transitions.unwrap_or(0);
        Self {
            lease_duration_seconds: Some(if holder.is_empty() { 1 } else { seconds_of(record.duration) }),
            holder_identity: Some(holder),
            acquire_time: self.acquire_time.clone().filter(|_| is_same).or_else(|| Some(now.clone())),
            renew_time: Some(now),
            lease_transitions: Some(transitions.saturating_add(i32::from(is_taken))),
        }
    }

    fn transitions(&self) -> u64 {
        self.lease_transitions.and_then(|count| u64::try_from(count).ok()).unwrap_or(0)
    }

    /// Returns the `spec` with its times in a uniform format: the API server's may differ from the writer's.
    fn comparable(&self) -> Self {
        let plain = |time: &Option<String>| {
            let time = time.as_deref()?;
            Some(time.parse::<Timestamp>().map_or_else(|_| time.to_owned(), |time| time.to_string()))
        };
        Self {
            acquire_time: plain(&self.acquire_time),
            renew_time: plain(&self.renew_time),
            holder_identity: self.holder_identity.clone().filter(|holder| !holder.is_empty()),
            ..self.clone()
        }
    }
}

/// Returns the `holderIdentity` of a Primacy node, which is different for each incarnation.
fn name_of(holder: &Holder) -> String {
    let Identity { node, incarnation } = &holder.identity;
    format!("{node}_{}-{:016x}", incarnation.count, incarnation.nonce)
}

/// Describes a holder that is another program.
fn stranger(holder: &str) -> Holder {
    let allowed = |letter: char| letter.is_ascii_alphanumeric() || "._-:".contains(letter);
    let letters = holder.chars().map(|letter| if allowed(letter) { letter } else { '-' });
    let name: String = letters.take(NodeId::LENGTH_MAX).collect();
    let node = NodeId::new(&name).expect("of allowed letters, not empty, and not too long");
    let incarnation = Incarnation { count: 0, nonce: hash(&holder) };
    Holder { identity: Identity { node, incarnation }, address: String::new() }
}

/// Returns `leaseDurationSeconds`, which is for other programs and never shorter than the record's duration.
fn seconds_of(duration: Duration) -> i32 {
    let seconds =
        duration.as_nanos().div_ceil(Duration::from_secs(1).as_nanos()).saturating_add(SECONDS_MORE);
    i32::try_from(seconds).unwrap_or(i32::MAX)
}

/// The time in the form of the API server.
fn micro_time(now: SystemTime) -> String {
    let now = Timestamp::try_from(now).unwrap_or(Timestamp::UNIX_EPOCH);
    now.strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string()
}

/// Returns the FNV-1a hash of a value as JSON, which is the same in every process and version.
fn hash(value: &impl Serialize) -> u64 {
    let bytes = serde_json::to_vec(value).unwrap_or_default();
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash: u64, &byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests;
