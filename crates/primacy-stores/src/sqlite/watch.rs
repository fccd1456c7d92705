//! Noticing that somebody has written, without asking all the time.
//!
//! The database's directory is watched with inotify. There are two signals:
//!
//! - **The bell.** Whoever writes a record through this store touches the database file after the commit. Then
//!   one look is enough, and it comes at once.
//! - **A write.** Programs that write with SQL of their own, or that die between the commit and the bell, leave
//!   only this. It comes *before* the commit counts, which happens in shared memory without any signal, so
//!   looking once would be too early. We look again and again for a while, ever more slowly.
//!
//! Where inotify is not to be had, we look every 50 ms.

use std::sync::{Arc, mpsc};
use std::time::Duration;

use super::place::Place;

/// How often to look where nothing tells us.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// A thread that asks for a look when there may be something to see. Dropping it stops it.
#[derive(Debug)]
pub(super) struct Watcher {
    _stop: Stop,
}

#[derive(Debug)]
enum Stop {
    #[cfg(target_os = "linux")]
    Event(#[expect(dead_code, reason = "rung when it is dropped")] notify::StopEvent),
    Channel(#[expect(dead_code, reason = "closed when it is dropped")] mpsc::Sender<()>),
}

impl Watcher {
    /// Starts the thread; `look` says whether anybody still cares. `None` if no thread could be started.
    pub(super) fn start(place: Arc<Place>, look: impl Fn() -> bool + Send + 'static) -> Option<Self> {
        let builder = std::thread::Builder::new().name("primacy-watch".to_owned());
        #[cfg(target_os = "linux")]
        if let Ok((watch, stop)) = notify::Watch::new(place.path()) {
            builder.spawn(move || watch.run(&look)).ok()?;
            return Some(Self { _stop: Stop::Event(stop) });
        }
        drop(place);
        let (stop, stopped) = mpsc::channel();
        builder.spawn(move || poll(&stopped, &look)).ok()?;
        Some(Self { _stop: Stop::Channel(stop) })
    }
}

/// Looks at a steady pace.
fn poll(stopped: &mpsc::Receiver<()>, look: &impl Fn() -> bool) {
    while look() && stopped.recv_timeout(POLL_INTERVAL) == Err(mpsc::RecvTimeoutError::Timeout) {}
}

#[cfg(target_os = "linux")]
mod notify {
    use std::ffi::OsString;
    use std::io;
    use std::mem::MaybeUninit;
    use std::os::fd::OwnedFd;
    use std::os::unix::ffi::{OsStrExt, OsStringExt};
    use std::path::Path;
    use std::sync::Arc;
    use std::time::{Duration, Instant};

    use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd};
    use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};
    use rustix::io::Errno;

    /// How long after a write we look for its commit: longer than a busy disk takes to flush, which can be seconds.
    const HASTE_DURATION: Duration = Duration::from_secs(15);
    const HASTE_WAIT_MIN: Duration = Duration::from_millis(1);
    const HASTE_WAIT_MAX: Duration = Duration::from_millis(200);

    /// A watched directory.
    pub(super) struct Watch {
        inotify: OwnedFd,
        stop: Arc<OwnedFd>,
        /// The names of the database and of its two logs.
        database: OsString,
        logs: [OsString; 2],
    }

    /// Rings when it is dropped.
    #[derive(Debug)]
    pub(super) struct StopEvent(Arc<OwnedFd>);

    /// What has happened in the directory.
    #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
    enum Signal {
        Nothing,
        Write,
        Bell,
    }

    /// When to look after a write: soon, and then ever more slowly.
    struct Haste {
        wait: Duration,
        look_at: Instant,
        until: Instant,
    }

    impl Drop for StopEvent {
        fn drop(&mut self) {
            let _ = rustix::io::write(&*self.0, &1_u64.to_ne_bytes());
        }
    }

