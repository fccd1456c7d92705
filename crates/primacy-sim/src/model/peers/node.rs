//! One node: its process, disk, work and guardian, and all actions on them.

use primacy_core::election::quorum::HardState;
use primacy_core::state_reduction::Use;
use primacy_core::{
    Command, Duration, Endpoint, Event, Evidence, Identity, Incarnation, Input, NodeId, Output, Peer, Reason,
    Term,
};

use super::bounds::PeerBounds;
use super::machine::Machine;
use crate::model::now::{NOW, ticks};
use crate::model::work::Works;

/// The maximum number of nodes.
pub(super) const SEATS_MAX: u8 = 4;

/// One node.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Node<M> {
    pub(super) seat: u8,
    /// The number of its starts.
    pub(super) starts: u8,
    /// Its process.
    pub(super) machine: Option<M>,
    pub(super) disk: HardState,
    pub(super) works: Works,
    /// True if the guardian has reported the death of the last process.
    pub(super) death_reported: bool,
}

/// An action on a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum NodeAction {
    /// A message arrives, by its number.
    Hear(u32),
    /// The deadline is due.
    Timeout,
    /// Its clock moves by this many ticks.
    Tick(u8),
    /// Its process ends.
    Crash,
    /// Its process starts; an earlier one has ended.
    Start,
    /// Its work has drained.
    Drained,
    /// Its job ends by itself.
    JobExits,
    Resign,
    Transfer(u8),
    /// A connection with this process of that node is made.
    Connected(u8, u8),
    Disconnected(u8),
    /// The guardian of that process of that node reports its death.
    Died(u8, u8),
    /// Its guardian ends the job that a dead process has left.
    JobEnds,
    GuardianDies,
}

/// The results of an action that are visible outside the node.
#[derive(Clone, Debug)]
pub(super) struct NodeResults<T> {
    pub(super) sent: Vec<(NodeId, T)>,
    pub(super) facts: Vec<Fact>,
    /// The invariant that an effect itself has broken.
    pub(super) broken: Option<&'static str>,
    /// The effects, for people.
    pub(super) lines: Vec<String>,
}

impl<T> Default for NodeResults<T> {
    fn default() -> Self {
        Self { sent: Vec::new(), facts: Vec::new(), broken: None, lines: Vec::new() }
    }
}

/// A fact that the judge checks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fact {
    Votes {
        term: Term,
        candidate: Identity,
    },
    Leads {
        term: Term,
        /// True if the leader has voted for itself.
        by_own_vote: bool,
    },
    Elected {
        term: Term,
        over_earlier_work: bool,
    },
    /// Its job ends by itself.
    JobExited,
    Renewed,
    Deposed(Reason),
    Resigned,
    Refuses,
}

impl Fact {
    /// Returns the term of the fact, if the judge records one.
    pub(super) const fn term(self) -> Option<Term> {
        match self {
            Self::Votes { term, .. } | Self::Leads { term, .. } | Self::Elected { term, .. } => Some(term),
            Self::JobExited | Self::Renewed | Self::Deposed(_) | Self::Resigned | Self::Refuses => None,
        }
    }
}

pub(super) fn name(seat: u8) -> NodeId {
    NodeId::new(["a", "b", "c", "d"][usize::from(seat)]).expect("a letter is a name")
}

pub(super) fn identity(seat: u8, starts: u8) -> Identity {
    Identity::new(name(seat), Incarnation { count: u64::from(starts), nonce: 0 })
}

/// Returns the seat of the node with this name.
pub(super) fn seat(node: NodeId) -> u8 {
    (0..SEATS_MAX).find(|&seat| name(seat) == node).expect("one of the nodes")
}

impl<M: Machine> Node<M> {
    /// A node that has never started.
    pub(super) fn new(seat: u8, bounds: &PeerBounds) -> Self {
        let works = Works::new(bounds.guardians);
        Self { seat, starts: 0, machine: None, disk: HardState::default(), works, death_reported: false }
    }

    pub(super) fn me(&self) -> Identity {
        identity(self.seat, self.starts)
    }

