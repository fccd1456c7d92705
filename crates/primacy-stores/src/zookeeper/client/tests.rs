//! Tests of the client with a fake server, which may say anything.

mod fuzz;

use std::net::Ipv4Addr;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

use super::jute::MESSAGE_MAX;
use super::*;

/// The session of the fake server, and its password.
const SESSION: i64 = 0x5e55;
const PASSWORD: [u8; 16] = [7; 16];

/// A session that lasts as long as a test.
const LONG: i32 = 60_000;

/// A session whose silent server is given up soon.
const SHORT: i32 = 500;

/// The time after which a test is taken to hang.
const HANG: Duration = Duration::from_secs(30);

/// A server that serves one connection at a time.
struct Fake(TcpListener);

/// A connection of the fake server.
struct FakeConnection {
    stream: TcpStream,
    logs_in: bool,
}

/// A request to continue a session.
#[derive(Debug, PartialEq, Eq)]
struct Opening {
    zxid: i64,
    timeout: i32,
    session: i64,
    password: Vec<u8>,
    login: Option<Vec<u8>>,
}

/// A request: its number, its operation and its body.
type Asked = (i32, i32, Vec<u8>);

impl Fake {
    async fn start() -> Self {
        Self(TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap())
    }

    fn address(&self) -> String {
        self.0.local_addr().unwrap().to_string()
    }

    /// Starts to connect a client.
    fn client(&self, login: Option<&str>) -> JoinHandle<Result<ZooKeeperClient, ClientError>> {
        let (address, login) = (self.address(), login.map(str::to_owned));
        tokio::spawn(async move { ZooKeeperClient::connect(&address, Duration::from_secs(60), login).await })
    }

    async fn accept(&self) -> (FakeConnection, Opening) {
        let (stream, _) = soon(self.0.accept()).await.unwrap();
        let mut connection = FakeConnection { stream, logs_in: false };
        let message = connection.message().await.expect("an opening");
        let mut reader = JuteReader(&message);
        assert_eq!(reader.int(), Ok(0), "the version of the protocol");
        let (zxid, timeout, session) =
            (reader.long().unwrap(), reader.int().unwrap(), reader.long().unwrap());
        let password = reader.buffer().unwrap().to_vec();
        assert_eq!(reader.flag(), Ok(false), "no server that only reads");
        let ping = JuteWriter::default().int(-2).int(operation::PING).0;
        let login = connection.message().await.filter(|message| *message != ping);
        if login.is_some() {
            assert_eq!(connection.message().await, Some(ping));
            connection.logs_in = true;
        }
        (connection, Opening { zxid, timeout, session, password, login })
    }

    /// Connects a client, and returns it with its connection.
    async fn connected(&self, timeout: i32) -> (ZooKeeperClient, FakeConnection) {
        let client = self.client(None);
        let (mut connection, opening) = self.accept().await;
        assert_eq!((opening.session, opening.zxid), (0, 0), "a new one");
        connection.grant(SESSION, timeout).await;
        (soon(client).await.unwrap().unwrap(), connection)
    }
}

impl FakeConnection {
    /// Reads a message; `None` when the client has closed the connection.
    async fn message(&mut self) -> Option<Vec<u8>> {
        let read = async {
            let length = self.stream.read_u32().await.ok()?;
            let mut message = vec![0; usize::try_from(length).unwrap()];
            self.stream.read_exact(&mut message).await.ok()?;
            Some(message)
        };
        soon(read).await
    }

    /// Reads the next request except pings, which it answers.
    async fn request(&mut self) -> Option<Asked> {
        loop {
            let message = self.message().await?;
            let mut reader = JuteReader(&message);
            let (xid, operation) = (reader.int().unwrap(), reader.int().unwrap());
            if operation != operation::PING {
                return Some((xid, operation, reader.0.to_vec()));
            }
            self.answer(xid, 0, JuteWriter::default()).await;
        }
    }

    async fn send(&mut self, bytes: &[u8]) {
        // The client may have closed the connection already.
        let _ = self.stream.write_all(bytes).await;
    }

    async fn grant(&mut self, session: i64, timeout: i32) {
        self.send(&grant(session, timeout)).await;
        if self.logs_in {
            self.answer(-4, 0, JuteWriter::default()).await;
        }
        self.answer(-2, 0, JuteWriter::default()).await;
    }

