//! The library over a store that keeps sessions, as its users meet it.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use std::sync::Arc;
use std::time::Duration;

use primacy::core::Reason;
use primacy::death_notice::DeathNotifier;
use primacy::status::View;
use primacy::stores::faulty::{Fault, FaultSwitch, FaultySessions};
use primacy::stores::memory::MemorySessions;
use primacy::stores::{OpenError, Sessions};
use primacy::{Confirm, ConnectError, Elector, Init, ResignRequestError, ask_to_resign, init};
use support::{Dir, PATIENCE, soon};

/// Long enough for a busy machine, and short enough to wait for its end.
const LEASE: Duration = Duration::from_secs(2);
/// A time that no test waits for.
const LONG: Duration = Duration::from_secs(3600);

async fn over(name: &str, lease: Duration) -> Elector {
    Elector::builder()
        .election("test")
        .lease(lease)
        .connect(&format!("memory-sessions:{name}"))
        .await
        .unwrap()
}

async fn through_faults(name: &str, lease: Duration) -> (Elector, FaultSwitch, Arc<MemorySessions>) {
    let memory = Arc::new(MemorySessions::open(name, "test"));
    let (faulty, switch) = FaultySessions::new(Arc::clone(&memory) as Arc<dyn Sessions>);
    let elector = Elector::builder().election("test").lease(lease).sessions(Arc::new(faulty)).await.unwrap();
    (elector, switch, memory)
}

#[tokio::test]
async fn one_leads_and_resigns_to_the_next_with_a_higher_token() {
    let (one, two) = (over("resign", LONG).await, over("resign", LONG).await);
    let first = soon("the first election", one.campaign()).await.unwrap();
    first.check().unwrap();
    let token = first.token();
    let waiting = tokio::spawn(async move { two.campaign().await });
    let guard = first.guard().unwrap();
    let resigned = tokio::spawn(first.resign());
    // While the work has not ended, no other node may begin.
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert!(guard.check().is_err());
    assert!(!waiting.is_finished());
    drop(guard);
    assert_eq!(soon("the end", resigned).await.unwrap(), Reason::Resigned);
    let second = soon("the second election", waiting).await.unwrap().unwrap();
    assert!(second.token() > token);
    assert_eq!(soon("the end", second.resign()).await, Reason::Resigned);
}

#[tokio::test]
async fn a_leader_that_closes_leaves_no_session_behind() {
    let memory = MemorySessions::open("closed", "test");
    let (one, two) = (over("closed", LONG).await, over("closed", LONG).await);
    let leadership = soon("the election", one.campaign()).await.unwrap();
    let waiting = {
        let two = two.clone();
        tokio::spawn(async move { two.campaign().await })
    };
    while memory.entries().len() < 2 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    drop(leadership);
    soon("the closing", one.close()).await;
    let second = soon("the next election", waiting).await.unwrap().unwrap();
    drop(second);
    soon("the closing", two.close()).await;
    assert_eq!((memory.entries().len(), memory.sessions()), (0, 0));
}

#[tokio::test]
async fn a_session_that_the_store_ends_ends_the_lead_at_once_and_the_same_process_leads_again() {
    let memory = MemorySessions::open("ended", "test");
    let one = over("ended", LONG).await;
    let first = soon("the election", one.campaign()).await.unwrap();
    let token = first.token();
    let status = one.status().await.unwrap();
    let View::Sessions(view) = status.view else { panic!("over sessions") };
    let session = view.session.unwrap().name;
    memory.expire(&primacy::core::election::session::SessionId::new(&session));
    assert_eq!(soon("the loss", first.lost()).await, Reason::SessionEnded);
    let again = soon("the next election", one.campaign()).await.unwrap();
    assert!(again.token() > token);
}

#[tokio::test]
async fn an_entry_that_somebody_removes_ends_the_lead_at_once() {
    let memory = MemorySessions::open("removed", "test");
    let (one, two) = (over("removed", LONG).await, over("removed", LONG).await);
    let first = soon("the election", one.campaign()).await.unwrap();
    let token = first.token();
    let waiting = tokio::spawn(async move { (two.campaign().await, two) });
    while memory.entries().len() < 2 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    memory.remove_first();
    assert_eq!(soon("the loss", first.lost()).await, Reason::Removed);
    let (second, _two) = soon("the next election", waiting).await.unwrap();
    assert!(second.unwrap().token() > token);
}

