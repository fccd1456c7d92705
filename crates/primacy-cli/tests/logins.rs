//! A login in the URL of a store appears in no output, whatever special characters it has, and is refused where other
//! users could read it.

#![allow(clippy::unwrap_used, reason = "in a test, a panic is the message")]

use std::fs;
use std::process::Output;

use primacy::core::rng::Rng;
use primacy_stores::STORES;
use primacy_stores::descriptor::Login;
use primacy_testbed::{Node, Place, peers, stderr, stdout, strings};
use rustix::process::Signal;

/// Letters that are in nothing that the command prints.
const LETTERS: [&str; 6] = ["Q", "X", "Z", "7", "9", "3"];
const ODD: [&str; 14] = ["#", "?", "@", "/", "%", ":", "&", "=", "%23", "%zz", ",", "[", "]", "\u{e9}"];

/// The stores whose URLs name a host, and one that there is not.
fn schemes() -> Vec<(&'static str, Login)> {
    let on_hosts = STORES.iter().filter(|store| store.form.contains("://HOST"));
    on_hosts.map(|store| (store.scheme, store.login)).chain([("oracle", Login::Secret)]).collect()
}

/// A URL with a login, and the parts of that.
fn draw(rng: &mut Rng) -> (String, Vec<String>) {
    fn pick<T: Copy>(rng: &mut Rng, from: &[T]) -> T {
        from[usize::try_from(rng.up_to(from.len() as u64 - 1)).unwrap()]
    }
    let parts: Vec<String> = (0..3).map(|_| (0..5).map(|_| pick(rng, &LETTERS)).collect()).collect();
    let (scheme, login) = pick(rng, &schemes());
    let colon = if login == Login::UserIsPublic { ":" } else { pick(rng, &[":", ""]) };
    let login = format!("{}{colon}{}{}{}", parts[0], parts[1], pick(rng, &ODD), parts[2]);
    // Nothing listens there.
    (format!("{scheme}://{login}@127.0.0.1:1/d"), parts)
}

fn said(output: &Output) -> String {
    stdout(output) + &stderr(output)
}

/// Each verb that takes a URL; `URL` is replaced by it.
const VERBS: [&[&str]; 12] = [
    &["config", "check", "--election", "e", "--store", "URL"],
    &["config", "print", "--election", "e", "--store", "URL"],
    &["config", "check", "--election", "e", "--node", "a", "--peers", "URL"],
    &[
        "config",
        "check",
        "--election",
        "e",
        "--node",
        "a",
        "--peers",
        "a=h:1",
        "--algorithm",
        "bully",
        "--confirm",
        "URL",
    ],
    &["run", "--election", "e", "--store", "URL", "--", "true"],
    &["node", "--election", "e", "--store", "URL"],
    &["init", "--election", "e", "--store", "URL"],
    &["status", "--election", "e", "--store", "URL"],
    &["resign", "--election", "e", "--store", "URL"],
    &["doctor", "--election", "e", "--store", "URL"],
    &["doctor", "--resource", "URL#t"],
    &["fence", "install", "--store", "URL", "--election", "e", "--table", "t"],
];

#[test]
fn no_part_of_a_login_is_printed_by_any_verb() {
    let place = Place::new("logins");
    let mut rng = Rng::new(26);
    for round in 0..4 {
        for verb in VERBS {
            let (url, parts) = draw(&mut rng);
            let args: Vec<String> = verb.iter().map(|word| word.replace("URL", &url)).collect();
            let output = place.output(&args);
            assert!(!output.status.success(), "{round} {args:?}");
            let said = said(&output);
            for part in &parts {
                assert!(!said.contains(part), "of {url}, {verb:?} says: {said}");
            }
        }
    }
}

#[test]
fn no_part_of_a_login_in_the_environment_or_a_file_is_printed() {
    let place = Place::new("logins-hidden");
    let mut rng = Rng::new(27);
    for round in 0..8 {
        let (url, parts) = draw(&mut rng);
        let hidden = |said: &str, how: &str| {
            for part in &parts {
                assert!(!said.contains(part), "of {url}, {how} it is said: {said}");
            }
        };
        fs::write(place.path("node.toml"), format!("election = \"e\"\non = {url:?}\n")).unwrap();
        let output = place.output(&["config", "check", "--config", "node.toml"]);
        assert!(!output.status.success(), "{round} {url}: {}", said(&output));
        hidden(&said(&output), "in a file");
        let environment = |verb: &[&str]| place.command(verb).env("PRIMACY_STORE", &url).output().unwrap();
        for verb in [["config", "print", "--election", "e"], ["config", "check", "--election", "e"]] {
            hidden(&said(&environment(&verb)), "in a variable");
        }
        let who = ["status", "--election", "e", "--store", "env:PRIMACY_STORE"];
        hidden(&said(&environment(&who)), "in a variable");
        let output = place.command(&["config", "check"]).env("PRIMACY_PEERS", &url).output().unwrap();
        hidden(&said(&output), "in the wrong variable");
    }
}

