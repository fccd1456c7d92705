//! The requests of several rivals to one record, with their times, and the check whether a single record can have
//! given these answers.
//!
//! Rivals may be separate processes, which print a line for each operation. [`check`] combines the lines into
//! requests, and checks them by [`register_model`].

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use crate::linearizability::{Answer, Effort, Request};
use crate::register_model::{self, Action, Reply};

/// A request of a rival, or one phase of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Operation {
    /// The rival that sent it.
    pub rival: u64,
    /// Immediately before it was sent: nanoseconds of the clock that all processes of the machine share.
    pub start: u64,
    /// Immediately after it was answered.
    pub end: u64,
    /// The token that was read or written; 0 if there was no record.
    pub token: u64,
    /// The request or its outcome.
    pub kind: Kind,
}

/// A request, or its outcome. Versions are hexadecimal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A read.
    Read {
        /// The rival that wrote the record.
        writer: u64,
        /// The version that was read; empty if there was no record.
        version: String,
    },
    /// A write is about to be sent. Without a later line, it may have taken effect.
    Begun {
        /// The expected version; empty if there must be no record.
        expect: String,
    },
    /// The write took effect.
    Won {
        /// The version of the new record.
        version: String,
    },
    /// It had no effect, because the version was another one.
    Conflict,
    /// It had no effect, and the state of the record is unknown.
    Failed,
    /// It may have taken effect, or may still do so.
    Unknown,
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { rival, start, end, token, kind } = self;
        let (name, writer, version) = match kind {
            Kind::Read { writer, version } => ("read", *writer, version.as_str()),
            Kind::Begun { expect } => ("begun", *rival, expect.as_str()),
            Kind::Won { version } => ("won", *rival, version.as_str()),
            Kind::Conflict => ("conflict", *rival, ""),
            Kind::Failed => ("failed", *rival, ""),
            Kind::Unknown => ("unknown", *rival, ""),
        };
        write!(f, "{rival} {start} {end} {token} {name} {writer} {version}.")
    }
}

impl FromStr for Operation {
    type Err = String;

    fn from_str(line: &str) -> Result<Self, String> {
        let wrong = || format!("not an operation: {line:?}");
        // A complete line ends with a full stop; one that was cut off does not.
        let words: Vec<&str> = line.strip_suffix('.').ok_or_else(wrong)?.split(' ').collect();
        let [rival, start, end, token, name, writer, version] = words.as_slice() else { return Err(wrong()) };
        let number = |text: &str| text.parse::<u64>().map_err(|_| wrong());
        let version = (*version).to_owned();
        let kind = match *name {
            "read" => Kind::Read { writer: number(writer)?, version },
            "begun" => Kind::Begun { expect: version },
            "won" => Kind::Won { version },
            "conflict" => Kind::Conflict,
            "failed" => Kind::Failed,
            "unknown" => Kind::Unknown,
            _ => return Err(wrong()),
        };
        Ok(Self {
            rival: number(rival)?,
            start: number(start)?,
            end: number(end)?,
            token: number(token)?,
            kind,
        })
    }
}

/// The value that a rival writes: its token, and its name.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Written {
    token: u64,
    rival: u64,
}

impl fmt::Debug for Written {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "token {} of rival {}", self.token, self.rival)
    }
}

type Asked = register_model::Asked<Written, String>;

/// Checks that one record with sequential requests can have given these answers. The operations of each rival are in
/// the order in which it recorded them.
///
/// # Errors
/// The impossible answer, or that the check is undecided, as text.
pub fn check(history: &[Operation]) -> Result<Effort, String> {
    register_model::judge(&requests(history)?)
}

