//! The effect of each act on each node: the real machine is asked once, and its answer is kept.

use std::collections::HashMap;
use std::rc::Rc;

use primacy_core::election::quorum::HardState;
use primacy_core::{NodeId, Output};

use super::bounds::PeerBounds;
use super::machine::Machine;
use super::node::{Act, Doings, Fact, Node, SEATS_MAX, name, seat};
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

/// One way in which an act can go.
#[derive(Clone, Debug)]
pub(super) struct Way {
    /// The node after it.
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
    /// True if it leads to no term above the highest.
    pub(super) within: bool,
}

/// The properties of a node that the plan needs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sign {
    /// True if it has a process.
    pub(super) up: bool,
    /// True if its deadline has come.
    pub(super) due: bool,
    /// True if its work runs.
    pub(super) works: bool,
    /// True if its work is told to drain.
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
    pub(super) told: bool,
}

/// Nodes and messages by their numbers, and the effects of acts on them.
#[derive(Debug)]
pub(super) struct Transitions<M: Machine> {
    pub(super) bounds: PeerBounds,
    pub(super) nodes: Interned<Node<M>>,
    pub(super) items: Interned<Item<M::Message>>,
    pub(super) signs: Vec<Sign>,
    /// The messages to each node.
    pub(super) to: [Wire; SEATS_MAX as usize],
    /// The messages that change nothing in each node, as far as they were tried.
    pub(super) idle: Vec<Wire>,
    known: HashMap<u64, Rc<[Way]>, BuildFold>,
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

