//! A fake of a Consul agent: `stand-ins/consul.py`. No package registry has a real one.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::{Value, json};

use super::{Ground, START_PATIENCE, START_POLL, Server, free_port, program};

/// The longest time for an answer to a test's own request.
const ANSWER_MAX: Duration = Duration::from_secs(60);

/// The fake, and the tests' own requests to it.
#[derive(Debug)]
pub struct Consul {
    server: Server,
    port: u16,
    options: Vec<String>,
    ground: Ground,
}

impl Consul {
    /// Starts one without tokens or TLS.
    ///
    /// # Errors
    /// The program that is missing.
    pub async fn start() -> Result<Self, String> {
        Self::start_with(Ground::new("consul"), &[]).await
    }

    /// Starts one with these further options, whose files are in `ground`.
    ///
    /// # Errors
    /// The program that is missing.
    pub async fn start_with(ground: Ground, options: &[&str]) -> Result<Self, String> {
        let (python, port) = (program("python3")?, free_port());
        let options: Vec<String> = options.iter().map(|&option| option.to_owned()).collect();
        let server = Server::start("consul", command(&python, port, &options, &ground), &ground);
        let mut started = Self { server, port, options, ground };
        started.ready().await;
        Ok(started)
    }

    async fn ready(&mut self) {
        let began = Instant::now();
        // Another process may have listened there for a moment.
        let said = format!("listening on {}", self.port);
        let log = self.ground.at("consul.log");
        let has_said = || std::fs::read_to_string(&log).is_ok_and(|log| log.contains(&said));
        while !has_said() || TcpStream::connect(("127.0.0.1", self.port)).is_err() {
            if let Err(ended) = self.server.lives() {
                panic!("{ended}:\n{}", self.server.printed());
            }
            assert!(began.elapsed() < START_PATIENCE, "it does not answer:\n{}", self.server.printed());
            tokio::time::sleep(START_POLL).await;
        }
    }

    /// Its port.
    #[must_use]
    pub const fn port(&self) -> u16 {
        self.port
    }

    /// The URL of the store in it, below this prefix, with these settings.
    #[must_use]
    pub fn url(&self, prefix_and_settings: &str) -> String {
        format!("consul://127.0.0.1:{}/{prefix_and_settings}", self.port)
    }

    /// Its directory.
    #[must_use]
    pub const fn ground(&self) -> &Ground {
        &self.ground
    }

    /// Sends it a request as any client could, over a new connection. Returns the status and the answer.
    ///
    /// # Panics
    /// If there is no answer.
    #[must_use]
    pub fn ask(&self, method: &str, path: &str, body: &str) -> (u16, Value) {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).expect("it listens");
        stream.set_read_timeout(Some(ANSWER_MAX)).expect("a socket like any other");
        let length = body.len();
        let head = format!("{method} {path} HTTP/1.1\r\nHost: test\r\nConnection: close\r\n");
        let request = format!("{head}Content-Length: {length}\r\n\r\n{body}");
        stream.write_all(request.as_bytes()).expect("it reads");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("an answer");
        let (head, body) = answer.split_once("\r\n\r\n").expect("an answer has a head");
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status");
        (status, serde_json::from_str(body).unwrap_or(Value::Null))
    }

    /// The entry of a key, if there is one.
    ///
    /// # Panics
    /// If there is no answer.
    #[must_use]
    pub fn key(&self, key: &str) -> Option<Value> {
        let (status, entries) = self.ask("GET", &format!("/v1/kv/{key}"), "");
        (status == 200).then(|| entries[0].clone())
    }

    /// The live sessions.
    ///
    /// # Panics
    /// If there is no answer.
    #[must_use]
    pub fn sessions(&self) -> Vec<String> {
        let (_, sessions) = self.ask("GET", "/v1/session/list", "");
        let sessions = sessions.as_array().expect("a list").iter();
        sessions.filter_map(|session| Some(session["ID"].as_str()?.to_owned())).collect()
    }

    /// Makes it misbehave, or act once; see the program.
    ///
    /// # Panics
    /// If it does not accept the order.
    pub fn order(&self, order: &str, details: &Value) {
        let (status, answer) = self.ask("POST", &format!("/stand-in/{order}"), &details.to_string());
        assert_eq!(status, 200, "{answer}");
    }

    /// Applies `fault` to the next `count` requests with this beginning, such as `PUT /v1/txn`.
    ///
    /// # Panics
    /// If it does not accept the order.
    pub fn fault(&self, request: &str, count: u32, mut fault: Value) {
        fault["match"] = json!(request);
        fault["count"] = json!(count);
        self.order("fault", &fault);
    }

    /// Kills it.
    pub fn kill(&mut self) {
        self.server.kill();
    }

    /// Stops it at any point of its work, until [`resume`](Self::resume).
    ///
    /// # Panics
    /// If it is gone.
    pub fn pause(&self) {
        self.server.signal(Signal::STOP);
    }

    /// Lets it go on.
    ///
    /// # Panics
    /// If it is gone.
    pub fn resume(&self) {
        self.server.signal(Signal::CONT);
    }

    /// Restarts it after it was killed, with its data.
    ///
    /// # Panics
    /// If it does not start.
    pub async fn restart(&mut self) {
        self.server.kill();
        let python = program("python3").expect("it was there before");
        let command = command(&python, self.port, &self.options, &self.ground);
        self.server = Server::start("consul", command, &self.ground);
        self.ready().await;
    }

    /// Restarts it without its data.
    ///
    /// # Panics
    /// If it does not start.
    pub async fn restart_empty(&mut self) {
        self.server.kill();
        std::fs::remove_file(self.ground.at("state.json")).expect("it has written something");
        self.restart().await;
    }
}

/// The path of the foreign client's program.
#[must_use]
pub fn stranger() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("strangers/consul_lock.py")
}

fn command(python: &Path, port: u16, options: &[String], ground: &Ground) -> Command {
    let mut command = Command::new(python);
    command.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("stand-ins/consul.py"));
    command.args(["--port", &port.to_string(), "--state"]).arg(ground.at("state.json")).args(options);
    command
}
