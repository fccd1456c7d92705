//! The tables, and the statements that are sent to them.

use tokio_postgres::Client;
use tokio_postgres::error::SqlState;
use tokio_postgres::types::{ToSql, Type};

use super::advisory::LockStatements;
use super::refusal;
use super::trust::{EVENT_TRIGGER_FIX, EVENT_TRIGGERS, is_trusted, reached};
use crate::open_error::OpenError;
use crate::record;

/// The table that elections are kept in.
#[derive(Clone, Copy, Debug)]
pub(super) enum Table {
    /// Records that are renewed.
    Record,
    /// Records of the holders of locks.
    Lock,
}

impl Table {
    /// The name of the table, and of the channel on which changes are notified.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Record => "primacy_record",
            Self::Lock => "primacy_lock",
        }
    }

    /// Returns the expression for the version of a row. It is negative while no session holds the election's lock, so that the end of a
    /// session is a change.
    fn version(self) -> String {
        match self {
            Self::Record => "version".to_owned(),
            Self::Lock => format!(
                "CASE WHEN pg_catalog.hashtextextended(election, tableoid::pg_catalog.int8) OPERATOR(pg_catalog.=) ANY \
                 (SELECT {NUMBER} FROM {LOCKS}) THEN version ELSE OPERATOR(pg_catalog.-) version END"
            ),
        }
    }
}

/// All advisory locks that are held in this database, by this session or another one.
pub(super) const LOCKS: &str = "pg_catalog.pg_locks WHERE locktype OPERATOR(pg_catalog.=) 'advisory' \
     AND objsubid OPERATOR(pg_catalog.=) 1 AND granted AND database OPERATOR(pg_catalog.=) (SELECT oid FROM pg_catalog.pg_database \
     WHERE datname OPERATOR(pg_catalog.=) pg_catalog.current_database())";

/// The number of such a lock, as passed to the locking function.
pub(super) const NUMBER: &str = "((classid::pg_catalog.int8 OPERATOR(pg_catalog.<<) 32) \
                                  OPERATOR(pg_catalog.|) objid::pg_catalog.int8)";

/// The columns and their types, in order.
const COLUMNS: [(&str, &str); 4] =
    [("election", "text"), ("version", "bigint"), ("token", "numeric"), ("record", "bytea")];

/// The time for which a statement waits for another session's lock. A write waits for the commit of another one, which takes as long as a
/// flush; meanwhile, the later statements of this connection wait behind it.
pub(super) const LOCK_PATIENCE: &str = "500ms";

/// Returns the settings of a single-statement transaction: it waits only briefly for locks, and is as durable as the server can make it.
/// (`local` and `remote_write` would be less than `on`; `remote_apply` is more.)
pub(super) fn limits() -> String {
    format!(
        "limits AS MATERIALIZED (SELECT pg_catalog.set_config('lock_timeout', '{LOCK_PATIENCE}', true), \
         CASE WHEN pg_catalog.current_setting('synchronous_commit') OPERATOR(pg_catalog.=) \
         ANY (ARRAY['off', 'local', 'remote_write']) THEN pg_catalog.set_config('synchronous_commit', 'on', true) END)"
    )
}

/// A statement that revokes the rights that default privileges grant on the tables made in its transaction: a trigger put on them would run
/// with the rights of each node.
const REVOKE_DEFAULTS: &str = include_str!("default_privileges.sql");

/// The statements, for the schema in which the table is.
#[derive(Clone, Debug)]
pub(super) struct Statements {
    /// The name of the table, as it is in the statements.
    pub(super) table: String,
    /// Elections → each that has a row, its version and its record.
    pub(super) read: String,
    /// Election, version, token, record → a row if it was written.
    pub(super) insert: String,
    /// The same, and the version that is replaced.
    pub(super) update: String,
    /// Many inserts and updates: arrays of the same parameters, where a missing version means no row → each election that has a row which
    /// no other session keeps locked; and each once more, with its new version, if it was written.
    pub(super) write_many: String,
    /// Elections → each that has a row, and its version.
    pub(super) versions: String,
    /// The statements about the lock of an election.
    pub(super) lock: LockStatements,
}

impl Statements {
    pub(super) fn new(schema: Option<&str>, kind: Table) -> Self {
        let name = kind.name();
        let table = match schema {
            Some(schema) => format!("\"{}\".{name}", schema.replace('"', "\"\"")),
            None => name.to_owned(),
        };
        Self::of(table, kind)
    }

