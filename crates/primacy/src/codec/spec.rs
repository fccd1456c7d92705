//! What a node hands to its guardian, so that it can bear witness when the node is gone.

use std::fmt::Write as _;
use std::time::Duration;

use prost::Message as _;
use serde::{Deserialize, Serialize};

use primacy_core::id::NodeIdError;
use primacy_core::{Identity, Incarnation, NodeId};

use crate::handshake::Hello;

use super::{DecodeError, Frame, decode, wire};

/// To whom a guardian bears witness, and as what. A node hands it to its guardian at the start.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WitnessSpec {
    /// To the peers of an election among nodes.
    Peers {
        /// What the guardian says of itself.
        hello: HelloText,
        /// The peers, each with its name and its `host:port`.
        peers: Vec<(String, String)>,
    },
    /// In the record of a store.
    Store(StoreSpec),
}

/// In which record a guardian clears its node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoreSpec {
    /// The store.
    pub(crate) url: String,
    pub(crate) election: String,
    node: String,
    incarnation: (u64, u64),
    pub(crate) lease: Duration,
}

/// A [`Hello`] as text: its bytes on the wire in hexadecimal digits, so that it has one encoding and not two.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct HelloText(String);

impl WitnessSpec {
    /// For the guardian of the node that says `me` of itself.
    #[must_use]
    pub fn peers(me: &Hello, peers: Vec<(NodeId, String)>) -> Self {
        let hello = HelloText::new(&me.of_guardian());
        Self::Peers { hello, peers: peers.into_iter().map(|(node, at)| (node.to_string(), at)).collect() }
    }
}

impl StoreSpec {
    pub(crate) fn new(url: &str, election: &str, identity: Identity, lease: Duration) -> Self {
        let Identity { node, incarnation: Incarnation { count, nonce } } = identity;
        let (url, election, node) = (url.to_owned(), election.to_owned(), node.to_string());
        Self { url, election, node, incarnation: (count, nonce), lease }
    }

    pub(crate) fn identity(&self) -> Result<Identity, NodeIdError> {
        let (count, nonce) = self.incarnation;
        Ok(Identity::new(NodeId::new(&self.node)?, Incarnation { count, nonce }))
    }
}

impl HelloText {
    fn new(hello: &Hello) -> Self {
        let frame = Some((&Frame::Hello(hello.clone())).into());
        let envelope = wire::Envelope { election: hello.election.clone(), frame };
        let mut text = String::new();
        for byte in envelope.encode_to_vec() {
            write!(text, "{byte:02x}").expect("a string grows as needed");
        }
        Self(text)
    }

    pub(crate) fn parse(&self) -> Result<Hello, DecodeError> {
        let digit = |digit: &u8| char::from(*digit).to_digit(16).and_then(|value| u8::try_from(value).ok());
        let pair = |pair: &[u8]| match pair {
            [high, low] => Some(digit(high)? << 4 | digit(low)?),
            _ => None,
        };
        let bytes: Option<Vec<u8>> = self.0.as_bytes().chunks(2).map(pair).collect();
        match decode(&bytes.ok_or(DecodeError::Invalid("hello"))?)? {
            (_, Frame::Hello(hello)) => Ok(hello),
            (_, _) => Err(DecodeError::Unknown("the frame")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::handshake::tests::{hello, node};

    #[test]
    fn a_spec_survives_its_way_and_a_broken_one_is_noticed() {
        let me = hello("a", &["a", "b"]);
        let spec = WitnessSpec::peers(&me, vec![(node("b"), "localhost:7".into())]);
        let text = serde_json::to_string(&spec).unwrap();
        assert!(text.starts_with(r#"{"peers":{"hello":"0a046d61696e12"#), "{text}");
        assert_eq!(serde_json::from_str::<WitnessSpec>(&text).unwrap(), spec);
        let WitnessSpec::Peers { hello, peers } = spec else { panic!("it names peers") };
        assert_eq!(hello.parse().unwrap(), me.of_guardian());
        assert_eq!(peers, [("b".to_owned(), "localhost:7".to_owned())]);
        for wrong in ["", "0", "zz", "2a00", &hello.0[..hello.0.len() - 2]] {
            assert!(HelloText(wrong.to_owned()).parse().is_err(), "{wrong}");
        }
    }
}
