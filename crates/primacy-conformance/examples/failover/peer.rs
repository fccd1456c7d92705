//! The stores' own tools, with which their users would elect, and the times that they take.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use primacy_conformance::live::etcd::Etcd;
use primacy_conformance::live::kubernetes::{ApiServer, stand_in};
use primacy_conformance::live::program;
use primacy_conformance::live::zookeeper::ZooKeeper;
use rustix::process::{Pid, Signal, kill_process};

use crate::server::Server;
use crate::table::Row;

/// The number of rounds in which a tool's session runs out, which takes up to a minute each time.
const SILENT_ROUNDS: u32 = 2;

/// The most rounds in which they end in order: each round starts two programs.
const ORDERLY_ROUNDS: u32 = 10;

/// The time that a tool waiting behind another has to enter the queue.
const ENTERS: Duration = Duration::from_secs(1);

/// The longest time until one leads: `etcdctl elect` has sessions of a minute.
const PATIENCE: Duration = Duration::from_secs(150);

/// kazoo's default is ten seconds.
const KAZOO_TIMEOUT: &str = "10";

/// As long as Primacy's, with the renewal and the retry of client-go in proportion.
const KUBERNETES_TIMES: [&str; 3] = ["10", "7", "2"];

/// The way in which a tool's process ends.
#[derive(Clone, Copy)]
enum End {
    Killed,
    /// By the signal at which it gives up in order.
    Orderly(Signal),
}

/// A process of a tool.
struct Stranger {
    child: Child,
    /// Its lines of output with their times.
    lines: mpsc::Receiver<(Instant, String)>,
}

/// Measures the other tools for a store; returns no rows where there is none.
///
/// # Errors
/// The tool that is missing, or does not lead.
pub(crate) async fn measure(store: &'static str, server: &Server, rounds: u32) -> Result<Vec<Row>, String> {
    let orderly = rounds.min(ORDERLY_ROUNDS);
    match server {
        Server::Etcd(etcd) => {
            let start = |name: &str| Stranger::start(elect(etcd, name));
            let says = |name: &str| name.to_owned();
            let resigns = handovers(orderly, End::Orderly(Signal::INT), start, says).await?;
            let dies = handovers(SILENT_ROUNDS, End::Killed, start, says).await?;
            Ok(rows(store, "`etcdctl elect`", "SIGINT", "its session of 60 s", &resigns, &dies))
        }
        Server::ZooKeeper(zookeeper) => {
            let python = program("python3")?;
            let start = |name: &str| Stranger::start(kazoo(zookeeper, &python, name));
            let says = |_: &str| "leads ".to_owned();
            let resigns = handovers(orderly, End::Orderly(Signal::TERM), start, says).await?;
            let dies = handovers(SILENT_ROUNDS, End::Killed, start, says).await?;
            Ok(rows(
                store,
                "kazoo's Election",
                "its function returns",
                "its session of 10 s",
                &resigns,
                &dies,
            ))
        }
        Server::Kubernetes(api) => {
            let python = program("python3")?;
            let start = |name: &str| Stranger::start(leader_election(api, &python, name));
            // It has no orderly end.
            let dies = handovers(SILENT_ROUNDS, End::Killed, start, |_| "leads".to_owned()).await?;
            Ok(rows(store, "Python's `leaderelection`", "", "a lease of 10 s", &[], &dies))
        }
        Server::EtcdLease(_) | Server::Sqlite(_) | Server::Consul(_) => Ok(Vec::new()),
        Server::Postgres(_) | Server::PostgresAdvisory(_) | Server::Moto(_) => Ok(Vec::new()),
        Server::Azurite(_) | Server::Nats(_) | Server::Redis(_) => Ok(Vec::new()),
    }
}

fn rows(
    store: &'static str,
    tool: &str,
    orderly: &str,
    silent: &str,
    resigns: &[Duration],
    dies: &[Duration],
) -> Vec<Row> {
    let resigned = Row::of_peer(store, format!("*{tool}: the holder ends in order ({orderly})*"), resigns);
    let died = Row::of_peer(store, format!("*{tool}: `kill -9` of the holder ({silent})*"), dies);
    resigned.into_iter().chain(died).collect()
}

/// Ends one tool while another waits, so many times; returns the times until the other one printed that it leads.
async fn handovers(
    rounds: u32,
    end: End,
    start: impl Fn(&str) -> Result<Stranger, String>,
    says: impl Fn(&str) -> String,
) -> Result<Vec<Duration>, String> {
    let mut took = Vec::new();
    let mut names = (0..).map(|round| format!("stranger-{round}"));
    let mut next = || names.next().expect("numbers do not end");
    let name = next();
    let mut holder = start(&name)?;
    holder.says(&says(&name))?;
    for _ in 0..rounds {
        let name = next();
        let mut rival = start(&name)?;
        tokio::time::sleep(ENTERS).await;
        let began = Instant::now();
        match end {
            End::Killed => holder.signal(Signal::KILL)?,
            End::Orderly(signal) => holder.signal(signal)?,
        }
        let leads_from = rival.says(&says(&name))?;
        took.push(
            leads_from.checked_duration_since(began).ok_or("the holder led no more when it was struck")?,
        );
        holder = rival;
    }
    Ok(took)
}

impl Stranger {
    fn start(mut command: Command) -> Result<Self, String> {
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().map_err(|error| format!("{command:?}: {error}"))?;
        let stdout = child.stdout.take().ok_or("it has an output")?;
        let (tell, lines) = mpsc::channel();
        std::thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                if tell.send((Instant::now(), line)).is_err() {
                    return;
                }
            }
        });
        Ok(Self { child, lines })
    }

    /// Waits for a line with this beginning; returns when it was printed.
    fn says(&mut self, beginning: &str) -> Result<Instant, String> {
        let until = Instant::now() + PATIENCE;
        while let Ok((at, line)) = self.lines.recv_timeout(until.saturating_duration_since(Instant::now())) {
            if line.starts_with(beginning) {
                return Ok(at);
            }
        }
        Err(format!("it has not said {beginning:?} within {PATIENCE:?}"))
    }

    fn signal(&self, signal: Signal) -> Result<(), String> {
        kill_process(Pid::from_child(&self.child), signal)
            .map_err(|error| format!("it cannot be signalled: {error}"))
    }
}

impl Drop for Stranger {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn elect(etcd: &Etcd, name: &str) -> Command {
    etcd.etcdctl(&["elect", "strangers", name])
}

fn kazoo(zookeeper: &ZooKeeper, python: &Path, name: &str) -> Command {
    let script = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/live/zookeeper/election.py");
    let mut command = Command::new(python);
    command.arg(script).args([&zookeeper.addresses(), "/strangers", name, KAZOO_TIMEOUT, "1", "1000"]);
    command
}

fn leader_election(api: &ApiServer, python: &Path, name: &str) -> Command {
    let mut command = Command::new(python);
    command
        .arg(stand_in("kube_stranger.py"))
        .args([&api.address(), "strangers", name])
        .args(KUBERNETES_TIMES);
    command
}
