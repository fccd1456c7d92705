//! Changes of the voters: one at a time, as a record, in force where it is written.
//!
//! Two sets that differ by one voter have no majorities without a voter in common; two that differ by more may. So the
//! next change waits until the one before is committed, and the first one of a leader until its own first record is
//! (the mistake that was found in Raft's single-server changes in 2015: a leader that has not committed anything in its
//! term may change the same voters as another leader).
//!
//! The voter in common may have lost its log. It asks the others of its own set then, and they must know the records
//! that it held. So a change waits, too, until a majority of the next voters holds all that is committed. Else of three
//! voters two would hold a record, one of them be removed, and the other one lose its log: of the two that vote then
//! none would know of it.
//!
//! A leader writes no list without itself. The others would let go of it when that is committed, and it could renew its
//! lease no more, though its work may take longer to end. So it ends its work and resigns first, and the next leader
//! removes it.

use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;

use primacy_core::id::NodeId;
use primacy_core::term::LeaderSequence;
use primacy_core::time::{Duration, Instant};

use super::{Replica, Replicated, Role};
use crate::replication::log::{Record, RecordBody};
use crate::replication::voters::Voters;

/// The highest number of voters.
pub const VOTERS_MAX: usize = 31;

/// The time for which a change of voters counts as wanted after the last request, in times as long as an answer is
/// waited for.
const WANTED_FOR: u64 = 4;

/// The time for which an answer to the last question for a change shows that a node is there, in times as long as an
/// answer is waited for.
const THERE_FOR: u64 = 120;

/// A requested change of the voters.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum VoterChange {
    /// Add this node as a voter with this address. It is brought up to date first.
    Add {
        /// The node.
        node: NodeId,
        /// The address at which the others reach it.
        address: Arc<str>,
    },
    /// Remove this node from the voters.
    Remove {
        /// The node.
        node: NodeId,
    },
}

/// The progress of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Progress {
    /// The change is committed, on a majority.
    Done,
    /// The change is written, and not yet on a majority.
    Committing,
    /// The node is being brought up to date.
    CatchingUp {
        /// The last record that it surely holds; none, as long as it was not heard.
        held: LeaderSequence,
        /// The last record of the leader.
        last: LeaderSequence,
    },
    /// Another change comes first, or the committed records must reach more of the next voters.
    Waiting,
    /// This leader is to be removed. It resigns when its work has ended, and the next leader removes it.
    Resigning,
    /// The change is refused.
    Refused(Refusal),
}

/// The reason why voters are not changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Refusal {
    /// This node does not lead, or is not active.
    NotLeading,
    /// There would be no voter left.
    Last,
    /// There would be more than [`VOTERS_MAX`].
    TooMany,
    /// Of the voters that there would be, too few are heard at present for a majority.
    NoMajority {
        /// The number of them that are heard.
        heard: usize,
        /// The number of voters that there would be.
        voters: usize,
    },
    /// The node votes already, at another address.
    OtherAddress,
    /// The node leads. It has resigned to be removed, and no other node took the lead.
    NoOtherLeader,
}

/// The next voters. Until they are written, or are requested no more, a record is committed when a majority of them as
/// well as of the present ones holds it; so the time comes when they hold all of it, however much is written meanwhile.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Next {
    pub(super) members: BTreeMap<NodeId, Arc<str>>,
    pub(super) until: Instant,
}

/// A node that is brought up to date before it votes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Learner {
    /// Its address.
    pub(super) address: Arc<str>,
    /// The beginning of the question that it is to answer. The next one begins when the change is requested after it
    /// has answered, or has been silent for too long.
    pub(super) asked_at: Instant,
    /// True if it has answered since.
    pub(super) has_answered: bool,
}

impl<S: Replicated> Replica<S> {
    /// Makes a change of the voters, as far as it can be done now; to be called again until it is done.
    ///
    /// A change that waits for records that its voters still lack is given up when it was not requested for four times
    /// as long as an answer is waited for (one second), and a node's sign that it is there counts for 120 times as long
    /// (half a minute).
    ///
    /// `is_heard` tells whether a voter is heard at present.
    ///
    /// `is_supported` tells that a majority of the present voters supports this leader for as long as it leads. A lease
    /// rests on the voters of when it was given. They and a majority of the voters after one change share a voter;
    /// after two they need not. So the second change waits until the lease rests on the voters of the first one.
    ///
    /// [`Progress::Resigning`] is for the caller to do.
    pub fn revise(
        &mut self,
        now: Instant,
        change: &VoterChange,
        is_supported: bool,
        is_heard: impl Fn(NodeId) -> bool,
    ) -> Progress {
        if !self.is_active() {
            return Progress::Refused(Refusal::NotLeading);
        }
        let settled = self.committed >= self.voters.number;
        match change {
            VoterChange::Add { node, address } => {
                if let Some(known) = self.voters.members.get(node) {
                    let done = if settled { Progress::Done } else { Progress::Committing };
                    return if known == address { done } else { Progress::Refused(Refusal::OtherAddress) };
                }
                let mut members = self.voters.members.clone();
                members.insert(*node, Arc::clone(address));
                if let Some(refusal) = refusal(&members, |voter| voter == *node || is_heard(voter)) {
                    return Progress::Refused(refusal);
                }
                let (held, caught_up) = self.teach(now, *node, address);
                if !caught_up {
                    return Progress::CatchingUp { held, last: self.log.last() };
                }
                if settled && is_supported { self.change_voters(now, members) } else { Progress::Waiting }
            }
            VoterChange::Remove { node } if !self.voters.contains(*node) => {
                self.unteach(*node);
                if settled { Progress::Done } else { Progress::Committing }
            }
            VoterChange::Remove { node } => {
                let mut members = self.voters.members.clone();
                let address = members.remove(node);
                if let Some(refusal) = refusal(&members, &is_heard) {
                    return Progress::Refused(refusal);
                }
                if !(settled && is_supported) {
                    return Progress::Waiting;
                }
                if *node == self.config.me.node {
                    return Progress::Resigning;
                }
                let progress = self.change_voters(now, members);
                if let (Role::Leader(lead), Some(address), Progress::Committing) =
                    (&mut self.role, address, progress)
                {
                    lead.leaving = BTreeMap::from([(*node, address)]);
                }
                progress
            }
        }
    }

