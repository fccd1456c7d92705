//! Histories with a known verdict, each with the reason.

use primacy_conformance::linearizability::{Verdict, check};
use primacy_conformance::register_model::RegisterModel;

use crate::story::story;
use crate::twin;

/// Histories with an order, and why.
const GOOD: &[(&str, &str)] = &[
    ("nothing was asked", ""),
    (
        "one after the other",
        "1 0-1 create 7: done v1\n1 2-3 read: 7 v1\n1 4-5 write v1 8: done v2\n1 6-7 read: 8 v2",
    ),
    (
        "a read beside a write sees what was before",
        "1 0-1 create 7: done v1\n1 2-9 write v1 8: done v2\n2 3-4 read: 7 v1",
    ),
    ("a read beside a write sees it", "1 0-1 create 7: done v1\n1 2-9 write v1 8: done v2\n2 3-4 read: 8 v2"),
    (
        "two readers beside a write, the later one sees it",
        "1 0-1 create 7: done v1\n1 2-9 write v1 8: done v2\n2 3-4 read: 7 v1\n3 5-6 read: 8 v2",
    ),
    (
        "two readers that overlap may see it in either order",
        "1 0-1 create 7: done v1\n1 2-9 write v1 8: done v2\n2 3-6 read: 8 v2\n3 4-7 read: 7 v1",
    ),
    (
        "the end of one is the beginning of the other, and so they overlap",
        "1 0-5 create 7: done v1\n2 5-6 read: nothing",
    ),
    ("of two that create, one does", "1 0-9 create 7: done v1\n2 0-9 create 8: conflict"),
    (
        "a conflict with a write that comes right before",
        "1 0-1 create 7: done v1\n1 2-5 write v1 8: done v2\n2 3-4 write v1 9: conflict",
    ),
    (
        "three writes beside each other, in the one order that their versions leave",
        "1 0-9 write v2 9: done v3\n2 0-9 create 7: done v1\n3 0-9 write v1 8: done v2\n4 10-11 read: 9 v3",
    ),
    (
        "an unknown write that is never done",
        "1 0-1 create 7: done v1\n1 2- write v1 8: unknown\n2 50-60 read: 7 v1",
    ),
    (
        "an unknown write that is done",
        "1 0-1 create 7: done v1\n1 2- write v1 8: unknown\n2 50-60 read: 8 v2",
    ),
    (
        "an unknown write that lands late, after a read that did not see it",
        "1 0-1 create 7: done v1\n1 2- write v1 8: unknown\n2 50-60 read: 7 v1\n2 70-80 read: 8 v2",
    ),
    (
        "an unknown write under a version that nobody knows is why another one is refused",
        "1 0-1 create 7: done v1\n1 2- write v1 8: unknown\n2 50-60 write v1 9: conflict\n2 70-80 read: 8 v2",
    ),
    (
        "an unknown write that comes too late, and so never is",
        "1 0-1 create 7: done v1\n1 2- write v1 8: unknown\n2 50-60 write v1 9: done v2\n2 70-80 read: 9 v2",
    ),
    (
        "two unknown writes, and the second rests on the first",
        "1 0-1 create 7: done v1\n1 2- write v1 8: unknown\n2 50- write v2 9: unknown\n3 70-80 read: 9 v3",
    ),
    (
        "a write that surely failed says nothing of what is there",
        "1 0-1 create 7: done v1\n2 2-3 write v1 8: failed\n1 4-5 read: 7 v1",
    ),
    ("an unknown read is nothing", "1 0- read: unknown\n1 2-3 create 7: done v1"),
    (
        "the same value again is another version",
        "1 0-1 create 7: done v1\n1 2-3 write v1 7: done v2\n2 4-5 read: 7 v2",
    ),
    (
        "a refused write tells what the version is not, and the next one what it is",
        "1 0- create 7: unknown\n2 5-6 write v3 8: conflict\n2 7-8 write v4 9: done v5",
    ),
];

