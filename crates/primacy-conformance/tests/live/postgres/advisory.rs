//! `?recipe=advisory`: the laws, and locks, sessions and rows under failures.

use std::sync::Arc;
use std::time::{Duration, Instant};

use primacy::Elector;
use primacy_conformance::live::postgres::{PgBouncer, Postgres, SUPERUSER, url};
use primacy_conformance::live::proxy::Proxy;
use primacy_conformance::{Outcome, SESSION_LAWS, SessionCapabilities, SessionsHarness, check_sessions};
use primacy_core::election::lease::Holder;
use primacy_core::election::session::{Entry, QueuePosition, SessionId};
use primacy_core::{FencingToken, Identity, Incarnation, NodeId};
use primacy_stores::{OpenError, Opened, Pending, SessionError, Sessions, open_any, postgres};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use super::server;
use crate::Column;

const NAME: &str = "postgres, recipe=advisory";

/// The time to wait for something that must come. Far longer than anything takes that works.
const PATIENCE: Duration = Duration::from_secs(60);

/// The timeout of sessions that a test lets end.
const SHORT: Duration = Duration::from_secs(3);

/// The bound: the server ends a session when its time has passed; the rest is for a busy machine.
const EXPIRY_BOUND: Duration = Duration::from_secs(2);

const ELECTIONS: usize = 1000;

/// The number of them that are opened and taken at a time: all at once wait for each other longer than a request may take, where the
/// machine has much to do.
const OPENED_AT_A_TIME: usize = 50;

/// The number of connections that Primacy has to the server.
const CONNECTIONS: &str = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'primacy'";

struct AdvisoryHarness {
    server: tokio::sync::Mutex<Postgres>,
    url: String,
}

impl SessionsHarness for AdvisoryHarness {
    fn name(&self) -> String {
        NAME.to_owned()
    }

    fn capabilities(&self) -> SessionCapabilities {
        // A waiting candidate has nothing in the store, and so no place before others.
        SessionCapabilities { ordered: false, expiry: true, requests: true, deletion: true, restart: true }
    }

    fn change_bound(&self) -> Duration {
        postgres::CHANGE_BOUND
    }

    fn short_timeout(&self) -> Duration {
        SHORT
    }

    fn expiry_bound(&self) -> Duration {
        EXPIRY_BOUND
    }

    fn open<'a>(&'a self, election: &'a str) -> Pending<'a, Arc<dyn Sessions>> {
        Box::pin(open_url(&self.url, election))
    }

    fn remove_first<'a>(&'a self, election: &'a str) -> Pending<'a, ()> {
        Box::pin(async move {
            let sql = format!("DELETE FROM primacy_lock WHERE election = '{election}' RETURNING 'gone'");
            let removed = self.server.lock().await.run_sql(&sql).await;
            assert_eq!(removed, [Some("gone".to_owned())]);
        })
    }

    fn restart(&self) -> Pending<'_, ()> {
        Box::pin(async move {
            let mut server = self.server.lock().await;
            server.kill().await;
            server.restart().await;
        })
    }
}

/// The laws of sessions.
pub(crate) async fn check() -> Vec<Column> {
    let Some(server) = server(&[]).await else {
        let not_run = SESSION_LAWS.iter().map(|law| (law.name, Outcome::NotRun)).collect();
        return vec![(NAME.to_owned(), not_run)];
    };
    let url = advisory(&server);
    let harness = AdvisoryHarness { server: server.into(), url };
    let outcomes = check_sessions(&harness).await;
    let not_kept = outcomes.iter().filter(|(_, outcome)| *outcome != Outcome::Passed);
    assert_eq!(not_kept.map(|(law, _)| *law).collect::<Vec<_>>(), ["the_oldest_is_the_first"]);
    vec![(harness.name(), outcomes)]
}

fn advisory(server: &Postgres) -> String {
    format!("{}?recipe=advisory", server.url())
}

async fn open_url(url: &str, election: &str) -> Arc<dyn Sessions> {
    match open_any(url, election).await.expect("it is there") {
        Opened::Sessions(sessions) => sessions,
        Opened::Register(_) => panic!("this recipe keeps sessions"),
    }
}

async fn refusal(url: &str) -> OpenError {
    match tokio::time::timeout(PATIENCE, open_any(url, "e")).await.expect("an open does not hang") {
        Err(error) => error,
        Ok(opened) => panic!("{opened:?}"),
    }
}

