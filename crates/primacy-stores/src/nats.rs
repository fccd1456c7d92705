//! The record of an election under a key of a JetStream key-value bucket: for processes that share a NATS cluster.
//!
//! Promises  compare-and-set by the bucket's stream, and as durable when a write returns as the stream is: on the disks of a majority of
//!           its replicas, if the servers flush (`sync_interval: always`); [`changed`](Register::changed) within [`CHANGE_BOUND`], usually
//!           at once.
//! Assumes   that the bucket is not deleted, and that no server returns without data that it had acknowledged.
//! Leaves    every other key as it is. No clock of the servers takes part, and nothing expires.
//!
//! The version of a record is its sequence number in the stream. Each write names the one that it replaces
//! (`Nats-Expected-Last-Subject-Sequence`), and is never repeated. The layout is that of NATS's own key-value buckets, so `nats kv get`
//! shows the record. A deleted or purged key has a marker in its place, which counts as no record; the next write names the marker's
//! sequence number.
//!
//! A read goes to the stream's leader, and not to an arbitrary replica. All elections of a process that were opened with one URL share one
//! connection, which is replaced by one to another server when it breaks: the *link*. It subscribes to the keys of those that wait for
//! changes, and reads a key when a message arrives; it uses no consumer of the stream.
//!
//! The protocol is implemented here, because the client library async-nats can be made to publish with this client's rights, and to panic,
//! by messages that any client of the servers may send.

mod credentials;
mod diagnostics;
mod link;
mod settings;

use std::sync::Arc;
use std::time::Duration;

use primacy_core::election::lease::{Record, Version};

pub(crate) use self::diagnostics::examine;
use self::link::{Entry, Failure, Link};
use self::settings::Settings;
use crate::changes::Changes;
use crate::open_error::OpenError;
use crate::opening::{Address, Opened, Opening};
use crate::record;
use crate::register::{Pending, ReadError, Register, SetError};
use crate::runtime;
use crate::shared_connections::{Share, SharedConnections};
use crate::version_number;

/// The longest time until [`changed`](Register::changed) resolves, while the stream has a leader that answers and the machine
/// lets its threads run.
pub const CHANGE_BOUND: Duration = Duration::from_secs(3);

/// The interval at which a wait for a change reads the record: it notices the changes of which no message arrives.
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
        let changes = link.elections().add(&key);
        let register = NatsRegister { link, key, changes };
        register.link.open(address.create).await?;
        Ok(Opened::Register(Arc::new(register)))
    })
}

/// The key of an election. Keys may contain letters, digits and a few other characters; any other byte is escaped as `=` and two
/// hexadecimal digits, so no two elections have the same key.
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
    changes: Changes,
}

impl Drop for NatsRegister {
    fn drop(&mut self) {
        self.link.unwatch(&self.key);
        self.link.elections().remove(&self.key);
    }
}

impl NatsRegister {
    async fn find(&self) -> Result<Entry, Failure> {
        let (handle, key) = (self.link.handle(), self.key.clone());
        runtime::run(async move { handle.find(&key).await }).await.map_err(Failure::Unknown)?
    }

    /// Returns the sequence number for a write that expects no record: that of the marker in its place, or 0.
    async fn absence(&self) -> Result<u64, SetError> {
        match self.find().await {
            Ok(Entry::Absent { sequence }) => Ok(sequence),
            Ok(Entry::Present { .. }) => Err(SetError::Conflict),
            // Nothing was written: this was only a read.
            Err(failure) => Err(SetError::Unavailable { why: failure.why() }),
        }
    }
}

impl Register for NatsRegister {
    fn read(&self) -> Pending<'_, Result<Option<(Record, Version)>, ReadError>> {
        Box::pin(async {
            let count = self.changes.count();
            let found = self.find().await;
            let found = found.map_err(|failure| ReadError::Unavailable { why: failure.why() })?;
            let Entry::Present { sequence, bytes } = found else {
                self.changes.saw(count, 0);
                return Ok(None);
            };
            // Noted before the record is decoded, because an invalid record must not be reported as a change again and again.
            self.changes.saw(count, sequence);
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
            let count = self.changes.count();
            let sequence = match version_number::expected(expect)? {
                None => self.absence().await?,
                Some(sequence) => sequence,
            };
            let (handle, key) = (self.link.handle(), self.key.clone());
            let writing = runtime::run(async move { handle.write(&key, sequence, bytes).await });
            // The write may have been sent.
            let version = match writing.await.map_err(Failure::Unknown).and_then(|written| written) {
                Ok(version) => version,
                Err(Failure::Conflict) => return Err(SetError::Conflict),
                Err(Failure::NotDone(why)) => return Err(SetError::Unavailable { why }),
                Err(Failure::Unknown(why)) => return Err(SetError::Unknown { why }),
            };
            self.changes.saw(count, version);
            Ok(Version::from(version))
        })
    }

    fn changed(&self) -> Pending<'_, ()> {
        let (handle, key) = (self.link.handle(), self.key.clone());
        let read = move || {
            let (handle, key) = (handle.clone(), key.clone());
            async move { handle.find(&key).await.ok().map(|found| found.version()) }
        };
        Box::pin(async move {
            self.link.watch(&self.key);
            self.changes.heard_or_read(LOOK_INTERVAL, read).await;
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
