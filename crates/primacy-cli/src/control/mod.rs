//! The control socket: how the operator's verbs reach a node that runs on this machine.
//!
//! Every node listens on a Unix socket in its state directory, which only its own user, and root, may use. A connection
//! carries one request, a line of JSON, and its answer: a line, or many for `watch`. The library answers the requests;
//! this module only carries them, and must never cost the election anything.

mod client;
mod message;
mod node_status;
mod own_socket;
mod partitions;
mod server;
mod socket;
mod state;

pub(crate) use client::{Answers, Next, Node, find, find_all};
pub(crate) use message::{Answer, Kind, NodeVerb, Progress};
pub(crate) use node_status::{
    Certificate, FirstEntry, Leader, Member, Members, Metadata, NodeStatus, PeerRefused, Peers, Queue,
    Record, RecordNumber,
};
pub(crate) use partitions::{Change, Shown};
pub(crate) use server::{Responder, Server};
pub(crate) use state::{Announced, State, moves};
