//! The effects of commands on partitions, and the choice of primaries.
//!
//! The choice depends only on names, loads and former primaries, so all replicas make the same choice.

use alloc::vec;
use alloc::vec::Vec;
use core::cmp::Reverse;

use primacy_core::id::{Identity, NodeId};

use super::{
    Command, GROUPS_MAX, Group, GroupName, NODES_MAX, Next, Node, NodeIndex, PARTITIONS_MAX, Partitions,
    Ranges, Refusal, Slot, Up,
};
use crate::session_id::SessionId;

/// The number of partitions that each node will have when all plans are completed, by its index.
type Loads = Vec<u32>;

impl Partitions {
    /// Applies a command. The sender is the incarnation whose request it is.
    pub(crate) fn obey(&mut self, sender: Identity, command: &Command) -> Result<(), CommandRefusal> {
        match command {
            Command::Join { session, time_to_live } => {
                let up =
                    Up { session: *session, time_to_live: *time_to_live, incarnation: sender.incarnation };
                self.join(sender.node, up)?;
            }
            Command::Leave { session } => {
                if !self.end(*session) {
                    return Err(CommandRefusal::SessionNotFound);
                }
            }
            Command::Release { session, up_to, ranges } => {
                let place = self.place_of_session(*session).ok_or(CommandRefusal::SessionNotFound)?;
                self.release(place, *up_to, ranges);
            }
            Command::Create { group, count } => self.create(group, *count)?,
            Command::Drop { group } => self.remove(group)?,
            Command::Drain { node } => self.drain(*node)?,
            Command::Undrain { node } => self.undrain(*node),
            Command::Move { group, index, node } => self.move_one(group, *index, *node)?,
        }
        Ok(())
    }

    /// Ends the session of a node, which loses all its partitions. Returns `false` if no node is up by this session.
    pub(crate) fn end(&mut self, session: SessionId) -> bool {
        let Some(place) = self.place_of_session(session) else { return false };
        self.step += 1;
        self.nodes[place.index()].up = None;
        let (step, nodes) = (self.step, &self.nodes);
        for slot in self.groups.values_mut().flat_map(|group| &mut group.slots) {
            if slot.primary == Some(place) {
                slot.given_back(nodes, step);
            }
        }
        self.forget_unless_needed(place);
        self.sweep();
        self.settle();
        true
    }

    fn join(&mut self, name: NodeId, up: Up) -> Result<(), Refusal> {
        let Some(place) = self.place(name) else {
            if self.nodes.len() >= NODES_MAX {
                return Err(Refusal::TooManyNodes);
            }
            self.step += 1;
            self.insert(Node { name, drained: false, up: Some(up) });
            self.settle();
            return Ok(());
        };
        let former = self.nodes[place.index()].up;
        if former.is_some_and(|former| former.incarnation.count >= up.incarnation.count) {
            return Err(Refusal::NodeUp);
        }
        self.step += 1;
        self.nodes[place.index()].up = Some(up);
        let (step, nodes) = (self.step, &self.nodes);
        for group in self.groups.values_mut() {
            let ending = group.ending;
            for slot in group.slots.iter_mut().filter(|slot| slot.primary == Some(place)) {
                match slot.next {
                    // It keeps the partitions of the former incarnation, under new numbers.
                    Next::Stays => slot.give(place, step),
                    Next::Taken(None) if !ending => slot.give(place, step),
                    Next::Taken(_) => slot.given_back(nodes, step),
                }
            }
        }
        self.sweep();
        self.settle();
        Ok(())
    }

