//! Memory that clients can make a node allocate: each attack leaves the memory of the real process within a bound, and
//! other clients are still answered.

#![cfg(feature = "etcd")]
#![allow(clippy::unwrap_used, reason = "in a test, a panic is the message")]

use std::collections::VecDeque;
use std::convert::Infallible;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use http_body_util::BodyExt as _;
use hyper::body::{Body, Bytes, Frame, Incoming};
use hyper::client::conn::http2::{self, SendRequest};
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use primacy_stores::etcd::api::{self, method};
use primacy_testbed::etcd_api::Asked;
use primacy_testbed::{Node, PATIENCE, Place, peers, strings};
use prost::Message;
use serde_json::Value;
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;
use tonic::Code;

const MIB: u64 = 1 << 20;

/// Returns a message with its gRPC prefix.
fn prefixed(message: &[u8]) -> Vec<u8> {
    let length = u32::try_from(message.len()).unwrap();
    [&[0], &length.to_be_bytes()[..], message].concat()
}

/// A body of which some frames are sent, and then nothing more comes, and no end.
struct Unfinished(VecDeque<Bytes>);

impl Body for Unfinished {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.0.pop_front().map_or(Poll::Pending, |bytes| Poll::Ready(Some(Ok(Frame::data(bytes)))))
    }
}

/// A connection that asks as it likes.
struct Attacker(SendRequest<Unfinished>);

impl Attacker {
    /// Of each answer, so many bytes are taken before it is read.
    async fn connect(address: &str, window: u32) -> Self {
        let stream = TokioIo::new(TcpStream::connect(address).await.unwrap());
        let mut client = http2::Builder::new(TokioExecutor::new());
        client.initial_stream_window_size(window);
        let (attacker, connection) = client.handshake(stream).await.unwrap();
        tokio::spawn(connection);
        Self(attacker)
    }

    /// Begins a request that does not end, and returns its outcome.
    fn begin(
        &self,
        path: &str,
        body: Vec<u8>,
    ) -> impl Future<Output = hyper::Result<Response<Incoming>>> + use<> {
        self.begin_with(path, VecDeque::from([body.into()]))
    }

    /// The same with a body of these frames.
    fn begin_with(
        &self,
        path: &str,
        frames: VecDeque<Bytes>,
    ) -> impl Future<Output = hyper::Result<Response<Incoming>>> + use<> {
        let request = Request::post(format!("http://x{path}"))
            .header("content-type", "application/grpc")
            .header("te", "trailers")
            .body(Unfinished(frames))
            .unwrap();
        let mut attacker = self.0.clone();
        async move {
            attacker.ready().await?;
            attacker.send_request(request).await
        }
    }
}

/// A frame of HTTP/2 as it is sent.
fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const CONTINUATION: u8 = 9;
const END_HEADERS: u8 = 4;

/// The head of a request: `POST`, `http`, and a path of Primacy's, in HPACK without a table.
fn request_head() -> Vec<u8> {
    let path = method::STATUS.as_bytes();
    let literal = |name: &[u8], value: &[u8]| {
        let length = |bytes: &[u8]| u8::try_from(bytes.len()).unwrap();
        [&[0, length(name)], name, &[length(value)], value].concat()
    };
    let length = u8::try_from(path.len()).unwrap();
    [&[0x83, 0x86, 0x04, length], path, &literal(b"content-type", b"application/grpc")].concat()
}

