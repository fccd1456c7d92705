//! The cached effect of each action on each node: the real machine runs once for each.

use std::collections::HashMap;
use std::rc::Rc;

use primacy_core::election::quorum::HardState;
use primacy_core::{NodeId, Output};

use super::bounds::PeerBounds;
use super::machine::Machine;
use super::node::{Fact, Node, NodeAction, NodeResults, SEATS_MAX, name, seat};
use super::wire::Wire;
use crate::model::fold::BuildFold;
use crate::model::interned::Interned;
use crate::model::now::NOW;
use crate::model::work::Guardian;

/// A message or notice under way to a node.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Item<T> {
    /// A message from one node to another.
    Said { from: u8, to: u8, message: T },
    /// A guardian's notice that this process of that node is gone.
    Died { of: u8, starts: u8, to: u8 },
}

impl<T> Item<T> {
    pub(super) fn to(&self) -> u8 {
        match self {
            Self::Said { to, .. } | Self::Died { to, .. } => *to,
        }
    }
}

/// One transition that an action can cause.
#[derive(Clone, Debug)]
pub(super) struct Transition {
    /// The resulting node.
    pub(super) node: u32,
    /// The messages that it sends.
    pub(super) sent: Wire,
    /// The number of rounds that it begins.
    pub(super) rounds: u8,
    /// The facts for the judge.
    pub(super) facts: Vec<Fact>,
    /// The invariant that an effect itself breaks.
    pub(super) broken: Option<&'static str>,
    /// The number of effects after which the process crashes.
    pub(super) crash_after: Option<usize>,
    /// True if the node's term stays within the bounds.
    pub(super) within: bool,
}

/// The properties of a node that planning needs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sign {
    /// True if it has a process.
    pub(super) up: bool,
    /// True if its deadline has come.
    pub(super) due: bool,
    /// True if its work runs.
    pub(super) works: bool,
    /// True if its work was told to drain.
    pub(super) drains: bool,
    /// True if its job runs, and was not told to drain.
    pub(super) may_exit: bool,
    /// True if its job has ended, and it still leads.
    pub(super) has_exited: bool,
    /// True if it leads, and was not asked to resign.
    pub(super) leads: bool,
    /// The nodes that it is connected with, a bit each.
    pub(super) connected: u8,
    pub(super) starts: u8,
    pub(super) guardian: Guardian,
    /// True if its guardian has reported its death.
    pub(super) death_reported: bool,
}

/// Nodes and messages by their numbers, and the effects of actions on them.
#[derive(Debug)]
pub(super) struct Transitions<M: Machine> {
    pub(super) bounds: PeerBounds,
    pub(super) nodes: Interned<Node<M>>,
    pub(super) items: Interned<Item<M::Message>>,
    pub(super) signs: Vec<Sign>,
    /// The messages to each node.
    pub(super) to: [Wire; SEATS_MAX as usize],
    /// The messages that have no effect on each node, as far as tried.
    pub(super) idle: Vec<Wire>,
    known: HashMap<u64, Rc<[Transition]>, BuildFold>,
}

impl<M: Machine> Transitions<M> {
    pub(super) fn new(bounds: PeerBounds) -> Self {
        Self {
            bounds,
            nodes: Interned::default(),
            items: Interned::default(),
            idle: Vec::new(),
            signs: Vec::new(),
            to: [Wire::default(); SEATS_MAX as usize],
            known: HashMap::default(),
        }
    }

    /// Returns every transition that an action can cause.
    pub(super) fn of(&mut self, node: u32, action: NodeAction) -> Rc<[Transition]> {
        let key = u64::from(node) << 32 | u64::from(code(action));
        if let Some(known) = self.known.get(&key) {
            return Rc::clone(known);
        }
        let transitions = self.ask(node, action);
        if let (NodeAction::Hear(item), [transition]) = (action, &*transitions)
            && transition.node == node
            && transition.is_silent()
        {
            self.idle[node as usize].add(u16::try_from(item).expect("the number of a message"));
        }
        self.known.insert(key, Rc::clone(&transitions));
        transitions
    }

    pub(super) fn number(&mut self, node: Node<M>) -> u32 {
        let sign = sign(&node);
        let (number, new) = self.nodes.number(node);
        if new {
            self.signs.push(sign);
            self.idle.push(Wire::default());
        }
        number
    }

