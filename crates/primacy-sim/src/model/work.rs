//! The work of a leader, and its guardian: the same for every election.

use primacy_core::{Duration, Event, Instant, Reason};

use super::now::NOW;

/// All work of one node, which must never run at two nodes at the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Works {
    /// The work of the current leadership, from `Elected` to `Deposed`.
    current: Option<Work>,
    /// The latest end, by the node's clock, of the work of former leaderships. Such work takes all the time that it
    /// has to drain: an earlier end could not break an invariant.
    earlier: Instant,
    pub(super) guardian: Guardian,
}

/// The work of a leadership.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Work {
    /// True if it was told to drain.
    draining: bool,
    /// True if it has neither ended by itself nor died with its guardian.
    runs: bool,
    /// Its latest end, by the node's clock.
    until: Instant,
}

/// The guardian of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Guardian {
    /// No guardian: the work runs in the node's own process.
    Absent,
    Alive,
    Dead,
}

impl Works {
    /// No work yet.
    pub(super) fn new(guardians: bool) -> Self {
        let guardian = if guardians { Guardian::Alive } else { Guardian::Absent };
        Self { current: None, earlier: NOW, guardian }
    }

    /// True if any work may be running.
    pub(super) fn run(&self) -> bool {
        NOW < self.earlier || self.current.is_some_and(|work| work.runs && NOW < work.until)
    }

    /// True if there is work that was told to drain.
    pub(super) fn drain(&self) -> bool {
        self.current.is_some_and(|work| work.draining)
    }

    /// True if the job of a leader runs and may end by itself.
    pub(super) fn may_exit(&self) -> bool {
        self.current.is_some_and(|work| work.runs && !work.draining)
    }

    /// True if a leader's job has ended before the leadership; the node notices that, and resigns.
    pub(super) fn have_exited(&self) -> bool {
        self.current.is_some_and(|work| !work.runs && !work.draining)
    }

    /// Records that the work of the current leadership has drained or ended by itself; work of former leaderships may
    /// still run.
    pub(super) fn drained(&mut self) {
        self.current = None;
    }

    /// Records that the job of the current leadership has ended by itself.
    pub(super) fn exit(&mut self) {
        self.current = self.current.map(|work| Work { runs: false, ..work });
    }

    /// Records that all work has ended.
    pub(super) fn end(&mut self) {
        self.current = None;
        self.earlier = NOW;
    }

    /// Records that the guardian has died, and every job with it.
    pub(super) fn guardian_dies(&mut self) {
        self.guardian = Guardian::Dead;
        self.exit();
        self.earlier = NOW;
    }

    /// Ends the process. Without a guardian its work ends too.
    pub(super) fn crash(&mut self) {
        if self.guardian != Guardian::Alive {
            self.end();
        }
    }

    /// Starts a process, which first ends the work of the previous one.
    pub(super) fn start(&mut self) {
        self.end();
        self.revive_guardian();
    }

    /// Starts a new guardian if it is dead, because a job needs one.
    fn revive_guardian(&mut self) {
        if self.guardian == Guardian::Dead {
            self.guardian = Guardian::Alive;
        }
    }

    /// Moves the node's clock.
    pub(super) fn tick(&mut self, by: Duration) {
        self.earlier = self.earlier.before(by);
        self.current = self.current.map(|work| Work { until: work.until.before(by), ..work });
    }

    /// Clamps past instants, so that all equivalent ones are equal.
    pub(super) fn settle(&mut self) {
        self.earlier = self.earlier.max(NOW);
        self.current = self.current.filter(|work| NOW < work.until);
    }

    /// Records an event for the application, and its effect on the work. Returns the violated rule, if any.
    pub(super) fn hear(&mut self, event: &Event) -> Option<&'static str> {
        match *event {
            Event::Elected { valid_until, .. } => {
                let leads = self.current.is_some();
                self.current = Some(Work { draining: false, runs: true, until: valid_until });
                self.revive_guardian();
                leads.then_some("contract: elected while it leads")
            }
            Event::Renewed { valid_until } => match &mut self.current {
                Some(work) => {
                    work.until = work.until.max(valid_until);
                    None
                }
                None => Some("contract: renewed and does not lead"),
            },
            Event::Resigning(_) => match &mut self.current {
                Some(work) if !work.draining => {
                    work.draining = true;
                    None
                }
                Some(_) | None => Some("contract: told to drain and does not lead"),
            },
            Event::Deposed(reason) => {
                let work = self.current.take()?; // Else it has ended by itself.
                if !work.runs {
                    return None;
                }
                self.earlier = self.earlier.max(work.until);
                let in_order =
                    matches!(reason, Reason::Resigned | Reason::Transferred(_) | Reason::Unhealthy);
                in_order.then_some("contract: gives up before it has drained")
            }
            Event::LeaderChanged(_) | Event::Violation(_) => None,
        }
    }
}
