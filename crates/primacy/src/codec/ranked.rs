//! The encoding of messages of a [`ranked`](primacy_core::election::ranked) election.

use primacy_core::election::ranked::{Body, Claim, Message, STATE_MAX};
use primacy_core::{LeaderSequence, Term};

use super::{DecodeError, parse_node, wire as shared};

pub(super) mod wire {
    use super::shared::{Incarnation, Leader};

    #[derive(Clone, PartialEq, prost::Message)]
    pub(in crate::codec) struct Message {
        #[prost(message, optional, tag = "1")]
        pub(in crate::codec) incarnation: Option<Incarnation>,
        #[prost(oneof = "Body", tags = "2, 3, 4, 5, 6, 7")]
        pub(in crate::codec) body: Option<Body>,
    }

    #[derive(Clone, PartialEq, prost::Oneof)]
    pub(in crate::codec) enum Body {
        #[prost(message, tag = "2")]
        Elect(Elect),
        #[prost(message, tag = "3")]
        Hears(Hears),
        #[prost(message, tag = "4")]
        Vote(Vote),
        #[prost(message, tag = "5")]
        Lead(Lead),
        #[prost(message, tag = "6")]
        LeadReply(LeadReply),
        #[prost(message, tag = "7")]
        Resigned(Resigned),
    }

    #[derive(Clone, Copy, PartialEq, prost::Message)]
    pub(in crate::codec) struct Number {
        #[prost(uint64, tag = "1")]
        pub(in crate::codec) term: u64,
        #[prost(uint64, tag = "2")]
        pub(in crate::codec) counter: u64,
    }

    #[derive(Clone, Copy, PartialEq, prost::Message)]
    pub(in crate::codec) struct Elect {
        #[prost(uint64, tag = "1")]
        pub(in crate::codec) ballot: u64,
        #[prost(message, optional, tag = "2")]
        pub(in crate::codec) seen: Option<Number>,
        #[prost(uint32, optional, tag = "3")]
        pub(in crate::codec) hears: Option<u32>,
        #[prost(bool, tag = "4")]
        pub(in crate::codec) campaigns: bool,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub(in crate::codec) struct Hears {
        #[prost(message, optional, tag = "1")]
        pub(in crate::codec) to: Option<Incarnation>,
        #[prost(message, optional, tag = "2")]
        pub(in crate::codec) leader: Option<Leader>,
    }

    #[derive(Clone, Copy, PartialEq, prost::Message)]
    pub(in crate::codec) struct Vote {
        #[prost(message, optional, tag = "1")]
        pub(in crate::codec) to: Option<Incarnation>,
        #[prost(uint64, tag = "2")]
        pub(in crate::codec) ballot: u64,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub(in crate::codec) struct Lead {
        #[prost(message, optional, tag = "1")]
        pub(in crate::codec) number: Option<Number>,
        #[prost(bytes = "vec", tag = "2")]
        pub(in crate::codec) state: Vec<u8>,
    }

    #[derive(Clone, Copy, PartialEq, prost::Message)]
    pub(in crate::codec) struct LeadReply {
        #[prost(message, optional, tag = "1")]
        pub(in crate::codec) to: Option<Incarnation>,
        #[prost(message, optional, tag = "2")]
        pub(in crate::codec) number: Option<Number>,
        #[prost(uint64, tag = "3")]
        pub(in crate::codec) promised: u64,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub(in crate::codec) struct Resigned {
        #[prost(uint64, tag = "1")]
        pub(in crate::codec) term: u64,
        #[prost(string, optional, tag = "2")]
        pub(in crate::codec) successor: Option<String>,
    }
}

impl From<LeaderSequence> for wire::Number {
    fn from(LeaderSequence { term, counter }: LeaderSequence) -> Self {
        Self { term: term.0, counter }
    }
}

impl From<wire::Number> for LeaderSequence {
    fn from(wire::Number { term, counter }: wire::Number) -> Self {
        Self { term: Term(term), counter }
    }
}

impl From<&Message> for wire::Message {
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

impl TryFrom<wire::Message> for Message {
    type Error = DecodeError;
    fn try_from(message: wire::Message) -> Result<Self, DecodeError> {
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