/// The first bytes of a connection.
fn start_of_connection() -> Vec<u8> {
    [&b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"[..], &frame(SETTINGS, 0, 0, &[])].concat()
}

/// Sends frames, and reads nothing, until all are sent, the node closes the connection, or it takes no more.
async fn flood(address: &str, frames: impl Iterator<Item = Vec<u8>>) {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(&start_of_connection()).await.unwrap();
    for frame in frames {
        let sent = tokio::time::timeout(Duration::from_secs(1), stream.write_all(&frame)).await;
        if !matches!(sent, Ok(Ok(()))) {
            return;
        }
    }
}

/// A node that answers clients.
struct Served {
    _place: Place,
    node: Node,
    address: String,
}

impl Served {
    fn start(test: &str, users: bool) -> Self {
        Self::start_within(test, &[], users)
    }

    fn start_within(test: &str, within: &[&str], users: bool) -> Self {
        let place = Place::new(test);
        let mut args = strings(&["node", "--json", "--election", "e", "--node", "a", "--etcd-api", "0"]);
        args.extend(strings(&["--peers", &peers(&["a"]), "--state-dir", "a"]));
        if users {
            fs::write(place.path("users"), "u:right\n").unwrap();
            fs::set_permissions(place.path("users"), fs::Permissions::from_mode(0o600)).unwrap();
            args.extend(strings(&["--etcd-api-users", "users"]));
        }
        let node = Node::start_within(&place, &strings(within), "a", &args);
        let address = node.told.wait_for_event("serving_clients")["address"].as_str().unwrap().to_owned();
        Self { _place: place, node, address }
    }

    async fn ask(&self) -> Asked {
        Asked::new(&self.address).await
    }

    /// Returns the memory that it has now, and its peak.
    fn memory(&self) -> (u64, u64) {
        let pid = self.node.supervisor().as_raw_nonzero();
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        let of = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
            line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024
        };
        (of("VmRSS:"), of("VmHWM:"))
    }

    fn grew_by_less_than(&self, before: u64, bound: u64) {
        let most = self.memory().1;
        assert!(most < before + bound, "from {} MiB to {} MiB", before / MIB, most / MIB);
    }
}

async fn log_in(asked: &Asked, password: &str) -> Result<api::AuthenticateResponse, (Code, String)> {
    log_in_as(asked, "u", password).await
}

async fn log_in_as(
    asked: &Asked,
    name: &str,
    password: &str,
) -> Result<api::AuthenticateResponse, (Code, String)> {
    let login = api::AuthenticateRequest { name: name.into(), password: password.into() };
    asked.ask(method::AUTHENTICATE, &login).await
}

/// `stores/unauth_mem.py` of the review: 800 messages of which all but the last byte came took 1.5 GB.
#[tokio::test(flavor = "multi_thread")]
async fn unfinished_messages_without_a_token_take_no_memory() {
    let served = Served::start("budget-unfinished", true);
    let asked = served.ask().await;
    log_in(&asked, "right").await.unwrap();
    let before = served.memory().0;
    let mut message = prefixed(&vec![b'x'; 1_900_000]);
    message.pop();
    let mut ended = tokio::task::JoinSet::new();
    for path in [method::AUTHENTICATE, method::WATCH, method::PUT] {
        let attacker = Attacker::connect(&served.address, 1 << 16).await;
        for _ in 0..250 {
            ended.spawn(attacker.begin(path, message.clone()));
        }
    }
    // All are refused, or their connection is closed: none is held.
    let refused = tokio::time::timeout(PATIENCE, async { while ended.join_next().await.is_some() {} });
    refused.await.expect("every request is ended");
    served.grew_by_less_than(before, 64 * MIB);
    log_in(&asked, "right").await.unwrap();
}

