//! PostgreSQL, and `PgBouncer` in front of it.
//!
//! Both refuse to run as root. If the tests are root, they run as the user `nobody`.

use std::net::SocketAddr;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::process::Signal;
use tokio_postgres::{Client, Config, NoTls, SimpleQueryMessage};

use super::{Ground, Server, free_port, program};

/// The user and group `nobody`, everywhere but on very old systems.
const NOBODY: u32 = 65534;

/// The superuser of each server.
pub const SUPERUSER: &str = "postgres";

/// The maximum number of attempts to start a server while remains of its earlier process exist.
const STARTS_MAX: u32 = 100;

/// The pause before the next attempt.
const START_PAUSE: Duration = Duration::from_millis(100);

/// A PostgreSQL server in a directory of its own. Over its Unix socket every user is trusted; over TCP, all but the
/// superuser need a password.
#[derive(Debug)]
pub struct Postgres {
    server: Option<Server>,
    port: u16,
    settings: Vec<String>,
    // Removed last.
    ground: Ground,
}

impl Postgres {
    /// Creates a database cluster and starts its server, with further `settings` as `NAME=VALUE`.
    ///
    /// # Errors
    /// The program that is missing.
    pub async fn start(settings: &[&str]) -> Result<Self, String> {
        let ground = Ground::new("postgres");
        let data = ground.at("data");
        give_away(ground.path());
        let mut command = as_nobody(program("initdb")?);
        command.args([
            "--auth=trust",
            "--encoding=UTF8",
            "--no-locale",
            "--no-sync",
            "--username",
            SUPERUSER,
            "--pgdata",
        ]);
        command.arg(&data).stdin(Stdio::null());
        let made = command.output().map_err(|error| format!("initdb: {error}"))?;
        if !made.status.success() {
            return Err(format!("initdb: {}", String::from_utf8_lossy(&made.stderr)));
        }
        let access = "local all all trust\nhost all postgres 127.0.0.1/32 trust\n\
                      host replication postgres 127.0.0.1/32 trust\nhost all all 127.0.0.1/32 scram-sha-256\n";
        std::fs::write(data.join("pg_hba.conf"), access).map_err(|error| error.to_string())?;
        let settings = settings.iter().map(|setting| (*setting).to_owned()).collect();
        Self::run(ground, free_port(), settings).await
    }

    /// Starts a standby of this server.
    ///
    /// # Errors
    /// The program that is missing.
    pub async fn standby(&self) -> Result<Self, String> {
        self.standby_at(free_port()).await
    }

    async fn standby_at(&self, port: u16) -> Result<Self, String> {
        let ground = Ground::new("postgres-standby");
        give_away(ground.path());
        let mut command = as_nobody(program("pg_basebackup")?);
        command.args([
            "--host=127.0.0.1",
            "--username",
            SUPERUSER,
            "--write-recovery-conf",
            "--checkpoint=fast",
            "--no-sync",
        ]);
        command
            .args(["--port", &self.port.to_string(), "--pgdata"])
            .arg(ground.at("data"))
            .stdin(Stdio::null());
        let made = command.output().map_err(|error| format!("pg_basebackup: {error}"))?;
        if !made.status.success() {
            return Err(format!("pg_basebackup: {}", String::from_utf8_lossy(&made.stderr)));
        }
        Self::run(ground, port, Vec::new()).await
    }

    async fn run(ground: Ground, port: u16, settings: Vec<String>) -> Result<Self, String> {
        program("postgres")?;
        let mut postgres = Self { server: None, port, settings, ground };
        postgres.restart().await;
        Ok(postgres)
    }

    /// Restarts it after it was [killed](Self::kill) or [stopped](Self::stop).
    ///
    /// # Panics
    /// If it does not start.
    pub async fn restart(&mut self) {
        // Dropping the server kills it.
        self.server = None;
        for _ in 0..STARTS_MAX {
            let mut command = as_nobody(program("postgres").expect("it was there"));
            command.arg("-D").arg(self.ground.at("data")).args(["-p", &self.port.to_string()]);
            command.arg("-k").arg(self.ground.path()).args(["-h", "127.0.0.1"]);
            for setting in &self.settings {
                command.args(["-c", setting]);
            }
            let mut server = Server::start("postgres", command, &self.ground);
            loop {
                if self.try_connect().await.is_ok() {
                    self.server = Some(server);
                    return;
                }
                // For a moment, the remains of a killed server still exist.
                if server.lives().is_err() {
                    break;
                }
                tokio::time::sleep(START_PAUSE).await;
            }
            tokio::time::sleep(START_PAUSE).await;
        }
        panic!("PostgreSQL does not start again:\n{}", self.printed());
    }

