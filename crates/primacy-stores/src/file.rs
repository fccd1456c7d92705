//! The record of an election in a file of a directory: for the processes of one machine.
//!
//! Promises  linearizable, and durable when a write returns or a read shows it; [`changed`](Register::changed)
//!           within [`CHANGE_BOUND`], as a rule within a millisecond, in other processes too.
//! Assumes   a local file system, one machine, and that no other program writes into the directory.
//! Leaves    content that is not a record of this store unchanged.
//!
//! Each election has a subdirectory, named after it, with the file `record`. A write is made under an exclusive `flock`
//! of the *election's directory*: there is no lock file that could be deleted, and a directory that was removed takes
//! no new file. The record is replaced by a rename, so a reader needs no lock and never finds half of it.
//!
//! A version is a count and a random number for each write. So it is never used again, whatever was deleted, restored
//! or restarted meanwhile, and there is no counter that could be lost.
//!
//! The store works on a thread of its own, because files block. Each request opens what it needs: a `flock` belongs to
//! the open file, so threads and handles of one process exclude each other as processes do.

mod cell;
mod directory;
mod document;
#[cfg(test)]
mod tests;
mod watch;

use std::path::Path;
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use primacy_core::election::lease::{Record, Version};
use tokio::sync::watch as channel;

use self::cell::{Content, Mark};
use self::directory::StoreDirectory;
pub use self::document::FileDocument;
use crate::attempts::Attempts;
use crate::file_system;
use crate::mutex::lock;
use crate::open_error::OpenError;
use crate::opening::{Address, Opened, Opening};
use crate::ownership::Sharing;
use crate::record;
use crate::register::{Pending, ReadError, Register, SetError};
use crate::store_thread::{Reply, StoreThread, THREAD_STOPPED};

/// The longest time until [`changed`](Register::changed) resolves, on a machine that lets its threads run.
pub const CHANGE_BOUND: Duration = Duration::from_secs(1);

/// The form of the URL, for errors.
const FORM: &str = "file:DIRECTORY or file:///DIRECTORY";

/// A handle on one election in one directory.
#[derive(Debug)]
pub struct FileRegister {
    thread: StoreThread<Request, StoreDirectory, Mark>,
    /// The version last read or written through this handle.
    seen: Mutex<Mark>,
}

#[derive(Debug)]
enum Request {
    Read {
        reply: Reply<Result<Content, String>>,
    },
    CompareAndSet {
        expect: Option<Version>,
        bytes: Vec<u8>,
        /// The attempts of the caller, which may have stopped waiting for the reply.
        attempts: Attempts,
        reply: Reply<Result<Version, SetError>>,
    },
    Look,
}

/// The state that the store's thread owns.
struct Files {
    place: Arc<StoreDirectory>,
    latest: channel::Sender<Mark>,
    /// The version that is known to be flushed to the disk.
    durable: Mark,
}

/// Opens the election `election` in the directory at `path`, which is made if there is none; its parent must exist. No
/// record is made.
///
/// # Errors
/// [`OpenError::Refused`] if the directory must not be used, [`OpenError::Unavailable`] if it could not be opened.
pub async fn open(path: &Path, election: &str) -> Result<FileRegister, OpenError> {
    start(path, Sharing::default(), election, true).await
}

/// Like [`open`], but a missing directory is an error. Nothing is written.
///
/// # Errors
/// As for [`open`].
pub async fn open_existing(path: &Path, election: &str) -> Result<FileRegister, OpenError> {
    start(path, Sharing::default(), election, false).await
}

/// Opens `file:DIRECTORY`.
pub(crate) fn open_url(address: Address) -> Opening {
    Box::pin(async move {
        let (path, sharing) = file_system::path_of_url(&address.rest, FORM)?;
        let register: Arc<dyn Register> =
            Arc::new(start(&path, sharing, &address.election, address.create).await?);
        Ok(Opened::Register(register))
    })
}

async fn start(
    path: &Path,
    sharing: Sharing,
    election: &str,
    create: bool,
) -> Result<FileRegister, OpenError> {
    let (path, election) = (path.to_owned(), election.to_owned());
    let open = move || {
        let (files, latest) = Files::open(&path, sharing, &election, create)?;
        let place = Arc::clone(&files.place);
        Ok((files, place, latest))
    };
    let thread = StoreThread::start("primacy-file", open, Files::serve).await?;
    let seen = Mutex::new(thread.latest());
    Ok(FileRegister { thread, seen })
}

