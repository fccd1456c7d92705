//! One candidate: its process, work and guardian, and all actions on them.

use primacy_core::election::lease::RequestId;
use primacy_core::state_reduction::{StateReduction as _, Use};
use primacy_core::{
    Command, Drift, Endpoint, Event, FencingToken, Identity, Incarnation, Input, Instant, NodeId, Output,
    Protocol as _, Reason, Term,
};

use super::bounds::StoreBounds;
use super::channel::Asker;
use super::store_kind::{GuardianMachine as _, Machine as _, StoreKind};
use crate::model::now::{NOW, ticks};
use crate::model::work::{Guardian, Works};

/// The fixed numbers of the requests under way, in place of their real ones.
pub(super) const NUMBERS: [RequestId; 2] = [RequestId(1), RequestId(2)];
pub(super) const UNWAITED: RequestId = RequestId(0);
pub(super) const SEATS: u8 = 3;

/// One node.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Node<K: StoreKind> {
    pub(super) seat: u8,
    pub(super) starts: u8,
    pub(super) machine: Option<K::Machine>,
    /// The guardian's machine for the last process, which is dead.
    pub(super) guardian: Option<K::Guardian>,
    pub(super) works: Works,
}

/// An action on a node.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum StoreAction<M> {
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

/// The results of an action.
#[derive(Clone, Debug)]
pub(super) struct ContenderResults<M> {
    pub(super) asked: Vec<(Asker, M)>,
    pub(super) facts: Vec<Fact>,
    pub(super) broken: Option<&'static str>,
    pub(super) lines: Vec<String>,
    /// The real numbers of a sender's requests under way, which the fixed ones replace.
    pub(super) renumbered: Vec<(Asker, [Option<RequestId>; 2])>,
}

impl<M> Default for ContenderResults<M> {
    /// No results.
    fn default() -> Self {
        let (asked, facts, lines, renumbered) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        Self { asked, facts, broken: None, lines, renumbered }
    }
}

/// A fact for the judge and the coverage marks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fact {
    Elected(Term),
    Renewed,
    Deposed(Reason),
    /// The token of the released leadership, if the request names it.
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

    /// Performs an action.
    pub(super) fn action(
        &mut self,
        action: &StoreAction<K::Message>,
        bounds: &StoreBounds,
        results: &mut ContenderResults<K::Message>,
    ) {
        let life = Asker::Process(self.starts);
        match action {
            StoreAction::Hear(asker, message) => {
                let input = Input::Message { from: Endpoint::Store, message: K::Message::clone(message) };
                self.hand(*asker, input, results);
            }
            StoreAction::Timeout => self.hand(life, Input::Timeout, results),
            StoreAction::GuardianTimeout => {
                self.hand(Asker::GuardianOf(self.starts), Input::Timeout, results)
            }
            StoreAction::Resign => self.hand(life, Input::Command(Command::Resign), results),
            StoreAction::Drained => {
                self.works.drained();
                self.hand(life, Input::Command(Command::Drained), results);
            }
            StoreAction::Tick(by) => self.tick(*by),
            StoreAction::Crash => self.crash(bounds, results),
            StoreAction::Start => self.start(bounds, results),
            StoreAction::JobExits => {
                self.works.exit();
                results.facts.push(Fact::JobExited);
            }
            StoreAction::JobEnds => {
                self.works.end();
                let seed = 1 << 16 | u64::from(self.seat) << 8 | u64::from(self.starts);
                self.guardian = Some(K::guardian(self.me(), seed, bounds));
            }
            StoreAction::GuardianDies => {
                self.works.guardian_dies();
                self.guardian = None;
            }
        }
        self.settle(bounds, results);
    }

    fn hand(&mut self, asker: Asker, input: Input<K::Message>, results: &mut ContenderResults<K::Message>) {
        let outputs: Vec<Output<K::Message, ()>> = match asker {
            Asker::Process(starts) if starts == self.starts => {
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
            Asker::Process(_) | Asker::GuardianOf(_) => Vec::new(), // Gone.
        };
        for output in outputs {
            results.lines.push(super::display::effect::<K>(&output));
            match output {
                Output::Persist(()) => {}
                Output::Send { message, .. } => self.ask(asker, message, results),
                Output::Event(event) => self.hear_event(&event, results),
            }
        }
        let ending = self.guardian.as_ref().and_then(K::Guardian::ending);
        if ending.is_some() && self.machine.is_none() {
            self.guardian = None;
        }
        if ending == Some(true) {
            results.facts.push(Fact::GuardianDone);
        }
    }

    fn ask(&mut self, asker: Asker, message: K::Message, results: &mut ContenderResults<K::Message>) {
        if let Some(token) = K::lets_go(&message) {
            results.facts.push(Fact::Released(token));
            // A node that releases a leadership also releases its earlier ones.
            if self.works.run() {
                results.broken = results.broken.or(Some("I8"));
            }
        }
        results.asked.push((asker, message));
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

    /// Clamps past instants and renumbers requests, so that all equivalent states are equal.
    pub(super) fn settle(&mut self, bounds: &StoreBounds, results: &mut ContenderResults<K::Message>) {
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
            results.renumbered.push((Asker::Process(self.starts), machine.under_way()));
            machine.renumber(NUMBERS);
        }
        if let Some(guardian) = &mut self.guardian {
            guardian.simplify();
            guardian.visit_instants(&mut clip);
            results.renumbered.push((Asker::GuardianOf(self.starts), [Some(guardian.last_request()), None]));
            guardian.renumber(NUMBERS[0]);
        }
    }

    fn crash(&mut self, bounds: &StoreBounds, results: &mut ContenderResults<K::Message>) {
        self.machine = None;
        self.works.crash();
        if self.works.guardian == Guardian::Absent {
            // A process that stays down is equivalent to one that is late with everything.
            self.start(bounds, results);
        }
    }

    /// Starts a process, which first ends the work of the previous one.
    pub(super) fn start(&mut self, bounds: &StoreBounds, results: &mut ContenderResults<K::Message>) {
        self.works.start();
        self.guardian = None;
        self.starts += 1;
        let seed = u64::from(self.seat) << 8 | u64::from(self.starts);
        let mut machine = K::machine(self.me(), seed, bounds);
        machine.renumber(NUMBERS);
        self.machine = Some(machine);
        self.hand(Asker::Process(self.starts), Input::Command(Command::Campaign), results);
    }

    fn hear_event(&mut self, event: &Event, results: &mut ContenderResults<K::Message>) {
        results.facts.extend(match *event {
            Event::Elected { term, .. } => Some(Fact::Elected(term)),
            Event::Renewed { .. } => Some(Fact::Renewed),
            Event::Deposed(reason) => Some(Fact::Deposed(reason)),
            Event::Violation(_) => Some(Fact::Violation),
            Event::Resigning(_) | Event::LeaderChanged(_) => None,
        });
        results.broken = results.broken.or(self.works.hear(event));
    }
}
