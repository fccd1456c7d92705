//! NATS servers with JetStream: a cluster of three, or a single one.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use async_nats::jetstream::context::GetStreamErrorKind;
use async_nats::jetstream::{self, Context, ErrorCode};
use async_nats::{Client, ConnectOptions};

use super::{Ground, Server, free_port, program};

/// The user of the servers.
pub const USER: &str = "elections";

/// Its password.
pub const PASSWORD: &str = "pass-of-a-test";

/// The bucket of the elections.
pub const BUCKET: &str = "primacy";

/// The maximum time until the servers have a replicated bucket, or have elected a new leader of it.
const PATIENCE: Duration = Duration::from_secs(120);

/// The interval between two checks of that.
const POLL: Duration = Duration::from_millis(50);

/// Servers on free ports, with separate directories.
#[derive(Debug)]
pub struct Nats {
    ground: Ground,
    program: PathBuf,
    ports: Vec<u16>,
    servers: Vec<Server>,
}

impl Nats {
    /// Starts one or three servers, and waits until they answer.
    ///
    /// # Errors
    /// The program that is missing.
    ///
    /// # Panics
    /// If they do not start.
    pub async fn start(count: usize) -> Result<Self, String> {
        Self::start_with(count, "").await
    }

    /// Like [`start`](Self::start), with more users: lines of the list `users` of the servers' configuration.
    ///
    /// # Errors
    /// The program that is missing.
    ///
    /// # Panics
    /// If they do not start.
    pub async fn start_with(count: usize, users: &str) -> Result<Self, String> {
        let program = program("nats-server")?;
        let ground = Ground::new("nats");
        let ports: Vec<u16> = (0..count).map(|_| free_port()).collect();
        let routes: Vec<u16> = (0..count).map(|_| free_port()).collect();
        for (index, port) in ports.iter().enumerate() {
            let text = configuration(&ground, index, *port, &routes, users);
            std::fs::write(ground.at(&format!("{index}.conf")), text).expect("the ground can be written");
        }
        let mut nats = Self { ground, program, ports, servers: Vec::new() };
        nats.servers = (0..count).map(|index| nats.run(index)).collect();
        nats.until_it_answers().await;
        Ok(nats)
    }

    fn run(&self, index: usize) -> Server {
        let mut command = Command::new(&self.program);
        command.arg("--config").arg(self.ground.at(&format!("{index}.conf")));
        Server::start(&format!("nats-{index}"), command, &self.ground)
    }

    /// Waits until the servers have elected a leader.
    async fn until_it_answers(&mut self) {
        let url = self.url();
        for server in &mut self.servers {
            server.until(async || has_found_the_others(&url).await).await;
        }
    }

    /// The addresses of all servers.
    #[must_use]
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.ports.iter().map(|port| ([127, 0, 0, 1], *port).into()).collect()
    }

    /// The URL of the elections on them.
    #[must_use]
    pub fn url(&self) -> String {
        Self::url_at(&self.addresses())
    }

    /// The same URL through proxies at these addresses.
    #[must_use]
    pub fn url_at(addresses: &[SocketAddr]) -> String {
        let hosts: Vec<String> = addresses.iter().map(ToString::to_string).collect();
        format!("nats://{USER}:{PASSWORD}@{}/{BUCKET}", hosts.join(","))
    }

    /// A plain client of JetStream.
    ///
    /// # Panics
    /// If none of the servers answers.
    pub async fn context(&self) -> Context {
        jetstream::new(connect(&self.url()).await.expect("the servers are there"))
    }

    /// The servers' processes.
    #[must_use]
    pub fn servers(&self) -> &[Server] {
        &self.servers
    }

    /// The server that leads the bucket's stream.
    ///
    /// # Panics
    /// If there is none in time.
    pub async fn leader(&self) -> usize {
        let began = Instant::now();
        loop {
            assert!(began.elapsed() < PATIENCE, "the stream has no leader");
            if let Ok(client) = connect(&self.url()).await
                && let Ok(stream) = jetstream::new(client).get_stream(format!("KV_{BUCKET}")).await
                && let Some(leader) =
                    stream.cached_info().cluster.as_ref().and_then(|cluster| cluster.leader.clone())
                && let Some(index) = leader.strip_prefix("server-").and_then(|index| index.parse().ok())
            {
                return index;
            }
            tokio::time::sleep(POLL).await;
        }
    }

    /// Kills one by SIGKILL.
    pub fn kill(&mut self, index: usize) {
        self.servers[index].kill();
    }

    /// Restarts a server with its data.
    pub fn restart(&mut self, index: usize) {
        self.servers[index].kill();
        self.servers[index] = self.run(index);
    }
}

/// True if a server has joined the cluster: only then can it answer that a stream does not exist.
async fn has_found_the_others(url: &str) -> bool {
    let Ok(client) = connect(url).await else { return false };
    let found = jetstream::new(client).get_stream("none").await;
    found.is_err_and(|error| {
        matches!(error.kind(), GetStreamErrorKind::JetStream(code)
        if code.error_code() == ErrorCode::STREAM_NOT_FOUND)
    })
}

async fn connect(url: &str) -> Result<Client, async_nats::ConnectError> {
    let hosts = url.rsplit_once('@').map_or(url, |(_, hosts)| hosts);
    let hosts: Vec<&str> = hosts.split('/').next().unwrap_or_default().split(',').collect();
    ConnectOptions::new().user_and_password(USER.to_owned(), PASSWORD.to_owned()).connect(hosts).await
}

fn configuration(ground: &Ground, index: usize, port: u16, routes: &[u16], users: &str) -> String {
    let directory = ground.at(&format!("store-{index}"));
    let mut text = format!(
        "server_name: server-{index}\nlisten: \"127.0.0.1:{port}\"\n\
         jetstream {{ store_dir: \"{}\", max_memory_store: 64MB, max_file_store: 512MB }}\n\
         authorization {{ users: [\n{{ user: \"{USER}\", password: \"{PASSWORD}\" }}\n{users}] }}\n",
        directory.display()
    );
    if routes.len() > 1 {
        let listen = routes[index];
        let others: Vec<String> =
            routes.iter().map(|route| format!("\"nats://127.0.0.1:{route}\"")).collect();
        text += &format!(
            "cluster {{ name: primacy, listen: \"127.0.0.1:{listen}\", routes: [{}] }}\n",
            others.join(", ")
        );
    }
    text
}
