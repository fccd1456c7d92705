//! An etcd of three members, or of as many as are asked for.

use std::path::PathBuf;
use std::process::Command;
use std::time::Instant;

use primacy_stores::etcd::{EtcdClient, api};
use rustix::process::Signal;

use super::{Ground, START_PATIENCE, START_POLL, Server, free_port, program};

/// The members.
pub const MEMBERS: usize = 3;

/// The files with which members and clients know each other.
#[derive(Clone, Debug)]
pub struct Tls {
    /// Who has signed the certificates.
    pub ca: PathBuf,
    /// The certificate of all members and clients, for 127.0.0.1.
    pub cert: PathBuf,
    /// Its key.
    pub key: PathBuf,
}

/// A cluster of etcd on the loopback interface.
#[derive(Debug)]
pub struct Etcd {
    program: PathBuf,
    client: PathBuf,
    tls: Option<Tls>,
    /// What each member is started with besides.
    arguments: Vec<String>,
    /// Of each member, where clients and where members reach it.
    ports: Vec<(u16, u16)>,
    members: Vec<Option<Server>>,
    ground: Ground,
}

impl Etcd {
    /// Starts three members, and waits until they have a leader.
    ///
    /// # Errors
    /// Which program is missing, for the report.
    ///
    /// # Panics
    /// If they do not start.
    pub async fn start(tls: Option<Tls>) -> Result<Self, String> {
        Self::start_of(MEMBERS, tls).await
    }

    /// The same of another number of members.
    ///
    /// # Errors
    /// Which program is missing, for the report.
    ///
    /// # Panics
    /// If they do not start.
    pub async fn start_of(count: usize, tls: Option<Tls>) -> Result<Self, String> {
        Self::start_with(count, tls, &[]).await
    }

    /// The same, with more arguments for each member.
    ///
    /// # Errors
    /// Which program is missing, for the report.
    ///
    /// # Panics
    /// If they do not start.
    pub async fn start_with(count: usize, tls: Option<Tls>, arguments: &[&str]) -> Result<Self, String> {
        let (program, client) = (program("etcd")?, program("etcdctl")?);
        let ground = Ground::new("etcd");
        let ports = (0..count).map(|_| (free_port(), free_port())).collect();
        let members = (0..count).map(|_| None).collect();
        let arguments = arguments.iter().map(|&argument| argument.to_owned()).collect();
        let mut etcd = Self { program, client, tls, arguments, ports, members, ground };
        for member in 0..count {
            etcd.launch(member);
        }
        for member in 0..count {
            etcd.await_member(member).await;
        }
        Ok(etcd)
    }

    fn launch(&mut self, member: usize) {
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        let (clients, peers) = self.ports[member];
        let clients = format!("{scheme}://127.0.0.1:{clients}");
        let url = |port: u16| format!("http://127.0.0.1:{port}");
        let all: Vec<String> = self
            .ports
            .iter()
            .enumerate()
            .map(|(other, ports)| format!("m{other}={}", url(ports.1)))
            .collect();
        let name = format!("m{member}");
        let mut command = Command::new(&self.program);
        command.args(["--name", &name, "--logger", "zap", "--log-outputs", "stderr"]);
        command.arg("--data-dir").arg(self.ground.at(&name));
        command.args(["--listen-client-urls", &clients, "--advertise-client-urls", &clients]);
        command.args(["--listen-peer-urls", &url(peers), "--initial-advertise-peer-urls", &url(peers)]);
        command.args(["--initial-cluster", &all.join(","), "--initial-cluster-token", "live"]);
        if let Some(tls) = &self.tls {
            command.arg("--cert-file").arg(&tls.cert).arg("--key-file").arg(&tls.key);
            command.arg("--trusted-ca-file").arg(&tls.ca).arg("--client-cert-auth");
        }
        command.args(&self.arguments);
        self.members[member] = Some(Server::start(&name, command, &self.ground));
    }

    async fn await_member(&mut self, member: usize) {
        let client = EtcdClient::new(&self.url_of(&[member], "")).expect("this is a URL");
        let server = self.members[member].as_mut().expect("it was started");
        // Not whether a key can be read: with passwords, that needs one.
        server
            .until(async || {
                let status = client.status().await.remove(0).1;
                status.is_ok_and(|status| status.leader != 0)
            })
            .await;
    }

