//! The secrets that the stores of this process have read. A server, or a gateway before it, may repeat one in the text of an error.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

/// The shortest secret that is removed, in bytes: a shorter text may be a part of any word.
const LENGTH_MIN: usize = 8;

/// The maximum number of remembered secrets; the oldest is forgotten first. Secrets are replaced while a process runs.
const REMEMBERED_MAX: usize = 64;

static SECRETS: Mutex<VecDeque<Box<str>>> = Mutex::new(VecDeque::new());

/// Remembers a password, token or key, which is removed from all texts that are shown from now on.
pub(crate) fn remember(secret: &str) {
    let secret = secret.trim();
    if secret.len() < LENGTH_MIN {
        return;
    }
    let mut secrets = SECRETS.lock().unwrap_or_else(PoisonError::into_inner);
    if secrets.iter().any(|known| **known == *secret) {
        return;
    }
    if secrets.len() == REMEMBERED_MAX {
        secrets.pop_front();
    }
    secrets.push_back(secret.into());
}

/// A text with `***` in the place of each secret.
pub(crate) fn without(text: &str) -> Cow<'_, str> {
    let secrets = SECRETS.lock().unwrap_or_else(PoisonError::into_inner);
    let mut shown = Cow::Borrowed(text);
    for secret in secrets.iter().filter(|secret| text.contains(&***secret)) {
        shown = Cow::Owned(shown.replace(&**secret, "***"));
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_remembered_secret_is_left_out() {
        for at in 0..REMEMBERED_MAX * 2 {
            remember(&format!("secret-of-the-test-{at:04}"));
        }
        remember("short");
        let last = format!("secret-of-the-test-{:04}", REMEMBERED_MAX * 2 - 1);
        assert_eq!(without(&format!("bad token: Bearer {last}, short")), "bad token: Bearer ***, short");
        assert!(matches!(without("plain"), Cow::Borrowed("plain")));
        assert!(SECRETS.lock().unwrap().len() <= REMEMBERED_MAX);
    }
}
