//! I9: a committed record is never lost or changed, all nodes apply the same records in the same order, and clients see
//! one map.
//!
//! A number identifies a record and all records before it. So the number up to which a node has applied identifies
//! the sequence of its records; the sequences of all nodes must be prefixes of one another. The invariant applies
//! that sequence to a state of its own, and compares.
//!
//! That sequence is also the order in which the clients' requests took effect, so linearizability needs no search: a
//! request that was answered before another one was sent must not come after it (Herlihy and Wing 1990), and each
//! answer must be the record's result. A read takes effect after the last record that its node had applied.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use primacy_core::{Identity, LeaderSequence, NodeId};
use primacy_kv::command::{Applied, Command, Outcome, Refusal, Request};
use primacy_kv::machine::clients::Ticket;
use primacy_kv::machine::{Answer, Ask, Metadata};
use primacy_kv::replication::log::{Record, RecordBody, Write};
use primacy_kv::replication::voters::Voters;
use primacy_kv::state::State;

use super::reference_map::ReferenceMap;
use super::{Invariant, MetadataObservation, Observation};
use crate::clock::Moment;
use crate::counters::Counters;
use crate::display::metadata::command_text;
use crate::leadership_intervals::LeadershipIntervals;

/// A position in the sequence of committed records, and the result there.
type PlacedResult = (usize, Applied);

/// Remembers every record, and the order of those that were committed.
#[derive(Debug, Default)]
pub struct OneLog {
    /// Every record that was ever in a log.
    records: BTreeMap<LeaderSequence, Record>,
    /// The committed records: the position of each, from 1 on, and the digest of the state after it.
    order: BTreeMap<LeaderSequence, (usize, u64)>,
    head: LeaderSequence,
    state: State,
    reference: ReferenceMap,
    /// The requests that were applied.
    applied: BTreeSet<(Identity, u64)>,
    /// The positions and results of the requests of each process.
    outcomes: HashMap<(Identity, Vec<u8>), Vec<PlacedResult>>,
    open: BTreeMap<Ticket, Asked>,
    /// The highest position whose effect a client has seen.
    known: usize,
    /// The voters by the last committed record that lists them.
    voters: Option<BTreeSet<NodeId>>,
    /// The positions up to which each log was checked.
    looked: BTreeMap<Identity, (LeaderSequence, LeaderSequence)>,
    met: Vec<&'static str>,
}

/// A request without an answer.
#[derive(Debug)]
struct Asked {
    /// The lowest position that its answer may have.
    after: usize,
    command: Option<Vec<u8>>,
}

impl OneLog {
    fn learn(&mut self, record: &Record) -> Result<(), String> {
        match self.records.get(&record.number) {
            Some(known) if known == record => Ok(()),
            Some(_) => Err(format!("there are two records {}", record.number)),
            None => {
                self.records.insert(record.number, record.clone());
                Ok(())
            }
        }
    }

    fn settled(&mut self, who: Identity, machine: &Metadata) -> Result<(), String> {
        let replica = machine.replica();
        let (last, applied) = (replica.last(), replica.applied());
        let (looked, compared) = self.looked.get(&who).copied().unwrap_or_default();
        if looked != last {
            let log = replica.log();
            let news = log.since(looked, usize::MAX).or_else(|| log.since(log.base(), usize::MAX));
            news.unwrap_or_default().iter().try_for_each(|record| self.learn(record))?;
            if replica.keeps_back() {
                self.met.push("window full");
            }
        }
        // Uncommitted records may still be dropped, so they are not compared.
        let compares = replica.is_current() && applied != compared && applied != LeaderSequence::NONE;
        self.looked.insert(who, (last, if compares { applied } else { compared }));
        if !compares {
            return Ok(());
        }
        self.commit(who, applied)?;
        match self.order.get(&applied) {
            Some(&(_, digest)) if digest != machine.state().digest() => {
                Err(format!("{} has another state than it should have after {applied}", who.node))
            }
            Some(_) => Ok(()),
            None => Err(format!("{} has applied {applied}, which was never committed", who.node)),
        }
    }

    /// Registers as committed the records that a node has applied up to this number.
    fn commit(&mut self, who: Identity, number: LeaderSequence) -> Result<(), String> {
        let mut path = Vec::new();
        let mut next = number;
        while next > self.head {
            let record =
                self.records.get(&next).ok_or_else(|| format!("nobody has ever seen record {next}"))?;
            let before = match &record.body {
                RecordBody::Begin { after, .. } => *after,
                RecordBody::Voters(_) | RecordBody::Payload(_) => {
                    LeaderSequence { counter: next.counter - 1, ..next }
                }
            };
            path.push(record.clone());
            next = before;
        }
        if path.is_empty() {
            return Ok(()); // Whether it was ever committed is seen in the order.
        }
        if next != self.head {
            return Err(format!("{} applies {number}, and record {} is lost", who.node, self.head));
        }
        path.iter().rev().try_for_each(|record| self.apply(record))
    }

    /// Checks a change of the voters: two sets that differ by more than one voter may have disjoint majorities.
    fn vote_from_now_on(&mut self, voters: &Voters) -> Result<(), String> {
        let names = voters.names();
        let Some(before) = self.voters.replace(names.clone()) else { return Ok(()) };
        let (more, fewer) = (names.difference(&before).count(), before.difference(&names).count());
        self.met.extend((more > 0).then_some("voter added"));
        self.met.extend((fewer > 0).then_some("voter removed"));
        if more + fewer > 1 {
            return Err(format!("record {} changes {} voters at once", voters.number, more + fewer));
        }
        Ok(())
    }

