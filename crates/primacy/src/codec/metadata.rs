//! The encoding of messages between nodes with metadata.

use std::collections::BTreeMap;
use std::sync::Arc;

use primacy_core::{Duration, Incarnation, LeaderSequence, Term};
use primacy_kv::command::SessionId;
use primacy_kv::machine::Message;
use primacy_kv::machine::clients::Keep;
use primacy_kv::replication::log::{Record, RecordBody};
use primacy_kv::replication::message::Body;
use primacy_kv::replication::replica::VOTERS_MAX;
use primacy_kv::replication::voters::Voters;

use super::wire::{self as shared, metadata as wire};
use super::{DecodeError, parse_node, quorum};
use crate::disk;

/// An operator's changes of the voters, and their progress, by numbers on the wire.
mod revising {
    use super::wire::revised::Progress as Wire;
    use super::wire::{Revise, Revised};
    use super::{DecodeError, number, parse_node};
    use primacy_kv::machine::clients::Ticket;
    use primacy_kv::replication::replica::{Progress, Refusal, VoterChange};

    pub(super) fn voter_change_out(ticket: Ticket, change: &VoterChange) -> Revise {
        let (node, address) = match change {
            VoterChange::Add { node, address } => (node, Some(address.as_ref().to_owned())),
            VoterChange::Remove { node } => (node, None),
        };
        Revise { ticket: ticket.0, node: node.as_str().to_owned(), address }
    }

    pub(super) fn voter_change_in(revise: Revise) -> Result<(Ticket, VoterChange), DecodeError> {
        let node = parse_node(&revise.node, "revise.node")?;
        let change = match revise.address {
            Some(address) => VoterChange::Add { node, address: address.into() },
            None => VoterChange::Remove { node },
        };
        Ok((Ticket(revise.ticket), change))
    }

    pub(super) fn progress_out(ticket: Ticket, progress: Progress) -> Revised {
        let mut revised = Revised { ticket: ticket.0, ..Revised::default() };
        let wire = match progress {
            Progress::Done => Wire::Done,
            Progress::Committing => Wire::Committing,
            Progress::CatchingUp { held, last } => {
                (revised.held, revised.last) = (Some(held.into()), Some(last.into()));
                Wire::CatchingUp
            }
            Progress::Waiting => Wire::Waiting,
            Progress::Resigning => Wire::Resigning,
            Progress::Refused(Refusal::NotLeading) => Wire::NotLeading,
            Progress::Refused(Refusal::Last) => Wire::Last,
            Progress::Refused(Refusal::TooMany) => Wire::TooMany,
            Progress::Refused(Refusal::NoMajority { heard, voters }) => {
                revised.heard = u32::try_from(heard).unwrap_or(u32::MAX);
                revised.voters = u32::try_from(voters).unwrap_or(u32::MAX);
                Wire::NoMajority
            }
            Progress::Refused(Refusal::OtherAddress) => Wire::OtherAddress,
            Progress::Refused(Refusal::NoOtherLeader) => Wire::NoOtherLeader,
        };
        Revised { progress: wire.into(), ..revised }
    }

    pub(super) fn progress_in(revised: Revised) -> Result<(Ticket, Progress), DecodeError> {
        let count = |count: u32| usize::try_from(count).unwrap_or(usize::MAX);
        let unknown = DecodeError::Unknown("the progress of a change of voters");
        let progress = match Wire::try_from(revised.progress).map_err(|_| unknown)? {
            Wire::Done => Progress::Done,
            Wire::Committing => Progress::Committing,
            Wire::CatchingUp => Progress::CatchingUp {
                held: number(revised.held, "revised.held")?,
                last: number(revised.last, "revised.last")?,
            },
            Wire::Waiting => Progress::Waiting,
            Wire::Resigning => Progress::Resigning,
            Wire::NotLeading => Progress::Refused(Refusal::NotLeading),
            Wire::Last => Progress::Refused(Refusal::Last),
            Wire::TooMany => Progress::Refused(Refusal::TooMany),
            Wire::NoMajority => {
                let (heard, voters) = (count(revised.heard), count(revised.voters));
                Progress::Refused(Refusal::NoMajority { heard, voters })
            }
            Wire::OtherAddress => Progress::Refused(Refusal::OtherAddress),
            Wire::NoOtherLeader => Progress::Refused(Refusal::NoOtherLeader),
            Wire::Unspecified => return Err(DecodeError::Unknown("the progress of a change of voters")),
        };
        Ok((Ticket(revised.ticket), progress))
    }
}

