//! An etcd cluster of any size, three members by default; or nodes of Primacy that serve the same API.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use primacy_stores::etcd::{EtcdClient, api};
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
};
use rustix::process::Signal;

use super::{Ground, START_PATIENCE, START_POLL, Server, free_port, program};

/// The default number of members.
pub const MEMBERS: usize = 3;

/// The names of Primacy's nodes.
const NODES: [&str; MEMBERS] = ["a", "b", "c"];

/// The files with which members and clients authenticate each other.
#[derive(Clone, Debug)]
pub struct Tls {
    /// The authority that has signed the certificates.
    pub ca: PathBuf,
    /// The certificate of all members and clients, for 127.0.0.1.
    pub cert: PathBuf,
    /// Its key.
    pub key: PathBuf,
}

impl Tls {
    /// Issues the files of a new authority of this name.
    ///
    /// # Panics
    /// If they cannot be created or written.
    pub fn issue(ground: &Ground, name: &str) -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().expect("a key can be made");
        let ca = params.self_signed(&key).expect("a certificate can be made").pem();
        let issuer = Issuer::new(params, key);
        let mut params = CertificateParams::new(vec!["127.0.0.1".to_owned()]).expect("this is an address");
        params.extended_key_usages =
            vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        // etcd takes the common name of a client's certificate for its user.
        params.distinguished_name = DistinguishedName::new();
        let key = KeyPair::generate().expect("a key can be made");
        let certificate = params.signed_by(&key, &issuer).expect("a certificate can be made").pem();
        let file = |kind: &str, text: String| {
            let path = ground.at(&format!("{name}-{kind}"));
            std::fs::write(&path, text).expect("the ground can be written");
            // Primacy refuses a key that other users may read.
            std::fs::set_permissions(&path, Permissions::from_mode(0o600)).expect("it was just made");
            path
        };
        Self {
            ca: file("ca.pem", ca),
            cert: file("node.pem", certificate),
            key: file("node.key", key.serialize_pem()),
        }
    }
}

/// The kind of the members, with the program.
#[derive(Clone, Debug)]
enum Make {
    Etcd(PathBuf),
    Ours(PathBuf),
}

/// A cluster of etcd, or of Primacy's nodes with their etcd API, on the loopback interface.
#[derive(Debug)]
pub struct Etcd {
    make: Make,
    tls: Option<Tls>,
    /// The further arguments of each member.
    arguments: Vec<String>,
    /// The client port and the peer port of each member.
    ports: Vec<(u16, u16)>,
    members: Vec<Option<Server>>,
    ground: Ground,
    /// The directories of further files that members read at their start.
    kept: Vec<Ground>,
}

impl Etcd {
    /// Starts three members, and waits until they have a leader.
    ///
    /// # Errors
    /// The program that is missing, for the report.
    ///
    /// # Panics
    /// If they do not start.
    pub async fn start(tls: Option<Tls>) -> Result<Self, String> {
        Self::start_of(MEMBERS, tls).await
    }

    /// Starts this number of members, and waits until they have a leader.
    ///
    /// # Errors
    /// The program that is missing, for the report.
    ///
    /// # Panics
    /// If they do not start.
    pub async fn start_of(count: usize, tls: Option<Tls>) -> Result<Self, String> {
        Self::start_with(count, tls, &[]).await
    }

    /// Starts this number of members with further arguments, and waits until they have a leader.
    ///
    /// # Errors
    /// The program that is missing, for the report.
    ///
    /// # Panics
    /// If they do not start.
    pub async fn start_with(count: usize, tls: Option<Tls>, arguments: &[&str]) -> Result<Self, String> {
        let _ = program("etcdctl")?;
        Ok(Self::launched(Make::Etcd(program("etcd")?), count, tls, arguments).await)
    }

    /// Starts three nodes of Primacy with further arguments, and waits until they have a leader.
    ///
    /// # Panics
    /// If they do not start.
    pub async fn of_ours(primacy: &Path, tls: Option<Tls>, arguments: &[&str]) -> Self {
        Self::launched(Make::Ours(primacy.to_owned()), MEMBERS, tls, arguments).await
    }

    async fn launched(make: Make, count: usize, tls: Option<Tls>, arguments: &[&str]) -> Self {
        let ground = Ground::new("etcd");
        let ports = (0..count).map(|_| (free_port(), free_port())).collect();
        let members = (0..count).map(|_| None).collect();
        let mut etcd = Self { make, tls, arguments: Vec::new(), ports, members, ground, kept: Vec::new() };
        etcd.set_arguments(arguments);
        for member in 0..count {
            etcd.launch(member);
        }
        for member in 0..count {
            etcd.await_member(member).await;
        }
        etcd
    }

    /// Sets the further arguments of members that start from now on.
    pub fn set_arguments(&mut self, arguments: &[&str]) {
        self.arguments = arguments.iter().map(|&argument| argument.to_owned()).collect();
    }

    /// Keeps the files in `ground`, which members read at their start, for as long as the cluster exists.
    pub fn keep(&mut self, ground: Ground) {
        self.kept.push(ground);
    }

    /// True if the members are nodes of Primacy.
    #[must_use]
    pub fn is_ours(&self) -> bool {
        matches!(self.make, Make::Ours(_))
    }

