//! A cluster by seniority under faults. I7 holds at all times, in every order of events; and once no message is under
//! way, all members have the same view, which contains all of them, and one coordinator.
//!
//! A sent message may arrive at any time, any number of times, or never: packets are never removed. Suspicion is
//! arbitrary: an operator may declare any member gone at any member. So no step needs silence, and no heartbeat is
//! ever due again; a node that waits for answers may time out at any time. Each node has its own clock.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

use primacy_core::detector::Detection;
use primacy_core::election::seniority::{Body, Config, Message, Seniority};
use primacy_core::membership::{Age, Policy, View};
use primacy_core::state_reduction::{StateReduction as _, Use};
use primacy_core::{
    Command, Duration, Endpoint, Event, Evidence, Identity, Incarnation, Input, Instant, NodeId, Output,
    Protocol as _, Reason,
};

use super::coverage::Coverage;
use super::fold::Fold;
use super::interned::Interned;
use super::now::NOW;
use super::search::{Model, Successors};
use crate::algorithm::Algorithm as _;

const NODES: usize = 3;

/// A duration so long that it never ends.
const NEVER_DUE: Duration = Duration::from_nanos(1 << 50);

/// The number of rounds after which all must agree; in each of them all messages are delivered and all nodes wake. A
/// node that is left out asks twice, and waits for the answers, before it stops waiting to be asked.
const ROUNDS: usize = 8;

/// The bounds of a space.
#[derive(Clone, Copy, Debug)]
pub struct MembershipBounds {
    /// The number of times that an operator declares a member gone.
    pub downs: u8,
    /// The number of times that a coordinator is told to resign.
    pub resignations: u8,
    /// The number of times that a process ends, and the next incarnation of its node starts.
    pub restarts: u8,
    /// The number of times that a node wakes for its deadline.
    pub wakes: u8,
    /// The number of delivered packets; packets without effect do not count.
    pub hears: u8,
}

impl MembershipBounds {
    /// One restart of a process; the run goes on until no message is under way.
    pub const CALM: Self = Self { downs: 0, resignations: 0, restarts: 1, wakes: 1, hears: u8::MAX };
}

/// Three nodes, and all messages sent so far.
#[derive(Clone, Debug)]
pub struct State {
    nodes: [u32; NODES],
    lives: [u8; NODES],
    /// True for each node whose work must drain.
    draining: [bool; NODES],
    /// The sender, receiver and number of each message, sorted.
    wire: Rc<Vec<(u8, u8, u32)>>,
    left: MembershipBounds,
}

#[derive(Clone, Copy, Debug)]
enum Move {
    Hears { from: u8, to: u8, message: u32 },
    Wakes(u8),
    Drained(u8),
    Resigns(u8),
    Down { at: u8, node: u8 },
    Restarts(u8),
    Died { at: u8, node: u8 },
}

impl Move {
    /// True if the move needs no command, fault or passage of time.
    const fn comes_by_itself(self) -> bool {
        match self {
            Self::Hears { .. } | Self::Drained(_) => true,
            Self::Wakes(_) | Self::Resigns(_) | Self::Down { .. } => false,
            Self::Restarts(_) | Self::Died { .. } => false,
        }
    }
}

impl State {
    /// True if the two states differ at most in the remaining faults.
    fn is_like(&self, other: &Self) -> bool {
        (&self.nodes, &self.draining, &self.wire) == (&other.nodes, &other.draining, &other.wire)
    }
}

/// The interned machines and messages of a space.
#[derive(Debug)]
pub struct Members {
    bounds: MembershipBounds,
    machines: Interned<Seniority>,
    messages: Interned<Message>,
}

impl Members {
    /// The space within these bounds.
    #[must_use]
    pub fn new(bounds: MembershipBounds) -> Self {
        Self { bounds, machines: Interned::default(), messages: Interned::default() }
    }

    fn moves(&self, state: &State) -> Vec<Move> {
        let all = || (0..NODES).filter_map(|seat| u8::try_from(seat).ok());
        let left = state.left;
        let heard = state.wire.iter().filter(|_| left.hears > 0);
        let mut moves: Vec<Move> =
            heard.map(|&(from, to, message)| Move::Hears { from, to, message }).collect();
        for seat in all() {
            let machine = self.machines.value(state.nodes[usize::from(seat)]);
            let is_due = machine.deadline().is_some_and(|at| at < NOW.after(NEVER_DUE.divided_by(2)));
            moves.extend((left.wakes > 0 && is_due).then_some(Move::Wakes(seat)));
            moves.extend(state.draining[usize::from(seat)].then_some(Move::Drained(seat)));
            let leads = machine.status().role == "coordinator";
            moves.extend((left.resignations > 0 && leads).then_some(Move::Resigns(seat)));
            moves.extend((left.restarts > 0).then_some(Move::Restarts(seat)));
            let others = all().filter(|&node| node != seat && left.downs > 0);
            moves.extend(others.map(|node| Move::Down { at: seat, node }));
        }
        moves
    }

