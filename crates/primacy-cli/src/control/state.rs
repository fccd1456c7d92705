//! A state of the application in JSON: as text if it is printable text, otherwise as hexadecimal digits.

use primacy::Announcement;
use serde::{Deserialize, Serialize};

/// The bytes of a state. They are text if they are UTF-8 without control characters (except tabs and line feeds) and
/// without characters that change the text direction or break the line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum State {
    /// The text itself.
    Text(String),
    /// Two digits for each byte.
    Hex(String),
}

/// A leader's announcement, as one node has heard it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Announced {
    /// The term of the leader that has announced it.
    pub(crate) term: u64,
    /// The number of its message. The pair of term and number never goes back.
    pub(crate) number: u64,
    /// The announced state.
    #[serde(flatten)]
    pub(crate) state: State,
}

impl State {
    pub(crate) fn new(bytes: &[u8]) -> Self {
        let is_text = |text: &&str| text.chars().all(|c| matches!(c, '\t' | '\n') || !moves(c));
        match std::str::from_utf8(bytes).ok().filter(is_text) {
            Some(text) => Self::Text(text.to_owned()),
            None => Self::Hex(bytes.iter().map(|byte| format!("{byte:02x}")).collect()),
        }
    }

    /// Returns the length in bytes.
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Text(text) => text.len(),
            Self::Hex(digits) => digits.len() / 2,
        }
    }

    /// Returns the bytes; `None` if the digits are invalid.
    pub(crate) fn bytes(&self) -> Option<Vec<u8>> {
        let digits = match self {
            Self::Text(text) => return Some(text.as_bytes().to_vec()),
            Self::Hex(digits) => digits.as_bytes(),
        };
        let digit = |digit: u8| char::from(digit).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
        let byte = |pair: &[u8]| match *pair {
            [high, low] => Some(digit(high)? << 4 | digit(low)?),
            _ => None,
        };
        digits.chunks(2).map(byte).collect()
    }
}

impl From<&Announcement> for Announced {
    fn from(announcement: &Announcement) -> Self {
        let number = announcement.number;
        Self { term: number.term.0, number: number.counter, state: State::new(&announcement.state) }
    }
}

/// Returns whether a terminal acts on this character instead of showing it: control characters, and Unicode's
/// characters that change the text direction or end a line.
pub(crate) fn moves(c: char) -> bool {
    c.is_control()
        || matches!(
            c,
            '\u{61c}'
                | '\u{200e}'..='\u{200f}'
                | '\u{2028}'..='\u{202e}'
                | '\u{2066}'..='\u{2069}'
        )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_come_back_as_they_were() {
        for bytes in [&b""[..], b"shard 7\n", "größer".as_bytes(), b"\x00\x01", b"\xff\xfe", b"\x1b[2J"] {
            assert_eq!(State::new(bytes).bytes().as_deref(), Some(bytes));
        }
        assert_eq!(State::new(b"a\tb"), State::Text("a\tb".into()));
        assert_eq!(State::new(b"\x1b["), State::Hex("1b5b".into()));
        for turns in ["a\u{202e}b", "\u{2066}", "\u{200f}", "\u{61c}", "a\u{2028}b"] {
            assert!(matches!(State::new(turns.as_bytes()), State::Hex(_)), "{turns:?}");
            assert_eq!(State::new(turns.as_bytes()).bytes().as_deref(), Some(turns.as_bytes()));
        }
        assert_eq!(State::Hex("1b5b".into()).len(), 2);
        assert_eq!(State::Text("ö".into()).len(), 2);
        for wrong in ["1", "1g", "+1", "é"] {
            assert_eq!(State::Hex(wrong.into()).bytes(), None, "{wrong}");
        }
    }
}
