//! The value of a candidate's key: JSON, so that an operator reads it with `etcdctl get`.
//!
//! ```json
//! {"primacy":1,"node":"a","count":7,"nonce":"00000000000000cd","address":"10.0.0.7:4000","entry":"00000000000000ef"}
//! ```
//!
//! `entry` is drawn for each entry, so that a late write of an earlier one is recognised. `resign` is present after a request to resign,
//! and names the requester. Unknown fields are not kept, since only their writer reads them. All other content is the proposal of another
//! program: `etcdctl elect NAME PROPOSAL` writes its own.

use primacy_core::election::lease::Holder;
use primacy_core::{Identity, Incarnation, NodeId};
use serde::{Deserialize, Serialize};

/// The version of this format.
const FORMAT: u64 = 1;

/// The longest name shown for a candidate that is another program, in bytes of its proposal.
const PROPOSAL_SHOWN_MAX: usize = 40;

/// A candidate's own value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Value {
    pub(super) holder: Holder,
    pub(super) entry: u64,
    /// The name of the requester of a resignation, if any.
    pub(super) resign: Option<String>,
}

#[derive(Serialize, Deserialize)]
struct Wire {
    primacy: u64,
    node: String,
    count: u64,
    nonce: String,
    address: String,
    entry: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    resign: Option<String>,
}

pub(super) fn encode(value: &Value) -> Vec<u8> {
    let Identity { node, incarnation } = &value.holder.identity;
    let wire = Wire {
        primacy: FORMAT,
        node: node.as_str().to_owned(),
        count: incarnation.count,
        nonce: format!("{:016x}", incarnation.nonce),
        address: value.holder.address.clone(),
        entry: format!("{:016x}", value.entry),
        resign: value.resign.clone(),
    };
    serde_json::to_vec(&wire).expect("texts and numbers are JSON")
}

/// Decodes a value; `None` for another program's.
pub(super) fn decode(bytes: &[u8]) -> Option<Value> {
    let wire: Wire = serde_json::from_slice(bytes).ok()?;
    let number = |text: &str| {
        let is_hexadecimal = text.len() == 16 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        u64::from_str_radix(text, 16).ok().filter(|_| is_hexadecimal)
    };
    if wire.primacy != FORMAT {
        return None;
    }
    let incarnation = Incarnation { count: wire.count, nonce: number(&wire.nonce)? };
    let identity = Identity { node: NodeId::new(&wire.node).ok()?, incarnation };
    let holder = Holder { identity, address: wire.address };
    Some(Value { holder, entry: number(&wire.entry)?, resign: wire.resign })
}

/// Describes a candidate that is another program, by its proposal and its session.
pub(super) fn stranger(proposal: &[u8], lease: i64) -> Holder {
    let text = String::from_utf8_lossy(proposal);
    let is_named = |letter: &char| letter.is_ascii_alphanumeric() || matches!(letter, '-' | '_' | '.');
    let named: String = text.chars().filter(is_named).take(PROPOSAL_SHOWN_MAX).collect();
    let nonce = u64::from_ne_bytes(lease.to_ne_bytes());
    let unnamed = || NodeId::new(&format!("etcd-{nonce:x}")).expect("a number makes a name");
    let node = NodeId::new(&named).unwrap_or_else(|_| unnamed());
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
        let mut value = Value { holder, entry: 0xef, resign: None };
        let golden = concat!(
            r#"{"primacy":1,"node":"a","count":7,"nonce":"00000000000000cd","address":"10.0.0.7:4000","#,
            r#""entry":"00000000000000ef"}"#
        );
        assert_eq!(String::from_utf8(encode(&value)).unwrap(), golden);
        assert_eq!(decode(golden.as_bytes()), Some(value.clone()));
        value.resign = Some("operator".to_owned());
        assert_eq!(decode(&encode(&value)), Some(value));
        for (from, to) in
            [("1,", "2,"), ("cd", "+d"), (r#""a""#, r#""a b""#), ("{", "["), ("count", "counts")]
        {
            assert_eq!(decode(golden.replacen(from, to, 1).as_bytes()), None, "{from} {to}");
        }
        assert_eq!(decode(b"\xff"), None);
    }

    #[test]
    fn a_stranger_is_named_by_its_proposal_or_else_by_its_session() {
        let named = stranger(b"host-1", 0x1a);
        assert_eq!((named.identity.node.as_str(), named.identity.incarnation.count), ("host-1", 0));
        assert_eq!(stranger(b"", 0x1a).identity.node.as_str(), "etcd-1a");
        assert_eq!(stranger(b"\xff \n", -1).identity.node.as_str(), "etcd-ffffffffffffffff");
        assert_ne!(named.identity, stranger(b"host-1", 0x1b).identity);
        assert_eq!(stranger("x".repeat(500).as_bytes(), 1).identity.node.as_str().len(), PROPOSAL_SHOWN_MAX);
    }
}
