//! Stores on this machine where there are too few file descriptors: that passes, wherever it is met. The limit is of the whole process,
//! so this is a test alone in its program.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::fs;

use primacy_core::FencingToken;
use primacy_core::election::lease::Record;
use primacy_stores::{OpenError, ReadError, SetError, open};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// No file gets a higher number during the test; those that are open take some of them.
const DESCRIPTORS: u64 = 40;

/// Lets no file get a number of this or above while something is done.
async fn with_descriptors<T>(limit: u64, work: impl Future<Output = T>) -> T {
    let before = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: Some(limit), ..before }).unwrap();
    let done = work.await;
    setrlimit(Resource::Nofile, before).unwrap();
    done
}

#[tokio::test]
async fn too_few_descriptors_pass_wherever_they_are_missed() {
    let directory = std::env::temp_dir().join(format!("primacy-shortage-{}", std::process::id()));
    fs::create_dir(&directory).unwrap();
    for scheme in ["sqlite", "file"] {
        let (mut short, mut opened) = (0, 0);
        for limit in 0..DESCRIPTORS {
            // A store that is to be made, and one that is there.
            let url = format!("{scheme}:{}", directory.join(format!("{scheme}-{limit}")).display());
            for _ in 0..2 {
                match with_descriptors(limit, open(&url, "e")).await {
                    Ok(_) => opened += 1,
                    Err(OpenError::Shortage { .. }) => short += 1,
                    Err(error) => panic!("{scheme} below {limit}: {error:?}"),
                }
            }
        }
        assert!(short > 0 && opened > 0, "{scheme}: {short} and {opened}");
        let url = format!("{scheme}:{}", directory.join(scheme).display());
        let register = open(&url, "e").await.unwrap();
        let record = Record::released(FencingToken(u64::MAX >> 2), primacy_core::Duration::from_secs(10));
        for limit in 0..DESCRIPTORS {
            let found = match with_descriptors(limit, register.read()).await {
                Err(ReadError::Unavailable { .. }) => register.read().await.unwrap(),
                found => found.unwrap(),
            };
            let version = found.map(|(_, version)| version);
            let written = with_descriptors(limit, register.compare_and_set(version.as_ref(), &record)).await;
            let is_told =
                matches!(&written, Ok(_) | Err(SetError::Unavailable { .. } | SetError::Unknown { .. }));
            assert!(is_told, "{scheme} below {limit}: {written:?}");
        }
        assert!(register.read().await.unwrap().is_some());
    }
    fs::remove_dir_all(directory).unwrap();
}
