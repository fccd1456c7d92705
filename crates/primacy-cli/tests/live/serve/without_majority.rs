//! The answers of one node of three that is alone: their codes and texts.

use std::time::Instant;

use primacy_conformance::live::etcd::{Etcd, MEMBERS};
use primacy_stores::etcd::api::{self, method, v3electionpb, v3lockpb};
use prost::Message;
use tokio::sync::mpsc::error::TryRecvError;
use tonic::Code;

use primacy_testbed::etcd_api::{self, Asked, PATIENCE, POLL};
use primacy_testbed::started;

/// A lease that is there.
const LEASE: i64 = 7;

/// A lease that is not revoked.
const SPARED: i64 = 8;

/// A request, and its outcome.
type Told = (&'static str, Result<(), (Code, String)>);

async fn asked<Q, A>(asked: &Asked, method: &'static str, question: Q) -> Told
where
    Q: Message + Clone + 'static,
    A: Message + Default + 'static,
{
    (method, asked.ask::<Q, A>(method, &question).await.map(drop))
}

fn put() -> api::PutRequest {
    api::PutRequest { key: b"k".to_vec(), value: b"v".to_vec(), ..Default::default() }
}

fn range(serializable: bool) -> api::RangeRequest {
    api::RangeRequest { key: b"k".to_vec(), serializable, ..Default::default() }
}

/// The requests to the map.
async fn keys(one: &Asked) -> Vec<Told> {
    let delete = api::DeleteRangeRequest { key: b"k".to_vec(), ..Default::default() };
    let success = vec![api::RequestOp { request: Some(api::Request::RequestPut(put())) }];
    let txn = api::TxnRequest { success, ..Default::default() };
    let compaction = api::CompactionRequest { revision: 2, physical: false };
    let told = tokio::join!(
        asked::<_, api::PutResponse>(one, method::PUT, put()),
        asked::<_, api::RangeResponse>(one, method::RANGE, range(false)),
        asked::<_, api::RangeResponse>(one, method::RANGE, range(true)),
        asked::<_, api::DeleteRangeResponse>(one, method::DELETE_RANGE, delete),
        asked::<_, api::TxnResponse>(one, method::TXN, txn),
        asked::<_, api::CompactionResponse>(one, method::COMPACT, compaction),
    );
    [told.0, told.1, told.2, told.3, told.4, told.5].into()
}

/// The requests about leases.
async fn leases(one: &Asked) -> Vec<Told> {
    let grant = api::LeaseGrantRequest { ttl: 3600, id: 0 };
    let left = api::LeaseTimeToLiveRequest { id: LEASE, keys: false };
    let told = tokio::join!(
        asked::<_, api::LeaseGrantResponse>(one, method::LEASE_GRANT, grant),
        asked::<_, api::LeaseRevokeResponse>(
            one,
            method::LEASE_REVOKE,
            api::LeaseRevokeRequest { id: LEASE }
        ),
        asked::<_, api::LeaseTimeToLiveResponse>(one, method::LEASE_TIME_TO_LIVE, left),
        asked::<_, api::LeaseLeasesResponse>(one, method::LEASE_LEASES, api::LeaseLeasesRequest {}),
        one.keep_alive(LEASE),
    );
    [told.0, told.1, told.2, told.3, (method::LEASE_KEEP_ALIVE, told.4.map(drop))].into()
}

/// The requests about elections, locks and the server.
async fn others(one: &Asked) -> Vec<Told> {
    let campaign = v3electionpb::CampaignRequest { name: b"e".to_vec(), lease: LEASE, value: Vec::new() };
    let lock = v3lockpb::LockRequest { name: b"m".to_vec(), lease: LEASE };
    let unlock = v3lockpb::UnlockRequest { key: b"m/7".to_vec() };
    let members = api::MemberListRequest { linearizable: false };
    let told = tokio::join!(
        asked::<_, v3electionpb::CampaignResponse>(one, method::CAMPAIGN, campaign),
        asked::<_, v3electionpb::LeaderResponse>(
            one,
            method::LEADER,
            v3electionpb::LeaderRequest { name: b"e".to_vec() }
        ),
        asked::<_, v3lockpb::LockResponse>(one, method::LOCK, lock),
        asked::<_, v3lockpb::UnlockResponse>(one, method::UNLOCK, unlock),
        asked::<_, api::MemberListResponse>(one, method::MEMBER_LIST, members),
        asked::<_, api::StatusResponse>(one, method::STATUS, api::StatusRequest {}),
    );
    [told.0, told.1, told.2, told.3, told.4, told.5].into()
}

async fn all(one: &Asked) -> Vec<Told> {
    let (keys, leases, others) = tokio::join!(keys(one), leases(one), others(one));
    [keys, leases, others].concat()
}

/// The answers of a node that is alone.
struct Alone {
    waiting: Vec<Told>,
    /// To clients that require a leader.
    wanting: Vec<Told>,
    /// The end of a watch of a client that requires a leader.
    watch: (Code, String),
    /// The errors that the server reports of itself.
    errors: Vec<String>,
}

/// Kills two of three, the leader among them; the third is asked. Then another one comes back.
async fn alone(mut cluster: Etcd) -> Alone {
    let leader = cluster.leader().await;
    let (other, third) = ((leader + 1) % MEMBERS, (leader + 2) % MEMBERS);
    let one = Asked::new(&cluster.endpoint(third)).await;
    let mut wanting = Asked::new(&cluster.endpoint(third)).await;
    wanting.wants_leader = true;
    for id in [LEASE, SPARED] {
        let grant = api::LeaseGrantRequest { ttl: 3600, id };
        let _: api::LeaseGrantResponse = one.ask(method::LEASE_GRANT, &grant).await.unwrap();
    }
    let _: api::PutResponse = one.ask(method::PUT, &put()).await.unwrap();
    let create = || {
        let create = api::WatchCreateRequest { key: b"k".to_vec(), ..Default::default() };
        api::RequestUnion::CreateRequest(create)
    };
    let mut watches = one.watches(create()).await;
    let mut wanted = wanting.watches(create()).await;
    for watches in [&mut watches, &mut wanted] {
        assert!(watches.answer().await.unwrap().created);
    }
    let stand = v3electionpb::CampaignRequest { name: b"o".to_vec(), lease: SPARED, value: Vec::new() };
    let _: v3electionpb::CampaignResponse = one.ask(method::CAMPAIGN, &stand).await.unwrap();
    let (mut observer, mut wanting_observer) = (one.observe("o"), wanting.observe("o"));
    for observer in [&mut observer, &mut wanting_observer] {
        let told = tokio::time::timeout(PATIENCE, observer.recv()).await.expect("an observer is told");
        assert!(told.is_some(), "who leads");
    }
    for member in [leader, other] {
        cluster.kill(member);
    }
    let status = wanted.answer().await.expect_err("there is no leader");
    let watch = (status.code(), status.message().to_owned());
    let told = tokio::time::timeout(PATIENCE, wanting_observer.recv()).await.expect("it ends");
    assert_eq!(told, None, "there is nothing new");
    let (waiting, wanting) = (all(&one).await, all(&wanting).await);
    let status: api::StatusResponse = one.ask(method::STATUS, &api::StatusRequest {}).await.unwrap();
    // With a majority, all goes on; also the watch of a client that does not require a leader.
    cluster.restart(other).await;
    let began = Instant::now();
    while one.ask::<_, api::PutResponse>(method::PUT, &put()).await.is_err() {
        assert!(began.elapsed() < PATIENCE, "nobody leads");
        tokio::time::sleep(POLL).await;
    }
    let answer = watches.answer().await.unwrap();
    assert!(!answer.events.is_empty() && !answer.canceled, "{answer:?}");
    assert_eq!(observer.try_recv(), Err(TryRecvError::Empty), "it goes on");
    let left = one.keep_alive(SPARED).await;
    assert!(left.as_ref().is_ok_and(|seconds| *seconds > 0), "{left:?}");
    Alone { waiting, wanting, watch, errors: status.errors }
}

/// For a write that no leader could even receive, etcd passes on the error of its own library. Here it is the
/// error of etcd for writes that a leader has not answered, which its clients know.
fn in_our_words((method, told): Told) -> Told {
    let in_a_recipe = method.starts_with("/v3");
    let code = if in_a_recipe { Code::Unknown } else { Code::Unavailable };
    let unknown = Err((Code::Unknown, "context deadline exceeded".to_owned()));
    let ours = Err((code, "etcdserver: request timed out".to_owned()));
    (method, if told == unknown { ours } else { told })
}

#[test]
fn without_a_majority_the_same_is_said_as_by_etcd() {
    let Some((runtime, etcd)) = started("etcd", Etcd::start(None)) else { return };
    runtime.block_on(async {
        let (theirs, ours) = tokio::join!(alone(etcd), async { alone(etcd_api::open(&[]).await).await });
        assert_eq!(ours.wanting, theirs.wanting);
        for (ours, theirs) in ours.waiting.iter().zip(&theirs.waiting) {
            assert_eq!(*ours, in_our_words(theirs.clone()));
        }
        assert_eq!((ours.watch, ours.errors), (theirs.watch, theirs.errors));
        let no_leader = (Code::Unavailable, "etcdserver: no leader".to_owned());
        assert!(theirs.wanting.iter().all(|(_, told)| *told == Err(no_leader.clone())));
    });
}
