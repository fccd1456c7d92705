#![doc = include_str!("../README.md")]

// The path of a request: `server` accepts its connection, `route` finds its method and checks its token, a file for each of etcd's
// services answers it, and `backend` does the work. Everything that a client can make grow has a limit: in `limits`, in `server`, and for
// the total memory in the budgets of `client`.
mod abort_on_drop;
mod auth;
mod backend;
mod body;
mod budget;
mod client;
mod cluster;
mod convert;
mod election;
mod errors;
mod figures;
mod free_memory;
mod hub;
#[cfg(test)]
mod in_memory;
mod kv;
mod lease;
mod limits;
mod lock;
mod long_reads;
mod maintenance;
mod operation_count;
mod outcome;
mod paced;
mod pass;
mod read_ahead;
mod recipe;
mod replicated;
mod route;
mod server;
mod services;
#[cfg(test)]
mod tests;
mod throttle;
mod tls;
mod turns;
mod users;
mod watch;
mod watching;

pub use figures::EtcdApiFigures;
pub use replicated::{Replicated, Whereabouts};
pub use server::EtcdApi;
pub use tls::GRPC;
pub use users::{Users, open_users};
