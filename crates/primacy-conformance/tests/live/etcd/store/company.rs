//! Company: `etcdctl elect` and Primacy in one election.

use std::time::Duration;

use primacy_conformance::live::{Ground, Server};
use primacy_core::election::session::QueuePosition;
use rustix::process::Signal;

use super::{Candidate, cluster, sessions, soon};

/// The number of times that the lead goes to and fro.
const ROUNDS: u32 = 4;

/// The interval between two looks at the foreign client's output.
const POLL: Duration = Duration::from_millis(10);

#[tokio::test(flavor = "multi_thread")]
async fn etcdctl_elect_and_primacy_take_over_from_each_other_and_never_both_lead() {
    let Some(etcd) = cluster(None).await else { return };
    let ground = Ground::new("company");
    let url = etcd.url("", "/app");
    // The election of `etcdctl elect app/jobs`.
    let ours = Candidate::new(&url, "jobs", "ours").await;
    let observer = sessions(&url, "jobs").await;
    let mut last = ours.win().await;
    for round in 0..ROUNDS {
        let proposal = format!("host-{round}");
        let command = etcd.etcdctl(&["elect", "app/jobs", &proposal]);
        let mut stranger = Server::start(&format!("elect-{round}"), command, &ground);
        // It waits: two in the queue, and we lead.
        soon(async {
            while super::entries(&etcd, "app/jobs/").len() < 2 {
                tokio::time::sleep(POLL).await;
            }
        })
        .await;
        assert!(matches!(ours.campaign().await, Ok(QueuePosition::First { token, .. }) if token == last));
        assert!(!stranger.printed().contains(&proposal), "we have not left");
        ours.leave().await;
        soon(async {
            while !stranger.printed().contains(&proposal) {
                assert_eq!(stranger.lives(), Ok(()));
                tokio::time::sleep(POLL).await;
            }
        })
        .await;
        // The other way round: it leads, and so we do not, for every observer.
        ours.is_behind(&proposal).await;
        let first = soon(observer.first()).await.unwrap().expect("it leads");
        assert_eq!(first.holder.identity.node.as_str(), proposal);
        assert!(first.token > last);
        assert_eq!(soon(observer.ask_to_resign(first.token, "test")).await, Ok(false), "it would not know");
        let mut told = ours.store.changed();
        assert!(tokio::time::timeout(POLL, &mut told).await.is_err());
        stranger.signal(Signal::INT);
        soon(told).await;
        let token = ours.win().await;
        assert!(token > first.token);
        last = token;
    }
}
