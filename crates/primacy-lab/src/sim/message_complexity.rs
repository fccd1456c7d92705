//! The number of messages of an election: counted in its machines, with the formulas of its authors, as a table, as
//! JSON and as a plot.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use clap::ValueEnum;
use primacy_sim::draw::plot::{Curve, Plot, number, svg};
use primacy_sim::message_complexity::{Case, CountedElection, Initiators, MESSAGES_MAX, NODES_MAX};
use serde::Serialize;

use crate::exit::{Exit, Failure, print};

/// The number of steps of a formula's curve in which the number of nodes at least doubles.
const STEPS_PER_DOUBLING: u64 = 24;

/// The nodes that begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Who {
    /// All nodes, at the same moment
    All,
    /// One of them
    One,
}

/// Parses a number of nodes.
pub(super) fn nodes(text: &str) -> Result<usize, String> {
    let wrong = || format!("write a number of nodes from 2 to {NODES_MAX}");
    let nodes = text.parse().map_err(|_| wrong())?;
    if (2..=NODES_MAX).contains(&nodes) { Ok(nodes) } else { Err(wrong()) }
}

/// Counts, prints and plots. A plot on standard output suppresses all other output.
pub(super) fn tell(
    election: CountedElection,
    who: Who,
    nodes: usize,
    picture: Option<&Path>,
    json: bool,
) -> Result<Exit, Failure> {
    let initiators = match who {
        Who::All => Initiators::All,
        Who::One => Initiators::One,
    };
    let cases = election.count(initiators, nodes);
    let text = if json { as_json(election, who, &cases)? } else { as_table(election, &cases) };
    let drawn = picture.map(|_| svg(&plot(election, who, nodes, &cases)));
    match (picture, drawn) {
        (Some(file), Some(drawn)) if file == Path::new("-") => print(&drawn)?,
        (Some(file), Some(drawn)) => {
            let written = fs::write(file, drawn);
            written.map_err(|error| {
                Failure::new(Exit::Failed, format!("{} cannot be written: {error}", file.display()))
            })?;
            print(&text)?;
        }
        (None, _) | (_, None) => print(&text)?,
    }
    match cases.iter().find(|case| !case.is_met()) {
        Some(case) => {
            let what = format!(
                "{}, {}: it takes another number of messages than it has to",
                election.name(),
                case.name
            );
            Err(Failure::new(Exit::Broken, what))
        }
        None => Ok(Exit::Success),
    }
}

fn as_table(election: CountedElection, cases: &[Case]) -> String {
    let mut text = String::new();
    // Writing to a string does not fail.
    for case in cases {
        let _ = writeln!(text, "{}, {}: {}", election.name(), case.name, case.formula);
        let _ = writeln!(text, "{:>9} {:>12} {:>12} {:>14}", "nodes", "counted", "exact", "formula");
        for point in &case.points {
            let formula = (case.expected)(point.nodes as u64);
            let missed = if point.is_met() { "" } else { "  missed" };
            let _ = writeln!(
                text,
                "{:>9} {:>12} {:>12} {:>14}{missed}",
                point.nodes,
                point.messages,
                point.exact,
                if case.is_mean() { format!("{formula:.1}") } else { format!("{formula:.0}") },
            );
        }
    }
    let _ = writeln!(
        text,
        "until a leader is elected; on a ring, announcing it takes one more message for each node, and every message is \
         confirmed. What takes more than {MESSAGES_MAX} messages is not counted."
    );
    text
}

#[derive(Serialize)]
struct ComplexityReport<'a> {
    election: &'a str,
    initiators: &'a str,
    cases: Vec<CaseReport<'a>>,
}

#[derive(Serialize)]
struct CaseReport<'a> {
    name: &'a str,
    formula: &'a str,
    /// `exact`, `mean` or `bound`.
    formula_is: &'a str,
    met: bool,
    points: Vec<ToldPoint>,
}

#[derive(Serialize)]
struct ToldPoint {
    nodes: usize,
    messages: u64,
    exact: u64,
    formula: f64,
}

fn as_json(election: CountedElection, who: Who, cases: &[Case]) -> Result<String, Failure> {
    let told = |case: &Case| {
        let point = |point: &primacy_sim::message_complexity::Point| ToldPoint {
            nodes: point.nodes,
            messages: point.messages,
            exact: point.exact,
            formula: (case.expected)(point.nodes as u64),
        };
        case.points.iter().map(point).collect()
    };
    let cases = cases.iter().map(|case| CaseReport {
        name: case.name,
        formula: case.formula,
        formula_is: match (case.is_bound, case.is_mean()) {
            (true, _) => "bound",
            (false, true) => "mean",
            (false, false) => "exact",
        },
        met: case.is_met(),
        points: told(case),
    });
    let report = ComplexityReport {
        election: election.name(),
        initiators: match who {
            Who::All => "all",
            Who::One => "one",
        },
        cases: cases.collect(),
    };
    let text = serde_json::to_string(&report);
    text.map(|text| text + "\n").map_err(|error| Failure::new(Exit::System, error.to_string()))
}

fn plot(election: CountedElection, who: Who, nodes: usize, cases: &[Case]) -> Plot {
    let starts = match who {
        Who::All => "all nodes start",
        Who::One => "one node starts",
    };
    let what = match election {
        CountedElection::Bully => "All messages, with those that say who leads.",
        CountedElection::Ring | CountedElection::RingBidirectional => {
            "Probes until one is elected; announcing it takes one more message for each node."
        }
    };
    Plot {
        title: format!("{}: messages of one election, {starts}", election.name()),
        about: vec![
            format!("{what} Counted in the machines that real nodes run."),
            "The lines are the formulas, the dots what was counted.".to_owned(),
        ],
        axes: ["nodes".to_owned(), "messages".to_owned()],
        right_end: nodes as f64,
        curves: cases.iter().map(|case| curve(case, nodes)).collect(),
    }
}

fn curve(case: &Case, nodes: usize) -> Curve {
    let last = case.points.last().map_or(0, |point| point.nodes);
    let formula = if last < nodes {
        format!("{}, counted to {}", case.formula, number(last as f64))
    } else {
        case.formula.to_owned()
    };
    // The spacing looks even on a logarithmic axis.
    let step = |&place: &u64| Some(place + (place / STEPS_PER_DOUBLING).max(1));
    let places = std::iter::successors(Some(2), step).take_while(|&place| place < nodes as u64);
    Curve {
        label: [case.name.to_owned(), formula],
        line: places.chain([nodes as u64]).map(|nodes| (nodes as f64, (case.expected)(nodes))).collect(),
        dots: case.points.iter().map(|point| (point.nodes as f64, point.messages as f64)).collect(),
    }
}
