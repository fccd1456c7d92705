//! Checks of a cluster: its members, and the status of those that the URL names.

use super::client::RequestError;
use super::direct::EtcdClient;
use super::{api, url};
use crate::diagnostics::{Check, Examination, ONE_COPY, SURVIVES, Verdict};
use crate::error_text;
use crate::opening::Address;

/// The address of a member of the URL, and its status.
type Status = (String, Result<api::StatusResponse, RequestError>);

/// The address of a member of the URL, and the cluster's members as it reports them.
type Account = (String, Result<Vec<api::Member>, RequestError>);

/// The software of the servers, which decides on the remedy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Maker {
    Etcd,
    /// Nodes of Primacy, which are recognised by the build metadata of their version.
    Primacy,
}

/// The answers of the cluster.
struct ClusterAnswers {
    maker: Maker,
    members: Result<Vec<api::Member>, RequestError>,
    statuses: Vec<Status>,
    /// Only for nodes of Primacy.
    accounts: Vec<Account>,
}

/// Asks the cluster for its members, and each member that the URL names for its status.
pub(crate) fn examine(address: Address) -> Examination {
    Box::pin(async move {
        let client = EtcdClient::new(&format!("etcd:{}", address.rest))?;
        let members = client.members().await;
        let statuses = client.status().await;
        let maker = Maker::of(&statuses);
        let accounts = match maker {
            Maker::Etcd => Vec::new(),
            Maker::Primacy => client.members_by_each().await,
        };
        match members {
            Err(error) if statuses.iter().all(|(_, status)| status.is_err()) => Err(url::refusal(error)),
            members => Ok(judge(&ClusterAnswers { maker, members, statuses, accounts })),
        }
    })
}

impl Maker {
    fn of(statuses: &[Status]) -> Self {
        let is_ours = |version: &str| {
            version.split_once('+').is_some_and(|(_, build)| build.split('.').next() == Some(api::PRIMACY))
        };
        if answers(statuses).any(|(_, status)| is_ours(&status.version)) { Self::Primacy } else { Self::Etcd }
    }
}

fn judge(answers: &ClusterAnswers) -> Vec<Check> {
    let ClusterAnswers { maker, members, statuses, accounts } = answers;
    let mut checks = Vec::new();
    match members {
        Ok(members) => {
            let strangers = match maker {
                Maker::Etcd => of_others(members, statuses),
                Maker::Primacy => of_other_nodes(members, accounts),
            };
            checks.push(survives(*maker, members));
            checks.push(all_vote(members));
            checks.push(is_one_cluster(&strangers, statuses));
            checks.push(is_reached_otherwise(members, statuses));
        }
        Err(error) => checks.push(Check::not(
            Verdict::Unknown,
            SURVIVES,
            format!("it does not tell who its members are: {error}"),
            ONE_COPY,
            "count them with `etcdctl member list`, as a user who may",
        )),
    }
    checks.push(are_well(*maker, statuses));
    checks
}

/// Checks that a majority is left when one member is lost.
fn survives(maker: Maker, members: &[api::Member]) -> Check {
    let voters = members.iter().filter(|member| !member.is_learner).count();
    let found = format!("members that vote: {voters}");
    let (fix, fix_even) = match maker {
        Maker::Etcd => (
            "make it three (`etcdctl member add NAME --peer-urls=URL`, then start that member), each on a machine of its own",
            "take one out (`etcdctl member remove ID`), or add one",
        ),
        Maker::Primacy => (
            "make it three, each on a machine of its own: start a node with all addresses and its own in --peers, then \
             `primacy member add NAME=HOST:PORT --election ELECTION` beside one of those that are there",
            "take one out (`primacy member remove NAME --election ELECTION`, then stop it), or add one",
        ),
    };
    match voters {
        0 | 1 => {
            let why = "when its machine is gone, nobody leads until it is back; when its disk is gone, the backup in its place \
                       gives tokens a second time";
            Check::not(Verdict::Fail, SURVIVES, found, why, fix)
        }
        2 => {
            let why = "two members need each other: when one is gone, nobody leads";
            Check::not(Verdict::Fail, SURVIVES, found, why, fix)
        }
        even if even % 2 == 0 => {
            let why = format!(
                "of {even}, as many may be lost as of {}: {}; and one more can be cut off or be slow",
                even - 1,
                (even - 1) / 2
            );
            Check::not(Verdict::Warn, SURVIVES, found, why, fix_even)
        }
        odd => Check::pass(SURVIVES, format!("{found}, of which {} may be lost", (odd - 1) / 2)),
    }
}

