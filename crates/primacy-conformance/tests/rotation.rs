//! Credentials in files that are replaced while a store is open: the next request shows the new ones.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::mpsc;

use primacy_stores::object;

/// A server that tells the head of each request, and has nothing.
struct Server {
    address: String,
    heads: mpsc::Receiver<String>,
}

impl Server {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let (tell, heads) = mpsc::channel();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let tell = tell.clone();
                std::thread::spawn(move || answer(stream.unwrap(), &tell));
            }
        });
        Self { address, heads }
    }

    /// What the requests have shown since this was asked last.
    fn shown(&self) -> String {
        self.heads.try_iter().collect()
    }
}

/// Answers each request of a connection that the object or Lease that it names is not there.
fn answer(mut stream: TcpStream, tell: &mpsc::Sender<String>) {
    let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
    loop {
        let head: Vec<String> =
            lines.by_ref().map_while(Result::ok).take_while(|line| !line.is_empty()).collect();
        let Some(first) = head.first() else { return };
        let path = first.split(' ').nth(1).unwrap();
        let name = path.rsplit('/').next().unwrap();
        let body = format!(r#"{{"kind":"Status","code":404,"details":{{"name":"{name}"}}}}"#);
        let length = body.len();
        let answer = format!(
            "HTTP/1.1 404 Not Found\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}"
        );
        if tell.send(head.join("\n")).is_err() || stream.write_all(answer.as_bytes()).is_err() {
            return;
        }
    }
}

fn place(name: &str) -> PathBuf {
    std::env::temp_dir().join(format!("primacy-rotation-{name}-{}", std::process::id()))
}

/// Replaces a file as an operator does.
fn replace(path: &Path, text: &str) {
    let beside = path.with_extension("new");
    fs::write(&beside, text).unwrap();
    fs::rename(beside, path).unwrap();
}

#[tokio::test]
async fn an_object_store_shows_the_credentials_that_are_in_its_file() {
    let server = Server::start();
    let file = place("s3");
    let write = |key: &str| {
        replace(
            &file,
            &format!("[default]\naws_access_key_id = {key}\naws_secret_access_key = secret-of-{key}\n"),
        );
    };
    write("FIRST");
    let url = format!("s3://bucket/prefix?endpoint=http://{}&credentials={}", server.address, file.display());
    let (store, prefix) = object::store(&url).unwrap();
    let path = object::object_store::path::Path::from(prefix);
    for key in ["FIRST", "SECOND"] {
        write(key);
        assert!(store.get_opts(&path, Default::default()).await.is_err());
        let shown = server.shown();
        assert!(shown.contains(&format!("Credential={key}/")), "{shown}");
    }
    fs::remove_file(file).unwrap();
}

#[tokio::test]
async fn an_api_server_is_shown_what_the_kubeconfig_and_the_files_that_it_names_hold() {
    let server = Server::start();
    let (file, token) = (place("kubeconfig"), place("token"));
    let write = |user: &str| {
        let address = &server.address;
        let text = format!(
            "clusters: [{{name: c, cluster: {{server: \"http://{address}\"}}}}]\n\
             users: [{{name: u, user: {{{user}}}}}]\n\
             contexts: [{{name: x, context: {{cluster: c, user: u}}}}]\ncurrent-context: x\n"
        );
        replace(&file, &text);
    };
    write("token: first");
    let url = format!("kubernetes://default?kubeconfig={}", file.display());
    let register = primacy_stores::open(&url, "e").await.unwrap();
    assert!(server.shown().contains("Bearer first"));
    let read = async || {
        assert_eq!(register.read().await, Ok(None));
        server.shown()
    };
    write("token: second");
    assert!(read().await.contains("Bearer second"));
    // A broken one changes nothing.
    replace(&file, "nonsense");
    assert!(read().await.contains("Bearer second"));
    replace(&token, "third");
    write(&format!("tokenFile: {}", token.display()));
    assert!(read().await.contains("Bearer third"));
    replace(&token, "fourth");
    assert!(read().await.contains("Bearer fourth"));
    fs::remove_file(file).unwrap();
    fs::remove_file(token).unwrap();
}

/// A kubeconfig may name a program that is run, and the files that it names say who is trusted.
#[tokio::test]
async fn a_kubeconfig_that_others_can_change_is_not_used_nor_one_that_names_such_a_file() {
    let server = Server::start();
    let (file, named) = (place("kubeconfig-open"), place("named-open"));
    fs::write(&named, "").unwrap();
    let address = &server.address;
    let set_mode = |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    let url = format!("kubernetes://default?kubeconfig={}", file.display());
    for (cluster, user, opened) in [
        ("", "", &file),
        ("certificate-authority", "", &named),
        ("", "client-certificate", &named),
        ("", "client-key", &named),
        ("", "tokenFile", &named),
    ] {
        let of = |key: &str| match key {
            "" => String::new(),
            key => format!("{key}: {}", named.display()),
        };
        replace(
            &file,
            &format!(
                "clusters: [{{name: c, cluster: {{server: \"http://{address}\", {}}}}}]\n\
                 users: [{{name: u, user: {{{}}}}}]\n\
                 contexts: [{{name: x, context: {{cluster: c, user: u}}}}]\ncurrent-context: x\n",
                of(cluster),
                of(user)
            ),
        );
        for path in [&file, &named] {
            set_mode(path, if path == opened { 0o622 } else { 0o600 });
        }
        let refused = primacy_stores::open(&url, "e").await.err().unwrap().to_string();
        let why = format!("{} is not used: others may change it", opened.display());
        assert!(refused.contains(&why), "{cluster}{user}: {refused}");
        assert_eq!(server.shown(), "");
    }
    fs::remove_file(file).unwrap();
    fs::remove_file(named).unwrap();
}
