//! The open requests of the clients of one node.
//!
//! A node keeps its clients' requests until it has seen them applied, and sends them to each new leader again. A
//! duplicate request is applied once, because it carries the incarnation of its sender and a number.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::sync::Arc;
use alloc::vec::Vec;

use primacy_core::id::Identity;
use primacy_core::term::LeaderSequence;
use primacy_core::time::{Duration, Instant};

use crate::command::{Command, Request, SessionId};

/// The limit on reads, and on session requests, that wait for a leader. Clients give up after some seconds, but this is
/// not reported here; without a limit, a long time without a leader would fill the memory.
const WAITING_MAX: usize = 65_536;

/// A client's number for its request, which the answer carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub u64);

/// The open requests.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Clients {
    me: Identity,
    next: u64,
    /// The writes that are not known to be applied, by their sequence; a write of this node itself has no ticket.
    writes: BTreeMap<u64, (Option<Ticket>, Arc<[u8]>)>,
    /// The writes that are not yet sent to the present leader.
    untold: BTreeSet<u64>,
    /// The reads that wait for the leader's read index, by round.
    reads: BTreeMap<u64, Vec<Ticket>>,
    /// The number of these reads.
    reads_waiting: usize,
    /// The last round of reads and session requests to the leader.
    round: u64,
    /// The reads that wait until this node has applied the record with their read index.
    behind: Vec<(LeaderSequence, Ticket)>,
    /// The session requests, each with the first round whose answer counts for it. An answer to an earlier round may be
    /// outdated.
    sessions: BTreeMap<(SessionId, Keep), Vec<(u64, Ticket)>>,
    /// The number of session requests.
    sessions_waiting: usize,
    /// The time at which the gathered requests are sent.
    pub(super) flush_at: Option<Instant>,
    /// The time at which all open requests are sent again.
    pub(super) again_at: Option<Instant>,
}

/// Whether a session request keeps the session alive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Keep {
    /// Only report the remaining time.
    Look,
    /// Keep the session alive.
    Alive,
}

/// The gathered requests for the leader.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct News {
    pub(super) writes: Vec<Arc<[u8]>>,
    pub(super) round: Option<u64>,
    pub(super) sessions: Vec<(SessionId, Keep)>,
}

impl Clients {
    pub(super) const fn new(me: Identity) -> Self {
        Self {
            me,
            next: 1,
            writes: BTreeMap::new(),
            untold: BTreeSet::new(),
            reads: BTreeMap::new(),
            reads_waiting: 0,
            round: 0,
            behind: Vec::new(),
            sessions: BTreeMap::new(),
            sessions_waiting: 0,
            flush_at: None,
            again_at: None,
        }
    }

    /// The number of writes that are not known to be applied.
    pub(super) fn open(&self) -> usize {
        self.writes.len()
    }

    /// Adds a write, and gives it its number.
    pub(super) fn write(&mut self, ticket: Option<Ticket>, command: Command) -> (u64, Arc<[u8]>) {
        let sequence = self.next;
        self.next += 1;
        let done_below = self.writes.keys().next().copied().unwrap_or(sequence);
        let payload: Arc<[u8]> = Request { client: self.me, sequence, done_below, command }.encode().into();
        self.writes.insert(sequence, (ticket, Arc::clone(&payload)));
        (sequence, payload)
    }

    /// Drops this node's own requests, because it no longer leads: the next leader decides anew.
    pub(super) fn forget_own(&mut self) {
        self.writes.retain(|_, (ticket, _)| ticket.is_some());
        self.untold.retain(|sequence| self.writes.contains_key(sequence));
    }

    /// Schedules a write to be sent to the present leader.
    pub(super) fn tell(&mut self, now: Instant, sequence: u64) {
        self.untold.insert(sequence);
        self.flush_at.get_or_insert(now);
    }

    /// Handles an applied write, and returns its ticket; `None` if no client awaits it, or it was not a write of this
    /// process.
    pub(super) fn applied(&mut self, client: Identity, sequence: u64) -> Option<Ticket> {
        if client != self.me {
            return None;
        }
        self.untold.remove(&sequence);
        self.writes.remove(&sequence).and_then(|(ticket, _)| ticket)
    }

