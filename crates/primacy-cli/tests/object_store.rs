//! Nodes over an object store whose credentials cannot be used for a while: none of them ends.

#![allow(clippy::unwrap_used, reason = "in a test, a panic is the message")]

use std::collections::HashMap;
use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use primacy_testbed::{Node, Place, strings, wait_until};

/// A server of S3's protocol that does one request at a time, and a service that issues credentials.
#[derive(Clone)]
struct Server {
    address: String,
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    /// The number of the write of each object, and its content.
    objects: HashMap<String, (u64, Vec<u8>)>,
    writes: u64,
    /// The head of the last write.
    last_write: String,
    /// The answer of the service that issues credentials.
    issued: String,
    /// The number of requests for it.
    asked: u64,
}

impl Server {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let server = Self { address, state: Arc::default() };
        let serving = server.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let serving = serving.clone();
                std::thread::spawn(move || serving.serve(&stream.unwrap()));
            }
        });
        server
    }

    /// Serves one connection until it ends.
    fn serve(&self, mut stream: &TcpStream) {
        let mut input = BufReader::new(stream);
        loop {
            let mut head = String::new();
            while !head.ends_with("\r\n\r\n") {
                if !input.read_line(&mut head).is_ok_and(|length| length > 0) {
                    return;
                }
            }
            let length = header(&head, "content-length").map_or(0, |length| length.parse().unwrap());
            let mut body = vec![0; length];
            input.read_exact(&mut body).unwrap();
            let answer = self.state.lock().unwrap().answer(&head, body);
            if stream.write_all(&answer).is_err() {
                return;
            }
        }
    }

    fn writes(&self) -> u64 {
        self.state.lock().unwrap().writes
    }

    /// Waits until a write has this in its head.
    fn wait_for_write_with(&self, text: &str) {
        wait_until(text, || self.state.lock().unwrap().last_write.contains(text));
    }
}

impl State {
    fn answer(&mut self, head: &str, body: Vec<u8>) -> Vec<u8> {
        let path = head.split(' ').nth(1).unwrap();
        if path == "/issue" {
            self.asked += 1;
            let status = if self.issued.starts_with('{') { "200 OK" } else { "400 Bad Request" };
            return answer(status, 0, self.issued.as_bytes());
        }
        let present = self.objects.get(path);
        if !head.starts_with("PUT ") {
            return match present {
                Some((number, content)) if head.starts_with("GET ") => answer("200 OK", *number, content),
                Some((number, _)) => answer("200 OK", *number, b""),
                None => answer("404 Not Found", 0, b"<Error><Code>NoSuchKey</Code></Error>"),
            };
        }
        let matches = match header(head, "if-match") {
            Some(expected) => present.is_some_and(|(number, _)| expected == format!("\"{number}\"")),
            None => present.is_none(),
        };
        if !matches {
            return answer("412 Precondition Failed", 0, b"<Error><Code>PreconditionFailed</Code></Error>");
        }
        self.writes += 1;
        head.clone_into(&mut self.last_write);
        self.objects.insert(path.to_owned(), (self.writes, body));
        answer("200 OK", self.writes, b"")
    }
}

fn answer(status: &str, number: u64, body: &[u8]) -> Vec<u8> {
    let head = format!(
        "HTTP/1.1 {status}\r\nETag: \"{number}\"\r\nLast-Modified: Wed, 21 Oct 2026 07:28:00 GMT\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    [head.as_bytes(), body].concat()
}

fn header<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    let mut fields = head.lines().filter_map(|line| line.split_once(": "));
    fields.find(|(field, _)| field.eq_ignore_ascii_case(name)).map(|(_, value)| value)
}

fn run(place: &Place, url: &str) -> Node {
    let args = ["run", "--json", "--election", "e", "--node", "a", "--lease", "3s", "--store", url, "--"];
    Node::start(place, "a", &strings(&[&args[..], &["sleep", "1000"]].concat()))
}

