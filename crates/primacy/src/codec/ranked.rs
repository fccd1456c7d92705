//! The encoding of messages of a [`ranked`](primacy_core::election::ranked) election.

use primacy_core::Term;
use primacy_core::election::ranked::{Body, Claim, Message, STATE_MAX};

use super::wire::{self as shared, ranked as wire};
use super::{DecodeError, parse_node};

impl From<&Message> for shared::Ranked {
    fn from(message: &Message) -> Self {
        let body = match &message.body {
            Body::Elect { ballot, claim: Claim { seen, hears, campaigns } } => {
                wire::Body::Elect(wire::Elect {
                    ballot: ballot.0,
                    seen: seen.map(Into::into),
                    hears: *hears,
                    campaigns: *campaigns,
                })
            }
            Body::Hears { to, leader } => {
                wire::Body::Hears(wire::Hears { to: Some((*to).into()), leader: Some(leader.into()) })
            }
            Body::Vote { to, ballot } => {
                wire::Body::Vote(wire::Vote { to: Some((*to).into()), ballot: ballot.0 })
            }
            Body::Lead { number, state } => {
                wire::Body::Lead(wire::Lead { number: Some((*number).into()), state: state.to_vec() })
            }
            Body::LeadReply { to, number, promised } => wire::Body::LeadReply(wire::LeadReply {
                to: Some((*to).into()),
                number: Some((*number).into()),
                promised: promised.0,
            }),
            Body::Resigned { term, successor } => wire::Body::Resigned(wire::Resigned {
                term: term.0,
                successor: successor.map(|node| node.as_str().to_owned()),
            }),
        };
        Self { incarnation: Some(message.incarnation.into()), body: Some(body) }
    }
}

impl TryFrom<shared::Ranked> for Message {
    type Error = DecodeError;
    fn try_from(message: shared::Ranked) -> Result<Self, DecodeError> {
        let incarnation = message.incarnation.ok_or(DecodeError::Missing("ranked.incarnation"))?;
        let body = match message.body.ok_or(DecodeError::Unknown("the message"))? {
            wire::Body::Elect(wire::Elect { ballot, seen, hears, campaigns }) => Body::Elect {
                ballot: Term(ballot),
                claim: Claim { seen: seen.map(Into::into), hears, campaigns },
            },
            wire::Body::Hears(wire::Hears { to, leader }) => Body::Hears {
                to: to.ok_or(DecodeError::Missing("hears.to"))?.into(),
                leader: leader.ok_or(DecodeError::Missing("hears.leader"))?.try_into()?,
            },
            wire::Body::Vote(wire::Vote { to, ballot }) => {
                Body::Vote { to: to.ok_or(DecodeError::Missing("vote.to"))?.into(), ballot: Term(ballot) }
            }
            wire::Body::Lead(wire::Lead { number, state }) => {
                if state.len() > STATE_MAX {
                    return Err(DecodeError::Invalid("lead.state"));
                }
                let number = number.ok_or(DecodeError::Missing("lead.number"))?.into();
                Body::Lead { number, state: state.into() }
            }
            wire::Body::LeadReply(wire::LeadReply { to, number, promised }) => Body::LeadReply {
                to: to.ok_or(DecodeError::Missing("lead_reply.to"))?.into(),
                number: number.ok_or(DecodeError::Missing("lead_reply.number"))?.into(),
                promised: Term(promised),
            },
            wire::Body::Resigned(wire::Resigned { term, successor }) => {
                let successor = successor.map(|name| parse_node(&name, "resigned.successor")).transpose()?;
                Body::Resigned { term: Term(term), successor }
            }
        };
        Ok(Self { incarnation: incarnation.into(), body })
    }
}

/// The highest term in a message.
pub(super) fn highest_term(message: &Message) -> Term {
    match &message.body {
        Body::Elect { ballot, claim } => claim.seen.map_or(*ballot, |seen| seen.term.max(*ballot)),
        Body::Hears { leader, .. } => leader.term,
        Body::Vote { ballot, .. } => *ballot,
        Body::Lead { number, .. } => number.term,
        Body::LeadReply { number, promised, .. } => number.term.max(*promised),
        Body::Resigned { term, .. } => *term,
    }
}
