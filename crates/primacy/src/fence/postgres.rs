//! A fence for tables of a PostgreSQL database: the database itself refuses a write without a token, or with a stale
//! one, from any program and in any language.
//!
//! [`install`] installs the guard; [`script`] returns the same as SQL, for review. From then on, a transaction that writes to a guarded
//! table must present its token:
//!
//! ```sql
//! BEGIN;
//! SET LOCAL primacy.token = '1700000000001 orders';
//! -- write to the guarded tables
//! COMMIT;
//! ```
//!
//! Why this is safe:
//!
//! - Each statement that writes to a guarded table runs the guard first. The guard compares the token with the highest
//!   one that was presented to this database, and raises that.
//! - Transactions of one token share a lock until they end. A transaction with a higher token needs the lock
//!   exclusively: it waits for those in progress, and keeps lower tokens waiting until it commits, and they are
//!   refused, or rolls back.
//! - Only the owner of the fence may lock the rows of that lock. No other role can keep a leader out by it.
//! - No setting of a client is trusted: a token that was checked before is checked again.
//! - The guard runs with the rights of its owner, and qualifies each name with its schema: an object of a writer never
//!   replaces one of the system's.
//!
//! `docs/fencing.md` lists its gaps.

use primacy_core::fence::FencingToken;
use primacy_stores::OpenError;
use primacy_stores::postgres::{
    EVENT_TRIGGER_FIX, EVENT_TRIGGERS, MAY_BE_SUPERUSER, holders, is_trusted, others_in, reached,
};

use super::Answer;

/// The default schema of the fence.
pub const SCHEMA: &str = "public";

/// The SQLSTATE of a write without a token.
const NO_TOKEN: &str = "PRM01";

/// The SQLSTATE of a write with a stale token.
const STALE: &str = "PRM02";

/// The version of the fence that [`install`] creates. Earlier versions are unsafe or wrong, so install again. Version 1 lets every role
/// that may write to a guarded table act with the rights of the fence's owner; version 2 may let the owner of its schema do so; version 3
/// takes a setting of 19 digits for none.
pub const VERSION: u32 = 4;

/// The parts of the fence in the schema that the variable `schema` names: the shown name of each, its kind and its owner. Among them are
/// the parts that PostgreSQL may run for the tables, and the right to create functions in the schema: PostgreSQL prefers another
/// `primacy_token` if its parameters fit a call better.
const PARTS: &str = "SELECT pg_catalog.format('the schema %I', nspname) AS shown, 'schema' AS kind, nspowner AS owner
            FROM pg_catalog.pg_namespace WHERE oid OPERATOR(pg_catalog.=) pg_catalog.to_regnamespace(schema)::pg_catalog.oid
        UNION ALL SELECT part.shown, part.kind, part.owner FROM :reached AS part
        UNION ALL SELECT pg_catalog.format('the function %s', oid::pg_catalog.regprocedure), 'function', proowner
            FROM pg_catalog.pg_proc WHERE proname OPERATOR(pg_catalog.=) ANY (ARRAY[:functions])
            AND pronamespace OPERATOR(pg_catalog.=) pg_catalog.to_regnamespace(schema)::pg_catalog.oid
        UNION ALL SELECT pg_catalog.format('the right to make functions in the schema %I', nspname), 'right', granted.grantee
            FROM pg_catalog.pg_namespace, pg_catalog.aclexplode(nspacl) AS granted WHERE granted.privilege_type OPERATOR(pg_catalog.=) 'CREATE'
            AND pg_namespace.oid OPERATOR(pg_catalog.=) pg_catalog.to_regnamespace(schema)::pg_catalog.oid";

/// The tables of the fence.
const TABLES: &str = "ARRAY(SELECT oid FROM pg_catalog.pg_class WHERE relname OPERATOR(pg_catalog.=) ANY (ARRAY['primacy_fence', 'primacy_fence_hold'])
            AND relnamespace OPERATOR(pg_catalog.=) pg_catalog.to_regnamespace(schema)::pg_catalog.oid)";

/// The role that owns such a part.
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

