//! A Redis server: `redis-server`, configured to write every change to disk before it acknowledges it.

use std::net::SocketAddr;
use std::process::Command;

use redis::{Client, Cmd, Connection, FromRedisValue};

use super::{Ground, Server, free_port, program};

/// The password of the server.
pub const PASSWORD: &str = "pass-of-a-test";

/// A server on a free port, with a directory of its own.
#[derive(Debug)]
pub struct Redis {
    ground: Ground,
    port: u16,
    settings: Vec<String>,
    server: Server,
}

impl Redis {
    /// Starts a server, with further `settings` as `--name value`.
    ///
    /// # Errors
    /// The program that is missing.
    ///
    /// # Panics
    /// If it does not start.
    pub async fn start(settings: &[&str]) -> Result<Self, String> {
        let program = program("redis-server")?;
        let ground = Ground::new("redis");
        let port = free_port();
        let settings: Vec<String> = settings.iter().map(|&setting| setting.to_owned()).collect();
        let server = Server::start("redis", command(program, port, &ground, &settings), &ground);
        let mut redis = Self { ground, port, settings, server };
        redis.until_it_answers().await;
        Ok(redis)
    }

    async fn until_it_answers(&mut self) {
        let client = self.client();
        // While it loads its data, it answers with an error.
        self.server
            .until(async || {
                let connection = client.get_connection();
                connection.is_ok_and(|mut server| redis::cmd("PING").query::<String>(&mut server).is_ok())
            })
            .await;
    }

    fn client(&self) -> Client {
        Client::open(format!("redis://:{PASSWORD}@127.0.0.1:{}/", self.port)).expect("a URL of redis's own")
    }

    /// The address at which it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        ([127, 0, 0, 1], self.port).into()
    }

    /// The URL of the elections on it.
    #[must_use]
    pub fn url(&self) -> String {
        Self::url_at(self.address())
    }

    /// The same URL through a proxy at this address.
    #[must_use]
    pub fn url_at(address: SocketAddr) -> String {
        format!("redis://:{PASSWORD}@{address}/primacy")
    }

    /// Its directory.
    #[must_use]
    pub const fn ground(&self) -> &Ground {
        &self.ground
    }

    /// Its process.
    #[must_use]
    pub const fn server(&self) -> &Server {
        &self.server
    }

    /// A connection of a plain client.
    ///
    /// # Panics
    /// If the server does not answer.
    #[must_use]
    pub fn connect(&self) -> Connection {
        self.client().get_connection().expect("the server is there")
    }

    /// Sends a command, and returns the answer.
    ///
    /// # Panics
    /// If the server refuses it.
    pub fn ask<T: FromRedisValue>(&self, command: &Cmd) -> T {
        command.query(&mut self.connect()).expect("the server does what it is asked for")
    }

    /// Sends a command as words, and ignores the answer.
    ///
    /// # Panics
    /// If the server refuses it.
    pub fn tell(&self, words: &[&str]) {
        let mut command = Cmd::new();
        command.arg(words);
        self.ask::<()>(&command);
    }

    /// Kills it by SIGKILL.
    pub fn kill(&mut self) {
        self.server.kill();
    }

    /// Restarts it on the same port, with its data.
    ///
    /// # Panics
    /// If it does not start.
    pub async fn restart(&mut self) {
        self.server.kill();
        let program = program("redis-server").expect("it was there before");
        let command = command(program, self.port, &self.ground, &self.settings);
        self.server = Server::start("redis", command, &self.ground);
        self.until_it_answers().await;
    }
}

fn command(program: std::path::PathBuf, port: u16, ground: &Ground, settings: &[String]) -> Command {
    let mut command = Command::new(program);
    command.args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--dir"]).arg(ground.path());
    command.args(["--save", "", "--appendonly", "yes", "--appendfsync", "always"]);
    command.args(["--requirepass", PASSWORD, "--masterauth", PASSWORD]).args(settings);
    command
}
