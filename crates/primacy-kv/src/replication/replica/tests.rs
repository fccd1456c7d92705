//! Replicas among themselves: drawn orders of messages, losses, duplicates, crashes and leaders, against the
//! guarantees.

mod slow_follower;
mod voters;

use std::collections::BTreeMap;

use primacy_core::majority;
use primacy_core::rng::Rng;

use super::*;

/// All payloads, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct History(Vec<u8>);

impl Replicated for History {
    type Outcome = u8;

    fn apply(&mut self, _: LeaderSequence, payload: &[u8], _: Identity) -> u8 {
        self.0.extend_from_slice(payload);
        payload[0]
    }

    fn snapshot(&self) -> Arc<[u8]> {
        Arc::from(&*self.0)
    }

    fn restore(bytes: &[u8]) -> Result<Self, DecodeError> {
        Ok(Self(bytes.to_vec()))
    }

    fn empty() -> Self {
        Self::default()
    }
}

#[derive(Debug)]
struct Node {
    life: u64,
    /// The term, the voters and the log that are on its disk.
    bound: Term,
    voters: Arc<Voters>,
    disk: Stored,
    /// True if the log that was there is lost.
    log_lost: bool,
    replica: Option<Replica<History>>,
}

#[derive(Debug)]
struct Packet {
    to: usize,
    from: Identity,
    term: Term,
    body: Body,
}

#[derive(Debug)]
struct World {
    rng: Rng,
    now: Instant,
    durability: Durability,
    apply_max: usize,
    /// True if voters come and go.
    revisable: bool,
    nodes: Vec<Node>,
    packets: Vec<Packet>,
    term: Term,
    leaders: BTreeMap<Term, usize>,
    /// The committed payloads, each as the first node that reported it had it.
    committed: BTreeMap<LeaderSequence, u8>,
    history: Vec<u8>,
    payload: u8,
    counts: BTreeMap<&'static str, u64>,
}

fn name(index: usize) -> NodeId {
    NodeId::new(["a", "b", "c", "d", "e"][index]).unwrap()
}

fn identity(index: usize, life: u64) -> Identity {
    Identity::new(name(index), Incarnation { count: life, nonce: 0 })
}

fn config(me: Identity, durability: Durability) -> Config {
    Config {
        me,
        durability,
        resend_after: Duration::from_millis(10),
        append_max: 150,
        window: 400,
        part_max: 3,
        snapshot_after: 300,
        kept_max: 300,
        apply_max: usize::MAX,
    }
}

impl World {
    fn new(seed: u64, durability: Durability) -> Self {
        let mut rng = Rng::new(seed);
        let count = 1 + 2 * usize::try_from(rng.next_u64() % 3).unwrap();
        // The nodes that do not vote at first may be added.
        let voting = if rng.next_u64().is_multiple_of(2) { count } else { 1 + count / 2 };
        let members = (0..voting).map(|index| (name(index), Arc::from("nowhere"))).collect();
        let voters = Arc::new(Voters { number: LeaderSequence::NONE, members });
        let node = |_| Node {
            life: 0,
            bound: Term(0),
            voters: Arc::clone(&voters),
            disk: Stored::default(),
            log_lost: false,
            replica: None,
        };
        let mut world = Self {
            rng,
            now: Instant::default(),
            durability,
            apply_max: [1, 200, usize::MAX][usize::try_from(seed % 3).unwrap()],
            revisable: voting < count,
            nodes: (0..count).map(node).collect(),
            packets: Vec::new(),
            term: Term(0),
            leaders: BTreeMap::new(),
            committed: BTreeMap::new(),
            history: Vec::new(),
            payload: 0,
            counts: BTreeMap::new(),
        };
        for index in 0..count {
            world.start(index, false);
        }
        world
    }

    fn count(&mut self, what: &'static str) {
        *self.counts.entry(what).or_default() += 1;
    }

    fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.rng.next_u64() % bound as u64).unwrap()
    }

    fn chance(&mut self, percent: u64) -> bool {
        self.rng.next_u64() % 100 < percent
    }

    fn start(&mut self, index: usize, again: bool) {
        let loses_disk =
            again && self.durability == Durability::Fsync && self.chance(20) && self.may_forget(index);
        if loses_disk {
            self.count("disk lost");
            (self.nodes[index].disk, self.nodes[index].log_lost) = (Stored::default(), true);
        }
        let node = &mut self.nodes[index];
        node.life += 1;
        let config =
            Config { apply_max: self.apply_max, ..config(identity(index, node.life), self.durability) };
        let lost = match self.durability {
            Durability::Fsync => node.log_lost,
            Durability::Memory => again,
        };
        let replica =
            Replica::new(config, node.bound, Arc::clone(&node.voters), node.disk.clone(), lost, self.now);
        node.replica = Some(replica.expect("what was written can be read"));
        let me = identity(index, node.life);
        self.drain(index);
        let now = self.now;
        for other in (0..self.nodes.len()).filter(|&other| other != index) {
            if let Some(replica) = &mut self.nodes[other].replica {
                replica.on_connected(now, me);
                self.drain(other);
            }
        }
    }

    /// Performs effects, or dies in between.
    fn drain(&mut self, index: usize) {
        loop {
            let node = &mut self.nodes[index];
            let Some(replica) = &mut node.replica else { return };
            let Some(effect) = replica.poll() else {
                if replica.on_performed(self.now) {
                    continue;
                }
                break;
            };
            if self.rng.next_u64().is_multiple_of(2000) && self.may_crash(index) {
                self.count("crash between effects");
                return self.crash(index);
            }
            let node = &mut self.nodes[index];
            let Some(replica) = &node.replica else { return };
            match effect {
                Effect::Write(Write::Append(records)) => {
                    for record in records {
                        let last = node.disk.records.last().map(|record| record.number);
                        let last = last.or(node.disk.snapshot.as_ref().map(|snapshot| snapshot.number));
                        assert!(
                            record.follows(last.unwrap_or_default()),
                            "{record:?} does not follow {last:?} on a disk"
                        );
                        node.disk.records.push(record);
                    }
                }
                Effect::Write(Write::Snapshot(snapshot)) => {
                    node.disk.records.retain(|record| record.number > snapshot.number);
                    node.disk.snapshot = Some(snapshot);
                    self.count("snapshot written");
                }
                Effect::Voters(voters) => node.voters = voters,
                Effect::LogLost(lost) => node.log_lost = lost,
                Effect::Send { to, body } => {
                    let (from, term) = (replica.config.me, replica.bound());
                    let to = (0..self.nodes.len()).find(|&index| name(index) == to).unwrap();
                    self.packets.push(Packet { to, from, term, body });
                }
                Effect::TwoLeaders { known, other } => panic!("two leaders: {known:?} and {other:?}"),
            }
        }
        self.judge(index);
    }

    /// Checks that all that is committed anywhere is the same everywhere.
    fn judge(&mut self, index: usize) {
        let Some(replica) = &mut self.nodes[index].replica else { return };
        while let Some((number, outcome)) = replica.next_outcome() {
            let known = *self.committed.entry(number).or_insert(outcome);
            assert_eq!(known, outcome, "{number} means two things");
        }
        if replica.is_current() {
            let (state, known) = (&replica.state().0, &mut self.history);
            let both = state.len().min(known.len());
            assert_eq!(state[..both], known[..both], "{} applied something else", name(index));
            if state.len() > known.len() {
                known.extend_from_slice(&state[both..]);
            }
        }
        if replica.is_active() && replica.bound() == self.term {
            let (state, known) = (replica.state().0.len(), self.history.len());
            assert!(state >= known, "{} is active and lacks what was committed", name(index));
        }
    }

    fn may_crash(&self, index: usize) -> bool {
        match self.durability {
            Durability::Fsync => true,
            Durability::Memory => self.may_forget(index),
        }
    }

    /// True if fewer than a majority may have lost their logs, whichever voters a node may count.
    fn may_forget(&self, index: usize) -> bool {
        let whole = |voter: NodeId| {
            let node = (0..self.nodes.len()).find(|&it| it != index && name(it) == voter);
            let replica = node.and_then(|node| self.nodes[node].replica.as_ref());
            replica.is_some_and(|it| !it.is_recovering())
        };
        let enough = |set: &Arc<Voters>| {
            set.members.keys().filter(|&&voter| whole(voter)).count() >= majority::needed(set.count())
        };
        self.nodes.iter().all(|node| enough(node.replica.as_ref().map_or(&node.voters, Replica::voters)))
    }

    fn crash(&mut self, index: usize) {
        self.nodes[index].replica = None;
    }

    /// A node campaigns, and is voted for as in a quorum: in a term above all that its voters are bound to, by a
    /// majority of the voters that it knows, none of which knows newer ones.
    fn elect(&mut self) {
        let candidate = self.below(self.nodes.len());
        let Some(replica) = &self.nodes[candidate].replica else { return };
        let (voters, term) = (Arc::clone(replica.voters()), self.nodes[candidate].bound.next());
        if !voters.contains(name(candidate)) {
            return;
        }
        let all_hear = self.chance(50);
        let mut votes = 0;
        for index in 0..self.nodes.len() {
            let asked = voters.contains(name(index)) && (index == candidate || all_hear || self.chance(70));
            let Some(voter) = self.nodes[index].replica.as_mut().filter(|_| asked) else { continue };
            let theirs = Arc::clone(voter.voters());
            if theirs.names() != voters.names() {
                if theirs.number > voters.number {
                    self.nodes[candidate].replica.as_mut().unwrap().tell_voters(&theirs);
                    self.drain(candidate);
                    self.count("candidate told of newer voters");
                    return;
                }
                voter.tell_voters(&voters);
                self.drain(index);
            }
            if term > self.nodes[index].bound {
                self.bind(index, term);
                votes += 1;
            }
        }
        if votes < majority::needed(voters.count()) {
            return;
        }
        let known = self.leaders.insert(term, candidate);
        assert_eq!(known, None, "two leaders in the term {term}");
        self.term = self.term.max(term);
        let now = self.now;
        if let Some(replica) = &mut self.nodes[candidate].replica {
            replica.lead(now);
            self.count("elected");
        }
        self.drain(candidate);
    }

    /// An operator adds a voter, or removes one.
    fn revise(&mut self, leader: usize) {
        let node = self.below(self.nodes.len());
        let change = match self.chance(50) {
            true => VoterChange::Add { node: name(node), address: Arc::from("nowhere") },
            false => VoterChange::Remove { node: name(node) },
        };
        let up: Vec<NodeId> =
            (0..self.nodes.len()).filter(|&index| self.nodes[index].replica.is_some()).map(name).collect();
        let now = self.now;
        let Some(replica) = &mut self.nodes[leader].replica else { return };
        match replica.revise(now, &change, true, |voter| up.contains(&voter)) {
            Progress::Committing => self.count("voters changed"),
            Progress::CatchingUp { .. } => self.count("taught"),
            Progress::Done | Progress::Waiting | Progress::Resigning | Progress::Refused(_) => {}
        }
        self.drain(leader);
    }

    fn bind(&mut self, index: usize, term: Term) {
        let node = &mut self.nodes[index];
        node.bound = node.bound.max(term);
        if let Some(replica) = &mut node.replica {
            replica.bind(term);
        }
        self.drain(index);
    }

    fn deliver(&mut self, index: usize) {
        let Packet { to, from, term, body } = self.packets.swap_remove(index);
        if self.chance(5) {
            return;
        }
        if self.chance(5) {
            self.packets.push(Packet { to, from, term, body: body.clone() });
        }
        if body.leads() && term > self.nodes[to].bound {
            self.bind(to, term);
        }
        let now = self.now;
        if let Some(replica) = &mut self.nodes[to].replica {
            replica.handle(now, from, term, body);
        }
        self.drain(to);
    }

    fn step(&mut self) {
        let node = self.below(self.nodes.len());
        match self.below(100) {
            0..70 if !self.packets.is_empty() => {
                // Mostly the oldest, sometimes any.
                let index = if self.chance(70) { 0 } else { self.below(self.packets.len()) };
                self.deliver(index);
            }
            0..88 => {
                let due = |node: &Node| node.replica.as_ref().and_then(Replica::deadline);
                let next = self.nodes.iter().filter_map(due).min();
                self.now = self.now.after(Duration::from_nanos(1000)).max(next.unwrap_or_default());
                for index in 0..self.nodes.len() {
                    let now = self.now;
                    if self.nodes[index]
                        .replica
                        .as_ref()
                        .and_then(Replica::deadline)
                        .is_some_and(|at| at <= now)
                    {
                        self.nodes[index].replica.as_mut().unwrap().on_timeout(now);
                        self.drain(index);
                    }
                }
            }
            88..97 => {
                self.payload = self.payload.wrapping_add(1);
                let (now, payload) = (self.now, Arc::from([self.payload]));
                if let Some(replica) = &mut self.nodes[node].replica
                    && replica.propose(now, payload)
                {
                    self.count("proposed");
                }
                self.drain(node);
            }
            97 if self.below(4) == 0 => self.elect(),
            97 if self.revisable => {
                let active = |node: &Node| node.replica.as_ref().is_some_and(Replica::is_active);
                if let Some(leader) = self.nodes.iter().position(active) {
                    self.revise(leader);
                }
            }
            98 if self.nodes[node].replica.is_some() && self.below(4) == 0 && self.may_crash(node) => {
                self.count("crash");
                self.crash(node);
            }
            99 if self.nodes[node].replica.is_none() => self.start(node, true),
            _ => {}
        }
    }

    /// All are up, nothing is lost, one leads: then all have the same.
    fn heal(&mut self) {
        for index in 0..self.nodes.len() {
            if self.nodes[index].replica.is_none() {
                self.start(index, true);
            }
        }
        self.packets.clear();
        let mut tries = 0;
        let leader = loop {
            tries += 1;
            assert!(tries < 1000, "nobody can lead any more: {:?}", self.nodes);
            self.elect();
            self.settle();
            // A leader that was let go before it heard of a later one believes on: here no lease ends.
            let bound = |voter: NodeId| self.nodes[(0..).find(|&it| name(it) == voter).unwrap()].bound;
            let leads = |node: &Node| {
                let active = node.replica.as_ref().filter(|it| it.is_active() && it.bound() == self.term);
                // A real leader learns of higher terms by the answers to its heartbeats.
                active.is_some_and(|it| it.voters().members.keys().all(|&voter| bound(voter) == self.term))
            };
            if let Some(leader) = self.nodes.iter().position(leads) {
                break leader;
            }
        };
        let whole = &self.nodes[leader].replica.as_ref().unwrap();
        let (state, last) = (whole.state().clone(), whole.last());
        assert_eq!(state.0, self.history, "the leader has all that was ever committed, and no more");
        let voters = Arc::clone(self.nodes[leader].replica.as_ref().unwrap().voters());
        for (index, node) in self.nodes.iter().enumerate().filter(|(index, _)| voters.contains(name(*index)))
        {
            let replica = node.replica.as_ref().unwrap();
            assert_eq!((replica.state(), replica.last()), (&state, last), "{index} {replica:?}");
            assert!(replica.is_current() && !replica.is_recovering(), "{} {replica:?}", name(index));
        }
    }

    fn settle(&mut self) {
        for _ in 0..20_000 {
            while let Some(Packet { to, from, term, body }) =
                if self.packets.is_empty() { None } else { Some(self.packets.remove(0)) }
            {
                if body.leads() && term > self.nodes[to].bound {
                    self.bind(to, term);
                }
                let now = self.now;
                if let Some(replica) = &mut self.nodes[to].replica {
                    replica.handle(now, from, term, body);
                }
                self.drain(to);
            }
            for index in 0..self.nodes.len() {
                if self.nodes[index].replica.is_none() {
                    self.start(index, true);
                }
            }
            let due = |node: &Node| node.replica.as_ref().and_then(Replica::deadline);
            let Some(next) = self.nodes.iter().filter_map(due).min() else { break };
            self.now = self.now.max(next);
            for index in 0..self.nodes.len() {
                let now = self.now;
                if let Some(replica) = &mut self.nodes[index].replica
                    && replica.deadline().is_some_and(|at| at <= now)
                {
                    replica.on_timeout(now);
                    self.drain(index);
                }
            }
        }
    }
}

