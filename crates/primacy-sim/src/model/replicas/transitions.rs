//! The cached effect of each action on each node: the real machine runs once for each.

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;

use primacy_core::hard_state::Durability;
use primacy_core::{LeaderSequence, Term};
use primacy_kv::replication::log::{RecordBody, Write};
use primacy_kv::replication::message::Body;
use primacy_kv::replication::replica::Effect;

use super::applied_log::AppliedLog;
use super::bounds::ReplicaBounds;
use super::committed::CommittedRecords;
use super::node::{Cut, Item, Node, ReplicaAction, ReplicaResults, seat};
use crate::model::coverage::Coverage;
use crate::model::fold::BuildFold;
use crate::model::interned::Interned;
use crate::model::now::NOW;

/// The effect of an action on a node.
#[derive(Clone, Debug)]
pub(super) struct Transition {
    /// The resulting node.
    pub(super) node: u32,
    /// The messages that it sends.
    pub(super) sent: Vec<u32>,
    pub(super) coverage: Coverage,
    pub(super) broken: Option<&'static str>,
    /// The point at which its process ends, if it does.
    pub(super) cut: Option<Cut>,
}

/// The properties of a node that the search needs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sign {
    pub(super) life: u8,
    pub(super) bound: Term,
    pub(super) is_recovering: bool,
    pub(super) is_catching_up: bool,
    pub(super) leads: bool,
    pub(super) is_active: bool,
    pub(super) due: bool,
    pub(super) waits: u8,
    /// The number of the last record of its log.
    pub(super) last: LeaderSequence,
    pub(super) committed: LeaderSequence,
    /// The number of its applied state, if that is entirely committed.
    pub(super) current: Option<u32>,
    /// The records that it knows to be committed, as far as its log still has them.
    pub(super) order: u32,
}

/// The properties of a message that the search needs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Label {
    pub(super) from: u8,
    pub(super) from_life: u8,
    pub(super) to: u8,
    /// Of an answer: the process that has asked.
    pub(super) to_life: Option<u8>,
    pub(super) term: Term,
    pub(super) kind: Kind,
}

/// The kind of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A leader asks for the positions of other nodes, and its term binds them.
    Sync,
    /// A leader sends new records, up to this number.
    Append(LeaderSequence),
    /// The answer to a new leader.
    AnswersNew,
    /// The answer to a leader, and whether it reports a gap.
    Answers {
        gap: bool,
    },
    Fetch,
    /// The offer of a snapshot up to this number.
    Offer(LeaderSequence),
    Part,
    PartReply(LeaderSequence),
    Recover,
    RecoverReply,
}

impl Label {
    fn of(item: &Item) -> Self {
        let small = |number: u64| u8::try_from(number).expect("a few lives");
        let (kind, to_life) = match &item.body {
            Body::Sync => (Kind::Sync, None),
            Body::Append { after, records, committed, .. } => {
                let last = records.last().map_or(*after, |record| record.number);
                (Kind::Append(last.max(*committed)), None)
            }
            Body::SyncReply { to, .. } | Body::Fetched { to, .. } => (Kind::AnswersNew, Some(to)),
            Body::AppendReply { to, gap, .. } => (Kind::Answers { gap: *gap }, Some(to)),
            Body::Fetch { .. } => (Kind::Fetch, None),
            Body::Offer { number } => (Kind::Offer(*number), None),
            Body::Part { .. } => (Kind::Part, None),
            Body::PartReply { to, number, .. } => (Kind::PartReply(*number), Some(to)),
            Body::Recover => (Kind::Recover, None),
            Body::RecoverReply { to, .. } => (Kind::RecoverReply, Some(to)),
        };
        Self {
            from: seat(item.from.node),
            from_life: small(item.from.incarnation.count),
            to: item.to,
            to_life: to_life.map(|life| small(life.count)),
            term: item.term,
            kind,
        }
    }
}

/// The interned nodes and messages of a space, with the cached effects of actions.
#[derive(Debug)]
pub(super) struct Transitions {
    pub(super) bounds: ReplicaBounds,
    pub(super) nodes: Interned<Node>,
    pub(super) signs: Vec<Sign>,
    items: Interned<Item>,
    /// The label of each message, by its number.
    pub(super) labels: Vec<Label>,
    pub(super) applied: Interned<AppliedLog>,
    pub(super) orders: Interned<CommittedRecords>,
    transitions: HashMap<(u32, u32), Rc<[Transition]>, BuildFold>,
}

