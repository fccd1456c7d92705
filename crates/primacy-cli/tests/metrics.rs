//! Metrics over HTTP.

#![cfg(feature = "etcd")]
#![allow(clippy::unwrap_used, reason = "in a test, a panic is the message")]

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};

use primacy_stores::etcd::api::{self, method};
use primacy_testbed::etcd_api::Asked;
use primacy_testbed::{Node, PATIENCE, Place, get, peers, stderr, stdout, strings, wait_until, words};
use rustix::process::Signal;

fn address(node: &Node) -> String {
    node.told.wait_for_event("serving")["metrics"].as_str().unwrap().to_owned()
}

fn node(place: &Place, name: &str, peers: &str) -> Node {
    node_with(place, name, peers, &[])
}

fn node_with(place: &Place, name: &str, peers: &str, more: &[&str]) -> Node {
    let line = format!(
        "node --json --election e --node {name} --peers {peers} --state-dir {} --metrics 0",
        place.text(name)
    );
    Node::start(place, name, &[words(&line), strings(more)].concat())
}

/// By seniority, a leader whose cluster is too small must get no requests.
#[test]
fn a_leader_of_too_few_members_is_not_to_be_asked() {
    let place = Place::new("metrics-minimum");
    let peers = peers(&["a", "b"]);
    let options =
        ["--algorithm", "seniority", "--allow-advisory", "--seeds", "b,a", "--minimum-members", "2"];
    let b = node_with(&place, "b", &peers, &options);
    b.told.wait_for_event("elected");
    let leader = || get(&address(&b), "GET", "/leader");
    let (head, body) = leader();
    assert!(head.starts_with("HTTP/1.1 503"), "{head}");
    assert!(body.contains("has 1 members here, and needs 2"), "{body}");
    let _a = node_with(&place, "a", &peers, &options);
    wait_until("the other member", || leader().0.starts_with("HTTP/1.1 200"));
    // And the node that does not lead says that, whatever its name is.
    assert!(leader().1.contains("advisory"), "{}", leader().1);
}

/// A quorum confirms any candidate, also while there is no cluster, for the node that would found it is never
/// there. That leader gets requests, unless more members are required.
#[test]
fn a_confirmed_leader_outside_a_cluster_is_to_be_asked() {
    for (test, minimum, expected) in [
        ("metrics-outside", &[][..], "HTTP/1.1 200"),
        ("metrics-outside-minimum", &["--minimum-members", "2"], "HTTP/1.1 503"),
    ] {
        let place = Place::new(test);
        let peers = peers(&["a", "b", "c"]);
        let options = ["--algorithm", "seniority", "--confirm", "quorum", "--seeds", "a"];
        let b = node_with(&place, "b", &peers, &[&options, minimum].concat());
        let c = node_with(&place, "c", &peers, &[&options[..], &["--witness"]].concat());
        b.told.wait_for_event("elected");
        let (head, body) = get(&address(&b), "GET", "/leader");
        assert!(head.starts_with(expected), "{head} {body}");
        let who = |name: &str| {
            let args = ["status", "--election", "e", "--node", name, "--state-dir", &place.text(name)];
            stdout(&place.output(&args))
        };
        let too_few = "the cluster has 0 members here, and needs 2";
        assert_eq!(body.contains(too_few), !minimum.is_empty(), "{body}");
        assert_eq!(who("b").contains(too_few), !minimum.is_empty(), "{}", who("b"));
        assert!(!get(&address(&c), "GET", "/leader").1.contains("members"));
        assert!(!who("c").contains("members here"), "{}", who("c"));
    }
}

/// One family of metrics, as the specification wants it.
#[derive(Debug)]
struct Family {
    kind: String,
    unit: Option<String>,
    samples: Vec<(String, String, f64)>,
}

