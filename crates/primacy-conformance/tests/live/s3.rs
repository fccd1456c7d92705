//! S3 on moto, and what networks, gateways and bad servers do to it.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use primacy::fence::object::{FencedObject, FencedObjectError};
use primacy::leader_document::{
    Election, Ended, LeaderDocument, LeaderDocumentOptions, LeadershipStatus, SubmitError,
};
use primacy_conformance::live::http_faults::{Fault, HttpFaults};
use primacy_conformance::live::moto::{BUCKET, Moto};
use primacy_core::FencingToken;
use primacy_core::election::lease::Record;
use primacy_stores::object::ObjectDocument;
use primacy_stores::{OpenError, ReadError, SetError, object_store_at, open, open_existing};
use rustix::process::Signal;

use crate::Column;
use crate::object::{ObjectHarness, one_of_two_processes_makes_the_first_record};

pub(crate) fn check() -> Pin<Box<dyn Future<Output = Vec<Column>>>> {
    Box::pin(async {
        let moto = Moto::start().await;
        let url = moto.as_ref().map(Moto::url).map_err(Clone::clone);
        let harness = ObjectHarness { name: "s3 (moto)", url };
        let column = harness.column().await;
        if moto.is_ok() {
            one_of_two_processes_makes_the_first_record(&harness).await;
        }
        vec![column]
    })
}

/// The server, if it is to be tried.
async fn server() -> Option<Moto> {
    crate::to_be_tried("s3", Moto::start()).await
}

fn record(token: u64) -> Record {
    let mut record = Record::released(FencingToken(token), primacy_core::Duration::from_secs(10));
    record.nonce = token;
    record
}

