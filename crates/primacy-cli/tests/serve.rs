//! The etcd API: which clients are admitted, and the limits for clients that request too much or do not read their
//! answers.

#![cfg(feature = "etcd")]
#![allow(clippy::unwrap_used, reason = "in a test, a panic is the message")]

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use primacy_conformance::live::Ground;
use primacy_conformance::live::etcd::Tls;
use primacy_stores::etcd::api::{self, method, v3electionpb, v3lockpb};
use primacy_stores::etcd::{EtcdClient, RequestError};
use primacy_testbed::etcd_api::{self, Asked};
use tonic::Code;

/// The interval at which a condition is checked.
const POLL: Duration = Duration::from_millis(20);

/// The memory by which an etcd API may grow while clients do not read, in bytes: a part of what it would take
/// to keep all for them.
const MEMORY_MAX: u64 = 64 << 20;

fn put(key: &str, value: &[u8]) -> api::PutRequest {
    api::PutRequest { key: key.into(), value: value.to_vec(), ..Default::default() }
}

async fn write(asked: &Asked, key: &str, value: &[u8]) -> i64 {
    let answer: api::PutResponse = asked.ask(method::PUT, &put(key, value)).await.unwrap();
    answer.header.unwrap().revision
}

fn watch(key: &str, start_revision: i64) -> api::RequestUnion {
    let key = key.as_bytes().to_vec();
    api::RequestUnion::CreateRequest(api::WatchCreateRequest { key, start_revision, ..Default::default() })
}

/// Writes a file that others may not read.
fn write_secretly(path: &Path, text: &str) {
    std::fs::write(path, text).unwrap();
    std::fs::set_permissions(path, Permissions::from_mode(0o600)).unwrap();
}

#[tokio::test]
async fn who_shows_no_token_or_a_wrong_one_is_refused_as_etcd_does_it() {
    let ground = Ground::new("etcd-api-users");
    let users = ground.at("users");
    write_secretly(&users, "anna:secret-of-anna\nberta:with:colon\n");
    let cluster = etcd_api::open(&["--etcd-api-users", users.to_str().unwrap()]).await;
    let mut asked = Asked::new(&cluster.endpoint(0)).await;
    let ask = async |asked: &Asked| asked.ask::<_, api::PutResponse>(method::PUT, &put("k", b"v")).await;
    let empty = (Code::InvalidArgument, "etcdserver: user name is empty".to_owned());
    let invalid = (Code::Unauthenticated, "etcdserver: invalid auth token".to_owned());
    assert_eq!(ask(&asked).await, Err(empty));
    // A watch gets it in its stream.
    let mut watches = asked.watches(watch("k", 0)).await;
    let answer = watches.answer().await.unwrap();
    assert!(answer.created && answer.canceled && answer.watch_id == -1, "{answer:?}");
    assert!(answer.cancel_reason.contains("etcdserver: user name is empty"), "{answer:?}");
    for (name, password) in [("anna", "wrong"), ("anna", ""), ("nobody", "secret-of-anna"), ("", "")] {
        let login = api::AuthenticateRequest { name: name.to_owned(), password: password.to_owned() };
        let (code, text) =
            asked.ask::<_, api::AuthenticateResponse>(method::AUTHENTICATE, &login).await.unwrap_err();
        assert_eq!(code, Code::InvalidArgument);
        assert_eq!(text, "etcdserver: authentication failed, invalid user ID or password");
    }
    asked.token = Some("0123".to_owned());
    assert_eq!(ask(&asked).await, Err(invalid));
    for (name, password) in [("anna", "secret-of-anna"), ("berta", "with:colon")] {
        let login = api::AuthenticateRequest { name: name.to_owned(), password: password.to_owned() };
        let answer: api::AuthenticateResponse = asked.ask(method::AUTHENTICATE, &login).await.unwrap();
        asked.token = Some(answer.token);
        assert!(ask(&asked).await.is_ok());
    }
    // The token of one node is accepted by the next one.
    let mut next = Asked::new(&cluster.endpoint(1)).await;
    next.token = asked.token.take();
    assert_eq!(ask(&next).await.map(drop), Ok(()));
    // Any client may ask for its status.
    let status: api::StatusResponse = asked.ask(method::STATUS, &api::StatusRequest {}).await.unwrap();
    assert!(status.leader != 0 && status.header.unwrap().member_id != 0);
    let list = api::MemberListRequest { linearizable: false };
    let answer: api::MemberListResponse = asked.ask(method::MEMBER_LIST, &list).await.unwrap();
    assert_eq!(answer.members.len(), 3);
    let client = EtcdClient::new(&format!("etcd://anna:secret-of-anna@{}", cluster.endpoint(0))).unwrap();
    let read = api::RangeRequest { key: b"k".to_vec(), ..Default::default() };
    assert_eq!(client.read(read).await.unwrap().kvs[0].value, b"v");
    // A file that cannot be used changes nothing; a good one ends every token, also those of users that it still has.
    write_secretly(&users, "anna\n");
    assert_eq!(ask(&next).await.map(drop), Ok(()));
    write_secretly(&users, "anna:another-secret\nberta:with:colon\n");
    assert_eq!(ask(&next).await.map(drop).unwrap_err().0, Code::Unauthenticated);
    next.token = None;
    for (password, is_right) in [("secret-of-anna", false), ("another-secret", true)] {
        let login = api::AuthenticateRequest { name: "anna".to_owned(), password: password.to_owned() };
        let answer = next.ask::<_, api::AuthenticateResponse>(method::AUTHENTICATE, &login).await;
        assert_eq!(answer.is_ok(), is_right, "{password}");
        next.token = answer.ok().map(|answer| answer.token);
    }
    assert!(ask(&next).await.is_ok());
}

