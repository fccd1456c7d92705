//! The bucket: its stream, which is made if there is none, and its faults.

use std::time::Duration;

use async_nats::jetstream::context::{CreateStreamErrorKind, GetStreamErrorKind};
use async_nats::jetstream::stream::{Config, DiscardPolicy, RetentionPolicy, StorageType};
use async_nats::jetstream::{Context, ErrorCode};

use super::super::settings::Settings;
use super::told;
use crate::open_error::OpenError;

/// The number of replicas of a bucket that this store makes: one may be lost.
pub(in super::super) const REPLICAS: usize = 3;

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
    context: &Context,
    stream: &str,
    settings: &Settings,
    create: bool,
) -> Result<BucketInfo, OpenError> {
    let name = &settings.bucket;
    let config = match context.get_stream(stream).await {
        Ok(found) => found.cached_info().config.clone(),
        Err(error) => match error.kind() {
            GetStreamErrorKind::JetStream(code) if code.error_code() == ErrorCode::STREAM_NOT_FOUND => {
                if !create {
                    let why = format!("there is no bucket {name}; the first candidate makes it");
                    return Err(OpenError::Unavailable { why });
                }
                make(context, stream, name).await?
            }
            GetStreamErrorKind::JetStream(code) if is_disabled(code.error_code()) => {
                let why = format!("this account has no JetStream, which keeps buckets ({code})");
                return Err(OpenError::Refused { why });
            }
            GetStreamErrorKind::JetStream(_)
            | GetStreamErrorKind::Request
            | GetStreamErrorKind::EmptyName
            | GetStreamErrorKind::InvalidStreamName => {
                let why = format!("JetStream does not answer, or is not turned on: {}", told(&error));
                return Err(OpenError::Unavailable { why });
            }
        },
    };
    let warnings = judge(settings, &config, &context.client().server_info().version)?;
    Ok(BucketInfo { replicas: config.num_replicas, warnings })
}

fn is_disabled(code: ErrorCode) -> bool {
    code == ErrorCode::JETSTREAM_NOT_ENABLED || code == ErrorCode::JETSTREAM_NOT_ENABLED_FOR_ACCOUNT
}

/// Makes the stream, with three replicas in a cluster, and with one on a single server.
async fn make(context: &Context, stream: &str, name: &str) -> Result<Config, OpenError> {
    let config = |num_replicas| Config {
        name: stream.to_owned(),
        description: Some("elections of Primacy".to_owned()),
        subjects: vec![format!("$KV.{name}.>")],
        max_messages_per_subject: 1,
        discard: DiscardPolicy::New,
        storage: StorageType::File,
        allow_rollup: true,
        deny_delete: true,
        num_replicas,
        ..Config::default()
    };
    for replicas in [REPLICAS, 1] {
        match context.create_stream(config(replicas)).await {
            Ok(made) => return Ok(made.cached_info().config.clone()),
            Err(error) => match error.kind() {
                CreateStreamErrorKind::JetStream(code)
                    if replicas > 1 && code.error_code() == ErrorCode::STREAM_REPLICAS_NOT_SUPPORTED => {}
                // Another client has made it meanwhile, with other settings.
                CreateStreamErrorKind::JetStream(code)
                    if code.error_code() == ErrorCode::STREAM_NAME_EXIST =>
                {
                    break;
                }
                CreateStreamErrorKind::JetStream(_)
                | CreateStreamErrorKind::JetStreamUnavailable
                | CreateStreamErrorKind::TimedOut
                | CreateStreamErrorKind::Response
                | CreateStreamErrorKind::NotFound
                | CreateStreamErrorKind::ResponseParse
                | CreateStreamErrorKind::EmptyStreamName
                | CreateStreamErrorKind::InvalidStreamName
                | CreateStreamErrorKind::DomainAndExternalSet => {
                    let why = format!(
                        "the bucket {name} could not be made with {replicas} replicas: {}. Start the servers that are \
                         missing, or make it by hand: nats kv add {name} --replicas N",
                        told(&error)
                    );
                    return Err(OpenError::Unavailable { why });
                }
            },
        }
    }
    let found = context.get_stream(stream).await;
    let found = found.map_err(|error| OpenError::Unavailable { why: told(&error) })?;
    Ok(found.cached_info().config.clone())
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
fn fault(config: &Config) -> Option<&'static str> {
    let is_limited = config.max_messages > 0 || config.max_bytes > 0;
    let faults = [
        (config.max_age != Duration::ZERO, "lets its entries expire (`--ttl`)"),
        (config.mirror.is_some(), "is a mirror, which nobody can write"),
        (
            config.sources.as_ref().is_some_and(|sources| !sources.is_empty()),
            "takes entries from other streams",
        ),
        (
            config.retention != RetentionPolicy::Limits,
            "does not keep what is written (its retention is not `limits`)",
        ),
        (
            config.discard == DiscardPolicy::Old && is_limited,
            "discards old entries for new ones of other keys (`discard: old`)",
        ),
        (config.no_ack, "acknowledges no write (`no_ack`)"),
        (config.sealed, "is sealed, and takes no write"),
    ];
    faults.into_iter().find_map(|(is_there, fault)| is_there.then_some(fault))
}