/// Reads OpenMetrics strictly: families with their help and type come once and in one piece, names carry the suffixes
/// of their type, units end names, histograms are complete, no sample comes twice, and the last line says so.
fn parse(text: &str) -> BTreeMap<String, Family> {
    let body = text.strip_suffix("# EOF\n").expect("the last line is # EOF");
    let mut families: BTreeMap<String, Family> = BTreeMap::new();
    let (mut current, mut seen) = (String::new(), BTreeSet::new());
    for line in body.lines() {
        if let Some(meta) = line.strip_prefix("# ") {
            let (what, rest) = meta.split_once(' ').unwrap();
            let (name, rest) = rest.split_once(' ').unwrap();
            match what {
                "HELP" => {
                    assert!(!rest.is_empty() && !families.contains_key(name), "{line}");
                    let family = Family { kind: String::new(), unit: None, samples: Vec::new() };
                    families.insert(name.to_owned(), family);
                    current = name.to_owned();
                }
                "TYPE" => families.get_mut(name).unwrap().kind = rest.to_owned(),
                "UNIT" => {
                    assert!(name.ends_with(&format!("_{rest}")), "{line}");
                    families.get_mut(name).unwrap().unit = Some(rest.to_owned());
                }
                other => panic!("{other} is no metadata"),
            }
            assert_eq!(name, current, "{line}");
            continue;
        }
        let (series, value) = line.rsplit_once(' ').unwrap();
        assert!(seen.insert(series.to_owned()), "{series} comes twice");
        let (name, labels) = series.split_once('{').map_or((series, ""), |(name, rest)| (name, rest));
        let family = families.get_mut(&current).unwrap();
        let suffix = name.strip_prefix(&current).unwrap_or_else(|| panic!("{name} is not of {current}"));
        let suffixes: &[&str] = match family.kind.as_str() {
            "counter" => &["_total"],
            "gauge" => &[""],
            "histogram" => &["_bucket", "_sum", "_count"],
            other => panic!("{other} is a type that nothing here has"),
        };
        assert!(suffixes.contains(&suffix), "{line}");
        let number: f64 = value.parse().unwrap();
        assert!(number >= 0.0, "{line}");
        family.samples.push((suffix.to_owned(), labels.trim_end_matches('}').to_owned(), number));
    }
    for (name, family) in families.iter().filter(|(_, family)| family.kind == "histogram") {
        let buckets: Vec<f64> = of(family, "_bucket").map(|(_, count)| count).collect();
        assert!(buckets.is_sorted(), "{name}");
        let last = of(family, "_bucket").last().unwrap();
        assert!(last.0.contains("le=\"+Inf\""), "{name}");
        assert_eq!(of(family, "_count").next().unwrap().1, last.1, "{name}");
        assert_eq!(of(family, "_sum").count(), 1, "{name}");
    }
    families
}

fn of<'a>(family: &'a Family, suffix: &'a str) -> impl Iterator<Item = (&'a str, f64)> {
    let samples = family.samples.iter().filter(move |(of, ..)| of == suffix);
    samples.map(|(_, labels, value)| (labels.as_str(), *value))
}

#[test]
fn figures_are_openmetrics_and_say_what_happens() {
    let place = Place::new("metrics");
    let names = ["a", "b", "c"];
    let peers = peers(&names);
    let nodes: Vec<Node> = names.iter().map(|name| node(&place, name, &peers)).collect();
    wait_until("the election", || nodes.iter().any(Node::leads));
    let leader = nodes.iter().find(|node| node.leads()).unwrap();
    let figures = || {
        let (head, body) = get(&address(leader), "GET", "/metrics");
        assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
        let kind = "content-type: application/openmetrics-text; version=1.0.0; charset=utf-8";
        assert!(head.to_lowercase().contains(kind), "{head}");
        parse(&body)
    };
    wait_until("heartbeats that were answered", || {
        of(&figures()["primacy_heartbeat_round_trip_seconds"], "_count").any(|(_, count)| count >= 4.0)
    });
    let figures = figures();
    let one = |name: &str, label: &str| {
        let samples = &figures.get(name).unwrap_or_else(|| panic!("there is no {name}")).samples;
        samples.iter().find(|(_, labels, _)| labels.contains(label)).map(|(.., value)| *value).unwrap()
    };
    let token = leader.told.wait_for_event("elected")["token"].as_u64().unwrap();
    assert_eq!(one("primacy_token", ""), f64::from(u32::try_from(token).unwrap()));
    assert_eq!(one("primacy_role", "role=\"leader\""), 1.0);
    assert_eq!(one("primacy_role", "role=\"follower\""), 0.0);
    assert!(one("primacy_valid_for_seconds", "") <= 1.0);
    assert_eq!(one("primacy_elections_won", ""), 1.0);
    assert!(one("primacy_leaderless_seconds", "") > 0.0);
    assert!(one("primacy_frames", "fate=\"sent\"") > 0.0);
    assert!(of(&figures["primacy_state_write_seconds"], "_count").any(|(_, count)| count >= 1.0));

    // The page has all of them, and no other.
    let page = include_str!("../../../docs/guide/metrics.md");
    let (of_nodes, _) = page.split_once("## Figures of the etcd API").unwrap();
    let documented: BTreeSet<&str> = of_nodes
        .lines()
        .filter_map(|line| line.strip_prefix("| `")?.split('`').next())
        .filter(|name| name.starts_with("primacy_"))
        .collect();
    let served: BTreeSet<String> = figures
        .iter()
        .map(|(name, family)| if family.kind == "counter" { format!("{name}_total") } else { name.clone() })
        .collect();
    assert_eq!(documented, served.iter().map(String::as_str).collect());
}

