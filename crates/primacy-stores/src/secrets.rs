//! The secrets that the stores of this process have read. A server, or a gateway before it, may repeat one in the text of an error.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::sync::Mutex;

use crate::mutex::lock;

/// A shorter text may be a part of any word.
const LENGTH_MIN: usize = 8;

/// The number of secrets that are remembered, of which the one that was read longest ago is forgotten: they are replaced while a process
/// runs.
const REMEMBERED_MAX: usize = 64;

/// The first line of a private key ends with this.
const KEY_BEGINS: &str = "PRIVATE KEY-----";

/// The last line of a private key begins with this.
const KEY_ENDS: &str = "-----END";

static SECRETS: Mutex<VecDeque<Box<str>>> = Mutex::new(VecDeque::new());

/// Has a password, token or key left out of all that is shown from now on; but none of letters only, which may be a word that stands in
/// other texts for itself.
pub(crate) fn remember(secret: &str) {
    let secret = secret.trim();
    if secret.len() < LENGTH_MIN || secret.chars().all(char::is_alphabetic) {
        return;
    }
    let mut secrets = lock(&SECRETS);
    secrets.retain(|known| **known != *secret);
    if secrets.len() == REMEMBERED_MAX {
        secrets.pop_front();
    }
    secrets.push_back(secret.into());
}

/// A text with `***` in the place of each secret, and of each private key in PEM.
pub(crate) fn without(text: &str) -> Cow<'_, str> {
    if !text.contains(KEY_BEGINS) {
        return without_remembered(text);
    }
    let (mut shown, mut rest) = (String::new(), text);
    while let Some((before, key)) = rest.split_once(KEY_BEGINS) {
        shown.push_str(before);
        shown.push_str(KEY_BEGINS);
        shown.push_str("***");
        let last_line = key.split_once(KEY_ENDS).map(|(_, line)| line);
        rest = last_line.and_then(|line| line.split_once("-----")).map_or("", |(_, rest)| rest);
    }
    shown.push_str(rest);
    Cow::Owned(without_remembered(&shown).into_owned())
}

fn without_remembered(text: &str) -> Cow<'_, str> {
    let secrets = lock(&SECRETS);
    let mut found: Vec<&str> =
        secrets.iter().map(|secret| &**secret).filter(|secret| text.contains(secret)).collect();
    // One may be the beginning of another one.
    found.sort_unstable_by_key(|secret| std::cmp::Reverse(secret.len()));
    found.into_iter().fold(Cow::Borrowed(text), |shown, secret| Cow::Owned(shown.replace(secret, "***")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_private_key_is_left_out_however_its_lines_end() {
        for end in ["\n", "\\n", " "] {
            let key =
                format!("-----BEGIN RSA PRIVATE KEY-----{end}QXZ{end}QXZ{end}-----END RSA PRIVATE KEY-----");
            let shown = without(&format!("invalid type: {key}, {key} QXY")).into_owned();
            assert!(!shown.contains("QXZ") && shown.ends_with("QXY"), "{shown}");
        }
        assert!(!without("a PRIVATE KEY-----QXZ").contains("QXZ"), "cut");
    }

    #[test]
    fn a_remembered_secret_is_left_out() {
        for at in 0..REMEMBERED_MAX * 2 {
            remember(&format!("secret-of-the-test-{at:04}"));
        }
        remember("short");
        let last = format!("secret-of-the-test-{:04}", REMEMBERED_MAX * 2 - 1);
        assert_eq!(without(&format!("bad token: Bearer {last}, short")), "bad token: Bearer ***, short");
        assert!(matches!(without("plain"), Cow::Borrowed("plain")));
        remember("s3cret-password");
        remember("s3cret-password-2");
        remember("postgres");
        assert_eq!(without("postgres: s3cret-password-2 s3cret-password"), "postgres: *** ***");
        assert!(lock(&SECRETS).len() <= REMEMBERED_MAX);
    }
}
