//! Cases that no script can tell: messages that no honest node sends.

use super::*;
use crate::detector::Detection;
use crate::id::Incarnation;
use crate::membership::{
    Age, AgesRunOut, Cluster, MEMBERS_MAX, REMOVED_MAX, ViewError, ViewParts, ViewVersion,
};
use crate::rng::Rng;
use crate::time::Duration;

const NAMES: [&str; 5] = ["athens", "byzantium", "cyrene", "delphi", "euphesus"];

fn node(name: &str) -> NodeId {
    NodeId::new(name).unwrap()
}

fn life(name: &str) -> Identity {
    Identity::new(node(name), Incarnation { count: 1, nonce: 1 })
}

fn at(millis: u64) -> Instant {
    Instant::from_nanos(millis * 1_000_000)
}

/// A node that asks to join from zero on; `athens` is the first seed, and `byzantium` the other one.
fn machine(name: &str, policy: Policy) -> Seniority {
    let config = Config {
        me: life(name),
        seeds: ["athens", "byzantium"].map(node).into(),
        attributes: Arc::default(),
        heartbeat_interval: Duration::from_millis(250),
        neighbours: None,
        detection: Detection::Missed { count: 4 },
        stable_after: Duration::from_secs(1),
        policy,
        store_wait: Duration::from_secs(1),
        minimum: 1,
        join_interval: Duration::from_secs(1),
        answer_wait: Duration::from_millis(500),
        probe_interval: Duration::from_secs(1),
        last_age: Age::MAX,
    };
    let mut machine = Seniority::new(config, at(0));
    machine.handle(at(0), Input::Command(Command::Campaign));
    drain(&mut machine);
    machine
}

fn drain(machine: &mut Seniority) -> Vec<Output<Message, ()>> {
    core::iter::from_fn(|| machine.poll()).collect()
}

fn hear(machine: &mut Seniority, now: Instant, from: &str, body: Body) -> Vec<Output<Message, ()>> {
    let message = Message { incarnation: life(from).incarnation, body };
    machine.handle(now, Input::Message { from: Endpoint::Node(node(from)), message });
    drain(machine)
}

/// A view of these, the first of which coordinates in term 2.
fn view(names: &[&str]) -> View {
    let ages = (1..).map(Age);
    let members = names.iter().zip(ages).map(|(name, age)| MemberOf {
        age,
        identity: life(name),
        joining: 1,
        attributes: Arc::default(),
    });
    View::new(ViewParts {
        cluster: Cluster { founder: life("athens"), joining: 1 },
        version: ViewVersion { term: Term(2), coordinator: life(names[0]), number: 1 },
        members: members.collect(),
        removed: BTreeSet::new(),
        next_age: Age(u64::try_from(names.len()).unwrap() + 1),
        decision: FencingToken(0),
    })
    .unwrap()
}

/// The coordinator of a cluster of three.
fn coordinator(policy: Policy) -> Seniority {
    let mut athens = machine("athens", policy);
    athens.handle(at(1_000), Input::Timeout);
    drain(&mut athens);
    athens.handle(at(1_500), Input::Timeout);
    drain(&mut athens);
    for name in ["byzantium", "cyrene"] {
        hear(&mut athens, at(1_600), name, Body::Join { joining: 1, attributes: Arc::default() });
        let sight = athens.view().unwrap().sight();
        hear(&mut athens, at(1_600), "byzantium", Body::ViewReply(sight));
    }
    assert_eq!((athens.status().role, athens.view().unwrap().members().len()), ("coordinator", 3));
    athens
}

/// One of its members.
fn member(policy: Policy) -> Seniority {
    let mut cyrene = machine("cyrene", policy);
    hear(&mut cyrene, at(1), "athens", Body::View(Arc::new(view(&["athens", "byzantium", "cyrene"]))));
    assert_eq!(cyrene.status().role, "member");
    cyrene
}

struct Draw(Rng);

impl Draw {
    fn name(&mut self) -> NodeId {
        if self.0.up_to(9) == 0 {
            let any = self.0.next_u64();
            return NodeId::new(&std::format!("x{any}")).unwrap();
        }
        node(self.0.one_of(&NAMES))
    }

    fn incarnation(&mut self) -> Incarnation {
        Incarnation { count: self.0.one_of(&[1, 1, 1, 0, 2, u64::MAX]), nonce: self.0.one_of(&[1, 1, 1, 2]) }
    }

    fn identity(&mut self) -> Identity {
        Identity::new(self.name(), self.incarnation())
    }

    fn names(&mut self) -> BTreeSet<NodeId> {
        let count = self.0.one_of(&[0, 0, 1, 2, 3, 5, MEMBERS_MAX]);
        (0..count).map(|_| self.name()).collect()
    }

