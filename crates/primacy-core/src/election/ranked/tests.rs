//! Cases that no script can tell: all messages of one server, and messages that no honest server sends.

use alloc::collections::BTreeSet;

use super::*;
use crate::protocol::Peer;

fn node(name: &str) -> NodeId {
    NodeId::new(name).expect("a name")
}

fn at(millis: u64) -> Instant {
    Instant::from_nanos(millis * 1_000_000)
}

const fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn identity(name: &str) -> Identity {
    Identity::new(node(name), Incarnation { count: 1, nonce: 1 })
}

/// One of these voters, with the timers of the library, in an incarnation that begins at zero; it campaigns.
fn machine(name: &str, voters: &[&str], hard: HardState) -> Ranked {
    let config = Config {
        me: identity(name),
        voters: voters.iter().map(|&name| node(name)).collect(),
        heartbeat_interval: millis(250),
        miss_count: 3,
        initial_count: 5,
        gathering: millis(50),
        witness: false,
        seed: 1,
    };
    let mut machine = Ranked::new(config, hard, at(0));
    for &other in voters.iter().filter(|&&other| other != name) {
        connect(&mut machine, at(0), other);
    }
    machine.handle(at(0), Input::Command(Command::Campaign));
    drain(&mut machine);
    machine
}

fn connect(machine: &mut Ranked, now: Instant, to: &str) {
    let peer = Peer { identity: identity(to), priority: 0, witness: false, round_trip: Duration::ZERO };
    machine.handle(now, Input::Evidence(Evidence::Connected(peer)));
}

fn drain(machine: &mut Ranked) -> Vec<Output<Message, HardState>> {
    core::iter::from_fn(|| machine.poll()).collect()
}

fn hear(machine: &mut Ranked, now: Instant, from: &str, body: Body) -> Vec<Output<Message, HardState>> {
    let message = Message { incarnation: identity(from).incarnation, body };
    machine.handle(now, Input::Message { from: Endpoint::Node(node(from)), message });
    drain(machine)
}

fn timeout(machine: &mut Ranked, now: Instant) -> Vec<Output<Message, HardState>> {
    machine.handle(now, Input::Timeout);
    drain(machine)
}

fn elect(ballot: u64, seen: Option<(u64, u64)>, hears: Option<u32>) -> Body {
    let seen = seen.map(|(term, counter)| LeaderSequence { term: Term(term), counter });
    Body::Elect { ballot: Term(ballot), claim: Claim { seen, hears, campaigns: true } }
}

fn lead(term: u64, counter: u64, state: &[u8]) -> Body {
    Body::Lead { number: LeaderSequence { term: Term(term), counter }, state: Arc::from(state) }
}

fn vote(ballot: u64) -> Body {
    Body::Vote { to: identity("a").incarnation, ballot: Term(ballot) }
}

fn answer(term: u64, counter: u64) -> Body {
    let number = LeaderSequence { term: Term(term), counter };
    Body::LeadReply { to: identity("a").incarnation, number, promised: Term(term) }
}

/// The server that this one votes for in this ballot, if it votes; checks that the vote was persisted before.
fn voted(outputs: &[Output<Message, HardState>]) -> Option<(Term, NodeId)> {
    let mut written = None;
    let mut sent = None;
    for output in outputs {
        match output {
            Output::Persist(hard) => written = hard.voted_for.map(|who| (hard.term, who.node)),
            Output::Send {
                to: Endpoint::Node(to),
                message: Message { body: Body::Vote { ballot, .. }, .. },
            } => {
                assert_eq!(written, Some((*ballot, *to)), "on disk before it leaves");
                sent = written;
            }
            Output::Send { .. } | Output::Event(_) => {}
        }
    }
    sent.or(written)
}

/// `a` of three, elected in ballot 1 at 1,300 ms.
fn leader() -> Ranked {
    let mut a = machine("a", &["a", "b", "c"], HardState::default());
    timeout(&mut a, at(1_250));
    hear(&mut a, at(1_251), "b", elect(1, None, None));
    timeout(&mut a, at(1_300));
    hear(&mut a, at(1_301), "b", vote(1));
    assert_eq!(a.status().role, "leader");
    a
}