fn all_vote(members: &[api::Member]) -> Check {
    const NAME: &str = "every member votes";
    let learners = members.iter().filter(|member| member.is_learner).count();
    if learners == 0 {
        return Check::pass(NAME, "no member is a learner");
    }
    let why = "a learner is none of those of whom a majority keeps each write";
    let fix = "etcdctl member promote ID, when it has caught up";
    Check::not(Verdict::Warn, NAME, format!("learners: {learners}"), why, fix)
}

/// Returns the addresses of answering servers that are members of another etcd.
fn of_others<'a>(members: &[api::Member], statuses: &'a [Status]) -> Vec<&'a str> {
    let is_one = |status: &api::StatusResponse| members.iter().any(|member| Some(member.id) == id(status));
    answers(statuses).filter(|(_, status)| !is_one(status)).map(|(address, _)| address).collect()
}

/// Returns the same for nodes of Primacy. Their ids are derived from their names, which nodes of another cluster may have too; so the names
/// and addresses of their peers are compared. Nodes of one cluster have most of them in common, even while voters are added or removed.
fn of_other_nodes<'a>(members: &[api::Member], accounts: &'a [Account]) -> Vec<&'a str> {
    let is_one = |other: &api::Member| {
        members.iter().any(|member| member.id == other.id && member.peer_urls == other.peer_urls)
    };
    let told = accounts.iter().filter_map(|(address, list)| Some((address.as_str(), list.as_ref().ok()?)));
    told.filter(|(_, list)| !list.iter().any(is_one)).map(|(address, _)| address).collect()
}

/// Checks that the members that the URL names belong to one cluster. Two clusters would each elect a leader.
fn is_one_cluster(strangers: &[&str], statuses: &[Status]) -> Check {
    const NAME: &str = "all addresses of the URL are of one cluster";
    if answers(statuses).next().is_none() {
        return Check::not(
            Verdict::Unknown,
            NAME,
            "none of them has answered",
            "of two clusters, each elects a leader",
            "see that they can be reached",
        );
    }
    if strangers.is_empty() {
        return Check::pass(NAME, "all that answer are members of it");
    }
    let found = format!("another cluster than that of the rest answers at {}", strangers.join(", "));
    let why = "who happens to ask one cluster and who asks the other elect a leader each";
    Check::not(Verdict::Fail, NAME, found, why, "take these addresses out of the URL")
}

/// Checks that the URL names more than one member.
fn is_reached_otherwise(members: &[api::Member], statuses: &[Status]) -> Check {
    const NAME: &str = "the URL names more than one member";
    let found =
        format!("addresses in the URL: {}; members of the cluster: {}", statuses.len(), members.len());
    if statuses.len() > 1 || members.len() < 2 {
        return Check::pass(NAME, found);
    }
    let why =
        "when that member is gone, this process reaches none of the others, and loses the lead without need";
    Check::not(Verdict::Warn, NAME, found, why, "name all members: etcd://A,B,C/PREFIX")
}