impl Transitions {
    pub(super) fn new(bounds: ReplicaBounds) -> Self {
        Self {
            bounds,
            nodes: Interned::default(),
            signs: Vec::new(),
            items: Interned::default(),
            labels: Vec::new(),
            applied: Interned::default(),
            orders: Interned::default(),
            transitions: HashMap::default(),
        }
    }

    pub(super) fn number(&mut self, node: Node) -> u32 {
        let sign = self.sign(&node);
        let (number, new) = self.nodes.number(node);
        if new {
            self.signs.push(sign);
        }
        number
    }

    fn sign(&mut self, node: &Node) -> Sign {
        let replica = &node.replica;
        let current = replica.is_current().then(|| self.applied.number(replica.state().clone()).0);
        Sign {
            life: node.life,
            bound: replica.bound(),
            is_recovering: replica.is_recovering(),
            is_catching_up: replica.is_catching_up(),
            leads: replica.leads(),
            is_active: replica.is_active(),
            due: replica.deadline().is_some_and(|at| at <= NOW),
            waits: node.waits(),
            last: replica.last(),
            committed: replica.committed(),
            current,
            order: self.orders.number(CommittedRecords::of(replica.log(), replica.committed())).0,
        }
    }

    /// Returns every transition of an action: the complete one, and one for each crash before or in the middle of a
    /// write. A crash elsewhere is equivalent to a later one after which the messages in between are lost.
    pub(super) fn of(&mut self, node: u32, action: ReplicaAction) -> Rc<[Transition]> {
        let key = (node, code(action));
        if let Some(transitions) = self.transitions.get(&key) {
            return Rc::clone(transitions);
        }
        let before = Rc::clone(self.nodes.value(node));
        let asked = catch_unwind(AssertUnwindSafe(|| self.ask(&before, action)));
        let transitions = asked.unwrap_or_else(|_| {
            let coverage = Coverage::default();
            vec![Transition { node, sent: Vec::new(), coverage, broken: Some("panic"), cut: None }]
        });
        let transitions: Rc<[Transition]> = transitions.into();
        self.transitions.insert(key, Rc::clone(&transitions));
        transitions
    }

    fn ask(&mut self, before: &Node, action: ReplicaAction) -> Vec<Transition> {
        let heard = self.heard(action);
        let (after, effects) = asked(before, action, heard.as_deref(), &self.bounds);
        let mut cuts = vec![None];
        if self.bounds.crashes > 0 {
            for (place, effect) in effects.iter().enumerate() {
                let records = match effect {
                    Effect::Write(Write::Append(records)) => records.len(),
                    Effect::Write(Write::Snapshot(_)) | Effect::Voters(_) => 1,
                    Effect::LogLost(_) => usize::from(self.bounds.durability == Durability::Fsync),
                    Effect::Send { .. } | Effect::TwoLeaders { .. } => 0,
                };
                cuts.extend((0..records).map(|kept| Some(Cut { effects: place, kept })));
            }
        }
        let mut transitions = Vec::new();
        for cut in cuts {
            let mut node = after.clone();
            let results = node.perform(effects.clone(), cut, &self.bounds);
            let (coverage, broken) = judged(before, &node, heard.as_deref(), &results);
            let sent = results.sent.into_iter().map(|item| self.item(item)).collect();
            transitions.push(Transition { node: self.number(node), sent, coverage, broken, cut });
        }
        transitions
    }

    fn item(&mut self, item: Item) -> u32 {
        let label = Label::of(&item);
        let (number, new) = self.items.number(item);
        if new {
            self.labels.push(label);
        }
        number
    }

    fn heard(&self, action: ReplicaAction) -> Option<Rc<Item>> {
        if let ReplicaAction::Hear(item) = action { Some(Rc::clone(self.items.value(item))) } else { None }
    }

