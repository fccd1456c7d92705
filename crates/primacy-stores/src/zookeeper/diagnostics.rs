//! Checks of an ensemble, by its configuration znode, which servers of version 3.5 and later have.

use super::client::{Acl, ClientError};
use super::link::Link;
use super::location::ZnodeLocation;
use super::rights;
use crate::diagnostics::{Check, Examination, ONE_COPY, SURVIVES, Verdict};
use crate::open_error::OpenError;
use crate::opening::Address;
use crate::runtime;

/// Asks a server of the URL for its configuration.
pub(crate) fn examine(address: Address) -> Examination {
    Box::pin(async move {
        let ZnodeLocation { servers, login, owner, directory, .. } =
            ZnodeLocation::parse(&address.rest, &address.election)?;
        let named = servers.split(',').count();
        let user = login.as_deref().and_then(|login| login.split_once(':')).map(|(user, _)| user.to_owned());
        let link = Link::new(servers, login);
        let asking = runtime::run(async move {
            let held = link.look().await.map_err(|error| super::refusal(&error))?;
            let config = held.client.data("/zookeeper/config").await;
            let rights = match user {
                Some(user) => {
                    let rights = held.client.acls(&directory).await;
                    is_closed(&directory, rights, &user, owner.as_deref())
                }
                None => None,
            };
            Ok::<_, OpenError>((config, rights))
        });
        let (told, rights) = asking.await.map_err(|why| OpenError::Unavailable { why })??;
        let mut checks = judge(told.map(|(text, _)| String::from_utf8_lossy(&text).into_owned()), named);
        checks.extend(rights);
        Ok(checks)
    })
}

/// Checks that only this user may change the election's znode; `None` if it does not exist yet.
fn is_closed(
    directory: &str,
    rights: Result<Vec<Acl>, ClientError>,
    user: &str,
    owner: Option<&str>,
) -> Option<Check> {
    const NAME: &str = "only this user may change the election's znode";
    let why = "whoever may change it can end a lead, or take it";
    match rights {
        Err(ClientError::NoNode) => None,
        Err(error) => {
            let found = format!("its rights could not be read: {error}");
            Some(Check::not(Verdict::Unknown, NAME, found, why, "let this user read the znode"))
        }
        Ok(acls) => Some(match rights::of_others_than(&acls, user, owner) {
            Some(acl) => {
                let found = rights::advice(directory, acl);
                Check::not(Verdict::Fail, NAME, found, why, "set its rights: setAcl PATH auth::cdrwa")
            }
            None => Check::pass(NAME, format!("rights on {directory}: {}", acls.len())),
        }),
    }
}

fn judge(told: Result<String, ClientError>, named: usize) -> Vec<Check> {
    let text = match told {
        Ok(text) => text,
        Err(error) => {
            let found = format!("it does not tell who its servers are: {error}");
            let fix = "let this user read /zookeeper/config, or ask each server: echo srvr | nc HOST 2181";
            return vec![Check::not(Verdict::Unknown, SURVIVES, found, ONE_COPY, fix)];
        }
    };
    let (voters, observers) = count(&text);
    let mut checks = vec![survives(voters, observers)];
    if voters > 0 {
        checks.push(is_reached_otherwise(named, voters + observers));
    }
    checks
}

/// Counts the voting servers, and the observers: `server.1=HOST:2888:3888:participant;0.0.0.0:2181`.
fn count(text: &str) -> (usize, usize) {
    let servers: Vec<&str> = text.lines().filter(|line| line.trim_start().starts_with("server.")).collect();
    let observers = servers.iter().filter(|line| line.contains(":observer")).count();
    (servers.len() - observers, observers)
}

fn survives(voters: usize, observers: usize) -> Check {
    let found = format!("servers that vote: {voters}; observers: {observers}");
    let fix = "run three servers or five, each on a machine of its own, with all of them as server.N in each one's zoo.cfg";
    match voters {
        // A standalone server has no list of servers, and some servers do not publish theirs.
        0 => {
            let found = "it names no servers of an ensemble, as one that stands alone does";
            Check::not(Verdict::Fail, SURVIVES, found, ALONE, fix)
        }
        1 => Check::not(Verdict::Fail, SURVIVES, found, ALONE, fix),
        2 => {
            let why = "two servers need each other: when one is gone, nobody leads";
            Check::not(Verdict::Fail, SURVIVES, found, why, fix)
        }
        even if even % 2 == 0 => {
            let why = "as many may be lost as of one server less";
            Check::not(Verdict::Warn, SURVIVES, found, why, fix)
        }
        odd => Check::pass(SURVIVES, format!("{found}; of those that vote {} may be lost", (odd - 1) / 2)),
    }
}

const ALONE: &str = "when its machine is gone, nobody leads until it is back; when its disk is gone, the backup in its place gives \
                     tokens a second time";

fn is_reached_otherwise(named: usize, servers: usize) -> Check {
    const NAME: &str = "the URL names more than one server";
    let found = format!("addresses in the URL: {named}; servers: {servers}");
    if named > 1 || servers < 2 {
        return Check::pass(NAME, found);
    }
    let why =
        "when that server is gone, this process reaches none of the others, and loses the lead without need";
    Check::not(Verdict::Warn, NAME, found, why, "name all servers: zookeeper://A,B,C/PATH")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ensemble(voters: usize, observers: usize) -> String {
        let voters = (0..voters).map(|n| format!("server.{n}=h{n}:2888:3888:participant;0.0.0.0:2181\n"));
        let observers = (10..10 + observers).map(|n| format!("server.{n}=h{n}:2888:3888:observer\n"));
        voters.chain(observers).chain(["version=0".to_owned()]).collect()
    }

    fn verdicts(told: Result<String, ClientError>, named: usize) -> Vec<Verdict> {
        judge(told, named).iter().map(|check| check.verdict).collect()
    }

    #[test]
    fn three_servers_pass_and_one_alone_does_not() {
        assert_eq!(verdicts(Ok(ensemble(3, 1)), 3), [Verdict::Pass; 2]);
        assert_eq!(verdicts(Ok(ensemble(3, 0)), 1), [Verdict::Pass, Verdict::Warn]);
        assert_eq!(verdicts(Ok(ensemble(2, 5)), 2)[0], Verdict::Fail);
        assert_eq!(verdicts(Ok(ensemble(4, 0)), 2)[0], Verdict::Warn);
        assert_eq!(verdicts(Ok(ensemble(1, 0)), 1), [Verdict::Fail, Verdict::Pass]);
        assert_eq!(verdicts(Ok(String::new()), 1), [Verdict::Fail]);
    }

    #[test]
    fn what_may_not_be_read_is_unknown() {
        assert_eq!(verdicts(Err(ClientError::NoAuth), 3), [Verdict::Unknown]);
        assert_eq!(verdicts(Err(ClientError::NoNode), 3), [Verdict::Unknown]);
    }
}
