//! `primacy-lab replay`: the events of a script or of a seed's world, as text, as JSON or drawn.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use clap::{Parser, ValueEnum};
use primacy_core::Duration;
use primacy_sim::algorithm::duration;
use primacy_sim::clock::Moment;
use primacy_sim::draw::svg;
use primacy_sim::replay::{Drawn, End, Replayed, script};
use primacy_sim::swarm::Beyond;
use primacy_sim::trace::{self, Entry, Levels, json, lines};

use crate::exit::{self, Exit, Failure};
use crate::sim::worlds::{self, beyond};

/// Replay a script, or the story of a seed, as it happened.
///
/// A script is shown with its comments, and must go as it says. A seed is shown line by line. With --json each line
/// is an object for programs, and with --svg the events are drawn as a sequence diagram:
///
///   primacy-lab replay crates/primacy-sim/scripts/quorum/two_nodes_need_each_other.txt --svg two.svg
///   primacy-lab replay --election quorum --seed 7 --from 3s --until 5s --svg seven.svg
#[derive(Debug, Parser)]
#[command(verbatim_doc_comment, after_help = exit::REPLAY_HELP)]
pub(crate) struct Replay {
    /// The script
    #[arg(value_name = "FILE", required_unless_present = "seed", conflicts_with = "seed")]
    script: Option<PathBuf>,

    /// Which election it is about [default for a script: the name of its folder]
    #[arg(long, value_name = "ELECTION")]
    election: Option<String>,

    /// The seed
    #[arg(long, value_name = "N", requires = "election")]
    seed: Option<u64>,

    /// The assumption that does not hold in the seed's world, as for `primacy-lab sim`
    #[arg(long, value_name = "ASSUMPTION", requires = "seed", value_parser = beyond)]
    beyond: Option<Beyond>,

    /// Make the seed's story shorter first, so that it still fails in the same way
    #[arg(long, requires = "seed")]
    shorter: bool,

    /// The level of detail: this, and all that matters more [default: as the script shows it; for a seed: message]
    #[arg(long, value_enum)]
    level: Option<Level>,

    /// Leave out what happened before
    #[arg(long, value_name = "TIME", value_parser = duration, default_value = "0s")]
    from: Duration,

    /// Leave out what happened after
    #[arg(long, value_name = "TIME", value_parser = duration)]
    until: Option<Duration>,

    /// Print an object a line
    #[arg(long, conflicts_with = "svg")]
    json: bool,

    /// Draw it into this file, at most the last 1500 lines of it; `-` is standard output
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,

    /// Print the story as a script that can be kept, and nothing else
    #[arg(long, conflicts_with_all = ["json", "svg"])]
    story: bool,
}

/// The level of detail.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Level {
    /// Events of applications, crashes, broken invariants
    Event,
    /// And faults of nodes and links, and campaigns
    Scene,
    /// And messages between nodes and to the store
    Message,
    /// And periodic messages
    Heartbeat,
    /// And writes to disks, and connections
    Disk,
}

impl Level {
    const fn levels(self) -> Levels {
        Levels::down_to(match self {
            Self::Event => trace::Level::Event,
            Self::Scene => trace::Level::Scene,
            Self::Message => trace::Level::Message,
            Self::Heartbeat => trace::Level::Heartbeat,
            Self::Disk => trace::Level::Disk,
        })
    }
}

impl Replay {
    /// The levels shown for a seed, or for a script with an explicit level.
    fn levels(&self) -> Levels {
        self.level.unwrap_or(Level::Message).levels()
    }
}

/// Runs the verb.
pub(crate) fn replay(args: &Replay) -> Result<Exit, Failure> {
    let mut replayed = match (&args.script, args.seed) {
        (Some(file), _) => of_script(args, file)?,
        (None, seed) => of_seed(args, seed.unwrap_or_default())?,
    };
    replayed.frame.from = moment(args.from);
    replayed.frame.until = args.until.map_or(Moment::NEVER, moment);
    if let Some(file) = &args.svg {
        draw(file, &svg(&replayed.entries, &replayed.frame))?;
    } else {
        tell(args, &replayed)?;
    }
    match replayed.end {
        End::Good => Ok(Exit::Success),
        End::Otherwise(why) => {
            Err(Failure::new(Exit::Failed, format!("it does not go as the script says: {why}")))
        }
        End::Broken(breach) => Err(Failure::new(Exit::Broken, format!("an invariant is broken: {breach}"))),
    }
}

fn of_script(args: &Replay, file: &Path) -> Result<Replayed, Failure> {
    let usage = |message: String| Failure::new(Exit::Usage, message);
    let text = fs::read_to_string(file)
        .map_err(|error| usage(format!("the script {} cannot be read: {error}", file.display())))?;
    let folder = file.parent().and_then(Path::file_name).map(|name| name.to_string_lossy().into_owned());
    let election = args.election.clone().or(folder).unwrap_or_default();
    let name = file.file_stem().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    script(&election, &name, &text, args.level.map(Level::levels))
        .map_err(|why| usage(format!("{why}; name the one that the script is about with --election")))
}

fn of_seed(args: &Replay, seed: u64) -> Result<Replayed, Failure> {
    let usage = |message: String| Failure::new(Exit::Usage, message);
    let election = worlds::election(args.election.as_deref().unwrap_or_default()).map_err(usage)?;
    let world = Drawn { election, seed, beyond: args.beyond };
    let replayed = worlds::replay(world, args.shorter, args.levels())
        .map_err(|panic| Failure::new(Exit::Broken, format!("{world}: {panic}")))?;
    replayed.ok_or_else(|| usage(format!("{world} is good, and so cannot be made shorter")))
}

fn moment(time: Duration) -> Moment {
    Moment::from_nanos(time.as_nanos())
}

fn draw(file: &Path, picture: &str) -> Result<(), Failure> {
    let written = if file == Path::new("-") {
        std::io::stdout().write_all(picture.as_bytes())
    } else {
        fs::write(file, picture)
    };
    let failed = |error| Failure::new(Exit::Failed, format!("{} cannot be written: {error}", file.display()));
    written.map_err(failed)
}

fn tell(args: &Replay, replayed: &Replayed) -> Result<(), Failure> {
    let in_frame = |entry: &&Entry| replayed.frame.from <= entry.at && entry.at <= replayed.frame.until;
    // Renewals are always recorded, but shown only together with heartbeats.
    let levels = args.level.map(Level::levels);
    let wanted =
        |entry: &&Entry| levels.is_none_or(|levels| levels.contain(entry.level)) || !entry.prolongs();
    let entries = || replayed.entries.iter().filter(in_frame).filter(wanted);
    let text = if args.story || (args.script.is_some() && args.level.is_none() && !args.json) {
        replayed.script.clone()
    } else if args.json {
        entries().map(|entry| json(entry) + "\n").collect()
    } else {
        let entries: Vec<Entry> = entries().cloned().collect();
        let told = lines(&entries).into_iter().map(|line| line + "\n");
        told.chain([replayed.frame.about.clone() + "\n"]).collect()
    };
    exit::print(&text)
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;
    use primacy_sim::draw::LINES_MAX;

    use super::*;

    #[test]
    fn the_help_states_how_much_is_drawn() {
        let stated = format!("at most the last {LINES_MAX} lines");
        assert!(Replay::command().render_long_help().to_string().replace('\n', " ").contains(&stated));
        assert!(
            include_str!("../../../docs/guide/simulation.md").contains(&format!("At most {LINES_MAX} lines"))
        );
    }
}
