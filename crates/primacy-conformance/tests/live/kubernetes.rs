//! Kubernetes, with a fake of its API server: the laws, foreign clients, and failures.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use primacy_conformance::live::kubernetes::{ApiServer, lease_path};
use primacy_conformance::{Capabilities, Harness, LAWS, Outcome, rival};
use primacy_kube::kube;
use primacy_stores::{Pending, Register, kubernetes, open};
use serde_json::Value;
use tokio::sync::mpsc;
use tokio::time::timeout;

use crate::{Column, to_be_tried};

mod company;
mod controller;
mod failing;
mod guard;

const NAME: &str = "kubernetes (stand-in)";

/// Far longer than anything takes that works.
const PATIENCE: Duration = Duration::from_secs(60);

/// The annotation that the record is in.
const RECORD: &str = "primacy-rs.github.io/record";

struct KubernetesHarness {
    server: ApiServer,
}

/// The Lease of an election, without the help of the store.
fn lease_of(election: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    if election.bytes().all(is_plain) {
        return election.to_owned();
    }
    let letters = election.bytes().map(|byte| match byte {
        byte if is_plain(byte) => char::from(byte).to_string(),
        byte => format!("-{byte:02x}"),
    });
    format!("primacy-escaped.x{}", letters.collect::<String>())
}

/// Annotations are texts: a byte is the character of its number.
fn text_of(bytes: &[u8]) -> String {
    bytes.iter().map(|&byte| char::from(byte)).collect()
}

impl Harness for KubernetesHarness {
    fn name(&self) -> String {
        NAME.to_owned()
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities::ALL
    }

    fn change_bound(&self) -> Duration {
        kubernetes::CHANGE_BOUND
    }

    fn open<'a>(&'a self, election: &'a str) -> Pending<'a, Arc<dyn Register>> {
        Box::pin(async move { open(&self.server.url(), election).await.expect("the server is there") })
    }

    fn plant<'a>(&'a self, election: &'a str, bytes: &'a [u8]) -> Pending<'a, ()> {
        Box::pin(async move {
            let text = text_of(bytes);
            let put = |lease: &mut Value| lease["metadata"]["annotations"][RECORD] = text.clone().into();
            self.server.change(&lease_of(election), put).await;
        })
    }

    fn erase<'a>(&'a self, election: &'a str) -> Pending<'a, ()> {
        Box::pin(async move {
            let (code, answer) =
                self.server.ask("DELETE", &lease_path(&lease_of(election)), &Value::Null).await;
            assert_eq!(code, 200, "{answer}");
        })
    }

    fn stored<'a>(&'a self, election: &'a str) -> Pending<'a, Option<Vec<u8>>> {
        Box::pin(async move {
            let lease = self.server.lease(&lease_of(election)).await?;
            let text = lease["metadata"]["annotations"][RECORD].as_str()?.to_owned();
            Some(text.chars().map(|letter| u8::try_from(u32::from(letter)).expect("a byte's")).collect())
        })
    }

    fn rival(&self, election: &str, number: u64, last: u64) -> Command {
        rival::command(&self.server.url(), election, number, last)
    }
}

/// The laws.
pub(crate) async fn check() -> Vec<Column> {
    let outcomes = match server().await {
        Some(server) => primacy_conformance::check(&KubernetesHarness { server }).await,
        None => LAWS.iter().map(|law| (law.name, Outcome::NotRun)).collect(),
    };
    vec![(NAME.to_owned(), outcomes)]
}

/// A server, if there can be one; else `None`, with a line that says so.
async fn server() -> Option<ApiServer> {
    to_be_tried("kubernetes", ApiServer::start()).await
}

/// A client of the application's own, which may send a request again by itself.
fn kube_client(server: &ApiServer, repeats: bool) -> kube::Client {
    let mut config = kube::Config::new(server.address().parse().expect("an address"));
    config.default_retry = repeats;
    kube::Client::try_from(config).expect("a client")
}

/// A process, and its output. It is killed when this is dropped.
struct Speaker {
    process: Child,
    lines: mpsc::UnboundedReceiver<String>,
}

impl Speaker {
    fn start(mut command: Command) -> Self {
        let mut process = command.stdout(Stdio::piped()).spawn().expect("it can be started");
        let output = BufReader::new(process.stdout.take().expect("it was piped"));
        let (sender, lines) = mpsc::unbounded_channel();
        std::thread::spawn(move || {
            output.lines().map_while(Result::ok).all(|line| sender.send(line).is_ok())
        });
        Self { process, lines }
    }

    /// Waits for a line with `what` in it; none before may be `never`.
    async fn says(&mut self, what: &str, never: Option<&str>) -> String {
        loop {
            let line = timeout(PATIENCE, self.lines.recv()).await.expect("in time").expect("it is there");
            assert_ne!(Some(line.as_str()), never);
            if line.contains(what) {
                return line;
            }
        }
    }
}

impl Drop for Speaker {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
