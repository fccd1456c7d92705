//! A full map: the refusals, the requests that still work, and the ways to make room, compared with a full etcd.

use std::collections::BTreeMap;
use std::time::Instant;

use primacy_conformance::live::etcd::Etcd;
use primacy_stores::etcd::api::{self, method, v3electionpb, v3lockpb};
use tonic::Code;

use primacy_testbed::etcd_api::{self, Asked, PATIENCE, POLL, Watches};
use primacy_testbed::started;

/// The quota of both, for each in its own words. That of etcd is of the file with all that ever was, in pages.
const QUOTA: &str = "1MiB";
const QUOTA_BYTES: usize = 1 << 20;

/// The lengths of the values with which it is filled, the largest first, so that in the end there is no room
/// for the smallest.
const LENGTHS: [usize; 4] = [32 << 10, 1 << 10, 64, 1];

/// From this key on, all is deleted to make room.
const FIRST_GONE: &str = "fill/0005";

/// The lease with which something goes.
const LEASED: i64 = 7;

/// A lease that may go.
const SPARE: i64 = 8;

/// The time to live of the leases, in seconds: longer than any test.
const TIME_TO_LIVE: i64 = 3600;

/// The outcome of a request.
type Told = Result<(), (Code, String)>;

fn put(key: &str, length: usize) -> api::PutRequest {
    api::PutRequest { key: key.into(), value: vec![b'x'; length], ..Default::default() }
}

fn all_below(prefix: &str) -> api::RangeRequest {
    let (mut key, mut range_end) = (prefix.as_bytes().to_vec(), prefix.as_bytes().to_vec());
    key.push(b'/');
    range_end.push(b'0');
    api::RangeRequest { key, range_end, ..Default::default() }
}

async fn write(asked: &Asked, key: &str, length: usize) -> Told {
    asked.ask::<_, api::PutResponse>(method::PUT, &put(key, length)).await.map(drop)
}

async fn delete(asked: &Asked, key: &str) {
    let delete = api::DeleteRangeRequest { key: key.into(), ..Default::default() };
    // If it was not done, the next one does it.
    let _ = asked.ask::<_, api::DeleteRangeResponse>(method::DELETE_RANGE, &delete).await;
}

async fn grant(asked: &Asked, id: i64) -> Told {
    let grant = api::LeaseGrantRequest { ttl: TIME_TO_LIVE, id };
    asked.ask::<_, api::LeaseGrantResponse>(method::LEASE_GRANT, &grant).await.map(drop)
}

/// Returns the keys below `fill/`, each with the length of its value.
async fn found(asked: &Asked) -> BTreeMap<String, usize> {
    let answer: api::RangeResponse = asked.ask(method::RANGE, &all_below("fill")).await.unwrap();
    let entry = |kv: api::KeyValue| (String::from_utf8(kv.key).unwrap(), kv.value.len());
    answer.kvs.into_iter().map(entry).collect()
}

/// Puts until not even the smallest is taken, and then begins leases until none is: all that was acknowledged.
async fn fill(asked: &Asked) -> BTreeMap<String, usize> {
    let mut acknowledged = BTreeMap::new();
    for length in LENGTHS {
        loop {
            let key = format!("fill/{:04}", acknowledged.len());
            match write(asked, &key, length).await {
                Ok(()) => acknowledged.insert(key, length),
                Err(refused) => {
                    assert_eq!(refused, no_space());
                    break;
                }
            };
        }
    }
    let began = Instant::now();
    let mut id = 100;
    while grant(asked, id).await != Err(no_space()) {
        assert!(began.elapsed() < PATIENCE, "leases are begun as if there were room");
        id += 1;
    }
    acknowledged
}

fn no_space() -> (Code, String) {
    (Code::ResourceExhausted, "etcdserver: mvcc: database space exceeded".to_owned())
}

fn transaction(operations: Vec<api::Request>) -> api::TxnRequest {
    let success = operations.into_iter().map(|request| api::RequestOp { request: Some(request) }).collect();
    api::TxnRequest { success, ..Default::default() }
}

