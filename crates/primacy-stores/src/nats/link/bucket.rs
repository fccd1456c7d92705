//! The bucket: its stream, which is made if there is none, and its faults.

use super::super::settings::Settings;
pub(in super::super) use super::api::FILE;
use super::api::{self, ApiFailure, StreamConfig, StreamInfo, code};
use super::connection::NatsConnection;
use super::soon;
use crate::open_error::OpenError;

/// The number of replicas of a bucket that this store makes: one may be lost.
pub(in super::super) const REPLICAS: usize = 3;

/// The retention of a stream that keeps what is written, within its limits.
const LIMITS: &str = "limits";

/// A bucket that was found.
pub(super) struct BucketInfo {
    /// The number of its replicas.
    pub(super) replicas: usize,
    /// Warnings for the operator.
    pub(super) warnings: Vec<String>,
}

/// Finds the stream of the bucket, or makes it if `create` is set.
///
/// # Errors
/// [`OpenError::Refused`] for a bucket that does not keep its records, and for servers without JetStream;
/// [`OpenError::Unavailable`] if there is no answer, or no bucket.
pub(super) async fn find(
    connection: &NatsConnection,
    stream: &str,
    settings: &Settings,
    create: bool,
) -> Result<BucketInfo, OpenError> {
    let name = &settings.bucket;
    let found = match look(connection, stream).await {
        Err(ApiFailure::Error(error)) if error.err_code == code::STREAM_NOT_FOUND => {
            if !create {
                let why = format!("there is no bucket {name}; the first candidate makes it");
                return Err(OpenError::Unavailable { why });
            }
            make(connection, stream, name).await?
        }
        Err(ApiFailure::Error(error))
            if [code::NOT_ENABLED, code::NOT_ENABLED_FOR_ACCOUNT].contains(&error.err_code) =>
        {
            let why = format!("this account has no JetStream, which keeps buckets: {error}");
            return Err(OpenError::Refused { why });
        }
        found => found.map_err(|failure| OpenError::Unavailable {
            why: format!("JetStream does not answer, or is not turned on: {failure}"),
        })?,
    };
    let warnings = judge(settings, &found.config, &connection.server.version)?;
    Ok(BucketInfo { replicas: found.config.num_replicas, warnings })
}

async fn look(connection: &NatsConnection, stream: &str) -> Result<StreamInfo, ApiFailure> {
    api::ask(connection, soon(), &format!("STREAM.INFO.{stream}"), &api::EMPTY).await
}

/// Makes the stream, with three replicas in a cluster, and with one on a single server.
async fn make(connection: &NatsConnection, stream: &str, name: &str) -> Result<StreamInfo, OpenError> {
    for num_replicas in [REPLICAS, 1] {
        let config = StreamConfig {
            name: stream.to_owned(),
            description: "elections of Primacy".to_owned(),
            subjects: vec![format!("$KV.{name}.>")],
            retention: LIMITS.to_owned(),
            discard: "new".to_owned(),
            storage: FILE.to_owned(),
            num_replicas,
            max_age: 0,
            max_msgs: -1,
            max_bytes: -1,
            max_msgs_per_subject: 1,
            allow_rollup_hdrs: true,
            deny_delete: true,
            no_ack: false,
            sealed: false,
            mirror: None,
            sources: None,
        };
        match api::ask(connection, soon(), &format!("STREAM.CREATE.{stream}"), &config).await {
            Ok(made) => return Ok(made),
            Err(ApiFailure::Error(error))
                if num_replicas > 1 && error.err_code == code::REPLICAS_NOT_SUPPORTED => {}
            // Another client has made it meanwhile, with other settings.
            Err(ApiFailure::Error(error)) if error.err_code == code::STREAM_NAME_EXIST => break,
            Err(failure) => {
                let why = format!(
                    "the bucket {name} could not be made with {num_replicas} replicas: {failure}. Start the servers that are \
                     missing, or make it by hand: nats kv add {name} --replicas N"
                );
                return Err(OpenError::Unavailable { why });
            }
        }
    }
    look(connection, stream).await.map_err(|failure| OpenError::Unavailable { why: failure.to_string() })
}

/// Returns whether a server is older than this version. A version that cannot be parsed counts as old.
pub(in super::super) fn is_before(server: &str, version: (u32, u32)) -> bool {
    let mut numbers = server.split('.').map(|number| number.parse::<u32>().unwrap_or(0));
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0)) < version
}

/// The first version that can flush before it answers.
pub(in super::super) const SYNCS: (u32, u32) = (2, 10);

/// Checks that a server of this version can keep a bucket with so many replicas.
pub(super) fn judge_server(name: &str, replicas: usize, server: &str) -> Result<(), String> {
    if replicas > 1 && is_before(server, (2, 11)) {
        return Err(format!(
            "the bucket {name} has replicas, and server {server} lets two writes at once replace the same entry of such a \
             bucket: two could lead. Upgrade all servers to 2.11 or later, or name a bucket with one replica"
        ));
    }
    Ok(())
}

