//! Views as values: ages, takeovers, fates and the order of parts.

use super::*;
use crate::id::Incarnation;

fn life(name: &str, count: u64) -> Identity {
    Identity::new(NodeId::new(name).unwrap(), Incarnation { count, nonce: 0 })
}

fn names<const COUNT: usize>(names: [&str; COUNT]) -> BTreeSet<NodeId> {
    names.map(|name| NodeId::new(name).unwrap()).into()
}

fn joined(view: &View, name: &str, count: u64) -> View {
    view.with(life(name, count), 1, Arc::default(), Age::MAX).unwrap()
}

fn cluster(names: &[&str]) -> View {
    let first = View::founded_by(life(names[0], 1), 1, Arc::default(), FencingToken(0));
    names[1..].iter().fold(first, |view, name| joined(&view, name, 1))
}

const FIVE: [&str; 5] = ["athens", "byzantium", "cyrene", "delphi", "euphesus"];

#[test]
fn ages_are_given_once() {
    let view = cluster(&["athens", "byzantium", "cyrene"]);
    let ages: Vec<u64> = view.members().iter().map(|member| member.age.0).collect();
    assert_eq!((ages, view.version().number), (alloc::vec![1, 2, 3], 3));
    // The youngest leaves, and another comes: it is younger than that one was.
    let view = joined(&view.without(&names(["cyrene"])).unwrap(), "delphi", 1);
    assert_eq!(view.named(NodeId::new("delphi").unwrap()).unwrap().age, Age(4));
    assert_eq!(*view.removed(), names(["cyrene"]));
    let view = joined(&view, "cyrene", 2);
    assert_eq!((view.member(life("cyrene", 1)), view.removed().len()), (None, 0));
    assert_eq!(view.member(life("cyrene", 2)).unwrap().age, Age(5));
    // Back before any member has missed it.
    let view = joined(&view, "athens", 2);
    assert_eq!((view.oldest().identity, view.members().len()), (life("byzantium", 1), 4));
}

#[test]
fn ages_run_out_with_an_error_and_never_come_round() {
    let view = cluster(&["athens", "byzantium"]);
    let third = view.with(life("cyrene", 1), 1, Arc::default(), Age(3)).unwrap();
    assert_eq!(third.with(life("delphi", 1), 1, Arc::default(), Age(3)), Err(AgesRunOut { last: Age(3) }));
    let last = View::new(ViewParts { next_age: Age(Age::MAX.0 + 1), ..view.parts() }).unwrap();
    assert_eq!(
        last.with(life("delphi", 1), 1, Arc::default(), Age(u64::MAX)),
        Err(AgesRunOut { last: Age(u64::MAX) })
    );
}

#[test]
fn what_is_no_view_is_refused() {
    let view = cluster(&["athens", "byzantium", "cyrene"]);
    assert_eq!(View::new(view.parts()), Ok(view.clone()));
    let refused = |change: fn(&mut ViewParts)| {
        let mut parts = view.parts();
        change(&mut parts);
        View::new(parts).unwrap_err()
    };
    let node = |name: &str| NodeId::new(name).unwrap();
    assert_eq!(refused(|parts| parts.members.clear()), ViewError::Members(0));
    assert_eq!(refused(|parts| parts.members.swap(1, 2)), ViewError::Order(node("byzantium")));
    assert_eq!(refused(|parts| drop(parts.members.remove(0))), ViewError::Coordinator(node("athens")));
    assert_eq!(refused(|parts| parts.next_age = Age(3)), ViewError::Order(node("cyrene")));
    assert_eq!(refused(|parts| parts.version.term = Term(u64::MAX)), ViewError::Number(u64::MAX));
    assert_eq!(refused(|parts| parts.next_age = Age(u64::MAX)), ViewError::Number(u64::MAX - 1));
}

