//! Elections over a store: the real machines of candidates and guardians, and a model of the store: a [`Record`] for
//! `lease`, a [`Queue`] for `session`.
//!
//! A state consists of the nodes, the state of the store, the messages between each node and the store, the tokens
//! given, and the remaining faults.

mod bounds;
mod channel;
mod display;
mod judge;
mod node;
mod queue;
mod record;
mod store_kind;

use std::collections::HashMap;
use std::hash::Hasher as _;
use std::rc::Rc;

use primacy_core::Protocol;

pub use self::bounds::StoreBounds;
use self::channel::Channel;
use self::node::{ContenderResults, Node, SEATS, StoreAction};
pub use self::queue::Queue;
pub use self::record::Record;
use self::store_kind::{Machine as _, Mood, StoreKind};
use super::fold::{BuildFold, Fold};
use super::interned::Interned;
use super::now::NOW;
use super::search::{Model, Successors};
use super::work::Guardian;

/// The whole system at one moment.
#[derive(Clone, Copy, Debug)]
pub struct State {
    nodes: [u32; SEATS as usize],
    channels: [u32; SEATS as usize],
    cell: u32,
    /// The highest token that was given.
    given: u64,
    /// The seat of the node that has it; `SEATS` if none was given yet.
    given_to: u8,
    left: Left,
}

/// The remaining number of faults of each kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Left {
    writes: u8,
    unknowns: u8,
    crashes: u8,
    resignations: u8,
    deletions: u8,
    guardian_deaths: u8,
    job_exits: u8,
}

/// A step that is planned.
#[derive(Clone, Debug)]
enum Move<M> {
    Node(StoreAction<M>, Left),
    /// The answer at this position arrives.
    Hear(usize),
    /// The request at this position is served.
    Serve(usize, Mood, Left),
}

/// The result of an action.
#[derive(Debug)]
struct Outcome<M> {
    node: u32,
    results: ContenderResults<M>,
}

/// The properties of a node that planning needs.
#[derive(Clone, Copy, Debug)]
struct Sign {
    up: bool,
    due: bool,
    guardian_due: bool,
    releasing: bool,
    works: bool,
    drains: bool,
    may_exit: bool,
    has_exited: bool,
    holds: bool,
    guardian: Guardian,
}

/// The search of one space.
#[derive(Debug)]
pub struct Contenders<K: StoreKind> {
    bounds: StoreBounds,
    nodes: Interned<Node<K>>,
    signs: Vec<Sign>,
    channels: Interned<Channel<K::Message>>,
    cells: Interned<K>,
    actions: Interned<StoreAction<K::Message>>,
    known: HashMap<u64, Rc<Outcome<K::Message>>, BuildFold>,
}

impl<K: StoreKind> Contenders<K> {
    /// The model with these bounds.
    #[must_use]
    pub fn new(bounds: StoreBounds) -> Self {
        Self {
            bounds,
            nodes: Interned::default(),
            signs: Vec::new(),
            channels: Interned::default(),
            cells: Interned::default(),
            actions: Interned::default(),
            known: HashMap::default(),
        }
    }

    fn node(&mut self, node: Node<K>) -> u32 {
        let machine = node.machine.as_ref();
        let due = |at: Option<primacy_core::Instant>| at.is_some_and(|at| at <= NOW);
        let sign = Sign {
            up: machine.is_some(),
            due: due(machine.and_then(Protocol::deadline)),
            guardian_due: node.guardian.as_ref().is_some_and(|guardian| due(guardian.deadline())),
            releasing: node.guardian.is_some(),
            works: node.works.run(),
            drains: node.works.drain(),
            may_exit: node.works.may_exit(),
            has_exited: node.works.have_exited(),
            holds: machine.is_some_and(K::Machine::leads),
            guardian: node.works.guardian,
        };
        let (number, new) = self.nodes.number(node);
        if new {
            self.signs.push(sign);
        }
        number
    }

    fn outcome(&mut self, number: u32, action: StoreAction<K::Message>) -> Rc<Outcome<K::Message>> {
        let (action_number, _) = self.actions.number(action.clone());
        let key = u64::from(number) << 32 | u64::from(action_number);
        if let Some(known) = self.known.get(&key) {
            return Rc::clone(known);
        }
        let mut node = Node::clone(self.nodes.value(number));
        let mut results = ContenderResults::default();
        node.action(&action, &self.bounds, &mut results);
        let node = self.node(node);
        let outcome = Rc::new(Outcome { node, results });
        self.known.insert(key, Rc::clone(&outcome));
        outcome
    }

