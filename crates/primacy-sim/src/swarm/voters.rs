//! Operators, who add and remove voters under all other faults.
//!
//! Their commands are drawn from a generator of their own, so that worlds without operators stay the same.

use primacy_core::NodeId;
use primacy_core::rng::Rng;

use super::{Swarm, one_in, text};
use crate::algorithm::Algorithm;
use crate::process_slot::ProcessSlot;

/// The constant that separates the operators' generator from that of the rest of the world. With this value no
/// operator changes the voters in the older worlds of seeds.txt.
const APART: u64 = 0x766f_7465_7282;

/// The maximum number of pending changes.
const WISHES_MAX: usize = 2;

/// The number of requests to a leader while a voter is cut off.
const STEPS: u64 = 30;

/// The operators that change the voters.
#[derive(Debug)]
pub(super) struct Operators {
    rng: Rng,
    /// The pending changes, the oldest first: a node, and whether it shall vote.
    changes: Vec<(NodeId, bool)>,
}

impl Operators {
    /// Returns `Some` in one world of three that has enough nodes.
    fn of(seed: u64, nodes: usize) -> Option<Self> {
        let mut rng = Rng::new(seed ^ APART);
        (nodes > 2 && one_in(&mut rng, 3)).then(|| Self { rng, changes: Vec::new() })
    }

    fn index(&mut self, count: usize) -> usize {
        usize::try_from(self.rng.up_to(count.saturating_sub(1) as u64)).unwrap_or(0)
    }

    fn one_of(&mut self, nodes: &[NodeId]) -> Option<NodeId> {
        nodes.get(self.index(nodes.len())).copied()
    }

    fn change(&mut self, node: NodeId, votes: bool) {
        self.changes.retain(|&(known, _)| known != node);
        self.changes.push((node, votes));
        if self.changes.len() > WISHES_MAX {
            self.changes.remove(0);
        }
    }
}

fn change_command(by: &str, (node, votes): (NodeId, bool)) -> String {
    format!("operator {by} {} {node}", if votes { "adds" } else { "removes" })
}

impl<A: Algorithm> Swarm<A> {
    /// Makes only some nodes voters, in the worlds in which voters change.
    pub(crate) fn begin_with_voters(&mut self, seed: u64, nodes: usize) {
        let Some(mut operators) = Operators::of(seed, nodes) else { return };
        let count = nodes.saturating_sub(operators.index(3)).max(if nodes > 3 { 3 } else { 2 });
        let voters: Vec<String> = self.world().slots().take(count).map(|slot| self.name(slot)).collect();
        self.tell(format!("voters all = {}", voters.join(" ")));
        // Without this, no candidate might be left.
        self.tell("set witness=false".to_owned());
        // A lone voter commits a record as soon as it has appended it, and the invariants must find that record in
        // some log.
        if self.forgets {
            self.tell("set kept_max=1000000".to_owned());
        }
        self.operators = Some(operators);
    }

    /// Repeats the operators' pending requests.
    pub(super) fn operate(&mut self) {
        let Some(mut operators) = self.operators.take() else { return };
        if operators.changes.is_empty() || one_in(&mut operators.rng, 4) {
            self.want(&mut operators);
        }
        match operators.rng.up_to(15) {
            0 => self.leave_behind(&mut operators),
            1 | 2 => self.want_at_once(&mut operators),
            3 => self.want_of_two(&mut operators),
            _ => {
                for change in operators.changes.clone() {
                    let leader = self.world().leaders().next().filter(|_| !one_in(&mut operators.rng, 3));
                    let count = self.world().slots().count();
                    let slot = leader.unwrap_or_else(|| ProcessSlot(operators.index(count)));
                    self.change(slot, change);
                }
            }
        }
        self.operators = Some(operators);
    }

    fn change(&mut self, slot: ProcessSlot, change: (NodeId, bool)) {
        if self.runs(slot) {
            let name = self.name(slot);
            self.tell(change_command(&name, change));
        }
    }

