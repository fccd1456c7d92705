//! The record of an election in a table of a PostgreSQL database: for processes that share a server.
//!
//! Promises  linearizable, and durable when a write returns, as the server is configured (`synchronous_commit` is raised to `on`);
//!           [`changed`](Register::changed) within [`CHANGE_BOUND`], at once for a new holder.
//! Assumes   one server that takes writes. If it is replaced, everything that it had acknowledged must have reached its successor
//!           (`synchronous_standby_names`), and it must not continue to take writes.
//! Leaves    everything else in the database as it is. No clock of the server takes part.
//!
//! Each compare-and-set is one statement, and so one transaction. It names the version that it replaces; of two that name the same one, the
//! later waits at the row and finds it changed. **Every write draws its own version**, 63 random bits: no version is used again, even after
//! a row was deleted, a backup restored, or a standby without the latest writes took over.
//!
//! All elections of a process that were opened with one URL share one connection, the *link*, which reconnects when it breaks. Their
//! simultaneous requests are sent as one statement, the *batch*. Statements are unnamed, and their settings apply only to their own
//! transaction, so that a pooler in transaction mode may be in between; it is detected, and then changes are polled for instead of received
//! by `LISTEN`.
//!
//! With `?recipe=advisory` the election is held by a lock that goes with its session instead, and no pooler may be in between: see
//! `postgres/advisory.rs`.

mod advisory;
mod batch;
mod channel;
mod diagnostics;
mod limited;
mod link;
mod locks;
mod password;
mod pooler;
mod refusal;
mod settings;
mod table;
mod trust;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use primacy_core::election::lease::{Record, Version};

use self::batch::Write;
pub(crate) use self::diagnostics::examine;
use self::link::Link;
pub use self::locks::{holders, others_in};
use self::refusal::Failure;
use self::settings::{FORM, Recipe, Settings};
use self::table::Table;
pub use self::trust::{EVENT_TRIGGER_FIX, EVENT_TRIGGERS, MAY_BE_SUPERUSER, is_trusted, reached};
use crate::changes::{Changes, LastRecord};
use crate::open_error::OpenError;
use crate::opening::{Address, Opened, Opening};
use crate::record::{self, RecordError};
use crate::register::{Pending, ReadError, Register, SetError};
use crate::runtime;
use crate::sessions::Sessions;
use crate::shared_connections::{Share, SharedConnections};
use crate::tls;
use crate::version_number;

/// The longest time until [`changed`](Register::changed) resolves, while the server answers and the machine lets its threads run. A new
/// holder, a release and a request to resign are notified at once, unless a pooler is in between.
pub const CHANGE_BOUND: Duration = Duration::from_secs(2);

/// The maximum number of tries of [`run`], and the pause between them.
const RUN_TRIES: u32 = 4;
const RUN_PAUSE: Duration = Duration::from_secs(1);

/// The connections of this process.
static LINKS: SharedConnections<Link> = SharedConnections::new();

/// A PostgreSQL server, by the application's own configuration. All elections that are opened through it share one connection, which is
/// made when the first one is opened.
#[derive(Debug)]
pub struct Postgres {
    settings: Settings,
    /// The key that distinguishes it from other servers of this process.
    key: String,
}

impl Postgres {
    /// The server of `config`, which may name several hosts: the first that takes writes is used. `ca` is the file of the authorities that
    /// sign its certificate, or none for those that the system trusts; it counts unless the configuration turns TLS off.
    ///
    /// The server's certificate is always verified, whatever `sslmode` is. Timeouts and `target_session_attrs` are this store's own.
    ///
    /// # Errors
    /// [`OpenError::Refused`] if the file cannot be used, [`OpenError::Malformed`] if no host is named.
    pub fn new(config: &tokio_postgres::Config, ca: Option<&Path>) -> Result<Self, OpenError> {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let files = tls::Files { ca: ca.map(Path::to_owned), ..tls::Files::default() };
        let settings = Settings::of_config(config, &files)?;
        // No URL begins with this text.
        let key = format!("configuration {}", COUNT.fetch_add(1, Ordering::Relaxed));
        Ok(Self { settings, key })
    }

    /// Opens an election, and makes the table if there is none.
    ///
    /// # Errors
    /// [`OpenError::Refused`] for a missing login or right, [`OpenError::Unavailable`] if no server that takes writes was reached in time.
    pub async fn open(&self, election: &str) -> Result<Arc<dyn Register>, OpenError> {
        crate::election_name::check_election(election)?;
        let register = start(&self.key, &self.settings, election, true).await?;
        Ok(Arc::new(register))
    }

    /// Opens an election that is held by a session advisory lock, and makes its table if there is none. Its sessions have
    /// connections of their own.
    ///
    /// # Errors
    /// Those of [`open`](Self::open); also [`OpenError::Refused`] where a pooler is in between, or the server is older than PostgreSQL 14.
    pub async fn open_sessions(&self, election: &str) -> Result<Arc<dyn Sessions>, OpenError> {
        crate::election_name::check_election(election)?;
        let sessions = advisory::start(&self.key, &self.settings, election, true).await?;
        Ok(Arc::new(sessions))
    }
}

