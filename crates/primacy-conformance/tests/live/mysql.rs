//! MySQL and MariaDB: the laws, and what happens when something of the server fails.

use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use primacy_conformance::live::mysql::MariaDb;
use primacy_conformance::{Capabilities, Harness, LAWS, Outcome, rival};
use primacy_core::FencingToken;
use primacy_core::election::lease::{Record, Version};
use primacy_stores::{OpenError, Pending, ReadError, Register, SetError, mysql as store, open};

use crate::{Column, to_be_tried};

mod failing;
mod hostile;
mod replicas;

/// The environment variable for a rival's process: the URL, the election, its number and the last token, one a line.
const RIVAL_VARIABLE: &str = "PRIMACY_TEST_MYSQL_RIVAL";

/// The time to wait for something that must come.
const PATIENCE: Duration = Duration::from_secs(60);

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
        Capabilities { processes: true, lasting: true, raw_bytes: true, deletion: true }
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
        let mut command = Command::new(std::env::current_exe().expect("a test knows its own program"));
        command.args(["--exact", "mysql::play_as_a_rival", "--nocapture"]);
        command.env(RIVAL_VARIABLE, format!("{}\n{election}\n{number}\n{last}", self.server.url()));
        command
    }
}

/// Not a test of its own: the work of each rival's process.
#[tokio::test]
async fn play_as_a_rival() {
    let Ok(told) = std::env::var(RIVAL_VARIABLE) else { return };
    let [url, election, number, last] = told.lines().collect::<Vec<_>>().try_into().unwrap();
    let register = open(url, election).await.unwrap();
    rival::play_as_process(register, number.parse().unwrap(), last.parse().unwrap()).await;
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

/// Opens what cannot be opened, in time.
async fn refusal(url: &str) -> OpenError {
    let opening = tokio::time::timeout(PATIENCE, open(url, "refused")).await;
    opening.expect("an open does not hang").expect_err("nothing to open there")
}

/// A record that nobody holds.
fn record(token: u64) -> Record {
    Record::released(FencingToken(token), primacy_core::Duration::from_secs(10))
}

async fn set(
    register: &Arc<dyn Register>,
    expect: Option<&Version>,
    token: u64,
) -> Result<Version, SetError> {
    let setting =
        tokio::time::timeout(PATIENCE, async { register.compare_and_set(expect, &record(token)).await });
    setting.await.expect("a request has a bound")
}

/// Reads again and again, until the store is there again.
async fn read_in_the_end(register: &Arc<dyn Register>) -> Option<(Record, Version)> {
    let reading = async {
        loop {
            match register.read().await {
                Ok(found) => return found,
                Err(ReadError::Unavailable { .. }) => tokio::time::sleep(Duration::from_millis(10)).await,
                Err(error @ ReadError::Malformed { .. }) => panic!("{error}"),
            }
        }
    };
    tokio::time::timeout(PATIENCE, reading).await.expect("it is reconnected to")
}
