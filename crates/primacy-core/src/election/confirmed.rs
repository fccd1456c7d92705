//! Nominate, then confirm: one election names the node that should lead, and another one elects it.
//!
//! The nomination may be any election among peers, an advisory one too; the confirmation is a
//! [`quorum`](super::quorum), or a [`lease`](super::lease) over a store. The leader, its token and its `valid_until`
//! are those of the confirmation.
//!
//! Assumes   what the confirmation assumes, for safety; what the nomination assumes, for the right one to lead.
//! Promises  what the confirmation promises, whatever the nomination does: that can only choose the candidate.
//! Costs     the messages of both. A change of leader: one after the other.
//!
//! A node campaigns in the confirmation for as long as it is nominated. If the nomination moves to another node and
//! stays there, the leader hands over in order: it drains, and only then may the other one lead. A nomination that
//! flaps moves nothing. If there is no leader for too long, because the nominee cannot be confirmed or there is no
//! nominee, all nodes campaign; so a failed nomination delays the election and does not prevent it. The leader does not
//! hand over to a nominee that failed to be confirmed.

use alloc::collections::VecDeque;
use core::fmt;
use core::hash::{Hash, Hasher};

use crate::id::NodeId;
use crate::protocol::{Command, Endpoint, Event, Input, Output, Protocol};
use crate::state_reduction::{StateReduction, Use};
use crate::time::{Duration, Instant};

/// The default of [`Config::damping`], in heartbeats.
pub const DAMPING_COUNT: u32 = 8;

/// The damping and the patience of a node.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Config {
    /// This node.
    pub me: NodeId,
    /// The time for which the nomination must have named the same other node before the leader hands over to it.
    pub damping: Duration,
    /// The time without a leader after which all nodes campaign, nominated or not.
    pub patience: Duration,
}

/// A message of one of the two elections.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Message<N, C> {
    /// A message of the nomination.
    Nomination(N),
    /// A message of the confirmation.
    Confirmation(C),
}

/// The state machine of one node.
#[derive(Clone, Debug)]
pub struct Confirmed<N: Protocol, C: Protocol> {
    nomination: N,
    confirmation: C,
    own: Own,
    outputs: Outputs<N, C>,
}

/// The state of this machine other than that of its two elections.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Own {
    config: Config,
    /// True if the application wants this node to lead.
    campaigning: bool,
    /// The node that the nomination names.
    nominee: Option<NodeId>,
    /// True if this node campaigns in the confirmation.
    confirming: bool,
    /// The leader, as the confirmation reports it.
    leader: Option<NodeId>,
    lead: Lead,
    /// The node to hand over to, and the time of the hand-over.
    hand_over: Option<(NodeId, Instant)>,
    patience: Patience,
    /// A nominee that failed to be confirmed while there was no leader: the lead is not handed to it as long as it
    /// stays nominated.
    unconfirmed: Option<NodeId>,
}

/// The state of the wait for the nominee.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Patience {
    /// There is a leader.
    NotNeeded,
    /// There is no leader; the nominee has until this time.
    Until(Instant),
    /// There has been no leader for too long: all nodes campaign.
    Lost,
}

/// The effects that are still to be drained. Between two inputs there are none, so they are not part of the machine's
/// state.
#[derive(Clone)]
struct Outputs<N: Protocol, C: Protocol>(VecDeque<Effect<N, C>>);

impl<N: Protocol, C: Protocol> fmt::Debug for Outputs<N, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} to be done", self.0.len())
    }
}

impl<N: Protocol + PartialEq, C: Protocol + PartialEq> PartialEq for Confirmed<N, C> {
    fn eq(&self, other: &Self) -> bool {
        (&self.own, &self.nomination, &self.confirmation)
            == (&other.own, &other.nomination, &other.confirmation)
    }
}

impl<N: Protocol + Eq, C: Protocol + Eq> Eq for Confirmed<N, C> {}

impl<N: Protocol + Hash, C: Protocol + Hash> Hash for Confirmed<N, C> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (&self.own, &self.nomination, &self.confirmation).hash(state);
    }
}

type Effect<N, C> =
    Output<Message<<N as Protocol>::Message, <C as Protocol>::Message>, <C as Protocol>::Durable>;

/// This node's own leadership.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Lead {
    None,
    Held,
    /// The lead is being given up, and its work drains.
    Ending,
}

