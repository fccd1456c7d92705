//! The laws that every election keeps, whatever it is held in: one body each, on a simulated arm and on live ones.
//!
//! [`check`] is the one entry point, as [`check`](crate::check) is for stores. An arm that lacks an ability that a law needs gives the
//! reason, and the law is `not claimed` there; an arm that is not there is `NOT RUN`.

mod candidate;
pub mod deployment;
pub mod harness;
pub mod in_process;
pub mod law_run;
pub mod laws;
mod listener;
pub mod processes;
pub mod simulated;

use std::io::Write;

pub use harness::{Bounds, ElectionHarness, Need, NodeCommand, NodeEvent, NodeEventKind, Pace, Waiting};
pub use laws::{LAWS, Law};

use crate::{Outcome, REQUIRE_LIVE_VARIABLE};

/// Holds an election to the laws, and returns the outcome of each.
///
/// # Panics
/// If a law is broken; or if the arm is not there and [`REQUIRE_LIVE_VARIABLE`] is set.
pub async fn check(harness: &mut dyn ElectionHarness) -> Vec<(&'static str, Outcome)> {
    let name = harness.name();
    // Not by a macro: output of a test by macros is not shown when it passes, and this must be.
    let say = |text: &str| {
        let _ = writeln!(std::io::stderr(), "{name}: {text}");
    };
    if let Err(why) = harness.reach() {
        say(&format!("NOT RUN, all {} laws: {why}", LAWS.len()));
        assert!(std::env::var_os(REQUIRE_LIVE_VARIABLE).is_none(), "{name} is required to be there: {why}");
        return LAWS.iter().map(|law| (law.name, Outcome::NotRun)).collect();
    }
    let mut outcomes = Vec::new();
    for law in &LAWS {
        let lacks = law.needs.iter().find_map(|need| harness.lacks(*need));
        let outcome = match lacks {
            Some(why) => {
                say(&format!("{} not claimed: {why}", law.name));
                Outcome::NotClaimed
            }
            None => {
                // Before it runs, so that a law that panics has been named.
                println!("{name}: {} …", law.name);
                law.check(harness).await;
                Outcome::Passed
            }
        };
        outcomes.push((law.name, outcome));
    }
    let count = |wanted| outcomes.iter().filter(|(_, outcome)| *outcome == wanted).count();
    say(&format!("{} laws kept, {} not claimed", count(Outcome::Passed), count(Outcome::NotClaimed)));
    outcomes
}
