//! Detection of other processes' writes without constant polling: the shared part of the stores of one machine.
//!
//! The `watch.rs` of each of them has the directories that it watches, and the meaning of their events.

use std::sync::mpsc;
use std::time::Duration;

/// The polling interval where the system sends no notifications.
pub(crate) const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// A thread that has the record checked when it may have changed. Dropping the watcher stops the thread.
#[derive(Debug)]
pub(crate) struct Watcher {
    _stop: Stop,
}

#[derive(Debug)]
enum Stop {
    #[cfg(target_os = "linux")]
    Event(#[expect(dead_code, reason = "rung when it is dropped")] notify::StopEvent),
    Channel(#[expect(dead_code, reason = "closed when it is dropped")] mpsc::Sender<()>),
}

impl Watcher {
    /// Starts a thread that is notified of writes, and ends when `stop` is dropped. `None` if it could not be started.
    #[cfg(target_os = "linux")]
    pub(crate) fn told(stop: notify::StopEvent, run: impl FnOnce() + Send + 'static) -> Option<Self> {
        spawn(run).then_some(Self { _stop: Stop::Event(stop) })
    }

    /// Starts a thread that calls `look` every [`POLL_INTERVAL`], and ends when `look` returns `false`, because no
    /// handle is left. `None` if it could not be started.
    pub(crate) fn polling(look: impl Fn() -> bool + Send + 'static) -> Option<Self> {
        let (stop, stopped) = mpsc::channel();
        let poll = move || {
            while look() && stopped.recv_timeout(POLL_INTERVAL) == Err(mpsc::RecvTimeoutError::Timeout) {}
        };
        spawn(poll).then_some(Self { _stop: Stop::Channel(stop) })
    }
}

fn spawn(run: impl FnOnce() + Send + 'static) -> bool {
    std::thread::Builder::new().name("primacy-watch".to_owned()).spawn(run).is_ok()
}

#[cfg(target_os = "linux")]
pub(crate) mod notify {
    use std::io;
    use std::mem::MaybeUninit;
    use std::os::fd::{AsFd, OwnedFd};
    use std::path::Path;
    use std::sync::Arc;

    use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd};
    use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};
    use rustix::io::Errno;

    /// Watched directories.
    #[derive(Debug)]
    pub(crate) struct Directories {
        inotify: OwnedFd,
        stop: Arc<OwnedFd>,
    }

    /// An event that is signalled when this is dropped.
    #[derive(Debug)]
    pub(crate) struct StopEvent(Arc<OwnedFd>);

    /// The reason for which a wait ended.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(crate) enum WaitEnd {
        /// There are events.
        Events,
        /// Nothing; the time has passed, or a signal came.
        Nothing,
        /// It is time to stop.
        Stop,
    }

    impl Drop for StopEvent {
        fn drop(&mut self) {
            let _ = rustix::io::write(&*self.0, &1_u64.to_ne_bytes());
        }
    }

    impl Directories {
        /// Returns a set without directories, and the event that ends its waits.
        pub(crate) fn new() -> io::Result<(Self, StopEvent)> {
            let inotify = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?;
            let stop = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
            Ok((Self { inotify, stop: Arc::clone(&stop) }, StopEvent(stop)))
        }

        /// Adds a directory; adding it again has no effect.
        pub(crate) fn add(&self, directory: &Path, interest: WatchFlags) -> Result<(), Errno> {
            inotify::add_watch(&self.inotify, directory, interest | WatchFlags::ONLYDIR).map(drop)
        }

        /// Waits until something has happened, for no longer than `timeout` where there is one.
        pub(crate) fn wait(&self, timeout: Option<&Timespec>) -> WaitEnd {
            let mut descriptors = [
                PollFd::new(&self.inotify, PollFlags::IN),
                PollFd::from_borrowed_fd(self.stop.as_fd(), PollFlags::IN),
            ];
            match rustix::event::poll(&mut descriptors, timeout) {
                Ok(0) | Err(Errno::INTR) => WaitEnd::Nothing,
                Ok(_) if descriptors[1].revents().is_empty() => WaitEnd::Events,
                Ok(_) | Err(_) => WaitEnd::Stop,
            }
        }

        /// Passes all pending events to `take`, each with the name of its file, which is empty for the directory
        /// itself.
        pub(crate) fn drain(&self, mut take: impl FnMut(&[u8], ReadFlags)) {
            let mut buffer = [MaybeUninit::uninit(); 4096];
            let mut events = inotify::Reader::new(&self.inotify, &mut buffer);
            while let Ok(event) = events.next() {
                take(event.file_name().map_or(&b""[..], |name| name.to_bytes()), event.events());
            }
        }
    }
}
