//! Elections among peers: three or four real machines of one election,
//! [`Quorum`](primacy_core::election::quorum::Quorum), [`Ranked`](primacy_core::election::ranked::Ranked), or
//! a quorum that [confirms](confirmed) any nominee.
//!
//! A state consists of the nodes, the messages between them, the judge's history, and the remaining faults. Nodes and
//! messages are interned, so that a state is a few numbers: the real machine runs once for each of its states and
//! each input, and the result is cached.

mod bounds;
pub mod confirmed;
mod display;
mod judge;
mod machine;
mod node;
mod quorum;
pub mod ranked;
mod transitions;
mod wire;

use primacy_core::election::quorum::Safety;

pub use self::bounds::{PeerBounds, Timers};
use self::judge::History;
use self::machine::Machine;
use self::node::{Fact, Node, NodeAction, SEATS_MAX, identity};
use self::transitions::{Sign, Transition, Transitions};
use self::wire::Wire;
use super::coverage::Coverage;
use super::fold::Fold;
use super::search::{Model, Step, Successors};
use super::work::Guardian;
use std::hash::Hasher as _;

/// The whole system at one moment.
#[derive(Clone, Copy, Debug)]
pub struct State {
    nodes: [u32; SEATS_MAX as usize],
    /// The set of messages that were sent.
    sent: Wire,
    history: History,
    left: Left,
}

/// The remaining number of faults of each kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Left {
    rounds: u8,
    /// `None` if unlimited.
    ticks: Option<u8>,
    crashes: u8,
    resignations: u8,
    closes: u8,
    guardian_deaths: u8,
    job_exits: u8,
}

/// A step that is planned.
#[derive(Clone, Copy, Debug)]
struct Move {
    seat: u8,
    action: NodeAction,
    left: Left,
}

/// The step number by which time passes.
const TICK: u32 = 1 << 31;

/// The search of one space.
#[derive(Debug)]
pub struct Peers<M: Machine> {
    transitions: Transitions<M>,
    planned: Vec<Move>,
}

impl<M: Machine> Peers<M> {
    /// The model with these bounds.
    ///
    /// # Panics
    /// If a bound is larger than a state has room for.
    #[must_use]
    pub fn new(bounds: PeerBounds) -> Self {
        assert!((3..=SEATS_MAX).contains(&bounds.voters), "three voters or four");
        assert!(bounds.terms <= judge::TERMS_MAX, "no room for so many terms");
        assert!(bounds.crashes < judge::STARTS_MAX, "no room for so many starts");
        Self { transitions: Transitions::new(bounds), planned: Vec::new() }
    }

    fn sign(&self, state: &State, seat: u8) -> Sign {
        self.transitions.signs[state.nodes[usize::from(seat)] as usize]
    }

    /// Plans the moves of single nodes.
    fn plan(&mut self, state: &State) {
        let (bounds, left) = (self.transitions.bounds, state.left);
        let mut planned = std::mem::take(&mut self.planned);
        planned.clear();
        for seat in 0..bounds.voters {
            let sign = self.sign(state, seat);
            let mut plan = |action, left| planned.push(Move { seat, action, left });
            if sign.up {
                let idle = &self.transitions.idle[state.nodes[usize::from(seat)] as usize];
                for item in state.sent.among(&self.transitions.to[usize::from(seat)], idle) {
                    plan(NodeAction::Hear(u32::from(item)), left);
                }
            }
            if sign.due {
                plan(NodeAction::Timeout, left);
            }
            if sign.drains {
                plan(NodeAction::Drained, left);
            }
            if let Some(job_exits) = left.job_exits.checked_sub(1).filter(|_| sign.up && sign.may_exit) {
                plan(NodeAction::JobExits, Left { job_exits, ..left });
            }
            if sign.up && sign.leads && (sign.has_exited || sign.guardian == Guardian::Dead) {
                plan(NodeAction::Resign, left); // The node sees it.
            }
            if let Some(crashes) = left.crashes.checked_sub(1).filter(|_| sign.up) {
                plan(NodeAction::Crash, Left { crashes, ..left });
            }
            if bounds.guardians {
                plan_guardian(sign, left, &mut plan);
            }
            if let Some(resignations) = left.resignations.checked_sub(1).filter(|_| sign.leads) {
                let left = Left { resignations, ..left };
                plan(NodeAction::Resign, left);
                for to in (0..bounds.voters).filter(|&to| bounds.transfers && to != seat) {
                    plan(NodeAction::Transfer(to), left);
                }
            }
            if bounds.closes > 0 {
                self.plan_connections(state, seat, &mut plan);
            }
        }
        self.planned = planned;
    }

