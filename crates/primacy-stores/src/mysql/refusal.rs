//! The meaning of the server's errors: nothing was written, or the outcome is unknown; and the remedies.

use super::packet::ServerError;
use crate::open_error::OpenError;

/// The reason that a request has no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Failure {
    /// Nothing was written, and nothing will be.
    NotDone(String),
    /// There is no table, and so nothing was done.
    NoTable,
    /// There is already a row for this election, and so nothing was done.
    Duplicate,
    /// It may have been written.
    Unknown(String),
}

/// Codes of errors (`ER_…`).
const ACCESS_DENIED_TO_DATABASE: u16 = 1044;
const ACCESS_DENIED: u16 = 1045;
const UNKNOWN_DATABASE: u16 = 1049;
const DUPLICATE_ENTRY: u16 = 1062;
const TABLE_ACCESS_DENIED: u16 = 1142;
const COLUMN_ACCESS_DENIED: u16 = 1143;
const NO_SUCH_TABLE: u16 = 1146;
const LOCK_WAIT_TIMEOUT: u16 = 1205;
const DEADLOCK: u16 = 1213;
const OPTION_PREVENTS_STATEMENT: u16 = 1290;
const ACCESS_DENIED_WITHOUT_PASSWORD: u16 = 1698;
const READ_ONLY_TRANSACTION: u16 = 1792;
const READ_ONLY_MODE: u16 = 1836;
/// Of MariaDB, also sent by MaxScale: the connection was killed, at an unknown point.
const CONNECTION_KILLED: u16 = 1927;
/// Errors of client libraries, which proxies send too, without knowing what the server has done.
const OF_CLIENTS: std::ops::Range<u16> = 2000..3000;
/// Errors of ProxySQL.
const OF_PROXIES: u16 = 9000;

impl Failure {
    /// Interprets the error of a statement before the commit of its transaction. A server runs none of the statements after one that it has
    /// refused, so nothing was written. The error of a proxy does not prove this.
    pub(super) fn before_commit(error: &ServerError) -> Self {
        match error.code {
            NO_SUCH_TABLE => Self::NoTable,
            DUPLICATE_ENTRY => Self::Duplicate,
            CONNECTION_KILLED | OF_PROXIES.. => Self::Unknown(told(error)),
            code if OF_CLIENTS.contains(&code) => Self::Unknown(told(error)),
            _ => Self::NotDone(told(error)),
        }
    }
}

/// The meaning of an error while opening.
pub(super) fn of_opening(error: &ServerError) -> OpenError {
    let is_final = [
        ACCESS_DENIED_TO_DATABASE,
        ACCESS_DENIED,
        ACCESS_DENIED_WITHOUT_PASSWORD,
        UNKNOWN_DATABASE,
        TABLE_ACCESS_DENIED,
        COLUMN_ACCESS_DENIED,
    ];
    let why = told(error);
    if is_final.contains(&error.code) { OpenError::Refused { why } } else { OpenError::Unavailable { why } }
}

/// Returns whether this user lacks the right to make the table.
pub(super) fn lacks_right(error: &ServerError) -> bool {
    [TABLE_ACCESS_DENIED, ACCESS_DENIED_TO_DATABASE].contains(&error.code)
}

/// Returns whether another server may accept what this one refuses.
pub(super) fn is_elsewhere(error: &ServerError) -> bool {
    [OPTION_PREVENTS_STATEMENT, READ_ONLY_MODE, READ_ONLY_TRANSACTION].contains(&error.code)
}

/// The error with its remedy. Servers put no password into their messages.
pub(super) fn told(error: &ServerError) -> String {
    let hint = match error.code {
        ACCESS_DENIED | ACCESS_DENIED_WITHOUT_PASSWORD => {
            "; the URL has the user, and the URL, MYSQL_PWD or `password-file` the password"
        }
        ACCESS_DENIED_TO_DATABASE | TABLE_ACCESS_DENIED | COLUMN_ACCESS_DENIED => {
            "; docs/stores/mysql.md has the statement that grants what is needed"
        }
        LOCK_WAIT_TIMEOUT => "; another session keeps the row or the table locked",
        DEADLOCK => "; it was undone, and may be tried again",
        OPTION_PREVENTS_STATEMENT | READ_ONLY_MODE | READ_ONLY_TRANSACTION => {
            "; it is a replica, or read-only: name the server that takes writes"
        }
        _ => "",
    };
    format!("the server says: {} ({}){hint}", error.message, error.code)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(code: u16) -> ServerError {
        ServerError { code, message: "the detail".to_owned() }
    }

    #[test]
    fn only_the_server_itself_says_that_nothing_was_written() {
        for code in [LOCK_WAIT_TIMEOUT, DEADLOCK, OPTION_PREVENTS_STATEMENT, TABLE_ACCESS_DENIED, 1053, 1114]
        {
            let failure = Failure::before_commit(&error(code));
            assert!(matches!(&failure, Failure::NotDone(why) if why.contains("the detail")), "{failure:?}");
        }
        for code in [CONNECTION_KILLED, 2003, 2013, 9001] {
            assert!(matches!(Failure::before_commit(&error(code)), Failure::Unknown(_)), "{code}");
        }
        assert_eq!(Failure::before_commit(&error(DUPLICATE_ENTRY)), Failure::Duplicate);
        assert_eq!(Failure::before_commit(&error(NO_SUCH_TABLE)), Failure::NoTable);
    }

    #[test]
    fn what_lasts_is_refused_and_what_passes_is_tried_again() {
        for code in [ACCESS_DENIED, UNKNOWN_DATABASE, TABLE_ACCESS_DENIED] {
            assert!(matches!(of_opening(&error(code)), OpenError::Refused { .. }), "{code}");
        }
        for code in [1040, 1053, LOCK_WAIT_TIMEOUT, OPTION_PREVENTS_STATEMENT] {
            assert!(matches!(of_opening(&error(code)), OpenError::Unavailable { .. }), "{code}");
        }
    }
}
