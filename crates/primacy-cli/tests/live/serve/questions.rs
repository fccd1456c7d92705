//! Random requests, sent as raw messages, since `etcdctl` cannot express all of them.

use primacy::core::rng::Rng;
use primacy_conformance::live::etcd::{Etcd, MEMBERS};
use primacy_stores::etcd::api::{self, method, v3electionpb, v3lockpb};
use tonic::Code;

use super::told_by_both;
use primacy_testbed::etcd_api::{self, Asked};
use primacy_testbed::started;

/// The number of questions; their seeds; and the node that is asked, counted from the leader: itself, or a
/// follower.
const QUESTIONS: u32 = 1500;
const SEEDS: [(u64, usize); 2] = [(1, 0), (2, 1)];

/// More than a request may have, and less than a message.
const TOO_LONG: usize = (1 << 20) + (600 << 10);

/// Two of these are as well.
const HALF_TOO_LONG: usize = 800 << 10;

/// Few, so that they meet.
const KEYS: &[&str] = &["a", "a/1", "a/2", "a0", "b", "b/", "", "\0", "\u{ff}"];
const ENDS: &[&str] = &["", "", "a/2", "b", "a0", "\0", "c", "a"];
const VALUES: &[&str] = &["", "x", "y", "z"];
const LEASES: &[i64] = &[0, 0, 7, 8, -9];

/// The most a question is about, of versions: some are not there yet.
const REVISIONS: u64 = 60;

/// Draws questions.
struct Draw {
    rng: Rng,
    /// About which version the servers are.
    revision: i64,
}

impl Draw {
    fn below(&mut self, end: u64) -> u64 {
        self.rng.up_to(end - 1)
    }

    fn one_in(&mut self, many: u64) -> bool {
        self.below(many) == 0
    }

    fn of<T: Copy>(&mut self, all: &[T]) -> T {
        all[usize::try_from(self.below(all.len() as u64)).unwrap()]
    }

    fn bytes(&mut self, all: &[&str]) -> Vec<u8> {
        self.of(all).as_bytes().to_vec()
    }

    /// Draws a key, mostly an existing one.
    fn key(&mut self) -> Vec<u8> {
        if self.one_in(20) { self.bytes(KEYS) } else { self.bytes(&KEYS[..6]) }
    }

    /// Draws a revision: 0, a recent one, or one that is not there. Not one below 0, which etcd takes for now, but
    /// not in a transaction.
    fn revision(&mut self) -> i64 {
        let back = i64::try_from(self.below(REVISIONS)).unwrap();
        let revision = match self.below(4) {
            0 => self.revision - back,
            1 => self.revision - back / 10,
            2 if self.one_in(5) => self.revision + back / 10 - 2,
            _ => 0,
        };
        revision.max(0)
    }

    fn range(&mut self) -> api::RangeRequest {
        let limit = if self.one_in(3) { i64::try_from(self.below(4)).unwrap() - 1 } else { 0 };
        // Without an order, etcd cuts before it sorts by anything but the key: such a request gets an answer that no
        // client wants.
        let sorts = limit <= 0 || self.one_in(2);
        let order = if sorts { i32::try_from(self.below(2)).unwrap() + 1 } else { 0 };
        let target = if sorts { i32::try_from(self.below(5)).unwrap() } else { 0 };
        let bounds = [(); 4].map(|()| if self.one_in(8) { self.revision() } else { 0 });
        api::RangeRequest {
            key: self.key(),
            range_end: self.bytes(ENDS),
            limit,
            revision: self.revision(),
            sort_order: order,
            sort_target: target,
            serializable: self.one_in(4),
            keys_only: self.one_in(4),
            count_only: self.one_in(6),
            min_mod_revision: bounds[0],
            max_mod_revision: bounds[1],
            min_create_revision: bounds[2],
            max_create_revision: bounds[3],
        }
    }

    fn put(&mut self) -> api::PutRequest {
        api::PutRequest {
            key: self.key(),
            value: self.bytes(VALUES),
            lease: self.of(LEASES),
            prev_kv: self.one_in(2),
            ignore_value: self.one_in(5),
            ignore_lease: self.one_in(5),
        }
    }

