//! Tokens that only grow, and late requests that do no harm.

use serde_json::json;

use super::*;

const KEY: &str = "/v1/kv/safe/e/.lock";

#[tokio::test(flavor = "multi_thread")]
async fn a_token_grows_over_whatever_becomes_of_the_key() {
    let Some(consul) = consul().await else { return };
    let url = consul.url("safe");
    let (one, two) = (Candidate::new(&url, "e", "a").await, Candidate::new(&url, "e", "b").await);
    let mut last = one.lead().await;
    let mut grows = |token: FencingToken, how: &str| {
        assert!(token > last, "{how}: {token} after {last}");
        last = token;
    };
    // Deleted under the holder, which learns of it.
    assert_eq!(consul.ask("DELETE", KEY, "").0, 200);
    one.changed().await;
    grows(two.become_first().await, "deleted");
    assert_eq!(one.behind().await.holder, two.holder);
    // Written over under the holder, which sets LockIndex back: it is not known what happened meanwhile.
    assert_eq!(consul.ask("PUT", &format!("{KEY}?flags={}", 0x2ddc_cbc0_58a5_0c18_u64), "x").0, 200);
    assert_eq!(one.behind().await.holder.identity.node.as_str(), "x", "as others see it");
    two.changed().await;
    let token = two.lead().await;
    grows(token, "written over");
    assert_eq!((two.lead().await, two.lead().await), (token, token), "the same leadership");
    // Deleted and made anew, again and again.
    for _ in 0..5 {
        two.leave().await;
        assert_eq!(consul.ask("DELETE", KEY, "").0, 200);
        grows(two.lead().await, "deleted and made anew");
    }
    // A foreign client's leadership in between is counted, too.
    two.leave().await;
    let (_, stranger) =
        consul.ask("PUT", "/v1/session/create", r#"{"Name":"some job","LockDelay":"0s","Checks":[]}"#);
    let stranger = stranger["ID"].as_str().unwrap();
    let path = format!("{KEY}?acquire={stranger}&flags={}", 0x2ddc_cbc0_58a5_0c18_u64);
    assert_eq!(consul.ask("PUT", &path, ""), (200, json!(true)));
    let shown = two.behind().await;
    assert_eq!(
        (shown.holder.identity.node.as_str(), shown.holder.identity.incarnation.count),
        ("somejob", 0)
    );
    grows(shown.token, "a stranger's");
    assert!(!two.store.ask_to_resign(shown.token, "ops").await.unwrap(), "it would not understand");
    assert_eq!(consul.ask("PUT", &format!("/v1/session/destroy/{stranger}"), "").0, 200);
    grows(two.become_first().await, "after a stranger");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_answer_leaves_one_leadership() {
    let Some(consul) = consul().await else { return };
    let one = Candidate::new(&consul.url("safe"), "e", "a").await;
    one.lead().await;
    one.leave().await;
    for count in [1, 2] {
        // The lock is taken, and then the connection closed.
        consul.fault("PUT /v1/txn", count, json!({"status": 0, "after": true}));
        let place = one.campaign().await;
        assert!(
            matches!(place, Ok(QueuePosition::First { .. }) | Err(SessionError::NoAnswer { .. })),
            "{place:?}"
        );
        consul.order("mend", &json!({}));
        let held = consul.key("safe/e/.lock").unwrap();
        assert_eq!(held["Session"], json!(one.session.as_str()));
        let token = one.lead().await;
        assert_eq!(consul.key("safe/e/.lock"), Some(held), "it is found again, and not made anew");
        assert_eq!(
            place.unwrap_or(QueuePosition::First { token, asked_to_resign: false }),
            QueuePosition::First { token, asked_to_resign: false }
        );
        // The same for the request that frees it.
        consul.fault("PUT /v1/txn", count, json!({"status": 0, "after": true}));
        let _ = one.store.leave(&one.session).await;
        consul.order("mend", &json!({}));
        one.leave().await;
        assert_eq!(one.store.first().await.unwrap(), None);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_that_comes_late_takes_nothing() {
    let Some(consul) = consul().await else { return };
    let one = Candidate::new(&consul.url("safe"), "e", "a").await;
    one.lead().await;
    one.leave().await;
    consul.fault("PUT /v1/txn", 1, json!({"hold": true}));
    // It is on its way, and not waited for any more.
    assert!(tokio::time::timeout(Duration::from_millis(300), one.campaign()).await.is_err());
    one.leave().await;
    let before = consul.key("safe/e/.lock").unwrap();
    consul.order("go", &json!({}));
    // A request that is sent after it is served after it.
    let two = Candidate::new(&consul.url("safe"), "other", "b").await;
    two.lead().await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(consul.key("safe/e/.lock"), Some(before), "it found another index than it names");
    assert_eq!(one.store.first().await.unwrap(), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_frees_a_leadership_late_does_not_touch_the_next() {
    let Some(consul) = consul().await else { return };
    let one = Candidate::new(&consul.url("safe"), "e", "a").await;
    let first = one.lead().await;
    consul.fault("PUT /v1/txn", 1, json!({"hold": true}));
    let leaving = tokio::time::timeout(Duration::from_millis(300), one.store.leave(&one.session)).await;
    assert!(leaving.is_err(), "it is on its way");
    one.leave().await;
    let second = one.lead().await;
    assert!(second > first);
    consul.order("go", &json!({}));
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(one.lead().await, second);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_delay_holds_the_others_back_and_no_longer() {
    let Some(consul) = consul().await else { return };
    let url = consul.url("safe?lock-delay=2s");
    let (one, two) = (Candidate::new(&url, "e", "a").await, Candidate::new(&url, "e", "b").await);
    let token = one.lead().await;
    let expected = Entry { holder: one.holder.clone(), token };
    assert_eq!(two.behind().await, expected);
    consul.order("expire", &json!({"session": one.session.as_str()}));
    two.changed().await;
    assert_eq!(two.behind().await, expected, "it may not know yet");
    assert!(two.become_first().await > token);
}
