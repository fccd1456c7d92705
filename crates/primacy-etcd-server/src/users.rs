//! The users of the etcd API, and their tokens.
//!
//! Tokens are not stored: a token contains its expiry, and is signed with a key that is derived from the file of users
//! and from a secret that the nodes of one cluster share in their replicated state. So all nodes with the same file
//! accept it, because clients send requests to one node and then to another; none does once the file has changed, and
//! no other cluster does. A client cannot use a token to check a guess of the file's content.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use http::HeaderMap;
use primacy::stores::etcd::api::method;
use primacy::stores::ownership;
use primacy::stores::replaced_files::{FromFiles, Sources};
use primacy_kv::command::Secret;
use tokio::sync::watch;
use tokio::time::{MissedTickBehavior, interval};
use tokio_rustls::rustls::crypto::ring::cipher_suite::TLS13_AES_128_GCM_SHA256;
use tokio_rustls::rustls::crypto::tls13::{Hkdf, OkmBlock};

use super::errors::Known;

/// The time for which a token is accepted.
const TOKEN_LIFE: Duration = Duration::from_secs(24 * 3600);

/// The permission bits of users other than the owner.
const OTHERS: u32 = 0o077;

/// Separates these signatures from others that may be made with the same file.
const PURPOSE: &[u8] = b"primacy etcd API token";

/// The most bytes of a user's name, and of a password.
const LOGIN_MAX: usize = 1024;

/// The password with which a login of an unknown user is compared.
const NO_PASSWORD: &str = "no user has this name";

/// Returns whether a request needs no token: the status of the node, the addresses of the others, and the login itself.
pub(super) fn is_open(path: &str) -> bool {
    [method::AUTHENTICATE, method::STATUS, method::MEMBER_LIST].contains(&path)
}

/// The interval at which the file of users is checked for streams, in addition to the checks by requests.
const LOOK: Duration = Duration::from_secs(1);

/// The number of checks of an unchanged file after which expired tokens are looked for.
const LOOKS_FOR_EXPIRED: u64 = 60;

/// The users that may send requests, as in their file at each request.
#[derive(Debug)]
pub struct Users {
    file: FromFiles<Arc<UserList>>,
    /// Notified when a valid token may have become invalid.
    looks: watch::Sender<()>,
}

/// The users in the file, as of one reading.
pub(super) struct UserList {
    passwords: BTreeMap<String, String>,
    /// The key from the file; with the shared secret, the signing key of tokens is derived from it.
    key: OkmBlock,
}

/// HMAC with SHA-256, which TLS contains already.
fn hmac() -> &'static dyn Hkdf {
    TLS13_AES_128_GCM_SHA256.tls13().expect("it is one of version 1.3").hkdf_provider
}

/// Opens a file of users: one `NAME:PASSWORD` a line. Other users of the machine must not be able to read it. It is
/// read again when it has changed.
///
/// # Errors
/// The defect of the file, without any password.
pub fn open_users(path: &Path) -> Result<Users, String> {
    let path = path.to_owned();
    let looks = watch::Sender::new(());
    let changes = looks.clone();
    let file = FromFiles::open("the file of users", move |sources| {
        let list = read_users(&path, sources)?;
        // The woken tasks lock the users, and so wait until this list is the current one.
        changes.send_replace(());
        Ok::<_, String>(Arc::new(list))
    })?;
    Ok(Users { file, looks })
}

fn read_users(path: &Path, sources: &mut Sources) -> Result<UserList, String> {
    let named = |error: std::io::Error| format!("{}: {error}", path.display());
    sources.add(path);
    let text = ownership::read_trusted(path, OTHERS).map_err(named)?;
    let mut passwords = BTreeMap::new();
    for (index, line) in text.lines().enumerate().filter(|(_, line)| !line.is_empty()) {
        let wrong = |what: &str| format!("{}: line {}: {what}", path.display(), index + 1);
        let (name, password) = line.split_once(':').ok_or_else(|| wrong("it must be NAME:PASSWORD"))?;
        if name.is_empty() || password.is_empty() {
            return Err(wrong("neither the name nor the password may be empty"));
        }
        if name.len().max(password.len()) > LOGIN_MAX {
            return Err(wrong(&format!("it is longer than {LOGIN_MAX} bytes")));
        }
        if passwords.insert(name.to_owned(), password.to_owned()).is_some() {
            return Err(wrong(&format!("the user {name} is there twice")));
        }
    }
    if passwords.is_empty() {
        return Err(format!("{}: there is no user in it", path.display()));
    }
    let key = hmac().extract_from_secret(None, text.as_bytes()).expand_block(&[PURPOSE]);
    Ok(UserList { passwords, key })
}

impl Users {
    pub(super) fn current(&self) -> Arc<UserList> {
        self.file.current()
    }

    /// Notified when a valid token may have become invalid.
    pub(super) fn looks(&self) -> watch::Receiver<()> {
        self.looks.subscribe()
    }

    /// Checks the file and the expiry of tokens, without end.
    pub(super) async fn look_again(self: Arc<Self>) {
        let mut looks = interval(LOOK);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        for count in 1_u64.. {
            looks.tick().await;
            let _ = self.current();
            if count.is_multiple_of(LOOKS_FOR_EXPIRED) {
                self.looks.send_replace(());
            }
        }
    }
}

