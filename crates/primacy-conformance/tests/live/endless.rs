//! Servers whose answers have no end: no more is read of one than is of use, and little of it is reported.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use primacy_conformance::live::Ground;
use primacy_stores::{OpenError, error_text, open_any};

/// The most that a connection may take of an answer without end: far more than any store reads, for the kernel's buffers on both sides.
const TAKEN_MAX: u64 = 24 << 20;

/// The time to wait for something that must come.
const PATIENCE: Duration = Duration::from_secs(60);

/// A server that answers any request with a beginning, and then with one piece after another.
struct Endless {
    port: u16,
    /// The number of bytes that each ended connection has taken.
    taken: Arc<Mutex<Vec<u64>>>,
}

impl Endless {
    fn start(beginning: &'static [u8], piece: &[u8]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let taken: Arc<Mutex<Vec<u64>>> = Arc::default();
        let (noted, piece) = (Arc::clone(&taken), piece.repeat((1 << 16) / piece.len()));
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let (noted, piece) = (Arc::clone(&noted), piece.clone());
                std::thread::spawn(move || {
                    let count = flood(stream, beginning, &piece);
                    noted.lock().unwrap_or_else(PoisonError::into_inner).push(count);
                });
            }
        });
        Self { port, taken }
    }

    fn taken(&self) -> Vec<u64> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Answers until the other side closes; returns the number of bytes that it has taken.
fn flood(mut stream: TcpStream, beginning: &[u8], piece: &[u8]) -> u64 {
    let mut asked = [0; 1 << 14];
    if !stream.read(&mut asked).is_ok_and(|length| length > 0) || stream.write_all(beginning).is_err() {
        return 0;
    }
    let mut count = 0;
    // Even without a limit on the other side it ends somewhere.
    while count < 8 * TAKEN_MAX && stream.write_all(piece).is_ok() {
        count += piece.len() as u64;
    }
    let _ = stream.shutdown(Shutdown::Both);
    count
}

#[tokio::test]
async fn no_answer_is_read_without_a_bound_and_no_error_shows_more_than_may_be_shown() {
    let files = Ground::new("endless");
    let credentials = files.at("credentials");
    std::fs::write(&credentials, "aws_access_key_id = a\naws_secret_access_key = b\n").unwrap();
    let redis = |port| format!("redis://127.0.0.1:{port}/p");
    let consul = |port| format!("consul://127.0.0.1:{port}/p");
    let s3 =
        |port| format!("s3://b/p?endpoint=http://127.0.0.1:{port}&credentials={}", credentials.display());
    let kubernetes = |port| {
        let path = files.at(&format!("kubeconfig-{port}"));
        let text = format!(
            r#"{{"apiVersion": "v1", "kind": "Config", "current-context": "c",
                "clusters": [{{"name": "c", "cluster": {{"server": "http://127.0.0.1:{port}"}}}}],
                "users": [{{"name": "c", "user": {{}}}}],
                "contexts": [{{"name": "c", "context": {{"cluster": "c", "user": "c"}}}}]}}"#
        );
        std::fs::write(&path, text).unwrap();
        format!("kubernetes://n?kubeconfig={}", path.display())
    };
    type Url<'a> = &'a dyn Fn(u16) -> String;
    let postgres = |port| format!("postgres://u:p@127.0.0.1:{port}/d?sslmode=disable");
    let table: [(Url<'_>, &[u8], &[u8]); 14] = [
        (&redis, b"$536870912\r\n", b"x"),
        (&redis, b"-ERR ", b"x"),
        (&redis, b"+", b"x"),
        (&redis, b"*1000000000\r\n", b":1\r\n"),
        (&redis, b"", b"+OK\r\n"),
        (&redis, b"", b">3\r\n$7\r\nmessage\r\n$9\r\np:changed\r\n$3\r\n1 e\r\n"),
        (&consul, b"HTTP/1.1 200 OK\r\n\r\n", b"x"),
        (&consul, b"HTTP/1.1 500 x\r\n\r\n", b"x"),
        (&s3, b"HTTP/1.1 500 x\r\n\r\n", b"x"),
        (&s3, b"HTTP/1.1 200 OK\r\n", b"a: b\r\n"),
        (&kubernetes, b"HTTP/1.1 403 x\r\n\r\n", b"x"),
        (&postgres, b"R\x7f\xff\xff\xff", b"x"),
        // Welcome, and then notices, or parameters of the session, without a request.
        (&postgres, b"R\0\0\0\x08\0\0\0\0", b"N\0\0\0\x0aMSAY\0\0"),
        (&postgres, b"R\0\0\0\x08\0\0\0\0Z\0\0\0\x05I", b"S\0\0\0\x0anew\0v\0"),
    ];
    for (url, beginning, piece) in table {
        let shown = String::from_utf8_lossy(beginning);
        let server = Endless::start(beginning, piece);
        let url = url(server.port);
        let opened = tokio::time::timeout(PATIENCE, open_any(&url, "e")).await.expect("an open has a bound");
        let error = opened.expect_err("nothing was answered");
        assert!(
            matches!(error, OpenError::Unavailable { .. } | OpenError::Refused { .. }),
            "{url}: {error:?}"
        );
        assert!(error.to_string().chars().count() <= error_text::LENGTH_MAX, "{url} {shown}");
        let taking = async {
            while server.taken().is_empty() {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::time::timeout(PATIENCE, taking).await.expect("the connection is given up");
        let taken = server.taken();
        assert!(taken.iter().all(|count| *count <= TAKEN_MAX), "{url} {shown}: {taken:?} ({error})");
    }
}
