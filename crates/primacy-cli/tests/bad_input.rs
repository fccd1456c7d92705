//! Bad input to `primacy run`: the message names the remedy, the exit code is right, no data is lost, and the command
//! is never run.

#![allow(clippy::unwrap_used, reason = "in a test, a panic is the message")]

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;
use std::process::Stdio;

use primacy_testbed::{Node, Place, peers, stderr, stdout, strings};
use rustix::process::{Signal, geteuid};

/// Runs `primacy run` with these options; it must end with this code and say all of this, and not run the command.
#[track_caller]
fn refused(place: &Place, options: &[&str], code: i32, says: &[&str]) {
    let mut args = strings(&["run", "--election", "e"]);
    args.extend(strings(options));
    args.extend(strings(&["--", "touch", "ran"]));
    check(place, &mut place.command(&args), code, says);
}

#[track_caller]
fn check(place: &Place, command: &mut Command, code: i32, says: &[&str]) {
    let output = command.output().unwrap();
    let said = stderr(&output);
    assert_eq!(output.status.code(), Some(code), "{command:?} said:\n{said}");
    for text in says {
        assert!(said.contains(text), "{text:?} is not in what {command:?} said:\n{said}");
    }
    assert!(!said.contains("panicked"), "{said}");
    assert!(!place.path("ran").exists(), "{command:?} ran its command");
}

#[test]
fn urls_that_are_none() {
    let place = Place::new("bad-urls");
    refused(&place, &["--store", "nonsense"], 64, &["no scheme", "sqlite:PATH"]);
    refused(&place, &["--store", "oracle://host/db"], 64, &["no store `oracle:`", "sqlite:PATH"]);
    refused(&place, &["--store", "sqlite:"], 64, &["needs a path"]);
    refused(&place, &["--store", "sqlite://host/file.db"], 64, &["names a host"]);
    refused(&place, &["--store", "sqlite:/no/such/directory/x.db"], 69, &["/no/such/directory"]);
    refused(
        &place,
        &["--store", "postgres://host:99999/db"],
        64,
        &["a port is", "postgres://USER:PASSWORD@HOST/DATABASE"],
    );
    refused(&place, &["--store", "env:NO_SUCH_VARIABLE"], 64, &["NO_SUCH_VARIABLE"]);
}

#[test]
fn a_password_on_the_command_line_is_refused_and_not_repeated() {
    let place = Place::new("bad-password");
    refused(&place, &["--store", "etcd://user:hunter2@host"], 64, &["--store env:"]);
    let output =
        place.output(&["run", "--election", "e", "--store", "etcd://user:hunter2@host", "--", "true"]);
    assert!(!stderr(&output).contains("hunter2"), "{}", stderr(&output));
}

#[test]
fn options_that_are_wrong_or_contradict_each_other() {
    let place = Place::new("bad-options");
    refused(&place, &["--no-such-option"], 64, &["--no-such-option"]);
    refused(&place, &["--lease", "10"], 64, &["250ms, 10s"]);
    refused(&place, &["--store", "sqlite:x.db", "--peers", "a=127.0.0.1:1"], 64, &["cannot be used with"]);
    refused(&place, &["--wait", "1s", "--no-wait"], 64, &["cannot be used with"]);
    refused(&place, &["--peers", "a=127.0.0.1:7400"], 64, &["--node"]);
    refused(&place, &["--peers", "a", "--node", "a"], 64, &["name=host:port"]);
    refused(&place, &["--peers", "a=127.0.0.1:7400", "--node", "b"], 78, &["not one of the peers (a)"]);
    refused(&place, &["--peers", "a=192.0.2.1:7400", "--node", "a"], 78, &["loopback"]);
    refused(&place, &["--node", "a b"], 64, &["letters, digits"]);
    refused(&place, &["--election", "../x"], 64, &["cannot be used multiple times"]);
    let output = place.output(&["run", "--election", "../x", "--", "true"]);
    assert_eq!(output.status.code(), Some(64), "{}", stderr(&output));
}

#[test]
fn timers_that_do_not_fit_together_are_all_in_one_message() {
    let place = Place::new("bad-timers");
    let timers = ["--lease", "1s", "--drain", "900ms", "--kill-margin", "200ms"];
    refused(&place, &timers, 78, &["lease of 1s", "drain 900ms", "kill margin 200ms", "lengthen the lease"]);
    let zero = ["--lease", "0s", "--drain", "1s"];
    refused(&place, &zero, 78, &["lease is zero", "renewal is zero", "must be longer", "one late answer"]);
}

