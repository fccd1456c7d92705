//! The state with which the services answer the requests of one connection.

use std::sync::Arc;

use primacy::stores::etcd::api;
use primacy_kv::command::{Answer, Operation, Refusal, Version};

use super::backend::{Backend, Freshness};
use super::client::Client;
use super::convert;
use super::errors::Known;
use super::figures::Counts;
use super::hub::Hub;
use super::outcome::answered;
use super::throttle::Throttle;
use super::users::Users;

/// The most entries that a read may look at without waiting for a turn.
const SHORT_LOOKS_MAX: u64 = 1_000;

/// The state with which the services answer the requests of one connection.
#[derive(Debug)]
pub(super) struct Services {
    pub(super) hub: Arc<Hub>,
    pub(super) users: Option<Arc<Users>>,
    pub(super) throttle: Arc<Throttle>,
    pub(super) counts: Arc<Counts>,
    pub(super) client: Arc<Client>,
}

impl Services {
    /// The state of a test connection from this machine, without users.
    #[cfg(test)]
    pub(super) fn on_loopback(hub: Arc<Hub>) -> Arc<Self> {
        let (counts, throttle) = (Arc::<Counts>::default(), Arc::default());
        let client = super::client::on_loopback(&counts.budgets);
        Arc::new(Self { hub, users: None, throttle, counts, client })
    }

    pub(super) fn backend(&self) -> &dyn Backend {
        &*self.hub.backend
    }

    /// Performs an operation that only reads; returns the answer, and the version of the map.
    ///
    /// # Errors
    /// The reason why it could not be read.
    pub(super) async fn observe(
        &self,
        operation: Operation,
        freshness: Freshness,
    ) -> Result<(Version, Answer), Known> {
        let (hub, turns) = (&self.hub, &self.client.long_reads);
        if freshness == Freshness::Newest {
            hub.backend.catch_up().await?;
        }
        let outcome = hub.backend.look(&operation, SHORT_LOOKS_MAX);
        if outcome.result != Err(Refusal::TooManyEntries) {
            return answered(outcome);
        }
        let hub = Arc::clone(hub);
        answered(turns.run(move || hub.backend.look(&operation, u64::MAX)).await.ok_or(Known::STOPPED)?)
    }

    /// Returns the header of an answer at this version of the map.
    pub(super) fn header(&self, version: Version) -> api::ResponseHeader {
        header(self.backend(), version)
    }

    /// Returns the header of an answer at the present version of this node's copy.
    pub(super) fn header_now(&self) -> api::ResponseHeader {
        self.header(self.backend().now())
    }
}

pub(super) fn header(backend: &dyn Backend, version: Version) -> api::ResponseHeader {
    let vitals = backend.vitals();
    api::ResponseHeader {
        cluster_id: vitals.cluster,
        member_id: vitals.member,
        revision: convert::signed(version.0),
        raft_term: vitals.term,
    }
}
