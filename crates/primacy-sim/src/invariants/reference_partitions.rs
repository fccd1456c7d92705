//! A naive reference model of the partitions: it makes no assignments, and checks the rules that every
//! assignment must keep.

use std::collections::{BTreeMap, BTreeSet};

use primacy_core::{Identity, NodeId};
use primacy_kv::command::{Command, Refusal, SessionId};
use primacy_kv::partitions::{Command as Order, GroupName, Partitions, Plan, Ranges, Refusal as Refused};

/// The nodes that are up or drained, and the primary of each partition with its number.
#[derive(Clone, Debug, Default)]
pub(super) struct ReferencePartitions {
    up: BTreeMap<NodeId, Up>,
    drained: BTreeSet<NodeId>,
    groups: BTreeMap<GroupName, Group>,
    /// The highest number of any primary so far: a group that is deleted and created again must not reuse lower ones.
    highest: u64,
    pub(super) met: Vec<&'static str>,
}

#[derive(Clone, Copy, Debug)]
struct Up {
    session: SessionId,
    life: u64,
}

#[derive(Clone, Debug)]
struct Group {
    slots: Vec<Slot>,
    ending: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Slot {
    number: u64,
    primary: Option<NodeId>,
}

/// The partitions that a command frees: none, all of a node, or those that it names.
#[derive(Clone, Copy, Debug)]
enum Freed<'a> {
    Nothing,
    All(NodeId),
    Some { node: NodeId, up_to: u64, ranges: &'a [Ranges] },
}

impl Freed<'_> {
    fn has(&self, group: &GroupName, index: usize, slot: Slot) -> bool {
        match *self {
            Self::Nothing => false,
            Self::All(node) => slot.primary == Some(node),
            Self::Some { node, up_to, ranges } => {
                let here = ranges.iter().filter(|it| it.group == *group).flat_map(|it| &it.ranges);
                let index = u32::try_from(index).unwrap_or(u32::MAX);
                slot.primary == Some(node)
                    && slot.number <= up_to
                    && here.into_iter().any(|range| range.contains(&index))
            }
        }
    }
}

impl ReferencePartitions {
    fn node_of(&self, session: SessionId) -> Option<NodeId> {
        self.up.iter().find(|(_, up)| up.session == session).map(|(&node, _)| node)
    }

    /// True if a node is up by this session.
    pub(super) fn has(&self, session: SessionId) -> bool {
        self.node_of(session).is_some()
    }

    /// Returns the refusal that this order of this process must get, if any.
    pub(super) fn refusal(&self, sender: Identity, order: &Order) -> Option<Refusal> {
        let group = |name: &GroupName| self.groups.get(name).filter(|group| !group.ending);
        let refused = match order {
            Order::Join { .. } => {
                let known = self.up.get(&sender.node);
                let is_earlier = known.is_none_or(|up| up.life < sender.incarnation.count);
                (!is_earlier).then_some(Refused::NodeUp)
            }
            Order::Leave { session } | Order::Release { session, .. } => {
                return (!self.has(*session)).then_some(Refusal::SessionNotFound);
            }
            Order::Create { group, .. } if self.groups.contains_key(group) => Some(Refused::GroupExists),
            Order::Create { count, .. } => (*count == 0).then_some(Refused::NoPartitions),
            Order::Drop { group: name } => group(name).is_none().then_some(Refused::GroupNotFound),
            Order::Drain { .. } | Order::Undrain { .. } => None,
            Order::Move { group: name, index, node } => match group(name).map(|group| group.slots.len()) {
                None => Some(Refused::GroupNotFound),
                Some(count) if usize::try_from(*index).is_ok_and(|index| index >= count) => {
                    Some(Refused::PartitionNotFound { count: u32::try_from(count).unwrap_or(u32::MAX) })
                }
                Some(_) if !self.up.contains_key(node) => Some(Refused::NodeNotUp),
                Some(_) => self.drained.contains(node).then_some(Refused::NodeDrained),
            },
        };
        refused.map(Refusal::Partitions)
    }

    /// Records a command that was applied, and checks its result.
    pub(super) fn perform(
        &mut self,
        sender: Identity,
        command: &Command,
        found: &Partitions,
    ) -> Result<(), String> {
        let (freed, levels) = match command {
            Command::Partitions(order) => self.obey(sender, order),
            Command::Expire { session } if self.has(*session) => (self.end(*session), true),
            Command::Expire { .. } => (Freed::Nothing, false), // Of a client.
            Command::Operate(_) | Command::Begin { .. } | Command::End { .. } => (Freed::Nothing, false),
            Command::Compact(_) | Command::Forget { .. } | Command::Limit(_) | Command::Share(_) => {
                (Freed::Nothing, false)
            }
        };
        self.compare(freed, found)?;
        if levels { self.is_level(found) } else { Ok(()) }
    }