#[test]
fn the_first_wait_is_five_heartbeats_and_after_a_leader_it_is_three() {
    let mut b = machine("b", &["a", "b", "c"], HardState::default());
    assert_eq!(b.deadline(), Some(at(1_250)));
    hear(&mut b, at(100), "a", lead(1, 1, &[]));
    assert_eq!(b.deadline(), Some(at(850)));
    let claims = timeout(&mut b, at(850));
    let elects = claims.iter().filter(|output| {
        matches!(
            output,
            Output::Send { message: Message { body: Body::Elect { ballot: Term(2), .. }, .. }, .. }
        )
    });
    assert_eq!(elects.count(), 2, "{claims:?}");
    assert_eq!(b.deadline(), Some(at(900)), "claims are gathered for one round trip");
}

#[test]
fn claims_are_gathered_twice_as_long_after_each_round_that_elects_nobody() {
    let mut b = machine("b", &["a", "b", "c"], HardState::default());
    let mut gathered = Vec::new();
    for _ in 0..5 {
        let begins = b.deadline().expect("it stands");
        timeout(&mut b, begins);
        let ends = b.deadline().expect("it gathers");
        gathered.push(ends.since(begins));
        assert_eq!(voted(&timeout(&mut b, ends)), None, "a claim alone is no majority");
    }
    assert_eq!(gathered, [50, 100, 200, 250, 250].map(millis));
    assert_eq!(b.status().hard, HardState::default(), "proposing promises nothing");
}

#[test]
fn claims_are_gathered_for_two_round_trips_where_that_is_longer_than_configured() {
    let gathered = |round_trips: [u64; 2]| {
        let mut c = machine("c", &["a", "b", "c"], HardState::default());
        for (name, took) in ["a", "b"].into_iter().zip(round_trips) {
            let peer =
                Peer { identity: identity(name), priority: 0, witness: false, round_trip: millis(took) };
            c.handle(at(0), Input::Evidence(Evidence::Connected(peer)));
            drain(&mut c);
        }
        let begins = c.deadline().expect("it stands");
        timeout(&mut c, begins);
        c.deadline().expect("it gathers").since(begins)
    };
    assert_eq!(gathered([1, 2]), millis(50), "what is configured");
    assert_eq!(gathered([60, 60]), millis(120));
    assert_eq!(gathered([400, 400]), millis(250), "a heartbeat at most");
}

/// The server that `d` of five votes for, if these claims come to it, and one does not. It has followed `e` up to (2,
/// 7).
fn chosen(claims: &[(&str, Body)]) -> Option<NodeId> {
    let mut d = machine("d", &["a", "b", "c", "d", "e"], HardState::default());
    hear(&mut d, at(10), "e", lead(2, 7, &[]));
    let begins = d.deadline().expect("it follows");
    timeout(&mut d, begins);
    for (from, claim) in claims {
        hear(&mut d, begins, from, claim.clone());
    }
    assert_eq!(d.status().role, "voting", "it waits for the one that does not come");
    let (_, choice) = voted(&timeout(&mut d, begins.after(millis(50))))?;
    Some(choice)
}

#[test]
fn the_best_claim_is_chosen() {
    let [a, b, c, d, e] = ["a", "b", "c", "d", "e"].map(node);
    // The old leader, although another has a smaller name.
    assert_eq!(chosen(&[("a", elect(3, Some((2, 7)), None)), ("e", elect(3, Some((2, 7)), None))]), Some(e));
    // Else the latest message, which is its own here.
    assert_eq!(chosen(&[("a", elect(3, Some((2, 6)), None)), ("b", elect(3, None, None))]), Some(d));
    // Of equal ones the smallest name.
    assert_eq!(chosen(&[("c", elect(3, Some((2, 7)), None)), ("b", elect(3, Some((2, 7)), None))]), Some(b));
    // A server that has seen a later leader knows that `e` is not the last.
    assert_eq!(chosen(&[("c", elect(4, Some((3, 1)), None)), ("e", elect(3, Some((2, 7)), None))]), Some(c));
    // A claim that hears too few cannot win, and another that hears enough may, where this server itself hears too few.
    assert_eq!(chosen(&[("a", elect(3, Some((2, 9)), Some(2))), ("b", elect(3, None, Some(3)))]), Some(d));
    assert_eq!(chosen(&[("a", elect(3, Some((2, 9)), Some(5)))]), Some(a));
    // Two of five are no majority of claims.
    assert_eq!(chosen(&[("a", elect(3, Some((2, 9)), None))]), None);
    // A claim for a decided ballot may have been under way for long.
    assert_eq!(chosen(&[("a", elect(2, Some((2, 9)), None)), ("b", elect(2, None, None))]), None);
}

