//! Parser of YAML, the format of kubeconfigs, to JSON values. JSON is a subset of YAML.
//!
//! A plain scalar is a text unless it is a boolean or null, so a name of digits stays as it is written; entries that are null are left out.
//! The depth is limited, and so is the total size of the values with those that aliases repeat.

use std::collections::BTreeMap;

use granit_parser::{Event, Options, Parser, ScalarStyle, StrInput};
use serde_json::{Map, Value};

/// The maximum size of the values of one text, in bytes, with those that aliases repeat.
const SIZE_MAX: usize = 16 << 20;

/// The size of a value without its text, in bytes.
const VALUE_SIZE: usize = 64;

/// The deepest nesting of values.
const DEPTH_MAX: usize = 64;

/// The field of a kubeconfig whose content is for programs, and keeps the types that YAML gives it.
const TYPED: &str = "extension";

/// Reads the documents of a text.
///
/// # Errors
/// The position and the fault, without any of the text, which may be a secret.
pub(super) fn documents(text: &str) -> Result<Vec<Value>, String> {
    let mut options = Options::default();
    options.set_emit_comments(false);
    let parser = Parser::new_from_str_with_options(text, options);
    let mut reader = Reader { parser, anchors: BTreeMap::new(), left: SIZE_MAX };
    let mut documents = Vec::new();
    loop {
        let event = reader.next()?;
        if matches!(event, Event::StreamEnd) {
            return Ok(documents);
        }
        if matches!(event, Event::DocumentStart(..)) {
            let first = reader.next()?;
            documents.push(reader.value(first, DEPTH_MAX, false)?);
            reader.anchors.clear();
        }
    }
}

struct Reader<'a> {
    parser: Parser<'a, StrInput<'a>>,
    /// The values that have an anchor, and the size of each.
    anchors: BTreeMap<usize, (Value, usize)>,
    left: usize,
}

impl<'a> Reader<'a> {
    fn next(&mut self) -> Result<Event<'a>, String> {
        match self.parser.next_event() {
            Some(Ok((event, _))) => Ok(event),
            Some(Err(error)) => {
                let place = error.marker();
                Err(format!("it is no YAML (line {}, column {})", place.line(), place.col() + 1))
            }
            None => Ok(Event::StreamEnd),
        }
    }

    /// Reads the value that begins with `event`.
    fn value(&mut self, event: Event<'a>, depth: usize, is_typed: bool) -> Result<Value, String> {
        let left = self.left;
        self.spend(VALUE_SIZE)?;
        let inner = depth.checked_sub(1).ok_or("it is nested too deeply")?;
        let (value, anchor) = if let Event::Scalar(text, style, anchor, tag) = event {
            self.spend(text.len())?;
            let is_plain = style == ScalarStyle::Plain && tag.is_none();
            (if is_plain { plain(&text, is_typed) } else { text.into_owned().into() }, anchor)
        } else if let Event::SequenceStart(_, anchor, _) = event {
            (self.sequence(inner, is_typed)?, anchor)
        } else if let Event::MappingStart(_, anchor, _) = event {
            (self.mapping(inner, is_typed)?, anchor)
        } else if let Event::Alias(anchor) = event {
            let (value, size) = self.anchors.get(&anchor).cloned().ok_or("an alias is within its anchor")?;
            self.spend(size)?;
            return Ok(value);
        } else {
            return Err("it ends too early".to_owned());
        };
        if anchor != 0 {
            self.anchors.insert(anchor, (value.clone(), left - self.left));
        }
        Ok(value)
    }

    fn sequence(&mut self, depth: usize, is_typed: bool) -> Result<Value, String> {
        let mut values = Vec::new();
        loop {
            let event = self.next()?;
            if matches!(event, Event::SequenceEnd) {
                return Ok(values.into());
            }
            values.push(self.value(event, depth, is_typed)?);
        }
    }

    fn mapping(&mut self, depth: usize, is_typed: bool) -> Result<Value, String> {
        let (mut entries, mut merged) = (Map::new(), Vec::new());
        loop {
            let event = self.next()?;
            if matches!(event, Event::MappingEnd) {
                break;
            }
            let Event::Scalar(key, ..) = event else { return Err("a key is no text".to_owned()) };
            let key = key.into_owned();
            self.spend(key.len())?;
            let event = self.next()?;
            match (key.as_str(), self.value(event, depth, is_typed || key == TYPED)?) {
                ("<<", Value::Object(others)) => merged.push(others),
                ("<<", Value::Array(list)) => {
                    merged.extend(list.iter().filter_map(Value::as_object).cloned());
                }
                (_, Value::Null) if !is_typed => {}
                (_, value) => {
                    if entries.insert(key, value).is_some() {
                        return Err("a key is there twice".to_owned());
                    }
                }
            }
        }
        for (key, value) in merged.into_iter().flatten() {
            entries.entry(key).or_insert(value);
        }
        Ok(entries.into())
    }

    fn spend(&mut self, size: usize) -> Result<(), String> {
        self.left = self.left.checked_sub(size).ok_or("it has too many values, or too long ones")?;
        Ok(())
    }
}

