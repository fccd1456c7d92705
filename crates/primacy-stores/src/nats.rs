//! The record of an election under a key of a JetStream key-value bucket: for processes that share a NATS cluster.
//!
//! Promises  compare-and-set by the bucket's stream, and as durable when a write returns as the stream is: on the disks of
//!           a majority of its replicas, as far as the servers flush (`sync_interval: always`);
//!           [`changed`](Register::changed) within [`CHANGE_BOUND`], as a rule at once.
//! Assumes   that the bucket is not deleted, and that no server comes back with less than it had acknowledged.
//! Leaves    every other key as it is. No clock of the servers takes part, and nothing expires.
//!
//! The version of a record is its sequence number in the stream. Each write names the one that it replaces
//! (`Nats-Expected-Last-Subject-Sequence`), and is sent once: nothing is ever repeated. The layout is that of NATS's own
//! key-value buckets, so `nats kv get` shows the record. A key that was deleted or purged has a marker in its place, which
//! is absence, and is named by the write that follows it.
//!
//! A read goes to the stream's leader, and not to an arbitrary replica. All elections of a process that were opened with one
//! URL share one connection, which looks for another server by itself when it breaks, and one watch: the link.

mod credentials;
mod diagnostics;
mod link;
mod settings;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use primacy_core::election::lease::{Record, Version};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

pub(crate) use self::diagnostics::examine;
use self::link::{Entry, Failure, Heard, Link};
use self::settings::Settings;
use crate::mutex::lock;
use crate::open_error::OpenError;
use crate::opening::{Address, Opened, Opening};
use crate::record;
use crate::register::{Pending, ReadError, Register, SetError};
use crate::runtime;
use crate::shared_connections::{Share, SharedConnections};

/// The longest time until [`changed`](Register::changed) resolves, while the stream has a leader that answers and the machine
/// lets its threads run.
pub const CHANGE_BOUND: Duration = Duration::from_secs(3);

/// The interval at which a wait for a change reads the record: it notices the changes that the watch misses.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// The connections of this process.
static LINKS: SharedConnections<Link> = SharedConnections::new();

/// Opens `nats:…`.
pub(crate) fn open_url(address: Address) -> Opening {
    Box::pin(async move {
        let settings = Settings::parse(&address.rest)?;
        let link =
            LINKS.join(&address.rest, &address.election, || Ok::<_, OpenError>(Link::new(settings)))?;
        let key = key_of(&address.election);
        let heard = link.listen_for(&key);
        let (looked_at, seen) = (AtomicU64::new(0), Arc::new(AtomicU64::new(0)));
        let register = NatsRegister { link, key, heard, looked_at, seen, look_at: Arc::default() };
        register.link.open(address.create).await?;
        Ok(Opened::Register(Arc::new(register)))
    })
}

/// The key of an election. Keys have letters, digits and a few signs; of these `=` introduces the two hexadecimal digits of
/// any other byte, so no two elections have the same key.
fn key_of(election: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_/".contains(&byte);
    let letters = election.bytes().map(|byte| match byte {
        byte if is_plain(byte) => char::from(byte).to_string(),
        byte => format!("={byte:02X}"),
    });
    letters.collect()
}

/// A handle on one election in one bucket.
#[derive(Debug)]
struct NatsRegister {
    link: Share<Link>,
    key: String,
    heard: watch::Receiver<Heard>,
    /// The count of heard changes when the last answered request began.
    looked_at: AtomicU64,
    /// The version that was last read or written through this handle; 0 is absence.
    seen: Arc<AtomicU64>,
    /// The time of the next read of the record by any wait for a change: a wait that is dropped and begun again continues the
    /// schedule of the one before.
    look_at: Arc<Mutex<Option<Instant>>>,
}

impl Drop for NatsRegister {
    fn drop(&mut self) {
        self.link.forget(&self.key);
    }
}

impl NatsRegister {
    /// Notes the version that was seen, by a request that began when `count` changes had been heard.
    fn look(&self, count: u64, version: u64) {
        self.seen.store(version, Ordering::SeqCst);
        self.looked_at.store(count, Ordering::SeqCst);
    }

