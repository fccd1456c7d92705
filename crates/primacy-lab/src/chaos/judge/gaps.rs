//! The gaps without work by kind of fault: the longest time without an accepted write from a fault to the next step.

use std::collections::{BTreeMap, BTreeSet};

use super::record::{Record, Said};
use crate::chaos::event_log::RunEvent;
use crate::chaos::fault::Kind;

/// The results of all faults of one kind.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Made {
    /// The number of planned faults.
    pub(crate) planned: usize,
    /// For each fault that took effect, the longest time without a working leader, in nanoseconds.
    pub(crate) gaps: Vec<u64>,
}

/// The results by kind of fault.
pub(crate) fn by_kind(record: &Record) -> BTreeMap<Kind, Made> {
    let mut steps: BTreeMap<u32, (u64, Vec<Kind>)> = BTreeMap::new();
    for event in &record.events {
        if let RunEvent::Fault { step, kind, .. } = &event.event {
            steps.entry(*step).or_insert_with(|| (event.boot_ns, Vec::new())).1.push(*kind);
        }
    }
    let took = took(record);
    let begins: Vec<u64> = steps.values().map(|(at, _)| *at).collect();
    let mut made: BTreeMap<Kind, Made> = BTreeMap::new();
    for (index, (step, (from, kinds))) in steps.iter().enumerate() {
        let until = begins.get(index + 1).copied().unwrap_or_else(|| last_well(record).max(*from));
        let longest = longest_silence(record, *from, until);
        for kind in kinds {
            let made = made.entry(*kind).or_default();
            made.planned += 1;
            if took.contains(&(*step, *kind)) {
                made.gaps.push(longest);
            }
        }
    }
    made
}

/// The faults that took effect, by the events of the run; and full disks, by the nodes' reports of a failed write.
fn took(record: &Record) -> BTreeSet<(u32, Kind)> {
    let reports = record.lives.iter().flat_map(|life| &life.reports);
    let no_room: Vec<u64> =
        reports.filter(|report| report.said == Said::NoRoom).map(|report| report.at).collect();
    let mut took = BTreeSet::new();
    let mut full: Option<(u32, u64)> = None;
    for event in &record.events {
        match &event.event {
            RunEvent::Took { step, kind } => drop(took.insert((*step, *kind))),
            RunEvent::Fault { step, kind: Kind::FullDisk, .. } => full = Some((*step, event.boot_ns)),
            RunEvent::Healed { .. } => {
                if let Some((step, from)) = full.take()
                    && no_room.iter().any(|at| (from..=event.boot_ns).contains(at))
                {
                    took.insert((step, Kind::FullDisk));
                }
            }
            RunEvent::Run { .. }
            | RunEvent::Incarnation { .. }
            | RunEvent::Ended { .. }
            | RunEvent::Fault { .. } => {}
            RunEvent::Well { .. }
            | RunEvent::Stuck { .. }
            | RunEvent::Failed { .. }
            | RunEvent::Signal { .. } => {}
            RunEvent::Left { .. } | RunEvent::Disk { .. } | RunEvent::Clock { .. } | RunEvent::End => {}
        }
    }
    took
}

/// The time of the last accepted write before the end, at which all nodes are terminated.
fn last_well(record: &Record) -> u64 {
    record.ledger.last().map_or(0, |line| line.boot_ns)
}

/// The longest time without an accepted write, among the gaps that overlap this span.
fn longest_silence(record: &Record, from: u64, until: u64) -> u64 {
    let first = record.ledger.partition_point(|line| line.boot_ns < from).saturating_sub(1);
    let mut longest = 0;
    let mut before = record.ledger.get(first).map_or(from, |line| line.boot_ns);
    for line in record.ledger.iter().skip(first + 1) {
        longest = longest.max(line.boot_ns.saturating_sub(before));
        before = line.boot_ns;
        if line.boot_ns >= until {
            return longest;
        }
    }
    longest.max(until.saturating_sub(before))
}

/// The median; 0 of none.
pub(crate) fn median(values: &[u64]) -> u64 {
    let mut sorted = values.to_vec();
    sorted.sort_unstable();
    sorted.get(sorted.len() / 2).copied().unwrap_or(0)
}
