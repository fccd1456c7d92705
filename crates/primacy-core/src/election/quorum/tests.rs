//! Cases that no script can tell: a script has one process per node, and here another process of the node is alive
//! elsewhere.

use super::*;
use crate::time::Drift;

fn node(name: &str) -> NodeId {
    NodeId::new(name).expect("a name")
}

fn at(millis: u64) -> Instant {
    Instant::from_nanos(millis * 1_000_000)
}

/// One of three voters, in an incarnation that begins at zero.
fn machine(name: &str, hard: HardState) -> Quorum {
    let millis = Duration::from_millis;
    let config = Config {
        me: Identity::new(node(name), Incarnation { count: 1, nonce: 1 }),
        voters: ["a", "b", "c"].map(node).into(),
        safety: Safety::Lease,
        heartbeat_interval: millis(250),
        miss_count: 4,
        promise_duration: millis(1_000),
        initial_wait: millis(500),
        random_wait_max: millis(300),
        round_timeout: millis(500),
        stagger: millis(5),
        drift_max: Drift::from_ppm(10_000),
        priority: 0,
        witness: false,
        pre_vote: true,
        sticky: true,
        seed: 1,
    };
    let mut machine = Quorum::new(config, hard, at(0));
    drain(&mut machine);
    machine
}

fn drain(machine: &mut Quorum) -> Vec<Output<Message, HardState>> {
    core::iter::from_fn(|| machine.poll()).collect()
}

fn told(machine: &mut Quorum, now: Instant, by: &str, term: u64) {
    machine.handle(now, Input::Evidence(Evidence::Readmitted { by: node(by), term: Term(term) }));
}

/// The answer to a request of `b` for a vote in this term.
fn asked(machine: &mut Quorum, now: Instant, term: u64) -> Answer {
    let body = Body::Vote { round: Round(1), resignation: None };
    let message = Message { incarnation: Incarnation { count: 1, nonce: 2 }, term: Term(term), body };
    machine.handle(now, Input::Message { from: Endpoint::Node(node("b")), message });
    let answer = |output| match output {
        Output::Send { message: Message { body: Body::VoteReply { answer, .. }, .. }, .. } => Some(answer),
        Output::Send { .. } | Output::Persist(_) | Output::Event(_) => None,
    };
    drain(machine).into_iter().find_map(answer).expect("an answer")
}

#[test]
fn what_the_lost_disk_promised_until_the_readmission_binds_the_new_one() {
    // The new process has waited for long, elsewhere, while the process with the old disk still answered heartbeats.
    let mut c = machine("c", HardState::default());
    told(&mut c, at(60_000), "a", 4);
    drain(&mut c);
    assert_eq!(asked(&mut c, at(60_001), 9), Answer::No(Refusal::DiskLost));
    told(&mut c, at(61_000), "b", 3);
    drain(&mut c);
    let left = Duration::from_millis(600);
    assert_eq!(asked(&mut c, at(61_400), 9), Answer::No(Refusal::JustStarted { left }));
    c.handle(at(61_400), Input::Command(Command::Campaign));
    assert!(c.deadline() >= Some(at(62_000)), "{:?}", c.deadline());
    assert_eq!(asked(&mut c, at(62_000), 4), Answer::No(Refusal::Term));
    assert_eq!(asked(&mut c, at(62_000), 9), Answer::Yes);
}

#[test]
fn a_lost_disk_is_lost_until_all_have_told_this_very_life() {
    let mut first = machine("c", HardState::default());
    told(&mut first, at(60_000), "a", 4);
    let outputs = drain(&mut first);
    let Some(Output::Persist(lost)) = outputs.first() else { panic!("{outputs:?}") };
    assert_eq!((lost.disk_state, lost.term), (DiskState::Lost, Term(0)));
    // The report of `a` was in memory only; `b` alone is not enough, and no peer need tell the node that it waits.
    let mut second = machine("c", *lost);
    assert_eq!(second.status().recovering, Some(BTreeSet::new()));
    assert_eq!(asked(&mut second, at(60_000), 9), Answer::No(Refusal::DiskLost));
    told(&mut second, at(60_000), "b", 3);
    assert_eq!(second.status().recovering, Some([node("b")].into()));
    drain(&mut second);
    told(&mut second, at(60_000), "a", 5);
    assert_eq!(second.status().hard, HardState { term: Term(5), disk_state: DiskState::Recovered, ..*lost });
    // A second report has nothing to teach it.
    drain(&mut second);
    told(&mut second, at(70_000), "a", 7);
    assert_eq!((drain(&mut second), second.status().recovering), (Vec::new(), None));
}

#[test]
fn a_node_that_is_refused_for_its_disk_has_lost_it_and_leads_no_more() {
    let refused = |machine: &mut Quorum, by: &str, replaced: bool| {
        let evidence = Evidence::DiskRefused { by: node(by), replaced };
        machine.handle(at(60_000), Input::Evidence(evidence));
        drain(machine)
    };
    // The only voter that it knows of, as in a node that began the election and lost its disk since.
    let mut alone = machine("c", HardState::default());
    alone.set_voters([node("c")].into());
    alone.handle(at(2_000), Input::Command(Command::Campaign));
    alone.handle(at(3_000), Input::Timeout);
    assert!(alone.leader().is_some());
    drain(&mut alone);
    alone.handle(at(3_100), Input::Timeout);
    drain(&mut alone);
    alone.handle(at(3_100), Input::Evidence(Evidence::DiskRefused { by: node("a"), replaced: false }));
    let outputs = drain(&mut alone);
    assert!(outputs.contains(&Output::Event(Event::Deposed(Reason::DiskLost))), "{outputs:?}");
    assert_eq!((alone.status().hard.disk_state, alone.leader()), (DiskState::Lost, None));
    assert_eq!(
        (alone.can_campaign(), refused(&mut alone, "a", false)),
        (false, Vec::new()),
        "it knows that already"
    );
    // A recovered node goes on: the peer has not heard of the recovery yet. But a disk replaced after that is lost.
    let hard = HardState { term: Term(5), disk_state: DiskState::Recovered, ..HardState::default() };
    let mut recovered = machine("c", hard);
    assert_eq!(
        (refused(&mut recovered, "a", false), refused(&mut recovered, "c", true)),
        (Vec::new(), Vec::new())
    );
    let outputs = refused(&mut recovered, "a", true);
    assert!(
        matches!(outputs.as_slice(), [Output::Persist(HardState { disk_state: DiskState::Lost, .. })]),
        "{outputs:?}"
    );
}