/// Streams and waiting requests end with their token: else a removed user would see all that is written, and keep the lead.
#[tokio::test]
async fn what_a_user_has_begun_ends_when_the_user_is_removed() {
    let ground = Ground::new("etcd-api-user-removed");
    let users = ground.at("users");
    write_secretly(&users, "anna:secret-of-anna\nberta:secret-of-berta\n");
    let cluster = etcd_api::open(&["--etcd-api-users", users.to_str().unwrap()]).await;
    let logged_in = async |name: &str| {
        let mut asked = Asked::new(&cluster.endpoint(0)).await;
        let login = api::AuthenticateRequest { name: name.to_owned(), password: format!("secret-of-{name}") };
        let answer: api::AuthenticateResponse = asked.ask(method::AUTHENTICATE, &login).await.unwrap();
        asked.token = Some(answer.token);
        asked
    };
    let anna = logged_in("anna").await;
    let grant = api::LeaseGrantRequest { ttl: 600, id: 0 };
    let lease: api::LeaseGrantResponse = anna.ask(method::LEASE_GRANT, &grant).await.unwrap();
    let mut watches = anna.watches(watch("k", 0)).await;
    assert!(watches.answer().await.unwrap().created);
    let mut kept_alive = anna.keeps_alive(lease.id).await;
    assert_eq!(kept_alive.answer().await.unwrap().ttl, 600);
    let mut leaders = anna.observe("e");
    let lock = |lease| v3lockpb::LockRequest { name: b"l".to_vec(), lease };
    let _: v3lockpb::LockResponse = anna.ask(method::LOCK, &lock(lease.id)).await.unwrap();
    let waits = tokio::spawn({
        let (anna, lock) = (anna.clone(), lock(0));
        async move { anna.ask::<_, v3lockpb::LockResponse>(method::LOCK, &lock).await }
    });
    let places = async |asked: &Asked| {
        let range =
            api::RangeRequest { key: b"l/".to_vec(), range_end: b"l0".to_vec(), ..Default::default() };
        asked.ask::<_, api::RangeResponse>(method::RANGE, &range).await.unwrap().count
    };
    let until_places = async |asked: &Asked, count| {
        let there = async {
            while places(asked).await != count {
                tokio::time::sleep(POLL).await;
            }
        };
        tokio::time::timeout(etcd_api::PATIENCE, there).await.expect("there are so many places in the queue");
    };
    until_places(&anna, 2).await;

    write_secretly(&users, "berta:secret-of-berta\n");
    let berta = logged_in("berta").await;
    // Without a message of the client's.
    for ended in [watches.answer().await.map(drop), kept_alive.answer().await.map(drop)] {
        let ended = ended.unwrap_err();
        assert_eq!((ended.code(), ended.message()), (Code::Unavailable, "etcdserver: invalid auth token"));
    }
    assert_eq!(waits.await.unwrap().unwrap_err().0, Code::Unauthenticated);
    until_places(&berta, 1).await;
    assert!(tokio::time::timeout(etcd_api::PATIENCE, leaders.recv()).await.expect("it ends").is_none());
    // What was begun by others goes on.
    let mut watches = berta.watches(watch("k", 0)).await;
    assert!(watches.answer().await.unwrap().created);
    write(&berta, "k", b"v").await;
    assert_eq!(watches.answer().await.unwrap().events.len(), 1);
}

