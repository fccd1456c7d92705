//! Settings from files, the environment and the command line: their precedence, and the messages about errors in them.

#![allow(clippy::unwrap_used, reason = "in a test, a panic is the message")]

use std::fs;
use std::process::Command;

use primacy_testbed::authority::{Authority, NOW, replace};
use primacy_testbed::{Place, primacy, stderr, stdout};
use serde_json::Value;

/// Writes a file of settings, and returns a command of `primacy config` that reads it.
fn config(place: &Place, action: &str, text: &str) -> Command {
    fs::write(place.path("node.toml"), text).unwrap();
    place.command(&["config", action, "--config", "node.toml"])
}

/// `config check` must refuse this file with exit code 78 and say all of this.
#[track_caller]
fn refused(place: &Place, text: &str, says: &[&str]) {
    let output = config(place, "check", text).output().unwrap();
    let said = stderr(&output);
    assert_eq!(output.status.code(), Some(78), "{said}");
    for wanted in says {
        assert!(said.contains(wanted), "{wanted:?} is not in:\n{said}");
    }
}

#[test]
fn all_that_is_wrong_is_said_at_once_with_its_place() {
    let place = Place::new("config-wrong");
    let text = "elction = \"e\"\nlease = 10\npriority = \"high\"\nwitness = \"yes\"\n\ndrain = \"5 minutes\"\n\
                safety = \"none\"\nfrobnicate = 1\n[peers]\na = 7401\n";
    let says = [
        "8 problems",
        "node.toml:1:1: there is no setting `elction`; did you mean `election`?",
        "node.toml:2:9: `lease` takes a string",
        "node.toml:3:12: `priority` takes a whole number, as in priority = 1; this is of the type string",
        "node.toml:4:11: `witness` takes true or false",
        "node.toml:6:9: ",
        "250ms, 10s",
        "node.toml:7:10: ",
        "possible values: lease, fenced",
        "node.toml:8:1: there is no setting `frobnicate`; there are election, store,",
        "the address of a is a string",
    ];
    refused(&place, text, &says);
    // `node` and `run` say the same, and run nothing.
    for verb in
        [&["node", "--config", "node.toml"][..], &["run", "--config", "node.toml", "--", "touch", "ran"]]
    {
        let output = place.output(verb);
        assert_eq!(output.status.code(), Some(78), "{}", stderr(&output));
        assert!(stderr(&output).contains("8 problems"), "{}", stderr(&output));
    }
    assert!(!place.path("ran").exists());
}

#[test]
fn what_is_no_toml_or_no_file_is_refused() {
    let place = Place::new("config-no-toml");
    refused(&place, "election = \"e\"\nlease = = \"1s\"\n", &["node.toml:2:"]);
    refused(&place, "election = \"e\"\nelection = \"f\"\n", &["node.toml:2:", "duplicate key"]);
    fs::write(place.path("node.toml"), [0xff, 0xfe, 0]).unwrap();
    for file in ["node.toml", "none.toml", "."] {
        let output = place.output(&["config", "check", "--config", file]);
        assert_eq!(output.status.code(), Some(78), "{}", stderr(&output));
        assert!(stderr(&output).contains("--config names a TOML file"), "{}", stderr(&output));
    }
}

