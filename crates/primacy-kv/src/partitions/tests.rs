//! Partitions against a slow twin: nodes that act on their last view of them, which may be of the past.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;

use primacy_core::id::Identity;
use primacy_core::rng::Rng;

use super::assign::CommandRefusal;
use super::*;
use crate::encoding::{DecodeError, Reader};

mod twin;

fn name(text: &str) -> NodeId {
    NodeId::new(text).unwrap()
}

fn group(text: &str) -> GroupName {
    GroupName::new(text).unwrap()
}

fn identity(node: &str, count: u64) -> Identity {
    Identity { node: name(node), incarnation: Incarnation { count, nonce: count } }
}

fn session(number: i64) -> SessionId {
    SessionId::new(number).unwrap()
}

/// Partitions to which commands are given.
#[derive(Default)]
struct PartitionsFixture {
    partitions: Partitions,
    sessions: i64,
}

impl PartitionsFixture {
    fn tell(&mut self, sender: &str, command: &Command) -> Result<(), CommandRefusal> {
        self.partitions.obey(identity(sender, 1), command)
    }

    fn join(&mut self, node: &str) -> SessionId {
        self.sessions += 1;
        let session = session(self.sessions);
        let join = Command::Join { session, time_to_live: Duration::from_secs(3) };
        self.tell(node, &join).unwrap();
        session
    }

    fn create(&mut self, name: &str, count: u32) {
        self.tell("operator", &Command::Create { group: group(name), count }).unwrap();
    }

    fn release(&mut self, session: SessionId, name: &str, range: core::ops::Range<u32>) {
        let ranges = vec![Ranges { group: group(name), ranges: vec![range] }];
        let up_to = self.partitions.step();
        self.tell("any", &Command::Release { session, up_to, ranges }).unwrap();
    }

    /// Group by group: `a 0-4 3` is held by a under 3, `a>b` is taken back from a for b.
    fn shown(&self) -> String {
        let mut lines = Vec::new();
        for (name, size) in self.partitions.groups() {
            let ending = if size.ending { "(ending)" } else { "" };
            for run in self.partitions.runs(name) {
                let Partition { primary, number, plan } = run.partition;
                let node = |node: Option<NodeId>| node.map_or("-".to_owned(), |node| node.to_string());
                let next = match plan {
                    Plan::Stays => String::new(),
                    Plan::Taken(next) => format!(">{}", node(next)),
                };
                let (start, last) = (run.range.start, run.range.end - 1);
                lines.push(format!("{name}{ending} {start}-{last} {}{next} {number}", node(primary)));
            }
        }
        lines.join(", ")
    }
}

#[test]
fn a_group_is_shared_out_and_a_death_is_one_step() {
    let mut fixture = PartitionsFixture::default();
    fixture.create("g", 10);
    assert_eq!(fixture.shown(), "g 0-9 - 0", "nobody is there");
    let a = fixture.join("a");
    assert_eq!(fixture.shown(), "g 0-9 a 2");
    fixture.join("b");
    assert_eq!(fixture.shown(), "g 0-4 a 2, g 5-9 a>b 2", "what moves is taken back first");
    fixture.release(a, "g", 5..8);
    assert_eq!(fixture.shown(), "g 0-4 a 2, g 5-7 b 4, g 8-9 a>b 2");
    assert!(fixture.partitions.end(a));
    assert_eq!(fixture.shown(), "g 0-4 b 5, g 5-7 b 4, g 8-9 b 5", "all that it had, under one number");
    assert!(!fixture.partitions.end(a), "it is over already");
    assert_eq!(fixture.partitions.step(), 5);
}

