//! What the search must know of an election among peers, beside the contract of its machine.

use core::fmt::Debug;
use core::hash::Hash;
use std::collections::BTreeSet;

use primacy_core::election::quorum::HardState;
use primacy_core::finite::Finite;
use primacy_core::{Identity, NodeId, Protocol, Term};

use super::node::Fact;
use super::space::Space;

/// A machine whose orders of events are searched.
pub trait Machine:
    Protocol<Durable = HardState, Message: Debug + Eq + Hash> + Finite + Clone + Debug + Eq + Hash
{
    /// Whether it hears only those that it knows to be connected. Then all lives of nodes are connected when they begin.
    const HEARS_THE_CONNECTED: bool;

    /// A process of the node of this identity, with what is on its disk.
    fn begin(me: Identity, space: &Space, disk: HardState) -> Self;

    /// What it shows of itself.
    fn view(&self) -> View;

    /// What a message says to the judge.
    fn fact(message: &Self::Message, to: NodeId) -> Option<Fact>;

    /// The number of the round that a message begins, if it begins one. The same for all who are told.
    fn begins(message: &Self::Message) -> Option<u64>;

    /// Whether it only says no to a candidate.
    fn is_refusal(message: &Self::Message) -> bool;

    /// What it says, for people.
    fn text(message: &Self::Message) -> String;
}

/// What a machine shows of itself.
#[derive(Clone, Debug)]
pub struct View {
    /// It leads.
    pub leads: bool,
    /// With whom it is connected.
    pub connected: BTreeSet<NodeId>,
    /// The highest term that it has given itself to, or stands for.
    pub term: Term,
}
