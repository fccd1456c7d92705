//! What is asked about the lock of an election, beside the [statements](super::super::table) for the table.

use super::super::table::{self, LOCKS, NUMBER, Statements};

/// The statements, for the schema in which the table is.
#[derive(Debug)]
pub(super) struct LockStatements {
    /// Election → whether this session has its lock, which it takes if it is free; whether it had it before; who has it; its
    /// row's version and record.
    pub(super) take: String,
    /// Election, its new version and record, the version that is replaced → a row if it was written and the lock given back.
    pub(super) give_back: String,
    /// Election → a row; the lock is free, as far as it is this session's.
    pub(super) unlock: String,
    /// The number of a session → a row if there was one, which has been ended.
    pub(super) end: String,
    /// → How long the server keeps a session in which nothing comes; none where it knows no such setting.
    pub(super) idle_timeout: &'static str,
}

/// How long the server waits for a session that it was told to end, in milliseconds.
const END_PATIENCE_MS: u64 = 1000;

impl LockStatements {
    pub(super) fn new(statements: &Statements) -> Self {
        let table = &statements.table;
        // Of the election and the table: tables of several schemas have locks of their own.
        let key = format!("hashtextextended($1, '{}'::regclass::oid::bigint)", table.replace('\'', "''"));
        let limits = table::limits();
        let channel = statements.channel;
        Self {
            // A session counts how often it has taken a lock, so it must take it once.
            take: format!(
                "WITH asked AS MATERIALIZED (SELECT {key} AS number), \
                 had AS MATERIALIZED (SELECT number, number IN (SELECT {NUMBER} FROM {LOCKS} AND pid = pg_backend_pid()) \
                 AS was_own FROM asked), \
                 locked AS MATERIALIZED (SELECT was_own, CASE WHEN was_own THEN true ELSE pg_try_advisory_lock(number) END \
                 AS is_own FROM had) \
                 SELECT is_own, was_own, (SELECT min(pid) FROM {LOCKS} AND {NUMBER} = (SELECT number FROM asked)), version, \
                 substring(record FROM 1 FOR {}) \
                 FROM locked LEFT JOIN {table} ON election = $1",
                crate::record::LENGTH_MAX + 1
            ),
            give_back: format!(
                "WITH {limits}, written AS (UPDATE {table} SET version = $2, record = $3 FROM limits \
                 WHERE election = $1 AND version = $4 RETURNING 1) \
                 SELECT pg_notify('{channel}', $2 || ' ' || $1) IS NULL, pg_advisory_unlock({key}) FROM written"
            ),
            unlock: format!("SELECT pg_advisory_unlock({key})"),
            end: format!(
                "SELECT pg_terminate_backend(pid, {END_PATIENCE_MS}) FROM {LOCKS} AND {NUMBER} = $1"
            ),
            idle_timeout: "SELECT current_setting('idle_session_timeout', true)",
        }
    }
}
