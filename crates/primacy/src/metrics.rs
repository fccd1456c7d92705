//! Metrics in the form of [OpenMetrics](https://prometheus.io/docs/specs/om/open_metrics_spec/), which Prometheus reads.
//!
//! [`register`] adds them to a registry; `primacy node --metrics ADDR` serves them. They are read on request, on the requester's
//! thread; they cost a heartbeat a few atomic additions. They are for people and alarms. No program may base a decision on them,
//! because they may be outdated before they are read.
//!
//! ```
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! use primacy::Elector;
//! use primacy::metrics::{self, prometheus_client::registry::Registry};
//!
//! let elector = Elector::builder().election("billing").connect("memory:metrics").await?;
//! let mut registry = Registry::default();
//! metrics::register(&mut registry, [&elector]);
//! assert!(metrics::text(&registry).contains("primacy_term{election=\"billing\""));
//! # Ok(())
//! # }
//! # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(example()).unwrap();
//! ```

use std::fmt;
use std::sync::{Arc, PoisonError};

use primacy_core::{Duration, Instant, LeaderSequence, Mandate};
pub use prometheus_client;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::exemplar::Exemplar;
use prometheus_client::registry::{Registry, Unit};

use crate::clock;
use crate::connections::Counters;
use crate::elector::Elector;
use crate::histogram::{BUCKETS, Histogram};
use crate::leader_document::LeaderDocument;
use crate::metadata::Gauges;
use crate::stats::{LeadershipHistory, REASONS, Reading, Stats};
use crate::store_health::Operation;

/// The content type of [`text`].
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Adds the metrics of these electors to `registry`. Call it once for each registry, with all its electors: readers reject a metric
/// that is described twice. The registered metrics keep no election open.
pub fn register<'a>(registry: &mut Registry, electors: impl IntoIterator<Item = &'a Elector>) {
    let nodes = electors.into_iter().map(|elector| Node {
        election: elector.election().to_owned(),
        node: elector.identity().node.to_string(),
        witness: elector.is_witness(),
        stats: elector.stats(),
        map: elector.gauges(),
    });
    registry.register_collector(Box::new(Figures { nodes: nodes.collect() }));
}

/// Adds the metric of all durable fences of this process to `registry`. For programs with fences; call it once for each
/// registry.
pub fn register_fences(registry: &mut Registry) {
    registry.register_collector(Box::new(Fences));
}

/// Adds the metrics of the requests of these documents to `registry`, each under its name. Call it once for each registry, with all
/// documents.
pub fn register_documents<'a, S: 'a>(
    registry: &mut Registry,
    documents: impl IntoIterator<Item = (&'a str, &'a LeaderDocument<S>)>,
) {
    let named = documents.into_iter().map(|(name, document)| (name.to_owned(), document.stats()));
    registry.register_collector(Box::new(Documents(named.collect())));
}

/// All metrics of a registry as text.
#[must_use]
pub fn text(registry: &Registry) -> String {
    let mut text = String::new();
    // Writing into a string does not fail.
    let _ = prometheus_client::encoding::text::encode(&mut text, registry);
    text
}

#[derive(Debug)]
struct Fences;

impl Collector for Fences {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let help = "Writes that fences of this process refused because their token was stale";
        let mut family =
            encoder.encode_descriptor("primacy_stale_writes_refused", help, None, MetricType::Counter)?;
        let exemplar: NoExemplar<'_> = None;
        family.encode_counter(&crate::fence::stale_writes_refused(), exemplar)
    }
}

#[derive(Debug)]
struct Documents(Vec<(String, Arc<Stats>)>);

impl Collector for Documents {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let help = "Requests for a document that failed, or were not answered in time";
        let mut family =
            encoder.encode_descriptor("primacy_document_errors", help, None, MetricType::Counter)?;
        for (name, stats) in &self.0 {
            for operation in Operation::ALL {
                let labels = [("document", name.as_str()), ("operation", operation.label())];
                let exemplar: NoExemplar<'_> = None;
                let failed = stats.store.failed(operation);
                family.encode_family(&labels)?.encode_counter(&failed, exemplar)?;
            }
        }
        Ok(())
    }
}