    pub(super) fn item(&mut self, item: Item<M::Message>) -> u16 {
        let to = item.to();
        let (number, new) = self.items.number(item);
        let number = u16::try_from(number).expect("fewer than 65,536 different messages");
        if new {
            self.to[usize::from(to)].add(number);
        }
        number
    }

    /// Returns the node after an action, and the results visible to other nodes, including text for people.
    pub(super) fn action(
        &self,
        before: &Node<M>,
        action: NodeAction,
        crash_after: Option<usize>,
    ) -> (Node<M>, NodeResults<M::Message>) {
        let mut node = before.clone();
        let mut results = NodeResults::default();
        let heard = self.heard(action);
        match Node::<M>::input(self.meant(action), heard, &self.bounds) {
            Some(input) => {
                if action == NodeAction::Drained {
                    node.works.drained();
                }
                let outputs = outputs(&mut node, input);
                let crashes = crash_after.is_some();
                for output in outputs.into_iter().take(crash_after.unwrap_or(usize::MAX)) {
                    results.lines.push(super::display::effect::<M>(&output));
                    node.perform(output, &mut results);
                }
                if crashes {
                    self.crash(&mut node, &mut results);
                }
            }
            None => match action {
                NodeAction::Tick(by) => node.tick(by, &self.bounds),
                NodeAction::Crash => self.crash(&mut node, &mut results),
                NodeAction::Start => node.start(&self.bounds, &mut results),
                NodeAction::JobEnds => node.end_job(),
                NodeAction::GuardianDies => node.works.guardian_dies(),
                NodeAction::JobExits => {
                    node.works.exit();
                    results.facts.push(Fact::JobExited);
                }
                NodeAction::Hear(_)
                | NodeAction::Timeout
                | NodeAction::Drained
                | NodeAction::Resign
                | NodeAction::Transfer(_) => {}
                NodeAction::Connected(..) | NodeAction::Disconnected(_) | NodeAction::Died(..) => {}
            },
        }
        node.settle(&self.bounds);
        (node, results)
    }

    /// Ends the process. Without a guardian a new one starts at once: a process that stays down is equivalent to one
    /// that is late with everything.
    fn crash(&self, node: &mut Node<M>, results: &mut NodeResults<M::Message>) {
        node.crash();
        if !self.bounds.guardians {
            node.start(&self.bounds, results);
        }
    }

    /// Returns the effective action: a received death notice is `Died`.
    fn meant(&self, action: NodeAction) -> NodeAction {
        match action {
            NodeAction::Hear(item) => match **self.items.value(item) {
                Item::Died { of, starts, .. } => NodeAction::Died(of, starts),
                Item::Said { .. } => action,
            },
            NodeAction::Timeout
            | NodeAction::Tick(_)
            | NodeAction::Crash
            | NodeAction::Start
            | NodeAction::Drained
            | NodeAction::Resign => action,
            NodeAction::Transfer(_)
            | NodeAction::Connected(..)
            | NodeAction::Disconnected(_)
            | NodeAction::Died(..) => action,
            NodeAction::JobExits | NodeAction::JobEnds | NodeAction::GuardianDies => action,
        }
    }

    fn heard(&self, action: NodeAction) -> Option<(NodeId, M::Message)> {
        let NodeAction::Hear(item) = action else { return None };
        match &**self.items.value(item) {
            Item::Said { from, message, .. } => Some((name(*from), message.clone())),
            Item::Died { .. } => None,
        }
    }

    fn ask(&mut self, number: u32, action: NodeAction) -> Rc<[Transition]> {
        let before = Rc::clone(self.nodes.value(number));
        let mut crashes = vec![None];
        if self.bounds.crashes > 0
            && let Some(input) = Node::<M>::input(self.meant(action), self.heard(action), &self.bounds)
        {
            let outputs = outputs(&mut Node::<M>::clone(&before), input);
            // Crashes before an event add nothing: no other node sees events for the application.
            let matters = |output: &Output<M::Message, HardState>| !matches!(output, Output::Event(_));
            crashes.extend((1..outputs.len()).filter(|&next| matters(&outputs[next])).map(Some));
        }
        let mut transitions = Vec::new();
        for crash_after in crashes {
            let (node, results) = self.action(&before, action, crash_after);
            transitions.push(self.transition(action, node, results, crash_after));
        }
        transitions.into()
    }