/// PL/pgSQL statements that run the statement `locking`, which locks the table `guarded` as a trigger on it needs; if that fails, they
/// report the holder of the lock.
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
    /// The election whose tokens are compared.
    pub election: String,
    /// The tables, as they would be written in a statement: `ledger`, `app.ledger`, `"Ledger"`.
    pub tables: Vec<String>,
    /// The schema of the fence, usually [`SCHEMA`].
    pub schema: String,
    /// Roles that may present a token before they write.
    pub writers: Vec<String>,
}

/// Guards the tables, in one transaction, over a connection to the URL `postgres://…`. Installed parts stay, and a fence of an earlier
/// version is replaced: it may be called at every start. The role must own the tables, because the triggers must fire whatever a session's
/// settings are, and only an owner may set that.
///
/// The functions of the fence run with the rights of this role. So `install` refuses a schema, table or function of the fence that belongs
/// to another role, except a superuser. If the schema does not exist, it is created, and only the writers and the owner may use it.
///
/// Creating a table's guard needs a lock, and all later writes wait behind it. So each attempt waits at most two seconds for it, and
/// there are a few attempts. If nothing has to change, the lock is not requested.
///
/// # Errors
/// [`OpenError`]; then nothing was changed, unless the connection broke at the end. [`OpenError::Unavailable`] also if a table stays
/// locked: the error names the holder of the lock.
pub async fn install(url: &str, guard: &Guard) -> Result<(), OpenError> {
    primacy_stores::postgres::run(url, &script(guard)).await
}

/// The statements that [`install`] runs, as one transaction.
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

/// Replaces the placeholders that every part of a script has, and those in `more`.
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

/// The functions of a fence in `schema`, in the form that the catalog has: for each its name, whether it runs with its owner's
/// rights, its settings and its text.
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

/// The state of the fence that guards a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FenceState {
    /// It is equal to a fence that this version of Primacy installs.
    Current,
    /// It has another version, usually one before [`VERSION`].
    Version(u32),
    /// It has the right version, and its functions were changed.
    Altered,
    /// A part of it belongs to a role that this one has no reason to trust.
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

/// The outcome of test writes to a table. None of them is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attempt {
    /// The election whose tokens the guard compares; `None` if the table has no guard.
    pub election: Option<String>,
    /// The highest token that was presented, if this role may see it.
    pub highest: Option<FencingToken>,
    /// The state of the fence; `None` if the table has no guard.
    pub fence: Option<FenceState>,
    /// Tables that share rows with this one (partitions, and tables that inherit or are inherited from) and are not guarded by this fence
    /// under their own names.
    pub unguarded: Vec<String>,
    /// Schemas of the table and its fence, each with the roles that may use it and may not write to the table: if such a role waits
    /// for a lock, writes stop. Empty if there are none.
    pub others: String,
    /// The result of a write without a token.
    pub without: Answer,
    /// The result of a write with a token below the highest one; `None` if the table has no guard.
    pub stale: Option<Answer>,
}

/// Tries writes that a guard refuses, in a transaction that is rolled back, with statements that affect no row. `table` is written as in a
/// statement. The role must have the right to delete or update there. Nothing is tried on a table that runs code of an untrusted role: it
/// would run with this role's rights.
///
/// # Errors
/// [`OpenError`], also if there is no such table.
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

/// Makes the dollar quotes of a text unique, so that none of the values contains them and ends the quoted text early.
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

/// Replaces placeholders by values; the values themselves are not searched. If one name is a prefix of another, the longer
/// one must come first in `values`.
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

/// The statement with which a transaction presents its token: to be sent before the first write, and by a new leader
/// before anything else.
#[must_use]
pub fn show(election: &str, token: FencingToken) -> String {
    format!("SELECT primacy_token({}, {token})", quoted(election, '\''))
}

fn quoted(text: &str, quote: char) -> String {
    let doubled = format!("{quote}{}{quote}", text.replace(quote, &format!("{quote}{quote}")));
    // In an `E` string with doubled backslashes, a backslash is an ordinary letter, whatever
    // `standard_conforming_strings` is.
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
