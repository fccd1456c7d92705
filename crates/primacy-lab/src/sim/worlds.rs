//! The interface of this command to the simulator's generated worlds.

use std::panic::{catch_unwind, set_hook, take_hook};

use super::Which;
use primacy_sim::elections::Election;
use primacy_sim::replay::{Drawn, Replayed};
use primacy_sim::swarm::{Beyond, Verdict};
use primacy_sim::trace::{Levels, Trace};

/// Finds an election by its name.
pub(crate) fn election(name: &str) -> Result<Election, String> {
    Election::find(name)
        .ok_or_else(|| format!("worlds are drawn for {}", names(Election::ALL, |it| it.name())))
}

/// Finds an election by its name, or all of them by `all`.
pub(super) fn elections(name: &str) -> Result<Which, String> {
    match name {
        "all" => Ok(Which::All),
        // The names are those of `primacy run --algorithm`.
        name => election(&name.replace('-', "_")).map(Which::One),
    }
}

/// Finds an assumption by its name.
pub(crate) fn beyond(name: &str) -> Result<Beyond, String> {
    let found = Beyond::ALL.iter().copied().find(|beyond| beyond.name() == name);
    found.ok_or_else(|| format!("write one of {}", names(Beyond::ALL, |it| it.name())))
}

fn names<T: Copy>(all: &[T], name: impl Fn(T) -> &'static str) -> String {
    all.iter().map(|&one| name(one)).collect::<Vec<&str>>().join(", ")
}

/// Runs a world without recording its events. A panic in it counts as a breach.
///
/// # Errors
/// The message of a panic in the code that generates the world, rather than in the world itself.
pub(super) fn run(world: Drawn) -> Result<Verdict, String> {
    let run = || world.election.run_beyond(world.seed, world.beyond, Trace::keeping(&[])).verdict;
    catch_unwind(run).map_err(said)
}

/// Runs a world and records its events, after shortening its script if `shorter`; `None` if the world does not fail,
/// so that there is nothing to shorten.
///
/// # Errors
/// As [`run`].
pub(crate) fn replay(world: Drawn, shorter: bool, levels: Levels) -> Result<Option<Replayed>, String> {
    if shorter {
        return silently(|| catch_unwind(|| world.replay_shorter(levels))).map_err(said);
    }
    catch_unwind(|| Some(world.replay(levels))).map_err(said)
}

/// Returns the shorter script of a failing world; `None` also if the code that generates it panics.
pub(super) fn shorter_script(world: Drawn) -> Option<String> {
    silently(|| catch_unwind(|| world.shorter_script())).unwrap_or_default()
}

/// Runs a function without printing panics, because a shortened world panics many times. Must be called while no
/// other thread runs.
fn silently<T>(act: impl FnOnce() -> T) -> T {
    let hook = take_hook();
    set_hook(Box::new(|_| {}));
    let done = act();
    set_hook(hook);
    done
}

/// Returns the command that replays a world.
pub(super) fn command(world: Drawn) -> String {
    let beyond = world.beyond.map_or_else(String::new, |beyond| format!(" --beyond {}", beyond.name()));
    format!("primacy-lab replay --election {} --seed {}{beyond}", world.election.name(), world.seed)
}

fn said(panic: Box<dyn std::any::Any + Send>) -> String {
    let said = panic.downcast_ref::<String>().cloned();
    let said = said.or_else(|| panic.downcast_ref::<&str>().map(|said| (*said).to_owned()));
    format!("panicked: {}", said.unwrap_or_else(|| "without a word".to_owned()))
}