    /// All nodes that this one wants to reach: the voters, the learners, and the nodes that have to hear yet that they
    /// vote no more.
    #[must_use]
    pub fn reach(&self) -> BTreeMap<NodeId, Arc<str>> {
        let mut all = self.voters.members.clone();
        if let Role::Leader(lead) = &self.role {
            let learners = lead.learners.iter().map(|(node, learner)| (node, &learner.address));
            for (node, address) in learners.chain(&lead.leaving) {
                if lead.followers.contains_key(node) {
                    all.entry(*node).or_insert_with(|| Arc::clone(address));
                }
            }
        }
        all
    }

    fn change_voters(&mut self, now: Instant, members: BTreeMap<NodeId, Arc<str>>) -> Progress {
        let Role::Leader(lead) = &self.role else { return Progress::Refused(Refusal::NotLeading) };
        if self.held_by_most(lead, &members) >= self.committed {
            return self.state_voters(now, members);
        }
        let until = now.after(self.config.resend_after.times(WANTED_FOR));
        if let Role::Leader(lead) = &mut self.role {
            lead.next = Some(Next { members, until });
        }
        Progress::Waiting
    }

    fn state_voters(&mut self, now: Instant, members: BTreeMap<NodeId, Arc<str>>) -> Progress {
        if let Role::Leader(lead) = &mut self.role {
            lead.next = None;
        }
        let number = self.log.last().next();
        let voters = Arc::new(Voters { number, members });
        self.push(Record { number, body: RecordBody::Voters(voters) });
        self.flush_at.get_or_insert(now);
        Progress::Committing
    }

    /// Sends the log to a node that does not vote; returns how far it is, and whether that is far enough.
    fn teach(&mut self, now: Instant, node: NodeId, address: &Arc<str>) -> (LeaderSequence, bool) {
        let Role::Leader(lead) = &mut self.role else { return (LeaderSequence::NONE, false) };
        if lead.learners.get(&node).is_none_or(|learner| learner.address != *address) {
            let address = Arc::clone(address);
            lead.learners.insert(node, Learner { address, asked_at: now, has_answered: false });
        }
        let follower = lead.followers.entry(node).or_default();
        let held = follower.match_id;
        match follower.sent_id {
            // It has nothing to answer, and a node that answers nothing may be gone.
            Some(sent) if follower.resend_at.is_none() && self.log.position(sent).is_some() => {
                let body = follower.append(sent, Vec::new(), self.committed);
                follower.resend_at = Some(now.after(self.config.resend_after));
                self.send(node, body);
            }
            Some(_) => {}
            None => self.stream(now, node),
        }
        let resend_after = self.config.resend_after;
        let is_there = match &mut self.role {
            Role::Leader(lead) => lead
                .learners
                .get_mut(&node)
                .is_some_and(|learner| learner.ask(now, resend_after.times(THERE_FOR))),
            Role::Follower { .. } | Role::Passive(_) => false,
        };
        // The records that it lacks fit into one message: it will not hold up a majority that it becomes part of.
        let rest = self.log.since(held, self.config.append_max);
        let near = rest.is_some_and(|rest| rest.last().is_none_or(|last| last.number == self.log.last()));
        (held, near && is_there && held.term == self.bound)
    }

    /// Forgets a learner that is not wanted any more.
    fn unteach(&mut self, node: NodeId) {
        if let Role::Leader(lead) = &mut self.role
            && lead.learners.remove(&node).is_some()
        {
            lead.followers.remove(&node);
        }
    }

    /// Lets go of the nodes that vote no more once that is committed, and they know it if they can.
    pub(super) fn let_go(&mut self) {
        let number = self.voters.number;
        let settled = self.committed >= number;
        let Role::Leader(lead) = &mut self.role else { return };
        lead.learners.retain(|node, _| !self.voters.contains(*node));
        if settled {
            let learners = &lead.learners;
            lead.followers.retain(|node, follower| {
                let hears_soon = follower.match_id >= number && follower.commit_sent < number;
                hears_soon || self.voters.contains(*node) || learners.contains_key(node)
            });
        }
    }
}

impl Learner {
    /// Handles a request for it as a voter; returns true if it has answered since the last one. A node that has caught
    /// up and died would count for a majority, and hold up writes.
    fn ask(&mut self, now: Instant, there_for: Duration) -> bool {
        let is_old = now >= self.asked_at.after(there_for);
        let is_there = self.has_answered && !is_old;
        if self.has_answered || is_old {
            *self = Self { address: Arc::clone(&self.address), asked_at: now, has_answered: false };
        }
        is_there
    }
}

/// Returns the refusal of these voters, if there is one.
fn refusal(members: &BTreeMap<NodeId, Arc<str>>, is_heard: impl Fn(NodeId) -> bool) -> Option<Refusal> {
    let (voters, heard) = (members.len(), members.keys().filter(|&&node| is_heard(node)).count());
    match voters {
        0 => Some(Refusal::Last),
        _ if voters > VOTERS_MAX => Some(Refusal::TooMany),
        _ if heard < primacy_core::majority::needed(voters) => Some(Refusal::NoMajority { heard, voters }),
        _ => None,
    }
}
