//! PostgreSQL: the laws, and what happens when something of it fails.

use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use primacy_conformance::live::postgres::{PgBouncer, Postgres};
use primacy_conformance::{Capabilities, Harness, LAWS, Outcome, REQUIRE_LIVE_VARIABLE, rival};
use primacy_stores::{OpenError, Pending, Register, open, postgres};
use tokio_postgres::Client;
use tokio_postgres::types::Type;

use crate::{Column, ONLY_VARIABLE};

pub(crate) mod advisory;
mod failing;
mod fence;
mod fence_owner;
mod hostile;
mod locks;
mod many;
mod reached;

/// The environment variable for a rival's process: the URL, the election, its number and the last token, one a line.
const RIVAL_VARIABLE: &str = "PRIMACY_TEST_POSTGRES_RIVAL";

/// A server, or a pooler in front of it.
struct PostgresHarness {
    name: &'static str,
    url: String,
    client: Client,
}

impl Harness for PostgresHarness {
    fn name(&self) -> String {
        self.name.to_owned()
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities { processes: true, lasting: true, raw_bytes: true, deletion: true }
    }

    fn change_bound(&self) -> Duration {
        postgres::CHANGE_BOUND
    }

    fn open<'a>(&'a self, election: &'a str) -> Pending<'a, Arc<dyn Register>> {
        Box::pin(async move { open(&self.url, election).await.expect("the server is there") })
    }

    fn plant<'a>(&'a self, election: &'a str, bytes: &'a [u8]) -> Pending<'a, ()> {
        Box::pin(async move {
            let sql = "UPDATE primacy_record SET version = version % 1000000 + 1000001, record = $2 WHERE election = $1";
            let rows =
                self.client.execute_typed(sql, &[(&election, Type::TEXT), (&bytes, Type::BYTEA)]).await;
            assert_eq!(rows.expect("the table can be written"), 1);
        })
    }

    fn erase<'a>(&'a self, election: &'a str) -> Pending<'a, ()> {
        Box::pin(async move {
            let sql = "DELETE FROM primacy_record WHERE election = $1";
            let rows = self.client.execute_typed(sql, &[(&election, Type::TEXT)]).await;
            assert_eq!(rows.expect("the table can be written"), 1);
        })
    }

    fn stored<'a>(&'a self, election: &'a str) -> Pending<'a, Option<Vec<u8>>> {
        Box::pin(async move {
            let sql = "SELECT record FROM primacy_record WHERE election = $1";
            let rows =
                self.client.query_typed(sql, &[(&election, Type::TEXT)]).await.expect("it can be read");
            rows.first().map(|row| row.get(0))
        })
    }

    fn rival(&self, election: &str, number: u64, last: u64) -> Command {
        let mut command = Command::new(std::env::current_exe().expect("a test knows its own program"));
        command.args(["--exact", "postgres::play_as_a_rival", "--nocapture"]);
        command.env(RIVAL_VARIABLE, format!("{}\n{election}\n{number}\n{last}", self.url));
        command
    }
}

/// Not a test of its own: the process of each rival.
#[tokio::test]
async fn play_as_a_rival() {
    let Ok(told) = std::env::var(RIVAL_VARIABLE) else { return };
    let [url, election, number, last] = told.lines().collect::<Vec<_>>().try_into().unwrap();
    let register = open(url, election).await.unwrap();
    rival::play_as_process(register, number.parse().unwrap(), last.parse().unwrap()).await;
}

/// The laws, on a server and through a pooler.
pub(crate) async fn check() -> Vec<Column> {
    let names = ["postgres", "postgres, through PgBouncer"];
    let Some(server) = server(&[]).await else {
        let not_run: Vec<_> = LAWS.iter().map(|law| (law.name, Outcome::NotRun)).collect();
        return names.map(|name| (name.to_owned(), not_run.clone())).into();
    };
    let pooler = PgBouncer::start(&server, 4).await.expect("it is installed with the server");
    let mut columns = Vec::new();
    for (name, url) in names.into_iter().zip([server.url(), pooler.url()]) {
        let client = server.connect().await;
        let harness = PostgresHarness { name, url, client };
        columns.push((name.to_owned(), primacy_conformance::check(&harness).await));
        server.run_sql("DROP TABLE primacy_record").await;
    }
    columns
}

/// A server, if there can be one; else `None`, with a line that says so.
async fn server(settings: &[&str]) -> Option<Postgres> {
    if std::env::var(ONLY_VARIABLE).is_ok_and(|only| only.split(',').all(|wanted| wanted != "postgres")) {
        return None;
    }
    match Postgres::start(settings).await {
        Ok(server) => Some(server),
        Err(why) => {
            eprintln!("postgres: NOT RUN: {why}");
            assert!(
                std::env::var_os(REQUIRE_LIVE_VARIABLE).is_none(),
                "PostgreSQL is required to be there: {why}"
            );
            None
        }
    }
}

/// The error of a store that cannot be opened, in time.
async fn refusal(url: &str) -> OpenError {
    let opening = tokio::time::timeout(Duration::from_secs(60), open(url, "refused")).await;
    opening.expect("an open does not hang").expect_err("nothing to open there")
}
