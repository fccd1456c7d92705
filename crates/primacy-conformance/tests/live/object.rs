//! The object stores under the laws: the harness and the tests that they share.

use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use primacy_conformance::{Capabilities, Harness, Outcome, check, rival};
use primacy_stores::object::object_store::{ObjectStoreExt, PutPayload, path::Path};
use primacy_stores::object::{CHANGE_BOUND, ObjectStore};
use primacy_stores::{Pending, Register, object_store_at, open};

/// A bucket.
pub(crate) struct ObjectHarness {
    pub(crate) name: &'static str,
    /// Its URL, or the reason why there is none.
    pub(crate) url: Result<String, String>,
}

impl ObjectHarness {
    /// The laws in it: a column of the table.
    pub(crate) async fn column(&self) -> (String, Vec<(&'static str, Outcome)>) {
        let outcomes = check(self).await;
        assert!(outcomes.iter().all(|(_, outcome)| *outcome != Outcome::NotClaimed), "all are claimed");
        (self.name.to_owned(), outcomes)
    }

    fn url(&self) -> &str {
        self.url.as_ref().expect("it is there")
    }

    /// The object of an election's record, without the help of the store.
    fn object(&self, election: &str) -> (Arc<dyn ObjectStore>, Path) {
        let (store, prefix) = object_store_at(self.url()).expect("the URL is right");
        let letters = election.bytes().map(|byte| match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' => char::from(byte).to_string(),
            byte => format!("={byte:02x}"),
        });
        let key = format!("{prefix}/{}.election", letters.collect::<String>());
        (store, Path::parse(key).expect("a path"))
    }
}

impl Harness for ObjectHarness {
    fn name(&self) -> String {
        self.name.to_owned()
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities::ALL
    }

    fn change_bound(&self) -> Duration {
        CHANGE_BOUND
    }

    fn patience(&self) -> Duration {
        // A server in Python, asked by eight callers at once on a busy machine, takes its time; a hang lasts longer.
        Duration::from_secs(300)
    }

    fn reach(&self) -> Pending<'_, Result<(), String>> {
        Box::pin(async { self.url.as_ref().map(|_| ()).map_err(Clone::clone) })
    }

    fn open<'a>(&'a self, election: &'a str) -> Pending<'a, Arc<dyn Register>> {
        Box::pin(async move { open(self.url(), election).await.expect("the bucket can be used") })
    }

    fn plant<'a>(&'a self, election: &'a str, bytes: &'a [u8]) -> Pending<'a, ()> {
        Box::pin(async move {
            static COUNT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
            let count = COUNT.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
            let mut text = format!("primacy-object 1 by-hand-{count} {election}\n").into_bytes();
            text.extend_from_slice(bytes);
            let (store, path) = self.object(election);
            store.put(&path, PutPayload::from(text)).await.expect("the object can be written");
        })
    }

    fn erase<'a>(&'a self, election: &'a str) -> Pending<'a, ()> {
        Box::pin(async move {
            let (store, path) = self.object(election);
            store.delete(&path).await.expect("the object can be deleted");
        })
    }

    fn stored<'a>(&'a self, election: &'a str) -> Pending<'a, Option<Vec<u8>>> {
        Box::pin(async move {
            let (store, path) = self.object(election);
            let text = store.get(&path).await.ok()?.bytes().await.expect("the object can be read");
            let line = text.iter().position(|byte| *byte == b'\n').expect("a first line");
            Some(text[line + 1..].to_vec())
        })
    }

    fn rival(&self, election: &str, number: u64, last: u64) -> Command {
        rival::command(self.url(), election, number, last)
    }
}

/// Of processes that all begin where there is no record, one makes it.
pub(crate) async fn one_of_two_processes_makes_the_first_record(harness: &ObjectHarness) {
    const ROUNDS: u64 = 8;
    for round in 1..=ROUNDS {
        let election = format!("first record {round}");
        let rivals: Vec<_> = [1, 2]
            .map(|number| {
                let mut command = harness.rival(&election, number, 1);
                command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::null());
                command.spawn().expect("this program can be started")
            })
            .into_iter()
            .map(|child| child.wait_with_output().expect("it ends"))
            .collect();
        let wins: usize = rivals
            .iter()
            .map(|ended| {
                let (operations, is_whole) = rival::parse(&String::from_utf8_lossy(&ended.stdout));
                assert!(is_whole && ended.status.success(), "{:?}", ended.status);
                let won = |kind: &_| matches!(kind, primacy_conformance::history::Kind::Won { .. });
                operations.iter().filter(|operation| won(&operation.kind)).count()
            })
            .sum();
        assert_eq!(wins, 1, "{election}");
    }
}
