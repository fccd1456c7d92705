//! The work that it takes to decide histories as callers make them.

use std::time::Instant;

use primacy_conformance::linearizability::{Answer, Effort, Request, check};
use primacy_conformance::register_model::{Action, RegisterModel, Reply};
use primacy_core::rng::Rng;

use crate::story::Asked;

/// The history of so many callers of one register, each of them with a request under way at all times, when one write
/// in so many has an unknown outcome. Half of those are done, at any time until the next write.
fn play(callers: usize, requests: usize, unknown: u64) -> Vec<Asked> {
    let mut rng = Rng::new(7);
    let (mut now, mut cell, mut version) = (0, None, 0_u64);
    let mut history = Vec::new();
    let mut known = vec![None; callers];
    let mut late: Option<(Option<u64>, u64)> = None;
    while history.len() < requests {
        // All call, take effect in a random order, and then are answered.
        let start = now + 1;
        now += 1_000;
        let mut order: Vec<usize> = (0..callers).collect();
        for i in (1..callers).rev() {
            order.swap(i, usize::try_from(rng.up_to(i as u64)).expect("small"));
        }
        for caller in order {
            let reads = rng.up_to(1) == 0;
            let (expect, value) = (known[caller], history.len() as u64);
            if let Some((over, value)) = late.filter(|_| rng.up_to(3) == 0) {
                late = None;
                if over == cell.map(|(_, version)| version) {
                    version += 1;
                    cell = Some((value, version));
                }
            }
            let (action, answer) = if reads {
                known[caller] = cell.map(|(_, version)| version);
                (Action::Read, Answer::Known(Reply::Found(cell)))
            } else if rng.up_to(unknown - 1) == 0 {
                late = Some((expect, value));
                (Action::CompareAndSet { expect, value }, Answer::Unknown)
            } else if expect == cell.map(|(_, version)| version) {
                version += 1;
                cell = Some((value, version));
                known[caller] = Some(version);
                (Action::CompareAndSet { expect, value }, Answer::Known(Reply::Done(version)))
            } else {
                (Action::CompareAndSet { expect, value }, Answer::Known(Reply::Conflict))
            };
            history.push(Request { caller: caller as u64, start, end: now, action, answer });
        }
    }
    history
}

/// The numbers by which the checker's limits are stated. Steps, and not time, are asserted.
#[test]
fn histories_of_many_callers_are_decided_in_proportion_to_their_length() {
    for (callers, requests, unknown, steps_max) in [
        (4, 10_000, 1_000, 400_000),
        (8, 10_000, 1_000, 400_000),
        (8, 10_000, 20, 2_000_000),
        (64, 10_000, 20, 2_000_000),
    ] {
        let history = play(callers, requests, unknown);
        let begun = Instant::now();
        let verdict = check(&RegisterModel::of(&history), &history);
        let took = begun.elapsed();
        println!("{callers} callers, {requests} requests, 1 in {unknown} unknown: {took:?}, {verdict:?}");
        let Effort { steps, .. } = verdict.ordered().expect("it was made by a register");
        assert!(steps < steps_max, "{callers} callers: {steps} steps");
    }
}

/// The case that the budget is there for: requests that overlap, with nothing that shows their order until later.
#[test]
fn the_work_grows_with_what_is_under_way_at_once_and_not_with_the_length() {
    let mut steps_before = 0;
    for together in [2, 4, 6, 8] {
        let history = crate::queue::enqueued_together(together);
        let begun = Instant::now();
        let Effort { steps, possibilities } =
            check(&crate::queue::Queues, &history).ordered().expect("it has an order");
        println!("{together} together: {:?}, {steps} steps, {possibilities} possibilities", begun.elapsed());
        assert!(steps > 4 * steps_before, "{together} together: {steps} after {steps_before}");
        steps_before = steps;
    }
}
