//! Texts from outside, made safe to print: what a terminal would obey is shown instead.

use std::borrow::Cow;

/// A text in which control characters, but for tabs and ends of lines, and marks that change the direction of writing are written as
/// `\u{..}`. Names, reasons and values come from records that others can write.
pub(crate) fn printable(text: &str) -> Cow<'_, str> {
    if !text.contains(is_obeyed) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len());
    for letter in text.chars() {
        if is_obeyed(letter) {
            shown.extend(letter.escape_unicode());
        } else {
            shown.push(letter);
        }
    }
    Cow::Owned(shown)
}

fn is_obeyed(letter: char) -> bool {
    let turns = matches!(letter, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    turns || (letter.is_control() && !matches!(letter, '\n' | '\t'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_terminal_would_obey_is_shown() {
        let text = "a\u{1b}[2J\u{9b}31m\r\u{202e}b\tc\nä";
        assert_eq!(printable(text), "a\\u{1b}[2J\\u{9b}31m\\u{d}\\u{202e}b\tc\nä");
        assert!(matches!(printable("plain\n"), Cow::Borrowed(_)));
    }
}
