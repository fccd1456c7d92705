//! The record of an election in a table of an SQLite database: for the processes of one machine.
//!
//! Promises  linearizable, and durable when a write returns (`synchronous`); [`changed`](Register::changed)
//!           within a millisecond or two, in other processes too.
//! Assumes   a local file system with working locks and shared memory, and one machine.
//! Leaves    all else in the database as it is; a file that is no database is never written.
//!
//! The database is open on a thread of its own, because SQLite blocks. Several handles, also of several processes, may be open on
//! one file; each is a connection. A database that this store makes is in WAL mode and carries [`APPLICATION_ID`]; in one that
//! another program has made it only adds its table, and only when the first record is written.
//!
//! **A new database has nothing to wait for.** In an ordinary store, absence has no version, so a node that creates a record must hold it
//! for a whole duration before it may lead. But where the transaction that writes the very first schema of a database also writes the
//! record, there was never another one. So [`open`] puts a released record there, with the milliseconds since 1970 as its token. In a
//! database that existed before, a missing record has no version, as in an ordinary store.

mod database_file;
mod watch;

use std::path::Path;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, mpsc};
use std::time::{Duration, SystemTime};

use primacy_core::FencingToken;
use primacy_core::election::lease::{Record, Version};
use rusqlite::{Connection, ErrorCode, OpenFlags, OptionalExtension, Transaction, TransactionBehavior, ffi};
use tokio::sync::watch as channel;

use self::database_file::DatabaseFile;
use crate::file_system;
use crate::open_error::OpenError;
use crate::opening::{Address, Opened, Opening};
use crate::ownership::Sharing;
use crate::record::{self, RecordError};
use crate::register::{Pending, ReadError, Register, SetError};
use crate::store_thread::{Reply, StoreThread, THREAD_STOPPED};
use crate::version_number;

/// The `application_id` of a database that this store has made: `PRMY`.
pub const APPLICATION_ID: i32 = 0x5052_4d59;

/// The `user_version` of such a database: the version of its schema.
const SCHEMA_VERSION: i32 = 1;

/// The longest time until [`changed`](Register::changed) resolves, on a machine that lets its threads run. For writes by hand it
/// counts from the commit, as long as the disk takes no more than 15 s for that.
pub const CHANGE_BOUND: Duration = Duration::from_secs(1);

/// The time for which a request waits for another process's write to end. A write takes as long as the disk's flush, so this is
/// many of them; and it is short compared with any lease.
const BUSY_TIMEOUT: Duration = Duration::from_secs(2);

/// The column order is that of the documented statements.
const CREATE_TABLE: &str = "CREATE TABLE primacy_record(
    election TEXT NOT NULL PRIMARY KEY,
    version INTEGER NOT NULL,
    record BLOB NOT NULL
)";

/// A handle on one election in one SQLite database.
#[derive(Debug)]
pub struct SqliteRegister {
    thread: StoreThread<Request, DatabaseFile, i64>,
    /// The version that was last read or written through this handle; 0 is absence.
    seen: AtomicI64,
}

/// The bytes and the version of a record, both unchecked.
type ReadResult = Result<Option<(Vec<u8>, i64)>, ReadError>;
type Row = Result<(Vec<u8>, i64), ReadError>;

#[derive(Debug)]
enum Request {
    Read { reply: Reply<ReadResult> },
    CompareAndSet { expect: Option<i64>, bytes: Vec<u8>, reply: Reply<Result<i64, SetError>> },
    Look,
}

/// The state that the store's thread owns.
struct Database {
    connection: Connection,
    place: Arc<DatabaseFile>,
    election: String,
    latest: channel::Sender<i64>,
    /// True if the table was found, and is this store's.
    has_table: bool,
}

/// Opens the election `election` in the database at `path`, which is made if there is none. A new database
/// gets a released record.
///
/// # Errors
/// [`OpenError::Refused`] if the file must not be used, [`OpenError::Unavailable`] if it could not be opened.
pub async fn open(path: &Path, election: &str) -> Result<SqliteRegister, OpenError> {
    start(path, Sharing::default(), election, true).await
}

/// Like [`open`], but a missing database is an error. Nothing is written.
///
/// # Errors
/// As for [`open`].
pub async fn open_existing(path: &Path, election: &str) -> Result<SqliteRegister, OpenError> {
    start(path, Sharing::default(), election, false).await
}

