//! How a guardian bears witness where the election is held over a store: it writes the release for the dead.

use std::time::Duration as StdDuration;

use primacy_core::Identity;
use primacy_core::election::errand::{Ending, Errand, Task};
use tokio::task::LocalSet;

use super::{StoreSpec, Testimony, WitnessError};
use crate::clock;
use crate::config::{Timers, Venue};
use crate::disk::entropy;
use crate::driver::drive_alone;
use crate::over_store::StoreWorld;

/// A guardian's part over a store. It keeps nothing open: a store is opened when there is a death to tell.
#[derive(Debug)]
pub(super) struct StoreWitness {
    spec: StoreSpec,
    identity: Identity,
}

impl StoreWitness {
    pub(super) fn new(spec: &StoreSpec) -> Result<Self, WitnessError> {
        Ok(Self { spec: spec.clone(), identity: spec.identity()? })
    }

    pub(super) const fn identity(&self) -> Identity {
        self.identity
    }

    /// Writes the release. A late write of the dead may still land for as long as a lease, so it looks again until
    /// then, unless the release was its own.
    pub(super) fn testify(&self, bound: StdDuration) -> Testimony {
        match self.release(bound.min(self.spec.lease)) {
            Ok(Ending::Done | Ending::NothingToDo) => Testimony { released: true, ..Testimony::default() },
            Ok(Ending::Unknown) => not_released("it did not answer in time".to_owned()),
            Err(why) => not_released(why),
        }
    }

    fn release(&self, patience: StdDuration) -> Result<Ending, String> {
        let poll_interval = Timers::new(Venue::Store, Some(self.spec.lease)).poll_interval;
        let seed = u64::from_be_bytes(entropy().map_err(|error| error.to_string())?);
        let task = Task::ReleaseFor(self.identity);
        let mut errand = Errand::new(task, patience.into(), poll_interval.into(), seed, clock::now());
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        LocalSet::new().block_on(&runtime.map_err(|error| error.to_string())?, async {
            let opened = primacy_stores::open_existing(&self.spec.url, &self.spec.election).await;
            let mut world = StoreWorld::new(opened.map_err(|error| error.to_string())?);
            let driven = drive_alone(&mut errand, &mut world, |errand| errand.ending().is_some()).await;
            driven.map_err(|halt| halt.why)
        })?;
        Ok(errand.ending().unwrap_or(Ending::Unknown))
    }
}

fn not_released(why: String) -> Testimony {
    Testimony { trouble: Some(why), ..Testimony::default() }
}
