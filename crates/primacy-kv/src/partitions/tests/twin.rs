//! A simulation of nodes, each of which acts on its last view of the partitions, and is slow in everything.

use super::*;

/// One partition of one group.
type Which = (GroupName, u32);

const NODES: [&str; 5] = ["a", "b", "c", "d", "e"];
const GROUPS: [&str; 3] = ["g", "h", "i"];

/// An incarnation of a node, as the library's is.
#[derive(Clone)]
struct Life {
    name: NodeId,
    count: u64,
    /// Its session, as long as it counts its right to act as running.
    session: Option<SessionId>,
    /// Its last view.
    view: Partitions,
    /// The partitions that it acts for, and the number of each.
    acts: BTreeMap<Which, u64>,
    /// The partitions that it has stopped acting for.
    stopped: BTreeSet<(Which, u64)>,
    /// The commands that it has sent, which may be applied at any time, more than once.
    sent: Vec<Command>,
}

/// The number of times that each case has occurred.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Met {
    acted: u64,
    taken_back: u64,
    unasked: u64,
    late: u64,
    expired: u64,
    replaced: u64,
    dropped: u64,
    moved: u64,
    levelled: u64,
}

impl Met {
    pub(super) fn add(&mut self, other: Self) {
        self.acted += other.acted;
        self.taken_back += other.taken_back;
        self.unasked += other.unasked;
        self.late += other.late;
        self.expired += other.expired;
        self.replaced += other.replaced;
        self.dropped += other.dropped;
        self.moved += other.moved;
        self.levelled += other.levelled;
    }

    pub(super) fn is_lively(&self) -> bool {
        let Self { acted, taken_back, unasked, late, expired, replaced, dropped, moved, levelled } = *self;
        [acted, taken_back, unasked, late, expired, replaced, dropped, moved, levelled]
            .iter()
            .all(|&times| times > 500)
    }
}

pub(super) struct World {
    rng: Rng,
    truth: Partitions,
    lives: Vec<Life>,
    /// The sessions whose nodes have stopped, and that are not ended yet.
    silent: Vec<SessionId>,
    sessions: i64,
    /// The highest number under which a node has acted.
    highest: BTreeMap<Which, u64>,
    met: Met,
}

impl World {
    pub(super) fn new(seed: u64) -> Self {
        let life = |node| Life {
            name: name(node),
            count: 1,
            session: None,
            view: Partitions::default(),
            acts: BTreeMap::new(),
            stopped: BTreeSet::new(),
            sent: Vec::new(),
        };
        Self {
            rng: Rng::new(seed),
            truth: Partitions::default(),
            lives: NODES.map(life).to_vec(),
            silent: Vec::new(),
            sessions: 0,
            highest: BTreeMap::new(),
            met: Met::default(),
        }
    }

    pub(super) fn met(&self) -> Met {
        self.met
    }

    pub(super) fn partitions(&self) -> &Partitions {
        &self.truth
    }

    pub(super) fn step(&mut self) {
        let index = usize::try_from(self.rng.up_to(NODES.len() as u64 - 1)).unwrap();
        match self.rng.up_to(19) {
            0..=7 => self.look(index),
            8..=11 => self.deliver(index),
            12 => self.release_unasked(index),
            13 => self.stop(index),
            14 => self.expire(),
            15 => self.join(index),
            16 => self.restart(index),
            _ => self.operate(),
        }
        self.judge();
    }

    fn obey(&mut self, sender: Identity, command: &Command) -> bool {
        let before = self.truth.clone();
        let done = self.truth.obey(sender, command).is_ok();
        match command {
            Command::Release { .. } | Command::Move { .. } => {}
            Command::Join { .. }
            | Command::Leave { .. }
            | Command::Create { .. }
            | Command::Drop { .. }
            | Command::Drain { .. }
            | Command::Undrain { .. } => self.judge_loads(&before),
        }
        done
    }

