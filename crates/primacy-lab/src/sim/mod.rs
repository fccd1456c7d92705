//! `primacy-lab sim`: worlds generated from seeds, with all kinds of faults, on all cores.

mod message_complexity;
mod progress;
mod search;
mod totals;
pub(crate) mod worlds;

use std::num::NonZeroU64;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use clap::Parser;
use primacy_sim::elections::Election;
use primacy_sim::message_complexity::CountedElection;
use primacy_sim::swarm::Beyond;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use self::progress::Progress;
use self::search::{Bound, Search};
use self::totals::Totals;
use crate::exit::{self, Exit, Failure};

/// The default number of worlds.
const SEEDS: u64 = 1_000;

/// Run simulated worlds in which everything goes wrong that may, and judge them.
///
/// Each seed draws its own cluster, timers and mix of faults: crashes, pauses, partitions, lost and late messages, lost
/// disks, drifting clocks, failing stores. No invariant may break in any of them, and when the faults end there must be
/// one leader. The same seeds give the same worlds and the same sums on any machine, whatever --jobs is.
///
/// A signal ends it with the sums so far. For a world in which an invariant breaks, the one command that replays it is
/// printed; see docs/guide/simulation.md.
///
/// With --nodes nothing goes wrong: the messages of one election of bully, ring or ring_bidirectional are counted, among
/// 2, 4, 8 … nodes up to this number, and compared with the formulas of its authors.
#[derive(Debug, Parser)]
#[command(verbatim_doc_comment, after_help = exit::SIM_HELP)]
pub(crate) struct Sim {
    /// Of which election: quorum, ranked, bully, ring, ring_bidirectional, seniority, lease, session, or confirmed, confirmed_lease,
    /// confirmed_seniority and confirmed_whim, in which one nominates and another confirms, or metadata, in which the leader replicates
    /// a state; or of all of them in turn
    #[arg(long, value_name = "ELECTION", default_value = "all", value_parser = worlds::elections)]
    election: Which,

    /// Number of seeds, of each election [default: 1000]
    #[arg(long, value_name = "N", conflicts_with_all = ["hours", "seed", "nodes"])]
    seeds: Option<NonZeroU64>,

    /// Run until so many hours have passed in all worlds together
    #[arg(long, value_name = "H", value_parser = hours, conflicts_with_all = ["seed", "nodes"])]
    hours: Option<f64>,

    /// The first seed
    #[arg(long, value_name = "SEED", default_value_t = 0, conflicts_with_all = ["seed", "nodes"])]
    from: u64,

    /// Only this seed
    #[arg(long, value_name = "SEED", conflicts_with = "nodes")]
    seed: Option<u64>,

    /// Draw worlds in which this assumption of an election does not hold, to see which invariant speaks: drift, jump,
    /// frozen-machine, rotten-disk, lying-store or restored-store
    #[arg(long, value_name = "ASSUMPTION", value_parser = worlds::beyond, conflicts_with = "nodes")]
    beyond: Option<Beyond>,

    /// Number of threads [default: one for each core]
    #[arg(long, value_name = "N", value_parser = threads, conflicts_with = "nodes")]
    jobs: Option<NonZeroUsize>,

    /// End at the first world in which an invariant breaks; without --seeds and --hours, never before
    #[arg(long, conflicts_with = "nodes")]
    until_failure: bool,

    /// Count the messages of one election among up to so many nodes, from 2 to 100000: of bully, ring or ring_bidirectional
    #[arg(long, value_name = "N", value_parser = message_complexity::nodes)]
    nodes: Option<usize>,

    /// The nodes that start that election
    #[arg(long, value_enum, default_value_t = message_complexity::Who::All, requires = "nodes")]
    initiators: message_complexity::Who,

    /// Draw what was counted, with the formulas, on logarithmic axes into this SVG file; - is standard output
    #[arg(long, value_name = "FILE", requires = "nodes")]
    plot: Option<PathBuf>,

