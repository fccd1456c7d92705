//! One candidate: its process, its work and its guardian, with all that happens within it.

use primacy_core::election::errand::{Errand, Task};
use primacy_core::election::lease::{Config, Lease, Message, Record, RequestId};
use primacy_core::finite::{Finite, Use};
use primacy_core::{
    Command, Drift, Duration, Endpoint, Event, FencingToken, Identity, Incarnation, Input, Instant, NodeId,
    Output, Protocol, Reason, Term,
};

use super::cell::Asker;
use super::space::Space;

/// What every clock shows, always; see the search among peers.
pub(super) const NOW: Instant = Instant::from_nanos(1 << 20);
/// The number of every last request.
pub(super) const LAST: RequestId = RequestId(1);
pub(super) const SEATS: u8 = 3;

/// One node.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Node {
    pub(super) seat: u8,
    pub(super) starts: u8,
    pub(super) machine: Option<Lease>,
    /// What its guardian does for the last process, which is dead.
    pub(super) errand: Option<Errand>,
    pub(super) work: Option<Work>,
    pub(super) guardian: Guardian,
}

/// The work of a holder: what must never run twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Work {
    pub(super) stage: Stage,
    pub(super) token: FencingToken,
    /// It has not died with its guardian.
    pub(super) runs: bool,
    /// When it ends at last, by its node's clock.
    pub(super) until: Instant,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Stage {
    Leading,
    Resigning,
    Deposed,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Guardian {
    Absent,
    Alive,
    Dead,
}

/// What happens to a node by itself.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Act {
    Hear(Asker, Box<Message>),
    Timeout,
    ErrandTimeout,
    Tick(u8),
    Crash,
    Start,
    Drained,
    Resign,
    JobEnds,
    GuardianDies,
}

/// What came of it.
#[derive(Clone, Debug, Default)]
pub(super) struct Doings {
    pub(super) asked: Vec<(Asker, Message)>,
    pub(super) facts: Vec<Fact>,
    pub(super) broken: Option<&'static str>,
    pub(super) told: Vec<String>,
    /// By how much the numbers of an asker's requests are to be moved down.
    pub(super) renumbered: Vec<(Asker, u64)>,
}

/// What the judge and the counters must know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fact {
    Elected(Term),
    Renewed,
    Deposed(Reason),
    Released,
    Violation,
    ErrandDone,
}

pub(super) fn name(seat: u8) -> NodeId {
    NodeId::new(["a", "b", "c"][usize::from(seat)]).expect("a letter is a name")
}

fn ticks(count: u8) -> Duration {
    Duration::from_nanos(u64::from(count))
}

impl Node {
    pub(super) fn new(seat: u8, space: &Space) -> Self {
        let guardian = if space.guardians { Guardian::Alive } else { Guardian::Absent };
        Self { seat, starts: 0, machine: None, errand: None, work: None, guardian }
    }

    fn me(&self) -> Identity {
        Identity::new(name(self.seat), Incarnation { count: u64::from(self.starts), nonce: 0 })
    }

    fn config(&self, space: &Space) -> Config {
        Config {
            me: self.me(),
            address: String::new(),
            duration: ticks(space.duration),
            drift_max: Drift::from_ppm(space.drift_percent * 10_000),
            renew_interval: ticks(space.renew),
            request_timeout: ticks(space.request_timeout),
            // It may look at any time; looking late is being late.
            poll_interval: Duration::ZERO,
            seed: u64::from(self.seat) << 8 | u64::from(self.starts),
        }
    }

    pub(super) fn works(&self) -> bool {
        self.work.is_some_and(|work| work.runs && NOW < work.until)
    }

    /// An act, as it goes.
    pub(super) fn act(&mut self, act: &Act, space: &Space, doings: &mut Doings) {
        let life = Asker::Life(self.starts);
        match act {
            Act::Hear(asker, message) => {
                let input = Input::Message { from: Endpoint::Store, message: Message::clone(message) };
                self.hand(*asker, input, doings);
            }
            Act::Timeout => self.hand(life, Input::Timeout, doings),
            Act::ErrandTimeout => self.hand(Asker::GuardianOf(self.starts), Input::Timeout, doings),
            Act::Resign => self.hand(life, Input::Command(Command::Resign), doings),
            Act::Drained => {
                self.work = None;
                self.hand(life, Input::Command(Command::Drained), doings);
            }
            Act::Tick(by) => self.tick(*by),
            Act::Crash => self.crash(space, doings),
            Act::Start => self.start(space, doings),
            Act::JobEnds => {
                self.work = None;
                let seed = 1 << 16 | u64::from(self.seat) << 8 | u64::from(self.starts);
                let task = Task::ReleaseFor(self.me());
                self.errand = Some(Errand::new(task, ticks(space.duration), Duration::ZERO, seed, NOW));
            }
            Act::GuardianDies => {
                self.guardian = Guardian::Dead;
                self.errand = None;
                self.work = self.work.map(|work| Work { runs: false, ..work });
            }
        }
        self.settle(space, doings);
    }

