//! A minimal Rust lexer: it separates code from comments and strings, and finds functions and test modules.

use std::ops::Range;

/// A Rust file, split by kind of text. `code` and `comments` have the same lines as the file, with blanks in place of
/// the other kinds; the contents of strings are in neither.
pub(crate) struct Rust {
    pub(crate) code: String,
    pub(crate) comments: String,
    /// The byte ranges of the file that are only compiled for tests.
    tests: Vec<Range<usize>>,
}

/// A function with a body.
pub(crate) struct Function<'a> {
    pub(crate) name: &'a str,
    pub(crate) offset: usize,
    pub(crate) lines: usize,
}

impl Rust {
    pub(crate) fn new(text: &str) -> Self {
        let (code, comments) = split(text);
        let tests = test_items(&code);
        Self { code, comments, tests }
    }

    /// Returns the line, from 1, of a byte offset.
    pub(crate) fn line(&self, offset: usize) -> usize {
        1 + self.code.as_bytes()[..offset].iter().filter(|&&byte| byte == b'\n').count()
    }

    /// True if a byte offset is within `#[cfg(test)]`.
    pub(crate) fn is_test(&self, offset: usize) -> bool {
        self.tests.iter().any(|test| test.contains(&offset))
    }

    /// Returns the number of code lines outside of tests, and the number of all lines of tests.
    pub(crate) fn lines(&self) -> (usize, usize) {
        let mut offset = 0;
        let mut code = 0;
        for line in self.code.split_inclusive('\n') {
            code += usize::from(!line.trim().is_empty() && !self.is_test(offset));
            offset += line.len();
        }
        (code, self.tests.iter().map(|test| self.code[test.clone()].lines().count()).sum())
    }

    /// Returns the identifiers and keywords in the code, with their offsets.
    pub(crate) fn words(&self) -> impl Iterator<Item = (usize, &str)> {
        words(&self.code)
    }

    /// Returns the offsets at which `pattern` occurs in the code as whole words: `async` is not found in
    /// `asynchronous`.
    pub(crate) fn find(&self, pattern: &str) -> Vec<usize> {
        let ends_in_word = pattern.as_bytes().last().is_some_and(|&byte| is_word(byte));
        let goes_on = |end: usize| self.code.as_bytes().get(end).is_some_and(|&byte| is_word(byte));
        let mut found = self.find_start(pattern);
        found.retain(|&start| !(ends_in_word && goes_on(start + pattern.len())));
        found
    }

    /// Returns the same if the last word may continue: `from_` is found in `from_secs`, but not in `upfrom_secs`.
    pub(crate) fn find_start(&self, pattern: &str) -> Vec<usize> {
        let starts_in_word = pattern.as_bytes().first().is_some_and(|&byte| is_word(byte));
        let goes_back = |start: usize| start > 0 && is_word(self.code.as_bytes()[start - 1]);
        let found = self.code.match_indices(pattern).map(|(start, _)| start);
        found.filter(|&start| !(starts_in_word && goes_back(start))).collect()
    }

    /// Returns the functions that have a body.
    pub(crate) fn functions(&self) -> Vec<Function<'_>> {
        let mut functions = Vec::new();
        for offset in self.find("fn ") {
            let Some((_, name)) = words(&self.code[offset + 3..]).next() else { continue };
            if !self.code[offset + 3..].starts_with(name) {
                continue; // A pointer type: `fn (u8)`.
            }
            if let Some(end) = item_end(&self.code, offset)
                && self.code.as_bytes()[end - 1] == b'}'
            {
                functions.push(Function { name, offset, lines: self.line(end - 1) - self.line(offset) + 1 });
            }
        }
        functions
    }
}

fn is_word(byte: u8) -> bool {
    byte == b'_' || byte.is_ascii_alphanumeric()
}

fn words(code: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut rest = 0;
    std::iter::from_fn(move || {
        let start = rest + code[rest..].find(|c: char| c == '_' || c.is_ascii_alphanumeric())?;
        let length = code[start..].find(|c: char| c != '_' && !c.is_ascii_alphanumeric());
        rest = length.map_or(code.len(), |length| start + length);
        Some((start, &code[start..rest]))
    })
}

/// Returns the end of the item that begins at `start`: after its `;`, or after the closing `}` of its body.
fn item_end(code: &str, start: usize) -> Option<usize> {
    let (mut round, mut curly) = (0_usize, 0_usize);
    for (index, byte) in code.bytes().enumerate().skip(start) {
        match byte {
            b'(' | b'[' => round += 1,
            b')' | b']' => round = round.saturating_sub(1),
            b'{' => curly += 1,
            b'}' => {
                curly = curly.saturating_sub(1);
                if curly == 0 && round == 0 {
                    return Some(index + 1);
                }
            }
            b';' if round == 0 && curly == 0 => return Some(index + 1),
            _ => {}
        }
    }
    None
}

