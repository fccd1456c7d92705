//! PostgreSQL: the laws, and what happens when something of it fails.

use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use primacy_conformance::live::postgres::{PgBouncer, Postgres};
use primacy_conformance::{Capabilities, Harness, LAWS, Outcome, rival};
use primacy_stores::{Pending, Register, open, postgres};
use tokio_postgres::Client;
use tokio_postgres::types::Type;

use crate::{Column, to_be_tried};

pub(crate) mod advisory;
mod failing;
mod fence;
mod fence_owner;
mod hostile;
mod locks;
mod many;
mod reached;

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
        Capabilities::ALL
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
        rival::command(&self.url, election, number, last)
    }
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
    to_be_tried("postgres", Postgres::start(settings)).await
}
