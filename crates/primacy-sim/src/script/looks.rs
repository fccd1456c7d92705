//! The commands that show state, and those that check it.

use primacy_core::LeaderSequence;
use primacy_kv::replication::voters::Voters;

use super::Script;
use crate::algorithm::{Algorithm, metadata, value};
use crate::display::metadata::state_text;
use crate::display::partitions::partitions_text;
use crate::display::record_text;
use crate::display::views::members_text;
use crate::process_slot::ProcessSlot;
use crate::trace::Level;

impl<A: Algorithm> Script<A> {
    pub(super) fn looks(&mut self, words: &[&str]) -> Result<bool, String> {
        match *words {
            ["show", what] => self.world()?.trace.show(level(what)?, true),
            ["hide", what] => self.world()?.trace.show(level(what)?, false),
            ["who"] => {
                let world = self.world()?;
                let at = world.now();
                let states: Vec<String> = world.slots().map(|slot| state(world, slot)).collect();
                self.say(format!("{at:>8}  {}", states.join("; ")));
            }
            ["record"] => {
                let world = self.world()?;
                let (at, version) = (world.now(), world.store.version());
                let text = world.store.record().map_or_else(|| "absent".to_owned(), record_text);
                self.say(format!("{at:>8}  record: {text}, version {version}"));
            }
            ["queue"] => {
                let world = self.world()?;
                let (at, text) = (world.now(), world.sessions.text());
                self.say(format!("{at:>8}  queue: {text}"));
            }
            ["members", node] => {
                let slot = self.slot(node)?;
                let world = self.world()?;
                let at = world.now();
                let view = world.process(slot).and_then(|process| process.view.clone());
                let lines =
                    view.map_or_else(|| vec!["belongs to no cluster".to_owned()], |view| members_text(&view));
                lines.into_iter().for_each(|line| self.say(format!("{at:>8}  {node}: {line}")));
            }
            ["state", node] => {
                let slot = self.slot(node)?;
                let world = self.world()?;
                let at = world.now();
                let process = world.process(slot).ok_or("it does not run")?;
                let machine = metadata::<A>(&process.machine).ok_or("this election keeps nothing")?;
                let text = state_text(machine);
                self.say(format!("{at:>8}  {node}: {text}"));
            }
            ["partitions", node] => {
                let slot = self.slot(node)?;
                let world = self.world()?;
                let at = world.now();
                let known = world.partitions(slot).ok_or("it does not run, or keeps nothing")?;
                let lines = partitions_text(known);
                lines.into_iter().for_each(|line| self.say(format!("{at:>8}  {node}: {line}")));
            }
            ["voters", node] => {
                let slot = self.slot(node)?;
                let world = self.world()?;
                let at = world.now();
                let process = world.process(slot).ok_or("it does not run")?;
                let state = metadata::<A>(&process.machine).ok_or("the voters of this election are fixed")?;
                let line = voters_text(state.replica().voters());
                self.say(format!("{at:>8}  voters of {node}: {line}"));
            }
            ["request", node] => {
                let slot = self.slot(node)?;
                let world = self.world()?;
                let at = world.now();
                let process = world.process(slot).ok_or("it does not run")?;
                let served = A::SERVES.ok_or("this election has no such requests")?(&process.machine);
                let text =
                    served.map_or_else(|why| format!("is refused: {why}"), |()| "is served".to_owned());
                self.say(format!("{at:>8}  a request at {node} {text}"));
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    pub(super) fn expect(&mut self, words: &[&str]) -> Result<bool, String> {
        match *words {
            ["expect", "leader", node] => {
                let slot = self.slot(node)?;
                self.expect_leader(slot)?;
            }
            ["expect", "leader", node, "term", term] => {
                let (slot, term) = (self.slot(node)?, value::<u64>(term)?);
                self.expect_leader(slot)?;
                let world = self.world()?;
                let led = world.process(slot).and_then(|process| world.leaderships.of(process.me));
                let led = led.map(|interval| interval.term.0);
                if led != Some(term) {
                    return Err(format!("it leads in term {}", led.unwrap_or_default()));
                }
            }
            ["expect", "no", "leader"] => {
                let world = self.world()?;
                if let Some(slot) = world.leaders().next() {
                    return Err(format!("{} leads", world.node(slot).name));
                }
            }
            ["expect", "elections", count] => {
                let (count, so_far) = (value::<u64>(count)?, self.world()?.leaderships.count);
                if count != so_far {
                    return Err(format!("there have been {so_far}"));
                }
            }
            ["expect", invariant] => {
                self.expected.insert(invariant.to_owned());
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn expect_leader(&mut self, slot: ProcessSlot) -> Result<(), String> {
        let world = self.world()?;
        let found: Vec<ProcessSlot> = world.leaders().collect();
        if found == [slot] {
            return Ok(());
        }
        let names: Vec<&str> = found.iter().map(|&slot| world.node(slot).name.as_str()).collect();
        Err(format!("it is {names:?} who leads"))
    }
}

fn voters_text(voters: &Voters) -> String {
    let names: Vec<String> = voters.names().iter().map(ToString::to_string).collect();
    let names = names.join(" ");
    match voters.number {
        LeaderSequence::NONE => format!("{names}, by its configuration"),
        number => format!("{names}, by record {number}"),
    }
}

fn level(what: &str) -> Result<Level, String> {
    match what {
        "events" => Ok(Level::Event),
        "messages" => Ok(Level::Message),
        "heartbeats" => Ok(Level::Heartbeat),
        "disk" => Ok(Level::Disk),
        _ => Err("there are events, messages, heartbeats and disk".to_owned()),
    }
}

fn state<A: Algorithm>(world: &crate::world::World<A>, slot: ProcessSlot) -> String {
    let node = world.node(slot);
    let name = node.name;
    let Some(process) = world.process(slot) else { return format!("{name} is down") };
    let paused = if process.paused { " (paused)" } else { "" };
    if world.believes(slot) {
        let term = world.leaderships.of(process.me).map_or(0, |interval| interval.term.0);
        return format!("{name} leads in term {term}{paused}");
    }
    match node.leader.filter(|leader| leader.identity.node != name) {
        Some(leader) => format!("{name} follows {} in term {}{paused}", leader.identity.node, leader.term),
        None => format!("{name} follows nobody{paused}"),
    }
}
