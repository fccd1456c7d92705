//! Primacy's own messages as bytes, and back.
//!
//! A frame is a length (four bytes, the highest first) and an [`Envelope`](wire::Envelope) in the encoding of
//! Protocol Buffers. The tags are written by hand and never change their meaning, so that versions can be
//! mixed: unknown fields are skipped, and an unknown kind of message is told apart from a broken one.
//! What comes out of [`decode`] is a valid value of the core's types; everything else is a [`DecodeError`].

pub(crate) mod spec;

use primacy_core::election::quorum::{Answer, Body, Leave, Message, Refusal as No, Round, Safety};
use primacy_core::{Duration, Identity, Incarnation, NodeId, Term};
use prost::Message as _;

use crate::handshake::{DiskId, Hello, RefusalKind, Role, TlsProblem, Voters};

/// The longest frame without its length. The longest that is sent is a `Hello` with a thousand voters.
pub(crate) const FRAME_LENGTH_MAX: usize = 64 * 1024;

/// How many bytes the length of a frame takes.
const PREFIX_LENGTH: usize = 4;

/// The longest text of a refusal, in characters; a longer one is cut, because it will stand in a log.
pub(crate) const REFUSAL_TEXT_MAX: usize = 2048;

/// Everything that is said over a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Frame {
    /// The first word of the one that dials.
    Hello(Hello),
    /// The answer: come in.
    Welcome(Hello),
    /// The answer: go away.
    Refused(Refused),
    /// The answer to the welcome; from here on the connection counts.
    Ready,
    /// A word of the election.
    Message(Message),
    /// A guardian's testimony: this process life has ended, and all its work with it.
    Died(Identity),
    /// The receipt for it.
    DiedHeard(Identity),
    /// The first word over a connection to a node that was readmitted after it had lost its disk: the highest term that
    /// the speaker knows of.
    Readmitted(Term),
    /// The first word of a node that has lost its disk, and has not heard [`Frame::Readmitted`] from all others.
    Lost,
}

/// A refusal as it crosses the network: what to count it as, and what to show.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Refused {
    pub(crate) kind: RefusalKind,
    pub(crate) text: String,
}

impl Refused {
    pub(crate) fn new(kind: RefusalKind, text: &str) -> Self {
        Self { kind, text: shown(text) }
    }
}

/// As much of a text as is fit to be shown. Strangers have a part in it, and it ends up in a log and on a terminal: it must
/// not fill the one, nor move the cursor of the other.
pub(crate) fn shown(text: &str) -> String {
    let harmless = |c: char| if c.is_control() { char::REPLACEMENT_CHARACTER } else { c };
    text.chars().take(REFUSAL_TEXT_MAX).map(harmless).collect()
}

