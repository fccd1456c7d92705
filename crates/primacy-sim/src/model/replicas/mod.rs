//! Three real replicas of a log, [`Replica`](primacy_kv::replication::replica::Replica), under faults: I9 in every
//! order of events.
//!
//! The election is an oracle with one rule: a term has one leader. Any node may become the leader of a term without a
//! leader at any time, however far it lags and whichever nodes lead in other terms; and no other node need have heard
//! of that term. In a real election, a vote binds a voter to a term and so makes it ignore earlier messages; here
//! late messages have the same effect. So this covers all behaviour of a real election, and more. That real elections
//! keep the rule, and that no node votes twice, is searched among [`peers`](super::peers).
//!
//! A sent message may arrive at any time, any number of times, or never: packets are never removed. No time passes;
//! an answer may become overdue at any moment.
//!
//! Messages of a new process arrive only after it has connected, at any time, as over a mesh. Messages of the
//! previous process of its node may arrive before and after that: they use another connection, which stays open until
//! it is read to its end.
//!
//! A state consists of the nodes, the messages under way, the committed records, and the remaining faults. All of
//! these are interned: the real machine runs once for each of its states and each input, and the result is cached.

mod applied_log;
mod bounds;
mod committed;
mod display;
mod node;
mod transitions;

use std::hash::Hasher as _;
use std::rc::Rc;

use primacy_core::LeaderSequence;
use primacy_core::hard_state::Durability;

use self::applied_log::AppliedLog;
pub use self::bounds::ReplicaBounds;
use self::committed::CommittedRecords;
use self::node::{FIRST_LIFE, Node, ReplicaAction, SEATS};
use self::transitions::{Kind, Label, Sign, Transition, Transitions};
use super::coverage::Coverage;
use super::fold::Fold;
use super::interned::Interned;
use super::search::{Model, Successors};

/// The size of a majority.
const MAJORITY: usize = SEATS as usize / 2 + 1;

/// The highest term that fits into a state.
const TERMS_MAX: usize = 4;

/// The whole system at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct State {
    nodes: [u32; SEATS as usize],
    /// The messages under way.
    wire: u32,
    /// The records that were ever committed.
    known: u32,
    /// The seat of the leader of each term, from 1.
    led: [u8; TERMS_MAX],
    /// For each node, the last process of each other node that has connected with it; 0 if none has connected with
    /// its current process.
    connected: [[u8; SEATS as usize]; SEATS as usize],
    left: Left,
}

/// The remaining number of faults of each kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Left {
    records: u8,
    crashes: u8,
    pairs: u8,
    disks: u8,
    resends: u8,
    accepts: u8,
}

/// The records that were ever committed, as far as any node knew.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Known {
    all: AppliedLog,
    /// The number of the last one.
    last: LeaderSequence,
    /// The predecessor of each record, including the first records of terms, which the payloads do not show.
    order: CommittedRecords,
}

/// A step that is planned.
#[derive(Clone, Copy, Debug)]
struct Move {
    seat: u8,
    action: ReplicaAction,
    left: Left,
}

/// The search of one space.
#[derive(Debug)]
pub struct Replicas {
    transitions: Transitions,
    wires: Interned<Vec<u32>>,
    known: Interned<Known>,
}

impl Replicas {
    /// The model with these bounds.
    ///
    /// # Panics
    /// If a bound is larger than a state has room for.
    #[must_use]
    pub fn new(bounds: ReplicaBounds) -> Self {
        assert!(usize::from(bounds.terms) <= TERMS_MAX, "no room for so many terms");
        Self { transitions: Transitions::new(bounds), wires: Interned::default(), known: Interned::default() }
    }

    fn sign(&self, state: &State, seat: u8) -> Sign {
        self.transitions.signs[state.nodes[usize::from(seat)] as usize]
    }

