//! The encoding of Primacy's messages.
//!
//! `proto/peers.proto` specifies the messages, and `wire.rs` is generated from it. [`decode`] returns valid values of the
//! core's types; all other bytes are a [`DecodeError`].

mod bully;
mod metadata;
mod omega;
mod quorum;
mod ranked;
mod ring;
mod seniority;
mod wire;

use primacy_core::election::quorum::Safety;
use primacy_core::election::{self, Algorithm};
use primacy_core::hard_state::Durability;
use primacy_core::membership::Policy;
use primacy_core::{Identity, Incarnation, Leader, LeaderSequence, NodeId, Protocol, Term};
use primacy_kv::machine;
use primacy_stores::StoreId;
use prost::Message as _;

pub(crate) use self::seniority::length_of_view;
use self::wire::envelope;
use self::wire::hello::{self, SplitBrain};
use self::wire::refused::Kind;
use crate::connections::FRAME_LENGTH_MAX;
use crate::handshake::{Confirmation, DiskId, ElectionKind, Hello, RefusalKind, Role, TlsProblem, Voters};
use crate::versions::{SPOKEN, Versions};

/// The longest frame between nodes with metadata that have completed the handshake: a record of the longest request,
/// and its envelope.
pub(crate) const METADATA_FRAME_LENGTH_MAX: usize = 4 * 1024 * 1024;

/// The length of a frame's length prefix.
const PREFIX_LENGTH: usize = 4;

/// The longest text of a refusal, in characters; a longer one is truncated, because it will be logged.
pub(crate) const REFUSAL_TEXT_MAX: usize = 2048;

/// A frame on a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Frame {
    /// The first frame of the dialling side.
    Hello(Hello),
    /// The acceptor's answer: the hello is accepted.
    Welcome(Hello),
    /// The refusal of a hello or of its answer.
    Refused(Refused),
    /// The dialler's answer to `Welcome`; from here on the connection counts.
    Ready,
    /// A message of the election.
    Message(Word),
    /// A guardian's death notice: this incarnation and all its work are gone.
    Died(Identity),
    /// The confirmation of a death notice.
    DiedHeard(Identity),
    /// The first message to a node that was readmitted after the loss of its disk: the highest term that the sender
    /// knows.
    Readmitted(Term),
    /// The first message of a node that has lost its disk, and has not received [`Frame::Readmitted`] from all others.
    Lost,
}

/// Passes the elections among peers to another macro, each with its way to a leader, its variant in [`Word`] and in the frame on
/// the wire, its machine in the core, and the module here that encodes its messages. The only list of them in this crate.
macro_rules! peer_elections {
    ($then:ident) => {
        $then! {
            majority Quorum(quorum::Quorum), quorum;
            majority Ranked(ranked::Ranked), ranked;
            advisory Bully(bully::Bully), bully;
            advisory Ring(ring::Ring), ring;
            advisory RingBidirectional(ring_bidirectional::RingBidirectional), ring;
            cluster Seniority(seniority::Seniority), seniority;
            advisory Omega(omega::Omega), omega;
        }
    };
}
pub(crate) use peer_elections;

macro_rules! words {
    ($($way:ident $variant:ident($($machine:tt)*), $encoding:ident;)*) => {
        /// A message between the nodes of an election, of any kind.
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub enum Word {
            $(
                #[doc = concat!("The election [`", stringify!($variant), "`](election::Algorithm::", stringify!($variant), ").")]
                $variant(<election::$($machine)* as Protocol>::Message),
            )*
            /// The election `quorum` with metadata.
            Metadata(Box<machine::Message>),
        }

        impl Word {
            /// The sender's incarnation, as the message names it; `None` if nodes do not send such a message.
            pub(crate) fn incarnation(&self) -> Option<Incarnation> {
                match self {
                    $(Self::$variant(message) => Some(message.incarnation),)*
                    Self::Metadata(message) => metadata::incarnation(message),
                }
            }

            /// The highest term in the message.
            pub(crate) fn highest_term(&self) -> Term {
                match self {
                    $(Self::$variant(message) => $encoding::highest_term(message),)*
                    Self::Metadata(message) => metadata::highest_term(message),
                }
            }
        }

        impl From<&Word> for envelope::Frame {
            fn from(word: &Word) -> Self {
                match word {
                    $(Word::$variant(message) => Self::$variant(message.into()),)*
                    Word::Metadata(message) => Self::Metadata((&**message).into()),
                }
            }
        }

        impl TryFrom<envelope::Frame> for Word {
            type Error = DecodeError;
            fn try_from(frame: envelope::Frame) -> Result<Self, DecodeError> {
                Ok(match frame {
                    $(envelope::Frame::$variant(message) => Self::$variant(message.try_into()?),)*
                    envelope::Frame::Metadata(message) => Self::Metadata(Box::new(message.try_into()?)),
                    _ => return Err(DecodeError::Invalid("the message")),
                })
            }
        }

        const ALGORITHMS: &[(Algorithm, hello::Algorithm)] =
            &[$((Algorithm::$variant, hello::Algorithm::$variant),)*];

        $(
            impl Spoken for election::$($machine)* {
                fn say(message: Self::Message) -> Word {
                    Word::$variant(message)
                }

                fn hear(word: Word) -> Option<Self::Message> {
                    if let Word::$variant(message) = word { Some(message) } else { None }
                }
            }
        )*
    };
}