    /// Applies an order. Returns the partitions that it frees, and whether loads must be even afterwards.
    fn obey<'a>(&mut self, sender: Identity, order: &'a Order) -> (Freed<'a>, bool) {
        match order {
            Order::Join { session, .. } => {
                let up = Up { session: *session, life: sender.incarnation.count };
                let before = self.up.insert(sender.node, up);
                (before.map_or(Freed::Nothing, |_| Freed::All(sender.node)), true)
            }
            Order::Leave { session } => (self.end(*session), true),
            Order::Release { session, up_to, ranges } => {
                let freed = |node| Freed::Some { node, up_to: *up_to, ranges };
                (self.node_of(*session).map_or(Freed::Nothing, freed), false)
            }
            Order::Create { group, count } => {
                let slots = vec![Slot::default(); usize::try_from(*count).unwrap_or(usize::MAX)];
                self.groups.insert(group.clone(), Group { slots, ending: false });
                (Freed::Nothing, true)
            }
            Order::Drop { group } => {
                if let Some(group) = self.groups.get_mut(group) {
                    group.ending = true;
                }
                (Freed::Nothing, true)
            }
            Order::Drain { node } => (Freed::Nothing, self.drained.insert(*node)),
            Order::Undrain { node } => (Freed::Nothing, self.drained.remove(node)),
            Order::Move { .. } => (Freed::Nothing, false),
        }
    }

    fn end(&mut self, session: SessionId) -> Freed<'static> {
        let node = self.node_of(session);
        node.map_or(Freed::Nothing, |node| {
            self.up.remove(&node);
            Freed::All(node)
        })
    }

    fn compare(&mut self, freed: Freed<'_>, found: &Partitions) -> Result<(), String> {
        let mut groups = std::mem::take(&mut self.groups);
        groups.retain(|name, group| {
            let is_gone = found.groups().all(|(other, _)| other != name);
            let is_free =
                |(index, slot): (usize, &Slot)| slot.primary.is_none() || freed.has(name, index, *slot);
            !(is_gone && group.ending && group.slots.iter().enumerate().all(is_free))
        });
        if !found.groups().map(|(name, _)| name).eq(groups.keys()) {
            return Err("there are other groups of partitions than there should be".to_owned());
        }
        for (name, group) in &mut groups {
            let now: Vec<Slot> = found
                .runs(name)
                .flat_map(|run| {
                    let slot = Slot { number: run.partition.number, primary: run.partition.primary };
                    run.range.map(move |_| slot)
                })
                .collect();
            if now.len() != group.slots.len() {
                return Err(format!("{name} has {} partitions, and not {}", now.len(), group.slots.len()));
            }
            if group.ending && now.iter().all(|slot| slot.primary.is_none()) {
                return Err(format!("{name} is to go, nobody has any of it, and it is there"));
            }
            for (index, (before, now)) in group.slots.iter_mut().zip(now).enumerate() {
                let is_freed = freed.has(name, index, *before);
                self.look_at(is_freed, *before, now).map_err(|what| format!("{name} {index}: {what}"))?;
                *before = now;
            }
        }
        let numbers = groups.values().flat_map(|group| &group.slots).map(|slot| slot.number);
        self.highest = numbers.max().unwrap_or_default().max(self.highest);
        self.groups = groups;
        Ok(())
    }

    /// Compares one partition before a command and after it.
    fn look_at(&mut self, is_freed: bool, before: Slot, now: Slot) -> Result<(), String> {
        if before == now {
            return Ok(());
        }
        if before.primary.is_some() && !is_freed {
            return Err(format!("{before:?} becomes {now:?}, and its primary has not given it back"));
        }
        let Some(primary) = now.primary else {
            return if now.number == before.number { Ok(()) } else { Err("nobody has a number".to_owned()) };
        };
        if now.number <= self.highest {
            return Err(format!("{primary} gets number {} after {}", now.number, self.highest));
        }
        if !self.up.contains_key(&primary) {
            return Err(format!("{primary} gets it, and is not up"));
        }
        if before.primary != Some(primary) && self.drained.contains(&primary) {
            return Err(format!("{primary} gets it, and is drained"));
        }
        self.met.push(match before.primary {
            Some(former) if former == primary => "primaries: the same one under another number",
            Some(_) => "primaries: another one",
            None => "primaries: one for what was nobody's",
        });
        Ok(())
    }

    /// Checks that each remaining partition has a primary, and that loads differ by one at most.
    fn is_level(&self, found: &Partitions) -> Result<(), String> {
        let may_get = || self.up.keys().copied().filter(|node| !self.drained.contains(node));
        if may_get().next().is_none() {
            return Ok(());
        }
        let mut all: BTreeMap<NodeId, u32> = may_get().map(|node| (node, 0)).collect();
        for name in self.groups.iter().filter(|(_, group)| !group.ending).map(|(name, _)| name) {
            let mut here: BTreeMap<NodeId, u32> = may_get().map(|node| (node, 0)).collect();
            for run in found.runs(name) {
                let owner = match run.partition.plan {
                    Plan::Stays => run.partition.primary,
                    Plan::Taken(next) => next,
                };
                let load = owner.and_then(|owner| here.get_mut(&owner));
                let load =
                    load.ok_or_else(|| format!("{name} {:?} is for nobody who may have it", run.range))?;
                *load += run.range.end - run.range.start;
            }
            is_even(&here).map_err(|loads| format!("loads in {name}: {loads}"))?;
            here.into_iter().for_each(|(node, load)| *all.entry(node).or_default() += load);
        }
        is_even(&all).map_err(|loads| format!("loads in all groups: {loads}"))
    }
}

fn is_even(loads: &BTreeMap<NodeId, u32>) -> Result<(), String> {
    let (most, least) = (loads.values().max(), loads.values().min());
    let differ = most.zip(least).is_some_and(|(most, least)| most - least > 1);
    if differ { Err(format!("{loads:?}")) } else { Ok(()) }
}
