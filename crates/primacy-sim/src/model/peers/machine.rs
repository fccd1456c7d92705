//! The interface of an election among peers to the search, beside the contract of its machine.

use core::fmt::Debug;
use core::hash::Hash;
use std::collections::BTreeSet;

use primacy_core::election::quorum::HardState;
use primacy_core::state_reduction::StateReduction;
use primacy_core::{Identity, NodeId, Protocol, Term};

use super::bounds::PeerBounds;
use super::node::Fact;

/// A machine whose orders of events are searched.
pub trait Machine:
    Protocol<Durable = HardState, Message: Debug + Eq + Hash> + StateReduction + Clone + Debug + Eq + Hash
{
    /// True if it hears only peers that it knows to be connected. Then all processes are connected when they
    /// begin.
    const HEARS_THE_CONNECTED: bool;

    /// Starts a process of the node of this identity, with the contents of its disk.
    fn begin(me: Identity, bounds: &PeerBounds, disk: HardState) -> Self;

    /// Returns the view of its state.
    fn view(&self) -> View;

    /// Returns the meaning of a message to the judge.
    fn fact(message: &Self::Message, to: NodeId) -> Option<Fact>;

    /// Returns the number of the round that a message begins, if it begins one. The same for all receivers.
    fn begins(message: &Self::Message) -> Option<u64>;

    /// True if it only refuses a candidate.
    fn is_refusal(message: &Self::Message) -> bool;

    /// Returns the message as text for people.
    fn text(message: &Self::Message) -> String;
}

/// The view of a machine's state.
#[derive(Clone, Debug)]
pub struct View {
    /// True if it leads.
    pub leads: bool,
    /// The nodes that it is connected with.
    pub connected: BTreeSet<NodeId>,
    /// The highest term that it has adopted, or campaigns for.
    pub term: Term,
}
