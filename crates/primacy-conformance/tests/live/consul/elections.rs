//! The library over Consul.

use primacy::core::Reason;
use primacy::{Elector, Leadership};
use serde_json::json;

use super::*;

/// How long Consul is away in the story that changes no leader: half of the lease.
const OUTAGE: Duration = Duration::from_secs(5);

async fn elector(url: &str) -> Elector {
    Elector::builder().election("e").lease(TIMEOUT).connect(url).await.expect("it is there")
}

async fn campaign(elector: &Elector) -> Leadership {
    let elected = tokio::time::timeout(PATIENCE, elector.campaign()).await;
    elected.expect("somebody is elected").expect("the elector is open")
}

async fn loss(leadership: &Leadership) -> Reason {
    tokio::time::timeout(PATIENCE, leadership.lost()).await.expect("it is noticed")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_resigns_to_the_next_and_a_session_that_ends_ends_the_lead() {
    let Some(consul) = consul().await else { return };
    let url = consul.url("elections");
    let (one, two) = (elector(&url).await, elector(&url).await);
    let first = campaign(&one).await;
    let token = first.token();
    let waiting = {
        let two = two.clone();
        tokio::spawn(async move { campaign(&two).await })
    };
    // The second is told by the key, and not by the leader.
    tokio::time::timeout(PATIENCE, first.resign()).await.expect("it ends");
    let second = tokio::time::timeout(PATIENCE, waiting).await.expect("it is elected").expect("no panic");
    assert!(second.token() > token);
    let held = consul.key("elections/e/.lock").expect("a key");
    consul.order("expire", &json!({"session": held["Session"]}));
    assert_eq!(loss(&second).await, Reason::SessionEnded);
    let third = campaign(&two).await;
    assert!(third.token() > second.token(), "the same process leads again");
    one.close().await;
    drop(third);
    two.close().await;
    assert!(consul.sessions().is_empty(), "nothing is left behind");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_outage_of_half_a_lease_changes_no_leader() {
    let Some(mut consul) = consul().await else { return };
    let one = elector(&consul.url("elections")).await;
    let leadership = campaign(&one).await;
    consul.kill();
    tokio::time::sleep(OUTAGE).await;
    consul.restart().await;
    // Longer than the lease from before the outage.
    let lost = tokio::time::timeout(TIMEOUT, leadership.lost()).await;
    assert!(lost.is_err(), "{lost:?}");
    leadership.check().expect("it leads");
}