#[tokio::test]
async fn a_store_that_is_away_for_longer_than_the_session_deposes_and_the_same_process_leads_again() {
    let (one, switch, memory) = through_faults("away", LEASE).await;
    let first = soon("the election", one.campaign()).await.unwrap();
    let (token, end) = (first.token(), first.valid_until());
    switch.always(Fault::Unavailable);
    assert_eq!(soon("the loss", first.lost()).await, Reason::Expired);
    assert!(memory.sessions() <= 1);
    switch.always(Fault::None);
    let again = soon("the next election", one.campaign()).await.unwrap();
    assert!(again.token() > token && again.valid_until() > end);
}

#[tokio::test]
async fn lost_replies_leave_one_entry_and_one_leader() {
    let (one, switch, memory) = through_faults("lossy", LEASE).await;
    switch.next(Fault::None); // The first look.
    for _ in 0..4 {
        switch.next(Fault::LoseReply);
    }
    let first = soon("the election", one.campaign()).await.unwrap();
    first.check().unwrap();
    assert_eq!(memory.entries().len(), 1);
}

#[tokio::test]
async fn a_leader_is_asked_to_resign() {
    let url = "memory-sessions:asked";
    let one = over("asked", LONG).await;
    let refused = ask_to_resign(url, "test", "ops", PATIENCE).await.unwrap_err();
    assert!(matches!(refused, ResignRequestError::NobodyLeads), "{refused}");
    let first = soon("the election", one.campaign()).await.unwrap();
    let asked = ask_to_resign(url, "test", "ops", PATIENCE).await.unwrap();
    assert_eq!(asked.token, first.token());
    assert_eq!(soon("the end", first.lost()).await, Reason::Resigned);
}

#[tokio::test]
async fn a_witnessed_death_is_not_waited_for() {
    let memory = MemorySessions::open("witness", "test");
    let (one, two) = (over("witness", LONG).await, over("witness", LONG).await);
    let spec = one.death_notice_spec().unwrap();
    let first = soon("the election", one.campaign()).await.unwrap();
    let waiting = tokio::spawn(async move { (two.campaign().await, two) });
    while memory.entries().len() < 2 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    // As if the process were gone: its outcome is not awaited.
    std::mem::forget(first);
    std::mem::forget(one);
    let notify =
        move || DeathNotifier::new(&spec, primacy::transport::Limits::default()).unwrap().notify(PATIENCE);
    let receipt = tokio::task::spawn_blocking(notify).await.unwrap();
    assert!(receipt.released, "{receipt:?}");
    let (second, _two) = soon("the next election", waiting).await.unwrap();
    second.unwrap().check().unwrap();
}

#[tokio::test]
async fn a_session_that_is_too_short_to_drain_in_is_refused_and_said_to_be() {
    let memory = MemorySessions::open("short", "test");
    memory.limit_timeouts(Duration::from_millis(1), Duration::from_secs(100));
    let one = over("short", LONG).await;
    let campaigning = {
        let one = one.clone();
        tokio::spawn(async move { one.campaign().await })
    };
    let said = async {
        loop {
            let why = one.status().await.unwrap().why_no_leader().join("; ");
            if why.contains("shorten the drain") {
                return;
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    soon("the reason", said).await;
    assert!(memory.entries().is_empty());
    campaigning.abort();
}

#[tokio::test]
async fn what_needs_a_record_says_that_this_store_has_none() {
    let url = "memory-sessions:record";
    assert_eq!(init(url, "test", LEASE).await.unwrap(), Init::NotNeeded);
    let builder = Elector::builder().election("test").node("a".parse().unwrap());
    let builder = builder.algorithm(primacy::Algorithm::Bully).confirm(Confirm::Store(url.to_owned()));
    let dir = Dir::new("sessions");
    let peers = "a=127.0.0.1:1,b=127.0.0.1:2".parse().unwrap();
    let error = builder.state_dir(&*dir).peers(peers).await.unwrap_err();
    assert!(matches!(error, ConnectError::Open(OpenError::KeepsSessions { .. })), "{error}");
}
