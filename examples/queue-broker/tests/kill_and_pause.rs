//! Two brokers on one object, killed and paused in turn while clients push and work: no job is lost, and none is completed
//! twice by two claims.

#![allow(clippy::unwrap_used, reason = "in a test, a panic is the message")]

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use primacy_conformance::live::moto::Moto;
use primacy_conformance::live::{Ground, Server, free_port};
use rustix::process::Signal;
use serde_json::{Value, json};

/// After how long without a write a broker is taken to be gone; and how often the other one looks.
const TIMEOUT: Duration = Duration::from_millis(1_500);
const RETRY: Duration = Duration::from_millis(200);
/// After how long a job is given to another worker.
const JOB_TIMEOUT: Duration = Duration::from_secs(2);
/// How long anything may take that must happen, on a busy machine.
const PATIENCE: Duration = Duration::from_secs(120);
const JOBS: usize = 300;
const WORKERS: usize = 4;

/// Both brokers.
struct Brokers {
    ground: Ground,
    store: String,
    variables: Vec<(String, String)>,
    ports: [u16; 2],
    processes: Mutex<[Option<Server>; 2]>,
}

impl Brokers {
    fn start(store: String, variables: Vec<(String, String)>, ground: Ground) -> Arc<Self> {
        let brokers =
            Self { ground, store, variables, ports: [free_port(), free_port()], processes: Mutex::default() };
        for index in 0..2 {
            brokers.begin(index);
        }
        Arc::new(brokers)
    }