#[test]
fn one_alone_claims_the_lead_whoever_has_died() {
    let view = cluster(&FIVE);
    let claims = |suspected: &BTreeSet<NodeId>| -> Vec<&str> {
        let here = FIVE.iter().filter(|name| !suspected.contains(&NodeId::new(name).unwrap()));
        here.filter(|name| view.is_next(life(name, 1), suspected)).copied().collect()
    };
    assert_eq!(claims(&names(["athens"])), ["byzantium"]);
    // By the article's rule no member would.
    assert_eq!(claims(&names(["athens", "euphesus"])), ["byzantium"]);
    assert_eq!(claims(&names(["athens", "byzantium", "cyrene"])), ["delphi"]);
    assert_eq!(claims(&names(["cyrene"])), ["athens"]);
    assert!(!view.is_next(life("byzantium", 2), &names(["athens"])), "another life is no member");
}

#[test]
fn of_two_parts_one_goes_on_unless_the_policy_lets_both() {
    for count in 2..=5 {
        let view = cluster(&FIVE[..count]);
        for parts in 1..(1_u32 << count) - 1 {
            let part = |side: bool| -> BTreeSet<NodeId> {
                let inside = (0..count).filter(|&place| ((parts >> place) & 1 == 1) == side);
                inside.map(|place| NodeId::new(FIVE[place]).unwrap()).collect()
            };
            let fates = |policy| (view.fate(policy, &part(true)), view.fate(policy, &part(false)));
            for policy in [Policy::KeepMajority, Policy::KeepOldest] {
                let one = matches!(fates(policy), (Fate::GoesOn, Fate::Stops) | (Fate::Stops, Fate::GoesOn));
                assert!(one && !policy.allows_two(count), "{policy:?} {parts:b} of {count}");
            }
            let (one, other) = fates(Policy::Lease);
            assert_ne!(one, other, "one of them asks first");
            assert_eq!(fates(Policy::Available), (Fate::GoesOn, Fate::GoesOn));
            let both = fates(Policy::StaticQuorum(2)) == (Fate::GoesOn, Fate::GoesOn);
            assert!(!both || Policy::StaticQuorum(2).allows_two(count));
            assert_ne!(fates(Policy::StaticQuorum(3)), (Fate::GoesOn, Fate::GoesOn), "of five or fewer");
        }
    }
}

#[test]
fn the_crash_of_the_oldest_does_not_stop_the_others() {
    let view = cluster(&FIVE);
    assert_eq!(view.fate(Policy::KeepOldest, &names(["athens"])), Fate::GoesOn);
    assert_eq!(view.fate(Policy::KeepOldest, &names(["athens", "byzantium"])), Fate::Stops);
    assert_eq!(cluster(&FIVE[..2]).fate(Policy::KeepOldest, &names(["byzantium"])), Fate::GoesOn);
}

#[test]
fn of_two_halves_one_joins_the_other_and_never_both() {
    let view = cluster(&FIVE[..4]);
    let old = view.without(&names(["cyrene", "delphi"])).unwrap();
    let new =
        view.taken_over_by(life("cyrene", 1), Term(1)).without(&names(["athens", "byzantium"])).unwrap();
    assert!(old.sight().joins(&new.sight()) && !new.sight().joins(&old.sight()));
    let small = Sight { members: 1, ..old.sight() };
    assert!(
        !old.sight().joins(&Sight { members: 1, ..new.sight() })
            && new.sight().joins(&Sight { members: 3, ..small })
    );
    // In one term the number decides before the name does, and of equal numbers the lower name stays.
    let by = |name: &str, number: u64| {
        let version = ViewVersion { term: Term(2), coordinator: life(name, 1), number };
        Sight { version, ..old.sight() }
    };
    for (joins, stays) in [(by("athens", 2), by("cyrene", 3)), (by("cyrene", 2), by("athens", 3))] {
        assert!(joins.joins(&stays) && !stays.joins(&joins));
    }
    assert!(by("cyrene", 3).joins(&by("athens", 3)) && !by("athens", 3).joins(&by("cyrene", 3)));
    // A decision of a store weighs more.
    let chosen = Sight { members: 1, decision: FencingToken(1), ..old.sight() };
    assert!(new.sight().joins(&chosen) && !chosen.joins(&new.sight()));
    // After that the term is above both.
    let together = new.taken_over_by(life("cyrene", 1), old.version().term);
    assert!(together.version() > new.version() && together.version() > old.version());
    assert_eq!(old.without(&names(["athens", "byzantium"])), None);
}
