//! The promises of `primacy fence proxy`: no stale request reaches the service, and all other requests do, unchanged
//! and in bounded memory.

#![allow(clippy::unwrap_used, reason = "in a test, a panic is the message")]

use std::collections::BTreeSet;
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use http_body_util::{BodyExt as _, Full};
use hyper::body::Bytes;
use primacy_testbed::upstream::{Client, Parts, Upstream, text};
use primacy_testbed::{Node, PATIENCE, Place, get, stderr, strings};
use rustix::process::Signal;
use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::sync::mpsc;

/// A running proxy.
struct Proxy {
    node: Node,
    address: SocketAddr,
}

impl Proxy {
    fn start(place: &Place, upstream: &str, options: &[&str]) -> Self {
        let node = Node::start(place, "proxy", &args(upstream, options));
        let address = listening(&node);
        Self { node, address }
    }

    fn restart(&mut self, place: &Place) {
        self.node.restart(place);
        self.address = listening(&self.node);
    }

    /// Ends it in order, and returns the outcomes of the requests.
    fn end(mut self) -> Value {
        self.node.signal(Signal::TERM);
        assert_eq!(self.node.wait().code(), Some(0), "{}", self.node.history());
        self.node.told.wait_for_event("ended")
    }

    /// The most memory that it has had, in KiB.
    fn peak(&self) -> u64 {
        let pid = self.node.supervisor().as_raw_nonzero();
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
        line.trim().trim_end_matches(" kB").parse().unwrap()
    }
}

fn args(upstream: &str, options: &[&str]) -> Vec<String> {
    let fixed =
        ["fence", "proxy", "--listen", "127.0.0.1:0", "--state", "e.fence", "--election", "e", "--json"];
    let mut args = strings(&fixed);
    args.extend(strings(&["--upstream", upstream]));
    args.extend(strings(options));
    args
}

fn listening(node: &Node) -> SocketAddr {
    node.told.wait_for_event("listening")["address"].as_str().unwrap().parse().unwrap()
}

/// Runs a test, with an end to it.
fn run<T>(test: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async { tokio::time::timeout(4 * PATIENCE, test).await.expect("the test hangs") })
}

/// Waits for an event of other tasks on this runtime.
async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let until = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < until, "{what} did not happen");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

/// Time for what must not happen to happen. On a machine that is too busy for it, a fault may go unseen.
const OVERTAKING_TIME: Duration = Duration::from_millis(300);

/// Long enough for the busiest machine: requests are waited for, and none is revoked.
const PATIENT: [&str; 2] = ["--patience", "10m"];

/// As many leaders, one after the other, each for so many requests of all clients.
const LEADERS: u64 = 25;
const REQUESTS_PER_LEADER: u64 = 400;
const CLIENTS: u64 = 64;

/// The state that all clients share.
#[derive(Default)]
struct Reign {
    sent: AtomicU64,
    /// The highest token that an answer of 200 was received for.
    confirmed: AtomicU64,
    answered: AtomicU64,
    stale: AtomicU64,
}

impl Reign {
    /// The newest leader's token; that of the n-th is 10 n.
    fn newest(&self) -> u64 {
        10 * (1 + self.sent.load(Ordering::SeqCst) / REQUESTS_PER_LEADER).min(LEADERS)
    }
}

async fn client(number: u64, address: SocketAddr, reign: Arc<Reign>) {
    let mut client = Client::connect(address).await;
    let mut own = 10;
    loop {
        let turn = reign.sent.fetch_add(1, Ordering::SeqCst);
        if turn >= LEADERS * REQUESTS_PER_LEADER {
            return;
        }
        // Two of three work for the newest leader; the others write for theirs, long after it was replaced.
        if !number.is_multiple_of(3) || turn.is_multiple_of(97) {
            own = reign.newest();
        }
        let confirmed = reign.confirmed.load(Ordering::SeqCst);
        let (status, body) = client.put("/write", own).await;
        match status {
            200 => {
                assert!(own >= confirmed, "{own} was let in after {confirmed}");
                reign.confirmed.fetch_max(own, Ordering::SeqCst);
                reign.answered.fetch_add(1, Ordering::SeqCst);
            }
            409 => {
                let told: Value = serde_json::from_str(&body).unwrap();
                assert_eq!(
                    (&told["error"], &told["presented"]),
                    (&"stale_fencing_token".into(), &own.into())
                );
                let highest = told["highest"].as_u64().unwrap();
                assert!(own < highest && highest <= reign.newest(), "{own} was refused: {body}");
                reign.stale.fetch_add(1, Ordering::SeqCst);
            }
            other => panic!("{own}: {other} {body}"),
        }
    }
}

