//! The count of voters, the refusals of changes, and that a refusal changes nothing.

use super::*;

fn voter(number: usize) -> NodeId {
    NodeId::new(&format!("n{number}")).unwrap()
}

fn at(number: usize) -> Identity {
    Identity::new(voter(number), Incarnation { count: 1, nonce: 0 })
}

/// The same node, after a restart.
fn again_at(number: usize) -> Identity {
    Identity::new(voter(number), Incarnation { count: 2, nonce: 0 })
}

fn somewhere() -> Arc<str> {
    Arc::from("somewhere")
}

fn add(number: usize) -> VoterChange {
    VoterChange::Add { node: voter(number), address: somewhere() }
}

fn remove(number: usize) -> VoterChange {
    VoterChange::Remove { node: voter(number) }
}

/// The first of so many voters.
fn follower_of(voters: usize) -> Replica<History> {
    let members = (0..voters).map(|number| (voter(number), somewhere())).collect();
    let voters = Arc::new(Voters { number: LeaderSequence::NONE, members });
    let config = config(at(0), Durability::Fsync);
    let replica = Replica::new(config, Term(1), voters, Stored::default(), false, Instant::default());
    replica.expect("there is nothing to be read")
}

/// The same, as the leader, whose first record all others have taken.
fn leader_of(voters: usize) -> Replica<History> {
    let (now, term) = (Instant::default(), Term(1));
    let mut leader = follower_of(voters);
    leader.lead(now);
    let to = leader.config.me.incarnation;
    for other in 1..voters {
        leader.handle(now, at(other), term, Body::SyncReply { to, last: LeaderSequence::NONE });
    }
    for other in 1..voters {
        answer(&mut leader, at(other));
    }
    perform(&mut leader);
    assert!(leader.is_active());
    leader
}

/// This node answers the last message to it: it holds all.
fn answer(leader: &mut Replica<History>, from: Identity) {
    answer_at(leader, Instant::default(), from);
}

fn answer_at(leader: &mut Replica<History>, now: Instant, from: Identity) {
    perform(leader);
    let round = match &leader.role {
        Role::Leader(lead) => lead.followers[&from.node].round,
        Role::Follower { .. } | Role::Passive(_) => panic!("a majority has answered"),
    };
    let (to, last) = (leader.config.me.incarnation, leader.last());
    let answer = Body::AppendReply { to, round, last, gap: false, recovering: false };
    leader.handle(now, from, leader.bound(), answer);
}

/// The refusal of a change if these nodes are heard; it changes nothing.
fn refused(replica: &mut Replica<History>, change: &VoterChange, heard: &[usize]) -> Refusal {
    let before = replica.clone();
    let is_heard = |node| heard.iter().any(|&number| voter(number) == node);
    let said = replica.revise(Instant::default(), change, true, is_heard);
    assert!(*replica == before, "{change:?} has changed something: {said:?}");
    match said {
        Progress::Refused(refusal) => refusal,
        Progress::Done
        | Progress::Committing
        | Progress::CatchingUp { .. }
        | Progress::Waiting
        | Progress::Resigning => {
            panic!("{change:?}: {said:?}")
        }
    }
}

#[test]
fn a_voter_counts_once_however_often_it_answers() {
    let now = Instant::default();
    let mut leader = leader_of(5);
    let before = leader.last();
    assert!(leader.propose(now, Arc::from([7])));
    leader.on_timeout(now);
    for _ in 0..5 {
        answer(&mut leader, at(1));
        leader.on_timeout(now);
    }
    // Nor is its next incarnation another voter.
    leader.on_connected(now, again_at(1));
    answer(&mut leader, again_at(1));
    assert_eq!(leader.committed(), before, "two of five hold it");
    answer(&mut leader, at(2));
    assert_eq!(leader.committed(), leader.last(), "three of five hold it");
}

#[test]
fn one_that_does_not_lead_changes_no_voters() {
    let mut replica = follower_of(3);
    for change in [add(3), remove(2), add(1), remove(7)] {
        assert_eq!(refused(&mut replica, &change, &[0, 1, 2]), Refusal::NotLeading);
    }
    // Nor does a leader that does not know yet what was committed before it.
    replica.lead(Instant::default());
    while replica.poll().is_some() {}
    assert_eq!(refused(&mut replica, &remove(2), &[0, 1, 2]), Refusal::NotLeading);
}

#[test]
fn the_last_voter_stays() {
    let mut leader = leader_of(1);
    assert_eq!(refused(&mut leader, &remove(0), &[0]), Refusal::Last);
}

#[test]
fn there_are_no_more_voters_than_may_be() {
    let all: Vec<usize> = (0..=VOTERS_MAX).collect();
    let mut leader = leader_of(VOTERS_MAX);
    assert_eq!(refused(&mut leader, &add(VOTERS_MAX), &all), Refusal::TooMany);
    // One fewer, and the same is requested again.
    let mut leader = leader_of(VOTERS_MAX - 1);
    let said = leader.revise(Instant::default(), &add(VOTERS_MAX), true, |_| true);
    assert!(matches!(said, Progress::CatchingUp { .. }), "{said:?}");
}

