//! I9 for sessions: no session ends before its time, as far as the client that keeps it alive can know.
//!
//! An answer with a remaining lifetime was true at some moment between the request and the answer. So the lifetime
//! counts from the request, on the fastest possible clock.

use std::collections::{BTreeMap, BTreeSet};

use primacy_core::{Drift, Duration, Event, Identity, LeaderSequence, Term};
use primacy_kv::command::{Command, SessionId};
use primacy_kv::machine::clients::Ticket;
use primacy_kv::machine::{Answer, Ask, Metadata};
use primacy_kv::partitions::Command as Order;

use super::{Invariant, MetadataObservation, Observation};
use crate::clock::Moment;
use crate::counters::Counters;
use crate::leadership_intervals::LeadershipIntervals;

/// Remembers the time until which each session must live.
#[derive(Debug)]
pub struct SessionsLive {
    drift: Drift,
    /// The open requests: when each was sent, and until when its session had to live as far as known then.
    open: BTreeMap<Ticket, (Moment, Ask, Moment)>,
    until: BTreeMap<SessionId, Moment>,
    /// The sessions that clients have ended, or that have ended with their nodes.
    ended_by_clients: BTreeSet<SessionId>,
    /// The sessions by which each process has asked to be up.
    of_nodes: BTreeMap<Identity, Vec<SessionId>>,
    /// The last elected leader, and the sessions of nodes that crashed as the leader.
    leader: Option<Identity>,
    of_dead_leaders: BTreeSet<SessionId>,
    /// The moment at which each session was first seen to have ended.
    ended: BTreeMap<SessionId, Moment>,
    /// The sessions in each process's state when it was last checked, and the position of that check.
    looked: BTreeMap<Identity, (LeaderSequence, BTreeSet<SessionId>)>,
    /// The term in which a session was last reported alive.
    terms: BTreeMap<SessionId, Term>,
    met: Vec<&'static str>,
}

impl SessionsLive {
    /// The invariant for clocks whose rates differ by at most this drift.
    #[must_use]
    pub const fn within(drift: Drift) -> Self {
        Self {
            drift,
            open: BTreeMap::new(),
            until: BTreeMap::new(),
            ended_by_clients: BTreeSet::new(),
            of_nodes: BTreeMap::new(),
            leader: None,
            of_dead_leaders: BTreeSet::new(),
            ended: BTreeMap::new(),
            looked: BTreeMap::new(),
            terms: BTreeMap::new(),
            met: Vec::new(),
        }
    }

    /// Checks the sessions that a node knew and that have disappeared from its state.
    fn settled(&mut self, now: Moment, who: Identity, machine: &Metadata) -> Result<(), String> {
        let replica = machine.replica();
        let applied = replica.applied();
        let looked = self.looked.entry(who).or_default();
        if looked.0 == applied || !replica.is_current() {
            return Ok(());
        }
        let of_clients = machine.state().sessions().map(|(session, _)| session);
        let of_nodes = machine.state().partitions().sessions().map(|(session, _)| session);
        let present: BTreeSet<SessionId> = of_clients.chain(of_nodes).collect();
        let gone: Vec<SessionId> = looked.1.difference(&present).copied().collect();
        *looked = (applied, present);
        gone.into_iter().try_for_each(|session| self.has_ended(now, session))
    }

    fn has_ended(&mut self, now: Moment, session: SessionId) -> Result<(), String> {
        if self.ended.contains_key(&session) {
            return Ok(());
        }
        self.ended.insert(session, now);
        if !self.ended_by_clients.contains(&session) {
            self.met.push("a session has run out");
        }
        if self.of_dead_leaders.contains(&session)
            && self.until.get(&session).is_some_and(|&until| now < until)
        {
            self.met.push("a session of a dead leader was ended before its time");
        }
        self.may_have_ended(now, session)
    }

    fn may_have_ended(&self, at: Moment, session: SessionId) -> Result<(), String> {
        let until = self.until.get(&session).filter(|_| !self.ended_by_clients.contains(&session));
        is_over(at, session, until.copied().unwrap_or_default())
    }