    /// Plans the moves of one node, and those of the store with its requests.
    fn plan(&self, state: &State, seat: usize) -> Vec<Move<K::Message>> {
        let (left, sign) = (state.left, self.signs[state.nodes[seat] as usize]);
        let channel = self.channels.value(state.channels[seat]);
        let mut moves: Vec<Move<K::Message>> = (0..channel.replies.len()).map(Move::Hear).collect();
        for (place, (_, request)) in channel.requests.iter().enumerate() {
            moves.push(Move::Serve(place, Mood::Serves, left));
            if let Some(unknowns) = left.unknowns.checked_sub(1).filter(|_| K::is_write(request)) {
                let left = Left { unknowns, ..left };
                moves.push(Move::Serve(place, Mood::DoneUnknown, left));
                moves.push(Move::Serve(place, Mood::NotDoneUnknown, left));
            }
        }
        let mut plan = |may: bool, action, left| {
            if may {
                moves.push(Move::Node(action, left));
            }
        };
        plan(sign.due, StoreAction::Timeout, left);
        plan(sign.guardian_due, StoreAction::GuardianTimeout, left);
        plan(sign.drains, StoreAction::Drained, left);
        if let Some(crashes) = left.crashes.checked_sub(1) {
            plan(sign.up, StoreAction::Crash, Left { crashes, ..left });
        }
        if let Some(resignations) = left.resignations.checked_sub(1) {
            plan(sign.holds, StoreAction::Resign, Left { resignations, ..left });
        }
        if let Some(job_exits) = left.job_exits.checked_sub(1) {
            plan(sign.up && sign.may_exit, StoreAction::JobExits, Left { job_exits, ..left });
        }
        // The node notices it, and resigns.
        plan(sign.holds && (sign.has_exited || sign.guardian == Guardian::Dead), StoreAction::Resign, left);
        if self.bounds.guardians {
            let witnessed = sign.guardian == Guardian::Alive && !sign.up;
            plan(witnessed && !sign.releasing, StoreAction::JobEnds, left);
            plan(!sign.up && (sign.releasing || !sign.works), StoreAction::Start, left);
            if let Some(guardian_deaths) = left.guardian_deaths.checked_sub(1) {
                let left = Left { guardian_deaths, ..left };
                plan(sign.guardian == Guardian::Alive, StoreAction::GuardianDies, left);
            }
        }
        moves
    }

    /// Makes a move.
    fn take(
        &mut self,
        state: &State,
        seat: usize,
        planned: &Move<K::Message>,
        successors: &mut Successors<State>,
    ) {
        let mut next = *state;
        let mut channel = Channel::clone(self.channels.value(state.channels[seat]));
        let action = match planned {
            Move::Serve(place, mood, left) => {
                let (asker, request) = channel.requests.remove(*place);
                let mut cell = K::clone(self.cells.value(state.cell));
                if let Some(reply) = cell.serve(&request, *mood) {
                    channel.answer(asker, reply, self.bounds.replies);
                }
                next.left = *left;
                next.cell = self.cells.number(cell).0;
                next.channels[seat] = self.channels.number(channel).0;
                return successors.push(next, 0, None);
            }
            Move::Hear(place) => {
                let (asker, reply) = channel.replies.remove(*place);
                StoreAction::Hear(asker, Box::new(reply))
            }
            Move::Node(action, left) => {
                next.left = *left;
                action.clone()
            }
        };
        let outcome = self.outcome(state.nodes[seat], action);
        next.nodes[seat] = outcome.node;
        let mut within = true;
        for (asker, request) in &outcome.results.asked {
            if K::is_bounded(request) {
                within &= next.left.writes > 0;
                next.left.writes = next.left.writes.saturating_sub(1);
            }
            channel.ask(*asker, request.clone(), self.bounds.requests);
        }
        for &(asker, under_way) in &outcome.results.renumbered {
            channel.renumber::<K>(asker, under_way, self.bounds.late_answers);
        }
        channel.forget_lives_before::<K>(self.nodes.value(outcome.node).starts);
        next.channels[seat] = self.channels.number(channel).0;
        let (reached, broken) = self.judge(&mut next, seat, &outcome.results);
        // A violation is reported even if the step leaves the bounds.
        if within || broken.is_some() {
            successors.push(next, reached.0, broken);
        } else {
            successors.cut += 1;
        }
    }

    /// Lets time pass for all nodes at once, and for a store that has a clock.
    fn ticks(&mut self, state: &State, successors: &mut Successors<State>) {
        let rates = u32::from(self.bounds.rate_max);
        let candidates = self.bounds.candidates;
        let has_clock = K::clone(self.cells.value(state.cell)).tick(0);
        let clocks = u32::from(candidates) + u32::from(has_clock);
        for code in 0..rates.pow(clocks) {
            let mut next = *state;
            let mut rest = code;
            let mut by = || {
                let by = u8::try_from(1 + rest % rates).expect("at most the highest rate");
                rest /= rates;
                by
            };
            for node in next.nodes.iter_mut().take(usize::from(candidates)) {
                *node = self.outcome(*node, StoreAction::Tick(by())).node;
            }
            if has_clock {
                let mut cell = K::clone(self.cells.value(state.cell));
                cell.tick(by());
                next.cell = self.cells.number(cell).0;
            }
            successors.push(next, 0, None);
        }
    }

