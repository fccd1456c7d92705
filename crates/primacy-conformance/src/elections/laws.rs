//! The laws of elections.

use super::harness::{ElectionHarness, NODES, Need, NodeCommand, NodeEventKind, Pace, Waiting};
use super::law_run::{LawRun, Win};

/// A guarantee of elections.
#[derive(Debug)]
pub struct Law {
    /// Its name, which states the guarantee.
    pub name: &'static str,
    /// The abilities that an arm needs to be checked.
    pub needs: &'static [Need],
    run: for<'a> fn(&'a mut dyn ElectionHarness) -> Waiting<'a, ()>,
}

impl Law {
    /// Checks an election against this law.
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
                let mut run = LawRun::new(harness, stringify!($law), Pace::$pace).await;
                $law(&mut run).await;
                run.judge();
                run.all(NodeCommand::Stop).await;
            }),
        }
    };
}

/// The single list of all laws of elections. In addition, each run is checked: no two nodes have led at the same
/// time, and tokens have grown.
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

/// If many nodes campaign at once, one leads, and each next leader leads only after it.
pub async fn of_many_rivals_exactly_one_leads(run: &mut LawRun<'_>) {
    run.all(NodeCommand::Campaign).await;
    let mut leader = run.elected("the first election", |_| true).await;
    for _ in 0..4 {
        run.command(leader.node, NodeCommand::Check).await;
        let is_it = |seen: &super::NodeEvent| {
            seen.node == leader.node && matches!(seen.what, NodeEventKind::Checked { .. })
        };
        let checked = run.until("whether it may act", is_it).await;
        assert_eq!(
            checked.what,
            NodeEventKind::Checked { may_act: true },
            "the one that was elected may act"
        );
        leader = hand_over(run, leader).await;
    }
}

/// Hands over the lead to any other node, and campaigns again.
async fn hand_over(run: &mut LawRun<'_>, from: Win) -> Win {
    run.command(from.node, NodeCommand::Resign).await;
    let next = run.elected("the next election", |node| node != from.node).await;
    run.command(from.node, NodeCommand::Campaign).await;
    next
}

/// After all processes have ended at once, each further leader still has a higher token than all before, and the
/// resource accepts its writes.
pub async fn tokens_grow_across_restart_of_everything(run: &mut LawRun<'_>) {
    let mut highest = 0;
    for round in 0..3 {
        if round > 0 {
            run.all(NodeCommand::Start).await;
        }
        run.all(NodeCommand::Campaign).await;
        let leader = run.elected("an election", |_| true).await;
        assert!(leader.token > highest, "token {} after {highest}", leader.token);
        highest = leader.token;
        assert!(run.write(leader.node).await, "the resource takes the newest token");
        run.all(NodeCommand::Stop).await;
    }
}

/// If the leader's clock is the slowest that the drift bound allows and all others are the fastest, an unreachable
/// leader has stopped before another one begins.
pub async fn two_holders_never_overlap_under_drift(run: &mut LawRun<'_>) {
    run.all(NodeCommand::Campaign).await;
    let mut leader = run.elected("the first election", |_| true).await;
    for _ in 0..6 {
        run.command(leader.node, NodeCommand::SlowestClock).await;
        // One renewal under the slow clock, so that this clock measures the lease.
        let renewed = |seen: &super::NodeEvent| {
            seen.node == leader.node && matches!(seen.what, NodeEventKind::Renewed { .. })
        };
        run.until("a renewal", renewed).await;
        run.command(leader.node, NodeCommand::Silence).await;
        let next = run.elected("the election of another", |node| node != leader.node).await;
        run.command(leader.node, NodeCommand::Heal).await;
        run.judge();
        run.command(leader.node, NodeCommand::Campaign).await;
        leader = next;
    }
}

/// A leader that was stopped until another node was elected may not act when it continues.
pub async fn a_paused_leader_finds_itself_deposed(run: &mut LawRun<'_>) {
    run.all(NodeCommand::Campaign).await;
    let leader = run.elected("the first election", |_| true).await;
    run.command(leader.node, NodeCommand::Pause).await;
    let next = run.elected("the election of another", |node| node != leader.node).await;
    assert!(next.token > leader.token);
    run.command(leader.node, NodeCommand::Check).await;
    run.command(leader.node, NodeCommand::Resume).await;
    let is_it = |seen: &super::NodeEvent| {
        seen.node == leader.node && matches!(seen.what, NodeEventKind::Checked { .. })
    };
    let checked = run.until("whether it may act", is_it).await;
    assert_eq!(checked.what, NodeEventKind::Checked { may_act: false }, "it was deposed while it was paused");
}

