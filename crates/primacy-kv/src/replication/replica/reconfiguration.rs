//! Changes of the voters: one voter at a time, by a record, which is in force on a node once the node has it in its
//! log.
//!
//! All majorities of two sets that differ by one voter share a voter; with a larger difference they may not. So the
//! next change waits until the one before is committed, and the first change of a leader until its first record is
//! committed (the bug that was found in Raft's single-server changes in 2015: before that, a leader may change the same
//! voters as another leader).
//!
//! The shared voter may have lost its log. Then it asks the others of its own set, and they must have the records that
//! it held. So a change also waits until a majority of the next voters holds all committed records. Otherwise, of three
//! voters, two could hold a record, one of them be removed, and the other lose its log: of the remaining two voters
//! none would have the record.
//!
//! A leader writes no list without itself: once that is committed, the others would disconnect it, and it could not
//! renew its lease while its work drains. So it drains and resigns first, and the next leader removes it.

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

/// The time for which a change of voters stays requested after the last request, in multiples of
/// `Config::resend_after`.
const WANTED_FOR: u64 = 4;

/// The time for which a learner's answer shows that it is alive, in multiples of `Config::resend_after`.
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
        /// The last record that it is certain to hold; [`LeaderSequence::NONE`] before it was heard.
        held: LeaderSequence,
        /// The last record of the leader.
        last: LeaderSequence,
    },
    /// The change waits for an earlier change, or until more of the next voters hold the committed records.
    Waiting,
    /// The leader itself is to be removed. It resigns when its work has ended, and the next leader removes it.
    Resigning,
    /// The change is refused.
    Refused(Refusal),
}

/// The reason why a change of the voters is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Refusal {
    /// This node does not lead, or is not active.
    NotLeading,
    /// No voter would be left.
    Last,
    /// There would be more than [`VOTERS_MAX`].
    TooMany,
    /// No majority of the next voters is heard at present.
    NoMajority {
        /// The number of next voters that are heard.
        heard: usize,
        /// The number of next voters.
        voters: usize,
    },
    /// The node votes already, at another address.
    OtherAddress,
    /// The node to remove leads: it resigned in order to be removed, but no other node took the lead.
    NoOtherLeader,
}

/// The next voters. Until they are written, or no longer requested, a record is committed only when majorities of both
/// the next and the present voters hold it; so at some time the next voters hold all committed records, however much is
/// written meanwhile.
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
    /// The time since which an answer of it is awaited. It is reset when the change is requested again after an answer,
    /// or after too long a silence.
    pub(super) asked_at: Instant,
    /// True if it has answered since.
    pub(super) has_answered: bool,
}

impl<S: Replicated> Replica<S> {
    /// Advances a change of the voters as far as possible now. Call it again until the change is done.
    ///
    /// A change that waits for records is abandoned if it is not requested again within four times
    /// `Config::resend_after` (one second), and a learner's answer counts for 120 times that (half a minute).
    ///
    /// `is_heard` returns true for a voter that is heard at present.
    ///
    /// `is_supported` is true if a majority of the present voters supports this leader until its lease ends. A lease
    /// depends on the voters at the time when it was given. A majority of them and a majority after one change share a
    /// voter; after two changes they need not. So the second change waits until the lease is given by the voters of the
    /// first one.
    ///
    /// On [`Progress::Resigning`] the caller must make this node resign.
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

    /// All nodes to connect to: the voters, the learners, and removed voters that do not know of their removal yet.
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

    /// Sends the log to a learner; returns the last record that it holds, and whether it is ready to become a voter.
    fn teach(&mut self, now: Instant, node: NodeId, address: &Arc<str>) -> (LeaderSequence, bool) {
        let Role::Leader(lead) = &mut self.role else { return (LeaderSequence::NONE, false) };
        if lead.learners.get(&node).is_none_or(|learner| learner.address != *address) {
            let address = Arc::clone(address);
            lead.learners.insert(node, Learner { address, asked_at: now, has_answered: false });
        }
        let follower = lead.followers.entry(node).or_default();
        let held = follower.match_id;
        match follower.sent_id {
            // Nothing is unanswered: send an empty append, because only an answer shows that the node is alive.
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
        // It is near enough if the records that it lacks fit into one message: then it will not delay commits as a
        // voter.
        let rest = self.log.since(held, self.config.append_max);
        let near = rest.is_some_and(|rest| rest.last().is_none_or(|last| last.number == self.log.last()));
        (held, near && is_there && held.term == self.bound)
    }

    /// Drops a learner that is no longer requested.
    fn unteach(&mut self, node: NodeId) {
        if let Role::Leader(lead) = &mut self.role
            && lead.learners.remove(&node).is_some()
        {
            lead.followers.remove(&node);
        }
    }

    /// Disconnects removed voters once their removal is committed, and they know of it or cannot be reached.
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
    /// Handles a request to make this learner a voter; returns true if it has answered since the last request.
    /// Otherwise it may have died after it caught up, and as a voter it would delay commits.
    fn ask(&mut self, now: Instant, there_for: Duration) -> bool {
        let is_old = now >= self.asked_at.after(there_for);
        let is_there = self.has_answered && !is_old;
        if self.has_answered || is_old {
            *self = Self { address: Arc::clone(&self.address), asked_at: now, has_answered: false };
        }
        is_there
    }
}

/// Returns the reason to refuse these voters, if there is one.
fn refusal(members: &BTreeMap<NodeId, Arc<str>>, is_heard: impl Fn(NodeId) -> bool) -> Option<Refusal> {
    let (voters, heard) = (members.len(), members.keys().filter(|&&node| is_heard(node)).count());
    match voters {
        0 => Some(Refusal::Last),
        _ if voters > VOTERS_MAX => Some(Refusal::TooMany),
        _ if heard < primacy_core::majority::needed(voters) => Some(Refusal::NoMajority { heard, voters }),
        _ => None,
    }
}