    /// Returns the death notices of the earlier incarnation of each restarted node, to each other node.
    fn deaths(&self, state: &State) -> Vec<Move> {
        let all = || (0..NODES).filter_map(|seat| u8::try_from(seat).ok());
        let again = all().filter(|&node| state.lives[usize::from(node)] > 1);
        again
            .flat_map(|node| all().filter(move |&at| at != node).map(move |at| Move::Died { at, node }))
            .collect()
    }

    /// Makes a move. Returns the next state, the marks that it reached, and the broken invariant, if any.
    fn take(&mut self, state: &State, taken: Move) -> (State, Coverage, Option<&'static str>) {
        let mut next = state.clone();
        let mut now = NOW;
        let (seat, input) = match taken {
            Move::Hears { from, to, message } => {
                let message = (**self.messages.value(message)).clone();
                (to, Some(Input::Message { from: Endpoint::Node(name(from)), message }))
            }
            Move::Wakes(seat) => {
                next.left.wakes -= 1;
                now = self.machines.value(state.nodes[usize::from(seat)]).deadline().unwrap_or(NOW).max(NOW);
                (seat, Some(Input::Timeout))
            }
            Move::Drained(seat) => (seat, Some(Input::Command(Command::Drained))),
            Move::Resigns(seat) => {
                next.left.resignations -= 1;
                (seat, Some(Input::Command(Command::Resign)))
            }
            Move::Down { at, node } => {
                next.left.downs -= 1;
                (at, Some(Input::Command(Command::Down(name(node)))))
            }
            Move::Died { at, node } => {
                let earlier = identity(node, next.lives[usize::from(node)] - 1);
                (at, Some(Input::Evidence(Evidence::Died(earlier))))
            }
            Move::Restarts(seat) => {
                next.left.restarts -= 1;
                next.lives[usize::from(seat)] += 1;
                next.draining[usize::from(seat)] = false;
                (seat, None)
            }
        };
        let place = usize::from(seat);
        let before = Rc::clone(self.machines.value(state.nodes[place]));
        let mut machine = if input.is_some() { (*before).clone() } else { start(seat, next.lives[place]) };
        let input = input.unwrap_or(Input::Command(Command::Campaign));
        machine.handle(now, input);
        let mut coverage = Coverage::default();
        let mut said = Vec::new();
        while let Some(output) = machine.poll() {
            match output {
                Output::Send { to: Endpoint::Node(to), message } => said.push((seat_of(to), message)),
                Output::Send { to: Endpoint::Store | Endpoint::Client, .. } | Output::Persist(()) => {} // It has none.
                Output::Event(event) => coverage.0 |= mark(&event, &mut next.draining[place]),
            }
        }
        let broken = goes_back(&before, &machine, matches!(taken, Move::Restarts(_)));
        for (to, message) in said {
            let number = self.messages.number(message).0;
            let packet = (seat, to, number);
            if let Err(at) = next.wire.binary_search(&packet) {
                Rc::make_mut(&mut next.wire).insert(at, packet);
            }
        }
        as_if_now(&mut machine, now);
        next.nodes[place] = self.machines.number(machine).0;
        if matches!(taken, Move::Hears { .. })
            && (next.nodes != state.nodes || next.wire != state.wire)
            && next.left.hears < u8::MAX
        {
            next.left.hears -= 1;
        }
        let broken = broken.or_else(|| self.made_twice(&next));
        (next, coverage, broken.map(|()| "I7"))
    }

    /// True if all nodes agree after several rounds in which every sent message arrives, all nodes wake when they are
    /// due, and all learn of dead incarnations (because silence reports no death here).
    fn agree_in_the_end(&mut self, state: &State) -> bool {
        let left =
            MembershipBounds { downs: 0, resignations: 0, restarts: 0, wakes: u8::MAX, hears: u8::MAX };
        let mut last = State { left, ..state.clone() };
        for _ in 0..ROUNDS {
            let told = self.deaths(&last);
            for taken in self.moves(&last).into_iter().chain(told) {
                let (next, _, broken) = self.take(&last, taken);
                if broken.is_some() {
                    return false;
                }
                last = State { left, ..next };
            }
        }
        self.agree(&last)
    }