/// Returns the answers while there is no room, one after the other.
async fn asked_while_full(asked: &Asked) -> Vec<(&'static str, Told)> {
    let txn = async |operations| {
        asked.ask::<_, api::TxnResponse>(method::TXN, &transaction(operations)).await.map(drop)
    };
    let read = api::Request::RequestRange(all_below("fill"));
    let remove = |key: &str| {
        api::Request::RequestDeleteRange(api::DeleteRangeRequest { key: key.into(), ..Default::default() })
    };
    let campaign = v3electionpb::CampaignRequest { name: b"e".to_vec(), lease: LEASED, value: vec![0; 64] };
    let lock = v3lockpb::LockRequest { name: b"m".repeat(64), lease: LEASED };
    let alive = asked.keep_alive(LEASED).await.map(|seconds| assert_eq!(seconds, TIME_TO_LIVE));
    let ask_left = api::LeaseTimeToLiveRequest { id: LEASED, keys: true };
    let left = asked.ask::<_, api::LeaseTimeToLiveResponse>(method::LEASE_TIME_TO_LIVE, &ask_left).await;
    let left = left.map(|left| assert_eq!(left.keys, [b"leased".to_vec()]));
    let revoke = api::LeaseRevokeRequest { id: SPARE };
    vec![
        ("a large put", write(asked, "large", LENGTHS[0]).await),
        ("a small put", write(asked, "another", 1).await),
        ("a lease", grant(asked, 9).await),
        (
            "a put in a transaction",
            txn(vec![read.clone(), api::Request::RequestPut(put("another", 64))]).await,
        ),
        (
            "a lead",
            asked.ask::<_, v3electionpb::CampaignResponse>(method::CAMPAIGN, &campaign).await.map(drop),
        ),
        ("a lock", asked.ask::<_, v3lockpb::LockResponse>(method::LOCK, &lock).await.map(drop)),
        ("a lease kept alive", alive),
        ("a lease asked about", left),
        ("a transaction that reads", txn(vec![read]).await),
        ("a transaction that deletes what is not there", txn(vec![remove("nothing")]).await),
        (
            "a lease that is ended",
            asked.ask::<_, api::LeaseRevokeResponse>(method::LEASE_REVOKE, &revoke).await.map(drop),
        ),
    ]
}