/// A handle with a session, and its holder.
struct Candidate {
    store: Arc<dyn Sessions>,
    session: SessionId,
    holder: Holder,
}

impl Candidate {
    async fn new(url: &str, name: &str, timeout: Duration) -> Self {
        Self::with(open_url(url, "e").await, name, timeout).await
    }

    async fn with(store: Arc<dyn Sessions>, name: &str, timeout: Duration) -> Self {
        let session = store.begin(timeout).await.expect("a session").session;
        let incarnation = Incarnation { count: 1, nonce: 0xab };
        let identity = Identity { node: NodeId::new(name).expect("a name"), incarnation };
        Self { store, session, holder: Holder { identity, address: format!("{name}:1") } }
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

    /// Waits for changes until it is the first, and keeps its session alive meanwhile.
    async fn become_first(&self) -> FencingToken {
        let waiting = async {
            loop {
                if let Ok(QueuePosition::First { token, .. }) = self.campaign().await {
                    return token;
                }
                drop(tokio::time::timeout(SHORT / 3, self.store.changed()).await);
                drop(self.store.keep_alive(&self.session).await);
            }
        };
        tokio::time::timeout(PATIENCE, waiting).await.expect("it becomes the first")
    }

    async fn begin_anew(&mut self, timeout: Duration) {
        let begin = async {
            loop {
                match self.store.begin(timeout).await {
                    Ok(begun) => return begun.session,
                    Err(SessionError::NoAnswer { .. }) => tokio::time::sleep(Duration::from_millis(20)).await,
                    Err(error) => panic!("{error}"),
                }
            }
        };
        self.session = tokio::time::timeout(PATIENCE, begin).await.expect("the server is back");
    }
}

/// Ends the session that has the lock, as an operator does, and returns when it is gone.
async fn terminate(server: &Postgres, candidate: &Candidate) {
    let number = i64::from_str_radix(candidate.session.as_str(), 16).expect("a number");
    let sql = format!(
        "SELECT pg_terminate_backend(pid, 10000) FROM pg_locks WHERE locktype = 'advisory' AND granted \
         AND (classid::bigint << 32) | objid::bigint = {number}"
    );
    assert_eq!(server.run_sql(&sql).await, [Some("t".to_owned())]);
}

fn is_ended<T: std::fmt::Debug>(answer: &Result<T, SessionError>) {
    assert!(matches!(answer, Err(SessionError::Ended { .. })), "{answer:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_next_one_waits_for_as_long_as_the_last_may_believe() {
    let Some(server) = server(&[]).await else { return };
    let url = advisory(&server);
    let (one, two) = (Candidate::new(&url, "a", SHORT).await, Candidate::new(&url, "b", SHORT).await);
    let earlier = one.lead().await;
    assert_eq!(two.behind().await, Entry { holder: one.holder.clone(), token: earlier });
    // It believes from here on, whatever the server does.
    let kept_at = Instant::now();
    one.store.keep_alive(&one.session).await.unwrap();
    terminate(&server, &one).await;
    // The lock is free, and two takes it; but it is not the first yet.
    let token = two.become_first().await;
    assert!(kept_at.elapsed() >= SHORT, "after {:?}, {SHORT:?} was promised", kept_at.elapsed());
    assert!(token > earlier, "{token} after {earlier}");
    is_ended(&one.campaign().await);
    is_ended(&one.store.keep_alive(&one.session).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_loses_its_connection_is_told_at_once_and_leads_again_without_waiting() {
    let Some(server) = server(&[]).await else { return };
    let proxy = Proxy::start(server.address());
    let through = format!("{}?recipe=advisory", url(SUPERUSER, proxy.address()));
    // A candidate that had to wait for it would wait in vain.
    let long = PATIENCE * 10;
    let (mut one, two) =
        (Candidate::new(&through, "a", long).await, Candidate::new(&advisory(&server), "b", long).await);
    let mut last = one.lead().await;
    for other_has_asked in [false, true] {
        proxy.cut();
        tokio::time::timeout(PATIENCE, one.store.changed()).await.expect("it is noticed");
        is_ended(&one.campaign().await);
        proxy.pass();
        if other_has_asked {
            // The lock goes with the connection, and this one keeps it from then on.
            two.behind().await;
        }
        one.begin_anew(long).await;
        // Its own row holds no candidate back any more: either is the first at once.
        let place = one.campaign().await.unwrap();
        let token = match place {
            QueuePosition::First { token, .. } => token,
            QueuePosition::Behind { .. } => {
                let token = two.become_first().await;
                two.store.leave(&two.session).await.unwrap();
                assert!(token > last, "{token} after {last}");
                last = token;
                one.become_first().await
            }
        };
        assert!(token > last, "{token} after {last}");
        last = token;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_killed_ends_all_sessions_and_the_same_node_leads_again() {
    let Some(mut server) = server(&[]).await else { return };
    let url = advisory(&server);
    let mut one = Candidate::new(&url, "a", PATIENCE * 10).await;
    let earlier = one.lead().await;
    server.kill().await;
    tokio::time::timeout(PATIENCE, one.store.changed()).await.expect("it is noticed");
    is_ended(&one.campaign().await);
    let refused = one.store.begin(PATIENCE).await;
    assert!(matches!(refused, Err(SessionError::NoAnswer { .. })), "{refused:?}");
    server.restart().await;
    one.begin_anew(PATIENCE * 10).await;
    assert!(one.lead().await > earlier);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_silent_holder_loses_the_lock_and_nobody_leads_before_it_has_stopped() {
    let Some(server) = server(&[]).await else { return };
    let proxy = Proxy::start(server.address());
    let through = format!("{}?recipe=advisory", url(SUPERUSER, proxy.address()));
    let (one, two) =
        (Candidate::new(&through, "a", SHORT).await, Candidate::new(&advisory(&server), "b", SHORT).await);
    let earlier = one.lead().await;
    let kept_at = Instant::now();
    one.store.keep_alive(&one.session).await.unwrap();
    // Bytes are held back, and the connection stays open: the server hears nothing, and one hears nothing of the server.
    proxy.stall();
    let unanswered = one.store.keep_alive(&one.session).await;
    assert!(matches!(unanswered, Err(SessionError::NoAnswer { .. })), "{unanswered:?}");
    let token = two.become_first().await;
    assert!(kept_at.elapsed() >= SHORT, "after {:?}, {SHORT:?} was promised", kept_at.elapsed());
    assert!(token > earlier, "{token} after {earlier}");
    proxy.pass();
    let told = async {
        while !matches!(one.campaign().await, Err(SessionError::Ended { .. })) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(PATIENCE, told).await.expect("its session has ended");
    assert_eq!(two.lead().await, token);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_dropped_handle_held_is_free_after_its_time_and_not_before() {
    let Some(server) = server(&[]).await else { return };
    let url = advisory(&server);
    let sharing = open_url(&url, "other").await;
    let shared = sharing.begin(SHORT).await.unwrap().session;
    let one = Candidate::new(&url, "a", SHORT).await;
    assert_eq!(one.session, shared, "they share a session, which goes on");
    let two = Candidate::new(&url, "b", SHORT).await;
    let earlier = one.lead().await;
    let dropped_at = Instant::now();
    drop(one);
    let keeping = tokio::spawn(async move {
        loop {
            sharing.keep_alive(&shared).await.expect("it is kept alive");
            tokio::time::sleep(SHORT / 6).await;
        }
    });
    let token = two.become_first().await;
    assert!(dropped_at.elapsed() >= SHORT, "after {:?}", dropped_at.elapsed());
    assert!(token > earlier, "{token} after {earlier}");
    assert!(!keeping.is_finished(), "the other election is not touched");
    keeping.abort();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_elections_share_one_session() {
    let Some(server) = server(&["max_locks_per_transaction=256"]).await else { return };
    let url = advisory(&server);
    let began = Instant::now();
    let turns = Arc::new(Semaphore::new(OPENED_AT_A_TIME));
    let mut opening = JoinSet::new();
    for number in 0..ELECTIONS {
        let (url, turns) = (url.clone(), Arc::clone(&turns));
        opening.spawn(async move {
            let _turn = turns.acquire().await.expect("it is never closed");
            let store = open_url(&url, &format!("many-{number}")).await;
            let session = store.begin(PATIENCE).await.expect("a session").session;
            let identity = Identity::new(NodeId::new("a").unwrap(), Incarnation { count: 1, nonce: 1 });
            let place = store.campaign(&session, &Holder { identity, address: String::new() }).await;
            assert!(matches!(place, Ok(QueuePosition::First { .. })), "{place:?}");
            (store, session)
        });
    }
    let all = opening.join_all().await;
    let taken = began.elapsed();
    assert!(all.iter().all(|(_, session)| *session == all[0].1), "one session");
    assert_eq!(
        server.run_sql(CONNECTIONS).await,
        [Some("2".to_owned())],
        "it, and one for what is no session's"
    );
    let asked_before = asked(&server).await;
    let began = Instant::now();
    let mut keeping = JoinSet::new();
    for (store, session) in all {
        keeping.spawn(async move {
            store.keep_alive(&session).await.expect("it lives");
            store
        });
    }
    let kept = keeping.join_all().await;
    let kept_in = began.elapsed();
    let requests = asked(&server).await - asked_before;
    eprintln!(
        "{NAME}: {ELECTIONS} elections by one session: opened and taken in {taken:?}, all kept alive in {kept_in:?}, \
         by at most {requests} statements"
    );
    assert!(requests < ELECTIONS as i64 / 2, "one keep-alive answers many: {requests}");
    drop(kept);
}

/// The number of transactions of the server, as far as its counters know; each statement of ours is one.
async fn asked(server: &Postgres) -> i64 {
    server.run_sql("SELECT pg_stat_force_next_flush()").await;
    let sql = "SELECT xact_commit FROM pg_stat_database WHERE datname = current_database()";
    let rows = server.run_sql(sql).await;
    rows[0].as_ref().expect("it is a number").parse().expect("it is a number")
}

/// The number of connections that the server has from the application of the test below.
const THEIRS: &str = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'theirs'";

#[tokio::test(flavor = "multi_thread")]
async fn sessions_of_a_configuration_that_the_application_has_are_those_of_a_url() {
    let Some(server) = server(&[]).await else { return };
    let mut config = server.config(SUPERUSER);
    config.application_name("theirs");
    let store = postgres::Postgres::new(&config, None).unwrap();
    let (a, b) = (store.open_sessions("e").await.unwrap(), store.open_sessions("f").await.unwrap());
    let (a, b) = (Candidate::with(a, "a", PATIENCE).await, Candidate::with(b, "a", PATIENCE).await);
    let (token, other) = (a.lead().await, b.lead().await);
    assert_eq!(a.session, b.session, "elections of one process share it");
    assert_eq!(server.run_sql(THEIRS).await, [Some("2".to_owned())], "it, and one for what is no session's");
    // A handle that was opened by URL is in the same election.
    let stranger = Candidate::new(&advisory(&server), "b", PATIENCE).await;
    assert_eq!(stranger.behind().await, Entry { holder: a.holder.clone(), token });
    a.store.leave(&a.session).await.unwrap();
    assert!(stranger.become_first().await > token);
    assert_eq!(b.lead().await, other, "the other election goes on");
    // The library over it.
    let elector = Elector::builder().election("g").sessions(store.open_sessions("g").await.unwrap());
    let elector = elector.await.expect("it can be entered");
    let lead = tokio::time::timeout(PATIENCE, elector.campaign()).await.expect("nobody else stands").unwrap();
    lead.check().expect("it leads");
    assert!(store.open_sessions("").await.is_err(), "an election has a name");
}

#[tokio::test(flavor = "multi_thread")]
async fn sessions_of_a_configuration_through_a_pooler_are_refused() {
    let Some(server) = server(&[]).await else { return };
    let pooler = PgBouncer::start(&server, 4).await.expect("it is installed with the server");
    let config = pooler.url().parse().expect("it is a configuration, too");
    let store = postgres::Postgres::new(&config, None).unwrap();
    let refused = store.open_sessions("e").await.expect_err("a lock would be lent to others");
    assert!(matches!(&refused, OpenError::Refused { why } if why.contains("pooler")), "{refused}");
    store.open("e").await.expect("a record needs no connection of its own");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_work_is_refused_when_it_is_opened() {
    let Some(server) = server(&[]).await else { return };
    let pooler = PgBouncer::start(&server, 4).await.expect("it is installed with the server");
    let refused = refusal(&format!("{}?recipe=advisory", pooler.url())).await;
    assert!(matches!(&refused, OpenError::Refused { why } if why.contains("pooler")), "{refused}");
    let refused = refusal(&format!("{}?recipe=locks", server.url())).await;
    assert!(matches!(refused, OpenError::Malformed { .. }), "{refused}");
    server.run_sql("CREATE TABLE primacy_lock(a integer)").await;
    let refused = refusal(&advisory(&server)).await;
    assert!(matches!(&refused, OpenError::Refused { why } if why.contains("a integer")), "{refused}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_rights_of_the_page_are_enough() {
    let Some(server) = server(&[]).await else { return };
    let admin = open_url(&advisory(&server), "e").await;
    server
        .run_sql(
            "CREATE ROLE app LOGIN PASSWORD 'app'; REVOKE ALL ON SCHEMA public FROM PUBLIC; \
             GRANT USAGE ON SCHEMA public TO app; CREATE ROLE reader LOGIN PASSWORD 'reader'; \
             GRANT USAGE ON SCHEMA public TO reader; GRANT SELECT ON primacy_lock TO reader; \
             GRANT SELECT, INSERT, UPDATE ON primacy_lock TO app",
        )
        .await;
    let as_role =
        |role: &str| format!("{}?recipe=advisory", url(&format!("{role}:{role}"), server.address()));
    let (one, two) = (
        Candidate::new(&as_role("app"), "a", PATIENCE).await,
        Candidate::new(&as_role("app"), "b", PATIENCE).await,
    );
    let token = one.lead().await;
    two.behind().await;
    let reader = open_url(&as_role("reader"), "e").await;
    assert_eq!(reader.first().await.unwrap().unwrap().token, token);
    let refused = reader.ask_to_resign(token, "ops").await.unwrap_err().to_string();
    assert!(refused.contains("permission denied"), "{refused}");
    // A guardian of the same role ends what the dead candidate has left.
    let guardian = open_url(&as_role("app"), "e").await;
    assert!(guardian.evict(&one.holder.identity).await.unwrap());
    assert!(two.become_first().await > token);
    is_ended(&one.campaign().await);
    let begun = reader.begin(PATIENCE).await.unwrap().session;
    let refused = reader.campaign(&begun, &one.holder).await;
    assert!(matches!(refused, Ok(QueuePosition::Behind { .. })), "it has the right to look: {refused:?}");
    two.store.leave(&two.session).await.unwrap();
    let refused = reader.campaign(&begun, &one.holder).await;
    assert!(
        matches!(&refused, Err(SessionError::Refused { why }) if why.contains("permission denied")),
        "{refused:?}"
    );
    // A role that may not write keeps the lock from no other.
    let three = Candidate::new(&as_role("app"), "c", PATIENCE).await;
    three.lead().await;
    drop(admin);
}

/// A server that has been replaced, and does not know it, must not keep its leader alive.
#[tokio::test(flavor = "multi_thread")]
async fn a_keep_alive_waits_for_the_standbys_as_a_write_does() {
    let Some(server) = server(&[]).await else { return };
    let one = Candidate::new(&advisory(&server), "a", PATIENCE).await;
    one.lead().await;
    one.store.keep_alive(&one.session).await.unwrap();
    server.run_sql("ALTER SYSTEM SET synchronous_standby_names = 'nobody'").await;
    server.run_sql("SELECT pg_reload_conf()").await;
    let refused = async {
        loop {
            match one.store.keep_alive(&one.session).await {
                Ok(_) => tokio::time::sleep(Duration::from_millis(20)).await,
                Err(error) => return error,
            }
        }
    };
    let refused = tokio::time::timeout(PATIENCE, refused).await.expect("the server is told of its standbys");
    assert!(matches!(refused, SessionError::NoAnswer { .. }), "{refused}");
}

#[tokio::test(flavor = "multi_thread")]
async fn tokens_go_on_above_those_of_a_row_that_was_deleted_and_of_a_table_that_was_dropped() {
    let Some(server) = server(&[]).await else { return };
    let url = advisory(&server);
    let mut last = FencingToken(0);
    for statement in ["DELETE FROM primacy_lock", "DROP TABLE primacy_lock", "SELECT 1"] {
        let one = Candidate::new(&url, "a", PATIENCE).await;
        let token = one.lead().await;
        assert!(token > last, "{token} after {last}");
        last = token;
        one.store.leave(&one.session).await.unwrap();
        one.store.end(&one.session).await.unwrap();
        drop(one);
        server.run_sql(statement).await;
    }
    // A handle that is open makes the table anew.
    let one = Candidate::new(&url, "a", PATIENCE).await;
    server.run_sql("DROP TABLE primacy_lock").await;
    assert!(one.become_first().await > last);
}

/// Where the first server of the URL is silent, a session begins at the second one, even if no caller waits that long at once.
#[tokio::test(flavor = "multi_thread")]
async fn an_attempt_to_begin_goes_on_when_its_caller_gives_up() {
    let Some(server) = server(&[]).await else { return };
    let store = open_url(&advisory(&server), "e").await;
    let proxy = Proxy::start(server.address());
    let own = server.address().to_string();
    let both = advisory(&server).replace(&own, &format!("{},{own}", proxy.address()));
    let through = open_url(&both, "e").await;
    proxy.stall();
    let begun = async {
        loop {
            // A silent server is given up after two seconds.
            let begin = through.begin(PATIENCE);
            if let Ok(Ok(begun)) = tokio::time::timeout(Duration::from_millis(1250), begin).await {
                return begun.session;
            }
        }
    };
    let session = tokio::time::timeout(PATIENCE, begun).await.expect("the second server is there");
    through.keep_alive(&session).await.unwrap();
    drop(store);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_in_which_nothing_is_answered_is_given_up() {
    let Some(server) = server(&[]).await else { return };
    let proxy = Proxy::start(server.address());
    let through = format!("{}?recipe=advisory", url(SUPERUSER, proxy.address()));
    let one = Candidate::new(&through, "a", SHORT).await;
    one.lead().await;
    // A wait that began before is woken as well.
    let waiting = {
        let store = Arc::clone(&one.store);
        tokio::spawn(async move { store.changed().await })
    };
    proxy.stall();
    let given_up = async {
        while !matches!(one.store.keep_alive(&one.session).await, Err(SessionError::Ended { .. })) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(PATIENCE, given_up).await.expect("its time has passed");
    tokio::time::timeout(PATIENCE, waiting).await.expect("it is told").unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_table_that_somebody_locks_ends_no_session() {
    let Some(server) = server(&[]).await else { return };
    let one = Candidate::new(&advisory(&server), "a", SHORT).await;
    let token = one.lead().await;
    let somebody = server.connect().await;
    somebody.batch_execute("BEGIN; LOCK TABLE primacy_lock IN ACCESS EXCLUSIVE MODE").await.unwrap();
    let until = Instant::now() + 2 * SHORT;
    while Instant::now() < until {
        assert!(matches!(one.campaign().await, Err(SessionError::NoAnswer { .. })));
        one.store.keep_alive(&one.session).await.expect("it does not wait behind that");
    }
    somebody.batch_execute("ROLLBACK").await.unwrap();
    assert_eq!(one.lead().await, token);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_row_that_is_damaged_is_left_as_it_is() {
    let Some(server) = server(&[]).await else { return };
    let one = Candidate::new(&advisory(&server), "a", PATIENCE).await;
    one.lead().await;
    server.run_sql("UPDATE primacy_lock SET version = version % 1000 + 1, record = '{'").await;
    for answer in [one.campaign().await.map(drop), one.store.first().await.map(drop)] {
        let why = answer.unwrap_err();
        assert!(matches!(&why, SessionError::Refused { why } if why.contains("primacy_lock")), "{why}");
    }
    assert_eq!(
        server.run_sql("SELECT convert_from(record, 'UTF8') FROM primacy_lock").await,
        [Some("{".to_owned())]
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_that_a_stranger_holds_is_waited_for() {
    let Some(server) = server(&[]).await else { return };
    let one = Candidate::new(&advisory(&server), "a", PATIENCE).await;
    let stranger = server.connect().await;
    let key = "hashtextextended('e', 'primacy_lock'::regclass::oid::bigint)";
    stranger.batch_execute(&format!("SELECT pg_advisory_lock({key})")).await.unwrap();
    let first = one.behind().await;
    assert!(first.holder.identity.node.as_str().starts_with("process-"), "{first:?}");
    assert_eq!(first.holder.identity.incarnation.count, 0, "no node of ours");
    stranger.batch_execute(&format!("SELECT pg_advisory_unlock({key})")).await.unwrap();
    one.become_first().await;
}
