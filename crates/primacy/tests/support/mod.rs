//! Shared parts of the library's tests: nodes at ports of their own, directories of their own, and patience.

#![allow(dead_code, unreachable_pub, reason = "each test program uses its part of this")]

use std::net::TcpListener;
use std::ops::{Deref, Range};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use primacy::Peers;

/// The longest time that anything which must happen may take, on a busy machine.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Waits for what must happen.
pub async fn soon<F: Future>(what: &str, future: F) -> F::Output {
    let happened = tokio::time::timeout(PATIENCE, future).await;
    happened.unwrap_or_else(|_| panic!("{what} did not happen in {PATIENCE:?}"))
}

/// Ports below the ones that the kernel gives to connections, one of which would take the port of a node that is not
/// there yet, or is away for a moment.
const PORTS: Range<u16> = 10_000..30_000;

/// Nodes of these names, each at a free port of the loopback interface that no other node of this process has.
pub fn peers(names: &[&str]) -> Peers {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    // Programs that run at the same time begin at different ones.
    let first = std::process::id().wrapping_mul(97);
    let mut ports = PORTS.map(|_| {
        let next = first.wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed));
        PORTS.start + u16::try_from(next % u32::from(PORTS.end - PORTS.start)).unwrap()
    });
    let entries: Vec<String> = names
        .iter()
        .map(|name| {
            let free = ports.find(|port| TcpListener::bind(("127.0.0.1", *port)).is_ok());
            format!("{name}=127.0.0.1:{}", free.expect("a port of the loopback interface is free"))
        })
        .collect();
    entries.join(",").parse().unwrap()
}

/// An empty directory, which is gone when it is dropped.
#[derive(Debug)]
pub struct Dir(PathBuf);

impl Dir {
    /// Of a test with this name.
    pub fn new(test: &str) -> Self {
        let dir = std::env::temp_dir().join(format!("primacy-{test}-{}", std::process::id()));
        // Process ids recur, and a killed process has left its own directory behind.
        let _ = std::fs::remove_dir_all(&dir);
        std::fs::create_dir(&dir).unwrap();
        Self(dir)
    }
}

impl Deref for Dir {
    type Target = Path;

    fn deref(&self) -> &Path {
        &self.0
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
