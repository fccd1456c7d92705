//! Certificates that are replaced under a running election.

use std::time::Duration;

use primacy::Elector;
use primacy_conformance::live::Ground;
use primacy_conformance::live::etcd::{Etcd, Tls};
use tokio::time::timeout;

use super::store::PATIENCE;
use crate::to_be_tried;

/// Longer than a server takes to start, also on a busy machine.
const LEASE: Duration = Duration::from_secs(20);

/// The server comes back with a certificate of another authority, and requires one of that, too: the leader goes on with its token, and
/// leads on.
#[tokio::test(flavor = "multi_thread")]
async fn a_leader_goes_on_when_the_certificates_and_their_authority_are_replaced() {
    for recipe in ["", "?recipe=lease"] {
        let ground = Ground::new("rotation");
        let tls = Tls::issue(&ground, "store");
        let Some(mut etcd) = to_be_tried("etcd", Etcd::start_of(1, Some(tls))).await else { return };
        let url = etcd.url("", &format!("/app{recipe}"));
        primacy::init(&url, "e", LEASE).await.unwrap();
        let elector = Elector::builder().election("e").lease(LEASE).connect(&url).await.unwrap();
        let leadership = timeout(2 * PATIENCE, elector.campaign()).await.unwrap().unwrap();
        let token = leadership.token();
        for _ in 0..2 {
            Tls::issue(&ground, "store");
            etcd.kill(0);
            etcd.restart(0).await;
            let until = leadership.valid_until();
            timeout(2 * PATIENCE, leadership.renewed(until))
                .await
                .unwrap()
                .expect("it renews over the new server");
        }
        assert_eq!(leadership.token(), token, "{url}");
    }
}
