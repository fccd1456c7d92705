//! The arms: what every run tries, an election each.

use std::path::Path;
use std::time::Duration;

use crate::fault::Kind;

/// The table: every election and every store that is tried is one line of it. Those that are not of the usual run are to be
/// named: a machine that runs all of them at once measures itself. An advisory election promises nothing that could be judged,
/// so each of them runs as what nominates.
#[rustfmt::skip]
pub(crate) const ARMS: &[Arm] = &[
    Arm { name: "peers-3",           nodes: 3, usual: true,  held: Held::AmongPeers(Way::Quorum) },
    Arm { name: "peers-5",           nodes: 5, usual: true,  held: Held::AmongPeers(Way::Quorum) },
    Arm { name: "sqlite",            nodes: 3, usual: true,  held: Held::OverStore("sqlite:{store}/election.db") },
    Arm { name: "file",              nodes: 3, usual: true,  held: Held::OverStore("file:{store}/election") },
    Arm { name: "ranked",            nodes: 5, usual: false, held: Held::AmongPeers(Way::Ranked) },
    Arm { name: "bully",             nodes: 5, usual: false, held: Held::AmongPeers(Way::ByQuorum("bully")) },
    Arm { name: "ring",              nodes: 5, usual: false, held: Held::AmongPeers(Way::ByStore("ring", SQLITE)) },
    Arm { name: "ring-bidirectional", nodes: 5, usual: false, held: Held::AmongPeers(Way::ByQuorum("ring-bidirectional")) },
    Arm { name: "seniority",         nodes: 5, usual: false, held: Held::AmongPeers(Way::ByQuorum("seniority")) },
];

const SQLITE: &str = "sqlite:{store}/election.db";

/// The lease of every arm: short, so that an hour has many leaders; and as long as `primacy run` takes among peers.
pub(crate) const LEASE: Duration = Duration::from_secs(1);
/// How long a job may take to end in order, and how long before the end of the lease it is killed: the margin of a longer
/// lease, for a machine that is busy with everything else.
pub(crate) const DRAIN: Duration = Duration::from_millis(250);
pub(crate) const KILL_MARGIN: Duration = Duration::from_millis(200);

/// The name of the election in every arm.
pub(crate) const ELECTION: &str = "chaos";

/// One election.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Arm {
    /// What it is called on the command line and in the table.
    pub(crate) name: &'static str,
    /// How many nodes compete.
    pub(crate) nodes: usize,
    /// Whether it is part of a run that names no arm.
    pub(crate) usual: bool,
    /// Where the election is held.
    pub(crate) held: Held,
}

/// Where an election is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Held {
    /// Among the nodes, each in a network namespace of its own.
    AmongPeers(Way),
    /// In a store of this URL, where `{store}` stands for a directory.
    OverStore(&'static str),
}

/// How a leader is found among peers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// By a majority.
    Quorum,
    /// By a majority of votes, each for the best claim.
    Ranked,
    /// This election nominates, a quorum confirms.
    ByQuorum(&'static str),
    /// This election nominates, a lease in the store of this URL confirms.
    ByStore(&'static str, &'static str),
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
        matches!(self.held, Held::AmongPeers(_))
    }

    /// Whether the lead can be given to a certain node. Where one election nominates, its rule says who is next.
    fn chooses_successor(&self) -> bool {
        matches!(self.held, Held::AmongPeers(Way::Quorum | Way::Ranked))
    }

    /// Whether this fault means anything here.
    pub(crate) fn knows(&self, kind: Kind) -> bool {
        let enough = self.nodes >= kind.nodes_min();
        enough
            && (self.has_network() || !kind.is_of_network())
            && (self.chooses_successor() || kind != Kind::Transfer)
            // The state file of a peer has its room from the first start on, and is written in place.
            && (!self.has_network() || kind != Kind::FullDisk)
    }

    /// The options of `primacy run` that say where the election is held, but for the list of peers.
    pub(crate) fn options(&self, state: &Path, store: &Path) -> Vec<String> {
        let mut options: Vec<String> = vec!["--state-dir".into(), state.display().to_string()];
        match self.held {
            Held::AmongPeers(way) => {
                options.extend(match way {
                    Way::Quorum => vec!["--safety".into(), "lease".into()],
                    Way::Ranked => vec!["--by".into(), "ranked".into()],
                    Way::ByQuorum(by) => {
                        ["--by", by, "--confirm", "quorum"].into_iter().map(String::from).collect()
                    }
                    Way::ByStore(by, url) => {
                        let url = url.replace("{store}", &store.display().to_string());
                        vec!["--by".into(), by.into(), "--confirm".into(), url]
                    }
                });
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
