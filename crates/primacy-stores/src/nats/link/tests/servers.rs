//! Servers that do what they should not, and messages of other clients.

use base64::Engine as _;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;

use super::*;

/// The time limit of each step.
const PATIENCE: Duration = Duration::from_secs(30);

const STREAM: &str = r#"{"config":{"name":"KV_b","retention":"limits","discard":"new","storage":"file","num_replicas":1,"max_age":0,
    "max_msgs":-1,"max_bytes":-1}}"#;

/// A server with a bucket `b`, whose keys all have the sequence number 7.
struct FakeServer {
    link: Link,
    /// The connections, in their order.
    connections: mpsc::UnboundedReceiver<FakeConnection>,
}

/// The server's side of a connection.
struct FakeConnection {
    /// Bytes to send to the client.
    to_client: mpsc::UnboundedSender<Vec<u8>>,
    /// The lines that the client has sent, without its pings.
    lines: mpsc::UnboundedReceiver<String>,
}

impl FakeServer {
    /// `refused` are the subjects to which the client may neither publish nor subscribe.
    async fn start(refused: &'static [&'static str]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("//{}/b", listener.local_addr().unwrap());
        let (sender, connections) = mpsc::unbounded_channel();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (to_client, bytes) = mpsc::unbounded_channel();
                let (seen, lines) = mpsc::unbounded_channel();
                tokio::spawn(serve(stream, refused, seen, bytes));
                let _ = sender.send(FakeConnection { to_client, lines });
            }
        });
        Self { link: Link::new(Settings::parse(&url).unwrap()), connections }
    }

    async fn connection(&mut self) -> FakeConnection {
        timeout(PATIENCE, self.connections.recv()).await.expect("it connects").unwrap()
    }

    async fn find(&self) -> Result<Entry, Failure> {
        let handle = self.link.handle();
        runtime::run(async move { handle.find("e").await }).await.unwrap()
    }
}

impl FakeConnection {
    fn send(&self, bytes: &[u8]) {
        let _ = self.to_client.send(bytes.to_vec());
    }

    /// Returns the lines up to the first one that begins so.
    async fn until(&mut self, start: &str) -> Vec<String> {
        let mut lines = Vec::new();
        loop {
            let line = timeout(PATIENCE, self.lines.recv()).await;
            lines.push(line.unwrap_or_else(|_| panic!("{start} comes after {lines:?}")).unwrap());
            if lines.last().is_some_and(|line| line.starts_with(start)) {
                return lines;
            }
        }
    }
}

async fn serve(
    mut stream: TcpStream,
    refused: &[&str],
    seen: mpsc::UnboundedSender<String>,
    mut bytes: mpsc::UnboundedReceiver<Vec<u8>>,
) {
    let (reader, mut writer) = stream.split();
    let mut reader = BufReader::new(reader);
    let mut answer = b"INFO {\"version\":\"2.11.0\",\"max_payload\":1048576}\r\n".to_vec();
    loop {
        if writer.write_all(&answer).await.is_err() {
            return;
        }
        let mut line = String::new();
        answer = tokio::select! {
            // Bytes are sent between two requests, and none of a request is read before.
            Some(bytes) = bytes.recv() => bytes,
            read = reader.read_line(&mut line) => match read {
                Ok(0) | Err(_) => return,
                Ok(_) => Vec::new(),
            },
        };
        let words: Vec<&str> = line.split_whitespace().collect();
        match words.as_slice() {
            ["PING"] => answer = b"PONG\r\n".to_vec(),
            ["SUB" | "PUB", subject, ..] if refused.iter().any(|refused| subject.starts_with(refused)) => {
                let verb = if words[0] == "SUB" { "Subscription" } else { "Publish" };
                answer = format!("-ERR 'Permissions Violation for {verb} to \"{subject}\"'\r\n").into_bytes();
            }
            _ => {}
        }
        if let ["PUB", subject, reply, length] = words.as_slice() {
            let mut payload = vec![0; length.parse::<usize>().unwrap() + 2];
            reader.read_exact(&mut payload).await.unwrap();
            let body = match *subject {
                "$JS.API.STREAM.INFO.KV_b" => STREAM.replace('\n', ""),
                _ => format!(
                    r#"{{"message":{{"seq":7,"data":"{}"}}}}"#,
                    base64::engine::general_purpose::STANDARD.encode("x")
                ),
            };
            if answer.is_empty() {
                answer = format!("MSG {reply} 1 {}\r\n{body}\r\n", body.len()).into_bytes();
            }
        }
        if !line.is_empty() && line != "PING\r\n" {
            let _ = seen.send(line);
        }
    }
}

fn found() -> Result<Entry, Failure> {
    Ok(Entry::Present { sequence: 7, bytes: b"x".to_vec() })
}

fn message(subject: &str, sid: &str, reply: &str, headers: &[u8]) -> Vec<u8> {
    let line = format!("HMSG {subject} {sid} {reply} {0} {0}\r\n", headers.len());
    [line.as_bytes(), headers, b"\r\n"].concat()
}