#[tokio::test]
async fn without_users_there_is_nothing_to_log_in_to() {
    let cluster = etcd_api::open(&[]).await;
    let login = api::AuthenticateRequest { name: "a".to_owned(), password: "b".to_owned() };
    let asked = Asked::new(&cluster.endpoint(0)).await;
    let answer = asked.ask::<_, api::AuthenticateResponse>(method::AUTHENTICATE, &login).await;
    let text = "etcdserver: authentication is not enabled".to_owned();
    assert_eq!(answer, Err((Code::FailedPrecondition, text)));
}

#[test]
fn a_file_of_users_that_cannot_be_one_is_told_without_its_passwords() {
    let ground = Ground::new("etcd-api-users-wrong");
    let file = ground.at("users");
    for (text, why) in [
        ("", "there is no user in it"),
        ("anna:secret\nsecret\n", "line 2: it must be NAME:PASSWORD"),
        (":secret\n", "line 1: neither the name nor the password may be empty"),
        ("anna:secret\nanna:secret2\n", "line 2: the user anna is there twice"),
    ] {
        write_secretly(&file, text);
        let mut command = Command::new(primacy_testbed::primacy());
        let output = command
            .args("node --election map --node a --peers a=127.0.0.1:1 --etcd-api 127.0.0.1:0".split(' '))
            .arg("--state-dir")
            .arg(ground.at("state"))
            .arg("--etcd-api-users")
            .arg(&file)
            .output();
        let output = output.unwrap();
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && told.contains(why) && !told.contains("secret"), "{told}");
    }
}

#[tokio::test]
async fn members_are_the_voters_and_one_of_them_leads() {
    let cluster = etcd_api::open(&[]).await;
    let asked = Asked::new(&cluster.endpoint(0)).await;
    let list = api::MemberListRequest { linearizable: true };
    let answer: api::MemberListResponse = asked.ask(method::MEMBER_LIST, &list).await.unwrap();
    let names: Vec<&str> = answer.members.iter().map(|member| member.name.as_str()).collect();
    assert_eq!(names, ["a", "b", "c"]);
    assert_eq!(answer.members[0].client_urls, [format!("http://{}", cluster.endpoint(0))]);
    assert!(answer.members.iter().all(|member| member.peer_urls.len() == 1), "{answer:?}");
    assert_eq!(answer.header.unwrap().member_id, answer.members[0].id);
    write(&asked, "k", b"v").await;
    let status: api::StatusResponse = asked.ask(method::STATUS, &api::StatusRequest {}).await.unwrap();
    assert!(answer.members.iter().any(|member| member.id == status.leader), "{status:?}");
    assert!(status.db_size >= status.db_size_in_use && status.db_size_in_use > 0, "{status:?}");
}

/// The page that lists the served methods.
const PAGE: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/guide/etcd-api.md"));

/// etcd's services, in the packages where they are, and how many methods each has in 3.4 and 3.5.
#[rustfmt::skip]
const SERVICES: [(&str, &str, usize); 8] = [
    ("KV", "etcdserverpb", 5), ("Lease", "etcdserverpb", 5), ("Watch", "etcdserverpb", 1), ("Cluster", "etcdserverpb", 5),
    ("Maintenance", "etcdserverpb", 8), ("Auth", "etcdserverpb", 17), ("Election", "v3electionpb", 5), ("Lock", "v3lockpb", 2),
];

