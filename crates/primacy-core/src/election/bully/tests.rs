use std::collections::BTreeMap;

use super::*;

const fn millis(count: u64) -> Duration {
    Duration::from_millis(count)
}

fn at(count: u64) -> Instant {
    Instant::default().after(millis(count))
}

fn names(count: usize) -> Vec<NodeId> {
    (0..count).map(|place| NodeId::new(&std::format!("n{place:03}")).unwrap()).collect()
}

fn identity(node: NodeId) -> Identity {
    Identity::new(node, Incarnation { count: 1, nonce: 1 })
}

fn machine(names: &[NodeId], me: NodeId, sticky: bool) -> Bully {
    let config = AdvisorySettings {
        me: identity(me),
        nodes: names.iter().copied().collect(),
        heartbeat_interval: millis(1_000),
        miss_count: 3,
        answer_timeout: millis(50),
        sticky,
    };
    let mut node = Bully::begin(config, Instant::default());
    node.handle(Instant::default(), Input::Command(Command::Campaign));
    node
}

/// The messages that it sends, and its events.
fn drain(node: &mut Bully) -> (Vec<(NodeId, Message)>, Vec<Event>) {
    let (mut sent, mut told) = (Vec::new(), Vec::new());
    while let Some(output) = node.poll() {
        match output {
            Output::Send { to: Endpoint::Node(to), message } => sent.push((to, message)),
            Output::Send { to: Endpoint::Store | Endpoint::Client, .. } | Output::Persist(()) => {
                panic!("it has no store, and no disk")
            }
            Output::Event(event) => told.push(event),
        }
    }
    (sent, told)
}

fn bodies(sent: &[(NodeId, Message)]) -> Vec<Body> {
    sent.iter().map(|(_, message)| message.body).collect()
}

fn hear(
    node: &mut Bully,
    now: Instant,
    from: NodeId,
    round: u64,
    body: Body,
) -> (Vec<(NodeId, Message)>, Vec<Event>) {
    let message = Message { incarnation: identity(from).incarnation, round: Term(round), body };
    node.handle(now, Input::Message { from: Endpoint::Node(from), message });
    drain(node)
}

fn heartbeat(term: u64) -> Body {
    Body::Heartbeat { term: Term(term) }
}

/// The number of messages among `count` nodes of which the highest is dead, if the node at place `starts` begins.
fn counted(count: usize, starts: usize) -> usize {
    let names = names(count);
    let mut now = at(0);
    let mut nodes: BTreeMap<NodeId, Bully> =
        names[..count - 1].iter().map(|&name| (name, machine(&names, name, false))).collect();
    let mut under_way = VecDeque::new();
    let take = |node: &mut Bully, name: NodeId, under_way: &mut VecDeque<(NodeId, NodeId, Message)>| {
        under_way.extend(drain(node).0.into_iter().map(|(to, message)| (name, to, message)));
    };
    let first = nodes.get_mut(&names[starts]).unwrap();
    first.initiate(now);
    take(first, names[starts], &mut under_way);
    let mut messages = 0;
    // Until there is a leader that all nodes know, and before the first heartbeat.
    while nodes.values().any(|node| !matches!(node.role(), "following" | "leading")) || !under_way.is_empty()
    {
        if let Some((from, to, message)) = under_way.pop_front() {
            messages += 1;
            let Some(node) = nodes.get_mut(&to) else { continue };
            node.handle(now, Input::Message { from: Endpoint::Node(from), message });
            take(node, to, &mut under_way);
        } else {
            now = nodes.values().filter_map(Bully::deadline).min().unwrap();
            for (&name, node) in &mut nodes {
                node.handle(now, Input::Timeout);
                take(node, name, &mut under_way);
            }
        }
    }
    assert_eq!(nodes[&names[count - 2]].role(), "leading");
    let leader = nodes[&names[count - 2]].leader();
    assert!(nodes.values().all(|node| node.leader() == leader));
    messages
}

#[test]
fn it_takes_as_many_messages_as_the_formula_says() {
    for n in 2..=40 {
        assert_eq!(counted(n, 0), n * n - n - 1, "the lowest of {n} starts");
        assert_eq!(counted(n, n - 2), n - 1, "the second highest of {n} starts");
        // The nodes from the first one to the second highest ask all above them, are answered by all of these but the
        // dead one, and the winner tells all below it.
        for starts in 0..n - 1 {
            let asking = n - 1 - starts;
            let expected = asking * (asking + 1) / 2 + asking * (asking - 1) / 2 + (n - 2);
            assert_eq!(counted(n, starts), expected, "{starts} of {n} starts");
        }
    }
}

#[test]
fn the_only_node_leads_at_once_when_it_has_listened() {
    let names = names(1);
    let mut node = machine(&names, names[0], true);
    node.handle(at(2_999), Input::Timeout);
    assert_eq!(drain(&mut node).1, []);
    node.handle(at(3_000), Input::Timeout);
    let told = drain(&mut node).1;
    assert!(matches!(told[0], Event::Elected { mandate: Mandate::Advisory, .. }), "{told:?}");
}

#[test]
fn what_is_of_an_earlier_election_leads_nobody_and_is_answered() {
    let names = names(3);
    let mut node = machine(&names, names[0], true);
    hear(&mut node, at(0), names[1], 7, heartbeat(7));
    let (sent, _) = hear(&mut node, at(1), names[2], 6, Body::Coordinator { term: Term(6) });
    assert_eq!(sent[0].0, names[2]);
    assert_eq!((sent[0].1.body, sent[0].1.round), (Body::Late, Term(7)));
    assert_eq!(node.leader().unwrap().identity.node, names[1]);
    // The late node has won an earlier election than the leader that is known.
    hear(&mut node, at(2), names[2], 7, heartbeat(6));
    assert_eq!(node.leader().unwrap().identity.node, names[1]);
    hear(&mut node, at(3), names[2], 7, heartbeat(7));
    assert_eq!(
        node.leader().unwrap().identity.node,
        names[2],
        "of two in one election the higher name leads"
    );
}