    impl Watch {
        pub(super) fn new(database: &Path) -> io::Result<(Self, StopEvent)> {
            let (Some(directory), Some(name)) = (database.parent(), database.file_name()) else {
                return Err(io::ErrorKind::InvalidInput.into());
            };
            let inotify = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?;
            let interest = WatchFlags::MODIFY
                | WatchFlags::ATTRIB
                | WatchFlags::CREATE
                | WatchFlags::DELETE
                | WatchFlags::MOVE
                | WatchFlags::ONLYDIR;
            inotify::add_watch(&inotify, directory, interest)?;
            let stop = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
            let logs = ["-wal", "-journal"]
                .map(|suffix| OsString::from_vec([name.as_bytes(), suffix.as_bytes()].concat()));
            let watch = Self { inotify, stop: Arc::clone(&stop), database: name.to_owned(), logs };
            Ok((watch, StopEvent(stop)))
        }

        pub(super) fn run(self, look: &impl Fn() -> bool) {
            // What was committed before the watch began is found by looking once; what was only written, by haste.
            let mut wanted = look();
            let mut haste = Some(Haste::prolong(None, Instant::now()));
            while wanted {
                let Some(signal) = self.wait(haste.as_ref()) else { return };
                let now = Instant::now();
                if signal == Signal::Write {
                    haste = Some(Haste::prolong(haste, now));
                }
                if signal == Signal::Bell {
                    wanted = look();
                }
                if let Some(hurry) = haste.take_if(|hurry| hurry.look_at <= now) {
                    wanted = wanted && look();
                    haste = hurry.slower(now);
                }
            }
        }

        /// Waits until something has happened or it is time to look; `None` when it is time to stop.
        fn wait(&self, haste: Option<&Haste>) -> Option<Signal> {
            let mut descriptors = [
                PollFd::new(&self.inotify, PollFlags::IN),
                PollFd::from_borrowed_fd(std::os::fd::AsFd::as_fd(&*self.stop), PollFlags::IN),
            ];
            let timeout = haste.map(Haste::timeout);
            match rustix::event::poll(&mut descriptors, timeout.as_ref()) {
                Ok(0) | Err(Errno::INTR) => return Some(Signal::Nothing),
                Ok(_) => {}
                Err(_) => return None,
            }
            if !descriptors[1].revents().is_empty() {
                return None;
            }
            Some(self.drain())
        }

        /// Takes all events that are there; the strongest one counts.
        fn drain(&self) -> Signal {
            let mut buffer = [MaybeUninit::uninit(); 4096];
            let mut events = inotify::Reader::new(&self.inotify, &mut buffer);
            let mut strongest = Signal::Nothing;
            while let Ok(event) = events.next() {
                let name = event.file_name().map_or(&b""[..], |name| name.to_bytes());
                let flags = event.events();
                let is_database = name == self.database.as_bytes();
                let signal = if flags.intersects(ReadFlags::QUEUE_OVERFLOW | ReadFlags::IGNORED) {
                    // Events were lost, or the directory was; whoever reads will learn what is the case.
                    Signal::Bell
                } else if is_database && !flags.contains(ReadFlags::MODIFY) {
                    Signal::Bell
                } else if is_database || self.logs.iter().any(|log| log.as_bytes() == name) {
                    Signal::Write
                } else {
                    Signal::Nothing
                };
                strongest = strongest.max(signal);
            }
            strongest
        }
    }

    impl Haste {
        /// More writes do not make us look more often, only longer.
        fn prolong(haste: Option<Self>, now: Instant) -> Self {
            let (wait, look_at) =
                haste.map_or((HASTE_WAIT_MIN, now + HASTE_WAIT_MIN), |haste| (haste.wait, haste.look_at));
            Self { wait, look_at, until: now + HASTE_DURATION }
        }

        fn slower(self, now: Instant) -> Option<Self> {
            let wait = (self.wait * 2).min(HASTE_WAIT_MAX);
            let next = Self { wait, look_at: now + wait, until: self.until };
            (next.look_at <= self.until).then_some(next)
        }

        fn timeout(&self) -> Timespec {
            let left = self.look_at.saturating_duration_since(Instant::now());
            Timespec::try_from(left).unwrap_or(Timespec { tv_sec: 1, tv_nsec: 0 })
        }
    }
}
