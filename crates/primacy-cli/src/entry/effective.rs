//! The settings in force, and the source of each.

use std::time::Duration;

use clap::Args as _;
use primacy::config::{PROMISE, Venue, default_state_dir};
use primacy::core::election::seniority::SEEDS_MAX;
use primacy::stores::login::without_logins;
use primacy::{Algorithm, Timers};
use serde_json::{Map, Value, json};

use super::file::Kind;
use super::layers::{Source, Sources, keys};
use super::membership;
use super::{Entry, HEALTH_INTERVAL, HEALTH_MISSES};
use crate::exit::Failure;

/// Every setting with its value.
#[derive(Debug)]
pub(crate) struct Effective {
    settings: Vec<Setting>,
}

#[derive(Debug)]
struct Setting {
    key: String,
    kind: Kind,
    /// `None` where nothing is given and there is no default.
    value: Option<String>,
    source: String,
}

impl Effective {
    /// Returns the settings that a node with these options would run with.
    ///
    /// # Errors
    /// If a node with these options would not run.
    pub(crate) fn of(entry: &Entry, sources: &Sources) -> Result<Self, Failure> {
        let entrance = entry.check(sources)?;
        let timers = entrance
            .builder
            .check(entry.venue())
            .map_err(|error| Failure::new(crate::exit::Exit::Config, error.to_string()))?;
        let command = Entry::augment_args(clap::Command::new("entry"));
        let setting = |key: &super::layers::Key<'_>| {
            // On the command line, `--json` chooses the form of the output.
            let given = sources.of(key.name);
            let given = given.filter(|given| key.name != "json" || given.source != Source::CommandLine);
            let (value, source) = match given {
                Some(given) if may_be_secret(key.name, &given.text) => {
                    (Some(without_secret(&given.text, &given.source)), given.source.to_string())
                }
                Some(given) => (Some(given.text.clone()), given.source.to_string()),
                None => (default(entry, &timers, key.name), "default".to_owned()),
            };
            Setting { key: key.name.to_owned(), kind: Kind::of(key), value, source }
        };
        // `config` names the source of the settings and is not a setting itself. The output is complete without it.
        let settings = keys(&command).iter().filter(|key| key.name != "config").map(setting).collect();
        Ok(Self { settings })
    }

    /// Formats the settings as a file for `--config`.
    pub(crate) fn toml(&self) -> String {
        let line = |setting: &Setting| match &setting.value {
            Some(value) => format!("{} = {}  # {}\n", setting.key, setting.literal(value), setting.source),
            None => format!("# {} is not set\n", setting.key),
        };
        self.settings.iter().map(line).collect()
    }

    /// Formats the settings as one JSON object.
    pub(crate) fn json(&self) -> String {
        let entry = |setting: &Setting| {
            let value = setting.value.as_ref().map(|value| setting.json_value(value));
            (setting.key.clone(), json!({ "value": value, "source": setting.source }))
        };
        let object: Map<String, Value> = self.settings.iter().map(entry).collect();
        format!("{:#}\n", Value::Object(object))
    }
}

impl Setting {
    fn literal(&self, value: &str) -> String {
        match self.kind {
            Kind::Text => toml::Value::String(value.to_owned()).to_string(),
            Kind::Number | Kind::Truth => value.to_owned(),
        }
    }

    fn json_value(&self, value: &str) -> Value {
        match self.kind {
            Kind::Text => Value::String(value.to_owned()),
            // Both are valid JSON as they are written; the command line's own check has accepted them.
            Kind::Number | Kind::Truth => serde_json::from_str(value).unwrap_or(Value::Null),
        }
    }
}

/// Returns whether the value is the URL of a store, or contains one.
fn may_be_secret(key: &str, text: &str) -> bool {
    match key {
        "store" => true,
        "confirm" => text != "quorum",
        "split-brain" => membership::names_store(text),
        _ => false,
    }
}

/// Replaces a URL that may be a secret: of one from the environment, only its variable's name is shown.
fn without_secret(url: &str, source: &Source) -> String {
    match source {
        Source::Environment { variable } if !url.starts_with("env:") => format!("env:{variable}"),
        Source::Environment { .. } | Source::CommandLine | Source::File { .. } => {
            without_logins(url).into_owned()
        }
    }
}

/// Returns the default of a setting, where nothing is given.
fn default(entry: &Entry, timers: &Timers, key: &str) -> Option<String> {
    let among_peers = entry.venue() == Venue::Peers;
    let health = entry.health.is_some();
    let has_safety = entry.algorithm.unwrap_or_default() == Algorithm::Quorum
        || entry.confirm.as_deref() == Some("quorum");
    let by_seniority = among_peers && entry.algorithm == Some(Algorithm::Seniority);
    match key {
        "seeds" if by_seniority => entry.peers.as_ref().map(|peers| {
            let names: Vec<String> = peers.iter().take(SEEDS_MAX).map(|(node, _)| node.to_string()).collect();
            names.join(",")
        }),
        "split-brain" => by_seniority.then(|| membership::SPLIT_BRAIN.to_owned()),
        "detector" => by_seniority.then(|| membership::missed(timers.miss_count)),
        // If a store confirms, the lease is the store's, and the nomination takes no longer than in other elections.
        "stable-after" => by_seniority.then(|| match entry.confirm.as_deref() {
            None | Some("quorum") => written(timers.lease),
            Some(_) => written(timers.lease.min(PROMISE)),
        }),
        "minimum-members" => by_seniority.then(|| "1".to_owned()),
        "algorithm" => among_peers.then(|| Algorithm::default().to_string()),
        "allow-advisory" => among_peers.then(|| "false".to_owned()),
        // The other elections offer no choice of the safety.
        "safety" => (among_peers && has_safety).then(|| "lease".to_owned()),
        "priority" => among_peers.then(|| "0".to_owned()),
        "witness" | "json" => Some("false".to_owned()),
        "cluster" => among_peers.then(|| entry.election.clone()).flatten(),
        "insecure-cleartext" => among_peers.then(|| "false".to_owned()),
        "state-dir" if entry.store.is_none() => {
            default_state_dir().ok().and_then(|dir| dir.to_str().map(ToOwned::to_owned))
        }
        "lease" => Some(written(timers.lease)),
        "heartbeat" => Some(written(timers.renewal)),
        "drain" => Some(written(timers.drain)),
        "kill-margin" => Some(written(timers.kill_margin)),
        "drift-max" => Some(format!("{}ppm", timers.drift_max.as_ppm())),
        "random-wait-max" => among_peers.then(|| written(timers.random_wait_max)),
        "health-interval" => health.then(|| written(HEALTH_INTERVAL)),
        "health-misses" => health.then(|| HEALTH_MISSES.to_string()),
        // The default name of a node differs in each process.
        _ => None,
    }
}

/// Formats a duration as `--lease` reads it, to the nanosecond.
pub(super) fn written(duration: Duration) -> String {
    let nanos = duration.as_nanos();
    let (unit, name) = if nanos >= 1_000_000_000 { (1_000_000_000, "s") } else { (1_000_000, "ms") };
    let digits = if name == "s" { 9 } else { 6 };
    let text = format!("{}.{:0digits$}", nanos / unit, nanos % unit);
    format!("{}{name}", text.trim_end_matches('0').trim_end_matches('.'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_as_the_same() {
        for nanos in [0, 1, 999_999, 166_666_666, 250_000_000, 1_000_000_000, 3_333_333_333, 90_000_000_000] {
            let duration = Duration::from_nanos(nanos);
            assert_eq!(crate::duration::parse(&written(duration)), Ok(duration), "{}", written(duration));
        }
    }
}
