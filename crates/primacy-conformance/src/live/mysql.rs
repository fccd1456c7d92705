//! A MariaDB server: `mariadbd` of Debian, in a directory of its own.
//!
//! It refuses to run as root. If the tests are root, it runs as the user `nobody`.

use std::net::SocketAddr;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::{Ground, Server, free_port, program};

/// The user and group `nobody`, everywhere but on very old systems.
const NOBODY: u32 = 65534;

/// The password of the user `app`.
pub const PASSWORD: &str = "pass-of-a-test";

/// The statements that create the database and the user of the candidates, with the documented privileges.
const SETUP: &str = "CREATE DATABASE app; CREATE USER app IDENTIFIED BY 'pass-of-a-test'; \
                     GRANT SELECT, INSERT, UPDATE, CREATE ON app.* TO app";

/// A server on a free port.
#[derive(Debug)]
pub struct MariaDb {
    server: Server,
    port: u16,
    settings: Vec<String>,
    client: PathBuf,
    // Removed last.
    ground: Ground,
}

impl MariaDb {
    /// Starts a server with the database `app`, and with further `settings` as `--name=value`.
    ///
    /// # Errors
    /// The program that is missing.
    ///
    /// # Panics
    /// If it does not start.
    pub async fn start(settings: &[&str]) -> Result<Self, String> {
        let server = Self::start_empty(settings).await?;
        server.run_sql(SETUP);
        Ok(server)
    }

    /// Starts a server without the database.
    ///
    /// # Errors
    /// The program that is missing.
    ///
    /// # Panics
    /// If it does not start.
    pub async fn start_empty(settings: &[&str]) -> Result<Self, String> {
        let ground = Ground::new("mysql");
        if rustix::process::geteuid().is_root() {
            std::os::unix::fs::chown(ground.path(), Some(NOBODY), Some(NOBODY)).expect("root may");
        }
        let mut install = as_nobody(&program("mariadb-install-db")?);
        install.args(["--no-defaults", "--auth-root-authentication-method=normal", "--skip-test-db"]);
        // The installation uses temporary tables, which would conflict with those of a concurrent one in a shared
        // directory.
        install.env("TMPDIR", ground.path());
        install.arg(format!("--datadir={}", ground.at("data").display())).stdin(Stdio::null());
        let made = install.output().map_err(|error| format!("mariadb-install-db: {error}"))?;
        if !made.status.success() {
            return Err(format!("mariadb-install-db: {}", String::from_utf8_lossy(&made.stderr)));
        }
        let (port, client) = (free_port(), program("mariadb")?);
        let settings: Vec<String> = settings.iter().map(|setting| (*setting).to_owned()).collect();
        let server =
            Server::start("mysql", command(&program("mariadbd")?, port, &ground, &settings), &ground);
        let mut mariadb = Self { server, port, settings, client, ground };
        mariadb.until_it_answers().await;
        Ok(mariadb)
    }

    async fn until_it_answers(&mut self) {
        let (client, port) = (self.client.clone(), self.port);
        self.server.until(async || ask(&client, port, "SELECT 1").is_ok()).await;
    }

    /// Kills it without a warning (SIGKILL).
    pub fn kill(&mut self) {
        self.server.kill();
    }

    /// Restarts it after it was [killed](Self::kill).
    ///
    /// # Panics
    /// If it does not start.
    pub async fn restart(&mut self) {
        let program = program("mariadbd").expect("it was there");
        self.server =
            Server::start("mysql", command(&program, self.port, &self.ground, &self.settings), &self.ground);
        self.until_it_answers().await;
    }

    /// Its process.
    #[must_use]
    pub const fn server(&self) -> &Server {
        &self.server
    }

    /// The directory of its data, `data`.
    #[must_use]
    pub const fn ground(&self) -> &Ground {
        &self.ground
    }

    /// The address at which it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        ([127, 0, 0, 1], self.port).into()
    }

    /// The port at which it listens.
    #[must_use]
    pub const fn port(&self) -> u16 {
        self.port
    }

    /// The URL of its database, for the user `app`.
    #[must_use]
    pub fn url(&self) -> String {
        url_at(self.address())
    }

    /// Runs statements as the superuser. Returns the lines of the results, with the values separated by tabs.
    ///
    /// # Panics
    /// If one fails.
    pub fn run_sql(&self, statements: &str) -> Vec<String> {
        ask(&self.client, self.port, statements).unwrap_or_else(|why| panic!("{statements}: {why}"))
    }

    /// Starts a client that runs statements and stays connected until its input ends, so that its session keeps its locks.
    ///
    /// # Panics
    /// If it cannot be started.
    #[must_use]
    pub fn session(&self, statements: &str) -> std::process::Child {
        use std::io::Write as _;
        let mut client = command_of_client(&self.client, self.port);
        let mut child =
            client.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().expect("the client starts");
        let input = child.stdin.as_mut().expect("it is a pipe");
        writeln!(input, "{statements}").and_then(|()| input.flush()).expect("the client reads");
        child
    }
}

/// The URL of the database behind an address.
#[must_use]
pub fn url_at(address: SocketAddr) -> String {
    format!("mysql://app:{PASSWORD}@{address}/app")
}

fn ask(client: &Path, port: u16, statements: &str) -> Result<Vec<String>, String> {
    let mut command = command_of_client(client, port);
    let ran = command.args(["-e", statements]).stdin(Stdio::null()).output();
    let ran = ran.map_err(|error| error.to_string())?;
    if !ran.status.success() {
        return Err(String::from_utf8_lossy(&ran.stderr).into_owned());
    }
    Ok(String::from_utf8_lossy(&ran.stdout).lines().map(str::to_owned).collect())
}

fn command_of_client(client: &Path, port: u16) -> Command {
    let mut command = Command::new(client);
    command.args(["--no-defaults", "--host=127.0.0.1", "--user=root", "--skip-column-names", "--batch"]);
    command.args(["--unbuffered", &format!("--port={port}")]);
    command
}

fn command(program: &Path, port: u16, ground: &Ground, settings: &[String]) -> Command {
    let mut command = as_nobody(program);
    command.args(["--no-defaults", "--bind-address=127.0.0.1", &format!("--port={port}")]);
    for (name, file) in [("datadir", "data"), ("socket", "socket"), ("pid-file", "pid"), ("tmpdir", "")] {
        command.arg(format!("--{name}={}", ground.at(file).display()));
    }
    command.args(settings);
    command
}

fn as_nobody(program: &Path) -> Command {
    let mut command = Command::new(program);
    // The user may not have access to the tests' directory.
    command.current_dir(std::env::temp_dir());
    if rustix::process::geteuid().is_root() {
        command.uid(NOBODY).gid(NOBODY);
    }
    command
}