/// The observations of one of both.
struct Full {
    while_full: Vec<(&'static str, Told)>,
    /// A put right after some have been deleted.
    after_deletion: Told,
    /// A put of the same length over an existing one, while full.
    same_length: Told,
    alarms: usize,
    /// All that must be there in the end.
    kept: BTreeMap<String, usize>,
    watches: Watches,
}

/// Fills it, and deletes a part.
async fn story(asked: &Asked) -> Full {
    for lease in [LEASED, SPARE] {
        grant(asked, lease).await.unwrap();
    }
    let leased = api::PutRequest { lease: LEASED, ..put("leased", 1) };
    let _: api::PutResponse = asked.ask(method::PUT, &leased).await.unwrap();
    let api::RangeRequest { key, range_end, .. } = all_below("fill");
    let create = api::WatchCreateRequest { key, range_end, ..Default::default() };
    let mut watches = asked.watches(api::RequestUnion::CreateRequest(create)).await;
    assert!(watches.answer().await.unwrap().created);
    let mut kept = fill(asked).await;
    let mut told = 0;
    while told < kept.len() {
        told += watches.answer().await.unwrap().events.len();
    }
    assert_eq!(told, kept.len(), "only what was acknowledged is told");
    let ask = api::AlarmRequest { action: api::AlarmAction::Get.into(), ..Default::default() };
    let answer: api::AlarmResponse = asked.ask(method::ALARM, &ask).await.unwrap();
    let alarms = answer.alarms.len();
    let same_length = asked.ask::<_, api::PutResponse>(method::PUT, &leased).await.map(drop);
    let while_full = asked_while_full(asked).await;
    assert_eq!(found(asked).await, kept, "nothing is lost");
    // All but the first ones: etcd may have taken far more than its quota before it noticed.
    let gone = kept.split_off(FIRST_GONE);
    assert!(kept.len() > 3 && gone.len() > 3, "{kept:?} {gone:?}");
    let rest =
        api::DeleteRangeRequest { key: FIRST_GONE.into(), range_end: b"fill0".to_vec(), prev_kv: false };
    let answer: api::DeleteRangeResponse = asked.ask(method::DELETE_RANGE, &rest).await.unwrap();
    assert_eq!(usize::try_from(answer.deleted), Ok(gone.len()));
    let revision = answer.header.unwrap().revision;
    let after_deletion = write(asked, "after-deletion", LENGTHS[0]).await;
    let compaction = api::CompactionRequest { revision, physical: true };
    let _: api::CompactionResponse = asked.ask(method::COMPACT, &compaction).await.unwrap();
    assert_eq!(found(asked).await, kept);
    Full { while_full, after_deletion, same_length, alarms, kept, watches }
}

/// Waits until the quota is in force: no value as large as that is taken.
async fn until_in_force(asked: &Asked) {
    let began = Instant::now();
    while write(asked, "probe", QUOTA_BYTES).await != Err(no_space()) {
        assert!(began.elapsed() < PATIENCE, "the quota is not set");
        // Over an existing key it would always be accepted, since it needs no more room.
        delete(asked, "probe").await;
        tokio::time::sleep(POLL).await;
    }
}

/// Checks that all goes on once there is room again: puts are accepted, and watches get their events.
async fn goes_on(asked: &Asked, full: &mut Full) {
    assert_eq!(write(asked, "fill/last", LENGTHS[0]).await, Ok(()));
    full.kept.insert("fill/last".to_owned(), LENGTHS[0]);
    let is_last = |event: &api::Event| event.kv.as_ref().is_some_and(|kv| kv.key == b"fill/last");
    while !full.watches.answer().await.unwrap().events.iter().any(is_last) {}
    assert_eq!(found(asked).await, full.kept);
    assert_eq!(asked.keep_alive(LEASED).await, Ok(TIME_TO_LIVE));
}

#[test]
fn a_full_map_refuses_what_a_full_etcd_refuses_and_nothing_is_lost() {
    let quota = QUOTA_BYTES.to_string();
    let arguments = ["--quota-backend-bytes", &quota];
    let etcd = Etcd::start_with(1, None, &arguments);
    let Some((runtime, etcd)) = started("etcd", etcd) else { return };
    runtime.block_on(async {
        let asked = Asked::new(&etcd.endpoint(0)).await;
        let mut theirs = story(&asked).await;
        let mut cluster = etcd_api::open(&["--metadata-quota", QUOTA]).await;
        let own = Asked::new(&cluster.endpoint(0)).await;
        until_in_force(&own).await;
        let mut ours = story(&own).await;
        for (ours, theirs) in ours.while_full.iter().zip(&theirs.while_full) {
            assert_eq!(ours, theirs);
        }
        assert!(ours.kept.values().sum::<usize>() < QUOTA_BYTES, "{:?}", ours.kept);
        // What is different: etcd refuses puts and new leases until an operator has compacted it, made its file smaller and
        // disarmed the alarm; a map takes what needs no more room, and the rest when there is some.
        assert_eq!((theirs.alarms, ours.alarms), (1, 0));
        assert_eq!((&theirs.same_length, &ours.same_length), (&Err(no_space()), &Ok(())));
        assert_eq!((&theirs.after_deletion, &ours.after_deletion), (&Err(no_space()), &Ok(())));
        let patiently = ["--command-timeout", "60s"];
        let _ = etcd.told(&[&patiently[..], &["defrag"]].concat());
        let _ = etcd.told(&[&patiently[..], &["alarm", "disarm"]].concat());
        goes_on(&asked, &mut theirs).await;
        goes_on(&own, &mut ours).await;
        // The disks have all that was acknowledged, and the quota, which is not set again.
        cluster.set_arguments(&[]);
        cluster.relaunch_all();
        let again = Asked::new(&cluster.endpoint(cluster.leader().await)).await;
        assert_eq!(found(&again).await, ours.kept);
        assert_eq!(write(&again, "probe", QUOTA_BYTES).await, Err(no_space()));
        assert_eq!(again.keep_alive(LEASED).await, Ok(TIME_TO_LIVE));
    });
}