impl From<&Message> for shared::Metadata {
    fn from(message: &Message) -> Self {
        let (incarnation, word) = match message {
            Message::Election { message, voters } => {
                let (message, voters) =
                    (Some(message.into()), voters.as_ref().map(|voters| (&**voters).into()));
                (None, Some(wire::Word::Election(wire::Election { message, voters })))
            }
            Message::Voters { incarnation, voters } => {
                (Some(*incarnation), Some(wire::Word::Voters((&**voters).into())))
            }
            Message::Log { incarnation, term, body } => (
                Some(*incarnation),
                Some(wire::Word::Log(wire::Log { term: term.0, body: Some(body.into()) })),
            ),
            Message::Propose { incarnation, requests, read, sessions } => {
                let requests = requests.iter().map(|request| request.to_vec()).collect();
                let sessions =
                    sessions.iter().map(|&(session, keep)| session_out(session, keep, None)).collect();
                (
                    Some(*incarnation),
                    Some(wire::Word::Propose(wire::Propose { requests, read: *read, sessions })),
                )
            }
            Message::Told { incarnation, to, read, sessions, unreadable } => {
                let out = |&(session, keep, left)| session_out(session, keep, left);
                let told = wire::Told {
                    to: Some((*to).into()),
                    round: read.map(|(round, _)| round),
                    number: read.map(|(_, number)| number.into()),
                    sessions: sessions.iter().map(out).collect(),
                    unreadable: unreadable.clone(),
                };
                (Some(*incarnation), Some(wire::Word::Told(told)))
            }
            Message::Revise { incarnation, ticket, change } => {
                (Some(*incarnation), Some(wire::Word::Revise(revising::voter_change_out(*ticket, change))))
            }
            Message::Revised { incarnation, to, ticket, progress } => {
                let revised = revising::progress_out(*ticket, *progress);
                let revised = wire::Revised { to: Some((*to).into()), ..revised };
                (Some(*incarnation), Some(wire::Word::Revised(revised)))
            }
            Message::Ask(_) | Message::Answer(_) => (None, None), // They never leave their node.
        };
        Self { incarnation: incarnation.map(Into::into), word }
    }
}

fn session_out(session: SessionId, keep: Keep, left: Option<Duration>) -> wire::Session {
    let keep_alive = match keep {
        Keep::Look => false,
        Keep::Alive => true,
    };
    wire::Session { session: session.get(), keep_alive, left_nanos: left.map(Duration::as_nanos) }
}

impl wire::Session {
    fn parse(self) -> Result<(SessionId, Keep, Option<Duration>), DecodeError> {
        let session = SessionId::new(self.session).ok_or(DecodeError::Invalid("session.session"))?;
        let keep = if self.keep_alive { Keep::Alive } else { Keep::Look };
        Ok((session, keep, self.left_nanos.map(Duration::from_nanos)))
    }
}

impl TryFrom<shared::Metadata> for Message {
    type Error = DecodeError;
    fn try_from(message: shared::Metadata) -> Result<Self, DecodeError> {
        let incarnation = message.incarnation.map(Into::into);
        let named = || incarnation.ok_or(DecodeError::Missing("metadata.incarnation"));
        Ok(match message.word.ok_or(DecodeError::Unknown("the message"))? {
            wire::Word::Election(wire::Election { message, voters }) => Self::Election {
                message: message.ok_or(DecodeError::Missing("election.message"))?.try_into()?,
                voters: voters
                    .map(|voters| Ok::<_, DecodeError>(Arc::new(voters.try_into()?)))
                    .transpose()?,
            },
            wire::Word::Voters(voters) => {
                Self::Voters { incarnation: named()?, voters: Arc::new(voters.try_into()?) }
            }
            wire::Word::Log(wire::Log { term, body }) => Self::Log {
                incarnation: named()?,
                term: Term(term),
                body: body.ok_or(DecodeError::Unknown("the word of the log"))?.try_into()?,
            },
            wire::Word::Propose(wire::Propose { requests, read, sessions }) => {
                let sessions = sessions.into_iter().map(wire::Session::parse);
                let sessions = sessions.map(|it| it.map(|(session, keep, _)| (session, keep)));
                Self::Propose {
                    incarnation: named()?,
                    requests: requests.into_iter().map(Into::into).collect(),
                    read,
                    sessions: sessions.collect::<Result<_, _>>()?,
                }
            }
            wire::Word::Told(wire::Told { to, round, number: of, sessions, unreadable }) => Self::Told {
                incarnation: named()?,
                to: incarnation_of(to, "told.to")?,
                read: round
                    .map(|round| Ok::<_, DecodeError>((round, number(of, "told.number")?)))
                    .transpose()?,
                sessions: sessions.into_iter().map(wire::Session::parse).collect::<Result<_, _>>()?,
                unreadable,
            },
            wire::Word::Revise(revise) => {
                let (ticket, change) = revising::voter_change_in(revise)?;
                Self::Revise { incarnation: named()?, ticket, change }
            }
            wire::Word::Revised(revised) => {
                let to = incarnation_of(revised.to, "revised.to")?;
                let (ticket, progress) = revising::progress_in(revised)?;
                Self::Revised { incarnation: named()?, to, ticket, progress }
            }
        })
    }
}