/// Opens `sqlite:PATH`.
pub(crate) fn open_url(address: Address) -> Opening {
    Box::pin(async move {
        let (path, sharing) = file_system::path_of_url(&address.rest, database_file::FORM)?;
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
) -> Result<SqliteRegister, OpenError> {
    let (path, election) = (path.to_owned(), election.to_owned());
    let open = move || {
        let (database, latest) = Database::open(&path, sharing, &election, create)?;
        let place = Arc::clone(&database.place);
        Ok((database, place, latest))
    };
    let thread = StoreThread::start("primacy-sqlite", open, Database::serve).await?;
    let seen = AtomicI64::new(thread.latest());
    Ok(SqliteRegister { thread, seen })
}

impl Register for SqliteRegister {
    fn read(&self) -> Pending<'_, Result<Option<(Record, Version)>, ReadError>> {
        Box::pin(async {
            let Some(result) = self.thread.ask(|reply| Request::Read { reply }).await else {
                return Err(ReadError::Unavailable { why: THREAD_STOPPED.to_owned() });
            };
            let found = result?;
            // Noted here and not by the thread, because a read that was dropped has returned no version; and before the record is decoded,
            // because an invalid record must not be reported as a change again and again.
            let version = found.as_ref().map_or(0, |(_, version)| *version);
            self.seen.store(version, Ordering::SeqCst);
            let Some((bytes, version)) = found else { return Ok(None) };
            // No version follows the last one, so no write could succeed.
            if !(1..i64::MAX).contains(&version) {
                return Err(wrong_version(version.to_string()));
            }
            let record = record::decode(&bytes).map_err(|error| ReadError::Malformed { error })?;
            Ok(Some((record, version_of(version))))
        })
    }

    fn compare_and_set<'a>(
        &'a self,
        expect: Option<&'a Version>,
        record: &'a Record,
    ) -> Pending<'a, Result<Version, SetError>> {
        Box::pin(async move {
            let bytes = record::encode(record)?;
            let expect = version_number::expected(expect)?;
            let request = |reply| Request::CompareAndSet { expect, bytes, reply };
            let Some(result) = self.thread.ask(request).await else {
                return Err(SetError::Unknown { why: THREAD_STOPPED.to_owned() });
            };
            let version = result?;
            self.seen.store(version, Ordering::SeqCst);
            Ok(version_of(version))
        })
    }

    fn changed(&self) -> Pending<'_, ()> {
        let watch = |place, requests: mpsc::Sender<_>| {
            watch::watch(place, move || requests.send(Request::Look).is_ok())
        };
        Box::pin(self.thread.changed(watch, |version| *version != self.seen.load(Ordering::SeqCst)))
    }
}

fn wrong_version(found: String) -> ReadError {
    let allowed = "a whole number from 1 to 9223372036854775806";
    ReadError::Malformed { error: RecordError::Version { found, allowed } }
}

fn version_of(number: i64) -> Version {
    Version::from(number.unsigned_abs())
}

impl Database {
    fn open(
        path: &Path,
        sharing: Sharing,
        election: &str,
        create: bool,
    ) -> Result<(Self, channel::Receiver<i64>), OpenError> {
        sharing.check_links(path).map_err(|why| OpenError::Refused { why })?;
        let path = database_file::resolve(path, create)?;
        database_file::own(&path, sharing, create)?;
        let named = |error: &rusqlite::Error| refusal(&path, error);
        let mut flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        flags.set(OpenFlags::SQLITE_OPEN_CREATE, create);
        let connection = Connection::open_with_flags(&path, flags).map_err(|error| named(&error))?;
        connection.busy_timeout(BUSY_TIMEOUT).map_err(|error| named(&error))?;
        // In WAL mode the same as FULL: flushed at every commit. Where a host database has a rollback journal,
        // also the directory is flushed, without which a commit may be undone by a power cut.
        connection.pragma_update(None, "synchronous", "EXTRA").map_err(|error| named(&error))?;
        let place = Arc::new(DatabaseFile::identify(path.clone())?);
        let (sender, latest) = channel::channel(0);
        let election = election.to_owned();
        let mut database = Self { connection, place, election, latest: sender, has_table: false };
        // The first statement that reads the file: a file that is no database is found here, and not written.
        let is_new = is_new(&database.connection).map_err(|error| named(&error))?;
        if is_new && create {
            database.make_new().map_err(|error| named(&error))?;
        }
        check_schema(&database.connection).map_err(|error| match error {
            SchemaError::Sqlite(error) => named(&error),
            SchemaError::Refused(why) => OpenError::Refused { why: format!("{}: {why}", path.display()) },
        })?;
        // An application's own database is shared as the application wants.
        if create && is_ours(&database.connection) {
            database_file::tighten(&path, sharing);
        }
        database.look();
        Ok((database, latest))
    }

