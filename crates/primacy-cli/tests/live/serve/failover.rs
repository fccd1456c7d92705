//! The leader is killed while clients go on: a raw client that knows only a follower, and `etcdctl`, which knows all
//! three nodes.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use primacy_conformance::live::etcd::{Etcd, MEMBERS};
use primacy_conformance::live::{Ground, Server, program};
use primacy_stores::etcd::api::{self, method, v3electionpb};
use rustix::process::Signal;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::sync::watch;
use tonic::Code;

use super::name;
use super::waits::until_in_queue;
use primacy_testbed::etcd_api::{self, Asked, PATIENCE, POLL};
use primacy_testbed::started;

/// The number of puts that are acknowledged before the leader is killed, and again after.
const PUTS: usize = 30;

/// The time to live of the lease that is kept alive meanwhile, and the time for which it is: without that it
/// would have ended by then.
const TIME_TO_LIVE: Duration = Duration::from_secs(10);
const ALIVE_FOR: Duration = Duration::from_secs(13);

/// The same of a lease that etcd's own client keeps alive: it gives up when it has not been answered for the
/// lease's time to live.
const CLIENT_TIME_TO_LIVE: Duration = Duration::from_secs(30);
const CLIENT_ALIVE_FOR: Duration = Duration::from_secs(35);

/// The time that `etcdctl`, a process for each put, may take for all of them.
const CLIENT_PATIENCE: Duration = Duration::from_secs(5 * 60);

/// The errors of etcd while there is no leader, or where one is lost.
const PASSING: &[&str] = &[
    "etcdserver: request timed out",
    "etcdserver: request timed out, possibly due to previous leader failure",
    "etcdserver: request timed out, possibly due to connection lost",
    "etcdserver: leader changed",
    NO_LEADER,
];

/// The error by which etcd ends the watches of clients that require a leader, when there is none, as its own
/// client does.
const NO_LEADER: &str = "etcdserver: no leader";

/// The error of etcd for a write, with the code `Unknown`, for which it knew no leader all the time.
const NOT_PASSED_ON: &str = "context deadline exceeded";

/// Further errors of etcd's own client, where it has not been answered.
const UNANSWERED: &[&str] =
    &[NOT_PASSED_ON, "error reading from server: EOF", "transport is closing", "connection"];

/// The leases of the two candidates; the first one is kept alive.
const FIRST: i64 = 7;
const SECOND: i64 = 8;

fn key(number: usize) -> String {
    format!("n/{number:06}")
}

/// All keys that are counted.
fn counted() -> api::RangeRequest {
    api::RangeRequest { key: b"n/".to_vec(), range_end: b"n0".to_vec(), ..Default::default() }
}

/// Checks that this is an error that etcd gives while it has no leader.
fn assert_passing((code, text): &(Code, String)) {
    let (without_leader, not_passed_on) = (PASSING.contains(&text.as_str()), text == NOT_PASSED_ON);
    let is_passing =
        (*code == Code::Unavailable && without_leader) || (*code == Code::Unknown && not_passed_on);
    assert!(is_passing, "{code:?} {text:?}");
}

/// Puts, until so many are acknowledged: each key with its revision, and the term of the last answer.
async fn put_until(asked: &Asked, next: &mut usize, puts: usize) -> (BTreeMap<String, i64>, u64) {
    let began = Instant::now();
    let (mut acknowledged, mut term) = (BTreeMap::new(), 0);
    while acknowledged.len() < puts {
        assert!(began.elapsed() < PATIENCE, "{} of {puts} puts", acknowledged.len());
        let key = key(*next);
        *next += 1;
        let put = api::PutRequest { key: key.clone().into(), value: b"v".to_vec(), ..Default::default() };
        match asked.ask::<_, api::PutResponse>(method::PUT, &put).await {
            Ok(answer) => {
                let header = answer.header.unwrap();
                acknowledged.insert(key, header.revision);
                term = header.raft_term;
            }
            Err(error) => assert_passing(&error),
        }
    }
    (acknowledged, term)
}