peer_elections!(words);

/// A machine whose messages are a [`Word`].
pub(crate) trait Spoken: Protocol {
    /// Wraps a message for the other nodes.
    fn say(message: Self::Message) -> Word;
    /// Unwraps a message; `None` if it belongs to another election.
    fn hear(word: Word) -> Option<Self::Message>;
}

/// A refusal on the wire: its kind and its text.
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

/// Truncates and escapes a text for display. Unauthenticated clients may have written it, and it is logged and shown on
/// terminals: it must neither fill the log nor move the cursor.
pub(crate) fn shown(text: &str) -> String {
    let harmless = |c: char| if c.is_control() { char::REPLACEMENT_CHARACTER } else { c };
    text.chars().take(REFUSAL_TEXT_MAX).map(harmless).collect()
}

/// The reason why bytes are not a frame.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum DecodeError {
    #[error("the bytes are no Protocol Buffers message: {0}")]
    Malformed(#[from] prost::DecodeError),
    #[error("the field {0} is missing")]
    Missing(&'static str),
    #[error("the field {0} has a value that is not allowed")]
    Invalid(&'static str),
    /// It may be valid in a later version; counted separately.
    #[error("{0} is of a kind that this version does not know")]
    Unknown(&'static str),
    /// A hello whose sender speaks other versions only; nothing else in it can be read.
    #[error("{node} speaks {versions} of the protocol, and this node {SPOKEN}")]
    OtherVersion { node: NodeId, versions: Versions },
}

/// A frame is longer than permitted, by its length prefix or when encoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a frame has fewer bytes than {0}")]
pub(crate) struct TooLong(pub(crate) usize);

/// Encodes a frame without its length prefix, and without a limit of the length.
pub(crate) fn encode_bare(election: &str, frame: &Frame) -> Vec<u8> {
    wire::Envelope { election: election.to_owned(), frame: Some(frame.into()) }.encode_to_vec()
}

/// Encodes a frame with its length prefix.
pub(crate) fn encode(election: &str, frame: &Frame) -> Result<Vec<u8>, TooLong> {
    let envelope = wire::Envelope { election: election.to_owned(), frame: Some(frame.into()) };
    let length = envelope.encoded_len();
    let length_max = match frame {
        Frame::Message(Word::Metadata(_)) => METADATA_FRAME_LENGTH_MAX,
        Frame::Message(_)
        | Frame::Hello(_)
        | Frame::Welcome(_)
        | Frame::Refused(_)
        | Frame::Ready
        | Frame::Died(_)
        | Frame::DiedHeard(_)
        | Frame::Readmitted(_)
        | Frame::Lost => FRAME_LENGTH_MAX,
    };
    let prefix = match u32::try_from(length) {
        Ok(prefix) if length <= length_max => prefix,
        Ok(_) | Err(_) => return Err(TooLong(length)),
    };
    let mut bytes = Vec::with_capacity(PREFIX_LENGTH + length);
    bytes.extend_from_slice(&prefix.to_be_bytes());
    envelope.encode(&mut bytes).expect("a vector grows as needed");
    Ok(bytes)
}

/// Decodes the election and the frame in these bytes, without the length prefix.
pub(crate) fn decode(bytes: &[u8]) -> Result<(String, Frame), DecodeError> {
    let wire::Envelope { election, frame } = wire::Envelope::decode(bytes)?;
    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "every other frame has a message of an election, and `Word` lists those"
    )]
    let frame = match frame.ok_or(DecodeError::Unknown("the frame"))? {
        envelope::Frame::Hello(hello) => Frame::Hello(hello.parse(&election)?),
        envelope::Frame::Welcome(hello) => Frame::Welcome(hello.parse(&election)?),
        envelope::Frame::Refused(refused) => Frame::Refused(refused.into()),
        envelope::Frame::Ready(wire::Nothing {}) => Frame::Ready,
        envelope::Frame::Died(identity) => Frame::Died(identity.try_into()?),
        envelope::Frame::DiedHeard(identity) => Frame::DiedHeard(identity.try_into()?),
        envelope::Frame::Readmitted(term) => Frame::Readmitted(Term(term)),
        envelope::Frame::Lost(wire::Nothing {}) => Frame::Lost,
        message => Frame::Message(message.try_into()?),
    };
    Ok((election, frame))
}

/// Splits a stream of bytes into frames.
#[derive(Debug)]
pub(crate) struct Deframer {
    length_max: usize,
    bytes: Vec<u8>,
    /// The number of bytes at the front that were returned as frames.
    taken: usize,
}

impl Default for Deframer {
    fn default() -> Self {
        Self { length_max: FRAME_LENGTH_MAX, bytes: Vec::new(), taken: 0 }
    }
}

impl Deframer {
    /// Allows frames as long as those of metadata from now on.
    pub(crate) fn allow_metadata(&mut self) {
        self.length_max = METADATA_FRAME_LENGTH_MAX;
    }

    /// Adds received bytes. Memory grows with these, never with a claimed length.
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        self.bytes.drain(..self.taken);
        self.taken = 0;
        self.bytes.extend_from_slice(bytes);
    }

    /// The next frame, once it is complete. After an error nothing more can be read, because the beginning of the next
    /// frame is unknown.
    pub(crate) fn next_frame(&mut self) -> Result<Option<&[u8]>, TooLong> {
        let rest = &self.bytes[self.taken..];
        let Some((prefix, body)) = rest.split_first_chunk::<PREFIX_LENGTH>() else { return Ok(None) };
        let length = usize::try_from(u32::from_be_bytes(*prefix)).unwrap_or(usize::MAX);
        if length > self.length_max {
            return Err(TooLong(length));
        }
        let Some(frame) = body.get(..length) else { return Ok(None) };
        self.taken += PREFIX_LENGTH + length;
        Ok(Some(frame))
    }
}