fn worlds(durability: Durability, seeds: core::ops::Range<u64>) -> BTreeMap<&'static str, u64> {
    let mut counts = BTreeMap::new();
    for seed in seeds {
        let outcome = std::panic::catch_unwind(|| {
            let mut world = World::new(seed, durability);
            for _ in 0..3000 {
                world.step();
            }
            world.heal();
            world.counts.insert("committed", world.history.len() as u64);
            world.counts
        });
        let world = outcome.unwrap_or_else(|panic| {
            println!("the world of seed {seed}, {durability:?}");
            std::panic::resume_unwind(panic)
        });
        for (what, count) in world {
            *counts.entry(what).or_default() += count;
        }
    }
    counts
}

/// Each must happen more than fifty times, or too little was tried.
const MUST_HAPPEN: [&str; 7] =
    ["elected", "proposed", "committed", "crash", "crash between effects", "voters changed", "taught"];

#[test]
fn nothing_that_was_committed_is_lost_or_changed() {
    for durability in [Durability::Fsync, Durability::Memory] {
        let counts = worlds(durability, 0..300);
        println!("{durability:?} {counts:?}");
        for what in MUST_HAPPEN {
            assert!(counts.get(what).is_some_and(|&count| count > 50), "{what} is rare: {counts:?}");
        }
        let lost = counts.get("disk lost").copied().unwrap_or_default();
        assert!(lost > 50 || durability == Durability::Memory, "disks are lost too rarely: {counts:?}");
    }
}

