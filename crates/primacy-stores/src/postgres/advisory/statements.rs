//! Statements about the lock of an election, beside the [statements](super::super::table) for the table.

use super::super::table::{self, LOCKS, NUMBER};

/// The statements, for the schema in which the table is.
#[derive(Clone, Debug)]
pub(in crate::postgres) struct LockStatements {
    /// Election → whether this session has its lock, which it takes if it is free; whether it had it before; the process that has it; the
    /// version and record of its row.
    pub(super) take: String,
    /// Election, its new version and record, the version that is replaced → a row if it was written and the lock given back.
    pub(super) give_back: String,
    /// Election → a row; releases the lock if this session holds it.
    pub(super) unlock: String,
    /// The number of a session → a row if there was one, which has been ended.
    pub(super) end: String,
}

/// → The timeout of an idle session; NULL if the server does not have this setting.
pub(super) const IDLE_TIMEOUT: &str = "SELECT pg_catalog.current_setting('idle_session_timeout', true)";

/// The time for which the server waits until a terminated session has ended, in milliseconds.
const END_PATIENCE_MS: u64 = 1000;

impl LockStatements {
    pub(in crate::postgres) fn new(table: &str) -> Self {
        // The key includes the election and the table: tables in different schemas have different locks.
        let key = format!(
            "pg_catalog.hashtextextended($1, '{}'::pg_catalog.regclass::pg_catalog.oid::pg_catalog.int8)",
            table.replace('\'', "''")
        );
        let limits = table::limits();
        Self {
            // A session counts how often it takes a lock, so it must take it only once.
            take: format!(
                "WITH asked AS MATERIALIZED (SELECT {key} AS number), \
                 had AS MATERIALIZED (SELECT number, number OPERATOR(pg_catalog.=) ANY (SELECT {NUMBER} FROM {LOCKS} \
                 AND pid OPERATOR(pg_catalog.=) pg_catalog.pg_backend_pid()) \
                 AS was_own FROM asked), \
                 locked AS MATERIALIZED (SELECT was_own, CASE WHEN was_own THEN true ELSE pg_catalog.pg_try_advisory_lock(number) END \
                 AS is_own FROM had) \
                 SELECT is_own, was_own, (SELECT pg_catalog.min(pid) FROM {LOCKS} \
                 AND {NUMBER} OPERATOR(pg_catalog.=) (SELECT number FROM asked)), version, \
                 pg_catalog.substr(record, 1, {}) \
                 FROM locked LEFT JOIN {table} ON election OPERATOR(pg_catalog.=) $1",
                crate::record::LENGTH_MAX + 1
            ),
            give_back: format!(
                "WITH {limits}, written AS (UPDATE {table} SET version = $2, record = $3 FROM limits \
                 WHERE election OPERATOR(pg_catalog.=) $1 AND version OPERATOR(pg_catalog.=) $4 RETURNING 1) \
                 SELECT pg_catalog.pg_advisory_unlock({key}) FROM written"
            ),
            unlock: format!("SELECT pg_catalog.pg_advisory_unlock({key})"),
            end: format!(
                "SELECT pg_catalog.pg_terminate_backend(pid, {END_PATIENCE_MS}) FROM {LOCKS} \
                 AND {NUMBER} OPERATOR(pg_catalog.=) $1"
            ),
        }
    }
}