#[test]
fn a_drained_node_gives_all_back_unless_it_is_the_last_one() {
    let mut fixture = PartitionsFixture::default();
    fixture.create("g", 4);
    let [a, b] = ["a", "b"].map(|node| fixture.join(node));
    fixture.release(a, "g", 2..4);
    assert_eq!(fixture.shown(), "g 0-1 a 2, g 2-3 b 4");
    fixture.tell("operator", &Command::Drain { node: name("a") }).unwrap();
    assert_eq!(fixture.shown(), "g 0-1 a>b 2, g 2-3 b 4");
    fixture.tell("operator", &Command::Drain { node: name("b") }).unwrap();
    assert_eq!(fixture.shown(), "g 0-1 a>- 2, g 2-3 b 4", "nobody else could have what b has");
    fixture.tell("operator", &Command::Undrain { node: name("a") }).unwrap();
    assert_eq!(fixture.shown(), "g 0-1 a>a 2, g 2-3 b>a 4", "a has stopped already, and begins anew");
    fixture.release(a, "g", 0..2);
    fixture.release(b, "g", 2..4);
    assert_eq!(fixture.shown(), "g 0-1 a 8, g 2-3 a 9");
    assert!(fixture.partitions.end(b));
    assert_eq!(fixture.partitions.nodes().len(), 2, "that b is drained outlives it");
    fixture.join("b");
    assert_eq!(fixture.shown(), "g 0-1 a 8, g 2-3 a 9");
}

#[test]
fn an_operator_moves_one_and_nothing_undoes_it_at_once() {
    let mut fixture = PartitionsFixture::default();
    let [a, _] = ["a", "b"].map(|node| fixture.join(node));
    fixture.create("g", 4);
    let move_to = |index, node| Command::Move { group: group("g"), index, node: name(node) };
    fixture.tell("operator", &move_to(0, "b")).unwrap();
    assert_eq!(fixture.shown(), "g 0-0 a>b 3, g 1-1 a 3, g 2-3 b 3");
    fixture.release(a, "g", 0..1);
    assert_eq!(fixture.shown(), "g 0-0 b 5, g 1-1 a 3, g 2-3 b 3");
    let refused = |fixture: &mut PartitionsFixture, command| match fixture.tell("operator", &command) {
        Err(CommandRefusal::Partitions(refusal)) => refusal,
        fixture => panic!("{fixture:?}"),
    };
    assert_eq!(refused(&mut fixture, move_to(4, "b")), Refusal::PartitionNotFound { count: 4 });
    assert_eq!(refused(&mut fixture, move_to(0, "c")), Refusal::NodeNotUp);
    let other = Command::Move { group: group("h"), index: 0, node: name("a") };
    assert_eq!(refused(&mut fixture, other), Refusal::GroupNotFound);
    fixture.tell("operator", &Command::Drain { node: name("c") }).unwrap();
    assert_eq!(refused(&mut fixture, move_to(0, "c")), Refusal::NodeNotUp);
    fixture.join("c");
    assert_eq!(refused(&mut fixture, move_to(0, "c")), Refusal::NodeDrained);
}

#[test]
fn what_is_given_back_unasked_goes_to_another_node_if_there_is_one() {
    let mut fixture = PartitionsFixture::default();
    let a = fixture.join("a");
    fixture.create("g", 3);
    fixture.release(a, "g", 1..2);
    assert_eq!(fixture.shown(), "g 0-0 a 2, g 1-1 a 3, g 2-2 a 2");
    fixture.join("b");
    fixture.release(a, "g", 2..3);
    assert_eq!(fixture.shown(), "g 0-0 a 2, g 1-1 a 3, g 2-2 b 5");
    fixture.release(a, "g", 0..1);
    assert_eq!(fixture.shown(), "g 0-0 b 6, g 1-1 a 3, g 2-2 b 5");
}

/// A release that is applied late, or twice, does not take what the node has got since.
#[test]
fn a_late_release_gives_nothing_back_that_was_got_since() {
    let mut fixture = PartitionsFixture::default();
    let a = fixture.join("a");
    fixture.create("g", 1);
    let ranges = vec![Ranges { group: group("g"), ranges: std::iter::once(0..1).collect() }];
    let late = Command::Release { session: a, up_to: fixture.partitions.step(), ranges };
    fixture.tell("a", &late).unwrap();
    assert_eq!(fixture.shown(), "g 0-0 a 3");
    fixture.tell("a", &late).unwrap();
    assert_eq!(fixture.shown(), "g 0-0 a 3");
    fixture.partitions.end(a);
    let again = fixture.join("a");
    assert_ne!(a, again);
    assert_eq!(fixture.tell("a", &late), Err(CommandRefusal::SessionNotFound));
}