/// Keeps the first one's lease alive until `ended` is set, and counts the answers.
async fn keep_alive(asked: Asked, kept: watch::Sender<usize>, mut ended: watch::Receiver<bool>) {
    while !*ended.borrow() {
        match asked.keep_alive(FIRST).await {
            Ok(seconds) => {
                assert!(seconds > 0, "the session is over");
                kept.send_modify(|kept| *kept += 1);
            }
            Err(error) => assert_passing(&error),
        }
        let _ = tokio::time::timeout(5 * POLL, ended.changed()).await;
    }
}

/// Returns the writes to the counted keys, each with its revision, in the order in which they are reported,
/// until the last one is.
async fn watched(asked: Asked, opened: watch::Sender<bool>) -> Vec<(String, i64)> {
    let api::RangeRequest { key, range_end, .. } = counted();
    let create = api::WatchCreateRequest { key, range_end, ..Default::default() };
    let mut watches = asked.watches(api::RequestUnion::CreateRequest(create)).await;
    assert!(watches.answer().await.unwrap().created);
    opened.send_replace(true);
    let mut told = Vec::new();
    loop {
        let answer = watches.answer().await.unwrap();
        assert!(!answer.canceled, "{answer:?}");
        for event in answer.events {
            let kv = event.kv.unwrap();
            if kv.key == b"n/end" {
                return told;
            }
            told.push((String::from_utf8(kv.key).unwrap(), kv.mod_revision));
        }
    }
}

/// Begins a lease, and campaigns with it.
async fn stand(
    asked: &Asked,
    lease: i64,
    ttl: Duration,
) -> Result<v3electionpb::CampaignResponse, (Code, String)> {
    let grant = api::LeaseGrantRequest { ttl: i64::try_from(ttl.as_secs()).unwrap(), id: lease };
    let _: api::LeaseGrantResponse = asked.ask(method::LEASE_GRANT, &grant).await.unwrap();
    let campaign =
        v3electionpb::CampaignRequest { name: b"e".to_vec(), lease, value: lease.to_string().into() };
    asked.ask(method::CAMPAIGN, &campaign).await
}

/// All counted keys that are there, with their revisions, in order.
async fn found(asked: &Asked) -> Vec<(String, i64)> {
    let answer: api::RangeResponse = asked.ask(method::RANGE, &counted()).await.unwrap();
    let entry = |kv: api::KeyValue| (String::from_utf8(kv.key).unwrap(), kv.mod_revision);
    answer.kvs.into_iter().map(entry).collect()
}

/// A client that knows a follower only goes on over the death of the leader.
async fn a_follower_goes_on(mut cluster: Etcd) {
    let leader = cluster.leader().await;
    let asked = Asked::new(&cluster.endpoint((leader + 1) % MEMBERS)).await;
    let (opened, mut is_open) = watch::channel(false);
    let watching = tokio::spawn(watched(asked.clone(), opened));
    is_open.wait_for(|open| *open).await.unwrap();
    let won = stand(&asked, FIRST, TIME_TO_LIVE).await.unwrap().leader.unwrap();
    let (end, ended) = watch::channel(false);
    let (keep, kept) = watch::channel(0);
    let keeping = tokio::spawn(keep_alive(asked.clone(), keep, ended));
    let mut leaders = asked.observe("e");
    let leads = async |leaders: &mut UnboundedReceiver<(String, String)>| {
        let told = tokio::time::timeout(PATIENCE, leaders.recv()).await.expect("an observer is told");
        told.expect("it is not told that it is over").1
    };
    assert_eq!(leads(&mut leaders).await, "7");
    let second = asked.clone();
    let campaigning = tokio::spawn(async move { stand(&second, SECOND, 60 * TIME_TO_LIVE).await });
    until_in_queue(&asked, "e", 2).await;

    let mut next = 0;
    let (mut acknowledged, before) = put_until(&asked, &mut next, PUTS).await;
    cluster.kill(leader);
    let killed = Instant::now();
    let (first, after) = put_until(&asked, &mut next, 1).await;
    assert!(after > before, "the one that was killed led");
    let kept_before = *kept.borrow();
    acknowledged.extend(first);
    acknowledged.extend(put_until(&asked, &mut next, PUTS).await.0);
    println!("{}: {next} puts for {} that were acknowledged", name(&cluster), acknowledged.len());
    tokio::time::sleep(ALIVE_FOR.saturating_sub(killed.elapsed())).await;
    // The session lives, and what goes with it is where it was.
    let key = api::RangeRequest { key: won.key.clone(), ..Default::default() };
    let own: api::RangeResponse = asked.ask(method::RANGE, &key).await.unwrap();
    assert_eq!(own.kvs[0].mod_revision, won.rev);
    assert!(!campaigning.is_finished(), "the first one leads still");
    assert!(*kept.borrow() > kept_before, "the new leader keeps it alive");
    end.send_replace(true);
    keeping.await.unwrap();

    // The candidate that has waited all the time is next.
    let resign = v3electionpb::ResignRequest { leader: Some(won) };
    let _: v3electionpb::ResignResponse = asked.ask(method::RESIGN, &resign).await.unwrap();
    let won = tokio::time::timeout(PATIENCE, campaigning).await.expect("it is next").unwrap().unwrap();
    assert_eq!(won.leader.unwrap().key, b"e/8");
    assert_eq!(leads(&mut leaders).await, "8");

    let last = api::PutRequest { key: b"n/end".to_vec(), ..Default::default() };
    let _: api::PutResponse = asked.ask(method::PUT, &last).await.unwrap();
    let told = watching.await.unwrap();
    let mut found = found(&asked).await;
    assert_eq!(found.pop().map(|(key, _)| key).as_deref(), Some("n/end"));
    assert_eq!(told, found, "each is told once, in order, and nothing else");
    let found: BTreeMap<String, i64> = found.into_iter().collect();
    for (key, revision) in &acknowledged {
        assert_eq!(found.get(key), Some(revision), "{key} was acknowledged");
    }
}

