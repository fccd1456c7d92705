//! Exhaustive search over the real machines: every order of events within stated bounds.
//!
//! Start reading at [`spaces`], which lists the searched spaces. [`search`] explores all states breadth-first, so
//! that a violation is reported with a shortest path. [`peers`], [`membership`] and [`store`] model the environment
//! of the machines: their possible events, and the states that must never be reached.
//!
//! Time is in ticks. Every instant is stored as its distance from now, and all past instants are equivalent. So time
//! is unbounded, and the number of states is still finite. A process may delay any action for any time, which models
//! a pause. So random waits need not be drawn: a zero wait and a late process together produce every wait.

pub mod coverage;
mod fold;
mod interned;
pub mod membership;
mod now;
pub mod peers;
pub mod replicas;
pub mod search;
pub mod spaces;
pub mod store;
mod visited;
mod work;
