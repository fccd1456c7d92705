//! A quorum with a nomination that may name any node at any time.

use primacy_core::election::confirmed::{Config, Confirmed, Message};
use primacy_core::election::quorum::{self, HardState, Quorum};
use primacy_core::state_reduction::{StateReduction, Use};
use primacy_core::{Event, Identity, Incarnation, Input, Instant, Leader, NodeId, Output, Protocol, Term};

use super::bounds::PeerBounds;
use super::machine::{Machine, View};
use super::node::{Fact, name, seat};
use crate::arbitrary_nominator::Silence;
use crate::model::now::ticks;

/// A nomination that changes its nominee to the next candidate, or to none, whenever it wakes; and it may wake at any
/// time, any number of times. So in a search every node nominates any node at any moment.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct AnyNomination {
    me: NodeId,
    candidates: u8,
    /// The named candidate; the number of candidates if none is named.
    named: u8,
    /// True if it has changed its nominee, and has not reported that yet.
    says: bool,
}

impl Protocol for AnyNomination {
    type Message = Silence;
    type Durable = ();

    fn handle(&mut self, _: Instant, input: Input<Silence>) {
        // A node that only votes does not nominate.
        if matches!(input, Input::Timeout) && seat(self.me) < self.candidates {
            self.named = (self.named + 1) % (self.candidates + 1);
            self.says = true;
        }
    }

    fn poll(&mut self) -> Option<Output<Silence, ()>> {
        if !self.says {
            return None;
        }
        self.says = false;
        let nominee = (self.named < self.candidates).then(|| Leader {
            identity: Identity::new(name(self.named), Incarnation { count: 0, nonce: 0 }),
            term: Term(0),
        });
        Some(Output::Event(Event::LeaderChanged(nominee)))
    }

    fn deadline(&self) -> Option<Instant> {
        // Always due.
        (seat(self.me) < self.candidates).then(Instant::default)
    }
}

impl StateReduction for AnyNomination {
    fn visit_instants(&mut self, _: &mut dyn FnMut(Use, &mut Instant)) {}

    fn simplify(&mut self) {}
}

/// A quorum with an arbitrary nomination.
pub type AnyConfirmed = Confirmed<AnyNomination, Quorum>;

impl Machine for AnyConfirmed {
    const HEARS_THE_CONNECTED: bool = Quorum::HEARS_THE_CONNECTED;

    fn begin(me: Identity, bounds: &PeerBounds, disk: HardState) -> Self {
        let candidates = bounds.candidates;
        let nomination = AnyNomination { me: me.node, candidates, named: candidates, says: false };
        // Mostly zero: a nomination that does not flap is among those that are searched.
        let patience = ticks(bounds.patience);
        let config = Config { me: me.node, damping: patience, patience };
        Self::new(config, nomination, Quorum::begin(me, bounds, disk))
    }

    fn view(&self) -> View {
        self.confirmation().view()
    }

    fn fact(message: &Message<Silence, quorum::Message>, to: NodeId) -> Option<Fact> {
        Quorum::fact(of(message), to)
    }

    fn begins(message: &Message<Silence, quorum::Message>) -> Option<u64> {
        Quorum::begins(of(message))
    }

    fn is_refusal(message: &Message<Silence, quorum::Message>) -> bool {
        Quorum::is_refusal(of(message))
    }

    fn text(message: &Message<Silence, quorum::Message>) -> String {
        Quorum::text(of(message))
    }
}

/// Returns the message of the quorum; the nomination sends none.
fn of(message: &Message<Silence, quorum::Message>) -> &quorum::Message {
    match message {
        Message::Nomination(said) => match *said {},
        Message::Confirmation(message) => message,
    }
}