    /// Where clients reach these members, without a user; `path` is what stands behind the hosts.
    #[must_use]
    pub fn url_of(&self, members: &[usize], path: &str) -> String {
        self.url_for("", members, path)
    }

    /// The same for all members, and with `login`, which ends with `@`, in front.
    #[must_use]
    pub fn url(&self, login: &str, path: &str) -> String {
        let all: Vec<usize> = (0..self.ports.len()).collect();
        self.url_for(login, &all, path)
    }

    fn url_for(&self, login: &str, members: &[usize], path: &str) -> String {
        let hosts: Vec<String> =
            members.iter().map(|member| format!("127.0.0.1:{}", self.ports[*member].0)).collect();
        let url = format!("etcd://{login}{}{path}", hosts.join(","));
        let Some(tls) = &self.tls else { return url };
        let sign = if url.contains('?') { '&' } else { '?' };
        let (ca, cert, key) = (tls.ca.display(), tls.cert.display(), tls.key.display());
        format!("{url}{sign}ca={ca}&cert={cert}&key={key}")
    }

    /// Where clients reach a member, with the port.
    #[must_use]
    pub fn address(&self, member: usize) -> (&'static str, u16) {
        ("127.0.0.1", self.ports[member].0)
    }

    /// `etcdctl` with the members of this cluster.
    #[must_use]
    pub fn etcdctl(&self, arguments: &[&str]) -> Command {
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        let endpoints: Vec<String> =
            self.ports.iter().map(|ports| format!("{scheme}://127.0.0.1:{}", ports.0)).collect();
        let mut command = Command::new(&self.client);
        command.env("ETCDCTL_API", "3").arg("--endpoints").arg(endpoints.join(","));
        if let Some(tls) = &self.tls {
            command.arg("--cacert").arg(&tls.ca).arg("--cert").arg(&tls.cert).arg("--key").arg(&tls.key);
        }
        command.args(arguments);
        command
    }

    /// What `etcdctl` prints.
    ///
    /// # Panics
    /// If it fails.
    #[must_use]
    pub fn told(&self, arguments: &[&str]) -> String {
        let output = self.etcdctl(arguments).output().expect("etcdctl can be run");
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "etcdctl {arguments:?}: {errors}");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// Which member leads the cluster.
    ///
    /// # Panics
    /// If none does, and that does not change.
    pub async fn leader(&self) -> usize {
        let began = Instant::now();
        let client = EtcdClient::new(&self.url("", "")).expect("this is a URL");
        loop {
            for (member, (_, status)) in client.status().await.into_iter().enumerate() {
                let leads = |status: &api::StatusResponse| {
                    status.header.as_ref().is_some_and(|header| header.member_id == status.leader)
                };
                if status.is_ok_and(|status| leads(&status)) {
                    return member;
                }
            }
            assert!(began.elapsed() < START_PATIENCE, "no member leads");
            tokio::time::sleep(START_POLL).await;
        }
    }

    /// The process of a member.
    ///
    /// # Panics
    /// If it was killed.
    #[must_use]
    pub fn process(&self, member: usize) -> u32 {
        self.members[member].as_ref().expect("it was not killed").id()
    }

    /// Kills a member.
    pub fn kill(&mut self, member: usize) {
        self.members[member] = None;
    }

    /// Starts a member that was killed, with what it has on disk.
    ///
    /// # Panics
    /// If it does not come back.
    pub async fn restart(&mut self, member: usize) {
        self.launch(member);
        self.await_member(member).await;
    }

    /// Starts a member that was killed, and does not wait.
    pub fn relaunch(&mut self, member: usize) {
        self.launch(member);
    }

    /// Stops a member as it is: its connections stay open.
    ///
    /// # Panics
    /// If it is not there.
    pub fn pause(&self, member: usize) {
        self.members[member].as_ref().expect("it runs").signal(Signal::STOP);
    }

    /// Lets it go on.
    ///
    /// # Panics
    /// If it is not there.
    pub fn resume(&self, member: usize) {
        self.members[member].as_ref().expect("it runs").signal(Signal::CONT);
    }
}