#[test]
fn under_load_while_leaders_change_every_stale_request_is_refused_and_no_other() {
    let place = Place::new("proxy-load");
    run(async {
        let upstream = Upstream::start().await;
        let proxy = Proxy::start(&place, &upstream.url(), &PATIENT);
        let reign = Arc::new(Reign::default());
        let began = Instant::now();
        let clients: Vec<_> = (0..CLIENTS)
            .map(|number| tokio::spawn(client(number, proxy.address, Arc::clone(&reign))))
            .collect();
        for client in clients {
            client.await.unwrap();
        }
        let rate = (LEADERS * REQUESTS_PER_LEADER) as f64 / began.elapsed().as_secs_f64();
        let (answered, stale) = (reign.answered.load(Ordering::SeqCst), reign.stale.load(Ordering::SeqCst));
        // Not by a macro: what a test prints is not shown when it passes.
        let _ = writeln!(
            std::io::stderr(),
            "fence proxy: {rate:.0} requests a second, {CLIENTS} clients, {LEADERS} leaders: {answered} answered, {stale} stale"
        );

        let tokens = upstream.tokens();
        let effects = upstream.seen.effects.lock().unwrap().clone();
        for (what, tokens) in [("reached the service", &tokens), ("took effect", &effects)] {
            let late = tokens.windows(2).find(|pair| pair[0] > pair[1]);
            assert_eq!(late, None, "a lower token {what} after a higher one");
        }
        assert_eq!(effects.len(), tokens.len());
        assert_eq!(tokens.len() as u64, answered);
        assert_eq!(answered + stale, LEADERS * REQUESTS_PER_LEADER);
        let mut leaders = tokens;
        leaders.dedup();
        assert_eq!(leaders, (1..=LEADERS).map(|leader| 10 * leader).collect::<Vec<_>>());
        assert!(stale >= LEADERS, "the zombies were few: {stale}");
        let counts = proxy.end();
        assert_eq!((&counts["passed_on"], &counts["stale"]), (&answered.into(), &stale.into()), "{counts}");
        assert_eq!(counts["refused"], 0, "{counts}");
    });
}

#[test]
fn a_killed_proxy_remembers_the_highest_token() {
    let place = Place::new("proxy-killed");
    run(async {
        let upstream = Upstream::start().await;
        let mut proxy = Proxy::start(&place, &upstream.url(), &[]);
        assert_eq!(Client::connect(proxy.address).await.put("/", 9).await.0, 200);
        proxy.node.signal(Signal::KILL);
        proxy.node.wait();
        proxy.restart(&place);
        let mut client = Client::connect(proxy.address).await;
        assert_eq!(client.put("/", 8).await.0, 409);
        assert_eq!(client.put("/", 9).await.0, 200);
        assert_eq!(upstream.tokens(), [9, 9]);
    });
}

#[test]
fn a_newer_request_waits_for_the_answer_to_an_older_one_even_when_its_client_has_gone() {
    let place = Place::new("proxy-race");
    run(async {
        let upstream = Upstream::start().await;
        let proxy = Proxy::start(&place, &upstream.url(), &PATIENT);
        for (gone, token) in [(false, 7), (true, 9)] {
            let mut old = Client::connect(proxy.address).await;
            let old = tokio::spawn(async move { old.put("/wait", token).await });
            until("the old request is at work", || upstream.waits().contains(&format!("began {token}")))
                .await;
            if gone {
                old.abort();
            }
            let mut new = Client::connect(proxy.address).await;
            let new = tokio::spawn(async move { new.put("/", token + 1).await });
            let mut late = Client::connect(proxy.address).await;
            // Refused from the moment on at which the newer one was seen; before that, there is nothing to wait for.
            while late.send("/late", Some(token), Full::from("")).await.unwrap().status() != 409 {
                assert!(!new.is_finished());
            }
            // It is on disk, and would be sent now if it did not wait.
            until("the newer token is on disk", || {
                fs::read_to_string(place.path("e.fence")).unwrap().contains(&format!("token {}\n", token + 1))
            })
            .await;
            tokio::time::sleep(OVERTAKING_TIME).await;
            let sent = upstream.tokens();
            assert!(!sent.contains(&(token + 1)), "{sent:?}");
            upstream.seen.go.notify_one();
            assert_eq!(new.await.unwrap().0, 200);
            assert!(upstream.waits().contains(&format!("ended {token}")), "{:?}", upstream.waits());
            if !gone {
                assert_eq!(old.await.unwrap(), (200, "waited".to_owned()));
            }
        }
        assert!(upstream.tokens().is_sorted(), "{:?}", upstream.tokens());
    });
}

