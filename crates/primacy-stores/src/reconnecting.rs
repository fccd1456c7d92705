//! [`Reconnecting`]: one connection for all callers, which is replaced when it breaks.
//!
//! A request that needs it starts a task that connects. The attempt continues when its caller gives up, and concurrent callers share it, so
//! that none waits longer than one attempt takes.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use crate::contained::contain_in;
use crate::mutex::lock;
use crate::open_error::OpenError;
use crate::runtime::{self, Aborted};

/// The pause between two attempts to connect.
const RETRY_PAUSE: Duration = Duration::from_millis(100);

/// A connection that breaks.
pub(crate) trait Breakable: Send + Sync + 'static {
    /// Returns whether it has ended, as far as is known.
    fn is_broken(&self) -> bool;
}

/// The present connection, or the attempt to make one.
pub(crate) struct Reconnecting<C>(Arc<Mutex<State<C>>>);

struct State<C> {
    live: Option<Arc<C>>,
    attempt: Option<Attempt<C>>,
    /// The time from which the next attempt may begin.
    next_at: Option<Instant>,
}

type Outcome<C> = Option<Result<Arc<C>, OpenError>>;

/// The task that connects, and its result.
struct Attempt<C> {
    outcome: watch::Receiver<Outcome<C>>,
    _task: Aborted<()>,
}

impl<C> Default for Reconnecting<C> {
    fn default() -> Self {
        Self(Arc::new(Mutex::new(State { live: None, attempt: None, next_at: None })))
    }
}

impl<C: Breakable> Reconnecting<C> {
    /// Returns the present connection, or the one being made, or a new one that `connect` makes.
    pub(crate) async fn get<F>(&self, connect: impl FnOnce() -> F) -> Result<Arc<C>, OpenError>
    where
        F: Future<Output = Result<Arc<C>, OpenError>> + Send + 'static,
    {
        let mut outcome = {
            let mut state = lock(&self.0);
            state.live.take_if(|live| live.is_broken());
            if let Some(live) = &state.live {
                return Ok(Arc::clone(live));
            }
            match &state.attempt {
                Some(attempt) => attempt.outcome.clone(),
                None => {
                    let (sender, outcome) = watch::channel(None);
                    let attempt = attempt(Arc::clone(&self.0), state.next_at, connect(), sender);
                    let task = runtime::spawn(attempt).map_err(|why| OpenError::Unavailable { why })?;
                    state.attempt = Some(Attempt { outcome: outcome.clone(), _task: task });
                    outcome
                }
            }
        };
        let ended = || OpenError::Unavailable { why: "the attempt to connect was given up".to_owned() };
        let found = outcome.wait_for(Option::is_some).await.map_err(|_| ended())?;
        found.clone().ok_or_else(ended)?
    }

    /// Returns the connection that was made last, unless it was given up.
    pub(crate) fn newest(&self) -> Option<Arc<C>> {
        lock(&self.0).live.clone()
    }

    /// Discards this connection, if it is still the present one.
    pub(crate) fn give_up(&self, live: &Arc<C>) {
        lock(&self.0).live.take_if(|newest| Arc::ptr_eq(newest, live));
    }
}

async fn attempt<C>(
    state: Arc<Mutex<State<C>>>,
    begin_at: Option<Instant>,
    connecting: impl Future<Output = Result<Arc<C>, OpenError>>,
    sender: watch::Sender<Outcome<C>>,
) {
    if let Some(at) = begin_at {
        sleep_until(at).await;
    }
    let result = contain_in(connecting).await.unwrap_or_else(|why| Err(OpenError::Unavailable { why }));
    let mut state = lock(&state);
    state.live = result.as_ref().ok().map(Arc::clone);
    state.next_at = Some(Instant::now() + RETRY_PAUSE);
    sender.send_replace(Some(result));
    // The waiting callers have the outcome; this task is at its end.
    state.attempt = None;
}
