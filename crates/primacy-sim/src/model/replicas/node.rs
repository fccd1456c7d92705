//! One node: its process and its disk, and all actions on them.

use std::collections::BTreeMap;
use std::sync::Arc;

use primacy_core::hard_state::Durability;
use primacy_core::state_reduction::StateReduction as _;
use primacy_core::{Duration, Identity, Incarnation, LeaderSequence, NodeId, Term};
use primacy_kv::replication::log::{Stored, Write};
use primacy_kv::replication::message::Body;
use primacy_kv::replication::replica::{Config, Effect, ROUND, Replica};
use primacy_kv::replication::voters::Voters;

use super::applied_log::AppliedLog;
use super::bounds::ReplicaBounds;
use crate::model::coverage::Coverage;
use crate::model::now::NOW;

/// The number of nodes.
pub(super) const SEATS: u8 = 3;

/// The number of the first process of each node.
pub(super) const FIRST_LIFE: u8 = 1;

/// The time until a resend. The search decides when it has passed.
const RESEND_AFTER: Duration = Duration::from_nanos(1000);

/// One node.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Node {
    pub(super) seat: u8,
    /// The number of its process, from [`FIRST_LIFE`].
    pub(super) life: u8,
    /// The voters on its disk. The term on the disk always equals the process's bound term.
    voters: Arc<Voters>,
    pub(super) disk: Stored,
    /// True if the disk records the loss of the log, beside the term. A log in memory is lost with every crash, and
    /// so needs no record.
    log_lost: bool,
    pub(super) replica: Replica<AppliedLog>,
}

/// An action on a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum ReplicaAction {
    /// A message arrives, by its number.
    Hear(u32),
    /// Its deadline is due.
    Due,
    /// The awaited answer at this position is overdue.
    Late(u8),
    /// A client proposes a write.
    Propose,
    /// The election reports that the node leads in this term.
    Lead(u8),
    /// A new process of that node connects with this one: its seat, and its number.
    Connected(u8, u8),
    /// Its process ends, and the next one starts.
    Crash,
    /// The same, with its log lost.
    LoseDisk,
    /// An operator accepts the loss of its log.
    Accept,
}

/// A message under way.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Item {
    pub(super) from: Identity,
    pub(super) to: u8,
    pub(super) term: Term,
    pub(super) body: Body,
}

/// The point at which a process ends: the number of completed effects, and of the records of the next effect that are
/// kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Cut {
    pub(super) effects: usize,
    pub(super) kept: usize,
}

/// The visible results of an action.
#[derive(Clone, Debug, Default)]
pub(super) struct ReplicaResults {
    pub(super) sent: Vec<Item>,
    pub(super) coverage: Coverage,
    /// The invariant that an effect itself has broken.
    pub(super) broken: Option<&'static str>,
    /// The effects, for people.
    pub(super) lines: Vec<String>,
}

pub(super) fn name(seat: u8) -> NodeId {
    NodeId::new(["a", "b", "c"][usize::from(seat)]).expect("a letter is a name")
}

/// Returns the seat of the node with this name.
pub(super) fn seat(node: NodeId) -> u8 {
    (0..SEATS).find(|&seat| name(seat) == node).expect("one of the nodes")
}

fn identity(seat: u8, life: u8) -> Identity {
    Identity::new(name(seat), Incarnation { count: u64::from(life), nonce: 0 })
}

impl Node {
    /// A node that starts for the first time.
    pub(super) fn new(seat: u8, bounds: &ReplicaBounds) -> Self {
        let members = (0..SEATS).map(|seat| (name(seat), Arc::from(""))).collect::<BTreeMap<_, _>>();
        let voters = Arc::new(Voters { number: LeaderSequence::NONE, members });
        let (life, disk) = (FIRST_LIFE, Stored::default());
        let replica = start(identity(seat, life), Term(0), Arc::clone(&voters), disk.clone(), false, bounds);
        let replica = replica.expect("there is nothing to be read");
        let mut node = Self { seat, life, voters, disk, log_lost: false, replica };
        node.hurry(bounds);
        node
    }

