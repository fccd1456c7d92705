//! `primacy doctor` on nodes of Primacy with the etcd API: its findings, and that its remedies work.

#![cfg(feature = "etcd")]
#![allow(clippy::unwrap_used, reason = "in a test, a panic is the message")]

use primacy_stores::etcd::api::{self, method};
use primacy_testbed::doctor::Found;
use primacy_testbed::etcd_api::Asked;
use primacy_testbed::keepers::Keepers;
use tonic::Code;

const SURVIVES: &str = "survives the loss of a machine";
const ONE_CLUSTER: &str = "all addresses of the URL are of one cluster";
const REACHED: &str = "the URL names more than one member";
const WELL: &str = "the members answer, and raise no alarm";
const TAKES_WRITES: &str = "the store does what is asked";

/// The quota of a map that is to be full soon.
const SMALL: &str = "128KiB";

/// More than fit into it.
const ENTRIES_MAX: usize = 2000;

/// Asks the doctor about these addresses. Whatever it says, it names nothing that only etcd does.
fn ask(keepers: &mut Keepers, addresses: &[String]) -> Found {
    let found = Found::on(&mut keepers.place, &format!("etcd://{}/doctor", addresses.join(",")), &[]);
    for check in found.told["checks"].as_array().unwrap() {
        assert!(check["check"] == TAKES_WRITES || !check.to_string().contains("etcdctl"), "{check:#}");
    }
    found
}

/// Examines the etcd APIs of these nodes, once all of them are open.
async fn examine(keepers: &mut Keepers, names: &[&str]) -> Found {
    let mut addresses = Vec::new();
    for name in names {
        keepers.keys(name).await;
        addresses.push(keepers.etcd_api(name));
    }
    ask(keepers, &addresses)
}

/// Returns the remedy for a finding.
fn fix(found: &Found, check: &str) -> String {
    found.check(check)["fix"].as_str().unwrap().to_owned()
}

/// The command of ours that a fix names, in words, with these in place of what it leaves open.
fn command(fix: &str, values: &[(&str, &str)]) -> Vec<String> {
    let quoted = fix.split('`').skip(1).step_by(2);
    let command = quoted.filter_map(|text| text.strip_prefix("primacy ")).next().unwrap();
    let words = command.split(' ').map(|word| {
        let value = values.iter().find(|(name, _)| *name == word);
        value.map_or(word, |(_, value)| *value).to_owned()
    });
    // Those of the tests say for themselves which election they mean.
    words.take_while(|word| word != "--election").collect()
}

/// Gives a node the command of the fix.
fn mend(keepers: &Keepers, asked: &str, fix: &str, values: &[(&str, &str)]) {
    let command = command(fix, values);
    let words: Vec<&str> = command.iter().map(String::as_str).collect();
    keepers.verb(asked, &words).is(0, &[]);
}

#[tokio::test]
async fn three_nodes_pass_and_one_that_is_away_is_told() {
    let mut keepers = Keepers::start("doctor-etcd-api", &["a", "b", "c"]);
    let found = examine(&mut keepers, &["a", "b", "c"]).await;
    found.expect(SURVIVES, "pass", "of which 1 may be lost");
    found.expect(WELL, "pass", "+primacy.");
    for name in ["every member votes", ONE_CLUSTER, REACHED, "a later entry has a higher token"] {
        found.expect(name, "pass", "");
    }
    found.ends(0);
    let of_one = examine(&mut keepers, &["b"]).await;
    of_one.expect(REACHED, "warn", "addresses in the URL: 1; members of the cluster: 3");
    of_one.ends(0);

    let addresses = ["a", "b", "c"].map(|name| keepers.etcd_api(name));
    keepers.kill("c");
    keepers.write("a", "without c").await;
    keepers.write("b", "without c, too").await;
    let with_two = ask(&mut keepers, &addresses);
    with_two.expect(WELL, "warn", &addresses[2]);
    with_two.ends(0);
    let who = command(&fix(&with_two, WELL), &[]);
    assert_eq!(who, ["status"]);
    keepers.verb("a", &["status"]).is(0, &["c at 127.0.0.1", "not connected"]);
}

