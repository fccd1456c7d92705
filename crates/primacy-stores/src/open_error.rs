//! [`OpenError`]: the reason that a store was not opened.

use std::fmt;

use crate::error_text::shortened;

/// The reason that a store was not opened. No text of it shows a part of the URL that could hold a password. The path of a
/// file on this machine is shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OpenError {
    /// The URL does not have the form of this store's URLs.
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
        /// The forms of the URLs that this program can open.
        forms: Vec<&'static str>,
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
    /// The store, its content, the login or a file of the settings cannot be used for an election. Trying again does not help.
    Refused {
        /// The reason.
        why: String,
    },
    /// The store was not reached. Trying again may help.
    Unavailable {
        /// The error.
        why: String,
    },
    /// This machine lacks resources that opening needs: descriptors, memory or threads. Trying again may help.
    Shortage {
        /// The resource that was short.
        why: String,
    },
}

impl OpenError {
    /// Returns whether opening may succeed later without a repair.
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

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Malformed { form, why } => write!(f, "{why}; write {form}"),
            Self::UnknownScheme { scheme, forms } => {
                match scheme.as_str() {
                    "" => f.write_str("a store is named by a URL, and this one has no scheme of a store")?,
                    scheme => write!(f, "there is no store `{scheme}:`")?,
                }
                f.write_str("; the stores are ")?;
                for (position, form) in forms.iter().enumerate() {
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