    /// Returns the tickets of the writes for which `was_applied` holds.
    pub(super) fn settle(&mut self, was_applied: impl Fn(&Identity, u64) -> bool) -> Vec<Ticket> {
        let applied = self.writes.keys().copied().filter(|&sequence| was_applied(&self.me, sequence));
        let applied: Vec<u64> = applied.collect();
        applied.into_iter().filter_map(|sequence| self.applied(self.me, sequence)).collect()
    }

    /// Adds a read, which must see all writes before now.
    pub(super) fn read(&mut self, now: Instant, ticket: Ticket) {
        if self.reads_waiting >= WAITING_MAX {
            self.reads = self.reads.split_off(&(self.round + 1));
            self.reads_waiting = self.reads.values().map(Vec::len).sum();
        }
        self.reads_waiting += 1;
        self.reads.entry(self.round + 1).or_default().push(ticket);
        self.flush_at.get_or_insert(now);
    }

    /// Handles the leader's read index for all reads up to a round.
    pub(super) fn readable(&mut self, round: u64, number: LeaderSequence) {
        let later = self.reads.split_off(&(round.saturating_add(1)));
        for ticket in core::mem::replace(&mut self.reads, later).into_values().flatten() {
            self.reads_waiting -= 1;
            self.behind.push((number, ticket));
        }
        let given_up = self.behind.len().saturating_sub(WAITING_MAX);
        self.behind.drain(..given_up);
    }

    /// Returns the reads that can be served, now that records up to `number` are applied.
    pub(super) fn reached(&mut self, number: LeaderSequence) -> Vec<Ticket> {
        let (ready, behind) =
            core::mem::take(&mut self.behind).into_iter().partition(|&(needed, _)| needed <= number);
        self.behind = behind;
        let ready: Vec<(LeaderSequence, Ticket)> = ready;
        ready.into_iter().map(|(_, ticket)| ticket).collect()
    }

    /// Adds a session request.
    pub(super) fn session(&mut self, now: Instant, ticket: Ticket, session: SessionId, keep: Keep) {
        if self.sessions_waiting >= WAITING_MAX {
            let round = self.round;
            self.sessions.retain(|_, waiting| {
                waiting.retain(|&(from, _)| from > round);
                !waiting.is_empty()
            });
            self.sessions_waiting = self.sessions.values().map(Vec::len).sum();
        }
        self.sessions_waiting += 1;
        self.sessions.entry((session, keep)).or_default().push((self.round + 1, ticket));
        self.flush_at.get_or_insert(now);
    }

    /// Handles the leader's report about a session in answer to a round; returns the tickets that it answers.
    pub(super) fn session_told(&mut self, session: SessionId, keep: Keep, round: u64) -> Vec<Ticket> {
        let Some(waiting) = self.sessions.remove(&(session, keep)) else { return Vec::new() };
        let (told, later): (Vec<_>, Vec<_>) = waiting.into_iter().partition(|&(from, _)| from <= round);
        self.sessions_waiting -= told.len();
        if !later.is_empty() {
            self.sessions.insert((session, keep), later);
        }
        told.into_iter().map(|(_, ticket)| ticket).collect()
    }

    /// Schedules all requests to be sent again: there is a new leader, or messages may be lost.
    pub(super) fn tell_all(&mut self, now: Instant) {
        self.untold.extend(self.writes.keys());
        self.flush_at.get_or_insert(now);
    }

    /// Takes the gathered requests, to be sent to the leader.
    pub(super) fn gathered(&mut self, now: Instant, again_after: Duration) -> News {
        self.flush_at = None;
        let untold = core::mem::take(&mut self.untold);
        let writes = untold
            .iter()
            .filter_map(|sequence| self.writes.get(sequence))
            .map(|(_, payload)| Arc::clone(payload));
        let writes = writes.collect();
        let asks = !(self.reads.is_empty() && self.sessions.is_empty());
        let round = asks.then(|| {
            self.round += 1;
            self.round
        });
        let sessions = self.sessions.keys().copied().collect();
        let waits = !(self.writes.is_empty() && self.reads.is_empty() && self.sessions.is_empty());
        // Frequent sends do not postpone the resending of old requests.
        let again_at = self.again_at.filter(|&at| at > now).unwrap_or(now.after(again_after));
        self.again_at = waits.then_some(again_at);
        News { writes, round, sessions }
    }

    /// Returns all open writes, if this node leads.
    pub(super) fn all_writes(&mut self) -> Vec<Arc<[u8]>> {
        self.untold.clear();
        self.flush_at = None;
        self.again_at = None;
        self.writes.values().map(|(_, payload)| Arc::clone(payload)).collect()
    }

