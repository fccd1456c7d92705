//! The signals that ask a node to end.

use std::fs;
use std::io;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use tokio::signal::unix::{Signal, SignalKind, signal};

/// SIGTERM, SIGINT and SIGHUP, other than those that were ignored when this process was started: `nohup` and
/// shells that start something in the background mean it.
#[derive(Debug)]
pub(crate) struct Signals {
    terminate: Option<Signal>,
    interrupt: Option<Signal>,
    hang_up: Option<Signal>,
}

impl Signals {
    /// Listens from now on.
    pub(crate) fn listen() -> io::Result<Self> {
        let ignored = ignored_signals();
        let listen = |number: i32| {
            let is_ignored = ignored & (1_u64 << (number - 1)) != 0;
            (!is_ignored).then(|| signal(SignalKind::from_raw(number))).transpose()
        };
        Ok(Self { terminate: listen(SIGTERM)?, interrupt: listen(SIGINT)?, hang_up: listen(SIGHUP)? })
    }

    /// The number of the next one. May be cancelled.
    pub(crate) async fn next(&mut self) -> i32 {
        tokio::select! {
            () = received(&mut self.terminate) => SIGTERM,
            () = received(&mut self.interrupt) => SIGINT,
            () = received(&mut self.hang_up) => SIGHUP,
        }
    }
}

async fn received(signal: &mut Option<Signal>) {
    let Some(signal) = signal else { return std::future::pending().await };
    if signal.recv().await.is_none() {
        std::future::pending().await
    }
}

/// The signals that this process ignores, as a mask; the kernel tells it only there.
fn ignored_signals() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}
