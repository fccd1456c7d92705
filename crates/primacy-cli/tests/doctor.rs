//! `primacy doctor` on a machine, on stores without a server, and on HTTP services. Tests with real servers are in
//! `live/doctor.rs`.

#![allow(clippy::unwrap_used, reason = "in a test, a panic is the message")]

use std::net::{SocketAddr, TcpListener};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use primacy_testbed::authority::{Authority, NOW, replace};
use primacy_testbed::doctor::Found;
use primacy_testbed::{Node, PATIENCE, Place, get, stderr, strings, table, wait_until};
use rustix::process::{Pid, Signal};
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::{ServerConfig, ServerConnection, StreamOwned, crypto};

const PAUSES: &str = "the lease is ten times the worst pause";
const RESOURCE: &str = "the resource refuses a stale write";
const SURVIVES: &str = "survives the loss of a machine";

/// The lease of the node that is paused, and the length of the pause.
const SHORT_LEASE: &str = "1s";
const PAUSE: Duration = Duration::from_millis(1500);

/// The doctor itself is stopped, as the machine's scheduler could do it: for longer than the lease.
#[test]
fn a_lease_that_is_too_short_for_the_machines_pauses_is_found() {
    let place = Place::new("doctor-pauses");
    let url = format!("sqlite:{}", place.text("election.db"));
    let mut command =
        place.command(&["doctor", "--json", "--store", &url, "--watch", "5s", "--lease", SHORT_LEASE]);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let pid = Pid::from_raw(child.id().try_into().unwrap()).unwrap();
    wait_until("the beginning of the watch", || is_watching(child.id()));
    table::signal(pid, Signal::STOP);
    std::thread::sleep(PAUSE);
    table::signal(pid, Signal::CONT);
    let found = Found::of(&child.wait_with_output().unwrap());
    found.expect(PAUSES, "fail", "too short");
    assert!(found.check(PAUSES)["fix"].as_str().unwrap().contains("--lease "), "{found:?}");
    found.ends(1);
}

/// The sleeps after which a thread has surely begun to measure: it sleeps again and again, and before that not at
/// all.
const SLEEPS: u64 = 5;

/// Whether it has the thread that measures pauses, and that has begun to.
fn is_watching(process: u32) -> bool {
    let mut threads = std::fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten().flatten();
    threads.any(|thread| {
        let read = |file: &str| std::fs::read_to_string(thread.path().join(file)).unwrap_or_default();
        let sleeps = || {
            let status = read("status");
            let line = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
            line.and_then(|count| count.trim().parse().ok()).unwrap_or(0)
        };
        read("comm").trim() == "doctor-pauses" && sleeps() >= SLEEPS
    })
}

#[test]
fn a_store_of_one_machine_is_to_be_mended_and_does_not_fail() {
    let mut place = Place::new("doctor-local");
    for url in [format!("sqlite:{}", place.text("election.db")), format!("file:{}", place.text("elections"))]
    {
        std::fs::create_dir_all(place.path("elections")).unwrap();
        let found = Found::on(&mut place, &url, &[]);
        found.expect(SURVIVES, "warn", "one machine");
        found.expect("the store can be used", "pass", "");
        found.expect("it refuses a write that names an old version", "pass", "100 times");
        found.ends(0);
    }
}

/// The answers of a service that does every request, and of a service that has seen a leader.
const DONE: &str = "HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n";
const STALE: &str =
    "HTTP/1.1 409 Conflict\r\nFencing-Token-Highest: 8\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";

/// A service that answers every request the same; the requests that reached it.
struct Service {
    address: SocketAddr,
    requests: std::sync::mpsc::Receiver<String>,
}

impl Service {
    fn start(answer: &'static str, tls: Option<ServerConfig>) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let (sender, requests) = std::sync::mpsc::channel();
        let tls = tls.map(Arc::new);
        std::thread::spawn(move || {
            while let Ok((stream, _)) = listener.accept() {
                let request = match &tls {
                    None => serve(stream, answer),
                    Some(tls) => {
                        let connection = ServerConnection::new(Arc::clone(tls)).unwrap();
                        serve(StreamOwned::new(connection, stream), answer)
                    }
                };
                if request.is_some_and(|request| sender.send(request).is_err()) {
                    return;
                }
            }
        });
        Self { address, requests }
    }

    /// Returns the next request to it. It records a request after it has answered it, so this waits for it.
    fn reached(&self) -> String {
        self.requests.recv_timeout(PATIENCE).expect("a request reaches the service").to_ascii_lowercase()
    }
}

