//! Observers of an election, and clients that wait for a lock, over raw messages.

use std::time::Duration;

use primacy_stores::etcd::api::{self, method, v3electionpb, v3lockpb};
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::task::JoinHandle;
use tonic::Code;

use super::told_by_both;
use primacy_testbed::etcd_api::{Asked, PATIENCE, POLL};

/// The leases of candidates that campaign or wait. They live longer than the test.
const LEASES: [i64; 4] = [7, 8, 9, 10];
const TIME_TO_LIVE: Duration = Duration::from_secs(3600);

async fn grant(asked: &Asked, id: i64) {
    let grant = api::LeaseGrantRequest { ttl: i64::try_from(TIME_TO_LIVE.as_secs()).unwrap(), id };
    let _: api::LeaseGrantResponse = asked.ask(method::LEASE_GRANT, &grant).await.unwrap();
}

async fn revoke(asked: &Asked, id: i64) {
    let revoke = api::LeaseRevokeRequest { id };
    let _: api::LeaseRevokeResponse = asked.ask(method::LEASE_REVOKE, &revoke).await.unwrap();
}

/// Waits until so many keys are in the queue of this name.
pub(super) async fn until_in_queue(asked: &Asked, name: &str, count: i64) {
    let (key, range_end) = (format!("{name}/").into_bytes(), format!("{name}0").into_bytes());
    let queue = api::RangeRequest { key, range_end, count_only: true, ..Default::default() };
    let there = async {
        while asked.ask::<_, api::RangeResponse>(method::RANGE, &queue).await.unwrap().count != count {
            tokio::time::sleep(POLL).await;
        }
    };
    tokio::time::timeout(PATIENCE, there).await.unwrap_or_else(|_| panic!("never {count} in {name}"));
}

async fn campaign(asked: &Asked, lease: i64, value: &str) -> v3electionpb::LeaderKey {
    let campaign = v3electionpb::CampaignRequest { name: b"e".to_vec(), lease, value: value.into() };
    let answer: v3electionpb::CampaignResponse = asked.ask(method::CAMPAIGN, &campaign).await.unwrap();
    answer.leader.unwrap()
}

/// Returns the leader and its value, as an observer sees them next.
async fn observed(leaders: &mut UnboundedReceiver<(String, String)>) -> (String, String) {
    let told = tokio::time::timeout(PATIENCE, leaders.recv()).await.expect("an observer is told");
    told.expect("it is not told that it is over")
}

/// Returns what observers see, one that is there before any candidate and one that comes later.
async fn leaders_in_order(asked: &Asked) -> Vec<(String, String)> {
    for lease in LEASES {
        grant(asked, lease).await;
    }
    let mut leaders = asked.observe("e");
    let first = campaign(asked, LEASES[0], "one").await;
    let mut told = vec![observed(&mut leaders).await];
    let proclaim = v3electionpb::ProclaimRequest { leader: Some(first.clone()), value: b"one more".to_vec() };
    let _: v3electionpb::ProclaimResponse = asked.ask(method::PROCLAIM, &proclaim).await.unwrap();
    told.push(observed(&mut leaders).await);
    let mut later = asked.observe("e");
    told.push(observed(&mut later).await);
    let waiting: Vec<_> = ["two", "three"]
        .into_iter()
        .zip(&LEASES[1..])
        .map(|(value, lease)| (value, *lease, asked.clone()))
        .collect();
    let mut campaigns = Vec::new();
    for (count, (value, lease, own)) in (2..).zip(waiting) {
        campaigns.push(tokio::spawn(async move { campaign(&own, lease, value).await }));
        until_in_queue(asked, "e", count).await;
    }
    // One gives the lead up, another's session ends, and then there is no leader for a while.
    let resign = v3electionpb::ResignRequest { leader: Some(first) };
    let _: v3electionpb::ResignResponse = asked.ask(method::RESIGN, &resign).await.unwrap();
    for (campaign, lease) in campaigns.into_iter().zip(&LEASES[1..]) {
        let won = tokio::time::timeout(PATIENCE, campaign).await.expect("it is its turn").unwrap();
        assert_eq!(won.lease, *lease);
        for observer in [&mut leaders, &mut later] {
            told.push(observed(observer).await);
        }
        revoke(asked, *lease).await;
    }
    until_in_queue(asked, "e", 0).await;
    campaign(asked, LEASES[3], "four").await;
    for observer in [&mut leaders, &mut later] {
        told.push(observed(observer).await);
    }
    told
}

