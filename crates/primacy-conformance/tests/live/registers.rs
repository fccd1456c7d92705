//! Requests of the tests of stores that keep a record, each of which must end in time.

use std::sync::Arc;
use std::time::Duration;

use primacy_core::FencingToken;
use primacy_core::election::lease::{Record, Version};
use primacy_stores::{OpenError, ReadError, Register, SetError, open};
use tokio::time::{sleep, timeout};

/// The time to wait for something that must come. Far longer than anything takes that works.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);

/// The pause between two tries.
const POLL: Duration = Duration::from_millis(10);

/// Opens a store that may have to find its leader first.
pub(crate) async fn open_in_the_end(url: &str, election: &str) -> Arc<dyn Register> {
    let opening = async {
        loop {
            match open(url, election).await {
                Ok(register) => return register,
                Err(OpenError::Unavailable { .. }) => sleep(POLL).await,
                Err(error) => panic!("{error}"),
            }
        }
    };
    timeout(PATIENCE, opening).await.expect("the servers find together")
}

/// The error of a store that cannot be opened.
pub(crate) async fn refusal(url: &str) -> OpenError {
    let opening = timeout(PATIENCE, open(url, "refused")).await;
    opening.expect("an open does not hang").expect_err("nothing to open there")
}

/// A record without a holder.
pub(crate) fn record(token: u64) -> Record {
    Record::released(FencingToken(token), primacy_core::Duration::from_secs(10))
}

pub(crate) async fn set(
    register: &Arc<dyn Register>,
    expect: Option<&Version>,
    token: u64,
) -> Result<Version, SetError> {
    let record = record(token);
    timeout(PATIENCE, register.compare_and_set(expect, &record)).await.expect("a request has a bound")
}

/// Reads again and again, until the store is there again.
pub(crate) async fn read_in_the_end(register: &Arc<dyn Register>) -> Option<(Record, Version)> {
    let reading = async {
        loop {
            match register.read().await {
                Ok(found) => return found,
                Err(ReadError::Unavailable { .. }) => sleep(POLL).await,
                Err(error @ ReadError::Malformed { .. }) => panic!("{error}"),
            }
        }
    };
    timeout(PATIENCE, reading).await.expect("it is reconnected to")
}
