use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{ObjectStoreExt, PutPayload};
use primacy_core::FencingToken;

use super::*;

fn record(token: u64) -> Record {
    Record::released(FencingToken(token), primacy_core::Duration::from_secs(10))
}

async fn open(store: &Arc<InMemory>, election: &str) -> ObjectRegister {
    ObjectRegister::open(Arc::clone(store) as Arc<dyn ObjectStore>, "a/b", election).await.unwrap()
}

#[tokio::test]
async fn a_store_that_the_program_has_already_is_used() {
    let store = Arc::new(InMemory::new());
    let (one, two) = (open(&store, "jobs/nightly é").await, open(&store, "jobs/nightly é").await);
    assert_eq!(one.read().await, Ok(None));
    let first = one.compare_and_set(None, &record(1)).await.unwrap();
    assert_eq!(two.compare_and_set(None, &record(2)).await, Err(SetError::Conflict));
    let second = two.compare_and_set(Some(&first), &record(2)).await.unwrap();
    assert_eq!(one.compare_and_set(Some(&first), &record(3)).await, Err(SetError::Conflict));
    assert_eq!(one.read().await, Ok(Some((record(2), second))));
    // The same name on another line would be another election's.
    let path = Path::parse("a/b/jobs=2fnightly=20=c3=a9.election").unwrap();
    let text = store.get(&path).await.unwrap().bytes().await.unwrap();
    let foreign = String::from_utf8(text.to_vec()).unwrap().replacen("nightly", "weekly", 1);
    store.put(&path, PutPayload::from(foreign)).await.unwrap();
    assert!(matches!(one.read().await, Err(ReadError::Malformed { .. })));
}

#[tokio::test]
async fn names_and_prefixes_that_cannot_be_are_refused() {
    let open = async |prefix: &str, election: &str| {
        ObjectRegister::open(Arc::new(InMemory::new()), prefix, election).await
    };
    assert!(matches!(open("a//b", "e").await, Err(OpenError::Refused { .. })));
    assert!(matches!(open("", "").await, Err(OpenError::Election { .. })));
    assert!(open("", "e").await.is_ok());
    assert!(ObjectDocument::new(Arc::new(InMemory::new()), "a/").is_err());
}

#[test]
fn the_first_line_is_checked() {
    let whole = format("nightly", b"{}").unwrap();
    assert_eq!(parse(&whole, "nightly"), Ok(&b"{}\n"[..]));
    assert_ne!(whole, format("nightly", b"{}").unwrap(), "no two writes are alike");
    for wrong in [
        &b""[..],
        b"{}",
        b"\xff\n{}",
        b"primacy-file 1 n nightly\n{}",
        b"primacy-object 0 n nightly\n{}",
        b"primacy-object 1 n weekly\n{}",
        b"primacy-object 1  nightly\n{}",
        b"primacy-object 1\n{}",
    ] {
        assert!(matches!(parse(wrong, "nightly"), Err(RecordError::NotJson { .. })), "{wrong:?}");
    }
    let later = parse(b"primacy-object 2 whatever\n{}", "nightly");
    assert_eq!(later, Err(RecordError::LaterFormat { found: 2 }));
}

#[tokio::test]
async fn a_document_that_is_written_again_is_written_once() {
    let store = Arc::new(InMemory::new());
    let document = ObjectDocument::new(Arc::clone(&store) as Arc<dyn ObjectStore>, "a/queue.json").unwrap();
    let first = document.compare_and_set(None, b"1 x").await.unwrap();
    // It is there: the second sending of the same bytes finds that out.
    assert_eq!(document.compare_and_set(None, b"1 x").await, Ok(first.clone()));
    let second = document.compare_and_set(Some(&first), b"2 y").await.unwrap();
    assert_eq!(document.compare_and_set(Some(&first), b"2 y").await, Ok(second.clone()));
    assert_eq!(document.compare_and_set(Some(&first), b"3 z").await, Err(SetError::Conflict));
    assert_eq!(document.read().await, Ok(Some((b"2 y".to_vec(), second))));
}
