//! A fence in Kubernetes objects of any kind, built in or custom: only the newest leader can write them.
//!
//! The object itself keeps the highest token that was shown to it, in an annotation, and every write names the
//! `resourceVersion` that was read with it:
//!
//! ```text
//! read       token 7, resourceVersion 41        a leader with the token 8 goes on; one with 6 is refused here
//! change     …
//! write      token 8, if it is still 41         done, or 409: then it is read, compared and changed again
//! ```
//!
//! The reason that it holds: the API server compares the `resourceVersion` and writes atomically. A leader that was paused after its read
//! conflicts once a later leader has written, reads again, and sees the higher token. Its own requests that are still in transit name the
//! old `resourceVersion`, and the server refuses them.
//!
//! It holds among all clients that write through this module. `docs/fencing.md` lists what bypasses it.
//!
//! This module takes an [`Api`] of [`kube`], because the credentials are the application's; so a new major version of it is one
//! of this module too.

use std::collections::BTreeMap;
use std::error::Error;
use std::fmt::Debug;

use kube::api::PostParams;
use kube::{Api, Resource, ResourceExt};
use primacy::fence::{self, Fence, FenceError, FencingToken};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// The prefix of the annotation's name; the election follows.
pub const ANNOTATION_PREFIX: &str = "fence.primacy-rs.github.io/";

/// The longest name of an election here, in bytes: Kubernetes' limit for this part of an annotation's name.
pub const ELECTION_LENGTH_MAX: usize = 63;

/// The number of attempts of one write. Each conflict means that another client has written meanwhile; more than these are not coincidence.
const ATTEMPTS_MAX: u32 = 20;

/// The reason that a guarded write was not made.
#[derive(Debug, thiserror::Error)]
pub enum GuardError {
    /// A later leader has shown a higher token. Nothing was written.
    #[error(transparent)]
    Stale(#[from] FenceError),
    /// The name of the election cannot be part of an annotation's name. Nothing was written.
    #[error(
        "the election {election:?} cannot be named in an annotation: at most {ELECTION_LENGTH_MAX} letters, digits, \
         '-', '_' and '.', with a letter or digit at both ends"
    )]
    Election {
        /// The election.
        election: String,
    },
    /// The value of the annotation is not a token. Nothing was written.
    #[error(
        "the annotation {annotation} of {object} is {found:?} and no token; somebody has changed it by hand"
    )]
    Malformed {
        /// The name of the object.
        object: String,
        /// The annotation.
        annotation: String,
        /// The annotation's value.
        found: String,
    },
    /// Other clients wrote to the object during every attempt. Nothing was written.
    #[error(
        "{object} was changed by others each of {ATTEMPTS_MAX} times; find out who writes to it all the time"
    )]
    Contended {
        /// The name of the object.
        object: String,
    },
    /// The application's own error. Nothing was written.
    #[error(transparent)]
    Application(Box<dyn Error + Send + Sync>),
    /// The API server has refused, or did not answer. Unless it has refused, the write may have been made.
    #[error("the API server has not done it: {0}")]
    Kube(#[from] kube::Error),
}

/// Changes the object `name` with `change`, and records `token` in it, in one write. Returns the object that the server has stored.
///
/// `change` is called for each attempt, on the present object, and so must be idempotent: it may find its own earlier write, whose answer
/// was lost. A new leader should call this once for each object with nothing to change: from then on its predecessor is refused.
///
/// Dropping the future after it has been polled leaves open whether the write is made.
///
/// # Errors
/// [`GuardError::Stale`] if a later leader has shown a higher token; and the error of `change`.
pub async fn fenced<K>(
    api: &Api<K>,
    name: &str,
    election: &str,
    token: FencingToken,
    mut change: impl FnMut(&mut K) -> Result<(), GuardError>,
) -> Result<K, GuardError>
where
    K: Resource + Clone + DeserializeOwned + Serialize + Debug,
{
    let annotation = annotation(election)?;
    for _ in 0..ATTEMPTS_MAX {
        let mut object = api.get(name).await?;
        let admitted = Fence::new(token_in(&object, &annotation)?).admit(token);
        admitted.inspect_err(|FenceError::Stale { .. }| fence::count_refused())?;
        let version = object.resource_version();
        change(&mut object)?;
        object.annotations_mut().insert(annotation.clone(), token.to_string());
        // Without it the server would overwrite the object unconditionally.
        object.meta_mut().resource_version = version;
        match api.replace(name, &PostParams::default(), &object).await {
            Err(error) if is_conflict(&error) => {}
            written => return Ok(written?),
        }
    }
    Err(GuardError::Contended { object: name.to_owned() })
}

