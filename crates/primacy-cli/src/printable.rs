//! Texts from outside, made safe to print: characters that a terminal would act on are shown as escapes.

use std::borrow::Cow;

use primacy::stores::login::without_logins;

/// Returns the text with control characters (except tabs and line ends) and characters that change the text direction
/// written as `\u{..}`. Names, reasons and values come from records that other programs can write.
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

/// Returns the same on one line, with line ends shown as escapes, so that text from outside cannot start a line that
/// looks like Primacy's.
pub(crate) fn one_line(text: &str) -> String {
    printable(text).replace('\n', "\\n")
}

/// Returns the same for a text of several lines: all but the first are indented, so that none of them looks like a
/// message.
pub(crate) fn indented(text: &str) -> String {
    let shown = printable(text);
    let mut lines = shown.split('\n');
    let first = lines.next().unwrap_or_default().to_owned();
    lines.fold(first, |text, line| {
        let indent = if line.is_empty() || line.starts_with("  ") { "" } else { "  " };
        text + "\n" + indent + line
    })
}

/// Returns a line of JSON in which these characters are written as JSON's escapes, with the logins removed from its
/// texts.
pub(crate) fn printable_json(line: &str) -> Cow<'_, str> {
    let mut shown = String::with_capacity(line.len());
    for (index, part) in split_at_quotes(line).enumerate() {
        let is_text = index % 2 == 1;
        let part = if is_text { without_logins(part) } else { Cow::Borrowed(part) };
        if index > 0 {
            shown.push('"');
        }
        for letter in part.chars() {
            if is_obeyed(letter) {
                // All of them are below 2^16.
                shown.push_str(&format!("\\u{:04x}", u32::from(letter)));
            } else {
                shown.push(letter);
            }
        }
    }
    Cow::Owned(shown)
}

/// Splits a line of JSON at its quotes; every second part is the content of a string.
fn split_at_quotes(line: &str) -> impl Iterator<Item = &str> {
    let mut is_escaped = false;
    line.split(move |letter| {
        let is_quote = letter == '"' && !is_escaped;
        is_escaped = letter == '\\' && !is_escaped;
        is_quote
    })
}

fn is_obeyed(letter: char) -> bool {
    let ends_lines = matches!(letter, '\u{2028}' | '\u{2029}');
    let turns = matches!(letter, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    ends_lines || turns || (letter.is_control() && !matches!(letter, '\n' | '\t'))
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

    #[test]
    fn what_comes_from_outside_begins_no_line() {
        let text = "bad\nprimacy[a]: elected\u{2028}primacy[a]: ended\u{2029}";
        assert_eq!(one_line(text), "bad\\nprimacy[a]: elected\\u{2028}primacy[a]: ended\\u{2029}");
        assert_eq!(indented(text), "bad\n  primacy[a]: elected\\u{2028}primacy[a]: ended\\u{2029}");
        assert_eq!(indented("two problems:\n  one\n  two\n"), "two problems:\n  one\n  two\n");
    }

    #[test]
    fn a_line_of_json_stays_one_without_logins_and_without_what_a_terminal_would_obey() {
        let texts = [
            "etcd://u:QXZ@h/x",
            "\"etcd://u:QX\\\"Z@h\" y\\",
            "plain",
            "a\u{1b}[2J\u{9b}31m\u{202e}\u{2028}\u{7f}\n\\\"",
            "x://h?password=QXZ",
        ];
        let line = serde_json::to_string(&texts).unwrap();
        let shown = printable_json(&line);
        assert!(!shown.contains("QXZ") && !shown.contains(is_obeyed), "{shown}");
        let read: Vec<String> = serde_json::from_str(&shown).unwrap();
        assert_eq!(read[0], "etcd://***@h/x");
        assert_eq!(read[1], "\"etcd://***@h\" y\\");
        assert_eq!(read[2..4], texts[2..4]);
        assert_eq!(read[4], "x://h?password=***");
        assert_eq!(printable_json(&shown), shown, "what was shown once stays as it is");
    }
}
