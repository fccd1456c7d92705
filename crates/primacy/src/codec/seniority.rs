//! The encoding of messages of an election [by seniority](primacy_core::election::seniority).
//!
//! Requests to a store are not sent between nodes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use primacy_core::election::seniority::{Body, JoinAnswer, Message, Refusal};
use primacy_core::membership::{
    Age, AgesRunOut, Attributes, Cluster, Member, Sight, View, ViewParts, ViewVersion,
};
use primacy_core::{FencingToken, Identity, Incarnation, NodeId, Term};

use super::wire::{self as shared, seniority as wire};
use super::{DecodeError, Frame, TooLong, Word, encode, parse_node};

impl From<&Message> for shared::Seniority {
    fn from(message: &Message) -> Self {
        let body = match &message.body {
            Body::Join { joining, attributes } => {
                let attributes = Some((&**attributes).into());
                Some(wire::Body::Join(wire::Join { joining: *joining, attributes }))
            }
            Body::JoinReply { joining, answer } => {
                let answer = Some((*answer).into());
                Some(wire::Body::JoinReply(wire::JoinReply { joining: *joining, answer }))
            }
            Body::View(view) => Some(wire::Body::View((&**view).into())),
            Body::ViewReply(sight) => Some(wire::Body::ViewReply(sight.into())),
            Body::Heartbeat { sight, suspects } => Some(wire::Body::Heartbeat(wire::Heartbeat {
                sight: Some(sight.into()),
                suspects: names(suspects),
            })),
            Body::Ask(sight) => Some(wire::Body::Ask(sight.into())),
            Body::Leave { joining } => Some(wire::Body::Leave(*joining)),
            Body::Down { identity, joining } => {
                Some(wire::Body::Down(wire::Down { identity: Some(identity.into()), joining: *joining }))
            }
            Body::Probe(sight) => Some(wire::Body::Probe(sight.into())),
            Body::ProbeReply(sight) => Some(wire::Body::ProbeReply(sight.into())),
            Body::MergeAsk(sight) => Some(wire::Body::MergeAsk(sight.into())),
            Body::MergeReply(sight) => Some(wire::Body::MergeReply(sight.into())),
            Body::Merge { into, sight } => {
                let into = into.as_str().to_owned();
                Some(wire::Body::Merge(wire::Merge { into, sight: Some(sight.into()) }))
            }
            Body::Store(_) => None,
        };
        Self { incarnation: Some(message.incarnation.into()), body }
    }
}

impl TryFrom<shared::Seniority> for Message {
    type Error = DecodeError;
    fn try_from(message: shared::Seniority) -> Result<Self, DecodeError> {
        let incarnation = message.incarnation.ok_or(DecodeError::Missing("seniority.incarnation"))?;
        let body = match message.body.ok_or(DecodeError::Unknown("the message"))? {
            wire::Body::Join(wire::Join { joining, attributes }) => {
                Body::Join { joining, attributes: attributes.unwrap_or_default().try_into()? }
            }
            wire::Body::JoinReply(wire::JoinReply { joining, answer }) => {
                let answer = answer.ok_or(DecodeError::Unknown("the answer"))?.try_into()?;
                Body::JoinReply { joining, answer }
            }
            wire::Body::View(view) => Body::View(Arc::new(view.try_into()?)),
            wire::Body::ViewReply(sight) => Body::ViewReply(sight.try_into()?),
            wire::Body::Heartbeat(wire::Heartbeat { sight, suspects }) => {
                let sight = sight.ok_or(DecodeError::Missing("heartbeat.sight"))?.try_into()?;
                Body::Heartbeat { sight, suspects: nodes(&suspects, "heartbeat.suspects")? }
            }
            wire::Body::Ask(sight) => Body::Ask(sight.try_into()?),
            wire::Body::Leave(joining) => Body::Leave { joining },
            wire::Body::Down(wire::Down { identity, joining }) => {
                let identity = identity.ok_or(DecodeError::Missing("down.identity"))?.try_into()?;
                Body::Down { identity, joining }
            }
            wire::Body::Probe(sight) => Body::Probe(sight.try_into()?),
            wire::Body::ProbeReply(sight) => Body::ProbeReply(sight.try_into()?),
            wire::Body::MergeAsk(sight) => Body::MergeAsk(sight.try_into()?),
            wire::Body::MergeReply(sight) => Body::MergeReply(sight.try_into()?),
            wire::Body::Merge(wire::Merge { into, sight }) => Body::Merge {
                into: parse_node(&into, "merge.into")?,
                sight: sight.ok_or(DecodeError::Missing("merge.sight"))?.try_into()?,
            },
        };
        Ok(Self { incarnation: incarnation.into(), body })
    }
}

