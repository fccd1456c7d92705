//! Histories of a register in the form of a story: a line each, `CALLER START-END ACTION: ANSWER`.

use primacy_conformance::linearizability::{Answer, Request};
use primacy_conformance::register_model::{self, Action, Reply};

/// A request to a register of small numbers.
pub(crate) type Asked = register_model::Asked<u64, u64>;

/// Reads such lines as `1 20-30 read: 7 v1`, `2 0-10 create 7: done v1`, `2 40- write v1 8: unknown`.
pub(crate) fn story(text: &str) -> Vec<Asked> {
    text.lines().map(str::trim).filter(|line| !line.is_empty()).map(request).collect()
}

fn request(line: &str) -> Asked {
    let (asked, answer) = line.split_once(": ").expect("an answer");
    let words: Vec<&str> = asked.split(' ').collect();
    let (start, end) = words[1].split_once('-').expect("from and to");
    let number = |text: &str| text.trim_start_matches('v').parse::<u64>().expect("a number");
    let action = match words[2..] {
        ["read"] => Action::Read,
        ["create", value] => Action::CompareAndSet { expect: None, value: number(value) },
        ["write", over, value] => Action::CompareAndSet { expect: Some(number(over)), value: number(value) },
        _ => panic!("not an action: {line}"),
    };
    let answer = match answer.split(' ').collect::<Vec<_>>()[..] {
        ["unknown"] => Answer::Unknown,
        ["failed"] => Answer::Failed,
        ["conflict"] => Answer::Known(Reply::Conflict),
        ["nothing"] => Answer::Known(Reply::Found(None)),
        ["done", version] => Answer::Known(Reply::Done(number(version))),
        [value, version] => Answer::Known(Reply::Found(Some((number(value), number(version))))),
        _ => panic!("not an answer: {line}"),
    };
    let (caller, start) = (number(words[0]), number(start));
    Request { caller, start, end: if end.is_empty() { start } else { number(end) }, action, answer }
}
