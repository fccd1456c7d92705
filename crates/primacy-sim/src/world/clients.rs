//! The clients of the nodes' replicated state: their open requests, and the sessions that they keep alive.
//!
//! A client sends a request to one node. If that node dies, the client never learns the result. Only sessions outlive
//! nodes: a client keeps them alive at any other node.

use std::collections::BTreeMap;

use primacy_core::{Duration, Endpoint, Input};
use primacy_kv::command::{
    Bytes, Command, Compared, Comparison, Delete, Keys, Limits, Operation, Outcome, Previous, Read, Refusal,
    Relation, Replace, SessionId, Transaction, Write,
};
use primacy_kv::machine::clients::{Keep, Ticket};
use primacy_kv::machine::{Answer, Ask};
use primacy_kv::partitions::Command as Order;
use primacy_kv::replication::replica::{Progress, VoterChange};

use super::{ScheduledEvent, World};
use crate::algorithm::{Algorithm, metadata};
use crate::clock::Moment;
use crate::display::metadata::{
    command_text, operation_text, outcome_text, progress_text, voter_change_text,
};
use crate::invariants::{MetadataObservation, Observation};
use crate::process_slot::ProcessSlot;
use crate::trace::{Delivery, Entry, Level, Party, TraceEvent};

/// The keys of the drawn requests: few, so that requests conflict.
const KEYS: [&str; 4] = ["a", "b", "c", "d"];

/// The limits of the drawn clients' map: a short history, so that it stays small.
const FEW: Limits = Limits {
    history_changes: 16,
    ..Limits { quota: Limits::QUOTA, history_bytes: 4_096, history_changes: 0 }
};

/// The number of keep-alives in one time to live.
const KEPT_TIMES: u64 = 3;

/// A client's request to a node.
#[derive(Clone, Debug)]
pub enum Wanted {
    /// Apply a command.
    Command(Command),
    /// Read, linearizably after everything answered before.
    Read(Operation),
    /// Look a session up, or keep it alive.
    Session(SessionId, Keep),
    /// Change the voters, as an operator.
    Revise(VoterChange),
    /// Accept the loss of a log, as an operator.
    AcceptLoss,
}

/// All clients.
#[derive(Debug, Default)]
pub struct Clients {
    next: u64,
    open: BTreeMap<Ticket, Open>,
    sessions: BTreeMap<SessionId, Kept>,
    /// The last value written to each key, as far as any client knows.
    known: BTreeMap<Bytes, Bytes>,
    values: u64,
    next_session: i64,
}

#[derive(Debug)]
struct Open {
    life: u64,
    slot: ProcessSlot,
    wanted: Wanted,
    since: Moment,
}

/// A session that a client has begun.
#[derive(Clone, Copy, Debug)]
struct Kept {
    slot: ProcessSlot,
    /// The process that is up by this session, which alone keeps it alive.
    life: Option<u64>,
    time_to_live: Duration,
    /// True if it is to be kept alive.
    wanted: bool,
}

impl Clients {
    /// Records that a process is gone, and that its answers will never arrive.
    pub(crate) fn gone(&mut self, life: u64) {
        self.open.retain(|_, open| open.life != life);
        self.sessions.retain(|_, kept| kept.life != Some(life));
    }

    /// Returns an unanswered request that was sent to one of these nodes before this moment, with its node.
    #[must_use]
    fn waits_since(
        &self,
        moment: Moment,
        slots: impl Fn(ProcessSlot) -> bool,
    ) -> Option<(ProcessSlot, String)> {
        // An operator's request that is lost on the way is not repeated.
        let counts = |open: &Open| !matches!(open.wanted, Wanted::Revise(_)) && slots(open.slot);
        let waits = self.open.values().find(|open| open.since < moment && counts(open));
        waits.map(|open| (open.slot, asked_text(&open.wanted)))
    }

    /// True if a client keeps this session alive.
    #[must_use]
    pub fn keep(&self, session: SessionId) -> bool {
        self.sessions.get(&session).is_some_and(|kept| kept.wanted)
    }