    /// Its process.
    ///
    /// # Panics
    /// If it is not running.
    #[must_use]
    pub fn process(&self) -> u32 {
        self.server.as_ref().expect("it runs").id()
    }

    /// The address at which it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        ([127, 0, 0, 1], self.port).into()
    }

    /// The directory of its unix socket and of its data, `data`.
    #[must_use]
    pub const fn ground(&self) -> &Ground {
        &self.ground
    }

    /// The URL of its database `postgres`, for the superuser.
    #[must_use]
    pub fn url(&self) -> String {
        url(SUPERUSER, self.address())
    }

    /// Its latest output.
    #[must_use]
    pub fn printed(&self) -> String {
        let log = std::fs::read(self.ground.at("postgres.log")).unwrap_or_default();
        String::from_utf8_lossy(&log).into_owned()
    }

    /// Kills it by SIGKILL, with the processes that serve its connections.
    ///
    /// # Panics
    /// If it is not running.
    pub async fn kill(&mut self) {
        let server = self.server.as_mut().expect("it runs");
        let children = children(server.id());
        server.kill();
        // They would end by themselves, but only after answering their requests.
        for child in children {
            if let Some(child) = i32::try_from(child).ok().and_then(rustix::process::Pid::from_raw) {
                let _ = rustix::process::kill_process(child, Signal::KILL);
            }
        }
        self.server = None;
    }

    /// Stops it at once, in order: `pg_ctl stop --mode fast`.
    ///
    /// # Panics
    /// If it is not running.
    pub async fn stop(&mut self) {
        let mut server = self.server.take().expect("it runs");
        server.signal(Signal::INT);
        let ended = async {
            while server.lives().is_ok() {
                tokio::time::sleep(START_PAUSE).await;
            }
        };
        tokio::time::timeout(super::START_PATIENCE, ended).await.expect("it ends");
    }

    /// Promotes a standby to primary.
    pub async fn promote(&self) {
        self.run_sql("SELECT pg_promote(true, 60)").await;
    }

    /// Runs statements as the superuser. Returns the first column of their rows.
    ///
    /// # Panics
    /// If one fails.
    pub async fn run_sql(&self, statements: &str) -> Vec<Option<String>> {
        let client = self.try_connect().await.expect("the server answers");
        let messages =
            client.simple_query(statements).await.unwrap_or_else(|error| panic!("{statements}: {error:?}"));
        let values = messages.iter().filter_map(|message| {
            let SimpleQueryMessage::Row(row) = message else { return None };
            Some(row.get(0).map(str::to_owned))
        });
        values.collect()
    }

    /// Connects as the superuser.
    ///
    /// # Panics
    /// If the connection fails.
    pub async fn connect(&self) -> Client {
        self.try_connect().await.expect("the server answers")
    }

    async fn try_connect(&self) -> Result<Client, tokio_postgres::Error> {
        connect(&self.config(SUPERUSER)).await
    }

    /// The configuration with which `user` connects over the Unix socket, without a password.
    #[must_use]
    pub fn config(&self, user: &str) -> Config {
        let mut config = Config::new();
        config.host_path(self.ground.path()).port(self.port).user(user).dbname("postgres");
        config
    }
}

/// A server with a standby.
#[derive(Debug)]
pub struct Pair {
    servers: [Postgres; 2],
    leader: usize,
}

impl Pair {
    /// Starts both. Writes do not wait for the standby: the pair is for measuring the time of a failover, not its losses.
    ///
    /// # Errors
    /// The program that is missing.
    pub async fn start() -> Result<Self, String> {
        let leader = Postgres::start(&[]).await?;
        let standby = leader.standby().await?;
        Ok(Self { servers: [leader, standby], leader: 0 })
    }

