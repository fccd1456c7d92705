//! Claims of workers: renewed, lost and released.

use std::time::{Duration, Instant};

use primacy_conformance::live::Ground;
use serde_json::{Value, json};

use crate::brokers::Brokers;
use crate::client::{Client, Known};
use crate::store::Store;

/// The time without a heartbeat after which a job is given to another worker. Long compared with [`BEAT`], so that a busy machine
/// does not take a claim from a worker that sends heartbeats.
const JOB_TIMEOUT: Duration = Duration::from_secs(4);
/// The interval between a worker's heartbeats.
const BEAT: Duration = Duration::from_millis(100);
/// A timeout that never ends a claim in a test.
const NEVER: Duration = Duration::from_secs(3_600);

/// One broker over a directory.
fn one(name: &str, job_timeout: Duration) -> Brokers {
    let ground = Ground::new(name);
    Brokers::start(1, Store::directory(&ground), job_timeout, ground)
}

fn client(brokers: &Brokers) -> Client<'_> {
    brokers.client(Known::Address(brokers.address(0).to_owned()))
}

fn push(client: &mut Client<'_>, payload: &str, attempts_max: u64) -> String {
    let (status, job) =
        client.ask("/v1/jobs", &json!({ "payload": payload, "maxAttempts": attempts_max })).unwrap();
    assert_eq!(status, 201, "{job}");
    job["jobId"].as_str().unwrap().to_owned()
}

/// A job that a worker has.
struct Held {
    payload: String,
    attempts: u64,
    id: String,
    body: Value,
}

impl Held {
    /// Claims the first waiting job.
    fn claim(client: &mut Client<'_>, worker: &str) -> Option<Self> {
        let (status, job) = client.ask("/v1/jobs/claim", &json!({ "workerId": worker })).unwrap();
        assert_eq!(status, 200, "{job}");
        Some(Self {
            id: job["jobId"].as_str()?.to_owned(),
            payload: job["payload"].as_str().unwrap().to_owned(),
            attempts: job["attempts"].as_u64().unwrap(),
            body: json!({ "workerId": worker, "claim": job["claim"].as_str().unwrap() }),
        })
    }

    /// Sends `heartbeat`, `complete` or `release`; returns the status.
    fn ask(&self, client: &mut Client<'_>, what: &str) -> u16 {
        client.ask(&format!("/v1/jobs/{}/{what}", self.id), &self.body).unwrap().0
    }
}

#[test]
fn a_claim_with_heartbeats_outlives_its_timeout_and_one_without_goes_to_another() {
    let brokers = one("claims", JOB_TIMEOUT);
    let client = &mut client(&brokers);
    push(client, "kept alive", 1_000);
    push(client, "left alone", 1_000);
    let kept = Held::claim(client, "careful").unwrap();
    let began = Instant::now();
    let left = Held::claim(client, "silent").unwrap();
    assert_eq!((&*kept.payload, &*left.payload), ("kept alive", "left alone"), "in their order");
    // The silent worker loses its job, and so does each worker that gets it later: two whole timeouts.
    let mut last = left.attempts;
    while last < 3 {
        assert_eq!(kept.ask(client, "heartbeat"), 204, "after {:?}", began.elapsed());
        if let Some(given) = Held::claim(client, "another") {
            assert_eq!((&*given.payload, given.attempts), ("left alone", last + 1), "{:?}", began.elapsed());
            last = given.attempts;
        }
        assert!(began.elapsed() < crate::PATIENCE, "no claim ends:\n{}", brokers.printed());
        std::thread::sleep(BEAT);
    }
    assert!(began.elapsed() >= 2 * JOB_TIMEOUT, "two claims ended after {:?}", began.elapsed());
    assert_eq!(left.ask(client, "heartbeat"), 409, "another claim has it");
    assert_eq!(left.ask(client, "complete"), 409);
    assert_eq!(kept.ask(client, "complete"), 204);
    assert_eq!(kept.ask(client, "heartbeat"), 410, "there is no such job any more");
    assert_eq!(brokers.stats().unwrap()["completedTotal"], 1);
}

#[test]
fn a_job_that_is_given_back_goes_to_the_next_at_once_and_in_its_order() {
    let brokers = one("release", NEVER);
    let client = &mut client(&brokers);
    push(client, "first", 2);
    push(client, "second", 2);
    let first = Held::claim(client, "a").unwrap();
    let stranger =
        Held { body: json!({ "workerId": "b", "claim": "guessed" }), ..Held::claim(client, "a").unwrap() };
    assert_eq!(stranger.ask(client, "release"), 409, "only who has it gives it back");
    assert!(Held::claim(client, "b").is_none());
    push(client, "third", 2);
    assert_eq!(first.ask(client, "release"), 204);
    for what in ["release", "heartbeat", "complete"] {
        assert_eq!(first.ask(client, what), 409, "{what}: the claim was given back");
    }
    let again = Held::claim(client, "b").unwrap();
    assert_eq!((&*again.payload, again.attempts), ("first", 2), "it kept its place, before the third");
    // It was attempted as often as permitted.
    assert_eq!(again.ask(client, "release"), 204);
    assert_eq!(again.ask(client, "release"), 410);
    assert_eq!(Held::claim(client, "b").unwrap().payload, "third");
}

#[test]
fn the_writes_that_a_broker_counts_are_those_of_the_document() {
    let brokers = one("writes", NEVER);
    brokers.wait_for_leader();
    let client = &mut client(&brokers);
    let beat = || brokers.store.queue().unwrap()["primacy"]["beat"].as_u64().unwrap();
    let writes = || brokers.stats().unwrap()["writes"].as_u64().unwrap();
    // The first write is that of the election. A heartbeat may be written at any time.
    let (before, counted, after) = (beat(), writes(), beat());
    assert!((before + 1..=after + 1).contains(&counted), "{counted} of {before} to {after}");
    push(client, "one", 1);
    push(client, "two", 1);
    // Two consecutive pushes have no write in common.
    let (before, now, after) = (beat(), writes(), beat());
    assert!((before + 1..=after + 1).contains(&now), "{now} of {before} to {after}");
    assert!(now >= counted + 2, "{now} after {counted}");
}
