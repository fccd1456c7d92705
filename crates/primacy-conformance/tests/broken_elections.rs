//! Each law of elections can fail: for each there is an election that breaks it, and is caught.

use std::collections::VecDeque;

use primacy_conformance::elections::{
    Bounds, ElectionHarness, LAWS, Need, NodeCommand, NodeEvent, NodeEventKind, Pace, Waiting, check,
    simulated,
};
use primacy_core::election::lease::Record;
use primacy_core::{Drift, Duration, FencingToken};
use primacy_sim::elections::lease::Lease;
use primacy_sim::world::World;

/// The flaw of an election, or of what it rests on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Flaw {
    None,
    /// A second node believes that it was elected, too.
    ElectsTwo,
    /// An elected node may not act.
    ElectsInName,
    /// After a restart, tokens begin anew.
    ForgetsTokens,
    /// A leader does not notice that it was deposed.
    NeverDeposed,
    /// The resource takes every write.
    NoFence,
    /// The resource takes no write.
    FenceWithoutGate,
    /// No node gets notice of a release, and each looks a second later.
    LooksLate,
    /// Leases are twice as long as stated.
    LongLease,
    /// Clocks differ by more than the bound of the election.
    DriftBeyondTheBound,
    /// A campaign that was given up goes on.
    CampaignsOn,
    /// An observer learns of a leader twice, and of another one in between.
    ObservesAnew,
    /// An observer misses a leader.
    ObservesNothing,
}

/// The laws, each with the flaw that it must catch, and with a part of its message then.
const CAUGHT: [(&str, Flaw, &str); 13] = [
    ("of_many_rivals_exactly_one_leads", Flaw::ElectsTwo, "comes after"),
    ("of_many_rivals_exactly_one_leads", Flaw::ElectsInName, "may act"),
    ("tokens_grow_across_restart_of_everything", Flaw::ForgetsTokens, "after"),
    ("tokens_grow_across_restart_of_everything", Flaw::FenceWithoutGate, "the resource takes"),
    ("two_holders_never_overlap_under_drift", Flaw::DriftBeyondTheBound, "I3"),
    ("two_holders_never_overlap_under_drift", Flaw::ElectsTwo, "two lead at a time"),
    ("a_paused_leader_finds_itself_deposed", Flaw::NeverDeposed, "while it was paused"),
    ("the_fence_refuses_its_late_write", Flaw::NoFence, "another has been there"),
    ("release_hands_over_within_its_documented_round_trips", Flaw::LooksLate, "the hand-over took"),
    ("expiry_hands_over_within_the_documented_bound", Flaw::LongLease, "the hand-over took"),
    ("cancelling_campaign_leaves_nothing_behind", Flaw::CampaignsOn, "has stopped to stand"),
    ("observers_see_every_term_in_order", Flaw::ObservesAnew, "out of order"),
    ("observers_see_every_term_in_order", Flaw::ObservesNothing, "in vain"),
];

/// The lease in the simulator's world, with a flaw in it or around it.
struct Broken {
    inner: simulated::SimulatedElection<Lease>,
    flaw: Flaw,
    seen: VecDeque<NodeEvent>,
    /// The highest token that was shown.
    highest: u64,
    restarts: u64,
    terms: Vec<u64>,
}

/// As the sound one, but for what is changed after it.
fn set(world: &mut World<Lease>, pace: Pace, duration: Duration) {
    let duration = match pace {
        Pace::Quick => duration,
        Pace::Patient => duration.times(30),
    };
    for slot in world.slots() {
        let settings = &mut world.node_mut(slot).settings;
        settings.drift_max = Drift::from_ppm(100_000);
        settings.duration = duration;
        settings.renew_interval = duration.divided_by(3);
    }
    world.store.put(Some(Record::released(FencingToken(1), duration)));
    world.store.tells_changes = true;
}

impl Broken {
    fn new(flaw: Flaw) -> Self {
        let sound: fn(&mut World<Lease>, Pace) = |world, pace| set(world, pace, Duration::from_secs(2));
        let set: fn(&mut World<Lease>, Pace) = match flaw {
            Flaw::LooksLate => |world, pace| {
                set(world, pace, Duration::from_secs(2));
                world.store.tells_changes = false;
            },
            Flaw::LongLease => |world, pace| set(world, pace, Duration::from_secs(4)),
            Flaw::DriftBeyondTheBound => |world, pace| {
                set(world, pace, Duration::from_secs(2));
                for slot in world.slots() {
                    world.node_mut(slot).settings.drift_max = Drift::from_ppm(100);
                }
            },
            Flaw::None
            | Flaw::ElectsTwo
            | Flaw::ElectsInName
            | Flaw::ForgetsTokens
            | Flaw::NeverDeposed
            | Flaw::NoFence
            | Flaw::FenceWithoutGate
            | Flaw::CampaignsOn
            | Flaw::ObservesAnew
            | Flaw::ObservesNothing => sound,
        };
        let inner = simulated::lease(1).set_otherwise(set);
        Self { inner, flaw, seen: VecDeque::new(), highest: 0, restarts: 0, terms: Vec::new() }
    }

