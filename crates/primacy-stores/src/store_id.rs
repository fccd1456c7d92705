//! [`StoreId`]: a random number that identifies a store.
//!
//! Nodes that communicate over a network *and* share a store must use the same store: with a store of its own, each node would find itself
//! confirmed. URLs do not show this, because `sqlite:/var/lib/billing.db` names another file on every machine, and one server has many
//! names. So the first node that opens a store writes a random number there, and nodes compare the numbers that they find.
//!
//! The number is the nonce of a record like any other, under a name that no election can have. It is written once. A copy
//! of a store, such as a restored backup, has the number of its original.

use std::fmt;

use primacy_core::election::lease::Record;
use primacy_core::{Duration, FencingToken};

use crate::election_name::OF_STORE;
use crate::open::open;
use crate::open_error::OpenError;
use crate::register::{ReadError, SetError};

/// The number of attempts after a lost race or an unknown outcome. One is enough in a store that is linearizable.
const ATTEMPTS: usize = 3;

/// The number of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct StoreId(pub u64);

/// The reason that the number of a store is not known.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StoreIdError {
    /// The store was not opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The number was not read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// There is no number yet, and none could be written.
    #[error("the store has no mark yet, and {0}")]
    Write(SetError),
}

impl StoreId {
    /// Returns the number of the store at `url`; the first node ever to call this writes `drawn` there, which must be random.
    ///
    /// Open the election's own register first: a store that is made for it knows that its record was never held, and a store that existed
    /// before does not. Dropping the future may leave `drawn` there, too.
    ///
    /// # Errors
    /// [`StoreIdError`]
    pub async fn of(url: &str, drawn: u64) -> Result<Self, StoreIdError> {
        let register = open(url, OF_STORE).await?;
        let drawn = drawn.max(1);
        let mut last = SetError::Conflict;
        for _ in 0..ATTEMPTS {
            let expect = match register.read().await? {
                // A record that a store makes for itself when it is opened has no nonce.
                Some((record, version)) if record.nonce == 0 => Some(version),
                Some((record, _)) => return Ok(Self(record.nonce)),
                None => None,
            };
            match register.compare_and_set(expect.as_ref(), &record(drawn)).await {
                Ok(_) => return Ok(Self(drawn)),
                Err(error) => last = error,
            }
        }
        Err(StoreIdError::Write(last))
    }
}

/// A record without a holder, which no node ever takes.
fn record(nonce: u64) -> Record {
    Record {
        holder: None,
        token: FencingToken(0),
        duration: Duration::ZERO,
        renewal: 0,
        nonce,
        resign_request: None,
        young: false,
        unknown: Box::default(),
    }
}

impl fmt::Display for StoreId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_first_to_ask_leaves_a_number_and_all_others_find_it() {
        let (a, b) = tokio::join!(StoreId::of("memory:mark-a", 7), StoreId::of("memory:mark-a", 8));
        let first = a.unwrap();
        assert_eq!(first, b.unwrap());
        assert!([7, 8].contains(&first.0));
        assert_eq!(StoreId::of("memory:mark-a", 9).await, Ok(first));
        assert_eq!(StoreId::of("memory:mark-b", 9).await, Ok(StoreId(9)), "another store");
    }

    #[tokio::test]
    async fn a_store_that_cannot_be_opened_has_none() {
        let error = StoreId::of("oracle://root:secret@host", 1).await.unwrap_err();
        assert!(matches!(error, StoreIdError::Open(_)) && !error.to_string().contains("secret"), "{error}");
    }
}