/// The methods in the table below a heading of the page, each with its service.
fn listed(heading: &str) -> Vec<(&'static str, &'static str)> {
    let (_, below) = PAGE.split_once(&format!("\n## {heading}\n")).expect("the page has this heading");
    let below = below.split("\n## ").next().unwrap();
    let rows = below.lines().filter_map(|line| line.strip_prefix("| `")?.split_once("` | "));
    // Other words in backquotes are remarks on a method.
    let is_name =
        |word: &&str| word.starts_with(char::is_uppercase) && word.chars().all(char::is_alphanumeric);
    rows.flat_map(|(service, said)| said.split('`').filter(is_name).map(move |method| (service, method)))
        .collect()
}

#[tokio::test]
async fn what_the_page_lists_is_served_or_says_that_it_is_not() {
    let cluster = etcd_api::open(&[]).await;
    let asked = Asked::new(&cluster.endpoint(0)).await;
    let (served, not_served) = (listed("What is served"), listed("What is not served"));
    for (service, package, count) in SERVICES {
        let of_it = |all: &[(&str, &str)]| all.iter().filter(|(of, _)| *of == service).count();
        assert_eq!(of_it(&served) + of_it(&not_served), count, "{service}: all of it is listed, and once");
        let methods = |all: &[(&'static str, &'static str)]| {
            all.iter().filter(|(of, _)| *of == service).map(|(_, method)| *method).collect::<Vec<_>>()
        };
        // An election and a lock of the same name have one queue, in which the second one would wait.
        let name = if package == "etcdserverpb" { "" } else { service };
        for method in methods(&served) {
            let told = asked.reach(&format!("/{package}.{service}/{method}"), name).await;
            assert!(!matches!(told, Err((Code::Unimplemented, _))), "{service}/{method}: {told:?}");
        }
        for method in methods(&not_served) {
            let told = asked.reach(&format!("/{package}.{service}/{method}"), name).await;
            let text = format!("unknown method {method} for service {package}.{service}");
            assert_eq!(told, Err((Code::Unimplemented, text)));
        }
    }
    for (path, text) in [
        ("/some.Other/Thing", "unknown service some.Other"),
        ("/v3lockpb.Other/Lock", "unknown service v3lockpb.Other"),
        ("/", "malformed method name: \"/\""),
    ] {
        assert_eq!(asked.reach(path, "").await, Err((Code::Unimplemented, text.to_owned())), "{path}");
    }
}

#[tokio::test]
async fn what_is_too_large_is_refused_and_the_largest_is_not() {
    let cluster = etcd_api::open(&[]).await;
    let asked = Asked::new(&cluster.endpoint(0)).await;
    let limit = 3 << 19;
    let ask = async |bytes: usize| {
        asked.ask::<_, api::PutResponse>(method::PUT, &put("k", &vec![0; bytes])).await.map(|_| ())
    };
    assert_eq!(ask(limit - 64).await, Ok(()));
    let text = "etcdserver: request is too large".to_owned();
    assert_eq!(ask(limit - 8).await, Err((Code::InvalidArgument, text)));
    let (code, text) = ask(limit + (512 << 10)).await.unwrap_err();
    assert_eq!(code, Code::ResourceExhausted);
    assert!(text.starts_with("grpc: received message larger than max (20971"), "{text}");
    // It answers still.
    assert_eq!(ask(1).await, Ok(()));
}

