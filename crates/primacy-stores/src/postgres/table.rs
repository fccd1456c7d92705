//! The tables, and the statements that are sent to them.

use tokio_postgres::Client;
use tokio_postgres::error::SqlState;
use tokio_postgres::types::Type;

use super::refusal;
use crate::open::OpenError;
use crate::record;

/// What elections are kept in.
#[derive(Clone, Copy, Debug)]
pub(super) enum Table {
    /// Records that are renewed.
    Record,
    /// Records of who holds a lock.
    Lock,
}

impl Table {
    /// The name of the table, and of the channel on which changes are told.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Record => "primacy_record",
            Self::Lock => "primacy_lock",
        }
    }

    /// The version that is told of a row. That of an election whose lock nobody holds is below 0: so it is a change when a lock
    /// goes with its session.
    fn version(self) -> String {
        match self {
            Self::Record => "version".to_owned(),
            Self::Lock => format!(
                "CASE WHEN hashtextextended(election, tableoid::bigint) IN (SELECT {NUMBER} FROM {LOCKS}) \
                 THEN version ELSE -version END"
            ),
        }
    }
}

/// All advisory locks that are held in this database, by this session or another one.
pub(super) const LOCKS: &str = "pg_locks WHERE locktype = 'advisory' AND objsubid = 1 AND granted \
                                AND database = (SELECT oid FROM pg_database WHERE datname = current_database())";

/// The number of one of them, as it was asked for.
pub(super) const NUMBER: &str = "((classid::bigint << 32) | objid::bigint)";

/// What the columns are, in their order.
const COLUMNS: [(&str, &str); 4] =
    [("election", "text"), ("version", "bigint"), ("token", "numeric"), ("record", "bytea")];

/// How long a statement waits for somebody's lock. A write waits for another one's commit, which takes as long as a flush;
/// and while one waits, the others of this connection wait behind it.
pub(super) const LOCK_PATIENCE: &str = "500ms";

/// What holds for one statement, which is also its transaction: it does not wait for long, and is as durable as the server
/// can make it. (`local` and `remote_write` would be less than `on`; `remote_apply` is more.)
pub(super) fn limits() -> String {
    format!(
        "limits AS MATERIALIZED (SELECT set_config('lock_timeout', '{LOCK_PATIENCE}', true), \
         CASE WHEN current_setting('synchronous_commit') IN ('off', 'local', 'remote_write') \
         THEN set_config('synchronous_commit', 'on', true) END)"
    )
}

/// The statements, for the schema in which the table is.
#[derive(Clone, Debug)]
pub(super) struct Statements {
    /// The name of the channel on which changes are told.
    pub(super) channel: &'static str,
    /// The table, as it stands in them.
    pub(super) table: String,
    /// Elections → each that is there, its version and its record.
    pub(super) read: String,
    /// Election, version, token, record, whether it is told → a row if it was written.
    pub(super) insert: String,
    /// The same, and the version that is replaced.
    pub(super) update: String,
    /// Many of both: arrays of the same, where no version stands for absence → each election that has a row which nobody else
    /// keeps locked; and each once more, with its new version, if it was written.
    pub(super) write_many: String,
    /// Elections → each that is there, and its version.
    pub(super) versions: String,
}