/// Checks that each member that the URL names answers, knows a leader, and raises no alarm.
fn are_well(maker: Maker, statuses: &[Status]) -> Check {
    const NAME: &str = "the members answer, and raise no alarm";
    let (mut worst, mut told) = (Verdict::Pass, Vec::new());
    for (address, status) in statuses {
        match status {
            Err(error) => {
                worst = worst.max(Verdict::Warn);
                told.push(format!("{address}: {error}"));
            }
            Ok(status) if status.leader == 0 || !status.errors.is_empty() => {
                worst = Verdict::Fail;
                let errors = status.errors.iter().map(|error| shown(error));
                let leaderless = (status.leader == 0).then(|| "it knows no leader of the cluster".to_owned());
                told.push(format!(
                    "{address}: {}",
                    leaderless.into_iter().chain(errors).collect::<Vec<_>>().join("; ")
                ));
            }
            Ok(_) => {}
        }
    }
    if worst == Verdict::Pass {
        let versions =
            answers(statuses).map(|(address, status)| format!("{address} ({})", shown(&status.version)));
        return Check::pass(NAME, versions.collect::<Vec<_>>().join(", "));
    }
    let (why, fix) = match maker {
        Maker::Etcd => (
            "a member that is away is one that may not be lost any more; one that has no space (NOSPACE) or a damaged database \
             (CORRUPT) takes no writes, and so nobody leads",
            "etcdctl endpoint status, and alarm list; after NOSPACE: compact, defrag, alarm disarm",
        ),
        Maker::Primacy => (
            "a node that is away is one that may not be lost any more; while none of them leads the others, nothing is written, and \
             so nobody leads",
            "`primacy status --election ELECTION` on the machine of each node says what is missing; start those that are down, and take \
             those that vote no more out of the URL",
        ),
    };
    Check::not(worst, NAME, told.join(", "), why, fix)
}

fn answers(statuses: &[Status]) -> impl Iterator<Item = (&str, &api::StatusResponse)> {
    statuses.iter().filter_map(|(address, status)| Some((address.as_str(), status.as_ref().ok()?)))
}

/// Returns the id of the member that answered.
fn id(status: &api::StatusResponse) -> Option<u64> {
    status.header.as_ref().map(|header| header.member_id)
}

fn shown(text: &str) -> String {
    error_text::on_one_line(text, TEXT_SHOWN_MAX)
}

/// The longest text of etcd's that is shown, in characters.
const TEXT_SHOWN_MAX: usize = 200;

#[cfg(test)]
mod tests {
    use super::*;

    fn members(count: u64) -> Vec<api::Member> {
        (1..=count).map(|id| api::Member { id, ..api::Member::default() }).collect()
    }

    fn well(id: u64) -> Status {
        let header = Some(api::ResponseHeader { member_id: id, ..api::ResponseHeader::default() });
        (
            format!("m{id}:2379"),
            Ok(api::StatusResponse { header, leader: 1, ..api::StatusResponse::default() }),
        )
    }

    fn answers(members: Result<Vec<api::Member>, RequestError>, statuses: Vec<Status>) -> ClusterAnswers {
        ClusterAnswers { maker: Maker::of(&statuses), members, statuses, accounts: Vec::new() }
    }

    fn verdicts(members: Vec<api::Member>, statuses: Vec<Status>) -> Vec<Verdict> {
        judge(&answers(Ok(members), statuses)).iter().map(|check| check.verdict).collect()
    }

    #[test]
    fn three_members_that_answer_pass_and_fewer_or_even_ones_do_not() {
        let all = || (1..=3).map(well).collect::<Vec<Status>>();
        assert_eq!(verdicts(members(3), all()), [Verdict::Pass; 5]);
        for (count, verdict) in
            [(1, Verdict::Fail), (2, Verdict::Fail), (4, Verdict::Warn), (5, Verdict::Pass)]
        {
            assert_eq!(survives(Maker::Etcd, &members(count)).verdict, verdict, "{count}");
        }
        let mut learning = members(3);
        learning[2].is_learner = true;
        assert_eq!(verdicts(learning, all())[..2], [Verdict::Fail, Verdict::Warn]);
    }