    /// The URL with both servers, for the superuser.
    #[must_use]
    pub fn url(&self) -> String {
        let [first, second] = self.servers.each_ref().map(Postgres::address);
        format!("postgres://{SUPERUSER}@{first},{second}/postgres")
    }

    /// The server that accepts writes.
    #[must_use]
    pub const fn leader(&self) -> usize {
        self.leader
    }

    /// The process of one of them.
    ///
    /// # Panics
    /// If it is not running.
    #[must_use]
    pub fn process(&self, server: usize) -> u32 {
        self.servers[server].process()
    }

    /// Promotes the standby after the end of its primary.
    ///
    /// # Panics
    /// If the promotion fails.
    pub async fn promote(&mut self) {
        self.leader = 1 - self.leader;
        self.servers[self.leader].promote().await;
    }

    /// Makes the server that has ended a standby of the other one, at its old address.
    ///
    /// # Errors
    /// The program that is missing.
    ///
    /// # Panics
    /// If it does not start.
    pub async fn follow(&mut self) -> Result<(), String> {
        let gone = 1 - self.leader;
        let port = self.servers[gone].port;
        // The remains of its process would keep the port.
        self.servers[gone].server = None;
        self.servers[gone] = self.servers[self.leader].standby_at(port).await?;
        Ok(())
    }
}

/// Connects, and spawns the task that drives the connection.
///
/// # Errors
/// The errors of the server.
pub async fn connect(config: &Config) -> Result<Client, tokio_postgres::Error> {
    let (client, connection) = config.connect(NoTls).await?;
    tokio::spawn(connection);
    Ok(client)
}

/// The URL of the database `postgres` behind an address.
#[must_use]
pub fn url(user: &str, address: SocketAddr) -> String {
    format!("postgres://{user}@{address}/postgres")
}

/// `PgBouncer` in front of a server, in transaction mode.
#[derive(Debug)]
pub struct PgBouncer {
    port: u16,
    _server: Server,
    _ground: Ground,
}

impl PgBouncer {
    /// Starts a `PgBouncer` with `connections` connections to the server.
    ///
    /// # Errors
    /// The program that is missing.
    pub async fn start(postgres: &Postgres, connections: u32) -> Result<Self, String> {
        let (ground, port) = (Ground::new("pgbouncer"), free_port());
        give_away(ground.path());
        let settings = format!(
            "[databases]\npostgres = host=127.0.0.1 port={} dbname=postgres user={SUPERUSER}\n[pgbouncer]\n\
             listen_addr = 127.0.0.1\nlisten_port = {port}\nunix_socket_dir =\nauth_type = any\npool_mode = transaction\n\
             default_pool_size = {connections}\nmax_client_conn = 1000\nlogfile =\n",
            postgres.port
        );
        let file = ground.at("pgbouncer.ini");
        std::fs::write(&file, settings).map_err(|error| error.to_string())?;
        let mut command = as_nobody(program("pgbouncer")?);
        command.arg(&file);
        let mut server = Server::start("pgbouncer", command, &ground);
        let mut config = Config::new();
        config.host("127.0.0.1").port(port).user(SUPERUSER).dbname("postgres");
        server.until(async || connect(&config).await.is_ok()).await;
        Ok(Self { port, _server: server, _ground: ground })
    }

    /// The URL of the database `postgres` through it.
    #[must_use]
    pub fn url(&self) -> String {
        url(SUPERUSER, ([127, 0, 0, 1], self.port).into())
    }
}

fn as_nobody(program: impl AsRef<Path>) -> Command {
    let mut command = Command::new(program.as_ref());
    // The user may not have access to the tests' directory.
    command.current_dir(std::env::temp_dir());
    if rustix::process::geteuid().is_root() {
        command.uid(NOBODY).gid(NOBODY);
    }
    command
}

fn give_away(directory: &Path) {
    if rustix::process::geteuid().is_root() {
        std::os::unix::fs::chown(directory, Some(NOBODY), Some(NOBODY)).expect("root may");
    }
}

/// Returns the child processes of a process.
fn children(parent: u32) -> Vec<u32> {
    let path = format!("/proc/{parent}/task/{parent}/children");
    let text = std::fs::read_to_string(path).unwrap_or_default();
    text.split_whitespace().filter_map(|id| id.parse().ok()).collect()
}
