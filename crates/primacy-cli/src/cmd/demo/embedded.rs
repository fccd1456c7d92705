//! The library inside an application, without a guardian. Nothing ends the process when it is paused past its lease,
//! and its late write is still refused.

use std::path::PathBuf;
use std::time::Duration;

use clap::Parser;
use primacy::{Elector, clock};

use super::job::{DemoJobReport, tell};
use super::ledger::{Ledger, Write};
use crate::duration;
use crate::exit::{Exit, Failure};

/// The application of `primacy demo` that holds its election itself
#[derive(Debug, Parser)]
pub(crate) struct DemoEmbedded {
    /// The election, and the name of the ledger's fence
    #[arg(long)]
    election: String,

    /// The store to hold the election in
    #[arg(long)]
    store: String,

    /// The lease
    #[arg(long, value_parser = duration::parse)]
    lease: Duration,

    /// The ledger to write to
    #[arg(long)]
    ledger: PathBuf,
}

/// Runs the verb.
pub(crate) fn demo_embedded(args: &DemoEmbedded) -> Result<Exit, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(lead(args))
}

async fn lead(args: &DemoEmbedded) -> Result<Exit, Failure> {
    let failed = |error: &dyn std::fmt::Display| Failure::new(Exit::Failed, error.to_string());
    let elector = Elector::builder().election(&args.election).lease(args.lease).connect(&args.store).await;
    let elector = elector.map_err(|error| failed(&error))?;
    let leadership = elector.campaign().await.map_err(|error| failed(&error))?;
    let token = leadership.token();
    let mut ledger = Ledger::open(&args.ledger, &args.election).map_err(|error| failed(&error))?;
    let mut first = true;
    loop {
        // A careful application calls `leadership.check()` here. But a pause longer than the lease can come right after
        // that check; so this one does not check, and relies on the fence.
        let write = ledger.append(token, "embedded").map_err(|error| failed(&error))?;
        let boot_ns = clock::now().as_nanos();
        match write {
            Write::Accepted if first => {
                first = false;
                tell(&DemoJobReport::Wrote { token: token.0, boot_ns });
            }
            Write::Accepted => {}
            Write::Refused { highest } => {
                tell(&DemoJobReport::Refused { token: token.0, highest: highest.0, boot_ns });
                return Ok(Exit::Failed);
            }
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
