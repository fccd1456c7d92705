//! The laws that every store and every election must satisfy, so that an election needs no special case for a store,
//! and an application none for an election.
//!
//! [`check`] is the one entry point for stores: it runs every law that the store claims through its [`Capabilities`],
//! prints the others as `not claimed`, and prints `NOT RUN` if the store is unavailable. A broken law panics, as a
//! test does. [`check_sessions`] is the same for stores with sessions, and [`elections::check`] for elections.
//!
//! To check a new store, implement [`Harness`] and call [`check`] in a test.
//!
//! The answers to concurrent callers are checked by [`linearizability`], which is independent of stores.

pub mod elections;
mod faulty_election;
pub mod harness;
pub mod history;
pub mod linearizability;
pub mod live;
pub mod process_laws;
pub mod register_laws;
pub mod register_model;
pub mod rival;
pub mod session_laws;
pub mod sessions_harness;
pub mod simulated_store;
mod stalls;
pub mod table;

use std::io::Write;
use std::sync::Arc;

use primacy_stores::faulty::{FaultyRegister, FaultySessions};
use primacy_stores::{Opened, Pending};

use faulty_election::FaultyElection;
pub use harness::{Capabilities, Harness};
pub use register_laws::{LAWS, Law};
pub use session_laws::{SESSION_LAWS, SessionLaw};
pub use sessions_harness::{SessionCapabilities, SessionsHarness};

/// The environment variable that makes an unavailable store a failure: for machines that have them all.
pub const REQUIRE_LIVE_VARIABLE: &str = "PRIMACY_REQUIRE_LIVE";

/// Reports that something was not tried, because its server or program is missing; on standard error, because a
/// test's output by macros is captured when it passes.
///
/// # Panics
/// If [`REQUIRE_LIVE_VARIABLE`] is set.
pub fn not_run(why: &str) {
    let _ = writeln!(std::io::stderr(), "NOT RUN: {why}");
    assert!(std::env::var_os(REQUIRE_LIVE_VARIABLE).is_none(), "it is required to be there: {why}");
}

/// The outcome of a law.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The store satisfies it.
    Passed,
    /// The store does not claim the capability that the law needs.
    NotClaimed,
    /// The store was unavailable.
    NotRun,
}

/// Checks a store against the laws, and returns the outcome of each.
///
/// # Panics
/// If a law is broken; or if the store is unavailable and [`REQUIRE_LIVE_VARIABLE`] is set.
pub async fn check(harness: &dyn Harness) -> Vec<(&'static str, Outcome)> {
    let held = |law: &'static Law| Held {
        name: law.name,
        check: harness.capabilities().contain(law.needs).then(|| Box::pin(law.check(harness)) as _),
    };
    let outcomes = hold(&harness.name(), harness.reach().await, LAWS.iter().map(held).collect()).await;
    // Measured in real time, and with an operator's access.
    let needs = Capabilities { processes: true, deletion: true, ..Capabilities::NONE };
    if has_run(&outcomes) && harness.capabilities().contain(needs) {
        let (faulty, switch) = FaultyRegister::new(harness.open(faulty_election::ELECTION).await);
        let (opened, erase) = (Opened::Register(Arc::new(faulty)), harness.erase(faulty_election::ELECTION));
        let lease = std::time::Duration::ZERO;
        FaultyElection { opened, switch, lease, patience: harness.patience(), erase }.check().await;
    }
    outcomes
}

fn has_run(outcomes: &[(&str, Outcome)]) -> bool {
    outcomes.iter().any(|(_, outcome)| *outcome == Outcome::Passed)
}

/// Checks a store with sessions against the laws, and returns the outcome of each.
///
/// # Panics
/// As [`check`].
pub async fn check_sessions(harness: &dyn SessionsHarness) -> Vec<(&'static str, Outcome)> {
    let held = |law: &'static SessionLaw| Held {
        name: law.name,
        check: harness.capabilities().contain(law.needs).then(|| Box::pin(law.check(harness)) as _),
    };
    let outcomes =
        hold(&harness.name(), harness.reach().await, SESSION_LAWS.iter().map(held).collect()).await;
    let needs =
        SessionCapabilities { expiry: true, deletion: true, restart: true, ..SessionCapabilities::NONE };
    if has_run(&outcomes) && harness.capabilities().contain(needs) {
        let (faulty, switch) = FaultySessions::new(harness.open(faulty_election::ELECTION).await);
        let (opened, erase) =
            (Opened::Sessions(Arc::new(faulty)), harness.remove_first(faulty_election::ELECTION));
        let lease = harness.short_timeout();
        FaultyElection { opened, switch, lease, patience: harness.patience(), erase }.check().await;
    }
    outcomes
}

/// A law, with its check of the store if the store claims the required capabilities.
struct Held<'a> {
    name: &'static str,
    check: Option<Pending<'a, ()>>,
}

async fn hold(name: &str, reached: Result<(), String>, laws: Vec<Held<'_>>) -> Vec<(&'static str, Outcome)> {
    // Not by a macro, whose output is captured when the test passes; this must be shown.
    let say = |text: &str| {
        let _ = writeln!(std::io::stderr(), "{name}: {text}");
    };
    if let Err(why) = reached {
        say(&format!("NOT RUN, all {} laws: {why}", laws.len()));
        assert!(std::env::var_os(REQUIRE_LIVE_VARIABLE).is_none(), "{name} is required to be there: {why}");
        return laws.iter().map(|law| (law.name, Outcome::NotRun)).collect();
    }
    let mut outcomes = Vec::new();
    for law in laws {
        let outcome = match law.check {
            Some(check) => {
                // Printed before it runs, so that the output names a law that panics.
                println!("{name}: {} …", law.name);
                check.await;
                Outcome::Passed
            }
            None => {
                say(&format!("{} not claimed", law.name));
                Outcome::NotClaimed
            }
        };
        outcomes.push((law.name, outcome));
    }
    let count = |wanted| outcomes.iter().filter(|(_, outcome)| *outcome == wanted).count();
    say(&format!("{} laws kept, {} not claimed", count(Outcome::Passed), count(Outcome::NotClaimed)));
    outcomes
}
