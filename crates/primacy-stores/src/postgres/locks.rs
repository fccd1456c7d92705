//! Locks on tables: the sessions that keep others waiting, and the roles that could do so.
//!
//! A role needs no right on a table to request a lock on it, only on its schema: `PREPARE` takes a weak lock before it checks rights, and
//! `CREATE RULE` waits behind it for the strongest lock. All later statements queue behind that request.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::time::{sleep, timeout};
use tokio_postgres::types::{ToSql, Type};

use super::link::{Inner, connect};

/// The time without an answer after which the blocking sessions are looked up, and the time limit of the lookup.
const LOOK_AFTER: Duration = Duration::from_millis(400);
const LOOK_PATIENCE: Duration = Duration::from_secs(2);

/// An expression of SQL: the session of a row of `pg_stat_activity`. The state of another role's session may not be visible.
const SESSION: &str = "pg_catalog.format('process %s of the role %s, %s', pg_stat_activity.pid, \
     coalesce(usename::pg_catalog.text, backend_type, 'unknown'), coalesce(state, 'whose state only its own role may see'))";

/// An expression of SQL: up to three other sessions of `pg_stat_activity` that fulfil `condition`, in one text; NULL if there are none.
fn sessions(condition: &str) -> String {
    format!(
        "(SELECT pg_catalog.string_agg(shown, '; ') FROM (SELECT {SESSION} AS shown FROM pg_catalog.pg_stat_activity \
         WHERE pid OPERATOR(pg_catalog.<>) pg_catalog.pg_backend_pid() AND {condition} ORDER BY xact_start, pid LIMIT 3) AS found)"
    )
}

/// An SQL expression: the sessions that hold or request a lock on the table with the oid `table` that prevents creating a trigger on it;
/// NULL if there are none.
#[must_use]
pub fn holders(table: &str) -> String {
    sessions(&format!(
        "pid OPERATOR(pg_catalog.=) ANY (SELECT pg_locks.pid FROM pg_catalog.pg_locks \
         WHERE relation OPERATOR(pg_catalog.=) {table} AND mode OPERATOR(pg_catalog.<>) ALL (ARRAY['AccessShareLock', 'RowShareLock']) \
         AND database OPERATOR(pg_catalog.=) (SELECT oid FROM pg_catalog.pg_database \
         WHERE datname OPERATOR(pg_catalog.=) pg_catalog.current_database()))"
    ))
}

/// An SQL expression: the sessions that block requests for a lock on the table with the oid `table`; NULL if there are none.
fn blockers(table: &str) -> String {
    sessions(&format!(
        "pid OPERATOR(pg_catalog.=) ANY (SELECT pg_catalog.unnest(pg_catalog.pg_blocking_pids(pg_locks.pid)) FROM pg_catalog.pg_locks \
         WHERE NOT granted AND relation OPERATOR(pg_catalog.=) {table})"
    ))
}

/// An SQL expression: the schemas of the array `schemas` that roles without the right to write to the table with the oid `table` may use,
/// each with up to three of these roles; NULL if there are none. Superusers and the owner of a schema do not count.
#[must_use]
pub fn others_in(schemas: &str, table: &str) -> String {
    format!(
        "(SELECT pg_catalog.string_agg(pg_catalog.format('%I (%s)', nspname, others), ', ') FROM (SELECT nspname, \
         (SELECT pg_catalog.string_agg(rolname, ', ') FROM (SELECT rolname FROM pg_catalog.pg_roles WHERE rolcanlogin AND NOT rolsuper \
         AND pg_catalog.has_database_privilege(pg_roles.oid, pg_catalog.current_database(), 'CONNECT') \
         AND pg_catalog.has_schema_privilege(pg_roles.oid, pg_namespace.oid, 'USAGE') \
         AND NOT pg_catalog.has_table_privilege(pg_roles.oid, {table}, 'INSERT, UPDATE, DELETE, TRUNCATE') \
         AND NOT pg_catalog.pg_has_role(pg_roles.oid, nspowner, 'USAGE') ORDER BY rolname LIMIT 3) AS them) AS others \
         FROM pg_catalog.pg_namespace WHERE pg_namespace.oid OPERATOR(pg_catalog.=) ANY ({schemas})) AS used WHERE others IS NOT NULL)"
    )
}

/// An expression of SQL: up to three roles, other than this one, the owner and superusers, that may write to the table with the oid
/// `table`; NULL if there are none.
fn writers(table: &str) -> String {
    format!(
        "(SELECT pg_catalog.string_agg(rolname, ', ') FROM (SELECT rolname FROM pg_catalog.pg_roles, pg_catalog.pg_class \
         WHERE pg_class.oid OPERATOR(pg_catalog.=) {table} AND rolcanlogin AND NOT rolsuper AND rolname OPERATOR(pg_catalog.<>) current_user \
         AND NOT pg_catalog.pg_has_role(pg_roles.oid, relowner, 'USAGE') \
         AND pg_catalog.has_database_privilege(pg_roles.oid, pg_catalog.current_database(), 'CONNECT') \
         AND pg_catalog.has_schema_privilege(pg_roles.oid, relnamespace, 'USAGE') \
         AND (pg_catalog.has_any_column_privilege(pg_roles.oid, pg_class.oid, 'INSERT, UPDATE') \
         OR pg_catalog.has_table_privilege(pg_roles.oid, pg_class.oid, 'DELETE, TRUNCATE')) ORDER BY rolname LIMIT 3) AS them)"
    )
}

/// The query of `primacy doctor` about the table named by the first parameter: the other roles that may use its schema, the sessions that
/// keep others waiting for it, and the other roles that may write to it.
pub(super) fn question() -> String {
    let table = "pg_catalog.to_regclass($1)::pg_catalog.oid";
    let schema = format!(
        "SELECT relnamespace FROM pg_catalog.pg_class WHERE pg_class.oid OPERATOR(pg_catalog.=) {table}"
    );
    format!("SELECT {}, {}, {}", others_in(&schema, table), blockers(table), writers(table))
}

/// Looks up once, over another connection, the sessions that block a pending request, and notes them in its attempts.
pub(super) async fn note_blockers(inner: Arc<Inner>) {
    static LOOKS: AtomicBool = AtomicBool::new(false);
    sleep(LOOK_AFTER).await;
    // One lookup at a time in this process: a thousand elections may wait for one table.
    if LOOKS.swap(true, Ordering::SeqCst) {
        return;
    }
    let _looking = Looking(&LOOKS);
    let table = inner.statements().table.clone();
    let looking = async {
        let live = connect(&inner.settings, None).await.ok()?;
        let statement = format!("SELECT {}", blockers("pg_catalog.to_regclass($1)::pg_catalog.oid"));
        let asked = [(&table as &(dyn ToSql + Sync), Type::TEXT)];
        let row = live.client.query_typed_one(&statement, &asked).await.ok()?;
        row.try_get::<_, Option<String>>(0).ok()?
    };
    if let Ok(Some(sessions)) = timeout(LOOK_PATIENCE, looking).await {
        crate::attempts::failed(&format!(
            "the table {table} is locked, or its lock is wanted, by {sessions}"
        ));
    }
}

/// A guard that allows the next lookup when it is dropped.
struct Looking(&'static AtomicBool);

impl Drop for Looking {
    fn drop(&mut self) {
        self.0.store(false, Ordering::SeqCst);
    }
}
