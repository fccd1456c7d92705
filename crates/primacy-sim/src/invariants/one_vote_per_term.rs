//! I4: no node votes twice in a term, across restarts.

use std::collections::{BTreeMap, BTreeSet};

use primacy_core::{Identity, NodeId, Term};

use super::{Invariant, Meaning, Observation};
use crate::clock::Moment;
use crate::leadership_intervals::LeadershipIntervals;

/// Remembers every vote. In most elections a leader has voted for itself; a candidate that asks for votes may not
/// have, because the request may leave before its own vote is on disk.
///
/// One kind of second vote is harmless, and cannot be prevented: the first vote was on a lost disk, for a candidate
/// that ended without having led.
#[derive(Debug, Default)]
pub struct OneVotePerTerm {
    votes: BTreeMap<(NodeId, Term), Vec<Identity>>,
    /// The votes that were on lost disks.
    lost: BTreeSet<(NodeId, Term, Identity)>,
    ended: BTreeSet<Identity>,
    led: BTreeSet<(Identity, Term)>,
    /// The leader checked last: a leader repeats its claim with every heartbeat.
    latest: Option<(Identity, Term)>,
}

impl OneVotePerTerm {
    fn is_void(&self, voter: NodeId, term: Term, candidate: Identity) -> bool {
        self.lost.contains(&(voter, term, candidate))
            && self.ended.contains(&candidate)
            && !self.led.contains(&(candidate, term))
    }
}

impl Invariant for OneVotePerTerm {
    fn name(&self) -> &'static str {
        "I4"
    }

    fn observe(
        &mut self,
        _now: Moment,
        seen: &Observation<'_>,
        _leaderships: &LeadershipIntervals,
    ) -> Result<(), String> {
        let (voter, term, candidate) = match *seen {
            Observation::Said { who, meaning: Meaning::Votes { term, candidate } } => (who, term, candidate),
            Observation::Said { who, meaning: Meaning::Leads { term, by_own_vote } } => {
                if self.latest.replace((who, term)) == Some((who, term)) {
                    return Ok(());
                }
                self.led.insert((who, term));
                if !by_own_vote {
                    return Ok(());
                }
                (who, term, who)
            }
            Observation::Ended { who } => {
                self.ended.insert(who);
                return Ok(());
            }
            Observation::DiskLost { node } => {
                self.latest = None;
                let of_node = self.votes.iter().filter(|((voter, _), _)| *voter == node);
                let lost = of_node.flat_map(|(&(voter, term), candidates)| {
                    candidates.iter().map(move |&candidate| (voter, term, candidate))
                });
                self.lost.extend(lost);
                return Ok(());
            }
            Observation::Told { .. }
            | Observation::Said { .. }
            | Observation::Metadata(_)
            | Observation::Accepted { .. }
            | Observation::Phase(_)
            | Observation::Looked { .. }
            | Observation::Viewed { .. }
            | Observation::ClockChanged => return Ok(()),
        };
        let mut votes = self.votes.remove(&(voter.node, term)).unwrap_or_default();
        let again = votes.contains(&candidate);
        let before = votes.iter().copied().find(|&first| !again && !self.is_void(voter.node, term, first));
        if !again {
            votes.push(candidate);
        }
        self.votes.insert((voter.node, term), votes);
        let (voter, other) = (voter.node, candidate.node);
        before.map_or(Ok(()), |first| {
            Err(format!("{voter} votes for {} and for {other} in term {term}", first.node))
        })
    }
}