/// Returns the setting that makes a bucket lose or refuse records.
fn fault(config: &StreamConfig) -> Option<&'static str> {
    let is_limited = config.max_msgs > 0 || config.max_bytes > 0;
    let faults = [
        (config.max_age != 0, "lets its entries expire (`--ttl`)"),
        (config.mirror.is_some(), "is a mirror, which nobody can write"),
        (
            config.sources.as_ref().is_some_and(|sources| !sources.is_empty()),
            "takes entries from other streams",
        ),
        (config.retention != LIMITS, "does not keep what is written (its retention is not `limits`)"),
        (
            config.discard != "new" && is_limited,
            "discards old entries for new ones of other keys (`discard: old`)",
        ),
        (config.no_ack, "acknowledges no write (`no_ack`)"),
        (config.sealed, "is sealed, and takes no write"),
    ];
    faults.into_iter().find_map(|(is_there, fault)| is_there.then_some(fault))
}

/// Refuses an unfit bucket; returns warnings about any other.
fn judge(settings: &Settings, config: &StreamConfig, server: &str) -> Result<Vec<String>, OpenError> {
    let name = &settings.bucket;
    if let Some(fault) = fault(config) {
        let why =
            format!("the bucket {name} {fault}; name another one, or change its stream {}", config.name);
        return Err(OpenError::Refused { why });
    }
    judge_server(name, config.num_replicas, server).map_err(|why| OpenError::Refused { why })?;
    let mut warnings = Vec::new();
    if config.storage != FILE {
        warnings.push(
            "the bucket is kept in memory: after a restart of its servers a token can be given twice"
                .to_owned(),
        );
    }
    if config.num_replicas < REPLICAS {
        warnings.push(format!(
            "the bucket has fewer than {REPLICAS} replicas ({}): if its server is lost, so is the election, and a \
             token can be given twice",
            config.num_replicas
        ));
    }
    // A setting of the servers, which they do not report to clients.
    if is_before(server, SYNCS) {
        warnings.push(format!(
            "server {server} acknowledges what it has not flushed: a power cut can take a write back, and a token can be given twice; \
             2.10 and later can flush before they answer"
        ));
    } else if !settings.is_synced {
        warnings.push(
            "whether the servers flush before they answer, they tell nobody; if they do not, a power cut can take a write back, and a \
             token can be given twice. Set `jetstream { sync_interval: always }` on each, and then say so by `?sync=always`"
                .to_owned(),
        );
    }
    Ok(warnings)
}

#[cfg(test)]
mod tests {
    use super::super::api::Source;
    use super::*;

    #[test]
    fn buckets_that_lose_records_are_refused_or_warned_of() {
        let safe = serde_json::json!({
            "name": "KV_b", "retention": "limits", "discard": "old", "storage": "file", "num_replicas": 3, "max_age": 0,
            "max_msgs": -1, "max_bytes": -1,
        });
        let safe: StreamConfig = serde_json::from_value(safe).expect("it is what a server writes");
        let settings = |rest: &str| Settings::parse(rest).expect("it is a URL");
        let (synced, plain) = (settings("//h/b?sync=always"), settings("//h/b"));
        let judge = |config: &StreamConfig, server: &str| judge(&synced, config, server);
        assert_eq!(judge(&safe, "2.11.0"), Ok(Vec::new()));
        let unknown = super::judge(&plain, &safe, "2.11.0").unwrap();
        assert!(unknown.len() == 1 && unknown[0].contains("sync_interval"), "{unknown:?}");
        let old = StreamConfig { num_replicas: 1, ..safe.clone() };
        assert!(judge(&old, "2.9.10").unwrap().join("").contains("not flushed"), "whatever is said of it");
        let single = StreamConfig { num_replicas: 1, ..safe.clone() };
        assert!(judge(&single, "2.9.10").unwrap().join("").contains("replicas"));
        let memory = StreamConfig { storage: "memory".to_owned(), ..safe.clone() };
        assert!(judge(&memory, "2.11.1").unwrap().join("").contains("memory"));
        for old in ["2.9.10", "1.99", "", "x"] {
            assert!(matches!(judge(&safe, old), Err(OpenError::Refused { .. })), "{old}");
        }
        // At its limit, a bucket that discards new entries refuses to write, and keeps its content.
        let full = StreamConfig { max_bytes: 1, discard: "new".to_owned(), ..safe.clone() };
        assert_eq!(judge(&full, "2.11.0"), Ok(Vec::new()));
        let source = || Source { name: "other".to_owned() };
        for (config, word) in [
            (StreamConfig { max_age: 1, ..safe.clone() }, "expire"),
            (StreamConfig { mirror: Some(source()), ..safe.clone() }, "mirror"),
            (StreamConfig { sources: Some(vec![source()]), ..safe.clone() }, "other streams"),
            (StreamConfig { retention: "interest".to_owned(), ..safe.clone() }, "retention"),
            (StreamConfig { retention: "workqueue".to_owned(), ..safe.clone() }, "retention"),
            (StreamConfig { discard: "old".to_owned(), max_msgs: 9, ..safe.clone() }, "discard: old"),
            (StreamConfig { discard: "old".to_owned(), max_bytes: 9, ..safe.clone() }, "discard: old"),
            (StreamConfig { no_ack: true, ..safe.clone() }, "no_ack"),
            (StreamConfig { sealed: true, ..safe.clone() }, "sealed"),
        ] {
            let refused = judge(&config, "2.11.0");
            assert!(
                matches!(&refused, Err(OpenError::Refused { why }) if why.contains(word)),
                "{word}: {refused:?}"
            );
        }
    }
}
