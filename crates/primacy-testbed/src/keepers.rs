//! Nodes that replicate a map, on disk by default, and serve the etcd API: with operators' commands and clients'
//! requests.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::Instant;

use primacy_conformance::live::free_port;
use primacy_stores::etcd::api::{self, method};
use rustix::process::Signal;
use serde_json::Value;
use tonic::Code;

use crate::etcd_api::{Asked, PATIENCE, POLL};
use crate::{Node, Place, stderr, stdout, strings, wait_until};

/// The name of their election.
const ELECTION: &str = "e";

/// The exit code and the output of a command that has ended.
#[derive(Debug)]
pub struct Said {
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

impl Said {
    /// Checks the exit code, and that standard output or standard error contains each of these texts.
    #[track_caller]
    pub fn is(&self, code: i32, says: &[&str]) {
        assert_eq!(self.code, Some(code), "{self:?}");
        for text in says {
            assert!(self.stdout.contains(text) || self.stderr.contains(text), "{text:?} in {self:?}");
        }
        assert!(!self.stderr.contains("panicked"), "{self:?}");
    }
}

/// The cluster.
#[derive(Debug)]
pub struct Keepers {
    pub place: Place,
    /// The durability of their logs: `fsync` or `memory`.
    metadata: &'static str,
    /// The peer address of each node, including nodes that were never started.
    addresses: BTreeMap<String, String>,
    nodes: BTreeMap<String, Node>,
}

impl Keepers {
    /// Starts nodes with these names, and waits until one leads.
    pub fn start(test: &str, names: &[&str]) -> Self {
        Self::reserve(test, names).started(names)
    }

    /// The same with the logs in memory.
    pub fn start_in_memory(test: &str, names: &[&str]) -> Self {
        Self { metadata: "memory", ..Self::reserve(test, names) }.started(names)
    }

    fn started(mut self, names: &[&str]) -> Self {
        for name in names {
            self.launch(name, &[]);
        }
        self.leader();
        self
    }

    /// Reserves addresses for nodes with these names, without starting them.
    pub fn reserve(test: &str, names: &[&str]) -> Self {
        let (place, nodes) = (Place::new(test), BTreeMap::new());
        let mut keepers = Self { place, metadata: "fsync", addresses: BTreeMap::new(), nodes };
        for name in names {
            keepers.add(name);
        }
        keepers
    }

    /// Reserves an address for one more node: `NAME=HOST:PORT`.
    pub fn add(&mut self, name: &str) -> String {
        self.add_at(name, &format!("127.0.0.1:{}", free_port()))
    }

    /// Adds a node with this address.
    pub fn add_at(&mut self, name: &str, address: &str) -> String {
        self.addresses.insert(name.to_owned(), address.to_owned());
        format!("{name}={address}")
    }

    /// Removes a node: it is ended, and not listed for nodes that start from now on.
    pub fn forget(&mut self, name: &str) -> String {
        self.nodes.remove(name);
        self.addresses.remove(name).unwrap()
    }

    pub fn address(&self, name: &str) -> &str {
        &self.addresses[name]
    }

    /// Starts a node for the first time, with these further options.
    pub fn launch(&mut self, name: &str, options: &[&str]) {
        self.launch_within(&[], name, options);
    }

    /// The same, started by a command that becomes the node.
    pub fn launch_within(&mut self, within: &[String], name: &str, options: &[&str]) {
        let peers: Vec<String> =
            self.addresses.iter().map(|(node, address)| format!("{node}={address}")).collect();
        let (peers, dir) = (peers.join(","), self.dir(name));
        let dir = dir.to_str().unwrap();
        let args = ["node", "--json", "--election", ELECTION, "--node", name, "--peers", &peers];
        let keeps = ["--state-dir", dir, "--metadata", self.metadata, "--etcd-api", "0"];
        let args = strings(&[&args[..], &keeps, options].concat());
        self.nodes.insert(name.to_owned(), Node::start_within(&self.place, within, name, &args));
    }

    /// Restarts a node that has ended.
    pub fn restart(&mut self, name: &str) {
        let node = self.nodes.get_mut(name).unwrap();
        node.restart(&self.place);
    }

    pub fn node(&mut self, name: &str) -> &mut Node {
        self.nodes.get_mut(name).unwrap()
    }

    /// Ends a node in order.
    pub fn stop(&mut self, name: &str) {
        let node = self.node(name);
        node.signal(Signal::TERM);
        assert_eq!(node.wait().code(), Some(143), "{}", node.history());
    }

    pub fn kill(&mut self, name: &str) {
        let node = self.node(name);
        node.signal(Signal::KILL);
        node.wait();
    }

    /// The state directory of a node.
    pub fn dir(&self, name: &str) -> PathBuf {
        self.place.path(name)
    }

    /// The path of a segment file of its log.
    pub fn log(&self, name: &str) -> PathBuf {
        self.dir(name).join(format!("{ELECTION}@{name}.log"))
    }

