//! The metrics of the etcd API, in the form in which Prometheus reads them.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use http::HeaderMap;
use primacy::metrics::prometheus_client::collector::Collector;
use primacy::metrics::prometheus_client::encoding::{DescriptorEncoder, MetricEncoder};
use primacy::metrics::prometheus_client::metrics::MetricType;
use primacy::metrics::prometheus_client::metrics::exemplar::Exemplar;
use primacy::metrics::prometheus_client::registry::Unit;
use primacy::stores::etcd::api::method;
use primacy::transport::ServerTls;
use tonic::Code;

use super::client::NodeBudgets;

/// The methods that are counted separately: the served ones. Clients can request any number of other ones.
const METHODS: [&str; 22] = [
    method::RANGE,
    method::PUT,
    method::DELETE_RANGE,
    method::TXN,
    method::COMPACT,
    method::LEASE_GRANT,
    method::LEASE_REVOKE,
    method::LEASE_KEEP_ALIVE,
    method::LEASE_TIME_TO_LIVE,
    method::LEASE_LEASES,
    method::WATCH,
    method::CAMPAIGN,
    method::PROCLAIM,
    method::LEADER,
    method::OBSERVE,
    method::RESIGN,
    method::LOCK,
    method::UNLOCK,
    method::STATUS,
    method::ALARM,
    method::MEMBER_LIST,
    method::AUTHENTICATE,
];

/// The label of all other methods.
const OTHERS: &str = "unimplemented";

/// The codes of gRPC in the order of their numbers, with their labels in etcd's own metrics.
const CODES: [&str; 17] = [
    "OK",
    "Canceled",
    "Unknown",
    "InvalidArgument",
    "DeadlineExceeded",
    "NotFound",
    "AlreadyExists",
    "PermissionDenied",
    "ResourceExhausted",
    "FailedPrecondition",
    "Aborted",
    "OutOfRange",
    "Unimplemented",
    "Internal",
    "Unavailable",
    "DataLoss",
    "Unauthenticated",
];

/// The counters of the etcd API. Each costs a request one atomic addition.
#[derive(Debug, Default)]
pub(super) struct Counts {
    /// The number of answers with each code, for each method and, last, for all others.
    requests: [[AtomicU64; CODES.len()]; METHODS.len() + 1],
    connections: AtomicU64,
    /// The memory used by requests and answers.
    pub(super) budgets: NodeBudgets,
}

/// The index of a method's counters.
#[derive(Clone, Copy, Debug)]
pub(super) struct Counted(usize);

/// Counts an open connection until dropped.
#[derive(Debug)]
pub(super) struct Open(Arc<Counts>);

impl Counts {
    /// Returns the counters of the method with this path.
    pub(super) fn method(path: &str) -> Counted {
        Counted(METHODS.iter().position(|known| *known == path).unwrap_or(METHODS.len()))
    }

