//! A server that is gone, paused, or without a leader; sessions that end; rights that are missing.

use std::net::TcpListener;

use serde_json::json;

use super::*;

fn is_unanswered<T: std::fmt::Debug>(answer: &Result<T, SessionError>) {
    assert!(matches!(answer, Err(SessionError::NoAnswer { .. })), "{answer:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_that_is_destroyed_under_the_holder_is_told() {
    let Some(consul) = consul().await else { return };
    let mut one = Candidate::new(&consul.url("f"), "e", "a").await;
    let token = one.lead().await;
    assert_eq!(consul.ask("PUT", &format!("/v1/session/destroy/{}", one.session.as_str()), "").0, 200);
    one.changed().await;
    for answer in [one.campaign().await.map(drop), one.store.keep_alive(&one.session).await.map(drop)] {
        assert!(matches!(answer, Err(SessionError::Ended { .. })), "{answer:?}");
    }
    let begun = one.store.begin(TIMEOUT).await.unwrap();
    assert_ne!(begun.session, one.session);
    one.session = begun.session;
    assert!(one.lead().await > token);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_comes_back_with_its_sessions_goes_on_and_one_without_says_so() {
    let Some(mut consul) = consul().await else { return };
    let one = Candidate::new(&consul.url("f"), "e", "a").await;
    let token = one.lead().await;
    consul.kill();
    is_unanswered(&one.campaign().await);
    is_unanswered(&one.store.keep_alive(&one.session).await);
    is_unanswered(&one.store.first().await);
    consul.restart().await;
    assert_eq!(one.store.keep_alive(&one.session).await, Ok(TIMEOUT));
    assert_eq!(one.lead().await, token);
    // The watch is back, too.
    assert_eq!(consul.ask("DELETE", "/v1/kv/f/e/.lock", "").0, 200);
    one.changed().await;
    consul.restart_empty().await;
    assert!(matches!(one.campaign().await, Err(SessionError::Ended { .. })));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_paused_server_is_given_up_in_time_and_goes_on() {
    let Some(consul) = consul().await else { return };
    let one = Candidate::new(&consul.url("f"), "e", "a").await;
    let token = one.lead().await;
    consul.pause();
    is_unanswered(&tokio::time::timeout(PATIENCE, one.campaign()).await.unwrap());
    let refused = refusal(&consul.url("f")).await;
    consul.resume();
    assert!(matches!(refused, OpenError::Unavailable { .. }), "{refused}");
    assert_eq!(one.lead().await, token);
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_leader_there_is_no_answer_and_nothing_is_done() {
    let Some(consul) = consul().await else { return };
    let one = Candidate::new(&consul.url("f"), "e", "a").await;
    for body in ["No cluster leader", "rpc error making call: EOF"] {
        consul.fault("", 100, json!({"status": 500, "body": body}));
        is_unanswered(&one.store.begin(TIMEOUT * 2).await);
        is_unanswered(&one.store.keep_alive(&one.session).await);
        let told = one.campaign().await;
        is_unanswered(&told);
        assert!(told.unwrap_err().to_string().contains(body));
        consul.order("mend", &json!({}));
    }
    let token = one.lead().await;
    assert_eq!(one.lead().await, token);
}

#[tokio::test(flavor = "multi_thread")]
async fn of_several_agents_one_that_answers_is_enough() {
    let Some(consul) = consul().await else { return };
    // A server that was never started, and one that accepts connections and does not answer.
    let silent = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let silent_port = silent.local_addr().unwrap().port();
    let gone = primacy_conformance::live::free_port();
    let url = format!("consul://127.0.0.1:{gone},127.0.0.1:{silent_port},127.0.0.1:{}/f", consul.port());
    let one = Candidate::new(&url, "e", "a").await;
    let token = one.lead().await;
    assert_eq!(one.lead().await, token);
    let none = format!("consul://127.0.0.1:{gone},127.0.0.1:{silent_port}/f");
    let refused = refusal(&none).await;
    assert!(matches!(refused, OpenError::Unavailable { .. }), "{refused}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_index_that_goes_backwards_stops_nothing() {
    let Some(consul) = consul().await else { return };
    let (one, two) =
        (Candidate::new(&consul.url("f"), "e", "a").await, Candidate::new(&consul.url("f"), "e", "b").await);
    for _ in 0..20 {
        one.lead().await;
        one.leave().await;
    }
    one.lead().await;
    two.behind().await;
    drop(tokio::time::timeout(Duration::from_millis(200), two.store.changed()).await);
    consul.order("index", &json!({"index": 3}));
    two.changed().await;
    two.behind().await;
    one.leave().await;
    two.changed().await;
    two.become_first().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rights_that_are_missing_are_told_and_those_of_the_page_are_enough() {
    let ground = primacy_conformance::live::Ground::new("consul-acl");
    let acl = ground.at("acl.json");
    let rules = json!({
        "s3cret": {"key_prefix": {"jobs/": "write"}, "session_prefix": {"": "write"}},
        "reads": {"key_prefix": {"jobs/": "read"}, "session_prefix": {"": "read"}},
    });
    std::fs::write(&acl, rules.to_string()).unwrap();
    let options = ["--acl", acl.to_str().unwrap()];
    let start = Consul::start_with(primacy_conformance::live::Ground::new("consul"), &options);
    let Some(consul) = to_be_tried("consul", start).await else { return };
    let with = |prefix: &str, token: &str| {
        let file = ground.at(token);
        std::fs::write(&file, format!("{token}\n")).unwrap();
        consul.url(&format!("{prefix}?token-file={}", file.display()))
    };
    for url in [consul.url("jobs"), with("jobs", "unknown"), with("others", "s3cret")] {
        let refused = refusal(&url).await;
        assert!(matches!(refused, OpenError::Refused { .. }), "{refused}");
        assert!(!refused.to_string().contains("s3cret: "), "{refused}");
    }
    let one = Candidate::new(&with("jobs", "s3cret"), "e", "a").await;
    let token = one.lead().await;
    let observer = open_url(&with("jobs", "reads"), "e").await;
    assert_eq!(observer.first().await.unwrap().unwrap().token, token);
    let refused = observer.begin(TIMEOUT).await.unwrap_err();
    assert!(matches!(&refused, SessionError::Refused { why } if why.contains("session:write")), "{refused}");
    let refused = observer.ask_to_resign(token, "ops").await.unwrap_err();
    assert!(matches!(&refused, SessionError::Refused { why } if why.contains("key:write")), "{refused}");
    let refused = observer.evict(&one.holder.identity).await.unwrap_err();
    assert!(matches!(refused, SessionError::Refused { .. }), "{refused}");
    one.leave().await;
    one.store.end(&one.session).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_that_is_no_lock_is_left_as_it_is() {
    let Some(consul) = consul().await else { return };
    let one = Candidate::new(&consul.url("f"), "later", "a").await;
    for election in ["e", "later"] {
        assert_eq!(consul.ask("PUT", &format!("/v1/kv/f/{election}/.lock"), "mine").0, 200);
    }
    let refused = refusal(&consul.url("f")).await;
    assert!(matches!(refused, OpenError::Refused { .. }), "{refused}");
    let refused = one.campaign().await.unwrap_err();
    assert!(matches!(refused, SessionError::Refused { .. }), "{refused}");
    assert_eq!(consul.key("f/e/.lock").unwrap()["Value"], json!("bWluZQ=="));
    assert_eq!(consul.key("f/later/.lock").unwrap()["Value"], json!("bWluZQ=="));
}

#[tokio::test(flavor = "multi_thread")]
async fn over_tls_only_whom_the_authority_signed_is_believed() {
    let ground = primacy_conformance::live::Ground::new("consul-tls");
    let (cert, key, other) = (ground.at("cert.pem"), ground.at("key.pem"), ground.at("other.pem"));
    let names = || vec!["127.0.0.1".to_owned()];
    let signed = rcgen::generate_simple_self_signed(names()).unwrap();
    std::fs::write(&cert, signed.cert.pem()).unwrap();
    std::fs::write(&key, signed.signing_key.serialize_pem()).unwrap();
    std::fs::write(&other, rcgen::generate_simple_self_signed(names()).unwrap().cert.pem()).unwrap();
    let options = ["--cert", cert.to_str().unwrap(), "--key", key.to_str().unwrap()];
    let start = Consul::start_with(primacy_conformance::live::Ground::new("consul"), &options);
    let Some(consul) = to_be_tried("consul", start).await else { return };
    let one = Candidate::new(&consul.url(&format!("f?ca={}", cert.display())), "e", "a").await;
    let token = one.lead().await;
    assert_eq!(one.lead().await, token);
    for url in [consul.url(&format!("f?ca={}", other.display())), consul.url("f")] {
        let refused = refusal(&url).await;
        assert!(matches!(refused, OpenError::Unavailable { .. }), "{refused}");
    }
}
