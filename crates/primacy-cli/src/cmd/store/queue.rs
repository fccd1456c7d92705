//! The same verbs over a store that keeps sessions, where the first entry of the queue leads.

use std::time::Duration;

use primacy::core::FencingToken;
use primacy::stores::{SessionError, Sessions};
use serde::Serialize;
use tokio::time::{sleep, timeout};

use crate::cmd::target::tell;
use crate::control::FirstEntry;
use crate::exit::{Exit, Failure};
use crate::printable::one_line;

/// The interval for reading a queue whose store reports no changes.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// The verdict on a queue. It needs no observation, since the store itself removes the entries of ended sessions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Verdict {
    /// The queue has a first entry, whose session is alive.
    First,
    /// No candidate is in the queue.
    Empty,
}

/// Runs `primacy status --store`.
pub(super) async fn who(store: &dyn Sessions, election: &str, json: bool) -> Result<Exit, Failure> {
    #[derive(Serialize)]
    struct QueueReport<'a> {
        election: &'a str,
        verdict: Verdict,
        first: Option<FirstEntry>,
    }
    let first = store.first().await?.as_ref().map(FirstEntry::from);
    let verdict = if first.is_some() { Verdict::First } else { Verdict::Empty };
    let report = QueueReport { election, verdict, first };
    tell(json, &report, || match &report.first {
        None => format!("{election}: nobody leads; no node is in the queue"),
        Some(first) => {
            let text = one_line(&first.text());
            format!("{election}: {} leads: it is the first in the queue\n  {text}", first.node)
        }
    })?;
    Ok(if report.first.is_some() { Exit::Success } else { Exit::NotElected })
}

/// Waits until the leadership with this token is over, as far as the queue shows.
pub(super) async fn gone(store: &dyn Sessions, token: FencingToken) -> Result<(), Failure> {
    loop {
        match store.first().await {
            Ok(Some(first)) if first.token == token => {
                // This is only a hint; the queue is read anyway.
                let _ = timeout(LOOK_INTERVAL, store.changed()).await;
            }
            Ok(Some(_) | None) => return Ok(()),
            // The store may answer the next time.
            Err(SessionError::NoAnswer { .. }) => sleep(LOOK_INTERVAL).await,
            Err(error @ (SessionError::Ended { .. } | SessionError::Refused { .. })) => {
                return Err(error.into());
            }
        }
    }
}

impl From<SessionError> for Failure {
    fn from(error: SessionError) -> Self {
        crate::entry::location::failure(&error.into())
    }
}

#[cfg(test)]
mod tests {
    use primacy::core::election::lease::Holder;
    use primacy::core::{Identity, Incarnation};
    use primacy::stores::memory::MemorySessions;

    use super::*;

    /// A bound that is longer than any step of these tests takes on a busy machine.
    const BOUND: Duration = Duration::from_secs(20);

    #[tokio::test]
    async fn the_first_in_the_queue_is_shown_until_it_is_gone() {
        let store = MemorySessions::open("cli", "e");
        assert_eq!(who(&store, "e", true).await.unwrap(), Exit::NotElected);
        let identity = Identity::new("a".parse().unwrap(), Incarnation { count: 1, nonce: 2 });
        let holder = Holder { identity, address: "h:1".to_owned() };
        let session = store.begin(BOUND * 10).await.unwrap().session;
        store.campaign(&session, &holder).await.unwrap();
        assert_eq!(who(&store, "e", true).await.unwrap(), Exit::Success);
        let first = store.first().await.unwrap().unwrap();
        assert!(FirstEntry::from(&first).text().contains("a at h:1"));
        let watching = MemorySessions::open("cli", "e");
        let gone = tokio::spawn(async move { gone(&watching, first.token).await });
        store.leave(&session).await.unwrap();
        timeout(BOUND, gone).await.unwrap().unwrap().unwrap();
    }
}
