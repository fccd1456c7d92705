//! Checks of Consul's servers.

use super::url;
use crate::diagnostics::{Check, Examination, SURVIVES, Verdict};
use crate::open_error::OpenError;
use crate::opening::Address;
use crate::runtime;
use crate::sessions::SessionError;

/// Asks an agent of the URL.
pub(crate) fn examine(address: Address) -> Examination {
    Box::pin(async move {
        let api = url::api(&address.rest)?;
        let asked =
            runtime::run(async move { Ok::<_, SessionError>((api.peers().await?, api.leader().await?)) });
        let told = asked.await.map_err(|why| OpenError::Unavailable { why })?;
        let (peers, leader) = told.map_err(url::of_opening)?;
        Ok(judge(peers.len(), &leader))
    })
}

fn judge(peers: usize, leader: &str) -> Vec<Check> {
    let found = format!("servers that agree on each write: {peers}");
    let fix = "run three servers or five (bootstrap_expect = 3), each on a machine of its own";
    let survives = match peers {
        0..=2 => {
            let why = "when one of them is gone, nobody leads; when its disk is gone, the backup in its place gives tokens a second \
                       time";
            Check::not(Verdict::Fail, SURVIVES, found, why, fix)
        }
        even if even % 2 == 0 => {
            let why = "as many may be lost as of one server less";
            Check::not(Verdict::Warn, SURVIVES, found, why, fix)
        }
        odd => Check::pass(SURVIVES, format!("{found}, of which {} may be lost", (odd - 1) / 2)),
    };
    let has_leader = if leader.is_empty() {
        let why = "while the servers have no leader, they answer nothing that decides, and nobody leads";
        let fix = "consul operator raft list-peers; start the servers that are away";
        Check::not(Verdict::Fail, LEADER, "they have none", why, fix)
    } else {
        Check::pass(LEADER, "they have one")
    };
    vec![survives, has_leader]
}

const LEADER: &str = "the servers have a leader";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_servers_pass_and_fewer_or_even_ones_do_not() {
        let of = |peers, leader| judge(peers, leader).iter().map(|check| check.verdict).collect::<Vec<_>>();
        assert_eq!(of(3, "10.0.0.1:8300"), [Verdict::Pass, Verdict::Pass]);
        assert_eq!(of(1, "10.0.0.1:8300"), [Verdict::Fail, Verdict::Pass]);
        assert_eq!(of(2, ""), [Verdict::Fail, Verdict::Fail]);
        assert_eq!(of(4, "x")[0], Verdict::Warn);
        assert_eq!(of(0, "x")[0], Verdict::Fail);
    }
}
