//! `primacy doctor`: finds the operator's remaining errors by trials.

mod drill;
mod findings;
mod machine;
mod nodes;
mod resource;
mod store;

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::Parser;
use hyper::Method;
use primacy::config::{Timers, Venue, check_election};
use primacy::stores::Check;

use self::findings::Findings;
use self::resource::Resource;
use super::store::block_on;
use super::target;
use crate::duration;
use crate::entry::layers::Sources;
use crate::entry::location::{between_processes, resolve_url};
use crate::exit::{self, Exit, Failure};

/// The shortest meaningful measurement of this machine's pauses.
const WATCH_MIN: Duration = Duration::from_secs(1);

/// Find what is wrong with a store, this machine and the timers, before it costs an election.
///
/// It tries what it can: whether the store refuses an old version, how long
/// its answers take, and how long this machine keeps a process from running;
/// and it asks the store how it is kept: its members, replicas and settings.
/// Whatever cannot be learned is printed as unknown, and never as passed. It
/// writes only what it keeps under a name of its own, primacy/doctor.
///
/// With --election it asks the nodes of that election that run here, and names
/// those whose timers differ.
///
/// With --resource it tries a stale write against what the leader writes to:
///   a table    postgres://HOST/DATABASE#TABLE, sqlite:PATH#TABLE, env:NAME#TABLE
///              writes without a token and with a stale one, in a transaction
///              that is rolled back
///   a service  http://HOST/PATH, https://HOST/PATH
///              one request without a body, with Fencing-Token: 0. It is a GET,
///              which changes nothing, and so only a refusal of it tells
///              something; name a method that writes with --resource-method
///   an object  s3://BUCKET/KEY, gs://BUCKET/KEY, az://CONTAINER/KEY
///              writes that name an old version, and races of writes that name
///              the same one, to primacy.probe beside it; and one write of the
///              object as it is that names a version which it has not
///
/// With --drill it starts the command twice under `primacy run`, pauses the
/// leader's, whole, until its lease is over and the other one leads, wakes it,
/// and reports the outcome of its late work. The drill passes only if the
/// command ends as `primacy fence exec` does whose token is stale, with 76. A
/// --resource named beside it is tried while the next leader leads.
#[derive(Debug, Parser)]
#[command(name = "doctor", verbatim_doc_comment, after_help = exit::DOCTOR_HELP)]
pub(crate) struct Doctor {
    /// The store; env:NAME reads the URL from the environment. Without it, the nodes of --election that run here are asked
    #[arg(long, value_name = "URL", required_unless_present = "election", required_if_eq("drill", "true"))]
    store: Option<String>,

    /// The name of the election: for the drill [default: doctor], whose tokens the resource must want, and whose nodes
    /// are asked for their timers
    #[arg(long, value_name = "NAME")]
    election: Option<String>,

    /// The state directory of the nodes [env: PRIMACY_STATE_DIR] [default: $XDG_STATE_HOME/primacy or
    /// ~/.local/state/primacy]
    #[arg(long, value_name = "DIR", requires = "election")]
    state_dir: Option<PathBuf>,

    /// The lease that the nodes are started with
    #[arg(long, value_name = "TIME", value_parser = duration::parse, default_value = "10s")]
    lease: Duration,

    /// Time between two renewals of the leader [default: a sixth of the lease]
    #[arg(long, value_name = "TIME", value_parser = duration::parse)]
    renewal: Option<Duration>,

    /// Time that the work may take to end in order [default: a sixth of the lease]
    #[arg(long, value_name = "TIME", value_parser = duration::parse)]
    drain: Option<Duration>,

    /// Time for which this machine's pauses are watched
    #[arg(long, value_name = "TIME", value_parser = duration::parse, default_value = "60s")]
    watch: Duration,

    /// Resource that the leader writes to; may be repeated
    #[arg(long = "resource", value_name = "RESOURCE")]
    resources: Vec<String>,

    /// The method of the stale request to an HTTP service. One that writes must do no harm where it is let in
    #[arg(long, value_name = "METHOD", default_value = "GET")]
    resource_method: Method,

    /// Pause this command past its lease, and report the outcome of its late work
    #[arg(long, requires = "command")]
    drill: bool,

    /// Print JSON: an object with all checks
    #[arg(long)]
    json: bool,

    /// The command of the drill
    #[arg(last = true, value_name = "CMD", requires = "drill")]
    command: Vec<OsString>,
}

impl Doctor {
    /// Returns the timers of the nodes that run here, as they report them.
    fn timers_of_nodes(&self) -> Option<Result<Check, Failure>> {
        let election = self.election.as_deref()?;
        let dir = self.state_dir.clone().map_or_else(target::told_state_dir, Ok);
        Some(dir.and_then(|dir| nodes::timers(&dir, election)))
    }
}

/// The election of the drill, if none is given.
const ELECTION: &str = "doctor";

/// Runs the verb.
pub(crate) fn doctor(args: &Doctor) -> Result<Exit, Failure> {
    let usage = |message: String| Failure::new(Exit::Usage, message);
    let election = args.election.as_deref();
    check_election(election.unwrap_or(ELECTION)).map_err(|error| usage(error.to_string()))?;
    if args.lease.is_zero() || args.watch < WATCH_MIN {
        return Err(usage(format!(
            "--lease must be longer than nothing, and --watch at least {WATCH_MIN:?}"
        )));
    }
    let url = args.store.as_deref().map(|url| resolve_url("store", url, &Sources::default())).transpose()?;
    let derived = Timers::new(Venue::Store, Some(args.lease));
    let timers = Timers {
        renewal: args.renewal.unwrap_or(derived.renewal),
        drain: args.drain.unwrap_or(derived.drain),
        ..derived
    };
    let resources = args.resources.iter().map(|text| Resource::parse(text, &args.resource_method));
    let resources = resources.collect::<Result<Vec<Resource>, Failure>>()?;
    let mut findings = Findings::new(args.json);
    if let (true, Some(url)) = (args.drill, url.clone()) {
        let url = between_processes(url)?;
        let election = election.unwrap_or(ELECTION);
        for check in drill::drill(&url, election, args.lease, &args.command, &resources)? {
            findings.add(check)?;
        }
        return findings.end();
    }
    // The pauses of a machine show under load, so they are measured while the other checks run.
    let watching = machine::watch_pauses(args.watch)?;
    // Before the store's own checks: missing objects are created when the store is first used.
    if let Some(url) = &url {
        if let Some(round_trips) = block_on(async { Ok(store::try_out(url, &mut findings).await) })?? {
            findings.add(store::round_trips(&round_trips, &timers))?;
        }
        for check in store::examine(url) {
            findings.add(check)?;
        }
    }
    match args.timers_of_nodes() {
        Some(Ok(check)) => findings.add(check)?,
        // With a store, the nodes may run on other machines.
        Some(Err(failure)) if url.is_none() => return Err(failure),
        Some(Err(_)) | None => {}
    }
    for resource in &resources {
        findings.add(resource.try_out(election)?)?;
    }
    findings.add(machine::clock_source())?;
    findings.add(machine::suspends())?;
    findings.add(machine::timers(&timers))?;
    findings.tell(&format!("watching this machine for {:?}", args.watch));
    findings.add(machine::pauses(watching.worst(), &timers))?;
    findings.end()
}
