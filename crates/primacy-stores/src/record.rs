//! The record of an election as bytes: what every store keeps.
//!
//! It is JSON, so that an operator can read it with the tools of the store:
//!
//! ```json
//! {"primacy":1,"token":1700000000001,"duration_ns":10000000000,"renewal":3,"nonce":"00000000000000ab",
//!  "holder":{"node":"a","count":7,"nonce":"00000000000000cd","address":"10.0.0.7:4000"},
//!  "resign_request":{"token":1700000000001,"by":"operator"}}
//! ```
//!
//! - `primacy` is the version of this format. A reader refuses a higher one, and never overwrites it.
//! - `duration_ns` is in nanoseconds, so that it is decoded exactly. Numbers are whole, from 0 to 2⁶⁴ − 1.
//! - Nonces are hexadecimal texts, because many JSON tools round numbers above 2⁵³.
//! - `holder` is `null` when the lead was released. `resign_request` is left out when there is none.
//! - `young` is `true` while the creator of the record waits, and left out otherwise.
//! - Fields that this version does not know are kept byte for byte, behind the others. Later versions of the
//!   format that stay compatible add fields here, at the top, and nowhere deeper.
//!
//! The order of the fields is fixed, and there is no white space, so equal records have equal bytes.

use std::fmt;

use primacy_core::election::lease::{Holder, Record, ResignRequest, TOKEN_MAX};
use primacy_core::{Duration, FencingToken, Identity, Incarnation, NodeId};
use serde::de::{Deserializer, MapAccess, Visitor};
use serde::ser::{SerializeMap, Serializer};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::error_text::shortened;

/// The version of the format that is written, and the highest that is understood.
pub const FORMAT: u64 = 1;

/// The longest record, in bytes. The limits of all stores are far above it.
pub const LENGTH_MAX: usize = 64 * 1024;

/// The fields that this version knows.
const KNOWN: [&str; 8] =
    ["primacy", "token", "duration_ns", "renewal", "nonce", "holder", "resign_request", "young"];

/// The reason that bytes are no record, or that a record cannot be encoded.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecordError {
    /// It has more than [`LENGTH_MAX`] bytes.
    #[error(
        "it has {length} bytes or more, and at most {LENGTH_MAX} are allowed; shorten the address or the names in it"
    )]
    TooLong {
        /// The number of bytes read, which may be less than its length.
        length: usize,
    },
    /// It is not a JSON object.
    #[error(
        "it is not a Primacy record: {}. It was left as it is. If something else wrote it there, hold the \
         election under another name; otherwise restore it from a copy, or remove it while nobody leads",
        shortened(.why)
    )]
    NotJson {
        /// The error of the parser.
        why: String,
    },
    /// It was written by a later version of Primacy, in a way that this one cannot understand.
    #[error(
        "it was written in format {found}, and this version of Primacy knows formats up to {FORMAT}. It was left \
         as it is. Upgrade this node"
    )]
    LaterFormat {
        /// The format in the record.
        found: u64,
    },
    /// A field is missing, or has an invalid value.
    #[error(
        "its field `{field}` {}. The record was left as it is. Repair the field by hand, and raise the \
         version that the store counts for it",
        shortened(.why)
    )]
    Field {
        /// The field.
        field: &'static str,
        /// The mistake in it.
        why: String,
    },
    /// No leadership can follow: its token is the last one.
    #[error(
        "its token {token} is at the end, the last one is {TOKEN_MAX}: nobody can be elected after it. The record was left as it is. \
         If the token was written by hand, write one that is above all that were given, and raise the version that the store \
         counts for the record; otherwise hold the election under another name, with new fences"
    )]
    TokenAtEnd {
        /// The token.
        token: FencingToken,
    },
    /// Its version is not one that the store assigns, or is the last one.
    #[error(
        "its version is {found}, and a version is {allowed}: nobody can write over the record, nor be elected. It was left as it is. \
         Give it another version by hand"
    )]
    Version {
        /// The version.
        found: String,
        /// The versions that the store assigns.
        allowed: &'static str,
    },
}

