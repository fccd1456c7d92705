//! I10: readers see only records that a power cut cannot take back.
//!
//! Other threads read the state of a node at any time, even between two effects of one input. So when a node first
//! shows a record, a majority of the voters that committed it must have written it; a lone voter must have written it
//! itself. Otherwise a reader could see a value that is then lost, which violates durability and linearizability
//! (Herlihy and Wing 1990).
//!
//! If logs are kept in memory, nothing is required.

use std::collections::{BTreeMap, BTreeSet};

use primacy_core::hard_state::Durability;
use primacy_core::{Identity, LeaderSequence, NodeId, majority};
use primacy_kv::machine::Metadata;
use primacy_kv::replication::log::Write;
use primacy_kv::replication::voters::Voters;

use super::{Invariant, MetadataObservation, Observation};
use crate::clock::Moment;
use crate::counters::Counters;
use crate::leadership_intervals::LeadershipIntervals;

/// Remembers the highest number that each node ever wrote to its log, and the last record shown by any node.
#[derive(Debug, Default)]
pub struct ShownIsDurable {
    written: BTreeMap<NodeId, LeaderSequence>,
    shown: LeaderSequence,
    /// The processes seen so far, each of which began with the contents of its disk.
    begun: BTreeSet<Identity>,
    met: Vec<&'static str>,
}

impl ShownIsDurable {
    fn wrote(&mut self, node: NodeId, number: LeaderSequence) {
        let written = self.written.entry(node).or_default();
        *written = (*written).max(number);
    }

    fn shown(&mut self, who: Identity, machine: &Metadata) -> Result<(), String> {
        let replica = machine.replica();
        if self.begun.insert(who) {
            self.wrote(who.node, replica.last());
        }
        let applied = replica.applied();
        let has_written = |node: &NodeId| self.written.get(node).copied().unwrap_or_default();
        if replica.leads() && has_written(&who.node) < replica.last() {
            self.met.push("read while the leader writes");
        }
        // An uncommitted state, from a snapshot or after a restart, is not shown to readers.
        if !replica.is_current() || applied <= self.shown || replica.durability() == Durability::Memory {
            return Ok(());
        }
        self.shown = applied;
        let written_by =
            |voters: &Voters| voters.members.keys().filter(|node| has_written(node) >= applied).count();
        // A new list of voters counts from its append on, even for the records before it; records are applied in
        // steps.
        let counts = |voters: &Voters| written_by(voters) >= majority::needed(voters.count());
        let voters = replica.applied_voters();
        if !counts(voters) && !counts(replica.voters()) {
            let (node, count, all) = (who.node, written_by(voters), voters.count());
            return Err(format!("{node} shows record {applied}, which {count} of {all} voters have written"));
        }
        Ok(())
    }
}

impl Invariant for ShownIsDurable {
    fn name(&self) -> &'static str {
        "I10"
    }

    fn observe(
        &mut self,
        _now: Moment,
        seen: &Observation<'_>,
        _leaderships: &LeadershipIntervals,
    ) -> Result<(), String> {
        match *seen {
            Observation::Metadata(MetadataObservation::Wrote { who, write: Write::Append(records) }) => {
                records.iter().for_each(|record| self.wrote(who.node, record.number));
                Ok(())
            }
            Observation::Metadata(MetadataObservation::Wrote { who, write: Write::Snapshot(snapshot) }) => {
                self.wrote(who.node, snapshot.number);
                Ok(())
            }
            Observation::Metadata(
                MetadataObservation::Shown { who, machine }
                | MetadataObservation::Settled { who, machine }
                | MetadataObservation::Answered { who, machine, .. },
            ) => self.shown(who, machine),
            Observation::Metadata(MetadataObservation::Asked { .. })
            | Observation::Told { .. }
            | Observation::Said { .. }
            | Observation::Accepted { .. }
            | Observation::ClockChanged
            | Observation::Phase(_)
            | Observation::Looked { .. }
            | Observation::Ended { .. }
            | Observation::DiskLost { .. }
            | Observation::Viewed { .. } => Ok(()),
        }
    }

    fn count(&mut self, counters: &mut Counters) {
        self.met.drain(..).for_each(|met| counters.count(met));
    }
}
