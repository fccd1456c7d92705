//! The phases of a run: faults, under which only safety is required; then everything is healed, and there must be one
//! leader within a stated time; then calm, in which that leader must stay.

use primacy_core::election::quorum::DiskState;
use primacy_core::{Command, Duration, Input, Reason, majority};
use primacy_kv::machine::Metadata;

use super::faults::Crash;
use super::{ScheduledEvent, World};
use crate::algorithm::{Algorithm, Settings as _, Surroundings, metadata};
use crate::clock::Moment;
use crate::disk::MetByCrash;
use crate::invariants::{Observation, Phase};
use crate::leadership_intervals::LeadershipStage;
use crate::network::Chance;
use crate::process_slot::ProcessSlot;
use crate::trace::Level;

/// The interval of checking whether all agree.
const LOOK_INTERVAL: Duration = Duration::from_millis(20);

/// The time from the healing until all nodes named one leader, and its bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settled {
    /// The measured time.
    pub after: Duration,
    /// The bound that the election states for itself.
    pub within: Duration,
}

impl Settled {
    /// Returns the used share of the bound, in parts per million. A bound that is never nearly reached would hide a
    /// violation; one that is often nearly reached will be exceeded by chance.
    #[must_use]
    pub fn share_ppm(&self) -> u64 {
        let share = u128::from(self.after.as_nanos()) * 1_000_000 / u128::from(self.within.as_nanos()).max(1);
        u64::try_from(share).unwrap_or(u64::MAX)
    }
}

impl<A: Algorithm> World<A> {
    /// Ends every fault: links, probabilities, store and disks are as at the beginning, and all processes run,
    /// campaign and are healthy. Messages under way still arrive.
    pub fn heal_all(&mut self) {
        self.trace_world(Level::Event, || "everything is healed".to_owned());
        self.network.heal();
        self.network.chance = Chance::default();
        self.store.heal();
        for slot in self.slots() {
            let node = self.node_mut(slot);
            node.crash_at_write = None;
            node.busy = false;
            node.campaigns = true;
            node.disk.failing = false;
            if self.node(slot).clock.is_frozen() {
                self.thaw(slot);
            }
            self.resume(slot);
            self.restart(slot, false);
            self.let_drain(slot);
            self.give(slot, Input::Command(Command::Healthy(true)));
            self.give(slot, Input::Command(Command::Campaign));
        }
        for slot in self.slots() {
            self.take_back(slot);
        }
        self.connect_all();
    }

    /// Drains work that did not end by itself.
    fn let_drain(&mut self, slot: ProcessSlot) {
        let Some(who) = self.process(slot).map(|process| process.me) else { return };
        if self.leaderships.of(who).is_some_and(|interval| interval.stage == LeadershipStage::Resigning) {
            self.drained(slot);
        }
    }

    /// Records the end of a leadership. If the node keeps its candidacy, the application campaigns again once its
    /// work has ended.
    pub(crate) fn deposed(&mut self, slot: ProcessSlot, reason: Reason) {
        self.met_deposed(reason);
        let Some(life) = self.process(slot).map(|process| process.life) else { return };
        if reason == Reason::Undecided && !self.node(slot).busy {
            self.plan(self.conditions.drain, ScheduledEvent::CampaignsAgain { slot, life });
        }
    }

    /// Campaigns again, unless the application has withdrawn meanwhile.
    pub(crate) fn campaigns_again(&mut self, slot: ProcessSlot, life: u64) {
        let lives = self.process(slot).is_some_and(|process| process.life == life);
        if lives && self.node(slot).campaigns {
            self.give(slot, Input::Command(Command::Campaign));
        }
    }

    /// Readmits a node that has lost its disk, as its operator. A former disk is never accepted, so a node with one
    /// restarts with an empty disk.
    fn take_back(&mut self, slot: ProcessSlot) {
        if self.node(slot).shelf.is_empty() {
            return;
        }
        if self.slots().any(|by| self.is_former(slot, by)) {
            self.crash(slot, Crash::ProcessAndGuardian, MetByCrash::Lost);
            self.restart(slot, true);
        }
        for by in self.slots() {
            self.readmit(slot, by);
        }
    }

    /// Returns the maximum time until all nodes name one leader, if no more faults happen.
    #[must_use]
    pub fn settles_within(&self) -> Duration {
        let settings: Vec<&A::Settings> = self.slots().map(|slot| &self.node(slot).settings).collect();
        let hosts = || self.slots().map(|slot| self.host(slot)).chain([crate::network::STORE]);
        let delays = hosts().flat_map(|a| hosts().map(move |b| self.network.delay(a, b)));
        let surroundings = Surroundings {
            lag: self.lag,
            delay: delays.max().unwrap_or_default(),
            disk_latency: self.slots().map(|slot| self.node(slot).disk.latency).max().unwrap_or_default(),
            reconnect: self.conditions.reconnect,
            drain: self.conditions.drain.plus(self.conditions.kill),
        };
        A::settles_within(&settings, &surroundings)
    }