/// Encodes a record.
///
/// # Errors
/// [`RecordError::TooLong`], [`RecordError::TokenAtEnd`], or [`RecordError::Field`] if `unknown` has content that does not come from
/// [`decode`].
pub fn encode(record: &Record) -> Result<Vec<u8>, RecordError> {
    if record.token > TOKEN_MAX {
        return Err(RecordError::TokenAtEnd { token: record.token });
    }
    let unknown = parse_unknown(&record.unknown)?;
    let wire = WireRecord { record, unknown: &unknown };
    let bytes = serde_json::to_vec(&wire).map_err(|error| field("unknown", error))?;
    if bytes.len() > LENGTH_MAX {
        return Err(RecordError::TooLong { length: bytes.len() });
    }
    Ok(bytes)
}

/// Decodes a record from untrusted bytes.
///
/// # Errors
/// [`RecordError`] if they are no record that this version understands.
pub fn decode(bytes: &[u8]) -> Result<Record, RecordError> {
    if bytes.len() > LENGTH_MAX {
        return Err(RecordError::TooLong { length: bytes.len() });
    }
    let fields: Fields = serde_json::from_slice(bytes).map_err(|error| not_json(&error))?;
    // The format is checked first: the other fields of a later format may have another meaning.
    let format: u64 = fields.required("primacy")?;
    if format > FORMAT {
        return Err(RecordError::LaterFormat { found: format });
    }
    if format == 0 {
        return Err(field("primacy", "must be 1 or more"));
    }
    let holder: Option<WireHolder> = fields.required("holder")?;
    let resign_request: Option<WireResignRequest> = fields.optional("resign_request")?.flatten();
    check_token(Record {
        holder: holder.map(WireHolder::into_holder).transpose()?,
        token: FencingToken(fields.required("token")?),
        duration: Duration::from_nanos(fields.required("duration_ns")?),
        renewal: fields.required("renewal")?,
        nonce: fields.required::<Nonce>("nonce")?.0,
        resign_request: resign_request.map(WireResignRequest::into_request),
        young: fields.optional("young")?.unwrap_or(false),
        unknown: fields.unknown()?,
    })
}

/// Refuses a record whose token does not allow another leadership.
///
/// # Errors
/// [`RecordError::TokenAtEnd`]
pub(crate) fn check_token(record: Record) -> Result<Record, RecordError> {
    let token = record.token;
    let is_used_up = token > TOKEN_MAX || token == TOKEN_MAX && record.holder.is_none();
    if is_used_up { Err(RecordError::TokenAtEnd { token }) } else { Ok(record) }
}

/// The top level of an encoded record.
struct WireRecord<'a> {
    record: &'a Record,
    unknown: &'a Fields,
}

#[derive(Serialize, Deserialize)]
struct WireHolder {
    node: String,
    count: u64,
    nonce: Nonce,
    address: String,
}

#[derive(Serialize, Deserialize)]
struct WireResignRequest {
    token: u64,
    by: String,
}

/// A number that is written as 16 hexadecimal digits.
struct Nonce(u64);

/// The fields of a JSON object, in the order in which they were written, each as its own bytes.
#[derive(Default)]
struct Fields(Vec<(String, Box<RawValue>)>);

impl Serialize for WireRecord<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let record = self.record;
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("primacy", &FORMAT)?;
        map.serialize_entry("token", &record.token.0)?;
        map.serialize_entry("duration_ns", &record.duration.as_nanos())?;
        map.serialize_entry("renewal", &record.renewal)?;
        map.serialize_entry("nonce", &Nonce(record.nonce))?;
        map.serialize_entry("holder", &record.holder.as_ref().map(WireHolder::from_holder))?;
        if let Some(request) = &record.resign_request {
            let request = WireResignRequest { token: request.token.0, by: request.by.clone() };
            map.serialize_entry("resign_request", &request)?;
        }
        if record.young {
            map.serialize_entry("young", &true)?;
        }
        for (name, value) in &self.unknown.0 {
            map.serialize_entry(name, value)?;
        }
        map.end()
    }
}

