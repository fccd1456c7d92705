//! `primacy fence install` and `primacy fence print`: guards in one of the user's databases.

use clap::{Args, Parser, ValueEnum};
use primacy::config::check_election;
use primacy::fence::postgres::{self, Guard, SCHEMA};
use primacy::stores::OpenError;

use crate::entry::layers::Sources;
use crate::entry::location::resolve_url;
use crate::exit::{self, Exit, Failure};
use crate::stdout;

/// Guard tables of a PostgreSQL database: a write without the token of the
/// leader, or with a stale one, fails there
///
/// It may be run again at any time, and changes nothing then.
#[derive(Debug, Parser)]
#[command(verbatim_doc_comment, after_help = exit::FENCE_INSTALL_HELP)]
pub(crate) struct Install {
    /// The database, postgres://USER@HOST/DATABASE; env:NAME reads the URL from the environment. The user must own the
    /// tables
    #[arg(long, value_name = "URL")]
    store: String,

    #[command(flatten)]
    what: GuardArgs,
}

/// Print what `install` would run
#[derive(Debug, Parser)]
#[command(after_help = exit::FENCE_PRINT_HELP)]
pub(crate) struct Print {
    /// The kind of database
    #[arg(long, value_enum, default_value = "postgres")]
    kind: Kind,

    #[command(flatten)]
    what: GuardArgs,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Kind {
    Postgres,
}

#[derive(Debug, Args)]
struct GuardArgs {
    /// The election whose tokens count
    #[arg(long, value_name = "NAME", env = "PRIMACY_ELECTION")]
    election: String,

    /// A table to guard, as it is written in a statement; may be repeated
    #[arg(long = "table", value_name = "TABLE", required = true)]
    tables: Vec<String>,

    /// The schema in which the fence is kept
    #[arg(long, value_name = "NAME", default_value = SCHEMA)]
    schema: String,

    /// A role that may call primacy_token(); may be repeated
    #[arg(long = "writer", value_name = "ROLE")]
    writers: Vec<String>,
}

impl GuardArgs {
    fn guard(&self) -> Result<Guard, Failure> {
        check_election(&self.election).map_err(|error| Failure::new(Exit::Usage, error.to_string()))?;
        Ok(Guard {
            election: self.election.clone(),
            tables: self.tables.clone(),
            schema: self.schema.clone(),
            writers: self.writers.clone(),
        })
    }
}

/// Runs the verb.
pub(super) fn install(args: &Install) -> Result<Exit, Failure> {
    let guard = args.what.guard()?;
    let url = resolve_url("store", &args.store, &Sources::default())?;
    if !url.starts_with("postgres:") {
        let why = "fences are installed in postgres://HOST/DATABASE; other resources have their own ways, see docs/fencing.md";
        return Err(Failure::new(Exit::Usage, why.to_owned()));
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(postgres::install(&url, &guard)).map_err(|error| failure(&error))?;
    stdout::write(&format!("{} guarded by the election {}\n", guard.tables.join(", "), guard.election))?;
    Ok(Exit::Success)
}

/// Runs the verb.
pub(super) fn print(args: &Print) -> Result<Exit, Failure> {
    let script = match args.kind {
        Kind::Postgres => postgres::script(&args.what.guard()?),
    };
    stdout::write(&script)?;
    Ok(Exit::Success)
}

fn failure(error: &OpenError) -> Failure {
    let exit = match error {
        OpenError::Unavailable { .. } | OpenError::Shortage { .. } => Exit::Unavailable,
        OpenError::Refused { .. } => Exit::Failed,
        OpenError::Malformed { .. }
        | OpenError::UnknownScheme { .. }
        | OpenError::NotBuiltIn { .. }
        | OpenError::KeepsSessions { .. }
        | OpenError::Election { .. } => Exit::Usage,
    };
    Failure::new(exit, error.to_string())
}