    /// Returns the statements for a table, by its name in SQL.
    pub(super) fn of(table: String, kind: Table) -> Self {
        let (limits, version) = (limits(), kind.version());
        let lock = LockStatements::new(&table);
        Self {
            // Of a record that is too long, only enough bytes to detect that.
            read: format!(
                "SELECT election, {version}, pg_catalog.substr(record, 1, {}) FROM {table} \
                 WHERE election OPERATOR(pg_catalog.=) ANY ($1)",
                record::LENGTH_MAX + 1
            ),
            insert: format!(
                "WITH {limits}, written AS (INSERT INTO {table}(election, version, token, record) \
                 SELECT $1, $2, $3::pg_catalog.numeric, $4 FROM limits ON CONFLICT (election) DO NOTHING RETURNING 1) SELECT 1 FROM written"
            ),
            update: format!(
                "WITH {limits}, written AS (UPDATE {table} SET version = $2, token = greatest(token, $3::pg_catalog.numeric), \
                 record = $4 FROM limits WHERE election OPERATOR(pg_catalog.=) $1 AND version OPERATOR(pg_catalog.=) $5 RETURNING 1) SELECT 1 FROM written"
            ),
            // Rows are locked before they are written, always in the same order, so that two batches cannot deadlock.
            write_many: format!(
                "WITH {limits}, asked AS MATERIALIZED (SELECT * FROM ROWS FROM (pg_catalog.unnest($1), \
                 pg_catalog.unnest($2), pg_catalog.unnest($3), pg_catalog.unnest($4), pg_catalog.unnest($5)) AS asked(election, version, token, record, expect)), \
                 free AS MATERIALIZED (SELECT election FROM {table} WHERE election OPERATOR(pg_catalog.=) ANY ($1) ORDER BY election \
                 FOR UPDATE SKIP LOCKED), \
                 updated AS (UPDATE {table} AS kept SET version = asked.version, \
                 token = greatest(kept.token, asked.token::pg_catalog.numeric), record = asked.record \
                 FROM limits, asked JOIN free ON free.election OPERATOR(pg_catalog.=) asked.election \
                 WHERE kept.election OPERATOR(pg_catalog.=) asked.election AND kept.version OPERATOR(pg_catalog.=) asked.expect \
                 RETURNING asked.election, asked.version), \
                 inserted AS (INSERT INTO {table}(election, version, token, record) \
                 SELECT election, version, token::pg_catalog.numeric, record FROM limits, asked WHERE expect IS NULL \
                 ORDER BY election ON CONFLICT (election) DO NOTHING RETURNING election, version) \
                 SELECT election, version FROM updated UNION ALL SELECT election, version FROM inserted \
                 UNION ALL SELECT election, NULL FROM free"
            ),
            versions: format!(
                "SELECT election, {version} FROM {table} WHERE election OPERATOR(pg_catalog.=) ANY ($1)"
            ),
            table,
            lock,
        }
    }

    /// Returns the statement that makes the table. Rows are updated all the time: with free space in each page, updates need not write to
    /// indexes.
    pub(super) fn create(&self) -> String {
        format!(
            "CREATE TABLE IF NOT EXISTS {} (election pg_catalog.text COLLATE pg_catalog.\"C\" PRIMARY KEY, \
             version bigint NOT NULL, token numeric NOT NULL, record pg_catalog.bytea NOT NULL) WITH (fillfactor = 50)",
            self.table
        )
    }
}

/// Returns the name of the table with its schema, if it exists; it is made if `create` is set. `owner` is an additional trusted role.
///
/// # Errors
/// [`OpenError::Refused`] if it is not this store's, or must not be made.
pub(super) async fn ensure(
    client: &Client,
    statements: &Statements,
    owner: Option<&str>,
    create: bool,
) -> Result<Option<String>, OpenError> {
    if let Some(table) = check(client, statements, owner).await? {
        return Ok(Some(table));
    }
    if !create {
        return Ok(None);
    }
    refuse_event_triggers(client, statements, owner).await?;
    // Both are one transaction.
    let making = format!("{}; {REVOKE_DEFAULTS}", statements.create());
    if let Err(error) = client.batch_execute(&making).await {
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
        // If two sessions make it at once, the later one gets one of several errors.
        let found = check(client, statements, owner).await?;
        return found.map(Some).ok_or_else(|| refusal::of_opening(&error));
    }
    check(client, statements, owner).await
}