    fn delete(&mut self) -> api::DeleteRangeRequest {
        let range_end = if self.one_in(3) { self.bytes(ENDS) } else { Vec::new() };
        api::DeleteRangeRequest { key: self.key(), range_end, prev_kv: self.one_in(2) }
    }

    fn compare(&mut self) -> api::Compare {
        let number = match self.below(3) {
            0 => 0,
            1 => i64::try_from(self.below(4)).unwrap(),
            _ => self.revision(),
        };
        let target = i32::try_from(self.below(5)).unwrap();
        // Now and then another one than is asked about.
        let given = if self.one_in(10) { i32::try_from(self.below(5)).unwrap() } else { target };
        let target_union = match given {
            0 => Some(api::TargetUnion::Version(number)),
            1 => Some(api::TargetUnion::CreateRevision(number)),
            2 => Some(api::TargetUnion::ModRevision(number)),
            3 => Some(api::TargetUnion::Value(self.bytes(VALUES))),
            _ => Some(api::TargetUnion::Lease(self.of(LEASES))),
        };
        let range_end = if self.one_in(4) { self.bytes(ENDS) } else { Vec::new() };
        let result = i32::try_from(self.below(4)).unwrap();
        api::Compare { result, target, key: self.key(), target_union, range_end }
    }

    fn operation(&mut self, depth: u32) -> api::RequestOp {
        let request = match self.below(8) {
            0 | 1 => Some(api::Request::RequestRange(self.range())),
            2..=4 => Some(api::Request::RequestPut(self.put())),
            5 => Some(api::Request::RequestDeleteRange(self.delete())),
            _ if depth > 0 => Some(api::Request::RequestTxn(self.txn(depth - 1))),
            _ if self.one_in(30) => None,
            _ => Some(api::Request::RequestPut(self.put())),
        };
        api::RequestOp { request }
    }

    fn txn(&mut self, depth: u32) -> api::TxnRequest {
        let mut operations = |most: u64| -> Vec<api::RequestOp> {
            (0..self.below(most)).map(|_| self.operation(depth)).collect()
        };
        let (success, failure) = (operations(4), operations(3));
        let compare = (0..self.below(3)).map(|_| self.compare()).collect();
        api::TxnRequest { compare, success, failure }
    }
}

/// All that has happened since the first version that is known, and up to this one.
async fn watched(asked: &Asked, create: api::WatchCreateRequest, until: i64) -> Vec<api::Event> {
    let mut watches = asked.watches(api::RequestUnion::CreateRequest(create)).await;
    let mut events: Vec<api::Event> = Vec::new();
    while events.last().is_none_or(|event| event.kv.as_ref().unwrap().mod_revision < until) {
        let answer = watches.answer().await.unwrap();
        assert!(!answer.canceled, "{answer:?}");
        events.extend(answer.events);
    }
    events
}

/// Clears the fields of a header that differ between servers.
fn own(header: &mut Option<api::ResponseHeader>) {
    if let Some(header) = header {
        (header.cluster_id, header.member_id, header.raft_term) = (0, 0, 0);
    }
}

/// Sends a request to both, and returns their answer, if it is the same.
macro_rules! both {
    ($both:expr, $method:expr, $question:expr, $answer:ty) => {
        both!($both, $method, $question, $answer, |_: &mut $answer| {})
    };
    ($both:expr, $method:expr, $question:expr, $answer:ty, $normal:expr) => {{
        let question = $question;
        let mut theirs: Result<$answer, _> = $both.0.ask($method, &question).await;
        let mut ours: Result<$answer, _> = $both.1.ask($method, &question).await;
        for answer in [&mut theirs, &mut ours].into_iter().flatten() {
            own(&mut answer.header);
            ($normal)(answer);
        }
        assert_eq!(ours, theirs, "{}: {question:#?}", $method);
        theirs
    }};
}