    /// Returns every way in which an act can go.
    pub(super) fn ways(&mut self, node: u32, act: Act) -> Rc<[Way]> {
        let key = u64::from(node) << 32 | u64::from(code(act));
        if let Some(known) = self.known.get(&key) {
            return Rc::clone(known);
        }
        let ways = self.ask(node, act);
        if let (Act::Hear(item), [way]) = (act, &*ways)
            && way.node == node
            && way.is_silent()
        {
            self.idle[node as usize].add(u16::try_from(item).expect("the number of a message"));
        }
        self.known.insert(key, Rc::clone(&ways));
        ways
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

    /// Returns the node after an act, and what others can see of it, including the text for people.
    pub(super) fn act(
        &self,
        before: &Node<M>,
        act: Act,
        crash_after: Option<usize>,
    ) -> (Node<M>, Doings<M::Message>) {
        let mut node = before.clone();
        let mut doings = Doings::default();
        let heard = self.heard(act);
        match Node::<M>::input(self.meant(act), heard, &self.bounds) {
            Some(input) => {
                if act == Act::Drained {
                    node.works.drained();
                }
                let outputs = outputs(&mut node, input);
                let crashes = crash_after.is_some();
                for output in outputs.into_iter().take(crash_after.unwrap_or(usize::MAX)) {
                    doings.told.push(super::display::effect::<M>(&output));
                    node.perform(output, &mut doings);
                }
                if crashes {
                    self.crash(&mut node, &mut doings);
                }
            }
            None => match act {
                Act::Tick(by) => node.tick(by, &self.bounds),
                Act::Crash => self.crash(&mut node, &mut doings),
                Act::Start => node.start(&self.bounds, &mut doings),
                Act::JobEnds => node.end_job(),
                Act::GuardianDies => node.works.guardian_dies(),
                Act::JobExits => {
                    node.works.exit();
                    doings.facts.push(Fact::JobExited);
                }
                Act::Hear(_) | Act::Timeout | Act::Drained | Act::Resign | Act::Transfer(_) => {}
                Act::Connected(..) | Act::Disconnected(_) | Act::Died(..) => {}
            },
        }
        node.settle(&self.bounds);
        (node, doings)
    }

    /// Without a guardian a process that ends is started again at once: a process that stays away is no
    /// different from one that is late with everything.
    fn crash(&self, node: &mut Node<M>, doings: &mut Doings<M::Message>) {
        node.crash();
        if !self.bounds.guardians {
            node.start(&self.bounds, doings);
        }
    }

    /// A notice of a death is received like a message.
    fn meant(&self, act: Act) -> Act {
        match act {
            Act::Hear(item) => match **self.items.value(item) {
                Item::Died { of, starts, .. } => Act::Died(of, starts),
                Item::Said { .. } => act,
            },
            Act::Timeout | Act::Tick(_) | Act::Crash | Act::Start | Act::Drained | Act::Resign => act,
            Act::Transfer(_) | Act::Connected(..) | Act::Disconnected(_) | Act::Died(..) => act,
            Act::JobExits | Act::JobEnds | Act::GuardianDies => act,
        }
    }

    fn heard(&self, act: Act) -> Option<(NodeId, M::Message)> {
        let Act::Hear(item) = act else { return None };
        match &**self.items.value(item) {
            Item::Said { from, message, .. } => Some((name(*from), message.clone())),
            Item::Died { .. } => None,
        }
    }

    fn ask(&mut self, number: u32, act: Act) -> Rc<[Way]> {
        let before = Rc::clone(self.nodes.value(number));
        let mut crashes = vec![None];
        if self.bounds.crashes > 0
            && let Some(input) = Node::<M>::input(self.meant(act), self.heard(act), &self.bounds)
        {
            let outputs = outputs(&mut Node::<M>::clone(&before), input);
            // Between two effects; no other node sees the events for the application.
            let matters = |output: &Output<M::Message, HardState>| !matches!(output, Output::Event(_));
            crashes.extend((1..outputs.len()).filter(|&next| matters(&outputs[next])).map(Some));
        }
        let mut ways = Vec::new();
        for crash_after in crashes {
            let (node, doings) = self.act(&before, act, crash_after);
            ways.push(self.way(act, node, doings, crash_after));
        }
        ways.into()
    }

    fn way(
        &mut self,
        act: Act,
        node: Node<M>,
        mut doings: Doings<M::Message>,
        crash_after: Option<usize>,
    ) -> Way {
        let (from, starts, within) = (node.seat, node.starts, self.is_within(&node));
        let rounds = rounds::<M>(&doings);
        if !within {
            // No search goes on from there, and a term that no other node has reached cannot be judged.
            doings.sent.clear();
            doings.facts.retain(|fact| fact.term().is_none_or(|term| term.0 <= u64::from(self.bounds.terms)));
        }
        let mut sent = Wire::default();
        let heard = |message: &M::Message| self.bounds.refusals || !M::is_refusal(message);
        for (to, message) in doings.sent.into_iter().filter(|(_, message)| heard(message)).collect::<Vec<_>>()
        {
            sent.add(self.item(Item::Said { from, to: seat(to), message }));
        }
        if act == Act::JobEnds {
            for to in (0..self.bounds.voters).filter(|&to| to != from) {
                sent.add(self.item(Item::Died { of: from, starts, to }));
            }
        }
        let node = self.number(node);
        Way { node, sent, rounds, facts: doings.facts, broken: doings.broken, crash_after, within }
    }

    fn is_within(&self, node: &Node<M>) -> bool {
        let term = node.machine.as_ref().map_or(node.disk.term, |machine| machine.view().term);
        term.0 <= u64::from(self.bounds.terms)
    }
}

impl Way {
    /// The number of the step that goes so: the node, the act, and where it crashes.
    pub(super) fn number(&self, act: Act, seat: u8) -> u32 {
        let crash = u32::try_from(self.crash_after.unwrap_or(0)).expect("a handful of effects");
        let act = code(act);
        let (kind, argument) = (act >> 24, act & 0xFFFF);
        crash << 22 | kind << 18 | u32::from(seat) << 16 | argument
    }

    /// True if no other node can see it.
    fn is_silent(&self) -> bool {
        self.within && self.sent == Wire::default() && self.facts.is_empty() && self.broken.is_none()
    }
}

/// The number of rounds of questions that are begun.
fn rounds<M: Machine>(doings: &Doings<M::Message>) -> u8 {
    let begun = doings.sent.iter().filter_map(|(_, message)| M::begins(message));
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
        told: node.told,
    }
}

/// A number for each act.
fn code(act: Act) -> u32 {
    let (kind, argument) = match act {
        Act::Hear(item) => (0, item),
        Act::Timeout => (1, 0),
        Act::Tick(by) => (2, u32::from(by)),
        Act::Crash => (3, 0),
        Act::Start => (4, 0),
        Act::Drained => (5, 0),
        Act::Resign => (6, 0),
        Act::Transfer(to) => (7, u32::from(to)),
        Act::Connected(seat, starts) => (8, u32::from(seat) << 8 | u32::from(starts)),
        Act::Disconnected(seat) => (9, u32::from(seat)),
        Act::Died(seat, starts) => (10, u32::from(seat) << 8 | u32::from(starts)),
        Act::JobEnds => (11, 0),
        Act::GuardianDies => (12, 0),
        Act::JobExits => (13, 0),
    };
    kind << 24 | argument
}
