//! A minimal TOML parser, sufficient for the manifests of this repository.

/// A `key = value` with its section.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) section: String,
    pub(crate) key: String,
    /// The value as written, with several lines joined.
    pub(crate) value: String,
    pub(crate) line: usize,
}

/// Returns all entries of a file, in order.
pub(crate) fn entries(text: &str) -> Vec<Entry> {
    let mut entries: Vec<Entry> = Vec::new();
    let mut section = String::new();
    let mut open = false; // Whether the last value goes on.
    for (index, line) in text.lines().enumerate() {
        let line = without_comment(line).trim();
        if open {
            let last = entries.last_mut().expect("a value goes on");
            last.value.push(' ');
            last.value.push_str(line);
            open = is_open(&last.value);
        } else if let Some(name) = line.strip_prefix('[') {
            name.trim_matches(['[', ']']).clone_into(&mut section);
        } else if let Some((key, value)) = line.split_once('=') {
            let (key, value) = (key.trim().to_owned(), value.trim().to_owned());
            open = is_open(&value);
            entries.push(Entry { section: section.clone(), key, value, line: index + 1 });
        }
    }
    entries
}

/// Returns the strings in a value, in order.
pub(crate) fn strings(value: &str) -> Vec<&str> {
    value.split('"').skip(1).step_by(2).collect()
}

fn without_comment(line: &str) -> &str {
    let comment = line.match_indices('#').find(|(at, _)| line[..*at].matches('"').count().is_multiple_of(2));
    comment.map_or(line, |(at, _)| &line[..at])
}

fn is_open(value: &str) -> bool {
    let count = |brackets: [char; 2]| value.matches(brackets).count();
    count(['[', '{']) > count([']', '}'])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sections_keys_and_long_values_are_read() {
        let found =
            entries("a = 1 # one\n[b.c]\nd = [\n  \"x#y\", # why\n  \"z\",\n]\n\ne.workspace = true\n");
        let found: Vec<_> =
            found.iter().map(|e| (e.section.as_str(), e.key.as_str(), e.value.as_str(), e.line)).collect();
        assert_eq!(found[0], ("", "a", "1", 1));
        assert_eq!((found[1].0, found[1].1, found[1].3), ("b.c", "d", 3));
        assert_eq!(strings(found[1].2), ["x#y", "z"]);
        assert_eq!(found[2], ("b.c", "e.workspace", "true", 8));
    }
}
