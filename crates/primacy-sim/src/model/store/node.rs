//! One candidate: its process, its work and its guardian, with all that happens within it.

use primacy_core::election::lease::RequestId;
use primacy_core::finite::{Finite as _, Use};
use primacy_core::{
    Command, Drift, Endpoint, Event, FencingToken, Identity, Incarnation, Input, Instant, NodeId, Output,
    Protocol as _, Reason, Term,
};

use super::bounds::StoreBounds;
use super::link::Asker;
use super::store_kind::{GuardianMachine as _, Machine as _, StoreKind};
use crate::model::now::{NOW, ticks};
use crate::model::work::{Guardian, Works};

/// The fixed numbers of the requests under way, and the number of all others.
pub(super) const NUMBERS: [RequestId; 2] = [RequestId(1), RequestId(2)];
pub(super) const UNWAITED: RequestId = RequestId(0);
pub(super) const SEATS: u8 = 3;

/// One node.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Node<K: StoreKind> {
    pub(super) seat: u8,
    pub(super) starts: u8,
    pub(super) machine: Option<K::Machine>,
    /// The machine of its guardian for the last process, which is dead.
    pub(super) guardian: Option<K::Guardian>,
    pub(super) works: Works,
}

/// An act on a node.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Act<M> {
    Hear(Asker, Box<M>),
    Timeout,
    GuardianTimeout,
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

/// The results of an act.
#[derive(Clone, Debug)]
pub(super) struct Doings<M> {
    pub(super) asked: Vec<(Asker, M)>,
    pub(super) facts: Vec<Fact>,
    pub(super) broken: Option<&'static str>,
    pub(super) told: Vec<String>,
    /// The numbers that an asker's requests under way had, before they got their fixed ones.
    pub(super) renumbered: Vec<(Asker, [Option<RequestId>; 2])>,
}

impl<M> Default for Doings<M> {
    /// No results.
    fn default() -> Self {
        let (asked, facts, told, renumbered) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        Self { asked, facts, broken: None, told, renumbered }
    }
}

/// A fact for the judge and the marks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fact {
    Elected(Term),
    Renewed,
    Deposed(Reason),
    /// The token of the released leadership, where the request names it.
    Released(Option<FencingToken>),
    /// Its job ends by itself.
    JobExited,
    Violation,
    /// The guardian has released the lead of the dead process.
    GuardianDone,
}

pub(super) fn name(seat: u8) -> NodeId {
    NodeId::new(["a", "b", "c"][usize::from(seat)]).expect("a letter is a name")
}

impl<K: StoreKind> Node<K> {
    pub(super) fn new(seat: u8, bounds: &StoreBounds) -> Self {
        Self { seat, starts: 0, machine: None, guardian: None, works: Works::new(bounds.guardians) }
    }

    fn me(&self) -> Identity {
        Identity::new(name(self.seat), Incarnation { count: u64::from(self.starts), nonce: 0 })
    }

    /// Performs an act.
    pub(super) fn act(
        &mut self,
        act: &Act<K::Message>,
        bounds: &StoreBounds,
        doings: &mut Doings<K::Message>,
    ) {
        let life = Asker::Life(self.starts);
        match act {
            Act::Hear(asker, message) => {
                let input = Input::Message { from: Endpoint::Store, message: K::Message::clone(message) };
                self.hand(*asker, input, doings);
            }
            Act::Timeout => self.hand(life, Input::Timeout, doings),
            Act::GuardianTimeout => self.hand(Asker::GuardianOf(self.starts), Input::Timeout, doings),
            Act::Resign => self.hand(life, Input::Command(Command::Resign), doings),
            Act::Drained => {
                self.works.drained();
                self.hand(life, Input::Command(Command::Drained), doings);
            }
            Act::Tick(by) => self.tick(*by),
            Act::Crash => self.crash(bounds, doings),
            Act::Start => self.start(bounds, doings),
            Act::JobExits => {
                self.works.exit();
                doings.facts.push(Fact::JobExited);
            }
            Act::JobEnds => {
                self.works.end();
                let seed = 1 << 16 | u64::from(self.seat) << 8 | u64::from(self.starts);
                self.guardian = Some(K::guardian(self.me(), seed, bounds));
            }
            Act::GuardianDies => {
                self.works.guardian_dies();
                self.guardian = None;
            }
        }
        self.settle(bounds, doings);
    }

