//! One node: its process, its disk, its work and its guardian, with all that happens within it.

use primacy_core::election::quorum::{Config, HardState, Message, Quorum};
use primacy_core::finite::{Finite as _, Use};
use primacy_core::{
    Command, Drift, Duration, Endpoint, Event, Evidence, Identity, Incarnation, Input, Instant, NodeId,
    Output, Peer, Protocol as _, Reason, Term,
};

use super::space::Space;

/// What every clock shows, always: all instants are kept by how far they are from it. A tick is a nanosecond to the
/// machines.
pub(super) const NOW: Instant = Instant::from_nanos(1 << 20);

/// The most nodes.
pub(super) const SEATS_MAX: u8 = 4;

/// One node.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Node {
    pub(super) seat: u8,
    /// How often it has started.
    pub(super) starts: u8,
    /// Its process.
    pub(super) machine: Option<Quorum>,
    pub(super) disk: HardState,
    pub(super) work: Option<Work>,
    pub(super) guardian: Guardian,
    /// The guardian has told of the death of the last process.
    pub(super) told: bool,
}

/// The work of a leader: what must never run twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Work {
    pub(super) stage: Stage,
    /// It has not died with its guardian.
    pub(super) runs: bool,
    /// When it ends at last, by its node's clock.
    pub(super) until: Instant,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Stage {
    Leading,
    Resigning,
    /// The machine leads no more; the work is being ended.
    Deposed,
}

/// The guardian of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Guardian {
    /// There is none: the work is in the node's own process.
    Absent,
    Alive,
    Dead,
}

/// What happens to a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Act {
    /// A message comes; its number.
    Hear(u32),
    /// The deadline has come.
    Timeout,
    /// Its clock moves by this many ticks.
    Tick(u8),
    /// Its process ends.
    Crash,
    /// Its process starts, and the last one before has ended.
    Start,
    /// Its work has drained.
    Drained,
    Resign,
    Transfer(u8),
    /// A connection with this life of that node is made.
    Connected(u8, u8),
    Disconnected(u8),
    /// The guardian of that life of that node tells of its death.
    Died(u8, u8),
    /// Its guardian ends the job that a dead process has left.
    JobEnds,
    GuardianDies,
}

/// What came of it, as others can see it.
#[derive(Clone, Debug, Default)]
pub(super) struct Doings {
    pub(super) sent: Vec<(NodeId, Message)>,
    pub(super) facts: Vec<Fact>,
    /// What an effect itself has broken.
    pub(super) broken: Option<&'static str>,
    /// The effects, for people.
    pub(super) told: Vec<String>,
}

/// What the judge remembers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fact {
    Votes { term: Term, candidate: Identity },
    Leads { term: Term },
    Elected { term: Term },
    Renewed,
    Deposed(Reason),
    Resigned,
    Refuses,
}

pub(super) fn name(seat: u8) -> NodeId {
    NodeId::new(["a", "b", "c", "d"][usize::from(seat)]).expect("a letter is a name")
}

pub(super) fn identity(seat: u8, starts: u8) -> Identity {
    Identity::new(name(seat), Incarnation { count: u64::from(starts), nonce: 0 })
}

/// The seat of a node of this name.
pub(super) fn seat(node: NodeId) -> u8 {
    (0..SEATS_MAX).find(|&seat| name(seat) == node).expect("one of the nodes")
}

fn ticks(count: u8) -> Duration {
    Duration::from_nanos(u64::from(count))
}

impl Node {
    /// A node that has never started.
    pub(super) fn new(seat: u8, space: &Space) -> Self {
        let guardian = if space.guardians { Guardian::Alive } else { Guardian::Absent };
        Self { seat, starts: 0, machine: None, disk: HardState::default(), work: None, guardian, told: false }
    }

    pub(super) fn me(&self) -> Identity {
        identity(self.seat, self.starts)
    }

    fn config(&self, space: &Space) -> Config {
        Config {
            me: self.me(),
            voters: (0..space.voters).map(name).collect(),
            safety: space.safety,
            heartbeat_interval: ticks(space.timers.heartbeat),
            miss_count: u32::from(space.timers.misses),
            promise_duration: ticks(space.timers.promise),
            initial_wait: Duration::ZERO,
            random_wait_max: Duration::ZERO,
            round_timeout: ticks(space.timers.round),
            stagger: Duration::ZERO,
            drift_max: Drift::from_ppm(space.drift_percent * 10_000),
            priority: 0,
            witness: self.seat >= space.candidates,
            pre_vote: space.pre_vote,
            sticky: true,
            seed: 0,
        }
    }

    /// What a machine is handed for an act, if it is one that a machine sees.
    pub(super) fn input(
        act: Act,
        message: Option<(NodeId, Message)>,
        space: &Space,
    ) -> Option<Input<Message>> {
        Some(match act {
            Act::Hear(_) => {
                let (from, message) = message?;
                Input::Message { from: Endpoint::Node(from), message }
            }
            Act::Timeout => Input::Timeout,
            Act::Drained => Input::Command(Command::Drained),
            Act::Resign => Input::Command(Command::Resign),
            Act::Transfer(to) => Input::Command(Command::Transfer(name(to))),
            Act::Connected(seat, starts) => Input::Evidence(Evidence::Connected(Peer {
                identity: identity(seat, starts),
                priority: 0,
                witness: seat >= space.candidates,
                round_trip: Duration::ZERO,
            })),
            Act::Disconnected(seat) => Input::Evidence(Evidence::Disconnected(name(seat))),
            Act::Died(seat, starts) => Input::Evidence(Evidence::Died(identity(seat, starts))),
            Act::Tick(_) | Act::Crash | Act::Start | Act::JobEnds | Act::GuardianDies => return None,
        })
    }

