//! An ensemble of three ZooKeeper servers, or a single one, each in its own process, from Debian's packages.

pub mod curator;
mod middle;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use rustix::process::Signal;

pub use self::middle::Middle;
use super::{Ground, Server, free_port, program};

/// The directory of the Java libraries.
const JARS: &str = "/usr/share/java";
const CLASSES: [&str; 4] = ["zookeeper.jar", "zookeeper-jute.jar", "slf4j-api.jar", "slf4j-simple.jar"];

/// ZooKeeper's tick time, in milliseconds: a tenth of the default, so that sessions can be short.
pub const TICK: u32 = 200;

/// The interval at which the servers check for empty containers, in milliseconds; the default is a minute.
const CONTAINERS_MS: u32 = 1_000;

/// The maximum time for a server to answer an administrative command.
const ASK_PATIENCE: Duration = Duration::from_secs(2);

/// An ensemble of three, or one server.
#[derive(Debug)]
pub struct ZooKeeper {
    java: PathBuf,
    classes: String,
    ground: Ground,
    /// The client port of each; it stays the same over restarts.
    ports: Vec<u16>,
    /// The two peer ports of each server.
    among: Vec<(u16, u16)>,
    servers: Vec<Option<Server>>,
    /// The longest session, in milliseconds, that a server started from now on grants.
    pub session_max: u32,
}

impl ZooKeeper {
    /// Starts three servers, and waits until they serve.
    ///
    /// # Errors
    /// The program or library that is missing.
    ///
    /// # Panics
    /// If they do not serve in time.
    pub async fn start() -> Result<Self, String> {
        Self::start_of(3).await
    }

    /// Starts a single standalone server, and waits until it serves.
    ///
    /// # Errors
    /// The program or library that is missing.
    ///
    /// # Panics
    /// If it does not serve in time.
    pub async fn start_alone() -> Result<Self, String> {
        Self::start_of(1).await
    }

    async fn start_of(count: usize) -> Result<Self, String> {
        let java = program("java")?;
        let classes = class_path(CLASSES)?;
        let ports = (0..count).map(|_| free_port()).collect();
        let among = (0..count).map(|_| (free_port(), free_port())).collect();
        let ground = Ground::new("zookeeper");
        let mut ensemble = Self {
            java,
            classes,
            ground,
            ports,
            among,
            servers: (0..count).map(|_| None).collect(),
            session_max: 120_000,
        };
        for which in 0..count {
            ensemble.launch(which);
        }
        ensemble.serves().await;
        Ok(ensemble)
    }

    fn launch(&mut self, which: usize) {
        let name = format!("zookeeper{which}");
        let directory = self.ground.at(&name);
        std::fs::create_dir_all(&directory).expect("the ground can be written");
        std::fs::write(directory.join("myid"), (which + 1).to_string()).expect("the ground can be written");
        let port = self.ports[which];
        let mut text = format!(
            "tickTime={TICK}\ninitLimit=50\nsyncLimit=10\ndataDir={}\nclientPortAddress=127.0.0.1\nclientPort={port}\n\
             maxSessionTimeout={}\nadmin.enableServer=false\n4lw.commands.whitelist=srvr\nmaxClientCnxns=0\n",
            directory.display(),
            self.session_max
        );
        if self.among.len() > 1 {
            text += "standaloneEnabled=false\nquorumListenOnAllIPs=false\n";
        }
        // A standalone server lists no peers, not even itself.
        for (number, (peers, election)) in self.among.iter().enumerate().filter(|_| self.among.len() > 1) {
            text += &format!("server.{}=127.0.0.1:{peers}:{election}\n", number + 1);
        }
        let configuration = directory.join("zoo.cfg");
        std::fs::write(&configuration, text).expect("the ground can be written");
        let mut command = Command::new(&self.java);
        command.args(["-Xmx64m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]);
        command.args(["-Dzookeeper.jmx.log4j.disable=true", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"]);
        command.arg(format!("-Dznode.container.checkIntervalMs={CONTAINERS_MS}"));
        command.args(["-cp", &self.classes, "org.apache.zookeeper.server.quorum.QuorumPeerMain"]);
        command.arg(&configuration);
        self.servers[which] = Some(Server::start(&name, command, &self.ground));
    }

    /// Waits until all running servers serve.
    ///
    /// # Panics
    /// If one of them has ended, or does not serve in time.
    pub async fn serves(&mut self) {
        for (server, port) in self.servers.iter_mut().zip(&self.ports) {
            if let Some(server) = server {
                server.until(async || mode(*port).is_some()).await;
            }
        }
    }

    /// The address at which it serves clients: `HOST:PORT`.
    #[must_use]
    pub fn address(&self, which: usize) -> String {
        format!("127.0.0.1:{}", self.ports[which])
    }

    /// The addresses of all of them.
    #[must_use]
    pub fn addresses(&self) -> String {
        let all: Vec<String> = (0..self.ports.len()).map(|which| self.address(which)).collect();
        all.join(",")
    }

    /// The server that leads the ensemble.
    #[must_use]
    pub fn leader(&self) -> Option<usize> {
        (0..self.servers.len()).find(|which| {
            self.servers[*which].is_some() && mode(self.ports[*which]).is_some_and(|mode| mode == "leader")
        })
    }

    /// The process of a server.
    ///
    /// # Panics
    /// If it was killed.
    #[must_use]
    pub fn process(&self, which: usize) -> u32 {
        self.servers[which].as_ref().expect("it was not killed").id()
    }

    /// Kills a server.
    pub fn kill(&mut self, which: usize) {
        self.servers[which] = None;
    }

    /// Restarts a killed server.
    pub fn restart(&mut self, which: usize) {
        self.launch(which);
    }

    /// Stops a server by SIGSTOP.
    ///
    /// # Panics
    /// If it was killed.
    pub fn pause(&self, which: usize) {
        self.servers[which].as_ref().expect("it was not killed").signal(Signal::STOP);
    }

    /// Resumes a stopped server.
    ///
    /// # Panics
    /// If it was killed.
    pub fn resume(&self, which: usize) {
        self.servers[which].as_ref().expect("it was not killed").signal(Signal::CONT);
    }

    /// A directory for the files of a test.
    #[must_use]
    pub const fn ground(&self) -> &Ground {
        &self.ground
    }
}

/// The Java class path of these libraries.
fn class_path<'a>(classes: impl IntoIterator<Item = &'a str>) -> Result<String, String> {
    let mut path = Vec::new();
    for class in classes {
        let jar = format!("{JARS}/{class}");
        if !Path::new(&jar).is_file() {
            return Err(format!("there is no {jar}; `cargo xtask live` installs it"));
        }
        path.push(jar);
    }
    Ok(path.join(":"))
}

/// The mode that a server reports, if it serves: `leader` or `follower`.
fn mode(port: u16) -> Option<String> {
    let address = SocketAddr::from(([127, 0, 0, 1], port));
    let mut stream = TcpStream::connect_timeout(&address, ASK_PATIENCE).ok()?;
    stream.set_read_timeout(Some(ASK_PATIENCE)).ok()?;
    stream.write_all(b"srvr").ok()?;
    let mut text = String::new();
    stream.read_to_string(&mut text).ok()?;
    text.lines().find_map(|line| line.strip_prefix("Mode: ")).map(str::to_owned)
}