/// Reads the head of a request, and answers.
fn serve(mut stream: impl std::io::Read + std::io::Write, answer: &str) -> Option<String> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte).ok()?;
        head.push(byte[0]);
    }
    stream.write_all(answer.as_bytes()).ok()?;
    stream.flush().ok()?;
    String::from_utf8(head).ok()
}

#[test]
fn a_service_that_lets_a_stale_write_in_fails_and_one_behind_the_fence_passes() {
    let mut place = Place::new("doctor-service");
    let store = format!("sqlite:{}", place.text("election.db"));
    let service = Service::start(DONE, None);
    let open = format!("http://{}/orders/1", service.address);
    let found = Found::on(&mut place, &store, &["--resource", &open]);
    // A GET writes nothing, so nothing follows from its being let in.
    found.expect(RESOURCE, "unknown", "GET /orders/1");
    found.ends(0);
    let request = service.reached();
    assert!(request.starts_with("get /orders/1 ") && request.contains("fencing-token: 0\r\n"), "{request}");
    // What may be a secret is sent, and not shown.
    place.set("SERVICE", &format!("{open}?api_key=qxz"));
    let found = Found::on(&mut place, &store, &["--resource", "env:SERVICE"]);
    found.expect(RESOURCE, "unknown", "GET /orders/1 with");
    assert!(!format!("{found:?}").contains("qxz"), "{found:?}");
    assert!(service.reached().starts_with("get /orders/1?api_key=qxz "));
    let found = Found::on(&mut place, &store, &["--resource", &open, "--resource-method", "PUT"]);
    found.expect(RESOURCE, "fail", "PUT /orders/1");
    found.ends(1);

    let args =
        ["fence", "proxy", "--listen", "127.0.0.1:0", "--state", "e.fence", "--election", "e", "--json"];
    let upstream = format!("http://{}", service.address);
    let proxy = Node::start(&place, "proxy", &strings(&[&args[..], &["--upstream", &upstream]].concat()));
    let address = proxy.told.wait_for_event("listening")["address"].as_str().unwrap().to_owned();
    // A leader writes, through the proxy. Its header stands where the path ends.
    let write = |token: u64| {
        let path = format!("/orders/1 HTTP/1.1\r\nFencing-Token: {token}\r\nX-Rest:");
        let (head, _) = get(&address, "PUT", &path);
        assert!(head.starts_with("HTTP/1.1 204"), "{head}");
    };
    let reached = |token: u64| {
        let request = service.reached();
        let expected = format!("fencing-token: {token}\r\n");
        assert!(request.starts_with("put /orders/1 ") && request.contains(&expected), "{request}");
    };
    reached(0);
    write(7);
    reached(7);
    for method in ["GET", "PUT"] {
        let guarded = format!("http://{address}/orders/1");
        let found = Found::on(&mut place, &store, &["--resource", &guarded, "--resource-method", method]);
        found.expect(RESOURCE, "pass", "the highest token there is 7");
        found.ends(0);
    }
    // Nothing stale has reached it in between.
    write(8);
    reached(8);
}

