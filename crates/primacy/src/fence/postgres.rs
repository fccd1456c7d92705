//! A guard for tables of a PostgreSQL database: a write without a token, or with a stale one, fails inside the database
//! itself, from any program and in any language.
//!
//! [`install`] puts it there; [`script`] is the same as SQL, for review. From then on, a transaction that writes to a guarded table must
//! show its token:
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
//! - That lock is on rows which only the owner of the fence may lock. No other role can keep a leader out by it.
//! - Nothing that a client can set is believed: what was checked before is checked again.
//! - The guard runs with the rights of its owner, and each name in it names its schema: no object of a writer is taken for one
//!   of the system's.
//!
//! `docs/fencing.md` lists what gets around it.

use primacy_core::fence::FencingToken;
use primacy_stores::OpenError;
use primacy_stores::postgres::{
    EVENT_TRIGGER_FIX, EVENT_TRIGGERS, MAY_BE_SUPERUSER, holders, is_trusted, others_in, reached,
};

use super::Answer;

/// The schema that the fence is put into unless another one is named.
pub const SCHEMA: &str = "public";

/// The SQLSTATE of a write without a token.
const NO_TOKEN: &str = "PRM01";

/// The SQLSTATE of a write with a stale token.
const STALE: &str = "PRM02";

/// The version of the fence that [`install`] makes. A fence of version 1 lets every role that may write to a guarded table act
/// with the rights of the fence's owner, and one of version 2 may let the owner of its schema do so. One of version 3 takes a setting of 19 digits for none. Install again.
pub const VERSION: u32 = 4;

/// The parts of the fence in the schema that the variable `schema` names: the shown name of each, its kind and its owner. What PostgreSQL
/// may
/// run for the tables belongs to them, and so does the right to make functions there: PostgreSQL calls another `primacy_token` where its
/// parameters fit a call better.
const PARTS: &str = "SELECT pg_catalog.format('the schema %I', nspname) AS shown, 'schema' AS kind, nspowner AS owner
            FROM pg_catalog.pg_namespace WHERE oid OPERATOR(pg_catalog.=) pg_catalog.to_regnamespace(schema)::pg_catalog.oid
        UNION ALL SELECT part.shown, part.kind, part.owner FROM :reached AS part
        UNION ALL SELECT pg_catalog.format('the function %s', oid::pg_catalog.regprocedure), 'function', proowner
            FROM pg_catalog.pg_proc WHERE proname OPERATOR(pg_catalog.=) ANY (ARRAY[:functions])
            AND pronamespace OPERATOR(pg_catalog.=) pg_catalog.to_regnamespace(schema)::pg_catalog.oid
        UNION ALL SELECT pg_catalog.format('the right to make functions in the schema %I', nspname), 'right', granted.grantee
            FROM pg_catalog.pg_namespace, pg_catalog.aclexplode(nspacl) AS granted WHERE granted.privilege_type OPERATOR(pg_catalog.=) 'CREATE'
            AND pg_namespace.oid OPERATOR(pg_catalog.=) pg_catalog.to_regnamespace(schema)::pg_catalog.oid";

/// The relations that have the names of its tables.
const TABLES: &str = "ARRAY(SELECT oid FROM pg_catalog.pg_class WHERE relname OPERATOR(pg_catalog.=) ANY (ARRAY['primacy_fence', 'primacy_fence_hold'])
            AND relnamespace OPERATOR(pg_catalog.=) pg_catalog.to_regnamespace(schema)::pg_catalog.oid)";

/// The role that such a part belongs to.
const ROLE: &str = "CASE WHEN made.owner OPERATOR(pg_catalog.=) 0 THEN 'PUBLIC' ELSE pg_catalog.pg_get_userbyid(made.owner) END";

/// The condition that such a part belongs to the role `acts_as`, with whose rights the fence acts, or to a superuser. No other role may be
/// able to replace it.
const OWNED: &str = "EXISTS (SELECT FROM pg_catalog.pg_roles WHERE (rolsuper OR rolname OPERATOR(pg_catalog.=) acts_as) \
    AND oid OPERATOR(pg_catalog.=) CASE WHEN pg_catalog.pg_get_userbyid(made.owner) OPERATOR(pg_catalog.=) 'pg_database_owner' \
    THEN (SELECT datdba FROM pg_catalog.pg_database WHERE datname OPERATOR(pg_catalog.=) pg_catalog.current_database()) \
    ELSE made.owner END)";

/// The functions of a fence.
const FUNCTIONS: [&str; 5] =
    ["primacy_admit", "primacy_fence_keeps", "primacy_fence_raised", "primacy_guard", "primacy_token"];

/// Statements of PL/pgSQL that run the statement `locking`, which locks the table `guarded` as a trigger on it needs, or report the holder
/// of that lock.
const LOCKING: &str = "BEGIN
                EXECUTE locking;
            EXCEPTION WHEN lock_not_available THEN
                RAISE EXCEPTION USING ERRCODE = '55P03',
                    MESSAGE = pg_catalog.format('primacy: the table %s has to be locked for a moment, and is in use by %s; nothing was changed',
                        guarded, coalesce(:holders, 'a session that has ended meanwhile')),
                    HINT = 'Install again when these transactions have ended, or end a session that hangs: SELECT pg_terminate_backend(PROCESS).';
            END;";