    /// Waits until a running node leads.
    pub fn leader(&mut self) -> String {
        let mut leader = None;
        wait_until("the election", || {
            let mut running = self.nodes.iter_mut().filter_map(|(name, node)| {
                let runs = node.ended().is_none();
                (runs && node.leads()).then(|| name.clone())
            });
            leader = running.next();
            leader.is_some()
        });
        leader.unwrap()
    }

    /// Makes this node the leader.
    pub fn lead(&mut self, name: &str) {
        let leader = self.leader();
        if leader != name {
            self.verb(&leader, &["transfer", "--to", name]).is(0, &[]);
        }
        wait_until("the transfer", || self.leader() == name);
    }

    /// The command line of an operator's command for this node.
    fn words(&self, asked: &str, args: &[&str]) -> Vec<String> {
        let dir = self.dir(asked);
        let target = ["--election", ELECTION, "--state-dir", dir.to_str().unwrap()];
        strings(&[args, &target].concat())
    }

    /// Runs an operator's command at a node.
    pub fn verb(&self, asked: &str, args: &[&str]) -> Said {
        let output = self.place.output(&self.words(asked, args));
        Said { code: output.status.code(), stdout: stdout(&output), stderr: stderr(&output) }
    }

    /// Starts an operator's command at a node, without waiting for its end.
    pub fn begin(&self, asked: &str, args: &[&str]) -> Node {
        Node::start(&self.place, "operator", &self.words(asked, &[args, &["--json"]].concat()))
    }

    /// The status of a node; waits until a newly started node answers.
    pub fn who(&self, asked: &str) -> Value {
        let mut who = None;
        wait_until("an answer", || {
            who = serde_json::from_str(&self.verb(asked, &["status", "--json"]).stdout).ok();
            who.is_some()
        });
        who.unwrap()
    }

    /// True if a node reports that it has lost its log.
    pub fn has_lost_its_log(&self, name: &str) -> bool {
        self.who(name)["peers"]["metadata"]["recovering"] == true
    }

    /// The voters in this node's list, each with its address.
    pub fn voters(&self, asked: &str) -> BTreeMap<String, String> {
        let said = self.verb(asked, &["member", "list", "--json"]);
        said.is(0, &[]);
        let said: Value = serde_json::from_str(&said.stdout).unwrap();
        serde_json::from_value(said["voters"].clone()).unwrap()
    }

    /// These nodes with their addresses, in the form of a list of voters.
    pub fn listed(&self, names: &[&str]) -> BTreeMap<String, String> {
        names.iter().map(|&name| (name.to_owned(), self.addresses[name].clone())).collect()
    }

    /// Waits until each of these nodes lists all of them as the voters.
    pub fn all_vote(&self, names: &[&str]) {
        let wanted = self.listed(names);
        for name in names {
            wait_until("the list of voters", || self.voters(name) == wanted);
        }
    }

    /// The address of a node's etcd API.
    pub fn etcd_api(&self, name: &str) -> String {
        let serving = self.nodes[name].told.wait_for_event("serving_clients");
        serving["address"].as_str().unwrap().to_owned()
    }

    /// A client of a node's etcd API.
    pub async fn asked(&self, name: &str) -> Asked {
        Asked::new(&self.etcd_api(name)).await
    }

    /// Writes a key once, with its [`value`].
    pub async fn put(&self, name: &str, key: &str) -> Result<(), (Code, String)> {
        let put = api::PutRequest { key: key.into(), value: value(key), ..Default::default() };
        let answer: Result<api::PutResponse, _> = self.asked(name).await.ask(method::PUT, &put).await;
        answer.map(drop)
    }

    /// Retries the write of a key until it is acknowledged, which needs a leader.
    pub async fn write(&self, name: &str, key: &str) {
        let began = Instant::now();
        while let Err(error) = self.put(name, key).await {
            assert!(began.elapsed() < PATIENCE, "{key} is not acknowledged: {error:?}");
            tokio::time::sleep(POLL).await;
        }
    }

    /// Writes this number of keys with this prefix.
    pub async fn write_some(&self, name: &str, begin: &str, count: usize) -> BTreeSet<String> {
        let keys: BTreeSet<String> = (0..count).map(|index| format!("{begin}-{index}")).collect();
        for key in &keys {
            self.write(name, key).await;
        }
        keys
    }

    /// Returns all keys by a linearizable read at this node's etcd API. Checks that each has its own value.
    pub async fn keys(&self, name: &str) -> BTreeSet<String> {
        let all = api::RangeRequest { key: vec![0], range_end: vec![0], ..Default::default() };
        let (asked, began) = (self.asked(name).await, Instant::now());
        let found: api::RangeResponse = loop {
            match asked.ask(method::RANGE, &all).await {
                Ok(found) => break found,
                Err(error) => assert!(began.elapsed() < PATIENCE, "{name} does not answer: {error:?}"),
            }
            tokio::time::sleep(POLL).await;
        };
        let found = found.kvs.into_iter().map(|kv| {
            let key = String::from_utf8(kv.key).unwrap();
            assert!(kv.value == value(&key), "{key} has another value");
            key
        });
        found.collect()
    }
}

/// The value of a key: long enough to fill a small disk soon.
pub fn value(key: &str) -> Vec<u8> {
    key.bytes().cycle().take(8 << 10).collect()
}