    /// Writes the first schema of a database, and with it a released record.
    fn make_new(&mut self) -> Result<(), rusqlite::Error> {
        // WAL mode cannot be turned on inside a transaction. It needs the file for itself for a moment, and
        // for that SQLite does not wait by itself.
        let deadline = std::time::Instant::now() + BUSY_TIMEOUT;
        loop {
            let mode = self.connection.query_row("PRAGMA journal_mode = WAL", [], |_| Ok(()));
            match mode {
                Err(error) if is_busy(&error) && std::time::Instant::now() < deadline => {
                    std::thread::sleep(Duration::from_millis(2));
                }
                other => break other?,
            }
        }
        let transaction = self.connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        // Another process may have been faster; under the write lock the answer stays true.
        if !is_new(&transaction)? {
            return transaction.rollback();
        }
        transaction.execute_batch(CREATE_TABLE)?;
        transaction.pragma_update(None, "application_id", APPLICATION_ID)?;
        transaction.pragma_update(None, "user_version", SCHEMA_VERSION)?;
        let since_1970 = milliseconds_since_1970();
        let token = FencingToken(since_1970.unsigned_abs());
        // The duration of a record without a holder is never waited for.
        let record = Record::released(token, primacy_core::Duration::ZERO);
        let bytes = record::encode(&record).expect("a released record is short");
        insert(&transaction, &self.election, &bytes)?;
        transaction.commit()?;
        self.place.ring();
        Ok(())
    }

    /// Answers requests until no sender is left.
    fn serve(mut self, requests: &mpsc::Receiver<Request>) {
        while let Ok(request) = requests.recv() {
            // A failure to reply is ignored: the caller has stopped waiting.
            match request {
                Request::Read { reply } => drop(reply.send(self.read())),
                Request::CompareAndSet { expect, bytes, reply } => {
                    let result = self.compare_and_set(expect, &bytes);
                    if let Ok(version) = result {
                        self.publish(version);
                    }
                    drop(reply.send(result));
                }
                Request::Look => self.look(),
            }
        }
    }

    fn publish(&self, version: i64) {
        self.latest.send_if_modified(|latest| std::mem::replace(latest, version) != version);
    }

    /// Finds out whether the record has changed.
    fn look(&mut self) {
        // A record that cannot be read now is read on the next request, whose caller then gets the error.
        if let Ok(true) = self.find_table()
            && let Ok(version) = self.select_version()
        {
            self.publish(version.unwrap_or(0));
        }
    }

    fn select_version(&self) -> Result<Option<i64>, rusqlite::Error> {
        let mut select =
            self.connection.prepare("SELECT version FROM main.primacy_record WHERE election = ?1")?;
        select.query_row([&self.election], |row| row.get(0)).optional()
    }

    /// Returns whether the table is there. It is checked again until it is, because other processes may make it.
    fn find_table(&mut self) -> Result<bool, String> {
        if !self.has_table {
            self.has_table = check_schema(&self.connection).map_err(|error| error.to_string())?;
        }
        Ok(self.has_table)
    }

    fn read(&mut self) -> ReadResult {
        let unavailable = |why: String| ReadError::Unavailable { why };
        self.place.check().map_err(unavailable)?;
        if !self.find_table().map_err(unavailable)? {
            self.publish(0);
            return Ok(None);
        }
        let found = self.select().map_err(|error| unavailable(error.to_string()))?;
        let found = found.transpose()?;
        self.publish(found.as_ref().map_or(0, |(_, version)| *version));
        Ok(found)
    }