impl From<&Body> for wire::log::Body {
    fn from(body: &Body) -> Self {
        match body {
            Body::Sync => Self::Sync(shared::Nothing {}),
            Body::SyncReply { to, last } => {
                Self::SyncReply(wire::SyncReply { to: Some((*to).into()), last: Some((*last).into()) })
            }
            Body::Fetch { after } => Self::Fetch((*after).into()),
            Body::Fetched { to, after, records } => {
                let records = records.iter().map(Into::into).collect();
                Self::Fetched(wire::Fetched { to: Some((*to).into()), after: Some((*after).into()), records })
            }
            Body::Append { round, after, records, committed } => Self::Append(wire::Append {
                round: *round,
                after: Some((*after).into()),
                records: records.iter().map(Into::into).collect(),
                committed: Some((*committed).into()),
            }),
            Body::AppendReply { to, round, last, gap, recovering } => Self::AppendReply(wire::AppendReply {
                to: Some((*to).into()),
                round: *round,
                last: Some((*last).into()),
                gap: *gap,
                recovering: *recovering,
            }),
            Body::Offer { number } => Self::Offer((*number).into()),
            Body::Part { number, offset } => {
                Self::Part(wire::Part { number: Some((*number).into()), offset: *offset })
            }
            Body::PartReply { to, number, voters, offset, length, bytes } => {
                Self::PartReply(wire::PartReply {
                    to: Some((*to).into()),
                    number: Some((*number).into()),
                    voters: Some((&**voters).into()),
                    offset: *offset,
                    length: *length,
                    bytes: bytes.to_vec(),
                })
            }
            Body::Recover => Self::Recover(shared::Nothing {}),
            Body::RecoverReply { to, leads_up_to } => Self::RecoverReply(wire::RecoverReply {
                to: Some((*to).into()),
                leads_up_to: leads_up_to.map(Into::into),
            }),
        }
    }
}

impl TryFrom<wire::log::Body> for Body {
    type Error = DecodeError;
    fn try_from(body: wire::log::Body) -> Result<Self, DecodeError> {
        Ok(match body {
            wire::log::Body::Sync(shared::Nothing {}) => Self::Sync,
            wire::log::Body::SyncReply(wire::SyncReply { to, last }) => Self::SyncReply {
                to: incarnation_of(to, "sync_reply.to")?,
                last: number(last, "sync_reply.last")?,
            },
            wire::log::Body::Fetch(after) => Self::Fetch { after: after.into() },
            wire::log::Body::Fetched(wire::Fetched { to, after, records }) => Self::Fetched {
                to: incarnation_of(to, "fetched.to")?,
                after: number(after, "fetched.after")?,
                records: records_in(records)?,
            },
            wire::log::Body::Append(wire::Append { round, after, records, committed }) => Self::Append {
                round,
                after: number(after, "append.after")?,
                records: records_in(records)?,
                committed: number(committed, "append.committed")?,
            },
            wire::log::Body::AppendReply(wire::AppendReply { to, round, last, gap, recovering }) => {
                Self::AppendReply {
                    to: incarnation_of(to, "append_reply.to")?,
                    round,
                    last: number(last, "append_reply.last")?,
                    gap,
                    recovering,
                }
            }
            wire::log::Body::Offer(number) => Self::Offer { number: number.into() },
            wire::log::Body::Part(wire::Part { number: of, offset }) => {
                Self::Part { number: number(of, "part.number")?, offset }
            }
            wire::log::Body::PartReply(wire::PartReply { to, number: of, voters, offset, length, bytes }) => {
                Self::PartReply {
                    to: incarnation_of(to, "part_reply.to")?,
                    number: number(of, "part_reply.number")?,
                    voters: voters_in(voters, "part_reply.voters")?,
                    offset,
                    length,
                    bytes: bytes.into(),
                }
            }
            wire::log::Body::Recover(shared::Nothing {}) => Self::Recover,
            wire::log::Body::RecoverReply(wire::RecoverReply { to, leads_up_to }) => Self::RecoverReply {
                to: incarnation_of(to, "recover_reply.to")?,
                leads_up_to: leads_up_to.map(Into::into),
            },
        })
    }
}