/// Histories without an order, why, and a part of what is not explained.
const BAD: &[(&str, &str, &str)] = &[
    (
        "a stale read: the write was answered before",
        "1 0-1 create 7: done v1\n1 2-3 write v1 8: done v2\n2 4-5 read: 7 v1",
        "read: 7",
    ),
    ("an absence after a write", "1 0-1 create 7: done v1\n2 2-3 read: nothing", "read: nothing is there"),
    ("a read of what nobody wrote", "1 0-1 create 7: done v1\n2 2-3 read: 9 v9", "read: 9"),
    ("a read of what is written later", "2 0-1 read: 7 v1\n1 2-3 create 7: done v1", "read: 7"),
    (
        "a read of the value under another version",
        "1 0-1 create 7: done v1\n2 2-3 read: 7 v2",
        "read: 7, version 2",
    ),
    (
        "a reader that goes back, beside the write that it has seen",
        "1 0-1 create 7: done v1\n1 2-9 write v1 8: done v2\n2 3-4 read: 8 v2\n2 5-6 read: 7 v1",
        "caller 2, 0.005 µs to 0.006 µs: read: 7",
    ),
    (
        "a second reader that goes back behind the first",
        "1 0-1 create 7: done v1\n1 2-9 write v1 8: done v2\n2 3-4 read: 8 v2\n3 5-6 read: 7 v1",
        "caller 3",
    ),
    ("two that create", "1 0-9 create 7: done v1\n2 0-9 create 8: done v2", "create"),
    (
        "a split compare-and-set: two writes over one version",
        "1 0-1 create 7: done v1\n1 2-9 write v1 8: done v2\n2 3-8 write v1 9: done v3",
        "write",
    ),
    (
        "a lost update: the second of two is not seen, and no one wrote over it",
        "1 0-1 create 7: done v1\n1 2-3 write v1 8: done v2\n2 4-5 write v2 9: done v3\n3 6-7 read: 8 v2",
        "read: 8",
    ),
    (
        "a write with an old version",
        "1 0-1 create 7: done v1\n1 2-3 write v1 8: done v2\n2 4-5 write v1 9: done v3",
        "write 9 over",
    ),
    ("a conflict with nothing", "1 0-1 create 7: done v1\n2 2-3 write v1 8: conflict", "conflict"),
    ("a conflict where nothing is", "1 0-1 create 7: conflict", "create 7: conflict"),
    ("a write over a version where nothing is", "1 0-1 write v1 7: done v2", "write 7 over"),
    (
        "a refused write that was done",
        "1 0-1 create 7: done v1\n1 2-3 write v1 8: done v2\n2 4-5 write v1 9: conflict\n3 6-7 read: 9 v3",
        "read: 9",
    ),
    (
        "a write that surely failed, and was done",
        "1 0-1 create 7: done v1\n2 2-3 write v1 8: failed\n1 4-5 read: 8 v2",
        "read: 8",
    ),
    (
        "an unknown write that is seen, and then is not",
        "1 0-1 create 7: done v1\n1 2- write v1 8: unknown\n2 50-60 read: 8 v2\n2 70-80 read: 7 v1",
        "caller 2, 0.070 µs",
    ),
    (
        "an unknown write that is done twice",
        "1 0-1 create 7: done v1\n1 2- write v1 8: unknown\n2 10-11 read: 8 v2\n2 12-13 write v2 7: done v3\n2 14-15 read: 8 v4",
        "read: 8, version 4",
    ),
    (
        "an unknown write that lands over a version which is gone",
        "1 0-1 create 7: done v1\n1 2- write v1 8: unknown\n2 10-11 write v1 9: done v2\n2 14-15 read: 8 v3",
        "read: 8",
    ),
    (
        "a blind repetition of an unknown write that was done, answered as if it had not been",
        "1 0-1 create 7: done v1\n1 2- write v1 8: unknown\n2 10-11 read: 8 v2\n1 12-13 write v1 8: done v3",
        "write 8 over",
    ),
    ("an unknown write before its time", "2 0-1 read: 7 v1\n1 2- create 7: unknown", "read: 7"),
    (
        "an unknown write whose version is told in two ways",
        "1 0- create 7: unknown\n2 10-11 read: 7 v1\n3 12-13 read: 7 v2",
        "caller 3",
    ),
    (
        "a version that was refused before anybody knew it, and is told all the same",
        "1 0- create 7: unknown\n2 2-3 create 8: conflict\n2 4-5 write v4 8: conflict\n2 6-7 read: 7 v4",
        "read: 7, version 4",
    ),
    (
        "an unknown write that has left the version as it was",
        "1 0-1 create 7: done v1\n1 2- write v1 8: unknown\n2 10-11 read: 8 v1",
        "read: 8, version 1",
    ),
    (
        "a version that was refused, and is told all the same",
        "1 0- create 7: unknown\n2 2-3 read: 7 v4\n2 5-6 write v4 8: conflict",
        "conflict",
    ),
    (
        "a write that makes the version that was there",
        "1 0-1 create 7: done v1\n1 2-3 write v1 8: done v1",
        "write 8 over",
    ),
    (
        "a store that was set back",
        "1 0-1 create 7: done v1\n1 2-3 write v1 8: done v2\n1 4-5 write v2 9: done v3\n2 6-7 write v1 6: done v2",
        "write 6 over",
    ),
];

#[test]
fn what_has_an_order_has_one() {
    for (why, text) in GOOD {
        let history = story(text);
        let verdict = check(&RegisterModel::of(&history), &history);
        assert!(matches!(verdict, Verdict::Ordered(_)), "{why}: {verdict:?}");
        assert!(twin::has_an_order(&RegisterModel::of(&history), &history, |_| true), "{why}: the twin");
    }
}

#[test]
fn what_has_no_order_is_found_and_explained() {
    for (why, text, says) in BAD {
        let history = story(text);
        let Verdict::Impossible(explanation) = check(&RegisterModel::of(&history), &history) else {
            panic!("not found: {why}");
        };
        println!("{why}:\n{explanation}\n");
        assert!(explanation.last.contains(says), "{why}: {explanation}");
        assert!(explanation.lines.contains(&explanation.last), "{why}: {explanation}");
        assert!(!twin::has_an_order(&RegisterModel::of(&history), &history, |_| true), "{why}: the twin");
    }
}

#[test]
fn an_explanation_begins_where_all_was_clear_and_ends_where_nothing_explains() {
    let mut text = "1 0-1 create 100: done v100\n".to_owned();
    for number in 100..120 {
        text += &format!("1 {0}-{0} write v{number} {1}: done v{1}\n", number, number + 1);
    }
    text += "1 200-230 write v120 121: done v121\n2 205-206 read: 121 v121\n3 210-211 read: 120 v120\n";
    text += "3 300-301 read: 121 v121\n";
    let Verdict::Impossible(explanation) = check(&RegisterModel::of(&story(&text)), &story(&text)) else {
        panic!("it has no order");
    };
    let told = explanation.to_string();
    let expected = "no order explains the first 24 requests
  at 0.119 µs: 120, version 120
  caller 1, 0.200 µs to 0.230 µs: write 121 over version 120: done, version 121
  caller 2, 0.205 µs to 0.206 µs: read: 121, version 121
  caller 3, 0.210 µs to 0.211 µs: read: 120, version 120
  by then it can have been: 121, version 121
  not explained: caller 3, 0.210 µs to 0.211 µs: read: 120, version 120";
    assert_eq!(told, expected);
}
