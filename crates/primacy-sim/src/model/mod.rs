//! Exhaustive search over the real machines: every order of events within stated bounds.
//!
//! Start reading at [`spaces`], which lists what is searched. [`search`] goes through all states, in the order of how few
//! steps lead to them, so that what breaks an invariant is told by the shortest story. [`peers`], [`membership`] and [`store`] are the
//! surroundings in which the machines live: what can happen to them, and what must never be.
//!
//! Time is in ticks. Every instant is kept by how far it is from now, and those that have passed are alike, so that time
//! may go on for ever and the states are still few. A process may be late with anything by any time, which is what a
//! pause is; so no random wait need be drawn, for a wait of nothing and a late process are every wait.

mod fold;
mod interned;
pub mod mark;
pub mod membership;
mod now;
pub mod peers;
pub mod replicas;
pub mod search;
mod seen;
pub mod spaces;
pub mod store;
mod work;