/// The position of a key in the URL of a service is for that service to decide.
#[test]
fn a_services_key_and_login_are_taken_from_the_environment_only_and_not_printed() {
    let place = Place::new("logins-service");
    let on = format!("sqlite:{}", place.text("election.db"));
    let doctor = ["doctor", "--election", "e", "--watch", "1s", "--store", &on, "--resource"];
    for (url, shown) in [
        ("http://QXZ7:9XQ3@127.0.0.1:1/x", "GET /x with"),
        ("http://127.0.0.1:1/x?key=QXZ79XQ3", "GET /x with"),
        ("http://127.0.0.1:1/x?t%6Fken=QXZ79XQ3", "GET /x with"),
        ("http://127.0.0.1:1/x;jsessionid=QXZ79XQ3", "GET /x with"),
    ] {
        let refused = place.output(&[&doctor[..], &[url]].concat());
        assert_eq!(refused.status.code(), Some(64), "{}", said(&refused));
        let mut taken = place.command(&[&doctor[..], &["env:U"]].concat());
        let taken = said(&taken.env("U", url).output().unwrap());
        assert!(taken.contains(shown), "{url}: {taken}");
        for said in [said(&refused), taken] {
            assert!(!said.contains("QXZ7") && !said.contains("9XQ3"), "of {url} it says: {said}");
        }
    }
}

/// Everything that is logged, by this program or by its libraries.
#[test]
fn no_part_of_a_login_is_in_the_log_of_a_node_that_waits_for_its_store() {
    for json in [&["--json"][..], &[]] {
        let mut place = Place::new("logins-log");
        place.set("PRIMACY_STORE", "etcd://QXZ7:9XQ3@127.0.0.1:1/x");
        let args = [&["node", "--election", "e", "--node", "a"], json].concat();
        let within = strings(&["env", "PRIMACY_LOG=trace"]);
        let node = Node::start_within(&place, &within, "a", &strings(&args));
        let opened = || node.told.all().iter().filter(|line| line.contains("cannot be opened yet")).count();
        primacy_testbed::wait_until("word of the store", || opened() > 0);
        let said = node.told.all().join("\n");
        assert!(!said.contains("QXZ7") && !said.contains("9XQ3"), "{said}");
    }
}

/// The mark of a job is in its environment, which others may be shown.
#[test]
fn the_mark_of_a_job_does_not_depend_on_the_url_alone() {
    let place = Place::new("logins-mark");
    let url = format!("sqlite:{}", place.text("election.db"));
    let mark = |dir: &str| {
        let args = ["run", "--election", "e", "--node", "a", "--store", &url, "--state-dir", dir, "--"];
        let output = place.output(&[&args[..], &["sh", "-c", "echo $PRIMACY_JOB"]].concat());
        let mark = stdout(&output).trim().to_owned();
        assert!(mark.starts_with("e/a/"), "{mark} {}", stderr(&output));
        mark.rsplit_once('/').unwrap().0.to_owned()
    };
    let (first, again, elsewhere) = (mark("one"), mark("one"), mark("two"));
    assert_eq!(first, again, "a later life of the node knows what is its own");
    assert_ne!(first, elsewhere);
}

/// Command lines can be read by every user.
#[test]
fn the_text_of_a_check_a_hook_and_a_stop_command_is_in_no_command_line() {
    let place = Place::new("logins-check");
    let mut unseen = vec!["health", "on-elected", "stop-command", "on-deposed"];
    let texts: String = unseen
        .iter()
        .map(|name| format!("{name} = \"echo QXZ > {name}; until test -e go-{name}; do sleep 0.1; done\"\n"))
        .collect();
    fs::write(place.path("node.toml"), format!("election = \"e\"\nlease = \"8s\"\n{texts}")).unwrap();
    let args = ["run", "--json", "--config", "node.toml", "--node", "a", "--peers", &peers(&["a"])];
    let node = Node::start(&place, "a", &strings(&[&args[..], &["--", "sleep", "1000"]].concat()));
    let mut is_ending = false;
    primacy_testbed::wait_until("each of the commands", || {
        unseen.retain(|name| {
            if !place.path(name).exists() {
                return true;
            }
            let lines: Vec<String> = place
                .alive()
                .iter()
                .filter_map(|process| fs::read(format!("/proc/{}/cmdline", process.pid)).ok())
                .map(|line| String::from_utf8_lossy(&line).into_owned())
                .collect();
            assert!(lines.iter().any(|line| line.starts_with("sh\0")), "{name}: {lines:?}");
            assert!(!lines.iter().any(|line| line.contains("QXZ")), "{name}: {lines:?}");
            fs::write(place.path(&format!("go-{name}")), "").unwrap();
            false
        });
        if !is_ending && node.job().is_some() {
            node.signal(Signal::TERM);
            is_ending = true;
        }
        unseen.is_empty()
    });
}
