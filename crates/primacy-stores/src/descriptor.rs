//! [`StoreDescriptor`]: the facts about a store that are known without opening it.
//!
//! Each store has one, in its folder, and [`STORES`](crate::STORES) lists them. It is compiled even if the store itself is not, so that an
//! error can name the missing feature.

use crate::diagnostics::Examination;
use crate::open_error::OpenError;
use crate::opening::{Address, Opening};

/// A store: the form of its URL, the cargo feature that it needs, its main limits, and its page in the documentation.
#[derive(Debug)]
pub struct StoreDescriptor {
    /// The product, as it is written in prose.
    pub name: &'static str,
    /// The scheme of its URLs.
    pub scheme: &'static str,
    /// The form of its URL, without the optional parts.
    pub form: &'static str,
    /// The cargo feature that builds it in; `None` for a store that always is.
    pub feature: Option<&'static str>,
    /// Whether it keeps a record or sessions.
    pub keeps: &'static str,
    /// The candidates that can share it, and its most important limit.
    pub shared_by: &'static str,
    /// The part of its URL before the `@`.
    pub login: Login,
    /// Its page, from the root of the repository.
    pub page: Option<&'static str>,
    /// The server that its tests start; `None` for a store without a server, or whose server is not in one Debian package.
    pub server: Option<TestServer>,
    pub(crate) support: Support,
}

/// The part of a URL before its `@`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Login {
    /// Nothing: the URL is a path, and an `@` is a part of it.
    Local,
    /// A user name, which is not secret, or a user name and a password.
    UserIsPublic,
    /// A secret, even without a password after it: it may be a token.
    Secret,
}

/// A server that tests start on the loopback interface, in a directory of its own.
#[derive(Clone, Copy, Debug)]
pub struct TestServer {
    /// Its program.
    pub program: &'static str,
    /// The Debian package that contains it.
    pub package: &'static str,
}

/// The functions of a store, or the feature that it lacks.
#[derive(Debug)]
pub(crate) enum Support {
    /// The functions that open it and examine its configuration.
    BuiltIn(fn(Address) -> Opening, fn(Address) -> Examination),
    #[allow(dead_code, reason = "where every store is built in, none is missing")]
    Feature(&'static str),
}

/// The functions that open a store and that examine it.
pub(crate) type Code = (fn(Address) -> Opening, fn(Address) -> Examination);

impl StoreDescriptor {
    /// Whether this program can open it.
    #[must_use]
    pub const fn is_built_in(&self) -> bool {
        matches!(self.support, Support::BuiltIn(..))
    }

    pub(crate) const fn code(&self) -> Result<Code, OpenError> {
        match &self.support {
            Support::BuiltIn(open, examine) => Ok((*open, *examine)),
            Support::Feature(feature) => Err(OpenError::NotBuiltIn { scheme: self.scheme, feature }),
        }
    }
}

/// The functions that open and examine a store, or the name of the feature that would build it in.
macro_rules! built_in {
    ($feature:literal, $open:path, $examine:path) => {{
        #[cfg(feature = $feature)]
        {
            Support::BuiltIn($open, $examine)
        }
        #[cfg(not(feature = $feature))]
        {
            Support::Feature($feature)
        }
    }};
}
pub(crate) use built_in;