/// Asks one drawn question.
async fn ask_one(both: &(Asked, Asked), draw: &mut Draw) {
    let header = match draw.below(20) {
        0..=5 => both!(both, method::RANGE, draw.range(), api::RangeResponse).map(|a| a.header),
        6..=9 => both!(both, method::PUT, draw.put(), api::PutResponse).map(|a| a.header),
        10 => both!(both, method::DELETE_RANGE, draw.delete(), api::DeleteRangeResponse).map(|a| a.header),
        11 => match draw.below(8) {
            0 => {
                let compaction =
                    api::CompactionRequest { revision: draw.revision(), physical: draw.one_in(2) };
                both!(both, method::COMPACT, compaction, api::CompactionResponse).map(|a| a.header)
            }
            _ => Ok(None),
        },
        12 => {
            let ttl = [-1, 0, 5_000, 9_000_000_001][usize::try_from(draw.below(4)).unwrap()];
            let id = [7, 8, -9][usize::try_from(draw.below(3)).unwrap()];
            let grant = api::LeaseGrantRequest { ttl: if ttl < 5_000 { 4_000 } else { ttl }, id };
            both!(both, method::LEASE_GRANT, grant, api::LeaseGrantResponse).map(|a| a.header)
        }
        13 if draw.one_in(3) => {
            let revoke = api::LeaseRevokeRequest { id: draw.of(LEASES) };
            both!(both, method::LEASE_REVOKE, revoke, api::LeaseRevokeResponse).map(|a| a.header)
        }
        13 => {
            let ask = api::LeaseTimeToLiveRequest { id: draw.of(LEASES), keys: draw.one_in(2) };
            let normal = |answer: &mut api::LeaseTimeToLiveResponse| {
                answer.keys.sort();
                // As much as passes between the two.
                answer.ttl = if answer.ttl > 0 { answer.ttl / 1000 } else { answer.ttl };
            };
            both!(both, method::LEASE_TIME_TO_LIVE, ask, api::LeaseTimeToLiveResponse, normal)
                .map(|a| a.header)
        }
        14 => {
            let normal = |answer: &mut api::LeaseLeasesResponse| answer.leases.sort_by_key(|one| one.id);
            let ask = api::LeaseLeasesRequest {};
            both!(both, method::LEASE_LEASES, ask, api::LeaseLeasesResponse, normal).map(|a| a.header)
        }
        15 => ask_recipes(both, draw).await,
        _ => both!(both, method::TXN, draw.txn(2), api::TxnResponse).map(|a| a.header),
    };
    if let Ok(Some(header)) = header {
        draw.revision = draw.revision.max(header.revision);
    }
}

/// Asks something of an election or a lock that is answered at once.
async fn ask_recipes(
    both: &(Asked, Asked),
    draw: &mut Draw,
) -> Result<Option<api::ResponseHeader>, (Code, String)> {
    // One candidate only, for a second one would wait.
    let name = b"election".to_vec();
    let key = [&b"election/7"[..], b"election/8", b""][usize::try_from(draw.below(3)).unwrap()].to_vec();
    let lease = [7, 7, 8][usize::try_from(draw.below(3)).unwrap()];
    // At 0 it would name another candidate, for which the next one then waits.
    let rev = draw.revision().max(1);
    let held = v3electionpb::LeaderKey { name: name.clone(), key: key.clone(), rev, lease };
    let held = if draw.one_in(6) { None } else { Some(held) };
    match draw.below(6) {
        0 => {
            let campaign = v3electionpb::CampaignRequest { name, lease: 7, value: draw.bytes(VALUES) };
            both!(both, method::CAMPAIGN, campaign, v3electionpb::CampaignResponse).map(|a| a.header)
        }
        1 => {
            let ask = v3electionpb::LeaderRequest { name };
            both!(both, method::LEADER, ask, v3electionpb::LeaderResponse).map(|a| a.header)
        }
        2 => {
            let mut held = held;
            // Mostly the leader.
            let ask = v3electionpb::LeaderRequest { name };
            let led = both!(both, method::LEADER, ask, v3electionpb::LeaderResponse);
            if let (Some(held), Ok(v3electionpb::LeaderResponse { kv: Some(kv), .. })) = (&mut held, led) {
                (held.key, held.rev, held.lease) = (kv.key, kv.create_revision, kv.lease);
            }
            let proclaim = v3electionpb::ProclaimRequest { leader: held, value: draw.bytes(VALUES) };
            both!(both, method::PROCLAIM, proclaim, v3electionpb::ProclaimResponse).map(|a| a.header)
        }
        3 => {
            let resign = v3electionpb::ResignRequest { leader: held };
            both!(both, method::RESIGN, resign, v3electionpb::ResignResponse).map(|a| a.header)
        }
        4 => {
            let take = v3lockpb::LockRequest { name: b"lock".to_vec(), lease: 7 };
            both!(both, method::LOCK, take, v3lockpb::LockResponse).map(|a| a.header)
        }
        _ => {
            let key = if draw.one_in(4) { key } else { b"lock/7".to_vec() };
            let give = v3lockpb::UnlockRequest { key };
            both!(both, method::UNLOCK, give, v3lockpb::UnlockResponse).map(|a| a.header)
        }
    }
}

