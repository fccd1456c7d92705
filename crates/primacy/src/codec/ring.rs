//! The encoding of messages of an election [on a ring](primacy_core::election::on_a_ring).

use primacy_core::Term;
use primacy_core::election::on_a_ring::{Body, Message};
use primacy_core::election::{ring, ring_bidirectional};
use primacy_core::neighbours::Direction;

use super::DecodeError;
use super::wire::{self as shared, ring as wire};

/// A probe of either kind.
trait Probe: Copy {
    fn to_wire(self, backward: bool) -> wire::Body;
    /// `None` if the probe is of the other election.
    fn from_wire(body: wire::Body) -> Result<Option<(bool, Self)>, DecodeError>;
}

impl Probe for ring::Probe {
    fn to_wire(self, backward: bool) -> wire::Body {
        let Self { candidate, hops } = self;
        wire::Body::Probe(wire::Probe { candidate: Some((&candidate).into()), hops, backward })
    }

    fn from_wire(body: wire::Body) -> Result<Option<(bool, Self)>, DecodeError> {
        let wire::Body::Probe(wire::Probe { candidate, hops, backward }) = body else { return Ok(None) };
        let candidate = candidate.ok_or(DecodeError::Missing("probe.candidate"))?.try_into()?;
        Ok(Some((backward, Self { candidate, hops })))
    }
}

impl Probe for ring_bidirectional::Probe {
    fn to_wire(self, backward: bool) -> wire::Body {
        let (Self::Out { candidate, phase, left } | Self::Back { candidate, phase, left }) = self;
        let probe = wire::PhaseProbe { candidate: Some((&candidate).into()), phase, left, backward };
        match self {
            Self::Out { .. } => wire::Body::Out(probe),
            Self::Back { .. } => wire::Body::Back(probe),
        }
    }

    fn from_wire(body: wire::Body) -> Result<Option<(bool, Self)>, DecodeError> {
        let (is_out, probe) = match body {
            wire::Body::Out(probe) => (true, probe),
            wire::Body::Back(probe) => (false, probe),
            wire::Body::Probe(_)
            | wire::Body::Elected(_)
            | wire::Body::Resigned(_)
            | wire::Body::Received(_)
            | wire::Body::Knock(_)
            | wire::Body::Late(_) => return Ok(None),
        };
        let wire::PhaseProbe { candidate, phase, left, backward } = probe;
        let candidate = candidate.ok_or(DecodeError::Missing("probe.candidate"))?.try_into()?;
        let probe = match is_out {
            true => Self::Out { candidate, phase, left },
            false => Self::Back { candidate, phase, left },
        };
        Ok(Some((backward, probe)))
    }
}

impl<P: Probe> From<&Message<P>> for shared::Ring {
    fn from(message: &Message<P>) -> Self {
        let body = match message.body {
            Body::Probe { direction, probe } => probe.to_wire(direction == Direction::Back),
            Body::Elected { leader, beat, hops } => {
                wire::Body::Elected(wire::Elected { leader: Some((&leader).into()), hops, beat })
            }
            Body::Resigned { leader, hops } => {
                wire::Body::Resigned(wire::Elected { leader: Some((&leader).into()), hops, beat: 0 })
            }
            Body::Received => wire::Body::Received(shared::Nothing {}),
            Body::Knock => wire::Body::Knock(shared::Nothing {}),
            Body::Late => wire::Body::Late(shared::Nothing {}),
        };
        Self {
            incarnation: Some(message.incarnation.into()),
            round: message.round.0,
            number: message.number,
            body: Some(body),
        }
    }
}

impl<P: Probe> TryFrom<shared::Ring> for Message<P> {
    type Error = DecodeError;
    fn try_from(message: shared::Ring) -> Result<Self, DecodeError> {
        let incarnation = message.incarnation.ok_or(DecodeError::Missing("ring.incarnation"))?;
        let body = match message.body.ok_or(DecodeError::Unknown("the message"))? {
            wire::Body::Elected(wire::Elected { leader, hops, beat }) => {
                let leader = leader.ok_or(DecodeError::Missing("elected.leader"))?.try_into()?;
                Body::Elected { leader, beat, hops }
            }
            wire::Body::Resigned(wire::Elected { leader, hops, .. }) => {
                let leader = leader.ok_or(DecodeError::Missing("resigned.leader"))?.try_into()?;
                Body::Resigned { leader, hops }
            }
            wire::Body::Received(shared::Nothing {}) => Body::Received,
            wire::Body::Knock(shared::Nothing {}) => Body::Knock,
            wire::Body::Late(shared::Nothing {}) => Body::Late,
            probe @ (wire::Body::Probe(_) | wire::Body::Out(_) | wire::Body::Back(_)) => {
                let (backward, probe) = P::from_wire(probe)?.ok_or(DecodeError::Invalid("ring.probe"))?;
                let direction = if backward { Direction::Back } else { Direction::Onward };
                Body::Probe { direction, probe }
            }
        };
        Ok(Self { incarnation: incarnation.into(), round: Term(message.round), number: message.number, body })
    }
}

/// The highest term in a message.
pub(super) fn highest_term<P>(message: &Message<P>) -> Term {
    match &message.body {
        Body::Elected { leader, .. } | Body::Resigned { leader, .. } => leader.term.max(message.round),
        Body::Probe { .. } | Body::Received | Body::Knock | Body::Late => message.round,
    }
}