    fn release(&mut self, place: NodeIndex, up_to: u64, ranges: &[Ranges]) {
        let (step, may_get) = (self.step + 1, self.may_get());
        let mut all = loads_of(self.nodes.len(), self.groups.values());
        let mut changed = false;
        for Ranges { group: name, ranges } in ranges {
            let Some(group) = self.groups.get_mut(name) else { continue };
            let mut here = loads_of(self.nodes.len(), [&*group]);
            let count = group.count();
            for index in ranges.iter().flat_map(|range| range.start..range.end.min(count)) {
                let slot =
                    &mut group.slots[usize::try_from(index).expect("it is below the length of a list")];
                if slot.primary != Some(place) || slot.number > up_to {
                    continue;
                }
                changed = true;
                if slot.next != Next::Stays {
                    slot.given_back(&self.nodes, step);
                    continue;
                }
                // No next node is planned. The partition goes to the node with the lowest load, in this group and then
                // in all groups; to the same node only if there is no other.
                let load =
                    |other: &NodeIndex| (*other == place, here[other.index()], all[other.index()], *other);
                let other = may_get.iter().copied().min_by_key(load);
                slot.free();
                for loads in [&mut here, &mut all] {
                    loads[place.index()] -= 1;
                    if let Some(other) = other {
                        loads[other.index()] += 1;
                    }
                }
                if let Some(other) = other {
                    slot.give(other, step);
                }
            }
        }
        if changed {
            self.step = step;
            self.sweep();
        }
    }

    fn create(&mut self, name: &GroupName, count: u32) -> Result<(), Refusal> {
        if self.groups.contains_key(name) {
            return Err(Refusal::GroupExists);
        }
        if count == 0 {
            return Err(Refusal::NoPartitions);
        }
        if self.groups.len() >= GROUPS_MAX {
            return Err(Refusal::TooManyGroups);
        }
        if self.count.saturating_add(count) > PARTITIONS_MAX {
            return Err(Refusal::TooManyPartitions);
        }
        self.count += count;
        let count = usize::try_from(count).expect("no more than PARTITIONS_MAX");
        self.step += 1;
        self.groups.insert(name.clone(), Group { slots: vec![Slot::FREE; count], ending: false });
        self.settle();
        Ok(())
    }

    fn remove(&mut self, name: &GroupName) -> Result<(), Refusal> {
        let group = self.groups.get_mut(name).filter(|group| !group.ending).ok_or(Refusal::GroupNotFound)?;
        self.step += 1;
        group.ending = true;
        for slot in &mut group.slots {
            if slot.primary.is_some() {
                slot.next = Next::Taken(None);
            }
        }
        self.sweep();
        self.settle();
        Ok(())
    }

    fn drain(&mut self, name: NodeId) -> Result<(), Refusal> {
        match self.place(name) {
            Some(place) if self.nodes[place.index()].drained => return Ok(()),
            Some(place) => self.nodes[place.index()].drained = true,
            None if self.nodes.len() >= NODES_MAX => return Err(Refusal::TooManyNodes),
            None => {
                self.insert(Node { name, drained: true, up: None });
            }
        }
        self.step += 1;
        self.settle();
        Ok(())
    }

    fn undrain(&mut self, name: NodeId) {
        let Some(place) = self.place(name) else { return };
        if core::mem::take(&mut self.nodes[place.index()].drained) {
            self.step += 1;
            self.forget_unless_needed(place);
            self.settle();
        }
    }

    fn move_one(&mut self, name: &GroupName, index: u32, node: NodeId) -> Result<(), Refusal> {
        let place = self.place(node).filter(|place| self.nodes[place.index()].up.is_some());
        let group = self.groups.get_mut(name).filter(|group| !group.ending).ok_or(Refusal::GroupNotFound)?;
        let count = group.count();
        let slot = usize::try_from(index).ok().and_then(|index| group.slots.get_mut(index));
        let slot = slot.ok_or(Refusal::PartitionNotFound { count })?;
        let place = place.ok_or(Refusal::NodeNotUp)?;
        if self.nodes[place.index()].drained {
            return Err(Refusal::NodeDrained);
        }
        if slot.owner() != Some(place) {
            self.step += 1;
            match slot.primary {
                Some(_) => slot.next = Next::Taken(Some(place)),
                None => slot.give(place, self.step),
            }
        }
        Ok(())
    }

    // ── nodes and their places ──────────────────────────────────────────────────────────────────────────────