    async fn find(&self) -> Result<Entry, Failure> {
        let (handle, key) = (self.link.handle(), self.key.clone());
        runtime::run(async move { handle.find(&key).await }).await.map_err(Failure::Unknown)?
    }

    /// The sequence number that a write must name which expects no record: of the marker in its place, or 0.
    async fn absence(&self) -> Result<u64, SetError> {
        match self.find().await {
            Ok(Entry::Absent { sequence }) => Ok(sequence),
            Ok(Entry::Present { .. }) => Err(SetError::Conflict),
            // It was only read.
            Err(failure) => Err(SetError::Unavailable { why: failure.why() }),
        }
    }
}

impl Register for NatsRegister {
    fn read(&self) -> Pending<'_, Result<Option<(Record, Version)>, ReadError>> {
        Box::pin(async {
            let count = self.heard.borrow().count;
            let found = self.find().await;
            let found = found.map_err(|failure| ReadError::Unavailable { why: failure.why() })?;
            let Entry::Present { sequence, bytes } = found else {
                self.look(count, 0);
                return Ok(None);
            };
            // Noted before the record is decoded, because a record that is invalid is not a change either.
            self.look(count, sequence);
            let record = record::decode(&bytes).map_err(|error| ReadError::Malformed { error })?;
            Ok(Some((record, Version::from(sequence))))
        })
    }

    fn compare_and_set<'a>(
        &'a self,
        expect: Option<&'a Version>,
        record: &'a Record,
    ) -> Pending<'a, Result<Version, SetError>> {
        Box::pin(async move {
            let bytes = record::encode(record)?;
            let count = self.heard.borrow().count;
            let sequence = match expect {
                None => self.absence().await?,
                // A version that is no number of ours is of another store, and so it is not the present one. The server takes
                // 0 for absence.
                Some(version) => version.as_u64().filter(|number| *number > 0).ok_or(SetError::Conflict)?,
            };
            let (handle, key) = (self.link.handle(), self.key.clone());
            let writing = runtime::run(async move { handle.write(&key, sequence, bytes).await });
            // It may have been sent.
            let version = match writing.await.map_err(Failure::Unknown).and_then(|written| written) {
                Ok(version) => version,
                Err(Failure::Conflict) => return Err(SetError::Conflict),
                Err(Failure::NotDone(why)) => return Err(SetError::Unavailable { why }),
                Err(Failure::Unknown(why)) => return Err(SetError::Unknown { why }),
            };
            self.look(count, version);
            Ok(Version::from(version))
        })
    }

    fn changed(&self) -> Pending<'_, ()> {
        let mut heard = self.heard.clone();
        let handle = self.link.handle();
        let (key, seen) = (self.key.clone(), Arc::clone(&self.seen));
        let look_at = Arc::clone(&self.look_at);
        Box::pin(async move {
            self.link.watch();
            let looking = runtime::run(async move {
                loop {
                    let due = || Instant::now() + LOOK_INTERVAL;
                    let at = *lock(&look_at).get_or_insert_with(due);
                    sleep_until(at).await;
                    let found = handle.find(&key).await;
                    *lock(&look_at) = Some(due());
                    // The error is ignored: requests report their own.
                    if let Ok(found) = found
                        && found.version() != seen.load(Ordering::SeqCst)
                    {
                        return;
                    }
                }
            });
            let is_news = |heard: &Heard| {
                heard.count > self.looked_at.load(Ordering::SeqCst)
                    && heard.version != self.seen.load(Ordering::SeqCst)
            };
            tokio::select! {
                told = heard.wait_for(is_news) => {
                    if told.is_ok() {
                        return;
                    }
                }
                found = looking => {
                    if found.is_ok() {
                        return;
                    }
                }
            }
            // Nothing will ever be noticed; the caller's own reading now and then has to do.
            std::future::pending::<()>().await;
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_of_the_signs_that_keys_may_have_and_all_differ() {
        assert_eq!(key_of("jobs/nightly_2-a"), "jobs/nightly_2-a");
        assert_eq!(key_of("a.b c=é>*"), "a=2Eb=20c=3D=C3=A9=3E=2A");
        assert_ne!(key_of("a=2E"), key_of("a."));
    }
}