#[test]
fn a_service_is_asked_over_tls_by_whom_trusts_its_certificate() {
    let mut place = Place::new("doctor-tls");
    let store = format!("sqlite:{}", place.text("election.db"));
    let authority = Authority::new();
    replace(&place, "ca.pem", &authority.pem);
    authority.issue(&place, "service", "localhost", NOW);
    let chain = vec![CertificateDer::from_pem_file(place.path("service.pem")).unwrap()];
    let key = PrivateKeyDer::from_pem_file(place.path("service.key")).unwrap();
    let provider = Arc::new(crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let config = config.with_no_client_auth().with_single_cert(chain, key).unwrap();
    let service = Service::start(STALE, Some(config));
    let resource = format!("https://localhost:{}/orders", service.address.port());
    let found = Found::on(&mut place, &store, &["--resource", &resource]);
    found.expect(RESOURCE, "unknown", "certificate");
    place.set("SSL_CERT_FILE", &place.text("ca.pem"));
    let found = Found::on(&mut place, &store, &["--resource", &resource]);
    found.expect(RESOURCE, "pass", "the highest token there is 8");
    assert!(service.reached().starts_with("get /orders "));
}

const LATE_WORK: &str = "the late work of a leader that was paused past its lease";

/// The lease of a drill, which has to run out.
const DRILL_LEASE: &str = "2s";

/// Writes its token again and again. When a higher one is there, it writes once more, for it does not know better, and ends as that
/// write did.
const JOB: &str = r#"
show
highest() { sort -n ledger 2> /dev/null | tail -n 1; }
while highest=$(highest); [ "${highest:-0}" -le "$PRIMACY_TOKEN" ]; do write; sleep 0.1; done
write
"#;

/// Returns the drill's findings for a job with these functions `show` and `write`, and the tokens in the
/// order in which they were written.
fn drill(place: &Place, functions: &str, more: &[&str]) -> (Found, Vec<u64>) {
    let job = place.text("job.sh");
    std::fs::write(&job, [functions, JOB].concat()).unwrap();
    let url = format!("sqlite:{}", place.text("election.db"));
    let mut args = strings(&["doctor", "--json", "--store", &url, "--lease", DRILL_LEASE, "--drill"]);
    args.extend(strings(more));
    args.extend(strings(&["--", "bash", &job]));
    let found = Found::of(&place.output(&args));
    let ledger = std::fs::read_to_string(place.path("ledger")).unwrap();
    let tokens: Vec<u64> = ledger.lines().map(|token| token.parse().unwrap()).collect();
    assert!(tokens.iter().any(|token| *token != tokens[0]), "both have written: {tokens:?}");
    (found, tokens)
}

#[test]
fn a_drill_passes_where_the_late_write_was_refused_for_its_token() {
    let place = Place::new("drill-guarded");
    let write = format!(
        "show() {{ :; }}; write() {{ {} fence exec --state fence -- sh -c 'echo $PRIMACY_TOKEN >> ledger'; }}",
        primacy_testbed::primacy()
    );
    let (found, tokens) = drill(&place, &write, &[]);
    found.expect(LATE_WORK, "pass", "76");
    found.ends(0);
    assert!(tokens.is_sorted(), "{tokens:?}");
}

/// The late write is done, and the command ends in order: only the resource could have known.
#[test]
fn a_drill_never_passes_because_the_command_has_ended() {
    let mut place = Place::new("drill-open");
    let service = Service::start(DONE, None);
    let args =
        ["fence", "proxy", "--listen", "127.0.0.1:0", "--state", "e.fence", "--election", "e", "--json"];
    let upstream = format!("http://{}", service.address);
    let proxy = Node::start(&place, "proxy", &strings(&[&args[..], &["--upstream", &upstream]].concat()));
    let address = proxy.told.wait_for_event("listening")["address"].as_str().unwrap().to_owned();
    place.set("PROXY", &address.replace(':', "/"));
    let functions = r#"
show() {
    exec 3<> "/dev/tcp/$PROXY"
    printf 'PUT / HTTP/1.1\r\nHost: h\r\nFencing-Token: %s\r\nContent-Length: 0\r\nConnection: close\r\n\r\n' "$PRIMACY_TOKEN" >&3
    grep -q 204 <&3
}
write() { echo "$PRIMACY_TOKEN" >> ledger; }
"#;
    let (guarded, open) = (format!("http://{address}/"), format!("{upstream}/"));
    let resources = ["--resource-method", "PUT", "--resource", &guarded, "--resource", &open];
    let (found, tokens) = drill(&place, functions, &resources);
    assert!(!tokens.is_sorted(), "the late write was done: {tokens:?}");
    found.expect(LATE_WORK, "unknown", "ended by itself");
    found.expect(LATE_WORK, "unknown", "status: 0");
    let checks = found.told["checks"].as_array().unwrap();
    let verdicts: Vec<&str> = checks.iter().map(|check| check["verdict"].as_str().unwrap()).collect();
    assert_eq!(verdicts, ["unknown", "pass", "fail"], "{:#}", found.told);
    let second = tokens.iter().max().unwrap();
    found.expect(RESOURCE, "pass", &format!("the highest token there is {second}"));
    found.ends(1);
}

#[test]
fn what_is_no_resource_is_a_wrong_command_line() {
    let place = Place::new("doctor-usage");
    let url = format!("sqlite:{}", place.text("election.db"));
    for (more, part) in [
        (&["--resource", "sqlite:x"][..], "#TABLE"),
        (&["--resource", "postgres://u:secret@h/d#t"], "password"),
        (&["--resource", "http://h/", "--resource-method", "A B"], "resource-method"),
        (&["--watch", "1ms"], "--watch"),
    ] {
        let output = place.output(&[&["doctor", "--store", &url][..], more].concat());
        assert_eq!(output.status.code(), Some(64), "{more:?}");
        assert!(stderr(&output).contains(part) && !stderr(&output).contains("secret"), "{}", stderr(&output));
    }
    let help = Command::new(primacy_testbed::primacy()).args(["doctor", "--help"]).output().unwrap();
    let help = primacy_testbed::stdout(&help);
    for part in ["rolled back", "Fencing-Token: 0", "primacy.probe", "--resource-method", "never as passed"] {
        assert!(help.contains(part), "{part}: {help}");
    }
}
