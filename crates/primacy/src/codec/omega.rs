//! The encoding of messages of an [`omega`](primacy_core::election::omega) election.

use primacy_core::Term;
use primacy_core::election::omega::{Body, Message};

use super::DecodeError;
use super::wire::{self as shared, omega as wire};

impl From<&Message> for shared::Omega {
    fn from(&Message { incarnation, term, body }: &Message) -> Self {
        let body = match body {
            Body::Heartbeat => wire::Body::Heartbeat(shared::Nothing {}),
            Body::Resigned => wire::Body::Resigned(shared::Nothing {}),
        };
        Self { incarnation: Some(incarnation.into()), term: term.0, body: Some(body) }
    }
}

impl TryFrom<shared::Omega> for Message {
    type Error = DecodeError;
    fn try_from(shared::Omega { incarnation, term, body }: shared::Omega) -> Result<Self, DecodeError> {
        let incarnation = incarnation.ok_or(DecodeError::Missing("omega.incarnation"))?.into();
        let body = match body.ok_or(DecodeError::Unknown("the message"))? {
            wire::Body::Heartbeat(shared::Nothing {}) => Body::Heartbeat,
            wire::Body::Resigned(shared::Nothing {}) => Body::Resigned,
        };
        Ok(Self { incarnation, term: Term(term), body })
    }
}

/// The highest term in a message.
pub(super) const fn highest_term(message: &Message) -> Term {
    message.term
}

#[cfg(test)]
mod tests {
    use primacy_core::Incarnation;

    use super::super::{Frame, Word, decode, encode_bare};
    use super::*;

    #[test]
    fn a_message_has_these_bytes_for_ever() {
        let incarnation = Incarnation { count: 2, nonce: 7 };
        for (body, last) in [(Body::Heartbeat, "1a00"), (Body::Resigned, "2200")] {
            let frame = Frame::Message(Word::Omega(Message { incarnation, term: Term(5), body }));
            let encoded = encode_bare("e", &frame);
            let hex: String = encoded.iter().map(|byte| format!("{byte:02x}")).collect();
            assert_eq!(hex, format!("0a01658a01110a0b08021107000000000000001005{last}"));
            assert_eq!(decode(&encoded), Ok(("e".to_owned(), frame)));
        }
    }
}