    fn launch(&mut self, member: usize) {
        let (name, mut command) = match &self.make {
            Make::Etcd(program) => (format!("m{member}"), self.member_of_etcd(program, member)),
            Make::Ours(program) => (NODES[member].to_owned(), self.node_of_ours(program, member)),
        };
        command.args(&self.arguments);
        self.members[member] = Some(Server::start(&name, command, &self.ground));
    }

    fn node_of_ours(&self, program: &Path, member: usize) -> Command {
        let peers: Vec<String> = NODES
            .iter()
            .zip(&self.ports)
            .map(|(node, ports)| format!("{node}=127.0.0.1:{}", ports.1))
            .collect();
        let name = NODES[member];
        let mut command = Command::new(program);
        command.args(["node", "--election", "map", "--node", name, "--peers", &peers.join(",")]);
        command.arg("--state-dir").arg(self.ground.at(name)).args(["--etcd-api", &self.endpoint(member)]);
        if let Some(tls) = &self.tls {
            command.arg("--etcd-api-certificate").arg(&tls.cert).arg("--etcd-api-key").arg(&tls.key);
            command.arg("--etcd-api-ca").arg(&tls.ca);
        }
        command
    }

    fn member_of_etcd(&self, program: &Path, member: usize) -> Command {
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
        let mut command = Command::new(program);
        command.args(["--name", &name, "--logger", "zap", "--log-outputs", "stderr"]);
        command.arg("--data-dir").arg(self.ground.at(&name));
        command.args(["--listen-client-urls", &clients, "--advertise-client-urls", &clients]);
        command.args(["--listen-peer-urls", &url(peers), "--initial-advertise-peer-urls", &url(peers)]);
        command.args(["--initial-cluster", &all.join(","), "--initial-cluster-token", "live"]);
        if let Some(tls) = &self.tls {
            command.arg("--cert-file").arg(&tls.cert).arg("--key-file").arg(&tls.key);
            command.arg("--trusted-ca-file").arg(&tls.ca).arg("--client-cert-auth");
        }
        command
    }

    async fn await_member(&mut self, member: usize) {
        let client = EtcdClient::new(&self.url_of(&[member], "")).expect("this is a URL");
        let server = self.members[member].as_mut().expect("it was started");
        // Not by the read of a key, which needs a password if there are users.
        server
            .until(async || {
                let status = client.status().await.remove(0).1;
                status.is_ok_and(|status| status.leader != 0)
            })
            .await;
    }

    /// The URL of these members for clients, without a user; `path` follows the hosts.
    #[must_use]
    pub fn url_of(&self, members: &[usize], path: &str) -> String {
        self.url_for("", members, path)
    }

    /// The URL of all members, with `login`, which ends with `@`, before the hosts.
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

    /// The host and client port of a member.
    #[must_use]
    pub fn address(&self, member: usize) -> (&'static str, u16) {
        ("127.0.0.1", self.ports[member].0)
    }

    /// The host and client port of a member as text.
    #[must_use]
    pub fn endpoint(&self, member: usize) -> String {
        let (host, port) = self.address(member);
        format!("{host}:{port}")
    }

    /// The endpoints of all members, separated by commas.
    #[must_use]
    pub fn endpoints(&self) -> String {
        (0..self.ports.len()).map(|member| self.endpoint(member)).collect::<Vec<_>>().join(",")
    }

    /// Returns a command of `etcdctl` for this cluster.
    ///
    /// # Panics
    /// If `etcdctl` is missing.
    #[must_use]
    pub fn etcdctl(&self, arguments: &[&str]) -> Command {
        let scheme = if self.tls.is_some() { "https://" } else { "" };
        let endpoints: Vec<String> =
            (0..self.ports.len()).map(|member| format!("{scheme}{}", self.endpoint(member))).collect();
        let mut command = Command::new(program("etcdctl").expect("it comes with etcd"));
        command.env("ETCDCTL_API", "3").arg("--endpoints").arg(endpoints.join(","));
        if let Some(tls) = &self.tls {
            command.arg("--cacert").arg(&tls.ca).arg("--cert").arg(&tls.cert).arg("--key").arg(&tls.key);
        }
        command.args(arguments);
        command
    }

    /// Returns the output of `etcdctl`.
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

    /// The member that leads the cluster.
    ///
    /// # Panics
    /// If there is no leader in time.
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

    /// Restarts a killed member with its data.
    ///
    /// # Panics
    /// If it does not come back.
    pub async fn restart(&mut self, member: usize) {
        self.launch(member);
        self.await_member(member).await;
    }

    /// Kills all members, and restarts them with their data.
    pub fn relaunch_all(&mut self) {
        self.members.iter_mut().for_each(|member| *member = None);
        (0..self.members.len()).for_each(|member| self.launch(member));
    }

    /// Restarts a killed member, without waiting for it.
    pub fn relaunch(&mut self, member: usize) {
        self.launch(member);
    }

    /// Stops a member by SIGSTOP: its connections stay open.
    ///
    /// # Panics
    /// If it is not there.
    pub fn pause(&self, member: usize) {
        self.members[member].as_ref().expect("it runs").signal(Signal::STOP);
    }

    /// Resumes a stopped member.
    ///
    /// # Panics
    /// If it is not there.
    pub fn resume(&self, member: usize) {
        self.members[member].as_ref().expect("it runs").signal(Signal::CONT);
    }
}