#[test]
fn who_knows_a_follower_of_etcd_goes_on_when_the_leader_dies() {
    let Some((runtime, etcd)) = started("etcd", Etcd::start(None)) else { return };
    runtime.block_on(a_follower_goes_on(etcd));
}

#[tokio::test(flavor = "multi_thread")]
async fn who_knows_a_follower_of_ours_goes_on_when_the_leader_dies() {
    a_follower_goes_on(etcd_api::open(&[]).await).await;
}

/// `etcdctl`, with all three endpoints.
struct Client<'a> {
    program: PathBuf,
    endpoints: String,
    ground: &'a Ground,
}

impl Client<'_> {
    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        command.env("ETCDCTL_API", "3").args(["--endpoints", &self.endpoints, "--command-timeout", "20s"]);
        command.args(arguments).stdin(Stdio::null());
        command
    }

    /// Runs it to its end, and returns its output, or the error.
    fn run(&self, arguments: &[&str]) -> Result<String, String> {
        let output = self.command(arguments).output().unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        if output.status.success() { Ok(text(&output.stdout)) } else { Err(text(&output.stderr)) }
    }

    /// Begins something that lasts.
    fn begin(&self, name: &str, arguments: &[&str]) -> Server {
        Server::start(name, self.command(arguments), self.ground)
    }

    /// Returns its lines by now, without those of its own log.
    fn said(&self, name: &str) -> Vec<String> {
        let text = std::fs::read_to_string(self.ground.at(&format!("{name}.log"))).unwrap_or_default();
        text.lines().filter(|line| !line.starts_with('{')).map(ToOwned::to_owned).collect()
    }

    /// Puts, until so many are acknowledged; their keys.
    fn put_until(&self, next: &mut usize, puts: usize) -> Vec<String> {
        let began = Instant::now();
        let mut acknowledged = Vec::new();
        while acknowledged.len() < puts {
            assert!(began.elapsed() < CLIENT_PATIENCE, "{} of {puts} puts", acknowledged.len());
            let key = key(*next);
            *next += 1;
            match self.run(&["put", &key, "v"]) {
                Ok(_) => acknowledged.push(key),
                Err(error) => {
                    let known = PASSING.iter().chain(UNANSWERED).any(|passing| error.contains(passing));
                    assert!(known, "{error}");
                }
            }
        }
        acknowledged
    }

    /// Begins the watch again after its last event, where it has ended because there was no leader for long.
    fn watch_on(&self, watching: &mut Server) {
        if watching.lives().is_ok() {
            return;
        }
        assert!(watching.printed().contains(NO_LEADER), "{}", watching.printed());
        let last = self.said("watching").into_iter().rfind(|line| line.starts_with("n/")).unwrap();
        let fields = self.run(&["get", &last, "--write-out", "fields"]).unwrap();
        let revision = fields.lines().find_map(|line| line.strip_prefix("\"ModRevision\" : ")).unwrap();
        let next = (revision.parse::<i64>().unwrap() + 1).to_string();
        *watching = self.begin("watching", &["watch", "n/", "--prefix", "--rev", &next]);
    }
}

