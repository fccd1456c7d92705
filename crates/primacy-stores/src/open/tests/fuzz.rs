//! Fuzz tests of store URLs: a valid URL is parsed into its parts; any other one is refused, with an error that does
//! not show its password.

use std::pin::pin;
use std::task::{Context, Poll, Waker};

use primacy_core::election::lease::Record;
use primacy_fuzz::Draw;

use super::*;
use crate::descriptor::Support;

#[test]
fn store_url() {
    primacy_fuzz::hold("store_url", |bytes| {
        let mut draw = Draw::new(bytes);
        let election = draw.text();
        let url = String::from_utf8_lossy(draw.rest());
        any_url(&url, &election);
        #[cfg(any(feature = "file", feature = "sqlite"))]
        path(find(&url).map_or(&url, |(_, rest)| rest));
    });
}

fn any_url(url: &str, election: &str) {
    let (store, rest) = match find(url) {
        Ok(found) => found,
        Err(refused) => {
            let scheme = url.split_once(':').map_or("", |(scheme, _)| scheme);
            assert!(STORES.iter().all(|store| store.scheme != scheme));
            let OpenError::UnknownScheme { scheme: told, .. } = &refused else { panic!("{refused:?}") };
            assert!(told.is_empty() || told == scheme && !scheme.contains(['@', '/']));
            return harmless(&refused, url, |other| find(other).err().unwrap());
        }
    };
    assert_eq!(format!("{}:{rest}", store.scheme), url);
    match (&store.support, store.scheme) {
        (Support::BuiltIn(..), "memory") => memory(url, rest, election),
        // Opening these stores creates files.
        (Support::BuiltIn(..), _) => {}
        (Support::Feature(_), _) => {
            let refused = |url: &str| now(open(url, election)).err().unwrap();
            harmless(&refused(url), url, refused);
        }
    }
}

/// Opens `memory:`, the store that leaves nothing behind.
fn memory(url: &str, rest: &str, election: &str) {
    let is_election = check_election(election).is_ok();
    assert_eq!(is_election, (1..=200).contains(&election.len()) && !election.contains(char::is_control));
    let is_name = !rest.trim_start_matches('/').is_empty();
    // A store in memory lasts as long as the process, so only stores with short names are created; the others are only
    // looked up.
    if rest.len() > 1 {
        match now(open_existing(url, election)).err().unwrap() {
            OpenError::Election { .. } => assert!(!is_election),
            OpenError::Malformed { .. } => assert!(is_election && !is_name),
            refused @ OpenError::Unavailable { .. } => {
                assert!(is_election && is_name);
                harmless(&refused, url, |other| now(open_existing(other, election)).err().unwrap());
            }
            refused @ (OpenError::UnknownScheme { .. } | OpenError::NotBuiltIn { .. })
            | refused @ (OpenError::KeepsSessions { .. } | OpenError::Refused { .. })
            | refused @ OpenError::Shortage { .. } => {
                panic!("{url:?}: {refused}")
            }
        }
    }
    if rest.len() > 1 || election.len() > 1 {
        return;
    }
    let opened = now(open(url, election));
    assert_eq!(opened.is_ok(), is_election && is_name);
    let Ok(opened) = opened else { return };
    // A URL with the same parts opens the same store.
    let (record, version) = now(opened.read()).unwrap().unwrap();
    let record = Record { renewal: record.renewal.wrapping_add(1), ..record };
    let version = now(opened.compare_and_set(Some(&version), &record)).unwrap();
    let again = now(open_existing(url, election)).ok().unwrap();
    assert_eq!(now(again.read()).unwrap(), Some((record, version)));
}

/// Checks that the path is the rest of the URL, unchanged.
#[cfg(any(feature = "file", feature = "sqlite"))]
fn path(rest: &str) {
    use std::os::unix::ffi::OsStrExt as _;
    let form = "file:DIRECTORY";
    match crate::file_system::path_of_url(rest, form) {
        Ok((path, sharing)) => {
            let path = path.as_os_str().as_bytes();
            let rest = if sharing.group.is_some() {
                rest.rsplit_once("?group=").expect("it was named").0
            } else {
                rest
            };
            assert!(!path.is_empty() && !path.contains(&0) && rest.as_bytes().ends_with(path));
            let before = &rest[..rest.len() - path.len()];
            assert!(before.is_empty() || before == "//" && path.starts_with(b"/"), "{before:?} was lost");
        }
        Err(OpenError::Malformed { form: told, .. }) => assert_eq!(told, form),
        Err(refused) => panic!("{rest:?}: {refused}"),
    }
}

/// Checks that the text of a refusal, which is logged and shown, does not depend on the text after the scheme, which
/// may contain a password.
fn harmless(refused: &OpenError, url: &str, of: impl Fn(&str) -> OpenError) {
    let told = refused.to_string();
    assert!(!told.contains(char::is_control), "{told:?}");
    let other = url.split_once(':').map_or("another".to_owned(), |(scheme, rest)| {
        // Without slashes, the text before the colon may be a user's name.
        let begins = if rest.starts_with("//") { "//" } else { "" };
        let ends = if rest.contains('@') { "@host" } else { "" };
        format!("{scheme}:{begins}another{ends}")
    });
    assert_eq!(told, of(&other).to_string());
}

/// Polls once: a store in memory is never pending.
fn now<T>(doing: impl Future<Output = T>) -> T {
    match pin!(doing).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(done) => done,
        Poll::Pending => panic!("a store in memory waits for nobody"),
    }
}
