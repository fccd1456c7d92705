//! The value of the key while a Primacy node holds it: JSON, so that an operator reads it with `consul kv get`.
//!
//! ```json
//! {"primacy":1,"holder":{"node":"a","count":7,"nonce":"00000000000000cd","address":"10.0.0.7:4000"},
//!  "token":117,"session":"adf4238a-882b-9ddc-4a9d-5b6758e4159e","resign_request":{"token":117,"by":"operator"}}
//! ```
//!
//! `holder` and `resign_request` mean what they mean in a [record](crate::record), and `session` is the session that wrote the value: it
//! does not apply to any other session. All other content is another program's: `consul lock` writes nothing, or the value that it is
//! given.

use primacy_core::election::lease::Holder;
use primacy_core::{FencingToken, Identity, Incarnation, NodeId};
use serde::{Deserialize, Serialize};

/// The version of the format.
const FORMAT: u64 = 1;

/// The longest value that is parsed, in bytes. A longer one is another program's.
const LENGTH_MAX: usize = 64 * 1024;

/// The longest name shown for a holder that is another program, in bytes.
const SHOWN_MAX: usize = 40;

/// The value that a Primacy node has written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Value {
    pub(super) holder: Holder,
    pub(super) token: FencingToken,
    pub(super) session: String,
    /// The name of the requester of a resignation, if any.
    pub(super) asked_by: Option<String>,
}

#[derive(Serialize, Deserialize)]
struct Wire {
    primacy: u64,
    holder: WireHolder,
    token: u64,
    session: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    resign_request: Option<WireRequest>,
}

#[derive(Serialize, Deserialize)]
struct WireHolder {
    node: String,
    count: u64,
    nonce: String,
    address: String,
}

#[derive(Serialize, Deserialize)]
struct WireRequest {
    token: u64,
    by: String,
}

impl Value {
    pub(super) fn encode(&self) -> Vec<u8> {
        let Identity { node, incarnation } = &self.holder.identity;
        let holder = WireHolder {
            node: node.as_str().to_owned(),
            count: incarnation.count,
            nonce: format!("{:016x}", incarnation.nonce),
            address: self.holder.address.clone(),
        };
        let request = |by: &String| WireRequest { token: self.token.0, by: by.clone() };
        let wire = Wire {
            primacy: FORMAT,
            holder,
            token: self.token.0,
            session: self.session.clone(),
            resign_request: self.asked_by.as_ref().map(request),
        };
        serde_json::to_vec(&wire).expect("texts and numbers are JSON")
    }

    /// Decodes a value; `None` for another program's.
    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let bytes = Some(bytes).filter(|bytes| bytes.len() <= LENGTH_MAX)?;
        let wire: Wire = serde_json::from_slice(bytes).ok().filter(|wire: &Wire| wire.primacy == FORMAT)?;
        let nonce =
            Some(&wire.holder.nonce).filter(|nonce| nonce.bytes().all(|byte| byte.is_ascii_hexdigit()))?;
        let incarnation =
            Incarnation { count: wire.holder.count, nonce: u64::from_str_radix(nonce, 16).ok()? };
        let identity = Identity { node: NodeId::new(&wire.holder.node).ok()?, incarnation };
        let asked = wire.resign_request.filter(|request| request.token == wire.token);
        Some(Self {
            holder: Holder { identity, address: wire.holder.address },
            token: FencingToken(wire.token),
            session: wire.session,
            asked_by: asked.map(|request| request.by),
        })
    }
}

/// Describes a holder that is another program, by its value or else the name of its session, and by its session.
pub(super) fn stranger(texts: &[&str], session: &str) -> Holder {
    let is_named = |letter: &char| letter.is_ascii_alphanumeric() || matches!(letter, '-' | '_' | '.');
    let named = |text: &&str| -> String { text.chars().filter(is_named).take(SHOWN_MAX).collect() };
    let mut names = texts.iter().map(named).chain([format!("session-{session}")]);
    let node = names.find_map(|name| NodeId::new(&name).ok());
    let node = node.unwrap_or_else(|| NodeId::new("stranger").expect("it is a name"));
    // The first sixteen digits of its session, which is drawn at random.
    let digits: String = session.chars().filter(char::is_ascii_hexdigit).take(16).collect();
    let nonce = u64::from_str_radix(&digits, 16).unwrap_or(0);
    Holder {
        identity: Identity { node, incarnation: Incarnation { count: 0, nonce } },
        address: String::new(),
    }
}

#[cfg(test)]
mod tests {
    mod fuzz;

    use super::*;

    #[test]
    fn a_value_comes_back_and_whatever_else_is_a_strangers() {
        let identity = Identity::new(NodeId::new("a").unwrap(), Incarnation { count: 7, nonce: 0xcd });
        let holder = Holder { identity, address: "10.0.0.7:4000".to_owned() };
        let mut value =
            Value { holder, token: FencingToken(117), session: "adf4".to_owned(), asked_by: None };
        let golden = concat!(
            r#"{"primacy":1,"holder":{"node":"a","count":7,"nonce":"00000000000000cd","address":"10.0.0.7:4000"},"#,
            r#""token":117,"session":"adf4"}"#
        );
        assert_eq!(String::from_utf8(value.encode()).unwrap(), golden);
        assert_eq!(Value::decode(golden.as_bytes()), Some(value.clone()));
        value.asked_by = Some("operator".to_owned());
        assert_eq!(Value::decode(&value.encode()), Some(value.clone()));
        let void = String::from_utf8(value.encode()).unwrap().replace(r#"{"token":117"#, r#"{"token":116"#);
        assert_eq!(Value::decode(void.as_bytes()).unwrap().asked_by, None, "for another token");
        for (from, to) in [("1,", "2,"), ("cd", "+d"), (r#""a""#, r#""a b""#), ("{", "["), ("117", "-1")] {
            assert_eq!(Value::decode(golden.replacen(from, to, 1).as_bytes()), None, "{from} {to}");
        }
        assert_eq!((Value::decode(b""), Value::decode(b"\xff")), (None, None));
    }

    #[test]
    fn a_stranger_is_named_by_its_value_or_its_session() {
        let session = "adf4238a-882b-9ddc-4a9d-5b6758e4159e";
        let named = stranger(&["host-1\n", "Consul lock"], session);
        assert_eq!((named.identity.node.as_str(), named.identity.incarnation.count), ("host-1", 0));
        assert_eq!(named.identity.incarnation.nonce, 0xadf4_238a_882b_9ddc);
        assert_eq!(stranger(&["", "Consul API Lock"], session).identity.node.as_str(), "ConsulAPILock");
        assert_eq!(stranger(&["", " "], session).identity.node.as_str(), format!("session-{session}"));
        assert_eq!(stranger(&[], &"x".repeat(99)).identity.node.as_str(), "stranger");
    }
}