    /// Plans the moves.
    fn plan(&self, state: &State, successors: &mut Successors<State>) -> Vec<Move> {
        let left = state.left;
        let mut moves = Vec::new();
        for &item in self.wires.value(state.wire).iter() {
            let label = self.transitions.labels[item as usize];
            if may_come(state, label) {
                moves.push(Move { seat: label.to, action: ReplicaAction::Hear(item), left });
            }
        }
        let term = state.led.iter().take_while(|&&seat| seat > 0).count() + 1;
        let may_lead = term <= usize::from(self.transitions.bounds.terms);
        successors.cut += u64::from(!may_lead);
        // Nodes differ only in their names, so all nodes that have not led yet are equivalent.
        let news = state.led.iter().max().copied().unwrap_or(0);
        for seat in 0..SEATS {
            let sign = self.sign(state, seat);
            for (other, life) in self.unconnected(state, seat) {
                moves.push(Move { seat, action: ReplicaAction::Connected(other, life), left });
            }
            if sign.due {
                moves.push(Move { seat, action: ReplicaAction::Due, left });
            }
            if may_lead && seat <= news {
                let term = u8::try_from(term).expect("a few terms");
                moves.push(Move { seat, action: ReplicaAction::Lead(term), left });
            }
            if sign.is_active {
                // The first record of a term does not count.
                let room = sign.last.counter <= u64::from(self.transitions.bounds.each);
                match left.records.checked_sub(1).filter(|_| room) {
                    Some(records) => moves.push(Move {
                        seat,
                        action: ReplicaAction::Propose,
                        left: Left { records, ..left },
                    }),
                    None => successors.cut += 1,
                }
            }
            if sign.waits > 0 {
                match left.resends.checked_sub(1) {
                    Some(resends) => {
                        let left = Left { resends, ..left };
                        moves.extend((0..sign.waits).map(|which| Move {
                            seat,
                            action: ReplicaAction::Late(which),
                            left,
                        }));
                    }
                    None => successors.cut += u64::from(sign.waits),
                }
            }
            if let Some(crashes) = left.crashes.checked_sub(1).filter(|_| self.may_crash(sign)) {
                moves.push(Move { seat, action: ReplicaAction::Crash, left: Left { crashes, ..left } });
            }
            if let Some(disks) = left.disks.checked_sub(1) {
                moves.push(Move { seat, action: ReplicaAction::LoseDisk, left: Left { disks, ..left } });
            }
            if let Some(accepts) =
                left.accepts.checked_sub(1).filter(|_| sign.is_recovering && self.stands_still(state))
            {
                moves.push(Move { seat, action: ReplicaAction::Accept, left: Left { accepts, ..left } });
            }
        }
        moves
    }

    fn recovering(&self, state: &State) -> usize {
        (0..SEATS).filter(|&seat| self.sign(state, seat).is_recovering).count()
    }

    /// True if a majority is recovering, so that no node can complete its recovery.
    fn stands_still(&self, state: &State) -> bool {
        self.recovering(state) >= MAJORITY
    }

    /// True if two nodes have lost their logs at once, and no operator has accepted the loss.
    fn is_without_a_majority(&self, state: &State) -> bool {
        let ReplicaBounds { durability, recovers, pairs, accepts, .. } = self.transitions.bounds;
        let is_lost = state.left.pairs < pairs && state.left.accepts == accepts;
        is_lost && recovers && durability == Durability::Memory
    }

    /// Ends two processes at once.
    fn crash_in_pairs(&mut self, state: &State, successors: &mut Successors<State>) {
        let Some(pairs) = state.left.pairs.checked_sub(1) else { return };
        for spared in 0..SEATS {
            let mut next = State { left: Left { pairs, ..state.left }, ..*state };
            for seat in (0..SEATS).filter(|&seat| seat != spared) {
                let place = usize::from(seat);
                let transitions = self.transitions.of(next.nodes[place], ReplicaAction::Crash);
                let Some(transition) = transitions.first() else { continue };
                next.nodes[place] = transition.node;
                next.connected[place] = [0; SEATS as usize];
                next.wire = self.join(&next, seat, &transition.sent);
            }
            self.connect_followers(&mut next);
            successors.push(next, Coverage::STANDS_STILL, None);
        }
    }

    fn may_crash(&self, sign: Sign) -> bool {
        sign.is_recovering || !self.transitions.bounds.only_recovering
    }

