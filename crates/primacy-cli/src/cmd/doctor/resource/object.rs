//! An object of an object store.

use std::sync::Arc;

use primacy::fence::object::{FencedObject, FencedObjectError};
use primacy::stores::object::{ObjectDocument, ObjectStore, StaleWrite};
use primacy::stores::{Check, OpenError, Verdict, object_store_at};

use super::{REFUSES, WHY};
use crate::exit::{Exit, Failure};

/// The election for reading the object, if none was given. The object itself names the one that it belongs to.
const ANY_ELECTION: &str = "doctor";

/// The remedy if the store ignores conditions.
const OTHER_STORE: &str =
    "keep it in a store that honours If-Match, or hold the state in a database; see docs/fencing.md";

/// The remedy if it is unknown whether writes name a condition.
const BY_THE_FENCE: &str = "write it by primacy::fence::object or primacy::leader_document, or name in each write the version that was read";

/// An object, and its store.
#[derive(Debug)]
pub(crate) struct Object {
    store: Arc<dyn ObjectStore>,
    key: String,
}

impl Object {
    /// Parses the URL of an object; sends no request.
    pub(super) fn parse(url: &str) -> Result<Self, Failure> {
        let usage = |error: OpenError| Failure::new(Exit::Usage, format!("--resource: {error}"));
        let (store, key) = object_store_at(url).map_err(usage)?;
        ObjectDocument::new(Arc::clone(&store), &key).map_err(usage)?;
        Ok(Self { store, key })
    }

    /// Tries writes on the object `primacy.probe` beside this one; then one write of this object that names a version
    /// which it does not have. Then checks whether the object carries a token.
    pub(super) async fn try_out(&self, election: Option<&str>) -> Check {
        let not = |verdict, found: String, fix: &str| Check::not(verdict, REFUSES, found, WHY, fix);
        let document = match ObjectDocument::new(Arc::clone(&self.store), &self.key) {
            Ok(document) => document,
            Err(error) => return not(Verdict::Unknown, error.to_string(), "name another object"),
        };
        match document.probe().await {
            Ok(()) => {}
            Err(OpenError::Refused { why }) => return not(Verdict::Fail, why, OTHER_STORE),
            Err(error) => {
                return not(Verdict::Unknown, error.to_string(), "see that the store can be reached");
            }
        }
        let stale = document.try_stale_write().await;
        let found =
            match FencedObject::new(Arc::clone(&self.store), &self.key, election.unwrap_or(ANY_ELECTION)) {
                Ok(object) => object.read().await,
                Err(error) => return not(Verdict::Unknown, error.to_string(), "name another election"),
            };
        judge(&self.key, &stale, found.map(|fenced| fenced.map(|fenced| fenced.token.0)), election)
    }
}

/// Judges the answer to the stale write and the object's first line, if the store honours conditions.
fn judge(
    key: &str,
    stale: &StaleWrite,
    found: Result<Option<u64>, FencedObjectError>,
    election: Option<&str>,
) -> Check {
    let not = |verdict, found: String, fix: &str| Check::not(verdict, REFUSES, found, WHY, fix);
    let beside = "primacy.probe beside it";
    match stale {
        StaleWrite::Refused => {}
        StaleWrite::Admitted => {
            let found = format!(
                "{key}: a write that names a version which it has not was let in, though {beside} refused one; the bytes were those \
                 that were there"
            );
            return not(Verdict::Fail, found, OTHER_STORE);
        }
        StaleWrite::Absent => {
            let found = format!(
                "there is no object {key} yet, and so no stale write of it was tried; {beside} refused them"
            );
            return not(Verdict::Unknown, found, BY_THE_FENCE);
        }
        StaleWrite::Unknown { why } => {
            let found = format!("{key}: whether it refuses a stale write was not learned: {why}");
            return not(Verdict::Unknown, found, "see that this user may read and write it, and ask again");
        }
    }
    let refused = format!("{key} refused a write that names a version which it has not");
    let unnamed = "that a write which names none would be refused was not tried";
    let pass = |token: &str| {
        let found = format!("{refused}, as did {beside}, and carries {token}; {unnamed}");
        Check::pass(REFUSES, found)
    };
    match (found, election) {
        (Ok(Some(token)), _) => pass(&format!("the token {token}")),
        (Err(FencedObjectError::OtherElection { found }), None) => {
            pass(&format!("a token of the election {found}"))
        }
        (Err(error @ FencedObjectError::OtherElection { .. }), Some(_)) => not(
            Verdict::Fail,
            error.to_string(),
            "--election with that name, if it is meant; an object has one fence",
        ),
        (Ok(None), _) => not(Verdict::Unknown, format!("{refused}, and is gone now"), BY_THE_FENCE),
        (Err(error), _) => {
            let found = format!(
                "{refused}; {unnamed}, and whether those who write it name a version, only they know: {error}"
            );
            not(Verdict::Unknown, found, BY_THE_FENCE)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_object_that_refused_and_carries_a_token_passes() {
        let other = || Err(FencedObjectError::OtherElection { found: "orders".to_owned() });
        let refused = |found, election| judge("k", &StaleWrite::Refused, found, election).verdict;
        assert_eq!(refused(Ok(Some(7)), None), Verdict::Pass);
        assert_eq!(refused(other(), None), Verdict::Pass);
        assert_eq!(refused(other(), Some("billing")), Verdict::Fail);
        assert_eq!(refused(Ok(None), None), Verdict::Unknown);
        assert_eq!(
            refused(Err(FencedObjectError::NotFenced { why: "it has no first line" }), None),
            Verdict::Unknown
        );
        for (stale, verdict) in [
            (StaleWrite::Admitted, Verdict::Fail),
            (StaleWrite::Absent, Verdict::Unknown),
            (StaleWrite::Unknown { why: "403".to_owned() }, Verdict::Unknown),
        ] {
            assert_eq!(judge("k", &stale, Ok(Some(7)), None).verdict, verdict, "{stale:?}");
        }
    }
}
