//! The messages over the control socket. Each is one line of JSON.

use std::collections::BTreeMap;

use primacy::{AdminError, PublishError};

use serde::{Deserialize, Serialize};

use super::node_status::{Leader, Members, NodeStatus};
use super::partitions::{Change, Shown};
use super::state::State;

/// The version of this protocol. A node refuses every other version, and answers with its own.
pub(crate) const VERSION: u32 = 1;

/// A request to a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Request {
    /// See [`VERSION`].
    pub(crate) version: u32,
    /// The verb of the request, with its arguments.
    #[serde(flatten)]
    pub(crate) verb: NodeVerb,
}

/// A request of an operator.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "request", rename_all = "snake_case")]
pub(crate) enum NodeVerb {
    /// Report the node's status, and its knowledge of the others.
    Status,
    /// Report every change of leader that the node learns, beginning with the present leader.
    Watch,
    /// Give up the lead.
    Resign,
    /// Give the lead to this node.
    Transfer { to: String },
    /// Allow the node to lead again.
    Uncordon,
    /// Keep the node from leading.
    Cordon,
    /// Readmit this node, which has lost its disk.
    Readmit { node: String },
    /// Remove this member, which is dead.
    Down { node: String },
    /// Announce this state to the other nodes.
    Publish { state: State },
    /// Report the partitions of all groups, or of this one, as far as the node knows them.
    Partitions { group: Option<String> },
    /// Change the partitions.
    Rearrange {
        #[serde(flatten)]
        change: Change,
    },
    /// Report the list of voters, where nodes replicate metadata.
    Voters,
    /// Make this node a voter, or remove it from the voters if it has no address, as far as that can be done now.
    /// `again` is true if the same operator has sent this request before and waits for its end.
    Revise {
        node: String,
        address: Option<String>,
        #[serde(default)]
        again: bool,
    },
    /// Accept the log as it is as complete, although a part was lost.
    AcceptLoss,
}

/// The names of the requests, for the refusal of any other.
pub(crate) const REQUESTS: &str = "status, watch, resign, transfer, uncordon, cordon, readmit, down, publish, \
     voters, revise, accept_loss, partitions, rearrange";

/// An answer of a node.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Reply {
    /// See [`VERSION`].
    pub(crate) version: u32,
    /// The answer itself.
    #[serde(flatten)]
    pub(crate) answer: Answer,
}

/// An answer of a node.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "answer", rename_all = "snake_case")]
pub(crate) enum Answer {
    /// To `status`: the status.
    Status(Box<NodeStatus>),
    /// To `watch`: the leader now, or that there is none.
    Leader { leader: Option<Leader> },
    /// To `watch`: the members of the cluster now; nothing where the node belongs to none.
    Members { members: Option<Members> },
    /// To `watch`: this number of changes was not read in time, and is not shown.
    Missed { changes: u64 },
    /// To `watch`: a violation was detected.
    Violation { violation: String },
    /// To `resign` and `transfer`: this leadership is being given up.
    Resigning { term: u64 },
    /// To `uncordon` and `cordon`: the new state, and whether it survives a restart.
    Cordoned { cordoned: bool, kept: bool },
    /// To `member readmit`: the peer's new disk, which this node accepts from now on.
    Readmitted { disk: String },
    /// To `member remove --dead`: the member is declared dead, and the coordinator removes it.
    Downed,
    /// To `publish`: the number of the first message with the state.
    Announced { term: u64, number: u64 },
    /// To `partitions`: the node's knowledge of them.
    Partitions(Box<Shown>),
    /// To `rearrange`: the change is accepted.
    Rearranged,
    /// To `voters`: each with its address, and the record that states them.
    Voters { term: u64, number: u64, voters: BTreeMap<String, String> },
    /// To `revise`: the progress of the change.
    Revising { progress: Progress },
    /// To `accept_loss`: whether the log was lost.
    LossAccepted { was_lost: bool },
    /// To any request: it is refused.
    Refused(ControlError),
}

/// The progress of a change of the voters.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "progress", rename_all = "snake_case")]
pub(crate) enum Progress {
    /// The change is done.
    Done,
    /// The change is written, and not yet on a majority.
    Committing,
    /// The node is being brought up to date: term and number of its last record, and of the leader's.
    CatchingUp { held: Option<(u64, u64)>, last: (u64, u64) },
    /// Another change must be done first.
    Waiting,
    /// The leader itself is to be removed: its work ends first, and the next leader removes it.
    Resigning,
    /// There is no leader that could make the change.
    NotLed,
    /// The change is refused.
    Refused { why: String },
}