#[test]
fn an_older_request_that_is_not_answered_in_time_is_broken_off_before_the_newer_one_is_sent() {
    let place = Place::new("proxy-patience");
    run(async {
        let upstream = Upstream::start().await;
        let proxy = Proxy::start(&place, &upstream.url(), &["--patience", "50ms"]);
        let mut old = Client::connect(proxy.address).await;
        let old = tokio::spawn(async move { old.put("/wait", 7).await });
        until("the old request is at work", || upstream.waits() == ["began 7"]).await;
        let_in(proxy.address, 8).await;
        let (status, body) = old.await.unwrap();
        assert_eq!(status, 409);
        assert!(body.contains("\"overtaken_fencing_token\",\"presented\":7,\"highest\":8"), "{body}");
        until("the service notices", || upstream.waits() == ["began 7", "dropped 7"]).await;

        // An answer that has begun is cut, and does not look complete.
        let (parts, body) = mpsc::channel(1);
        let mut old: Client<Parts> = Client::connect(proxy.address).await;
        let answer = old.send("/echo", Some(8), Parts(body));
        let (answer, ()) = tokio::join!(answer, async { parts.send(Bytes::from("begun")).await.unwrap() });
        let_in(proxy.address, 9).await;
        assert!(answer.unwrap().into_body().collect().await.is_err());
    });
}

/// Comes again for as long as older requests have not ended, which may take long on a busy machine.
async fn let_in(address: SocketAddr, token: u64) {
    loop {
        let (status, body) = Client::connect(address).await.put("/", token).await;
        if status == 200 {
            return;
        }
        assert_eq!((status, body.contains("\"fence_busy\"")), (503, true), "{body}");
    }
}

#[test]
fn nothing_is_passed_on_while_the_fence_cannot_be_written() {
    let place = Place::new("proxy-disk");
    run(async {
        let upstream = Upstream::start().await;
        let proxy = Proxy::start(&place, &upstream.url(), &[]);
        let mut client = Client::connect(proxy.address).await;
        assert_eq!(client.put("/", 7).await.0, 200);
        fs::rename(place.path("e.fence"), place.path("aside")).unwrap();
        for token in [8, 7] {
            let (status, body) = client.put("/", token).await;
            assert_eq!((status, body.contains("\"fence_unavailable\"")), (503, true), "{body}");
        }
        assert_eq!(upstream.tokens(), [7]);
        fs::rename(place.path("aside"), place.path("e.fence")).unwrap();
        assert_eq!(client.put("/", 8).await.0, 200);
        assert_eq!(client.put("/", 7).await.0, 409);
    });
}

