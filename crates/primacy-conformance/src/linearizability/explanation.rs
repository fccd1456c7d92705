//! The explanation for a history without an order, as lines of text.

use std::fmt;

use super::{Answer, Asked, Model};

/// The maximum number of possible states that are shown.
const STATES_MAX: usize = 6;

/// The shortest prefix without an order: all requests called before its last answer. Without that answer there is an
/// order, and with it there is none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Explanation {
    /// The object.
    pub key: String,
    /// The last moment with a single possibility, at which only requests with unknown outcomes were open.
    pub settled_at: u64,
    /// The state at that time.
    pub settled: String,
    /// The requests called since then, or with an unknown outcome, in the order of their calls.
    pub lines: Vec<String>,
    /// The states that were possible before the answer; at most a few of them.
    pub possible: Vec<String>,
    /// The answer without an explanation.
    pub last: String,
    /// The number of requests in the prefix.
    pub requests: usize,
}

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { key, settled_at, settled, lines, possible, last, requests } = self;
        let of = if key == "()" { String::new() } else { format!(" of {key}") };
        writeln!(f, "no order explains the first {requests} requests{of}")?;
        writeln!(f, "  at {}: {settled}", micros(*settled_at))?;
        for line in lines {
            writeln!(f, "  {line}")?;
        }
        writeln!(f, "  by then it can have been: {}", possible.join("; or "))?;
        write!(f, "  not explained: {last}")
    }
}

pub(super) fn explain<M: Model>(
    model: &M,
    requests: &[&Asked<M>],
    failed: usize,
    (settled_at, settled): (u64, String),
    mut possible: Vec<String>,
) -> Explanation {
    let end = requests[failed].end;
    let line = |request: &Asked<M>| {
        let until = match request.answer {
            Answer::Known(_) => micros(request.end),
            Answer::Unknown | Answer::Failed => "…".to_owned(),
        };
        let said = model.describe(&request.action, &request.answer);
        format!("caller {}, {} to {until}: {said}", request.caller, micros(request.start))
    };
    let prefix = || requests.iter().filter(|request| request.start <= end);
    let matters = |request: &&&Asked<M>| match request.answer {
        Answer::Known(_) => request.end > settled_at || settled_at == 0,
        Answer::Unknown | Answer::Failed => true,
    };
    possible.sort();
    possible.dedup();
    if possible.len() > STATES_MAX {
        let more = possible.len() - STATES_MAX;
        possible.truncate(STATES_MAX);
        possible.push(format!("{more} more"));
    }
    Explanation {
        key: format!("{:?}", model.key(&requests[failed].action)),
        settled_at,
        settled,
        lines: prefix().filter(matters).map(|request| line(request)).collect(),
        possible,
        last: line(requests[failed]),
        requests: prefix().count(),
    }
}

fn micros(nanos: u64) -> String {
    format!("{}.{:03} µs", nanos / 1_000, nanos % 1_000)
}
