//! Primacy's own store `etcd`, with the etcd API in etcd's place: all tests over etcd in `primacy-conformance`, all
//! laws of stores, and those of elections.

#[path = "../../../../primacy-conformance/tests/live/etcd/store/mod.rs"]
mod told;

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;
use std::time::Duration;

use primacy_conformance::elections::deployment::Server;
use primacy_conformance::elections::processes::{campaign_if_told, hold};
use primacy_conformance::live::etcd::{Etcd, Tls};
use primacy_conformance::live::{Ground, only_test, program};
use primacy_conformance::{Outcome, REQUIRE_LIVE_VARIABLE};

use self::told::laws;
use primacy_testbed::etcd_api;

/// The time by which a session may end late: as with etcd, a new leader gives every session its whole time again.
const LATE: Duration = Duration::from_secs(5);

/// Starts three nodes of ours, if the other programs that are needed are there; else returns `None`, and
/// prints it.
async fn cluster(tls: Option<Tls>) -> Option<Etcd> {
    cluster_with(tls, &[]).await
}

/// The same, with the user `elector` and the password `secret-of-elector`.
async fn cluster_with_users() -> Option<Etcd> {
    let ground = Ground::new("etcd-api-electors");
    let users = ground.at("users");
    std::fs::write(&users, "elector:secret-of-elector\n").unwrap();
    std::fs::set_permissions(&users, Permissions::from_mode(0o600)).unwrap();
    let mut cluster = cluster_with(None, &["--etcd-api-users", users.to_str().unwrap()]).await?;
    cluster.keep(ground);
    Some(cluster)
}

async fn cluster_with(tls: Option<Tls>, arguments: &[&str]) -> Option<Etcd> {
    // Foreign clients campaign in the same elections, and operators inspect them.
    if let Err(why) = program("etcdctl") {
        eprintln!("etcdctl: NOT RUN: {why}");
        assert!(std::env::var_os(REQUIRE_LIVE_VARIABLE).is_none(), "etcdctl is required to be there: {why}");
        return None;
    }
    Some(etcd_api::open_with(tls, arguments).await)
}

#[tokio::test(flavor = "multi_thread")]
async fn the_laws_of_records_are_kept_over_the_etcd_api() {
    let cluster = etcd_api::open(&[]).await;
    let outcomes = laws::check(&cluster).await;
    assert!(outcomes.iter().all(|(_, outcome)| *outcome == Outcome::Passed), "{outcomes:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_laws_of_sessions_are_kept_over_the_etcd_api() {
    let outcomes = laws::check_sessions(etcd_api::open(&[]).await).await;
    assert!(outcomes.iter().all(|(_, outcome)| *outcome == Outcome::Passed), "{outcomes:?}");
}

/// This program once more, with nothing to do but [`campaign_as_a_candidate`].
fn candidate() -> Command {
    only_test(module_path!(), "campaign_as_a_candidate")
}

/// Not a test of its own: the main function of each candidate's process.
#[tokio::test]
async fn campaign_as_a_candidate() {
    campaign_if_told().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_laws_of_elections_are_kept_over_the_etcd_api() {
    let cluster = etcd_api::open(&[]).await;
    let sessions = Server::of_records(cluster.url("", "/elections"));
    let sessions = Server { expires_late: LATE, ..sessions };
    let records = Server::of_records(cluster.url("", "/records?recipe=lease"));
    tokio::join!(hold("primacy", sessions, candidate), hold("primacy, recipe=lease", records, candidate),);
}
