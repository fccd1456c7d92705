//! Checks of a bucket, as far as JetStream reports its state.

use super::key_of;
use super::link::bucket::{FILE, REPLICAS, SYNCS, is_before};
use super::link::{Link, StreamInfo};
use super::settings::Settings;
use crate::diagnostics::{Check, Examination, SURVIVES, Verdict};
use crate::opening::Address;

/// Asks for the bucket's stream.
pub(crate) fn examine(address: Address) -> Examination {
    Box::pin(async move {
        let link = Link::new(Settings::parse(&address.rest)?);
        link.open(false).await?;
        let found = link.inspect(&key_of(&address.election)).await?;
        let is_noticed = notices_changes(found.is_subscription_refused);
        Ok(vec![survives(&found.info), is_on_disk(&found.info), flushes(&found.server), is_noticed])
    })
}

/// Checks that the bucket has replicas that are up to date.
fn survives(info: &StreamInfo) -> Check {
    let wanted = info.config.num_replicas;
    let fix = format!(
        "nats stream edit {} --replicas {REPLICAS}, on a cluster of three servers or more",
        info.config.name
    );
    if wanted < REPLICAS {
        let why = "when the one server that keeps it is lost, nobody leads; when its disk is lost, a token is given a second time";
        return Check::not(Verdict::Warn, SURVIVES, format!("replicas of the bucket: {wanted}"), why, fix);
    }
    let others = info.cluster.as_ref().map(|cluster| cluster.replicas.as_slice()).unwrap_or_default();
    let behind = others.iter().filter(|peer| !peer.current || peer.offline).count();
    let found = format!("replicas of the bucket: {wanted}, of which {behind} are behind or away");
    if behind == 0 {
        return Check::pass(SURVIVES, found);
    }
    let why = "what is away is lost already; one more may be one too many";
    Check::not(Verdict::Warn, SURVIVES, found, why, "nats stream report; start the servers that are away")
}

fn is_on_disk(info: &StreamInfo) -> Check {
    const NAME: &str = "the bucket is kept on disk";
    if info.config.storage == FILE {
        return Check::pass(NAME, "its storage is file");
    }
    Check::not(
        Verdict::Fail,
        NAME,
        format!("its storage is {}", info.config.storage),
        "after a restart of its servers a token is given a second time",
        "make another bucket, and stop all candidates before they use it: nats kv add NAME --storage file --replicas 3",
    )
}

/// Checks that the login may subscribe to the election's key.
fn notices_changes(is_refused: bool) -> Check {
    const NAME: &str = "changes are noticed at once";
    if !is_refused {
        return Check::pass(NAME, "the login may subscribe to the election's key");
    }
    let why = "candidates notice a release by polling, up to a second later";
    let fix = "grant the login the right to subscribe to $KV.BUCKET.>";
    Check::not(Verdict::Warn, NAME, "the login may not subscribe to the election's key", why, fix)
}

/// Checks that an acknowledged write is flushed. That is a setting of the server, which it does not
/// report to clients.
fn flushes(server: &str) -> Check {
    const NAME: &str = "what was answered survives a crash";
    let why = "a server acknowledges what it has not flushed, up to two minutes before. A power cut that hits the only replica, or a \
               majority, takes it back, and a token is given a second time";
    if is_before(server, SYNCS) {
        return Check::not(
            Verdict::Warn,
            NAME,
            format!("server {server} cannot flush before it answers"),
            why,
            "upgrade to 2.11 or later, and set `jetstream { sync_interval: always }` on every server",
        );
    }
    Check::not(
        Verdict::Unknown,
        NAME,
        format!("server {server} tells no client its sync_interval; unless it is set, it is 2 minutes"),
        why,
        "see that every server's configuration has `jetstream { sync_interval: always }`; with a monitoring port: curl \
         http://HOST:8222/varz shows it under jetstream.config",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn info(replicas: usize, storage: &str, peers: &[(bool, bool)]) -> StreamInfo {
        let peers: Vec<_> = peers
            .iter()
            .map(|(current, offline)| {
                serde_json::json!({ "name": "n", "current": current, "offline": offline, "active": 0 })
            })
            .collect();
        let config = serde_json::json!({
            "name": "KV_b", "subjects": [], "retention": "limits", "max_consumers": -1, "max_msgs": -1,
            "max_bytes": -1, "max_age": 0, "discard": "new", "storage": storage, "num_replicas": replicas,
        });
        let state = serde_json::json!({
            "messages": 0, "bytes": 0, "first_seq": 0, "last_seq": 0, "consumer_count": 0,
            "first_ts": "2026-01-01T00:00:00Z", "last_ts": "2026-01-01T00:00:00Z",
        });
        let info = serde_json::json!({
            "config": config, "created": "2026-01-01T00:00:00Z", "state": state,
            "cluster": { "leader": "n", "replicas": peers }, "ts": "2026-01-01T00:00:00Z",
        });
        serde_json::from_value(info).expect("it is what a server writes")
    }

    #[test]
    fn a_bucket_with_three_replicas_that_are_up_to_date_passes() {
        let up = (true, false);
        assert_eq!(survives(&info(3, "file", &[up, up])).verdict, Verdict::Pass);
        assert_eq!(survives(&info(3, "file", &[up, (false, true)])).verdict, Verdict::Warn);
        assert_eq!(survives(&info(1, "file", &[])).verdict, Verdict::Warn);
        assert_eq!(is_on_disk(&info(3, "file", &[])).verdict, Verdict::Pass);
        assert_eq!(is_on_disk(&info(3, "memory", &[])).verdict, Verdict::Fail);
    }

    #[test]
    fn whether_it_flushes_is_never_said_to_be_so() {
        assert_eq!(flushes("2.9.10").verdict, Verdict::Warn);
        assert_eq!(flushes("2.11.1").verdict, Verdict::Unknown);
        assert_eq!(flushes("").verdict, Verdict::Warn);
    }
}