/// Creates an object with `token` in it; returns the object that the server has stored.
///
/// The highest token is deleted with an object: an earlier leader can create it again. If that must not happen, do not delete it.
///
/// # Errors
/// [`GuardError`]; where the object exists, [`GuardError::Kube`] with the server's 409.
pub async fn create<K>(
    api: &Api<K>,
    election: &str,
    token: FencingToken,
    mut object: K,
) -> Result<K, GuardError>
where
    K: Resource + Clone + DeserializeOwned + Serialize + Debug,
{
    object.annotations_mut().insert(annotation(election)?, token.to_string());
    Ok(api.create(&PostParams::default(), &object).await?)
}

/// Returns the highest token of `election` that was shown to this object; 0 if none was.
///
/// # Errors
/// [`GuardError::Election`] or [`GuardError::Malformed`].
pub fn highest<K: Resource>(object: &K, election: &str) -> Result<FencingToken, GuardError> {
    token_in(object, &annotation(election)?)
}

fn token_in<K: Resource>(object: &K, annotation: &str) -> Result<FencingToken, GuardError> {
    let annotations: Option<&BTreeMap<String, String>> = object.meta().annotations.as_ref();
    let Some(found) = annotations.and_then(|all| all.get(annotation)) else { return Ok(FencingToken(0)) };
    let malformed = || GuardError::Malformed {
        object: object.name_any(),
        annotation: annotation.to_owned(),
        found: found.clone(),
    };
    // The standard library's parser also takes a sign.
    let is_number = !found.is_empty() && found.bytes().all(|byte| byte.is_ascii_digit());
    found.parse().ok().filter(|_| is_number).map(FencingToken).ok_or_else(malformed)
}

fn annotation(election: &str) -> Result<String, GuardError> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric();
    let bytes = election.as_bytes();
    let fits = bytes.len() <= ELECTION_LENGTH_MAX
        && bytes.iter().all(|&byte| is_plain(byte) || b"-_.".contains(&byte))
        && bytes.first().copied().is_some_and(is_plain)
        && bytes.last().copied().is_some_and(is_plain);
    if !fits {
        return Err(GuardError::Election { election: election.to_owned() });
    }
    Ok(format!("{ANNOTATION_PREFIX}{election}"))
}

fn is_conflict(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 409 && status.reason == "Conflict")
}

#[cfg(test)]
mod tests {
    use kube::api::{ApiResource, DynamicObject, GroupVersionKind};

    use super::*;

    #[test]
    fn only_a_token_is_one_and_only_what_can_be_an_annotation_is_an_election() {
        let kind = ApiResource::from_gvk(&GroupVersionKind::gvk("", "v1", "ConfigMap"));
        let mut object = DynamicObject::new("state", &kind);
        assert_eq!(highest(&object, "orders").unwrap(), FencingToken(0));
        for (text, token) in
            [("7", Some(7)), ("18446744073709551615", Some(u64::MAX)), ("", None), ("+7", None), ("x", None)]
        {
            object.annotations_mut().insert(format!("{ANNOTATION_PREFIX}orders"), text.to_owned());
            assert_eq!(highest(&object, "orders").ok(), token.map(FencingToken), "{text:?}");
        }
        for wrong in ["", "a/b", "-a", "a b", &"a".repeat(64)] {
            let error = highest(&object, wrong).unwrap_err();
            assert!(matches!(error, GuardError::Election { .. }), "{wrong:?}");
        }
    }
}