impl FileRegister {
    fn see(&self, mark: Mark) {
        *lock(&self.seen) = mark;
    }

    fn has_seen(&self, mark: &Mark) -> bool {
        *lock(&self.seen) == *mark
    }
}

impl Register for FileRegister {
    fn read(&self) -> Pending<'_, Result<Option<(Record, Version)>, ReadError>> {
        Box::pin(async {
            let answer = self.thread.ask(|reply| Request::Read { reply }).await;
            let content = answer.unwrap_or_else(|| Err(THREAD_STOPPED.to_owned()));
            let content = content.map_err(|why| ReadError::Unavailable { why })?;
            // Noted here and not by the thread, because a read that was dropped has returned no version; and before the
            // record is decoded, because an invalid record must not be reported as a change again and again.
            self.see(content.mark());
            match content {
                Content::Absent => Ok(None),
                Content::Foreign { error, .. } => Err(ReadError::Malformed { error }),
                Content::Cell { version, bytes } => {
                    let record = record::decode(&bytes).map_err(|error| ReadError::Malformed { error })?;
                    Ok(Some((record, version)))
                }
            }
        })
    }

    fn compare_and_set<'a>(
        &'a self,
        expect: Option<&'a Version>,
        record: &'a Record,
    ) -> Pending<'a, Result<Version, SetError>> {
        Box::pin(async move {
            let (bytes, expect) = (record::encode(record)?, expect.cloned());
            let attempts = Attempts::current();
            let request = |reply| Request::CompareAndSet { expect, bytes, attempts, reply };
            let Some(result) = self.thread.ask(request).await else {
                return Err(SetError::Unknown { why: THREAD_STOPPED.to_owned() });
            };
            let version = result?;
            self.see(Mark::Version(version.clone()));
            Ok(version)
        })
    }

    fn changed(&self) -> Pending<'_, ()> {
        let watch = |place, requests: mpsc::Sender<_>| {
            watch::watch(place, move || requests.send(Request::Look).is_ok())
        };
        Box::pin(self.thread.changed(watch, |mark| !self.has_seen(mark)))
    }
}

impl Files {
    fn open(
        path: &Path,
        sharing: Sharing,
        election: &str,
        create: bool,
    ) -> Result<(Self, channel::Receiver<Mark>), OpenError> {
        let place = Arc::new(StoreDirectory::open(path, sharing, election, create)?);
        let (latest, receiver) = channel::channel(Mark::Absent);
        let files = Self { place, latest, durable: Mark::Absent };
        files.look();
        Ok((files, receiver))
    }

    /// Answers requests until no sender is left.
    fn serve(mut self, requests: &mpsc::Receiver<Request>) {
        while let Ok(request) = requests.recv() {
            // A failure to reply is ignored: the caller has stopped waiting.
            match request {
                Request::Read { reply } => drop(reply.send(self.read())),
                Request::CompareAndSet { expect, bytes, attempts, reply } => {
                    let write = || self.compare_and_set(expect.as_ref(), &bytes);
                    let written = attempts.observe_here(write);
                    drop(reply.send(written));
                }
                Request::Look => self.look(),
            }
        }
    }

    fn publish(&self, mark: Mark) {
        self.latest.send_if_modified(|latest| {
            let is_news = *latest != mark;
            *latest = mark;
            is_news
        });
    }

    /// Finds out whether the record has changed.
    fn look(&self) {
        // A record that cannot be read now is read on the next request, whose caller then gets the error.
        if let Ok(Some(folder)) = self.place.enter()
            && let Ok(content) = cell::read(&folder)
        {
            self.publish(content.mark());
        } else if let Ok(None) = self.place.enter() {
            self.publish(Mark::Absent);
        }
    }

    fn read(&mut self) -> Result<Content, String> {
        let content = match self.place.enter()? {
            None => Content::Absent,
            Some(folder) => {
                let content = cell::read(&folder)?;
                let mark = content.mark();
                // Its writer may have been killed before its flush. If a node relied on a record that a power cut then
                // removed, its token would be given a second time.
                if mark != self.durable {
                    folder.flush()?;
                    self.durable = mark;
                }
                content
            }
        };
        self.publish(content.mark());
        Ok(content)
    }

    fn compare_and_set(&mut self, expect: Option<&Version>, bytes: &[u8]) -> Result<Version, SetError> {
        let version = cell::compare_and_set(&self.place, expect, bytes, &mut |_| Ok(()))?;
        self.durable = Mark::Version(version.clone());
        self.publish(self.durable.clone());
        Ok(version)
    }
}
