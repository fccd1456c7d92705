//! Credentials in files that are replaced while a store is open: the next request shows the new ones.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::mpsc;

use primacy_stores::object;

/// A server that reports the head of each request, and has no objects.
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

    /// The heads of the requests since this was called last.
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
    let (store, prefix) = primacy_stores::object_store_at(&url).unwrap();
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

#[tokio::test]
async fn an_api_server_is_shown_each_kind_of_credentials_and_whom_to_act_as() {
    let server = Server::start();
    let file = place("kubeconfig-kinds");
    let url = format!("kubernetes://?kubeconfig={}", file.display());
    let open = async |user: &str, cluster: &str| {
        let text = format!(
            "clusters:\n- name: c\n  cluster:\n    server: http://{}/base/\n{cluster}\
             users:\n- name: u\n  user:\n{user}\
             contexts:\n- name: x\n  context:\n    cluster: c\n    user: u\n    namespace: jobs\n\
             current-context: x\n",
            server.address
        );
        replace(&file, &text);
        primacy_stores::open(&url, "e").await.map(drop)
    };
    let provider = "    auth-provider: {name: oidc, config: {id-token: s3cret}}\n";
    let acting = "    as: jane\n    as-groups: [a, b]\n    as-user-extra: {x/Y: [z]}\n    tokenFile:\n";
    for (user, shown) in [
        ("    username: a\n    password: b\n    token: c\n", &["authorization: Basic YTpi"][..]),
        (provider, &["authorization: Bearer s3cret"]),
        (
            acting,
            &[
                "impersonate-user: jane",
                "impersonate-group: a",
                "impersonate-group: b",
                "impersonate-extra-x%2fy: z",
            ],
        ),
    ] {
        open(user, "").await.unwrap();
        let seen = server.shown();
        assert!(
            seen.starts_with("GET /base/apis/coordination.k8s.io/v1/namespaces/jobs/leases/e "),
            "{seen}"
        );
        assert!(shown.iter().all(|line| seen.contains(line)), "{seen}");
    }
    let gcp = "    auth-provider: {name: gcp, config: {access-token: s3cret}}\n";
    for (user, cluster, says) in [
        (gcp, "", "exec"),
        ("    token: \"s3cret\\u0001\"\n", "", "letters"),
        ("    token: a\n", "    proxy-url: http://u:s3cret@proxy:1\n", "proxy proxy:1"),
        ("    client-key-data: s3cret\n", "", "Base64"),
    ] {
        let refused = open(user, cluster).await.err().unwrap().to_string();
        assert!(refused.contains(says) && !refused.contains("s3cret"), "{refused}");
        assert_eq!(server.shown(), "");
    }
    fs::remove_file(file).unwrap();
}

/// A kubeconfig may name a program that is run, and its files name the trusted authorities.
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

/// Writes a kubeconfig whose user has this program, and returns the URL of its store.
fn url_with_program(server: &Server, file: &Path, exec: &str) -> String {
    let address = &server.address;
    let exec = format!("apiVersion: client.authentication.k8s.io/v1, interactiveMode: Never, {exec}");
    let text = format!(
        "clusters: [{{name: c, cluster: {{server: \"http://{address}\"}}}}]\n\
         users: [{{name: u, user: {{exec: {{{exec}}}}}}}]\n\
         contexts: [{{name: x, context: {{cluster: c, user: u}}}}]\ncurrent-context: x\n"
    );
    replace(file, &text);
    fs::set_permissions(file, fs::Permissions::from_mode(0o600)).unwrap();
    format!("kubernetes://default?kubeconfig={}", file.display())
}

