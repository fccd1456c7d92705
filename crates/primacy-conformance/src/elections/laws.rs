//! The laws of elections.

use super::harness::{ElectionHarness, NODES, Need, Order, Pace, Waiting, What};
use super::stage::{Stage, Win};

/// One promise that elections make.
#[derive(Debug)]
pub struct Law {
    /// Its name, which is the promise.
    pub name: &'static str,
    /// The abilities that an arm needs to be held to it.
    pub needs: &'static [Need],
    run: for<'a> fn(&'a mut dyn ElectionHarness) -> Waiting<'a, ()>,
}

impl Law {
    /// Holds an election to this law.
    ///
    /// # Panics
    /// If it is broken.
    pub async fn check(&self, harness: &mut dyn ElectionHarness) {
        (self.run)(harness).await;
    }
}

macro_rules! law {
    ($law:ident, $pace:ident, [$($need:ident),*]) => {
        Law {
            name: stringify!($law),
            needs: &[$(Need::$need),*],
            run: |harness| Box::pin(async move {
                let mut stage = Stage::new(harness, stringify!($law), Pace::$pace).await;
                $law(&mut stage).await;
                stage.judge();
                stage.all(Order::Stop).await;
            }),
        }
    };
}

/// All laws of elections; this is their one list. Each run is judged besides: no two have led at a time, and tokens have
/// grown.
pub const LAWS: [Law; 9] = [
    law!(of_many_rivals_exactly_one_leads, Patient, []),
    law!(tokens_grow_across_restart_of_everything, Quick, []),
    law!(two_holders_never_overlap_under_drift, Quick, [Drift, Silence]),
    law!(a_paused_leader_finds_itself_deposed, Quick, [Pause]),
    law!(the_fence_refuses_its_late_write, Quick, [Pause]),
    law!(release_hands_over_within_its_documented_round_trips, Patient, []),
    law!(expiry_hands_over_within_the_documented_bound, Quick, [Silence]),
    law!(cancelling_campaign_leaves_nothing_behind, Patient, []),
    law!(observers_see_every_term_in_order, Patient, []),
];

/// However many nodes campaign at once, one leads, and each next leader leads only after it.
pub async fn of_many_rivals_exactly_one_leads(stage: &mut Stage<'_>) {
    stage.all(Order::Campaign).await;
    let mut leader = stage.elected("the first election", |_| true).await;
    for _ in 0..4 {
        stage.order(leader.node, Order::Check).await;
        let is_it =
            |seen: &super::Seen| seen.node == leader.node && matches!(seen.what, What::Checked { .. });
        let checked = stage.until("whether it may act", is_it).await;
        assert_eq!(checked.what, What::Checked { may_act: true }, "the one that was elected may act");
        leader = hand_over(stage, leader).await;
    }
}

/// Gives up the lead to another node, whichever wins it, and campaigns again.
async fn hand_over(stage: &mut Stage<'_>, from: Win) -> Win {
    stage.order(from.node, Order::Resign).await;
    let next = stage.elected("the next election", |node| node != from.node).await;
    stage.order(from.node, Order::Campaign).await;
    next
}

/// After all processes were gone at once, each further leader still has a higher token than all before, and the resource
/// takes its writes.
pub async fn tokens_grow_across_restart_of_everything(stage: &mut Stage<'_>) {
    let mut highest = 0;
    for round in 0..3 {
        if round > 0 {
            stage.all(Order::Start).await;
        }
        stage.all(Order::Campaign).await;
        let leader = stage.elected("an election", |_| true).await;
        assert!(leader.token > highest, "token {} after {highest}", leader.token);
        highest = leader.token;
        assert!(stage.write(leader.node).await, "the resource takes the newest token");
        stage.all(Order::Stop).await;
    }
}

/// While the leader's clock is the slowest that the bound on drift allows and all others are the fastest, a leader that
/// is not heard any more has stopped before another one begins.
pub async fn two_holders_never_overlap_under_drift(stage: &mut Stage<'_>) {
    stage.all(Order::Campaign).await;
    let mut leader = stage.elected("the first election", |_| true).await;
    for _ in 0..6 {
        stage.order(leader.node, Order::SlowestClock).await;
        // One renewal by that clock, so that the lease is one that the clock has measured.
        let renewed =
            |seen: &super::Seen| seen.node == leader.node && matches!(seen.what, What::Renewed { .. });
        stage.until("a renewal", renewed).await;
        stage.order(leader.node, Order::Silence).await;
        let next = stage.elected("the election of another", |node| node != leader.node).await;
        stage.order(leader.node, Order::Heal).await;
        stage.judge();
        stage.order(leader.node, Order::Campaign).await;
        leader = next;
    }
}

/// A leader that was stopped for so long that another was elected may not act when it goes on.
pub async fn a_paused_leader_finds_itself_deposed(stage: &mut Stage<'_>) {
    stage.all(Order::Campaign).await;
    let leader = stage.elected("the first election", |_| true).await;
    stage.order(leader.node, Order::Pause).await;
    let next = stage.elected("the election of another", |node| node != leader.node).await;
    assert!(next.token > leader.token);
    stage.order(leader.node, Order::Check).await;
    stage.order(leader.node, Order::Resume).await;
    let is_it = |seen: &super::Seen| seen.node == leader.node && matches!(seen.what, What::Checked { .. });
    let checked = stage.until("whether it may act", is_it).await;
    assert_eq!(checked.what, What::Checked { may_act: false }, "it was deposed while it was paused");
}