#[test]
fn a_lead_that_comes_while_voting_ends_the_vote() {
    // The note takes no `Lead` then.
    let mut c = machine("c", &["a", "b", "c", "d", "e"], HardState::default());
    hear(&mut c, at(10), "b", elect(3, None, None));
    assert_eq!((c.status().role, c.status().ballot), ("voting", Some(Term(3))));
    hear(&mut c, at(11), "a", elect(3, None, None));
    let answers = hear(&mut c, at(12), "e", lead(2, 1, b"state"));
    let number = LeaderSequence { term: Term(2), counter: 1 };
    let support = Body::LeadReply { to: identity("e").incarnation, number, promised: Term(2) };
    assert!(
        answers
            .iter()
            .any(|output| matches!(output, Output::Send { message, .. } if message.body == support))
    );
    assert_eq!(c.status().leader, Some(Leader { identity: identity("e"), term: Term(2) }));
    assert_eq!((c.status().role, c.deadline()), ("follower", Some(at(762))));
    // A server that still gathers claims is told so, and the claims that come do not bring the vote back.
    let told = hear(&mut c, at(13), "d", elect(3, None, None));
    assert!(
        matches!(&told[..], [Output::Send { message: Message { body: Body::Hears { .. }, .. }, .. }]),
        "{told:?}"
    );
    assert_eq!(c.status().hard, HardState::default(), "it has not voted");
}

#[test]
fn one_who_is_not_connected_is_not_heard_nor_waited_for() {
    let mut c = machine("c", &["a", "b", "c"], HardState::default());
    c.handle(at(1), Input::Evidence(Evidence::Disconnected(node("a"))));
    assert_eq!(hear(&mut c, at(1), "a", elect(1, None, None)), []);
    let claims = hear(&mut c, at(2), "b", elect(1, None, None));
    assert_eq!(voted(&claims), Some((Term(1), node("b"))), "all who are connected have claimed");
}

#[test]
fn one_that_does_not_stand_tells_who_is_behind_of_its_ballot() {
    let mut b = machine("b", &["a", "b", "c"], HardState { term: Term(7), ..HardState::default() });
    b.handle(at(0), Input::Command(Command::Withdraw));
    timeout(&mut b, at(1_250));
    assert_eq!(b.deadline(), None, "it asks for no leader by itself");
    assert_eq!(hear(&mut b, at(1_300), "a", elect(1, None, None)), []);
    let soon = b.deadline().expect("but it was asked");
    let outputs = timeout(&mut b, soon);
    let tells = |output: &Output<Message, HardState>| {
        let message = Message {
            incarnation: identity("b").incarnation,
            body: Body::Elect { ballot: Term(8), claim: Claim { seen: None, hears: None, campaigns: false } },
        };
        *output == Output::Send { to: Endpoint::Node(node("a")), message }
    };
    assert!(outputs.iter().any(tells), "{outputs:?}");
}

