//! The thread that performs all requests to stores that are reached over a network.
//!
//! A connection must outlive the runtime that happened to open it, and a lease must not be lost because the application
//! keeps its own runtime busy. So connections belong to this thread, and every request to a store runs here.

use std::future::Future;
use std::sync::OnceLock;

use tokio::runtime::Handle;
use tokio::task::JoinHandle;

use crate::attempts;
use crate::contained::contain_in;

/// Runs `work` on the stores' thread, and waits for its result. An error means that it did not finish; a panic is one.
///
/// Dropping the future cancels the work at the next point at which it waits.
pub(crate) async fn run<T: Send + 'static>(
    work: impl Future<Output = T> + Send + 'static,
) -> Result<T, String> {
    let mut task = Aborted(handle()?.spawn(contain_in(attempts::inherit(work))));
    (&mut task.0).await.unwrap_or_else(|error| Err(format!("the stores' thread gave a request up: {error}")))
}

/// Runs `work` on the stores' thread, also when no caller waits for it, until it ends or the guard is dropped.
#[allow(dead_code, reason = "a program may have only stores that start no task of their own")]
pub(crate) fn spawn<T: Send + 'static>(
    work: impl Future<Output = T> + Send + 'static,
) -> Result<Aborted<T>, String> {
    Ok(Aborted(handle()?.spawn(work)))
}

/// Runs `work` on the stores' thread to its end, or to that of the process.
#[cfg(any(feature = "consul", feature = "postgres", feature = "zookeeper"))]
pub(crate) fn detach(work: impl Future<Output = ()> + Send + 'static) -> Result<(), String> {
    // Dropping the handle does not cancel the work.
    drop(handle()?.spawn(work));
    Ok(())
}

/// Work that is cancelled when this is dropped.
#[derive(Debug)]
pub(crate) struct Aborted<T>(JoinHandle<T>);

impl<T> Aborted<T> {
    /// Cancels the work.
    #[cfg(feature = "postgres")]
    pub(crate) fn abort(&self) {
        self.0.abort();
    }

    /// Waits for the result of the work. Dropping the future leaves the work running; once it has returned a result, it
    /// must not be called again.
    #[cfg(any(feature = "postgres", feature = "redis"))]
    pub(crate) async fn finished(&mut self) -> Result<T, String> {
        (&mut self.0).await.map_err(|error| format!("the stores' thread gave a request up: {error}"))
    }
}

impl<T> Drop for Aborted<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// The runtime of that thread, which is started by the first caller, and ends with the process.
fn handle() -> Result<&'static Handle, String> {
    static HANDLE: OnceLock<Result<Handle, String>> = OnceLock::new();
    let start = || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .thread_keep_alive(std::time::Duration::MAX)
            .build()?;
        // Host names are looked up on a second thread. It is started here and kept: tokio would panic later if it could not start one.
        runtime.spawn_blocking(|| ());
        let handle = runtime.handle().clone();
        let serve = move || runtime.block_on(std::future::pending::<()>());
        std::thread::Builder::new().name("primacy-stores".to_owned()).spawn(serve)?;
        Ok(handle)
    };
    let started = HANDLE.get_or_init(|| {
        start().map_err(|error: std::io::Error| format!("the stores' thread cannot be started: {error}"))
    });
    started.as_ref().map_err(Clone::clone)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::sync::oneshot;

    use super::*;

    #[test]
    fn what_was_started_outlives_the_runtime_that_asked_for_it() {
        let (sender, receiver) = oneshot::channel();
        let ask = || tokio::runtime::Builder::new_current_thread().build().unwrap();
        let guard = ask().block_on(async { spawn(receiver) }).unwrap();
        let answer = run(async {
            sender.send(7).unwrap();
            8
        });
        assert_eq!(ask().block_on(answer), Ok(8));
        drop(guard);
    }

    #[tokio::test]
    async fn what_nobody_waits_for_is_given_up_and_a_panic_is_an_error() {
        let (held, given_up) = oneshot::channel::<()>();
        let work = run(async move {
            let _held = held;
            std::future::pending::<()>().await;
        });
        let waited = tokio::time::timeout(Duration::from_millis(1), work).await;
        assert!(waited.is_err());
        assert!(given_up.await.is_err(), "it was dropped with its work");
        let panicked: Result<(), String> = run(async { panic!("on purpose") }).await;
        assert!(panicked.unwrap_err().ends_with(": on purpose"));
    }
}