    async fn answer(&mut self, xid: i32, error: i32, body: JuteWriter) {
        self.send(&answer(xid, error, body)).await;
    }
}

/// Returns the answer to an opening.
fn grant(session: i64, timeout: i32) -> Vec<u8> {
    JuteWriter::default().int(0).int(timeout).long(session).buffer(&PASSWORD).flag(false).framed()
}

fn answer(xid: i32, error: i32, body: JuteWriter) -> Vec<u8> {
    let mut message = JuteWriter::default().int(xid).long(i64::from(xid)).int(error);
    message.0.extend(body.0);
    message.framed()
}

/// The stat of a znode that `owner` has made.
fn stat(body: JuteWriter, owner: i64) -> JuteWriter {
    body.long(9).long(0).long(0).long(0).int(3).int(0).int(0).long(owner).int(0).int(0).long(0)
}

fn notification(change: i32, path: &str) -> Vec<u8> {
    answer(-1, 0, JuteWriter::default().int(change).int(3).text(path))
}

async fn soon<T>(what: impl Future<Output = T>) -> T {
    timeout(HANG, what).await.expect("it hangs")
}

/// Returns the answers that no server of ZooKeeper gives to a request for children or to create a znode, and parts of the errors.
fn lies() -> Vec<(Vec<u8>, &'static str)> {
    let start = JuteWriter::default;
    let to_children = |body| answer(1, 0, body);
    vec![
        (to_children(start().int(i32::MAX)), "list of 2147483647"),
        (to_children(start().int(-1)), "length -1"),
        (to_children(start().int(1).text("")), "name \"\""),
        (to_children(start().int(1).int(-2)), "length -2"),
        (to_children(start().int(1).int(99)), "99 bytes must follow"),
        (to_children(start().int(1).buffer(&[0xff])), "not UTF-8"),
        (to_children(start().int(0).int(7)), "goes on for 4 bytes"),
        (to_children(start()), "4 bytes must follow"),
        (answer(2, 0, start().int(0)), "number 2, and 1 is due"),
        (answer(-2, 0, start()), "number -2, and 1 is due"),
        (notification(3, ""), "path \"\""),
        (notification(77, "/e"), "change 77"),
        (start().int(1).framed(), "8 bytes must follow"),
        (vec![0xff; 4], "it has -1 bytes"),
        (start().int(i32::try_from(MESSAGE_MAX).unwrap() + 1).0, "it has 4194305 bytes"),
    ]
}

#[tokio::test]
async fn an_answer_that_is_wrong_ends_the_connection_and_not_the_session() {
    for (lie, expected) in lies() {
        let fake = Fake::start().await;
        let (client, mut connection) = fake.connected(LONG).await;
        let server = async {
            connection.request().await.expect("the request");
            connection.send(&lie).await;
            assert_eq!(connection.request().await, None, "{expected}");
            let (mut connection, opening) = fake.accept().await;
            assert_eq!((opening.session, opening.password), (SESSION, PASSWORD.to_vec()));
            connection.grant(SESSION, LONG).await;
            let (xid, ..) = connection.request().await.expect("the next request");
            connection.answer(xid, 0, JuteWriter::default().int(1).text("a")).await;
        };
        let requests = async {
            let answered = client.children("/e").await;
            let Err(ClientError::NoAnswer(why)) = answered else { panic!("{expected}: {answered:?}") };
            assert!(why.contains(expected) && why.contains(&fake.address()), "{why}");
            assert_eq!(client.children("/e").await, Ok(vec!["a".to_owned()]));
        };
        soon(async { tokio::join!(server, requests) }).await;
    }
}

#[tokio::test]
async fn an_answer_that_was_not_asked_for_ends_the_connection() {
    let fake = Fake::start().await;
    let (client, mut connection) = fake.connected(LONG).await;
    connection.answer(1, 0, JuteWriter::default()).await;
    assert_eq!(connection.request().await, None);
    let why = |state: &SessionState| match &state.phase {
        SessionPhase::Disconnected(why) => why.contains("number 1, and none is due"),
        SessionPhase::Connected { .. } | SessionPhase::Over(_) => false,
    };
    drop(soon(client.states.clone().wait_for(why)).await.unwrap());
}