    /// Stops keeping this session alive. Returns false if no client did.
    pub fn let_go(&mut self, session: SessionId) -> bool {
        let kept = self.sessions.get_mut(&session).filter(|kept| kept.wanted);
        kept.map(|kept| kept.wanted = false).is_some()
    }

    /// Returns the session by which this process of a node is up, as far as its client knows.
    #[must_use]
    pub fn session_of(&self, life: u64) -> Option<SessionId> {
        self.sessions.iter().find(|(_, kept)| kept.life == Some(life)).map(|(&session, _)| session)
    }

    /// Returns the sessions that are kept alive.
    pub fn kept(&self) -> impl Iterator<Item = SessionId> {
        self.sessions.iter().filter(|(_, kept)| kept.wanted).map(|(&session, _)| session)
    }

    fn value(&mut self) -> Bytes {
        self.values += 1;
        self.values.to_string().into_bytes().into()
    }
}

/// An operation that writes a value to a key, which ends with the session if one is given.
#[must_use]
pub fn put(key: &str, value: Bytes, session: Option<SessionId>) -> Operation {
    let key = Bytes::from(key.as_bytes());
    let (value, session) = (Replace::With(value), Replace::With(session));
    Operation::Write(Write { key, value, session, previous: Previous::Unwanted })
}

/// An operation that writes a value to a key if it has the expected one, and otherwise reads it.
#[must_use]
pub fn swap(key: &str, expected: Bytes, value: Bytes) -> Operation {
    let keys = Keys::One(key.as_bytes().into());
    Operation::Transaction(Transaction {
        comparisons: vec![Comparison {
            keys: keys.clone(),
            relation: Relation::Equal,
            compared: Compared::Value(expected),
        }],
        then: vec![put(key, value, None)],
        otherwise: vec![Operation::Read(Box::new(Read::of(keys)))],
    })
}

/// An operation that deletes a key. The number makes it different from every other deletion.
#[must_use]
pub fn delete(key: &str, number: u64) -> Operation {
    let keys = Keys::One(key.as_bytes().into());
    // Every entry was changed after that version, and a missing key has no change at all.
    let number = -1 - i64::try_from(number).unwrap_or(i64::MAX - 1);
    Operation::Transaction(Transaction {
        comparisons: vec![Comparison {
            keys: keys.clone(),
            relation: Relation::Greater,
            compared: Compared::ChangedAt(number),
        }],
        then: vec![Operation::Delete(Delete { keys, previous: Previous::Unwanted })],
        otherwise: Vec::new(),
    })
}

impl<A: Algorithm> World<A> {
    /// Sends a client's request to a node. Returns false if the node does not run.
    pub fn ask(&mut self, slot: ProcessSlot, wanted: Wanted) -> bool {
        let Some(process) = self.process(slot) else { return false };
        let (who, life) = (process.me, process.life);
        self.clients.next += 1;
        let ticket = Ticket(self.clients.next);
        let ask = match &wanted {
            Wanted::Command(command) => Ask::Write(ticket, command.clone()),
            Wanted::Read(_) => Ask::Read(ticket),
            Wanted::Session(session, keep) => Ask::Session(ticket, *session, *keep),
            Wanted::Revise(change) => Ask::Revise(ticket, change.clone()),
            Wanted::AcceptLoss => Ask::AcceptLoss(ticket),
        };
        let Some(replication) = A::REPLICATION else { return false };
        let message = (replication.ask)(ask.clone());
        let text = asked_text(&wanted);
        self.trace_client(slot, level(&wanted), true, || text);
        self.clients.open.insert(ticket, Open { life, slot, wanted, since: self.now() });
        self.observe(Observation::Metadata(MetadataObservation::Asked { who, ticket, ask: &ask }));
        self.give(slot, Input::Message { from: Endpoint::Client, message });
        true
    }

