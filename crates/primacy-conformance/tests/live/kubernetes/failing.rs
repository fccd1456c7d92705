//! The errors of a handle when something of Kubernetes fails.

use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use primacy::{Elector, Reason};
use primacy_conformance::live::Ground;
use primacy_conformance::live::kubernetes::{ApiServer, lease_path};
use primacy_core::election::lease::Version;
use primacy_stores::{OpenError, ReadError, Register, SetError, open};
use rustix::process::Signal;
use serde_json::{Value, json};
use tokio::time::timeout;

use super::{PATIENCE, kube_client, server};
use crate::registers::record;
use crate::to_be_tried;

async fn server_with(ground: Ground, options: &[&str], scheme: &'static str) -> Option<ApiServer> {
    to_be_tried("kubernetes", ApiServer::start_with(ground, options, scheme)).await
}

async fn set(register: &dyn Register, expect: Option<&Version>, token: u64) -> Result<Version, SetError> {
    register.compare_and_set(expect, &record(token)).await
}

async fn token(register: &dyn Register) -> u64 {
    register.read().await.expect("the server is there").expect("a record").0.token.0
}

async fn changed(register: &dyn Register, what: &str) {
    timeout(PATIENCE, register.changed()).await.unwrap_or_else(|_| panic!("{what} was not noticed"));
}

#[tokio::test(flavor = "multi_thread")]
async fn each_answer_is_told_as_what_the_caller_may_believe() {
    let Some(server) = server().await else { return };
    let register = open(&server.url(), "answers").await.unwrap();
    let mut version = set(&*register, None, 1).await.unwrap();
    for (status, after) in [(429, false), (500, false), (500, true), (503, false), (504, true), (0, true)] {
        let before = token(&*register).await;
        server.order("fault", &json!({"status": status, "after": after, "verbs": ["update"]})).await;
        let told = set(&*register, Some(&version), before + 1).await.unwrap_err();
        match status {
            429 => {
                assert!(matches!(&told, SetError::Unavailable { why } if why.contains("limit")), "{told:?}")
            }
            _ => assert!(matches!(told, SetError::Unknown { .. }), "{status}: {told:?}"),
        }
        assert_eq!(token(&*register).await, before + u64::from(after), "{status}");
        version = register.read().await.unwrap().unwrap().1;
    }
    for status in [429, 500, 504, 0] {
        server.order("fault", &json!({"status": status, "verbs": ["get"]})).await;
        let told = register.read().await.unwrap_err();
        assert!(matches!(told, ReadError::Unavailable { .. }), "{status}: {told:?}");
    }
    // A kubeconfig whose namespace is not there.
    let elsewhere = server.url().replace("default", "nowhere");
    let told = set(&*open(&elsewhere, "answers").await.unwrap(), None, 1).await.unwrap_err();
    assert!(matches!(&told, SetError::Unavailable { why } if why.contains("nowhere")), "{told:?}");
}