    /// The node sees the present state, and does what it must.
    fn look(&mut self, index: usize) {
        let life = &mut self.lives[index];
        life.view = self.truth.clone();
        if self.rng.up_to(9) == 0 {
            let mut bytes = Vec::new();
            life.view.encode(&mut bytes);
            life.view = decoded(&bytes).unwrap();
            assert_eq!(life.view, self.truth);
        }
        let Some(session) = life.session.filter(|&session| life.view.session_of(life.name) == Some(session))
        else {
            return;
        };
        let mut seen = BTreeMap::new();
        let mut back = BTreeSet::new();
        for run in life.view.runs_with_primary(life.name) {
            for index in run.range.clone() {
                let which = (run.group.clone(), index);
                let number = run.partition.number;
                seen.insert(which.clone(), number);
                if life.stopped.contains(&(which.clone(), number)) {
                    continue;
                }
                if run.partition.plan == Plan::Stays {
                    if life.acts.insert(which.clone(), number).is_none() {
                        self.met.acted += 1;
                        let highest = self.highest.insert(which, number);
                        assert!(highest.is_none_or(|highest| highest < number), "numbers grow");
                    }
                } else {
                    life.acts.remove(&which);
                    life.stopped.insert((which.clone(), number));
                    back.insert(which);
                    self.met.taken_back += 1;
                }
            }
        }
        for (which, number) in &life.acts {
            assert_eq!(seen.get(which), Some(number), "nothing is taken from one that acts");
        }
        life.send_release(session, back);
    }

    fn release_unasked(&mut self, index: usize) {
        let life = &mut self.lives[index];
        let Some(session) = life.session else { return };
        let Some((which, number)) = life.acts.pop_first() else { return };
        life.stopped.insert((which.clone(), number));
        life.send_release(session, BTreeSet::from([which]));
        self.met.unasked += 1;
    }

    /// Applies a command that was sent; perhaps it comes again.
    fn deliver(&mut self, index: usize) {
        let life = &mut self.lives[index];
        let Some(last) = life.sent.len().checked_sub(1) else { return };
        let place = usize::try_from(self.rng.up_to(last as u64)).unwrap();
        let command = match self.rng.up_to(2) {
            0 => {
                self.met.late += 1;
                life.sent[place].clone()
            }
            _ => life.sent.remove(place),
        };
        let sender = life.identity();
        self.obey(sender, &command);
    }

    /// Ends its right to act, by its own clock.
    fn stop(&mut self, index: usize) {
        let life = &mut self.lives[index];
        life.acts.clear();
        self.silent.extend(life.session.take());
    }

    /// Ends a session by the leader's clock, after that.
    fn expire(&mut self) {
        if let Some(session) = self.silent.pop() {
            let before = self.truth.clone();
            self.met.expired += u64::from(self.truth.end(session));
            self.judge_loads(&before);
        }
    }

    fn join(&mut self, index: usize) {
        if self.lives[index].session.is_some() {
            return;
        }
        let sender = self.lives[index].identity();
        self.sessions += 1;
        let session = session(self.sessions);
        if self.obey(sender, &Command::Join { session, time_to_live: Duration::from_secs(1) }) {
            self.lives[index].session = Some(session);
        }
    }

    /// Ends the process, and starts another incarnation at once; commands of the first may still arrive.
    fn restart(&mut self, index: usize) {
        let life = &mut self.lives[index];
        life.acts.clear();
        life.count += 1;
        let former = life.session.take();
        if self.rng.up_to(1) == 0 {
            self.silent.extend(former);
        }
        let was_up = self.truth.session_of(self.lives[index].name).is_some();
        self.join(index);
        self.met.replaced += u64::from(was_up && self.lives[index].session.is_some());
    }

    fn operate(&mut self) {
        let (group, node) = (group(self.rng.one_of(&GROUPS)), name(self.rng.one_of(&NODES)));
        let small = |rng: &mut Rng| u32::try_from(rng.up_to(11)).unwrap();
        let command = match self.rng.up_to(7) {
            0..=2 => Command::Create { group, count: small(&mut self.rng) },
            3 => Command::Drop { group },
            4 => Command::Drain { node },
            5 => Command::Undrain { node },
            _ => Command::Move { group, index: small(&mut self.rng), node },
        };
        let done = self.obey(identity("operator", 1), &command);
        match command {
            Command::Drop { .. } => self.met.dropped += u64::from(done),
            Command::Move { .. } => self.met.moved += u64::from(done),
            Command::Join { .. } | Command::Leave { .. } | Command::Release { .. } => {}
            Command::Create { .. } | Command::Drain { .. } | Command::Undrain { .. } => {}
        }
    }

