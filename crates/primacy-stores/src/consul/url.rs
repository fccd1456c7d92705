//! Parsing a URL, and opening an election in Consul.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use hyper::header::HeaderValue;

use super::agent::{Agents, Token};
use super::api::{Api, LOCK_FLAG};
use super::queue::Queue;
use super::session::{Pool, User};
use super::watch::Watches;
use super::{Connected, ConsulSessions, duration};
use crate::open_error::OpenError;
use crate::opening::{Address, Opened, Opening};
use crate::passing;
use crate::replaced_files::{FromFiles, Sources};
use crate::runtime;
use crate::secrets;
use crate::sessions::SessionError;
use crate::shared_connections::SharedConnections;
use crate::store_url::StoreUrl;
use crate::tls::Files;

/// The form of the URL.
const FORM: &str = "consul://HOST[:PORT][,HOST...][/PREFIX]";

/// The default ports of agents, without TLS and with it.
pub(super) const PORT: u16 = 8500;
pub(super) const TLS_PORT: u16 = 8501;

/// The environment variable in which Consul's own programs look for a token.
const TOKEN_VARIABLE: &str = "CONSUL_HTTP_TOKEN";

/// The time limit of opening an election.
const OPEN_MAX: Duration = Duration::from_secs(5);

/// The longest lock-delay that Consul accepts.
const LOCK_DELAY_MAX: Duration = Duration::from_secs(60);

/// The last part of the name of every lock key, as with `consul lock`.
const LOCK: &str = ".lock";

static CONNECTIONS: SharedConnections<Connected> = SharedConnections::new();

/// The parsed URL.
#[derive(Debug)]
struct ParsedUrl {
    api: Api,
    lock_delay: Duration,
    prefix: String,
}

fn parse(rest: &str) -> Result<ParsedUrl, OpenError> {
    let mut url = StoreUrl::parse(rest, FORM)?;
    if url.hosts.is_empty() {
        return Err(url.malformed("it names no host"));
    }
    if url.user.is_some() || url.password.is_some() {
        let why = format!(
            "Consul knows no users; name the file of a token by `token-file`, or set {TOKEN_VARIABLE}"
        );
        return Err(url.malformed(why));
    }
    let files = Files::take(&mut url)?;
    let tls = files.take_tls(&mut url, files.is_given())?;
    let lock_delay = match url.take("lock-delay").as_deref().map(duration::parse) {
        None => Duration::ZERO,
        Some(Some(delay)) if delay <= LOCK_DELAY_MAX => delay,
        Some(_) => return Err(url.malformed("`lock-delay` is a time from 0s to 60s, like 15s")),
    };
    let place: Vec<_> = ["dc", "ns"].into_iter().filter_map(|name| Some((name, url.take(name)?))).collect();
    let token_file = url.take("token-file");
    url.finish()?;
    check_prefix(&url.path).map_err(|why| url.malformed(why))?;
    let token = token(token_file.as_deref())?;
    let tls = if tls { Some(Arc::new(files.client()?)) } else { None };
    let agents = Agents::new(url.hosts, tls, token);
    Ok(ParsedUrl { api: Api { agents, place }, lock_delay, prefix: url.path })
}

/// Checks a prefix: Consul allows no other characters in a key, and resolves `..`; Go's HTTP servers merge double slashes.
fn check_prefix(prefix: &str) -> Result<(), String> {
    let is_allowed = |letter: char| letter.is_ascii_alphanumeric() || ",-_./".contains(letter);
    let is_segment =
        |segment: &str| !segment.is_empty() && !segment.starts_with('.') && !segment.ends_with('.');
    if prefix.is_empty() || (prefix.chars().all(is_allowed) && prefix.split('/').all(is_segment)) {
        return Ok(());
    }
    Err("a prefix is made of letters, digits, `,`, `-`, `_` and `.`, with single slashes between names that neither \
         begin nor end with a dot"
        .to_owned())
}

