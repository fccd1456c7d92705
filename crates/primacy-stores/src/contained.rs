//! Panics of the stores' client libraries that become errors of a request: no answer, token or setting that a library does not expect
//! ends a node.
//!
//! A request may be dropped wherever it waits, and a call of a library leaves no more behind when it unwinds. Its result is unknown, as
//! without an answer. Panics of tasks that a library starts by itself are not contained, since no caller would notice their end; nor are
//! those of elections, which do not run here.

use std::cell::Cell;

thread_local! {
    static CONTAINS: Cell<bool> = const { Cell::new(false) };
}

/// Returns, in a panic hook, whether the panic becomes the error of a request. Such a panic is not to end the process.
#[must_use]
pub fn is_contained() -> bool {
    CONTAINS.try_with(Cell::get).unwrap_or(false)
}

#[cfg(any(feature = "s3", feature = "gs", feature = "az"))]
pub(crate) use self::guard::contain;
#[cfg(feature = "network")]
pub(crate) use self::guard::contain_in;

#[cfg(feature = "network")]
mod guard {
    use std::future::{Future, poll_fn};
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::pin::pin;
    use std::task::Poll;

    use super::CONTAINS;

    /// Runs `work`; the error is the text of its panic.
    pub(crate) fn contain<T>(work: impl FnOnce() -> T) -> Result<T, String> {
        let outer = CONTAINS.replace(true);
        let done = catch_unwind(AssertUnwindSafe(work));
        CONTAINS.set(outer);
        done.map_err(|panic| {
            let text = panic.downcast_ref::<&str>().copied();
            let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
            let text = text.unwrap_or("without a reason");
            format!("the client library failed at a setting or an answer: {text}")
        })
    }

    /// The same of a future.
    pub(crate) async fn contain_in<F: Future>(work: F) -> Result<F::Output, String> {
        let mut work = pin!(work);
        poll_fn(|context| match contain(|| work.as_mut().poll(context)) {
            Ok(polled) => polled.map(Ok),
            Err(why) => Poll::Ready(Err(why)),
        })
        .await
    }
}

#[cfg(test)]
#[cfg(feature = "network")]
mod tests {
    use super::guard::contain;
    use super::*;

    #[tokio::test]
    async fn a_panic_is_contained_in_the_request_and_nowhere_else() {
        let work = async {
            assert!(is_contained());
            tokio::task::yield_now().await;
            let elsewhere = tokio::spawn(async { is_contained() });
            assert!(!elsewhere.await.unwrap(), "a task of its own");
            assert!(contain(|| panic!("inner")).is_err_and(|why: String| why.ends_with(": inner")));
            assert!(is_contained());
            panic!("outer {}", 1)
        };
        let why = contain_in(work).await.unwrap_err();
        assert_eq!(why, "the client library failed at a setting or an answer: outer 1");
        assert!(!is_contained());
        assert_eq!(contain_in(async { 7 }).await, Ok(7));
    }
}