    fn apply(&mut self, record: &Record) -> Result<(), String> {
        let place = self.order.len() + 1;
        record.voters().map_or(Ok(()), |voters| self.vote_from_now_on(voters))?;
        if let RecordBody::Payload(payload) = &record.body {
            let request = Request::decode(payload).map_err(|error| format!("{}: {error}", record.number))?;
            let applied = self.state.apply(&request);
            let is_refused =
                matches!(&applied, Applied::First(Outcome { result: Err(Refusal::FormerLife), .. }));
            match &applied {
                Applied::First(outcome) => {
                    self.reference.apply(request.client, &request.command, outcome, &self.state)?;
                    self.met.extend(self.reference.take_met());
                    let is_new = self.applied.insert((request.client, request.sequence));
                    if !is_new && !is_refused {
                        let text = command_text(&request.command);
                        return Err(format!("a request of {} is done twice: {text}", request.client.node));
                    }
                }
                Applied::Duplicate => self.met.push("a request stands twice in the log, and was done once"),
            }
            let outcomes = self.outcomes.entry((request.client, key(request.client, &request.command)));
            outcomes.or_default().push((place, applied));
        } else if record.number.counter == 1 && place > 1 {
            self.met.push("a later leader has committed");
        }
        self.head = record.number;
        self.order.insert(record.number, (place, self.state.digest()));
        Ok(())
    }

    fn answered(
        &mut self,
        who: Identity,
        ticket: Ticket,
        answer: &Answer,
        machine: &Metadata,
    ) -> Result<(), String> {
        self.settled(who, machine)?;
        let Some(asked) = self.open.remove(&ticket) else { return Ok(()) };
        let applied = machine.replica().applied();
        let here = self.order.get(&applied).map_or(0, |&(place, _)| place);
        let outcomes = asked.command.and_then(|command| self.outcomes.get(&(who, command)));
        let done = |fits: &dyn Fn(&Applied) -> bool| {
            let outcomes = outcomes.map_or(&[][..], Vec::as_slice);
            outcomes
                .iter()
                .find(|(place, applied)| *place > asked.after && fits(applied))
                .map(|&(place, _)| place)
        };
        let (place, bound) = match answer {
            Answer::Written(_, outcome) => {
                (done(&|applied| matches!(applied, Applied::First(it) if it == outcome)), asked.after + 1)
            }
            Answer::Done(_) => (done(&|applied| matches!(applied, Applied::First(_))), asked.after + 1),
            Answer::Readable(_) if machine.replica().is_current() => (Some(here), asked.after),
            Answer::Readable(_) => return Err(format!("{} reads what may not be committed", who.node)),
            // All nodes of a world run one version.
            Answer::Unreadable(_) => {
                return Err(format!("{} was asked for what its leader cannot read", who.node));
            }
            Answer::Session(..) | Answer::Revised(..) | Answer::LossAccepted(..) => return Ok(()),
        };
        let name = who.node;
        let Some(place) = place else {
            return Err(format!("{name} answers question {} with what no record did: {answer:?}", ticket.0));
        };
        if place < bound {
            return Err(format!("{name} reads what was before place {bound}, and is at {place}, {applied}"));
        }
        if place > here {
            return Err(format!("{name} answers for a record that it has not applied"));
        }
        self.known = self.known.max(place);
        Ok(())
    }
}

/// Returns the request of a process as bytes, which are the same each time it is sent.
fn key(client: Identity, command: &Command) -> Vec<u8> {
    Request { client, sequence: 0, done_below: 0, command: command.clone() }.encode()
}

impl Invariant for OneLog {
    fn name(&self) -> &'static str {
        "I9"
    }

    fn observe(
        &mut self,
        _now: Moment,
        seen: &Observation<'_>,
        _leaderships: &LeadershipIntervals,
    ) -> Result<(), String> {
        match *seen {
            Observation::Metadata(MetadataObservation::Wrote { write: Write::Append(records), .. }) => {
                records.iter().try_for_each(|record| self.learn(record))
            }
            Observation::Metadata(
                MetadataObservation::Wrote { write: Write::Snapshot(_), .. }
                | MetadataObservation::Shown { .. },
            ) => Ok(()),
            Observation::Metadata(MetadataObservation::Settled { who, machine }) => {
                self.settled(who, machine)
            }
            Observation::Metadata(MetadataObservation::Asked { who, ticket, ask }) => {
                let command = match ask {
                    Ask::Write(_, command) => Some(key(who, command)),
                    Ask::Read(_) | Ask::Session(..) | Ask::Revise(..) | Ask::AcceptLoss(_) => None,
                };
                self.open.insert(ticket, Asked { after: self.known, command });
                Ok(())
            }
            Observation::Metadata(MetadataObservation::Answered { who, ticket, answer, machine }) => {
                self.answered(who, ticket, answer, machine)
            }
            Observation::Ended { who } => {
                self.looked.remove(&who);
                Ok(())
            }
            Observation::Told { .. }
            | Observation::Said { .. }
            | Observation::Accepted { .. }
            | Observation::ClockChanged
            | Observation::Phase(_)
            | Observation::Looked { .. }
            | Observation::DiskLost { .. }
            | Observation::Viewed { .. } => Ok(()),
        }
    }

    fn count(&mut self, counters: &mut Counters) {
        self.met.drain(..).for_each(|met| counters.count(met));
    }
}
