//! `primacy fence`: refuses stale tokens in front of resources that cannot check them.

pub(crate) mod exec;
#[cfg(feature = "postgres")]
mod install;
mod nesting;
pub(crate) mod proxy;

use std::path::PathBuf;
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::time::Duration;

use clap::{Args, Parser, Subcommand};
use primacy::fence::{DurableFenceError, HeldFence};
use primacy::stores::ownership::Sharing;

use crate::exit::{Exit, Failure};

/// Refuse stale tokens in front of resources that cannot check them.
#[derive(Debug, Parser)]
pub(crate) struct Fence {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    Exec(exec::Exec),
    Proxy(Box<proxy::Proxy>),
    #[cfg(feature = "postgres")]
    Install(install::Install),
    #[cfg(feature = "postgres")]
    Print(install::Print),
}

/// Runs the verb.
pub(crate) fn fence(args: &Fence) -> Result<Exit, Failure> {
    match &args.verb {
        Verb::Exec(args) => exec::exec(args),
        Verb::Proxy(args) => proxy::proxy(args),
        #[cfg(feature = "postgres")]
        Verb::Install(args) => install::install(args),
        #[cfg(feature = "postgres")]
        Verb::Print(args) => install::print(args),
    }
}

/// Where the highest token is remembered.
#[derive(Debug, Args)]
struct State {
    /// The file that remembers the highest token; it is made where there is none. On a local file system, and as safe
    /// as what it protects: where it is lost, every token is admitted
    #[arg(long = "state", value_name = "FILE")]
    file: PathBuf,

    /// The file must be there: fail where it is lost
    #[arg(long)]
    existing: bool,

    /// A group whose members may use the file as well, each as a user of its own
    #[arg(long, value_name = "NAME")]
    group: Option<String>,

    /// The election that the tokens are of
    #[arg(long, value_name = "NAME", env = "PRIMACY_ELECTION")]
    election: String,
}

/// The longest wait for other processes that hold the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Patience {
    Forever,
    For(Duration),
    None,
}

impl State {
    /// Holds the fence for this process, as soon as no other process does. The wait for the file's lock is in the
    /// kernel.
    fn hold(&self, patience: Patience) -> Result<HeldFence, DurableFenceError> {
        let sharing = self.sharing()?;
        if self.existing {
            self.file.metadata().map_err(|error| self.lost(error))?;
        }
        let (file, election) = (self.file.clone(), self.election.clone());
        match patience {
            Patience::None => HeldFence::open_shared(&file, &election, sharing),
            Patience::Forever => HeldFence::wait_shared(&file, &election, sharing),
            Patience::For(time) => {
                let (sender, receiver) = sync_channel(1);
                // A thread that still waits after the timeout ends with the process, which is soon.
                let waiting = std::thread::Builder::new().name("fence".into());
                let waiting = waiting.spawn(move || {
                    let _ = sender.send(HeldFence::wait_shared(&file, &election, sharing));
                });
                waiting.map_err(|error| self.lost(error))?;
                match receiver.recv_timeout(time) {
                    Ok(held) => held,
                    Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {
                        Err(DurableFenceError::InUse { path: self.file.clone() })
                    }
                }
            }
        }
    }

    fn sharing(&self) -> Result<Sharing, DurableFenceError> {
        let Some(group) = &self.group else { return Ok(Sharing::default()) };
        Sharing::with_group(group).ok_or_else(|| DurableFenceError::Untrusted {
            path: self.file.clone(),
            why: format!("there is no group {group:?} in /etc/group; name another one, or give its number"),
        })
    }

    fn lost(&self, error: std::io::Error) -> DurableFenceError {
        DurableFenceError::Io { path: self.file.clone(), doing: "opened", error }
    }
}

/// Converts an error of the fence. `in_use` is the exit code for a fence that another process holds.
fn failure(error: &DurableFenceError, in_use: Exit) -> Failure {
    let exit = match error {
        DurableFenceError::Stale(_) => Exit::Stale,
        DurableFenceError::InUse { .. } => in_use,
        DurableFenceError::Election => Exit::Usage,
        DurableFenceError::Io { error, .. } => Exit::of_state(error),
        DurableFenceError::NotAFence { .. }
        | DurableFenceError::OtherElection { .. }
        | DurableFenceError::Untrusted { .. }
        | DurableFenceError::Replaced { .. } => Exit::State,
    };
    Failure::new(exit, error.to_string())
}