#[derive(Debug)]
struct Figures {
    nodes: Vec<Node>,
}

#[derive(Debug)]
struct Node {
    election: String,
    node: String,
    witness: bool,
    stats: Arc<Stats>,
    /// The map's measurements, if the nodes have metadata.
    map: Option<Gauges>,
}

/// The measurements of one node at one moment.
struct Moment<'a> {
    node: &'a Node,
    now: Instant,
    history: LeadershipHistory,
    counters: Option<Counters>,
    map: Option<Reading>,
}

type NoExemplar<'a> = Option<&'a Exemplar<[(&'static str, &'static str); 0], u64>>;

/// Writes one metric for all nodes.
struct Family<'a> {
    encoder: MetricEncoder<'a>,
}

impl Family<'_> {
    fn counter(&mut self, of: &Moment<'_>, more: Label<'_>, value: u64) -> fmt::Result {
        let exemplar: NoExemplar<'_> = None;
        self.encoder.encode_family(&labels(of.node, more))?.encode_counter(&value, exemplar)
    }

    fn seconds_total(&mut self, of: &Moment<'_>, value: Duration) -> fmt::Result {
        let exemplar: NoExemplar<'_> = None;
        self.encoder.encode_family(&labels(of.node, None))?.encode_counter(&seconds(value), exemplar)
    }

    fn gauge(&mut self, of: &Moment<'_>, more: Label<'_>, value: u64) -> fmt::Result {
        self.encoder.encode_family(&labels(of.node, more))?.encode_gauge(&value)
    }

    fn seconds(&mut self, of: &Moment<'_>, value: Duration) -> fmt::Result {
        self.encoder.encode_family(&labels(of.node, None))?.encode_gauge(&seconds(value))
    }

    fn histogram(&mut self, of: &Moment<'_>, histogram: &Histogram) -> fmt::Result {
        let counts = histogram.counts();
        let ends = BUCKETS.iter().map(|&nanos| seconds(Duration::from_nanos(nanos))).chain([f64::INFINITY]);
        let buckets: Vec<(f64, u64)> = ends.zip(counts).collect();
        let sum = seconds(Duration::from_nanos(histogram.sum()));
        let labels = labels(of.node, None);
        let mut encoder = self.encoder.encode_family(&labels)?;
        encoder.encode_histogram::<[(&str, &str); 0]>(sum, counts.iter().sum(), &buckets, None)
    }
}

type Label<'a> = Option<(&'a str, &'a str)>;

fn labels<'a>(node: &'a Node, more: Label<'a>) -> Vec<(&'a str, &'a str)> {
    [("election", node.election.as_str()), ("node", node.node.as_str())].into_iter().chain(more).collect()
}

fn seconds(duration: Duration) -> f64 {
    std::time::Duration::from(duration).as_secs_f64()
}

impl Moment<'_> {
    fn role(&self) -> &'static str {
        if self.history.lead.is_some() {
            "leader"
        } else if self.node.witness {
            "witness"
        } else if self.history.leader.is_some() {
            "follower"
        } else {
            "candidate"
        }
    }

    fn valid_for(&self) -> Duration {
        let until = self.history.lead.as_ref().map(|lead| lead.valid_until());
        // An advisory leadership has no end.
        until.filter(|&until| until < Instant::NEVER).map_or(Duration::ZERO, |until| until.since(self.now))
    }

    fn token(&self) -> u64 {
        match self.history.lead.as_ref().map(|lead| lead.lead().mandate) {
            Some(Mandate::Fenced(token)) => token.0,
            Some(Mandate::Advisory) | None => 0,
        }
    }
}

const ROLES: [&str; 4] = ["leader", "follower", "candidate", "witness"];

impl Collector for Figures {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let now = clock::now();
        let moment = |node| {
            let node: &Node = node;
            let history = node.stats.history();
            let counters = node.stats.connections.get();
            let counters =
                counters.map(|counters| counters.lock().unwrap_or_else(PoisonError::into_inner).clone());
            let map = node.map.as_ref().and_then(Gauges::read);
            Moment { node, now, history, counters, map }
        };
        let moments: Vec<Moment<'_>> = self.nodes.iter().map(moment).collect();
        of_the_lead(&moments, &mut encoder)?;
        of_the_history(&moments, &mut encoder)?;
        of_times(&moments, &mut encoder)?;
        of_connections(&moments, &mut encoder)?;
        of_maps(&moments, &mut encoder)?;
        of_logs(&moments, &mut encoder)?;
        of_certificates(&moments, &mut encoder)
    }
}