    fn cluster(&mut self) -> Cluster {
        let founder = if self.0.up_to(3) == 0 { self.identity() } else { life("athens") };
        Cluster { founder, joining: self.0.one_of(&[1, 1, 1, 2, u64::MAX]) }
    }

    fn version(&mut self, coordinator: Identity) -> ViewVersion {
        ViewVersion { term: Term(self.0.mostly_small()), coordinator, number: self.0.mostly_small() }
    }

    fn sight(&mut self, known: Option<Sight>) -> Sight {
        if let Some(known) = known.filter(|_| self.0.up_to(2) == 0) {
            return known;
        }
        let coordinator = self.identity();
        Sight {
            cluster: self.cluster(),
            version: self.version(coordinator),
            members: self.0.one_of(&[0, 1, 2, 3, 5, 1_024, 1_025, u32::MAX]),
            decision: FencingToken(self.0.one_of(&[0, 0, 0, 1, u64::MAX / 2, u64::MAX])),
        }
    }

    /// A view that can be made at all, if such a one is drawn before long.
    fn view(&mut self) -> Option<Arc<View>> {
        let drawn = core::iter::from_fn(|| Some(View::new(self.view_parts())));
        drawn.take(50).find_map(Result::ok).map(Arc::new)
    }

    fn view_parts(&mut self) -> ViewParts {
        let count = self.0.one_of(&[0, 1, 2, 3, 3, 4, 5]);
        let mut age = 0;
        let members: Vec<MemberOf> = (0..count)
            .map(|_| {
                let after = self.0.one_of(&[1, 1, 1, 2, 0, u64::MAX / 4, u64::MAX / 2 - 4, u64::MAX / 2]);
                age = u64::saturating_add(age, after);
                let (identity, joining) = (self.identity(), self.0.one_of(&[1, 1, 1, 2, u64::MAX]));
                MemberOf { age: Age(age), identity, joining, attributes: Arc::default() }
            })
            .collect();
        let oldest = members.first().map(|member| member.identity);
        let coordinator = oldest.filter(|_| self.0.up_to(9) > 0).unwrap_or_else(|| self.identity());
        let after = self.0.one_of(&[1, 1, 1, 0, 9]);
        let ends = [u64::MAX / 2, u64::MAX / 2 + 1, u64::MAX];
        let next = if self.0.up_to(5) == 0 { self.0.one_of(&ends) } else { age.saturating_add(after) };
        let removed = if self.0.up_to(50) == 0 {
            (0..REMOVED_MAX).map(|place| node(&std::format!("r{place}"))).collect()
        } else {
            self.names()
        };
        ViewParts {
            cluster: self.cluster(),
            version: self.version(coordinator),
            members,
            removed,
            next_age: Age(next),
            decision: FencingToken(self.0.one_of(&[0, 0, 0, 1, u64::MAX / 2, u64::MAX])),
        }
    }

    fn answer(&mut self) -> JoinAnswer {
        let node = self.name();
        let last = Age(self.0.number());
        self.0.one_of(&[
            JoinAnswer::NotJoined,
            JoinAnswer::Ask(node),
            JoinAnswer::Ask(node),
            JoinAnswer::Refused(Refusal::Full),
            JoinAnswer::Refused(Refusal::NameTaken),
            JoinAnswer::Refused(Refusal::AgesRunOut(AgesRunOut { last })),
        ])
    }

    fn body(&mut self, known: Option<Sight>) -> Body {
        let joining = self.0.one_of(&[0, 1, 1, 1, 2, u64::MAX / 2, u64::MAX]);
        match self.0.up_to(13) {
            0 => Body::Join { joining, attributes: Arc::default() },
            1 => Body::JoinReply { joining, answer: self.answer() },
            2 | 3 => self.view().map_or(Body::Leave { joining }, Body::View),
            4 => Body::ViewReply(self.sight(known)),
            5 | 6 => Body::Heartbeat { sight: self.sight(known), suspects: self.names() },
            7 => Body::Ask(self.sight(known)),
            8 => Body::Down { identity: self.identity(), joining },
            9 => Body::Probe(self.sight(known)),
            10 => Body::ProbeReply(self.sight(known)),
            11 => Body::MergeAsk(self.sight(known)),
            12 => Body::MergeReply(self.sight(known)),
            13 => Body::Merge { into: self.name(), sight: self.sight(known) },
            other => unreachable!("{other}"),
        }
    }
}