impl UserList {
    /// Checks that a request presents a valid token, and returns the token's expiry, in seconds of the wall clock.
    /// Without a shared secret no token is valid yet.
    ///
    /// # Errors
    /// [`Known::USER_EMPTY`] without a token, [`Known::INVALID_TOKEN`] with an invalid one.
    pub(super) fn check(&self, secret: Option<&Secret>, headers: &HeaderMap) -> Result<u64, Known> {
        let shown = headers.get("token").or_else(|| headers.get("authorization"));
        let shown = shown.ok_or(Known::USER_EMPTY)?.to_str().map_err(|_| Known::INVALID_TOKEN)?;
        let (said, signature) = shown.rsplit_once('.').ok_or(Known::INVALID_TOKEN)?;
        let secret = secret.ok_or(Known::INVALID_TOKEN)?;
        if !is_same(self.sign(secret, said).as_bytes(), signature.as_bytes()) {
            return Err(Known::INVALID_TOKEN);
        }
        // The signature is right, so a node of this cluster has written the content.
        let until = said.split('.').next().and_then(|until| until.parse().ok());
        until.filter(|&until| now() < until).ok_or(Known::INVALID_TOKEN)
    }

    /// Returns true if a valid token of those users is valid with these, too.
    pub(super) fn has_tokens_of(&self, those: &Self) -> bool {
        is_same(self.key.as_ref(), those.key.as_ref())
    }

    /// Returns a token for a user. For an unknown name it makes as many comparisons as for a known one.
    pub(super) fn log_in(&self, secret: &Secret, name: &str, password: &str) -> Result<String, Known> {
        let user = self.passwords.get(name);
        let known = user.map_or(NO_PASSWORD, String::as_str);
        if !is_same(known.as_bytes(), password.as_bytes()) || user.is_none() {
            return Err(Known::AUTHENTICATION_FAILED);
        }
        Ok(self.token(secret, now() + TOKEN_LIFE.as_secs()))
    }

    /// Creates a token that is valid until `until`. Each is different.
    fn token(&self, secret: &Secret, until: u64) -> String {
        let said = format!("{until}.{:016x}", random());
        let signature = self.sign(secret, &said);
        format!("{said}.{signature}")
    }

    fn sign(&self, secret: &Secret, said: &str) -> String {
        let key = OkmBlock::new(hmac().hmac_sign(&self.key, &secret.0).as_ref());
        let signature = hmac().hmac_sign(&key, said.as_bytes());
        signature.as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

/// Seconds of the wall clock, which all nodes share, unlike the clock of a process.
pub(super) fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

/// Compares in constant time.
fn is_same(known: &[u8], shown: &[u8]) -> bool {
    let mut differ = u8::from(known.len() != shown.len());
    for (index, byte) in known.iter().enumerate() {
        differ |= byte ^ shown.get(index).unwrap_or(&!byte);
    }
    std::hint::black_box(differ) == 0
}

/// Returns a number that cannot be guessed.
pub(super) fn random() -> u64 {
    getrandom::u64().expect("the system has random numbers")
}

/// Omits passwords and keys.
impl fmt::Debug for UserList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.passwords.keys()).finish()
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use http::HeaderValue;

    use super::*;

    /// The users of a file that was deleted after it was read.
    pub(crate) fn users(text: &str) -> Users {
        let directory = std::env::temp_dir();
        let path = directory.join(format!("primacy-users-{}-{:x}", std::process::id(), random()));
        std::fs::write(&path, text).unwrap();
        assert!(open_users(&path).unwrap_err().contains("others may read it"));
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        let users = open_users(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        users
    }

    fn list(text: &str) -> Arc<UserList> {
        users(text).current()
    }

    const SECRET: Secret = Secret([1; 32]);

    fn check_in(secret: &Secret, users: &UserList, token: &str) -> Result<(), Known> {
        let shown = [("token".parse().unwrap(), HeaderValue::from_str(token).unwrap())];
        users.check(Some(secret), &HeaderMap::from_iter(shown)).map(drop)
    }

    fn check(users: &UserList, token: &str) -> Result<(), Known> {
        check_in(&SECRET, users, token)
    }

    /// The file alone, which may be guessed, makes no token, and does not show whether a token is right.
    #[test]
    fn a_token_is_of_one_cluster() {
        let users = list("a:1\n");
        let token = users.log_in(&SECRET, "a", "1").unwrap();
        assert_eq!(check_in(&Secret([2; 32]), &users, &token), Err(Known::INVALID_TOKEN));
        assert_eq!(check(&users, &token), Ok(()));
    }

    #[test]
    fn a_token_is_accepted_by_all_who_have_the_same_users_until_its_end_and_as_it_was_made() {
        let (one, same, other) = (list("a:1\nb:2\n"), list("a:1\nb:2\n"), list("a:1\nb:3\n"));
        let token = one.log_in(&SECRET, "a", "1").unwrap();
        assert_eq!([check(&one, &token), check(&same, &token)], [Ok(()); 2]);
        assert_eq!(check(&other, &token), Err(Known::INVALID_TOKEN));
        assert_ne!(token, one.log_in(&SECRET, "a", "1").unwrap());
        assert_eq!(check(&one, &one.token(&SECRET, now())), Err(Known::INVALID_TOKEN), "its end has come");
        let (until, rest) = token.split_once('.').unwrap();
        let later = format!("{}.{rest}", until.parse::<u64>().unwrap() + 1);
        for wrong in [&later, &token[..token.len() - 1], &token[1..], rest, "", ".", "..", "a.b.c"] {
            assert_eq!(check(&one, wrong), Err(Known::INVALID_TOKEN), "{wrong}");
        }
        assert_eq!(one.check(Some(&SECRET), &HeaderMap::new()), Err(Known::USER_EMPTY));
        assert!(!format!("{one:?}").contains('1'), "{one:?}");
    }
}
