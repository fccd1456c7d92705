//! An object of an object store.

use std::sync::Arc;

use primacy::fence::object::{FencedObject, FencedObjectError};
use primacy::stores::object::{ObjectDocument, ObjectStore, store};
use primacy::stores::{Check, OpenError, Verdict};

use super::{REFUSES, WHY};
use crate::exit::{Exit, Failure};

/// What the object is asked for where no election was named. Which one it has, it says.
const ANY_ELECTION: &str = "doctor";

/// An object, and the store that it is in.
#[derive(Debug)]
pub(crate) struct Object {
    store: Arc<dyn ObjectStore>,
    key: String,
}

impl Object {
    /// What the URL names; nothing is asked.
    pub(super) fn parse(url: &str) -> Result<Self, Failure> {
        let usage = |error: OpenError| Failure::new(Exit::Usage, format!("--resource: {error}"));
        let (store, key) = store(url).map_err(usage)?;
        ObjectDocument::new(Arc::clone(&store), &key).map_err(usage)?;
        Ok(Self { store, key })
    }

    /// Tries writes that name a version which is not there, on the object `primacy.probe` beside this one; and looks whether this
    /// one carries a token. It is not written.
    pub(super) async fn try_out(&self, election: Option<&str>) -> Check {
        let not = |verdict, found: String, fix: &str| Check::not(verdict, REFUSES, found, WHY, fix);
        let probing = match ObjectDocument::new(Arc::clone(&self.store), &self.key) {
            Ok(document) => document.probe().await,
            Err(error) => Err(error),
        };
        match probing {
            Ok(()) => {}
            Err(OpenError::Refused { why }) => {
                let fix = "keep it in a store that honours If-Match, or hold the state in a database; see docs/fencing.md";
                return not(Verdict::Fail, why, fix);
            }
            Err(error) => {
                return not(Verdict::Unknown, error.to_string(), "see that the store can be reached");
            }
        }
        let found =
            match FencedObject::new(Arc::clone(&self.store), &self.key, election.unwrap_or(ANY_ELECTION)) {
                Ok(object) => object.read().await,
                Err(error) => return not(Verdict::Unknown, error.to_string(), "name another election"),
            };
        judge(&self.key, found.map(|fenced| fenced.map(|fenced| fenced.token.0)), election)
    }
}

/// What follows from the object's first line, where the store honours conditions.
fn judge(key: &str, found: Result<Option<u64>, FencedObjectError>, election: Option<&str>) -> Check {
    let not = |verdict, found: String, fix: &str| Check::not(verdict, REFUSES, found, WHY, fix);
    let pass = |token: &str| {
        let found = format!("the store refused a write that names an old version, and {key} carries {token}");
        Check::pass(REFUSES, found)
    };
    let honours = "the store refused a write that names an old version";
    let fix = "write it by primacy::fence::object or primacy::led_document, or name in each write the version that was read";
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
        (Ok(None), _) => not(Verdict::Unknown, format!("{honours}; there is no object {key} yet"), fix),
        (Err(error), _) => {
            let found =
                format!("{honours}; whether those who write {key} name a version, only they know: {error}");
            not(Verdict::Unknown, found, fix)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_object_with_a_token_passes() {
        let other = || Err(FencedObjectError::OtherElection { found: "orders".to_owned() });
        assert_eq!(judge("k", Ok(Some(7)), None).verdict, Verdict::Pass);
        assert_eq!(judge("k", other(), None).verdict, Verdict::Pass);
        assert_eq!(judge("k", other(), Some("billing")).verdict, Verdict::Fail);
        assert_eq!(judge("k", Ok(None), None).verdict, Verdict::Unknown);
        let plain = Err(FencedObjectError::NotFenced { why: "it has no first line" });
        assert_eq!(judge("k", plain, None).verdict, Verdict::Unknown);
    }
}
