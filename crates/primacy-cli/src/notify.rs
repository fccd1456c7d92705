//! Notifications to systemd, where `NOTIFY_SOCKET` is set.

use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::sync::OnceLock;
use std::time::Duration;

use primacy::{Change, Elector};
use sd_notify::NotifyState;

use crate::line_writer::{LAST_LINES_TIME, LineWriter};

/// Reports that this node takes part. From now on systemd is told the leader and, if it asked for that
/// (`WatchdogSec=`), that the election is alive: only after the election has answered a request, not by a bare timer.
pub(crate) fn ready(elector: &Elector) {
    if !starts_writer() {
        return;
    }
    tell(&[NotifyState::Ready, NotifyState::Status("takes part; no leader is known yet")]);
    // These tasks have handles of the elector, which do not keep it open: its supervisor closes it.
    tokio::spawn(tell_status(elector.clone()));
    if let Some(interval) = sd_notify::watchdog_enabled() {
        tokio::spawn(keep_watchdog(elector.clone(), interval));
    }
}

/// Reports that this process ends in order.
pub(crate) fn stopping() {
    tell(&[NotifyState::Stopping]);
}

/// Gives systemd a moment to read the notifications, at the end of the process.
pub(crate) fn finish() {
    if let Some(Some(writer)) = WRITER.get() {
        writer.finish(LAST_LINES_TIME);
    }
}

/// The writer; `None` if there is no systemd, or the system has no thread for it.
static WRITER: OnceLock<Option<LineWriter>> = OnceLock::new();

/// Starts the thread that writes to systemd, so that no other thread waits when systemd's queue is full.
fn starts_writer() -> bool {
    let start = || {
        std::env::var_os("NOTIFY_SOCKET")?;
        match LineWriter::start("notify", send, |_| String::new()) {
            Ok(writer) => Some(writer),
            Err(error) => {
                tracing::warn!(%error, "systemd cannot be told how this node stands");
                None
            }
        }
    };
    WRITER.get_or_init(start).is_some()
}

fn send(state: &[u8]) {
    let state = String::from_utf8_lossy(state);
    if !state.is_empty()
        && let Err(error) = send_to_manager(&state)
    {
        tracing::warn!(%error, "systemd cannot be told how this node stands");
    }
}

/// Sends a notification to the socket in `NOTIFY_SOCKET`: a path or, after an `@`, an abstract name. The library would
/// take an abstract name for a path.
fn send_to_manager(state: &str) -> io::Result<()> {
    #[cfg(target_os = "linux")]
    {
        use std::os::linux::net::SocketAddrExt as _;

        let socket = std::env::var_os("NOTIFY_SOCKET").unwrap_or_default();
        if let Some(name) = socket.as_bytes().strip_prefix(b"@") {
            let address = SocketAddr::from_abstract_name(name)?;
            return UnixDatagram::unbound()?.send_to_addr(state.as_bytes(), &address).map(drop);
        }
    }
    sd_notify::notify(&[NotifyState::Custom(state)])
}

fn tell(state: &[NotifyState<'_>]) {
    if let Some(Some(writer)) = WRITER.get() {
        writer.put(state.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"));
    }
}

async fn tell_status(elector: Elector) {
    let mut observer = elector.observe();
    while let Some(change) = observer.changed().await {
        let Change::Leader(leader) = change else { continue };
        let text = match leader {
            Some(leader) if leader.identity == elector.identity() => match elector.status().await {
                Ok(status) => match status.lead {
                    Some(lead) => format!("leads with {}", lead.number()),
                    None => continue, // It is over already, and the next change says so.
                },
                Err(_) => return,
            },
            Some(leader) => format!("follows {}, term {}", leader.identity.node, leader.term),
            None => "no leader is known".to_owned(),
        };
        tell(&[NotifyState::Status(&text)]);
    }
}

/// Requests the election's status twice in each interval. If it does not answer, systemd is not notified, and ends this
/// process when the interval is over; the guardian then ends the job.
async fn keep_watchdog(elector: Elector, interval: Duration) {
    let half = interval / 2;
    loop {
        match tokio::time::timeout(half, elector.status()).await {
            Ok(Ok(_)) => tell(&[NotifyState::Watchdog]),
            Ok(Err(_)) => return,
            Err(_) => tracing::warn!("the election did not answer within half of the watchdog's interval"),
        }
        tokio::time::sleep(half).await;
    }
}