#[test]
fn relations_that_do_not_hold_are_named_with_where_they_come_from() {
    let place = Place::new("config-relations");
    let text = "election = \"e\"\nlease = \"1s\"\nheartbeat = \"500ms\"\n";
    let mut command = config(&place, "check", text);
    let output = command.env("PRIMACY_DRAIN", "600ms").output().unwrap();
    let said = stderr(&output);
    assert_eq!(output.status.code(), Some(78), "{said}");
    for wanted in [
        "the lease of 1s must be longer than renewal 500ms + drain 600ms",
        "lease = 1s is from node.toml:2:1",
        "heartbeat = 500ms is from node.toml:3:1",
        "drain = 600ms is from environment, PRIMACY_DRAIN",
    ] {
        assert!(said.contains(wanted), "{wanted:?} is not in:\n{said}");
    }
    let both = "election = \"e\"\nstore = \"sqlite:x.db\"\nhealth-misses = 0\n[peers]\na = \"127.0.0.1:1\"\n";
    refused(
        &place,
        both,
        &[
            "`store` (node.toml:2:1) cannot be used with `peers`",
            "needs --node",
            "`health-misses`",
            "needs --health",
        ],
    );
    let peers = "election = \"e\"\nnode = \"c\"\npeers = \"a=127.0.0.1:1\"\n";
    refused(&place, peers, &["the node c is not one of the peers (a)", "node = c is from node.toml:2:1"]);
    refused(&place, "lease = \"1s\"\n", &["the election has no name"]);
    refused(&place, "election = \"e\"\nwitness = true\n", &["`witness`", "no meaning over a store"]);
    let secret = "election = \"e\"\nstore = \"etcd://user:hunter2@host\"\n";
    refused(&place, secret, &["--store env:ELECTION_URL", "node.toml:2:1"]);
    let output = config(&place, "check", secret).output().unwrap();
    assert!(!stderr(&output).contains("hunter2"), "{}", stderr(&output));
}

#[test]
fn the_command_line_goes_before_the_environment_and_that_before_the_file() {
    let place = Place::new("config-layers");
    let text = "election = \"file\"\nlease = \"3s\"\nheartbeat = \"300ms\"\ndrain = \"1s\"\n";
    let mut command = config(&place, "print", text);
    command.args(["--json", "--lease", "5s"]).env("PRIMACY_LEASE", "4s").env("PRIMACY_HEARTBEAT", "400ms");
    let output = command.output().unwrap();
    let printed: Value = serde_json::from_str(&stdout(&output)).unwrap();
    let holds = |key: &str| (printed[key]["value"].clone(), printed[key]["source"].clone());
    assert_eq!(holds("lease"), ("5s".into(), "command line".into()));
    assert_eq!(holds("heartbeat"), ("400ms".into(), "environment, PRIMACY_HEARTBEAT".into()));
    assert_eq!(holds("drain"), ("1s".into(), "node.toml:4:1".into()));
    assert_eq!(holds("kill-margin"), ("200ms".into(), "default".into()));
    assert_eq!(holds("store"), (Value::Null, "default".into()));
}

#[test]
fn what_a_job_is_told_is_no_setting_of_a_primacy_that_it_runs() {
    let place = Place::new("config-nested");
    // The outer one has settings in its environment, and its job runs another one.
    let inner = format!("{} config print --election inner; env | grep ^PRIMACY_ | sort", primacy());
    let mut outer = place.command(&["run", "--", "sh", "-c", &inner]);
    outer.env("PRIMACY_ELECTION", "outer").env("PRIMACY_LEASE", "3s").env("NOTIFY_SOCKET", "/nowhere");
    let output = outer.output().unwrap();
    let said = stdout(&output);
    assert_eq!(output.status.code(), Some(0), "{said}\n{}", stderr(&output));
    assert!(said.contains("election = \"inner\"  # command line"), "{said}");
    assert!(said.contains("lease = \"10s\"  # default"), "{said}");
    assert!(said.contains("PRIMACY_ELECTION=outer"), "{said}");
    assert!(!said.contains("PRIMACY_LEASE="), "{said}");
    // Without a name of its own it is refused, other than taking part in the election that it works for.
    for told in ["PRIMACY_TERM", "PRIMACY_TOKEN", "PRIMACY_ID"] {
        let mut nested = place.command(&["config", "check"]);
        let output = nested.env("PRIMACY_ELECTION", "outer").env(told, "7").output().unwrap();
        assert_eq!(output.status.code(), Some(78), "{told}: {}", stderr(&output));
    }
    // Set to nothing, neither is set.
    let mut plain = place.command(&["config", "check"]);
    let output = plain.env("PRIMACY_ELECTION", "outer").env("PRIMACY_TERM", "").output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
}

