//! The sources of a setting, in the order of precedence: command line, environment, file, default.
//!
//! The definition of the command line lists the settings and their values. Values from the environment and from the
//! file are checked by it one at a time, and are then added to the command line where it has none.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::{env, fmt};

use clap::builder::Resettable;
use clap::error::ErrorKind;
use clap::parser::ValueSource;
use clap::{Arg, ArgMatches, Command, Parser};

use super::file;
use crate::exit::{Exit, Failure};

/// Where each setting that was given comes from.
#[derive(Debug, Default)]
pub(crate) struct Sources {
    given: BTreeMap<String, Given>,
}

/// A setting that was given.
#[derive(Clone, Debug)]
pub(crate) struct Given {
    /// The value as it was written.
    pub(crate) text: String,
    pub(crate) source: Source,
}

/// Where it was given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    CommandLine,
    Environment { variable: String },
    File { path: PathBuf, line: usize, column: usize },
}

/// The reason why the verb does not run.
#[derive(Debug)]
pub(crate) enum Stop {
    /// Help, version, or a wrong command line.
    Clap(clap::Error),
    /// Wrong settings in the environment or the file.
    Failure(Failure),
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::CommandLine => f.write_str("command line"),
            Self::Environment { variable } => write!(f, "environment, {variable}"),
            Self::File { path, line, column } => write!(f, "{}:{line}:{column}", path.display()),
        }
    }
}

impl Sources {
    pub(crate) fn of(&self, key: &str) -> Option<&Given> {
        self.given.get(key)
    }

    /// Names the setting as it was given.
    pub(crate) fn describe(&self, key: &str) -> String {
        match self.given.get(key).map(|given| &given.source) {
            None | Some(Source::CommandLine) => format!("--{key}"),
            Some(Source::Environment { variable }) => variable.clone(),
            Some(source @ Source::File { .. }) => format!("`{key}` ({source})"),
        }
    }

    /// Describes the sources of those `keys` that were not given on the command line.
    pub(crate) fn told_of(&self, keys: &[&str]) -> String {
        let elsewhere = keys.iter().filter_map(|key| {
            let given = self.given.get(*key)?;
            (given.source != Source::CommandLine)
                .then(|| format!("\n  {key} = {} is from {}", given.text, given.source))
        });
        elsewhere.collect()
    }

    /// Returns the failure of settings of which each is valid by itself. It is a usage error only if all of them were
    /// given on the command line.
    pub(crate) fn failure(&self, problems: &[String]) -> Failure {
        let all_here = self.given.values().all(|given| given.source == Source::CommandLine);
        let exit = if all_here { Exit::Usage } else { Exit::Config };
        Failure::new(exit, listed(problems))
    }
}

pub(super) fn listed(problems: &[String]) -> String {
    match problems {
        [one] => one.clone(),
        several => {
            let lines: String = several.iter().map(|problem| format!("\n  {problem}")).collect();
            format!("{} problems with the settings:{lines}", several.len())
        }
    }
}

/// One setting, as the command line defines it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Key<'a> {
    pub(super) arg: &'a Arg,
    pub(super) name: &'a str,
    variable: &'a OsStr,
}

impl Key<'_> {
    /// Checks a value as the command line would.
    pub(super) fn check(&self, text: &str) -> Result<(), String> {
        let alone = Command::new("primacy").no_binary_name(true).arg(without_variable(self.arg.clone()));
        let Err(error) = alone.try_get_matches_from([format!("--{}={text}", self.name)]) else {
            return Ok(());
        };
        let said = error.to_string();
        let said = said.split("\n\nFor more information").next().unwrap_or(&said);
        let said = said.strip_prefix("error: ").unwrap_or(said).trim();
        Err(said.lines().map(str::trim).collect::<Vec<_>>().join(" "))
    }
}

/// Returns the settings of a verb; none if it has no `--config`.
pub(super) fn keys(verb: &Command) -> Vec<Key<'_>> {
    if !has_file(verb) {
        return Vec::new();
    }
    let key = |arg| {
        let arg: &Arg = arg;
        Some(Key { arg, name: arg.get_long()?, variable: arg.get_env()? })
    };
    verb.get_arguments().filter_map(key).collect()
}

