//! The reason for which a part of a cluster has stopped, for display only.

use alloc::boxed::Box;
use alloc::collections::BTreeSet;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;
use core::hash::{Hash, Hasher};

use super::{Decision, Membership, Reason, Seniority};
use crate::id::NodeId;
use crate::membership::Policy;
use crate::time::Instant;

/// A part of a cluster that has stopped after a split, and the reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stopped {
    /// The policy that stops it.
    pub policy: Policy,
    /// The members of the part.
    pub part: BTreeSet<NodeId>,
    /// The members before the split.
    pub members: BTreeSet<NodeId>,
    /// The members that the part has lost.
    pub lost: BTreeSet<NodeId>,
    /// The answer of the store, if one decides which part goes on.
    pub store: StoreAnswer,
}

/// The answer of the store that decides which part goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreAnswer {
    /// It was not asked.
    NotAsked,
    /// It has not answered in time.
    None,
    /// It has chosen another part.
    Against,
}

/// A reason kept beside a state. It is ignored when states are compared.
#[derive(Clone, Debug, Default)]
pub(super) struct Note(pub(super) Option<Box<Stopped>>);

impl PartialEq for Note {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Note {}

impl Hash for Note {
    fn hash<H: Hasher>(&self, _: &mut H) {}
}

impl fmt::Display for Stopped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { policy, part, members, lost, store } = self;
        write!(f, "its part {{{}}} of {{{}}} does not go on, by {policy}", names(part), names(members))?;
        if !lost.is_empty() {
            let does = if lost.len() == 1 { "does" } else { "do" };
            write!(f, ": {} {does} not answer", names(lost))?;
        }
        f.write_str(match store {
            StoreAnswer::NotAsked => "",
            StoreAnswer::None => "; the store has not answered",
            StoreAnswer::Against => "; the store has decided for another part",
        })
    }
}

fn names(nodes: &BTreeSet<NodeId>) -> String {
    nodes.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

impl Seniority {
    /// The reason for which its part has stopped, until it belongs to a cluster again.
    #[must_use]
    pub fn stopped(&self) -> Option<&Stopped> {
        match &self.membership {
            Membership::Outside(outside) => outside.stopped.0.as_deref(),
            Membership::Member(_) => None,
        }
    }

    /// Stops leading and leaves the cluster, because its part does not go on.
    pub(super) fn stop(&mut self, now: Instant, store: StoreAnswer) {
        let Membership::Member(member) = &self.membership else { return };
        let members: BTreeSet<NodeId> =
            member.view.members().iter().map(|other| other.identity.node).collect();
        let asked_about = member.decision.as_ref().map(Decision::about);
        let lost = Some(member.watch.lost()).filter(|lost| !lost.is_empty()).or(asked_about);
        let lost = lost.cloned().unwrap_or_default();
        // A node of this part that has left counts as a member of it: it has stopped for the same reason.
        let part = members.iter().copied().filter(|node| !lost.contains(node)).collect();
        let stopped = Stopped { policy: self.config.policy, part, members, lost, store };
        self.step_down(Reason::Expired);
        self.leave(now, None, true);
        if let Membership::Outside(outside) = &mut self.membership {
            outside.stopped = Note(Some(Box::new(stopped)));
        }
    }
}
