//! The encoding of messages of a [`bully`](primacy_core::election::bully) election.

use primacy_core::Term;
use primacy_core::election::bully::{Body, Message};

use super::DecodeError;
use super::wire::{self as shared, bully as wire};

impl From<&Message> for shared::Bully {
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

impl TryFrom<shared::Bully> for Message {
    type Error = DecodeError;
    fn try_from(message: shared::Bully) -> Result<Self, DecodeError> {
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
