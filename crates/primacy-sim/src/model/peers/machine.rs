//! The interface between an election among peers and the search, in addition to the contract of its machine.

use core::fmt::Debug;
use core::hash::Hash;
use std::collections::BTreeSet;

use primacy_core::election::quorum::HardState;
use primacy_core::state_reduction::StateReduction;
use primacy_core::{Identity, NodeId, Protocol, Term};

use super::bounds::PeerBounds;
use super::node::Fact;

/// An election whose event orders are searched.
pub trait Machine:
    Protocol<Durable = HardState, Message: Debug + Eq + Hash> + StateReduction + Clone + Debug + Eq + Hash
{
    /// True if the machine ignores peers that it does not know to be connected. Then all processes are connected at
    /// their start.
    const HEARS_THE_CONNECTED: bool;

    /// Starts a process of the node of this identity, with the contents of its disk.
    fn begin(me: Identity, bounds: &PeerBounds, disk: HardState) -> Self;

    /// Returns a view of the state.
    fn view(&self) -> View;

    /// Returns the fact that a message states for the judge.
    fn fact(message: &Self::Message, to: NodeId) -> Option<Fact>;

    /// Returns the number of the round that a message begins, if it begins one. It is the same for all receivers.
    fn begins(message: &Self::Message) -> Option<u64>;

    /// True if the message only refuses a candidate.
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