/// A new leader asks, and starts again; then two incarnations of the asked node answer it, with offers.
#[test]
fn whoever_offers_a_snapshot_is_not_heard_as_a_leader_by_that() {
    let now = Instant::default();
    let members = (0..3).map(|index| (name(index), Arc::from("nowhere"))).collect();
    let voters = Arc::new(Voters { number: LeaderSequence::NONE, members });
    let config = config(identity(0, 2), Durability::Fsync);
    let replica = Replica::<History>::new(config, Term(3), voters, Stored::default(), false, now);
    let mut replica = replica.expect("there is nothing to be read");
    let number = LeaderSequence::first(Term(2));
    for life in [1, 2] {
        replica.handle(now, identity(1, life), Term(3), Body::Offer { number });
        assert_eq!(replica.poll(), None, "nothing is asked for, and nobody is taken for a leader");
    }
    let (round, records, committed) = (1, Vec::new(), LeaderSequence::NONE);
    let append = Body::Append { round, after: LeaderSequence::NONE, records, committed };
    replica.handle(now, identity(2, 1), Term(3), append);
    replica.handle(now, identity(2, 1), Term(3), Body::Offer { number });
    let part = Body::Part { number, offset: 0 };
    assert_eq!(replica.poll(), Some(Effect::Send { to: name(2), body: part }), "that one leads");
}

fn three() -> Arc<Voters> {
    let members = (0..3).map(|index| (name(index), Arc::from("nowhere"))).collect();
    Arc::new(Voters { number: LeaderSequence::NONE, members })
}

/// The first of three, which has a record of term 1.
fn first_of_three() -> Replica<History> {
    let config = config(identity(0, 1), Durability::Fsync);
    let number = LeaderSequence::first(Term(1));
    let body = RecordBody::Begin { after: LeaderSequence::NONE, voters: three() };
    let stored = Stored { snapshot: None, records: vec![Record { number, body }] };
    let replica = Replica::new(config, Term(1), three(), stored, false, Instant::default());
    replica.expect("the record is the first")
}

/// Makes it lead, with the promise of the third.
fn lead(leader: &mut Replica<History>, term: Term) {
    let now = Instant::default();
    let (to, last) = (leader.config.me.incarnation, LeaderSequence::NONE);
    leader.bind(term);
    leader.lead(now);
    leader.handle(now, identity(2, 1), term, Body::SyncReply { to, last });
}

/// Performs all effects.
fn perform(replica: &mut Replica<History>) -> Vec<Effect> {
    let effects = core::iter::from_fn(|| replica.poll()).collect();
    replica.on_performed(Instant::default());
    effects
}

/// The last message to the second since the last call.
fn said_to_second(leader: &mut Replica<History>) -> Option<Body> {
    perform(leader)
        .into_iter()
        .filter_map(|effect| match effect {
            Effect::Send { to, body } if to == name(1) => Some(body),
            Effect::Send { .. } | Effect::Write(_) | Effect::Voters(_) => None,
            Effect::LogLost(_) | Effect::TwoLeaders { .. } => None,
        })
        .last()
}

