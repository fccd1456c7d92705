//! NATS: the laws, and what happens when something of it fails.

use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use async_nats::jetstream::Context;
use primacy_conformance::live::nats::{BUCKET, Nats};
use primacy_conformance::{Capabilities, Harness, LAWS, Outcome, rival};
use primacy_stores::{Pending, Register, nats as store, open};

use crate::registers::open_in_the_end;
use crate::{Column, to_be_tried};

mod failing;
mod log;
mod relay;
mod rights;

struct NatsHarness {
    servers: Nats,
    context: Context,
    erased: AtomicU32,
}

/// The key of an election.
fn key(election: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_/".contains(&byte);
    let letters = election.bytes().map(|byte| match byte {
        byte if is_plain(byte) => char::from(byte).to_string(),
        byte => format!("={byte:02X}"),
    });
    letters.collect()
}

fn subject(election: &str) -> String {
    format!("$KV.{BUCKET}.{}", key(election))
}

impl Harness for NatsHarness {
    fn name(&self) -> String {
        "nats, one server".to_owned()
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities::ALL
    }

    fn change_bound(&self) -> Duration {
        store::CHANGE_BOUND
    }

    fn open<'a>(&'a self, election: &'a str) -> Pending<'a, Arc<dyn Register>> {
        Box::pin(async move { open(&self.servers.url(), election).await.expect("the servers are there") })
    }

    fn plant<'a>(&'a self, election: &'a str, bytes: &'a [u8]) -> Pending<'a, ()> {
        Box::pin(async move {
            let sent = self.context.publish(subject(election), bytes.to_vec().into()).await;
            sent.expect("it is sent").await.expect("the bucket can be written");
        })
    }

    /// As NATS's own tools delete, purge, and clear away without a marker, in turn.
    fn erase<'a>(&'a self, election: &'a str) -> Pending<'a, ()> {
        Box::pin(async move {
            let bucket = self.context.get_key_value(BUCKET).await.expect("the bucket");
            match self.erased.fetch_add(1, Ordering::SeqCst) % 3 {
                0 => bucket.delete(key(election)).await.expect("it is deleted"),
                1 => bucket.purge(key(election)).await.expect("it is purged"),
                _ => {
                    let purged =
                        bucket.stream.purge().filter(subject(election)).await.expect("it is cleared away");
                    assert_eq!(purged.purged, 1);
                }
            }
        })
    }

    fn stored<'a>(&'a self, election: &'a str) -> Pending<'a, Option<Vec<u8>>> {
        Box::pin(async move {
            let stream = self.context.get_stream(format!("KV_{BUCKET}")).await.expect("the stream");
            let found = stream.get_last_raw_message_by_subject(&subject(election)).await;
            found.ok().map(|message| message.payload.to_vec())
        })
    }

    fn rival(&self, election: &str, number: u64, last: u64) -> Command {
        rival::command(&self.servers.url(), election, number, last)
    }
}

/// The laws.
pub(crate) async fn check() -> Vec<Column> {
    let outcomes = match servers(1).await {
        Some(servers) => {
            drop(open_in_the_end(&servers.url(), "first").await);
            let context = servers.context().await;
            primacy_conformance::check(&NatsHarness { servers, context, erased: AtomicU32::new(0) }).await
        }
        None => LAWS.iter().map(|law| (law.name, Outcome::NotRun)).collect(),
    };
    vec![("nats, one server".to_owned(), outcomes)]
}

/// So many servers, if there can be; else `None`, with a line that says so.
async fn servers(count: usize) -> Option<Nats> {
    to_be_tried("nats", Nats::start(count)).await
}
