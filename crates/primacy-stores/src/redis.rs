//! The record of an election in a hash of a Redis server: for processes that share one.
//!
//! Promises  linearizable, and as durable when a write returns as the server is configured; [`changed`](Register::changed)
//!           within [`CHANGE_BOUND`], of a new holder at once. The highest token is in a key of its own, for guards.
//! Assumes   **one** server that keeps what it has acknowledged. One that is replaced by its replica, or that restarts
//!           without `appendfsync always`, forgets the newest writes, and a token can be given twice.
//! Leaves    every other key as it is. No clock of the server takes part, and no key expires.
//!
//! Each compare-and-set is one script, which the server runs as a whole. **Every write draws a version of its own**, 63
//! random bits. A counter would not do: it goes back where a replica takes over that lags behind, and begins anew after
//! `FLUSHALL`; and then a version that a node still names is that of another record. So a deleted record's version is none
//! of the next one, whatever was deleted with it.
//!
//! Reading is a script, too, and one that counts as writing, although it changes nothing: a replica refuses it, so that no
//! node reads outdated data.
//!
//! All elections of a process that were opened with one URL share one connection, and their requests are on the way at
//! once. It is made anew when it breaks: the link. Notices have a connection of their own.

mod diagnostics;
mod inspection;
mod link;
mod notices;
mod refusal;
mod script;
mod settings;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use primacy_core::election::lease::{Record, Version};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

pub(crate) use self::diagnostics::examine;
use self::link::Link;
use self::notices::Heard;
use self::refusal::Failure;
use self::script::Keys;
use self::settings::Settings;
use crate::mutex::lock;
use crate::open_error::OpenError;
use crate::opening::{Address, Opened, Opening};
use crate::record;
use crate::register::{Pending, ReadError, Register, SetError};
use crate::runtime;
use crate::shared_connections::{Share, SharedConnections};

/// The longest time until [`changed`](Register::changed) resolves, while the server answers and the machine lets its threads
/// run. A new holder, a release and a request to resign are notified at once.
pub const CHANGE_BOUND: Duration = Duration::from_secs(2);

/// The interval at which a wait for a change reads the version: it finds changes without a notice.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// The connections of this process.
static LINKS: SharedConnections<Link> = SharedConnections::new();

/// The key under which elections of the prefix `prefix` keep the highest token of `election`, as decimal digits. Where the
/// guarded data is on the same server, a guard that looks there refuses a predecessor from the moment on at which its
/// successor has taken the record.
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
        let heard = link.listen_for(&address.election);
        let register = RedisRegister {
            link,
            keys,
            election: address.election,
            heard,
            looked_at: AtomicU64::new(0),
            seen: Arc::new(AtomicU64::new(0)),
            last: Mutex::new(None),
            look_at: Arc::default(),
        };
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
    heard: watch::Receiver<Heard>,
    /// The count of heard changes when the last answered request began.
    looked_at: AtomicU64,
    /// The version that was last read or written through this handle; 0 is absence.
    seen: Arc<AtomicU64>,
    /// The record of that version, if it was one.
    last: Mutex<Option<(u64, Record)>>,
    /// The time of the next read of the version by any wait for a change: a wait that is dropped and begun again continues
    /// the schedule of the one before.
    look_at: Arc<Mutex<Option<Instant>>>,
}

impl Drop for RedisRegister {
    fn drop(&mut self) {
        self.link.forget(&self.election);
    }
}

impl RedisRegister {
    /// Notes the version that was seen, by a request that began when `count` changes had been heard.
    fn look(&self, count: u64, version: u64, record: Option<&Record>) {
        self.seen.store(version, Ordering::SeqCst);
        self.looked_at.store(count, Ordering::SeqCst);
        *lock(&self.last) = record.map(|record| (version, record.clone()));
    }

    /// Returns whether other processes must be notified of the write at once. A renewal is found by polling, which is soon
    /// enough.
    fn is_news(&self, expect: Option<u64>, record: &Record) -> bool {
        let last = lock(&self.last);
        let before = last.as_ref().filter(|(version, _)| Some(*version) == expect).map(|(_, before)| before);
        before.is_none_or(|before| {
            before.holder != record.holder
                || before.token != record.token
                || before.young != record.young
                || before.resign_request != record.resign_request
        })
    }

    async fn write(&self, expect: Option<u64>, record: &Record) -> Result<u64, SetError> {
        let write = script::Write {
            expect,
            version: draw_version().map_err(|error| SetError::Unavailable { why: error.to_string() })?,
            bytes: record::encode(record)?,
            token: record.token,
            told: self.is_news(expect, record).then(|| self.link.channel()),
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
            let count = self.heard.borrow().count;
            let Some((version, bytes)) = self.find().await? else {
                self.look(count, 0, None);
                return Ok(None);
            };
            // Noted before the record is decoded, because a record that is invalid is not a change either.
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
            let expect = match expect {
                None => None,
                // A version that is no number of ours is of another store, and so it is not the present one.
                Some(version) => {
                    Some(version.as_u64().filter(|number| *number > 0).ok_or(SetError::Conflict)?)
                }
            };
            let count = self.heard.borrow().count;
            let version = self.write(expect, record).await?;
            self.look(count, version, Some(record));
            Ok(Version::from(version))
        })
    }

    fn changed(&self) -> Pending<'_, ()> {
        let mut heard = self.heard.clone();
        let asking = self.link.handle();
        let (keys, seen) = (self.keys.clone(), Arc::clone(&self.seen));
        let look_at = Arc::clone(&self.look_at);
        Box::pin(async move {
            let looking = runtime::run(async move {
                loop {
                    let due = || Instant::now() + LOOK_INTERVAL;
                    let at = *lock(&look_at).get_or_insert_with(due);
                    sleep_until(at).await;
                    let found = asking.request(script::look(&keys)).await;
                    *lock(&look_at) = Some(due());
                    // The error is ignored: requests report their own.
                    if let Ok(reply) = found
                        && script::version(&reply).is_some_and(|found| found != seen.load(Ordering::SeqCst))
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

/// Above 0, and below what other tools take for a negative number.
fn draw_version() -> Result<u64, getrandom::Error> {
    let mut bytes = [0; 8];
    getrandom::fill(&mut bytes)?;
    Ok((u64::from_ne_bytes(bytes) >> 1).max(1))
}
