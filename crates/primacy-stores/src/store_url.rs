//! The parts of a store's URL: `SCHEME://USER:PASSWORD@HOST:PORT,HOST:PORT/PATH?NAME=VALUE&NAME=VALUE`.
//!
//! Unlike an HTTP URL, it may have several hosts. `%XX` encodes a byte, except in a host.

use std::collections::BTreeSet;
use std::fmt;

use percent_encoding::percent_decode_str;

use crate::open_error::OpenError;
use crate::secrets;

/// The part of a URL after `SCHEME:`, parsed.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct StoreUrl {
    pub(crate) user: Option<String>,
    pub(crate) password: Option<String>,
    pub(crate) hosts: Vec<Host>,
    /// The path, without the slash at its beginning and those at its end.
    pub(crate) path: String,
    settings: Vec<(String, String)>,
    /// The names of the settings that the store takes. No other name is shown: it may be a part of a password.
    known: BTreeSet<&'static str>,
    form: &'static str,
}

/// The name and port of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Host {
    /// A name, an IPv4 address, or an IPv6 address without its brackets.
    pub(crate) name: String,
    pub(crate) port: Option<u16>,
}

impl StoreUrl {
    /// Parses the part of a URL after `SCHEME:`; `form` is the form of such a URL, for the errors.
    ///
    /// # Errors
    /// [`OpenError::Malformed`], whose text shows no part of the URL that could hold a password.
    pub(crate) fn parse(rest: &str, form: &'static str) -> Result<Self, OpenError> {
        let malformed = |why: &str| OpenError::Malformed { form, why: why.to_owned() };
        let rest = rest.strip_prefix("//").ok_or_else(|| malformed("behind the scheme come two slashes"))?;
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        if path.contains('@') || query.contains('@') {
            return Err(malformed(
                "an `@` stands behind the host: in the name of a user and in a password write %2F for `/`, %3F for `?`, %23 for `#` and \
                 %40 for `@`, and %40 for one that is in a path or a setting",
            ));
        }
        let (login, hosts) = match authority.rsplit_once('@') {
            Some((login, hosts)) => (Some(login), hosts),
            None => (None, authority),
        };
        let decode = |text: &str| {
            let decoded = percent_decode_str(text).decode_utf8();
            decoded.map(|text| text.into_owned()).map_err(|_| malformed("with its %XX it is no UTF-8 text"))
        };
        let (user, password) = match login.map(|login| login.split_once(':').unwrap_or((login, ""))) {
            Some((user, password)) => (Some(decode(user)?), Some(decode(password)?)),
            None => (None, None),
        };
        password.as_deref().into_iter().for_each(secrets::remember);
        let hosts = hosts.split(',').filter(|host| !host.is_empty());
        let hosts = hosts.map(|host| Host::parse(host).map_err(|why| malformed(&why)));
        let settings = query.split('&').filter(|setting| !setting.is_empty()).map(|setting| {
            let (name, value) = setting.split_once('=').unwrap_or((setting, ""));
            Ok((decode(name)?, decode(value)?))
        });
        Ok(Self {
            user: user.filter(|user| !user.is_empty()),
            password: password.filter(|password| !password.is_empty()),
            hosts: hosts.collect::<Result<_, _>>()?,
            path: decode(path.trim_end_matches('/'))?,
            settings: settings.collect::<Result<_, OpenError>>()?,
            known: BTreeSet::new(),
            form,
        })
    }

    /// Takes the value of a setting; each is taken once, and those left at the end are [unknown](Self::finish).
    pub(crate) fn take(&mut self, name: &'static str) -> Option<String> {
        self.known.insert(name);
        let found = self.settings.iter().position(|(known, _)| known == name)?;
        Some(self.settings.remove(found).1)
    }

    /// Checks that no setting is left; to be called when all have been taken.
    ///
    /// # Errors
    /// [`OpenError::Malformed`] if there is an unknown setting.
    pub(crate) fn finish(&self) -> Result<(), OpenError> {
        let Some((name, _)) = self.settings.first() else { return Ok(()) };
        let known: Vec<&str> = self.known.iter().copied().collect();
        Err(self.malformed(match known.iter().find(|known| *known == name) {
            Some(twice) => format!("the setting `{twice}` was given twice"),
            None if known.is_empty() => "it has a setting, and this store has none".to_owned(),
            None => format!("it has a setting that is none of this store's, which are {}", known.join(", ")),
        }))
    }