    /// Replaces what was seen by what the flaw shows.
    fn distort(&mut self, mut seen: NodeEvent) {
        match (self.flaw, &mut seen.what) {
            (Flaw::ElectsTwo, NodeEventKind::Elected { .. }) => {
                self.seen.push_back(seen);
                seen.node = (seen.node + 1) % 3;
            }
            (Flaw::ElectsInName, NodeEventKind::Checked { may_act }) => *may_act = false,
            (Flaw::NeverDeposed, NodeEventKind::Checked { may_act }) => *may_act = true,
            (Flaw::NoFence, NodeEventKind::Wrote { is_accepted, .. }) => *is_accepted = true,
            (Flaw::FenceWithoutGate, NodeEventKind::Wrote { is_accepted, .. }) => *is_accepted = false,
            (Flaw::ForgetsTokens, NodeEventKind::Elected { token, .. }) => {
                self.highest = self.highest.max(*token);
                *token -= (self.restarts / 3) * (*token - 1);
            }
            (Flaw::ObservesNothing, NodeEventKind::Saw { .. }) if seen.node == 2 => return,
            (Flaw::ObservesAnew, NodeEventKind::Saw { term: Some(term) }) if seen.node == 2 => {
                self.terms.push(*term);
                let (before, now) = (self.terms[self.terms.len().saturating_sub(2)], *term);
                for term in [now, before] {
                    self.seen.push_back(NodeEvent { what: NodeEventKind::Saw { term: Some(term) }, ..seen });
                }
            }
            (_, _) => {}
        }
        self.seen.push_back(seen);
    }
}

impl ElectionHarness for Broken {
    fn name(&self) -> String {
        format!("{:?}", self.flaw)
    }

    fn lacks(&self, need: Need) -> Option<&'static str> {
        self.inner.lacks(need)
    }

    fn begin<'a>(&'a mut self, election: &'a str, pace: Pace) -> Waiting<'a, ()> {
        *self = Self::new(self.flaw);
        self.inner.begin(election, pace)
    }

    fn command(&mut self, node: usize, command: NodeCommand) -> Waiting<'_, ()> {
        if command == NodeCommand::Stop {
            self.restarts += 1;
        }
        if command == NodeCommand::Cancel && self.flaw == Flaw::CampaignsOn {
            return Box::pin(async {});
        }
        self.inner.command(node, command)
    }

    fn next(&mut self) -> Waiting<'_, Option<NodeEvent>> {
        Box::pin(async {
            while self.seen.is_empty() {
                let seen = self.inner.next().await?;
                self.distort(seen);
            }
            self.seen.pop_front()
        })
    }

    fn now(&self) -> u64 {
        self.inner.now()
    }

    fn patience(&self) -> std::time::Duration {
        self.inner.patience()
    }

    fn bounds(&self) -> Bounds {
        self.inner.bounds()
    }

    fn breaches(&self) -> Vec<String> {
        self.inner.breaches()
    }
}

/// The violation that a law finds, if it does.
async fn finding(law: &'static str, flaw: Flaw) -> Option<String> {
    let law = LAWS.iter().find(|known| known.name == law).expect("a law of this name");
    let holding = async move { law.check(&mut Broken::new(flaw)).await };
    let set = tokio::task::LocalSet::new();
    let holding = set.run_until(async { tokio::task::spawn_local(holding).await });
    let panic = holding.await.err()?.try_into_panic().expect("it is not cancelled");
    let text = panic.downcast_ref::<String>().cloned();
    text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()))
}

#[tokio::test]
async fn every_law_of_elections_catches_what_it_is_there_for() {
    let mut names: Vec<_> = CAUGHT.iter().map(|(law, ..)| *law).collect();
    names.dedup();
    assert_eq!(names, LAWS.map(|law| law.name), "each law has a flaw to catch");
    let mut missed = Vec::new();
    for (law, flaw, says) in CAUGHT {
        let found = finding(law, flaw).await;
        println!("{law}, {flaw:?}: {found:?}");
        if !found.as_ref().is_some_and(|found| found.contains(says)) {
            missed.push((law, flaw, found));
        }
    }
    assert!(missed.is_empty(), "{missed:?}");
}

#[tokio::test]
async fn the_same_election_without_a_flaw_keeps_the_laws() {
    check(&mut Broken::new(Flaw::None)).await;
}
