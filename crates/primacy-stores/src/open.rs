//! Opening a store by its URL, which names one of [`STORES`].

use std::fmt;
use std::sync::Arc;

use crate::STORES;
use crate::checkup::Check;
use crate::descriptor::StoreDescriptor;
use crate::error_text::shortened;
use crate::mark;
use crate::register::{Pending, Register};
use crate::sessions::Sessions;

/// The longest name of an election, in bytes.
pub const ELECTION_LENGTH_MAX: usize = 200;

/// A store being opened.
pub(crate) type Opening = Pending<'static, Result<Opened, OpenError>>;

/// A store that is open for one election.
#[derive(Clone, Debug)]
pub enum Opened {
    /// It keeps a record, for the election [`lease`](primacy_core::election::lease).
    Register(Arc<dyn Register>),
    /// It keeps sessions and what belongs to them, for the election [`session`](primacy_core::election::session).
    Sessions(Arc<dyn Sessions>),
}

/// The arguments with which a store is opened.
#[derive(Clone, Debug)]
pub(crate) struct Address {
    /// The rest of the URL after `scheme:`.
    pub(crate) rest: String,
    /// The election, whose name has been checked.
    pub(crate) election: String,
    /// True if a database or a directory that does not exist may be made.
    pub(crate) create: bool,
}

/// The reason that a store was not opened. No text of it shows a part of the URL that could hold a password. The path of a
/// file on this machine is shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OpenError {
    /// This is not how a URL of this store is written.
    Malformed {
        /// The form of such a URL.
        form: &'static str,
        /// The mistake in the URL.
        why: String,
    },
    /// There is no store with this scheme.
    UnknownScheme {
        /// The scheme, of letters, digits, `+`, `-` and `.`; empty if there was none.
        scheme: String,
    },
    /// The store exists, and this program was built without it.
    NotBuiltIn {
        /// The scheme.
        scheme: &'static str,
        /// The cargo feature that builds it in.
        feature: &'static str,
    },
    /// The store keeps sessions, and the operation needs a record.
    KeepsSessions {
        /// The scheme.
        scheme: &'static str,
    },
    /// The name of the election cannot be used.
    Election {
        /// The mistake in the name.
        why: String,
    },
    /// The existing content must not be used for an election. Trying again does not help.
    Refused {
        /// The reason.
        why: String,
    },
    /// The store was not reached. Trying again may help.
    Unavailable {
        /// The error.
        why: String,
    },
    /// This machine is short of what opening takes: descriptors, memory, threads. Trying again will help.
    Shortage {
        /// The resource that was short.
        why: String,
    },
}

impl OpenError {
    /// Returns whether the same may succeed a little later without any repair.
    #[must_use]
    pub const fn is_passing(&self) -> bool {
        match self {
            Self::Unavailable { .. } | Self::Shortage { .. } => true,
            Self::Malformed { .. }
            | Self::UnknownScheme { .. }
            | Self::NotBuiltIn { .. }
            | Self::KeepsSessions { .. }
            | Self::Election { .. }
            | Self::Refused { .. } => false,
        }
    }
}

/// Opens the store of `url` for the election `election`, and makes its database if there is none.
///
/// # Errors
/// [`OpenError`]; nothing was changed then, but for a database that may have been made.
pub async fn open_any(url: &str, election: &str) -> Result<Opened, OpenError> {
    open_with(url, election, true).await
}

/// Opens the store of `url` to look at the election `election`: like [`open_any`], but a database that does not
/// exist is an error.
///
/// # Errors
/// [`OpenError`]; nothing was changed then.
pub async fn open_existing_any(url: &str, election: &str) -> Result<Opened, OpenError> {
    open_with(url, election, false).await
}

/// Like [`open_any`], where only a record will do.
///
/// # Errors
/// [`OpenError`]; [`OpenError::KeepsSessions`] of a store that has none.
pub async fn open(url: &str, election: &str) -> Result<Arc<dyn Register>, OpenError> {
    open_with(url, election, true).await?.register(url)
}

/// Like [`open_existing_any`], where only a record will do.
///
/// # Errors
/// As of [`open`]; nothing was changed then.
pub async fn open_existing(url: &str, election: &str) -> Result<Arc<dyn Register>, OpenError> {
    open_with(url, election, false).await?.register(url)
}

impl Opened {
    fn register(self, url: &str) -> Result<Arc<dyn Register>, OpenError> {
        match self {
            Self::Register(register) => Ok(register),
            Self::Sessions(_) => Err(OpenError::KeepsSessions { scheme: find(url)?.0.scheme }),
        }
    }
}

/// Asks the store of `url` about its own configuration: whether it is made to keep what an election needs. It is asked only
/// for what no election writes, and nothing is written.
///
/// # Errors
/// [`OpenError`], if it cannot be asked.
pub async fn examine(url: &str) -> Result<Vec<Check>, OpenError> {
    let (store, rest) = find(url)?;
    let (_, examine) = store.code()?;
    examine(Address { rest: rest.to_owned(), election: mark::NAME.to_owned(), create: false }).await
}

async fn open_with(url: &str, election: &str, create: bool) -> Result<Opened, OpenError> {
    check_election(election)?;
    let (store, rest) = find(url)?;
    let (open, _) = store.code()?;
    open(Address { rest: rest.to_owned(), election: election.to_owned(), create }).await
}

/// Checks that [`open`] has a store for the scheme of this URL. The rest of the URL is not looked at.
///
/// # Errors
/// [`OpenError::UnknownScheme`] or [`OpenError::NotBuiltIn`].
pub fn check_scheme(url: &str) -> Result<(), OpenError> {
    let (store, _) = find(url)?;
    store.code().map(|_| ())
}

