//! Refused options for seniority, and the texts of their errors.

use super::*;
use crate::Elector;
use crate::config::{ConfigError, Venue};
use crate::{Algorithm, Confirm, ConnectError, Peers, Safety};

fn peers(count: usize) -> BTreeSet<NodeId> {
    (0..count).map(|number| NodeId::new(&format!("n{number}")).unwrap()).collect()
}

fn attributes(bytes: usize) -> Arc<Attributes> {
    Arc::new(Attributes::new("x".repeat(bytes), String::new(), String::new(), BTreeMap::new()).unwrap())
}

fn timers() -> Timers {
    Timers::new(Venue::Peers, None)
}

impl SeniorityOptions {
    fn check_among(
        &self,
        peers: &BTreeSet<NodeId>,
        attributes: &Arc<Attributes>,
    ) -> Result<(), SeniorityError> {
        self.problems_among(peers, attributes).into_iter().next().map_or(Ok(()), Err)
    }
}

/// The error of these options among three peers.
fn refused(options: &SeniorityOptions) -> SeniorityError {
    let node = *peers(1).first().unwrap();
    let alone = options.check(node, &attributes(0), &timers());
    alone.and_then(|()| options.check_among(&peers(3), &attributes(0))).unwrap_err()
}

#[test]
fn what_cannot_be_is_refused_with_what_can() {
    let good = SeniorityOptions::default;
    let node = NodeId::new("n0").unwrap();
    good().check(node, &attributes(0), &timers()).unwrap();
    good().check_among(&peers(1), &attributes(0)).unwrap();

    let stranger = NodeId::new("z").unwrap();
    let seeds = SeniorityOptions { seeds: vec![node, stranger], ..good() };
    assert_eq!(
        refused(&seeds).to_string(),
        "the seed z is not one of the peers (n0, n1, n2); name peers as seeds"
    );
    let twice = SeniorityOptions { seeds: vec![node, node], ..good() };
    assert_eq!(refused(&twice), seniority::ConfigError::SeedTwice(node).into());
    let many = SeniorityOptions { seeds: peers(17).into_iter().collect(), ..good() };
    assert_eq!(refused(&many), seniority::ConfigError::Seeds(17).into());
    let nobody = SeniorityOptions { neighbours: Some(0), ..good() };
    assert_eq!(refused(&nobody), seniority::ConfigError::NoNeighbours.into());

    // If every part goes on, a cut link can break no promise; and between two peers there is only one link.
    let one = SeniorityOptions { neighbours: Some(1), ..good() };
    assert_eq!(refused(&one), SeniorityError::OneNeighbour { peers: 3 });
    one.check_among(&peers(2), &attributes(0)).unwrap();
    SeniorityOptions { neighbours: Some(2), ..good() }.check_among(&peers(3), &attributes(0)).unwrap();
    let each = SeniorityOptions { split_brain: SplitBrain::Available, ..one };
    each.check_among(&peers(3), &attributes(0)).unwrap();

    for minimum in [0, 4] {
        let options = SeniorityOptions { minimum_members: Some(minimum), ..good() };
        assert_eq!(refused(&options), SeniorityError::Minimum { minimum, peers: 3 });
    }
    for given in [Duration::ZERO, STABLE_AFTER_MAX + Duration::from_nanos(1)] {
        let options = SeniorityOptions { stable_after: Some(given), ..good() };
        assert_eq!(refused(&options), SeniorityError::StableAfter { given });
    }
}

#[test]
fn a_static_quorum_is_one_that_two_parts_cannot_both_have() {
    let of = |size, count| {
        let split_brain = SplitBrain::StaticQuorum(size);
        SeniorityOptions { split_brain, ..SeniorityOptions::default() }
            .check_among(&peers(count), &attributes(0))
    };
    for (size, count, good) in [(0, 3, false), (1, 3, false), (2, 3, true), (3, 3, true), (4, 3, false)] {
        assert_eq!(of(size, count).is_ok(), good, "{size} of {count}");
    }
    assert_eq!(of(2, 4), Err(SeniorityError::StaticQuorum { size: 2, peers: 4 }));
    let two = of(2, 5).unwrap_err().to_string();
    assert!(two.contains("lets two parts go on") && two.contains("at least 3, and at most 5"), "{two}");
    assert!(of(6, 5).unwrap_err().to_string().contains("lets no part go on"));
}

