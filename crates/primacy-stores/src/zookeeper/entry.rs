//! What an entry holds: who stands, and whether somebody has asked it to resign.
//!
//! ```json
//! {"primacy":1,"holder":{"node":"a","count":7,"nonce":"00000000000000cd","address":"10.0.0.7:4000"},
//!  "resign_request":{"token":4294967301,"by":"operator"}}
//! ```
//!
//! The fields mean what they mean in a [record](crate::record). Others are kept. What is not such an object is a stranger's.

use primacy_core::election::lease::Holder;
use primacy_core::{FencingToken, Identity, Incarnation, NodeId};
use serde::Deserialize;
use serde_json::{Map, Value, json};

/// The version of the format.
const FORMAT: u64 = 1;

/// The longest data that is looked at, in bytes. What is longer is a stranger's.
const LENGTH_MAX: usize = 64 * 1024;

/// The data of an entry that a node of ours has made.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Data {
    pub(crate) holder: Holder,
    /// The token of the leadership that somebody has asked to end.
    pub(crate) resign_request: Option<FencingToken>,
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
        let Identity { node, incarnation } = &holder.identity;
        let mut fields = Map::new();
        fields.insert("primacy".to_owned(), FORMAT.into());
        let holder_fields = json!({
            "node": node.as_str(),
            "count": incarnation.count,
            "nonce": format!("{:016x}", incarnation.nonce),
            "address": holder.address,
        });
        fields.insert("holder".to_owned(), holder_fields);
        Self { holder: holder.clone(), resign_request: None, fields }
    }

    /// With a request to resign, in the place of an earlier one.
    pub(crate) fn asked(mut self, token: FencingToken, by: &str) -> Self {
        self.fields.insert("resign_request".to_owned(), json!({ "token": token.0, "by": by }));
        self.resign_request = Some(token);
        self
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        Value::Object(self.fields.clone()).to_string().into_bytes()
    }

    /// `None` for what no node of ours has written.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let bytes = Some(bytes).filter(|bytes| bytes.len() <= LENGTH_MAX)?;
        let fields: Map<String, Value> = serde_json::from_slice(bytes).ok()?;
        // A later format stays compatible in what is read here, or it is taken for a stranger's, which is safe.
        fields.get("primacy").and_then(Value::as_u64).filter(|format| *format == FORMAT)?;
        let wire = WireHolder::deserialize(fields.get("holder")?).ok()?;
        let nonce = u64::from_str_radix(&wire.nonce, 16).ok()?;
        let node = NodeId::new(&wire.node).ok()?;
        let incarnation = Incarnation { count: wire.count, nonce };
        let resign_request = fields.get("resign_request").and_then(|request| request.get("token"));
        let resign_request = resign_request.and_then(Value::as_u64).map(FencingToken);
        let holder = Holder { identity: Identity { node, incarnation }, address: wire.address };
        Some(Self { holder, resign_request, fields })
    }
}

/// Who stands with an entry of this name and data; `session` owns it.
pub(crate) fn holder(name: &str, bytes: &[u8], session: i64) -> Holder {
    match Data::decode(bytes) {
        Some(data) => data.holder,
        None => stranger(name, bytes, session),
    }
}

/// A stranger is called what it has written into its entry, as far as a name of ours may hold that, or else as its entry is.
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
        assert_eq!(Data::decode(&data.encode()), Some(data.clone()));
        let later = String::from_utf8(data.encode()).unwrap().replacen('{', r#"{"later":[1,2],"#, 1);
        let asked = Data::decode(later.as_bytes()).unwrap().asked(FencingToken(5), "operator");
        let text = String::from_utf8(asked.encode()).unwrap();
        assert!(text.contains(r#""later":[1,2]"#), "{text}");
        let again = Data::decode(text.as_bytes()).unwrap();
        assert_eq!((again.resign_request, again.holder), (Some(FencingToken(5)), ours()));
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
