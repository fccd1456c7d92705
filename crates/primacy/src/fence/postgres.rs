//! A guard for tables of a PostgreSQL database: a write without a token, or with a stale one, fails inside the database
//! itself, from any program and in any language.
//!
//! [`install`] puts it there; [`script`] is the same as SQL, for those who look at it first. From then on, whoever writes
//! to a guarded table must show its token in the same transaction:
//!
//! ```sql
//! BEGIN;
//! SET LOCAL primacy.token = '1700000000001 orders';
//! -- write to the guarded tables
//! COMMIT;
//! ```
//!
//! Why it holds:
//!
//! - Each statement that writes to a guarded table runs the guard first. It compares the token with the highest one that
//!   was shown to this database, and raises that.
//! - Transactions of one token share a lock until they end. One with a higher token needs it alone: it waits for those
//!   under way, and keeps lower ones waiting until it has committed, which refuses them, or has not.
//! - Nothing that a client can set is believed: what was checked before is checked again.
//!
//! What gets around it is listed in `docs/fencing.md`.

use primacy_core::fence::FencingToken;
use primacy_stores::OpenError;

/// The schema that the fence is put into unless another one is named.
pub const SCHEMA: &str = "public";

/// What is to be guarded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Guard {
    /// The election whose tokens count.
    pub election: String,
    /// The tables, as they would be written in a statement: `ledger`, `app.ledger`, `"Ledger"`.
    pub tables: Vec<String>,
    /// The schema in which the fence is kept; [`SCHEMA`] as a rule.
    pub schema: String,
    /// Roles that may show a token before they write.
    pub writers: Vec<String>,
}

/// Guards the tables, in one transaction, over a connection that the URL `postgres://…` names. What is there already stays: it
/// may be called at every start. The role must own the tables, or have the right `TRIGGER` on them and own nothing else.
///
/// # Errors
/// [`OpenError`]; nothing was changed then, unless the connection broke at the end.
pub async fn install(url: &str, guard: &Guard) -> Result<(), OpenError> {
    primacy_stores::postgres::run(url, &script(guard)).await
}

/// The statements that [`install`] runs, a transaction of its own.
#[must_use]
pub fn script(guard: &Guard) -> String {
    let schema = quoted(&guard.schema, '"');
    let (schema_text, election) = (quoted(&schema, '\''), quoted(&guard.election, '\''));
    let fill = |text: &str, (name, value): (&str, &str)| {
        filled(
            text,
            &[(":schema_text", &schema_text), (":schema", &schema), (":election", &election), (name, value)],
        )
    };
    let none = (":none", "");
    let mut script = fill(include_str!("postgres/fence.sql"), none);
    script += &fill(include_str!("postgres/election.sql"), none);
    for writer in &guard.writers {
        script += &fill(include_str!("postgres/writer.sql"), (":writer", &quoted(writer, '"')));
    }
    for table in &guard.tables {
        // What stands between two of these must not hold a third one.
        let mut tag = "$primacy$".to_owned();
        while guard.election.contains(&tag) || guard.schema.contains(&tag) || table.contains(&tag) {
            tag.insert(1, '_');
        }
        let text = include_str!("postgres/table.sql").replace("$primacy$", &tag);
        script += &fill(&text, (":table", &quoted(table, '\'')));
    }
    script += "COMMIT;\n";
    script
}

/// Puts values in the places of their names, and looks at no value a second time. Of two names with one beginning, the longer
/// one comes first.
fn filled(text: &str, values: &[(&str, &str)]) -> String {
    let (mut filled, mut rest) = (String::new(), text);
    while let Some(at) = rest.find(':') {
        filled += &rest[..at];
        rest = &rest[at..];
        match values.iter().find(|(name, _)| rest.starts_with(name)) {
            Some((name, value)) => {
                filled += value;
                rest = &rest[name.len()..];
            }
            None => {
                filled.push(':');
                rest = &rest[1..];
            }
        }
    }
    filled + rest
}

/// The statement with which a transaction shows its token: to be sent before the first write, and by a new leader before
/// anything else.
#[must_use]
pub fn show(election: &str, token: FencingToken) -> String {
    format!("SELECT primacy_token({}, {token})", quoted(election, '\''))
}

fn quoted(text: &str, quote: char) -> String {
    let doubled = format!("{quote}{}{quote}", text.replace(quote, &format!("{quote}{quote}")));
    // A backslash is an ordinary letter in every string that is written so, whatever `standard_conforming_strings` says.
    if quote == '\'' && text.contains('\\') { format!("E{}", doubled.replace('\\', "\\\\")) } else { doubled }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_quoted_in_the_script() {
        let guard = Guard {
            election: "it's \\ :table $primacy$ one".to_owned(),
            tables: vec!["app.\"Ledger\"".to_owned()],
            schema: "a\"b".to_owned(),
            writers: vec!["w".to_owned()],
        };
        let script = script(&guard);
        assert!(script.contains("VALUES (E'it''s \\\\ :table $primacy$ one', 0)"), "{script}");
        assert!(script.contains("'app.\"Ledger\"'::regclass") && script.contains("TO \"w\";"), "{script}");
        assert!(script.contains("\"a\"\"b\".primacy_fence") && !script.contains(":schema"), "{script}");
        assert!(script.contains("DO $_primacy$"), "{script}");
        assert!(script.starts_with("--") && script.ends_with("COMMIT;\n"));
        assert_eq!(show("orders", FencingToken(7)), "SELECT primacy_token('orders', 7)");
    }
}
