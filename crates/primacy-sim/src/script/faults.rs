//! The commands of faults of nodes and messages.

use super::Script;
use crate::algorithm::{Algorithm, duration, parts_per_million};
use crate::disk::MetByCrash;
use crate::network::{Chance, Host, PacketFault, Rule, STORE};
use crate::partition::Shape;
use crate::process_slot::ProcessSlot;
use crate::store::{Mishap, Mood};
use crate::trace::Level;
use crate::world::World;
use crate::world::faults::Crash;

impl<A: Algorithm> Script<A> {
    pub(super) fn host(&mut self, name: &str) -> Result<Host, String> {
        if name == "store" {
            return Ok(STORE);
        }
        let slot = self.slot(name)?;
        Ok(self.world()?.host(slot))
    }

    fn any_host(&mut self, name: &str) -> Result<Option<Host>, String> {
        if name == "any" { Ok(None) } else { self.host(name).map(Some) }
    }

    pub(super) fn node_faults(&mut self, words: &[&str]) -> Result<bool, String> {
        match *words {
            ["crash", "guardian", node] => {
                let slot = self.slot(node)?;
                self.world()?.crash_guardian(slot);
            }
            ["crash", "host", node, ref met @ ..] => self.crash(node, Crash::Host, met)?,
            ["crash", node, "and", "guardian", ref met @ ..] => {
                self.crash(node, Crash::ProcessAndGuardian, met)?;
            }
            ["crash", node, "at", "its", "next", "write"] => {
                let slot = self.slot(node)?;
                self.world()?.node_mut(slot).crash_at_write = Some(MetByCrash::Lost);
            }
            ["crash", node, "at", "its", "next", "write", "kept"] => {
                let slot = self.slot(node)?;
                self.world()?.node_mut(slot).crash_at_write = Some(MetByCrash::Kept);
            }
            ["crash", node, ref met @ ..] => self.crash(node, Crash::Process, met)?,
            ["restart", node] => self.restart(node, false)?,
            ["restart", node, "without", "disk"] => self.restart(node, true)?,
            ["restart", node, "without", "log"] => {
                let slot = self.slot(node)?;
                if !self.world()?.restart_without_log(slot) {
                    return Err(format!("{node} runs, or keeps no log"));
                }
            }
            ["restart", node, "with", "disk", number] => {
                let slot = self.slot(node)?;
                let number = number.parse().map_err(|_| "the disks of a node are numbered".to_owned())?;
                if !self.world()?.restart_with(slot, number) {
                    return Err(format!("{node} runs, or has no such disk"));
                }
            }
            ["rot", node] => self.at(node, World::rot)?,
            ["readmit", node, "at", by, "in", "vain"] => {
                let (slot, other) = (self.slot(node)?, self.slot(by)?);
                if self.world()?.readmit(slot, other) {
                    return Err(format!("{by} readmits {node}"));
                }
            }
            ["readmit", node, "at", by] => {
                let (slot, other) = (self.slot(node)?, self.slot(by)?);
                if !self.world()?.readmit(slot, other) {
                    return Err(format!("{by} cannot readmit {node}"));
                }
            }
            ["pause", node] => self.at(node, |world, slot| world.pause(slot))?,
            ["resume", node] => self.at(node, |world, slot| world.resume(slot))?,
            ["freeze", node] => self.at(node, |world, slot| world.freeze(slot))?,
            ["thaw", node] => self.at(node, |world, slot| world.thaw(slot))?,
            ["clock", node, rate] => {
                let (slot, ppm) = (self.slot(node)?, parts_per_million(rate)?);
                self.world()?.set_rate(slot, ppm);
            }
            ["jump", node, by] => {
                let (slot, by) = (self.slot(node)?, duration(by)?);
                self.world()?.jump(slot, by);
            }
            ["disk", node, "fails"] => {
                self.at(node, |world, slot| world.node_mut(slot).disk.failing = true)?
            }
            ["disk", node, "works"] => {
                self.at(node, |world, slot| world.node_mut(slot).disk.failing = false)?
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn at(&mut self, node: &str, act: impl FnOnce(&mut World<A>, ProcessSlot)) -> Result<(), String> {
        let slot = self.slot(node)?;
        act(self.world()?, slot);
        Ok(())
    }

    fn crash(&mut self, node: &str, what: Crash, met: &[&str]) -> Result<(), String> {
        let met = match *met {
            [] => MetByCrash::Lost,
            ["kept"] => MetByCrash::Kept,
            _ => return Err("a write that a crash meets is kept, or lost if that is not said".to_owned()),
        };
        let slot = self.slot(node)?;
        if self.world()?.process(slot).is_none() {
            return Err(format!("{node} does not run"));
        }
        self.world()?.crash(slot, what, met);
        Ok(())
    }

    fn restart(&mut self, node: &str, disk_lost: bool) -> Result<(), String> {
        let slot = self.slot(node)?;
        if self.world()?.process(slot).is_some() {
            return Err(format!("{node} runs"));
        }
        self.world()?.restart(slot, disk_lost);
        Ok(())
    }

    pub(super) fn message_faults(&mut self, words: &[&str]) -> Result<bool, String> {
        match *words {
            ["cut", a, "->", b] => self.cut(&[(a, b)], true)?,
            ["cut", a, b] => self.cut(&[(a, b), (b, a)], true)?,
            ["join", a, b] => {
                self.cut(&[(a, b), (b, a)], false)?;
                self.world()?.connect_all();
            }
            ["isolate", node] => self.isolate(node)?,
            ["links", ref links @ ..] => self.only_links(links)?,
            ["heal"] => {
                let world = self.world()?;
                world.network.heal();
                world.store.heal();
                world.trace_world(Level::Event, || "the network is healed".to_owned());
                world.connect_all();
            }
            ["chance", ref words @ ..] => self.chance(words)?,
            ["close", a, b] => {
                let (a, b) = (self.slot(a)?, self.slot(b)?);
                self.world()?.close(a, b);
            }
            ["drop", times, from, "->", to, ref kind @ ..] => {
                self.aim(PacketFault::Drop, times, (from, to), kind)?
            }
            ["double", times, from, "->", to, ref kind @ ..] => {
                self.aim(PacketFault::Double, times, (from, to), kind)?;
            }
            ["delay", times, from, "->", to, by, ref kind @ ..] => {
                self.aim(PacketFault::Delay(duration(by)?), times, (from, to), kind)?;
            }
            ["store", "down"] => self.world()?.store.mood = Mood::Down,
            ["store", "silent"] => self.world()?.store.mood = Mood::Silent,
            ["store", "up"] => self.world()?.store.mood = Mood::Up,
            ["store", "lies"] => self.world()?.store.lies = true,
            ["lose", "next", "reply", node] => self.mishap(node, Mishap::ReplyLost)?,
            ["repeat", "next", "write", node] => self.mishap(node, Mishap::DoneTwice)?,
            ["unknown", "next", "write", node] => self.mishap(node, Mishap::UnknownButDone)?,
            ["unknown", "next", "write", node, "undone"] => self.mishap(node, Mishap::UnknownNotDone)?,
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn cut(&mut self, links: &[(&str, &str)], cut: bool) -> Result<(), String> {
        for (from, to) in links {
            let (from, to) = (self.host(from)?, self.host(to)?);
            self.world()?.network.set_cut(from, to, cut);
        }
        Ok(())
    }

    /// Keeps only these links between nodes, so that nodes differ in the nodes that they reach.
    fn only_links(&mut self, links: &[&str]) -> Result<(), String> {
        let pair = |link: &&str| link.split_once('-').map(|(a, b)| [a.to_owned(), b.to_owned()]);
        let pairs: Option<Vec<[String; 2]>> = links.iter().map(pair).collect();
        let mut kept = Vec::new();
        for [a, b] in pairs.ok_or("a link is two names and a dash: a-b")? {
            kept.push((self.host(&a)?, self.host(&b)?));
        }
        let world = self.world()?;
        world.counters.count("fault: partition");
        let hosts: Vec<Host> = world.slots().map(|slot| world.host(slot)).collect();
        for &a in &hosts {
            for &b in hosts.iter().filter(|&&b| b != a) {
                let cut = !kept.contains(&(a, b)) && !kept.contains(&(b, a));
                world.network.set_cut(a, b, cut);
            }
        }
        let leader = world.leaders().next();
        let linked = |a: usize, b: usize| !world.network.is_cut(hosts[a], hosts[b]);
        let shape = leader.and_then(|leader| Shape::of(hosts.len(), leader.0, linked));
        world.network.set_shape(shape);
        world.connect_all();
        Ok(())
    }

    fn chance(&mut self, words: &[&str]) -> Result<(), String> {
        let share = |text: &str| {
            let ppm = u32::try_from(parts_per_million(text)?).ok().filter(|&ppm| ppm <= 1_000_000);
            ppm.ok_or_else(|| "a chance is between nothing and 100%".to_owned())
        };
        let chance = &mut self.world()?.network.chance;
        match *words {
            ["none"] => *chance = Chance::default(),
            ["lost", of] => chance.lost = share(of)?,
            ["doubled", of] => chance.doubled = share(of)?,
            ["doubled", of, "up", "to", most] | ["delayed", of, "up", "to", most] => {
                let place = if words[0] == "doubled" { &mut chance.doubled } else { &mut chance.delayed };
                *place = share(of)?;
                chance.delay_max = duration(most)?;
            }
            _ => return Err("chance lost 2%, chance doubled 1%, chance delayed 1% up to 2s".to_owned()),
        }
        if chance.lost + chance.doubled + chance.delayed > 1_000_000 {
            return Err("together these are more than all packets".to_owned());
        }
        Ok(())
    }

    fn isolate(&mut self, node: &str) -> Result<(), String> {
        let alone = self.host(node)?;
        let world = self.world()?;
        world.counters.count("fault: isolation");
        let others: Vec<Host> = world.slots().map(|slot| world.host(slot)).chain([STORE]).collect();
        for other in others.into_iter().filter(|&other| other != alone) {
            world.network.set_cut(alone, other, true);
            world.network.set_cut(other, alone, true);
        }
        Ok(())
    }

    fn aim(
        &mut self,
        fault: PacketFault,
        times: &str,
        (from, to): (&str, &str),
        kind: &[&str],
    ) -> Result<(), String> {
        let times = match times {
            "next" => Some(1),
            "all" => None,
            count => Some(count.parse().map_err(|_| "write next, all or a number".to_owned())?),
        };
        let kind = match *kind {
            [] => None,
            [kind] => Some(kind.to_owned()),
            _ => return Err("a fault is aimed at one kind of message".to_owned()),
        };
        let (from, to) = (self.any_host(from)?, self.any_host(to)?);
        self.world()?.network.add_rule(Rule { from, to, kind, fault, times });
        Ok(())
    }

    fn mishap(&mut self, node: &str, mishap: Mishap) -> Result<(), String> {
        let slot = self.slot(node)?;
        let name = self.world()?.node(slot).name;
        self.world()?.store.aim(name, mishap);
        Ok(())
    }
}
