//! Passwords, rights and TLS.

use std::time::Duration;

use primacy_conformance::live::Ground;
use primacy_conformance::live::etcd::{MEMBERS, Tls};
use primacy_stores::OpenError;
use rcgen::{BasicConstraints, CertificateParams, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair};

use super::{Candidate, cluster, refusal, soon};

#[tokio::test(flavor = "multi_thread")]
async fn a_user_needs_its_password_and_its_right_and_a_token_that_is_forgotten_is_renewed() {
    let Some(mut etcd) = cluster(None).await else { return };
    let open = etcd.url("", "/app");
    for command in [
        "user add root:secret-of-root",
        "user grant-role root root",
        "user add elector:secret-of-elector",
        "role add election",
        "role grant-permission election --prefix=true readwrite app/",
        "user grant-role elector election",
        "auth enable",
    ] {
        let _ = etcd.told(&command.split(' ').collect::<Vec<_>>());
    }
    for (url, what) in [
        (etcd.url("elector:secret-that-is-wrong@", "/app"), "a wrong password"),
        (etcd.url("elector:secret-of-elector@", "/theirs"), "no right"),
        (open, "no user"),
    ] {
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
    // Members forget tokens when they start; they do not forget who has which right.
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

/// Files of an authority, and of a certificate for 127.0.0.1.
fn certificates(ground: &Ground) -> Tls {
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = KeyPair::generate().expect("a certificate can be made");
    let ca = params.self_signed(&key).expect("a certificate can be made").pem();
    let issuer = Issuer::new(params, key);
    let mut params = CertificateParams::new(vec!["127.0.0.1".to_owned()]).expect("a certificate can be made");
    params.extended_key_usages =
        vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
    let key = KeyPair::generate().expect("a certificate can be made");
    let certificate = params.signed_by(&key, &issuer).expect("a certificate can be made").pem();
    let tls = Tls { ca: ground.at("ca.pem"), cert: ground.at("node.pem"), key: ground.at("node.key") };
    for (file, text) in [(&tls.ca, ca), (&tls.cert, certificate), (&tls.key, key.serialize_pem())] {
        std::fs::write(file, text).expect("it can be written");
    }
    tls
}

#[tokio::test(flavor = "multi_thread")]
async fn with_tls_both_sides_show_certificates() {
    let (ground, foreign) = (Ground::new("etcd-tls"), Ground::new("etcd-foreign"));
    let Some(etcd) = cluster(Some(certificates(&ground))).await else { return };
    let url = etcd.url("", "/app");
    let (a, b) = (Candidate::new(&url, "e", "a").await, Candidate::new(&url, "e", "b").await);
    a.win().await;
    b.is_behind("a").await;
    a.leave().await;
    soon(b.store.changed()).await;
    b.win().await;
    let hosts = url.split_once('?').unwrap().0;
    let other = certificates(&foreign);
    let named = |what: &str, path: &std::path::Path| format!("{what}={}", path.display());
    let ours = named("ca", &ground.at("ca.pem"));
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