/// Why bytes are no frame.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum DecodeError {
    #[error("the bytes are no Protocol Buffers message: {0}")]
    Malformed(#[from] prost::DecodeError),
    #[error("the field {0} is missing")]
    Missing(&'static str),
    #[error("the field {0} has a value that is not allowed")]
    Invalid(&'static str),
    /// It may be well-formed for a later version; so it is counted apart.
    #[error("{0} is of a kind that this version does not know")]
    Unknown(&'static str),
}

/// A frame claims, or would have, more than [`FRAME_LENGTH_MAX`] bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a frame has at most {FRAME_LENGTH_MAX} bytes; this one has {0}")]
pub(crate) struct TooLong(pub(crate) usize);

/// The frame as bytes, its length in front.
pub(crate) fn encode(election: &str, frame: &Frame) -> Result<Vec<u8>, TooLong> {
    let envelope = wire::Envelope { election: election.to_owned(), frame: Some(frame.into()) };
    let length = envelope.encoded_len();
    let prefix = match u32::try_from(length) {
        Ok(prefix) if length <= FRAME_LENGTH_MAX => prefix,
        Ok(_) | Err(_) => return Err(TooLong(length)),
    };
    let mut bytes = Vec::with_capacity(PREFIX_LENGTH + length);
    bytes.extend_from_slice(&prefix.to_be_bytes());
    envelope.encode(&mut bytes).expect("a vector grows as needed");
    Ok(bytes)
}

/// The election and the frame in these bytes, which come without their length.
pub(crate) fn decode(bytes: &[u8]) -> Result<(String, Frame), DecodeError> {
    let wire::Envelope { election, frame } = wire::Envelope::decode(bytes)?;
    let frame = match frame.ok_or(DecodeError::Unknown("the frame"))? {
        wire::Frame::Hello(hello) => Frame::Hello(hello.parse(&election)?),
        wire::Frame::Welcome(hello) => Frame::Welcome(hello.parse(&election)?),
        wire::Frame::Refused(refused) => Frame::Refused(refused.into()),
        wire::Frame::Ready(wire::Nothing {}) => Frame::Ready,
        wire::Frame::Message(message) => Frame::Message(message.try_into()?),
        wire::Frame::Died(identity) => Frame::Died(identity.try_into()?),
        wire::Frame::DiedHeard(identity) => Frame::DiedHeard(identity.try_into()?),
        wire::Frame::Readmitted(term) => Frame::Readmitted(Term(term)),
        wire::Frame::Lost(wire::Nothing {}) => Frame::Lost,
    };
    Ok((election, frame))
}

/// Cuts a stream of bytes into frames.
#[derive(Debug, Default)]
pub(crate) struct Deframer {
    bytes: Vec<u8>,
    /// How many of the bytes have been handed out as frames.
    taken: usize,
}

impl Deframer {
    /// Takes what was read. Memory grows with what came, never with what a length claims.
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        self.bytes.drain(..self.taken);
        self.taken = 0;
        self.bytes.extend_from_slice(bytes);
    }

    /// The next frame, once all of it is there. After an error the stream cannot be read any further, because
    /// nobody knows where the next frame begins.
    pub(crate) fn next_frame(&mut self) -> Result<Option<&[u8]>, TooLong> {
        let rest = &self.bytes[self.taken..];
        let Some((prefix, body)) = rest.split_first_chunk::<PREFIX_LENGTH>() else { return Ok(None) };
        let length = usize::try_from(u32::from_be_bytes(*prefix)).unwrap_or(usize::MAX);
        if length > FRAME_LENGTH_MAX {
            return Err(TooLong(length));
        }
        let Some(frame) = body.get(..length) else { return Ok(None) };
        self.taken += PREFIX_LENGTH + length;
        Ok(Some(frame))
    }
}

/// The messages as Protocol Buffers has them. A tag that was once used is never given another meaning.
mod wire {
    #[derive(Clone, PartialEq, prost::Message)]
    pub(super) struct Envelope {
        #[prost(string, tag = "1")]
        pub(super) election: String,
        #[prost(oneof = "Frame", tags = "2, 3, 4, 5, 6, 7, 8, 9, 10")]
        pub(super) frame: Option<Frame>,
    }

    #[derive(Clone, PartialEq, prost::Oneof)]
    pub(super) enum Frame {
        #[prost(message, tag = "2")]
        Hello(Hello),
        #[prost(message, tag = "3")]
        Welcome(Hello),
        #[prost(message, tag = "4")]
        Refused(Refused),
        #[prost(message, tag = "5")]
        Ready(Nothing),
        #[prost(message, tag = "6")]
        Message(Message),
        #[prost(message, tag = "7")]
        Died(Identity),
        #[prost(message, tag = "8")]
        DiedHeard(Identity),
        #[prost(uint64, tag = "9")]
        Readmitted(u64),
        #[prost(message, tag = "10")]
        Lost(Nothing),
    }

    #[derive(Clone, Copy, PartialEq, prost::Message)]
    pub(super) struct Nothing {}

    #[derive(Clone, PartialEq, prost::Message)]
    pub(super) struct Identity {
        #[prost(string, tag = "1")]
        pub(super) node: String,
        #[prost(message, optional, tag = "2")]
        pub(super) incarnation: Option<Incarnation>,
    }

    #[derive(Clone, Copy, PartialEq, prost::Message)]
    pub(super) struct Incarnation {
        #[prost(uint64, tag = "1")]
        pub(super) count: u64,
        #[prost(fixed64, tag = "2")]
        pub(super) nonce: u64,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub(super) struct Hello {
        #[prost(uint32, tag = "1")]
        pub(super) protocol_version: u32,
        #[prost(string, tag = "2")]
        pub(super) cluster: String,
        #[prost(message, optional, tag = "3")]
        pub(super) identity: Option<Identity>,
        // 1: the node, 2: its guardian. No meaning is zero, so that a missing field is noticed.
        #[prost(uint32, tag = "4")]
        pub(super) role: u32,
        #[prost(bytes = "vec", tag = "5")]
        pub(super) disk: Vec<u8>,
        #[prost(fixed64, tag = "6")]
        pub(super) voters_hash: u64,
        #[prost(string, repeated, tag = "7")]
        pub(super) voters: Vec<String>,
        // 1: lease, 2: fenced.
        #[prost(uint32, tag = "8")]
        pub(super) safety: u32,
        #[prost(uint32, tag = "9")]
        pub(super) priority: u32,
        #[prost(bool, tag = "10")]
        pub(super) witness: bool,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub(super) struct Refused {
        #[prost(uint32, tag = "1")]
        pub(super) kind: u32,
        #[prost(string, tag = "2")]
        pub(super) text: String,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub(super) struct Message {
        #[prost(message, optional, tag = "1")]
        pub(super) incarnation: Option<Incarnation>,
        #[prost(uint64, tag = "2")]
        pub(super) term: u64,
        #[prost(oneof = "Body", tags = "3, 4, 5, 6, 7, 8, 9")]
        pub(super) body: Option<Body>,
    }

    #[derive(Clone, PartialEq, prost::Oneof)]
    pub(super) enum Body {
        #[prost(message, tag = "3")]
        PreVote(Question),
        #[prost(message, tag = "4")]
        PreVoteReply(Reply),
        #[prost(message, tag = "5")]
        Vote(Question),
        #[prost(message, tag = "6")]
        VoteReply(Reply),
        #[prost(message, tag = "7")]
        Heartbeat(Heartbeat),
        #[prost(message, tag = "8")]
        HeartbeatReply(HeartbeatReply),
        #[prost(message, tag = "9")]
        Resigned(Resigned),
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub(super) struct Question {
        #[prost(uint64, tag = "1")]
        pub(super) round: u64,
        #[prost(message, optional, tag = "2")]
        pub(super) leave: Option<Leave>,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub(super) struct Leave {
        #[prost(message, optional, tag = "1")]
        pub(super) leader: Option<Identity>,
        #[prost(uint64, tag = "2")]
        pub(super) term: u64,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub(super) struct Reply {
        #[prost(uint64, tag = "1")]
        pub(super) round: u64,
        #[prost(message, optional, tag = "2")]
        pub(super) to: Option<Incarnation>,
        #[prost(oneof = "Answer", tags = "3, 4, 5, 6, 7, 8")]
        pub(super) answer: Option<Answer>,
    }

    #[derive(Clone, PartialEq, prost::Oneof)]
    pub(super) enum Answer {
        #[prost(message, tag = "3")]
        Yes(Nothing),
        #[prost(message, tag = "4")]
        Term(Nothing),
        #[prost(string, tag = "5")]
        HearsLeader(String),
        #[prost(uint64, tag = "6")]
        PromisedNanos(u64),
        #[prost(uint64, tag = "7")]
        JustStartedNanos(u64),
        #[prost(message, tag = "8")]
        Forgotten(Nothing),
    }

    #[derive(Clone, Copy, PartialEq, prost::Message)]
    pub(super) struct Heartbeat {
        #[prost(uint64, tag = "1")]
        pub(super) round: u64,
    }

    #[derive(Clone, Copy, PartialEq, prost::Message)]
    pub(super) struct HeartbeatReply {
        #[prost(uint64, tag = "1")]
        pub(super) round: u64,
        #[prost(message, optional, tag = "2")]
        pub(super) to: Option<Incarnation>,
        #[prost(uint64, tag = "3")]
        pub(super) promise_nanos: u64,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub(super) struct Resigned {
        #[prost(string, optional, tag = "1")]
        pub(super) successor: Option<String>,
    }
}

impl From<&Frame> for wire::Frame {
    fn from(frame: &Frame) -> Self {
        match frame {
            Frame::Hello(hello) => Self::Hello(hello.into()),
            Frame::Welcome(hello) => Self::Welcome(hello.into()),
            Frame::Refused(refused) => Self::Refused(refused.into()),
            Frame::Ready => Self::Ready(wire::Nothing {}),
            Frame::Message(message) => Self::Message(message.into()),
            Frame::Died(identity) => Self::Died(identity.into()),
            Frame::DiedHeard(identity) => Self::DiedHeard(identity.into()),
            Frame::Readmitted(term) => Self::Readmitted(term.0),
            Frame::Lost => Self::Lost(wire::Nothing {}),
        }
    }
}

fn parse_node(name: &str, field: &'static str) -> Result<NodeId, DecodeError> {
    NodeId::new(name).map_err(|_| DecodeError::Invalid(field))
}

impl From<&Identity> for wire::Identity {
    fn from(identity: &Identity) -> Self {
        Self { node: identity.node.as_str().to_owned(), incarnation: Some(identity.incarnation.into()) }
    }
}

impl TryFrom<wire::Identity> for Identity {
    type Error = DecodeError;
    fn try_from(identity: wire::Identity) -> Result<Self, DecodeError> {
        let node = parse_node(&identity.node, "identity.node")?;
        let incarnation = identity.incarnation.ok_or(DecodeError::Missing("identity.incarnation"))?;
        Ok(Self { node, incarnation: incarnation.into() })
    }
}

impl From<Incarnation> for wire::Incarnation {
    fn from(Incarnation { count, nonce }: Incarnation) -> Self {
        Self { count, nonce }
    }
}

impl From<wire::Incarnation> for Incarnation {
    fn from(wire::Incarnation { count, nonce }: wire::Incarnation) -> Self {
        Self { count, nonce }
    }
}

const ROLE_NODE: u32 = 1;
const ROLE_GUARDIAN: u32 = 2;
const SAFETY_LEASE: u32 = 1;
const SAFETY_FENCED: u32 = 2;

impl From<&Hello> for wire::Hello {
    fn from(hello: &Hello) -> Self {
        Self {
            protocol_version: hello.protocol_version,
            cluster: hello.cluster.clone(),
            identity: Some((&hello.identity).into()),
            role: match hello.role {
                Role::Node => ROLE_NODE,
                Role::GuardianOf => ROLE_GUARDIAN,
            },
            disk: hello.disk.0.to_vec(),
            voters_hash: hello.voters.hash(),
            voters: hello.voters.iter().map(|voter| voter.as_str().to_owned()).collect(),
            safety: match hello.safety {
                Safety::Lease => SAFETY_LEASE,
                Safety::Fenced => SAFETY_FENCED,
            },
            priority: hello.priority,
            witness: hello.witness,
        }
    }
}

impl wire::Hello {
    /// The election stands in the envelope, because every frame names it there.
    fn parse(self, election: &str) -> Result<Hello, DecodeError> {
        let voters = self.voters.iter().map(|name| parse_node(name, "hello.voters"));
        let voters: Voters = voters.collect::<Result<Vec<NodeId>, DecodeError>>()?.into_iter().collect();
        if voters.hash() != self.voters_hash {
            return Err(DecodeError::Invalid("hello.voters_hash"));
        }
        Ok(Hello {
            protocol_version: self.protocol_version,
            cluster: self.cluster,
            election: election.to_owned(),
            identity: self.identity.ok_or(DecodeError::Missing("hello.identity"))?.try_into()?,
            role: match self.role {
                ROLE_NODE => Role::Node,
                ROLE_GUARDIAN => Role::GuardianOf,
                _ => return Err(DecodeError::Invalid("hello.role")),
            },
            disk: DiskId(self.disk.try_into().map_err(|_| DecodeError::Invalid("hello.disk"))?),
            voters,
            safety: match self.safety {
                SAFETY_LEASE => Safety::Lease,
                SAFETY_FENCED => Safety::Fenced,
                _ => return Err(DecodeError::Invalid("hello.safety")),
            },
            priority: self.priority,
            witness: self.witness,
        })
    }
}

/// The numbers of the refusals on the wire; zero is [`RefusalKind::Unknown`].
const REFUSALS: [(RefusalKind, u32); 12] = [
    (RefusalKind::ProtocolVersion, 1),
    (RefusalKind::Cluster, 2),
    (RefusalKind::Election, 3),
    (RefusalKind::MyOwnName, 4),
    (RefusalKind::OtherNode, 5),
    (RefusalKind::Voters, 6),
    (RefusalKind::NotAVoter, 7),
    (RefusalKind::Safety, 8),
    (RefusalKind::Disk, 9),
    // What else TLS finds wrong is told by TLS.
    (RefusalKind::Tls(TlsProblem::Cleartext), 10),
    (RefusalKind::Tls(TlsProblem::NotCleartext), 11),
    (RefusalKind::Tls(TlsProblem::OtherName), 12),
];

impl From<&Refused> for wire::Refused {
    fn from(refused: &Refused) -> Self {
        let number = REFUSALS.iter().find(|(kind, _)| *kind == refused.kind).map_or(0, |(_, number)| *number);
        Self { kind: number, text: shown(&refused.text) }
    }
}

impl From<wire::Refused> for Refused {
    fn from(refused: wire::Refused) -> Self {
        let kind = REFUSALS.iter().find(|(_, number)| *number == refused.kind);
        Self::new(kind.map_or(RefusalKind::Unknown, |(kind, _)| *kind), &refused.text)
    }
}

impl From<&Message> for wire::Message {
    fn from(message: &Message) -> Self {
        let question = |round: Round, leave: Option<Leave>| wire::Question {
            round: round.0,
            leave: leave.map(Into::into),
        };
        let reply = |round: Round, to: Incarnation, answer: Answer| wire::Reply {
            round: round.0,
            to: Some(to.into()),
            answer: Some(answer.into()),
        };
        let body = match message.body {
            Body::PreVote { round, leave } => wire::Body::PreVote(question(round, leave)),
            Body::PreVoteReply { round, to, answer } => wire::Body::PreVoteReply(reply(round, to, answer)),
            Body::Vote { round, leave } => wire::Body::Vote(question(round, leave)),
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

impl TryFrom<wire::Message> for Message {
    type Error = DecodeError;
    fn try_from(message: wire::Message) -> Result<Self, DecodeError> {
        let incarnation = message.incarnation.ok_or(DecodeError::Missing("message.incarnation"))?;
        let body = match message.body.ok_or(DecodeError::Unknown("the message"))? {
            wire::Body::PreVote(question) => {
                let (round, leave) = question.parse()?;
                Body::PreVote { round, leave }
            }
            wire::Body::PreVoteReply(reply) => {
                let (round, to, answer) = reply.parse()?;
                Body::PreVoteReply { round, to, answer }
            }
            wire::Body::Vote(question) => {
                let (round, leave) = question.parse()?;
                Body::Vote { round, leave }
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

impl wire::Question {
    fn parse(self) -> Result<(Round, Option<Leave>), DecodeError> {
        Ok((Round(self.round), self.leave.map(TryInto::try_into).transpose()?))
    }
}

impl wire::Reply {
    fn parse(self) -> Result<(Round, Incarnation, Answer), DecodeError> {
        let to = self.to.ok_or(DecodeError::Missing("reply.to"))?;
        let answer = self.answer.ok_or(DecodeError::Unknown("the answer"))?;
        Ok((Round(self.round), to.into(), answer.try_into()?))
    }
}

impl From<Leave> for wire::Leave {
    fn from(leave: Leave) -> Self {
        Self { leader: Some((&leave.leader).into()), term: leave.term.0 }
    }
}

impl TryFrom<wire::Leave> for Leave {
    type Error = DecodeError;
    fn try_from(leave: wire::Leave) -> Result<Self, DecodeError> {
        let leader = leave.leader.ok_or(DecodeError::Missing("leave.leader"))?.try_into()?;
        Ok(Self { leader, term: Term(leave.term) })
    }
}

impl From<Answer> for wire::Answer {
    fn from(answer: Answer) -> Self {
        match answer {
            Answer::Yes => Self::Yes(wire::Nothing {}),
            Answer::No(No::Term) => Self::Term(wire::Nothing {}),
            Answer::No(No::HearsLeader(leader)) => Self::HearsLeader(leader.as_str().to_owned()),
            Answer::No(No::Promised { left }) => Self::PromisedNanos(left.as_nanos()),
            Answer::No(No::JustStarted { left }) => Self::JustStartedNanos(left.as_nanos()),
            Answer::No(No::Forgotten) => Self::Forgotten(wire::Nothing {}),
        }
    }
}

impl TryFrom<wire::Answer> for Answer {
    type Error = DecodeError;
    fn try_from(answer: wire::Answer) -> Result<Self, DecodeError> {
        Ok(match answer {
            wire::Answer::Yes(wire::Nothing {}) => Self::Yes,
            wire::Answer::Term(wire::Nothing {}) => Self::No(No::Term),
            wire::Answer::HearsLeader(leader) => {
                Self::No(No::HearsLeader(parse_node(&leader, "answer.hears_leader")?))
            }
            wire::Answer::PromisedNanos(left) => Self::No(No::Promised { left: Duration::from_nanos(left) }),
            wire::Answer::JustStartedNanos(left) => {
                Self::No(No::JustStarted { left: Duration::from_nanos(left) })
            }
            wire::Answer::Forgotten(wire::Nothing {}) => Self::No(No::Forgotten),
        })
    }
}

#[cfg(test)]
mod tests;