    /// Returns an action and its effects as text for people.
    pub(super) fn told_of(&self, node: u32, action: ReplicaAction, cut: Option<Cut>) -> Vec<String> {
        let before = self.nodes.value(node);
        let heard = self.heard(action);
        let mut lines = vec![super::display::action(before.seat, action, heard.as_deref())];
        let results = catch_unwind(AssertUnwindSafe(|| {
            let (mut node, effects) = asked(before, action, heard.as_deref(), &self.bounds);
            node.perform(effects, cut, &self.bounds)
        }));
        lines.extend(results.map_or_else(|_| vec!["panics".to_owned()], |results| results.lines));
        lines
    }
}

/// Returns the node after an action, with its effects queued.
fn asked(
    before: &Node,
    action: ReplicaAction,
    heard: Option<&Item>,
    bounds: &ReplicaBounds,
) -> (Node, Vec<Effect>) {
    let mut after = before.clone();
    after.take(action, heard, bounds);
    let effects = std::iter::from_fn(|| after.replica.poll()).collect();
    (after, effects)
}

/// Returns the marks of one node's step, and the invariant that it breaks.
fn judged(
    before: &Node,
    after: &Node,
    heard: Option<&Item>,
    results: &ReplicaResults,
) -> (Coverage, Option<&'static str>) {
    let (mut coverage, mut broken) = (results.coverage, results.broken);
    let (was, is) = (&before.replica, &after.replica);
    if before.life == after.life {
        if is.last() < was.last() || is.committed() < was.committed() || is.applied() < was.applied() {
            broken = broken.or(Some("I9: a log goes back"));
        }
        let recovered = was.is_recovering() && !is.is_recovering();
        coverage.set_if(Coverage::RECOVERED, recovered && !is.leads());
        coverage.set_if(Coverage::RECOVERED_AS_LEADER, recovered && is.leads());
        coverage.set_if(
            Coverage::FETCHED,
            heard.is_some_and(brings_records) && was.is_catching_up() && is.last() > was.last(),
        );
        coverage.set_if(
            Coverage::DROPPED,
            payloads(before).iter().any(|number| !payloads(after).contains(number)),
        );
    }
    let installs = heard.is_some_and(|item| matches!(item.body, Body::PartReply { .. }));
    coverage.set_if(Coverage::SNAPSHOT_INSTALLED, installs && is.last() > was.last());
    let old = heard.is_some_and(|item| match item.body {
        Body::AppendReply { last, .. } => was.is_active() && last <= was.committed(),
        Body::Sync | Body::SyncReply { .. } | Body::Fetch { .. } | Body::Fetched { .. } => false,
        Body::Append { .. } | Body::Offer { .. } | Body::Part { .. } | Body::PartReply { .. } => false,
        Body::Recover | Body::RecoverReply { .. } => false,
    });
    coverage.set_if(Coverage::OLD_ANSWER, old);
    coverage.set_if(Coverage::ELECTED, is.is_active() && !was.is_active());
    (coverage, broken)
}

fn brings_records(item: &Item) -> bool {
    matches!(item.body, Body::Fetched { .. } | Body::PartReply { .. })
}

/// Returns the numbers of all payloads that a node holds.
fn payloads(node: &Node) -> Vec<LeaderSequence> {
    let applied = node.replica.state().0.iter().map(|entry| entry.number);
    let log = node.replica.log();
    let records = log.since(log.base(), usize::MAX).unwrap_or_default();
    let held = records.into_iter().filter(|record| matches!(record.body, RecordBody::Payload(_)));
    applied.chain(held.map(|record| record.number)).collect()
}

/// Returns a number for each action.
fn code(action: ReplicaAction) -> u32 {
    let (kind, argument) = match action {
        ReplicaAction::Hear(item) => (0, item),
        ReplicaAction::Due => (1, 0),
        ReplicaAction::Late(which) => (2, u32::from(which)),
        ReplicaAction::Propose => (3, 0),
        ReplicaAction::Lead(term) => (4, u32::from(term)),
        ReplicaAction::Crash => (5, 0),
        ReplicaAction::Accept => (6, 0),
        ReplicaAction::Connected(seat, life) => (7, u32::from(life) << 8 | u32::from(seat)),
        ReplicaAction::LoseDisk => (8, 0),
    };
    assert!(argument < 1 << 28, "fewer than 2^28 different messages");
    kind << 28 | argument
}
