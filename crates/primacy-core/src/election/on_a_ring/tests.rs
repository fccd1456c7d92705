use std::collections::BTreeMap;

use alloc::vec;

use super::super::ring::{ChangRoberts, Probe, Ring};
use super::*;
use crate::rng::Rng;

pub(crate) const fn millis(count: u64) -> Duration {
    Duration::from_millis(count)
}

fn at(count: u64) -> Instant {
    Instant::default().after(millis(count))
}

pub(crate) fn name(place: usize) -> NodeId {
    NodeId::new(&std::format!("n{place:03}")).unwrap()
}

fn identity(node: NodeId) -> Identity {
    Identity::new(node, Incarnation { count: 1, nonce: 1 })
}

pub(crate) fn machine<P: Probing>(ring: &Arc<[NodeId]>, me: NodeId, sticky: bool) -> OnARing<P> {
    let config = Config {
        me: identity(me),
        ring: Arc::clone(ring),
        heartbeat_interval: millis(1_000),
        miss_count: 3,
        hop_timeout: millis(50),
        sticky,
    };
    let mut node = OnARing::new(config, Instant::default());
    node.handle(Instant::default(), Input::Command(Command::Campaign));
    node
}

type Sent<P> = Vec<(NodeId, Message<P>)>;

/// The messages that it sends, and its events.
fn drain<P: Probing>(node: &mut OnARing<P>) -> (Sent<P::Probe>, Vec<Event>) {
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

/// The numbers of probes and of announcements if these nodes of this ring start at once, and all links are equally
/// fast.
pub(crate) fn counted<P: Probing>(ring: &[usize], starts: impl Fn(usize) -> bool) -> (u64, u64) {
    let names: Arc<[NodeId]> = ring.iter().map(|&place| name(place)).collect();
    let now = Instant::default();
    let mut nodes: BTreeMap<NodeId, OnARing<P>> =
        names.iter().map(|&name| (name, machine(&names, name, true))).collect();
    let mut under_way = VecDeque::new();
    for &place in ring.iter().filter(|&&place| starts(place)) {
        let node = nodes.get_mut(&name(place)).unwrap();
        node.initiate(now);
        under_way.extend(drain(node).0.into_iter().map(|sent| (name(place), sent)));
    }
    let (mut probes, mut announcements) = (0, 0);
    while let Some((from, (to, message))) = under_way.pop_front() {
        match message.body {
            Body::Probe { .. } => probes += 1,
            Body::Elected { .. } => announcements += 1,
            Body::Received => {}
            Body::Resigned { .. } | Body::Knock | Body::Late => panic!("nothing is amiss: {message:?}"),
        }
        let node = nodes.get_mut(&to).unwrap();
        node.handle(now, Input::Message { from: Endpoint::Node(from), message });
        under_way.extend(drain(node).0.into_iter().map(|sent| (to, sent)));
    }
    let highest = *names.iter().max().unwrap();
    let leaders: Vec<NodeId> =
        nodes.iter().filter(|(_, node)| node.role() == "leading").map(|(&name, _)| name).collect();
    assert_eq!(leaders, [highest], "{ring:?}");
    assert!(nodes.values().all(|node| node.leader().unwrap().identity.node == highest));
    assert!(nodes.values().all(|node| node.hops.waiting() == 0), "each hop was confirmed");
    (probes, announcements)
}

/// Every order of these, as Heap's algorithm has them.
pub(crate) fn orders(of: &mut [usize], count: usize, visit: &mut impl FnMut(&[usize])) {
    if count <= 1 {
        return visit(of);
    }
    for place in 0..count {
        orders(of, count - 1, visit);
        of.swap(if count.is_multiple_of(2) { place } else { 0 }, count - 1);
    }
}

/// A ring of `count` nodes, in a random order.
pub(crate) fn shuffled(count: usize, rng: &mut Rng) -> Vec<usize> {
    let mut ring: Vec<usize> = (0..count).collect();
    for place in (1..count).rev() {
        let other = usize::try_from(rng.up_to(place as u64)).unwrap();
        ring.swap(place, other);
    }
    ring
}

/// A state machine, and all others around it played by the test.
struct Bench {
    node: Ring,
    numbers: u64,
}

impl Bench {
    fn new(ring: &[usize], me: usize, sticky: bool) -> Self {
        let names: Arc<[NodeId]> = ring.iter().map(|&place| name(place)).collect();
        Self { node: machine(&names, name(me), sticky), numbers: 0 }
    }

    fn hear(
        &mut self,
        now: Instant,
        from: usize,
        round: u64,
        body: Body<Probe>,
    ) -> (Sent<Probe>, Vec<Event>) {
        self.numbers += 1;
        let number = self.numbers;
        self.hear_number(now, from, round, number, body)
    }

    fn hear_number(
        &mut self,
        now: Instant,
        from: usize,
        round: u64,
        number: u64,
        body: Body<Probe>,
    ) -> (Sent<Probe>, Vec<Event>) {
        let incarnation = identity(name(from)).incarnation;
        let message = Message { incarnation, round: Term(round), number, body };
        self.node.handle(now, Input::Message { from: Endpoint::Node(name(from)), message });
        let (sent, told) = drain(&mut self.node);
        (sent.into_iter().filter(|(_, message)| message.body != Body::Received).collect(), told)
    }

    fn timeout(&mut self, now: Instant) -> (Sent<Probe>, Vec<Event>) {
        self.node.handle(now, Input::Timeout);
        drain(&mut self.node)
    }
}

fn probe(of: usize, hops: u32) -> Body<Probe> {
    Body::Probe { direction: Direction::Onward, probe: Probe { candidate: identity(name(of)), hops } }
}

fn elected(leader: usize, term: u64, beat: u64, hops: u32) -> Body<Probe> {
    Body::Elected { leader: Leader { identity: identity(name(leader)), term: Term(term) }, beat, hops }
}

fn said(sent: &Sent<Probe>) -> Vec<(NodeId, Body<Probe>)> {
    sent.iter().map(|&(to, message)| (to, message.body)).collect()
}

#[test]
fn a_ring_of_one_leads_itself_once_it_has_listened() {
    let mut bench = Bench::new(&[0], 0, true);
    assert_eq!(bench.timeout(at(2_999)), (vec![], vec![]));
    let (sent, told) = bench.timeout(at(3_000));
    assert_eq!(sent, []);
    assert!(matches!(told[0], Event::Elected { mandate: Mandate::Advisory, .. }), "{told:?}");
    assert_eq!(bench.timeout(at(4_000)).0, [], "there is nobody to tell");
}

#[test]
#[should_panic(expected = "each name is on the ring once")]
fn a_name_that_is_on_the_ring_twice_is_refused() {
    let _ = Bench::new(&[0, 1, 0], 1, true);
}

#[test]
fn what_is_not_confirmed_is_sent_again_and_then_past_the_silent_one() {
    let mut bench = Bench::new(&[0, 1, 2], 0, true);
    let first = bench.timeout(at(3_000)).0;
    assert_eq!(said(&first), [(name(1), probe(0, 0))]);
    assert_eq!(bench.timeout(at(3_050)).0, first, "the same, under the same number");
    let (sent, _) = bench.timeout(at(3_100));
    assert_eq!(said(&sent), [(name(1), Body::Knock), (name(2), probe(0, 0))]);
    bench.hear_number(at(3_110), 2, 1, sent[1].1.number, Body::Received);
    let (sent, _) = bench.hear(at(3_120), 2, 1, probe(0, 1));
    assert_eq!(said(&sent), [(name(2), elected(0, 1, 1, 0))], "it has just been knocked at");
    bench.hear_number(at(3_121), 2, 1, sent[0].1.number, Body::Received);
    let (sent, _) = bench.timeout(at(4_120));
    assert_eq!(said(&sent), [(name(1), Body::Knock), (name(2), elected(0, 1, 2, 0))]);
    bench.hear_number(at(4_121), 2, 1, sent[1].1.number, Body::Received);
    // The silent node is back.
    bench.hear_number(at(4_122), 1, 1, sent[0].1.number, Body::Received);
    assert_eq!(said(&bench.timeout(at(5_120)).0), [(name(1), elected(0, 1, 3, 0))]);
}

#[test]
fn whoever_has_nobody_left_leads_alone() {
    let mut bench = Bench::new(&[0, 1], 0, true);
    bench.timeout(at(3_000));
    bench.timeout(at(3_050));
    let (sent, told) = bench.timeout(at(3_100));
    assert!(matches!(told[0], Event::Elected { .. }));
    assert_eq!(said(&sent), [(name(1), Body::Knock)]);
}

#[test]
fn what_comes_twice_is_confirmed_twice_and_taken_once() {
    let mut bench = Bench::new(&[0, 1, 2], 0, true);
    assert_eq!(said(&bench.hear_number(at(0), 2, 1, 9, probe(2, 0)).0), [(name(1), probe(2, 1))]);
    let message =
        Message { incarnation: identity(name(2)).incarnation, round: Term(1), number: 9, body: probe(2, 0) };
    bench.node.handle(at(1), Input::Message { from: Endpoint::Node(name(2)), message });
    assert_eq!(said(&drain(&mut bench.node).0), [(name(2), Body::Received)]);
}

#[test]
fn what_is_of_an_earlier_round_leads_nobody_and_its_sender_is_told() {
    let mut bench = Bench::new(&[0, 1, 2, 3], 0, true);
    bench.hear(at(0), 3, 7, elected(1, 7, 1, 2));
    let (sent, _) = bench.hear(at(1), 3, 6, elected(2, 6, 1, 1));
    assert_eq!((sent[0].0, sent[0].1.body, sent[0].1.round), (name(2), Body::Late, Term(7)));
    let (sent, _) = bench.hear(at(2), 3, 6, probe(3, 0));
    assert_eq!((sent[0].0, sent[0].1.body, sent[0].1.round), (name(3), Body::Late, Term(7)));
    assert_eq!(bench.hear(at(3), 3, 7, elected(2, 6, 9, 1)).0, [], "it has won an earlier round");
    assert_eq!(bench.node.leader().unwrap().identity.node, name(1));
    assert_eq!(said(&bench.hear(at(4), 3, 7, elected(2, 7, 1, 1)).0), [(name(1), elected(2, 7, 1, 2))]);
    assert_eq!(
        bench.node.leader().unwrap().identity.node,
        name(2),
        "of two in one round the higher name leads"
    );
}

#[test]
fn a_candidate_that_hears_of_a_later_round_sends_its_name_in_that() {
    let mut bench = Bench::new(&[0, 1, 2], 1, true);
    bench.timeout(at(3_000));
    let (sent, _) = bench.hear(at(3_001), 0, 5, Body::Late);
    assert_eq!((said(&sent), sent[0].1.round), (vec![(name(2), probe(1, 0))], Term(5)));
    assert_eq!(bench.hear(at(3_002), 0, 5, Body::Late).0, []);
    // Its messages of the earlier round are not sent again.
    let again: Vec<Term> = bench.timeout(at(3_051)).0.iter().map(|(_, message)| message.round).collect();
    assert_eq!(again, [Term(5)]);
}

#[test]
fn a_sticky_leader_swallows_what_would_replace_it_and_shows_itself() {
    for sticky in [true, false] {
        let mut bench = Bench::new(&[0, 1, 2], 1, sticky);
        bench.timeout(at(3_000));
        bench.hear(at(3_001), 0, 1, probe(1, 2));
        assert_eq!(bench.node.role(), "leading");
        let (sent, _) = bench.hear(at(3_002), 0, 2, probe(2, 1));
        let shown = (name(2), elected(1, 1, 2, 0));
        assert_eq!(said(&sent), if sticky { vec![shown] } else { vec![(name(2), probe(2, 2)), shown] });
        assert_eq!(bench.hear(at(3_003), 0, 2, probe(0, 0)).0, [], "it has shown itself in this round");
        let (_, told) = bench.hear(at(3_004), 0, 2, elected(2, 2, 1, 1));
        assert_eq!(told[0], Event::Deposed(Reason::HigherTerm(Term(2))));
    }
}

#[test]
fn a_higher_name_takes_over_unless_it_is_sticky() {
    for sticky in [true, false] {
        let mut bench = Bench::new(&[0, 1, 2], 2, sticky);
        let (sent, _) = bench.hear(at(0), 1, 3, elected(1, 3, 1, 0));
        let said = said(&sent);
        assert_eq!(said[0], (name(0), elected(1, 3, 1, 1)));
        assert_eq!(said.get(1), (!sticky).then_some(&(name(0), probe(2, 0))));
    }
}

#[test]
fn a_round_is_won_once() {
    let mut bench = Bench::new(&[0, 1, 2], 1, true);
    bench.timeout(at(3_000));
    let (_, told) = bench.hear(at(3_001), 0, 1, probe(1, 2));
    assert!(matches!(told[0], Event::Elected { term: Term(1), .. }));
    let (_, told) = bench.hear(at(3_002), 0, 1, elected(2, 1, 1, 1));
    assert_eq!(told[0], Event::Deposed(Reason::HigherTerm(Term(1))));
    assert_eq!(bench.hear(at(3_003), 0, 1, probe(1, 1)), (vec![], vec![]), "it came by another way, too");
}

#[test]
fn a_leader_that_drains_still_shows_itself_and_then_yields() {
    let mut bench = Bench::new(&[0, 1], 1, true);
    bench.timeout(at(3_000));
    bench.hear(at(3_001), 0, 1, probe(1, 1));
    bench.node.handle(at(3_002), Input::Command(Command::Resign));
    assert_eq!(drain(&mut bench.node).1, [Event::Resigning(Reason::Resigned)]);
    bench.node.handle(at(3_003), Input::Command(Command::Drained));
    let (sent, told) = drain(&mut bench.node);
    assert_eq!(told[0], Event::Deposed(Reason::Resigned));
    assert!(matches!(sent[0].1.body, Body::Resigned { hops: 0, .. }));
    let sent = bench.hear(at(3_004), 0, 2, probe(0, 0)).0;
    assert_eq!(
        said(&sent),
        [(name(0), probe(0, 1))],
        "it passes on the lower name, for it has just resigned"
    );
}

#[test]
fn what_no_honest_node_says_changes_nothing() {
    let mut bench = Bench::new(&[0, 1], 0, true);
    let before = bench.node.clone();
    bench.hear(at(0), 9, 3, elected(1, 3, 1, 0));
    bench.hear(at(0), 0, 3, elected(1, 3, 1, 0));
    bench.hear(at(0), 1, u64::MAX, elected(1, 3, 1, 0));
    bench.hear(at(0), 1, 2, elected(1, 3, 1, 0));
    bench.hear(at(0), 1, 3, elected(9, 3, 1, 0));
    assert_eq!(bench.node, before);
    // A message that has gone through more nodes than there are goes no further.
    assert_eq!(bench.hear(at(0), 1, 3, elected(1, 3, 1, u32::MAX)).0, []);
    assert_eq!(bench.hear(at(0), 1, 4, probe(1, u32::MAX)).0, []);
}

#[test]
fn a_probe_whose_candidate_is_gone_ends() {
    let mut bench = Bench::new(&[0, 1, 2], 0, true);
    assert_eq!(said(&bench.hear(at(0), 2, 1, probe(2, 1)).0), [(name(1), probe(2, 2))]);
    assert_eq!(bench.hear(at(0), 2, 1, probe(2, 2)).0, []);
    assert_eq!(ChangRoberts::TURNS, 2);
}

#[test]
fn whoever_has_overslept_listens_once_more() {
    let mut bench = Bench::new(&[0], 0, true);
    assert_eq!(bench.timeout(at(3_050)), (vec![], vec![]));
    assert_eq!(bench.node.deadline(), Some(at(6_050)));
    assert!(matches!(bench.timeout(at(6_099)).1[0], Event::Elected { .. }));
}
