//! A naive reference model of the replicated map, limited to the requests of the world's clients. The real map's
//! answers are compared with it.

use std::collections::{BTreeMap, BTreeSet};

use primacy_core::Identity;
use primacy_kv::command::{
    Answer, Command, Compared, Comparison, Keys, Operation, Outcome, Read, Refusal, Relation, Replace,
    SessionId,
};
use primacy_kv::partitions::Command as Order;
use primacy_kv::state::State;

use super::reference_partitions::ReferencePartitions;

/// Keys with their values, each with the session that it ends with.
#[derive(Clone, Debug)]
pub(super) struct ReferenceMap {
    version: u64,
    entries: BTreeMap<Vec<u8>, (Vec<u8>, Option<SessionId>)>,
    sessions: BTreeSet<SessionId>,
    partitions: ReferencePartitions,
}

impl Default for ReferenceMap {
    fn default() -> Self {
        let partitions = ReferencePartitions::default();
        Self { version: 1, entries: BTreeMap::new(), sessions: BTreeSet::new(), partitions }
    }
}

impl ReferenceMap {
    /// Applies a command that the map has just applied, and compares the results.
    pub(super) fn apply(
        &mut self,
        sender: Identity,
        command: &Command,
        outcome: &Outcome,
        state: &State,
    ) -> Result<(), String> {
        let refusal = self.refusal(sender, command);
        match (&outcome.result, refusal) {
            (Err(found), Some(expected)) if *found == expected => return Ok(()),
            (Err(Refusal::FormerLife), _) => return Ok(()), // Nothing of it was done.
            (Ok(_), None) => {}
            (found, expected) => return Err(format!("{command:?}: {found:?}, and not {expected:?}")),
        }
        let held = self.perform(command);
        let shared = self.partitions.perform(sender, command, state.partitions());
        shared.map_err(|what| format!("{command:?}: {what}"))?;
        match (&outcome.result, held) {
            (Ok(Answer::Decided { held: found, .. }), Some(held)) if *found != held => {
                return Err(format!("{command:?}: {found}, and not {held}"));
            }
            (Ok(_) | Err(_), _) => {}
        }
        if outcome.version.0 != self.version || state.version().0 != self.version {
            return Err(format!("{command:?}: version {}, and not {}", outcome.version, self.version));
        }
        let found = state.read(&Read::of(Keys::all())).map_err(|refusal| refusal.to_string())?.entries;
        let found =
            found.iter().map(|entry| (entry.key().to_vec(), (entry.value().to_vec(), entry.session())));
        if found.eq(self.entries.clone()) { Ok(()) } else { Err(format!("{command:?}: other entries")) }
    }

    /// Takes the names of the counters incremented since the last call.
    pub(super) fn take_met(&mut self) -> Vec<&'static str> {
        std::mem::take(&mut self.partitions.met)
    }

    fn has(&self, session: SessionId) -> bool {
        self.sessions.contains(&session) || self.partitions.has(session)
    }

    fn refusal(&self, sender: Identity, command: &Command) -> Option<Refusal> {
        match command {
            Command::Operate(Operation::Write(write)) => match write.session {
                Replace::With(Some(session)) if !self.sessions.contains(&session) => {
                    Some(Refusal::SessionNotFound)
                }
                Replace::With(_) | Replace::Keep => None,
            },
            Command::Begin { session, .. } | Command::Partitions(Order::Join { session, .. })
                if self.has(*session) =>
            {
                Some(Refusal::SessionExists)
            }
            Command::End { session } if !self.sessions.contains(session) => Some(Refusal::SessionNotFound),
            Command::Expire { session } if !self.has(*session) => Some(Refusal::SessionNotFound),
            Command::Begin { .. } | Command::End { .. } | Command::Expire { .. } | Command::Operate(_) => {
                None
            }
            Command::Partitions(order) => self.partitions.refusal(sender, order),
            Command::Compact(_) | Command::Forget { .. } | Command::Limit(_) | Command::Share(_) => None,
        }
    }

    /// Applies a command. Returns whether the comparisons held, if there were any.
    fn perform(&mut self, command: &Command) -> Option<bool> {
        let before = self.entries.clone();
        match command {
            Command::Operate(operation) => {
                let mut changed = false;
                let held = self.operate(operation, &mut changed);
                self.version += u64::from(changed);
                held
            }
            Command::Begin { session, .. } => {
                self.sessions.insert(*session);
                None
            }
            Command::End { session } | Command::Expire { session } => {
                self.sessions.remove(session); // That of a node is looked at below, with what it had.
                self.entries.retain(|_, (_, of)| *of != Some(*session));
                self.version += u64::from(before != self.entries);
                None
            }
            Command::Partitions(_) => None,
            Command::Compact(_) | Command::Forget { .. } | Command::Limit(_) | Command::Share(_) => None,
        }
    }

    fn operate(&mut self, operation: &Operation, changed: &mut bool) -> Option<bool> {
        match operation {
            Operation::Read(_) => None,
            Operation::Write(write) => {
                if let (Replace::With(value), Replace::With(session)) = (&write.value, &write.session) {
                    self.entries.insert(write.key.to_vec(), (value.to_vec(), *session));
                    *changed = true;
                }
                None
            }
            Operation::Delete(delete) => {
                let count = self.entries.len();
                self.entries.retain(|key, _| !delete.keys.contain(key));
                *changed |= self.entries.len() != count;
                None
            }
            Operation::Transaction(transaction) => {
                let held = transaction.comparisons.iter().all(|comparison| self.holds(comparison));
                let branch = if held { &transaction.then } else { &transaction.otherwise };
                for operation in branch {
                    self.operate(operation, changed);
                }
                Some(held)
            }
        }
    }

    /// True if a comparison holds. The world's clients compare a value, or use a comparison that always holds.
    fn holds(&self, comparison: &Comparison) -> bool {
        let entry = self.entries.get(comparison.keys.first());
        match (&comparison.compared, comparison.relation) {
            (Compared::Value(value), Relation::Equal) => {
                entry.is_some_and(|(found, _)| found[..] == value[..])
            }
            (_, Relation::Equal | Relation::NotEqual | Relation::Greater | Relation::Less) => true,
        }
    }
}
