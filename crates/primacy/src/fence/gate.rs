//! [`Gate`]: a fence for requests that take time. No request with an old token is in progress when one with a new token
//! is admitted.
//!
//! A check on arrival is not enough if work begins after it: a request admitted with token 7 may still be working when
//! 8 arrives, and write later. So a gate admits the requests of one token at a time. When a higher token arrives, three
//! steps follow in this order: the new token is written to disk; all requests of older tokens end; the requests of the
//! new token are admitted. Lower tokens are refused from its arrival on.
//!
//! An old request that does not end must not keep the new leader out. After [`Limits::patience`] it is *revoked*: asked
//! to drop its work. If it has not done so after [`Limits::grace`], the new request is refused with
//! [`AdmissionError::Busy`], and may be repeated.
//!
//! The `tower` layer and the command's fence proxy both use this gate.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use primacy_core::fence::{FenceError, FencingToken};
use tokio::sync::{oneshot, watch};
use tokio::time::timeout;

use super::{DurableFenceError, HeldFence};
use crate::config::{FENCE_GRACE, FENCE_PATIENCE, LOG_PAUSE};
use crate::log_limit::LogLimit;

/// The times for which a gate waits for older requests to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The time after which requests of lower tokens are revoked.
    pub patience: Duration,
    /// The time after that at which the request of the higher token is refused.
    pub grace: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self { patience: FENCE_PATIENCE, grace: FENCE_GRACE }
    }
}

/// Admits the requests of one token at a time, and never a lower token after a higher one. Clones are the same gate.
#[derive(Clone, Debug)]
pub struct Gate(Arc<Shared>);

/// The right of a request to work. Requests of higher tokens wait until this, and every clone of it, is dropped.
///
/// Work in another task or thread needs a clone.
#[derive(Clone, Debug)]
pub struct Admitted {
    token: FencingToken,
    revoked: watch::Receiver<bool>,
}

/// The reason why a request was not admitted. Its work must not be done.
#[derive(Clone, Debug, thiserror::Error)]
pub enum AdmissionError {
    /// A later leader has presented a higher token.
    #[error(transparent)]
    Stale(#[from] FenceError),
    /// The token is the highest one, but revoked requests of an older token have not ended.
    #[error(
        "requests of an older token have not ended yet; lower tokens than {presented} are refused; try again"
    )]
    Busy {
        /// The token that was presented.
        presented: FencingToken,
    },
    /// The file could not be read or written.
    #[error("{0}")]
    Fence(Arc<DurableFenceError>),
}

impl AdmissionError {
    /// Creates and counts the refusal of a stale token.
    fn stale(presented: FencingToken, highest: FencingToken) -> Self {
        super::count_refused();
        Self::Stale(FenceError::Stale { presented, highest })
    }
}

#[derive(Debug)]
struct Shared {
    fence: HeldFence,
    limits: Limits,
    state: Mutex<State>,
    log: GateLog,
}

/// Limits for the log messages that every request of a higher token may cause.
#[derive(Debug, Default)]
struct GateLog {
    /// The token could not be written.
    unwritten: LogLimit,
    /// The requests of older tokens were revoked.
    revoked: LogLimit,
    /// Revoked requests have not ended.
    unended: LogLimit,
}

#[derive(Debug)]
struct State {
    /// The floor: lower tokens are refused.
    floor: FencingToken,
    /// The highest token that is certainly on disk.
    durable: FencingToken,
    /// True if requests of `floor` are admitted: it is on disk, and no older requests are in progress.
    open: bool,
    /// True if a task is running that opens the gate.
    raising: bool,
    /// The tokens whose requests may be in progress.
    periods: Vec<Period>,
    /// The requests of `floor` that wait until the gate is open.
    waiting: Vec<oneshot::Sender<Result<Admitted, AdmissionError>>>,
}

/// The requests of one token. They have ended when the channel has no receiver left.
#[derive(Debug)]
struct Period {
    token: FencingToken,
    revoked: watch::Sender<bool>,
}

/// The result of a request's arrival at the gate.
enum Found {
    Open(Admitted),
    Waits { answer: oneshot::Receiver<Result<Admitted, AdmissionError>>, raise: bool },
}

impl Gate {
    /// Creates a gate with this fence.
    ///
    /// # Errors
    /// [`DurableFenceError`] if the fence cannot be read.
    pub fn new(fence: HeldFence, limits: Limits) -> Result<Self, DurableFenceError> {
        let highest = fence.highest()?;
        let state = State {
            floor: highest,
            durable: highest,
            open: false,
            raising: false,
            periods: Vec::new(),
            waiting: Vec::new(),
        };
        let log = GateLog::default();
        Ok(Self(Arc::new(Shared { fence, limits, state: Mutex::new(state), log })))
    }

    /// Admits a request, or refuses it. For the current token this is a comparison in memory; the first request of a
    /// higher token waits for the disk, on a thread of its own, and for the older requests.
    ///
    /// The future may be dropped: the gate is raised to a higher token nevertheless, because the token has been seen.
    ///
    /// # Errors
    /// [`AdmissionError`]; the work of the request must not be done.
    ///
    /// # Panics
    /// Outside a tokio runtime with time.
    pub async fn admit(&self, presented: FencingToken) -> Result<Admitted, AdmissionError> {
        match self.0.find(presented)? {
            Found::Open(admitted) => Ok(admitted),
            Found::Waits { answer, raise } => {
                if raise {
                    tokio::spawn(Arc::clone(&self.0).raise());
                }
                // The sender is only dropped when the runtime shuts down, and then this is not polled.
                answer.await.unwrap_or(Err(AdmissionError::Busy { presented }))
            }
        }
    }