/// kube's clients send a request again after 503 and 504, and would meet their own write.
#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_repeats_its_requests_does_not_call_its_own_write_a_conflict() {
    let Some(server) = server().await else { return };
    let register = primacy_kube::register(kube_client(&server, true), "default", "repeats").await.unwrap();
    let version = set(&register, None, 1).await.unwrap();
    server.order("fault", &json!({"status": 504, "after": true, "verbs": ["update"]})).await;
    let told = set(&register, Some(&version), 2).await.unwrap_err();
    assert!(matches!(told, SetError::Unknown { .. }), "{told:?}");
    assert_eq!(token(&register).await, 2, "it was done");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_watch_goes_on_after_a_compaction_and_without_a_watch_it_is_looked_for() {
    let Some(server) = server().await else { return };
    let [waiter, writer] =
        [open(&server.url(), "watch").await.unwrap(), open(&server.url(), "watch").await.unwrap()];
    let mut version = set(&*writer, None, 1).await.unwrap();
    for token in 2..6 {
        let _ = waiter.read().await;
        // It watches.
        drop(timeout(Duration::from_millis(200), waiter.changed()).await);
        server.order("compact", &json!({})).await;
        version = set(&*writer, Some(&version), token).await.unwrap();
        changed(&*waiter, "a write after a 410").await;
    }
    let _ = waiter.read().await;
    server.order("fault", &json!({"status": 403, "count": 1000, "verbs": ["watch"]})).await;
    server.order("compact", &json!({})).await;
    version = set(&*writer, Some(&version), 6).await.unwrap();
    changed(&*waiter, "a write without a watch").await;
    let _ = waiter.read().await;
    set(&*writer, Some(&version), 7).await.unwrap();
    changed(&*waiter, "another one").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_killed_is_unavailable_and_one_that_comes_back_is_used_again() {
    let Some(mut server) = server().await else { return };
    let url = server.url();
    let register = open(&url, "killed").await.unwrap();
    let version = set(&*register, None, 1).await.unwrap();
    drop(timeout(Duration::from_millis(200), register.changed()).await);
    server.kill();
    let told = register.read().await.unwrap_err();
    assert!(matches!(told, ReadError::Unavailable { .. }), "{told:?}");
    let told = set(&*register, Some(&version), 2).await.unwrap_err();
    assert!(matches!(told, SetError::Unavailable { .. }), "no connection was made: {told:?}");
    let refused = open(&url, "another").await.unwrap_err();
    assert!(matches!(refused, OpenError::Unavailable { .. }), "{refused:?}");
    server.restart().await;
    set(&*register, Some(&version), 2).await.unwrap();
    let other = open(&url, "killed").await.unwrap();
    let (_, version) = other.read().await.unwrap().unwrap();
    set(&*other, Some(&version), 3).await.unwrap();
    changed(&*register, "a write after the server came back").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_hangs_is_given_up_and_what_it_was_asked_is_unknown() {
    let Some(server) = server().await else { return };
    let url = server.url();
    let register = open(&url, "hangs").await.unwrap();
    let version = set(&*register, None, 1).await.unwrap();
    server.server().signal(Signal::STOP);
    let told = timeout(PATIENCE, set(&*register, Some(&version), 2)).await.expect("in time").unwrap_err();
    assert!(matches!(told, SetError::Unknown { .. }), "{told:?}");
    let refused = timeout(PATIENCE, open(&url, "another")).await.expect("in time").unwrap_err();
    assert!(matches!(refused, OpenError::Unavailable { .. }), "{refused:?}");
    server.server().signal(Signal::CONT);
    let found = timeout(PATIENCE, token(&*register)).await.expect("in time");
    assert!([1, 2].contains(&found), "{found}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lease_that_is_deleted_or_written_over_by_hand_ends_the_lead() {
    let Some(server) = server().await else { return };
    let builder = || Elector::builder().election("by-hand").lease(Duration::from_secs(2));
    let elector = builder().connect(&server.url()).await.unwrap();
    let first = timeout(PATIENCE, elector.campaign()).await.unwrap().unwrap();
    let token = first.token();
    server.change("by-hand", |lease| lease["spec"]["holderIdentity"] = "".into()).await;
    assert_eq!(timeout(PATIENCE, first.lost()).await.unwrap(), Reason::Overwritten);
    drop(first);
    let second = timeout(PATIENCE, elector.campaign()).await.unwrap().unwrap();
    assert!(second.token() > token);
    let token = second.token();
    let (code, answer) = server.ask("DELETE", &lease_path("by-hand"), &Value::Null).await;
    assert_eq!(code, 200, "{answer}");
    assert_eq!(timeout(PATIENCE, second.lost()).await.unwrap(), Reason::Removed);
    drop(second);
    // A foreign client makes it anew, and counts from 0.
    let now = "2027-01-15T08:00:00.000000Z";
    let spec =
        json!({"holderIdentity": "go", "leaseDurationSeconds": 1, "leaseTransitions": 0, "renewTime": now});
    let path = lease_path("");
    let made = json!({"metadata": {"name": "by-hand"}, "spec": spec});
    let (code, _) = server.ask("POST", path.trim_end_matches('/'), &made).await;
    // The elector may have been faster.
    assert!([201, 409].contains(&code), "{code}");
    let third = timeout(PATIENCE, elector.campaign()).await.unwrap().unwrap();
    assert!(third.token() > token, "{} after {token}", third.token());
}

#[tokio::test(flavor = "multi_thread")]
async fn who_may_not_is_told_which_rule_is_missing() {
    let ground = Ground::new("kubernetes-users");
    let users = ground.at("users.json");
    let named = |verbs: &[&str]| json!({"name": "system:serviceaccount:default:app", "verbs": verbs});
    let all = json!({
        "all-secret": named(&["get", "create", "update", "watch"]),
        "none-secret": named(&[]),
        "reader-secret": named(&["get", "create"]),
    });
    std::fs::write(&users, all.to_string()).unwrap();
    let options = ["--users", users.to_str().unwrap()];
    let Some(server) = server_with(ground, &options, "http").await else { return };
    let as_user = |token: &str| server.url_as(token, &json!({"token": token}), &json!({}));
    let least = open(&as_user("all-secret"), "e").await.unwrap();
    let version = set(&*least, None, 1).await.unwrap();
    set(&*least, Some(&version), 2).await.unwrap();
    let watching = timeout(Duration::from_millis(300), least.changed()).await;
    assert!(watching.is_err(), "there is no change");
    for (token, says) in
        [("none-secret", "verbs: [get, create, update, watch]"), ("wrong-secret", "credentials")]
    {
        let refused = open(&as_user(token), "e").await.unwrap_err();
        assert!(matches!(&refused, OpenError::Refused { why } if why.contains(says)), "{refused:?}");
        assert!(!refused.to_string().contains("secret"), "{refused}");
    }
    let reader = open(&as_user("reader-secret"), "e").await.unwrap();
    let (_, version) = reader.read().await.unwrap().unwrap();
    let told = set(&*reader, Some(&version), 3).await.unwrap_err();
    assert!(matches!(&told, SetError::Unavailable { why } if why.contains("cannot update")), "{told:?}");
    // Without the right to watch, a change is found by looking.
    let (_, version) = least.read().await.unwrap().unwrap();
    set(&*least, Some(&version), 3).await.unwrap();
    changed(&*reader, "a write").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn over_tls_the_server_is_known_by_its_authority() {
    let ground = Ground::new("kubernetes-tls");
    let signed = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let [cert, key] = ["cert.pem", "key.pem"].map(|name| ground.at(name));
    std::fs::write(&cert, signed.cert.pem()).unwrap();
    std::fs::write(&key, signed.signing_key.serialize_pem()).unwrap();
    let options = ["--cert", cert.to_str().unwrap(), "--key", key.to_str().unwrap()];
    let Some(server) = server_with(ground, &options, "https").await else { return };
    let known = server.url_as("known", &json!({}), &json!({"certificate-authority": cert}));
    let register: Arc<dyn Register> = open(&known, "tls").await.unwrap();
    set(&*register, None, 1).await.unwrap();
    let refused = open(&server.url(), "tls").await.unwrap_err();
    assert!(refused.to_string().contains("certificate"), "{refused}");
    // The other ways of a kubeconfig to name it.
    let data = BASE64.encode(std::fs::read(&cert).unwrap());
    let inline = server.url_as("inline", &json!({}), &json!({"certificate-authority-data": data}));
    assert_eq!(token(&*open(&inline, "tls").await.unwrap()).await, 1);
    let blind = server.url_as("blind", &json!({}), &json!({"insecure-skip-tls-verify": true}));
    assert_eq!(token(&*open(&blind, "tls").await.unwrap()).await, 1);
    let by_number = format!("https://127.0.0.1:{}", server.port());
    let other = json!({"server": by_number, "certificate-authority": cert});
    let refused = open(&server.url_as("other", &json!({}), &other), "tls").await.unwrap_err();
    assert!(refused.to_string().contains("not valid for name"), "{refused}");
    let named = json!({"server": by_number, "certificate-authority": cert, "tls-server-name": "localhost"});
    assert_eq!(token(&*open(&server.url_as("named", &json!({}), &named), "tls").await.unwrap()).await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn over_tls_a_client_is_known_by_its_certificate() {
    let ground = Ground::new("kubernetes-clients");
    let [signed, client] =
        ["localhost", "client"].map(|name| rcgen::generate_simple_self_signed([name.to_owned()]).unwrap());
    let [cert, key, shown, private] =
        ["cert.pem", "key.pem", "client.pem", "client-key.pem"].map(|name| ground.at(name));
    std::fs::write(&cert, signed.cert.pem()).unwrap();
    std::fs::write(&key, signed.signing_key.serialize_pem()).unwrap();
    std::fs::write(&shown, client.cert.pem()).unwrap();
    std::fs::write(&private, client.signing_key.serialize_pem()).unwrap();
    let [cert, key, shown, private] = [&cert, &key, &shown, &private].map(|path| path.to_str().unwrap());
    let options = ["--cert", cert, "--key", key, "--client-ca", shown];
    let Some(server) = server_with(ground, &options, "https").await else { return };
    let cluster = json!({"certificate-authority": cert});
    let data = |path: &str| BASE64.encode(std::fs::read(path).unwrap());
    let files = json!({"client-certificate": shown, "client-key": private});
    let inline = json!({"client-certificate-data": data(shown), "client-key-data": data(private)});
    for (name, user) in [("files", files), ("inline", inline)] {
        let register = open(&server.url_as(name, &user, &cluster), name).await.unwrap();
        set(&*register, None, 1).await.unwrap();
    }
    for (name, user, says) in [
        ("none", json!({}), "certificate"),
        ("half", json!({"client-certificate": shown}), "needs client-key"),
        ("wrong", json!({"client-certificate": shown, "client-key": key}), "of no use"),
    ] {
        let refused = open(&server.url_as(name, &user, &cluster), "e").await.unwrap_err().to_string();
        assert!(refused.to_lowercase().contains(says), "{name}: {refused}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_opened_says_why() {
    for (url, says) in [
        ("kubernetes:default", "two slashes"),
        ("kubernetes://default/orders", "name of the election"),
        ("kubernetes://a,b", "one namespace"),
        ("kubernetes://default?contxt=a", "none of this store's"),
        ("kubernetes://default?kubeconfig=/no/such/file", "/no/such/file"),
    ] {
        let refused = open(url, "e").await.unwrap_err().to_string();
        assert!(refused.contains(says), "{url}: {refused}");
    }
    let Some(server) = server().await else { return };
    let refused = open(&server.url().replace("default", "Default"), "e").await.unwrap_err().to_string();
    assert!(refused.contains("lower-case"), "{refused}");
}

/// An outage that is shorter than the lease changes no leader. A longer one ends the lead in time, and the same process leads again after
/// it.
#[tokio::test(flavor = "multi_thread")]
async fn an_outage_is_survived_within_the_lease_and_stood_again_after() {
    const LEASE: Duration = Duration::from_secs(20);
    let Some(mut server) = server().await else { return };
    let url = server.url();
    primacy::init(&url, "outage", LEASE).await.unwrap();
    let elector = Elector::builder().election("outage").lease(LEASE).connect(&url).await.unwrap();
    let first = timeout(PATIENCE, elector.campaign()).await.unwrap().unwrap();
    let token = first.token();
    timeout(PATIENCE, first.renewed(first.valid_until())).await.unwrap().expect("it renews");
    server.kill();
    // The next renewal, a sixth of the lease after that one, fails; the work need not stop before five sixths.
    tokio::time::sleep(LEASE * 2 / 5).await;
    first.check().expect("the lease lasts");
    server.restart().await;
    let until = first.valid_until();
    timeout(PATIENCE, first.renewed(until)).await.unwrap().expect("it renews again, before the end");
    assert_eq!(first.token(), token);
    server.kill();
    assert_eq!(timeout(PATIENCE, first.lost()).await.unwrap(), Reason::Expired);
    drop(first);
    server.restart().await;
    let second = timeout(PATIENCE, elector.campaign()).await.unwrap().unwrap();
    assert!(second.token() > token);
}
