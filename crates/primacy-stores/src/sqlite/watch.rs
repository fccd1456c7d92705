//! Detection of other processes' writes without constant polling.
//!
//! The database's directory is watched with inotify. There are two signals:
//!
//! - **The bell.** A process that writes a record through this store touches the database file after the commit. Then
//!   one read is enough, and it is made at once.
//! - **A write.** Programs that write with SQL of their own, or that are killed between the commit and the bell, cause
//!   only this. It comes *before* the commit takes effect, which happens in shared memory without any signal, so one
//!   read would be too early. The version is polled for a while, at growing intervals.
//!
//! Where inotify is not available, the version is polled every 50 ms.

use std::sync::Arc;

use super::database_file::DatabaseFile;
use crate::watch::Watcher;

/// Starts the thread, which calls `look` when the record may have changed; it ends when `look` returns `false`, because
/// no handle is left. `None` if no thread could be started.
pub(super) fn watch(place: Arc<DatabaseFile>, look: impl Fn() -> bool + Send + 'static) -> Option<Watcher> {
    #[cfg(target_os = "linux")]
    if let Ok((watch, stop)) = notify::Watch::new(place.path()) {
        return Watcher::told(stop, move || watch.run(&look));
    }
    drop(place);
    Watcher::polling(look)
}

#[cfg(target_os = "linux")]
mod notify {
    use std::ffi::OsString;
    use std::io;
    use std::os::unix::ffi::{OsStrExt, OsStringExt};
    use std::path::Path;
    use std::time::{Duration, Instant};

    use rustix::event::Timespec;
    use rustix::fs::inotify::{ReadFlags, WatchFlags};

    use crate::watch::notify::{Directories, StopEvent, WaitEnd};

    /// The time after a write for which its commit is polled for: longer than a busy disk takes to flush, which can be
    /// seconds.
    const HASTE_DURATION: Duration = Duration::from_secs(15);
    const HASTE_WAIT_MIN: Duration = Duration::from_millis(1);
    const HASTE_WAIT_MAX: Duration = Duration::from_millis(200);

    /// A watched directory.
    pub(super) struct Watch {
        directory: Directories,
        /// The names of the database and of its two logs.
        database: OsString,
        logs: [OsString; 2],
    }

    /// The strongest event in the directory.
    #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
    enum Signal {
        Nothing,
        Write,
        Bell,
    }

    /// The schedule of polls after a write, at growing intervals.
    struct Haste {
        wait: Duration,
        look_at: Instant,
        until: Instant,
    }

    impl Watch {
        pub(super) fn new(database: &Path) -> io::Result<(Self, StopEvent)> {
            let (Some(parent), Some(name)) = (database.parent(), database.file_name()) else {
                return Err(io::ErrorKind::InvalidInput.into());
            };
            let (directory, stop) = Directories::new()?;
            let interest = WatchFlags::MODIFY
                | WatchFlags::ATTRIB
                | WatchFlags::CREATE
                | WatchFlags::DELETE
                | WatchFlags::MOVE;
            directory.add(parent, interest)?;
            let logs = ["-wal", "-journal"]
                .map(|suffix| OsString::from_vec([name.as_bytes(), suffix.as_bytes()].concat()));
            Ok((Self { directory, database: name.to_owned(), logs }, stop))
        }

        pub(super) fn run(self, look: &impl Fn() -> bool) {
            // One read finds commits from before the watch began; polling finds writes that are not committed yet.
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

        /// Waits for an event or the time of the next poll; `None` when the thread must stop.
        fn wait(&self, haste: Option<&Haste>) -> Option<Signal> {
            match self.directory.wait(haste.map(Haste::timeout).as_ref()) {
                WaitEnd::Stop => None,
                WaitEnd::Nothing => Some(Signal::Nothing),
                WaitEnd::Events => Some(self.drain()),
            }
        }

        /// Takes all events that are there; the strongest one counts.
        fn drain(&self) -> Signal {
            let mut strongest = Signal::Nothing;
            self.directory.drain(|name, flags| {
                let is_database = name == self.database.as_bytes();
                let signal = if flags.intersects(ReadFlags::QUEUE_OVERFLOW | ReadFlags::IGNORED) {
                    // Events were lost, or the directory was; the next read shows which.
                    Signal::Bell
                } else if is_database && !flags.contains(ReadFlags::MODIFY) {
                    Signal::Bell
                } else if is_database || self.logs.iter().any(|log| log.as_bytes() == name) {
                    Signal::Write
                } else {
                    Signal::Nothing
                };
                strongest = strongest.max(signal);
            });
            strongest
        }
    }

    impl Haste {
        /// Further writes make the polling longer, not more frequent.
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
