#![doc = include_str!("../README.md")]
#![cfg_attr(not(test), no_std)]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod detector;
pub mod display;
pub mod election;
pub mod fence;
pub mod hard_state;
pub mod id;
pub mod majority;
pub mod membership;
pub mod neighbours;
pub mod protocol;
pub mod rng;
pub mod state_reduction;
pub mod term;
pub mod time;

pub use fence::{Fence, FenceError, FencingToken};
pub use id::{Identity, Incarnation, NodeId};
pub use protocol::{
    Command, ElectionTrigger, Endpoint, Event, Evidence, Input, Leader, Mandate, Output, Peer, Protocol,
    Reason, Violation,
};
pub use term::{LeaderSequence, Term};
pub use time::{Drift, Duration, Instant};