#[test]
fn what_is_no_token_is_refused_and_nothing_of_it_reaches_the_service() {
    let place = Place::new("proxy-malformed");
    run(async {
        let upstream = Upstream::start().await;
        let proxy = Proxy::start(&place, &upstream.url(), &[]);
        for header in [
            "",
            "Fencing-Token:\r\n",
            "Fencing-Token: x\r\n",
            "Fencing-Token: -1\r\n",
            "Fencing-Token: 1\r\nFencing-Token: 2\r\n",
            "Fencing-Token: 18446744073709551616\r\n",
        ] {
            for method in ["GET", "PUT"] {
                let answer = raw(
                    proxy.address,
                    &format!("{method} / HTTP/1.1\r\nHost: a\r\n{header}Connection: close\r\n\r\n"),
                );
                assert!(
                    answer.starts_with("HTTP/1.1 400 ") && answer.contains("Fencing-Token: 42"),
                    "{answer}"
                );
            }
        }
        let head =
            format!("GET / HTTP/1.1\r\nHost: a\r\nFencing-Token: 7\r\nX: {}\r\n\r\n", "x".repeat(40_000));
        assert!(raw(proxy.address, &head).starts_with("HTTP/1.1 431 "));
        let connect = "CONNECT a:1 HTTP/1.1\r\nHost: a:1\r\nFencing-Token: 7\r\nConnection: close\r\n\r\n";
        let answer = raw(proxy.address, connect);
        assert!(answer.starts_with("HTTP/1.1 501 ") && answer.contains("not_supported"), "{answer}");
        for (odd, answered) in [
            ("Host: a\r\nHost: b\r\n", ("HTTP/1.1 400 ", "malformed_host")),
            ("", ("HTTP/1.1 400 ", "malformed_host")),
            ("Host: a\r\nTransfer-Encoding: gzip, chunked\r\n", ("HTTP/1.1 501 ", "not_supported")),
        ] {
            let head = "Fencing-Token: 7\r\nConnection: close\r\n";
            let answer = raw(proxy.address, &format!("PUT / HTTP/1.1\r\n{odd}{head}\r\n0\r\n\r\n"));
            assert!(answer.starts_with(answered.0) && answer.contains(answered.1), "{odd}: {answer}");
        }
        assert!(raw(proxy.address, "\0\x01\x02 nonsense\r\n\r\n").starts_with("HTTP/1.1 400 "));
        assert!(upstream.tokens().is_empty());
    });
}

#[test]
fn an_offer_to_upgrade_is_not_passed_on_and_the_request_is() {
    let place = Place::new("proxy-upgrade");
    run(async {
        let upstream = Upstream::start().await;
        let proxy = Proxy::start(&place, &upstream.url(), &[]);
        // As curl --http2 and Java's HttpClient ask.
        for offer in ["Upgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n", "Upgrade: websocket\r\n"] {
            let request = format!(
                "PUT /headers HTTP/1.1\r\nHost: a\r\nFencing-Token: 7\r\nContent-Length: 0\r\n{offer}\
                 Connection: Upgrade, HTTP2-Settings, close\r\n\r\n"
            );
            let answer = tokio::task::spawn_blocking(move || raw(proxy.address, &request)).await.unwrap();
            assert!(answer.starts_with("HTTP/1.1 200 ") && answer.contains("fencing-token"), "{answer}");
            assert!(!answer.contains("upgrade") && !answer.contains("http2-settings"), "{answer}");
        }
    });
}

#[test]
fn what_was_not_sent_of_a_broken_off_request_is_never_sent() {
    let place = Place::new("proxy-unsent");
    run(async {
        let service = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", service.local_addr().unwrap());
        let proxy = Proxy::start(&place, &url, &["--patience", "50ms"]);
        let mut old: Client<Parts> = Client::connect(proxy.address).await;
        let (parts, body) = mpsc::channel(1);
        let old = tokio::spawn(async move { old.send("/", Some(7), Parts(body)).await });
        let (mut slow, _) = service.accept().await.unwrap();
        // The service reads nothing, so that all buffers on the way are full.
        let part = Bytes::from(vec![b'x'; 256 * 1024]);
        let second = Duration::from_secs(1);
        while let Ok(sent) = tokio::time::timeout(second, parts.send(part.clone())).await {
            sent.unwrap();
        }
        let newer = tokio::spawn(async move { let_in(proxy.address, 8).await });
        let (mut prompt, _) = service.accept().await.unwrap();
        let mut buffer = vec![0; 1 << 20];
        assert_ne!(prompt.read(&mut buffer).await.unwrap(), 0);
        // The newer request is there. From now on, nothing may be added to what the older one has brought.
        let there = rustix::io::ioctl_fionread(&slow).unwrap();
        let mut read = 0;
        let end = loop {
            match slow.read(&mut buffer).await {
                Ok(0) => break None,
                Ok(length) => read += length as u64,
                Err(error) => break Some(error.kind()),
            }
        };
        assert_eq!((read, end), (there, Some(std::io::ErrorKind::ConnectionReset)));
        prompt.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").await.unwrap();
        newer.await.unwrap();
        // Its answer may be cut off, since it is refused while it still sends.
        old.abort();
    });
}