#[test]
fn commands_that_cannot_run_are_refused_before_standing() {
    let place = Place::new("bad-commands");
    let run = |command: &str| place.command(&["run", "--election", "e", "--", command]);
    check(&place, &mut run("no-such-command-at-all"), 127, &["not found in PATH"]);
    check(&place, &mut run("/no/such/file"), 127, &["check the path"]);
    fs::write(place.path("text"), "just text").unwrap();
    check(&place, &mut run("./text"), 126, &["cannot be executed"]);
    check(&place, &mut run("/etc"), 126, &["cannot be executed"]);
    check(&place, &mut place.command(&["run", "--election", "e"]), 64, &["COMMAND"]);
    assert!(!place.path("state").exists(), "no election was begun");
}

/// The options of the only peer of an election, with its state in `dir`.
fn alone<'a>(peers: &'a str, dir: &'a str) -> Vec<&'a str> {
    vec!["--peers", peers, "--node", "a", "--state-dir", dir]
}

/// A state file as a node leaves it.
fn made_state(place: &Place, peers: &str, dir: &str) -> PathBuf {
    let mut args = strings(&["run", "--json", "--election", "e", "--lease", "200ms"]);
    args.extend(strings(&alone(peers, dir)));
    args.extend(strings(&["--", "true"]));
    let output = place.output(&args);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let files: Vec<PathBuf> = walk(PathBuf::from(dir))
        .into_iter()
        .filter(|file| fs::metadata(file).unwrap().len() > 4096)
        .collect();
    assert_eq!(files.len(), 1, "{files:?}");
    files[0].clone()
}

fn walk(dir: PathBuf) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    entries.flat_map(|path| if path.is_dir() { walk(path) } else { vec![path] }).collect()
}

#[test]
fn state_files_that_are_foreign_torn_or_damaged_are_left_as_they_are() {
    let place = Place::new("bad-state");
    let (peers, dir) = (peers(&["a"]), place.text("a"));
    let file = made_state(&place, &peers, &dir);
    let good = fs::read(&file).unwrap();

    let refuse = |bytes: &[u8], says: &[&str]| {
        fs::write(&file, bytes).unwrap();
        refused(&place, &alone(&peers, &dir), 74, says);
        assert_eq!(fs::read(&file).unwrap(), bytes, "it was left as it is");
    };
    refuse(b"somebody's notes", &["no state file", "left as it is"]);
    refuse(&vec![b'x'; good.len()], &["no state file"]);
    refuse(&good[..good.len() - 1], &["left as it is"]);
    let mut damaged = good.clone();
    for slot in [0, good.len() / 2] {
        damaged[slot + 40] ^= 1;
    }
    refuse(&damaged, &["damaged", "do not restore a copy"]);

    // Damage to the older of the two slots is survived, as that of a write that was torn is; to the newer one it is not.
    let mut args = strings(&["run", "--election", "e", "--lease", "200ms"]);
    args.extend(strings(&alone(&peers, &dir)));
    args.extend(strings(&["--", "true"]));
    let mut codes = [0, good.len() / 2].map(|slot| {
        let mut damaged = good.clone();
        damaged[slot + 40] ^= 1;
        fs::write(&file, &damaged).unwrap();
        place.output(&args).status.code()
    });
    codes.sort_unstable();
    assert_eq!(codes, [Some(0), Some(74)]);
}

#[test]
fn a_state_file_of_another_node_is_refused() {
    let place = Place::new("bad-copied-state");
    let both = peers(&["a", "b"]);
    let file = made_state(&place, &peers(&["a"]), &place.text("a"));
    assert_eq!(file.file_name().unwrap(), "e@a.state");
    let dir = place.path("b");
    fs::create_dir(&dir).unwrap();
    fs::copy(&file, dir.join("e@b.state")).unwrap();
    let options = ["--peers", &both, "--node", "b", "--state-dir", dir.to_str().unwrap()];
    refused(&place, &options, 74, &["belongs to the node \"a\"", "copied or renamed"]);
}

