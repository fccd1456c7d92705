//! The record of an election in a hash of a Redis server: for processes that share one.
//!
//! Promises  linearizable, and as durable when a write returns as the server is configured; [`changed`](Register::changed) within
//!           [`CHANGE_BOUND`], at once for a new holder. The highest token is in a separate key, for guards.
//! Assumes   **one** server that keeps what it has acknowledged. A server that is replaced by its replica, or that restarts without
//!           `appendfsync always`, loses the newest writes, and a token can be given twice.
//! Leaves    every other key as it is. No clock of the server takes part, and no key expires.
//!
//! Each compare-and-set is one script, which the server runs as a whole. **Every write draws its own version**, 63 random bits. A counter
//! would be unsafe: it goes back when a lagging replica takes over, and restarts after `FLUSHALL`, and then a version that a node still
//! names can belong to another record. With random versions, a deleted record's version is never used again.
//!
//! A read is a script too, and counts as a write although it changes nothing: so a replica refuses it, and no node reads outdated data.
//!
//! All elections of a process that were opened with one URL share one connection, the *link*, and their requests are pipelined. It
//! reconnects when it breaks. Notices have a separate connection.

mod diagnostics;
mod inspection;
mod link;
mod notices;
mod refusal;
mod script;
mod settings;

use std::sync::Arc;
use std::time::Duration;

use primacy_core::election::lease::{Record, Version};

pub(crate) use self::diagnostics::examine;
use self::link::Link;
use self::refusal::Failure;
use self::script::Keys;
use self::settings::Settings;
use crate::changes::{Changes, LastRecord};
use crate::open_error::OpenError;
use crate::opening::{Address, Opened, Opening};
use crate::record;
use crate::register::{Pending, ReadError, Register, SetError};
use crate::shared_connections::{Share, SharedConnections};
use crate::version_number;

/// The longest time until [`changed`](Register::changed) resolves, while the server answers and the machine lets its threads
/// run. A new holder, a release and a request to resign are notified at once.
pub const CHANGE_BOUND: Duration = Duration::from_secs(2);

/// The interval at which a wait for a change reads the version: it finds changes that were not notified.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// The connections of this process.
static LINKS: SharedConnections<Link> = SharedConnections::new();

/// The key under which elections of the prefix `prefix` keep the highest token of `election`, as decimal digits. If the guarded data is on
/// the same server, a guard that checks this key refuses a predecessor as soon as its successor has taken the record.
#[must_use]
pub fn fence_key(prefix: &str, election: &str) -> String {
    Keys::new(prefix, election).fence
}

/// Opens `redis:…`.
pub(crate) fn open_url(address: Address) -> Opening {
    Box::pin(async move {
        let settings = Settings::parse(&address.rest)?;
        let keys = Keys::new(&settings.prefix, &address.election);
        let link =
            LINKS.join(&address.rest, &address.election, || Ok::<_, OpenError>(Link::new(settings)))?;
        let changes = link.elections().add(&address.election);
        let last = LastRecord::default();
        let register = RedisRegister { link, election: address.election, keys, changes, last };
        register.link.open().await?;
        Ok(Opened::Register(Arc::new(register)))
    })
}

/// A handle on one election on one server.
#[derive(Debug)]
struct RedisRegister {
    link: Share<Link>,
    election: String,
    keys: Keys,
    changes: Changes,
    last: LastRecord,
}

impl Drop for RedisRegister {
    fn drop(&mut self) {
        self.link.elections().remove(&self.election);
    }
}

impl RedisRegister {
    /// Notes the version that a request has seen; `count` is the number of notifications when it began.
    fn look(&self, count: u64, version: u64, record: Option<&Record>) {
        self.changes.saw(count, version);
        self.last.set(version, record);
    }

    async fn write(&self, expect: Option<u64>, record: &Record) -> Result<u64, SetError> {
        let version = version_number::draw().map_err(|why| SetError::Unavailable { why })?;
        let write = script::Write {
            expect,
            version: version.cast_unsigned(),
            bytes: record::encode(record)?,
            token: record.token,
            told: self.last.is_news(expect, record).then(|| self.link.channel()),
        };
        let request = script::write(&self.keys, &self.election, &write);
        match self.link.request(request).await {
            Ok(reply) => match script::is_written(&reply) {
                Ok(true) => Ok(write.version),
                Ok(false) => Err(SetError::Conflict),
                Err(why) => Err(SetError::Unknown { why }),
            },
            Err(Failure::NotDone(why)) => Err(SetError::Unavailable { why }),
            Err(Failure::Unknown(why)) => Err(SetError::Unknown { why }),
        }
    }

    async fn find(&self) -> Result<Option<(u64, Vec<u8>)>, ReadError> {
        match self.link.request(script::read(&self.keys)).await {
            Ok(reply) => script::found(&self.keys, reply),
            Err(Failure::NotDone(why) | Failure::Unknown(why)) => Err(ReadError::Unavailable { why }),
        }
    }
}

impl Register for RedisRegister {
    fn read(&self) -> Pending<'_, Result<Option<(Record, Version)>, ReadError>> {
        Box::pin(async {
            let count = self.changes.count();
            let Some((version, bytes)) = self.find().await? else {
                self.look(count, 0, None);
                return Ok(None);
            };
            // Noted before the record is decoded, because an invalid record must not be reported as a change again and again.
            self.look(count, version, None);
            let record = record::decode(&bytes).map_err(|error| ReadError::Malformed { error })?;
            self.look(count, version, Some(&record));
            Ok(Some((record, Version::from(version))))
        })
    }

    fn compare_and_set<'a>(
        &'a self,
        expect: Option<&'a Version>,
        record: &'a Record,
    ) -> Pending<'a, Result<Version, SetError>> {
        Box::pin(async move {
            let expect = version_number::expected(expect)?;
            let count = self.changes.count();
            let version = self.write(expect, record).await?;
            self.look(count, version, Some(record));
            Ok(Version::from(version))
        })
    }

    fn changed(&self) -> Pending<'_, ()> {
        let (handle, keys) = (self.link.handle(), self.keys.clone());
        let read = move || {
            let (handle, look) = (handle.clone(), script::look(&keys));
            async move { script::version(&handle.request(look).await.ok()?) }
        };
        Box::pin(self.changes.heard_or_read(LOOK_INTERVAL, read))
    }
}