    /// Adds a change: one voter more, one fewer, or one in place of another.
    fn want(&mut self, operators: &mut Operators) {
        let (votes, others) = self.voters_and_others();
        let more = operators.one_of(&others);
        let fewer = operators.one_of(&votes).filter(|_| votes.len() > 1);
        let which = operators.rng.up_to(2);
        if let Some(node) = more.filter(|_| which > 0 || fewer.is_none()) {
            operators.change(node, true);
        }
        if let Some(node) = fewer.filter(|_| which < 2 || more.is_none()) {
            operators.change(node, false);
        }
    }

    fn voters_and_others(&self) -> (Vec<NodeId>, Vec<NodeId>) {
        let voters = self.world().newest_voters();
        let names = self.world().slots().map(|slot| self.world().node(slot).name);
        names.partition(|name| voters.contains(name))
    }

    /// Requests two changes in a row from a leader, which may be cut off just before: the second one must not
    /// begin before the first one is committed.
    fn want_at_once(&mut self, operators: &mut Operators) {
        let Some(leader) = self.world().leaders().next() else { return };
        let own = self.world().node(leader).name;
        let name = self.name(leader);
        if one_in(&mut operators.rng, 2) {
            self.tell(format!("isolate {name}"));
            self.cut_off = true;
        }
        let mut voters: Vec<NodeId> = self.world().voters_of(leader).into_iter().collect();
        voters.retain(|&voter| voter != own);
        for _ in 0..2 {
            let Some(voter) = operators.one_of(&voters) else { break };
            voters.retain(|&other| other != voter);
            self.change(leader, (voter, false));
        }
    }

    /// Cuts off a leader that has written a record with only one other voter, and asks it to remove a third one: the
    /// two may then be a majority of the rest. Then the other voter restarts, perhaps without its log.
    fn want_of_two(&mut self, operators: &mut Operators) {
        let Some(leader) = self.world().leaders().next() else { return };
        let (own, name) = (self.world().node(leader).name, self.name(leader));
        let mut voters: Vec<NodeId> = self.world().voters_of(leader).into_iter().collect();
        voters.retain(|&voter| voter != own);
        let Some(other) = operators.one_of(&voters) else { return };
        voters.retain(|&voter| voter != other);
        let Some(third) = operators.one_of(&voters) else { return };
        for voter in voters {
            self.tell(format!("cut {name} {voter}"));
        }
        self.tell(format!("client {name} put alone {}", operators.rng.up_to(u64::from(u16::MAX))));
        self.tell(format!("advance {}", text(self.patience.divided_by(16))));
        self.tell(format!("isolate {name}"));
        self.cut_off = true;
        self.change(leader, (third, false));
        self.tell(format!("advance {}", text(self.patience.divided_by(16))));
        let found = self.world().slots().find(|&slot| self.world().node(slot).name == other);
        if let Some(slot) = found.filter(|&slot| self.runs(slot)) {
            self.came_off("ploy: of two");
            self.kill_and_start(slot);
        }
    }

    /// Cuts off a voter while other voters are added and removed, so that it campaigns with an old list of voters;
    /// the leader is cut off as soon as the voter is back.
    fn leave_behind(&mut self, operators: &mut Operators) {
        let Some(leader) = self.world().leaders().next() else { return };
        let own = self.world().node(leader).name;
        let known = self.world().voters_of(leader);
        let others: Vec<NodeId> = known.iter().copied().filter(|&voter| voter != own).collect();
        let Some(behind) = operators.one_of(&others) else { return };
        self.tell(format!("isolate {behind}"));
        let step = self.patience.divided_by(4);
        for _ in 0..STEPS {
            let Some(leader) = self.world().leaders().next() else { break };
            if operators.changes.is_empty() || one_in(&mut operators.rng, 3) {
                self.want(operators);
            }
            for change in operators.changes.clone() {
                self.change(leader, change);
            }
            self.tell(format!("advance {}", text(step)));
            let now = self.world().newest_voters();
            if now.symmetric_difference(&known).count() > 1 {
                self.came_off("ploy: left behind");
                break;
            }
        }
        self.tell("heal".to_owned());
        let leader = self.world().leaders().next();
        if let Some(leader) = leader {
            let name = self.name(leader);
            self.tell(format!("isolate {name}"));
            self.cut_off = true;
        }
    }
}
