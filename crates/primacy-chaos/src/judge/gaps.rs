//! How long nobody worked, by what was done: the longest time without an accepted write from a fault to the next step.

use std::collections::BTreeMap;

use super::record::Record;
use crate::fault::Kind;
use crate::notes::Note;

/// Of each kind, how often it was made, and of each time the longest time without a leader at work, in nanoseconds.
pub(crate) fn by_kind(record: &Record) -> BTreeMap<Kind, Vec<u64>> {
    let mut steps: BTreeMap<u32, (u64, Vec<Kind>)> = BTreeMap::new();
    for noted in &record.notes {
        if let Note::Fault { step, kind, .. } = &noted.note {
            steps.entry(*step).or_insert_with(|| (noted.boot_ns, Vec::new())).1.push(*kind);
        }
    }
    let begins: Vec<u64> = steps.values().map(|(at, _)| *at).collect();
    let mut gaps: BTreeMap<Kind, Vec<u64>> = BTreeMap::new();
    for (index, (from, kinds)) in steps.values().enumerate() {
        let until = begins.get(index + 1).copied().unwrap_or_else(|| last_well(record).max(*from));
        let longest = longest_silence(record, *from, until);
        for kind in kinds {
            gaps.entry(*kind).or_default().push(longest);
        }
    }
    gaps
}

/// When the last leader worked before the end, in which all are told to end.
fn last_well(record: &Record) -> u64 {
    record.ledger.last().map_or(0, |line| line.boot_ns)
}

/// The longest time without an accepted write, of those that reach into this span.
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

/// The middle one; 0 of none.
pub(crate) fn median(values: &[u64]) -> u64 {
    let mut sorted = values.to_vec();
    sorted.sort_unstable();
    sorted.get(sorted.len() / 2).copied().unwrap_or(0)
}
