//! The library over Consul.

use primacy::core::Reason;
use primacy::{Elector, Leadership};
use serde_json::json;

use super::*;

/// The lease where Consul is away for half of it: so long that a busy machine starts a server within the other half.
const LONG: Duration = Duration::from_secs(20);

async fn elector(url: &str, lease: Duration) -> Elector {
    Elector::builder().election("e").lease(lease).connect(url).await.expect("it is there")
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
    let (one, two) = (elector(&url, TIMEOUT).await, elector(&url, TIMEOUT).await);
    let first = campaign(&one).await;
    let token = first.token();
    let waiting = {
        let two = two.clone();
        tokio::spawn(async move { campaign(&two).await })
    };
    // The second learns of it by the key, and not from the leader.
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
    let one = elector(&consul.url("elections"), LONG).await;
    let leadership = campaign(&one).await;
    // From a renewal on, so that the other half of the lease is left.
    let renewing = leadership.renewed(leadership.valid_until());
    tokio::time::timeout(PATIENCE, renewing).await.expect("it renews").expect("it leads");
    consul.kill();
    tokio::time::sleep(LONG / 2).await;
    consul.restart().await;
    // Longer than the lease from before the outage.
    let lost = tokio::time::timeout(LONG, leadership.lost()).await;
    assert!(lost.is_err(), "{lost:?}");
    leadership.check().expect("it leads");
}