#[test]
fn what_is_printed_is_accepted_and_means_the_same() {
    let place = Place::new("config-round-trip");
    let peers = "election = \"e\"\nnode = \"a\"\nhealth = \"test -f 'x y'\"\nmetrics = \"9464\"\npriority = 3\n\
                 drift-max = \"0.5%\"\non-elected = '''echo \"up\"'''\n[peers]\na = \"127.0.0.1:7401\"\n\
                 b = \"127.0.0.1:7402\"\n";
    let store = "election = \"e\"\nstore = \"env:ELECTION_URL\"\nlease = \"10s\"\n";
    for text in [peers, store, "election = \"e\"\n"] {
        let print = |text: &str| {
            let mut command = config(&place, "print", text);
            let output = command.env("ELECTION_URL", "sqlite:e.db").output().unwrap();
            assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
            stdout(&output)
        };
        let first = print(text);
        let mut check = config(&place, "check", &first);
        let checked = check.env("ELECTION_URL", "sqlite:e.db").output().unwrap();
        assert_eq!(checked.status.code(), Some(0), "{first}\n{}", stderr(&checked));
        let without_sources = |text: &str| -> Vec<String> {
            text.lines().map(|line| line.split("  # ").next().unwrap().to_owned()).collect()
        };
        assert_eq!(without_sources(&first), without_sources(&print(&first)));
    }
}

#[test]
fn a_secret_in_the_environment_is_not_printed() {
    let place = Place::new("config-secret");
    let mut command = place.command(&["config", "print", "--election", "e"]);
    let output = command.env("PRIMACY_STORE", "sqlite:/tmp/e.db?password=hunter2").output().unwrap();
    let said = format!("{}{}", stdout(&output), stderr(&output));
    assert!(said.contains("store = \"env:PRIMACY_STORE\"") && !said.contains("hunter2"), "{said}");
}

#[test]
fn labels_are_a_table_or_a_list() {
    let place = Place::new("config-labels");
    let head = "election = \"e\"\nnode = \"a\"\nalgorithm = \"seniority\"\nallow-advisory = true\npeers = \"a=127.0.0.1:1\"\n";
    for labels in ["[labels]\nrack = \"7\"\ndisk = \"ssd\"\n", "labels = \"rack=7,disk=ssd\"\n"] {
        let output = config(&place, "print", &format!("{head}{labels}")).output().unwrap();
        let printed = stdout(&output);
        assert!(
            ["disk=ssd,rack=7", "rack=7,disk=ssd"].iter().any(|list| printed.contains(list)),
            "{printed}"
        );
    }
    refused(&place, &format!("{head}[labels]\nrack = \"7,8\"\n"), &["`labels`: rack has a comma in it"]);
    refused(&place, &format!("{head}[labels]\nrack = 7\n"), &["`labels`: rack is a string"]);
    for (key, separator) in [("q=1", '='), ("a,b", ',')] {
        let says = format!("`labels`: the name {key:?} has {separator:?} in it");
        refused(&place, &format!("{head}[labels]\n\"{key}\" = \"2\"\n"), &[&says]);
    }
}