#[test]
fn of_the_voters_that_there_would_be_a_majority_must_be_heard() {
    let mut leader = leader_of(3);
    // The new one is not counted: it would not answer before it is taught.
    assert_eq!(refused(&mut leader, &add(3), &[0]), Refusal::NoMajority { heard: 2, voters: 4 });
    assert_eq!(refused(&mut leader, &remove(2), &[0, 2]), Refusal::NoMajority { heard: 1, voters: 2 });
    let said =
        leader.revise(Instant::default(), &remove(2), true, |node| node == voter(0) || node == voter(1));
    assert_eq!(said, Progress::Committing);
}

#[test]
fn a_voter_that_is_reached_elsewhere_is_not_added_again() {
    let mut leader = leader_of(3);
    let change = VoterChange::Add { node: voter(1), address: Arc::from("elsewhere") };
    assert_eq!(refused(&mut leader, &change, &[0, 1, 2]), Refusal::OtherAddress);
    assert_eq!(leader.revise(Instant::default(), &add(1), true, |_| true), Progress::Done);
}

/// A node that had caught up and died would count for a majority, and hold up writes.
#[test]
fn a_node_votes_only_when_it_has_answered_since_it_was_wanted_last() {
    let mut leader = leader_of(3);
    let start = Instant::default();
    let taught = leader.revise(start, &add(3), true, |_| true);
    assert!(matches!(taught, Progress::CatchingUp { .. }), "{taught:?}");
    answer(&mut leader, at(3));
    assert_eq!(leader.clone().revise(start, &add(3), true, |_| true), Progress::Committing);
    // An answer of long ago tells nothing; it is asked again, and as long as it does not answer it is not added.
    let later = start.after(Duration::from_secs(40));
    for _ in 0..3 {
        let said = leader.revise(later, &add(3), true, |_| true);
        assert_eq!(said, Progress::CatchingUp { held: leader.last(), last: leader.last() });
    }
    answer_at(&mut leader, later, at(3));
    let a_little_later = later.after(Duration::from_secs(1));
    assert_eq!(leader.revise(a_little_later, &add(3), true, |_| true), Progress::Committing);
}

#[test]
fn how_far_a_node_is_that_is_brought_up_to_date_is_told_at_each_question() {
    let mut leader = leader_of(3);
    let (now, first) = (Instant::default(), LeaderSequence::first(Term(1)));
    leader.revise(now, &add(3), true, |_| true);
    answer(&mut leader, at(3));
    for payload in 0..9 {
        assert!(leader.propose(now, Arc::from(vec![payload; 100])));
    }
    leader.on_timeout(now);
    let last = leader.last();
    let told = |leader: &mut Replica<History>| leader.revise(now, &add(3), true, |_| true);
    assert_eq!(told(&mut leader), Progress::CatchingUp { held: first, last });
    let (to, third) = (leader.config.me.incarnation, first.next().next());
    let answer = Body::AppendReply { to, round: 1, last: third, gap: false, recovering: false };
    leader.handle(now, at(3), Term(1), answer);
    assert_eq!(told(&mut leader), Progress::CatchingUp { held: third, last });
}

/// A lease rests on the voters of when it was given.
#[test]
fn voters_are_not_changed_while_the_lease_rests_on_those_before() {
    let mut leader = leader_of(3);
    let now = Instant::default();
    assert_eq!(leader.revise(now, &remove(2), false, |_| true), Progress::Waiting);
    leader.revise(now, &add(3), false, |_| true);
    answer(&mut leader, at(3));
    assert_eq!(leader.revise(now, &add(3), false, |_| true), Progress::Waiting);
    assert_eq!(leader.voters().count(), 3);
    assert_eq!(leader.revise(now, &remove(2), true, |_| true), Progress::Committing);
}

/// Two of four hold a record, and two of the three that stay. The other one of the two does not know yet which voters
/// stay: if it lost its log, it would ask the removed ones for its contents, too, and a majority of the others without
/// this leader.
#[test]
fn what_the_voters_before_have_not_committed_the_next_ones_commit_with_their_own_list() {
    let (now, mut leader) = (Instant::default(), leader_of(4));
    let before = leader.committed();
    assert!(leader.propose(now, Arc::from([7])));
    leader.on_timeout(now);
    answer(&mut leader, at(1));
    assert_eq!(leader.committed(), before, "two of four hold it");
    assert_eq!(leader.revise(now, &remove(3), true, |_| true), Progress::Committing);
    leader.on_timeout(now);
    assert_eq!(
        leader.committed(),
        before,
        "two of three hold it, and one of them does not know that it is one of three"
    );
    answer(&mut leader, at(1));
    assert_eq!(leader.committed(), leader.last());
}
