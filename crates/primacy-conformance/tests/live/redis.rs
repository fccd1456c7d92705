//! Redis: the laws, and what happens when something of it fails.

use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use primacy_conformance::live::redis::Redis;
use primacy_conformance::{Capabilities, Harness, LAWS, Outcome, rival};
use primacy_stores::{Pending, Register, open, redis as store};

use crate::{Column, to_be_tried};

mod failing;
mod fence;
mod many;
mod notices;

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
        rival::command(&self.server.url(), election, number, last)
    }
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