/// Nor where it is wrong, nor in the help, nor when it is part of a policy; and what is printed instead can be read again.
#[test]
fn a_secret_in_a_policy_or_a_confirmation_is_not_printed() {
    let place = Place::new("config-secrets");
    let entry = "--election e --node a --peers a=127.0.0.1:1,b=127.0.0.1:2 --allow-advisory";
    let said = |verb: &[&str], more: &str, variable: &str, value: &str| {
        let args: Vec<&str> =
            verb.iter().copied().chain(entry.split_whitespace()).chain(more.split_whitespace()).collect();
        let output = place.command(&args).env(variable, value).output().unwrap();
        let said = format!("{}{}", stdout(&output), stderr(&output));
        assert!(!said.contains("hunter2"), "{said}");
        said
    };
    let url = "sqlite:/tmp/e.db?password=hunter2";
    let (print, policy) = (["config", "print"], format!("lease:{url}"));
    let printed = said(&print, "--algorithm seniority", "PRIMACY_SPLIT_BRAIN", &policy);
    assert!(printed.contains("split-brain = \"env:PRIMACY_SPLIT_BRAIN\""), "{printed}");
    said(&print, "--algorithm seniority --split-brain env:POLICY", "POLICY", &policy);
    let printed = said(&print, "--algorithm seniority", "PRIMACY_CONFIRM", url);
    assert!(printed.contains("confirm = \"env:PRIMACY_CONFIRM\""), "{printed}");
    let printed = said(&print, "--algorithm seniority", "PRIMACY_CONFIRM", "quorum");
    assert!(printed.contains("confirm = \"quorum\""), "{printed}");
    let wrong = said(&print, "--algorithm seniority", "PRIMACY_SPLIT_BRAIN", "leese:x://u:hunter2@h");
    assert!(wrong.contains("PRIMACY_SPLIT_BRAIN: write keep-majority"), "{wrong}");
    for variable in ["PRIMACY_STORE", "PRIMACY_CONFIRM", "PRIMACY_SPLIT_BRAIN"] {
        for verb in [&["run", "--help"], &["node", "--help"], &["config", "--help"]] {
            said(verb, "", variable, url);
        }
    }
}

/// A variable that has the whole policy has its URL, too, and other users cannot read that; a URL with a
/// password where users can read it is refused with the form that is allowed there.
#[test]
fn a_password_in_a_policy_may_be_in_the_environment_only() {
    let place = Place::new("config-policy");
    let entry = "election = \"e\"\nnode = \"a\"\npeers = \"a=127.0.0.1:1,b=127.0.0.1:2\"\nalgorithm = \"seniority\"\n\
                 allow-advisory = true\n";
    let url = "sqlite://h/e.db?password=hunter2";
    let checked = |setting: &str, value: &str| {
        let output =
            config(&place, "check", &format!("{entry}{setting}")).env("POLICY", value).output().unwrap();
        let said = stderr(&output);
        assert!(!said.contains("hunter2"), "{said}");
        (output.status.code(), said)
    };
    let of_a_policy = checked("split-brain = \"env:POLICY\"\n", &format!("lease:{url}"));
    assert_eq!(of_a_policy, (Some(0), String::new()));
    let of_a_url = checked("split-brain = \"lease:env:POLICY\"\n", url);
    assert_eq!(of_a_url, (Some(0), String::new()));
    let (code, said) = checked(&format!("split-brain = \"lease:{url}\"\n"), "");
    assert_eq!(code, Some(78), "{said}");
    assert!(
        said.contains("has a password or a token")
            && said.contains("write --split-brain lease:env:ELECTION_URL"),
        "{said}"
    );
}

/// The first example of the page is a file that a node starts with, where the files are that it names.
#[test]
fn the_example_of_the_page_is_right() {
    let place = Place::new("config-example");
    let page = include_str!("../../../docs/guide/configuration.md");
    let example = page.split("```toml\n").nth(1).unwrap().split("```").next().unwrap();
    let dir = place.text("");
    let example = example.replace("/etc/primacy/", &dir);
    let authority = Authority::new();
    replace(&place, "ca.pem", &authority.pem);
    authority.issue(&place, "a", "a", NOW);
    let output = config(&place, "check", &example).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{example}\n{}", stderr(&output));
    // It is the files that are looked at, and without them the addresses.
    fs::remove_file(place.path("a.key")).unwrap();
    refused(&place, &example, &["a.key", "tls-key = "]);
    authority.issue(&place, "a", "b", NOW);
    refused(&place, &example, &["is for b, and this node is a"]);
    let cleartext: String = example
        .lines()
        .filter(|line| !line.starts_with("tls-"))
        .fold(String::new(), |text, line| text + line + "\n");
    let says =
        ["3 problems", "the address to listen on is at 10.0.0.1:7400", "the peer c is at 10.0.0.3:7400"];
    refused(&place, &cleartext, &says);
}