/// The write of a leader that was stopped between its check and the write is refused, once the next one has written.
pub async fn the_fence_refuses_its_late_write(stage: &mut Stage<'_>) {
    stage.all(Order::Campaign).await;
    let leader = stage.elected("the first election", |_| true).await;
    assert!(stage.write(leader.node).await, "it leads");
    stage.order(leader.node, Order::Pause).await;
    let next = stage.elected("the election of another", |node| node != leader.node).await;
    assert!(stage.write(next.node).await, "it leads now");
    stage.order(leader.node, Order::Write).await;
    stage.order(leader.node, Order::Resume).await;
    assert!(!stage.written(leader.node).await, "another has been there since");
    assert!(stage.write(next.node).await, "and it still leads");
}

/// Where the lead is given up in order, no node waits for anything to run out: the next one leads after as many round trips as its page
/// says.
pub async fn release_hands_over_within_its_documented_round_trips(stage: &mut Stage<'_>) {
    stage.all(Order::Campaign).await;
    let mut leader = stage.elected("the first election", |_| true).await;
    let bound = stage.harness().bounds().release;
    // A node that has just given up the lead lets others go first; so there is always one left that has not.
    for _ in 1..NODES {
        stage.order(leader.node, Order::Resign).await;
        let released_at = stage.ended(leader.node).await;
        let next = stage.elected("the next election", |node| node != leader.node).await;
        stage.assert_within(bound, (released_at, next.at), "the hand-over");
        stage.order(leader.node, Order::Campaign).await;
        leader = next;
    }
}

/// Where the leader is not heard any more, another one leads no later than the page of the election says.
pub async fn expiry_hands_over_within_the_documented_bound(stage: &mut Stage<'_>) {
    stage.all(Order::Campaign).await;
    let leader = stage.elected("the first election", |_| true).await;
    let bound = stage.harness().bounds().expiry;
    stage.order(leader.node, Order::Silence).await;
    let silent_at = stage.harness().now();
    let next = stage.elected("the election of another", |node| node != leader.node).await;
    stage.assert_within(bound, (silent_at, next.at), "the hand-over");
    stage.order(leader.node, Order::Heal).await;
}

/// A node that has stopped campaigning is not elected, does not keep others from being elected, and can campaign again.
pub async fn cancelling_campaign_leaves_nothing_behind(stage: &mut Stage<'_>) {
    let [leading, cancelled, third] = [0, 1, 2];
    stage.order(leading, Order::Campaign).await;
    stage.elected("the only candidate's election", |_| true).await;
    for _ in 0..3 {
        // It gives up while another one leads.
        stage.order(cancelled, Order::Campaign).await;
        stage.order(cancelled, Order::Cancel).await;
        stage.order(leading, Order::Resign).await;
        stage.ended(leading).await;
        stage.order(third, Order::Campaign).await;
        let next = stage.elected("the election of one that stands", |_| true).await;
        assert_eq!(next.node, third, "the other one has stopped to stand");
        // It gives up in the moment when it might be elected.
        stage.order(cancelled, Order::Campaign).await;
        stage.order(third, Order::Resign).await;
        stage.order(cancelled, Order::Cancel).await;
        stage.order(leading, Order::Campaign).await;
        stage.elected("the election of one that stands", |node| node == leading).await;
    }
    stage.order(leading, Order::Resign).await;
    stage.order(cancelled, Order::Campaign).await;
    stage.elected("the election of one that campaigns again", |node| node == cancelled).await;
}

/// An observer learns of every leader, in the order of their terms, and of none twice.
pub async fn observers_see_every_term_in_order(stage: &mut Stage<'_>) {
    stage.all(Order::Campaign).await;
    let mut leader = stage.elected("the first election", |_| true).await;
    let mut terms = Vec::new();
    for _ in 0..4 {
        terms.push(leader.term);
        for node in 0..NODES {
            if !seen_by(stage, node).contains(&leader.term) {
                let is_it = |seen: &super::Seen| {
                    seen.node == node && seen.what == What::Saw { term: Some(leader.term) }
                };
                stage.until("a leader to be seen", is_it).await;
            }
        }
        leader = hand_over(stage, leader).await;
    }
    for node in 0..NODES {
        let seen = seen_by(stage, node);
        assert!(seen.is_sorted_by(|earlier, later| earlier < later), "out of order: {seen:?}");
        assert!(terms.iter().all(|term| seen.contains(term)), "{terms:?} led, and {seen:?} were seen");
        let wins: Vec<u64> = stage.wins().map(|win| win.term).collect();
        assert!(seen.iter().all(|term| wins.contains(term)), "{wins:?} led, and {seen:?} were seen");
    }
}

/// The terms of the leaders that a node has learned of.
fn seen_by(stage: &Stage<'_>, node: usize) -> Vec<u64> {
    let mut terms: Vec<u64> = Vec::new();
    for seen in stage.seen.iter().filter(|seen| seen.node == node) {
        if let What::Saw { term: Some(term) } = seen.what
            && terms.last() != Some(&term)
        {
            terms.push(term);
        }
    }
    terms
}
