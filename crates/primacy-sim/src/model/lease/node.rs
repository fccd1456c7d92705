//! One candidate: its process, its work and its guardian, with all that happens within it.

use primacy_core::election::errand::{Ending, Errand, Task};
use primacy_core::election::lease::{Config, Lease, Message, Record, RequestId};
use primacy_core::finite::{Finite, Use};
use primacy_core::{
    Command, Drift, Endpoint, Event, FencingToken, Identity, Incarnation, Input, Instant, NodeId, Output,
    Protocol, Reason, Term,
};

use super::cell::Asker;
use super::space::Space;
use crate::model::now::{NOW, ticks};
use crate::model::work::{Guardian, Works};

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
    pub(super) works: Works,
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
    /// The job ends by itself.
    JobExits,
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
    /// The token of the leadership that is let go of.
    Released(FencingToken),
    /// Its job ends by itself.
    JobExited,
    Violation,
    /// What the guardian went out for is done: the record was released by it.
    ErrandDone,
}

pub(super) fn name(seat: u8) -> NodeId {
    NodeId::new(["a", "b", "c"][usize::from(seat)]).expect("a letter is a name")
}

impl Node {
    pub(super) fn new(seat: u8, space: &Space) -> Self {
        Self { seat, starts: 0, machine: None, errand: None, works: Works::new(space.guardians) }
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
            poll_interval: ticks(space.poll),
            seed: u64::from(self.seat) << 8 | u64::from(self.starts),
        }
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
                self.works.drained();
                self.hand(life, Input::Command(Command::Drained), doings);
            }
            Act::Tick(by) => self.tick(*by),
            Act::Crash => self.crash(space, doings),
            Act::Start => self.start(space, doings),
            Act::JobExits => {
                self.works.exit();
                doings.facts.push(Fact::JobExited);
            }
            Act::JobEnds => {
                self.works.end();
                let seed = 1 << 16 | u64::from(self.seat) << 8 | u64::from(self.starts);
                let task = Task::ReleaseFor(self.me());
                self.errand = Some(Errand::new(task, ticks(space.duration), ticks(space.poll), seed, NOW));
            }
            Act::GuardianDies => {
                self.works.guardian_dies();
                self.errand = None;
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
                Output::Event(event) => self.hear_event(&event, doings),
            }
        }
        let ending = self.errand.as_ref().and_then(Errand::ending);
        if ending.is_some() && self.machine.is_none() {
            self.errand = None;
        }
        if ending == Some(Ending::Done) {
            doings.facts.push(Fact::ErrandDone);
        }
    }

    fn ask(&mut self, asker: Asker, message: Message, doings: &mut Doings) {
        if let Message::CompareAndSet { record: Record { holder: None, token, .. }, .. } = &message {
            doings.facts.push(Fact::Released(*token));
            // Who lets go of a leadership lets go of what guarded the earlier ones, too.
            if self.works.run() {
                doings.broken = doings.broken.or(Some("I8"));
            }
        }
        doings.asked.push((asker, message));
    }

    fn tick(&mut self, by: u8) {
        let by = ticks(by);
        self.works.tick(by);
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
        self.works.settle();
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
        self.works.crash();
        if self.works.guardian == Guardian::Absent {
            // One that stays away is no other than one that is late with everything.
            self.start(space, doings);
        }
    }

    /// A process starts; it first ends what an earlier one has left.
    pub(super) fn start(&mut self, space: &Space, doings: &mut Doings) {
        self.works.start();
        self.errand = None;
        self.starts += 1;
        let mut machine = Lease::new(self.config(space), NOW);
        machine.renumber(LAST);
        self.machine = Some(machine);
        self.hand(Asker::Life(self.starts), Input::Command(Command::Campaign), doings);
    }

    fn hear_event(&mut self, event: &Event, doings: &mut Doings) {
        doings.facts.extend(match *event {
            Event::Elected { term, .. } => Some(Fact::Elected(term)),
            Event::Renewed { .. } => Some(Fact::Renewed),
            Event::Deposed(reason) => Some(Fact::Deposed(reason)),
            Event::Violation(_) => Some(Fact::Violation),
            Event::Resigning(_) | Event::LeaderChanged(_) => None,
        });
        doings.broken = doings.broken.or(self.works.hear(event));
    }
}
