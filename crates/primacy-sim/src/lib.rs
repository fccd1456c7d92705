//! A deterministic world for the state machines of `primacy-core`, and the scripts that run in it.
//!
//! Everything in a run follows from its seed: there is no clock, no entropy and no thread in here. Start
//! reading at [`world`], which runs the real machines as a driver would; then [`script`], which lists the
//! commands of the scripts under `scripts/`.

pub mod algorithm;
pub mod arbitrary_nominator;
pub mod clock;
pub mod compare;
pub mod counters;
pub mod disk;
pub mod display;
pub mod draw;
pub mod golden_file;
pub mod historical;
pub mod invariants;
pub mod leadership_intervals;
pub mod message_complexity;
pub mod model;
pub mod network;
pub mod node;
pub mod partition;
pub mod process_slot;
pub mod queue;
pub mod replay;
pub mod resource;
pub mod script;
pub mod sessions;
pub mod shrink;
pub mod store;
pub mod swarm;
pub mod trace;
pub mod world;
