//! The etcd API of a node: its address, and its certificate, which can be replaced while it serves.

#![cfg(feature = "etcd")]
#![allow(clippy::unwrap_used, reason = "in a test, a panic is the message")]

use std::collections::BTreeSet;
use std::fs;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt as _;
use std::sync::Arc;

use primacy_stores::etcd::api::{self, method};
use primacy_testbed::authority::{Authority, NOW, options, replace};
use primacy_testbed::etcd_api::Asked;
use primacy_testbed::{Node, PATIENCE, Place, get, peers, stderr, strings};
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned, crypto};

/// The preface of an HTTP/2 client, with empty settings.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";

/// The frame header of a ping, before its eight bytes; the answer has the same eight.
const PING: &[u8] = b"\0\0\x08\x06\0\0\0\0\0";

fn start(place: &Place, peers: &str, more: &[String]) -> Node {
    let mut args = strings(&["node", "--json", "--election", "e", "--node", "a", "--peers", peers]);
    args.extend(strings(&["--state-dir", &place.text("a")]));
    args.extend(more.to_vec());
    Node::start(place, "a", &args)
}

/// Where clients are answered.
fn address(node: &Node) -> String {
    node.told.wait_for_event("serving_clients")["address"].as_str().unwrap().to_owned()
}

/// The connection of a client.
struct Client(StreamOwned<ClientConnection, TcpStream>);

impl Client {
    /// Connects with the certificate of `FILE.pem`, trusts the authority `trusted`, and waits until the server
    /// speaks HTTP/2.
    fn connect(address: &str, place: &Place, file: &str, trusted: &str) -> io::Result<Self> {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(trusted.as_bytes()).unwrap()).unwrap();
        let chain = vec![CertificateDer::from_pem_file(place.path(&format!("{file}.pem"))).unwrap()];
        let key = PrivateKeyDer::from_pem_file(place.path(&format!("{file}.key"))).unwrap();
        let builder = ClientConfig::builder_with_provider(Arc::new(crypto::ring::default_provider()));
        let builder = builder.with_safe_default_protocol_versions().unwrap().with_root_certificates(roots);
        let mut config = builder.with_client_auth_cert(chain, key).unwrap();
        config.alpn_protocols = vec![b"h2".to_vec()];
        let name = ServerName::try_from("localhost").unwrap();
        let connection = ClientConnection::new(Arc::new(config), name).unwrap();
        let stream = TcpStream::connect(address)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        let mut client = Self(StreamOwned::new(connection, stream));
        client.0.write_all(PREFACE)?;
        client.0.read_exact(&mut [0; 9])?;
        Ok(client)
    }

    /// The certificate that it was shown.
    fn shown(&self) -> Vec<u8> {
        self.0.conn.peer_certificates().unwrap()[0].to_vec()
    }

    /// Whether it is answered still.
    fn is_answered(&mut self) -> bool {
        let word = b"stillhere";
        let asked = self.0.write_all(PING).and_then(|()| self.0.write_all(&word[..8]));
        let mut heard = Vec::new();
        let mut byte = [0];
        while asked.is_ok() && self.0.read_exact(&mut byte).is_ok() {
            heard.extend(byte);
            if heard.ends_with(&word[..8]) {
                return true;
            }
        }
        false
    }
}

/// Returns the value of a metric whose labels contain this.
fn figure(metrics: &str, name: &str, label: &str) -> f64 {
    let text = get(metrics, "GET", "/metrics").1;
    let is_it = |line: &&str| line.starts_with(&format!("{name}{{")) && line.contains(label);
    let line = text.lines().find(is_it).unwrap_or_else(|| panic!("there is no {name} {label} in {text}"));
    line.rsplit_once(' ').unwrap().1.parse().unwrap()
}