impl WireHolder {
    fn from_holder(holder: &Holder) -> Self {
        Self {
            node: holder.identity.node.as_str().to_owned(),
            count: holder.identity.incarnation.count,
            nonce: Nonce(holder.identity.incarnation.nonce),
            address: holder.address.clone(),
        }
    }

    fn into_holder(self) -> Result<Holder, RecordError> {
        let node = NodeId::new(&self.node).map_err(|error| field("holder", format!("is wrong: {error}")))?;
        let incarnation = Incarnation { count: self.count, nonce: self.nonce.0 };
        Ok(Holder { identity: Identity { node, incarnation }, address: self.address })
    }
}

impl WireResignRequest {
    fn into_request(self) -> ResignRequest {
        ResignRequest { token: FencingToken(self.token), by: self.by }
    }
}

impl Serialize for Nonce {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&format_args!("{:016x}", self.0))
    }
}

impl<'de> Deserialize<'de> for Nonce {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let is_hexadecimal = text.len() == 16 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        // Checked first, because the standard library's parser also takes a sign.
        match u64::from_str_radix(&text, 16) {
            Ok(number) if is_hexadecimal => Ok(Self(number)),
            Ok(_) | Err(_) => Err(serde::de::Error::custom("a nonce is a text of 16 hexadecimal digits")),
        }
    }
}

impl Fields {
    fn optional<'a, T: Deserialize<'a>>(&'a self, name: &'static str) -> Result<Option<T>, RecordError> {
        let Some((_, value)) = self.0.iter().find(|(known, _)| known == name) else { return Ok(None) };
        match serde_json::from_str(value.get()) {
            Ok(value) => Ok(Some(value)),
            Err(error) => Err(field(name, format!("is wrong: {error}"))),
        }
    }

    fn required<'a, T: Deserialize<'a>>(&'a self, name: &'static str) -> Result<T, RecordError> {
        self.optional(name)?.ok_or_else(|| field(name, "is missing"))
    }

    /// The content of [`Record::unknown`]: the fields that this version does not know as a JSON object, or empty if there are none.
    fn unknown(self) -> Result<Box<[u8]>, RecordError> {
        let unknown: Vec<_> =
            self.0.into_iter().filter(|(name, _)| !KNOWN.contains(&name.as_str())).collect();
        if unknown.is_empty() {
            return Ok(Box::default());
        }
        let bytes = serde_json::to_vec(&Self(unknown)).map_err(|error| not_json(&error))?;
        Ok(bytes.into())
    }
}

impl Serialize for Fields {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(name, value)| (name, value)))
    }
}

impl<'de> Deserialize<'de> for Fields {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct FieldsVisitor;
        impl<'de> Visitor<'de> for FieldsVisitor {
            type Value = Fields;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a JSON object")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Fields, A::Error> {
                let mut fields: Vec<(String, Box<RawValue>)> = Vec::new();
                while let Some((name, value)) = map.next_entry::<String, Box<RawValue>>()? {
                    // Readers disagree on which of two equal fields counts, so there must not be two.
                    if fields.iter().any(|(other, _)| *other == name) {
                        return Err(serde::de::Error::custom(format!("the field {name:?} is there twice")));
                    }
                    fields.push((name, value));
                }
                Ok(Fields(fields))
            }
        }
        deserializer.deserialize_map(FieldsVisitor)
    }
}

/// Reads back what [`Fields::unknown`] made.
fn parse_unknown(bytes: &[u8]) -> Result<Fields, RecordError> {
    if bytes.is_empty() {
        return Ok(Fields::default());
    }
    let fields: Fields = serde_json::from_slice(bytes).map_err(|error| field("unknown", error))?;
    if let Some((name, _)) = fields.0.iter().find(|(name, _)| KNOWN.contains(&name.as_str())) {
        return Err(field("unknown", format!("holds {name:?}, which is known")));
    }
    Ok(fields)
}