impl<N: Protocol + StateReduction, C: Protocol + StateReduction> StateReduction for Confirmed<N, C> {
    fn visit_instants(&mut self, visit: &mut dyn FnMut(Use, &mut Instant)) {
        // Every field is named, so that a new one must be thought of here.
        let Own {
            config: _,
            campaigning: _,
            nominee: _,
            confirming: _,
            leader: _,
            lead: _,
            hand_over,
            patience,
            unconfirmed: _,
        } = &mut self.own;
        if let Some((_, at)) = hand_over {
            visit(Use::End, at);
        }
        if let Patience::Until(until) = patience {
            visit(Use::End, until);
        }
        self.nomination.visit_instants(visit);
        self.confirmation.visit_instants(visit);
    }

    fn simplify(&mut self) {
        self.nomination.simplify();
        self.confirmation.simplify();
    }
}

impl<N: Protocol<Durable = ()>, C: Protocol> Protocol for Confirmed<N, C> {
    type Message = Message<N::Message, C::Message>;
    type Durable = C::Durable;

    fn handle(&mut self, now: Instant, input: Input<Self::Message>) {
        debug_assert!(self.outputs.0.is_empty(), "all outputs must be drained before the next input");
        match input {
            Input::Message { from, message: Message::Nomination(message) } => {
                self.nominate(now, Input::Message { from, message });
            }
            Input::Message { from, message: Message::Confirmation(message) } => {
                self.confirm(now, Input::Message { from, message });
            }
            Input::Timeout => {
                self.nominate(now, Input::Timeout);
                self.confirm(now, Input::Timeout);
            }
            Input::Evidence(evidence) => {
                self.nominate(now, Input::Evidence(evidence));
                self.confirm(now, Input::Evidence(evidence));
            }
            Input::Command(command) => self.on_command(now, command),
        }
        self.follow_nomination(now);
    }

    fn poll(&mut self) -> Option<Effect<N, C>> {
        self.outputs.0.pop_front()
    }

    fn deadline(&self) -> Option<Instant> {
        let own = self.own.hand_over.map(|(_, at)| at);
        let machines = [self.nomination.deadline(), self.confirmation.deadline()];
        let patience = match self.own.patience {
            Patience::Until(until) => Some(until),
            Patience::NotNeeded | Patience::Lost => None,
        };
        machines.into_iter().chain([own, patience]).flatten().min()
    }
}

impl<N: Protocol<Durable = ()>, C: Protocol> Confirmed<N, C> {
    /// The state machine of `config.me`. It does not campaign until commanded to.
    #[must_use]
    pub fn new(config: Config, nomination: N, confirmation: C) -> Self {
        let own = Own {
            config,
            campaigning: false,
            nominee: None,
            confirming: false,
            leader: None,
            lead: Lead::None,
            hand_over: None,
            patience: Patience::NotNeeded,
            unconfirmed: None,
        };
        let mut machine = Self { nomination, confirmation, own, outputs: Outputs(VecDeque::new()) };
        // The outputs that the two elections have from the start.
        machine.take_nomination();
        machine.take_confirmation();
        machine
    }

    /// The node that should lead, as far as this node knows.
    #[must_use]
    pub const fn nominee(&self) -> Option<NodeId> {
        self.own.nominee
    }

    /// The election that names the node that should lead.
    #[must_use]
    pub const fn nomination(&self) -> &N {
        &self.nomination
    }

    /// The election that grants the lead.
    #[must_use]
    pub const fn confirmation(&self) -> &C {
        &self.confirmation
    }

    fn on_command(&mut self, now: Instant, command: Command) {
        match command {
            Command::Campaign => {
                self.own.campaigning = true;
                self.nominate(now, Input::Command(command));
            }
            Command::Withdraw => {
                self.own.campaigning = false;
                self.own.confirming = false;
                self.nominate(now, Input::Command(command));
                self.confirm(now, Input::Command(command));
            }
            // The nomination decides which node is next; another successor would hand the lead over to the nominee.
            Command::Resign | Command::Transfer(_) => {
                self.nominate(now, Input::Command(Command::Resign));
                self.confirm(now, Input::Command(Command::Resign));
            }
            Command::Healthy(_) => {
                self.nominate(now, Input::Command(command));
                self.confirm(now, Input::Command(command));
            }
            Command::Drained => self.confirm(now, Input::Command(command)),
            Command::Down(_) => self.nominate(now, Input::Command(command)),
        }
    }

