//! The effect of each method in Consul.

use std::time::Instant;

use serde_json::json;

use super::*;

#[tokio::test(flavor = "multi_thread")]
async fn the_key_is_a_lock_that_shows_who_holds_it() {
    let Some(consul) = consul().await else { return };
    let url = consul.url("jobs");
    let (one, two) = (Candidate::new(&url, "nightly", "a").await, Candidate::new(&url, "nightly", "b").await);
    let token = one.lead().await;
    let entry = consul.key("jobs/nightly/.lock").expect("the key of `consul lock jobs/nightly`");
    assert_eq!(entry["Flags"], json!(0x2ddc_cbc0_58a5_0c18_u64));
    assert_eq!(entry["Session"], json!(one.session.as_str()));
    assert_eq!(two.behind().await, Entry { holder: one.holder.clone(), token });
    assert_eq!(two.store.first().await.unwrap(), Some(Entry { holder: one.holder.clone(), token }));
    one.leave().await;
    two.changed().await;
    let next = two.lead().await;
    assert!(next > token, "{next} after {token}");
    two.leave().await;
    two.leave().await;
    assert_eq!(one.store.first().await.unwrap(), None);
    let entry = consul.key("jobs/nightly/.lock").expect("the key stays");
    assert_eq!(
        (entry["Session"].as_str(), entry["LockIndex"].as_u64()),
        (Some(""), Some(2)),
        "as strangers count"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_has_no_checks_and_no_lock_delay_and_ends_with_its_last_election() {
    let Some(consul) = consul().await else { return };
    let (one, two) =
        (Candidate::new(&consul.url("s"), "a", "a").await, Candidate::new(&consul.url("s"), "b", "a").await);
    assert_eq!(one.session, two.session, "elections of a process share one");
    let (_, shown) = consul.ask("GET", &format!("/v1/session/info/{}", one.session.as_str()), "");
    let shown = &shown[0];
    assert_eq!((&shown["TTL"], &shown["LockDelay"]), (&json!("10000ms"), &json!(0)));
    assert_eq!((&shown["NodeChecks"], &shown["Behavior"]), (&json!([]), &json!("release")));
    one.store.end(&one.session).await.unwrap();
    assert_eq!(consul.sessions(), [two.session.as_str()]);
    two.store.end(&two.session).await.unwrap();
    assert!(consul.sessions().is_empty());
    let again = one.store.begin(Duration::from_millis(1)).await.unwrap();
    assert_eq!(again.timeout, TIMEOUT, "Consul gives no shorter one");
    let delayed = open_url(&consul.url("s?lock-delay=1500ms"), "a").await;
    let session = delayed.begin(TIMEOUT * 2).await.unwrap();
    assert_eq!(session.timeout, TIMEOUT * 2);
    let (_, shown) = consul.ask("GET", &format!("/v1/session/info/{}", session.session.as_str()), "");
    assert_eq!(shown[0]["LockDelay"], json!(1_500_000_000_u64));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hundred_elections_share_a_session_and_a_keep_alive() {
    const ELECTIONS: usize = 100;
    /// The most renewals that are sent. One would do, if the machine were fast.
    const RENEWALS_MAX: u32 = 10;
    let Some(consul) = consul().await else { return };
    let url = consul.url("many");
    let candidates = (0..ELECTIONS).map(|number| {
        let url = url.clone();
        tokio::spawn(async move { Candidate::new(&url, &format!("e{number}"), "a").await })
    });
    let mut all = Vec::new();
    for candidate in candidates.collect::<Vec<_>>() {
        let candidate = candidate.await.unwrap();
        candidate.lead().await;
        all.push(Arc::new(candidate));
    }
    assert_eq!(consul.sessions().len(), 1);
    // The first one is held up until all have asked. If each were sent, most would fail.
    consul.fault("PUT /v1/session/renew", 1, json!({"hold": true}));
    let renew = |it: Arc<Candidate>| tokio::spawn(async move { it.store.keep_alive(&it.session).await });
    let renewals: Vec<_> = all.iter().cloned().map(renew).collect();
    tokio::time::sleep(Duration::from_millis(500)).await;
    consul.fault("PUT /v1/session/renew", RENEWALS_MAX, json!({}));
    consul.fault("PUT /v1/session/renew", 1000, json!({"status": 500, "body": "one too many"}));
    consul.order("go", &json!({}));
    for renewal in renewals {
        assert_eq!(renewal.await.unwrap(), Ok(TIMEOUT));
    }
    consul.order("mend", &json!({}));
    drop(all);
    // Nothing is left of handles that are gone.
    let gone = async {
        while !consul.sessions().is_empty() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(PATIENCE, gone).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_is_asked_to_resign_keeps_its_token_and_its_count() {
    let Some(consul) = consul().await else { return };
    let url = consul.url("ask");
    let (one, operator) = (Candidate::new(&url, "e", "a").await, open_url(&url, "e").await);
    let token = one.lead().await;
    let before = consul.key("ask/e/.lock").unwrap();
    assert!(!operator.ask_to_resign(FencingToken(token.0 + 1), "ops").await.unwrap());
    assert!(operator.ask_to_resign(token, "ops").await.unwrap());
    one.changed().await;
    assert_eq!(one.campaign().await, Ok(QueuePosition::First { token, asked_to_resign: true }));
    let after = consul.key("ask/e/.lock").unwrap();
    assert!(after["ModifyIndex"].as_u64() > before["ModifyIndex"].as_u64());
    assert_eq!(after["LockIndex"], before["LockIndex"], "strangers may tell leaderships apart by it");
    one.leave().await;
    assert!(!operator.ask_to_resign(token, "ops").await.unwrap());
    let next = one.lead().await;
    assert_eq!(one.campaign().await, Ok(QueuePosition::First { token: next, asked_to_resign: false }));
    assert!(next > token);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dead_life_is_taken_out_at_once_in_spite_of_a_lock_delay() {
    let Some(consul) = consul().await else { return };
    let url = consul.url("dead?lock-delay=60s");
    let (one, two) = (Candidate::new(&url, "e", "a").await, Candidate::new(&url, "e", "b").await);
    let token = one.lead().await;
    two.behind().await;
    let guardian = open_url(&url, "e").await;
    assert!(!guardian.evict(&two.holder.identity).await.unwrap());
    assert!(guardian.evict(&one.holder.identity).await.unwrap());
    two.changed().await;
    assert!(two.lead().await > token);
    assert!(!consul.sessions().contains(&one.session.as_str().to_owned()));
    assert!(matches!(one.store.keep_alive(&one.session).await, Err(SessionError::Ended { .. })));
    assert!(!guardian.evict(&one.holder.identity).await.unwrap());
}

#[tokio::test(flavor = "multi_thread")]
async fn no_lock_delay_follows_for_the_other_elections_of_a_dead_life() {
    let Some(consul) = consul().await else { return };
    let url = consul.url("dead?lock-delay=60s");
    let (one, other) = (Candidate::new(&url, "one", "a").await, Candidate::new(&url, "other", "a").await);
    assert_eq!(one.session, other.session);
    one.lead().await;
    let token = other.lead().await;
    let (guardian, next) = (open_url(&url, "one").await, Candidate::new(&url, "other", "b").await);
    next.behind().await;
    assert!(guardian.evict(&one.holder.identity).await.unwrap());
    assert!(next.lead().await > token, "at once");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_dropped_handle_held_is_freed_also_if_that_fails_at_first() {
    /// The number of failures.
    const FAILURES: u32 = 3;
    let Some(consul) = consul().await else { return };
    let url = consul.url("dropped");
    let (one, two) = (Candidate::new(&url, "one", "a").await, Candidate::new(&url, "two", "a").await);
    assert_eq!(one.session, two.session);
    one.lead().await;
    let token = two.lead().await;
    let began = Instant::now();
    drop(one);
    consul.fault("PUT /v1/txn", FAILURES, json!({"status": 500, "body": "No cluster leader"}));
    let freed = async {
        while consul.key("dropped/one/.lock").unwrap()["Session"].as_str().is_some_and(|it| !it.is_empty()) {
            two.store.keep_alive(&two.session).await.expect("the session goes on");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    tokio::time::timeout(PATIENCE, freed).await.expect("it is freed");
    assert!(began.elapsed() >= TIMEOUT, "whoever had led by it may have believed so long");
    assert_eq!(two.lead().await, token, "by the same session");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_change_is_told_also_before_the_first_look() {
    let Some(consul) = consul().await else { return };
    let url = consul.url("unseen");
    let (watching, one) = (open_url(&url, "e").await, Candidate::new(&url, "e", "a").await);
    one.lead().await;
    tokio::time::timeout(PATIENCE, watching.changed()).await.expect("the change is noticed");
}
