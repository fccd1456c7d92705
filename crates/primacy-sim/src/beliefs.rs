//! Who believes to lead, and from when until when, in true time: what the invariants are judged by.
//!
//! A belief is in force while its work may still run: from `Elected` until the work has drained, or until
//! `valid_until` on the leader's own clock. That a node was deposed does not end its work at that moment; it
//! is given the time to drain. So what is judged here is stricter than what the node itself would say.

use primacy_core::{Event, Identity, Instant, Mandate, Reason, Term};

use crate::clock::{Clock, Moment};

/// How far a belief has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// It leads.
    Leading,
    /// It was told to drain.
    Resigning,
    /// The machine says that it leads no more; the work may not have ended yet.
    Deposed,
}

/// One leadership of one process life, as that process sees it.
#[derive(Clone, Debug)]
pub struct Belief {
    /// Who.
    pub who: Identity,
    /// Its term.
    pub term: Term,
    /// What it was given.
    pub mandate: Mandate,
    /// Which leadership of the world this is, counted from 1; the order of leaderships that have no token.
    pub ordinal: u64,
    /// Its end on its own clock.
    pub valid_until: Instant,
    /// How far it has come.
    pub stage: Stage,
    by_clock: Moment,
    /// The work has ended, or will have ended, by then.
    work_until: Moment,
}

/// All the beliefs that may still be in force.
#[derive(Clone, Debug, Default)]
pub struct Beliefs {
    open: Vec<Belief>,
    /// How many there have been.
    pub count: u64,
}

impl Belief {
    /// When it ends, if nothing happens.
    #[must_use]
    pub fn until(&self) -> Moment {
        self.by_clock.min(self.work_until)
    }

    /// Whether the work may be running.
    #[must_use]
    pub fn in_force(&self, now: Moment) -> bool {
        now < self.until()
    }
}

impl Beliefs {
    /// The beliefs that are in force.
    pub fn in_force(&self, now: Moment) -> impl Iterator<Item = &Belief> {
        self.open.iter().filter(move |belief| belief.in_force(now))
    }

    /// What this process life believes, if it was not deposed.
    #[must_use]
    pub fn of(&self, who: Identity) -> Option<&Belief> {
        self.open.iter().find(|belief| belief.who == who && belief.stage != Stage::Deposed)
    }

    /// Takes in what a machine told its application. `drained_by` is when the work that this event ends will
    /// have ended.
    ///
    /// # Errors
    /// What is wrong, if the machine tells things in an order that the contract does not know.
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
                self.open.retain(|belief| belief.stage != Stage::Deposed || belief.in_force(now));
                if self.of(who).is_some() {
                    return Err(format!("{} is told that it leads, and leads already", who.node));
                }
                self.count += 1;
                let ordinal = self.count;
                let by_clock = clock.when(valid_until);
                let (stage, work_until) = (Stage::Leading, Moment::NEVER);
                let belief = Belief { who, term, mandate, ordinal, valid_until, stage, by_clock, work_until };
                self.open.push(belief);
                Ok(())
            }
            Event::Renewed { valid_until } => self.renewed(now, clock, who, valid_until),
            Event::Resigning(_) => {
                let belief = self.open_of(who).ok_or("it is told to drain, and does not lead")?;
                if belief.stage != Stage::Leading {
                    return Err(format!("{} is told to drain, and drains already", who.node));
                }
                belief.stage = Stage::Resigning;
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
        let belief = self.open_of(who).ok_or("it is renewed, and does not lead")?;
        if valid_until <= belief.valid_until {
            return Err(format!("{} is renewed, and its end does not come later", who.node));
        }
        let lapsed = now >= belief.by_clock;
        belief.valid_until = valid_until;
        belief.by_clock = clock.when(valid_until);
        if lapsed { Err(format!("{} is renewed after its end", who.node)) } else { Ok(()) }
    }

    fn deposed(
        &mut self,
        now: Moment,
        who: Identity,
        reason: Reason,
        drained_by: Moment,
    ) -> Result<(), String> {
        let belief = self.open_of(who).ok_or("it is deposed, and does not lead")?;
        belief.stage = Stage::Deposed;
        belief.work_until = belief.work_until.min(drained_by);
        let in_order = matches!(reason, Reason::Resigned | Reason::Transferred(_) | Reason::Unhealthy);
        if in_order && belief.in_force(now) {
            return Err(format!("{} gives up the lead before its work has drained", who.node));
        }
        Ok(())
    }

    fn open_of(&mut self, who: Identity) -> Option<&mut Belief> {
        self.open.iter_mut().find(|belief| belief.who == who && belief.stage != Stage::Deposed)
    }

    /// The work of what this process life leads has ended; that of an earlier leadership, from which it was deposed, has not
    /// by that.
    pub fn drained(&mut self, now: Moment, who: Identity) {
        if let Some(belief) = self.open_of(who) {
            belief.work_until = belief.work_until.min(now);
        }
    }

    /// All work of this process life has ended.
    pub fn work_ended(&mut self, now: Moment, who: Identity) {
        for belief in self.open.iter_mut().filter(|belief| belief.who == who) {
            belief.work_until = belief.work_until.min(now);
        }
    }

    /// The process life is gone, and all its work.
    pub fn gone(&mut self, now: Moment, who: Identity) {
        self.work_ended(now, who);
        self.open.retain(|belief| belief.who != who);
    }

    /// The clock of this process life goes otherwise from now on.
    pub fn clock_changed(&mut self, clock: &Clock, who: Identity) {
        for belief in self.open.iter_mut().filter(|belief| belief.who == who) {
            belief.by_clock = clock.when(belief.valid_until);
        }
    }
}
