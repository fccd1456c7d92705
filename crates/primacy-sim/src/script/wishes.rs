//! The commands for machines and their surroundings.

use primacy_core::election::lease::{Record, ResignRequest};
use primacy_core::{Command, Duration, FencingToken, Input};

use super::Script;
use crate::algorithm::{Algorithm, Settings as _, duration, value};
use crate::seat::Seat;
use crate::trace::Level;

impl<A: Algorithm> Script<A> {
    pub(super) fn wishes(&mut self, words: &[&str]) -> Result<bool, String> {
        match *words {
            ["campaign", ref names @ ..] => {
                for seat in self.seats(names)? {
                    self.world()?.node_mut(seat).campaigns = true;
                    self.wish(seat, Command::Campaign)?;
                }
            }
            ["withdraw", node] => {
                let seat = self.seat(node)?;
                self.world()?.node_mut(seat).campaigns = false;
                self.wish(seat, Command::Withdraw)?;
            }
            ["resign", node] => {
                let seat = self.seat(node)?;
                self.wish(seat, Command::Resign)?;
            }
            ["transfer", node, to] => {
                let (seat, to) = (self.seat(node)?, self.seat(to)?);
                let to = self.world()?.node(to).name;
                self.wish(seat, Command::Transfer(to))?;
            }
            ["health", node, "good"] => {
                let seat = self.seat(node)?;
                self.wish(seat, Command::Healthy(true))?;
            }
            ["health", node, "bad"] => {
                let seat = self.seat(node)?;
                self.wish(seat, Command::Healthy(false))?;
            }
            ["down", at, node] => {
                let (seat, node) = (self.seat(at)?, self.seat(node)?);
                let node = self.world()?.node(node).name;
                self.wish(seat, Command::Down(node))?;
            }
            ["busy", node] => {
                let seat = self.seat(node)?;
                self.world()?.node_mut(seat).busy = true;
            }
            ["idle", node] => {
                let seat = self.seat(node)?;
                self.world()?.node_mut(seat).busy = false;
            }
            ["drained", node] => {
                let seat = self.seat(node)?;
                self.world()?.trace_node(seat, Level::Event, || "has drained its work".to_owned());
                self.world()?.drained(seat);
            }
            ["write", node] => {
                let seat = self.seat(node)?;
                self.world()?.write(seat, Duration::ZERO)?;
            }
            ["write", node, "late", by] => {
                let (seat, by) = (self.seat(node)?, duration(by)?);
                self.world()?.write(seat, by)?;
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn wish(&mut self, seat: Seat, command: Command) -> Result<(), String> {
        let world = self.world()?;
        if world.process(seat).is_none() {
            return Err("it does not run".to_owned());
        }
        world.give(seat, Input::Command(command));
        Ok(())
    }

    pub(super) fn store_wishes(&mut self, words: &[&str]) -> Result<bool, String> {
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
                let news = world.sessions.remove_first();
                world.trace_world(Level::Event, || "the first entry is removed by hand".to_owned());
                world.tell_news(&news);
            }
            ["store", "ends", "session", node] => {
                let seat = self.seat(node)?;
                let world = self.world()?;
                let who = world.process(seat).ok_or("it does not run")?.me;
                let news = world.sessions.end_session_of(who);
                world.trace_world(Level::Event, || format!("the store ends the session of {}", who.node));
                world.tell_news(&news);
            }
            ["store", "ends", "sessions", "late", by] => self.world()?.sessions.lateness = duration(by)?,
            ["store", "gives", "sessions", timeout] => {
                self.world()?.sessions.timeout = Some(duration(timeout)?);
            }
            ["request-resign", by] if self.world()?.sessions.first().is_some() => {
                let world = self.world()?;
                let news = world.sessions.ask_to_resign();
                world.trace_world(Level::Event, || format!("{by} asks the first to resign"));
                world.tell_news(&news);
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
        let duration = world.node(Seat(0)).settings.lease_duration();
        world.store.put(Some(Record::released(FencingToken(token), duration)));
        Ok(())
    }
}
