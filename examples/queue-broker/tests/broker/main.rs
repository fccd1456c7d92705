//! Broker processes over a directory and over S3, and clients that know one of them or none.

#![allow(clippy::unwrap_used, reason = "in a test, a panic is the message")]

mod brokers;
mod bucket;
mod claims;
mod client;
mod kill_and_pause;
mod store;

use std::time::Duration;

/// The time without a write after which a broker counts as gone.
const TIMEOUT: Duration = Duration::from_millis(1_500);
/// The interval at which a broker that does not lead reads the document.
const RETRY: Duration = Duration::from_millis(200);
/// The time limit of everything that must happen, on a busy machine.
const PATIENCE: Duration = Duration::from_secs(120);