/// The tables to guard.
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

/// Guards the tables, in one transaction, over a connection that the URL `postgres://…` names. Installed parts stay, and a fence of an
/// earlier version is replaced: it may be called at every start. The role must own the tables: the triggers are to fire whatever a session
/// asks for, and only an owner may set that.
///
/// The functions of the fence run with the rights of this role. So `install` refuses a schema, table or function of the fence that belongs
/// to another role than this one or a superuser. A schema that is not there is made, and only the writers and the owner may use it.
///
/// A table gets its guard under a lock, for which it waits two seconds and no longer, since all later writes wait behind it; it tries so
/// some times. Where nothing has to be changed, no such lock is asked for.
///
/// # Errors
/// [`OpenError`]; nothing was changed then, unless the connection broke at the end. [`OpenError::Unavailable`] also where a table stays
/// locked: it names the holder of the lock.
pub async fn install(url: &str, guard: &Guard) -> Result<(), OpenError> {
    primacy_stores::postgres::run(url, &script(guard)).await
}

/// The statements that [`install`] runs, a transaction of its own.
#[must_use]
pub fn script(guard: &Guard) -> String {
    let election = quoted(&guard.election, '\'');
    let fill =
        |text: &str, more: (&str, &str)| filled_for(&guard.schema, text, &[(":election", &election), more]);
    let none = (":none", "");
    let mut script = fill(include_str!("postgres/fence.sql"), none);
    script += &fill(include_str!("postgres/owner.sql"), none);
    script += &fill(include_str!("postgres/election.sql"), none);
    for writer in &guard.writers {
        script += &fill(include_str!("postgres/writer.sql"), (":writer", &quoted(writer, '"')));
    }
    for table in &guard.tables {
        let text = tagged(include_str!("postgres/table.sql"), &[&guard.election, &guard.schema, table]);
        script += &fill(&text, (":table", &quoted(table, '\'')));
    }
    script += "COMMIT;\n";
    script
}

/// Puts what each part of a script needs in the places of its names, and `more`.
fn filled_for(schema: &str, text: &str, more: &[(&str, &str)]) -> String {
    let text = &tagged(text, &[schema]);
    let schema = quoted(schema, '"');
    let (schema_text, version) = (quoted(&schema, '\''), VERSION.to_string());
    let (trusted, functions) =
        (is_trusted("made.owner"), FUNCTIONS.map(|name| quoted(name, '\'')).join(", "));
    let parts = PARTS.replace(":functions", &functions).replace(":reached", &reached(TABLES));
    let on_table = reached("ARRAY[tried::pg_catalog.oid]");
    let locking = LOCKING.replace(":holders", &holders("guarded::pg_catalog.oid"));
    let others = others_in(
        "ARRAY[pg_catalog.to_regnamespace(schema)::pg_catalog.oid, (SELECT relnamespace FROM pg_catalog.pg_class \
         WHERE pg_class.oid OPERATOR(pg_catalog.=) tried::pg_catalog.oid)]",
        "tried::pg_catalog.oid",
    );
    let common = [
        (":locking", locking.as_str()),
        (":others", &others),
        (":parts", parts.as_str()),
        (":on_table", on_table.as_str()),
        (":event_triggers", EVENT_TRIGGERS),
        (":event_trigger_fix", EVENT_TRIGGER_FIX),
        (":may_be_superuser", MAY_BE_SUPERUSER),
        (":owned", OWNED),
        (":role", ROLE),
        (":schema_text", schema_text.as_str()),
        (":schema", &schema),
        (":version", &version),
        (":trusted", &trusted),
        (":functions", &functions),
    ];
    filled(text, &[&common, more].concat())
}

/// The functions of a fence in `schema`, as the catalog shows them: for each its name, whether it runs with its owner's rights, its
/// settings and its text.
fn definition(schema: &str) -> String {
    let (script, tag) = (filled_for(schema, include_str!("postgres/fence.sql"), &[]), tag(&[schema]));
    let prefix = format!("CREATE OR REPLACE FUNCTION {}.", quoted(schema, '"'));
    let mut functions: Vec<String> = script
        .split(prefix.as_str())
        .skip(1)
        .filter_map(|text| {
            let (head, rest) = text.split_once(&tag)?;
            let (name, body) = (head.split('(').next()?, rest.split(&tag).next()?);
            let is_definer = if head.contains("SECURITY DEFINER") { "t" } else { "f" };
            Some(format!("{name} {is_definer} {{\"search_path=pg_catalog, pg_temp\"}}\n{body}"))
        })
        .collect();
    functions.sort();
    functions.join("\n")
}

/// The state of a fence whose guard a table has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FenceState {
    /// It is as this version of Primacy makes it.
    Current,
    /// It is of another version, earlier than [`VERSION`] as a rule.
    Version(u32),
    /// It has the version that it should have, and its functions are others.
    Altered,
    /// A part of it belongs to a role that this one need not trust.
    Foreign {
        /// The part, and the role.
        why: String,
    },
}

