//! Every election under the laws, on its simulated and its live arms.

use std::path::PathBuf;
use std::process::Command;

use primacy_conformance::Outcome;
use primacy_conformance::elections::in_process::InProcess;
use primacy_conformance::elections::processes::{Processes, stand_if_told};
use primacy_conformance::elections::venue::Venue;
use primacy_conformance::elections::{ElectionHarness, LAWS, check, simulated};

#[tokio::test]
async fn simulated_elections_keep_the_laws() {
    for seed in 1..=20 {
        let arms: [Box<dyn ElectionHarness>; 2] =
            [Box::new(simulated::quorum(seed)), Box::new(simulated::lease(seed))];
        for mut arm in arms {
            let outcomes = check(&mut *arm).await;
            assert_eq!(outcomes, LAWS.map(|law| (law.name, Outcome::Passed)), "{} {seed}", arm.name());
        }
    }
}

/// This program once more, with nothing to do but [`stand_as_a_candidate`].
fn candidate() -> Command {
    let mut command = Command::new(std::env::current_exe().expect("a test knows its own program"));
    command.args(["--exact", "stand_as_a_candidate", "--nocapture"]);
    command
}

/// Not a test of its own: what each candidate's process does.
#[tokio::test]
async fn stand_as_a_candidate() {
    stand_if_told().await;
}

/// A directory that is removed at the end.
struct Directory(PathBuf);

impl Directory {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("primacy-election-laws-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).expect("the temporary directory can be written");
        Self(path)
    }

    fn at(&self, name: &str) -> String {
        self.0.join(name).display().to_string()
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// What is not claimed there is exactly this.
async fn keeps_all_but(mut arm: impl ElectionHarness, not_claimed: &[&str]) {
    let outcomes = check(&mut arm).await;
    let others = outcomes.iter().filter(|(_, outcome)| *outcome != Outcome::Passed);
    let others: Vec<_> = others.map(|(law, outcome)| (*law, *outcome)).collect();
    let expected: Vec<_> = not_claimed.iter().map(|law| (*law, Outcome::NotClaimed)).collect();
    assert_eq!(others, expected, "{}", arm.name());
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

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn leases_over_memory_keep_the_laws() {
    let venue = Venue::Store("memory:election-laws".to_owned());
    keeps_all_but(InProcess::new("lease over memory", venue), &NO_PAUSE).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn leases_over_sqlite_keep_the_laws() {
    let directory = Directory::new("sqlite");
    let venue = Venue::Store(format!("sqlite:{}", directory.at("laws.db")));
    keeps_all_but(Processes::new("lease over sqlite", venue, candidate), &NO_DRIFT).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn leases_over_files_keep_the_laws() {
    let directory = Directory::new("file");
    let venue = Venue::Store(format!("file:{}", directory.at("laws")));
    keeps_all_but(Processes::new("lease over files", venue, candidate), &NO_DRIFT).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn peers_in_processes_keep_the_laws() {
    let directory = Directory::new("peers");
    let venue = Venue::Peers(directory.0.clone());
    keeps_all_but(Processes::new("quorum among processes", venue, candidate), &NO_DRIFT).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn peers_in_one_process_keep_the_laws() {
    let directory = Directory::new("one");
    let venue = Venue::Peers(directory.0.clone());
    keeps_all_but(InProcess::new("quorum within one process", venue), &NO_SILENCE).await;
}