#[test]
fn an_idle_connection_to_the_service_is_closed_in_order() {
    let place = Place::new("proxy-idle");
    run(async {
        let service = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", service.local_addr().unwrap());
        let proxy = Proxy::start(&place, &url, &[]);
        let mut client = Client::connect(proxy.address).await;
        let client = tokio::spawn(async move { client.put("/", 7).await });
        let (mut kept, _) = service.accept().await.unwrap();
        let mut head = vec![0; 4096];
        assert_ne!(kept.read(&mut head).await.unwrap(), 0);
        kept.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").await.unwrap();
        assert_eq!(client.await.unwrap().0, 200);
        proxy.end();
        while kept.read(&mut head).await.expect("an end, and no broken connection") != 0 {}
    });
}

#[test]
fn figures_count_each_outcome() {
    let place = Place::new("proxy-metrics");
    run(async {
        let upstream = Upstream::start().await;
        let proxy = Proxy::start(&place, &upstream.url(), &["--metrics", "0"]);
        let address = proxy.node.told.wait_for_event("listening")["metrics"].as_str().unwrap().to_owned();
        let figures = |path: &'static str| {
            let address = address.clone();
            tokio::task::spawn_blocking(move || get(&address, "GET", path))
        };
        let mut client = Client::connect(proxy.address).await;
        for (token, status) in [(8, 200), (7, 409), (8, 200)] {
            assert_eq!(client.put("/", token).await.0, status);
        }
        assert_eq!(client.send("/", None, Full::from("")).await.unwrap().status(), 400);
        assert_eq!(client.put("/upgrade", 8).await.0, 502);

        let (head, text) = figures("/metrics").await.unwrap();
        assert!(head.starts_with("HTTP/1.1 200 ") && text.ends_with("# EOF\n"), "{head}\n{text}");
        let value = |series: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
            line.unwrap_or_else(|| panic!("{series} is not in\n{text}")).parse::<u64>().unwrap()
        };
        let of =
            |outcome: &str| value(&format!("primacy_fence_proxy_requests_total{{outcome=\"{outcome}\"}}"));
        assert_eq!(of("passed_on"), 2);
        assert_eq!(of("stale_fencing_token"), 1);
        assert_eq!(value("primacy_stale_writes_refused_total"), 1);
        assert_eq!(of("missing_fencing_token"), 1);
        assert_eq!(of("upstream_failed"), 1);
        assert_eq!(of("fence_busy"), 0);
        assert_eq!(of("malformed_body"), 0);

        // The page has all of them, and no other.
        let page = include_str!("../../../docs/guide/metrics.md");
        let (_, of_proxies) = page.split_once("## Figures of a fence proxy").unwrap();
        let (of_proxies, _) = of_proxies.split_once("\n## ").unwrap();
        let documented: BTreeSet<&str> =
            of_proxies.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next()).collect();
        let served: BTreeSet<&str> = text
            .lines()
            .filter(|line| !line.starts_with('#'))
            .map(|line| line.split(['{', ' ']).next().unwrap())
            .collect();
        assert_eq!(documented, served);
        let outcomes = text.lines().filter_map(|line| line.split("outcome=\"").nth(1)?.split('"').next());
        for outcome in outcomes {
            assert!(of_proxies.contains(&format!("`{outcome}`")), "{outcome} is not on the page");
        }
        assert!(figures("/leader").await.unwrap().0.starts_with("HTTP/1.1 404 "));
    });
}

/// Sends bytes as they are, and reads until the other end closes.
fn raw(address: SocketAddr, request: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    // The proxy may have answered and closed before all of it was sent.
    let _ = stream.write_all(request.as_bytes());
    let mut answer = Vec::new();
    let mut part = [0; 4096];
    loop {
        match stream.read(&mut part) {
            Ok(0) => break,
            Ok(length) => answer.extend(&part[..length]),
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => break,
            Err(error) => panic!("{error}: {}", String::from_utf8_lossy(&answer)),
        }
    }
    String::from_utf8(answer).unwrap()
}

