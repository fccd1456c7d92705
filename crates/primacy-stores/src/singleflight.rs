//! Single-flight: callers that arrive before a request starts share its result.

use std::sync::atomic::{AtomicU64, Ordering};

/// A request whose result is the same for all callers that arrive before it starts.
#[derive(Debug)]
pub(crate) struct SingleFlight<T> {
    /// The number of calls so far.
    asked: AtomicU64,
    /// The last result, and the number of calls that had arrived before its request started.
    answered: tokio::sync::Mutex<Option<(u64, T)>>,
}

impl<T> Default for SingleFlight<T> {
    fn default() -> Self {
        Self { asked: AtomicU64::new(0), answered: tokio::sync::Mutex::default() }
    }
}

impl<T: Clone> SingleFlight<T> {
    /// Returns the result of `seek`, or that of another caller's `seek` if it started after this call. Dropping the future
    /// gives up its request; the next caller starts a new one.
    pub(crate) async fn ask<F: Future<Output = T>>(&self, seek: impl FnOnce() -> F) -> T {
        let mine = self.asked.fetch_add(1, Ordering::SeqCst) + 1;
        // The caller that holds the lock runs the request; the others wait here, and the next one of them runs one for all.
        let mut answered = self.answered.lock().await;
        if let Some((asked_before, answer)) = &*answered
            && *asked_before >= mine
        {
            return answer.clone();
        }
        let asked_before = self.asked.load(Ordering::SeqCst);
        let answer = seek().await;
        *answered = Some((asked_before, answer.clone()));
        answer
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn those_who_ask_meanwhile_share_the_next_answer() {
        let (flight, sought) = (SingleFlight::default(), AtomicU64::new(0));
        let seek = || async {
            tokio::task::yield_now().await;
            sought.fetch_add(1, Ordering::SeqCst) + 1
        };
        let answers = tokio::join!(flight.ask(seek), flight.ask(seek), flight.ask(seek), flight.ask(seek));
        assert_eq!(answers, (1, 2, 2, 2), "the first one sought before the others asked");
        assert_eq!(flight.ask(seek).await, 3, "nobody asks with it");
        let given_up = flight.ask(std::future::pending);
        assert!(tokio::time::timeout(std::time::Duration::ZERO, given_up).await.is_err());
        assert_eq!(flight.ask(seek).await, 4);
    }
}
