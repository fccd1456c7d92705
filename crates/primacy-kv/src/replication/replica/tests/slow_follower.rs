//! The messages to, and the memory for, a follower that does not answer.

use super::*;

const FIRST: usize = 0;
const SILENT: usize = 1;

/// The bytes of a record's payload here.
const PAYLOAD: usize = 50;

/// Three replicas, whose messages come at once.
#[derive(Debug)]
struct Trio {
    now: Instant,
    nodes: [Replica<History>; 3],
}

impl Trio {
    /// The first leads, and is active.
    fn new() -> Self {
        let now = Instant::default();
        let node = |index| {
            let config = Config { part_max: 1_000, ..config(identity(index, 1), Durability::Fsync) };
            let replica = Replica::new(config, Term(1), three(), Stored::default(), false, now);
            replica.expect("there is nothing to be read")
        };
        let mut trio = Self { now, nodes: [0, 1, 2].map(node) };
        trio.nodes[FIRST].lead(now);
        trio.settle(None);
        assert!(trio.nodes[FIRST].is_active());
        trio
    }

    /// Delivers everything and does what is due, until no node has a message; returns the messages to the second, which
    /// hears nothing of it if it is `silent`.
    fn settle(&mut self, silent: Option<usize>) -> Vec<Body> {
        let mut said = Vec::new();
        for _ in 0..10_000 {
            let Some((from, to, body)) = self.next() else { return said };
            if to == SILENT {
                said.push(body.clone());
            }
            if silent != Some(to) {
                self.nodes[to].handle(self.now, identity(from, 1), Term(1), body);
            }
        }
        panic!("there is no end to what is said: {:?}", said.last());
    }

    fn next(&mut self) -> Option<(usize, usize, Body)> {
        for index in 0..self.nodes.len() {
            loop {
                match self.nodes[index].poll() {
                    Some(Effect::Send { to, body }) => {
                        let to = (0..self.nodes.len()).find(|&it| name(it) == to);
                        return Some((index, to.expect("one of the three"), body));
                    }
                    Some(Effect::Write(_) | Effect::Voters(_)) => {}
                    Some(Effect::LogLost(_) | Effect::TwoLeaders { .. }) => panic!("nothing went wrong"),
                    None if self.nodes[index].on_performed(self.now) => {}
                    None if self.nodes[index].deadline().is_some_and(|at| at <= self.now) => {
                        self.nodes[index].on_timeout(self.now);
                    }
                    None => break,
                }
            }
        }
        None
    }

    /// Proposes so many payloads, one after the other, which are committed without the second.
    fn write(&mut self, count: u8) -> Vec<Body> {
        let mut said = Vec::new();
        for number in 0..count {
            assert!(self.nodes[FIRST].propose(self.now, Arc::from([number; PAYLOAD])));
            said.extend(self.settle(Some(SILENT)));
            let leader = &self.nodes[FIRST];
            assert_eq!(leader.committed(), leader.last(), "two of three hold it");
        }
        said
    }

    fn wait(&mut self) {
        self.now = self.now.after(self.nodes[FIRST].config.resend_after);
    }
}

fn bytes(said: &[Body]) -> usize {
    said.iter().flat_map(records).map(Record::size).sum()
}

fn records(body: &Body) -> &[Record] {
    match body {
        Body::Append { records, .. } | Body::Fetched { records, .. } => records,
        Body::Sync | Body::SyncReply { .. } | Body::Fetch { .. } | Body::AppendReply { .. } => &[],
        Body::Offer { .. } | Body::Part { .. } | Body::PartReply { .. } => &[],
        Body::Recover | Body::RecoverReply { .. } => &[],
    }
}

#[test]
fn no_more_than_a_window_is_under_way_to_a_follower_that_does_not_answer() {
    let mut trio = Trio::new();
    let Config { window, append_max, .. } = trio.nodes[FIRST].config;
    let said = trio.write(100);
    let under_way = bytes(&said);
    assert!(trio.nodes[FIRST].state().0.len() > 10 * window, "far more was written");
    assert!((window..window + append_max).contains(&under_way), "{under_way} bytes are under way");
    // A message that is not answered in time is not sent again: the follower is asked for the end of its log, as often
    // as an answer is waited for.
    for _ in 0..20 {
        trio.wait();
        let asked = trio.settle(Some(SILENT));
        assert_eq!((asked.len(), bytes(&asked)), (1, 0), "{asked:?}");
    }
    assert_eq!(bytes(&trio.write(100)), 0, "where it stands is not known");
}

#[test]
fn a_follower_for_which_the_log_is_too_short_is_offered_a_snapshot() {
    let mut trio = Trio::new();
    let kept_max = trio.nodes[FIRST].config.kept_max;
    let before = trio.nodes[SILENT].last();
    for _ in 0..20 {
        trio.write(100);
        let kept = trio.nodes[FIRST].log().bytes();
        assert!(kept <= kept_max, "{kept} bytes are kept for nobody");
    }
    let (base, last) = (trio.nodes[FIRST].log().base(), trio.nodes[FIRST].last());
    assert!(before < base && trio.nodes[SILENT].last() == before);
    trio.wait();
    let said = trio.settle(None);
    let offers = said.iter().filter(|body| matches!(body, Body::Offer { number } if *number == last));
    assert_eq!(offers.count(), 1, "{said:?}");
    assert!(
        said.iter().flat_map(records).all(|record| record.number > base),
        "what is forgotten is not sent"
    );
    let [first, second, _] = &trio.nodes;
    assert_eq!((second.state(), second.last()), (first.state(), last));
}

#[test]
fn a_leader_knows_how_far_each_of_the_others_is_behind() {
    let mut trio = Trio::new();
    let behind = |trio: &Trio| trio.nodes[FIRST].behind().collect::<Vec<_>>();
    assert_eq!(behind(&trio), [(name(1), 0), (name(2), 0)]);
    assert_eq!(trio.nodes[1].behind().count(), 0, "it does not lead");
    // More records than are kept in memory.
    for hundreds in 1..=20 {
        trio.write(100);
        assert_eq!(behind(&trio), [(name(1), hundreds * 100), (name(2), 0)]);
    }
    assert!(trio.nodes[FIRST].log().count() < 2_000);
    trio.wait();
    trio.settle(None);
    assert_eq!(behind(&trio), [(name(1), 0), (name(2), 0)]);
    assert!(trio.nodes[FIRST].propose(trio.now, Arc::from([0; PAYLOAD])));
    trio.nodes[FIRST].on_timeout(trio.now);
    assert_eq!((trio.nodes[FIRST].uncommitted(), behind(&trio)), (1, vec![(name(1), 1), (name(2), 1)]));
}
