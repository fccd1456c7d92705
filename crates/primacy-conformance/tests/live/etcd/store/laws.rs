//! The store `etcd` under the laws of stores: its records, and its sessions.

use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use primacy_conformance::live::etcd::Etcd;
use primacy_conformance::{Capabilities, Harness, Outcome, SessionCapabilities, SessionsHarness, rival};
use primacy_stores::etcd::{self, EtcdClient, api};
use primacy_stores::{Opened, Pending, Register, Sessions, open, open_any};
use tokio::sync::Mutex;

/// The columns of the tables.
pub(crate) const RECORDS: &str = "etcd, recipe=lease";
pub(crate) const SESSIONS: &str = "etcd";

/// The shortest that three members with their default timers give: one and a half election timeouts, in whole seconds.
const SHORT: Duration = Duration::from_secs(2);

/// The time after its timeout within which a session is gone: etcd looks twice a second, and a new leader gives every session its whole
/// time again.
const EXPIRY_BOUND: Duration = Duration::from_secs(5);

/// The outcome of each law.
type Outcomes = Vec<(&'static str, Outcome)>;

/// The laws of records.
pub(crate) async fn check(etcd: &Etcd) -> Outcomes {
    let url = etcd.url("", "/laws?recipe=lease");
    let client = EtcdClient::new(&url).expect("this is a URL");
    primacy_conformance::check(&LeaseHarness { url, client }).await
}

/// The laws of sessions.
pub(crate) async fn check_sessions(etcd: Etcd) -> Outcomes {
    let url = etcd.url("", "/laws");
    let client = EtcdClient::new(&url).expect("this is a URL");
    primacy_conformance::check_sessions(&SessionHarness { etcd: etcd.into(), url, client }).await
}

async fn write(client: &EtcdClient, request: api::Request) {
    let success = vec![api::RequestOp { request: Some(request) }];
    let write = api::TxnRequest { success, ..Default::default() };
    client.transact(write).await.expect("it can be written");
}

/// The records of `?recipe=lease`.
struct LeaseHarness {
    url: String,
    client: EtcdClient,
}

impl LeaseHarness {
    fn key(election: &str) -> Vec<u8> {
        // The names of the laws have no slash.
        format!("laws/{election}").into_bytes()
    }
}

impl Harness for LeaseHarness {
    fn name(&self) -> String {
        RECORDS.to_owned()
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities::ALL
    }

    fn change_bound(&self) -> Duration {
        etcd::CHANGE_BOUND
    }

    fn open<'a>(&'a self, election: &'a str) -> Pending<'a, Arc<dyn Register>> {
        Box::pin(async move { open(&self.url, election).await.expect("the cluster is there") })
    }

    fn plant<'a>(&'a self, election: &'a str, bytes: &'a [u8]) -> Pending<'a, ()> {
        let put = api::PutRequest { key: Self::key(election), value: bytes.to_vec(), ..Default::default() };
        Box::pin(write(&self.client, api::Request::RequestPut(put)))
    }

    fn erase<'a>(&'a self, election: &'a str) -> Pending<'a, ()> {
        let delete = api::DeleteRangeRequest { key: Self::key(election), ..Default::default() };
        Box::pin(write(&self.client, api::Request::RequestDeleteRange(delete)))
    }

    fn stored<'a>(&'a self, election: &'a str) -> Pending<'a, Option<Vec<u8>>> {
        Box::pin(async move {
            let range = api::RangeRequest { key: Self::key(election), ..Default::default() };
            let answer = self.client.read(range).await.expect("it can be read");
            answer.kvs.into_iter().next().map(|kv| kv.value)
        })
    }

    fn rival(&self, election: &str, number: u64, last: u64) -> Command {
        rival::command(&self.url, election, number, last)
    }
}

/// The sessions of the other recipe.
struct SessionHarness {
    etcd: Mutex<Etcd>,
    url: String,
    client: EtcdClient,
}

impl SessionsHarness for SessionHarness {
    fn name(&self) -> String {
        SESSIONS.to_owned()
    }

    fn capabilities(&self) -> SessionCapabilities {
        SessionCapabilities { ordered: true, expiry: true, requests: true, deletion: true, restart: true }
    }

    fn change_bound(&self) -> Duration {
        etcd::CHANGE_BOUND
    }

    fn short_timeout(&self) -> Duration {
        SHORT
    }

    fn expiry_bound(&self) -> Duration {
        EXPIRY_BOUND
    }

    fn open<'a>(&'a self, election: &'a str) -> Pending<'a, Arc<dyn Sessions>> {
        Box::pin(async move {
            match open_any(&self.url, election).await.expect("the cluster is there") {
                Opened::Sessions(sessions) => sessions,
                Opened::Register(_) => unreachable!("it keeps sessions"),
            }
        })
    }

    fn remove_first<'a>(&'a self, election: &'a str) -> Pending<'a, ()> {
        Box::pin(async move {
            let prefix = format!("laws/{election}/");
            let range = api::RangeRequest {
                key: prefix.clone().into_bytes(),
                range_end: format!("laws/{election}0").into_bytes(), // What comes after the slash.
                ..Default::default()
            };
            let answer = self.client.read(range).await.expect("it can be read");
            let first = answer.kvs.into_iter().min_by_key(|kv| kv.create_revision).expect("an entry");
            let delete = api::DeleteRangeRequest { key: first.key, ..Default::default() };
            write(&self.client, api::Request::RequestDeleteRange(delete)).await;
        })
    }

    fn restart(&self) -> Pending<'_, ()> {
        Box::pin(async {
            let mut etcd = self.etcd.lock().await;
            etcd.relaunch_all();
            etcd.leader().await;
        })
    }
}