#[test]
fn a_state_that_may_not_be_read_is_refused() {
    let place = Place::new("bad-permissions");
    // What root may not read would not be noticed as root; so another user runs it, from where that one may.
    let program = place.copy_program(primacy_testbed::primacy(), "primacy");
    fs::set_permissions(place.path("."), fs::Permissions::from_mode(0o755)).unwrap();
    let dir = place.path("locked");
    fs::create_dir(&dir).unwrap();
    fs::set_permissions(&dir, fs::Permissions::from_mode(0o000)).unwrap();
    let mut command = Command::new(&program);
    place.prepare(&mut command);
    let peers = peers(&["a"]);
    command
        .args(["run", "--election", "e"])
        .args(alone(&peers, dir.to_str().unwrap()))
        .args(["--", "touch", "ran"]);
    if geteuid().is_root() {
        command.uid(65_534).gid(65_534);
    }
    check(&place, &mut command, 74, &["must be readable and writable"]);
    fs::set_permissions(&dir, fs::Permissions::from_mode(0o700)).unwrap();
}

#[test]
fn a_port_in_use_is_named() {
    let place = Place::new("bad-port");
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let (peers, dir) = (format!("a={address}"), place.text("a"));
    refused(&place, &alone(&peers, &dir), 69, &[&address, "in use"]);
}

#[test]
fn a_second_process_of_the_same_node_is_refused_and_the_first_goes_on() {
    let place = Place::new("bad-second");
    let (peers, dir) = (peers(&["a"]), place.text("a"));
    let in_store = ["--node", "me", "--store", "sqlite:e.db"];
    for options in [alone(&peers, &dir), in_store.to_vec()] {
        let mut args = strings(&["run", "--json", "--election", "e"]);
        args.extend(strings(&options));
        args.extend(strings(&["--", "sleep", "1000"]));
        let mut first = Node::start(&place, "first", &args);
        first.told.wait_for_event("started");
        let pid = first.supervisor().as_raw_nonzero().get().to_string();
        refused(&place, &options, 73, &["is already running", &pid, "--node"]);
        assert!(first.leads() && primacy_testbed::table::is_alive(first.job().unwrap()));
        first.signal(Signal::TERM);
        assert_eq!(first.wait().code(), Some(143));
    }
}

#[test]
fn a_second_process_that_cannot_see_the_first_meets_its_lock() {
    let place = Place::new("bad-locked");
    let (peers, dir) = (peers(&["a"]), place.text("a"));
    let file = made_state(&place, &peers, &dir);
    // The first node might be in another container, whose processes cannot be seen from here.
    let lock = |file: &PathBuf| {
        let lock = fs::File::open(file).unwrap();
        rustix::fs::flock(&lock, rustix::fs::FlockOperation::NonBlockingLockExclusive).unwrap();
        lock
    };
    let start = PathBuf::from(&dir).join(".control-lock");
    let _state: Vec<fs::File> =
        walk(PathBuf::from(&dir)).iter().filter(|file| **file != start).map(lock).collect();
    refused(&place, &alone(&peers, &dir), 73, &[file.file_name().unwrap().to_str().unwrap(), "in use"]);
    // Nor is one waited for that was paused while it started.
    let _start = lock(&start);
    refused(&place, &alone(&peers, &dir), 73, &[".control-lock", "in use", "is that process paused?"]);
}

#[test]
fn a_file_that_is_no_database_is_left_as_it_is() {
    let place = Place::new("bad-database");
    let file = place.path("notes.txt");
    fs::write(&file, "somebody's notes, longer than nothing\n".repeat(40)).unwrap();
    let before = fs::read(&file).unwrap();
    refused(&place, &["--store", "sqlite:notes.txt"], 74, &["notes.txt"]);
    assert_eq!(fs::read(&file).unwrap(), before);
}

#[test]
fn a_full_disk_means_no_vote_and_no_lead() {
    let place = Place::new("bad-full");
    let full = place.path("full");
    fs::create_dir(&full).unwrap();
    let peers = peers(&["a"]);
    // A file system of four pages, all of them filled, in a mount namespace of its own; that needs no privileges
    // where users may have namespaces.
    for (options, code, says) in [
        (format!("--peers {peers} --node a --state-dir {}/a", full.display()), 74, "make room"),
        (format!("--state-dir {}/b", full.display()), 69, "full"),
    ] {
        let mount = format!(
            "mount -t tmpfs -o size=16k none {0} && mkdir {0}/a {0}/b && \
             dd if=/dev/zero of={0}/fill bs=4096 count=4 2>/dev/null; exec {1} run --election e {options} -- touch ran",
            full.display(),
            primacy_testbed::primacy(),
        );
        let mut command = Command::new("unshare");
        place.prepare(&mut command);
        command.args(["--user", "--map-root-user", "--mount", "sh", "-c", &mount]);
        check(&place, &mut command, code, &["full", says]);
    }
}