/// # Errors
/// [`OpenError::Refused`] if making the table would run a function of a role that is not trusted.
async fn refuse_event_triggers(
    client: &Client,
    statements: &Statements,
    trusted: Option<&str>,
) -> Result<(), OpenError> {
    let question = format!(
        "SELECT pg_catalog.format('%s, which %I can change at any time, would run with the rights of %I', \
         part.shown, pg_catalog.pg_get_userbyid(part.owner), current_user) FROM {EVENT_TRIGGERS} AS part \
         WHERE NOT {} AND pg_catalog.pg_get_userbyid(part.owner) OPERATOR(pg_catalog.<>) coalesce($1, '') LIMIT 1",
        is_trusted("part.owner")
    );
    let found = client.query_typed(&question, &[(&trusted, Type::TEXT)]).await;
    let why = found.and_then(|rows| rows.first().map(|row| row.try_get::<_, String>(0)).transpose());
    match why.map_err(|error| refusal::of_opening(&error))? {
        None => Ok(()),
        Some(why) => Err(OpenError::Refused {
            why: format!("the table {} is not made: {why}. {EVENT_TRIGGER_FIX}", statements.table),
        }),
    }
}

/// Returns the query for the table's name with its schema, its owner, its columns, and its faults; it has no row if there is no table.
fn question() -> String {
    let (table_is_trusted, schema_is_trusted, part_is_trusted) =
        (is_trusted("relowner"), is_trusted("nspowner"), is_trusted("part.owner"));
    let table = "pg_catalog.to_regclass($1)::pg_catalog.oid";
    let (parts, grantee_is_trusted) = (reached(&format!("ARRAY[{table}]")), is_trusted("grantee"));
    format!(
        "SELECT pg_catalog.format('%I.%I', nspname, relname), pg_catalog.pg_get_userbyid(relowner)::pg_catalog.text, \
         (SELECT pg_catalog.string_agg(pg_catalog.concat(attname, ' ', CASE WHEN typnamespace OPERATOR(pg_catalog.<>) \
         'pg_catalog'::pg_catalog.regnamespace::pg_catalog.oid THEN 'another ' END, \
         pg_catalog.replace(pg_catalog.replace(pg_catalog.format_type(atttypid, NULL), '\"', ''), 'pg_catalog.', '')), ', ' ORDER BY attnum) \
         FROM pg_catalog.pg_attribute JOIN pg_catalog.pg_type ON pg_type.oid OPERATOR(pg_catalog.=) atttypid WHERE attrelid OPERATOR(pg_catalog.=) pg_class.oid \
         AND attnum OPERATOR(pg_catalog.>) 0 AND NOT attisdropped), \
         CASE WHEN relkind OPERATOR(pg_catalog.<>) 'r' THEN 'is no ordinary table' \
         WHEN NOT {table_is_trusted} AND pg_catalog.pg_get_userbyid(relowner) OPERATOR(pg_catalog.<>) coalesce($2, '') \
         THEN 'can be changed by that role at any time' \
         WHEN NOT {schema_is_trusted} AND pg_catalog.pg_get_userbyid(nspowner) OPERATOR(pg_catalog.<>) coalesce($2, '') \
         THEN pg_catalog.format('is in a schema of the role %I, who can replace it', pg_catalog.pg_get_userbyid(nspowner)) \
         WHEN relpersistence OPERATOR(pg_catalog.<>) 'p' THEN 'is emptied by a crash, since it is not logged' \
         WHEN pg_catalog.row_security_active(pg_class.oid) THEN 'has row security, which can hide a record' \
         WHEN EXISTS (SELECT FROM pg_catalog.pg_rewrite WHERE ev_class OPERATOR(pg_catalog.=) pg_class.oid) \
         THEN 'has rules, which can do anything in the place of a write' \
         WHEN EXISTS (SELECT FROM pg_catalog.pg_inherits WHERE inhrelid OPERATOR(pg_catalog.=) pg_class.oid \
         OR inhparent OPERATOR(pg_catalog.=) pg_class.oid) THEN 'inherits, or is inherited from' \
         WHEN untrusted.shown IS NOT NULL THEN pg_catalog.format('depends on %s, which %I can change at any time', \
         untrusted.shown, pg_catalog.pg_get_userbyid(untrusted.owner)) \
         WHEN EXISTS (SELECT FROM pg_catalog.aclexplode(relacl) AS granted WHERE granted.grantee OPERATOR(pg_catalog.=) 0 \
         AND granted.privilege_type OPERATOR(pg_catalog.<>) 'SELECT') \
         OR EXISTS (SELECT FROM pg_catalog.pg_attribute, pg_catalog.aclexplode(attacl) AS granted WHERE attrelid OPERATOR(pg_catalog.=) pg_class.oid \
         AND granted.grantee OPERATOR(pg_catalog.=) 0 AND granted.privilege_type OPERATOR(pg_catalog.<>) 'SELECT') \
         THEN 'may be written to by everybody (PUBLIC)' \
         WHEN lent.rights IS NOT NULL THEN pg_catalog.format('gives %I more than a candidate needs, and a trigger on it would run with \
         the rights of this node: REVOKE %s ON %I.%I FROM %I', lent.grantee, lent.rights, nspname, relname, lent.grantee) END \
         FROM pg_catalog.pg_class JOIN pg_catalog.pg_namespace ON pg_namespace.oid OPERATOR(pg_catalog.=) relnamespace \
         LEFT JOIN (SELECT part.shown, part.owner FROM {parts} AS part WHERE NOT {part_is_trusted} \
         AND pg_catalog.pg_get_userbyid(part.owner) OPERATOR(pg_catalog.<>) coalesce($2, '') LIMIT 1) AS untrusted ON true \
         LEFT JOIN (SELECT pg_catalog.pg_get_userbyid(grantee) AS grantee, pg_catalog.string_agg(may, ', ' ORDER BY may) AS rights FROM ( \
         SELECT granted.grantee, granted.privilege_type AS may FROM pg_catalog.pg_class, pg_catalog.aclexplode(relacl) AS granted \
         WHERE oid OPERATOR(pg_catalog.=) {table} AND granted.grantee OPERATOR(pg_catalog.<>) relowner \
         UNION SELECT granted.grantee, granted.privilege_type FROM pg_catalog.pg_attribute, pg_catalog.aclexplode(attacl) AS granted \
         WHERE attrelid OPERATOR(pg_catalog.=) {table}) AS granted \
         WHERE may OPERATOR(pg_catalog.<>) ALL (ARRAY['SELECT', 'INSERT', 'UPDATE', 'DELETE']) AND NOT {grantee_is_trusted} \
         AND pg_catalog.pg_get_userbyid(grantee) OPERATOR(pg_catalog.<>) coalesce($2, '') GROUP BY grantee LIMIT 1) AS lent ON true \
         WHERE pg_class.oid OPERATOR(pg_catalog.=) {table}"
    )
}