/// Waits until this client has printed this.
async fn until_said(client: &Client<'_>, server: &mut Server, name: &str, wanted: &str) {
    server.until(async || client.said(name).iter().any(|line| line == wanted)).await;
}

/// A client that knows all three goes on over the death of the leader.
async fn all_three_go_on(mut cluster: Etcd, program: PathBuf) {
    let ground = Ground::new(&format!("failover-{}", name(&cluster)));
    let client = Client { program, endpoints: cluster.endpoints(), ground: &ground };
    let granted = client.run(&["lease", "grant", &CLIENT_TIME_TO_LIVE.as_secs().to_string()]).unwrap();
    let lease = granted.split(' ').nth(1).unwrap().to_owned();
    client.run(&["put", "leased", "v", "--lease", &lease]).unwrap();
    let mut kept = client.begin("kept", &["lease", "keep-alive", &lease]);
    let mut watching = client.begin("watching", &["watch", "n/", "--prefix"]);
    let mut first = client.begin("first", &["elect", "e", "alpha"]);
    until_said(&client, &mut first, "first", "alpha").await;
    let mut second = client.begin("second", &["elect", "e", "beta"]);
    let stand = ["get", "e/", "--prefix", "--keys-only"];
    second.until(async || client.run(&stand).is_ok_and(|said| said.matches("e/").count() == 2)).await;
    // The watch has begun when it prints an event.
    let mut probes = 0;
    watching
        .until(async || {
            probes += 1;
            client.run(&["put", "n/begin", &probes.to_string()]).unwrap();
            client.said("watching").iter().any(|line| line == "n/begin")
        })
        .await;

    let mut next = 0;
    let mut acknowledged = client.put_until(&mut next, PUTS);
    let leader = cluster.leader().await;
    cluster.kill(leader);
    let killed = Instant::now();
    let kept_before = client.said("kept").len();
    acknowledged.extend(client.put_until(&mut next, PUTS));
    println!("{}: {next} puts for {} that were acknowledged", name(&cluster), acknowledged.len());
    tokio::time::sleep(CLIENT_ALIVE_FOR.saturating_sub(killed.elapsed())).await;
    kept.until(async || client.said("kept").len() > kept_before).await;
    assert_eq!(client.run(&["get", "leased", "--print-value-only"]), Ok("v\n".to_owned()));
    assert!(!client.said("second").iter().any(|line| line == "beta"), "the first one leads still");
    first.signal(Signal::INT);
    until_said(&client, &mut second, "second", "beta").await;

    client.run(&["put", "n/end", "v"]).unwrap();
    let began = Instant::now();
    while !client.said("watching").iter().any(|line| line == "n/end") {
        assert!(began.elapsed() < PATIENCE, "{:?}", client.said("watching"));
        client.watch_on(&mut watching);
        tokio::time::sleep(POLL).await;
    }
    let counted = |line: &String| line.starts_with("n/") && line != "n/begin";
    let told: Vec<String> = client.said("watching").into_iter().filter(counted).collect();
    let found = client.run(&["get", "n/", "--prefix", "--keys-only"]).unwrap();
    let found: Vec<String> = found.lines().map(ToOwned::to_owned).filter(counted).collect();
    assert_eq!(told, found, "each is told once, in order, and nothing else");
    assert!(acknowledged.iter().all(|key| found.contains(key)), "{acknowledged:?} {found:?}");
}

#[test]
fn a_client_of_etcd_goes_on_when_the_leader_of_etcd_dies() {
    let Some((runtime, etcd)) = started("etcd", Etcd::start(None)) else { return };
    runtime.block_on(all_three_go_on(etcd, program("etcdctl").unwrap()));
}

#[test]
fn a_client_of_etcd_goes_on_when_the_leader_of_ours_dies() {
    let Some((runtime, etcdctl)) = started("etcdctl", async { program("etcdctl") }) else { return };
    runtime.block_on(async { all_three_go_on(etcd_api::open(&[]).await, etcdctl).await });
}
