//! What chaos has that the command's own tests use too: a network whose links can be cut. The rest is the program; see
//! `main.rs`.

pub mod network;
pub mod trouble;