    /// Inserts a new node. The indices of the nodes after it change.
    fn insert(&mut self, node: Node) {
        let index = self.nodes.partition_point(|other| other.name < node.name);
        self.nodes.insert(index, node);
        self.replace(|place| if place.index() >= index { NodeIndex::of(place.index() + 1) } else { place });
    }

    /// Forgets a node that is neither up nor drained.
    fn forget_unless_needed(&mut self, place: NodeIndex) {
        let index = place.index();
        if self.nodes[index].up.is_some() || self.nodes[index].drained {
            return;
        }
        for slot in self.groups.values_mut().flat_map(|group| &mut group.slots) {
            if slot.next == Next::Taken(Some(place)) {
                slot.next = Next::Taken(None);
            }
        }
        self.nodes.remove(index);
        self.replace(|place| if place.index() > index { NodeIndex::of(place.index() - 1) } else { place });
    }

    fn replace(&mut self, moved: impl Fn(NodeIndex) -> NodeIndex) {
        for slot in self.groups.values_mut().flat_map(|group| &mut group.slots) {
            slot.primary = slot.primary.map(&moved);
            if let Next::Taken(next) = &mut slot.next {
                *next = next.map(&moved);
            }
        }
    }

    fn may_get(&self) -> Vec<NodeIndex> {
        let nodes = self.nodes.iter().enumerate().filter(|(_, node)| node.may_get());
        nodes.map(|(index, _)| NodeIndex::of(index)).collect()
    }

    /// Removes dropped groups whose partitions have no primaries left.
    fn sweep(&mut self) {
        let is_used = |group: &Group| group.slots.iter().any(|slot| slot.primary.is_some());
        self.groups.retain(|_, group| !group.ending || is_used(group));
        self.count = self.groups.values().map(Group::count).sum();
    }

    // ── assignment ──────────────────────────────────────────────────────────────────────────────────────────

    /// Gives free partitions a primary, takes back partitions that are to move, and plans their next primaries.
    fn settle(&mut self) {
        let may_get = self.may_get();
        let (step, nodes) = (self.step, &self.nodes);
        let groups = self.groups.values_mut().filter(|group| !group.ending);
        let mut groups: Vec<&mut Group> = groups.collect();
        if may_get.is_empty() {
            // Every node keeps its partitions, even a drained one, because no other node could have them.
            for slot in groups.iter_mut().flat_map(|group| &mut group.slots) {
                if let Next::Taken(_) = slot.next {
                    slot.next = Next::Taken(None);
                }
            }
            return;
        }
        for group in &mut groups {
            group.disown(nodes);
        }
        let mut all = loads_of(nodes.len(), groups.iter().map(|group| &**group));
        let mut each = Vec::with_capacity(groups.len());
        for group in &mut groups {
            each.push(group.level(&may_get, &mut all, step));
        }
        level_all(&mut groups, &mut each, &mut all, &may_get);
    }
}

/// The reason why a command was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CommandRefusal {
    SessionNotFound,
    Partitions(Refusal),
}

impl From<Refusal> for CommandRefusal {
    fn from(refusal: Refusal) -> Self {
        Self::Partitions(refusal)
    }
}

impl Slot {
    /// Gives the partition to the planned node, after its primary has given it back, or is gone.
    fn given_back(&mut self, nodes: &[Node], step: u64) {
        match self.next {
            Next::Taken(Some(next)) if nodes[next.index()].may_get() => self.give(next, step),
            Next::Taken(_) | Next::Stays => self.free(),
        }
    }
}

impl Group {
    /// Removes the owner of each partition whose present or planned primary may not have it.
    fn disown(&mut self, nodes: &[Node]) {
        for slot in &mut self.slots {
            let stays = slot.owner().is_some_and(|owner| nodes[owner.index()].may_get());
            if !stays && slot.primary.is_some() {
                slot.next = Next::Taken(None);
            }
        }
    }

