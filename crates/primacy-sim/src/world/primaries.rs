//! Nodes that are primaries of partitions, and the writes of their work: each partition is a separate resource.

use std::collections::BTreeMap;

use primacy_core::{Duration, FencingToken, Mandate};
use primacy_kv::command::SessionId;
use primacy_kv::partitions::{GroupName, Partitions, Plan, Ranges};

use super::{ScheduledEvent, World};
use crate::algorithm::{Algorithm, metadata};
use crate::process_slot::ProcessSlot;
use crate::resource::Resource;
use crate::trace::Level;

/// A partition: its group, and its index there.
pub type PartitionId = (GroupName, u32);

/// The resources of all partitions.
pub type Resources = BTreeMap<PartitionId, Resource>;

impl<A: Algorithm> World<A> {
    /// Returns the partitions as a running node knows them.
    #[must_use]
    pub fn partitions(&self, slot: ProcessSlot) -> Option<&Partitions> {
        metadata::<A>(&self.process(slot)?.machine).map(|machine| machine.state().partitions())
    }

    /// Writes to a partition as the work of its primary, with the token that its node knows. The write takes `after`.
    ///
    /// # Errors
    /// If the node does not know itself as the primary.
    pub fn write_as_primary(
        &mut self,
        slot: ProcessSlot,
        place: PartitionId,
        after: Duration,
    ) -> Result<(), String> {
        let name = self.node(slot).name;
        let partition = self.partitions(slot).and_then(|known| known.partition(&place.0, place.1));
        let own = partition.filter(|partition| partition.primary == Some(name));
        let token = own.ok_or_else(|| format!("{name} is not its primary"))?.number;
        let late = !after.is_zero();
        let delay = after.plus(self.conditions.delay);
        self.plan(
            delay,
            ScheduledEvent::PartitionWriteArrives { slot, place, token: FencingToken(token), late },
        );
        Ok(())
    }

    pub(crate) fn partition_write_arrives(
        &mut self,
        slot: ProcessSlot,
        place: PartitionId,
        token: FencingToken,
        late: bool,
    ) {
        let name = self.node(slot).name;
        let (group, index) = &place;
        let text =
            format!("{group} {index}: {}write of {name} with token {token}", if late { "late " } else { "" });
        let answer = self.resources.entry(place).or_default().write(Mandate::Fenced(token));
        let what =
            if answer.is_ok() { "primaries: write accepted" } else { "primaries: stale write refused" };
        self.counters.count(what);
        self.trace_write(Level::Event, name, Mandate::Fenced(token), answer.is_ok(), || match answer {
            Ok(()) => format!("{text} accepted"),
            Err(error) => format!("{text} refused: {error}"),
        });
    }

    /// Returns the session by which a running node is up, as far as its client knows.
    #[must_use]
    pub fn joined(&self, slot: ProcessSlot) -> Option<SessionId> {
        let life = self.process(slot)?.life;
        self.clients.session_of(life)
    }

    /// Returns the partitions that a node would give back, all or only those taken back from it, and the number up to
    /// which the node knows of changes.
    #[must_use]
    pub fn to_give_back(&self, slot: ProcessSlot, all: bool) -> (u64, Vec<Ranges>) {
        let name = self.node(slot).name;
        let Some(known) = self.partitions(slot) else { return (0, Vec::new()) };
        let mut ranges: Vec<Ranges> = Vec::new();
        for run in known.runs_with_primary(name) {
            if !all && run.partition.plan == Plan::Stays {
                continue;
            }
            match ranges.last_mut().filter(|last| last.group == run.group) {
                Some(last) => last.ranges.push(run.range),
                None => ranges.push(Ranges { group: run.group, ranges: vec![run.range] }),
            }
        }
        (known.step(), ranges)
    }
}