impl From<&Frame> for envelope::Frame {
    fn from(frame: &Frame) -> Self {
        match frame {
            Frame::Hello(hello) => Self::Hello(hello.into()),
            Frame::Welcome(hello) => Self::Welcome(hello.into()),
            Frame::Refused(refused) => Self::Refused(refused.into()),
            Frame::Ready => Self::Ready(wire::Nothing {}),
            Frame::Message(word) => word.into(),
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

fn parse_disk(bytes: Vec<u8>, field: &'static str) -> Result<DiskId, DecodeError> {
    bytes.try_into().map(DiskId).map_err(|_| DecodeError::Invalid(field))
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

impl From<&Leader> for wire::Leader {
    fn from(leader: &Leader) -> Self {
        Self { identity: Some((&leader.identity).into()), term: leader.term.0 }
    }
}

impl TryFrom<wire::Leader> for Leader {
    type Error = DecodeError;
    fn try_from(leader: wire::Leader) -> Result<Self, DecodeError> {
        let identity = leader.identity.ok_or(DecodeError::Missing("leader.identity"))?.try_into()?;
        Ok(Self { identity, term: Term(leader.term) })
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

impl From<&Hello> for wire::Hello {
    fn from(hello: &Hello) -> Self {
        Self {
            newest_version: hello.versions.highest,
            cluster: hello.cluster.clone(),
            identity: Some((&hello.identity).into()),
            role: number_of(&ROLES, &hello.role),
            disk: hello.disk.0.to_vec(),
            known_disk: hello.known_disk.map(|(node, disk)| hello::KnownDisk {
                node: node.as_str().to_owned(),
                disk: disk.0.to_vec(),
            }),
            voters_hash: hello.voters.hash(),
            voters: hello.voters.iter().map(|voter| voter.as_str().to_owned()).collect(),
            safety: number_of(&SAFETIES, &hello.safety),
            priority: hello.priority,
            witness: hello.witness,
            algorithm: number_of(ALGORITHMS, &hello.kind.algorithm),
            confirmation: number_of(&CONFIRMATIONS, &hello.kind.confirmation),
            split_brain: match hello.split_brain {
                None => SplitBrain::None,
                Some(Policy::KeepMajority) => SplitBrain::KeepMajority,
                Some(Policy::StaticQuorum(_)) => SplitBrain::StaticQuorum,
                Some(Policy::KeepOldest) => SplitBrain::KeepOldest,
                Some(Policy::Lease) => SplitBrain::Lease,
                Some(Policy::Available) => SplitBrain::Available,
            }
            .into(),
            static_quorum: match hello.split_brain {
                // A count that does not fit is above any number of members anyway.
                Some(Policy::StaticQuorum(count)) => u64::try_from(count).unwrap_or(u64::MAX),
                Some(Policy::KeepMajority | Policy::KeepOldest | Policy::Lease | Policy::Available)
                | None => 0,
            },
            store: hello.store.map(|mark| mark.0),
            metadata: number_of(&DURABILITIES, &hello.metadata),
            voters_number: Some(hello.voters_number)
                .filter(|&number| number != LeaderSequence::NONE)
                .map(Into::into),
            oldest_version: Some(hello.versions.lowest).filter(|&lowest| lowest != hello.versions.highest),
        }
    }
}

const ROLES: [(Role, hello::Role); 2] =
    [(Role::Node, hello::Role::Node), (Role::GuardianOf, hello::Role::Guardian)];

const SAFETIES: [(Safety, hello::Safety); 2] =
    [(Safety::Lease, hello::Safety::Lease), (Safety::Fenced, hello::Safety::Fenced)];

const CONFIRMATIONS: [(Option<Confirmation>, hello::Confirmation); 3] = [
    (None, hello::Confirmation::None),
    (Some(Confirmation::Quorum), hello::Confirmation::Quorum),
    (Some(Confirmation::Store), hello::Confirmation::Store),
];

const DURABILITIES: [(Option<Durability>, hello::Durability); 3] = [
    (None, hello::Durability::None),
    (Some(Durability::Fsync), hello::Durability::Fsync),
    (Some(Durability::Memory), hello::Durability::Memory),
];

/// The number of a value on the wire.
fn number_of<T: PartialEq, W: Copy + Into<i32>>(all: &[(T, W)], value: &T) -> i32 {
    all.iter().find(|(known, _)| known == value).map_or(-1, |(_, number)| (*number).into())
}

/// The value with this number on the wire.
fn numbered<T: Copy, W: Copy + Into<i32>>(
    all: &[(T, W)],
    number: i32,
    field: &'static str,
) -> Result<T, DecodeError> {
    let found = all.iter().find(|(_, known)| (*known).into() == number);
    found.map(|(value, _)| *value).ok_or(DecodeError::Invalid(field))
}

impl hello::KnownDisk {
    fn parse(self) -> Result<(NodeId, DiskId), DecodeError> {
        let node = parse_node(&self.node, "hello.known_disk")?;
        Ok((node, parse_disk(self.disk, "hello.known_disk")?))
    }
}

impl wire::Hello {
    /// The election comes from the envelope, as for every frame.
    fn parse(self, election: &str) -> Result<Hello, DecodeError> {
        let highest = self.newest_version;
        let versions = Versions { lowest: self.oldest_version.unwrap_or(highest), highest };
        if versions.lowest > highest {
            return Err(DecodeError::Invalid("hello.oldest_version"));
        }
        let identity: Identity =
            self.identity.clone().ok_or(DecodeError::Missing("hello.identity"))?.try_into()?;
        self.parse_rest(election, versions, identity).map_err(|error| match versions.common(SPOKEN) {
            Some(_) => error,
            None => DecodeError::OtherVersion { node: identity.node, versions },
        })
    }

    /// Parses the fields that other versions may encode differently.
    fn parse_rest(
        self,
        election: &str,
        versions: Versions,
        identity: Identity,
    ) -> Result<Hello, DecodeError> {
        let voters = self.voters.iter().map(|name| parse_node(name, "hello.voters"));
        let voters: Voters = voters.collect::<Result<Vec<NodeId>, DecodeError>>()?.into_iter().collect();
        if voters.hash() != self.voters_hash {
            return Err(DecodeError::Invalid("hello.voters_hash"));
        }
        let metadata = numbered(&DURABILITIES, self.metadata, "hello.metadata")?;
        let voters_number = self.voters_number.map_or(LeaderSequence::NONE, Into::into);
        if metadata.is_none() && voters_number != LeaderSequence::NONE {
            return Err(DecodeError::Invalid("hello.voters_number"));
        }
        Ok(Hello {
            versions,
            cluster: self.cluster,
            election: election.to_owned(),
            identity,
            role: numbered(&ROLES, self.role, "hello.role")?,
            disk: parse_disk(self.disk, "hello.disk")?,
            known_disk: self.known_disk.map(hello::KnownDisk::parse).transpose()?,
            voters,
            voters_number,
            safety: numbered(&SAFETIES, self.safety, "hello.safety")?,
            priority: self.priority,
            witness: self.witness,
            kind: ElectionKind {
                algorithm: numbered(ALGORITHMS, self.algorithm, "hello.algorithm")?,
                confirmation: numbered(&CONFIRMATIONS, self.confirmation, "hello.confirmation")?,
            },
            split_brain: match SplitBrain::try_from(self.split_brain)
                .map_err(|_| DecodeError::Invalid("hello.split_brain"))?
            {
                SplitBrain::None => None,
                SplitBrain::KeepMajority => Some(Policy::KeepMajority),
                SplitBrain::StaticQuorum => {
                    Some(Policy::StaticQuorum(usize::try_from(self.static_quorum).unwrap_or(usize::MAX)))
                }
                SplitBrain::KeepOldest => Some(Policy::KeepOldest),
                SplitBrain::Lease => Some(Policy::Lease),
                SplitBrain::Available => Some(Policy::Available),
            },
            store: self.store.map(StoreId),
            metadata,
        })
    }
}

/// The refusals that have a number on the wire; all others are [`Kind::Unknown`].
const REFUSALS: [(RefusalKind, Kind); 17] = [
    (RefusalKind::ProtocolVersion, Kind::ProtocolVersion),
    (RefusalKind::Cluster, Kind::Cluster),
    (RefusalKind::Election, Kind::Election),
    (RefusalKind::MyOwnName, Kind::MyOwnName),
    (RefusalKind::OtherNode, Kind::OtherNode),
    (RefusalKind::Voters, Kind::Voters),
    (RefusalKind::NotAVoter, Kind::NotAVoter),
    (RefusalKind::Safety, Kind::Safety),
    (RefusalKind::Disk, Kind::Disk),
    // Other TLS problems are reported by TLS alerts.
    (RefusalKind::Tls(TlsProblem::Cleartext), Kind::Cleartext),
    (RefusalKind::Tls(TlsProblem::NotCleartext), Kind::NotCleartext),
    (RefusalKind::Tls(TlsProblem::OtherName), Kind::OtherName),
    (RefusalKind::Algorithm, Kind::Algorithm),
    (RefusalKind::SplitBrain, Kind::SplitBrain),
    (RefusalKind::Store, Kind::Store),
    (RefusalKind::Metadata, Kind::Metadata),
    (RefusalKind::DiskReplaced, Kind::DiskReplaced),
];

impl From<&Refused> for wire::Refused {
    fn from(refused: &Refused) -> Self {
        let number = REFUSALS.iter().find(|(kind, _)| *kind == refused.kind);
        Self { kind: number.map_or(Kind::Unknown, |(_, number)| *number).into(), text: shown(&refused.text) }
    }
}

impl From<wire::Refused> for Refused {
    fn from(refused: wire::Refused) -> Self {
        let kind = numbered(&REFUSALS, refused.kind, "refused.kind").unwrap_or(RefusalKind::Unknown);
        Self::new(kind, &refused.text)
    }
}

#[cfg(test)]
mod tests;
