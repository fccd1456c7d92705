//! Noticing that somebody has written, without asking all the time.
//!
//! Two directories are watched with inotify: the election's, where a rename puts each new record, and the store's, where
//! the election's may come and go. Where inotify is not to be had, we look every 50 ms.

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
        if let Ok((watch, stop)) = notify::Watch::new(&place) {
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
    use std::io;
    use std::mem::MaybeUninit;
    use std::os::fd::{AsFd, OwnedFd};
    use std::path::PathBuf;
    use std::sync::Arc;

    use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd};
    use rustix::fs::inotify::{self, CreateFlags, WatchFlags};
    use rustix::io::Errno;

    use super::super::cell::NEXT;
    use super::{POLL_INTERVAL, Place};

    /// What comes and goes in the store's directory.
    const STORE: WatchFlags = WatchFlags::CREATE
        .union(WatchFlags::DELETE)
        .union(WatchFlags::MOVE)
        .union(WatchFlags::DELETE_SELF)
        .union(WatchFlags::MOVE_SELF)
        .union(WatchFlags::ONLYDIR);

    /// And in the election's, where people may also write by hand.
    const ELECTION: WatchFlags = STORE.union(WatchFlags::MODIFY).union(WatchFlags::ATTRIB);

    /// The watched directories.
    pub(super) struct Watch {
        inotify: OwnedFd,
        stop: Arc<OwnedFd>,
        folder_name: String,
        folder_path: PathBuf,
    }

    /// Rings when it is dropped.
    #[derive(Debug)]
    pub(super) struct StopEvent(Arc<OwnedFd>);

    impl Drop for StopEvent {
        fn drop(&mut self) {
            let _ = rustix::io::write(&*self.0, &1_u64.to_ne_bytes());
        }
    }

    impl Watch {
        pub(super) fn new(place: &Place) -> io::Result<(Self, StopEvent)> {
            let inotify = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?;
            inotify::add_watch(&inotify, place.path(), STORE)?;
            let stop = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
            let (folder_name, folder_path) = (place.name().to_owned(), place.folder_path());
            let watch = Self { inotify, stop: Arc::clone(&stop), folder_name, folder_path };
            Ok((watch, StopEvent(stop)))
        }

        pub(super) fn run(self, look: &impl Fn() -> bool) {
            loop {
                // Watched before it is looked at, so that nothing comes in between. Watching it again is nothing new.
                let watched = inotify::add_watch(&self.inotify, &self.folder_path, ELECTION);
                if !look() {
                    return;
                }
                // Where there is none, the store's directory tells when it comes.
                let is_blind = !matches!(watched, Ok(_) | Err(Errno::NOENT));
                match self.wait(is_blind) {
                    Some(()) => {}
                    None => return,
                }
            }
        }

        /// Waits until something has happened, or, where not everything can be watched, a moment; `None` when it is
        /// time to stop.
        fn wait(&self, is_blind: bool) -> Option<()> {
            let moment = Timespec::try_from(POLL_INTERVAL).ok().filter(|_| is_blind);
            loop {
                let mut descriptors = [
                    PollFd::new(&self.inotify, PollFlags::IN),
                    PollFd::from_borrowed_fd(self.stop.as_fd(), PollFlags::IN),
                ];
                match rustix::event::poll(&mut descriptors, moment.as_ref()) {
                    Ok(0) => return Some(()),
                    Err(Errno::INTR) => continue,
                    Ok(_) => {}
                    Err(_) => return None,
                }
                if !descriptors[1].revents().is_empty() {
                    return None;
                }
                if self.drain() {
                    return Some(());
                }
            }
        }

        /// Takes all events that are there; whether one of them may be a change.
        fn drain(&self) -> bool {
            let mut buffer = [MaybeUninit::uninit(); 4096];
            let mut events = inotify::Reader::new(&self.inotify, &mut buffer);
            let mut is_news = false;
            while let Ok(event) = events.next() {
                let name = event.file_name().map(|name| name.to_bytes());
                let is_other = match name {
                    // The new record before its rename, or another election.
                    Some(name) => name == NEXT.as_bytes() || self.is_other_folder(name),
                    None => false,
                };
                is_news |= !is_other;
            }
            is_news
        }

        fn is_other_folder(&self, name: &[u8]) -> bool {
            name.ends_with(super::super::place::SUFFIX.as_bytes()) && name != self.folder_name.as_bytes()
        }
    }
}