    /// An error about this URL. `why` must show no part of it that could hold a password.
    pub(crate) fn malformed(&self, why: impl Into<String>) -> OpenError {
        OpenError::Malformed { form: self.form, why: why.into() }
    }
}

impl Host {
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let (name, port) = match text.strip_prefix('[') {
            Some(rest) => {
                let (name, rest) =
                    rest.split_once(']').ok_or("an address that begins with `[` ends with `]`")?;
                match rest.strip_prefix(':') {
                    None if !rest.is_empty() => return Err("behind `]` comes `:PORT` or nothing".to_owned()),
                    port => (name, port),
                }
            }
            None => match text.split_once(':') {
                Some((name, port)) => (name, Some(port)),
                None => (text, None),
            },
        };
        let is_name = |letter: char| letter.is_ascii_alphanumeric() || "-._:%".contains(letter);
        if name.is_empty() || !name.chars().all(is_name) {
            return Err("a host is a name, an IPv4 address, or an IPv6 address in brackets".to_owned());
        }
        let port = port.map(|port| port.parse().map_err(|_| "a port is a number from 1 to 65535"));
        Ok(Self { name: name.to_owned(), port: port.transpose()? })
    }

    /// The host and port, as in a URL of the web, and in an address to connect to.
    #[allow(dead_code, reason = "a program may have only stores whose libraries join them")]
    pub(crate) fn authority(&self, default_port: u16) -> String {
        let port = self.port.unwrap_or(default_port);
        if self.name.contains(':') {
            format!("[{}]:{port}", self.name)
        } else {
            format!("{}:{port}", self.name)
        }
    }
}

/// Leaves out all parts that could be secret.
impl fmt::Debug for StoreUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StoreUrl")
            .field("hosts", &self.hosts)
            .field("path", &self.path)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FORM: &str = "x://HOST/PATH";

    fn parse(rest: &str) -> StoreUrl {
        StoreUrl::parse(rest, FORM).unwrap()
    }

    #[test]
    fn every_part_is_found() {
        let mut whole = parse("//us%40er:p%3a%2Fw@a:1,[::1]:2,c/some/path%20x/?ca=%2Ftmp%2Fca.pem&flag");
        assert_eq!(whole.user.as_deref(), Some("us@er"));
        assert_eq!(whole.password.as_deref(), Some("p:/w"));
        let hosts: Vec<_> = whole.hosts.iter().map(|host| host.authority(9)).collect();
        assert_eq!(hosts, ["a:1", "[::1]:2", "c:9"]);
        assert_eq!(whole.path, "some/path x");
        assert!(whole.finish().unwrap_err().to_string().contains("this store has none"));
        assert_eq!(whole.take("ca").as_deref(), Some("/tmp/ca.pem"));
        assert!(whole.finish().unwrap_err().to_string().contains("which are ca;"));
        assert_eq!(whole.take("flag").as_deref(), Some(""));
        assert_eq!(whole.take("ca"), None);
        assert_eq!(whole.finish(), Ok(()));
        let least = parse("//");
        assert_eq!(
            (least.user, least.password, least.hosts, least.path),
            (None, None, vec![], String::new())
        );
    }

    #[test]
    fn what_is_wrong_is_said_without_the_password() {
        for wrong in [
            "host",
            "//u:secret@h:99999",
            "//u:secret@[::1",
            "//u:secret@[::1]junk:5",
            "//u:12/secret@h",
            "//u:12?secret@h",
            "//u:secret@ho st",
            "//u:secret@a/%ff",
            "//u:%ff@a",
        ] {
            let error = StoreUrl::parse(wrong, FORM).unwrap_err().to_string();
            assert!(error.contains(FORM) && !error.contains("secret"), "{error}");
        }
        let url = parse("//u:secret@h?token=secret");
        assert!(!format!("{url:?}").contains("secret"), "{url:?}");
        assert!(!url.finish().unwrap_err().to_string().contains("secret"));
    }
}
