//! `primacy init`: the first record of an election over a store.

use std::time::Duration;

use clap::Parser;
use primacy::config::check_election;
use primacy::{Init as Outcome, InitError};
use serde::Serialize;

use super::store::{answered, block_on};
use super::target::tell;
use crate::control::Record;
use crate::duration;
use crate::entry::layers::Sources;
use crate::entry::location::{between_processes, resolve_url};
use crate::exit::{self, Exit, Failure};

/// Make the first record of an election in a store, so that its first leader has nothing to wait for.
///
/// Without it the first leader waits a whole lease, for the node cannot tell
/// whether a record was deleted a moment ago. So use it only if you know
/// that no node leads. A record that is there already is left as it is, and
/// the exit code is 0 all the same.
#[derive(Debug, Parser)]
#[command(name = "init", verbatim_doc_comment, after_help = exit::VERBS_HELP)]
pub(crate) struct Init {
    /// The name of the election
    #[arg(long, value_name = "NAME")]
    election: String,

    /// The store; env:NAME reads the URL from the environment
    #[arg(long, value_name = "URL")]
    store: String,

    /// The lease that the nodes are started with
    #[arg(long, value_name = "TIME", value_parser = duration::parse, default_value = "10s")]
    lease: Duration,

    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Runs the verb.
pub(crate) fn init(args: &Init) -> Result<Exit, Failure> {
    #[derive(Serialize)]
    struct InitReport<'a> {
        election: &'a str,
        made: bool,
        token: u64,
        /// The record, if there was one already.
        record: Option<Record>,
    }
    check_election(&args.election).map_err(|error| Failure::new(Exit::Usage, error.to_string()))?;
    if args.lease.is_zero() {
        return Err(Failure::new(
            Exit::Usage,
            "--lease is zero: name the lease that the nodes are started with",
        ));
    }
    let url = between_processes(resolve_url("store", &args.store, &Sources::default())?)?;
    let outcome = block_on(async { Ok(answered(primacy::init(&url, &args.election, args.lease)).await??) })?;
    let election = args.election.as_str();
    let report = match &outcome {
        Outcome::NotNeeded => return no_record(args),
        Outcome::Made { token } => InitReport { election, made: true, token: token.0, record: None },
        Outcome::Exists { record } => InitReport {
            election,
            made: false,
            token: record.token.0,
            record: Some(Record::new(record, None)),
        },
    };
    tell(args.json, &report, || match &report.record {
        None => format!("{election}: the record is made; the first leader's token is above {}", report.token),
        Some(record) => {
            let holder = record.holder.as_deref().map_or("nobody", |holder| holder);
            format!(
                "{election}: there is a record already, held by {holder}, with the token {}; it is left as it is",
                report.token
            )
        }
    })?;
    Ok(Exit::Success)
}

/// Reports that a store that keeps sessions needs no record.
fn no_record(args: &Init) -> Result<Exit, Failure> {
    #[derive(Serialize)]
    struct InitReport<'a> {
        election: &'a str,
        made: bool,
        needed: bool,
    }
    let election = args.election.as_str();
    tell(args.json, &InitReport { election, made: false, needed: false }, || {
        format!(
            "{election}: this store keeps sessions and needs no record; there is nothing to wait for, and nothing was written"
        )
    })?;
    Ok(Exit::Success)
}

impl From<InitError> for Failure {
    fn from(error: InitError) -> Self {
        match error {
            InitError::Open(error) => error.into(),
            InitError::Read(error) => error.into(),
            error @ (InitError::NotWritten { .. } | InitError::Unknown { .. }) => {
                Self::new(Exit::Unavailable, error.to_string())
            }
        }
    }
}