/// The second answers the last message to it, with a log that ends so and behind which nothing fitted.
fn answer_with_a_gap(leader: &mut Replica<History>, term: Term, last: LeaderSequence) {
    let Some(Body::Append { round, .. }) = said_to_second(leader) else { panic!("nothing was asked") };
    let to = leader.config.me.incarnation;
    let answer = Body::AppendReply { to, round, last, gap: true, recovering: false };
    leader.handle(Instant::default(), identity(1, 1), term, answer);
}

/// A leader had offered a snapshot in an earlier term, to a node that has been a leader itself since.
#[test]
fn a_snapshot_is_offered_only_to_a_log_that_ends_before_it() {
    let mut leader = first_of_three();
    let last_of = |term| LeaderSequence::first(Term(term));
    lead(&mut leader, Term(3));
    answer_with_a_gap(&mut leader, Term(3), last_of(2));
    let Some(Body::Offer { number }) = said_to_second(&mut leader) else {
        panic!("its log went another way")
    };
    assert_eq!(number, last_of(3));
    lead(&mut leader, Term(5));
    answer_with_a_gap(&mut leader, Term(5), last_of(4));
    let Some(Body::Offer { number }) = said_to_second(&mut leader) else {
        panic!("its log went another way")
    };
    assert_eq!(number, last_of(5));
}

/// A follower could not use the commit number of its leader, and lacks nothing after the snapshot that it fetched.
#[test]
fn a_follower_that_fetched_a_snapshot_is_told_at_once_what_is_committed() {
    let (now, term) = (Instant::default(), Term(3));
    let mut leader = first_of_three();
    lead(&mut leader, term);
    let (to, last) = (leader.config.me.incarnation, LeaderSequence::first(term));
    let answer = |round, gap, last| Body::AppendReply { to, round, last, gap, recovering: false };
    perform(&mut leader);
    leader.handle(now, identity(2, 1), term, answer(1, false, last));
    perform(&mut leader);
    assert_eq!(leader.committed(), last);
    leader.on_timeout(now.after(leader.config.resend_after));
    let told = said_to_second(&mut leader);
    let Some(Body::Append { round, committed, .. }) = told else { panic!("it is not asked again: {told:?}") };
    assert_eq!(committed, last);
    leader.handle(now, identity(1, 1), term, answer(round, true, LeaderSequence::first(Term(2))));
    let offered = said_to_second(&mut leader);
    assert!(matches!(offered, Some(Body::Offer { number }) if number == last), "{offered:?}");
    leader.handle(now, identity(1, 1), term, answer(0, false, last));
    let told = said_to_second(&mut leader);
    assert!(matches!(told, Some(Body::Append { committed, .. }) if committed == last), "{told:?}");
}

/// A lease may be over when a snapshot is written, and later effects are done only then.
#[test]
fn a_leader_is_active_before_it_writes_a_snapshot() {
    let (now, term) = (Instant::default(), Term(3));
    let mut leader = first_of_three();
    leader.config.snapshot_after = 1;
    lead(&mut leader, term);
    let Some(Body::Append { round, .. }) = said_to_second(&mut leader) else { panic!("nothing was asked") };
    let (to, last) = (leader.config.me.incarnation, LeaderSequence::first(term));
    let answer = Body::AppendReply { to, round, last, gap: false, recovering: false };
    leader.handle(now, identity(1, 1), term, answer);
    assert!(leader.is_active());
    while let Some(effect) = leader.poll() {
        assert!(!matches!(effect, Effect::Write(_)), "{effect:?} is done before that is told");
    }
    leader.on_timeout(now);
    let last = core::iter::from_fn(|| leader.poll()).last();
    assert!(matches!(last, Some(Effect::Write(Write::Snapshot(_)))), "{last:?}");
}

/// Each of the others writes them down too before it answers, and the lease of a leader must last until then.
#[test]
fn records_leave_before_their_voters_are_written_where_logs_are_in_memory() {
    let (now, term) = (Instant::default(), Term(3));
    let config = config(identity(0, 1), Durability::Memory);
    let mut leader = Replica::<History>::new(config, Term(0), three(), Stored::default(), false, now)
        .expect("there is nothing to be read");
    lead(&mut leader, term);
    let effects: Vec<Effect> = core::iter::from_fn(|| leader.poll()).collect();
    let sent = |effect: &Effect| matches!(effect, Effect::Send { body: Body::Append { .. }, .. });
    let written = |effect: &Effect| matches!(effect, Effect::Voters(voters) if voters.number.term == term);
    let (sent, written) = (effects.iter().position(sent), effects.iter().position(written));
    assert!(sent.is_some() && sent < written, "{effects:?}");
    assert_eq!(effects.iter().filter(|effect| matches!(effect, Effect::Voters(_))).count(), 1);
}

