//! The simulated arm of the laws, in a time that only passes when nothing else is left to do.

use std::sync::Arc;

use primacy_conformance::history::{self, Kind, Operation};
use primacy_conformance::simulated_store::{SimulatedStore, Weather};
use primacy_conformance::{Harness, Outcome, check, rival};

/// Laws that are about processes of a machine, or about bytes that another program has written.
const NOT_CLAIMED: [&str; 5] = [
    "of_many_processes_exactly_one_wins",
    "answers_to_many_processes_fit_one_order",
    "killed_writers_leave_the_old_or_the_new",
    "changed_wakes_across_processes",
    "what_is_no_record_is_refused_and_kept",
];

#[tokio::test(start_paused = true)]
async fn the_simulators_store_keeps_the_laws_of_stores() {
    for seed in 1..=5 {
        let outcomes = check(&SimulatedStore::new(seed, Weather::Calm)).await;
        let others = outcomes.iter().filter(|(_, outcome)| *outcome != Outcome::Passed);
        let others: Vec<_> = others.map(|(law, outcome)| (*law, *outcome)).collect();
        assert_eq!(others, NOT_CLAIMED.map(|law| (law, Outcome::NotClaimed)), "seed {seed}");
    }
}

/// The operations of rivals on a store in this weather.
async fn play(seed: u64, weather: Weather) -> Vec<Operation> {
    let store = SimulatedStore::new(seed, weather);
    let mut playing = Vec::new();
    for number in 1..=5 {
        let register = store.open("election").await;
        playing.push(tokio::spawn(async move {
            let mut history = Vec::new();
            rival::play(Arc::clone(&register), number, 40, Some(seed), |operation| history.push(operation))
                .await;
            history
        }));
    }
    let mut all = Vec::new();
    for rival in playing {
        all.extend(rival.await.expect("no panic"));
    }
    all
}

#[tokio::test(start_paused = true)]
async fn what_the_simulators_store_does_under_its_own_faults_has_one_order() {
    let mut unknown = 0;
    for seed in 1..=40 {
        let history = play(seed, Weather::Rough).await;
        history::check(&history).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        unknown += history.iter().filter(|operation| operation.kind == Kind::Unknown).count();
    }
    assert!(unknown > 40, "outcomes were unknown {unknown} times");
}

/// The number of worlds, of 20, in which this is found out.
async fn found(weather: Weather) -> u32 {
    let mut found = 0;
    for seed in 1..=20 {
        if let Err(why) = history::check(&play(seed, weather).await) {
            assert!(!why.contains("UNDECIDED"), "seed {seed}: {why}");
            found += 1;
        }
    }
    found
}

#[tokio::test(start_paused = true)]
async fn a_store_that_goes_back_is_found_out() {
    let found = found(Weather::GoesBack).await;
    assert!(found >= 15, "{found} of 20");
}

/// The reason why an adapter never repeats a compare-and-set by itself.
#[tokio::test(start_paused = true)]
async fn a_carrier_that_repeats_what_it_carries_is_found_out() {
    let found = found(Weather::AsksTwice).await;
    assert!(found >= 10, "{found} of 20");
}