/// Draws the messages to a server, and checks that it never sends more than the note allows.
#[test]
fn nobody_sends_more_than_two_messages_in_the_time_of_a_round() {
    let (mut elects, mut votes) = (0, 0);
    for seed in 0..300 {
        let mut rng = Rng::new(seed);
        let mut a = machine("a", &["a", "b", "c"], HardState::default());
        let (mut elected_at, mut voted_at) = (None, None);
        let mut now = at(0);
        for _ in 0..400 {
            let longest = if rng.up_to(3) == 0 { 200 } else { 5 };
            now = now.after(rng.duration_up_to(millis(longest)));
            let from = ["b", "c"][usize::from(rng.up_to(1) == 0)];
            let near = a.status().ballot.unwrap_or(a.status().hard.term).0;
            let ballot = near + rng.up_to(2);
            let peer =
                Peer { identity: identity(from), priority: 0, witness: false, round_trip: Duration::ZERO };
            let input = match rng.up_to(9) {
                0..=2 => Some(elect(ballot, Some((rng.up_to(near), 1)), Some(2))),
                3 | 4 => Some(vote(ballot)),
                5 => Some(lead(ballot, rng.up_to(3), &[])),
                6 => Some(Body::Resigned { term: Term(near), successor: None }),
                7 | 8 => None,
                _ => {
                    let closes = rng.up_to(1) == 0;
                    let evidence = if closes {
                        Evidence::Disconnected(peer.identity.node)
                    } else {
                        Evidence::Connected(peer)
                    };
                    a.handle(now, Input::Evidence(evidence));
                    Some(answer(near, 1))
                }
            };
            let mut outputs = drain(&mut a);
            outputs.extend(match input {
                Some(body) => hear(&mut a, now, from, body),
                None => timeout(&mut a, now),
            });
            let says = |what: fn(&Body) -> bool| {
                let sent = outputs
                    .iter()
                    .filter(|output| matches!(output, Output::Send { message, .. } if what(&message.body)));
                sent.count()
            };
            let (claims, given) = (
                says(|body| matches!(body, Body::Elect { .. })),
                says(|body| matches!(body, Body::Vote { .. })),
            );
            assert!(claims == 0 || claims == 2, "one message to all, once");
            if claims > 0 {
                assert!(
                    elected_at.is_none_or(|last: Instant| now >= last.after(millis(50))),
                    "seed {seed}: {now:?}"
                );
                elected_at = Some(now);
                elects += 1;
            }
            if given > 0 {
                assert_eq!(given, 1, "seed {seed}");
                assert!(
                    voted_at.is_none_or(|last: Instant| now >= last.after(millis(50))),
                    "seed {seed}: {now:?}"
                );
                voted_at = Some(now);
                votes += 1;
            }
        }
    }
    assert!(elects > 1_000 && votes > 1_000, "{elects} claims and {votes} votes say little");
}

#[test]
fn a_vote_counts_once_and_only_in_its_ballot() {
    let mut a = machine("a", &["a", "b", "c", "d", "e"], HardState::default());
    for body in [vote(1), vote(1), vote(2)] {
        hear(&mut a, at(1), "b", body);
    }
    hear(&mut a, at(1), "c", vote(1));
    hear(&mut a, at(1), "d", vote(3));
    assert_eq!(a.status().role, "follower", "no three voters in one ballot");
    // An earlier one of `b` comes late; its later one stands.
    hear(&mut a, at(2), "b", vote(1));
    hear(&mut a, at(2), "c", vote(3));
    assert_eq!(a.status().role, "follower");
    let outputs = hear(&mut a, at(3), "b", vote(3));
    assert!(
        matches!(outputs.first(), Some(Output::Persist(hard)) if hard.term == Term(3)),
        "its own term is on disk before it is told: {outputs:?}"
    );
    assert_eq!(a.status().role, "leader");
}

#[test]
fn a_vote_for_an_earlier_life_is_none() {
    let mut a = machine("a", &["a", "b", "c"], HardState::default());
    let earlier = Incarnation { count: 0, nonce: 9 };
    for from in ["b", "c"] {
        hear(&mut a, at(1), from, Body::Vote { to: earlier, ballot: Term(1) });
    }
    assert_eq!(a.status().role, "follower");
}

#[test]
fn what_a_leader_announces_is_numbered_bounded_and_observed() {
    let mut a = leader();
    assert!(a.announce(at(1_310), Arc::from(*b"one")));
    let told: Vec<Body> = drain(&mut a)
        .into_iter()
        .filter_map(|output| match output {
            Output::Send { message, .. } => Some(message.body),
            Output::Persist(_) | Output::Event(_) => None,
        })
        .collect();
    assert_eq!(told, [lead(1, 2, b"one"), lead(1, 2, b"one")]);
    let mut b = machine("b", &["a", "b", "c"], HardState::default());
    hear(&mut b, at(1), "a", lead(1, 2, b"one"));
    hear(&mut b, at(2), "a", lead(1, 1, b"old"));
    let number = LeaderSequence { term: Term(1), counter: 2 };
    assert_eq!(b.state(), Some((number, &Arc::from(*b"one"))));
    assert!(!b.announce(at(3), Arc::from(*b"mine")), "it is not its to say");
    assert!(drain(&mut b).is_empty());
    assert_eq!(b.state(), Some((number, &Arc::from(*b"one"))));
    hear(&mut b, at(4), "a", lead(1, 3, &alloc::vec![0; STATE_MAX + 1]));
    assert_eq!(b.state(), Some((number, &Arc::from(*b"one"))), "too long to be honest");
    // The next leader goes on announcing it.
    a.handle(at(1_320), Input::Command(Command::Resign));
    drain(&mut a);
    assert!(!a.announce(at(1_321), Arc::from(*b"two")), "it is about to resign");
}