impl From<primacy::metadata::Progress> for Progress {
    fn from(progress: primacy::metadata::Progress) -> Self {
        use primacy::metadata::{Progress as P, Refusal};
        let pair = |number: primacy::LeaderSequence| (number.term.0, number.counter);
        let refused = |why: String| Self::Refused { why };
        match progress {
            P::Done => Self::Done,
            P::Committing => Self::Committing,
            P::CatchingUp { held, last } => {
                let held = Some(pair(held)).filter(|_| held != primacy::LeaderSequence::NONE);
                Self::CatchingUp { held, last: pair(last) }
            }
            P::Waiting => Self::Waiting,
            P::Resigning => Self::Resigning,
            P::Refused(Refusal::NotLeading) => Self::NotLed,
            P::Refused(Refusal::Last) => {
                refused("it is the last voter; without one nothing could ever be written".to_owned())
            }
            P::Refused(Refusal::TooMany) => {
                refused("there are as many voters already as there may be".to_owned())
            }
            P::Refused(Refusal::NoMajority { heard, voters }) => refused(format!(
                "of the {voters} voters that there would be, only {heard} are heard, and that is no majority: start the others first"
            )),
            P::Refused(Refusal::NoOtherLeader) => refused(
                "it leads, has resigned to be removed, and no other node took the lead: see with `primacy status` why, and give the command again"
                    .to_owned(),
            ),
            P::Refused(Refusal::OtherAddress) => refused(
                "it votes already, and is reached at another address; remove it first, or leave it as it is"
                    .to_owned(),
            ),
        }
    }
}

/// The reason why a request is refused.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ControlError {
    /// The kind of the refusal, for programs.
    pub(crate) kind: Kind,
    /// The explanation, for people: what is wrong, and what to do.
    pub(crate) text: String,
}

/// The kinds of refusals.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Kind {
    /// The request cannot be read, or this version does not know it.
    Malformed,
    /// The request is of another version.
    Version,
    /// The request comes from another user.
    NotPermitted,
    /// Too many clients are connected at a time.
    TooMany,
    /// The node waits for a store that cannot be opened yet.
    Opening,
    /// See [`AdminError::NotLeading`].
    NotLeading,
    /// See [`AdminError::NotAVoter`].
    NotAVoter,
    /// See [`AdminError::NotConnected`].
    NotConnected,
    /// See [`AdminError::ToWitness`].
    ToWitness,
    /// See [`AdminError::ToItself`].
    ToItself,
    /// See [`AdminError::ByRule`].
    ByRule,
    /// See [`AdminError::OverAStore`].
    OverAStore,
    /// See [`AdminError::Witness`].
    Witness,
    /// See [`AdminError::NoMembers`].
    NoMembers,
    /// See [`AdminError::NotAMember`].
    NotAMember,
    /// See [`AdminError::NotRefused`].
    NotRefused,
    /// See [`AdminError::Recovering`].
    Recovering,
    /// See [`AdminError::Disk`].
    Disk,
    /// See [`PublishError::TooLong`].
    TooLong,
    /// See [`PublishError::NotCarried`].
    NotCarried,
    /// The nodes of this election keep no metadata.
    NoMetadata,
    /// The map has not answered in time.
    NoAnswer,
    /// The request cannot be done now.
    NotNow,
    /// See [`AdminError::Closed`].
    Closed,

    /// A kind that only a later version knows; its text explains it.
    #[serde(other)]
    Unknown,
}

impl ControlError {
    /// Creates a refusal with this text.
    pub(crate) fn new(kind: Kind, text: impl Into<String>) -> Self {
        Self { kind, text: text.into() }
    }
}

impl From<AdminError> for ControlError {
    fn from(error: AdminError) -> Self {
        let kind = match &error {
            AdminError::NotLeading { .. } | AdminError::GivingUp { .. } => Kind::NotLeading,
            AdminError::NotAVoter { .. } => Kind::NotAVoter,
            AdminError::NotConnected { .. } => Kind::NotConnected,
            AdminError::ToWitness { .. } => Kind::ToWitness,
            AdminError::ToItself { .. } => Kind::ToItself,
            AdminError::ByRule { .. } => Kind::ByRule,
            AdminError::OverAStore => Kind::OverAStore,
            AdminError::Witness { .. } => Kind::Witness,
            AdminError::NoMembers => Kind::NoMembers,
            AdminError::NotAMember { .. } | AdminError::NotAwaited { .. } | AdminError::Itself { .. } => {
                Kind::NotAMember
            }
            AdminError::NotRefused { .. } => Kind::NotRefused,
            AdminError::Recovering { .. } => Kind::Recovering,
            AdminError::NotKept { .. } | AdminError::Disk(_) => Kind::Disk,
            AdminError::Closed => Kind::Closed,
        };
        Self::new(kind, error.to_string())
    }
}