/// A long log takes longer to apply than a lease lasts, and the same thread renews the lead.
#[test]
fn what_is_committed_is_applied_in_steps_with_other_inputs_between_them() {
    let (now, term) = (Instant::default(), Term(3));
    let first = LeaderSequence::first(term);
    let last = first.next().next().next().next();
    let payloads = [1_u8, 2, 3, 4].map(|payload| Arc::<[u8]>::from([payload].as_slice()));
    let mut leader = first_of_three();
    leader.config.apply_max = 1;
    lead(&mut leader, term);
    for payload in &payloads {
        assert!(!leader.propose(now, Arc::clone(payload)), "it is not active yet");
    }
    perform(&mut leader);
    let to = leader.config.me.incarnation;
    let answer = |round, last| Body::AppendReply { to, round, last, gap: false, recovering: false };
    leader.handle(now, identity(1, 1), term, answer(1, first));
    // Its record of the term before is the first step, its own of this term the second.
    for steps in 1..=2 {
        assert_eq!((leader.committed() == first, leader.is_active()), (steps == 2, steps == 2), "{steps}");
        leader.on_timeout(now);
        perform(&mut leader);
    }
    for payload in &payloads {
        assert!(leader.propose(now, Arc::clone(payload)));
    }
    leader.on_timeout(now);
    let Some(Body::Append { round, .. }) = said_to_second(&mut leader) else { panic!("nothing was sent") };
    leader.handle(now, identity(1, 1), term, answer(round, last));
    let mut follower = first_of_three();
    follower.config.apply_max = 1;
    follower.bind(term);
    let after = LeaderSequence::first(Term(1));
    let mut records =
        vec![Record { number: first, body: RecordBody::Begin { after, voters: voters(3, first) } }];
    for payload in &payloads {
        let number = records.last().expect("it has one").number.next();
        records.push(Record { number, body: RecordBody::Payload(Arc::clone(payload)) });
    }
    follower.handle(now, identity(1, 1), term, Body::Append { round: 1, after, records, committed: last });
    for mut node in [leader, follower] {
        let mut before = None;
        for _ in 0..10 {
            assert_eq!(node.committed(), node.applied(), "no more counts than can be read");
            let applied = node.state().0.len();
            assert!(
                before.is_none_or(|before| applied <= before + 2),
                "a step is one record, and writing is one more"
            );
            before = Some(applied);
            if node.applied() < last {
                assert_eq!(node.deadline(), Some(now), "the next step is due at once");
            }
            node.on_timeout(now);
            perform(&mut node);
        }
        assert_eq!((node.applied(), node.state().0.len()), (last, 4));
    }
}

/// The first `count` nodes as voters, by this record.
fn voters(count: usize, number: LeaderSequence) -> Arc<Voters> {
    let members = (0..count).map(|index| (name(index), Arc::from("nowhere"))).collect();
    Arc::new(Voters { number, members })
}

/// A node that has lost its log asks those voters for its contents that it remembers. The configuration may be changed
/// meanwhile.
#[test]
fn voters_are_remembered_before_the_log_first_states_them_or_others_and_the_same_ones_are_not_again() {
    let (now, term) = (Instant::default(), Term(3));
    let mut follower = first_of_three();
    let (leader, first) = (identity(1, 1), LeaderSequence::first(term));
    let (second, third) = (first.next(), first.next().next());
    let begin = RecordBody::Begin { after: LeaderSequence::first(Term(1)), voters: voters(3, first) };
    let records = [
        (LeaderSequence::first(Term(1)), Record { number: first, body: begin }),
        (first, Record { number: second, body: RecordBody::Voters(voters(3, second)) }),
        (second, Record { number: third, body: RecordBody::Voters(voters(4, third)) }),
    ];
    follower.bind(term);
    let mut told = Vec::new();
    for (round, (after, record)) in (1..).zip(records) {
        let append = Body::Append { round, after, records: vec![record], committed: LeaderSequence::NONE };
        follower.handle(now, leader, term, append);
        follower.on_timeout(now);
        told.extend(core::iter::from_fn(|| follower.poll()).filter_map(|effect| match effect {
            Effect::Voters(voters) => Some(format!("voters of {}", voters.number)),
            Effect::Write(_) => Some("written".to_owned()),
            Effect::Send { .. } | Effect::LogLost(_) | Effect::TwoLeaders { .. } => None,
        }));
    }
    assert_eq!(told, ["voters of (3, 1)", "written", "written", "voters of (3, 3)", "written"]);
}

/// A node that remembered the voters of the first record alone would take the list in between for a newer one, when its
/// log is lost.
#[test]
fn voters_that_come_and_go_in_one_write_are_remembered_each() {
    let (now, term) = (Instant::default(), Term(3));
    let mut follower = first_of_three();
    let (leader, first) = (identity(1, 1), LeaderSequence::first(term));
    let (second, third) = (first.next(), first.next().next());
    let after = LeaderSequence::first(Term(1));
    let records = vec![
        Record { number: first, body: RecordBody::Begin { after, voters: voters(3, first) } },
        Record { number: second, body: RecordBody::Voters(voters(4, second)) },
        Record { number: third, body: RecordBody::Voters(voters(3, third)) },
    ];
    follower.bind(term);
    let append = Body::Append { round: 1, after, records, committed: LeaderSequence::NONE };
    follower.handle(now, leader, term, append);
    follower.on_timeout(now);
    let remembered = core::iter::from_fn(|| follower.poll()).filter_map(|effect| match effect {
        Effect::Voters(voters) => Some(voters.number),
        Effect::Write(_) | Effect::Send { .. } | Effect::LogLost(_) | Effect::TwoLeaders { .. } => None,
    });
    assert_eq!(remembered.collect::<Vec<_>>(), [second, third]);
}