#[tokio::test]
async fn a_message_makes_the_client_publish_nothing() {
    let mut server = FakeServer::start(&[]).await;
    server.link.open(false).await.unwrap();
    let mut connection = server.connection().await;
    let inbox = connection.until("SUB").await.pop().unwrap();
    let inbox = inbox.split_whitespace().nth(1).unwrap().trim_end_matches('*').to_owned();
    let changes = server.link.elections().add("e");
    server.link.watch("e");
    let sid = connection.until("SUB $KV.b.e ").await.pop().unwrap();
    let sid = sid.split_whitespace().nth(2).unwrap().to_owned();
    connection.until("PUB $JS.API.STREAM.MSG.GET.KV_b").await;
    timeout(PATIENCE, changes.heard()).await.unwrap();
    changes.saw(changes.count(), 7);
    for (subject, sid) in
        [("$KV.b.e", sid.as_str()), (&format!("{inbox}x"), "1"), ("other", &sid), ("other", "99")]
    {
        for headers in [
            &b"NATS/1.0 100 FlowControl Request\r\n\r\n"[..],
            b"NATS/1.0 100 Idle Heartbeat\r\nNats-Consumer-Stalled: $KV.b.e\r\n\r\n",
            b"NATS/1.0\r\nA: b\rc\r\n\r\n",
            b"NATS/7\xff",
            b"",
        ] {
            connection.send(&message(subject, sid, "$JS.API.STREAM.DELETE.KV_b", headers));
        }
    }
    connection.send(b"PING\r\n");
    let lines = connection.until("PONG").await;
    assert!(
        lines.iter().all(|line| line.starts_with("PUB $JS.API.STREAM.MSG.GET.KV_b ") || line == "PONG\r\n"),
        "{lines:?}"
    );
    assert_eq!(server.find().await, found());
    assert!(server.connections.is_empty(), "the connection has not broken");
}

#[tokio::test]
async fn a_server_that_sends_nonsense_ends_the_connection_only() {
    let mut server = FakeServer::start(&[]).await;
    server.link.open(false).await.unwrap();
    for nonsense in [
        &b"-ERR\r\n"[..],
        b"MSG a 1 18446744073709551615\r\n",
        b"HMSG a 1 9 18446744073709551615\r\n",
        b"INFO {\"max_payload\":-1}\r\n",
        b"-ERR 'Stale Connection'\r\n",
        b"\xff\xff\r\n",
    ] {
        let connection = server.connection().await;
        connection.send(nonsense);
        let again = async {
            // Until the client has read it, and after it was sent, the old connection may answer.
            while server.connections.is_empty() {
                let _ = server.find().await;
            }
            server.find().await
        };
        assert_eq!(timeout(PATIENCE, again).await.expect("it connects again"), found());
    }
}

#[tokio::test]
async fn rights_that_are_missing_are_named() {
    let mut server = FakeServer::start(&["$KV."]).await;
    server.link.open(false).await.unwrap();
    let mut connection = server.connection().await;
    server.link.watch("e");
    connection.until("SUB $KV.b.e ").await;
    assert_eq!(server.find().await, found(), "it is read without a subscription");
    assert!(server.link.inspect("e").await.unwrap().is_subscription_refused);
    let handle = server.link.handle();
    let publishing = runtime::run(async move {
        let connection = handle.connection(soon()).await.unwrap();
        api::publish(&connection, soon(), "$KV.b.e", &[], b"").await
    });
    match publishing.await.unwrap() {
        Err(ApiFailure::Failed(Failure::Unknown(why))) => {
            assert!(why.contains("Publish to \"$KV.b.e\""), "{why}")
        }
        other => panic!("{other:?}"),
    }
    let server = FakeServer::start(&[connection::INBOX]).await;
    let refused = server.link.open(false).await.unwrap_err();
    assert!(matches!(&refused, OpenError::Refused { why } if why.contains("_INBOX_PRIMACY.>")), "{refused}");
}

/// A server that accepts the login of the first `accepted` connections, and then closes each of them.
async fn refuse_logins(listener: TcpListener, accepted: usize) {
    for number in 0.. {
        let mut stream = BufReader::new(listener.accept().await.unwrap().0);
        stream.write_all(b"INFO {\"version\":\"2.11.0\"}\r\n").await.unwrap();
        let mut line = String::new();
        while !line.starts_with("PING") {
            line.clear();
            stream.read_line(&mut line).await.unwrap();
        }
        let is_accepted = number < accepted;
        let answer: &[u8] = if is_accepted { b"PONG\r\n" } else { b"-ERR 'Authorization Violation'\r\n" };
        stream.write_all(answer).await.unwrap();
    }
}

async fn link(accepted: usize, others: &str) -> (Link, String) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    tokio::spawn(refuse_logins(listener, accepted));
    (Link::new(Settings::parse(&format!("//u:secret@{address}{others}/b")).unwrap()), address)
}

#[tokio::test]
async fn the_reason_of_each_server_is_in_the_error() {
    let (link, address) = link(0, ",127.0.0.1:1").await;
    let error = link.open(false).await.unwrap_err();
    assert!(matches!(error, OpenError::Refused { .. }), "{error:?}");
    let error = error.to_string();
    assert!(error.contains(&format!("{address}: it does not accept this login")), "{error}");
    assert!(error.contains("127.0.0.1:1: ") && !error.contains("secret"), "{error}");
}

#[tokio::test]
async fn a_login_that_is_refused_later_is_told_as_such() {
    let (link, _) = link(1, "").await;
    // The connection is made, and breaks before it is used.
    assert!(matches!(link.open(false).await, Err(OpenError::Unavailable { .. })));
    let handle = link.handle();
    let refused = runtime::run(async move { handle.find("e").await }).await.unwrap().unwrap_err().why();
    assert!(refused.contains("does not accept this login"), "{refused}");
}
