//! I7: after the healing, the views of all live members are equal, with one coordinator. Under all faults, a view's
//! number is used once, no member returns to an earlier view, and no coordinator gives an age twice.

use std::collections::BTreeMap;

use primacy_core::membership::{Age, Cluster, Sight, View, ViewVersion};
use primacy_core::{Identity, Term};

use super::{Invariant, Observation, Phase};
use crate::clock::Moment;
use crate::leadership_intervals::LeadershipIntervals;

/// Checks every view that a process has.
#[derive(Debug, Default)]
pub struct ViewsAgree {
    /// The view of each number in each cluster.
    made: BTreeMap<(Cluster, ViewVersion), View>,
    /// The member to which each coordinator has given each age, with the number of its joining.
    given: BTreeMap<(Cluster, Term, Identity, Age), (Identity, u64)>,
    /// The current view of each process, with the number of its joining.
    has: BTreeMap<Identity, (u64, Option<View>)>,
    until: Option<Moment>,
}

impl Invariant for ViewsAgree {
    fn name(&self) -> &'static str {
        "I7"
    }

    fn observe(
        &mut self,
        now: Moment,
        seen: &Observation<'_>,
        _leaderships: &LeadershipIntervals,
    ) -> Result<(), String> {
        match *seen {
            Observation::Viewed { who, joining, view } => self.viewed(who, joining, view),
            Observation::Ended { who } => {
                self.has.remove(&who);
                Ok(())
            }
            Observation::Phase(Phase::Healed { until }) => {
                self.until = Some(until);
                Ok(())
            }
            Observation::Phase(Phase::Faults | Phase::Calm) => {
                self.until = None;
                Ok(())
            }
            Observation::Looked { all: true, .. } if self.until.is_some_and(|until| now >= until) => {
                self.until = None;
                self.agree()
            }
            Observation::Told { .. }
            | Observation::Said { .. }
            | Observation::Metadata(_)
            | Observation::Accepted { .. }
            | Observation::ClockChanged
            | Observation::Looked { .. }
            | Observation::DiskLost { .. } => Ok(()),
        }
    }
}

impl ViewsAgree {
    fn viewed(&mut self, who: Identity, joining: u64, view: Option<&View>) -> Result<(), String> {
        let before = self.has.insert(who, (joining, view.cloned()));
        let Some(view) = view else { return Ok(()) };
        let Sight { cluster, version, .. } = view.sight();
        if view.oldest().identity != version.coordinator {
            return Err(format!("{} coordinates, and is not the oldest", version.coordinator.node));
        }
        if view.member(who).is_none_or(|member| member.joining != joining) {
            return Err(format!("{} has a view that it does not belong to", who.node));
        }
        if let Some((earlier, Some(old))) = before
            && earlier == joining
            && !view.sight().is_later_than(&old.sight())
        {
            return Err(format!("{} goes back to an earlier view", who.node));
        }
        let made = self.made.entry((cluster, version)).or_insert_with(|| view.clone());
        if made != view {
            return Err(format!(
                "{} has made two views with one number, {}.{}",
                version.coordinator.node, version.term, version.number
            ));
        }
        for member in view.members() {
            let is = (member.identity, member.joining);
            let given =
                self.given.entry((cluster, version.term, version.coordinator, member.age)).or_insert(is);
            if *given != is {
                return Err(format!("{} has given the age {} twice", version.coordinator.node, member.age.0));
            }
        }
        Ok(())
    }

    /// Checks that all members have the same view, and that it contains all of them.
    fn agree(&self) -> Result<(), String> {
        let views: Vec<Option<&View>> = self.has.values().map(|(_, view)| view.as_ref()).collect();
        let Some(&Some(first)) = views.first() else {
            return Err("somebody belongs to no cluster".to_owned());
        };
        if let Some(other) = views.iter().find(|view| **view != Some(first)) {
            let other = other.map_or_else(|| "none".to_owned(), crate::display::views::view_text);
            return Err(format!("views differ: {}, and {other}", crate::display::views::view_text(first)));
        }
        let is_in = |who: &&Identity| first.member(**who).is_some();
        if first.members().len() == self.has.len() && self.has.keys().all(|who| is_in(&who)) {
            return Ok(());
        }
        Err("there are members in the view that do not live, or the other way round".to_owned())
    }
}