    #[test]
    fn a_stranger_an_alarm_and_a_member_that_is_away_are_told() {
        let strangers = verdicts(members(3), vec![well(1), well(9)]);
        assert_eq!(strangers[2], Verdict::Fail);
        assert_eq!(verdicts(members(3), vec![well(1)])[3], Verdict::Warn);
        let away = || ("m3:2379".to_owned(), Err(RequestError::NotSent { why: "refused".to_owned() }));
        assert_eq!(verdicts(members(3), vec![well(1), away()])[4], Verdict::Warn);
        let mut full = well(2);
        if let Ok(status) = &mut full.1 {
            status.errors = vec!["memberID:2 alarm:NOSPACE ".to_owned()];
        }
        let found = are_well(Maker::Etcd, &[well(1), full, away()]);
        assert!(
            found.verdict == Verdict::Fail
                && found.found.contains("NOSPACE")
                && found.found.contains("refused")
        );
    }

    #[test]
    fn what_is_not_told_is_unknown() {
        let refused = Err(RequestError::Refused { why: "permission denied".to_owned() });
        let checks = judge(&answers(refused, vec![well(1)]));
        assert_eq!((checks[0].verdict, checks[1].verdict), (Verdict::Unknown, Verdict::Pass));
        assert_eq!(is_one_cluster(&[], &[]).verdict, Verdict::Unknown);
    }

    /// A node of Primacy, with peers at these ports.
    fn node(id: u64, ports: &[u16]) -> (Status, Account) {
        let (address, mut status) = well(id);
        if let Ok(status) = &mut status {
            status.version = format!("3.4.0+{}.1.2.3", api::PRIMACY);
        }
        let peers = (1..).zip(ports).map(|(id, port)| api::Member {
            id,
            peer_urls: vec![format!("http://h:{port}")],
            ..api::Member::default()
        });
        ((address.clone(), status), (address, Ok(peers.collect())))
    }

    #[test]
    fn nodes_of_primacy_are_known_by_their_version_and_told_what_mends_them() {
        let one = node(1, &[71]);
        assert_eq!(Maker::of(&[well(2), one.0.clone()]), Maker::Primacy);
        let with = |version: &str| {
            let (address, status) = well(1);
            (address, status.map(|status| api::StatusResponse { version: version.to_owned(), ..status }))
        };
        for version in ["3.4.0", "3.4.0+git", "3.5.0-primacy", "3.4.0+primacyish.1"] {
            assert_eq!(Maker::of(&[with(version)]), Maker::Etcd, "{version}");
        }
        for (count, fix) in [(1, "member add"), (2, "member add"), (4, "member remove")] {
            let check = survives(Maker::Primacy, &members(count));
            assert!(check.fix.contains(fix) && !check.fix.contains("etcdctl"), "{check:?}");
        }
        let away = ("m3:2379".to_owned(), Err(RequestError::NotSent { why: "refused".to_owned() }));
        let check = are_well(Maker::Primacy, &[one.0, away]);
        assert!(check.verdict == Verdict::Warn && !check.fix.contains("etcdctl"), "{check:?}");
    }

    #[test]
    fn nodes_of_another_cluster_are_found_also_when_they_have_the_same_names() {
        let ours = [node(1, &[71, 72, 73]), node(2, &[71, 72, 73])];
        let one_cluster = |nodes: Vec<(Status, Account)>| {
            let members = nodes[0].1.1.clone();
            let (statuses, accounts): (Vec<Status>, Vec<Account>) = nodes.into_iter().unzip();
            let maker = Maker::of(&statuses);
            judge(&ClusterAnswers { maker, members, statuses, accounts })[2].clone()
        };
        assert_eq!(one_cluster(ours.to_vec()).verdict, Verdict::Pass);
        // One of them has not heard yet that there is one more.
        let behind = node(2, &[71, 72]);
        assert_eq!(one_cluster(vec![ours[0].clone(), behind]).verdict, Verdict::Pass);
        let check = one_cluster(vec![ours[0].clone(), node(2, &[81, 82, 83])]);
        assert!(check.verdict == Verdict::Fail && check.found.contains("m2:2379"), "{check:?}");
    }
}
