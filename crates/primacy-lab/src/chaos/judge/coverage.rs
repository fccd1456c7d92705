//! The coverage that a run needs for a meaningful verdict without violations.

use std::collections::BTreeMap;

use super::{ClientTally, FaultResult, Tally};
use crate::chaos::fault::{KINDS, Kind};

/// A run of this length draws every fault about ten times, and must have reached full coverage.
const WHOLE_MILLIS: u64 = 30 * 60 * 1_000;

/// The maximum share of the run for which processors may have been stalled, in parts per million. A higher share
/// exempts so much that the rest proves little.
const STALLED_PPM_MAX: u64 = 50_000;

/// The minimum number of acknowledged writes per second, and of answered reads, over the whole run.
const ANSWERED_MIN: u64 = 5;
const ANSWERED_ALONE_MIN: u64 = 1;

/// Returns the missing coverage of a run.
///
/// For any length: the machine must not have stalled too much (see [`STALLED_PPM_MAX`]), the leader must have
/// changed, and at least half of the drawn kinds of faults must have taken effect. For half an hour or more: a stale
/// write was tried, and every kind that applies to the arm and that this machine can inject was drawn and took
/// effect. A single node answers only between its faults, and ends the work of its earlier incarnation before it
/// leads again.
pub(crate) fn missing(
    millis: u64,
    nodes: usize,
    tally: &Tally,
    faults: &BTreeMap<Kind, FaultResult>,
) -> Vec<String> {
    let mut missing = Vec::new();
    // A re-elected node has a new token, but is the same leader.
    if tally.leaders < 2 {
        missing.push("the leader never changed".to_owned());
    }
    if tally.stalls.ppm > STALLED_PPM_MAX {
        let percent = tally.stalls.ppm / 10_000;
        missing.push(format!(
            "a machine that runs whoever is due: its processors stood still for {percent} % of the run"
        ));
    }
    if let Some(clients) = &tally.clients {
        missing.extend(missing_of_clients(millis, nodes, clients));
    }
    let whole = millis >= WHOLE_MILLIS;
    let made = |(kind, row): (&Kind, &FaultResult)| matches!(row, FaultResult::Made { .. }).then_some(*kind);
    // If every leader keeps its lead until its job has ended, there are no stale writes.
    let is_kept = nodes == 1 || faults.iter().filter_map(made).all(Kind::leaves_the_lead);
    if whole && tally.stale_tried == 0 && !is_kept {
        missing.push("no stale write was tried".to_owned());
    }
    let (mut drawn, mut in_vain) = (0, Vec::new());
    for kind in KINDS {
        match faults.get(kind) {
            Some(FaultResult::Made { planned: 0, .. }) if whole => {
                missing.push(format!("{}: never drawn", kind.text()))
            }
            Some(
                FaultResult::Made { planned: 0, .. }
                | FaultResult::NotRun { .. }
                | FaultResult::NotApplicable,
            )
            | None => {}
            Some(FaultResult::Made { planned, took, .. }) => {
                drawn += 1;
                if *took == 0 {
                    in_vain.push(format!("{}: drawn {planned} times, and never took effect", kind.text()));
                }
            }
        }
    }
    if whole {
        missing.append(&mut in_vain);
    } else if 2 * in_vain.len() > drawn {
        missing
            .push(format!("of {drawn} kinds of faults that were drawn, {} never took effect", in_vain.len()));
    }
    missing
}

/// Returns the missing coverage of the clients: some writes and reads per second in spite of the faults; a read of
/// all keys at the end; sessions that outlived a change of leader, and sessions that were seen to end; and no key
/// with an undecided history.
fn missing_of_clients(millis: u64, nodes: usize, clients: &ClientTally) -> Vec<String> {
    let a_second =
        |count: usize| u64::try_from(count).unwrap_or(u64::MAX).saturating_mul(1_000) / millis.max(1);
    let mut missing = Vec::new();
    let least = if nodes == 1 { ANSWERED_ALONE_MIN } else { ANSWERED_MIN };
    if a_second(clients.writes) < least || a_second(clients.reads) < least {
        let ClientTally { writes, reads, .. } = clients;
        missing.push(format!("clients were answered too little: {writes} writes and {reads} reads"));
    }
    if clients.last_readings == 0 {
        missing.push("nobody has read at the end what was written".to_owned());
    }
    if clients.sessions_over_changes == 0 {
        missing.push("no session lived while the leader changed".to_owned());
    }
    if clients.sessions_let_go == 0 || clients.sessions_seen_over < clients.sessions_let_go {
        let ClientTally { sessions_let_go, sessions_seen_over, .. } = clients;
        missing.push(format!(
            "of {sessions_let_go} sessions that were let go, {sessions_seen_over} were seen to be over"
        ));
    }
    if clients.undecided > 0 {
        let ClientTally { undecided, keys, .. } = clients;
        missing.push(format!("UNDECIDED: of {keys} keys, the histories of {undecided}"));
    }
    missing
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chaos::judge::Stalled;

    const MINUTE: u64 = 60_000;

    fn all(planned: usize, took: usize) -> BTreeMap<Kind, FaultResult> {
        let row = FaultResult::Made { planned, took, median_ns: 0, longest_ns: 0 };
        KINDS.iter().map(|kind| (*kind, row.clone())).collect()
    }

    fn tally(leaders: usize, stale_tried: usize) -> Tally {
        Tally { leaders, stale_tried, ..Tally::default() }
    }

    #[test]
    fn an_hour_must_meet_everything() {
        let of = |tally: Tally, faults| missing(60 * MINUTE, 3, &tally, &faults);
        assert_eq!(of(tally(2, 1), all(9, 1)), [""; 0]);
        assert_eq!(of(tally(1, 1), all(9, 1)), ["the leader never changed"]);
        assert_eq!(of(tally(2, 0), all(9, 1)), ["no stale write was tried"]);
        let mut faults = all(9, 1);
        faults.insert(Kind::Cut, FaultResult::Made { planned: 9, took: 0, median_ns: 0, longest_ns: 0 });
        faults.insert(Kind::Drop, FaultResult::Made { planned: 0, took: 0, median_ns: 0, longest_ns: 0 });
        faults.insert(Kind::Chain, FaultResult::NotApplicable);
        faults.insert(Kind::FakedClock, FaultResult::NotRun { reason: "no library".into() });
        let lacks = of(tally(2, 1), faults);
        assert_eq!(
            lacks,
            ["share of packets dropped: never drawn", "link cut: drawn 9 times, and never took effect"]
        );
    }

    #[test]
    fn a_minute_must_meet_less() {
        let of = |tally: Tally, faults| missing(MINUTE, 3, &tally, &faults);
        assert_eq!(of(tally(2, 0), all(0, 0)), [""; 0]);
        assert_eq!(of(tally(1, 0), all(1, 1)), ["the leader never changed"]);
        let stalled = |ppm| Tally { stalls: Stalled { ppm, ..Stalled::default() }, ..tally(2, 0) };
        assert_eq!(of(stalled(50_000), all(0, 0)), [""; 0]);
        let lacks = "a machine that runs whoever is due: its processors stood still for 7 % of the run";
        assert_eq!(of(stalled(70_001), all(0, 0)), [lacks]);
        let mut faults = all(1, 0);
        assert_eq!(of(tally(2, 0), faults.clone()).len(), 1);
        for kind in &KINDS[..KINDS.len().div_ceil(2)] {
            faults.insert(*kind, FaultResult::Made { planned: 1, took: 1, median_ns: 0, longest_ns: 0 });
        }
        assert_eq!(of(tally(2, 0), faults), [""; 0]);
    }
}