fn field(field: &'static str, why: impl fmt::Display) -> RecordError {
    RecordError::Field { field, why: why.to_string() }
}

fn not_json(error: &serde_json::Error) -> RecordError {
    RecordError::NotJson { why: error.to_string() }
}

#[cfg(test)]
mod tests {
    mod fuzz;

    use primacy_core::rng::Rng;

    use super::*;

    fn full() -> Record {
        let identity = Identity::new(NodeId::new("a").unwrap(), Incarnation { count: 7, nonce: 0xcd });
        Record {
            holder: Some(Holder { identity, address: "10.0.0.7:4000".to_owned() }),
            token: FencingToken(1_700_000_000_001),
            duration: Duration::from_secs(10),
            renewal: 3,
            nonce: 0xab,
            resign_request: Some(ResignRequest {
                token: FencingToken(1_700_000_000_001),
                by: "operator".to_owned(),
            }),
            young: true,
            unknown: Box::default(),
        }
    }

    const GOLDEN_FULL: &str = concat!(
        r#"{"primacy":1,"token":1700000000001,"duration_ns":10000000000,"renewal":3,"nonce":"00000000000000ab","#,
        r#""holder":{"node":"a","count":7,"nonce":"00000000000000cd","address":"10.0.0.7:4000"},"#,
        r#""resign_request":{"token":1700000000001,"by":"operator"},"young":true}"#
    );
    const GOLDEN_RELEASED: &str =
        r#"{"primacy":1,"token":5,"duration_ns":1,"renewal":0,"nonce":"0000000000000000","holder":null}"#;

    #[test]
    fn the_bytes_are_golden() {
        assert_eq!(String::from_utf8(encode(&full()).unwrap()).unwrap(), GOLDEN_FULL);
        assert_eq!(decode(GOLDEN_FULL.as_bytes()).unwrap(), full());
        let released = Record::released(FencingToken(5), Duration::from_nanos(1));
        assert_eq!(String::from_utf8(encode(&released).unwrap()).unwrap(), GOLDEN_RELEASED);
        assert_eq!(decode(GOLDEN_RELEASED.as_bytes()).unwrap(), released);
    }

    #[test]
    fn the_ends_of_every_number_come_back() {
        for number in [0, 1, u64::MAX - 1, u64::MAX] {
            let mut record = full();
            record.token = FencingToken(number / 2);
            record.duration = Duration::from_nanos(number);
            (record.renewal, record.nonce) = (number, number);
            record.holder.as_mut().unwrap().identity.incarnation =
                Incarnation { count: number, nonce: number };
            assert_eq!(decode(&encode(&record).unwrap()).unwrap(), record);
        }
    }