impl FenceState {
    fn of(foreign: &str, schema: &str, found: &str) -> Self {
        const MARK: &str = "primacy fence version ";
        if !foreign.is_empty() {
            return Self::Foreign { why: foreign.to_owned() };
        }
        let digits = |text: &str| text.chars().take_while(char::is_ascii_digit).collect::<String>();
        let version = found.split_once(MARK).and_then(|(_, rest)| digits(rest).parse().ok()).unwrap_or(1);
        if version != VERSION {
            Self::Version(version)
        } else if found == definition(schema) {
            Self::Current
        } else {
            Self::Altered
        }
    }
}

/// The outcome of writes to a table that a guard refuses. None of them was kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attempt {
    /// The election whose tokens the guard compares; `None` where the table has no guard.
    pub election: Option<String>,
    /// The highest token that was shown there, where that may be seen.
    pub highest: Option<FencingToken>,
    /// The state of the fence; `None` where the table has no guard.
    pub fence: Option<FenceState>,
    /// Tables that have rows in common with this one, partitions and tables that inherit or are inherited from, by whose names this fence
    /// does not guard them.
    pub unguarded: Vec<String>,
    /// Schemas, of the table and its fence, each with roles that may use it and not write to the table: a lock which such a role waits
    /// for stops writes. Empty if there are none.
    pub others: String,
    /// The answer to a write without a token.
    pub without: Answer,
    /// The answer to a write with a token below the highest one; `None` where the table has no guard.
    pub stale: Option<Answer>,
}

/// Tries writes that a guard refuses, in a transaction that is rolled back, and with statements that affect no row. `table` is written as
/// in a statement. The role must have the right to delete or update there. Nothing is tried on a table that runs code of a role which this
/// one need not trust: it would run with this role's rights.
///
/// # Errors
/// [`OpenError`], also where there is no such table.
pub async fn attempt(url: &str, table: &str) -> Result<Attempt, OpenError> {
    let text = tagged(include_str!("postgres/attempt.sql"), &[table]);
    let script = filled_for(SCHEMA, &text, &[(":table", &quoted(table, '\''))]);
    let rows = primacy_stores::postgres::ask(url, &script).await?;
    let last = rows.last().map(Vec::as_slice).unwrap_or_default();
    let [
        Some(election),
        Some(highest),
        Some(without),
        Some(foreign),
        Some(schema),
        Some(found),
        Some(unguarded),
        Some(others),
        stale,
    ] = last
    else {
        return Err(OpenError::Unavailable { why: "what it answers is not what PostgreSQL does".to_owned() });
    };
    let election = Some(election.clone()).filter(|election| !election.is_empty());
    Ok(Attempt {
        fence: election.as_ref().map(|_| FenceState::of(foreign, schema, found)),
        stale: election.as_ref().map(|_| answer(stale.as_deref().unwrap_or_default())),
        election,
        highest: highest.parse().ok().map(FencingToken),
        unguarded: unguarded.lines().map(str::to_owned).collect(),
        others: others.clone(),
        without: answer(without),
    })
}

fn answer(text: &str) -> Answer {
    match text.split(' ').next() {
        Some("admitted") => Answer::Admitted,
        Some(NO_TOKEN | STALE) => Answer::Refused,
        Some("untried") => {
            Answer::Failed { why: format!("no write was tried: {}", text.trim_start_matches("untried ")) }
        }
        Some("denied") => Answer::Failed { why: "this user may neither delete nor update there".to_owned() },
        Some(_) | None => Answer::Failed { why: text.to_owned() },
    }
}

/// The text with dollar quotes that none of the values contains: the text between two of these must not contain a third one.
fn tagged(text: &str, values: &[&str]) -> String {
    text.replace("$primacy$", &tag(values))
}

fn tag(values: &[&str]) -> String {
    let mut tag = "$primacy$".to_owned();
    while values.iter().any(|value| value.contains(&tag)) {
        tag.insert(1, '_');
    }
    tag
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
        assert!(script.contains("SELECT E'it''s \\\\ :table $primacy$ one', 0\n"), "{script}");
        assert!(
            script.contains("'app.\"Ledger\"'::pg_catalog.regclass") && script.contains("TO \"w\";"),
            "{script}"
        );
        assert!(script.contains("\"a\"\"b\".primacy_fence") && !script.contains(":schema"), "{script}");
        assert!(script.contains("DO $_primacy$"), "{script}");
        assert!(script.starts_with("--") && script.ends_with("COMMIT;\n"));
        for schema in ["a\"b", "sch%s\"q$primacy$"] {
            let functions = definition(schema);
            assert!(FUNCTIONS.iter().all(|name| functions.contains(&format!("{name} "))), "{functions}");
            assert!(!schema.contains('$') || functions.contains("$primacy$"), "{functions}");
        }
        assert_eq!(show("orders", FencingToken(7)), "SELECT primacy_token('orders', 7)");
    }
}