    fn begin(&self, index: usize) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_queue-broker"));
        command.args(["--store", &self.store, "--listen", &format!("127.0.0.1:{}", self.ports[index])]);
        for (option, time) in [("--timeout", TIMEOUT), ("--retry", RETRY), ("--job-timeout", JOB_TIMEOUT)] {
            command.args([option, &time.as_millis().to_string()]);
        }
        command.envs(self.variables.iter().cloned());
        let server = Server::start(&format!("broker-{index}"), command, &self.ground);
        self.processes.lock().unwrap()[index] = Some(server);
    }

    /// Which of them leads, by its own account.
    fn leader(&self) -> Option<usize> {
        (0..2).find(|&index| {
            ask(self.ports[index], "GET", "/healthz", None)
                .is_some_and(|(_, answer)| answer["leading"] == true)
        })
    }

    fn wait_for_leader(&self) -> usize {
        let began = Instant::now();
        loop {
            if let Some(leader) = self.leader() {
                return leader;
            }
            assert!(began.elapsed() < PATIENCE, "nobody leads:\n{}", self.printed());
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    fn printed(&self) -> String {
        let processes = self.processes.lock().unwrap();
        processes.iter().flatten().map(Server::printed).collect::<Vec<_>>().join("\n--\n")
    }

    fn signal(&self, index: usize, signal: Signal) {
        self.processes.lock().unwrap()[index].as_ref().unwrap().signal(signal);
    }

    /// Asks whoever leads, and looks for it again when it has changed; `None` if the answer was lost.
    fn ask(&self, path: &str, body: &Value) -> Option<(u16, Value)> {
        let began = Instant::now();
        loop {
            for port in self.ports {
                match ask(port, "POST", path, Some(body)) {
                    // Not here; nothing was done.
                    Some((503, _)) => {}
                    Some((504, _)) => return None,
                    Some(answer) => return Some(answer),
                    // It may have been done before the connection broke.
                    None if is_connected(port) => return None,
                    None => {}
                }
            }
            assert!(began.elapsed() < PATIENCE, "nobody answers {path}:\n{}", self.printed());
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

fn is_connected(port: u16) -> bool {
    TcpStream::connect_timeout(&([127, 0, 0, 1], port).into(), TIMEOUT).is_ok()
}

/// One request; `None` if there was no answer.
fn ask(port: u16, method: &str, path: &str, body: Option<&Value>) -> Option<(u16, Value)> {
    let mut stream = TcpStream::connect_timeout(&([127, 0, 0, 1], port).into(), TIMEOUT).ok()?;
    stream.set_read_timeout(Some(2 * TIMEOUT)).ok()?;
    let body = body.map_or(String::new(), Value::to_string);
    let head = format!(
        "{method} {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all((head + &body).as_bytes()).ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    let status = answer.split(' ').nth(1)?.parse().ok()?;
    let (_, body) = answer.split_once("\r\n\r\n")?;
    Some((status, serde_json::from_str(body).unwrap_or(Value::Null)))
}

/// Pushes all jobs; each until it is known to be in the queue.
fn push_all(brokers: &Brokers, pace: Duration) {
    for number in 0..JOBS {
        let body = json!({ "payload": number, "key": format!("job {number}"), "maxAttempts": 1_000 });
        let pushed = std::iter::repeat_with(|| brokers.ask("/v1/jobs", &body)).flatten().next();
        assert_eq!(pushed.map(|(status, _)| status), Some(201));
        std::thread::sleep(pace);
    }
}

/// Works until all is done, and notes under which claim each job was completed, as far as the broker said so.
fn work(brokers: &Brokers, name: &str, completed: &Mutex<BTreeMap<u64, Vec<String>>>, done: &AtomicBool) {
    while !done.load(Ordering::SeqCst) {
        let Some((200, job)) = brokers.ask("/v1/jobs/claim", &json!({ "workerId": name })) else { continue };
        let (Some(id), Some(claim)) = (job["jobId"].as_str(), job["claim"].as_str()) else {
            std::thread::sleep(Duration::from_millis(20));
            continue;
        };
        let body = json!({ "workerId": name, "claim": claim });
        // An answer that was lost: it is asked again, under the same claim.
        let answer = std::iter::repeat_with(|| brokers.ask(&format!("/v1/jobs/{id}/complete"), &body))
            .flatten()
            .next();
        if answer.is_some_and(|(status, _)| status == 204) {
            let number = job["payload"].as_u64().unwrap();
            completed.lock().unwrap().entry(number).or_default().push(claim.to_owned());
        }
    }
}

/// Kills and pauses the leader in turn, and measures until the other one leads.
fn strike(brokers: &Brokers, rounds: usize) -> Vec<(&'static str, Duration)> {
    let mut took = Vec::new();
    for round in 0..rounds {
        let leader = brokers.wait_for_leader();
        // Time in which something is done.
        std::thread::sleep(TIMEOUT / 2);
        let mut began = Instant::now();
        let struck_at = began;
        let what = if round % 2 == 0 { "kill" } else { "pause" };
        match what {
            "kill" => brokers.processes.lock().unwrap()[leader].as_mut().unwrap().kill(),
            _ => brokers.signal(leader, Signal::STOP),
        }
        let other = 1 - leader;
        while !ask(brokers.ports[other], "GET", "/healthz", None)
            .is_some_and(|(_, answer)| answer["leading"] == true)
        {
            assert!(struck_at.elapsed() < PATIENCE, "nobody takes over:\n{}", brokers.printed());
            if what == "pause" && began.elapsed() > 4 * TIMEOUT {
                // It was stopped in the middle of a write to a directory, with the lock that the kernel takes from nobody who
                // lives (docs/stores/file.md). It is stopped anew, where it has none.
                brokers.signal(leader, Signal::CONT);
                std::thread::sleep(RETRY);
                brokers.signal(leader, Signal::STOP);
                began = Instant::now();
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        took.push((what, began.elapsed()));
        match what {
            "kill" => brokers.begin(leader),
            _ => brokers.signal(leader, Signal::CONT),
        }
    }
    took
}

fn run(brokers: &Arc<Brokers>, rounds: usize) {
    let leader = brokers.wait_for_leader();
    let completed = Mutex::new(BTreeMap::new());
    let done = AtomicBool::new(false);
    let pushed = AtomicUsize::new(0);
    let took = std::thread::scope(|scope| {
        let pushing = scope.spawn(|| {
            push_all(brokers, Duration::from_millis(10));
            pushed.store(JOBS, Ordering::SeqCst);
        });
        for worker in 0..WORKERS {
            let (completed, done) = (&completed, &done);
            scope.spawn(move || work(brokers, &format!("worker {worker}"), completed, done));
        }
        let took = strike(brokers, rounds);
        pushing.join().unwrap();
        let began = Instant::now();
        loop {
            let stats = ask(brokers.ports[brokers.wait_for_leader()], "GET", "/v1/stats", None);
            if stats.is_some_and(|(_, stats)| stats["unclaimed"] == 0 && stats["inProgress"] == 0) {
                break;
            }
            assert!(began.elapsed() < PATIENCE, "jobs are left:\n{}", brokers.printed());
            std::thread::sleep(Duration::from_millis(50));
        }
        done.store(true, Ordering::SeqCst);
        took
    });
    println!("{}: the first leader was {leader}; the other led after {took:?}", brokers.store);
    let leader = brokers.wait_for_leader();
    let (_, stats) = ask(brokers.ports[leader], "GET", "/v1/stats", None).unwrap();
    assert_eq!(stats["completedTotal"], JOBS, "each job was completed, and once: {stats}");
    let completed = completed.into_inner().unwrap();
    for (number, claims) in &completed {
        assert_eq!(claims.len(), 1, "job {number} was completed by two claims: {claims:?}");
    }
    // Of those whose answer was lost, nobody here knows; they are few.
    assert!(completed.len() >= JOBS / 2, "{} were told to be completed", completed.len());
    // Silence, and how often the other one looks; the rest is for a busy machine.
    let longest = took.iter().map(|(_, took)| *took).max().unwrap();
    println!(
        "{}: the longest outage was {longest:?}, of {:?} of silence and {RETRY:?} between two looks",
        brokers.store, TIMEOUT
    );
}

#[test]
fn over_a_directory_no_job_is_lost_and_none_is_completed_twice() {
    let ground = Ground::new("broker");
    let store = format!("file:{}", ground.at("queue").display());
    run(&Brokers::start(store, Vec::new(), ground), 4);
}

#[test]
fn a_leader_that_is_asked_to_end_hands_over_at_once() {
    let ground = Ground::new("broker-ends");
    let store = format!("file:{}", ground.at("queue").display());
    let brokers = Brokers::start(store, Vec::new(), ground);
    let leader = brokers.wait_for_leader();
    brokers.ask("/v1/jobs", &json!({ "payload": 1 })).unwrap();
    brokers.signal(leader, Signal::TERM);
    let began = Instant::now();
    while !ask(brokers.ports[1 - leader], "GET", "/healthz", None)
        .is_some_and(|(_, answer)| answer["leading"] == true)
    {
        assert!(began.elapsed() < PATIENCE, "nobody takes over:\n{}", brokers.printed());
        std::thread::sleep(Duration::from_millis(5));
    }
    println!("handed over after {:?}", began.elapsed());
    let (_, stats) = ask(brokers.ports[1 - leader], "GET", "/v1/stats", None).unwrap();
    assert_eq!(stats["unclaimed"], 1);
}

#[test]
fn over_s3_no_job_is_lost_and_none_is_completed_twice() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let moto = match runtime.block_on(Moto::start()) {
        Ok(moto) => moto,
        Err(why) => {
            eprintln!("s3: NOT RUN: {why}");
            assert!(std::env::var_os(primacy_conformance::REQUIRE_LIVE_VARIABLE).is_none(), "{why}");
            return;
        }
    };
    let variables = [
        ("AWS_ENDPOINT_URL", format!("http://127.0.0.1:{}", moto.port())),
        ("AWS_ACCESS_KEY_ID", "test".to_owned()),
        ("AWS_SECRET_ACCESS_KEY", "test".to_owned()),
        ("AWS_REGION", "us-east-1".to_owned()),
    ];
    let variables = variables.map(|(name, value)| (name.to_owned(), value)).to_vec();
    let store = format!("s3://{}/queue", primacy_conformance::live::moto::BUCKET);
    run(&Brokers::start(store, variables, Ground::new("broker-s3")), 4);
}