#[test]
fn a_group_goes_when_all_of_it_was_given_back_and_its_name_keeps_growing_numbers() {
    let mut fixture = PartitionsFixture::default();
    let a = fixture.join("a");
    fixture.create("g", 2);
    fixture.tell("operator", &Command::Drop { group: group("g") }).unwrap();
    assert_eq!(fixture.shown(), "g(ending) 0-1 a>- 2");
    let create = Command::Create { group: group("g"), count: 2 };
    let exists = CommandRefusal::Partitions(Refusal::GroupExists);
    assert_eq!(fixture.tell("operator", &create), Err(exists), "a may act for it still");
    fixture.release(a, "g", 0..1);
    assert_eq!(fixture.shown(), "g(ending) 0-0 - 2, g(ending) 1-1 a>- 2");
    fixture.release(a, "g", 1..2);
    assert_eq!(fixture.shown(), "");
    fixture.create("g", 1);
    assert_eq!(fixture.shown(), "g 0-0 a 6", "above every number that it ever had");
}

#[test]
fn another_life_of_a_node_takes_the_place_of_the_earlier_one_and_no_other() {
    let mut fixture = PartitionsFixture::default();
    fixture.join("a");
    fixture.join("b");
    fixture.create("g", 4);
    let join = |number| Command::Join { session: session(number), time_to_live: Duration::from_secs(3) };
    let up = Err(CommandRefusal::Partitions(Refusal::NodeUp));
    assert_eq!(fixture.partitions.obey(identity("a", 1), &join(7)), up, "it cannot be told from itself");
    assert_eq!(fixture.partitions.obey(identity("a", 0), &join(7)), up);
    assert_eq!(fixture.partitions.obey(identity("a", 2), &join(7)), Ok(()));
    assert_eq!(fixture.shown(), "g 0-1 a 4, g 2-3 b 3", "the same partitions, and leaderships of their own");
    assert_eq!(fixture.partitions.session_of(name("a")), Some(session(7)));
    assert!(!fixture.partitions.end(session(1)), "the earlier session is over");
}

#[test]
fn what_cannot_be_is_refused() {
    let mut fixture = PartitionsFixture::default();
    let mut create =
        |name: &str, count| match fixture.tell("operator", &Command::Create { group: group(name), count }) {
            Ok(()) => None,
            Err(CommandRefusal::Partitions(refusal)) => Some(refusal),
            Err(refusal) => panic!("{refusal:?}"),
        };
    assert_eq!(create("none", 0), Some(Refusal::NoPartitions));
    assert_eq!(create("all", PARTITIONS_MAX + 1), Some(Refusal::TooManyPartitions));
    assert_eq!(create("most", PARTITIONS_MAX - 1), None);
    assert_eq!(create("two", 2), Some(Refusal::TooManyPartitions));
    assert_eq!(create("one", 1), None);
    for wrong in ["", "a b", "ä", "a/b", &"a".repeat(GROUP_NAME_MAX + 1)] {
        assert_eq!(GroupName::new(wrong), Err(GroupNameError), "{wrong}");
    }
    let mut fixture = PartitionsFixture::default();
    for number in 0..GROUPS_MAX {
        fixture.create(&format!("g{number}"), 1);
    }
    let more = Command::Create { group: group("more"), count: 1 };
    assert_eq!(fixture.tell("operator", &more), Err(Refusal::TooManyGroups.into()));
    for number in 0..NODES_MAX {
        fixture.tell("operator", &Command::Drain { node: name(&format!("n{number}")) }).unwrap();
    }
    let more = Command::Drain { node: name("more") };
    assert_eq!(fixture.tell("operator", &more), Err(Refusal::TooManyNodes.into()));
    let join = Command::Join { session: session(1), time_to_live: Duration::from_secs(1) };
    assert_eq!(fixture.tell("more", &join), Err(Refusal::TooManyNodes.into()));
    assert_eq!(fixture.tell("n1", &join), Ok(()));
}