    /// True if all live processes have the same view, which contains exactly them, and one coordinator.
    fn agree(&self, state: &State) -> bool {
        let machines: Vec<&Rc<Seniority>> =
            state.nodes.iter().map(|&number| self.machines.value(number)).collect();
        let Some(view) = machines[0].view() else { return false };
        let is_in_it = |(machine, seat): (&&Rc<Seniority>, u8)| {
            let member = view.member(identity(seat, state.lives[usize::from(seat)]));
            member.is_some_and(|member| member.joining == machine.joining()) && machine.view() == Some(view)
        };
        let coordinators = machines.iter().filter(|machine| machine.status().role == "coordinator").count();
        coordinators == 1 && view.members().len() == NODES && machines.iter().zip(0_u8..).all(is_in_it)
    }

    /// Returns `Some` if two views have the same number, or one coordinator has given an age twice.
    fn made_twice(&self, state: &State) -> Option<()> {
        let mut made: BTreeMap<_, Arc<View>> = BTreeMap::new();
        let mut given = BTreeMap::new();
        let said = state.wire.iter().filter_map(|&(_, _, number)| match &self.messages.value(number).body {
            Body::View(view) => Some(Arc::clone(view)),
            Body::Join { .. }
            | Body::JoinReply { .. }
            | Body::ViewReply(_)
            | Body::Heartbeat { .. }
            | Body::Ask(_) => None,
            Body::Leave { .. }
            | Body::Down { .. }
            | Body::Probe(_)
            | Body::ProbeReply(_)
            | Body::MergeAsk(_) => None,
            Body::MergeReply(_) | Body::Merge { .. } | Body::Store(_) => None,
        });
        let had = state.nodes.iter().filter_map(|&number| self.machines.value(number).view().cloned());
        for view in said.chain(had) {
            let (cluster, version) = (view.cluster(), view.version());
            if view.oldest().identity != version.coordinator {
                return Some(());
            }
            for member in view.members() {
                let is = (member.identity, member.joining);
                let earlier = given.insert((cluster, version.term, version.coordinator, member.age), is);
                if earlier.is_some_and(|earlier| earlier != is) {
                    return Some(());
                }
            }
            let earlier = made.insert((cluster, version), Arc::clone(&view));
            if earlier.is_some_and(|earlier| earlier != view) {
                return Some(());
            }
        }
        None
    }
}

impl Model for Members {
    type State = State;

    /// Returns the state in which all nodes have joined, and all messages of the joinings have arrived.
    fn starts(&mut self) -> Vec<State> {
        let mut machines: Vec<Seniority> =
            (0..NODES).filter_map(|seat| u8::try_from(seat).ok()).map(|seat| start(seat, 1)).collect();
        let mut under_way = std::collections::VecDeque::new();
        for seat in 0..NODES {
            machines[seat].handle(NOW, Input::Command(Command::Campaign));
            loop {
                for (from, machine) in machines.iter_mut().enumerate() {
                    while let Some(output) = machine.poll() {
                        if let Output::Send { to: Endpoint::Node(to), message } = output {
                            under_way.push_back((from, usize::from(seat_of(to)), message));
                        }
                    }
                }
                let Some((from, to, message)) = under_way.pop_front() else { break };
                let from = Endpoint::Node(name(u8::try_from(from).expect("a few nodes")));
                machines[to].handle(NOW, Input::Message { from, message });
            }
        }
        machines.iter_mut().for_each(|machine| as_if_now(machine, NOW));
        let mut numbers = machines.into_iter().map(|machine| self.machines.number(machine).0);
        let nodes = [(); NODES].map(|()| numbers.next().expect("one for each"));
        let (lives, draining) = ([1; NODES], [false; NODES]);
        vec![State { nodes, lives, draining, wire: Rc::default(), left: self.bounds }]
    }

    fn fingerprint(&self, state: &State) -> u64 {
        let mut fold = Fold::default();
        state.nodes.iter().for_each(|&node| fold.add(u64::from(node)));
        fold.add(u64::from(state.left.hears));
        let left = [state.left.downs, state.left.resignations, state.left.restarts, state.left.wakes];
        let bits = state.draining.iter().map(|&drains| u8::from(drains));
        fold.add(
            left.into_iter().chain(state.lives).chain(bits).fold(0, |word, bits| word << 4 | u64::from(bits)),
        );
        for &(from, to, message) in &*state.wire {
            fold.add(u64::from(from) << 40 | u64::from(to) << 32 | u64::from(message));
        }
        std::hash::Hasher::finish(&fold)
    }