fn names(nodes: &BTreeSet<NodeId>) -> Vec<String> {
    nodes.iter().map(|node| node.as_str().to_owned()).collect()
}

fn nodes(names: &[String], field: &'static str) -> Result<BTreeSet<NodeId>, DecodeError> {
    names.iter().map(|name| parse_node(name, field)).collect()
}

impl From<&Attributes> for wire::Attributes {
    fn from(attributes: &Attributes) -> Self {
        Self {
            address: attributes.address().to_owned(),
            zone: attributes.zone().to_owned(),
            version: attributes.version().to_owned(),
            labels: attributes.labels().clone(),
        }
    }
}

impl TryFrom<wire::Attributes> for Arc<Attributes> {
    type Error = DecodeError;
    fn try_from(attributes: wire::Attributes) -> Result<Self, DecodeError> {
        let wire::Attributes { address, zone, version, labels } = attributes;
        let labels: BTreeMap<String, String> = labels;
        let attributes = Attributes::new(address, zone, version, labels);
        attributes.map(Self::new).map_err(|_| DecodeError::Invalid("attributes"))
    }
}

impl From<JoinAnswer> for wire::join_reply::Answer {
    fn from(answer: JoinAnswer) -> Self {
        match answer {
            JoinAnswer::NotJoined => Self::NotJoined(shared::Nothing {}),
            JoinAnswer::Ask(node) => Self::Ask(node.as_str().to_owned()),
            JoinAnswer::Refused(Refusal::Full) => Self::Full(shared::Nothing {}),
            JoinAnswer::Refused(Refusal::AgesRunOut(AgesRunOut { last })) => Self::AgesRunOut(last.0),
            JoinAnswer::Refused(Refusal::NameTaken) => Self::NameTaken(shared::Nothing {}),
        }
    }
}

impl TryFrom<wire::join_reply::Answer> for JoinAnswer {
    type Error = DecodeError;
    fn try_from(answer: wire::join_reply::Answer) -> Result<Self, DecodeError> {
        Ok(match answer {
            wire::join_reply::Answer::NotJoined(shared::Nothing {}) => Self::NotJoined,
            wire::join_reply::Answer::Ask(node) => Self::Ask(parse_node(&node, "join_reply.ask")?),
            wire::join_reply::Answer::Full(shared::Nothing {}) => Self::Refused(Refusal::Full),
            wire::join_reply::Answer::AgesRunOut(last) => {
                Self::Refused(Refusal::AgesRunOut(AgesRunOut { last: Age(last) }))
            }
            wire::join_reply::Answer::NameTaken(shared::Nothing {}) => Self::Refused(Refusal::NameTaken),
        })
    }
}

impl From<Cluster> for wire::Cluster {
    fn from(cluster: Cluster) -> Self {
        Self { founder: Some((&cluster.founder).into()), joining: cluster.joining }
    }
}

impl TryFrom<wire::Cluster> for Cluster {
    type Error = DecodeError;
    fn try_from(cluster: wire::Cluster) -> Result<Self, DecodeError> {
        let founder = cluster.founder.ok_or(DecodeError::Missing("cluster.founder"))?.try_into()?;
        Ok(Self { founder, joining: cluster.joining })
    }
}

impl From<ViewVersion> for wire::Version {
    fn from(version: ViewVersion) -> Self {
        let ViewVersion { term, coordinator, number } = version;
        Self { term: term.0, coordinator: Some((&coordinator).into()), number }
    }
}

impl TryFrom<wire::Version> for ViewVersion {
    type Error = DecodeError;
    fn try_from(version: wire::Version) -> Result<Self, DecodeError> {
        let coordinator =
            version.coordinator.ok_or(DecodeError::Missing("version.coordinator"))?.try_into()?;
        Ok(Self { term: Term(version.term), coordinator, number: version.number })
    }
}

impl From<&Sight> for wire::Sight {
    fn from(sight: &Sight) -> Self {
        let Sight { cluster, version, members, decision } = *sight;
        Self { cluster: Some(cluster.into()), version: Some(version.into()), members, decision: decision.0 }
    }
}

