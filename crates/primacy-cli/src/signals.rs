//! The signals that end `primacy`, and the signals that it passes on.

use std::fs;
use std::future::poll_fn;
use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::task::Poll;

use signal_hook::consts::{SIGALRM, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGXFSZ};
use tokio::signal::unix::{Signal, SignalKind, signal};

/// SIGTERM; and SIGINT and SIGHUP unless they were ignored when this process was started, as `nohup` and shells do for
/// background processes.
#[derive(Debug)]
pub(crate) struct Signals {
    terminate: Option<Signal>,
    interrupt: Option<Signal>,
    hang_up: Option<Signal>,
}

impl Signals {
    /// Starts to listen.
    pub(crate) fn listen() -> io::Result<Self> {
        let ignored = ignored_signals();
        let listen = |number: i32| {
            let is_ignored = number != SIGTERM && ignored & (1_u64 << (number - 1)) != 0;
            (!is_ignored).then(|| signal(SignalKind::from_raw(number))).transpose()
        };
        Ok(Self { terminate: listen(SIGTERM)?, interrupt: listen(SIGINT)?, hang_up: listen(SIGHUP)? })
    }

    /// Waits for the next signal, and returns its number. May be cancelled.
    pub(crate) async fn next(&mut self) -> i32 {
        tokio::select! {
            () = received(&mut self.terminate) => SIGTERM,
            () = received(&mut self.interrupt) => SIGINT,
            () = received(&mut self.hang_up) => SIGHUP,
        }
    }
}

/// The signals that a command running in place of this process gets as well.
#[derive(Debug)]
pub(crate) struct PassedOn(Vec<(i32, Signal)>);

impl PassedOn {
    /// Starts to listen to all but the signals that were ignored when this process was started.
    pub(crate) fn listen() -> io::Result<Self> {
        let ignored = ignored_signals();
        let numbers = [SIGHUP, SIGINT, SIGQUIT, SIGUSR1, SIGUSR2, SIGTERM].into_iter();
        let heard = numbers.filter(|number| ignored & (1_u64 << (number - 1)) == 0);
        heard
            .map(|number| Ok((number, signal(SignalKind::from_raw(number))?)))
            .collect::<io::Result<_>>()
            .map(Self)
    }

    /// Waits for the next signal, and returns its number. May be cancelled.
    pub(crate) async fn next(&mut self) -> i32 {
        poll_fn(|context| {
            let mut ready =
                self.0.iter_mut().filter_map(|(number, signal)| match signal.poll_recv(context) {
                    Poll::Ready(Some(())) => Some(*number),
                    Poll::Ready(None) | Poll::Pending => None,
                });
            ready.next().map_or(Poll::Pending, Poll::Ready)
        })
        .await
    }
}

/// Handles the signals that would end this process, without effect: `killall primacy` asks the node to end in order,
/// and for that its helper processes must go on. Unlike ignored signals, handlers are not inherited by the processes
/// that the helpers start.
pub(crate) fn outlive() -> io::Result<()> {
    let unread = Arc::new(AtomicBool::new(false));
    for signal in [SIGALRM, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2] {
        signal_hook::flag::register(signal, Arc::clone(&unread))?;
    }
    Ok(())
}

/// Unblocks all signals, since a careless parent may have left some blocked: a node that does not receive SIGTERM
/// cannot end in order.
pub(crate) fn unblock_all() {
    // SAFETY: the set is initialised by the call that empties it, and outlives the one that reads it.
    #[allow(unsafe_code)] // No safe wrapper of these is among the dependencies.
    unsafe {
        let mut none = std::mem::zeroed();
        libc::sigemptyset(&raw mut none);
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const none, std::ptr::null_mut());
    }
}

/// Turns a write beyond the limit of a file's length (`ulimit -f`) into an error like that of a full disk. By default
/// the kernel ends the process, without a message. A handler is not inherited by the processes that this one starts.
pub(crate) fn take_file_limit_as_error() {
    if ignored_signals() & (1_u64 << (SIGXFSZ - 1)) == 0 {
        // This fails if the system has no memory. Then the default stays.
        let _ = signal_hook::flag::register(SIGXFSZ, Arc::new(AtomicBool::new(false)));
    }
}

async fn received(signal: &mut Option<Signal>) {
    let Some(signal) = signal else { return std::future::pending().await };
    if signal.recv().await.is_none() {
        std::future::pending().await
    }
}

/// Returns the signals that this process ignores, as a mask. The kernel reports them only in this file.
fn ignored_signals() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}
