//! Consul, as a fake: the laws, foreign clients in the same election, and its failures.

mod company;
mod elections;
mod failures;
mod requests;
mod safety;

use std::sync::Arc;
use std::time::Duration;

use primacy_conformance::live::consul::Consul;
use primacy_conformance::{Outcome, SESSION_LAWS, SessionCapabilities, SessionsHarness, check_sessions};
use primacy_core::election::lease::Holder;
use primacy_core::election::session::{Entry, QueuePosition, SessionId};
use primacy_core::{FencingToken, Identity, Incarnation, NodeId};
use primacy_stores::{OpenError, Opened, Pending, SessionError, Sessions, consul, open_any};

use crate::{Column, to_be_tried};

/// The time to wait for something that must come. Far longer than anything takes that works.
const PATIENCE: Duration = Duration::from_secs(60);

/// The timeout of these tests' sessions: the shortest that Consul gives.
const TIMEOUT: Duration = Duration::from_secs(10);

/// The bound: Consul waits twice as long; the rest is for a busy machine.
const EXPIRY_BOUND: Duration = Duration::from_secs(12);

struct ConsulHarness {
    consul: tokio::sync::Mutex<Consul>,
    url: String,
}

impl SessionsHarness for ConsulHarness {
    fn name(&self) -> String {
        "consul (a stand-in)".to_owned()
    }

    fn capabilities(&self) -> SessionCapabilities {
        // A waiting candidate has nothing in Consul, and so no place before others.
        SessionCapabilities { ordered: false, expiry: true, requests: true, deletion: true, restart: true }
    }

    fn change_bound(&self) -> Duration {
        consul::CHANGE_BOUND
    }

    fn short_timeout(&self) -> Duration {
        TIMEOUT
    }

    fn expiry_bound(&self) -> Duration {
        EXPIRY_BOUND
    }

    fn open<'a>(&'a self, election: &'a str) -> Pending<'a, Arc<dyn Sessions>> {
        Box::pin(open_url(&self.url, election))
    }

    fn remove_first<'a>(&'a self, election: &'a str) -> Pending<'a, ()> {
        Box::pin(async move {
            let consul = self.consul.lock().await;
            let (status, _) = consul.ask("DELETE", &format!("/v1/kv/laws/{election}/.lock"), "");
            assert_eq!(status, 200);
        })
    }

    fn restart(&self) -> Pending<'_, ()> {
        Box::pin(async move {
            let mut consul = self.consul.lock().await;
            consul.kill();
            consul.restart().await;
        })
    }
}

/// The laws of sessions.
pub(crate) async fn check() -> Vec<Column> {
    let Some(consul) = consul().await else {
        let not_run = SESSION_LAWS.iter().map(|law| (law.name, Outcome::NotRun)).collect();
        return vec![("consul (a stand-in)".to_owned(), not_run)];
    };
    let url = consul.url("laws");
    let harness = ConsulHarness { consul: consul.into(), url };
    let outcomes = check_sessions(&harness).await;
    let not_kept = outcomes.iter().filter(|(_, outcome)| *outcome != Outcome::Passed);
    assert_eq!(not_kept.map(|(law, _)| *law).collect::<Vec<_>>(), ["the_oldest_is_the_first"]);
    vec![(harness.name(), outcomes)]
}

/// A Consul for one test, if there can be one; else `None`, with a line that says so.
async fn consul() -> Option<Consul> {
    to_be_tried("consul", Consul::start()).await
}

async fn open_url(url: &str, election: &str) -> Arc<dyn Sessions> {
    match open_any(url, election).await.expect("it is there") {
        Opened::Sessions(sessions) => sessions,
        Opened::Register(_) => panic!("Consul keeps sessions"),
    }
}

async fn refusal(url: &str) -> OpenError {
    match tokio::time::timeout(PATIENCE, open_any(url, "e")).await.expect("an open does not hang") {
        Err(error) => error,
        Ok(opened) => panic!("{opened:?}"),
    }
}

fn holder(name: &str) -> Holder {
    let incarnation = Incarnation { count: 1, nonce: 0xab };
    let identity = Identity { node: NodeId::new(name).expect("a name"), incarnation };
    Holder { identity, address: format!("{name}:1") }
}

/// A handle with a session, and its holder.
struct Candidate {
    store: Arc<dyn Sessions>,
    session: SessionId,
    holder: Holder,
}

impl Candidate {
    async fn new(url: &str, election: &str, name: &str) -> Self {
        let store = open_url(url, election).await;
        let session = store.begin(TIMEOUT).await.expect("a session").session;
        Self { store, session, holder: holder(name) }
    }

    async fn campaign(&self) -> Result<QueuePosition, SessionError> {
        self.store.campaign(&self.session, &self.holder).await
    }

    async fn lead(&self) -> FencingToken {
        match self.campaign().await.expect("an answer") {
            QueuePosition::First { token, .. } => token,
            QueuePosition::Behind { first } => panic!("{first:?} is first"),
        }
    }

    async fn behind(&self) -> Entry {
        match self.campaign().await.expect("an answer") {
            QueuePosition::Behind { first } => first,
            QueuePosition::First { token, .. } => panic!("it is first, with {token}"),
        }
    }

    async fn leave(&self) {
        self.store.leave(&self.session).await.expect("it has left");
    }

    /// Waits for changes until it is the first.
    async fn become_first(&self) -> FencingToken {
        let waiting = async {
            loop {
                if let Ok(QueuePosition::First { token, .. }) = self.campaign().await {
                    return token;
                }
                self.store.changed().await;
            }
        };
        tokio::time::timeout(PATIENCE, waiting).await.expect("it becomes the first")
    }

    async fn changed(&self) {
        tokio::time::timeout(PATIENCE, self.store.changed()).await.expect("the change is noticed");
    }
}
