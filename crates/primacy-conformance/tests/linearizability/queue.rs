//! The queues of Herlihy and Wing's paper, and of several keys: the search knows nothing of registers.

use primacy_conformance::linearizability::{Answer, Model, Request, Verdict, check, check_within};
use primacy_core::rng::Rng;

/// Queues, each with a name.
pub(crate) struct Queues;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    Enqueue(&'static str, char),
    Dequeue(&'static str),
}

impl Model for Queues {
    type Key = &'static str;
    type State = Vec<char>;
    type Action = Action;
    type Reply = char;

    fn key(&self, action: &Action) -> &'static str {
        match action {
            Action::Enqueue(name, _) | Action::Dequeue(name) => name,
        }
    }

    fn initial(&self) -> Vec<char> {
        Vec::new()
    }

    fn step(&self, state: &Vec<char>, action: &Action, reply: Option<&char>) -> Option<Vec<char>> {
        let mut state = state.clone();
        match action {
            Action::Enqueue(_, item) => state.push(*item),
            Action::Dequeue(_) if state.is_empty() => return None,
            Action::Dequeue(_) => {
                let first = state.remove(0);
                if reply.is_some_and(|reply| *reply != first) {
                    return None;
                }
            }
        }
        Some(state)
    }

    fn describe(&self, action: &Action, answer: &Answer<char>) -> String {
        format!("{action:?}: {answer:?}")
    }

    fn describe_state(&self, state: &Vec<char>) -> String {
        format!("{state:?}")
    }
}

fn of(requests: &[(u64, u64, u64, Action, Answer<char>)]) -> Vec<Request<Action, char>> {
    let request = |(caller, start, end, action, answer): &(u64, u64, u64, Action, Answer<char>)| Request {
        caller: *caller,
        start: *start,
        end: *end,
        action: action.clone(),
        answer: answer.clone(),
    };
    requests.iter().map(request).collect()
}

const fn enqueue(caller: u64, start: u64, end: u64, item: char) -> (u64, u64, u64, Action, Answer<char>) {
    (caller, start, end, Action::Enqueue("q", item), Answer::Known('-'))
}

const fn dequeue(caller: u64, start: u64, end: u64, item: char) -> (u64, u64, u64, Action, Answer<char>) {
    (caller, start, end, Action::Dequeue("q"), Answer::Known(item))
}

/// Figure 1 of the paper.
#[test]
fn the_histories_of_the_paper_are_judged_as_it_judges_them() {
    let h1 = of(&[
        enqueue(1, 0, 3, 'x'),
        enqueue(2, 1, 6, 'y'),
        dequeue(2, 7, 9, 'x'),
        dequeue(1, 8, 12, 'y'),
        enqueue(1, 13, 15, 'z'),
    ]);
    let h2 = of(&[enqueue(1, 0, 3, 'x'), enqueue(2, 4, 6, 'y'), dequeue(1, 7, 9, 'y')]);
    let h3 = of(&[enqueue(1, 0, 9, 'x'), dequeue(2, 1, 8, 'x'), dequeue(2, 10, 11, 'x')]);
    let h4 =
        of(&[enqueue(1, 0, 9, 'x'), enqueue(2, 1, 4, 'y'), dequeue(2, 5, 6, 'x'), dequeue(1, 10, 12, 'y')]);
    for (history, is_good) in [(&h1, true), (&h2, false), (&h3, false), (&h4, true)] {
        let verdict = check(&Queues, history);
        assert_eq!(matches!(verdict, Verdict::Ordered(_)), is_good, "{verdict:?}");
        assert_eq!(crate::twin::has_an_order(&Queues, history, |_| true), is_good);
    }
}

#[test]
fn each_key_is_judged_by_itself_and_one_that_has_no_order_is_named() {
    let mut history = of(&[enqueue(1, 0, 1, 'x'), dequeue(1, 2, 3, 'x')]);
    history.extend(of(&[
        (2, 0, 1, Action::Enqueue("other", 'a'), Answer::Known('-')),
        (2, 2, 3, Action::Dequeue("other"), Answer::Known('b')),
    ]));
    let Verdict::Impossible(explanation) = check(&Queues, &history) else { panic!("nothing was found") };
    assert_eq!(explanation.key, "\"other\"");
    assert_eq!(explanation.requests, 2, "the other key's are no part of it");
}

#[test]
fn what_is_unknown_is_done_once_at_most() {
    let unknown = (1, 0, 0, Action::Enqueue("q", 'x'), Answer::Unknown);
    let once = of(&[unknown.clone(), dequeue(2, 10, 11, 'x')]);
    assert!(matches!(check(&Queues, &once), Verdict::Ordered(_)));
    let twice = of(&[unknown, dequeue(2, 10, 11, 'x'), dequeue(2, 20, 21, 'x')]);
    assert!(matches!(check(&Queues, &twice), Verdict::Impossible(_)));
}

/// Queues show less than registers, whose versions give the order away; so their histories have more orders.
#[test]
fn the_twin_agrees_on_queues() {
    let mut rng = Rng::new(0x9e37);
    let mut counts = [0_u32; 2];
    for _ in 0..4_000 {
        let mut history = Vec::new();
        for caller in 0..2 + rng.up_to(3) {
            let (start, length) = (rng.up_to(12), rng.up_to(8));
            let item = if rng.up_to(1) == 0 { 'x' } else { 'y' };
            let is_unknown = rng.up_to(3) == 0;
            history.push(match (rng.up_to(1), is_unknown) {
                (0, false) => enqueue(caller, start, start + length, item),
                (0, true) => (caller, start, start, Action::Enqueue("q", item), Answer::Unknown),
                (_, false) => dequeue(caller, 6 + start, 6 + start + length, item),
                (_, true) => (caller, start, start, Action::Dequeue("q"), Answer::Unknown),
            });
        }
        let history = of(&history);
        let expected = crate::twin::has_an_order(&Queues, &history, |_| true);
        let verdict = check(&Queues, &history);
        assert_eq!(matches!(verdict, Verdict::Ordered(_)), expected, "{verdict:?}\n{history:?}");
        counts[usize::from(expected)] += 1;
    }
    println!("queues without an order: {}, with one: {}", counts[0], counts[1]);
    assert!(counts.iter().all(|&count| count > 1_000), "both verdicts are met often: {counts:?}");
}

#[test]
fn a_budget_that_is_used_up_is_undecided_and_never_fine() {
    let history = enqueued_together(8);
    assert!(matches!(check(&Queues, &history), Verdict::Ordered(_)));
    let short = check_within(&Queues, &history, 1_000);
    assert!(matches!(short, Verdict::Undecided(effort) if effort.steps == 1_000), "{short:?}");
    assert!(short.ordered().expect_err("not known").contains("UNDECIDED"));
}

/// So many requests that overlap, and answers that ask for all their orders.
pub(crate) fn enqueued_together(count: u8) -> Vec<Request<Action, char>> {
    let names = || (0..count).map(|number| char::from(b'a' + number));
    let mut history: Vec<_> = names().map(|name| enqueue(1, 0, 100, name)).collect();
    history.extend((100_u64..).zip(names().rev()).map(|(i, name)| dequeue(2, 2 * i, 2 * i + 1, name)));
    of(&history)
}
