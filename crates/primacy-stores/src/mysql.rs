//! The record of an election in a row of a table of MySQL or MariaDB: for processes that share a server.
//!
//! Promises  linearizable, and as durable when a write returns as the server is configured; [`changed`](Register::changed)
//!           within [`CHANGE_BOUND`].
//! Assumes   **one** server that keeps what it has acknowledged (`innodb_flush_log_at_trx_commit = 1`). A replica that takes
//!           over may lack the newest writes, and then a token can be given twice. Members of Galera and of Group Replication
//!           are refused.
//! Leaves    everything else in the database as it is. No clock of the server takes part.
//!
//! Each compare-and-set is one transaction, sent as one request: it locks the row (`SELECT … FOR UPDATE`), replaces it where its version is
//! the expected one, and commits. A server does not run the statements after one that it refuses, so any error before the commit means that
//! nothing was written; every other failure leaves the outcome unknown. **Every write draws its own version**, 63 random bits: no version
//! is used again, even after a row was deleted, a backup restored, or a replica without the latest writes took over.
//!
//! InnoDB shows a commit to other sessions a moment before it is on disk. A handle that does not know the outcome of its own write must not
//! read it then and lose it in a crash. So its next read is a transaction that also writes, which the server answers only when both are on
//! disk.
//!
//! All elections of a process that were opened with one URL share a few connections.

mod connection;
mod diagnostics;
mod inspection;
mod packet;
mod pool;
mod refusal;
mod settings;
mod sha;
mod table;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use primacy_core::election::lease::{Record, Version};

use self::connection::Answer;
pub(crate) use self::diagnostics::examine;
use self::pool::ConnectionPool;
use self::refusal::Failure;
use self::settings::Settings;
use crate::changes::SeenVersion;
use crate::mutex::lock;
use crate::open_error::OpenError;
use crate::opening::{Address, Opened, Opening};
use crate::record::{self, RecordError};
use crate::register::{Pending, ReadError, Register, SetError};
use crate::shared_connections::{Share, SharedConnections};
use crate::version_number;

/// The longest delay of [`changed`](Register::changed), while the server answers and the machine lets its threads run.
pub const CHANGE_BOUND: Duration = Duration::from_secs(2);

/// The interval at which a handle that waits for a change reads the version. The server sends no notifications.
const LOOK_INTERVAL: Duration = Duration::from_millis(500);

/// The connections of this process.
static POOLS: SharedConnections<ConnectionPool> = SharedConnections::new();

/// Opens `mysql:…`.
pub(crate) fn open_url(address: Address) -> Opening {
    Box::pin(async move {
        let settings = Settings::parse(&address.rest)?;
        let pool = POOLS
            .join(&address.rest, &address.election, || Ok::<_, OpenError>(ConnectionPool::new(settings)))?;
        pool.open(address.create).await?;
        Ok(Opened::Register(Arc::new(MysqlRegister {
            pool,
            election: address.election,
            create: address.create,
            // An earlier handle may have left a write of unknown outcome. A handle that only reads does not write for this.
            unsure: Mutex::new(address.create.then_some(Unsure::Opened)),
            seen: SeenVersion::default(),
        })))
    })
}

/// A handle on one election in one database.
#[derive(Debug)]
struct MysqlRegister {
    pool: Share<ConnectionPool>,
    election: String,
    /// The table may be made.
    create: bool,
    /// The reason for which the next read must be durable, if it must.
    unsure: Mutex<Option<Unsure>>,
    seen: SeenVersion,
}

/// The reason for which the result of a read may not be on disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Unsure {
    /// Another handle may have left a write of unknown outcome.
    Opened,
    /// A write that expects this version, or 0 for no record, has an unknown outcome. It can take effect as long as the record has that
    /// version: versions are not used again.
    Written(i64),
}

impl MysqlRegister {
    /// Notes that a durable read for this reason found this version, or 0 for no record.
    fn read_durably(&self, reason: Unsure, found: i64) {
        let mut unsure = lock(&self.unsure);
        if *unsure == Some(reason) && reason != Unsure::Written(found) {
            *unsure = None;
        }
    }

