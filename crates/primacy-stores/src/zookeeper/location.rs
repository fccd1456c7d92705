//! Parsing the URL: the servers, the credentials, and the znode of an election.

use super::layout::Layout;
use crate::open_error::OpenError;
use crate::store_url::StoreUrl;

/// The form of the URL.
pub(crate) const FORM: &str = "zookeeper://HOST/PATH";

/// The default port of ZooKeeper.
const DEFAULT_PORT: u16 = 2181;

/// The servers, the login and the znode of an election.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct ZnodeLocation {
    /// The servers, with commas between them.
    pub(crate) servers: String,
    /// `user:password`, for the scheme `digest`.
    pub(crate) login: Option<String>,
    /// An identity, `SCHEME:ID`, that may have permissions on the election's znode, besides this login.
    pub(crate) owner: Option<String>,
    /// The znode whose children are the election's entries.
    pub(crate) directory: String,
    /// The layout of the entries' names.
    pub(crate) layout: Layout,
}

impl ZnodeLocation {
    /// Parses the URL; `election` becomes the last part of the path.
    pub(crate) fn parse(rest: &str, election: &str) -> Result<Self, OpenError> {
        let mut url = StoreUrl::parse(rest, FORM)?;
        let layout = match url.take("layout") {
            None => Layout::Curator,
            Some(name) => Layout::named(&name)
                .ok_or_else(|| url.malformed("the setting `layout` is `curator` or `kazoo`"))?,
        };
        let owner = url.take("owner").filter(|owner| !owner.is_empty());
        if ["ca", "cert", "key", "tls"].iter().any(|name| url.take(name).is_some()) {
            return Err(OpenError::Refused {
                why: "zookeeper: has no TLS in this version; use a network that is protected otherwise"
                    .to_owned(),
            });
        }
        url.finish()?;
        if url.hosts.is_empty() {
            return Err(url.malformed("it names no server"));
        }
        let login = match (&url.user, &url.password) {
            (Some(user), Some(password)) => Some(format!("{user}:{password}")),
            (None, None) => None,
            (Some(_), None) | (None, Some(_)) => {
                return Err(url.malformed("a user has a password, and a password a user"));
            }
        };
        let parts: Vec<&str> = url.path.split('/').filter(|_| !url.path.is_empty()).collect();
        if parts.iter().any(|part| part.is_empty() || !is_allowed(part)) {
            return Err(url.malformed(
                "a part of the path is empty, is `.` or `..`, or has a character that ZooKeeper does not allow",
            ));
        }
        let directory = parts
            .into_iter()
            .chain([escape(election).as_str()])
            .fold(String::new(), |path, part| path + "/" + part);
        let servers: Vec<String> = url.hosts.iter().map(|host| host.authority(DEFAULT_PORT)).collect();
        Ok(Self { servers: servers.join(","), login, owner, directory, layout })
    }
}

fn is_forbidden(character: char) -> bool {
    character.is_control() || matches!(character, '\u{e000}'..='\u{f8ff}' | '\u{fff0}'..='\u{ffff}')
}

fn is_allowed(part: &str) -> bool {
    part != "." && part != ".." && !part.chars().any(is_forbidden)
}

/// Escapes the name of an election as one part of a path; different names stay different.
fn escape(election: &str) -> String {
    let mut escaped = String::new();
    for character in election.chars() {
        let is_dots = election == "." || election == "..";
        if is_dots || matches!(character, '/' | '%') || is_forbidden(character) {
            let mut bytes = [0; 4];
            for byte in character.encode_utf8(&mut bytes).bytes() {
                escaped.push_str(&format!("%{byte:02X}"));
            }
        } else {
            escaped.push(character);
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_election_is_the_last_part_of_the_path() {
        let place = ZnodeLocation::parse(
            "//us:p%3Aw@a,[::1]:7,c:9/some/path?layout=kazoo&owner=world:anyone",
            "jobs",
        )
        .unwrap();
        assert_eq!(place.servers, "a:2181,[::1]:7,c:9");
        assert_eq!(place.login.as_deref(), Some("us:p:w"));
        assert_eq!(place.directory, "/some/path/jobs");
        assert_eq!((place.layout, place.owner.as_deref()), (Layout::Kazoo, Some("world:anyone")));
        let least = ZnodeLocation::parse("//a", "a/b%é\u{e000}").unwrap();
        assert_eq!(least.directory, "/a%2Fb%25é%EE%80%80");
        assert_eq!((least.login, least.layout), (None, Layout::Curator));
        assert_eq!(ZnodeLocation::parse("//a", "..").unwrap().directory, "/%2E%2E");
    }

    #[test]
    fn what_is_wrong_is_said_without_the_password() {
        for wrong in [
            "//",
            "//u:secret@",
            "//u@a",
            "//u:secret@a/x//y",
            "//u:secret@a/../y",
            "//u:secret@a?layout=other",
            "//u:secret@a?no=1",
            "//u:secret@a/%EF%BF%BF",
        ] {
            let error = ZnodeLocation::parse(wrong, "e").err().expect("it is wrong").to_string();
            assert!(error.contains(FORM) && !error.contains("secret"), "{error}");
        }
        let tls = ZnodeLocation::parse("//a?ca=x", "e").err().expect("no TLS");
        assert!(matches!(&tls, OpenError::Refused { why } if why.contains("TLS")), "{tls}");
    }
}