/// Runs statements that are not part of an election, such as those that install a fence, over a separate connection to the server of a URL
/// `postgres:…`. They are one transaction. If it is rolled back because other sessions keep a table locked, or are making the same object,
/// it is tried again a few times, with pauses in which the sessions that have queued behind it continue.
///
/// # Errors
/// [`OpenError::Malformed`] for the URL, [`OpenError::Unavailable`] if no server that takes writes was reached, none answered
/// in time, or a table stays locked, [`OpenError::Refused`] for all other errors of the server.
pub async fn run(url: &str, statements: &str) -> Result<(), OpenError> {
    let is_passing = |why: &str| {
        why.starts_with(refusal::COLLISION)
            || refusal::LOCKED.iter().any(|state| why.contains(&format!("({})", state.code())))
    };
    for _ in 1..RUN_TRIES {
        match ask(url, statements).await {
            Err(OpenError::Unavailable { why }) if is_passing(&why) => {
                let pause = runtime::run(tokio::time::sleep(RUN_PAUSE)).await;
                pause.map_err(|why| OpenError::Unavailable { why })?;
            }
            done => return done.map(drop),
        }
    }
    ask(url, statements).await.map(drop)
}

/// Runs statements once, and returns the values of each row that they return, as text.
///
/// # Errors
/// Those of [`run`].
pub async fn ask(url: &str, statements: &str) -> Result<Vec<Vec<Option<String>>>, OpenError> {
    let rest = url
        .strip_prefix("postgres:")
        .ok_or(OpenError::UnknownScheme { scheme: String::new(), forms: vec![FORM] })?;
    Ok(Link::new(&Settings::of_url(rest)?, Table::Record).ask(statements).await?.rows)
}

/// Opens `postgres:…`.
pub(crate) fn open_url(address: Address) -> Opening {
    Box::pin(async move {
        let settings = Settings::of_url(&address.rest)?;
        let (key, election) = (&address.rest, &address.election);
        Ok(match settings.recipe {
            Recipe::Lease => {
                Opened::Register(Arc::new(start(key, &settings, election, address.create).await?))
            }
            Recipe::Advisory => {
                Opened::Sessions(Arc::new(advisory::start(key, &settings, election, address.create).await?))
            }
        })
    })
}

async fn start(
    key: &str,
    settings: &Settings,
    election: &str,
    create: bool,
) -> Result<PostgresRegister, OpenError> {
    let link = LINKS.join(key, election, || Ok::<_, OpenError>(Link::new(settings, Table::Record)))?;
    let (changes, last) = (link.elections().add(election), LastRecord::default());
    let register = PostgresRegister { link, election: election.to_owned(), create, changes, last };
    register.link.open(create).await?;
    Ok(register)
}

/// A handle on one election in one database.
#[derive(Debug)]
struct PostgresRegister {
    link: Share<Link>,
    election: String,
    /// The table may be made.
    create: bool,
    changes: Changes,
    last: LastRecord,
}

impl Drop for PostgresRegister {
    fn drop(&mut self) {
        self.link.elections().remove(&self.election);
    }
}

impl PostgresRegister {
    /// Notes the version that a request has seen; `count` is the number of notifications when it began.
    fn look(&self, count: u64, version: i64, record: Option<&Record>) {
        let version = version.cast_unsigned();
        self.changes.saw(count, version);
        self.last.set(version, record);
    }

    async fn write(&self, expect: Option<i64>, record: &Record) -> Result<i64, SetError> {
        let bytes = record::encode(record)?;
        let version = version_number::draw().map_err(|why| SetError::Unavailable { why })?;
        // The commit of a notification takes a server-wide lock.
        let is_news = self.last.is_news(expect.map(i64::cast_unsigned), record);
        let (election, token) = (self.election.clone(), record.token.to_string());
        let write = Write { election, expect, version, token, bytes, is_news };
        let written = match self.link.queue() {
            Ok(queue) => self.link.noting_blockers(queue.write(write)).await,
            Err(failure) => Err(failure),
        };
        match written {
            Ok(false) => Err(SetError::Conflict),
            Ok(true) => Ok(version),
            Err(Failure::NoTable) if expect.is_some() => Err(SetError::Conflict),
            Err(Failure::NoTable) => Err(SetError::Unavailable { why: self.link.no_table() }),
            Err(Failure::NotDone(why)) => Err(SetError::Unavailable { why }),
            Err(Failure::Unknown(why)) => Err(SetError::Unknown { why }),
        }
    }

    async fn find(&self) -> Result<Option<(i64, Vec<u8>)>, ReadError> {
        let unavailable = |why: String| ReadError::Unavailable { why };
        let found = match self.link.queue() {
            Ok(queue) => self.link.noting_blockers(queue.read(&self.election)).await,
            Err(failure) => Err(failure),
        };
        match found {
            Ok(found) => Ok(found),
            Err(Failure::NoTable) => Ok(None),
            Err(Failure::NotDone(why) | Failure::Unknown(why)) => Err(unavailable(why)),
        }
    }
}

impl Register for PostgresRegister {
    fn read(&self) -> Pending<'_, Result<Option<(Record, Version)>, ReadError>> {
        Box::pin(async {
            let count = self.changes.count();
            let Some((version, bytes)) = self.find().await? else {
                self.look(count, 0, None);
                return Ok(None);
            };
            // Noted before the record is decoded, because an invalid record must not be reported as a change again and again.
            self.look(count, version, None);
            if version <= 0 {
                let error = RecordError::Version { found: version.to_string(), allowed: "a number above 0" };
                return Err(ReadError::Malformed { error });
            }
            let record = record::decode(&bytes).map_err(|error| ReadError::Malformed { error })?;
            self.look(count, version, Some(&record));
            Ok(Some((record, Version::from(version.unsigned_abs()))))
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
            if expect.is_none() && self.create {
                // The table may have been dropped since it was opened.
                self.link.make_table().await?;
            }
            let version = self.write(expect, record).await?;
            self.look(count, version, Some(record));
            Ok(Version::from(version.unsigned_abs()))
        })
    }

    fn changed(&self) -> Pending<'_, ()> {
        Box::pin(self.link.news(&self.changes))
    }
}
