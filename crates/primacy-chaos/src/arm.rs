//! The arms: what every run tries, an election each.

use std::path::Path;
use std::time::Duration;

use crate::fault::Kind;

/// The table: every election and every store that is tried is one line of it.
#[rustfmt::skip]
pub(crate) const ARMS: &[Arm] = &[
    Arm { name: "peers-3", nodes: 3, held: Held::AmongPeers },
    Arm { name: "peers-5", nodes: 5, held: Held::AmongPeers },
    Arm { name: "sqlite",  nodes: 3, held: Held::OverStore("sqlite:{store}/election.db") },
    Arm { name: "file",    nodes: 3, held: Held::OverStore("file:{store}/election") },
];

/// The lease of every arm: short, so that an hour has many leaders; and as long as `primacy run` takes among peers.
pub(crate) const LEASE: Duration = Duration::from_secs(1);
/// How long a job may take to end in order, and how long before the end of the lease it is killed: the margin of a longer
/// lease, for a machine that is busy with everything else.
pub(crate) const DRAIN: Duration = Duration::from_millis(250);
pub(crate) const KILL_MARGIN: Duration = Duration::from_millis(200);

/// The name of the election in every arm.
pub(crate) const ELECTION: &str = "chaos";
/// The port of every peer, which has an address of its own.
const PORT: u16 = 7400;

/// One election.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Arm {
    /// What it is called on the command line and in the table.
    pub(crate) name: &'static str,
    /// How many nodes compete.
    pub(crate) nodes: usize,
    /// Where the election is held.
    pub(crate) held: Held,
}

/// Where an election is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Held {
    /// Among the nodes, each in a network namespace of its own.
    AmongPeers,
    /// In a store of this URL, where `{store}` stands for a directory.
    OverStore(&'static str),
}

impl Arm {
    /// The arm of this name.
    pub(crate) fn named(name: &str) -> Option<Self> {
        ARMS.iter().copied().find(|arm| arm.name == name)
    }

    /// The names of the nodes, in the order of the alphabet.
    pub(crate) fn node_names(&self) -> Vec<String> {
        ('a'..='z').take(self.nodes).map(String::from).collect()
    }

    /// Whether the nodes talk to each other, so that links can be cut.
    pub(crate) fn has_network(&self) -> bool {
        self.held == Held::AmongPeers
    }

    /// Whether this fault means anything here.
    pub(crate) fn knows(&self, kind: Kind) -> bool {
        let enough = self.nodes >= kind.nodes_min();
        enough
            && (self.has_network() || !kind.is_of_network())
            && (self.has_network() || kind != Kind::Transfer)
            // The state file of a peer has its room from the first start on, and is written in place.
            && (!self.has_network() || kind != Kind::FullDisk)
    }

    /// The address of a node in its namespace.
    pub(crate) fn address(index: usize) -> String {
        format!("10.77.0.{}", index + 1)
    }

    /// The options of `primacy run` that say where the election is held.
    pub(crate) fn options(&self, state: &Path, store: &Path) -> Vec<String> {
        let mut options: Vec<String> = vec!["--state-dir".into(), state.display().to_string()];
        match self.held {
            Held::AmongPeers => {
                let peer = |(index, name): (usize, String)| format!("{name}={}:{PORT}", Self::address(index));
                let peers: Vec<String> = self.node_names().into_iter().enumerate().map(peer).collect();
                options.extend(["--peers".into(), peers.join(","), "--safety".into(), "lease".into()]);
                // Nothing leaves the namespaces, which are this run's own.
                options.push("--insecure-cleartext".into());
            }
            Held::OverStore(url) => {
                let url = url.replace("{store}", &store.display().to_string());
                options.extend(["--on".into(), url]);
            }
        }
        let millis = |duration: Duration| format!("{}ms", duration.as_millis());
        options.extend(["--lease".into(), millis(LEASE), "--drain".into(), millis(DRAIN)]);
        options.extend(["--kill-margin".into(), millis(KILL_MARGIN)]);
        options
    }
}