/// Returns the table with its schema, if it exists; an error if it is not this store's.
async fn check(
    client: &Client,
    statements: &Statements,
    trusted: Option<&str>,
) -> Result<Option<String>, OpenError> {
    // A cheap check first: many clients may look for a table that does not exist yet.
    let is_there = client
        .query_typed_one(
            "SELECT pg_catalog.to_regclass($1) IS NOT NULL",
            &[(&statements.table as &(dyn ToSql + Sync), Type::TEXT)],
        )
        .await
        .and_then(|row| row.try_get(0));
    if !is_there.map_err(|error| refusal::of_opening(&error))? {
        return Ok(None);
    }
    let asked = [(&statements.table as &(dyn ToSql + Sync), Type::TEXT), (&trusted, Type::TEXT)];
    let rows = client.query_typed(&question(), &asked).await.map_err(|error| refusal::of_opening(&error))?;
    let Some(row) = rows.first() else { return Ok(None) };
    let text = |column: usize| {
        let text = row.try_get::<_, Option<String>>(column).map_err(|error| refusal::of_opening(&error));
        text.map(Option::unwrap_or_default)
    };
    let (table, owner, columns, fault) = (text(0)?, text(1)?, text(2)?, text(3)?);
    let expected = COLUMNS.map(|(name, kind)| format!("{name} {kind}")).join(", ");
    let others = columns.strip_prefix(&expected).filter(|rest| rest.is_empty() || rest.starts_with(", "));
    let why = if others.is_none() {
        format!("has the columns {columns}, and not {expected}; it was made by something else")
    } else if fault.is_empty() {
        return Ok(Some(table));
    } else {
        fault
    };
    let trusting = if why.contains(" role") {
        format!("; or, if the role is to be trusted with the election, name it: ?owner={owner}")
    } else {
        String::new()
    };
    let why = format!(
        "its table {table}, of the role {owner}, {why}. Have it changed, or name another schema (?schema=NAME) or database{trusting}"
    );
    Err(OpenError::Refused { why })
}
