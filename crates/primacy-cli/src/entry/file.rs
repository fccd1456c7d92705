//! The settings in a file.

use std::any::TypeId;
use std::ops::Range;
use std::path::Path;

use primacy::stores::ownership;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::layers::{Given, Key, Source};

/// Reads the settings of a file, and returns all errors in it, each with its position.
pub(super) fn read(path: &Path, keys: &[Key<'_>]) -> (Vec<(String, Given)>, Vec<String>) {
    match text(path) {
        Ok(text) => parse(path, &text, keys),
        Err(problem) => (Vec::new(), vec![problem]),
    }
}

/// Parses the text of the file, as [`read`] does.
pub(super) fn parse(path: &Path, text: &str, keys: &[Key<'_>]) -> (Vec<(String, Given)>, Vec<String>) {
    let file = File { path, text, keys };
    let (table, errors) = DeTable::parse_recoverable(text);
    let mut problems: Vec<String> = errors
        .iter()
        .map(|error| format!("{}: {}", file.place(&error.span().unwrap_or(0..0)), error.message()))
        .collect();
    let mut found = Vec::new();
    for (name, value) in table.get_ref() {
        // A file of settings cannot name another one.
        let Some(key) = keys.iter().find(|key| key.name == name.get_ref() && key.name != "config") else {
            problems.push(format!("{}: {}", file.place(&name.span()), file.unknown(name.get_ref())));
            continue;
        };
        match file.value(key, value) {
            Ok(text) => found.push((key.name.to_owned(), Given { text, source: file.source(&name.span()) })),
            Err(problem) => problems.push(format!("{}: {problem}", file.place(&value.span()))),
        }
    }
    (found, problems)
}

fn text(path: &Path) -> Result<String, String> {
    let shown = path.display();
    // A group that may write is the user's own on many systems.
    ownership::read_trusted(path, 0o002)
        .map_err(|error| format!("{shown}: {error}; --config names a TOML file that this user can read"))
}

/// The type of a key's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Text,
    Number,
    Truth,
}

impl Kind {
    pub(super) fn of(key: &Key<'_>) -> Self {
        let takes = key.arg.get_value_parser().type_id();
        if takes == TypeId::of::<bool>() {
            Self::Truth
        } else if takes == TypeId::of::<u32>() {
            Self::Number
        } else {
            Self::Text
        }
    }
}

struct File<'a> {
    path: &'a Path,
    text: &'a str,
    keys: &'a [Key<'a>],
}

impl File<'_> {
    fn value(&self, key: &Key<'_>, value: &Spanned<DeValue<'_>>) -> Result<String, String> {
        let name = key.name;
        let text = match (Kind::of(key), value.get_ref()) {
            (Kind::Text, DeValue::String(text)) => text.clone().into_owned(),
            (Kind::Text, DeValue::Table(entries)) if matches!(name, "peers" | "labels") => {
                joined(name, entries)?
            }
            (Kind::Number, DeValue::Integer(number)) => {
                let number = i128::from_str_radix(number.as_str(), number.radix());
                number.map_err(|error| format!("`{name}`: {error}"))?.to_string()
            }
            (Kind::Truth, DeValue::Boolean(truth)) => truth.to_string(),
            (kind, other) => {
                let wanted = match kind {
                    Kind::Text => format!("a string, as in {name} = \"…\""),
                    Kind::Number => format!("a whole number, as in {name} = 1"),
                    Kind::Truth => format!("true or false, as in {name} = true"),
                };
                return Err(format!("`{name}` takes {wanted}; this is of the type {}", other.type_str()));
            }
        };
        key.check(&text)?;
        Ok(text)
    }

    fn unknown(&self, name: &str) -> String {
        let known = || self.keys.iter().map(|key| key.name).filter(|&known| known != "config");
        let near =
            known().map(|known| (distance(name, known), known)).min().filter(|(distance, _)| *distance <= 2);
        match near {
            Some((_, near)) => format!("there is no setting `{name}`; did you mean `{near}`?"),
            None => {
                format!("there is no setting `{name}`; there are {}", known().collect::<Vec<_>>().join(", "))
            }
        }
    }

    /// Line and column of where a span starts, both from one.
    fn position(&self, span: &Range<usize>) -> (usize, usize) {
        let before = self.text.get(..span.start).unwrap_or(self.text);
        let line = before.rsplit('\n').next().unwrap_or_default();
        (before.matches('\n').count() + 1, line.chars().count() + 1)
    }

    fn place(&self, span: &Range<usize>) -> String {
        self.source(span).to_string()
    }

    fn source(&self, span: &Range<usize>) -> Source {
        let (line, column) = self.position(span);
        Source::File { path: self.path.to_owned(), line, column }
    }
}

/// Peers and labels may also be tables of their own.
fn joined(key: &str, entries: &DeTable<'_>) -> Result<String, String> {
    let entry = |(name, address): (&Spanned<_>, &Spanned<DeValue<'_>>)| {
        let name: &str = AsRef::<str>::as_ref(name.get_ref());
        if let Some(wrong) = name.chars().find(|c| matches!(c, ',' | '=')) {
            return Err(format!(
                "`{key}`: the name {name:?} has {wrong:?} in it, which separates names and entries; leave it out"
            ));
        }
        match address.get_ref().as_str() {
            Some(text) if text.contains(',') => {
                Err(format!("`{key}`: {name} has a comma in it, which separates the entries; leave it out"))
            }
            Some(text) => Ok(format!("{name}={text}")),
            None if key == "peers" => {
                Err(format!("`peers`: the address of {name} is a string, as in {name} = \"host:port\""))
            }
            None => Err(format!("`{key}`: {name} is a string, as in {name} = \"text\"")),
        }
    };
    let entries: Result<Vec<String>, String> = entries
        .iter()
        .map(|(name, address): (&Spanned<std::borrow::Cow<'_, str>>, _)| entry((name, address)))
        .collect();
    Ok(entries?.join(","))
}

/// Returns the number of letters that must be changed, added or taken away (Levenshtein).
fn distance(left: &str, right: &str) -> usize {
    let right: Vec<char> = right.chars().collect();
    let mut row: Vec<usize> = (0..=right.len()).collect();
    for (above, letter) in left.chars().enumerate() {
        let mut diagonal = above;
        row[0] = above + 1;
        for (column, &other) in right.iter().enumerate() {
            let changed = diagonal + usize::from(letter != other);
            diagonal = row[column + 1];
            row[column + 1] = changed.min(diagonal + 1).min(row[column] + 1);
        }
    }
    row[right.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn near_misses_are_near() {
        assert_eq!(distance("state_dir", "state-dir"), 1);
        assert_eq!(distance("elction", "election"), 1);
        assert_eq!(distance("lease", "lease"), 0);
        assert_eq!(distance("", "on"), 2);
    }
}