    /// Takes one transition of a move.
    fn take(
        &mut self,
        state: &State,
        planned: Move,
        transition: &Transition,
        successors: &mut Successors<State>,
    ) {
        let mut next = State { left: planned.left, ..*state };
        if transition.cut.is_some() {
            let may_crash = self.may_crash(self.sign(state, planned.seat));
            let Some(crashes) = next.left.crashes.checked_sub(1).filter(|_| may_crash) else { return };
            next.left.crashes = crashes;
        }
        if let ReplicaAction::Lead(term) = planned.action {
            next.led[usize::from(term) - 1] = planned.seat + 1;
        }
        let place = usize::from(planned.seat);
        if let ReplicaAction::Connected(other, life) = planned.action {
            next.connected[place][usize::from(other)] = life;
        }
        next.nodes[place] = transition.node;
        if self.sign(&next, planned.seat).life > self.sign(state, planned.seat).life {
            next.connected[place] = [0; SEATS as usize];
        }
        let bounds = self.transitions.bounds;
        let is_lost = next.left.pairs < bounds.pairs;
        if !is_lost && self.recovering(&next) > usize::from(bounds.lost) {
            return; // More than is assumed.
        }
        let mut coverage = transition.coverage;
        let known = self.known.value(state.known).last;
        let held_it = known > LeaderSequence::NONE && self.holds(state, planned.seat, known);
        coverage.set_if(Coverage::DISK_LOST, matches!(planned.action, ReplicaAction::LoseDisk) && held_it);
        coverage.set_if(Coverage::HEARD_THE_DEAD, self.is_of_the_dead(state, planned, transition));
        coverage.set_if(Coverage::STANDS_STILL, self.is_without_a_majority(&next));
        let mut broken = transition.broken.or_else(|| self.judge(&mut next, planned.seat, &mut coverage));
        if self.is_without_a_majority(&next) && !self.stands_still(&next) {
            broken = broken.or(Some("I9: goes on although a majority has lost its logs at once"));
        }
        next.wire = self.join(&next, planned.seat, &transition.sent);
        self.connect_followers(&mut next);
        if broken.is_some() || next != *state {
            successors.push(next, coverage.0, broken);
        }
    }

    /// True if a leader processes a message of a process whose successor has started.
    fn is_of_the_dead(&self, state: &State, planned: Move, transition: &Transition) -> bool {
        let ReplicaAction::Hear(item) = planned.action else { return false };
        let label = self.transitions.labels[item as usize];
        let is_earlier = label.from_life < self.sign(state, label.from).life;
        let is_taken = transition.node != state.nodes[usize::from(planned.seat)];
        is_earlier && is_taken && self.sign(state, planned.seat).leads
    }

    /// Returns the running processes that have not connected with this node.
    fn unconnected(&self, state: &State, seat: u8) -> Vec<(u8, u8)> {
        let known = state.connected[usize::from(seat)];
        let lives = (0..SEATS).map(|other| (other, self.sign(state, other).life));
        lives.filter(|&(other, life)| other != seat && known[usize::from(other)] < life).collect()
    }

    /// Connects all nodes that do not lead with the new processes. This loses no behaviour: only leaders send a
    /// message on a connection, and a node that begins to lead later does so in a term in which no earlier process of
    /// another node has sent anything.
    fn connect_followers(&mut self, state: &mut State) {
        for seat in 0..SEATS {
            if self.sign(state, seat).leads {
                continue;
            }
            for (other, life) in self.unconnected(state, seat) {
                let place = usize::from(seat);
                let transitions =
                    self.transitions.of(state.nodes[place], ReplicaAction::Connected(other, life));
                // The action writes nothing.
                let Some(transition) = transitions.first() else { continue };
                state.connected[place][usize::from(other)] = life;
                state.nodes[place] = transition.node;
                state.wire = self.join(state, seat, &transition.sent);
            }
        }
    }

