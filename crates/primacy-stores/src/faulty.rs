//! A store whose requests go wrong on demand: the faults that a store on a network has, without a network.

mod sessions;

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use primacy_core::election::lease::{Record, Version};

pub use self::sessions::FaultySessions;
use crate::mutex::lock;
use crate::register::{Pending, ReadError, Register, SetError};

/// The fault that a request meets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Fault {
    /// No fault.
    #[default]
    None,
    /// The request reaches the store this much later.
    Delay(Duration),
    /// The request is lost on its way; the caller cannot tell this from [`Fault::LoseReply`].
    LoseRequest,
    /// The request takes effect, and its reply is lost on the way back.
    LoseReply,
    /// The request fails, and the caller knows that it did not reach the store.
    Unavailable,
    /// The session of the request ends before it is served. A register has no sessions and ignores this fault.
    EndSession,
}

/// A register in front of another one, with faults that a [`FaultSwitch`] turns on and off.
#[derive(Debug)]
pub struct FaultyRegister {
    inner: Arc<dyn Register>,
    switch: FaultSwitch,
}

/// Turns the faults of a [`FaultyRegister`] or of [`FaultySessions`] on and off. Clones control the same faults.
#[derive(Clone, Debug, Default)]
pub struct FaultSwitch {
    faults: Arc<Mutex<Faults>>,
}

#[derive(Debug, Default)]
struct Faults {
    always: Fault,
    next: VecDeque<Fault>,
}

impl FaultyRegister {
    /// Puts faults in front of `inner`; there are none until the switch turns them on.
    #[must_use]
    pub fn new(inner: Arc<dyn Register>) -> (Self, FaultSwitch) {
        let switch = FaultSwitch::default();
        (Self { inner, switch: switch.clone() }, switch)
    }
}

impl FaultSwitch {
    /// Gives every request this fault from now on.
    pub fn always(&self, fault: Fault) {
        lock(&self.faults).always = fault;
    }

    /// Queues this fault for one request: each request takes the first fault in the queue.
    pub fn next(&self, fault: Fault) {
        lock(&self.faults).next.push_back(fault);
    }

    fn draw(&self) -> Fault {
        let mut faults = lock(&self.faults);
        let always = faults.always;
        faults.next.pop_front().unwrap_or(always)
    }
}

impl Register for FaultyRegister {
    fn read(&self) -> Pending<'_, Result<Option<(Record, Version)>, ReadError>> {
        Box::pin(async move {
            let unavailable = |why: &str| Err(ReadError::Unavailable { why: why.to_owned() });
            match self.switch.draw() {
                Fault::None | Fault::EndSession => self.inner.read().await,
                Fault::Delay(delay) => {
                    tokio::time::sleep(delay).await;
                    self.inner.read().await
                }
                Fault::LoseRequest | Fault::LoseReply => unavailable("no reply (a fault on demand)"),
                Fault::Unavailable => unavailable("not reached (a fault on demand)"),
            }
        })
    }

    fn compare_and_set<'a>(
        &'a self,
        expect: Option<&'a Version>,
        record: &'a Record,
    ) -> Pending<'a, Result<Version, SetError>> {
        Box::pin(async move {
            let unknown = || SetError::Unknown { why: "no reply (a fault on demand)".to_owned() };
            match self.switch.draw() {
                Fault::None | Fault::EndSession => self.inner.compare_and_set(expect, record).await,
                Fault::Delay(delay) => {
                    tokio::time::sleep(delay).await;
                    self.inner.compare_and_set(expect, record).await
                }
                Fault::LoseRequest => Err(unknown()),
                Fault::LoseReply => {
                    // The answer is lost.
                    let _ = self.inner.compare_and_set(expect, record).await;
                    Err(unknown())
                }
                Fault::Unavailable => {
                    Err(SetError::Unavailable { why: "not reached (a fault on demand)".to_owned() })
                }
            }
        })
    }

    fn changed(&self) -> Pending<'_, ()> {
        self.inner.changed()
    }
}

#[cfg(test)]
mod tests {
    use primacy_core::FencingToken;

    use super::*;
    use crate::memory::MemoryRegister;

    #[tokio::test]
    async fn each_fault_is_told_as_what_the_caller_may_believe() {
        let record = |token| Record::released(FencingToken(token), primacy_core::Duration::from_secs(10));
        let (faulty, switch) = FaultyRegister::new(Arc::new(MemoryRegister::open("faults", "e")));
        switch.next(Fault::LoseReply);
        let lost = faulty.compare_and_set(None, &record(1)).await;
        assert!(matches!(lost, Err(SetError::Unknown { .. })), "{lost:?}");
        let (found, version) = faulty.read().await.unwrap().expect("it was written");
        assert_eq!(found, record(1));

        switch.next(Fault::LoseRequest);
        let lost = faulty.compare_and_set(Some(&version), &record(2)).await;
        assert!(matches!(lost, Err(SetError::Unknown { .. })), "{lost:?}");
        assert_eq!(faulty.read().await, Ok(Some((record(1), version.clone()))), "it was not written");

        switch.next(Fault::Unavailable);
        let unavailable = faulty.compare_and_set(Some(&version), &record(2)).await;
        assert!(matches!(unavailable, Err(SetError::Unavailable { .. })), "{unavailable:?}");
        switch.next(Fault::Unavailable);
        assert!(matches!(faulty.read().await, Err(ReadError::Unavailable { .. })));
        switch.next(Fault::Delay(Duration::from_millis(1)));
        faulty.compare_and_set(Some(&version), &record(2)).await.expect("late, and not refused");
    }
}