#[test]
fn answers_count_however_much_is_announced() {
    let mut a = leader();
    let mut now = at(1_302);
    for step in 0..2_000_u64 {
        now = now.after(millis(1));
        assert!(a.announce(now, Arc::from(step.to_le_bytes())), "at {now:?}, it leads on");
        drain(&mut a);
        // The answer to the message of 200 ms ago.
        if let Some(answered) = step.checked_sub(200) {
            hear(&mut a, now, "b", answer(1, 2 + answered));
        }
    }
    let Candidate::Leader(lead) = &a.candidate else { panic!("it leads") };
    let most = SENT_PER_HEARTBEAT * u64::from(a.config.miss_count) + 1;
    assert!(lead.sent.len() as u64 <= most, "{} are kept", lead.sent.len());
    // An answer to a message that was never sent is none.
    let until = a.status().valid_until;
    hear(&mut a, now.after(millis(1)), "b", answer(1, 90_000));
    assert_eq!(a.status().valid_until, until);
}

#[test]
fn a_leader_that_nobody_answers_gives_up() {
    let mut a = leader();
    assert_eq!(a.status().valid_until, Some(at(2_051)));
    hear(&mut a, at(1_310), "c", answer(1, 1));
    hear(&mut a, at(1_310), "c", answer(1, 1));
    timeout(&mut a, at(1_551));
    assert_eq!(a.status().valid_until, Some(at(2_051)), "nobody has answered the second one");
    assert!(timeout(&mut a, at(2_051)).contains(&Output::Event(Event::Deposed(Reason::Expired))));
}

#[test]
fn a_leader_that_has_resigned_is_not_followed_again() {
    let mut b = machine("b", &["a", "b", "c"], HardState::default());
    hear(&mut b, at(1), "a", Body::Resigned { term: Term(1), successor: None });
    hear(&mut b, at(2), "a", lead(1, 1, &[]));
    assert_eq!(b.status().leader, None, "it was said before, and comes late");
    hear(&mut b, at(3), "c", lead(2, 1, &[]));
    hear(&mut b, at(4), "a", Body::Resigned { term: Term(1), successor: None });
    assert_eq!(b.status().leader, Some(Leader { identity: identity("c"), term: Term(2) }));
    hear(&mut b, at(5), "a", Body::Resigned { term: Term(3), successor: None });
    assert_eq!(b.status().leader, None, "the leader of a lower term is none any more");
}

#[test]
fn two_leaders_of_one_term_are_an_alarm() {
    let mut c = machine("c", &["a", "b", "c"], HardState::default());
    hear(&mut c, at(1), "a", lead(1, 1, &[]));
    let outputs = hear(&mut c, at(2), "b", lead(1, 1, &[]));
    let violation = Violation::TwoLeaders { term: Term(1), known: identity("a"), other: identity("b") };
    assert!(outputs.contains(&Output::Event(Event::Violation(violation))), "{outputs:?}");
    assert_eq!(c.status().leader, None);
}

#[test]
fn a_server_that_has_lost_its_disk_has_no_vote_until_all_others_have_told_theirs() {
    let mut b = machine("b", &["a", "b", "c"], HardState::default());
    let told = |b: &mut Ranked, by: &str, term: u64| {
        b.handle(at(1), Input::Evidence(Evidence::Readmitted { by: node(by), term: Term(term) }));
        drain(b)
    };
    let lost = told(&mut b, "a", 4);
    assert!(
        matches!(lost.as_slice(), [Output::Persist(HardState { disk_state: DiskState::Lost, .. })]),
        "{lost:?}"
    );
    assert_eq!(hear(&mut b, at(2), "a", elect(5, None, None)), []);
    assert_eq!(hear(&mut b, at(2), "a", lead(5, 1, &[])), []);
    told(&mut b, "c", 6);
    assert_eq!(b.status().recovering, None);
    assert_eq!(b.status().hard.term, Term(6));
    let outputs = hear(&mut b, at(3), "a", lead(5, 1, &[]));
    assert!(
        matches!(
            outputs.as_slice(),
            [Output::Send { message: Message { body: Body::LeadReply { promised: Term(6), .. }, .. }, .. }]
        ),
        "{outputs:?}"
    );
}

