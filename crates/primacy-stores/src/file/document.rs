//! [`FileDocument`]: bytes of any program in a directory, replaced like the record of an election.

use std::path::Path;
use std::sync::Arc;

use primacy_core::election::lease::Version;
use tokio::sync::oneshot;

use super::cell::{self, Content};
use super::directory::StoreDirectory;
use crate::document::{self, Document, LENGTH_MAX, check_length};
use crate::election_name::check_election;
use crate::open_error::OpenError;
use crate::ownership::Sharing;
use crate::register::{Pending, ReadError, SetError};

/// A file in a directory, as a [`Document`]: `NAME.election/record`, whose first line belongs to the store, and whose rest are
/// the bytes. It promises what the store `file` promises, to the processes of one machine.
///
/// Each request runs on a thread of its own, because file systems block.
#[derive(Clone, Debug)]
pub struct FileDocument {
    place: Arc<StoreDirectory>,
}

impl FileDocument {
    /// Opens the document `name` in `directory`, which is made if there is none. Nothing is written into it.
    ///
    /// # Errors
    /// [`OpenError`], as for the store `file`.
    pub async fn open(directory: &Path, name: &str) -> Result<Self, OpenError> {
        check_election(name)?;
        let (directory, name) = (directory.to_owned(), name.to_owned());
        let opened =
            on_a_thread(move || StoreDirectory::open(&directory, Sharing::default(), &name, true)).await;
        let place = opened.unwrap_or_else(|why| Err(OpenError::Unavailable { why }))?;
        Ok(Self { place: Arc::new(place.with_length_max(LENGTH_MAX)) })
    }
}

impl Document for FileDocument {
    fn read(&self) -> Pending<'_, Result<Option<document::Content>, ReadError>> {
        let place = Arc::clone(&self.place);
        Box::pin(async move {
            let read = move || match place.enter()? {
                None => Ok(Content::Absent),
                Some(folder) => {
                    let content = cell::read(&folder)?;
                    // Its writer may have been killed before its flush, and no node may rely on a record that a power cut could remove.
                    folder.flush()?;
                    Ok(content)
                }
            };
            let content = on_a_thread(read).await.unwrap_or_else(Err);
            match content.map_err(|why| ReadError::Unavailable { why })? {
                Content::Absent => Ok(None),
                Content::Foreign { error, .. } => Err(ReadError::Malformed { error }),
                Content::Cell { version, mut bytes } => {
                    // The final line feed is the store's.
                    bytes.truncate(bytes.len() - usize::from(bytes.ends_with(b"\n")));
                    Ok(Some((bytes, version)))
                }
            }
        })
    }

    fn compare_and_set<'a>(
        &'a self,
        expect: Option<&'a Version>,
        bytes: &'a [u8],
    ) -> Pending<'a, Result<Version, SetError>> {
        Box::pin(async move {
            check_length(bytes)?;
            let (place, expect, bytes) = (Arc::clone(&self.place), expect.cloned(), bytes.to_vec());
            let write = move || cell::compare_and_set(&place, expect.as_ref(), &bytes, &mut |_| Ok(()));
            on_a_thread(write).await.unwrap_or_else(|why| Err(SetError::Unknown { why }))
        })
    }
}

/// Runs blocking work on another thread. Work that was begun is finished, whether or not its caller still waits for it.
async fn on_a_thread<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, String> {
    let (reply, answer) = oneshot::channel();
    let work = move || drop(reply.send(work()));
    let started = std::thread::Builder::new().name("primacy-document".to_owned()).spawn(work);
    started.map_err(|error| format!("no thread could be started for the file: {error}"))?;
    answer.await.map_err(|_| "the thread of the file has stopped".to_owned())
}
