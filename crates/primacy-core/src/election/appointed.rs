//! Appointed: the configuration names the leader.
//! Assumes   every node has the same configuration, and the leader's machine comes back.
//! Promises  nothing that the configuration does not: a second configuration makes a second leader. No token.
//! Costs     no message at all.   Use it for tests, for one node, and as the template for a new election.

use alloc::collections::VecDeque;
use core::convert::Infallible;

use crate::id::{Identity, NodeId};
use crate::protocol::{Command, Event, Input, Leader, Mandate, Output, Protocol, Reason};
use crate::term::Term;
use crate::time::Instant;

/// The state machine of one node.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Appointed {
    me: Identity,
    leader: NodeId,
    role: Role,
    outputs: VecDeque<Output<Infallible, ()>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Role {
    Follower,
    Leader,
    /// The work is being drained.
    Resigning,
}

impl Appointed {
    /// The state machine of `me`, with `leader` as the appointed leader. It does not know the leader's incarnation.
    #[must_use]
    pub const fn new(me: Identity, leader: NodeId) -> Self {
        Self { me, leader, role: Role::Follower, outputs: VecDeque::new() }
    }

    fn tell(&mut self, event: Event) {
        self.outputs.push_back(Output::Event(event));
    }

    fn become_leader(&mut self) {
        self.role = Role::Leader;
        let term = Term(self.me.incarnation.count);
        self.tell(Event::Elected { term, mandate: Mandate::Advisory, valid_until: Instant::NEVER });
        self.tell(Event::LeaderChanged(Some(Leader { identity: self.me, term })));
    }

    fn on_command(&mut self, command: Command) {
        match (self.role, command) {
            (Role::Follower, Command::Campaign) if self.leader == self.me.node => self.become_leader(),
            (Role::Leader, Command::Resign | Command::Withdraw | Command::Healthy(false)) => {
                self.role = Role::Resigning;
                self.tell(Event::Resigning(Reason::Resigned));
            }
            (Role::Resigning, Command::Drained) => {
                self.role = Role::Follower;
                self.tell(Event::Deposed(Reason::Resigned));
                self.tell(Event::LeaderChanged(None));
            }
            (Role::Follower | Role::Resigning, Command::Campaign) => {} // Another is appointed, or we are leaving.
            (Role::Leader, Command::Campaign | Command::Drained | Command::Healthy(true)) => {} // Nothing new.
            (Role::Follower, Command::Resign | Command::Withdraw | Command::Drained) => {} // It does not lead.
            (Role::Resigning, Command::Resign | Command::Withdraw) => {} // It does so already.
            (Role::Follower | Role::Resigning, Command::Healthy(_)) => {} // The appointment does not depend on it.
            // Only the configuration can change the leader.
            (Role::Follower | Role::Leader | Role::Resigning, Command::Transfer(_) | Command::Down(_)) => {}
        }
    }
}

impl Protocol for Appointed {
    type Message = Infallible;
    type Durable = ();

    fn handle(&mut self, _now: Instant, input: Input<Infallible>) {
        match input {
            Input::Message { message, .. } => match message {},
            Input::Command(command) => self.on_command(command),
            Input::Timeout | Input::Evidence(_) => {} // Nothing that happens changes an appointment.
        }
    }

    fn poll(&mut self) -> Option<Output<Infallible, ()>> {
        self.outputs.pop_front()
    }

    fn deadline(&self) -> Option<Instant> {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::Incarnation;

    fn node(name: &str) -> Appointed {
        let me = Identity::new(NodeId::new(name).unwrap(), Incarnation { count: 3, nonce: 9 });
        Appointed::new(me, NodeId::new("a").unwrap())
    }

    fn told(machine: &mut Appointed, command: Command) -> Vec<Event> {
        machine.handle(Instant::default(), Input::Command(command));
        core::iter::from_fn(|| machine.poll())
            .map(|output| match output {
                Output::Event(event) => event,
                Output::Persist(()) | Output::Send { .. } => panic!("it only tells"),
            })
            .collect()
    }

    #[test]
    fn only_the_appointed_node_leads_and_it_drains_before_it_goes() {
        assert_eq!(told(&mut node("b"), Command::Campaign), []);
        let mut a = node("a");
        let elected =
            Event::Elected { term: Term(3), mandate: Mandate::Advisory, valid_until: Instant::NEVER };
        assert_eq!(told(&mut a, Command::Campaign)[0], elected);
        assert_eq!(told(&mut a, Command::Resign), [Event::Resigning(Reason::Resigned)]);
        assert_eq!(told(&mut a, Command::Drained)[0], Event::Deposed(Reason::Resigned));
    }
}