/// A drawn message of a peer, in a drawn incarnation.
fn drawn(rng: &mut Rng) -> Message {
    let life = |rng: &mut Rng| Incarnation { count: 1, nonce: rng.one_of(&[1, 1, 1, 2]) };
    let name = rng.one_of(&["a", "b", "c", "d", "e", "stranger"]);
    let (to, leader) = (life(rng), Identity::new(node(name), life(rng)));
    let (ballot, term) = (Term(rng.mostly_small()), Term(rng.mostly_small()));
    let number = LeaderSequence { term, counter: rng.mostly_small() };
    let hears = rng.one_of(&[None, Some(0), Some(3), Some(5), Some(u32::MAX)]);
    let claim =
        Claim { seen: rng.one_of(&[None, Some(number)]), hears, campaigns: rng.one_of(&[true, false]) };
    let state = Arc::from(alloc::vec![0; rng.one_of(&[0, 1, STATE_MAX, STATE_MAX + 1])]);
    let successor = rng.one_of(&[None, Some(node(name))]);
    let body = rng.one_of(&[
        Body::Elect { ballot, claim },
        Body::Vote { to, ballot },
        Body::Vote { to, ballot: Term(1) },
        Body::Hears { to, leader: Leader { identity: leader, term } },
        Body::Lead { number, state },
        Body::LeadReply { to, number, promised: ballot },
        Body::Resigned { term, successor },
    ]);
    Message { incarnation: life(rng), body }
}

#[test]
fn whatever_is_said_to_a_server_it_keeps_within_its_limits_and_its_promises() {
    let voters = ["a", "b", "c", "d", "e"];
    let mut rng = Rng::new(1);
    let mut roles = BTreeSet::new();
    for _ in 0..200 {
        let (mut a, mut now) = (machine("a", &voters, HardState::default()), 0);
        let (mut written, mut led) = (HardState::default(), Term(0));
        for _ in 0..100 {
            now += rng.one_of(&[0, 0, 0, 1, 50, 250, 1_250]);
            let from = node(rng.one_of(&["a", "b", "c", "d", "e", "stranger"]));
            let input = if rng.up_to(4) == 0 {
                Input::Timeout
            } else {
                Input::Message { from: Endpoint::Node(from), message: drawn(&mut rng) }
            };
            a.handle(at(now), input);
            let said = drain(&mut a);
            assert!(said.len() <= 4 * voters.len(), "{said:?}");
            for output in said {
                match output {
                    Output::Persist(hard) => {
                        let again = hard.term == written.term && hard.voted_for == written.voted_for;
                        assert!(hard.term > written.term || again, "a second vote: {written:?}, {hard:?}");
                        written = hard;
                    }
                    Output::Event(Event::Elected { term, .. }) => {
                        assert!(term > led && term <= written.term, "{term} after {led}");
                        led = term;
                    }
                    Output::Send { .. } | Output::Event(_) => {}
                }
            }
            let sizes = [a.tally.len(), a.hearsay.len(), a.connected.len(), a.dead.len()];
            assert!(sizes.iter().all(|&size| size < voters.len() + 1), "{sizes:?}");
            assert!(a.status().slate.len() <= voters.len() && a.state.len() <= STATE_MAX);
            if let Candidate::Leader(lead) = &a.candidate {
                assert!(
                    lead.support.len() <= voters.len() && lead.sent.len() as u64 <= 4 * SENT_PER_HEARTBEAT
                );
            }
            roles.insert(a.status().role);
        }
    }
    assert_eq!(
        roles,
        BTreeSet::from(["follower", "leader", "voting"]),
        "what is drawn is to get it anywhere"
    );
}

#[test]
fn what_no_honest_server_says_changes_nothing() {
    let mut a = machine("a", &["a", "b", "c"], HardState::default());
    let before = a.clone();
    let (far, to) = (Term(u64::MAX), identity("a").incarnation);
    let number = LeaderSequence { term: far, counter: 1 };
    let impossible = [
        elect(u64::MAX, None, None),
        vote(u64::MAX),
        Body::Lead { number, state: Arc::from([]) },
        lead(1, 1, &[0; STATE_MAX + 1]),
        Body::LeadReply { to, number, promised: far },
        Body::Resigned { term: far, successor: None },
    ];
    for body in impossible {
        assert_eq!(hear(&mut a, at(1), "b", body), []);
    }
    for stranger in ["a", "stranger"] {
        assert_eq!(hear(&mut a, at(1), stranger, lead(1, 1, b"")), []);
    }
    assert_eq!(a, before);
}