    fn every_move(
        &mut self,
        state: &State,
        successors: &mut Successors<State>,
        mut at: impl FnMut(usize, Taken<'_, K::Message>),
    ) {
        for seat in 0..usize::from(self.bounds.candidates) {
            for planned in self.plan(state, seat) {
                self.take(state, seat, &planned, successors);
                at(successors.steps.len(), Taken::Of(seat, &planned));
            }
        }
        let mut of_store: Vec<(K, Left, String)> = Vec::new();
        if let Some(deletions) = state.left.deletions.checked_sub(1) {
            let mut cell = K::clone(self.cells.value(state.cell));
            if cell.delete() {
                let left = Left { deletions, ..state.left };
                of_store.push((cell, left, "somebody takes away by hand what is kept".to_owned()));
            }
        }
        let by_itself = self.cells.value(state.cell).by_itself().into_iter();
        of_store.extend(by_itself.map(|(cell, what)| (cell, state.left, what)));
        for (cell, left, what) in of_store {
            let cell = self.cells.number(cell).0;
            successors.push(State { cell, left, ..*state }, 0, None);
            at(successors.steps.len(), Taken::AtStore(&what));
        }
    }
}

/// A move that was made.
enum Taken<'a, M> {
    /// A move of the node at this seat.
    Of(usize, &'a Move<M>),
    /// A change inside the store.
    AtStore(&'a str),
}

impl<K: StoreKind> Model for Contenders<K> {
    type State = State;

    fn starts(&mut self) -> Vec<State> {
        let bounds = self.bounds;
        let mut channels = [self.channels.number(Channel::default()).0; SEATS as usize];
        let nodes = [0, 1, 2].map(|seat: u8| {
            let mut node = Node::new(seat, &bounds);
            let mut results = ContenderResults::default();
            if seat < bounds.candidates {
                node.start(&bounds, &mut results);
            }
            node.settle(&bounds, &mut results);
            let mut channel = Channel::default();
            for (asker, request) in results.asked {
                channel.ask(asker, request, bounds.requests);
            }
            channels[usize::from(seat)] = self.channels.number(channel).0;
            self.node(node)
        });
        let cell = self.cells.number(K::new(&bounds)).0;
        let left = Left {
            writes: bounds.writes,
            unknowns: bounds.unknowns,
            crashes: bounds.crashes,
            resignations: bounds.resignations,
            deletions: bounds.deletions,
            guardian_deaths: bounds.guardian_deaths,
            job_exits: bounds.job_exits,
        };
        vec![State { nodes, channels, cell, given: 1, given_to: SEATS, left }]
    }

    fn fingerprint(&self, state: &State) -> u64 {
        let mut fold = Fold::default();
        let [a, b, c] = state.nodes.map(u64::from);
        let [to_a, to_b, to_c] = state.channels.map(u64::from);
        fold.add(a << 32 | b);
        fold.add(c << 32 | to_a);
        fold.add(to_b << 32 | to_c);
        fold.add(state.given << 34 | u64::from(state.given_to) << 32 | u64::from(state.cell));
        let left = state.left;
        let left = [
            left.writes,
            left.unknowns,
            left.crashes,
            left.resignations,
            left.deletions,
            left.guardian_deaths,
            left.job_exits,
        ];
        fold.add(left.iter().fold(0, |word, &left| word << 8 | u64::from(left)));
        fold.finish()
    }

    fn steps(&mut self, state: &State, successors: &mut Successors<State>) {
        self.every_move(state, successors, |_, _| {});
        self.ticks(state, successors);
    }

    fn tell(&mut self, state: &State, step: u32) -> Vec<String> {
        let mut successors = Successors { steps: Vec::new(), cut: 0 };
        let mut taken = None;
        let mut at_store = None;
        self.every_move(state, &mut successors, |until, move_taken| {
            if taken.is_none() && at_store.is_none() && until > step as usize {
                match move_taken {
                    Taken::Of(seat, planned) => taken = Some((seat, planned.clone())),
                    Taken::AtStore(what) => at_store = Some(what.to_owned()),
                }
            }
        });
        let Some((seat, planned)) = taken else {
            return vec![at_store.unwrap_or_else(|| "a tick passes".to_owned())];
        };
        let channel = Rc::clone(self.channels.value(state.channels[seat]));
        let number = u8::try_from(seat).expect("a seat");
        let action = match planned {
            Move::Serve(place, mood, _) => {
                let how = match mood {
                    Mood::Serves => "",
                    Mood::DoneUnknown => ", and does it, and says that nobody knows",
                    Mood::NotDoneUnknown => ", and does not do it, and says that nobody knows",
                };
                return vec![display::served::<K>(number, &channel.requests[place].1, how)];
            }
            Move::Hear(place) => {
                let (asker, reply) = channel.replies[place].clone();
                StoreAction::Hear(asker, Box::new(reply))
            }
            Move::Node(action, _) => action,
        };
        let mut lines = vec![display::action::<K>(number, &action)];
        lines.extend(self.outcome(state.nodes[seat], action).results.lines.iter().cloned());
        lines
    }
}