#[tokio::test]
async fn one_node_fails_and_becomes_three_by_what_the_doctor_says() {
    let mut keepers = Keepers::start("doctor-etcd-api-grows", &["a"]);
    let mut names = vec!["a"];
    let verdicts = [("b", "fail", "1"), ("c", "fail", "2"), ("d", "pass", "3")];
    for (next, verdict, count) in verdicts {
        let found = examine(&mut keepers, &names).await;
        found.expect(SURVIVES, verdict, &format!("members that vote: {count}"));
        found.expect(ONE_CLUSTER, "pass", "");
        found.ends(i32::from(verdict == "fail"));
        let voter = keepers.add(next);
        keepers.launch(next, &[]);
        let told = if verdict == "fail" {
            fix(&found, SURVIVES)
        } else {
            "`primacy member add NAME=HOST:PORT`".to_owned()
        };
        mend(&keepers, "a", &told, &[("NAME=HOST:PORT", &voter)]);
        names.push(next);
    }
    // Four are as many as three.
    let found = examine(&mut keepers, &names).await;
    found.expect(SURVIVES, "warn", "members that vote: 4");
    mend(&keepers, "a", &fix(&found, SURVIVES), &[("NAME", "d")]);
    keepers.stop("d");
    examine(&mut keepers, &names[..3]).await.expect(SURVIVES, "pass", "members that vote: 3");
}

/// The etcd APIs derive the numbers of the nodes from their names.
#[tokio::test]
async fn two_clusters_of_the_same_name_whose_nodes_have_the_same_names_are_not_taken_for_one() {
    let mut keepers = Keepers::start("doctor-etcd-api-ours", &["a", "b"]);
    let others = Keepers::start("doctor-etcd-api-theirs", &["a", "b"]);
    others.keys("b").await;
    examine(&mut keepers, &["a", "b"]).await.expect(ONE_CLUSTER, "pass", "");
    let addresses = [keepers.etcd_api("a"), others.etcd_api("b")];
    let found = ask(&mut keepers, &addresses);
    found.expect(ONE_CLUSTER, "fail", "another cluster than that of the rest answers at 127.0.0.1");
    found.ends(1);
}

/// Puts, and in the end begins sessions, until there is no room for either.
async fn fill(asked: &Asked) {
    let mut taken = 0;
    for length in [8 << 10, 512, 1] {
        loop {
            let (key, value) = (format!("fill-{taken:04}").into(), vec![b'x'; length]);
            let put = api::PutRequest { key, value, ..Default::default() };
            if asked.ask::<_, api::PutResponse>(method::PUT, &put).await.is_err_and(is_full) {
                break;
            }
            taken += 1;
            assert!(taken < ENTRIES_MAX, "the quota is not in force");
        }
    }
    for id in 1.. {
        assert!(id < i64::try_from(ENTRIES_MAX).unwrap(), "sessions need no room");
        let grant = api::LeaseGrantRequest { ttl: 3600, id };
        if asked.ask::<_, api::LeaseGrantResponse>(method::LEASE_GRANT, &grant).await.is_err_and(is_full) {
            break;
        }
    }
}

/// Any other error passes: at first there is no leader, or the quota is not in force yet.
fn is_full((code, _): (Code, String)) -> bool {
    code == Code::ResourceExhausted
}

#[tokio::test]
async fn a_map_that_is_full_fails_until_its_quota_is_raised() {
    let mut keepers = Keepers::reserve("doctor-etcd-api-full", &["a"]);
    keepers.launch("a", &["--metadata-quota", SMALL]);
    keepers.leader();
    fill(&keepers.asked("a").await).await;
    let addresses = [keepers.etcd_api("a")];
    let found = ask(&mut keepers, &addresses);
    found.expect(TAKES_WRITES, "fail", "database space exceeded");
    assert!(fix(&found, TAKES_WRITES).contains("metadata-quota"), "{:#}", found.told);
    found.ends(1);

    keepers.stop("a");
    keepers.launch("a", &["--metadata-quota", "16MiB"]);
    keepers.leader();
    keepers.write("a", "more").await;
    let addresses = [keepers.etcd_api("a")];
    let found = ask(&mut keepers, &addresses);
    let checks = found.told["checks"].as_array().unwrap();
    assert!(!checks.iter().any(|check| check["check"] == TAKES_WRITES), "{:#}", found.told);
    found.expect("a later entry has a higher token", "pass", "");
}