    fn hand(&mut self, asker: Asker, input: Input<K::Message>, doings: &mut Doings<K::Message>) {
        let outputs: Vec<Output<K::Message, ()>> = match asker {
            Asker::Life(starts) if starts == self.starts => {
                self.machine.as_mut().map_or_else(Vec::new, |machine| {
                    machine.handle(NOW, input);
                    std::iter::from_fn(|| machine.poll()).collect()
                })
            }
            Asker::GuardianOf(starts) if starts == self.starts => {
                self.guardian.as_mut().map_or_else(Vec::new, |guardian| {
                    guardian.handle(NOW, input);
                    std::iter::from_fn(|| guardian.poll()).collect()
                })
            }
            Asker::Life(_) | Asker::GuardianOf(_) => Vec::new(), // Gone.
        };
        for output in outputs {
            doings.told.push(super::display::effect::<K>(&output));
            match output {
                Output::Persist(()) => {}
                Output::Send { message, .. } => self.ask(asker, message, doings),
                Output::Event(event) => self.hear_event(&event, doings),
            }
        }
        let ending = self.guardian.as_ref().and_then(K::Guardian::ending);
        if ending.is_some() && self.machine.is_none() {
            self.guardian = None;
        }
        if ending == Some(true) {
            doings.facts.push(Fact::GuardianDone);
        }
    }

    fn ask(&mut self, asker: Asker, message: K::Message, doings: &mut Doings<K::Message>) {
        if let Some(token) = K::lets_go(&message) {
            doings.facts.push(Fact::Released(token));
            // A node that releases a leadership also releases the guards of the earlier ones.
            if self.works.run() {
                doings.broken = doings.broken.or(Some("I8"));
            }
        }
        doings.asked.push((asker, message));
    }

    fn tick(&mut self, by: u8) {
        let by = ticks(by).times(K::TICK);
        self.works.tick(by);
        let mut earlier = |_, instant: &mut Instant| *instant = instant.before(by);
        if let Some(machine) = &mut self.machine {
            machine.visit_instants(&mut earlier);
        }
        if let Some(guardian) = &mut self.guardian {
            guardian.visit_instants(&mut earlier);
        }
    }

    /// Makes all past instants alike, as far as they are, and also the numbers of requests.
    pub(super) fn settle(&mut self, bounds: &StoreBounds, doings: &mut Doings<K::Message>) {
        self.works.settle();
        let drift = Drift::from_ppm(bounds.drift_percent * 10_000);
        let longest =
            drift.lengthen(ticks(bounds.duration)).max(ticks(bounds.request_timeout)).times(K::TICK);
        let asked = ticks(bounds.request_timeout).times(K::TICK);
        let mut clip = |used, instant: &mut Instant| {
            let floor = match used {
                Use::End => NOW,
                Use::Start => NOW.before(longest),
                Use::Asked => NOW.before(asked),
            };
            *instant = floor.max(*instant);
        };
        if let Some(machine) = &mut self.machine {
            machine.simplify();
            machine.visit_instants(&mut clip);
            doings.renumbered.push((Asker::Life(self.starts), machine.under_way()));
            machine.renumber(NUMBERS);
        }
        if let Some(guardian) = &mut self.guardian {
            guardian.simplify();
            guardian.visit_instants(&mut clip);
            doings.renumbered.push((Asker::GuardianOf(self.starts), [Some(guardian.last_request()), None]));
            guardian.renumber(NUMBERS[0]);
        }
    }

    fn crash(&mut self, bounds: &StoreBounds, doings: &mut Doings<K::Message>) {
        self.machine = None;
        self.works.crash();
        if self.works.guardian == Guardian::Absent {
            // A process that stays away is no different from one that is late with everything.
            self.start(bounds, doings);
        }
    }

    /// Starts a process, which first ends the work of an earlier one.
    pub(super) fn start(&mut self, bounds: &StoreBounds, doings: &mut Doings<K::Message>) {
        self.works.start();
        self.guardian = None;
        self.starts += 1;
        let seed = u64::from(self.seat) << 8 | u64::from(self.starts);
        let mut machine = K::machine(self.me(), seed, bounds);
        machine.renumber(NUMBERS);
        self.machine = Some(machine);
        self.hand(Asker::Life(self.starts), Input::Command(Command::Campaign), doings);
    }

    fn hear_event(&mut self, event: &Event, doings: &mut Doings<K::Message>) {
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
