//! The least rights of a candidate, and other clients of the same account.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use primacy_conformance::live::nats::{BUCKET, Nats, PASSWORD, USER};
use primacy_core::election::lease::Version;
use primacy_stores::{Register, nats as store, open};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep, timeout};

use super::log;
use crate::registers::{open_in_the_end, record, set};
use crate::to_be_tried;

/// The interval at which a store reads without a subscription.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// The usual rights of a client: requests of others, and answers to its own.
const USUAL: [&str; 2] = [r#""_INBOX.>""#, r#""_INBOX.>""#];

/// Returns the rights to publish and to subscribe that the page names, as lists of a configuration.
fn least_rights() -> [String; 2] {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/stores/nats.md");
    let page = std::fs::read_to_string(page).expect("the page is there");
    let (_, section) = page.split_once("## Least rights").expect("the page names them");
    ["publish:", "subscribe:"].map(|verb| {
        let line = section.lines().find_map(|line| line.strip_prefix(verb)).expect("a line for each verb");
        let subjects = line.replace("BUCKET", BUCKET);
        subjects.split_whitespace().map(|subject| format!("\"{subject}\"")).collect::<Vec<_>>().join(",")
    })
}

fn user(name: &str, publish: &str, subscribe: &str) -> String {
    format!(
        "{{ user: {name}, password: \"{PASSWORD}\", permissions: {{ publish: [{publish}], subscribe: [{subscribe}] }} }}\n"
    )
}

/// One server, if there can be one, with these users.
async fn server_with(users: &str) -> Option<Nats> {
    to_be_tried("nats", Nats::start_with(1, users)).await
}

/// Opens an election with the login of a user.
async fn open_as(user: &str, servers: &Nats, election: &str) -> Arc<dyn Register> {
    let url = servers.url().replace(USER, user);
    open(&url, election).await.expect("the rights suffice")
}

/// Waits for a change that `writer` makes meanwhile; returns the version, and how long the wait took.
async fn notice(
    waiting: &Arc<dyn Register>,
    writer: &Arc<dyn Register>,
    before: Option<&Version>,
    token: u64,
) -> (Version, Duration) {
    let began = Instant::now();
    let change = waiting.changed();
    let write = async {
        // The wait, and with it the subscription, begins before.
        sleep(Duration::from_millis(200)).await;
        set(writer, before, token).await.expect("the writer is alone")
    };
    let waiting = async { timeout(store::CHANGE_BOUND, change).await.expect("in time") };
    let ((), version) = tokio::join!(waiting, write);
    (version, began.elapsed())
}

#[tokio::test]
async fn the_least_rights_of_the_page_suffice_to_notice_changes_at_once() {
    let [publish, subscribe] = least_rights();
    let Some(servers) = server_with(&user("candidate", &publish, &subscribe)).await else { return };
    let writer = open_in_the_end(&servers.url(), "least").await;
    let candidate = open_as("candidate", &servers, "least").await;
    assert_eq!(candidate.read().await, Ok(None));
    let mut version = None;
    let mut waits = Vec::new();
    for token in 1..=10 {
        let (written, wait) = notice(&candidate, &writer, version.as_ref(), token).await;
        assert_eq!(candidate.read().await, Ok(Some((record(token), written.clone()))));
        version = Some(written);
        waits.push(wait);
        // Polling takes longer. The machine may be too busy for one of them, and not for all.
        if wait < LOOK_INTERVAL {
            set(&candidate, version.as_ref(), token + 1).await.expect("it may write");
            return;
        }
    }
    panic!("no change is noticed at once: {waits:?}");
}

#[tokio::test]
async fn a_login_that_may_not_subscribe_is_warned_of_and_polls() {
    let [publish, subscribe] = least_rights();
    let subscribe = subscribe.replace(&format!("\"$KV.{BUCKET}.>\","), "");
    let Some(servers) = server_with(&user("deaf", &publish, &subscribe)).await else { return };
    log::read();
    let writer = open_in_the_end(&servers.url(), "polled").await;
    let candidate = open_as("deaf", &servers, "polled").await;
    assert_eq!(candidate.read().await, Ok(None));
    let (written, wait) = notice(&candidate, &writer, None, 1).await;
    assert!(wait >= LOOK_INTERVAL, "by a poll only: {wait:?}");
    assert_eq!(candidate.read().await, Ok(Some((record(1), written))));
    let told = log::read();
    assert!(told.contains("noticed by polling only") && told.contains("$KV.primacy.polled"), "{told}");
}

/// The client hears the answers to other clients' requests, and sends to each subject in them what a server sends to a consumer: a request
/// for a reply, to the key and to the deletion of the bucket.
#[tokio::test]
async fn a_client_without_rights_to_the_bucket_cannot_change_it_through_a_candidate() {
    let [publish, subscribe] = USUAL;
    let Some(servers) = server_with(&user("client", publish, subscribe)).await else { return };
    let mut client = TcpStream::connect(servers.addresses()[0]).await.unwrap();
    let hello = format!(
        "CONNECT {{\"user\":\"client\",\"pass\":\"{PASSWORD}\",\"headers\":true,\"verbose\":false}}\r\nSUB _INBOX.> 1\r\nPING\r\n"
    );
    client.write_all(hello.as_bytes()).await.unwrap();
    let register = open_in_the_end(&servers.url(), "e").await;
    let version = set(&register, None, 1).await.unwrap();
    let waiting = open_as(USER, &servers, "e").await;
    assert_eq!(waiting.read().await, Ok(Some((record(1), version.clone()))));
    let attack = async {
        let (mut heard, mut subjects) = (Vec::new(), BTreeSet::new());
        let until = Instant::now() + 5 * LOOK_INTERVAL;
        while let Ok(Ok(1..)) = tokio::time::timeout_at(until, client.read_buf(&mut heard)).await {
            let text = String::from_utf8_lossy(&heard).into_owned();
            let words =
                text.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '.' && letter != '_');
            let new = words.filter(|word| word.starts_with("_INBOX.")).map(str::to_owned);
            let new: Vec<String> = new.filter(|subject| subjects.insert(subject.clone())).collect();
            let headers = "NATS/1.0 100 FlowControl Request\r\n\r\n";
            for subject in new {
                for reply in [format!("$KV.{BUCKET}.e"), format!("$JS.API.STREAM.DELETE.KV_{BUCKET}")] {
                    let length = headers.len();
                    let message = format!("HPUB {subject} {reply} {length} {length}\r\n{headers}\r\n");
                    client.write_all(message.as_bytes()).await.unwrap();
                }
            }
        }
        assert!(String::from_utf8_lossy(&heard).contains("PONG"), "it is logged in");
    };
    // A record that is gone is a change.
    tokio::select! {
        () = waiting.changed() => {}
        () = attack => {}
    }
    assert_eq!(register.read().await, Ok(Some((record(1), version))));
}