/// Checks that all that it keeps is bounded, and that its status is consistent.
fn check(machine: &Seniority) {
    let status = machine.status();
    match &machine.membership {
        Membership::Outside(outside) => {
            assert!(outside.size() <= 2 * (MEMBERS_MAX + SEEDS_MAX), "{outside:?}")
        }
        Membership::Member(member) => {
            let members = member.view.members().len();
            match View::new(member.view.parts()) {
                Ok(view) => assert_eq!(view, *member.view),
                Err(ViewError::Number(_)) => {} // Somebody has used the last one up; this one is taken by nobody.
                Err(other) => panic!("others would refuse the view: {other}"),
            }
            let me = member.view.member(machine.config.me).expect("a member is in its view");
            assert_eq!(me.joining, machine.joining);
            let coordinates = member.view.oldest().identity == machine.config.me;
            assert_eq!(member.lead.is_some(), coordinates, "{:?}", member.view);
            assert!(member.gone.len() < members && member.watch.size() <= members * (members + 4));
            if let Some(lead) = &member.lead {
                let gathered =
                    lead.gathering.as_ref().map_or(0, |all| all.waits_for.len() + all.welcomes.len());
                assert!(gathered < members && lead.joiners.len() + members <= MEMBERS_MAX);
            }
        }
    }
    assert!(machine.deadline().is_none() || status.campaigning);
}

/// Feeds it with drawn messages of connected nodes, and with time; its earlier states come back now and then.
fn harass(first: &Seniority, begins: u64, seed: u64) -> BTreeSet<&'static str> {
    let mut draw = Draw(Rng::new(seed));
    let (mut machine, mut now) = (first.clone(), begins);
    let mut roles = BTreeSet::new();
    for step in 0..4_000 {
        if step % 100 == 0 {
            (machine, now) = (first.clone(), begins);
        }
        now += draw.0.one_of(&[0, 0, 0, 1, 100, 250, 600]);
        let known = machine.view().map(|view| view.sight());
        let message = Message { incarnation: draw.incarnation(), body: draw.body(known) };
        let from = node(draw.0.one_of(&NAMES));
        let input = match draw.0.up_to(4) {
            0 => Input::Timeout,
            1..=4 => Input::Message { from: Endpoint::Node(from), message },
            other => unreachable!("{other}"),
        };
        machine.handle(at(now), input);
        let said = drain(&mut machine);
        assert!(said.len() <= 2 * MEMBERS_MAX, "{}", said.len());
        check(&machine);
        roles.insert(machine.status().role);
    }
    roles
}

#[test]
fn whatever_is_said_to_a_coordinator_a_member_or_an_outsider_it_keeps_within_its_limits() {
    let all = BTreeSet::from(["coordinator", "member", "outside"]);
    for (seed, policy) in (0..).zip([Policy::KeepMajority, Policy::Available, Policy::Lease]) {
        let mut roles = harass(&coordinator(policy), 1_600, seed);
        roles.extend(harass(&member(policy), 1, seed));
        roles.extend(harass(&machine("athens", policy), 0, seed));
        roles.extend(harass(&machine("delphi", policy), 0, seed));
        assert_eq!(roles, all, "what is drawn is to get it anywhere");
    }
}

#[test]
fn one_that_names_coordinators_without_end_is_not_followed_without_end() {
    let mut delphi = machine("delphi", Policy::KeepMajority);
    let asked = (0..10_000).map(|number| {
        let answer = JoinAnswer::Ask(node(&std::format!("x{number}")));
        hear(&mut delphi, at(0), "athens", Body::JoinReply { joining: 1, answer }).len()
    });
    assert!(asked.sum::<usize>() <= MEMBERS_MAX + 2 * SEEDS_MAX);
    check(&delphi);
}

#[test]
fn what_no_honest_node_says_changes_nothing() {
    let mut cyrene = member(Policy::KeepMajority);
    let before = cyrene.clone();
    let known = before.view().unwrap().sight();
    let version = |change: fn(&mut ViewVersion)| {
        let mut version = known.version;
        change(&mut version);
        version
    };
    let impossible = [
        Sight { version: version(|version| version.term = Term(u64::MAX)), ..known },
        Sight { version: version(|version| version.number = u64::MAX), ..known },
        Sight { decision: FencingToken(u64::MAX), ..known },
        Sight { members: 0, ..known },
        Sight { members: u32::MAX, ..known },
    ];
    for sight in impossible {
        let bodies = [
            Body::ViewReply(sight),
            Body::Heartbeat { sight, suspects: BTreeSet::new() },
            Body::Ask(sight),
            Body::Probe(sight),
            Body::ProbeReply(sight),
            Body::MergeAsk(sight),
            Body::MergeReply(sight),
            Body::Merge { into: node("byzantium"), sight },
        ];
        for body in bodies {
            assert_eq!(hear(&mut cyrene, at(1), "athens", body), []);
        }
    }
    hear(&mut cyrene, at(1), "cyrene", Body::Leave { joining: 2 });
    hear(&mut cyrene, at(1), "athens", Body::Leave { joining: u64::MAX });
    // A later view in which this node coordinates, and that it has not made.
    let mine = view(&["cyrene", "athens", "byzantium"]).taken_over_by(life("cyrene"), Term(7));
    hear(&mut cyrene, at(1), "athens", Body::View(Arc::new(mine)));
    assert_eq!(cyrene, before);
}

