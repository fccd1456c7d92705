//! Throughput of a broker: acknowledged pushes per second, writes of the queue, and the latency of each push. It is measured
//! over HTTP with a release build of the broker, over a directory and over the S3 server of the tests.
//!
//! `cargo bench -p queue-broker --bench throughput -- [--trials N] [--pushes N] [--directory DIR]`
//!
//! Every trial has a broker and a queue of its own, and each case is tried once before any is repeated, so that other load on the
//! machine affects all of them. The only assertion is that each push was acknowledged.

#[path = "../tests/broker/bucket.rs"]
mod bucket;

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use clap::Parser;
use primacy_conformance::live::{Ground, Server, free_port};
use serde_json::{Value, json};
use tokio::sync::Mutex;
use tokio::task::JoinSet;

use crate::bucket::Bucket;

/// The number of clients that fill the queue before a trial with waiting jobs.
const FILLERS: usize = 64;

/// Measure how many pushes a broker answers.
#[derive(Debug, Parser)]
struct Args {
    /// Try each case this many times
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..))]
    trials: u64,

    /// Push this many jobs in each trial
    #[arg(long, value_name = "N", default_value_t = 1_000, value_parser = clap::value_parser!(u64).range(1..))]
    pushes: u64,

    /// Where the queues of file: are kept for the time of a trial; on a disk, or nothing is flushed
    #[arg(long, value_name = "DIR", default_value = env!("CARGO_TARGET_TMPDIR"))]
    directory: PathBuf,

    /// Given by cargo
    #[arg(long, hide = true)]
    bench: bool,
}

/// The number of clients of a trial, and the initial length of the queue.
#[derive(Debug)]
struct Case {
    clients: usize,
    /// True if each push waits for the answer to the one before: then every push has a write of its own, as without
    /// group commit.
    is_one_by_one: bool,
    /// The number of jobs in the queue before the trial.
    waiting: u64,
}

const CASES: [Case; 5] = [
    Case { clients: 1, is_one_by_one: false, waiting: 0 },
    Case { clients: 8, is_one_by_one: false, waiting: 0 },
    Case { clients: 64, is_one_by_one: false, waiting: 0 },
    Case { clients: 64, is_one_by_one: true, waiting: 0 },
    Case { clients: 64, is_one_by_one: false, waiting: 10_000 },
];

/// The store of the queues.
enum Store {
    Directory(PathBuf),
    S3(Bucket),
}

/// The result of one trial.
struct Trial {
    took: Duration,
    writes: u64,
    waits: Vec<Duration>,
}

fn main() -> ExitCode {
    let args = Args::parse();
    // The library leaves the choice of a crypto provider to the application.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    match runtime.map_err(|error| error.to_string()).and_then(|runtime| runtime.block_on(measure(&args))) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("throughput: {why}");
            ExitCode::FAILURE
        }
    }
}

async fn measure(args: &Args) -> Result<(), String> {
    let directory = args.directory.join(format!("queues-{}", std::process::id()));
    std::fs::create_dir_all(&directory).map_err(|error| format!("{}: {error}", directory.display()))?;
    println!(
        "{} trials of {} pushes each; directory on {}",
        args.trials,
        args.pushes,
        file_system(&args.directory)
    );
    println!(
        "\n| Store | Clients | Jobs before | Pushes/s (least to most) | Puts/s | Pushes in a put | p50 | p99 |"
    );
    println!("|---|---|---|---|---|---|---|---|");
    let measured = measure_over(args, "`file:`", &Store::Directory(directory.clone())).await;
    let removed = std::fs::remove_dir_all(&directory);
    measured?;
    removed.map_err(|error| format!("{}: {error}", directory.display()))?;
    match Bucket::start().await {
        Ok(bucket) => measure_over(args, "`s3://`", &Store::S3(bucket)).await,
        Err(why) => {
            println!("\ns3://: NOT RUN: {why}");
            Ok(())
        }
    }
}

/// Measures all cases over one store, and returns their rows.
async fn measure_over(args: &Args, name: &str, store: &Store) -> Result<(), String> {
    let mut trials: [Vec<Trial>; CASES.len()] = Default::default();
    for round in 0..args.trials {
        for (index, case) in CASES.iter().enumerate() {
            let queue = format!("queue-{index}-{round}");
            trials[index].push(attempt(args, case, store, &queue).await?);
        }
    }
    for (case, trials) in CASES.iter().zip(&trials) {
        println!("| {name} | {}", row(case, args.pushes, trials));
    }
    Ok(())
}