#[test]
fn a_leader_shows_itself_to_an_election_that_it_has_not_spoken_in() {
    let names = names(3);
    let mut node = machine(&names, names[2], true);
    node.initiate(at(0));
    drain(&mut node);
    let (sent, _) = hear(&mut node, at(1), names[0], 4, Body::Late);
    assert_eq!(bodies(&sent), [heartbeat(1), heartbeat(1)]);
    assert!(sent.iter().all(|(_, message)| message.round == Term(4)));
    assert_eq!(bodies(&hear(&mut node, at(2), names[0], 4, Body::Late).0), []);
    assert_eq!(bodies(&hear(&mut node, at(3), names[0], 4, Body::Election).0), [Body::Alive, heartbeat(1)]);
}

#[test]
fn of_two_leaders_the_one_of_the_later_election_stays() {
    let names = names(3);
    let mut node = machine(&names, names[1], true);
    node.initiate(at(0));
    drain(&mut node);
    node.handle(at(50), Input::Timeout);
    drain(&mut node);
    assert_eq!(node.role(), "leading");
    hear(&mut node, at(51), names[0], 1, heartbeat(1));
    assert_eq!(node.role(), "leading", "the other one has the lower name");
    let (_, told) = hear(&mut node, at(52), names[0], 2, heartbeat(2));
    assert_eq!(told[0], Event::Deposed(Reason::HigherTerm(Term(2))));
}

#[test]
fn a_higher_name_takes_over_unless_it_is_sticky() {
    let names = names(2);
    for sticky in [true, false] {
        let mut node = machine(&names, names[1], sticky);
        let (sent, told) = hear(&mut node, at(10), names[0], 3, heartbeat(3));
        let leads = matches!(told[0], Event::Elected { term: Term(4), .. });
        assert_eq!(leads, !sticky);
        assert_eq!(bodies(&sent).is_empty(), sticky);
    }
}

#[test]
fn a_sticky_node_asks_the_lower_leader_that_it_has_lost() {
    let names = names(2);
    let mut node = machine(&names, names[1], true);
    hear(&mut node, at(0), names[0], 3, heartbeat(3));
    node.handle(at(3_000), Input::Timeout);
    let (sent, _) = drain(&mut node);
    assert_eq!((sent[0].0, sent[0].1.body), (names[0], Body::Election));
    hear(&mut node, at(3_010), names[0], 4, heartbeat(3));
    assert_eq!(node.role(), "following");
    node.handle(at(6_010), Input::Timeout);
    drain(&mut node);
    node.handle(at(6_060), Input::Timeout);
    assert!(matches!(drain(&mut node).1[0], Event::Elected { .. }), "it has not answered any more");
}

#[test]
fn a_leader_that_drains_still_shows_itself_and_then_yields() {
    let names = names(2);
    let mut node = machine(&names, names[1], true);
    node.initiate(at(0));
    drain(&mut node);
    node.handle(at(1), Input::Command(Command::Resign));
    assert_eq!(drain(&mut node).1, [Event::Resigning(Reason::Resigned)]);
    node.handle(at(1_000), Input::Timeout);
    assert_eq!(bodies(&drain(&mut node).0), [heartbeat(1)]);
    node.handle(at(1_100), Input::Command(Command::Drained));
    let (sent, told) = drain(&mut node);
    assert_eq!(bodies(&sent), [Body::Resigned { term: Term(1) }]);
    assert_eq!(told[0], Event::Deposed(Reason::Resigned));
    assert_eq!(
        bodies(&hear(&mut node, at(1_200), names[0], 2, Body::Election).0),
        [],
        "it has just resigned"
    );
}

#[test]
fn what_no_honest_node_says_changes_nothing() {
    let names = names(2);
    let mut node = machine(&names, names[0], true);
    let before = node.clone();
    hear(&mut node, at(0), NodeId::new("stranger").unwrap(), 3, heartbeat(3));
    hear(&mut node, at(0), names[0], 3, heartbeat(3));
    hear(&mut node, at(0), names[1], u64::MAX, heartbeat(3));
    hear(&mut node, at(0), names[1], 2, heartbeat(3));
    assert_eq!(node, before);
}

#[test]
fn whoever_has_overslept_listens_once_more() {
    let names = names(1);
    let mut node = machine(&names, names[0], true);
    node.handle(at(3_050), Input::Timeout);
    assert_eq!(drain(&mut node).1, []);
    assert_eq!(node.deadline(), Some(at(6_050)));
    node.handle(at(6_099), Input::Timeout);
    assert!(matches!(drain(&mut node).1[0], Event::Elected { .. }));
}

#[test]
fn a_node_that_is_told_to_stand_late_has_listened_already() {
    let names = names(1);
    let mut node = machine(&names, names[0], true);
    node.handle(at(1), Input::Command(Command::Withdraw));
    assert_eq!(node.deadline(), None);
    node.handle(at(9_000), Input::Command(Command::Campaign));
    assert_eq!(node.deadline(), Some(at(9_000)));
    node.handle(at(9_000), Input::Timeout);
    assert!(matches!(drain(&mut node).1[0], Event::Elected { .. }));
}