impl TryFrom<wire::Sight> for Sight {
    type Error = DecodeError;
    fn try_from(sight: wire::Sight) -> Result<Self, DecodeError> {
        Ok(Self {
            cluster: sight.cluster.ok_or(DecodeError::Missing("sight.cluster"))?.try_into()?,
            version: sight.version.ok_or(DecodeError::Missing("sight.version"))?.try_into()?,
            members: sight.members,
            decision: FencingToken(sight.decision),
        })
    }
}

impl From<&View> for wire::View {
    fn from(view: &View) -> Self {
        let ViewParts { cluster, version, members, removed, next_age, decision } = view.parts();
        let member = |Member { age, identity, joining, attributes }: &Member| wire::Member {
            age: age.0,
            identity: Some(identity.into()),
            joining: *joining,
            attributes: Some((&**attributes).into()),
        };
        Self {
            cluster: Some(cluster.into()),
            version: Some(version.into()),
            members: members.iter().map(member).collect(),
            removed: names(&removed),
            next_age: next_age.0,
            decision: decision.0,
        }
    }
}

impl TryFrom<wire::View> for View {
    type Error = DecodeError;
    fn try_from(view: wire::View) -> Result<Self, DecodeError> {
        let member = |wire::Member { age, identity, joining, attributes }: wire::Member| {
            Ok(Member {
                age: Age(age),
                identity: identity.ok_or(DecodeError::Missing("member.identity"))?.try_into()?,
                joining,
                attributes: attributes.unwrap_or_default().try_into()?,
            })
        };
        let parts = ViewParts {
            cluster: view.cluster.ok_or(DecodeError::Missing("view.cluster"))?.try_into()?,
            version: view.version.ok_or(DecodeError::Missing("view.version"))?.try_into()?,
            members: view.members.into_iter().map(member).collect::<Result<_, DecodeError>>()?,
            removed: nodes(&view.removed, "view.removed")?,
            next_age: Age(view.next_age),
            decision: FencingToken(view.decision),
        };
        Self::new(parts).map_err(|_| DecodeError::Invalid("view"))
    }
}

/// The highest term in a message.
pub(super) fn highest_term(message: &Message) -> Term {
    match &message.body {
        Body::View(view) => view.version().term,
        Body::ViewReply(sight) | Body::Heartbeat { sight, .. } | Body::Ask(sight) => sight.version.term,
        Body::Probe(sight) | Body::ProbeReply(sight) => sight.version.term,
        Body::MergeAsk(sight) | Body::MergeReply(sight) | Body::Merge { sight, .. } => sight.version.term,
        Body::Join { .. }
        | Body::JoinReply { .. }
        | Body::Leave { .. }
        | Body::Down { .. }
        | Body::Store(_) => Term(0),
    }
}

/// The encoded length of the longest view of these members, if each has attributes as long as this node's.
pub(crate) fn length_of_view(
    peers: &BTreeSet<NodeId>,
    attributes: &Arc<Attributes>,
) -> Result<usize, TooLong> {
    let incarnation = Incarnation { count: u64::MAX, nonce: u64::MAX };
    let life = |node| Identity::new(node, incarnation);
    // The largest ages that other members accept.
    let above = Age::MAX.0 - peers.len() as u64;
    let member = |(node, age): (&NodeId, u64)| Member {
        age: Age(age),
        identity: life(*node),
        joining: Age::MAX.0,
        attributes: Arc::clone(attributes),
    };
    let Some(&first) = peers.first() else { return Ok(0) };
    let number = Age::MAX.0;
    let view = View::new(ViewParts {
        cluster: Cluster { founder: life(first), joining: number },
        version: ViewVersion { term: Term(number), coordinator: life(first), number },
        members: peers.iter().zip(above..).map(member).collect(),
        removed: BTreeSet::new(),
        next_age: Age::MAX,
        decision: FencingToken(number),
    });
    // Such a view does not occur: further members are refused when they join.
    let Ok(view) = view else { return Ok(0) };
    let body = Body::View(Arc::new(view));
    let message = Word::Seniority(Message { incarnation, body });
    // With the longest name of an election.
    encode(&"x".repeat(NodeId::LENGTH_MAX), &Frame::Message(message)).map(|frame| frame.len())
}
