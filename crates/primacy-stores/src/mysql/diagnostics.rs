//! Checks of a server: whether it keeps what it has acknowledged.

use super::connection::Connection;
use super::inspection::{self, Variables, is_off};
use super::pool::ConnectionPool;
use super::settings::Settings;
use crate::diagnostics::{Check, Examination, SURVIVES, Verdict};
use crate::open_error::OpenError;
use crate::opening::Address;
use crate::runtime;

/// Asks the server.
pub(crate) fn examine(address: Address) -> Examination {
    Box::pin(async move {
        let settings = Settings::parse(&address.rest)?;
        // This refuses a server that takes no writes, and a table of another shape.
        ConnectionPool::new(settings.clone()).open(false).await?;
        let asking = runtime::run(async move {
            let mut last = OpenError::Unavailable { why: "no server answers".to_owned() };
            for host in &settings.hosts {
                match Connection::open(&settings, host).await {
                    Ok(mut connection) => match inspection::refuse_unfit(&mut connection).await {
                        Ok(()) => return inspection::variables(&mut connection).await,
                        Err(error) => last = error,
                    },
                    Err(error) => last = error,
                }
            }
            Err(last)
        });
        let variables = asking.await.map_err(|why| OpenError::Unavailable { why })??;
        Ok(judge(&variables))
    })
}

fn judge(variables: &Variables) -> Vec<Check> {
    vec![
        survives(variables),
        flushes(variables),
        flushes_binlog(variables),
        writes_whole_pages(variables),
        isolates(variables),
    ]
}

/// Never passes: replication to another server does not keep every acknowledged write.
fn survives(variables: &Variables) -> Check {
    let semi = match variables.get("rpl_semi_sync_master_enabled") {
        Some(value) if !is_off(value) => "on, and off by itself when no replica answers in time",
        Some(_) => "off",
        None => "unknown",
    };
    Check::not(
        Verdict::Warn,
        SURVIVES,
        format!("semi-synchronous replication: {semi}"),
        "a replica gets writes after they were acknowledged. One that takes over may not have the latest token, and gives it a second \
         time; without a replica nobody leads until the server is back",
        "hold the election in a store that survives failovers, as etcd: or postgres:; or let nobody but the same server come back",
    )
}

fn flushes(variables: &Variables) -> Check {
    is_as_it_must_be(
        variables,
        "what was answered survives a crash",
        "innodb_flush_log_at_trx_commit",
        "1",
        "a transaction is acknowledged before it is on disk: after a crash a token is given a second time",
    )
}

fn flushes_binlog(variables: &Variables) -> Check {
    const NAME: &str = "the binary log agrees with the data after a crash";
    match variables.get("log_bin") {
        Some(value) if is_off(value) => Check::pass(NAME, "log_bin is off"),
        Some(_) | None => is_as_it_must_be(
            variables,
            NAME,
            "sync_binlog",
            "1",
            "what the binary log has lost in a crash, replicas do not get, and neither does a server that is restored from it",
        ),
    }
}

fn writes_whole_pages(variables: &Variables) -> Check {
    const NAME: &str = "a torn page is repaired";
    match variables.get("innodb_doublewrite").map(String::as_str) {
        Some(value) if !is_off(value) => Check::pass(NAME, format!("innodb_doublewrite is {value}")),
        Some(value) => Check::not(
            Verdict::Warn,
            NAME,
            format!("innodb_doublewrite is {value}"),
            "a page that was half written when the machine stopped cannot be read again, unless the file system writes pages whole",
            "innodb_doublewrite = ON in the server's configuration",
        ),
        None => unknown(NAME, "innodb_doublewrite"),
    }
}

/// Always passes: the store sets both for its own sessions.
fn isolates(variables: &Variables) -> Check {
    let of = |names: &[&str]| {
        names.iter().find_map(|name| variables.get(*name)).map_or("unknown", String::as_str).to_owned()
    };
    Check::pass(
        "transactions do not depend on the server's defaults",
        format!(
            "autocommit is {} and the isolation level {} by default; the sessions of this store set autocommit = 1 and REPEATABLE READ, and \
             read a row that they replace with FOR UPDATE",
            of(&["autocommit"]),
            of(&["transaction_isolation", "tx_isolation"])
        ),
    )
}

fn is_as_it_must_be(variables: &Variables, name: &str, setting: &str, wanted: &str, why: &str) -> Check {
    match variables.get(setting) {
        Some(value) if value == wanted => Check::pass(name, format!("{setting} is {value}")),
        Some(value) => Check::not(
            Verdict::Fail,
            name,
            format!("{setting} is {value}"),
            why,
            format!("SET GLOBAL {setting} = {wanted}, and the same in the server's configuration"),
        ),
        None => unknown(name, setting),
    }
}

fn unknown(name: &str, setting: &str) -> Check {
    Check::not(
        Verdict::Unknown,
        name,
        format!("it does not tell {setting}"),
        "a server that does not flush what it acknowledges gives a token a second time after a crash",
        format!("look into the server's configuration ({setting})"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdicts(pairs: &[(&str, &str)]) -> Vec<Verdict> {
        let variables = pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        judge(&variables).iter().map(|check| check.verdict).collect()
    }

    #[test]
    fn a_server_that_does_not_flush_fails_and_none_is_said_to_be_safe() {
        use Verdict::{Fail, Pass, Unknown, Warn};
        let good =
            [("innodb_flush_log_at_trx_commit", "1"), ("log_bin", "OFF"), ("innodb_doublewrite", "ON")];
        assert_eq!(verdicts(&good), [Warn, Pass, Pass, Pass, Pass]);
        let bad = [
            ("innodb_flush_log_at_trx_commit", "2"),
            ("log_bin", "ON"),
            ("sync_binlog", "0"),
            ("innodb_doublewrite", "OFF"),
        ];
        assert_eq!(verdicts(&bad), [Warn, Fail, Fail, Warn, Pass]);
        assert_eq!(verdicts(&[]), [Warn, Unknown, Unknown, Unknown, Pass]);
    }
}
