//! Searches the spaces of the model checker and prints the results.
//!
//! `prove [--small] [--states-max N] [--json] [NAME ...]`: searches all spaces, the small ones, or the named
//! ones, and prints for each the result, the bounds and the marks reached. It fails if any result is not as
//! it should be.
//!
//! `prove --space NAME` reports only which invariant breaks first there, whatever the number of states: the
//! judge of mutants. It prints `caught invariant=I4`, or `survived run=STATES`.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::Instant;

use primacy_sim::model::coverage::Coverage;
use primacy_sim::model::spaces::{Bounds, SPACES, Space};

fn main() -> ExitCode {
    let mut names = Vec::new();
    let (mut small, mut json, mut states_max) = (false, false, u64::from(u32::MAX) - 1);
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--small" => small = true,
            "--json" => json = true,
            "--space" => {
                let name = arguments.next().unwrap_or_default();
                return match SPACES.iter().find(|row| row.name == name) {
                    Some(row) => ask(row, states_max),
                    None => fail(&format!("there is no space {name}")),
                };
            }
            "--states-max" => match arguments.next().and_then(|number| number.parse().ok()) {
                Some(number) => states_max = number,
                None => return fail("--states-max needs a number"),
            },
            name if SPACES.iter().any(|row| row.name == name) => names.push(name.to_owned()),
            unknown => return fail(&format!("there is no space {unknown}")),
        }
    }
    let chosen = |row: &&Space| {
        (names.is_empty() || names.iter().any(|name| name == row.name)) && (!small || row.small)
    };
    if !json {
        println!("Times are in ticks. What is not said of a space below is");
        Bounds::CALM.iter().for_each(|(place, calm)| println!("    {place}: {calm}"));
        println!();
    }
    let rows: Vec<&Space> = SPACES.iter().filter(chosen).collect();
    let failures = prove_all(&rows, states_max, json);
    if failures == 0 {
        ExitCode::SUCCESS
    } else {
        fail(&format!("{failures} spaces are not as they should be"))
    }
}

fn fail(why: &str) -> ExitCode {
    eprintln!("{why}");
    ExitCode::FAILURE
}

/// Searches these spaces, as many at a time as there are cores, and prints them in their order. Returns the
/// number of spaces whose result is not as it should be.
fn prove_all(rows: &[&Space], states_max: u64, json: bool) -> usize {
    let (next, threads) =
        (AtomicUsize::new(0), thread::available_parallelism().map_or(1, |cores| cores.get()));
    let (tell, told) = mpsc::channel();
    let work = &|tell: mpsc::Sender<_>| loop {
        let at = next.fetch_add(1, Ordering::Relaxed);
        let Some(row) = rows.get(at) else { return };
        let _ = tell.send((at, prove(row, states_max, json))); // Whoever prints is there to the end.
    };
    thread::scope(|scope| {
        for _ in 0..threads {
            let tell = tell.clone();
            scope.spawn(move || work(tell));
        }
        drop(tell);
        let (mut early, mut printed, mut failures) = (BTreeMap::new(), 0, 0);
        for (at, result) in told {
            early.insert(at, result);
            while let Some(Proved { line, story, is_good }) = early.remove(&printed) {
                eprint!("{story}");
                println!("{line}");
                failures += usize::from(!is_good);
                printed += 1;
            }
        }
        failures
    })
}

/// The result of searching one space.
struct Proved {
    line: String,
    /// The order of events that broke an invariant, or is otherwise not as it should be; empty if all is
    /// well.
    story: String,
    is_good: bool,
}

/// Searches one space.
fn prove(row: &Space, states_max: u64, json: bool) -> Proved {
    let began = Instant::now();
    let found = row.search(states_max);
    let seconds = began.elapsed().as_secs_f64();
    let wrong = row.judge(&found);
    let result = if wrong.is_empty() { "as it should be".to_owned() } else { wrong.join("; ") };
    let line = format!(
        "{:24} {:>9} states {:>10} steps {:>3} deep {:>9} cut {seconds:>6.1} s  {result}\n    {}\n    reached: {}",
        row.name,
        found.states,
        found.steps,
        found.depth,
        found.cut,
        row.bounds,
        Coverage(found.reached)
    );
    let mut story = String::new();
    if !wrong.is_empty() {
        for step in found.broken.iter().flat_map(|broken| &broken.story) {
            let _ = writeln!(story, "    {}", step.join("\n        "));
        }
    }
    let object = format!(
        "{{\"space\":\"{}\",\"bounds\":\"{:?}\",\"states\":{},\"steps\":{},\"depth\":{},\"cut\":{},\"seconds\":{seconds:.1},\"result\":\"{result}\"}}",
        row.name, row.bounds, found.states, found.steps, found.depth, found.cut
    );
    Proved { line: if json { object } else { line }, story, is_good: wrong.is_empty() }
}

/// Reports which invariant breaks first, if one does.
fn ask(row: &Space, states_max: u64) -> ExitCode {
    let found = row.search(states_max);
    match found.broken {
        Some(broken) => {
            // For a broken contract, the details follow after a colon.
            let name = broken.invariant.split(':').next().unwrap_or_default();
            println!("caught invariant={name} run={} spoke={name}:1", found.states);
        }
        None => println!("survived run={}", found.states),
    }
    ExitCode::SUCCESS
}