#[tokio::test]
async fn an_api_server_is_shown_the_token_of_the_program_that_the_kubeconfig_names() {
    let server = Server::start();
    let (file, script, count) = (place("kubeconfig-exec"), place("exec"), place("exec-count"));
    let until = |until: &str| format!(r#","expirationTimestamp":"{until}""#);
    for (until, shown) in [
        (until("2001-02-03T04:05:06Z"), ["Bearer 1", "Bearer 2"]),
        (until("2901-02-03T04:05:06Z"), ["Bearer 1", "Bearer 1"]),
        (String::new(), ["Bearer 1", "Bearer 1"]),
    ] {
        // Its token is the number of its runs.
        let count = count.display();
        let text = format!(
            "echo $KUBERNETES_EXEC_INFO >> {count}\n\
             printf '{{\"status\":{{\"token\":\"%s\"{until}}}}}' $(wc -l < {count})\n"
        );
        replace(&script, &text);
        let url = url_with_program(&server, &file, &format!("command: sh, args: [{}]", script.display()));
        let register = primacy_stores::open(&url, "e").await.unwrap();
        let first = server.shown();
        assert!(first.contains(shown[0]), "{until}: {first}");
        assert_eq!(register.read().await, Ok(None));
        let second = server.shown();
        assert!(second.contains(shown[1]), "{until}: {second}");
        let told = fs::read_to_string(place("exec-count")).unwrap();
        assert!(
            told.contains(r#""kind":"ExecCredential""#) && told.contains(r#""interactive":false"#),
            "{told}"
        );
        drop(register);
        fs::remove_file(place("exec-count")).unwrap();
    }
    fs::remove_file(file).unwrap();
    fs::remove_file(script).unwrap();
}

#[tokio::test]
async fn a_program_that_others_can_change_is_not_run() {
    let server = Server::start();
    let (file, program, ran) = (place("kubeconfig-plug"), place("plug"), place("plug-ran"));
    fs::write(&program, format!("#!/bin/sh\necho ran >> {}\n", ran.display())).unwrap();
    let exec = format!("command: {}", program.display());
    let refused = async || {
        let url = url_with_program(&server, &file, &exec);
        primacy_stores::open(&url, "e").await.err().unwrap().to_string()
    };
    fs::set_permissions(&program, fs::Permissions::from_mode(0o775)).unwrap();
    let why = refused().await;
    assert!(why.contains("plug") && why.contains("is not run: others may change it"), "{why}");
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    if fs::metadata("/proc/self").unwrap().uid() == 0 {
        std::os::unix::fs::chown(&program, Some(65534), None).unwrap();
        let why = refused().await;
        assert!(why.contains("is not run: it belongs to the user nobody (65534)"), "{why}");
        // Root's own file, in a directory of that user's, who could exchange it.
        let theirs = place("plug-dir");
        fs::create_dir(&theirs).unwrap();
        fs::copy(&program, theirs.join("plug")).unwrap();
        std::os::unix::fs::chown(&theirs, Some(65534), None).unwrap();
        let url = url_with_program(&server, &file, &format!("command: {}", theirs.join("plug").display()));
        let why = primacy_stores::open(&url, "e").await.err().unwrap().to_string();
        assert!(
            why.contains("belongs to the user nobody (65534), who could put another file there"),
            "{why}"
        );
        fs::remove_dir_all(theirs).unwrap();
    } else {
        // Not by a macro: output of a test by macros is not shown when it passes.
        let _ = std::io::stderr().write_all(b"NOT RUN: files of another user, which take root\n");
    }
    assert!(!ran.exists() && server.shown().is_empty());
    for path in [file, program] {
        fs::remove_file(path).unwrap();
    }
}

#[tokio::test]
async fn a_program_is_bounded_in_what_it_prints_and_ends_with_who_waits_for_it() {
    let server = Server::start();
    let (file, started) = (place("kubeconfig-bounds"), place("exec-started"));
    let url = url_with_program(&server, &file, "command: sh, args: ['-c', 'yes']");
    let why = primacy_stores::open(&url, "e").await.err().unwrap().to_string();
    assert!(why.contains("longer than 1048576 bytes"), "{why}");
    // A program that hangs, with a process of its own.
    let script = format!("sleep 1000 & echo $$ $! > {0}.new; mv {0}.new {0}; wait", started.display());
    let url = url_with_program(&server, &file, &format!("command: sh, args: ['-c', '{script}']"));
    let opening = tokio::spawn(async move { primacy_stores::open(&url, "e").await.map(drop) });
    let began = async |what: &str, holds: &dyn Fn() -> bool| {
        let waiting = async {
            while !holds() {
                tokio::time::sleep(std::time::Duration::from_millis(20)).await;
            }
        };
        tokio::time::timeout(std::time::Duration::from_secs(60), waiting).await.expect(what);
    };
    began("it has started", &|| started.exists()).await;
    opening.abort();
    let pids = fs::read_to_string(&started).unwrap();
    let is_alive = |pid: &str| {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        stat.rsplit_once(") ").is_some_and(|(_, state)| !state.starts_with('Z'))
    };
    began("both are killed", &|| !pids.split_whitespace().any(is_alive)).await;
    assert_eq!(server.shown(), "");
    fs::remove_file(file).unwrap();
    fs::remove_file(started).unwrap();
}