#[test]
fn a_store_within_one_process_is_refused() {
    let place = Place::new("bad-memory");
    refused(&place, &["--store", "memory:x"], 64, &["within one process", "sqlite:PATH"]);
}

#[test]
fn leases_that_no_machine_keeps_are_refused_with_all_else_that_is_wrong() {
    let place = Place::new("bad-tiny");
    let options = ["--lease", "1ms", "--kill-margin", "0s"];
    refused(&place, &options, 78, &["kill margin is zero", "shorter than 10ms"]);
}

#[test]
fn an_error_that_nobody_can_read_still_has_its_exit_code() {
    let place = Place::new("bad-stderr");
    let full = fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let mut command =
        place.command(&strings(&["run", "--election", "e", "--store", "bogus:x", "--", "true"]));
    assert_eq!(command.stderr(full).status().unwrap().code(), Some(64));
}

#[test]
fn what_cannot_be_printed_is_no_success() {
    let place = Place::new("bad-stdout");
    let output = place.output(&["init", "--election", "e", "--store", "sqlite:e.db"]);
    assert!(output.status.success(), "{}", stderr(&output));
    for words in [
        "--help",
        "run --help",
        "completions bash",
        "config print --election e --store sqlite:e.db",
        "fence print --election e --table t",
        "init --election e --store sqlite:e.db",
        "status --election e --store sqlite:e.db --json",
    ] {
        let full = fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        let args: Vec<&str> = words.split(' ').collect();
        let output = place.command(&args).stdout(full).stderr(Stdio::piped()).output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{words}: {}", stderr(&output));
        assert!(stderr(&output).contains("the output cannot be written"), "{words}: {}", stderr(&output));
    }
}

#[test]
fn a_wrong_command_line_is_told_in_json_where_the_verb_speaks_it() {
    let place = Place::new("bad-json");
    let told = |words: &str, variable: &str| {
        let args: Vec<&str> = words.split(' ').collect();
        let output = place.command(&args).env("PRIMACY_JSON", variable).output().unwrap();
        assert_eq!(output.status.code(), Some(64), "{words}");
        let text = stderr(&output);
        let line: serde_json::Value =
            serde_json::from_str(&text).unwrap_or_else(|_| panic!("{words}: {text}"));
        assert_eq!((&line["event"], &line["exit_code"]), (&"failed".into(), &64.into()), "{line}");
        assert!(!line["reason"].as_str().unwrap().starts_with("error"), "{line}");
    };
    for words in
        ["who --json", "status --election m --json --bogus", "run --json --lease x -- true --json=false"]
    {
        told(words, "");
    }
    told("run --election e --lease 5x -- true", "true");
}

#[test]
fn a_record_of_another_brings_no_lines_of_its_own() {
    let place = Place::new("bad-record");
    let who = ["status", "--election", "n", "--store", "file:fs"];
    assert!(place.output(&["init", "--election", "n", "--store", "file:fs"]).status.success());
    let record = place.path("fs/n.election/record");
    let text = fs::read_to_string(&record).unwrap();
    let mut kept: serde_json::Value = serde_json::from_str(text.split_once('\n').unwrap().1).unwrap();
    let address = "h:1\nn: b leads: it has renewed";
    kept["holder"] =
        serde_json::json!({ "node": "x", "count": 1, "nonce": "00000000000000aa", "address": address });
    fs::write(&record, format!("primacy-file 1 handw1 n\n{kept}")).unwrap();
    let output = place.output(&who);
    let text = stdout(&output);
    assert!(text.contains("\\nn: b leads"), "{text}{}", stderr(&output));
    assert!(!text.lines().any(|line| line.starts_with("n: b")), "{text}");
}

#[test]
fn a_missing_interpreter_is_named() {
    let place = Place::new("bad-interpreter");
    let script = place.path("script");
    fs::write(&script, "#!/no/such/interpreter\n").unwrap();
    fs::set_permissions(&script, PermissionsExt::from_mode(0o755)).unwrap();
    let script = script.to_str().unwrap();
    let mut command = place.command(&strings(&["run", "--election", "e", "--", script]));
    check(&place, &mut command, 127, &[script, "interpreter"]);
}
