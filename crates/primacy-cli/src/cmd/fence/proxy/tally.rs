//! Counts of requests by outcome, for the metrics and for the last event.

use hyper::Response;
use primacy::fence::http::Refusal;
use primacy::metrics::prometheus_client::metrics::counter::Counter;
use primacy::metrics::prometheus_client::metrics::family::Family;
use primacy::metrics::prometheus_client::registry::Registry;

use super::body::Relay;
use super::event_log::Counts;

/// The outcome of a request that the service has answered.
const PASSED_ON: &str = "passed_on";
/// The outcomes of a request whose token is, or became, stale.
const STALE: [&str; 2] = ["stale_fencing_token", "overtaken_fencing_token"];
/// The other refusals, as `error` names them.
const REFUSED: [&str; 11] = [
    "missing_fencing_token",
    "malformed_fencing_token",
    "fence_busy",
    "fence_unavailable",
    "upstream_unreachable",
    "upstream_failed",
    "upstream_timeout",
    "malformed_host",
    "malformed_body",
    "client_timeout",
    "not_supported",
];

/// The number of requests by outcome. Clones share their counts.
#[derive(Clone, Debug)]
pub(super) struct Tally(Family<[(&'static str, &'static str); 1], Counter>);

impl Tally {
    pub(super) fn new() -> Self {
        let tally = Self(Family::default());
        // A counter that exists from the start shows its first step to an observer.
        for outcome in [PASSED_ON].iter().chain(&STALE).chain(&REFUSED) {
            tally.of(outcome);
        }
        tally
    }

    /// Counts an answer.
    pub(super) fn count(&self, response: &Response<Relay>) {
        let refusal = response.extensions().get::<Refusal>();
        self.0.get_or_create(&labels(refusal.map_or(PASSED_ON, |refusal| refusal.0))).inc();
    }

    pub(super) fn register(&self, registry: &mut Registry) {
        let help = "Requests that were answered, by outcome";
        registry.register("primacy_fence_proxy_requests", help, self.0.clone());
    }

    pub(super) fn counts(&self) -> Counts {
        let sum = |outcomes: &[&'static str]| outcomes.iter().map(|outcome| self.of(outcome)).sum();
        let (passed_on, stale, refused) = (self.of(PASSED_ON), sum(&STALE), sum(&REFUSED));
        Counts { requests: passed_on + stale + refused, passed_on, stale, refused }
    }

    fn of(&self, outcome: &'static str) -> u64 {
        self.0.get_or_create(&labels(outcome)).get()
    }
}

fn labels(outcome: &'static str) -> [(&'static str, &'static str); 1] {
    [("outcome", outcome)]
}
