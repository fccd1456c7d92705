//! Death notices over a store: the guardian releases the record for the dead process.

use std::time::Duration as StdDuration;

use primacy_core::Identity;
use primacy_core::election::record_update::{Ending, Task};

use super::{DeathNoticeError, Receipt, StoreSpec};
use crate::resign_request;

/// A guardian's access to the store. It keeps no connection: the store is opened when there is a death to report.
#[derive(Debug)]
pub(super) struct StoreNotifier {
    spec: StoreSpec,
    identity: Identity,
}

impl StoreNotifier {
    pub(super) fn new(spec: &StoreSpec) -> Result<Self, DeathNoticeError> {
        Ok(Self { spec: spec.clone(), identity: spec.identity()? })
    }

    pub(super) const fn identity(&self) -> Identity {
        self.identity
    }

    /// Writes the release. A late write of the dead process may still arrive within a lease, so this reads again until
    /// then, unless the release was its own.
    pub(super) fn notify(&self, bound: StdDuration) -> Receipt {
        match self.release(bound.min(self.spec.lease)) {
            Ok(Ending::Done | Ending::NothingToDo) => Receipt { released: true, ..Receipt::default() },
            Ok(Ending::Unknown) => not_released("it did not answer in time".to_owned()),
            Err(why) => not_released(why),
        }
    }

    fn release(&self, patience: StdDuration) -> Result<Ending, String> {
        let task = Task::ReleaseFor(self.identity);
        let StoreSpec { url, election, lease, .. } = &self.spec;
        resign_request::run(task, url, election, *lease, patience).map_err(|error| error.to_string())
    }
}

fn not_released(why: String) -> Receipt {
    Receipt { trouble: Some(why), ..Receipt::default() }
}