    async fn write(&self, expect: Option<i64>, record: &Record) -> Result<i64, SetError> {
        let bytes = record::encode(record)?;
        let version = version_number::draw().map_err(|why| SetError::Unavailable { why })?;
        let writing = match expect {
            None => table::insert(&self.election, version, &bytes),
            Some(expect) => table::update(&self.election, expect, version, &bytes),
        };
        match self.pool.request(writing.statements, Some(writing.commit_at)).await {
            Ok(answers) if answers.len() <= writing.commit_at => {
                Err(SetError::Unknown { why: "the server has not answered every statement".to_owned() })
            }
            Ok(answers) if !is_one(&answers, writing.takes_writes_at) => {
                // Nothing was written if the server takes no writes.
                self.pool.forget_idle();
                Err(SetError::Unavailable { why: READ_ONLY.to_owned() })
            }
            Ok(answers) => match answers.get(writing.written_at) {
                Some(Answer { affected: 1, .. }) => Ok(version),
                Some(Answer { affected: 0, .. }) => Err(SetError::Conflict),
                Some(_) | None => {
                    Err(SetError::Unknown { why: "the server has counted other rows".to_owned() })
                }
            },
            Err(Failure::Duplicate) => Err(SetError::Conflict),
            Err(Failure::NoTable) if expect.is_some() => Err(SetError::Conflict),
            Err(Failure::NoTable) => Err(SetError::Unavailable {
                why: format!("there is no table {}; it was dropped", table::NAME),
            }),
            Err(Failure::NotDone(why)) => Err(SetError::Unavailable { why }),
            Err(Failure::Unknown(why)) => Err(SetError::Unknown { why }),
        }
    }

    async fn find(&self) -> Result<Option<(i64, Vec<u8>)>, ReadError> {
        let unavailable = |why: String| ReadError::Unavailable { why };
        let unsure = *lock(&self.unsure);
        let reading = match unsure {
            Some(_) => table::read_durably(&self.election),
            None => table::read(&self.election),
        };
        let answers = match self.pool.request(reading.statements, None).await {
            Ok(answers) => answers,
            Err(Failure::NoTable) => return Ok(None),
            Err(Failure::NotDone(why) | Failure::Unknown(why)) => return Err(unavailable(why)),
            Err(Failure::Duplicate) => return Err(unavailable("a read cannot collide".to_owned())),
        };
        if !is_one(&answers, reading.takes_writes_at) {
            // Another server may have taken over, whose writes this one does not have.
            self.pool.forget_idle();
            return Err(unavailable(READ_ONLY.to_owned()));
        }
        let row = answers.get(reading.found_at).and_then(|answer| answer.rows.first());
        let version = row.and_then(|row| table::text(row, 0)).and_then(|version| version.parse().ok());
        if let Some(reason) = unsure {
            self.read_durably(reason, version.unwrap_or(0));
        }
        let Some(row) = row else { return Ok(None) };
        match (version, row.get(1)) {
            (Some(version), Some(Some(bytes))) => Ok(Some((version, bytes.clone()))),
            _ => Err(unavailable("the server answers what no server of MySQL does".to_owned())),
        }
    }
}

impl Register for MysqlRegister {
    fn read(&self) -> Pending<'_, Result<Option<(Record, Version)>, ReadError>> {
        Box::pin(async {
            let Some((version, bytes)) = self.find().await? else {
                self.seen.set(0);
                return Ok(None);
            };
            // Noted before the record is decoded, because an invalid record must not be reported as a change again and again.
            self.seen.set(version.cast_unsigned());
            if version <= 0 {
                let error = RecordError::Version { found: version.to_string(), allowed: "a number above 0" };
                return Err(ReadError::Malformed { error });
            }
            let record = record::decode(&bytes).map_err(|error| ReadError::Malformed { error })?;
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
            if expect.is_none() && self.create {
                // An administrator may have dropped it since it was opened.
                self.pool
                    .open(true)
                    .await
                    .map_err(|error| SetError::Unavailable { why: error.to_string() })?;
            }
            // Set until the outcome is known, because the future may be dropped.
            let before = lock(&self.unsure).replace(Unsure::Written(expect.unwrap_or(0)));
            let written = self.write(expect, record).await;
            if !matches!(written, Err(SetError::Unknown { .. })) {
                *lock(&self.unsure) = before;
            }
            let version = written?;
            // The earlier writes are on disk with this one.
            *lock(&self.unsure) = None;
            self.seen.set(version.cast_unsigned());
            Ok(Version::from(version.unsigned_abs()))
        })
    }

    fn changed(&self) -> Pending<'_, ()> {
        let (pool, look) = (ConnectionPool::clone(&self.pool), Arc::new(table::look(&self.election)));
        let read = move || {
            let (pool, look) = (pool.clone(), Arc::clone(&look));
            async move {
                match pool.request_here(&look, None).await {
                    Ok(answers) => answers.first().map(|answer| {
                        let version = answer.rows.first().and_then(|row| table::text(row, 0));
                        version.and_then(|version| version.parse().ok()).map_or(0, i64::cast_unsigned)
                    }),
                    Err(Failure::NoTable) => Some(0),
                    Err(Failure::NotDone(_) | Failure::Unknown(_) | Failure::Duplicate) => None,
                }
            }
        };
        Box::pin(self.seen.other(LOOK_INTERVAL, read))
    }
}

const READ_ONLY: &str = "the server has become read-only; name the one that takes writes, too";

/// Returns whether the single value of an answer is 1.
fn is_one(answers: &[Answer], at: usize) -> bool {
    let row = answers.get(at).and_then(|answer| answer.rows.first());
    row.and_then(|row| table::text(row, 0)).is_some_and(|value| value == "1")
}