#[test]
fn a_node_that_keeps_metadata_tells_how_much_there_is() {
    let place = Place::new("metrics-map");
    let node = node_with(&place, "a", &peers(&["a"]), &["--metadata", "fsync"]);
    node.told.wait_for_event("elected");
    let figure = |name: &str| {
        let figures = parse(&get(&address(&node), "GET", "/metrics").1);
        of(&figures[name], "").next().unwrap_or_else(|| panic!("no node has {name}")).1
    };
    assert_eq!((figure("primacy_voters"), figure("primacy_map_entries")), (1.0, 0.0));
    assert_eq!(figure("primacy_map_version"), 1.0, "that of the empty map");
    let bytes = figure("primacy_map_bytes");
    let directory = place.text("a");
    let create = ["partitions", "create", "orders", "1000", "--election", "e", "--state-dir", &directory];
    let output = place.output(&create);
    assert!(output.status.success(), "{}", stderr(&output));
    assert_eq!((figure("primacy_log_lost"), figure("primacy_log_uncommitted_records")), (0.0, 0.0));
    let figures = parse(&get(&address(&node), "GET", "/metrics").1);
    let numbers = |name: &str| of(&figures[name], "").map(|(_, number)| number).collect::<Vec<_>>();
    let (terms, counters) = (numbers("primacy_log_record_term"), numbers("primacy_log_record_counter"));
    // The last one, the last that is committed and the last that is applied are one: with its voters it is at least the second, unless
    // a pause of the machine has had the node elected once more.
    let records: Vec<_> = terms.into_iter().zip(counters).collect();
    assert!(records[0] >= (1.0, 2.0) && records.iter().all(|record| *record == records[0]), "{records:?}");
    // Each partition counts with 16 bytes.
    let more = figure("primacy_map_bytes") - bytes;
    assert!(more >= 16_000.0 && more < figure("primacy_map_quota_bytes"), "{more}");
}

