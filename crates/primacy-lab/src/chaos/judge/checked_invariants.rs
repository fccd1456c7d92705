//! The invariants by which a run is judged: those of the simulator for the arm's election, as far as the files of a
//! run are evidence for them.

use primacy_sim::algorithm::Algorithm;
use primacy_sim::elections::lease::Lease;
use primacy_sim::elections::quorum::Quorum;
use primacy_sim::elections::ranked::Ranked;
use primacy_sim::elections::session::Session;
use primacy_sim::invariants::Invariant;

use crate::chaos::arm::{Arm, Held, PeerElection};

/// The invariants for which the files of a run are no evidence, with the reasons.
const NOT_SHOWN: &[(&str, &str)] = &[
    ("I4", "no node writes down whom it votes for; judged in worlds and spaces"),
    ("I5", "it asks for a calm, and the faults of a run come without an end; judged in worlds"),
    (
        "I6",
        "it asks which leader each node names, within a bound for an idle machine; judged in worlds. \
            A run is stuck, which is a violation, when 30 leases after all was healed no leader works",
    ),
];

/// The invariants of an election, divided into those that can be judged and the others.
#[derive(Debug)]
pub(crate) struct CheckedInvariants {
    /// The invariants that can be judged.
    pub(crate) judged: Vec<Box<dyn Invariant>>,
    /// The names of the others, with the reasons.
    pub(crate) not_judged: Vec<(&'static str, &'static str)>,
}

impl CheckedInvariants {
    /// True if the election guarantees one leader at a time, so that the next leader must find the lock free.
    pub(crate) fn one_at_a_time(&self) -> bool {
        self.judged.iter().any(|invariant| invariant.name() == "I3")
    }

    /// Returns the invariants of an arm's election. An invariant without an entry in the table of exceptions is
    /// judged.
    pub(crate) fn by(arm: &Arm) -> Self {
        let mut promised = Self { judged: Vec::new(), not_judged: Vec::new() };
        for invariant in all(arm) {
            match NOT_SHOWN.iter().find(|(name, _)| *name == invariant.name()) {
                Some(not_shown) => promised.not_judged.push(*not_shown),
                None => promised.judged.push(invariant),
            }
        }
        promised.judged.sort_by_key(|invariant| invariant.name());
        promised.not_judged.sort_unstable();
        promised
    }
}

fn all(arm: &Arm) -> Vec<Box<dyn Invariant>> {
    match arm.held {
        // The default settings give the guarantee that the arms are started with: leadership intervals never overlap.
        Held::AmongPeers(PeerElection::Quorum | PeerElection::Metadata | PeerElection::ByQuorum(_)) => {
            Quorum::invariants(&Default::default())
        }
        Held::AmongPeers(PeerElection::Ranked) => Ranked::invariants(&Default::default()),
        Held::AmongPeers(PeerElection::ByStore(..)) => Lease::invariants(&Default::default()),
        Held::OnServer(make) if make.keeps_sessions() => Session::invariants(&Default::default()),
        Held::OverStore(_) | Held::OnServer(_) => Lease::invariants(&Default::default()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chaos::arm::ARMS;

    /// The invariants for which the events of `history.rs` are enough.
    const SHOWN: [&str; 4] = ["I1", "I2", "I3", "I8"];

    #[test]
    fn every_promise_is_judged_or_named() {
        for arm in ARMS {
            let promised = CheckedInvariants::by(arm);
            let judged: Vec<&str> = promised.judged.iter().map(|invariant| invariant.name()).collect();
            let one_at_a_time = arm.held != Held::AmongPeers(PeerElection::Ranked);
            let shown = SHOWN.into_iter().filter(|name| one_at_a_time || *name != "I3");
            assert!(
                shown.eq(judged),
                "{}: one that is new is shown to the judge, or stands in NOT_SHOWN",
                arm.name
            );
            let named = promised.not_judged.iter().map(|(name, _)| *name);
            let votes = matches!(
                arm.held,
                Held::AmongPeers(
                    PeerElection::Quorum
                        | PeerElection::Metadata
                        | PeerElection::Ranked
                        | PeerElection::ByQuorum(_)
                )
            );
            assert!(
                named.eq(["I4", "I5", "I6"].into_iter().filter(|name| votes || *name != "I4")),
                "{}",
                arm.name
            );
        }
    }
}