/// Nothing could take its place again, for a log never gets shorter.
#[test]
fn what_no_honest_leader_of_the_term_has_is_not_taken() {
    let (now, term, to) = (Instant::default(), Term(3), identity(0, 1).incarnation);
    let (later, first) = (LeaderSequence::first(Term(4)), LeaderSequence::first(term));
    let after = LeaderSequence::first(Term(1));
    let begin =
        |number, stated| Record { number, body: RecordBody::Begin { after, voters: voters(3, stated) } };
    for record in [begin(later, later), begin(first, later)] {
        let records = vec![record];
        let mut follower = first_of_three();
        follower.bind(term);
        let append = Body::Append { round: 1, after, records: records.clone(), committed: after };
        follower.handle(now, identity(1, 1), term, append);
        follower.on_timeout(now);
        assert_eq!((follower.last(), follower.voters()), (after, &three()));
        // Nor by a leader that fetches the records that it lacks.
        let mut leader = first_of_three();
        leader.bind(term);
        leader.lead(now);
        leader.handle(now, identity(1, 1), term, Body::SyncReply { to, last: later });
        leader.handle(now, identity(1, 1), term, Body::Fetched { to, after, records });
        assert_eq!((leader.last(), leader.voters()), (after, &three()));
    }
    let mut follower = first_of_three();
    follower.bind(term);
    follower.handle(
        now,
        identity(1, 1),
        term,
        Body::Append { round: 1, after, records: vec![], committed: after },
    );
    while follower.poll().is_some() {}
    follower.handle(now, identity(1, 1), term, Body::Offer { number: later });
    assert_eq!(follower.poll(), None, "it is not asked for");
}

/// It knows with which voters it was in force, and not since which term: so a list of a lower term than its own may be
/// older.
#[test]
fn one_that_has_lost_its_log_takes_no_voters_of_a_lower_term_for_newer() {
    let (now, bound) = (Instant::default(), Term(6));
    let replica = |durability, log_lost| {
        let config = config(identity(0, 2), durability);
        Replica::<History>::new(
            config,
            bound,
            voters(5, LeaderSequence::NONE),
            Stored::default(),
            log_lost,
            now,
        )
        .expect("there is nothing to be read")
    };
    let of = |term| voters(4, LeaderSequence::first(term).next());
    let lost = replica(Durability::Fsync, true);
    assert!(!lost.may_be_newer(&of(Term(5))) && lost.may_be_newer(&of(bound)));
    // A node that has its log knows the number, and in memory it is remembered.
    for replica in [replica(Durability::Fsync, false), replica(Durability::Memory, true)] {
        assert!(replica.may_be_newer(&of(Term(5))), "{replica:?}");
    }
}

/// The promises of a majority of the old voters tell nothing of the records that a majority of the new ones has
/// committed.
#[test]
fn a_new_leader_that_fetches_other_voters_has_a_majority_of_these_promise_too() {
    let (now, term, to) = (Instant::default(), Term(5), identity(0, 1).incarnation);
    let mut leader = first_of_three();
    let (after, number) = (LeaderSequence::first(Term(1)), LeaderSequence::first(Term(2)));
    leader.bind(term);
    leader.lead(now);
    leader.handle(now, identity(1, 1), term, Body::SyncReply { to, last: number });
    assert_eq!(said_to_second(&mut leader), Some(Body::Fetch { after }));
    let body = RecordBody::Begin { after, voters: voters(4, number) };
    let records = vec![Record { number, body }];
    leader.handle(now, identity(1, 1), term, Body::Fetched { to, after, records });
    let begins = |effect: &Effect| match effect {
        Effect::Write(Write::Append(records)) => records.iter().any(|record| record.number.term == term),
        Effect::Write(_) | Effect::Voters(_) | Effect::LogLost(_) => false,
        Effect::Send { .. } | Effect::TwoLeaders { .. } => false,
    };
    let effects: Vec<Effect> = core::iter::from_fn(|| leader.poll()).collect();
    assert!(!effects.iter().any(begins), "two of four have promised: {effects:?}");
    for silent in [2, 3] {
        let asked = Effect::Send { to: name(silent), body: Body::Sync };
        assert!(effects.contains(&asked), "{effects:?}");
    }
    leader.handle(now, identity(3, 1), term, Body::SyncReply { to, last: LeaderSequence::NONE });
    assert!(core::iter::from_fn(|| leader.poll()).any(|effect| begins(&effect)));
}

