//! A replica: refused while it is one, and without the latest writes when it takes over.

use primacy_conformance::live::mysql::{MariaDb, url_at};
use primacy_stores::{OpenError, open};

use crate::to_be_tried;

use crate::registers::{PATIENCE, record, refusal, set};

/// A server, and one that follows it.
async fn pair() -> Option<(MariaDb, MariaDb)> {
    let leader = to_be_tried("mysql", MariaDb::start_empty(&["--log-bin=log", "--server-id=1"])).await?;
    let settings = ["--server-id=2", "--read-only=ON"];
    let replica = to_be_tried("mysql", MariaDb::start_empty(&settings)).await?;
    replica.run_sql(&format!(
        "CHANGE MASTER TO MASTER_HOST = '127.0.0.1', MASTER_PORT = {}, MASTER_USER = 'root', MASTER_LOG_FILE = 'log.000001', \
         MASTER_LOG_POS = 4; START SLAVE",
        leader.port()
    ));
    leader.run_sql(
        "CREATE DATABASE app; CREATE USER app IDENTIFIED BY 'pass-of-a-test'; GRANT SELECT, INSERT, UPDATE, CREATE ON app.* TO app",
    );
    Some((leader, replica))
}

/// Waits until a replica has what a statement finds.
async fn until(replica: &MariaDb, statement: &str, found: &str) {
    let waiting = async {
        while replica.run_sql(statement).first().map(String::as_str) != Some(found) {
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(PATIENCE, waiting).await.expect("the replica follows");
}

#[tokio::test]
async fn a_replica_is_refused_and_the_server_that_takes_writes_is_found_beside_it() {
    let Some((leader, replica)) = pair().await else { return };
    let register = open(&leader.url(), "pair").await.unwrap();
    let first = set(&register, None, 1).await.unwrap();
    until(
        &replica,
        "SELECT COUNT(*) FROM information_schema.tables WHERE table_name = 'primacy_record'",
        "1",
    )
    .await;
    let error = refusal(&replica.url()).await;
    assert!(matches!(&error, OpenError::Unavailable { why } if why.contains("read_only")), "{error:?}");
    // The hosts are tried in turn.
    let both = leader.url().replace('@', &format!("@{},", replica.address()));
    assert_eq!(open(&both, "pair").await.unwrap().read().await, Ok(Some((record(1), first))));
}

/// A limit that the page states: replication is asynchronous, and what the replica has not got is lost when it takes over.
#[tokio::test]
async fn a_failover_to_a_replica_that_is_behind_gives_a_token_twice() {
    let Some((mut leader, replica)) = pair().await else { return };
    let url = format!("{},{}/app", leader.url().trim_end_matches("/app"), replica.address());
    let register = open(&url, "failover").await.unwrap();
    let first = set(&register, None, 1).await.unwrap();
    until(&replica, "SELECT COUNT(*) FROM app.primacy_record", "1").await;
    replica.run_sql("STOP SLAVE");
    let lost = set(&register, Some(&first), 2).await.expect("it is acknowledged");
    leader.kill();
    replica.run_sql("SET GLOBAL read_only = 0");
    let successor = open(&url_at(replica.address()), "failover").await.unwrap();
    let (found, version) = successor.read().await.unwrap().unwrap();
    assert_eq!((found, &version), (record(1), &first), "token 2 is forgotten");
    set(&successor, Some(&version), 2).await.expect("and is given a second time");
    // The version is none that was given before, so nobody takes the one record for the other.
    assert_ne!(successor.read().await.unwrap().unwrap().1, lost);
}