#[test]
fn reads_without_a_token_are_passed_on_where_that_was_asked_for() {
    let place = Place::new("proxy-reads");
    run(async {
        let upstream = Upstream::start().await;
        let proxy = Proxy::start(&place, &upstream.url(), &["--read-only-without-token"]);
        let request = |head: &str| {
            let text = format!("{head} HTTP/1.1\r\nHost: named.example\r\nConnection: close\r\n\r\n");
            tokio::task::spawn_blocking(move || raw(proxy.address, &text))
        };
        let answer = request("GET /a?b").await.unwrap();
        assert!(answer.starts_with("HTTP/1.1 200 ") && answer.ends_with("/a \"named.example\""), "{answer}");
        let answer = request("HEAD /a").await.unwrap().to_lowercase();
        assert!(answer.starts_with("http/1.1 200 ") && answer.contains("content-length: 18\r\n"), "{answer}");
        assert!(request("PUT /a").await.unwrap().starts_with("HTTP/1.1 400 "));
        assert_eq!(upstream.tokens(), [0, 0]);
    });
}

#[test]
fn connections_are_kept_on_both_sides() {
    let place = Place::new("proxy-keep-alive");
    run(async {
        let upstream = Upstream::start().await;
        let proxy = Proxy::start(&place, &upstream.url(), &[]);
        let mut client = Client::connect(proxy.address).await;
        for token in 1..=50 {
            assert_eq!(client.put("/echo", token).await, (200, "body".to_owned()));
        }
        assert_eq!(upstream.seen.connections.load(Ordering::SeqCst), 1);
    });
}

/// Of the bodies that are streamed.
const STREAMED: usize = 128 * 1024 * 1024;

#[test]
fn large_bodies_are_streamed_both_ways_in_bounded_memory() {
    let place = Place::new("proxy-large");
    run(async {
        let upstream = Upstream::start().await;
        let proxy = Proxy::start(&place, &upstream.url(), &[]);
        let mut client: Client<Parts> = Client::connect(proxy.address).await;
        let part = Bytes::from(vec![b'x'; 256 * 1024]);
        let (parts, body) = mpsc::channel(1);
        let feeding = tokio::spawn(async move {
            for _ in 0..STREAMED / part.len() {
                parts.send(part.clone()).await.unwrap();
            }
        });
        let mut answer = client.send("/echo", Some(7), Parts(body)).await.unwrap().into_body();
        let mut received = 0;
        while let Some(frame) = answer.frame().await {
            received += frame.unwrap().into_data().unwrap().len();
        }
        feeding.await.unwrap();
        assert_eq!(received, STREAMED);
        let peak = proxy.peak();
        println!("{} MiB there and back: {peak} KiB of memory at most", STREAMED >> 20);
        assert!(peak < 64 * 1024, "{peak} KiB");

        // A client that does not read stops the service, and not the proxy's memory.
        let (parts, body) = mpsc::channel(1);
        let mut deaf: Client<Parts> = Client::connect(proxy.address).await;
        let answer = tokio::spawn(async move { (deaf.send("/echo", Some(7), Parts(body)).await, deaf) });
        let part = Bytes::from(vec![b'x'; 256 * 1024]);
        let second = Duration::from_secs(1);
        while let Ok(sent) = tokio::time::timeout(second, parts.send(part.clone())).await {
            sent.unwrap();
        }
        assert!(proxy.peak() < 64 * 1024, "{} KiB", proxy.peak());
        assert_eq!(Client::connect(proxy.address).await.put("/echo", 7).await.0, 200);
        drop(answer);
    });
}

#[test]
fn what_goes_wrong_with_the_service_is_told_to_the_client() {
    let place = Place::new("proxy-upstream");
    run(async {
        let upstream = Upstream::start().await;
        let proxy = Proxy::start(&place, &upstream.url(), &["--idle-timeout", "1s"]);
        let mut client = Client::connect(proxy.address).await;
        let (status, body) = client.put("/wait", 7).await;
        assert_eq!((status, body.contains("\"upstream_timeout\"")), (504, true), "{body}");

        let (status, body) = Client::connect(proxy.address).await.put("/upgrade", 7).await;
        assert_eq!((status, body.contains("\"upstream_failed\"")), (502, true), "{body}");

        let (status, body) = Client::connect(proxy.address).await.put("/coded", 7).await;
        assert_eq!((status, body.contains("transfer coding")), (502, true), "{body}");

        // It announces a longer body than it sends.
        let mut cut: Client = Client::connect(proxy.address).await;
        let answer = cut.send("/cut", Some(7), Full::from("")).await.unwrap();
        assert_eq!(answer.headers()["content-length"], "1000");
        upstream.seen.go.notify_one();
        assert!(answer.into_body().collect().await.is_err());

        drop(upstream);
        let mut client: Client = Client::connect(proxy.address).await;
        let answer = client.send("/", Some(7), Full::from("")).await.unwrap();
        let (status, body) = text(answer).await;
        assert_eq!(status, 502, "{body}");
        // The mark is above the service's own fate.
        let answer = client.send("/", Some(9), Full::from("")).await.unwrap();
        assert_eq!(answer.status(), 502);
        let answer = text(client.send("/", Some(8), Full::from("")).await.unwrap()).await;
        assert_eq!(answer.0, 409);
    });
}

