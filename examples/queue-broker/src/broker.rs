//! A broker: it campaigns, leads, expires claims, and campaigns again.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use primacy::leader_document::{
    Election, LeaderDocument, LeaderDocumentError, LeaderDocumentOptions, LeadershipStatus, SubmitError,
};
use tokio::sync::watch;
use tokio::time::{Instant, sleep};

use crate::place::Place;
use crate::queue::{Done, Mutation, Queue};

/// The timers of a broker.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Timers {
    /// The time without a write after which a leader counts as gone.
    pub(crate) timeout: Duration,
    /// The interval at which a broker that does not lead reads the document.
    pub(crate) retry: Duration,
    /// The time without a heartbeat after which a job is given to another worker.
    pub(crate) job_timeout: Duration,
}

/// A broker; clones share one.
#[derive(Clone)]
pub(crate) struct Broker {
    document: Arc<LeaderDocument<Queue>>,
    /// The address of the other leader that was last seen.
    leader: watch::Sender<Option<String>>,
    /// The number of the broker's writes of the document.
    writes: Arc<AtomicU64>,
    timers: Timers,
}

impl Broker {
    pub(crate) fn new(place: Place, address: String, timers: Timers) -> Result<Self, LeaderDocumentError> {
        let options =
            LeaderDocumentOptions { timeout: timers.timeout, ..LeaderDocumentOptions::new(&address) };
        let writes = place.writes();
        let document = LeaderDocument::stamping(place, options, Queue::stamp)?;
        Ok(Self { document: Arc::new(document), leader: watch::Sender::new(None), writes, timers })
    }

    /// Changes the queue; returns when the change is durable.
    pub(crate) async fn submit(&self, mutation: Mutation) -> Result<Done, SubmitError> {
        self.document.submit(move |queue| queue.apply(now(), mutation)).await
    }

    /// The queue, if this broker leads.
    pub(crate) fn queue(&self) -> Option<Arc<Queue>> {
        self.document.state()
    }

    /// The address of another leader, if there is one.
    pub(crate) fn leader(&self) -> Option<String> {
        self.leader.borrow().clone()
    }

    /// The number of the broker's writes of the queue since its start; group commit keeps it low.
    pub(crate) fn writes(&self) -> u64 {
        self.writes.load(Ordering::Relaxed)
    }

    /// The broker's leadership: standby, leading or ended.
    pub(crate) fn leadership(&self) -> LeadershipStatus {
        self.document.leadership()
    }

    pub(crate) async fn resign(&self) {
        self.document.resign().await;
    }

    /// Campaigns, leads, and campaigns again, until an error that will not pass; returns that error.
    pub(crate) async fn lead_and_stand_by(&self) -> String {
        loop {
            match self.document.try_elect().await {
                Ok(Election::Elected { token }) => {
                    eprintln!("queue-broker: leads with the token {token}");
                    self.leader.send_replace(None);
                    let ended = tokio::select! {
                        ended = self.document.ended() => ended,
                        () = self.expire_jobs() => self.leadership(),
                    };
                    eprintln!("queue-broker: leads no more: {ended:?}");
                }
                Ok(Election::AlreadyLeader { .. }) => {}
                Ok(Election::OtherLeader { address, .. }) => {
                    if self.leader().as_deref() != Some(&address) {
                        eprintln!("queue-broker: stands by for {address}");
                        self.leader.send_replace(Some(address));
                    }
                }
                Ok(Election::Conflict) => continue,
                Err(LeaderDocumentError::Unavailable { why }) => {
                    eprintln!("queue-broker: {why}; it is tried again")
                }
                Err(error @ (LeaderDocumentError::Malformed { .. } | LeaderDocumentError::Options)) => {
                    return error.to_string();
                }
            }
            sleep(self.timers.retry).await;
        }
    }

    /// Returns jobs of silent workers to the queue, until this broker no longer leads. It measures the silence on its own clock, from
    /// when it first saw the last heartbeat: times written by its predecessor do not count.
    async fn expire_jobs(&self) {
        let mut seen: BTreeMap<(String, String), (Option<u64>, Instant)> = BTreeMap::new();
        loop {
            sleep(self.timers.job_timeout / 10).await;
            let Some(queue) = self.queue() else { return };
            let now = Instant::now();
            let signs = queue.signs_of_life();
            seen.retain(|claim, _| signs.contains_key(claim));
            for (claim, sign) in signs {
                let known = seen.entry(claim).or_insert((sign, now));
                if known.0 != sign {
                    *known = (sign, now);
                }
            }
            let is_late =
                |(_, since): &(Option<u64>, Instant)| now.duration_since(*since) >= self.timers.job_timeout;
            let late: Vec<_> =
                seen.iter().filter(|(_, seen)| is_late(seen)).map(|(claim, _)| claim.clone()).collect();
            if !late.is_empty() && self.submit(Mutation::Expire(late)).await.is_err() {
                return;
            }
        }
    }
}

/// Milliseconds since 1970, for people who read the file; no timer depends on them.
fn now() -> u64 {
    let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since_1970.as_millis()).unwrap_or(u64::MAX)
}