    /// Returns the machine's input for an action, if the action reaches the machine.
    pub(super) fn input(
        action: NodeAction,
        message: Option<(NodeId, M::Message)>,
        bounds: &PeerBounds,
    ) -> Option<Input<M::Message>> {
        Some(match action {
            NodeAction::Hear(_) => {
                let (from, message) = message?;
                Input::Message { from: Endpoint::Node(from), message }
            }
            NodeAction::Timeout => Input::Timeout,
            NodeAction::Drained => Input::Command(Command::Drained),
            NodeAction::Resign => Input::Command(Command::Resign),
            NodeAction::Transfer(to) => Input::Command(Command::Transfer(name(to))),
            NodeAction::Connected(seat, starts) => Input::Evidence(Evidence::Connected(Peer {
                identity: identity(seat, starts),
                priority: 0,
                witness: seat >= bounds.candidates,
                round_trip: Duration::ZERO,
            })),
            NodeAction::Disconnected(seat) => Input::Evidence(Evidence::Disconnected(name(seat))),
            NodeAction::Died(seat, starts) => Input::Evidence(Evidence::Died(identity(seat, starts))),
            NodeAction::Tick(_) | NodeAction::Crash | NodeAction::Start => return None,
            NodeAction::JobExits | NodeAction::JobEnds | NodeAction::GuardianDies => return None,
        })
    }

    /// Moves its clock.
    pub(super) fn tick(&mut self, by: u8, bounds: &PeerBounds) {
        let by = ticks(by);
        self.works.tick(by);
        if let Some(machine) = &mut self.machine {
            machine.visit_instants(&mut |_, instant| *instant = instant.before(by));
        }
        self.settle(bounds);
    }

    /// Clamps past instants, so that all equivalent ones are equal.
    pub(super) fn settle(&mut self, bounds: &PeerBounds) {
        self.works.settle();
        let timers = bounds.timers;
        let longest = timers.promise.max(timers.round).max(timers.heartbeat * timers.misses);
        if let Some(machine) = &mut self.machine {
            machine.simplify();
            machine.visit_instants(&mut |used, instant| {
                let floor = match used {
                    Use::End => NOW,
                    Use::Start | Use::Asked => NOW.before(ticks(longest)),
                };
                *instant = floor.max(*instant);
            });
        }
    }

    /// Ends the job of a dead process, as its guardian, which then reports the death.
    pub(super) fn end_job(&mut self) {
        self.works.end();
        self.death_reported = true;
    }

    /// Ends its process.
    pub(super) fn crash(&mut self) {
        self.machine = None;
        self.works.crash();
    }

    /// Starts a process, which first ends the work of the previous one.
    pub(super) fn start(&mut self, bounds: &PeerBounds, results: &mut NodeResults<M::Message>) {
        self.works.start();
        self.death_reported = false;
        self.starts += 1;
        self.machine = Some(M::begin(self.me(), bounds, self.disk));
        while let Some(output) = self.machine.as_mut().and_then(M::poll) {
            self.perform(output, results);
        }
        if let Some(machine) = &mut self.machine {
            machine.handle(NOW, Input::Command(Command::Campaign));
        }
        while let Some(output) = self.machine.as_mut().and_then(M::poll) {
            self.perform(output, results);
        }
    }

    /// Performs one effect.
    pub(super) fn perform(
        &mut self,
        output: Output<M::Message, HardState>,
        results: &mut NodeResults<M::Message>,
    ) {
        match output {
            Output::Persist(hard) => self.disk = hard,
            Output::Send { to: Endpoint::Node(to), message } => {
                let fact = M::fact(&message, to);
                if fact == Some(Fact::Resigned) && self.works.run() {
                    results.broken = results.broken.or(Some("I8"));
                }
                results.facts.extend(fact);
                results.sent.push((to, message));
            }
            Output::Send { to: Endpoint::Store | Endpoint::Client, .. } => {} // This election knows neither.
            Output::Event(event) => self.hear_event(&event, results),
        }
    }

    /// Records an event for the application, and its effect on the work.
    fn hear_event(&mut self, event: &Event, results: &mut NodeResults<M::Message>) {
        results.facts.extend(match *event {
            Event::Elected { term, .. } => Some(Fact::Elected { term, over_earlier_work: self.works.run() }),
            Event::Renewed { .. } => Some(Fact::Renewed),
            Event::Deposed(reason) => Some(Fact::Deposed(reason)),
            Event::Resigning(_) | Event::LeaderChanged(_) | Event::Violation(_) => None,
        });
        results.broken = results.broken.or(self.works.hear(event));
    }
}
