//! Azure Blob Storage on Azurite.

use std::future::Future;
use std::pin::Pin;

use primacy_conformance::live::azurite::Azurite;
use primacy_stores::{OpenError, ReadError, SetError, open, open_existing};

use crate::Column;
use crate::object::{ObjectHarness, one_of_two_processes_makes_the_first_record};
use crate::registers::record;

pub(crate) fn check() -> Pin<Box<dyn Future<Output = Vec<Column>>>> {
    Box::pin(async {
        let azurite = Azurite::start().await;
        let url = azurite.as_ref().map(Azurite::url).map_err(Clone::clone);
        let harness = ObjectHarness { name: "az (Azurite)", url };
        let column = harness.column().await;
        if azurite.is_ok() {
            one_of_two_processes_makes_the_first_record(&harness).await;
        }
        vec![column]
    })
}

async fn server() -> Option<Azurite> {
    crate::to_be_tried("az", Azurite::start()).await
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_keys_and_missing_containers_are_refused_with_what_to_do() {
    let Some(azurite) = server().await else { return };
    let wrong = open(&azurite.url_with_wrong_key(), "e").await.expect_err("a wrong key");
    assert!(matches!(&wrong, OpenError::Refused { why } if why.contains("credentials")), "{wrong:?}");
    let missing = open(&azurite.url_of_missing_container(), "e").await.expect_err("no such container");
    assert!(matches!(&missing, OpenError::Refused { why } if why.contains("Make it")), "{missing:?}");
    let missing = open_existing(&azurite.url_of_missing_container(), "e").await;
    assert!(matches!(missing, Err(OpenError::Refused { .. })), "{missing:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_record_outlives_the_server() {
    let Some(mut azurite) = server().await else { return };
    let register = open(&azurite.url(), "outlives").await.unwrap();
    let version = register.compare_and_set(None, &record(1)).await.unwrap();
    azurite.stop().await;
    assert!(matches!(register.read().await, Err(ReadError::Unavailable { .. })));
    let set = register.compare_and_set(Some(&version), &record(2)).await;
    assert!(matches!(set, Err(SetError::Unavailable { .. })), "nobody was connected to: {set:?}");
    azurite.restart().await;
    assert_eq!(register.read().await, Ok(Some((record(1), version.clone()))));
    register.compare_and_set(Some(&version), &record(2)).await.expect("as if nothing had been");
}
