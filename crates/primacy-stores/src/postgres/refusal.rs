//! The meaning of errors: for an open of the store, and for a request.

use std::error::Error as _;
use std::io;

use tokio_postgres::Error;
use tokio_postgres::error::{DbError, Severity, SqlState};

use crate::open_error::OpenError;

/// The reason that a request has no answer.
#[derive(Clone, Debug)]
pub(super) enum Failure {
    /// The server has done nothing, and will do nothing.
    NotDone(String),
    /// There is no table, and so nothing was done.
    NoTable,
    /// It may have been done, or may yet be.
    Unknown(String),
}

impl Failure {
    /// Interprets the error of a request that was handed to a connection.
    pub(super) fn of(error: &Error) -> Self {
        let Some(refused) = error.as_db_error() else {
            // The connection broke at either end, so the statement may have been done.
            return Self::Unknown(told(error));
        };
        if *refused.code() == SqlState::UNDEFINED_TABLE {
            Self::NoTable
        } else if is_undone(refused) {
            Self::NotDone(told(error))
        } else {
            Self::Unknown(told(error))
        }
    }
}

/// Returns whether this error says that the statement's transaction was undone. An error that ends the connection says nothing about it:
/// the server may have committed before it ended, and a pooler does not know. Nor do the error classes that poolers and failing servers
/// use.
fn is_undone(error: &DbError) -> bool {
    let class = error.code().code().get(..2).unwrap_or_default();
    let is_doubtful = ["08", "57", "58", "XX"].contains(&class)
        || *error.code() == SqlState::T_R_STATEMENT_COMPLETION_UNKNOWN;
    error.parsed_severity() == Some(Severity::Error)
        && (!is_doubtful || *error.code() == SqlState::QUERY_CANCELED)
}

/// The error codes for statements that the lock of another session blocked, and that may succeed later.
pub(super) const LOCKED: [SqlState; 2] = [SqlState::LOCK_NOT_AVAILABLE, SqlState::T_R_DEADLOCK_DETECTED];

/// The reason for statements that collided with equal ones of another session.
pub(super) const COLLISION: &str =
    "another session was making the same at the same time, and nothing was changed; run it again";

/// Returns whether a statement collided with an equal one of another session: both were making the same object, or changing the same entry
/// of the catalog. The second one is rolled back, and finds the object of the first when it tries again.
pub(super) fn is_collision(error: &Error) -> bool {
    let codes = [
        SqlState::UNIQUE_VIOLATION,
        SqlState::DUPLICATE_SCHEMA,
        SqlState::DUPLICATE_TABLE,
        SqlState::DUPLICATE_OBJECT,
        SqlState::DUPLICATE_FUNCTION,
    ];
    error.as_db_error().is_some_and(|refused| {
        codes.contains(refused.code())
            // A collision in the catalog that has no code of its own.
            || *refused.code() == SqlState::INTERNAL_ERROR && refused.message().contains("concurrently")
    })
}

/// Returns whether another server may accept what this one refuses, because this one has become a standby, or is shutting down.
pub(super) fn is_elsewhere(error: &Error) -> bool {
    let codes = [SqlState::READ_ONLY_SQL_TRANSACTION, SqlState::ADMIN_SHUTDOWN, SqlState::CANNOT_CONNECT_NOW];
    error.code().is_some_and(|code| codes.contains(code))
}

/// Interprets an error while connecting: whether trying again helps.
pub(super) fn of_opening(error: &Error) -> OpenError {
    let why = told(error);
    if is_final(error) { OpenError::Refused { why } } else { OpenError::Unavailable { why } }
}

/// Returns whether a repetition leads to the same error.
pub(super) fn is_final(error: &Error) -> bool {
    match error.as_db_error() {
        Some(refused) => is_final_code(refused.code().code()),
        // The server requires something that this client lacks: a password, TLS, or a certificate that it trusts.
        None => {
            let shown = error.to_string();
            let is_ours =
                ["TLS", "authentication", "invalid configuration"].iter().any(|part| shown.contains(part));
            // A connection that is cut during the handshake gives the same error, and may succeed the next time.
            let is_cut =
                source(error).and_then(|source| source.downcast_ref::<io::Error>()).is_some_and(|error| {
                    !matches!(error.kind(), io::ErrorKind::InvalidData | io::ErrorKind::InvalidInput)
                });
            is_ours && !is_cut
        }
    }
}

/// Returns whether an error of the server lasts until an operator acts, by the class of its SQLSTATE: invalid authorization; no such
/// database; no such schema; a missing right, or an unknown name. All other errors may pass: too many connections, a disk that is full, a
/// server that starts, ends, or has lost its primary.
fn is_final_code(code: &str) -> bool {
    ["28", "3D", "3F", "42"].contains(&code.get(..2).unwrap_or_default())
}

/// Returns whether the server was reached and takes no writes.
pub(super) fn is_read_only(error: &Error) -> bool {
    let source = source(error).and_then(|source| source.downcast_ref::<io::Error>());
    source.is_some_and(|error| {
        error.kind() == io::ErrorKind::PermissionDenied && error.raw_os_error().is_none()
    })
}

fn source(error: &Error) -> Option<&(dyn std::error::Error + 'static)> {
    error.source()
}

/// The error with its reasons. Servers put no password into them.
pub(super) fn told(error: &Error) -> String {
    match error.as_db_error() {
        Some(refused) => {
            let hint = refused.hint().map(|hint| format!("; {hint}")).unwrap_or_default();
            format!("PostgreSQL says: {} ({}){hint}", refused.message(), refused.code().code())
        }
        None if is_read_only(error) => {
            "it takes no writes: it is a standby, or default_transaction_read_only is on for this role, its database or the server"
                .to_owned()
        }
        None => match source(error) {
            Some(source) => format!("{error}: {source}"),
            None => error.to_string(),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_class_of_errors_passes_or_lasts() {
        let lasting = [
            SqlState::INVALID_PASSWORD,
            SqlState::INVALID_AUTHORIZATION_SPECIFICATION,
            SqlState::INVALID_CATALOG_NAME,
            SqlState::INVALID_SCHEMA_NAME,
            SqlState::INSUFFICIENT_PRIVILEGE,
            SqlState::UNDEFINED_TABLE,
        ];
        let passing = [
            SqlState::TOO_MANY_CONNECTIONS,
            SqlState::OUT_OF_MEMORY,
            SqlState::DISK_FULL,
            SqlState::CONFIGURATION_LIMIT_EXCEEDED,
            SqlState::CANNOT_CONNECT_NOW,
            SqlState::ADMIN_SHUTDOWN,
            SqlState::CRASH_SHUTDOWN,
            SqlState::QUERY_CANCELED,
            SqlState::LOCK_NOT_AVAILABLE,
            SqlState::OBJECT_IN_USE,
            SqlState::T_R_SERIALIZATION_FAILURE,
            SqlState::T_R_DEADLOCK_DETECTED,
            SqlState::CONNECTION_FAILURE,
            SqlState::IO_ERROR,
            SqlState::READ_ONLY_SQL_TRANSACTION,
            SqlState::INTERNAL_ERROR,
        ];
        for code in lasting {
            assert!(is_final_code(code.code()), "{code:?}");
        }
        for code in passing {
            assert!(!is_final_code(code.code()), "{code:?}");
        }
        assert!(!is_final_code("") && !is_final_code("2"));
    }
}