/// Refuses an unfit bucket; returns warnings about any other.
fn judge(settings: &Settings, config: &Config, server: &str) -> Result<Vec<String>, OpenError> {
    let name = &settings.bucket;
    if let Some(fault) = fault(config) {
        let why =
            format!("the bucket {name} {fault}; name another one, or change its stream {}", config.name);
        return Err(OpenError::Refused { why });
    }
    judge_server(name, config.num_replicas, server).map_err(|why| OpenError::Refused { why })?;
    let mut warnings = Vec::new();
    if config.storage != StorageType::File {
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
    use async_nats::jetstream::stream::Source;

    use super::*;

    #[test]
    fn buckets_that_lose_records_are_refused_or_warned_of() {
        let safe = Config { storage: StorageType::File, num_replicas: 3, ..Config::default() };
        let settings = |rest: &str| Settings::parse(rest).expect("it is a URL");
        let (synced, plain) = (settings("//h/b?sync=always"), settings("//h/b"));
        let judge = |config: &Config, server: &str| judge(&synced, config, server);
        assert_eq!(judge(&safe, "2.11.0"), Ok(Vec::new()));
        let unknown = super::judge(&plain, &safe, "2.11.0").unwrap();
        assert!(unknown.len() == 1 && unknown[0].contains("sync_interval"), "{unknown:?}");
        let old = Config { num_replicas: 1, ..safe.clone() };
        assert!(judge(&old, "2.9.10").unwrap().join("").contains("not flushed"), "whatever is said of it");
        let single = Config { num_replicas: 1, ..safe.clone() };
        assert!(judge(&single, "2.9.10").unwrap().join("").contains("replicas"));
        let memory = Config { storage: StorageType::Memory, ..safe.clone() };
        assert!(judge(&memory, "2.11.1").unwrap().join("").contains("memory"));
        for old in ["2.9.10", "1.99", "", "x"] {
            assert!(matches!(judge(&safe, old), Err(OpenError::Refused { .. })), "{old}");
        }
        // At its limit, a bucket that discards new entries refuses to write, and keeps its content.
        let full = Config { max_bytes: 1, discard: DiscardPolicy::New, ..safe.clone() };
        assert_eq!(judge(&full, "2.11.0"), Ok(Vec::new()));
        let source = || Source { name: "other".to_owned(), ..Source::default() };
        for (config, word) in [
            (Config { max_age: Duration::from_secs(1), ..safe.clone() }, "expire"),
            (Config { mirror: Some(source()), ..safe.clone() }, "mirror"),
            (Config { sources: Some(vec![source()]), ..safe.clone() }, "other streams"),
            (Config { retention: RetentionPolicy::Interest, ..safe.clone() }, "retention"),
            (Config { retention: RetentionPolicy::WorkQueue, ..safe.clone() }, "retention"),
            (Config { discard: DiscardPolicy::Old, max_messages: 9, ..safe.clone() }, "discard: old"),
            (Config { discard: DiscardPolicy::Old, max_bytes: 9, ..safe.clone() }, "discard: old"),
            (Config { no_ack: true, ..safe.clone() }, "no_ack"),
            (Config { sealed: true, ..safe.clone() }, "sealed"),
        ] {
            let refused = judge(&config, "2.11.0");
            assert!(
                matches!(&refused, Err(OpenError::Refused { why }) if why.contains(word)),
                "{word}: {refused:?}"
            );
        }
    }
}