    /// Checks that at most one node acts for each partition.
    fn judge(&self) {
        let mut acting = BTreeMap::new();
        for life in &self.lives {
            for (which, number) in &life.acts {
                let other = acting.insert(which, (life.name, number));
                assert_eq!(other, None, "{} acts for {which:?} too", life.name);
            }
        }
    }

    /// Checks that loads are even, and that no more was moved than must be; each counted anew, one partition after the
    /// other.
    fn judge_loads(&mut self, before: &Partitions) {
        if *before == self.truth {
            return;
        }
        let nodes = self.truth.nodes();
        let may_get: Vec<NodeId> =
            nodes.iter().filter(|node| node.up.is_some() && !node.drained).map(|node| node.node).collect();
        let mut all: BTreeMap<NodeId, u32> = may_get.iter().map(|&node| (node, 0)).collect();
        let groups: Vec<GroupName> =
            self.truth.groups().filter(|(_, size)| !size.ending).map(|(name, _)| name.clone()).collect();
        if may_get.is_empty() {
            return;
        }
        for group in &groups {
            let after = owners(&self.truth, group);
            let mut loads: BTreeMap<NodeId, u32> = may_get.iter().map(|&node| (node, 0)).collect();
            for owner in &after {
                *loads.get_mut(&owner.expect("it has an owner")).expect("who may have it") += 1;
            }
            assert!(is_level(&loads), "{group}: {loads:?}");
            for (node, load) in &loads {
                *all.get_mut(node).unwrap() += load;
            }
            if groups.len() == 1 {
                let former = owners(before, group);
                let moved = former.iter().zip(&after).filter(|(former, now)| {
                    former.is_some_and(|former| may_get.contains(&former)) && former != now
                });
                assert_eq!(moved.count(), least_moves(&former, &may_get, after.len()), "{group}");
                self.met.levelled += 1;
            }
        }
        assert!(is_level(&all), "{all:?}");
    }
}

impl Life {
    fn identity(&self) -> Identity {
        Identity { node: self.name, incarnation: Incarnation { count: self.count, nonce: self.count } }
    }

    fn send_release(&mut self, session: SessionId, back: BTreeSet<Which>) {
        let mut ranges: Vec<Ranges> = Vec::new();
        for (group, index) in back {
            match ranges.last_mut().filter(|last| last.group == group) {
                Some(last) => last.ranges.push(index..index + 1),
                None => ranges.push(Ranges { group, ranges: std::iter::once(index..index + 1).collect() }),
            }
        }
        if !ranges.is_empty() {
            self.sent.push(Command::Release { session, up_to: self.view.step(), ranges });
        }
    }
}

fn is_level(loads: &BTreeMap<NodeId, u32>) -> bool {
    loads.values().max().unwrap() - loads.values().min().unwrap() <= 1
}

/// The primary of each partition when all plans are done.
fn owners(partitions: &Partitions, group: &GroupName) -> Vec<Option<NodeId>> {
    let owner = |partition: Partition| match partition.plan {
        Plan::Stays => partition.primary,
        Plan::Taken(next) => next,
    };
    partitions.runs(group).flat_map(|run| run.range.map(move |_| owner(run.partition))).collect()
}

/// The number of partitions that must leave an owner that may keep its own: those above one of the largest shares.
fn least_moves(former: &[Option<NodeId>], may_get: &[NodeId], count: usize) -> usize {
    let has = |node: &NodeId| former.iter().filter(|owner| **owner == Some(*node)).count();
    let mut loads: Vec<usize> = may_get.iter().map(has).collect();
    loads.sort_unstable();
    let (each, rest) = (count / may_get.len(), count % may_get.len());
    loads
        .iter()
        .rev()
        .enumerate()
        .map(|(rank, has)| has.saturating_sub(each + usize::from(rank < rest)))
        .sum()
}
