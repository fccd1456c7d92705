//! Every order of events within the bounds of the small spaces: no invariant breaks, all marks are reached,
//! and the numbers of states are as before. The large spaces are searched by the example `prove`.

use primacy_sim::model::spaces::{SPACES, Space};

/// Searches the chosen spaces; all faults are reported at once, with the shortest way to each broken
/// invariant.
fn search(chosen: impl Fn(&Space) -> bool) {
    let mut wrong = Vec::new();
    for row in SPACES.iter().filter(|row| row.small && chosen(row)) {
        let found = row.search(u64::from(u32::MAX) - 1);
        println!("{}: {} states, {} steps", row.name, found.states, found.steps);
        let judged = row.judge(&found);
        if !judged.is_empty() {
            let story = found.broken.iter().flat_map(|broken| &broken.story).flatten();
            let story = story.fold(String::new(), |story, line| story + "\n    " + line);
            wrong.push(format!("{}: {}{story}", row.name, judged.join("; ")));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn votes_are_given_once_in_every_order_of_events() {
    search(|row| row.name.starts_with("votes"));
}

#[test]
fn leases_among_peers_never_overlap_in_any_order_of_events() {
    search(|row| row.name.starts_with("lease"));
}

#[test]
fn ranked_elects_one_leader_in_a_term_in_every_order_of_events() {
    search(|row| row.name.starts_with("ranked"));
}

#[test]
fn whatever_is_nominated_a_quorum_elects_one_leader_in_every_order_of_events() {
    search(|row| row.name.starts_with("confirmed"));
}

#[test]
fn views_are_made_once_in_every_order_of_events() {
    search(|row| row.name.starts_with("members"));
}

#[test]
fn leases_over_a_store_never_overlap_in_any_order_of_events() {
    search(|row| row.name.starts_with("store"));
}

#[test]
fn sessions_over_a_store_never_overlap_in_any_order_of_events() {
    search(|row| row.name.starts_with("session"));
}

#[test]
fn what_is_committed_is_never_lost_or_changed_in_any_order_of_events() {
    search(|row| row.name.starts_with("log"));
}

/// Each is chosen by one of the tests above.
#[test]
fn every_small_space_is_searched() {
    let begins = ["votes", "lease", "ranked", "confirmed", "members", "store", "session", "log"];
    for row in SPACES.iter().filter(|row| row.small) {
        let chosen = begins.iter().filter(|begin| row.name.starts_with(**begin)).count();
        assert_eq!(chosen, 1, "{}", row.name);
    }
}

#[test]
fn every_space_has_its_name_alone() {
    let mut names: Vec<&str> = SPACES.iter().map(|row| row.name).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), SPACES.len());
}
