//! Many elections over one connection, rights, and TLS.

use std::sync::Arc;

use primacy_conformance::live::free_port;
use primacy_conformance::live::redis::{PASSWORD, Redis};
use primacy_stores::{OpenError, Register, open};
use rcgen::{CertifiedKey, generate_simple_self_signed};

use super::server;
use crate::registers::{record, refusal};

/// The number of elections at once.
const ELECTIONS: u64 = 200;

/// The number of connections, but for the one that asks.
fn connections(server: &Redis) -> usize {
    let list: String = server.ask(redis::cmd("CLIENT").arg("LIST"));
    list.lines().count() - 1
}

#[tokio::test]
async fn two_hundred_elections_share_one_connection_and_one_for_notices() {
    let Some(server) = server(&[]).await else { return };
    let url = format!("{}/many", server.url());
    let mut registers: Vec<Arc<dyn Register>> = Vec::new();
    for number in 0..ELECTIONS {
        registers.push(open(&url, &format!("election {number}")).await.unwrap());
    }
    assert_eq!(connections(&server), 2);
    for round in 1..=3 {
        let mut writing = Vec::new();
        for register in &registers {
            let register = Arc::clone(register);
            writing.push(tokio::spawn(async move {
                let expect = register.read().await.unwrap().map(|(_, version)| version);
                register.compare_and_set(expect.as_ref(), &record(round)).await.unwrap();
            }));
        }
        for writing in writing {
            writing.await.unwrap();
        }
    }
    assert_eq!(connections(&server), 2);
    // Each wakes for its own changes.
    let other = open(&url, "election 7").await.unwrap();
    let (_, version) = other.read().await.unwrap().unwrap();
    other.compare_and_set(Some(&version), &record(9)).await.unwrap();
    tokio::time::timeout(std::time::Duration::from_secs(60), registers[7].changed())
        .await
        .expect("it is told");
    assert_eq!(registers[7].read().await.unwrap().unwrap().0, record(9));
    assert_eq!(registers[8].read().await.unwrap().unwrap().0, record(3));
}

/// The rights that the page names, and no others.
const RIGHTS: &[&str] = &[
    "resetkeys",
    "resetchannels",
    "-@all",
    "~primacy:*",
    "&primacy:changed",
    "+eval",
    "+evalsha",
    "+exists",
    "+get",
    "+hello",
    "+hget",
    "+hmget",
    "+hset",
    "+info",
    "+persist",
    "+publish",
    "+select",
    "+set",
    "+subscribe",
    "+config|get",
];

#[tokio::test]
async fn the_rights_that_the_page_names_are_enough_and_needed() {
    let page = include_str!("../../../../../docs/stores/redis.md");
    for right in RIGHTS {
        assert!(page.contains(right), "{right} is not on the page");
    }
    let Some(server) = server(&[]).await else { return };
    let make = |name: &str, rights: &[&str]| {
        let mut make = redis::cmd("ACL");
        make.arg("SETUSER").arg(name).arg("on").arg(">secret").arg(rights);
        let _: () = server.ask(&make);
        format!("redis://{name}:secret@{}/primacy?db=1", server.address())
    };
    let register = open(&make("enough", RIGHTS), "rights").await.unwrap();
    let version = register.compare_and_set(None, &record(1)).await.unwrap();
    register.compare_and_set(Some(&version), &record(2)).await.unwrap();
    assert_eq!(register.read().await.unwrap().unwrap().0, record(2));
    let silent: Vec<&str> = RIGHTS.iter().copied().filter(|right| !right.starts_with('&')).collect();
    let error = refusal(&make("deaf", &silent)).await;
    assert!(matches!(&error, OpenError::Refused { why } if why.contains("lacks a right")), "{error:?}");
    // Without these two it is used, and what could not be learned is written to the log.
    let blind: Vec<&str> =
        RIGHTS.iter().copied().filter(|right| !["+info", "+config|get"].contains(right)).collect();
    open(&make("blind", &blind), "rights").await.unwrap();
}

#[tokio::test]
async fn tls_is_verified() {
    let make = || generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
    let CertifiedKey { cert, signing_key } = make();
    let files = primacy_conformance::live::Ground::new("redis-tls");
    let write = |name: &str, text: String| {
        std::fs::write(files.at(name), text).unwrap();
        files.at(name).display().to_string()
    };
    let certificate = write("cert.pem", cert.pem());
    let key = write("key.pem", signing_key.serialize_pem());
    let stranger = write("stranger.pem", make().cert.pem());
    let port = free_port();
    let listen = port.to_string();
    let settings = ["--tls-port", &listen, "--tls-cert-file", &certificate, "--tls-key-file", &key];
    let settings =
        [&settings[..], &["--tls-ca-cert-file", &certificate, "--tls-auth-clients", "no"]].concat();
    let Some(_server) = server(&settings).await else { return };
    let url = format!("redis://:{PASSWORD}@127.0.0.1:{port}/primacy");
    let register = open(&format!("{url}?ca={certificate}"), "tls").await.unwrap();
    register.compare_and_set(None, &record(1)).await.unwrap();
    let error = refusal(&format!("{url}?ca={stranger}")).await;
    assert!(matches!(&error, OpenError::Refused { why } if why.contains("TLS")), "{error:?}");
    let error = refusal(&format!("{url}?tls=on")).await;
    assert!(matches!(&error, OpenError::Refused { why } if why.contains("TLS")), "{error:?}");
    let error = refusal(&url).await;
    assert!(matches!(error, OpenError::Unavailable { .. }), "it does not speak in the clear: {error:?}");
}