fn memory(process: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() << 10
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_does_not_read_costs_no_memory_and_then_catches_up_in_order() {
    const WRITES: usize = 4000;
    const STREAMS: usize = 4;
    const WATCHERS: usize = 200;
    let cluster = etcd_api::open(&[]).await;
    let asked = Asked::new(&cluster.endpoint(0)).await;
    // Each with many watchers of the same, so that what waits for them would be far more than what is written.
    let mut slow = Vec::new();
    for _ in 0..STREAMS {
        let own = Asked::new(&cluster.endpoint(0)).await;
        let mut watches = own.watches(watch("k", 0)).await;
        assert!(watches.answer().await.unwrap().created);
        for _ in 1..WATCHERS {
            watches.wish(watch("k", 0)).await;
            assert!(watches.answer().await.unwrap().created);
        }
        slow.push(watches);
    }
    let before = memory(cluster.process(0));
    let mut last = 0;
    for _ in 0..WRITES {
        last = write(&asked, "k", b"some value").await;
    }
    let more = memory(cluster.process(0)).saturating_sub(before);
    assert!(more < MEMORY_MAX, "{} MiB are used", more >> 20);
    // What has happened meanwhile comes in order, with nothing left out and nothing twice.
    let mut next = [last - i64::try_from(WRITES).unwrap() + 1; WATCHERS];
    let watches = &mut slow[0];
    while next.iter().any(|&next| next <= last) {
        let answer = watches.answer().await.unwrap();
        assert!(!answer.canceled, "{answer:?}");
        let next = &mut next[usize::try_from(answer.watch_id).unwrap()];
        for event in answer.events {
            assert_eq!(event.kv.unwrap().mod_revision, *next);
            *next += 1;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_reads_too_late_is_told_that_it_was_compacted() {
    const WRITES: usize = 4000;
    let cluster = etcd_api::open(&[]).await;
    let asked = Asked::new(&cluster.endpoint(0)).await;
    let mut late = Asked::new(&cluster.endpoint(0)).await.watches(watch("k", 0)).await;
    assert!(late.answer().await.unwrap().created);
    let value = vec![7; 4096];
    let mut last = 0;
    for _ in 0..WRITES {
        last = write(&asked, "k", &value).await;
    }
    let compaction = api::CompactionRequest { revision: last, physical: false };
    let _: api::CompactionResponse = asked.ask(method::COMPACT, &compaction).await.unwrap();
    let mut seen = 0;
    let answer = loop {
        let answer = late.answer().await.unwrap();
        if answer.canceled {
            break answer;
        }
        seen += answer.events.len();
    };
    assert_eq!((answer.compact_revision, answer.watch_id), (last, 0));
    assert!(seen < WRITES, "it was not late");
    // The stream is of use still.
    late.wish(watch("k", last)).await;
    assert!(late.answer().await.unwrap().created);
    assert_eq!(late.answer().await.unwrap().events.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn who_hangs_up_while_it_waits_leaves_the_queue() {
    let cluster = etcd_api::open(&[]).await;
    let (asked, waits) = (Asked::new(&cluster.endpoint(0)).await, Asked::new(&cluster.endpoint(0)).await);
    for lease in [7, 8] {
        let grant = api::LeaseGrantRequest { ttl: 3600, id: lease };
        let _: api::LeaseGrantResponse = asked.ask(method::LEASE_GRANT, &grant).await.unwrap();
    }
    let name = b"e".to_vec();
    let campaign = |lease| v3electionpb::CampaignRequest { name: name.clone(), lease, value: b"v".to_vec() };
    let won: v3electionpb::CampaignResponse = asked.ask(method::CAMPAIGN, &campaign(7)).await.unwrap();
    assert_eq!(won.leader.unwrap().key, b"e/7");
    let second = campaign(8);
    let campaigning = tokio::spawn(async move {
        waits.ask::<_, v3electionpb::CampaignResponse>(method::CAMPAIGN, &second).await
    });
    let queue = api::RangeRequest { key: b"e/".to_vec(), range_end: b"e0".to_vec(), ..Default::default() };
    let count = async || {
        let answer: api::RangeResponse = asked.ask(method::RANGE, &queue).await.unwrap();
        answer.count
    };
    let until = async |wanted| {
        while count().await != wanted {
            tokio::time::sleep(POLL).await;
        }
    };
    until(2).await;
    campaigning.abort();
    until(1).await;
    // A candidate that waits when its session ends has not won.
    let waits = Asked::new(&cluster.endpoint(0)).await;
    let second = campaign(8);
    let campaigning = tokio::spawn(async move {
        waits.ask::<_, v3electionpb::CampaignResponse>(method::CAMPAIGN, &second).await
    });
    until(2).await;
    for lease in [8, 7] {
        let revoke = api::LeaseRevokeRequest { id: lease };
        let _: api::LeaseRevokeResponse = asked.ask(method::LEASE_REVOKE, &revoke).await.unwrap();
    }
    let (code, text) = campaigning.await.unwrap().unwrap_err();
    assert_eq!((code, &*text), (Code::Unknown, "etcdserver: requested lease not found"));
}

#[tokio::test(flavor = "multi_thread")]
async fn with_tls_both_sides_show_certificates() {
    let ground = Ground::new("etcd-api-tls");
    let (ours, theirs) = (Tls::issue(&ground, "ours"), Tls::issue(&ground, "theirs"));
    let cluster = etcd_api::open_with(Some(ours.clone()), &[]).await;
    let status = async |settings: String| {
        let client = EtcdClient::new(&format!("etcd://{}?{settings}", cluster.endpoint(0))).unwrap();
        client.status().await.remove(0).1
    };
    let shown = |ca: &PathBuf, tls: &Tls| {
        let (ca, cert, key) = (ca.display(), tls.cert.display(), tls.key.display());
        format!("ca={ca}&cert={cert}&key={key}")
    };
    assert!(status(shown(&ours.ca, &ours)).await.is_ok());
    for (settings, what) in [
        (shown(&ours.ca, &theirs), "a certificate of another authority"),
        (format!("ca={}", ours.ca.display()), "no certificate"),
        (shown(&theirs.ca, &ours), "an authority that has not signed the node's"),
    ] {
        let error = status(settings).await.unwrap_err();
        assert!(matches!(error, RequestError::Refused { .. }), "{what}: {error:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn with_users_and_tls_both_are_asked_for_at_every_node() {
    let ground = Ground::new("etcd-api-users-tls");
    let (ours, theirs) = (Tls::issue(&ground, "ours"), Tls::issue(&ground, "theirs"));
    let users = ground.at("users");
    write_secretly(&users, "anna:secret-of-anna\n");
    let arguments = ["--etcd-api-users", users.to_str().unwrap()];
    let mut cluster = etcd_api::open_with(Some(ours.clone()), &arguments).await;
    let endpoints = [0, 1, 2].map(|member| cluster.endpoint(member));
    let client = |login: &str, tls: &Tls, hosts: &str| {
        let (ca, cert, key) = (ours.ca.display(), tls.cert.display(), tls.key.display());
        EtcdClient::new(&format!("etcd://{login}{hosts}?ca={ca}&cert={cert}&key={key}")).unwrap()
    };
    let write = || {
        let put = api::RequestOp { request: Some(api::Request::RequestPut(put("k", b"v"))) };
        api::TxnRequest { success: vec![put], ..Default::default() }
    };
    let read = || api::RangeRequest { key: b"k".to_vec(), ..Default::default() };
    let all = endpoints.join(",");
    let anna = client("anna:secret-of-anna@", &ours, &all);
    let until_written = async || {
        let written = async {
            while anna.transact(write()).await.is_err() {
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(60), written).await.unwrap();
    };
    until_written().await;
    // One may be behind still.
    let served = async {
        for address in &endpoints {
            let client = client("anna:secret-of-anna@", &ours, address);
            while client.read(read()).await.is_err() {
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(60), served).await.unwrap();
    for address in &endpoints {
        // A client that is right in one thing is wrong nevertheless.
        for (login, tls, wrong) in [
            ("anna:wrong@", &ours, "authentication failed"),
            ("nobody:secret-of-anna@", &ours, "authentication failed"),
            ("", &ours, "user name is empty"),
            ("anna:secret-of-anna@", &theirs, "fatal alert"),
        ] {
            let error = client(login, tls, address).read(read()).await.unwrap_err();
            let RequestError::Refused { why } = &error else { panic!("{login}: {error:?}") };
            assert!(why.to_lowercase().contains(wrong), "{login}: {why}");
        }
        // In cleartext no client is answered, not even one that may come in, and no answer is sent in it.
        let open = EtcdClient::new(&format!("etcd://anna:secret-of-anna@{address}")).unwrap();
        let error = open.read(read()).await.unwrap_err();
        let is_unconnected = matches!(error, RequestError::NotSent { .. } | RequestError::NoAnswer { .. });
        assert!(is_unconnected, "{error:?}");
        let answer = client("anna:secret-of-anna@", &ours, address).read(read()).await.unwrap();
        assert_eq!(answer.kvs[0].value, b"v");
    }
    // When one is gone, the next ones go on.
    cluster.kill(0);
    until_written().await;
    cluster.kill(1);
    cluster.restart(0).await;
    until_written().await;
    assert_eq!(anna.read(read()).await.unwrap().kvs[0].value, b"v");
}