    /// Hands an input to the nomination, and applies its outputs.
    fn nominate(&mut self, now: Instant, input: Input<N::Message>) {
        self.nomination.handle(now, input);
        if self.take_nomination() {
            self.nomination.handle(now, Input::Command(Command::Drained));
            self.take_nomination();
        }
    }

    /// Applies the outputs of the nomination; returns true if the nominee resigns. No work depends on a nominee, so
    /// there is nothing to drain.
    fn take_nomination(&mut self) -> bool {
        let mut resigns = false;
        while let Some(output) = self.nomination.poll() {
            match output {
                Output::Persist(()) => {}
                Output::Send { to: Endpoint::Store | Endpoint::Client, .. } => {} // It is held among peers.
                Output::Send { to, message } => {
                    self.outputs.0.push_back(Output::Send { to, message: Message::Nomination(message) });
                }
                Output::Event(Event::LeaderChanged(leader)) => {
                    self.own.nominee = leader.map(|leader| leader.identity.node);
                }
                Output::Event(Event::Resigning(_)) => resigns = true,
                Output::Event(
                    Event::Elected { .. } | Event::Renewed { .. } | Event::Deposed(_) | Event::Violation(_),
                ) => {}
            }
        }
        resigns
    }

    /// Hands an input to the confirmation, and passes on its outputs.
    fn confirm(&mut self, now: Instant, input: Input<C::Message>) {
        self.confirmation.handle(now, input);
        self.take_confirmation();
    }

    fn take_confirmation(&mut self) {
        while let Some(output) = self.confirmation.poll() {
            let output = match output {
                Output::Persist(durable) => Output::Persist(durable),
                Output::Send { to, message } => Output::Send { to, message: Message::Confirmation(message) },
                Output::Event(event) => {
                    self.on_event(event);
                    Output::Event(event)
                }
            };
            self.outputs.0.push_back(output);
        }
    }

    fn on_event(&mut self, event: Event) {
        match event {
            Event::Elected { .. } => self.own.lead = Lead::Held,
            Event::Resigning(_) => self.own.lead = Lead::Ending,
            Event::Deposed(_) => self.own.lead = Lead::None,
            Event::LeaderChanged(leader) => self.own.leader = leader.map(|leader| leader.identity.node),
            Event::Renewed { .. } | Event::Violation(_) => {}
        }
    }

    /// Campaigns, withdraws or hands over, according to the nomination.
    fn follow_nomination(&mut self, now: Instant) {
        self.lose_patience(now);
        let campaigns = self.own.campaigning
            && (self.own.nominee == Some(self.own.config.me) || self.own.patience == Patience::Lost);
        if campaigns && !self.own.confirming {
            self.own.confirming = true;
            self.confirm(now, Input::Command(Command::Campaign));
        }
        if !campaigns && self.own.confirming && self.own.lead == Lead::None {
            self.own.confirming = false;
            self.confirm(now, Input::Command(Command::Withdraw));
        }
        self.hand_over(now);
    }

    /// Lets this node campaign without a nomination if there is no leader for too long.
    fn lose_patience(&mut self, now: Instant) {
        let Own { config, nominee, leader, patience, unconfirmed, .. } = &mut self.own;
        if *unconfirmed != *nominee || *unconfirmed == *leader {
            *unconfirmed = None;
        }
        *patience = match *patience {
            _ if leader.is_some() => Patience::NotNeeded,
            Patience::NotNeeded => Patience::Until(now.after(config.patience)),
            Patience::Until(until) if now >= until => {
                *unconfirmed = *nominee;
                Patience::Lost
            }
            unchanged @ (Patience::Until(_) | Patience::Lost) => unchanged,
        };
    }

    fn hand_over(&mut self, now: Instant) {
        let Own { config, nominee, lead, unconfirmed, hand_over, .. } = &mut self.own;
        let to = nominee.filter(|&to| to != config.me && *unconfirmed != Some(to) && *lead == Lead::Held);
        *hand_over = match (to, *hand_over) {
            (Some(to), Some((known, at))) if to == known => Some((to, at)),
            (Some(to), _) => Some((to, now.after(config.damping))),
            (None, _) => None,
        };
        if let Some((to, at)) = *hand_over
            && now >= at
        {
            *hand_over = None;
            self.confirm(now, Input::Command(Command::Transfer(to)));
        }
    }
}

#[cfg(test)]
mod tests;
