//! The store `etcd`: its requests, and what happens when something of its server fails.
//!
//! The tests are the same for etcd and for the etcd API of our nodes: the including module brings a `cluster`.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

use primacy_conformance::live::etcd::{Etcd, MEMBERS};
use primacy_core::election::lease::Holder;
use primacy_core::election::session::{QueuePosition, SessionId};
use primacy_core::{FencingToken, Identity, Incarnation, NodeId};
use primacy_stores::etcd::EtcdClient;
use primacy_stores::{OpenError, Opened, SessionError, Sessions, open_any};

use super::cluster;

mod company;
mod failing;
mod fencing;
pub(super) mod laws;
mod leaderless;
mod login;
mod many;
mod relay;

/// The time to wait for something that must come. Far longer than anything takes that works.
pub(super) const PATIENCE: Duration = Duration::from_secs(60);

/// The timeout of most sessions of these tests.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Waits for what must come.
pub(super) async fn soon<T>(what: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, what).await.expect("it does not hang")
}

async fn sessions(url: &str, election: &str) -> Arc<dyn Sessions> {
    match soon(open_any(url, election)).await.expect("the cluster is there") {
        Opened::Sessions(sessions) => sessions,
        Opened::Register(_) => panic!("etcd keeps sessions"),
    }
}

/// Opens what cannot be opened.
async fn refusal(url: &str) -> OpenError {
    let error = soon(open_any(url, "refused")).await.expect_err("nothing to open there");
    assert!(!error.to_string().contains("panicked"), "{error}");
    error
}

/// A candidate: a handle, a session and a name.
pub(super) struct Candidate {
    pub(super) store: Arc<dyn Sessions>,
    session: SessionId,
    holder: Holder,
}

impl Candidate {
    pub(super) async fn new(url: &str, election: &str, name: &str) -> Self {
        Self::with(sessions(url, election).await, name, TIMEOUT).await
    }

    async fn with(store: Arc<dyn Sessions>, name: &str, timeout: Duration) -> Self {
        let begun = soon(store.begin(timeout)).await.expect("a session begins");
        Self { store, session: begun.session, holder: holder(name) }
    }

    async fn campaign(&self) -> Result<QueuePosition, SessionError> {
        soon(self.store.campaign(&self.session, &self.holder)).await
    }

    /// Campaigns until it is first.
    pub(super) async fn win(&self) -> FencingToken {
        soon(async {
            loop {
                // A waiting candidate is not woken for a change that does not come: it looks again.
                match self.campaign().await {
                    Ok(QueuePosition::First { token, .. }) => return token,
                    Ok(QueuePosition::Behind { .. }) => self.store.changed().await,
                    Err(SessionError::NoAnswer { .. }) => {}
                    Err(error) => panic!("{error}"),
                }
            }
        })
        .await
    }

    pub(super) async fn is_behind(&self, name: &str) {
        match self.campaign().await {
            Ok(QueuePosition::Behind { first }) => assert_eq!(first.holder.identity.node.as_str(), name),
            other => panic!("{other:?}"),
        }
    }

    async fn keep_alive(&self) -> Result<Duration, SessionError> {
        soon(self.store.keep_alive(&self.session)).await
    }

    /// Keeps the session alive through a failure: an answer, though not always to the first question.
    pub(super) async fn kept_alive(&self) -> Duration {
        soon(async {
            loop {
                match self.store.keep_alive(&self.session).await {
                    Ok(timeout) => return timeout,
                    Err(SessionError::NoAnswer { .. }) => {}
                    Err(error) => panic!("{error}"),
                }
            }
        })
        .await
    }

    pub(super) async fn leave(&self) {
        soon(self.store.leave(&self.session)).await.expect("it leaves");
    }
}

fn holder(name: &str) -> Holder {
    let incarnation = Incarnation { count: 1, nonce: 7 };
    let identity = Identity::new(NodeId::new(name).expect("a name"), incarnation);
    Holder { identity, address: format!("{name}:4000") }
}