/// The key of an election: `PREFIX/ELECTION/.lock`, as with `consul lock PREFIX/ELECTION`. Each byte that Consul does not allow in a key,
/// and each slash and comma, becomes a comma and two hexadecimal digits.
fn key(prefix: &str, election: &str) -> String {
    let mut key = prefix.to_owned();
    if !key.is_empty() {
        key.push('/');
    }
    let last = election.len() - 1;
    for (position, byte) in election.bytes().enumerate() {
        let is_inside = position > 0 && position < last;
        if byte.is_ascii_alphanumeric() || b"-_".contains(&byte) || (byte == b'.' && is_inside) {
            key.push(char::from(byte));
        } else {
            key.push_str(&format!(",{byte:02X}"));
        }
    }
    key.push('/');
    key.push_str(LOCK);
    key
}

/// Returns the token for the agents. No text of an error shows it.
fn token(file: Option<&str>) -> Result<Token, OpenError> {
    match file {
        Some(path) => {
            let path = PathBuf::from(path);
            let read = FromFiles::open("the token of Consul", move |sources| read_token(&path, sources))?;
            Ok(Token::File(Arc::new(read)))
        }
        None => {
            let token = std::env::var(TOKEN_VARIABLE).ok().map(|token| token.trim().to_owned());
            let token = token.filter(|token| !token.is_empty());
            Ok(Token::Fixed(token.map(|token| header(&token)).transpose()?))
        }
    }
}

fn read_token(path: &Path, sources: &mut Sources) -> Result<HeaderValue, OpenError> {
    let refused = |why: String| OpenError::Refused { why };
    let named = |error: std::io::Error| {
        passing::of_file(format!("{}, which should hold a token: {error}", path.display()), &error)
    };
    let text = sources.read_to_string(path).map_err(named)?;
    match text.trim() {
        "" => Err(refused(format!("{} should hold a token, and is empty", path.display()))),
        token => header(token),
    }
}

fn header(token: &str) -> Result<HeaderValue, OpenError> {
    let mut header = HeaderValue::try_from(token).map_err(|_| OpenError::Refused {
        why: "the token has letters that no token of Consul's has".to_owned(),
    })?;
    header.set_sensitive(true);
    secrets::remember(token);
    Ok(header)
}

/// Opens `consul://HOST/PREFIX`, and reads the election's key, so that wrong settings are reported at once.
pub(crate) fn open_url(address: Address) -> Opening {
    Box::pin(async move {
        let place = parse(&address.rest)?;
        let key = key(&place.prefix, &address.election);
        let share = CONNECTIONS.join(&address.rest, &address.election, || {
            let (api, pool) = (Arc::new(place.api), Arc::new(Pool::new(place.lock_delay)));
            Ok(Connected { api, pool, watches: Arc::new(Watches::default()) })
        })?;
        look(&share, &key).await?;
        let user = User { key, handle: super::next_handle() };
        let queue = Arc::new(Queue::new(Arc::clone(&share.api), user));
        Ok(Opened::Sessions(Arc::new(ConsulSessions::new(share, queue))))
    })
}

async fn look(connected: &Connected, key: &str) -> Result<(), OpenError> {
    let (api, key) = (Arc::clone(&connected.api), key.to_owned());
    let looking = runtime::run(async move {
        let found = tokio::time::timeout(OPEN_MAX, api.read(&key)).await;
        let given_up = |_| super::api::no_answer(format!("no answer within {OPEN_MAX:?}"));
        let entry = found.map_err(given_up)??.entry;
        match entry.filter(|entry| entry.flags != LOCK_FLAG) {
            Some(_) => Err(not_a_lock(&key)),
            None => Ok(()),
        }
    });
    let unavailable = |why: String| OpenError::Unavailable { why };
    looking.await.map_err(unavailable)?.map_err(of_opening)
}

