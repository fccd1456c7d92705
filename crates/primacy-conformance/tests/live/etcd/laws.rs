//! etcd under the laws of stores that keep sessions.

use std::sync::Arc;
use std::time::Duration;

use primacy_conformance::live::etcd::Etcd;
use primacy_conformance::{Outcome, SESSION_LAWS, SessionCapabilities, SessionsHarness};
use primacy_stores::etcd::{self, EtcdClient, api};
use primacy_stores::{Opened, Pending, Sessions, open_any};
use tokio::sync::Mutex;

use super::cluster;
use crate::Column;

const NAME: &str = "etcd";

/// The shortest that three members with their default timers give: one and a half election timeouts, in whole seconds.
const SHORT: Duration = Duration::from_secs(2);

/// How much later than its timeout a session is gone: etcd looks twice a second, and a new leader gives every session its
/// whole time again.
const EXPIRY_BOUND: Duration = Duration::from_secs(5);

struct SessionHarness {
    etcd: Mutex<Etcd>,
    url: String,
    client: EtcdClient,
}

/// The laws of sessions.
pub(crate) async fn check_sessions() -> Vec<Column> {
    let Some(etcd) = cluster(None).await else {
        let not_run = SESSION_LAWS.iter().map(|law| (law.name, Outcome::NotRun)).collect();
        return vec![(NAME.to_owned(), not_run)];
    };
    let url = etcd.url("", "/laws");
    let client = EtcdClient::new(&url).expect("this is a URL");
    let harness = SessionHarness { etcd: etcd.into(), url, client };
    vec![(NAME.to_owned(), primacy_conformance::check_sessions(&harness).await)]
}

impl SessionsHarness for SessionHarness {
    fn name(&self) -> String {
        NAME.to_owned()
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
            let request = Some(api::Request::DeleteRange(delete));
            let write = api::TxnRequest { success: vec![api::RequestOp { request }], ..Default::default() };
            self.client.transact(write).await.expect("it can be written");
        })
    }

    fn restart(&self) -> Pending<'_, ()> {
        Box::pin(async move {
            let mut etcd = self.etcd.lock().await;
            for member in 0..3 {
                etcd.kill(member);
            }
            for member in 0..3 {
                etcd.relaunch(member);
            }
            etcd.leader().await;
        })
    }
}