/// Returns the items under `#[cfg(test)]`, including the attribute.
fn test_items(code: &str) -> Vec<Range<usize>> {
    let mut items: Vec<Range<usize>> = Vec::new();
    for attribute in ["#[cfg(test)]", "#[cfg(all(test"] {
        for (start, _) in code.match_indices(attribute) {
            let within = items.iter().any(|item| item.contains(&start));
            let after = code[start..].find(']').map_or(code.len(), |length| start + length + 1);
            if let Some(end) = item_end(code, after)
                && !within
            {
                items.push(start..end);
            }
        }
    }
    items
}

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Code,
    Comment,
    Text,
}

/// Splits a file into its code and its comments.
fn split(text: &str) -> (String, String) {
    let mut rest = text;
    let (mut code, mut comments) = (String::new(), String::new());
    let mut after_word = false;
    while let Some(first) = rest.chars().next() {
        let (kind, length) = token(rest, after_word);
        let length = length.unwrap_or(first.len_utf8());
        let (part, next) = rest.split_at(length);
        let blank: String = part.bytes().map(|byte| if byte == b'\n' { '\n' } else { ' ' }).collect();
        code.push_str(if kind == Kind::Code { part } else { &blank });
        comments.push_str(if kind == Kind::Comment { part } else { &blank });
        after_word = part.bytes().last().is_some_and(is_word);
        rest = next;
    }
    (code, comments)
}

/// Returns the kind of the token at the beginning of `rest`, and its length in bytes if that is more than one
/// character.
fn token(rest: &str, after_word: bool) -> (Kind, Option<usize>) {
    if rest.starts_with("//") {
        return (Kind::Comment, Some(rest.find('\n').unwrap_or(rest.len())));
    }
    if rest.starts_with("/*") {
        return (Kind::Comment, Some(block_comment(rest)));
    }
    if let Some(length) = string(rest, after_word) {
        return (Kind::Text, Some(length));
    }
    if let Some(length) = character(rest) {
        return (Kind::Text, Some(length));
    }
    (Kind::Code, None)
}

fn block_comment(rest: &str) -> usize {
    let (mut depth, mut index) = (0_usize, 0);
    while index < rest.len() {
        let here = &rest.as_bytes()[index..];
        if here.starts_with(b"/*") {
            depth += 1;
            index += 2;
        } else if here.starts_with(b"*/") {
            depth -= 1;
            index += 2;
            if depth == 0 {
                return index;
            }
        } else {
            index += 1;
        }
    }
    rest.len()
}

/// Returns the length of a string literal of any kind, if one begins here.
fn string(rest: &str, after_word: bool) -> Option<usize> {
    let prefix =
        if after_word { 0 } else { rest.bytes().take_while(|byte| b"bcr".contains(byte)).count().min(2) };
    let (raw, after) = (rest[..prefix].ends_with('r'), &rest[prefix..]);
    let hashes = if raw { after.bytes().take_while(|&byte| byte == b'#').count() } else { 0 };
    let body = after[hashes..].strip_prefix('"')?;
    let start = prefix + hashes + 1;
    if raw {
        let close = format!("\"{}", "#".repeat(hashes));
        return Some(body.find(&close).map_or(rest.len(), |end| start + end + close.len()));
    }
    Some(quoted(body, b'"').map_or(rest.len(), |end| start + end))
}

/// Returns the length including the closing quote; a quote after a backslash does not close.
fn quoted(body: &str, quote: u8) -> Option<usize> {
    let mut escaped = false;
    for (index, byte) in body.bytes().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            _ if byte == quote => return Some(index + 1),
            _ => {}
        }
    }
    None
}

/// Returns the length of a character literal, if one begins here rather than a lifetime.
fn character(rest: &str) -> Option<usize> {
    let body = rest.strip_prefix('\'')?;
    if body.starts_with('\\') {
        return quoted(body, b'\'').map(|end| end + 1);
    }
    let length = body.chars().next()?.len_utf8();
    body[length..].starts_with('\'').then_some(length + 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = r##"//! Not async { code.
fn first<'a>(text: &'a str) -> bool { // a comment
    let quote = '"'; let brace = '{'; let escaped = '\'';
    text == "fn in_a_string() {" || text == r#"raw " { "# /* nested /* { */ */
}
type Pointer = fn(u8) -> u8;
fn declared(&self);
#[cfg(test)]
mod tests {
    fn second() {}
}
"##;

    #[test]
    fn code_is_told_from_comments_and_strings() {
        let rust = Rust::new(FILE);
        assert!(rust.find("async").is_empty());
        assert!(rust.comments.contains("Not async"));
        assert!(!rust.code.contains("in_a_string") && !rust.comments.contains("in_a_string"));
        assert_eq!(rust.code.matches('{').count(), rust.code.matches('}').count());
        assert_eq!(rust.code.lines().count(), FILE.lines().count());
    }

    #[test]
    fn functions_and_test_modules_are_found() {
        let rust = Rust::new(FILE);
        let found: Vec<_> = rust
            .functions()
            .iter()
            .map(|f| (f.name, rust.line(f.offset), f.lines, rust.is_test(f.offset)))
            .collect();
        assert_eq!(found, [("first", 2, 4, false), ("second", 10, 1, true)]);
        assert_eq!(rust.lines(), (6, 4));
    }
}
