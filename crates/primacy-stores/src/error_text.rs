//! Texts of errors, parts of which servers write: they are cut after [`LENGTH_MAX`] characters, and secrets that this process has read are
//! removed.

use std::fmt::Display;

use crate::secrets;

/// The longest text of a store that an error shows, in characters.
pub const LENGTH_MAX: usize = 2_048;

/// Returns the text of `value` without the secrets that stores have read, or its beginning and `…` where it is longer than [`LENGTH_MAX`]
/// characters.
pub fn shortened(value: &(impl Display + ?Sized)) -> String {
    let mut text = secrets::without(&value.to_string()).into_owned();
    // A text has at least as many bytes as characters.
    if text.len() > LENGTH_MAX
        && let Some((end, _)) = text.char_indices().nth(LENGTH_MAX - 1)
        && text[end..].chars().nth(1).is_some()
    {
        text.truncate(end);
        text.push('…');
    }
    text
}

/// Returns the first `length_max` characters of a server's text on one line, with control characters as escapes. Secrets are removed
/// before the text is cut: a part of one would not be recognised later.
#[cfg(any(feature = "consul", feature = "etcd", feature = "object"))]
pub(crate) fn on_one_line(text: &str, length_max: usize) -> String {
    let text = secrets::without(text.trim());
    let mut shown = String::with_capacity(text.len().min(length_max));
    for letter in text.chars() {
        if letter.is_control() {
            shown.extend(letter.escape_default());
        } else {
            shown.push(letter);
        }
    }
    shown.chars().take(length_max).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{OpenError, ReadError, RecordError, SessionError, SetError};

    #[test]
    fn only_what_is_too_long_is_cut() {
        for whole in ["", "short", &"é".repeat(LENGTH_MAX)] {
            assert_eq!(shortened(whole), whole);
        }
        let cut = shortened(&"é".repeat(LENGTH_MAX + 1));
        assert!(cut.chars().count() == LENGTH_MAX && cut.ends_with("é…"), "{cut}");
    }

    #[test]
    #[cfg(any(feature = "consul", feature = "etcd", feature = "object"))]
    fn a_text_of_a_server_is_on_one_line_without_control_characters_and_parts_of_secrets() {
        secrets::remember("token-of-0123456789");
        let text = " \u{1b}[2Ja\nb token-of-0123456789\n";
        assert_eq!(on_one_line(text, 100), "\\u{1b}[2Ja\\nb ***");
        assert_eq!(on_one_line(text, 16), "\\u{1b}[2Ja\\nb **");
    }

    #[test]
    fn no_error_shows_more_of_a_text_than_may_be_shown() {
        let why = || "x".repeat(1 << 20);
        let shown = [
            ReadError::Unavailable { why: why() }.to_string(),
            ReadError::Malformed { error: RecordError::NotJson { why: why() } }.to_string(),
            ReadError::Malformed { error: RecordError::Field { field: "holder", why: why() } }.to_string(),
            SetError::Unknown { why: why() }.to_string(),
            SetError::Unavailable { why: why() }.to_string(),
            SessionError::Ended { why: why() }.to_string(),
            SessionError::NoAnswer { why: why() }.to_string(),
            SessionError::Refused { why: why() }.to_string(),
            OpenError::Refused { why: why() }.to_string(),
            OpenError::Unavailable { why: why() }.to_string(),
            OpenError::Shortage { why: why() }.to_string(),
        ];
        for text in shown {
            assert!(text.contains("xx…"), "{}", text.len());
            assert_eq!(text.matches('x').count() / 10, LENGTH_MAX / 10);
        }
    }
}
