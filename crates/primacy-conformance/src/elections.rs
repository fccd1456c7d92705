//! The laws that every election must satisfy, wherever its state is kept: each is one function, which runs on a
//! simulated arm and on live ones.
//!
//! [`check`] is the one entry point, as [`check`](crate::check) is for stores. An arm that lacks an ability that a
//! law needs states the reason, and the law is `not claimed` there; an unavailable arm is `NOT RUN`.

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

/// Checks an election against all laws, and returns the outcome of each.
///
/// # Panics
/// If a law is broken; or if the arm is unavailable and [`REQUIRE_LIVE_VARIABLE`] is set.
pub async fn check(harness: &mut dyn ElectionHarness) -> Vec<(&'static str, Outcome)> {
    let name = harness.name();
    // Not by a macro, whose output is captured when the test passes; this must be shown.
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
                // Printed before it runs, so that the output names a law that panics.
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
