//! `primacy-lab compare`: every election through the same scenarios in the simulator, as one table and one picture.

mod json;
mod runs;

use std::fs;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

use clap::Parser;
use primacy::config::{Timers, Venue};
use primacy_core::Duration;
use primacy_sim::algorithm::{duration, parts_per_million};
use primacy_sim::compare::{
    ComparisonRow, Contender, DELAY_MAX, LOST_MAX, NODES, SEEDS, Scenario, Setup, Timers as Of, choices,
    sheet, table,
};
use signal_hook::consts::SIGTERM;

use self::runs::{Runs, Stopped};
use crate::exit::{self, Exit, Failure};
use crate::sim::{listen, threads};

/// Run every election through the same scenarios in the simulator, and compare them.
///
/// A leader is killed, loses power, is cut off alone or with a minority, has one bad link, or all
/// nodes are restarted in turn. Measured are the time without a leader, the number of leaders at
/// once, the changes of leader that nothing called for, and the messages that are sent. The timers
/// are those of `primacy run`. The same seeds give the same table on any machine.
/// docs/guide/simulation.md defines the measurements:
///
///   primacy-lab compare --nodes 5 --delay 10ms --loss 1% --svg compare.svg
///   primacy-lab compare --election quorum,bully --scenario split
#[derive(Debug, Parser)]
#[command(verbatim_doc_comment, after_help = exit::COMPARE_HELP)]
pub(crate) struct Compare {
    /// Only these elections, as they are named in the table
    #[arg(long, value_name = "ELECTION", value_delimiter = ',', value_parser = contender)]
    election: Vec<Contender>,

    /// Only these scenarios: calm, crash, power-loss, isolation, split, ping-pong, rolling-restart
    #[arg(long, value_name = "SCENARIO", value_delimiter = ',', value_parser = scenario)]
    scenario: Vec<Scenario>,

    /// Number of nodes, from 3 to 50
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = nodes)]
    nodes: usize,

    /// Delay of a packet, at most 50ms
    #[arg(long, value_name = "TIME", default_value = "1ms", value_parser = delay)]
    delay: Duration,

    /// Share of packets that are lost by chance, as in 1%; at most 50%
    #[arg(long, value_name = "SHARE", default_value = "0%", value_parser = loss)]
    loss: u32,

    /// Number of runs of each election in each scenario, each from a seed of its own, from 1 to 1000
    #[arg(long, value_name = "N", default_value_t = SEEDS, value_parser = seeds)]
    seeds: u64,

    /// The first seed
    #[arg(long, value_name = "SEED", default_value_t = 0)]
    from: u64,

    /// Number of threads [default: one for each core]
    #[arg(long, value_name = "N", value_parser = threads)]
    jobs: Option<NonZeroUsize>,

    /// Draw it into this SVG file; - is standard output, and then nothing else is printed
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,

    /// Print it as one object
    #[arg(long, conflicts_with = "markdown")]
    json: bool,

    /// Print the table of docs/guide/choosing.md: which election to choose
    #[arg(long, conflicts_with_all = ["election", "scenario"])]
    markdown: bool,
}

/// Runs the verb.
pub(crate) fn compare(args: &Compare) -> Result<Exit, Failure> {
    let to_stdout = args.svg.as_deref() == Some(Path::new("-"));
    if to_stdout && (args.json || args.markdown) {
        let message = "--svg - writes to standard output, and so would the rest; draw into a file";
        return Err(Failure::new(Exit::Usage, message));
    }
    let setup = Setup {
        nodes: args.nodes,
        delay: args.delay,
        lost_ppm: args.loss,
        peers: timers(Venue::Peers),
        store: timers(Venue::Store),
    };
    let interrupted = listen()?;
    let runs = Runs {
        setup,
        cells: cells(&args.election, &args.scenario),
        from: args.from,
        seeds: args.seeds,
        jobs: match args.jobs {
            Some(jobs) => jobs,
            None => std::thread::available_parallelism()?,
        },
    };
    let rows = match runs.run(&interrupted) {
        Ok(rows) => rows,
        Err(Stopped::Broken(what)) => return Err(Failure::new(Exit::Broken, what)),
        Err(Stopped::Interrupted) => {
            let signal = i32::try_from(interrupted.load(Ordering::SeqCst)).unwrap_or(SIGTERM);
            return Ok(Exit::Signal(signal));
        }
    };
    tell(args, &setup, &rows)
}