#[test]
fn a_term_that_is_no_honest_nodes_costs_nobody_its_votes() {
    let mut c = machine("c", HardState::default());
    told(&mut c, at(60_000), "a", u64::MAX);
    told(&mut c, at(60_000), "c", 3);
    assert_eq!((drain(&mut c), c.status().hard.disk_state), (Vec::new(), DiskState::Intact));
    assert_eq!(asked(&mut c, at(60_000), 9), Answer::Yes);
}

#[test]
fn one_that_lost_its_disk_is_not_about_to_hear_that_the_leader_is_gone() {
    // It knows that `a` is gone, and asks; what `c` lacks is its disk, which does not come soon.
    let mut b = machine("b", HardState::default());
    let a = Identity::new(node("a"), Incarnation { count: 1, nonce: 3 });
    let from_a = |body| Input::Message {
        from: Endpoint::Node(node("a")),
        message: Message { incarnation: a.incarnation, term: Term(1), body },
    };
    b.handle(at(60_000), Input::Command(Command::Campaign));
    drain(&mut b);
    b.handle(at(60_000), from_a(Body::Heartbeat { round: Round(1) }));
    drain(&mut b);
    b.handle(at(60_100), from_a(Body::Resigned { successor: None }));
    drain(&mut b);
    b.handle(at(60_100), Input::Timeout);
    let outputs = drain(&mut b);
    let round = outputs.iter().find_map(|output| match output {
        Output::Send { message: Message { body: Body::Vote { round, .. }, .. }, .. } => Some(*round),
        Output::Send { .. } | Output::Persist(_) | Output::Event(_) => None,
    });
    let answer = Answer::No(Refusal::DiskLost);
    for from in ["a", "c"] {
        let body = Body::VoteReply { round: round.expect("a question"), to: b.config.me.incarnation, answer };
        let message = Message { incarnation: Incarnation { count: 1, nonce: 3 }, term: Term(1), body };
        b.handle(at(60_101), Input::Message { from: Endpoint::Node(node(from)), message });
        drain(&mut b);
    }
    assert_eq!(b.gone.map(|gone| gone.tries), Some(0), "it would ask again and again");
}

/// The kind of request that `b` sends at its deadline: `true` for votes, `false` for pre-votes, `None` for neither.
fn asks_for_votes(b: &mut Quorum) -> Option<bool> {
    let now = b.deadline().expect("it stands");
    b.handle(now, Input::Timeout);
    let kind = |output| match output {
        Output::Send { message: Message { body: Body::Vote { .. }, .. }, .. } => Some(true),
        Output::Send { message: Message { body: Body::PreVote { .. }, .. }, .. } => Some(false),
        Output::Send { .. } | Output::Persist(_) | Output::Event(_) => None,
    };
    drain(b).into_iter().find_map(kind)
}

/// `b`, which campaigns, follows `a` in term 1, and hears that it has resigned.
fn without_leader(successor: Option<&str>) -> Quorum {
    let mut b = machine("b", HardState::default());
    b.handle(at(60_000), Input::Command(Command::Campaign));
    for body in [Body::Heartbeat { round: Round(1) }, Body::Resigned { successor: successor.map(node) }] {
        let message = Message { incarnation: Incarnation { count: 1, nonce: 3 }, term: Term(1), body };
        b.handle(at(60_000), Input::Message { from: Endpoint::Node(node("a")), message });
        drain(&mut b);
    }
    b
}

#[test]
fn one_that_knows_its_leader_to_be_gone_asks_for_votes_once_and_nobody_answers() {
    let mut b = without_leader(None);
    assert_eq!(asks_for_votes(&mut b), Some(true));
    // Cut off from now on: it must not come back in a term that unseats the leader of then.
    let later: Vec<bool> = (0..20).filter_map(|_| asks_for_votes(&mut b)).collect();
    assert!(later.len() > 5 && later.iter().all(|votes| !votes), "{later:?}");
    assert_eq!(b.status().hard.term, Term(2));
}

#[test]
fn one_that_has_voted_for_the_successor_asks_first_when_it_hears_nothing_of_it() {
    let mut b = without_leader(Some("c"));
    let vote = Message {
        incarnation: Incarnation { count: 1, nonce: 3 },
        term: Term(2),
        body: Body::Vote { round: Round(1), resignation: None },
    };
    b.handle(at(60_001), Input::Message { from: Endpoint::Node(node("c")), message: vote });
    drain(&mut b);
    assert_eq!(b.status().hard.voted_for.map(|voted| voted.node), Some(node("c")));
    assert_eq!(asks_for_votes(&mut b), Some(false));
    assert_eq!(b.status().hard.term, Term(2));
}
