//! Exhaustive search over the real machines: every order of events within stated bounds.

mod fold;
mod interned;
pub mod lease;
pub mod mark;
pub mod quorum;
pub mod search;
mod seen;
pub mod spaces;
