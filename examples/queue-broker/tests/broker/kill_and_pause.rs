//! Two brokers on one document, killed and paused in turn while clients push and work. No job is lost, none is completed by two
//! claims, the other broker leads within the timeout and its read interval, and clients find it by the answers of brokers or by
//! the document.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use primacy::config::DRIFT_MAX;
use primacy_conformance::live::Ground;
use rustix::process::Signal;
use serde_json::json;

use crate::brokers::Brokers;
use crate::bucket::Bucket;
use crate::client::{Client, Discovery, Known, Way, request};
use crate::store::Store;
use crate::{PATIENCE, RETRY, TIMEOUT};

/// The time without a heartbeat after which a job is given to another worker.
const JOB_TIMEOUT: Duration = Duration::from_secs(2);
/// The allowance for a takeover beyond its computed limit: for processes that wait for a processor on a busy machine, and for
/// its two requests to the store.
const SLACK: Duration = Duration::from_secs(5);
/// The least number of jobs; pushes continue until the last fault.
const JOBS: u64 = 300;
/// The pause between two pushes.
const PACE: Duration = Duration::from_millis(20);
/// The pause of a worker that got no job.
const IDLE: Duration = Duration::from_millis(20);
const STRIKES: [Strike; 4] = [Strike::Kill, Strike::Pause, Strike::Kill, Strike::Pause];

/// A fault of the leader.
#[derive(Clone, Copy, Debug)]
enum Strike {
    Kill,
    /// Its process is stopped until the other broker leads.
    Pause,
}

/// The longest time from the fault until the other broker leads. That broker sees the leader's last write at its next read,
/// waits for the timeout from then on, plus the difference of their clocks, and may have read just before that was over.
fn outage_max() -> Duration {
    let silence: Duration = DRIFT_MAX.lengthen(TIMEOUT.into()).into();
    RETRY + silence + RETRY + SLACK
}

/// Pushes jobs, each until it is known to be in the queue; returns their number.
fn push(mut client: Client<'_>, are_struck: &AtomicBool) -> u64 {
    let mut number = 0;
    while number < JOBS || !are_struck.load(Ordering::SeqCst) {
        let body = json!({ "payload": number, "key": format!("job {number}"), "maxAttempts": 1_000 });
        let pushed = std::iter::repeat_with(|| client.ask("/v1/jobs", &body)).flatten().next();
        assert_eq!(pushed.map(|(status, _)| status), Some(201));
        number += 1;
        std::thread::sleep(PACE);
    }
    number
}

/// Works until all is done, and records by which claim each job was completed, as far as the broker confirmed it.
fn work(
    mut client: Client<'_>,
    name: &str,
    completed: &Mutex<BTreeMap<u64, Vec<String>>>,
    is_done: &AtomicBool,
) {
    while !is_done.load(Ordering::SeqCst) {
        let Some((200, job)) = client.ask("/v1/jobs/claim", &json!({ "workerId": name })) else { continue };
        let (Some(id), Some(claim)) = (job["jobId"].as_str(), job["claim"].as_str()) else {
            std::thread::sleep(IDLE);
            continue;
        };
        let body = json!({ "workerId": name, "claim": claim });
        // The answer was lost: the request is repeated, under the same claim.
        let path = format!("/v1/jobs/{id}/complete");
        let answer = std::iter::repeat_with(|| client.ask(&path, &body)).flatten().next();
        if answer.is_some_and(|(status, _)| status == 204) {
            let number = job["payload"].as_u64().unwrap();
            completed.lock().unwrap().entry(number).or_default().push(claim.to_owned());
        }
    }
}

/// Applies a fault to the leader, and waits until the other broker leads and clients have found it; returns the time
/// without a leader.
fn strike(brokers: &Brokers, strike: Strike) -> Duration {
    // Time for some work.
    std::thread::sleep(TIMEOUT / 2);
    let (leader, token) = brokers.wait_for_leader();
    let found_before = brokers.discoveries.lock().unwrap().len();
    let struck_at = match strike {
        Strike::Kill => brokers.kill(leader),
        Strike::Pause => brokers.pause(leader),
    };
    let other = 1 - leader;
    let next = brokers.wait_for("the other one to lead", || brokers.token(other));
    let outage = struck_at.elapsed();
    assert!(next > token, "{next} follows {token}");
    let max = outage_max();
    assert!(outage <= max, "{strike:?}: nobody led for {outage:?}, {max:?} at most:\n{}", brokers.printed());
    match strike {
        Strike::Kill => brokers.begin(leader),
        Strike::Pause => {
            brokers.signal(leader, Signal::CONT);
            // It wakes, and knows at once that its leadership has expired.
            let answer = request(brokers.address(leader), "GET", "/healthz", None);
            let leads = answer.ok().filter(|(_, answer)| answer["leading"] == true);
            assert!(leads.is_none_or(|(_, answer)| answer["token"].as_u64() > Some(next)), "{leader} woke");
        }
    }
    for way in [Way::Standby, Way::Document] {
        brokers.wait_for(&format!("a client that finds {} by {way:?}", brokers.address(other)), || {
            let discoveries = brokers.discoveries.lock().unwrap();
            let found = |discovery: &&_| is_way_to(discovery, way, brokers.address(other));
            discoveries[found_before..].iter().find(found).map(|_| ())
        });
    }
    outage
}

