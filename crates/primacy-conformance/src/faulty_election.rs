//! Checks of the texts that an application reports about a failing store and a deleted record. All stores share the
//! code, because all requests take one path; each store is tried, because the error texts are its own.

use std::time::Duration;

use primacy::core::Reason;
use primacy::metrics::{self, prometheus_client::registry::Registry};
use primacy::stores::Opened;
use primacy::stores::faulty::{Fault, FaultSwitch};
use primacy::{Elector, Leadership};
use primacy_stores::Pending;
use tokio::time::timeout;

/// The name of the election.
pub(crate) const ELECTION: &str = "told";

/// Long enough for a busy machine, and short enough to wait for its expiry.
const LEASE_MIN: Duration = Duration::from_secs(2);

/// The error text of a request that meets a fault.
const WORDS: &str = "not reached (a fault on demand)";

/// An election over a store behind a switch for faults.
pub(crate) struct FaultyElection<'a> {
    pub(crate) opened: Opened,
    pub(crate) switch: FaultSwitch,
    pub(crate) lease: Duration,
    pub(crate) patience: Duration,
    /// Deletes the leader's record or entry.
    pub(crate) erase: Pending<'a, ()>,
}

impl FaultyElection<'_> {
    /// Checks that a failed request is counted, shown in the status, and part of the reason for the loss, each in the
    /// store's own words; that it is no longer reported once the store answers again; and that a deletion is reported
    /// as such.
    ///
    /// # Panics
    /// If any of these is not so.
    /// If that is not so.
    pub(crate) async fn check(self) {
        let Self { opened, switch, lease, patience, erase } = self;
        let node = "a".parse().expect("it is a name");
        let builder = Elector::builder().election(ELECTION).node(node).lease(lease.max(LEASE_MIN));
        let elector = builder.opened(opened).await.expect("the store is there");
        let within = async |what: &str, work: Pending<'_, Leadership>| {
            timeout(patience, work).await.unwrap_or_else(|_| panic!("{what} did not come"))
        };
        let campaign = || Box::pin(async { elector.campaign().await.expect("it may stand") }) as _;
        let leadership = within("the election", campaign()).await;
        switch.always(Fault::Unavailable);
        let reason = timeout(patience, leadership.ended()).await.expect("it cannot be renewed");
        assert_eq!(reason, Reason::Expired);
        let why = leadership.why(reason);
        assert!(why.contains(WORDS) && why.contains("failure"), "{why}");
        drop(leadership);
        let troubles = elector.status().await.expect("it is open").store_troubles;
        assert!(troubles.iter().any(|trouble| trouble.error.contains(WORDS)), "{troubles:?}");
        let mut registry = Registry::default();
        metrics::register(&mut registry, [&elector]);
        assert!(failures(&metrics::text(&registry)) > 0.0, "{}", metrics::text(&registry));
        switch.always(Fault::None);
        let leadership = within("the next election", campaign()).await;
        assert_eq!(elector.status().await.expect("it is open").store_troubles, Vec::new());
        erase.await;
        let reason = timeout(patience, leadership.ended()).await.expect("it holds nothing any more");
        // If the entry is the session itself, the session has ended.
        assert!(matches!(reason, Reason::Removed | Reason::SessionEnded), "{reason:?}");
        drop(leadership);
        elector.close().await;
    }
}

fn failures(text: &str) -> f64 {
    let counted = text.lines().filter(|line| line.starts_with("primacy_store_errors_total{"));
    counted.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum()
}