    /// Handles a node's answer to a client.
    pub(crate) fn answered(&mut self, slot: ProcessSlot, answer: &Answer) {
        let ticket = match answer {
            Answer::Written(ticket, _)
            | Answer::Done(ticket)
            | Answer::Unreadable(ticket)
            | Answer::Readable(ticket)
            | Answer::Revised(ticket, _)
            | Answer::LossAccepted(ticket, _)
            | Answer::Session(ticket, _) => *ticket,
        };
        let Some(open) = self.clients.open.remove(&ticket) else {
            if let Answer::Revised(..) = answer {
                return; // A request that was doubled on its way was done twice, which an operator may do as well.
            }
            return self.breach("contract", format!("question {} is answered, and nobody waits", ticket.0));
        };
        self.look_at_answer(slot, ticket, answer);
        if let Answer::Written(_, Outcome { result: Err(Refusal::FormerLife), .. }) = answer {
            let node = self.node(slot).name;
            self.breach("contract", format!("{node} is refused as a former life, and it is the present one"));
        }
        let read = match &open.wanted {
            Wanted::Read(operation) => self.process(slot).and_then(|process| {
                metadata::<A>(&process.machine).and_then(|machine| machine.state().observe(operation))
            }),
            Wanted::Command(_) | Wanted::Session(..) | Wanted::Revise(_) | Wanted::AcceptLoss => None,
        };
        self.counters.count(match answer {
            Answer::Written(_, Outcome { result: Ok(_), .. }) => "client: written",
            Answer::Written(_, Outcome { result: Err(_), .. }) => "client: refused",
            Answer::Done(_) => "client: done, and what came of it is not known",
            Answer::Unreadable(_) => "client: the leader cannot read it",
            Answer::Readable(_) => "client: read",
            Answer::Session(_, Some(_)) => "client: told of a session",
            Answer::Session(_, None) => "client: told that a session is over",
            Answer::Revised(_, Progress::Done) => "operator: the voters are so",
            Answer::Revised(_, Progress::Committing) => "operator: voters written",
            Answer::Revised(_, Progress::CatchingUp { .. }) => "operator: the node is brought up to date",
            Answer::Revised(_, Progress::Waiting) => "operator: what was written before comes first",
            Answer::Revised(_, Progress::Resigning) => "operator: the leader resigns to be removed",
            Answer::Revised(_, Progress::Refused(_)) => "operator: refused",
            Answer::LossAccepted(..) => "operator: told of a loss",
        });
        let text = || format!("{}: {}", asked_text(&open.wanted), answer_text(answer, read.as_ref()));
        self.trace_client(slot, level(&open.wanted), false, text);
        self.learn(slot, &open.wanted, answer);
    }

    /// Updates the clients' knowledge by an answer.
    fn learn(&mut self, slot: ProcessSlot, wanted: &Wanted, answer: &Answer) {
        match (wanted, answer) {
            (Wanted::Command(Command::Operate(Operation::Write(write))), Answer::Written(_, outcome))
                if outcome.result.is_ok() =>
            {
                if let Replace::With(value) = &write.value {
                    self.clients.known.insert(write.key.clone(), value.clone());
                }
            }
            (Wanted::Command(Command::Begin { session, time_to_live }), Answer::Written(_, outcome))
                if outcome.result.is_ok() =>
            {
                let kept = self.clients.sessions.entry(*session);
                kept.or_insert(Kept { slot, life: None, time_to_live: *time_to_live, wanted: false });
                self.plan_keeping(*session);
            }
            (
                Wanted::Command(Command::Partitions(Order::Join { session, time_to_live })),
                Answer::Written(_, outcome),
            ) if outcome.result.is_ok() => {
                let life = self.process(slot).map(|process| process.life);
                let kept = Kept { slot, life, time_to_live: *time_to_live, wanted: true };
                self.clients.sessions.insert(*session, kept);
                self.plan_keeping(*session);
            }
            (Wanted::Command(Command::Partitions(Order::Leave { session })), Answer::Written(..)) => {
                self.clients.sessions.remove(session);
            }
            (Wanted::Session(session, _), Answer::Session(_, None)) => {
                self.clients.sessions.remove(session);
            }
            (Wanted::Command(_) | Wanted::Read(_) | Wanted::Session(..), _) => {}
            (Wanted::Revise(_) | Wanted::AcceptLoss, _) => {}
        }
    }

