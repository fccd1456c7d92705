//! etcd's service `Auth`, as far as a password becomes a token. There are no roles: each user may do everything.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use http::HeaderMap;
use primacy::stores::etcd::api;
use primacy::stores::etcd::api::method;
use tokio::time::Instant;
use tonic::Status;

use super::Services;
use super::errors::Known;

/// How long a token that is not used is accepted: as long as etcd's.
const TOKEN_LIFE: Duration = Duration::from_secs(300);

/// How many tokens there are at most; beyond it, the one that was not used for the longest time is accepted no more.
const TOKENS_MAX: usize = 65_536;

/// How long a user's name and password may be each, in bytes.
const LOGIN_MAX: usize = 1024;

/// How many random numbers a token has.
const TOKEN_NUMBERS: usize = 2;

/// What may be asked without a token: how the node is, and where the others are, and the token itself.
pub(super) fn is_open(path: &str) -> bool {
    [method::AUTHENTICATE, method::STATUS, method::MEMBER_LIST].contains(&path)
}

/// Who may ask.
pub(crate) struct Users {
    passwords: BTreeMap<String, String>,
    tokens: Mutex<HashMap<String, Instant>>,
}

/// Reads users from a file: one `NAME:PASSWORD` a line.
///
/// # Errors
/// What is wrong with it, for who has written it. No password is in it.
pub(crate) fn read_users(path: &Path) -> Result<Users, String> {
    let text = std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
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
    Ok(Users { passwords, tokens: Mutex::default() })
}

impl Users {
    fn tokens(&self) -> MutexGuard<'_, HashMap<String, Instant>> {
        self.tokens.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a request shows a token that is accepted.
    ///
    /// # Errors
    /// [`Known::USER_EMPTY`] without a token, [`Known::INVALID_TOKEN`] with another one.
    pub(super) fn check(&self, headers: &HeaderMap) -> Result<(), Known> {
        let shown = headers.get("token").or_else(|| headers.get("authorization"));
        let shown = shown.ok_or(Known::USER_EMPTY)?.to_str().map_err(|_| Known::INVALID_TOKEN)?;
        let mut tokens = self.tokens();
        let until = tokens.get_mut(shown).ok_or(Known::INVALID_TOKEN)?;
        let now = Instant::now();
        if *until <= now {
            tokens.remove(shown);
            return Err(Known::INVALID_TOKEN);
        }
        *until = now + TOKEN_LIFE;
        Ok(())
    }

    fn log_in(&self, name: &str, password: &str) -> Result<String, Known> {
        let known = self.passwords.get(name).ok_or(Known::AUTHENTICATION_FAILED)?;
        if !is_same(known.as_bytes(), password.as_bytes()) {
            return Err(Known::AUTHENTICATION_FAILED);
        }
        let token: String = (0..TOKEN_NUMBERS).map(|_| format!("{:016x}", random())).collect();
        let mut tokens = self.tokens();
        let now = Instant::now();
        if tokens.len() >= TOKENS_MAX {
            tokens.retain(|_, until| *until > now);
        }
        if tokens.len() >= TOKENS_MAX
            && let Some(oldest) =
                tokens.iter().min_by_key(|(_, until)| **until).map(|(token, _)| token.clone())
        {
            tokens.remove(&oldest);
        }
        tokens.insert(token.clone(), now + TOKEN_LIFE);
        Ok(token)
    }
}

/// Whether both are the same; how long it takes does not tell where they differ.
fn is_same(known: &[u8], shown: &[u8]) -> bool {
    let mut differ = u8::from(known.len() != shown.len());
    for (index, byte) in known.iter().enumerate() {
        differ |= byte ^ shown.get(index).unwrap_or(&!byte);
    }
    std::hint::black_box(differ) == 0
}

/// A number that nobody can guess.
pub(super) fn random() -> u64 {
    getrandom::u64().expect("the system has random numbers")
}

/// From a password to a token.
pub(super) async fn authenticate(
    services: Arc<Services>,
    request: api::AuthenticateRequest,
) -> Result<api::AuthenticateResponse, Status> {
    let users = services.users.as_ref().ok_or(Known::AUTHENTICATION_NOT_ENABLED)?;
    let token = users.log_in(&request.name, &request.password)?;
    Ok(api::AuthenticateResponse { header: Some(services.header_now()), token })
}

/// Without passwords and tokens.
impl fmt::Debug for Users {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.passwords.keys()).finish()
    }
}
