//! The elections of a process that share a session.

use std::collections::HashMap;
use std::sync::Mutex;

use crate::mutex::lock;

/// The handle of each election that uses the session; `None` if a handle has used it before.
#[derive(Debug, Default)]
pub(crate) struct SessionUsers(Mutex<HashMap<String, Option<u64>>>);

impl SessionUsers {
    /// Joins this handle on this election to the session; returns whether it may use it. Once one has joined, no other
    /// handle on that election may: pending requests of the first one use the same name in the store.
    pub(crate) fn join(&self, election: &str, handle: u64) -> bool {
        *lock(&self.0).entry(election.to_owned()).or_insert(Some(handle)) == Some(handle)
    }

    /// Removes this handle; returns whether others use the session.
    pub(crate) fn leave(&self, election: &str, handle: u64) -> bool {
        let mut users = lock(&self.0);
        if let Some(used) = users.get_mut(election).filter(|used| **used == Some(handle)) {
            *used = None;
        }
        users.values().any(Option::is_some)
    }

    /// Returns whether this handle uses it.
    pub(crate) fn has(&self, election: &str, handle: u64) -> bool {
        lock(&self.0).get(election) == Some(&Some(handle))
    }

    /// Returns whether several elections use it.
    #[cfg(feature = "etcd")]
    pub(crate) fn are_many(&self) -> bool {
        lock(&self.0).values().filter(|user| user.is_some()).count() > 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_handle_on_an_election_uses_no_session_of_the_first() {
        let users = SessionUsers::default();
        assert!(users.join("a", 1) && users.join("a", 1) && users.join("b", 2));
        assert!(!users.join("a", 3));
        assert!(users.has("a", 1) && !users.has("a", 3));
        assert!(users.leave("a", 1), "b uses it");
        assert!(!users.join("a", 3), "what the first one left undone");
        assert!(users.leave("a", 3), "it had none");
        assert!(!users.leave("b", 2));
    }
}