    /// Checks the records that a node has applied against the committed ones.
    fn judge(&mut self, next: &mut State, seat: u8, coverage: &mut Coverage) -> Option<&'static str> {
        let sign = self.sign(next, seat);
        let known = self.known.value(next.known);
        let leads_it = sign.is_active && known.last.term <= sign.bound;
        if (leads_it || sign.committed >= known.last) && !self.has(next, seat, known.last) {
            return Some("I9");
        }
        let applied = self.transitions.applied.value(sign.current?);
        let both = applied.0.len().min(known.all.0.len());
        if applied.0[..both] != known.all.0[..both] {
            return Some("I9");
        }
        if leads_it && applied.0.len() < known.all.0.len() {
            return Some("I9");
        }
        let order = self.transitions.orders.value(sign.order);
        if !order.agrees_with(&known.order) {
            return Some("I9");
        }
        let news = &applied.0[both..];
        for entry in news {
            coverage.0 |= match entry.number.term.0 {
                1 => Coverage::COMMITTED_IN_FIRST,
                2 => Coverage::COMMITTED_IN_SECOND,
                _ => Coverage::COMMITTED_IN_THIRD,
            };
            coverage.set_if(Coverage::KEPT, entry.number.term < sign.committed.term);
        }
        if news.is_empty() && sign.committed <= known.last {
            return None;
        }
        let others = (0..SEATS).filter(|&other| other != seat);
        let is_deposed = others.map(|other| self.sign(next, other).bound).any(|bound| bound > sign.bound);
        coverage.set_if(Coverage::DEPOSED_COMMITS, is_deposed && sign.is_active);
        // A snapshot may have replaced the record itself.
        let is_begin = sign.committed == LeaderSequence::first(sign.committed.term);
        let begins = order.begins().chain(is_begin.then_some(sign.committed));
        for begun in begins.filter(|begun| *begun > known.last) {
            coverage.0 |= Coverage::BEGUN;
            coverage.set_if(
                Coverage::BEGUN_BEHIND,
                known.last > LeaderSequence::NONE && begun.term > known.last.term,
            );
        }
        let mut all = known.all.clone();
        all.0.extend_from_slice(news);
        let last = known.last.max(sign.committed);
        let order = known.order.with(order);
        next.known = self.known.number(Known { all, last, order }).0;
        None
    }

    /// True if a node has applied all records up to a number, and its log or snapshot contains that number.
    fn has(&self, state: &State, seat: u8, number: LeaderSequence) -> bool {
        let replica = &self.transitions.nodes.value(state.nodes[usize::from(seat)]).replica;
        self.holds(state, seat, number) && replica.applied() >= number
    }

    /// True if a node's log or snapshot contains a number.
    fn holds(&self, state: &State, seat: u8, number: LeaderSequence) -> bool {
        let log = self.transitions.nodes.value(state.nodes[usize::from(seat)]).replica.log();
        number <= log.base() || log.position(number).is_some()
    }

    /// Returns the messages under way plus those that one node has sent, without those that can have no effect any
    /// more.
    fn join(&mut self, state: &State, by: u8, sent: &[u32]) -> u32 {
        let before = Rc::clone(self.wires.value(state.wire));
        let mut wire = (*before).clone();
        for &item in sent {
            if let Err(place) = wire.binary_search(&item) {
                wire.insert(place, item);
            }
        }
        let touches = |label: Label| label.from == by || label.to == by;
        let mut suspects: Vec<u32> =
            wire.iter().copied().filter(|&item| touches(self.transitions.labels[item as usize])).collect();
        // Answers are removed first, and then the requests that would only produce such answers again.
        suspects.sort_by_key(|&item| self.transitions.labels[item as usize].to_life.is_none());
        for item in suspects {
            if self.is_void(state, item, &wire)
                && let Ok(place) = wire.binary_search(&item)
            {
                wire.remove(place);
            }
        }
        if wire == *before { state.wire } else { self.wires.number(wire).0 }
    }

    /// True if a message has no effect, now and in future.
    ///
    /// The machine itself shows that it has no effect now, so that this shortcut hides no bug in it: the node stays
    /// the same, and at most resends messages that are under way, or that have no effect either.
    fn is_void(&mut self, state: &State, number: u32, wire: &[u32]) -> bool {
        let Some(said) = self.without_effect(state, number) else { return false };
        let is_idle =
            |model: &mut Self, said| model.without_effect(state, said).is_some_and(|said| said.is_empty());
        said.iter().all(|&said| wire.binary_search(&said).is_ok() || is_idle(self, said))
    }

    /// Returns the answers to a message, if it has no other effect, now and in future.
    fn without_effect(&mut self, state: &State, number: u32) -> Option<Vec<u32>> {
        let label = self.transitions.labels[number as usize];
        if !self.is_settled(state, label) {
            return None;
        }
        let node = state.nodes[usize::from(label.to)];
        let transitions = self.transitions.of(node, ReplicaAction::Hear(number));
        let transition = transitions.iter().find(|transition| transition.cut.is_none())?;
        (transition.broken.is_none() && transition.node == node).then(|| transition.sent.clone())
    }

    /// True if the effect of a message can no longer change, provided that the machine is correct.
    fn is_settled(&self, state: &State, label: Label) -> bool {
        let (to, from) = (self.sign(state, label.to), self.sign(state, label.from));
        let asks_no_more = from.life > label.from_life || from.bound > label.term;
        let is_past = label.term < to.bound;
        if !may_come(state, label) && !is_past {
            return false; // A connection changes what comes of it.
        }
        let is_late = label.to_life.is_some_and(|life| to.life > life);
        let is_in_term = label.term == to.bound;
        // A process keeps all its records and knowledge for its whole life.
        let Left { crashes, pairs, disks, .. } = state.left;
        let keeps = (crashes == 0 && pairs == 0 && disks == 0) || !self.transitions.bounds.late;
        match label.kind {
            Kind::Recover => from.life > label.from_life || !from.is_recovering,
            Kind::RecoverReply => is_late || !to.is_recovering,
            Kind::AnswersNew => is_past || is_late || (is_in_term && !to.is_catching_up),
            // A leader learns nothing from an answer if it knows the follower's position already.
            Kind::Answers { gap } => {
                let is_known = !gap && state.left.resends == 0;
                is_past || is_late || is_known || (is_in_term && !to.leads)
            }
            Kind::PartReply(number) => is_past || is_late || number <= to.last,
            Kind::Fetch => is_past || asks_no_more || (is_in_term && !from.is_catching_up),
            Kind::Part => is_past || asks_no_more,
            Kind::Offer(number) => is_past || (keeps && number <= to.last),
            Kind::Sync => is_past || (is_in_term && (asks_no_more || !from.is_catching_up)),
            Kind::Append(number) => is_past || (is_in_term && keeps && number <= to.last),
        }
    }

    /// Visits each step with its move.
    fn each(
        &mut self,
        state: &State,
        successors: &mut Successors<State>,
        mut visit: impl FnMut(Move, &Transition, usize),
    ) {
        for planned in self.plan(state, successors) {
            let node = state.nodes[usize::from(planned.seat)];
            for transition in self.transitions.of(node, planned.action).iter() {
                let before = successors.steps.len();
                self.take(state, planned, transition, successors);
                if successors.steps.len() > before {
                    visit(planned, transition, before);
                }
            }
        }
    }
}