    fn lives(
        &mut self,
        session: SessionId,
        asked_at: Moment,
        left: Duration,
        term: Term,
    ) -> Result<(), String> {
        let until = asked_at.after(self.drift.shorten(left));
        let known = self.until.entry(session).or_default();
        *known = (*known).max(until);
        if self.terms.insert(session, term).is_some_and(|before| before < term) {
            self.met.push("a session has outlived a leader");
        }
        match self.ended.get(&session) {
            Some(&ended) => self.may_have_ended(ended, session),
            None => Ok(()),
        }
    }

    fn answered(&mut self, now: Moment, ticket: Ticket, answer: &Answer, term: Term) -> Result<(), String> {
        let Some((asked_at, ask, until)) = self.open.remove(&ticket) else { return Ok(()) };
        match (ask, answer) {
            (
                Ask::Write(
                    _,
                    Command::Begin { session, time_to_live }
                    | Command::Partitions(Order::Join { session, time_to_live }),
                ),
                Answer::Written(_, outcome),
            ) if outcome.result.is_ok() => self.lives(session, asked_at, time_to_live, term),
            (Ask::Session(_, session, _), Answer::Session(_, Some(left))) => {
                self.lives(session, asked_at, *left, term)
            }
            // Another client may have ended it meanwhile.
            (Ask::Session(_, session, _), Answer::Session(_, None))
                if !self.ended_by_clients.contains(&session) =>
            {
                is_over(now, session, until)
            }
            (Ask::Write(..) | Ask::Read(_) | Ask::Session(..) | Ask::Revise(..) | Ask::AcceptLoss(_), _) => {
                Ok(())
            }
        }
    }
}

fn is_over(at: Moment, session: SessionId, until: Moment) -> Result<(), String> {
    if at >= until {
        return Ok(());
    }
    Err(format!("session {session} is over, and was to live until {until}"))
}

impl Invariant for SessionsLive {
    fn name(&self) -> &'static str {
        "I9"
    }

    fn observe(
        &mut self,
        now: Moment,
        seen: &Observation<'_>,
        _leaderships: &LeadershipIntervals,
    ) -> Result<(), String> {
        match *seen {
            Observation::Metadata(MetadataObservation::Settled { who, machine }) => {
                self.settled(now, who, machine)
            }
            Observation::Metadata(MetadataObservation::Asked { who, ticket, ask }) => {
                if let Ask::Write(
                    _,
                    Command::End { session } | Command::Partitions(Order::Leave { session }),
                ) = ask
                {
                    self.ended_by_clients.insert(*session);
                }
                if let Ask::Write(_, Command::Partitions(Order::Join { session, .. })) = ask {
                    self.of_nodes.entry(who).or_default().push(*session);
                }
                let session = match ask {
                    Ask::Session(_, session, _) => {
                        Some(session).filter(|it| !self.ended_by_clients.contains(it))
                    }
                    Ask::Write(..) | Ask::Read(_) | Ask::Revise(..) | Ask::AcceptLoss(_) => None,
                };
                let until = session.and_then(|session| self.until.get(session)).copied().unwrap_or_default();
                self.open.insert(ticket, (now, ask.clone(), until));
                Ok(())
            }
            Observation::Metadata(MetadataObservation::Answered { who, ticket, answer, machine }) => {
                self.settled(now, who, machine)?;
                self.answered(now, ticket, answer, machine.replica().bound())
            }
            Observation::Ended { who } => {
                self.looked.remove(&who);
                // Its guardian may report the death, and its next process may end the session.
                let sessions = self.of_nodes.remove(&who).unwrap_or_default();
                if self.leader == Some(who) {
                    self.of_dead_leaders.extend(&sessions);
                }
                self.ended_by_clients.extend(sessions);
                Ok(())
            }
            Observation::Told { who, event: Event::Elected { .. } } => {
                self.leader = Some(who);
                Ok(())
            }
            Observation::Metadata(MetadataObservation::Wrote { .. } | MetadataObservation::Shown { .. })
            | Observation::Told { .. }
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