impl From<PublishError> for ControlError {
    fn from(error: PublishError) -> Self {
        let kind = match &error {
            PublishError::NotLeading { .. } | PublishError::GivingUp { .. } => Kind::NotLeading,
            PublishError::TooLong { .. } => Kind::TooLong,
            PublishError::NotCarried => Kind::NotCarried,
            PublishError::Closed => Kind::Closed,
        };
        Self::new(kind, error.to_string())
    }
}

/// Parses a request. For any bytes, the worst outcome is a refusal.
pub(crate) fn parse(line: &[u8]) -> Result<NodeVerb, ControlError> {
    #[derive(Deserialize)]
    struct Header {
        version: u32,
    }
    let malformed = |why: String| {
        let text = format!("this is no request ({why}); the requests of version {VERSION} are {REQUESTS}");
        ControlError::new(Kind::Malformed, text)
    };
    // The version is parsed first: the format of other versions is unknown.
    let header: Header = serde_json::from_slice(line).map_err(|error| malformed(error.to_string()))?;
    if header.version != VERSION {
        let text = format!(
            "the request is of version {}, this node speaks version {VERSION}; use the same version of primacy",
            header.version
        );
        return Err(ControlError::new(Kind::Version, text));
    }
    serde_json::from_slice::<Request>(line)
        .map(|request| request.verb)
        .map_err(|error| malformed(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_read_as_they_are_written() {
        for verb in [
            NodeVerb::Status,
            NodeVerb::Watch,
            NodeVerb::Resign,
            NodeVerb::Transfer { to: "b".into() },
            NodeVerb::Uncordon,
            NodeVerb::Cordon,
            NodeVerb::Readmit { node: "c".into() },
            NodeVerb::Down { node: "c".into() },
            NodeVerb::Publish { state: State::new(b"\xff") },
            NodeVerb::Publish { state: State::new(b"two\nlines") },
            NodeVerb::AcceptLoss,
            NodeVerb::Partitions { group: None },
            NodeVerb::Partitions { group: Some("g".into()) },
            NodeVerb::Rearrange { change: Change::Create { group: "g".into(), count: 3 } },
            NodeVerb::Rearrange { change: Change::Drop { group: "g".into() } },
            NodeVerb::Rearrange { change: Change::Drain { node: "c".into() } },
            NodeVerb::Rearrange { change: Change::Undrain { node: "c".into() } },
            NodeVerb::Rearrange { change: Change::Move { group: "g".into(), index: 1, node: "c".into() } },
        ] {
            let line = serde_json::to_vec(&Request { version: VERSION, verb: verb.clone() }).unwrap();
            assert_eq!(parse(&line), Ok(verb));
        }
    }

    #[test]
    fn what_is_no_request_is_refused_with_what_would_be_one() {
        let refused = |line: &[u8]| parse(line).unwrap_err();
        for line in [
            &b""[..],
            b"hello",
            b"\xff\xfe\x00",
            b"null",
            b"[]",
            b"{}",
            br#"{"version":-1}"#,
            br#"{"version":1}"#,
            br#"{"version":1,"request":"dance"}"#,
            br#"{"version":1,"request":"transfer"}"#,
            br#"{"version":1,"request":{"status":1}}"#,
            &[b'['; 4_000],
        ] {
            let refused = refused(line);
            assert_eq!(refused.kind, Kind::Malformed, "{line:?}");
            assert!(refused.text.contains("watch"), "{}", refused.text);
        }
        let other = refused(br#"{"version":2,"request":"status"}"#);
        assert_eq!(other.kind, Kind::Version);
        assert!(other.text.contains("version 2") && other.text.contains("version 1"), "{}", other.text);
    }

    #[test]
    fn a_refusal_of_a_later_version_is_still_one() {
        let line = br#"{"version":1,"answer":"refused","kind":"too_hot","text":"wait for the evening"}"#;
        let reply: Reply = serde_json::from_slice(line).unwrap();
        let Answer::Refused(refused) = reply.answer else { panic!("{reply:?}") };
        assert_eq!(refused, ControlError::new(Kind::Unknown, "wait for the evening"));
    }
}
