//! Checks of a server: whether it keeps what it has acknowledged, as far as this user may read its settings.

use std::collections::HashMap;

use redis::{Cmd, FromRedisValue};

use super::link::Link;
use super::refusal::Failure;
use super::script::Request;
use super::settings::Settings;
use crate::diagnostics::{Check, Examination, SURVIVES, Verdict};
use crate::open_error::OpenError;
use crate::opening::Address;

/// The settings that are read.
const SETTINGS: [&str; 4] = ["appendonly", "appendfsync", "save", "min-replicas-to-write"];

/// The remedy for all faults at once.
const ELSEWHERE: &str = "hold the election in a store that survives failovers, as etcd: or postgres:, and guard what is kept here with \
                         the token";

/// The answers of a server, or the reason that this user may not read them.
struct Seen {
    /// The fields of `INFO`.
    fields: Result<HashMap<String, String>, String>,
    settings: Result<HashMap<String, String>, String>,
}

/// Asks the server.
pub(crate) fn examine(address: Address) -> Examination {
    Box::pin(async move {
        let link = Link::new(Settings::parse(&address.rest)?);
        link.open().await?;
        let info: Result<String, String> = ask(&link, redis::cmd("INFO")).await?;
        let mut settings = Ok(HashMap::new());
        for name in SETTINGS {
            // One setting per command: servers before version 7 do not accept several.
            let mut question = redis::cmd("CONFIG");
            question.arg("GET").arg(name);
            let told: Result<HashMap<String, String>, String> = ask(&link, question).await?;
            settings = settings.and_then(|mut all: HashMap<String, String>| {
                all.extend(told?);
                Ok(all)
            });
        }
        let lines = |info: String| {
            let fields = info.lines().filter_map(|line| line.trim().split_once(':'));
            fields.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
        };
        Ok(Seen { fields: info.map(lines), settings }.judge())
    })
}

/// Sends a command; returns the answer, or the reason that this user may not have it.
async fn ask<T: FromRedisValue>(link: &Link, command: Cmd) -> Result<Result<T, String>, OpenError> {
    match link.request(Request { command, whole: None }).await {
        Ok(value) => Ok(redis::from_redis_value(value).map_err(|error| error.to_string())),
        Err(Failure::NotDone(why)) => Ok(Err(why)),
        Err(Failure::Unknown(why)) => Err(OpenError::Unavailable { why }),
    }
}

impl Seen {
    fn judge(&self) -> Vec<Check> {
        vec![self.survives(), self.keeps_log(), self.flushes()]
    }

    /// Redis never survives a failover without the risk of lost writes, so this check never passes.
    fn survives(&self) -> Check {
        let replicas = match &self.fields {
            Ok(fields) => {
                let count = fields.get("connected_slaves").map_or("unknown", String::as_str);
                let wait =
                    self.settings.as_ref().ok().and_then(|settings| settings.get("min-replicas-to-write"));
                let wait = wait.map_or("unknown", String::as_str);
                format!("replicas that are connected: {count}; min-replicas-to-write: {wait}")
            }
            Err(why) => format!("it does not tell whether it has replicas: {why}"),
        };
        Check::not(
            Verdict::Warn,
            SURVIVES,
            replicas,
            "a replica gets writes after they were acknowledged, whatever min-replicas-to-write says. One that takes over may not \
             have the latest token, and gives it a second time; without a replica nobody leads until the server is back",
            ELSEWHERE,
        )
    }

    fn keeps_log(&self) -> Check {
        const NAME: &str = "it keeps a log of its writes";
        let enabled = self.fields.as_ref().ok().and_then(|fields| fields.get("aof_enabled").cloned());
        let setting = || Some(self.settings.as_ref().ok()?.get("appendonly")?.clone());
        let enabled = enabled.or_else(setting);
        match enabled.as_deref() {
            Some("1" | "yes") => Check::pass(NAME, "appendonly is yes"),
            Some(_) => Check::not(
                Verdict::Fail,
                NAME,
                format!("appendonly is no{}", self.snapshots()),
                "after a restart the writes since the last snapshot are gone, and a token is given a second time",
                "CONFIG SET appendonly yes, and the same in redis.conf",
            ),
            None => self.unknown(NAME, "appendonly"),
        }
    }

    fn snapshots(&self) -> String {
        let save = self.settings.as_ref().ok().and_then(|settings| settings.get("save"));
        save.map_or_else(String::new, |save| format!("; save is \"{save}\""))
    }

    fn flushes(&self) -> Check {
        const NAME: &str = "what was answered survives a crash";
        match self.settings.as_ref().map(|settings| settings.get("appendfsync").map(String::as_str)) {
            Ok(Some("always")) => Check::pass(NAME, "appendfsync is always"),
            Ok(Some(setting)) => Check::not(
                Verdict::Fail,
                NAME,
                format!("appendfsync is {setting}"),
                "it acknowledges writes before they are on disk: after a crash of the machine a token is given a second time",
                "CONFIG SET appendfsync always, and the same in redis.conf",
            ),
            Ok(None) | Err(_) => self.unknown(NAME, "appendfsync"),
        }
    }

    fn unknown(&self, name: &str, setting: &str) -> Check {
        let why = self.settings.as_ref().err().map_or("it has no such setting", String::as_str);
        Check::not(
            Verdict::Unknown,
            name,
            format!("it does not tell {setting}: {why}"),
            "a server that does not flush what it acknowledges gives a token a second time after a crash",
            format!("look into redis.conf, or let this user ask: ACL SETUSER NAME '+config|get' ({setting})"),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(pairs: &[(&str, &str)]) -> HashMap<String, String> {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    fn verdicts(fields: &[(&str, &str)], settings: &[(&str, &str)]) -> Vec<Verdict> {
        let seen = Seen { fields: Ok(map(fields)), settings: Ok(map(settings)) };
        seen.judge().iter().map(|check| check.verdict).collect()
    }

    #[test]
    fn it_is_never_said_to_be_safe() {
        let best = [("aof_enabled", "1"), ("connected_slaves", "2")];
        assert_eq!(
            verdicts(&best, &[("appendfsync", "always")]),
            [Verdict::Warn, Verdict::Pass, Verdict::Pass]
        );
        assert_eq!(
            verdicts(&[("aof_enabled", "0")], &[("appendfsync", "everysec"), ("save", "60 1")]),
            [Verdict::Warn, Verdict::Fail, Verdict::Fail]
        );
    }

    #[test]
    fn what_may_not_be_asked_is_unknown() {
        let refused = || Err("NOPERM".to_owned());
        let seen = Seen { fields: refused(), settings: refused() };
        let verdicts: Vec<Verdict> = seen.judge().iter().map(|check| check.verdict).collect();
        assert_eq!(verdicts, [Verdict::Warn, Verdict::Unknown, Verdict::Unknown]);
    }
}
