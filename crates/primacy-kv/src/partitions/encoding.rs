//! Encoding of commands and partitions.
//!
//! Consecutive partitions with the same state are written once. Numbers are relative to the last step, and indices to
//! the end of the range before, so most are small.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use primacy_core::id::{Incarnation, NodeId};

use super::{
    Command, GROUPS_MAX, Group, GroupName, NODES_MAX, Next, Node, NodeIndex, PARTITIONS_MAX, Partitions,
    Ranges, Slot, Up,
};
use crate::encoding::{
    DecodeError, Reader, duration, incarnation, node, push_bytes, push_incarnation, push_number, session,
    unsigned,
};
use crate::session_id::SessionId;

mod tag {
    pub(super) const JOIN: u8 = 1;
    pub(super) const LEAVE: u8 = 2;
    pub(super) const RELEASE: u8 = 3;
    pub(super) const CREATE: u8 = 4;
    pub(super) const DROP: u8 = 5;
    pub(super) const DRAIN: u8 = 6;
    pub(super) const UNDRAIN: u8 = 7;
    pub(super) const MOVE: u8 = 8;
}

/// The flags of a node.
mod node_is {
    pub(super) const UP: u8 = 1;
    pub(super) const DRAINED: u8 = 2;
    pub(super) const ALL: u8 = 3;
}

/// The plan for a partition; from `TAKEN_FOR` on, the index of the node follows in the number.
mod next {
    pub(super) const STAYS: u64 = 0;
    pub(super) const TAKEN: u64 = 1;
    pub(super) const TAKEN_FOR: u64 = 2;
}

pub(crate) fn push_command(to: &mut Vec<u8>, command: &Command) {
    match command {
        Command::Join { session, time_to_live } => {
            to.push(tag::JOIN);
            push_session(to, *session);
            push_number(to, time_to_live.as_nanos());
        }
        Command::Leave { session } => {
            to.push(tag::LEAVE);
            push_session(to, *session);
        }
        Command::Release { session, up_to, ranges } => {
            to.push(tag::RELEASE);
            push_session(to, *session);
            push_number(to, *up_to);
            push_length(to, ranges.len());
            for ranges in ranges {
                push_ranges(to, ranges);
            }
        }
        Command::Create { group, count } => {
            to.push(tag::CREATE);
            push_group_name(to, group);
            push_number(to, u64::from(*count));
        }
        Command::Drop { group } => {
            to.push(tag::DROP);
            push_group_name(to, group);
        }
        Command::Drain { node } => {
            to.push(tag::DRAIN);
            push_node(to, *node);
        }
        Command::Undrain { node } => {
            to.push(tag::UNDRAIN);
            push_node(to, *node);
        }
        Command::Move { group, index, node } => {
            to.push(tag::MOVE);
            push_group_name(to, group);
            push_number(to, u64::from(*index));
            push_node(to, *node);
        }
    }
}

pub(crate) fn command(from: &mut Reader<'_>) -> Result<Command, DecodeError> {
    Ok(match from.byte()? {
        tag::JOIN => Command::Join { session: session(from)?, time_to_live: duration(from)? },
        tag::LEAVE => Command::Leave { session: session(from)? },
        tag::RELEASE => {
            Command::Release { session: session(from)?, up_to: from.number()?, ranges: from.list(ranges)? }
        }
        tag::CREATE => Command::Create { group: group_name(from)?, count: index(from)? },
        tag::DROP => Command::Drop { group: group_name(from)? },
        tag::DRAIN => Command::Drain { node: node(from)? },
        tag::UNDRAIN => Command::Undrain { node: node(from)? },
        tag::MOVE => Command::Move { group: group_name(from)?, index: index(from)?, node: node(from)? },
        _ => return Err(DecodeError::Kind("a command about partitions")),
    })
}

fn push_ranges(to: &mut Vec<u8>, ranges: &Ranges) {
    push_group_name(to, &ranges.group);
    push_length(to, ranges.ranges.len());
    let mut last = 0;
    for range in &ranges.ranges {
        push_number(to, u64::from(range.start.wrapping_sub(last)));
        push_number(to, u64::from(range.end.wrapping_sub(range.start)));
        last = range.end;
    }
}

/// Reads ranges. Each must be above the one before, so a partition is in at most one of them.
fn ranges(from: &mut Reader<'_>) -> Result<Ranges, DecodeError> {
    let group = group_name(from)?;
    let mut last = 0_u32;
    let ranges = from.list(|from| {
        let wrong = || DecodeError::Value("a range");
        let start = last.checked_add(index(from)?).ok_or_else(wrong)?;
        let length = index(from)?;
        let end = start.checked_add(length).filter(|_| length > 0).ok_or_else(wrong)?;
        last = end;
        Ok(start..end)
    })?;
    Ok(Ranges { group, ranges })
}

fn push_session(to: &mut Vec<u8>, session: SessionId) {
    push_number(to, unsigned(session.get()));
}

fn push_node(to: &mut Vec<u8>, node: NodeId) {
    push_bytes(to, node.as_str().as_bytes());
}

fn push_length(to: &mut Vec<u8>, length: usize) {
    push_number(to, u64::try_from(length).expect("a length fits"));
}

fn push_group_name(to: &mut Vec<u8>, group: &GroupName) {
    push_bytes(to, group.as_str().as_bytes());
}

fn group_name(from: &mut Reader<'_>) -> Result<GroupName, DecodeError> {
    let name = core::str::from_utf8(from.bytes()?).ok().and_then(|name| GroupName::new(name).ok());
    name.ok_or(DecodeError::Value("the name of a group"))
}