    fn steps(&mut self, state: &State, successors: &mut Successors<State>) {
        let mut ends = state.left.hears > 0;
        for taken in self.moves(state) {
            let (next, coverage, broken) = self.take(state, taken);
            ends &= !taken.comes_by_itself() || next.is_like(state);
            successors.push(next, coverage.0, broken);
        }
        if ends {
            let broken = (!self.agree_in_the_end(state)).then_some("I7");
            successors.push(state.clone(), Coverage::SETTLED, broken);
        }
    }

    fn tell(&mut self, state: &State, step: u32) -> Vec<String> {
        let moves = self.moves(state);
        let Some(&taken) = usize::try_from(step).ok().and_then(|step| moves.get(step)) else {
            return vec!["nothing is left to be heard, and they do not come to agree".to_owned()];
        };
        let what = match taken {
            Move::Hears { from, to, message } => {
                let text = crate::elections::seniority::Seniority::text(self.messages.value(message));
                format!("{} hears from {}: {text}", name(to), name(from))
            }
            Move::Wakes(seat) => format!("{} wakes", name(seat)),
            Move::Drained(seat) => format!("{} has drained its work", name(seat)),
            Move::Resigns(seat) => format!("{} resigns", name(seat)),
            Move::Down { at, node } => {
                format!("an operator says at {} that {} is gone", name(at), name(node))
            }
            Move::Restarts(seat) => format!("{} starts again", name(seat)),
            Move::Died { at, node } => format!("{} learns that {} has died", name(at), name(node)),
        };
        let (next, _, _) = self.take(state, taken);
        let views = next.nodes.iter().zip(0_u8..).map(|(&number, seat)| {
            let view = self.machines.value(number).view().cloned();
            let view = view.map_or_else(|| "none".to_owned(), |view| crate::display::views::view_text(&view));
            format!("    {} has {view}", name(seat))
        });
        [what].into_iter().chain(views).collect()
    }
}

fn name(seat: u8) -> NodeId {
    NodeId::new(["a", "b", "c"][usize::from(seat)]).expect("a letter is a name")
}

fn seat_of(node: NodeId) -> u8 {
    node.as_str().as_bytes()[0] - b'a'
}

fn identity(seat: u8, life: u8) -> Identity {
    Identity::new(name(seat), Incarnation { count: u64::from(life), nonce: 0 })
}

fn start(seat: u8, life: u8) -> Seniority {
    let wait = Duration::from_nanos(10);
    let config = Config {
        me: identity(seat, life),
        seeds: vec![name(0), name(1)],
        attributes: Arc::default(),
        heartbeat_interval: NEVER_DUE,
        neighbours: None,
        detection: Detection::Missed { count: 2 },
        stable_after: Duration::ZERO,
        policy: Policy::Available,
        store_wait: Duration::ZERO,
        minimum: 1,
        join_interval: wait.times(2),
        answer_wait: wait,
        probe_interval: wait.times(3),
        last_age: Age::MAX,
    };
    Seniority::new(config, NOW)
}

/// Moves all instants of a machine back, so that the present moment is [`NOW`] again.
fn as_if_now(machine: &mut Seniority, now: Instant) {
    let by = now.since(NOW);
    machine.visit_instants(&mut |how, at| {
        if *at == Instant::NEVER {
            return;
        }
        *at = at.before(by);
        if how == Use::End {
            *at = (*at).max(NOW);
        }
    });
    machine.simplify();
}

fn mark(event: &Event, draining: &mut bool) -> u64 {
    match event {
        Event::Elected { .. } => Coverage::ELECTED,
        Event::Resigning(_) => {
            *draining = true;
            Coverage::RESIGNED
        }
        Event::Deposed(reason) => {
            *draining = false;
            if matches!(reason, Reason::Transferred(_)) {
                Coverage::RELEASED | Coverage::DEPOSED
            } else {
                Coverage::DEPOSED
            }
        }
        Event::Renewed { .. } | Event::LeaderChanged(_) | Event::Violation(_) => 0,
    }
}

/// Returns `Some` if a member has taken a view that is not later than its own, or that does not contain it.
fn goes_back(before: &Seniority, after: &Seniority, begins: bool) -> Option<()> {
    let view = after.view()?;
    let me = after.status().leader.map(|_| after.joining());
    let is_in_it = view.members().iter().any(|member| Some(member.joining) == me);
    let same = before.view().filter(|_| !begins && before.joining() == after.joining());
    let is_later = same.is_none_or(|old| old == view || view.sight().is_later_than(&old.sight()));
    (!is_in_it || !is_later).then_some(())
}