pub(super) fn of_opening(error: SessionError) -> OpenError {
    match error {
        SessionError::Refused { why } => OpenError::Refused { why },
        SessionError::Ended { why } | SessionError::NoAnswer { why } => OpenError::Unavailable { why },
    }
}

/// Returns the client for the agents of this URL.
pub(super) fn api(rest: &str) -> Result<Api, OpenError> {
    Ok(parse(rest)?.api)
}

pub(super) fn not_a_lock(key: &str) -> SessionError {
    let why = format!(
        "the key {key} is there without the flag of a lock ({LOCK_FLAG:#x}): something else has made it, so it is left as \
         it is. Name another prefix, or remove it"
    );
    SessionError::Refused { why }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_that_of_consul_lock_and_each_election_has_its_own() {
        assert_eq!(key("jobs", "nightly"), "jobs/nightly/.lock");
        assert_eq!(key("", "nightly-2.x_y"), "nightly-2.x_y/.lock");
        assert_eq!(key("a", "b/c, d"), "a/b,2Fc,2C,20d/.lock");
        assert_eq!(
            [key("", ".."), key("", ".a."), key("", ".")],
            [",2E,2E/.lock", ",2Ea,2E/.lock", ",2E/.lock"]
        );
        assert_eq!(key("", "ä"), ",C3,A4/.lock");
    }

    #[test]
    fn what_is_wrong_in_a_url_is_said() {
        let told = |rest: &str| parse(rest).unwrap_err().to_string();
        for (rest, text) in [
            ("//", "no host"),
            ("//u:secret@h", "token-file"),
            ("//h/a//b", "single slashes"),
            ("//h/a/../b", "single slashes"),
            ("//h/a b", "single slashes"),
            ("//h/a?lock-delay=61s", "lock-delay"),
            ("//h/a?lock-delay=5", "lock-delay"),
            ("//h/a?tls=maybe", "tls"),
            ("//h/a?tls=off&ca=x", "tls"),
            ("//h/a?token=secret", "none of this store's, which are ca, cert"),
            ("//h/a?token-file=/no/such/file", "/no/such/file"),
        ] {
            let told = told(rest);
            assert!(told.contains(text) && !told.contains("secret"), "{rest}: {told}");
        }
        let place = parse("//a,b:1/x/y/?dc=east&ns=team&lock-delay=1500ms").unwrap();
        assert_eq!((place.prefix.as_str(), place.lock_delay), ("x/y", Duration::from_millis(1500)));
        assert_eq!(place.api.place, [("dc", "east".to_owned()), ("ns", "team".to_owned())]);
        assert_eq!(parse("//h").unwrap().lock_delay, Duration::ZERO);
    }

    #[test]
    fn a_token_is_shown_to_nobody_but_the_agents() {
        let path = std::env::temp_dir().join(format!("primacy-consul-token-{}", std::process::id()));
        let name = path.to_str().unwrap();
        std::fs::write(&path, " s3cret\n").unwrap();
        let shown = token(Some(name)).unwrap();
        let found = shown.current().unwrap();
        assert_eq!(found.to_str().unwrap(), "s3cret");
        // A new token is used from the next request on, and an invalid one changes nothing.
        for text in ["another s3cret", "\n"] {
            std::fs::write(&path, text.replace(' ', "-")).unwrap();
            assert_eq!(shown.current().unwrap().to_str().unwrap(), "another-s3cret", "{text:?}");
        }
        std::fs::write(&path, " s3cret\n").unwrap();
        let place = parse(&format!("//h/a?token-file={name}")).unwrap();
        assert!(!format!("{place:?} {found:?}").contains("s3cret"));
        std::fs::write(&path, "s3\u{7}cret").unwrap();
        assert!(!token(Some(name)).unwrap_err().to_string().contains("cret"));
        std::fs::write(&path, "\n").unwrap();
        assert!(token(Some(name)).unwrap_err().to_string().contains("empty"));
        std::fs::remove_file(&path).unwrap();
    }
}