fn index(from: &mut Reader<'_>) -> Result<u32, DecodeError> {
    u32::try_from(from.number()?).map_err(|_| DecodeError::Value("a partition"))
}

impl Partitions {
    pub(crate) fn encode(&self, to: &mut Vec<u8>) {
        push_number(to, self.step);
        push_length(to, self.nodes.len());
        for node in &self.nodes {
            push_node(to, node.name);
            let (up, drained) = (u8::from(node.up.is_some()), u8::from(node.drained));
            to.push((up * node_is::UP) | (drained * node_is::DRAINED));
            if let Some(up) = node.up {
                push_session(to, up.session);
                push_number(to, up.time_to_live.as_nanos());
                push_incarnation(to, up.incarnation);
            }
        }
        push_length(to, self.groups.len());
        for (name, group) in &self.groups {
            push_group_name(to, name);
            to.push(u8::from(group.ending));
            push_number(to, u64::from(group.count()));
            for alike in group.slots.chunk_by(|one, next| one == next) {
                push_length(to, alike.len());
                push_slot(to, &alike[0], self.step);
            }
        }
    }

    pub(crate) fn decode(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let step = from.number()?;
        let nodes = from.list(one_node)?;
        let in_order = nodes.is_sorted_by(|one, next| one.name < next.name);
        if !in_order || nodes.len() > NODES_MAX {
            return Err(DecodeError::Value("the order of the nodes"));
        }
        let mut partitions = Self { nodes, groups: BTreeMap::new(), count: 0, step };
        let mut sessions: Vec<SessionId> = partitions.sessions().map(|(session, _)| session).collect();
        sessions.sort_unstable();
        if !sessions.is_sorted_by(|one, next| one < next) {
            return Err(DecodeError::Value("the session of a node"));
        }
        let count = from.number()?;
        if count > u64::try_from(GROUPS_MAX).expect("a length fits") {
            return Err(DecodeError::Value("how many groups there are"));
        }
        for _ in 0..count {
            let name = group_name(from)?;
            if partitions.groups.last_key_value().is_some_and(|(last, _)| *last >= name) {
                return Err(DecodeError::Value("the order of the groups"));
            }
            let group = partitions.one_group(from, PARTITIONS_MAX - partitions.count)?;
            partitions.count += group.count();
            partitions.groups.insert(name, group);
        }
        Ok(partitions)
    }

    fn one_group(&self, from: &mut Reader<'_>, room: u32) -> Result<Group, DecodeError> {
        let ending = match from.byte()? {
            0 => false,
            1 => true,
            _ => return Err(DecodeError::Kind("a group")),
        };
        let count = index(from)?;
        if count == 0 || count > room {
            return Err(DecodeError::Value("how many partitions a group has"));
        }
        let mut slots: Vec<Slot> = Vec::new();
        let mut left = count;
        while left > 0 {
            let length = index(from)?;
            let slot = self.one_slot(from)?;
            if length == 0 || length > left || slots.last() == Some(&slot) {
                return Err(DecodeError::Value("how many partitions are alike"));
            }
            left -= length;
            slots.resize(slots.len() + usize::try_from(length).expect("no more than PARTITIONS_MAX"), slot);
        }
        let is_wanted_back = |slot: &Slot| slot.primary.is_none() || slot.next == Next::Taken(None);
        if ending && (slots.iter().all(|slot| slot.primary.is_none()) || !slots.iter().all(is_wanted_back)) {
            return Err(DecodeError::Value("a group that is to go"));
        }
        Ok(Group { slots, ending })
    }

    fn one_slot(&self, from: &mut Reader<'_>) -> Result<Slot, DecodeError> {
        let place = |number: u64| {
            let index = usize::try_from(number).ok().filter(|&index| index < self.nodes.len());
            index.map(NodeIndex::of).ok_or(DecodeError::Value("the node of a partition"))
        };
        let primary = match from.number()? {
            0 => None,
            number => Some(place(number - 1)?),
        };
        if primary.is_some_and(|primary| self.nodes[primary.index()].up.is_none()) {
            return Err(DecodeError::Value("the primary of a partition"));
        }
        let next = match from.number()? {
            next::STAYS => Next::Stays,
            next::TAKEN => Next::Taken(None),
            number => Next::Taken(Some(place(number - next::TAKEN_FOR)?)),
        };
        if primary.is_none() && next != Next::Stays {
            return Err(DecodeError::Value("what is planned for a partition"));
        }
        let number = self.step.checked_sub(from.number()?).ok_or(DecodeError::Value("a number"))?;
        Ok(Slot { number, primary, next })
    }
}

fn push_slot(to: &mut Vec<u8>, slot: &Slot, step: u64) {
    let number = |place: NodeIndex| u64::try_from(place.index()).expect("no more than NODES_MAX");
    push_number(to, slot.primary.map_or(0, |primary| number(primary) + 1));
    push_number(
        to,
        match slot.next {
            Next::Stays => next::STAYS,
            Next::Taken(None) => next::TAKEN,
            Next::Taken(Some(place)) => next::TAKEN_FOR + number(place),
        },
    );
    push_number(to, step - slot.number);
}

fn one_node(from: &mut Reader<'_>) -> Result<Node, DecodeError> {
    let name = node(from)?;
    let is = from.byte()?;
    if is == 0 || is & !node_is::ALL != 0 {
        return Err(DecodeError::Kind("a node"));
    }
    let up = match is & node_is::UP {
        0 => None,
        _ => {
            let (session, time_to_live) = (session(from)?, duration(from)?);
            let incarnation: Incarnation = incarnation(from)?;
            Some(Up { session, time_to_live, incarnation })
        }
    };
    Ok(Node { name, drained: is & node_is::DRAINED != 0, up })
}
