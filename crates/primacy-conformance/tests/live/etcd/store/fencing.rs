//! The guards of `primacy::fence::etcd`.

use primacy::fence::FenceError;
use primacy::fence::etcd::{EtcdFence, GuardError, Leader, Write, client};
use primacy_core::FencingToken;

use super::{Candidate, cluster, soon};

fn put(key: &str, value: &str) -> Vec<Write> {
    vec![Write::Put { key: key.into(), value: value.into() }]
}

#[tokio::test(flavor = "multi_thread")]
async fn the_guard_of_a_leader_refuses_a_zombie_before_anybody_else_leads() {
    let Some(etcd) = cluster(None).await else { return };
    let url = etcd.url("", "/app");
    let a = Candidate::new(&url, "e", "a").await;
    let token = a.win().await;
    let client = client(&url).unwrap();
    let leader = soon(Leader::find(&client, "e", token)).await.unwrap();
    soon(leader.write(put("data", "1"))).await.unwrap();
    // Its session ends, and it does not know it. There is no successor.
    let _ = etcd.told(&["lease", "revoke", a.session.as_str()]);
    let late = soon(leader.write(put("data", "late"))).await;
    assert!(matches!(late, Err(GuardError::Over { token: over }) if over == token), "{late:?}");
    let found = soon(Leader::find(&client, "e", token)).await;
    assert!(matches!(found, Err(GuardError::Over { .. })), "{found:?}");
    assert_eq!(etcd.told(&["get", "data", "--print-value-only"]).trim(), "1");
    // The next one, in the same process.
    let b = Candidate::new(&url, "e", "b").await;
    let next = soon(Leader::find(&client, "e", b.win().await)).await.unwrap();
    soon(next.write(vec![Write::Delete { key: b"data".to_vec() }])).await.unwrap();
    assert!(soon(leader.write(put("data", "late"))).await.is_err());
    assert_eq!(etcd.told(&["get", "data", "--print-value-only"]).trim(), "");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fence_in_etcd_refuses_what_is_below_the_highest_token() {
    let Some(etcd) = cluster(None).await else { return };
    let client = client(&etcd.url("", "")).unwrap();
    let fence = EtcdFence::new(&client, "fences/orders");
    let missing = soon(fence.write(FencingToken(7), put("data", "0"))).await;
    assert!(matches!(missing, Err(GuardError::NotInstalled { .. })), "{missing:?}");
    soon(fence.install(FencingToken(0))).await.unwrap();
    soon(fence.write(FencingToken(7), put("data", "7"))).await.unwrap();
    soon(fence.write(FencingToken(7), put("data", "7 again"))).await.unwrap();
    // The new leader shows itself; installing again changes nothing.
    soon(fence.write(FencingToken(12), Vec::new())).await.unwrap();
    soon(fence.install(FencingToken(0))).await.unwrap();
    let late = soon(fence.write(FencingToken(7), put("data", "late"))).await;
    let expected = FenceError::Stale { presented: FencingToken(7), highest: FencingToken(12) };
    assert!(matches!(&late, Err(GuardError::Stale(stale)) if *stale == expected), "{late:?}");
    assert_eq!(etcd.told(&["get", "data", "--print-value-only"]).trim(), "7 again");
    soon(fence.write(FencingToken(u64::MAX), put("data", "last"))).await.unwrap();
    assert_eq!(soon(fence.highest()).await.unwrap(), FencingToken(u64::MAX));
    let _ = etcd.told(&["put", "fences/orders", "9"]);
    let damaged = soon(fence.write(FencingToken(u64::MAX), Vec::new())).await;
    assert!(matches!(damaged, Err(GuardError::Damaged { .. })), "{damaged:?}");
}
