//! The state of a store for an election, and the machines of that election: all that differs between the two
//! elections over a store.

use std::fmt::Debug;
use std::hash::Hash;

use primacy_core::election::lease::RequestId;
use primacy_core::state_reduction::StateReduction;
use primacy_core::{FencingToken, Identity, Protocol};

use super::bounds::StoreBounds;

/// The state of a store. It is a value: all of the store at one moment.
pub trait StoreKind: Clone + Debug + Eq + Hash {
    /// A message between a candidate and the store.
    type Message: Clone + Debug + Eq + Hash;
    /// A candidate.
    type Machine: Machine<Message = Self::Message>;
    /// The machine of a guardian for its dead process.
    type Guardian: GuardianMachine<Message = Self::Message>;

    /// The number of the machines' nanoseconds in a tick.
    const TICK: u64;

    /// The state at the beginning.
    fn new(bounds: &StoreBounds) -> Self;

    /// Starts the machine of a process. No two have the same seed.
    fn machine(me: Identity, seed: u64, bounds: &StoreBounds) -> Self::Machine;

    /// Starts the machine of the guardian of a dead process.
    fn guardian(dead: Identity, seed: u64, bounds: &StoreBounds) -> Self::Guardian;

    /// Serves a request, and answers it. Returns `None` for a message that is no request.
    fn serve(&mut self, request: &Self::Message, mood: Mood) -> Option<Self::Message>;

    /// Deletes the state, as an operator by hand. Returns false if nothing has changed.
    fn delete(&mut self) -> bool;

    /// Returns the changes that may happen without a request, each in words.
    fn by_itself(&self) -> Vec<(Self, String)>;

    /// Moves its clock. Returns false if it has none.
    fn tick(&mut self, by: u8) -> bool;

    /// True if a search bounds the number of such requests.
    fn is_bounded(request: &Self::Message) -> bool;

    /// True if it is more than a read, so that it matters also when no node waits for its answer.
    fn is_write(request: &Self::Message) -> bool;

    /// Returns whether it releases a leadership, and its token, if the request names it.
    fn lets_go(request: &Self::Message) -> Option<Option<FencingToken>>;

    /// The number of a request or an answer.
    fn number(message: &mut Self::Message) -> Option<&mut RequestId>;

    /// Returns a message as text for people.
    fn text(message: &Self::Message) -> String;
}

/// A candidate.
pub trait Machine: Protocol<Durable = ()> + StateReduction + Clone + Debug + Eq + Hash {
    /// True if it leads.
    fn leads(&self) -> bool;

    /// The numbers of the requests under way, of which there are at most two.
    fn under_way(&self) -> [Option<RequestId>; 2];

    /// Gives them these numbers.
    fn renumber(&mut self, numbers: [RequestId; 2]);
}

/// The machine of a guardian for a dead process.
pub trait GuardianMachine: Protocol<Durable = ()> + StateReduction + Clone + Debug + Eq + Hash {
    /// Returns whether it succeeded, once it has ended.
    fn ending(&self) -> Option<bool>;

    /// The number of the last request.
    fn last_request(&self) -> RequestId;

    /// Gives it this number.
    fn renumber(&mut self, last: RequestId);
}

/// The response of the store to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mood {
    /// It serves the request, and answers.
    Serves,
    /// It serves the request, and answers that the outcome is unknown.
    DoneUnknown,
    /// It does not serve the request, and answers that the outcome is unknown.
    NotDoneUnknown,
}
