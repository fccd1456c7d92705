//! Elections exactly as their sources state them, kept to demonstrate their faults: the origins of the elections of
//! `primacy-core`.

pub mod blazingmq_naive;
pub mod emergent;
pub mod gmt2000;
