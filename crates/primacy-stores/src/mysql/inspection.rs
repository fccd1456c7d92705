//! The settings of a server, and the faults for which it is refused.

use std::collections::HashMap;

use super::connection::{Connection, QueryError};
use super::refusal;
use super::table::text;
use crate::open_error::OpenError;

/// The names of the settings that are read. A server leaves out those that it does not have.
const NAMES: [&str; 14] = [
    "version",
    "read_only",
    "super_read_only",
    "innodb_read_only",
    "wsrep_on",
    "group_replication_group_name",
    "innodb_flush_log_at_trx_commit",
    "innodb_doublewrite",
    "log_bin",
    "sync_binlog",
    "autocommit",
    "tx_isolation",
    "transaction_isolation",
    "rpl_semi_sync_master_enabled",
];

/// Settings by their names, which are in lower case.
pub(super) type Variables = HashMap<String, String>;

/// Reads the settings; every user may do this.
pub(super) async fn variables(connection: &mut Connection) -> Result<Variables, OpenError> {
    let names = NAMES.map(|name| format!("'{name}'")).join(", ");
    let question = format!("SHOW GLOBAL VARIABLES WHERE Variable_name IN ({names})");
    let answers = connection.query(&question).await.map_err(|error| match error {
        QueryError::Server { error, .. } => refusal::of_opening(&error),
        QueryError::Broken(why) => OpenError::Unavailable { why },
    })?;
    let rows = answers.iter().flat_map(|answer| &answer.rows);
    Ok(rows.filter_map(|row| Some((text(row, 0)?.to_lowercase(), text(row, 1)?))).collect())
}

/// Refuses a server on which no election can be held.
///
/// # Errors
/// [`OpenError::Unavailable`] for one that takes no writes, [`OpenError::Refused`] for a member of a cluster with several servers that do.
pub(super) async fn refuse_unfit(connection: &mut Connection) -> Result<(), OpenError> {
    judge(&variables(connection).await?)
}

fn judge(variables: &Variables) -> Result<(), OpenError> {
    let is_set = |name: &&str| variables.get(*name).is_some_and(|value| !is_off(value));
    if let Some(name) = ["read_only", "super_read_only", "innodb_read_only"].iter().find(|name| is_set(name))
    {
        let why = format!(
            "it takes no writes ({name} is on): it is a replica, or being maintained; name the server that takes writes"
        );
        return Err(OpenError::Unavailable { why });
    }
    if let Some(name) = ["wsrep_on", "group_replication_group_name"].iter().find(|name| is_set(name)) {
        let why = format!(
            "it is a member of a cluster ({name} is set), where a lock of a row is one member's only, and a read may be behind; hold \
             elections on a server of its own"
        );
        return Err(OpenError::Refused { why });
    }
    Ok(())
}

/// Returns whether a setting is off, in the spellings of all server versions.
pub(super) fn is_off(value: &str) -> bool {
    ["OFF", "0", ""].iter().any(|off| value.eq_ignore_ascii_case(off))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(pairs: &[(&str, &str)]) -> Result<(), OpenError> {
        judge(&pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect())
    }

    #[test]
    fn one_server_that_takes_writes_is_used() {
        assert_eq!(
            judged(&[("read_only", "OFF"), ("wsrep_on", "OFF"), ("group_replication_group_name", "")]),
            Ok(())
        );
        for name in ["read_only", "super_read_only", "innodb_read_only"] {
            assert!(matches!(judged(&[(name, "ON")]), Err(OpenError::Unavailable { .. })), "{name}");
        }
        for (name, value) in [("wsrep_on", "ON"), ("group_replication_group_name", "aaaa-bbbb")] {
            assert!(matches!(judged(&[(name, value)]), Err(OpenError::Refused { .. })), "{name}");
        }
    }
}
