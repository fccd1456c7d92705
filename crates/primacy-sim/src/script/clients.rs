//! The commands of clients of replicated state, and of operators who change its voters.

use primacy_kv::command::{Bytes, Command, Keys, Operation, Read, SessionId};
use primacy_kv::machine::clients::Keep;
use primacy_kv::replication::replica::VoterChange;

use super::Script;
use crate::algorithm::{Algorithm, duration, value};
use crate::world::clients::{Wanted, delete, put, swap};

impl<A: Algorithm> Script<A> {
    pub(super) fn client_commands(&mut self, words: &[&str]) -> Result<bool, String> {
        let bytes = |text: &str| Bytes::from(text.as_bytes());
        match *words {
            ["client", node, "put", key, value] => {
                self.ask(node, Wanted::Command(Command::Operate(put(key, bytes(value), None))))?;
            }
            ["client", node, "put", key, value, "in", number] => {
                let put = put(key, bytes(value), Some(session(number)?));
                self.ask(node, Wanted::Command(Command::Operate(put)))?;
            }
            ["client", node, "swap", key, expected, value] => {
                let swap = swap(key, bytes(expected), bytes(value));
                self.ask(node, Wanted::Command(Command::Operate(swap)))?;
            }
            ["client", node, "delete", key] => {
                self.ask(node, Wanted::Command(Command::Operate(delete(key, 0))))?;
            }
            ["client", node, "get", key] => {
                let read = Read::of(Keys::One(bytes(key)));
                self.ask(node, Wanted::Read(Operation::Read(Box::new(read))))?;
            }
            ["client", node, "begin", number, time] => {
                let (session, time_to_live) = (session(number)?, duration(time)?);
                self.ask(node, Wanted::Command(Command::Begin { session, time_to_live }))?;
            }
            ["client", node, "end", number] => {
                let session = session(number)?;
                self.ask(node, Wanted::Command(Command::End { session }))?;
            }
            ["client", node, "keep", number] => {
                self.ask(node, Wanted::Session(session(number)?, Keep::Alive))?;
            }
            ["client", node, "look", number] => {
                self.ask(node, Wanted::Session(session(number)?, Keep::Look))?;
            }
            ["client", node, "keeps", number, time] => {
                let (slot, session, time_to_live) = (self.slot(node)?, session(number)?, duration(time)?);
                let world = self.world()?;
                world.keep_from_now_on(slot, session, time_to_live);
                world.keep_alive(session);
            }
            ["clients", "let", number, "go"] => {
                let session = session(number)?;
                if !self.world()?.clients.let_go(session) {
                    return Err("nobody keeps it alive".to_owned());
                }
            }
            ["operator", node, "adds", voter] => {
                let slot = self.slot(voter)?;
                let node_added = self.world()?.node(slot).name;
                let change = VoterChange::Add { node: node_added, address: node_added.as_str().into() };
                self.ask(node, Wanted::Revise(change))?;
            }
            ["operator", node, "removes", voter] => {
                let slot = self.slot(voter)?;
                let change = VoterChange::Remove { node: self.world()?.node(slot).name };
                self.ask(node, Wanted::Revise(change))?;
            }
            ["operator", node, "accepts", "the", "loss"] => self.ask(node, Wanted::AcceptLoss)?,
            ["clients", "ask", count] => {
                for _ in 0..value::<u32>(count)? {
                    self.world()?.ask_something();
                }
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    pub(super) fn ask(&mut self, node: &str, wanted: Wanted) -> Result<(), String> {
        let slot = self.slot(node)?;
        if self.world()?.ask(slot, wanted) { Ok(()) } else { Err("it does not run".to_owned()) }
    }
}

pub(super) fn session(number: &str) -> Result<SessionId, String> {
    SessionId::new(value(number)?).ok_or_else(|| "no session is 0".to_owned())
}