/// `stores/brute.py` of the review: 27,200 passwords in five seconds.
#[tokio::test(flavor = "multi_thread")]
async fn passwords_are_tried_a_few_at_a_time() {
    let served = Served::start("budget-guesses", true);
    let mut asked = served.ask().await;
    let (mut tried, mut throttled) = (0, 0);
    let began = std::time::Instant::now();
    for guess in 0..500 {
        // A connection that only guesses is closed at some time.
        if guess % 50 == 0 {
            asked = served.ask().await;
        }
        // Half of them are at one name, the others at another name each.
        let name = if guess % 2 == 0 { "u".to_owned() } else { format!("u{guess}") };
        match log_in_as(&asked, &name, &format!("guess{guess}")).await.unwrap_err() {
            (Code::InvalidArgument, _) => tried += 1,
            (Code::ResourceExhausted, _) => throttled += 1,
            other => panic!("{other:?}"),
        }
    }
    let most = 10 + 1 + began.elapsed().as_secs() / 2;
    assert!(tried <= most && tried >= 10 && throttled > 0, "{tried} were tried and {throttled} not");
    // The client with the right password is let in when a try has come back.
    let let_in = async {
        while log_in(&asked, "right").await.is_err() {
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    };
    tokio::time::timeout(PATIENCE, let_in).await.expect("the right password is accepted");
}

/// A client of etcd in Go goes on to log in as a user that was removed, and so refused the right passwords of its whole address.
#[tokio::test(flavor = "multi_thread")]
async fn logins_of_a_removed_user_keep_no_other_user_out() {
    let served = Served::start("budget-removed", true);
    for _ in 0..4 {
        let asked = served.ask().await;
        for _ in 0..20 {
            let (code, why) = log_in_as(&asked, "removed\n", "as before").await.unwrap_err();
            assert_eq!(code, Code::InvalidArgument, "{why}");
        }
        log_in(&asked, "right").await.unwrap();
    }
    let is_failure =
        |line: &Value| (line["event"] == "log" && line["user"] == "removed\n").then(|| line.clone());
    let told = served.node.told.wait_for("a line about the user", is_failure);
    assert_eq!(told["address"], "127.0.0.1", "{told}");
    // A client that has logged in before is not kept out by guesses at other names either.
    let asked = served.ask().await;
    for guess in 0..40 {
        log_in_as(&asked, &format!("u{guess}"), "guess").await.unwrap_err();
    }
    log_in(&asked, "right").await.unwrap();
}

/// `stores/grow.py` of the review: 300 answers of 4 MB that are not read took 1.2 GB.
#[tokio::test(flavor = "multi_thread")]
async fn answers_that_are_not_read_are_bounded() {
    let served = Served::start("budget-unread", false);
    let asked = served.ask().await;
    for key in 0..4 {
        let put = api::PutRequest { key: vec![key], value: vec![b'x'; 1_000_000], ..Default::default() };
        let _: api::PutResponse = asked.ask(method::PUT, &put).await.unwrap();
    }
    let before = served.memory().0;
    let all = api::RangeRequest { key: vec![0], range_end: vec![0], ..Default::default() };
    // With a window of one byte the answer is begun, and not read.
    for window in [0, 1] {
        let attacker = Attacker::connect(&served.address, window).await;
        let mut answers = tokio::task::JoinSet::new();
        for _ in 0..300 {
            let answer = attacker.begin(method::RANGE, prefixed(&all.encode_to_vec()));
            answers.spawn(async {
                if let Ok(answer) = answer.await {
                    // It is neither read nor dropped.
                    let () = std::future::pending().await;
                    drop(answer);
                }
            });
        }
        // Others are answered meanwhile, with small answers.
        for _ in 0..20 {
            let one = api::RangeRequest { key: b"none".to_vec(), ..Default::default() };
            let _: api::RangeResponse = asked.ask(method::RANGE, &one).await.unwrap();
        }
    }
    served.grew_by_less_than(before, 200 * MIB);
}

/// Fragments of one version of 60 MB, for 40 streams that read nothing, took 2.4 GB.
#[tokio::test(flavor = "multi_thread")]
async fn fragments_are_made_as_they_are_read() {
    let served = Served::start("budget-fragments", false);
    let asked = served.ask().await;
    for key in 0..30 {
        let put = api::PutRequest { key: vec![key], value: vec![b'x'; 1_000_000], ..Default::default() };
        let _: api::PutResponse = asked.ask(method::PUT, &put).await.unwrap();
    }
    let create = api::WatchCreateRequest {
        key: vec![0],
        range_end: vec![0],
        prev_kv: true,
        fragment: true,
        ..Default::default()
    };
    let wish =
        api::WatchRequest { request_union: Some(api::RequestUnion::CreateRequest(create)) }.encode_to_vec();
    // The window has room for the first answer, which says that the watcher is there.
    let attacker = Attacker::connect(&served.address, 100).await;
    let mut streams = Vec::new();
    for _ in 0..20 {
        let mut stream = attacker.begin(method::WATCH, prefixed(&wish)).await.unwrap();
        stream.body_mut().frame().await.unwrap().unwrap();
        streams.push(stream);
    }
    let before = served.memory().0;
    let all = api::DeleteRangeRequest { key: vec![0], range_end: vec![0], ..Default::default() };
    let _: api::DeleteRangeResponse = asked.ask(method::DELETE_RANGE, &all).await.unwrap();
    for _ in 0..20 {
        let none = api::RangeRequest { key: b"none".to_vec(), ..Default::default() };
        let _: api::RangeResponse = asked.ask(method::RANGE, &none).await.unwrap();
    }
    served.grew_by_less_than(before, 200 * MIB);
}

/// The other half of `stores/grow.py`: 200 watchers whose keys have 1.9 MB each.
#[tokio::test(flavor = "multi_thread")]
async fn the_keys_of_watchers_are_counted() {
    let served = Served::start("budget-watchers", false);
    let asked = served.ask().await;
    let create = |key: Vec<u8>| {
        api::RequestUnion::CreateRequest(api::WatchCreateRequest { key, ..Default::default() })
    };
    let before = served.memory().0;
    let mut watches = asked.watches(create(b"short".to_vec())).await;
    assert!(!watches.answer().await.unwrap().canceled);
    let (mut refused, mut kept, mut kept_most) = (0, 0, 0);
    let mut held = Vec::new();
    for number in 0..200 {
        watches.wish(create([format!("k{number:05}").as_bytes(), &[b'y'; 1_900_000]].concat())).await;
        match watches.answer().await {
            Ok(answer) if answer.canceled => refused += 1,
            Ok(_) => {
                kept += 1;
                kept_most = kept_most.max(kept);
            }
            // What its service had not taken yet did not fit beside the watchers either: the stream ends, and its watchers with it.
            Err(status) => {
                assert_eq!(status.code(), Code::ResourceExhausted);
                refused += 1;
                kept = 0;
                held.push(std::mem::replace(&mut watches, asked.watches(create(b"short".to_vec())).await));
                assert!(!watches.answer().await.unwrap().canceled);
            }
        }
    }
    // Twice the key of each counts, within 64 MiB of one connection.
    assert!(kept_most <= 64 * MIB / 3_800_000 + 1, "{kept_most} watchers were kept at once");
    assert!(refused > 100, "{refused} were refused");
    served.grew_by_less_than(before, 160 * MIB);
}

/// Frames that cost a server more than a client: heads without an end, requests that are reset at once, and what is to be acknowledged.
#[tokio::test(flavor = "multi_thread")]
async fn floods_of_frames_take_no_memory() {
    const FRAMES: u32 = 100_000;
    let served = Served::start("budget-frames", true);
    let asked = served.ask().await;
    let before = served.memory().0;
    let long = vec![b'x'; 16 << 10];
    let endless = std::iter::once(frame(HEADERS, 0, 1, &request_head()))
        .chain((0..FRAMES / 10).map(|_| frame(CONTINUATION, 0, 1, &long)));
    let empty = std::iter::once(frame(HEADERS, 0, 1, &request_head()))
        .chain((0..FRAMES).map(|_| frame(CONTINUATION, 0, 1, &[])));
    let resets = (0..FRAMES).map(|number| {
        let stream = 2 * number + 1;
        let begun = frame(HEADERS, END_HEADERS, stream, &request_head());
        [begun, frame(RST_STREAM, 0, stream, &8_u32.to_be_bytes())].concat()
    });
    let pings = (0..FRAMES).map(|_| frame(PING, 0, 0, &[7; 8]).repeat(16));
    let settings = (0..FRAMES).map(|_| frame(SETTINGS, 0, 0, &[0, 4, 0, 1, 0, 0]).repeat(16));
    let address = &*served.address;
    tokio::join!(
        flood(address, endless),
        flood(address, empty),
        flood(address, resets),
        flood(address, pings),
        flood(address, settings),
        async { log_in(&asked, "right").await.unwrap() },
    );
    served.grew_by_less_than(before, 32 * MIB);
    log_in(&served.ask().await, "right").await.unwrap();
}

/// Requests that come all at once are charged to their connection until it ends, for the HTTP/2 library keeps what they needed. Beyond the
/// budget, connections with more than their share are closed, and a client with few requests is served.
#[tokio::test(flavor = "multi_thread")]
async fn many_requests_at_once_on_many_connections_take_no_more_than_their_budget() {
    const CONNECTIONS: usize = 150;
    const REQUESTS: u32 = 900;
    const END_STREAM: u8 = 1;
    let served = Served::start("budget-streams", false);
    let before = served.memory().0;
    let empty_message = prefixed(&[]);
    let requests: Vec<u8> = (0..REQUESTS)
        .flat_map(|number| {
            let stream = 2 * number + 1;
            let head = frame(HEADERS, END_HEADERS, stream, &request_head());
            [head, frame(DATA, END_STREAM, stream, &empty_message)].concat()
        })
        .collect();
    let mut held = Vec::new();
    for _ in 0..CONNECTIONS {
        let mut stream = TcpStream::connect(&served.address).await.unwrap();
        stream.write_all(&start_of_connection()).await.unwrap();
        let sent = tokio::time::timeout(Duration::from_secs(1), stream.write_all(&requests)).await;
        if matches!(sent, Ok(Ok(()))) {
            held.push(stream);
        }
    }
    let _served: api::StatusResponse =
        served.ask().await.ask(method::STATUS, &api::StatusRequest {}).await.unwrap();
    // Without the budget, the same requests took 1,000 MiB.
    served.grew_by_less_than(before, 500 * MIB);
}

/// Handshakes that are begun with TLS and not ended take the places of each other, and of no client.
#[tokio::test(flavor = "multi_thread")]
async fn handshakes_that_are_left_unfinished_keep_nobody_out() {
    let served = Served::start_within("budget-handshakes", &["prlimit", "--nofile=400"], true);
    let before = served.memory().0;
    let mut held = Vec::new();
    for _ in 0..1000 {
        let mut stream = TcpStream::connect(&served.address).await.unwrap();
        // The start of a record with a long first message of a handshake, or of the first words of HTTP/2.
        let begun = if held.len() % 2 == 0 { &[22, 3, 1, 0x3f, 0xff, 1, 0][..] } else { b"PRI * " };
        stream.write_all(begun).await.unwrap();
        held.push(stream);
    }
    let let_in = async { log_in(&served.ask().await, "right").await };
    tokio::time::timeout(PATIENCE, let_in).await.expect("there is room for one more").unwrap();
    served.grew_by_less_than(before, 32 * MIB);
}

/// Input that clients with rights send into streams whose answers they do not read counts, and ends where the budget
/// does.
#[tokio::test(flavor = "multi_thread")]
async fn input_that_is_not_taken_is_bounded() {
    let served = Served::start("budget-input", false);
    let asked = served.ask().await;
    let before = served.memory().0;
    let progress = api::RequestUnion::ProgressRequest(api::WatchProgressRequest {});
    let wish = prefixed(&api::WatchRequest { request_union: Some(progress) }.encode_to_vec());
    let mut streams = tokio::task::JoinSet::new();
    for _ in 0..100 {
        let attacker = Attacker::connect(&served.address, 0).await;
        for _ in 0..10 {
            let answer = attacker.begin(method::WATCH, wish.repeat(8 << 10));
            streams.spawn(async {
                let answer = answer.await;
                let () = std::future::pending().await;
                drop(answer);
            });
        }
    }
    for _ in 0..20 {
        let one = api::RangeRequest { key: b"none".to_vec(), ..Default::default() };
        let _: api::RangeResponse = asked.ask(method::RANGE, &one).await.unwrap();
    }
    served.grew_by_less_than(before, 160 * MIB);
}

/// A client of thousands of leases or watches names all of them at once, and its connection is not ended for it.
#[tokio::test(flavor = "multi_thread")]
async fn thousands_of_small_messages_at_once_are_answered() {
    const MESSAGES: usize = 3_000;
    let served = Served::start("budget-burst", false);
    let create = api::WatchCreateRequest { key: b"k".to_vec(), ..Default::default() };
    let create = api::WatchRequest { request_union: Some(api::RequestUnion::CreateRequest(create)) };
    for (path, message) in [
        (method::LEASE_KEEP_ALIVE, api::LeaseKeepAliveRequest { id: 7 }.encode_to_vec()),
        (method::WATCH, create.encode_to_vec()),
    ] {
        let client = Attacker::connect(&served.address, 1 << 20).await;
        let frames = std::iter::repeat_n(Bytes::from(prefixed(&message)), MESSAGES);
        let mut answer = client.begin_with(path, frames.collect()).await.unwrap().into_body();
        let (mut received, mut answers) = (Vec::new(), 0);
        while answers < MESSAGES {
            let frame = tokio::time::timeout(PATIENCE, answer.frame()).await;
            let frame = frame.unwrap_or_else(|_| panic!("{path}: {answers} are answered"));
            received.extend_from_slice(&frame.unwrap().unwrap().into_data().unwrap());
            while let Some(Ok(length)) = received.get(1..5).map(<[u8; 4]>::try_from) {
                let end = 5 + usize::try_from(u32::from_be_bytes(length)).unwrap();
                if received.len() < end {
                    break;
                }
                received.drain(..end);
                answers += 1;
            }
        }
    }
}

/// Empty operations of two bytes, which took a hundred times as many when they were decoded, before they were counted.
#[tokio::test(flavor = "multi_thread")]
async fn the_operations_of_a_transaction_are_counted_before_they_are_decoded() {
    let served = Served::start("budget-operations", false);
    let asked = served.ask().await;
    let before = served.memory().0;
    let empty = api::TxnRequest { success: vec![api::RequestOp::default(); 900_000], ..Default::default() };
    let within = api::RequestOp { request: Some(api::Request::RequestTxn(empty.clone())) };
    let nested = api::TxnRequest { failure: vec![within], ..Default::default() };
    for transaction in [empty, nested] {
        let mut answers = tokio::task::JoinSet::new();
        for _ in 0..4 {
            let (asked, transaction) = (asked.clone(), transaction.clone());
            answers.spawn(async move {
                asked.ask::<_, api::TxnResponse>(method::TXN, &transaction).await.unwrap_err()
            });
        }
        let refused = "etcdserver: too many operations in txn request".to_owned();
        for answer in answers.join_all().await {
            assert_eq!(answer, (Code::InvalidArgument, refused.clone()));
        }
    }
    served.grew_by_less_than(before, 48 * MIB);
}

/// The memory that the budgets do not count, as the table of limits in `docs/guide/etcd-api.md` has it: some 60
/// KiB for the head of a request without an end.
#[tokio::test(flavor = "multi_thread")]
async fn a_connection_without_a_token_holds_as_much_as_the_table_says() {
    const CONNECTIONS: u64 = 600;
    let served = Served::start_within("budget-heads", &["prlimit", "--nofile=4000"], true);
    log_in(&served.ask().await, "right").await.unwrap();
    let before = served.memory().0;
    let long = frame(CONTINUATION, 0, 1, &[b'x'; 16 << 10]);
    let head = [start_of_connection(), frame(HEADERS, 0, 1, &request_head()), long].concat();
    let mut held = Vec::new();
    for _ in 0..CONNECTIONS {
        let mut stream = TcpStream::connect(&served.address).await.unwrap();
        stream.write_all(&head).await.unwrap();
        held.push(stream);
    }
    log_in(&served.ask().await, "right").await.unwrap();
    served.grew_by_less_than(before, CONNECTIONS * (60 << 10) + 16 * MIB);
}

/// Connections that show no token keep no client out: the next one takes the place of the oldest.
#[tokio::test(flavor = "multi_thread")]
async fn connections_without_a_token_do_not_keep_clients_out() {
    // It has places for 200.
    let served = Served::start_within("budget-silent", &["prlimit", "--nofile=400"], true);
    let mut held = Vec::new();
    for _ in 0..300 {
        held.push(Attacker::connect(&served.address, 1 << 16).await);
    }
    let let_in = async { log_in(&served.ask().await, "right").await };
    tokio::time::timeout(PATIENCE, let_in).await.expect("there is room for one more").unwrap();
}
