//! Elections as their sources state them, to watch them fail: the origins of the elections of `primacy-core`.

pub mod blazingmq_naive;
pub mod emergent;
pub mod gmt2000;