/// The keys of the candidates of an election.
fn entries(etcd: &Etcd, queue: &str) -> Vec<String> {
    let told = etcd.told(&["get", "--prefix", "--keys-only", queue]);
    told.lines().filter(|line| !line.is_empty()).map(str::to_owned).collect()
}

/// The members' metric of this name, where the line has `label` in it: the sum of all. Our etcd API has no metrics.
pub(super) fn metric(etcd: &Etcd, name: &str, label: &str) -> u64 {
    (0..MEMBERS).map(|member| metric_of(etcd, member, name, label)).sum()
}

/// The same of one member; 0 where it counts nothing of that name.
fn metric_of(etcd: &Etcd, member: usize, name: &str, label: &str) -> u64 {
    assert!(!etcd.is_ours(), "there is nothing to be asked");
    let mut stream = TcpStream::connect(etcd.address(member)).expect("the member is there");
    stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").expect("it can be asked");
    let mut text = String::new();
    stream.read_to_string(&mut text).expect("it answers");
    let wanted = |line: &&str| line.starts_with(name) && line.contains(label);
    let number = text.lines().find(wanted).and_then(|line| line.rsplit(' ').next());
    number.map_or(0, |number| number.parse().expect("a number"))
}

#[tokio::test(flavor = "multi_thread")]
async fn an_election_is_told_from_its_first_candidate_to_its_last() {
    let Some(etcd) = cluster(None).await else { return };
    let url = etcd.url("", "/app");
    let watcher = sessions(&url, "e").await;
    assert_eq!(soon(watcher.first()).await, Ok(None));
    let a = Candidate::new(&url, "e", "a").await;
    let Ok(QueuePosition::First { token, asked_to_resign: false }) = a.campaign().await else {
        panic!("alone")
    };
    soon(watcher.changed()).await;
    let first = soon(watcher.first()).await.unwrap().unwrap();
    assert_eq!((first.holder, first.token), (a.holder.clone(), token));
    // Found again, and only once there.
    assert_eq!(a.win().await, token);
    assert_eq!(entries(&etcd, "app/e/"), [format!("app/e/{}", a.session.as_str())]);
    assert_eq!(a.keep_alive().await, Ok(TIMEOUT));

    let b = Candidate::new(&url, "e", "b").await;
    let c = Candidate::new(&url, "e", "c").await;
    assert!(a.session != b.session && b.session != c.session, "each process life has its own");
    b.is_behind("a").await;
    c.is_behind("a").await;
    // A request to resign reaches the first one only.
    assert_eq!(soon(watcher.ask_to_resign(token.next(), "test")).await, Ok(false));
    assert_eq!(soon(watcher.ask_to_resign(token, "test")).await, Ok(true));
    soon(a.store.changed()).await;
    assert_eq!(a.campaign().await, Ok(QueuePosition::First { token, asked_to_resign: true }));
    assert_eq!(soon(watcher.ask_to_resign(token, "again")).await, Ok(true));
    // The next candidate is woken when the one before it goes, and not before.
    let mut told = b.store.changed();
    assert!(tokio::time::timeout(Duration::from_millis(200), &mut told).await.is_err(), "nothing of it");
    a.leave().await;
    soon(told).await;
    let second = b.win().await;
    assert!(second > token);
    // A candidate that has left comes in again at the end.
    a.is_behind("b").await;
    // The guardian of `b`.
    assert_eq!(soon(watcher.evict(&holder("x").identity)).await, Ok(false));
    assert_eq!(soon(watcher.evict(&b.holder.identity)).await, Ok(true));
    let third = c.win().await;
    assert!(third > second);
    assert!(matches!(b.keep_alive().await, Err(SessionError::Ended { .. })));
    assert!(matches!(b.campaign().await, Err(SessionError::Ended { .. })));
    assert!(matches!(soon(b.store.leave(&b.session)).await, Err(SessionError::Ended { .. })));
    assert_eq!(soon(b.store.end(&b.session)).await, Ok(()));
    // A new session for the same process.
    let again = Candidate::with(Arc::clone(&b.store), "b", TIMEOUT).await;
    assert_ne!(again.session, b.session);
    again.is_behind("c").await;
    for candidate in [&a, &c, &again] {
        assert_eq!(soon(candidate.store.end(&candidate.session)).await, Ok(()));
    }
    assert_eq!(entries(&etcd, "app/e/"), [""; 0]);
    assert!(etcd.told(&["lease", "list"]).starts_with("found 0 leases"));
    for session in ["", "not one", "7fffffffffffffff"] {
        let error = soon(a.store.keep_alive(&SessionId::new(session))).await.unwrap_err();
        assert!(matches!(error, SessionError::Ended { .. }), "{error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_is_shared_and_what_one_election_leaves_undone_is_not_inherited() {
    let Some(etcd) = cluster(None).await else { return };
    let url = etcd.url("", "/app");
    let short = Duration::from_secs(2);
    let a = Candidate::with(sessions(&url, "a").await, "n", short).await;
    let b = Candidate::with(sessions(&url, "b").await, "n", short).await;
    assert_eq!(a.session, b.session);
    let longer = Candidate::with(sessions(&url, "c").await, "n", TIMEOUT).await;
    assert_ne!(a.session, longer.session, "another timeout");
    let (first, _) = (a.win().await, b.win().await);
    // The session goes on with the other election.
    assert_eq!(soon(a.store.end(&a.session)).await, Ok(()));
    assert_eq!(entries(&etcd, "app/").len(), 1);
    assert!(b.keep_alive().await.is_ok());
    // A second time by the same handle, which has the same key.
    let again = Candidate::with(Arc::clone(&a.store), "n", short).await;
    let second = again.win().await;
    assert!(second > first);
    // A handle that is dropped without having left: another one on this election has a session of its own.
    let abandoned = again.session.clone();
    drop((a, again));
    let next = Candidate::with(sessions(&url, "a").await, "n", short).await;
    assert_ne!(next.session, abandoned);
    next.is_behind("n").await;
    // The first entry is gone one timeout later, though its session lives on with `b`.
    let won = async {
        loop {
            let _ = tokio::join!(next.keep_alive(), b.keep_alive());
            if let QueuePosition::First { token, .. } = next.campaign().await.unwrap() {
                return token;
            }
            let _ = tokio::time::timeout(short / 4, next.store.changed()).await;
        }
    };
    assert!(soon(won).await > second);
    assert!(b.keep_alive().await.is_ok());
}

/// The number of looks of two candidates at their queue: far more than etcd itself writes meanwhile.
const LOOKS: u64 = 20;

#[tokio::test(flavor = "multi_thread")]
async fn a_look_at_where_one_stands_is_no_write() {
    let Some(etcd) = cluster(None).await else { return };
    let url = etcd.url("", "/app");
    let (first, second) = (Candidate::new(&url, "e", "a").await, Candidate::new(&url, "e", "b").await);
    let token = first.win().await;
    second.is_behind("a").await;
    let before = log_length(&etcd).await;
    for _ in 0..LOOKS {
        assert!(
            matches!(first.campaign().await, Ok(QueuePosition::First { token: now, .. }) if now == token)
        );
        second.is_behind("a").await;
    }
    let written = log_length(&etcd).await - before;
    assert!(written < LOOKS, "{written} entries were written to etcd's log");
    // An entry that is gone is put again, and counts anew.
    let _ = etcd.told(&["del", "--prefix", "app/e/"]);
    second.win().await;
    first.is_behind("b").await;
    second.leave().await;
    assert!(first.win().await > token);
    first.leave().await;
    assert_eq!(entries(&etcd, "app/e/"), [""; 0]);
}

/// The number of entries of the cluster's log.
async fn log_length(etcd: &Etcd) -> u64 {
    let client = EtcdClient::new(&etcd.url("", "")).expect("this is a URL");
    let known = client.status().await.into_iter().filter_map(|(_, status)| status.ok());
    known.map(|status| status.raft_index).max().expect("a member answers")
}