impl Statements {
    pub(super) fn new(schema: Option<&str>, kind: Table) -> Self {
        let name = kind.name();
        let table = match schema {
            Some(schema) => format!("\"{}\".{name}", schema.replace('"', "\"\"")),
            None => name.to_owned(),
        };
        let (limits, version) = (limits(), kind.version());
        // The outer statement runs once for the row that was written, and so not at all where none was.
        let tell =
            format!("SELECT CASE WHEN $5 THEN pg_notify('{name}', $2 || ' ' || $1) END IS NULL FROM written");
        Self {
            // Of one that is too long, as much as tells that it is.
            read: format!(
                "SELECT election, {version}, substring(record FROM 1 FOR {}) FROM {table} WHERE election = ANY ($1)",
                record::LENGTH_MAX + 1
            ),
            insert: format!(
                "WITH {limits}, written AS (INSERT INTO {table}(election, version, token, record) \
                 SELECT $1, $2, $3::numeric, $4 FROM limits ON CONFLICT (election) DO NOTHING RETURNING 1) {tell}"
            ),
            update: format!(
                "WITH {limits}, written AS (UPDATE {table} SET version = $2, token = greatest(token, $3::numeric), \
                 record = $4 FROM limits WHERE election = $1 AND version = $6 RETURNING 1) {tell}"
            ),
            // Rows are locked before they are written, in one order for all: so two batches do not wait for each other.
            write_many: format!(
                "WITH {limits}, asked AS MATERIALIZED (SELECT * FROM unnest($1::text[], $2::bigint[], $3::text[], \
                 $4::bytea[], $5::boolean[], $6::bigint[]) AS asked(election, version, token, record, is_told, expect)), \
                 free AS MATERIALIZED (SELECT election FROM {table} WHERE election = ANY ($1) ORDER BY election \
                 FOR UPDATE SKIP LOCKED), \
                 updated AS (UPDATE {table} AS kept SET version = asked.version, \
                 token = greatest(kept.token, asked.token::numeric), record = asked.record \
                 FROM limits, asked JOIN free ON free.election = asked.election \
                 WHERE kept.election = asked.election AND kept.version = asked.expect \
                 RETURNING asked.election, asked.version, asked.is_told), \
                 inserted AS (INSERT INTO {table}(election, version, token, record) \
                 SELECT election, version, token::numeric, record FROM limits, asked WHERE expect IS NULL \
                 ORDER BY election ON CONFLICT (election) DO NOTHING RETURNING election, version) \
                 SELECT election, version, CASE WHEN is_told THEN pg_notify('{name}', version || ' ' || election) END \
                 IS NULL FROM (SELECT * FROM updated UNION ALL SELECT *, true FROM inserted) AS written \
                 UNION ALL SELECT election, NULL, NULL FROM free"
            ),
            versions: format!("SELECT election, {version} FROM {table} WHERE election = ANY ($1)"),
            table,
            channel: name,
        }
    }

    /// What makes the table. Rows are written over and over: with room in each page, no index has to be written.
    pub(super) fn create(&self) -> String {
        format!(
            "CREATE TABLE IF NOT EXISTS {} (election text COLLATE \"C\" PRIMARY KEY, version bigint NOT NULL, \
             token numeric NOT NULL, record bytea NOT NULL) WITH (fillfactor = 50)",
            self.table
        )
    }
}

/// Whether the table is there; it is made if `create` says so.
///
/// # Errors
/// [`OpenError::Refused`] if it is not ours, or must not be made.
pub(super) async fn ensure(
    client: &Client,
    statements: &Statements,
    create: bool,
) -> Result<bool, OpenError> {
    if check(client, statements).await? {
        return Ok(true);
    }
    if !create {
        return Ok(false);
    }
    if let Err(error) = client.batch_execute(&statements.create()).await {
        let lacks = [SqlState::INSUFFICIENT_PRIVILEGE, SqlState::INVALID_SCHEMA_NAME];
        if error.code().is_some_and(|code| lacks.contains(code)) {
            let why = format!(
                "there is no table {}, and it cannot be made ({}). Have somebody who may run: {}; GRANT SELECT, INSERT, \
                 UPDATE ON {} TO …",
                statements.table,
                refusal::told(&error),
                statements.create(),
                statements.table,
            );
            return Err(OpenError::Refused { why });
        }
        // Where two make it at once, the later one meets an error of one kind or another.
        if !check(client, statements).await? {
            return Err(refusal::of_opening(&error));
        }
        return Ok(true);
    }
    check(client, statements).await
}

/// Whether the table is there; an error if it is not ours.
async fn check(client: &Client, statements: &Statements) -> Result<bool, OpenError> {
    let columns = "SELECT attname::text, format_type(atttypid, NULL) FROM pg_attribute \
                   WHERE attrelid = to_regclass($1) AND attnum > 0 AND NOT attisdropped ORDER BY attnum";
    let found = client.query_typed(columns, &[(&statements.table, Type::TEXT)]).await;
    let found = found.map_err(|error| refusal::of_opening(&error))?;
    let found: Result<Vec<(String, String)>, _> =
        found.iter().map(|row| Ok((row.try_get(0)?, row.try_get(1)?))).collect();
    let found = found.map_err(|error: tokio_postgres::Error| refusal::of_opening(&error))?;
    let is_ours =
        found.iter().map(|(name, kind)| (name.as_str(), kind.as_str())).take(COLUMNS.len()).eq(COLUMNS);
    if found.is_empty() || is_ours {
        return Ok(is_ours);
    }
    let columns: Vec<String> = found.into_iter().map(|(name, kind)| format!("{name} {kind}")).collect();
    let why = format!(
        "its table {} has the columns {}, and not election text, version bigint, token numeric, record bytea; it was \
         made by something else, so name another schema (?schema=NAME) or database",
        statements.table,
        columns.join(", ")
    );
    Err(OpenError::Refused { why })
}
