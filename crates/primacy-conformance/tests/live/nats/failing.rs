//! Faults of servers, and the errors that their elections get then.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_nats::jetstream::stream;
use primacy_conformance::live::nats::{BUCKET, Nats, PASSWORD};
use primacy_conformance::live::proxy::Proxy;
use primacy_core::election::lease::Version;
use primacy_stores::{OpenError, ReadError, Register, SetError, open};
use rustix::process::Signal;

use super::log;
use super::relay::relay_that_lies;
use super::servers;
use crate::registers::{PATIENCE, open_in_the_end, read_in_the_end, record, refusal, set};

/// Writes as an election would: where the outcome is unknown, it reads.
async fn set_in_the_end(register: &Arc<dyn Register>, token: u64) -> Version {
    let began = std::time::Instant::now();
    loop {
        assert!(began.elapsed() < PATIENCE, "it can be written again");
        let found = read_in_the_end(register).await;
        if let Some((found, version)) = &found
            && *found == record(token)
        {
            return version.clone();
        }
        match set(register, found.as_ref().map(|(_, version)| version), token).await {
            Ok(version) => return version,
            Err(SetError::Conflict | SetError::Unknown { .. } | SetError::Unavailable { .. }) => {}
        }
    }
}

/// Debian's is one of these: there, two writes at once have replaced the same entry, and both were acknowledged.
#[tokio::test]
async fn replicas_on_servers_before_2_11_are_refused() {
    let Some(servers) = servers(3).await else { return };
    let began = std::time::Instant::now();
    let why = loop {
        assert!(began.elapsed() < PATIENCE, "the servers find together");
        if let OpenError::Refused { why } = refusal(&servers.url()).await {
            break why;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    };
    assert!(why.contains("2.11"), "{why}");
}

#[tokio::test]
async fn of_servers_that_stand_still_nothing_is_known_until_they_go_on() {
    let Some(servers) = servers(1).await else { return };
    let register = open_in_the_end(&servers.url(), "paused").await;
    let first = set_in_the_end(&register, 1).await;
    for server in servers.servers() {
        server.signal(Signal::STOP);
    }
    let failed = set(&register, Some(&first), 2).await;
    assert!(matches!(failed, Err(SetError::Unknown { .. })), "it was sent: {failed:?}");
    assert!(matches!(register.read().await, Err(ReadError::Unavailable { .. })));
    assert!(matches!(refusal(&format!("{}?tls=on", servers.url())).await, OpenError::Unavailable { .. }));
    for server in servers.servers() {
        server.signal(Signal::CONT);
    }
    let (found, version) = read_in_the_end(&register).await.unwrap();
    assert!(found == record(1) || found == record(2), "{found:?}");
    assert_eq!(found == record(1), version == first);
    set_in_the_end(&register, 3).await;
    if found == record(1) {
        assert_eq!(set(&register, Some(&first), 4).await, Err(SetError::Conflict));
    }
}

#[tokio::test]
async fn a_wrong_password_is_refused_and_not_shown() {
    let Some(servers) = servers(1).await else { return };
    let address = servers.addresses()[0];
    for login in ["elections:wrong-secret@", "", "wrong-secret@"] {
        let error = refusal(&format!("nats://{login}{address}/{BUCKET}")).await;
        assert!(matches!(error, OpenError::Refused { .. }), "{error:?}");
        let told = error.to_string();
        assert!(told.contains("USER:PASSWORD") && !told.contains("wrong-secret"), "{told}");
    }
    let error = refusal(&format!("nats://{address}/{BUCKET}?creds=/no/such/file")).await;
    assert!(matches!(&error, OpenError::Refused { why } if why.contains("/no/such/file")), "{error:?}");
}

#[tokio::test]
async fn a_single_server_is_warned_of_and_keeps_what_it_has_over_a_restart() {
    let Some(mut servers) = servers(1).await else { return };
    log::read();
    let register = open(&servers.url(), "single").await.unwrap();
    let told = log::read();
    assert!(told.contains("fewer than 3 replicas") && told.contains("flush"), "{told}");
    assert!(!told.contains(PASSWORD), "{told}");
    let first = set(&register, None, 1).await.unwrap();
    servers.kill(0);
    // Until the loss of the connection is noticed, a write is taken for the next one.
    let may_come = match set(&register, Some(&first), 2).await {
        Err(SetError::Unavailable { .. }) => false,
        Err(SetError::Unknown { .. }) => true,
        other @ (Ok(_) | Err(SetError::Conflict)) => panic!("{other:?}"),
    };
    assert!(matches!(refusal(&format!("{}-other", servers.url())).await, OpenError::Unavailable { .. }));
    servers.restart(0);
    let (found, version) = read_in_the_end(&register).await.unwrap();
    let is_kept = (&found, &version) == (&record(1), &first);
    let has_come = may_come && found == record(2) && version != first;
    assert!(is_kept || has_come, "{found:?} of {version:?}, where a write may come late: {may_come}");
    set_in_the_end(&register, 3).await;
}

#[tokio::test]
async fn a_write_whose_reply_is_lost_is_unknown_and_was_done() {
    let Some(servers) = servers(1).await else { return };
    let proxy = Proxy::start(servers.addresses()[0]);
    let register = open(&Nats::url_at(&[proxy.address()]), "cut").await.unwrap();
    let first = set(&register, None, 1).await.unwrap();
    // The server also asks and answers whether the other one is there; so the first bytes need not be the reply.
    proxy.drop_replies();
    let failed = set(&register, Some(&first), 2).await;
    assert!(matches!(failed, Err(SetError::Unknown { .. })), "{failed:?}");
    proxy.refuse();
    proxy.pass();
    let (found, version) = read_in_the_end(&register).await.unwrap();
    assert_eq!(found, record(2), "the server had done it");
    assert_ne!(version, first);
    let again = async {
        loop {
            match set(&register, Some(&first), 3).await {
                // The servers may be too busy to answer so in time.
                Err(SetError::Unknown { .. }) => {}
                told => return told,
            }
        }
    };
    let told = tokio::time::timeout(PATIENCE, again).await.expect("it is told in the end");
    assert_eq!(told, Err(SetError::Conflict), "an old version is refused");
    assert_eq!(read_in_the_end(&register).await, Some((record(2), version)), "and nothing was written");
}

#[tokio::test]
async fn a_bucket_whose_entries_expire_is_refused() {
    let Some(servers) = servers(1).await else { return };
    let config = stream::Config {
        name: "KV_expiring".to_owned(),
        subjects: vec!["$KV.expiring.>".to_owned()],
        max_age: Duration::from_secs(60),
        ..stream::Config::default()
    };
    servers.context().await.create_stream(config).await.unwrap();
    let error = refusal(&servers.url().replace(BUCKET, "expiring")).await;
    assert!(matches!(&error, OpenError::Refused { why } if why.contains("expire")), "{error:?}");
}

#[tokio::test]
async fn a_bucket_that_was_deleted_is_made_again_by_the_next_open() {
    let Some(servers) = servers(1).await else { return };
    let register = open(&servers.url(), "before").await.unwrap();
    set(&register, None, 1).await.unwrap();
    servers.context().await.delete_stream(format!("KV_{BUCKET}")).await.unwrap();
    let gone = register.read().await;
    assert!(matches!(gone, Err(ReadError::Unavailable { .. })), "{gone:?}");
    // Over the connection that the other election uses, too.
    let next = open(&servers.url(), "after").await.unwrap();
    set(&next, None, 1).await.unwrap();
    assert_eq!(register.read().await, Ok(None), "the record went with the bucket");
}

/// As where the servers of a cluster are not all of one version, and the connection goes on to an older one.
#[tokio::test]
async fn a_server_before_2_11_is_refused_also_when_it_is_met_later() {
    let Some(servers) = servers(3).await else { return };
    let lies = Arc::new(AtomicBool::new(true));
    let mut relays = Vec::new();
    for server in servers.addresses() {
        relays.push(relay_that_lies(server, Arc::clone(&lies)).await);
    }
    let register = open_in_the_end(&Nats::url_at(&relays), "mixed").await;
    set_in_the_end(&register, 1).await;
    lies.store(false, Ordering::SeqCst);
    let refused = async {
        loop {
            match register.read().await {
                Err(ReadError::Unavailable { why }) if why.contains("2.11") => return,
                Ok(_) | Err(ReadError::Unavailable { .. }) => {
                    tokio::time::sleep(Duration::from_millis(20)).await
                }
                Err(error @ ReadError::Malformed { .. }) => panic!("{error}"),
            }
        }
    };
    tokio::time::timeout(PATIENCE, refused).await.expect("the older server is met");
    assert!(matches!(set(&register, None, 2).await, Err(SetError::Unavailable { .. })));
}
