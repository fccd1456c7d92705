//! A session store whose requests go wrong on demand.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use primacy_core::election::lease::Holder;
use primacy_core::election::session::{Entry, QueuePosition, SessionId};
use primacy_core::{FencingToken, Identity};

use super::{Fault, FaultSwitch};
use crate::register::Pending;
use crate::sessions::{Begun, SessionError, Sessions};

/// A session store in front of another one, with faults that a [`FaultSwitch`] turns on and off.
#[derive(Debug)]
pub struct FaultySessions {
    inner: Arc<dyn Sessions>,
    switch: FaultSwitch,
}

impl FaultySessions {
    /// Puts faults in front of `inner`; there are none until the switch turns them on.
    #[must_use]
    pub fn new(inner: Arc<dyn Sessions>) -> (Self, FaultSwitch) {
        let switch = FaultSwitch::default();
        (Self { inner, switch: switch.clone() }, switch)
    }

    /// Sends a request, which may meet a fault.
    async fn ask<T>(
        &self,
        session: Option<&SessionId>,
        request: impl Future<Output = Result<T, SessionError>>,
    ) -> Result<T, SessionError> {
        let no_answer = |why: &str| Err(SessionError::NoAnswer { why: format!("{why} (a fault on demand)") });
        match self.switch.draw() {
            Fault::None => request.await,
            Fault::Delay(delay) => {
                tokio::time::sleep(delay).await;
                request.await
            }
            Fault::LoseRequest => no_answer("no reply"),
            Fault::LoseReply => {
                // The answer is lost.
                let _ = request.await;
                no_answer("no reply")
            }
            Fault::Unavailable => no_answer("not reached"),
            Fault::EndSession => {
                if let Some(session) = session {
                    self.inner.end(session).await?;
                }
                request.await
            }
        }
    }
}

impl Sessions for FaultySessions {
    fn begin(&self, timeout: Duration) -> Pending<'_, Result<Begun, SessionError>> {
        Box::pin(self.ask(None, self.inner.begin(timeout)))
    }

    fn keep_alive<'a>(&'a self, session: &'a SessionId) -> Pending<'a, Result<Duration, SessionError>> {
        Box::pin(self.ask(Some(session), self.inner.keep_alive(session)))
    }

    fn campaign<'a>(
        &'a self,
        session: &'a SessionId,
        holder: &'a Holder,
    ) -> Pending<'a, Result<QueuePosition, SessionError>> {
        Box::pin(self.ask(Some(session), self.inner.campaign(session, holder)))
    }

    fn leave<'a>(&'a self, session: &'a SessionId) -> Pending<'a, Result<(), SessionError>> {
        Box::pin(self.ask(Some(session), self.inner.leave(session)))
    }

    fn end<'a>(&'a self, session: &'a SessionId) -> Pending<'a, Result<(), SessionError>> {
        Box::pin(self.ask(Some(session), self.inner.end(session)))
    }

    fn first(&self) -> Pending<'_, Result<Option<Entry>, SessionError>> {
        Box::pin(self.ask(None, self.inner.first()))
    }

    fn evict<'a>(&'a self, dead: &'a Identity) -> Pending<'a, Result<bool, SessionError>> {
        Box::pin(self.ask(None, self.inner.evict(dead)))
    }

    fn ask_to_resign<'a>(
        &'a self,
        token: FencingToken,
        by: &'a str,
    ) -> Pending<'a, Result<bool, SessionError>> {
        Box::pin(self.ask(None, self.inner.ask_to_resign(token, by)))
    }

    fn changed(&self) -> Pending<'_, ()> {
        self.inner.changed()
    }
}

#[cfg(test)]
mod tests {
    use primacy_core::{Incarnation, NodeId};

    use super::*;
    use crate::memory::MemorySessions;

    #[tokio::test]
    async fn each_fault_is_told_as_what_the_caller_may_believe() {
        let memory = Arc::new(MemorySessions::open("session-faults", "e"));
        let (faulty, switch) = FaultySessions::new(Arc::clone(&memory) as _);
        let node: NodeId = "a".parse().unwrap();
        let identity = Identity::new(node, Incarnation { count: 1, nonce: 2 });
        let holder = Holder { identity, address: String::new() };
        let session = faulty.begin(Duration::from_secs(600)).await.unwrap().session;
        switch.next(Fault::LoseRequest);
        let lost = faulty.campaign(&session, &holder).await;
        assert!(matches!(lost, Err(SessionError::NoAnswer { .. })), "{lost:?}");
        assert!(memory.entries().is_empty(), "it was not done");
        switch.next(Fault::LoseReply);
        let lost = faulty.campaign(&session, &holder).await;
        assert!(matches!(lost, Err(SessionError::NoAnswer { .. })), "{lost:?}");
        assert_eq!(memory.entries().len(), 1, "it was done");
        switch.next(Fault::EndSession);
        let ended = faulty.keep_alive(&session).await;
        assert!(matches!(ended, Err(SessionError::Ended { .. })), "{ended:?}");
        assert!(memory.entries().is_empty());
        switch.next(Fault::Delay(Duration::from_millis(1)));
        assert_eq!(faulty.first().await, Ok(None), "late, and not refused");
    }
}