    /// Counts an answered request, or a stream that has begun, with these headers. On success the code follows the
    /// answer.
    pub(super) fn answered(&self, Counted(method): Counted, headers: &HeaderMap) {
        let code = headers.get("grpc-status").map_or(Code::Ok, |code| Code::from_bytes(code.as_bytes()));
        let code = usize::try_from(code as i32).unwrap_or_default();
        if let Some(count) = self.requests.get(method).and_then(|codes| codes.get(code)) {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Counts an accepted connection.
    pub(super) fn open(self: &Arc<Self>) -> Open {
        self.connections.fetch_add(1, Ordering::Relaxed);
        Open(Arc::clone(self))
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.0.connections.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The metrics of one etcd API.
#[derive(Clone, Debug)]
pub struct EtcdApiFigures {
    pub(super) counts: Arc<Counts>,
    /// The most connections.
    pub(super) connections_max: usize,
    pub(super) tls: Option<Arc<ServerTls>>,
    pub(super) election: String,
    pub(super) node: String,
}

type NoExemplar<'a> = Option<&'a Exemplar<[(&'static str, &'static str); 0], u64>>;

impl EtcdApiFigures {
    fn labels<'a, const MORE: usize>(&'a self, more: [(&'a str, &'a str); MORE]) -> Vec<(&'a str, &'a str)> {
        [("election", self.election.as_str()), ("node", self.node.as_str())].into_iter().chain(more).collect()
    }

    fn gauge(&self, mut encoder: MetricEncoder<'_>, value: u64) -> fmt::Result {
        encoder.encode_family(&self.labels([]))?.encode_gauge(&value)
    }

    fn of_requests(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let help = "Requests of clients that were answered, and streams that were begun";
        let mut family =
            encoder.encode_descriptor("primacy_etcd_api_requests", help, None, MetricType::Counter)?;
        let methods = METHODS.iter().map(|path| path.rsplit('/').next().unwrap_or(path)).chain([OTHERS]);
        for (method, codes) in methods.zip(&self.counts.requests) {
            for (code, count) in CODES.into_iter().zip(codes) {
                let count = count.load(Ordering::Relaxed);
                // Successes of served methods are shown from the start, so that their rate is known. Others are shown once they occur:
                // most errors never do.
                if count > 0 || (code == CODES[0] && method != OTHERS) {
                    let exemplar: NoExemplar<'_> = None;
                    let labels = self.labels([("method", method), ("code", code)]);
                    family.encode_family(&labels)?.encode_counter(&count, exemplar)?;
                }
            }
        }
        Ok(())
    }

    fn of_connections(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let help = "Connections of clients that are open";
        let family =
            encoder.encode_descriptor("primacy_etcd_api_connections", help, None, MetricType::Gauge)?;
        self.gauge(family, self.counts.connections.load(Ordering::Relaxed))?;
        let help = "How many there may be; more wait";
        let family =
            encoder.encode_descriptor("primacy_etcd_api_connections_max", help, None, MetricType::Gauge)?;
        self.gauge(family, self.connections_max as u64)?;
        let help = "Bytes that requests, unread answers and streams of clients hold";
        let name = "primacy_etcd_api_held";
        let mut family = encoder.encode_descriptor(name, help, Some(&Unit::Bytes), MetricType::Gauge)?;
        let [requests, answers] = self.counts.budgets.taken();
        let streams = self.counts.budgets.taken_by_streams();
        for (by, bytes) in [("requests", requests), ("answers", answers), ("streams", streams)] {
            family.encode_family(&self.labels([("by", by)]))?.encode_gauge(&(bytes as u64))?;
        }
        Ok(())
    }

    fn of_certificate(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let Some(tls) = &self.tls else { return Ok(()) };
        let status = tls.status();
        let help = "Until when the certificate that clients are shown is valid, in seconds since 1970";
        let name = "primacy_etcd_api_certificate_valid_until";
        let mut family = encoder.encode_descriptor(name, help, Some(&Unit::Seconds), MetricType::Gauge)?;
        let until = Duration::from_secs(status.valid_until).as_secs_f64();
        family.encode_family(&self.labels([]))?.encode_gauge(&until)?;
        let help = "Changes of its files that were seen, by whether they could be used";
        let name = "primacy_etcd_api_certificate_replacements";
        let mut family = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
        for (result, count) in [("used", status.replaced), ("refused", status.replacements_refused)] {
            let exemplar: NoExemplar<'_> = None;
            let labels = self.labels([("result", result)]);
            family.encode_family(&labels)?.encode_counter(&count, exemplar)?;
        }
        Ok(())
    }
}

impl Collector for EtcdApiFigures {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        self.of_requests(&mut encoder)?;
        self.of_connections(&mut encoder)?;
        self.of_certificate(&mut encoder)
    }
}

#[cfg(test)]
mod tests {
    use tonic::Status;
    use tonic::body::Body;

    use super::*;

    /// The page with the served methods.
    const PAGE: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/guide/etcd-api.md"));

    #[test]
    fn each_method_that_the_page_lists_is_counted_for_itself() {
        let (_, below) = PAGE.split_once("\n## What is served\n").unwrap();
        let table = below.split("\n## ").next().unwrap();
        let rows = table.lines().filter_map(|line| line.strip_prefix("| `")?.split_once("` | "));
        let is_method = |word: &&str| word.starts_with(char::is_uppercase) && !word.contains(' ');
        let listed: Vec<&str> =
            rows.flat_map(|(_, said)| said.split('`').skip(1).step_by(2).filter(is_method)).collect();
        let mut counted: Vec<&str> = METHODS.iter().filter_map(|path| path.rsplit('/').next()).collect();
        assert_eq!(counted.len(), METHODS.len());
        counted.sort_unstable();
        let mut sorted = listed.clone();
        sorted.sort_unstable();
        assert_eq!(counted, sorted);
    }

    #[test]
    fn a_code_is_counted_under_its_name_and_what_is_not_served_together() {
        let counts = Counts::default();
        let refused = Status::unimplemented("no").into_http::<Body>();
        for path in ["/etcdserverpb.Auth/UserAdd", "/x", ""] {
            counts.answered(Counts::method(path), refused.headers());
        }
        counts.answered(Counts::method(method::PUT), &HeaderMap::new());
        for (number, name) in CODES.into_iter().enumerate() {
            let code = Code::from_i32(i32::try_from(number).unwrap());
            // The library spells two of them differently.
            let written = format!("{code:?}").replace("Cancelled", "Canceled").replace("Ok", "OK");
            assert_eq!(written, name);
        }
        let of = |method: usize, code: usize| counts.requests[method][code].load(Ordering::Relaxed);
        assert_eq!((of(METHODS.len(), Code::Unimplemented as usize), of(1, 0), of(0, 0)), (3, 1, 0));
    }
}