    /// Returns the row of the election, or the reason that this store cannot have written it.
    fn select(&self) -> Result<Option<Row>, rusqlite::Error> {
        // A record that is too long is not read: zeros of a length above the limit are returned instead.
        let mut select = self.connection.prepare(&format!(
            "SELECT iif(octet_length(record) > {0}, zeroblob({0} + 1), record), version \
             FROM main.primacy_record WHERE election = ?1",
            record::LENGTH_MAX
        ))?;
        let row = |row: &rusqlite::Row<'_>| {
            let version = row.get_ref(1)?;
            let Ok(number) = version.as_i64() else {
                return Ok(Err(wrong_version(format!("a value of the type {}", version.data_type()))));
            };
            // As text, too: an operator who repairs a record by hand will put text there.
            Ok(row.get_ref(0)?.as_bytes().map(|bytes| (bytes.to_vec(), number)).map_err(|_| {
                let why = "it is neither bytes nor text".to_owned();
                ReadError::Malformed { error: RecordError::NotJson { why } }
            }))
        };
        select.query_row([&self.election], row).optional()
    }

    /// A failure before the commit has written nothing. A commit that fails may have put all of it into the log before the flush
    /// failed, where the next process that opens the database may find it.
    fn compare_and_set(&mut self, expect: Option<i64>, bytes: &[u8]) -> Result<i64, SetError> {
        let unavailable = |why: String| SetError::Unavailable { why };
        let failed = |error: rusqlite::Error| SetError::Unavailable { why: error.to_string() };
        self.place.check().map_err(unavailable)?;
        let has_table = self.find_table().map_err(unavailable)?;
        let transaction =
            self.connection.transaction_with_behavior(TransactionBehavior::Immediate).map_err(failed)?;
        if !has_table && !check_schema(&transaction).map_err(|error| unavailable(error.to_string()))? {
            transaction.execute_batch(CREATE_TABLE).map_err(failed)?;
        }
        let written = match expect {
            None => insert(&transaction, &self.election, bytes),
            Some(version) => update(&transaction, &self.election, version, bytes),
        };
        let Some(version) = written.map_err(failed)? else {
            // Dropping the transaction rolls it back, with a table that was made in it.
            return Err(SetError::Conflict);
        };
        if let Err(error) = transaction.commit() {
            let why = error.to_string();
            // Busy means that it waited for readers (with a rollback journal only), and it was rolled back.
            let is_undone = is_busy(&error) && self.connection.is_autocommit();
            return Err(if is_undone { SetError::Unavailable { why } } else { SetError::Unknown { why } });
        }
        self.place.ring();
        // A file that was removed meanwhile has taken the record with it.
        self.place.check().map_err(|why| SetError::Unknown { why })?;
        Ok(version)
    }
}

/// Writes the first record of an election; `None` if there is one.
///
/// Versions start from a random number and not from 1, so that after a record was deleted by hand, no version of the old one is a version
/// of the new one. (The time of day is unsuitable: it can go back, and writes may be faster.)
fn insert(
    transaction: &Transaction<'_>,
    election: &str,
    bytes: &[u8],
) -> Result<Option<i64>, rusqlite::Error> {
    let version = draw_version().map_err(|error| rusqlite::Error::ToSqlConversionFailure(Box::new(error)))?;
    let rows = transaction.execute(
        "INSERT INTO main.primacy_record(election, version, record) VALUES (?1, ?2, ?3) ON CONFLICT DO NOTHING",
        (election, version, bytes),
    )?;
    Ok((rows == 1).then_some(version))
}

/// Draws a first version: positive, and with more room above it than there will ever be writes.
fn draw_version() -> Result<i64, getrandom::Error> {
    let mut bytes = [0; 8];
    getrandom::fill(&mut bytes)?;
    Ok((i64::from_ne_bytes(bytes) & (i64::MAX >> 1)) | 1)
}

/// Writes over the record of this version; `None` if there is none of this version.
fn update(
    transaction: &Transaction<'_>,
    election: &str,
    version: i64,
    bytes: &[u8],
) -> Result<Option<i64>, rusqlite::Error> {
    let Some(next) = version.checked_add(1) else { return Ok(None) };
    let rows = transaction.execute(
        "UPDATE main.primacy_record SET version = ?3, record = ?4 WHERE election = ?1 AND version = ?2",
        (election, version, next, bytes),
    )?;
    Ok((rows == 1).then_some(next))
}

/// Returns whether nothing has ever been written into this database: its schema has never changed.
fn is_new(connection: &Connection) -> Result<bool, rusqlite::Error> {
    for pragma in ["schema_version", "application_id", "user_version"] {
        let value: i64 = connection.pragma_query_value(None, pragma, |row| row.get(0))?;
        if value != 0 {
            return Ok(false);
        }
    }
    Ok(true)
}

