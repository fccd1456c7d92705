//! ZooKeeper, an ensemble of three real servers: each request of the store, the failures that only such servers have, and foreign clients
//! in the same election.

mod company;
mod failures;
mod fence;
mod laws;
mod requests;

pub(crate) use self::laws::check;

use std::sync::Arc;
use std::time::Duration;

use primacy_conformance::live::zookeeper::ZooKeeper;
use primacy_core::election::lease::Holder;
use primacy_core::election::session::{QueuePosition, SessionId};
use primacy_core::{FencingToken, Identity, Incarnation, NodeId};
use primacy_stores::{Opened, SessionError, Sessions, open_any};
use tokio::task::JoinHandle;
use zookeeper_client::Client;

use crate::to_be_tried;

/// The timeout of a session in these tests.
const TIMEOUT: Duration = Duration::from_secs(3);

/// The pause between two tries.
const POLL: Duration = Duration::from_millis(50);

/// The time after which a request is taken to hang.
const HANG: Duration = Duration::from_secs(120);

/// One ensemble for all, one story after the other, because some of them kill servers.
#[tokio::test(flavor = "multi_thread")]
async fn zookeeper_keeps_its_word() {
    let Some(mut ensemble) = to_be_tried("zookeeper", ZooKeeper::start()).await else { return };
    requests::an_entry_is_made_once_and_the_next_one_is_told_when_it_goes(&ensemble).await;
    requests::an_observer_is_told_of_every_first_one(&ensemble).await;
    requests::whoever_is_first_can_be_asked_to_resign_and_is_told(&ensemble).await;
    requests::what_a_dead_life_has_left_is_removed(&ensemble).await;
    requests::elections_of_a_process_share_a_session_that_ends_with_the_last(&ensemble).await;
    requests::what_a_dropped_handle_has_left_goes(&ensemble).await;
    requests::different_layouts_refuse_each_other(&ensemble).await;
    requests::a_leader_ends_when_a_stranger_of_another_layout_comes(&ensemble).await;
    requests::entries_of_a_user_are_closed_to_others(&ensemble).await;
    requests::a_znode_that_others_may_change_is_refused_to_a_login(&ensemble).await;
    requests::an_open_does_not_hang(&ensemble).await;
    fence::a_stale_token_is_refused_and_nothing_is_written(&ensemble).await;
    company::kazoo_and_primacy_take_over_from_each_other(&ensemble).await;
    company::kazoo_and_primacy_never_lead_at_once(&ensemble).await;
    company::latches_of_curator_and_primacy_take_over_from_each_other(&ensemble).await;
    company::latches_of_curator_and_primacy_never_lead_at_once(&ensemble).await;
    company::a_request_to_resign_costs_no_latch_of_curator_its_turn(&ensemble).await;
    company::an_election_that_curator_has_made_goes_and_comes_again(&ensemble).await;
    failures::a_lost_answer_leaves_one_entry(&ensemble).await;
    failures::a_session_that_the_servers_have_ended_is_told_as_ended(&ensemble).await;
    failures::another_session_under_the_same_connection_is_noticed(&ensemble).await;
    failures::the_servers_wait_as_long_as_was_promised(&mut ensemble).await;
    failures::a_paused_follower_ends_no_session(&ensemble).await;
    failures::a_session_outlives_each_server(&mut ensemble).await;
    failures::after_a_long_outage_the_same_process_leads_again(&mut ensemble).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_that_a_restarted_server_has_cut_short_is_counted_on_no_longer() {
    if let Some(server) = to_be_tried("zookeeper", ZooKeeper::start_alone()).await {
        failures::a_cut_session_is_counted_on_no_longer(server).await;
    }
}

async fn open(ensemble: &ZooKeeper, election: &str) -> Arc<dyn Sessions> {
    open_at(&ensemble.addresses(), election).await
}

async fn open_at(addresses: &str, election: &str) -> Arc<dyn Sessions> {
    open_url(&format!("zookeeper://{addresses}/live"), election).await
}

async fn open_url(url: &str, election: &str) -> Arc<dyn Sessions> {
    match open_any(url, election).await.expect("it is there") {
        Opened::Sessions(sessions) => sessions,
        Opened::Register(_) => panic!("ZooKeeper keeps sessions"),
    }
}

fn holder(name: &str) -> Holder {
    let incarnation = Incarnation { count: 1, nonce: 0xab };
    let identity = Identity { node: NodeId::new(name).expect("a name"), incarnation };
    Holder { identity, address: format!("{name}:1") }
}

async fn begin(sessions: &dyn Sessions) -> SessionId {
    begin_with(sessions, TIMEOUT).await
}

async fn begin_with(sessions: &dyn Sessions, timeout: Duration) -> SessionId {
    sessions.begin(timeout).await.expect("a session").session
}

/// Campaigns until it is first, and keeps the session alive meanwhile; returns its token.
async fn become_first(
    sessions: &dyn Sessions,
    session: &SessionId,
    holder: &Holder,
) -> Result<FencingToken, SessionError> {
    let wait = async {
        loop {
            match sessions.campaign(session, holder).await {
                Ok(QueuePosition::First { token, .. }) => return Ok(token),
                Ok(QueuePosition::Behind { .. }) => sessions.changed().await,
                Err(SessionError::NoAnswer { .. }) => tokio::time::sleep(POLL).await,
                Err(error) => return Err(error),
            }
        }
    };
    tokio::select! {
        place = tokio::time::timeout(HANG, wait) => place.expect("it does not become the first one"),
        () = keep(sessions, session) => unreachable!("it never ends"),
    }
}

/// Keeps a session alive for as long as this future is polled.
async fn keep(sessions: &dyn Sessions, session: &SessionId) {
    loop {
        tokio::time::sleep(TIMEOUT / 6).await;
        // The user of the session learns what has become of it.
        drop(sessions.keep_alive(session).await);
    }
}

/// A session that is kept alive until this is dropped.
struct Kept(JoinHandle<()>);

impl Kept {
    fn new(sessions: &Arc<dyn Sessions>, session: &SessionId) -> Self {
        let (sessions, session) = (Arc::clone(sessions), session.clone());
        Self(tokio::spawn(async move { keep(&*sessions, &session).await }))
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Makes the server of this client catch up with what was agreed on before.
async fn catch_up(client: &Client, path: &str) {
    let writer = client.new_check_writer(path, None).expect("a path");
    writer.commit().await.expect("it is there");
}

async fn soon<T>(what: impl Future<Output = T>) -> T {
    tokio::time::timeout(HANG, what).await.expect("it hangs")
}
