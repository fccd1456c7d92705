//! Failed attempts inside one request: a client that retries internally records each error, so that a caller that abandons the request
//! first still gets the store's own error.
//!
//! The caller wraps the request in [`Attempts::observe`]; a client calls [`failed`] after each failed attempt that it repeats. A future
//! that runs as a task of its own takes the caller's attempts along by [`inherit`].

use std::fmt::Display;
use std::future::Future;
use std::sync::{Arc, Mutex};

use crate::error_text::shortened;
use crate::mutex::lock;

tokio::task_local! {
    static CURRENT: Attempts;
}

/// The failed attempts of one request so far.
#[derive(Clone, Debug, Default)]
pub struct Attempts(Arc<Mutex<Option<String>>>);

impl Attempts {
    /// Runs `request`, whose failed attempts are noted here.
    pub async fn observe<F: Future>(&self, request: F) -> F::Output {
        CURRENT.scope(self.clone(), request).await
    }

    /// Returns the attempts of the current request; new ones if no caller observes it.
    pub(crate) fn current() -> Self {
        CURRENT.try_with(Clone::clone).unwrap_or_default()
    }

    /// Runs a part of the request on the calling thread, and notes its failed attempts here.
    pub(crate) fn observe_here<T>(&self, work: impl FnOnce() -> T) -> T {
        CURRENT.sync_scope(self.clone(), work)
    }

    /// The error of the latest attempt that failed; `None` if none has.
    #[must_use]
    pub fn last_error(&self) -> Option<String> {
        lock(&self.0).clone()
    }
}

/// Notes a failed attempt of the current request that the client will repeat. It does nothing if no caller observes the request.
pub(crate) fn failed(why: &dyn Display) {
    // An error means that no caller observes the request.
    let _ = CURRENT.try_with(|attempts| {
        *lock(&attempts.0) = Some(shortened(why));
    });
}

/// Wraps `work`, which runs as a separate task, so that its failed attempts are noted with those of the current request.
#[cfg(feature = "network")]
pub(crate) fn inherit<F: Future>(work: F) -> impl Future<Output = F::Output> + use<F> {
    let current = Attempts::current();
    async move { current.observe(work).await }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_latest_failed_attempt_is_known_when_the_request_is_given_up() {
        failed(&"outside of a request");
        let attempts = Attempts::default();
        let request = attempts.observe(async {
            failed(&"connection refused");
            failed(&"no leader");
            std::future::pending::<()>().await;
        });
        let given_up = tokio::time::timeout(std::time::Duration::from_millis(1), request).await;
        assert!(given_up.is_err());
        assert_eq!(attempts.last_error().as_deref(), Some("no leader"));
    }

    #[cfg(feature = "network")]
    #[tokio::test]
    async fn a_task_of_its_own_notes_its_attempts_with_those_of_the_request() {
        let attempts = Attempts::default();
        let request = async { tokio::spawn(inherit(async { failed(&"refused") })).await };
        attempts.observe(request).await.unwrap();
        assert_eq!(attempts.last_error().as_deref(), Some("refused"));
    }
}
