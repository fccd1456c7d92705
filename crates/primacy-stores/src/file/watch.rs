//! Detection of other processes' writes without constant polling.
//!
//! Two directories are watched with inotify: the election's, where a rename puts each new record, and the store's, where
//! the election's may come and go. Where inotify is not available, the record is polled every 50 ms.

use std::sync::Arc;

use super::directory::StoreDirectory;
use crate::watch::Watcher;

/// Starts the thread, which calls `look` when the record may have changed; it ends when `look` returns `false`, because
/// no handle is left. `None` if no thread could be started.
pub(super) fn watch(place: Arc<StoreDirectory>, look: impl Fn() -> bool + Send + 'static) -> Option<Watcher> {
    #[cfg(target_os = "linux")]
    if let Ok((watch, stop)) = notify::Watch::new(&place) {
        return Watcher::told(stop, move || watch.run(&look));
    }
    drop(place);
    Watcher::polling(look)
}

#[cfg(target_os = "linux")]
mod notify {
    use std::io;
    use std::path::PathBuf;

    use rustix::event::Timespec;
    use rustix::fs::inotify::WatchFlags;
    use rustix::io::Errno;

    use super::super::cell::NEXT;
    use super::super::directory::SUFFIX;
    use super::StoreDirectory;
    use crate::watch::POLL_INTERVAL;
    use crate::watch::notify::{Directories, StopEvent, WaitEnd};

    /// The events that are watched in the store's directory.
    const STORE: WatchFlags = WatchFlags::CREATE
        .union(WatchFlags::DELETE)
        .union(WatchFlags::MOVE)
        .union(WatchFlags::DELETE_SELF)
        .union(WatchFlags::MOVE_SELF);

    /// The events that are watched in the election's directory, where people may also write by hand.
    const ELECTION: WatchFlags = STORE.union(WatchFlags::MODIFY).union(WatchFlags::ATTRIB);

    /// The watched directories.
    pub(super) struct Watch {
        directories: Directories,
        folder_name: String,
        folder_path: PathBuf,
    }

    impl Watch {
        pub(super) fn new(place: &StoreDirectory) -> io::Result<(Self, StopEvent)> {
            let (directories, stop) = Directories::new()?;
            directories.add(place.path(), STORE)?;
            let (folder_name, folder_path) = (place.name().to_owned(), place.folder_path());
            Ok((Self { directories, folder_name, folder_path }, stop))
        }

        pub(super) fn run(self, look: &impl Fn() -> bool) {
            loop {
                // The watch begins before the record is read, so that no change is missed.
                let watched = self.directories.add(&self.folder_path, ELECTION);
                // If it does not exist, an event of the store's directory reports its creation.
                let is_blind = !matches!(watched, Ok(()) | Err(Errno::NOENT));
                if !look() || !self.wait(is_blind) {
                    return;
                }
            }
        }

        /// Waits until something has happened, or, where not everything can be watched, a moment. `false` when it is
        /// time to stop.
        fn wait(&self, is_blind: bool) -> bool {
            let moment = Timespec::try_from(POLL_INTERVAL).ok().filter(|_| is_blind);
            loop {
                match self.directories.wait(moment.as_ref()) {
                    WaitEnd::Stop => return false,
                    WaitEnd::Nothing if is_blind => return true,
                    WaitEnd::Events if self.is_news() => return true,
                    WaitEnd::Nothing | WaitEnd::Events => {}
                }
            }
        }

        /// Returns whether one of the events may be a change, and not the new record before its rename, or another
        /// election.
        fn is_news(&self) -> bool {
            let mut is_news = false;
            self.directories.drain(|name, _| {
                let is_another = name.ends_with(SUFFIX.as_bytes()) && name != self.folder_name.as_bytes();
                is_news |= name != NEXT.as_bytes() && !is_another;
            });
            is_news
        }
    }
}
