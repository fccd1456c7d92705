//! The commands for machines and their surroundings.

use primacy_core::election::lease::{Record, ResignRequest};
use primacy_core::{Command, Duration, FencingToken, Input};

use super::Script;
use crate::algorithm::{Algorithm, Settings as _, duration, value};
use crate::process_slot::ProcessSlot;
use crate::trace::Level;

impl<A: Algorithm> Script<A> {
    pub(super) fn node_commands(&mut self, words: &[&str]) -> Result<bool, String> {
        match *words {
            ["campaign", ref names @ ..] => {
                for slot in self.slots(names)? {
                    self.world()?.node_mut(slot).campaigns = true;
                    self.give_command(slot, Command::Campaign)?;
                }
            }
            ["withdraw", node] => {
                let slot = self.slot(node)?;
                self.world()?.node_mut(slot).campaigns = false;
                self.give_command(slot, Command::Withdraw)?;
            }
            ["resign", node] => {
                let slot = self.slot(node)?;
                self.give_command(slot, Command::Resign)?;
            }
            ["transfer", node, to] => {
                let (slot, to) = (self.slot(node)?, self.slot(to)?);
                let to = self.world()?.node(to).name;
                self.give_command(slot, Command::Transfer(to))?;
            }
            ["health", node, "good"] => {
                let slot = self.slot(node)?;
                self.give_command(slot, Command::Healthy(true))?;
            }
            ["health", node, "bad"] => {
                let slot = self.slot(node)?;
                self.give_command(slot, Command::Healthy(false))?;
            }
            ["down", at, node] => {
                let (slot, node) = (self.slot(at)?, self.slot(node)?);
                let node = self.world()?.node(node).name;
                self.give_command(slot, Command::Down(node))?;
            }
            ["busy", node] => {
                let slot = self.slot(node)?;
                self.world()?.node_mut(slot).busy = true;
            }
            ["idle", node] => {
                let slot = self.slot(node)?;
                self.world()?.node_mut(slot).busy = false;
            }
            ["drained", node] => {
                let slot = self.slot(node)?;
                self.world()?.trace_node(slot, Level::Event, || "has drained its work".to_owned());
                self.world()?.drained(slot);
            }
            ["write", node] => {
                let slot = self.slot(node)?;
                self.world()?.write(slot, Duration::ZERO)?;
            }
            ["write", node, "late", by] => {
                let (slot, by) = (self.slot(node)?, duration(by)?);
                self.world()?.write(slot, by)?;
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn give_command(&mut self, slot: ProcessSlot, command: Command) -> Result<(), String> {
        let world = self.world()?;
        if world.process(slot).is_none() {
            return Err("it does not run".to_owned());
        }
        world.give(slot, Input::Command(command));
        Ok(())
    }

    pub(super) fn store_commands(&mut self, words: &[&str]) -> Result<bool, String> {
        match *words {
            ["store", "init"] => self.init(0)?,
            ["store", "init", token] => self.init(value(token)?)?,
            ["store", "delete"] => {
                let world = self.world()?;
                world.store.put(None);
                world.trace_world(Level::Event, || "the record is deleted".to_owned());
                world.tell_change(None);
            }
            ["store", "rewind", writes] => {
                let writes: usize = value(writes)?;
                let world = self.world()?;
                world.store.rewind(writes);
                world.trace_world(Level::Event, || format!("the store goes back by {writes} writes"));
                world.tell_change(None);
            }
            ["store", "tells", "changes"] => self.world()?.store.tells_changes = true,
            ["store", "removes", "first"] => {
                let world = self.world()?;
                let notice = world.sessions.remove_first();
                world.trace_world(Level::Event, || "the first entry is removed by hand".to_owned());
                world.notify(&notice);
            }
            ["store", "ends", "session", node] => {
                let slot = self.slot(node)?;
                let world = self.world()?;
                let who = world.process(slot).ok_or("it does not run")?.me;
                let notice = world.sessions.end_session_of(who);
                world.trace_world(Level::Event, || format!("the store ends the session of {}", who.node));
                world.notify(&notice);
            }
            ["store", "ends", "sessions", "late", by] => self.world()?.sessions.lateness = duration(by)?,
            ["store", "gives", "sessions", timeout] => {
                self.world()?.sessions.timeout = Some(duration(timeout)?);
            }
            ["request-resign", by] if self.world()?.sessions.first().is_some() => {
                let world = self.world()?;
                let notice = world.sessions.ask_to_resign();
                world.trace_world(Level::Event, || format!("{by} asks the first to resign"));
                world.notify(&notice);
            }
            ["request-resign", by] => {
                let world = self.world()?;
                let record = world.store.record().cloned().ok_or("there is no record")?;
                let request = ResignRequest { token: record.token, by: by.to_owned() };
                world.store.put(Some(Record { resign_request: Some(request), ..record }));
                world.trace_world(Level::Event, || format!("{by} leaves a request to resign"));
                world.tell_change(None);
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn init(&mut self, token: u64) -> Result<(), String> {
        let world = self.world()?;
        let duration = world.node(ProcessSlot(0)).settings.lease_duration();
        world.store.put(Some(Record::released(FencingToken(token), duration)));
        Ok(())
    }
}
