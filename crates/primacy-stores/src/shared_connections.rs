//! Connections that several elections of one process share, so that each need not have its own.
//!
//! Two handles on the *same* election do not share one: the state that one of them has in the store, such as a session,
//! must not be taken for the other's.

use std::collections::HashSet;
use std::fmt;
use std::ops::Deref;
use std::sync::{Arc, Mutex, Weak};

use crate::mutex::lock;

/// The connections of one kind of store, by the key with which each was opened.
#[derive(Debug)]
pub(crate) struct SharedConnections<T> {
    slots: Mutex<Vec<(String, Weak<Slot<T>>)>>,
}

#[derive(Debug)]
struct Slot<T> {
    connection: T,
    elections: Mutex<HashSet<String>>,
}

/// One election's share of a connection; the connection goes when the last share is dropped.
pub(crate) struct Share<T> {
    slot: Arc<Slot<T>>,
    election: String,
}

impl<T> SharedConnections<T> {
    pub(crate) const fn new() -> Self {
        Self { slots: Mutex::new(Vec::new()) }
    }

    /// Returns a share, for `election`, of a connection with this key: of an existing one that has no handle on this
    /// election, or of a new one from `open`, which must return at once and connect when it is used.
    pub(crate) fn join<E>(
        &self,
        key: &str,
        election: &str,
        open: impl FnOnce() -> Result<T, E>,
    ) -> Result<Share<T>, E> {
        let mut slots = lock(&self.slots);
        slots.retain(|(_, slot)| slot.strong_count() > 0);
        let same = slots.iter().filter(|(name, _)| name == key).filter_map(|(_, slot)| slot.upgrade());
        for slot in same {
            if slot.take(election) {
                return Ok(Share { slot, election: election.to_owned() });
            }
        }
        let elections = Mutex::new(HashSet::from([election.to_owned()]));
        let slot = Arc::new(Slot { connection: open()?, elections });
        slots.push((key.to_owned(), Arc::downgrade(&slot)));
        Ok(Share { slot, election: election.to_owned() })
    }
}

impl<T> Slot<T> {
    /// Takes a share for the election; returns whether it had none yet.
    fn take(&self, election: &str) -> bool {
        lock(&self.elections).insert(election.to_owned())
    }
}

impl<T> Deref for Share<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.slot.connection
    }
}

impl<T> Drop for Share<T> {
    fn drop(&mut self) {
        lock(&self.slot.elections).remove(&self.election);
    }
}

/// Leaves out the key, which may hold a password.
impl<T: fmt::Debug> fmt::Debug for Share<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Share")
            .field("connection", &self.slot.connection)
            .field("election", &self.election)
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use super::*;

    #[test]
    fn elections_share_a_connection_and_two_handles_on_one_do_not() {
        let shared = SharedConnections::new();
        let mut count = 0;
        let mut join = |key: &str, election: &str| {
            let open = || {
                count += 1;
                Ok::<_, Infallible>(count)
            };
            shared.join(key, election, open).unwrap()
        };
        let (a, b) = (join("url", "a"), join("url", "b"));
        assert_eq!((*a, *b), (1, 1));
        let again = join("url", "a");
        assert_eq!(*again, 2, "the same election");
        assert_eq!(*join("other", "a"), 3, "another store");
        drop(a);
        assert_eq!(*join("url", "a"), 1, "the first handle has gone");
        drop((b, again));
        assert_eq!(*join("url", "a"), 4, "all have gone");
        assert!(!format!("{:?}", join("secret", "a")).contains("secret"));
        assert!(shared.join("fails", "a", || Err("no")).is_err_and(|error| error == "no"));
    }
}