/// Describes a metric, and writes it for each node.
fn family(
    encoder: &mut DescriptorEncoder<'_>,
    moments: &[Moment<'_>],
    (name, unit, kind): (&str, Option<Unit>, MetricType),
    help: &str,
    mut write: impl FnMut(&mut Family<'_>, &Moment<'_>) -> fmt::Result,
) -> fmt::Result {
    let encoder = encoder.encode_descriptor(name, help, unit.as_ref(), kind)?;
    let mut family = Family { encoder };
    moments.iter().try_for_each(|moment| write(&mut family, moment))
}

const fn counter(name: &str) -> (&str, Option<Unit>, MetricType) {
    (name, None, MetricType::Counter)
}

const fn gauge(name: &str) -> (&str, Option<Unit>, MetricType) {
    (name, None, MetricType::Gauge)
}

const fn in_seconds(name: &str, kind: MetricType) -> (&str, Option<Unit>, MetricType) {
    (name, Some(Unit::Seconds), kind)
}

fn of_the_lead(moments: &[Moment<'_>], encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
    let help = "1 for the part that this node has now, 0 for the others";
    family(encoder, moments, gauge("primacy_role"), help, |family, moment| {
        let is = |role| u64::from(moment.role() == role);
        ROLES.iter().try_for_each(|role| family.gauge(moment, Some(("role", *role)), is(*role)))
    })?;
    let help = "Highest term whose leader this node knew";
    family(encoder, moments, gauge("primacy_term"), help, |family, moment| {
        family.gauge(moment, None, moment.history.term.0)
    })?;
    let help = "Fencing token of this node's leadership, 0 while it has none";
    family(encoder, moments, gauge("primacy_token"), help, |family, moment| {
        family.gauge(moment, None, moment.token())
    })?;
    let help = "How long this node may lead on without a renewal, 0 while it does not lead and in an advisory election";
    let valid = in_seconds("primacy_valid_for", MetricType::Gauge);
    family(encoder, moments, valid, help, |family, moment| family.seconds(moment, moment.valid_for()))
}

fn of_the_history(moments: &[Moment<'_>], encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
    let help = "Times that this node learned of a leader that it did not know to lead";
    family(encoder, moments, counter("primacy_leader_changes"), help, |family, moment| {
        family.counter(moment, None, moment.history.leader_changes)
    })?;
    let help = "Times that this node was elected";
    family(encoder, moments, counter("primacy_elections_won"), help, |family, moment| {
        family.counter(moment, None, moment.history.elections)
    })?;
    let help = "Leaderships of this node that have ended, by reason";
    family(encoder, moments, counter("primacy_leaderships_ended"), help, |family, moment| {
        let ended = |reason| moment.history.ends.get(reason).copied().unwrap_or(0);
        REASONS
            .iter()
            .try_for_each(|reason| family.counter(moment, Some(("reason", *reason)), ended(*reason)))
    })?;
    let help = "Time for which this node knew no leader";
    let leaderless = in_seconds("primacy_leaderless", MetricType::Counter);
    family(encoder, moments, leaderless, help, |family, moment| {
        family.seconds_total(moment, moment.history.leaderless(moment.now))
    })?;
    let help = "Things seen that must never be";
    family(encoder, moments, counter("primacy_violations"), help, |family, moment| {
        family.counter(moment, None, moment.history.violations)
    })
}

fn of_times(moments: &[Moment<'_>], encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
    let histogram = |name| in_seconds(name, MetricType::Histogram);
    let help = "From sending a heartbeat to each reply, among peers";
    family(encoder, moments, histogram("primacy_heartbeat_round_trip"), help, |family, moment| {
        family.histogram(moment, &moment.node.stats.heartbeat_round_trips)
    })?;
    let help = "Writing and flushing what must not be forgotten, among peers";
    family(encoder, moments, histogram("primacy_state_write"), help, |family, moment| {
        family.histogram(moment, &moment.node.stats.state_writes)
    })?;
    let help = "Requests to the store that it answered or failed";
    family(encoder, moments, histogram("primacy_store_request"), help, |family, moment| {
        family.histogram(moment, &moment.node.stats.store.requests)
    })?;
    let help = "Requests to the store that failed, or were not answered in time";
    family(encoder, moments, counter("primacy_store_errors"), help, |family, moment| {
        let stats = &moment.node.stats;
        Operation::ALL.into_iter().try_for_each(|operation| {
            let failed = stats.store.failed(operation);
            family.counter(moment, Some(("operation", operation.label())), failed)
        })
    })?;
    let help = "Requests to the store that it answered later than in half the time for an answer";
    family(encoder, moments, counter("primacy_store_slow"), help, |family, moment| {
        let stats = &moment.node.stats;
        Operation::ALL.into_iter().try_for_each(|operation| {
            let slow = stats.store.slow(operation);
            family.counter(moment, Some(("operation", operation.label())), slow)
        })
    })
}

fn of_maps(moments: &[Moment<'_>], encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
    type Described = (&'static str, Option<Unit>, MetricType);
    type Read = fn(&Reading) -> u64;
    const fn in_bytes(name: &'static str) -> Described {
        (name, Some(Unit::Bytes), MetricType::Gauge)
    }
    let figures: [(Described, &str, Read); 8] = [
        (gauge("primacy_map_version"), "Version of this node's copy of the map", |map| map.version),
        (gauge("primacy_map_entries"), "Keys with an entry in this node's copy", |map| map.entries),
        (in_bytes("primacy_map"), "What entries, sessions and partitions take of the quota", |map| map.bytes),
        (
            in_bytes("primacy_map_quota"),
            "What they may take; beyond it nothing is done that needs more room",
            |map| map.quota,
        ),
        (gauge("primacy_map_history_changes"), "Changes that can still be watched from", |map| {
            map.history_changes
        }),
        (in_bytes("primacy_map_history"), "What these changes take", |map| map.history_bytes),
        (gauge("primacy_map_sessions"), "Sessions of clients, which the etcd API calls leases", |map| {
            map.sessions as u64
        }),
        (gauge("primacy_voters"), "Nodes that vote, as far as this node knows", |map| map.voters as u64),
    ];
    for (described, help, read) in figures {
        family(encoder, moments, described, help, |family, moment| {
            moment.map.as_ref().map_or(Ok(()), |map| family.gauge(moment, None, read(map)))
        })?;
    }
    Ok(())
}

fn of_logs(moments: &[Moment<'_>], encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
    type Read = fn(LeaderSequence) -> u64;
    let numbers: [(&'static str, &str, Read); 2] = [
        ("primacy_log_record_term", "Term of a record of this node's log", |record| record.term.0),
        ("primacy_log_record_counter", "Its number within the term, from 1", |record| record.counter),
    ];
    for (name, help, read) in numbers {
        family(encoder, moments, gauge(name), help, |family, moment| {
            let records = moment.map.iter().flat_map(|map| map.log.records);
            records
                .into_iter()
                .try_for_each(|(what, number)| family.gauge(moment, Some(("record", what)), read(number)))
        })?;
    }
    let help = "Records of this node's log that are not known to be on a majority";
    family(encoder, moments, gauge("primacy_log_uncommitted_records"), help, |family, moment| {
        moment.map.as_ref().map_or(Ok(()), |map| family.gauge(moment, None, map.log.uncommitted))
    })?;
    let help = "1 while this node has lost its log and counts for no majority that holds a record";
    family(encoder, moments, gauge("primacy_log_lost"), help, |family, moment| {
        moment.map.as_ref().map_or(Ok(()), |map| family.gauge(moment, None, map.log.lost.into()))
    })?;
    let help = "At the leader, records that another node is not known to hold";
    family(encoder, moments, gauge("primacy_log_behind_records"), help, |family, moment| {
        let behind = moment.map.iter().flat_map(|map| &map.log.behind);
        behind
            .into_iter()
            .try_for_each(|(peer, records)| family.gauge(moment, Some(("peer", peer.as_str())), *records))
    })
}

fn of_certificates(moments: &[Moment<'_>], encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
    let status = |moment: &Moment<'_>| moment.node.stats.certificate.get().map(|tls| tls.status());
    let help = "Until when the certificate in use is valid, in seconds since 1970";
    let gauge = in_seconds("primacy_certificate_valid_until", MetricType::Gauge);
    family(encoder, moments, gauge, help, |family, moment| {
        let Some(status) = status(moment) else { return Ok(()) };
        family.seconds(moment, Duration::from_secs(status.valid_until))
    })?;
    let help = "Changes of the certificate's files that were seen, by whether they could be used";
    family(encoder, moments, counter("primacy_certificate_replacements"), help, |family, moment| {
        let Some(status) = status(moment) else { return Ok(()) };
        let results = [("used", status.replaced), ("refused", status.replacements_refused)];
        results
            .iter()
            .try_for_each(|&(result, count)| family.counter(moment, Some(("result", result)), count))
    })
}

fn of_connections(moments: &[Moment<'_>], encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
    type Read = fn(&Counters) -> u64;
    let mut of_peers =
        |name: &'static str, label: &'static str, help: &str, figures: &[(&'static str, Read)]| {
            family(encoder, moments, counter(name), help, |family, moment| {
                let Some(counters) = &moment.counters else { return Ok(()) };
                figures.iter().try_for_each(|(value, read)| {
                    family.counter(moment, Some((label, *value)), read(counters))
                })
            })
        };
    let frames: [(&str, Read); 4] = [
        ("sent", |counters| counters.frames_sent),
        ("dropped", |counters| counters.frames_dropped),
        ("oversized", |counters| counters.frames_oversized),
        ("received", |counters| counters.frames_received),
    ];
    of_peers("primacy_frames", "fate", "Messages between peers", &frames)?;
    let rejected: [(&str, Read); 7] = [
        ("malformed", |counters| counters.frames_malformed),
        ("unknown", |counters| counters.frames_unknown),
        ("too_long", |counters| counters.frames_too_long),
        ("other_election", |counters| counters.frames_of_other_elections),
        ("misattributed", |counters| counters.frames_misattributed),
        ("term_too_high", |counters| counters.frames_term_too_high),
        ("death_not_vouched_for", |counters| counters.deaths_refused),
    ];
    of_peers("primacy_frames_rejected", "reason", "Frames of peers that were not acted on", &rejected)?;
    let failed: [(&str, Read); 5] = [
        ("handshake_timed_out", |counters| counters.handshakes_timed_out),
        ("handshake_broken", |counters| counters.handshakes_broken),
        ("too_many_pending", |counters| counters.pending_over_limit),
        ("connect", |counters| counters.connects_failed),
        ("accept", |counters| counters.accepts_failed),
    ];
    of_peers("primacy_connections_failed", "reason", "Connections that came to nothing", &failed)?;
    let help = "Handshakes in which one side refused the other, by who refused and why";
    family(encoder, moments, counter("primacy_handshakes_refused"), help, |family, moment| {
        let Some(counters) = &moment.counters else { return Ok(()) };
        for (by, refused) in [("this_node", &counters.refused), ("peer", &counters.refused_by_peers)] {
            for (kind, count) in refused {
                let labels = [
                    ("election", moment.node.election.as_str()),
                    ("node", moment.node.node.as_str()),
                    ("by", by),
                    ("reason", kind.name()),
                ];
                let exemplar: NoExemplar<'_> = None;
                family.encoder.encode_family(&labels)?.encode_counter(count, exemplar)?;
            }
        }
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The application chooses the names of documents, unlike those of nodes and elections.
    #[test]
    fn labels_are_escaped_as_the_format_has_it() {
        let name = "a\"b\\c\nd";
        assert!(name.parse::<primacy_core::NodeId>().is_err());
        assert!(crate::config::check_election(name).is_err());
        let mut registry = Registry::default();
        registry.register_collector(Box::new(Documents(vec![(name.to_owned(), Arc::default())])));
        let text = text(&registry);
        let line = r#"primacy_document_errors_total{document="a\"b\\c\nd",operation="read"} 0"#;
        assert!(text.lines().any(|found| found == line), "{text}");
    }
}