#[test]
fn detectors_that_suspect_everybody_or_nobody_are_refused() {
    let detection =
        |detection| SeniorityOptions { detection: Some(detection), ..SeniorityOptions::default() };
    let second = core::Duration::from_secs(1);
    let phi = |threshold_tenths, acceptable_pause| {
        detection(Detection::PhiAccrual {
            threshold_tenths,
            acceptable_pause,
            deviation_min: second.divided_by(10),
        })
    };
    for tenths in [0, 9, 201] {
        assert_eq!(refused(&phi(tenths, second)), SeniorityError::Threshold { tenths });
    }
    assert!(matches!(refused(&phi(80, second.times(4_000))), SeniorityError::Patience { .. }));
    // With such bounds, phi-accrual could suspect a member after one lost heartbeat.
    let strict = |acceptable_pause, deviation_min| {
        detection(Detection::PhiAccrual { threshold_tenths: 80, acceptable_pause, deviation_min })
    };
    let (quarter, nothing) = (second.divided_by(4), core::Duration::ZERO);
    let just_below = quarter.minus(core::Duration::from_nanos(1));
    for grace in [nothing, just_below] {
        let error = SeniorityError::Grace { grace, interval: quarter };
        assert_eq!(refused(&strict(grace, nothing)), error);
    }
    for enough in [strict(quarter, nothing), strict(nothing, quarter), strict(nothing, second.divided_by(20))]
    {
        let node = NodeId::new("n0").unwrap();
        enough.check(node, &attributes(0), &timers()).unwrap();
    }
    for hasty in [Detection::Missed { count: 1 }, Detection::Missed { count: 0 }] {
        let error = refused(&detection(hasty));
        assert!(
            matches!(error, SeniorityError::Machine(seniority::ConfigError::Impatient { .. })),
            "{error}"
        );
    }
    let short = Detection::Deadline { timeout: second.divided_by(4) };
    assert!(refused(&detection(short)).to_string().contains("silence is suspicious after"));
    let never = Detection::Deadline { timeout: second.times(7_200) };
    assert!(matches!(refused(&detection(never)), SeniorityError::Patience { .. }));
}

/// Whatever the number of peers: if the options are accepted, a view of all of them fits into a message.
#[test]
fn a_view_that_could_not_be_sent_is_refused_at_once() {
    let options = SeniorityOptions::default();
    options.check_among(&peers(100), &attributes(512)).unwrap();
    let error = options.check_among(&peers(130), &attributes(512)).unwrap_err();
    assert!(matches!(error, SeniorityError::ViewTooLong { peers: 130, length: 65_537.. }), "{error:?}");
    options.check_among(&peers(130), &attributes(100)).unwrap();
    assert!(options.check_among(&peers(1_024), &attributes(20)).is_err());
}

#[test]
fn what_only_peers_have_is_refused_over_a_store() {
    let builder = || Elector::builder().election("e");
    let refused = |builder: crate::Builder| match builder.check(Venue::Store) {
        Err(ConfigError::OnlyAmongPeers { what }) => what,
        other => panic!("{other:?}"),
    };
    assert_eq!(refused(builder().algorithm(Algorithm::Quorum)), "an algorithm (algorithm)");
    assert_eq!(refused(builder().confirm(Confirm::Quorum)), "a confirmation (confirm)");
    assert_eq!(
        refused(builder().seniority(SeniorityOptions::default())),
        "options for seniority (seniority)"
    );
    assert_eq!(refused(builder().safety(Safety::Fenced)), "a choice of safety (safety)");
    assert_eq!(refused(builder().priority(1)), "a priority (priority)");
    builder().check(Venue::Store).unwrap();
}

#[test]
fn options_and_witnesses_go_with_elections_that_have_a_use_for_them() {
    let peers: Peers = "n0=127.0.0.1:1,n1=127.0.0.1:2".parse().unwrap();
    let builder = || Elector::builder().election("e").node(NodeId::new("n0").unwrap()).allow_advisory(true);
    let check = |builder: crate::Builder| match builder.check_peers(&peers) {
        Ok(()) => Ok(()),
        Err(problems) => match problems.into_iter().next() {
            Some(ConnectError::Config(error)) => Err(error),
            other => panic!("{other:?}"),
        },
    };
    let options = SeniorityOptions::default();
    for by in [Algorithm::Quorum, Algorithm::Ranked, Algorithm::Bully] {
        let error = check(builder().algorithm(by).seniority(options.clone())).unwrap_err();
        assert!(matches!(error, ConfigError::OnlySeniority { .. }), "{error}");
    }
    check(builder().algorithm(Algorithm::Seniority).seniority(options)).unwrap();
    for by in [Algorithm::Seniority, Algorithm::Ring, Algorithm::Bully] {
        let error = check(builder().algorithm(by).witness(true)).unwrap_err();
        assert!(matches!(error, ConfigError::NothingToVote { .. }), "{error}");
        check(builder().algorithm(by).confirm(Confirm::Quorum).witness(true)).unwrap();
    }
    check(builder().algorithm(Algorithm::Ranked).witness(true)).unwrap();
    // The same check also finds all defects that depend on the peers.
    let stranger = NodeId::new("z").unwrap();
    let wrong = SeniorityOptions { minimum_members: Some(3), seeds: vec![stranger], ..Default::default() };
    let problems =
        builder().algorithm(Algorithm::Seniority).seniority(wrong).check_peers(&peers).unwrap_err();
    assert_eq!(problems.len(), 2, "{problems:?}");
    let too_large = SeniorityOptions { minimum_members: Some(3), ..SeniorityOptions::default() };
    let error = check(builder().algorithm(Algorithm::Seniority).seniority(too_large)).unwrap_err();
    assert_eq!(error, SeniorityError::Minimum { minimum: 3, peers: 2 }.into());
}
