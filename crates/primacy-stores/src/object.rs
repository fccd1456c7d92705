//! The record of an election in one object of an object store: for all nodes that reach the same bucket.
//!
//! Promises  linearizable, and durable when a write returns, as far as the store is; [`changed`](Register::changed) within
//!           [`CHANGE_BOUND`], by polling.
//! Assumes   a store with consistent reads and conditional writes, which are tested before anything is written.
//! Leaves    all other objects as they are.
//!
//! This is the recipe of the stores [`s3`](crate::s3), [`gs`](crate::gs) and [`az`](crate::az). It also accepts a program's own
//! [`ObjectStore`].
//!
//! ```text
//! primacy-object 1 0123456789abcdef0123456789abcdef nightly
//! {"primacy":1,"token":1763719200124,…}
//! ```
//!
//! The first line has the version of this format, a number that is drawn for each write, and the election. The number has two uses. The
//! ETag of S3 is a checksum of the content, so that equal contents would have equal versions; the number makes all contents different. And
//! a write whose answer is lost or doubtful is recognised by it when the object is read back.

mod bucket;
#[cfg(any(feature = "s3", feature = "gs", feature = "az"))]
pub(crate) mod connect;
#[cfg(any(feature = "s3", feature = "gs", feature = "az"))]
pub(crate) mod credentials;
mod document;
#[cfg(any(feature = "s3", feature = "gs", feature = "az"))]
mod reread;

use std::sync::{Arc, Mutex};
use std::time::Duration;

pub use object_store::{self, ObjectStore};
use primacy_core::election::lease::{Record, Version};
use tokio::sync::watch as channel;
use tokio::time::Instant;

use self::bucket::Bucket;
pub use self::document::{ObjectDocument, StaleWrite};
#[cfg(any(feature = "s3", feature = "gs", feature = "az"))]
use crate::document::Document;
use crate::election_name::check_election;
use crate::mutex::lock;
use crate::open_error::OpenError;
use crate::record::{self, LENGTH_MAX, RecordError};
use crate::register::{Pending, ReadError, Register, SetError};
#[cfg(any(feature = "s3", feature = "gs", feature = "az"))]
use crate::shared_connections::Share;

/// The interval at which a waiter reads the version. It is a request that costs money: at one a second, about one US dollar a
/// month.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// The longest time until [`changed`](Register::changed) resolves where the store answers within a second. An object store sends no
/// notifications, so a waiter polls once a second.
pub const CHANGE_BOUND: Duration = Duration::from_secs(2);

/// The beginning of the first line.
const MAGIC: &str = "primacy-object";
/// The version of the format that is written, and the highest that is understood.
const FORMAT: u64 = 1;
/// Room for the first line.
const LINE_LENGTH_MAX: usize = 512;

/// A handle on one election in an object store.
#[derive(Debug)]
pub struct ObjectRegister {
    document: ObjectDocument,
    election: String,
    /// The version last read or written through this handle.
    seen: Mutex<Seen>,
    /// The newest version that this handle has read or written.
    latest: channel::Sender<Mark>,
    /// Keeps the connection available for other elections to share.
    #[cfg(any(feature = "s3", feature = "gs", feature = "az"))]
    _share: Option<Share<Arc<Bucket>>>,
}

/// The version of the present content; `None` where there is none.
type Mark = Option<Version>;

#[derive(Debug)]
struct Seen {
    mark: Mark,
    /// The time of the last request.
    asked_at: Instant,
}

impl ObjectRegister {
    /// Opens the election `election` in `store`, below `prefix` (parts with `/` between them; empty for the top), and tries whether the
    /// store honours conditional writes, with a dozen requests for the object `primacy.probe` there: writes whose conditions cannot hold,
    /// and then concurrent writes that name the same version, of which only one may succeed.
    ///
    /// The store must send each write once: build it with [`RetryConfig::max_retries`](object_store::RetryConfig::max_retries) 0. A write
    /// that is sent again can conflict with its own first sending. The number then identifies it, unless another node has overwritten it
    /// meanwhile.
    ///
    /// # Errors
    /// [`OpenError::Refused`] of a store that ignores conditions, compares and writes in two steps, or refuses the
    /// credentials; [`OpenError::Unavailable`] of one that was not reached.
    pub async fn open(store: Arc<dyn ObjectStore>, prefix: &str, election: &str) -> Result<Self, OpenError> {
        check_election(election)?;
        let document = ObjectDocument::of_election(Arc::new(Bucket::new(store, prefix)?), election);
        document.probe().await?;
        Ok(Self::new(document, election))
    }

    fn new(document: ObjectDocument, election: &str) -> Self {
        Self {
            document,
            election: election.to_owned(),
            seen: Mutex::new(Seen { mark: None, asked_at: Instant::now() }),
            latest: channel::Sender::new(None),
            #[cfg(any(feature = "s3", feature = "gs", feature = "az"))]
            _share: None,
        }
    }

