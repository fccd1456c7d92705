//! Commands, states, partitions and views as text for people: in traces, in breaches and in the output of scripts.

pub mod metadata;
pub mod partitions;
pub mod views;