    fn plan_keeping(&mut self, session: SessionId) {
        if let Some(kept) = self.clients.sessions.get(&session).filter(|kept| kept.wanted) {
            let after = kept.time_to_live.divided_by(KEPT_TIMES).max(Duration::from_millis(1));
            self.plan(after, ScheduledEvent::KeepAlive { session });
        }
    }

    /// Sends the keep-alive of a session.
    pub(crate) fn keep_alive(&mut self, session: SessionId) {
        let Some(kept) = self.clients.sessions.get(&session).filter(|kept| kept.wanted) else { return };
        let home = kept.slot;
        // A node that does not vote is not told the leader.
        let serves = |&slot: &ProcessSlot| {
            self.process(slot).is_some_and(|process| !process.paused) && self.votes(slot)
        };
        let others = self.slots().filter(|_| kept.life.is_none());
        if let Some(slot) = [home].into_iter().chain(others).find(serves) {
            self.ask(slot, Wanted::Session(session, Keep::Alive));
        }
        self.plan_keeping(session);
    }

    /// Keeps a session with this time to live alive from now on. It may not have begun yet.
    pub fn keep_from_now_on(&mut self, slot: ProcessSlot, session: SessionId, time_to_live: Duration) {
        self.clients.sessions.insert(session, Kept { slot, life: None, time_to_live, wanted: true });
    }

    /// Sends a drawn request to a drawn node.
    pub fn ask_something(&mut self) {
        let count = self.slots().count();
        let slot = ProcessSlot(self.drawn(count));
        let wanted = self.draw_wanted(slot);
        if self.ask(slot, wanted) {
            self.counters.count("client: asked");
        }
    }

    /// Draws an index below this number, which is at least one.
    fn drawn(&mut self, count: usize) -> usize {
        usize::try_from(self.rng.up_to(count.saturating_sub(1) as u64)).unwrap_or(0)
    }

    fn draw_wanted(&mut self, slot: ProcessSlot) -> Wanted {
        let key = KEYS[self.drawn(KEYS.len())];
        let known = self.clients.known.get(key.as_bytes()).cloned().unwrap_or_else(|| b"0".as_slice().into());
        let value = self.clients.value();
        let of_clients = self.clients.sessions.iter().filter(|(_, kept)| kept.life.is_none());
        let sessions: Vec<SessionId> = of_clients.map(|(&session, _)| session).collect();
        let session = sessions.get(self.drawn(sessions.len())).copied();
        let drawn = self.rng.up_to(17);
        match (drawn, session) {
            (0..=3, _) => Wanted::Command(Command::Operate(put(key, value, None))),
            (4..=5, _) => Wanted::Command(Command::Operate(swap(key, known, value))),
            (6, _) => Wanted::Command(Command::Operate(delete(key, self.clients.values))),
            (7, _) => {
                let other = KEYS[(KEYS.iter().position(|it| *it == key).unwrap_or(0) + 1) % KEYS.len()];
                let both = vec![put(key, value.clone(), None), put(other, value, None)];
                let transaction = Transaction { then: both, ..Transaction::default() };
                Wanted::Command(Command::Operate(Operation::Transaction(transaction)))
            }
            (8..=10, _) => Wanted::Read(Operation::Read(Box::new(Read::of(Keys::all())))),
            (11, _) => Wanted::Command(Command::Limit(FEW)),
            (12..=13, Some(session)) => Wanted::Command(Command::Operate(put(key, value, Some(session)))),
            (14, Some(session)) if self.rng.up_to(2) == 0 => {
                self.clients.let_go(session);
                Wanted::Command(Command::End { session })
            }
            (14..=15, Some(session)) => Wanted::Session(session, Keep::Look),
            (_, _) => {
                self.clients.next_session += 1;
                let session = SessionId::new(self.clients.next_session).expect("counted from 1");
                let time_to_live =
                    self.patience().divided_by(2).plus(self.rng.duration_up_to(self.patience()));
                if self.rng.up_to(3) > 0 {
                    self.keep_from_now_on(slot, session, time_to_live);
                }
                Wanted::Command(Command::Begin { session, time_to_live })
            }
        }
    }

