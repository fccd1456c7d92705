//! What a store keeps for an election, and the machines of that election: all in which the two elections over a store differ.

use std::fmt::Debug;
use std::hash::Hash;

use primacy_core::election::lease::RequestId;
use primacy_core::finite::Finite;
use primacy_core::{FencingToken, Identity, Protocol};

use super::space::Space;

/// What is kept. It is a value: all of the store at one moment.
pub trait Kept: Clone + Debug + Eq + Hash {
    /// What is said between a candidate and the store.
    type Message: Clone + Debug + Eq + Hash;
    /// A candidate.
    type Machine: Machine<Message = Self::Message>;
    /// What a guardian does for its process, which is dead.
    type Errand: Errand<Message = Self::Message>;

    /// How many nanoseconds of the machines a tick is.
    const TICK: u64;

    /// At the beginning.
    fn new(space: &Space) -> Self;

    /// The machine of a process life. No two have the same seed.
    fn machine(me: Identity, seed: u64, space: &Space) -> Self::Machine;

    /// What the guardian of a dead process life sets out for.
    fn errand(dead: Identity, seed: u64, space: &Space) -> Self::Errand;

    /// Serves a request, and answers it. `None` to what is none.
    fn serve(&mut self, request: &Self::Message, mood: Mood) -> Option<Self::Message>;

    /// Somebody takes away by hand what is kept; `false` if there is nothing.
    fn delete(&mut self) -> bool;

    /// What may happen to it without a request, each in words.
    fn by_itself(&self) -> Vec<(Self, String)>;

    /// Its clock moves on; `false` if it has none.
    fn tick(&mut self, by: u8) -> bool;

    /// Whether it is one of those requests that a search has a bound for.
    fn is_bounded(request: &Self::Message) -> bool;

    /// Whether it does more than to ask, so that it matters also when nobody waits for its answer.
    fn is_write(request: &Self::Message) -> bool;

    /// Whether it lets go of a leadership, and of which one, if it says that.
    fn lets_go(request: &Self::Message) -> Option<Option<FencingToken>>;

    /// The number of a request or an answer.
    fn number(message: &mut Self::Message) -> Option<&mut RequestId>;

    /// For people.
    fn text(message: &Self::Message) -> String;
}

/// A candidate.
pub trait Machine: Protocol<Durable = ()> + Finite + Clone + Debug + Eq + Hash {
    /// Whether it leads.
    fn leads(&self) -> bool;

    /// The numbers of the requests under way, of which there are at most two.
    fn under_way(&self) -> [Option<RequestId>; 2];

    /// Gives them these.
    fn renumber(&mut self, numbers: [RequestId; 2]);
}

/// What a guardian does for a dead process.
pub trait Errand: Protocol<Durable = ()> + Finite + Clone + Debug + Eq + Hash {
    /// Whether it has ended, and if so, whether it has done what it went out for.
    fn ending(&self) -> Option<bool>;

    /// The number of the last request.
    fn last_request(&self) -> RequestId;

    /// Gives it this one.
    fn renumber(&mut self, last: RequestId);
}

/// How the store meets a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mood {
    /// It does it, and says so.
    Serves,
    /// It does it, and says that nobody knows.
    DoneUnknown,
    /// It does not, and says that nobody knows.
    NotDoneUnknown,
}