/// Parses a command line, and fills in the values of the environment and the file.
pub(crate) fn parse<C: Parser>(args: &[OsString]) -> Result<(C, Sources), Stop> {
    let shown = C::command();
    let bare = without_variables(C::command());
    let matches = bare.clone().try_get_matches_from(args).map_err(|error| {
        // The help text names the variables.
        let help = matches!(error.kind(), ErrorKind::DisplayHelp);
        Stop::Clap(if help { shown.clone().try_get_matches_from(args).err().unwrap_or(error) } else { error })
    })?;
    let (words, verb, verb_matches) = verb(&shown, &matches);
    let keys = keys(verb);
    let (sources, problems) = gather(&keys, verb_matches);
    if !problems.is_empty() {
        return Err(Stop::Failure(Failure::new(Exit::Config, listed(&problems))));
    }
    let elsewhere = sources.given.iter().filter(|(_, given)| given.source != Source::CommandLine);
    let filled = elsewhere.map(|(key, given)| OsString::from(format!("--{key}={}", given.text)));
    let (before, after) = args.split_at(words.min(args.len()));
    let all = before.iter().cloned().chain(filled).chain(after.iter().cloned());
    let matches = bare.try_get_matches_from(all).map_err(Stop::Clap)?;
    C::from_arg_matches(&matches).map(|parsed| (parsed, sources)).map_err(Stop::Clap)
}

/// Returns the innermost verb, and the number of words of the command line before its options.
fn verb<'a>(command: &'a Command, matches: &'a ArgMatches) -> (usize, &'a Command, &'a ArgMatches) {
    let (mut words, mut command, mut matches) = (1, command, matches);
    while let Some((name, inner)) = matches.subcommand() {
        let Some(found) = command.find_subcommand(name) else { break };
        (words, command, matches) = (words + 1, found, inner);
    }
    (words, command, matches)
}

/// Gathers the value that is given for each key, and all errors.
fn gather(keys: &[Key<'_>], matches: &ArgMatches) -> (Sources, Vec<String>) {
    let (mut sources, mut problems) = (Sources::default(), Vec::new());
    for key in keys {
        let id = key.arg.get_id().as_str();
        if matches.value_source(id) == Some(ValueSource::CommandLine) {
            let raw = matches.get_raw(id).into_iter().flatten().next().unwrap_or_default();
            let given = Given { text: raw.to_string_lossy().into_owned(), source: Source::CommandLine };
            sources.given.insert(key.name.to_owned(), given);
            continue;
        }
        match of_environment(key) {
            Ok(None) => {}
            Ok(Some(given)) => {
                sources.given.insert(key.name.to_owned(), given);
            }
            Err(problem) => problems.push(problem),
        }
    }
    if let Some(path) = sources.of("config").map(|given| PathBuf::from(&given.text)) {
        let (found, wrong) = file::read(Path::new(&path), keys);
        problems.extend(wrong);
        for (key, given) in found {
            sources.given.entry(key).or_insert(given);
        }
    }
    (sources, problems)
}

/// Returns whether `primacy` sets this variable for its jobs. Such a variable is not a setting of a `primacy` that the
/// job runs.
fn is_told_to_job(variable: &OsStr) -> bool {
    let is_set = |name| env::var_os(name).is_some_and(|value| !value.is_empty());
    variable == "PRIMACY_ELECTION" && ["PRIMACY_TERM", "PRIMACY_TOKEN", "PRIMACY_ID"].into_iter().any(is_set)
}

fn of_environment(key: &Key<'_>) -> Result<Option<Given>, String> {
    let variable = key.variable.to_string_lossy().into_owned();
    let Some(value) = env::var_os(key.variable).filter(|value| !value.is_empty()) else { return Ok(None) };
    if is_told_to_job(key.variable) {
        return Ok(None);
    }
    let text = value.into_string().map_err(|_| format!("{variable} is not UTF-8; write it as text"))?;
    key.check(&text).map_err(|problem| format!("{variable}: {problem}"))?;
    Ok(Some(Given { text, source: Source::Environment { variable } }))
}

fn without_variable(arg: Arg) -> Arg {
    arg.env(Resettable::<clap::builder::OsStr>::Reset)
}

/// Removes clap's own handling of the variables from verbs with a file: [`gather`] reads them there. For the other
/// verbs clap reads them.
fn without_variables(command: Command) -> Command {
    let reset = if has_file(&command) { without_variable } else { without_empty_variable };
    command.mut_args(reset).mut_subcommands(without_variables)
}

/// Removes the variable of an option if it is empty: an empty variable counts as not set everywhere.
fn without_empty_variable(arg: Arg) -> Arg {
    let is_empty =
        arg.get_env().is_some_and(|variable| env::var_os(variable).is_none_or(|value| value.is_empty()));
    if is_empty { without_variable(arg) } else { arg }
}

/// Returns whether the verb's settings may come from a file.
fn has_file(verb: &Command) -> bool {
    verb.get_arguments().any(|arg| arg.get_long() == Some("config"))
}