fn tell(args: &Compare, setup: &Setup, rows: &[ComparisonRow]) -> Result<Exit, Failure> {
    let picture = args.svg.as_deref().map(|file| (file, sheet(setup, args.seeds, rows)));
    let text = match picture {
        Some((file, picture)) if file == Path::new("-") => Ok(picture),
        picture => {
            if let Some((file, picture)) = picture {
                fs::write(file, picture).map_err(|error| {
                    Failure::new(Exit::Failed, format!("{} cannot be written: {error}", file.display()))
                })?;
            }
            match (args.json, args.markdown) {
                (true, _) => json::text(setup, args.from, args.seeds, rows),
                (false, true) => Ok(choices(setup, args.seeds, rows)),
                (false, false) => Ok(table(setup, args.seeds, rows)),
            }
        }
    }?;
    exit::print(&text)?;
    Ok(Exit::Success)
}

/// The requested rows, or all without a request, in the order of the table.
fn cells(elections: &[Contender], scenarios: &[Scenario]) -> Vec<(Contender, Scenario)> {
    let wanted_scenario = |it: &&Scenario| scenarios.is_empty() || scenarios.contains(it);
    let wanted = |it: &&Contender| elections.is_empty() || elections.contains(it);
    let all = Scenario::ALL.iter().filter(wanted_scenario);
    all.flat_map(|&scenario| Contender::ALL.iter().filter(wanted).map(move |&it| (it, scenario))).collect()
}

/// The timers that `primacy run` derives from the default lease.
fn timers(venue: Venue) -> Of {
    let timers = Timers::new(venue, None);
    Of {
        lease: timers.lease.into(),
        renewal: timers.renewal.into(),
        miss_count: timers.miss_count,
        initial_wait: timers.initial_wait.into(),
        random_wait_max: timers.random_wait_max.into(),
        stagger: timers.stagger.into(),
        answer_timeout: timers.answer_timeout.into(),
        poll_interval: timers.poll_interval.into(),
    }
}

fn contender(name: &str) -> Result<Contender, String> {
    let names = || Contender::ALL.iter().map(|it| it.name()).collect::<Vec<_>>().join(", ");
    // The names are those of `primacy run --algorithm`.
    Contender::find(&name.replace('-', "_")).ok_or_else(|| format!("write some of {}", names()))
}

fn scenario(name: &str) -> Result<Scenario, String> {
    let names = || Scenario::ALL.iter().map(|it| it.name()).collect::<Vec<_>>().join(", ");
    Scenario::find(name).ok_or_else(|| format!("write some of {}", names()))
}

fn nodes(text: &str) -> Result<usize, String> {
    let wrong = || format!("write a number of nodes from {} to {}", NODES.start(), NODES.end());
    text.parse().ok().filter(|nodes| NODES.contains(nodes)).ok_or_else(wrong)
}

fn delay(text: &str) -> Result<Duration, String> {
    let delay = duration(text)?;
    if delay <= DELAY_MAX {
        return Ok(delay);
    }
    Err(format!("write a delay up to {DELAY_MAX}; for a longer one the timers do not suit every election"))
}

fn loss(text: &str) -> Result<u32, String> {
    let lost = parts_per_million(text)?;
    let lost = u32::try_from(lost).ok().filter(|&lost| lost <= LOST_MAX);
    lost.ok_or_else(|| "write a share from 0% to 50%".to_owned())
}

fn seeds(text: &str) -> Result<u64, String> {
    let wrong = || "write a number of seeds from 1 to 1000".to_owned();
    text.parse().ok().filter(|seeds| (1..=1_000).contains(seeds)).ok_or_else(wrong)
}