/// One trial.
async fn attempt(args: &Args, case: &Case, store: &Store, queue: &str) -> Result<Trial, String> {
    let ground = Ground::new("throughput");
    let address = format!("127.0.0.1:{}", free_port());
    let mut command = Command::new(env!("CARGO_BIN_EXE_queue-broker"));
    command.args(["--listen", &address, "--store"]);
    match store {
        Store::Directory(path) => command.arg(format!("file:{}", path.join(queue).display())),
        Store::S3(bucket) => command.arg(bucket.url(queue)).envs(bucket.variables()),
    };
    let mut broker = Server::start("broker", command, &ground);
    let http = reqwest::Client::builder().no_proxy().build().map_err(|error| error.to_string())?;
    let leads =
        async || matches!(get(&http, &address, "/healthz").await, Ok(told) if told["leading"] == true);
    broker.until(leads).await;
    push_all(&http, &address, FILLERS, false, case.waiting).await?;
    let before = writes(&http, &address).await?;
    let began = Instant::now();
    let waits = push_all(&http, &address, case.clients, case.is_one_by_one, args.pushes).await?;
    let took = began.elapsed();
    let writes = writes(&http, &address).await? - before;
    broker.stop().await;
    Ok(Trial { took, writes, waits })
}

/// Pushes jobs by several clients, each with a connection of its own; returns the duration of each push.
async fn push_all(
    http: &reqwest::Client,
    address: &str,
    clients: usize,
    is_one_by_one: bool,
    pushes: u64,
) -> Result<Vec<Duration>, String> {
    let (taken, turn) = (Arc::new(AtomicU64::new(0)), Arc::new(Mutex::new(())));
    let mut at_work = JoinSet::new();
    for _ in 0..clients {
        let (http, url) = (http.clone(), format!("http://{address}/v1/jobs"));
        let (taken, turn) = (Arc::clone(&taken), Arc::clone(&turn));
        at_work.spawn(async move {
            let mut waits = Vec::new();
            while taken.fetch_add(1, Ordering::Relaxed) < pushes {
                let began = Instant::now();
                let _turn = if is_one_by_one { Some(turn.lock().await) } else { None };
                push(&http, &url).await?;
                waits.push(began.elapsed());
            }
            Ok::<_, String>(waits)
        });
    }
    let mut waits = Vec::new();
    while let Some(done) = at_work.join_next().await {
        waits.extend(done.map_err(|error| error.to_string())??);
    }
    Ok(waits)
}

/// Pushes one small job.
async fn push(http: &reqwest::Client, url: &str) -> Result<(), String> {
    let body =
        json!({ "type": "mail", "payload": { "to": "ann@example.org", "subject": "The report of today" } });
    let request = http.post(url).header("Content-Type", "application/json").body(body.to_string());
    let answer = request.send().await.map_err(|error| error.to_string())?;
    let status = answer.status();
    let text = answer.text().await.map_err(|error| error.to_string())?;
    if status.as_u16() == 201 { Ok(()) } else { Err(format!("a push was answered by {status}: {text}")) }
}

async fn get(http: &reqwest::Client, address: &str, path: &str) -> Result<Value, String> {
    let answer =
        http.get(format!("http://{address}{path}")).send().await.map_err(|error| error.to_string())?;
    let text = answer.text().await.map_err(|error| error.to_string())?;
    serde_json::from_str(&text).map_err(|error| error.to_string())
}

/// Returns the number of writes of the queue by the broker.
async fn writes(http: &reqwest::Client, address: &str) -> Result<u64, String> {
    let stats = get(http, address, "/v1/stats").await?;
    stats["writes"].as_u64().ok_or_else(|| format!("it leads no more: {stats}"))
}

/// Formats a case as a row: the median rate of the trials, and percentiles of the latencies of all of them.
#[allow(clippy::cast_precision_loss, reason = "figures for people")]
fn row(case: &Case, pushes: u64, trials: &[Trial]) -> String {
    let rate = |count: u64, trial: &Trial| count as f64 / trial.took.as_secs_f64();
    let mut pushed: Vec<f64> = trials.iter().map(|trial| rate(pushes, trial)).collect();
    let mut put: Vec<f64> = trials.iter().map(|trial| rate(trial.writes, trial)).collect();
    pushed.sort_by(f64::total_cmp);
    put.sort_by(f64::total_cmp);
    let mut waits: Vec<Duration> = trials.iter().flat_map(|trial| trial.waits.iter().copied()).collect();
    waits.sort();
    let in_a_put =
        (pushes * trials.len() as u64) as f64 / trials.iter().map(|trial| trial.writes).sum::<u64>() as f64;
    let clients = if case.is_one_by_one { ", one by one" } else { "" };
    let millis =
        |percent: usize| waits[(waits.len() * percent / 100).min(waits.len() - 1)].as_secs_f64() * 1e3;
    format!(
        "{}{clients} | {} | **{:.0}** ({:.0} to {:.0}) | {:.0} | {in_a_put:.1} | {:.2} | {:.2} |",
        case.clients,
        case.waiting,
        pushed[pushed.len() / 2],
        pushed[0],
        pushed[pushed.len() - 1],
        put[put.len() / 2],
        millis(50),
        millis(99)
    )
}

/// The type of the file system of a path, as the kernel names it.
fn file_system(path: &Path) -> String {
    let path = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    let mounts = mounts.lines().filter_map(|line| {
        let mut words = line.split(' ').skip(1);
        Some((words.next()?, words.next()?))
    });
    // The last one is mounted over those before it.
    let found = mounts.filter(|(at, _)| path.starts_with(at)).max_by_key(|(at, _)| at.len());
    found.map_or("an unknown file system", |(_, kind)| kind).to_owned()
}
