//! The health check: a command that succeeds if this node is fit to lead.
//!
//! A node is unfit until the check has succeeded once, so that a node that starts broken never leads. It becomes unfit
//! again when the check has failed several times in a row, and fit again with the first success. An operator who wants
//! a slower recovery puts the delay into the command.
//!
//! Each run has a [keeper](keeper), which ends all processes that the command has started: before the next run, and
//! when this process dies.

pub(crate) mod keeper;

use std::sync::Arc;
use std::time::Duration;

use primacy::Elector;
use tokio::sync::Mutex;
use tokio::time::{MissedTickBehavior, interval, timeout};

use crate::report::{Event, Reporter};
use keeper::{Keeper, Run};

/// The most killed runs that may fail to end, for example on a file system that hangs, before no new run is started.
const UNENDING_MAX: usize = 4;

/// The time to wait for killed processes to end. After that they are looked for again only before the next run.
const ENDING_TIME: Duration = Duration::from_secs(1);

/// The command of the health check, and its timing.
#[derive(Clone, Debug)]
pub(crate) struct Check {
    pub(crate) command: String,
    pub(crate) interval: Duration,
    /// The number of failures in a row that make the node unfit.
    pub(crate) misses: u32,
}

/// The verdict of the checks so far.
#[derive(Debug, Default)]
struct Verdict {
    healthy: bool,
    misses: u32,
}

impl Verdict {
    /// Adds a result, and returns whether the verdict has changed.
    fn take(&mut self, success: bool, misses_max: u32) -> bool {
        let before = self.healthy;
        if success {
            (self.healthy, self.misses) = (true, 0);
        } else {
            self.misses = self.misses.saturating_add(1);
            self.healthy = self.healthy && self.misses < misses_max;
        }
        self.healthy != before
    }
}

/// Runs the check again and again, without end. Until the first success the node does not campaign. `starting` is held
/// while a run is started.
pub(crate) async fn watch(check: Check, elector: Elector, reporter: Reporter, starting: Arc<Mutex<()>>) {
    let mut verdict = Verdict::default();
    let mut ticks = interval(check.interval);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    // The last failure that was reported: the same failure is not reported twice in a row.
    let mut told = None;
    let mut unending = Vec::new();
    loop {
        ticks.tick().await;
        let outcome = run(&check, &mut unending, &starting).await;
        let changed = verdict.take(outcome.is_ok(), check.misses);
        match outcome {
            Ok(()) => told = None,
            Err(reason) if told.as_ref() == Some(&reason) => {}
            Err(reason) => {
                reporter.tell(&Event::CheckFailed { misses: verdict.misses, reason: reason.clone() });
                told = Some(reason);
            }
        }
        if changed {
            elector.set_healthy(verdict.healthy);
            reporter.tell(&Event::Health { healthy: verdict.healthy });
        }
    }
}

/// Runs the command once. `unending` are earlier runs that are still ending.
async fn run(check: &Check, unending: &mut Vec<Keeper>, starting: &Mutex<()>) -> Result<(), String> {
    unending.retain(Keeper::is_left);
    if unending.len() >= UNENDING_MAX {
        return Err("earlier runs of it were killed and do not end".to_owned());
    }
    let start = || async {
        let _starting = starting.lock().await;
        Run::start(&check.command)
    };
    let mut run = start().await.map_err(|error| format!("it could not be run: {error}"))?;
    let outcome = timeout(check.interval, run.succeeds()).await;
    let keeper = run.end();
    let _ = timeout(ENDING_TIME, keeper.ended()).await;
    if keeper.is_left() {
        // Processes that the kernel cannot kill yet are reaped later.
        unending.push(keeper);
    }
    outcome.unwrap_or_else(|_| Err(format!("it did not end within {:?}", check.interval)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_is_unfit_at_first_and_after_enough_misses_and_fit_with_one_success() {
        let mut verdict = Verdict::default();
        let mut take = |success| (verdict.take(success, 3), verdict.healthy);
        assert_eq!(take(false), (false, false));
        assert_eq!(take(true), (true, true));
        assert_eq!(take(false), (false, true));
        assert_eq!(take(false), (false, true));
        assert_eq!(take(true), (false, true));
        assert_eq!([take(false), take(false), take(false)], [(false, true), (false, true), (true, false)]);
        assert_eq!(take(false), (false, false));
        assert_eq!(take(true), (true, true));
    }
}