    /// The highest token seen. Lower tokens are refused.
    #[must_use]
    pub fn highest(&self) -> FencingToken {
        self.0.state().floor
    }
}

impl Admitted {
    /// The token that was admitted.
    #[must_use]
    pub fn token(&self) -> FencingToken {
        self.token
    }

    /// Resolves when this request is revoked, because a request of a higher token has waited long enough; may never
    /// resolve. Cancel safe.
    pub async fn revoked(&self) {
        if self.revoked.clone().wait_for(|revoked| *revoked).await.is_err() {
            // The gate is gone, so this request can no longer be revoked.
            std::future::pending().await
        }
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn find(&self, presented: FencingToken) -> Result<Found, AdmissionError> {
        let mut state = self.state();
        if presented < state.floor {
            return Err(AdmissionError::stale(presented, state.floor));
        }
        if presented == state.floor && state.open {
            return Ok(Found::Open(state.admit()));
        }
        if presented > state.floor {
            let overtaken = state.floor;
            state.floor = presented;
            state.open = false;
            state.answer(|_| Err(AdmissionError::stale(overtaken, presented)));
        }
        let (sender, answer) = oneshot::channel();
        // The number of waiting requests is only limited by the service.
        state.waiting.retain(|waiting| !waiting.is_closed());
        state.waiting.push(sender);
        Ok(Found::Waits { answer, raise: !std::mem::replace(&mut state.raising, true) })
    }

    /// Opens the gate for the highest token seen.
    async fn raise(self: Arc<Self>) {
        loop {
            let target = self.state().floor;
            let raised = match self.persist(target).await {
                Ok(()) => self.end_older(target).await,
                Err(refused) => Err(refused),
            };
            let mut state = self.state();
            if state.floor > target && !matches!(raised, Err(AdmissionError::Fence(_))) {
                // A higher token has arrived meanwhile, and the waiting requests have that one.
                continue;
            }
            state.raising = false;
            match raised {
                Ok(()) => {
                    state.open = true;
                    state.answer(|state| Ok(state.admit()));
                }
                Err(refused) => state.answer(|_| Err(refused.clone())),
            }
            return;
        }
    }

    /// Writes the token to disk.
    async fn persist(self: &Arc<Self>, target: FencingToken) -> Result<(), AdmissionError> {
        let shared = Arc::clone(self);
        let written = tokio::task::spawn_blocking(move || shared.fence.admit_uncounted(target)).await;
        let written = written.unwrap_or_else(|error| Err(self.fence.failed("written", error.into())));
        let mut state = self.state();
        match written {
            Ok(()) => {
                state.durable = target;
                Ok(())
            }
            // Only an earlier attempt that failed can have written a higher token.
            Err(DurableFenceError::Stale(FenceError::Stale { presented, highest })) => {
                state.durable = highest;
                if state.floor < highest {
                    state.floor = highest;
                    state.answer(|_| Err(AdmissionError::stale(presented, highest)));
                }
                Err(FenceError::Stale { presented, highest }.into())
            }
            Err(error) => {
                if let Some(held_back) = self.log.unwritten.due(LOG_PAUSE) {
                    tracing::error!(token = target.0, held_back, "{error}");
                }
                // The token may be on disk. The next request writes, or finds it there.
                state.floor = state.durable;
                Err(AdmissionError::Fence(Arc::new(error)))
            }
        }
    }

    /// Returns when no request of a lower token is in progress; revokes them if they take too long.
    async fn end_older(&self, target: FencingToken) -> Result<(), AdmissionError> {
        let older: Vec<watch::Sender<bool>> = {
            let mut state = self.state();
            state.periods.retain(|period| period.token == target || !period.revoked.is_closed());
            let older = state.periods.iter().filter(|period| period.token < target);
            older.map(|period| period.revoked.clone()).collect()
        };
        let ended = async {
            for period in &older {
                period.closed().await;
            }
        };
        if timeout(self.limits.patience, ended).await.is_err() {
            if let Some(held_back) = self.log.revoked.due(LOG_PAUSE) {
                let token = target.0;
                tracing::warn!(
                    token,
                    held_back,
                    "requests of older tokens are revoked: they have not ended in time"
                );
            }
            let ended = async {
                for period in &older {
                    period.send_replace(true);
                }
                for period in &older {
                    period.closed().await;
                }
            };
            if timeout(self.limits.grace, ended).await.is_err() {
                if let Some(held_back) = self.log.unended.due(LOG_PAUSE) {
                    let token = target.0;
                    tracing::error!(
                        token,
                        held_back,
                        "revoked requests have not ended; the new token must wait"
                    );
                }
                return Err(AdmissionError::Busy { presented: target });
            }
        }
        tracing::info!(token = target.0, "a higher token is let in");
        Ok(())
    }
}

impl State {
    /// Admits one more request of `floor`.
    fn admit(&mut self) -> Admitted {
        let token = self.floor;
        let known = self.periods.iter().position(|period| period.token == token);
        let at = known.unwrap_or_else(|| {
            self.periods.retain(|period| !period.revoked.is_closed());
            self.periods.push(Period { token, revoked: watch::Sender::new(false) });
            self.periods.len() - 1
        });
        Admitted { token, revoked: self.periods[at].revoked.subscribe() }
    }

    /// Answers the waiting requests whose callers still wait. If a caller leaves now, its answer is dropped, which is
    /// harmless.
    fn answer(&mut self, mut answer: impl FnMut(&mut Self) -> Result<Admitted, AdmissionError>) {
        for waiting in std::mem::take(&mut self.waiting) {
            if !waiting.is_closed() {
                let _ = waiting.send(answer(self));
            }
        }
    }
}

#[cfg(test)]
mod tests;