    pub(super) fn me(&self) -> Identity {
        identity(self.seat, self.life)
    }

    /// Returns the last number on its disk.
    pub(super) fn stored(&self) -> LeaderSequence {
        let snapshot = self.disk.snapshot.as_ref().map(|snapshot| snapshot.number);
        self.disk.records.last().map(|record| record.number).or(snapshot).unwrap_or_default()
    }

    /// Returns the number of awaited answers.
    pub(super) fn waits(&self) -> u8 {
        let mut count = 0;
        self.replica.clone().visit_instants(&mut |_, at| count += u8::from(*at > NOW));
        count
    }

    /// Runs due timeouts at once, unless messages and writes are batched.
    fn hurry(&mut self, bounds: &ReplicaBounds) {
        while !bounds.gathers && self.replica.deadline().is_some_and(|at| at <= NOW) {
            self.replica.on_timeout(NOW);
        }
    }

    /// Passes an action to the machine; its effects stay queued in it.
    pub(super) fn take(&mut self, action: ReplicaAction, heard: Option<&Item>, bounds: &ReplicaBounds) {
        match (action, heard) {
            (ReplicaAction::Hear(_), Some(item)) => {
                // The sender leads: its term binds this node, and is on the disk before any answer is sent.
                if item.body.leads() {
                    self.replica.bind(item.term);
                }
                self.replica.handle(NOW, item.from, item.term, item.body.clone());
            }
            (ReplicaAction::Hear(_), None) => {}
            (ReplicaAction::Due, _) => self.replica.on_timeout(NOW),
            (ReplicaAction::Late(which), _) => {
                let mut place = 0;
                self.replica.visit_instants(&mut |_, at| {
                    if *at > NOW {
                        if place == which {
                            *at = NOW;
                        }
                        place += 1;
                    }
                });
                self.replica.on_timeout(NOW);
            }
            (ReplicaAction::Propose, _) => {
                self.replica.propose(NOW, Arc::from([self.seat]));
            }
            (ReplicaAction::Lead(term), _) => {
                self.replica.bind(Term(u64::from(term)));
                self.replica.lead(NOW);
            }
            (ReplicaAction::Connected(seat, life), _) => self.replica.on_connected(NOW, identity(seat, life)),
            (ReplicaAction::Crash, _) => self.start_again(bounds),
            (ReplicaAction::LoseDisk, _) => {
                self.disk = Stored::default();
                self.log_lost = true;
                self.start_again(bounds);
            }
            (ReplicaAction::Accept, _) => {
                self.log_lost = false;
                self.start_with(false, bounds);
            }
        }
        self.hurry(bounds);
    }

    /// Starts the next process, which knows whether its log is lost.
    fn start_again(&mut self, bounds: &ReplicaBounds) {
        let lost = self.log_lost || bounds.durability == Durability::Memory;
        self.start_with(lost && bounds.recovers, bounds);
    }

    /// Starts a new process, with the contents of the disk.
    fn start_with(&mut self, log_lost: bool, bounds: &ReplicaBounds) {
        self.life += 1;
        let (me, bound, voters) = (self.me(), self.replica.bound(), Arc::clone(&self.voters));
        let replica = start(me, bound, voters, self.disk.clone(), log_lost, bounds);
        self.replica = replica.expect("what was written can be read");
    }

    /// Performs all queued effects of the machine.
    fn perform_all(&mut self, bounds: &ReplicaBounds) -> ReplicaResults {
        let effects = std::iter::from_fn(|| self.replica.poll()).collect();
        self.perform(effects, None, bounds)
    }

