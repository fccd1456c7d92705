//! The same question, answered by trying every order: slow, and too simple to be wrong in the same way.

use std::fmt::Debug;

use primacy_conformance::linearizability::{Answer, Model, Request, Verdict, check};
use primacy_conformance::register_model::{Action, RegisterModel, Reply};
use primacy_core::rng::Rng;

use crate::story::Asked;

/// True if some order of all requests that must and of some that may have been done explains every answer. A request
/// with an answer that is not `required` may not have taken effect yet.
pub(crate) fn has_an_order<M: Model>(
    model: &M,
    history: &[Request<M::Action, M::Reply>],
    required: impl Fn(usize) -> bool,
) -> bool {
    let candidates: Vec<usize> =
        (0..history.len()).filter(|&i| !matches!(history[i].answer, Answer::Failed)).collect();
    let must = |i: usize| matches!(history[i].answer, Answer::Known(_)) && required(i);
    let subsets = 0..1_u32 << candidates.len();
    subsets.into_iter().any(|subset| {
        let chosen: Vec<usize> =
            (0..candidates.len()).filter(|bit| subset & (1 << bit) != 0).map(|bit| candidates[bit]).collect();
        let is_whole = candidates.iter().all(|i| !must(*i) || chosen.contains(i));
        is_whole && orders(&chosen).iter().any(|order| explains(model, history, order))
    })
}

/// Every order of these.
fn orders(of: &[usize]) -> Vec<Vec<usize>> {
    if of.is_empty() {
        return vec![Vec::new()];
    }
    let mut all = Vec::new();
    for (place, first) in of.iter().enumerate() {
        let mut others = of.to_vec();
        others.remove(place);
        for mut order in orders(&others) {
            order.insert(0, *first);
            all.push(order);
        }
    }
    all
}

fn explains<M: Model>(model: &M, history: &[Request<M::Action, M::Reply>], order: &[usize]) -> bool {
    let ended_before = |one: usize, other: usize| {
        matches!(history[one].answer, Answer::Known(_)) && history[one].end < history[other].start
    };
    let agrees = (0..order.len()).all(|i| (0..i).all(|earlier| !ended_before(order[i], order[earlier])));
    let mut state = model.initial();
    agrees
        && order.iter().all(|&i| {
            let reply = match &history[i].answer {
                Answer::Known(reply) => Some(reply),
                Answer::Unknown | Answer::Failed => None,
            };
            match model.step(&state, &history[i].action, reply) {
                Some(after) => {
                    state = after;
                    true
                }
                None => false,
            }
        })
}

/// The parameters of a random history.
#[derive(Clone, Copy, Debug)]
struct Mix {
    requests: u64,
    /// The longest time between two calls, and the longest time that one takes.
    spread: (u64, u64),
    /// One in so many answers is made up.
    made_up: u64,
    /// One in so many outcomes is unknown; and one in so many of those is done.
    unknown: (u64, u64),
}

/// A history of a register that works, but for the answers that are made up.
fn draw(rng: &mut Rng, mix: Mix) -> Vec<Asked> {
    let one_in = |rng: &mut Rng, count: u64| rng.up_to(count - 1) == 0;
    let mut history: Vec<(u64, Asked)> = Vec::new();
    let mut start = 0;
    for caller in 0..mix.requests {
        start += rng.up_to(mix.spread.0);
        let end = start + rng.up_to(mix.spread.1);
        let action = match rng.up_to(4) {
            0 | 1 => Action::Read,
            2 => Action::CompareAndSet { expect: None, value: rng.up_to(3) },
            _ => Action::CompareAndSet { expect: Some(rng.up_to(2)), value: rng.up_to(3) },
        };
        let at = start + rng.up_to(end - start);
        history.push((at, Request { caller, start, end, action, answer: Answer::Failed }));
    }
    history.sort_by_key(|(at, _)| *at);
    let (mut cell, mut version) = (None, 0);
    for (_, asked) in &mut history {
        let is_unknown = one_in(rng, mix.unknown.0);
        if is_unknown {
            asked.answer = Answer::Unknown;
        }
        let reply = match &asked.action {
            Action::Read => Reply::Found(cell),
            Action::CompareAndSet { expect, .. } if *expect != cell.map(|(_, version)| version) => {
                Reply::Conflict
            }
            Action::CompareAndSet { value, .. } => {
                if is_unknown && !one_in(rng, mix.unknown.1) {
                    continue;
                }
                cell = Some((*value, version));
                version = (version + 1) % 4;
                Reply::Done((version + 3) % 4)
            }
        };
        if !is_unknown {
            asked.answer =
                Answer::Known(if one_in(rng, mix.made_up) { made_up(rng, &asked.action) } else { reply });
        }
        if one_in(rng, 40) {
            asked.answer = Answer::Failed;
        }
    }
    history.into_iter().map(|(_, asked)| asked).collect()
}

