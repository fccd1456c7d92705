//! The settings of a URL:
//! `redis://USER:PASSWORD@HOST:PORT/PREFIX?db=N&ca=FILE&cert=FILE&key=FILE&tls=on`.

use std::fmt;
use std::sync::Arc;

use rustls::ClientConfig;

use crate::open_error::OpenError;
use crate::store_url::{Host, StoreUrl};
use crate::tls::Files;

/// The form of a URL of this store.
const FORM: &str = "redis://HOST/PREFIX, with USER:PASSWORD@ before the host, :PORT behind it, and ?db=N, ca=FILE, \
                    cert=FILE, key=FILE, tls=on";

/// The default port of servers.
const DEFAULT_PORT: u16 = 6379;

/// The default prefix of keys.
const DEFAULT_PREFIX: &str = "primacy";

/// The longest prefix, in bytes: it is a part of every key.
const PREFIX_LENGTH_MAX: usize = 200;

/// The server, the login and the prefix.
#[derive(Clone)]
pub(super) struct Settings {
    /// A name or an address, for TLS.
    pub(super) host: String,
    /// The address to connect to.
    pub(super) authority: String,
    pub(super) user: Option<String>,
    pub(super) password: Option<String>,
    pub(super) database: i64,
    pub(super) prefix: String,
    pub(super) tls: Option<Arc<ClientConfig>>,
}

impl Settings {
    /// The channel of notices for all elections with this prefix.
    pub(super) fn channel(&self) -> String {
        format!("{}:changed", self.prefix)
    }

    /// Parses the part of a URL after `redis:`.
    ///
    /// # Errors
    /// [`OpenError::Malformed`], or [`OpenError::Refused`] for a file of TLS that cannot be used.
    pub(super) fn parse(rest: &str) -> Result<Self, OpenError> {
        let mut url = StoreUrl::parse(rest, FORM)?;
        let files = Files::take(&mut url)?;
        let is_tls = files.take_tls(&mut url, files.is_given())?;
        let database = match url.take("db") {
            None => 0,
            Some(text) => text
                .parse::<u32>()
                .map_err(|_| url.malformed("`db` is the number of a database, from 0"))?
                .into(),
        };
        url.finish()?;
        let host = match url.hosts.as_slice() {
            [host] => host.clone(),
            [] => return Err(url.malformed("it names no host")),
            [_, _, ..] => {
                return Err(url.malformed(
                    "it names several hosts, and an election is held on one server: a replica that takes over \
                     may not have the latest writes",
                ));
            }
        };
        if url.path.len() > PREFIX_LENGTH_MAX || url.path.contains(char::is_control) {
            return Err(url.malformed(format!(
                "the prefix has at most {PREFIX_LENGTH_MAX} bytes, and no control characters"
            )));
        }
        if url.user.is_some() && url.password.is_none() {
            return Err(url.malformed("a user needs a password; write USER:PASSWORD@"));
        }
        Ok(Self::new(&url, &host, database, is_tls.then(|| files.client()).transpose()?))
    }

    fn new(url: &StoreUrl, host: &Host, database: i64, tls: Option<ClientConfig>) -> Self {
        let prefix = match url.path.as_str() {
            "" => DEFAULT_PREFIX,
            path => path,
        };
        Self {
            host: host.name.clone(),
            authority: host.authority(DEFAULT_PORT),
            user: url.user.clone(),
            password: url.password.clone(),
            database,
            prefix: prefix.to_owned(),
            tls: tls.map(Arc::new),
        }
    }
}

/// Leaves out all parts that could be secret.
impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Settings")
            .field("authority", &self.authority)
            .field("database", &self.database)
            .field("prefix", &self.prefix)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_out_has_a_default() {
        let least = Settings::parse("//host").unwrap();
        assert_eq!(
            (least.authority.as_str(), least.prefix.as_str(), least.database),
            ("host:6379", "primacy", 0)
        );
        assert!(least.tls.is_none() && least.user.is_none() && least.password.is_none());
        let whole = Settings::parse("//u:secret@[::1]:7000/a/b?db=3&tls=on").unwrap();
        assert_eq!(
            (whole.authority.as_str(), whole.prefix.as_str(), whole.database),
            ("[::1]:7000", "a/b", 3)
        );
        assert!(whole.tls.is_some() && whole.password.as_deref() == Some("secret"));
        assert!(!format!("{whole:?}").contains("secret"));
        assert_eq!(Settings::parse("//:secret@host").unwrap().user, None, "a password of the default user");
    }

    #[test]
    fn what_is_wrong_is_said_without_the_password() {
        for (wrong, said) in [
            ("//", "no host"),
            ("//:secret@a,b", "one server"),
            ("//:secret@a?db=-1", "`db`"),
            ("//:secret@a?tls=maybe", "`tls`"),
            ("//:secret@a?tls=off&ca=/x", "unused"),
            ("//:secret@a?timeout=3", "none of this store's"),
            ("//u@a", "USER:PASSWORD"),
        ] {
            let error = Settings::parse(wrong).unwrap_err().to_string();
            assert!(error.contains(said) && !error.contains("secret"), "{error}");
        }
    }
}