    /// Its clock moves on.
    pub(super) fn tick(&mut self, by: u8, space: &Space) {
        let by = ticks(by);
        if let Some(work) = &mut self.work {
            work.until = work.until.before(by);
        }
        if let Some(machine) = &mut self.machine {
            machine.visit_instants(&mut |_, instant| *instant = instant.before(by));
        }
        self.settle(space);
    }

    /// What has passed is all alike, as far as it is.
    pub(super) fn settle(&mut self, space: &Space) {
        self.work = self.work.filter(|work| NOW < work.until);
        let timers = space.timers;
        let longest = timers.promise.max(timers.round).max(timers.heartbeat * timers.misses);
        if let Some(machine) = &mut self.machine {
            machine.simplify();
            machine.visit_instants(&mut |used, instant| {
                let floor = match used {
                    Use::End => NOW,
                    Use::Start => NOW.before(ticks(longest)),
                };
                *instant = floor.max(*instant);
            });
        }
    }

    /// Whether its work may be running.
    pub(super) fn works(&self) -> bool {
        self.work.is_some_and(|work| work.runs && NOW < work.until)
    }

    /// The guardian ends the job of a dead process, and then tells of the death.
    pub(super) fn end_job(&mut self) {
        self.work = None;
        self.told = true;
    }

    /// Its process ends. Without a guardian the work is in it.
    pub(super) fn crash(&mut self) {
        self.machine = None;
        if self.guardian != Guardian::Alive {
            self.work = None;
        }
    }

    /// A process starts; it first ends what an earlier one has left.
    pub(super) fn start(&mut self, space: &Space, doings: &mut Doings) {
        self.work = None;
        self.told = false;
        self.starts += 1;
        if self.guardian == Guardian::Dead {
            self.guardian = Guardian::Alive;
        }
        let machine = Quorum::new(self.config(space), self.disk, NOW);
        self.machine = Some(machine);
        while let Some(output) = self.machine.as_mut().and_then(Quorum::poll) {
            self.perform(output, doings);
        }
        if let Some(machine) = &mut self.machine {
            machine.handle(NOW, Input::Command(Command::Campaign));
        }
        while let Some(output) = self.machine.as_mut().and_then(Quorum::poll) {
            self.perform(output, doings);
        }
    }

    /// One effect.
    pub(super) fn perform(&mut self, output: Output<Message, HardState>, doings: &mut Doings) {
        match output {
            Output::Persist(hard) => self.disk = hard,
            Output::Send { to: Endpoint::Node(to), message } => {
                super::judge::note_sent(self, to, &message, doings);
                doings.sent.push((to, message));
            }
            Output::Send { to: Endpoint::Store, .. } => {} // This election knows no store.
            Output::Event(event) => self.hear_event(event, doings),
        }
    }

    /// What the application is told, and what its work does then.
    fn hear_event(&mut self, event: Event, doings: &mut Doings) {
        let stage = self.work.map(|work| work.stage);
        match event {
            Event::Elected { term, valid_until, .. } => {
                doings.facts.push(Fact::Elected { term });
                let still = self.work.map_or(valid_until, |work| work.until.max(valid_until));
                self.work = Some(Work { stage: Stage::Leading, runs: true, until: still });
                if self.guardian == Guardian::Dead {
                    self.guardian = Guardian::Alive; // A job is started by a guardian.
                }
                if matches!(stage, Some(Stage::Leading | Stage::Resigning)) {
                    doings.broken = Some("contract: elected while it leads");
                }
            }
            Event::Renewed { valid_until } => {
                doings.facts.push(Fact::Renewed);
                let Some(work) = self.work.as_mut().filter(|work| work.stage == Stage::Leading) else {
                    doings.broken = Some("contract: renewed and does not lead");
                    return;
                };
                work.until = work.until.max(valid_until);
            }
            Event::Resigning(_) => match &mut self.work {
                Some(work) if work.stage == Stage::Leading => work.stage = Stage::Resigning,
                Some(_) | None => doings.broken = Some("contract: told to drain and does not lead"),
            },
            Event::Deposed(reason) => {
                doings.facts.push(Fact::Deposed(reason));
                let in_order =
                    matches!(reason, Reason::Resigned | Reason::Transferred(_) | Reason::Unhealthy);
                match &mut self.work {
                    Some(work) if in_order && work.runs => {
                        doings.broken = Some("contract: gives up before it has drained")
                    }
                    Some(work) => work.stage = Stage::Deposed,
                    None => {} // It has ended by itself.
                }
            }
            Event::LeaderChanged(_) | Event::Violation(_) => {}
        }
    }
}