#[test]
fn a_hundred_thousand_partitions_are_few_bytes_as_long_as_neighbours_are_alike() {
    let mut fixture = PartitionsFixture::default();
    fixture.create("g", 100_000);
    let sessions = ["a", "b", "c", "d", "e"].map(|node| fixture.join(node));
    for (session, node) in sessions.into_iter().zip(["a", "b", "c", "d", "e"]) {
        for run in fixture.partitions.runs_with_primary(name(node)) {
            if run.partition.plan != Plan::Stays {
                fixture.release(session, "g", run.range);
            }
        }
    }
    assert!(fixture.partitions.nodes().iter().all(|node| node.primary_of == 20_000));
    let encoded = |partitions: &Partitions| {
        let mut bytes = Vec::new();
        partitions.encode(&mut bytes);
        bytes.len()
    };
    assert!(encoded(&fixture.partitions) < 1_000, "{}", encoded(&fixture.partitions));
    assert_eq!(size_of::<Slot>(), 16);
    // The worst case: each has another number than the one before.
    for index in (0..2_000).step_by(2) {
        let session = fixture.partitions.partition(&group("g"), index).unwrap().primary.unwrap();
        let session = fixture.partitions.session_of(session).unwrap();
        fixture.release(session, "g", index..index + 1);
    }
    assert!(encoded(&fixture.partitions) < 2_000 * 6 + 1_000, "{}", encoded(&fixture.partitions));
}

fn decoded(bytes: &[u8]) -> Result<Partitions, DecodeError> {
    let mut from = Reader::new(bytes);
    let partitions = Partitions::decode(&mut from)?;
    from.end()?;
    Ok(partitions)
}

/// The bytes of partitions, forever.
#[test]
fn partitions_are_these_bytes_for_ever() {
    let mut fixture = PartitionsFixture::default();
    let a = fixture.join("a");
    fixture.create("g", 3);
    fixture.join("b");
    fixture.tell("operator", &Command::Drain { node: name("c") }).unwrap();
    fixture.release(a, "g", 2..3);
    let mut bytes = Vec::new();
    fixture.partitions.encode(&mut bytes);
    let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    let expected = "05 03 0161 01 02 80bcc1960b 01 0000000000000001 \
                    0162 01 04 80bcc1960b 01 0000000000000001 0163 02 \
                    01 0167 00 03 02 01 00 03 01 02 00 00"
        .replace(' ', "");
    assert_eq!(hex, expected);
    assert_eq!(decoded(&bytes), Ok(fixture.partitions));
}

/// Any bytes are partitions that can go on, or are refused.
#[test]
fn any_bytes_are_partitions_that_are_written_so_or_none() {
    let mut rng = Rng::new(11);
    let (mut taken, mut refused) = (0, 0);
    for round in 0..60 {
        let mut world = twin::World::new(round);
        for _ in 0..rng.up_to(60) {
            world.step();
        }
        let mut whole = Vec::new();
        world.partitions().encode(&mut whole);
        for _ in 0..300 {
            let mut bytes = whole.clone();
            for _ in 0..=rng.up_to(2) {
                let place = usize::try_from(rng.up_to(bytes.len() as u64 - 1)).unwrap();
                match rng.up_to(4) {
                    0 => bytes.truncate(place.max(1)),
                    1 => bytes.insert(place, u8::try_from(rng.up_to(255)).unwrap()),
                    2 => bytes[place] ^= 1 << rng.up_to(7),
                    _ => bytes[place] = u8::try_from(rng.up_to(7)).unwrap(),
                }
            }
            let Ok(mut partitions) = decoded(&bytes) else {
                refused += 1;
                continue;
            };
            taken += 1;
            let mut again = Vec::new();
            partitions.encode(&mut again);
            assert_eq!(again, bytes);
            for node in ["a", "b", "e"] {
                let join = Command::Join { session: session(77), time_to_live: Duration::ZERO };
                let _ = partitions.obey(identity(node, u64::MAX), &join);
                let up_to = u64::MAX;
                let ranges = vec![Ranges { group: group("g"), ranges: std::iter::once(0..9).collect() }];
                let _ = partitions
                    .obey(identity(node, 1), &Command::Release { session: session(77), up_to, ranges });
                let _ = partitions.obey(identity(node, 1), &Command::Undrain { node: name("b") });
                partitions.end(session(77));
            }
        }
    }
    assert!(taken > 1_000 && refused > 1_000, "{taken} {refused}");
}

#[test]
fn nobody_acts_beside_another_one_whatever_the_order_of_events() {
    let mut met = twin::Met::default();
    for seed in 0..300 {
        let mut world = twin::World::new(seed);
        for _ in 0..400 {
            world.step();
        }
        met.add(world.met());
    }
    assert!(met.is_lively(), "the worlds are dull: {met:?}");
}