fn wait_for_warning(node: &Node, text: &str) {
    wait_until(text, || node.told.all().iter().any(|line| line.contains(text)));
}

fn assert_has_no_panic(node: &mut Node) {
    assert!(node.ended().is_none() && node.told.count("panic") == 0, "{}", node.told.all().join("\n"));
}

#[test]
fn a_leader_goes_on_with_its_credentials_when_their_file_has_what_no_request_can_carry() {
    let (place, server) = (Place::new("object-file"), Server::start());
    let write = |key: &str, token: &str| {
        let text = format!(
            "[default]\naws_access_key_id = {key}\naws_secret_access_key = QXZ\naws_session_token = {token}\n"
        );
        fs::write(place.path("new"), text).unwrap();
        fs::rename(place.path("new"), place.path("credentials")).unwrap();
    };
    write("FIRST", "token");
    let url =
        format!("s3://b/p?endpoint=http://{}&credentials={}", server.address, place.text("credentials"));
    let mut node = run(&place, &url);
    node.told.wait_for_event("started");
    for (key, token) in [("SECOND", "to\u{1}ken"), ("SEC\u{1}OND", "token")] {
        write(key, token);
        wait_for_warning(
            &node,
            if key == "SECOND" { "aws_session_token has" } else { "aws_access_key_id has" },
        );
        let before = server.writes();
        wait_until("the lease is renewed", || server.writes() > before + 1);
        server.wait_for_write_with("Credential=FIRST/");
    }
    write("THIRD", "token");
    server.wait_for_write_with("Credential=THIRD/");
    assert_has_no_panic(&mut node);
    assert!(node.leads() && node.told.count("elected") == 1, "{}", node.told.all().join("\n"));
}

#[test]
fn a_token_that_no_request_can_carry_is_an_error_of_the_store_and_ends_no_node() {
    let (mut place, server) = (Place::new("object-issued"), Server::start());
    fs::write(place.path("token"), "authorization-of-the-test").unwrap();
    place.set("AWS_CONTAINER_CREDENTIALS_FULL_URI", &format!("http://{}/issue", server.address));
    place.set("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", &place.text("token"));
    let issue = |key: &str, token: &str, until: &str| {
        server.state.lock().unwrap().issued = format!(
            r#"{{"AccessKeyId":"{key}","SecretAccessKey":"QXZ","Token":"{token}","Expiration":"{until}"}}"#
        );
    };
    // It has expired, so that each request needs another one.
    let expired = "2001-02-03T04:05:06Z";
    issue("FIRST", r"token\r\nEvil: 1", expired);
    let mut node = run(&place, &format!("s3://b/p?endpoint=http://{}", server.address));
    wait_for_warning(&node, "the client library failed");
    issue("FIRST", "token", expired);
    node.told.wait_for_event("started");
    issue("FIRST", r"token\r\nEvil: 1", expired);
    // The job is ended at the end of the lease, and the node campaigns again.
    node.told.wait_for_event("released");
    let asked = || server.state.lock().unwrap().asked;
    let before = asked();
    wait_until("the node asks again", || asked() > before);
    issue("SECOND", "token", "2099-01-01T00:00:00Z");
    node.told.wait_for_another("elected", 1);
    server.wait_for_write_with("Credential=SECOND/");
    assert_has_no_panic(&mut node);
}

#[test]
fn a_token_that_its_service_repeats_is_not_shown() {
    let (mut place, server) = (Place::new("object-repeated"), Server::start());
    fs::write(place.path("token"), "authorization-of-the-test").unwrap();
    place.set("AWS_CONTAINER_CREDENTIALS_FULL_URI", &format!("http://{}/issue", server.address));
    place.set("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", &place.text("token"));
    "got authorization-of-the-test".clone_into(&mut server.state.lock().unwrap().issued);
    let node = run(&place, &format!("s3://b/p?endpoint=http://{}", server.address));
    wait_for_warning(&node, "got ***");
    assert!(!node.told.all().join("\n").contains("authorization-of"), "{}", node.told.all().join("\n"));
}