#[test]
fn certificates_are_replaced_without_a_restart_and_a_broken_file_changes_nothing() {
    let place = Place::new("etcd-api-replaced");
    let authority = Authority::new();
    replace(&place, "ca.pem", &authority.pem);
    for file in ["server", "client"] {
        authority.issue(&place, file, "localhost", NOW);
    }
    let serves = ["--etcd-api", "0", "--etcd-api-certificate", "server.pem", "--etcd-api-key", "server.key"];
    let more = ["--etcd-api-ca", "ca.pem", "--metrics", "0"];
    let node = start(&place, &peers(&["a"]), &strings(&[&serves[..], &more].concat()));
    let address = address(&node);
    let metrics = node.told.wait_for_event("serving")["metrics"].as_str().unwrap().to_owned();
    let connect = || Client::connect(&address, &place, "client", &authority.pem);
    let mut old = connect().unwrap();
    let first = old.shown();

    let whole = fs::read_to_string(place.path("server.pem")).unwrap();
    replace(&place, "server.pem", &whole[..whole.len() / 2]);
    // That is reported also when no client comes.
    let why = node.told.wait_for("a line of the log", |line| {
        let message = line["message"].as_str()?;
        message.contains("that clients are shown was not replaced").then(|| message.to_owned())
    });
    assert!(why.contains("server.pem holds no usable certificate"), "{why}");
    assert_eq!(connect().unwrap().shown(), first);

    authority.issue(&place, "server", "localhost", NOW);
    let second = connect().unwrap().shown();
    assert_ne!(second, first);
    assert_eq!(second[..], *CertificateDer::from_pem_file(place.path("server.pem")).unwrap());
    assert!(old.is_answered(), "a connection stays as it is");

    // The authorities of clients are read anew, too.
    let other = Authority::new();
    other.issue(&place, "other", "localhost", NOW);
    let others = || Client::connect(&address, &place, "other", &authority.pem);
    assert!(others().is_err());
    replace(&place, "ca.pem", &other.pem);
    others().unwrap();
    assert!(connect().is_err(), "its authority counts no more");
    assert!(old.is_answered());

    let replaced = |result| figure(&metrics, "primacy_etcd_api_certificate_replacements_total", result);
    assert_eq!(replaced("used"), 2.0);
    assert!(replaced("refused") >= 1.0);
    let until = figure(&metrics, "primacy_etcd_api_certificate_valid_until_seconds", "node=\"a\"");
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs_f64();
    assert!((until - now - 3600.0).abs() < 120.0, "{until}");

    // The clients of the node have sent no request yet.
    assert_eq!(figure(&metrics, "primacy_etcd_api_requests_total", "method=\"Put\""), 0.0);
    assert_eq!(figure(&metrics, "primacy_etcd_api_held_bytes", "by=\"streams\""), 0.0);

    // The page lists all metrics of an etcd API, and no others.
    let page = include_str!("../../../docs/guide/metrics.md");
    let (_, of_the_api) = page.split_once("## Figures of the etcd API").unwrap();
    let of_the_api = of_the_api.split("\n## ").next().unwrap().lines();
    let documented: BTreeSet<&str> =
        of_the_api.filter_map(|line| line.strip_prefix("| `")?.split('`').next()).collect();
    let text = get(&metrics, "GET", "/metrics").1;
    let described =
        text.lines().filter_map(|line| line.strip_prefix("# TYPE primacy_etcd_api")?.split_once(' '));
    let served: BTreeSet<String> = described
        .map(|(name, kind)| {
            format!("primacy_etcd_api{name}{}", if kind == "counter" { "_total" } else { "" })
        })
        .collect();
    assert_eq!(documented, served.iter().map(String::as_str).collect());
}

#[test]
fn no_node_serves_the_etcd_api_with_a_key_that_others_can_read() {
    let place = Place::new("etcd-api-exposed");
    Authority::new().issue(&place, "server", "localhost", NOW);
    fs::set_permissions(place.path("server.key"), fs::Permissions::from_mode(0o644)).unwrap();
    let serves = ["--etcd-api", "0", "--etcd-api-certificate", "server.pem", "--etcd-api-key", "server.key"];
    let node = ["node", "--election", "e", "--node", "a", "--peers", "a=127.0.0.1:1"];
    let output = place.output(&[&node[..], &serves].concat());
    assert_eq!(output.status.code(), Some(78), "{}", stderr(&output));
    assert!(stderr(&output).contains("chmod 600 server.key"), "{}", stderr(&output));
}

/// Returns the members, as a node reports them to clients.
async fn members(node: &Node) -> Vec<api::Member> {
    let port = address(node).rsplit_once(':').unwrap().1.to_owned();
    let asked = Asked::new(&format!("127.0.0.1:{port}")).await;
    let list = api::MemberListRequest { linearizable: true };
    let answer: api::MemberListResponse = asked.ask(method::MEMBER_LIST, &list).await.unwrap();
    answer.members
}

#[tokio::test(flavor = "multi_thread")]
async fn an_etcd_api_at_all_addresses_tells_one_that_clients_can_reach() {
    let place = Place::new("etcd-api-everywhere");
    let list = peers(&["a"]);
    let node = start(&place, &list, &strings(&["--etcd-api", "0.0.0.0:0", "--insecure-cleartext"]));
    let listens = address(&node);
    let port = listens.strip_prefix("0.0.0.0:").unwrap();
    let told = members(&node).await.remove(0);
    assert_eq!(told.client_urls, [format!("http://127.0.0.1:{port}")]);
    assert_eq!(told.peer_urls, [list.replace("a=", "http://")]);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_advertised_is_told_and_that_nodes_speak_tls() {
    let place = Place::new("etcd-api-advertised");
    let list = peers(&["a"]);
    let authority = Authority::new();
    replace(&place, "ca.pem", &authority.pem);
    authority.issue(&place, "a", "a", NOW);
    let more = strings(&["--etcd-api", "0", "--etcd-api-advertise", "api.example.com:2379"]);
    let node = start(&place, &list, &[more, options(&place, "a")].concat());
    let told = members(&node).await.remove(0);
    assert_eq!(told.client_urls, ["http://api.example.com:2379"]);
    assert_eq!(told.peer_urls, [list.replace("a=", "https://")]);
}

#[test]
fn what_nobody_can_reach_is_not_advertised() {
    let place = Place::new("etcd-api-nowhere");
    let node = ["config", "check", "--election", "e", "--node", "a", "--peers", "a=127.0.0.1:1"];
    let refused = |more: &[&str], why: &str| {
        let output = place.output(&[&node[..], more].concat());
        assert!(!output.status.success() && stderr(&output).contains(why), "{}", stderr(&output));
    };
    refused(&["--etcd-api", "0", "--etcd-api-advertise", "0.0.0.0:2379"], "write a host that clients know");
    refused(&["--etcd-api-advertise", "a.example.com:2379"], "needs --etcd-api ADDR");
}
