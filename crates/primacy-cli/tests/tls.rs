//! Nodes under mutual TLS as processes: errors of certificates are reported and counted, and depose no leader.

#![allow(clippy::unwrap_used, reason = "in a test, a panic is the message")]

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use primacy_testbed::authority::{Authority, FUTURE, NOW, PAST, options, replace};
use primacy_testbed::{Node, Place, get, peers, stderr, stdout, strings, wait_until};
use serde_json::Value;

fn args(place: &Place, name: &str, peers: &str, more: &[String]) -> Vec<String> {
    let mut args = strings(&["node", "--json", "--election", "e", "--metrics", "0", "--lease", "2s"]);
    args.extend(strings(&["--node", name, "--peers", peers, "--state-dir", &place.text(name)]));
    args.extend(more.to_vec());
    args
}

/// Returns the status that `primacy status` reports of a node, as soon as it can be asked.
fn who(place: &Place, name: &str) -> Value {
    let mut who = Value::Null;
    wait_until("an answer", || {
        let args = ["status", "--json", "--election", "e", "--node", name, "--state-dir", &place.text(name)];
        let output = place.output(&args);
        who = serde_json::from_str(&stdout(&output)).unwrap_or_default();
        !who.is_null()
    });
    who
}

/// Returns the state of `name`'s connection to `about`.
fn peer(place: &Place, name: &str, about: &str) -> Value {
    let who = who(place, name);
    let others = who["peers"]["others"].as_array().unwrap();
    others.iter().find(|peer| peer["node"] == about).unwrap().clone()
}

/// Nodes `a` and `b` under TLS, one of which leads; and the authority.
fn pair(place: &Place, peers: &str) -> (Authority, [Node; 2]) {
    let authority = Authority::new();
    replace(place, "ca.pem", &authority.pem);
    let nodes = ["a", "b"].map(|name| {
        authority.issue(place, name, name, NOW);
        Node::start(place, name, &args(place, name, peers, &options(place, name)))
    });
    wait_until("the election", || nodes.iter().any(Node::leads));
    (authority, nodes)
}

#[test]
fn wrong_certificates_are_refused_told_and_counted_and_right_ones_heal_without_a_restart() {
    let place = Place::new("tls-wrong");
    let peers = peers(&["a", "b", "c"]);
    let (authority, nodes) = pair(&place, &peers);
    let elected: usize = nodes.iter().map(|node| node.told.count("elected")).sum();

    authority.issue(&place, "c", "c", PAST);
    let c = Node::start(&place, "c", &args(&place, "c", &peers, &options(&place, "c")));
    let refused = |kind: &str, part: &str| {
        wait_until(kind, || {
            let refusal = &peer(&place, "a", "c")["refusal"];
            refusal["kind"] == kind && refusal["text"].as_str().unwrap().contains(part)
        });
    };
    refused("tls_expired", "a refuses c: its certificate expired at ");
    authority.issue(&place, "c", "c", FUTURE);
    refused("tls_not_yet_valid", "a refuses c: its certificate is valid only from ");
    Authority::new().issue(&place, "c", "c", NOW);
    refused("tls_unknown_issuer", "issued by none of the authorities in a's ");
    let trouble = who(&place, "c")["peers"]["certificate"]["trouble"].clone();
    assert!(trouble.as_str().is_some_and(|text| text.contains("c.pem")), "c knows of it: {trouble}");
    assert!(!c.leads());
    // The time of it is reported as well, of c by its name and of the unknown peer that c is until it has
    // proved it.
    let seen = who(&place, "a");
    assert!(peer(&place, "a", "c")["refusal"]["ago_ms"].is_u64(), "{seen}");
    let refused = &seen["peers"]["unidentified_refused"];
    assert!(refused["ago_ms"].is_u64() && refused["by_peer"] == false, "{seen}");
    let asked = ["status", "--election", "e", "--node", "a", "--state-dir", &place.text("a")];
    let text = stdout(&place.output(&asked));
    assert!(text.contains(" ago)\n") && text.contains("\n  an unidentified peer, "), "{text}");

    let served = nodes[0].told.wait_for_event("serving")["metrics"].as_str().unwrap().to_owned();
    let figures = get(&served, "GET", "/metrics").1;
    for kind in ["tls_expired", "tls_not_yet_valid", "tls_unknown_issuer"] {
        assert!(figures.contains(&format!("by=\"this_node\",reason=\"{kind}\"")), "{kind}: {figures}");
        assert!(who(&place, "a")["peers"]["refused"][kind].as_u64() > Some(0));
    }
    assert!(
        figures.contains("primacy_certificate_valid_until_seconds{election=\"e\",node=\"a\"} "),
        "{figures}"
    );

    authority.issue(&place, "c", "c", NOW);
    wait_until("c to be let in", || {
        let peer = peer(&place, "a", "c");
        peer["inbound"].is_string() && peer["outbound"].is_string() && peer["refusal"].is_null()
    });
    wait_until("c to follow", || who(&place, "c")["leader"].is_object());
    let now: usize = nodes.iter().map(|node| node.told.count("elected")).sum();
    assert_eq!(now, elected, "nobody was unseated");
}

