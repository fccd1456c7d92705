//! An application's view of a store that fails.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use std::sync::Arc;
use std::time::Duration;

use primacy::core::Reason;
use primacy::stores::Opened;
use primacy::stores::faulty::{Fault, FaultSwitch, FaultyRegister, FaultySessions};
use primacy::stores::memory::{MemoryRegister, MemorySessions};
use primacy::{Elector, Leadership};
use support::soon;

/// Short enough to wait for its end.
const LEASE: Duration = Duration::from_secs(2);

fn register(name: &str) -> (Opened, FaultSwitch) {
    let (faulty, switch) = FaultyRegister::new(Arc::new(MemoryRegister::open(name, "test")));
    (Opened::Register(Arc::new(faulty)), switch)
}

fn sessions(name: &str) -> (Opened, FaultSwitch) {
    let (faulty, switch) = FaultySessions::new(Arc::new(MemorySessions::open(name, "test")));
    (Opened::Sessions(Arc::new(faulty)), switch)
}

async fn lead(store: Opened) -> (Elector, Leadership) {
    let elector = Elector::builder().election("test").lease(LEASE).opened(store).await.unwrap();
    let leadership = soon("the election", elector.campaign()).await.unwrap();
    (elector, leadership)
}

/// A failing store's own words reach the event: the reason of the loss, the status, and the reason why there is
/// no leader.
async fn words_reach_the_event((store, switch): (Opened, FaultSwitch), fault: Fault, words: &str) {
    let (elector, leadership) = lead(store).await;
    assert_eq!(elector.status().await.unwrap().store_troubles, Vec::new());
    switch.always(fault);
    let reason = soon("the loss", leadership.ended()).await;
    assert_eq!(reason, Reason::Expired);
    let why = leadership.why(reason);
    assert!(
        why.starts_with("it could not be renewed in time: no renewal of the store succeeded for"),
        "{why}"
    );
    assert!(why.contains(words) && why.contains("failure"), "{why}");
    drop(leadership);
    let status = elector.status().await.unwrap();
    assert!(status.store_troubles.iter().any(|trouble| trouble.error.contains(words)), "{status:?}");
    // The lead is over at some time, and the application has not stated that it does not want another one.
    let over = async {
        loop {
            let status = elector.status().await.unwrap();
            if status.leader.is_none() && !status.campaigning {
                return status.why_no_leader().join("; ");
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let why = soon("the end of the lead", over).await;
    assert!(why.contains("does not campaign: ") && !why.contains("does not want to lead"), "{why}");
    // And it is no trouble any more when the store answers again.
    switch.always(Fault::None);
    let again = soon("the next election", elector.campaign()).await.unwrap();
    assert_eq!(again.check(), Ok(()));
    assert_eq!(elector.status().await.unwrap().store_troubles, Vec::new());
    elector.close().await;
}

#[tokio::test]
async fn a_failing_stores_own_words_reach_the_event() {
    let reached = "not reached (a fault on demand)";
    words_reach_the_event(register("words"), Fault::Unavailable, reached).await;
    words_reach_the_event(sessions("words"), Fault::Unavailable, reached).await;
}

#[tokio::test]
async fn a_store_that_does_not_answer_is_told_as_one() {
    let late = Fault::Delay(Duration::from_secs(3600));
    words_reach_the_event(register("silent"), late, "no answer within 250ms").await;
    words_reach_the_event(sessions("silent"), late, "no answer within 250ms").await;
}

/// No node can be elected by a record whose token has none after it, and so none is told that it may be taken.
#[tokio::test]
async fn a_record_that_nobody_can_lead_by_is_told_as_unusable() {
    const AT_END: &str = "its token 18446744073709551615 is at the end";
    let record = |token: u64| {
        format!(
            r#"{{"primacy":1,"token":{token},"duration_ns":1,"renewal":0,"nonce":"0000000000000000","holder":null}}"#
        )
    };
    let store = Arc::new(MemoryRegister::open("at-end", "test"));
    store.plant(record(7).as_bytes());
    let opened = Opened::Register(Arc::clone(&store) as Arc<dyn primacy::stores::Register>);
    let elector = Elector::builder().election("test").lease(LEASE).opened(opened).await.unwrap();
    let why = async |says: &str| {
        loop {
            let why = elector.status().await.unwrap().why_no_leader().join("; ");
            if why.contains(says) {
                return why;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    soon("the record", why("the record is released; whoever stands may take it")).await;
    store.plant(record(u64::MAX).as_bytes());
    let says = soon("the reason", why(AT_END)).await;
    assert!(says.contains("when it was read last, the record was released"), "{says}");
    assert!(!says.contains("may take it"), "{says}");

    store.plant(record(8).as_bytes());
    let leadership = soon("the election", elector.campaign()).await.unwrap();
    store.plant(record(u64::MAX).as_bytes());
    let reason = soon("the loss", leadership.ended()).await;
    assert!(leadership.why(reason).contains(AT_END), "{}", leadership.why(reason));
    drop(leadership);
    elector.close().await;
}
