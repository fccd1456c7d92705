//! The resource that the leader writes to: whether it refuses the write of a replaced leader.

#[cfg(any(feature = "s3", feature = "gs", feature = "az"))]
mod object;
mod service;
#[cfg(feature = "sqlite")]
mod sqlite;
#[cfg(feature = "postgres")]
mod table;

use hyper::Method;
use primacy::stores::Check;
use primacy::stores::login::has_login;

use crate::cmd::store::block_on;
use crate::entry::location::resolve_resource;
use crate::exit::{Exit, Failure};

/// The syntax of a resource, for error messages.
const FORMS: &str = "a resource is a table, postgres://HOST/DATABASE#TABLE, sqlite:PATH#TABLE or env:NAME#TABLE; a service, \
                     http://HOST/PATH, https://HOST/PATH or env:NAME; or an object, s3://BUCKET/KEY, gs://BUCKET/KEY or az://CONTAINER/KEY";

/// The name of every check of a resource.
const REFUSES: &str = "the resource refuses a stale write";

/// The reason for the check.
const WHY: &str = "a leader that was paused does not know that it was replaced, and writes when it wakes; only the resource can \
                   refuse that";

/// A resource that a leader writes to.
#[derive(Debug)]
pub(super) enum Resource {
    /// A table of a database.
    #[cfg(feature = "postgres")]
    Table(table::Table),
    /// A table of a database in a file.
    #[cfg(feature = "sqlite")]
    SqliteTable(sqlite::Table),
    /// An HTTP service.
    Service(service::Service),
    /// An object of an object store.
    #[cfg(any(feature = "s3", feature = "gs", feature = "az"))]
    Object(object::Object),
}

impl Resource {
    /// Parses the text of a resource. `method` is for services.
    ///
    /// # Errors
    /// If it is none of these, or has a password that other users could read.
    pub(super) fn parse(text: &str, method: &Method) -> Result<Self, Failure> {
        let usage = |why: &str| Failure::new(Exit::Usage, format!("--resource: {why}; {FORMS}"));
        // A password may contain a `#`, too. Without a password, the last `#` is before the table.
        if has_login(text) {
            resolve_resource(text)?;
        }
        let (given, table) = match text.rsplit_once('#') {
            // In the URL of a service, it begins a fragment, which is not sent.
            Some(_) if text.starts_with("http") => (text, None),
            Some((given, table)) => (given, Some(table)),
            None => (text, None),
        };
        let url = resolve_resource(given)?;
        // Any parameter may contain a key, whatever its name.
        if text.starts_with("http") && text.contains(['?', ';']) {
            return Err(usage(
                "what stands behind `?` or `;` may be a key, and every user of this machine can read command lines: put the URL into \
                 the environment, as RESOURCE_URL for example, and write --resource env:RESOURCE_URL",
            ));
        }
        match (url.split_once(':'), table) {
            (Some(("http" | "https", _)), None) => {
                service::Service::parse(&url, method).map(Self::Service).map_err(|why| usage(&why))
            }
            #[cfg(feature = "postgres")]
            (Some(("postgres", _)), Some(name)) if !name.is_empty() => {
                Ok(Self::Table(table::Table { url, given: given.to_owned(), name: name.to_owned() }))
            }
            #[cfg(feature = "sqlite")]
            (Some(("sqlite", path)), Some(name)) if !name.is_empty() => {
                Ok(Self::SqliteTable(sqlite::Table::parse(path, name)))
            }
            #[cfg(any(feature = "s3", feature = "gs", feature = "az"))]
            (Some(("s3" | "gs" | "az", _)), None) => object::Object::parse(&url).map(Self::Object),
            _ => Err(usage("this is no resource that can be tried")),
        }
    }

    /// Tries a stale write as a leader of `election`, if one was given.
    #[allow(
        unused_variables,
        reason = "a service knows no names of elections, and a program may have no other resource"
    )]
    pub(super) fn try_out(&self, election: Option<&str>) -> Result<Check, Failure> {
        block_on(async {
            Ok(match self {
                #[cfg(feature = "postgres")]
                Self::Table(table) => table.try_out(election).await,
                #[cfg(feature = "sqlite")]
                Self::SqliteTable(table) => table.try_out(election),
                Self::Service(service) => service.try_out().await,
                #[cfg(any(feature = "s3", feature = "gs", feature = "az"))]
                Self::Object(object) => object.try_out(election).await,
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_resource_is_said_with_the_forms() {
        let wrong = |text: &str| Resource::parse(text, &Method::GET).expect_err(text);
        for text in [
            "sqlite:/tmp/x#",
            "file:/tmp/x#ledger",
            "postgres://u@h/d",
            "postgres://u@h/d#",
            "etcd://h/p",
            "http://u:p@h/",
            "http://u@h/",
            "s3://b",
        ] {
            let failure = wrong(text);
            assert_eq!(failure.exit, Exit::Usage, "{text}: {}", failure.message);
        }
        assert!(wrong("sqlite:/tmp/x").message.contains("#TABLE"));
        for url in [
            "postgres://u:p4ss@h/d#t",
            "postgres://u:p#p4ss@h/d#t",
            "http://u:p4ss@h/x",
            "http://h/x?api_key=p4ss",
            "https://h/x?a=b&X-Api-Key=p4ss#y",
            "https://h/x?access_token=p4ss",
            "https://h/x?X-Amz-Signature=p4ss",
            "http://h/x?key=p4ss",
            "http://h/x?subscription-key=p4ss",
            "http://h/x?t%6Fken=p4ss",
            "http://h/x?p4ss",
            "https://h/x;jsessionid=p4ss",
        ] {
            let message = wrong(url).message;
            assert!(message.contains("--resource env:") && !message.contains("p4ss"), "{message}");
        }
    }

    #[test]
    fn each_form_is_known() {
        let kind = |text: &str| format!("{:?}", Resource::parse(text, &Method::GET).unwrap());
        assert!(kind("postgres://u@h/d#app.ledger").starts_with("Table"));
        assert!(kind("sqlite:/tmp/x#ledger").starts_with("SqliteTable"));
        assert!(kind("https://h:8443/orders").starts_with("Service"));
        assert!(kind("s3://bucket/state/orders.json").starts_with("Object"));
    }
}