    #[test]
    fn a_token_that_has_none_after_it_is_refused() {
        let with = |token: u64, holder: bool| {
            let text = if holder { GOLDEN_FULL } else { GOLDEN_RELEASED };
            let text = text.replace(r#""token":1700000000001"#, &format!(r#""token":{token}"#));
            decode(text.replace(r#""token":5"#, &format!(r#""token":{token}"#)).as_bytes())
        };
        let last = TOKEN_MAX.0;
        for (token, holder) in [(last, false), (last + 1, true), (last + 1, false), (u64::MAX, false)] {
            let error = with(token, holder).unwrap_err();
            assert_eq!(error, RecordError::TokenAtEnd { token: FencingToken(token) }, "{holder}");
            assert!(error.to_string().contains("nobody can be elected after it"), "{error}");
        }
        for (token, holder) in [(last - 1, false), (last, true)] {
            let record = with(token, holder).unwrap();
            let taken = Record { token: record.token.next(), ..full() };
            assert_eq!(encode(&taken).is_err(), holder, "the last one can be held, and has none after it");
        }
    }

    #[test]
    fn unknown_fields_are_kept_byte_for_byte() {
        let theirs = GOLDEN_RELEASED.replace(
            r#""token""#,
            r#""later":{"z":1, "a":123456789012345678901234567890.50},"more":[1e999],"token""#,
        );
        let mut record = decode(theirs.as_bytes()).unwrap();
        record.token = record.token.next();
        let ours = String::from_utf8(encode(&record).unwrap()).unwrap();
        let kept = r#","later":{"z":1, "a":123456789012345678901234567890.50},"more":[1e999]}"#;
        assert!(ours.ends_with(kept), "{ours}");
        assert_eq!(decode(ours.as_bytes()).unwrap(), record);
    }

    #[test]
    fn what_is_no_record_is_refused_with_the_field_that_is_wrong() {
        let wrong = |from: &str, to: &str| {
            let text = GOLDEN_FULL.replacen(from, to, 1);
            assert_ne!(text, GOLDEN_FULL, "the case changes nothing");
            decode(text.as_bytes()).unwrap_err().to_string()
        };
        assert!(wrong(r#""primacy":1"#, r#""primacy":2"#).contains("Upgrade"));
        assert!(wrong(r#""primacy":1,"#, "").contains("`primacy` is missing"));
        assert!(wrong(r#""primacy":1"#, r#""primacy":0"#).contains("`primacy`"));
        assert!(wrong("1700000000001", "-1").contains("`token`"));
        assert!(wrong("1700000000001", "1.5").contains("`token`"));
        assert!(wrong("1700000000001", "18446744073709551616").contains("`token`"));
        assert!(wrong("00000000000000ab", "+0000000000000ab").contains("`nonce`"));
        assert!(wrong(r#""node":"a""#, r#""node":"a b""#).contains("`holder`"));
        assert!(wrong(r#""renewal":3"#, r#""renewal":3,"renewal":4"#).contains("twice"));
        assert!(matches!(decode(b"[]"), Err(RecordError::NotJson { .. })));
        assert!(matches!(decode(b""), Err(RecordError::NotJson { .. })));
        assert!(matches!(decode(&[b' '; LENGTH_MAX + 1]), Err(RecordError::TooLong { .. })));
    }

    #[test]
    fn what_could_not_be_read_back_is_not_written() {
        let long = Holder { address: "x".repeat(LENGTH_MAX), ..full().holder.unwrap() };
        let record = Record { holder: Some(long), ..full() };
        assert!(matches!(encode(&record), Err(RecordError::TooLong { .. })));
        for unknown in ["nonsense", r#"{"token":1}"#] {
            let record = Record { unknown: unknown.as_bytes().into(), ..full() };
            assert!(matches!(encode(&record), Err(RecordError::Field { field: "unknown", .. })));
        }
    }

    #[test]
    fn no_bytes_panic_and_what_is_read_can_be_written() {
        let mut rng = Rng::new(7);
        for round in 0..20_000_u64 {
            let mut bytes = match round % 3 {
                0 => (0..rng.up_to(63)).map(|_| rng.next_u64().to_le_bytes()[0]).collect(),
                1 => GOLDEN_FULL.as_bytes().to_vec(),
                _ => GOLDEN_FULL.replace("\"renewal\"", "\"later\":[{}],\"renewal\"").into_bytes(),
            };
            for _ in 0..rng.up_to(3) {
                let Some(length) = u64::try_from(bytes.len()).ok().filter(|length| *length > 0) else {
                    break;
                };
                let at = usize::try_from(rng.up_to(length - 1)).unwrap();
                match rng.up_to(2) {
                    0 => bytes[at] = rng.next_u64().to_le_bytes()[0],
                    1 => bytes.truncate(at),
                    _ => bytes.insert(at, b"{}[]\",:09e-\\"[usize::try_from(rng.up_to(11)).unwrap()]),
                }
            }
            if let Ok(record) = decode(&bytes) {
                assert_eq!(decode(&encode(&record).unwrap()).unwrap(), record);
            }
        }
    }
}
