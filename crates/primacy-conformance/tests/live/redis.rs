//! Redis: the laws, and what happens when something of it fails.

use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use primacy_conformance::live::redis::Redis;
use primacy_conformance::{Capabilities, Harness, LAWS, Outcome, rival};
use primacy_core::FencingToken;
use primacy_core::election::lease::Record;
use primacy_stores::{OpenError, Pending, Register, open, redis as store};

use crate::{Column, to_be_tried};

mod failing;
mod fence;
mod many;
mod notices;

/// The environment variable for a rival's process: the URL, the election, its number and the last token, one a line.
const RIVAL_VARIABLE: &str = "PRIMACY_TEST_REDIS_RIVAL";

struct RedisHarness {
    server: Redis,
}

/// The hash of an election. Of the laws' elections, only one has a name with a colon or a percent sign.
fn record_key(election: &str) -> String {
    format!("primacy:record:{}", election.replace('%', "%25").replace(':', "%3A"))
}

impl Harness for RedisHarness {
    fn name(&self) -> String {
        "redis".to_owned()
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
            static COUNT: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(1);
            let version = COUNT.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
            let mut set = redis::cmd("HSET");
            set.arg(record_key(election)).arg("version").arg(version).arg("record").arg(bytes);
            let added: u32 = self.server.ask(&set);
            assert_eq!(added, 0, "both fields were there");
        })
    }

    fn erase<'a>(&'a self, election: &'a str) -> Pending<'a, ()> {
        Box::pin(async move {
            let deleted: u32 = self.server.ask(redis::cmd("DEL").arg(record_key(election)));
            assert_eq!(deleted, 1);
        })
    }

    fn stored<'a>(&'a self, election: &'a str) -> Pending<'a, Option<Vec<u8>>> {
        Box::pin(async move { self.server.ask(redis::cmd("HGET").arg(record_key(election)).arg("record")) })
    }

    fn rival(&self, election: &str, number: u64, last: u64) -> Command {
        let mut command = Command::new(std::env::current_exe().expect("a test knows its own program"));
        command.args(["--exact", "redis::play_as_a_rival", "--nocapture"]);
        command.env(RIVAL_VARIABLE, format!("{}\n{election}\n{number}\n{last}", self.server.url()));
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

/// The laws.
pub(crate) async fn check() -> Vec<Column> {
    let outcomes = match server(&[]).await {
        Some(server) => primacy_conformance::check(&RedisHarness { server }).await,
        None => LAWS.iter().map(|law| (law.name, Outcome::NotRun)).collect(),
    };
    vec![("redis".to_owned(), outcomes)]
}

/// A server, if there can be one; else `None`, with a line that says so.
async fn server(settings: &[&str]) -> Option<Redis> {
    to_be_tried("redis", Redis::start(settings)).await
}

/// The error of a store that cannot be opened, in time.
async fn refusal(url: &str) -> OpenError {
    let opening = tokio::time::timeout(Duration::from_secs(60), open(url, "refused")).await;
    opening.expect("an open does not hang").expect_err("nothing to open there")
}

/// A record without a holder.
fn record(token: u64) -> Record {
    Record::released(FencingToken(token), primacy_core::Duration::from_secs(10))
}