/// A sample of a node now, if it has one.
fn sample(node: &Node, name: &str, labels: &[&str]) -> Option<f64> {
    let figures = parse(&get(&address(node), "GET", "/metrics").1);
    let has = |of: &str| labels.iter().all(|label| of.contains(label));
    figures[name].samples.iter().find(|(_, of, _)| has(of)).map(|(.., value)| *value)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_tells_how_far_others_are_behind_and_what_clients_asked() {
    const WRITES: u32 = 50;
    let place = Place::new("metrics-behind");
    let names = ["a", "b", "c"];
    let peers = peers(&names);
    let nodes: Vec<Node> =
        names.iter().map(|name| node_with(&place, name, &peers, &["--etcd-api", "0"])).collect();
    wait_until("the election", || nodes.iter().any(Node::leads));
    let leader = nodes.iter().find(|node| node.leads()).unwrap();
    let others: Vec<&Node> = nodes.iter().filter(|node| node.name != leader.name).collect();
    let behind =
        |node: &Node| sample(leader, "primacy_log_behind_records", &[&format!("peer=\"{}\"", node.name)]);
    wait_until("both to have all", || others.iter().all(|node| behind(node) == Some(0.0)));
    assert_eq!(sample(others[0], "primacy_log_behind_records", &[]), None, "it does not lead");

    others[0].signal(Signal::STOP);
    let at = leader.told.wait_for_event("serving_clients")["address"].as_str().unwrap().to_owned();
    let asked = Asked::new(&at).await;
    for _ in 0..WRITES {
        let put = api::PutRequest { key: b"k".to_vec(), ..Default::default() };
        let _: api::PutResponse = asked.ask(method::PUT, &put).await.unwrap();
    }
    wait_until("one to be behind", || behind(others[0]) >= Some(WRITES.into()));
    wait_until("the other one to have all", || behind(others[1]) == Some(0.0));
    others[0].signal(Signal::CONT);
    wait_until("both to have all", || others.iter().all(|node| behind(node) == Some(0.0)));

    let reached = asked.reach("/etcdserverpb.Auth/UserAdd", "").await;
    assert!(reached.is_err());
    let none = api::LeaseRevokeRequest { id: 7 };
    assert!(asked.ask::<_, api::LeaseRevokeResponse>(method::LEASE_REVOKE, &none).await.is_err());
    let requests = |method: &str, code: &str| {
        let labels = [&*format!("method=\"{method}\""), &*format!("code=\"{code}\"")];
        sample(leader, "primacy_etcd_api_requests", &labels)
    };
    assert_eq!(requests("Put", "OK"), Some(WRITES.into()));
    assert_eq!(requests("LeaseRevoke", "NotFound"), Some(1.0));
    assert_eq!(requests("unimplemented", "Unimplemented"), Some(1.0));
    assert_eq!(requests("unimplemented", "OK"), None);
    assert_eq!((requests("Range", "OK"), requests("Range", "Unavailable")), (Some(0.0), None));
    let connections = || sample(leader, "primacy_etcd_api_connections", &[]);
    assert_eq!(connections(), Some(1.0));
    assert!(sample(leader, "primacy_etcd_api_connections_max", &[]) > Some(100.0));
    drop(asked);
    wait_until("the end of the connection", || connections() == Some(0.0));
}

#[test]
fn load_balancers_find_the_leader() {
    let place = Place::new("metrics-leader");
    let names = ["a", "b", "c"];
    let peers = peers(&names);
    let nodes: Vec<Node> = names.iter().map(|name| node(&place, name, &peers)).collect();
    wait_until("the election", || nodes.iter().any(Node::leads));
    wait_until("the one answer of 200", || {
        let leads = |node: &Node| get(&address(node), "GET", "/leader").0.starts_with("HTTP/1.1 200 ");
        nodes.iter().all(|node| leads(node) == node.leads())
    });
    let follower = address(nodes.iter().find(|node| !node.leads()).unwrap());
    assert!(get(&follower, "GET", "/leader").0.starts_with("HTTP/1.1 503 "));
    assert!(get(&follower, "GET", "/healthz").0.starts_with("HTTP/1.1 200 "));
    assert!(get(&follower, "HEAD", "/healthz").0.starts_with("HTTP/1.1 200 "));
    assert!(get(&follower, "GET", "/").0.starts_with("HTTP/1.1 404 "));
    assert!(get(&follower, "POST", "/metrics").0.starts_with("HTTP/1.1 405 "));
}

#[test]
fn clients_that_say_nothing_make_room_for_those_that_do() {
    let place = Place::new("metrics-silent");
    let node = node(&place, "a", &peers(&["a"]));
    let address = address(&node);
    let silent: Vec<TcpStream> = (0..100).map(|_| TcpStream::connect(&address).unwrap()).collect();
    assert!(get(&address, "GET", "/healthz").0.starts_with("HTTP/1.1 200 "));
    let long = format!("/{}", "x".repeat(64 * 1024));
    let mut stream = TcpStream::connect(&address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    // It may be cut off while it still writes.
    let _ = write!(stream, "GET {long} HTTP/1.1\r\nHost: x\r\n\r\n");
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    assert!(!answer.starts_with(b"HTTP/1.1 200"), "{}", String::from_utf8_lossy(&answer));
    drop(silent);
    wait_until("the election", || node.leads());
}

#[test]
fn a_port_in_use_is_said_before_the_node_takes_part() {
    let place = Place::new("metrics-in-use");
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let output = place.output(&["run", "--election", "e", "--metrics", &address, "--", "touch", "ran"]);
    assert_eq!(output.status.code(), Some(69), "{}", stderr(&output));
    assert!(stderr(&output).contains(&format!("--metrics {address}: ")), "{}", stderr(&output));
    assert!(!place.path("ran").exists());
}