    /// True if so many nodes have lost state that their peers rely on that the rest is no majority.
    #[must_use]
    pub fn stands_still(&self) -> bool {
        let voters = self.newest_voters();
        let is_whole = |&slot: &ProcessSlot| {
            let Some(machine) = self.process(slot).map(|process| &process.machine) else { return true };
            let lost = !self.node(slot).shelf.is_empty();
            let is_taken_for_whole = |it: &Metadata| lost && it.election().disk_state() == DiskState::Intact;
            knows::<A>(machine) && !metadata::<A>(machine).is_some_and(is_taken_for_whole)
        };
        let votes = |slot: &ProcessSlot| voters.contains(&self.node(*slot).name);
        self.slots().filter(votes).filter(is_whole).count() < majority::needed(voters.len())
    }

    /// True if, without this node, the nodes that know the committed records are no majority of some node's voters.
    #[must_use]
    pub fn few_know_without(&self, slot: ProcessSlot) -> bool {
        let stays = |&other: &ProcessSlot| {
            let node = self.node(other);
            let process = self.process(other).filter(|_| other != slot);
            let falls = node.crash_at_write.is_some() || node.disk.failing;
            process.is_some_and(|process| knows::<A>(&process.machine)) && !falls
        };
        self.slots().map(|slot| self.voters_of(slot)).any(|voters| {
            let votes = |slot: &ProcessSlot| voters.contains(&self.node(*slot).name);
            self.slots().filter(votes).filter(stays).count() < majority::needed(voters.len())
        })
    }

    /// Returns the time in which this election replaces a silent leader: the unit of all waits.
    #[must_use]
    pub fn patience(&self) -> Duration {
        self.slots().map(|slot| self.node(slot).settings.patience()).max().unwrap_or_default()
    }

    /// Waits until all nodes, or all but one, have agreed for a while, at most for the election's bound. Returns the
    /// time until the agreement began; `None` if there is none.
    pub fn wait_for_agreement(&mut self, without: Option<ProcessSlot>) -> Option<Settled> {
        let (begin, within) = (self.now(), self.settles_within());
        let until = begin.after(within);
        self.observe(Observation::Phase(Phase::Healed { until }));
        // Messages under way may still disrupt the agreement.
        let calm = self.patience().times(2).plus(self.lag);
        let mut since: Option<Moment> = None;
        loop {
            let now = self.now();
            let agreed = self.agreed(without);
            let keeps_up = self.keeps_up(begin, without);
            let settled = agreed && (without.is_some() || self.views_agree()) && keeps_up.is_ok();
            since = if settled { Some(since.unwrap_or(now)) } else { None };
            self.observe(Observation::Looked { agreed, all: without.is_none() });
            match since {
                Some(since) if now.since(since) >= calm || now >= until => {
                    return Some(Settled { after: since.since(begin), within });
                }
                None if now >= until => {
                    if let (true, Err(what)) = (agreed, keeps_up) {
                        self.breach("I6", format!("{} after the healing {what}", until.since(begin)));
                    }
                    return None;
                }
                Some(_) | None => self.run_until(now.after(LOOK_INTERVAL)),
            }
        }
    }

    /// Begins or ends a calm, in which no fault strikes the leader, nor so many other nodes that it lacks a majority.
    pub fn calm(&mut self, calm: bool) {
        if calm {
            self.counters.count("calm");
        }
        let phase = if calm { Phase::Calm } else { Phase::Faults };
        self.observe(Observation::Phase(phase));
    }

    /// True if all nodes have the same view of the cluster's members, which contains all of them, or the election has
    /// no views.
    fn views_agree(&self) -> bool {
        let asked = self.slots().filter_map(|slot| self.process(slot));
        let views: Vec<_> =
            asked.map(|process| A::VIEW.map(|view_of| (process.me, view_of(&process.machine).1))).collect();
        let count = views.len();
        let first = views.iter().flatten().find_map(|(_, view)| *view);
        views.into_iter().flatten().all(|(me, view)| {
            view.is_some_and(|view| {
                first == Some(view) && view.members().len() == count && view.member(me).is_some()
            })
        })
    }

    /// True if exactly one node believes that it leads, the rightful one if the election determines it, and all other
    /// voters name it; the node `without` is ignored.
    #[must_use]
    pub fn agreed(&self, without: Option<ProcessSlot>) -> bool {
        let mut leaders = self.leaders();
        let (Some(leader), None) = (leaders.next(), leaders.next()) else { return false };
        let name = self.node(leader).name;
        let nodes: Vec<_> =
            self.slots().map(|slot| self.node(slot)).map(|it| (it.name, &it.settings)).collect();
        if without.is_none() && A::rightful(&nodes).is_some_and(|rightful| rightful != name) {
            return false;
        }
        let voters = self.voters_of(leader);
        let votes = |slot: ProcessSlot| voters.contains(&self.node(slot).name);
        let mut asked = self.slots().filter(|&slot| Some(slot) != without && votes(slot));
        votes(leader)
            && asked.all(|slot| self.node(slot).leader.is_some_and(|named| named.identity.node == name))
    }
}

/// True if a machine still knows all committed records that it has ever known.
fn knows<A: Algorithm>(machine: &A::Machine) -> bool {
    metadata::<A>(machine).is_none_or(|machine| !machine.replica().is_recovering())
}