    /// Checks the replicated state without faults: each node has all of it, every request sent before `begin` is
    /// answered, and sessions that no client keeps alive have ended.
    pub(crate) fn keeps_up(&self, begin: Moment, without: Option<ProcessSlot>) -> Result<(), String> {
        let Some(leader) = self.leaders().next() else { return Err("nobody leads".to_owned()) };
        let voters = self.voters_of(leader);
        let asked = |slot: ProcessSlot| Some(slot) != without && voters.contains(&self.node(slot).name);
        for slot in self.slots().filter(|&slot| asked(slot)) {
            let Some(process) = self.process(slot) else { continue };
            let Some(machine) = metadata::<A>(&process.machine) else { return Ok(()) };
            if machine.replica().is_recovering() || !machine.replica().is_current() {
                return Err(format!("{} has not all that is committed", process.me.node));
            }
            let counted = machine.replica().voters();
            if counted.names() != voters || machine.replica().committed() < counted.number {
                return Err(format!(
                    "{} counts other voters than {}",
                    process.me.node,
                    self.node(leader).name
                ));
            }
            let mut sessions = machine.state().sessions().map(|(session, _)| session);
            let mut of_nodes = machine.state().partitions().sessions().map(|(session, _)| session);
            let is_left = |session: &SessionId| !self.clients.keep(*session);
            if self.believes(slot)
                && let Some(session) = sessions.find(is_left).or_else(|| of_nodes.find(is_left))
            {
                return Err(format!("session {session} lives, and nobody keeps it alive"));
            }
        }
        match self.clients.waits_since(begin, asked) {
            Some((slot, what)) => Err(format!("{} has not answered: {what}", self.node(slot).name)),
            None => Ok(()),
        }
    }

    fn trace_client(&mut self, slot: ProcessSlot, level: Level, asks: bool, text: impl FnOnce() -> String) {
        if !self.trace.wants(level) {
            return;
        }
        let (node, at) = (Party::Node(self.node(slot).name), self.now());
        let (from, to, kind) =
            if asks { (Party::Clients, node, "Ask") } else { (node, Party::Clients, "Answer") };
        let delivery = Delivery { arrivals: [Some(at), None], remark: None };
        self.trace.add(Entry {
            at,
            level,
            what: TraceEvent::Says { from, to, kind, text: text(), delivery },
        });
    }
}

/// Returns the trace level of a request; keep-alives are sent all the time.
const fn level(wanted: &Wanted) -> Level {
    match wanted {
        Wanted::Session(_, Keep::Alive) => Level::Heartbeat,
        Wanted::Session(_, Keep::Look) | Wanted::Command(_) | Wanted::Read(_) => Level::Message,
        Wanted::Revise(_) | Wanted::AcceptLoss => Level::Message,
    }
}

fn asked_text(wanted: &Wanted) -> String {
    match wanted {
        Wanted::Command(command) => command_text(command),
        Wanted::Read(operation) => operation_text(operation),
        Wanted::Session(session, Keep::Look) => format!("look at session {session}"),
        Wanted::Session(session, Keep::Alive) => format!("keep session {session} alive"),
        Wanted::Revise(change) => voter_change_text(change),
        Wanted::AcceptLoss => "accept the loss".to_owned(),
    }
}

fn answer_text(answer: &Answer, read: Option<&Outcome>) -> String {
    match answer {
        Answer::Written(_, outcome) => outcome_text(outcome),
        Answer::Done(_) => "done".to_owned(),
        Answer::Unreadable(_) => "not read".to_owned(),
        Answer::Readable(_) => read.map_or_else(|| "readable".to_owned(), outcome_text),
        Answer::Session(_, Some(left)) => format!("lives for {left}"),
        Answer::Session(_, None) => "is over".to_owned(),
        Answer::Revised(_, progress) => progress_text(*progress),
        Answer::LossAccepted(_, true) => "done".to_owned(),
        Answer::LossAccepted(_, false) => "nothing was lost".to_owned(),
    }
}
