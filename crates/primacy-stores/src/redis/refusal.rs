//! The meaning of the server's errors: nothing was written, or the outcome is not known; and the remedy.

use redis::{ErrorKind, RedisError};

use super::script;
use crate::open_error::OpenError;

/// The reason that a request has no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Failure {
    /// Nothing was written, and nothing will be.
    NotDone(String),
    /// It may have been written.
    Unknown(String),
}

/// An error of a server by its code.
struct Known {
    code: &'static str,
    /// The remedy.
    hint: &'static str,
    /// True if trying again does not help when this error occurs while a store is opened.
    is_final: bool,
}

const fn passing(code: &'static str, hint: &'static str) -> Known {
    Known { code, hint, is_final: false }
}

const fn lasting(code: &'static str, hint: &'static str) -> Known {
    Known { code, hint, is_final: true }
}

const CLUSTER: &str = "it is a node of a Redis Cluster, whose failovers lose writes that were acknowledged; hold \
                       elections on a server of its own";
const LOGIN: &str =
    "it does not accept this login; put USER:PASSWORD@ into the URL as the server's ACL has them";

/// The errors by which a server says that it has not run the script, or that a command of it was refused before the
/// record was written. Other errors may come from a proxy in between, which does not know what the server has done.
const KNOWN: [Known; 19] = [
    passing("NOSCRIPT", "it has forgotten the script in the middle of a request; try again"),
    passing("LOADING", "it is still reading its data from disk"),
    passing("BUSY", "it is busy with somebody's script"),
    passing("READONLY", "it is a replica; name the server that takes writes"),
    passing("MASTERDOWN", "it is a replica that has lost its master; name the server that takes writes"),
    passing("NOREPLICAS", "too few of its replicas are in reach for a write (`min-replicas-to-write`)"),
    passing("OOM", "it has no memory left (`maxmemory`); give it more, or a server of its own"),
    passing("MISCONF", "it cannot save its data, and takes no writes until it can; see its log"),
    passing("TRYAGAIN", CLUSTER),
    passing("CLUSTERDOWN", CLUSTER),
    lasting("MOVED", CLUSTER),
    lasting("ASK", CLUSTER),
    lasting("CROSSSLOT", CLUSTER),
    lasting("NOAUTH", LOGIN),
    lasting("WRONGPASS", LOGIN),
    lasting(
        "NOPERM",
        "this user lacks a right; docs/stores/redis.md has the command that grants those needed",
    ),
    lasting("NOPROTO", "it is older than Redis 6, which this store needs"),
    lasting(
        "WRONGTYPE",
        "something else is kept under a key of this election; write another prefix into the URL",
    ),
    lasting(
        script::NO_TOKEN,
        "the key that keeps the highest token holds something that is no number; set it to the highest token \
         that was given",
    ),
];

impl Failure {
    /// Interprets the error of a request that was sent.
    pub(super) fn of(error: &RedisError) -> Self {
        match known(error) {
            Some(known) => Self::NotDone(told(error, known)),
            None => Self::Unknown(error.to_string()),
        }
    }
}

/// Interprets the error of an open.
pub(super) fn of_opening(error: &RedisError) -> OpenError {
    let is_login = error.kind() == ErrorKind::AuthenticationFailed;
    match known(error) {
        Some(known) if known.is_final => OpenError::Refused { why: told(error, known) },
        Some(known) => OpenError::Unavailable { why: told(error, known) },
        None if is_login => OpenError::Refused { why: format!("{LOGIN} ({error})") },
        None if error.kind() == ErrorKind::RESP3NotSupported => {
            OpenError::Refused { why: "it is older than Redis 6, which this store needs".to_owned() }
        }
        None => OpenError::Unavailable { why: error.to_string() },
    }
}

/// Returns whether the next connection may reach another server.
pub(super) fn is_elsewhere(error: &RedisError) -> bool {
    matches!(error.code(), Some("READONLY" | "MASTERDOWN"))
}

/// Returns whether the server does not know the script, so that it has run nothing.
pub(super) fn is_unknown_script(error: &RedisError) -> bool {
    error.code() == Some("NOSCRIPT")
}

fn known(error: &RedisError) -> Option<&'static Known> {
    let code = error.code()?;
    KNOWN.iter().find(|known| known.code == code)
}

fn told(error: &RedisError, known: &Known) -> String {
    match error.detail() {
        Some(detail) => format!("{} ({}: {detail})", known.hint, known.code),
        None => format!("{} ({})", known.hint, known.code),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_the_server_surely_refused_counts_as_not_done() {
        let of = |code: &str| redis::make_extension_error(code.to_owned(), Some("the detail".to_owned()));
        for known in &KNOWN {
            let failure = Failure::of(&of(known.code));
            assert!(matches!(&failure, Failure::NotDone(why) if why.contains("the detail")), "{failure:?}");
            let is_final = matches!(of_opening(&of(known.code)), OpenError::Refused { .. });
            assert_eq!(is_final, known.is_final, "{}", known.code);
        }
        for other in ["ERR", "UNKNOWN"] {
            assert!(matches!(Failure::of(&of(other)), Failure::Unknown(_)), "{other}");
            assert!(matches!(of_opening(&of(other)), OpenError::Unavailable { .. }), "{other}");
        }
        let cut = RedisError::from(std::io::Error::from(std::io::ErrorKind::BrokenPipe));
        assert!(matches!(Failure::of(&cut), Failure::Unknown(_)));
        assert!(is_elsewhere(&of("READONLY")) && !is_elsewhere(&of("OOM")));
    }
}