    /// Takes the reads that wait for a leader, if this node leads.
    pub(super) fn take_reads(&mut self) -> Vec<Ticket> {
        self.reads_waiting = 0;
        core::mem::take(&mut self.reads).into_values().flatten().collect()
    }

    /// Returns the session requests, if this node leads.
    pub(super) fn take_sessions(&mut self) -> Vec<(SessionId, Keep)> {
        self.sessions.keys().copied().collect()
    }
}

#[cfg(test)]
mod tests {
    use primacy_core::id::{Incarnation, NodeId};

    use super::*;

    fn clients() -> Clients {
        Clients::new(Identity::new(NodeId::new("a").unwrap(), Incarnation { count: 1, nonce: 1 }))
    }

    fn gathered(clients: &mut Clients) -> News {
        clients.gathered(Instant::default(), Duration::from_secs(1))
    }

    /// A client counts a session from when it sent the keep-alive, so an answer to an earlier request must not count.
    #[test]
    fn who_asks_for_a_session_is_told_what_was_asked_after() {
        let (mut clients, session, now) = (clients(), SessionId::new(1).unwrap(), Instant::default());
        clients.session(now, Ticket(1), session, Keep::Alive);
        let first = gathered(&mut clients).round.unwrap();
        clients.session(now, Ticket(2), session, Keep::Alive);
        assert_eq!(clients.session_told(session, Keep::Alive, first), [Ticket(1)]);
        assert_eq!(clients.session_told(session, Keep::Alive, first), [], "the answer came twice");
        assert_eq!(clients.flush_at, Some(now), "it is asked again");
        let news = gathered(&mut clients);
        assert_eq!(news.sessions, [(session, Keep::Alive)]);
        assert_eq!(clients.session_told(session, Keep::Alive, news.round.unwrap()), [Ticket(2)]);
        assert_eq!(gathered(&mut clients).round, None, "nobody asks for anything");
    }

    #[test]
    fn questions_that_nobody_answers_are_not_kept_for_ever() {
        let (mut clients, now) = (clients(), Instant::default());
        let (session, number) = (SessionId::new(1).unwrap(), LeaderSequence::NONE.next());
        let asked = u64::try_from(3 * WAITING_MAX).unwrap();
        for ticket in (1..=asked).map(Ticket) {
            clients.read(now, ticket);
            clients.session(now, ticket, session, Keep::Look);
            if ticket.0 % 1_000 == 0 {
                let _ = gathered(&mut clients);
            }
        }
        assert!(clients.reads_waiting <= WAITING_MAX && clients.sessions_waiting <= WAITING_MAX);
        let round = gathered(&mut clients).round.unwrap();
        let told = clients.session_told(session, Keep::Look, round);
        assert!(told.contains(&Ticket(asked)) && told.len() <= WAITING_MAX, "{}", told.len());
        clients.readable(round, number);
        let read = clients.reached(number);
        assert!(read.contains(&Ticket(asked)) && read.len() <= WAITING_MAX, "{}", read.len());
        assert_eq!((clients.reads_waiting, clients.sessions_waiting), (0, 0));
    }

    #[test]
    fn a_question_that_is_told_again_is_answered_by_any_of_its_answers() {
        let (mut clients, session) = (clients(), SessionId::new(1).unwrap());
        clients.session(Instant::default(), Ticket(1), session, Keep::Look);
        let first = gathered(&mut clients).round.unwrap();
        let again = gathered(&mut clients).round.unwrap();
        assert!(again > first);
        assert_eq!(clients.session_told(session, Keep::Look, first), [Ticket(1)]);
    }

    /// A former leader must not propose the end of sessions that the new leader has kept alive.
    #[test]
    fn what_a_leader_wanted_itself_no_other_leader_is_told() {
        let (mut clients, session) = (clients(), SessionId::new(1).unwrap());
        let (own, _) = clients.write(None, Command::Expire { session });
        let (asked, payload) = clients.write(Some(Ticket(1)), Command::End { session });
        clients.tell(Instant::default(), own);
        clients.tell(Instant::default(), asked);
        clients.forget_own();
        clients.tell_all(Instant::default());
        assert_eq!(gathered(&mut clients).writes, std::slice::from_ref(&payload));
        assert_eq!(clients.all_writes(), [payload]);
    }
}