    fn plan_connections(&self, state: &State, seat: u8, plan: &mut impl FnMut(NodeAction, Left)) {
        let sign = self.sign(state, seat);
        for other in (0..self.transitions.bounds.voters).filter(|&other| sign.up && other != seat) {
            let peer = self.sign(state, other);
            if sign.connected & 1 << other == 0 {
                if peer.up {
                    plan(NodeAction::Connected(other, peer.starts), state.left);
                }
            } else if let Some(closes) = state.left.closes.checked_sub(1) {
                plan(NodeAction::Disconnected(other), Left { closes, ..state.left });
            }
        }
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
        if transition.crash_after.is_some() {
            let Some(crashes) = next.left.crashes.checked_sub(1) else { return };
            next.left.crashes = crashes;
        }
        let place = usize::from(planned.seat);
        let who = identity(planned.seat, self.sign(state, planned.seat).starts);
        next.nodes[place] = transition.node;
        let mut coverage = coverage(transition);
        let mut broken = transition.broken;
        for &fact in &transition.facts {
            if let Fact::Elected { term, over_earlier_work } = fact {
                let is_other = next.history.has_led_before(who, term);
                let crashed = next.left.crashes < self.transitions.bounds.crashes;
                coverage.set_if(Coverage::TAKEN_OVER, is_other);
                coverage.set_if(Coverage::TAKEN_OVER_AFTER_CRASH, is_other && crashed);
                coverage.set_if(Coverage::LED_OVER_EARLIER_WORK, over_earlier_work);
            }
            broken = broken.or(next.history.take(who, fact, self.transitions.bounds.safety));
            if let Fact::Votes { term, .. } = fact {
                coverage.set_if(Coverage::VOTES_SPLIT, next.history.is_split(term));
            }
        }
        let working =
            (0..self.transitions.bounds.voters).filter(|&seat| self.sign(&next, seat).works).count();
        if working > 1 {
            match self.transitions.bounds.safety {
                Safety::Lease => broken = broken.or(Some("I3")),
                Safety::Fenced => coverage.set_if(Coverage::TWO_BELIEVE, true),
            }
        }
        let rounds = next.left.rounds.checked_sub(transition.rounds);
        // A violation is reported even if the step leaves the bounds.
        if (rounds.is_none() || !transition.within) && broken.is_none() {
            successors.cut += 1;
            return;
        }
        next.left.rounds = rounds.unwrap_or(0);
        next.sent = state.sent.with(&transition.sent);
        if self.sign(&next, planned.seat).starts != self.sign(state, planned.seat).starts {
            self.connect(&mut next, planned.seat);
        }
        let number = transition.number(planned.action, planned.seat);
        successors.steps.push(Step { number, state: next, reached: coverage.0, broken });
    }

    /// Connects a new process with all running ones, for machines that ignore unconnected peers. Connecting at once
    /// loses no behaviour: without the connection neither side would hear the other.
    fn connect(&mut self, state: &mut State, seat: u8) {
        if !M::HEARS_THE_CONNECTED {
            return;
        }
        for other in (0..self.transitions.bounds.voters).filter(|&other| other != seat) {
            for (seat, to) in [(seat, other), (other, seat)] {
                let peer = self.sign(state, to);
                if !peer.up || !self.sign(state, seat).up {
                    continue;
                }
                let node = state.nodes[usize::from(seat)];
                let transition = self.transitions.of(node, NodeAction::Connected(to, peer.starts))[0].clone();
                state.nodes[usize::from(seat)] = transition.node;
                state.sent = state.sent.with(&transition.sent);
            }
        }
    }

    /// Lets time pass for all nodes at once.
    fn ticks(&mut self, state: &State, successors: &mut Successors<State>) {
        let rates = self.transitions.bounds.rate_max;
        let ticks = state.left.ticks.map(|ticks| ticks.checked_sub(1));
        if ticks == Some(None) {
            successors.cut += 1;
            return;
        }
        for code in 0..u32::from(rates).pow(u32::from(self.transitions.bounds.voters)) {
            let mut next = *state;
            next.left.ticks = ticks.flatten();
            for (seat, node) in
                next.nodes.iter_mut().enumerate().take(usize::from(self.transitions.bounds.voters))
            {
                let by =
                    1 + code / u32::from(rates).pow(u32::try_from(seat).expect("a seat")) % u32::from(rates);
                let by = u8::try_from(by).expect("at most the highest rate");
                let transitions = self.transitions.of(*node, NodeAction::Tick(by));
                *node = transitions[0].node;
            }
            successors.steps.push(Step { number: TICK | code, state: next, reached: 0, broken: None });
        }
    }

    /// Makes all moves of all nodes.
    fn every_move(&mut self, state: &State, successors: &mut Successors<State>) {
        self.plan(state);
        for index in 0..self.planned.len() {
            let planned = self.planned[index];
            let node = state.nodes[usize::from(planned.seat)];
            for transition in self.transitions.of(node, planned.action).iter() {
                self.take(state, planned, transition, successors);
            }
        }
    }
}

