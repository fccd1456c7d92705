//! Passwords, rights and TLS.

use std::time::Duration;

use primacy_conformance::live::Ground;
use primacy_conformance::live::etcd::{MEMBERS, Tls};
use primacy_stores::OpenError;

use super::super::cluster_with_users;
use super::{Candidate, cluster, refusal, soon};

#[tokio::test(flavor = "multi_thread")]
async fn a_user_needs_its_password_and_its_right_and_a_token_that_is_forgotten_is_renewed() {
    let Some(mut etcd) = cluster_with_users().await else { return };
    let mut refused = vec![
        (etcd.url("elector:secret-that-is-wrong@", "/app"), "a wrong password"),
        (etcd.url("", "/app"), "no user"),
    ];
    if !etcd.is_ours() {
        // At our etcd API each user may do everything.
        refused.push((etcd.url("elector:secret-of-elector@", "/theirs"), "no right"));
    }
    for (url, what) in refused {
        let error = refusal(&url).await;
        assert!(matches!(error, OpenError::Refused { .. }), "{what}: {error:?}");
        assert!(!error.to_string().contains("secret"), "{error}");
    }
    let url = etcd.url("elector:secret-of-elector@", "/app");
    let (a, b) = (Candidate::new(&url, "e", "a").await, Candidate::new(&url, "e", "b").await);
    let token = a.win().await;
    b.is_behind("a").await;
    let mut told = b.store.changed();
    assert!(tokio::time::timeout(Duration::from_millis(50), &mut told).await.is_err());
    // Members forget tokens when they start, but not the rights of users.
    for member in 0..MEMBERS {
        etcd.kill(member);
        etcd.restart(member).await;
        tokio::join!(a.kept_alive(), b.kept_alive());
    }
    assert_eq!(a.win().await, token);
    a.leave().await;
    soon(told).await;
    assert!(b.win().await > token);
    assert_eq!(soon(b.store.evict(&b.holder.identity)).await, Ok(true));
}

#[tokio::test(flavor = "multi_thread")]
async fn with_tls_both_sides_show_certificates() {
    let ground = Ground::new("etcd-tls");
    let (own, other) = (Tls::issue(&ground, "own"), Tls::issue(&ground, "other"));
    let Some(etcd) = cluster(Some(own.clone())).await else { return };
    let url = etcd.url("", "/app");
    let (a, b) = (Candidate::new(&url, "e", "a").await, Candidate::new(&url, "e", "b").await);
    a.win().await;
    b.is_behind("a").await;
    a.leave().await;
    soon(b.store.changed()).await;
    b.win().await;
    let hosts = url.split_once('?').unwrap().0;
    let named = |what: &str, path: &std::path::Path| format!("{what}={}", path.display());
    let ours = named("ca", &own.ca);
    let (cert, key) = (named("cert", &other.cert), named("key", &other.key));
    for (settings, what) in [
        (named("ca", &other.ca), "an authority that has not signed it"),
        (ours.clone(), "no certificate of its own"),
        (format!("{ours}&{cert}&{key}"), "a certificate of another authority"),
    ] {
        let error = refusal(&format!("{hosts}?{settings}")).await;
        assert!(matches!(error, OpenError::Refused { .. }), "{what}: {error:?}");
    }
    assert!(matches!(refusal(hosts).await, OpenError::Unavailable { .. }), "without TLS");
}
