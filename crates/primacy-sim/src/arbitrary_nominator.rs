//! A nomination of random nodes, under which a confirmation must stay safe.
//!
//! Each node names a random node or none, and after a while another one, without messages to its peers. A nomination
//! only decides which node campaigns, so the confirmation must be as safe with this one as with any other.

use std::collections::VecDeque;

use primacy_core::rng::Rng;
use primacy_core::{
    Duration, Event, Identity, Incarnation, Input, Instant, Leader, NodeId, Output, Protocol, Term,
};

/// The machine of one node.
#[derive(Clone, Debug)]
pub struct ArbitraryNominator {
    voters: Vec<NodeId>,
    /// The longest time for which the machine names the same node.
    lasts: Duration,
    changes_at: Instant,
    rng: Rng,
    outputs: VecDeque<Output<Silence, ()>>,
}

/// The message type of a machine that sends none.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Silence {}

impl ArbitraryNominator {
    /// Creates the machine of a node that knows these voters.
    #[must_use]
    pub fn new(voters: Vec<NodeId>, lasts: Duration, seed: u64, now: Instant) -> Self {
        Self { voters, lasts, changes_at: now, rng: Rng::new(seed), outputs: VecDeque::new() }
    }

    /// Draws a nominee. A nomination ignores its incarnation and term.
    fn nominee(&mut self) -> Option<Leader> {
        let incarnation = Incarnation { count: 0, nonce: 0 };
        let place = usize::try_from(self.rng.up_to(self.voters.len() as u64)).unwrap_or(usize::MAX);
        let node = *self.voters.get(place)?;
        Some(Leader { identity: Identity::new(node, incarnation), term: Term(0) })
    }
}

impl Protocol for ArbitraryNominator {
    type Message = Silence;
    type Durable = ();

    fn handle(&mut self, now: Instant, _: Input<Silence>) {
        if now >= self.changes_at {
            self.changes_at = now.after(self.rng.duration_up_to(self.lasts).plus(Duration::from_millis(1)));
            let nominee = self.nominee();
            self.outputs.push_back(Output::Event(Event::LeaderChanged(nominee)));
        }
    }

    fn poll(&mut self) -> Option<Output<Silence, ()>> {
        self.outputs.pop_front()
    }

    fn deadline(&self) -> Option<Instant> {
        Some(self.changes_at)
    }
}