    fn hand(&mut self, asker: Asker, input: Input<Message>, doings: &mut Doings) {
        let outputs: Vec<Output<Message, ()>> = match asker {
            Asker::Life(starts) if starts == self.starts => {
                self.machine.as_mut().map_or_else(Vec::new, |machine| {
                    machine.handle(NOW, input);
                    std::iter::from_fn(|| machine.poll()).collect()
                })
            }
            Asker::GuardianOf(starts) if starts == self.starts => {
                self.errand.as_mut().map_or_else(Vec::new, |errand| {
                    errand.handle(NOW, input);
                    std::iter::from_fn(|| errand.poll()).collect()
                })
            }
            Asker::Life(_) | Asker::GuardianOf(_) => Vec::new(), // Gone.
        };
        for output in outputs {
            doings.told.push(super::text::effect(&output));
            match output {
                Output::Persist(()) => {}
                Output::Send { message, .. } => self.ask(asker, message, doings),
                Output::Event(event) => self.hear_event(event, doings),
            }
        }
        let done = self.errand.as_ref().and_then(Errand::ending).is_some();
        if done && self.machine.is_none() {
            self.errand = None;
            doings.facts.push(Fact::ErrandDone);
        }
    }

    fn ask(&mut self, asker: Asker, message: Message, doings: &mut Doings) {
        if let Message::CompareAndSet { record: Record { holder: None, token, .. }, .. } = &message {
            doings.facts.push(Fact::Released);
            if self.works() && self.work.is_some_and(|work| work.token == *token) {
                doings.broken = Some("I8");
            }
        }
        doings.asked.push((asker, message));
    }

    fn tick(&mut self, by: u8) {
        let by = ticks(by);
        if let Some(work) = &mut self.work {
            work.until = work.until.before(by);
        }
        let mut earlier = |_, instant: &mut Instant| *instant = instant.before(by);
        if let Some(machine) = &mut self.machine {
            machine.visit_instants(&mut earlier);
        }
        if let Some(errand) = &mut self.errand {
            errand.visit_instants(&mut earlier);
        }
    }

    /// What has passed is all alike, as far as it is, and so are the numbers of requests.
    pub(super) fn settle(&mut self, space: &Space, doings: &mut Doings) {
        self.work = self.work.filter(|work| NOW < work.until);
        let drift = Drift::from_ppm(space.drift_percent * 10_000);
        let longest = drift.lengthen(ticks(space.duration)).max(ticks(space.request_timeout));
        let mut clip = |used, instant: &mut Instant| {
            let floor = match used {
                Use::End => NOW,
                Use::Start => NOW.before(longest),
            };
            *instant = floor.max(*instant);
        };
        if let Some(machine) = &mut self.machine {
            machine.simplify();
            machine.visit_instants(&mut clip);
            let by = machine.last_request().0.saturating_sub(LAST.0);
            doings.renumbered.push((Asker::Life(self.starts), by));
            machine.renumber(LAST);
        }
        if let Some(errand) = &mut self.errand {
            errand.simplify();
            errand.visit_instants(&mut clip);
            let by = errand.last_request().0.saturating_sub(LAST.0);
            doings.renumbered.push((Asker::GuardianOf(self.starts), by));
            errand.renumber(LAST);
        }
    }

    fn crash(&mut self, space: &Space, doings: &mut Doings) {
        self.machine = None;
        match self.guardian {
            Guardian::Alive => {}
            Guardian::Dead => self.work = None,
            // One that stays away is no other than one that is late with everything.
            Guardian::Absent => self.start(space, doings),
        }
    }

    /// A process starts; it first ends what an earlier one has left.
    pub(super) fn start(&mut self, space: &Space, doings: &mut Doings) {
        self.work = None;
        self.errand = None;
        self.starts += 1;
        if self.guardian == Guardian::Dead {
            self.guardian = Guardian::Alive;
        }
        let mut machine = Lease::new(self.config(space), NOW);
        machine.renumber(LAST);
        self.machine = Some(machine);
        self.hand(Asker::Life(self.starts), Input::Command(Command::Campaign), doings);
    }

    fn hear_event(&mut self, event: Event, doings: &mut Doings) {
        match event {
            Event::Elected { term, valid_until, .. } => {
                doings.facts.push(Fact::Elected(term));
                if self.work.is_some_and(|work| work.stage != Stage::Deposed) {
                    doings.broken = Some("contract: elected while it leads");
                }
                let until = self.work.map_or(valid_until, |work| work.until.max(valid_until));
                let token = FencingToken(term.0);
                self.work = Some(Work { stage: Stage::Leading, token, runs: true, until });
                if self.guardian == Guardian::Dead {
                    self.guardian = Guardian::Alive; // A job is started by a guardian.
                }
            }
            Event::Renewed { valid_until } => {
                doings.facts.push(Fact::Renewed);
                match &mut self.work {
                    Some(work) if work.stage == Stage::Leading => work.until = work.until.max(valid_until),
                    Some(_) | None => doings.broken = Some("contract: renewed and does not lead"),
                }
            }
            Event::Resigning(_) => match &mut self.work {
                Some(work) if work.stage == Stage::Leading => work.stage = Stage::Resigning,
                Some(_) | None => doings.broken = Some("contract: told to drain and does not lead"),
            },
            Event::Deposed(reason) => {
                doings.facts.push(Fact::Deposed(reason));
                let in_order = matches!(reason, Reason::Resigned | Reason::Unhealthy);
                match &mut self.work {
                    Some(work) if in_order && work.runs => {
                        doings.broken = Some("contract: gives up before it has drained");
                    }
                    Some(work) => work.stage = Stage::Deposed,
                    None => {} // It has ended by itself.
                }
            }
            Event::Violation(_) => doings.facts.push(Fact::Violation),
            Event::LeaderChanged(_) => {}
        }
    }
}