/// Returns the number of lines of the log with this text, and the number that they report as held back.
fn logged(proxy: &Proxy, text: &str) -> (usize, u64) {
    let told = proxy.node.told.all();
    let lines: Vec<Value> = told.iter().filter_map(|line| serde_json::from_str(line).ok()).collect();
    let of_it = lines.iter().filter(|line| line["message"].as_str().is_some_and(|it| it.contains(text)));
    let held_back = of_it.map(|line| line["held_back"].as_u64().unwrap()).collect::<Vec<_>>();
    (held_back.len(), held_back.iter().sum())
}

#[test]
fn what_a_client_does_wrong_is_not_the_services_fault_and_no_request_writes_to_the_log_without_a_bound() {
    const REQUESTS: usize = 200;
    /// Seconds from one line about a cause to the next one.
    const PAUSE: u64 = 10;
    let place = Place::new("proxy-log");
    run(async {
        let upstream = Upstream::start().await;
        let proxy = Proxy::start(&place, &upstream.url(), &["--idle-timeout", "1s"]);
        let (address, began) = (proxy.address, Instant::now());
        let asked = |rest: &'static str| {
            let head = "POST /size HTTP/1.1\r\nHost: x\r\nFencing-Token: 7\r\n";
            tokio::task::spawn_blocking(move || raw(address, &format!("{head}{rest}")))
        };
        for _ in 0..REQUESTS {
            let answer = asked("Transfer-Encoding: chunked\r\n\r\nZZ\r\n").await.unwrap();
            assert!(answer.starts_with("HTTP/1.1 400 ") && answer.contains("\"malformed_body\""), "{answer}");
        }
        let answer = asked("Content-Length: 10\r\n\r\nabc").await.unwrap();
        assert!(answer.starts_with("HTTP/1.1 408 ") && answer.contains("\"client_timeout\""), "{answer}");
        assert_eq!(logged(&proxy, "the upstream").0, 0, "{}", proxy.node.history());

        drop(upstream);
        for _ in 0..REQUESTS {
            let answer = asked("Content-Length: 0\r\nConnection: close\r\n\r\n").await.unwrap();
            assert!(answer.starts_with("HTTP/1.1 502 "), "{answer}");
        }
        until("the first line", || logged(&proxy, "the upstream").0 > 0).await;
        let (lines, held_back) = logged(&proxy, "the upstream");
        let pauses = usize::try_from(began.elapsed().as_secs() / PAUSE).unwrap();
        // Of two causes: it gave no answer, and it cannot be reached.
        assert!(lines <= 2 * (1 + pauses), "{lines} lines, {held_back} held back\n{}", proxy.node.history());
    });
}

#[test]
fn clients_beyond_the_limit_wait_and_silent_ones_are_closed() {
    let place = Place::new("proxy-limit");
    run(async {
        let upstream = Upstream::start().await;
        let proxy = Proxy::start(&place, &upstream.url(), &["--max-connections", "2"]);
        // One sends nothing, and one never ends its head.
        let silent = TcpStream::connect(proxy.address).unwrap();
        let mut slow = TcpStream::connect(proxy.address).unwrap();
        slow.write_all(b"PUT / HTTP/1.1\r\nFenc").unwrap();
        let mut third = Client::connect(proxy.address).await;
        // It is served when the others have had their time.
        assert_eq!(third.put("/", 7).await.0, 200);
        for mut stream in [silent, slow] {
            stream.set_read_timeout(Some(PATIENCE)).unwrap();
            let mut rest = Vec::new();
            stream.read_to_end(&mut rest).unwrap();
            assert!(!String::from_utf8_lossy(&rest).contains("200"), "{rest:?}");
        }
    });
}