/// Of the voters that it learns of by the records that it fetches, one has promised meanwhile, and its log is longer
/// than what was asked for.
#[test]
fn a_new_leader_that_fetches_other_voters_takes_the_longest_log_of_those_who_have_promised() {
    let (now, term, to) = (Instant::default(), Term(5), identity(0, 1).incarnation);
    let mut leader = first_of_three();
    let (after, number) = (LeaderSequence::first(Term(1)), LeaderSequence::first(Term(2)));
    let (asked_for, longest) = (number.next(), number.next().next());
    leader.bind(term);
    leader.lead(now);
    leader.handle(now, identity(1, 1), term, Body::SyncReply { to, last: asked_for });
    let body = RecordBody::Begin { after, voters: voters(4, number) };
    let records = vec![Record { number, body }];
    leader.handle(now, identity(1, 1), term, Body::Fetched { to, after, records });
    leader.handle(now, identity(3, 1), term, Body::SyncReply { to, last: longest });
    while leader.poll().is_some() {}
    let records = vec![Record { number: asked_for, body: RecordBody::Payload([7].into()) }];
    leader.handle(now, identity(1, 1), term, Body::Fetched { to, after: number, records });
    let effects: Vec<Effect> = core::iter::from_fn(|| leader.poll()).collect();
    let fetch = Effect::Send { to: name(3), body: Body::Fetch { after: asked_for } };
    assert!(effects.contains(&fetch) && leader.is_catching_up(), "{effects:?}");
}

/// It may have all of the log and not count yet, until all others know its disk; that may take long.
#[test]
fn one_that_has_lost_its_log_is_not_asked_again_at_once() {
    let (now, term) = (Instant::default(), Term(3));
    let mut leader = first_of_three();
    lead(&mut leader, term);
    perform(&mut leader);
    let answer = |leader: &mut Replica<History>, index, round, recovering| {
        let (to, last) = (leader.config.me.incarnation, leader.last());
        let answer = Body::AppendReply { to, round, last, gap: false, recovering };
        leader.handle(now, identity(index, 1), term, answer);
        leader.on_timeout(now);
    };
    answer(&mut leader, 2, 1, false);
    while leader.poll().is_some() {}
    answer(&mut leader, 1, 1, true);
    assert!(said_to_second(&mut leader).is_some(), "it does not know what is committed");
    answer(&mut leader, 1, 2, true);
    assert_eq!(said_to_second(&mut leader), None);
    let again = leader.deadline().expect("it is asked again later");
    assert_eq!(again, now.after(leader.config.resend_after));
    leader.on_timeout(again);
    let said = said_to_second(&mut leader);
    let Some(Body::Append { committed, .. }) = said else { panic!("nothing is asked: {said:?}") };
    assert_eq!(committed, leader.committed());
}

/// A node was readmitted, while some of the others would still hear its former disk.
#[test]
fn a_log_on_a_disk_that_not_all_know_does_not_count() {
    let (now, term) = (Instant::default(), Term(3));
    let mut node = first_of_three();
    node.bind(term);
    node.lose(now);
    node.set_disk_is_known(false);
    let (leader, me) = (identity(1, 1), node.config.me.incarnation);
    let first = LeaderSequence::first(term);
    for (index, leads_up_to) in [(1, Some(first)), (2, None)] {
        node.handle(now, identity(index, 1), term, Body::RecoverReply { to: me, leads_up_to });
    }
    let append = |node: &mut Replica<History>, round| {
        let (after, committed) = (LeaderSequence::first(Term(1)), first);
        let voters = Arc::new(node.voters().restated(first));
        let begin = Record { number: first, body: RecordBody::Begin { after, voters } };
        node.handle(now, leader, term, Body::Append { round, after, records: vec![begin], committed });
    };
    let answer = |node: &mut Replica<History>| {
        node.on_timeout(now);
        let said = said_to_second(node).expect("it answers");
        let Body::AppendReply { round, last, recovering, .. } = said else { panic!("{said:?}") };
        (round, last, recovering)
    };
    append(&mut node, 1);
    assert_eq!(answer(&mut node), (1, first, true));
    append(&mut node, 2);
    assert_eq!((node.committed(), node.is_recovering()), (LeaderSequence::NONE, true));
    node.set_disk_is_known(true);
    assert!(node.effects.contains(&Effect::LogLost(false)));
    // It was sent the commit number, and could not take it. So the leader must not think that it has.
    assert_eq!(answer(&mut node), (0, first, false));
    append(&mut node, 3);
    assert_eq!(answer(&mut node), (3, first, false));
    assert_eq!(node.committed(), first);
}

/// No record of its log states such voters, and they may never be committed. A follower that has lost its log would
/// take them from the snapshot for newer ones.
#[test]
fn a_leader_offers_no_snapshot_with_voters_that_it_was_only_told_of() {
    let (now, term) = (Instant::default(), Term(3));
    let mut leader = first_of_three();
    leader.tell_voters(&Arc::new(three().restated(LeaderSequence::first(Term(2)))));
    let offered = leader.snapshot_to_offer(now, LeaderSequence::NONE);
    assert_eq!(offered, LeaderSequence::first(Term(1)));
    lead(&mut leader, term);
    answer_with_a_gap(&mut leader, term, LeaderSequence::first(Term(0)));
    let first = LeaderSequence::first(term);
    assert_eq!(said_to_second(&mut leader), Some(Body::Offer { number: first }));
    leader.handle(now, identity(1, 1), term, Body::Part { number: first, offset: 0 });
    let said = said_to_second(&mut leader);
    let Some(Body::PartReply { voters, .. }) = said else { panic!("nothing is sent of it: {said:?}") };
    assert_eq!(voters.number, first);
}