/// Watches from the first version that both know, in a few ways.
async fn compare_watches(both: &(Asked, Asked), from: i64) {
    let last = api::PutRequest { key: b"a/last".to_vec(), ..Default::default() };
    let put = both!(both, method::PUT, last, api::PutResponse).unwrap();
    let until = put.header.unwrap().revision;
    let all = api::WatchCreateRequest { range_end: vec![0], start_revision: from, ..Default::default() };
    let ways = [
        api::WatchCreateRequest { prev_kv: true, ..all.clone() },
        api::WatchCreateRequest { key: b"a".to_vec(), range_end: b"b".to_vec(), ..all.clone() },
        // From there on, and no deletions.
        api::WatchCreateRequest { key: b"a/".to_vec(), filters: vec![1], ..all },
    ];
    for way in &ways {
        let theirs = watched(&both.0, way.clone(), until).await;
        assert_eq!(watched(&both.1, way.clone(), until).await, theirs, "{way:?}");
        assert!(theirs.len() > 1);
    }
}

/// Returns the answers to keys and values that are too long, and to reads of them.
async fn told_of_too_long(asked: &Asked) -> Vec<(&'static str, Result<(), (Code, String)>)> {
    let long = || vec![b'k'; TOO_LONG];
    let lease = api::LeaseGrantRequest { ttl: 4_000, id: 11 };
    let put = |key: &str| {
        let value = vec![b'v'; HALF_TOO_LONG];
        api::RequestOp { request: Some(api::Request::RequestPut(put_of(key.into(), value))) }
    };
    let txn = api::TxnRequest { success: vec![put("long/1"), put("long/2")], ..Default::default() };
    let campaign = v3electionpb::CampaignRequest { name: long(), lease: lease.id, value: Vec::new() };
    let lock = v3lockpb::LockRequest { name: long(), lease: lease.id };
    let range = api::RangeRequest { key: long(), ..Default::default() };
    let _: api::LeaseGrantResponse = asked.ask(method::LEASE_GRANT, &lease).await.unwrap();
    let long_put = put_of(long(), Vec::new());
    vec![
        (method::PUT, asked.ask::<_, api::PutResponse>(method::PUT, &long_put).await.map(drop)),
        (method::TXN, asked.ask::<_, api::TxnResponse>(method::TXN, &txn).await.map(drop)),
        (
            method::CAMPAIGN,
            asked.ask::<_, v3electionpb::CampaignResponse>(method::CAMPAIGN, &campaign).await.map(drop),
        ),
        (method::LOCK, asked.ask::<_, v3lockpb::LockResponse>(method::LOCK, &lock).await.map(drop)),
        (method::RANGE, asked.ask::<_, api::RangeResponse>(method::RANGE, &range).await.map(drop)),
    ]
}

fn put_of(key: Vec<u8>, value: Vec<u8>) -> api::PutRequest {
    api::PutRequest { key, value, ..Default::default() }
}

/// Sends both requests that are too long; nothing changes.
async fn compare_too_long(both: &(Asked, Asked)) {
    let theirs = told_of_too_long(&both.0).await;
    assert_eq!(told_of_too_long(&both.1).await, theirs);
    let refused = theirs
        .iter()
        .filter(|(_, told)| told.as_ref().is_err_and(|(_, text)| text == "etcdserver: request is too large"));
    assert_eq!(refused.count(), 4, "{theirs:?}");
    let all = api::RangeRequest { key: vec![0], range_end: vec![0], count_only: true, ..Default::default() };
    let _ = both!(both, method::RANGE, all, api::RangeResponse);
}