/// The URL for people: without its login and its settings, which may hold secrets, and without all behind the scheme where
/// it is not clear where the login ends.
#[must_use]
pub fn url_without_login(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else {
        return url.to_owned(); // A path, or a name.
    };
    let place = match rest.rsplit_once('@') {
        Some((login, _)) if login.contains(['?', '#']) => "…",
        Some((_, place)) => place,
        None => rest,
    };
    let place = place.split(['?', '#']).next().unwrap_or_default();
    format!("{scheme}://{place}")
}

/// The store that this URL names, and the rest of the URL after `scheme:`.
fn find(url: &str) -> Result<(&'static StoreDescriptor, &str), OpenError> {
    let (scheme, rest) = url.split_once(':').unwrap_or(("", url));
    match STORES.iter().find(|store| store.scheme == scheme) {
        Some(store) => Ok((store, rest)),
        None => {
            // The scheme will be shown. Where there is none, the text before the first colon may be a user and a password.
            let is_scheme = scheme.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte));
            let scheme = if is_scheme && (rest.starts_with("//") || !rest.contains('@')) {
                scheme.to_owned()
            } else {
                String::new()
            };
            Err(OpenError::UnknownScheme { scheme })
        }
    }
}

/// Checks what every store can keep as a key.
pub(crate) fn check_election(election: &str) -> Result<(), OpenError> {
    let why = if election.is_empty() {
        "an election needs a name; this one is empty".to_owned()
    } else if election.len() > ELECTION_LENGTH_MAX {
        format!(
            "the name of an election has at most {ELECTION_LENGTH_MAX} bytes; this one has {}",
            election.len()
        )
    } else if let Some(character) = election.chars().find(|character| character.is_control()) {
        format!("the name of an election has no control characters; this one has {character:?}")
    } else {
        return Ok(());
    };
    Err(OpenError::Election { why })
}

/// The URLs that this program can open, for help texts: each form, in the order of the table.
pub fn forms() -> impl Iterator<Item = &'static str> {
    STORES.iter().filter(|store| store.is_built_in()).map(|store| store.form)
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Malformed { form, why } => write!(f, "{why}; write {form}"),
            Self::UnknownScheme { scheme } => {
                match scheme.as_str() {
                    "" => f.write_str("a store is named by a URL, and this one has no scheme of a store")?,
                    scheme => write!(f, "there is no store `{scheme}:`")?,
                }
                f.write_str("; the stores are ")?;
                for (position, form) in forms().enumerate() {
                    write!(f, "{}{form}", if position == 0 { "" } else { ", " })?;
                }
                Ok(())
            }
            Self::NotBuiltIn { scheme, feature } => write!(
                f,
                "the store `{scheme}:` is not built into this program; build it with `--features {feature}`"
            ),
            Self::KeepsSessions { scheme } => write!(
                f,
                "the store `{scheme}:` keeps sessions, and this needs one that keeps a record: name another store here"
            ),
            Self::Election { why }
            | Self::Refused { why }
            | Self::Unavailable { why }
            | Self::Shortage { why } => f.write_str(&shortened(why)),
        }
    }
}

impl std::error::Error for OpenError {}

#[cfg(test)]
mod tests {
    mod fuzz;

    use super::*;

    async fn refusal(url: &str) -> OpenError {
        open(url, "e").await.expect_err("nothing to open there")
    }

    #[tokio::test]
    async fn every_refusal_says_what_to_do() {
        let unknown = refusal("oracle://root:secret@host").await.to_string();
        assert!(unknown.contains("`oracle:`") && unknown.contains("memory:NAME"), "{unknown}");
        assert!(!unknown.contains("secret"), "{unknown}");
        for none in ["no scheme", "secret@host:5432/db", "secret:p@host", "\u{1b}[2J:x"] {
            assert!(refusal(none).await.to_string().contains("has no scheme"), "{none:?}");
        }
        // A URL in the wrong place.
        let mistaken = open_existing("memory:etcd://user:secret@host", "e").await.err().unwrap();
        assert!(!mistaken.to_string().contains("secret"), "{mistaken}");
        assert!(matches!(refusal("memory:").await, OpenError::Malformed { .. }));
        #[cfg(not(feature = "file"))]
        assert!(refusal("file:x").await.to_string().contains("--features file"));
        #[cfg(not(feature = "sqlite"))]
        assert!(refusal("sqlite:x.db").await.to_string().contains("--features sqlite"));
    }

    #[tokio::test]
    async fn names_of_elections_are_checked() {
        for election in ["", "a\nb", &"x".repeat(ELECTION_LENGTH_MAX + 1)] {
            let error = open("memory:names", election).await.expect_err("no such election");
            assert!(matches!(error, OpenError::Election { .. }));
        }
        assert!(open("memory:names", "jobs/nightly é").await.is_ok());
    }

    #[test]
    fn a_url_is_shown_without_what_could_be_secret() {
        let shown = [
            ("etcd://h:1,i:2/x?recipe=lease", "etcd://h:1,i:2/x"),
            ("postgres://u:se/cret@h/d?password=secret", "postgres://h/d"),
            ("nats://secret@h/b", "nats://h/b"),
            ("postgres://u:p#s3cret@h/d", "postgres://…"),
            ("postgres://h/d?user=u@secret", "postgres://…"),
            ("sqlite:/a@b.db", "sqlite:/a@b.db"),
        ];
        for (url, expected) in shown {
            assert_eq!(url_without_login(url), expected);
        }
    }

    #[test]
    fn the_forms_begin_with_their_schemes() {
        assert!(STORES.iter().all(|store| store.form.starts_with(&format!("{}:", store.scheme))));
    }
}