fn is_way_to(discovery: &Discovery, way: Way, address: &str) -> bool {
    discovery.way == way && discovery.address == address
}

/// Each worker's initial knowledge: the address of one broker, or none. So at each change of leader, one worker can learn of
/// it only from a standby broker: the worker that knows only the former leader.
fn knowledge(brokers: &Brokers) -> [Known; 4] {
    let address = |index| Known::Address(brokers.address(index).to_owned());
    [address(0), address(1), Known::Document, Known::Document]
}

fn run(store: Store, ground: Ground) {
    let brokers = &Brokers::start(2, store, JOB_TIMEOUT, ground);
    brokers.wait_for_leader();
    let completed = Mutex::new(BTreeMap::new());
    let (are_struck, is_done) = (AtomicBool::new(false), AtomicBool::new(false));
    let (outages, pushed) = std::thread::scope(|scope| {
        let pushing = scope.spawn(|| push(brokers.client(Known::Document), &are_struck));
        for (index, known) in knowledge(brokers).into_iter().enumerate() {
            let (completed, is_done) = (&completed, &is_done);
            scope.spawn(move || work(brokers.client(known), &format!("worker {index}"), completed, is_done));
        }
        // A failure here must not leave the other threads running.
        let struck = catch_unwind(AssertUnwindSafe(|| STRIKES.map(|what| (what, strike(brokers, what)))));
        are_struck.store(true, Ordering::SeqCst);
        let pushed = pushing.join();
        if struck.is_ok() && pushed.is_ok() {
            wait_until_idle(brokers);
        }
        is_done.store(true, Ordering::SeqCst);
        (
            struck.unwrap_or_else(|panic| resume_unwind(panic)),
            pushed.unwrap_or_else(|panic| resume_unwind(panic)),
        )
    });
    let stats = brokers.wait_for("the count", || brokers.stats());
    assert_eq!(stats["completedTotal"], pushed, "each job was completed, and once: {stats}");
    let completed = completed.into_inner().unwrap();
    for (number, claims) in &completed {
        assert_eq!(claims.len(), 1, "job {number} was completed by two claims: {claims:?}");
    }
    // The outcome of requests whose answers were lost is not known; they are few.
    assert!(completed.len() as u64 >= pushed / 2, "{} were told to be completed", completed.len());
    let discoveries = brokers.discoveries.lock().unwrap();
    let by = |way| discoveries.iter().filter(|discovery| discovery.way == way).count();
    println!(
        "{}: {pushed} jobs; nobody led for {outages:?}, of {TIMEOUT:?} of silence and {RETRY:?} between two looks; a leader was \
         found {} times by a standby's answer, and {} times by the document",
        brokers.store.url(),
        by(Way::Standby),
        by(Way::Document)
    );
}

fn wait_until_idle(brokers: &Brokers) {
    let began = Instant::now();
    while brokers.stats().is_none_or(|stats| stats["unclaimed"] != 0 || stats["inProgress"] != 0) {
        assert!(began.elapsed() < PATIENCE, "jobs are left:\n{}", brokers.printed());
        std::thread::sleep(IDLE);
    }
}

#[test]
fn over_a_directory_no_job_is_lost_and_none_is_completed_twice() {
    let ground = Ground::new("broker");
    run(Store::directory(&ground), ground);
}

#[test]
fn over_s3_no_job_is_lost_and_none_is_completed_twice() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    match runtime.block_on(Bucket::start()) {
        Ok(bucket) => run(Store::Bucket(bucket), Ground::new("broker-s3")),
        Err(why) => {
            eprintln!("s3: NOT RUN: {why}");
            assert!(std::env::var_os(primacy_conformance::REQUIRE_LIVE_VARIABLE).is_none(), "{why}");
        }
    }
}

#[test]
fn a_leader_that_is_asked_to_end_hands_over_at_once() {
    let ground = Ground::new("broker-ends");
    let brokers = Brokers::start(2, Store::directory(&ground), JOB_TIMEOUT, ground);
    let (leader, _) = brokers.wait_for_leader();
    brokers.client(Known::Document).ask("/v1/jobs", &json!({ "payload": 1 })).unwrap();
    let began = Instant::now();
    brokers.signal(leader, Signal::TERM);
    brokers.wait_for("the other one to lead", || brokers.token(1 - leader));
    println!("handed over after {:?}", began.elapsed());
    let stats = brokers.wait_for("the count", || brokers.stats());
    assert_eq!(stats["unclaimed"], 1);
}