    /// Performs effects, up to the point at which the process ends.
    pub(super) fn perform(
        &mut self,
        effects: Vec<Effect>,
        cut: Option<Cut>,
        bounds: &ReplicaBounds,
    ) -> ReplicaResults {
        let mut results = ReplicaResults::default();
        for (place, effect) in effects.into_iter().enumerate() {
            let cut = cut.filter(|cut| place >= cut.effects);
            let kept = cut.map_or(usize::MAX, |cut| if place == cut.effects { cut.kept } else { 0 });
            match effect {
                Effect::Write(write) => self.write(write, kept, &mut results),
                Effect::Voters(voters) if cut.is_none() => self.voters = voters,
                Effect::Send { to, body } if cut.is_none() => {
                    let body = as_of_the_newest_round(body);
                    let (from, term) = (self.me(), self.replica.bound());
                    results.lines.push(format!("to {to}: {}", super::display::body(&body)));
                    results.sent.push(Item { from, to: seat(to), term, body });
                }
                Effect::Voters(_) | Effect::Send { .. } => {}
                Effect::LogLost(lost) if cut.is_none() && bounds.durability == Durability::Fsync => {
                    results
                        .lines
                        .push(format!("remembers that its log is {}", if lost { "lost" } else { "whole" }));
                    self.log_lost = lost;
                }
                Effect::LogLost(_) => {}
                Effect::TwoLeaders { known, other } => {
                    results.lines.push(format!("hears of two leaders, {known} and {other}"));
                    results.broken = results.broken.or(Some("I1"));
                }
            }
        }
        if cut.is_some() {
            results.coverage.0 |= Coverage::CRASHED_BETWEEN;
            results.lines.push("crashes, and starts again".to_owned());
            self.take(ReplicaAction::Crash, None, bounds);
            let begun = self.perform_all(bounds);
            results.sent.extend(begun.sent);
            results.lines.extend(begun.lines);
        } else if self.replica.on_performed(NOW) {
            self.hurry(bounds);
            let more = self.perform_all(bounds);
            results.sent.extend(more.sent);
            results.lines.extend(more.lines);
        }
        while self.replica.next_outcome().is_some() {}
        self.replica.simplify();
        results
    }

    /// Writes to the log on disk, whose last number must never go back.
    fn write(&mut self, write: Write, kept: usize, results: &mut ReplicaResults) {
        let last = self.stored();
        match write {
            Write::Append(records) => {
                let numbers = records.iter().take(kept).map(|record| record.number.to_string());
                results.lines.push(format!("writes {}", numbers.collect::<Vec<_>>().join(", ")));
                for record in records.into_iter().take(kept) {
                    if !record.follows(self.stored()) {
                        results.broken = results.broken.or(Some("I9: what is written does not follow"));
                    }
                    self.disk.records.push(record);
                }
            }
            Write::Snapshot(snapshot) if kept > 0 => {
                results.lines.push(format!("writes a snapshot up to {}", snapshot.number));
                results.coverage.0 |= Coverage::SNAPSHOT_WRITTEN;
                self.disk.records.retain(|record| record.number > snapshot.number);
                self.disk.snapshot = Some(snapshot);
            }
            Write::Snapshot(_) => {}
        }
        if self.stored() < last {
            results.broken = results.broken.or(Some("I9: a log goes back"));
        }
    }
}

/// Replaces the round of a message by the newest one: receivers and their answers do not depend on it.
fn as_of_the_newest_round(mut body: Body) -> Body {
    if let Body::Append { round, .. } = &mut body {
        *round = ROUND;
    }
    body
}

fn start(
    me: Identity,
    bound: Term,
    voters: Arc<Voters>,
    disk: Stored,
    log_lost: bool,
    bounds: &ReplicaBounds,
) -> Option<Replica<AppliedLog>> {
    let kept_max = if bounds.keeps { usize::MAX / 16 } else { 0 };
    let config = Config {
        me,
        durability: bounds.durability,
        resend_after: RESEND_AFTER,
        append_max: usize::MAX,
        window: usize::MAX,
        part_max: usize::MAX,
        snapshot_after: kept_max,
        kept_max,
        apply_max: usize::MAX,
    };
    Replica::new(config, bound, voters, disk, log_lost, NOW).ok()
}
