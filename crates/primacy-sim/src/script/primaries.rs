//! The commands of clients of partitions, and of the work of their primaries.

use primacy_core::{Duration, NodeId};
use primacy_kv::command::Command;
use primacy_kv::partitions::{Command as Order, GroupName};

use super::Script;
use super::clients::session;
use crate::algorithm::{Algorithm, duration, value};
use crate::world::clients::Wanted;

impl<A: Algorithm> Script<A> {
    pub(super) fn partition_commands(&mut self, words: &[&str]) -> Result<bool, String> {
        let name = |node: &str| NodeId::new(node).map_err(|error| error.to_string());
        match *words {
            ["client", node, "joins", number, time] => {
                let (session, time_to_live) = (session(number)?, duration(time)?);
                self.order(node, Order::Join { session, time_to_live })?;
            }
            ["client", node, "leaves", number] => {
                let session = session(number)?;
                self.order(node, Order::Leave { session })?;
            }
            ["client", node, "gives", "back", number] => self.give_back(node, number, false)?,
            ["client", node, "gives", "back", "all", number] => self.give_back(node, number, true)?,
            ["client", node, "creates", name, count] => {
                let (group, count) = (group(name)?, value(count)?);
                self.order(node, Order::Create { group, count })?;
            }
            ["client", node, "drops", name] => {
                let group = group(name)?;
                self.order(node, Order::Drop { group })?;
            }
            ["client", node, "drains", other] => self.order(node, Order::Drain { node: name(other)? })?,
            ["client", node, "undrains", other] => self.order(node, Order::Undrain { node: name(other)? })?,
            ["client", node, "moves", group_name, index, "to", other] => {
                let (group, index) = (group(group_name)?, value(index)?);
                self.order(node, Order::Move { group, index, node: name(other)? })?;
            }
            ["write", node, group, index] => self.write_to(node, group, index, Duration::ZERO)?,
            ["write", node, group, index, "late", by] => self.write_to(node, group, index, duration(by)?)?,
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn order(&mut self, node: &str, order: Order) -> Result<(), String> {
        self.ask(node, Wanted::Command(Command::Partitions(order)))
    }

    fn give_back(&mut self, node: &str, number: &str, all: bool) -> Result<(), String> {
        let (slot, session) = (self.slot(node)?, session(number)?);
        let (up_to, ranges) = self.world()?.to_give_back(slot, all);
        self.order(node, Order::Release { session, up_to, ranges })
    }

    fn write_to(&mut self, node: &str, name: &str, index: &str, after: Duration) -> Result<(), String> {
        let (slot, place) = (self.slot(node)?, (group(name)?, value(index)?));
        self.world()?.write_as_primary(slot, place, after)
    }
}

fn group(name: &str) -> Result<GroupName, String> {
    GroupName::new(name).map_err(|error| error.to_string())
}