#[tokio::test]
async fn what_was_made_must_be_what_was_asked_for() {
    for (made, is_right) in [
        ("/e/n-0000000007", true),
        ("/e/n--2147483648", true),
        ("/e/n-", false),
        ("/e/n-x", false),
        ("/n-1", false),
    ] {
        let fake = Fake::start().await;
        let (client, mut connection) = fake.connected(LONG).await;
        let server = async {
            let (xid, operation, _) = connection.request().await.expect("the request");
            assert_eq!(operation, operation::CREATE);
            connection.answer(xid, 0, stat(JuteWriter::default().text(made), SESSION)).await;
        };
        let acl = Acl::anyone();
        let create = client.create("/e/n-", b"data", ZnodeKind::EphemeralSequential, &acl);
        let (created, ()) = soon(async { tokio::join!(create, server) }).await;
        match created {
            Ok((path, stat)) => {
                assert_eq!((path.as_str(), stat.ephemeral_owner, is_right), (made, SESSION, true))
            }
            Err(ClientError::NoAnswer(why)) => assert!(!is_right && why.contains(made), "{why}"),
            Err(error) => panic!("{error}"),
        }
    }
}

#[tokio::test]
async fn a_server_that_answers_no_request_is_left_though_it_sends_notifications_or_answers_pings() {
    for sends in ["nothing", "notifications", "answers to pings"] {
        let fake = Fake::start().await;
        let (client, mut connection) = fake.connected(SHORT).await;
        let server = async {
            let noise = notification(3, "/of/no/watch").repeat(1_000);
            while sends == "notifications" && connection.stream.write_all(&noise).await.is_ok() {}
            while sends == "answers to pings" && connection.request().await.is_some() {}
            // It keeps the connection until the client has gone to the next one.
            let (mut next, opening) = fake.accept().await;
            assert_eq!(opening.session, SESSION);
            next.grant(SESSION, SHORT).await;
            next
        };
        let (answered, _next) = soon(async { tokio::join!(client.data("/e"), server) }).await;
        let Err(ClientError::NoAnswer(why)) = answered else { panic!("{answered:?}") };
        assert!(why.contains("answered nothing for 200ms"), "{why}");
    }
}

#[tokio::test]
async fn a_session_moves_with_its_login_and_wakes_its_watches_and_the_shortest_timeout_counts() {
    let fake = Fake::start().await;
    let client = fake.client(Some("ann:secret"));
    let (mut connection, opening) = fake.accept().await;
    let packet = JuteWriter::default().int(-4).int(operation::LOGIN).int(0).text("digest").text("ann:secret");
    let login = Some(packet.0);
    let new = Opening { zxid: 0, timeout: LONG, session: 0, password: vec![0; 16], login: login.clone() };
    assert_eq!(opening, new);
    connection.grant(SESSION, 40_000).await;
    let client = soon(client).await.unwrap().unwrap();
    assert_eq!((client.session(), client.granted()), (SESSION, Duration::from_secs(40)));
    let watching = tokio::spawn(async move {
        let (_, _, watch) = client.watch_data("/e").await.unwrap();
        watch.fired().await;
        client
    });
    let (xid, operation, body) = connection.request().await.expect("the request");
    assert_eq!(
        (xid, operation, body),
        (1, operation::GET_DATA, JuteWriter::default().text("/e").flag(true).0)
    );
    connection.answer(xid, 0, stat(JuteWriter::default().buffer(b"data"), 0)).await;
    drop(connection);
    let (mut connection, opening) = fake.accept().await;
    let password = PASSWORD.to_vec();
    assert_eq!(opening, Opening { zxid: 1, timeout: 40_000, session: SESSION, password, login });
    assert!(!watching.is_finished(), "before it can read again");
    connection.grant(SESSION, 30_000).await;
    let client = soon(watching).await.unwrap();
    assert_eq!(client.granted(), Duration::from_secs(30));
    drop(connection);
    let (mut connection, opening) = fake.accept().await;
    assert_eq!(opening.timeout, 30_000);
    connection.grant(SESSION, 50_000).await;
    let connected = |state: &SessionState| matches!(state.phase, SessionPhase::Connected { .. });
    drop(soon(client.states.clone().wait_for(connected)).await.unwrap());
    assert_eq!(client.granted(), Duration::from_secs(30));
    // And a login that is refused.
    drop(connection);
    let (mut connection, _) = fake.accept().await;
    connection.send(&grant(SESSION, 30_000)).await;
    connection.answer(-4, code::AUTH_FAILED, JuteWriter::default()).await;
    assert_eq!(soon(client.data("/e")).await.unwrap_err(), ClientError::AuthFailed);
}