/// `stores/loris.py` of the review: a client that opens more connections than there are places, and sends
/// nothing, kept the leader out.
#[test]
fn a_client_that_speaks_takes_the_place_of_one_that_says_nothing() {
    let place = Place::new("proxy-silent");
    run(async {
        let upstream = Upstream::start().await;
        let proxy = Proxy::start(&place, &upstream.url(), &["--max-connections", "2"]);
        // One after the other, they would have their ten seconds each before the last one is accepted.
        let silent: Vec<TcpStream> = (0..40).map(|_| TcpStream::connect(proxy.address).unwrap()).collect();
        assert_eq!(Client::connect(proxy.address).await.put("/", 7).await.0, 200);
        drop(silent);
    });
}

#[test]
fn sigterm_lets_requests_end_and_takes_no_new_ones() {
    let place = Place::new("proxy-drain");
    run(async {
        let upstream = Upstream::start().await;
        let mut proxy = Proxy::start(&place, &upstream.url(), &["--drain", "10m"]);
        let idle: Client = Client::connect(proxy.address).await;
        let mut client = Client::connect(proxy.address).await;
        let answer = tokio::spawn(async move { client.put("/wait", 7).await });
        until("the request is at work", || upstream.waits() == ["began 7"]).await;
        proxy.node.signal(Signal::TERM);
        until("it listens no more", || TcpStream::connect(proxy.address).is_err()).await;
        upstream.seen.go.notify_one();
        assert_eq!(answer.await.unwrap(), (200, "waited".to_owned()));
        assert_eq!(proxy.node.wait().code(), Some(0), "{}", proxy.node.history());
        drop(idle);

        // A second signal does not wait.
        proxy.restart(&place);
        let mut client = Client::connect(proxy.address).await;
        let answer = tokio::spawn(async move { client.send("/wait", Some(7), Full::from("")).await });
        until("the request is at work", || upstream.waits().last().unwrap() == "began 7").await;
        proxy.node.signal(Signal::TERM);
        proxy.node.told.wait_for_event("draining");
        proxy.node.signal(Signal::TERM);
        assert_eq!(proxy.node.wait().code(), Some(0));
        assert!(answer.await.unwrap().is_err());
    });
}

#[test]
fn what_is_wrong_at_the_start_is_said() {
    let place = Place::new("proxy-wrong");
    run(async {
        let upstream = Upstream::start().await;
        let proxy = Proxy::start(&place, &upstream.url(), &[]);
        let fails = |options: &[(&str, &str)], code: i32, told: &str| {
            let mut args = args(&upstream.url(), &[]);
            for (option, value) in options {
                let at = args.iter().position(|arg| arg == option).unwrap();
                args[at + 1] = (*value).to_owned();
            }
            let output = place.output(&args);
            assert_eq!(output.status.code(), Some(code), "{}", stderr(&output));
            // All of it is JSON, the last line too.
            let last: Value = serde_json::from_str(stderr(&output).lines().last().unwrap()).unwrap();
            assert_eq!((&last["event"], &last["exit_code"]), (&"failed".into(), &code.into()), "{last}");
            assert!(last["reason"].as_str().unwrap().contains(told), "{last}");
        };
        let taken = proxy.address.to_string();
        fails(&[("--listen", &taken)], 69, &format!("the address {taken} is in use"));
        fails(&[], 73, "is held by another process");
        fails(&[("--state", "e.fence"), ("--listen", "0.0.0.0:0")], 64, "--insecure-cleartext");
        fails(&[("--upstream", "http://192.0.2.1:80")], 64, "--insecure-cleartext");
        fails(&[("--upstream", "https://127.0.0.1")], 64, "http://host:port");
        fails(&[("--listen", "nonsense")], 64, "127.0.0.1:8080");
        fs::write(place.path("foreign"), "something else\n").unwrap();
        fails(&[("--state", "foreign")], 74, "is not a whole fence of Primacy");
        assert_eq!(fs::read_to_string(place.path("foreign")).unwrap(), "something else\n");
        proxy.end();
        fails(&[("--election", "other")], 74, "is the fence of the election \"e\"");
    });
}