#[test]
fn drawn_questions_are_answered_alike() {
    for (seed, after_leader) in SEEDS {
        let Some((runtime, etcd)) = started("etcd", Etcd::start_of(1, None)) else { return };
        runtime.block_on(async {
            let cluster = etcd_api::open(&[]).await;
            let asked = cluster.endpoint((cluster.leader().await + after_leader) % MEMBERS);
            let both = (Asked::new(&etcd.endpoint(0)).await, Asked::new(&asked).await);
            let mut draw = Draw { rng: Rng::new(seed), revision: 1 };
            for question in 0..QUESTIONS {
                ask_one(&both, &mut draw).await;
                // Before anything else may be compacted.
                if question % 500 == 499 {
                    let compaction = api::CompactionRequest { revision: draw.revision, physical: true };
                    let _ = both!(both, method::COMPACT, compaction, api::CompactionResponse);
                    // A deletion at that very one is not in etcd's history any more, and in ours it is.
                    let from = draw.revision + 1;
                    for _ in 0..50 {
                        let _ = both!(both, method::TXN, draw.txn(2), api::TxnResponse);
                    }
                    compare_watches(&both, from).await;
                }
            }
            compare_too_long(&both).await;
        });
    }
}

/// Returns the answers in a stream of watches, in order.
async fn dialogue(asked: &Asked) -> Vec<api::WatchResponse> {
    /// More than fits into one message, together.
    const LARGE: usize = 1 << 20;
    let create = |watch_id: i64, key: &str, range_end: &str| api::WatchCreateRequest {
        key: key.into(),
        range_end: range_end.into(),
        watch_id,
        ..Default::default()
    };
    let put = async |key: &str, value: Vec<u8>| {
        let put = api::PutRequest { key: key.into(), value, ..Default::default() };
        let _: api::PutResponse = asked.ask(method::PUT, &put).await.unwrap();
    };
    let mut told = Vec::new();
    let mut watches = asked.watches(api::RequestUnion::CreateRequest(create(5, "k", ""))).await;
    told.push(watches.answer().await.unwrap());
    for refused in [create(5, "other", ""), create(6, "k", "a")] {
        watches.wish(api::RequestUnion::CreateRequest(refused)).await;
        told.push(watches.answer().await.unwrap());
    }
    put("k", b"one".to_vec()).await;
    put("other", b"one".to_vec()).await;
    told.push(watches.answer().await.unwrap());
    watches.wish(api::RequestUnion::ProgressRequest(api::WatchProgressRequest {})).await;
    told.push(watches.answer().await.unwrap());
    // A watch that is not there is no error.
    for watch_id in [9, 5] {
        watches.wish(api::RequestUnion::CancelRequest(api::WatchCancelRequest { watch_id })).await;
    }
    told.push(watches.answer().await.unwrap());
    put("k", b"two".to_vec()).await;
    let all = api::WatchCreateRequest { prev_kv: true, fragment: true, ..create(0, "large/", "large0") };
    for _ in 0..2 {
        watches.wish(api::RequestUnion::CreateRequest(all.clone())).await;
        told.push(watches.answer().await.unwrap());
    }
    watches.wish(api::RequestUnion::CancelRequest(api::WatchCancelRequest { watch_id: 0 })).await;
    told.push(watches.answer().await.unwrap());
    for number in 0..4 {
        put(&format!("large/{number}"), vec![number; LARGE]).await;
        told.push(watches.answer().await.unwrap());
    }
    let delete = api::DeleteRangeRequest { key: all.key, range_end: all.range_end, ..Default::default() };
    let _: api::DeleteRangeResponse = asked.ask(method::DELETE_RANGE, &delete).await.unwrap();
    while told.last().is_none_or(|told| told.fragment || told.events[0].r#type == 0) {
        told.push(watches.answer().await.unwrap());
    }
    for told in &mut told {
        own(&mut told.header);
    }
    told
}

#[test]
fn a_stream_of_watches_is_answered_alike() {
    let Some((theirs, ours)) = told_by_both(dialogue) else { return };
    for (theirs, ours) in theirs.iter().zip(&ours) {
        let text = |answer: &api::WatchResponse| format!("{answer:?}").chars().take(1000).collect::<String>();
        assert!(ours == theirs, "etcd: {}\nours: {}", text(theirs), text(ours));
    }
    assert_eq!(ours.len(), theirs.len());
    assert!(theirs.iter().any(|answer| answer.fragment));
}
