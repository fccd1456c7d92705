//! The data of an entry, which names the candidate; and the data of the election's own znode, which has a request to resign.
//!
//! ```json
//! {"primacy":1,"holder":{"node":"a","count":7,"nonce":"00000000000000cd","address":"10.0.0.7:4000"}}
//! {"primacy":1,"resign_request":{"token":4294967301,"by":"operator"}}
//! ```
//!
//! The fields mean what they mean in a [record](crate::record). All other data is another program's.
//!
//! An entry is never overwritten. Curator's `LeaderLatch` sets a one-time watch on the entry before its own; if a change fired that watch,
//! it would not set another one, and would miss the deletion.

use primacy_core::election::lease::Holder;
use primacy_core::{FencingToken, Identity, Incarnation, NodeId};
use serde::Deserialize;
use serde_json::{Map, Value, json};

/// The version of the format.
const FORMAT: u64 = 1;

/// The longest data that is parsed, in bytes. Longer data is another program's.
const LENGTH_MAX: usize = 64 * 1024;

/// The data of an entry that a Primacy node has made.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Data {
    pub(crate) holder: Holder,
}

/// The data of the election's znode.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Request {
    /// The token of the leadership that is asked to end, which may be over.
    pub(crate) token: Option<FencingToken>,
    fields: Map<String, Value>,
}

#[derive(Deserialize)]
struct WireHolder {
    node: String,
    count: u64,
    nonce: String,
    address: String,
}

impl Data {
    pub(crate) fn new(holder: &Holder) -> Self {
        Self { holder: holder.clone() }
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let Identity { node, incarnation } = &self.holder.identity;
        let holder = json!({
            "node": node.as_str(),
            "count": incarnation.count,
            "nonce": format!("{:016x}", incarnation.nonce),
            "address": self.holder.address,
        });
        json!({ "primacy": FORMAT, "holder": holder }).to_string().into_bytes()
    }

    /// Decodes the data; `None` if no Primacy node has written it.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let fields = fields(bytes)?;
        let wire = WireHolder::deserialize(fields.get("holder")?).ok()?;
        let nonce = u64::from_str_radix(&wire.nonce, 16).ok()?;
        let node = NodeId::new(&wire.node).ok()?;
        let incarnation = Incarnation { count: wire.count, nonce };
        Some(Self { holder: Holder { identity: Identity { node, incarnation }, address: wire.address } })
    }
}

impl Request {
    /// Replaces an earlier request; other fields are kept.
    pub(crate) fn asked(mut self, token: FencingToken, by: &str) -> Self {
        self.fields.insert("primacy".to_owned(), FORMAT.into());
        self.fields.insert("resign_request".to_owned(), json!({ "token": token.0, "by": by }));
        self.token = Some(token);
        self
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        Value::Object(self.fields.clone()).to_string().into_bytes()
    }

    /// Decodes the data; `None` for another program's, which must not be overwritten. A new znode has no data.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        if bytes.is_empty() {
            return Some(Self { token: None, fields: Map::new() });
        }
        let fields = fields(bytes)?;
        let token = fields.get("resign_request").and_then(|request| request.get("token"));
        Some(Self { token: token.and_then(Value::as_u64).map(FencingToken), fields })
    }
}

/// Decodes the data; `None` if no Primacy node has written it.
fn fields(bytes: &[u8]) -> Option<Map<String, Value>> {
    let bytes = Some(bytes).filter(|bytes| bytes.len() <= LENGTH_MAX)?;
    let fields: Map<String, Value> = serde_json::from_slice(bytes).ok()?;
    // A later format either stays compatible in these fields, or is treated as another program's data, which is safe.
    let is_ours = fields.get("primacy").and_then(Value::as_u64) == Some(FORMAT);
    is_ours.then_some(fields)
}

/// Returns the candidate of an entry with this name and data, which `session` owns.
pub(crate) fn holder(name: &str, bytes: &[u8], session: i64) -> Holder {
    match Data::decode(bytes) {
        Some(data) => data.holder,
        None => stranger(name, bytes, session),
    }
}

/// Describes a candidate that is another program: named by the data of its entry if that is a valid node name, or else by the name of the
/// entry.
fn stranger(name: &str, bytes: &[u8], session: i64) -> Holder {
    let text = std::str::from_utf8(bytes).unwrap_or_default().trim();
    let node = [text, name].into_iter().find_map(named_after);
    let node = node.unwrap_or_else(|| NodeId::new("stranger").expect("a name"));
    let incarnation = Incarnation { count: 0, nonce: session.cast_unsigned() };
    Holder { identity: Identity { node, incarnation }, address: String::new() }
}

fn named_after(text: &str) -> Option<NodeId> {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "._-:".contains(letter);
    let letters = text.chars().take(NodeId::LENGTH_MAX);
    let name: String = letters.map(|letter| if is_plain(letter) { letter } else { '_' }).collect();
    NodeId::new(&name).ok()
}

#[cfg(test)]
mod tests {
    mod fuzz;

    use super::*;

    fn ours() -> Holder {
        let incarnation = Incarnation { count: 7, nonce: 0xcd };
        let identity = Identity { node: NodeId::new("a").unwrap(), incarnation };
        Holder { identity, address: "10.0.0.7:4000".to_owned() }
    }

    #[test]
    fn what_is_written_is_read_and_other_fields_are_kept() {
        let data = Data::new(&ours());
        assert_eq!(Data::decode(&data.encode()), Some(data));
        let nobody = Request::decode(b"").unwrap();
        assert_eq!(nobody.token, None);
        let asked = nobody.asked(FencingToken(4), "operator");
        assert_eq!(Request::decode(&asked.encode()), Some(asked.clone()));
        let later = String::from_utf8(asked.encode()).unwrap().replacen('{', r#"{"later":[1,2],"#, 1);
        let again = Request::decode(later.as_bytes()).unwrap().asked(FencingToken(5), "operator");
        let text = String::from_utf8(again.encode()).unwrap();
        assert!(text.contains(r#""later":[1,2]"#) && text.contains(r#""token":5"#), "{text}");
        assert_eq!(Request::decode(text.as_bytes()).unwrap().token, Some(FencingToken(5)));
        for other in [&b"127.0.0.1"[..], b"{}", br#"{"primacy":2}"#, &[0xff]] {
            assert_eq!(Request::decode(other), None, "somebody else's: {other:?}");
        }
    }

    #[test]
    fn what_is_not_ours_is_a_strangers() {
        let name = "5a__lock__0000000003";
        for (bytes, expected) in [
            (&b"host-1:99"[..], "host-1:99"),
            (b"my host", "my_host"),
            (b"", "5a__lock__0000000003"),
            (&[0xff, 0xfe], "5a__lock__0000000003"),
            (br#"{"primacy":2}"#, "__primacy_:2_"),
        ] {
            let holder = holder(name, bytes, -2);
            assert_eq!(holder.identity.node.as_str(), expected);
            assert_eq!(holder.identity.incarnation, Incarnation { count: 0, nonce: u64::MAX - 1 });
        }
        assert_eq!(holder("x", &Data::new(&ours()).encode(), 1), ours());
    }
}