fn made_up(rng: &mut Rng, action: &Action<u64, u64>) -> Reply<u64, u64> {
    match (action, rng.up_to(3)) {
        (Action::Read, 0) => Reply::Found(None),
        (Action::Read, _) => Reply::Found(Some((rng.up_to(3), rng.up_to(2)))),
        (Action::CompareAndSet { .. }, 0) => Reply::Conflict,
        (Action::CompareAndSet { .. }, _) => Reply::Done(rng.up_to(3)),
    }
}

/// The prefix that ends with this answer: the requests that were called by then, and whether each was answered by then.
fn prefix(history: &[Asked], last: &Asked, with_it: bool) -> (Vec<Asked>, Vec<bool>) {
    let called = history.iter().filter(|asked| asked.start <= last.end).cloned();
    let called: Vec<Asked> = called.collect();
    // Requests that are answered at the same time come in the order of their calls.
    let answered = called.iter().map(|asked| {
        let earlier = (asked.end, asked.start, asked.caller) < (last.end, last.start, last.caller);
        earlier || (with_it && asked == last)
    });
    let answered = answered.collect();
    (called, answered)
}

#[test]
fn the_twin_that_tries_all_orders_agrees() {
    let mut rng = Rng::new(0x1157_0127);
    let mut counts = [0_u32; 2];
    for _ in 0..8_000 {
        let mix = Mix {
            requests: 2 + rng.up_to(4),
            spread: (rng.up_to(6), 1 + rng.up_to(12)),
            made_up: [3, 6, 1_000][usize::try_from(rng.up_to(2)).expect("small")],
            unknown: (2 + rng.up_to(6), 1 + rng.up_to(2)),
        };
        let mut history = draw(&mut rng, mix);
        history.sort_by_key(|asked| (asked.start, asked.caller));
        let model = RegisterModel::of(&history);
        let expected = has_an_order(&model, &history, |_| true);
        let verdict = check(&model, &history);
        match &verdict {
            Verdict::Ordered(_) => assert!(expected, "{}", show(&history)),
            Verdict::Impossible(explanation) => {
                assert!(!expected, "{explanation}\n{}", show(&history));
                the_prefix_is_the_shortest(&model, &history, &explanation.last);
            }
            Verdict::Undecided(_) => panic!("so short a history is decided: {}", show(&history)),
        }
        counts[usize::from(expected)] += 1;
    }
    println!("without an order: {}, with one: {}", counts[0], counts[1]);
    assert!(counts.iter().all(|&count| count > 1_500), "both verdicts are met often: {counts:?}");
}

/// With the answer that is not explained there is no order, and without it there is one.
fn the_prefix_is_the_shortest(model: &RegisterModel<u64, u64>, history: &[Asked], last: &str) {
    let last = history.iter().find(|asked| {
        let who = format!("caller {}, ", asked.caller);
        last.starts_with(&who)
    });
    let last = last.expect("each caller asks once, and it is one of them");
    let (called, answered) = prefix(history, last, true);
    assert!(!has_an_order(model, &called, |i| answered[i]), "the prefix {}", show(&called));
    let (called, answered) = prefix(history, last, false);
    assert!(has_an_order(model, &called, |i| answered[i]), "shorter than {}", show(&called));
}

fn show<T: Debug>(history: &[T]) -> String {
    history.iter().map(|asked| format!("{asked:?}\n")).collect()
}