fn requests(history: &[Operation]) -> Result<Vec<Asked>, String> {
    let mut requests = Vec::new();
    let mut begun: BTreeMap<u64, &Operation> = BTreeMap::new();
    for operation in history {
        let &Operation { rival, start, end, token, .. } = operation;
        let answer = match &operation.kind {
            Kind::Read { writer, version } => {
                let found = (token > 0).then(|| (Written { token, rival: *writer }, version.clone()));
                let answer = Answer::Known(Reply::Found(found));
                requests.push(Request { caller: rival, start, end, action: Action::Read, answer });
                continue;
            }
            Kind::Begun { .. } => {
                // A write without an answer has an unknown outcome.
                let unanswered = begun.insert(rival, operation);
                requests.extend(unanswered.map(|before| write(before, before.start, Answer::Unknown)));
                continue;
            }
            Kind::Won { version } => Answer::Known(Reply::Done(version.clone())),
            Kind::Conflict => Answer::Known(Reply::Conflict),
            Kind::Failed => Answer::Failed,
            Kind::Unknown => Answer::Unknown,
        };
        let of = begun.remove(&rival).filter(|before| before.token == token);
        let of =
            of.ok_or_else(|| format!("rival {rival} tells of a write that it never began: {operation}"))?;
        requests.push(write(of, end, answer));
    }
    requests.extend(begun.values().map(|before| write(before, before.start, Answer::Unknown)));
    Ok(requests)
}

fn write(begun: &Operation, end: u64, answer: Answer<Reply<Written, String>>) -> Asked {
    let &Operation { rival, start, token, .. } = begun;
    let expect = match &begun.kind {
        Kind::Begun { expect } if !expect.is_empty() => Some(expect.clone()),
        Kind::Begun { .. }
        | Kind::Read { .. }
        | Kind::Won { .. }
        | Kind::Conflict
        | Kind::Failed
        | Kind::Unknown => None,
    };
    let action = Action::CompareAndSet { expect, value: Written { token, rival } };
    Request { caller: rival, start, end, action, answer }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn history(text: &str) -> Vec<Operation> {
        text.lines().map(|line| line.trim().parse().unwrap()).collect()
    }

    #[test]
    fn lines_are_parsed_whole_or_not_at_all() {
        let line = "1 10 20 3 read 2 0a0b.";
        assert_eq!(line.parse::<Operation>().unwrap().to_string(), line);
        for kind in ["begun 1 aa", "begun 1 ", "won 1 bb", "conflict 1 ", "failed 1 ", "unknown 1 "] {
            let line = format!("1 10 10 3 {kind}.");
            assert_eq!(line.parse::<Operation>().unwrap().to_string(), line);
        }
        for cut in 0..line.len() {
            line[..cut].parse::<Operation>().expect_err("it was cut off");
        }
    }

    #[test]
    fn one_record_can_have_given_these_answers() {
        // The first write of rival 2 has no answer, and took effect; its second one has none either, and did not.
        let sound = "1 0 1 0 read 0 .
            1 2 2 1 begun 1 .
            1 2 5 1 won 1 aa.
            2 3 6 1 read 1 aa.
            2 7 7 2 begun 2 aa.
            1 8 9 2 read 2 bb.
            1 10 10 3 begun 1 bb.
            1 10 12 3 won 1 cc.
            2 11 13 2 read 2 bb.
            2 14 14 4 begun 2 cc.";
        check(&history(sound)).unwrap();
    }

    #[test]
    fn what_cannot_have_been_is_found() {
        let first = "1 0 0 1 begun 1 .\n1 0 1 1 won 1 aa.\n";
        let second = "1 2 2 2 begun 1 aa.\n1 2 3 2 won 1 bb.\n";
        for (wrong, why) in [
            (format!("{first}2 0 0 1 begun 2 .\n2 0 2 1 won 2 bb."), "not explained"),
            (format!("{first}1 2 2 2 begun 1 aa.\n1 2 3 2 won 1 aa."), "several values"),
            (format!("{first}1 2 2 1 begun 1 aa.\n1 2 3 1 won 1 aa."), "have both made"),
            (format!("{first}{second}3 4 5 1 read 1 aa."), "read: token 1 of rival 1"),
            (format!("{first}2 2 3 0 read 0 ."), "read: nothing is there"),
            ("2 2 3 1 read 1 aa.".to_owned(), "read: token 1 of rival 1"),
            (
                "1 5 5 1 begun 1 .\n1 5 6 1 won 1 aa.\n2 2 3 1 read 1 aa.".to_owned(),
                "read: token 1 of rival 1",
            ),
            ("1 0 0 1 begun 1 .\n1 0 1 1 failed 1 .\n2 2 3 1 read 1 aa.".to_owned(), "read: token 1"),
            (format!("{first}2 2 3 1 read 2 aa."), "several values"),
            ("1 0 1 1 won 1 aa.".to_owned(), "never began"),
        ] {
            let error = check(&history(&wrong)).expect_err(&wrong);
            assert!(error.contains(why), "{error}");
        }
    }
}
