//! Shortening of a failing script: fewer faults, fewer nodes and rounder numbers, with the same failure. The same
//! invariant breaks first; or a machine panics, or raises an alarm without a broken invariant.
//!
//! A script is shortened by omitting something and replaying the rest. Preconditions of an invariant must stay: the
//! bound on drift, and for an invariant about the time after the healing, the healing and all timers.

use primacy_core::Duration;

use crate::algorithm::duration;
use crate::elections::Election;
use crate::swarm::Run;
use crate::trace::Trace;

/// The maximum number of replayed scripts.
const TRIES_MAX: usize = 5_000;

/// A function that runs a script, as far as its commands can be carried out.
type Runs<'a> = &'a dyn Fn(&[String]) -> Run;

/// A script that is being shortened.
struct Shrinking<'a> {
    runs: Runs<'a>,
    failure: &'static str,
    commands: Vec<String>,
    tries: usize,
}

/// Shortens a script that fails in this way; `None` if it does not.
///
/// Each panic of a replay runs the process's panic hook, which prints it; set another hook to silence it.
#[must_use]
pub fn shrink(election: Election, commands: &[String], failure: &'static str) -> Option<Vec<String>> {
    shrink_by(&|commands| election.run_again(commands, Trace::keeping(&[])), commands, failure)
}

fn shrink_by(runs: Runs<'_>, commands: &[String], failure: &'static str) -> Option<Vec<String>> {
    let mut shrinking = Shrinking { runs, failure, commands: commands.to_vec(), tries: 0 };
    if !shrinking.takes(commands.to_vec()) {
        return None;
    }
    loop {
        let before = shrinking.commands.len();
        shrinking.leave_out_lines();
        shrinking.leave_out_nodes();
        shrinking.join_pauses();
        shrinking.leave_out_settings();
        if shrinking.commands.len() == before || shrinking.tries >= TRIES_MAX {
            break;
        }
    }
    shrinking.round_pauses();
    Some(shrinking.commands)
}

/// Returns the commands as a script that ends by expecting the failure, if any.
#[must_use]
pub fn script(commands: &[String], failure: Option<&str>, origin: &str) -> String {
    let fails = failure.map_or_else(String::new, |failure| format!("expect {failure}\n"));
    format!("# {origin}\n\n{}\n{fails}---\n", commands.join("\n"))
}

impl Shrinking<'_> {
    /// Takes the shorter script if it fails in the same way.
    fn takes(&mut self, shorter: Vec<String>) -> bool {
        if self.tries >= TRIES_MAX {
            return false;
        }
        self.tries += 1;
        let run = (self.runs)(&shorter);
        let same = run.verdict.failure() == Some(self.failure);
        if same {
            // Drops the commands that could not be carried out, and those after the failure.
            self.commands = run.commands;
        }
        same
    }

    /// True if the failure concerns the time after the healing.
    fn is_about_the_end(&self) -> bool {
        matches!(self.failure, "I5" | "I6")
    }

    fn is_needed(&self, line: &str) -> bool {
        let word = line.split_whitespace().next().unwrap_or_default();
        let of_the_end = matches!(word, "settle" | "calm" | "set" | "latency")
            || line == "heal all"
            || line.starts_with("disk all takes");
        matches!(word, "seed" | "nodes" | "start")
            || line.contains("drift_max")
            || (of_the_end && self.is_about_the_end())
    }

    /// Omits as many lines at once as possible, then fewer.
    fn leave_out_lines(&mut self) {
        let mut size = self.commands.len() / 2;
        while size > 0 {
            let mut from = 0;
            while from < self.commands.len() {
                let until = (from + size).min(self.commands.len());
                let kept =
                    |(index, line): &(usize, &String)| !(from..until).contains(index) || self.is_needed(line);
                let lines = self.commands.iter().enumerate().filter(kept);
                let shorter: Vec<String> = lines.map(|(_, line)| line.clone()).collect();
                if shorter.len() == self.commands.len() || !self.takes(shorter) {
                    from = until;
                }
            }
            size /= 2;
        }
    }

    /// Omits the last node, and all commands that name it.
    fn leave_out_nodes(&mut self) {
        // With fewer than three nodes, one that is cut off leaves no majority.
        let least = if self.failure == "I5" { 3 } else { 1 };
        loop {
            let Some(nodes) = self.commands.iter().find_map(|line| line.strip_prefix("nodes ")) else {
                return;
            };
            let names: Vec<&str> = nodes.split(' ').collect();
            let Some((last, rest)) = names.split_last().filter(|(_, rest)| rest.len() >= least) else {
                return;
            };
            let without = |line: &String| match line.split_once(' ') {
                Some(("nodes", _)) => Some(format!("nodes {}", rest.join(" "))),
                Some(("links", links)) => {
                    let kept = links.split(' ').filter(|link| !link.split('-').any(|end| end == *last));
                    Some(format!("links {}", kept.collect::<Vec<&str>>().join(" ")))
                }
                _ if line.split(' ').any(|word| word == *last) => None,
                _ => Some(line.clone()),
            };
            let shorter: Vec<String> = self.commands.iter().filter_map(without).collect();
            if !self.takes(shorter) {
                return;
            }
        }
    }

    /// Joins two `advance` commands with no command between them.
    fn join_pauses(&mut self) {
        let mut index = 0;
        while index + 1 < self.commands.len() {
            let pauses = [pause(&self.commands[index]), pause(&self.commands[index + 1])];
            let [Some(first), Some(second)] = pauses else {
                index += 1;
                continue;
            };
            let mut shorter = self.commands.clone();
            shorter[index] = advance(first.plus(second));
            shorter.remove(index + 1);
            if !self.takes(shorter) {
                index += 1;
            }
        }
    }

    /// Omits a setting.
    fn leave_out_settings(&mut self) {
        if self.is_about_the_end() {
            return;
        }
        let settings: Vec<String> =
            self.commands.iter().filter(|line| line.starts_with("set ")).cloned().collect();
        for line in settings {
            for word in line.split(' ').filter(|word| word.contains('=') && !word.starts_with("drift_max")) {
                let shorten = |old: &String| {
                    let words = old.split(' ').filter(|&old| old != word);
                    words.collect::<Vec<&str>>().join(" ")
                };
                let same = |old: &String| line.split(' ').take(2).eq(old.split(' ').take(2));
                let shorter =
                    self.commands.iter().map(|old| if same(old) { shorten(old) } else { old.clone() });
                let shorter = shorter.filter(|line| !line.starts_with("set ") || line.contains('='));
                self.takes(shorter.collect());
            }
        }
    }

    /// Rounds the durations of `advance` to tenths of a second, or at least to milliseconds, for legibility.
    fn round_pauses(&mut self) {
        for index in 0..self.commands.len() {
            let Some(exact) = pause(&self.commands[index]) else { continue };
            for unit in [100, 10, 1] {
                let nanos = Duration::from_millis(unit).as_nanos();
                let mut rounder = self.commands.clone();
                rounder[index] = advance(Duration::from_nanos(exact.as_nanos().div_ceil(nanos) * nanos));
                if rounder[index] == self.commands[index] || self.takes(rounder) {
                    break;
                }
            }
        }
    }
}

fn pause(line: &str) -> Option<Duration> {
    line.strip_prefix("advance ").and_then(|time| duration(time).ok())
}

fn advance(time: Duration) -> String {
    format!("advance {}", crate::swarm::text(time))
}

#[cfg(test)]
mod tests;