#[test]
fn one_in_cleartext_is_left_out() {
    let place = Place::new("tls-cleartext");
    let peers = peers(&["a", "b", "c"]);
    let (_, _nodes) = pair(&place, &peers);
    let untrusted = Node::start(&place, "c", &args(&place, "c", &peers, &[]));
    let told = || peer(&place, "c", "a")["refusal"].clone();
    wait_until("the refusal", || told()["by_peer"] == true && told()["kind"] == "tls_cleartext");
    let text = told()["text"].as_str().unwrap().to_owned();
    assert!(
        text.contains("a refuses c: it speaks cleartext where TLS is expected; give it --tls-"),
        "{text}"
    );
    wait_until("the other's", || who(&place, "a")["peers"]["refused"]["tls_cleartext"].as_u64() > Some(0));
    assert!(!untrusted.leads());
    assert!(who(&place, "c")["peers"]["certificate"].is_null());
}

#[test]
fn what_is_wrong_with_the_files_is_said_before_the_node_takes_part() {
    let place = Place::new("tls-files");
    let (authority, peers) = (Authority::new(), peers(&["a", "b"]));
    replace(&place, "ca.pem", &authority.pem);
    let refused = |more: &[String], part: &str| {
        let output = place.output(&args(&place, "a", &peers, more));
        let said = stderr(&output);
        assert_eq!(output.status.code(), Some(78), "{said}");
        assert!(said.contains(part), "{said}");
    };
    refused(&options(&place, "a"), "a.pem");
    authority.issue(&place, "a", "b", NOW);
    refused(&options(&place, "a"), "issue it with subjectAltName = DNS:a");
    authority.issue(&place, "a", "a", NOW);
    fs::set_permissions(place.path("a.key"), fs::Permissions::from_mode(0o644)).unwrap();
    refused(&options(&place, "a"), "chmod 600");
    fs::set_permissions(place.path("a.key"), fs::Permissions::from_mode(0o600)).unwrap();
    fs::set_permissions(place.path("ca.pem"), fs::Permissions::from_mode(0o666)).unwrap();
    refused(&options(&place, "a"), "run chmod go-w ");
    fs::set_permissions(place.path("ca.pem"), fs::Permissions::from_mode(0o644)).unwrap();
    authority.issue(&place, "other", "a", NOW);
    fs::copy(place.path("other.key"), place.path("a.key")).unwrap();
    refused(&options(&place, "a"), "does not belong to the certificate");
    replace(&place, "a.pem", "nothing");
    refused(&options(&place, "a"), "holds no usable");

    let half = place.output(&args(&place, "a", &peers, &strings(&["--tls-key", "k"])));
    let said = stderr(&half);
    assert_eq!(half.status.code(), Some(64), "{said}");
    assert!(said.contains("--tls-key needs --tls-certificate FILE"), "{said}");
    assert!(said.contains("--tls-key needs --tls-ca FILE"), "{said}");
}

/// The certificates of a cluster name it, and so the certificates of another one under the same authority are of no
/// use there.
#[test]
fn a_certificate_of_another_cluster_of_the_same_authority_is_refused() {
    let place = Place::new("tls-clusters");
    let peers = peers(&["a", "b", "c"]);
    let authority = Authority::new();
    replace(&place, "ca.pem", &authority.pem);
    let start = |name: &str| Node::start(&place, name, &args(&place, name, &peers, &options(&place, name)));
    let nodes = ["a", "b"].map(|name| {
        authority.issue(&place, name, &format!("{name}.primacy.e"), NOW);
        start(name)
    });
    wait_until("the election", || nodes.iter().any(Node::leads));
    authority.issue(&place, "c", "c.primacy.other", NOW);
    let wrong = place.output(&args(&place, "c", &peers, &options(&place, "c")));
    assert_eq!(wrong.status.code(), Some(78), "{}", stderr(&wrong));
    // Nor is a certificate that names no cluster.
    authority.issue(&place, "c", "c", NOW);
    let c = start("c");
    wait_until("the refusal", || {
        let refusals = ["a", "b"].map(|name| peer(&place, name, "c")["refusal"]["text"].to_string());
        refusals.iter().any(|text| text.contains("c.primacy.e"))
    });
    authority.issue(&place, "c", "c.primacy.e", NOW);
    wait_until("c to follow", || who(&place, "c")["leader"].is_object());
    drop(c);
}