const BUSY: Fault = Fault::Answer(
    "409 Conflict",
    "<Error><Code>ConditionalRequestConflict</Code><Message>another is under way</Message></Error>",
);
const SLOW_DOWN: (&str, &str) = (
    "503 Slow Down",
    "<Error><Code>SlowDown</Code><Message>Please reduce your request rate</Message></Error>",
);

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_reply_is_known_by_its_number() {
    let Some(moto) = server().await else { return };
    let proxy = HttpFaults::start(moto.port());
    let url = moto.url_through(BUCKET, proxy.port());
    let register = open(&url, "lost reply").await.unwrap();
    for (lost, expect_lost) in [
        (Fault::LoseReply, false),
        (Fault::AnswerAfter(SLOW_DOWN.0, SLOW_DOWN.1), false),
        (Fault::AnswerAfter("500 Internal Server Error", ""), false),
        // The second sending meets the first, and is answered that the condition does not hold.
        (Fault::Repeat, false),
        (Fault::LoseRequest, true),
        (Fault::Answer(SLOW_DOWN.0, SLOW_DOWN.1), true),
    ] {
        let found = register.read().await.unwrap();
        let (token, expect) =
            found.map_or((1, None), |(record, version)| (record.token.0 + 1, Some(version)));
        proxy.next("PUT", lost.clone());
        let set = register.compare_and_set(expect.as_ref(), &record(token)).await;
        assert!(proxy.is_done());
        let now = register.read().await.unwrap();
        if expect_lost {
            assert!(matches!(set, Err(SetError::Unknown { .. })), "{lost:?}: {set:?}");
            assert_eq!(now.map(|(_, version)| version), expect, "{lost:?}");
        } else {
            let version = set.unwrap_or_else(|error| panic!("{lost:?}: {error}"));
            assert_eq!(now, Some((record(token), version)), "{lost:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_doubtful_answer_without_a_look_afterwards_is_unknown() {
    let Some(moto) = server().await else { return };
    let proxy = HttpFaults::start(moto.port());
    let register = open(&moto.url_through(BUCKET, proxy.port()), "no look").await.unwrap();
    proxy.next("PUT", Fault::LoseReply);
    proxy.next("GET", Fault::Answer(SLOW_DOWN.0, SLOW_DOWN.1));
    let set = register.compare_and_set(None, &record(1)).await;
    assert!(matches!(set, Err(SetError::Unknown { .. })), "{set:?}");
    assert_eq!(register.read().await.unwrap().map(|(found, _)| found), Some(record(1)));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_write_that_was_put_off_is_sent_again_and_nothing_was_written_if_that_does_not_help() {
    let Some(moto) = server().await else { return };
    let proxy = HttpFaults::start(moto.port());
    let register = open(&moto.url_through(BUCKET, proxy.port()), "busy").await.unwrap();
    proxy.next("PUT", BUSY);
    let first = register.compare_and_set(None, &record(1)).await.expect("sent again");
    proxy.next("PUT", BUSY);
    proxy.next("PUT", BUSY);
    let second = register.compare_and_set(Some(&first), &record(2)).await.expect("sent again");
    assert!(proxy.is_done());
    proxy.always(Fault::None);
    // With an old version it is no use: another writer was faster.
    proxy.next("PUT", BUSY);
    assert_eq!(register.compare_and_set(Some(&first), &record(3)).await, Err(SetError::Conflict));
    proxy.next("PUT", BUSY);
    assert_eq!(register.compare_and_set(None, &record(3)).await, Err(SetError::Conflict));
    for _ in 0..20 {
        proxy.next("PUT", BUSY);
    }
    let set = register.compare_and_set(Some(&second), &record(3)).await;
    assert!(matches!(set, Err(SetError::Unavailable { .. })), "{set:?}");
    assert_eq!(register.read().await, Ok(Some((record(2), second))));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_ignores_conditions_is_refused() {
    let Some(moto) = server().await else { return };
    let proxy = HttpFaults::start(moto.port());
    proxy.always(Fault::Unconditional);
    let url = moto.url_through(BUCKET, proxy.port());
    let refused = open(&url, "ignored").await.expect_err("two could lead at once");
    assert!(matches!(refused, OpenError::Refused { .. }), "{refused:?}");
    assert!(refused.to_string().contains("If-None-Match"), "{refused}");
    // A handle that only looks writes nothing, but does not get to write either.
    let looking = open_existing(&url, "ignored").await.expect("reading does no harm");
    let set = looking.compare_and_set(None, &record(1)).await;
    assert!(matches!(set, Err(SetError::Unavailable { .. })), "{set:?}");
    assert_eq!(looking.read().await, Ok(None));
    // A server that honours the first condition only.
    let half = HttpFaults::start(moto.port());
    half.next("PUT", Fault::None);
    half.always(Fault::Unconditional);
    let refused = open(&moto.url_through(BUCKET, half.port()), "ignored").await.expect_err("the same");
    assert!(refused.to_string().contains("If-Match"), "{refused}");
    let unknown = HttpFaults::start(moto.port());
    let not_implemented = "<Error><Code>NotImplemented</Code></Error>";
    unknown.always(Fault::Answer("501 Not Implemented", not_implemented));
    let refused = open(&moto.url_through(BUCKET, unknown.port()), "ignored").await.expect_err("the same");
    assert!(matches!(refused, OpenError::Refused { .. }), "{refused:?}");
}

/// This holds for the fake, whose clients are paused at any moment in the stories of the command.
#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_sends_no_request_keeps_no_other_waiting() {
    let Some(moto) = server().await else { return };
    let _silent = tokio::net::TcpStream::connect(("127.0.0.1", moto.port())).await.unwrap();
    let register = open(&moto.url(), "beside").await.unwrap();
    assert_eq!(register.read().await, Ok(None));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_compares_first_and_then_writes_is_refused() {
    let Some(moto) = crate::to_be_tried("s3", Moto::start_in_two_steps("")).await else { return };
    let refused = open(&moto.url(), "two steps").await.expect_err("two could lead at once");
    assert!(matches!(refused, OpenError::Refused { .. }), "{refused:?}");
    assert!(refused.to_string().contains("more than one of several writes at once"), "{refused}");
    // As with a server that ignores conditions, a handle that only looks does not get to write either.
    let looking = open_existing(&moto.url(), "two steps").await.expect("reading does no harm");
    let set = looking.compare_and_set(None, &record(1)).await;
    assert!(matches!(set, Err(SetError::Unavailable { .. })), "{set:?}");
    assert_eq!(looking.read().await, Ok(None));
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_credentials_and_missing_buckets_are_refused_with_what_to_do() {
    let Some(moto) = server().await else { return };
    let missing = open(&moto.url_through("nobody", moto.port()), "e").await.expect_err("no such bucket");
    assert!(matches!(&missing, OpenError::Refused { why } if why.contains("Make it")), "{missing:?}");
    let missing = open_existing(&moto.url_through("nobody", moto.port()), "e").await;
    assert!(matches!(missing, Err(OpenError::Refused { .. })), "{missing:?}");
    // The answer of S3 to a wrong key; moto takes any.
    let proxy = HttpFaults::start(moto.port());
    proxy.always(Fault::Answer(
        "403 Forbidden",
        "<Error><Code>SignatureDoesNotMatch</Code><Message>The request signature does not match</Message></Error>",
    ));
    let refused = open(&moto.url_through(BUCKET, proxy.port()), "e").await.expect_err("not allowed");
    assert!(matches!(&refused, OpenError::Refused { why } if why.contains("credentials")), "{refused:?}");
    // Later on, a right that was taken away leaves the record as it was.
    proxy.always(Fault::None);
    let register = open(&moto.url_through(BUCKET, proxy.port()), "e").await.unwrap();
    let version = register.compare_and_set(None, &record(1)).await.unwrap();
    proxy.next("PUT", Fault::Answer("403 Forbidden", "<Error><Code>AccessDenied</Code></Error>"));
    let set = register.compare_and_set(Some(&version), &record(2)).await;
    assert!(matches!(set, Err(SetError::Unavailable { .. })), "{set:?}");
    assert_eq!(register.read().await, Ok(Some((record(1), version))));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_goes_away_is_unavailable_and_used_again_when_it_is_back() {
    let Some(mut moto) = server().await else { return };
    let register = open(&moto.url(), "away").await.unwrap();
    let version = register.compare_and_set(None, &record(1)).await.unwrap();
    // Stopped, it accepts the connection and does not answer; it is unknown what it will do with the request.
    moto.server().signal(Signal::STOP);
    let set = register.compare_and_set(Some(&version), &record(2)).await;
    assert!(matches!(set, Err(SetError::Unknown { .. })), "{set:?}");
    moto.server().signal(Signal::CONT);
    // It is done now, or later, or never; a caller that reads long enough learns which.
    let mut found = register.read().await.unwrap().expect("a record");
    if found.0 == record(1) {
        match register.compare_and_set(Some(&found.1), &record(3)).await {
            Ok(version) => found = (record(3), version),
            Err(SetError::Conflict) => found = register.read().await.unwrap().expect("a record"),
            Err(error) => panic!("{error}"),
        }
    }
    moto.kill();
    assert!(matches!(register.read().await, Err(ReadError::Unavailable { .. })));
    let set = register.compare_and_set(Some(&found.1), &record(4)).await;
    assert!(matches!(set, Err(SetError::Unavailable { .. })), "nobody was connected to: {set:?}");
    let refused = open(&moto.url(), "another").await.expect_err("nobody listens");
    assert!(matches!(refused, OpenError::Unavailable { .. }), "{refused:?}");
    moto.restart().await;
    // It has lost everything. A bucket that is gone is not an election without a record.
    let read = register.read().await;
    assert!(matches!(&read, Err(ReadError::Unavailable { why }) if why.contains("not there")), "{read:?}");
    moto.make_bucket(BUCKET);
    assert_eq!(register.read().await, Ok(None));
    register.compare_and_set(None, &record(5)).await.expect("connected to again");
    let waiting = tokio::time::timeout(Duration::from_secs(60), async {
        let other = open(&moto.url(), "away").await.unwrap();
        let (_, version) = other.read().await.unwrap().unwrap();
        other.compare_and_set(Some(&version), &record(6)).await.unwrap();
        register.changed().await;
    });
    waiting.await.expect("a change is noticed as before");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stale_leaders_late_write_to_a_fenced_object_is_refused() {
    let Some(moto) = server().await else { return };
    let proxy = HttpFaults::start(moto.port());
    let open = |port| {
        let (store, _) = object_store_at(&moto.url_through(BUCKET, port)).expect("a URL of this store");
        FencedObject::new(store, "orders/state.json", "orders").unwrap()
    };
    let (zombie, successor) = (open(proxy.port()), open(moto.port()));
    zombie.write(FencingToken(7), b"of 7").await.unwrap();
    // Its answers are lost, and it knows its own writes all the same.
    proxy.next("PUT", Fault::LoseReply);
    zombie.write(FencingToken(7), b"of 7").await.unwrap();
    // The same content as before: the ETag must change, or a stale condition would hold.
    successor.raise(FencingToken(8)).await.unwrap();
    let late = zombie.write(FencingToken(7), b"late").await;
    assert!(matches!(late, Err(FencedObjectError::Stale(_))), "{late:?}");
    let found = successor.read().await.unwrap().unwrap();
    assert_eq!((found.token, found.bytes), (FencingToken(8), b"of 7".to_vec()));
}

/// The data of the next test's brokers: the count of each thing that was done.
type Counts = BTreeMap<String, u64>;

/// The time that its brokers wait for a silent one.
const LEADER_TIMEOUT: Duration = Duration::from_secs(6);

fn broker(moto: &Moto, port: u16, address: &str) -> LeaderDocument<Counts> {
    let (store, _) = object_store_at(&moto.url_through(BUCKET, port)).expect("a URL of this store");
    let options = LeaderDocumentOptions { timeout: LEADER_TIMEOUT, ..LeaderDocumentOptions::new(address) };
    let document = ObjectDocument::new(store, "led/counts.json").expect("a name of an object");
    LeaderDocument::new(document, options).expect("options that fit together")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_document_makes_each_change_once_through_lost_replies_and_repetitions() {
    let Some(moto) = server().await else { return };
    let proxy = HttpFaults::start(moto.port());
    let (a, b) = (broker(&moto, proxy.port(), "a"), broker(&moto, moto.port(), "b"));
    assert!(matches!(a.try_elect().await, Ok(Election::Elected { .. })));
    assert!(matches!(b.try_elect().await, Ok(Election::OtherLeader { address, .. }) if address == "a"));
    let one = |counts: &mut Counts| *counts.entry("done".to_owned()).and_modify(|n| *n += 1).or_insert(1);
    let faults = [
        Fault::LoseReply,
        Fault::LoseRequest,
        Fault::Repeat,
        BUSY,
        Fault::AnswerAfter(SLOW_DOWN.0, SLOW_DOWN.1),
    ];
    for (number, fault) in (1..).zip(faults) {
        proxy.next("PUT", fault.clone());
        assert_eq!(a.submit(one).await, Ok(number), "{fault:?}");
    }
    assert!(proxy.is_done());
    // Cut off, it leads no more by its own clock, and knows no more than that.
    proxy.always(Fault::LoseRequest);
    let cut = a.submit(one).await;
    assert!(matches!(cut, Err(SubmitError::Unknown { .. })), "{cut:?}");
    assert!(matches!(a.leadership(), LeadershipStatus::Ended { why: Ended::Expired { .. }, .. }));
    let taking_over = tokio::time::timeout(Duration::from_secs(60), async {
        loop {
            match b.try_elect().await.unwrap() {
                Election::Elected { .. } => return,
                Election::OtherLeader { remaining, .. } => tokio::time::sleep(remaining).await,
                other @ (Election::AlreadyLeader { .. } | Election::Conflict) => panic!("{other:?}"),
            }
        }
    });
    taking_over.await.expect("a silent leader is replaced");
    assert_eq!(b.submit(one).await, Ok(6), "none was lost, and none was made twice");
    proxy.always(Fault::None);
    assert!(matches!(a.try_elect().await, Ok(Election::OtherLeader { address, .. }) if address == "b"));
    b.resign().await;
    assert!(matches!(a.try_elect().await, Ok(Election::Elected { .. })));
    assert_eq!(a.submit(one).await, Ok(7));
}