#[derive(Debug, thiserror::Error)]
enum SchemaError {
    #[error("{0}")]
    Refused(String),
    #[error(transparent)]
    Sqlite(#[from] rusqlite::Error),
}

/// Returns whether the table is there; an error if it is not the one that this version writes.
fn check_schema(connection: &Connection) -> Result<bool, SchemaError> {
    let application: i32 = connection.pragma_query_value(None, "application_id", |row| row.get(0))?;
    let version: i32 = connection.pragma_query_value(None, "user_version", |row| row.get(0))?;
    if application == APPLICATION_ID && version > SCHEMA_VERSION {
        return Err(SchemaError::Refused(format!(
            "this database was made by a later version of Primacy (schema {version}; this one knows \
             {SCHEMA_VERSION}); upgrade this node"
        )));
    }
    let foreign = "SELECT type || ' ' || name FROM main.sqlite_schema WHERE tbl_name = 'primacy_record' COLLATE NOCASE \
                   AND type NOT IN ('table', 'index') LIMIT 1";
    if let Some(foreign) = connection.query_row(foreign, [], |row| row.get::<_, String>(0)).optional()? {
        return Err(SchemaError::Refused(format!(
            "its primacy_record has the {foreign}, which is not of this store and decides what a write does; drop it, or \
             name another database"
        )));
    }
    let mut columns = connection.prepare("SELECT name FROM pragma_table_xinfo('primacy_record', 'main')")?;
    let columns: Vec<String> = columns.query_map([], |row| row.get(0))?.collect::<Result<_, _>>()?;
    match columns.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        [] => Ok(false),
        ["election", "version", "record"] => check_key(connection),
        other => Err(SchemaError::Refused(format!(
            "its table primacy_record has the columns {}, and not election, version, record; it was made by \
             something else, so name another database",
            other.join(", ")
        ))),
    }
}

/// Returns true if the key of the table is the name of the election, byte by byte, and nothing else must be unique.
fn check_key(connection: &Connection) -> Result<bool, SchemaError> {
    let unique = "SELECT group_concat(coalesce(parts.name, 'an expression') || ' ' || parts.coll || iif(list.partial, ' partial', ''), ', ') \
                  FROM pragma_index_list('primacy_record', 'main') AS list, pragma_index_xinfo(list.name, 'main') AS parts \
                  WHERE list.\"unique\" AND parts.key";
    let unique: Option<String> = connection.query_row(unique, [], |row| row.get(0))?;
    let kind = "SELECT type FROM pragma_table_xinfo('primacy_record', 'main') WHERE name = 'election'";
    let kind: String = connection.query_row(kind, [], |row| row.get(0))?;
    // A name that looks like a number would be kept as one.
    if unique.as_deref() == Some("election BINARY") && kind.eq_ignore_ascii_case("TEXT") {
        return Ok(true);
    }
    let unique = unique.unwrap_or_else(|| "none".to_owned());
    Err(SchemaError::Refused(format!(
        "its table primacy_record has an election of type {kind:?} and the unique columns {unique}, and not TEXT and election BINARY alone: two \
         elections could share a record, or a write be refused; it was made by something else, so name another database"
    )))
}

/// Returns whether this store has made the database, and not an application.
fn is_ours(connection: &Connection) -> bool {
    let application = connection.pragma_query_value(None, "application_id", |row| row.get::<_, i32>(0));
    application.is_ok_and(|application| application == APPLICATION_ID)
}

/// Interprets an error of an open.
fn refusal(path: &Path, error: &rusqlite::Error) -> OpenError {
    let shown = path.display();
    match error.sqlite_error_code() {
        Some(ErrorCode::NotADatabase) => OpenError::Refused {
            why: format!("{shown} is not an SQLite database; it was left as it is. Name another file"),
        },
        Some(ErrorCode::DatabaseCorrupt) => OpenError::Refused {
            why: format!(
                "{shown} is a damaged SQLite database ({error}); it was left as it is. Restore it from a copy"
            ),
        },
        Some(_) | None => {
            let why = format!("{shown} could not be opened: {error}");
            if is_shortage(path, error) {
                OpenError::Shortage { why }
            } else {
                OpenError::Unavailable { why }
            }
        }
    }
}

/// Returns whether an error while opening may pass without a repair: other processes use the database, or this process has too few
/// descriptors or too little memory. SQLite does not report why a file could not be opened, so this user's permissions are checked.
fn is_shortage(path: &Path, error: &rusqlite::Error) -> bool {
    const SHORT_OF_MEMORY: i32 = ffi::SQLITE_IOERR_NOMEM;
    const SHARED_MEMORY: i32 = ffi::SQLITE_IOERR_SHMOPEN;
    let code = error.sqlite_error();
    match code.map(|error| (error.code, error.extended_code)) {
        Some((ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked, _)) => true,
        Some((ErrorCode::FileLockingProtocolFailed | ErrorCode::OperationInterrupted, _)) => true,
        Some((ErrorCode::OutOfMemory, _) | (_, SHORT_OF_MEMORY)) => true,
        Some((ErrorCode::CannotOpen, _) | (_, SHARED_MEMORY)) => database_file::may_be_opened(path),
        Some(_) | None => false,
    }
}

fn is_busy(error: &rusqlite::Error) -> bool {
    matches!(error.sqlite_error_code(), Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked))
}

/// By the machine's wall clock, which takes part in no waiting; 1 if its time is before 1970.
fn milliseconds_since_1970() -> i64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX / 2).max(1)
}