#[test]
fn observers_are_told_of_each_leader_in_order() {
    let Some((theirs, ours)) = told_by_both(leaders_in_order) else { return };
    assert_eq!(ours, theirs);
    let values: Vec<&str> = theirs.iter().map(|(_, value)| value.as_str()).collect();
    let (one, rest) = values.split_at(3);
    assert_eq!(one, ["one", "one more", "one more"]);
    assert_eq!(rest, ["two", "two", "three", "three", "four", "four"]);
}

type Locked = Result<String, (Code, String)>;

async fn lock(asked: &Asked, lease: i64) -> Locked {
    let lock = v3lockpb::LockRequest { name: b"m".to_vec(), lease };
    let answer = asked.ask::<_, v3lockpb::LockResponse>(method::LOCK, &lock).await;
    answer.map(|answer| String::from_utf8(answer.key).unwrap())
}

/// Begins to wait for the lock.
async fn wait_for_lock(asked: &Asked, lease: i64, count: i64) -> JoinHandle<Locked> {
    let own = asked.clone();
    let waiting = tokio::spawn(async move { lock(&own, lease).await });
    until_in_queue(asked, "m", count).await;
    waiting
}

/// Returns the answers to clients that wait for a lock.
async fn turns(asked: &Asked) -> Vec<Locked> {
    for lease in LEASES {
        grant(asked, lease).await;
    }
    let mut told = vec![lock(asked, LEASES[0]).await];
    // Again, while it has it.
    told.push(lock(asked, LEASES[0]).await);
    let second = wait_for_lock(asked, LEASES[1], 2).await;
    let cancelled = wait_for_lock(asked, LEASES[2], 3).await;
    let last = wait_for_lock(asked, LEASES[3], 4).await;
    // A client that hangs up leaves the queue, and no other is disturbed.
    cancelled.abort();
    until_in_queue(asked, "m", 3).await;
    assert!(!second.is_finished() && !last.is_finished(), "neither has its turn yet");
    let unlock = v3lockpb::UnlockRequest { key: b"m/7".to_vec() };
    let _: v3lockpb::UnlockResponse = asked.ask(method::UNLOCK, &unlock).await.unwrap();
    told.push(second.await.unwrap());
    assert!(!last.is_finished(), "another one has it");
    // A client whose session ends while it waits gets an error, and not the lock.
    let expired = wait_for_lock(asked, LEASES[0], 3).await;
    revoke(asked, LEASES[0]).await;
    // The session of the holder ends too: the lock is the next one's.
    revoke(asked, LEASES[1]).await;
    told.push(last.await.unwrap());
    revoke(asked, LEASES[3]).await;
    told.push(expired.await.unwrap());
    told.push(lock(asked, LEASES[0]).await);
    told
}

#[test]
fn who_waits_for_a_lock_gets_its_turn_or_is_told_why_not() {
    let Some((theirs, ours)) = told_by_both(turns) else { return };
    // The client whose session ended while it waited: etcd 3.4 answers that it has the lock, which nothing holds for
    // it.
    let expired = Err((Code::Unknown, "mutex: session is expired".to_owned()));
    assert_eq!((&theirs[4], &ours[4]), (&Ok("m/7".to_owned()), &expired));
    assert_eq!((&ours[..4], &ours[5..]), (&theirs[..4], &theirs[5..]));
    let keys: Vec<Option<&str>> = ours.iter().map(|told| told.as_deref().ok()).collect();
    assert_eq!(keys, [Some("m/7"), Some("m/7"), Some("m/8"), Some("m/a"), None, None]);
}
