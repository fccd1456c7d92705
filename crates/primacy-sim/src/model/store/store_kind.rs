//! The interface of a store and the machines that use it: everything in which the two elections over a store differ.

use std::fmt::Debug;
use std::hash::Hash;

use primacy_core::election::lease::RequestId;
use primacy_core::state_reduction::StateReduction;
use primacy_core::{FencingToken, Identity, Protocol};

use super::bounds::StoreBounds;

/// The complete state of a store, as a value.
pub trait StoreKind: Clone + Debug + Eq + Hash {
    /// A message between a candidate and the store.
    type Message: Clone + Debug + Eq + Hash;
    /// The machine of a candidate.
    type Machine: Machine<Message = Self::Message>;
    /// The machine of a guardian for its dead process.
    type Guardian: GuardianMachine<Message = Self::Message>;

    /// The number of machine nanoseconds in a tick.
    const TICK: u64;

    /// The initial state.
    fn new(bounds: &StoreBounds) -> Self;

    /// Starts the machine of a process. Each has its own seed.
    fn machine(me: Identity, seed: u64, bounds: &StoreBounds) -> Self::Machine;

    /// Starts the machine of the guardian of a dead process.
    fn guardian(dead: Identity, seed: u64, bounds: &StoreBounds) -> Self::Guardian;

    /// Serves a request. Returns the answer, or `None` if the message is no request.
    fn serve(&mut self, request: &Self::Message, mood: Mood) -> Option<Self::Message>;

    /// Deletes the state by hand, as an operator. Returns false if nothing has changed.
    fn delete(&mut self) -> bool;

    /// Returns the possible spontaneous changes, each with a description.
    fn by_itself(&self) -> Vec<(Self, String)>;

    /// Advances the store's clock. Returns false if it has none.
    fn tick(&mut self, by: u8) -> bool;

    /// True if the search bounds the number of requests of this kind.
    fn is_bounded(request: &Self::Message) -> bool;

    /// True if the request is more than a read, so that it matters even if no node waits for its answer.
    fn is_write(request: &Self::Message) -> bool;

    /// Returns `Some` if the request releases a leadership, with its token if the request names it.
    fn lets_go(request: &Self::Message) -> Option<Option<FencingToken>>;

    /// The number of a request or an answer.
    fn number(message: &mut Self::Message) -> Option<&mut RequestId>;

    /// Returns a message as text for people.
    fn text(message: &Self::Message) -> String;
}

/// The machine of a candidate.
pub trait Machine: Protocol<Durable = ()> + StateReduction + Clone + Debug + Eq + Hash {
    /// True if it leads.
    fn leads(&self) -> bool;

    /// The numbers of the requests under way, at most two.
    fn under_way(&self) -> [Option<RequestId>; 2];

    /// Replaces the numbers of the requests under way.
    fn renumber(&mut self, numbers: [RequestId; 2]);
}

/// The machine of a guardian for a dead process.
pub trait GuardianMachine: Protocol<Durable = ()> + StateReduction + Clone + Debug + Eq + Hash {
    /// Returns whether the release succeeded, once the machine has ended.
    fn ending(&self) -> Option<bool>;

    /// The number of the last request.
    fn last_request(&self) -> RequestId;

    /// Replaces the number of the last request.
    fn renumber(&mut self, last: RequestId);
}

/// The behaviour of the store for one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mood {
    /// It serves the request, and answers.
    Serves,
    /// It serves the request, and answers that the outcome is unknown.
    DoneUnknown,
    /// It does not serve the request, and answers that the outcome is unknown.
    NotDoneUnknown,
}
