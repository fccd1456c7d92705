//! Opening a store by its URL, which names one of [`STORES`].

use std::sync::Arc;

use crate::STORES;
use crate::descriptor::StoreDescriptor;
use crate::diagnostics::Check;
use crate::election_name::{self, check_election};
#[cfg(any(feature = "s3", feature = "gs", feature = "az"))]
use crate::object::{ObjectStore, connect::build_store};
use crate::open_error::OpenError;
use crate::opening::{Address, Opened};
use crate::register::Register;

/// Opens the store of `url` for the election `election`, and makes its database if there is none.
///
/// # Errors
/// [`OpenError`]; nothing was changed then, except that a database may have been made.
pub async fn open_any(url: &str, election: &str) -> Result<Opened, OpenError> {
    open_with(url, election, true).await
}

/// Opens the store of `url` to read the election `election`: like [`open_any`], but a database that does not exist is an error.
///
/// # Errors
/// [`OpenError`]; nothing was changed then.
pub async fn open_existing_any(url: &str, election: &str) -> Result<Opened, OpenError> {
    open_with(url, election, false).await
}

/// Like [`open_any`], for callers that need a record.
///
/// # Errors
/// [`OpenError`]; [`OpenError::KeepsSessions`] if the store keeps no records.
pub async fn open(url: &str, election: &str) -> Result<Arc<dyn Register>, OpenError> {
    register_of(open_with(url, election, true).await?, url)
}

/// Like [`open_existing_any`], for callers that need a record.
///
/// # Errors
/// Those of [`open`]; nothing was changed then.
pub async fn open_existing(url: &str, election: &str) -> Result<Arc<dyn Register>, OpenError> {
    register_of(open_with(url, election, false).await?, url)
}

fn register_of(opened: Opened, url: &str) -> Result<Arc<dyn Register>, OpenError> {
    match opened {
        Opened::Register(register) => Ok(register),
        Opened::Sessions(_) => Err(OpenError::KeepsSessions { scheme: find(url)?.0.scheme }),
    }
}

/// Examines the configuration of the store of `url`: whether it keeps the promises that an election needs. No data of an election is read,
/// and nothing is written.
///
/// # Errors
/// [`OpenError`] if the store cannot be examined.
pub async fn examine(url: &str) -> Result<Vec<Check>, OpenError> {
    let (store, rest) = find(url)?;
    let (_, examine) = store.code()?;
    examine(Address { rest: rest.to_owned(), election: election_name::OF_STORE.to_owned(), create: false })
        .await
}

async fn open_with(url: &str, election: &str, create: bool) -> Result<Opened, OpenError> {
    check_election(election)?;
    let (store, rest) = find(url)?;
    let (open, _) = store.code()?;
    open(Address { rest: rest.to_owned(), election: election.to_owned(), create }).await
}

/// Returns the object store of a URL `s3:`, `gs:` or `az:`, and the part of the URL after the bucket: for a
/// [document](crate::object::ObjectDocument) or a fenced object in the same bucket as an election. No request is sent to the store.
///
/// # Errors
/// Those of [`open_any`].
#[cfg(any(feature = "s3", feature = "gs", feature = "az"))]
pub fn object_store_at(url: &str) -> Result<(Arc<dyn ObjectStore>, String), OpenError> {
    check_scheme(url)?;
    match url.split_once(':') {
        #[cfg(feature = "s3")]
        Some(("s3", rest)) => build_store(rest, crate::s3::KIND),
        #[cfg(feature = "gs")]
        Some(("gs", rest)) => build_store(rest, crate::gs::KIND),
        #[cfg(feature = "az")]
        Some(("az", rest)) => build_store(rest, crate::az::KIND),
        Some(_) | None => {
            Err(OpenError::Refused { why: "this is no object store; name one of s3:, gs: or az:".to_owned() })
        }
    }
}

/// Checks that this program can open stores with the scheme of this URL. The rest of the URL is not checked.
///
/// # Errors
/// [`OpenError::UnknownScheme`] or [`OpenError::NotBuiltIn`].
pub fn check_scheme(url: &str) -> Result<(), OpenError> {
    let (store, _) = find(url)?;
    store.code().map(|_| ())
}

/// Returns the URL as it is shown: without its login and its settings, which may hold secrets; only the scheme where the end of the login
/// is ambiguous.
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
            Err(OpenError::UnknownScheme { scheme, forms: forms().collect() })
        }
    }
}

/// The URLs that this program can open, for help texts: each form, in the order of the table.
pub fn forms() -> impl Iterator<Item = &'static str> {
    STORES.iter().filter(|store| store.is_built_in()).map(|store| store.form)
}

#[cfg(test)]
mod tests {
    mod fuzz;

    use super::*;
    use crate::election_name::ELECTION_LENGTH_MAX;

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
        // A URL inside another one.
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