    /// Gives every partition an owner, so that loads differ by one at most, with as few moves as possible. Returns the
    /// loads in this group, and updates those in all groups.
    fn level(&mut self, may_get: &[NodeIndex], all: &mut Loads, step: u64) -> Loads {
        let mut loads = loads_of(all.len(), [&*self]);
        let mut order = may_get.to_vec();
        // If the partitions cannot be divided evenly, the nodes with the most keep one more than the others: this needs
        // the fewest moves.
        order.sort_by_key(|place| (Reverse(loads[place.index()]), all[place.index()], *place));
        let (each, rest) = (self.slots.len() / order.len(), self.slots.len() % order.len());
        let mut wanted = vec![0; all.len()];
        for (rank, place) in order.iter().enumerate() {
            let share = each + usize::from(rank < rest);
            wanted[place.index()] = u32::try_from(share).expect("no more than PARTITIONS_MAX");
        }
        let mut surplus = vec![0; all.len()];
        for place in may_get.iter().map(|place| place.index()) {
            surplus[place] = loads[place].saturating_sub(wanted[place]);
            all[place] = all[place] + wanted[place] - loads[place];
            loads[place] -= surplus[place];
        }
        self.take(surplus, None);
        let mut receivers = may_get.iter().copied();
        let mut receiver = receivers.next();
        for slot in self.slots.iter_mut().filter(|slot| slot.owner().is_none()) {
            while let Some(place) = receiver
                && loads[place.index()] >= wanted[place.index()]
            {
                receiver = receivers.next();
            }
            let place = receiver.expect("as many shares as partitions");
            loads[place.index()] += 1;
            match slot.primary {
                Some(_) => slot.next = Next::Taken(Some(place)),
                None => slot.give(place, step),
            }
        }
        loads
    }

    /// Takes the surplus of partitions from each owner, for `next`: first those that the owner does not have yet.
    fn take(&mut self, mut surplus: Loads, next: Option<NodeIndex>) {
        let is_held = |slot: &Slot| slot.next == Next::Stays;
        let is_on_its_way = |slot: &Slot| slot.next != Next::Stays;
        for which in [is_on_its_way, is_held] {
            if surplus.iter().all(|&count| count == 0) {
                return;
            }
            for slot in self.slots.iter_mut().rev().filter(|slot| which(slot)) {
                let Some(owner) = slot.owner().map(NodeIndex::index) else { continue };
                if surplus[owner] > 0 {
                    surplus[owner] -= 1;
                    slot.next = Next::Taken(next);
                }
            }
        }
        assert!(surplus.iter().all(|&count| count == 0), "an owner has what its load says");
    }
}

/// Moves partitions until loads differ by one at most in all groups together. While they differ by more, there is a
/// group in which the most loaded node has one partition more than the least loaded node; moving that one keeps the
/// difference in the group at one.
fn level_all(groups: &mut [&mut Group], each: &mut [Loads], all: &mut Loads, may_get: &[NodeIndex]) {
    loop {
        let load = |place: &&NodeIndex| all[place.index()];
        let most = *may_get.iter().rev().max_by_key(load).expect("there is one");
        let least = *may_get.iter().min_by_key(load).expect("there is one");
        if all[most.index()] <= all[least.index()] + 1 {
            return;
        }
        let has_more = |loads: &Loads| loads[most.index()] > loads[least.index()];
        let index = each.iter().position(has_more).expect("sums differ where summands do");
        let mut one = vec![0; all.len()];
        one[most.index()] = 1;
        groups[index].take(one, Some(least));
        for loads in [&mut each[index], &mut *all] {
            loads[most.index()] -= 1;
            loads[least.index()] += 1;
        }
    }
}

/// The loads of all nodes in these groups.
fn loads_of<'a>(nodes: usize, groups: impl IntoIterator<Item = &'a Group>) -> Loads {
    let mut loads = vec![0; nodes];
    for slot in groups.into_iter().filter(|group| !group.ending).flat_map(|group| &group.slots) {
        if let Some(owner) = slot.owner() {
            loads[owner.index()] += 1;
        }
    }
    loads
}