fn plan_guardian(sign: Sign, left: Left, plan: &mut impl FnMut(NodeAction, Left)) {
    match (sign.up, sign.guardian) {
        (false, Guardian::Alive) if !sign.death_reported => plan(NodeAction::JobEnds, left),
        (false, Guardian::Alive | Guardian::Dead | Guardian::Absent) => plan(NodeAction::Start, left),
        (true, Guardian::Alive | Guardian::Dead | Guardian::Absent) => {}
    }
    if let Some(guardian_deaths) =
        left.guardian_deaths.checked_sub(1).filter(|_| sign.guardian == Guardian::Alive)
    {
        plan(NodeAction::GuardianDies, Left { guardian_deaths, ..left });
    }
}

fn coverage(transition: &Transition) -> Coverage {
    let mut coverage = Coverage::default();
    coverage.set_if(Coverage::CRASHED_BETWEEN, transition.crash_after.is_some());
    for fact in &transition.facts {
        coverage.0 |= match fact {
            Fact::Votes { .. } | Fact::Leads { .. } => 0,
            Fact::JobExited => Coverage::JOB_EXITED,
            Fact::Elected { .. } => Coverage::ELECTED,
            Fact::Renewed => Coverage::RENEWED,
            Fact::Deposed(primacy_core::Reason::Expired) => Coverage::EXPIRED,
            Fact::Deposed(_) => Coverage::DEPOSED,
            Fact::Resigned => Coverage::RESIGNED,
            Fact::Refuses => Coverage::REFUSED,
        };
    }
    coverage
}

impl<M: Machine> Model for Peers<M> {
    type State = State;

    fn starts(&mut self) -> Vec<State> {
        let bounds = self.transitions.bounds;
        let start = |seat| {
            let mut node = Node::new(seat, &bounds);
            node.start(&bounds, &mut node::NodeResults::default());
            node.settle(&bounds);
            node
        };
        let nodes = [0, 1, 2, 3].map(|seat| {
            let node = if seat < bounds.voters { start(seat) } else { Node::new(seat, &bounds) };
            self.transitions.number(node)
        });
        let left = Left {
            rounds: bounds.rounds,
            ticks: bounds.ticks,
            crashes: bounds.crashes,
            resignations: bounds.resignations,
            closes: bounds.closes,
            guardian_deaths: bounds.guardian_deaths,
            job_exits: bounds.job_exits,
        };
        let mut state = State { nodes, sent: Wire::default(), history: History::default(), left };
        for seat in 0..bounds.voters {
            self.connect(&mut state, seat);
        }
        vec![state]
    }

    fn fingerprint(&self, state: &State) -> u64 {
        let mut fold = Fold::default();
        let [a, b, c, d] = state.nodes.map(u64::from);
        fold.add(a << 32 | b);
        fold.add(c << 32 | d);
        let left = state.left;
        let ticks = left.ticks.unwrap_or(u8::MAX) & 15;
        let faults = [left.crashes, left.resignations, left.closes, left.guardian_deaths, left.job_exits];
        let left = [left.rounds, ticks].into_iter().chain(faults);
        fold.add(left.fold(0_u64, |word, left| word << 4 | u64::from(left)));
        fold.write_u128(state.history.0);
        for (place, word) in state.sent.words() {
            fold.add(place);
            fold.add(word);
        }
        fold.finish()
    }

    fn steps(&mut self, state: &State, successors: &mut Successors<State>) {
        self.every_move(state, successors);
        self.ticks(state, successors);
    }

    fn tell(&mut self, state: &State, step: u32) -> Vec<String> {
        self.plan(state);
        for planned in self.planned.clone() {
            let node = state.nodes[usize::from(planned.seat)];
            for transition in self.transitions.of(node, planned.action).iter() {
                if transition.number(planned.action, planned.seat) == step {
                    return self.describe(state, planned, transition.crash_after);
                }
            }
        }
        let rates = u32::from(self.transitions.bounds.rate_max);
        let by = |seat: u32| 1 + (step & !TICK) / rates.pow(seat) % rates;
        vec![match rates {
            1 => "a tick passes".to_owned(),
            _ => {
                format!("a tick passes; the clocks of a, b and c move by {}, {} and {}", by(0), by(1), by(2))
            }
        }]
    }
}

impl<M: Machine> Peers<M> {
    fn describe(&self, state: &State, planned: Move, crash_after: Option<usize>) -> Vec<String> {
        let item = if let NodeAction::Hear(item) = planned.action {
            Some(self.transitions.items.value(item))
        } else {
            None
        };
        let mut lines = vec![display::action::<M>(planned.seat, planned.action, item.map(AsRef::as_ref))];
        let node = self.transitions.nodes.value(state.nodes[usize::from(planned.seat)]);
        lines.extend(self.transitions.action(node, planned.action, crash_after).1.lines);
        lines.extend(crash_after.map(|_| "crashes, and starts again".to_owned()));
        lines
    }
}