    /// Print failures and sums, or what was counted, as objects, one a line
    #[arg(long)]
    json: bool,
}

/// One election, or all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Which {
    One(Election),
    All,
}

/// Runs the verb.
pub(crate) fn sim(args: &Sim) -> Result<Exit, Failure> {
    if let Some(nodes) = args.nodes {
        return count(args, nodes);
    }
    let interrupted = listen()?;
    let search = Search {
        elections: match args.election {
            Which::One(election) => vec![election],
            Which::All => Election::ALL.to_vec(),
        },
        beyond: args.beyond,
        from: args.seed.unwrap_or(args.from),
        bound: bound(args),
        until_failure: args.until_failure,
        jobs: match args.jobs {
            Some(jobs) => jobs,
            None => std::thread::available_parallelism()?,
        },
    };
    let began = Instant::now();
    let mut totals = Totals::new(&search.elections, args.beyond.is_none());
    let mut progress = Progress::new(search.bound, search.elections.len());
    search.run(&interrupted, |world, outcome| {
        if let Some(failure) = totals.add(world, outcome) {
            progress.clear();
            totals::tell_failure(failure, args.json);
        }
        progress.show(&totals, began.elapsed());
    });
    progress.clear();
    totals.tell(began.elapsed(), search.jobs.get(), args.json)?;
    Ok(match interrupted.load(Ordering::SeqCst) {
        _ if totals.failures() > 0 => Exit::Broken,
        0 if totals.never_met().is_empty() => Exit::Success,
        0 => Exit::Failed,
        signal => Exit::Signal(i32::try_from(signal).unwrap_or(SIGTERM)),
    })
}

fn count(args: &Sim, nodes: usize) -> Result<Exit, Failure> {
    let usage = |message: &str| Err(Failure::new(Exit::Usage, message));
    let election = match args.election {
        Which::One(Election::Bully) => CountedElection::Bully,
        Which::One(Election::Ring) => CountedElection::Ring,
        Which::One(Election::RingBidirectional) => CountedElection::RingBidirectional,
        Which::One(_) | Which::All => {
            return usage(
                "--nodes counts the messages of bully, ring or ring_bidirectional; write one of them after --election",
            );
        }
    };
    if args.json && args.plot.as_deref() == Some(Path::new("-")) {
        return usage("--plot - and --json both write to standard output; draw into a file");
    }
    message_complexity::tell(election, args.initiators, nodes, args.plot.as_deref(), args.json)
}

fn bound(args: &Sim) -> Bound {
    match (args.seed, args.seeds, args.hours) {
        (Some(_), _, _) => Bound::Seeds(1),
        (None, Some(seeds), _) => Bound::Seeds(seeds.get()),
        (None, None, Some(hours)) => Bound::Hours(hours),
        (None, None, None) if args.until_failure => Bound::None,
        (None, None, None) => Bound::Seeds(SEEDS),
    }
}

fn hours(text: &str) -> Result<f64, String> {
    let hours: f64 = text.parse().map_err(|_| "write a number of hours, as in 1000 or 0.5".to_owned())?;
    if hours.is_finite() && hours > 0.0 { Ok(hours) } else { Err("it must be above zero".to_owned()) }
}

/// Installs the signal handlers. The result contains the signal that has requested the end, once there is one.
pub(super) fn listen() -> Result<Arc<AtomicUsize>, Failure> {
    let interrupted = Arc::new(AtomicUsize::new(0));
    for signal in [SIGHUP, SIGINT, SIGTERM] {
        let value = usize::try_from(signal).unwrap_or(1);
        signal_hook::flag::register_usize(signal, Arc::clone(&interrupted), value)?;
    }
    Ok(interrupted)
}

/// Parses the number of threads.
pub(crate) fn threads(text: &str) -> Result<NonZeroUsize, String> {
    text.parse().map_err(|_| "write a number of threads, at least 1".to_owned())
}
