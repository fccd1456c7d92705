//! Every election under the laws, on its simulated and its live arms.

use std::io::Write;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use primacy_conformance::elections::deployment::Deployment;
use primacy_conformance::elections::in_process::InProcess;
use primacy_conformance::elections::processes::{Processes, campaign_if_told};
use primacy_conformance::elections::{
    Bounds, ElectionHarness, LAWS, Need, NodeCommand, NodeEvent, Pace, Waiting, check, simulated,
};
use primacy_conformance::{Outcome, table};

/// If set, the table is written anew.
const UPDATE_VARIABLE: &str = "UPDATE_GOLDENFILES";
const TABLE: (&str, &str) = (
    "<!-- made by `UPDATE_GOLDENFILES=1 cargo test -p primacy-conformance --test elections` -->\n\n",
    "\n<!-- end -->",
);

/// The outcomes of the laws on an arm.
type Column = (String, Vec<(&'static str, Outcome)>);

#[tokio::test]
async fn simulated_elections_keep_the_laws_with_every_seed() {
    for seed in 1..=20 {
        for mut arm in simulated_arms(seed) {
            keeps_all_but(&mut *arm, &[]).await;
        }
    }
}

fn simulated_arms(seed: u64) -> [Box<dyn ElectionHarness>; 3] {
    let (quorum, lease) = (simulated::quorum(seed), simulated::lease(seed));
    [Box::new(quorum), Box::new(lease), Box::new(simulated::session(seed))]
}

/// This program once more, with nothing to do but [`campaign_as_a_candidate`].
fn candidate() -> Command {
    let mut command = Command::new(std::env::current_exe().expect("a test knows its own program"));
    command.args(["--exact", "campaign_as_a_candidate", "--nocapture"]);
    command
}

/// Not a test of its own: the process of each candidate.
#[tokio::test]
async fn campaign_as_a_candidate() {
    campaign_if_told().await;
}

/// A directory that is removed at the end.
struct Directory(PathBuf);

impl Directory {
    fn new() -> Self {
        let path = std::env::temp_dir().join(format!("primacy-election-laws-{}", std::process::id()));
        std::fs::create_dir_all(&path).expect("the temporary directory can be written");
        Self(path)
    }

    fn at(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Checks that exactly these laws are not claimed, and all others are kept.
async fn keeps_all_but(arm: &mut dyn ElectionHarness, not_claimed: &[&str]) -> Column {
    let outcomes = check(arm).await;
    let others = outcomes.iter().filter(|(_, outcome)| *outcome != Outcome::Passed);
    let others: Vec<_> = others.map(|(law, outcome)| (*law, *outcome)).collect();
    let expected: Vec<_> = not_claimed.iter().map(|law| (*law, Outcome::NotClaimed)).collect();
    assert_eq!(others, expected, "{}", arm.name());
    (arm.name(), outcomes)
}

const NO_DRIFT: [&str; 1] = ["two_holders_never_overlap_under_drift"];
const NO_PAUSE: [&str; 3] = [
    "two_holders_never_overlap_under_drift",
    "a_paused_leader_finds_itself_deposed",
    "the_fence_refuses_its_late_write",
];
const NO_SILENCE: [&str; 4] = [
    "two_holders_never_overlap_under_drift",
    "a_paused_leader_finds_itself_deposed",
    "the_fence_refuses_its_late_write",
    "expiry_hands_over_within_the_documented_bound",
];

/// In one test, so that the table is of one run; and all live arms at once, for they do little but wait.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_election_keeps_the_laws_and_the_table_says_so() {
    let directory = Directory::new();
    let store =
        |scheme: &str, name: &str| Deployment::Store(format!("{scheme}:{}", directory.at(name).display()));
    let mut memory =
        InProcess::new("lease over memory", Deployment::Store("memory:election-laws".to_owned()));
    let sessions = Deployment::Store("memory-sessions:election-laws".to_owned());
    let mut sessions = InProcess::new("session over memory", sessions);
    let mut sqlite = Processes::new("lease over sqlite", store("sqlite", "laws.db"), candidate);
    let mut files = Processes::new("lease over files", store("file", "laws"), candidate);
    let mut peers =
        Processes::new("quorum among processes", Deployment::Peers(directory.at("peers")), candidate);
    let mut one = InProcess::new("quorum within one process", Deployment::Peers(directory.at("one")));
    let mut columns = Vec::new();
    for mut arm in simulated_arms(0) {
        columns.push(keeps_all_but(&mut *arm, &[]).await);
    }
    columns.extend(<[Column; 6]>::from(tokio::join!(
        keeps_all_but(&mut memory, &NO_PAUSE),
        keeps_all_but(&mut sessions, &NO_PAUSE),
        keeps_all_but(&mut sqlite, &NO_DRIFT),
        keeps_all_but(&mut files, &NO_DRIFT),
        keeps_all_but(&mut peers, &NO_DRIFT),
        keeps_all_but(&mut one, &NO_SILENCE),
    )));
    let table = table::render(&LAWS.map(|law| law.name), &columns);
    // Not by a macro: output of a test by macros is not shown when it passes.
    let _ = write!(std::io::stderr(), "\n{table}\n");
    let page = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/algorithms/README.md");
    table::keep(&page, TABLE, &table, std::env::var_os(UPDATE_VARIABLE).is_some());
}

/// An arm that is not there.
struct Absent;

impl ElectionHarness for Absent {
    fn name(&self) -> String {
        "absent".to_owned()
    }

    fn lacks(&self, _need: Need) -> Option<&'static str> {
        None
    }

    fn reach(&self) -> Result<(), String> {
        Err("nobody listens".to_owned())
    }

    fn begin<'a>(&'a mut self, _election: &'a str, _pace: Pace) -> Waiting<'a, ()> {
        unreachable!("it is not there")
    }

    fn command(&mut self, _node: usize, _command: NodeCommand) -> Waiting<'_, ()> {
        unreachable!("it is not there")
    }

    fn next(&mut self) -> Waiting<'_, Option<NodeEvent>> {
        unreachable!("it is not there")
    }

    fn now(&self) -> u64 {
        0
    }

    fn patience(&self) -> Duration {
        Duration::ZERO
    }

    fn bounds(&self) -> Bounds {
        Bounds { release: Duration::ZERO, expiry: Duration::ZERO }
    }
}

#[tokio::test]
async fn an_arm_that_is_not_there_is_not_run_and_never_passed() {
    let set = tokio::task::LocalSet::new();
    let checking = async { tokio::task::spawn_local(async { check(&mut Absent).await }).await };
    let outcomes = set.run_until(checking).await;
    if std::env::var_os(primacy_conformance::REQUIRE_LIVE_VARIABLE).is_some() {
        assert!(outcomes.expect_err("it is required to be there").is_panic());
    } else {
        assert!(outcomes.expect("no panic").iter().all(|(_, outcome)| *outcome == Outcome::NotRun));
    }
}
