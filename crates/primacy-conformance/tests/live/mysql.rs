//! MySQL and MariaDB: the laws, and what happens when something of the server fails.

use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use primacy_conformance::live::mysql::MariaDb;
use primacy_conformance::{Capabilities, Harness, LAWS, Outcome, rival};
use primacy_stores::{Pending, Register, mysql as store, open};

use crate::{Column, to_be_tried};

mod failing;
mod hostile;
mod replicas;

struct MysqlHarness {
    server: MariaDb,
}

/// A literal of bytes.
fn hex(bytes: &[u8]) -> String {
    let digits: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("x'{digits}'")
}

impl Harness for MysqlHarness {
    fn name(&self) -> String {
        "mysql (MariaDB)".to_owned()
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities::ALL
    }

    fn change_bound(&self) -> Duration {
        store::CHANGE_BOUND
    }

    fn open<'a>(&'a self, election: &'a str) -> Pending<'a, Arc<dyn Register>> {
        Box::pin(async move { open(&self.server.url(), election).await.expect("the server is there") })
    }

    fn plant<'a>(&'a self, election: &'a str, bytes: &'a [u8]) -> Pending<'a, ()> {
        Box::pin(async move {
            let (election, bytes) = (hex(election.as_bytes()), hex(bytes));
            let changed = self.server.run_sql(&format!(
                "UPDATE app.primacy_record SET version = version % 1000000 + 1000001, record = {bytes} WHERE election = {election}; \
                 SELECT ROW_COUNT()"
            ));
            assert_eq!(changed, ["1"]);
        })
    }

    fn erase<'a>(&'a self, election: &'a str) -> Pending<'a, ()> {
        Box::pin(async move {
            let election = hex(election.as_bytes());
            let deleted = self.server.run_sql(&format!(
                "DELETE FROM app.primacy_record WHERE election = {election}; SELECT ROW_COUNT()"
            ));
            assert_eq!(deleted, ["1"]);
        })
    }

    fn stored<'a>(&'a self, election: &'a str) -> Pending<'a, Option<Vec<u8>>> {
        Box::pin(async move {
            let election = hex(election.as_bytes());
            let question = format!("SELECT HEX(record) FROM app.primacy_record WHERE election = {election}");
            let found = self.server.run_sql(&question);
            let digits = found.first()?.as_bytes().chunks(2);
            Some(
                digits
                    .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap())
                    .collect(),
            )
        })
    }

    fn rival(&self, election: &str, number: u64, last: u64) -> Command {
        rival::command(&self.server.url(), election, number, last)
    }
}

/// The laws.
pub(crate) async fn check() -> Vec<Column> {
    let outcomes = match server(&[]).await {
        Some(server) => primacy_conformance::check(&MysqlHarness { server }).await,
        None => LAWS.iter().map(|law| (law.name, Outcome::NotRun)).collect(),
    };
    vec![("mysql (MariaDB)".to_owned(), outcomes)]
}

/// The laws alone, beside the table of all stores.
#[tokio::test(flavor = "multi_thread")]
async fn every_law_is_kept() {
    for (law, outcome) in check().await.into_iter().flat_map(|(_, laws)| laws) {
        assert!(matches!(outcome, Outcome::Passed | Outcome::NotRun), "{law}: {outcome:?}");
    }
}

/// A server, if there can be one; none, and said so, if there cannot.
async fn server(settings: &[&str]) -> Option<MariaDb> {
    to_be_tried("mysql", MariaDb::start(settings)).await
}