fn plain(text: &str, is_typed: bool) -> Value {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => Value::Null,
        "true" | "True" | "TRUE" => true.into(),
        "false" | "False" | "FALSE" => false.into(),
        text if is_typed => serde_json::from_str(text).map_or_else(|_| text.into(), Value::Number),
        text => text.into(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn yaml_is_read_as_kubeconfigs_are_written() {
        let text = "# ours\napiVersion: v1\nusers:\n- name: 'it''s'\n  user: {token: 007, on: true, env: null}\n- name: \"a\\tb\"\n\
                    text: |\n  one\n  two\nextension: {n: 7, s: '7', x: null}\n";
        let users = json!([{"name": "it's", "user": {"token": "007", "on": true}}, {"name": "a\tb"}]);
        let extension = json!({"n": 7, "s": "7", "x": null});
        let whole = json!({"apiVersion": "v1", "users": users, "text": "one\ntwo\n", "extension": extension});
        assert_eq!(documents(text), Ok(vec![whole]));
        assert_eq!(documents("{\"a\": [1, {\"b\": \"c\"}]}"), Ok(vec![json!({"a": ["1", {"b": "c"}]})]));
        assert_eq!(
            documents("a: &x {b: c}\nd: *x\ne: {<<: *x, f: g}"),
            Ok(vec![json!({"a": {"b": "c"}, "d": {"b": "c"}, "e": {"b": "c", "f": "g"}})])
        );
        assert_eq!(documents("---\na: b\n---\nc: d\n"), Ok(vec![json!({"a": "b"}), json!({"c": "d"})]));
        assert_eq!(documents(""), Ok(Vec::new()));
    }

    #[test]
    fn what_is_no_yaml_or_without_bound_is_refused_and_not_shown() {
        let deep = "[".repeat(10_000);
        let mut laughs = "a: &a [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
        for (before, next) in ('a'..'h').zip('b'..='h') {
            laughs.push_str(&format!("{next}: &{next} [{}]\n", vec![format!("*{before}"); 10].join(", ")));
        }
        let long = format!("a: &a {}\nb: [{}]", "x".repeat(1 << 20), vec!["*a"; 100].join(", "));
        for text in [
            "token: [s3cret",
            "token: \"s3cret",
            "{token: s3cret}}",
            "s3cret: a\ns3cret: b",
            "? [s3cret]\n: a",
            "a: *s3cret",
            "&a [s3cret, *a]",
            "token: {",
            "\u{0}s3cret",
            &deep,
            &laughs,
            &long,
        ] {
            let shown = text.chars().take(30).collect::<String>();
            let refused = documents(text).expect_err(&shown);
            assert!(!refused.contains("s3cret"), "{refused}");
        }
    }
}