#[tokio::test]
async fn a_session_that_has_ended_is_known_to_all_who_wait() {
    for (session, timeout, expected) in
        [(0, 0, "expired"), (SESSION + 1, LONG, "another session"), (SESSION, LONG, "expired")]
    {
        let fake = Fake::start().await;
        let (client, mut connection) = fake.connected(LONG).await;
        let server = async {
            let (xid, ..) = connection.request().await.expect("the request for a watch");
            connection.answer(xid, code::NO_NODE, JuteWriter::default()).await;
            drop(connection);
            let (mut connection, _) = fake.accept().await;
            connection.grant(session, timeout).await;
            if session == SESSION {
                let (xid, ..) = connection.request().await.expect("a request");
                connection.answer(xid, code::SESSION_EXPIRED, JuteWriter::default()).await;
            }
            assert_eq!(connection.request().await, None);
        };
        let requests = async {
            let (stat, watch) = client.watch_stat("/e").await.unwrap();
            assert_eq!(stat, None);
            let (answered, ()) = tokio::join!(client.children("/e"), watch.fired());
            // The first of them may have been sent over the lost connection.
            assert!(answered.is_err(), "{answered:?}");
            let over = client.children("/e").await;
            let Err(ClientError::Ended(why)) = over else { panic!("{expected}: {over:?}") };
            assert!(why.contains(expected), "{why}");
            assert_eq!(client.ended(), Some(ClientError::Ended(why)));
        };
        soon(async { tokio::join!(server, requests) }).await;
    }
}

#[tokio::test]
async fn a_session_without_a_server_that_answers_ends_by_itself() {
    let fake = Fake::start().await;
    let (client, connection) = fake.connected(SHORT).await;
    drop(connection);
    let server = async {
        loop {
            let (mut connection, _) = fake.accept().await;
            connection.send(&grant(SESSION, SHORT)).await;
            // It answers no ping.
            assert_eq!(connection.message().await, None);
        }
    };
    soon(async {
        tokio::select! {
            () = client.end() => {}
            () = server => unreachable!("it goes on"),
        }
    })
    .await;
    let Some(ClientError::Ended(why)) = client.ended() else { panic!("it goes on") };
    let expected = format!("{}: it has not answered within 200ms", fake.address());
    assert!(why.contains("no server was reached") && why.contains(&expected), "{why}");
}

#[tokio::test]
async fn a_session_of_no_length_and_no_session_at_all_are_refused() {
    tokio::join!(
        refused(SESSION, 1, "a session of 1ms only"),
        refused(SESSION, -1, "a session timeout of -1 ms"),
        refused(0, LONG, "it has begun no session"),
    );
}

/// Checks that no session begins with a server that grants this.
async fn refused(session: i64, timeout: i32, expected: &str) {
    let fake = Fake::start().await;
    let server = async {
        loop {
            let (mut connection, _) = fake.accept().await;
            connection.grant(session, timeout).await;
        }
    };
    let client = async {
        tokio::select! {
            client = fake.client(None) => client.unwrap().expect_err("no session").to_string(),
            () = server => unreachable!("it goes on"),
        }
    };
    let error = soon(client).await;
    assert!(error.contains(expected) && error.contains(&fake.address()), "{error}");
}

#[tokio::test]
async fn a_request_that_is_given_up_costs_no_other_its_answer() {
    let fake = Fake::start().await;
    let (client, mut connection) = fake.connected(LONG).await;
    let given_up = async {
        let (xid, ..) = connection.request().await.expect("the first one");
        xid
    };
    let first = tokio::select! {
        biased;
        _ = client.children("/first") => panic!("it was not answered"),
        xid = soon(given_up) => xid,
    };
    let server = async {
        let (xid, ..) = connection.request().await.expect("the second one");
        connection.answer(first, 0, JuteWriter::default().int(1).text("first")).await;
        connection.answer(xid, 0, JuteWriter::default().int(1).text("second")).await;
        // The client is dropped, and closes its session.
        let (xid, operation, _) = connection.request().await.expect("the end");
        assert_eq!(operation, operation::CLOSE);
        connection.answer(xid, 0, JuteWriter::default()).await;
        assert_eq!(connection.request().await, None);
    };
    let second = async {
        assert_eq!(client.children("/second").await, Ok(vec!["second".to_owned()]));
        let end = client.end();
        drop(client);
        end.await;
    };
    soon(async { tokio::join!(server, second) }).await;
}

