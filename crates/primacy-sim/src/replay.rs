//! A replay of a script, or of the world of a seed: its events as data, and the outcome.

use core::fmt;

use crate::draw::Frame;
use crate::elections::Election;
use crate::elections::open;
use crate::golden_file::{difference, replay};
use crate::shrink;
use crate::swarm::{Beyond, Run};
use crate::trace::{Entry, Levels, Trace};

/// The result of a replay.
#[derive(Debug)]
pub struct Replayed {
    /// The entries of the trace.
    pub entries: Vec<Entry>,
    /// The title and description of its picture.
    pub frame: Frame,
    /// The script with its present outputs; for a seed, the equivalent script.
    pub script: String,
    /// The outcome.
    pub end: End,
}

/// The outcome of a replay.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// No invariant was broken, and every expected violation happened.
    Good,
    /// The replay differs from the script: the difference, or the command that could not be carried out.
    Otherwise(String),
    /// An unexpected violation, a machine's panic, or an alarm, with its description.
    Broken(String),
}

/// Replays a script.
///
/// `election` is the name of its folder, `name` the title of the picture. The entries of these levels are recorded;
/// if none are given, those of the levels that the script shows, and the scene.
///
/// # Errors
/// If there is no election of this name.
pub fn script(election: &str, name: &str, text: &str, levels: Option<Levels>) -> Result<Replayed, String> {
    let mut handler = open(election)?;
    handler.record(levels);
    let told = replay(text, handler.as_mut());
    let end = match (&told, handler.unexpected()) {
        (_, Some(breach)) => End::Broken(breach),
        (Err(why), None) => End::Otherwise(why.clone()),
        (Ok(told), None) => difference(text, told).map_or(End::Good, End::Otherwise),
    };
    let frame = Frame::whole(format!("{election}: {}", name.replace('_', " ")), opening(text));
    let script = told.unwrap_or_else(|_| text.to_owned());
    Ok(Replayed { entries: handler.recorded(), frame, script, end })
}

/// A world that is drawn from a seed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Drawn {
    /// The election.
    pub election: Election,
    /// The seed.
    pub seed: u64,
    /// The assumption of the election that the world violates.
    pub beyond: Option<Beyond>,
}

impl Drawn {
    /// Replays all commands of the world, and records the entries of these levels.
    #[must_use]
    pub fn replay(self, levels: Levels) -> Replayed {
        let mut trace = Trace::keeping(&[]);
        trace.record(Some(levels));
        self.replayed(self.election.run_beyond(self.seed, self.beyond, trace), "")
    }

    /// Shortens the world's script, replays it, and records the entries of these levels; `None` if the world does not
    /// fail.
    #[must_use]
    pub fn replay_shorter(self, levels: Levels) -> Option<Replayed> {
        let (commands, _) = self.shorter()?;
        let mut trace = Trace::keeping(&[]);
        trace.record(Some(levels));
        Some(self.replayed(self.election.run_again(&commands, trace), ", made shorter"))
    }

    /// Returns a shorter script that fails in the same way, with its outputs; `None` if the world does not fail.
    #[must_use]
    pub fn shorter_script(self) -> Option<String> {
        self.shorter().map(|(commands, failure)| self.script(&commands, Some(failure), ", made shorter"))
    }

    /// Returns the shorter commands, and the failure.
    fn shorter(self) -> Option<(Vec<String>, &'static str)> {
        let run = self.election.run_beyond(self.seed, self.beyond, Trace::keeping(&[]));
        let failure = run.verdict.failure()?;
        Some((shrink::shrink(self.election, &run.commands, failure)?, failure))
    }

    fn replayed(self, mut run: Run, changed: &str) -> Replayed {
        let verdict = run.verdict.to_string();
        let frame = Frame::whole(format!("{self}{changed}"), verdict.replace('\n', "; "));
        let end = if run.verdict.is_good() { End::Good } else { End::Broken(verdict) };
        let script = self.script(&run.commands, run.verdict.failure(), changed);
        Replayed { entries: run.trace.take_recorded(), frame, script, end }
    }

