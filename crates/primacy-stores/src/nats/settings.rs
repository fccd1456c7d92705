//! The settings of a URL:
//! `nats://USER:PASSWORD@HOST:PORT,HOST2/BUCKET?ca=FILE&cert=FILE&key=FILE&tls=on&creds=FILE&sync=always`.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use rustls::ClientConfig;

use crate::open_error::OpenError;
use crate::secrets;
use crate::store_url::{Host, StoreUrl};
use crate::tls::Files;

/// The form of a URL of this store.
const FORM: &str = "nats://HOST,HOST/BUCKET, with USER:PASSWORD@ or TOKEN@ before the hosts, :PORT behind each, and \
                    ?creds=FILE, ca=FILE, cert=FILE, key=FILE, tls=on, sync=always";

/// The default port of servers.
const DEFAULT_PORT: u16 = 4222;

/// The default bucket.
const DEFAULT_BUCKET: &str = "primacy";

/// The longest name of a bucket, in bytes.
const BUCKET_LENGTH_MAX: usize = 200;

/// The servers, the login, the bucket and TLS.
#[derive(Clone)]
pub(super) struct Settings {
    /// The servers, at least one.
    pub(super) hosts: Vec<Host>,
    pub(super) login: Login,
    pub(super) bucket: String,
    /// The connection must be encrypted.
    pub(super) requires_tls: bool,
    /// True if the URL states that the servers flush before they answer, which a client cannot check.
    pub(super) is_synced: bool,
    pub(super) tls: Arc<ClientConfig>,
}

/// The client's credentials.
#[derive(Clone)]
pub(super) enum Login {
    None,
    Password {
        user: String,
        password: String,
    },
    Token(String),
    /// A credentials file in NATS' format, with a JWT and a key.
    Credentials(PathBuf),
}

impl Settings {
    /// Parses the part of a URL after `nats:`.
    ///
    /// # Errors
    /// [`OpenError::Malformed`], or [`OpenError::Refused`] for a file of TLS that cannot be used.
    pub(super) fn parse(rest: &str) -> Result<Self, OpenError> {
        let mut url = StoreUrl::parse(rest, FORM)?;
        let files = Files::take(&mut url)?;
        let requires_tls = match url.take("tls").as_deref() {
            None => files.is_given(),
            Some("on") => true,
            Some(_) => return Err(url.malformed("`tls` is `on` or left out")),
        };
        let is_synced = match url.take("sync").as_deref() {
            None => false,
            Some("always") => true,
            Some(_) => return Err(url.malformed("`sync` is `always` or left out")),
        };
        let credentials = url.take("creds").map(PathBuf::from);
        url.finish()?;
        let login = match (credentials, url.user.clone(), url.password.clone()) {
            (None, None, None) => Login::None,
            (None, Some(user), Some(password)) => Login::Password { user, password },
            (None, Some(token), None) => {
                secrets::remember(&token);
                Login::Token(token)
            }
            (Some(file), None, None) => Login::Credentials(file),
            (None, None, Some(_)) => {
                return Err(url.malformed("a password needs a user before the colon"));
            }
            (Some(_), _, _) => {
                return Err(url.malformed("`creds` takes the place of a user and a password"));
            }
        };
        if url.hosts.is_empty() {
            return Err(url.malformed("it names no host"));
        }
        let bucket = match url.path.as_str() {
            "" => DEFAULT_BUCKET,
            path => path,
        };
        let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "-_".contains(letter);
        if bucket.len() > BUCKET_LENGTH_MAX || !bucket.chars().all(is_plain) {
            return Err(url.malformed(format!(
                "the name of a bucket has at most {BUCKET_LENGTH_MAX} letters of the Latin alphabet, digits, - and _"
            )));
        }
        // Needed even if the URL does not require TLS: a server may.
        let tls = Arc::new(files.client()?);
        Ok(Self { hosts: url.hosts, login, bucket: bucket.to_owned(), requires_tls, is_synced, tls })
    }

    /// The servers, for errors.
    pub(super) fn names(&self) -> String {
        self.hosts.iter().map(authority).collect::<Vec<_>>().join(", ")
    }
}

/// The address of a server, with its port.
pub(super) fn authority(host: &Host) -> String {
    host.authority(DEFAULT_PORT)
}

/// Leaves out all parts that could be secret.
impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Settings")
            .field("hosts", &self.hosts)
            .field("bucket", &self.bucket)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_out_has_a_default() {
        let least = Settings::parse("//host").unwrap();
        assert_eq!((least.names().as_str(), least.bucket.as_str()), ("host:4222", "primacy"));
        assert!(!least.requires_tls && matches!(least.login, Login::None));
        let whole = Settings::parse("//u:secret@a:1,[::1]/b-1?tls=on").unwrap();
        assert_eq!((whole.names().as_str(), whole.bucket.as_str()), ("a:1, [::1]:4222", "b-1"));
        assert!(whole.requires_tls && matches!(whole.login, Login::Password { .. }));
        assert!(!format!("{whole:?}").contains("secret"));
        assert!(matches!(Settings::parse("//secret@a").unwrap().login, Login::Token(_)));
        assert!(matches!(Settings::parse("//a?creds=/x").unwrap().login, Login::Credentials(_)));
    }

    #[test]
    fn what_is_wrong_is_said_without_the_password() {
        for (wrong, said) in [
            ("//", "no host"),
            ("//:secret@a", "needs a user"),
            ("//u:secret@a?creds=/x", "`creds`"),
            ("//u:secret@a?tls=maybe", "`tls`"),
            ("//u:secret@a/b.c", "bucket"),
            ("//u:secret@a/b/c", "bucket"),
            ("//u:secret@a?replicas=3", "none of this store's"),
        ] {
            let error = Settings::parse(wrong).unwrap_err().to_string();
            assert!(error.contains(said) && !error.contains("secret"), "{error}");
        }
    }
}