#[tokio::test]
async fn no_more_requests_wait_for_answers_than_are_allowed() {
    const MORE: usize = 10;
    let fake = Fake::start().await;
    let (client, mut connection) = fake.connected(LONG).await;
    let client = std::sync::Arc::new(client);
    let asked: Vec<_> = (0..server_connection::WAITING_MAX + MORE)
        .map(|_| {
            let client = std::sync::Arc::clone(&client);
            tokio::spawn(async move { client.children("/e").await })
        })
        .collect();
    let mut waiting = std::collections::VecDeque::new();
    for _ in 0..server_connection::WAITING_MAX {
        waiting.push_back(connection.request().await.expect("a request").0);
    }
    let next = timeout(Duration::from_millis(50), connection.stream.read_u8()).await;
    assert!(next.is_err(), "one request too many: {next:?}");
    for _ in 0..MORE {
        let xid = waiting.pop_front().expect("one waits");
        connection.answer(xid, 0, JuteWriter::default().int(0)).await;
        waiting.push_back(connection.request().await.expect("one more").0);
    }
    for xid in waiting {
        connection.answer(xid, 0, JuteWriter::default().int(0)).await;
    }
    for answered in asked {
        assert_eq!(soon(answered).await.unwrap(), Ok(Vec::new()));
    }
}

#[test]
fn a_flood_of_notifications_takes_no_memory() {
    let (mut exchange, mut watches) = (exchange::Exchange::default(), exchange::ZnodeWatches::default());
    let (waited_for, mut watch) = order("/e", WatchScope::Znode);
    let settle = Box::new(|_: Result<&mut JuteReader<'_>, ClientError>| Ok(()));
    exchange.send(Outgoing {
        operation: operation::GET_DATA,
        body: Vec::new(),
        watch: Some(waited_for),
        settle,
    });
    let mut received = answer(1, 0, JuteWriter::default());
    assert_eq!(exchange.receive(&mut received, &mut watches), Ok(true));
    for number in 0..10_000 {
        received.extend(notification(1 + number % 4, &format!("/other/{number}")));
        assert_eq!(exchange.receive(&mut received, &mut watches), Ok(false));
    }
    assert!(received.is_empty() && received.capacity() < 1024);
    assert_eq!((watches.count(), exchange.waiting()), (1, 0));
    assert!(watch.0.try_recv().is_err_and(|error| error == oneshot::error::TryRecvError::Empty));
    // A change of the list of children does not concern this one.
    received.extend([notification(4, "/e"), notification(3, "/e")].concat());
    assert_eq!(exchange.receive(&mut received, &mut watches), Ok(false));
    assert_eq!(watches.count(), 0);
    assert!(watch.0.try_recv().is_err_and(|error| error == oneshot::error::TryRecvError::Closed));
}

#[test]
fn a_transaction_has_as_many_results_as_parts() {
    const PARTS: [i32; 2] = [operation::CHECK, operation::SET_DATA];
    let ok = || part(JuteWriter::default(), operation::CHECK);
    let failed = |body: JuteWriter, error| body.int(operation::ERROR).flag(false).int(error).int(error);
    let end = |body: JuteWriter| body.int(operation::ERROR).flag(true).int(-1).0;
    let read = |body: &[u8]| results(&mut JuteReader(body), &PARTS);
    assert_eq!(read(&end(stat(part(ok(), operation::SET_DATA), 0))), Ok(code::OK));
    let refused = failed(failed(JuteWriter::default(), code::OK), code::BAD_VERSION);
    assert_eq!(read(&end(refused)), Ok(code::BAD_VERSION));
    let first = failed(failed(JuteWriter::default(), code::NO_NODE), -2);
    assert_eq!(read(&end(first)), Ok(code::NO_NODE));
    assert!(read(&end(ok())).is_err_and(|Malformed(why)| why.contains("too few")));
    let many = stat(part(stat(part(ok(), operation::SET_DATA), 0), operation::SET_DATA), 0);
    assert!(read(&end(many)).is_err_and(|Malformed(why)| why.contains("too many")));
    assert!(read(&end(part(ok(), operation::CHECK))).is_err_and(|Malformed(why)| why.contains("not of 5")));
}