/// The answers to a node that asks to join in this incarnation.
fn asked(athens: &mut Seniority, now: Instant, by: Identity) -> Vec<JoinAnswer> {
    let body = Body::Join { joining: 1, attributes: Arc::default() };
    let message = Message { incarnation: by.incarnation, body };
    athens.handle(now, Input::Message { from: Endpoint::Node(by.node), message });
    let answers = drain(athens).into_iter().filter_map(|output| match output {
        Output::Send { message: Message { body: Body::JoinReply { answer, .. }, .. }, .. } => Some(answer),
        Output::Send { .. } | Output::Persist(()) | Output::Event(_) => None,
    });
    answers.collect()
}

#[test]
fn of_two_live_processes_with_one_name_the_first_one_stays() {
    let mut athens = coordinator(Policy::KeepMajority);
    let other = Identity::new(node("cyrene"), Incarnation { count: 1, nonce: 2 });
    let heartbeat = Body::Heartbeat { sight: athens.view().unwrap().sight(), suspects: BTreeSet::new() };
    for beat in 0..20 {
        let now = at(1_700 + 250 * beat);
        for name in ["byzantium", "cyrene"] {
            hear(&mut athens, now, name, heartbeat.clone());
        }
        assert_eq!(asked(&mut athens, now, other), [JoinAnswer::Refused(Refusal::NameTaken)]);
        athens.handle(now, Input::Timeout);
        drain(&mut athens);
    }
    assert_eq!(athens.view().unwrap().named(other.node).unwrap().identity, life("cyrene"));
    assert_eq!(
        std::format!("{}", Refusal::NameTaken),
        "another process of this name is a member and lives; give each node its own name"
    );
}

#[test]
fn a_full_cluster_takes_no_more_and_says_so() {
    let mut athens = coordinator(Policy::Available);
    for place in 3..MEMBERS_MAX {
        let name = std::format!("m{place}");
        let joiner = Identity::new(node(&name), Incarnation { count: 1, nonce: 1 });
        assert_eq!(asked(&mut athens, at(1_600), joiner), []);
    }
    assert_eq!(asked(&mut athens, at(1_600), life("delphi")), [JoinAnswer::Refused(Refusal::Full)]);
    assert_eq!(std::format!("{}", Refusal::Full), "the cluster has 1024 members, and takes no more");
    // A node that belongs to it already is not meant.
    assert_eq!(asked(&mut athens, at(1_600), life("cyrene")), []);
}

/// Lets the time pass until it belongs to no cluster.
fn wait_until_it_stops(machine: &mut Seniority) {
    for millis in 1..10_000 {
        machine.handle(at(2_000 + millis), Input::Timeout);
        drain(machine);
        if machine.status().role == "outside" {
            return;
        }
    }
    panic!("its part stops");
}

#[test]
fn a_part_that_stops_says_which_one_and_by_which_policy_for_as_long_as_it_belongs_to_no_cluster() {
    let said = |part: &str, others: &str| {
        let all = "{athens, byzantium, cyrene}";
        format!("its part {{{part}}} of {all} does not go on, by keep-majority: {others} do not answer")
    };
    let (mut athens, mut cyrene) = (coordinator(Policy::KeepMajority), member(Policy::KeepMajority));
    for (machine, part, others) in
        [(&mut athens, "athens", "byzantium, cyrene"), (&mut cyrene, "cyrene", "athens, byzantium")]
    {
        assert_eq!(machine.stopped(), None);
        wait_until_it_stops(machine);
        // As a driver does when the lead is lost, and the application campaigns again.
        for command in [Command::Withdraw, Command::Campaign] {
            machine.handle(at(20_000), Input::Command(command));
            drain(machine);
        }
        let status = machine.status();
        assert_eq!(status.stopped.map(|stopped| stopped.to_string()), Some(said(part, others)));
        assert!(status.has_left && status.awaited.contains(&node("byzantium")));
    }
    let mut later = view(&["byzantium", "athens", "cyrene"]);
    later = later.taken_over_by(life("byzantium"), Term(3));
    let joining = athens.joining();
    let members = later.members().iter().map(|member| match member.identity.node == node("athens") {
        true => MemberOf { joining, ..member.clone() },
        false => member.clone(),
    });
    let parts = ViewParts {
        cluster: later.cluster(),
        version: later.version(),
        members: members.collect(),
        removed: BTreeSet::new(),
        next_age: Age(4),
        decision: FencingToken(0),
    };
    hear(&mut athens, at(20_001), "byzantium", Body::View(Arc::new(View::new(parts).unwrap())));
    assert_eq!((athens.status().role, athens.stopped()), ("member", None));
}