    /// Opens an election over a connection that elections share. With `create` false nothing is written: the store is tried
    /// before the first write then.
    #[cfg(any(feature = "s3", feature = "gs", feature = "az"))]
    pub(crate) async fn open_shared(
        share: Share<Arc<Bucket>>,
        election: &str,
        create: bool,
    ) -> Result<Self, OpenError> {
        let document = ObjectDocument::of_election(Arc::clone(&share), election);
        if create {
            document.probe().await?;
        }
        // Fails at once if the credentials, their permissions or the network do not allow a read.
        match document.read().await {
            Ok(_) | Err(ReadError::Malformed { .. }) => {}
            Err(ReadError::Unavailable { why }) => return Err(document.refusal(why)),
        }
        Ok(Self { _share: Some(share), ..Self::new(document, election) })
    }

    fn see(&self, mark: &Mark, asked_at: Instant) {
        let mut seen = lock(&self.seen);
        *seen = Seen { mark: mark.clone(), asked_at };
        drop(seen);
        self.publish(mark);
    }

    fn publish(&self, mark: &Mark) {
        self.latest.send_if_modified(|latest| {
            let is_news = latest != mark;
            latest.clone_from(mark);
            is_news
        });
    }

    /// Returns whether `mark` was seen already, and when it is time to ask again.
    fn has_seen(&self, mark: &Mark) -> (bool, Instant) {
        let seen = lock(&self.seen);
        (seen.mark == *mark, seen.asked_at + LOOK_INTERVAL)
    }

    /// Asks the store for the version of the present content.
    async fn look(&self) {
        lock(&self.seen).asked_at = Instant::now();
        // An error is ignored: the store is asked again.
        if let Ok(mark) = self.document.version().await {
            self.publish(&mark);
        }
    }
}

impl Register for ObjectRegister {
    fn read(&self) -> Pending<'_, Result<Option<(Record, Version)>, ReadError>> {
        Box::pin(async {
            let asked_at = Instant::now();
            let found = self.document.read_at_most(LINE_LENGTH_MAX + LENGTH_MAX).await?;
            // Before the record is decoded, because an invalid record must not be reported as a change again and again.
            self.see(&found.as_ref().map(|(_, version)| version.clone()), asked_at);
            let Some((text, version)) = found else { return Ok(None) };
            let record = parse(&text, &self.election).and_then(record::decode);
            Ok(Some((record.map_err(|error| ReadError::Malformed { error })?, version)))
        })
    }

    fn compare_and_set<'a>(
        &'a self,
        expect: Option<&'a Version>,
        record: &'a Record,
    ) -> Pending<'a, Result<Version, SetError>> {
        Box::pin(async move {
            let bytes = record::encode(record)?;
            let text = format(&self.election, &bytes).map_err(|why| SetError::Unavailable { why })?;
            let asked_at = Instant::now();
            let version = self.document.write(expect, text).await?;
            self.see(&Some(version.clone()), asked_at);
            Ok(version)
        })
    }

    fn changed(&self) -> Pending<'_, ()> {
        let mut latest = self.latest.subscribe();
        Box::pin(async move {
            loop {
                let (is_seen, due) = self.has_seen(&latest.borrow_and_update());
                if !is_seen {
                    return;
                }
                // A request of another task through this handle that finds a change wakes all waiters.
                if tokio::time::timeout_at(due, latest.changed()).await.is_ok() {
                    return;
                }
                self.look().await;
                if latest.has_changed().unwrap_or(false) {
                    return;
                }
            }
        })
    }
}

/// The text of an object: the first line, with a number that no other write has, and the record.
fn format(election: &str, bytes: &[u8]) -> Result<Vec<u8>, String> {
    let number = draw_number()?;
    let mut text = format!("{MAGIC} {FORMAT} {number:032x} {election}\n").into_bytes();
    text.extend_from_slice(bytes);
    text.push(b'\n');
    Ok(text)
}

/// A number that no other write has.
fn draw_number() -> Result<u128, String> {
    let mut number = [0; 16];
    getrandom::fill(&mut number).map_err(|error| format!("no random number could be drawn: {error}"))?;
    Ok(u128::from_ne_bytes(number))
}

/// Takes the record's bytes out of an object.
fn parse<'a>(text: &'a [u8], election: &str) -> Result<&'a [u8], RecordError> {
    let foreign = |why: &str| RecordError::NotJson { why: why.to_owned() };
    let line_end = text.iter().position(|byte| *byte == b'\n');
    let line_end = line_end.ok_or_else(|| foreign("it has no first line"))?;
    let line = std::str::from_utf8(&text[..line_end]).map_err(|_| foreign("its first line is no text"))?;
    let mut words = line.splitn(4, ' ');
    let (magic, format) = (words.next(), words.next().and_then(|format| format.parse::<u64>().ok()));
    let format = format.filter(|_| magic == Some(MAGIC));
    match format.ok_or_else(|| foreign("its first line is not that of an object of Primacy"))? {
        0 => return Err(foreign("its first line names the format 0")),
        FORMAT => {}
        found => return Err(RecordError::LaterFormat { found }),
    }
    if words.next().is_none_or(str::is_empty) {
        return Err(foreign("its first line has no number of the write"));
    }
    if words.next() != Some(election) {
        return Err(foreign("its first line names another election"));
    }
    Ok(&text[line_end + 1..])
}

#[cfg(test)]
mod tests;