/// True if the sender of the message has connected with its receiver.
fn may_come(state: &State, label: Label) -> bool {
    label.from_life <= state.connected[usize::from(label.to)][usize::from(label.from)]
}

impl Model for Replicas {
    type State = State;

    fn starts(&mut self) -> Vec<State> {
        let bounds = self.transitions.bounds;
        let nodes = [0, 1, 2].map(|seat| self.transitions.number(Node::new(seat, &bounds)));
        let wire = self.wires.number(Vec::new()).0;
        let known = self.known.number(Known::default()).0;
        let ReplicaBounds { records, crashes, pairs, disks, resends, accepts, .. } = bounds;
        let left = Left { records, crashes, pairs, disks, resends, accepts };
        let connected = [[FIRST_LIFE; SEATS as usize]; SEATS as usize];
        vec![State { nodes, wire, known, led: [0; TERMS_MAX], connected, left }]
    }

    fn fingerprint(&self, state: &State) -> u64 {
        let mut fold = Fold::default();
        let [a, b, c] = state.nodes.map(u64::from);
        fold.add(a << 32 | b);
        fold.add(c << 32 | u64::from(state.wire));
        fold.add(u64::from(state.known));
        let Left { records, crashes, pairs, disks, resends, accepts } = state.left;
        let word = |word: u64, bits: &u8| word << 4 | u64::from(*bits);
        fold.add(state.led.iter().fold(0, word));
        fold.add([records, crashes, pairs, disks, resends, accepts].iter().fold(0, word));
        fold.add(state.connected.iter().flatten().fold(0, word));
        fold.finish()
    }

    fn steps(&mut self, state: &State, successors: &mut Successors<State>) {
        self.each(state, successors, |_, _, _| {});
        self.crash_in_pairs(state, successors);
    }

    fn tell(&mut self, state: &State, step: u32) -> Vec<String> {
        let mut successors = Successors { steps: Vec::new(), cut: 0 };
        let mut taken = None;
        self.each(state, &mut successors, |planned, transition, place| {
            if usize::try_from(step).is_ok_and(|step| step == place) {
                taken = Some((planned, transition.cut));
            }
        });
        let Some((planned, cut)) = taken else {
            return vec!["two crash at once, and start again".to_owned()];
        };
        self.transitions.told_of(state.nodes[usize::from(planned.seat)], planned.action, cut)
    }
}