#[test]
fn what_is_only_for_leaders_is_nothing_for_a_witness() {
    let place = Place::new("config-witness");
    let text = "election = \"e\"\nnode = \"a\"\nwitness = true\nhealth = \"true\"\non-elected = \"true\"\n\
                on-deposed = \"true\"\npeers = \"a=127.0.0.1:1\"\nhealth-interval = \"999us\"\n";
    let never = "has no meaning for a witness";
    let says = [
        format!("`health` (node.toml:4:1) {never}"),
        format!("`on-elected` (node.toml:5:1) {never}"),
        format!("`on-deposed` (node.toml:6:1) {never}"),
        "`health-interval` (node.toml:8:1) is shorter than 1ms".to_owned(),
    ];
    refused(&place, text, &says.each_ref().map(String::as_str));
}

/// The page has every setting, as the command line defines it, and no other.
#[test]
fn the_page_on_configuration_has_every_setting() {
    let place = Place::new("config-page");
    let page = include_str!("../../../docs/guide/configuration.md");
    let documented: Vec<(String, String)> = page
        .lines()
        .filter_map(|line| line.strip_prefix("| `"))
        .filter_map(|row| {
            let mut cells = row.split('`');
            let key = cells.next()?.to_owned();
            Some((key, cells.nth(1)?.to_owned()))
        })
        .collect();
    let help = stdout(&place.output(&["node", "--help"]));
    let mut defined = Vec::new();
    let mut key = None;
    for line in help.lines().map(str::trim) {
        if let Some(option) = line.strip_prefix("--") {
            key = option.split([' ', '[']).next().map(str::to_owned);
        }
        if let (Some(variable), Some(key)) = (line.strip_prefix("[env: "), &key) {
            // The value of a setting that may have a secret is not shown.
            let variable = variable.split(['=', ']']).next().unwrap().to_owned();
            defined.push((key.clone(), variable));
        }
    }
    assert!(defined.len() > 20, "{help}");
    assert_eq!(documented, defined);
}

#[test]
fn the_quota_of_a_map_needs_a_map_and_a_unit() {
    let place = Place::new("config-quota");
    let peers = "election = \"e\"\nnode = \"a\"\n";
    let peers = |more: &str| format!("{peers}{more}[peers]\na = \"127.0.0.1:1\"\n");
    let says = ["`metadata-quota` (node.toml:3:1) needs --metadata KIND"];
    refused(&place, &peers("metadata-quota = \"64MiB\"\n"), &says);
    for wrong in ["\"64\"", "\"0MiB\"", "\"1.5GiB\"", "\"64MB\""] {
        let text = peers(&format!("metadata = \"fsync\"\nmetadata-quota = {wrong}\n"));
        refused(&place, &text, &["node.toml:4:18: ", "write a whole number and its unit, as in 64KiB"]);
    }
    let number = peers("metadata = \"fsync\"\nmetadata-quota = 64\n");
    refused(&place, &number, &["node.toml:4:18: `metadata-quota` takes a string"]);
    for given in ["metadata = \"memory\"\n", "etcd-api = \"2379\"\n"] {
        let text = peers(&format!("{given}metadata-quota = \"64MiB\"\n"));
        let output = config(&place, "check", &text).output().unwrap();
        assert!(output.status.success(), "{}", stderr(&output));
    }
    let over_store = "election = \"e\"\nstore = \"sqlite:x.db\"\nmetadata-quota = \"64MiB\"\n";
    refused(&place, over_store, &["`metadata-quota` (node.toml:3:1) has no meaning over a store"]);
}
