//! Leadership intervals: the time for which a process believes that it leads, with beginning and end in true time.
//! The invariants check them.
//!
//! An interval is in force while its work may still run: from `Elected` until the work has drained, or until
//! `valid_until` on the leader's own clock. The work of a deposed node may go on until it has drained. So an interval
//! can be longer than the node's own belief.

use primacy_core::{Event, Identity, Instant, Mandate, Reason, Term};

use crate::clock::{Clock, Moment};

/// The stage of a leadership.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeadershipStage {
    /// It leads.
    Leading,
    /// It is draining.
    Resigning,
    /// The machine does not lead any more; the work may not have ended yet.
    Deposed,
}

/// One leadership of one process, from that process's view.
#[derive(Clone, Debug)]
pub struct LeadershipInterval {
    /// The process.
    pub who: Identity,
    /// Its term.
    pub term: Term,
    /// The mandate.
    pub mandate: Mandate,
    /// The number of this leadership in the world, counted from 1; it orders leaderships without tokens.
    pub ordinal: u64,
    /// Its end on the clock of the process.
    pub valid_until: Instant,
    /// Its stage.
    pub stage: LeadershipStage,
    by_clock: Moment,
    /// The moment by which the work has ended or will have ended.
    work_until: Moment,
}

/// All intervals that may still be in force.
#[derive(Clone, Debug, Default)]
pub struct LeadershipIntervals {
    open: Vec<LeadershipInterval>,
    /// The number of intervals so far.
    pub count: u64,
}

impl LeadershipInterval {
    /// Returns the moment at which the interval ends, if nothing happens before.
    #[must_use]
    pub fn until(&self) -> Moment {
        self.by_clock.min(self.work_until)
    }

    /// True if the work may be running.
    #[must_use]
    pub fn in_force(&self, now: Moment) -> bool {
        now < self.until()
    }
}

impl LeadershipIntervals {
    /// The intervals that are in force.
    pub fn in_force(&self, now: Moment) -> impl Iterator<Item = &LeadershipInterval> {
        self.open.iter().filter(move |interval| interval.in_force(now))
    }

    /// Returns the interval of this process, unless it was deposed.
    #[must_use]
    pub fn of(&self, who: Identity) -> Option<&LeadershipInterval> {
        self.open.iter().find(|interval| interval.who == who && interval.stage != LeadershipStage::Deposed)
    }

    /// Records an event that a machine reports to its application. `drained_by` is the time by which work that this
    /// event ends will have drained.
    ///
    /// # Errors
    /// If the sequence of the machine's events breaks the contract.
    pub fn told(
        &mut self,
        now: Moment,
        clock: &Clock,
        who: Identity,
        event: &Event,
        drained_by: Moment,
    ) -> Result<(), String> {
        match *event {
            Event::Elected { term, mandate, valid_until } => {
                self.open
                    .retain(|interval| interval.stage != LeadershipStage::Deposed || interval.in_force(now));
                if self.of(who).is_some() {
                    return Err(format!("{} is told that it leads, and leads already", who.node));
                }
                self.count += 1;
                let ordinal = self.count;
                let by_clock = clock.when(valid_until);
                let (stage, work_until) = (LeadershipStage::Leading, Moment::NEVER);
                let interval = LeadershipInterval {
                    who,
                    term,
                    mandate,
                    ordinal,
                    valid_until,
                    stage,
                    by_clock,
                    work_until,
                };
                self.open.push(interval);
                Ok(())
            }
            Event::Renewed { valid_until } => self.renewed(now, clock, who, valid_until),
            Event::Resigning(_) => {
                let interval = self.open_of(who).ok_or("it is told to drain, and does not lead")?;
                if interval.stage != LeadershipStage::Leading {
                    return Err(format!("{} is told to drain, and drains already", who.node));
                }
                interval.stage = LeadershipStage::Resigning;
                Ok(())
            }
            Event::Deposed(reason) => self.deposed(now, who, reason, drained_by),
            Event::LeaderChanged(_) | Event::Violation(_) => Ok(()),
        }
    }

    fn renewed(
        &mut self,
        now: Moment,
        clock: &Clock,
        who: Identity,
        valid_until: Instant,
    ) -> Result<(), String> {
        let interval = self.open_of(who).ok_or("it is renewed, and does not lead")?;
        if valid_until <= interval.valid_until {
            return Err(format!("{} is renewed, and its end does not come later", who.node));
        }
        let lapsed = now >= interval.by_clock;
        interval.valid_until = valid_until;
        interval.by_clock = clock.when(valid_until);
        if lapsed { Err(format!("{} is renewed after its end", who.node)) } else { Ok(()) }
    }

    fn deposed(
        &mut self,
        now: Moment,
        who: Identity,
        reason: Reason,
        drained_by: Moment,
    ) -> Result<(), String> {
        let interval = self.open_of(who).ok_or("it is deposed, and does not lead")?;
        interval.stage = LeadershipStage::Deposed;
        interval.work_until = interval.work_until.min(drained_by);
        let in_order = matches!(reason, Reason::Resigned | Reason::Transferred(_) | Reason::Unhealthy);
        if in_order && interval.in_force(now) {
            return Err(format!("{} gives up the lead before its work has drained", who.node));
        }
        Ok(())
    }

    fn open_of(&mut self, who: Identity) -> Option<&mut LeadershipInterval> {
        self.open
            .iter_mut()
            .find(|interval| interval.who == who && interval.stage != LeadershipStage::Deposed)
    }

    /// Records that the work of this process's current leadership has ended; the work of a leadership from which it
    /// was deposed may go on.
    pub fn drained(&mut self, now: Moment, who: Identity) {
        if let Some(interval) = self.open_of(who) {
            interval.work_until = interval.work_until.min(now);
        }
    }

    /// Records that all work of this process has ended.
    pub fn work_ended(&mut self, now: Moment, who: Identity) {
        for interval in self.open.iter_mut().filter(|interval| interval.who == who) {
            interval.work_until = interval.work_until.min(now);
        }
    }

    /// Records that the process and all its work are gone.
    pub fn gone(&mut self, now: Moment, who: Identity) {
        self.work_ended(now, who);
        self.open.retain(|interval| interval.who != who);
    }

    /// Records that the clock of this process has changed.
    pub fn clock_changed(&mut self, clock: &Clock, who: Identity) {
        for interval in self.open.iter_mut().filter(|interval| interval.who == who) {
            interval.by_clock = clock.when(interval.valid_until);
        }
    }
}