    fn transition(
        &mut self,
        action: NodeAction,
        node: Node<M>,
        mut results: NodeResults<M::Message>,
        crash_after: Option<usize>,
    ) -> Transition {
        let (from, starts, within) = (node.seat, node.starts, self.is_within(&node));
        let rounds = rounds::<M>(&results);
        if !within {
            // The search ends there, and the judge cannot record a term above the highest.
            results.sent.clear();
            results
                .facts
                .retain(|fact| fact.term().is_none_or(|term| term.0 <= u64::from(self.bounds.terms)));
        }
        let mut sent = Wire::default();
        let heard = |message: &M::Message| self.bounds.refusals || !M::is_refusal(message);
        for (to, message) in
            results.sent.into_iter().filter(|(_, message)| heard(message)).collect::<Vec<_>>()
        {
            sent.add(self.item(Item::Said { from, to: seat(to), message }));
        }
        if action == NodeAction::JobEnds {
            for to in (0..self.bounds.voters).filter(|&to| to != from) {
                sent.add(self.item(Item::Died { of: from, starts, to }));
            }
        }
        let node = self.number(node);
        Transition { node, sent, rounds, facts: results.facts, broken: results.broken, crash_after, within }
    }

    fn is_within(&self, node: &Node<M>) -> bool {
        let term = node.machine.as_ref().map_or(node.disk.term, |machine| machine.view().term);
        term.0 <= u64::from(self.bounds.terms)
    }
}

impl Transition {
    /// Returns the number of this step: the node, the action, and the point of the crash.
    pub(super) fn number(&self, action: NodeAction, seat: u8) -> u32 {
        let crash = u32::try_from(self.crash_after.unwrap_or(0)).expect("a handful of effects");
        let action = code(action);
        let (kind, argument) = (action >> 24, action & 0xFFFF);
        crash << 22 | kind << 18 | u32::from(seat) << 16 | argument
    }

    /// True if the transition is invisible to all other nodes.
    fn is_silent(&self) -> bool {
        self.within && self.sent == Wire::default() && self.facts.is_empty() && self.broken.is_none()
    }
}

/// Returns the number of rounds that begin.
fn rounds<M: Machine>(results: &NodeResults<M::Message>) -> u8 {
    let begun = results.sent.iter().filter_map(|(_, message)| M::begins(message));
    let begun: std::collections::BTreeSet<_> = begun.collect();
    u8::try_from(begun.len()).expect("a handful")
}

fn outputs<M: Machine>(
    node: &mut Node<M>,
    input: primacy_core::Input<M::Message>,
) -> Vec<Output<M::Message, HardState>> {
    let Some(machine) = &mut node.machine else { return Vec::new() };
    machine.handle(NOW, input);
    std::iter::from_fn(|| machine.poll()).collect()
}

fn sign<M: Machine>(node: &Node<M>) -> Sign {
    let machine = node.machine.as_ref();
    let view = machine.map(M::view);
    Sign {
        up: machine.is_some(),
        due: machine.and_then(M::deadline).is_some_and(|at| at <= NOW),
        works: node.works.run(),
        drains: node.works.drain(),
        may_exit: node.works.may_exit(),
        has_exited: node.works.have_exited(),
        leads: view.as_ref().is_some_and(|view| view.leads),
        connected: view.map_or(0, |view| view.connected.iter().fold(0, |bits, &node| bits | 1 << seat(node))),
        starts: node.starts,
        guardian: node.works.guardian,
        death_reported: node.death_reported,
    }
}

/// Returns a number for each action.
fn code(action: NodeAction) -> u32 {
    let (kind, argument) = match action {
        NodeAction::Hear(item) => (0, item),
        NodeAction::Timeout => (1, 0),
        NodeAction::Tick(by) => (2, u32::from(by)),
        NodeAction::Crash => (3, 0),
        NodeAction::Start => (4, 0),
        NodeAction::Drained => (5, 0),
        NodeAction::Resign => (6, 0),
        NodeAction::Transfer(to) => (7, u32::from(to)),
        NodeAction::Connected(seat, starts) => (8, u32::from(seat) << 8 | u32::from(starts)),
        NodeAction::Disconnected(seat) => (9, u32::from(seat)),
        NodeAction::Died(seat, starts) => (10, u32::from(seat) << 8 | u32::from(starts)),
        NodeAction::JobEnds => (11, 0),
        NodeAction::GuardianDies => (12, 0),
        NodeAction::JobExits => (13, 0),
    };
    kind << 24 | argument
}
