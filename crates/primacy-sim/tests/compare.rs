//! The measurements of the comparison, checked against the promises and costs of the elections.
//! `UPDATE_GOLDENFILES=1` writes the table anew.

#![allow(clippy::unwrap_used, reason = "in a test, a panic is the message")]

use std::fs;
use std::path::Path;

use primacy_core::Duration;
use primacy_sim::compare::{ComparisonRow, Contender, Scenario, Setup, Timers, run, table};

const SEEDS: u64 = 3;

/// The timers of `primacy run`, as the lab's test of `docs/guide/choosing.md` shows.
fn setup(nodes: usize) -> Setup {
    let ms = Duration::from_millis;
    let peers = Timers {
        lease: ms(1_000),
        renewal: ms(250),
        miss_count: 4,
        initial_wait: ms(1_000),
        random_wait_max: ms(300),
        stagger: ms(5),
        answer_timeout: ms(250),
        poll_interval: ms(100),
    };
    let store = Timers {
        lease: ms(10_000),
        renewal: ms(3_333),
        answer_timeout: ms(1_666),
        poll_interval: ms(1_000),
        ..peers
    };
    Setup { nodes, delay: ms(1), lost_ppm: 0, peers, store }
}

fn row(setup: &Setup, contender: Contender, scenario: Scenario) -> ComparisonRow {
    let outcomes: Vec<_> = (0..SEEDS).map(|seed| run(contender, scenario, setup, seed)).collect();
    for outcome in outcomes.iter().flatten() {
        assert!(outcome.breaches.is_empty(), "{contender:?} in {scenario:?}: {:?}", outcome.breaches);
    }
    ComparisonRow::of(contender, scenario, &outcomes)
}

fn find(name: &str) -> Contender {
    Contender::find(name).unwrap()
}

#[test]
fn three_nodes_in_every_scenario() {
    let setup = setup(3);
    let all = || {
        let scenarios = Scenario::ALL.iter();
        let cells = scenarios.flat_map(|&scenario| Contender::ALL.iter().map(move |&it| (it, scenario)));
        cells.map(|(contender, scenario)| row(&setup, contender, scenario)).collect::<Vec<_>>()
    };
    let rows = all();
    assert_eq!(rows, all(), "the same seeds give the same");
    let told = table(&setup, SEEDS, &rows);
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/compare/three_nodes.txt");
    if std::env::var_os("UPDATE_GOLDENFILES").is_some_and(|value| value == "1") {
        fs::write(&file, &told).unwrap();
    }
    assert_eq!(fs::read_to_string(&file).unwrap_or_default(), told, "write it with UPDATE_GOLDENFILES=1");
}

#[test]
fn who_promises_one_leader_has_one_and_who_does_not_has_two() {
    for scenario in Scenario::ALL.iter().copied() {
        for name in ["quorum", "lease", "session", "ranked", "confirmed", "confirmed_lease"] {
            assert_eq!(row(&setup(5), find(name), scenario).leaders_max, 1, "{name} in {scenario:?}");
        }
    }
    for name in ["bully", "ring", "ring_bidirectional", "seniority_available"] {
        let row = row(&setup(5), find(name), Scenario::Split);
        assert_eq!(row.leaders_max, 2, "{name}");
        assert!(row.overlap.median > Duration::from_secs(25), "{name}: nearly as long as the split lasts");
    }
    let row = row(&setup(5), find("seniority_keep_oldest"), Scenario::Split);
    let lasts = Duration::from_secs(30);
    assert_eq!((row.leaders_max, row.leaderless.median), (1, lasts), "the larger part stops, by its policy");
}

#[test]
fn what_is_measured_is_what_the_pages_say() {
    let five = setup(5);
    let ms = Duration::from_millis;
    // Heartbeats to four, four times a second for a minute; with answers; around the ring, each confirmed; from all to all.
    for (name, messages) in [("bully", 960), ("quorum", 1_920), ("ring", 2_400), ("seniority", 4_800)] {
        let row = row(&five, find(name), Scenario::Calm);
        assert_eq!((row.messages.median, row.beyond_routine.most), (messages, 0), "{name}");
        assert_eq!((row.leaderless.most, row.changes.most), (Duration::ZERO, 0), "{name}");
    }
    // n² − n − 1; without those to the dead, where the connections to it are closed.
    assert_eq!(row(&five, find("bully"), Scenario::PowerLoss).beyond_routine.median, 19);
    let crash = row(&five, find("bully"), Scenario::Crash);
    assert_eq!(crash.beyond_routine.median, 15);
    assert_eq!(crash.leaderless.median, ms(251), "the death is told, and an answer waited for");
    // A vote and its answer for each of three others, after a death that was reported.
    assert_eq!(row(&five, find("quorum"), Scenario::Crash).beyond_routine.median, 6);
    assert_eq!(row(&five, find("seniority"), Scenario::Crash).leaderless.median, ms(1), "it is told");
    // A silent leader: its promises or its lease, less what had passed since the last heartbeat or renewal.
    for (name, least, most) in [("quorum", 750, 1_400), ("ranked", 750, 1_100), ("lease", 6_667, 11_200)] {
        let ComparisonRow { leaderless, .. } = row(&five, find(name), Scenario::PowerLoss);
        assert!(leaderless.median > ms(least) && leaderless.most < ms(most), "{name}: {leaderless:?}");
    }
    // Each was the oldest when its turn came.
    let row = row(&five, find("seniority"), Scenario::RollingRestart);
    assert_eq!((row.changes.median, row.needless.most), (5, 0));
}

#[test]
fn a_link_that_flaps_moves_the_lead_of_bully_omega_and_what_bully_nominates_only() {
    for contender in Contender::ALL.iter().copied() {
        let ComparisonRow { needless, .. } = row(&setup(5), contender, Scenario::BadLink);
        let moves = ["bully", "omega", "confirmed", "confirmed_lease"].contains(&contender.name());
        assert_eq!(needless.median > 0, moves, "{contender:?}: {needless:?}");
    }
}
