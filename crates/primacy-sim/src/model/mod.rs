//! Exhaustive search over the real machines: every order of events within stated bounds.
//!
//! Start reading at [`spaces`], which lists the searched spaces. [`search`] goes through all states, in the
//! order of how few steps lead to them, so that a violation is reported by the shortest story. [`peers`],
//! [`membership`] and [`store`] are the surroundings of the machines: their possible events, and the states
//! that must never be reached.
//!
//! Time is in ticks. Every instant is kept as its distance from now, and all past instants are alike, so that
//! time may go on for ever and the states are still few. A process may be late with anything by any time,
//! which is what a pause is; so no random wait need be drawn, for a wait of nothing and a late process are
//! every wait.

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