/// The write of a leader that was stopped between its check and the write is refused, once the next leader has
/// written.
pub async fn the_fence_refuses_its_late_write(run: &mut LawRun<'_>) {
    run.all(NodeCommand::Campaign).await;
    let leader = run.elected("the first election", |_| true).await;
    assert!(run.write(leader.node).await, "it leads");
    run.command(leader.node, NodeCommand::Pause).await;
    let next = run.elected("the election of another", |node| node != leader.node).await;
    assert!(run.write(next.node).await, "it leads now");
    run.command(leader.node, NodeCommand::Write).await;
    run.command(leader.node, NodeCommand::Resume).await;
    assert!(!run.written(leader.node).await, "another has been there since");
    assert!(run.write(next.node).await, "and it still leads");
}

/// When a leader resigns, no node waits for a timeout: the next one leads after the documented number of round trips.
pub async fn release_hands_over_within_its_documented_round_trips(run: &mut LawRun<'_>) {
    run.all(NodeCommand::Campaign).await;
    let mut leader = run.elected("the first election", |_| true).await;
    let bound = run.harness().bounds().release;
    // A node that has just resigned lets the others go first, so there is always one left that has not.
    for _ in 1..NODES {
        run.command(leader.node, NodeCommand::Resign).await;
        let released_at = run.ended(leader.node).await;
        let next = run.elected("the next election", |node| node != leader.node).await;
        run.assert_within(bound, (released_at, next.at), "the hand-over");
        run.command(leader.node, NodeCommand::Campaign).await;
        leader = next;
    }
}

/// When the leader becomes unreachable, another node leads within the documented bound.
pub async fn expiry_hands_over_within_the_documented_bound(run: &mut LawRun<'_>) {
    run.all(NodeCommand::Campaign).await;
    let leader = run.elected("the first election", |_| true).await;
    let bound = run.harness().bounds().expiry;
    run.command(leader.node, NodeCommand::Silence).await;
    let silent_at = run.harness().now();
    let next = run.elected("the election of another", |node| node != leader.node).await;
    run.assert_within(bound, (silent_at, next.at), "the hand-over");
    run.command(leader.node, NodeCommand::Heal).await;
}

/// A node that has stopped campaigning is not elected, does not keep others from being elected, and can campaign again.
pub async fn cancelling_campaign_leaves_nothing_behind(run: &mut LawRun<'_>) {
    let [leading, cancelled, third] = [0, 1, 2];
    run.command(leading, NodeCommand::Campaign).await;
    run.elected("the only candidate's election", |_| true).await;
    for _ in 0..3 {
        // It stops campaigning while another node leads.
        run.command(cancelled, NodeCommand::Campaign).await;
        run.command(cancelled, NodeCommand::Cancel).await;
        run.command(leading, NodeCommand::Resign).await;
        run.ended(leading).await;
        run.command(third, NodeCommand::Campaign).await;
        let next = run.elected("the election of one that stands", |_| true).await;
        assert_eq!(next.node, third, "the other one has stopped to stand");
        // It stops campaigning at the moment when it may be elected.
        run.command(cancelled, NodeCommand::Campaign).await;
        run.command(third, NodeCommand::Resign).await;
        run.command(cancelled, NodeCommand::Cancel).await;
        run.command(leading, NodeCommand::Campaign).await;
        run.elected("the election of one that stands", |node| node == leading).await;
    }
    run.command(leading, NodeCommand::Resign).await;
    run.command(cancelled, NodeCommand::Campaign).await;
    run.elected("the election of one that campaigns again", |node| node == cancelled).await;
}

/// An observer learns of every leader exactly once, in the order of their terms.
pub async fn observers_see_every_term_in_order(run: &mut LawRun<'_>) {
    run.all(NodeCommand::Campaign).await;
    let mut leader = run.elected("the first election", |_| true).await;
    let mut terms = Vec::new();
    for _ in 0..4 {
        terms.push(leader.term);
        for node in 0..NODES {
            if !seen_by(run, node).contains(&leader.term) {
                let is_it = |seen: &super::NodeEvent| {
                    seen.node == node && seen.what == NodeEventKind::Saw { term: Some(leader.term) }
                };
                run.until("a leader to be seen", is_it).await;
            }
        }
        leader = hand_over(run, leader).await;
    }
    for node in 0..NODES {
        let seen = seen_by(run, node);
        assert!(seen.is_sorted_by(|earlier, later| earlier < later), "out of order: {seen:?}");
        assert!(terms.iter().all(|term| seen.contains(term)), "{terms:?} led, and {seen:?} were seen");
        let wins: Vec<u64> = run.wins().map(|win| win.term).collect();
        assert!(seen.iter().all(|term| wins.contains(term)), "{wins:?} led, and {seen:?} were seen");
    }
}

/// The terms of the leaders that a node has observed.
fn seen_by(run: &LawRun<'_>, node: usize) -> Vec<u64> {
    let mut terms: Vec<u64> = Vec::new();
    for seen in run.seen.iter().filter(|seen| seen.node == node) {
        if let NodeEventKind::Saw { term: Some(term) } = seen.what
            && terms.last() != Some(&term)
        {
            terms.push(term);
        }
    }
    terms
}