fn records_in(records: Vec<wire::Record>) -> Result<Vec<Record>, DecodeError> {
    records.into_iter().map(TryInto::try_into).collect()
}

fn voters_in(voters: Option<wire::Voters>, field: &'static str) -> Result<Arc<Voters>, DecodeError> {
    Ok(Arc::new(voters.ok_or(DecodeError::Missing(field))?.try_into()?))
}

fn number(
    number: Option<shared::LeaderSequence>,
    field: &'static str,
) -> Result<LeaderSequence, DecodeError> {
    Ok(number.ok_or(DecodeError::Missing(field))?.into())
}

fn incarnation_of(
    incarnation: Option<shared::Incarnation>,
    field: &'static str,
) -> Result<Incarnation, DecodeError> {
    Ok(incarnation.ok_or(DecodeError::Missing(field))?.into())
}

impl From<LeaderSequence> for shared::LeaderSequence {
    fn from(LeaderSequence { term, counter }: LeaderSequence) -> Self {
        Self { term: term.0, counter }
    }
}

impl From<shared::LeaderSequence> for LeaderSequence {
    fn from(shared::LeaderSequence { term, counter }: shared::LeaderSequence) -> Self {
        Self { term: Term(term), counter }
    }
}

impl From<&Voters> for wire::Voters {
    fn from(voters: &Voters) -> Self {
        let member = |(node, address): (&primacy_core::NodeId, &Arc<str>)| wire::Member {
            node: node.as_str().to_owned(),
            address: address.as_ref().to_owned(),
        };
        Self { number: Some(voters.number.into()), members: voters.members.iter().map(member).collect() }
    }
}

impl TryFrom<wire::Voters> for Voters {
    type Error = DecodeError;
    fn try_from(voters: wire::Voters) -> Result<Self, DecodeError> {
        let number = number(voters.number, "voters.number")?;
        let mut members = BTreeMap::new();
        for wire::Member { node, address } in voters.members {
            members.insert(parse_node(&node, "voters.node")?, address.into());
        }
        // A node writes received voters to its state file, so they must fit.
        let may_be = (1..=VOTERS_MAX).contains(&members.len()) && disk::check_room(&members).is_ok();
        if may_be { Ok(Self { number, members }) } else { Err(DecodeError::Invalid("voters.members")) }
    }
}

impl From<&Record> for wire::Record {
    fn from(record: &Record) -> Self {
        let body = match &record.body {
            RecordBody::Begin { after, voters } => wire::record::Body::Begin(wire::Begin {
                after: Some((*after).into()),
                voters: Some((&**voters).into()),
            }),
            RecordBody::Voters(voters) => wire::record::Body::Voters((&**voters).into()),
            RecordBody::Payload(payload) => wire::record::Body::Payload(payload.to_vec()),
        };
        Self { number: Some(record.number.into()), body: Some(body) }
    }
}

impl TryFrom<wire::Record> for Record {
    type Error = DecodeError;
    fn try_from(record: wire::Record) -> Result<Self, DecodeError> {
        let body = match record.body.ok_or(DecodeError::Unknown("the record"))? {
            wire::record::Body::Begin(wire::Begin { after, voters }) => RecordBody::Begin {
                after: number(after, "begin.after")?,
                voters: voters_in(voters, "begin.voters")?,
            },
            wire::record::Body::Voters(voters) => RecordBody::Voters(Arc::new(voters.try_into()?)),
            wire::record::Body::Payload(payload) => RecordBody::Payload(payload.into()),
        };
        Ok(Self { number: number(record.number, "record.number")?, body })
    }
}

/// The highest term in a message.
pub(super) fn highest_term(message: &Message) -> Term {
    match message {
        Message::Election { message, voters } => {
            let listed = voters.as_ref().map_or(Term(0), |voters| voters.number.term);
            quorum::highest_term(message).max(listed)
        }
        Message::Log { term, .. } => *term,
        Message::Voters { voters, .. } => voters.number.term,
        Message::Propose { .. } | Message::Told { .. } | Message::Revise { .. } => Term(0),
        Message::Revised { .. } | Message::Ask(_) | Message::Answer(_) => Term(0),
    }
}

/// The sender's incarnation.
pub(super) fn incarnation(message: &Message) -> Option<Incarnation> {
    match message {
        Message::Election { message, .. } => Some(message.incarnation),
        Message::Voters { incarnation, .. }
        | Message::Log { incarnation, .. }
        | Message::Propose { incarnation, .. }
        | Message::Told { incarnation, .. }
        | Message::Revise { incarnation, .. }
        | Message::Revised { incarnation, .. } => Some(*incarnation),

        Message::Ask(_) | Message::Answer(_) => None,
    }
}
