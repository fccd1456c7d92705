//! The encoding of messages of a [`quorum`](primacy_core::election::quorum) election.

use primacy_core::election::quorum::{Answer, Body, Message, Refusal as No, Resignation, Round};
use primacy_core::{Duration, Incarnation, Term};

use super::wire::{self as shared, quorum as wire};
use super::{DecodeError, parse_node};

impl From<&Message> for shared::Quorum {
    fn from(message: &Message) -> Self {
        let question = |round: Round, resignation: Option<Resignation>| wire::Question {
            round: round.0,
            resignation: resignation.map(Into::into),
        };
        let reply = |round: Round, to: Incarnation, answer: Answer| wire::Reply {
            round: round.0,
            to: Some(to.into()),
            answer: Some(answer.into()),
        };
        let body = match message.body {
            Body::PreVote { round, resignation } => wire::Body::PreVote(question(round, resignation)),
            Body::PreVoteReply { round, to, answer } => wire::Body::PreVoteReply(reply(round, to, answer)),
            Body::Vote { round, resignation } => wire::Body::Vote(question(round, resignation)),
            Body::VoteReply { round, to, answer } => wire::Body::VoteReply(reply(round, to, answer)),
            Body::Heartbeat { round } => wire::Body::Heartbeat(wire::Heartbeat { round: round.0 }),
            Body::HeartbeatReply { round, to, promise } => wire::Body::HeartbeatReply(wire::HeartbeatReply {
                round: round.0,
                to: Some(to.into()),
                promise_nanos: promise.as_nanos(),
            }),
            Body::Resigned { successor } => {
                let successor = successor.map(|node| node.as_str().to_owned());
                wire::Body::Resigned(wire::Resigned { successor })
            }
        };
        Self { incarnation: Some(message.incarnation.into()), term: message.term.0, body: Some(body) }
    }
}

impl TryFrom<shared::Quorum> for Message {
    type Error = DecodeError;
    fn try_from(message: shared::Quorum) -> Result<Self, DecodeError> {
        let incarnation = message.incarnation.ok_or(DecodeError::Missing("message.incarnation"))?;
        let body = match message.body.ok_or(DecodeError::Unknown("the message"))? {
            wire::Body::PreVote(question) => {
                let (round, resignation) = question.parse()?;
                Body::PreVote { round, resignation }
            }
            wire::Body::PreVoteReply(reply) => {
                let (round, to, answer) = reply.parse()?;
                Body::PreVoteReply { round, to, answer }
            }
            wire::Body::Vote(question) => {
                let (round, resignation) = question.parse()?;
                Body::Vote { round, resignation }
            }
            wire::Body::VoteReply(reply) => {
                let (round, to, answer) = reply.parse()?;
                Body::VoteReply { round, to, answer }
            }
            wire::Body::Heartbeat(wire::Heartbeat { round }) => Body::Heartbeat { round: Round(round) },
            wire::Body::HeartbeatReply(reply) => Body::HeartbeatReply {
                round: Round(reply.round),
                to: reply.to.ok_or(DecodeError::Missing("heartbeat_reply.to"))?.into(),
                promise: Duration::from_nanos(reply.promise_nanos),
            },
            wire::Body::Resigned(wire::Resigned { successor }) => {
                let successor = successor.map(|name| parse_node(&name, "resigned.successor")).transpose()?;
                Body::Resigned { successor }
            }
        };
        Ok(Self { incarnation: incarnation.into(), term: Term(message.term), body })
    }
}

/// The highest term in a message.
pub(super) fn highest_term(message: &Message) -> Term {
    let passed_on = match message.body {
        Body::PreVote { resignation, .. } | Body::Vote { resignation, .. } => {
            resignation.map(|resignation| resignation.term)
        }
        Body::PreVoteReply { .. }
        | Body::VoteReply { .. }
        | Body::Heartbeat { .. }
        | Body::HeartbeatReply { .. }
        | Body::Resigned { .. } => None,
    };
    passed_on.unwrap_or_default().max(message.term)
}

impl wire::Question {
    fn parse(self) -> Result<(Round, Option<Resignation>), DecodeError> {
        Ok((Round(self.round), self.resignation.map(TryInto::try_into).transpose()?))
    }
}

impl wire::Reply {
    fn parse(self) -> Result<(Round, Incarnation, Answer), DecodeError> {
        let to = self.to.ok_or(DecodeError::Missing("reply.to"))?;
        let answer = self.answer.ok_or(DecodeError::Unknown("the answer"))?;
        Ok((Round(self.round), to.into(), answer.try_into()?))
    }
}

impl From<Resignation> for wire::Resignation {
    fn from(resignation: Resignation) -> Self {
        Self { leader: Some((&resignation.leader).into()), term: resignation.term.0 }
    }
}

impl TryFrom<wire::Resignation> for Resignation {
    type Error = DecodeError;
    fn try_from(resignation: wire::Resignation) -> Result<Self, DecodeError> {
        let leader = resignation.leader.ok_or(DecodeError::Missing("resignation.leader"))?.try_into()?;
        Ok(Self { leader, term: Term(resignation.term) })
    }
}

impl From<Answer> for wire::reply::Answer {
    fn from(answer: Answer) -> Self {
        match answer {
            Answer::Yes => Self::Yes(shared::Nothing {}),
            Answer::No(No::Term) => Self::Term(shared::Nothing {}),
            Answer::No(No::HearsLeader(leader)) => Self::HearsLeader(leader.as_str().to_owned()),
            Answer::No(No::Promised { left }) => Self::PromisedNanos(left.as_nanos()),
            Answer::No(No::JustStarted { left }) => Self::JustStartedNanos(left.as_nanos()),
            Answer::No(No::DiskLost) => Self::DiskLost(shared::Nothing {}),
        }
    }
}

impl TryFrom<wire::reply::Answer> for Answer {
    type Error = DecodeError;
    fn try_from(answer: wire::reply::Answer) -> Result<Self, DecodeError> {
        Ok(match answer {
            wire::reply::Answer::Yes(shared::Nothing {}) => Self::Yes,
            wire::reply::Answer::Term(shared::Nothing {}) => Self::No(No::Term),
            wire::reply::Answer::HearsLeader(leader) => {
                Self::No(No::HearsLeader(parse_node(&leader, "answer.hears_leader")?))
            }
            wire::reply::Answer::PromisedNanos(left) => {
                Self::No(No::Promised { left: Duration::from_nanos(left) })
            }
            wire::reply::Answer::JustStartedNanos(left) => {
                Self::No(No::JustStarted { left: Duration::from_nanos(left) })
            }
            wire::reply::Answer::DiskLost(shared::Nothing {}) => Self::No(No::DiskLost),
        })
    }
}