    /// Returns the commands as a script, with its outputs.
    fn script(self, commands: &[String], failure: Option<&str>, changed: &str) -> String {
        let script = shrink::script(commands, failure, &format!("{self}{changed}"));
        let told = open(self.election.name()).and_then(|mut handler| replay(&script, handler.as_mut()));
        told.unwrap_or(script)
    }
}

impl fmt::Display for Drawn {
    /// `quorum: seed 7 beyond drift`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: seed {}", self.election.name(), self.seed)?;
        self.beyond.map_or(Ok(()), |beyond| write!(f, " beyond {}", beyond.name()))
    }
}

/// Returns the comment at the beginning of a script, which states its purpose.
fn opening(text: &str) -> String {
    let lines = text.lines().map_while(|line| line.strip_prefix('#'));
    lines.map(str::trim).collect::<Vec<&str>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    const STORY: &str = "# One node\n# is a majority.\n\nnodes a\nstart a\nadvance 5s\n";

    #[test]
    fn a_replay_says_how_it_ended() {
        let levels = Some(Levels::down_to(crate::trace::Level::Event));
        let run = |text: &str| script("quorum", "one_node", text, levels).unwrap();
        let good = run(&format!("{STORY}expect leader a\n"));
        assert_eq!((good.end, good.frame.title.as_str()), (End::Good, "quorum: one node"));
        assert_eq!(good.frame.about, "One node is a majority.");
        assert!(!good.entries.is_empty());
        let otherwise = run(&format!("{STORY}expect no leader\n"));
        assert!(matches!(otherwise.end, End::Otherwise(why) if why.contains("a leads")));
        assert!(!otherwise.entries.is_empty(), "what came before is there to be seen");
        let differs = run(&format!("{STORY}---\nnothing\n"));
        assert!(matches!(differs.end, End::Otherwise(why) if why.contains("- nothing")));
        assert!(script("nobodys", "", STORY, levels).is_err());
    }

    #[test]
    fn a_breach_that_was_not_expected_is_told_from_one_that_was() {
        let text = include_str!("../scripts/quorum/drift_beyond_the_bound_breaks_the_lease.txt");
        let run = |text: &str| script("quorum", "drift", text, None).unwrap().end;
        assert_eq!(run(text), End::Good);
        let unexpected = text.replace("expect I3\n", "");
        assert!(matches!(run(&unexpected), End::Broken(breach) if breach.contains("I3")));
    }

    #[test]
    fn renewals_are_recorded_whatever_is_told() {
        let text = include_str!("../scripts/quorum/two_nodes_need_each_other.txt");
        let told = script("quorum", "two", text, None).unwrap().entries;
        assert!(told.iter().any(Entry::prolongs), "else the lead would look like one that has run out");
        let others = |entry: &Entry| entry.level == crate::trace::Level::Heartbeat && !entry.prolongs();
        assert!(!told.iter().any(others), "the script does not show heartbeats");
    }

    #[test]
    fn a_seed_is_replayed_and_its_story_is_a_script() {
        let drawn = Drawn { election: Election::Lease, seed: 3, beyond: None };
        let replayed = drawn.replay(Levels::down_to(crate::trace::Level::Message));
        assert_eq!(replayed.end, End::Good);
        assert!(replayed.script.starts_with("# lease: seed 3\n\nseed 3\nnodes a b"), "{}", replayed.script);
        assert!(!replayed.entries.is_empty());
        assert_eq!(script("lease", "", &replayed.script, None).unwrap().end, End::Good);
        assert!(drawn.shorter_script().is_none(), "it breaks nothing");
    }

    #[test]
    fn what_breaks_is_a_script_that_says_so() {
        let mut seeds = (0..50).map(|seed| Drawn {
            election: Election::Lease,
            seed,
            beyond: Some(Beyond::FrozenMachine),
        });
        let levels = Levels::down_to(crate::trace::Level::Event);
        let shorter = seeds.find_map(|drawn| drawn.replay_shorter(levels)).unwrap();
        assert!(matches!(&shorter.end, End::Broken(breach) if breach.contains("I3")), "{:?}", shorter.end);
        assert!(shorter.script.contains("expect I3\n"), "{}", shorter.script);
        assert_eq!(script("lease", "", &shorter.script, None).unwrap().end, End::Good);
    }
}
