//! The encoding of messages of a [`bully`](primacy_core::election::bully) election.

use primacy_core::Term;
use primacy_core::election::bully::{Body, Message};

use super::{DecodeError, wire as shared};

pub(super) mod wire {
    use super::shared::{Incarnation, Nothing};

    #[derive(Clone, Copy, PartialEq, prost::Message)]
    pub(in crate::codec) struct Message {
        #[prost(message, optional, tag = "1")]
        pub(in crate::codec) incarnation: Option<Incarnation>,
        #[prost(uint64, tag = "2")]
        pub(in crate::codec) round: u64,
        #[prost(oneof = "Body", tags = "3, 4, 5, 6, 7, 8")]
        pub(in crate::codec) body: Option<Body>,
    }

    #[derive(Clone, Copy, PartialEq, prost::Oneof)]
    pub(in crate::codec) enum Body {
        #[prost(message, tag = "3")]
        Election(Nothing),
        #[prost(message, tag = "4")]
        Alive(Nothing),
        /// The term.
        #[prost(uint64, tag = "5")]
        Coordinator(u64),
        /// The term.
        #[prost(uint64, tag = "6")]
        Heartbeat(u64),
        /// The term.
        #[prost(uint64, tag = "7")]
        Resigned(u64),
        #[prost(message, tag = "8")]
        Late(Nothing),
    }
}

impl From<&Message> for wire::Message {
    fn from(message: &Message) -> Self {
        let body = match message.body {
            Body::Election => wire::Body::Election(shared::Nothing {}),
            Body::Alive => wire::Body::Alive(shared::Nothing {}),
            Body::Coordinator { term } => wire::Body::Coordinator(term.0),
            Body::Heartbeat { term } => wire::Body::Heartbeat(term.0),
            Body::Resigned { term } => wire::Body::Resigned(term.0),
            Body::Late => wire::Body::Late(shared::Nothing {}),
        };
        Self { incarnation: Some(message.incarnation.into()), round: message.round.0, body: Some(body) }
    }
}

impl TryFrom<wire::Message> for Message {
    type Error = DecodeError;
    fn try_from(message: wire::Message) -> Result<Self, DecodeError> {
        let incarnation = message.incarnation.ok_or(DecodeError::Missing("bully.incarnation"))?;
        let body = match message.body.ok_or(DecodeError::Unknown("the message"))? {
            wire::Body::Election(shared::Nothing {}) => Body::Election,
            wire::Body::Alive(shared::Nothing {}) => Body::Alive,
            wire::Body::Coordinator(term) => Body::Coordinator { term: Term(term) },
            wire::Body::Heartbeat(term) => Body::Heartbeat { term: Term(term) },
            wire::Body::Resigned(term) => Body::Resigned { term: Term(term) },
            wire::Body::Late(shared::Nothing {}) => Body::Late,
        };
        Ok(Self { incarnation: incarnation.into(), round: Term(message.round), body })
    }
}

/// The highest term in a message.
pub(super) fn highest_term(message: &Message) -> Term {
    match message.body {
        Body::Coordinator { term } | Body::Heartbeat { term } | Body::Resigned { term } => {
            term.max(message.round)
        }
        Body::Election | Body::Alive | Body::Late => message.round,
    }
}
